/* Opening only the text side of a model: smoe_tokenizer_open. */
#include "base/file.h"
#include "model/source.h"
#include "text/tokenizer.h"

int smoe_tokenizer_open(smoe_tokenizer **out, const char *path, smoe_error *err) {
    if (file_is_dir(path)) {
        text_assets text = {0};
        int rc = source_read_text(&text, path, err);
        rc = rc ? rc : tokenizer_build(out, &text, err);
        text_assets_free(&text);
        return rc;
    }
    source *s;
    int rc = source_open(&s, path, err);
    if (rc == SMOE_OK) {
        rc = tokenizer_build(out, &s->text, err);
        source_close(s);
    }
    return rc;
}
