/* Layout of the scratch map: everything a batch needs besides weights and KV, sized once. */
#ifndef SMOE_LAYERS_SCRATCH_H
#define SMOE_LAYERS_SCRATCH_H

#include "layers/exec.h"

typedef struct scratch_config {
    const spec *spec;
    int32_t max_tok;
    int32_t n_thread;
    int32_t spec_ranks;
    bool reference; /* no int8 activations */
} scratch_config;

/* What scratch_map takes from the system. */
uint64_t scratch_size(const scratch_config *config);
/* *out is the caller's (scratch_unmap), empty after failure. */
int scratch_map(scratch *out, const scratch_config *config, smoe_error *err);
void scratch_unmap(scratch *s);

#endif
