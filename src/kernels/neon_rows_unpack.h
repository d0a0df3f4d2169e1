/* Private to kernels/: how blocks of four rows become vectors with one row in each lane. Owns the
 * transposition and the unpacking of each type. All is inlined with the type a constant. Layouts:
 * formats/ggml_blocks.h and formats/dtype.h. Needs ASIMD with dot products.
 *
 * Blocks are unpacked where they lie in the file: 16 bytes of each row are read, and two rounds of
 * transposing make four vectors out of them that hold one dword of every row each. Four weights of
 * a row are then the bytes of its lane, as sdot wants them.
 *
 * Codes are signed. Where it saves work they are kept in the upper bits of their bytes, which makes
 * them a power of two too large and the scales as much too small; both stay exact.
 */
#ifndef SMOE_KERNELS_NEON_ROWS_UNPACK_H
#define SMOE_KERNELS_NEON_ROWS_UNPACK_H

#include <stddef.h>

#include "formats/ggml_blocks.h"
#include "kernels/kernels.h"
#include "kernels/neon_vector.h"

/* What scales and minima hold for: units of 32 weights, or runs of 16. */
enum rows_form { FORM_UNIT, FORM_UNIT_MIN, FORM_RUNS, FORM_RUNS_MIN };

/* X(type, slot, units of a block, form) */
#define ROWS_TYPES(X)                                                                              \
    X(q8, DT_Q8, 1, FORM_UNIT)                                                                     \
    X(q4, DT_Q4, 1, FORM_UNIT)                                                                     \
    X(q2, DT_Q2, 2, FORM_RUNS)                                                                     \
    X(q4_0, DT_Q4_0, 1, FORM_UNIT)                                                                 \
    X(q4_1, DT_Q4_1, 1, FORM_UNIT_MIN)                                                             \
    X(q5_0, DT_Q5_0, 1, FORM_UNIT)                                                                 \
    X(q5_1, DT_Q5_1, 1, FORM_UNIT_MIN)                                                             \
    X(q2_k, DT_Q2_K, 8, FORM_RUNS_MIN)                                                             \
    X(q3_k, DT_Q3_K, 8, FORM_RUNS)                                                                 \
    X(q4_k, DT_Q4_K, 8, FORM_UNIT_MIN)                                                             \
    X(q5_k, DT_Q5_K, 8, FORM_UNIT_MIN)                                                             \
    X(q6_k, DT_Q6_K, 8, FORM_RUNS)                                                                 \
    X(iq4_nl, DT_IQ4_NL, 1, FORM_UNIT)                                                             \
    X(iq4_xs, DT_IQ4_XS, 8, FORM_UNIT)                                                             \
    X(mxfp4, DT_MXFP4, 1, FORM_UNIT)

#define ROWS_KIND(type, slot, units, form) ROWS_##type,
enum rows_kind { ROWS_TYPES(ROWS_KIND) ROWS_KINDS };
#undef ROWS_KIND

/* Columns of one tile: eight units of 32, one block of the types with blocks of 256. */
enum { TILE_COLS = 256, TILE_UNITS = 8, QUAD_ROWS = 4 };

/* Weights of four rows: scale * code + min. code[u][k] holds columns 4 k .. 4 k + 3 of unit u.
 * Scales and minima are numbered by unit, or by run. */
typedef struct quad_tile {
    int8x16_t code[TILE_UNITS][8];
    float32x4_t scale[2 * TILE_UNITS];
    float32x4_t min[2 * TILE_UNITS];
} quad_tile;

/* Where an unpacked block goes: into a tile, as units first_unit and on, or straight into products
 * with one token, whose sums of units or runs dot collects. */
typedef struct rows_sink {
    quad_tile *tile; /* NULL: products */
    size_t first_unit;
    const act_q8 *x;
    int32x4_t dot[2 * TILE_UNITS];
    float32x4_t scale[2 * TILE_UNITS];
    float32x4_t min[2 * TILE_UNITS];
} rows_sink;

/* Where blocks of four rows begin; lanes without a row of their own repeat another. */
typedef struct rows_at {
    const uint8_t *row[QUAD_ROWS];
} rows_at;

