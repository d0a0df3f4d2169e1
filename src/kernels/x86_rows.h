/* Private to kernels/: products of quantised weights with act_q8, several rows side by side, one in
 * each lane: sixteen with AVX-512 and VNNI, eight with AVX2. A template: the includer includes
 * x86_rows_512.h or x86_rows_256.h first; ROWS_KERNEL(type) then defines a type's kernel. Types are
 * spread over several files since each takes its time to compile.
 *
 * 32 or 64 columns of the rows are unpacked into registers, then multiplied with every token. The
 * codes of a lane are multiplied by activations that are broadcast to all lanes, so nothing is ever
 * summed across lanes: an output element is
 *     acc = fma(dot, scale * d, acc), then with a minimum acc = fma(min, d_sum, acc)
 * for each 32 columns, in the order in which they are unpacked, or with a scale for each 16
 *     acc = fma(fma(dot1, scale1, dot0 * scale0), d, acc)
 * whatever the token's and the row's company, and since dots are exact, in every instruction set.
 */
#ifndef SMOE_KERNELS_X86_ROWS_H
#define SMOE_KERNELS_X86_ROWS_H

#include <stddef.h>

#include "kernels/kernels_impl.h"
#include "kernels/x86_rows_unpack.h"

/* Tokens for which weights are unpacked once: their activations of 2,048 columns, 260 KiB, and sums
 * stay in L2. */
enum { CHUNK_TOKENS = 64 };

