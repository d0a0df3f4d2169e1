/* Reading config.json; see config.h. Rotary positions are read in config_rope.c. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_rope.h"
#include "model/family.h"

/* ---- which family */

static int first_architecture(const json_at *at, const char **out, smoe_error *err) {
    struct json_object *list = NULL;
    int rc = json_opt_array(at, "architectures", &list, err);
    struct json_object *first = list ? json_object_array_get_idx(list, 0) : NULL;
    if (rc == SMOE_OK && json_object_is_type(first, json_type_string)) {
        *out = json_object_get_string(first);
    }
    return rc;
}

static int unknown_type(const char *label, const char *type, smoe_error *err) {
    char known[256];
    family_list(known, sizeof known);
    return err_set(err, SMOE_ERR_UNSUPPORTED,
                   "%s: model type %.64s is not supported (known families: %s)", label, type,
                   known);
}

/* The family by what the object itself says; 0 with NULL when it says nothing. */
static int find_family(const json_at *at, const family **out, const char **type, smoe_error *err) {
    const char *architecture = NULL;
    *type = NULL;
    int rc = json_opt_text(at, "model_type", type, NULL, err);
    if (rc == SMOE_OK && !*type) {
        rc = first_architecture(at, &architecture, err);
    }
    *out = rc == SMOE_OK ? family_find(*type, architecture) : NULL;
    *type = *type ? *type : architecture;
    return rc;
}

static int refuse_quantised(const json_at *at, smoe_error *err) {
    struct json_object *q = NULL;
    const char *method = "without a name";
    int rc = json_opt_object(at, "quantization_config", &q, err);
    if (rc != SMOE_OK || !q) {
        return rc;
    }
    json_at inner = {q, at->label, "quantization_config."};
    rc = json_opt_text(&inner, "quant_method", &method, NULL, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    return err_set(err, SMOE_ERR_UNSUPPORTED,
                   "%s: quantization method %.64s is not supported; use the checkpoint with f32, "
                   "f16 or bf16 weights",
                   at->label, method);
}

int config_open(config *c, struct json_object *root, const char *label, smoe_error *err) {
    const char *type = NULL, *inner_type = NULL;
    struct json_object *text = NULL;
    *c = (config){0};
    if (!json_object_is_type(root, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s must be an object", label);
    }
    c->at = c->top = (json_at){root, label, ""};
    int rc = find_family(&c->top, &c->family, &type, err);
    rc = rc ? rc : json_opt_object(&c->top, "text_config", &text, err);
    if (rc == SMOE_OK && !c->family && text) {
        /* a model of several modalities around a text model of a known family */
        c->at = (json_at){text, label, "text_config."};
        rc = find_family(&c->at, &c->family, &inner_type, err);
        type = inner_type ? inner_type : type;
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    if (!c->family) {
        return type
                   ? unknown_type(label, type, err)
                   : err_set(err, SMOE_ERR_FORMAT,
                             "%s: model type missing: neither model_type nor architectures", label);
    }
    rc = refuse_quantised(&c->top, err);
    return rc ? rc : refuse_quantised(&c->at, err);
}

/* ---- fields that families share */

int config_need(const config *c, const char *key, int64_t max, int32_t *out, smoe_error *err) {
    int64_t v = 0;
    int rc = json_need_int(&c->at, key, 1, max, &v, err);
    *out = (int32_t)v;
    return rc;
}

static int field_error(const config *c, const char *text, smoe_error *err) {
    return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s", c->at.label, c->at.parent, text);
}

int config_act(const config *c, act_kind *out, smoe_error *err) {
    static const struct {
        const char *name;
        act_kind kind;
    } acts[] = {{"silu", ACT_SILU},          {"swish", ACT_SILU},
                {"gelu", ACT_GELU},          {"gelu_pytorch_tanh", ACT_GELU_TANH},
                {"gelu_new", ACT_GELU_TANH}, {"relu2", ACT_RELU2}};
    const char *name = "silu";
    int rc = json_opt_text(&c->at, "hidden_act", &name, NULL, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        if (strcmp(acts[i].name, name) == 0) {
            *out = acts[i].kind;
            return SMOE_OK;
        }
    }
    return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: activation %.64s is not supported", c->at.label,
                   name);
}

int config_experts(const config *c, int32_t *n_expert, int32_t *n_expert_used, smoe_error *err) {
    bool local = json_object_object_get_ex(c->at.object, "num_local_experts", NULL) &&
                 !json_object_object_get_ex(c->at.object, "num_experts", NULL);
    const char *key = local ? "num_local_experts" : "num_experts";
    int rc = config_need(c, key, LIMIT_EXPERTS, n_expert, err);
    rc = rc ? rc : config_need(c, "num_experts_per_tok", LIMIT_EXPERTS, n_expert_used, err);
    if (rc == SMOE_OK && *n_expert_used > *n_expert) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %snum_experts_per_tok %d exceeds %s %d",
                     c->at.label, c->at.parent, *n_expert_used, key, *n_expert);
    }
    return rc;
}

