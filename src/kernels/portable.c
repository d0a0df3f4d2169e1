/* The oracle: every kernel in plain C, for any machine. Written to be read, not to be fast; the
 * instruction-set files are tested against it. Float sums run in eight lanes (element i goes to
 * lane i mod 8), as in the vector versions, which also keeps rounding errors small.
 */
#include <math.h>
#include <string.h>

#include "formats/half.h"
#include "kernels/ggml_impl.h"

enum { LANES = 8 };

static float lanes_sum(const float *lane) {
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static float dot_f32(const float *a, const float *b, int32_t n) {
    float lane[LANES] = {0};
    for (int32_t i = 0; i < n; i++) {
        lane[i % LANES] += a[i] * b[i];
    }
    return lanes_sum(lane);
}

/* ---- dequantising */

static void dequant_f32(const void *w, int32_t n_col, float *out) {
    memcpy(out, w, (size_t)n_col * sizeof *out);
}

static uint16_t load_u16(const void *base, int32_t i) {
    uint16_t v;
    memcpy(&v, (const uint8_t *)base + 2 * (size_t)i, sizeof v);
    return v;
}

static void dequant_f16(const void *w, int32_t n_col, float *out) {
    for (int32_t i = 0; i < n_col; i++) {
        out[i] = f16_to_f32(load_u16(w, i));
    }
}

static void dequant_bf16(const void *w, int32_t n_col, float *out) {
    for (int32_t i = 0; i < n_col; i++) {
        out[i] = bf16_to_f32(load_u16(w, i));
    }
}

static void dequant_q8(const void *w, int32_t n_col, float *out) {
    const block_q8 *block = w;
    for (int32_t i = 0; i < n_col; i++) {
        const block_q8 *b = &block[i / 32];
        out[i] = f16_to_f32(b->d) * (float)b->q[i % 32];
    }
}

/* Weight i of 32, without the scale. */
static int32_t q4_value(const block_q4 *b, int32_t i) {
    return Q4_CODEBOOK[i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4];
}

static void dequant_q4(const void *w, int32_t n_col, float *out) {
    const block_q4 *block = w;
    for (int32_t i = 0; i < n_col; i++) {
        const block_q4 *b = &block[i / 32];
        out[i] = f16_to_f32(b->d) * (float)q4_value(b, i % 32);
    }
}

/* The six bits of run k of 4. */
static uint32_t q2_run(const block_q2 *b, int32_t k) {
    uint32_t meta = b->meta[0] | (uint32_t)b->meta[1] << 8 | (uint32_t)b->meta[2] << 16;
    return meta >> 6 * k & 63;
}

/* Weight i of 64 with the run's scale, without the block's. */
static int32_t q2_value(const block_q2 *b, int32_t i) {
    int32_t k = i / 16;
    uint32_t run = q2_run(b, k);
    return Q2_CODEBOOK[run >> 4][b->q[i % 16] >> 2 * k & 3] * (int32_t)((run & 15) + 1);
}

static void dequant_q2(const void *w, int32_t n_col, float *out) {
    const block_q2 *block = w;
    for (int32_t i = 0; i < n_col; i++) {
        const block_q2 *b = &block[i / 64];
        out[i] = f16_to_f32(b->d) * (float)q2_value(b, i % 64);
    }
}

/* ---- products with float activations */

/* Sums in chunks of MM_CHUNK columns, each chunk dequantised once for all tokens. chunk_bytes: what
 * so many weights take. */
void mm_dequant_portable(dequant_fn *dequant, size_t chunk_bytes, float *y, size_t y_stride,
                         const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col,
                         const void *x, size_t x_stride, int32_t n_tok) {
    float buf[MM_CHUNK];
    for (int32_t r = 0; r < n_row; r++) {
        const uint8_t *row = weight_row(w, w_row_bytes, r);
        for (int32_t c = 0; c < n_col; c += MM_CHUNK, row += chunk_bytes) {
            int32_t n = n_col - c < MM_CHUNK ? n_col - c : MM_CHUNK;
            dequant(row, n, buf);
            for (int32_t t = 0; t < n_tok; t++) {
                float *out = &y[(size_t)t * y_stride + (size_t)r];
                float sum = dot_f32(buf, (const float *)x + (size_t)t * x_stride + c, n);
                *out = c == 0 ? sum : *out + sum;
            }
        }
    }
}

#define MM_F32(type, weights, bytes)                                                               \
    static void mm_f32_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok) {                                                     \
        mm_dequant_portable(dequant_##type, MM_CHUNK / (weights) * (bytes), y, y_stride, w,        \
                            w_row_bytes, n_row, n_col, x, x_stride, n_tok);                        \
    }
MM_F32(f32, 1, 4)
MM_F32(f16, 1, 2)
MM_F32(bf16, 1, 2)
MM_F32(q8, 32, sizeof(block_q8))
MM_F32(q4, 32, sizeof(block_q4))
MM_F32(q2, 64, sizeof(block_q2))

/* ---- products with quantised activations */

