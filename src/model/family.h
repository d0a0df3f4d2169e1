/* Families: what turns a published config.json, or the keys of a GGUF file, into a spec, and the
 * names its tensors have. A family is one file with one constant of this type; nothing else in
 * the program knows it. */
#ifndef SMOE_MODEL_FAMILY_H
#define SMOE_MODEL_FAMILY_H

#include "model/config.h"
#include "model/gguf_config.h"
#include "model/source.h"

/* A role and its tensor's name: "{layer}" stands for the layer's number. Which roles a model has
 * and their shapes follow from the spec (bind.h), so a table names all that the family may have. */
typedef struct role_name_pattern {
    role role;
    const char *pattern;
} role_name_pattern;

typedef struct family {
    const char *name;                /* of the spec; also the first of model_type */
    const char *const *model_type;   /* of config.json, NULL at the end */
    const char *const *architecture; /* of config.json, NULL at the end */
    const role_name_pattern *tensor; /* [n_tensor]; names of the bare text model */
    size_t n_tensor;
    const char *expert[PART_COUNT]; /* by part; "{layer}" and "{expert}" */
    /* Fills the spec but for end ids; its layers are from the arena. */
    int (*describe)(const config *c, spec *s, arena *a, smoe_error *err);
    const char *gguf_arch; /* general.architecture of GGUF files; NULL: none */
    /* Fills the spec but for begin and end ids. The tensors of GGUF files have the same names in
     * every family (gguf_bind.c). */
    int (*describe_gguf)(const gguf_config *c, spec *s, arena *a, smoe_error *err);
} family;

extern const family family_qwen3_moe;
extern const family family_mixtral;
extern const family family_qwen2_moe;
extern const family family_olmoe;
extern const family family_deepseek;

/* By model_type, or by architecture when that is NULL; NULL when unknown. */
const family *family_find(const char *model_type, const char *architecture);
/* By general.architecture; NULL when unknown. */
const family *family_find_gguf(const char *arch);
/* Writes their names with ", " between, cut to what fits. */
void family_list(char *out, size_t out_bytes);
void family_list_gguf(char *out, size_t out_bytes);

#endif
