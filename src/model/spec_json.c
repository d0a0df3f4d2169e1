/* The spec as JSON and back; see spec.h. One table for each struct names its fields, so the two
 * directions cannot drift apart. Reading is strict: every field must be there and none besides. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "model/spec.h"

typedef enum field_kind { FIELD_INT, FIELD_NUMBER, FIELD_BOOL, FIELD_NAME, FIELD_TEXT } field_kind;

typedef struct field {
    const char *key;
    size_t at; /* offset in the struct */
    field_kind kind;
    const char *const *name; /* FIELD_NAME: of each value of the enum, NULL at the end */
    size_t text_bytes;       /* FIELD_TEXT: room, NUL included */
} field;

static const char *const attn_names[] = {"gqa", "latent", "linear", "ssm", "short_conv", NULL};
static const char *const ffn_names[] = {"dense", "moe", "none", NULL};
static const char *const act_names[] = {"silu", "gelu", "gelu_tanh", "relu2", "swiglu_clamp", NULL};
static const char *const qk_norm_names[] = {"none", "head", "whole", NULL};
static const char *const norm_names[] = {"rms", "rms_plus_one", "layer", NULL};
static const char *const score_names[] = {"softmax", "softmax_selected", "sigmoid", "sqrt_softplus",
                                          NULL};
static const char *const rope_names[] = {"plain", "linear", "yarn", "llama3", "none", NULL};

/* Enums are read and written as int32_t. */
_Static_assert(sizeof(attn_kind) == 4 && sizeof(ffn_kind) == 4 && sizeof(act_kind) == 4 &&
                   sizeof(norm_kind) == 4 && sizeof(router_score) == 4 &&
                   sizeof(rope_scaling) == 4 && sizeof(qk_norm_kind) == 4,
               "enums of four bytes");

