/* Private to kernels/: attention over cached rows of floats, a template that knows no instruction
 * set. Needs what vec_float.h needs, and
 *   KV_QUERIES, KV_MIX_VECS  queries of a register tile of FLOAT_ROWS rows, or of so many vectors
 *
 * A score is summed in the lanes of one vector in order of columns, then over the lanes by the tree
 * of vec_sum, whatever the number of queries; a weighted sum goes over the rows in order.
 */
#ifndef SMOE_KERNELS_VEC_KV_H
#define SMOE_KERNELS_VEC_KV_H

#include "kernels/vec_float.h"

/* ---- strips */

/* Rows go in strips that all queries finish before the next begins, so that a strip is read from
 * memory once. What follows is fetched meanwhile, at least KV_AHEAD_ROWS ahead, also past the end,
 * where the cache mostly goes on; in parts, one with each tile of queries, since a core that asks
 * for more lines at once than it can wait for stands still. */
enum { KV_STRIP_ROWS = 8, KV_AHEAD_ROWS = 16 };

typedef struct kv_fetch {
    uintptr_t at;
    size_t part_bytes;
} kv_fetch;

/* n_row rows of k from row i on, or what is left; the work on them has n_part parts. */
ALWAYS_INLINE kv_rows kv_strip(const kv_rows *k, size_t row_bytes, int32_t i, int32_t n_row,
                               int32_t n_part, kv_fetch *fetch) {
    const uint8_t *at = (const uint8_t *)k->at + (size_t)i * row_bytes;
    int32_t ahead = n_row > KV_AHEAD_ROWS ? n_row : KV_AHEAD_ROWS;
    size_t part_bytes = (size_t)n_row * row_bytes / (size_t)n_part;
    *fetch = (kv_fetch){(uintptr_t)at + (size_t)ahead * row_bytes, (part_bytes + 63) / 64 * 64};
    return (kv_rows){at, k->row_stride, k->n_row - i < n_row ? k->n_row - i : n_row, k->dim};
}

ALWAYS_INLINE void kv_fetch_part(kv_fetch *f) {
    for (size_t b = 0; b < f->part_bytes; b += 64) {
        __builtin_prefetch((const void *)(f->at + b), 0, 3);
    }
    f->at += f->part_bytes;
}

/* Tiles that n_q queries make up: of so many each, and the rest one by one. */
ALWAYS_INLINE int32_t kv_tiles(int32_t n_q, int32_t of) {
    return n_q / of + n_q % of;
}

/* For so many queries or more, halves are turned into floats once for all of them. Sums of kv_mix
 * are loaded and stored for each strip: the longer the better, as long as its floats leave room in
 * L1. Rows of more than KV_FLOATS_DIM values stay as they are. */
enum { KV_MANY_QUERIES = 16, KV_FLOATS = 4096, KV_FLOATS_DIM = KV_FLOATS / KV_STRIP_ROWS };

/* Strip, of at most KV_FLOATS values in rows padded to whole vectors, as floats in buf. */
typedef kv_rows kv_floats_fn(const kv_rows *strip, float *buf);

