/* Block types for ASIMD with dot products (ARMv8.2 and on): products with act_q8, four rows side
 * by side, one in each lane; rows of floats; and products of these. Called only where the CPU has
 * them.
 *
 * 256 columns of eight rows are unpacked once into tiles that stay in L1, then multiplied with
 * every token; for one token alone the codes stay in registers. sdot multiplies the four codes of
 * each lane by one dword of activations, so nothing is ever summed across lanes: an output element
 * is
 *     for each 32 columns in order: acc = fma(dot, scale * d, acc), then acc = fma(min, d_sum, acc)
 * or with scales for each 16
 *     acc = fma(fma(dot1, scale1, dot0 * scale0) and its minima, d, acc)
 * whatever the token's and the row's company.
 */
#if defined(__aarch64__)

#include "kernels/ggml_impl.h"

/* gcc's scheduling ahead of register allocation starts so much of a block at once that a third of
 * what it then does is to move registers to the stack and back. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")
#endif

#include "kernels/neon_rows_unpack.h"

/* Quads of rows whose codes of a unit, with the sums of TILE_TOKENS tokens, fit 32 registers. */
enum { TILE_QUADS = 2, TILE_ROWS = TILE_QUADS * QUAD_ROWS, TILE_TOKENS = 4 };

/* Tokens for which a tile is unpacked once: their activations of 2,048 columns take 260 KiB. */
enum { CHUNK_TOKENS = 64 };

/* ---- sums */

/* d, d_sum and fix of 32 activations. */
ALWAYS_INLINE float32x4_t act_head(const act_q8 *x) {
    return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)x));
}

/* What the integer sums of a unit add to acc. */
ALWAYS_INLINE float32x4_t add_dots(enum rows_form form, const int32x4_t *dot,
                                   const float32x4_t *scale, const float32x4_t *min,
                                   float32x4_t head, float32x4_t acc) {
    if (form_runs(form) == 1) {
        acc = vfmaq_f32(acc, vcvtq_f32_s32(dot[0]), vmulq_laneq_f32(scale[0], head, 0));
        return form_has_min(form) ? vfmaq_laneq_f32(acc, min[0], head, 1) : acc;
    }
    float32x4_t sum = vmulq_f32(vcvtq_f32_s32(dot[0]), scale[0]);
    sum = vfmaq_f32(sum, vcvtq_f32_s32(dot[1]), scale[1]);
    if (form_has_min(form)) { /* fix / 128 is minus the sum of a run */
        float32x4_t minus = vcvtq_n_f32_s32(vreinterpretq_s32_f32(head), 7);
        sum = vfmsq_laneq_f32(sum, min[0], minus, 2);
        sum = vfmsq_laneq_f32(sum, min[1], minus, 3);
    }
    return vfmaq_laneq_f32(acc, sum, head, 0);
}

