/* The json-c skin; see json.h. Owns no state. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- the pass before json-c: depth, keys, escapes; it need not be a full parser */

enum { SCAN_UNIQUE_DEPTH = 2 };

typedef struct scan {
    const char *text;
    size_t bytes;
    size_t pos;
    const char *label;
    smoe_error *err;
    bool has_misread; /* an escaped pair that json-c 0.16 reads as U+FFFD */
} scan;

/* json-c takes the character of a pair for half of another one when these bits are set. */
static bool is_misread(uint32_t high, uint32_t low) {
    uint32_t cp = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return (cp & 0xf800) == 0xd800;
}

static int hex4(const scan *s, size_t at, uint32_t *out) {
    uint32_t v = 0;
    if (s->bytes - at < 4 || at > s->bytes) {
        return -1;
    }
    for (size_t i = 0; i < 4; i++) {
        char c = s->text[at + i];
        uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
        if (d == 16) {
            return -1;
        }
        v = v << 4 | d;
    }
    *out = v;
    return 0;
}

/* Reads a string whose quote is at pos; notes whether it holds an escaped NUL. */
static int scan_string(scan *s, bool *has_nul) {
    *has_nul = false;
    for (size_t i = s->pos + 1; i < s->bytes; i++) {
        char c = s->text[i];
        if (c == '"') {
            s->pos = i + 1;
            return SMOE_OK;
        }
        if (c != '\\') {
            continue;
        }
        i++;
        uint32_t unit;
        if (i >= s->bytes || s->text[i] != 'u' || hex4(s, i + 1, &unit)) {
            continue; /* json-c judges other escapes */
        }
        i += 4;
        *has_nul |= unit == 0;
        if (unit >= 0xd800 && unit <= 0xdbff) {
            uint32_t low;
            bool paired = s->bytes - i > 6 && s->text[i + 1] == '\\' && s->text[i + 2] == 'u' &&
                          hex4(s, i + 3, &low) == 0 && low >= 0xdc00 && low <= 0xdfff;
            if (!paired) {
                return err_set(s->err, SMOE_ERR_FORMAT,
                               "%s: invalid escape at byte %zu: lone surrogate", s->label, i - 5);
            }
            s->has_misread |= is_misread(unit, low);
            i += 6;
        } else if (unit >= 0xdc00 && unit <= 0xdfff) {
            return err_set(s->err, SMOE_ERR_FORMAT,
                           "%s: invalid escape at byte %zu: lone surrogate", s->label, i - 5);
        }
    }
    s->pos = s->bytes;
    return SMOE_OK; /* unterminated: json-c says so */
}

static bool next_is_colon(const scan *s) {
    size_t i = s->pos;
    while (i < s->bytes && strchr(" \t\r\n", s->text[i]) && s->text[i]) {
        i++;
    }
    return i < s->bytes && s->text[i] == ':';
}

static int scan_text(scan *s) {
    size_t depth = 0;
    while (s->pos < s->bytes) {
        char c = s->text[s->pos];
        if (c == '"') {
            bool has_nul;
            size_t start = s->pos;
            int rc = scan_string(s, &has_nul);
            if (rc != SMOE_OK) {
                return rc;
            }
            if (has_nul && next_is_colon(s)) {
                return err_set(s->err, SMOE_ERR_FORMAT, "%s: a name with a NUL inside at byte %zu",
                               s->label, start);
            }
            continue;
        }
        if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
        if (depth > LIMIT_JSON_DEPTH) {
            return err_set(s->err, SMOE_ERR_FORMAT, "%s: nesting too deep (more than %d levels)",
                           s->label, LIMIT_JSON_DEPTH);
        }
        s->pos++;
    }
    return SMOE_OK;
}

/* ---- duplicate keys: json-c offers no hook, so keys are counted in the text */

/* Counts the keys at depth 1, and in *inner those at depth level; the caller compares with what
 * json-c kept. */
static size_t count_keys(scan *s, size_t *inner, size_t level) {
    size_t depth = 0;
    size_t n = 0;
    while (s->pos < s->bytes) {
        char c = s->text[s->pos];
        if (c == '"') {
            bool has_nul;
            if (scan_string(s, &has_nul) != SMOE_OK) {
                return n;
            }
            if (next_is_colon(s)) {
                n += depth == 1;
                *inner += depth == level;
            }
            continue;
        }
        depth += c == '{' || c == '[';
        depth -= (c == '}' || c == ']') && depth > 0;
        s->pos++;
    }
    return n;
}