/* What the integer sums of a unit add to acc. */
ALWAYS_INLINE fvec add_dots(enum rows_kind kind, const ivec *dot, const rows_scales *w, size_t u,
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

ALWAYS_INLINE fvec finish_unit(enum rows_kind kind, ivec dot[2], const rows_scales *w, size_t u,
                               const act_q8 *x, fvec acc) {
    if (!rows_runs_of_16(kind)) {
        dot[0] = iv_add(dot[0], dot[1]);
    }
    return add_dots(kind, dot, w, u, x, acc);
}

/* One unit of rows against 32 activations: in two chains, which wait less. */
ALWAYS_INLINE fvec add_unit(enum rows_kind kind, bool single, const ivec code[UNIT_DWORDS],
                            const rows_scales *w, size_t u, const act_q8 *x, fvec acc) {
    ivec dot[2];
    start_dots(kind, single, x, dot);
    dot[0] = iv_dot_16(rows_max(kind), dot[0], code, x->q);
    dot[1] = iv_dot_16(rows_max(kind), dot[1], code + 4, x->q + 16);
    if (kind == ROWS_q4_0 && rows_high_in_place(kind, single)) {
        dot[1] = iv_sra(dot[1], 4); /* the second half's */
    }
    return finish_unit(kind, dot, w, u, x, acc);
}

/* Units of a tile in the order in which they were unpacked, with TO_TILES. */
typedef struct rows_kept {
    ivec code[TILE_UNITS][UNIT_DWORDS];
    rows_scales w; /* of code[i] at i, whatever its unit's number */
    size_t n;
} rows_kept;

/* What a tile of the rows is multiplied with, and where its sums are. single: n_tok is 1, known
 * where this is inlined. */
typedef struct rows_tokens {
    bool single;
    int32_t n_tok;
    const act_q8 *x; /* at the tile's first column */
    size_t x_stride;
    fvec *acc; /* [n_tok] */
    rows_kept *kept;
} rows_tokens;

ALWAYS_INLINE void copy_scales(enum rows_kind kind, rows_scales *to, size_t i,
                               const rows_scales *from, size_t u) {
    if (rows_runs_of_16(kind)) {
        to->scale[2 * i] = from->scale[2 * u];
        to->scale[2 * i + 1] = from->scale[2 * u + 1];
        return;
    }
    to->scale[i] = from->scale[u];
    if (rows_has_min(kind)) {
        to->min[i] = from->min[u];
    }
}

ALWAYS_INLINE void keep_unit(enum rows_kind kind, rows_kept *kept, const ivec code[UNIT_DWORDS],
                             const rows_scales *w, size_t u) {
    for (int k = 0; k < UNIT_DWORDS; k++) {
        kept->code[kept->n][k] = code[k];
    }
    copy_scales(kind, &kept->w, kept->n++, w, u);
}

/* Units that were kept, against every token; keeps none any more. */
#ifdef ROWS_TO_TILES
ALWAYS_INLINE void multiply_kept(enum rows_kind kind, const rows_tokens *to); /* x86_rows_amx.h */
#else
ALWAYS_INLINE void multiply_kept(enum rows_kind kind, const rows_tokens *to) {
    (void)kind, (void)to;
}
#endif

ALWAYS_INLINE rows_pair start_pair(enum rows_kind kind, const rows_tokens *to, size_t first,
                                   size_t second) {
    rows_pair p = {.unit = {first, second}, .single = to->single, .x = to->x};
    if (to->single) {
        start_dots(kind, true, to->x + first, p.dot[0]);
        start_dots(kind, true, to->x + second, p.dot[1]);
    }
    return p;
}

#ifdef ROWS_QUADS
enum { QUAD_TOKENS = 4 };

/* One unit of rows against QUAD_TOKENS tokens, dword by dword. */
ALWAYS_INLINE void add_unit_quad(enum rows_kind kind, const ivec code[UNIT_DWORDS],
                                 const rows_scales *w, size_t u, const act_q8 *const x[QUAD_TOKENS],
                                 fvec acc[QUAD_TOKENS]) {
    ivec dot[QUAD_TOKENS];
    for (size_t t = 0; t < QUAD_TOKENS; t++) {
        dot[t] = iv_set1(rows_bias(kind, false) ? x[t][u].fix_all : 0);
    }
    for (int k = 0; k < UNIT_DWORDS; k++) {
        for (size_t t = 0; t < QUAD_TOKENS; t++) {
            dot[t] = iv_dot_4(dot[t], code[k], x[t][u].q + 4 * k);
        }
    }
    for (size_t t = 0; t < QUAD_TOKENS; t++) {
        acc[t] = add_dots(kind, &dot[t], w, u, &x[t][u], acc[t]);
    }
}

/* As many tokens as make whole quads; returns how many. With one chain for each token none is added
 * to another, and few instructions wait at a time, since tokens take turns. Runs of 16 have nothing
 * to add. */
ALWAYS_INLINE int32_t add_quads(enum rows_kind kind, const rows_pair *p, const rows_scales *w,
                                const rows_tokens *to) {
    const act_q8 *x = to->x;
    int32_t t = 0;
    for (; !rows_runs_of_16(kind) && t + QUAD_TOKENS <= to->n_tok; t += QUAD_TOKENS) {
        const act_q8 *at[QUAD_TOKENS];
        fvec sum[QUAD_TOKENS];
        for (int i = 0; i < QUAD_TOKENS; i++, x += to->x_stride) {
            at[i] = x;
            __asm__("" : "+r"(at[i])); /* in a register: a product takes two slots with an index */
            sum[i] = to->acc[t + i];
        }
        add_unit_quad(kind, p->code[0], w, p->unit[0], at, sum);
        add_unit_quad(kind, p->code[1], w, p->unit[1], at, sum);
        for (int i = 0; i < QUAD_TOKENS; i++) {
            to->acc[t + i] = sum[i];
        }
    }
    return t;
}
#else
ALWAYS_INLINE int32_t add_quads(enum rows_kind kind, const rows_pair *p, const rows_scales *w,
                                const rows_tokens *to) {
    (void)kind, (void)p, (void)w, (void)to;
    return 0;
}
#endif

/* A pair that was unpacked, against every token. */
ALWAYS_INLINE void add_pair(enum rows_kind kind, rows_pair *p, const rows_scales *w,
                            const rows_tokens *to) {
    if (TO_TILES) {
        keep_unit(kind, to->kept, p->code[0], w, p->unit[0]);
        keep_unit(kind, to->kept, p->code[1], w, p->unit[1]);
        return;
    }
    if (to->single) {
        size_t a = p->unit[0], b = p->unit[1];
        fvec sum = finish_unit(kind, p->dot[0], w, a, to->x + a, to->acc[0]);
        to->acc[0] = finish_unit(kind, p->dot[1], w, b, to->x + b, sum);
        return;
    }
    const size_t a = p->unit[0], b = p->unit[1];
    int32_t t = add_quads(kind, p, w, to);
    const act_q8 *x = to->x + to->x_stride * (size_t)t;
    for (; t < to->n_tok; t++, x += to->x_stride) {
        fvec sum = add_unit(kind, false, p->code[0], w, a, x + a, to->acc[t]);
        to->acc[t] = add_unit(kind, false, p->code[1], w, b, x + b, sum);
    }
}

ALWAYS_INLINE void add_q2_block(const q2_block *b, size_t i, const rows_tokens *to) {
    rows_scales w;
    rows_pair p = start_pair(ROWS_q2, to, 2 * i, 2 * i + 1);
    q2_runs(b, 0, &w.scale[4 * i], &p);
    q2_runs(b, 2, &w.scale[4 * i + 2], &p);
    add_pair(ROWS_q2, &p, &w, to);
}

ALWAYS_INLINE void unpack_q2_block(const ivec d[Q2_DWORDS], size_t i, const rows_tokens *to) {
    const q2_block b = q2_block_of(d, i, to->single);
    add_q2_block(&b, i, to);
}

/* The last dwords are read by 32 bytes that overlap those before them. */
ALWAYS_INLINE void tile_q2(rows_at *at, const rows_tokens *to) {
    ivec d[Q2_DWORDS];
    rows_dwords_8(at, 0, d);
    unpack_q2_block(d, 0, to);
    rows_dwords_8(at, 32, d + 8);
    unpack_q2_block(d, 1, to);
    rows_dwords_8_and(at, 4 * (Q2_DWORDS - 8), 5, d + Q2_DWORDS - 8);
    unpack_q2_block(d, 2, to);
    unpack_q2_block(d, 3, to);
}

ALWAYS_INLINE void rest_q2(rows_at *at, size_t n_unit, const rows_tokens *to) {
    for (size_t i = 0; 2 * i < n_unit; i++) {
        const q2_block b = read_q2(at, i);
        add_q2_block(&b, i, to);
    }
}

ALWAYS_INLINE void tile_q4_k(rows_at *at, const rows_tokens *to) {
    rows_scales w;
    q4_k_scales(ROWS_q4_k, at, &w);
    for (size_t j = 0; j < TILE_UNITS; j += 2) {
        rows_pair p = start_pair(ROWS_q4_k, to, j, j + 1);
        ivec q[8];
        rows_dwords_8(at, offsetof(block_q4_k, q) + 16 * j, q);
        q4_k_half(q, 0, &p);
        q4_k_half(q + 4, 1, &p);
        add_pair(ROWS_q4_k, &p, &w, to);
    }
}

/* Steps are written out where shifts by constants save work. */
ALWAYS_INLINE void pair_q5_k(rows_at *at, unsigned j, const ivec high[8], const rows_scales *w,
                             const rows_tokens *to) {
    rows_pair p = start_pair(ROWS_q5_k, to, j, j + 1);
    ivec q[8];
    rows_dwords_8(at, offsetof(block_q5_k, q) + 16 * j, q);
    q5_k_half(q, j, 0, high, &p);
    q5_k_half(q + 4, j, 1, high + 4, &p);
    add_pair(ROWS_q5_k, &p, w, to);
}

ALWAYS_INLINE void tile_q5_k(rows_at *at, const rows_tokens *to) {
    rows_scales w;
    ivec high[8];
    q4_k_scales(ROWS_q5_k, at, &w); /* the blocks begin alike */
    rows_dwords_8(at, offsetof(block_q5_k, qh), high);
    pair_q5_k(at, 0, high, &w, to);
    pair_q5_k(at, 2, high, &w, to);
    pair_q5_k(at, 4, high, &w, to);
    pair_q5_k(at, 6, high, &w, to);
}

ALWAYS_INLINE void pair_q6_k(rows_at *at, size_t n, size_t j, const ivec high[8],
                             const rows_scales *w, const rows_tokens *to) {
    rows_pair p = start_pair(ROWS_q6_k, to, 4 * n + j, 4 * n + 2 + j);
    ivec q[8];
    rows_dwords_8(at, 64 * n + 32 * j, q);
    q6_k_half(q, j, 0, high, &p);
    q6_k_half(q + 4, j, 1, high + 4, &p);
    add_pair(ROWS_q6_k, &p, w, to);
}

ALWAYS_INLINE void tile_q6_k(rows_at *at, const rows_tokens *to) {
    rows_scales w;
    q6_k_scales(at, &w);
    for (size_t n = 0; n < 2; n++) {
        ivec high[8];
        rows_dwords_8(at, offsetof(block_q6_k, qh) + 32 * n, high);
        pair_q6_k(at, n, 0, high, &w, to);
        pair_q6_k(at, n, 1, high, &w, to);
    }
}

/* A unit that was unpacked, against the one token. */
ALWAYS_INLINE void add_single(enum rows_kind kind, const ivec code[UNIT_DWORDS],
                              const rows_scales *w, size_t u, const rows_tokens *to) {
    to->acc[0] = add_unit(kind, true, code, w, u, to->x + u, to->acc[0]);
}

ALWAYS_INLINE void pair_iq4_xs(rows_at *at, size_t u, const rows_scales *w, const rows_tokens *to) {
    rows_pair p = start_pair(ROWS_iq4_xs, to, u, u + 1);
    ivec q[8];
    rows_dwords_8(at, offsetof(block_iq4_xs, q) + 16 * u, q);
    iq4_xs_unit(q, p.code[0]);
    if (to->single) {
        add_single(ROWS_iq4_xs, p.code[0], w, u, to);
    }
    iq4_xs_unit(q + 4, p.code[1]);
    if (to->single) {
        add_single(ROWS_iq4_xs, p.code[1], w, u + 1, to);
    } else {
        add_pair(ROWS_iq4_xs, &p, w, to);
    }
}

ALWAYS_INLINE void tile_iq4_xs(rows_at *at, const rows_tokens *to) {
    rows_scales w;
    iq4_xs_scales(at, &w);
    pair_iq4_xs(at, 0, &w, to);
    pair_iq4_xs(at, 2, &w, to);
    pair_iq4_xs(at, 4, &w, to);
    pair_iq4_xs(at, 6, &w, to);
}

ALWAYS_INLINE void pair_small(enum rows_kind kind, rows_at *at, size_t u, ivec d[SMALL_DWORDS],
                              const rows_tokens *to) {
    rows_scales w;
    rows_pair p = start_pair(kind, to, u, u + 1);
    small_windows(kind, at, u, d);
    unpack_small(kind, d, u, to->single, &w.scale[u], p.code[0]);
    if (to->single) {
        add_single(kind, p.code[0], &w, u, to);
    }
    small_windows(kind, at, u + 1, d);
    unpack_small(kind, d, u + 1, to->single, &w.scale[u + 1], p.code[1]);
    if (to->single) {
        add_single(kind, p.code[1], &w, u + 1, to);
    } else {
        add_pair(kind, &p, &w, to);
    }
}

ALWAYS_INLINE void tile_small(enum rows_kind kind, rows_at *at, const rows_tokens *to) {
    ivec d[SMALL_DWORDS];
    pair_small(kind, at, 0, d, to);
    pair_small(kind, at, 2, d, to);
    pair_small(kind, at, 4, d, to);
    pair_small(kind, at, 6, d, to);
}

/* The last units of a row, fewer than a tile. */
ALWAYS_INLINE void rest_small(enum rows_kind kind, rows_at *at, size_t n_unit,
                              const rows_tokens *to) {
    rows_scales w;
    for (size_t u = 0; u < n_unit; u++) {
        ivec code[UNIT_DWORDS];
        unpack_small_alone(kind, at, u, to->single, &w.scale[u], code);
        if (TO_TILES) {
            keep_unit(kind, to->kept, code, &w, u);
            continue;
        }
        const act_q8 *x = to->x + u;
        for (int32_t t = 0; t < to->n_tok; t++, x += to->x_stride) {
            to->acc[t] = add_unit(kind, to->single, code, &w, u, x, to->acc[t]);
        }
    }
}

ALWAYS_INLINE void multiply_tile(enum rows_kind kind, rows_at *at, size_t n_unit,
                                 const rows_tokens *to) {
    switch (kind) {
    case ROWS_q2:
        if (n_unit == TILE_UNITS) {
            tile_q2(at, to);
        } else {
            rest_q2(at, n_unit, to);
        }
        break;
    case ROWS_q4_k:
        tile_q4_k(at, to);
        break;
    case ROWS_q5_k:
        tile_q5_k(at, to);
        break;
    case ROWS_q6_k:
        tile_q6_k(at, to);
        break;
    case ROWS_iq4_xs:
        tile_iq4_xs(at, to);
        break;
    default:
        if (n_unit == TILE_UNITS) {
            tile_small(kind, at, to);
        } else {
            rest_small(kind, at, n_unit, to);
        }
        break;
    }
}

/* Whether all units of a tile are multiplied, zeros where activations end before it. */
ALWAYS_INLINE bool rows_whole_tiles(enum rows_kind kind) {
    return rows_elems(kind) == TILE_COLS;
}

/* The last n_unit units of activations with zeros behind. */
static void pad_tokens(rows_tokens *to, size_t n_unit, act_q8 *out) {
    memset(out, 0, (size_t)to->n_tok * TILE_UNITS * sizeof *out);
    for (size_t t = 0; t < (size_t)to->n_tok; t++) {
        memcpy(out + TILE_UNITS * t, to->x + to->x_stride * t, n_unit * sizeof *out);
    }
    to->x = out;
    to->x_stride = TILE_UNITS;
}

/* ROW_LANES rows, of which the first n_row are stored, against up to CHUNK_TOKENS tokens. ahead:
 * where what is multiplied next begins, which is only prefetched. */
ALWAYS_INLINE void rows_side_by_side(enum rows_kind kind, bool single, float *y, size_t y_stride,
                                     rows_at at, const uint8_t *ahead, int32_t n_row, int32_t n_col,
                                     const act_q8 *x, size_t x_stride, int32_t n_tok) {
    const size_t tile_bytes = TILE_COLS / (size_t)rows_elems(kind) * rows_block_bytes(kind);
    fvec acc[CHUNK_TOKENS];
    act_q8 last[CHUNK_TOKENS * TILE_UNITS];
    rows_kept kept;
    rows_tokens to = {single, single ? 1 : n_tok, x, x_stride, acc, &kept};
    kept.n = 0;
    for (int32_t t = 0; t < to.n_tok; t++) {
        acc[t] = fv_zero();
    }
    size_t n_unit = ((size_t)n_col + 31) / 32;
    for (size_t n = TILE_UNITS; n_unit > 0; n_unit -= n, to.x += n) {
        at.ahead = ahead;
        ahead += ROW_LANES * tile_bytes;
        if (n_unit < TILE_UNITS) {
            n = n_unit;
            if (rows_whole_tiles(kind)) {
                pad_tokens(&to, n, last);
            }
        }
        multiply_tile(kind, &at, n, &to);
        multiply_kept(kind, &to);
        for (int i = 0; i < ROW_GROUPS; i++) {
            at.group[i] += tile_bytes;
        }
    }
    for (int32_t t = 0; t < to.n_tok; t++) {
        fv_store_rows(y + y_stride * (size_t)t, acc[t], n_row);
    }
}

typedef void rows_side_by_side_fn(float *y, size_t y_stride, const rows_at *at,
                                  const uint8_t *ahead, int32_t n_row, int32_t n_col,
                                  const act_q8 *x, size_t x_stride, int32_t n_tok);

/* n_row rows, a multiple of four up to ROW_LANES or one; lanes without a row of their own repeat
 * the first group. Filled member by member where it lies: a copy of it would be a wide load of what
 * was just stored, which waits until all stores before it, the results of the rows before among
 * them, have reached the cache. */
ALWAYS_INLINE void rows_from(rows_at *at, const uint8_t *w, size_t w_row_bytes, int32_t n_row) {
    at->stride = n_row == 1 ? 0 : w_row_bytes;
    for (int32_t i = 0; i < ROW_GROUPS; i++) {
        at->group[i] = 4 * i < n_row ? w + 4 * w_row_bytes * (size_t)i : w;
    }
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
        rows_at place;
        rows_from(&place, at, w_row_bytes, n);
        rows(y + r, y_stride, &place, at + w_row_bytes * (size_t)n, n, n_col, x, x_stride, n_tok);
        r += n;
    }
}