int config_layer_types(const config *c, int32_t n_layer, bool *sliding, bool *has_types,
                       smoe_error *err) {
    struct json_object *list = NULL;
    int rc = json_opt_array(&c->at, "layer_types", &list, err);
    *has_types = list != NULL;
    if (rc != SMOE_OK || !list) {
        return rc;
    }
    if (json_object_array_length(list) != (size_t)n_layer) {
        return field_error(c, "layer_types must name each layer once", err);
    }
    for (int32_t i = 0; i < n_layer; i++) {
        struct json_object *value = json_object_array_get_idx(list, (size_t)i);
        if (!json_object_is_type(value, json_type_string)) {
            return field_error(c, "layer_types must be an array of strings", err);
        }
        const char *name = json_object_get_string(value);
        sliding[i] = strcmp(name, "sliding_attention") == 0;
        if (!sliding[i] && strcmp(name, "full_attention") != 0) {
            return err_set(err, SMOE_ERR_UNSUPPORTED,
                           "%s: layer type %.64s unknown (full_attention and sliding_attention "
                           "are known)",
                           c->at.label, name);
        }
    }
    return SMOE_OK;
}

int config_sparse_layers(const config *c, spec *s, smoe_error *err) {
    struct json_object *list = NULL;
    int64_t step = 1;
    int rc = json_opt_int(&c->at, "decoder_sparse_step", 1, INT32_MAX, &step, err);
    rc = rc ? rc : json_opt_array(&c->at, "mlp_only_layers", &list, err);
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        s->layer[i].ffn.kind = (i + 1) % step == 0 ? FFN_MOE : FFN_DENSE;
    }
    size_t n = rc == SMOE_OK && list ? json_object_array_length(list) : 0;
    for (size_t k = 0; rc == SMOE_OK && k < n; k++) {
        int64_t i = 0;
        rc = json_value_int(json_object_array_get_idx(list, k), c->at.label, "mlp_only_layers", 0,
                            s->n_layer - 1, &i, err);
        s->layer[i].ffn.kind = FFN_DENSE;
    }
    return rc;
}

/* Heads of every layer. */
static int read_attention(const config *c, const config_defaults *d, attn_spec *a, int32_t d_model,
                          smoe_error *err) {
    bool has_kv = json_object_object_get_ex(c->at.object, "num_key_value_heads", NULL);
    int rc = config_need(c, "num_attention_heads", LIMIT_HEADS, &a->n_head, err);
    int64_t n_kv_head = has_kv ? a->n_head : d->n_kv_head;
    int64_t head_dim = rc == SMOE_OK ? d_model / a->n_head : 1;
    rc = rc ? rc : json_opt_int(&c->at, "num_key_value_heads", 1, LIMIT_HEADS, &n_kv_head, err);
    rc = rc ? rc : json_opt_int(&c->at, "head_dim", 1, LIMIT_DIM, &head_dim, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (a->n_head % n_kv_head != 0) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: num_attention_heads %d is not a multiple of num_key_value_heads %lld",
                       c->at.label, a->n_head, (long long)n_kv_head);
    }
    if (head_dim < 1) {
        return field_error(c, "num_attention_heads exceeds hidden_size", err);
    }
    a->kind = ATTN_GQA;
    a->n_kv_head = (int32_t)n_kv_head;
    a->head_dim = a->v_head_dim = (int32_t)head_dim;
    a->scale = 1 / sqrt((double)head_dim);
    return SMOE_OK;
}

