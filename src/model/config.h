/* Reading config.json: what all families share, in old and new spellings, with the defaults of the
 * transformers library where it has them and errors that name the field where it has none. Works
 * on parsed JSON and opens no file. */
#ifndef SMOE_MODEL_CONFIG_H
#define SMOE_MODEL_CONFIG_H

#include "base/json.h"
#include "model/spec.h"

struct family;

typedef struct config {
    json_at at;  /* the text model's fields: the whole, or its text_config */
    json_at top; /* the whole */
    const struct family *family;
} config;

/* Finds the family of a parsed config.json and refuses what no family may have (quantised weights).
 * label names the file. The config borrows root and label. */
int config_open(config *c, struct json_object *root, const char *label, smoe_error *err);

/* The whole way from text to a checked spec that this version runs. generation (may be NULL) is the
 * parsed generation_config.json, whose end ids take precedence. */
int config_to_spec(spec *s, const struct family **f, struct json_object *root, const char *label,
                   struct json_object *generation, const char *generation_label, arena *a,
                   smoe_error *err);

/* A family's defaults: what its configuration class in transformers has. */
typedef struct config_defaults {
    double rope_theta;
    double norm_eps;
    int32_t n_kv_head; /* when the field is absent; null means one for each head */
    int32_t context_tok;
} config_defaults;

/* Sizes, norm, rope, head, begin id; and in each layer the attention of a plain grouped-query
 * model: heads, scale, no biases, no window. Takes the layers from the arena. */
int config_common(const config *c, const config_defaults *d, spec *s, arena *a, smoe_error *err);

/* hidden_act. */
int config_act(const config *c, act_kind *out, smoe_error *err);
/* n_expert and n_expert_used, checked against each other: num_experts or num_local_experts. */
int config_experts(const config *c, int32_t *n_expert, int32_t *n_expert_used, smoe_error *err);
/* Sets the kind of every layer's FFN, as the Qwen families name it: dense for those of
 * mlp_only_layers, the others a mixture where decoder_sparse_step says so. */
int config_sparse_layers(const config *c, spec *s, smoe_error *err);
/* A required whole number from 1 to max. */
int config_need(const config *c, const char *key, int64_t max, int32_t *out, smoe_error *err);
/* layer_types: sliding[i] for each of n_layer layers; *has_types says whether the field is there.
 */
int config_layer_types(const config *c, int32_t n_layer, bool *sliding, bool *has_types,
                       smoe_error *err);

#endif
