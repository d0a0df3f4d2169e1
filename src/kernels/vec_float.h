/* Private to kernels/: matrix products with float activations, a template that knows no instruction
 * set. The includer defines the vector type and its operations:
 *   vecf, VEC_LANES, vec_zero(), vec_load(p), vec_load_part(p, n), vec_store(p, v),
 *   vec_store_part(p, v, n), vec_set1(a), vec_fma(a, b, c) = a * b + c, vec_load_bf16(p),
 *   vec_load_f16(p), vec_sum(v), vec_put_sums(out, first, v): four floats, the sums of the four
 *   vectors at v, stored or, unless first, added; VEC_PUT_SUMS_4(out, stride, v), or the template's
 *   own: vec_put_sums of v[0] to v[3], stored
 *   FLOAT_TOKENS             tokens of a register tile of FLOAT_ROWS rows
 *   FLOAT_SINGLE_ROWS        rows of one against a single token: FLOAT_ROWS or a multiple
 *
 * mm_f32: each chunk of MM_CHUNK columns of an output element is summed in the lanes of one vector
 * in order of columns, then over the lanes by a fixed tree, then added to y.
 */
#ifndef SMOE_KERNELS_VEC_FLOAT_H
#define SMOE_KERNELS_VEC_FLOAT_H

#include "kernels/ggml_impl.h"

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

/* ---- tiles */

#ifndef VEC_PUT_SUMS_4
#define VEC_PUT_SUMS_4 put_sums_4
ALWAYS_INLINE void put_sums_4(float *out, size_t stride, vecf (*v)[FLOAT_SINGLE_ROWS]) {
    for (int i = 0; i < 4; i++) {
        vec_put_sums(out + stride * (size_t)i, true, v[i]);
    }
}
#endif

/* One step of a tile: VEC_LANES columns from c on, or with part above 0 only so many. */
ALWAYS_INLINE void float_step(enum float_kind kind, int n_row, int n_tok, int32_t part,
                              const uint8_t *const *row, int32_t c, const float *x, size_t x_stride,
                              vecf acc[][FLOAT_SINGLE_ROWS]) {
    vecf act[FLOAT_TOKENS];
    for (int t = 0; t < n_tok; t++) {
        const float *from = x + x_stride * (size_t)t + c;
        act[t] = part ? vec_load_part(from, part) : vec_load(from);
    }
    for (int r = 0; r < n_row; r++) {
        const uint8_t *from = row[r] + (size_t)c * float_kind_bytes[kind];
        vecf weights = part ? load_weights_part(kind, from, part) : load_weights(kind, from);
        for (int t = 0; t < n_tok; t++) {
            acc[t][r] = vec_fma(weights, act[t], acc[t][r]);
        }
    }
}

/* Adds, or with first set stores, the sums of one chunk of n columns. n_row is FLOAT_SINGLE_ROWS,
 * FLOAT_ROWS or 1 and, as n_tok, a constant where this is inlined: sums, activations and a vector
 * of weights are to fit the registers. */
