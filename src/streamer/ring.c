/* The ring's memory; see ring.h. Owns the map and the block table, and nothing that is in them. */
#include "streamer/ring.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"

/* Oldest blocks looked at singly before the search for a run, which visits every block. */
#define RING_LOOK_BLOCKS 16

/* ---- lists */

static void list_remove(ring *r, int32_t id, int32_t *head, int32_t *tail) {
    ring_block *b = &r->block[id];
    if (b->prev >= 0) {
        r->block[b->prev].next = b->next;
    } else {
        *head = b->next;
    }
    if (b->next >= 0) {
        r->block[b->next].prev = b->prev;
    } else if (tail) {
        *tail = b->prev;
    }
    b->prev = b->next = -1;
}

static void list_push_front(ring *r, int32_t id, int32_t *head) {
    ring_block *b = &r->block[id];
    b->prev = -1;
    b->next = *head;
    if (*head >= 0) {
        r->block[*head].prev = id;
    }
    *head = id;
}

static void make_spare(ring *r, int32_t id) {
    r->block[id].state = RING_UNUSED;
    list_push_front(r, id, &r->spare);
}

static void make_free(ring *r, int32_t id) {
    r->block[id].state = RING_FREE;
    list_push_front(r, id, &r->free_head);
}

/* ---- open and close */

int ring_open(ring *r, uint64_t bytes, uint64_t most_bytes, int32_t max_held, smoe_error *err) {
    *r = (ring){.first = -1, .spare = -1, .free_head = -1, .oldest = -1, .newest = -1};
    /* one free block may lie before, between and after held ones */
    int32_t n = max_held * 2 + 1;
    void *base = NULL;
    r->block = mem_array((size_t)n, sizeof *r->block);
    r->window = mem_array((size_t)n, sizeof *r->window);
    if (!r->block || !r->window) {
        ring_close(r);
        return err_no_memory(err, (uint64_t)n * (sizeof *r->block + sizeof *r->window));
    }
    r->n_block = n;
    r->bytes = bytes / RING_UNIT_BYTES * RING_UNIT_BYTES;
    r->most_bytes = round_up(most_bytes > bytes ? most_bytes : bytes, RING_UNIT_BYTES);
    int rc = mem_reserve(&base, r->bytes, r->most_bytes, err);
    if (rc != SMOE_OK) {
        ring_close(r);
        return rc;
    }
    r->base = base;
    /* Direct reads into huge pages need fewer segments: 1.6 instead of 1.2 GB/s where it was
     * measured. A system that refuses changes nothing else. */
    (void)madvise(base, (size_t)r->most_bytes, MADV_HUGEPAGE);
    for (int32_t i = n - 1; i > 0; i--) {
        make_spare(r, i);
    }
    r->block[0] = (ring_block){.bytes = r->bytes, .before = -1, .after = -1};
    r->first = 0;
    make_free(r, 0);
    return SMOE_OK;
}

void ring_close(ring *r) {
    mem_unmap(r->base, r->most_bytes);
    free(r->block);
    free(r->window);
    *r = (ring){0};
}

uint64_t ring_held_bytes(const ring *r) {
    return r->bytes + (uint64_t)r->n_block * (sizeof *r->block + sizeof *r->window);
}

/* ---- free space */

/* Gives the memory of absorbed to its neighbour before it, into; absorbed is in no list. */
static void join(ring *r, int32_t into, int32_t absorbed) {
    ring_block *a = &r->block[into];
    ring_block *b = &r->block[absorbed];
    a->bytes += b->bytes;
    a->after = b->after;
    if (b->after >= 0) {
        r->block[b->after].before = into;
    }
    make_spare(r, absorbed);
}

static bool is_free(const ring *r, int32_t id) {
    return id >= 0 && r->block[id].state == RING_FREE;
}

/* Frees a block that is in no list and joins it with free neighbours; returns what it became. */
static int32_t release(ring *r, int32_t id) {
    int32_t after = r->block[id].after;
    if (is_free(r, after)) {
        list_remove(r, after, &r->free_head, NULL);
        join(r, id, after);
    }
    int32_t before = r->block[id].before;
    if (is_free(r, before)) {
        join(r, before, id);
        return before;
    }
    make_free(r, id);
    return id;
}

