/* The thread back end: one pread at a time on each of depth threads.
 *
 * Owns its threads and descriptors. The driving thread and the readers meet only under one mutex;
 * reads wait in a queue, finished ones in another, both as long as the depth. Never retries.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "streamer/io_files.h"

/* A reader calls pread and nothing deeper; sanitizers need some room. */
#define READER_STACK_BYTES (256u << 10)

typedef struct thread_io {
    pthread_mutex_t mutex;
    pthread_cond_t has_read;
    pthread_cond_t has_done;
    int *fd; /* [n_file] */
    int32_t n_file;
    int32_t depth;
    io_read *read; /* [depth], circular: accepted, not begun */
    int32_t read_at, n_read;
    io_done *done; /* [depth], circular: finished, not reaped */
    int32_t done_at, n_done;
    int32_t n_open; /* accepted, not reaped */
    bool stop;
    pthread_t *thread; /* [depth] */
    int32_t n_thread;
} thread_io;

static void *read_on(void *arg) {
    thread_io *t = arg;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        while (t->n_read == 0 && !t->stop) {
            pthread_cond_wait(&t->has_read, &t->mutex);
        }
        if (t->stop) {
            break;
        }
        io_read r = t->read[t->read_at];
        t->read_at = (t->read_at + 1) % t->depth;
        t->n_read--;
        pthread_mutex_unlock(&t->mutex);
        ssize_t n = pread(t->fd[r.file], r.buf, r.bytes, (off_t)r.offset);
        int32_t result = n < 0 ? -errno : (int32_t)n;
        pthread_mutex_lock(&t->mutex);
        t->done[(t->done_at + t->n_done) % t->depth] = (io_done){.tag = r.tag, .result = result};
        t->n_done++;
        pthread_cond_signal(&t->has_done);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

static void thread_close(io *handle) {
    thread_io *t = (thread_io *)handle;
    if (!t) {
        return;
    }
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_broadcast(&t->has_read);
    pthread_mutex_unlock(&t->mutex);
    for (int32_t i = 0; i < t->n_thread; i++) {
        pthread_join(t->thread[i], NULL);
    }
    pthread_cond_destroy(&t->has_done);
    pthread_cond_destroy(&t->has_read);
    pthread_mutex_destroy(&t->mutex);
    io_files_close(t->fd, t->n_file);
    free(t->read);
    free(t->done);
    free(t->thread);
    free(t);
}

static int start_threads(thread_io *t, smoe_error *err) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, READER_STACK_BYTES);
    int errnum = 0;
    for (int32_t i = 0; i < t->depth && errnum == 0; i++) {
        errnum = pthread_create(&t->thread[i], &attr, read_on, t);
        t->n_thread += errnum == 0;
    }
    pthread_attr_destroy(&attr);
    if (errnum) {
        return err_errno(err, errnum, "cannot start reader thread %d; lower the I/O depth",
                         t->n_thread + 1);
    }
    return SMOE_OK;
}

static int thread_open(io **out, const io_config *config, smoe_error *err) {
    *out = NULL;
    if (config->depth < 1 || config->depth > LIMIT_THREADS) {
        return err_set(err, SMOE_ERR_ARGUMENT, "I/O depth is %d, out of range (1 to %d)",
                       config->depth, LIMIT_THREADS);
    }
    thread_io *t = mem_array(1, sizeof *t);
    if (!t) {
        return err_no_memory(err, sizeof *t);
    }
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->has_read, NULL);
    pthread_cond_init(&t->has_done, NULL);
    t->n_file = config->n_file;
    t->depth = config->depth;
    t->read = mem_array((size_t)t->depth, sizeof *t->read);
    t->done = mem_array((size_t)t->depth, sizeof *t->done);
    t->thread = mem_array((size_t)t->depth, sizeof *t->thread);
    int rc = t->read && t->done && t->thread
                 ? io_files_open(&t->fd, config, err)
                 : err_no_memory(err, (uint64_t)t->depth * sizeof *t->read);
    if (rc == SMOE_OK) {
        rc = start_threads(t, err);
    }
    if (rc != SMOE_OK) {
        thread_close((io *)t);
        return rc;
    }
    *out = (io *)t;
    return SMOE_OK;
}

static int32_t thread_submit(io *handle, const io_read *reads, int32_t n) {
    thread_io *t = (thread_io *)handle;
    pthread_mutex_lock(&t->mutex);
    n = n < t->depth - t->n_open ? n : t->depth - t->n_open;
    for (int32_t i = 0; i < n; i++) {
        t->read[(t->read_at + t->n_read) % t->depth] = reads[i];
        t->n_read++;
        t->n_open++;
        pthread_cond_signal(&t->has_read);
    }
    pthread_mutex_unlock(&t->mutex);
    return n;
}

static int32_t thread_reap(io *handle, io_done *done, int32_t max, bool wait) {
    thread_io *t = (thread_io *)handle;
    pthread_mutex_lock(&t->mutex);
    while (wait && t->n_done == 0 && t->n_open > 0) {
        pthread_cond_wait(&t->has_done, &t->mutex);
    }
    int32_t n = t->n_done < max ? t->n_done : max;
    for (int32_t i = 0; i < n; i++) {
        done[i] = t->done[t->done_at];
        t->done_at = (t->done_at + 1) % t->depth;
    }
    t->n_done -= n;
    t->n_open -= n;
    pthread_mutex_unlock(&t->mutex);
    return n;
}

const io_ops io_thread_ops = {
    .name = "threads",
    .open = thread_open,
    .submit = thread_submit,
    .reap = thread_reap,
    .close = thread_close,
};
