/* Private to kernels/: products of quantised weights with act_q8, several rows side by side, one in
 * each lane: sixteen with AVX-512 and VNNI, eight with AVX2. A template: the includer includes
 * x86_rows_512.h or x86_rows_256.h first; ROWS_KERNEL(type) then defines a type's kernel. Types are
 * spread over several files since each takes its time to compile.
 *
 * 256 columns of the rows are unpacked once into a tile that stays in L1, then multiplied with every
 * token. The codes of a lane are multiplied by activations that are broadcast to all lanes, so
 * nothing is ever summed across lanes: an output element is
 *     for each 32 columns in order: acc = fma(dot, scale * d, acc), then acc = fma(min, d_sum, acc)
 * or with a scale for each 16
 *     acc = fma(fma(dot1, scale1, dot0 * scale0), d, acc)
 * whatever the token's and the row's company, and since dots are exact, in every instruction set.
 */
#ifndef SMOE_KERNELS_X86_ROWS_H
#define SMOE_KERNELS_X86_ROWS_H

#include <stddef.h>

#include "kernels/kernels_impl.h"
#include "kernels/x86_rows_unpack.h"

/* Tokens for which a tile is unpacked once: their activations of 2,048 columns, 200 KiB, and sums
 * stay in L2. */
enum { CHUNK_TOKENS = 64 };

/* What the integer sums of a unit add to acc. */
ALWAYS_INLINE fvec add_dots(enum rows_kind kind, const ivec *dot, const rows_tile *w, size_t u,
                            const act_q8 *x, fvec acc) {
    const fvec d = fv_set1(x->d);
    if (rows_runs_of_16(kind)) {
        fvec sum = fv_mul(fv_from(dot[0]), w->scale[2 * u]);
        sum = fv_fma(fv_from(dot[1]), w->scale[2 * u + 1], sum);
        return fv_fma(sum, d, acc);
    }
    acc = fv_fma(fv_from(dot[0]), fv_mul(w->scale[u], d), acc);
    return rows_has_min(kind) ? fv_fma(w->min[u], fv_set1(x->d_sum), acc) : acc;
}

/* What the sums of a unit's halves start from, to undo the codes' bias. */
ALWAYS_INLINE void start_dots(enum rows_kind kind, bool single, const act_q8 *x, ivec dot[2]) {
    const int bias = rows_bias(kind, single);
    if (bias == 0) {
        dot[0] = dot[1] = iv_set1(0);
        return;
    }
    const unsigned shift = (unsigned)__builtin_ctz(128u / (unsigned)bias);
    dot[0] = iv_set1(x->fix[0]);
    dot[1] = iv_set1(x->fix[1]);
    if (shift > 0 && !rows_runs_of_16(kind)) {
        dot[0] = iv_add(dot[0], dot[1]);
        dot[1] = iv_set1(0);
    }
    if (shift > 0) {
        dot[0] = iv_sra(dot[0], shift);
        dot[1] = rows_runs_of_16(kind) ? iv_sra(dot[1], shift) : dot[1];
    }
}

/* One unit of rows against 32 activations: in two chains, which wait less. */
ALWAYS_INLINE fvec add_unit(enum rows_kind kind, bool single, const ivec code[UNIT_DWORDS],
                            const rows_tile *w, size_t u, const act_q8 *x, fvec acc) {
    ivec dot[2];
    start_dots(kind, single, x, dot);
    dot[0] = iv_dot_16(rows_max(kind), dot[0], code, x->q);
    dot[1] = iv_dot_16(rows_max(kind), dot[1], code + 4, x->q + 16);
    if (!rows_runs_of_16(kind)) {
        dot[0] = iv_add(dot[0], dot[1]);
    }
    return add_dots(kind, dot, w, u, x, acc);
}

/* A tile against n_tok tokens, a constant where this is inlined, whose sums are at acc. */
ALWAYS_INLINE void add_tile(enum rows_kind kind, int n_tok, const rows_tile *w, size_t n_unit,
                            const act_q8 *x, size_t x_stride, fvec *acc) {
    fvec sum[TILE_TOKENS];
    for (int t = 0; t < n_tok; t++) {
        sum[t] = acc[t];
    }
    for (size_t u = 0; u < n_unit; u++) {
        ivec code[UNIT_DWORDS];
        for (int k = 0; k < UNIT_DWORDS; k++) {
            code[k] = w->code[u][k];
        }
        for (int t = 0; t < n_tok; t++) {
            sum[t] = add_unit(kind, false, code, w, u, x + x_stride * (size_t)t + u, sum[t]);
        }
    }
    for (int t = 0; t < n_tok; t++) {
        acc[t] = sum[t];
    }
}

