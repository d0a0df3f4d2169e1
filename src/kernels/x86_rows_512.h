/* Private to kernels/: vectors of sixteen rows for x86_rows.h. Needs AVX-512 F, BW, VL, DQ and
 * VNNI.
 */
#ifndef SMOE_KERNELS_X86_ROWS_512_H
#define SMOE_KERNELS_X86_ROWS_512_H

#include "kernels/x86_vector.h"

typedef __m512i ivec;
typedef __m512 fvec;

enum { ROW_LANES = 16 }; /* rows side by side */

/* ---- integers */

ALWAYS_INLINE ivec iv_bytes(int value) {
    return _mm512_set1_epi8((char)value);
}

ALWAYS_INLINE ivec iv_set1(int32_t value) {
    return _mm512_set1_epi32(value);
}

ALWAYS_INLINE ivec iv_and(ivec a, ivec b) {
    return _mm512_and_si512(a, b);
}

ALWAYS_INLINE ivec iv_or(ivec a, ivec b) {
    return _mm512_or_si512(a, b);
}

/* b where mask has bits, else a. */
ALWAYS_INLINE ivec iv_select(ivec mask, ivec b, ivec a) {
    return _mm512_ternarylogic_epi32(b, a, mask, 0xe4); /* the mask, a constant, stays */
}

/* v's bits in mask, and base's. */
ALWAYS_INLINE ivec iv_and_or(ivec v, ivec mask, ivec base) {
    return _mm512_ternarylogic_epi32(v, mask, base, 0xea);
}

ALWAYS_INLINE ivec iv_add(ivec a, ivec b) {
    return _mm512_add_epi32(a, b);
}

ALWAYS_INLINE ivec iv_sub(ivec a, ivec b) {
    return _mm512_sub_epi32(a, b);
}

ALWAYS_INLINE ivec iv_add_bytes(ivec a, ivec b) {
    return _mm512_add_epi8(a, b);
}

ALWAYS_INLINE ivec iv_sub_bytes(ivec a, ivec b) {
    return _mm512_sub_epi8(a, b);
}

ALWAYS_INLINE ivec iv_srl(ivec a, unsigned n) {
    return _mm512_srli_epi32(a, n);
}

ALWAYS_INLINE ivec iv_sra(ivec a, unsigned n) {
    return _mm512_srai_epi32(a, n);
}

ALWAYS_INLINE ivec iv_sll(ivec a, unsigned n) {
    return _mm512_slli_epi32(a, n);
}

/* Of each dword: the low n bytes of low, the others of high. */
ALWAYS_INLINE ivec iv_join(unsigned n, ivec low, ivec high) {
    return iv_select(iv_set1((int32_t)((1u << 8 * n) - 1)), low, high);
}

/* Each dword's bytes moved n places down, 1 to 3, the lowest to the top. */
ALWAYS_INLINE ivec iv_turn_bytes(ivec v, unsigned n) {
    return n == 1   ? _mm512_ror_epi32(v, 8)
           : n == 2 ? _mm512_ror_epi32(v, 16)
                    : _mm512_ror_epi32(v, 24);
}

/* out[i]: the n_out dwords that begin n bytes, 1 to 3, behind the first byte of v. */
ALWAYS_INLINE void iv_align(unsigned n, int n_out, const ivec *v, ivec *out) {
    ivec turned = iv_turn_bytes(v[0], n);
    for (int i = 0; i < n_out; i++) {
        ivec next = iv_turn_bytes(v[i + 1], n);
        out[i] = iv_join(4 - n, turned, next);
        turned = next;
    }
}

/* Within each 16 bytes. */
ALWAYS_INLINE ivec iv_shuffle_bytes(ivec table, ivec index) {
    return _mm512_shuffle_epi8(table, index);
}

ALWAYS_INLINE ivec iv_table(const void *sixteen) {
    return _mm512_broadcast_i32x4(load_128(sixteen));
}

/* 2^(e - 128) of e << 23 for e < 2, which is subnormal, else normal. */
ALWAYS_INLINE ivec iv_tiny_e8m0(ivec e, ivec normal) {
    const ivec half = _mm512_set1_epi32(0x00200000);
    __mmask16 tiny = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(0x01000000));
    return _mm512_mask_add_epi32(normal, tiny, _mm512_srli_epi32(e, 2), half);
}

