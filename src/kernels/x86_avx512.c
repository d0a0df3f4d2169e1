/* What gains from AVX-512 over AVX2: float products and exponentials in 16 lanes. Integer products
 * are in x86_rows.h. Compiled for F, BW, VL, DQ and VNNI; called only where the CPU has them.
 */
#if defined(__x86_64__)

#include <math.h>

#include "kernels/x86_common.h"

/* ---- float template: sixteen lanes */

typedef __m512 vecf;
enum {
    VEC_LANES = 16,
    FLOAT_TOKENS = 6,
    KV_QUERIES = 4,
    KV_MIX_VECS = 4,
    Q8_QUERIES = 8,
    FLOAT_SINGLE_ROWS = 4
};

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

ALWAYS_INLINE vecf vec_add(vecf a, vecf b) {
    return _mm512_add_ps(a, b);
}

ALWAYS_INLINE vecf vec_sub(vecf a, vecf b) {
    return _mm512_sub_ps(a, b);
}

ALWAYS_INLINE vecf vec_div(vecf a, vecf b) {
    return _mm512_div_ps(a, b);
}

ALWAYS_INLINE vecf vec_mul(vecf a, vecf b) {
    return _mm512_mul_ps(a, b);
}

ALWAYS_INLINE vecf vec_load_int8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_128(p)));
}

ALWAYS_INLINE vecf vec_set1_f16(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

ALWAYS_INLINE __m256 fold_512(vecf v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

ALWAYS_INLINE float vec_sum(vecf v) {
    return sum_lanes(fold_512(v));
}

ALWAYS_INLINE void vec_put_sums(float *out, bool first, const vecf v[4]) {
    __m128 sum = sum_lanes_4(fold_512(v[0]), fold_512(v[1]), fold_512(v[2]), fold_512(v[3]));
    _mm_storeu_ps(out, first ? sum : _mm_add_ps(_mm_loadu_ps(out), sum));
}

/* Pairs of rows, then pairs of pairs, then what lies in lanes of 128 bits, twice. */
ALWAYS_INLINE void vec_transpose(vecf v[16]) {
    vecf four[16];
    for (int i = 0; i < 16; i += 4) {
        vecf a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
        vecf c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
        four[i] = _mm512_shuffle_ps(a, c, 0x44);
        four[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        four[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        four[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        vecf a = _mm512_shuffle_f32x4(four[i], four[i + 4], 0x88);
        vecf b = _mm512_shuffle_f32x4(four[i], four[i + 4], 0xdd);
        vecf c = _mm512_shuffle_f32x4(four[i + 8], four[i + 12], 0x88);
        vecf d = _mm512_shuffle_f32x4(four[i + 8], four[i + 12], 0xdd);
        v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        v[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* a with b: each lane of 128 bits has the sums of a's neighbours, then of b's. */
ALWAYS_INLINE vecf add_neighbours(vecf a, vecf b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* The same for lanes of 128 bits (which: 0x88 and 0xdd), or a's halves and b's (0x44 and 0xee). */
#define ADD_WIDE(a, b, even, odd)                                                                  \
    _mm512_add_ps(_mm512_shuffle_f32x4(a, b, even), _mm512_shuffle_f32x4(a, b, odd))

/* Sixteen sums at once, by the tree of vec_sum: halves, neighbours twice, then what is left. */
ALWAYS_INLINE void vec_put_sums_4(float *out, size_t stride, vecf (*v)[FLOAT_SINGLE_ROWS]) {
    vecf part[2];
    for (int i = 0; i < 2; i++) {
        vecf half[4];
        for (int r = 0; r < 4; r++) {
            half[r] = ADD_WIDE(v[2 * i][r], v[2 * i + 1][r], 0x44, 0xee);
        }
        part[i] =
            add_neighbours(add_neighbours(half[0], half[1]), add_neighbours(half[2], half[3]));
    }
    vecf sum = ADD_WIDE(part[0], part[1], 0x88, 0xdd);
    _mm_storeu_ps(out, _mm512_castps512_ps128(sum));
    _mm_storeu_ps(out + stride, _mm512_extractf32x4_ps(sum, 1));
    _mm_storeu_ps(out + 2 * stride, _mm512_extractf32x4_ps(sum, 2));
    _mm_storeu_ps(out + 3 * stride, _mm512_extractf32x4_ps(sum, 3));
}
#define VEC_PUT_SUMS_4 vec_put_sums_4

#include "kernels/x86_float.h"
#include "kernels/x86_kv_across.h"

#include "kernels/vec_exp.h"

/* ---- exponentials */

static vecf vec_exp(vecf x) {
    x = _mm512_max_ps(_mm512_set1_ps(EXP_LEAST), x); /* the second where one is NaN */
    x = _mm512_min_ps(_mm512_set1_ps(EXP_MOST), x);
    vecf k = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(LOG2_E)),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_scalef_ps(vec_exp_rest(x, k), k); /* rounds once, subnormal results too */
}

static float max_of(const float *x, int32_t n) {
    const vecf least = _mm512_set1_ps(-HUGE_VALF);
    vecf max = least;
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        max = _mm512_max_ps(vec_load(x + i), max); /* the second where one is NaN */
    }
    if (i < n) {
        max = _mm512_max_ps(_mm512_mask_loadu_ps(least, part_mask(n - i), x + i), max);
    }
    return _mm512_reduce_max_ps(max);
}

void kernels_fill_avx512(kernels *k) {
    k->name = "avx512";
    fill_x86_float_slots(k);
    fill_across_slots(k);
    fill_exp_slots(k);
    k->max_of = max_of;
    kernels_fill_rows_avx512(k);
    kernels_fill_rows_k_avx512(k);
}

#endif
