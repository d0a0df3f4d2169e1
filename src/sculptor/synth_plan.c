/* Which tensors a synthetic model has, of what type and with what weights; see synth.h. The reasons
 * for the numbers are in docs/synth.md. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "formats/half.h"
#include "sculptor/synth.h"

/* What all branches of the network add to the variance of the residual stream, which begins with
 * 1: the mixtures together, and the attention blocks if each position saw itself alone. */
#define FFN_VARIANCE  1.0
#define ATTN_VARIANCE 3.0
/* Attention averages over positions: the share of the variance that is left, as measured. */
#define ATTN_LEFT 0.1
/* Standard deviations of q and k, whose product is that of the attention logits. */
#define QK_STD 1.25
/* Of biases, where the architecture has them, beside what they are added to. */
#define BIAS_STD 0.1
/* Of the logits. */
#define LOGIT_STD 4.0
/* E[silu(g)^2] and E[sigmoid(g)^2] of a standard normal g. */
#define SILU_SQUARE    0.355776
#define SIGMOID_SQUARE 0.29338
/* E[(g sigmoid(1.702 g))^2] E[(u + 1)^2] of standard normal g and u: gpt-oss's activation. */
#define OSS_SQUARE 0.843906

enum { ROUTER_DRAWS = 512 };

typedef struct planner {
    synth_plan *p;
    smoe_error *err;
    int rc;
    uint64_t at;         /* end of the last tensor */
    double routed_share; /* of the variance of expert outputs that the router's weights leave */
} planner;

/* ---- tensors */

static uint64_t key_of(const synth_plan *p, const char *name) {
    return XXH3_64bits_withSeed(name, strlen(name), p->seed);
}

static void grow(planner *b) {
    synth_plan *p = b->p;
    if (b->rc != SMOE_OK || p->n_tensor < p->cap_tensor) {
        return;
    }
    int32_t cap = p->cap_tensor ? 2 * p->cap_tensor : 256;
    synth_tensor *grown = mem_array((size_t)cap, sizeof *grown);
    if (!grown) {
        b->rc = err_no_memory(b->err, (uint64_t)cap * sizeof *grown);
        return;
    }
    if (p->n_tensor > 0) {
        memcpy(grown, p->tensor, (size_t)p->n_tensor * sizeof *grown);
    }
    free(p->tensor);
    p->tensor = grown;
    p->cap_tensor = cap;
}

/* A tensor of slices of rows; n_slice 0: a matrix; n_row 0 as well: a vector. */
static synth_tensor *add(planner *b, dtype type, int64_t n_col, int64_t n_row, int64_t n_slice,
                         double std, const char *format, ...) __attribute__((format(printf, 7, 8)));
static synth_tensor *add(planner *b, dtype type, int64_t n_col, int64_t n_row, int64_t n_slice,
                         double std, const char *format, ...) {
    static synth_tensor spare; /* written to after a failure only */
    va_list args;
    grow(b);
    synth_tensor *t = b->rc == SMOE_OK ? &b->p->tensor[b->p->n_tensor++] : &spare;
    *t = (synth_tensor){.rank = n_slice ? 3
                                : n_row ? 2
                                        : 1,
                        .n_col = n_col,
                        .n_row = n_row ? n_row : 1,
                        .n_slice = n_slice ? n_slice : 1};
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    type = synth_dividing_type(type, (int32_t)n_col);
    synth_fill_init(&t->fill, type, key_of(b->p, t->name), std);
    t->row_bytes = dtype_row_bytes(type, (uint64_t)n_col);
    t->bytes = t->row_bytes * (uint64_t)(t->n_row * t->n_slice);
    t->offset = round_up(b->at, SYNTH_ALIGNMENT);
    b->at = t->offset + t->bytes;
    return t;
}

static synth_tensor *add_norm(planner *b, int32_t layer, const char *name, int64_t n,
                              double scale) {
    synth_tensor *t = layer < 0 ? add(b, DT_F32, n, 0, 0, scale, "%s.weight", name)
                                : add(b, DT_F32, n, 0, 0, scale, "blk.%d.%s.weight", layer, name);
    t->kind = SYNTH_NORM;
    return t;
}

