/* Row conversion; see rows.h. Reads the source's files, writes none. */
#include "sculptor/rows.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/file.h"
#include "sculptor/quantise.h"

/* Values in one task of the pool: some tens of microseconds of quantising. */
enum { TASK_VALUES = 16384 };

typedef struct block_job {
    const rows *r;
    const row_matrix *m;
    uint64_t from_row_bytes;
    uint64_t to_row_bytes;
    int32_t n_row;
    int32_t rows_a_task;
    uint8_t *out;
    atomic_int bad_row; /* the first in the block, n_row: none */
} block_job;

/* Whether rows of one type are rows of the other. */
static bool same_layout(dtype a, dtype b) {
    return a == b || (a == DT_Q8_0 && b == DT_Q8);
}

static bool all_finite(const float *x, int32_t n) {
    bool finite = true;
    for (int32_t i = 0; i < n; i++) {
        finite &= isfinite(x[i]) != 0;
    }
    return finite;
}

static bool convert_row(const block_job *j, int32_t row, float *x) {
    const row_matrix *m = j->m;
    const uint8_t *from = j->r->raw + (size_t)row * j->from_row_bytes;
    uint8_t *out = j->out + (size_t)row * j->to_row_bytes;
    j->r->kernels->dequant_row[m->type](from, m->n_col, x);
    if (same_layout(m->type, m->to)) {
        memcpy(out, from, (size_t)j->from_row_bytes);
        return all_finite(x, m->n_col);
    }
    return quantise_row(m->to, x, m->n_col, out);
}

static void convert_task(void *job, int32_t task, int32_t thread) {
    block_job *j = job;
    float *x = j->r->row + (size_t)thread * (size_t)j->r->max_col;
    int32_t first = task * j->rows_a_task;
    int32_t end = first + j->rows_a_task < j->n_row ? first + j->rows_a_task : j->n_row;
    for (int32_t row = first; row < end; row++) {
        if (!convert_row(j, row, x)) {
            int seen = atomic_load(&j->bad_row);
            while (row < seen && !atomic_compare_exchange_weak(&j->bad_row, &seen, row)) {
            }
        }
    }
}

int rows_open(rows *r, const source *s, pool *p, uint64_t block_bytes, int32_t max_col,
              uint64_t max_row_bytes, smoe_error *err) {
    uint64_t raw_bytes = block_bytes > max_row_bytes ? block_bytes : max_row_bytes;
    size_t n_row = (size_t)pool_threads(p);
    *r = (rows){.source = s, .pool = p, .max_col = max_col, .block_bytes = block_bytes};
    r->raw = malloc((size_t)raw_bytes);
    r->row = mem_array(n_row * (size_t)max_col, sizeof *r->row);
    if (!r->raw || !r->row) {
        return err_no_memory(err, raw_bytes + n_row * (uint64_t)max_col * sizeof *r->row);
    }
    /* dequantised rows have the same bits in every variant */
    return kernels_select(&r->kernels, NULL, err);
}

void rows_close(rows *r) {
    free(r->raw);
    free(r->row);
    *r = (rows){0};
}

int32_t rows_in_block(const rows *r, const row_matrix *m) {
    uint64_t from = dtype_row_bytes(m->type, (uint64_t)m->n_col);
    uint64_t to = dtype_row_bytes(m->to, (uint64_t)m->n_col);
    uint64_t n = r->block_bytes / (from > to ? from : to);
    return n < 1 ? 1 : n < (uint64_t)m->n_row ? (int32_t)n : m->n_row;
}

int rows_convert(const rows *r, const row_matrix *m, int32_t first, int32_t n_row, uint8_t *out,
                 smoe_error *err) {
    const model_file *f = &r->source->files.file[m->file];
    block_job job = {.r = r,
                     .m = m,
                     .from_row_bytes = dtype_row_bytes(m->type, (uint64_t)m->n_col),
                     .to_row_bytes = dtype_row_bytes(m->to, (uint64_t)m->n_col),
                     .n_row = n_row,
                     .rows_a_task = TASK_VALUES / m->n_col + 1,
                     .out = out,
                     .bad_row = n_row};
    uint64_t offset = m->offset + (uint64_t)first * job.from_row_bytes;
    int rc = file_read_at(f->fd, f->path, offset, r->raw, (size_t)n_row * job.from_row_bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    pool_run(r->pool, convert_task, &job, (n_row + job.rows_a_task - 1) / job.rows_a_task);
    int bad = atomic_load(&job.bad_row);
    if (bad < n_row) {
        return err_set(err, SMOE_ERR_NUMERIC,
                       "%s: %s: row %d holds a value that is not finite (or too large for %s); the "
                       "checkpoint is damaged",
                       f->path, m->what, first + bad, dtype_get(m->to)->name);
    }
    return SMOE_OK;
}
