/* Opening a checkpoint folder: config.json to a spec, weight files to a table of tensors, both to
 * references; tokenizer files as bytes. Reads headers only. See source.h. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/hf_dir.h"
#include "model/bind.h"
#include "model/source_open.h"

static int join(char out[FILE_PATH_BYTES], const char *dir, const char *name, smoe_error *err) {
    return file_join(out, FILE_PATH_BYTES, dir, name)
               ? SMOE_OK
               : err_set(err, SMOE_ERR_ARGUMENT, "%s/%s: path too long", dir, name);
}

/* ---- spec and weights */

static int parse_generation(struct json_object **out, const text_blob *blob, const char *path,
                            smoe_error *err) {
    if (!blob->data) {
        return SMOE_OK;
    }
    int rc = json_parse(out, blob->data, blob->bytes, path, 0, err);
    if (rc == SMOE_OK && !json_object_is_type(*out, json_type_object)) {
        json_object_put(*out);
        *out = NULL;
        rc = err_set(err, SMOE_ERR_FORMAT, "%s must be an object", path);
    }
    return rc;
}

static int read_spec(source *s, const family **f, smoe_error *err) {
    char path[FILE_PATH_BYTES], generation_path[FILE_PATH_BYTES];
    struct json_object *root = NULL, *generation = NULL;
    int rc = join(path, s->path, "config.json", err);
    rc = rc ? rc : join(generation_path, s->path, "generation_config.json", err);
    if (rc == SMOE_OK && !file_exists(path)) {
        rc = err_set(err, SMOE_ERR_IO, "%s has no config.json, so it is no checkpoint folder",
                     s->path);
    }
    rc = rc ? rc : json_load(&root, path, LIMIT_CONFIG_BYTES, JSON_UNIQUE_KEYS, err);
    rc = rc ? rc
            : source_read_optional(&s->text.generation, s->path, "generation_config.json",
                                   LIMIT_CONFIG_BYTES, err);
    rc = rc ? rc : parse_generation(&generation, &s->text.generation, generation_path, err);
    rc = rc ? rc
            : config_to_spec(&s->spec, f, root, path, generation, generation_path, &s->arena, err);
    json_object_put(generation);
    json_object_put(root);
    return rc;
}

static int read_weights(source *s, const family *f, smoe_error *err) {
    tensor_table table = {0};
    arena names = {0};
    int rc = hf_dir_open_weights(&table, &names, &s->files, s->path, err);
    rc = rc ? rc : bind_checkpoint(s, f, &table, s->path, err);
    tensor_table_free(&table);
    arena_free(&names);
    return rc;
}

int source_open_checkpoint(source **out, const char *path, smoe_error *err) {
    const family *f = NULL;
    *out = NULL;
    source *s = mem_array(1, sizeof *s);
    if (!s) {
        return err_no_memory(err, sizeof *s);
    }
    s->kind = CONTAINER_CHECKPOINT;
    s->path = mem_copy_text(path, strlen(path));
    int rc = s->path ? SMOE_OK : err_no_memory(err, strlen(path));
    rc = rc ? rc : read_spec(s, &f, err);
    rc = rc ? rc : read_weights(s, f, err);
    rc = rc ? rc : source_read_text(&s->text, path, err);
    if (rc != SMOE_OK) {
        source_close(s);
        return rc;
    }
    *out = s;
    return SMOE_OK;
}
