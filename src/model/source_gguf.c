/* Opening a GGUF file, whole or one of several: keys to a spec, the directory to references, the
 * tokenizer's keys to tables; or only the latter. Reads headers only. See source.h. */
#include <string.h>

#include "model/gguf_bind.h"
#include "model/gguf_config.h"
#include "model/gguf_text.h"
#include "model/source_open.h"

static int read_all(source *s, smoe_error *err) {
    gguf_header head;
    tensor_table table = {0};
    arena names = {0};
    int rc = gguf_open_model(&head, &table, &names, &s->files, s->path, err);
    if (rc == SMOE_OK) {
        const char *label = s->files.file[0].path;
        rc = gguf_to_spec(&s->spec, &head, &table, label, &s->arena, err);
        rc = rc ? rc : gguf_text_take(&s->text, &head, label, err);
        rc = rc ? rc : gguf_text_ids(&s->spec, s->text.tables, label, err);
        rc = rc ? rc : gguf_bind(s, &table, label, err);
    }
    gguf_header_free(&head);
    tensor_table_free(&table);
    arena_free(&names);
    return rc;
}

int source_read_gguf_text(text_assets *text, const char *path, smoe_error *err) {
    gguf_header head;
    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    int rc = gguf_open_model(&head, &table, &names, &files, path, err);
    rc = rc ? rc : gguf_text_take(text, &head, files.file[0].path, err);
    gguf_header_free(&head);
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
    return rc;
}

int source_open_gguf(source **out, const char *path, smoe_error *err) {
    *out = NULL;
    source *s = mem_array(1, sizeof *s);
    if (!s) {
        return err_no_memory(err, sizeof *s);
    }
    s->kind = CONTAINER_GGUF;
    s->path = mem_copy_text(path, strlen(path));
    int rc = s->path ? read_all(s, err) : err_no_memory(err, strlen(path));
    if (rc != SMOE_OK) {
        source_close(s);
        return rc;
    }
    *out = s;
    return SMOE_OK;
}
