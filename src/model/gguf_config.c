/* Reading GGUF keys; see gguf_config.h. */
#include "model/gguf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

static const char arch_key[] = "general.architecture";

/* ---- keys of the architecture */

static const char *key_of(char out[GGUF_CONFIG_KEY_BYTES], const gguf_config *c, const char *key) {
    snprintf(out, GGUF_CONFIG_KEY_BYTES, "%s.%s", c->arch, key);
    return out;
}

int gguf_config_need(const gguf_config *c, const char *key, int64_t max, int32_t *out,
                     smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    int64_t v = 0;
    int rc = gguf_need_int(c->header, c->label, key_of(name, c, key), 1, max, &v, err);
    *out = (int32_t)v;
    return rc;
}

int gguf_config_opt(const gguf_config *c, const char *key, int64_t min, int64_t max, int32_t *out,
                    smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    int64_t v = *out;
    int rc = gguf_opt_int(c->header, c->label, key_of(name, c, key), min, max, &v, err);
    *out = (int32_t)v;
    return rc;
}

int gguf_config_of_layer(const gguf_config *c, const char *key, int32_t layer, int32_t n_layer,
                         int64_t min, int64_t max, int32_t *out, smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    int64_t v = 0;
    const gguf_value *value = gguf_find(c->header, key_of(name, c, key));
    if (!value || !value->is_array) {
        return gguf_config_opt(c, key, min, max, out, err);
    }
    if (value->n != (uint64_t)n_layer) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s has %" PRIu64 " values for %d layers",
                       c->label, name, value->n, n_layer);
    }
    if (value->type == GGUF_TEXT || !gguf_int_at(value, (uint64_t)layer, &v)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s must be an array of integers, not %s",
                       c->label, name, gguf_type_name(value->type));
    }
    if (v < min || v > max) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: %s of layer %d is %" PRId64 ", out of range (%" PRId64 " to %" PRId64
                       ")",
                       c->label, name, layer, v, min, max);
    }
    *out = (int32_t)v;
    return SMOE_OK;
}

static int opt_number(const gguf_config *c, const char *key, double *out, smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    return gguf_opt_number(c->header, c->label, key_of(name, c, key), out, err);
}

static int opt_positive(const gguf_config *c, const char *key, double *out, smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    int rc = opt_number(c, key, out, err);
    if (rc == SMOE_OK && gguf_find(c->header, key_of(name, c, key)) && *out <= 0) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %s must be a finite number > 0", c->label, name);
    }
    return rc;
}

static int need_positive(const gguf_config *c, const char *key, double *out, smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    if (!gguf_find(c->header, key_of(name, c, key))) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: key %s is missing", c->label, name);
    }
    return opt_positive(c, key, out, err);
}

static int unsupported(const gguf_config *c, const char *key, smoe_error *err) {
    return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: %s.%s is not supported", c->label, c->arch, key);
}

/* Keys that change what a model computes and that no architecture here has. */
static int refuse_others(const gguf_config *c, smoe_error *err) {
    static const char *const keys[] = {"attention.max_alibi_bias",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "embedding_scale",
                                       "residual_scale",
                                       "logit_scale",
                                       "rope.scaling.yarn_log_multiplier"};
    int rc = SMOE_OK;
    for (size_t i = 0; rc == SMOE_OK && i < sizeof keys / sizeof *keys; i++) {
        double v = 0;
        rc = opt_number(c, keys[i], &v, err);
        if (rc == SMOE_OK && v != 0) {
            rc = unsupported(c, keys[i], err);
        }
    }
    return rc;
}

bool gguf_config_has(const gguf_config *c, int32_t layer, const char *name) {
    char full[GGUF_CONFIG_KEY_BYTES];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return tensor_table_find(c->table, full) != NULL;
}

/* ---- rope */

static bool is_text(const char *text, size_t bytes, const char *want) {
    return strlen(want) == bytes && memcmp(text, want, bytes) == 0;
}

