/* What a model would do under a ceiling, without running it: the same memory plan as a run's, the
 * probe's word on the drive, the kernels' speed on the experts' type, and hit rates drawn for two
 * kinds of routing. See smoe_model_forecast in smoe.h and docs/benchmarks.md.
 *
 * Owns the estimate. Never loads the scout and never computes with the model's weights.
 */
#include <malloc.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "conductor/model.h"
#include "sculptor/synth.h"
#include "streamer/probe.h"

/* As much as the widest search of the probe wants. */
#define ROOM_BYTES ((uint64_t)512 << 20)
/* Weights that the kernels are timed on: more than caches hold, and little beside any model. */
#define TIMED_BYTES ((uint64_t)48 << 20)
#define TIMED_RUNS  4

/* ---- hits */

enum { DRAWN_TOK = 320, DRAWN_LAYERS = 4, WARM_TOK = 64, DRAWN_MAX = 1024 };

/* A layer of drawn routing: logits are an expert's bias plus a normal number for each token. */
typedef struct drawn_layer {
    int32_t n_expert, n_used, n_slot;
    double skew;
    uint64_t key;
    int32_t recent[DRAWN_MAX]; /* experts, the most recently used first */
    int32_t n_recent;
} drawn_layer;

static bool touch(drawn_layer *l, int32_t expert) {
    int32_t at = 0;
    while (at < l->n_recent && l->recent[at] != expert) {
        at++;
    }
    bool hit = at < l->n_recent && at < l->n_slot;
    l->n_recent += at == l->n_recent;
    memmove(l->recent + 1, l->recent, (size_t)at * sizeof *l->recent);
    l->recent[0] = expert;
    return hit;
}

static double draw_layer(drawn_layer *l) {
    double logit[DRAWN_MAX], bias[DRAWN_MAX];
    const int32_t n = l->n_expert;
    uint64_t hits = 0, uses = 0, draw = 0;
    for (int32_t e = 0; e < n; e++) {
        bias[e] = l->skew * synth_normal(l->key, draw++);
    }
    for (int32_t t = 0; t < DRAWN_TOK; t++) {
        for (int32_t e = 0; e < n; e++) {
            logit[e] = bias[e] + synth_normal(l->key, draw++);
        }
        for (int32_t k = 0; k < l->n_used; k++) {
            int32_t best = 0;
            for (int32_t e = 1; e < n; e++) {
                best = logit[e] > logit[best] ? e : best;
            }
            logit[best] = -HUGE_VAL;
            bool hit = touch(l, best);
            uses += t >= WARM_TOK;
            hits += t >= WARM_TOK && hit;
        }
    }
    return (double)hits / (double)uses;
}

/* The share of uses that find the expert among the most recent ones that a ring of this share
 * holds. Very wide layers are drawn with fewer experts in the same proportions. */
static double expect_hits(const smoe_info *info, double ring_share, double skew) {
    int32_t shrink = 1 + (info->n_expert - 1) / DRAWN_MAX;
    double sum = 0;
    if (ring_share >= 1 || info->n_expert == 0) {
        return 1;
    }
    for (uint64_t i = 0; i < DRAWN_LAYERS; i++) {
        drawn_layer l = {.n_expert = info->n_expert / shrink,
                         .n_used = info->n_expert_used / shrink,
                         .skew = skew,
                         .key = 1 + i};
        l.n_used = l.n_used > 0 ? l.n_used : 1;
        l.n_slot = (int32_t)(ring_share * l.n_expert + 0.5);
        sum += draw_layer(&l);
    }
    return sum / DRAWN_LAYERS;
}

/* ---- the processor */

typedef struct timed_job {
    matmul_fn *fn;
    const char *weights;
    const void *x;
    float *y;
    size_t row_bytes;
    int32_t n_col, n_row, rows_a_task;
} timed_job;

static void timed_task(void *user, int32_t task, int32_t thread) {
    const timed_job *j = user;
    (void)thread;
    int32_t first = task * j->rows_a_task;
    int32_t n = j->n_row - first < j->rows_a_task ? j->n_row - first : j->rows_a_task;
    j->fn(j->y + first, (size_t)j->n_row, j->weights + (size_t)first * j->row_bytes, j->row_bytes,
          n, j->n_col, j->x, 0, 1);
}

/* Bytes of an expert's weights a second that all threads multiply with one token; 0 when there is
 * no memory to find out. Codes of zero take as long as any other. */
