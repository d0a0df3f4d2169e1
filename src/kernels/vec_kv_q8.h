/* Private to kernels/: attention over cached rows of int8 blocks (KV_Q8), a template that knows no
 * instruction set. Needs what vec_kv.h needs, and
 *   vec_mul(a, b)
 *   vec_load_int8(p)  VEC_LANES int8 as floats
 *   vec_set1_f16(p)   the f16 at p in all lanes
 *   Q8_QUERIES        queries of a register tile of kv_mix, a block of columns wide
 *
 * A code times its scale is exact in a float, and sums run in the order of vec_kv.h's: the
 * results have the bits of KV_F32 on the dequantised rows.
 */
#ifndef SMOE_KERNELS_VEC_KV_Q8_H
#define SMOE_KERNELS_VEC_KV_Q8_H

#include "kernels/vec_kv.h"

enum { Q8_VALUES = 32, Q8_VECS = Q8_VALUES / VEC_LANES };

/* Vector n of a block; the padding of a row's last block may be read. */
ALWAYS_INLINE vecf q8_values(const block_q8 *b, int n, vecf scale) {
    return vec_mul(vec_load_int8(b->q + n * VEC_LANES), scale);
}

/* ---- scores */

/* Adds the products of vector n of block b; act: the queries' values for it. */
ALWAYS_INLINE void q8_dot_vec(int n_row, int n_q, const block_q8 *const *row, int32_t b, int n,
                              const vecf *scale, const vecf *act, vecf acc[][FLOAT_ROWS]) {
    for (int r = 0; r < n_row; r++) {
        vecf value = q8_values(row[r] + b, n, scale[r]);
        for (int t = 0; t < n_q; t++) {
            acc[t][r] = vec_fma(value, act[t], acc[t][r]);
        }
    }
}

/* n_row rows (FLOAT_ROWS or one) against n_q queries, both constants where this is inlined. */
ALWAYS_INLINE void q8_dot_tile(int n_row, int n_q, const float *q, const block_q8 *at,
                               size_t row_stride, int32_t dim, float *out, size_t out_stride) {
    vecf acc[KV_QUERIES][FLOAT_ROWS], scale[FLOAT_ROWS], act[KV_QUERIES];
    const block_q8 *row[FLOAT_ROWS];
    for (int r = 0; r < n_row; r++) {
        row[r] = at + row_stride * (size_t)r;
        for (int t = 0; t < n_q; t++) {
            acc[t][r] = vec_zero();
        }
    }
    for (int32_t c = 0; c < dim; c += Q8_VALUES) {
        int32_t b = c / Q8_VALUES, left = dim - c;
        for (int r = 0; r < n_row; r++) {
            scale[r] = vec_set1_f16(&row[r][b].d);
        }
        if (left >= Q8_VALUES) {
            for (int n = 0; n < Q8_VECS; n++) {
                for (int t = 0; t < n_q; t++) {
                    act[t] = vec_load(q + (size_t)t * (size_t)dim + c + n * VEC_LANES);
                }
                q8_dot_vec(n_row, n_q, row, b, n, scale, act, acc);
            }
            continue;
        }
        for (int n = 0; n * VEC_LANES < left; n++) {
            int32_t part = left - n * VEC_LANES;
            for (int t = 0; t < n_q; t++) {
                act[t] = vec_load_part(q + (size_t)t * (size_t)dim + c + n * VEC_LANES,
                                       part < VEC_LANES ? part : VEC_LANES);
            }
            q8_dot_vec(n_row, n_q, row, b, n, scale, act, acc);
        }
    }
    for (int t = 0; t < n_q; t++) {
        if (n_row == FLOAT_ROWS) {
            vec_put_sums(out + out_stride * (size_t)t, true, acc[t]);
        } else {
            out[out_stride * (size_t)t] = vec_sum(acc[t][0]);
        }
    }
}

ALWAYS_INLINE void q8_dot_rows(int n_q, const float *q, const kv_rows *k, float *out,
                               size_t out_stride) {
    const block_q8 *row = k->at;
    int32_t i = 0;
    for (; i + FLOAT_ROWS <= k->n_row; i += FLOAT_ROWS, row += FLOAT_ROWS * k->row_stride) {
        q8_dot_tile(FLOAT_ROWS, n_q, q, row, k->row_stride, k->dim, out + i, out_stride);
    }
    for (; i < k->n_row; i++, row += k->row_stride) {
        q8_dot_tile(1, n_q, q, row, k->row_stride, k->dim, out + i, out_stride);
    }
}