static int rope_kind(const gguf_config *c, rope_scaling *out, smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    const char *type = "linear"; /* of old files that give a factor only */
    size_t bytes = strlen(type);
    int rc = gguf_opt_text(c->header, c->label, key_of(name, c, "rope.scaling.type"), &type, &bytes,
                           err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (is_text(type, bytes, "none")) {
        *out = ROPE_PLAIN;
    } else if (is_text(type, bytes, "linear")) {
        *out = ROPE_LINEAR;
    } else if (is_text(type, bytes, "yarn")) {
        *out = ROPE_YARN;
    } else {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "%s: %s %.*s is not supported (none, linear and yarn are)", c->label, name,
                       bytes < 64 ? (int)bytes : 64, type);
    }
    return SMOE_OK;
}

/* llama.cpp scales rotated values by 1 + 0.1 ln(factor), which is arXiv 2309.00071's
 * recommendation, and by what the file says besides. */
static int read_yarn(const gguf_config *c, rope_spec *r, smoe_error *err) {
    double attn_factor = 1, ext_factor = -1;
    int rc = opt_positive(c, "rope.scaling.attn_factor", &attn_factor, err);
    rc = rc ? rc : opt_positive(c, "rope.scaling.yarn_attn_factor", &attn_factor, err);
    rc = rc ? rc : opt_positive(c, "rope.scaling.yarn_beta_fast", &r->beta_fast, err);
    rc = rc ? rc : opt_positive(c, "rope.scaling.yarn_beta_slow", &r->beta_slow, err);
    rc = rc ? rc : opt_number(c, "rope.scaling.yarn_ext_factor", &ext_factor, err);
    if (rc == SMOE_OK && ext_factor >= 0 && ext_factor != 1) {
        return unsupported(c, "rope.scaling.yarn_ext_factor", err);
    }
    r->attention_factor = attn_factor * (r->factor > 1 ? 1 + 0.1 * log(r->factor) : 1);
    return rc;
}

static int read_rope(const gguf_config *c, int32_t head_dim, int32_t context_tok, rope_spec *r,
                     smoe_error *err) {
    r->dim = head_dim;
    r->theta = 1e4;
    r->has_divisors = tensor_table_find(c->table, "rope_freqs.weight") != NULL;
    r->original_context_tok = context_tok;
    int rc = gguf_config_opt(c, "rope.dimension_count", 1, head_dim, &r->dim, err);
    rc = rc ? rc : opt_positive(c, "rope.freq_base", &r->theta, err);
    rc = rc ? rc : rope_kind(c, &r->scaling, err);
    rc = rc ? rc : opt_positive(c, "rope.scale_linear", &r->factor, err);
    rc = rc ? rc : opt_positive(c, "rope.scaling.factor", &r->factor, err);
    rc = rc ? rc
            : gguf_config_opt(c, "rope.scaling.original_context_length", 1, LIMIT_CONTEXT_TOK,
                              &r->original_context_tok, err);
    if (rc == SMOE_OK && r->scaling == ROPE_LINEAR && r->factor == 1) {
        r->scaling = ROPE_PLAIN;
    }
    if (rc == SMOE_OK && r->dim % 2 != 0) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s.rope.dimension_count %d is odd", c->label,
                       c->arch, r->dim);
    }
    return rc == SMOE_OK && r->scaling == ROPE_YARN ? read_yarn(c, r, err) : rc;
}

/* ---- attention */