static double time_kernels(const smoe_model *m, const smoe_model_options *o) {
    if (m->source->n_moe_layer == 0) {
        return 0;
    }
    const struct expert_part *p = &m->source->expert[0].part[PART_GATE];
    const kernels *k = m->exec.kernels;
    bool floats = o->precision == SMOE_PRECISION_REFERENCE || !k->mm_q8[p->type];
    timed_job j = {.fn = floats ? k->mm_f32[p->type] : k->mm_q8[p->type],
                   .n_col = p->n_col,
                   .row_bytes = (size_t)(p->bytes / (uint64_t)p->n_row)};
    j.n_row = (int32_t)(TIMED_BYTES / j.row_bytes) + 1;
    uint64_t bytes = (uint64_t)j.n_row * j.row_bytes, best_ns = UINT64_MAX;
    float *x = mem_array((size_t)p->n_col + 64, sizeof *x);
    act_q8 *q = mem_array(act_row_blocks(p->n_col), sizeof *q);
    pool *workers = NULL;
    void *weights = NULL;
    j.y = mem_array((size_t)j.n_row, sizeof *j.y);
    if (x && q && j.y && mem_map(&weights, bytes, NULL) == SMOE_OK &&
        pool_open(&workers, o->n_thread, NULL) == SMOE_OK) {
        int32_t n_task = 8 * o->n_thread;
        memset(weights, 0, (size_t)bytes); /* takes the pages */
        k->quantize_act(x, p->n_col, q);
        j.weights = weights;
        j.x = floats ? (const void *)x : q;
        j.rows_a_task = (j.n_row + n_task - 1) / n_task;
        n_task = (j.n_row + j.rows_a_task - 1) / j.rows_a_task;
        for (int i = 0; i < TIMED_RUNS; i++) {
            uint64_t start_ns = now_ns();
            pool_run(workers, timed_task, &j, n_task);
            uint64_t ns = now_ns() - start_ns;
            best_ns = ns < best_ns ? ns : best_ns;
        }
    }
    pool_close(workers);
    mem_unmap(weights, bytes);
    free(j.y);
    free(q);
    free(x);
    return best_ns < UINT64_MAX ? (double)bytes * 1e9 / (double)best_ns : 0;
}

/* Weights that one token makes the processor read: everything resident but the embeddings of other
 * tokens, and its experts. */
static uint64_t weights_of_token(const source *s, const smoe_info *info) {
    uint64_t embed = s->spec.tied_head ? 0 : s->global[ROLE_EMBED].bytes;
    uint64_t resident = info->scout_bytes > embed ? info->scout_bytes - embed : 0;
    return resident + info->token_cycle_bytes;
}

/* ---- the drive */

/* As the streamer does when a model is opened. */
static double ask_drive(const smoe_model *m, const smoe_model_options *o, uint64_t ring_bytes) {
    const io_ops *uring = &io_uring_ops, *threads = &io_thread_ops;
    probe_config c = {
        .source = m->source,
        .ops = {o->io == SMOE_IO_THREADS ? threads : uring, o->io == SMOE_IO_AUTO ? threads : NULL},
        .direct = o->direct,
        .room_bytes = ring_bytes < ROOM_BYTES ? ring_bytes : ROOM_BYTES};
    probe_result r = {0};
    if (o->probe == SMOE_PROBE_OFF) {
        return 0;
    }
    if (o->probe == SMOE_PROBE_REDO || !probe_recall(&r, &c)) {
        if (mem_map(&c.room, c.room_bytes, NULL) != SMOE_OK || probe_run(&r, &c, NULL) != SMOE_OK) {
            mem_unmap(c.room, c.room_bytes);
            return 0;
        }
        mem_unmap(c.room, c.room_bytes);
        probe_remember(&r, &c);
    }
    probe_log(&r, &m->log);
    return r.bytes_per_s;
}

/* ---- rows */

/* Experts that miss are read while those that hit are computed; how much of that overlaps is
 * between nothing and all. */
