/* The scout: the dense backbone of a model, resident in memory.
 *
 * Owns one map that holds every resident tensor: matrices byte for byte as the container stores
 * them (bf16, f16, f32 or Q8), vectors (norms, biases) widened to float once, so that no layer
 * branches on their type. Read once at open, immutable afterwards, so any thread may use it. It
 * never touches experts.
 */
#ifndef SMOE_SCOUT_SCOUT_H
#define SMOE_SCOUT_SCOUT_H

#include "model/source.h"

typedef struct weight {
    const void *data; /* matrix rows, row_bytes apart; or n_col floats for a vector; NULL: none */
    dtype type;       /* of the matrix; DT_F32 for vectors */
    int32_t n_row;    /* 1 for vectors */
    int32_t n_col;
    size_t row_bytes;
    const float *factor; /* multiplies products with the matrix; NULL: none */
} weight;

typedef struct scout {
    weight global[ROLE_FIRST_OF_LAYER]; /* the head is the embedding when the spec ties them */
    weight (*layer)[ROLE_COUNT];        /* [n_layer] */
    void *base;
    uint64_t bytes;
    bool is_locked; /* in memory (mlock) */
} scout;

/* What scout_load takes from the system. */
uint64_t scout_load_bytes(const source *s);
/* Reads all resident tensors; a vault's scout is compared with the checksum in the vault on the
 * way. *out is the caller's (scout_free), empty after failure. */
int scout_load(scout *out, const source *s, smoe_error *err);
void scout_free(scout *sc);

#endif
