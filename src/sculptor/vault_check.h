/* Reading a vault and its scout back and comparing every byte with its checksum. Works on finished
 * files and on a job's partial ones. */
#ifndef SMOE_SCULPTOR_VAULT_CHECK_H
#define SMOE_SCULPTOR_VAULT_CHECK_H

#include "formats/tensor.h"
#include "formats/vault.h"
#include "sculptor/ticker.h"

typedef struct vault_check {
    const vault_content *content; /* with checksums; the scout's whole one excepted */
    int vault_fd;
    const char *vault_path;
    int scout_fd;
    const char *scout_path;
    const tensor *scout; /* [content->n_scout_tensor], in file order */
    uint64_t zeros_from; /* where the zeros before the first record begin */
    ticker *ticker;
    /* After failure, which unit of work is bad: a scout tensor's index, or n_scout_tensor plus a
     * record's. -1: none in particular. */
    int64_t bad_unit;
} vault_check;

/* Bytes that the two functions below read together, for the ticker's total. */
uint64_t vault_check_bytes(const vault_check *c);
/* *whole receives the checksum of the whole file, to be compared by the caller. */
int vault_check_scout(vault_check *c, uint64_t *whole, smoe_error *err);
/* Records, and the zeros between them. */
int vault_check_records(vault_check *c, smoe_error *err);
/* XXH3-64 of a range of a file. */
int vault_check_range(int fd, const char *path, uint64_t offset, uint64_t bytes, uint64_t *checksum,
                      smoe_error *err);

#endif
