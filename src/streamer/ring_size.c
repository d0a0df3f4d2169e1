/* What experts take in the ring: sums of aligned covers. Owns no state, reads no file. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "streamer/streamer_state.h"

uint64_t streamer_slot_bytes(const expert_ref *e) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < e->n_ext; i++) {
        bytes += extent_cover_bytes(&e->ext[i]);
    }
    return bytes;
}

static int larger_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

uint64_t streamer_ring_floor(const source *s) {
    uint64_t slot[LIMIT_EXPERTS];
    uint64_t floor_bytes = 0;
    int32_t n = s->n_expert_row < LIMIT_EXPERTS ? s->n_expert_row : LIMIT_EXPERTS;
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        const ffn_spec *ffn = &s->spec.layer[spec_moe_layer(&s->spec, m)].ffn;
        for (int32_t e = 0; e < n; e++) {
            slot[e] = streamer_slot_bytes(source_expert(s, m, e));
        }
        qsort(slot, (size_t)n, sizeof *slot, larger_first);
        for (int32_t e = 0; e < n && e < ffn->n_expert_used; e++) {
            floor_bytes += slot[e];
        }
    }
    return floor_bytes;
}

uint64_t streamer_ring_full(const source *s) {
    uint64_t bytes = 0;
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        for (int32_t e = 0; e < s->n_expert_row; e++) {
            bytes += streamer_slot_bytes(source_expert(s, m, e));
        }
    }
    return bytes;
}

int streamer_trace_header(const streamer *s, trace_header *out, smoe_error *err) {
    const source *src = s->source;
    size_t n_layer = (size_t)src->n_moe_layer, n_row = (size_t)src->n_expert_row;
    *out = (trace_header){.n_layer = src->n_moe_layer, .n_row = src->n_expert_row};
    out->layer = mem_array(n_layer, sizeof *out->layer);
    out->unit = mem_array(n_layer * n_row, sizeof *out->unit);
    if (!out->layer || !out->unit) {
        free(out->layer);
        free(out->unit);
        return err_no_memory(err, n_layer * n_row * sizeof *out->unit);
    }
    memcpy(out->layer, s->policy.layer, n_layer * sizeof *out->layer);
    for (size_t m = 0; m < n_layer; m++) {
        for (size_t e = 0; e < n_row; e++) {
            const expert_ref *ref = source_expert(src, (int32_t)m, (int32_t)e);
            uint64_t units = (streamer_slot_bytes(ref) + RING_UNIT_BYTES - 1) / RING_UNIT_BYTES;
            out->unit[m * n_row + e] = (uint32_t)units;
        }
    }
    return SMOE_OK;
}