/* A strip as it is, for each tile of queries anew. */
static void q8_dot_direct(const float *q, int32_t n_q, const kv_rows *strip, float *out,
                          size_t out_stride, kv_fetch *fetch) {
    size_t dim = (size_t)strip->dim;
    int32_t j = 0;
    for (; j + KV_QUERIES <= n_q; j += KV_QUERIES) {
        kv_fetch_part(fetch);
        q8_dot_rows(KV_QUERIES, q + (size_t)j * dim, strip, out + (size_t)j * out_stride,
                    out_stride);
    }
    for (; j < n_q; j++) {
        kv_fetch_part(fetch);
        q8_dot_rows(1, q + (size_t)j * dim, strip, out + (size_t)j * out_stride, out_stride);
    }
}

static kv_rows q8_floats(const kv_rows *strip, float *buf) {
    size_t n_block = kv_row_units(KV_Q8, strip->dim);
    const block_q8 *row = strip->at;
    float *to = buf;
    for (int32_t r = 0; r < strip->n_row; r++, row += strip->row_stride) {
        for (size_t c = 0; c < n_block; c++) {
            vecf scale = vec_set1_f16(&row[c].d);
            for (int n = 0; n < Q8_VECS; n++, to += VEC_LANES) {
                vec_store(to, q8_values(&row[c], n, scale));
            }
        }
    }
    return (kv_rows){buf, n_block * Q8_VALUES, strip->n_row, strip->dim};
}

static void kv_dot_q8(const float *q, int32_t n_q, const kv_rows *k, float scale, float *out,
                      size_t out_stride) {
    const size_t row_bytes = k->row_stride * sizeof(block_q8);
    if (n_q > KV_QUERIES && k->dim <= KV_FLOATS_DIM) {
        kv_dot_floats(q8_floats, row_bytes, q, n_q, k, out, out_stride);
    } else {
        int32_t n_tile = kv_tiles(n_q, KV_QUERIES);
        for (int32_t i = 0; i < k->n_row; i += KV_STRIP_ROWS) {
            kv_fetch fetch;
            kv_rows strip = kv_strip(k, row_bytes, i, KV_STRIP_ROWS, n_tile, &fetch);
            q8_dot_direct(q, n_q, &strip, out + i, out_stride, &fetch);
        }
    }
    kv_scale(scale, n_q, k->n_row, out, out_stride);
}

/* ---- weighted sums */

/* n_block whole blocks of columns from c on, over all rows, of n_q queries. */
ALWAYS_INLINE void q8_mix_blocks(int n_q, int n_block, const float *p, size_t p_stride,
                                 const kv_rows *rows, int32_t c, float *acc) {
    const block_q8 *b = (const block_q8 *)rows->at + c / Q8_VALUES;
    const size_t dim = (size_t)rows->dim;
    vecf sum[Q8_QUERIES][8];
    acc += c;
    for (int j = 0; j < n_q; j++) {
        for (int n = 0; n < n_block * Q8_VECS; n++) {
            sum[j][n] = vec_load(acc + (size_t)j * dim + n * VEC_LANES);
        }
    }
    for (int32_t i = 0; i < rows->n_row; i++, b += rows->row_stride) {
        for (int k = 0; k < n_block; k++) {
            vecf scale = vec_set1_f16(&b[k].d), value[Q8_VECS];
            for (int n = 0; n < Q8_VECS; n++) {
                value[n] = q8_values(&b[k], n, scale);
            }
            for (int j = 0; j < n_q; j++) {
                vecf weight = vec_set1(p[(size_t)j * p_stride + (size_t)i]);
                for (int n = 0; n < Q8_VECS; n++) {
                    vecf *to = &sum[j][k * Q8_VECS + n];
                    *to = vec_fma(weight, value[n], *to);
                }
            }
        }
    }
    for (int j = 0; j < n_q; j++) {
        for (int n = 0; n < n_block * Q8_VECS; n++) {
            vec_store(acc + (size_t)j * dim + n * VEC_LANES, sum[j][n]);
        }
    }
}

