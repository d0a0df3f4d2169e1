/* Private to kernels/: how blocks of several rows become vectors with one row in each lane. Owns
 * the unpacking of each type; the vectors, of sixteen or of eight rows, are the includer's, who
 * includes x86_rows_512.h or x86_rows_256.h before this. All is inlined with the type a constant.
 * Layouts: formats/ggml_blocks.h and formats/dtype.h.
 *
 * Blocks are unpacked where they lie in the file: 16 bytes of each row are read into the 16-byte
 * lanes of four vectors, and two rounds of unpacking make four vectors out of them that hold one
 * dword of every row each. Four weights of a row are then the bytes of its lane, as the products
 * want them.
 */
#ifndef SMOE_KERNELS_X86_ROWS_UNPACK_H
#define SMOE_KERNELS_X86_ROWS_UNPACK_H

#include "formats/ggml_blocks.h"
#include "kernels/kernels.h"

enum rows_kind {
    ROWS_q8,
    ROWS_q4,
    ROWS_q2,
    ROWS_q4_0,
    ROWS_q4_k,
    ROWS_q5_k,
    ROWS_q6_k,
    ROWS_iq4_nl,
    ROWS_iq4_xs,
    ROWS_mxfp4
};

/* ROWS_TO_TILES: what is unpacked is kept for the matrix tiles of x86_rows_amx.h, which multiply
 * signed bytes, instead of being multiplied at once. */
#ifdef ROWS_TO_TILES
enum { TO_TILES = 1 };
#else
enum { TO_TILES = 0 };
#endif

/* Columns of one tile: eight units of 32, one block of the types with blocks of 256. */
enum { TILE_COLS = 256, TILE_UNITS = 8, UNIT_DWORDS = 8, ROW_GROUPS = ROW_LANES / 4 };

/* Of ROW_LANES rows, for each unit of a tile, or half unit in types with runs of 16. */
typedef struct rows_scales {
    fvec scale[2 * TILE_UNITS];
    fvec min[TILE_UNITS];
} rows_scales;

/* Two units of ROW_LANES rows, of weights scale * (code - bias) + min: code[i][k] holds columns
 * 4 k .. 4 k + 3 of unit[i]. With one token the codes are not kept but multiplied at once, into
 * dot[i][half]. */
typedef struct rows_pair {
    size_t unit[2];
    ivec code[2][UNIT_DWORDS];
    bool single;
    const act_q8 *x; /* of single */
    ivec dot[2][2];
} rows_pair;

/* Where the rows begin: groups of four rows, `stride` bytes from row to row. */
typedef struct rows_at {
    const uint8_t *group[ROW_GROUPS];
    size_t stride;
    const uint8_t *ahead; /* next in line for a prefetch */
} rows_at;

ALWAYS_INLINE int rows_elems(enum rows_kind kind) {
    switch (kind) {
    case ROWS_q4_k:
    case ROWS_q5_k:
    case ROWS_q6_k:
    case ROWS_iq4_xs:
        return 256;
    case ROWS_q2:
        return 64;
    default:
        return 32;
    }
}

ALWAYS_INLINE size_t rows_block_bytes(enum rows_kind kind) {
    switch (kind) {
    case ROWS_q8:
        return sizeof(block_q8);
    case ROWS_q4:
        return sizeof(block_q4);
    case ROWS_q2:
        return sizeof(block_q2);
    case ROWS_q4_0:
        return sizeof(block_q4_0);
    case ROWS_q4_k:
        return sizeof(block_q4_k);
    case ROWS_q5_k:
        return sizeof(block_q5_k);
    case ROWS_q6_k:
        return sizeof(block_q6_k);
    case ROWS_iq4_nl:
        return sizeof(block_iq4_nl);
    case ROWS_iq4_xs:
        return sizeof(block_iq4_xs);
    default:
        return sizeof(block_mxfp4);
    }
}

/* Codes are as they stand in the block and unit minima stand beside them. */
ALWAYS_INLINE bool rows_has_min(enum rows_kind kind) {
    return kind == ROWS_q4_k || kind == ROWS_q5_k;
}