/* Whether there is a value under key in the text model's fields, else in the whole. */
static const json_at *with_field(const config *c, const char *key) {
    return json_find(c->at.object, key) ? &c->at : &c->top;
}

static int read_whole(const config *c, const config_defaults *d, spec *s, smoe_error *err) {
    int64_t context = d->context_tok, begin = -1;
    int rc = config_need(c, "hidden_size", LIMIT_DIM, &s->d_model, err);
    rc = rc ? rc : config_need(c, "vocab_size", LIMIT_VOCAB, &s->vocab_size, err);
    rc = rc ? rc
            : json_opt_int(&c->at, "max_position_embeddings", 1, LIMIT_CONTEXT_TOK, &context, err);
    s->norm = NORM_RMS;
    s->norm_eps = d->norm_eps;
    rc = rc ? rc : json_opt_positive(&c->at, "rms_norm_eps", &s->norm_eps, err);
    rc = rc ? rc
            : json_opt_bool(with_field(c, "tie_word_embeddings"), "tie_word_embeddings",
                            &s->tied_head, err);
    rc = rc ? rc
            : json_opt_int(with_field(c, "bos_token_id"), "bos_token_id", -1, s->vocab_size - 1,
                           &begin, err);
    s->context_tok = (int32_t)context;
    s->begin_id = (int32_t)begin;
    return rc;
}

int config_common(const config *c, const config_defaults *d, spec *s, arena *a, smoe_error *err) {
    int32_t n_layer;
    attn_spec attn = {0};
    int rc = config_need(c, "num_hidden_layers", LIMIT_LAYERS, &n_layer, err);
    rc = rc ? rc : spec_init(s, n_layer, a, err);
    rc = rc ? rc : read_whole(c, d, s, err);
    rc = rc ? rc : read_attention(c, d, &attn, s->d_model, err);
    rc = rc ? rc : config_rope(c, d->rope_theta, attn.head_dim, s->context_tok, &s->rope[0], err);
    if (rc != SMOE_OK) {
        return rc;
    }
    s->n_rope = 1;
    for (int32_t i = 0; i < n_layer; i++) {
        s->layer[i].attn = attn;
    }
    return SMOE_OK;
}

/* ---- end ids */

static int add_end_id(spec *s, struct json_object *value, const char *label, smoe_error *err) {
    int64_t id = 0;
    int rc = json_value_int(value, label, "eos_token_id", -1, s->vocab_size - 1, &id, err);
    if (rc != SMOE_OK || id < 0) {
        return rc; /* -1 is how some configs say none */
    }
    for (int32_t i = 0; i < s->n_end_id; i++) {
        if (s->end_id[i] == id) {
            return SMOE_OK;
        }
    }
    if (s->n_end_id == SPEC_END_IDS) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: eos_token_id names more than %d tokens",
                       label, SPEC_END_IDS);
    }
    s->end_id[s->n_end_id++] = (int32_t)id;
    return SMOE_OK;
}

/* eos_token_id: an id, a list of ids, or nothing. */
static int read_end_ids(const json_at *at, spec *s, smoe_error *err) {
    struct json_object *value = json_find(at->object, "eos_token_id");
    if (!json_object_is_type(value, json_type_array)) {
        return value ? add_end_id(s, value, at->label, err) : SMOE_OK;
    }
    int rc = SMOE_OK;
    size_t n = json_object_array_length(value);
    for (size_t i = 0; rc == SMOE_OK && i < n; i++) {
        rc = add_end_id(s, json_object_array_get_idx(value, i), at->label, err);
    }
    return rc;
}

int config_to_spec(spec *s, const family **f, struct json_object *root, const char *label,
                   struct json_object *generation, const char *generation_label, arena *a,
                   smoe_error *err) {
    config c;
    int rc = config_open(&c, root, label, err);
    rc = rc ? rc : c.family->describe(&c, s, a, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    snprintf(s->family, sizeof s->family, "%s", c.family->name);
    json_at end_at = *with_field(&c, "eos_token_id");
    if (generation && json_find(generation, "eos_token_id")) {
        end_at = (json_at){generation, generation_label, ""};
    }
    rc = read_end_ids(&end_at, s, err);
    rc = rc ? rc : spec_check(s, label, err);
    rc = rc ? rc : spec_check_runnable(s, err);
    *f = c.family;
    return rc;
}