ALWAYS_INLINE enum rows_form rows_form_of(enum rows_kind kind) {
#define ROWS_FORM(type, slot, units, form) form,
    static const uint8_t of[] = {ROWS_TYPES(ROWS_FORM)};
#undef ROWS_FORM
    return (enum rows_form)of[kind];
}

ALWAYS_INLINE size_t form_runs(enum rows_form form) {
    return form == FORM_RUNS || form == FORM_RUNS_MIN ? 2 : 1;
}

ALWAYS_INLINE bool form_has_min(enum rows_form form) {
    return form == FORM_UNIT_MIN || form == FORM_RUNS_MIN;
}

/* ---- sinks */

/* acc + codes of 16 columns * q[0..15], lane by lane. */
ALWAYS_INLINE int32x4_t dot_16(int32x4_t acc, const int8x16_t code[4], int8x16_t q) {
    acc = vdotq_laneq_s32(acc, code[0], q, 0);
    acc = vdotq_laneq_s32(acc, code[1], q, 1);
    acc = vdotq_laneq_s32(acc, code[2], q, 2);
    return vdotq_laneq_s32(acc, code[3], q, 3);
}

/* Half `half` of the block's unit u. */
ALWAYS_INLINE void put_codes(enum rows_kind kind, rows_sink *to, size_t u, size_t half,
                             const int8x16_t code[4]) {
    if (!to->tile) {
        size_t i = form_runs(rows_form_of(kind)) == 2 ? 2 * u + half : u;
        to->dot[i] = dot_16(to->dot[i], code, vld1q_s8(to->x[u].q + 16 * half));
        return;
    }
    for (size_t k = 0; k < 4; k++) {
        to->tile->code[to->first_unit + u][4 * half + k] = code[k];
    }
}

/* Of the block's unit or run i. */
ALWAYS_INLINE void put_scale(enum rows_kind kind, rows_sink *to, size_t i, float32x4_t scale) {
    if (to->tile) {
        to->tile->scale[to->first_unit * form_runs(rows_form_of(kind)) + i] = scale;
    } else {
        to->scale[i] = scale;
    }
}

ALWAYS_INLINE void put_min(enum rows_kind kind, rows_sink *to, size_t i, float32x4_t min) {
    if (to->tile) {
        to->tile->min[to->first_unit * form_runs(rows_form_of(kind)) + i] = min;
    } else {
        to->min[i] = min;
    }
}

/* ---- transposition */

/* out[k]: dword k of the 16 bytes at offset, of each row in order. */
ALWAYS_INLINE void rows_dwords(const rows_at *at, size_t offset, uint8x16_t out[4]) {
    uint32x4_t row[QUAD_ROWS];
    for (int r = 0; r < QUAD_ROWS; r++) {
        row[r] = vreinterpretq_u32_u8(vld1q_u8(at->row[r] + offset));
    }
    uint64x2_t ab_even = vreinterpretq_u64_u32(vtrn1q_u32(row[0], row[1]));
    uint64x2_t ab_odd = vreinterpretq_u64_u32(vtrn2q_u32(row[0], row[1]));
    uint64x2_t cd_even = vreinterpretq_u64_u32(vtrn1q_u32(row[2], row[3]));
    uint64x2_t cd_odd = vreinterpretq_u64_u32(vtrn2q_u32(row[2], row[3]));
    out[0] = vreinterpretq_u8_u64(vtrn1q_u64(ab_even, cd_even));
    out[1] = vreinterpretq_u8_u64(vtrn1q_u64(ab_odd, cd_odd));
    out[2] = vreinterpretq_u8_u64(vtrn2q_u64(ab_even, cd_even));
    out[3] = vreinterpretq_u8_u64(vtrn2q_u64(ab_odd, cd_odd));
}

/* The dword at offset of each row. */
ALWAYS_INLINE uint32x4_t rows_u32(const rows_at *at, size_t offset) {
    uint32_t v[QUAD_ROWS];
    for (int r = 0; r < QUAD_ROWS; r++) {
        memcpy(&v[r], at->row[r] + offset, sizeof v[r]);
    }
    uint32x4_t out = vdupq_n_u32(v[0]);
    out = vsetq_lane_u32(v[1], out, 1);
    out = vsetq_lane_u32(v[2], out, 2);
    return vsetq_lane_u32(v[3], out, 3);
}

