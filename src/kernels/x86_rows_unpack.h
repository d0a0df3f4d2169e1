/* Private to kernels/: how blocks of sixteen rows become vectors with one row in each lane. Owns
 * the transposition and the unpacking of each type. All is inlined with the type a constant.
 * Layouts: formats/ggml_blocks.h and formats/dtype.h. Needs AVX-512 F, BW, VL, DQ and VNNI.
 *
 * Blocks are unpacked where they lie in the file: 16 bytes of each row are read into the quarters
 * of four vectors, and two rounds of unpacking make four vectors out of them that hold one dword of
 * every row each. Four weights of a row are then the bytes of its lane, as vpdpbusd wants them.
 */
#ifndef SMOE_KERNELS_X86_ROWS_UNPACK_H
#define SMOE_KERNELS_X86_ROWS_UNPACK_H

#include "formats/ggml_blocks.h"
#include "kernels/kernels.h"
#include "kernels/x86_vector.h"

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

/* Columns of one tile: eight units of 32, one block of the types with blocks of 256. */
enum { TILE_COLS = 256, TILE_UNITS = 8, UNIT_DWORDS = 8, ROW_LANES = 16 };

/* Weights of sixteen rows: scale * (code - bias) + min. code[u][k] holds columns 4 k .. 4 k + 3 of
 * unit u. Scales and minima are for units, or for half units in types with runs of 16. */
typedef struct rows_tile {
    __m512i code[TILE_UNITS][UNIT_DWORDS];
    __m512 scale[2 * TILE_UNITS];
    __m512 min[TILE_UNITS];
} rows_tile;

/* Where unpacked codes go: into a tile, or straight into products with one token. Then dot[u], or
 * with runs of 16 dot[2 u] and dot[2 u + 1], collects the products of unit u. */
typedef struct rows_sink {
    rows_tile *tile;
    bool single;
    const act_q8 *x; /* of single */
    __m512i dot[2 * TILE_UNITS];
} rows_sink;

/* Where sixteen rows begin: quarters of four rows, `stride` bytes from row to row. */
typedef struct rows_at {
    const uint8_t *quarter[4];
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

/* Codes are non-negative and unit minima stand beside them; else codes have 128 added. */
ALWAYS_INLINE bool rows_has_min(enum rows_kind kind) {
    return kind == ROWS_q4_k || kind == ROWS_q5_k;
}

ALWAYS_INLINE bool rows_runs_of_16(enum rows_kind kind) {
    return kind == ROWS_q2 || kind == ROWS_q6_k;
}

/* acc + codes * q[0..3], lane by lane. */
ALWAYS_INLINE __m512i dot_4(__m512i acc, __m512i codes, const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(four));
}

ALWAYS_INLINE void put_code(enum rows_kind kind, rows_sink *to, size_t u, size_t k, __m512i code) {
    if (to->single) {
        size_t i = rows_runs_of_16(kind) ? 2 * u + k / 4 : u;
        to->dot[i] = dot_4(to->dot[i], code, to->x[u].q + 4 * k);
    } else {
        to->tile->code[u][k] = code;
    }
}

/* ---- transposition */

/* Row i, i + 4, i + 8 and i + 12 of the 16 bytes at offset. */
ALWAYS_INLINE __m512i every_fourth(rows_at *at, size_t i, size_t offset) {
    const size_t skip = i * at->stride + offset;
    __m512i v = _mm512_castsi128_si512(load_128(at->quarter[0] + skip));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_128(at->quarter[1] + skip));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_128(at->quarter[2] + skip));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, load_128(at->quarter[3] + skip));
}

/* out[k]: dword k of the 16 bytes at offset, of each row in order. Brings n_line cache lines of
 * what is multiplied next, since rows of 1 to 4 KiB end before the hardware has found its stride.
 * All calls of a tile together must bring as much as it has: a few lines left out cost much of the
 * rate. Prefetches that come in bursts wait for one another. */
