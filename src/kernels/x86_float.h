/* Private to kernels/: matrix products with float activations and attention over cached rows, a
 * template for the AVX2 and AVX-512 files. The includer defines the vector type and its operations:
 *   vecf, VEC_LANES, vec_zero(), vec_load(p), vec_load_part(p, n), vec_store(p, v),
 *   vec_store_part(p, v, n), vec_set1(a), vec_fma(a, b, c) = a * b + c, vec_load_bf16(p),
 *   vec_load_f16(p), vec_sum(v), vec_sum_4(a, b, c, d)
 *   FLOAT_TOKENS             tokens of a register tile of FLOAT_ROWS rows
 *
 * mm_f32: each chunk of MM_CHUNK columns of an output element is summed in the lanes of one vector
 * in order of columns, then over the lanes by a fixed tree, then added to y.
 */
#ifndef SMOE_KERNELS_X86_FLOAT_H
#define SMOE_KERNELS_X86_FLOAT_H

#include "kernels/ggml_impl.h"
#include "kernels/x86_common.h"

enum { FLOAT_ROWS = 4 };
enum float_kind { KIND_F32, KIND_F16, KIND_BF16 };

static const uint8_t float_kind_bytes[] = {4, 2, 2};

ALWAYS_INLINE vecf load_weights(enum float_kind kind, const uint8_t *p) {
    return kind == KIND_F32 ? vec_load(p) : kind == KIND_F16 ? vec_load_f16(p) : vec_load_bf16(p);
}

/* n weights, n below VEC_LANES, the other lanes zero. */
ALWAYS_INLINE vecf load_weights_part(enum float_kind kind, const uint8_t *p, int32_t n) {
    uint8_t whole[VEC_LANES * sizeof(float)] = {0};
    memcpy(whole, p, (size_t)n * float_kind_bytes[kind]);
    return load_weights(kind, whole);
}

/* Adds, or with first set stores, the sums of one chunk of n columns. */
ALWAYS_INLINE void float_tile(enum float_kind kind, int n_row, int n_tok, bool first, float *y,
                              size_t y_stride, const uint8_t *w, size_t w_row_bytes, int32_t n,
                              const float *x, size_t x_stride) {
    vecf acc[FLOAT_TOKENS][FLOAT_ROWS];
    const uint8_t *row[FLOAT_ROWS];
    const size_t bytes = float_kind_bytes[kind];
    for (int t = 0; t < n_tok; t++) {
        for (int r = 0; r < FLOAT_ROWS; r++) {
            acc[t][r] = vec_zero();
            row[r] = w + w_row_bytes * (size_t)(r < n_row ? r : 0);
        }
    }
    int32_t c = 0;
    for (; c + VEC_LANES <= n; c += VEC_LANES) {
        vecf weights[FLOAT_ROWS];
        for (int r = 0; r < n_row; r++) {
            weights[r] = load_weights(kind, row[r] + (size_t)c * bytes);
        }
        for (int t = 0; t < n_tok; t++) {
            vecf act = vec_load(x + x_stride * (size_t)t + c);
            for (int r = 0; r < n_row; r++) {
                acc[t][r] = vec_fma(weights[r], act, acc[t][r]);
            }
        }
    }
    if (c < n) {
        for (int r = 0; r < n_row; r++) {
            vecf weights = load_weights_part(kind, row[r] + (size_t)c * bytes, n - c);
            for (int t = 0; t < n_tok; t++) {
                vecf act = vec_load_part(x + x_stride * (size_t)t + c, n - c);
                acc[t][r] = vec_fma(weights, act, acc[t][r]);
            }
        }
    }
    for (int t = 0; t < n_tok; t++) {
        float *out = y + y_stride * (size_t)t;
        __m128 sum = vec_sum_4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]);
        if (n_row == FLOAT_ROWS) {
            _mm_storeu_ps(out, first ? sum : _mm_add_ps(_mm_loadu_ps(out), sum));
        } else {
            *out = first ? _mm_cvtss_f32(sum) : *out + _mm_cvtss_f32(sum);
        }
    }
}

