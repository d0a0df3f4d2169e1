/* The file set and the table of tensors by name; see tensor.h. Reads no file content. */
#include "formats/tensor.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"

/* ---- files */

int file_set_add(file_set *set, const char *path, int32_t *index, smoe_error *err) {
    if (set->n_file >= LIMIT_SHARDS) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: a model of more than %d files", path,
                       LIMIT_SHARDS);
    }
    size_t bytes = ((size_t)set->n_file + 1) * sizeof *set->file;
    model_file *grown = realloc(set->file, bytes);
    if (!grown) {
        return err_no_memory(err, bytes);
    }
    set->file = grown;
    model_file f = {.fd = -1};
    int rc = file_open_read(path, 0, &f.fd, &f.bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    f.path = mem_copy_text(path, strlen(path));
    if (!f.path) {
        close(f.fd);
        return err_no_memory(err, strlen(path));
    }
    *index = set->n_file;
    set->file[set->n_file++] = f;
    return SMOE_OK;
}

void file_set_close(file_set *set) {
    for (int32_t i = 0; i < set->n_file; i++) {
        close(set->file[i].fd);
        free(set->file[i].path);
    }
    free(set->file);
    *set = (file_set){0};
}

int model_file_read_head(model_file *f, uint64_t offset, void *buf, size_t bytes, smoe_error *err) {
    int rc = file_read_only_at(f->fd, f->path, offset, buf, bytes, err);
    f->head_bytes = offset + bytes > f->head_bytes ? offset + bytes : f->head_bytes;
    return rc;
}

void file_set_forget_heads(const file_set *set) {
    for (int32_t i = 0; i < set->n_file; i++) {
        const model_file *f = &set->file[i];
        if (f->head_bytes > 0) {
            (void)posix_fadvise(f->fd, 0, (off_t)f->head_bytes, POSIX_FADV_DONTNEED);
        }
    }
}

/* ---- table */

/* Buckets are a power of two, at most half full; items have half as many places. */
enum { TABLE_FIRST_BUCKETS = 64, TABLE_MAX_BUCKETS = 1 << 30 };

/* The bucket that holds name, or the empty one where it belongs. */
static int32_t bucket_of(const tensor_table *t, const char *name) {
    uint32_t mask = (uint32_t)t->n_bucket - 1;
    uint32_t at = (uint32_t)XXH3_64bits(name, strlen(name)) & mask;
    while (t->bucket[at] >= 0 && strcmp(t->item[t->bucket[at]].name, name) != 0) {
        at = (at + 1) & mask;
    }
    return (int32_t)at;
}

static int grow(tensor_table *t, smoe_error *err) {
    if (t->n_bucket >= TABLE_MAX_BUCKETS) {
        return err_set(err, SMOE_ERR_FORMAT, "a model of more than %d tensors", t->n_item);
    }
    int32_t n_bucket = t->n_bucket ? t->n_bucket * 2 : TABLE_FIRST_BUCKETS;
    size_t item_bytes = (size_t)n_bucket / 2 * sizeof *t->item;
    size_t bucket_bytes = (size_t)n_bucket * sizeof *t->bucket;
    tensor *item = realloc(t->item, item_bytes);
    if (!item) {
        return err_no_memory(err, item_bytes);
    }
    t->item = item;
    int32_t *bucket = malloc(bucket_bytes);
    if (!bucket) {
        return err_no_memory(err, bucket_bytes);
    }
    memset(bucket, 0xff, bucket_bytes);
    free(t->bucket);
    t->bucket = bucket;
    t->n_bucket = n_bucket;
    for (int32_t i = 0; i < t->n_item; i++) {
        t->bucket[bucket_of(t, t->item[i].name)] = i;
    }
    return SMOE_OK;
}

int tensor_table_add(tensor_table *t, const tensor *item, const char *label, smoe_error *err) {
    if (t->n_item >= t->n_bucket / 2) {
        int rc = grow(t, err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    int32_t at = bucket_of(t, item->name);
    if (t->bucket[at] >= 0) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: duplicate name %s", label, item->name);
    }
    t->bucket[at] = t->n_item;
    t->item[t->n_item++] = *item;
    return SMOE_OK;
}

const tensor *tensor_table_find(const tensor_table *t, const char *name) {
    if (t->n_bucket == 0) {
        return NULL;
    }
    int32_t at = t->bucket[bucket_of(t, name)];
    return at >= 0 ? &t->item[at] : NULL;
}

void tensor_table_free(tensor_table *t) {
    free(t->item);
    free(t->bucket);
    *t = (tensor_table){0};
}
