/* What comes after what in the forward pass, for threads that wait: they bring nearer the weights
 * that they will have first. Never decides what is computed. */
#ifndef SMOE_LAYERS_NEXT_H
#define SMOE_LAYERS_NEXT_H

#include "layers/exec.h"

/* Each is told before the job, for n_tok tokens, after which those weights are wanted. */
void next_is_attention_out(const exec *e, int32_t layer, int32_t n_tok);
void next_is_ffn(const exec *e, int32_t layer, int32_t n_tok);
/* Behind the last layer comes the head, behind that the first layer. */
void next_is_layer(const exec *e, int32_t layer, int32_t n_tok);

#endif
