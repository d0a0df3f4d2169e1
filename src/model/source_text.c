/* The text files of a checkpoint folder as bytes: tokenizer, its configuration, chat template. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/source_open.h"

static int join(char out[FILE_PATH_BYTES], const char *dir, const char *name, smoe_error *err) {
    return file_join(out, FILE_PATH_BYTES, dir, name)
               ? SMOE_OK
               : err_set(err, SMOE_ERR_ARGUMENT, "%s/%s: path too long", dir, name);
}

int source_read_optional(text_blob *blob, const char *dir, const char *name, uint64_t max_bytes,
                         smoe_error *err) {
    char path[FILE_PATH_BYTES];
    int rc = join(path, dir, name, err);
    if (rc != SMOE_OK || !file_exists(path)) {
        return rc;
    }
    return file_read_all(path, max_bytes, &blob->data, &blob->bytes, err);
}

/* The template named "default" of a list of {name, template}. */
static struct json_object *default_template(struct json_object *list) {
    size_t n = json_object_array_length(list);
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        struct json_object *name =
            json_object_is_type(item, json_type_object) ? json_find(item, "name") : NULL;
        if (json_object_is_type(name, json_type_string) &&
            strcmp(json_object_get_string(name), "default") == 0) {
            return json_find(item, "template");
        }
    }
    return NULL;
}

/* Older checkpoints keep the chat template inside tokenizer_config.json. */
static int template_from_config(text_assets *text, const char *dir, smoe_error *err) {
    char path[FILE_PATH_BYTES];
    struct json_object *root = NULL;
    int rc = join(path, dir, "tokenizer_config.json", err);
    rc = rc ? rc
            : json_parse(&root, text->tokenizer_config.data, text->tokenizer_config.bytes, path, 0,
                         err);
    if (rc != SMOE_OK) {
        return rc;
    }
    struct json_object *value =
        json_object_is_type(root, json_type_object) ? json_find(root, "chat_template") : NULL;
    if (json_object_is_type(value, json_type_array)) {
        value = default_template(value);
    }
    if (json_object_is_type(value, json_type_string)) {
        size_t n = (size_t)json_object_get_string_len(value);
        text->chat_template.data = mem_copy_text(json_object_get_string(value), n);
        text->chat_template.bytes = n;
        rc = text->chat_template.data ? SMOE_OK : err_no_memory(err, n);
    }
    json_object_put(root);
    return rc;
}

int source_read_text(text_assets *text, const char *dir, smoe_error *err) {
    text->label = mem_copy_text(dir, strlen(dir));
    if (!text->label) {
        return err_no_memory(err, strlen(dir));
    }
    int rc = source_read_optional(&text->tokenizer_json, dir, "tokenizer.json",
                                  LIMIT_TOKENIZER_BYTES, err);
    if (rc == SMOE_OK && !text->tokenizer_json.data) {
        rc = source_read_optional(&text->tokenizer_model, dir, "tokenizer.model",
                                  LIMIT_TOKENIZER_BYTES, err);
    }
    if (rc == SMOE_OK && !text->tokenizer_json.data && !text->tokenizer_model.data) {
        rc = source_read_optional(&text->tiktoken, dir, "tiktoken.model", LIMIT_TOKENIZER_BYTES,
                                  err);
    }
    rc = rc ? rc
            : source_read_optional(&text->tokenizer_config, dir, "tokenizer_config.json",
                                   LIMIT_CONFIG_BYTES, err);
    rc = rc ? rc
            : source_read_optional(&text->chat_template, dir, "chat_template.jinja",
                                   LIMIT_CONFIG_BYTES, err);
    if (rc == SMOE_OK && !text->chat_template.data && text->tokenizer_config.data) {
        rc = template_from_config(text, dir, err);
    }
    return rc;
}
