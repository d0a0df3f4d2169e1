/* The spec: everything the forward pass branches on, as data.
 *
 * A family (one small file each) fills it from config.json or GGUF keys; a vault stores it as JSON;
 * `smoe inspect` prints it. No other module may look at a model's name. Kinds that this version
 * cannot run yet exist here so that a family can describe itself; spec_check_runnable says so.
 */
#ifndef SMOE_MODEL_SPEC_H
#define SMOE_MODEL_SPEC_H

#include "base/error.h"
#include "base/limits.h"
#include "base/mem.h"

typedef enum attn_kind {
    ATTN_GQA,       /* softmax attention, n_head queries over n_kv_head keys */
    ATTN_LATENT,    /* multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) */
    ATTN_LINEAR,    /* gated delta rule (arXiv 2412.06464) and its relatives */
    ATTN_SSM,       /* Mamba-type state space (arXiv 2312.00752) */
    ATTN_SHORT_CONV /* gated short convolution (LFM2) */
} attn_kind;

typedef enum ffn_kind { FFN_DENSE, FFN_MOE, FFN_NONE } ffn_kind;

typedef enum act_kind {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_RELU2,
    ACT_SWIGLU_CLAMP /* gpt-oss: clamped, (up + 1) * gate * sigmoid(alpha * gate) */
} act_kind;

typedef enum qk_norm_kind {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* RMS norm of each head of q and k before RoPE */
    QK_NORM_WHOLE /* RMS norm over all heads of q together, and of k, before RoPE */
} qk_norm_kind;

typedef enum norm_kind { NORM_RMS, NORM_RMS_PLUS_ONE, NORM_LAYER } norm_kind;

typedef enum router_score {
    ROUTER_SOFTMAX,          /* softmax over all experts, then the best */
    ROUTER_SOFTMAX_SELECTED, /* the best, then softmax over them */
    ROUTER_SIGMOID,
    ROUTER_SQRT_SOFTPLUS
} router_score;

typedef enum rope_scaling {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_YARN,   /* arXiv 2309.00071, as in transformers' _compute_yarn_parameters */
    ROPE_LLAMA3, /* transformers' _compute_llama3_parameters */
    ROPE_NONE    /* no positions */
} rope_scaling;

typedef struct rope_spec {
    rope_scaling scaling;
    bool interleaved; /* pairs (2i, 2i+1) instead of (i, i + dim/2) */
    int32_t dim;      /* rotated values of a head, even */
    double theta;
    double factor;
    double attention_factor; /* multiplies cos and sin; resolved, never 0 */
    double beta_fast, beta_slow;
    bool truncate; /* yarn: round the correction range to whole dimensions */
    int32_t original_context_tok;
    double low_freq_factor, high_freq_factor; /* llama3 */
    bool has_divisors;                        /* each frequency is divided: ROLE_ROPE_DIVISORS */
} rope_spec;

typedef struct attn_spec { /* of one layer */
    attn_kind kind;
    int32_t n_head;
    int32_t n_kv_head;
    int32_t head_dim;   /* of queries and keys */
    int32_t v_head_dim; /* of values */
    int32_t window_tok; /* a query sees this many positions, its own included; 0: all */
    int32_t rope;       /* index into spec.rope */
    double scale;       /* of q.k; resolved, never 0 */
    double softcap;     /* 0: off */
    double clip;        /* q, k and v are held to -clip .. clip after their norms; 0: off */
    bool qkv_bias, o_bias;
    qk_norm_kind qk_norm;
    int32_t
        scaled; /* whose products a tensor has a factor for (ROLE_*_FACTOR): 1 q, 2 k, 4 v, 8 o */
    bool sinks; /* one learned logit a head */
    bool gated; /* output gate */
} attn_spec;

typedef struct router_spec {
    router_score score;
    bool normalise;  /* selected weights are divided by their sum */
    double scale;    /* then multiplied by this */
    bool bias;       /* added to the logits */
    bool correction; /* added to the scores for selection only */
    int32_t n_group; /* 0 or 1: no groups */
    int32_t n_group_used;
} router_spec;

typedef struct ffn_spec { /* of one layer */
    ffn_kind kind;
    int32_t width;     /* dense: its width; MoE: an expert's */
    int32_t moe_index; /* MoE: number of MoE layers before this one; else -1 */
    int32_t n_expert;
    int32_t n_expert_used;
    int32_t shared_width; /* 0: no shared expert; several shared experts are one, wider */
    bool shared_gate;     /* the shared expert's output is scaled by a sigmoid of its own gate */
    int32_t scaled;       /* the same: 1 gate, 2 up, 4 down (MoE: a factor for each expert); 8 gate,
                             16 up, 32 down of the shared expert */
    bool bias;            /* gpt-oss: biases in experts */
    act_kind act;
    double clamp; /* ACT_SWIGLU_CLAMP: limit; 0: none */
} ffn_spec;

typedef struct layer_spec {
    attn_spec attn;
    ffn_spec ffn;
} layer_spec;

enum { SPEC_ROPES = 2, SPEC_END_IDS = 16 };

typedef struct spec {
    char family[32];
    int32_t n_layer;
    int32_t d_model;
    int32_t vocab_size;
    int32_t context_tok;
    layer_spec *layer; /* [n_layer], in the arena of its owner */
    router_spec router;
    rope_spec rope[SPEC_ROPES];
    int32_t n_rope;
    norm_kind norm;
    double norm_eps;
    bool tied_head;               /* the head is the embedding matrix */
    bool scaled_head;             /* a tensor has a factor for the head's product */
    double embed_scale;           /* multiplies embeddings; 1: off */
    double residual_scale;        /* multiplies what a block adds to the residual stream; 1: off */
    double logit_scale;           /* multiplies logits; 1: off */
    double logit_softcap;         /* 0: off */
    int32_t begin_id;             /* -1: none */
    int32_t end_id[SPEC_END_IDS]; /* generation ends at any of these; ids in [0, vocab_size) */
    int32_t n_end_id;
} spec;

/* A spec with neutral values and n_layer zeroed layers from the arena. n_layer within limits. */
int spec_init(spec *s, int32_t n_layer, arena *a, smoe_error *err);

/* Internal consistency: ranges, divisibility, moe_index. label names the file in errors. */
int spec_check(const spec *s, const char *label, smoe_error *err);
/* SMOE_ERR_UNSUPPORTED naming the first thing this version's forward pass lacks. */
int spec_check_runnable(const spec *s, smoe_error *err);

int32_t spec_moe_layers(const spec *s);
/* The layer whose moe_index this is. */
int32_t spec_moe_layer(const spec *s, int32_t moe_index);
int32_t spec_max_experts(const spec *s);
/* KV cache of one token, each head's keys and values in whole units of n_value values. */
uint64_t spec_kv_token_bytes(const spec *s, uint32_t n_value, uint32_t unit_bytes);

/* The spec as a JSON object and back; the two are inverse. spec_from_json validates everything
 * (spec_check included), since vaults come from outside. *out of spec_to_json is the caller's. */
struct json_object;
int spec_to_json(const spec *s, struct json_object **out, smoe_error *err);
int spec_from_json(spec *s, struct json_object *json, const char *label, arena *a, smoe_error *err);

#endif
