/* The registry of families; see family.h. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

static const family *const families[] = {&family_qwen3_moe, &family_mixtral};

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

void family_list(char *out, size_t out_bytes) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < FAMILIES && at < out_bytes; i++) {
        int n = snprintf(out + at, out_bytes - at, "%s%s", i ? ", " : "", families[i]->name);
        at += n > 0 ? (size_t)n : 0;
    }
}
