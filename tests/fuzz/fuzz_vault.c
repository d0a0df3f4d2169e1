/* libFuzzer target: the vault header parser. Checksums are put right first, since no mutation would
 * pass them; the file is said to be as long as the header claims, since no input is that long. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/vault.h"

enum { AT_HEADER_BYTES = 16, AT_FILE_BYTES = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    uint64_t file_bytes = bytes;
    vault_content content;
    arena a = {0};
    smoe_error err;
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (copy && bytes >= VAULT_PROLOGUE_BYTES) {
        uint64_t header_bytes = bytes;
        memcpy(copy, data, bytes);
        memcpy(copy, VAULT_MAGIC, sizeof VAULT_MAGIC);
        memcpy(&file_bytes, data + AT_FILE_BYTES, sizeof file_bytes);
        memcpy(copy + AT_HEADER_BYTES, &header_bytes, sizeof header_bytes);
        vault_seal(copy, bytes);
        (void)vault_decode(&content, copy, bytes, file_bytes, "fuzz", &a, &err);
    }
    arena_free(&a);
    free(copy);
    return 0;
}
