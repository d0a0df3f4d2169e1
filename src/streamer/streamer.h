/* The streamer: from "the router named these experts" to pointers that can be computed with.
 *
 * Owns the ring (the bounded memory for experts, which is also the cache), the queues and the I/O
 * back end. One thread drives it, the conductor's: a lookup that hits takes no lock and no atomic.
 * It never computes with experts and never decides which are needed.
 *
 * One layer's demand goes:
 *     streamer_demand(s, layer, experts, n)     reads for the misses start at once
 *     while (streamer_next(s, items, max, &n) == 0 && n > 0)
 *         compute each item, streamer_release(s, &items[i])
 * Experts already in the ring come first, the others as they land. A demand may be larger than the
 * ring: reads go on as items are released. Items handed out are never evicted or moved before their
 * release.
 */
#ifndef SMOE_STREAMER_STREAMER_H
#define SMOE_STREAMER_STREAMER_H

#include "base/log.h"
#include "model/source.h"
#include "streamer/io.h"
#include "streamer/policy.h"
#include "streamer/trace.h"

typedef struct streamer streamer;

typedef struct streamer_config {
    const source *source; /* outlives the streamer */
    const io_ops *ops;    /* NULL: io_uring, else threads, with a notice when it falls back */
    smoe_switch direct;   /* auto: O_DIRECT, else buffered with a notice; on: or fail */
    uint64_t ring_bytes;  /* all the streamer may hold for experts; at least one token cycle,
                              see streamer_ring_floor */
    bool may_grow;        /* tables for every expert, so that streamer_resize may go beyond that */
    int32_t depth;        /* reads in flight on each drive; 0: chosen */
    uint32_t read_bytes;  /* longest single read; 0: chosen */
    smoe_probe_mode probe;
    const char *const *copy_dir; /* [n_copy]: folders on other drives that hold the same files */
    int32_t n_copy;              /* below IO_DRIVES */
    policy_kind policy;          /* what is kept when the ring is full */
    log_sink log;
} streamer_config;

/* What one expert takes in the ring: its extents' aligned covers. */
uint64_t streamer_slot_bytes(const expert_ref *e);
/* Smallest ring that can hold one token cycle; ring for every expert. */
uint64_t streamer_ring_floor(const source *s);
uint64_t streamer_ring_full(const source *s);

/* Maps the ring and opens the files. *out is the caller's (streamer_close). */
int streamer_open(streamer **out, const streamer_config *config, smoe_error *err);
void streamer_close(streamer *s);

typedef struct streamer_item {
    int32_t expert;
    int32_t index;                /* its position in the demand's list */
    const void *part[PART_COUNT]; /* first byte of gate, up, down; any alignment */
    int32_t entry;                /* the streamer's own */
} streamer_item;

/* What the router said, before the layer's demand: the policy learns from it. score: [n_expert] of
 * the last token, probabilities or, with is_log, logits; r->margin is not looked at. A demand
 * without it is taken as the choice of one token. Never allocates. */
void streamer_route(streamer *s, const routing *r, const float *score, bool is_log);
/* From now on routings are recorded, until it is called with NULL; w is the caller's. */
void streamer_record(streamer *s, trace_writer *w);
/* Fills in all of a trace's header but its name and id; the tables are the caller's (free). */
int streamer_trace_header(const streamer *s, trace_header *out, smoe_error *err);

/* experts: distinct ids, at most the layer's number. The previous demand must be finished. Never
 * blocks, never allocates. */
void streamer_demand(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n);
/* Hands out at least one item, blocking if none is ready; n = 0 once the whole demand was handed
 * out. An error (read failed after retries, checksum differs: file and expert named) ends this
 * demand only: items already handed out stay valid until released, the ring stays whole. Asking for
 * more while unreleased items fill the ring is SMOE_ERR_ARGUMENT. */
int streamer_next(streamer *s, streamer_item *items, int32_t max, int32_t *n, smoe_error *err);
void streamer_release(streamer *s, const streamer_item *item);
/* Gives up the rest of the demand (cancelled, or after an error). */
void streamer_abandon(streamer *s);

