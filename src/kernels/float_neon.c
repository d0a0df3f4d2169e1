/* Matrix products with float activations, and attention over cached rows, for ASIMD. Called only
 * where the CPU has it.
 *
 * mm_f32: each chunk of MM_CHUNK columns of an output element is summed in the four lanes of one
 * vector in order of columns, then over the lanes by a fixed tree, then added to y. Block types
 * that no file multiplies as integers come here for mm_q8 too.
 */
#if defined(__aarch64__)

#include "formats/half.h"
#include "kernels/ggml_impl.h"
#include "kernels/neon_vector.h"

/* A tile is FLOAT_ROWS rows against FLOAT_TOKENS tokens, whose sums take half of the registers, or
 * SINGLE_ROWS rows against one: a sum can go on only when its last step is through, so that many
 * sums keep the multipliers busier than few. */
enum { LANES = 4, FLOAT_ROWS = 4, FLOAT_TOKENS = 4, SINGLE_ROWS = 8 };
enum float_kind { KIND_F32, KIND_F16, KIND_BF16 };

ALWAYS_INLINE size_t kind_bytes(enum float_kind kind) {
    return kind == KIND_F32 ? 4 : 2;
}

ALWAYS_INLINE float32x4_t load_weights(enum float_kind kind, const uint8_t *p) {
    return kind == KIND_F32 ? load_f32_4(p) : kind == KIND_F16 ? load_f16_4(p) : load_bf16_4(p);
}

/* n weights, n below LANES, the other lanes zero. */
ALWAYS_INLINE float32x4_t load_weights_part(enum float_kind kind, const uint8_t *p, int32_t n) {
    uint8_t whole[LANES * sizeof(float)] = {0};
    memcpy(whole, p, (size_t)n * kind_bytes(kind));
    return load_weights(kind, whole);
}

/* ---- tiles */

/* One step of a tile: LANES columns from c on, or with part above 0 only so many. */
ALWAYS_INLINE void float_step(enum float_kind kind, int n_row, int n_tok, int32_t part,
                              const uint8_t *w, size_t w_row_bytes, int32_t c, const float *x,
                              size_t x_stride, float32x4_t acc[FLOAT_TOKENS][SINGLE_ROWS]) {
    float32x4_t act[FLOAT_TOKENS];
    for (int t = 0; t < n_tok; t++) {
        const float *from = x + x_stride * (size_t)t + c;
        act[t] = part ? load_f32_part(from, part) : vld1q_f32(from);
    }
    for (int r = 0; r < n_row; r++) {
        const uint8_t *from = w + w_row_bytes * (size_t)r + (size_t)c * kind_bytes(kind);
        float32x4_t weights = part ? load_weights_part(kind, from, part) : load_weights(kind, from);
        for (int t = 0; t < n_tok; t++) {
            acc[t][r] = vfmaq_f32(acc[t][r], weights, act[t]);
        }
    }
}

/* Adds, or with first set stores, the sums of one chunk of n columns. n_row is SINGLE_ROWS,
 * FLOAT_ROWS or 1 and, as n_tok, a constant where this is inlined. */
ALWAYS_INLINE void float_tile(enum float_kind kind, int n_row, int n_tok, bool first, float *y,
                              size_t y_stride, const uint8_t *w, size_t w_row_bytes, int32_t n,
                              const float *x, size_t x_stride) {
    float32x4_t acc[FLOAT_TOKENS][SINGLE_ROWS];
    for (int t = 0; t < n_tok; t++) {
        for (int r = 0; r < n_row; r++) {
            acc[t][r] = vdupq_n_f32(0);
        }
    }
    int32_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        float_step(kind, n_row, n_tok, 0, w, w_row_bytes, c, x, x_stride, acc);
    }
    if (c < n) {
        float_step(kind, n_row, n_tok, n - c, w, w_row_bytes, c, x, x_stride, acc);
    }
    for (int t = 0; t < n_tok; t++, y += y_stride) {
        for (int r = 0; r < n_row && n_row > 1; r += 4) {
            float32x4_t *four = &acc[t][r];
            float32x4_t sum = sum_lanes_4(four[0], four[1], four[2], four[3]);
            vst1q_f32(y + r, first ? sum : vaddq_f32(vld1q_f32(y + r), sum));
        }
        if (n_row == 1) {
            *y = first ? sum_lanes(acc[t][0]) : *y + sum_lanes(acc[t][0]);
        }
    }
}

/* One chunk of n_row rows against all tokens. Functions of their own, since all types that are
 * dequantised first share those of floats. */
typedef void float_chunk_fn(int n_row, bool first, float *y, size_t y_stride, const uint8_t *w,
                            size_t w_row_bytes, int32_t n, const float *x, size_t x_stride,
                            int32_t n_tok);

