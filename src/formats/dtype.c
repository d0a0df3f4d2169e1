/* Tables of element and block types; see dtype.h. Knows sizes and names, never contents. */
#include "formats/dtype.h"

#include <stddef.h>
#include <string.h>

static const dtype_info info[DT_COUNT] = {
    [DT_NONE] = {"none", NULL, 1, 0, false},
    [DT_F32] = {"f32", "F32", 1, 4, true},
    [DT_F16] = {"f16", "F16", 1, 2, true},
    [DT_BF16] = {"bf16", "BF16", 1, 2, true},
    [DT_Q8] = {"q8", NULL, 32, sizeof(block_q8), true},
    [DT_Q4] = {"q4", NULL, 32, sizeof(block_q4), true},
    [DT_Q2] = {"q2", NULL, 64, sizeof(block_q2), true},
    [DT_F64] = {"f64", "F64", 1, 8, false},
    [DT_I8] = {"i8", "I8", 1, 1, false},
    [DT_U8] = {"u8", "U8", 1, 1, false},
    [DT_I16] = {"i16", "I16", 1, 2, false},
    [DT_U16] = {"u16", "U16", 1, 2, false},
    [DT_I32] = {"i32", "I32", 1, 4, false},
    [DT_U32] = {"u32", "U32", 1, 4, false},
    [DT_I64] = {"i64", "I64", 1, 8, false},
    [DT_U64] = {"u64", "U64", 1, 8, false},
    [DT_BOOL] = {"bool", "BOOL", 1, 1, false},
    [DT_F8_E4M3] = {"f8_e4m3", "F8_E4M3", 1, 1, false},
    [DT_F8_E5M2] = {"f8_e5m2", "F8_E5M2", 1, 1, false},
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

uint64_t dtype_row_bytes(dtype t, uint64_t n_col) {
    const dtype_info *d = dtype_get(t);
    return (n_col + d->block_elems - 1) / d->block_elems * d->block_bytes;
}