/* The kernel for one token wants the activations of small blocks as small_codes does, if there is
 * room; else the kernel for groups is right for one token too. */
enum { TURN_UNITS = 512 };

ALWAYS_INLINE bool has_token_kernel(enum rows_kind kind, int32_t n_col) {
    return rows_elems(kind) == TILE_COLS || n_col <= TURN_UNITS * 32;
}

ALWAYS_INLINE void turn_token(enum rows_kind kind, int32_t n_col, const act_q8 *x,
                              act_q8 out[TURN_UNITS]) {
    const size_t whole = ((size_t)n_col + 31) / 32 / TILE_UNITS * TILE_UNITS;
    for (size_t u = 0; u < whole; u++) {
        turn_unit(kind, u % TILE_UNITS, x + u, out + u);
    }
    memcpy(out + whole, x + whole, (act_row_blocks(n_col) - whole) * sizeof *x);
}

/* One token, with the kernel made for one. */
ALWAYS_INLINE void mm_token(enum rows_kind kind, rows_side_by_side_fn *token, float *y,
                            const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col,
                            const act_q8 *x) {
    act_q8 turned[TURN_UNITS];
    if (rows_elems(kind) < TILE_COLS) {
        turn_token(kind, n_col, x, turned);
        x = turned;
    }
    mm_rows(token, y, 0, w, w_row_bytes, n_row, n_col, x, 0, 1);
}