/* Every fourth row from the i-th: 16 bytes each. */
ALWAYS_INLINE ivec iv_every_fourth(const uint8_t *const group[ROW_LANES / 4], size_t skip) {
    __m512i v = _mm512_castsi128_si512(load_128(group[0] + skip));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_128(group[1] + skip));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_128(group[2] + skip));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, load_128(group[3] + skip));
}

/* out[k]: dword k of 16 bytes of each row in order. */
ALWAYS_INLINE void iv_transpose(ivec a, ivec b, ivec c, ivec d, ivec out[4]) {
    ivec ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    ab = _mm512_unpackhi_epi32(a, b);
    cd = _mm512_unpackhi_epi32(c, d);
    out[2] = _mm512_unpacklo_epi64(ab, cd);
    out[3] = _mm512_unpackhi_epi64(ab, cd);
}

/* 32 bytes of each row, two rows a vector: fewer loads than 16 bytes at a time. */
ALWAYS_INLINE void iv_load_8(const uint8_t *const group[ROW_LANES / 4], size_t stride,
                             size_t offset, ivec v[8]) {
    for (size_t i = 0; i < 8; i++) {
        const uint8_t *const *g = group + i / 4 * 2;
        size_t skip = i % 4 * stride + offset;
        v[i] = _mm512_castsi256_si512(load_256(g[0] + skip));
        v[i] = _mm512_inserti64x4(v[i], load_256(g[1] + skip), 1);
    }
}

/* out[k]: dword k of each row in order, of what iv_load_8 gave. */
ALWAYS_INLINE void iv_transpose_8(const ivec v[8], ivec out[8]) {
    ivec a[4], b[4];
    iv_transpose(v[0], v[1], v[2], v[3], a);
    iv_transpose(v[4], v[5], v[6], v[7], b);
    for (int k = 0; k < 4; k++) {
        out[k] = _mm512_shuffle_i32x4(a[k], b[k], 0x88);
        out[4 + k] = _mm512_shuffle_i32x4(a[k], b[k], 0xdd);
    }
}

/* ---- floats */

ALWAYS_INLINE fvec fv_zero(void) {
    return _mm512_setzero_ps();
}

ALWAYS_INLINE fvec fv_set1(float a) {
    return _mm512_set1_ps(a);
}

ALWAYS_INLINE fvec fv_mul(fvec a, fvec b) {
    return _mm512_mul_ps(a, b);
}

ALWAYS_INLINE fvec fv_sub(fvec a, fvec b) {
    return _mm512_sub_ps(a, b);
}

ALWAYS_INLINE fvec fv_fma(fvec a, fvec b, fvec c) {
    return _mm512_fmadd_ps(a, b, c);
}

ALWAYS_INLINE fvec fv_from(ivec a) {
    return _mm512_cvtepi32_ps(a);
}

ALWAYS_INLINE fvec fv_bits(ivec a) {
    return _mm512_castsi512_ps(a);
}

/* The low half of each dword, an f16. */
ALWAYS_INLINE fvec fv_low_f16(ivec v) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/* The first n_row lanes. */
ALWAYS_INLINE void fv_store_rows(float *y, fvec v, int32_t n_row) {
    _mm512_mask_storeu_ps(y, (__mmask16)((1u << n_row) - 1), v);
}

/* ---- products */

enum { ROWS_MAX_CODE = 255, ROWS_SIGNED = -1 /* not used */ };

/* Four tokens' sums fit the registers beside two units of codes. */
#define ROWS_QUADS

/* acc + a dword of codes * q[0..3], lane by lane. */
ALWAYS_INLINE ivec iv_dot_4(ivec acc, ivec code, const int8_t *q) {
    DOT_BROADCAST_IN_ORDER(16, acc, code, q);
    return acc;
}

/* acc + four dwords of codes, none above max, * q[0..15], lane by lane. */
ALWAYS_INLINE ivec iv_dot_16(int max, ivec acc, const ivec code[4], const int8_t *q) {
    (void)max;
    for (int k = 0; k < 4; k++) {
        DOT_BROADCAST(16, acc, code[k], q + 4 * k);
    }
    return acc;
}

#endif
