/* Measuring the drive; see probe.h. Owns the search and the reads; the store is probe_store.c.
 *
 * The search goes along one line at a time: block sizes at a middling depth, then depths at the
 * best size, then the other back end, then the page cache. A finer way costs more time than it
 * wins: around the best the rate is flat. Among ways within a tenth of the best the one with the
 * fewest reads in flight is taken, since a demand then waits for less; see keep_busy.
 */
#include "streamer/probe.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "streamer/queue.h"

#define PROBE_BUDGET_NS 1500000000.0
#define PROBE_LEAST_NS  40000000.0
/* What is in flight must last until a thread that computes looks after it again, which is between
 * two tasks. Measured on a drive of 1.3 GB/s that gave as much with one block of 256 KiB in flight
 * as with more: bets and demands then reached 75 % of it, with two of 512 KiB over 90 %. */
#define PROBE_LASTS_S 0.75e-3
/* A model as small as this or smaller gets a shorter look, since it is soon read whole. */
#define PROBE_FULL_BYTES   1e9
#define PROBE_STEPS        30 /* measurements in a usual run, the last ones longer */
#define PROBE_LAST_STEPS   16
#define PROBE_BUSY_STEPS   8
#define PROBE_TURNS        2 /* for a way that looks better than the chosen one */
#define PROBE_TURN_STEPS   4
#define PROBE_MAX_BYTES    (1u << 30) /* of one measurement */
#define PROBE_SIZE_DEPTH   8
#define PROBE_LATENCY_RUNS 15
/* Reads land all over as much of the room as no cache holds, as decode's do: a machine whose drive
 * copies (a virtual one) reads a quarter faster into 4 MiB that stay in its L3 than into 16 MiB and
 * more, 3.3 against 2.7 GB/s where it was measured. */
#define PROBE_ROOM_BYTES (256u << 20)
/* A rotating disk needs milliseconds for a random block; drives of virtual machines often claim
 * to rotate and answer in a tenth of one. */
#define PROBE_ROTATING_NS 2000000.0
/* Ways within this of the best count as equal to it: short looks at a busy drive differ as much. */
#define PROBE_EQUAL 0.90
/* The page cache costs a copy and memory outside the ceiling; it must win by this to be taken. */
#define PROBE_BUFFERED_WIN 1.15

enum { PROBE_MAX_DEPTH = 64, BUSY_THREADS = 256 };

/* One way of reading. */
typedef struct way {
    const io_ops *ops;
    bool direct;
    int32_t depth;
    uint32_t read_bytes;
} way;

/* One of the cores that compute: it goes through weights, as decode does, one word of each cache
 * line; without any it only passes the time. */
typedef struct busy_core {
    const uint64_t *word;
    size_t n_word, at;
    uint64_t sum;
    atomic_bool *stop;
    pthread_t thread;
} busy_core;

typedef struct prober {
    const probe_config *c;
    const char **path;
    uint64_t step_ns;
    busy_core *busy; /* this thread computes between looks at its reads; NULL: it waits */
    uint64_t random;
    uint64_t touched_bytes;           /* of the configured room */
    uint64_t room_bytes;              /* of these, where reads land */
    uint64_t n_read[PROBE_MAX_DEPTH]; /* by each of the reads in flight so far */
    io_done done[PROBE_MAX_DEPTH];
} prober;

