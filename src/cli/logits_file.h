/* Files of logits: safetensors with `logits` float32 and `ids` int32, one row of logits for each
 * id. Their shapes are [tokens, vocabulary] and [tokens], or [windows, tokens, vocabulary] and
 * [windows, tokens]; each window started afresh. A file that is read may come from any program, and
 * may lack `ids`. */
#ifndef SMOE_CLI_LOGITS_FILE_H
#define SMOE_CLI_LOGITS_FILE_H

#include "base/error.h"
#include "base/file.h"

/* What the file holds the logits of. */
typedef struct logits_shape {
    size_t n_window; /* 0: one sequence, and shapes without that dimension */
    size_t n_tok;    /* of a window */
    int32_t vocab;
} logits_shape;

typedef struct logits_writer {
    int fd;
    char path[FILE_PATH_BYTES];   /* what is written */
    char target[FILE_PATH_BYTES]; /* what it becomes */
    bool is_file;
    size_t row_bytes;
} logits_writer;

/* A file is written under a name of its own and renamed when it is whole, so that the name asked
 * for never stands for a part; a device or pipe is written as it is. ids: of all windows. */
int logits_create(logits_writer *w, const char *out, const logits_shape *shape, const int32_t *ids,
                  smoe_error *err);
int logits_write_row(logits_writer *w, const float *row, smoe_error *err);
/* Closes what logits_create made. With rc SMOE_OK all rows are written and the file gets its name,
 * otherwise it goes. Returns rc, or what went wrong in closing. */
int logits_close(logits_writer *w, int rc, smoe_error *err);

typedef struct logits_reader {
    const char *path; /* borrowed */
    int fd;
    logits_shape shape; /* n_window at least 1 */
    bool has_ids;
    uint64_t logits_at, ids_at; /* offsets in the file */
} logits_reader;

int logits_open(logits_reader *r, const char *path, smoe_error *err);
/* One row, of vocab values; row counts through all windows. */
int logits_read_row(const logits_reader *r, size_t row, float *out, smoe_error *err);
/* Whether the file's first n rows belong to these ids, as far as it says. */
int logits_check_ids(const logits_reader *r, const int32_t *ids, size_t n, smoe_error *err);
void logits_end(logits_reader *r);

#endif