static size_t keys_of(struct json_object *o) {
    return json_object_is_type(o, json_type_object) ? (size_t)json_object_object_length(o) : 0;
}

static size_t keys_at_level_2(struct json_object *root) {
    size_t n = 0;
    if (!json_object_is_type(root, json_type_object)) {
        return 0;
    }
    json_object_object_foreach(root, key, value) {
        (void)key;
        n += keys_of(value);
    }
    return n;
}

/* Finds the name for the message by brute force over short strings; only runs on a bad file. */
static int duplicate_error(const char *label, smoe_error *err, const char *text, size_t bytes) {
    scan s = {.text = text, .bytes = bytes, .label = label};
    struct json_object *seen = json_object_new_object();
    size_t depth = 0;
    char name[128] = "";
    while (seen && s.pos < s.bytes && !name[0]) {
        char c = s.text[s.pos];
        if (c == '"') {
            bool has_nul;
            size_t start = s.pos + 1;
            scan_string(&s, &has_nul);
            size_t n = s.pos > start ? s.pos - 1 - start : 0;
            if (depth == 1 && n < sizeof name && next_is_colon(&s)) {
                char key[sizeof name];
                memcpy(key, text + start, n);
                key[n] = '\0';
                if (json_object_object_get_ex(seen, key, NULL)) {
                    memcpy(name, key, n + 1);
                }
                json_object_object_add(seen, key, NULL);
            }
            continue;
        }
        depth += c == '{' || c == '[';
        depth -= (c == '}' || c == ']') && depth > 0;
        s.pos++;
    }
    json_object_put(seen);
    return err_set(err, SMOE_ERR_FORMAT, "%s: duplicate name %s", label,
                   name[0] ? name : "in one object");
}

static int check_unique(struct json_object *root, const char *text, size_t bytes, const char *label,
                        smoe_error *err) {
    scan s = {.text = text, .bytes = bytes, .label = label};
    size_t inner = 0;
    if (!json_object_is_type(root, json_type_object)) {
        return SMOE_OK;
    }
    size_t n = count_keys(&s, &inner, SCAN_UNIQUE_DEPTH);
    if (n != keys_of(root) || inner != keys_at_level_2(root)) {
        return duplicate_error(label, err, text, bytes);
    }
    return SMOE_OK;
}

/* ---- parsing */

/* A copy of text with the pairs that json-c misreads as the characters they stand for; the caller's
 * (free), NULL without memory. */
static char *write_pairs(const scan *s, size_t *bytes) {
    char *out = malloc(s->bytes + 1);
    size_t n = 0;
    for (size_t i = 0; out && i < s->bytes;) {
        uint32_t high;
        uint32_t low;
        bool is_escape = s->text[i] == '\\' && s->bytes - i > 1;
        if (is_escape && s->bytes - i >= 12 && s->text[i + 1] == 'u' && !hex4(s, i + 2, &high) &&
            high >= 0xd800 && high <= 0xdbff && !hex4(s, i + 8, &low) && is_misread(high, low)) {
            n +=
                utf8_encode(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), (uint8_t *)out + n);
            i += 12;
            continue;
        }
        memcpy(out + n, s->text + i, 1 + (size_t)is_escape);
        n += 1 + (size_t)is_escape;
        i += 1 + (size_t)is_escape;
    }
    *bytes = n;
    return out;
}

