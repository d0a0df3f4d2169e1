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
    int32_t n_q;          /* query heads of a task, at most ATTN_QUERIES */
    int32_t tok_per_task; /* at most ATTN_TOKENS */
} attn_state;

enum { ATTN_TOKENS = 4 };

static char *kv_row(const kv_cache *kv, uint64_t offset, int32_t head, int32_t pos, int32_t dim) {
    uint64_t row = (uint64_t)head * (uint64_t)kv->context_tok + (uint64_t)pos;
    return (char *)kv->base +
           (offset + row * kv_row_units(kv->type, dim)) * kv_unit_of(kv->type).bytes;
}

/* Positions at and on, before stop. */
static kv_rows kv_rows_of(const kv_cache *kv, uint64_t offset, int32_t head, int32_t at,
                          int32_t stop, int32_t dim) {
    return (kv_rows){kv_row(kv, offset, head, at, dim), kv_row_units(kv->type, dim), stop - at,
                     dim};
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

/* One token's query heads that share a head of the cache. */
typedef struct attn_group {
    const kv_cache *kv;
    const float *q; /* [n_q][head_dim] */
    float *out;     /* [n_q][v_head_dim] */
    int32_t first;  /* positions first .. end - 1 are seen */
    int32_t end;
    float max[ATTN_QUERIES];
    float sum[ATTN_QUERIES];
} attn_group;

static void group_start(const attn_state *a, int32_t tok, int32_t head, attn_group *g) {
    const exec *e = a->exec;
    int32_t dim = a->spec->head_dim, v_dim = a->spec->v_head_dim;
    g->kv = a->batch->kv[tok];
    g->q = e->s.q + (size_t)tok * (size_t)(a->spec->n_head * dim) + (size_t)head * (size_t)dim;
    g->out = e->s.attn.f + (size_t)tok * e->s.attn.f_stride + (size_t)head * (size_t)v_dim;
    g->end = a->batch->pos[tok] + 1;
    g->first = a->spec->window_tok ? g->end - a->spec->window_tok : 0;
    g->first = g->first > 0 ? g->first : 0;
    for (int32_t j = 0; j < a->n_q; j++) {
        g->max[j] = -HUGE_VALF;
        g->sum[j] = 0;
    }
    memset(g->out, 0, (size_t)(a->n_q * v_dim) * sizeof *g->out);
}

/* Takes in the positions of a tile that the token sees. */
static void group_add_tile(const attn_state *a, attn_group *g, int32_t kv_head, int32_t tile,
                           float *score) {
    const kernels *k = a->exec->kernels;
    const kv_cache *kv = g->kv;
    int32_t dim = a->spec->head_dim, v_dim = a->spec->v_head_dim;
    int32_t at = tile * ATTN_TILE_TOK, stop = at + ATTN_TILE_TOK;
    at = at > g->first ? at : g->first;
    stop = stop < g->end ? stop : g->end;
    if (at >= stop) {
        return;
    }
    kv_rows keys = kv_rows_of(kv, kv->k_offset[a->layer], kv_head, at, stop, dim);
    kv_rows values = kv_rows_of(kv, kv->v_offset[a->layer], kv_head, at, stop, v_dim);
    k->kv_dot[kv->type](g->q, a->n_q, &keys, (float)a->spec->scale, score, ATTN_TILE_TOK);
    for (int32_t j = 0; j < a->n_q; j++) {
        float *row = score + j * ATTN_TILE_TOK;
        float tile_max = k->max_of(row, stop - at);
        if (tile_max > g->max[j]) {
            float *out = g->out + (size_t)j * (size_t)v_dim;
            float shrink = expf(g->max[j] - tile_max); /* 0 at the first tile */
            g->max[j] = tile_max;
            g->sum[j] *= shrink;
            for (int32_t c = 0; c < v_dim; c++) {
                out[c] *= shrink;
            }
        }
        g->sum[j] += k->exp_sum(row, g->max[j], stop - at);
    }
    k->kv_mix[kv->type](score, ATTN_TILE_TOK, a->n_q, &values, g->out);
}

/* A few tokens and the query heads of one head of the cache, or some of them: a tile of the cache
 * is read once for all of them. */
static void attend_task(void *job, int32_t task, int32_t thread) {
    const attn_state *a = job;
    float *score = a->exec->s.score + (size_t)thread * ATTN_QUERIES * ATTN_TILE_TOK;
    int32_t n_piece = a->spec->n_head / a->n_q, v_dim = a->spec->v_head_dim;
    int32_t head = task % n_piece * a->n_q, tok = task / n_piece * a->tok_per_task;
    int32_t kv_head = head / (a->spec->n_head / a->spec->n_kv_head);
    int32_t n_tok =
        a->batch->n_tok - tok < a->tok_per_task ? a->batch->n_tok - tok : a->tok_per_task;
    attn_group group[ATTN_TOKENS];
    int32_t first = INT32_MAX, end = 0;
    for (int32_t t = 0; t < n_tok; t++) {
        group_start(a, tok + t, head, &group[t]);
        first = group[t].first < first ? group[t].first : first;
        end = group[t].end > end ? group[t].end : end;
    }
    for (int32_t tile = first / ATTN_TILE_TOK; tile * ATTN_TILE_TOK < end; tile++) {
        for (int32_t t = 0; t < n_tok; t++) {
            group_add_tile(a, &group[t], kv_head, tile, score);
        }
    }
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t j = 0; j < a->n_q; j++) {
            float scale = 1.0f / group[t].sum[j];
            for (int32_t c = 0; c < v_dim; c++) {
                group[t].out[j * v_dim + c] *= scale;
            }
        }
    }
}

/* Query heads of a task: as many of those that share a head of the cache as leave enough tasks. */
static int32_t heads_per_task(const attn_state *a, int64_t enough) {
    int32_t n_head = a->spec->n_head, shared = n_head / a->spec->n_kv_head;
    for (int32_t n = shared < ATTN_QUERIES ? shared : ATTN_QUERIES; n > 1; n--) {
        if (shared % n == 0 && (int64_t)a->batch->n_tok * n_head / n >= enough) {
            return n;
        }
    }
    return 1;
}

/* Cuts the work so that every thread has some: how many tokens and query heads make a task. */
static void attend(attn_state *a, const exec *e) {
    int32_t n_tok = a->batch->n_tok;
    int64_t enough = 2 * (int64_t)pool_threads(e->pool);
    a->tok_per_task = n_tok / ATTN_TOKENS * a->spec->n_kv_head >= enough ? ATTN_TOKENS : 1;
    a->n_q = heads_per_task(a, enough);
    int32_t n_block = (n_tok + a->tok_per_task - 1) / a->tok_per_task;
    pool_run(e->pool, attend_task, a, n_block * (a->spec->n_head / a->n_q));
}

void attention_gqa(const exec *e, int32_t layer, const batch *b) {
    const scratch *s = &e->s;
    const weight *w = e->scout->layer[layer];
    attn_state a = {
        .exec = e, .spec = &e->spec->layer[layer].attn, .w = w, .batch = b, .layer = layer};
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
    attend(&a, e);
    if (exec_wants_q8(e, w[ROLE_ATTN_O].type)) {
        rows_quantize(e, &s->attn, n, w[ROLE_ATTN_O].n_col);
    }
    linear_job o = linear_of(&w[ROLE_ATTN_O], &s->attn, s->out, (size_t)e->spec->d_model, n);
    linear_run(e, &o, 1);
    add_bias(e, s->out, (size_t)e->spec->d_model, &w[ROLE_ATTN_O_BIAS], n);
    residual_add(e, n);
}
