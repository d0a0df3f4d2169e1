/* Private to kernels/: products of kept rows on matrix tiles (AMX). Owns what x86_rows.h leaves to
 * ROWS_TO_TILES; unpacks nothing itself. Included after x86_rows.h.
 *
 * A unit of sixteen rows, 32 columns, is a tile as it was unpacked: each of its eight vectors is
 * a row of the tile, with four consecutive columns of a weight row in a lane. Up to sixteen
 * tokens' activations are read as another tile from where they lie. The product is a tile of dots,
 * a token a row, which goes through memory to the float operations of x86_rows.h: the same, in the
 * same order. So are the results, to the bit, since dots are exact.
 */
#ifndef SMOE_KERNELS_X86_ROWS_AMX_H
#define SMOE_KERNELS_X86_ROWS_AMX_H

#include "kernels/x86_rows.h"

enum { TILE_TOKENS = 16 };

/* Units of a step, whose sums stay in registers meanwhile; at the end of a tile steps of one. With
 * one scale a unit two were faster, perhaps since the dots of two steps then lie in 4 KiB: loads
 * wait for earlier stores whose addresses have the same lower twelve bits. */
ALWAYS_INLINE size_t step_units(enum rows_kind kind) {
    return rows_runs_of_16(kind) || rows_has_min(kind) ? 4 : 2;
}

ALWAYS_INLINE size_t unit_products(enum rows_kind kind) {
    return rows_runs_of_16(kind) ? 2 : 1;
}

/* Tokens of a group: all groups have the same number, the last overlaps the one before it. */
ALWAYS_INLINE int32_t group_tokens(int32_t n_tok) {
    int32_t n_group = (n_tok + TILE_TOKENS - 1) / TILE_TOKENS;
    return (n_tok + n_group - 1) / n_group;
}

/* Shapes of this thread's tiles: 0 to 3 dots, 4 and 5 activations, 6 and 7 weights. */
static void shape_tiles(bool runs_of_16, int32_t n_tok) {
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t n_row[16];
    } shape = {.palette = 1};
    _Static_assert(sizeof shape == 64, "as LDTILECFG reads it");
    const uint8_t columns = runs_of_16 ? 16 : 32;
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = i == 4 || i == 5 ? columns : 64;
        shape.n_row[i] = i < 6 ? (uint8_t)group_tokens(n_tok) : columns / 4;
    }
    /* The intrinsic of gcc 12 names only its first bytes as read. */
    __asm__ volatile("" ::"r"(&shape) : "memory");
    _tile_loadconfig(&shape);
}

/* Tile numbers are part of the instructions. */
#define TILE_PRODUCT(dots, act, weights)                                                           \
    _tile_zero(dots);                                                                              \
    _tile_loadd(act, q, q_stride);                                                                 \
    _tile_loadd(weights, code, sizeof *code);                                                      \
    _tile_dpbssd(dots, act, weights);                                                              \
    _tile_stored(dots, out, sizeof *out)

/* The i-th product: takes turns, so that products which follow one another need not wait. */
ALWAYS_INLINE void tile_product(size_t i, const int8_t *q, size_t q_stride, const ivec *code,
                                ivec *out) {
    switch (i % 4) {
    case 0:
        TILE_PRODUCT(0, 4, 6);
        break;
    case 1:
        TILE_PRODUCT(1, 5, 7);
        break;
    case 2:
        TILE_PRODUCT(2, 4, 6);
        break;
    default:
        TILE_PRODUCT(3, 5, 7);
        break;
    }
}

/* n kept units from the first on, against the tokens of a group from the first on. */
typedef struct tile_step {
    size_t turn; /* 0 or 1 */
    size_t first, n;
    int32_t tok, n_tok;
    int32_t row; /* of tok in its tile */
} tile_step;

ALWAYS_INLINE tile_step step_at(enum rows_kind kind, size_t turn, size_t first, int32_t tok,
                                const rows_tokens *to) {
    const int32_t group = group_tokens(to->n_tok), rest = to->n_tok - tok;
    return (tile_step){
        .turn = turn,
        .first = first,
        .n = to->kept->n - first < step_units(kind) ? 1 : step_units(kind),
        .tok = tok,
        .n_tok = rest < group ? rest : group,
        .row = rest < group ? group - rest : 0,
    };
}

