/* A pool of compute threads that run one job at a time over numbered tasks.
 *
 * The caller works too: a pool of n threads has n - 1 workers. Workers spin for a short while after
 * a job, since the next one usually follows within microseconds, and then sleep. A thread runs
 * adjacent tasks in order while it has some of its own; but which thread runs which task is not
 * fixed, so a task's result must not depend on it.
 */
#ifndef SMOE_BASE_POOL_H
#define SMOE_BASE_POOL_H

#include <stdbool.h>

#include "base/error.h"

typedef struct pool pool;
typedef void (*pool_fn)(void *job, int32_t task, int32_t thread);

/* *out is the caller's (pool_close). n_thread counts the calling thread. */
int pool_open(pool **out, int32_t n_thread, smoe_error *err);
void pool_close(pool *p);
int32_t pool_threads(const pool *p);
/* Binds each worker to a CPU of its own, in the machine's order of cores (topology.h); the caller
 * goes where the system puts it, which is the CPU that is left. Returns false, having changed
 * nothing, when there are more threads than CPUs. */
bool pool_pin(pool *p);
/* Runs fn(job, 0..n_task-1, thread) and returns when all are done. One caller at a time. Never
 * allocates. */
void pool_run(pool *p, pool_fn fn, void *job, int32_t n_task);
/* What a thread will read first in the job after the next: from the end of the next job until
 * another is told, it brings that memory nearer while it has to wait. Memory is idle otherwise when
 * one thread has finished its part, or while the caller works alone. bytes 0: nothing. Between jobs
 * only, by the one who runs them. It is only prefetched, so it may be gone by then. */
void pool_set_next(pool *p, int32_t thread, const void *at, size_t bytes);
/* What was told last. */
const void *pool_next(const pool *p, int32_t thread, size_t *bytes);
/* The task of a job with which a thread begins; n_task or another thread's when it has none. */
static inline int32_t pool_first_task(int32_t n_task, int32_t thread, int32_t n_thread) {
    return (int32_t)((int64_t)n_task * thread / n_thread);
}
/* Something for the calling thread to do now and then between its tasks, at most once in every_ns:
 * a drive can be kept busy so. NULL: nothing. fn must not run jobs. */
void pool_set_tick(pool *p, void (*fn)(void *user), void *user, uint64_t every_ns);

#endif
