/* Grouped-query attention; see attention.h.
 *
 * The softmax runs over fixed tiles of positions with a running maximum (online softmax, Milakov
 * and Gimelshein 2018, arXiv 1805.02867). Tiles start at multiples of ATTN_TILE_TOK counted from
 * position 0, whatever the batch.
 */
#include "layers/attention.h"

#include <math.h>
#include <string.h>

#include "layers/next.h"
#include "layers/residual.h"
#include "layers/rope.h"

typedef struct attn_state {
    const exec *exec;
    const attn_spec *spec;
    const weight *w; /* the layer's, by role */
    const batch *batch;
    int32_t layer;
    int32_t n_q;          /* query heads of a task */
    int32_t tok_per_task; /* n_q times that is at most ATTN_QUERIES */
    int32_t n_block;      /* tasks that share query heads, one after the other */
} attn_state;

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

/* Tokens of one sequence and their query heads that share a head of the cache: each token has n_q
 * queries, one after the other. What several tokens see of a tile is multiplied with the queries of
 * all; the sums of each query go over its positions in order either way. */
typedef struct attn_block {
    const attn_state *a;
    const kv_cache *kv;
    int32_t tok, n_tok; /* of the batch */
    int32_t head, kv_head;
    float *q;                                   /* [n_tok * n_q][head_dim] */
    float *out;                                 /* [n_tok * n_q][v_head_dim] */
    float *score;                               /* [n_tok * n_q][ATTN_TILE_TOK] */
    int32_t first[ATTN_QUERIES];                /* [n_tok]: positions first .. end - 1 are seen */
    int32_t end[ATTN_QUERIES];                  /* [n_tok] */
    float max[ATTN_QUERIES], sum[ATTN_QUERIES]; /* [n_tok * n_q] */
} attn_block;

/* Positions that some token sees, and those that all do, which may be none. */
typedef struct attn_span {
    int32_t first, end;
    int32_t all_first, all_end;
} attn_span;

static void block_start(attn_block *b, float *work) {
    const attn_state *a = b->a;
    const exec *e = a->exec;
    size_t dim = (size_t)a->spec->head_dim, v_dim = (size_t)a->spec->v_head_dim;
    size_t n_q = (size_t)a->n_q, n = n_q * (size_t)b->n_tok;
    b->score = work;
    b->q = b->score + (size_t)ATTN_QUERIES * ATTN_TILE_TOK;
    b->out = b->q + n * dim;
    for (int32_t t = 0; t < b->n_tok; t++) {
        size_t tok = (size_t)(b->tok + t);
        const float *q = e->s.q + (tok * (size_t)a->spec->n_head + (size_t)b->head) * dim;
        memcpy(b->q + (size_t)t * n_q * dim, q, n_q * dim * sizeof *q);
        int32_t end = a->batch->pos[tok] + 1;
        b->end[t] = end;
        b->first[t] =
            a->spec->window_tok && end > a->spec->window_tok ? end - a->spec->window_tok : 0;
    }
    for (size_t j = 0; j < n; j++) {
        b->max[j] = -HUGE_VALF;
        b->sum[j] = 0;
    }
    memset(b->out, 0, n * v_dim * sizeof *b->out);
}

/* The first position from `from` on that token t sees, and the end before `to` of those. */
static int32_t first_seen(const attn_block *b, int32_t t, int32_t from) {
    return b->first[t] > from ? b->first[t] : from;
}

static int32_t end_seen(const attn_block *b, int32_t t, int32_t to) {
    return b->end[t] < to ? b->end[t] : to;
}

/* What the tokens see between two positions. */
static attn_span block_span(const attn_block *b, int32_t from, int32_t to) {
    attn_span s = {to, from, from, to};
    for (int32_t t = 0; t < b->n_tok; t++) {
        int32_t first = first_seen(b, t, from), end = end_seen(b, t, to);
        s.first = first < s.first ? first : s.first;
        s.end = end > s.end ? end : s.end;
        s.all_first = first > s.all_first ? first : s.all_first;
        s.all_end = end < s.all_end ? end : s.all_end;
    }
    return s;
}

/* From the scores of the n positions that query j sees of a tile to weights; where the maximum
 * grows, the sums so far shrink. */
static void weigh_query(attn_block *b, int32_t j, float *score, int32_t n) {
    const kernels *k = b->a->exec->kernels;
    float tile_max = k->max_of(score, n);
    if (tile_max > b->max[j]) {
        int32_t v_dim = b->a->spec->v_head_dim;
        float *out = b->out + (size_t)j * (size_t)v_dim;
        float shrink = expf(b->max[j] - tile_max); /* 0 at the first tile */
        b->max[j] = tile_max;
        b->sum[j] *= shrink;
        for (int32_t c = 0; c < v_dim; c++) {
            out[c] *= shrink;
        }
    }
    b->sum[j] += k->exp_sum(score, b->max[j], n);
}

