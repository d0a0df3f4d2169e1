/* Byte layouts of ggml's block types, as they stand in GGUF files, and the tables that they index.
 * Sources: the GGUF documentation and ggml's public headers (ggml-common.h).
 *
 * Every type says: weight = scale * code + min with small integer codes. Scales hold for 16 or 32
 * weights. Scale times code is exact in float32 for each of them, so that only the types with a
 * minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K) round, once.
 *
 * "nibbles 16 apart": the low nibble of byte i is weight i, the high one is weight i + 16.
 * "in quarters of 128": byte i of 32 holds two bits each of weights i, i + 32, i + 64 and i + 96.
 */
#ifndef SMOE_FORMATS_GGML_BLOCKS_H
#define SMOE_FORMATS_GGML_BLOCKS_H

#include <stdint.h>

#define PACKED __attribute__((packed))

/* ---- one scale for a block */

typedef struct PACKED block_q4_0 {
    uint16_t d;    /* f16: weight = d * (q - 8) */
    uint8_t q[16]; /* nibbles 16 apart */
} block_q4_0;

typedef struct PACKED block_q4_1 {
    uint16_t d; /* f16: weight = d * q + m */
    uint16_t m; /* f16 */
    uint8_t q[16];
} block_q4_1;

typedef struct PACKED block_q5_0 {
    uint16_t d;    /* f16: weight = d * (q - 16) */
    uint8_t qh[4]; /* bit i: bit 4 of weight i's q */
    uint8_t q[16]; /* low four bits, nibbles 16 apart */
} block_q5_0;

typedef struct PACKED block_q5_1 {
    uint16_t d; /* f16: weight = d * q + m */
    uint16_t m; /* f16 */
    uint8_t qh[4];
    uint8_t q[16];
} block_q5_1;

typedef struct PACKED block_iq4_nl {
    uint16_t d;    /* f16: weight = d * IQ4_VALUES[q] */
    uint8_t q[16]; /* nibbles 16 apart */
} block_iq4_nl;

typedef struct PACKED block_mxfp4 {
    uint8_t e;     /* weight = 2^(e - 128) * FP4_VALUES[q] */
    uint8_t q[16]; /* nibbles 16 apart */
} block_mxfp4;

typedef struct PACKED block_nvfp4 {
    uint8_t d[4];  /* UE4M3 for each 16 weights, 0x7f reads as 0: weight = d / 2 * FP4_VALUES[q] */
    uint8_t q[32]; /* eight bytes for each 16 weights, their nibbles 8 apart */
} block_nvfp4;

typedef struct PACKED block_q1_0 {
    uint16_t d;    /* f16: weight = d where the bit is set, else -d */
    uint8_t q[16]; /* bit i % 8 of byte i / 8 */
} block_q1_0;

typedef struct PACKED block_q2_0 {
    uint16_t d;    /* f16: weight = d * (q - 1) */
    uint8_t q[16]; /* bits 2 (i % 4) and on of byte i / 4 */
} block_q2_0;

/* Base-3 digits of a byte q that is a fraction of 256: digit n is ((q * 3^n mod 256) * 3) >> 8. */
typedef struct PACKED block_tq1_0 {
    uint8_t q[48]; /* digit n of byte i of the first 32: weight 32n + i; of 16: 160 + 16n + i */
    uint8_t qh[4]; /* digit n below 4 of byte i: weight 240 + 4n + i */
    uint16_t d;    /* f16: weight = d * (digit - 1) */
} block_tq1_0;

typedef struct PACKED block_tq2_0 {
    uint8_t q[64]; /* in quarters of 128 */
    uint16_t d;    /* f16: weight = d * (q - 1) */
} block_tq2_0;

/* ---- 256 weights, scales within the block's scale */

typedef struct PACKED block_q2_k {
    uint8_t scale[16]; /* of 16 weights; low nibble s, high nibble m */
    uint8_t q[64];     /* in quarters of 128 */
    uint16_t d;        /* f16: weight = d * s * q - dmin * m */
    uint16_t dmin;     /* f16 */
} block_q2_k;

