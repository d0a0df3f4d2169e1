/* Private to kernels/: what every NEON file shares. All is inlined. Needs ASIMD; dot products are
 * asked for only in the file that multiplies integers.
 */
#ifndef SMOE_KERNELS_NEON_VECTOR_H
#define SMOE_KERNELS_NEON_VECTOR_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- what the templates vec_*.h ask for; loads are of any alignment */

typedef float32x4_t vecf;
enum { VEC_LANES = 4 };

ALWAYS_INLINE vecf vec_zero(void) {
    return vdupq_n_f32(0);
}

ALWAYS_INLINE vecf vec_set1(float a) {
    return vdupq_n_f32(a);
}

ALWAYS_INLINE vecf vec_load(const void *p) {
    return vreinterpretq_f32_u8(vld1q_u8(p));
}

/* n floats, 0 < n < 4; the other lanes are zero. */
ALWAYS_INLINE vecf vec_load_part(const float *p, int32_t n) {
    float lane[VEC_LANES] = {0};
    memcpy(lane, p, (size_t)n * sizeof *p);
    return vld1q_f32(lane);
}

ALWAYS_INLINE vecf vec_load_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

ALWAYS_INLINE vecf vec_load_bf16(const void *p) {
    uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(p));
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

ALWAYS_INLINE void vec_store(float *p, vecf v) {
    vst1q_f32(p, v);
}

ALWAYS_INLINE void store_f32_part(float *p, vecf v, int32_t n) {
    float lane[VEC_LANES];
    vst1q_f32(lane, v);
    memcpy(p, lane, (size_t)n * sizeof *p);
}

ALWAYS_INLINE void vec_store_part(float *p, vecf v, int32_t n) {
    store_f32_part(p, v, n);
}

ALWAYS_INLINE vecf vec_add(vecf a, vecf b) {
    return vaddq_f32(a, b);
}

ALWAYS_INLINE vecf vec_sub(vecf a, vecf b) {
    return vsubq_f32(a, b);
}

ALWAYS_INLINE vecf vec_mul(vecf a, vecf b) {
    return vmulq_f32(a, b);
}

ALWAYS_INLINE vecf vec_div(vecf a, vecf b) {
    return vdivq_f32(a, b);
}

ALWAYS_INLINE vecf vec_fma(vecf a, vecf b, vecf c) {
    return vfmaq_f32(c, a, b);
}

/* Four int8 as floats. */
ALWAYS_INLINE vecf vec_load_int8(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

/* The f16 at p in all lanes. */
ALWAYS_INLINE vecf vec_set1_f16(const void *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

/* Lane i of the result is the sum of vector i's lanes, always (0 + 1) + (2 + 3). */
ALWAYS_INLINE vecf sum_lanes_4(vecf a, vecf b, vecf c, vecf d) {
    return vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));
}

ALWAYS_INLINE float vec_sum(vecf v) {
    return vgetq_lane_f32(sum_lanes_4(v, v, v, v), 0);
}

ALWAYS_INLINE void vec_put_sums(float *out, bool first, const vecf v[4]) {
    vecf sum = sum_lanes_4(v[0], v[1], v[2], v[3]);
    vst1q_f32(out, first ? sum : vaddq_f32(vld1q_f32(out), sum));
}

#endif
