/* Matrix products with float activations, and attention over cached rows, for ASIMD. Called only
 * where the CPU has it.
 *
 * Block types that no file multiplies as integers come here for mm_q8 too.
 */
#if defined(__aarch64__)

#include "kernels/ggml_impl.h"
#include "kernels/neon_vector.h"

/* Sums take half of the registers. One can go on only when its last step is through, so that many
 * keep the multipliers busier than few. */
enum { FLOAT_TOKENS = 4, FLOAT_SINGLE_ROWS = 8, KV_QUERIES = 4, KV_MIX_VECS = 4, Q8_QUERIES = 2 };

#include "kernels/vec_kv_q8.h"

/* ---- rows that are dequantised first */

void mm_dequant_neon(dequant_fn *dequant, size_t chunk_bytes, float *y, size_t y_stride,
                     const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col, const void *x,
                     size_t x_stride, int32_t n_tok) {
    const float_reader reader = {dequant, chunk_bytes, chunk_f32};
    mm_float(&reader, y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);
}

/* 0 < n <= MM_CHUNK activations, d * q. */
static void dequant_act(const act_q8 *x, int32_t n, float *out) {
    for (int32_t c = 0; c < n; c += 32, x++) {
        float part[32], *to = n - c < 32 ? part : out + c;
        for (int i = 0; i < 4; i++) {
            int16x8_t q = vmovl_s8(vld1_s8(x->q + 8 * i));
            float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(q)));
            float32x4_t high = vcvtq_f32_s32(vmovl_high_s16(q));
            vst1q_f32(to + 8 * i, vmulq_n_f32(low, x->d));
            vst1q_f32(to + 8 * i + 4, vmulq_n_f32(high, x->d));
        }
        if (to == part) {
            memcpy(out + c, part, (size_t)(n - c) * sizeof *out);
        }
    }
}

void mm_dequant_q8_neon(dequant_fn *dequant, size_t chunk_bytes, float *y, size_t y_stride,
                        const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col,
                        const void *x, size_t x_stride, int32_t n_tok) {
    float weights[FLOAT_ROWS * MM_CHUNK] __attribute__((aligned(64)));
    float acts[FLOAT_TOKENS * MM_CHUNK] __attribute__((aligned(64)));
    for (int32_t r = 0; r < n_row;) {
        int rows = n_row - r >= FLOAT_ROWS ? FLOAT_ROWS : 1;
        const uint8_t *from = weight_row(w, w_row_bytes, r);
        for (int32_t c = 0; c < n_col; c += MM_CHUNK, from += chunk_bytes) {
            int32_t n = n_col - c < MM_CHUNK ? n_col - c : MM_CHUNK;
            for (int i = 0; i < rows; i++) {
                dequant(from + w_row_bytes * (size_t)i, n, weights + i * MM_CHUNK);
            }
            for (int32_t t = 0; t < n_tok; t += FLOAT_TOKENS) {
                const act_q8 *act = (const act_q8 *)x + x_stride * (size_t)t + c / 32;
                int32_t some = n_tok - t < FLOAT_TOKENS ? n_tok - t : FLOAT_TOKENS;
                for (int32_t i = 0; i < some; i++) {
                    dequant_act(act + x_stride * (size_t)i, n, acts + i * MM_CHUNK);
                }
                chunk_f32(rows, c == 0, y + y_stride * (size_t)t + r, y_stride,
                          (const uint8_t *)weights, MM_CHUNK * sizeof *weights, n, acts, MM_CHUNK,
                          some);
            }
        }
        r += rows;
    }
}

void kernels_fill_float_neon(kernels *k) {
    fill_float_slots(k);
    fill_kv_slots(k);
    fill_q8_slots(k);
}

#endif
