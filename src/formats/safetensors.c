/* The safetensors container; see safetensors.h. The parser sees bytes only; the opener reads a
 * file's header and never its data. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

/* ---- reading */

int safetensors_header_length(const uint8_t *length, uint64_t file_bytes, const char *label,
                              size_t *header_bytes, smoe_error *err) {
    uint64_t n = 0;
    if (file_bytes < SAFETENSORS_LENGTH_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: %" PRIu64 " bytes are too short for a safetensors header", label,
                       file_bytes);
    }
    for (int i = SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--) {
        n = n << 8 | length[i];
    }
    if (n > file_bytes - SAFETENSORS_LENGTH_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: the header of %" PRIu64 " bytes runs past the end of the file (%" PRIu64
                       " bytes)",
                       label, n, file_bytes);
    }
    if (n > LIMIT_SAFETENSORS_HEADER_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: a header of %" PRIu64 " bytes, more than the format's limit of %u",
                       label, n, LIMIT_SAFETENSORS_HEADER_BYTES);
    }
    *header_bytes = (size_t)n;
    return SMOE_OK;
}

/* One entry being read: where it is, for messages. */
typedef struct entry {
    json_at at; /* parent is "" */
    const char *name;
    const char *label;
    uint64_t data_bytes;
} entry;

/* Puts the tensor's name into an error about one of its fields. */
static int in_entry(const entry *e, int rc, smoe_error *err) {
    return rc == SMOE_OK ? rc : err_prefix(err, rc, "%s: tensor %.128s", e->label, e->name);
}

static int need_array(const entry *e, const char *key, struct json_object **out, smoe_error *err) {
    *out = NULL;
    int rc = json_opt_array(&e->at, key, out, err);
    if (rc == SMOE_OK && !*out) {
        rc = err_set(err, SMOE_ERR_FORMAT, "header: %s is missing", key);
    }
    return rc;
}

static int read_dtype(const entry *e, tensor *t, smoe_error *err) {
    const char *name;
    int rc = json_need_text(&e->at, "dtype", &name, NULL, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    t->type = dtype_by_safetensors_name(name);
    if (t->type == DT_NONE) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "header: dtype %.32s unknown", name);
    }
    return SMOE_OK;
}

/* Shape and, from it, the size in bytes. */
static int read_shape(const entry *e, tensor *t, smoe_error *err) {
    struct json_object *shape;
    int rc = need_array(e, "shape", &shape, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t rank = json_object_array_length(shape);
    if (rank > LIMIT_TENSOR_RANK) {
        return err_set(err, SMOE_ERR_FORMAT, "header: shape of %zu dimensions, the limit is %d",
                       rank, LIMIT_TENSOR_RANK);
    }
    t->rank = (int32_t)rank;
    t->bytes = dtype_get(t->type)->block_bytes;
    for (size_t i = 0; i < LIMIT_TENSOR_RANK; i++) {
        t->shape[i] = 1;
        if (i >= rank) {
            continue;
        }
        rc = json_value_int(json_object_array_get_idx(shape, i), "header", "a dimension of shape",
                            0, INT64_MAX, &t->shape[i], err);
        if (rc != SMOE_OK) {
            return rc;
        }
        if (__builtin_mul_overflow(t->bytes, (uint64_t)t->shape[i], &t->bytes)) {
            return err_set(err, SMOE_ERR_FORMAT, "header: shape: element count overflows");
        }
    }
    return SMOE_OK;
}

static int read_range(const entry *e, tensor *t, smoe_error *err) {
    struct json_object *pair;
    int64_t at[2];
    int rc = need_array(e, "data_offsets", &pair, err);
    if (rc == SMOE_OK && json_object_array_length(pair) != 2) {
        rc = err_set(err, SMOE_ERR_FORMAT, "header: data_offsets must be two integers");
    }
    for (size_t i = 0; rc == SMOE_OK && i < 2; i++) {
        rc = json_value_int(json_object_array_get_idx(pair, i), "header", "data_offsets", 0,
                            INT64_MAX, &at[i], err);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    if (at[0] > at[1]) {
        return err_set(err, SMOE_ERR_FORMAT, "header: data_offsets reversed: %" PRId64 ", %" PRId64,
                       at[0], at[1]);
    }
    uint64_t bytes = (uint64_t)(at[1] - at[0]);
    if (bytes != t->bytes) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "header: shape and size differ: %s needs %" PRIu64
                       " bytes, data_offsets give %" PRIu64,
                       dtype_get(t->type)->name, t->bytes, bytes);
    }
    if ((uint64_t)at[1] > e->data_bytes) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "lies past the end of the file (data byte %" PRId64 " of %" PRIu64 ")",
                       at[1], e->data_bytes);
    }
    t->offset = (uint64_t)at[0];
    return SMOE_OK;
}