/* Adds positions from .. to - 1 to the sums of queries j .. j + n - 1. */
static void mix_range(attn_block *b, const attn_span *s, int32_t j, int32_t n, int32_t from,
                      int32_t to) {
    if (from >= to) {
        return;
    }
    const attn_state *a = b->a;
    int32_t v_dim = a->spec->v_head_dim;
    kv_rows values = kv_rows_of(b->kv, b->kv->v_offset[a->layer], b->kv_head, from, to, v_dim);
    a->exec->kernels->kv_mix[b->kv->type](b->score + (size_t)j * ATTN_TILE_TOK + (from - s->first),
                                          ATTN_TILE_TOK, n, &values,
                                          b->out + (size_t)j * (size_t)v_dim);
}

/* Takes in the positions of a tile. Scores past what a token sees are computed and never used. */
static void block_add_tile(attn_block *b, int32_t tile) {
    const attn_state *a = b->a;
    int32_t from = tile * ATTN_TILE_TOK, to = from + ATTN_TILE_TOK, n_q = a->n_q;
    attn_span s = block_span(b, from, to);
    if (s.first >= s.end) {
        return;
    }
    kv_rows keys =
        kv_rows_of(b->kv, b->kv->k_offset[a->layer], b->kv_head, s.first, s.end, a->spec->head_dim);
    a->exec->kernels->kv_dot[b->kv->type](b->q, b->n_tok * n_q, &keys, (float)a->spec->scale,
                                          b->score, ATTN_TILE_TOK);
    bool shares = s.all_first < s.all_end;
    for (int32_t t = 0; t < b->n_tok; t++) {
        int32_t first = first_seen(b, t, from), end = end_seen(b, t, to);
        for (int32_t j = t * n_q; j < (t + 1) * n_q && first < end; j++) {
            weigh_query(b, j, b->score + (size_t)j * ATTN_TILE_TOK + (first - s.first),
                        end - first);
        }
        mix_range(b, &s, t * n_q, n_q, first, shares ? s.all_first : end);
    }
    if (!shares) {
        return;
    }
    mix_range(b, &s, 0, b->n_tok * n_q, s.all_first, s.all_end);
    for (int32_t t = 0; t < b->n_tok; t++) {
        mix_range(b, &s, t * n_q, n_q, s.all_end, end_seen(b, t, to));
    }
}

static void block_end(const attn_block *b) {
    const attn_state *a = b->a;
    const rows *to = &a->exec->s.attn;
    int32_t v_dim = a->spec->v_head_dim;
    for (int32_t j = 0; j < b->n_tok * a->n_q; j++) {
        size_t tok = (size_t)(b->tok + j / a->n_q);
        float *out = to->f + tok * to->f_stride + (size_t)(b->head + j % a->n_q) * (size_t)v_dim;
        float scale = 1.0f / b->sum[j];
        for (int32_t c = 0; c < v_dim; c++) {
            out[c] = b->out[(size_t)j * (size_t)v_dim + (size_t)c] * scale;
        }
    }
}

/* A few tokens and the query heads of one head of the cache, or some of them. */
static void attend_task(void *job, int32_t task, int32_t thread) {
    const attn_state *a = job;
    float *work = a->exec->s.attend + (size_t)thread * a->exec->s.attend_stride;
    int32_t head = task / a->n_block * a->n_q, tok = task % a->n_block * a->tok_per_task;
    int32_t stop = tok + a->tok_per_task;
    stop = stop < a->batch->n_tok ? stop : a->batch->n_tok;
    while (tok < stop) {
        attn_block b = {.a = a, .kv = a->batch->kv[tok], .tok = tok, .head = head};
        b.kv_head = head / (a->spec->n_head / a->spec->n_kv_head);
        while (tok < stop && a->batch->kv[tok] == b.kv) {
            tok++;
        }
        b.n_tok = tok - b.tok;
        block_start(&b, work);
        attn_span s = block_span(&b, 0, INT32_MAX);
        for (int32_t tile = s.first / ATTN_TILE_TOK; tile * ATTN_TILE_TOK < s.end; tile++) {
            block_add_tile(&b, tile);
        }
        block_end(&b);
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
    a->n_q = heads_per_task(a, enough);
    int32_t n_piece = a->spec->n_head / a->n_q, most = ATTN_QUERIES / a->n_q;
    int64_t spare = (int64_t)n_tok * n_piece / enough;
    a->tok_per_task = spare < 1 ? 1 : spare < most ? (int32_t)spare : most;
    a->n_block = (n_tok + a->tok_per_task - 1) / a->tok_per_task;
    pool_run(e->pool, attend_task, a, a->n_block * n_piece);
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
    next_is_attention_out(e, layer, n);
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
    next_is_ffn(e, layer, n);
    linear_run(e, &o, 1);
    add_bias(e, s->out, (size_t)e->spec->d_model, &w[ROLE_ATTN_O_BIAS], n);
    residual_add(e, n);
}
