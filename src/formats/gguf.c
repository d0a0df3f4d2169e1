/* The GGUF parser and opener; see gguf.h. Getters are in gguf_value.c, split files in gguf_split.c.
 * Reads no tensor data. */
#include "formats/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"

enum { MOST_DIMS = 4, DEFAULT_ALIGNMENT = 32, LEAST_ALIGNMENT = 8 };

/* Fewest bytes of a key with its value, and of a tensor's entry: counts are held against them. */
enum { LEAST_VALUE_BYTES = 8 + 1 + 4 + 1, LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };

/* Bytes read at first, which hold most headers but for their tokenizers. */
#define FIRST_READ_BYTES (256u << 10)

/* A position in a header of which only the first `bytes` are at hand. Functions that advance it
 * return 0, an error, or CUT: go on when c->need bytes are there. */
typedef struct cursor {
    const uint8_t *data;
    uint64_t bytes;
    uint64_t file_bytes;
    uint64_t at;
    uint64_t need;
    const char *label;
    smoe_error *err;
} cursor;

enum { CUT = 1 };

/* ---- bytes */

static uint32_t u32_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64_at(const uint8_t *p) {
    return u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

static int past_end(const cursor *c, const char *what, uint64_t n) {
    return err_set(c->err, SMOE_ERR_FORMAT,
                   "%s: %s of %" PRIu64 " bytes at byte %" PRIu64
                   " runs past the end of the file (%" PRIu64 " bytes)",
                   c->label, what, n, c->at, c->file_bytes);
}

/* *p: the next n bytes, which the cursor then stands behind. */
static int take(cursor *c, uint64_t n, const char *what, const uint8_t **p) {
    if (n > c->file_bytes - c->at) {
        return past_end(c, what, n);
    }
    if (n > c->bytes - c->at) {
        c->need = c->at + n;
        return CUT;
    }
    *p = c->data + c->at;
    c->at += n;
    return SMOE_OK;
}

static int take_u32(cursor *c, const char *what, uint32_t *out) {
    const uint8_t *p = NULL;
    int rc = take(c, 4, what, &p);
    *out = rc == SMOE_OK ? u32_at(p) : 0;
    return rc;
}

static int take_u64(cursor *c, const char *what, uint64_t *out) {
    const uint8_t *p = NULL;
    int rc = take(c, 8, what, &p);
    *out = rc == SMOE_OK ? u64_at(p) : 0;
    return rc;
}

static int take_text(cursor *c, const char *what, const uint8_t **text, uint64_t *bytes) {
    int rc = take_u64(c, what, bytes);
    return rc ? rc : take(c, *bytes, what, text);
}

/* ---- prologue */

bool gguf_has_magic(const uint8_t *data, size_t bytes) {
    return bytes >= GGUF_MAGIC_BYTES && memcmp(data, "GGUF", GGUF_MAGIC_BYTES) == 0;
}

static int check_version(const cursor *c, uint32_t version) {
    if (version == 2 || version == 3) {
        return SMOE_OK;
    }
    if (version != 0 && (version & 0xffff) == 0) {
        return err_set(c->err, SMOE_ERR_UNSUPPORTED, "%s: big-endian GGUF is not supported",
                       c->label);
    }
    return err_set(c->err, SMOE_ERR_UNSUPPORTED,
                   "%s: GGUF version %u is not supported (2 and 3 are)", c->label, version);
}

static int check_count(const cursor *c, uint64_t n, uint64_t least_bytes, uint64_t limit,
                       const char *what) {
    if (n > c->file_bytes / least_bytes) {
        return err_set(c->err, SMOE_ERR_FORMAT,
                       "%s: %" PRIu64 " %s are more than a file of %" PRIu64 " bytes can hold",
                       c->label, n, what, c->file_bytes);
    }
    if (n > limit) {
        return err_set(c->err, SMOE_ERR_FORMAT, "%s: %" PRIu64 " %s, the limit is %" PRIu64,
                       c->label, n, what, limit);
    }
    return SMOE_OK;
}

typedef struct counts {
    uint32_t version;
    uint64_t n_tensor;
    uint64_t n_value;
} counts;

static int take_prologue(cursor *c, counts *out) {
    const uint8_t *magic = NULL;
    int rc = take(c, GGUF_MAGIC_BYTES, "the magic", &magic);
    if (rc == SMOE_OK && !gguf_has_magic(magic, GGUF_MAGIC_BYTES)) {
        rc = err_set(c->err, SMOE_ERR_FORMAT, "%s is not a GGUF file", c->label);
    }
    rc = rc ? rc : take_u32(c, "the header", &out->version);
    rc = rc ? rc : check_version(c, out->version);
    rc = rc ? rc : take_u64(c, "the header", &out->n_tensor);
    rc = rc ? rc : take_u64(c, "the header", &out->n_value);
    rc = rc ? rc
            : check_count(c, out->n_value, LEAST_VALUE_BYTES, LIMIT_GGUF_KEYS, "keys with values");
    return rc ? rc
              : check_count(c, out->n_tensor, LEAST_TENSOR_BYTES, LIMIT_GGUF_TENSORS, "tensors");
}

/* ---- keys and values */

/* Bytes of one element; 0 for those that have no fixed size. */
static uint64_t type_bytes(uint32_t type) {
    static const uint8_t bytes[GGUF_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    return type < GGUF_TYPES ? bytes[type] : 0;
}

typedef struct raw_value {
    const uint8_t *key;
    uint64_t key_bytes;
    gguf_value value;
} raw_value;

/* Messages name a key when it is at hand. */
static int value_error(const cursor *c, const raw_value *v, const char *why) {
    return err_set(c->err, SMOE_ERR_FORMAT, "%s: key %.*s: %s", c->label,
                   v->key_bytes < 128 ? (int)v->key_bytes : 128, (const char *)v->key, why);
}

static int take_key(cursor *c, raw_value *v) {
    int rc = take_text(c, "a key", &v->key, &v->key_bytes);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (v->key_bytes == 0 || v->key_bytes > LIMIT_GGUF_KEY_BYTES) {
        return err_set(c->err, SMOE_ERR_FORMAT, "%s: a key of %" PRIu64 " bytes (1 to %d)",
                       c->label, v->key_bytes, LIMIT_GGUF_KEY_BYTES);
    }
    if (memchr(v->key, 0, (size_t)v->key_bytes) || !utf8_valid(v->key, (size_t)v->key_bytes)) {
        return value_error(c, v, "keys must be UTF-8 without NUL");
    }
    return SMOE_OK;
}

/* The elements of a value whose type and n are set. */
static int take_elements(cursor *c, raw_value *v) {
    gguf_value *g = &v->value;
    uint64_t size = type_bytes(g->type), start = c->at;
    const uint8_t *p = NULL;
    int rc = SMOE_OK;
    if (g->type != GGUF_TEXT) {
        rc = g->n > c->file_bytes / size ? value_error(c, v, "array past the end of the file")
                                         : take(c, g->n * size, "a value", &p);
    } else if (g->n > (c->file_bytes - c->at) / 8) {
        rc = value_error(c, v, "array past the end of the file");
    }
    for (uint64_t i = 0; g->type == GGUF_TEXT && rc == SMOE_OK && i < g->n; i++) {
        uint64_t bytes;
        rc = take_text(c, "a text", &p, &bytes);
    }
    g->data = rc == SMOE_OK ? c->data + start : NULL;
    g->bytes = c->at - start;
    return rc;
}

static int take_value(cursor *c, raw_value *v) {
    char why[64];
    uint32_t type;
    *v = (raw_value){.value.n = 1};
    int rc = take_key(c, v);
    rc = rc ? rc : take_u32(c, "a value type", &type);
    if (rc == SMOE_OK && type == GGUF_ARRAY) {
        v->value.is_array = true;
        rc = take_u32(c, "an array type", &type);
        rc = rc ? rc : take_u64(c, "an array length", &v->value.n);
        if (rc == SMOE_OK && type == GGUF_ARRAY) {
            return value_error(c, v, "arrays of arrays are not supported");
        }
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    if (type >= GGUF_TYPES) {
        snprintf(why, sizeof why, "unknown value type %u", type);
        return value_error(c, v, why);
    }
    v->value.type = (gguf_type)type;
    return take_elements(c, v);
}

/* ---- tensors */

typedef struct raw_tensor {
    const uint8_t *name;
    uint64_t name_bytes;
    uint32_t n_dim;
    const uint8_t *dims;
    uint32_t type;
    uint64_t offset; /* from the start of the data */
} raw_tensor;

static int tensor_error(const cursor *c, const raw_tensor *t, const char *why) {
    return err_set(c->err, SMOE_ERR_FORMAT, "%s: tensor %.*s: %s", c->label, (int)t->name_bytes,
                   (const char *)t->name, why);
}

static int take_tensor_name(cursor *c, raw_tensor *t) {
    int rc = take_text(c, "a tensor name", &t->name, &t->name_bytes);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (t->name_bytes == 0 || t->name_bytes > LIMIT_GGUF_NAME_BYTES) {
        return err_set(c->err, SMOE_ERR_FORMAT, "%s: a tensor name of %" PRIu64 " bytes (1 to %d)",
                       c->label, t->name_bytes, LIMIT_GGUF_NAME_BYTES);
    }
    if (memchr(t->name, 0, (size_t)t->name_bytes) || !utf8_valid(t->name, (size_t)t->name_bytes)) {
        return tensor_error(c, t, "names must be UTF-8 without NUL");
    }
    return SMOE_OK;
}

static int take_tensor(cursor *c, raw_tensor *t) {
    char why[64];
    int rc = take_tensor_name(c, t);
    rc = rc ? rc : take_u32(c, "a tensor's dimensions", &t->n_dim);
    if (rc == SMOE_OK && (t->n_dim < 1 || t->n_dim > MOST_DIMS)) {
        snprintf(why, sizeof why, "%u dimensions (1 to %d)", t->n_dim, MOST_DIMS);
        return tensor_error(c, t, why);
    }
    rc = rc ? rc : take(c, (uint64_t)t->n_dim * 8, "a tensor's dimensions", &t->dims);
    rc = rc ? rc : take_u32(c, "a tensor's type", &t->type);
    return rc ? rc : take_u64(c, "a tensor's offset", &t->offset);
}

/* Sizes of t->shape and t->bytes from what is stored; ggml lists the innermost dimension first. */
static int fill_shape(const cursor *c, const raw_tensor *r, tensor *t) {
    char why[96];
    const dtype_info *type = dtype_get(t->type);
    uint64_t n_row = 1;
    t->rank = (int32_t)r->n_dim;
    for (int i = 0; i < LIMIT_TENSOR_RANK; i++) {
        t->shape[i] = 1;
    }
    for (uint32_t i = 0; i < r->n_dim; i++) {
        uint64_t n = u64_at(r->dims + (size_t)i * 8);
        if (n < 1 || n > INT64_MAX) {
            snprintf(why, sizeof why, "dimension %u is %" PRIu64 ", out of range", i, n);
            return tensor_error(c, r, why);
        }
        t->shape[r->n_dim - 1 - i] = (int64_t)n;
        if (i > 0 && __builtin_mul_overflow(n_row, n, &n_row)) {
            return tensor_error(c, r, "element count overflows");
        }
    }
    uint64_t n_col = (uint64_t)t->shape[t->rank - 1];
    if (n_col % type->block_elems != 0) {
        snprintf(why, sizeof why,
                 "row length %" PRIu64 " is not a multiple of the block size %u of %s", n_col,
                 type->block_elems, type->name);
        return tensor_error(c, r, why);
    }
    uint64_t row_bytes;
    if (__builtin_mul_overflow(n_col / type->block_elems, (uint64_t)type->block_bytes,
                               &row_bytes) ||
        __builtin_mul_overflow(n_row, row_bytes, &t->bytes)) {
        return tensor_error(c, r, "element count overflows");
    }
    return SMOE_OK;
}

/* ggml type numbers that once had a meaning: Q4_2, Q4_3, and repacked forms of Q4_0 and IQ4_NL. */
static bool is_removed_type(uint32_t type) {
    return type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38);
}

static int fill_tensor(const cursor *c, const raw_tensor *r, uint64_t data_at, uint64_t alignment,
                       tensor *t) {
    char why[96];
    t->type = dtype_by_ggml(r->type);
    if (t->type == DT_NONE) {
        snprintf(why, sizeof why, "tensor type %u %s", r->type,
                 is_removed_type(r->type) ? "is no longer defined" : "unknown");
        return tensor_error(c, r, why);
    }
    int rc = fill_shape(c, r, t);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (r->offset % alignment != 0) {
        snprintf(why, sizeof why, "misaligned: offset %" PRIu64 " is not a multiple of %" PRIu64,
                 r->offset, alignment);
        return tensor_error(c, r, why);
    }
    if (data_at > c->file_bytes || r->offset > c->file_bytes - data_at ||
        t->bytes > c->file_bytes - data_at - r->offset) {
        snprintf(why, sizeof why,
                 "lies past the end of the file (%" PRIu64 " bytes at data byte %" PRIu64 ")",
                 t->bytes, r->offset);
        return tensor_error(c, r, why);
    }
    t->offset = data_at + r->offset;
    return SMOE_OK;
}

/* ---- the whole */

static cursor cursor_at(const uint8_t *data, size_t bytes, uint64_t file_bytes, const char *label,
                        smoe_error *err) {
    return (cursor){.data = data,
                    .bytes = bytes < file_bytes ? bytes : file_bytes,
                    .file_bytes = file_bytes,
                    .label = label,
                    .err = err};
}

int gguf_measure(const uint8_t *data, size_t bytes, uint64_t file_bytes, const char *label,
                 uint64_t *need_bytes, smoe_error *err) {
    counts n = {0};
    raw_value v;
    raw_tensor t;
    cursor c = cursor_at(data, bytes, file_bytes, label, err);
    int rc = file_bytes < GGUF_MAGIC_BYTES
                 ? err_set(err, SMOE_ERR_FORMAT,
                           "%s: %" PRIu64 " bytes are too few for a GGUF file", label, file_bytes)
                 : take_prologue(&c, &n);
    for (uint64_t i = 0; rc == SMOE_OK && i < n.n_value; i++) {
        rc = take_value(&c, &v);
    }
    for (uint64_t i = 0; rc == SMOE_OK && i < n.n_tensor; i++) {
        rc = take_tensor(&c, &t);
    }
    *need_bytes = rc == CUT ? c.need : 0;
    return rc == CUT ? SMOE_OK : rc;
}

static int read_values(gguf_header *h, cursor *c, arena *names) {
    for (int32_t i = 0; i < h->n_value; i++) {
        raw_value v;
        int rc = take_value(c, &v);
        if (rc != SMOE_OK) {
            return rc;
        }
        h->value[i] = v.value;
        h->value[i].key = arena_text(names, (const char *)v.key, (size_t)v.key_bytes);
        if (!h->value[i].key) {
            return err_no_memory(c->err, v.key_bytes);
        }
    }
    return SMOE_OK;
}

static int by_key(const void *a, const void *b, void *values) {
    const int32_t *x = a, *y = b;
    const gguf_value *value = values;
    return strcmp(value[*x].key, value[*y].key);
}

static int sort_keys(gguf_header *h, const char *label, smoe_error *err) {
    for (int32_t i = 0; i < h->n_value; i++) {
        h->by_key[i] = i;
    }
    qsort_r(h->by_key, (size_t)h->n_value, sizeof *h->by_key, by_key, h->value);
    for (int32_t i = 1; i < h->n_value; i++) {
        const char *key = h->value[h->by_key[i]].key;
        if (strcmp(key, h->value[h->by_key[i - 1]].key) == 0) {
            return err_set(err, SMOE_ERR_FORMAT, "%s: duplicate key %.128s", label, key);
        }
    }
    return SMOE_OK;
}

static int read_alignment(gguf_header *h, const char *label, smoe_error *err) {
    static const char key[] = "general.alignment";
    const gguf_value *v = gguf_find(h, key);
    h->alignment = DEFAULT_ALIGNMENT;
    if (!v) {
        return SMOE_OK;
    }
    if (v->is_array || v->type != GGUF_U32) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s must be a u32", label, key);
    }
    h->alignment = u32_at(v->data);
    if (h->alignment < LEAST_ALIGNMENT || (h->alignment & (h->alignment - 1)) != 0) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: %s is %" PRIu64 " but must be a power of two and at least %d", label,
                       key, h->alignment, LEAST_ALIGNMENT);
    }
    return SMOE_OK;
}

