/* ring: eviction order, runs of neighbours, the age limit. */
#include "test.h"

#include "streamer/ring.h"

static smoe_error err;

static int32_t evicted[64];
static int32_t n_evicted;

static void note_eviction(void *user, int32_t block) {
    (void)user;
    evicted[n_evicted++] = block;
}

static int32_t take(ring *r, int32_t pages) {
    n_evicted = 0;
    int32_t id = ring_take(r, (uint64_t)pages * 4096, UINT64_MAX, note_eviction, NULL);
    CHECK(ring_is_sound(r));
    return id;
}

TEST(ring_evicts_least_recent_then_the_oldest_run) {
    ring r;
    CHECK_OK(ring_open(&r, 8 * 4096, 8, &err));
    int32_t id[8];
    for (int32_t i = 0; i < 8; i++) {
        id[i] = take(&r, 1);
        CHECK(id[i] >= 0);
    }
    CHECK_INT(take(&r, 1), -1);
    const int32_t order[] = {3, 0, 6, 7, 1, 4};
    for (int32_t i = 0; i < 6; i++) {
        ring_keep(&r, id[order[i]]);
    }
    CHECK_INT(take(&r, 3), -1); /* 2 and 5 are held */
    CHECK_INT(n_evicted, 0);
    int32_t pair = take(&r, 2); /* of 0-1, 3-4, 6-7 the last is the oldest */
    CHECK_INT(n_evicted, 2);
    CHECK_INT(r.block[pair].offset, 6 * 4096);
    int32_t one = take(&r, 1);
    CHECK_INT(n_evicted, 1);
    CHECK_INT(r.block[one].offset, 3 * 4096);
    ring_drop(&r, one);
    ring_drop(&r, pair);
    ring_keep(&r, id[2]);
    ring_keep(&r, id[5]);
    CHECK_INT(take(&r, 9), -1);
    CHECK(take(&r, 8) >= 0); /* nothing held: all of it */
    CHECK_INT(r.block[r.first].bytes, 8 * 4096);
    ring_close(&r);
}

TEST(ring_spares_what_is_too_young) {
    ring r;
    CHECK_OK(ring_open(&r, 4 * 4096, 4, &err));
    int32_t id[4];
    for (int32_t i = 0; i < 4; i++) {
        id[i] = take(&r, 1);
        ring_keep(&r, id[i]);
    }
    CHECK_INT(ring_take(&r, 4096, 0, note_eviction, NULL), -1);
    CHECK_INT(ring_take(&r, 3 * 4096, 2, note_eviction, NULL), -1);
    CHECK_INT(ring_take(&r, 2 * 4096, 2, note_eviction, NULL), id[0]);
    CHECK(ring_is_sound(&r));
    ring_close(&r);
}
