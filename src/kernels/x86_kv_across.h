/* Private to kernels/: scores of many queries in AVX-512, with the rows of the cache side by side.
 *
 * Columns c, c + 16 and so on of a row make up lane c of its score's vector. With 32 rows side by
 * side, lane by lane, each query's value meets all of them at once, and the sum over the lanes is a
 * sum of vectors: 15 additions for 16 scores, where rows along the lanes need 45 operations. The
 * order is that of vec_kv.h, so are the bits. Standing rows up has its price too, so a few queries
 * are not worth it; nor were any with eight lanes (bench/results.tsv).
 *
 * Needs what vec_kv_q8.h needs, and
 *   vec_add(a, b)
 *   vec_transpose(v)  the sixteen vectors at v become the columns of what they were
 */
#ifndef SMOE_KERNELS_X86_KV_ACROSS_H
#define SMOE_KERNELS_X86_KV_ACROSS_H

#include "kernels/vec_kv_q8.h"

enum {
    ACROSS_VECS = 2,
    ACROSS_ROWS = ACROSS_VECS * VEC_LANES,
    ACROSS_QUERIES = 4,
    ACROSS_FLOATS = 8192,
    ACROSS_DIM = ACROSS_FLOATS / ACROSS_ROWS,
    ACROSS_LANES = VEC_LANES / 2
};

/* Sixteen columns of a row from c on; those from n on are zero, or the padding of an int8 block. */
ALWAYS_INLINE vecf across_load(enum kv_type type, const uint8_t *row, int32_t c, int32_t n) {
    if (type == KV_Q8) {
        const block_q8 *b = (const block_q8 *)row + c / Q8_VALUES;
        return q8_values(b, c % Q8_VALUES / VEC_LANES, vec_set1_f16(&b->d));
    }
    enum float_kind kind = type == KV_F32 ? KIND_F32 : KIND_F16;
    const uint8_t *at = row + (size_t)c * float_kind_bytes[kind];
    return n < VEC_LANES ? load_weights_part(kind, at, n) : load_weights(kind, at);
}

/* Stands up to ACROSS_ROWS rows up: to[lane][n][ACROSS_ROWS], where [lane][n] is column
 * n * VEC_LANES + lane. Missing rows are zero. */
ALWAYS_INLINE void across_rows(enum kv_type type, const kv_rows *k, float *to) {
    const int32_t depth = (k->dim + VEC_LANES - 1) / VEC_LANES;
    const size_t row_bytes = k->row_stride * kv_unit_of(type).bytes;
    for (int v = 0; v < ACROSS_VECS; v++) {
        const uint8_t *row = (const uint8_t *)k->at + (size_t)(v * VEC_LANES) * row_bytes;
        int32_t n_row = k->n_row - v * VEC_LANES;
        for (int32_t n = 0; n < depth; n++) {
            vecf part[VEC_LANES];
            for (int r = 0; r < VEC_LANES; r++) {
                part[r] = r < n_row ? across_load(type, row + (size_t)r * row_bytes, n * VEC_LANES,
                                                  k->dim - n * VEC_LANES)
                                    : vec_zero();
            }
            vec_transpose(part);
            for (int l = 0; l < VEC_LANES; l++) {
                vec_store(to + (size_t)(l * depth + n) * ACROSS_ROWS + v * VEC_LANES, part[l]);
            }
        }
    }
}

/* The tree of vec_sum adds lane l + 8 to lane l first, so a tile takes both at once. */
typedef vecf across_sums[ACROSS_QUERIES][ACROSS_VECS];

/* Adds one column, at: its rows, to one lane's sums. */
ALWAYS_INLINE void across_step(int n_q, const float *q, size_t dim, const float *at,
                               across_sums sum) {
    for (int j = 0; j < n_q; j++) {
        vecf value = vec_set1(q[(size_t)j * dim]);
        for (int v = 0; v < ACROSS_VECS; v++) {
            sum[j][v] = vec_fma(vec_load(at + v * VEC_LANES), value, sum[j][v]);
        }
    }
}

