/* Private to kernels/: products of quantised weights with act_q8 for AVX-512 with VNNI: sixteen rows
 * side by side, one in each lane. A template: ROWS_KERNEL(type) defines a type's kernel, in several
 * files since each takes its time to compile. Needs F, BW, VL, DQ and VNNI.
 *
 * 256 columns of sixteen rows are unpacked once into a tile that stays in L1, then multiplied with
 * every token. vpdpbusd multiplies the unsigned codes of a lane by four activations that are
 * broadcast to all lanes, so nothing is ever summed across lanes: an output element is
 *     for each 32 columns in order: acc = fma(dot, scale * d, acc), then acc = fma(min, d_sum, acc)
 * or with a scale for each 16
 *     acc = fma(fma(dot1, scale1, dot0 * scale0), d, acc)
 * whatever the token's and the row's company.
 */
#ifndef SMOE_KERNELS_X86_ROWS_H
#define SMOE_KERNELS_X86_ROWS_H

#include <stddef.h>

#include "kernels/kernels_impl.h"
#include "kernels/x86_rows_unpack.h"

/* Tokens whose sums fit beside a unit's codes in 32 registers, and tokens for which a tile is
 * unpacked once: their activations of 2,048 columns, 200 KiB, and sums stay in L2. */
enum { TILE_TOKENS = 8, CHUNK_TOKENS = 64 };

/* What the integer sums of a unit add to acc. */
ALWAYS_INLINE __m512 add_dots(enum rows_kind kind, const __m512i *dot, const rows_tile *w, size_t u,
                              const act_q8 *x, __m512 acc) {
    const __m512 d = _mm512_set1_ps(x->d);
    if (rows_runs_of_16(kind)) {
        __m512 sum = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[0]), w->scale[2 * u]);
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[1]), w->scale[2 * u + 1], sum);
        return _mm512_fmadd_ps(sum, d, acc);
    }
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[0]), _mm512_mul_ps(w->scale[u], d), acc);
    return rows_has_min(kind) ? _mm512_fmadd_ps(w->min[u], _mm512_set1_ps(x->d_sum), acc) : acc;
}

/* What the sums of a unit start from: dot[1] only with runs of 16. */
ALWAYS_INLINE void start_dots(enum rows_kind kind, const act_q8 *x, __m512i *dot) {
    if (rows_has_min(kind)) {
        dot[0] = _mm512_setzero_si512();
    } else if (rows_runs_of_16(kind)) {
        dot[0] = _mm512_set1_epi32(x->fix[0]);
        dot[1] = _mm512_set1_epi32(x->fix[1]);
    } else {
        dot[0] = _mm512_set1_epi32(x->fix[0] + x->fix[1]);
    }
}

