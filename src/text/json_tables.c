/* Cutting the tables out of a tokenizer.json; see json_tables.h. One pass, which gives up at the
 * first thing that is not plain: an escape in a name on the way to the tables, a name that comes
 * twice, a NUL, an id out of range. Text outside the tables is only stepped over. */
#include "text/json_tables.h"

#include <string.h>
#include <xxhash.h>

#include "base/limits.h"
#include "base/utf8.h"

typedef struct cutter {
    json_tables *out;
    const char *at, *end;
    const char *vocab[2], *merges[2]; /* where they start and end */
    size_t cap_token, cap_merge;
    smoe_error *err;
    int rc; /* no memory */
} cutter;

static void skip_space(cutter *c) {
    while (c->at < c->end &&
           (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t')) {
        c->at++;
    }
}

/* Steps over white space and then this character; false when another one stands there. */
static bool take(cutter *c, char want) {
    skip_space(c);
    if (c->at == c->end || *c->at != want) {
        return false;
    }
    c->at++;
    return true;
}

/* ---- strings */

static int hex4(const char *p) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int d = p[i] >= '0' && p[i] <= '9'   ? p[i] - '0'
                : p[i] >= 'a' && p[i] <= 'f' ? p[i] - 'a' + 10
                : p[i] >= 'A' && p[i] <= 'F' ? p[i] - 'A' + 10
                                             : -1;
        if (d < 0) {
            return -1;
        }
        v = v << 4 | d;
    }
    return v;
}

/* What the escape behind a backslash at p stands for, to out; returns the bytes read, 0 when it is
 * not plain. */
static size_t unescape(const char *p, const char *end, char *out, size_t *n) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *simple = p < end && *p ? strchr(from, *p) : NULL;
    if (simple) {
        out[(*n)++] = to[simple - from];
        return 1;
    }
    int unit = end - p >= 5 && *p == 'u' ? hex4(p + 1) : -1;
    if (unit <= 0 || (unit >= 0xd800 && unit <= 0xdfff)) {
        return 0;
    }
    *n += utf8_encode((uint32_t)unit, (uint8_t *)out + *n);
    return 5;
}

/* A string with escapes, whose content ends at stop. */
static bool copy_string(cutter *c, const char *start, const char *stop, text_piece *out) {
    char *copy = arena_get(&c->out->text, (size_t)(stop - start) + 1, 1);
    size_t n = 0;
    if (!copy) {
        c->rc = err_no_memory(c->err, (size_t)(stop - start) + 1);
        return false;
    }
    while (start < stop) {
        if (*start != '\\') {
            copy[n++] = *start++;
            continue;
        }
        size_t used = unescape(start + 1, stop, copy, &n);
        if (used == 0) {
            return false;
        }
        start += 1 + used;
    }
    *out = (text_piece){copy, n};
    return true;
}

/* The string that begins at c->at. *has_escape: it is left as written, in *out. */
static bool find_string(cutter *c, text_piece *out, bool *has_escape) {
    if (!take(c, '"')) {
        return false;
    }
    const char *p = c->at;
    *has_escape = false;
    for (; p < c->end && *p != '"'; p++) {
        if ((unsigned char)*p < 0x20) {
            return false;
        }
        if (*p == '\\') {
            *has_escape = true;
            p++;
        }
    }
    if (p >= c->end) {
        return false;
    }
    *out = (text_piece){c->at, (size_t)(p - c->at)};
    c->at = p + 1;
    return true;
}

static bool read_string(cutter *c, text_piece *out) {
    bool has_escape;
    return find_string(c, out, &has_escape) &&
           (!has_escape || copy_string(c, out->data, out->data + out->bytes, out));
}

/* A name on the way to the tables, and the colon behind it. */
static bool read_name(cutter *c, text_piece *out) {
    bool has_escape;
    return find_string(c, out, &has_escape) && !has_escape && take(c, ':');
}

static bool is_name(const text_piece *name, const char *want) {
    return name->bytes == strlen(want) && memcmp(name->data, want, name->bytes) == 0;
}

/* Steps over a value, whatever it is: json_parse will read it. */
static bool skip_value(cutter *c) {
    size_t depth = 0;
    text_piece text;
    bool has_escape;
    for (skip_space(c); c->at < c->end;) {
        char b = *c->at;
        if (b == '"') {
            if (!find_string(c, &text, &has_escape)) {
                return false;
            }
            continue;
        }
        if (depth == 0 && (b == ',' || b == '}' || b == ']')) {
            return true;
        }
        depth += b == '{' || b == '[';
        depth -= b == '}' || b == ']';
        c->at++;
    }
    return false;
}

/* ---- the tables */

/* Room for one more element of a list. */
static bool reserve(cutter *c, void **list, size_t n, size_t *cap, size_t size) {
    if (n < *cap) {
        return true;
    }
    size_t more = *cap ? *cap * 2 : 1024;
    void *grown = realloc(*list, more * size);
    if (!grown) {
        c->rc = err_no_memory(c->err, more * size);
        return false;
    }
    *list = grown;
    *cap = more;
    return true;
}

static bool read_id(cutter *c, int64_t *id) {
    skip_space(c);
    const char *start = c->at;
    int64_t v = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - start < 10) {
        v = 10 * v + (*c->at++ - '0');
    }
    *id = v;
    return c->at > start && v < LIMIT_VOCAB && (*start != '0' || c->at - start == 1);
}