/* Vector n of the block at c, of which lanes are columns, over all rows, of n_q queries. */
ALWAYS_INLINE void q8_mix_part(int n_q, const float *p, size_t p_stride, const kv_rows *rows,
                               int32_t c, int n, int32_t lanes, float *acc) {
    const block_q8 *b = (const block_q8 *)rows->at + c / Q8_VALUES;
    const size_t dim = (size_t)rows->dim;
    vecf sum[Q8_QUERIES];
    acc += c + n * VEC_LANES;
    for (int j = 0; j < n_q; j++) {
        sum[j] = vec_load_part(acc + (size_t)j * dim, lanes);
    }
    for (int32_t i = 0; i < rows->n_row; i++, b += rows->row_stride) {
        vecf value = q8_values(b, n, vec_set1_f16(&b->d));
        for (int j = 0; j < n_q; j++) {
            sum[j] = vec_fma(vec_set1(p[(size_t)j * p_stride + (size_t)i]), value, sum[j]);
        }
    }
    for (int j = 0; j < n_q; j++) {
        vec_store_part(acc + (size_t)j * dim, sum[j], lanes);
    }
}

/* n_q queries, a constant where this is inlined, n_block blocks of columns at a time. */
ALWAYS_INLINE void q8_mix_tile(int n_q, int n_block, const float *p, size_t p_stride,
                               const kv_rows *v, float *acc) {
    int32_t c = 0;
    for (; c + n_block * Q8_VALUES <= v->dim; c += n_block * Q8_VALUES) {
        q8_mix_blocks(n_q, n_block, p, p_stride, v, c, acc);
    }
    for (; n_block > 1 && c + Q8_VALUES <= v->dim; c += Q8_VALUES) {
        q8_mix_blocks(n_q, 1, p, p_stride, v, c, acc);
    }
    for (int n = 0; c + n * VEC_LANES < v->dim; n++) {
        int32_t left = v->dim - c - n * VEC_LANES;
        q8_mix_part(n_q, p, p_stride, v, c, n, left < VEC_LANES ? left : VEC_LANES, acc);
    }
}

static void q8_mix_strip(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v, float *acc,
                         kv_fetch *fetch) {
    const size_t dim = (size_t)v->dim;
    int32_t j = 0;
    for (; j + Q8_QUERIES <= n_q; j += Q8_QUERIES) {
        kv_fetch_part(fetch);
        q8_mix_tile(Q8_QUERIES, 1, p + (size_t)j * p_stride, p_stride, v, acc + (size_t)j * dim);
    }
    for (; Q8_QUERIES > 4 && j + 4 <= n_q; j += 4) {
        kv_fetch_part(fetch);
        q8_mix_tile(4, 2, p + (size_t)j * p_stride, p_stride, v, acc + (size_t)j * dim);
    }
    for (; j < n_q; j++) {
        kv_fetch_part(fetch);
        q8_mix_tile(1, 8 / Q8_VECS, p + (size_t)j * p_stride, p_stride, v, acc + (size_t)j * dim);
    }
}

static void kv_mix_q8(const float *p, size_t p_stride, int32_t n_q, const kv_rows *v, float *acc) {
    const size_t row_bytes = v->row_stride * sizeof(block_q8);
    if (n_q >= KV_MANY_QUERIES && v->dim <= KV_FLOATS_DIM) {
        kv_mix_floats(q8_floats, row_bytes, p, p_stride, n_q, v, acc);
        return;
    }
    int32_t rest = n_q % Q8_QUERIES;
    int32_t n_tile = n_q / Q8_QUERIES + (Q8_QUERIES > 4 ? kv_tiles(rest, 4) : rest);
    for (int32_t i = 0; i < v->n_row; i += KV_STRIP_ROWS) {
        kv_fetch fetch;
        kv_rows strip = kv_strip(v, row_bytes, i, KV_STRIP_ROWS, n_tile, &fetch);
        q8_mix_strip(p + i, p_stride, n_q, &strip, acc, &fetch);
    }
}

static void fill_q8_slots(kernels *k) {
    k->kv_dot[KV_Q8] = kv_dot_q8;
    k->kv_mix[KV_Q8] = kv_mix_q8;
}

#endif