#define FLOAT_TILES(kind, rows, tokens)                                                            \
    for (; n_tok >= (tokens); n_tok -= (tokens)) {                                                 \
        float_tile(kind, rows, tokens, first, y, y_stride, w, w_row_bytes, n, x, x_stride);        \
        y += y_stride * (tokens);                                                                  \
        x += x_stride * (tokens);                                                                  \
    }
#define FLOAT_CHUNK(name, kind)                                                                    \
    static __attribute__((noinline)) void name(int n_row, bool first, float *y, size_t y_stride,   \
                                               const uint8_t *w, size_t w_row_bytes, int32_t n,    \
                                               const float *x, size_t x_stride, int32_t n_tok) {   \
        if (n_row == SINGLE_ROWS) {                                                                \
            FLOAT_TILES(kind, SINGLE_ROWS, 1)                                                      \
        } else if (n_row == FLOAT_ROWS) {                                                          \
            FLOAT_TILES(kind, FLOAT_ROWS, FLOAT_TOKENS)                                            \
            FLOAT_TILES(kind, FLOAT_ROWS, 1)                                                       \
        } else {                                                                                   \
            FLOAT_TILES(kind, 1, FLOAT_TOKENS)                                                     \
            FLOAT_TILES(kind, 1, 1)                                                                \
        }                                                                                          \
    }
FLOAT_CHUNK(chunk_f32, KIND_F32)
FLOAT_CHUNK(chunk_f16, KIND_F16)
FLOAT_CHUNK(chunk_bf16, KIND_BF16)

/* Rows in the next tile of `left`. */
static int tile_rows(int32_t left, int32_t n_tok) {
    return n_tok == 1 && left >= SINGLE_ROWS ? SINGLE_ROWS : left >= FLOAT_ROWS ? FLOAT_ROWS : 1;
}

/* ---- mm_f32 */

static void mm_float(float_chunk_fn *chunk, size_t elem_bytes, float *y, size_t y_stride,
                     const uint8_t *w, size_t w_row_bytes, int32_t n_row, int32_t n_col,
                     const float *x, size_t x_stride, int32_t n_tok) {
    for (int32_t r = 0; r < n_row;) {
        int rows = tile_rows(n_row - r, n_tok);
        const uint8_t *from = w + w_row_bytes * (size_t)r;
        for (int32_t c = 0; c < n_col; c += MM_CHUNK, from += elem_bytes * MM_CHUNK) {
            int32_t n = n_col - c < MM_CHUNK ? n_col - c : MM_CHUNK;
            chunk(rows, c == 0, y + r, y_stride, from, w_row_bytes, n, x + c, x_stride, n_tok);
        }
        r += rows;
    }
}

void mm_dequant_neon(dequant_fn *dequant, size_t chunk_bytes, float *y, size_t y_stride,
                     const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col, const void *x,
                     size_t x_stride, int32_t n_tok) {
    float buf[FLOAT_ROWS * MM_CHUNK] __attribute__((aligned(64)));
    for (int32_t r = 0; r < n_row;) {
        int rows = n_row - r >= FLOAT_ROWS ? FLOAT_ROWS : 1;
        const uint8_t *from = weight_row(w, w_row_bytes, r);
        for (int32_t c = 0; c < n_col; c += MM_CHUNK, from += chunk_bytes) {
            int32_t n = n_col - c < MM_CHUNK ? n_col - c : MM_CHUNK;
            for (int i = 0; i < rows; i++) {
                dequant(from + w_row_bytes * (size_t)i, n, buf + i * MM_CHUNK);
            }
            chunk_f32(rows, c == 0, y + r, y_stride, (const uint8_t *)buf, MM_CHUNK * sizeof *buf,
                      n, (const float *)x + c, x_stride, n_tok);
        }
        r += rows;
    }
}

/* 0 < n <= MM_CHUNK activations, d * q. */
static void dequant_act(const act_q8 *x, int32_t n, float *out) {
    for (int32_t c = 0; c < n; c += 32, x++) {
        float part[32], *to = n - c < 32 ? part : out + c;
        for (int i = 0; i < 4; i++) {
            int16x8_t q = vmovl_s8(vld1_s8(x->q + 8 * i));
            float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(q)));
            float32x4_t high = vcvtq_f32_s32(vmovl_high_s16(q));
            vst1q_f32(to + 8 * i, vmulq_n_f32(low, x->d));
            vst1q_f32(to + 8 * i + 4, vmulq_n_f32(high, x->d));
        }
        if (to == part) {
            memcpy(out + c, part, (size_t)(n - c) * sizeof *out);
        }
    }
}

