/* Feed-forward blocks; see ffn.h. */
#include "layers/ffn.h"

#include <math.h>
#include <string.h>

#include "layers/next.h"
#include "layers/residual.h"
#include "layers/router.h"

typedef struct ffn_state {
    const exec *exec;
    int32_t layer;
    int32_t n_tok;
} ffn_state;

static const ffn_spec *ffn_of(const exec *e, int32_t layer) {
    return &e->spec->layer[layer].ffn;
}

/* ---- gate, up and activation in one pass
 *
 * A task is some rows of gate and up with all tokens of their expert. It activates what it computed
 * and quantises it for the down projection, so that nothing waits between the three. */

/* Rows of a task are whole pairs of activation blocks. */
#define GATED_ROWS 64

typedef struct gated_job {
    linear_job gate; /* y is the hidden values */
    linear_job up;
    act_q8 *q; /* where the first token's hidden values go quantised; NULL: they do not */
    size_t q_stride;
} gated_job;

typedef struct gated_state {
    const exec *exec;
    const gated_job *jobs;
    int32_t rows_per_task;
} gated_state;

static int32_t gated_tasks_of(const gated_job *j, int32_t rows_per_task) {
    return (j->gate.n_row + rows_per_task - 1) / rows_per_task;
}

static void gated_task(void *job, int32_t task, int32_t thread) {
    const gated_state *g = job;
    const gated_job *j = g->jobs;
    const kernels *k = g->exec->kernels;
    (void)thread;
    int32_t n;
    while (task >= (n = gated_tasks_of(j, g->rows_per_task))) {
        task -= n;
        j++;
    }
    int32_t row = task * g->rows_per_task;
    int32_t end = row + g->rows_per_task < j->gate.n_row ? row + g->rows_per_task : j->gate.n_row;
    linear_prefetch(&j->up, row);
    linear_rows(g->exec, &j->gate, row, end - row);
    if (end < j->gate.n_row) {
        linear_prefetch(&j->gate, end);
    }
    linear_rows(g->exec, &j->up, row, end - row);
    for (int32_t t = 0; t < j->gate.n_tok; t++) {
        float *h = j->gate.y + (size_t)t * j->gate.y_stride + row;
        k->silu_mul(h, j->up.y + (size_t)t * j->up.y_stride + row, end - row, h);
        if (j->q) {
            k->quantize_act(h, end - row, j->q + (size_t)t * j->q_stride + row / 32);
        }
    }
}

static void gated_run(const exec *e, const gated_job *jobs, int32_t n_job) {
    uint64_t work_bytes = 0;
    int64_t n_row = 0;
    for (int32_t i = 0; i < n_job; i++) {
        const linear_job *j = &jobs[i].gate;
        work_bytes += 2 * (uint64_t)j->n_row * j->row_bytes * (uint64_t)j->n_tok;
        n_row += j->n_row;
    }
    gated_state g = {e, jobs, linear_rows_a_task(e, n_row, work_bytes, GATED_ROWS)};
    int32_t n_task = 0;
    for (int32_t i = 0; i < n_job; i++) {
        n_task += gated_tasks_of(&jobs[i], g.rows_per_task);
    }
    pool_run(e->pool, gated_task, &g, n_task);
}

/* ---- dense, and the shared expert, which is a dense one beside the others */

/* out[tok] = down(silu(gate(x)) * up(x)) of scratch.norm, which is quantised where the types want
 * it. */
static void dense_compute(const ffn_state *f, const weight *gate, const weight *up,
                          const weight *down, float *out) {
    const exec *e = f->exec;
    const scratch *s = &e->s;
    gated_job in = {.gate = linear_of(gate, &s->norm, s->wide.f, s->wide.f_stride, f->n_tok),
                    .up = linear_of(up, &s->norm, s->up, s->wide.f_stride, f->n_tok),
                    .q = exec_wants_q8(e, down->type) ? s->wide.q : NULL,
                    .q_stride = s->wide.q_stride};
    linear_job last = linear_of(down, &s->wide, out, (size_t)e->spec->d_model, f->n_tok);
    linear_next(e, &last, 1);
    gated_run(e, &in, 1);
    next_is_layer(e, f->layer + 1, f->n_tok);
    linear_run(e, &last, 1);
}

void ffn_dense(const exec *e, int32_t layer, int32_t n_tok) {
    const weight *w = e->scout->layer[layer];
    ffn_state f = {.exec = e, .layer = layer, .n_tok = n_tok};
    residual_norm(e, &w[ROLE_FFN_NORM], n_tok);
    if (exec_wants_q8(e, w[ROLE_FFN_GATE].type) || exec_wants_q8(e, w[ROLE_FFN_UP].type)) {
        rows_quantize(e, &e->s.norm, n_tok, e->spec->d_model);
    }
    dense_compute(&f, &w[ROLE_FFN_GATE], &w[ROLE_FFN_UP], &w[ROLE_FFN_DOWN], e->s.out);
    residual_add(e, n_tok);
}

