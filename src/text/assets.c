/* Release of the text side of a model; see assets.h. */
#include "text/assets.h"

#include <stdlib.h>

static void free_tables(text_tables *t) {
    if (!t) {
        return;
    }
    free(t->model);
    free(t->pre);
    free(t->token);
    free(t->score);
    free(t->type);
    free(t->merge);
    free(t);
}

void text_assets_free(text_assets *a) {
    free(a->label);
    free(a->tokenizer_json.data);
    free(a->tokenizer_config.data);
    free(a->chat_template.data);
    free(a->generation.data);
    free(a->gguf.data);
    free_tables(a->tables);
    *a = (text_assets){0};
}
