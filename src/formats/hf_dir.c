/* The weight files of a checkpoint folder; see hf_dir.h. Opens nothing outside the folder but what
 * links inside it point to, as download caches lay files out. */
#include "formats/hf_dir.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"

static int join(char out[FILE_PATH_BYTES], const char *dir, const char *name, smoe_error *err) {
    return file_join(out, FILE_PATH_BYTES, dir, name)
               ? SMOE_OK
               : err_set(err, SMOE_ERR_ARGUMENT, "%s/%s: path too long", dir, name);
}

static bool is_plain_name(const char *name) {
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int by_name(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* The shard one entry of weight_map names, checked. */
static int shard_name(struct json_object *value, const char *tensor_name, const char *label,
                      const char **out, smoe_error *err) {
    if (!json_object_is_type(value, json_type_string)) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: weight_map: shard name of %.128s must be a string", label, tensor_name);
    }
    *out = json_object_get_string(value);
    if (!is_plain_name(*out) || strlen(*out) != (size_t)json_object_get_string_len(value)) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: weight_map: shard names must be plain file names, not \"%.128s\"",
                       label, *out);
    }
    return SMOE_OK;
}

/* Each shard once, sorted; names borrow from map. *shard is the caller's (free). */
static int list_shards(struct json_object *map, const char *label, const char ***shard, size_t *n,
                       smoe_error *err) {
    const char **list = mem_array(LIMIT_SHARDS, sizeof *list);
    struct json_object *seen = json_object_new_object();
    int rc = list && seen ? SMOE_OK : err_no_memory(err, LIMIT_SHARDS * sizeof *list);
    *n = 0;
    json_object_object_foreach(map, key, value) {
        const char *name = NULL;
        rc = rc ? rc : shard_name(value, key, label, &name, err);
        if (rc != SMOE_OK) {
            break;
        }
        if (json_object_object_get_ex(seen, name, NULL)) {
            continue;
        }
        if (*n == LIMIT_SHARDS) {
            rc = err_set(err, SMOE_ERR_FORMAT, "%s: weight_map names more than %d shards", label,
                         LIMIT_SHARDS);
            break;
        }
        list[(*n)++] = name;
        if (json_object_object_add(seen, name, NULL) != 0) {
            rc = err_no_memory(err, strlen(name));
        }
    }
    json_object_put(seen);
    if (rc != SMOE_OK) {
        free(list);
        return rc;
    }
    qsort(list, *n, sizeof *list, by_name);
    *shard = list;
    return SMOE_OK;
}

static int open_map(tensor_table *table, arena *names, file_set *files, const char *dir,
                    const char *index_path, struct json_object *root, smoe_error *err) {
    struct json_object *map;
    const char **shard = NULL;
    size_t n = 0;
    char path[FILE_PATH_BYTES];
    json_at at = {root, index_path, ""};
    if (!json_object_is_type(root, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s must be an object", index_path);
    }
    int rc = json_need_object(&at, "weight_map", &map, err);
    rc = rc ? rc : list_shards(map, index_path, &shard, &n, err);
    for (size_t i = 0; rc == SMOE_OK && i < n; i++) {
        rc = join(path, dir, shard[i], err);
        rc = rc ? rc : safetensors_open(table, names, files, path, NULL, err);
    }
    free(shard);
    return rc;
}

int hf_dir_open_weights(tensor_table *table, arena *names, file_set *files, const char *dir,
                        smoe_error *err) {
    char single[FILE_PATH_BYTES], index[FILE_PATH_BYTES];
    struct json_object *root = NULL;
    int rc = join(single, dir, HF_SINGLE_NAME, err);
    rc = rc ? rc : join(index, dir, HF_INDEX_NAME, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (file_exists(single)) {
        return safetensors_open(table, names, files, single, NULL, err);
    }
    if (!file_exists(index)) {
        return err_set(err, SMOE_ERR_IO,
                       "%s has no weights: neither " HF_SINGLE_NAME " nor " HF_INDEX_NAME, dir);
    }
    rc = json_load(&root, index, LIMIT_INDEX_BYTES, JSON_UNIQUE_KEYS, err);
    rc = rc ? rc : open_map(table, names, files, dir, index, root, err);
    json_object_put(root);
    return rc;
}
