/* Grouped-query attention; see attention.h.
 *
 * The softmax runs over fixed tiles of positions with a running maximum (online softmax, Milakov
 * and Gimelshein 2018, arXiv 1805.02867). Tiles start at multiples of ATTN_TILE_TOK counted from
 * position 0, whatever the batch.
 */
#include "layers/attention.h"

#include <math.h>
#include <string.h>

#include "layers/residual.h"
#include "layers/rope.h"

typedef struct attn_state {
    const exec *exec;
    const attn_spec *spec;
    const weight *w; /* the layer's, by role */
    const batch *batch;
    int32_t layer;
} attn_state;

static size_t kv_size(enum kv_type type) {
    return type == KV_F16 ? 2 : 4;
}

static char *kv_row(const kv_cache *kv, uint64_t offset, int32_t head, int32_t pos, int32_t dim) {
    uint64_t row = (uint64_t)head * (uint64_t)kv->context_tok + (uint64_t)pos;
    return (char *)kv->base + (offset + row * (uint64_t)dim) * kv_size(kv->type);
}

/* Norms what the layer norms of n_head heads of q or k: each head, all together, or nothing. */
static void norm_heads(const attn_state *a, const weight *norm, int32_t n_head, float *heads) {
    const kernels *k = a->exec->kernels;
    float eps = (float)a->exec->spec->norm_eps;
    int32_t dim = a->spec->head_dim;
    if (a->spec->qk_norm == QK_NORM_WHOLE) {
        k->rms_norm(heads, norm->data, eps, n_head * dim, heads);
    }
    for (int32_t h = 0; a->spec->qk_norm == QK_NORM_HEAD && h < n_head; h++) {
        float *head = heads + (size_t)h * (size_t)dim;
        k->rms_norm(head, norm->data, eps, dim, head);
    }
}

/* As the reference implementation does, but that NaN stays. */
static void clip_heads(const attn_spec *a, int32_t n, float *x) {
    float limit = (float)a->clip;
    for (int32_t i = 0; a->clip > 0 && i < n; i++) {
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
    }
}

/* Norms, clips and rotates the heads of one token, then stores its keys and values. */
static void position_task(void *job, int32_t tok, int32_t thread) {
    const attn_state *a = job;
    const exec *e = a->exec;
    const kernels *k = e->kernels;
    (void)thread;
    int32_t dim = a->spec->head_dim;
    float *q = e->s.q + (size_t)tok * (size_t)(a->spec->n_head * dim);
    float *key = e->s.k + (size_t)tok * (size_t)(a->spec->n_kv_head * dim);
    float *value = e->s.v + (size_t)tok * (size_t)(a->spec->n_kv_head * a->spec->v_head_dim);
    const kv_cache *kv = a->batch->kv[tok];
    int32_t pos = a->batch->pos[tok];
    norm_heads(a, &a->w[ROLE_ATTN_Q_NORM], a->spec->n_head, q);
    norm_heads(a, &a->w[ROLE_ATTN_K_NORM], a->spec->n_kv_head, key);
    clip_heads(a->spec, a->spec->n_head * dim, q);
    clip_heads(a->spec, a->spec->n_kv_head * dim, key);
    clip_heads(a->spec, a->spec->n_kv_head * a->spec->v_head_dim, value);
    for (int32_t h = 0; h < a->spec->n_head; h++) {
        rope_apply(e, a->spec->rope, tok, q + (size_t)h * (size_t)dim);
    }
    for (int32_t h = 0; h < a->spec->n_kv_head; h++) {
        float *head = key + (size_t)h * (size_t)dim;
        rope_apply(e, a->spec->rope, tok, head);
        k->kv_store[kv->type](head, dim, kv_row(kv, kv->k_offset[a->layer], h, pos, dim));
        int32_t v_dim = a->spec->v_head_dim;
        k->kv_store[kv->type](value + (size_t)h * (size_t)v_dim, v_dim,
                              kv_row(kv, kv->v_offset[a->layer], h, pos, v_dim));
    }
}