ALWAYS_INLINE void mm_groups(enum rows_kind kind, rows_side_by_side_fn *token,
                             rows_side_by_side_fn *group, float *y, size_t y_stride, const void *w,
                             size_t w_row_bytes, int32_t n_row, int32_t n_col, const act_q8 *x,
                             size_t x_stride, int32_t n_tok) {
    for (int32_t n; n_tok > 0; n_tok -= n) {
        n = n_tok < CHUNK_TOKENS ? n_tok : CHUNK_TOKENS;
        if (n == 1 && has_token_kernel(kind, n_col)) {
            mm_token(kind, token, y, w, w_row_bytes, n_row, n_col, x);
        } else {
            mm_rows(group, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n);
        }
        y += y_stride * (size_t)n;
        x += x_stride * (size_t)n;
    }
}

/* Not inlined: each takes its time to compile, and is called for many rows at once. */
#define ROWS_FUNCTION(name, type, single)                                                          \
    static __attribute__((noinline)) void name(float *y, size_t y_stride, const rows_at *at,       \
                                               const uint8_t *ahead, int32_t n_row, int32_t n_col, \
                                               const act_q8 *x, size_t x_stride, int32_t n_tok) {  \
        rows_side_by_side(ROWS_##type, single, y, y_stride, *at, ahead, n_row, n_col, x, x_stride, \
                          n_tok);                                                                  \
    }

