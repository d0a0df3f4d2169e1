/* Reading a spec from GGUF keys: what all architectures share, with llama.cpp's defaults where it
 * has them and errors that name the key where it has none. The twin of config.h; opens no file. */
#ifndef SMOE_MODEL_GGUF_CONFIG_H
#define SMOE_MODEL_GGUF_CONFIG_H

#include "formats/gguf.h"
#include "model/spec.h"

struct family;

enum { GGUF_ARCH_BYTES = 32, GGUF_CONFIG_KEY_BYTES = 128 };

typedef struct gguf_config {
    const gguf_header *header;
    const tensor_table *table; /* of all files */
    const char *label;         /* names the file */
    const struct family *family;
    char arch[GGUF_ARCH_BYTES]; /* general.architecture: the prefix of the keys below */
} gguf_config;

/* The whole way from keys to a checked spec that this version runs, but for its begin and end ids
 * (gguf_text_ids). */
int gguf_to_spec(spec *s, const gguf_header *h, const tensor_table *table, const char *label,
                 arena *a, smoe_error *err);

/* A required whole number from 1 to max, under "ARCH.key". */
int gguf_config_need(const gguf_config *c, const char *key, int64_t max, int32_t *out,
                     smoe_error *err);
/* From min to max; leaves *out alone when the key is not there. */
int gguf_config_opt(const gguf_config *c, const char *key, int64_t min, int64_t max, int32_t *out,
                    smoe_error *err);
/* The same for keys that may be an array with a value for each of n_layer layers. */
int gguf_config_of_layer(const gguf_config *c, const char *key, int32_t layer, int32_t n_layer,
                         int64_t min, int64_t max, int32_t *out, smoe_error *err);
/* Whether tensor blk.LAYER.name is there. */
bool gguf_config_has(const gguf_config *c, int32_t layer, const char *name);

/* Sizes, norm, rope, head; and in each layer the attention of a plain grouped-query model, its
 * biases where their tensors are. interleaved: the architecture rotates neighbouring values. Takes
 * the layers from the arena. */
int gguf_config_common(const gguf_config *c, bool interleaved, spec *s, arena *a, smoe_error *err);
/* n_expert and n_expert_used of f, checked against each other; and the router. s->router.normalise
 * and score are the architecture's defaults before. */
int gguf_config_experts(const gguf_config *c, spec *s, ffn_spec *f, smoe_error *err);
/* Gives every layer this FFN, moe_index counted; all are mixtures. */
void gguf_config_all_moe(spec *s, ffn_spec f);

#endif
