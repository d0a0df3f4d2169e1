/* Private to kernels/: how blocks of the ggml types become vectors, 32 weights at a time. All is
 * inlined with the type a constant. Layouts: formats/ggml_blocks.h. Needs AVX2, FMA and F16C.
 */
#ifndef SMOE_KERNELS_X86_GGML_UNPACK_H
#define SMOE_KERNELS_X86_GGML_UNPACK_H

#include "formats/ggml_blocks.h"
#include "formats/half.h"
#include "kernels/ggml_impl.h"
#include "kernels/x86_vector.h"

#define KIND(type, slot, elems) GK_##type,
enum ggml_kind { GGML_TYPES(KIND) GGML_KINDS };
#undef KIND

/* A block's scales and minima, for 16 or for 32 weights each; unused where a block has but one. */
typedef struct ggml_head {
    float scale[16];
    float min[16];
} ggml_head;

/* Weight = scale * code + min. The code is u - ggml_bias, or for ggml_signed kinds u with the sign
 * of the byte in sign (which is never 0 unless u is). Lanes 0..3 of scale and min are for the first
 * 16 weights, 4..7 for the others. */
typedef struct ggml_unit {
    __m256i u;
    __m256i sign;
    __m256 scale;
    __m256 min;
} ggml_unit;

/* No bias takes a code outside 0..63, so that two products with an activation fit 16 bits. */
ALWAYS_INLINE int8_t ggml_bias(enum ggml_kind kind) {
    switch (kind) {
    case GK_q4_0:
        return 8;
    case GK_q5_0:
        return 16;
    case GK_q6_k:
        return 32;
    case GK_q3_k:
        return 4;
    case GK_tq1_0:
    case GK_tq2_0:
    case GK_q2_0:
        return 1;
    case GK_mxfp4:
    case GK_nvfp4:
        return 12;
    case GK_iq1_s:
    case GK_iq1_m:
        return 9;
    default:
        return 0;
    }
}

ALWAYS_INLINE bool ggml_signed(enum ggml_kind kind) {
    switch (kind) {
    case GK_iq4_nl:
    case GK_iq4_xs:
    case GK_iq2_xxs:
    case GK_iq2_xs:
    case GK_iq2_s:
    case GK_iq3_xxs:
    case GK_iq3_s:
    case GK_q1_0:
        return true;
    default:
        return false;
    }
}

/* Of the types with integer products in ggml_avx2.c. */
ALWAYS_INLINE bool ggml_has_min(enum ggml_kind kind) {
    return kind == GK_q4_1 || kind == GK_q5_1 || kind == GK_q2_k;
}

/* ---- scales */

ALWAYS_INLINE float f16_at(const void *p) {
    return _mm_cvtss_f32(_mm256_castps256_ps128(scale_f16(p)));
}

/* out[i] = factor * v's lane i */
ALWAYS_INLINE void put_8(float *out, __m256i v, float factor) {
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(factor)));
}

ALWAYS_INLINE void put_bytes_8(float *out, __m128i v, float factor) {
    put_8(out, _mm256_cvtepi8_epi32(v), factor);
}

ALWAYS_INLINE void put_bytes_16(float *out, __m128i v, float factor) {
    put_bytes_8(out, v, factor);
    put_bytes_8(out + 8, _mm_unpackhi_epi64(v, v), factor);
}

/* Nibbles of the low eight bytes, low ones first. */
ALWAYS_INLINE __m128i nibbles_in_order(__m128i v) {
    const __m128i mask = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(v, mask), _mm_and_si128(_mm_srli_epi16(v, 4), mask));
}

/* 2 v + 1 */
ALWAYS_INLINE __m128i odd_bytes(__m128i v) {
    return _mm_add_epi8(_mm_add_epi8(v, v), _mm_set1_epi8(1));
}

ALWAYS_INLINE __m256i odd_lanes(__m256i v) {
    return _mm256_add_epi32(_mm256_add_epi32(v, v), _mm256_set1_epi32(1));
}