/* The directory at the cursor, whose extent gguf_measure has seen already. */
static int read_tensors(const gguf_header *h, cursor *c, uint64_t n, int32_t file,
                        tensor_table *table, arena *names) {
    uint64_t directory = c->at;
    raw_tensor raw;
    int rc = SMOE_OK;
    for (uint64_t i = 0; rc == SMOE_OK && i < n; i++) {
        rc = take_tensor(c, &raw);
    }
    uint64_t data_at = round_up(c->at, h->alignment);
    c->at = directory;
    for (uint64_t i = 0; rc == SMOE_OK && i < n; i++) {
        tensor t = {.file = file};
        rc = take_tensor(c, &raw);
        rc = rc ? rc : fill_tensor(c, &raw, data_at, h->alignment, &t);
        if (rc != SMOE_OK) {
            return rc;
        }
        t.name = arena_text(names, (const char *)raw.name, (size_t)raw.name_bytes);
        rc = t.name ? tensor_table_add(table, &t, c->label, c->err)
                    : err_no_memory(c->err, raw.name_bytes);
    }
    return rc;
}

int gguf_parse(gguf_header *out, tensor_table *table, arena *names, const uint8_t *data,
               size_t bytes, uint64_t file_bytes, int32_t file, const char *label,
               smoe_error *err) {
    counts n = {0};
    uint64_t need;
    *out = (gguf_header){0};
    int rc = gguf_measure(data, bytes, file_bytes, label, &need, err);
    if (rc == SMOE_OK && need > 0) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %zu bytes do not hold the whole header", label,
                     bytes);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    cursor c = cursor_at(data, bytes, file_bytes, label, err);
    rc = take_prologue(&c, &n);
    out->version = n.version;
    out->n_value = (int32_t)n.n_value;
    out->value = arena_get(names, (size_t)n.n_value, sizeof *out->value);
    out->by_key = arena_get(names, (size_t)n.n_value, sizeof *out->by_key);
    if (!out->value || !out->by_key) {
        return err_no_memory(err, n.n_value * sizeof *out->value);
    }
    rc = rc ? rc : read_values(out, &c, names);
    rc = rc ? rc : sort_keys(out, label, err);
    rc = rc ? rc : read_alignment(out, label, err);
    rc = rc ? rc : read_tensors(out, &c, n.n_tensor, file, table, names);
    out->header_bytes = c.at;
    return rc;
}

