/* The ring's memory; see ring.h. Owns the map and the block table, and nothing that is in them. */
#include "streamer/ring.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"

/* Least blocks looked at singly before the search for a run, which visits every block. */
#define RING_LOOK_BLOCKS 16

/* ---- lists */

static void list_remove(ring *r, int32_t id, int32_t *head) {
    ring_block *b = &r->block[id];
    if (b->prev >= 0) {
        r->block[b->prev].next = b->next;
    } else {
        *head = b->next;
    }
    if (b->next >= 0) {
        r->block[b->next].prev = b->prev;
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

/* ---- the order of eviction: a binary heap */

/* Whether a goes before b. Free blocks cost nothing, so they go first. */
static bool goes_before(const ring *r, int32_t a, int32_t b) {
    const ring_block *x = &r->block[a], *y = &r->block[b];
    if (x->state != RING_KEPT || y->state != RING_KEPT) {
        return x->state != RING_KEPT && y->state == RING_KEPT;
    }
    return x->value != y->value ? x->value < y->value : x->stamp < y->stamp;
}

static void heap_put(ring *r, int32_t at, int32_t id) {
    r->heap[at] = id;
    r->block[id].at = at;
}

/* Moves the block at this place to where it belongs. */
static void heap_settle(ring *r, int32_t at) {
    int32_t id = r->heap[at];
    while (at > 0 && goes_before(r, id, r->heap[(at - 1) / 2])) {
        heap_put(r, at, r->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (int32_t child; (child = 2 * at + 1) < r->n_kept; at = child) {
        bool right = child + 1 < r->n_kept && goes_before(r, r->heap[child + 1], r->heap[child]);
        child += right;
        if (!goes_before(r, r->heap[child], id)) {
            break;
        }
        heap_put(r, at, r->heap[child]);
    }
    heap_put(r, at, id);
}

static void heap_remove(ring *r, int32_t id) {
    int32_t at = r->block[id].at, last = r->heap[--r->n_kept];
    if (last != id) {
        heap_put(r, at, last);
        heap_settle(r, at);
    }
}

void ring_set_value(ring *r, int32_t block, double value) {
    ring_block *b = &r->block[block];
    b->value = value;
    if (b->state == RING_KEPT) {
        heap_settle(r, b->at);
    }
}

/* ---- open and close */

int ring_open_hollow(ring *r, uint64_t bytes, int32_t max_held, smoe_error *err) {
    *r = (ring){.first = -1, .spare = -1, .free_head = -1};
    /* one free block may lie before, between and after held ones */
    int32_t n = max_held * 2 + 1;
    r->block = mem_array((size_t)n, sizeof *r->block);
    r->window = mem_array((size_t)n, sizeof *r->window);
    r->heap = mem_array((size_t)n, sizeof *r->heap);
    r->n_block = n;
    if (!r->block || !r->window || !r->heap) {
        uint64_t table_bytes = ring_held_bytes(r);
        ring_close(r);
        return err_no_memory(err, table_bytes);
    }
    r->bytes = bytes / RING_UNIT_BYTES * RING_UNIT_BYTES;
    for (int32_t i = n - 1; i > 0; i--) {
        make_spare(r, i);
    }
    r->block[0] = (ring_block){.bytes = r->bytes, .before = -1, .after = -1};
    r->first = 0;
    make_free(r, 0);
    return SMOE_OK;
}

int ring_open(ring *r, uint64_t bytes, uint64_t most_bytes, int32_t max_held, smoe_error *err) {
    void *base = NULL;
    int rc = ring_open_hollow(r, bytes, max_held, err);
    uint64_t most = round_up(most_bytes > bytes ? most_bytes : bytes, RING_UNIT_BYTES);
    rc = rc ? rc : mem_reserve(&base, r->bytes, most, err);
    if (rc != SMOE_OK) {
        ring_close(r);
        return rc;
    }
    r->base = base;
    r->most_bytes = most;
    /* Direct reads into huge pages need fewer segments: 1.6 instead of 1.2 GB/s where it was
     * measured. A system that refuses changes nothing else. */
    (void)madvise(base, (size_t)most, MADV_HUGEPAGE);
    return SMOE_OK;
}

void ring_close(ring *r) {
    if (r->base) {
        mem_unmap(r->base, r->most_bytes);
    }
    free(r->block);
    free(r->window);
    free(r->heap);
    *r = (ring){0};
}

uint64_t ring_held_bytes(const ring *r) {
    return r->bytes +
           (uint64_t)r->n_block * (sizeof *r->block + sizeof *r->window + sizeof *r->heap);
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
        list_remove(r, after, &r->free_head);
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
    list_remove(r, id, &r->free_head);
    b->state = RING_HELD;
    b->value = 0;
    int32_t rest = r->spare;
    if (b->bytes > bytes && rest >= 0) {
        list_remove(r, rest, &r->spare);
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
    heap_remove(r, id);
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

/* Takes the block that goes first out of a few heap places. */
static int32_t pop_first(const ring *r, int32_t *place, int32_t *n) {
    int32_t best = 0;
    for (int32_t i = 1; i < *n; i++) {
        best = goes_before(r, r->heap[place[i]], r->heap[place[best]]) ? i : best;
    }
    int32_t at = place[best];
    place[best] = place[--*n];
    return at;
}

/* One of the least blocks, whose own eviction makes room, or -1. */
static int32_t find_single(const ring *r, uint64_t bytes, double most_value) {
    int32_t place[RING_LOOK_BLOCKS + 1] = {0};
    int32_t n = r->n_kept > 0;
    for (int32_t i = 0; i < RING_LOOK_BLOCKS && n > 0; i++) {
        int32_t at = pop_first(r, place, &n), id = r->heap[at];
        const ring_block *b = &r->block[id];
        if (b->value > most_value) {
            return -1;
        }
        uint64_t span = b->bytes;
        span += is_free(r, b->before) ? r->block[b->before].bytes : 0;
        span += is_free(r, b->after) ? r->block[b->after].bytes : 0;
        if (span >= bytes) {
            return id;
        }
        for (int32_t child = 2 * at + 1; child <= 2 * at + 2 && child < r->n_kept; child++) {
            place[n++] = child;
        }
    }
    return -1;
}

/* Start of the run that gives up least: two ends slide over the blocks by address; window holds the
 * candidates for the greatest block between them, in falling order. */
static int32_t find_run(const ring *r, uint64_t bytes, double most_value) {
    int32_t best = -1, best_top = -1, head = 0, tail = 0, start = r->first;
    uint64_t span = 0;
    for (int32_t end = r->first; end >= 0; end = r->block[end].after) {
        const ring_block *b = &r->block[end];
        if (b->state == RING_HELD || (b->state == RING_KEPT && b->value > most_value)) {
            head = tail = 0;
            span = 0;
            start = b->after;
            continue;
        }
        while (tail > head && !goes_before(r, end, r->window[tail - 1])) {
            tail--;
        }
        r->window[tail++] = end;
        span += b->bytes;
        while (span >= bytes) {
            if (best < 0 || goes_before(r, r->window[head], best_top)) {
                best_top = r->window[head];
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

int32_t ring_take(ring *r, uint64_t bytes, double most_value, ring_evict_fn evict, void *user) {
    bytes = round_up(bytes, RING_UNIT_BYTES);
    int32_t id = find_free(r, bytes);
    if (id < 0) {
        int32_t least = find_single(r, bytes, most_value);
        if (least >= 0) {
            id = evict_one(r, least, evict, user);
        } else {
            int32_t start = find_run(r, bytes, most_value);
            id = start >= 0 ? clear_run(r, start, bytes, evict, user) : -1;
        }
    }
    return id >= 0 ? carve(r, id, bytes) : -1;
}

void ring_keep(ring *r, int32_t block) {
    ring_block *b = &r->block[block];
    b->state = RING_KEPT;
    b->stamp = ++r->clock;
    heap_put(r, r->n_kept++, block);
    heap_settle(r, b->at);
}

void ring_hold(ring *r, int32_t block) {
    heap_remove(r, block);
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
        list_remove(r, id, &r->spare);
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
        list_remove(r, last, &r->free_head);
        make_spare(r, last);
    } else {
        r->block[last].bytes = to_bytes - r->block[last].offset;
    }
    return true;
}

uint64_t ring_used_bytes(const ring *r) {
    uint64_t used_bytes = r->bytes;
    for (int32_t i = r->free_head; i >= 0; i = r->block[i].next) {
        used_bytes -= r->block[i].bytes;
    }
    return used_bytes;
}

/* ---- for tests */

bool ring_is_sound(const ring *r) {
    uint64_t at = 0;
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
    for (int32_t i = 0; i < r->n_kept; i++) {
        int32_t id = r->heap[i];
        bool in_order = i == 0 || !goes_before(r, id, r->heap[(i - 1) / 2]);
        if (r->block[id].state != RING_KEPT || r->block[id].at != i || !in_order) {
            return false;
        }
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