ALWAYS_INLINE uint16_t u16_at(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE uint32_t u32_at(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE uint64_t u64_at(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Q4_K's and Q5_K's scales, whose blocks start alike. */
ALWAYS_INLINE void head_k(const block_q4_k *b, ggml_head *h) {
    uint32_t s = u32_at(b->scale), m = u32_at(b->scale + 4), rest = u32_at(b->scale + 8);
    uint32_t s_high = (rest & 0x0f0f0f0f) | (s >> 2 & 0x30303030);
    uint32_t m_high = (rest >> 4 & 0x0f0f0f0f) | (m >> 2 & 0x30303030);
    uint64_t scale = (s & 0x3f3f3f3f) | (uint64_t)s_high << 32;
    uint64_t min = (m & 0x3f3f3f3f) | (uint64_t)m_high << 32;
    put_bytes_8(h->scale, _mm_cvtsi64_si128((int64_t)scale), f16_at(&b->d));
    put_bytes_8(h->min, _mm_cvtsi64_si128((int64_t)min), -f16_at(&b->dmin));
}

ALWAYS_INLINE void head_q2_k(const block_q2_k *b, ggml_head *h) {
    const __m128i mask = _mm_set1_epi8(15);
    __m128i both = load_128(b->scale);
    put_bytes_16(h->scale, _mm_and_si128(both, mask), f16_at(&b->d));
    put_bytes_16(h->min, _mm_and_si128(_mm_srli_epi16(both, 4), mask), -f16_at(&b->dmin));
}

ALWAYS_INLINE void head_q3_k(const block_q3_k *b, ggml_head *h) {
    __m128i low = _mm_loadl_epi64((const __m128i *)(const void *)b->scale);
    low = _mm_and_si128(_mm_unpacklo_epi64(low, _mm_srli_epi16(low, 4)), _mm_set1_epi8(15));
    __m128i high =
        _mm_srlv_epi32(_mm_set1_epi32((int)u32_at(b->scale + 8)), _mm_setr_epi32(0, 2, 4, 6));
    high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
    __m128i s = _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
    put_bytes_16(h->scale, s, f16_at(&b->d));
}

ALWAYS_INLINE void head_iq4_xs(const block_iq4_xs *b, ggml_head *h) {
    __m128i low = nibbles_in_order(_mm_cvtsi32_si128((int)u32_at(b->scale_low)));
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(b->scale_high),
                                     _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    __m256i s = _mm256_or_si256(_mm256_cvtepi8_epi32(low), high);
    put_8(h->scale, _mm256_sub_epi32(s, _mm256_set1_epi32(32)), f16_at(&b->d));
}

/* Nibbles s of 16 weights: d (2 s + 1). */
ALWAYS_INLINE void head_odd_16(const uint8_t *scale, float d, ggml_head *h) {
    __m128i s = nibbles_in_order(_mm_loadl_epi64((const __m128i *)(const void *)scale));
    put_bytes_16(h->scale, odd_bytes(s), d);
}

ALWAYS_INLINE void head_iq2_xxs(const block_iq2_xxs *b, ggml_head *h) {
    __m256 first = _mm256_castsi256_ps(load_256(b->q));
    __m256 second = _mm256_castsi256_ps(load_256(b->q + 32));
    __m256i rest = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
    rest = _mm256_permute4x64_epi64(rest, 0xd8);
    put_8(h->scale, odd_lanes(_mm256_srli_epi32(rest, 28)), 0.125f * f16_at(&b->d));
}

ALWAYS_INLINE void head_iq1_s(const block_iq1_s *b, ggml_head *h) {
    __m128i s = _mm_and_si128(_mm_srli_epi16(load_128(b->qh), 12), _mm_set1_epi16(7));
    put_8(h->scale, odd_lanes(_mm256_cvtepu16_epi32(s)), 0.125f * f16_at(&b->d));
}

ALWAYS_INLINE void head_iq1_m(const block_iq1_m *b, ggml_head *h) {
    uint64_t words = u64_at(b->scale);
    uint16_t d_bits = (uint16_t)((words >> 12 & 15) | (words >> 24 & 0xf0) | (words >> 36 & 0xf00) |
                                 (words >> 48 & 0xf000));
    float d = 0.125f * f16_at(&d_bits);
    __m256i four = _mm256_castsi128_si256(_mm_cvtepu16_epi32(_mm_cvtsi64_si128((int64_t)words)));
    for (int half = 0; half < 2; half++) {
        __m256i s = half == 0 ? _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)
                              : _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
        s = _mm256_srlv_epi32(_mm256_permutevar8x32_epi32(four, s),
                              _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9));
        s = _mm256_and_si256(s, _mm256_set1_epi32(7));
        put_8(h->scale + 8 * half, odd_lanes(s), d);
    }
}

/* Half of each UE4M3 scale, as in ggml_portable.c. */
ALWAYS_INLINE void head_nvfp4(const block_nvfp4 *b, ggml_head *h) {
    __m128i e = _mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)u32_at(b->d)));
    e = _mm_and_si128(e, _mm_set1_epi32(0x7f));
    e = _mm_andnot_si128(_mm_cmpeq_epi32(e, _mm_set1_epi32(0x7f)), e);
    __m128 d = _mm_mul_ps(_mm_castsi128_ps(_mm_slli_epi32(e, 20)), _mm_set1_ps(0x1p119f));
    _mm_storeu_ps(h->scale, d);
}