static kv_rows f16_floats(const kv_rows *strip, float *buf) {
    size_t width = ((size_t)strip->dim + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    const uint16_t *row = strip->at;
    for (int32_t r = 0; r < strip->n_row; r++, row += strip->row_stride) {
        dequant_f16(row, strip->dim, buf + (size_t)r * width);
    }
    return (kv_rows){buf, width, strip->n_row, strip->dim};
}

/* ---- scores */

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

ALWAYS_INLINE void kv_dot_strip(enum float_kind kind, const float *q, int32_t n_q, const kv_rows *k,
                                float *out, size_t out_stride, kv_fetch *fetch) {
    int32_t j = 0;
    for (; j + KV_QUERIES <= n_q; j += KV_QUERIES) {
        kv_fetch_part(fetch);
        kv_dot_tile(kind, KV_QUERIES, q + (size_t)j * (size_t)k->dim, k,
                    out + (size_t)j * out_stride, out_stride);
    }
    for (; j < n_q; j++) {
        kv_fetch_part(fetch);
        kv_dot_tile(kind, 1, q + (size_t)j * (size_t)k->dim, k, out + (size_t)j * out_stride,
                    out_stride);
    }
}

static void kv_dot_floats(kv_floats_fn *to_floats, size_t row_bytes, const float *q, int32_t n_q,
                          const kv_rows *k, float *out, size_t out_stride) {
    float buf[KV_FLOATS] __attribute__((aligned(64)));
    int32_t n_tile = kv_tiles(n_q, KV_QUERIES);
    for (int32_t i = 0; i < k->n_row; i += KV_STRIP_ROWS) {
        kv_fetch fetch;
        kv_rows strip = kv_strip(k, row_bytes, i, KV_STRIP_ROWS, n_tile, &fetch);
        strip = to_floats(&strip, buf);
        kv_dot_strip(KIND_F32, q, n_q, &strip, out + i, out_stride, &fetch);
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
    const size_t row_bytes = k->row_stride * float_kind_bytes[kind];
    if (kind == KIND_F16 && n_q >= KV_MANY_QUERIES && k->dim <= KV_FLOATS_DIM) {
        kv_dot_floats(f16_floats, row_bytes, q, n_q, k, out, out_stride);
    } else {
        int32_t n_tile = kv_tiles(n_q, KV_QUERIES);
        for (int32_t i = 0; i < k->n_row; i += KV_STRIP_ROWS) {
            kv_fetch fetch;
            kv_rows strip = kv_strip(k, row_bytes, i, KV_STRIP_ROWS, n_tile, &fetch);
            kv_dot_strip(kind, q, n_q, &strip, out + i, out_stride, &fetch);
        }
    }
    kv_scale(scale, n_q, k->n_row, out, out_stride);
}

/* ---- weighted sums */

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
                                const kv_rows *v, float *acc, kv_fetch *fetch) {
    const size_t dim = (size_t)v->dim;
    int32_t j = 0;
    for (; j + KV_QUERIES <= n_q; j += KV_QUERIES) {
        kv_fetch_part(fetch);
        kv_mix_tile(kind, KV_QUERIES, KV_MIX_VECS, p + (size_t)j * p_stride, p_stride, v,
                    acc + (size_t)j * dim);
    }
    for (; j < n_q; j++) {
        kv_fetch_part(fetch);
        kv_mix_tile(kind, 1, 8, p + (size_t)j * p_stride, p_stride, v, acc + (size_t)j * dim);
    }
}

static void kv_mix_floats(kv_floats_fn *to_floats, size_t row_bytes, const float *p,
                          size_t p_stride, int32_t n_q, const kv_rows *v, float *acc) {
    float buf[KV_FLOATS] __attribute__((aligned(64)));
    int32_t n_tile = kv_tiles(n_q, KV_QUERIES), most = KV_FLOATS / ((v->dim + 31) / 32 * 32);
    for (int32_t i = 0; i < v->n_row; i += most) {
        kv_fetch fetch;
        kv_rows strip = kv_strip(v, row_bytes, i, most, n_tile, &fetch);
        strip = to_floats(&strip, buf);
        kv_mix_strip(KIND_F32, p + i, p_stride, n_q, &strip, acc, &fetch);
    }
}

ALWAYS_INLINE void kv_mix(enum float_kind kind, const float *p, size_t p_stride, int32_t n_q,
                          const kv_rows *v, float *acc) {
    const size_t row_bytes = v->row_stride * float_kind_bytes[kind];
    if (kind == KIND_F16 && n_q >= KV_MANY_QUERIES && v->dim <= KV_FLOATS_DIM) {
        kv_mix_floats(f16_floats, row_bytes, p, p_stride, n_q, v, acc);
        return;
    }
    int32_t n_tile = kv_tiles(n_q, KV_QUERIES);
    for (int32_t i = 0; i < v->n_row; i += KV_STRIP_ROWS) {
        kv_fetch fetch;
        kv_rows strip = kv_strip(v, row_bytes, i, KV_STRIP_ROWS, n_tile, &fetch);
        kv_mix_strip(kind, p + i, p_stride, n_q, &strip, acc, &fetch);
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

static void fill_kv_slots(kernels *k) {
    k->kv_dot[KV_F32] = kv_dot_f32;
    k->kv_dot[KV_F16] = kv_dot_f16;
    k->kv_mix[KV_F32] = kv_mix_f32;
    k->kv_mix[KV_F16] = kv_mix_f16;
}

#endif
