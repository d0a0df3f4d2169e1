/* What a model is, from headers alone: smoe_describe and the defaults its text files hold. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "conductor/model.h"

static void count_params(smoe_info *out, const source *s) {
    uint64_t dense = 0;
    uint64_t expert = 0;
    uint64_t active = 0;
    for (int r = 0; r < ROLE_FIRST_OF_LAYER; r++) {
        dense += (uint64_t)s->global[r].n_row * (uint64_t)s->global[r].n_col;
    }
    for (int32_t l = 0; l < s->spec.n_layer; l++) {
        for (int r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT; r++) {
            dense += (uint64_t)s->layer[l][r].n_row * (uint64_t)s->layer[l][r].n_col;
        }
        const ffn_spec *f = &s->spec.layer[l].ffn;
        uint64_t one = f->kind == FFN_MOE ? 3 * (uint64_t)f->width * (uint64_t)s->spec.d_model : 0;
        expert += one * (uint64_t)f->n_expert;
        active += one * (uint64_t)f->n_expert_used;
    }
    out->n_param = dense + expert;
    out->n_param_active = dense + active;
}

static void expert_type(char out[16], const source *s) {
    dtype first = DT_NONE;
    for (int32_t l = 0; l < s->n_moe_layer; l++) {
        for (int p = 0; p < PART_COUNT; p++) {
            dtype t = source_expert(s, l, 0)->part[p].type;
            if (first != DT_NONE && t != first) {
                snprintf(out, 16, "mixed");
                return;
            }
            first = t;
        }
    }
    snprintf(out, 16, "%s", dtype_get(first)->name);
}

void info_from_source(smoe_info *out, const source *s) {
    *out = (smoe_info){.n_layer = s->spec.n_layer,
                       .n_moe_layer = s->n_moe_layer,
                       .d_model = s->spec.d_model,
                       .vocab_size = s->spec.vocab_size,
                       .context_tok = s->spec.context_tok,
                       .expert_bytes = source_max_expert_bytes(s),
                       .experts_bytes = source_experts_bytes(s),
                       .token_cycle_bytes = source_token_cycle_bytes(s),
                       .smallest_ring_bytes = streamer_ring_floor(s),
                       .scout_bytes = source_scout_bytes(s),
                       .kv_token_bytes = spec_kv_token_bytes(&s->spec, 1, 2),
                       .kv_q8_token_bytes = spec_kv_token_bytes(&s->spec, 32, sizeof(block_q8))};
    snprintf(out->family, sizeof out->family, "%s", s->spec.family);
    snprintf(out->container, sizeof out->container, "%s",
             s->kind == CONTAINER_VAULT  ? "vault"
             : s->kind == CONTAINER_GGUF ? "gguf"
                                         : "checkpoint");
    if (s->n_moe_layer > 0) {
        const ffn_spec *f = &s->spec.layer[spec_moe_layer(&s->spec, 0)].ffn;
        out->n_expert = f->n_expert;
        out->n_expert_used = f->n_expert_used;
        out->expert_width_dim = f->width;
    }
    expert_type(out->expert_type, s);
    count_params(out, s);
}

int smoe_describe(const char *path, smoe_info *out, smoe_error *err) {
    source *s;
    int rc = source_open(&s, path, err);
    if (rc == SMOE_OK) {
        info_from_source(out, s);
        source_close(s);
    }
    return rc;
}

static void add_number(struct json_object *o, const char *key, uint64_t v) {
    json_object_object_add(o, key, json_object_new_uint64(v));
}

static struct json_object *info_json(const smoe_info *i) {
    struct json_object *o = json_object_new_object();
    json_object_object_add(o, "family", json_object_new_string(i->family));
    json_object_object_add(o, "container", json_object_new_string(i->container));
    json_object_object_add(o, "expert_type", json_object_new_string(i->expert_type));
    add_number(o, "n_layer", (uint64_t)i->n_layer);
    add_number(o, "n_moe_layer", (uint64_t)i->n_moe_layer);
    add_number(o, "d_model", (uint64_t)i->d_model);
    add_number(o, "vocab_size", (uint64_t)i->vocab_size);
    add_number(o, "n_expert", (uint64_t)i->n_expert);
    add_number(o, "n_expert_used", (uint64_t)i->n_expert_used);
    add_number(o, "expert_width_dim", (uint64_t)i->expert_width_dim);
    add_number(o, "context_tok", (uint64_t)i->context_tok);
    add_number(o, "n_param", i->n_param);
    add_number(o, "n_param_active", i->n_param_active);
    add_number(o, "expert_bytes", i->expert_bytes);
    add_number(o, "experts_bytes", i->experts_bytes);
    add_number(o, "token_cycle_bytes", i->token_cycle_bytes);
    add_number(o, "smallest_ring_bytes", i->smallest_ring_bytes);
    add_number(o, "scout_bytes", i->scout_bytes);
    add_number(o, "kv_token_bytes", i->kv_token_bytes);
    add_number(o, "kv_q8_token_bytes", i->kv_q8_token_bytes);
    return o;
}

int smoe_describe_json(const char *path, char **json, smoe_error *err) {
    source *s;
    smoe_info info;
    struct json_object *described = NULL;
    int rc = source_open(&s, path, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    info_from_source(&info, s);
    rc = spec_to_json(&s->spec, &described, err);
    source_close(s);
    if (rc != SMOE_OK) {
        return rc;
    }
    struct json_object *o = info_json(&info);
    json_object_object_add(o, "spec", described);
    const char *text = json_object_to_json_string_ext(
        o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
    char *copy = text ? mem_copy_text(text, strlen(text)) : NULL;
    json_object_put(o);
    if (!copy) {
        return err_no_memory(err, 4096);
    }
    *json = copy;
    return SMOE_OK;
}

int sampling_from_text(smoe_sampling *out, const text_assets *text, smoe_error *err) {
    struct json_object *root = NULL;
    *out = (smoe_sampling){.temperature = 0.7f,
                           .top_p = 0.95f,
                           .repetition_penalty = 1,
                           .typical_p = 1,
                           .xtc_threshold = 0.1f,
                           .dry_base = 1.75f,
                           .dry_allowed_tok = 2,
                           .mirostat_eta = 0.1f};
    if (!text->generation.data) {
        return SMOE_OK;
    }
    int rc = json_parse(&root, text->generation.data, text->generation.bytes,
                        "generation_config.json", 0, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (!json_object_is_type(root, json_type_object)) {
        json_object_put(root);
        return err_set(err, SMOE_ERR_FORMAT, "generation_config.json must be an object");
    }
    json_at at = {root, "generation_config.json", ""};
    bool sample = true;
    int64_t top_k = out->top_k;
    double t = (double)out->temperature, top_p = 1, min_p = 0, typical_p = 1, penalty = 1;
    rc = json_opt_bool(&at, "do_sample", &sample, err);
    rc = rc ? rc : json_opt_number(&at, "temperature", 0, 100, &t, err);
    rc = rc ? rc : json_opt_int(&at, "top_k", -1, INT32_MAX, &top_k, err);
    rc = rc ? rc : json_opt_number(&at, "top_p", 0, 1, &top_p, err);
    rc = rc ? rc : json_opt_number(&at, "min_p", 0, 1, &min_p, err);
    rc = rc ? rc : json_opt_number(&at, "typical_p", 1e-6, 1, &typical_p, err);
    rc = rc ? rc : json_opt_number(&at, "repetition_penalty", 1e-6, 100, &penalty, err);
    json_object_put(root);
    if (rc == SMOE_OK) {
        out->temperature = sample ? (float)t : 0;
        out->top_k = top_k > 0 ? (int32_t)top_k : 0;   /* -1 and 0 both mean off */
        out->top_p = top_p > 0 ? (float)top_p : 1e-6f; /* 0 keeps the likeliest alone */
        out->min_p = (float)min_p;
        out->typical_p = (float)typical_p;
        out->repetition_penalty = (float)penalty;
    }
    return rc;
}