static int read_layer_attention(const gguf_config *c, const spec *s, int32_t layer, attn_spec *a,
                                smoe_error *err) {
    int32_t n = s->n_layer;
    char name[GGUF_CONFIG_KEY_BYTES];
    static const char heads[] = "attention.head_count";
    if (!gguf_find(c->header, key_of(name, c, heads))) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: key %s is missing", c->label, name);
    }
    *a = (attn_spec){.kind = ATTN_GQA};
    int rc = gguf_config_of_layer(c, heads, layer, n, 1, LIMIT_HEADS, &a->n_head, err);
    a->n_kv_head = a->n_head;
    rc = rc ? rc
            : gguf_config_of_layer(c, "attention.head_count_kv", layer, n, 1, LIMIT_HEADS,
                                   &a->n_kv_head, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (a->n_head % a->n_kv_head != 0) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: %s %d is not a multiple of %s.attention.head_count_kv %d", c->label,
                       name, a->n_head, c->arch, a->n_kv_head);
    }
    a->head_dim = s->d_model / a->n_head > 1 ? s->d_model / a->n_head : 1;
    rc = gguf_config_opt(c, "attention.key_length", 1, LIMIT_DIM, &a->head_dim, err);
    a->v_head_dim = a->head_dim;
    rc = rc ? rc : gguf_config_opt(c, "attention.value_length", 1, LIMIT_DIM, &a->v_head_dim, err);
    rc = rc ? rc
            : gguf_config_opt(c, "attention.sliding_window", 0, LIMIT_CONTEXT_TOK, &a->window_tok,
                              err);
    a->scale = 0;
    rc = rc ? rc : opt_number(c, "attention.scale", &a->scale, err);
    a->scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_dim); /* 0: not said */
    rc = rc ? rc : opt_number(c, "attention.clamp_kqv", &a->clip, err);
    if (rc == SMOE_OK && a->clip < 0) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s.attention.clamp_kqv must be >= 0", c->label,
                       c->arch);
    }
    a->qkv_bias =
        gguf_config_has(c, layer, "attn_q.bias") || gguf_config_has(c, layer, "attn_qkv.bias");
    a->o_bias = gguf_config_has(c, layer, "attn_output.bias");
    return rc;
}

static int read_whole(const gguf_config *c, spec *s, smoe_error *err) {
    static const char embed[] = "token_embd.weight";
    const tensor *t = tensor_table_find(c->table, embed);
    int rc = gguf_config_need(c, "embedding_length", LIMIT_DIM, &s->d_model, err);
    rc = rc ? rc : gguf_config_need(c, "context_length", LIMIT_CONTEXT_TOK, &s->context_tok, err);
    rc = rc ? rc : need_positive(c, "attention.layer_norm_rms_epsilon", &s->norm_eps, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (!t) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: tensor %s is missing", c->label, embed);
    }
    if (t->rank != 2 || t->shape[0] > LIMIT_VOCAB) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: the shape of %s differs: a matrix of at most %d rows is expected",
                       c->label, embed, LIMIT_VOCAB);
    }
    s->vocab_size = (int32_t)t->shape[0];
    s->norm = NORM_RMS;
    s->tied_head = tensor_table_find(c->table, "output.weight") == NULL;
    return refuse_others(c, err);
}

int gguf_config_common(const gguf_config *c, bool interleaved, spec *s, arena *a, smoe_error *err) {
    int32_t n_layer = 0, n_ahead = 0;
    int rc = gguf_config_need(c, "block_count", LIMIT_LAYERS, &n_layer, err);
    /* blocks that predict further tokens come last and are not part of the model proper */
    rc = rc ? rc : gguf_config_opt(c, "nextn_predict_layers", 0, n_layer - 1, &n_ahead, err);
    rc = rc ? rc : spec_init(s, n_layer - n_ahead, a, err);
    rc = rc ? rc : read_whole(c, s, err);
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        rc = read_layer_attention(c, s, i, &s->layer[i].attn, err);
    }
    rc = rc ? rc : read_rope(c, s->layer[0].attn.head_dim, s->context_tok, &s->rope[0], err);
    s->rope[0].interleaved = interleaved;
    s->n_rope = 1;
    return rc;
}

/* ---- experts */

static int read_score(const gguf_config *c, router_spec *r, smoe_error *err) {
    static const router_score scores[] = {ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SOFTMAX_SELECTED,
                                          ROUTER_SQRT_SOFTPLUS};
    int32_t func = 0;
    int rc =
        gguf_config_opt(c, "expert_gating_func", 0, sizeof scores / sizeof *scores, &func, err);
    r->score = func > 0 ? scores[func - 1] : r->score;
    return rc;
}

