/* Which expert to keep: turns what the router says into a value for every expert record.
 *
 * Owns the statistics of all records, knows nothing of memory, reads or what is in the ring. Where
 * two records cannot both be kept, the one of the lesser value goes. Serves the streamer and
 * replays of traces alike. Allocates only in policy_open; driven by one thread. How it was chosen,
 * with measurements, is in docs/cache-policy.md.
 *
 * POLICY_RECENCY: a record's value is the time of its last use.
 *
 * POLICY_ADAPTIVE: a record's value is log2 p - t, where p is the estimated chance that its layer
 * uses it in the layer's next turn, and t, in tokens, when that turn comes. Values stay comparable
 * over time without being touched: only a layer's own turn changes those of its records. p comes
 * from a logistic regression over what is known of a record: its share of uses lately, in the last
 * while and over all; whether and how long ago it was used; and its score in the router's last
 * choice, whether it was chosen or not. The weights are learned from every token that passes, so
 * where frequency says nothing the order becomes that of recency, and the other way round.
 */
#ifndef SMOE_STREAMER_POLICY_H
#define SMOE_STREAMER_POLICY_H

#include "base/error.h"

typedef enum policy_kind { POLICY_ADAPTIVE, POLICY_RECENCY } policy_kind;

/* How far a score is below the layer's best: in steps of 1/16 of its natural logarithm. */
#define ROUTING_MARGIN_STEPS 16
#define ROUTING_MARGIN_MAX   255

/* One layer's routing of a batch, all of it borrowed. */
typedef struct routing {
    int32_t moe_index;
    int32_t n_tok;
    const int32_t *choice; /* [n_tok][stride]: of each the first n_used by falling rank, distinct */
    int32_t stride;
    int32_t n_used;
    const uint8_t *margin; /* [n_expert], of the last token's scores; NULL: not known */
} routing;

/* Fills margin[n_expert] from scores, which are probabilities or, with is_log, logits. */
void routing_margins(const float *score, int32_t n_expert, bool is_log, uint8_t *margin);

enum { POLICY_FEATURES = 8, POLICY_SHARES = 3 };

typedef struct policy_layer {
    int32_t n_expert; /* at most n_row */
    int32_t n_used;   /* of each token */
} policy_layer;

typedef struct policy_record {
    double value;
    float share[POLICY_SHARES];     /* of the layer's tokens that used it, the latest weigh most */
    float feature[POLICY_FEATURES]; /* as of the layer's last turn */
    float past;                     /* share of uses in earlier runs */
    uint32_t n_use;                 /* in this one */
    uint32_t last_tok;              /* 1 + the layer's token that used it last; 0: none has */
} policy_record;

typedef struct policy {
    policy_kind kind;
    int32_t n_layer;
    int32_t n_row;
    policy_layer *layer;   /* [n_layer] */
    policy_record *record; /* [n_layer][n_row] */
    uint32_t *n_tok;       /* [n_layer]: tokens seen */
    uint16_t *n_use;       /* [n_row], scratch: uses in the batch at hand */
    uint32_t past_tok;     /* tokens that the past shares stand for; 0: there is no past */
    uint64_t n_turn;       /* layers' turns so far, of all layers */
    float weight[POLICY_FEATURES];
    float slope2[POLICY_FEATURES]; /* decaying sum of squared gradients */
} policy;

/* Before the first token all records are worth the same. The caller's policy_close, which takes a
 * zeroed policy too. */
int policy_open(policy *p, policy_kind kind, const policy_layer *layer, int32_t n_layer,
                int32_t n_row, smoe_error *err);
void policy_close(policy *p);
/* Before the first token: starts from these weights and from the records' past shares. */
void policy_begin(policy *p, const float *weight);
uint64_t policy_held_bytes(const policy *p);

/* A layer's turn: learns from it and sets the values of the layer's records anew. */
void policy_turn(policy *p, const routing *r);

static inline double policy_value(const policy *p, int32_t moe_index, int32_t expert) {
    return p->record[(size_t)moe_index * (size_t)p->n_row + (size_t)expert].value;
}
/* What a record that was read on a bet is worth until its layer's next turn, and the greatest value
 * that a bet may push out: with recency, of what the current token did not use; else, of what will
 * be used in the next token with a chance of at most a fifth. */
double policy_bet_value(const policy *p, int32_t moe_index);
double policy_bet_limit(const policy *p);

#endif
