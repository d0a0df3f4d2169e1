/* Private to kernels/: matrix products of quantised weights with act_q8, a template for the AVX2
 * and AVX-512 files. The includer defines, before including this:
 *   INT8_PREFILL_ROWS        rows side by side with eight tokens
 *   bias_of(w, kind)         weight bytes as dot_of wants them
 *   fix_of(a, kind)          what undoes the bias for a block of activations
 *   set_scales(out, d, meta, half)  the scales of a Q2 block's half
 *   dot_of(w, a, fix, kind)  eight int32 partial dot products of 32 weights and activations
 *
 * For each output element, each block adds dot * (d_weight * d_act) to eight float lanes by one
 * fused multiply-add, in order of blocks; tiles only choose which elements run side by side.
 */
#ifndef SMOE_KERNELS_X86_INT8_H
#define SMOE_KERNELS_X86_INT8_H

#include "kernels/x86_common.h"

enum { INT8_ROWS = 4, INT8_TOKENS = 8 }; /* at most, in one tile */

/* Both halves of a Q2 block; other types fill only out[0]. */
ALWAYS_INLINE void unpack(enum int8_kind kind, const uint8_t *p, weights_32 *out) {
    if (kind == KIND_Q8) {
        const block_q8 *b = (const block_q8 *)p;
        out[0].scale = scale_f16(&b->d);
        out[0].w = bias_of(load_256(b->q), KIND_Q8);
    } else if (kind == KIND_Q4) {
        const block_q4 *b = (const block_q4 *)p;
        out[0].scale = scale_f16(&b->d);
        out[0].w = q4_values(b, bias_of(q4_codebook(), KIND_Q4));
    } else {
        const block_q2 *b = (const block_q2 *)p;
        __m256 d = scale_f16(&b->d);
        q2_meta m = q2_read_meta(b);
        for (int half = 0; half < 2; half++) {
            set_scales(&out[half], d, &m, half);
            out[half].w = q2_values(b, &m, half, bias_of(q2_codebooks(), KIND_Q2));
        }
    }
}

/* One block of n_row rows against its activations of n_tok tokens. */
ALWAYS_INLINE void add_block(enum int8_kind kind, int n_row, int n_tok, const uint8_t *const *row,
                             size_t offset, const act_q8 *const *x, size_t first,
                             __m256 acc[INT8_ROWS][INT8_TOKENS]) {
    weights_32 w[INT8_ROWS][2];
    for (int r = 0; r < n_row; r++) {
        unpack(kind, row[r] + offset, w[r]);
    }
    for (int half = 0; half < (kind == KIND_Q2 ? 2 : 1); half++) {
        for (int t = 0; t < n_tok; t++) {
            const act_q8 *block = x[t] + first + half;
            __m256i a = load_256(block->q);
            __m256i fix = fix_of(a, kind);
            __m256 d = _mm256_broadcast_ss(&block->d);
            for (int r = 0; r < n_row; r++) {
                __m256 dot = _mm256_cvtepi32_ps(dot_of(&w[r][half], a, fix, kind));
                __m256 scale = _mm256_mul_ps(w[r][half].scale, d);
                acc[r][t] = _mm256_fmadd_ps(dot, scale, acc[r][t]);
            }
        }
    }
}

/* n_row at most INT8_ROWS and n_tok at most INT8_TOKENS, both constants where this is inlined. */
ALWAYS_INLINE void int8_tile(enum int8_kind kind, int n_row, int n_tok, float *y, size_t y_stride,
                             const uint8_t *w, size_t w_row_bytes, int32_t n_block, const act_q8 *x,
                             size_t x_stride) {
    const size_t block_bytes = kind == KIND_Q8   ? sizeof(block_q8)
                               : kind == KIND_Q4 ? sizeof(block_q4)
                                                 : sizeof(block_q2);
    const size_t act_per_block = kind == KIND_Q2 ? 2 : 1;
    const uint8_t *row[INT8_ROWS];
    const act_q8 *act[INT8_TOKENS];
    __m256 acc[INT8_ROWS][INT8_TOKENS];
    for (int r = 0; r < n_row; r++) {
        row[r] = w + w_row_bytes * (size_t)r;
        for (int t = 0; t < n_tok; t++) {
            acc[r][t] = _mm256_setzero_ps();
            act[t] = x + x_stride * (size_t)t;
        }
    }
    const uint8_t *next = w + w_row_bytes * (size_t)n_row;
    for (size_t b = 0; b < (size_t)n_block; b++) {
        /* Rows of 1 to 4 KiB end before the hardware has found its stride. */
        for (int r = 0; r < n_row && n_tok == 1; r++, next += block_bytes) {
            _mm_prefetch((const char *)next, _MM_HINT_T0);
        }
        add_block(kind, n_row, n_tok, row, b * block_bytes, act, b * act_per_block, acc);
    }
    for (int r = 0; r < n_row; r++) {
        for (int t = 0; t < n_tok; t++) {
            y[(size_t)t * y_stride + (size_t)r] = sum_lanes(acc[r][t]);
        }
    }
}