static int read_entry(tensor *t, const char *name, struct json_object *value, const char *label,
                      uint64_t data_bytes, smoe_error *err) {
    entry e = {{value, "header", ""}, name, label, data_bytes};
    if (!json_object_is_type(value, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: tensor %.128s: its entry must be an object",
                       label, name);
    }
    int rc = read_dtype(&e, t, err);
    if (rc == SMOE_OK) {
        rc = read_shape(&e, t, err);
    }
    if (rc == SMOE_OK) {
        rc = read_range(&e, t, err);
    }
    return in_entry(&e, rc, err);
}

static int by_offset(const void *a, const void *b) {
    const tensor *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorted tensors must cover the data from its first byte to its last, each byte once. */
static int check_cover(const tensor *item, size_t n, uint64_t data_bytes, const char *label,
                       smoe_error *err) {
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (item[i].offset != at) {
            return err_set(err, SMOE_ERR_FORMAT,
                           "%s: tensor %.128s begins at data byte %" PRIu64 ", expected %" PRIu64
                           " (%s)",
                           label, item[i].name, item[i].offset, at,
                           item[i].offset < at ? "tensors overlap" : "unused bytes before it");
        }
        at += item[i].bytes;
    }
    if (at != data_bytes) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %" PRIu64 " bytes behind the last tensor", label,
                       data_bytes - at);
    }
    return SMOE_OK;
}

/* Fills item (room for every key of root) and counts. */
static int read_entries(tensor *item, size_t *n, struct json_object *root, arena *names,
                        const char *label, uint64_t data_bytes, smoe_error *err) {
    json_object_object_foreach(root, name, value) {
        if (strcmp(name, "__metadata__") == 0) {
            continue;
        }
        int rc = read_entry(&item[*n], name, value, label, data_bytes, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        item[*n].name = arena_text(names, name, strlen(name));
        if (!item[*n].name) {
            return err_no_memory(err, strlen(name));
        }
        ++*n;
    }
    return SMOE_OK;
}

static int add_all(tensor_table *table, tensor *item, size_t n, uint64_t data_at, int32_t file,
                   const char *label, smoe_error *err) {
    int rc = SMOE_OK;
    for (size_t i = 0; rc == SMOE_OK && i < n; i++) {
        item[i].offset += data_at;
        item[i].file = file;
        rc = tensor_table_add(table, &item[i], label, err);
    }
    return rc;
}

static int take_metadata(struct json_object *root, const char *label, struct json_object **out,
                         smoe_error *err) {
    struct json_object *metadata = NULL;
    json_at at = {root, label, ""};
    int rc = json_opt_object(&at, "__metadata__", &metadata, err);
    if (rc == SMOE_OK && out) {
        *out = json_object_get(metadata);
    }
    return rc;
}

int safetensors_parse(tensor_table *table, arena *names, const char *header, size_t header_bytes,
                      uint64_t file_bytes, int32_t file, const char *label,
                      struct json_object **metadata, smoe_error *err) {
    struct json_object *root = NULL;
    tensor *item = NULL;
    size_t n = 0;
    uint64_t data_at = SAFETENSORS_LENGTH_BYTES + (uint64_t)header_bytes;
    if (metadata) {
        *metadata = NULL;
    }
    if (data_at > file_bytes) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: the header runs past the end of the file", label);
    }
    int rc = json_parse(&root, header, header_bytes, label, JSON_UNIQUE_KEYS, err);
    if (rc != SMOE_OK) {
        return err_prefix(err, rc, "safetensors header");
    }
    if (!json_object_is_type(root, json_type_object)) {
        json_object_put(root);
        return err_set(err, SMOE_ERR_FORMAT, "%s: the header must be an object", label);
    }
    size_t n_key = (size_t)json_object_object_length(root);
    item = mem_array(n_key, sizeof *item);
    if (!item) {
        rc = err_no_memory(err, n_key * sizeof *item);
    }
    if (rc == SMOE_OK) {
        rc = read_entries(item, &n, root, names, label, file_bytes - data_at, err);
    }
    if (rc == SMOE_OK) {
        qsort(item, n, sizeof *item, by_offset);
        rc = check_cover(item, n, file_bytes - data_at, label, err);
    }
    if (rc == SMOE_OK) {
        rc = add_all(table, item, n, data_at, file, label, err);
    }
    if (rc == SMOE_OK) {
        rc = take_metadata(root, label, metadata, err);
    }
    free(item);
    json_object_put(root);
    return rc;
}