/* json-c's part, once the text has passed ours. */
static int parse_checked(struct json_object **out, const char *text, size_t bytes,
                         const char *label, unsigned flags, smoe_error *err) {
    struct json_tokener *tok = json_tokener_new_ex(LIMIT_JSON_DEPTH + 2);
    if (!tok) {
        return err_no_memory(err, bytes);
    }
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8 |
                                    JSON_TOKENER_ALLOW_TRAILING_CHARS);
    struct json_object *root = json_tokener_parse_ex(tok, text, (int)bytes);
    enum json_tokener_error jerr = json_tokener_get_error(tok);
    size_t end = json_tokener_get_parse_end(tok);
    if (jerr == json_tokener_continue && bytes > 0) {
        /* a bare number ends only at a byte that is no digit */
        root = json_tokener_parse_ex(tok, " ", 1);
        jerr = json_tokener_get_error(tok);
        end = bytes;
    }
    json_tokener_free(tok);
    if (jerr != json_tokener_success) {
        json_object_put(root);
        return err_set(err, SMOE_ERR_FORMAT, "%s is not JSON: %s at byte %zu", label,
                       bytes == 0                      ? "no bytes"
                       : jerr == json_tokener_continue ? "it ends too early"
                                                       : json_tokener_error_desc(jerr),
                       end);
    }
    for (size_t i = end; i < bytes; i++) {
        if (!strchr(" \t\r\n", text[i]) || !text[i]) {
            json_object_put(root);
            return err_set(err, SMOE_ERR_FORMAT, "%s: garbage after the JSON value at byte %zu",
                           label, i);
        }
    }
    int rc = flags & JSON_UNIQUE_KEYS ? check_unique(root, text, bytes, label, err) : SMOE_OK;
    if (rc != SMOE_OK) {
        json_object_put(root);
        return rc;
    }
    *out = root;
    return SMOE_OK;
}

int json_parse(struct json_object **out, const char *text, size_t bytes, const char *label,
               unsigned flags, smoe_error *err) {
    scan s = {.text = text, .bytes = bytes, .label = label, .err = err};
    if (bytes > INT32_MAX) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: JSON of more than 2 GiB", label);
    }
    if (!utf8_valid((const uint8_t *)text, bytes)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s is not UTF-8, so it is not JSON", label);
    }
    int rc = scan_text(&s);
    if (rc != SMOE_OK || !s.has_misread) {
        return rc ? rc : parse_checked(out, text, bytes, label, flags, err);
    }
    char *copy = write_pairs(&s, &bytes);
    if (!copy) {
        return err_no_memory(err, s.bytes);
    }
    rc = parse_checked(out, copy, bytes, label, flags, err);
    free(copy);
    return rc;
}

int json_load(struct json_object **out, const char *path, uint64_t max_bytes, unsigned flags,
              smoe_error *err) {
    char *text;
    size_t bytes;
    int rc = file_read_all(path, max_bytes, &text, &bytes, err);
    if (rc == SMOE_OK) {
        rc = json_parse(out, text, bytes, path, flags, err);
        free(text);
    }
    return rc;
}

/* ---- getters */

struct json_object *json_find(struct json_object *object, const char *key) {
    struct json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value;
}

static int missing(const json_at *at, const char *key, smoe_error *err) {
    bool there = json_object_object_get_ex(at->object, key, NULL);
    return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s %s", at->label, at->parent, key,
                   there ? "is null" : "is missing");
}

static int wrong_type(const json_at *at, const char *key, const char *want, smoe_error *err) {
    return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s must be %s", at->label, at->parent, key, want);
}

int json_value_int(struct json_object *value, const char *label, const char *what, int64_t min,
                   int64_t max, int64_t *out, smoe_error *err) {
    double whole = 0;
    bool is_int = json_object_is_type(value, json_type_int);
    if (json_object_is_type(value, json_type_double)) {
        /* numbers past 2^63 and forms like 1e3 arrive as doubles */
        whole = json_object_get_double(value);
        if (!(fabs(whole) < 9.2e18) && !isnan(whole)) {
            return err_set(err, SMOE_ERR_FORMAT, "%s: %s is out of range", label, what);
        }
    }
    if (!is_int) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s must be an integer", label, what);
    }
    int64_t v = json_object_get_int64(value);
    if (v == INT64_MAX || v == INT64_MIN) {
        /* json-c saturates larger numbers to the ends of the range, so v says nothing */
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s is out of range", label, what);
    }
    if (v < min || v > max) {
        return err_set(err, SMOE_ERR_FORMAT,
                       v < min && min == 1 ? "%s: %s is %lld but must be at least %lld"
                                           : "%s: %s is %lld, out of range (%lld to %lld)",
                       label, what, (long long)v, (long long)min, (long long)max);
    }
    *out = v;
    return SMOE_OK;
}

