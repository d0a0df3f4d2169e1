/* Private to kernels/: what the AVX2 and AVX-512 files add to the templates vec_float.h and
 * vec_kv_q8.h, products of float activations with our own block types.
 */
#ifndef SMOE_KERNELS_X86_FLOAT_H
#define SMOE_KERNELS_X86_FLOAT_H

#include "kernels/vec_kv_q8.h"
#include "kernels/x86_common.h"

#define MM_F32_BLOCKS(type, bytes)                                                                 \
    MM_F32(type, READ_DEQUANTISED(type, bytes), READ_DEQUANTISED(type, bytes))
MM_F32_BLOCKS(q8, MM_CHUNK / 32 * sizeof(block_q8))
MM_F32_BLOCKS(q4, MM_CHUNK / 32 * sizeof(block_q4))
MM_F32_BLOCKS(q2, MM_CHUNK / 64 * sizeof(block_q2))

static void fill_x86_float_slots(kernels *k) {
    fill_float_slots(k);
    fill_kv_slots(k);
    fill_q8_slots(k);
    k->mm_f32[DT_Q8] = mm_f32_q8;
    k->mm_f32[DT_Q4] = mm_f32_q4;
    k->mm_f32[DT_Q2] = mm_f32_q2;
}

#endif