void mm_dequant_q8_neon(dequant_fn *dequant, size_t chunk_bytes, float *y, size_t y_stride,
                        const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col,
                        const void *x, size_t x_stride, int32_t n_tok) {
    float weights[FLOAT_ROWS * MM_CHUNK] __attribute__((aligned(64)));
    float acts[FLOAT_TOKENS * MM_CHUNK] __attribute__((aligned(64)));
    for (int32_t r = 0; r < n_row;) {
        int rows = n_row - r >= FLOAT_ROWS ? FLOAT_ROWS : 1;
        const uint8_t *from = weight_row(w, w_row_bytes, r);
        for (int32_t c = 0; c < n_col; c += MM_CHUNK, from += chunk_bytes) {
            int32_t n = n_col - c < MM_CHUNK ? n_col - c : MM_CHUNK;
            for (int i = 0; i < rows; i++) {
                dequant(from + w_row_bytes * (size_t)i, n, weights + i * MM_CHUNK);
            }
            for (int32_t t = 0; t < n_tok; t += FLOAT_TOKENS) {
                const act_q8 *act = (const act_q8 *)x + x_stride * (size_t)t + c / 32;
                int32_t some = n_tok - t < FLOAT_TOKENS ? n_tok - t : FLOAT_TOKENS;
                for (int32_t i = 0; i < some; i++) {
                    dequant_act(act + x_stride * (size_t)i, n, acts + i * MM_CHUNK);
                }
                chunk_f32(rows, c == 0, y + y_stride * (size_t)t + r, y_stride,
                          (const uint8_t *)weights, MM_CHUNK * sizeof *weights, n, acts, MM_CHUNK,
                          some);
            }
        }
        r += rows;
    }
}

static void mm_f32_f32(float *y, size_t y_stride, const void *w, size_t w_row_bytes, int32_t n_row,
                       int32_t n_col, const void *x, size_t x_stride, int32_t n_tok) {
    mm_float(chunk_f32, 4, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);
}

static void dequant_f16(const void *w, int32_t n_col, float *out) {
    const uint8_t *p = w;
    int32_t c = 0;
    for (; c + LANES <= n_col; c += LANES) {
        vst1q_f32(out + c, load_f16_4(p + 2 * (size_t)c));
    }
    if (c < n_col) {
        store_f32_part(out + c, load_weights_part(KIND_F16, p + 2 * (size_t)c, n_col - c),
                       n_col - c);
    }
}

static void dequant_bf16(const void *w, int32_t n_col, float *out) {
    const uint8_t *p = w;
    int32_t c = 0;
    for (; c + LANES <= n_col; c += LANES) {
        vst1q_f32(out + c, load_bf16_4(p + 2 * (size_t)c));
    }
    if (c < n_col) {
        store_f32_part(out + c, load_weights_part(KIND_BF16, p + 2 * (size_t)c, n_col - c),
                       n_col - c);
    }
}

/* From this many tokens on, halves are turned into floats first. That is exact, so the sums are the
 * same bits either way. */
enum { DEQUANT_TOKENS = 2 * FLOAT_TOKENS };

#define MM_F32_HALVES(type)                                                                        \
    static void mm_f32_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok) {                                                     \
        if (n_tok < DEQUANT_TOKENS) {                                                              \
            mm_float(chunk_##type, 2, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride,      \
                     n_tok);                                                                       \
        } else {                                                                                   \
            mm_dequant_neon(dequant_##type, MM_CHUNK * 2, y, y_stride, w, w_row_bytes, n_row,      \
                            n_col, x, x_stride, n_tok);                                            \
        }                                                                                          \
    }
MM_F32_HALVES(f16)
MM_F32_HALVES(bf16)

/* ---- attention over cached rows */

static void kv_dot(float_chunk_fn *chunk, size_t elem_bytes, const float *q, int32_t n_q,
                   const kv_rows *k, float scale, float *out, size_t out_stride) {
    const size_t row_bytes = k->row_stride * elem_bytes;
    const uint8_t *row = k->at;
    for (int32_t i = 0; i < k->n_row;) {
        int rows = tile_rows(k->n_row - i, n_q);
        chunk(rows, true, out + i, out_stride, row, row_bytes, k->dim, q, (size_t)k->dim, n_q);
        row += row_bytes * (size_t)rows;
        i += rows;
    }
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < k->n_row; i++) {
            out[(size_t)j * out_stride + (size_t)i] *= scale;
        }
    }
}

enum { MIX_QUERIES = 4, MIX_VECS = 4, MIX_SINGLE_VECS = 8 };

/* n_vec vectors of columns from c on, over all rows, of n_q queries, constants where this is
 * inlined; with part above 0 only so many columns. */
