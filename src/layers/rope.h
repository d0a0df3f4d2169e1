/* Rotary positions: frequencies once at open, one table of cosines and sines for each batch. */
#ifndef SMOE_LAYERS_ROPE_H
#define SMOE_LAYERS_ROPE_H

#include "layers/exec.h"

/* out[dim / 2]. Plain: theta^(-2i/dim) (arXiv 2104.09864); the scalings as transformers'
 * modeling_rope_utils computes them, cited in model/spec.h. divisors: [dim / 2], NULL without. */
void rope_frequencies(const rope_spec *r, const float *divisors, float *out);

/* Fills scratch.rope_cos and rope_sin for the positions of a batch. */
void rope_prepare(const exec *e, const int32_t *pos, int32_t n_tok);

/* Rotates one head in place with row tok of table rope. */
void rope_apply(const exec *e, int32_t rope, int32_t tok, float *head);

#endif