/* The type of what is no expert: attention, and in any file that is not of floats Q8_0. */
static dtype dense_type(dtype type) {
    return type == DT_F16 || type == DT_BF16 ? type : DT_Q8_0;
}

static synth_tensor *add_matrix(planner *b, dtype type, int32_t layer, const char *name,
                                int64_t n_col, int64_t n_row, double gain) {
    return add(b, type, n_col, n_row, 0, gain / sqrt((double)n_col), "blk.%d.%s.weight", layer,
               name);
}

/* No block writes to the edge columns of the residual stream, so that they stay what the embeddings
 * put there. */
static void keep_edge(synth_tensor *t) {
    t->zero_to = SYNTH_EDGE;
}

static void add_attention(planner *b, int32_t layer) {
    const synth_shape *s = &b->p->shape;
    dtype type = dense_type(b->p->type);
    int64_t d = s->d_model, q = (int64_t)s->n_head * s->head_dim,
            kv = (int64_t)s->n_kv_head * s->head_dim;
    bool normed = s->qk_norm != SYNTH_QK_PLAIN;
    double gain = normed ? 1 : QK_STD;
    add_norm(b, layer, "attn_norm", d, 1);
    add_matrix(b, type, layer, "attn_q", d, q, gain);
    add_matrix(b, type, layer, "attn_k", d, kv, gain);
    add_matrix(b, type, layer, "attn_v", d, kv, 1);
    if (s->qkv_bias) {
        add(b, DT_F32, q, 0, 0, BIAS_STD, "blk.%d.attn_q.bias", layer);
        add(b, DT_F32, kv, 0, 0, BIAS_STD, "blk.%d.attn_k.bias", layer);
        add(b, DT_F32, kv, 0, 0, BIAS_STD, "blk.%d.attn_v.bias", layer);
    }
    if (s->is_oss) {
        double std = BIAS_STD * sqrt(ATTN_VARIANCE / s->n_layer);
        add(b, DT_F32, d, 0, 0, std, "blk.%d.attn_output.bias", layer)->edge = SYNTH_EDGE_ZERO;
        add(b, DT_F32, s->n_head, 0, 0, 1, "blk.%d.attn_sinks.weight", layer);
    }
    if (normed) {
        bool whole = s->qk_norm == SYNTH_QK_WHOLE;
        add_norm(b, layer, "attn_q_norm", whole ? q : s->head_dim, QK_STD);
        add_norm(b, layer, "attn_k_norm", whole ? kv : s->head_dim, QK_STD);
    }
    keep_edge(add_matrix(b, type, layer, "attn_output", q, d, sqrt(ATTN_VARIANCE / s->n_layer)));
}

/* gate, up and down of a dense network whose output has this variance. */
static void add_dense(planner *b, int32_t layer, const char *suffix, int64_t width,
                      double variance) {
    int64_t d = b->p->shape.d_model;
    double gain = sqrt(variance / SILU_SQUARE);
    char name[32];
    snprintf(name, sizeof name, "ffn_gate%s", suffix);
    add_matrix(b, b->p->type, layer, name, d, width, 1);
    snprintf(name, sizeof name, "ffn_up%s", suffix);
    add_matrix(b, b->p->type, layer, name, d, width, 1);
    snprintf(name, sizeof name, "ffn_down%s", suffix);
    keep_edge(add_matrix(b, b->p->type, layer, name, width, d, gain));
}

static void add_expert_biases(planner *b, int32_t layer, double variance) {
    const synth_shape *s = &b->p->shape;
    int64_t n = s->n_expert;
    double std = BIAS_STD * sqrt(variance);
    add(b, DT_F32, n, 0, 0, BIAS_STD, "blk.%d.ffn_gate_inp.bias", layer);
    add(b, DT_F32, s->expert_width, n, 0, BIAS_STD, "blk.%d.ffn_gate_exps.bias", layer);
    add(b, DT_F32, s->expert_width, n, 0, BIAS_STD, "blk.%d.ffn_up_exps.bias", layer);
    add(b, DT_F32, s->d_model, n, 0, std, "blk.%d.ffn_down_exps.bias", layer)->edge =
        SYNTH_EDGE_ZERO;
}