/* The f16 at offset of each row. */
ALWAYS_INLINE float32x4_t rows_f16(const rows_at *at, size_t offset) {
    uint16_t v[QUAD_ROWS];
    for (int r = 0; r < QUAD_ROWS; r++) {
        memcpy(&v[r], at->row[r] + offset, sizeof v[r]);
    }
    uint16x4_t out = vdup_n_u16(v[0]);
    out = vset_lane_u16(v[1], out, 1);
    out = vset_lane_u16(v[2], out, 2);
    out = vset_lane_u16(v[3], out, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(out));
}

/* The byte at offset of each row. */
ALWAYS_INLINE uint32x4_t rows_u8(const rows_at *at, size_t offset) {
    uint32x4_t out = vdupq_n_u32(at->row[0][offset]);
    out = vsetq_lane_u32(at->row[1][offset], out, 1);
    out = vsetq_lane_u32(at->row[2][offset], out, 2);
    return vsetq_lane_u32(at->row[3][offset], out, 3);
}

/* ---- pieces of dwords */

ALWAYS_INLINE int8x16_t low_nibbles(uint8x16_t v) {
    return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
}

ALWAYS_INLINE int8x16_t high_nibbles(uint8x16_t v) {
    return vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
}

/* v >> n, or v << -n; n a constant where this is inlined. */
ALWAYS_INLINE uint8x16_t shift_down_8(uint8x16_t v, int n) {
    return n == 0 ? v : vshlq_u8(v, vdupq_n_s8((int8_t)-n));
}

ALWAYS_INLINE uint32x4_t shift_down_32(uint32x4_t v, int n) {
    return n == 0 ? v : vshlq_u32(v, vdupq_n_s32(-n));
}

/* Bits 0 .. n - 1 of each lane after shifting. */
ALWAYS_INLINE uint32x4_t bits_of(uint32x4_t v, int shift, uint32_t mask) {
    return vandq_u32(shift_down_32(v, shift), vdupq_n_u32(mask));
}

/* Byte k of each lane, as a float. */
ALWAYS_INLINE float32x4_t byte_as_float(uint8x16_t v, int k) {
    return vcvtq_f32_u32(bits_of(vreinterpretq_u32_u8(v), 8 * k, 255));
}

ALWAYS_INLINE float32x4_t signed_byte_as_float(uint8x16_t v, int k) {
    int32x4_t top = vshlq_s32(vreinterpretq_s32_u8(v), vdupq_n_s32(24 - 8 * k));
    return vcvtq_f32_s32(vshrq_n_s32(top, 24));
}

/* The low half of each lane, an f16. */
ALWAYS_INLINE float32x4_t low_f16(uint8x16_t v) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_u8(v))));
}

ALWAYS_INLINE float32x4_t high_f16(uint8x16_t v) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_u8(v), 16)));
}

/* ---- types with one scale for each 32 weights */

/* Unit u from nibbles 16 apart at offset, through a table. */
ALWAYS_INLINE void unit_by_table(enum rows_kind kind, const rows_at *at, size_t offset, size_t u,
                                 const int8_t *values, rows_sink *to) {
    const int8x16_t table = vld1q_s8(values);
    uint8x16_t q[4];
    int8x16_t low[4], high[4];
    rows_dwords(at, offset, q);
    for (int k = 0; k < 4; k++) {
        low[k] = vqtbl1q_s8(table, vandq_u8(q[k], vdupq_n_u8(15)));
        high[k] = vqtbl1q_s8(table, vshrq_n_u8(q[k], 4));
    }
    put_codes(kind, to, u, 0, low);
    put_codes(kind, to, u, 1, high);
}

/* 2^(e - 128) as in MXFP4_SCALE_BITS: the two least are subnormal. */
ALWAYS_INLINE float32x4_t e8m0_scale(uint32x4_t e) {
    uint32x4_t bits = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t tiny = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), tiny, bits));
}

ALWAYS_INLINE void unpack_q8(const rows_at *at, rows_sink *to) {
    put_scale(ROWS_q8, to, 0, rows_f16(at, 0));
    for (size_t half = 0; half < 2; half++) {
        uint8x16_t q[4];
        int8x16_t code[4];
        rows_dwords(at, offsetof(block_q8, q) + 16 * half, q);
        for (int k = 0; k < 4; k++) {
            code[k] = vreinterpretq_s8_u8(q[k]);
        }
        put_codes(ROWS_q8, to, 0, half, code);
    }
}

