/* Random blocks of each type; see synth.h. Nothing is quantised: codes and scales are drawn as they
 * are stored, and the scale of scales is chosen so that weights get the wanted deviation. */
#include <math.h>
#include <string.h>

#include "formats/ggml_blocks.h"
#include "formats/half.h"
#include "sculptor/synth.h"

/* ---- what a type's codes give */

/* Standard deviations of code times sub-scale as drawn below, for a scale of 1. */
static const struct {
    dtype type;
    double std;
    double mean; /* of the codes: minimum = mean * scale; 0: the type has no minimum */
} codes[] = {
    /* q 0 to 15: variance (16^2 - 1) / 12 */
    {DT_Q4_0, 4.637, 0},
    {DT_Q5_0, 9.247, 0},
    {DT_Q5_1, 9.233, 15.5},
    {DT_Q8_0, 73.468, 0},
    /* s 8 to 15, q 0 to 3 */
    {DT_Q2_K, 11.727 * 1.11803, 1.5},
    /* s -32 to 31, q -4 to 3 */
    {DT_Q3_K, 18.48 * 2.3452, 0},
    /* s 32 to 63, q 0 to 15 */
    {DT_Q4_K, 48.389 * 4.6098, 7.5},
    {DT_Q5_K, 48.389 * 9.2331, 15.5},
    /* s 64 to 127 of either sign, q -32 to 31 */
    {DT_Q6_K, 97.270 * 18.480, 0},
    {DT_IQ4_NL, 67.439, 0},
    {DT_IQ4_XS, 18.48 * 67.439, 0},
    {DT_MXFP4, 5.8523, 0},
    {DT_F16, 1, 0},
    {DT_BF16, 1, 0},
    {DT_F32, 1, 0},
};

bool synth_has_type(dtype type) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].type == type) {
            return true;
        }
    }
    return false;
}

/* Scales have few enough bits that the minimum, a small multiple of a half, is exact in f16 as
 * well; the smallest halves are 2^-24 apart. */
static double short_scale(double d) {
    int e;
    frexp(d, &e);
    double step = ldexp(1, e - 6);
    step = step < 0x1p-23 ? 0x1p-23 : step;
    double rounded = nearbyint(d / step) * step;
    return rounded > 0 ? rounded : step;
}

void synth_fill_init(synth_fill *f, dtype type, uint64_t key, double std) {
    *f = (synth_fill){.type = type, .key = key, .std = std};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].type != type) {
            continue;
        }
        for (int k = 0; k < SYNTH_SCALES; k++) {
            double around = 1 + (k - (SYNTH_SCALES - 1) / 2.0) / 64;
            double d = std / codes[i].std * around;
            d = codes[i].mean > 0 ? short_scale(d) : d;
            f->d[k] = f32_to_f16((float)d);
            f->dmin[k] = f32_to_f16((float)(d * codes[i].mean));
        }
    }
}

/* ---- blocks */

static void fill_bits(uint64_t key, uint64_t at, uint8_t *out, size_t bytes) {
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t v = synth_bits(key, at++);
        memcpy(out + i, &v, 8);
    }
    if (i < bytes) {
        uint64_t v = synth_bits(key, at);
        memcpy(out + i, &v, bytes - i);
    }
}

static void put_half(uint8_t *at, uint16_t v) {
    memcpy(at, &v, sizeof v);
}

/* Six-bit scales 32 to 63 in Q4_K's packing, the minima with the same numbers. */
static void pack_scales(uint64_t bits, uint8_t scale[12]) {
    for (int i = 0; i < 4; i++) {
        uint8_t low = (uint8_t)(32 + (bits >> 5 * i & 31));
        uint8_t high = (uint8_t)(32 + (bits >> (20 + 5 * i) & 31));
        scale[i] = scale[4 + i] = (uint8_t)(low | (high >> 4) << 6);
        scale[8 + i] = (uint8_t)((high & 15) | (high & 15) << 4);
    }
}

static void fix_q8_0(const synth_fill *f, uint64_t bits, uint8_t *out) {
    block_q8 *b = (block_q8 *)(void *)out;
    put_half(out, f->d[bits % SYNTH_SCALES]);
    for (int i = 0; i < 32; i++) {
        b->q[i] = b->q[i] == -128 ? 0 : b->q[i];
    }
}

/* The mean of the codes is half a step off zero, so the scale's sign is drawn too. */
static uint16_t signed_scale(const synth_fill *f, uint64_t bits) {
    return (uint16_t)(f->d[bits % SYNTH_SCALES] ^ (bits >> 8 & 1) << 15);
}

static void fix_q6_k(const synth_fill *f, uint64_t bits, uint8_t *out) {
    block_q6_k *b = (block_q6_k *)(void *)out;
    for (int i = 0; i < 16; i++) {
        int s = 64 + (b->scale[i] & 63);
        b->scale[i] = (int8_t)(b->scale[i] < 0 ? -s : s);
    }
    put_half((uint8_t *)&b->d, f->d[bits % SYNTH_SCALES]);
}

static void fix_q2_k(const synth_fill *f, uint64_t bits, uint8_t *out) {
    block_q2_k *b = (block_q2_k *)(void *)out;
    for (int i = 0; i < 16; i++) {
        uint8_t s = (uint8_t)(8 + (b->scale[i] & 7));
        b->scale[i] = (uint8_t)(s | s << 4);
    }
    put_half((uint8_t *)&b->d, f->d[bits % SYNTH_SCALES]);
    put_half((uint8_t *)&b->dmin, f->dmin[bits % SYNTH_SCALES]);
}

