/* The compute pool; see pool.h.
 *
 * A job is published by bumping an epoch; every worker takes part in every epoch, drawing tasks
 * from a shared counter, and signs off on a second counter. The caller may start the next job only
 * when all workers have signed off, so no worker can ever see a half-written job.
 */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/limits.h"

#if defined(__x86_64__)
#define SPIN_PAUSE() __builtin_ia32_pause()
#else
#define SPIN_PAUSE() __asm__ volatile("" ::: "memory")
#endif

/* About 20 us of spinning: longer than the gap between two jobs of one layer, much shorter than a
 * read from the drive, during which the workers should sleep and leave the core to the kernel. */
#define SPIN_ROUNDS 2000

struct pool {
    int32_t n_thread;
    pool_fn fn;
    void *job;
    int32_t n_task;
    _Alignas(64) atomic_uint epoch; /* of the current job */
    _Alignas(64) atomic_int next_task;
    _Alignas(64) atomic_int n_busy; /* workers that have not signed off from this epoch */
    _Alignas(64) atomic_int n_asleep;
    atomic_bool stop;
    pthread_mutex_t mutex; /* only for sleeping */
    pthread_cond_t wake;
    struct worker {
        pool *pool;
        pthread_t thread;
        int32_t index;
    } * worker; /* [n_thread - 1] */
    int32_t n_started;
};

static void draw_tasks(pool *p, int32_t thread) {
    int32_t n = p->n_task;
    for (;;) {
        int32_t t = atomic_fetch_add_explicit(&p->next_task, 1, memory_order_relaxed);
        if (t >= n) {
            return;
        }
        p->fn(p->job, t, thread);
    }
}

/* Returns once the epoch differs from seen. */
static void await_epoch(pool *p, unsigned seen) {
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen) {
            return;
        }
        SPIN_PAUSE();
    }
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_asleep, 1);
    while (atomic_load(&p->epoch) == seen) {
        pthread_cond_wait(&p->wake, &p->mutex);
    }
    atomic_fetch_sub(&p->n_asleep, 1);
    pthread_mutex_unlock(&p->mutex);
}

static void *work(void *arg) {
    struct worker *w = arg;
    pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        await_epoch(p, seen);
        seen++;
        if (atomic_load_explicit(&p->stop, memory_order_acquire)) {
            return NULL;
        }
        draw_tasks(p, w->index);
        atomic_fetch_sub_explicit(&p->n_busy, 1, memory_order_release);
    }
}

static void publish(pool *p) {
    atomic_fetch_add(&p->epoch, 1);
    /* Sequentially consistent with await_epoch: a worker either sees the new epoch before it
     * sleeps or is counted here. */
    if (atomic_load(&p->n_asleep) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
}

void pool_run(pool *p, pool_fn fn, void *job, int32_t n_task) {
    int32_t n_worker = p->n_thread - 1;
    if (n_task <= 1 || n_worker == 0) {
        for (int32_t t = 0; t < n_task; t++) {
            fn(job, t, 0);
        }
        return;
    }
    p->fn = fn;
    p->job = job;
    p->n_task = n_task;
    atomic_store_explicit(&p->next_task, 0, memory_order_relaxed);
    atomic_store_explicit(&p->n_busy, n_worker, memory_order_relaxed);
    publish(p);
    draw_tasks(p, 0);
    /* With more threads than free cores the last worker may not even run: let it. */
    for (int i = 0; atomic_load_explicit(&p->n_busy, memory_order_acquire) > 0; i++) {
        if (i < SPIN_ROUNDS) {
            SPIN_PAUSE();
        } else {
            sched_yield();
        }
    }
}

int pool_open(pool **out, int32_t n_thread, smoe_error *err) {
    if (n_thread < 1 || n_thread > LIMIT_THREADS) {
        return err_set(err, SMOE_ERR_ARGUMENT, "threads: %d is out of range (1 to %d)", n_thread,
                       LIMIT_THREADS);
    }
    pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) {
        return err_no_memory(err, sizeof *p);
    }
    *p = (pool){.n_thread = n_thread};
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->worker = calloc((size_t)n_thread, sizeof *p->worker);
    if (!p->worker) {
        pool_close(p);
        return err_no_memory(err, (uint64_t)n_thread * sizeof *p->worker);
    }
    for (int32_t i = 0; i < n_thread - 1; i++) {
        p->worker[i] = (struct worker){.pool = p, .index = i + 1};
        int e = pthread_create(&p->worker[i].thread, NULL, work, &p->worker[i]);
        if (e) {
            pool_close(p);
            return err_errno(err, e, "cannot start compute thread %d; try fewer --threads", i + 1);
        }
        p->n_started++;
    }
    *out = p;
    return SMOE_OK;
}

void pool_close(pool *p) {
    if (!p) {
        return;
    }
    atomic_store_explicit(&p->stop, true, memory_order_release);
    publish(p);
    for (int32_t i = 0; i < p->n_started; i++) {
        pthread_join(p->worker[i].thread, NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    free(p->worker);
    free(p);
}

int32_t pool_threads(const pool *p) {
    return p->n_thread;
}
