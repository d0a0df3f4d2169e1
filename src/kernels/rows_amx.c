/* Sixteen rows side by side on matrix tiles, x86_rows_amx.h, from groups of some tokens on; smaller
 * ones go to the AVX-512 kernels, which give the same bits. Compiled for AVX-512 F, BW, VL, DQ and
 * VNNI and AMX-INT8; called only where the CPU has them and the system lets this process use tiles.
 * No call leaves tiles in use, since they would weigh on every switch of threads.
 */
#if defined(__x86_64__)

#define ROWS_TO_TILES
#include "kernels/x86_rows_512.h"

#include "kernels/x86_rows.h"
#include "kernels/x86_rows_amx.h"

/* From so many tokens on tiles are faster; at eight both take as long. Runs of 16 fill tiles only
 * by half. */
static int32_t least_tokens(bool runs_of_16) {
    return runs_of_16 ? 16 : 12;
}

static matmul_fn *without_tiles[DT_COUNT]; /* by kernels_fill_amx, before any of these runs */

static void mm_tiles(dtype type, bool runs_of_16, rows_side_by_side_fn *rows, float *y,
                     size_t y_stride, const void *w, size_t w_row_bytes, int32_t n_row,
                     int32_t n_col, const act_q8 *x, size_t x_stride, int32_t n_tok) {
    for (int32_t n; n_tok >= least_tokens(runs_of_16); n_tok -= n) {
        n = n_tok < CHUNK_TOKENS ? n_tok : CHUNK_TOKENS;
        shape_tiles(runs_of_16, n);
        mm_rows(rows, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n);
        _tile_release();
        y += y_stride * (size_t)n;
        x += x_stride * (size_t)n;
    }
    if (n_tok > 0) {
        without_tiles[type](y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);
    }
}

#define TILES_KERNEL(type, dtype)                                                                  \
    ROWS_FUNCTION(tiles_##type, type, false)                                                       \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        mm_tiles(dtype, rows_runs_of_16(ROWS_##type), tiles_##type, y, y_stride, w, w_row_bytes,   \
                 n_row, n_col, x, x_stride, n_tok);                                                \
    }

/* All types of x86_rows.h but Q2, which was no faster on tiles (bench/results.tsv). */
#define TILES_TYPES(X)                                                                             \
    X(q8, DT_Q8)                                                                                   \
    X(q4, DT_Q4)                                                                                   \
    X(q4_0, DT_Q4_0)                                                                               \
    X(iq4_nl, DT_IQ4_NL)                                                                           \
    X(mxfp4, DT_MXFP4)                                                                             \
    X(q4_k, DT_Q4_K)                                                                               \
    X(q5_k, DT_Q5_K)                                                                               \
    X(q6_k, DT_Q6_K)                                                                               \
    X(iq4_xs, DT_IQ4_XS)

TILES_TYPES(TILES_KERNEL)

#define FILL_SLOT(type, dtype)                                                                     \
    without_tiles[dtype] = k->mm_q8[dtype];                                                        \
    k->mm_q8[dtype] = mm_q8_##type;

void kernels_fill_amx(kernels *k) {
    k->name = "amx";
    TILES_TYPES(FILL_SLOT)
}

#endif
