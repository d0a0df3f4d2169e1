/* Sixteen rows side by side, x86_rows.h, of the types with blocks of 256 weights.
 * Compiled for AVX-512 F, BW, VL, DQ and VNNI; called only where the CPU has them. */
#if defined(__x86_64__)

#include "kernels/x86_rows_512.h"

#include "kernels/x86_rows.h"

/* Widths from which eight rows are faster with one token, measured on Zen 5 from memory. */
ROWS_KERNEL_AND(eight_rows_q4_k, q4_k, 1024)
ROWS_KERNEL_AND(eight_rows_q5_k, q5_k, 2048)
ROWS_KERNEL_AND(eight_rows_q6_k, q6_k, 1536)
ROWS_KERNEL(iq4_xs)

void kernels_fill_rows_k_avx512(kernels *k) {
    k->mm_q8[DT_Q4_K] = either_q4_k;
    k->mm_q8[DT_Q5_K] = either_q5_k;
    k->mm_q8[DT_Q6_K] = either_q6_k;
    k->mm_q8[DT_IQ4_XS] = mm_q8_iq4_xs;
}

#endif
