/* What gains from AVX-512 over AVX2: float products in 16 lanes, and int8 products with vpdpbusd
 * and 32 registers. The int8 code stays at 256 bits, the size of a block. Compiled for F, BW, VL,
 * DQ and VNNI; called only where the CPU has them.
 */
#if defined(__x86_64__)

#include "kernels/x86_common.h"

/* ---- float template: sixteen lanes */

typedef __m512 vecf;
enum { VEC_LANES = 16, FLOAT_TOKENS = 6 };

ALWAYS_INLINE __mmask16 part_mask(int32_t n) {
    return (__mmask16)((1u << n) - 1);
}

ALWAYS_INLINE vecf vec_zero(void) {
    return _mm512_setzero_ps();
}

ALWAYS_INLINE vecf vec_set1(float a) {
    return _mm512_set1_ps(a);
}

ALWAYS_INLINE vecf vec_load(const void *p) {
    return _mm512_loadu_ps(p);
}

ALWAYS_INLINE vecf vec_load_part(const float *p, int32_t n) {
    return _mm512_maskz_loadu_ps(part_mask(n), p);
}

ALWAYS_INLINE void vec_store(float *p, vecf v) {
    _mm512_storeu_ps(p, v);
}

ALWAYS_INLINE void vec_store_part(float *p, vecf v, int32_t n) {
    _mm512_mask_storeu_ps(p, part_mask(n), v);
}

ALWAYS_INLINE vecf vec_fma(vecf a, vecf b, vecf c) {
    return _mm512_fmadd_ps(a, b, c);
}

ALWAYS_INLINE vecf vec_load_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_256(p)), 16));
}

ALWAYS_INLINE vecf vec_load_f16(const void *p) {
    return _mm512_cvtph_ps(load_256(p));
}

ALWAYS_INLINE __m256 fold_512(vecf v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

ALWAYS_INLINE __m128 vec_sum_4(vecf a, vecf b, vecf c, vecf d) {
    return sum_lanes_4(fold_512(a), fold_512(b), fold_512(c), fold_512(d));
}

#include "kernels/x86_float.h"

/* ---- int8 template: vpdpbusd multiplies unsigned by signed bytes, so weights are read with 128
 * added and 128 times the activations is taken off again, lane by lane, exactly. */

enum { INT8_PREFILL_ROWS = 2 };

ALWAYS_INLINE __m256i bias_of(__m256i w, enum int8_kind kind) {
    (void)kind;
    return _mm256_xor_si256(w, _mm256_set1_epi8(-128));
}

ALWAYS_INLINE __m256i fix_of(__m256i a, enum int8_kind kind) {
    (void)kind;
    __m256i zero = _mm256_setzero_si256();
    return _mm256_sub_epi32(zero, _mm256_dpbusd_epi32(zero, _mm256_set1_epi8(-128), a));
}

ALWAYS_INLINE void set_scales(weights_32 *out, __m256 d, const q2_meta *m, int half) {
    out->scale = _mm256_mul_ps(d, q2_scales(m, half));
}

ALWAYS_INLINE __m256i dot_of(const weights_32 *w, __m256i a, __m256i fix, enum int8_kind kind) {
    (void)kind;
    return _mm256_dpbusd_epi32(fix, w->w, a);
}

#include "kernels/x86_int8.h"

void kernels_fill_avx512(kernels *k) {
    k->name = "avx512";
    fill_float_slots(k);
    k->mm_q8[DT_Q8] = mm_q8_q8;
    k->mm_q8[DT_Q4] = mm_q8_q4;
    k->mm_q8[DT_Q2] = mm_q8_q2;
}

#endif