ALWAYS_INLINE bool rows_runs_of_16(enum rows_kind kind) {
    return kind == ROWS_q2 || kind == ROWS_q6_k;
}

/* What is added to weights to make codes of them: a power of two or, for codes that are weights or
 * stand as they are, 0. 128 is the bias that needs no shift of an activation's fix; with one token
 * that shift costs less than adding to codes. */
ALWAYS_INLINE int rows_bias(enum rows_kind kind, bool single) {
    const bool wide = ROWS_MAX_CODE == 255;
    if (TO_TILES) {
        return 0;
    }
    switch (kind) {
    case ROWS_q4_k:
    case ROWS_q5_k:
        return 0;
    case ROWS_q4_0:
        return wide && !single ? 128 : 8;
    case ROWS_q6_k:
        return wide && !single ? 128 : 32;
    case ROWS_mxfp4:
        return wide ? 128 : 16;
    case ROWS_q4:
    case ROWS_q2:
        return wide ? 128 : 64;
    default:
        return wide ? 128 : 0;
    }
}

/* The largest code, or ROWS_SIGNED. */
ALWAYS_INLINE int rows_max(enum rows_kind kind) {
    if (ROWS_MAX_CODE == 255) {
        return 255;
    }
    switch (kind) {
    case ROWS_q4_k:
    case ROWS_q4_0:
        return 15;
    case ROWS_q5_k:
    case ROWS_mxfp4:
        return 31;
    case ROWS_q6_k:
        return 63;
    case ROWS_q4:
    case ROWS_q2:
        return 127;
    default:
        return ROWS_SIGNED;
    }
}

/* High nibbles stay where they are, which a byte must have room for: products with them are 16
 * times too large. Q4_K has a scale of its own for them, which is made smaller; of Q4_0 the
 * products are, which is less than shifting codes only with one token. */
ALWAYS_INLINE bool rows_high_in_place(enum rows_kind kind, bool single) {
    return ROWS_MAX_CODE == 255 && !TO_TILES &&
           (kind == ROWS_q4_k || (kind == ROWS_q4_0 && single));
}

/* Half of unit[i]: 16 columns. */
ALWAYS_INLINE void put_codes(enum rows_kind kind, rows_pair *to, size_t i, size_t half,
                             const ivec code[4]) {
    if (to->single) {
        const int8_t *q = to->x[to->unit[i]].q + 16 * half;
        to->dot[i][half] = iv_dot_16(rows_max(kind), to->dot[i][half], code, q);
        return;
    }
    for (int k = 0; k < 4; k++) {
        to->code[i][4 * half + (size_t)k] = code[k];
    }
}

/* ---- transposition */

/* L1 has room for what comes next, but too few misses may be open at once to hide main memory
 * behind them; L2 takes more. So a line is asked for into L2 this much earlier; from 8 to 64 KiB
 * the rates are alike. And once more half way: Zen 4 seems to drop requests when many wait, since a
 * kernel lost the more to memory the quicker it was (q8_0 with one thread came from 24 to 31 GB/s
 * by the third request); Intel's processors take no notice of it. */
#define FAR_BYTES 8192

/* One line of what is multiplied next, since rows of 1 to 4 KiB end before the hardware has found
 * its stride. All calls of a tile together must bring as much as it has: a few lines left out cost
 * much of the rate. Prefetches that come in bursts wait for one another, and compilers gather them
 * to bursts of more than twenty where they may, so each is tied to a value that is used later. */
ALWAYS_INLINE void fetch_line(rows_at *at, ivec *v) {
    __asm__ volatile("prefetcht0 %1" : "+v"(*v) : "m"(at->ahead[0]));
    __asm__ volatile("prefetcht1 %1" : "+v"(*v) : "m"(at->ahead[FAR_BYTES / 2]));
    __asm__ volatile("prefetcht1 %1" : "+v"(*v) : "m"(at->ahead[FAR_BYTES]));
    at->ahead += 64;
}

/* out[k]: dword k of the 16 bytes at offset, of each row in order. Fetches n_line lines for every
 * sixteen rows. */
