/* Matrix products as pool jobs: splitting rows over threads. Each output element is computed by one
 * kernel call, in the order the kernels fix, so the split never shows in the result. */
#include "layers/exec.h"

/* Below this many weight bytes, times tokens, a task costs less than handing it out, and what its
 * first rows wait for memory shows. */
#define TASK_MIN_BYTES   65536u
#define TASKS_PER_THREAD 8

/* At most so much is prefetched in one go: it should still be in L2 when its turn comes. */
#define PREFETCH_MAX_BYTES 32768u

/* Of what comes next, for each thread: half of the smallest L2 cache that is common. From 128 KiB
 * to 1 MiB a token takes the same time within 2 % (Emerald Rapids, 2 MiB). */
#define NEXT_MAX_BYTES ((size_t)256 << 10)

typedef struct linear_run_state {
    const exec *exec;
    const linear_job *jobs;
    int32_t n_job;
    int32_t rows_per_task; /* the same for all jobs, so a task number maps to a job by division */
} linear_run_state;

bool exec_wants_q8(const exec *e, dtype type) {
    return !e->reference && e->kernels->mm_q8[type] != NULL;
}

static int32_t tasks_of(const linear_job *j, int32_t rows_per_task) {
    return (j->n_row + rows_per_task - 1) / rows_per_task;
}

static void multiply(float *y, size_t y_stride, float factor, int32_t n_row, int32_t n_tok) {
    for (int32_t t = 0; t < n_tok; t++, y += y_stride) {
        for (int32_t r = 0; r < n_row; r++) {
            y[r] *= factor;
        }
    }
}

void linear_rows(const exec *e, const linear_job *j, int32_t row, int32_t n_row) {
    const char *w = (const char *)j->w + (size_t)row * j->row_bytes;
    const rows *x = j->x;
    if (exec_wants_q8(e, j->type)) {
        e->kernels->mm_q8[j->type](j->y + row, j->y_stride, w, j->row_bytes, n_row, j->n_col,
                                   x->q + (size_t)j->x_row * x->q_stride, x->q_stride, j->n_tok);
    } else {
        e->kernels->mm_f32[j->type](j->y + row, j->y_stride, w, j->row_bytes, n_row, j->n_col,
                                    x->f + (size_t)j->x_row * x->f_stride, x->f_stride, j->n_tok);
    }
    if (j->factor) {
        multiply(j->y + row, j->y_stride, *j->factor, n_row, j->n_tok);
    }
}

void linear_prefetch(const linear_job *j, int32_t row) {
    const int32_t left = j->n_row - row;
    const char *w = (const char *)j->w + (size_t)row * j->row_bytes;
    size_t bytes = (size_t)(left < LINEAR_ROW_GROUP ? left : LINEAR_ROW_GROUP) * j->row_bytes;
    for (size_t i = 0; i < bytes && i < PREFETCH_MAX_BYTES; i += 64) {
        __builtin_prefetch(w + i, 0, 2);
    }
}

int32_t linear_rows_a_task(const exec *e, int64_t n_row, uint64_t work_bytes, int32_t multiple) {
    int64_t n_task = (int64_t)pool_threads(e->pool) * TASKS_PER_THREAD;
    int64_t most = (int64_t)(work_bytes / TASK_MIN_BYTES) + 1;
    n_task = n_task < most ? n_task : most;
    int64_t per_task = (n_row + n_task - 1) / n_task;
    return (int32_t)((per_task + multiple - 1) / multiple * multiple);
}

static void linear_task(void *job, int32_t task, int32_t thread) {
    const linear_run_state *run = job;
    (void)thread;
    const linear_job *j = run->jobs;
    int32_t n;
    while (task >= (n = tasks_of(j, run->rows_per_task))) {
        task -= n;
        j++;
    }
    int32_t row = task * run->rows_per_task;
    int32_t n_row = j->n_row - row < run->rows_per_task ? j->n_row - row : run->rows_per_task;
    linear_rows(run->exec, j, row, n_row);
}

/* Cuts jobs into tasks; returns their number. */
static int32_t cut(const exec *e, const linear_job *jobs, int32_t n_job, linear_run_state *out) {
    uint64_t work_bytes = 0;
    int64_t n_row = 0;
    int32_t n_task = 0;
    for (int32_t i = 0; i < n_job; i++) {
        work_bytes += (uint64_t)jobs[i].n_row * jobs[i].row_bytes * (uint64_t)jobs[i].n_tok;
        n_row += jobs[i].n_row;
    }
    if (n_row == 0) {
        return 0;
    }
    *out = (linear_run_state){e, jobs, n_job,
                              linear_rows_a_task(e, n_row, work_bytes, LINEAR_ROW_GROUP)};
    for (int32_t i = 0; i < n_job; i++) {
        n_task += tasks_of(&jobs[i], out->rows_per_task);
    }
    return n_task;
}

void linear_run(const exec *e, const linear_job *jobs, int32_t n_job) {
    linear_run_state run;
    int32_t n_task = cut(e, jobs, n_job, &run);
    pool_run(e->pool, linear_task, &run, n_task);
}

void linear_next(const exec *e, const linear_job *jobs, int32_t n_job) {
    linear_run_state run;
    int32_t n_task = cut(e, jobs, n_job, &run), n_thread = pool_threads(e->pool);
    const linear_job *j = jobs;
    int32_t before = 0; /* tasks of the jobs before j */
    for (int32_t i = 0; i < n_thread; i++) {
        int32_t task = pool_first_task(n_task, i, n_thread), n;
        if (task >= n_task) {
            pool_set_next(e->pool, i, NULL, 0);
            continue;
        }
        while (task - before >= (n = tasks_of(j, run.rows_per_task))) {
            before += n;
            j++;
        }
        size_t row = (size_t)(task - before) * (size_t)run.rows_per_task;
        size_t bytes = ((size_t)j->n_row - row) * j->row_bytes;
        pool_set_next(e->pool, i, (const char *)j->w + row * j->row_bytes,
                      bytes < NEXT_MAX_BYTES ? bytes : NEXT_MAX_BYTES);
    }
}

linear_job linear_of(const weight *w, const rows *x, float *y, size_t y_stride, int32_t n_tok) {
    return (linear_job){.w = w->data,
                        .type = w->type,
                        .row_bytes = w->row_bytes,
                        .n_row = w->n_row,
                        .n_col = w->n_col,
                        .x = x,
                        .y = y,
                        .y_stride = y_stride,
                        .n_tok = n_tok,
                        .factor = w->factor};
}

typedef struct quantize_state {
    const exec *exec;
    const rows *x;
    int32_t n_col;
} quantize_state;

static void quantize_task(void *job, int32_t task, int32_t thread) {
    const quantize_state *q = job;
    (void)thread;
    q->exec->kernels->quantize_act(q->x->f + (size_t)task * q->x->f_stride, q->n_col,
                                   q->x->q + (size_t)task * q->x->q_stride);
}

void rows_quantize(const exec *e, const rows *x, int32_t n, int32_t n_col) {
    quantize_state q = {e, x, n_col};
    pool_run(e->pool, quantize_task, &q, n);
}

void add_bias(const exec *e, float *y, size_t y_stride, const weight *bias, int32_t n_tok) {
    if (!bias->data) {
        return;
    }
    for (int32_t t = 0; t < n_tok; t++) {
        e->kernels->add_scaled(y + (size_t)t * y_stride, 1.0f, bias->data, bias->n_col);
    }
}
