/* Private to kernels/: what every NEON file shares. All is inlined. Needs ASIMD; dot products are
 * asked for only in the file that multiplies integers.
 */
#ifndef SMOE_KERNELS_NEON_VECTOR_H
#define SMOE_KERNELS_NEON_VECTOR_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Four halves at p, of any alignment, converted. */
ALWAYS_INLINE float32x4_t load_f16_4(const void *p) {
    uint8x8_t bytes = vld1_u8(p);
    return vcvt_f32_f16(vreinterpret_f16_u8(bytes));
}

ALWAYS_INLINE float32x4_t load_bf16_4(const void *p) {
    uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(p));
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

ALWAYS_INLINE float32x4_t load_f32_4(const void *p) {
    return vreinterpretq_f32_u8(vld1q_u8(p));
}

/* n floats, 0 < n < 4; the other lanes are zero. */
ALWAYS_INLINE float32x4_t load_f32_part(const float *p, int32_t n) {
    float lane[4] = {0};
    memcpy(lane, p, (size_t)n * sizeof *p);
    return vld1q_f32(lane);
}

ALWAYS_INLINE void store_f32_part(float *p, float32x4_t v, int32_t n) {
    float lane[4];
    vst1q_f32(lane, v);
    memcpy(p, lane, (size_t)n * sizeof *p);
}

/* Lane i of the result is the sum of vector i's lanes, always (0 + 1) + (2 + 3). */
ALWAYS_INLINE float32x4_t sum_lanes_4(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
    return vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));
}

ALWAYS_INLINE float sum_lanes(float32x4_t a) {
    return vgetq_lane_f32(sum_lanes_4(a, a, a, a), 0);
}

#endif
