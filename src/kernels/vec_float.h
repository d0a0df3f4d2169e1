/* Private to kernels/: matrix products with float activations and attention over cached rows, a
 * template that knows no instruction set. The includer defines the vector type and its operations:
 *   vecf, VEC_LANES, vec_zero(), vec_load(p), vec_load_part(p, n), vec_store(p, v),
 *   vec_store_part(p, v, n), vec_set1(a), vec_fma(a, b, c) = a * b + c, vec_load_bf16(p),
 *   vec_load_f16(p), vec_sum(v), vec_put_sums(out, first, v): four floats, the sums of the four
 *   vectors at v, stored or, unless first, added; VEC_PUT_SUMS_4(out, stride, v), or the template's
 *   own: vec_put_sums of v[0] to v[3], stored
 *   FLOAT_TOKENS             tokens of a register tile of FLOAT_ROWS rows
 *   FLOAT_SINGLE_ROWS        rows of one against a single token: FLOAT_ROWS or a multiple
 *   KV_QUERIES, KV_MIX_VECS  queries of a register tile of FLOAT_ROWS rows, or of so many vectors
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

static void mm_float(const float_reader *f, float *y, size_t y_stride, const uint8_t *w,
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

/* ---- attention over cached rows */

/* All rows against n_q queries, a constant where this is inlined. */
ALWAYS_INLINE void kv_dot_tile(enum float_kind kind, int n_q, const float *q, const kv_rows *k,
                               float *out, size_t out_stride) {
    const size_t row_bytes = k->row_stride * float_kind_bytes[kind], dim = (size_t)k->dim;
    const int most = n_q == 1 ? FLOAT_SINGLE_ROWS : FLOAT_ROWS;
    const uint8_t *row = k->at;
    int32_t i = 0;
    for (; i + most <= k->n_row; i += most, row += (size_t)most * row_bytes) {
        float_tile(kind, most, n_q, true, out + i, out_stride, row, row_bytes, k->dim, q, dim);
    }
    for (; most > FLOAT_ROWS && i + FLOAT_ROWS <= k->n_row; i += FLOAT_ROWS) {
        float_tile(kind, FLOAT_ROWS, n_q, true, out + i, out_stride, row, row_bytes, k->dim, q,
                   dim);
        row += FLOAT_ROWS * row_bytes;
    }
    for (; i < k->n_row; i++, row += row_bytes) {
        float_tile(kind, 1, n_q, true, out + i, out_stride, row, row_bytes, k->dim, q, dim);
    }
}

/* Rows go in strips that all queries finish before the next begins, so that a strip is read from
 * memory once; two strips ahead is far enough to have the rows in L1 by then. */
enum { KV_STRIP_ROWS = 8, KV_STRIPS_AHEAD = 2 };

/* The strip of k that begins at row i; what follows is fetched, also past k's end, where the cache
 * mostly goes on. */
ALWAYS_INLINE kv_rows kv_strip_of(const kv_rows *k, size_t row_bytes, int32_t i, int32_t n_row) {
    kv_rows strip = *k;
    size_t bytes = (size_t)n_row * row_bytes;
    strip.at = (const uint8_t *)k->at + (size_t)i * row_bytes;
    strip.n_row = k->n_row - i < n_row ? k->n_row - i : n_row;
    uintptr_t next = (uintptr_t)strip.at + KV_STRIPS_AHEAD * KV_STRIP_ROWS * row_bytes;
    for (size_t b = 0; b < bytes; b += 64) {
        __builtin_prefetch((const void *)(next + b), 0, 3);
    }
    return strip;
}

ALWAYS_INLINE kv_rows kv_strip(const kv_rows *k, size_t row_bytes, int32_t i) {
    return kv_strip_of(k, row_bytes, i, KV_STRIP_ROWS);
}

/* With this many queries rows are turned into floats once for all of them, unless they have more
 * values than KV_SHARED_DIM. Sums of kv_mix are loaded and stored for each strip: the longer the
 * better, as long as the floats leave room in L1. */
enum { KV_SHARED_QUERIES = 16, KV_SHARED_FLOATS = 4096 };
enum { KV_SHARED_DIM = KV_SHARED_FLOATS / KV_STRIP_ROWS };

/* Strip, of at most KV_SHARED_FLOATS values in rows padded to whole vectors, as floats in buf. */
typedef kv_rows kv_floats_fn(const kv_rows *strip, float *buf);