/* All groups of some units, then the next units; false at the end. */
ALWAYS_INLINE bool next_step(enum rows_kind kind, tile_step *s, const rows_tokens *to) {
    int32_t tok = s->tok + s->n_tok;
    size_t first = s->first + (tok < to->n_tok ? 0 : s->n);
    if (first == to->kept->n) {
        return false;
    }
    *s = step_at(kind, s->turn ^ 1, first, tok < to->n_tok ? tok : 0, to);
    return true;
}

/* The number, from the step's first, of the i-th unit that was kept. */
ALWAYS_INLINE size_t unit_of(enum rows_kind kind, size_t i) {
    static const uint8_t order[4] = {0, 2, 1, 3};
    return kind == ROWS_q6_k ? order[i] : i;
}

ALWAYS_INLINE void dots_of_step(enum rows_kind kind, const tile_step *s, const rows_tokens *to,
                                ivec *out) {
    const size_t stride = to->x_stride * sizeof *to->x, parts = unit_products(kind);
    const size_t turn = s->turn * step_units(kind) * parts;
    const act_q8 *x = to->x + to->x_stride * (size_t)(s->tok - s->row) + s->first;
    for (size_t i = 0; i < step_units(kind) && i < s->n; i++) {
        const ivec *code = to->kept->code[s->first + i];
        const int8_t *q = x[unit_of(kind, i)].q;
        tile_product(turn + parts * i, q, stride, code, out + parts * i * TILE_TOKENS);
        if (parts == 2) {
            tile_product(turn + 2 * i + 1, q + 16, stride, code + 4,
                         out + (2 * i + 1) * TILE_TOKENS);
        }
    }
}

/* n: the step's, a constant where this is inlined. */
ALWAYS_INLINE void add_units(enum rows_kind kind, size_t n, const tile_step *s, const ivec *dots,
                             const rows_tokens *to) {
    const size_t parts = unit_products(kind);
    rows_scales w;
    for (size_t i = 0; i < n; i++) {
        copy_scales(kind, &w, i, &to->kept->w, s->first + i);
    }
    const act_q8 *x = to->x + to->x_stride * (size_t)s->tok + s->first;
    const ivec *at = dots + s->row;
    fvec *acc = to->acc + s->tok;
    for (int32_t t = 0; t < s->n_tok; t++, x += to->x_stride, at++, acc++) {
        fvec sum = *acc;
        for (size_t i = 0; i < n; i++) {
            const ivec dot[2] = {at[parts * i * TILE_TOKENS],
                                 at[(parts * i + parts - 1) * TILE_TOKENS]};
            sum = add_dots(kind, dot, &w, i, x + unit_of(kind, i), sum);
        }
        *acc = sum;
    }
}

ALWAYS_INLINE void add_step(enum rows_kind kind, const tile_step *s, const ivec *dots,
                            const rows_tokens *to) {
    if (s->n == step_units(kind)) {
        add_units(kind, step_units(kind), s, dots, to);
    } else {
        add_units(kind, 1, s, dots, to);
    }
}

/* Each step's dots are under way while the step before is added. */
ALWAYS_INLINE void multiply_kept(enum rows_kind kind, const rows_tokens *to) {
    /* of each turn: [unit][half of it, with runs of 16][token of the group] */
    ivec dots[2 * 4 * 2 * TILE_TOKENS];
    const size_t turn_dots = step_units(kind) * unit_products(kind) * TILE_TOKENS;
    /* Intrinsics of gcc 12 do not say what tiles are loaded from. */
    __asm__ volatile("" ::"r"(to->kept), "r"(to->x) : "memory");
    tile_step now = step_at(kind, 0, 0, 0, to), next = now;
    dots_of_step(kind, &now, to, dots);
    for (; now.n > 0; now = next) {
        if (next_step(kind, &next, to)) {
            dots_of_step(kind, &next, to, dots + next.turn * turn_dots);
        } else {
            next.n = 0;
        }
        add_step(kind, &now, dots + now.turn * turn_dots, to);
    }
    to->kept->n = 0;
}

#endif
