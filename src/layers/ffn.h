/* Feed-forward blocks: dense, and the expert arithmetic of a Mixture of Experts.
 *
 * The MoE block is cut where the streamer comes in: the conductor asks moe_route which experts are
 * needed, hands experts to moe_compute as they arrive, in any order, and moe_combine adds the
 * results in router rank order, so that arrival order never shows.
 */
#ifndef SMOE_LAYERS_FFN_H
#define SMOE_LAYERS_FFN_H

#include "layers/exec.h"

/* x += ffn(norm(x)) for a dense layer. */
void ffn_dense(const exec *e, int32_t layer, int32_t n_tok);

/* An expert's matrices as they lie in the ring. */
typedef struct expert_view {
    int32_t expert;
    const expert_ref *ref;
    const void *part[PART_COUNT];
} expert_view;

/* Norms x, routes every token exactly, and gives each (token, rank) pair a slot; slots of one
 * expert are adjacent. Returns the number of distinct experts, listed ascending in scratch.needed.
 * Runs n_more <= AHEAD_LAYERS other products beside the gate's, see ahead.h. */
int32_t moe_route(const exec *e, int32_t layer, int32_t n_tok, const linear_job *more,
                  int32_t n_more);
/* Computes all slots of these experts. */
void moe_compute(const exec *e, int32_t layer, int32_t n_tok, const expert_view *views,
                 int32_t n_view);
/* Computes the shared expert, where the layer has one: after moe_route and before moe_compute, so
 * that it fills the time in which the first experts are on their way. */
void moe_shared(const exec *e, int32_t layer, int32_t n_tok);
/* x += sum over ranks, in order, of weight * expert output, then the shared expert's. All needed
 * experts were computed. */
void moe_combine(const exec *e, int32_t layer, int32_t n_tok);

/* Most views moe_compute takes at once. */
#define MOE_VIEWS_MAX 64

#endif