#define INT(type, member)                                                                          \
    { #member, offsetof(type, member), FIELD_INT, NULL, 0 }
#define NUMBER(type, member)                                                                       \
    { #member, offsetof(type, member), FIELD_NUMBER, NULL, 0 }
#define BOOL(type, member)                                                                         \
    { #member, offsetof(type, member), FIELD_BOOL, NULL, 0 }
#define NAME(type, member, names)                                                                  \
    { #member, offsetof(type, member), FIELD_NAME, names, 0 }
#define END                                                                                        \
    { NULL, 0, FIELD_INT, NULL, 0 }

static const field spec_fields[] = {
    {"family", offsetof(spec, family), FIELD_TEXT, NULL, sizeof((spec *)0)->family},
    INT(spec, n_layer),
    INT(spec, d_model),
    INT(spec, vocab_size),
    INT(spec, context_tok),
    NAME(spec, norm, norm_names),
    NUMBER(spec, norm_eps),
    BOOL(spec, tied_head),
    BOOL(spec, scaled_head),
    NUMBER(spec, embed_scale),
    NUMBER(spec, residual_scale),
    NUMBER(spec, logit_scale),
    NUMBER(spec, logit_softcap),
    INT(spec, begin_id),
    END,
};

static const field router_fields[] = {
    NAME(router_spec, score, score_names),
    BOOL(router_spec, normalise),
    NUMBER(router_spec, scale),
    BOOL(router_spec, bias),
    BOOL(router_spec, correction),
    INT(router_spec, n_group),
    INT(router_spec, n_group_used),
    END,
};

static const field rope_fields[] = {
    NAME(rope_spec, scaling, rope_names),
    BOOL(rope_spec, interleaved),
    INT(rope_spec, dim),
    NUMBER(rope_spec, theta),
    NUMBER(rope_spec, factor),
    NUMBER(rope_spec, attention_factor),
    NUMBER(rope_spec, beta_fast),
    NUMBER(rope_spec, beta_slow),
    BOOL(rope_spec, truncate),
    INT(rope_spec, original_context_tok),
    NUMBER(rope_spec, low_freq_factor),
    NUMBER(rope_spec, high_freq_factor),
    BOOL(rope_spec, has_divisors),
    END,
};

static const field attn_fields[] = {
    NAME(attn_spec, kind, attn_names),
    INT(attn_spec, n_head),
    INT(attn_spec, n_kv_head),
    INT(attn_spec, head_dim),
    INT(attn_spec, v_head_dim),
    INT(attn_spec, window_tok),
    INT(attn_spec, rope),
    NUMBER(attn_spec, scale),
    NUMBER(attn_spec, softcap),
    NUMBER(attn_spec, clip),
    INT(attn_spec, scaled),
    BOOL(attn_spec, qkv_bias),
    BOOL(attn_spec, o_bias),
    NAME(attn_spec, qk_norm, qk_norm_names),
    BOOL(attn_spec, sinks),
    BOOL(attn_spec, gated),
    END,
};

static const field ffn_fields[] = {
    NAME(ffn_spec, kind, ffn_names), INT(ffn_spec, width),         INT(ffn_spec, moe_index),
    INT(ffn_spec, n_expert),         INT(ffn_spec, n_expert_used), INT(ffn_spec, shared_width),
    BOOL(ffn_spec, shared_gate),     INT(ffn_spec, scaled),        BOOL(ffn_spec, bias),
    NAME(ffn_spec, act, act_names),  NUMBER(ffn_spec, clamp),      END,
};

/* ---- writing */

/* Adds a fresh value to an object; takes it over in any case. */
static int put(struct json_object *to, const char *key, struct json_object *value,
               smoe_error *err) {
    if (!value || json_object_object_add(to, key, value) != 0) {
        json_object_put(value);
        return err_no_memory(err, strlen(key));
    }
    return SMOE_OK;
}

static struct json_object *field_value(const field *f, const char *from) {
    int32_t i;
    double d;
    bool b;
    switch (f->kind) {
    case FIELD_INT:
        memcpy(&i, from + f->at, sizeof i);
        return json_object_new_int(i);
    case FIELD_NUMBER:
        memcpy(&d, from + f->at, sizeof d);
        return json_object_new_double(d);
    case FIELD_BOOL:
        memcpy(&b, from + f->at, sizeof b);
        return json_object_new_boolean(b);
    case FIELD_NAME:
        memcpy(&i, from + f->at, sizeof i);
        return json_object_new_string(f->name[i]);
    case FIELD_TEXT:
        break;
    }
    return json_object_new_string(from + f->at);
}

static int put_fields(struct json_object *to, const field *f, const void *from, smoe_error *err) {
    int rc = SMOE_OK;
    for (; rc == SMOE_OK && f->key; f++) {
        rc = put(to, f->key, field_value(f, from), err);
    }
    return rc;
}

/* Adds an object of these fields under key, or to an array when key is NULL. */
static int put_struct(struct json_object *to, const char *key, const field *f, const void *from,
                      smoe_error *err) {
    struct json_object *o = json_object_new_object();
    int rc = o ? put_fields(o, f, from, err) : err_no_memory(err, sizeof *f);
    if (rc != SMOE_OK) {
        json_object_put(o);
        return rc;
    }
    if (key) {
        return put(to, key, o, err);
    }
    if (json_object_array_add(to, o) != 0) {
        json_object_put(o);
        return err_no_memory(err, sizeof *f);
    }
    return SMOE_OK;
}

static int put_layers(struct json_object *array, const spec *s, smoe_error *err) {
    int rc = SMOE_OK;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        struct json_object *o = json_object_new_object();
        if (!o || json_object_array_add(array, o) != 0) {
            json_object_put(o);
            return err_no_memory(err, sizeof(layer_spec));
        }
        rc = put_struct(o, "attn", attn_fields, &s->layer[i].attn, err);
        if (rc == SMOE_OK) {
            rc = put_struct(o, "ffn", ffn_fields, &s->layer[i].ffn, err);
        }
    }
    return rc;
}

static int fill_json(struct json_object *root, const spec *s, smoe_error *err) {
    struct json_object *ids = json_object_new_array();
    struct json_object *ropes = json_object_new_array();
    struct json_object *layers = json_object_new_array();
    int rc = put_fields(root, spec_fields, s, err);
    int rc_ids = put(root, "end_id", ids, err);
    int rc_router = put_struct(root, "router", router_fields, &s->router, err);
    int rc_ropes = put(root, "rope", ropes, err);
    int rc_layers = put(root, "layer", layers, err);
    rc = rc ? rc : rc_ids ? rc_ids : rc_router ? rc_router : rc_ropes ? rc_ropes : rc_layers;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_end_id; i++) {
        if (json_object_array_add(ids, json_object_new_int(s->end_id[i])) != 0) {
            rc = err_no_memory(err, sizeof(int32_t));
        }
    }
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_rope; i++) {
        rc = put_struct(ropes, NULL, rope_fields, &s->rope[i], err);
    }
    return rc == SMOE_OK ? put_layers(layers, s, err) : rc;
}

int spec_to_json(const spec *s, struct json_object **out, smoe_error *err) {
    int rc = spec_check(s, "spec", err);
    if (rc != SMOE_OK) {
        return rc;
    }
    struct json_object *root = json_object_new_object();
    rc = root ? fill_json(root, s, err) : err_no_memory(err, sizeof *s);
    if (rc != SMOE_OK) {
        json_object_put(root);
        return rc;
    }
    *out = root;
    return SMOE_OK;
}

/* ---- reading */

static int get_name(const field *f, const json_at *at, int32_t *out, smoe_error *err) {
    const char *text;
    int rc = json_need_text(at, f->key, &text, NULL, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (int32_t i = 0; f->name[i]; i++) {
        if (strcmp(f->name[i], text) == 0) {
            *out = i;
            return SMOE_OK;
        }
    }
    return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: %s%s \"%.64s\" is not known to this version",
                   at->label, at->parent, f->key, text);
}

static int get_text(const field *f, const json_at *at, char *to, smoe_error *err) {
    const char *text;
    int rc = json_need_text(at, f->key, &text, NULL, err);
    if (rc == SMOE_OK && strlen(text) >= f->text_bytes) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %s%s is longer than %zu bytes", at->label,
                     at->parent, f->key, f->text_bytes - 1);
    }
    if (rc == SMOE_OK) {
        memset(to + f->at, 0, f->text_bytes);
        memcpy(to + f->at, text, strlen(text));
    }
    return rc;
}

