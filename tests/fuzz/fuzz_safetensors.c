/* Fuzz target: the input is a whole safetensors file; length field, header and table are parsed. */
#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    smoe_error err;
    size_t header_bytes;
    tensor_table table = {0};
    arena names = {0};
    if (safetensors_header_length(data, size, "fuzz", &header_bytes, &err) == SMOE_OK) {
        const char *header = (const char *)data + SAFETENSORS_LENGTH_BYTES;
        int rc =
            safetensors_parse(&table, &names, header, header_bytes, size, 0, "fuzz", NULL, &err);
        for (int32_t i = 0; rc == SMOE_OK && i < table.n_item; i++) {
            const tensor *t = &table.item[i];
            if (t->offset > size || t->bytes > size - t->offset) {
                __builtin_trap();
            }
        }
    }
    tensor_table_free(&table);
    arena_free(&names);
    return 0;
}