#define ROWS_KERNEL(type)                                                                          \
    ROWS_FUNCTION(rows_##type##_token, type, true)                                                 \
    ROWS_FUNCTION(rows_##type, type, false)                                                        \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        mm_groups(ROWS_##type, rows_##type##_token, rows_##type, y, y_stride, w, w_row_bytes,      \
                  n_row, n_col, x, x_stride, n_tok);                                               \
    }

/* For one token only, where has_token_kernel says so. */
#define ROWS_TOKEN_KERNEL(name, type)                                                              \
    ROWS_FUNCTION(rows_##type##_token, type, true)                                                 \
    void name(float *y, size_t y_stride, const void *w, size_t w_row_bytes, int32_t n_row,         \
              int32_t n_col, const void *x, size_t x_stride, int32_t n_tok) {                      \
        (void)y_stride, (void)x_stride, (void)n_tok;                                               \
        mm_token(ROWS_##type, rows_##type##_token, y, w, w_row_bytes, n_row, n_col, x);            \
    }

/* ROWS_KERNEL as either_type: one token and rows of from_bytes and more go to name. */
#define ROWS_KERNEL_AND(name, type, from_bytes)                                                    \
    ROWS_KERNEL(type)                                                                              \
    static void either_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok) {                                                     \
        bool other =                                                                               \
            n_tok == 1 && w_row_bytes >= (from_bytes) && has_token_kernel(ROWS_##type, n_col);     \
        (other ? name : mm_q8_##type)(y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride,      \
                                      n_tok);                                                      \
    }

#endif
