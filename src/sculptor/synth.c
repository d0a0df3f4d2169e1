/* smoe_synth: options, and writing the file part by part. See synth.h.
 *
 * A part is made and written by one thread; what was written is sent to the drive and dropped from
 * the page cache as the work goes on, so that a large file does not displace everything else.
 */
#include "sculptor/synth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "sculptor/out_file.h"
#include "sculptor/ticker.h"

enum { PART_BYTES = 1 << 20, BATCH_PARTS = 64 };

/* Rows of one tensor. */
typedef struct part {
    const synth_tensor *t;
    int64_t first, n_row;
} part;

typedef struct job {
    const synth_plan *plan;
    const char *path; /* of the partial file */
    int fd;
    uint8_t *buffer; /* [threads][buffer_bytes] */
    size_t buffer_bytes;
    part part[BATCH_PARTS];
    int32_t n_part;
    int32_t tensor; /* the next part is of this tensor, from this row */
    int64_t row;
    uint64_t sent_from, sent_to; /* being written back since the last batch */
    pthread_mutex_t lock;        /* of rc and error */
    int rc;
    smoe_error error;
} job;

/* ---- parts */

static int64_t rows_of(const synth_tensor *t) {
    return t->n_row * t->n_slice;
}

static int64_t rows_of_part(const synth_tensor *t) {
    int64_t n = (int64_t)(PART_BYTES / t->row_bytes);
    return n > 0 ? n : 1;
}

/* Fills j->part; no parts are left when it stays empty. */
static void next_batch(job *j) {
    j->n_part = 0;
    while (j->n_part < BATCH_PARTS && j->tensor < j->plan->n_tensor) {
        const synth_tensor *t = &j->plan->tensor[j->tensor];
        int64_t left = rows_of(t) - j->row, n = rows_of_part(t);
        n = n < left ? n : left;
        j->part[j->n_part++] = (part){t, j->row, n};
        j->row += n;
        if (n == left) {
            j->tensor++;
            j->row = 0;
        }
    }
}

static uint64_t part_offset(const job *j, const part *p) {
    return j->plan->head.bytes + p->t->offset + (uint64_t)p->first * p->t->row_bytes;
}

static void make_part(void *user, int32_t task, int32_t thread) {
    job *j = user;
    const part *p = &j->part[task];
    smoe_error err;
    uint8_t *buffer = j->buffer + (size_t)thread * j->buffer_bytes;
    size_t bytes = (size_t)((uint64_t)p->n_row * p->t->row_bytes);
    synth_rows(p->t, p->first, p->n_row, buffer);
    int rc = file_write_at(j->fd, j->path, part_offset(j, p), buffer, bytes, &err);
    if (rc != SMOE_OK) {
        pthread_mutex_lock(&j->lock);
        j->rc = rc;
        j->error = err;
        pthread_mutex_unlock(&j->lock);
    }
}

