/* Element and block types of stored tensors: their names and sizes. The byte layouts of the smoe
 * block types are in docs/format.md, those of the ggml block types in formats/ggml_blocks.h; what
 * computes with them is in kernels/.
 *
 * A matrix is rows of n_col values; each row starts on a block boundary and its last block is
 * padded with zeros, so row_bytes = ceil(n_col / block_elems) * block_bytes.
 */
#ifndef SMOE_FORMATS_DTYPE_H
#define SMOE_FORMATS_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum dtype {
    DT_NONE,
    DT_F32,
    DT_F16,
    DT_BF16,
    DT_Q8, /* 32 weights: f16 scale, 32 int8 */
    DT_Q4, /* 32 weights: f16 scale, 32 x 4-bit index into a 16-value codebook */
    DT_Q2, /* 64 weights: f16 scale, 4 x (4-bit scale, 2-bit codebook), 64 x 2-bit index */
    /* as in GGUF files; Q8_0 is laid out as DT_Q8 */
    DT_Q4_0,
    DT_Q4_1,
    DT_Q5_0,
    DT_Q5_1,
    DT_Q8_0,
    DT_Q2_K,
    DT_Q3_K,
    DT_Q4_K,
    DT_Q5_K,
    DT_Q6_K,
    DT_IQ1_S,
    DT_IQ1_M,
    DT_IQ2_XXS,
    DT_IQ2_XS,
    DT_IQ2_S,
    DT_IQ3_XXS,
    DT_IQ3_S,
    DT_IQ4_NL,
    DT_IQ4_XS,
    DT_TQ1_0,
    DT_TQ2_0,
    DT_MXFP4,
    DT_NVFP4,
    DT_Q1_0,
    DT_Q2_0,
    /* known to containers, never computed with */
    DT_F64,
    DT_I8,
    DT_U8,
    DT_I16,
    DT_U16,
    DT_I32,
    DT_U32,
    DT_I64,
    DT_U64,
    DT_BOOL,
    DT_F8_E4M3,
    DT_F8_E5M2,
    DT_COUNT
} dtype;

typedef struct dtype_info {
    const char *name;             /* lower case, for people: "bf16", "q4_k" */
    const char *safetensors_name; /* "BF16"; NULL for block types */
    uint16_t block_elems;
    uint16_t block_bytes;
    bool is_weight; /* the kernels can multiply by it */
    int16_t ggml;   /* its number in GGUF files; -1: it has none */
} dtype_info;

const dtype_info *dtype_get(dtype t);              /* never NULL */
dtype dtype_by_name(const char *name);             /* DT_NONE when unknown */
dtype dtype_by_safetensors_name(const char *name); /* DT_NONE when unknown */
dtype dtype_by_ggml(uint32_t ggml_type);           /* DT_NONE when unknown */
int32_t dtype_to_ggml(dtype t);                    /* -1 when GGUF has no such type */
uint64_t dtype_row_bytes(dtype t, uint64_t n_col); /* n_col below 2^40 */

/* Block layouts. Packed: files place them at any byte. */
typedef struct __attribute__((packed)) block_q8 {
    uint16_t d; /* f16 */
    int8_t q[32];
} block_q8;

typedef struct __attribute__((packed)) block_q4 {
    uint16_t d;    /* f16, may be negative: the codebook is lopsided */
    uint8_t q[16]; /* low nibbles: weights 0..15, high nibbles: 16..31 */
} block_q4;

typedef struct __attribute__((packed)) block_q2 {
    uint16_t d;      /* f16, may be negative */
    uint8_t meta[3]; /* little-endian 24 bits; run k (weights 16k..16k+15) has bits 6k..6k+5:
                        low 4: scale s (the run's scale is d * (s + 1)), high 2: codebook */
    uint8_t q[16];   /* bits 2k, 2k+1 of byte i: index of weight 16k + i */
} block_q2;

_Static_assert(sizeof(block_q8) == 34, "8.5 bits a weight");
_Static_assert(sizeof(block_q4) == 18, "4.5 bits a weight");
_Static_assert(sizeof(block_q2) == 21, "2.625 bits a weight");

/* The codebooks are part of the format: changing one is a new format version. */
extern const int8_t Q4_CODEBOOK[16];   /* ascending */
extern const int8_t Q2_CODEBOOK[4][4]; /* each ascending */

#endif