ALWAYS_INLINE void rows_dwords_and(rows_at *at, size_t offset, int n_line, ivec out[4]) {
    ivec v[4];
    for (size_t r = 0; r < 4; r++) {
        v[r] = iv_every_fourth(at->group, r * at->stride + offset);
    }
    for (int i = 0; i < (n_line * ROW_LANES + 15) / 16; i++) {
        fetch_line(at, &v[i]);
    }
    iv_transpose(v[0], v[1], v[2], v[3], out);
}

ALWAYS_INLINE void rows_dwords(rows_at *at, size_t offset, ivec out[4]) {
    rows_dwords_and(at, offset, 4, out);
}

/* The same of 32 bytes, with up to 8 lines. */
ALWAYS_INLINE void rows_dwords_8_and(rows_at *at, size_t offset, int n_line, ivec out[8]) {
    ivec v[8];
    iv_load_8(at->group, at->stride, offset, v);
    for (int i = 0; i < (n_line * ROW_LANES + 15) / 16; i++) {
        fetch_line(at, &v[i]);
    }
    iv_transpose_8(v, out);
}

ALWAYS_INLINE void rows_dwords_8(rows_at *at, size_t offset, ivec out[8]) {
    rows_dwords_8_and(at, offset, 8, out);
}

/* ---- pieces of dwords */

ALWAYS_INLINE ivec low_nibbles(ivec v) {
    return iv_and(v, iv_bytes(15));
}

ALWAYS_INLINE ivec high_nibbles(ivec v) {
    return low_nibbles(iv_srl(v, 4));
}

/* Byte k of each dword, as a float. */
ALWAYS_INLINE fvec byte_as_float(ivec v, unsigned k) {
    static const int8_t at[4][16] = {
        {0, -1, -1, -1, 4, -1, -1, -1, 8, -1, -1, -1, 12, -1, -1, -1},
        {1, -1, -1, -1, 5, -1, -1, -1, 9, -1, -1, -1, 13, -1, -1, -1},
        {2, -1, -1, -1, 6, -1, -1, -1, 10, -1, -1, -1, 14, -1, -1, -1},
        {3, -1, -1, -1, 7, -1, -1, -1, 11, -1, -1, -1, 15, -1, -1, -1},
    };
    return fv_from(iv_shuffle_bytes(v, iv_table(at[k])));
}

/* The same of a signed byte, times 2^24. */
ALWAYS_INLINE fvec signed_byte_as_float(ivec v, unsigned k) {
    static const int8_t at[4][16] = {
        {-1, -1, -1, 0, -1, -1, -1, 4, -1, -1, -1, 8, -1, -1, -1, 12},
        {-1, -1, -1, 1, -1, -1, -1, 5, -1, -1, -1, 9, -1, -1, -1, 13},
        {-1, -1, -1, 2, -1, -1, -1, 6, -1, -1, -1, 10, -1, -1, -1, 14},
        {-1, -1, -1, 3, -1, -1, -1, 7, -1, -1, -1, 11, -1, -1, -1, 15},
    };
    return fv_from(iv_shuffle_bytes(v, iv_table(at[k])));
}

ALWAYS_INLINE fvec high_f16(ivec v) {
    return fv_low_f16(iv_srl(v, 16));
}

/* A table of sixteen weights as codes. */
ALWAYS_INLINE ivec codebook(enum rows_kind kind, const int8_t *values) {
    return iv_add_bytes(iv_table(values), iv_bytes(rows_bias(kind, false)));
}

/* Bytes with a constant added, which costs nothing for 0. */
ALWAYS_INLINE ivec plus(ivec v, int add) {
    return add ? iv_add_bytes(v, iv_bytes(add)) : v;
}

/* ---- types with one scale for each 32 weights, or 64 */

/* Nibbles 16 apart through a table. */
ALWAYS_INLINE void unit_by_table(const ivec q[4], ivec table, ivec code[UNIT_DWORDS]) {
    for (int k = 0; k < 4; k++) {
        code[k] = iv_shuffle_bytes(table, low_nibbles(q[k]));
        code[4 + k] = iv_shuffle_bytes(table, high_nibbles(q[k]));
    }
}

