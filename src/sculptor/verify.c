/* smoe_verify: a finished vault and its scout, every byte. Writes nothing. */
#include <fcntl.h>

#include "base/file.h"
#include "formats/safetensors.h"
#include "model/source.h"
#include "sculptor/vault_check.h"

typedef struct verifier {
    const source *source; /* file 0 is the vault, file 1 its scout */
    vault_content content;
    tensor_table scout;
    file_set scout_files;
    arena arena;
} verifier;

static int check_both(verifier *v, ticker *t, smoe_error *err) {
    const model_file *vault = &v->source->files.file[0];
    const model_file *scout = &v->source->files.file[1];
    vault_check c = {.content = &v->content,
                     .vault_fd = vault->fd,
                     .vault_path = vault->path,
                     .scout_fd = scout->fd,
                     .scout_path = scout->path,
                     .scout = v->scout.item,
                     .zeros_from = v->content.header_bytes,
                     .ticker = t};
    uint64_t whole = 0;
    /* What is on the drive counts, not what memory still holds of it. */
    posix_fadvise(vault->fd, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(scout->fd, 0, 0, POSIX_FADV_DONTNEED);
    int rc = ticker_start(t, "verify", 0, vault_check_bytes(&c), err);
    rc = rc == SMOE_OK ? vault_check_scout(&c, &whole, err) : rc;
    if (rc == SMOE_OK && whole != v->content.scout.checksum) {
        rc = err_set(err, SMOE_ERR_CHECKSUM, "%s: checksum %016llx, its vault says %016llx",
                     scout->path, (unsigned long long)whole,
                     (unsigned long long)v->content.scout.checksum);
    }
    return rc == SMOE_OK ? vault_check_records(&c, err) : rc;
}

static int verify_source(const source *s, ticker *t, smoe_error *err) {
    verifier v = {.source = s};
    if (s->kind != CONTAINER_VAULT) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "%s is a checkpoint: only vaults carry checksums to verify", s->path);
    }
    model_file *vault = &s->files.file[0];
    int rc = vault_read(&v.content, vault, &v.arena, err);
    rc = rc == SMOE_OK ? safetensors_open(&v.scout, &v.arena, &v.scout_files, s->files.file[1].path,
                                          NULL, err)
                       : rc;
    if (rc == SMOE_OK && v.scout.n_item != v.content.n_scout_tensor) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s changed while it was read", s->files.file[1].path);
    }
    rc = rc == SMOE_OK ? check_both(&v, t, err) : rc;
    file_set_close(&v.scout_files);
    tensor_table_free(&v.scout);
    arena_free(&v.arena);
    return rc;
}

SMOE_API int smoe_verify(const char *vault_path, smoe_progress_fn progress, void *user,
                         smoe_error *err) {
    source *s = NULL;
    ticker t = {.fn = progress, .user = user, .interval_ns = TICKER_INTERVAL_NS};
    int rc = source_open(&s, vault_path, err);
    rc = rc == SMOE_OK ? verify_source(s, &t, err) : rc;
    source_close(s);
    return rc;
}
