/* Kernels of the ggml block types for AVX2, FMA and F16C, but integer products of the types that
 * have them in x86_rows.h. Compiled for them; called only where the CPU has them.
 *
 * mm_q8: for each output element, each 32 weights add dot * (scale * d_act) to eight float lanes by
 * one fused multiply-add, and their minimum times the sum of activations by another, in order of
 * columns; tiles only choose which elements run side by side.
 */
#if defined(__x86_64__)

#include "kernels/x86_ggml_unpack.h"

enum { GGML_ROWS = 4, GGML_TOKENS = 8, MAX_UNITS = 8 };

/* Unrolling loops over a block's units would make code several times as large and no faster. */
#if defined(__clang__)
#define ROLLED _Pragma("nounroll")
#else
#define ROLLED _Pragma("GCC unroll 1")
#endif

/* ---- dequantising rows */

ALWAYS_INLINE void dequant_unit(enum ggml_kind kind, const ggml_unit *unit, float *out) {
    __m256i code = ggml_signed(kind) ? _mm256_sign_epi8(unit->u, unit->sign)
                                     : _mm256_sub_epi8(unit->u, _mm256_set1_epi8(ggml_bias(kind)));
    for (int i = 0; i < 4; i++) {
        __m128i half = i < 2 ? _mm256_castsi256_si128(code) : _mm256_extracti128_si256(code, 1);
        __m256 eight =
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(i % 2 ? _mm_unpackhi_epi64(half, half) : half));
        __m256 scale = i < 2 ? _mm256_permute2f128_ps(unit->scale, unit->scale, 0x00)
                             : _mm256_permute2f128_ps(unit->scale, unit->scale, 0x11);
        __m256 min = i < 2 ? _mm256_permute2f128_ps(unit->min, unit->min, 0x00)
                           : _mm256_permute2f128_ps(unit->min, unit->min, 0x11);
        _mm256_storeu_ps(out + 8 * i, _mm256_add_ps(_mm256_mul_ps(eight, scale), min));
    }
}

ALWAYS_INLINE void dequant_block(enum ggml_kind kind, size_t n_unit, const uint8_t *p, float *out) {
    ggml_head head;
    read_head(kind, p, &head);
    ROLLED
    for (size_t j = 0; j < n_unit; j++) {
        ggml_unit unit;
        read_unit(kind, p, j, &head, &unit);
        dequant_unit(kind, &unit, out + 32 * j);
    }
}

ALWAYS_INLINE void dequant_ggml(enum ggml_kind kind, size_t n_unit, size_t block_bytes,
                                const void *w, int32_t n_col, float *out) {
    const uint8_t *p = w;
    const int32_t elems = 32 * (int32_t)n_unit;
    int32_t c = 0;
    for (; c + elems <= n_col; c += elems, p += block_bytes) {
        dequant_block(kind, n_unit, p, out + c);
    }
    if (c < n_col) {
        float last[256];
        dequant_block(kind, n_unit, p, last);
        memcpy(out + c, last, (size_t)(n_col - c) * sizeof *out);
    }
}

/* ---- products with quantised activations */

/* What 32 activations give to every row. */
typedef struct ggml_act {
    __m256i q;
    __m256i fix; /* the bias times q, in pairs */
    __m256 d;
    __m256 sum; /* d times sums of four */
} ggml_act;

ALWAYS_INLINE ggml_act read_act(enum ggml_kind kind, const act_q8 *x) {
    ggml_act a;
    a.q = load_256(x->q);
    a.d = _mm256_broadcast_ss(&x->d);
    a.fix = _mm256_maddubs_epi16(_mm256_set1_epi8(ggml_bias(kind)), a.q);
    __m256i ones = _mm256_maddubs_epi16(_mm256_set1_epi8(1), a.q);
    __m256i sums = _mm256_madd_epi16(ones, _mm256_set1_epi16(1));
    a.sum = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), a.d);
    return a;
}

ALWAYS_INLINE __m256 add_unit(enum ggml_kind kind, const ggml_unit *w, const ggml_act *a,
                              __m256 acc) {
    __m256i pairs;
    if (ggml_signed(kind)) {
        pairs = _mm256_maddubs_epi16(w->u, _mm256_sign_epi8(a->q, w->sign));
    } else {
        pairs = _mm256_maddubs_epi16(w->u, a->q);
        pairs = ggml_bias(kind) ? _mm256_sub_epi16(pairs, a->fix) : pairs;
    }
    __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    acc = _mm256_fmadd_ps(dot, _mm256_mul_ps(w->scale, a->d), acc);
    return ggml_has_min(kind) ? _mm256_fmadd_ps(w->min, a->sum, acc) : acc;
}