ALWAYS_INLINE void unit_of_q4_0(const ivec q[4], bool single, ivec code[UNIT_DWORDS]) {
    const int add = rows_bias(ROWS_q4_0, single) - 8;
    for (int k = 0; k < 4; k++) {
        code[k] = plus(low_nibbles(q[k]), add);
        code[4 + k] = rows_high_in_place(ROWS_q4_0, single) ? iv_and(q[k], iv_bytes(0xf0))
                                                            : plus(high_nibbles(q[k]), add);
    }
}

/* 2^(e - 128) as in MXFP4_SCALE_BITS, of byte k: the two least are subnormal. */
ALWAYS_INLINE fvec e8m0_scale(ivec v, unsigned k) {
    const ivec exponent = iv_set1(0x7f800000), one = iv_set1(0x00800000);
    ivec bits = iv_and(k == 3 ? iv_srl(v, 1) : iv_sll(v, 23 - 8 * k), exponent);
    return fv_bits(iv_tiny_e8m0(bits, iv_sub(bits, one)));
}

/* ---- types with blocks of 32 or 64 weights
 *
 * Their blocks are not of whole dwords, so that codes begin at any byte of one. A whole tile is:
 * it is read as one run of dwords, which holds the scales too. */

enum { SMALL_DWORDS = TILE_UNITS * sizeof(block_q8) / 4 };

ALWAYS_INLINE size_t small_head(enum rows_kind kind) {
    return kind == ROWS_mxfp4 ? offsetof(block_mxfp4, q)
           : kind == ROWS_q2  ? offsetof(block_q2, q)
                              : offsetof(block_q8, q); /* as in block_q4 and others */
}

/* Bytes of unit u's first dword with codes that are none. */
ALWAYS_INLINE unsigned small_turn(enum rows_kind kind, size_t u) {
    const size_t block = u * 32 / (size_t)rows_elems(kind);
    return (unsigned)((rows_block_bytes(kind) * block + small_head(kind)) % 4);
}

/* Dwords 8 i to 8 i + 7 of a tile, or those up to its end. */
ALWAYS_INLINE void small_window(enum rows_kind kind, rows_at *at, size_t i, ivec d[SMALL_DWORDS]) {
    const size_t end = TILE_UNITS * rows_block_bytes(kind);
    if (32 * i + 32 <= end) {
        rows_dwords_8(at, 32 * i, d + 8 * i);
    } else {
        rows_dwords_and(at, end - 16, (int)(end % 32) / 4, d + end / 4 - 4);
    }
}

/* What of a tile unit u needs and none before it did. */
ALWAYS_INLINE void small_windows(enum rows_kind kind, rows_at *at, size_t u, ivec d[SMALL_DWORDS]) {
    const size_t bytes = rows_block_bytes(kind), last = (bytes * (u + 1) - 1) / 32;
    const size_t first = u == 0 ? 0 : (bytes * u - 1) / 32 + 1;
    if (first <= last) {
        small_window(kind, at, first, d);
    }
    if (first + 1 <= last) {
        small_window(kind, at, first + 1, d);
    }
}

/* n dwords of codes that begin `turn` bytes into d[0]. With one token they stay where they are,
 * those of the last dword in the unused bytes of the first: its activations are turned as well. */
ALWAYS_INLINE void small_codes(bool single, unsigned turn, int n, const ivec *d, ivec *out) {
    if (turn > 0 && !single) {
        iv_align(turn, n, d, out);
        return;
    }
    for (int k = 0; k < n; k++) {
        out[k] = d[k];
    }
    if (turn > 0) {
        out[0] = iv_join(turn, d[n], d[0]);
    }
}

ALWAYS_INLINE fvec small_scale(enum rows_kind kind, ivec v, unsigned byte) {
    if (kind == ROWS_mxfp4) {
        return e8m0_scale(v, byte);
    }
    return byte == 2 ? high_f16(v) : fv_low_f16(v);
}

