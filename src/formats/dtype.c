/* Tables of element and block types; see dtype.h. Knows sizes and names, never contents. */
#include "formats/dtype.h"

#include <stddef.h>
#include <string.h>

static const dtype_info info[DT_COUNT] = {
    [DT_NONE] = {"none", NULL, 1, 0, false, -1},
    [DT_F32] = {"f32", "F32", 1, 4, true, 0},
    [DT_F16] = {"f16", "F16", 1, 2, true, 1},
    [DT_BF16] = {"bf16", "BF16", 1, 2, true, 30},
    [DT_Q8] = {"q8", NULL, 32, sizeof(block_q8), true, -1},
    [DT_Q4] = {"q4", NULL, 32, sizeof(block_q4), true, -1},
    [DT_Q2] = {"q2", NULL, 64, sizeof(block_q2), true, -1},
    [DT_Q4_0] = {"q4_0", NULL, 32, 18, true, 2},
    [DT_Q4_1] = {"q4_1", NULL, 32, 20, true, 3},
    [DT_Q5_0] = {"q5_0", NULL, 32, 22, true, 6},
    [DT_Q5_1] = {"q5_1", NULL, 32, 24, true, 7},
    [DT_Q8_0] = {"q8_0", NULL, 32, 34, true, 8},
    [DT_Q2_K] = {"q2_k", NULL, 256, 84, true, 10},
    [DT_Q3_K] = {"q3_k", NULL, 256, 110, true, 11},
    [DT_Q4_K] = {"q4_k", NULL, 256, 144, true, 12},
    [DT_Q5_K] = {"q5_k", NULL, 256, 176, true, 13},
    [DT_Q6_K] = {"q6_k", NULL, 256, 210, true, 14},
    [DT_IQ1_S] = {"iq1_s", NULL, 256, 50, true, 19},
    [DT_IQ1_M] = {"iq1_m", NULL, 256, 56, true, 29},
    [DT_IQ2_XXS] = {"iq2_xxs", NULL, 256, 66, true, 16},
    [DT_IQ2_XS] = {"iq2_xs", NULL, 256, 74, true, 17},
    [DT_IQ2_S] = {"iq2_s", NULL, 256, 82, true, 22},
    [DT_IQ3_XXS] = {"iq3_xxs", NULL, 256, 98, true, 18},
    [DT_IQ3_S] = {"iq3_s", NULL, 256, 110, true, 21},
    [DT_IQ4_NL] = {"iq4_nl", NULL, 32, 18, true, 20},
    [DT_IQ4_XS] = {"iq4_xs", NULL, 256, 136, true, 23},
    [DT_TQ1_0] = {"tq1_0", NULL, 256, 54, true, 34},
    [DT_TQ2_0] = {"tq2_0", NULL, 256, 66, true, 35},
    [DT_MXFP4] = {"mxfp4", NULL, 32, 17, true, 39},
    [DT_NVFP4] = {"nvfp4", NULL, 64, 36, true, 40},
    [DT_Q1_0] = {"q1_0", NULL, 128, 18, true, 41},
    [DT_Q2_0] = {"q2_0", NULL, 64, 18, true, 42},
    [DT_F64] = {"f64", "F64", 1, 8, false, 28},
    [DT_I8] = {"i8", "I8", 1, 1, false, 24},
    [DT_U8] = {"u8", "U8", 1, 1, false, -1},
    [DT_I16] = {"i16", "I16", 1, 2, false, 25},
    [DT_U16] = {"u16", "U16", 1, 2, false, -1},
    [DT_I32] = {"i32", "I32", 1, 4, false, 26},
    [DT_U32] = {"u32", "U32", 1, 4, false, -1},
    [DT_I64] = {"i64", "I64", 1, 8, false, 27},
    [DT_U64] = {"u64", "U64", 1, 8, false, -1},
    [DT_BOOL] = {"bool", "BOOL", 1, 1, false, -1},
    [DT_F8_E4M3] = {"f8_e4m3", "F8_E4M3", 1, 1, false, -1},
    [DT_F8_E5M2] = {"f8_e5m2", "F8_E5M2", 1, 1, false, -1},
};

const dtype_info *dtype_get(dtype t) {
    return &info[(unsigned)t < DT_COUNT ? t : DT_NONE];
}

dtype dtype_by_name(const char *name) {
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
        if (strcmp(info[t].name, name) == 0) {
            return (dtype)t;
        }
    }
    return DT_NONE;
}

dtype dtype_by_safetensors_name(const char *name) {
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
        if (info[t].safetensors_name && strcmp(info[t].safetensors_name, name) == 0) {
            return (dtype)t;
        }
    }
    return DT_NONE;
}

dtype dtype_by_ggml(uint32_t ggml_type) {
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
        if (info[t].ggml >= 0 && (uint32_t)info[t].ggml == ggml_type) {
            return (dtype)t;
        }
    }
    return DT_NONE;
}

int32_t dtype_to_ggml(dtype t) {
    return dtype_get(t)->ggml;
}

uint64_t dtype_row_bytes(dtype t, uint64_t n_col) {
    const dtype_info *d = dtype_get(t);
    return (n_col + d->block_elems - 1) / d->block_elems * d->block_bytes;
}