/* Unit u of the tiles of n_quad quads against n_tok tokens, both constants where it is inlined. */
ALWAYS_INLINE void add_unit(enum rows_form form, int n_quad, int n_tok, const quad_tile *w,
                            size_t u, const act_q8 *x, size_t x_stride,
                            float32x4_t acc[TILE_TOKENS][TILE_QUADS]) {
    const size_t runs = form_runs(form);
    int8x16_t code[TILE_QUADS][8];
    for (int q = 0; q < n_quad; q++) {
        for (int k = 0; k < 8; k++) {
            code[q][k] = w[q].code[u][k];
        }
    }
    for (int t = 0; t < n_tok; t++, x += x_stride) {
        int8x16_t first = vld1q_s8(x->q), second = vld1q_s8(x->q + 16);
        float32x4_t head = act_head(x);
        for (int q = 0; q < n_quad; q++) {
            int32x4_t dot[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
            dot[0] = dot_16(dot[0], code[q], first);
            dot[runs - 1] = dot_16(dot[runs - 1], code[q] + 4, second);
            acc[t][q] =
                add_dots(form, dot, w[q].scale + u * runs, w[q].min + u * runs, head, acc[t][q]);
        }
    }
}

/* Tiles against n_tok tokens, whose sums are at sum. */
ALWAYS_INLINE void add_tile(enum rows_form form, int n_quad, int n_tok, const quad_tile *w,
                            size_t n_unit, const act_q8 *x, size_t x_stride,
                            float32x4_t (*sum)[TILE_QUADS]) {
    float32x4_t acc[TILE_TOKENS][TILE_QUADS];
    for (int t = 0; t < n_tok; t++) {
        for (int q = 0; q < n_quad; q++) {
            acc[t][q] = sum[t][q];
        }
    }
    for (size_t u = 0; u < n_unit; u++) {
        add_unit(form, n_quad, n_tok, w, u, x + u, x_stride, acc);
    }
    for (int t = 0; t < n_tok; t++) {
        for (int q = 0; q < n_quad; q++) {
            sum[t][q] = acc[t][q];
        }
    }
}

ALWAYS_INLINE void add_tokens(enum rows_form form, int n_quad, const quad_tile *w, size_t n_unit,
                              const act_q8 *x, size_t x_stride, int32_t n_tok,
                              float32x4_t (*sum)[TILE_QUADS]) {
    for (; n_tok >= TILE_TOKENS; n_tok -= TILE_TOKENS, sum += TILE_TOKENS) {
        add_tile(form, n_quad, TILE_TOKENS, w, n_unit, x, x_stride, sum);
        x += x_stride * TILE_TOKENS;
    }
    for (; n_tok > 0; n_tok--, sum++, x += x_stride) {
        add_tile(form, n_quad, 1, w, n_unit, x, x_stride, sum);
    }
}

/* Types of one form share what follows unpacking. */
typedef void add_tokens_fn(const quad_tile *w, size_t n_unit, const act_q8 *x, size_t x_stride,
                           int32_t n_tok, float32x4_t (*sum)[TILE_QUADS]);

#define ADD_TOKENS(name, form, n_quad)                                                             \
    static __attribute__((noinline)) void name(const quad_tile *w, size_t n_unit, const act_q8 *x, \
                                               size_t x_stride, int32_t n_tok,                     \
                                               float32x4_t(*sum)[TILE_QUADS]) {                    \
        add_tokens(form, n_quad, w, n_unit, x, x_stride, n_tok, sum);                              \
    }
ADD_TOKENS(add_unit_1, FORM_UNIT, 1)
ADD_TOKENS(add_unit_2, FORM_UNIT, 2)
ADD_TOKENS(add_unit_min_1, FORM_UNIT_MIN, 1)
ADD_TOKENS(add_unit_min_2, FORM_UNIT_MIN, 2)
ADD_TOKENS(add_runs_1, FORM_RUNS, 1)
ADD_TOKENS(add_runs_2, FORM_RUNS, 2)
ADD_TOKENS(add_runs_min_1, FORM_RUNS_MIN, 1)
ADD_TOKENS(add_runs_min_2, FORM_RUNS_MIN, 2)

static add_tokens_fn *const add_forms[][TILE_QUADS] = {
    [FORM_UNIT] = {add_unit_1, add_unit_2},
    [FORM_UNIT_MIN] = {add_unit_min_1, add_unit_min_2},
    [FORM_RUNS] = {add_runs_1, add_runs_2},
    [FORM_RUNS_MIN] = {add_runs_min_1, add_runs_min_2},
};

/* ---- one type */

ALWAYS_INLINE void next_block(rows_at *at, size_t bytes) {
    for (int r = 0; r < QUAD_ROWS; r++) {
        at->row[r] += bytes;
    }
}

/* The blocks of n_unit units. */
ALWAYS_INLINE void unpack_tile(enum rows_kind kind, size_t block_units, size_t block_bytes,
                               rows_at at, size_t n_unit, quad_tile *tile) {
    rows_sink to;
    to.tile = tile;
    to.x = NULL;
    for (to.first_unit = 0; to.first_unit < n_unit; to.first_unit += block_units) {
        unpack_block(kind, &at, &to);
        next_block(&at, block_bytes);
    }
}

/* One block against one token. */
ALWAYS_INLINE float32x4_t add_block(enum rows_kind kind, size_t n_unit, const rows_at *at,
                                    const act_q8 *x, float32x4_t acc) {
    const enum rows_form form = rows_form_of(kind);
    const size_t runs = form_runs(form);
    rows_sink to;
    to.tile = NULL;
    to.first_unit = 0;
    to.x = x;
    for (size_t i = 0; i < n_unit * runs; i++) {
        to.dot[i] = vdupq_n_s32(0);
    }
    unpack_block(kind, at, &to);
    for (size_t u = 0; u < n_unit; u++) {
        acc = add_dots(form, to.dot + u * runs, to.scale + u * runs, to.min + u * runs,
                       act_head(x + u), acc);
    }
    return acc;
}

typedef void unpack_tile_fn(const rows_at *at, size_t n_unit, quad_tile *tile);
typedef float32x4_t add_blocks_fn(rows_at *at, size_t n_block, const act_q8 *x);

typedef struct rows_type {
    enum rows_form form;
    bool adds_min; /* when dequantised, a minimum or zero: ggml's types, whose zeros are then +0 */
    uint32_t block_bytes;
    uint32_t block_units;
    unpack_tile_fn *unpack;
    add_blocks_fn *single; /* whole blocks of four rows against one token; moves on */
} rows_type;

/* The first of up to n rows from w on; the others repeat the last. */
static rows_at rows_from(const uint8_t *w, size_t w_row_bytes, int32_t n) {
    rows_at at;
    for (int32_t r = 0; r < QUAD_ROWS; r++) {
        at.row[r] = w + w_row_bytes * (size_t)(r < n ? r : n - 1);
    }
    return at;
}

static void store_rows(float *y, float32x4_t v, int32_t n) {
    if (n >= QUAD_ROWS) {
        vst1q_f32(y, v);
    } else {
        store_f32_part(y, v, n);
    }
}

/* Up to four rows against one token. */
static void rows_single(const rows_type *type, float *y, const uint8_t *w, size_t w_row_bytes,
                        int32_t n_row, size_t n_unit, const act_q8 *x) {
    rows_at at = rows_from(w, w_row_bytes, n_row);
    size_t n_block = n_unit / type->block_units, done = n_block * type->block_units;
    float32x4_t sum[1][TILE_QUADS];
    sum[0][0] = type->single(&at, n_block, x);
    if (done < n_unit) {
        quad_tile tile;
        type->unpack(&at, n_unit - done, &tile);
        add_forms[type->form][0](&tile, n_unit - done, x + done, 0, 1, sum);
    }
    store_rows(y, sum[0][0], n_row);
}

/* Up to TILE_ROWS rows against up to CHUNK_TOKENS tokens. */
static void rows_chunk(const rows_type *type, float *y, size_t y_stride, const uint8_t *w,
                       size_t w_row_bytes, int32_t n_row, size_t n_unit, const act_q8 *x,
                       size_t x_stride, int32_t n_tok) {
    const int n_quad = n_row > QUAD_ROWS ? 2 : 1;
    float32x4_t sum[CHUNK_TOKENS][TILE_QUADS];
    quad_tile tile[TILE_QUADS];
    for (int32_t t = 0; t < n_tok; t++) {
        sum[t][0] = sum[t][1] = vdupq_n_f32(0);
    }
    for (size_t u = 0; u < n_unit; u += TILE_UNITS) {
        size_t n = n_unit - u < TILE_UNITS ? n_unit - u : TILE_UNITS;
        const uint8_t *from = w + u / type->block_units * type->block_bytes;
        for (int32_t q = 0; q < n_quad; q++) {
            rows_at at = rows_from(from + w_row_bytes * QUAD_ROWS * (size_t)q, w_row_bytes,
                                   n_row - QUAD_ROWS * q);
            type->unpack(&at, n, &tile[q]);
        }
        add_forms[type->form][n_quad - 1](tile, n, x + u, x_stride, n_tok, sum);
    }
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t q = 0; q < n_quad; q++) {
            store_rows(y + y_stride * (size_t)t + QUAD_ROWS * q, sum[t][q], n_row - QUAD_ROWS * q);
        }
    }
}