/* Codes sixteen times too large: the top bit of a nibble turned over is its sign. */
ALWAYS_INLINE void unpack_q4_0(const rows_at *at, rows_sink *to) {
    uint8x16_t q[4];
    int8x16_t low[4], high[4];
    put_scale(ROWS_q4_0, to, 0, vmulq_n_f32(rows_f16(at, 0), 0.0625f));
    rows_dwords(at, offsetof(block_q4_0, q), q);
    for (int k = 0; k < 4; k++) {
        q[k] = veorq_u8(q[k], vdupq_n_u8(0x88));
        low[k] = vreinterpretq_s8_u8(vshlq_n_u8(q[k], 4));
        high[k] = vreinterpretq_s8_u8(vandq_u8(q[k], vdupq_n_u8(0xf0)));
    }
    put_codes(ROWS_q4_0, to, 0, 0, low);
    put_codes(ROWS_q4_0, to, 0, 1, high);
}

ALWAYS_INLINE void unpack_q4_1(const rows_at *at, rows_sink *to) {
    uint8x16_t q[4];
    int8x16_t low[4], high[4];
    put_scale(ROWS_q4_1, to, 0, rows_f16(at, 0));
    put_min(ROWS_q4_1, to, 0, rows_f16(at, offsetof(block_q4_1, m)));
    rows_dwords(at, offsetof(block_q4_1, q), q);
    for (int k = 0; k < 4; k++) {
        low[k] = low_nibbles(q[k]);
        high[k] = high_nibbles(q[k]);
    }
    put_codes(ROWS_q4_1, to, 0, 0, low);
    put_codes(ROWS_q4_1, to, 0, 1, high);
}

/* 16 in byte i of each lane where bit shift + i of the row's dword is set, else 0. */
ALWAYS_INLINE uint8x16_t fifth_bits(uint32x4_t bits, int shift) {
    const uint8x16_t place = vreinterpretq_u8_u32(vdupq_n_u32(0x08040201));
    uint32x4_t four = vmulq_n_u32(bits_of(bits, shift, 15), 0x01010101);
    return vandq_u8(vtstq_u8(vreinterpretq_u8_u32(four), place), vdupq_n_u8(16));
}

/* Nibbles 16 apart at q with fifth bits at qh, and minus added. */
ALWAYS_INLINE void unpack_five(enum rows_kind kind, const rows_at *at, size_t qh_offset,
                               size_t q_offset, int8_t minus, rows_sink *to) {
    uint32x4_t bits = rows_u32(at, qh_offset);
    uint8x16_t q[4];
    int8x16_t low[4], high[4];
    rows_dwords(at, q_offset, q);
    for (int k = 0; k < 4; k++) {
        uint8x16_t first = vorrq_u8(vandq_u8(q[k], vdupq_n_u8(15)), fifth_bits(bits, 4 * k));
        uint8x16_t second = vorrq_u8(vshrq_n_u8(q[k], 4), fifth_bits(bits, 16 + 4 * k));
        low[k] = vaddq_s8(vreinterpretq_s8_u8(first), vdupq_n_s8(minus));
        high[k] = vaddq_s8(vreinterpretq_s8_u8(second), vdupq_n_s8(minus));
    }
    put_codes(kind, to, 0, 0, low);
    put_codes(kind, to, 0, 1, high);
}

ALWAYS_INLINE void unpack_q5_0(const rows_at *at, rows_sink *to) {
    put_scale(ROWS_q5_0, to, 0, rows_f16(at, 0));
    unpack_five(ROWS_q5_0, at, offsetof(block_q5_0, qh), offsetof(block_q5_0, q), -16, to);
}

ALWAYS_INLINE void unpack_q5_1(const rows_at *at, rows_sink *to) {
    put_scale(ROWS_q5_1, to, 0, rows_f16(at, 0));
    put_min(ROWS_q5_1, to, 0, rows_f16(at, offsetof(block_q5_1, m)));
    unpack_five(ROWS_q5_1, at, offsetof(block_q5_1, qh), offsetof(block_q5_1, q), 0, to);
}

/* ---- Q2 */