/* 32 weights of n_row rows against their activations of n_tok tokens. */
ALWAYS_INLINE void add_units(enum ggml_kind kind, size_t j, int n_row, int n_tok, const uint8_t *w,
                             size_t w_row_bytes, const ggml_head *head, const act_q8 *x,
                             size_t x_stride, __m256 acc[GGML_ROWS][GGML_TOKENS]) {
    ggml_unit unit[GGML_ROWS];
    for (int r = 0; r < n_row; r++) {
        read_unit(kind, w + w_row_bytes * (size_t)r, j, &head[r], &unit[r]);
    }
    for (int t = 0; t < n_tok; t++) {
        ggml_act a = read_act(kind, x + x_stride * (size_t)t + j);
        for (int r = 0; r < n_row; r++) {
            acc[r][t] = add_unit(kind, &unit[r], &a, acc[r][t]);
        }
    }
}

/* One block of n_row rows against its activations of n_tok tokens. */
ALWAYS_INLINE void add_ggml_block(enum ggml_kind kind, size_t n_unit, int n_row, int n_tok,
                                  const uint8_t *w, size_t w_row_bytes, const act_q8 *x,
                                  size_t x_stride, __m256 acc[GGML_ROWS][GGML_TOKENS]) {
    ggml_head head[GGML_ROWS];
    for (int r = 0; r < n_row; r++) {
        read_head(kind, w + w_row_bytes * (size_t)r, &head[r]);
    }
    /* Two at a time where unpacking weighs most: one of them then needs no shift in many types. */
    const size_t step = n_unit > 1 && n_tok == 1 ? 2 : 1;
    ROLLED
    for (size_t j = 0; j < n_unit; j += step) {
        add_units(kind, j, n_row, n_tok, w, w_row_bytes, head, x, x_stride, acc);
        if (step == 2) {
            add_units(kind, j + 1, n_row, n_tok, w, w_row_bytes, head, x, x_stride, acc);
        }
    }
}

/* What is left of n_tok rows of activations, n blocks, with zeros behind, for a last block of
 * weights that reaches beyond them. */
static void pad_acts(const act_q8 *x, size_t x_stride, size_t n, int n_tok, act_q8 *out) {
    memset(out, 0, (size_t)n_tok * MAX_UNITS * sizeof *out);
    for (int t = 0; t < n_tok; t++) {
        memcpy(out + t * MAX_UNITS, x + x_stride * (size_t)t, n * sizeof *x);
    }
}

/* n_row at most GGML_ROWS and n_tok at most GGML_TOKENS, both constants where this is inlined. */
ALWAYS_INLINE void ggml_tile(enum ggml_kind kind, size_t n_unit, size_t block_bytes, int n_row,
                             int n_tok, float *y, size_t y_stride, const uint8_t *w,
                             size_t w_row_bytes, int32_t n_col, const act_q8 *x, size_t x_stride) {
    __m256 acc[GGML_ROWS][GGML_TOKENS];
    for (int r = 0; r < n_row; r++) {
        for (int t = 0; t < n_tok; t++) {
            acc[r][t] = _mm256_setzero_ps();
        }
    }
    act_q8 last[GGML_TOKENS * MAX_UNITS];
    const uint8_t *next = w + w_row_bytes * (size_t)n_row;
    size_t n_block = ((size_t)n_col + 32 * n_unit - 1) / (32 * n_unit);
    size_t left = act_row_blocks(n_col);
    for (size_t b = 0; b < n_block; b++, left -= n_unit, w += block_bytes, x += n_unit) {
        /* Rows of 1 to 4 KiB end before the hardware has found its stride. */
        for (size_t i = 0; i < block_bytes * (size_t)n_row && n_tok == 1; i += 64) {
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
        }
        next += block_bytes * (size_t)n_row;
        if (n_unit > 2 && left < n_unit) {
            pad_acts(x, x_stride, left, n_tok, last);
            x = last;
            x_stride = MAX_UNITS;
        }
        add_ggml_block(kind, n_unit, n_row, n_tok, w, w_row_bytes, x, x_stride, acc);
    }
    for (int r = 0; r < n_row; r++) {
        for (int t = 0; t < n_tok; t++) {
            y[(size_t)t * y_stride + (size_t)r] = sum_lanes(acc[r][t]);
        }
    }
}