/* One token: the codes never leave the registers. */
ALWAYS_INLINE fvec add_single(enum rows_kind kind, rows_at *at, size_t n_unit, const act_q8 *x,
                              rows_tile *tile, fvec acc) {
    rows_sink to = {.tile = tile, .single = true, .x = x};
    if (!rows_units_share(kind)) {
        unpack_shared(kind, at, n_unit, &to);
        for (size_t u = 0; u < n_unit; u++) {
            ivec code[UNIT_DWORDS];
            unpack_unit(kind, at, u, true, &tile->scale[u], code);
            acc = add_unit(kind, true, code, tile, u, x + u, acc);
        }
        return acc;
    }
    const int per_unit = rows_runs_of_16(kind) ? 2 : 1;
    for (int u = 0; u < TILE_UNITS; u++) {
        ivec start[2];
        start_dots(kind, true, x + u, start);
        to.dot[per_unit * u] = per_unit == 2 ? start[0] : iv_add(start[0], start[1]);
        to.dot[per_unit * u + per_unit - 1] = per_unit == 2 ? start[1] : to.dot[per_unit * u];
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
        unpack_unit(kind, at, u, false, &tile->scale[u], tile->code[u]);
    }
}

ALWAYS_INLINE void add_tokens(enum rows_kind kind, const rows_tile *w, size_t n_unit,
                              const act_q8 *x, size_t x_stride, int32_t n_tok, fvec *acc) {
    for (; n_tok >= TILE_TOKENS; n_tok -= TILE_TOKENS, acc += TILE_TOKENS) {
        add_tile(kind, TILE_TOKENS, w, n_unit, x, x_stride, acc);
        x += x_stride * TILE_TOKENS;
    }
    for (int n = TILE_TOKENS / 2; n > 0; n /= 2) {
        if (n_tok & n) {
            add_tile(kind, n, w, n_unit, x, x_stride, acc);
            x += x_stride * (size_t)n;
            acc += n;
        }
    }
}

/* ROW_LANES rows, of which the first n_row are stored, against up to CHUNK_TOKENS tokens. ahead:
 * where what is multiplied next begins, which is only prefetched. */
ALWAYS_INLINE void rows_side_by_side(enum rows_kind kind, float *y, size_t y_stride, rows_at at,
                                     const uint8_t *ahead, int32_t n_row, int32_t n_col,
                                     const act_q8 *x, size_t x_stride, int32_t n_tok) {
    const size_t tile_bytes = TILE_COLS / (size_t)rows_elems(kind) * rows_block_bytes(kind);
    fvec acc[CHUNK_TOKENS];
    rows_tile tile;
    for (int32_t t = 0; t < n_tok; t++) {
        acc[t] = fv_zero();
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
        for (int i = 0; i < ROW_GROUPS; i++) {
            at.group[i] += tile_bytes;
        }
        n_unit -= n;
    }
    for (int32_t t = 0; t < n_tok; t++) {
        fv_store_rows(y + y_stride * (size_t)t, acc[t], n_row);
    }
}

typedef void rows_side_by_side_fn(float *y, size_t y_stride, const rows_at *at,
                                  const uint8_t *ahead, int32_t n_row, int32_t n_col,
                                  const act_q8 *x, size_t x_stride, int32_t n_tok);

/* n_row rows, a multiple of four up to ROW_LANES or one; lanes without a row of their own repeat the
 * first group. */
static rows_at rows_from(const uint8_t *w, size_t w_row_bytes, int32_t n_row) {
    rows_at at = {.stride = n_row == 1 ? 0 : w_row_bytes};
    for (int32_t i = 0; i < ROW_GROUPS; i++) {
        at.group[i] = 4 * i < n_row ? w + 4 * w_row_bytes * (size_t)i : w;
    }
    return at;
}

/* All rows against up to CHUNK_TOKENS tokens. The rows left over are multiplied together with some
 * before them, which gives the same bits again, or if there are none in pieces of whole groups
 * and single rows. */
static void mm_rows(rows_side_by_side_fn *rows, float *y, size_t y_stride, const uint8_t *w,
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
    static __attribute__((noinline)) void rows_side_by_side_##type(                                \
        float *y, size_t y_stride, const rows_at *at, const uint8_t *ahead, int32_t n_row,         \
        int32_t n_col, const act_q8 *x, size_t x_stride, int32_t n_tok) {                          \
        rows_side_by_side(ROWS_##type, y, y_stride, *at, ahead, n_row, n_col, x, x_stride, n_tok); \
    }                                                                                              \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        const act_q8 *act = x;                                                                     \
        for (int32_t t = 0; t < n_tok; t += CHUNK_TOKENS) {                                        \
            int32_t n = n_tok - t < CHUNK_TOKENS ? n_tok - t : CHUNK_TOKENS;                       \
            mm_rows(rows_side_by_side_##type, y + y_stride * (size_t)t, y_stride, w, w_row_bytes,  \
                    n_row, n_col, act + x_stride * (size_t)t, x_stride, n);                        \
        }                                                                                          \
    }

#endif