/* Speculative: read these if nothing better is to do, never before a demand read, up to the
 * depth that demand leaves. Only into space that is free or of little value (policy_bet_limit).
 * Replaces what an earlier bet on this layer has not started, as does the layer's demand. The layer
 * whose turn comes first is read first, and of it in the given order; a bounded number waits, what
 * would be read last is dropped. A bet that fails says nothing. */
void streamer_bet(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n);
/* The sweep of prefill: what a layer will need next, in the order in which it lies in the file,
 * read at full depth behind the current demand while that is computed. May push out everything but
 * what it has read itself, up to half the ring. Replaces what an earlier sweep has not started; the
 * next demand ends it. */
void streamer_sweep(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n);
/* Takes in finished reads and starts queued ones; never blocks. Call between pieces of work. */
void streamer_poll(streamer *s);
/* Another size for the ring, between demands; at least streamer_ring_floor. Evicts what lies in the
 * part that is given back, after waiting for reads into it. What is computed stays the same.
 * Growing fails when the system has no memory; the ring then keeps its size. */
int streamer_resize(streamer *s, uint64_t ring_bytes, smoe_error *err);
uint64_t streamer_ring_bytes(const streamer *s);
/* Reads every expert (the ring must be streamer_ring_full). Counts reads but no uses. */
int streamer_preload(streamer *s, smoe_error *err);

/* Whether every expert is in the ring or on its way there: nothing is left to guess. */
bool streamer_has_all(const streamer *s);
/* Behind what streamer_warm set, every other expert in the order of the file: for a ring that is
 * streamer_ring_full. */
int streamer_warm_rest(streamer *s, smoe_error *err);

/* Starts from what an earlier run learned (heat.h): the policy at once, and, when nothing else is
 * to be read, the ring's free space is filled with the experts that were used most. */
int streamer_warm(streamer *s, uint64_t model_id, const char *text, size_t bytes, const char *label,
                  smoe_error *err);
/* What is known now; *text is the caller's (free), NULL when too few tokens passed. */
int streamer_heat(const streamer *s, uint64_t model_id, char **text, size_t *bytes,
                  smoe_error *err);
/* Waits for reads under way and starts further ones, for about so long or until nothing is left to
 * read; returns whether something is. Between demands only. */
bool streamer_idle(streamer *s, uint64_t budget_ns);

typedef struct streamer_stats {
    uint64_t drive_bytes, n_read;
    uint64_t uses, hits, inflight_hits, misses; /* uses = hits + inflight_hits + misses */
    uint64_t spec_reads;                        /* experts that a bet began to read */
    uint64_t spec_used;               /* of which demanded later, landed or still on their way */
    uint64_t sweep_reads, sweep_used; /* the same of sweeps */
    uint64_t warm_reads, warm_used;   /* and of what was read in idle time; never reset */
    uint64_t evictions;
    uint64_t read_retries;  /* failed reads, resumed short ones, second reads after a checksum */
    uint64_t wait_ns;       /* streamer_next blocked */
    uint64_t wait_ahead_ns; /* of which for reads that a bet or a sweep had begun */
    uint64_t drive_busy_ns; /* a read was in flight, from its submission until it was taken in: too
                               long by what passes between its end and the next call */
    double probed_bytes_per_s;      /* 0: not measured */
    double probed_busy_bytes_per_s; /* while all CPUs go through weights */
    int32_t n_drive;
    uint64_t bytes_of_drive[IO_DRIVES];
    io_histogram latency_us, size_kib; /* of reads */
} streamer_stats;

void streamer_get_stats(const streamer *s, streamer_stats *out);
void streamer_reset_stats(streamer *s);
/* Where an expert is, and how often it was used since the last reset: the sum over all is uses. */
typedef enum streamer_place { STREAMER_ABSENT, STREAMER_READING, STREAMER_RESIDENT } streamer_place;
streamer_place streamer_expert(const streamer *s, int32_t moe_index, int32_t expert,
                               uint32_t *n_use);
/* Of the ring: taken by experts, resident or being read. */
uint64_t streamer_used_bytes(const streamer *s);
const char *streamer_backend(const streamer *s);
bool streamer_is_direct(const streamer *s);
/* Of the ring: registered with the back end for faster reads. */
uint64_t streamer_pinned_bytes(const streamer *s);
uint64_t streamer_held_bytes(const streamer *s); /* ring and tables, for the plan's check; the
                                                    thread back end's stacks are not in it */

#endif
