/* Opening only the text side of a model: smoe_tokenizer_open. */
#include "base/file.h"
#include "model/source.h"
#include "text/tokenizer.h"

static int build(smoe_tokenizer **out, const text_assets *text, const char *path, smoe_error *err) {
    if (!text->tokenizer_json.data) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s has no tokenizer.json", path);
    }
    return tokenizer_build(out, text, err);
}

int smoe_tokenizer_open(smoe_tokenizer **out, const char *path, smoe_error *err) {
    if (file_is_dir(path)) {
        text_assets text = {0};
        int rc = source_read_text(&text, path, err);
        rc = rc ? rc : build(out, &text, path, err);
        text_assets_free(&text);
        return rc;
    }
    source *s;
    int rc = source_open(&s, path, err);
    if (rc == SMOE_OK) {
        rc = build(out, &s->text, path, err);
        source_close(s);
    }
    return rc;
}