ALWAYS_INLINE void read_head(enum ggml_kind kind, const uint8_t *p, ggml_head *h) {
    switch (kind) {
    case GK_q2_k:
        head_q2_k((const block_q2_k *)p, h);
        break;
    case GK_q3_k:
        head_q3_k((const block_q3_k *)p, h);
        break;
    case GK_q4_k:
    case GK_q5_k:
        head_k((const block_q4_k *)p, h);
        break;
    case GK_q6_k:
        put_bytes_16(h->scale, load_128(((const block_q6_k *)p)->scale),
                     f16_at(&((const block_q6_k *)p)->d));
        break;
    case GK_iq4_xs:
        head_iq4_xs((const block_iq4_xs *)p, h);
        break;
    case GK_iq2_xxs:
        head_iq2_xxs((const block_iq2_xxs *)p, h);
        break;
    case GK_iq2_xs:
        head_odd_16(((const block_iq2_xs *)p)->scale, 0.125f * f16_at(p), h);
        break;
    case GK_iq2_s:
        head_odd_16(((const block_iq2_s *)p)->scale, 0.125f * f16_at(p), h);
        break;
    case GK_iq3_xxs:
        put_8(h->scale,
              odd_lanes(_mm256_srli_epi32(load_256(((const block_iq3_xxs *)p)->sign_scale), 28)),
              0.25f * f16_at(p));
        break;
    case GK_iq3_s:
        put_bytes_8(h->scale,
                    odd_bytes(nibbles_in_order(
                        _mm_cvtsi32_si128((int)u32_at(((const block_iq3_s *)p)->scale)))),
                    f16_at(p));
        break;
    case GK_iq1_s:
        head_iq1_s((const block_iq1_s *)p, h);
        break;
    case GK_iq1_m:
        head_iq1_m((const block_iq1_m *)p, h);
        break;
    case GK_nvfp4:
        head_nvfp4((const block_nvfp4 *)p, h);
        break;
    default:
        break;
    }
}