static int get_field(const field *f, const json_at *at, char *to, smoe_error *err) {
    int64_t v = 0;
    int32_t i = 0;
    double d = 0;
    bool b = false;
    int rc = SMOE_OK;
    switch (f->kind) {
    case FIELD_INT:
        rc = json_need_int(at, f->key, INT32_MIN, INT32_MAX, &v, err);
        i = (int32_t)v;
        memcpy(to + f->at, &i, sizeof i);
        break;
    case FIELD_NUMBER:
        rc = json_opt_number(at, f->key, -HUGE_VAL, HUGE_VAL, &d, err);
        memcpy(to + f->at, &d, sizeof d);
        break;
    case FIELD_BOOL:
        rc = json_opt_bool(at, f->key, &b, err);
        memcpy(to + f->at, &b, sizeof b);
        break;
    case FIELD_NAME:
        rc = get_name(f, at, &i, err);
        memcpy(to + f->at, &i, sizeof i);
        break;
    case FIELD_TEXT:
        rc = get_text(f, at, to, err);
        break;
    }
    return rc;
}

/* Refuses keys beside those of the table and the NULL-terminated list others. */
static int check_keys(const json_at *at, const field *fields, const char *const *others,
                      smoe_error *err) {
    json_object_object_foreach(at->object, key, value) {
        bool known = false;
        (void)value;
        for (const field *f = fields; f && f->key; f++) {
            known |= strcmp(f->key, key) == 0;
        }
        for (const char *const *o = others; o && *o; o++) {
            known |= strcmp(*o, key) == 0;
        }
        if (!known) {
            return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: %s%.64s is not known to this version",
                           at->label, at->parent, key);
        }
    }
    return SMOE_OK;
}

static int get_fields(const json_at *at, const field *fields, const char *const *others, void *to,
                      smoe_error *err) {
    int rc = check_keys(at, fields, others, err);
    for (const field *f = fields; rc == SMOE_OK && f->key; f++) {
        if (!json_find(at->object, f->key)) {
            return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s is missing", at->label, at->parent,
                           f->key);
        }
        rc = get_field(f, at, to, err);
    }
    return rc;
}

