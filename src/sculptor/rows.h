/* Rows of a stored matrix, converted to another type: read in blocks, each block's rows in
 * parallel.
 *
 * Every row is converted alone, so the bytes do not depend on the number of threads or on where
 * blocks begin. Memory is two blocks and one row of floats a thread, whatever the matrix.
 */
#ifndef SMOE_SCULPTOR_ROWS_H
#define SMOE_SCULPTOR_ROWS_H

#include "base/pool.h"
#include "kernels/kernels.h"
#include "model/source.h"

typedef struct row_matrix {
    int32_t file; /* of the source */
    uint64_t offset;
    dtype type; /* any with is_weight */
    int32_t n_row;
    int32_t n_col;
    dtype to; /* the same, which keeps every bit; or one that quantise_row makes */
    /* for messages, such as "layer 3, expert 7: gate" */
    const char *what;
} row_matrix;

typedef struct rows {
    const source *source;
    const kernels *kernels;
    pool *pool;
    uint8_t *raw; /* [block_bytes], or one row if that is longer */
    float *row;   /* [n_thread][max_col] */
    int32_t max_col;
    uint64_t block_bytes;
} rows;

/* max_row_bytes: of the longest row, stored or converted. r is the caller's (rows_close), also
 * after failure. */
int rows_open(rows *r, const source *s, pool *p, uint64_t block_bytes, int32_t max_col,
              uint64_t max_row_bytes, smoe_error *err);
void rows_close(rows *r);
/* Rows of m that one call of rows_convert takes at most: as many as block_bytes hold, before and
 * after, but at least 1. */
int32_t rows_in_block(const rows *r, const row_matrix *m);
/* Converts rows [first, first + n_row) to out, n_row of them at most rows_in_block. A value that is
 * not finite, or not after conversion, is SMOE_ERR_NUMERIC naming the matrix and its first row. */
int rows_convert(const rows *r, const row_matrix *m, int32_t first, int32_t n_row, uint8_t *out,
                 smoe_error *err);

#endif