/* Takes bytes from the front of a free block. */
static int32_t carve(ring *r, int32_t id, uint64_t bytes) {
    ring_block *b = &r->block[id];
    list_remove(r, id, &r->free_head, NULL);
    b->state = RING_HELD;
    int32_t rest = r->spare;
    if (b->bytes > bytes && rest >= 0) {
        list_remove(r, rest, &r->spare, NULL);
        r->block[rest] = (ring_block){.offset = b->offset + bytes,
                                      .bytes = b->bytes - bytes,
                                      .before = id,
                                      .after = b->after};
        if (b->after >= 0) {
            r->block[b->after].before = rest;
        }
        b->after = rest;
        b->bytes = bytes;
        make_free(r, rest);
    }
    return id;
}

static int32_t evict_one(ring *r, int32_t id, ring_evict_fn evict, void *user) {
    evict(user, id);
    r->evictions++;
    list_remove(r, id, &r->oldest, &r->newest);
    return release(r, id);
}

/* ---- finding room */

static int32_t find_free(const ring *r, uint64_t bytes) {
    int32_t best = -1;
    for (int32_t i = r->free_head; i >= 0; i = r->block[i].next) {
        if (r->block[i].bytes >= bytes && (best < 0 || r->block[i].bytes < r->block[best].bytes)) {
            best = i;
        }
    }
    return best;
}

/* An old block whose own eviction makes room, or -1. */
static int32_t find_single(const ring *r, uint64_t bytes, uint64_t youngest_stamp) {
    int32_t id = r->oldest;
    for (int32_t i = 0; i < RING_LOOK_BLOCKS && id >= 0; i++) {
        const ring_block *b = &r->block[id];
        if (b->stamp > youngest_stamp) {
            return -1;
        }
        uint64_t span = b->bytes;
        span += is_free(r, b->before) ? r->block[b->before].bytes : 0;
        span += is_free(r, b->after) ? r->block[b->after].bytes : 0;
        if (span >= bytes) {
            return id;
        }
        id = b->next;
    }
    return -1;
}

static uint64_t age_of(const ring *r, int32_t id) {
    return r->block[id].state == RING_KEPT ? r->block[id].stamp : 0;
}

/* Start of the shortest-reaching run: two ends slide over the blocks by address; window holds the
 * candidates for the youngest stamp between them, in falling order. */
static int32_t find_run(const ring *r, uint64_t bytes, uint64_t youngest_stamp) {
    int32_t best = -1, head = 0, tail = 0, start = r->first;
    uint64_t best_stamp = UINT64_MAX, span = 0;
    for (int32_t end = r->first; end >= 0; end = r->block[end].after) {
        bool usable = r->block[end].state != RING_HELD && age_of(r, end) <= youngest_stamp;
        if (!usable) {
            head = tail = 0;
            span = 0;
            start = r->block[end].after;
            continue;
        }
        while (tail > head && age_of(r, r->window[tail - 1]) <= age_of(r, end)) {
            tail--;
        }
        r->window[tail++] = end;
        span += r->block[end].bytes;
        while (span >= bytes) {
            uint64_t stamp = age_of(r, r->window[head]);
            if (stamp < best_stamp) {
                best_stamp = stamp;
                best = start;
            }
            head += r->window[head] == start;
            span -= r->block[start].bytes;
            start = r->block[start].after;
        }
    }
    return best;
}

/* Frees the blocks from start on until they hold bytes. */
static int32_t clear_run(ring *r, int32_t start, uint64_t bytes, ring_evict_fn evict, void *user) {
    int32_t id = start;
    if (r->block[id].state == RING_KEPT) {
        id = evict_one(r, id, evict, user);
    }
    while (r->block[id].bytes < bytes) {
        id = evict_one(r, r->block[id].after, evict, user);
    }
    return id;
}

int32_t ring_take(ring *r, uint64_t bytes, uint64_t youngest_stamp, ring_evict_fn evict,
                  void *user) {
    bytes = round_up(bytes, RING_UNIT_BYTES);
    int32_t id = find_free(r, bytes);
    if (id < 0) {
        int32_t old = find_single(r, bytes, youngest_stamp);
        if (old >= 0) {
            id = evict_one(r, old, evict, user);
        } else {
            int32_t start = find_run(r, bytes, youngest_stamp);
            id = start >= 0 ? clear_run(r, start, bytes, evict, user) : -1;
        }
    }
    return id >= 0 ? carve(r, id, bytes) : -1;
}