static uint64_t next_random(prober *p) {
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = (p->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Each read in flight has a part of the room to itself and goes round in it. */
static char *next_place(prober *p, const way *w, int32_t slot) {
    uint64_t n_place = p->room_bytes / w->read_bytes / (uint64_t)w->depth;
    uint64_t place = (uint64_t)slot * n_place + p->n_read[slot]++ % n_place;
    return (char *)p->c->room + place * w->read_bytes;
}

/* A block at the start of a random expert's random extent, or further in. */
static io_read random_read(prober *p, const way *w, int32_t slot) {
    const source *s = p->c->source;
    uint32_t bytes = w->read_bytes;
    uint64_t n = (uint64_t)s->n_moe_layer * (uint64_t)s->n_expert_row;
    const expert_ref *ref;
    do {
        ref = &s->expert[next_random(p) % n];
    } while (ref->n_ext == 0);
    const extent *x = &ref->ext[next_random(p) % (uint64_t)ref->n_ext];
    uint64_t cover = extent_cover_bytes(x);
    uint64_t take = cover < bytes ? cover : bytes;
    uint64_t skip = take < cover ? next_random(p) % (cover / take) * take : 0;
    return (io_read){.file = x->file,
                     .bytes = (uint32_t)take,
                     .offset = extent_cover_start(x) + skip,
                     .buf = next_place(p, w, slot),
                     .tag = (uint64_t)slot};
}

/* bytes 0: to the file's end. */
static void drop_cached(const prober *p, int32_t file, uint64_t offset, uint32_t bytes) {
    int fd = -1;
    if (file_open_read(p->path[file], 0, &fd, NULL, NULL) == SMOE_OK) {
        (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static bool send_one(prober *p, const way *w, io *handle, int32_t slot) {
    io_read r = random_read(p, w, slot);
    if (!w->direct) { /* what is cached would answer for the drive */
        drop_cached(p, r.file, r.offset, r.bytes);
    }
    return w->ops->submit(handle, &r, 1) == 1;
}

static void compute_for(busy_core *b, uint64_t ns) {
    enum { LINE_WORDS = 8, LOOK_WORDS = 1024 * LINE_WORDS };
    uint64_t end_ns = now_ns() + ns;
    while (now_ns() < end_ns) {
        size_t end = b->at + LOOK_WORDS < b->n_word ? b->at + LOOK_WORDS : b->n_word;
        for (size_t i = b->at; i < end; i += LINE_WORDS) {
            b->sum ^= b->word[i];
        }
        b->at = end < b->n_word ? end : 0;
    }
}

static int32_t reap_some(prober *p, const way *w, io *handle) {
    int32_t n;
    while (p->busy && (n = w->ops->reap(handle, p->done, w->depth, false)) == 0) {
        compute_for(p->busy, IO_TICK_NS);
    }
    return p->busy ? n : w->ops->reap(handle, p->done, w->depth, true);
}

/* Keeps depth reads in flight for a while; bytes a second, 0 when something failed. */
static double flow(prober *p, const way *w, io *handle) {
    uint64_t bytes = 0, start_ns = now_ns(), end_ns = start_ns;
    int32_t n_open = 0;
    bool is_sound = true;
    for (int32_t i = 0; i < w->depth; i++) {
        n_open += send_one(p, w, handle, i);
    }
    while (n_open > 0) {
        int32_t n = reap_some(p, w, handle);
        if (n <= 0) {
            return 0;
        }
        end_ns = now_ns();
        for (int32_t i = 0; i < n; i++) {
            n_open--;
            is_sound = is_sound && p->done[i].result > 0;
            bytes += p->done[i].result > 0 ? (uint64_t)p->done[i].result : 0;
            bool go_on = is_sound && end_ns - start_ns < p->step_ns && bytes < PROBE_MAX_BYTES;
            n_open += go_on && send_one(p, w, handle, (int32_t)p->done[i].tag);
        }
    }
    return is_sound && end_ns > start_ns ? (double)bytes * 1e9 / (double)(end_ns - start_ns) : 0;
}

static int open_way(prober *p, const way *w, io **out, smoe_error *err) {
    io_config c = {.path = p->path,
                   .n_file = p->c->source->files.n_file,
                   .depth = w->depth,
                   .direct = w->direct};
    return w->ops->open(out, &c, err);
}

/* 0: this way does not work here. */
static double measure(prober *p, way w, smoe_error *err) {
    io *handle;
    uint64_t fits = p->room_bytes / w.read_bytes;
    if (fits == 0) {
        return 0;
    }
    w.depth = (uint64_t)w.depth < fits ? w.depth : (int32_t)fits;
    if (open_way(p, &w, &handle, err) != SMOE_OK) {
        return 0;
    }
    double rate = flow(p, &w, handle);
    w.ops->close(handle);
    /* A cgroup's limit counts what buffered reads, and the kernel's reading ahead, have left. */
    for (int32_t i = 0; i < p->c->source->files.n_file && !w.direct; i++) {
        drop_cached(p, i, 0, 0);
    }
    return rate;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure_latency(prober *p, way w) {
    double ns[PROBE_LATENCY_RUNS];
    io *handle;
    w.depth = 1;
    w.read_bytes = IO_ALIGN_BYTES;
    if (open_way(p, &w, &handle, NULL) != SMOE_OK) {
        return 0;
    }
    for (int32_t i = 0; i < PROBE_LATENCY_RUNS; i++) {
        uint64_t start_ns = now_ns();
        if (!send_one(p, &w, handle, 0) || w.ops->reap(handle, p->done, 1, true) != 1) {
            w.ops->close(handle);
            return 0;
        }
        ns[i] = (double)(now_ns() - start_ns);
    }
    w.ops->close(handle);
    qsort(ns, PROBE_LATENCY_RUNS, sizeof *ns, by_value);
    return ns[PROBE_LATENCY_RUNS / 2];
}

/* ---- the search */

/* The longest extent cover a read could have: longer blocks make no difference. */
static uint32_t longest_read(const source *s) {
    uint64_t longest = IO_ALIGN_BYTES;
    for (int32_t i = 0; i < s->n_moe_layer * s->n_expert_row; i++) {
        for (int32_t x = 0; x < s->expert[i].n_ext; x++) {
            uint64_t bytes = extent_cover_bytes(&s->expert[i].ext[x]);
            longest = bytes > longest ? bytes : longest;
        }
    }
    return longest < (8u << 20) ? (uint32_t)longest : 8u << 20;
}

static double try_sizes(prober *p, way *w, smoe_error *err) {
    static const uint32_t sizes[] = {256u << 10, 512u << 10, 1u << 20, 2u << 20, 4u << 20};
    uint32_t longest = longest_read(p->c->source);
    double best = 0;
    way best_way = *w;
    for (size_t i = 0; i <= sizeof sizes / sizeof *sizes; i++) {
        bool is_last = i == sizeof sizes / sizeof *sizes || sizes[i] >= longest;
        w->read_bytes = is_last ? longest : sizes[i];
        double rate = measure(p, *w, err);
        /* a larger block means fewer calls, so it wins ties */
        if (rate >= best * PROBE_EQUAL && rate > 0) {
            best_way = *w;
            best = rate > best ? rate : best;
        }
        if (is_last) {
            break;
        }
    }
    *w = best_way;
    return best;
}

/* Reads that last as long as PROBE_LASTS_S. */
static double lasting_depth(const way *w, double rate) {
    return ceil(rate * PROBE_LASTS_S / w->read_bytes);
}

/* Raises the depth by one read at most, since a demand would wait for more of them; where that does
 * not last, reads become longer first. */
static void keep_busy(const prober *p, way *w, double rate) {
    uint32_t longest = p->c->read_bytes ? w->read_bytes : longest_read(p->c->source);
    uint64_t room = p->room_bytes / (uint64_t)(w->depth + 1);
    while (lasting_depth(w, rate) > w->depth + 1) {
        uint32_t next = w->read_bytes < longest / 2 ? 2 * w->read_bytes : longest;
        if (next <= w->read_bytes || next > room) {
            break;
        }
        w->read_bytes = next;
    }
    bool lasts = lasting_depth(w, rate) <= w->depth;
    w->depth += !lasts && w->depth < PROBE_MAX_DEPTH && w->read_bytes <= room;
}

/* Twice over, the better of two looks each: what else runs on the machine only slows. */
static double try_depths(prober *p, way *w, probe_result *out, smoe_error *err) {
    static const int32_t depths[] = {1, 2, 4, 8, 16, 32, PROBE_MAX_DEPTH};
    enum { N = sizeof depths / sizeof *depths };
    double rate[N] = {0}, best = 0;
    for (int32_t round = 0; round < 2; round++) {
        for (int32_t i = 0; i < N; i++) {
            if ((uint64_t)depths[i] * w->read_bytes > p->room_bytes) {
                break;
            }
            w->depth = depths[i];
            double now = measure(p, *w, err);
            rate[i] = now > rate[i] ? now : rate[i];
            best = rate[i] > best ? rate[i] : best;
        }
    }
    out->single_bytes_per_s = rate[0];
    for (int32_t i = 0; i < N; i++) {
        if (rate[i] >= best * PROBE_EQUAL) {
            w->depth = depths[i];
            keep_busy(p, w, best);
            return rate[i];
        }
    }
    return 0;
}

static void adopt(probe_result *out, const way *w, double rate) {
    out->ops = w->ops;
    out->direct = w->direct;
    out->depth = w->depth;
    out->read_bytes = w->read_bytes;
    out->bytes_per_s = rate;
}

/* The first allowed way that works: direct before buffered, the preferred back end first. */
static bool find_way(prober *p, way *w, smoe_error *err) {
    smoe_error first = {0};
    for (int32_t buffered = p->c->direct == SMOE_OFF; buffered <= (p->c->direct != SMOE_ON);
         buffered++) {
        for (int32_t i = 0; i < 2 && p->c->ops[i]; i++) {
            io *handle;
            smoe_error e = {0};
            *w = (way){p->c->ops[i], !buffered, p->c->depth ? p->c->depth : PROBE_SIZE_DEPTH,
                       p->c->read_bytes ? p->c->read_bytes : IO_ALIGN_BYTES};
            if (open_way(p, w, &handle, &e) == SMOE_OK) {
                w->ops->close(handle);
                return true;
            }
            first = first.code ? first : e;
        }
    }
    if (err) {
        *err = first;
    }
    return false;
}

static double measure_longer(prober *p, const way *w, int32_t steps) {
    uint64_t step_ns = p->step_ns;
    p->step_ns *= (uint64_t)steps;
    double rate = measure(p, *w, NULL);
    p->step_ns = step_ns;
    return rate;
}

/* A short look can be lucky: a limited drive gives in slices, others share it. What looked better
 * than the chosen way must be so twice more, by turns. */
static bool stays_ahead(prober *p, const way *other, const way *chosen, double by) {
    for (int32_t i = 0; i < PROBE_TURNS; i++) {
        double mine = measure_longer(p, chosen, PROBE_TURN_STEPS);
        if (measure_longer(p, other, PROBE_TURN_STEPS) <= mine * by) {
            return false;
        }
    }
    return true;
}

/* The other back end and the page cache, where they are allowed. */
static void try_others(prober *p, const way *w, probe_result *out) {
    way chosen = *w, other = *w;
    other.ops = p->c->ops[0] == w->ops ? p->c->ops[1] : p->c->ops[0];
    if (other.ops) {
        out->other_bytes_per_s = measure(p, other, NULL);
        if (out->other_bytes_per_s * PROBE_EQUAL > out->bytes_per_s &&
            stays_ahead(p, &other, &chosen, 1 / PROBE_EQUAL)) {
            double before = out->bytes_per_s;
            adopt(out, &other, out->other_bytes_per_s);
            out->other_bytes_per_s = before;
            chosen = other;
        }
    }
    if (w->direct && p->c->direct != SMOE_ON) {
        way buffered = chosen;
        buffered.direct = false;
        out->buffered_bytes_per_s = measure(p, buffered, NULL);
        if (out->buffered_bytes_per_s > out->bytes_per_s * PROBE_BUFFERED_WIN &&
            stays_ahead(p, &buffered, &chosen, PROBE_BUFFERED_WIN)) {
            adopt(out, &buffered, out->buffered_bytes_per_s);
        }
    }
}

static double measure_chosen(prober *p, const probe_result *r, int32_t steps) {
    return measure_longer(p, &(way){r->ops, r->direct, r->depth, r->read_bytes}, steps);
}

static void *compute(void *core) {
    busy_core *b = core;
    while (!atomic_load_explicit(b->stop, memory_order_relaxed)) {
        compute_for(b, IO_TICK_NS);
    }
    return NULL;
}

/* The part of the room behind that of the reads, a share for each core. */
static void share_room(const prober *p, busy_core *core, int32_t n, atomic_bool *stop) {
    const char *start = (const char *)p->c->room + p->room_bytes;
    size_t n_word = (size_t)(p->touched_bytes - p->room_bytes) / sizeof(uint64_t) / (size_t)n;
    for (int32_t i = 0; i < n; i++) {
        const uint64_t *word = (const uint64_t *)start + (size_t)i * n_word;
        core[i] = (busy_core){.word = word, .n_word = n_word, .stop = stop};
    }
}

/* As in decode, when all threads go through weights and this one looks after the reads between two
 * tasks. A virtual machine's drive is emulated by the same cores, and copies through the same
 * memory, and then gives less. */
static double measure_busy(prober *p, const probe_result *r) {
    busy_core core[BUSY_THREADS];
    int32_t n = 1, want = cpu_count() < BUSY_THREADS ? cpu_count() : BUSY_THREADS;
    atomic_bool stop = false;
    uint64_t least = (uint64_t)r->depth * r->read_bytes, half = p->touched_bytes / 2;
    uint64_t want_bytes = round_up(half > least ? half : least, IO_ALIGN_BYTES);
    p->room_bytes = want_bytes < p->touched_bytes ? want_bytes : p->touched_bytes;
    share_room(p, core, want, &stop);
    while (n < want && pthread_create(&core[n].thread, NULL, compute, &core[n]) == 0) {
        n++;
    }
    p->busy = &core[0];
    double rate = n == want ? measure_chosen(p, r, PROBE_BUSY_STEPS) : 0;
    p->busy = NULL;
    p->room_bytes = p->touched_bytes;
    atomic_store(&stop, true);
    while (n > 1) {
        pthread_join(core[--n].thread, NULL);
    }
    return rate;
}

/* Drives and hypervisors lend a burst: what counts is how the chosen way goes on. */
static void sustain(prober *p, probe_result *out) {
    double rate = measure_chosen(p, out, PROBE_LAST_STEPS);
    out->bytes_per_s = rate > 0 ? rate : out->bytes_per_s;
    out->busy_bytes_per_s = measure_busy(p, out);
}

static bool says_rotating(const char *path) {
    struct stat st;
    char name[96], text[8] = "";
    if (stat(path, &st) != 0) {
        return false;
    }
    for (int i = 0; i < 2; i++) { /* a partition has its queue one level up */
        snprintf(name, sizeof name, "/sys/dev/block/%u:%u/%squeue/rotational", major(st.st_dev),
                 minor(st.st_dev), i ? "../" : "");
        FILE *f = fopen(name, "re");
        if (f) {
            bool got = fgets(text, sizeof text, f) != NULL;
            fclose(f);
            if (got) {
                return text[0] == '1';
            }
        }
    }
    return false;
}

static int search(prober *p, probe_result *out, smoe_error *err) {
    way w;
    if (!find_way(p, &w, err)) {
        return err ? err->code : SMOE_ERR_UNSUPPORTED;
    }
    if (!p->c->read_bytes) {
        (void)try_sizes(p, &w, NULL);
    }
    double rate = p->c->depth ? measure(p, w, err) : try_depths(p, &w, out, err);
    adopt(out, &w, rate);
    if (rate > 0) {
        try_others(p, &w, out);
    }
    sustain(p, out);
    out->latency_ns = measure_latency(p, w);
    out->is_rotating = out->latency_ns > PROBE_ROTATING_NS && says_rotating(p->path[0]);
    return SMOE_OK;
}

static uint64_t budget_for(const source *s) {
    double share = (double)source_experts_bytes(s) / PROBE_FULL_BYTES;
    return (uint64_t)(share >= 1 ? PROBE_BUDGET_NS
                                 : PROBE_LEAST_NS + share * (PROBE_BUDGET_NS - PROBE_LEAST_NS));
}

/* The first touch of memory is no part of what the drive takes. */
static void touch_room(prober *p) {
    p->touched_bytes =
        p->c->room_bytes < PROBE_ROOM_BYTES ? p->c->room_bytes : (uint64_t)PROBE_ROOM_BYTES;
    p->room_bytes = p->touched_bytes;
    for (uint64_t at = 0; at < p->touched_bytes; at += IO_ALIGN_BYTES) {
        ((volatile char *)p->c->room)[at] = 0;
    }
}

int probe_run(probe_result *out, const probe_config *config, smoe_error *err) {
    int32_t n_file = config->source->files.n_file;
    uint64_t budget_ns = config->budget_ns ? config->budget_ns : budget_for(config->source);
    /* other places each time: a hypervisor, or a drive, remembers the last ones */
    prober p = {.c = config, .step_ns = budget_ns / PROBE_STEPS, .random = now_ns()};
    *out = (probe_result){0};
    p.path = mem_array((size_t)n_file, sizeof *p.path);
    if (!p.path) {
        return err_no_memory(err, (uint64_t)n_file * sizeof *p.path);
    }
    for (int32_t i = 0; i < n_file; i++) {
        p.path[i] = probe_path(config, i);
    }
    touch_room(&p);
    int rc = search(&p, out, err);
    free(p.path);
    return rc;
}

/* ---- what is said */

void probe_log(const probe_result *r, const log_sink *log) {
    char size[24], busy[48] = "", other[64] = "", buffered[64] = "";
    if (r->bytes_per_s <= 0) {
        log_line(log, SMOE_LOG_NOTICE, "drive: could not be measured; reading with %d in flight",
                 r->depth);
        return;
    }
    if (r->busy_bytes_per_s > 0) {
        snprintf(busy, sizeof busy, "%.2f while all cores compute, ", r->busy_bytes_per_s * 1e-9);
    }
    if (r->other_bytes_per_s > 0) {
        snprintf(other, sizeof other, ", %.2f the other back end", r->other_bytes_per_s * 1e-9);
    }
    if (r->buffered_bytes_per_s > 0 && r->direct) {
        snprintf(buffered, sizeof buffered, ", %.2f through the page cache",
                 r->buffered_bytes_per_s * 1e-9);
    }
    log_line(log, SMOE_LOG_PLAN,
             "drive %.2f GB/s: %s reads of %s, %d in flight, %s (%s%.2f with one in flight%s%s; "
             "%.0f us a block)%s",
             r->bytes_per_s * 1e-9, r->direct ? "direct" : "buffered",
             format_bytes(size, r->read_bytes), r->depth, r->ops->name, busy,
             r->single_bytes_per_s * 1e-9, other, buffered, r->latency_ns * 1e-3,
             r->is_remembered ? ", as measured before" : "");
    if (r->is_rotating) {
        log_line(log, SMOE_LOG_NOTICE,
                 "drive: this is a rotating disk; move the model to a solid-state drive");
    } else if (r->bytes_per_s < 0.5e9) {
        log_line(log, SMOE_LOG_NOTICE,
                 "drive: slow for streaming; a drive of 2 GB/s and more suits it");
    }
}
