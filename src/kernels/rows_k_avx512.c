/* Sixteen rows side by side, x86_rows.h, of the types with blocks of 256 weights.
 * Compiled for AVX-512 F, BW, VL, DQ and VNNI; called only where the CPU has them. */
#if defined(__x86_64__)

#include "kernels/x86_rows_512.h"

#include "kernels/x86_rows.h"

ROWS_KERNEL(q4_k)
ROWS_KERNEL(q5_k)
ROWS_KERNEL(q6_k)
ROWS_KERNEL(iq4_xs)

void kernels_fill_rows_k_avx512(kernels *k) {
    k->mm_q8[DT_Q4_K] = mm_q8_q4_k;
    k->mm_q8[DT_Q5_K] = mm_q8_q5_k;
    k->mm_q8[DT_Q6_K] = mm_q8_q6_k;
    k->mm_q8[DT_IQ4_XS] = mm_q8_iq4_xs;
}

#endif
