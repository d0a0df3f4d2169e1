/* Feed-forward blocks; see ffn.h. */
#include "layers/ffn.h"

#include <math.h>
#include <string.h>

#include "layers/residual.h"
#include "layers/router.h"

typedef struct ffn_state {
    const exec *exec;
    int32_t layer;
    int32_t n_tok;
    const expert_view *views;
    int32_t n_view;
    int32_t width;
} ffn_state;

static const ffn_spec *ffn_of(const exec *e, int32_t layer) {
    return &e->spec->layer[layer].ffn;
}

/* ---- dense, and the shared expert, which is a dense one beside the others */

static void dense_activate_task(void *job, int32_t tok, int32_t thread) {
    const ffn_state *f = job;
    const exec *e = f->exec;
    (void)thread;
    float *h = e->s.wide.f + (size_t)tok * e->s.wide.f_stride;
    e->kernels->silu_mul(h, e->s.up + (size_t)tok * e->s.wide.f_stride, f->width, h);
}

/* out[tok] = down(silu(gate(x)) * up(x)) of scratch.norm, which is quantised where the types want
 * it. */
static void dense_compute(const ffn_state *f, const weight *gate, const weight *up,
                          const weight *down, float *out) {
    const exec *e = f->exec;
    const scratch *s = &e->s;
    linear_job in[2] = {linear_of(gate, &s->norm, s->wide.f, s->wide.f_stride, f->n_tok),
                        linear_of(up, &s->norm, s->up, s->wide.f_stride, f->n_tok)};
    linear_run(e, in, 2);
    ffn_state activate = *f;
    pool_run(e->pool, dense_activate_task, &activate, f->n_tok);
    if (exec_wants_q8(e, down->type)) {
        rows_quantize(e, &s->wide, f->n_tok, f->width);
    }
    linear_job last = linear_of(down, &s->wide, out, (size_t)e->spec->d_model, f->n_tok);
    linear_run(e, &last, 1);
}

void ffn_dense(const exec *e, int32_t layer, int32_t n_tok) {
    const weight *w = e->scout->layer[layer];
    ffn_state f = {.exec = e, .layer = layer, .n_tok = n_tok, .width = ffn_of(e, layer)->width};
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
    ffn_state f = {.exec = e, .layer = layer, .n_tok = n_tok, .width = ffn->shared_width};
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

static void gather_task(void *job, int32_t slot, int32_t thread) {
    const ffn_state *f = job;
    const scratch *s = &f->exec->s;
    (void)thread;
    size_t tok = (size_t)s->token_of_slot[slot];
    memcpy(s->gathered.f + (size_t)slot * s->gathered.f_stride, s->norm.f + tok * s->norm.f_stride,
           s->norm.f_stride * sizeof *s->norm.f);
    if (s->gathered.q) {
        memcpy(s->gathered.q + (size_t)slot * s->gathered.q_stride,
               s->norm.q + tok * s->norm.q_stride, s->norm.q_stride * sizeof *s->norm.q);
    }
}

int32_t moe_route(const exec *e, int32_t layer, int32_t n_tok) {
    const scratch *s = &e->s;
    const ffn_spec *ffn = ffn_of(e, layer);
    const weight *gate = &e->scout->layer[layer][ROLE_ROUTER];
    ffn_state f = {.exec = e, .layer = layer, .n_tok = n_tok};
    residual_norm(e, &e->scout->layer[layer][ROLE_FFN_NORM], n_tok);
    if (!e->reference) {
        rows_quantize(e, &s->norm, n_tok, e->spec->d_model);
    }
    /* the gate is never quantised, so this product is in floats in either precision */
    linear_job route = linear_of(gate, &s->norm, s->router, (size_t)ffn->n_expert, n_tok);
    linear_run(e, &route, 1);
    pool_run(e->pool, route_task, &f, n_tok);
    int32_t n_needed = assign_slots(e, ffn, n_tok);
    pool_run(e->pool, gather_task, &f, n_tok * ffn->n_expert_used);
    return n_needed;
}

/* Maps a task number to the slot it stands for and, in *view, the expert of that slot. */
static int32_t slot_of_task(const ffn_state *f, int32_t task, const expert_view **view) {
    const int32_t *first = f->exec->s.first_slot;
    const expert_view *v = f->views;
    int32_t n;
    while (task >= (n = first[v->expert + 1] - first[v->expert])) {
        task -= n;
        v++;
    }
    *view = v;
    return first[v->expert] + task;
}

static void expert_activate_task(void *job, int32_t task, int32_t thread) {
    const ffn_state *f = job;
    const exec *e = f->exec;
    (void)thread;
    const expert_view *view;
    size_t slot = (size_t)slot_of_task(f, task, &view);
    float *h = e->s.hidden.f + slot * e->s.hidden.f_stride;
    e->kernels->silu_mul(h, e->s.up + slot * e->s.hidden.f_stride, f->width, h);
    if (exec_wants_q8(e, view->ref->part[PART_DOWN].type)) {
        e->kernels->quantize_act(h, f->width, e->s.hidden.q + slot * e->s.hidden.q_stride);
    }
}

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

void moe_compute(const exec *e, int32_t layer, int32_t n_tok, const expert_view *views,
                 int32_t n_view) {
    const scratch *s = &e->s;
    const weight *w = e->scout->layer[layer];
    linear_job jobs[2 * MOE_VIEWS_MAX];
    ffn_state f = {e, layer, n_tok, views, n_view, ffn_of(e, layer)->width};
    int32_t n_slot = 0;
    if (n_view <= 0) {
        return;
    }
    for (int32_t i = 0; i < n_view; i++) {
        int32_t slot = s->first_slot[views[i].expert];
        int32_t n = s->first_slot[views[i].expert + 1] - slot;
        jobs[2 * i] = expert_job(w, &views[i], PART_GATE, &s->gathered, slot, s->hidden.f,
                                 s->hidden.f_stride, n);
        jobs[2 * i + 1] =
            expert_job(w, &views[i], PART_UP, &s->gathered, slot, s->up, s->hidden.f_stride, n);
        n_slot += n;
    }
    linear_run(e, jobs, 2 * n_view);
    pool_run(e->pool, expert_activate_task, &f, n_slot);
    for (int32_t i = 0; i < n_view; i++) {
        int32_t slot = s->first_slot[views[i].expert];
        jobs[i] = expert_job(w, &views[i], PART_DOWN, &s->hidden, slot, s->out,
                             (size_t)e->spec->d_model, s->first_slot[views[i].expert + 1] - slot);
    }
    linear_run(e, jobs, n_view);
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
