/* Sixteen rows side by side, x86_rows.h, of the types with blocks of 32 or 64 weights.
 * Compiled for AVX-512 F, BW, VL, DQ and VNNI; called only where the CPU has them. */
#if defined(__x86_64__)

#include "kernels/x86_rows_512.h"

#include "kernels/x86_rows.h"

/* Widths from which eight rows are faster with one token, measured on Zen 5 from memory. */
ROWS_KERNEL_AND(eight_rows_q8, q8, 1)
ROWS_KERNEL_AND(eight_rows_q4, q4, 2048)
ROWS_KERNEL(q2)
ROWS_KERNEL_AND(eight_rows_q4_0, q4_0, 1024)
ROWS_KERNEL(iq4_nl)
ROWS_KERNEL(mxfp4)

void kernels_fill_rows_avx512(kernels *k) {
    k->mm_q8[DT_Q8] = either_q8;
    k->mm_q8[DT_Q4] = either_q4;
    k->mm_q8[DT_Q2] = mm_q8_q2;
    k->mm_q8[DT_Q4_0] = either_q4_0;
    k->mm_q8[DT_IQ4_NL] = mm_q8_iq4_nl;
    k->mm_q8[DT_MXFP4] = mm_q8_mxfp4;
}

#endif