/* Entry 2 j in four lanes, the next in the other four. */
ALWAYS_INLINE __m256 runs_at(const float *of_16, size_t j) {
    __m256 pair = _mm256_castsi256_ps(_mm256_set1_epi64x((int64_t)u64_at(of_16 + 2 * j)));
    return _mm256_permutevar_ps(pair, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

/* ---- codes */

ALWAYS_INLINE __m256i low_nibbles(__m256i v) {
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

/* Bits n and on of each byte, with what comes over from its neighbour above. */
ALWAYS_INLINE __m256i shifted(__m256i v, size_t n) {
    return _mm256_srl_epi16(v, _mm_cvtsi32_si128((int)n));
}

/* Nibbles 16 apart. */
ALWAYS_INLINE __m256i nibbles_16(const uint8_t *q) {
    __m256i both = _mm256_broadcastsi128_si256(load_128(q));
    return low_nibbles(_mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)));
}

/* Two bits each of values 32 j and on, in quarters of 128. */
ALWAYS_INLINE __m256i quarter(const uint8_t *q, size_t j) {
    __m256i v = load_256(q + j / 4 * 32);
    return _mm256_and_si256(shifted(v, 2 * (j % 4)), _mm256_set1_epi8(3));
}

/* Bit n of each byte, as a bit of the same byte: 1 << to. */
ALWAYS_INLINE __m256i plane(__m256i v, size_t n, int to) {
    __m256i bit = _mm256_and_si256(shifted(v, n), _mm256_set1_epi8(1));
    return _mm256_slli_epi16(bit, to);
}

/* 0xff where the bit is set, for 32 bits. */
ALWAYS_INLINE __m256i mask_of_bits(uint32_t bits) {
    const __m256i of_byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), of_byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

/* -1 for a set bit, else 1. */
ALWAYS_INLINE __m256i signs_of_bits(uint32_t bits) {
    return _mm256_or_si256(mask_of_bits(bits), _mm256_set1_epi8(1));
}

/* The same for seven bits in each 64-bit lane (others above), the eighth making them even. */
ALWAYS_INLINE __m256i signs_of_sevens(__m256i v) {
    const __m128i odd =
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    const __m256i spread = _mm256_setr_epi64x(0, 0x0808080808080808, 0, 0x0808080808080808);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    v = _mm256_and_si256(v, _mm256_set1_epi64x(127));
    __m256i folded = low_nibbles(_mm256_xor_si256(v, _mm256_srli_epi64(v, 4)));
    v = _mm256_or_si256(v, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(odd), folded));
    v = _mm256_shuffle_epi8(v, spread);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_or_si256(v, _mm256_set1_epi8(1));
}

ALWAYS_INLINE __m256i signs_of_word(uint32_t word) {
    return signs_of_sevens(
        _mm256_srlv_epi64(_mm256_set1_epi64x(word), _mm256_setr_epi64x(0, 7, 14, 21)));
}

ALWAYS_INLINE __m256i grid_4(const uint64_t *grid, size_t a, size_t b, size_t c, size_t d) {
    return _mm256_setr_epi64x((int64_t)grid[a], (int64_t)grid[b], (int64_t)grid[c],
                              (int64_t)grid[d]);
}

ALWAYS_INLINE __m256i codes_iq2_s(const block_iq2_s *b, size_t j) {
    const uint8_t *q = b->q + j * 4;
    uint32_t h = b->qh[j];
    return grid_4(IQ2_S_GRID, q[0] | (h << 8 & 0x300), q[1] | (h << 6 & 0x300),
                  q[2] | (h << 4 & 0x300), q[3] | (h << 2 & 0x300));
}

ALWAYS_INLINE __m256i codes_iq2_xs(uint64_t q) {
    return grid_4(IQ2_XS_GRID, q & 511, q >> 16 & 511, q >> 32 & 511, q >> 48 & 511);
}

/* Loads one by one: gathering is slower on most CPUs. */
ALWAYS_INLINE __m256i codes_iq3_xxs(const uint8_t *q) {
    const uint32_t *g = IQ3_XXS_GRID;
    return _mm256_setr_epi32((int)g[q[0]], (int)g[q[1]], (int)g[q[2]], (int)g[q[3]], (int)g[q[4]],
                             (int)g[q[5]], (int)g[q[6]], (int)g[q[7]]);
}

ALWAYS_INLINE __m256i codes_iq3_s(const uint8_t *q, uint32_t h) {
    const uint32_t *g = IQ3_S_GRID;
    return _mm256_setr_epi32((int)g[q[0] | (h << 8 & 256)], (int)g[q[1] | (h << 7 & 256)],
                             (int)g[q[2] | (h << 6 & 256)], (int)g[q[3] | (h << 5 & 256)],
                             (int)g[q[4] | (h << 4 & 256)], (int)g[q[5] | (h << 3 & 256)],
                             (int)g[q[6] | (h << 2 & 256)], (int)g[q[7] | (h << 1 & 256)]);
}

