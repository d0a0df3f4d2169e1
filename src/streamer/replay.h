/* Replays of a trace: what a ring of some size would have held under some policy.
 *
 * Runs the ring's own code over addresses without memory, with the streamer's order of things:
 * what a layer needs is claimed first, then each miss takes its room. Reads nothing, computes with
 * nothing.
 */
#ifndef SMOE_STREAMER_REPLAY_H
#define SMOE_STREAMER_REPLAY_H

#include "streamer/trace.h"

typedef enum replay_kind {
    REPLAY_RECENCY,   /* least recently used goes first */
    REPLAY_SEGMENTED, /* used once, then used again: half the ring is for the latter, each by
                         recency (segmented LRU, Karedla et al. 1994) */
    REPLAY_FREQUENCY, /* least often used in the whole past goes first, then by recency */
    REPLAY_AGED,      /* the same with counts that halve every 64 tokens */
    REPLAY_ADAPTIVE,  /* the streamer's, policy.c */
    REPLAY_FORESIGHT, /* the same, but what each layer uses in its next turn is known for certain */
    REPLAY_OPTIMUM,   /* whose next use is farthest goes first (Belady 1966), which is best possible
                         with records of equal size, and an approximation with others */
    REPLAY_KINDS
} replay_kind;

extern const char *const replay_name[REPLAY_KINDS];

typedef struct replay_result {
    uint64_t uses, hits; /* of experts in layers' turns, each counted once */
    uint64_t decode_uses, decode_hits;
    uint64_t read_bytes, decode_read_bytes;
    uint64_t evictions;
} replay_result;

/* Ring that holds every record; the most that one token's choices take. */
uint64_t replay_full_bytes(const trace *t);
uint64_t replay_cycle_bytes(const trace *t);

/* A ring smaller than the largest record is an error. */
int replay(const trace *t, replay_kind kind, uint64_t ring_bytes, replay_result *out,
           smoe_error *err);

#endif