static bool read_token(cutter *c) {
    json_tables *t = c->out;
    void *list = t->token;
    bool has_room = reserve(c, &list, t->n_token, &c->cap_token, sizeof *t->token);
    t->token = list;
    return has_room && read_string(c, &t->token[t->n_token].content) && take(c, ':') &&
           read_id(c, &t->token[t->n_token++].id);
}

static bool read_merge(cutter *c) {
    json_tables *t = c->out;
    void *list = t->merge;
    bool has_room = reserve(c, &list, t->n_merge, &c->cap_merge, sizeof *t->merge);
    t->merge = list;
    if (!has_room) {
        return false;
    }
    table_merge *m = &t->merge[t->n_merge++];
    skip_space(c);
    bool is_pair = c->at < c->end && *c->at == '[';
    m->right = (text_piece){0};
    if (t->n_merge > 1 && is_pair != (t->merge[0].right.data != NULL)) {
        return false;
    }
    return is_pair ? take(c, '[') && read_string(c, &m->left) && take(c, ',') &&
                         read_string(c, &m->right) && take(c, ']')
                   : read_string(c, &m->left);
}

/* fn for each element between two brackets; notes where these are. */
static bool read_list(cutter *c, const char *brackets, bool (*fn)(cutter *), const char *span[2]) {
    skip_space(c);
    if (span[0]) {
        return false; /* the second of that name */
    }
    span[0] = c->at;
    if (!take(c, brackets[0])) {
        return false;
    }
    if (!take(c, brackets[1])) {
        do {
            if (!fn(c)) {
                return false;
            }
        } while (take(c, ','));
        if (!take(c, brackets[1])) {
            return false;
        }
    }
    span[1] = c->at;
    return true;
}

static bool read_model_field(cutter *c) {
    text_piece name;
    if (!read_name(c, &name)) {
        return false;
    }
    return is_name(&name, "vocab")    ? read_list(c, "{}", read_token, c->vocab)
           : is_name(&name, "merges") ? read_list(c, "[]", read_merge, c->merges)
                                      : skip_value(c);
}

static bool read_root_field(cutter *c) {
    text_piece name;
    /* a model behind one with tables is refused */
    const char *span[2] = {c->vocab[0] ? c->vocab[0] : c->merges[0]};
    if (!read_name(c, &name)) {
        return false;
    }
    return is_name(&name, "model") ? read_list(c, "{}", read_model_field, span) : skip_value(c);
}

/* Whether no two tokens have the same content. */
static bool is_unique(cutter *c) {
    const json_tables *t = c->out;
    size_t n_slot = 16;
    while (n_slot < 2 * t->n_token) {
        n_slot *= 2;
    }
    uint32_t *slots = mem_array(n_slot, sizeof *slots);
    bool good = slots != NULL;
    if (!slots) {
        c->rc = err_no_memory(c->err, n_slot * sizeof *slots);
    }
    for (size_t i = 0; i < t->n_token && good; i++) {
        const text_piece *new = &t->token[i].content;
        size_t slot = XXH3_64bits(new->data, new->bytes) & (n_slot - 1);
        for (; slots[slot] && good; slot = (slot + 1) & (n_slot - 1)) {
            const text_piece *old = &t->token[slots[slot] - 1].content;
            good = old->bytes != new->bytes || memcmp(old->data, new->data, new->bytes) != 0;
        }
        slots[slot] = (uint32_t)i + 1;
    }
    free(slots);
    return good;
}

/* The document without what lies in the tables. */
static bool copy_rest(cutter *c, const text_blob *json, text_blob *rest) {
    bool vocab_first = c->vocab[0] < c->merges[0];
    const char **one = vocab_first ? c->vocab : c->merges;
    const char **two = vocab_first ? c->merges : c->vocab;
    byte_buf out = {.max_bytes = json->bytes};
    int rc = buf_append(&out, json->data, (size_t)(one[0] + 1 - json->data), c->err);
    rc = rc ? rc : buf_append(&out, one[1] - 1, (size_t)(two[0] + 1 - (one[1] - 1)), c->err);
    rc = rc ? rc : buf_append(&out, two[1] - 1, (size_t)(c->end - (two[1] - 1)), c->err);
    if (rc != SMOE_OK) {
        buf_free(&out);
        c->rc = rc;
        return false;
    }
    *rest = (text_blob){out.data, out.bytes};
    return true;
}

int json_tables_cut(json_tables *t, const text_blob *json, text_blob *rest, bool *found,
                    smoe_error *err) {
    cutter c = {.out = t, .at = json->data, .end = json->data + json->bytes, .err = err};
    const char *span[2] = {NULL};
    *t = (json_tables){0};
    *found = json->bytes < UINT32_MAX && read_list(&c, "{}", read_root_field, span) && c.vocab[0] &&
             c.merges[0] && is_unique(&c) && utf8_valid((const uint8_t *)json->data, json->bytes) &&
             copy_rest(&c, json, rest);
    return c.rc;
}

void json_tables_free(json_tables *t) {
    free(t->token);
    free(t->merge);
    arena_free(&t->text);
    *t = (json_tables){0};
}
