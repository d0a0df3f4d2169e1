/* Grouped-query attention over the KV cache. */
#ifndef SMOE_LAYERS_ATTENTION_H
#define SMOE_LAYERS_ATTENTION_H

#include "layers/exec.h"

/* Positions of one tile: attention combines fixed tiles in order, so the result for a token does
 * not depend on how its sequence was cut into batches. */
#define ATTN_TILE_TOK 128
/* Queries that one thread attends with at once, heads and tokens together. */
#define ATTN_QUERIES 64

/* x += attention(norm(x)) for every token of the batch; appends their keys and values. */
void attention_gqa(const exec *e, int32_t layer, const batch *b);

#endif
