/* Kernels for AVX2, FMA and F16C, all but integer products and what is ggml's. Compiled for them;
 * called only where the CPU has them. */
#if defined(__x86_64__)

#include <math.h>

#include "kernels/ggml_impl.h"
#include "kernels/x86_common.h"

/* ---- float template: eight lanes */

typedef __m256 vecf;
enum {
    VEC_LANES = 8,
    FLOAT_TOKENS = 3,
    KV_QUERIES = 2,
    KV_MIX_VECS = 4,
    Q8_QUERIES = 2,
    FLOAT_SINGLE_ROWS = 4
};

ALWAYS_INLINE __m256i part_mask(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

ALWAYS_INLINE vecf vec_zero(void) {
    return _mm256_setzero_ps();
}

ALWAYS_INLINE vecf vec_set1(float a) {
    return _mm256_set1_ps(a);
}

ALWAYS_INLINE vecf vec_load(const void *p) {
    return _mm256_loadu_ps((const float *)p);
}

ALWAYS_INLINE vecf vec_load_part(const float *p, int32_t n) {
    return _mm256_maskload_ps(p, part_mask(n));
}

ALWAYS_INLINE void vec_store(float *p, vecf v) {
    _mm256_storeu_ps(p, v);
}

ALWAYS_INLINE void vec_store_part(float *p, vecf v, int32_t n) {
    _mm256_maskstore_ps(p, part_mask(n), v);
}

ALWAYS_INLINE vecf vec_fma(vecf a, vecf b, vecf c) {
    return _mm256_fmadd_ps(a, b, c);
}

ALWAYS_INLINE vecf vec_load_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16));
}

ALWAYS_INLINE vecf vec_load_f16(const void *p) {
    return _mm256_cvtph_ps(load_128(p));
}

ALWAYS_INLINE vecf vec_add(vecf a, vecf b) {
    return _mm256_add_ps(a, b);
}

ALWAYS_INLINE vecf vec_sub(vecf a, vecf b) {
    return _mm256_sub_ps(a, b);
}

ALWAYS_INLINE vecf vec_div(vecf a, vecf b) {
    return _mm256_div_ps(a, b);
}

ALWAYS_INLINE vecf vec_mul(vecf a, vecf b) {
    return _mm256_mul_ps(a, b);
}

ALWAYS_INLINE vecf vec_load_int8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

ALWAYS_INLINE vecf vec_set1_f16(const void *p) {
    return scale_f16(p);
}

ALWAYS_INLINE float vec_sum(vecf v) {
    return sum_lanes(v);
}

ALWAYS_INLINE void vec_put_sums(float *out, bool first, const vecf v[4]) {
    __m128 sum = sum_lanes_4(v[0], v[1], v[2], v[3]);
    _mm_storeu_ps(out, first ? sum : _mm_add_ps(_mm_loadu_ps(out), sum));
}

#include "kernels/x86_float.h"

void mm_dequant_avx2(dequant_fn *dequant, size_t chunk_bytes, float *y, size_t y_stride,
                     const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col, const void *x,
                     size_t x_stride, int32_t n_tok) {
    const float_reader reader = {dequant, chunk_bytes, chunk_f32};
    mm_float(&reader, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);
}

/* ---- quantising activations */

static __m256i abs_bits(__m256 v) {
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

static int32_t max_lane(__m256i v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

static void quantize_block(const float *x, act_q8 *out) {
    __m256 v[4];
    __m256i max = _mm256_setzero_si256(); /* compared as bits, so that NaN counts as largest */
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        max = _mm256_max_epi32(max, abs_bits(v[i]));
    }
    uint32_t max_bits = (uint32_t)max_lane(max);
    float largest = f32_from_bits(max_bits);
    if (max_bits >= 0x7f800000u || largest < ACT_TINY) {
        memset(out, 0, sizeof *out);
        out->d = max_bits >= 0x7f800000u ? f32_from_bits(0x7fc00000u) : 0.0f;
        out->d_sum = out->d;
        return;
    }
    __m256 inverse = _mm256_set1_ps(127.0f / largest);
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    }
    __m256i lanes = _mm256_hadd_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    lanes = _mm256_hadd_epi32(lanes, lanes);
    __m128i halves =
        _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    int32_t first = _mm_cvtsi128_si32(halves), second = _mm_extract_epi32(halves, 1);
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    out->d = largest / 127.0f;
    out->d_sum = out->d * (float)(first + second);
    out->fix[0] = -128 * first;
    out->fix[1] = -128 * second;
    memset(out->unused, 0, sizeof out->unused);
    out->fix_all = -128 * (first + second);
    _mm256_storeu_si256((__m256i *)out->q, bytes);
}