ALWAYS_INLINE void rows_dwords_and(rows_at *at, size_t offset, int n_line, __m512i out[4]) {
    for (int i = 0; i < n_line; i++) {
        _mm_prefetch((const char *)at->ahead + 64 * i, _MM_HINT_T0);
    }
    at->ahead += 64 * n_line;
    __m512i a = every_fourth(at, 0, offset), b = every_fourth(at, 1, offset);
    __m512i c = every_fourth(at, 2, offset), d = every_fourth(at, 3, offset);
    __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    ab = _mm512_unpackhi_epi32(a, b);
    cd = _mm512_unpackhi_epi32(c, d);
    out[2] = _mm512_unpacklo_epi64(ab, cd);
    out[3] = _mm512_unpackhi_epi64(ab, cd);
}

ALWAYS_INLINE void rows_dwords(rows_at *at, size_t offset, __m512i out[4]) {
    rows_dwords_and(at, offset, 4, out);
}

/* ---- pieces of dwords */

ALWAYS_INLINE __m512i bytes_of(int value) {
    return _mm512_set1_epi8((char)value);
}

ALWAYS_INLINE __m512i low_nibbles_512(__m512i v) {
    return _mm512_and_si512(v, bytes_of(15));
}

ALWAYS_INLINE __m512i high_nibbles_512(__m512i v) {
    return low_nibbles_512(_mm512_srli_epi32(v, 4));
}

/* b where mask has bits, else a. */
ALWAYS_INLINE __m512i select_bits(__m512i mask, __m512i b, __m512i a) {
    return _mm512_ternarylogic_epi32(mask, b, a, 0xca);
}

/* Byte k of each dword, as a float. */
ALWAYS_INLINE __m512 byte_as_float(__m512i v, unsigned k) {
    v = _mm512_and_si512(_mm512_srli_epi32(v, 8 * k), _mm512_set1_epi32(255));
    return _mm512_cvtepi32_ps(v);
}

ALWAYS_INLINE __m512 signed_byte_as_float(__m512i v, unsigned k) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * k), 24));
}

/* The low half of each dword, an f16. */
ALWAYS_INLINE __m512 low_f16(__m512i v) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

ALWAYS_INLINE __m512 high_f16(__m512i v) {
    return low_f16(_mm512_srli_epi32(v, 16));
}

ALWAYS_INLINE __m512i codebook_512(const int8_t *values) {
    __m512i table = _mm512_broadcast_i32x4(load_128(values));
    return _mm512_xor_si512(table, bytes_of(-128));
}

/* ---- types with one scale for each 32 weights, or 64 */

/* Nibbles 16 apart, at offset, through a table or with something added. */
ALWAYS_INLINE void unit_of_nibbles(rows_at *at, size_t offset, bool by_table, __m512i table,
                                   __m512i code[UNIT_DWORDS]) {
    __m512i q[4];
    rows_dwords(at, offset, q);
    for (int k = 0; k < 4; k++) {
        __m512i low = low_nibbles_512(q[k]), high = high_nibbles_512(q[k]);
        code[k] = by_table ? _mm512_shuffle_epi8(table, low) : _mm512_add_epi8(low, table);
        code[4 + k] = by_table ? _mm512_shuffle_epi8(table, high) : _mm512_add_epi8(high, table);
    }
}

