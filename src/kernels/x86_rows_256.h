/* Private to kernels/: vectors of eight rows for x86_rows.h. Needs AVX2, FMA and F16C; with
 * ROWS_AVX_VNNI defined also AVX-VNNI, or with ROWS_AVX512_VNNI AVX-512 VL and VNNI, for iv_dot_16
 * alone.
 */
#ifndef SMOE_KERNELS_X86_ROWS_256_H
#define SMOE_KERNELS_X86_ROWS_256_H

#include "kernels/x86_vector.h"

typedef __m256i ivec;
typedef __m256 fvec;

enum { ROW_LANES = 8 }; /* rows side by side */

/* ---- integers */

ALWAYS_INLINE ivec iv_bytes(int value) {
    return _mm256_set1_epi8((char)value);
}

ALWAYS_INLINE ivec iv_set1(int32_t value) {
    return _mm256_set1_epi32(value);
}

ALWAYS_INLINE ivec iv_and(ivec a, ivec b) {
    return _mm256_and_si256(a, b);
}

ALWAYS_INLINE ivec iv_or(ivec a, ivec b) {
    return _mm256_or_si256(a, b);
}

/* b where mask has bits, else a. */
ALWAYS_INLINE ivec iv_select(ivec mask, ivec b, ivec a) {
    return _mm256_or_si256(_mm256_and_si256(mask, b), _mm256_andnot_si256(mask, a));
}

/* v's bits in mask, and base's. */
ALWAYS_INLINE ivec iv_and_or(ivec v, ivec mask, ivec base) {
    return _mm256_or_si256(_mm256_and_si256(v, mask), base);
}

ALWAYS_INLINE ivec iv_add(ivec a, ivec b) {
    return _mm256_add_epi32(a, b);
}

ALWAYS_INLINE ivec iv_sub(ivec a, ivec b) {
    return _mm256_sub_epi32(a, b);
}

ALWAYS_INLINE ivec iv_add_bytes(ivec a, ivec b) {
    return _mm256_add_epi8(a, b);
}

ALWAYS_INLINE ivec iv_sub_bytes(ivec a, ivec b) {
    return _mm256_sub_epi8(a, b);
}

ALWAYS_INLINE ivec iv_srl(ivec a, unsigned n) {
    return _mm256_srli_epi32(a, (int)n);
}

ALWAYS_INLINE ivec iv_sra(ivec a, unsigned n) {
    return _mm256_srai_epi32(a, (int)n);
}

ALWAYS_INLINE ivec iv_sll(ivec a, unsigned n) {
    return _mm256_slli_epi32(a, (int)n);
}

/* Of each dword: the low n bytes, 1 to 3, of low, the others of high. */
ALWAYS_INLINE ivec iv_join(unsigned n, ivec low, ivec high) {
    if (n == 2) {
        return _mm256_blend_epi16(high, low, 0x55);
    }
    return _mm256_blendv_epi8(high, low, _mm256_set1_epi32((int32_t)((1u << 8 * n) - 1)));
}

/* out[i]: the n_out dwords that begin n bytes, 1 to 3, behind the first byte of v. */
ALWAYS_INLINE void iv_align(unsigned n, int n_out, const ivec *v, ivec *out) {
    for (int i = 0; i < n_out; i++) {
        out[i] = iv_or(iv_srl(v[i], 8 * n), iv_sll(v[i + 1], 32 - 8 * n));
    }
}

/* Within each 16 bytes. */
ALWAYS_INLINE ivec iv_shuffle_bytes(ivec table, ivec index) {
    return _mm256_shuffle_epi8(table, index);
}

ALWAYS_INLINE ivec iv_table(const void *sixteen) {
    return _mm256_broadcastsi128_si256(load_128(sixteen));
}

/* 2^(e - 128) of e << 23 for e < 2, which is subnormal, else normal. */
ALWAYS_INLINE ivec iv_tiny_e8m0(ivec e, ivec normal) {
    const ivec half = _mm256_set1_epi32(0x00200000);
    __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x01000000), e);
    return _mm256_blendv_epi8(normal, iv_add(iv_srl(e, 2), half), tiny);
}

/* Every fourth row from the i-th: 16 bytes each. */
ALWAYS_INLINE ivec iv_every_fourth(const uint8_t *const group[ROW_LANES / 4], size_t skip) {
    __m256i v = _mm256_castsi128_si256(load_128(group[0] + skip));
    return _mm256_inserti128_si256(v, load_128(group[1] + skip), 1);
}

/* out[k]: dword k of 16 bytes of each row in order. */
ALWAYS_INLINE void iv_transpose(ivec a, ivec b, ivec c, ivec d, ivec out[4]) {
    ivec ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
    ab = _mm256_unpackhi_epi32(a, b);
    cd = _mm256_unpackhi_epi32(c, d);
    out[2] = _mm256_unpacklo_epi64(ab, cd);
    out[3] = _mm256_unpackhi_epi64(ab, cd);
}