int json_opt_int(const json_at *at, const char *key, int64_t min, int64_t max, int64_t *out,
                 smoe_error *err) {
    struct json_object *value = json_find(at->object, key);
    char what[160];
    if (!value) {
        return SMOE_OK;
    }
    snprintf(what, sizeof what, "%s%s", at->parent, key);
    return json_value_int(value, at->label, what, min, max, out, err);
}

int json_need_int(const json_at *at, const char *key, int64_t min, int64_t max, int64_t *out,
                  smoe_error *err) {
    return json_find(at->object, key) ? json_opt_int(at, key, min, max, out, err)
                                      : missing(at, key, err);
}

int json_opt_number(const json_at *at, const char *key, double min, double max, double *out,
                    smoe_error *err) {
    struct json_object *value = json_find(at->object, key);
    if (!value) {
        return SMOE_OK;
    }
    if (!json_object_is_type(value, json_type_double) &&
        !json_object_is_type(value, json_type_int)) {
        return wrong_type(at, key, "a number", err);
    }
    double v = json_object_get_double(value);
    if (!isfinite(v) || v < min || v > max) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s is %g, out of range (%g to %g)", at->label,
                       at->parent, key, v, min, max);
    }
    *out = v;
    return SMOE_OK;
}

int json_opt_positive(const json_at *at, const char *key, double *out, smoe_error *err) {
    double v = 1;
    int rc = json_opt_number(at, key, -HUGE_VAL, HUGE_VAL, &v, err);
    if (rc == SMOE_OK && v <= 0) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s is %g but must be > 0", at->label,
                       at->parent, key, v);
    }
    if (rc == SMOE_OK && json_find(at->object, key)) {
        *out = v;
    }
    return rc;
}

int json_need_positive(const json_at *at, const char *key, double *out, smoe_error *err) {
    return json_find(at->object, key) ? json_opt_positive(at, key, out, err)
                                      : missing(at, key, err);
}

int json_opt_bool(const json_at *at, const char *key, bool *out, smoe_error *err) {
    struct json_object *value = json_find(at->object, key);
    if (!value) {
        return SMOE_OK;
    }
    if (!json_object_is_type(value, json_type_boolean)) {
        return wrong_type(at, key, "true or false", err);
    }
    *out = json_object_get_boolean(value);
    return SMOE_OK;
}

int json_opt_text(const json_at *at, const char *key, const char **out, size_t *bytes,
                  smoe_error *err) {
    struct json_object *value = json_find(at->object, key);
    if (!value) {
        return SMOE_OK;
    }
    if (!json_object_is_type(value, json_type_string)) {
        return wrong_type(at, key, "a string", err);
    }
    const char *text = json_object_get_string(value);
    size_t n = (size_t)json_object_get_string_len(value);
    if (!bytes && strlen(text) != n) {
        return wrong_type(at, key, "a string without NULs", err);
    }
    *out = text;
    if (bytes) {
        *bytes = n;
    }
    return SMOE_OK;
}

int json_need_text(const json_at *at, const char *key, const char **out, size_t *bytes,
                   smoe_error *err) {
    return json_find(at->object, key) ? json_opt_text(at, key, out, bytes, err)
                                      : missing(at, key, err);
}

static int opt_container(const json_at *at, const char *key, enum json_type type, const char *want,
                         struct json_object **out, smoe_error *err) {
    struct json_object *value = json_find(at->object, key);
    if (!value) {
        return SMOE_OK;
    }
    if (!json_object_is_type(value, type)) {
        return wrong_type(at, key, want, err);
    }
    *out = value;
    return SMOE_OK;
}

int json_opt_object(const json_at *at, const char *key, struct json_object **out, smoe_error *err) {
    return opt_container(at, key, json_type_object, "an object", out, err);
}

int json_need_object(const json_at *at, const char *key, struct json_object **out,
                     smoe_error *err) {
    return json_find(at->object, key) ? json_opt_object(at, key, out, err) : missing(at, key, err);
}

int json_opt_array(const json_at *at, const char *key, struct json_object **out, smoe_error *err) {
    return opt_container(at, key, json_type_array, "an array", out, err);
}