ALWAYS_INLINE void q2_run(int run, uint32x4_t meta, const uint8x16_t q[4], float32x4_t d,
                          rows_sink *to) {
    const int8x16_t table = vld1q_s8(Q2_CODEBOOK[0]);
    uint32x4_t s = vaddq_u32(bits_of(meta, 6 * run, 15), vdupq_n_u32(1));
    uint32x4_t book = vandq_u32(shift_down_32(meta, 6 * run + 2), vdupq_n_u32(12));
    uint8x16_t books = vreinterpretq_u8_u32(vmulq_n_u32(book, 0x01010101));
    int8x16_t code[4];
    put_scale(ROWS_q2, to, (size_t)run, vmulq_f32(d, vcvtq_f32_u32(s)));
    for (int k = 0; k < 4; k++) {
        uint8x16_t index = vandq_u8(shift_down_8(q[k], 2 * run), vdupq_n_u8(3));
        code[k] = vqtbl1q_s8(table, vorrq_u8(index, books));
    }
    put_codes(ROWS_q2, to, (size_t)run / 2, (size_t)run % 2, code);
}

ALWAYS_INLINE void unpack_q2(const rows_at *at, rows_sink *to) {
    float32x4_t d = rows_f16(at, 0);
    uint32x4_t meta = vshrq_n_u32(rows_u32(at, 1), 8); /* from d's upper byte on */
    uint8x16_t q[4];
    rows_dwords(at, offsetof(block_q2, q), q);
    q2_run(0, meta, q, d, to);
    q2_run(1, meta, q, d, to);
    q2_run(2, meta, q, d, to);
    q2_run(3, meta, q, d, to);
}

/* ---- types with blocks of 256. Steps are written out where loops might be left as they are: only
 * with constant indices do the sums of a sink stay in registers. Scales come last, so that they do
 * not take registers from the sums. */

/* Q4_K's and Q5_K's scales and minima. */
ALWAYS_INLINE void unpack_k_scales(enum rows_kind kind, const rows_at *at, rows_sink *to) {
    const uint8x16_t six = vdupq_n_u8(63), four = vdupq_n_u8(15), top = vdupq_n_u8(48);
    uint8x16_t head[4], s[2], m[2];
    rows_dwords(at, 0, head);
    float32x4_t d = low_f16(head[0]), dmin = vnegq_f32(high_f16(head[0]));
    s[0] = vandq_u8(head[1], six);
    m[0] = vandq_u8(head[2], six);
    s[1] = vorrq_u8(vandq_u8(vshrq_n_u8(head[1], 2), top), vandq_u8(head[3], four));
    m[1] = vorrq_u8(vandq_u8(vshrq_n_u8(head[2], 2), top), vshrq_n_u8(head[3], 4));
    for (int u = 0; u < TILE_UNITS; u++) {
        put_scale(kind, to, (size_t)u, vmulq_f32(byte_as_float(s[u / 4], u % 4), d));
        put_min(kind, to, (size_t)u, vmulq_f32(byte_as_float(m[u / 4], u % 4), dmin));
    }
}

/* Half `half` of units u and u + 1. */
ALWAYS_INLINE void q4_k_codes(const rows_at *at, size_t u, size_t half, rows_sink *to) {
    uint8x16_t q[4];
    int8x16_t low[4], high[4];
    rows_dwords(at, offsetof(block_q4_k, q) + 16 * u + 16 * half, q);
    for (int k = 0; k < 4; k++) {
        low[k] = low_nibbles(q[k]);
        high[k] = high_nibbles(q[k]);
    }
    put_codes(ROWS_q4_k, to, u, half, low);
    put_codes(ROWS_q4_k, to, u + 1, half, high);
}

ALWAYS_INLINE void unpack_q4_k(const rows_at *at, rows_sink *to) {
    q4_k_codes(at, 0, 0, to);
    q4_k_codes(at, 0, 1, to);
    q4_k_codes(at, 2, 0, to);
    q4_k_codes(at, 2, 1, to);
    q4_k_codes(at, 4, 0, to);
    q4_k_codes(at, 4, 1, to);
    q4_k_codes(at, 6, 0, to);
    q4_k_codes(at, 6, 1, to);
    unpack_k_scales(ROWS_q4_k, at, to);
}

