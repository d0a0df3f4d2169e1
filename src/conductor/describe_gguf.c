/* What a GGUF file holds, as text for people: smoe_describe_container. Works for architectures too
 * that nothing here runs. Whatever the file says is escaped. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "formats/gguf.h"
#include "model/source.h"

enum { MAX_TEXT_BYTES = 64 << 20, VALUE_TEXT_BYTES = 96, ARRAY_SAMPLE = 4, KEY_COLUMN = 44 };

typedef struct printer {
    byte_buf out;
    smoe_error *err;
    int rc; /* of the first failure */
} printer;

static void put(printer *p, const char *text, size_t bytes) {
    p->rc = p->rc ? p->rc : buf_append(&p->out, text, bytes, p->err);
}

static void put_plain(printer *p, const char *text) {
    put(p, text, strlen(text));
}

/* Characters that print as themselves; the others as in C. */
static void put_escaped(printer *p, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes && p->rc == SMOE_OK;) {
        char hex[8];
        uint32_t cp = 0;
        size_t n = utf8_decode((const uint8_t *)text + i, bytes - i, &cp);
        if (n > 0 && cp >= 0x20 && (cp < 0x7f || cp >= 0xa0) && cp != '\\' && cp != '"') {
            put(p, text + i, n);
        } else if (n == 1 && (cp == '\n' || cp == '\\' || cp == '"')) {
            put_plain(p, cp == '\n' ? "\\n" : cp == '"' ? "\\\"" : "\\\\");
        } else {
            n = 1;
            snprintf(hex, sizeof hex, "\\x%02x", (unsigned char)text[i]);
            put_plain(p, hex);
        }
        i += n ? n : 1;
    }
}

static void put_spaces(printer *p, size_t n) {
    static const char spaces[] = "                                                ";
    put(p, spaces, n < sizeof spaces ? n : sizeof spaces - 1);
}

/* Pads what was written since mark to a column of n bytes, at least one space. */
static void put_column(printer *p, size_t mark, size_t n) {
    size_t used = p->out.bytes - mark;
    put_spaces(p, used < n ? n - used : 1);
}

/* ---- values */

static void put_text_value(printer *p, const char *text, size_t bytes) {
    char rest[48];
    size_t shown = bytes < VALUE_TEXT_BYTES ? bytes : VALUE_TEXT_BYTES;
    /* not through the middle of a character */
    while (shown > 0 && shown < bytes && ((unsigned char)text[shown] & 0xc0) == 0x80) {
        shown--;
    }
    put_plain(p, "\"");
    put_escaped(p, text, shown);
    put_plain(p, "\"");
    if (shown < bytes) {
        snprintf(rest, sizeof rest, "... (%zu bytes)", bytes);
        put_plain(p, rest);
    }
}

static void put_element(printer *p, const gguf_value *v, uint64_t i, uint64_t *at) {
    char number[40];
    int64_t n = 0;
    double d = 0;
    if (v->type == GGUF_TEXT) {
        const char *text;
        size_t bytes;
        gguf_next_text(v, at, &text, &bytes);
        put_text_value(p, text, bytes);
        return;
    }
    if (v->type == GGUF_BOOL) {
        snprintf(number, sizeof number, "%s", v->data[i] ? "true" : "false");
    } else if (gguf_number_at(v, i, &d)) {
        snprintf(number, sizeof number, "%.9g", d);
    } else {
        bool fits = gguf_int_at(v, i, &n);
        snprintf(number, sizeof number, fits ? "%" PRId64 : "%" PRIu64, n);
    }
    put_plain(p, number);
}

static void put_value(printer *p, const gguf_value *v) {
    char type[40];
    size_t mark = p->out.bytes;
    uint64_t at = 0, n = v->n;
    put_escaped(p, v->key, strlen(v->key));
    put_column(p, mark, KEY_COLUMN);
    mark = p->out.bytes;
    if (v->is_array) {
        snprintf(type, sizeof type, "%s[%" PRIu64 "]", gguf_type_name(v->type), v->n);
        n = n < ARRAY_SAMPLE ? n : ARRAY_SAMPLE;
    } else {
        snprintf(type, sizeof type, "%s", gguf_type_name(v->type));
    }
    put_plain(p, type);
    put_column(p, mark, 14);
    for (uint64_t i = 0; i < n; i++) {
        put_plain(p, i ? ", " : "");
        put_element(p, v, i, &at);
    }
    put_plain(p, n < v->n ? ", ...\n" : "\n");
}

/* ---- tensors, those of all layers in one row */

typedef struct row {
    const char *pattern;
    const tensor *t; /* the first */
    int32_t n;
    uint64_t bytes; /* of all */
} row;

