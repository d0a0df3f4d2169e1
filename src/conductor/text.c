/* Opening only the text side of a model: smoe_tokenizer_open. */
#include "base/file.h"
#include "model/source.h"
#include "text/tokenizer.h"

static int read_vault(text_assets *text, const char *path, smoe_error *err) {
    source *s;
    int rc = source_open(&s, path, err);
    if (rc == SMOE_OK) {
        *text = s->text;
        s->text = (text_assets){0};
        source_close(s);
    }
    return rc;
}

int smoe_tokenizer_open(smoe_tokenizer **out, const char *path, smoe_error *err) {
    text_assets text = {0};
    bool is_dir = file_is_dir(path), is_gguf = false;
    int rc = source_is_gguf(path, &is_gguf, err);
    if (rc == SMOE_OK) {
        rc = is_dir    ? source_read_text(&text, path, err)
             : is_gguf ? source_read_gguf_text(&text, path, err)
                       : read_vault(&text, path, err);
    }
    rc = rc ? rc : tokenizer_build(out, &text, err);
    text_assets_free(&text);
    return rc;
}