int gguf_config_experts(const gguf_config *c, spec *s, ffn_spec *f, smoe_error *err) {
    char name[GGUF_CONFIG_KEY_BYTES];
    router_spec *r = &s->router;
    double scale = 0;
    int rc = gguf_config_need(c, "expert_count", LIMIT_EXPERTS, &f->n_expert, err);
    rc = rc ? rc : gguf_config_need(c, "expert_used_count", LIMIT_EXPERTS, &f->n_expert_used, err);
    if (rc == SMOE_OK && f->n_expert_used > f->n_expert) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: %s.expert_used_count %d exceeds %s.expert_count %d", c->label, c->arch,
                       f->n_expert_used, c->arch, f->n_expert);
    }
    rc = rc ? rc : read_score(c, r, err);
    rc = rc ? rc
            : gguf_opt_bool(c->header, c->label, key_of(name, c, "expert_weights_norm"),
                            &r->normalise, err);
    rc = rc ? rc : opt_number(c, "expert_weights_scale", &scale, err);
    rc = rc ? rc : gguf_config_opt(c, "expert_group_count", 0, LIMIT_EXPERTS, &r->n_group, err);
    rc =
        rc ? rc
           : gguf_config_opt(c, "expert_group_used_count", 0, LIMIT_EXPERTS, &r->n_group_used, err);
    r->scale = scale != 0 ? scale : 1; /* 0: not said */
    f->kind = FFN_MOE;
    f->act = ACT_SILU;
    return rc;
}

void gguf_config_all_moe(spec *s, ffn_spec f) {
    for (int32_t i = 0; i < s->n_layer; i++) {
        f.moe_index = i;
        s->layer[i].ffn = f;
    }
}

/* ---- the whole */

static int find_family(gguf_config *c, smoe_error *err) {
    char known[256];
    const char *arch = NULL;
    size_t bytes = 0;
    int rc = gguf_need_text(c->header, c->label, arch_key, &arch, &bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (bytes < sizeof c->arch && !memchr(arch, 0, bytes)) {
        memcpy(c->arch, arch, bytes);
        c->family = family_find_gguf(c->arch);
    }
    if (!c->family) {
        family_list_gguf(known, sizeof known);
        rc = err_set(err, SMOE_ERR_UNSUPPORTED,
                     "%s: GGUF architecture %.*s is not supported (known: %s)", c->label,
                     bytes < 64 ? (int)bytes : 64, arch, known);
    }
    return rc;
}

/* Bit i: whether there is the i-th of n tensors. */
static int32_t tensor_bits(const gguf_config *c, int32_t layer, const char *const *names, int n) {
    int32_t bits = 0;
    for (int i = 0; i < n; i++) {
        bits |= (int32_t)gguf_config_has(c, layer, names[i]) << i;
    }
    return bits;
}

/* Types with little range, such as NVFP4, come with a factor for each matrix. */
static void read_scaled(const gguf_config *c, spec *s) {
    static const char *const attn[] = {"attn_q.scale", "attn_k.scale", "attn_v.scale",
                                       "attn_output.scale"};
    static const char *const dense[] = {"ffn_gate.scale", "ffn_up.scale", "ffn_down.scale"};
    static const char *const moe[] = {"ffn_gate_exps.scale", "ffn_up_exps.scale",
                                      "ffn_down_exps.scale", "ffn_gate_shexp.scale",
                                      "ffn_up_shexp.scale",  "ffn_down_shexp.scale"};
    s->scaled_head = !s->tied_head && tensor_table_find(c->table, "output.scale");
    for (int32_t i = 0; i < s->n_layer; i++) {
        ffn_spec *f = &s->layer[i].ffn;
        s->layer[i].attn.scaled = tensor_bits(c, i, attn, 4);
        f->scaled = f->kind == FFN_MOE ? tensor_bits(c, i, moe, f->shared_width > 0 ? 6 : 3)
                                       : tensor_bits(c, i, dense, 3);
    }
}

int gguf_to_spec(spec *s, const gguf_header *h, const tensor_table *table, const char *label,
                 arena *a, smoe_error *err) {
    gguf_config c = {.header = h, .table = table, .label = label};
    int rc = find_family(&c, err);
    rc = rc ? rc : c.family->describe_gguf(&c, s, a, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    snprintf(s->family, sizeof s->family, "%s", c.family->name);
    read_scaled(&c, s);
    rc = spec_check(s, label, err);
    return rc ? rc : spec_check_runnable(s, err);
}