/* Nibbles, or for Q8 bytes, as codes. */
ALWAYS_INLINE void small_unit(enum rows_kind kind, bool single, const ivec *q,
                              ivec code[UNIT_DWORDS]) {
    switch (kind) {
    case ROWS_q8:
        for (int k = 0; k < UNIT_DWORDS; k++) {
            code[k] = plus(q[k], rows_bias(kind, single));
        }
        break;
    case ROWS_q4_0:
        unit_of_q4_0(q, single, code);
        break;
    case ROWS_mxfp4:
        unit_by_table(q, codebook(kind, FP4_VALUES), code);
        break;
    default: /* ROWS_q4, ROWS_iq4_nl */
        unit_by_table(q, codebook(kind, kind == ROWS_q4 ? Q4_CODEBOOK : IQ4_VALUES), code);
        break;
    }
}

/* Unit u of a whole tile, whose dwords up to its end are d. */
ALWAYS_INLINE void unpack_small(enum rows_kind kind, const ivec d[SMALL_DWORDS], size_t u,
                                bool single, fvec *scale, ivec code[UNIT_DWORDS]) {
    const size_t at = rows_block_bytes(kind) * u, q_at = at + small_head(kind);
    const int n = kind == ROWS_q8 ? 8 : 4;
    ivec q[UNIT_DWORDS];
    *scale = small_scale(kind, d[at / 4], at % 4);
    small_codes(single, small_turn(kind, u), n, d + q_at / 4, q);
    small_unit(kind, single, q, code);
}

/* A unit alone, of a row's last ones. */
ALWAYS_INLINE void unpack_small_alone(enum rows_kind kind, rows_at *at, size_t u, bool single,
                                      fvec *scale, ivec code[UNIT_DWORDS]) {
    const size_t offset = u * rows_block_bytes(kind);
    ivec q[UNIT_DWORDS];
    rows_dwords_and(at, offset, 1, q); /* of which only the first is used */
    *scale = small_scale(kind, q[0], 0);
    rows_dwords(at, offset + small_head(kind), q);
    if (kind == ROWS_q8) {
        rows_dwords(at, offset + 18, q + 4);
    }
    small_unit(kind, single, q, code);
}

/* Activations of one token as small_codes wants them: each run of 16, or 32 for Q8, turned. */
ALWAYS_INLINE void turn_unit(enum rows_kind kind, size_t u, const act_q8 *x, act_q8 *out) {
    static const uint8_t order[32] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const unsigned turn = small_turn(kind, u);
    const __m128i head = load_128(x), turned = load_128(order + 16 - turn);
    __m128i a = load_128(x->q), b = load_128(x->q + 16);
    if (kind == ROWS_q8 && turn > 0) {
        __m128i last = _mm_alignr_epi8(a, b, 14);
        b = _mm_alignr_epi8(b, a, 14);
        a = last;
    } else {
        a = _mm_shuffle_epi8(a, turned);
        b = _mm_shuffle_epi8(b, turned);
    }
    _mm_storeu_si128((__m128i *)(void *)out, head);
    _mm_storeu_si128((__m128i *)(void *)out->q, a);
    _mm_storeu_si128((__m128i *)(void *)(out->q + 16), b);
}

