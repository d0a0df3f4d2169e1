/* The streamer's inside, shared by its own files (streamer.c, streamer_open.c) and its tests. All
 * of it belongs to the driving thread. */
#ifndef SMOE_STREAMER_STREAMER_STATE_H
#define SMOE_STREAMER_STREAMER_STATE_H

#include <xxhash.h>

#include "streamer/probe.h"
#include "streamer/queue.h"
#include "streamer/ring.h"
#include "streamer/streamer.h"

enum { STREAMER_BETS = 64 };

/* What a ring block holds; same index. Meaningful while the block is held or kept. */
typedef struct entry {
    int32_t moe_index;
    int32_t expert;
    int32_t n_held;  /* handed out and not released */
    int32_t wanted;  /* position in the current demand until handed out, else -1 */
    bool is_ready;   /* all bytes are there and checked */
    bool is_bet;     /* read for a bet and not used since */
    bool is_sweep;   /* the same for a sweep */
    bool is_warm;    /* the same for what was read in idle time */
    bool was_ahead;  /* a bet or a sweep had begun it when it was demanded */
    bool was_reread; /* its checksum has differed once */
} entry;

typedef struct bet {
    int32_t moe_index;
    int32_t expert;
} bet;

struct streamer {
    const source *source;
    log_sink log;
    ring ring;
    policy policy;
    queue queue;
    entry *entry;         /* [ring.n_block] */
    int32_t *entry_of;    /* [n_moe_layer][n_expert_row], -1: not in the ring */
    uint32_t *n_use;      /* [n_moe_layer][n_expert_row]: counted uses of each expert */
    bool is_routed;       /* the policy knows of the coming demand */
    uint8_t *margin;      /* [n_expert_row], scratch of streamer_route */
    trace_writer *record; /* NULL: routings are not recorded */
    int32_t *all;         /* [n_expert_row], scratch of preload */
    XXH3_state_t *hash;   /* for experts in several extents */
    uint64_t table_bytes;
    double probed_bytes_per_s, probed_busy_bytes_per_s; /* 0: not measured */

    /* the current demand */
    int32_t moe_index;
    int32_t n_want; /* experts asked for */
    int32_t n_handed;
    int32_t *want; /* [n_expert_row]: experts, by position */
    int32_t *miss; /* [n_expert_row]: positions without an entry yet, from miss_at on */
    int32_t miss_at, n_miss;
    int32_t n_miss_open; /* misses that have not landed */
    int32_t *ready;      /* [n_expert_row]: entries to hand out, from ready_at on */
    int32_t ready_at, n_ready;
    struct failure {
        int code; /* 0: none */
        int errnum;
        int32_t moe_index, expert, file;
        uint64_t offset;
    } failure;

    bet bet[STREAMER_BETS]; /* not started, in the order of their layers' turns */
    int32_t n_bet;

    int32_t sweep_moe;
    int32_t *sweep; /* [n_expert_row]: experts not started, from sweep_at on */
    int32_t sweep_at, n_sweep;
    uint64_t sweep_bytes; /* of slots that the sweep has taken */

    int32_t *warm; /* records, the hottest first, not started from warm_at on; NULL: none */
    int32_t warm_at, n_warm;
    int32_t n_learned; /* of warm: what may be read while something computes too */
    bool is_idle;

    int32_t n_expert;  /* of all layers */
    int32_t n_present; /* of which in the ring or on their way there */

    bool is_counting; /* off during preload */
    streamer_stats stats;
};

/* Opens s->queue over s->ring, as the configuration and the probe say. */
int streamer_open_queue(streamer *s, const streamer_config *config, smoe_error *err);
/* Tells the back end that reads land in the first bytes of the ring. */
void streamer_say_room(streamer *s, uint64_t bytes);

static inline int32_t *entry_slot(const streamer *s, int32_t moe_index, int32_t expert) {
    return &s->entry_of[(size_t)moe_index * (size_t)s->source->n_expert_row + (size_t)expert];
}

#endif