static kv_rows f16_floats(const kv_rows *strip, float *buf) {
    size_t width = ((size_t)strip->dim + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    const uint16_t *row = strip->at;
    for (int32_t r = 0; r < strip->n_row; r++, row += strip->row_stride) {
        dequant_f16(row, strip->dim, buf + (size_t)r * width);
    }
    return (kv_rows){buf, width, strip->n_row, strip->dim};
}

ALWAYS_INLINE void kv_dot_strip(enum float_kind kind, const float *q, int32_t n_q, const kv_rows *k,
                                float *out, size_t out_stride) {
    int32_t j = 0;
    for (; j + KV_QUERIES <= n_q; j += KV_QUERIES) {
        kv_dot_tile(kind, KV_QUERIES, q + (size_t)j * (size_t)k->dim, k,
                    out + (size_t)j * out_stride, out_stride);
    }
    for (; j < n_q; j++) {
        kv_dot_tile(kind, 1, q + (size_t)j * (size_t)k->dim, k, out + (size_t)j * out_stride,
                    out_stride);
    }
}

static void kv_dot_floats(kv_floats_fn *to_floats, size_t row_bytes, const float *q, int32_t n_q,
                          const kv_rows *k, float *out, size_t out_stride) {
    float buf[KV_SHARED_FLOATS] __attribute__((aligned(64)));
    for (int32_t i = 0; i < k->n_row; i += KV_STRIP_ROWS) {
        kv_rows strip = kv_strip(k, row_bytes, i);
        strip = to_floats(&strip, buf);
        kv_dot_strip(KIND_F32, q, n_q, &strip, out + i, out_stride);
    }
}

static void kv_scale(float scale, int32_t n_q, int32_t n_row, float *out, size_t out_stride) {
    for (int32_t j = 0; j < n_q; j++) {
        for (int32_t i = 0; i < n_row; i++) {
            out[(size_t)j * out_stride + (size_t)i] *= scale;
        }
    }
}

ALWAYS_INLINE void kv_dot(enum float_kind kind, const float *q, int32_t n_q, const kv_rows *k,
                          float scale, float *out, size_t out_stride) {
    if (kind == KIND_F16 && n_q >= KV_SHARED_QUERIES && k->dim <= KV_SHARED_DIM) {
        kv_dot_floats(f16_floats, 2 * k->row_stride, q, n_q, k, out, out_stride);
    } else {
        for (int32_t i = 0; i < k->n_row; i += KV_STRIP_ROWS) {
            kv_rows strip = kv_strip(k, k->row_stride * float_kind_bytes[kind], i);
            kv_dot_strip(kind, q, n_q, &strip, out + i, out_stride);
        }
    }
    kv_scale(scale, n_q, k->n_row, out, out_stride);
}

/* n_vec vectors of columns from c on, over all rows, of n_q queries; the last vector has part lanes
 * (0: all). */
ALWAYS_INLINE void kv_mix_columns(enum float_kind kind, int n_q, int n_vec, int32_t part,
                                  const float *p, size_t p_stride, const kv_rows *rows, int32_t c,
                                  float *acc) {
    const size_t dim = (size_t)rows->dim, row_bytes = rows->row_stride * float_kind_bytes[kind];
    const uint8_t *v = (const uint8_t *)rows->at + (size_t)c * float_kind_bytes[kind];
    vecf sum[KV_QUERIES][8];
    acc += c;
    for (int j = 0; j < n_q; j++) {
        for (int n = 0; n < n_vec; n++) {
            float *at = acc + (size_t)j * dim;
            sum[j][n] = part ? vec_load_part(at, part) : vec_load(at + n * VEC_LANES);
        }
    }
    for (int32_t i = 0; i < rows->n_row; i++, v += row_bytes) {
        vecf weight[KV_QUERIES];
        for (int j = 0; j < n_q; j++) {
            weight[j] = vec_set1(p[(size_t)j * p_stride + (size_t)i]);
        }
        for (int n = 0; n < n_vec; n++) {
            vecf value = part ? load_weights_part(kind, v, part)
                              : load_weights(kind, v + n * VEC_LANES * float_kind_bytes[kind]);
            for (int j = 0; j < n_q; j++) {
                sum[j][n] = vec_fma(weight[j], value, sum[j][n]);
            }
        }
    }
    for (int j = 0; j < n_q; j++) {
        for (int n = 0; n < n_vec; n++) {
            float *at = acc + (size_t)j * dim;
            if (part) {
                vec_store_part(at, sum[j][n], part);
            } else {
                vec_store(at + n * VEC_LANES, sum[j][n]);
            }
        }
    }
}

/* n_q queries, a constant where this is inlined, n_vec vectors of columns at a time. */
ALWAYS_INLINE void kv_mix_tile(enum float_kind kind, int n_q, int n_vec, const float *p,
                               size_t p_stride, const kv_rows *v, float *acc) {
    int32_t c = 0;
    for (; c + n_vec * VEC_LANES <= v->dim; c += n_vec * VEC_LANES) {
        kv_mix_columns(kind, n_q, n_vec, 0, p, p_stride, v, c, acc);
    }
    for (; c + VEC_LANES <= v->dim; c += VEC_LANES) {
        kv_mix_columns(kind, n_q, 1, 0, p, p_stride, v, c, acc);
    }
    if (c < v->dim) {
        kv_mix_columns(kind, n_q, 1, v->dim - c, p, p_stride, v, c, acc);
    }
}

ALWAYS_INLINE void kv_mix_strip(enum float_kind kind, const float *p, size_t p_stride, int32_t n_q,
                                const kv_rows *v, float *acc) {
    const size_t dim = (size_t)v->dim;
    int32_t j = 0;
    for (; j + KV_QUERIES <= n_q; j += KV_QUERIES) {
        kv_mix_tile(kind, KV_QUERIES, KV_MIX_VECS, p + (size_t)j * p_stride, p_stride, v,
                    acc + (size_t)j * dim);
    }
    for (; j < n_q; j++) {
        kv_mix_tile(kind, 1, 8, p + (size_t)j * p_stride, p_stride, v, acc + (size_t)j * dim);
    }
}

static void kv_mix_floats(kv_floats_fn *to_floats, size_t row_bytes, const float *p,
                          size_t p_stride, int32_t n_q, const kv_rows *v, float *acc) {
    float buf[KV_SHARED_FLOATS] __attribute__((aligned(64)));
    int32_t most = KV_SHARED_FLOATS / ((v->dim + 31) / 32 * 32);
    for (int32_t i = 0; i < v->n_row; i += most) {
        kv_rows strip = kv_strip_of(v, row_bytes, i, most);
        strip = to_floats(&strip, buf);
        kv_mix_strip(KIND_F32, p + i, p_stride, n_q, &strip, acc);
    }
}

ALWAYS_INLINE void kv_mix(enum float_kind kind, const float *p, size_t p_stride, int32_t n_q,
                          const kv_rows *v, float *acc) {
    if (kind == KIND_F16 && n_q >= KV_SHARED_QUERIES && v->dim <= KV_SHARED_DIM) {
        kv_mix_floats(f16_floats, 2 * v->row_stride, p, p_stride, n_q, v, acc);
        return;
    }
    for (int32_t i = 0; i < v->n_row; i += KV_STRIP_ROWS) {
        kv_rows strip = kv_strip(v, v->row_stride * float_kind_bytes[kind], i);
        kv_mix_strip(kind, p + i, p_stride, n_q, &strip, acc);
    }
}

#define KV_KERNELS(type, kind)                                                                     \
    static void kv_dot_##type(const float *q, int32_t n_q, const kv_rows *k, float scale,          \
                              float *out, size_t out_stride) {                                     \
        kv_dot(kind, q, n_q, k, scale, out, out_stride);                                           \
    }                                                                                              \
    static void kv_mix_##type(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v,      \
                              float *acc) {                                                        \
        kv_mix(kind, p, p_stride, n_q, v, acc);                                                    \
    }
KV_KERNELS(f32, KIND_F32)
KV_KERNELS(f16, KIND_F16)

static void fill_float_slots(kernels *k) {
    k->mm_f32[DT_F32] = mm_f32_f32;
    k->mm_f32[DT_F16] = mm_f32_f16;
    k->mm_f32[DT_BF16] = mm_f32_bf16;
    k->dequant_row[DT_F16] = dequant_f16;
    k->dequant_row[DT_BF16] = dequant_bf16;
    k->kv_dot[KV_F32] = kv_dot_f32;
    k->kv_dot[KV_F16] = kv_dot_f16;
    k->kv_mix[KV_F32] = kv_mix_f32;
    k->kv_mix[KV_F16] = kv_mix_f16;
}

#endif