/* Starts sending a batch to the drive; waits for the one before and drops it from the cache. */
static void send_batch(job *j, uint64_t from, uint64_t to) {
    enum {
        WAIT = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
    };
    (void)sync_file_range(j->fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
    if (j->sent_to > j->sent_from) {
        off_t bytes = (off_t)(j->sent_to - j->sent_from);
        (void)sync_file_range(j->fd, (off_t)j->sent_from, bytes, WAIT);
        (void)posix_fadvise(j->fd, (off_t)j->sent_from, bytes, POSIX_FADV_DONTNEED);
    }
    j->sent_from = from;
    j->sent_to = to;
}

static int write_parts(job *j, pool *workers, ticker *progress, smoe_error *err) {
    for (next_batch(j); j->n_part > 0; next_batch(j)) {
        uint64_t bytes = 0;
        const part *last = &j->part[j->n_part - 1];
        pool_run(workers, make_part, j, j->n_part);
        if (j->rc != SMOE_OK) {
            return err_set(err, j->rc, "%s", j->error.text);
        }
        for (int32_t i = 0; i < j->n_part; i++) {
            bytes += (uint64_t)j->part[i].n_row * j->part[i].t->row_bytes;
        }
        send_batch(j, part_offset(j, &j->part[0]),
                   part_offset(j, last) + (uint64_t)last->n_row * last->t->row_bytes);
        int rc = ticker_add(progress, bytes, err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return SMOE_OK;
}

/* ---- the file */

static int write_all(job *j, pool *workers, ticker *progress, smoe_error *err) {
    const synth_plan *p = j->plan;
    uint64_t largest = 0, total = 0;
    for (int32_t i = 0; i < p->n_tensor; i++) {
        const synth_tensor *t = &p->tensor[i];
        uint64_t bytes = (uint64_t)rows_of_part(t) * t->row_bytes;
        largest = bytes > largest ? bytes : largest;
        total += t->bytes;
    }
    j->buffer_bytes = (size_t)largest;
    j->buffer = mem_array((size_t)pool_threads(workers), j->buffer_bytes);
    if (!j->buffer) {
        return err_no_memory(err, largest);
    }
    int rc = ftruncate(j->fd, (off_t)p->file_bytes) == 0
                 ? SMOE_OK
                 : err_errno(err, errno, "cannot write %s", j->path);
    rc = rc ? rc : file_write_at(j->fd, j->path, 0, p->head.data, p->head.bytes, err);
    rc = rc ? rc : ticker_start(progress, "synth", 0, total, err);
    rc = rc ? rc : write_parts(j, workers, progress, err);
    if (rc == SMOE_OK && fsync(j->fd) != 0) {
        rc = err_errno(err, errno, "cannot write %s", j->path);
    }
    (void)posix_fadvise(j->fd, 0, 0, POSIX_FADV_DONTNEED);
    free(j->buffer);
    return rc;
}

static int check_space(const synth_plan *p, const char *path, smoe_error *err) {
    char dir[FILE_PATH_BYTES], need[24], have[24];
    uint64_t free_bytes = 0;
    out_dir_of(dir, path);
    if (write_ops_system.available(NULL, dir, &free_bytes) != 0) {
        return err_errno(err, errno, "cannot look at the folder %s", dir);
    }
    if (free_bytes < p->file_bytes) {
        return err_set(err, SMOE_ERR_IO,
                       "%s needs %s, but %s has %s free; make room or take fewer layers", path,
                       format_bytes(need, p->file_bytes), dir, format_bytes(have, free_bytes));
    }
    return SMOE_OK;
}

int synth_write(const synth_plan *p, const char *path, const smoe_synth_options *o,
                smoe_error *err) {
    char partial[FILE_PATH_BYTES];
    pool *workers = NULL;
    ticker progress = {.fn = o->progress, .user = o->user, .interval_ns = TICKER_INTERVAL_NS};
    job j = {.plan = p, .path = partial, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= (int)sizeof partial) {
        return err_set(err, SMOE_ERR_ARGUMENT, "the name of the file to write is too long");
    }
    int rc = check_space(p, path, err);
    rc = rc ? rc : pool_open(&workers, o->n_thread ? o->n_thread : cpu_count(), err);
    if (rc != SMOE_OK) {
        return rc;
    }
    j.fd = open(partial, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (j.fd < 0) {
        rc = err_errno(err, errno, "cannot create %s", partial);
    } else {
        rc = write_all(&j, workers, &progress, err);
        close(j.fd);
        rc = rc ? rc : out_rename(&write_ops_system, partial, path, err);
        if (rc != SMOE_OK) {
            unlink(partial);
        }
    }
    pool_close(workers);
    return rc;
}

/* ---- options */

static int take_shape(const smoe_synth_options *o, synth_plan *p, smoe_error *err) {
    char known[400];
    const synth_shape *s = o->shape ? synth_shape_find(o->shape) : NULL;
    if (!s) {
        synth_shape_list(known, sizeof known);
        return err_set(err, SMOE_ERR_ARGUMENT, "there is no shape %.64s; choose one of %s",
                       o->shape ? o->shape : "without a name", known);
    }
    p->shape = *s;
    if (o->n_layer < 0 || (o->n_layer > 0 && o->n_layer <= s->n_dense)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%s needs more than %d layers", s->name, s->n_dense);
    }
    p->shape.n_layer = o->n_layer > 0 ? o->n_layer : s->n_layer;
    return SMOE_OK;
}

static int take_type(const smoe_synth_options *o, synth_plan *p, smoe_error *err) {
    char known[256];
    size_t n = 0;
    p->type = dtype_by_name(o->type ? o->type : "q4_k");
    if (synth_has_type(p->type) && p->type != DT_F32) {
        return SMOE_OK;
    }
    for (int t = DT_NONE + 1; t < DT_COUNT && n < sizeof known; t++) {
        if (synth_has_type((dtype)t) && t != DT_F32) {
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "",
                                  dtype_get((dtype)t)->name);
        }
    }
    return err_set(err, SMOE_ERR_ARGUMENT, "the type cannot be %.64s; choose one of %s", o->type,
                   known);
}

static int check_target(const char *path, bool overwrite, smoe_error *err) {
    size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 5, ".gguf") != 0) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%s: the name of a synthetic model ends in .gguf",
                       path);
    }
    if (file_exists(path) && !overwrite) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%s is there already; --overwrite replaces it",
                       path);
    }
    return SMOE_OK;
}

static void log_plan(const synth_plan *p, const smoe_synth_options *o) {
    log_sink log = {.fn = o->log, .user = o->user};
    char size[24];
    log_line(&log, SMOE_LOG_PLAN, "%s: %d layers, experts %s, %d tensors, %s", p->shape.name,
             p->shape.n_layer, dtype_get(p->type)->name, p->n_tensor,
             format_bytes(size, p->file_bytes));
    dtype in = synth_dividing_type(p->type, p->shape.d_model);
    dtype out = synth_dividing_type(p->type, p->shape.expert_width);
    if (in != p->type || out != p->type) {
        log_line(
            &log, SMOE_LOG_NOTICE,
            "blocks of %s do not divide all rows: gate and up of the experts are %s, down is %s",
            dtype_get(p->type)->name, dtype_get(in)->name, dtype_get(out)->name);
    }
}

SMOE_API int smoe_synth(const char *path, const smoe_synth_options *options, smoe_error *err) {
    synth_plan p = {.skew = options->uniform ? 0 : SYNTH_SKEW, .seed = options->seed};
    int rc = take_shape(options, &p, err);
    rc = rc ? rc : take_type(options, &p, err);
    rc = rc ? rc : check_target(path, options->overwrite, err);
    rc = rc ? rc : synth_plan_make(&p, err);
    if (rc == SMOE_OK) {
        log_plan(&p, options);
        rc = synth_write(&p, path, options, err);
    }
    synth_plan_free(&p);
    return rc;
}