/* Four bits of low and the fifth where bit j of high is. */
ALWAYS_INLINE int8x16_t q5_code(uint8x16_t low, uint8x16_t high, int j) {
    uint8x16_t q = vbslq_u8(vdupq_n_u8(15), low, shift_down_8(high, j - 4));
    return vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(31)));
}

/* Half `half` of units u and u + 1, whose fifth bits are in top. */
ALWAYS_INLINE void q5_k_codes(const rows_at *at, int u, size_t half, const uint8x16_t top[4],
                              rows_sink *to) {
    uint8x16_t q[4];
    int8x16_t low[4], high[4];
    rows_dwords(at, offsetof(block_q5_k, q) + 16 * (size_t)u + 16 * half, q);
    for (int k = 0; k < 4; k++) {
        low[k] = q5_code(q[k], top[k], u);
        high[k] = q5_code(vshrq_n_u8(q[k], 4), top[k], u + 1);
    }
    put_codes(ROWS_q5_k, to, (size_t)u, half, low);
    put_codes(ROWS_q5_k, to, (size_t)u + 1, half, high);
}

ALWAYS_INLINE void q5_k_half(const rows_at *at, size_t half, rows_sink *to) {
    uint8x16_t top[4];
    rows_dwords(at, offsetof(block_q5_k, qh) + 16 * half, top);
    q5_k_codes(at, 0, half, top, to);
    q5_k_codes(at, 2, half, top, to);
    q5_k_codes(at, 4, half, top, to);
    q5_k_codes(at, 6, half, top, to);
}

ALWAYS_INLINE void unpack_q5_k(const rows_at *at, rows_sink *to) {
    q5_k_half(at, 0, to);
    q5_k_half(at, 1, to);
    unpack_k_scales(ROWS_q5_k, at, to);
}

/* Half i of units 4 h + j and 4 h + 2 + j, whose upper bits are in top, the sign turned over: codes
 * four times too large. */
ALWAYS_INLINE void q6_k_codes(const rows_at *at, size_t h, size_t i, int j, const uint8x16_t top[4],
                              rows_sink *to) {
    uint8x16_t q[4];
    int8x16_t low[4], high[4];
    rows_dwords(at, 64 * h + 32 * (size_t)j + 16 * i, q);
    for (int k = 0; k < 4; k++) {
        uint8x16_t first = vshlq_n_u8(q[k], 2);
        uint8x16_t second = vandq_u8(vshrq_n_u8(q[k], 2), vdupq_n_u8(0x3c));
        low[k] = vreinterpretq_s8_u8(vsliq_n_u8(first, shift_down_8(top[k], 2 * j), 6));
        high[k] = vreinterpretq_s8_u8(vsliq_n_u8(second, shift_down_8(top[k], 2 * j + 4), 6));
    }
    put_codes(ROWS_q6_k, to, 4 * h + (size_t)j, i, low);
    put_codes(ROWS_q6_k, to, 4 * h + 2 + (size_t)j, i, high);
}

ALWAYS_INLINE void q6_k_quarter(const rows_at *at, size_t h, size_t i, rows_sink *to) {
    uint8x16_t top[4];
    rows_dwords(at, offsetof(block_q6_k, qh) + 32 * h + 16 * i, top);
    for (int k = 0; k < 4; k++) {
        top[k] = veorq_u8(top[k], vdupq_n_u8(0xaa));
    }
    q6_k_codes(at, h, i, 0, top, to);
    q6_k_codes(at, h, i, 1, top, to);
}

ALWAYS_INLINE void unpack_q6_k(const rows_at *at, rows_sink *to) {
    q6_k_quarter(at, 0, 0, to);
    q6_k_quarter(at, 0, 1, to);
    q6_k_quarter(at, 1, 0, to);
    q6_k_quarter(at, 1, 1, to);
    uint8x16_t s[4];
    float32x4_t d = vmulq_n_f32(rows_f16(at, offsetof(block_q6_k, d)), 0.25f);
    rows_dwords(at, offsetof(block_q6_k, scale), s);
    for (int i = 0; i < 2 * TILE_UNITS; i++) {
        put_scale(ROWS_q6_k, to, (size_t)i, vmulq_f32(signed_byte_as_float(s[i / 4], i % 4), d));
    }
}

