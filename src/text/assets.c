/* Release of the text side of a model; see assets.h. */
#include "text/assets.h"

#include <stdlib.h>

void text_assets_free(text_assets *a) {
    free(a->label);
    free(a->tokenizer_json.data);
    free(a->tokenizer_config.data);
    free(a->chat_template.data);
    free(a->generation.data);
    *a = (text_assets){0};
}
