/* Writing GGUF keys; see gguf.h. Values are copied as they are stored. */
#include <string.h>

#include "formats/gguf.h"

static int append_number(byte_buf *out, uint64_t v, int n, smoe_error *err) {
    uint8_t bytes[8];
    for (int i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(v >> 8 * i);
    }
    return buf_append(out, bytes, (size_t)n, err);
}

static int append_value(byte_buf *out, const gguf_value *v, smoe_error *err) {
    size_t key_bytes = strlen(v->key);
    int rc = append_number(out, key_bytes, 8, err);
    rc = rc ? rc : buf_append(out, v->key, key_bytes, err);
    rc = rc ? rc : append_number(out, v->is_array ? GGUF_ARRAY : v->type, 4, err);
    if (v->is_array) {
        rc = rc ? rc : append_number(out, v->type, 4, err);
        rc = rc ? rc : append_number(out, v->n, 8, err);
    }
    return rc ? rc : buf_append(out, v->data, (size_t)v->bytes, err);
}

int gguf_write_keys(byte_buf *out, const gguf_header *h, const char *prefix, smoe_error *err) {
    uint64_t n = 0;
    size_t prefix_bytes = strlen(prefix);
    for (int32_t i = 0; i < h->n_value; i++) {
        n += strncmp(h->value[i].key, prefix, prefix_bytes) == 0;
    }
    int rc = buf_append(out, "GGUF", GGUF_MAGIC_BYTES, err);
    rc = rc ? rc : append_number(out, GGUF_VERSION, 4, err);
    rc = rc ? rc : append_number(out, 0, 8, err);
    rc = rc ? rc : append_number(out, n, 8, err);
    for (int32_t i = 0; rc == SMOE_OK && i < h->n_value; i++) {
        if (strncmp(h->value[i].key, prefix, prefix_bytes) == 0) {
            rc = append_value(out, &h->value[i], err);
        }
    }
    return rc;
}