/* Attention of one query head over positions first .. pos of its sequence. */
static void attend(const attn_state *a, int32_t tok, int32_t head, float *score) {
    const exec *e = a->exec;
    const kernels *k = e->kernels;
    const kv_cache *kv = a->batch->kv[tok];
    int32_t dim = a->spec->head_dim, v_dim = a->spec->v_head_dim;
    int32_t kv_head = head / (a->spec->n_head / a->spec->n_kv_head);
    int32_t end = a->batch->pos[tok] + 1;
    int32_t first = a->spec->window_tok ? end - a->spec->window_tok : 0;
    first = first > 0 ? first : 0;
    const float *q =
        e->s.q + (size_t)tok * (size_t)(a->spec->n_head * dim) + (size_t)head * (size_t)dim;
    float *out = e->s.attn.f + (size_t)tok * e->s.attn.f_stride + (size_t)head * (size_t)v_dim;
    float max = -HUGE_VALF;
    float sum = 0;
    memset(out, 0, (size_t)v_dim * sizeof *out);
    for (int32_t at = first; at < end;) {
        int32_t stop = (at / ATTN_TILE_TOK + 1) * ATTN_TILE_TOK;
        int32_t n = (stop < end ? stop : end) - at;
        k->kv_dot[kv->type](q, kv_row(kv, kv->k_offset[a->layer], kv_head, at, dim), (size_t)dim, n,
                            dim, (float)a->spec->scale, score);
        float tile_max = score[0];
        for (int32_t i = 1; i < n; i++) {
            tile_max = score[i] > tile_max ? score[i] : tile_max;
        }
        if (tile_max > max) {
            float shrink = expf(max - tile_max); /* 0 at the first tile */
            max = tile_max;
            sum *= shrink;
            for (int32_t c = 0; c < v_dim; c++) {
                out[c] *= shrink;
            }
        }
        sum += k->exp_sum(score, max, n);
        k->kv_mix[kv->type](score, kv_row(kv, kv->v_offset[a->layer], kv_head, at, v_dim),
                            (size_t)v_dim, n, v_dim, out);
        at += n;
    }
    float scale = 1.0f / sum;
    for (int32_t c = 0; c < v_dim; c++) {
        out[c] *= scale;
    }
}

static void attend_task(void *job, int32_t task, int32_t thread) {
    const attn_state *a = job;
    float *score = a->exec->s.score + (size_t)thread * ATTN_TILE_TOK;
    attend(a, task / a->spec->n_head, task % a->spec->n_head, score);
}

void attention_gqa(const exec *e, int32_t layer, const batch *b) {
    const scratch *s = &e->s;
    const weight *w = e->scout->layer[layer];
    attn_state a = {e, &e->spec->layer[layer].attn, w, b, layer};
    int32_t n = b->n_tok;
    size_t q_width = (size_t)w[ROLE_ATTN_Q].n_row;
    size_t k_width = (size_t)w[ROLE_ATTN_K].n_row;
    size_t v_width = (size_t)w[ROLE_ATTN_V].n_row;
    residual_norm(e, &w[ROLE_ATTN_NORM], n);
    if (exec_wants_q8(e, w[ROLE_ATTN_Q].type) || exec_wants_q8(e, w[ROLE_ATTN_K].type) ||
        exec_wants_q8(e, w[ROLE_ATTN_V].type)) {
        rows_quantize(e, &s->norm, n, e->spec->d_model);
    }
    linear_job qkv[3] = {linear_of(&w[ROLE_ATTN_Q], &s->norm, s->q, q_width, n),
                         linear_of(&w[ROLE_ATTN_K], &s->norm, s->k, k_width, n),
                         linear_of(&w[ROLE_ATTN_V], &s->norm, s->v, v_width, n)};
    linear_run(e, qkv, 3);
    add_bias(e, s->q, q_width, &w[ROLE_ATTN_Q_BIAS], n);
    add_bias(e, s->k, k_width, &w[ROLE_ATTN_K_BIAS], n);
    add_bias(e, s->v, v_width, &w[ROLE_ATTN_V_BIAS], n);
    pool_run(e->pool, position_task, &a, n);
    pool_run(e->pool, attend_task, &a, n * a.spec->n_head);
    if (exec_wants_q8(e, w[ROLE_ATTN_O].type)) {
        rows_quantize(e, &s->attn, n, w[ROLE_ATTN_O].n_col);
    }
    linear_job o = linear_of(&w[ROLE_ATTN_O], &s->attn, s->out, (size_t)e->spec->d_model, n);
    linear_run(e, &o, 1);
    add_bias(e, s->out, (size_t)e->spec->d_model, &w[ROLE_ATTN_O_BIAS], n);
    residual_add(e, n);
}
