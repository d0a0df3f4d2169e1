/* A guess at what later layers will need: their gates on the residual stream as it is now.
 *
 * Between two layers the stream changes little against its length, so a later gate names mostly the
 * experts that it will name when its turn comes (Eliseev and Mazur, arXiv 2312.17238, section 3.2).
 * Guesses decide what is read early, never what is computed; so they are made with copies of the
 * gates in 8 bits, a quarter of what the gates themselves are in float.
 */
#ifndef SMOE_LAYERS_AHEAD_H
#define SMOE_LAYERS_AHEAD_H

#include "layers/exec.h"

/* The gates' copies: one map, immutable once open. */
typedef struct ahead_gates {
    void *base; /* NULL: there are none */
    uint64_t bytes;
    weight *gate; /* [n_layer], of MoE layers [n_expert, d_model] in Q8; the rest empty */
} ahead_gates;

/* What ahead_open takes from the system. */
uint64_t ahead_gates_bytes(const spec *s);
/* *out is the caller's (ahead_close), empty after failure. */
int ahead_open(ahead_gates *out, const spec *s, const scout *sc, const kernels *k, pool *p,
               smoe_error *err);
void ahead_close(ahead_gates *g);

/* Guesses for one token: products that moe_route runs beside its own, since a job of their own
 * would have to wake the workers. */
typedef struct ahead_jobs {
    int32_t n;
    int32_t layer[AHEAD_LAYERS];
    linear_job job[AHEAD_LAYERS];
} ahead_jobs;

/* Prepares them for n <= AHEAD_LAYERS MoE layers behind the one to be routed, from scratch.x as it
 * is now. Their inputs lie in scratch.gathered until moe_compute. */
void moe_guess_begin(const exec *e, const ahead_gates *g, const int32_t *layer, int32_t n,
                     ahead_jobs *out);
/* After moe_route: rank[i * stride] and on receive the experts that jobs->layer[i] would choose, by
 * falling score, as many as it uses. */
void moe_guess_end(const exec *e, const ahead_jobs *jobs, int32_t *rank, int32_t stride);

/* For n_tok tokens: lists in scratch.ahead the distinct experts that the gate of a MoE layer would
 * choose for any of them, ascending, as they lie in the file. Returns their number. Between
 * moe_route and moe_compute of an earlier layer, in memory that is free then. */
int32_t moe_guess_union(const exec *e, const ahead_gates *g, int32_t layer, int32_t n_tok);

#endif