/* 8 (grid - 1) +- 1, with 9 added. */
ALWAYS_INLINE __m256i codes_iq1_s(const block_iq1_s *b, size_t j) {
    const uint8_t *q = b->q + j * 4;
    uint32_t h = b->qh[j];
    __m256i v = grid_4(IQ1_GRID, q[0] | (h << 8 & 0x700), q[1] | (h << 5 & 0x700),
                       q[2] | (h << 2 & 0x700), q[3] | (h >> 1 & 0x700));
    return _mm256_add_epi8(v, _mm256_set1_epi8(h >> 15 ? 0 : 2));
}

ALWAYS_INLINE __m256i codes_iq1_m(const block_iq1_m *b, size_t j) {
    const uint8_t *q = b->q + j * 4;
    uint32_t h = u16_at(b->qh + j * 2);
    __m256i v = grid_4(IQ1_GRID, q[0] | (h << 8 & 0x700), q[1] | (h << 4 & 0x700),
                       q[2] | (h & 0x700), q[3] | (h >> 4 & 0x700));
    __m256i minus = _mm256_srlv_epi64(_mm256_set1_epi64x(h), _mm256_setr_epi64x(3, 7, 11, 15));
    minus = _mm256_and_si256(minus, _mm256_set1_epi64x(1));
    __m256i plus = _mm256_sub_epi64(minus, _mm256_set1_epi64x(1)); /* all ones for plus */
    return _mm256_add_epi8(v, _mm256_and_si256(plus, _mm256_set1_epi8(2)));
}

/* Digits of bytes with 16-bit factors of their powers of three, in order of bytes. */
ALWAYS_INLINE __m256i ternary_digits(__m256i q, __m256i power) {
    const __m256i three = _mm256_set1_epi16(3);
    __m256i even = _mm256_mullo_epi16(_mm256_slli_epi16(q, 8), power);
    __m256i odd = _mm256_mullo_epi16(_mm256_and_si256(q, _mm256_set1_epi16(-256)), power);
    odd = _mm256_slli_epi16(_mm256_mulhi_epu16(odd, three), 8);
    return _mm256_or_si256(_mm256_mulhi_epu16(even, three), odd);
}

ALWAYS_INLINE __m256i codes_tq1_0(const block_tq1_0 *b, size_t j) {
    static const int16_t power[] = {1, 3, 9, 27, 81};
    if (j < 5) {
        return ternary_digits(load_256(b->q), _mm256_set1_epi16(power[j]));
    }
    __m128i q = load_128(b->q + 32);
    if (j < 7) {
        __m256i factor =
            _mm256_setr_m128i(_mm_set1_epi16(power[2 * j - 10]), _mm_set1_epi16(power[2 * j - 9]));
        return ternary_digits(_mm256_broadcastsi128_si256(q), factor);
    }
    __m256i last = _mm256_setr_m128i(q, _mm_set1_epi32((int)u32_at(b->qh)));
    return ternary_digits(
        last, _mm256_setr_epi16(81, 81, 81, 81, 81, 81, 81, 81, 1, 1, 3, 3, 9, 9, 27, 27));
}

/* Two bits each of 32 weights in order. */
ALWAYS_INLINE __m256i codes_q2_0(const uint8_t *q) {
    const __m256i of_byte = _mm256_setr_epi64x(0x0101010100000000, 0x0303030302020202,
                                               0x0505050504040404, 0x0707070706060606);
    const __m128i value = _mm_setr_epi8(0, 1, 2, 3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)u64_at(q)), of_byte);
    v = _mm256_and_si256(v, _mm256_set1_epi32((int)0xc0300c03u));
    v = low_nibbles(_mm256_or_si256(v, _mm256_srli_epi16(v, 4)));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(value), v);
}

ALWAYS_INLINE __m256i fp4_codes(__m256i nibbles) {
    __m128i table = _mm_add_epi8(load_128(FP4_VALUES), _mm_set1_epi8(12));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles);
}