typedef void int8_tile_fn(float *y, size_t y_stride, const uint8_t *w, size_t w_row_bytes,
                          int32_t n_block, const act_q8 *x, size_t x_stride);

/* Tiles of n_tok tokens: with n_row rows, and with one for the rows left over. */
typedef struct int8_tiles {
    int32_t n_tok;
    int32_t n_row;
    int8_tile_fn *rows;
    int8_tile_fn *row;
} int8_tiles;

static void mm_int8(const int8_tiles *tiles, float *y, size_t y_stride, const uint8_t *w,
                    size_t w_row_bytes, int32_t n_row, int32_t n_block, const act_q8 *x,
                    size_t x_stride, int32_t n_tok) {
    while (n_tok > 0) {
        while (n_tok < tiles->n_tok) {
            tiles++;
        }
        int32_t r = 0;
        for (; r + tiles->n_row <= n_row; r += tiles->n_row) {
            tiles->rows(y + r, y_stride, w + w_row_bytes * (size_t)r, w_row_bytes, n_block, x,
                        x_stride);
        }
        for (; r < n_row; r++) {
            tiles->row(y + r, y_stride, w + w_row_bytes * (size_t)r, w_row_bytes, n_block, x,
                       x_stride);
        }
        y += y_stride * (size_t)tiles->n_tok;
        x += x_stride * (size_t)tiles->n_tok;
        n_tok -= tiles->n_tok;
    }
}

#define INT8_TILE(name, kind, n_row, n_tok)                                                        \
    static __attribute__((noinline)) void name(float *y, size_t y_stride, const uint8_t *w,        \
                                               size_t w_row_bytes, int32_t n_block,                \
                                               const act_q8 *x, size_t x_stride) {                 \
        int8_tile(kind, n_row, n_tok, y, y_stride, w, w_row_bytes, n_block, x, x_stride);          \
    }
#define MM_Q8(type, kind, weights)                                                                 \
    INT8_TILE(type##_full, kind, INT8_PREFILL_ROWS, INT8_TOKENS)                                   \
    INT8_TILE(type##_1x8, kind, 1, INT8_TOKENS)                                                    \
    INT8_TILE(type##_2x4, kind, 2, 4)                                                              \
    INT8_TILE(type##_1x4, kind, 1, 4)                                                              \
    INT8_TILE(type##_2x2, kind, 2, 2)                                                              \
    INT8_TILE(type##_1x2, kind, 1, 2)                                                              \
    INT8_TILE(type##_4x1, kind, 4, 1)                                                              \
    INT8_TILE(type##_1x1, kind, 1, 1)                                                              \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        static const int8_tiles tiles[] = {                                                        \
            {INT8_TOKENS, INT8_PREFILL_ROWS, type##_full, type##_1x8},                             \
            {4, 2, type##_2x4, type##_1x4},                                                        \
            {2, 2, type##_2x2, type##_1x2},                                                        \
            {1, 4, type##_4x1, type##_1x1},                                                        \
        };                                                                                         \
        mm_int8(tiles, y, y_stride, w, w_row_bytes, n_row, (n_col + (weights)-1) / (weights), x,   \
                x_stride, n_tok);                                                                  \
    }
MM_Q8(q8, KIND_Q8, 32)
MM_Q8(q4, KIND_Q4, 32)
MM_Q8(q2, KIND_Q2, 64)

#endif
