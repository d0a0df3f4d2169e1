/* Guessing later layers' experts; see ahead.h. Owns the gates' copies, no other state. */
#include "layers/ahead.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "layers/router.h"

#define GATE_ALIGN_BYTES 64u

/* ---- the gates' copies */

static uint64_t gate_bytes(const spec *s, int32_t layer) {
    const ffn_spec *ffn = &s->layer[layer].ffn;
    uint64_t row_bytes = dtype_row_bytes(DT_Q8, (uint64_t)s->d_model);
    return ffn->kind == FFN_MOE ? round_up((uint64_t)ffn->n_expert * row_bytes, GATE_ALIGN_BYTES)
                                : 0;
}

static uint64_t table_bytes(const spec *s) {
    return round_up((uint64_t)s->n_layer * sizeof(weight), GATE_ALIGN_BYTES);
}

uint64_t ahead_gates_bytes(const spec *s) {
    uint64_t bytes = table_bytes(s);
    for (int32_t l = 0; l < s->n_layer; l++) {
        bytes += gate_bytes(s, l);
    }
    return bytes;
}

typedef struct copy_state {
    const kernels *kernels;
    const scout *scout;
    const ahead_gates *gates;
    float *row; /* [threads][n_col] */
} copy_state;

static void copy_task(void *job, int32_t layer, int32_t thread) {
    const copy_state *c = job;
    const weight *to = &c->gates->gate[layer], *from = &c->scout->layer[layer][ROLE_ROUTER];
    float *row = c->row + (size_t)thread * (size_t)from->n_col;
    char *at = (char *)c->gates->base + ((const char *)to->data - (const char *)c->gates->base);
    for (int32_t r = 0; r < to->n_row; r++) {
        c->kernels->dequant_row[from->type]((const char *)from->data + (size_t)r * from->row_bytes,
                                            from->n_col, row);
        c->kernels->kv_store[KV_Q8](row, from->n_col, at + (size_t)r * to->row_bytes);
    }
}

/* Says where each gate's copy lies. */
static void lay_out(ahead_gates *g, const spec *s, const scout *sc) {
    char *at = (char *)g->base + table_bytes(s);
    g->gate = g->base;
    for (int32_t l = 0; l < s->n_layer; l++) {
        const weight *from = &sc->layer[l][ROLE_ROUTER];
        if (s->layer[l].ffn.kind == FFN_MOE) {
            g->gate[l] = (weight){.data = at,
                                  .type = DT_Q8,
                                  .n_row = from->n_row,
                                  .n_col = from->n_col,
                                  .row_bytes = dtype_row_bytes(DT_Q8, (uint64_t)from->n_col),
                                  .factor = from->factor};
        }
        at += gate_bytes(s, l);
    }
}

int ahead_open(ahead_gates *out, const spec *s, const scout *sc, const kernels *k, pool *p,
               smoe_error *err) {
    *out = (ahead_gates){.bytes = ahead_gates_bytes(s)};
    int rc = mem_map(&out->base, out->bytes, err);
    if (rc != SMOE_OK) {
        *out = (ahead_gates){0};
        return rc;
    }
    /* as the scout, and for the same reason */
    (void)madvise(out->base, (size_t)out->bytes, MADV_HUGEPAGE);
    size_t n_value = (size_t)pool_threads(p) * (size_t)s->d_model;
    copy_state c = {k, sc, out, mem_array(n_value, sizeof(float))};
    if (!c.row) {
        ahead_close(out);
        return err_no_memory(err, n_value * sizeof(float));
    }
    lay_out(out, s, sc);
    pool_run(p, copy_task, &c, s->n_layer);
    free(c.row);
    return SMOE_OK;
}

void ahead_close(ahead_gates *g) {
    mem_unmap(g->base, g->bytes);
    *g = (ahead_gates){0};
}

/* ---- guesses */

typedef struct guess_state {
    const exec *exec;
    const int32_t *layer;
    rows x;
} guess_state;

/* The stream of a token as the layer would see it, in the forms that the gate's copy wants. */
static void norm_row(const guess_state *g, int32_t layer, int32_t tok, int32_t row) {
    const exec *e = g->exec;
    int32_t d = e->spec->d_model;
    float *f = g->x.f + (size_t)row * g->x.f_stride;
    e->kernels->rms_norm(e->s.x + (size_t)tok * (size_t)d,
                         e->scout->layer[layer][ROLE_FFN_NORM].data, (float)e->spec->norm_eps, d,
                         f);
    if (exec_wants_q8(e, DT_Q8)) {
        e->kernels->quantize_act(f, d, g->x.q + (size_t)row * g->x.q_stride);
    }
}

static void norm_task(void *job, int32_t tok, int32_t thread) {
    const guess_state *g = job;
    (void)thread;
    norm_row(g, *g->layer, tok, tok);
}

static void choose(const exec *e, int32_t layer, float *score, int32_t *choice) {
    const ffn_spec *ffn = &e->spec->layer[layer].ffn;
    router_choose(e->kernels, &e->spec->router, score, ffn->n_expert, ffn->n_expert_used,
                  ffn->n_expert_used, choice, e->s.ahead_weight);
}

void moe_guess_begin(const exec *e, const ahead_gates *gates, const int32_t *layer, int32_t n,
                     ahead_jobs *out) {
    guess_state g = {e, layer, e->s.gathered};
    float *score = e->s.ahead_score;
    out->n = n;
    for (int32_t i = 0; i < n; i++) {
        const weight *gate = &gates->gate[layer[i]];
        norm_row(&g, layer[i], 0, i);
        out->layer[i] = layer[i];
        out->job[i] = linear_of(gate, &e->s.gathered, score, (size_t)gate->n_row, 1);
        out->job[i].x_row = i;
        score += gate->n_row;
    }
}

void moe_guess_end(const exec *e, const ahead_jobs *jobs, int32_t *rank, int32_t stride) {
    for (int32_t i = 0; i < jobs->n; i++) {
        choose(e, jobs->layer[i], jobs->job[i].y, rank + i * stride);
    }
}

int32_t moe_guess_union(const exec *e, const ahead_gates *gates, int32_t layer, int32_t n_tok) {
    const scratch *s = &e->s;
    const ffn_spec *ffn = &e->spec->layer[layer].ffn;
    size_t n_expert = (size_t)ffn->n_expert;
    guess_state g = {e, &layer, s->gathered};
    pool_run(e->pool, norm_task, &g, n_tok);
    linear_job route = linear_of(&gates->gate[layer], &s->gathered, s->router, n_expert, n_tok);
    linear_run(e, &route, 1);
    memset(s->is_ahead, 0, n_expert * sizeof *s->is_ahead);
    for (int32_t t = 0; t < n_tok; t++) {
        choose(e, layer, s->router + (size_t)t * n_expert, s->ahead_choice);
        for (int32_t r = 0; r < ffn->n_expert_used; r++) {
            s->is_ahead[s->ahead_choice[r]] = true;
        }
    }
    int32_t n = 0;
    for (int32_t x = 0; x < ffn->n_expert; x++) {
        if (s->is_ahead[x]) {
            s->ahead[n++] = x;
        }
    }
    return n;
}