/* One chunk of n_row rows (FLOAT_ROWS or 1) against all tokens. */
ALWAYS_INLINE void float_chunk(enum float_kind kind, int n_row, bool first, float *y,
                               size_t y_stride, const uint8_t *w, size_t w_row_bytes, int32_t n,
                               const float *x, size_t x_stride, int32_t n_tok) {
    int32_t t = 0;
    for (; t + FLOAT_TOKENS <= n_tok; t += FLOAT_TOKENS) {
        float_tile(kind, n_row, FLOAT_TOKENS, first, y + y_stride * (size_t)t, y_stride, w,
                   w_row_bytes, n, x + x_stride * (size_t)t, x_stride);
    }
    for (; t < n_tok; t++) {
        float_tile(kind, n_row, 1, first, y + y_stride * (size_t)t, y_stride, w, w_row_bytes, n,
                   x + x_stride * (size_t)t, x_stride);
    }
}

/* Rows whose type float_tile reads itself: from memory as they are while tokens are few, or turned
 * into floats once for many. Dequantising is exact, so the sums are the same bits either way. */
ALWAYS_INLINE void float_rows(enum float_kind kind, dequant_fn *dequant, size_t chunk_bytes,
                              int n_row, float *y, size_t y_stride, const uint8_t *w,
                              size_t w_row_bytes, int32_t n_col, const float *x, size_t x_stride,
                              int32_t n_tok) {
    float buf[FLOAT_ROWS * MM_CHUNK] __attribute__((aligned(64)));
    for (int32_t c = 0; c < n_col; c += MM_CHUNK, w += chunk_bytes) {
        int32_t n = n_col - c < MM_CHUNK ? n_col - c : MM_CHUNK;
        if (dequant) {
            for (int r = 0; r < n_row; r++) {
                dequant(w + w_row_bytes * (size_t)r, n, buf + r * MM_CHUNK);
            }
            float_chunk(KIND_F32, n_row, c == 0, y, y_stride, (const uint8_t *)buf,
                        MM_CHUNK * sizeof *buf, n, x + c, x_stride, n_tok);
        } else {
            float_chunk(kind, n_row, c == 0, y, y_stride, w, w_row_bytes, n, x + c, x_stride,
                        n_tok);
        }
    }
}

ALWAYS_INLINE void mm_float(enum float_kind kind, dequant_fn *dequant, size_t chunk_bytes, float *y,
                            size_t y_stride, const uint8_t *w, size_t w_row_bytes, int32_t n_row,
                            int32_t n_col, const float *x, size_t x_stride, int32_t n_tok) {
    int32_t r = 0;
    for (; r + FLOAT_ROWS <= n_row; r += FLOAT_ROWS) {
        float_rows(kind, dequant, chunk_bytes, FLOAT_ROWS, y + r, y_stride,
                   w + w_row_bytes * (size_t)r, w_row_bytes, n_col, x, x_stride, n_tok);
    }
    for (; r < n_row; r++) {
        float_rows(kind, dequant, chunk_bytes, 1, y + r, y_stride, w + w_row_bytes * (size_t)r,
                   w_row_bytes, n_col, x, x_stride, n_tok);
    }
}

#define MM_F32_HEAD(type)                                                                          \
    static void mm_f32_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok)
#define MM_F32_DIRECT(type, kind, bytes)                                                           \
    MM_F32_HEAD(type) {                                                                            \
        if (n_tok < 2 * FLOAT_TOKENS || (kind) == KIND_F32) {                                      \
            mm_float(kind, NULL, MM_CHUNK * (bytes), y, y_stride, w, w_row_bytes, n_row, n_col, x, \
                     x_stride, n_tok);                                                             \
        } else {                                                                                   \
            mm_float(kind, dequant_##type, MM_CHUNK * (bytes), y, y_stride, w, w_row_bytes, n_row, \
                     n_col, x, x_stride, n_tok);                                                   \
        }                                                                                          \
    }
#define MM_F32_BLOCKS(type, weights)                                                               \
    MM_F32_HEAD(type) {                                                                            \
        mm_float(KIND_F32, dequant_##type, MM_CHUNK / (weights) * sizeof(block_##type), y,         \
                 y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);                      \
    }
MM_F32_DIRECT(f32, KIND_F32, 4)
MM_F32_DIRECT(f16, KIND_F16, 2)
MM_F32_DIRECT(bf16, KIND_BF16, 2)
MM_F32_BLOCKS(q8, 32)
MM_F32_BLOCKS(q4, 32)
MM_F32_BLOCKS(q2, 64)

/* ---- attention over cached rows */

