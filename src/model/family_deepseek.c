/* deepseek: the first DeepSeek-MoE (arXiv 2401.06066). Plain grouped-query attention; dense layers
 * first, then mixtures with shared experts that are always added, without a gate. */
#include "model/family.h"

#include <string.h>

static const char *const model_types[] = {"deepseek", NULL};
static const char *const architectures[] = {"DeepseekForCausalLM", NULL};

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
    {ROLE_FFN_NORM, "model.layers.{layer}.post_attention_layernorm.weight"},
    {ROLE_FFN_GATE, "model.layers.{layer}.mlp.gate_proj.weight"},
    {ROLE_FFN_UP, "model.layers.{layer}.mlp.up_proj.weight"},
    {ROLE_FFN_DOWN, "model.layers.{layer}.mlp.down_proj.weight"},
    {ROLE_ROUTER, "model.layers.{layer}.mlp.gate.weight"},
    {ROLE_SHARED_GATE, "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    {ROLE_SHARED_UP, "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
    {ROLE_SHARED_DOWN, "model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

static int read_score(const config *c, spec *s, smoe_error *err) {
    const char *score = "softmax";
    int rc = json_opt_text(&c->at, "scoring_func", &score, NULL, err);
    if (rc == SMOE_OK && strcmp(score, "softmax") != 0) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: %sscoring_func %.64s is not supported",
                       c->at.label, c->at.parent, score);
    }
    s->router.score = ROUTER_SOFTMAX;
    return rc ? rc : json_opt_bool(&c->at, "norm_topk_prob", &s->router.normalise, err);
}

static int read_ffn(const config *c, spec *s, smoe_error *err) {
    ffn_spec moe = {.kind = FFN_MOE};
    ffn_spec dense = {.kind = FFN_DENSE, .moe_index = -1};
    int64_t n_shared = 0, n_dense = 0, every = 1;
    int rc = config_need(c, "n_routed_experts", LIMIT_EXPERTS, &moe.n_expert, err);
    rc = rc ? rc : config_need(c, "num_experts_per_tok", LIMIT_EXPERTS, &moe.n_expert_used, err);
    rc = rc ? rc : config_need(c, "moe_intermediate_size", LIMIT_DIM, &moe.width, err);
    rc = rc ? rc : config_need(c, "intermediate_size", LIMIT_DIM, &dense.width, err);
    rc = rc ? rc : json_opt_int(&c->at, "n_shared_experts", 0, LIMIT_EXPERTS, &n_shared, err);
    rc = rc ? rc : json_opt_int(&c->at, "first_k_dense_replace", 0, INT32_MAX, &n_dense, err);
    rc = rc ? rc : json_opt_int(&c->at, "moe_layer_freq", 1, INT32_MAX, &every, err);
    rc = rc ? rc : config_act(c, &moe.act, err);
    if (rc == SMOE_OK && n_shared * moe.width > LIMIT_DIM) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %sn_shared_experts %lld is out of range",
                       c->at.label, c->at.parent, (long long)n_shared);
    }
    moe.shared_width = (int32_t)(n_shared * moe.width);
    dense.act = moe.act;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        bool is_moe = i >= n_dense && i % every == 0;
        s->layer[i].ffn = is_moe ? moe : dense;
        moe.moe_index += is_moe;
    }
    return rc ? rc : read_score(c, s, err);
}

static int describe(const config *c, spec *s, arena *a, smoe_error *err) {
    static const config_defaults defaults = {
        .rope_theta = 1e4, .norm_eps = 1e-6, .n_kv_head = 32, .context_tok = 2048};
    bool bias = false;
    int rc = config_common(c, &defaults, s, a, err);
    rc = rc ? rc : json_opt_bool(&c->at, "attention_bias", &bias, err);
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        s->layer[i].attn.qkv_bias = s->layer[i].attn.o_bias = bias;
    }
    return rc ? rc : read_ffn(c, s, err);
}

/* In GGUF files the rows of q and k are stored for neighbouring pairs. */
static int describe_gguf(const gguf_config *c, spec *s, arena *a, smoe_error *err) {
    ffn_spec moe = {0};
    ffn_spec dense = {.kind = FFN_DENSE, .moe_index = -1, .act = ACT_SILU};
    int32_t n_shared = 0, n_dense = 0;
    int rc = gguf_config_common(c, true, s, a, err);
    s->router.score = ROUTER_SOFTMAX;
    rc = rc ? rc : gguf_config_experts(c, s, &moe, err);
    rc = rc ? rc : gguf_config_need(c, "expert_feed_forward_length", LIMIT_DIM, &moe.width, err);
    rc = rc ? rc : gguf_config_need(c, "feed_forward_length", LIMIT_DIM, &dense.width, err);
    rc = rc ? rc
            : gguf_config_opt(c, "expert_shared_count", 0, LIMIT_DIM / moe.width, &n_shared, err);
    rc = rc ? rc : gguf_config_opt(c, "leading_dense_block_count", 0, LIMIT_LAYERS, &n_dense, err);
    moe.shared_width = n_shared * moe.width;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        s->layer[i].ffn = i < n_dense ? dense : moe;
        moe.moe_index += i >= n_dense;
    }
    return rc;
}

const family family_deepseek = {
    .name = "deepseek",
    .model_type = model_types,
    .architecture = architectures,
    .tensor = tensors,
    .n_tensor = sizeof tensors / sizeof *tensors,
    .expert = {"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    .describe = describe,
    .gguf_arch = "deepseek",
    .describe_gguf = describe_gguf,
};