static void mm_rows(const rows_type *type, float *y, size_t y_stride, const uint8_t *w,
                    size_t w_row_bytes, int32_t n_row, int32_t n_col, const act_q8 *x,
                    size_t x_stride, int32_t n_tok) {
    const size_t n_unit = ((size_t)n_col + 31) / 32;
    while (n_tok > 0) {
        const int32_t n = n_tok < CHUNK_TOKENS ? n_tok : CHUNK_TOKENS;
        const int32_t step = n == 1 ? QUAD_ROWS : TILE_ROWS;
        for (int32_t r = 0; r < n_row; r += step) {
            int32_t rows = n_row - r < step ? n_row - r : step;
            const uint8_t *from = w + w_row_bytes * (size_t)r;
            if (n == 1) {
                rows_single(type, y + r, from, w_row_bytes, rows, n_unit, x);
            } else {
                rows_chunk(type, y + r, y_stride, from, w_row_bytes, rows, n_unit, x, x_stride, n);
            }
        }
        y += y_stride * (size_t)n;
        x += x_stride * (size_t)n;
        n_tok -= n;
    }
}

/* ---- dequantising: a tile whose four rows are all the same */

/* 16 columns from four vectors of the same dwords in all lanes. */
static void dequant_run(const int8x16_t code[4], float32x4_t scale, const float32x4_t *min,
                        float *out) {
    int32x4_t ab = vtrn1q_s32(vreinterpretq_s32_s8(code[0]), vreinterpretq_s32_s8(code[1]));
    int32x4_t cd = vtrn1q_s32(vreinterpretq_s32_s8(code[2]), vreinterpretq_s32_s8(code[3]));
    int8x16_t q =
        vreinterpretq_s8_s64(vtrn1q_s64(vreinterpretq_s64_s32(ab), vreinterpretq_s64_s32(cd)));
    int16x8_t half[2] = {vmovl_s8(vget_low_s8(q)), vmovl_high_s8(q)};
    for (int i = 0; i < 4; i++) {
        int16x8_t h = half[i / 2];
        float32x4_t v = vcvtq_f32_s32(i % 2 ? vmovl_high_s16(h) : vmovl_s16(vget_low_s16(h)));
        vst1q_f32(out + 4 * i, min ? vfmaq_f32(*min, v, scale) : vmulq_f32(v, scale));
    }
}

