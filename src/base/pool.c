/* The compute pool; see pool.h.
 *
 * A job is published by a new epoch in one word, which also counts the workers inside the job. A
 * worker enters only while the job is open, and the caller closes it when no task is left and then
 * waits for those inside: a worker that sleeps or waits for a core delays nobody.
 *
 * Each thread owns a run of adjacent tasks, in a cache line of its own, and takes them in order, so
 * that what one task prefetches behind its end is what the thread does next. Whoever has none left
 * takes from the far end of the longest run.
 */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/topology.h"

#if defined(__x86_64__)
#define SPIN_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define SPIN_PAUSE() __asm__ volatile("yield" ::: "memory")
#else
#define SPIN_PAUSE() __asm__ volatile("" ::: "memory")
#endif

/* Longer than the gap between two jobs of one layer, much shorter than a read from the drive,
 * during which the workers should sleep and leave the core to the kernel. */
#define SPIN_NS         20000u
#define PAUSES_PER_LOOK 16

/* Of the state word: the epoch is above. */
#define STATE_OPEN   (UINT64_C(1) << 31)
#define STATE_INSIDE (STATE_OPEN - 1)

/* Of what comes next, between two looks for a job. */
#define NEXT_PIECE_BYTES 4096u

typedef struct next_memory {
    const char *at;
    size_t bytes;
} next_memory;

typedef struct worker {
    _Alignas(64) _Atomic uint64_t run; /* tasks left: the first in the low half, the end above */
    pool *pool;
    pthread_t thread;
    int32_t index;
} worker;

struct pool {
    int32_t n_thread;
    uint64_t spin_ns; /* 0 with more threads than CPUs */
    pool_fn fn;
    void *job;
    void (*tick)(void *user);
    void *tick_user;
    uint64_t tick_every_ns, tick_at_ns; /* of the caller alone */
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) atomic_int n_asleep;
    atomic_bool caller_waits;
    atomic_bool stop;
    pthread_mutex_t mutex; /* only for sleeping */
    pthread_cond_t wake;
    pthread_cond_t left;
    worker *worker;    /* [n_thread]; the caller is 0 */
    next_memory *next; /* [n_thread]; changed only while no job is open */
    int32_t n_started;
};

static bool spin_on(uint64_t *start, uint64_t limit_ns) {
    for (int i = 0; i < PAUSES_PER_LOOK; i++) {
        SPIN_PAUSE();
    }
    uint64_t now = now_ns();
    *start = *start ? *start : now;
    return now - *start < limit_ns;
}

/* Brings a piece into the L2 cache; false when there is none left. */
static bool fetch_next(next_memory *n) {
    size_t bytes = n->bytes < NEXT_PIECE_BYTES ? n->bytes : NEXT_PIECE_BYTES;
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(n->at + i, 0, 2);
    }
    n->at += bytes;
    n->bytes -= bytes;
    return bytes > 0;
}

/* With more threads than CPUs whoever waits should leave his at once. */
static next_memory next_of(const pool *p, int32_t thread) {
    return p->spin_ns > 0 ? p->next[thread] : (next_memory){0};
}

static uint32_t tasks_in(uint64_t run) {
    uint32_t first = (uint32_t)run, end = (uint32_t)(run >> 32);
    return end > first ? end - first : 0;
}

/* The next task of a run, or from behind its last; -1 when it is empty. */
static int32_t take_task(worker *w, bool from_behind) {
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
    while (tasks_in(run) > 0) {
        uint64_t rest = from_behind ? run - (UINT64_C(1) << 32) : run + 1;
        if (atomic_compare_exchange_weak_explicit(&w->run, &run, rest, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            return (int32_t)(from_behind ? rest >> 32 : run & UINT32_MAX);
        }
    }
    return -1;
}

static int32_t steal_task(pool *p) {
    for (;;) {
        worker *longest = NULL;
        uint32_t most = 0;
        for (int32_t i = 0; i < p->n_thread; i++) {
            uint64_t run = atomic_load_explicit(&p->worker[i].run, memory_order_relaxed);
            if (tasks_in(run) > most) {
                most = tasks_in(run);
                longest = &p->worker[i];
            }
        }
        int32_t task = longest ? take_task(longest, true) : -1;
        if (!longest || task >= 0) {
            return task;
        }
    }
}

static void tick(pool *p) {
    uint64_t now = now_ns();
    if (now >= p->tick_at_ns) {
        p->tick_at_ns = now + p->tick_every_ns;
        p->tick(p->tick_user);
    }
}

void pool_set_tick(pool *p, void (*fn)(void *user), void *user, uint64_t every_ns) {
    p->tick = fn;
    p->tick_user = user;
    p->tick_every_ns = every_ns;
}

static void draw_tasks(pool *p, int32_t thread) {
    for (;;) {
        int32_t t = take_task(&p->worker[thread], false);
        t = t < 0 ? steal_task(p) : t;
        if (t < 0) {
            return;
        }
        p->fn(p->job, t, thread);
        if (thread == 0 && p->tick) {
            tick(p);
        }
    }
}

static bool is_news(uint64_t state, uint32_t seen) {
    return (state & STATE_OPEN) && (uint32_t)(state >> 32) != seen;
}

/* Sleeps until there is a job other than the one seen, or the pool closes. */
static void sleep_for_news(pool *p, uint32_t seen) {
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_asleep, 1);
    while (!is_news(atomic_load(&p->state), seen) && !atomic_load(&p->stop)) {
        pthread_cond_wait(&p->wake, &p->mutex);
    }
    atomic_fetch_sub(&p->n_asleep, 1);
    pthread_mutex_unlock(&p->mutex);
}