static void add_experts(planner *b, int32_t layer, double variance) {
    const synth_shape *s = &b->p->shape;
    int64_t d = s->d_model, w = s->expert_width, n = s->n_expert;
    double in = 1 / sqrt((double)d), active = s->is_oss ? OSS_SQUARE : SILU_SQUARE;
    double out = sqrt(variance / (active * b->routed_share) / (double)w);
    add(b, b->p->type, d, w, n, in, "blk.%d.ffn_gate_exps.weight", layer);
    add(b, b->p->type, d, w, n, in, "blk.%d.ffn_up_exps.weight", layer);
    keep_edge(add(b, b->p->type, w, d, n, out, "blk.%d.ffn_down_exps.weight", layer));
    if (s->is_oss) {
        add_expert_biases(b, layer, variance);
    }
}

/* Standard deviation of the residual stream at the router of a layer. */
static double stream_std(const synth_shape *s, int32_t layer) {
    double before = (double)layer / s->n_layer, with_own = (layer + 1.0) / s->n_layer;
    return sqrt(1 + FFN_VARIANCE * before + ATTN_LEFT * ATTN_VARIANCE * with_own);
}

/* The edge columns come to the router as 1 / stream_std each; their weights sum to a bias of
 * deviation skew beside a random part of deviation 1. */
static void add_router(planner *b, int32_t layer) {
    const synth_shape *s = &b->p->shape;
    synth_tensor *t = add(b, DT_F32, s->d_model, s->n_expert, 0, 1 / sqrt((double)s->d_model),
                          "blk.%d.ffn_gate_inp.weight", layer);
    t->kind = SYNTH_ROUTER;
    t->bias = b->p->skew * stream_std(s, layer) / SYNTH_EDGE;
}

static void add_ffn(planner *b, int32_t layer) {
    const synth_shape *s = &b->p->shape;
    double variance = FFN_VARIANCE / s->n_layer;
    const char *norm = s->is_oss ? "post_attention_norm" : "ffn_norm";
    add_norm(b, layer, norm, s->d_model, 1)->edge = SYNTH_EDGE_STD;
    if (layer < s->n_dense) {
        add_dense(b, layer, "", s->dense_width, variance);
        return;
    }
    add_router(b, layer);
    if (s->shared_width > 0) {
        variance /= 2;
        add_dense(b, layer, "_shexp", s->shared_width,
                  s->shared_gate ? variance / SIGMOID_SQUARE : variance);
        if (s->shared_gate) {
            add(b, DT_F32, s->d_model, 0, 0, 1 / sqrt((double)s->d_model),
                "blk.%d.ffn_gate_inp_shexp.weight", layer);
        }
    }
    add_experts(b, layer, variance);
}

static void add_all(planner *b) {
    const synth_shape *s = &b->p->shape;
    dtype type = synth_edge_type(b->p->type, s->d_model);
    add(b, type, s->d_model, s->vocab_size, 0, 1, "token_embd.weight")->edge = SYNTH_EDGE_STD;
    for (int32_t i = 0; i < s->n_layer; i++) {
        add_attention(b, i);
        add_ffn(b, i);
    }
    add_norm(b, -1, "output_norm", s->d_model, 1);
    synth_tensor *t = add(b, type, s->d_model, s->vocab_size, 0,
                          LOGIT_STD / sqrt((double)s->d_model), "output.weight");
    t->edge = SYNTH_EDGE_ZERO;
    t->zero_from = SYNTH_FIRST_CONTROL; /* never the likeliest */
    t->zero_to = SYNTH_FIRST_CONTROL + SYNTH_CONTROLS;
}

/* ---- router weights */

