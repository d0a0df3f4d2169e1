/* Release of the text side of a model, and what there is of it; see assets.h. */
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
    free(a->tokenizer_model.data);
    free(a->tiktoken.data);
    if (!a->backing.head) {
        free(a->prepared.data);
    }
    arena_free(&a->backing);
    free(a->tokenizer_config.data);
    free(a->chat_template.data);
    free(a->generation.data);
    free(a->gguf.data);
    free_tables(a->tables);
    *a = (text_assets){0};
}

bool text_assets_has_tokenizer(const text_assets *a) {
    return a->prepared.data || a->tokenizer_json.data || a->tables || a->tokenizer_model.data ||
           a->tiktoken.data;
}
