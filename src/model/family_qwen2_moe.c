/* qwen2_moe: grouped-query attention with biases on q, k and v; in each mixture layer one shared
 * expert, scaled by a sigmoid gate, beside the routed ones, whose weights are not renormalised. */
#include "model/family.h"

static const char *const model_types[] = {"qwen2_moe", NULL};
static const char *const architectures[] = {"Qwen2MoeForCausalLM", NULL};

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
    {ROLE_FFN_NORM, "model.layers.{layer}.post_attention_layernorm.weight"},
    {ROLE_FFN_GATE, "model.layers.{layer}.mlp.gate_proj.weight"},
    {ROLE_FFN_UP, "model.layers.{layer}.mlp.up_proj.weight"},
    {ROLE_FFN_DOWN, "model.layers.{layer}.mlp.down_proj.weight"},
    {ROLE_ROUTER, "model.layers.{layer}.mlp.gate.weight"},
    {ROLE_SHARED_GATE, "model.layers.{layer}.mlp.shared_expert.gate_proj.weight"},
    {ROLE_SHARED_UP, "model.layers.{layer}.mlp.shared_expert.up_proj.weight"},
    {ROLE_SHARED_DOWN, "model.layers.{layer}.mlp.shared_expert.down_proj.weight"},
    {ROLE_SHARED_SCALE, "model.layers.{layer}.mlp.shared_expert_gate.weight"},
};

static int read_ffn(const config *c, spec *s, smoe_error *err) {
    ffn_spec moe = {.kind = FFN_MOE, .shared_gate = true};
    ffn_spec dense = {.kind = FFN_DENSE, .moe_index = -1};
    int rc = config_sparse_layers(c, s, err);
    rc = rc ? rc : config_experts(c, &moe.n_expert, &moe.n_expert_used, err);
    rc = rc ? rc : config_need(c, "moe_intermediate_size", LIMIT_DIM, &moe.width, err);
    rc = rc ? rc
            : config_need(c, "shared_expert_intermediate_size", LIMIT_DIM, &moe.shared_width, err);
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

static int describe(const config *c, spec *s, arena *a, smoe_error *err) {
    static const config_defaults defaults = {
        .rope_theta = 1e4, .norm_eps = 1e-6, .n_kv_head = 16, .context_tok = 32768};
    bool window = false, bias = true;
    int rc = config_common(c, &defaults, s, a, err);
    rc = rc ? rc : json_opt_bool(&c->at, "use_sliding_window", &window, err);
    rc = rc ? rc : json_opt_bool(&c->at, "qkv_bias", &bias, err);
    if (rc == SMOE_OK && window) {
        rc = err_set(err, SMOE_ERR_UNSUPPORTED,
                     "%s: %suse_sliding_window is not supported for this family", c->at.label,
                     c->at.parent);
    }
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        s->layer[i].attn.qkv_bias = bias;
    }
    return rc ? rc : read_ffn(c, s, err);
}

/* Old files give one FFN width only: that of the shared expert, as wide as those a token uses. */
static int describe_gguf(const gguf_config *c, spec *s, arena *a, smoe_error *err) {
    ffn_spec ffn = {.shared_gate = true};
    int rc = gguf_config_common(c, false, s, a, err);
    s->router.score = ROUTER_SOFTMAX;
    rc = rc ? rc : gguf_config_experts(c, s, &ffn, err);
    rc = rc ? rc : gguf_config_opt(c, "feed_forward_length", 0, LIMIT_DIM, &ffn.shared_width, err);
    ffn.width = rc == SMOE_OK ? ffn.shared_width / ffn.n_expert_used : 0;
    rc = rc ? rc : gguf_config_opt(c, "expert_feed_forward_length", 1, LIMIT_DIM, &ffn.width, err);
    rc = rc ? rc
            : gguf_config_opt(c, "expert_shared_feed_forward_length", 1, LIMIT_DIM,
                              &ffn.shared_width, err);
    if (rc == SMOE_OK) {
        gguf_config_all_moe(s, ffn);
    }
    return rc;
}

const family family_qwen2_moe = {
    .name = "qwen2_moe",
    .model_type = model_types,
    .architecture = architectures,
    .tensor = tensors,
    .n_tensor = sizeof tensors / sizeof *tensors,
    .expert = {"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    .describe = describe,
    .gguf_arch = "qwen2moe",
    .describe_gguf = describe_gguf,
};
