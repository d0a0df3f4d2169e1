/* Getters of GGUF values; see gguf.h. Trusts a parsed header's bounds, never its types. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf.h"

const char *gguf_type_name(gguf_type type) {
    static const char *const names[GGUF_TYPES] = {"u8",  "i8",  "u16",  "i16",  "u32",
                                                  "i32", "f32", "bool", "text", "array",
                                                  "u64", "i64", "f64"};
    return names[type];
}

const gguf_value *gguf_find(const gguf_header *h, const char *key) {
    int32_t low = 0, high = h->n_value;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        const gguf_value *v = &h->value[h->by_key[mid]];
        int order = strcmp(key, v->key);
        if (order == 0) {
            return v;
        }
        low = order > 0 ? mid + 1 : low;
        high = order > 0 ? high : mid;
    }
    return NULL;
}

/* Little-endian bytes to a number, on any machine. */
static uint64_t load(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--) {
        v = v << 8 | p[i];
    }
    return v;
}

bool gguf_int_at(const gguf_value *v, uint64_t i, int64_t *out) {
    const uint8_t *p = v->data;
    switch (v->type) {
    case GGUF_U8:
        *out = p[i];
        return true;
    case GGUF_I8:
        *out = p[i] < 128 ? p[i] : p[i] - 256;
        return true;
    case GGUF_U16:
        *out = (int64_t)load(p + 2 * i, 2);
        return true;
    case GGUF_I16:
        *out = (int16_t)load(p + 2 * i, 2);
        return true;
    case GGUF_U32:
        *out = (int64_t)load(p + 4 * i, 4);
        return true;
    case GGUF_I32:
        *out = (int32_t)load(p + 4 * i, 4);
        return true;
    case GGUF_U64:
    case GGUF_I64:
        *out = (int64_t)load(p + 8 * i, 8);
        return v->type == GGUF_I64 || *out >= 0;
    default:
        return false;
    }
}

bool gguf_number_at(const gguf_value *v, uint64_t i, double *out) {
    if (v->type == GGUF_F64) {
        uint64_t bits = load(v->data + 8 * i, 8);
        memcpy(out, &bits, sizeof bits);
        return true;
    }
    if (v->type == GGUF_F32) {
        uint32_t bits = (uint32_t)load(v->data + 4 * i, 4);
        float f;
        memcpy(&f, &bits, sizeof bits);
        *out = (double)f;
        return true;
    }
    return false;
}

void gguf_next_text(const gguf_value *v, uint64_t *at, const char **text, size_t *bytes) {
    *bytes = (size_t)load(v->data + *at, 8);
    *text = (const char *)v->data + *at + 8;
    *at += 8 + (uint64_t)*bytes;
}

/* ---- one value each */

static int missing(const char *label, const char *key, smoe_error *err) {
    return err_set(err, SMOE_ERR_FORMAT, "%s: key %s is missing", label, key);
}

static int wrong_type(const char *label, const gguf_value *v, const char *want, smoe_error *err) {
    return err_set(err, SMOE_ERR_FORMAT, "%s: %.128s must be %s, not %s%s", label, v->key, want,
                   v->is_array ? "an array of " : "", gguf_type_name(v->type));
}

int gguf_opt_int(const gguf_header *h, const char *label, const char *key, int64_t min, int64_t max,
                 int64_t *out, smoe_error *err) {
    const gguf_value *v = gguf_find(h, key);
    int64_t n = 0;
    if (!v) {
        return SMOE_OK;
    }
    bool is_int = v->type <= GGUF_I32 || v->type == GGUF_U64 || v->type == GGUF_I64;
    if (v->is_array || !is_int) {
        return wrong_type(label, v, "an integer", err);
    }
    bool fits = gguf_int_at(v, 0, &n);
    if (fits && n < min && min == 1) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s is %" PRId64 " but must be at least 1", label,
                       key, n);
    }
    if (!fits || n < min || n > max) {
        char found[24] = "beyond 2^63";
        if (fits) {
            snprintf(found, sizeof found, "%" PRId64, n);
        }
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: %s is %s, out of range (%" PRId64 " to %" PRId64 ")", label, key, found,
                       min, max);
    }
    *out = n;
    return SMOE_OK;
}

int gguf_need_int(const gguf_header *h, const char *label, const char *key, int64_t min,
                  int64_t max, int64_t *out, smoe_error *err) {
    return gguf_find(h, key) ? gguf_opt_int(h, label, key, min, max, out, err)
                             : missing(label, key, err);
}

int gguf_opt_number(const gguf_header *h, const char *label, const char *key, double *out,
                    smoe_error *err) {
    const gguf_value *v = gguf_find(h, key);
    double d = 0;
    if (!v) {
        return SMOE_OK;
    }
    if (v->is_array || !gguf_number_at(v, 0, &d)) {
        return wrong_type(label, v, "a float", err);
    }
    if (!isfinite(d)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s must be a finite number", label, key);
    }
    *out = d;
    return SMOE_OK;
}

int gguf_opt_bool(const gguf_header *h, const char *label, const char *key, bool *out,
                  smoe_error *err) {
    const gguf_value *v = gguf_find(h, key);
    if (!v) {
        return SMOE_OK;
    }
    if (v->is_array || v->type != GGUF_BOOL || v->data[0] > 1) {
        return wrong_type(label, v, "a bool (0 or 1)", err);
    }
    *out = v->data[0] == 1;
    return SMOE_OK;
}

int gguf_opt_text(const gguf_header *h, const char *label, const char *key, const char **out,
                  size_t *bytes, smoe_error *err) {
    const gguf_value *v = gguf_find(h, key);
    uint64_t at = 0;
    if (!v) {
        return SMOE_OK;
    }
    if (v->is_array || v->type != GGUF_TEXT) {
        return wrong_type(label, v, "a text", err);
    }
    gguf_next_text(v, &at, out, bytes);
    return SMOE_OK;
}

int gguf_need_text(const gguf_header *h, const char *label, const char *key, const char **out,
                   size_t *bytes, smoe_error *err) {
    return gguf_find(h, key) ? gguf_opt_text(h, label, key, out, bytes, err)
                             : missing(label, key, err);
}

int gguf_opt_array(const gguf_header *h, const char *label, const char *key, gguf_type type,
                   const gguf_value **out, smoe_error *err) {
    char want[32];
    *out = gguf_find(h, key);
    if (!*out || ((*out)->is_array && (*out)->type == type)) {
        return SMOE_OK;
    }
    snprintf(want, sizeof want, "an array of %s", gguf_type_name(type));
    return wrong_type(label, *out, want, err);
}
