/* A small qwen3_moe checkpoint with random weights, written into the test's folder. */
#ifndef SMOE_TESTS_TINY_CHECKPOINT_H
#define SMOE_TESTS_TINY_CHECKPOINT_H

#include "formats/dtype.h"

typedef struct tiny_checkpoint {
    dtype type; /* of every tensor: DT_F32, DT_F16 or DT_BF16; DT_NONE: DT_BF16 */
    int32_t vocab_size, d_model, width, n_layer, n_expert; /* 0: 96, 64, 32, 2, 4 */
    bool sparse;                                           /* all zeros, written as a hole */
    const char *bad_tensor;                                /* gets a NaN in its second row */
} tiny_checkpoint;

/* Makes DIR (test_path(name)) and its files; returns its path (test_path's buffer). */
const char *tiny_checkpoint_make(const char *name, const tiny_checkpoint *shape);

/* Whether two files have the same bytes. */
bool same_file(const char *a, const char *b);

#endif