/* 32 values, as the portable version has them: the same operations, so the same bits. */
static void store_block_q8(const float *x, block_q8 *out) {
    __m256 v[4];
    __m256i max = _mm256_setzero_si256(), q[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        max = _mm256_max_epi32(max, abs_bits(v[i]));
    }
    out->d = f32_to_f16(f32_from_bits((uint32_t)max_lane(max)) / 127.0f);
    if (out->d >= F16_INFINITY) {
        memset(out, 0, sizeof *out);
        out->d = F16_NAN;
        return;
    }
    __m256 inverse = _mm256_set1_ps(out->d ? 1.0f / f16_to_f32(out->d) : 0.0f);
    for (int i = 0; i < 4; i++) {
        __m256 code = _mm256_mul_ps(v[i], inverse);
        code = _mm256_min_ps(_mm256_max_ps(code, _mm256_set1_ps(-127)), _mm256_set1_ps(127));
        q[i] = _mm256_cvtps_epi32(code);
    }
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)out->q, bytes);
}

/* ---- row operations */

static void rms_norm(const float *x, const float *w, float eps, int32_t n, float *out) {
    __m256 sum = _mm256_setzero_ps();
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        sum = _mm256_fmadd_ps(v, v, sum);
    }
    if (i < n) {
        __m256 v = vec_load_part(x + i, n - i);
        sum = _mm256_fmadd_ps(v, v, sum);
    }
    float scale = 1.0f / sqrtf(sum_lanes(sum) / (float)n + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(v, _mm256_loadu_ps(w + i)));
    }
    for (; i < n; i++) {
        out[i] = x[i] * scale * w[i];
    }
}

ALWAYS_INLINE void vec_store_f16(uint16_t *p, vecf v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#include "kernels/vec_ops.h"

/* 2^k in two factors, so that results may be subnormal. */
static vecf vec_exp(vecf x) {
    x = _mm256_max_ps(_mm256_set1_ps(EXP_LEAST), x); /* the second where one is NaN */
    x = _mm256_min_ps(_mm256_set1_ps(EXP_MOST), x);
    __m256i k = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(LOG2_E)));
    __m256 p = vec_exp_rest(x, _mm256_cvtepi32_ps(k));
    __m256i half = _mm256_srai_epi32(k, 1);
    __m256i rest = _mm256_sub_epi32(k, half);
    const __m256i bias = _mm256_set1_epi32(127);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}

static float max_of(const float *x, int32_t n) {
    __m256 max = _mm256_set1_ps(-HUGE_VALF);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        max = _mm256_max_ps(_mm256_loadu_ps(x + i), max); /* the second where one is NaN */
    }
    float lane[8], largest = -HUGE_VALF;
    _mm256_storeu_ps(lane, max);
    for (int k = 0; k < 8; k++) {
        largest = lane[k] > largest ? lane[k] : largest;
    }
    for (; i < n; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    return largest;
}

void kernels_fill_avx2(kernels *k) {
    k->name = "avx2";
    fill_x86_float_slots(k);
    fill_row_slots(k);
    kernels_fill_rows_avx2(k);
    kernels_fill_rows_k_avx2(k);
    k->dequant_row[DT_Q8] = dequant_q8;
    k->dequant_row[DT_Q4] = dequant_q4;
    k->dequant_row[DT_Q2] = dequant_q2;
    k->rms_norm = rms_norm;
    k->max_of = max_of;
}

#endif
