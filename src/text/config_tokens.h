/* The parts of tokenizer_config.json that matter where there is no tokenizer.json. */
#ifndef SMOE_TEXT_CONFIG_TOKENS_H
#define SMOE_TEXT_CONFIG_TOKENS_H

#include "text/assets.h"
#include "text/settings_write.h"

typedef struct config_tokens {
    struct json_object *root;    /* NULL: there is no such file */
    struct json_object *decoder; /* added_tokens_decoder, NULL without one */
    const char *label;
} config_tokens;

/* label names the file in errors and is borrowed. config_tokens_free releases it, also after a
 * failure. */
int config_tokens_read(config_tokens *c, const text_blob *config, const char *label,
                       smoe_error *err);
void config_tokens_free(config_tokens *c);

/* Calls fn for each entry of added_tokens_decoder, in no order. */
typedef int (*config_token_fn)(void *user, const settings_token *token, smoe_error *err);
int config_tokens_each(const config_tokens *c, config_token_fn fn, void *user, smoe_error *err);

/* A text field, NULL when it is absent. */
int config_tokens_text(const config_tokens *c, const char *key, const char **out, smoe_error *err);
/* A flag; *out stays when it is absent. */
int config_tokens_bool(const config_tokens *c, const char *key, bool *out, smoe_error *err);

#endif
