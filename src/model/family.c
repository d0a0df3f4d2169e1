/* The registry of families; see family.h. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

static const family *const families[] = {
    &family_qwen3_moe, &family_mixtral, &family_qwen2_moe, &family_olmoe, &family_deepseek,
};

enum { FAMILIES = sizeof families / sizeof *families };

static bool in_list(const char *const *list, const char *name) {
    while (*list && strcmp(*list, name) != 0) {
        list++;
    }
    return *list != NULL;
}

const family *family_find(const char *model_type, const char *architecture) {
    for (int i = 0; i < FAMILIES; i++) {
        if (model_type ? in_list(families[i]->model_type, model_type)
                       : architecture && in_list(families[i]->architecture, architecture)) {
            return families[i];
        }
    }
    return NULL;
}

const family *family_find_gguf(const char *arch) {
    for (int i = 0; i < FAMILIES; i++) {
        if (families[i]->gguf_arch && strcmp(families[i]->gguf_arch, arch) == 0) {
            return families[i];
        }
    }
    return NULL;
}

static void append_name(char *out, size_t out_bytes, size_t *at, const char *name) {
    if (name && *at < out_bytes) {
        int n = snprintf(out + *at, out_bytes - *at, "%s%s", *at > 0 ? ", " : "", name);
        *at += n > 0 ? (size_t)n : 0;
    }
}

void family_list(char *out, size_t out_bytes) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < FAMILIES; i++) {
        append_name(out, out_bytes, &at, families[i]->name);
    }
}

void family_list_gguf(char *out, size_t out_bytes) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < FAMILIES; i++) {
        append_name(out, out_bytes, &at, families[i]->gguf_arch);
    }
}
