/* The oracle of the ggml block types, in plain C: each type only says how a block becomes codes,
 * scales and minima (formats/ggml_blocks.h); what is computed from these is the same for all.
 *
 * Dequantised values are exact: scale times code needs at most 24 bits, so that only adding a
 * minimum rounds, once, whatever the order. Q8_0 is laid out as DT_Q8 and shares its kernels.
 */
#include "formats/ggml_blocks.h"
#include "formats/half.h"
#include "kernels/ggml_impl.h"

/* Weight i is scale[i / 16] * code[i] + min[i / 16]. */
typedef struct unpacked {
    int8_t code[256];
    float scale[16];
    float min[16];
} unpacked;

typedef void unpack_fn(const void *block, unpacked *u);

static void set_scale(unpacked *u, int32_t n_run, float scale, float min) {
    for (int32_t i = 0; i < n_run; i++) {
        u->scale[i] = scale;
        u->min[i] = min;
    }
}

/* The scale and minimum of 32 weights. */
static void set_scale_32(unpacked *u, int32_t j, float scale, float min) {
    u->scale[2 * j] = u->scale[2 * j + 1] = scale;
    u->min[2 * j] = u->min[2 * j + 1] = min;
}

static int32_t nibble(const uint8_t *q, int32_t i) {
    return q[i / 2] >> 4 * (i % 2) & 15;
}

/* Value i of 32, nibbles 16 apart. */
static int32_t nibble_16(const uint8_t *q, int32_t i) {
    return q[i % 16] >> 4 * (i / 16) & 15;
}

static int32_t bit(const uint8_t *q, int32_t i) {
    return q[i / 8] >> i % 8 & 1;
}

