/* Private to kernels/: the 256-bit helpers that the AVX2 and AVX-512 files share. Everything is
 * static, so that each file gets its own copy compiled for its instruction set. Needs AVX2, FMA and
 * F16C.
 */
#ifndef SMOE_KERNELS_X86_COMMON_H
#define SMOE_KERNELS_X86_COMMON_H

#include "formats/half.h"
#include "kernels/kernels_impl.h"
#include "kernels/x86_vector.h"

/* ---- block types: 32 weights as bytes in order */

ALWAYS_INLINE __m256i q4_index(const block_q4 *b) {
    __m256i both = _mm256_broadcastsi128_si256(load_128(b->q));
    __m256i moved = _mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm256_and_si256(moved, _mm256_set1_epi8(15));
}

ALWAYS_INLINE __m256i q4_values(const block_q4 *b, __m256i codebook) {
    return _mm256_shuffle_epi8(codebook, q4_index(b));
}

/* What the meta bits of a Q2 block say, spread for use: dword k of both halves belongs to run k. */
typedef struct q2_meta {
    __m256i scale;    /* s + 1 */
    __m256i codebook; /* 4 * codebook, in the lowest byte */
} q2_meta;

ALWAYS_INLINE q2_meta q2_read_meta(const block_q2 *b) {
    uint32_t bits; /* the block's last four bytes before q: d's upper byte and meta */
    memcpy(&bits, (const uint8_t *)b + 1, sizeof bits);
    __m256i runs = _mm256_srlv_epi32(_mm256_set1_epi32((int)bits),
                                     _mm256_setr_epi32(8, 14, 20, 26, 8, 14, 20, 26));
    q2_meta m;
    m.scale = _mm256_add_epi32(_mm256_and_si256(runs, _mm256_set1_epi32(15)), _mm256_set1_epi32(1));
    m.codebook = _mm256_and_si256(_mm256_srli_epi32(runs, 2), _mm256_set1_epi32(12));
    return m;
}

/* Weights 32 * half and on, without scales. */
ALWAYS_INLINE __m256i q2_values(const block_q2 *b, const q2_meta *m, int half, __m256i codebooks) {
    __m256i shift = half == 0 ? _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2)
                              : _mm256_setr_epi32(4, 4, 4, 4, 6, 6, 6, 6);
    __m256i pick = half == 0 ? _mm256_setr_epi64x(0, 0, 0x0404040404040404, 0x0404040404040404)
                             : _mm256_setr_epi64x(0x0808080808080808, 0x0808080808080808,
                                                  0x0c0c0c0c0c0c0c0c, 0x0c0c0c0c0c0c0c0c);
    __m256i both = _mm256_broadcastsi128_si256(load_128(b->q));
    __m256i index = _mm256_and_si256(_mm256_srlv_epi32(both, shift), _mm256_set1_epi8(3));
    index = _mm256_or_si256(index, _mm256_shuffle_epi8(m->codebook, pick));
    return _mm256_shuffle_epi8(codebooks, index);
}

/* The run scales s + 1 of one half as floats: four lanes of its first run, four of its second. */
ALWAYS_INLINE __m256 q2_scales(const q2_meta *m, int half) {
    __m256i pick = half == 0 ? _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)
                             : _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
    return _mm256_cvtepi32_ps(_mm256_permutevar8x32_epi32(m->scale, pick));
}

ALWAYS_INLINE __m256i q4_codebook(void) {
    return _mm256_broadcastsi128_si256(load_128(Q4_CODEBOOK));
}

ALWAYS_INLINE __m256i q2_codebooks(void) {
    return _mm256_broadcastsi128_si256(load_128(Q2_CODEBOOK));
}

/* ---- dequantising rows */

/* 16 bytes times a scale to 16 floats */
ALWAYS_INLINE void store_16(float *out, __m128i q, __m256 scale) {
    __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
    __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(q, q)));
    _mm256_storeu_ps(out, _mm256_mul_ps(lo, scale));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(hi, scale));
}

ALWAYS_INLINE void dequant_block_q8(const void *p, float *out) {
    const block_q8 *b = p;
    __m256 d = scale_f16(&b->d);
    store_16(out, load_128(b->q), d);
    store_16(out + 16, load_128(b->q + 16), d);
}

ALWAYS_INLINE void dequant_block_q4(const void *p, float *out) {
    const block_q4 *b = p;
    __m256 d = scale_f16(&b->d);
    __m256i q = q4_values(b, q4_codebook());
    store_16(out, _mm256_castsi256_si128(q), d);
    store_16(out + 16, _mm256_extracti128_si256(q, 1), d);
}

ALWAYS_INLINE void dequant_block_q2(const void *p, float *out) {
    const block_q2 *b = p;
    __m256 d = scale_f16(&b->d);
    q2_meta m = q2_read_meta(b);
    for (int half = 0; half < 2; half++) {
        __m256i q = q2_values(b, &m, half, q2_codebooks());
        __m256 s = _mm256_mul_ps(d, q2_scales(&m, half));
        __m256 first = _mm256_permute2f128_ps(s, s, 0x00);
        __m256 second = _mm256_permute2f128_ps(s, s, 0x11);
        store_16(out + 32 * half, _mm256_castsi256_si128(q), first);
        store_16(out + 32 * half + 16, _mm256_extracti128_si256(q, 1), second);
    }
}

typedef void dequant_block_fn(const void *block, float *out);

ALWAYS_INLINE void dequant_blocks(dequant_block_fn *dequant, int32_t elems, size_t bytes,
                                  const void *w, int32_t n_col, float *out) {
    const uint8_t *block = w;
    int32_t c = 0;
    for (; c + elems <= n_col; c += elems, block += bytes) {
        dequant(block, out + c);
    }
    if (c < n_col) {
        float last[64];
        dequant(block, last);
        memcpy(out + c, last, (size_t)(n_col - c) * sizeof *out);
    }
}

static void dequant_q8(const void *w, int32_t n_col, float *out) {
    dequant_blocks(dequant_block_q8, 32, sizeof(block_q8), w, n_col, out);
}

static void dequant_q4(const void *w, int32_t n_col, float *out) {
    dequant_blocks(dequant_block_q4, 32, sizeof(block_q4), w, n_col, out);
}

static void dequant_q2(const void *w, int32_t n_col, float *out) {
    dequant_blocks(dequant_block_q2, 64, sizeof(block_q2), w, n_col, out);
}

#endif
