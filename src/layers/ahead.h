/* A guess at what a later layer will need: its gate on the residual stream as it is now.
 *
 * Between two layers the stream changes little against its length, so the next gate names mostly
 * the experts that it will name when its turn comes (Eliseev and Mazur, arXiv 2312.17238, section
 * 3.2). Guesses decide what is read early, never what is computed.
 */
#ifndef SMOE_LAYERS_AHEAD_H
#define SMOE_LAYERS_AHEAD_H

#include "layers/exec.h"

/* Lists in scratch.ahead the distinct experts that the gate of MoE layer `layer` would name for any
 * of the batch's tokens, marks them in scratch.is_ahead, and returns their number. For one token by
 * falling score, since what the drive does not come to had better be what is least sure; for more
 * ascending, in the order of the file.
 * Between moe_route and moe_shared of an earlier layer: it computes in the memory of the block's
 * outputs and of the routing scores, which are free then. */
int32_t moe_guess(const exec *e, int32_t layer, int32_t n_tok);

#endif