ALWAYS_INLINE void float_tile(enum float_kind kind, int n_row, int n_tok, bool first, float *y,
                              size_t y_stride, const uint8_t *w, size_t w_row_bytes, int32_t n,
                              const float *x, size_t x_stride) {
    vecf acc[FLOAT_TOKENS][FLOAT_SINGLE_ROWS];
    const uint8_t *row[FLOAT_SINGLE_ROWS];
    for (int r = 0; r < n_row; r++) {
        row[r] = w + w_row_bytes * (size_t)r;
        for (int t = 0; t < n_tok; t++) {
            acc[t][r] = vec_zero();
        }
    }
    int32_t c = 0;
    for (; c + VEC_LANES <= n; c += VEC_LANES) {
        float_step(kind, n_row, n_tok, 0, row, c, x, x_stride, acc);
    }
    if (c < n) {
        float_step(kind, n_row, n_tok, n - c, row, c, x, x_stride, acc);
    }
    if (n_row == 4 && n_tok == 4 && first) {
        VEC_PUT_SUMS_4(y, y_stride, acc);
        return;
    }
    for (int t = 0; t < n_tok; t++, y += y_stride) {
        for (int r = 0; r < n_row && n_row > 1; r += 4) {
            vec_put_sums(y + r, first, &acc[t][r]);
        }
        if (n_row == 1) {
            *y = first ? vec_sum(acc[t][0]) : *y + vec_sum(acc[t][0]);
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
        if (n_row == 1) {                                                                          \
            FLOAT_TILES(kind, 1, FLOAT_TOKENS)                                                     \
            FLOAT_TILES(kind, 1, 2)                                                                \
            FLOAT_TILES(kind, 1, 1)                                                                \
        } else if (n_row == FLOAT_ROWS) {                                                          \
            FLOAT_TILES(kind, FLOAT_ROWS, FLOAT_TOKENS)                                            \
            FLOAT_TILES(kind, FLOAT_ROWS, 2)                                                       \
            FLOAT_TILES(kind, FLOAT_ROWS, 1)                                                       \
        } else if (n_row == FLOAT_SINGLE_ROWS) {                                                   \
            FLOAT_TILES(kind, FLOAT_SINGLE_ROWS, 1)                                                \
        }                                                                                          \
    }
FLOAT_CHUNK(chunk_f32, KIND_F32)
FLOAT_CHUNK(chunk_f16, KIND_F16)
FLOAT_CHUNK(chunk_bf16, KIND_BF16)

/* ---- mm_f32 */

/* How a type's rows are read: dequantised once for all tokens, or with dequant NULL as they are.
 * Dequantising is exact, so the sums are the same bits either way. */
typedef struct float_reader {
    dequant_fn *dequant;
    size_t chunk_bytes; /* of MM_CHUNK weights */
    float_chunk_fn *chunk;
} float_reader;

static void float_rows(const float_reader *f, int n_row, float *y, size_t y_stride,
                       const uint8_t *w, size_t w_row_bytes, int32_t n_col, const float *x,
                       size_t x_stride, int32_t n_tok) {
    float buf[FLOAT_ROWS * MM_CHUNK] __attribute__((aligned(64)));
    for (int32_t c = 0; c < n_col; c += MM_CHUNK, w += f->chunk_bytes) {
        int32_t n = n_col - c < MM_CHUNK ? n_col - c : MM_CHUNK;
        if (!f->dequant) {
            f->chunk(n_row, c == 0, y, y_stride, w, w_row_bytes, n, x + c, x_stride, n_tok);
            continue;
        }
        for (int r = 0; r < n_row; r++) {
            f->dequant(w + w_row_bytes * (size_t)r, n, buf + r * MM_CHUNK);
        }
        f->chunk(n_row, c == 0, y, y_stride, (const uint8_t *)buf, MM_CHUNK * sizeof *buf, n, x + c,
                 x_stride, n_tok);
    }
}

/* Tokens whose activations of MM_CHUNK columns, 128 KiB, stay in L2 while rows take turns. */
enum { FLOAT_GROUP = 32 };

static void float_group(const float_reader *f, float *y, size_t y_stride, const uint8_t *w,
                        size_t w_row_bytes, int32_t n_row, int32_t n_col, const float *x,
                        size_t x_stride, int32_t n_tok) {
    const int most = n_tok == 1 && !f->dequant ? FLOAT_SINGLE_ROWS : FLOAT_ROWS;
    for (int32_t r = 0; r < n_row;) {
        int rows = n_row - r >= most ? most : n_row - r >= FLOAT_ROWS ? FLOAT_ROWS : 1;
        float_rows(f, rows, y + r, y_stride, w + w_row_bytes * (size_t)r, w_row_bytes, n_col, x,
                   x_stride, n_tok);
        r += rows;
    }
}

static void mm_float(const float_reader *f, float *y, size_t y_stride, const uint8_t *w,
                     size_t w_row_bytes, int32_t n_row, int32_t n_col, const float *x,
                     size_t x_stride, int32_t n_tok) {
    for (int32_t n; n_tok > 0; n_tok -= n) {
        n = n_tok < FLOAT_GROUP ? n_tok : FLOAT_GROUP;
        float_group(f, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n);
        y += y_stride * (size_t)n;
        x += x_stride * (size_t)n;
    }
}

#define DEQUANT_HALVES(type)                                                                       \
    static void dequant_##type(const void *w, int32_t n_col, float *out) {                         \
        const uint8_t *p = w;                                                                      \
        int32_t c = 0;                                                                             \
        for (; c + VEC_LANES <= n_col; c += VEC_LANES) {                                           \
            vec_store(out + c, vec_load_##type(p + 2 * (size_t)c));                                \
        }                                                                                          \
        if (c < n_col) {                                                                           \
            uint8_t last[2 * VEC_LANES] = {0};                                                     \
            memcpy(last, p + 2 * (size_t)c, 2 * (size_t)(n_col - c));                              \
            vec_store_part(out + c, vec_load_##type(last), n_col - c);                             \
        }                                                                                          \
    }
DEQUANT_HALVES(f16)
DEQUANT_HALVES(bf16)

/* From this many tokens on, halves are turned into floats first. */
enum { DEQUANT_TOKENS = 2 * FLOAT_TOKENS };

#define READ_AS_IS(type, bytes)                                                                    \
    { NULL, MM_CHUNK *(bytes), chunk_##type }
#define READ_DEQUANTISED(type, bytes)                                                              \
    { dequant_##type, bytes, chunk_f32 }
#define MM_F32(type, few, many)                                                                    \
    static void mm_f32_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok) {                                                     \
        static const float_reader reader[2] = {few, many};                                         \
        mm_float(&reader[n_tok >= DEQUANT_TOKENS], y, y_stride, w, w_row_bytes, n_row, n_col, x,   \
                 x_stride, n_tok);                                                                 \
    }
MM_F32(f32, READ_AS_IS(f32, 4), READ_AS_IS(f32, 4))
MM_F32(f16, READ_AS_IS(f16, 2), READ_DEQUANTISED(f16, MM_CHUNK * 2))
MM_F32(bf16, READ_AS_IS(bf16, 2), READ_DEQUANTISED(bf16, MM_CHUNK * 2))

static void fill_float_slots(kernels *k) {
    k->mm_f32[DT_F32] = mm_f32_f32;
    k->mm_f32[DT_F16] = mm_f32_f16;
    k->mm_f32[DT_BF16] = mm_f32_bf16;
    k->dequant_row[DT_F16] = dequant_f16;
    k->dequant_row[DT_BF16] = dequant_bf16;
}

#endif