/* The 16 scales have six bits: the low four are the low nibbles of bytes 0..7 of scale, then their
 * high nibbles; the top two of s[i] are bits 2 (i / 4) and on of byte 8 + i % 4. */
typedef struct PACKED block_q3_k {
    uint8_t hmask[32]; /* bit j of byte i: bit 2 of the q of weight 32j + i */
    uint8_t q[64];     /* low two bits, in quarters of 128 */
    uint8_t scale[12]; /* of 16 weights */
    uint16_t d;        /* f16: weight = d * (s - 32) * (q - 4) */
} block_q3_k;

/* The 8 scales s and minima m have six bits: s[i] and m[i] for i < 4 are the low six of bytes i and
 * 4 + i of scale; byte 8 + i holds the low nibbles of s[4 + i] and m[4 + i], whose top two bits are
 * those of bytes i and 4 + i. */
typedef struct PACKED block_q4_k {
    uint16_t d;        /* f16: weight = d * s * q - dmin * m */
    uint16_t dmin;     /* f16 */
    uint8_t scale[12]; /* of 32 weights */
    uint8_t q[128];    /* byte i of 32: low nibble weight i, high nibble weight i + 32 of 64 */
} block_q4_k;

typedef struct PACKED block_q5_k {
    uint16_t d; /* as Q4_K, with five bits for each q */
    uint16_t dmin;
    uint8_t scale[12];
    uint8_t qh[32]; /* bit j of byte i: bit 4 of the q of weight 32j + i */
    uint8_t q[128];
} block_q5_k;

typedef struct PACKED block_q6_k {
    uint8_t ql[128];  /* of 128 weights, byte i of 64: low nibble of q of i, high of i + 64 */
    uint8_t qh[64];   /* bits 4 and 5, in quarters of 128 */
    int8_t scale[16]; /* of 16 weights */
    uint16_t d;       /* f16: weight = d * s * (q - 32) */
} block_q6_k;

typedef struct PACKED block_iq4_xs {
    uint16_t d;           /* f16: weight = d * (s - 32) * IQ4_VALUES[q] */
    uint16_t scale_high;  /* bits 2j and on: bits 4 and 5 of s[j], of 32 weights */
    uint8_t scale_low[4]; /* nibbles, low one first */
    uint8_t q[128];       /* sixteen bytes for each 32 weights, nibbles 16 apart */
} block_iq4_xs;

/* ---- 256 weights in groups from a grid: magnitudes of 8 (IQ2) or 4 (IQ3) weights, and signs
 *
 * Seven sign bits stand for eight: the eighth makes the number of minus signs even. */

/* q has eight bytes for each 32 weights: four grid indices, then 32 bits: four times seven sign
 * bits, and four bits s. */
typedef struct PACKED block_iq2_xxs {
    uint16_t d; /* f16: weight = d / 8 * (2 s + 1) * +-grid */
    uint8_t q[64];
} block_iq2_xxs;

typedef struct PACKED block_iq2_xs {
    uint16_t d;       /* f16: weight = d / 8 * (2 s + 1) * +-grid */
    uint16_t q[32];   /* nine bits grid index, seven sign bits */
    uint8_t scale[8]; /* nibbles s of 16 weights, low one first */
} block_iq2_xs;

typedef struct PACKED block_iq2_s {
    uint16_t d;       /* f16: weight = d / 8 * (2 s + 1) * +-grid */
    uint8_t q[32];    /* low eight bits of the grid indices */
    uint8_t sign[32]; /* bit i: weight i of 8 is negative */
    uint8_t qh[8];    /* bits 2i and on of byte j: top two bits of index 4j + i */
    uint8_t scale[8]; /* nibbles s of 16 weights, low one first */
} block_iq2_s;