int safetensors_open(tensor_table *table, arena *names, file_set *files, const char *path,
                     struct json_object **metadata, smoe_error *err) {
    int32_t index;
    uint8_t length[SAFETENSORS_LENGTH_BYTES] = {0};
    size_t header_bytes;
    if (metadata) {
        *metadata = NULL;
    }
    int rc = file_set_add(files, path, &index, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    model_file *f = &files->file[index];
    if (f->bytes >= sizeof length) {
        rc = model_file_read_head(f, 0, length, sizeof length, err);
    }
    if (rc == SMOE_OK) {
        rc = safetensors_header_length(length, f->bytes, path, &header_bytes, err);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    char *header = malloc(header_bytes + 1);
    if (!header) {
        return err_no_memory(err, header_bytes);
    }
    rc = model_file_read_head(f, sizeof length, header, header_bytes, err);
    if (rc == SMOE_OK) {
        rc = safetensors_parse(table, names, header, header_bytes, f->bytes, index, path, metadata,
                               err);
    }
    free(header);
    return rc;
}

/* ---- writing */

static int refuse_item(const tensor *t, const char *why, smoe_error *err) {
    return err_set(err, SMOE_ERR_ARGUMENT, "tensor %.128s: %s", t->name, why);
}

/* The entry of t, whose data begins at data byte at; fills t->bytes and t->offset. */
static int make_entry(tensor *t, uint64_t at, struct json_object **out, smoe_error *err) {
    const dtype_info *type = dtype_get(t->type);
    if (!type->safetensors_name) {
        return refuse_item(t, "its type has no safetensors name", err);
    }
    if (t->rank < 0 || t->rank > LIMIT_TENSOR_RANK) {
        return refuse_item(t, "too many dimensions", err);
    }
    struct json_object *object = json_object_new_object();
    struct json_object *shape = json_object_new_array();
    struct json_object *range = json_object_new_array();
    t->bytes = type->block_bytes;
    bool fits = true;
    for (int32_t i = 0; i < t->rank; i++) {
        fits &=
            t->shape[i] >= 0 && !__builtin_mul_overflow(t->bytes, (uint64_t)t->shape[i], &t->bytes);
        json_object_array_add(shape, json_object_new_int64(t->shape[i]));
    }
    uint64_t end;
    fits = fits && !__builtin_add_overflow(at, t->bytes, &end) && end <= INT64_MAX;
    if (!fits || !object || !shape || !range) {
        json_object_put(object);
        json_object_put(shape);
        json_object_put(range);
        return fits ? err_no_memory(err, sizeof *t) : refuse_item(t, "its size overflows", err);
    }
    json_object_array_add(range, json_object_new_int64((int64_t)at));
    json_object_array_add(range, json_object_new_int64((int64_t)end));
    json_object_object_add(object, "dtype", json_object_new_string(type->safetensors_name));
    json_object_object_add(object, "shape", shape);
    json_object_object_add(object, "data_offsets", range);
    t->offset = at;
    *out = object;
    return SMOE_OK;
}

static int add_member(struct json_object *to, const char *key, struct json_object *value,
                      smoe_error *err) {
    if (!value || json_object_object_get_ex(to, key, NULL)) {
        json_object_put(value);
        return value ? err_set(err, SMOE_ERR_ARGUMENT, "duplicate name %s", key)
                     : err_no_memory(err, strlen(key));
    }
    if (json_object_object_add(to, key, value) != 0) {
        json_object_put(value);
        return err_no_memory(err, strlen(key));
    }
    return SMOE_OK;
}

static int fill_header(struct json_object *root, tensor *item, int32_t n_item,
                       const safetensors_meta *meta, int32_t n_meta, smoe_error *err) {
    int rc = SMOE_OK;
    if (n_meta > 0) {
        struct json_object *metadata = json_object_new_object();
        rc = add_member(root, "__metadata__", metadata, err);
        for (int32_t i = 0; rc == SMOE_OK && i < n_meta; i++) {
            rc = add_member(metadata, meta[i].key, json_object_new_string(meta[i].value), err);
        }
    }
    uint64_t at = 0;
    for (int32_t i = 0; rc == SMOE_OK && i < n_item; i++) {
        struct json_object *object = NULL;
        rc = make_entry(&item[i], at, &object, err);
        if (rc == SMOE_OK) {
            rc = add_member(root, item[i].name, object, err);
            at += item[i].bytes;
        }
    }
    return rc;
}

int safetensors_head(tensor *item, int32_t n_item, const safetensors_meta *meta, int32_t n_meta,
                     char **head, size_t *head_bytes, smoe_error *err) {
    struct json_object *root = json_object_new_object();
    size_t n = 0;
    if (!root) {
        return err_no_memory(err, sizeof *item);
    }
    int rc = fill_header(root, item, n_item, meta, n_meta, err);
    const char *text = NULL;
    if (rc == SMOE_OK) {
        text = json_object_to_json_string_length(
            root, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
    }
    size_t padded = (size_t)round_up(n, 8);
    char *out = text ? malloc(SAFETENSORS_LENGTH_BYTES + padded) : NULL;
    if (rc == SMOE_OK && !out) {
        rc = err_no_memory(err, padded);
    } else if (rc == SMOE_OK && padded > LIMIT_SAFETENSORS_HEADER_BYTES) {
        rc = err_set(err, SMOE_ERR_ARGUMENT, "too many tensors for one safetensors header");
    }
    if (rc != SMOE_OK) {
        free(out);
        json_object_put(root);
        return rc;
    }
    for (int i = 0; i < SAFETENSORS_LENGTH_BYTES; i++) {
        out[i] = (char)((uint64_t)padded >> (8 * i) & 0xff);
    }
    memcpy(out + SAFETENSORS_LENGTH_BYTES, text, n);
    memset(out + SAFETENSORS_LENGTH_BYTES + n, ' ', padded - n);
    json_object_put(root);
    for (int32_t i = 0; i < n_item; i++) {
        item[i].offset += SAFETENSORS_LENGTH_BYTES + padded;
    }
    *head = out;
    *head_bytes = SAFETENSORS_LENGTH_BYTES + padded;
    return SMOE_OK;
}