/* Scales a row of the shared expert's output by the sigmoid of its gate. */
static void shared_scale_task(void *job, int32_t tok, int32_t thread) {
    const ffn_state *f = job;
    const exec *e = f->exec;
    (void)thread;
    size_t d = (size_t)e->spec->d_model;
    float *out = e->s.shared + (size_t)tok * d;
    float scale = 1.0f / (1.0f + expf(-e->s.router[tok]));
    for (size_t c = 0; c < d; c++) {
        out[c] *= scale;
    }
}

void moe_shared(const exec *e, int32_t layer, int32_t n_tok) {
    const weight *w = e->scout->layer[layer];
    const ffn_spec *ffn = ffn_of(e, layer);
    ffn_state f = {.exec = e, .layer = layer, .n_tok = n_tok};
    if (ffn->shared_width == 0) {
        return;
    }
    dense_compute(&f, &w[ROLE_SHARED_GATE], &w[ROLE_SHARED_UP], &w[ROLE_SHARED_DOWN], e->s.shared);
    if (ffn->shared_gate) {
        /* routing is done, so the place of its scores is free */
        linear_job gate = linear_of(&w[ROLE_SHARED_SCALE], &e->s.norm, e->s.router, 1, n_tok);
        linear_run(e, &gate, 1);
        pool_run(e->pool, shared_scale_task, &f, n_tok);
    }
}

/* ---- Mixture of Experts */

static int32_t ranks_of(const exec *e, const ffn_spec *f) {
    int32_t n = f->n_expert_used + e->spec_ranks;
    return n < f->n_expert ? n : f->n_expert;
}

static void route_task(void *job, int32_t tok, int32_t thread) {
    const ffn_state *f = job;
    const exec *e = f->exec;
    const ffn_spec *ffn = ffn_of(e, f->layer);
    (void)thread;
    int32_t n_rank = ranks_of(e, ffn);
    router_choose(e->kernels, &e->spec->router, e->s.router + (size_t)tok * (size_t)ffn->n_expert,
                  ffn->n_expert, ffn->n_expert_used, n_rank,
                  e->s.choice + (size_t)tok * (size_t)n_rank,
                  e->s.weight + (size_t)tok * (size_t)ffn->n_expert_used);
}

/* Counting sort of (token, rank) pairs by expert: slots of an expert are adjacent, in token order.
 */
static int32_t assign_slots(const exec *e, const ffn_spec *ffn, int32_t n_tok) {
    const scratch *s = &e->s;
    int32_t k = ffn->n_expert_used;
    int32_t n_rank = ranks_of(e, ffn);
    memset(s->first_slot, 0, ((size_t)ffn->n_expert + 1) * sizeof *s->first_slot);
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t r = 0; r < k; r++) {
            s->first_slot[s->choice[t * n_rank + r] + 1]++;
        }
    }
    int32_t n_needed = 0;
    for (int32_t x = 0; x < ffn->n_expert; x++) {
        if (s->first_slot[x + 1] > 0) {
            s->needed[n_needed++] = x;
        }
        s->first_slot[x + 1] += s->first_slot[x];
    }
    /* first_slot[x] walks to the end of x's run while pairs are placed, then is shifted back */
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t r = 0; r < k; r++) {
            int32_t slot = s->first_slot[s->choice[t * n_rank + r]]++;
            s->slot[t * k + r] = slot;
            s->token_of_slot[slot] = t;
        }
    }
    for (int32_t x = ffn->n_expert; x > 0; x--) {
        s->first_slot[x] = s->first_slot[x - 1];
    }
    s->first_slot[0] = 0;
    return n_needed;
}

int32_t moe_route(const exec *e, int32_t layer, int32_t n_tok, const linear_job *more,
                  int32_t n_more) {
    const scratch *s = &e->s;
    const ffn_spec *ffn = ffn_of(e, layer);
    const weight *gate = &e->scout->layer[layer][ROLE_ROUTER];
    ffn_state f = {.exec = e, .layer = layer, .n_tok = n_tok};
    residual_norm(e, &e->scout->layer[layer][ROLE_FFN_NORM], n_tok);
    if (!e->reference) {
        rows_quantize(e, &s->norm, n_tok, e->spec->d_model);
    }
    /* the gate is never quantised, so this product is in floats in either precision */
    linear_job jobs[1 + AHEAD_LAYERS] = {
        linear_of(gate, &s->norm, s->router, (size_t)ffn->n_expert, n_tok)};
    for (int32_t i = 0; i < n_more; i++) {
        jobs[1 + i] = more[i];
    }
    linear_run(e, jobs, 1 + n_more);
    pool_run(e->pool, route_task, &f, n_tok);
    return assign_slots(e, ffn, n_tok);
}

typedef struct gather_state {
    const exec *exec;
    const expert_view *views;
} gather_state;