static void fill_row(smoe_forecast_row *row, const smoe_forecast *f, uint64_t full_bytes,
                     uint64_t ring_bytes, uint64_t fixed_bytes) {
    double compute_s =
        f->compute_bytes_per_s > 0 ? (double)f->token_weight_bytes / f->compute_bytes_per_s : 0;
    *row =
        (smoe_forecast_row){.ceiling_bytes = fixed_bytes + ring_bytes,
                            .ring_bytes = ring_bytes,
                            .ring_share = full_bytes ? (double)ring_bytes / (double)full_bytes : 1};
    row->hit_low = expect_hits(&f->info, row->ring_share, 0);
    row->hit_high = expect_hits(&f->info, row->ring_share, SYNTH_SKEW);
    if (f->drive_bytes_per_s <= 0 && row->hit_low < 1) {
        return; /* no rate, no speed */
    }
    double cycle_s =
        f->drive_bytes_per_s > 0 ? (double)f->info.token_cycle_bytes / f->drive_bytes_per_s : 0;
    double slow_s = compute_s + (1 - row->hit_low) * cycle_s;
    double fast_s = fmax(compute_s, (1 - row->hit_high) * cycle_s);
    row->tok_per_s_low = slow_s > 0 ? 1 / slow_s : 0;
    row->tok_per_s_high = fast_s > 0 ? 1 / fast_s : 0;
}

static void fill_rows(smoe_forecast *f, const source *s) {
    static const double share[] = {0, 0.25, 0.5, 0.75, 1};
    uint64_t full = streamer_ring_full(s), floor = streamer_ring_floor(s);
    uint64_t fixed = f->plan.process_bytes + f->plan.scout_bytes + f->plan.kv_bytes +
                     f->plan.scratch_bytes + f->plan.reserve_bytes;
    fill_row(&f->asked, f, full, f->plan.ring_bytes, fixed);
    f->asked.ceiling_bytes = f->plan.ceiling_bytes;
    for (size_t i = 0; i < sizeof share / sizeof *share; i++) {
        uint64_t ring = (uint64_t)(share[i] * (double)full);
        bool is_new = ring > floor && ring <= full;
        if (i == 0 || is_new) {
            fill_row(&f->row[f->n_row++], f, full, i == 0 ? floor : ring, fixed);
        }
    }
    f->row[0].ceiling_bytes = f->plan.smallest_ceiling_bytes;
    double chunk_s = f->drive_bytes_per_s > 0 && full > f->plan.ring_bytes
                         ? (double)(full - f->plan.ring_bytes) / f->drive_bytes_per_s
                         : 0;
    f->prefill_tok_per_s_most = chunk_s > 0 ? f->plan.chunk_tok / chunk_s : 0;
}

/* The plan under the ceiling asked for, or else under the smallest that works. */
static int make_plan(smoe_forecast *f, const source *s, smoe_model_options *o, smoe_error *err) {
    machine_memory machine;
    malloc_trim(0);
    machine_memory_now(&machine);
    if (o->memory_bytes) {
        machine.limit_bytes = 0; /* the question is what that much memory would do */
    }
    int rc = plan_make(&f->plan, s, o, &machine, &f->why_not);
    f->fits = rc == SMOE_OK;
    if (rc != SMOE_ERR_MEMORY) {
        return rc == SMOE_OK ? rc : err_set(err, rc, "%s", f->why_not.text);
    }
    smoe_model_options ample = *o;
    ample.memory_bytes = UINT64_MAX / 4;
    machine.limit_bytes = 0;
    rc = plan_make(&f->plan, s, &ample, &machine, err);
    ample.memory_bytes = f->plan.smallest_ceiling_bytes;
    return rc ? rc : plan_make(&f->plan, s, &ample, &machine, err);
}

int smoe_model_forecast(const char *path, const smoe_model_options *options,
                        double drive_bytes_per_s, smoe_forecast *out, smoe_error *err) {
    smoe_model_options o = options ? *options : (smoe_model_options){0};
    smoe_forecast f = {.drive_bytes_per_s = drive_bytes_per_s};
    smoe_model *m = mem_array(1, sizeof *m);
    if (!m) {
        return err_no_memory(err, sizeof *m);
    }
    m->log = (log_sink){o.log, o.log_user};
    int rc = model_open_headers(m, path, &o, err);
    rc = rc ? rc : make_plan(&f, m->source, &o, err);
    if (rc == SMOE_OK) {
        f.info = m->info;
        f.token_weight_bytes = weights_of_token(m->source, &m->info);
        plan_log(&f.plan, m->source, &m->log);
        if (f.drive_bytes_per_s <= 0) {
            f.drive_bytes_per_s = ask_drive(m, &o, f.plan.ring_bytes);
        }
        f.compute_bytes_per_s = time_kernels(m, &o);
        fill_rows(&f, m->source);
        *out = f;
    }
    smoe_model_close(m);
    return rc;
}
