/* libFuzzer target: the reader of routing traces, and a short replay of what it takes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "streamer/replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trace t;
    smoe_error err;
    replay_result r;
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) {
        return 0;
    }
    memcpy(copy, data, bytes);
    if (trace_parse(&t, copy, bytes, "fuzz", &err) == SMOE_OK && t.n_turn < 1000) {
        uint64_t half = replay_full_bytes(&t) / 2;
        for (replay_kind kind = 0; kind < REPLAY_KINDS; kind++) {
            (void)replay(&t, kind, half, &r, &err);
        }
        (void)replay_cycle_bytes(&t);
        trace_free(&t);
    }
    return 0;
}
