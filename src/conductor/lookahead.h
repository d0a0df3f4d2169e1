/* Lookahead: whether and what to read for later layers before their turn.
 *
 * In decode the guessed experts of the next MoE layers are bets, read while the drive would idle:
 * all that is guessed of the next layer, and of those behind it what guesses of that rank have
 * proved to be sure of. In prefill the next layer's are a sweep in file order at full depth, since
 * the union over a chunk is nearly the whole layer. Owns the gates' copies that guesses are made
 * with, the counters of how good they were and the switch that turns bets off while they do not
 * pay. Never changes what is computed.
 */
#ifndef SMOE_CONDUCTOR_LOOKAHEAD_H
#define SMOE_CONDUCTOR_LOOKAHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "layers/ahead.h"
#include "smoe.h"

typedef struct smoe_model smoe_model;

typedef struct lookahead {
    smoe_switch mode;
    bool is_on; /* bets are placed */
    ahead_gates gates;
    ahead_jobs jobs; /* of the layer at work */
    /* Decode: what was guessed at MoE layer i stands at i % AHEAD_LAYERS until it is judged. */
    int32_t made_at[AHEAD_LAYERS]; /* that i; -1: none */
    int32_t *rank;                 /* [AHEAD_LAYERS][how far less one][n_used]: experts */
    float *sure;                   /* [how far less one][n_used]: share that was right lately */
    int32_t n_used;                /* of the layer that uses most */
    int32_t rest_tok;              /* tokens until the next try while off */
    int32_t n_tok;                 /* decoded tokens in the window */
    struct lookahead_window {
        uint64_t reads, used, busy_ns, time_ns;
    } at;                           /* counters when the window began */
    uint64_t guessed, right, named; /* in decode, of the next layer: guessed, of which named; all */
    uint64_t far, far_right;        /* guesses of layers behind it thought sure; of which named */
    uint64_t n_switch;              /* times it was turned off or on again */
} lookahead;

/* What lookahead_open takes from the system for the gates' copies. */
uint64_t lookahead_bytes(const spec *s, smoe_switch mode);
/* *a is the caller's (lookahead_close), also after failure. */
int lookahead_open(lookahead *a, smoe_switch mode, const spec *s, const scout *sc, const kernels *k,
                   pool *p, smoe_error *err);
void lookahead_close(lookahead *a);
/* Before moe_route of a layer: fills a->jobs with what it is to run for the guesses. */
void lookahead_begin(smoe_model *m, int32_t layer, int32_t n_tok);
/* After moe_route of a layer: counts how good its guess was. */
void lookahead_judge(smoe_model *m, int32_t layer, int32_t n_needed);
/* After the layer's demand: guesses for the next MoE layers and has them read. */
void lookahead_guess(smoe_model *m, int32_t layer, int32_t n_tok);
/* After each decoded token: turns itself off or on. */
void lookahead_adjust(smoe_model *m);

#endif
