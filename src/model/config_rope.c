/* Rotary positions in config.json; see config_rope.h. Follows transformers' modeling_rope_utils in
 * what is read, what is assumed, and how yarn's attention factor comes about. */
#include "model/config_rope.h"

#include <math.h>
#include <string.h>

/* Where the rope's own fields stand: rope_scaling before rope_parameters, as transformers takes
 * them; an empty object when there is neither. */
static int rope_object(const config *c, json_at *out, struct json_object *empty, smoe_error *err) {
    struct json_object *scaling = NULL;
    struct json_object *parameters = NULL;
    int rc = json_opt_object(&c->at, "rope_scaling", &scaling, err);
    if (rc == SMOE_OK) {
        rc = json_opt_object(&c->at, "rope_parameters", &parameters, err);
    }
    *out = (json_at){scaling      ? scaling
                     : parameters ? parameters
                                  : empty,
                     c->at.label, scaling ? "rope_scaling." : "rope_parameters."};
    if (rc != SMOE_OK) {
        return rc;
    }
    json_object_object_foreach(out->object, key, value) {
        if (json_object_is_type(value, json_type_object)) {
            return err_set(err, SMOE_ERR_UNSUPPORTED,
                           "%s: %s%.64s: rotary positions that differ between layer types are not "
                           "supported for this family",
                           out->label, out->parent, key);
        }
    }
    return SMOE_OK;
}

static int rope_kind(const json_at *at, rope_scaling *out, smoe_error *err) {
    static const struct {
        const char *name;
        rope_scaling kind;
    } kinds[] = {{"default", ROPE_PLAIN},
                 {"linear", ROPE_LINEAR},
                 {"yarn", ROPE_YARN},
                 {"llama3", ROPE_LLAMA3}};
    const char *name = "default";
    int rc = json_opt_text(at, "type", &name, NULL, err);
    if (rc == SMOE_OK) {
        rc = json_opt_text(at, "rope_type", &name, NULL, err);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            *out = kinds[i].kind;
            return SMOE_OK;
        }
    }
    return err_set(err, SMOE_ERR_UNSUPPORTED,
                   "%s: rope type %.64s is not supported (default, linear, yarn and llama3 are)",
                   at->label, name);
}

static double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static int read_yarn(const json_at *at, rope_spec *r, smoe_error *err) {
    double mscale = 0, mscale_all = 0, attention = 0;
    int rc = json_opt_number(at, "mscale", 0, 1e6, &mscale, err);
    rc = rc ? rc : json_opt_number(at, "mscale_all_dim", 0, 1e6, &mscale_all, err);
    rc = rc ? rc : json_opt_positive(at, "attention_factor", &attention, err);
    rc = rc ? rc : json_opt_positive(at, "beta_fast", &r->beta_fast, err);
    rc = rc ? rc : json_opt_positive(at, "beta_slow", &r->beta_slow, err);
    rc = rc ? rc : json_opt_bool(at, "truncate", &r->truncate, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    bool both = mscale > 0 && mscale_all > 0;
    r->attention_factor = attention > 0 ? attention
                          : both
                              ? yarn_mscale(r->factor, mscale) / yarn_mscale(r->factor, mscale_all)
                              : yarn_mscale(r->factor, 1);
    return SMOE_OK;
}

static int read_llama3(const json_at *at, rope_spec *r, smoe_error *err) {
    int rc = json_need_positive(at, "low_freq_factor", &r->low_freq_factor, err);
    return rc ? rc : json_need_positive(at, "high_freq_factor", &r->high_freq_factor, err);
}

/* The context the model was first trained for: beside the other fields, or at the top, or the
 * whole context. */
static int read_original(const config *c, const json_at *at, int32_t context_tok, rope_spec *r,
                         smoe_error *err) {
    static const char key[] = "original_max_position_embeddings";
    int64_t v = context_tok;
    int rc = json_opt_int(&c->at, key, 1, LIMIT_CONTEXT_TOK, &v, err);
    rc = rc ? rc : json_opt_int(at, key, 1, LIMIT_CONTEXT_TOK, &v, err);
    r->original_context_tok = (int32_t)v;
    return rc;
}

static int read_rope(const config *c, const json_at *at, int32_t head_dim, int32_t context_tok,
                     rope_spec *r, smoe_error *err) {
    double partial = 1;
    int rc = rope_kind(at, &r->scaling, err);
    rc = rc ? rc : json_opt_positive(&c->at, "rope_theta", &r->theta, err);
    rc = rc ? rc : json_opt_positive(at, "rope_theta", &r->theta, err);
    rc = rc ? rc : json_opt_number(&c->at, "partial_rotary_factor", 0, 1, &partial, err);
    rc = rc ? rc : json_opt_number(at, "partial_rotary_factor", 0, 1, &partial, err);
    r->dim = (int32_t)(head_dim * partial);
    if (rc == SMOE_OK && r->scaling != ROPE_PLAIN) {
        rc = json_need_positive(at, "factor", &r->factor, err);
    }
    if (rc == SMOE_OK && (r->scaling == ROPE_YARN || r->scaling == ROPE_LLAMA3)) {
        rc = read_original(c, at, context_tok, r, err);
    }
    if (rc == SMOE_OK && r->scaling == ROPE_YARN) {
        rc = read_yarn(at, r, err);
    }
    if (rc == SMOE_OK && r->scaling == ROPE_LLAMA3) {
        rc = read_llama3(at, r, err);
    }
    return rc;
}

int config_rope(const config *c, double default_theta, int32_t head_dim, int32_t context_tok,
                rope_spec *out, smoe_error *err) {
    json_at at;
    struct json_object *empty = json_object_new_object();
    if (!empty) {
        return err_no_memory(err, sizeof *out);
    }
    out->theta = default_theta;
    int rc = rope_object(c, &at, empty, err);
    if (rc == SMOE_OK) {
        rc = read_rope(c, &at, head_dim, context_tok, out, err);
    }
    json_object_put(empty);
    return rc;
}