/* One unit of sixteen rows against 32 activations: in two chains, which wait less. */
ALWAYS_INLINE __m512 add_unit(enum rows_kind kind, const __m512i code[UNIT_DWORDS],
                              const rows_tile *w, size_t u, const act_q8 *x, __m512 acc) {
    __m512i dot[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (!rows_has_min(kind)) {
        dot[0] = _mm512_set1_epi32(x->fix[0]);
        dot[1] = _mm512_set1_epi32(x->fix[1]);
    }
    for (int k = 0; k < 4; k++) {
        dot[0] = dot_4(dot[0], code[k], x->q + 4 * k);
        dot[1] = dot_4(dot[1], code[4 + k], x->q + 16 + 4 * k);
    }
    if (!rows_runs_of_16(kind)) {
        dot[0] = _mm512_add_epi32(dot[0], dot[1]);
    }
    return add_dots(kind, dot, w, u, x, acc);
}

/* A tile against n_tok tokens, a constant where this is inlined, whose sums are at acc. */
ALWAYS_INLINE void add_tile(enum rows_kind kind, int n_tok, const rows_tile *w, size_t n_unit,
                            const act_q8 *x, size_t x_stride, __m512 *acc) {
    __m512 sum[TILE_TOKENS];
    for (int t = 0; t < n_tok; t++) {
        sum[t] = acc[t];
    }
    for (size_t u = 0; u < n_unit; u++) {
        __m512i code[UNIT_DWORDS];
        for (int k = 0; k < UNIT_DWORDS; k++) {
            code[k] = w->code[u][k];
        }
        for (int t = 0; t < n_tok; t++) {
            sum[t] = add_unit(kind, code, w, u, x + x_stride * (size_t)t + u, sum[t]);
        }
    }
    for (int t = 0; t < n_tok; t++) {
        acc[t] = sum[t];
    }
}

/* One token: the codes never leave the registers. */
ALWAYS_INLINE __m512 add_single(enum rows_kind kind, rows_at *at, size_t n_unit, const act_q8 *x,
                                rows_tile *tile, __m512 acc) {
    rows_sink to = {.tile = tile, .single = kind != ROWS_q2, .x = x};
    if (!rows_units_share(kind)) {
        unpack_shared(kind, at, n_unit, &to);
        for (size_t u = 0; u < n_unit; u++) {
            __m512i code[UNIT_DWORDS];
            unpack_unit(kind, at, u, &tile->scale[u], code);
            acc = add_unit(kind, code, tile, u, x + u, acc);
        }
        return acc;
    }
    const int per_unit = rows_runs_of_16(kind) ? 2 : 1;
    for (int u = 0; u < TILE_UNITS; u++) {
        start_dots(kind, x + u, to.dot + per_unit * u);
    }
    unpack_shared(kind, at, n_unit, &to);
    for (int u = 0; u < TILE_UNITS; u++) {
        acc = add_dots(kind, to.dot + per_unit * u, tile, (size_t)u, x + u, acc);
    }
    return acc;
}

ALWAYS_INLINE void unpack_tile(enum rows_kind kind, rows_at *at, size_t n_unit, rows_tile *tile) {
    rows_sink to = {.tile = tile};
    unpack_shared(kind, at, n_unit, &to);
    for (size_t u = 0; !rows_units_share(kind) && u < n_unit; u++) {
        unpack_unit(kind, at, u, &tile->scale[u], tile->code[u]);
    }
}

ALWAYS_INLINE void add_tokens(enum rows_kind kind, const rows_tile *w, size_t n_unit,
                              const act_q8 *x, size_t x_stride, int32_t n_tok, __m512 *acc) {
    for (; n_tok >= TILE_TOKENS; n_tok -= TILE_TOKENS, acc += TILE_TOKENS) {
        add_tile(kind, TILE_TOKENS, w, n_unit, x, x_stride, acc);
        x += x_stride * TILE_TOKENS;
    }
    if (n_tok & 4) {
        add_tile(kind, 4, w, n_unit, x, x_stride, acc);
        x += x_stride * 4;
        acc += 4;
    }
    if (n_tok & 2) {
        add_tile(kind, 2, w, n_unit, x, x_stride, acc);
        x += x_stride * 2;
        acc += 2;
    }
    if (n_tok & 1) {
        add_tile(kind, 1, w, n_unit, x, x_stride, acc);
    }
}

/* Sixteen rows, of which the first n_row are stored, against up to CHUNK_TOKENS tokens. ahead:
 * where what is multiplied next begins, which is only prefetched. */
ALWAYS_INLINE void rows_16(enum rows_kind kind, float *y, size_t y_stride, rows_at at,
                           const uint8_t *ahead, int32_t n_row, int32_t n_col, const act_q8 *x,
                           size_t x_stride, int32_t n_tok) {
    const size_t tile_bytes = TILE_COLS / (size_t)rows_elems(kind) * rows_block_bytes(kind);
    __m512 acc[CHUNK_TOKENS];
    rows_tile tile;
    for (int32_t t = 0; t < n_tok; t++) {
        acc[t] = _mm512_setzero_ps();
    }
    size_t n_unit = ((size_t)n_col + 31) / 32;
    for (; n_unit > 0; x += TILE_UNITS) {
        size_t n = n_unit < TILE_UNITS ? n_unit : TILE_UNITS;
        at.ahead = ahead;
        ahead += ROW_LANES * tile_bytes;
        if (n_tok == 1 && (n == TILE_UNITS || !rows_units_share(kind)) && kind != ROWS_q2) {
            acc[0] = add_single(kind, &at, n, x, &tile, acc[0]);
        } else {
            unpack_tile(kind, &at, n, &tile);
            add_tokens(kind, &tile, n, x, x_stride, n_tok, acc);
        }
        for (int i = 0; i < 4; i++) {
            at.quarter[i] += tile_bytes;
        }
        n_unit -= n;
    }
    __mmask16 mask = (__mmask16)((1u << n_row) - 1);
    for (int32_t t = 0; t < n_tok; t++) {
        _mm512_mask_storeu_ps(y + y_stride * (size_t)t, mask, acc[t]);
    }
}

typedef void rows_16_fn(float *y, size_t y_stride, const rows_at *at, const uint8_t *ahead,
                        int32_t n_row, int32_t n_col, const act_q8 *x, size_t x_stride,
                        int32_t n_tok);

/* n_row rows, a multiple of four up to sixteen or one; lanes without a row of their own repeat the
 * first quarter. */
static rows_at rows_from(const uint8_t *w, size_t w_row_bytes, int32_t n_row) {
    rows_at at = {.stride = n_row == 1 ? 0 : w_row_bytes};
    for (int32_t i = 0; i < 4; i++) {
        at.quarter[i] = 4 * i < n_row ? w + 4 * w_row_bytes * (size_t)i : w;
    }
    return at;
}

/* All rows against up to CHUNK_TOKENS tokens. The rows left over are multiplied together with some
 * before them, which gives the same bits again, or if there are none in pieces of whole quarters
 * and single rows. */
static void mm_rows(rows_16_fn *rows, float *y, size_t y_stride, const uint8_t *w,
                    size_t w_row_bytes, int32_t n_row, int32_t n_col, const act_q8 *x,
                    size_t x_stride, int32_t n_tok) {
    int32_t r = 0;
    while (r < n_row) {
        int32_t left = n_row - r, n = left >= ROW_LANES ? ROW_LANES : left >= 4 ? left & ~3 : 1;
        if (left < ROW_LANES && n_row >= ROW_LANES) {
            r = n_row - ROW_LANES;
            n = ROW_LANES;
        }
        const uint8_t *at = w + w_row_bytes * (size_t)r;
        rows_at place = rows_from(at, w_row_bytes, n);
        rows(y + r, y_stride, &place, at + w_row_bytes * (size_t)n, n, n_col, x, x_stride, n_tok);
        r += n;
    }
}

#define ROWS_KERNEL(type)                                                                          \
    static __attribute__((noinline)) void rows_16_##type(                                          \
        float *y, size_t y_stride, const rows_at *at, const uint8_t *ahead, int32_t n_row,         \
        int32_t n_col, const act_q8 *x, size_t x_stride, int32_t n_tok) {                          \
        rows_16(ROWS_##type, y, y_stride, *at, ahead, n_row, n_col, x, x_stride, n_tok);           \
    }                                                                                              \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        const act_q8 *act = x;                                                                     \
        for (int32_t t = 0; t < n_tok; t += CHUNK_TOKENS) {                                        \
            int32_t n = n_tok - t < CHUNK_TOKENS ? n_tok - t : CHUNK_TOKENS;                       \
            mm_rows(rows_16_##type, y + y_stride * (size_t)t, y_stride, w, w_row_bytes, n_row,     \
                    n_col, act + x_stride * (size_t)t, x_stride, n);                               \
        }                                                                                          \
    }

#endif