typedef struct PACKED block_iq3_xxs {
    uint16_t d;             /* f16: weight = d / 4 * (2 s + 1) * +-grid */
    uint8_t q[64];          /* grid indices */
    uint8_t sign_scale[32]; /* 32 bits for each 32 weights, as in IQ2_XXS */
} block_iq3_xxs;

typedef struct PACKED block_iq3_s {
    uint16_t d;       /* f16: weight = d * (2 s + 1) * +-grid */
    uint8_t q[64];    /* low eight bits of the grid indices */
    uint8_t qh[8];    /* bit i of byte j: top bit of index 8j + i */
    uint8_t sign[32]; /* bit i: weight i of 8 is negative */
    uint8_t scale[4]; /* nibbles s of 32 weights, low one first */
} block_iq3_s;

/* qh has for each 32 weights: four times the top three bits of an index, three bits s, and a bit
 * for minus. */
typedef struct PACKED block_iq1_s {
    uint16_t d;    /* f16: weight = d / 8 * (2 s + 1) * (8 (grid - 1) +- 1) */
    uint8_t q[32]; /* low eight bits of the grid indices */
    uint16_t qh[8];
} block_iq1_s;

typedef struct PACKED block_iq1_m {
    uint8_t q[32];     /* as IQ1_S, with s of 16 weights */
    uint8_t qh[16];    /* nibbles of 8 weights, low one first: three top bits, then 1: minus */
    uint16_t scale[4]; /* four times three bits s; the top nibbles are the f16 d, lowest first */
} block_iq1_m;

#undef PACKED

_Static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20, "as GGUF says");
_Static_assert(sizeof(block_q5_0) == 22 && sizeof(block_q5_1) == 24, "as GGUF says");
_Static_assert(sizeof(block_iq4_nl) == 18 && sizeof(block_iq4_xs) == 136, "as GGUF says");
_Static_assert(sizeof(block_mxfp4) == 17 && sizeof(block_nvfp4) == 36, "as GGUF says");
_Static_assert(sizeof(block_q1_0) == 18 && sizeof(block_q2_0) == 18, "as GGUF says");
_Static_assert(sizeof(block_tq1_0) == 54 && sizeof(block_tq2_0) == 66, "as GGUF says");
_Static_assert(sizeof(block_q2_k) == 84 && sizeof(block_q3_k) == 110, "as GGUF says");
_Static_assert(sizeof(block_q4_k) == 144 && sizeof(block_q5_k) == 176, "as GGUF says");
_Static_assert(sizeof(block_q6_k) == 210, "as GGUF says");
_Static_assert(sizeof(block_iq2_xxs) == 66 && sizeof(block_iq2_xs) == 74, "as GGUF says");
_Static_assert(sizeof(block_iq2_s) == 82 && sizeof(block_iq3_xxs) == 98, "as GGUF says");
_Static_assert(sizeof(block_iq3_s) == 110, "as GGUF says");
_Static_assert(sizeof(block_iq1_s) == 50 && sizeof(block_iq1_m) == 56, "as GGUF says");

/* ---- tables (ggml_tables.c) */

extern const int8_t IQ4_VALUES[16];
extern const int8_t FP4_VALUES[16]; /* twice the values of OCP's E2M1, so that they are integers */

/* The float 2^(e - 128); the first two are subnormal. */
extern const uint32_t MXFP4_SCALE_BITS[256];

/* Byte k of an entry belongs to weight k of the group. */
extern const uint64_t IQ2_XXS_GRID[256]; /* 8, 25 or 43 */
extern const uint64_t IQ2_XS_GRID[512];
extern const uint64_t IQ2_S_GRID[1024];
extern const uint32_t IQ3_XXS_GRID[256]; /* 4, 12, 20, 28, 36, 44, 52 or 62 */
extern const uint32_t IQ3_S_GRID[512];   /* 1, 3, 5, ... 15 */
extern const uint64_t IQ1_GRID[2048];    /* 0, 8 or 16: eight times 0, 1 or 2 */

#endif
