/* float16 and bfloat16 bits from and to float, in integer arithmetic: exact upwards, round to
 * nearest even downwards, the same bits on every machine. Header-only; vector code has its own.
 */
#ifndef SMOE_FORMATS_HALF_H
#define SMOE_FORMATS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u) {
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static inline float bf16_to_f32(uint16_t h) {
    return f32_from_bits((uint32_t)h << 16);
}

/* NaN stays NaN (made quiet); overflow goes to infinity, as rounding says. */
static inline uint16_t f32_to_bf16(float v) {
    uint32_t u = f32_bits(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(u >> 16 | 0x40);
    }
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t mag = (uint32_t)(h & 0x7fff) << 13;
    if (mag >= 0x0f800000u) { /* infinity and NaN, which conversion makes quiet */
        return f32_from_bits(sign | 0x70000000u | mag | (mag > 0x0f800000u ? 0x400000u : 0));
    }
    if (mag >= 0x00800000u) {
        return f32_from_bits(sign | (mag + 0x38000000u));
    }
    float tiny = (float)(h & 0x7fff) * 0x1p-24f; /* a multiple of the smallest half: exact */
    return sign ? -tiny : tiny;
}

/* Values past 65504 that round up go to infinity; NaN stays NaN. */
static inline uint16_t f32_to_f16(float v) {
    uint32_t u = f32_bits(v);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffffu;
    if (u >= 0x7f800000u) {
        return (uint16_t)(sign | 0x7c00 | (u > 0x7f800000u ? 0x200 | (u >> 13 & 0x1ff) : 0));
    }
    if (u >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (u >= 0x38800000u) {
        u -= 0x38000000u;
        return (uint16_t)(sign | (u + 0xfff + (u >> 13 & 1)) >> 13);
    }
    if (u < 0x33000000u) { /* at most half of the smallest: 0x33000000 itself ties to even, zero */
        return sign;
    }
    uint32_t shift = 126 - (u >> 23); /* 14 to 24 */
    uint32_t mantissa = (u & 0x7fffffu) | 0x800000u;
    uint32_t half = 1u << (shift - 1);
    return (uint16_t)(sign | (mantissa + half - 1 + (mantissa >> shift & 1)) >> shift);
}

#endif