/* Enters a job other than the one seen; false when the pool closes. */
static bool enter_job(pool *p, uint32_t *seen, next_memory *next) {
    uint64_t start = 0;
    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        uint64_t state = atomic_load_explicit(&p->state, memory_order_relaxed);
        if (is_news(state, *seen)) {
            if (atomic_compare_exchange_weak_explicit(&p->state, &state, state + 1,
                                                      memory_order_acquire, memory_order_relaxed)) {
                *seen = (uint32_t)(state >> 32);
                return true;
            }
        } else if (!fetch_next(next) && !spin_on(&start, p->spin_ns)) {
            sleep_for_news(p, *seen);
            start = 0;
        }
    }
    return false;
}

static void leave_job(pool *p) {
    uint64_t before = atomic_fetch_sub(&p->state, 1);
    if ((before & STATE_INSIDE) == 1 && !(before & STATE_OPEN) && atomic_load(&p->caller_waits)) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_signal(&p->left);
        pthread_mutex_unlock(&p->mutex);
    }
}

static void *work(void *arg) {
    worker *w = arg;
    uint32_t seen = 0;
    next_memory next = {0};
    while (enter_job(w->pool, &seen, &next)) {
        draw_tasks(w->pool, w->index);
        next = next_of(w->pool, w->index);
        leave_job(w->pool);
    }
    return NULL;
}

static void wake_sleepers(pool *p) {
    /* Sequentially consistent with sleep_for_news: a worker either sees the news before it sleeps
     * or is counted here. */
    if (atomic_load(&p->n_asleep) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
}

/* Lets nobody else in and waits for those inside. */
static void close_job(pool *p) {
    uint64_t start = 0;
    next_memory next = next_of(p, 0);
    uint64_t state = atomic_fetch_and(&p->state, ~STATE_OPEN);
    while (state & STATE_INSIDE) {
        if (!fetch_next(&next) && !spin_on(&start, p->spin_ns)) {
            pthread_mutex_lock(&p->mutex);
            atomic_store(&p->caller_waits, true);
            while (atomic_load(&p->state) & STATE_INSIDE) {
                pthread_cond_wait(&p->left, &p->mutex);
            }
            atomic_store(&p->caller_waits, false);
            pthread_mutex_unlock(&p->mutex);
        }
        state = atomic_load_explicit(&p->state, memory_order_acquire);
    }
}

void pool_set_next(pool *p, int32_t thread, const void *at, size_t bytes) {
    p->next[thread] = (next_memory){at, bytes};
}

const void *pool_next(const pool *p, int32_t thread, size_t *bytes) {
    *bytes = p->next[thread].bytes;
    return p->next[thread].at;
}

void pool_run(pool *p, pool_fn fn, void *job, int32_t n_task) {
    if (n_task <= 1 || p->n_thread == 1) {
        for (int32_t t = 0; t < n_task; t++) {
            fn(job, t, 0);
            if (p->tick) {
                tick(p);
            }
        }
        return;
    }
    p->fn = fn;
    p->job = job;
    for (int32_t i = 0; i < p->n_thread; i++) {
        uint64_t first = (uint64_t)pool_first_task(n_task, i, p->n_thread);
        uint64_t end = (uint64_t)pool_first_task(n_task, i + 1, p->n_thread);
        atomic_store_explicit(&p->worker[i].run, end << 32 | first, memory_order_relaxed);
    }
    uint64_t epoch = (atomic_load_explicit(&p->state, memory_order_relaxed) >> 32) + 1;
    atomic_store(&p->state, (epoch << 32) | STATE_OPEN);
    wake_sleepers(p);
    draw_tasks(p, 0);
    close_job(p);
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
    *p = (pool){.n_thread = n_thread, .spin_ns = n_thread > cpu_count() ? 0 : SPIN_NS};
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->left, NULL);
    p->worker = aligned_alloc(64, (size_t)n_thread * sizeof *p->worker);
    p->next = calloc((size_t)n_thread, sizeof *p->next);
    if (!p->worker || !p->next) {
        pool_close(p);
        return err_no_memory(err, (uint64_t)n_thread * sizeof *p->worker);
    }
    for (int32_t i = 0; i < n_thread; i++) {
        p->worker[i] = (worker){.pool = p, .index = i};
    }
    for (int32_t i = 1; i < n_thread; i++) {
        int e = pthread_create(&p->worker[i].thread, NULL, work, &p->worker[i]);
        if (e) {
            pool_close(p);
            return err_errno(err, e, "cannot start compute thread %d; try fewer --threads", i);
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
    atomic_store(&p->stop, true);
    wake_sleepers(p);
    for (int32_t i = 1; i <= p->n_started; i++) {
        pthread_join(p->worker[i].thread, NULL);
    }
    pthread_cond_destroy(&p->left);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    free(p->worker);
    free(p->next);
    free(p);
}

bool pool_pin(pool *p) {
    const topology *t = topology_get();
    if (p->n_thread > t->n_cpu) {
        return false;
    }
    for (int32_t i = 1; i <= p->n_started; i++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)t->order[i], &set);
        /* A CPU that has been taken from the process since leaves the worker free. */
        (void)pthread_setaffinity_np(p->worker[i].thread, sizeof set, &set);
    }
    return true;
}

int32_t pool_threads(const pool *p) {
    return p->n_thread;
}