static float dot_q8(const void *row, int32_t n_block, const act_q8 *x) {
    const block_q8 *w = row;
    float sum = 0;
    for (int32_t b = 0; b < n_block; b++) {
        int32_t dot = 0;
        for (int32_t i = 0; i < 32; i++) {
            dot += w[b].q[i] * x[b].q[i];
        }
        sum += f16_to_f32(w[b].d) * x[b].d * (float)dot;
    }
    return sum;
}

static float dot_q4(const void *row, int32_t n_block, const act_q8 *x) {
    const block_q4 *w = row;
    float sum = 0;
    for (int32_t b = 0; b < n_block; b++) {
        int32_t dot = 0;
        for (int32_t i = 0; i < 32; i++) {
            dot += q4_value(&w[b], i) * x[b].q[i];
        }
        sum += f16_to_f32(w[b].d) * x[b].d * (float)dot;
    }
    return sum;
}

static float dot_q2(const void *row, int32_t n_block, const act_q8 *x) {
    const block_q2 *w = row;
    float sum = 0;
    for (int32_t b = 0; b < n_block; b++) {
        for (int32_t half = 0; half < 2; half++) {
            const act_q8 *a = &x[2 * b + half];
            int32_t dot = 0;
            for (int32_t i = 0; i < 32; i++) {
                dot += q2_value(&w[b], 32 * half + i) * a->q[i];
            }
            sum += f16_to_f32(w[b].d) * a->d * (float)dot;
        }
    }
    return sum;
}

#define MM_Q8(type, weights)                                                                       \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        int32_t n_block = (n_col + (weights)-1) / (weights);                                       \
        for (int32_t t = 0; t < n_tok; t++) {                                                      \
            for (int32_t r = 0; r < n_row; r++) {                                                  \
                y[(size_t)t * y_stride + (size_t)r] =                                              \
                    dot_##type(weight_row(w, w_row_bytes, r), n_block,                             \
                               (const act_q8 *)x + (size_t)t * x_stride);                          \
            }                                                                                      \
        }                                                                                          \
    }
MM_Q8(q8, 32)
MM_Q8(q4, 32)
MM_Q8(q2, 64)

static void quantize_block(const float *x, int32_t n, act_q8 *out) {
    uint32_t max_bits = 0; /* as bits, so that NaN counts as largest */
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7fffffffu;
        max_bits = bits > max_bits ? bits : max_bits;
    }
    memset(out, 0, sizeof *out);
    if (max_bits >= 0x7f800000u) {
        out->d = NAN;
        out->d_sum = NAN;
        return;
    }
    float max = f32_from_bits(max_bits);
    if (max < ACT_TINY) {
        return;
    }
    float inverse = 127.0f / max;
    int32_t sum = 0;
    out->d = max / 127.0f;
    for (int32_t i = 0; i < n; i++) {
        out->q[i] = (int8_t)lrintf(x[i] * inverse);
        out->fix[i / 16] -= 128 * out->q[i];
        sum += out->q[i];
    }
    out->fix_all = out->fix[0] + out->fix[1];
    out->d_sum = out->d * (float)sum;
}

static void quantize_act(const float *x, int32_t n, act_q8 *out) {
    int32_t n_block = (int32_t)act_row_blocks(n);
    for (int32_t b = 0; b < n_block; b++) {
        int32_t left = n - 32 * b;
        quantize_block(x + 32 * (size_t)b, left < 0 ? 0 : left < 32 ? left : 32, &out[b]);
    }
}

/* ---- elementwise and row operations */

static void rms_norm(const float *x, const float *w, float eps, int32_t n, float *out) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    float scale = 1.0f / sqrtf((float)(sum / n) + eps);
    for (int32_t i = 0; i < n; i++) {
        out[i] = x[i] * scale * w[i];
    }
}

static void silu_mul(const float *gate, const float *up, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

static float exp_sum(float *x, float max, int32_t n) {
    float lane[LANES] = {0};
    for (int32_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        lane[i % LANES] += x[i];
    }
    return lanes_sum(lane);
}

static void add_scaled(float *y, float a, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        y[i] += a * x[i];
    }
}

/* ---- attention over cached rows */

static float max_of(const float *x, int32_t n) {
    float max = -HUGE_VALF;
    for (int32_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    return max;
}

static void kv_dot_f32(const float *q, int32_t n_q, const kv_rows *k, float scale, float *out,
                       size_t out_stride) {
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < k->n_row; i++) {
            const float *row = (const float *)k->at + (size_t)i * k->row_stride;
            out[(size_t)j * out_stride + (size_t)i] =
                scale * dot_f32(q + (size_t)j * (size_t)k->dim, row, k->dim);
        }
    }
}

static void kv_dot_f16(const float *q, int32_t n_q, const kv_rows *k, float scale, float *out,
                       size_t out_stride) {
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < k->n_row; i++) {
            const uint16_t *row = (const uint16_t *)k->at + (size_t)i * k->row_stride;
            float lane[LANES] = {0};
            for (int32_t c = 0; c < k->dim; c++) {
                lane[c % LANES] += q[(size_t)j * (size_t)k->dim + (size_t)c] * f16_to_f32(row[c]);
            }
            out[(size_t)j * out_stride + (size_t)i] = scale * lanes_sum(lane);
        }
    }
}

