/* The forward pass: a batch of tokens through the layers, layer by layer.
 *
 * This is the only place where arithmetic and streaming meet. It knows layer kinds, never model
 * families, and never allocates.
 */
#include "conductor/model.h"
#include "layers/attention.h"
#include "layers/ffn.h"
#include "layers/next.h"
#include "layers/residual.h"
#include "layers/rope.h"

static int check_cancelled(const atomic_bool *cancelled, smoe_error *err) {
    if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed)) {
        return err_set(err, SMOE_ERR_CANCELLED, "cancelled");
    }
    return SMOE_OK;
}

static void embed(smoe_model *m, const batch *b) {
    const exec *e = &m->exec;
    const weight *w = &m->scout.global[ROLE_EMBED];
    size_t d = (size_t)e->spec->d_model;
    for (int32_t t = 0; t < b->n_tok; t++) {
        float *x = e->s.x + (size_t)t * d;
        e->kernels->dequant_row[w->type]((const char *)w->data + (size_t)b->id[t] * w->row_bytes,
                                         w->n_col, x);
        if (e->spec->embed_scale != 1) {
            for (size_t c = 0; c < d; c++) {
                x[c] *= (float)e->spec->embed_scale;
            }
        }
    }
}

static int32_t ranks_of(const smoe_model *m, const ffn_spec *ffn) {
    int32_t n = ffn->n_expert_used + m->exec.spec_ranks;
    return n < ffn->n_expert ? n : ffn->n_expert;
}

/* Tells the cache what the router chose, and how it scored every expert for the last token. */
static void tell_routing(smoe_model *m, const ffn_spec *ffn, int32_t n_tok) {
    const scratch *s = &m->exec.s;
    routing r = {.moe_index = ffn->moe_index,
                 .n_tok = n_tok,
                 .choice = s->choice,
                 .stride = ranks_of(m, ffn),
                 .n_used = ffn->n_expert_used};
    const float *score = s->router + (size_t)(n_tok - 1) * (size_t)ffn->n_expert;
    streamer_route(m->streamer, &r, score, m->exec.spec->router.score == ROUTER_SOFTMAX_SELECTED);
}

/* The gate's next ranks, read ahead for the token after this one. Only in decode: in a prefill
 * chunk nearly every expert is needed anyway. */
static void bet_next_ranks(smoe_model *m, const ffn_spec *ffn, int32_t n_tok) {
    int32_t n_rank = ranks_of(m, ffn);
    if (n_tok == 1 && n_rank > ffn->n_expert_used) {
        streamer_bet(m->streamer, ffn->moe_index, m->exec.s.choice + ffn->n_expert_used,
                     n_rank - ffn->n_expert_used);
    }
}

static int moe_block(smoe_model *m, int32_t layer, int32_t n_tok, const atomic_bool *cancelled,
                     smoe_error *err) {
    const exec *e = &m->exec;
    const ffn_spec *ffn = &e->spec->layer[layer].ffn;
    streamer_item items[MOE_VIEWS_MAX];
    expert_view views[MOE_VIEWS_MAX];
    lookahead_begin(m, layer, n_tok);
    int32_t n_needed = moe_route(e, layer, n_tok, m->ahead.jobs.job, m->ahead.jobs.n);
    lookahead_judge(m, layer, n_needed);
    tell_routing(m, ffn, n_tok);
    streamer_demand(m->streamer, ffn->moe_index, e->s.needed, n_needed);
    bet_next_ranks(m, ffn, n_tok);
    lookahead_guess(m, layer, n_tok);
    moe_shared(e, layer, n_tok);
    for (;;) {
        int32_t n = 0;
        int rc = check_cancelled(cancelled, err);
        if (rc == SMOE_OK) {
            rc = streamer_next(m->streamer, items, MOE_VIEWS_MAX, &n, err);
        }
        if (rc != SMOE_OK) {
            streamer_abandon(m->streamer);
            return rc;
        }
        if (n == 0) {
            break;
        }
        for (int32_t i = 0; i < n; i++) {
            views[i] = (expert_view){
                items[i].expert,
                source_expert(m->source, ffn->moe_index, items[i].expert),
                {items[i].part[PART_GATE], items[i].part[PART_UP], items[i].part[PART_DOWN]}};
        }
        moe_compute(e, layer, n_tok, views, n);
        for (int32_t i = 0; i < n; i++) {
            streamer_release(m->streamer, &items[i]);
        }
    }
    moe_combine(e, layer, n_tok);
    return SMOE_OK;
}

int forward_layers(smoe_model *m, const batch *b, const atomic_bool *cancelled, smoe_error *err) {
    const exec *e = &m->exec;
    embed(m, b);
    rope_prepare(e, b->pos, b->n_tok);
    for (int32_t l = 0; l < e->spec->n_layer; l++) {
        int rc = check_cancelled(cancelled, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        streamer_poll(m->streamer);
        attention_gqa(e, l, b);
        streamer_poll(m->streamer);
        if (e->spec->layer[l].ffn.kind == FFN_MOE) {
            rc = moe_block(m, l, b->n_tok, cancelled, err);
        } else {
            ffn_dense(e, l, b->n_tok);
        }
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return SMOE_OK;
}

void forward_head(smoe_model *m, int32_t first, int32_t n, float *logits) {
    const exec *e = &m->exec;
    const spec *s = e->spec;
    const weight *w = &m->scout.global[ROLE_HEAD];
    for (int32_t i = 0; i < n; i++) {
        e->kernels->rms_norm(e->s.x + (size_t)(first + i) * (size_t)s->d_model,
                             m->scout.global[ROLE_OUT_NORM].data, (float)s->norm_eps, s->d_model,
                             e->s.head_in.f + (size_t)i * e->s.head_in.f_stride);
    }
    if (exec_wants_q8(e, w->type)) {
        rows_quantize(e, &e->s.head_in, n, s->d_model);
    }
    linear_job job = linear_of(w, &e->s.head_in, logits, (size_t)s->vocab_size, n);
    next_is_layer(e, 0, n);
    linear_run(e, &job, 1);
    if (s->logit_scale != 1) {
        for (size_t i = 0; i < (size_t)n * (size_t)s->vocab_size; i++) {
            logits[i] *= (float)s->logit_scale;
        }
    }
}
