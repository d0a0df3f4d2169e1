/* The text side of a model as its container holds it: raw, unparsed bytes. */
#ifndef SMOE_TEXT_ASSETS_H
#define SMOE_TEXT_ASSETS_H

#include <stddef.h>

typedef struct text_blob {
    char *data; /* NUL-terminated; NULL when absent */
    size_t bytes;
} text_blob;

typedef struct text_assets {
    char *label; /* names the origin in errors; owned */
    text_blob tokenizer_json;
    text_blob tokenizer_config; /* tokenizer_config.json */
    text_blob chat_template;    /* Jinja source */
    text_blob generation;       /* generation_config.json */
} text_assets;

void text_assets_free(text_assets *a); /* leaves it empty */

#endif
