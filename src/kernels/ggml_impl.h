/* Private to kernels/: what the files of the ggml block types share with each other and with the
 * files of their instruction set.
 */
#ifndef SMOE_KERNELS_GGML_IMPL_H
#define SMOE_KERNELS_GGML_IMPL_H

#include "kernels/kernels_impl.h"

/* Each after its instruction set's kernels_fill_*, whose Q8 kernels it gives to Q8_0 too. AVX2's
 * leaves the integer products of GGML_ROWS_TYPES alone, AVX-512 takes AVX2's for all but these. */
void kernels_fill_ggml_portable(kernels *k);
#if defined(__x86_64__)
void kernels_fill_ggml_avx2(kernels *k);
#endif
#if defined(__aarch64__)
void kernels_fill_ggml_neon(kernels *k); /* what rows_neon.c has not */
#endif

typedef void dequant_fn(const void *w, int32_t n_col, float *out);

/* mm_f32 of weights that dequant turns into floats, chunk_bytes for each MM_CHUNK of them. */
typedef void mm_dequant_fn(dequant_fn *dequant, size_t chunk_bytes, float *y, size_t y_stride,
                           const void *w, size_t w_row_bytes, int32_t n_row, int32_t n_col,
                           const void *x, size_t x_stride, int32_t n_tok);
mm_dequant_fn mm_dequant_portable; /* portable.c */
#if defined(__x86_64__)
mm_dequant_fn mm_dequant_avx2; /* x86_avx2.c */
#endif
#if defined(__aarch64__)
mm_dequant_fn mm_dequant_neon;    /* float_neon.c */
mm_dequant_fn mm_dequant_q8_neon; /* the same of act_q8: x as integers times their scale */
#endif

/* Q8_0 is Q8 by another name. */
static inline void kernels_share_q8_0(kernels *k) {
    k->mm_f32[DT_Q8_0] = k->mm_f32[DT_Q8];
    k->mm_q8[DT_Q8_0] = k->mm_q8[DT_Q8];
    k->dequant_row[DT_Q8_0] = k->dequant_row[DT_Q8];
}

/* X(type, slot, weights of a block) for each ggml type with kernels of its own: those whose integer
 * products have kernels of rows side by side on x86, and the others. */
#define GGML_ROWS_TYPES(X)                                                                         \
    X(q4_0, DT_Q4_0, 32)                                                                           \
    X(q4_k, DT_Q4_K, 256)                                                                          \
    X(q5_k, DT_Q5_K, 256)                                                                          \
    X(q6_k, DT_Q6_K, 256)                                                                          \
    X(iq4_nl, DT_IQ4_NL, 32)                                                                       \
    X(iq4_xs, DT_IQ4_XS, 256)                                                                      \
    X(mxfp4, DT_MXFP4, 32)
#define GGML_OTHER_TYPES(X)                                                                        \
    GGML_RARE_TYPES(X)                                                                             \
    X(q4_1, DT_Q4_1, 32)                                                                           \
    X(q5_0, DT_Q5_0, 32)                                                                           \
    X(q5_1, DT_Q5_1, 32)                                                                           \
    X(q2_k, DT_Q2_K, 256)                                                                          \
    X(q3_k, DT_Q3_K, 256)
#define GGML_RARE_TYPES(X)                                                                         \
    X(iq1_s, DT_IQ1_S, 256)                                                                        \
    X(iq1_m, DT_IQ1_M, 256)                                                                        \
    X(iq2_xxs, DT_IQ2_XXS, 256)                                                                    \
    X(iq2_xs, DT_IQ2_XS, 256)                                                                      \
    X(iq2_s, DT_IQ2_S, 256)                                                                        \
    X(iq3_xxs, DT_IQ3_XXS, 256)                                                                    \
    X(iq3_s, DT_IQ3_S, 256)                                                                        \
    X(tq1_0, DT_TQ1_0, 256)                                                                        \
    X(tq2_0, DT_TQ2_0, 256)                                                                        \
    X(nvfp4, DT_NVFP4, 64)                                                                         \
    X(q1_0, DT_Q1_0, 128)                                                                          \
    X(q2_0, DT_Q2_0, 64)
#define GGML_TYPES(X) GGML_ROWS_TYPES(X) GGML_OTHER_TYPES(X)

#endif
