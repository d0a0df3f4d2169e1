/* libFuzzer target: the reader of heat files. The checksum is put right first, since no mutation
 * would pass it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "streamer/heat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const policy_layer layer[2] = {{3, 2}, {2, 1}};
    policy p;
    smoe_error err;
    int32_t order[6];
    char *copy = malloc(bytes ? bytes : 1);
    if (copy && policy_open(&p, POLICY_ADAPTIVE, layer, 2, 3, &err) == SMOE_OK) {
        memcpy(copy, data, bytes);
        if (bytes >= 8) {
            uint64_t sum = XXH3_64bits(copy, bytes - 8);
            memcpy(copy + bytes - 8, &sum, 8);
        }
        if (heat_read(&p, 77, copy, bytes, "fuzz", &err) == SMOE_OK) {
            (void)heat_order(&p, order);
        }
        policy_close(&p);
    }
    free(copy);
    return 0;
}