/* Lanes l and l + 8 of the scores of n_q queries, added. */
ALWAYS_INLINE void across_lanes(int n_q, const float *q, int32_t dim, const float *rows, int32_t l,
                                across_sums to) {
    const size_t depth = (size_t)(dim + VEC_LANES - 1) / VEC_LANES;
    across_sums sum[2];
    for (int w = 0; w < 2; w++) {
        for (int j = 0; j < n_q; j++) {
            for (int v = 0; v < ACROSS_VECS; v++) {
                sum[w][j][v] = vec_zero();
            }
        }
    }
    const float *at = rows + (size_t)l * depth * ACROSS_ROWS;
    const float *at_8 = at + ACROSS_LANES * depth * ACROSS_ROWS;
    int32_t c = l;
    for (; c + ACROSS_LANES < dim; c += VEC_LANES, at += ACROSS_ROWS, at_8 += ACROSS_ROWS) {
        across_step(n_q, q + c, (size_t)dim, at, sum[0]);
        across_step(n_q, q + c + ACROSS_LANES, (size_t)dim, at_8, sum[1]);
    }
    if (c < dim) {
        across_step(n_q, q + c, (size_t)dim, at, sum[0]);
    }
    for (int j = 0; j < n_q; j++) {
        for (int v = 0; v < ACROSS_VECS; v++) {
            to[j][v] = vec_add(sum[0][j][v], sum[1][j][v]);
        }
    }
}

/* n_q queries, a constant where this is inlined, against rows that stand. */
ALWAYS_INLINE void across_tile(int n_q, const float *q, int32_t dim, const float *rows,
                               int32_t n_row, float scale, float *out, size_t out_stride,
                               kv_fetch *fetch) {
    across_sums lane[ACROSS_LANES];
    for (int l = 0; l < ACROSS_LANES; l++) {
        kv_fetch_part(fetch);
        across_lanes(n_q, q, dim, rows, l, lane[l]);
    }
    for (int j = 0; j < n_q; j++, out += out_stride) {
        for (int v = 0; v < ACROSS_VECS && v * VEC_LANES < n_row; v++) {
            for (int n = ACROSS_LANES / 2; n > 0; n /= 2) { /* neighbours */
                for (int l = 0; l < n; l++) {
                    lane[l][j][v] = vec_add(lane[2 * l][j][v], lane[2 * l + 1][j][v]);
                }
            }
            vecf score = vec_mul(lane[0][j][v], vec_set1(scale));
            if (n_row - v * VEC_LANES < VEC_LANES) {
                vec_store_part(out + v * VEC_LANES, score, n_row - v * VEC_LANES);
            } else {
                vec_store(out + v * VEC_LANES, score);
            }
        }
    }
}

static void across_scores(const float *q, int32_t n_q, int32_t dim, const float *rows,
                          int32_t n_row, float scale, float *out, size_t out_stride,
                          kv_fetch *fetch) {
    int32_t j = 0;
    for (; j + ACROSS_QUERIES <= n_q; j += ACROSS_QUERIES) {
        across_tile(ACROSS_QUERIES, q + (size_t)j * (size_t)dim, dim, rows, n_row, scale,
                    out + (size_t)j * out_stride, out_stride, fetch);
    }
    for (; j < n_q; j++) {
        across_tile(1, q + (size_t)j * (size_t)dim, dim, rows, n_row, scale,
                    out + (size_t)j * out_stride, out_stride, fetch);
    }
}

ALWAYS_INLINE void kv_dot_across(enum kv_type type, const float *q, int32_t n_q, const kv_rows *k,
                                 float scale, float *out, size_t out_stride) {
    const size_t row_bytes = k->row_stride * kv_unit_of(type).bytes;
    const int32_t n_part = kv_tiles(n_q, ACROSS_QUERIES) * ACROSS_LANES;
    float rows[ACROSS_FLOATS] __attribute__((aligned(64)));
    for (int32_t i = 0; i < k->n_row; i += ACROSS_ROWS) {
        kv_fetch fetch;
        kv_rows strip = kv_strip(k, row_bytes, i, ACROSS_ROWS, n_part, &fetch);
        across_rows(type, &strip, rows);
        across_scores(q, n_q, k->dim, rows, strip.n_row, scale, out + i, out_stride, &fetch);
    }
}

#define KV_DOT_MANY(name, type)                                                                    \
    static void kv_dot_many_##name(const float *q, int32_t n_q, const kv_rows *k, float scale,     \
                                   float *out, size_t out_stride) {                                \
        if (n_q >= KV_MANY_QUERIES && k->dim <= ACROSS_DIM) {                                      \
            kv_dot_across(type, q, n_q, k, scale, out, out_stride);                                \
        } else {                                                                                   \
            kv_dot_##name(q, n_q, k, scale, out, out_stride);                                      \
        }                                                                                          \
    }
KV_DOT_MANY(f32, KV_F32)
KV_DOT_MANY(f16, KV_F16)
KV_DOT_MANY(q8, KV_Q8)

static void fill_across_slots(kernels *k) {
    k->kv_dot[KV_F32] = kv_dot_many_f32;
    k->kv_dot[KV_F16] = kv_dot_many_f16;
    k->kv_dot[KV_Q8] = kv_dot_many_q8;
}

#endif
