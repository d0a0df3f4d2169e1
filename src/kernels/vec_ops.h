/* Private to kernels/: row operations and stores of rows, a template that knows no instruction set.
 * The includer defines the vector type and its operations, and how one block is quantised:
 *   vecf, VEC_LANES, vec_zero(), vec_set1(a), vec_load(p), vec_load_part(p, n), vec_store(p, v),
 *   vec_store_part(p, v, n), vec_fma(a, b, c) = a * b + c, vec_store_f16(p, v): rounded to
 *   nearest even, and what vec_exp.h asks for
 *   quantize_block(x, out), store_block_q8(x, out)  32 values, as the portable version has them
 */
#ifndef SMOE_KERNELS_VEC_OPS_H
#define SMOE_KERNELS_VEC_OPS_H

#include "formats/half.h"
#include "kernels/kernels_impl.h"
#include "kernels/vec_exp.h"

static void quantize_act(const float *x, int32_t n, act_q8 *out) {
    int32_t n_block = (int32_t)act_row_blocks(n);
    int32_t b = 0;
    for (; 32 * b + 32 <= n; b++) {
        quantize_block(x + 32 * (size_t)b, &out[b]);
    }
    for (; b < n_block; b++) {
        float last[32] = {0};
        if (32 * b < n) {
            memcpy(last, x + 32 * (size_t)b, (size_t)(n - 32 * b) * sizeof *x);
        }
        quantize_block(last, &out[b]);
    }
}

static void add_scaled(float *y, float a, const float *x, int32_t n) {
    vecf factor = vec_set1(a);
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_store(y + i, vec_fma(factor, vec_load(x + i), vec_load(y + i)));
    }
    if (i < n) {
        vecf v = vec_fma(factor, vec_load_part(x + i, n - i), vec_load_part(y + i, n - i));
        vec_store_part(y + i, v, n - i);
    }
}

static void kv_store_f16(const float *x, int32_t n, void *out) {
    uint16_t *half = out;
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_store_f16(half + i, vec_load(x + i));
    }
    for (; i < n; i++) {
        half[i] = f32_to_f16(x[i]);
    }
}

static void kv_store_q8(const float *x, int32_t n, void *out) {
    block_q8 *block = out;
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        store_block_q8(x + i, block++);
    }
    if (i < n) {
        float last[32] = {0};
        memcpy(last, x + i, (size_t)(n - i) * sizeof *x);
        store_block_q8(last, block);
    }
}

static void fill_row_slots(kernels *k) {
    fill_exp_slots(k);
    k->quantize_act = quantize_act;
    k->add_scaled = add_scaled;
    k->kv_store[KV_F16] = kv_store_f16;
    k->kv_store[KV_Q8] = kv_store_q8;
}

#endif