static void dequant_rows(const rows_type *type, const uint8_t *w, int32_t n_col, float *out) {
    const size_t tile_bytes = TILE_UNITS / type->block_units * type->block_bytes;
    const size_t runs = form_runs(type->form);
    const float32x4_t zero = vdupq_n_f32(0);
    for (int32_t c = 0; c < n_col; c += TILE_COLS, w += tile_bytes) {
        quad_tile tile;
        float part[TILE_COLS];
        const int32_t n = n_col - c < TILE_COLS ? n_col - c : TILE_COLS;
        float *to = n == TILE_COLS ? out + c : part;
        const size_t n_unit = ((size_t)n + 31) / 32;
        rows_at at = rows_from(w, 0, QUAD_ROWS);
        type->unpack(&at, n_unit, &tile);
        for (size_t i = 0; i < 2 * n_unit; i++) {
            size_t s = runs == 2 ? i : i / 2;
            const float32x4_t *min = form_has_min(type->form) ? &tile.min[s] : &zero;
            dequant_run(tile.code[i / 2] + 4 * (i % 2), tile.scale[s], type->adds_min ? min : NULL,
                        to + 16 * i);
        }
        if (to == part) {
            memcpy(out + c, part, (size_t)n * sizeof *out);
        }
    }
}

/* ---- the types */

#define ROWS_KERNELS(type, slot, units, form)                                                      \
    static __attribute__((noinline)) void unpack_tile_##type(const rows_at *at, size_t n_unit,     \
                                                             quad_tile *tile) {                    \
        unpack_tile(ROWS_##type, units, sizeof(block_##type), *at, n_unit, tile);                  \
    }                                                                                              \
    static __attribute__((noinline))                                                               \
    float32x4_t single_##type(rows_at *at, size_t n_block, const act_q8 *x) {                      \
        float32x4_t acc = vdupq_n_f32(0);                                                          \
        for (size_t b = 0; b < n_block; b++, x += (units)) {                                       \
            acc = add_block(ROWS_##type, units, at, x, acc);                                       \
            next_block(at, sizeof(block_##type));                                                  \
        }                                                                                          \
        return acc;                                                                                \
    }                                                                                              \
    static const rows_type rows_##type = {form,  ROWS_##type > ROWS_q2, sizeof(block_##type),      \
                                          units, unpack_tile_##type,    single_##type};            \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        mm_rows(&rows_##type, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);      \
    }                                                                                              \
    static void dequant_##type(const void *w, int32_t n_col, float *out) {                         \
        dequant_rows(&rows_##type, w, n_col, out);                                                 \
    }                                                                                              \
    static void mm_f32_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok) {                                                     \
        mm_dequant_neon(dequant_##type, MM_CHUNK / 32 / (units) * sizeof(block_##type), y,         \
                        y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);               \
    }
ROWS_TYPES(ROWS_KERNELS)

#define ROWS_FILL(type, slot, units, form)                                                         \
    k->mm_q8[slot] = mm_q8_##type;                                                                 \
    k->mm_f32[slot] = mm_f32_##type;                                                               \
    k->dequant_row[slot] = dequant_##type;

void kernels_fill_rows_neon(kernels *k) {
    ROWS_TYPES(ROWS_FILL)
}

#endif