typedef void ggml_tile_fn(float *y, size_t y_stride, const uint8_t *w, size_t w_row_bytes,
                          int32_t n_col, const act_q8 *x, size_t x_stride);

/* Tiles of n_tok tokens: with n_row rows, and with one for the rows left over. */
typedef struct ggml_tiles {
    int32_t n_tok;
    int32_t n_row;
    ggml_tile_fn *rows;
    ggml_tile_fn *row;
} ggml_tiles;

static void mm_ggml(const ggml_tiles *tiles, float *y, size_t y_stride, const uint8_t *w,
                    size_t w_row_bytes, int32_t n_row, int32_t n_col, const act_q8 *x,
                    size_t x_stride, int32_t n_tok) {
    while (n_tok > 0) {
        while (n_tok < tiles->n_tok) {
            tiles++;
        }
        int32_t r = 0;
        for (; r + tiles->n_row <= n_row; r += tiles->n_row) {
            tiles->rows(y + r, y_stride, w + w_row_bytes * (size_t)r, w_row_bytes, n_col, x,
                        x_stride);
        }
        for (; r < n_row; r++) {
            tiles->row(y + r, y_stride, w + w_row_bytes * (size_t)r, w_row_bytes, n_col, x,
                       x_stride);
        }
        y += y_stride * (size_t)tiles->n_tok;
        x += x_stride * (size_t)tiles->n_tok;
        n_tok -= tiles->n_tok;
    }
}

#define GGML_TILE(name, type, elems, n_row, n_tok)                                                 \
    static __attribute__((noinline)) void name(float *y, size_t y_stride, const uint8_t *w,        \
                                               size_t w_row_bytes, int32_t n_col, const act_q8 *x, \
                                               size_t x_stride) {                                  \
        ggml_tile(GK_##type, (elems) / 32, sizeof(block_##type), n_row, n_tok, y, y_stride, w,     \
                  w_row_bytes, n_col, x, x_stride);                                                \
    }
#define GGML_FLOAT_KERNELS(type, slot, elems)                                                      \
    static void dequant_##type(const void *w, int32_t n_col, float *out) {                         \
        dequant_ggml(GK_##type, (elems) / 32, sizeof(block_##type), w, n_col, out);                \
    }                                                                                              \
    static void mm_f32_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok) {                                                     \
        mm_dequant_avx2(dequant_##type, MM_CHUNK / (elems) * sizeof(block_##type), y, y_stride, w, \
                        w_row_bytes, n_row, n_col, x, x_stride, n_tok);                            \
    }
#define GGML_INT8_KERNELS(type, slot, elems)                                                       \
    GGML_TILE(type##_1x8, type, elems, 1, GGML_TOKENS)                                             \
    GGML_TILE(type##_2x4, type, elems, 2, 4)                                                       \
    GGML_TILE(type##_1x4, type, elems, 1, 4)                                                       \
    GGML_TILE(type##_4x1, type, elems, GGML_ROWS, 1)                                               \
    GGML_TILE(type##_1x1, type, elems, 1, 1)                                                       \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        static const ggml_tiles tiles[] = {                                                        \
            {GGML_TOKENS, 1, type##_1x8, type##_1x8},                                              \
            {4, 2, type##_2x4, type##_1x4},                                                        \
            {1, GGML_ROWS, type##_4x1, type##_1x1},                                                \
        };                                                                                         \
        mm_ggml(tiles, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);             \
    }
GGML_TYPES(GGML_FLOAT_KERNELS)
GGML_OTHER_TYPES(GGML_INT8_KERNELS)

#define GGML_FILL_FLOAT(type, slot, elems)                                                         \
    k->dequant_row[slot] = dequant_##type;                                                         \
    k->mm_f32[slot] = mm_f32_##type;
#define GGML_FILL_INT8(type, slot, elems) k->mm_q8[slot] = mm_q8_##type;

void kernels_fill_ggml_avx2(kernels *k) {
    GGML_TYPES(GGML_FILL_FLOAT)
    GGML_OTHER_TYPES(GGML_FILL_INT8)
    kernels_share_q8_0(k);
}

#endif
