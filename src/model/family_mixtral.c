/* mixtral: grouped-query attention without norms or biases, every layer a mixture. The router takes
 * a softmax over all experts, keeps the best and divides by their sum. */
#include "model/family.h"

static const char *const model_types[] = {"mixtral", NULL};
static const char *const architectures[] = {"MixtralForCausalLM", NULL};

static const role_name_pattern tensors[] = {
    {ROLE_EMBED, "model.embed_tokens.weight"},
    {ROLE_OUT_NORM, "model.norm.weight"},
    {ROLE_HEAD, "lm_head.weight"},
    {ROLE_ATTN_NORM, "model.layers.{layer}.input_layernorm.weight"},
    {ROLE_ATTN_Q, "model.layers.{layer}.self_attn.q_proj.weight"},
    {ROLE_ATTN_K, "model.layers.{layer}.self_attn.k_proj.weight"},
    {ROLE_ATTN_V, "model.layers.{layer}.self_attn.v_proj.weight"},
    {ROLE_ATTN_O, "model.layers.{layer}.self_attn.o_proj.weight"},
    {ROLE_FFN_NORM, "model.layers.{layer}.post_attention_layernorm.weight"},
    {ROLE_ROUTER, "model.layers.{layer}.block_sparse_moe.gate.weight"},
};

static int describe(const config *c, spec *s, arena *a, smoe_error *err) {
    static const config_defaults defaults = {
        .rope_theta = 1e6, .norm_eps = 1e-5, .n_kv_head = 8, .context_tok = 131072};
    ffn_spec ffn = {.kind = FFN_MOE};
    int64_t window = 0;
    int rc = config_common(c, &defaults, s, a, err);
    rc = rc ? rc : config_need(c, "intermediate_size", LIMIT_DIM, &ffn.width, err);
    rc = rc ? rc : config_experts(c, &ffn.n_expert, &ffn.n_expert_used, err);
    rc = rc ? rc : config_act(c, &ffn.act, err);
    rc = rc ? rc : json_opt_int(&c->at, "sliding_window", 1, LIMIT_CONTEXT_TOK, &window, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (int32_t i = 0; i < s->n_layer; i++) {
        ffn.moe_index = i;
        s->layer[i].ffn = ffn;
        s->layer[i].attn.window_tok = (int32_t)window;
    }
    s->router.score = ROUTER_SOFTMAX;
    s->router.normalise = true;
    return SMOE_OK;
}

/* Architecture "llama", whose rows of q and k are stored for neighbouring pairs. A shared expert
 * occurs in merged models. */
static int describe_gguf(const gguf_config *c, spec *s, arena *a, smoe_error *err) {
    ffn_spec ffn = {0};
    int rc = gguf_config_common(c, true, s, a, err);
    s->router.score = ROUTER_SOFTMAX;
    s->router.normalise = true;
    rc = rc ? rc : gguf_config_experts(c, s, &ffn, err);
    rc = rc ? rc : gguf_config_need(c, "feed_forward_length", LIMIT_DIM, &ffn.width, err);
    rc = rc ? rc
            : gguf_config_opt(c, "expert_shared_feed_forward_length", 0, LIMIT_DIM,
                              &ffn.shared_width, err);
    if (rc == SMOE_OK) {
        gguf_config_all_moe(s, ffn);
    }
    return rc;
}

const family family_mixtral = {
    .name = "mixtral",
    .model_type = model_types,
    .architecture = architectures,
    .tensor = tensors,
    .n_tensor = sizeof tensors / sizeof *tensors,
    .expert = {"model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight",
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"},
    .describe = describe,
    .gguf_arch = "llama",
    .describe_gguf = describe_gguf,
};
