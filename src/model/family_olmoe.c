/* olmoe: attention with one norm over the whole of q and one over the whole of k, every layer a
 * mixture whose weights are not renormalised. */
#include "model/family.h"

static const char *const model_types[] = {"olmoe", NULL};
static const char *const architectures[] = {"OlmoeForCausalLM", NULL};

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
    {ROLE_ROUTER, "model.layers.{layer}.mlp.gate.weight"},
};

static int describe(const config *c, spec *s, arena *a, smoe_error *err) {
    static const config_defaults defaults = {
        .rope_theta = 1e4, .norm_eps = 1e-5, .n_kv_head = 16, .context_tok = 4096};
    ffn_spec ffn = {.kind = FFN_MOE};
    bool bias = false;
    double clip = 0;
    int rc = config_common(c, &defaults, s, a, err);
    rc = rc ? rc : config_need(c, "intermediate_size", LIMIT_DIM, &ffn.width, err);
    rc = rc ? rc : config_experts(c, &ffn.n_expert, &ffn.n_expert_used, err);
    rc = rc ? rc : config_act(c, &ffn.act, err);
    rc = rc ? rc : json_opt_bool(&c->at, "attention_bias", &bias, err);
    rc = rc ? rc : json_opt_bool(&c->at, "norm_topk_prob", &s->router.normalise, err);
    rc = rc ? rc : json_opt_number(&c->at, "clip_qkv", 0, 1e30, &clip, err);
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        ffn.moe_index = i;
        s->layer[i].ffn = ffn;
        s->layer[i].attn.qk_norm = QK_NORM_WHOLE;
        s->layer[i].attn.clip = clip;
        s->layer[i].attn.qkv_bias = s->layer[i].attn.o_bias = bias;
    }
    s->router.score = ROUTER_SOFTMAX;
    return rc;
}

static int describe_gguf(const gguf_config *c, spec *s, arena *a, smoe_error *err) {
    ffn_spec ffn = {0};
    int rc = gguf_config_common(c, false, s, a, err);
    s->router.score = ROUTER_SOFTMAX;
    rc = rc ? rc : gguf_config_experts(c, s, &ffn, err);
    rc = rc ? rc : gguf_config_need(c, "feed_forward_length", LIMIT_DIM, &ffn.width, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    gguf_config_all_moe(s, ffn);
    for (int32_t i = 0; i < s->n_layer; i++) {
        s->layer[i].attn.qk_norm = QK_NORM_WHOLE;
    }
    return SMOE_OK;
}

const family family_olmoe = {
    .name = "olmoe",
    .model_type = model_types,
    .architecture = architectures,
    .tensor = tensors,
    .n_tensor = sizeof tensors / sizeof *tensors,
    .expert = {"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
               "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    .describe = describe,
    .gguf_arch = "olmoe",
    .describe_gguf = describe_gguf,
};
