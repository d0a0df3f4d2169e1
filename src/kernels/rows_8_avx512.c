/* Products of one token with wide rows, eight side by side, x86_rows.h, of types with blocks of
 * 32 weights; rows_avx512.c says from which width. Sixteen are more than L1 holds together with
 * what is prefetched. Needs AVX-512 F, BW, VL, DQ and VNNI; called only where the CPU has them. */
#if defined(__x86_64__)

#define ROWS_AVX512_VNNI
#include "kernels/x86_rows_256.h"

#include "kernels/x86_rows.h"

ROWS_TOKEN_KERNEL(eight_rows_q8, q8)
ROWS_TOKEN_KERNEL(eight_rows_q4, q4)
ROWS_TOKEN_KERNEL(eight_rows_q4_0, q4_0)

#endif
