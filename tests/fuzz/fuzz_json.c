/* Fuzz target: the strict JSON reader and its getters. */
#include <stdlib.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A claim that must hold for every input. */
static void must(bool claim) {
    if (!claim) {
        abort();
    }
}

static void read_fields(struct json_object *root) {
    smoe_error err;
    json_at at = {root, "input", ""};
    int64_t i = 3;
    double d = 0.5;
    bool b;
    const char *text;
    size_t text_bytes = 0;
    struct json_object *child = NULL;
    must(json_opt_int(&at, "a", 1, 9, &i, &err) != SMOE_OK || (i >= 1 && i <= 9));
    must(json_opt_number(&at, "a", 0, 1, &d, &err) != SMOE_OK || (d >= 0 && d <= 1));
    must(json_need_positive(&at, "b", &d, &err) != SMOE_OK || d > 0);
    if (json_opt_bool(&at, "b", &b, &err) != SMOE_OK) {
        must(err.code == SMOE_ERR_FORMAT && err.text[0] != '\0');
    }
    if (json_need_text(&at, "c", &text, &text_bytes, &err) == SMOE_OK) {
        must(text[text_bytes] == '\0');
    }
    if (json_need_object(&at, "d", &child, &err) == SMOE_OK) {
        must(json_object_is_type(child, json_type_object));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const unsigned flags[] = {0, JSON_UNIQUE_KEYS};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        struct json_object *root = NULL;
        smoe_error err;
        if (json_parse(&root, (const char *)data, bytes, "input", flags[i], &err) != SMOE_OK) {
            must(err.text[0] != '\0');
            continue;
        }
        if (json_object_is_type(root, json_type_object)) {
            read_fields(root);
        }
        json_object_put(root);
    }
    return 0;
}
