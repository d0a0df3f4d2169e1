/* A small GGUF model, or the same weights as a checkpoint folder, written into the test's folder.
 *
 * A weight's values depend on its name alone, so every form of a model holds the same numbers (as
 * far as its types can).
 */
#ifndef SMOE_TESTS_TINY_GGUF_H
#define SMOE_TESTS_TINY_GGUF_H

#include "formats/dtype.h"

typedef enum tiny_form {
    TINY_STACKED, /* ffn_gate_exps, ffn_up_exps, ffn_down_exps */
    TINY_FUSED,   /* ffn_gate_up_exps, ffn_down_exps */
    TINY_SINGLE   /* ffn_gate.E, … of each expert one after the other */
} tiny_form;

/* A deepseek model: dense layers first, shared experts, rows of q and k for neighbouring pairs. */
typedef struct tiny_gguf {
    tiny_form form;
    dtype dense;            /* of resident matrices; DT_NONE: F32 */
    dtype expert[2][3];     /* of gate, up, down in even and odd layers; DT_NONE: F32. F32, F16,
                               Q8_0, Q4_0, Q4_K, Q6_K can be written */
    int32_t d_model, width; /* 0: 32, 32; K types need 256 */
    int32_t n_layer, n_dense, n_expert; /* 0: 3, 0, 4 */
    int32_t n_shared;
    int32_t alignment; /* 0: 32 */
    bool factors;      /* TINY_STACKED: a .scale of each matrix, powers of two by which the
                               weights are divided: what is computed stays the same */
    bool fused_qkv;    /* attn_qkv in place of attn_q, attn_k, attn_v */
    bool sparse;       /* all zeros, written as a hole */
    const float
        *divisors;    /* [4], of the rope's frequencies; the folder says them in other words: */
    const char *rope; /* value of rope_scaling */
    const char *bad_tensor; /* this one is called "blk.0.nosuch.weight" */
} tiny_gguf;

enum { TINY_VOCAB = 64 };

/* Writes test_path(name); returns it (test_path's buffer). */
const char *tiny_gguf_make(const char *name, const tiny_gguf *shape);
/* Writes the folder test_path(name) with config.json and model.safetensors, all weights F32. */
const char *tiny_gguf_make_folder(const char *name, const tiny_gguf *shape);

#endif
