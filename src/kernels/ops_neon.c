/* Quantising activations, elementwise and row operations for ASIMD, and the table of the NEON
 * variant. Called only where the CPU has ASIMD with dot products.
 */
#if defined(__aarch64__)

#include <math.h>

#include "formats/half.h"
#include "kernels/kernels_impl.h"
#include "kernels/neon_vector.h"

/* ---- quantising activations */

/* Returns the bits of the largest magnitude of 32 values; NaN counts as largest. */
ALWAYS_INLINE uint32_t load_block(const float *x, float32x4_t v[8]) {
    uint32x4_t max = vdupq_n_u32(0);
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    return vmaxvq_u32(max);
}

/* 16 values that fit eight bits. */
static int8x16_t narrow_16(const int32x4_t q[4]) {
    int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
    int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
    return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

static void quantize_block(const float *x, act_q8 *out) {
    float32x4_t v[8];
    uint32_t max_bits = load_block(x, v);
    float largest = f32_from_bits(max_bits);
    if (max_bits >= 0x7f800000u || largest < ACT_TINY) {
        memset(out, 0, sizeof *out);
        out->d = max_bits >= 0x7f800000u ? f32_from_bits(0x7fc00000u) : 0.0f;
        out->d_sum = out->d;
        return;
    }
    int32_t sum[2];
    const float inverse = 127.0f / largest;
    for (int half = 0; half < 2; half++) {
        int32x4_t q[4];
        for (int i = 0; i < 4; i++) {
            q[i] = vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + i], inverse));
        }
        sum[half] = vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
        vst1q_s8(out->q + 16 * half, narrow_16(q));
        out->fix[half] = -128 * sum[half];
    }
    memset(out->unused, 0, sizeof out->unused);
    out->fix_all = out->fix[0] + out->fix[1];
    out->d = largest / 127.0f;
    out->d_sum = out->d * (float)(sum[0] + sum[1]);
}

/* 32 values, as the portable version has them: the same operations, so the same bits. */
static void store_block_q8(const float *x, block_q8 *out) {
    float32x4_t v[8];
    out->d = f32_to_f16(f32_from_bits(load_block(x, v)) / 127.0f);
    if (out->d >= F16_INFINITY) {
        memset(out, 0, sizeof *out);
        out->d = F16_NAN;
        return;
    }
    const float inverse = out->d ? 1.0f / f16_to_f32(out->d) : 0.0f;
    for (int half = 0; half < 2; half++) {
        int32x4_t q[4];
        for (int i = 0; i < 4; i++) {
            float32x4_t code = vmulq_n_f32(v[4 * half + i], inverse);
            code = vminq_f32(vmaxq_f32(code, vdupq_n_f32(-127)), vdupq_n_f32(127));
            q[i] = vcvtnq_s32_f32(code);
        }
        vst1q_s8(out->q + 16 * half, narrow_16(q));
    }
}

/* ---- row operations */

static void rms_norm(const float *x, const float *w, float eps, int32_t n, float *out) {
    float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int k = 0; k < 4; k++) {
            float32x4_t v = vld1q_f32(x + i + 4 * k);
            sum[k] = vfmaq_f32(sum[k], v, v);
        }
    }
    for (; i < n; i += 4) {
        float32x4_t v = i + 4 <= n ? vld1q_f32(x + i) : vec_load_part(x + i, n - i);
        sum[0] = vfmaq_f32(sum[0], v, v);
    }
    float square = vec_sum(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
    float scale = 1.0f / sqrtf(square / (float)n + eps);
    for (i = 0; i + 4 <= n; i += 4) {
        float32x4_t v = vmulq_n_f32(vld1q_f32(x + i), scale);
        vst1q_f32(out + i, vmulq_f32(v, vld1q_f32(w + i)));
    }
    for (; i < n; i++) {
        out[i] = x[i] * scale * w[i];
    }
}

ALWAYS_INLINE void vec_store_f16(uint16_t *p, vecf v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}

#include "kernels/vec_ops.h"

/* 2^k in two factors, so that results may be subnormal. */
static vecf vec_exp(vecf x) {
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(EXP_LEAST)), vdupq_n_f32(EXP_MOST));
    int32x4_t k = vcvtnq_s32_f32(vmulq_n_f32(x, LOG2_E));
    float32x4_t p = vec_exp_rest(x, vcvtq_f32_s32(k));
    int32x4_t half = vshrq_n_s32(k, 1), rest = vsubq_s32(k, half);
    const int32x4_t bias = vdupq_n_s32(127);
    float32x4_t a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    float32x4_t b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return vmulq_f32(vmulq_f32(p, a), b);
}

/* b where it is larger than a: not where it is NaN. */
static float32x4_t larger(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(b, a), b, a);
}

static float max_of(const float *x, int32_t n) {
    float32x4_t max[2] = {vdupq_n_f32(-HUGE_VALF), vdupq_n_f32(-HUGE_VALF)};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        max[0] = larger(max[0], vld1q_f32(x + i));
        max[1] = larger(max[1], vld1q_f32(x + i + 4));
    }
    float largest = vmaxvq_f32(larger(max[0], max[1]));
    for (; i < n; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    return largest;
}

void kernels_fill_neon(kernels *k) {
    k->name = "neon";
    fill_row_slots(k);
    k->rms_norm = rms_norm;
    k->max_of = max_of;
    kernels_fill_float_neon(k);
    kernels_fill_rows_neon(k);
}

#endif