/* The object under key, read by the table. */
static int get_struct(const json_at *at, const char *key, const char *parent, const field *fields,
                      void *to, smoe_error *err) {
    struct json_object *o;
    int rc = json_need_object(at, key, &o, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    json_at inner = {o, at->label, parent};
    return get_fields(&inner, fields, NULL, to, err);
}

static int need_array(const json_at *at, const char *key, size_t min, size_t max,
                      struct json_object **out, smoe_error *err) {
    *out = NULL;
    int rc = json_opt_array(at, key, out, err);
    size_t n = rc == SMOE_OK && *out ? json_object_array_length(*out) : 0;
    if (rc == SMOE_OK && (!*out || n < min || n > max)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %s must be an array of %zu to %zu values",
                     at->label, key, min, max);
    }
    return rc;
}

/* Member i of an array, which must be an object. */
static int array_object(struct json_object *array, size_t i, const char *label, const char *what,
                        json_at *out, smoe_error *err) {
    struct json_object *o = json_object_array_get_idx(array, i);
    if (!json_object_is_type(o, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s%zu must be an object", label, what, i);
    }
    *out = (json_at){o, label, what};
    return SMOE_OK;
}

static int get_end_ids(const json_at *at, spec *s, smoe_error *err) {
    struct json_object *ids;
    int rc = need_array(at, "end_id", 0, SPEC_END_IDS, &ids, err);
    s->n_end_id = rc == SMOE_OK ? (int32_t)json_object_array_length(ids) : 0;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_end_id; i++) {
        int64_t v = 0;
        rc = json_value_int(json_object_array_get_idx(ids, (size_t)i), at->label, "end_id", 0,
                            INT32_MAX, &v, err);
        s->end_id[i] = (int32_t)v;
    }
    return rc;
}

static int get_ropes(const json_at *at, spec *s, smoe_error *err) {
    struct json_object *ropes;
    int rc = need_array(at, "rope", 1, SPEC_ROPES, &ropes, err);
    s->n_rope = rc == SMOE_OK ? (int32_t)json_object_array_length(ropes) : 0;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_rope; i++) {
        json_at one;
        rc = array_object(ropes, (size_t)i, at->label, "rope.", &one, err);
        if (rc == SMOE_OK) {
            rc = get_fields(&one, rope_fields, NULL, &s->rope[i], err);
        }
    }
    return rc;
}

static int get_layers(struct json_object *layers, const char *label, spec *s, smoe_error *err) {
    static const char *const keys[] = {"attn", "ffn", NULL};
    int rc = SMOE_OK;
    for (int32_t i = 0; rc == SMOE_OK && i < s->n_layer; i++) {
        json_at one;
        rc = array_object(layers, (size_t)i, label, "layer.", &one, err);
        if (rc == SMOE_OK) {
            rc = check_keys(&one, NULL, keys, err);
        }
        if (rc == SMOE_OK) {
            rc = get_struct(&one, "attn", "layer.attn.", attn_fields, &s->layer[i].attn, err);
        }
        if (rc == SMOE_OK) {
            rc = get_struct(&one, "ffn", "layer.ffn.", ffn_fields, &s->layer[i].ffn, err);
        }
    }
    return rc;
}

int spec_from_json(spec *s, struct json_object *json, const char *label, arena *a,
                   smoe_error *err) {
    static const char *const parts[] = {"end_id", "router", "rope", "layer", NULL};
    struct json_object *layers;
    json_at at = {json, label, ""};
    if (!json_object_is_type(json, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: the spec must be an object", label);
    }
    int rc = need_array(&at, "layer", 1, LIMIT_LAYERS, &layers, err);
    if (rc == SMOE_OK) {
        rc = spec_init(s, (int32_t)json_object_array_length(layers), a, err);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    int32_t n_layer = s->n_layer;
    rc = get_fields(&at, spec_fields, parts, s, err);
    if (rc == SMOE_OK && s->n_layer != n_layer) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: n_layer is %d, but layer has %d", label, s->n_layer,
                     n_layer);
    }
    if (rc == SMOE_OK) {
        rc = get_end_ids(&at, s, err);
    }
    if (rc == SMOE_OK) {
        rc = get_struct(&at, "router", "router.", router_fields, &s->router, err);
    }
    if (rc == SMOE_OK) {
        rc = get_ropes(&at, s, err);
    }
    if (rc == SMOE_OK) {
        rc = get_layers(layers, label, s, err);
    }
    return rc == SMOE_OK ? spec_check(s, label, err) : rc;
}
