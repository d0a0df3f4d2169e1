/* The residual stream's two ends of a block: norm in, add out. */
#ifndef SMOE_LAYERS_RESIDUAL_H
#define SMOE_LAYERS_RESIDUAL_H

#include "layers/exec.h"

/* scratch.norm.f[t] = norm(scratch.x[t]) with this weight vector. */
void residual_norm(const exec *e, const weight *norm, int32_t n_tok);
/* scratch.x[t] += residual_scale * scratch.out[t]. */
void residual_add(const exec *e, int32_t n_tok);

#endif