/* Powers of two around the wanted scale, as often as makes the mean square right. */
static void fix_mxfp4(const synth_fill *f, uint64_t bits, uint8_t *out) {
    double scale = f->std / 5.8523;
    int e;
    double m = 2 * frexp(scale, &e); /* scale = m 2^(e - 1), m in [1, 2) */
    double often = (m * m - 1) / 3;
    bool up = (double)(bits >> 11) * 0x1p-53 < often;
    int exponent = 128 + e - 1 + up;
    out[0] = (uint8_t)(exponent < 1 ? 1 : exponent > 254 ? 254 : exponent);
}

/* Turns random bytes into a valid block. */
static void fix_block(const synth_fill *f, uint64_t bits, uint8_t *out) {
    uint16_t d = f->d[bits % SYNTH_SCALES], dmin = f->dmin[bits % SYNTH_SCALES];
    size_t last = (size_t)dtype_get(f->type)->block_bytes - 2;
    switch (f->type) {
    case DT_Q8_0:
        fix_q8_0(f, bits, out);
        break;
    case DT_Q4_K:
    case DT_Q5_K:
        put_half(out, d);
        put_half(out + 2, dmin);
        pack_scales(bits >> 4, out + 4);
        break;
    case DT_Q6_K:
        fix_q6_k(f, bits, out);
        break;
    case DT_Q2_K:
        fix_q2_k(f, bits, out);
        break;
    case DT_Q3_K:
        put_half(out + last, signed_scale(f, bits));
        break;
    case DT_Q5_1:
        put_half(out, d);
        put_half(out + 2, dmin ^ 0x8000); /* added, not taken off */
        break;
    case DT_MXFP4:
        fix_mxfp4(f, bits, out);
        break;
    default: /* Q4_0, Q5_0, IQ4_NL, IQ4_XS */
        put_half(out, signed_scale(f, bits));
    }
}

static void put_float(dtype type, double v, uint8_t *out) {
    float x = (float)v;
    uint16_t h = type == DT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
    if (type == DT_F32) {
        memcpy(out, &x, sizeof x);
    } else {
        put_half(out, h);
    }
}

static bool is_float(dtype type) {
    return type == DT_F32 || type == DT_F16 || type == DT_BF16;
}

void synth_blocks(const synth_fill *f, uint64_t first, uint64_t n_block, uint8_t *out) {
    size_t bytes = dtype_get(f->type)->block_bytes;
    uint64_t draws = (bytes + 7) / 8 + 1; /* of a block */
    for (uint64_t i = 0; i < n_block; i++, out += bytes) {
        uint64_t at = (first + i) * draws;
        if (is_float(f->type)) {
            put_float(f->type, synth_unit(f->key, first + i) * f->std * sqrt(3), out);
        } else {
            fill_bits(f->key, at + 1, out, bytes);
            fix_block(f, synth_bits(f->key, at), out);
        }
    }
}

double synth_normal(uint64_t key, uint64_t i) {
    double u = (synth_unit(key, 2 * i) + 1) / 2, v = synth_unit(key, 2 * i + 1);
    return sqrt(-2 * log(u)) * cos(3.14159265358979323846 * v); /* Box and Muller 1958 */
}

/* ---- edges */

void synth_edge_row(const synth_fill *f, synth_edge edge, uint8_t *row) {
    bool zero = edge == SYNTH_EDGE_ZERO;
    size_t bytes = dtype_get(f->type)->block_bytes;
    if (edge == SYNTH_EDGE_RANDOM) {
        return;
    }
    if (f->type == DT_Q6_K) { /* 32 columns are two sub-scales; q 63 stands for 31 */
        block_q6_k *b = (block_q6_k *)(void *)row;
        double one = 31 * (double)f16_to_f32(b->d);
        b->scale[0] = b->scale[1] = (int8_t)(zero ? 0 : nearbyint(f->std / one));
        for (int i = 0; i < SYNTH_EDGE; i++) {
            b->ql[i] |= 15;
            b->qh[i] |= 3;
        }
    } else if (f->type == DT_Q8_0) {
        put_half(row, zero ? 0 : f32_to_f16((float)(f->std / 64)));
        memset(row + 2, 64, bytes - 2);
    } else {
        for (int i = 0; i < SYNTH_EDGE; i++) {
            put_float(f->type, zero ? 0 : f->std, row + (size_t)i * bytes);
        }
    }
}

dtype synth_edge_type(dtype type, int32_t n_col) {
    if (is_float(type) || type == DT_Q8_0) {
        return type;
    }
    return n_col % 256 == 0 ? DT_Q6_K : DT_Q8_0;
}

/* As llama.cpp's quantisation tool falls back. */
dtype synth_dividing_type(dtype type, int32_t n_col) {
    if (n_col % dtype_get(type)->block_elems == 0) {
        return type;
    }
    switch (type) {
    case DT_Q4_K:
        return DT_Q5_0;
    case DT_Q5_K:
        return DT_Q5_1;
    case DT_Q6_K:
        return DT_Q8_0;
    default:
        return DT_IQ4_NL;
    }
}
