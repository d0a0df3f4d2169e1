/* The ring's memory: one map cut into blocks of any size, with an order for eviction.
 *
 * A block is free, held or kept. Held blocks (being read, or handed out) are never touched; kept
 * ones are evicted when room is needed, those of the least value first, of equal value the least
 * recently kept. Values are the caller's (policy.h). Blocks never move. Knows nothing of experts or
 * reads, and allocates only in ring_open. Driven by one thread.
 *
 * Room is found in this order: the smallest free block that fits; the first of the few least kept
 * blocks that fits together with its free neighbours; the run of neighbouring free and kept blocks
 * whose greatest member is least. With equal sizes this is exactly the order of values. Since every
 * free or kept block joins some run, a request that fits the whole ring succeeds whenever nothing
 * is held, however the ring is fragmented.
 */
#ifndef SMOE_STREAMER_RING_H
#define SMOE_STREAMER_RING_H

#include "base/error.h"

#define RING_UNIT_BYTES 4096u /* blocks start and end on multiples of this */

typedef enum ring_state { RING_UNUSED, RING_FREE, RING_HELD, RING_KEPT } ring_state;

typedef struct ring_block {
    uint64_t offset;
    uint64_t bytes;
    double value;   /* what it is worth to keep it */
    uint64_t stamp; /* when it was kept; ring.clock counts */
    int32_t before; /* neighbours by address, -1 at the ends */
    int32_t after;
    int32_t prev; /* within the free list or the spare ids */
    int32_t next;
    int32_t at; /* within the heap of kept blocks */
    ring_state state;
} ring_block;

typedef struct ring {
    uint8_t *base;
    uint64_t bytes;      /* in use; the map's first */
    uint64_t most_bytes; /* of the map */
    ring_block *block;   /* [n_block] */
    int32_t n_block;
    int32_t first; /* lowest address */
    int32_t spare; /* ids without memory */
    int32_t free_head;
    int32_t *heap; /* [n_block]: kept blocks, no parent above its children in the order */
    int32_t n_kept;
    uint64_t clock;
    uint64_t evictions;
    int32_t *window; /* [n_block], scratch of the run search */
} ring;

/* Called before a kept block loses its memory. */
typedef void (*ring_evict_fn)(void *user, int32_t block);

/* Maps bytes (rounded down to units), which ring_resize may raise up to most_bytes, for at most
 * max_held blocks that are held or kept at a time. The caller's ring_close, which takes a zeroed
 * ring too. */
int ring_open(ring *r, uint64_t bytes, uint64_t most_bytes, int32_t max_held, smoe_error *err);
/* The same without memory, of one size: for replays, which only ask what would be where. */
int ring_open_hollow(ring *r, uint64_t bytes, int32_t max_held, smoe_error *err);
void ring_close(ring *r);

/* A held block of at least bytes and of value 0, or -1. Evicts only blocks of at most most_value
 * (INFINITY: any). */
int32_t ring_take(ring *r, uint64_t bytes, double most_value, ring_evict_fn evict, void *user);
/* Held to kept, as the most recent; kept to held; held to free. */
void ring_keep(ring *r, int32_t block);
void ring_hold(ring *r, int32_t block);
void ring_drop(ring *r, int32_t block);
/* Sets the value of a held or kept block; no NaN. */
void ring_set_value(ring *r, int32_t block, double value);

/* Gives memory back to the system from the end, or takes more, to_bytes rounded down to units and
 * at most most_bytes. Kept blocks behind the new end are evicted. Returns false, having done what
 * could be done, when a held block is in the way: its id is in *held (ring_drop or ring_keep it and
 * try again). Growing fails with *held = -1 when the system has no memory. */
bool ring_resize(ring *r, uint64_t to_bytes, ring_evict_fn evict, void *user, int32_t *held);

static inline uint8_t *ring_at(const ring *r, int32_t block) {
    return r->base + r->block[block].offset;
}
/* Tables and map. */
uint64_t ring_held_bytes(const ring *r);
/* Of bytes, what blocks that are not free take. */
uint64_t ring_used_bytes(const ring *r);
/* For tests: whether blocks tile the map, free neighbours are joined and the lists agree. */
bool ring_is_sound(const ring *r);

#endif
