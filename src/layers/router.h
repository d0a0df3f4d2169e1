/* Router kinds: from gate logits to chosen experts and their weights. */
#ifndef SMOE_LAYERS_ROUTER_H
#define SMOE_LAYERS_ROUTER_H

#include "kernels/kernels.h"
#include "model/spec.h"

/* logits: [n_expert], overwritten with scores. choice: [n_rank] receives experts by falling score,
 * the lower id first among equals (n_rank >= n_used: ranks past n_used are bets for the streamer).
 * weight: [n_used]. NaN scores lose against every number, so choices are always distinct ids. */
void router_choose(const kernels *k, const router_spec *r, float *logits, int32_t n_expert,
                   int32_t n_used, int32_t n_rank, int32_t *choice, float *weight);

#endif