/* 2^(e - 128) as in MXFP4_SCALE_BITS: the two least are subnormal. */
ALWAYS_INLINE __m512 e8m0_scale(__m512i e) {
    e = _mm512_and_si512(e, _mm512_set1_epi32(255));
    __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __mmask16 tiny = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    bits = _mm512_mask_sllv_epi32(bits, tiny, _mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(bits);
}

ALWAYS_INLINE void unpack_small(enum rows_kind kind, rows_at *at, size_t u, __m512 *scale,
                                __m512i code[UNIT_DWORDS]) {
    size_t offset = u * rows_block_bytes(kind);
    __m512i head[4];
    rows_dwords_and(at, offset, 1, head); /* of which only the first is used */
    switch (kind) {
    case ROWS_q8:
        *scale = low_f16(head[0]);
        rows_dwords(at, offset + 2, code);
        rows_dwords(at, offset + 18, code + 4);
        for (int k = 0; k < UNIT_DWORDS; k++) {
            code[k] = _mm512_xor_si512(code[k], bytes_of(-128));
        }
        break;
    case ROWS_mxfp4:
        *scale = e8m0_scale(head[0]);
        unit_of_nibbles(at, offset + 1, true, codebook_512(FP4_VALUES), code);
        break;
    case ROWS_q4_0:
        *scale = low_f16(head[0]);
        unit_of_nibbles(at, offset + 2, false, bytes_of(128 - 8), code);
        break;
    default: /* ROWS_q4, ROWS_iq4_nl */
        *scale = low_f16(head[0]);
        unit_of_nibbles(at, offset + 2, true,
                        codebook_512(kind == ROWS_q4 ? Q4_CODEBOOK : IQ4_VALUES), code);
        break;
    }
}

/* Units 2 i and 2 i + 1: a block of Q2. */
ALWAYS_INLINE void unpack_q2(rows_at *at, size_t i, rows_tile *out) {
    __m512i head[4], q[4], table = codebook_512(Q2_CODEBOOK[0]);
    rows_dwords_and(at, i * sizeof(block_q2), 2, head);
    rows_dwords(at, i * sizeof(block_q2) + 5, q);
    __m512 d = low_f16(head[0]);
    __m512i meta = _mm512_or_si512(_mm512_srli_epi32(head[0], 16), _mm512_slli_epi32(head[1], 16));
    const __m512i first_byte = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    for (unsigned run = 0; run < 4; run++) {
        __m512i bits = _mm512_srli_epi32(meta, 6 * run);
        __m512i s = _mm512_and_si512(bits, _mm512_set1_epi32(15));
        s = _mm512_add_epi32(s, _mm512_set1_epi32(1));
        out->scale[4 * i + run] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(s));
        __m512i book = _mm512_and_si512(_mm512_srli_epi32(bits, 2), bytes_of(12));
        book = _mm512_shuffle_epi8(book, first_byte);
        for (int k = 0; k < 4; k++) {
            __m512i index = _mm512_and_si512(_mm512_srli_epi32(q[k], 2 * run), bytes_of(3));
            index = _mm512_or_si512(index, book);
            out->code[2 * i + run / 2][4 * (run % 2) + (unsigned)k] =
                _mm512_shuffle_epi8(table, index);
        }
    }
}

/* ---- types with blocks of 256 */

/* Q4_K's and Q5_K's scales and minima. */
ALWAYS_INLINE void unpack_k_scales(const __m512i head[4], rows_tile *out) {
    const __m512i six = bytes_of(63), four = bytes_of(15), top = bytes_of(48);
    __m512 d = low_f16(head[0]);
    __m512 dmin = _mm512_sub_ps(_mm512_setzero_ps(), high_f16(head[0]));
    __m512i s[2], m[2];
    s[0] = _mm512_and_si512(head[1], six);
    m[0] = _mm512_and_si512(head[2], six);
    s[1] = _mm512_and_si512(_mm512_srli_epi32(head[1], 2), top);
    s[1] = _mm512_or_si512(s[1], _mm512_and_si512(head[3], four));
    m[1] = _mm512_and_si512(_mm512_srli_epi32(head[2], 2), top);
    m[1] = _mm512_or_si512(m[1], _mm512_and_si512(_mm512_srli_epi32(head[3], 4), four));
    for (unsigned u = 0; u < TILE_UNITS; u++) {
        out->scale[u] = _mm512_mul_ps(byte_as_float(s[u / 4], u % 4), d);
        out->min[u] = _mm512_mul_ps(byte_as_float(m[u / 4], u % 4), dmin);
    }
}