/* The mean over tokens of the sum of squared weights of the chosen experts, by drawing logits. */
static double routed_share(const synth_plan *p) {
    const synth_shape *s = &p->shape;
    uint64_t key = key_of(p, "router weights");
    double deviation = sqrt(1 + p->skew * p->skew), mean = 0;
    for (uint64_t draw = 0; draw < ROUTER_DRAWS; draw++) {
        double best[64] = {0}, all = 0, chosen = 0, squares = 0;
        int32_t n_best = s->n_expert_used < 64 ? s->n_expert_used : 64;
        for (int32_t e = 0; e < s->n_expert; e++) {
            uint64_t i = draw * (uint64_t)s->n_expert + (uint64_t)e;
            double v = exp(deviation * synth_normal(key, i));
            all += v;
            for (int32_t k = 0; k < n_best; k++) {
                if (v > best[k]) {
                    double lower = best[k];
                    best[k] = v;
                    v = lower;
                }
            }
        }
        for (int32_t k = 0; k < n_best; k++) {
            chosen += best[k];
            squares += best[k] * best[k];
        }
        double sum = s->normalise ? chosen : all;
        mean += squares / (sum * sum) / ROUTER_DRAWS;
    }
    return mean;
}

/* ---- rows */

static float norm_value(const synth_tensor *t, int64_t col) {
    bool plain = col < SYNTH_EDGE && t->edge == SYNTH_EDGE_STD;
    double v = plain ? 1 : 1 + 0.1 * synth_unit(t->fill.key, (uint64_t)col);
    return (float)(t->fill.std * v);
}

/* An expert's bias: normal, and over the experts of exactly mean 0 and deviation 1. */
static double router_bias(const synth_tensor *t, int64_t row) {
    uint64_t first = 1ull << 60; /* beyond the weights' own */
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < t->n_row; i++) {
        double v = synth_normal(t->fill.key, first + (uint64_t)i);
        sum += v;
        squares += v * v;
    }
    double mean = sum / (double)t->n_row;
    double deviation = sqrt(squares / (double)t->n_row - mean * mean);
    double v = synth_normal(t->fill.key, first + (uint64_t)row) - mean;
    return deviation > 0 ? v / deviation : 0;
}

static void router_row(const synth_tensor *t, int64_t row, uint8_t *out) {
    float bias = (float)(t->bias * router_bias(t, row));
    synth_blocks(&t->fill, (uint64_t)(row * t->n_col), (uint64_t)t->n_col, out);
    for (int64_t i = 0; i < SYNTH_EDGE && i < t->n_col; i++) {
        memcpy(out + (size_t)i * sizeof bias, &bias, sizeof bias);
    }
}

static void one_row(const synth_tensor *t, int64_t row, uint8_t *out) {
    int64_t in_slice = row % t->n_row;
    uint64_t n_block = t->row_bytes / dtype_get(t->fill.type)->block_bytes;
    if (t->kind == SYNTH_NORM) {
        for (int64_t i = 0; i < t->n_col; i++) {
            float v = norm_value(t, i);
            memcpy(out + (size_t)i * sizeof v, &v, sizeof v);
        }
    } else if (t->kind == SYNTH_ROUTER) {
        router_row(t, row, out);
    } else if (in_slice >= t->zero_from && in_slice < t->zero_to) {
        memset(out, 0, (size_t)t->row_bytes); /* a scale of zero in every type */
    } else {
        synth_blocks(&t->fill, (uint64_t)row * n_block, n_block, out);
        synth_edge_row(&t->fill, t->edge, out);
    }
}

void synth_rows(const synth_tensor *t, int64_t first, int64_t n_row, uint8_t *out) {
    for (int64_t i = 0; i < n_row; i++) {
        one_row(t, first + i, out + (uint64_t)i * t->row_bytes);
    }
}

/* ---- the whole */

int synth_plan_make(synth_plan *p, smoe_error *err) {
    planner b = {.p = p, .err = err, .routed_share = routed_share(p)};
    add_all(&b);
    int rc = b.rc ? b.rc : synth_head(p, err);
    p->file_bytes = p->head.bytes + round_up(b.at, SYNTH_ALIGNMENT);
    return rc;
}

void synth_plan_free(synth_plan *p) {
    free(p->tensor);
    buf_free(&p->head);
    *p = (synth_plan){0};
}
