/* Private to kernels/: what takes an exponential, a template that knows no instruction set. The
 * includer defines the vector type and its operations:
 *   vecf, VEC_LANES, vec_zero(), vec_set1(a), vec_load(p), vec_load_part(p, n), vec_store(p, v),
 *   vec_store_part(p, v, n), vec_add(a, b), vec_sub(a, b), vec_mul(a, b), vec_div(a, b),
 *   vec_sum(v), vec_fma(a, b, c) = a * b + c
 * and, behind this file, vec_exp(v) with the help of vec_exp_rest.
 */
#ifndef SMOE_KERNELS_VEC_EXP_H
#define SMOE_KERNELS_VEC_EXP_H

#include "kernels/kernels_impl.h"

/* e^x within 2 ulp, down to subnormal results: 2^k times vec_exp_rest(x, k), where k is x / ln 2
 * rounded. x is cut to EXP_LEAST and EXP_MOST first, beyond which floats end. NaN stays NaN. */
static vecf vec_exp(vecf x);

#define EXP_LEAST (-105.0f)
#define EXP_MOST  89.0f
#define LOG2_E    1.44269504f

/* e^r for r = x - k ln 2, at most ln 2 / 2 from 0: ln 2 in two parts (Cody and Waite), then the
 * polynomial of Taylor of degree 7. */
ALWAYS_INLINE vecf vec_exp_rest(vecf x, vecf k) {
    const float factor[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    vecf r = vec_fma(k, vec_set1(-0x1.62e4p-1f), x);
    r = vec_fma(k, vec_set1(-0x1.7f7d1cp-20f), r);
    vecf p = vec_set1(1.0f / 5040);
    for (int i = 0; i < 7; i++) {
        p = vec_fma(p, r, vec_set1(factor[i]));
    }
    return p;
}

ALWAYS_INLINE vecf vec_silu_mul(vecf gate, vecf up) {
    vecf below = vec_add(vec_set1(1.0f), vec_exp(vec_sub(vec_zero(), gate)));
    return vec_mul(vec_div(gate, below), up);
}

static void silu_mul(const float *gate, const float *up, int32_t n, float *out) {
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_store(out + i, vec_silu_mul(vec_load(gate + i), vec_load(up + i)));
    }
    if (i < n) {
        vecf v = vec_silu_mul(vec_load_part(gate + i, n - i), vec_load_part(up + i, n - i));
        vec_store_part(out + i, v, n - i);
    }
}

static float exp_sum(float *x, float max, int32_t n) {
    vecf sum = vec_zero(), top = vec_set1(max);
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vecf e = vec_exp(vec_sub(vec_load(x + i), top));
        vec_store(x + i, e);
        sum = vec_add(sum, e);
    }
    if (i < n) {
        vec_store_part(x + i, vec_exp(vec_sub(vec_load_part(x + i, n - i), top)), n - i);
        sum = vec_add(sum, vec_load_part(x + i, n - i));
    }
    return vec_sum(sum);
}

static void fill_exp_slots(kernels *k) {
    k->silu_mul = silu_mul;
    k->exp_sum = exp_sum;
}

#endif