/* Bytes 16 i .. 16 i + 15 of q: half of two units. */
ALWAYS_INLINE void q4_k_codes(rows_at *at, size_t i, rows_sink *to) {
    __m512i q[4];
    rows_dwords(at, offsetof(block_q4_k, q) + 16 * i, q);
    for (size_t k = 0; k < 4; k++) {
        put_code(ROWS_q4_k, to, i / 2 * 2, i % 2 * 4 + k, low_nibbles_512(q[k]));
        put_code(ROWS_q4_k, to, i / 2 * 2 + 1, i % 2 * 4 + k, high_nibbles_512(q[k]));
    }
}

/* Steps are written out where loops might be left as they are: only with constant indices do the
 * sums of a sink stay in registers. */
ALWAYS_INLINE void unpack_q4_k(rows_at *at, rows_sink *to) {
    __m512i head[4];
    rows_dwords(at, 0, head);
    unpack_k_scales(head, to->tile);
    q4_k_codes(at, 0, to);
    q4_k_codes(at, 1, to);
    q4_k_codes(at, 2, to);
    q4_k_codes(at, 3, to);
    q4_k_codes(at, 4, to);
    q4_k_codes(at, 5, to);
    q4_k_codes(at, 6, to);
    q4_k_codes(at, 7, to);
}

/* Half `half` of units j and j + 1, whose fifth bits are in high. */
ALWAYS_INLINE void q5_k_codes(rows_at *at, size_t half, unsigned j, const __m512i high[4],
                              rows_sink *to) {
    __m512i q[4];
    rows_dwords(at, offsetof(block_q5_k, q) + 16 * j + 16 * half, q);
    for (size_t k = 0; k < 4; k++) {
        __m512i first =
            j < 4 ? _mm512_slli_epi32(high[k], 4 - j) : _mm512_srli_epi32(high[k], j - 4);
        __m512i second =
            j < 3 ? _mm512_slli_epi32(high[k], 3 - j) : _mm512_srli_epi32(high[k], j - 3);
        first = select_bits(bytes_of(15), q[k], first);
        second = select_bits(bytes_of(15), _mm512_srli_epi32(q[k], 4), second);
        put_code(ROWS_q5_k, to, j, 4 * half + k, _mm512_and_si512(first, bytes_of(31)));
        put_code(ROWS_q5_k, to, j + 1, 4 * half + k, _mm512_and_si512(second, bytes_of(31)));
    }
}

ALWAYS_INLINE void q5_k_half(rows_at *at, size_t half, rows_sink *to) {
    __m512i high[4];
    rows_dwords(at, offsetof(block_q5_k, qh) + 16 * half, high);
    q5_k_codes(at, half, 0, high, to);
    q5_k_codes(at, half, 2, high, to);
    q5_k_codes(at, half, 4, high, to);
    q5_k_codes(at, half, 6, high, to);
}

ALWAYS_INLINE void unpack_q5_k(rows_at *at, rows_sink *to) {
    __m512i head[4];
    rows_dwords(at, 0, head);
    unpack_k_scales(head, to->tile);
    q5_k_half(at, 0, to);
    q5_k_half(at, 1, to);
}

/* Four bits of q and two of high: a code with 128 added. */
ALWAYS_INLINE __m512i q6_code(__m512i low, __m512i high) {
    __m512i q = _mm512_and_si512(select_bits(bytes_of(15), low, high), bytes_of(63));
    return _mm512_add_epi8(q, bytes_of(128 - 32));
}

/* Half i of units 4 half + j and 4 half + 2 + j, whose upper bits are in high. */
ALWAYS_INLINE void q6_k_codes(rows_at *at, size_t half, size_t i, size_t j, const __m512i high[4],
                              rows_sink *to) {
    __m512i q[4];
    rows_dwords(at, 64 * half + 32 * j + 16 * i, q);
    for (size_t k = 0; k < 4; k++) {
        __m512i top = j ? _mm512_srli_epi32(high[k], 2) : high[k];
        put_code(ROWS_q6_k, to, 4 * half + j, 4 * i + k, q6_code(q[k], _mm512_slli_epi32(top, 4)));
        put_code(ROWS_q6_k, to, 4 * half + 2 + j, 4 * i + k,
                 q6_code(_mm512_srli_epi32(q[k], 4), top));
    }
}