static void kv_mix_f32(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v, float *acc) {
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < v->n_row; i++) {
            add_scaled(acc + (size_t)j * (size_t)v->dim, p[(size_t)j * p_stride + (size_t)i],
                       (const float *)v->at + (size_t)i * v->row_stride, v->dim);
        }
    }
}

static void kv_mix_f16(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v, float *acc) {
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < v->n_row; i++) {
            const uint16_t *row = (const uint16_t *)v->at + (size_t)i * v->row_stride;
            for (int32_t c = 0; c < v->dim; c++) {
                acc[(size_t)j * (size_t)v->dim + (size_t)c] +=
                    p[(size_t)j * p_stride + (size_t)i] * f16_to_f32(row[c]);
            }
        }
    }
}

/* Value c of a row. The product is exact: 11 bits times 7. */
static float kv_q8_value(const block_q8 *row, int32_t c) {
    const block_q8 *b = &row[c / 32];
    return f16_to_f32(b->d) * (float)b->q[c % 32];
}

static void kv_dot_q8(const float *q, int32_t n_q, const kv_rows *k, float scale, float *out,
                      size_t out_stride) {
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < k->n_row; i++) {
            const block_q8 *row = (const block_q8 *)k->at + (size_t)i * k->row_stride;
            float lane[LANES] = {0};
            for (int32_t c = 0; c < k->dim; c++) {
                lane[c % LANES] += q[(size_t)j * (size_t)k->dim + (size_t)c] * kv_q8_value(row, c);
            }
            out[(size_t)j * out_stride + (size_t)i] = scale * lanes_sum(lane);
        }
    }
}

static void kv_mix_q8(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v, float *acc) {
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < v->n_row; i++) {
            const block_q8 *row = (const block_q8 *)v->at + (size_t)i * v->row_stride;
            for (int32_t c = 0; c < v->dim; c++) {
                acc[(size_t)j * (size_t)v->dim + (size_t)c] +=
                    p[(size_t)j * p_stride + (size_t)i] * kv_q8_value(row, c);
            }
        }
    }
}

static void kv_store_f32(const float *x, int32_t n, void *out) {
    memcpy(out, x, (size_t)n * sizeof *x);
}

static void kv_store_f16(const float *x, int32_t n, void *out) {
    for (int32_t i = 0; i < n; i++) {
        ((uint16_t *)out)[i] = f32_to_f16(x[i]);
    }
}

/* The codes are of the scale as it is stored. It may have been rounded down, most so where it is
 * subnormal, hence the limit. */
static void store_block_q8(const float *x, int32_t n, block_q8 *out) {
    uint32_t max_bits = 0; /* as bits, so that NaN counts as largest */
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7fffffffu;
        max_bits = bits > max_bits ? bits : max_bits;
    }
    memset(out, 0, sizeof *out);
    out->d = f32_to_f16(f32_from_bits(max_bits) / 127.0f);
    if (out->d >= F16_INFINITY) {
        out->d = F16_NAN;
        return;
    }
    float inverse = out->d ? 1.0f / f16_to_f32(out->d) : 0.0f;
    for (int32_t i = 0; i < n; i++) {
        float code = x[i] * inverse;
        code = code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code;
        out->q[i] = (int8_t)lrintf(code);
    }
}

static void kv_store_q8(const float *x, int32_t n, void *out) {
    block_q8 *block = out;
    for (int32_t i = 0; i < n; i += 32) {
        store_block_q8(x + i, n - i < 32 ? n - i : 32, &block[i / 32]);
    }
}

void kernels_fill_portable(kernels *k) {
    *k = (kernels){
        .name = "portable",
        .mm_f32 = {[DT_F32] = mm_f32_f32,
                   [DT_F16] = mm_f32_f16,
                   [DT_BF16] = mm_f32_bf16,
                   [DT_Q8] = mm_f32_q8,
                   [DT_Q4] = mm_f32_q4,
                   [DT_Q2] = mm_f32_q2},
        .mm_q8 = {[DT_Q8] = mm_q8_q8, [DT_Q4] = mm_q8_q4, [DT_Q2] = mm_q8_q2},
        .quantize_act = quantize_act,
        .dequant_row = {[DT_F32] = dequant_f32,
                        [DT_F16] = dequant_f16,
                        [DT_BF16] = dequant_bf16,
                        [DT_Q8] = dequant_q8,
                        [DT_Q4] = dequant_q4,
                        [DT_Q2] = dequant_q2},
        .rms_norm = rms_norm,
        .silu_mul = silu_mul,
        .exp_sum = exp_sum,
        .add_scaled = add_scaled,
        .max_of = max_of,
        .kv_dot = {[KV_F32] = kv_dot_f32, [KV_F16] = kv_dot_f16, [KV_Q8] = kv_dot_q8},
        .kv_mix = {[KV_F32] = kv_mix_f32, [KV_F16] = kv_mix_f16, [KV_Q8] = kv_mix_q8},
        .kv_store = {[KV_F32] = kv_store_f32, [KV_F16] = kv_store_f16, [KV_Q8] = kv_store_q8},
    };
}
