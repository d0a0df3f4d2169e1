/* Scratch layout; see scratch.h. One function walks the layout twice: to measure, then to place. */
#include "layers/scratch.h"

#include "layers/attention.h"

#define SCRATCH_ALIGN_BYTES 64u
#define LOGIT_ROWS          8 /* rows of logits computed at once when every row is wanted */

typedef struct placer {
    char *base; /* NULL while measuring */
    uint64_t at_bytes;
} placer;

static void *take(placer *p, int64_t n, size_t size) {
    void *at = p->base ? p->base + p->at_bytes : NULL;
    p->at_bytes += round_up((uint64_t)n * size, SCRATCH_ALIGN_BYTES);
    return at;
}

/* Floats too lie a cache line further from row to row than they need, see act_row_stride. */
static rows take_rows(placer *p, int64_t n, int32_t width, bool with_q8) {
    rows r = {.f_stride = (size_t)round_up((uint64_t)width, 16) + 16,
              .q_stride = act_row_stride(width)};
    r.f = take(p, n * (int64_t)r.f_stride, sizeof *r.f);
    r.q = with_q8 ? take(p, n * (int64_t)r.q_stride, sizeof *r.q) : NULL;
    return r;
}

typedef struct widths {
    int32_t q, k, v, attn;
    int32_t head;         /* a query and the sum of its values */
    int32_t expert;       /* of experts */
    int32_t wide, shared; /* of dense and shared FFNs; of the shared alone */
    int32_t n_expert, n_used;
} widths;

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static widths widths_of(const spec *s) {
    widths w = {.n_expert = 1, .n_used = 1};
    for (int32_t l = 0; l < s->n_layer; l++) {
        const attn_spec *a = &s->layer[l].attn;
        const ffn_spec *f = &s->layer[l].ffn;
        w.q = larger(w.q, a->n_head * a->head_dim);
        w.k = larger(w.k, a->n_kv_head * a->head_dim);
        w.v = larger(w.v, a->n_kv_head * a->v_head_dim);
        w.attn = larger(w.attn, a->n_head * a->v_head_dim);
        w.head = larger(w.head, a->head_dim + a->v_head_dim);
        w.shared = larger(w.shared, f->shared_width);
        w.wide = larger(w.wide, f->kind == FFN_DENSE ? f->width : f->shared_width);
        if (f->kind == FFN_MOE) {
            w.expert = larger(w.expert, f->width);
            w.n_expert = larger(w.n_expert, f->n_expert);
            w.n_used = larger(w.n_used, f->n_expert_used);
        }
    }
    return w;
}

/* Hidden values of the experts' slots and those of dense and shared FFNs are never needed at the
 * same time, so they share their memory. */
static void take_hidden(scratch *s, placer *p, const widths *w, const scratch_config *c) {
    int64_t slots = (int64_t)c->max_tok * w->n_used;
    placer narrow = *p, wide = *p;
    s->hidden = take_rows(&narrow, slots, w->expert, !c->reference);
    s->wide = take_rows(&wide, c->max_tok, w->wide, !c->reference);
    p->at_bytes = narrow.at_bytes > wide.at_bytes ? narrow.at_bytes : wide.at_bytes;
    int64_t up_narrow = slots * (int64_t)s->hidden.f_stride;
    int64_t up_wide = c->max_tok * (int64_t)s->wide.f_stride;
    s->up = take(p, up_narrow > up_wide ? up_narrow : up_wide, sizeof(float));
    int64_t shared = w->shared ? (int64_t)c->max_tok * c->spec->d_model : 0;
    s->shared = take(p, shared, sizeof(float));
    s->shared = shared ? s->shared : NULL;
}

static void lay_out(scratch *s, placer *p, const scratch_config *c) {
    const spec *m = c->spec;
    widths w = widths_of(m);
    int64_t tok = c->max_tok;
    int64_t slots = tok * w.n_used;
    bool q8 = !c->reference;
    int64_t rope_half = 0;
    for (int32_t r = 0; r < m->n_rope; r++) {
        rope_half = larger((int32_t)rope_half, m->rope[r].dim / 2);
    }
    s->max_tok = c->max_tok;
    s->max_slot = (int32_t)slots;
    s->logit_rows = tok < LOGIT_ROWS ? (int32_t)tok : LOGIT_ROWS;
    s->x = take(p, tok * m->d_model, sizeof(float));
    s->norm = take_rows(p, tok, m->d_model, q8);
    s->attn = take_rows(p, tok, w.attn, q8);
    take_hidden(s, p, &w, c);
    s->gathered = take_rows(p, slots > AHEAD_LAYERS ? slots : AHEAD_LAYERS, m->d_model, q8);
    s->q = take(p, tok * w.q, sizeof(float));
    s->k = take(p, tok * w.k, sizeof(float));
    s->v = take(p, tok * w.v, sizeof(float));
    s->out = take(p, slots * m->d_model, sizeof(float));
    s->rope_cos = take(p, m->n_rope * tok * rope_half, sizeof(float));
    s->rope_sin = take(p, m->n_rope * tok * rope_half, sizeof(float));
    s->attend_stride = (size_t)ATTN_QUERIES * (size_t)(ATTN_TILE_TOK + w.head);
    s->attend = take(p, (int64_t)c->n_thread * (int64_t)s->attend_stride, sizeof(float));
    s->router = take(p, tok * w.n_expert, sizeof(float));
    s->weight = take(p, slots, sizeof(float));
    s->choice = take(p, tok * (w.n_used + c->spec_ranks), sizeof(int32_t));
    s->slot = take(p, slots, sizeof(int32_t));
    s->token_of_slot = take(p, slots, sizeof(int32_t));
    s->first_slot = take(p, (int64_t)w.n_expert + 1, sizeof(int32_t));
    s->needed = take(p, w.n_expert, sizeof(int32_t));
    s->ahead = take(p, w.n_expert, sizeof(int32_t));
    s->is_ahead = take(p, w.n_expert, sizeof(bool));
    s->ahead_choice = take(p, w.n_used, sizeof(int32_t));
    s->ahead_weight = take(p, w.n_used, sizeof(float));
    s->ahead_score = take(p, AHEAD_LAYERS * (int64_t)w.n_expert, sizeof(float));
    s->logits = take(p, (int64_t)s->logit_rows * m->vocab_size, sizeof(float));
    s->head_in = take_rows(p, s->logit_rows, m->d_model, q8);
    s->pos = take(p, tok, sizeof(int32_t));
    s->kv = take(p, tok, sizeof(void *));
}

uint64_t scratch_size(const scratch_config *config) {
    scratch s;
    placer p = {0};
    lay_out(&s, &p, config);
    return p.at_bytes;
}

int scratch_map(scratch *out, const scratch_config *config, smoe_error *err) {
    *out = (scratch){.bytes = scratch_size(config)};
    int rc = mem_map(&out->base, out->bytes, err);
    if (rc == SMOE_OK) {
        placer p = {.base = out->base};
        lay_out(out, &p, config);
    }
    return rc;
}

void scratch_unmap(scratch *s) {
    mem_unmap(s->base, s->bytes);
    *s = (scratch){0};
}