/* layer: the scout's weights of the layer, which has the factors of its experts. */
static linear_job expert_job(const weight *layer, const expert_view *v, enum expert_part_kind part,
                             const rows *x, int32_t slot, float *y, size_t y_stride,
                             int32_t n_slot) {
    const struct expert_part *p = &v->ref->part[part];
    const float *factors = layer[ROLE_FFN_GATE + part].factor;
    return (linear_job){.w = v->part[part],
                        .type = p->type,
                        .row_bytes = (size_t)(p->bytes / (uint64_t)p->n_row),
                        .n_row = p->n_row,
                        .n_col = p->n_col,
                        .x = x,
                        .x_row = slot,
                        .y = y + (size_t)slot * y_stride,
                        .y_stride = y_stride,
                        .n_tok = n_slot,
                        .factor = factors ? factors + v->expert : NULL};
}

/* Copies the input rows of one view's slots side by side, in the forms that its types want. */
static void gather_task(void *job, int32_t task, int32_t thread) {
    const gather_state *g = job;
    const exec *e = g->exec;
    const scratch *s = &e->s;
    const expert_view *v = &g->views[task];
    (void)thread;
    bool gate_q8 = exec_wants_q8(e, v->ref->part[PART_GATE].type);
    bool up_q8 = exec_wants_q8(e, v->ref->part[PART_UP].type);
    for (int32_t i = s->first_slot[v->expert]; i < s->first_slot[v->expert + 1]; i++) {
        size_t slot = (size_t)i, tok = (size_t)s->token_of_slot[i];
        if (!gate_q8 || !up_q8) {
            memcpy(s->gathered.f + slot * s->gathered.f_stride, s->norm.f + tok * s->norm.f_stride,
                   s->norm.f_stride * sizeof *s->norm.f);
        }
        if (gate_q8 || up_q8) {
            memcpy(s->gathered.q + slot * s->gathered.q_stride, s->norm.q + tok * s->norm.q_stride,
                   s->norm.q_stride * sizeof *s->norm.q);
        }
    }
}

void moe_compute(const exec *e, int32_t layer, int32_t n_tok, const expert_view *views,
                 int32_t n_view) {
    const scratch *s = &e->s;
    const weight *w = e->scout->layer[layer];
    gated_job in[MOE_VIEWS_MAX];
    linear_job down[MOE_VIEWS_MAX];
    /* One token needs no gathering: each of its slots reads the same row. */
    const rows *x = n_tok == 1 ? &s->norm : &s->gathered;
    if (n_view <= 0) {
        return;
    }
    if (n_tok > 1) {
        pool_run(e->pool, gather_task, &(gather_state){e, views}, n_view);
    }
    for (int32_t i = 0; i < n_view; i++) {
        int32_t slot = s->first_slot[views[i].expert];
        int32_t n = s->first_slot[views[i].expert + 1] - slot;
        bool q8 = exec_wants_q8(e, views[i].ref->part[PART_DOWN].type);
        in[i] = (gated_job){
            .gate =
                expert_job(w, &views[i], PART_GATE, x, slot, s->hidden.f, s->hidden.f_stride, n),
            .up = expert_job(w, &views[i], PART_UP, x, slot, s->up, s->hidden.f_stride, n),
            .q = q8 ? s->hidden.q + (size_t)slot * s->hidden.q_stride : NULL,
            .q_stride = s->hidden.q_stride};
        in[i].gate.x_row = in[i].up.x_row = n_tok == 1 ? 0 : slot;
        down[i] = expert_job(w, &views[i], PART_DOWN, &s->hidden, slot, s->out,
                             (size_t)e->spec->d_model, n);
    }
    linear_next(e, down, n_view);
    gated_run(e, in, n_view);
    next_is_layer(e, layer + 1, n_tok);
    linear_run(e, down, n_view);
}

static void combine_task(void *job, int32_t tok, int32_t thread) {
    const ffn_state *f = job;
    const exec *e = f->exec;
    const ffn_spec *ffn = ffn_of(e, f->layer);
    (void)thread;
    size_t d = (size_t)e->spec->d_model;
    int32_t k = ffn->n_expert_used;
    /* summed apart from the residual first, as the reference implementation does; the norm row of
     * this token is free by now */
    float *sum = e->s.norm.f + (size_t)tok * e->s.norm.f_stride;
    memset(sum, 0, d * sizeof *sum);
    for (int32_t r = 0; r < k; r++) {
        e->kernels->add_scaled(sum, e->s.weight[tok * k + r],
                               e->s.out + (size_t)e->s.slot[tok * k + r] * d, (int32_t)d);
    }
    if (ffn->shared_width > 0) {
        e->kernels->add_scaled(sum, 1.0f, e->s.shared + (size_t)tok * d, (int32_t)d);
    }
    e->kernels->add_scaled(e->s.x + (size_t)tok * d, (float)e->spec->residual_scale, sum,
                           (int32_t)d);
}

void moe_combine(const exec *e, int32_t layer, int32_t n_tok) {
    ffn_state f = {.exec = e, .layer = layer, .n_tok = n_tok};
    pool_run(e->pool, combine_task, &f, n_tok);
}
