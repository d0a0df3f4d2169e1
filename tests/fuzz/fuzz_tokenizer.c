/* Fuzz target: bytes up to a NUL are a tokenizer.json; with one that builds, the rest is encoded,
 * decoded and compared with what malformed bytes become. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const smoe_tokenizer *t, const char *text, size_t bytes) {
    smoe_error err;
    for (int parse_special = 0; parse_special < 2; parse_special++) {
        int32_t *ids;
        size_t n_id;
        if (smoe_tokenize(t, text, bytes, parse_special, &ids, &n_id, &err) != SMOE_OK) {
            continue;
        }
        for (size_t i = 0; i < n_id; i++) {
            if (ids[i] < 0 || (size_t)ids[i] >= smoe_tokenizer_size(t)) {
                abort();
            }
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
    if (tokenizer_build(&t, &assets, &err) == SMOE_OK) {
        encode(t, copy + text_at, size - text_at);
        smoe_tokenizer_close(t);
    }
    free(copy);
    return 0;
}