/* ---- files */

/* *data: malloc'ed, the first *bytes of the file, which hold its whole header. */
static int read_header(model_file *f, uint8_t **data, size_t *bytes, smoe_error *err) {
    uint64_t want = f->bytes < FIRST_READ_BYTES ? f->bytes : FIRST_READ_BYTES;
    uint64_t most = f->bytes < LIMIT_GGUF_HEADER_BYTES ? f->bytes : LIMIT_GGUF_HEADER_BYTES;
    size_t have = 0;
    *data = NULL;
    for (;;) {
        uint64_t need = 0;
        uint8_t *grown = realloc(*data, (size_t)want + 1);
        if (!grown) {
            return err_no_memory(err, want);
        }
        *data = grown;
        int rc = model_file_read_head(f, have, grown + have, (size_t)want - have, err);
        have = (size_t)want;
        rc = rc ? rc : gguf_measure(grown, have, f->bytes, f->path, &need, err);
        if (rc != SMOE_OK || need == 0) {
            *bytes = have;
            return rc;
        }
        if (need > most) {
            return err_set(err, SMOE_ERR_FORMAT, "%s: a header of more than %u bytes", f->path,
                           LIMIT_GGUF_HEADER_BYTES);
        }
        /* doubling, so that what is measured again stays in proportion */
        want = need > 2 * (uint64_t)have ? need : 2 * (uint64_t)have;
        want = want < most ? want : most;
    }
}

int gguf_open(gguf_header *out, tensor_table *table, arena *names, file_set *files,
              const char *path, smoe_error *err) {
    int32_t index;
    uint8_t *data = NULL;
    size_t bytes = 0;
    *out = (gguf_header){0};
    int rc = file_set_add(files, path, &index, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    model_file *f = &files->file[index];
    rc = read_header(f, &data, &bytes, err);
    rc = rc ? rc : gguf_parse(out, table, names, data, bytes, f->bytes, index, f->path, err);
    if (rc != SMOE_OK) {
        free(data);
        *out = (gguf_header){0};
        return rc;
    }
    out->bytes = data;
    return SMOE_OK;
}

void gguf_header_free(gguf_header *h) {
    free(h->bytes);
    *h = (gguf_header){0};
}
