/* The table of compute kernels, one variant for each instruction set.
 *
 * kernels_select fills it from the portable C versions upwards, so every slot is always there.
 * Portable C is the oracle: tests compare each variant with it.
 *
 * Batch invariance is part of every contract here: output element (token t, row r) is computed by
 * the same operations in the same order whatever n_tok is, whatever rows are computed beside it,
 * and wherever the pointers are aligned. So splitting rows or tokens over calls never changes a
 * bit. Variants may differ from one another in the last bits.
 *
 * Weight pointers come straight from files: they may have any byte alignment. Activations and
 * outputs are 64-byte aligned at row 0. Nothing reads past the last block of a row.
 */
#ifndef SMOE_KERNELS_KERNELS_H
#define SMOE_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "formats/dtype.h"

/* 32 activations quantised for integer dot products: x[i] ~ d * q[i], d = max|x| / 127. The sums
 * serve weights that are stored with an offset. A cache line, so that matrix tiles find each row's
 * q in one. */
typedef struct act_q8 {
    float d;
    float d_sum;    /* d times the sum of q */
    int32_t fix[2]; /* -128 times the sums of q's halves: undoes weight codes that have 128 added */
    int8_t q[32];
    int32_t fix_all; /* the sum of fix */
    int32_t unused[3];
} act_q8;

/* Blocks of an activation row; rows are padded with zeros to whole blocks of 64. */
static inline size_t act_row_blocks(int32_t n_col) {
    return ((size_t)n_col + 63) / 64 * 2;
}

/* The x_stride that suits kernels best: they read the same columns of up to 64 rows by turns, which
 * with 4 KiB from row to row, as 2,048 columns would have, lie in one of the L1 cache's sets. An
 * odd number of blocks spreads them over all. */
static inline size_t act_row_stride(int32_t n_col) {
    return act_row_blocks(n_col) + 1;
}

/* y[t * y_stride + r] = sum over c of w[r][c] * x[t][c] for r < n_row, t < n_tok.
 *   w: n_row rows, w_row_bytes apart, of the slot's type, n_col values each
 *   x: float [n_tok][x_stride] for mm_f32, act_q8 [n_tok][x_stride] for mm_q8 (x_stride counts
 *      elements of that type)
 * mm_f32 multiplies dequantised weights with float activations (f32 accumulation in lanes). */
typedef void matmul_fn(float *y, size_t y_stride, const void *w, size_t w_row_bytes, int32_t n_row,
                       int32_t n_col, const void *x, size_t x_stride, int32_t n_tok);

/* KV_Q8: blocks of 32 values as in block_q8, d = max|x| / 127. A row is whole blocks, the last one
 * padded with zeros, and depends on nothing but its own values. */
enum kv_type { KV_F32, KV_F16, KV_Q8, KV_TYPES };

/* What a cached row consists of, and what offsets and strides of the cache count. */
typedef struct kv_unit {
    uint32_t n_value;
    uint32_t bytes;
} kv_unit;

static inline kv_unit kv_unit_of(enum kv_type type) {
    static const kv_unit unit[KV_TYPES] = {
        [KV_F32] = {1, 4}, [KV_F16] = {1, 2}, [KV_Q8] = {32, sizeof(block_q8)}};
    return unit[type];
}

static inline size_t kv_row_units(enum kv_type type, int32_t dim) {
    size_t n_value = kv_unit_of(type).n_value;
    return ((size_t)dim + n_value - 1) / n_value;
}

/* Cached rows of one head: n_row of them, row_stride units of the cache's type apart, dim (any
 * number) values each. */
typedef struct kv_rows {
    const void *at;
    size_t row_stride;
    int32_t n_row;
    int32_t dim;
} kv_rows;

/* out[j * out_stride + i] = scale * sum over c of q[j * dim + c] * k[i][c], i < n_row, j < n_q. */
typedef void kv_dot_fn(const float *q, int32_t n_q, const kv_rows *k, float scale, float *out,
                       size_t out_stride);
/* acc[j * dim + c] += sum over i of p[j * p_stride + i] * v[i][c], i in order. */
typedef void kv_mix_fn(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v, float *acc);

typedef struct kernels {
    const char *name; /* "portable", "avx2", "avxvnni", "avx512", "amx", "neon" */

    matmul_fn *mm_f32[DT_COUNT]; /* for every dtype with is_weight */
    matmul_fn *mm_q8[DT_COUNT];  /* for the block types among them; NULL otherwise */

    /* out: act_row_blocks(n) blocks. x: n floats; the tail is padded with zeros. Non-finite input
     * gives d = NaN, so that it shows in the result instead of vanishing. */
    void (*quantize_act)(const float *x, int32_t n, act_q8 *out);

    /* n_col floats of one row, the same bits in every variant. For every dtype with is_weight. */
    void (*dequant_row[DT_COUNT])(const void *w, int32_t n_col, float *out);

    /* out[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; out may be x. */
    void (*rms_norm)(const float *x, const float *w, float eps, int32_t n, float *out);

    /* out[i] = silu(gate[i]) * up[i]; out may be gate. */
    void (*silu_mul)(const float *gate, const float *up, int32_t n, float *out);

    /* x[i] = exp(x[i] - max); returns the sum, added in order of i in fixed lanes. */
    float (*exp_sum)(float *x, float max, int32_t n);

    /* y[i] += a * x[i] */
    void (*add_scaled)(float *y, float a, const float *x, int32_t n);

    /* The largest of n > 0 values; NaN lose against every number. */
    float (*max_of)(const float *x, int32_t n);

    /* Attention of n_q queries that share a run of cached rows. */
    kv_dot_fn *kv_dot[KV_TYPES];
    kv_mix_fn *kv_mix[KV_TYPES];
    /* n floats into whole units of the cache's type, round to nearest even, the same bits in every
     * variant but for the payload of NaN. In KV_Q8 a block with a value that is not finite, or too
     * large for an f16 scale, becomes NaN as a whole. */
    void (*kv_store[KV_TYPES])(const float *x, int32_t n, void *out);
} kernels;

/* The best variant that runs here, or the one named: "auto" or NULL, "portable", "avx2",
 * "avxvnni", "avx512", "amx", "neon". Naming one that does not is SMOE_ERR_UNSUPPORTED. Returns
 * static storage in *out. */
int kernels_select(const kernels **out, const char *isa, smoe_error *err);

/* For tests and benchmarks: the i-th variant that this CPU runs, from portable upwards; NULL past
 * the last. */
const kernels *kernels_variant(int i);

#endif