/* The name with each number between dots as a star. */
static const char *pattern_of(arena *a, const char *name) {
    char out[LIMIT_GGUF_NAME_BYTES + 1];
    size_t n = 0;
    for (const char *p = name; *p && n < sizeof out - 1;) {
        size_t digits = strspn(p, "0123456789");
        bool number = digits > 0 && p > name && p[-1] == '.' && p[digits] == '.';
        out[n++] = number ? '*' : *p;
        p += number ? digits : 1;
    }
    return arena_text(a, out, n);
}

static int same_kind(const row *x, const row *y) {
    int order = strcmp(x->pattern, y->pattern);
    order = order ? order : (int)x->t->type - (int)y->t->type;
    return order ? order : memcmp(x->t->shape, y->t->shape, sizeof x->t->shape);
}

static int by_kind(const void *a, const void *b) {
    const row *x = a, *y = b;
    int order = same_kind(x, y);
    return order ? order : (x->t > y->t) - (x->t < y->t);
}

static int by_place(const void *a, const void *b) {
    const row *x = a, *y = b;
    return (x->t > y->t) - (x->t < y->t);
}

/* Joins rows of one kind; returns how many are left, in file order of their first. */
static int32_t group(row *list, int32_t n) {
    int32_t left = 0;
    qsort(list, (size_t)n, sizeof *list, by_kind);
    for (int32_t i = 0; i < n; i++) {
        if (left > 0 && same_kind(&list[left - 1], &list[i]) == 0) {
            list[left - 1].n++;
            list[left - 1].bytes += list[i].bytes;
        } else {
            list[left++] = list[i];
        }
    }
    qsort(list, (size_t)left, sizeof *list, by_place);
    return left;
}

static void put_row(printer *p, const row *r) {
    char text[64], bytes[24];
    size_t mark = p->out.bytes;
    put_escaped(p, r->pattern, strlen(r->pattern));
    put_column(p, mark, 40);
    snprintf(text, sizeof text, "x%-5d %-8s [", r->n, dtype_get(r->t->type)->name);
    mark = p->out.bytes;
    put_plain(p, text);
    for (int32_t i = 0; i < r->t->rank; i++) {
        snprintf(text, sizeof text, "%s%" PRId64, i ? ", " : "", r->t->shape[i]);
        put_plain(p, text);
    }
    put_plain(p, "]");
    put_column(p, mark, 40);
    put_plain(p, format_bytes(bytes, r->bytes));
    put_plain(p, "\n");
}

static void put_tensors(printer *p, const tensor_table *table, arena *a) {
    row *list = arena_get(a, (size_t)table->n_item + 1, sizeof *list);
    if (!list) {
        p->rc = err_no_memory(p->err, (uint64_t)table->n_item * sizeof *list);
        return;
    }
    for (int32_t i = 0; i < table->n_item; i++) {
        const tensor *t = &table->item[i];
        list[i] = (row){pattern_of(a, t->name), t, 1, t->bytes};
        if (!list[i].pattern) {
            p->rc = err_no_memory(p->err, LIMIT_GGUF_NAME_BYTES);
            return;
        }
    }
    int32_t n = group(list, table->n_item);
    for (int32_t i = 0; i < n; i++) {
        put_row(p, &list[i]);
    }
}

/* ---- the whole */

static void put_all(printer *p, const gguf_header *h, const tensor_table *table,
                    const file_set *files, arena *a) {
    char line[160], bytes[24];
    uint64_t total = 0;
    for (int32_t i = 0; i < table->n_item; i++) {
        total += table->item[i].bytes;
    }
    snprintf(line, sizeof line,
             "GGUF version %u, %d file%s, alignment %" PRIu64 ", %d tensors of %s\n\n", h->version,
             files->n_file, files->n_file == 1 ? "" : "s", h->alignment, table->n_item,
             format_bytes(bytes, total));
    put_plain(p, line);
    for (int32_t i = 0; i < h->n_value; i++) {
        put_value(p, &h->value[i]);
    }
    put_plain(p, "\n");
    put_tensors(p, table, a);
}

int smoe_describe_container(const char *path, char **text, smoe_error *err) {
    bool is_gguf = false;
    gguf_header h;
    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    printer p = {.out = {.max_bytes = MAX_TEXT_BYTES}, .err = err};
    int rc = source_is_gguf(path, &is_gguf, err);
    if (rc != SMOE_OK || !is_gguf) {
        *text = rc == SMOE_OK ? NULL : *text;
        return rc;
    }
    rc = gguf_open_model(&h, &table, &names, &files, path, err);
    if (rc == SMOE_OK) {
        put_all(&p, &h, &table, &files, &names);
        rc = p.rc;
    }
    gguf_header_free(&h);
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
    if (rc != SMOE_OK) {
        buf_free(&p.out);
        return rc;
    }
    *text = p.out.data;
    return SMOE_OK;
}
