/* qwen3_moe: grouped-query attention with a norm on each head of q and k, mixture layers with dense
 * layers between them by mlp_only_layers and decoder_sparse_step. */
#include "model/family.h"

static const char *const model_types[] = {"qwen3_moe", NULL};
static const char *const architectures[] = {"Qwen3MoeForCausalLM", NULL};

static const role_name_pattern tensors[] = {
    {ROLE_EMBED, "model.embed_tokens.weight"},
    {ROLE_OUT_NORM, "model.norm.weight"},
    {ROLE_HEAD, "lm_head.weight"},
    {ROLE_ATTN_NORM, "model.layers.{layer}.input_layernorm.weight"},
    {ROLE_ATTN_Q, "model.layers.{layer}.self_attn.q_proj.weight"},
    {ROLE_ATTN_K, "model.layers.{layer}.self_attn.k_proj.weight"},
    {ROLE_ATTN_V, "model.layers.{layer}.self_attn.v_proj.weight"},
    {ROLE_ATTN_O, "model.layers.{layer}.self_attn.o_proj.weight"},
    {ROLE_ATTN_Q_BIAS, "model.layers.{layer}.self_attn.q_proj.bias"},
    {ROLE_ATTN_K_BIAS, "model.layers.{layer}.self_attn.k_proj.bias"},
    {ROLE_ATTN_V_BIAS, "model.layers.{layer}.self_attn.v_proj.bias"},
    {ROLE_ATTN_O_BIAS, "model.layers.{layer}.self_attn.o_proj.bias"},
    {ROLE_ATTN_Q_NORM, "model.layers.{layer}.self_attn.q_norm.weight"},
    {ROLE_ATTN_K_NORM, "model.layers.{layer}.self_attn.k_norm.weight"},
    {ROLE_FFN_NORM, "model.layers.{layer}.post_attention_layernorm.weight"},
    {ROLE_FFN_GATE, "model.layers.{layer}.mlp.gate_proj.weight"},
    {ROLE_FFN_UP, "model.layers.{layer}.mlp.up_proj.weight"},
    {ROLE_FFN_DOWN, "model.layers.{layer}.mlp.down_proj.weight"},
    {ROLE_ROUTER, "model.layers.{layer}.mlp.gate.weight"},
};

static int read_ffn(const config *c, spec *s, smoe_error *err) {
    ffn_spec moe = {.kind = FFN_MOE};
    ffn_spec dense = {.kind = FFN_DENSE, .moe_index = -1};
    int rc = config_sparse_layers(c, s, err);
    rc = rc ? rc : config_experts(c, &moe.n_expert, &moe.n_expert_used, err);
    rc = rc ? rc : config_need(c, "moe_intermediate_size", LIMIT_DIM, &moe.width, err);
    rc = rc ? rc : config_act(c, &moe.act, err);
    if (rc == SMOE_OK && spec_moe_layers(s) < s->n_layer) {
        rc = config_need(c, "intermediate_size", LIMIT_DIM, &dense.width, err);
    }
    dense.act = moe.act;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        bool is_moe = s->layer[i].ffn.kind == FFN_MOE;
        s->layer[i].ffn = is_moe ? moe : dense;
        moe.moe_index += is_moe;
    }
    s->router.score = ROUTER_SOFTMAX;
    return rc ? rc : json_opt_bool(&c->at, "norm_topk_prob", &s->router.normalise, err);
}

/* The window counts only with use_sliding_window. Which layers have it: layer_types where given,
 * else those from max_window_layers on, else all. */
static int read_window(const config *c, spec *s, smoe_error *err) {
    bool sliding[LIMIT_LAYERS];
    bool has_types, use = false;
    int64_t window = 4096, first = 0;
    int rc = config_layer_types(c, s->n_layer, sliding, &has_types, err);
    rc = rc ? rc : json_opt_bool(&c->at, "use_sliding_window", &use, err);
    if (rc != SMOE_OK || !use) {
        return rc;
    }
    bool is_null = json_object_object_get_ex(c->at.object, "sliding_window", NULL) &&
                   !json_find(c->at.object, "sliding_window");
    rc = json_opt_int(&c->at, "sliding_window", 1, LIMIT_CONTEXT_TOK, &window, err);
    rc = rc ? rc : json_opt_int(&c->at, "max_window_layers", 0, INT32_MAX, &first, err);
    for (int32_t i = 0; rc == SMOE_OK && !is_null && i < s->n_layer; i++) {
        bool has_window = has_types ? sliding[i] : i >= first;
        s->layer[i].attn.window_tok = has_window ? (int32_t)window : 0;
    }
    return rc;
}

static int describe(const config *c, spec *s, arena *a, smoe_error *err) {
    static const config_defaults defaults = {
        .rope_theta = 1e4, .norm_eps = 1e-6, .n_kv_head = 4, .context_tok = 32768};
    bool bias = false;
    int rc = config_common(c, &defaults, s, a, err);
    rc = rc ? rc : json_opt_bool(&c->at, "attention_bias", &bias, err);
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        s->layer[i].attn.qk_norm = QK_NORM_HEAD;
        s->layer[i].attn.qkv_bias = s->layer[i].attn.o_bias = bias;
    }
    rc = rc ? rc : read_ffn(c, s, err);
    return rc ? rc : read_window(c, s, err);
}

/* GGUF files of this family have no dense layers and always renormalise. */
static int describe_gguf(const gguf_config *c, spec *s, arena *a, smoe_error *err) {
    ffn_spec ffn = {0};
    int rc = gguf_config_common(c, false, s, a, err);
    s->router.score = ROUTER_SOFTMAX;
    s->router.normalise = true;
    rc = rc ? rc : gguf_config_experts(c, s, &ffn, err);
    rc = rc ? rc : gguf_config_need(c, "expert_feed_forward_length", LIMIT_DIM, &ffn.width, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    gguf_config_all_moe(s, ffn);
    for (int32_t i = 0; i < s->n_layer; i++) {
        s->layer[i].attn.qk_norm = QK_NORM_HEAD;
    }
    return SMOE_OK;
}

const family family_qwen3_moe = {
    .name = "qwen3_moe",
    .model_type = model_types,
    .architecture = architectures,
    .tensor = tensors,
    .n_tensor = sizeof tensors / sizeof *tensors,
    .expert = {"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    .describe = describe,
    .gguf_arch = "qwen3moe",
    .describe_gguf = describe_gguf,
};
