/* Lookahead: whether and what to read for the next layer before its turn.
 *
 * In decode the guessed experts of the next MoE layer are bets, read while the drive would idle; in
 * prefill they are a sweep in file order at full depth, since the union over a chunk is nearly the
 * whole layer. Owns the counters of how good the guesses were and the switch that turns bets off
 * while they do not pay. Never changes what is computed.
 */
#ifndef SMOE_CONDUCTOR_LOOKAHEAD_H
#define SMOE_CONDUCTOR_LOOKAHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "smoe.h"

typedef struct smoe_model smoe_model;

typedef struct lookahead {
    smoe_switch mode;
    bool is_on;       /* bets are placed */
    int32_t layer;    /* the layer scratch.ahead is about; -1: none */
    int32_t n_guess;  /* its length */
    bool is_decode;   /* the guess was for one token */
    int32_t rest_tok; /* tokens until the next try while off */
    int32_t n_tok;    /* decoded tokens in the window */
    struct lookahead_window {
        uint64_t reads, used, busy_ns, time_ns;
    } at;                           /* counters when the window began */
    uint64_t guessed, right, named; /* in decode: experts guessed, of which named; all named */
    uint64_t n_switch;              /* times it was turned off or on again */
} lookahead;

void lookahead_init(lookahead *a, smoe_switch mode);
/* After moe_route of a layer: counts how good its guess was. */
void lookahead_judge(smoe_model *m, int32_t layer, int32_t n_needed);
/* After the layer's demand: guesses for the next MoE layer and has it read. */
void lookahead_guess(smoe_model *m, int32_t layer, int32_t n_tok);
/* After each decoded token: turns itself off or on. */
void lookahead_adjust(smoe_model *m);

#endif