ALWAYS_INLINE void q6_k_quarter(rows_at *at, size_t half, size_t i, rows_sink *to) {
    __m512i high[4];
    rows_dwords(at, offsetof(block_q6_k, qh) + 32 * half + 16 * i, high);
    q6_k_codes(at, half, i, 0, high, to);
    q6_k_codes(at, half, i, 1, high, to);
}

ALWAYS_INLINE void unpack_q6_k(rows_at *at, rows_sink *to) {
    __m512i s[4], last[4];
    rows_dwords(at, offsetof(block_q6_k, scale), s);
    rows_dwords_and(at, offsetof(block_q6_k, d) - 14, 1, last);
    __m512 d = high_f16(last[3]);
    for (unsigned i = 0; i < 2 * TILE_UNITS; i++) {
        to->tile->scale[i] = _mm512_mul_ps(signed_byte_as_float(s[i / 4], i % 4), d);
    }
    q6_k_quarter(at, 0, 0, to);
    q6_k_quarter(at, 0, 1, to);
    q6_k_quarter(at, 1, 0, to);
    q6_k_quarter(at, 1, 1, to);
}

ALWAYS_INLINE void iq4_xs_scales(rows_at *at, rows_tile *out) {
    __m512i head[4];
    rows_dwords(at, 0, head);
    __m512 d = low_f16(head[0]);
    for (unsigned u = 0; u < TILE_UNITS; u++) {
        __m512i low = _mm512_and_si512(_mm512_srli_epi32(head[1], 4 * u), _mm512_set1_epi32(15));
        __m512i high = _mm512_srli_epi32(head[0], 16 + 2 * u);
        high = _mm512_slli_epi32(_mm512_and_si512(high, _mm512_set1_epi32(3)), 4);
        __m512i s = _mm512_sub_epi32(_mm512_or_si512(low, high), _mm512_set1_epi32(32));
        out->scale[u] = _mm512_mul_ps(_mm512_cvtepi32_ps(s), d);
    }
}

/* Whether the units of a tile share what is unpacked; else each is unpacked alone. */
ALWAYS_INLINE bool rows_units_share(enum rows_kind kind) {
    return kind == ROWS_q4_k || kind == ROWS_q5_k || kind == ROWS_q6_k || kind == ROWS_q2;
}

/* Scales and minima, and the codes of the first n_unit units of kinds whose units share; n_unit is
 * at most TILE_UNITS. */
ALWAYS_INLINE void unpack_shared(enum rows_kind kind, rows_at *at, size_t n_unit, rows_sink *to) {
    switch (kind) {
    case ROWS_q4_k:
        unpack_q4_k(at, to);
        break;
    case ROWS_q5_k:
        unpack_q5_k(at, to);
        break;
    case ROWS_q6_k:
        unpack_q6_k(at, to);
        break;
    case ROWS_q2:
        for (size_t i = 0; 2 * i < n_unit; i++) {
            unpack_q2(at, i, to->tile);
        }
        break;
    case ROWS_iq4_xs:
        iq4_xs_scales(at, to->tile);
        break;
    default:
        break;
    }
}

/* Codes of unit u, of kinds whose units do not share, and its scale where the block has but one. */
ALWAYS_INLINE void unpack_unit(enum rows_kind kind, rows_at *at, size_t u, __m512 *scale,
                               __m512i code[UNIT_DWORDS]) {
    if (kind == ROWS_iq4_xs) {
        unit_of_nibbles(at, offsetof(block_iq4_xs, q) + 16 * u, true, codebook_512(IQ4_VALUES),
                        code);
    } else {
        unpack_small(kind, at, u, scale, code);
    }
}

#endif
