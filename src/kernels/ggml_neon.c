/* The ggml block types that rows_neon.c has not: the portable kernels turn a few rows at a time
 * into floats, and those are multiplied with every token. Called only where the CPU has ASIMD.
 */
#if defined(__aarch64__)

#include "formats/ggml_blocks.h"
#include "kernels/ggml_impl.h"

#define FLOAT_KERNEL(name, multiply, type, slot, elems)                                            \
    static void name(float *y, size_t y_stride, const void *w, size_t w_row_bytes, int32_t n_row,  \
                     int32_t n_col, const void *x, size_t x_stride, int32_t n_tok) {               \
        multiply(kernels_variant(0)->dequant_row[slot], MM_CHUNK / (elems) * sizeof(block_##type), \
                 y, y_stride, w, w_row_bytes, n_row, n_col, x, x_stride, n_tok);                   \
    }
#define FLOAT_KERNELS(type, slot, elems)                                                           \
    FLOAT_KERNEL(mm_f32_##type, mm_dequant_neon, type, slot, elems)                                \
    FLOAT_KERNEL(mm_q8_##type, mm_dequant_q8_neon, type, slot, elems)
GGML_RARE_TYPES(FLOAT_KERNELS)

#define FLOAT_FILL(type, slot, elems)                                                              \
    k->mm_f32[slot] = mm_f32_##type;                                                               \
    k->mm_q8[slot] = mm_q8_##type;

void kernels_fill_ggml_neon(kernels *k) {
    GGML_RARE_TYPES(FLOAT_FILL)
    kernels_share_q8_0(k);
}

#endif