/* Half `half` of unit 4 h + j, two bits of each weight in q and, for Q3_K, one in top: codes of
 * Q3_K are q - 4 with the bit clear, else q. */
ALWAYS_INLINE void quarter_codes(enum rows_kind kind, int h, int j, size_t half,
                                 const uint8x16_t q[4], const uint8x16_t top[4], rows_sink *to) {
    const int unit = 4 * h + j;
    int8x16_t code[4];
    for (int k = 0; k < 4; k++) {
        uint8x16_t two = vandq_u8(shift_down_8(q[k], 2 * j), vdupq_n_u8(3));
        if (kind == ROWS_q3_k) {
            uint8x16_t bit = vdupq_n_u8((uint8_t)(1 << unit));
            uint8x16_t minus = vbicq_u8(vdupq_n_u8(0xfc), vtstq_u8(top[k], bit));
            two = vorrq_u8(two, minus);
        }
        code[k] = vreinterpretq_s8_u8(two);
    }
    put_codes(kind, to, (size_t)unit, half, code);
}

/* Half `half` of units 4 h .. 4 h + 3. */
ALWAYS_INLINE void four_quarters(enum rows_kind kind, const rows_at *at, size_t offset, int h,
                                 size_t half, const uint8x16_t top[4], rows_sink *to) {
    uint8x16_t q[4];
    rows_dwords(at, offset + 32 * (size_t)h + 16 * half, q);
    quarter_codes(kind, h, 0, half, q, top, to);
    quarter_codes(kind, h, 1, half, q, top, to);
    quarter_codes(kind, h, 2, half, q, top, to);
    quarter_codes(kind, h, 3, half, q, top, to);
}

ALWAYS_INLINE void unpack_q2_k(const rows_at *at, rows_sink *to) {
    four_quarters(ROWS_q2_k, at, offsetof(block_q2_k, q), 0, 0, NULL, to);
    four_quarters(ROWS_q2_k, at, offsetof(block_q2_k, q), 0, 1, NULL, to);
    four_quarters(ROWS_q2_k, at, offsetof(block_q2_k, q), 1, 0, NULL, to);
    four_quarters(ROWS_q2_k, at, offsetof(block_q2_k, q), 1, 1, NULL, to);
    uint8x16_t s[4];
    float32x4_t d = rows_f16(at, offsetof(block_q2_k, d));
    float32x4_t dmin = vnegq_f32(rows_f16(at, offsetof(block_q2_k, dmin)));
    rows_dwords(at, 0, s);
    for (int i = 0; i < 2 * TILE_UNITS; i++) {
        uint8x16_t scale = vandq_u8(s[i / 4], vdupq_n_u8(15)), min = vshrq_n_u8(s[i / 4], 4);
        put_scale(ROWS_q2_k, to, (size_t)i, vmulq_f32(byte_as_float(scale, i % 4), d));
        put_min(ROWS_q2_k, to, (size_t)i, vmulq_f32(byte_as_float(min, i % 4), dmin));
    }
}

ALWAYS_INLINE void q3_k_scales(const rows_at *at, rows_sink *to) {
    const uint8x16_t four = vdupq_n_u8(15), two = vdupq_n_u8(48);
    const size_t scale = offsetof(block_q3_k, scale);
    uint8x16_t s[4];
    float32x4_t d = rows_f16(at, offsetof(block_q3_k, d));
    uint8x16_t low0 = vreinterpretq_u8_u32(rows_u32(at, scale));
    uint8x16_t low1 = vreinterpretq_u8_u32(rows_u32(at, scale + 4));
    uint8x16_t high = vreinterpretq_u8_u32(rows_u32(at, scale + 8));
    s[0] = vorrq_u8(vandq_u8(low0, four), vandq_u8(vshlq_n_u8(high, 4), two));
    s[1] = vorrq_u8(vandq_u8(low1, four), vandq_u8(vshlq_n_u8(high, 2), two));
    s[2] = vorrq_u8(vshrq_n_u8(low0, 4), vandq_u8(high, two));
    s[3] = vorrq_u8(vshrq_n_u8(low1, 4), vandq_u8(vshrq_n_u8(high, 2), two));
    for (int i = 0; i < 2 * TILE_UNITS; i++) {
        float32x4_t value = vsubq_f32(byte_as_float(s[i / 4], i % 4), vdupq_n_f32(32));
        put_scale(ROWS_q3_k, to, (size_t)i, vmulq_f32(value, d));
    }
}

