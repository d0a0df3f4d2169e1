/* Opening a model by what its path is, closing it, and sums over its bytes; see source.h. */
#include "model/source.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/gguf.h"
#include "model/source_open.h"

int source_is_gguf(const char *path, bool *out, smoe_error *err) {
    *out = false;
    if (file_is_dir(path)) {
        return SMOE_OK;
    }
    uint8_t magic[GGUF_MAGIC_BYTES] = {0};
    int fd;
    uint64_t bytes;
    int rc = file_open_read(path, 0, &fd, &bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (bytes >= sizeof magic) {
        rc = file_read_only_at(fd, path, 0, magic, sizeof magic, err);
    }
    close(fd);
    size_t n = strlen(path);
    *out = gguf_has_magic(magic, sizeof magic) || (n > 5 && strcmp(path + n - 5, ".gguf") == 0);
    return rc;
}

int source_open(source **out, const char *path, smoe_error *err) {
    bool gguf = false;
    *out = NULL;
    if (file_is_dir(path)) {
        return source_open_checkpoint(out, path, err);
    }
    int rc = source_is_gguf(path, &gguf, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    return gguf ? source_open_gguf(out, path, err) : source_open_vault(out, path, err);
}

void source_close(source *s) {
    if (!s) {
        return;
    }
    file_set_close(&s->files);
    text_assets_free(&s->text);
    arena_free(&s->arena);
    free(s->path);
    free(s);
}

uint64_t expert_bytes(const expert_ref *e) {
    uint64_t n = 0;
    for (int32_t i = 0; i < e->n_ext; i++) {
        n += e->ext[i].bytes;
    }
    return n;
}

uint64_t source_experts_bytes(const source *s) {
    uint64_t n = 0;
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        for (int32_t x = 0; x < s->n_expert_row; x++) {
            n += expert_bytes(source_expert(s, m, x));
        }
    }
    return n;
}

uint64_t source_max_expert_bytes(const source *s) {
    uint64_t max = 0;
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        for (int32_t x = 0; x < s->n_expert_row; x++) {
            uint64_t n = expert_bytes(source_expert(s, m, x));
            max = n > max ? n : max;
        }
    }
    return max;
}

static int larger_first(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

uint64_t source_token_cycle_bytes(const source *s) {
    uint64_t n = 0;
    uint64_t size_bytes[LIMIT_EXPERTS];
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        const ffn_spec *f = &s->spec.layer[spec_moe_layer(&s->spec, m)].ffn;
        for (int32_t x = 0; x < f->n_expert; x++) {
            size_bytes[x] = expert_bytes(source_expert(s, m, x));
        }
        qsort(size_bytes, (size_t)f->n_expert, sizeof *size_bytes, larger_first);
        for (int32_t k = 0; k < f->n_expert_used; k++) {
            n += size_bytes[k];
        }
    }
    return n;
}

uint64_t source_scout_bytes(const source *s) {
    uint64_t n = 0;
    for (int r = 0; r < ROLE_FIRST_OF_LAYER; r++) {
        n += s->global[r].bytes;
    }
    for (int32_t i = 0; i < s->spec.n_layer; i++) {
        for (int r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT; r++) {
            n += s->layer[i][r].bytes;
        }
    }
    return n;
}

const char *source_file_path(const source *s, int32_t file) {
    return s->files.file[file].path;
}
