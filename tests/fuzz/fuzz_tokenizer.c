/* Fuzz target: bytes up to a NUL are a tokenizer.json. When its tables can be cut out, they must be
 * those of the whole document. With one that builds, the rest is encoded, and the ids decoded. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/json_tables.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A claim that must hold for every input. */
static void must(bool claim) {
    if (!claim) {
        abort();
    }
}

static void must_equal(const text_piece *piece, struct json_object *text) {
    must((size_t)json_object_get_string_len(text) == piece->bytes &&
         memcmp(json_object_get_string(text), piece->data, piece->bytes) == 0);
}

static void compare_tables(const json_tables *t, struct json_object *model) {
    struct json_object *vocab = json_find(model, "vocab");
    struct json_object *merges = json_find(model, "merges");
    must((size_t)json_object_object_length(vocab) == t->n_token);
    must(json_object_array_length(merges) == t->n_merge);
    for (size_t i = 0; i < t->n_token; i++) {
        char *name = strndup(t->token[i].content.data, t->token[i].content.bytes);
        must(name && json_object_get_int64(json_find(vocab, name)) == t->token[i].id);
        free(name);
    }
    for (size_t i = 0; i < t->n_merge; i++) {
        struct json_object *merge = json_object_array_get_idx(merges, i);
        if (t->merge[i].right.data) {
            must_equal(&t->merge[i].left, json_object_array_get_idx(merge, 0));
            must_equal(&t->merge[i].right, json_object_array_get_idx(merge, 1));
        } else {
            must_equal(&t->merge[i].left, merge);
        }
    }
}

static void check_tables(const text_blob *json) {
    json_tables tables;
    text_blob rest = {0};
    bool is_cut;
    struct json_object *whole = NULL;
    struct json_object *cut = NULL;
    smoe_error err;
    if (json_tables_cut(&tables, json, &rest, &is_cut, &err) == SMOE_OK && is_cut) {
        int rc = json_parse(&whole, json->data, json->bytes, "whole", 0, &err);
        must(rc == json_parse(&cut, rest.data, rest.bytes, "cut", 0, &err));
        if (rc == SMOE_OK) {
            struct json_object *model = json_find(whole, "model");
            compare_tables(&tables, model);
            json_object_object_add(model, "vocab", json_object_new_object());
            json_object_object_add(model, "merges", json_object_new_array());
            must(json_object_equal(whole, cut));
        }
    }
    json_object_put(whole);
    json_object_put(cut);
    free(rest.data);
    json_tables_free(&tables);
}

static void encode(const smoe_tokenizer *t, const char *text, size_t bytes) {
    smoe_error err;
    for (int parse_special = 0; parse_special < 2; parse_special++) {
        int32_t *ids;
        size_t n_id;
        if (smoe_tokenize(t, text, bytes, parse_special, &ids, &n_id, &err) != SMOE_OK) {
            continue;
        }
        for (size_t i = 0; i < n_id; i++) {
            must(ids[i] >= 0 && (size_t)ids[i] < smoe_tokenizer_size(t));
        }
        char *back;
        size_t back_bytes;
        if (smoe_detokenize(t, ids, n_id, true, &back, &back_bytes, &err) == SMOE_OK) {
            smoe_free(back);
        }
        smoe_free(ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size + 1);
    if (!copy) {
        return 0;
    }
    memcpy(copy, data, size);
    copy[size] = '\0';
    size_t json_bytes = strlen(copy);
    size_t text_at = json_bytes < size ? json_bytes + 1 : size;
    text_assets assets = {.label = (char[]){"fuzz"}, .tokenizer_json = {copy, json_bytes}};
    smoe_tokenizer *t;
    smoe_error err;
    check_tables(&assets.tokenizer_json);
    if (tokenizer_build(&t, &assets, &err) == SMOE_OK) {
        encode(t, copy + text_at, size - text_at);
        smoe_tokenizer_close(t);
    }
    free(copy);
    return 0;
}