/* Two bits of value i of 256, in quarters of 128. */
static int32_t quarter(const uint8_t *q, int32_t i) {
    return q[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
}

/* ---- one scale for a block */

static void unpack_q4_0(const void *block, unpacked *u) {
    const block_q4_0 *b = block;
    set_scale(u, 2, f16_to_f32(b->d), 0);
    for (int32_t i = 0; i < 32; i++) {
        u->code[i] = (int8_t)(nibble_16(b->q, i) - 8);
    }
}

static void unpack_q4_1(const void *block, unpacked *u) {
    const block_q4_1 *b = block;
    set_scale(u, 2, f16_to_f32(b->d), f16_to_f32(b->m));
    for (int32_t i = 0; i < 32; i++) {
        u->code[i] = (int8_t)nibble_16(b->q, i);
    }
}

static void unpack_q5_0(const void *block, unpacked *u) {
    const block_q5_0 *b = block;
    set_scale(u, 2, f16_to_f32(b->d), 0);
    for (int32_t i = 0; i < 32; i++) {
        u->code[i] = (int8_t)(nibble_16(b->q, i) + 16 * bit(b->qh, i) - 16);
    }
}

static void unpack_q5_1(const void *block, unpacked *u) {
    const block_q5_1 *b = block;
    set_scale(u, 2, f16_to_f32(b->d), f16_to_f32(b->m));
    for (int32_t i = 0; i < 32; i++) {
        u->code[i] = (int8_t)(nibble_16(b->q, i) + 16 * bit(b->qh, i));
    }
}

static void unpack_iq4_nl(const void *block, unpacked *u) {
    const block_iq4_nl *b = block;
    set_scale(u, 2, f16_to_f32(b->d), 0);
    for (int32_t i = 0; i < 32; i++) {
        u->code[i] = IQ4_VALUES[nibble_16(b->q, i)];
    }
}

static void unpack_mxfp4(const void *block, unpacked *u) {
    const block_mxfp4 *b = block;
    set_scale(u, 2, f32_from_bits(MXFP4_SCALE_BITS[b->e]), 0);
    for (int32_t i = 0; i < 32; i++) {
        u->code[i] = FP4_VALUES[nibble_16(b->q, i)];
    }
}

/* Half of an unsigned E4M3 float, whose bits stand where a float's do, but for the exponent's bias
 * of 7 instead of 127. */
static float half_ue4m3(uint8_t e) {
    uint32_t bits = e & 0x7f;
    return bits == 0x7f ? 0.0f : f32_from_bits(bits << 20) * 0x1p119f;
}

static void unpack_nvfp4(const void *block, unpacked *u) {
    const block_nvfp4 *b = block;
    for (int32_t i = 0; i < 64; i++) {
        int32_t run = i / 16;
        u->scale[run] = half_ue4m3(b->d[run]);
        u->min[run] = 0;
        u->code[i] = FP4_VALUES[b->q[8 * run + i % 8] >> 4 * (i / 8 % 2) & 15];
    }
}

static void unpack_q1_0(const void *block, unpacked *u) {
    const block_q1_0 *b = block;
    set_scale(u, 8, f16_to_f32(b->d), 0);
    for (int32_t i = 0; i < 128; i++) {
        u->code[i] = (int8_t)(2 * bit(b->q, i) - 1);
    }
}

static void unpack_q2_0(const void *block, unpacked *u) {
    const block_q2_0 *b = block;
    set_scale(u, 4, f16_to_f32(b->d), 0);
    for (int32_t i = 0; i < 64; i++) {
        u->code[i] = (int8_t)((b->q[i / 4] >> 2 * (i % 4) & 3) - 1);
    }
}

static int8_t ternary_digit(uint8_t q, int32_t n) {
    static const uint8_t power[] = {1, 3, 9, 27, 81};
    uint8_t fraction = (uint8_t)(q * power[n]);
    return (int8_t)((fraction * 3 >> 8) - 1);
}

static void unpack_tq1_0(const void *block, unpacked *u) {
    const block_tq1_0 *b = block;
    set_scale(u, 16, f16_to_f32(b->d), 0);
    for (int32_t i = 0; i < 160; i++) {
        u->code[i] = ternary_digit(b->q[i % 32], i / 32);
    }
    for (int32_t i = 0; i < 80; i++) {
        u->code[160 + i] = ternary_digit(b->q[32 + i % 16], i / 16);
    }
    for (int32_t i = 0; i < 16; i++) {
        u->code[240 + i] = ternary_digit(b->qh[i % 4], i / 4);
    }
}

static void unpack_tq2_0(const void *block, unpacked *u) {
    const block_tq2_0 *b = block;
    set_scale(u, 16, f16_to_f32(b->d), 0);
    for (int32_t i = 0; i < 256; i++) {
        u->code[i] = (int8_t)(quarter(b->q, i) - 1);
    }
}

/* ---- 256 weights, scales within the block's scale */

static void unpack_q2_k(const void *block, unpacked *u) {
    const block_q2_k *b = block;
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
    for (int32_t i = 0; i < 16; i++) {
        u->scale[i] = d * (float)(b->scale[i] & 15);
        u->min[i] = -(dmin * (float)(b->scale[i] >> 4));
    }
    for (int32_t i = 0; i < 256; i++) {
        u->code[i] = (int8_t)quarter(b->q, i);
    }
}

static void unpack_q3_k(const void *block, unpacked *u) {
    const block_q3_k *b = block;
    float d = f16_to_f32(b->d);
    for (int32_t i = 0; i < 16; i++) {
        int32_t low = b->scale[i % 8] >> 4 * (i / 8) & 15;
        int32_t high = b->scale[8 + i % 4] >> 2 * (i / 4) & 3;
        u->scale[i] = d * (float)(low + 16 * high - 32);
        u->min[i] = 0;
    }
    for (int32_t i = 0; i < 256; i++) {
        int32_t high = b->hmask[i % 32] >> i / 32 & 1;
        u->code[i] = (int8_t)(quarter(b->q, i) + 4 * high - 4);
    }
}

/* Q4_K's and Q5_K's scales and minima. */
static void unpack_k_scales(uint16_t d_bits, uint16_t dmin_bits, const uint8_t *scale,
                            unpacked *u) {
    float d = f16_to_f32(d_bits), dmin = f16_to_f32(dmin_bits);
    for (int32_t j = 0; j < 4; j++) {
        uint8_t s = scale[j], m = scale[4 + j], rest = scale[8 + j];
        set_scale_32(u, j, d * (float)(s & 63), -(dmin * (float)(m & 63)));
        set_scale_32(u, 4 + j, d * (float)((rest & 15) + (s >> 6) * 16),
                     -(dmin * (float)((rest >> 4) + (m >> 6) * 16)));
    }
}

/* Value i of 256, nibbles 32 apart. */
static int32_t nibble_32(const uint8_t *q, int32_t i) {
    return q[i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
}

static void unpack_q4_k(const void *block, unpacked *u) {
    const block_q4_k *b = block;
    unpack_k_scales(b->d, b->dmin, b->scale, u);
    for (int32_t i = 0; i < 256; i++) {
        u->code[i] = (int8_t)nibble_32(b->q, i);
    }
}

static void unpack_q5_k(const void *block, unpacked *u) {
    const block_q5_k *b = block;
    unpack_k_scales(b->d, b->dmin, b->scale, u);
    for (int32_t i = 0; i < 256; i++) {
        u->code[i] = (int8_t)(nibble_32(b->q, i) + 16 * (b->qh[i % 32] >> i / 32 & 1));
    }
}

static void unpack_q6_k(const void *block, unpacked *u) {
    const block_q6_k *b = block;
    float d = f16_to_f32(b->d);
    for (int32_t i = 0; i < 16; i++) {
        u->scale[i] = d * (float)b->scale[i];
        u->min[i] = 0;
    }
    for (int32_t i = 0; i < 256; i++) {
        int32_t low = b->ql[i / 128 * 64 + i % 64] >> 4 * (i / 64 % 2) & 15;
        u->code[i] = (int8_t)(low + 16 * quarter(b->qh, i) - 32);
    }
}

static void unpack_iq4_xs(const void *block, unpacked *u) {
    const block_iq4_xs *b = block;
    float d = f16_to_f32(b->d);
    for (int32_t j = 0; j < 8; j++) {
        int32_t s = nibble(b->scale_low, j) + 16 * (b->scale_high >> 2 * j & 3);
        set_scale_32(u, j, d * (float)(s - 32), 0);
    }
    for (int32_t i = 0; i < 256; i++) {
        u->code[i] = IQ4_VALUES[nibble_16(b->q + i / 32 * 16, i % 32)];
    }
}

/* ---- grids */

/* n weights of a grid entry, negative where sign has a bit. */
static void put_group(int8_t *code, int32_t n, uint64_t entry, uint32_t sign) {
    for (int32_t k = 0; k < n; k++) {
        int32_t magnitude = (int32_t)(entry >> 8 * k & 255);
        code[k] = (int8_t)(sign >> k & 1 ? -magnitude : magnitude);
    }
}

/* The eighth sign from seven. */
static uint32_t even_signs(uint32_t seven) {
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

static uint32_t load_u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void unpack_iq2_xxs(const void *block, unpacked *u) {
    const block_iq2_xxs *b = block;
    float d = f16_to_f32(b->d) * 0.125f;
    for (int32_t j = 0; j < 8; j++) {
        const uint8_t *q = b->q + 8 * j;
        uint32_t rest = load_u32(q + 4);
        set_scale_32(u, j, d * (float)(2 * (rest >> 28) + 1), 0);
        for (int32_t g = 0; g < 4; g++) {
            put_group(u->code + 32 * j + 8 * g, 8, IQ2_XXS_GRID[q[g]],
                      even_signs(rest >> 7 * g & 127));
        }
    }
}

/* Nibbles s of 16 weights as scales d * (2 s + 1). */
static void unpack_odd_scales(float d, const uint8_t *scale, unpacked *u) {
    for (int32_t i = 0; i < 16; i++) {
        u->scale[i] = d * (float)(2 * nibble(scale, i) + 1);
        u->min[i] = 0;
    }
}

static void unpack_iq2_xs(const void *block, unpacked *u) {
    const block_iq2_xs *b = block;
    unpack_odd_scales(f16_to_f32(b->d) * 0.125f, b->scale, u);
    for (int32_t g = 0; g < 32; g++) {
        uint16_t q = b->q[g];
        put_group(u->code + 8 * g, 8, IQ2_XS_GRID[q & 511], even_signs(q >> 9));
    }
}

static void unpack_iq2_s(const void *block, unpacked *u) {
    const block_iq2_s *b = block;
    unpack_odd_scales(f16_to_f32(b->d) * 0.125f, b->scale, u);
    for (int32_t g = 0; g < 32; g++) {
        uint32_t index = b->q[g] | ((uint32_t)b->qh[g / 4] >> 2 * (g % 4) & 3) << 8;
        put_group(u->code + 8 * g, 8, IQ2_S_GRID[index], b->sign[g]);
    }
}

static void unpack_iq3_xxs(const void *block, unpacked *u) {
    const block_iq3_xxs *b = block;
    float d = f16_to_f32(b->d) * 0.25f;
    for (int32_t j = 0; j < 8; j++) {
        uint32_t rest = load_u32(b->sign_scale + 4 * j);
        set_scale_32(u, j, d * (float)(2 * (rest >> 28) + 1), 0);
        for (int32_t g = 0; g < 8; g++) {
            uint32_t sign = even_signs(rest >> 7 * (g / 2) & 127) >> 4 * (g % 2);
            put_group(u->code + 32 * j + 4 * g, 4, IQ3_XXS_GRID[b->q[8 * j + g]], sign);
        }
    }
}

static void unpack_iq3_s(const void *block, unpacked *u) {
    const block_iq3_s *b = block;
    float d = f16_to_f32(b->d);
    for (int32_t j = 0; j < 8; j++) {
        set_scale_32(u, j, d * (float)(2 * nibble(b->scale, j) + 1), 0);
    }
    for (int32_t g = 0; g < 64; g++) {
        uint32_t index = b->q[g] | (uint32_t)bit(b->qh, g) << 8;
        put_group(u->code + 4 * g, 4, IQ3_S_GRID[index], (uint32_t)nibble(b->sign, g));
    }
}

/* Eight weights 8 (grid - 1) +- 1. */
static void put_ternary(int8_t *code, uint64_t entry, bool minus) {
    for (int32_t k = 0; k < 8; k++) {
        code[k] = (int8_t)((int32_t)(entry >> 8 * k & 255) - 8 + (minus ? -1 : 1));
    }
}

static void unpack_iq1_s(const void *block, unpacked *u) {
    const block_iq1_s *b = block;
    float d = f16_to_f32(b->d) * 0.125f;
    for (int32_t j = 0; j < 8; j++) {
        uint32_t rest = b->qh[j];
        set_scale_32(u, j, d * (float)(2 * (rest >> 12 & 7) + 1), 0);
        for (int32_t g = 0; g < 4; g++) {
            uint32_t index = b->q[4 * j + g] | (rest >> 3 * g & 7) << 8;
            put_ternary(u->code + 32 * j + 8 * g, IQ1_GRID[index], rest >> 15);
        }
    }
}

static void unpack_iq1_m(const void *block, unpacked *u) {
    const block_iq1_m *b = block;
    uint32_t d_bits = 0;
    for (int32_t i = 0; i < 4; i++) {
        d_bits |= (uint32_t)(b->scale[i] >> 12) << 4 * i;
    }
    float d = f16_to_f32((uint16_t)d_bits) * 0.125f;
    for (int32_t i = 0; i < 16; i++) {
        u->scale[i] = d * (float)(2 * (b->scale[i / 4] >> 3 * (i % 4) & 7) + 1);
        u->min[i] = 0;
    }
    for (int32_t g = 0; g < 32; g++) {
        uint32_t rest = (uint32_t)nibble(b->qh, g);
        put_ternary(u->code + 8 * g, IQ1_GRID[b->q[g] | (rest & 7) << 8], rest >> 3);
    }
}

/* ---- what all types share */

static void dequant(unpack_fn *unpack, int32_t elems, size_t bytes, const void *w, int32_t n_col,
                    float *out) {
    const uint8_t *block = w;
    for (int32_t c = 0; c < n_col; c += elems, block += bytes) {
        unpacked u;
        unpack(block, &u);
        int32_t n = n_col - c < elems ? n_col - c : elems;
        for (int32_t i = 0; i < n; i++) {
            out[c + i] = u.scale[i / 16] * (float)u.code[i] + u.min[i / 16];
        }
    }
}

static float dot_16(const unpacked *u, int32_t run, const act_q8 *x, int32_t from) {
    int32_t dot = 0, sum = 0;
    for (int32_t i = 0; i < 16; i++) {
        dot += u->code[16 * run + i] * x->q[from + i];
        sum += x->q[from + i];
    }
    return x->d * (u->scale[run] * (float)dot + u->min[run] * (float)sum);
}

static float dot_row(unpack_fn *unpack, int32_t elems, size_t bytes, const uint8_t *block,
                     int32_t n_col, const act_q8 *x) {
    float total = 0;
    for (int32_t c = 0; c < n_col; c += elems, block += bytes) {
        unpacked u;
        unpack(block, &u);
        int32_t n = n_col - c < elems ? n_col - c : elems;
        for (int32_t i = 0; i < n; i += 16) {
            total += dot_16(&u, i / 16, &x[(c + i) / 32], i % 32);
        }
    }
    return total;
}

static void mm_q8(unpack_fn *unpack, int32_t elems, size_t bytes, float *y, size_t y_stride,
                  const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col, const act_q8 *x,
                  size_t x_stride, int32_t n_tok) {
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t r = 0; r < n_row; r++) {
            y[(size_t)t * y_stride + (size_t)r] =
                dot_row(unpack, elems, bytes, weight_row(w, w_row_bytes, r), n_col,
                        x + (size_t)t * x_stride);
        }
    }
}

#define KERNELS(type, slot, elems)                                                                 \
    static void dequant_##type(const void *w, int32_t n_col, float *out) {                         \
        dequant(unpack_##type, elems, sizeof(block_##type), w, n_col, out);                        \
    }                                                                                              \
    static void mm_f32_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,        \
                              int32_t n_row, int32_t n_col, const void *x, size_t x_stride,        \
                              int32_t n_tok) {                                                     \
        mm_dequant_portable(dequant_##type, MM_CHUNK / (elems) * sizeof(block_##type), y,          \
                            y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);           \
    }                                                                                              \
    static void mm_q8_##type(float *y, size_t y_stride, const void *w, size_t w_row_bytes,         \
                             int32_t n_row, int32_t n_col, const void *x, size_t x_stride,         \
                             int32_t n_tok) {                                                      \
        mm_q8(unpack_##type, elems, sizeof(block_##type), y, y_stride, w, w_row_bytes, n_row,      \
              n_col, x, x_stride, n_tok);                                                          \
    }
GGML_TYPES(KERNELS)

#define FILL(type, slot, elems)                                                                    \
    k->dequant_row[slot] = dequant_##type;                                                         \
    k->mm_f32[slot] = mm_f32_##type;                                                               \
    k->mm_q8[slot] = mm_q8_##type;

void kernels_fill_ggml_portable(kernels *k) {
    GGML_TYPES(FILL)
    kernels_share_q8_0(k);
}
