/* Reading tokenizer_config.json for the tokens it adds; see config_tokens.h. */
#include "text/config_tokens.h"

#include <stdio.h>

#include "base/limits.h"

int config_tokens_read(config_tokens *c, const text_blob *config, const char *label,
                       smoe_error *err) {
    *c = (config_tokens){.label = label};
    if (!config->data) {
        return SMOE_OK;
    }
    int rc = json_parse(&c->root, config->data, config->bytes, label, 0, err);
    if (rc == SMOE_OK && !json_object_is_type(c->root, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: must be an object", label);
    }
    return rc ? rc
              : json_opt_object(&(json_at){c->root, label, ""}, "added_tokens_decoder", &c->decoder,
                                err);
}

void config_tokens_free(config_tokens *c) {
    json_object_put(c->root);
    *c = (config_tokens){0};
}

static int parse_id(const config_tokens *c, const char *key, int64_t *id, smoe_error *err) {
    int64_t v = 0;
    const char *p = key;
    for (; *p >= '0' && *p <= '9' && v < LIMIT_VOCAB; p++) {
        v = v * 10 + (*p - '0');
    }
    if (*p || p == key || v >= LIMIT_VOCAB) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: added_tokens_decoder: \"%.40s\" is no id",
                       c->label, key);
    }
    *id = v;
    return SMOE_OK;
}

static int read_token(const config_tokens *c, const char *key, struct json_object *value,
                      settings_token *out, smoe_error *err) {
    char path[64];
    snprintf(path, sizeof path, "added_tokens_decoder.%.32s.", key);
    json_at at = {value, c->label, path};
    *out = (settings_token){0};
    int rc = parse_id(c, key, &out->id, err);
    if (rc == SMOE_OK && !json_object_is_type(value, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: added_tokens_decoder.%.32s must be an object",
                       c->label, key);
    }
    rc = rc ? rc : json_need_text(&at, "content", &out->content, &out->bytes, err);
    rc = rc ? rc : json_opt_bool(&at, "special", &out->special, err);
    rc = rc ? rc : json_opt_bool(&at, "lstrip", &out->lstrip, err);
    rc = rc ? rc : json_opt_bool(&at, "rstrip", &out->rstrip, err);
    return rc ? rc : json_opt_bool(&at, "single_word", &out->single_word, err);
}

int config_tokens_each(const config_tokens *c, config_token_fn fn, void *user, smoe_error *err) {
    int rc = SMOE_OK;
    if (!c->decoder) {
        return SMOE_OK;
    }
    struct json_object_iterator it = json_object_iter_begin(c->decoder);
    struct json_object_iterator end = json_object_iter_end(c->decoder);
    for (; rc == SMOE_OK && !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        settings_token token;
        rc = read_token(c, json_object_iter_peek_name(&it), json_object_iter_peek_value(&it),
                        &token, err);
        rc = rc ? rc : fn(user, &token, err);
    }
    return rc;
}

int config_tokens_text(const config_tokens *c, const char *key, const char **out, smoe_error *err) {
    *out = NULL;
    return c->root ? json_opt_text(&(json_at){c->root, c->label, ""}, key, out, NULL, err)
                   : SMOE_OK;
}

int config_tokens_bool(const config_tokens *c, const char *key, bool *out, smoe_error *err) {
    return c->root ? json_opt_bool(&(json_at){c->root, c->label, ""}, key, out, err) : SMOE_OK;
}
