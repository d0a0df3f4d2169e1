/* Rows of floats into stored element and block types.
 *
 * Plain C without dispatch or fused operations: the same input gives the same bytes on every
 * machine, in every run. Q4 and Q2 search scales for the smallest squared error;
 * docs/quantisation.md says how, and what it gains.
 */
#ifndef SMOE_SCULPTOR_QUANTISE_H
#define SMOE_SCULPTOR_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/dtype.h"

/* Writes dtype_row_bytes(type, n_col) bytes to out: x[0..n_col) and zeros up to the block's end.
 * type: one with is_weight. Returns false, out undefined, when a value is not finite or too large
 * for the type: beyond 65504 for F16, 3.2e6 for Q4, 8.3e6 for Q8 and Q2,
 * whatever rounds past the largest bfloat16 for BF16. */
bool quantise_row(dtype type, const float *x, int32_t n_col, void *out);

#endif