ALWAYS_INLINE void mix_columns(enum float_kind kind, int n_q, int n_vec, int32_t part,
                               const float *p, size_t p_stride, const kv_rows *rows, int32_t c,
                               float *acc) {
    const size_t dim = (size_t)rows->dim, row_bytes = rows->row_stride * kind_bytes(kind);
    const uint8_t *v = (const uint8_t *)rows->at + (size_t)c * kind_bytes(kind);
    float32x4_t sum[MIX_QUERIES][MIX_SINGLE_VECS];
    acc += c;
    for (int j = 0; j < n_q; j++) {
        for (int n = 0; n < n_vec; n++) {
            const float *at = acc + (size_t)j * dim + n * LANES;
            sum[j][n] = part ? load_f32_part(at, part) : vld1q_f32(at);
        }
    }
    for (int32_t i = 0; i < rows->n_row; i++, v += row_bytes) {
        for (int n = 0; n < n_vec; n++) {
            float32x4_t value = part ? load_weights_part(kind, v, part)
                                     : load_weights(kind, v + n * LANES * (int)kind_bytes(kind));
            for (int j = 0; j < n_q; j++) {
                sum[j][n] = vfmaq_n_f32(sum[j][n], value, p[(size_t)j * p_stride + (size_t)i]);
            }
        }
    }
    for (int j = 0; j < n_q; j++) {
        for (int n = 0; n < n_vec; n++) {
            float *at = acc + (size_t)j * dim + n * LANES;
            if (part) {
                store_f32_part(at, sum[j][n], part);
            } else {
                vst1q_f32(at, sum[j][n]);
            }
        }
    }
}

/* n_q queries, n_vec vectors of columns at a time. */
ALWAYS_INLINE void mix_tile(enum float_kind kind, int n_q, int n_vec, const float *p,
                            size_t p_stride, const kv_rows *v, float *acc) {
    int32_t c = 0;
    for (; c + n_vec * LANES <= v->dim; c += n_vec * LANES) {
        mix_columns(kind, n_q, n_vec, 0, p, p_stride, v, c, acc);
    }
    for (; c + LANES <= v->dim; c += LANES) {
        mix_columns(kind, n_q, 1, 0, p, p_stride, v, c, acc);
    }
    if (c < v->dim) {
        mix_columns(kind, n_q, 1, v->dim - c, p, p_stride, v, c, acc);
    }
}

ALWAYS_INLINE void kv_mix(enum float_kind kind, const float *p, size_t p_stride, int32_t n_q,
                          const kv_rows *v, float *acc) {
    const size_t dim = (size_t)v->dim;
    int32_t j = 0;
    for (; j + MIX_QUERIES <= n_q; j += MIX_QUERIES) {
        mix_tile(kind, MIX_QUERIES, MIX_VECS, p + (size_t)j * p_stride, p_stride, v,
                 acc + (size_t)j * dim);
    }
    for (; j < n_q; j++) {
        mix_tile(kind, 1, MIX_SINGLE_VECS, p + (size_t)j * p_stride, p_stride, v,
                 acc + (size_t)j * dim);
    }
}

#define KV_KERNELS(type, kind)                                                                     \
    static void kv_dot_##type(const float *q, int32_t n_q, const kv_rows *k, float scale,          \
                              float *out, size_t out_stride) {                                     \
        kv_dot(chunk_##type, kind_bytes(kind), q, n_q, k, scale, out, out_stride);                 \
    }                                                                                              \
    static void kv_mix_##type(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v,      \
                              float *acc) {                                                        \
        kv_mix(kind, p, p_stride, n_q, v, acc);                                                    \
    }
KV_KERNELS(f32, KIND_F32)
KV_KERNELS(f16, KIND_F16)

static void kv_store_f16(const float *x, int32_t n, void *out) {
    uint16_t *half = out;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vst1_u16(half + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    }
    for (; i < n; i++) {
        half[i] = f32_to_f16(x[i]);
    }
}

void kernels_fill_float_neon(kernels *k) {
    k->mm_f32[DT_F32] = mm_f32_f32;
    k->mm_f32[DT_F16] = mm_f32_f16;
    k->mm_f32[DT_BF16] = mm_f32_bf16;
    k->dequant_row[DT_F16] = dequant_f16;
    k->dequant_row[DT_BF16] = dequant_bf16;
    k->kv_dot[KV_F32] = kv_dot_f32;
    k->kv_dot[KV_F16] = kv_dot_f16;
    k->kv_mix[KV_F32] = kv_mix_f32;
    k->kv_mix[KV_F16] = kv_mix_f16;
    k->kv_store[KV_F16] = kv_store_f16;
}

#endif