void ring_keep(ring *r, int32_t block) {
    ring_block *b = &r->block[block];
    b->state = RING_KEPT;
    b->stamp = ++r->clock;
    b->next = -1;
    b->prev = r->newest;
    if (r->newest >= 0) {
        r->block[r->newest].next = block;
    } else {
        r->oldest = block;
    }
    r->newest = block;
}

void ring_hold(ring *r, int32_t block) {
    list_remove(r, block, &r->oldest, &r->newest);
    r->block[block].state = RING_HELD;
}

void ring_drop(ring *r, int32_t block) {
    release(r, block);
}

/* ---- another size */

static int32_t last_block(const ring *r) {
    int32_t id = r->first;
    while (r->block[id].after >= 0) {
        id = r->block[id].after;
    }
    return id;
}

static bool grow(ring *r, uint64_t to_bytes) {
    if (mem_resize(r->base, r->bytes, to_bytes, NULL) != SMOE_OK) {
        return false;
    }
    int32_t last = last_block(r);
    uint64_t more = to_bytes - r->bytes;
    if (!is_free(r, last)) {
        int32_t id = r->spare; /* there is one: max_held blocks never use up all ids */
        list_remove(r, id, &r->spare, NULL);
        r->block[id] = (ring_block){.offset = r->bytes, .before = last, .after = -1};
        r->block[last].after = id;
        make_free(r, id);
        last = id;
    }
    r->block[last].bytes += more;
    r->bytes = to_bytes;
    return true;
}

bool ring_resize(ring *r, uint64_t to_bytes, ring_evict_fn evict, void *user, int32_t *held) {
    to_bytes = to_bytes / RING_UNIT_BYTES * RING_UNIT_BYTES;
    to_bytes = to_bytes < r->most_bytes ? to_bytes : r->most_bytes;
    to_bytes = to_bytes < RING_UNIT_BYTES ? RING_UNIT_BYTES : to_bytes;
    *held = -1;
    if (to_bytes >= r->bytes) {
        return to_bytes == r->bytes || grow(r, to_bytes);
    }
    int32_t last = last_block(r);
    while (!is_free(r, last) || r->block[last].offset > to_bytes) {
        int32_t id = is_free(r, last) ? r->block[last].before : last;
        if (r->block[id].state == RING_HELD) {
            *held = id;
            return false;
        }
        last = evict_one(r, id, evict, user);
    }
    mem_resize(r->base, r->bytes, to_bytes, NULL);
    r->bytes = to_bytes;
    if (r->block[last].offset == to_bytes) { /* the free rest vanishes */
        r->block[r->block[last].before].after = -1;
        list_remove(r, last, &r->free_head, NULL);
        make_spare(r, last);
    } else {
        r->block[last].bytes = to_bytes - r->block[last].offset;
    }
    return true;
}

/* ---- for tests */

bool ring_is_sound(const ring *r) {
    uint64_t at = 0, stamp = 0;
    int32_t n_seen[4] = {0}, n_listed[4] = {0}, last = -1;
    for (int32_t i = r->first; i >= 0; last = i, i = r->block[i].after) {
        const ring_block *b = &r->block[i];
        bool joined = b->state != RING_FREE || last < 0 || r->block[last].state != RING_FREE;
        if (b->offset != at || b->bytes == 0 || b->before != last || !joined) {
            return false;
        }
        n_seen[b->state]++;
        at += b->bytes;
    }
    for (int32_t i = r->oldest; i >= 0; i = r->block[i].next) {
        if (r->block[i].state != RING_KEPT || r->block[i].stamp <= stamp) {
            return false;
        }
        stamp = r->block[i].stamp;
        n_listed[RING_KEPT]++;
    }
    for (int32_t i = r->free_head; i >= 0; i = r->block[i].next) {
        n_listed[RING_FREE] += r->block[i].state == RING_FREE;
    }
    for (int32_t i = r->spare; i >= 0; i = r->block[i].next) {
        n_seen[RING_UNUSED] += r->block[i].state == RING_UNUSED;
    }
    return at == r->bytes && n_seen[RING_KEPT] == n_listed[RING_KEPT] &&
           n_seen[RING_FREE] == n_listed[RING_FREE] &&
           n_seen[RING_UNUSED] + n_seen[RING_FREE] + n_seen[RING_HELD] + n_seen[RING_KEPT] ==
               r->n_block;
}