/* The first byte of each dword, four times. */
ALWAYS_INLINE ivec first_bytes(ivec v) {
    static const int8_t first[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    return iv_shuffle_bytes(v, iv_table(first));
}

/* What a block of Q2 says of its four runs of 16, and its codes' indices. */
typedef struct q2_block {
    ivec q[4];
    ivec meta; /* above its 24 bits others may stand */
    fvec d;
} q2_block;

ALWAYS_INLINE q2_block read_q2(rows_at *at, size_t i) {
    ivec head[4];
    q2_block b;
    rows_dwords_and(at, i * sizeof(block_q2), 2, head);
    rows_dwords(at, i * sizeof(block_q2) + 5, b.q);
    b.d = fv_low_f16(head[0]);
    b.meta = iv_or(iv_srl(head[0], 16), iv_sll(head[1], 16));
    return b;
}

enum { Q2_DWORDS = TILE_UNITS / 2 * sizeof(block_q2) / 4 };

/* The n bytes from byte on, of a tile's dwords, and some behind them. */
ALWAYS_INLINE ivec bytes_at(const ivec *d, size_t byte, size_t n) {
    const unsigned skip = 8 * (unsigned)(byte % 4);
    const ivec *v = d + byte / 4;
    if (skip == 0) {
        return v[0];
    }
    ivec low = iv_srl(v[0], skip);
    return byte % 4 + n <= 4 ? low : iv_or(low, iv_sll(v[1], 32 - skip));
}

/* Block i of a whole tile. */
ALWAYS_INLINE q2_block q2_block_of(const ivec d[Q2_DWORDS], size_t i, bool single) {
    const size_t at = sizeof(block_q2) * i;
    q2_block b;
    b.d = fv_low_f16(bytes_at(d, at, 2));
    b.meta = bytes_at(d, at + 2, 3);
    small_codes(single, small_turn(ROWS_q2, 2 * i), 4, d + (at + 5) / 4, b.q);
    return b;
}

/* The codebooks for index code + 4 book, or code * 4 + book, so that every second run's codes are
 * used where they stand. */
ALWAYS_INLINE ivec q2_table(unsigned run) {
    static const int8_t turned[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const ivec table = codebook(ROWS_q2, Q2_CODEBOOK[0]);
    return run % 2 ? iv_shuffle_bytes(table, iv_table(turned)) : table;
}

/* Two runs: first 0 or 2. */
ALWAYS_INLINE void q2_runs(const q2_block *b, unsigned first, fvec *scale, rows_pair *to) {
    ivec q[4];
    for (int k = 0; k < 4; k++) {
        q[k] = first ? iv_srl(b->q[k], 4) : b->q[k];
    }
    for (unsigned i = 0; i < 2; i++) {
        const unsigned bit = 6 * (first + i);
        const ivec table = q2_table(i), codes = iv_bytes(i ? 12 : 3);
        ivec bits = bit ? iv_srl(b->meta, bit) : b->meta, code[4];
        ivec s = iv_add(iv_and(bits, iv_set1(15)), iv_set1(1));
        scale[i] = fv_mul(b->d, fv_from(s));
        ivec book = first_bytes(i ? iv_and(iv_srl(bits, 4), iv_bytes(3))
                                  : iv_and(iv_srl(bits, 2), iv_bytes(12)));
        for (int k = 0; k < 4; k++) {
            code[k] = iv_shuffle_bytes(table, iv_and_or(q[k], codes, book));
        }
        put_codes(ROWS_q2, to, first / 2, i, code);
    }
}

/* ---- types with blocks of 256 */

/* Q4_K's and Q5_K's scales and minima. */
ALWAYS_INLINE void q4_k_scales(enum rows_kind kind, rows_at *at, rows_scales *out) {
    const ivec six = iv_bytes(63), four = iv_bytes(15), top = iv_bytes(48);
    ivec head[4], s[2], m[2];
    rows_dwords(at, 0, head);
    const fvec d = fv_low_f16(head[0]);
    const fvec d_high = rows_high_in_place(kind, false) ? fv_mul(d, fv_set1(0x1p-4f)) : d;
    const fvec dmin = fv_sub(fv_zero(), high_f16(head[0]));
    s[0] = iv_and(head[1], six);
    m[0] = iv_and(head[2], six);
    s[1] = iv_or(iv_and(iv_srl(head[1], 2), top), iv_and(head[3], four));
    m[1] = iv_or(iv_and(iv_srl(head[2], 2), top), iv_and(iv_srl(head[3], 4), four));
    for (unsigned u = 0; u < TILE_UNITS; u++) {
        out->scale[u] = fv_mul(byte_as_float(s[u / 4], u % 4), u % 2 ? d_high : d);
        out->min[u] = fv_mul(byte_as_float(m[u / 4], u % 4), dmin);
    }
}

/* Half `half` of units j and j + 1, j even. Halves are written out by callers, since loops might be
 * left as they are, and only with constant indices does a pair stay in registers. */
ALWAYS_INLINE void q4_k_half(const ivec q[4], size_t half, rows_pair *to) {
    ivec low[4], high[4];
    for (int k = 0; k < 4; k++) {
        low[k] = low_nibbles(q[k]);
        high[k] = rows_high_in_place(ROWS_q4_k, to->single) ? iv_and(q[k], iv_bytes(0xf0))
                                                            : high_nibbles(q[k]);
    }
    put_codes(ROWS_q4_k, to, 0, half, low);
    put_codes(ROWS_q4_k, to, 1, half, high);
}

/* The same, their fifth bits in high. */
ALWAYS_INLINE void q5_k_half(const ivec q[4], unsigned j, size_t half, const ivec high[4],
                             rows_pair *to) {
    ivec first[4], second[4];
    for (int k = 0; k < 4; k++) {
        ivec a = j < 4 ? iv_sll(high[k], 4 - j) : iv_srl(high[k], j - 4);
        ivec b = j < 3 ? iv_sll(high[k], 3 - j) : iv_srl(high[k], j - 3);
        first[k] = iv_and(iv_select(iv_bytes(15), q[k], a), iv_bytes(31));
        second[k] = iv_and(iv_select(iv_bytes(15), iv_srl(q[k], 4), b), iv_bytes(31));
    }
    put_codes(ROWS_q5_k, to, 0, half, first);
    put_codes(ROWS_q5_k, to, 1, half, second);
}

ALWAYS_INLINE void q6_k_scales(rows_at *at, rows_scales *out) {
    ivec s[4], last[4];
    rows_dwords(at, offsetof(block_q6_k, scale), s);
    rows_dwords_and(at, offsetof(block_q6_k, d) - 14, 1, last);
    fvec d = fv_mul(high_f16(last[3]), fv_set1(0x1p-24f));
    for (unsigned i = 0; i < 2 * TILE_UNITS; i++) {
        out->scale[i] = fv_mul(signed_byte_as_float(s[i / 4], i % 4), d);
    }
}

/* Four bits of q and two of high: a code with `bias` instead of its own 32. */
ALWAYS_INLINE ivec q6_code(ivec low, ivec high, int bias) {
    return plus(iv_and(iv_select(iv_bytes(15), low, high), iv_bytes(63)), bias - 32);
}

/* Half `half` of units 4 n + j and 4 n + 2 + j for j < 2, their upper bits in high. */
ALWAYS_INLINE void q6_k_half(const ivec q[4], size_t j, size_t half, const ivec high[4],
                             rows_pair *to) {
    const int bias = rows_bias(ROWS_q6_k, to->single);
    ivec first[4], second[4];
    for (int k = 0; k < 4; k++) {
        ivec top = j ? iv_srl(high[k], 2) : high[k];
        first[k] = q6_code(q[k], iv_sll(top, 4), bias);
        second[k] = q6_code(iv_srl(q[k], 4), top, bias);
    }
    put_codes(ROWS_q6_k, to, 0, half, first);
    put_codes(ROWS_q6_k, to, 1, half, second);
}

/* Six bits of each scale: four from nibbles, two from bit 16 + 2 u of the first dword on. Even and
 * odd units as bytes, in order. */
ALWAYS_INLINE void iq4_xs_scales(rows_at *at, rows_scales *out) {
    static const int8_t twice[16] = {2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15};
    const ivec even_bytes = iv_set1(0x00ff00ff), top = iv_bytes(48), middle = iv_bytes(32);
    ivec head[4], s[2];
    rows_dwords(at, 0, head);
    fvec d = fv_mul(fv_low_f16(head[0]), fv_set1(0x1p-24f));
    ivec high = iv_shuffle_bytes(head[0], iv_table(twice));
    s[0] = iv_and(iv_select(even_bytes, iv_sll(high, 4), high), top);
    s[1] = iv_and(iv_select(even_bytes, iv_sll(high, 2), iv_srl(high, 2)), top);
    s[0] = iv_sub_bytes(iv_or(s[0], low_nibbles(head[1])), middle);
    s[1] = iv_sub_bytes(iv_or(s[1], high_nibbles(head[1])), middle);
    for (unsigned u = 0; u < TILE_UNITS; u++) {
        out->scale[u] = fv_mul(signed_byte_as_float(s[u % 2], u / 2), d);
    }
}

/* From a unit's 16 bytes. */
ALWAYS_INLINE void iq4_xs_unit(const ivec q[4], ivec code[UNIT_DWORDS]) {
    unit_by_table(q, codebook(ROWS_iq4_xs, IQ4_VALUES), code);
}

#endif