ALWAYS_INLINE __m256i codes_nvfp4(const uint8_t *q) {
    __m256i v = _mm256_permute4x64_epi64(_mm256_castsi128_si256(load_128(q)), 0x50);
    return fp4_codes(low_nibbles(_mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 4, 0, 4))));
}

ALWAYS_INLINE __m256i codes_q6_k(const block_q6_k *b, size_t j) {
    __m256i low = load_256(b->ql + j / 4 * 64 + j % 2 * 32);
    low = low_nibbles(shifted(low, j % 4 / 2 * 4));
    return _mm256_or_si256(low, _mm256_slli_epi16(quarter(b->qh, j), 4));
}

ALWAYS_INLINE __m256i nibbles_32(const uint8_t *q, size_t j) {
    return low_nibbles(shifted(load_256(q + j / 2 * 32), j % 2 * 4));
}

/* u and sign from values of either sign. */
ALWAYS_INLINE void set_signed(ggml_unit *out, __m256i v) {
    out->u = _mm256_abs_epi8(v);
    out->sign = v;
}

ALWAYS_INLINE void unit_iq4(const uint8_t *q, ggml_unit *out) {
    __m256i table = _mm256_broadcastsi128_si256(load_128(IQ4_VALUES));
    set_signed(out, _mm256_shuffle_epi8(table, nibbles_16(q)));
}

/* Kinds with one scale a block. */
ALWAYS_INLINE void read_unit_of_small(enum ggml_kind kind, const uint8_t *p, size_t j,
                                      ggml_unit *out) {
    out->scale =
        kind == GK_mxfp4 ? _mm256_set1_ps(f32_from_bits(MXFP4_SCALE_BITS[p[0]])) : scale_f16(p);
    switch (kind) {
    case GK_q4_1:
        out->min = scale_f16(&((const block_q4_1 *)p)->m);
        out->u = nibbles_16(((const block_q4_1 *)p)->q);
        break;
    case GK_q5_0:
        out->u =
            _mm256_or_si256(nibbles_16(((const block_q5_0 *)p)->q),
                            _mm256_and_si256(mask_of_bits(u32_at(p + 2)), _mm256_set1_epi8(16)));
        break;
    case GK_q5_1:
        out->min = scale_f16(&((const block_q5_1 *)p)->m);
        out->u =
            _mm256_or_si256(nibbles_16(((const block_q5_1 *)p)->q),
                            _mm256_and_si256(mask_of_bits(u32_at(p + 4)), _mm256_set1_epi8(16)));
        break;
    case GK_iq4_nl:
        unit_iq4(((const block_iq4_nl *)p)->q, out);
        break;
    case GK_mxfp4:
        out->u = fp4_codes(nibbles_16(((const block_mxfp4 *)p)->q));
        break;
    case GK_q1_0:
        out->u = _mm256_set1_epi8(1);
        out->sign = signs_of_bits(~u32_at(((const block_q1_0 *)p)->q + 4 * j));
        break;
    case GK_q2_0:
        out->u = codes_q2_0(((const block_q2_0 *)p)->q + 8 * j);
        break;
    case GK_tq1_0:
        out->scale = scale_f16(&((const block_tq1_0 *)p)->d);
        out->u = codes_tq1_0((const block_tq1_0 *)p, j);
        break;
    case GK_tq2_0:
        out->scale = scale_f16(&((const block_tq2_0 *)p)->d);
        out->u = quarter(((const block_tq2_0 *)p)->q, j);
        break;
    default: /* GK_q4_0 */
        out->u = nibbles_16(((const block_q4_0 *)p)->q);
        break;
    }
}

