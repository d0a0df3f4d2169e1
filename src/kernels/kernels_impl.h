/* Private to kernels/: what the portable oracle and the instruction-set files share. */
#ifndef SMOE_KERNELS_KERNELS_IMPL_H
#define SMOE_KERNELS_KERNELS_IMPL_H

#include "kernels/kernels.h"

/* Each fills the slots that it has and leaves the others as they are. */
void kernels_fill_portable(kernels *k);
#if defined(__x86_64__)
void kernels_fill_avx2(kernels *k);   /* every slot; needs CPU_AVX2 */
void kernels_fill_avx512(kernels *k); /* over avx2's; needs CPU_AVX512 and CPU_AVX512_VNNI */
/* Over avx2's, its integer products with vpdpbusd; needs CPU_AVX2 and CPU_AVX_VNNI. */
void kernels_fill_avxvnni(kernels *k);
/* Over avx512's, integer products of groups of tokens; needs CPU_AMX and cpu_ask_for_tiles too. */
void kernels_fill_amx(kernels *k);
/* Integer products of rows side by side, called by the functions above. */
void kernels_fill_rows_avx2(kernels *k);
void kernels_fill_rows_k_avx2(kernels *k);
void kernels_fill_rows_k_avxvnni(kernels *k);
void kernels_fill_rows_avx512(kernels *k);
void kernels_fill_rows_k_avx512(kernels *k);
/* The same of one token, made for wide rows. */
matmul_fn eight_rows_q8, eight_rows_q4, eight_rows_q4_0;
matmul_fn eight_rows_q4_k, eight_rows_q5_k, eight_rows_q6_k;
#endif
/* Over portable's; all need CPU_ASIMD_DOT. */
#if defined(__aarch64__)
void kernels_fill_neon(kernels *k);       /* names it; row operations, then the next two */
void kernels_fill_float_neon(kernels *k); /* products with floats, attention */
void kernels_fill_rows_neon(kernels *k);  /* the block types in rows_neon.c */
#endif

/* Below this, 127 / max|x| is not a float: such a block of activations counts as zeros. */
#define ACT_TINY 0x1p-120f

/* Bits of an f16: from the first on there is no finite scale; the second marks a block as NaN. */
enum { F16_INFINITY = 0x7c00, F16_NAN = 0x7e00 };

/* mm_f32 sums over chunks of so many columns, so that a few dequantised rows fit the stack and L1:
 * a chunk's sum is added to y before the next begins. A multiple of every block and vector size. */
enum { MM_CHUNK = 1024 };

static inline const uint8_t *weight_row(const void *w, size_t row_bytes, int32_t r) {
    return (const uint8_t *)w + row_bytes * (size_t)r;
}

#endif