/* 32 bytes of each row, the second 16 in the second four vectors. */
ALWAYS_INLINE void iv_load_8(const uint8_t *const group[ROW_LANES / 4], size_t stride,
                             size_t offset, ivec v[8]) {
    for (size_t i = 0; i < 8; i++) {
        v[i] = iv_every_fourth(group, i % 4 * stride + offset + i / 4 * 16);
    }
}

/* out[k]: dword k of each row in order, of what iv_load_8 gave. */
ALWAYS_INLINE void iv_transpose_8(const ivec v[8], ivec out[8]) {
    iv_transpose(v[0], v[1], v[2], v[3], out);
    iv_transpose(v[4], v[5], v[6], v[7], out + 4);
}

/* ---- floats */

ALWAYS_INLINE fvec fv_zero(void) {
    return _mm256_setzero_ps();
}

ALWAYS_INLINE fvec fv_set1(float a) {
    return _mm256_set1_ps(a);
}

ALWAYS_INLINE fvec fv_mul(fvec a, fvec b) {
    return _mm256_mul_ps(a, b);
}

ALWAYS_INLINE fvec fv_sub(fvec a, fvec b) {
    return _mm256_sub_ps(a, b);
}

ALWAYS_INLINE fvec fv_fma(fvec a, fvec b, fvec c) {
    return _mm256_fmadd_ps(a, b, c);
}

ALWAYS_INLINE fvec fv_from(ivec a) {
    return _mm256_cvtepi32_ps(a);
}

ALWAYS_INLINE fvec fv_bits(ivec a) {
    return _mm256_castsi256_ps(a);
}

/* The low half of each dword, an f16. */
ALWAYS_INLINE fvec fv_low_f16(ivec v) {
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0xd8);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(v));
}

/* The first n_row lanes. */
ALWAYS_INLINE void fv_store_rows(float *y, fvec v, int32_t n_row) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(n_row), lane), v);
}

/* ---- products */

ALWAYS_INLINE ivec iv_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

#if defined(ROWS_AVX512_VNNI)

enum { ROWS_MAX_CODE = 255, ROWS_SIGNED = -1 /* not used */ };

/* acc + four dwords of codes, none above max, * q[0..15], lane by lane. */
ALWAYS_INLINE ivec iv_dot_16(int max, ivec acc, const ivec code[4], const int8_t *q) {
    (void)max;
    for (int k = 0; k < 4; k++) {
        DOT_BROADCAST(8, acc, code[k], q + 4 * k);
    }
    return acc;
}

#elif defined(ROWS_AVX_VNNI)

enum { ROWS_MAX_CODE = 255, ROWS_SIGNED = -1 /* not used */ };

/* acc + four dwords of codes, none above max, * q[0..15], lane by lane. */
ALWAYS_INLINE ivec iv_dot_16(int max, ivec acc, const ivec code[4], const int8_t *q) {
    (void)max;
    for (int k = 0; k < 4; k++) {
        acc = _mm256_dpbusd_avx_epi32(acc, code[k], iv_four(q + 4 * k));
    }
    return acc;
}

#else

/* vpmaddubsw adds two products in 16 bits, where 127 * 127 * 2 fits and 255 * 127 * 2 does not:
 * codes of the kinds that need all of a byte stay signed, and the activations take their signs, so
 * that at most 128 * 127 * 2 must fit. */
enum { ROWS_MAX_CODE = 127, ROWS_SIGNED = 128 };

/* acc + four dwords of codes, none above max, * q[0..15], lane by lane; with ROWS_SIGNED the codes
 * are signed. As many pairs are added in 16 bits as fit. */
ALWAYS_INLINE ivec iv_dot_16(int max, ivec acc, const ivec code[4], const int8_t *q) {
    const ivec ones = _mm256_set1_epi16(1);
    ivec pair[4];
    for (int k = 0; k < 4; k++) {
        ivec a = iv_four(q + 4 * k);
        pair[k] = max != ROWS_SIGNED ? _mm256_maddubs_epi16(code[k], a)
                                     : _mm256_maddubs_epi16(_mm256_abs_epi8(code[k]),
                                                            _mm256_sign_epi8(a, code[k]));
    }
    int left = 4;
    for (int fit = 32767 / (2 * 127 * max); left > 1 && fit >= 2; fit /= 2) {
        left /= 2;
        for (int k = 0; k < left; k++) {
            pair[k] = _mm256_add_epi16(pair[k], pair[k + left]);
        }
    }
    for (int k = 0; k < left; k++) {
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(pair[k], ones));
    }
    return acc;
}

#endif
#endif