/* Kinds with a scale for each 16 weights. */
ALWAYS_INLINE void read_unit_of_16(enum ggml_kind kind, const uint8_t *p, size_t j,
                                   const ggml_head *h, ggml_unit *out) {
    out->scale = runs_at(h->scale, j);
    switch (kind) {
    case GK_q2_k:
        out->min = runs_at(h->min, j);
        out->u = quarter(((const block_q2_k *)p)->q, j);
        break;
    case GK_q3_k:
        out->u = _mm256_or_si256(quarter(((const block_q3_k *)p)->q, j),
                                 plane(load_256(((const block_q3_k *)p)->hmask), j, 2));
        break;
    case GK_q6_k:
        out->u = codes_q6_k((const block_q6_k *)p, j);
        break;
    case GK_iq2_xs: {
        uint64_t q = u64_at((const uint8_t *)p + 2 + 8 * j);
        out->u = codes_iq2_xs(q);
        out->sign = signs_of_sevens(
            _mm256_srlv_epi64(_mm256_set1_epi64x((int64_t)q), _mm256_setr_epi64x(9, 25, 41, 57)));
        break;
    }
    case GK_iq2_s:
        out->u = codes_iq2_s((const block_iq2_s *)p, j);
        out->sign = signs_of_bits(u32_at(((const block_iq2_s *)p)->sign + 4 * j));
        break;
    case GK_iq1_m:
        out->u = codes_iq1_m((const block_iq1_m *)p, j);
        break;
    default: /* GK_nvfp4 */
        out->u = codes_nvfp4(((const block_nvfp4 *)p)->q + 16 * j);
        break;
    }
}

/* Kinds with a scale for each 32 weights. */
ALWAYS_INLINE void read_unit_of_32(enum ggml_kind kind, const uint8_t *p, size_t j,
                                   const ggml_head *h, ggml_unit *out) {
    out->scale = _mm256_broadcast_ss(&h->scale[j]);
    switch (kind) {
    case GK_q5_k:
        out->min = _mm256_broadcast_ss(&h->min[j]);
        out->u = _mm256_or_si256(nibbles_32(((const block_q5_k *)p)->q, j),
                                 plane(load_256(((const block_q5_k *)p)->qh), j, 4));
        break;
    case GK_iq4_xs:
        unit_iq4(((const block_iq4_xs *)p)->q + 16 * j, out);
        break;
    case GK_iq2_xxs: {
        const uint8_t *q = ((const block_iq2_xxs *)p)->q + 8 * j;
        out->u = grid_4(IQ2_XXS_GRID, q[0], q[1], q[2], q[3]);
        out->sign = signs_of_word(u32_at(q + 4));
        break;
    }
    case GK_iq3_xxs:
        out->u = codes_iq3_xxs(((const block_iq3_xxs *)p)->q + 8 * j);
        out->sign = signs_of_word(u32_at(((const block_iq3_xxs *)p)->sign_scale + 4 * j));
        break;
    case GK_iq3_s:
        out->u = codes_iq3_s(((const block_iq3_s *)p)->q + 8 * j, ((const block_iq3_s *)p)->qh[j]);
        out->sign = signs_of_bits(u32_at(((const block_iq3_s *)p)->sign + 4 * j));
        break;
    case GK_iq1_s:
        out->u = codes_iq1_s((const block_iq1_s *)p, j);
        break;
    default: /* GK_q4_k */
        out->min = _mm256_broadcast_ss(&h->min[j]);
        out->u = nibbles_32(((const block_q4_k *)p)->q, j);
        break;
    }
}

/* Weights 32 j and on of the block at p. */
ALWAYS_INLINE void read_unit(enum ggml_kind kind, const uint8_t *p, size_t j, const ggml_head *h,
                             ggml_unit *out) {
    out->sign = _mm256_setzero_si256();
    out->min = _mm256_setzero_ps();
    switch (kind) {
    case GK_q2_k:
    case GK_q3_k:
    case GK_q6_k:
    case GK_iq2_xs:
    case GK_iq2_s:
    case GK_iq1_m:
    case GK_nvfp4:
        read_unit_of_16(kind, p, j, h, out);
        break;
    case GK_q4_k:
    case GK_q5_k:
    case GK_iq4_xs:
    case GK_iq2_xxs:
    case GK_iq3_xxs:
    case GK_iq3_s:
    case GK_iq1_s:
        read_unit_of_32(kind, p, j, h, out);
        break;
    default:
        read_unit_of_small(kind, p, j, out);
        break;
    }
}

#endif