ALWAYS_INLINE void unpack_q3_k(const rows_at *at, rows_sink *to) {
    uint8x16_t top[4];
    rows_dwords(at, offsetof(block_q3_k, hmask), top);
    four_quarters(ROWS_q3_k, at, offsetof(block_q3_k, q), 0, 0, top, to);
    four_quarters(ROWS_q3_k, at, offsetof(block_q3_k, q), 1, 0, top, to);
    rows_dwords(at, offsetof(block_q3_k, hmask) + 16, top);
    four_quarters(ROWS_q3_k, at, offsetof(block_q3_k, q), 0, 1, top, to);
    four_quarters(ROWS_q3_k, at, offsetof(block_q3_k, q), 1, 1, top, to);
    q3_k_scales(at, to);
}

ALWAYS_INLINE void iq4_xs_unit(const rows_at *at, int u, rows_sink *to) {
    unit_by_table(ROWS_iq4_xs, at, offsetof(block_iq4_xs, q) + 16 * (size_t)u, (size_t)u,
                  IQ4_VALUES, to);
}

ALWAYS_INLINE void unpack_iq4_xs(const rows_at *at, rows_sink *to) {
    iq4_xs_unit(at, 0, to);
    iq4_xs_unit(at, 1, to);
    iq4_xs_unit(at, 2, to);
    iq4_xs_unit(at, 3, to);
    iq4_xs_unit(at, 4, to);
    iq4_xs_unit(at, 5, to);
    iq4_xs_unit(at, 6, to);
    iq4_xs_unit(at, 7, to);
    float32x4_t d = rows_f16(at, 0);
    uint32x4_t high = rows_u32(at, 0), low = rows_u32(at, offsetof(block_iq4_xs, scale_low));
    for (int u = 0; u < TILE_UNITS; u++) {
        uint32x4_t s = vsliq_n_u32(bits_of(low, 4 * u, 15), bits_of(high, 16 + 2 * u, 3), 4);
        int32x4_t value = vsubq_s32(vreinterpretq_s32_u32(s), vdupq_n_s32(32));
        put_scale(ROWS_iq4_xs, to, (size_t)u, vmulq_f32(vcvtq_f32_s32(value), d));
    }
}

/* ---- one block of four rows */

ALWAYS_INLINE void unpack_block(enum rows_kind kind, const rows_at *at, rows_sink *to) {
    switch (kind) {
    case ROWS_q8:
        unpack_q8(at, to);
        break;
    case ROWS_q4:
        put_scale(kind, to, 0, rows_f16(at, 0));
        unit_by_table(kind, at, offsetof(block_q4, q), 0, Q4_CODEBOOK, to);
        break;
    case ROWS_q2:
        unpack_q2(at, to);
        break;
    case ROWS_q4_0:
        unpack_q4_0(at, to);
        break;
    case ROWS_q4_1:
        unpack_q4_1(at, to);
        break;
    case ROWS_q5_0:
        unpack_q5_0(at, to);
        break;
    case ROWS_q5_1:
        unpack_q5_1(at, to);
        break;
    case ROWS_q2_k:
        unpack_q2_k(at, to);
        break;
    case ROWS_q3_k:
        unpack_q3_k(at, to);
        break;
    case ROWS_q4_k:
        unpack_q4_k(at, to);
        break;
    case ROWS_q5_k:
        unpack_q5_k(at, to);
        break;
    case ROWS_q6_k:
        unpack_q6_k(at, to);
        break;
    case ROWS_iq4_nl:
        put_scale(kind, to, 0, rows_f16(at, 0));
        unit_by_table(kind, at, offsetof(block_iq4_nl, q), 0, IQ4_VALUES, to);
        break;
    case ROWS_iq4_xs:
        unpack_iq4_xs(at, to);
        break;
    default: /* ROWS_mxfp4 */
        put_scale(kind, to, 0, e8m0_scale(rows_u8(at, 0)));
        unit_by_table(kind, at, offsetof(block_mxfp4, q), 0, FP4_VALUES, to);
        break;
    }
}

#endif