ALWAYS_INLINE void kv_dot(enum float_kind kind, const float *q, const uint8_t *k, size_t row_bytes,
                          int32_t n_row, int32_t head_dim, float scale, float *out) {
    int32_t i = 0;
    for (; i + FLOAT_ROWS <= n_row; i += FLOAT_ROWS) {
        float_tile(kind, FLOAT_ROWS, 1, true, out + i, 0, k + row_bytes * (size_t)i, row_bytes,
                   head_dim, q, 0);
    }
    for (; i < n_row; i++) {
        float_tile(kind, 1, 1, true, out + i, 0, k + row_bytes * (size_t)i, row_bytes, head_dim, q,
                   0);
    }
    for (i = 0; i < n_row; i++) {
        out[i] *= scale;
    }
}

/* n_vec vectors of columns over all rows; the last one has part lanes (0: all). */
ALWAYS_INLINE void kv_mix_columns(enum float_kind kind, int n_vec, int32_t part, const float *p,
                                  const uint8_t *v, size_t row_bytes, int32_t n_row, float *acc) {
    vecf sum[8];
    for (int j = 0; j < n_vec; j++) {
        sum[j] = part ? vec_load_part(acc, part) : vec_load(acc + j * VEC_LANES);
    }
    for (int32_t i = 0; i < n_row; i++, v += row_bytes) {
        vecf weight = vec_set1(p[i]);
        for (int j = 0; j < n_vec; j++) {
            vecf value = part ? load_weights_part(kind, v, part)
                              : load_weights(kind, v + j * VEC_LANES * float_kind_bytes[kind]);
            sum[j] = vec_fma(weight, value, sum[j]);
        }
    }
    for (int j = 0; j < n_vec; j++) {
        if (part) {
            vec_store_part(acc, sum[j], part);
        } else {
            vec_store(acc + j * VEC_LANES, sum[j]);
        }
    }
}

ALWAYS_INLINE void kv_mix(enum float_kind kind, const float *p, const uint8_t *v, size_t row_bytes,
                          int32_t n_row, int32_t head_dim, float *acc) {
    const size_t bytes = float_kind_bytes[kind];
    int32_t c = 0;
    for (; c + 8 * VEC_LANES <= head_dim; c += 8 * VEC_LANES) {
        kv_mix_columns(kind, 8, 0, p, v + (size_t)c * bytes, row_bytes, n_row, acc + c);
    }
    for (; c + VEC_LANES <= head_dim; c += VEC_LANES) {
        kv_mix_columns(kind, 1, 0, p, v + (size_t)c * bytes, row_bytes, n_row, acc + c);
    }
    if (c < head_dim) {
        kv_mix_columns(kind, 1, head_dim - c, p, v + (size_t)c * bytes, row_bytes, n_row, acc + c);
    }
}

static void kv_dot_f32(const float *q, const void *k, size_t row_stride, int32_t n_row,
                       int32_t head_dim, float scale, float *out) {
    kv_dot(KIND_F32, q, k, 4 * row_stride, n_row, head_dim, scale, out);
}

static void kv_dot_f16(const float *q, const void *k, size_t row_stride, int32_t n_row,
                       int32_t head_dim, float scale, float *out) {
    kv_dot(KIND_F16, q, k, 2 * row_stride, n_row, head_dim, scale, out);
}

static void kv_mix_f32(const float *p, const void *v, size_t row_stride, int32_t n_row,
                       int32_t head_dim, float *acc) {
    kv_mix(KIND_F32, p, v, 4 * row_stride, n_row, head_dim, acc);
}

static void kv_mix_f16(const float *p, const void *v, size_t row_stride, int32_t n_row,
                       int32_t head_dim, float *acc) {
    kv_mix(KIND_F16, p, v, 2 * row_stride, n_row, head_dim, acc);
}

static void fill_float_slots(kernels *k) {
    k->mm_f32[DT_F32] = mm_f32_f32;
    k->mm_f32[DT_F16] = mm_f32_f16;
    k->mm_f32[DT_BF16] = mm_f32_bf16;
    k->mm_f32[DT_Q8] = mm_f32_q8;
    k->mm_f32[DT_Q4] = mm_f32_q4;
    k->mm_f32[DT_Q2] = mm_f32_q2;
    k->kv_dot[KV_F32] = kv_dot_f32;
    k->kv_dot[KV_F16] = kv_dot_f16;
    k->kv_mix[KV_F32] = kv_mix_f32;
    k->kv_mix[KV_F16] = kv_mix_f16;
}

#endif
