/* ring: eviction order, runs of neighbours, the limit of value. */
#include <math.h>

#include "test.h"

#include "streamer/ring.h"

static smoe_error err;

static uint64_t evicted_stamp[64];
static int32_t n_evicted;

static void note_eviction(void *user, int32_t block) {
    const ring *r = user;
    evicted_stamp[n_evicted] = r->block[block].stamp;
    n_evicted++;
}

static int32_t take(ring *r, int32_t pages) {
    n_evicted = 0;
    int32_t id = ring_take(r, (uint64_t)pages * 4096, INFINITY, note_eviction, r);
    CHECK(ring_is_sound(r));
    return id;
}

TEST(ring_evicts_least_recent_then_the_oldest_run) {
    ring r;
    CHECK_OK(ring_open(&r, 8 * 4096, 0, 8, &err));
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

TEST(ring_spares_what_is_worth_too_much) {
    ring r;
    CHECK_OK(ring_open(&r, 4 * 4096, 0, 4, &err));
    int32_t id[4];
    for (int32_t i = 0; i < 4; i++) {
        id[i] = take(&r, 1);
        ring_set_value(&r, id[i], i + 1);
        ring_keep(&r, id[i]);
    }
    CHECK_INT(ring_take(&r, 4096, 0, note_eviction, &r), -1);
    CHECK_INT(ring_take(&r, 3 * 4096, 2, note_eviction, &r), -1);
    CHECK_INT(ring_take(&r, 2 * 4096, 2, note_eviction, &r), id[0]);
    CHECK(ring_is_sound(&r));
    ring_close(&r);
}

/* The least possible youngest stamp among the blocks of a run that holds bytes, by trying all. */
static uint64_t best_run(const ring *r, uint64_t bytes) {
    uint64_t best = UINT64_MAX;
    for (int32_t start = r->first; start >= 0; start = r->block[start].after) {
        uint64_t span = 0, youngest = 0;
        for (int32_t i = start; i >= 0 && span < bytes; i = r->block[i].after) {
            const ring_block *b = &r->block[i];
            if (b->state == RING_HELD) {
                break;
            }
            span += b->bytes;
            youngest = b->state == RING_KEPT && b->stamp > youngest ? b->stamp : youngest;
        }
        best = span >= bytes && youngest < best ? youngest : best;
    }
    return best;
}

/* When no single old block makes room, the run given up is the oldest there is. */
TEST(ring_finds_the_oldest_run) {
    enum { N = 60 };
    ring r;
    int32_t n_run = 0;
    for (int32_t round = 0; round < 300; round++) {
        int32_t id[N], n = 0;
        CHECK_OK(ring_open(&r, 100 * 4096, 0, N, &err));
        while (n < N && (id[n] = take(&r, 1 + (int32_t)(test_rand() % 3))) >= 0) {
            n++;
        }
        for (int32_t i = 0; i < n; i++) {
            int32_t j = (int32_t)(test_rand() % (unsigned)(i + 1)), other = id[j];
            id[j] = id[i];
            id[i] = other;
        }
        for (int32_t i = 0; i < n; i++) {
            uint64_t what = test_rand() % 8;
            if (what == 0) {
                ring_drop(&r, id[i]);
            } else if (what > 1) {
                ring_keep(&r, id[i]);
            }
        }
        uint64_t want = best_run(&r, 9 * 4096);
        int32_t got = take(&r, 9);
        CHECK((got >= 0) == (want != UINT64_MAX));
        uint64_t youngest = 0;
        for (int32_t i = 0; i < n_evicted; i++) {
            uint64_t stamp = evicted_stamp[i];
            youngest = stamp > youngest ? stamp : youngest;
        }
        n_run += n_evicted > 1;
        CHECK(n_evicted < 2 || youngest == want);
        ring_close(&r);
    }
    CHECK(n_run > 100);
}

TEST(ring_resizes_around_what_is_held) {
    ring r;
    int32_t id[4], held;
    CHECK_OK(ring_open(&r, 4 * 4096, 8 * 4096, 8, &err));
    for (int32_t i = 0; i < 4; i++) {
        id[i] = take(&r, 1);
    }
    ring_keep(&r, id[3]);
    n_evicted = 0;
    CHECK(!ring_resize(&r, 2 * 4096, note_eviction, &r, &held));
    CHECK_INT(held, id[2]);
    CHECK_INT(n_evicted, 1);
    CHECK(ring_is_sound(&r));
    ring_drop(&r, id[2]);
    CHECK(ring_resize(&r, 2 * 4096, note_eviction, &r, &held));
    CHECK_INT(r.bytes, 2 * 4096);
    CHECK(ring_is_sound(&r));
    CHECK_INT(take(&r, 1), -1);
    CHECK(ring_resize(&r, 100 * 4096, note_eviction, &r, &held)); /* as far as it goes */
    CHECK_INT(r.bytes, 8 * 4096);
    CHECK(ring_is_sound(&r));
    int32_t big = take(&r, 6);
    CHECK(big >= 0);
    memset(ring_at(&r, big), 0xa5, 6 * 4096);
    ring_keep(&r, big);
    n_evicted = 0;
    CHECK(ring_resize(&r, 5 * 4096, note_eviction, &r, &held)); /* through the middle of a block */
    CHECK_INT(n_evicted, 1);
    CHECK(ring_is_sound(&r));
    int32_t back = take(&r, 3);
    CHECK(back >= 0);
    ring_drop(&r, back);
    CHECK(ring_resize(&r, 8 * 4096, note_eviction, &r, &held));
    back = take(&r, 6);
    CHECK_INT(ring_at(&r, back)[5 * 4096], 0); /* what was given back is empty again */
    ring_close(&r);
}

TEST(ring_stays_sound_through_random_resizes) {
    enum { N = 40 };
    ring r;
    int32_t held;
    bool is_held[2 * N + 1] = {0};
    CHECK_OK(ring_open(&r, 60 * 4096, 100 * 4096, N, &err));
    for (int32_t round = 0; round < 4000; round++) {
        uint64_t what = test_rand() % 4;
        int32_t any = (int32_t)(test_rand() % (2 * N + 1));
        int32_t n_held = 0;
        for (int32_t i = 0; i < 2 * N + 1; i++) {
            n_held += is_held[i];
        }
        if (what == 0 && n_held < N / 2) {
            int32_t id = take(&r, 1 + (int32_t)(test_rand() % 3));
            if (id >= 0) {
                is_held[id] = true;
            }
        } else if (what == 1 && is_held[any]) {
            ring_keep(&r, any);
            is_held[any] = false;
        } else if (what == 2 && is_held[any]) {
            ring_drop(&r, any);
            is_held[any] = false;
        } else if (what == 3) {
            n_evicted = 0;
            uint64_t to = (20 + test_rand() % 90) * 4096;
            bool done = ring_resize(&r, to, note_eviction, &r, &held);
            CHECK(done ? r.bytes == (to < 100 * 4096 ? to : 100 * 4096) : is_held[held]);
        }
        CHECK(ring_is_sound(&r));
    }
    ring_close(&r);
}

/* Values that change in any order: what goes is always the least, of equal ones the first kept. */
TEST(ring_evicts_by_value) {
    enum { N = 40 };
    ring r;
    double value[N];
    uint64_t kept_at[N], clock = 0;
    CHECK_OK(ring_open_hollow(&r, N * 4096, N, &err));
    for (int32_t i = 0; i < N; i++) {
        CHECK_INT(take(&r, 1), i);
        value[i] = 0;
    }
    for (int32_t i = 0; i < N; i++) {
        ring_keep(&r, i);
        kept_at[i] = clock++;
    }
    for (int32_t round = 0; round < 2000; round++) {
        int32_t i = (int32_t)(test_rand() % N), least = 0;
        value[i] = (double)(test_rand() % 16) - 8;
        ring_set_value(&r, i, value[i]);
        i = (int32_t)(test_rand() % N);
        ring_hold(&r, i);
        if (round % 2) { /* also while it is held */
            value[i] = (double)(test_rand() % 16) - 8;
            ring_set_value(&r, i, value[i]);
        }
        CHECK(ring_is_sound(&r));
        ring_keep(&r, i);
        kept_at[i] = clock++;
        for (int32_t j = 1; j < N; j++) {
            bool before =
                value[j] != value[least] ? value[j] < value[least] : kept_at[j] < kept_at[least];
            least = before ? j : least;
        }
        CHECK_INT(take(&r, 1), least);
        CHECK_INT(n_evicted, 1);
        value[least] = 0;
        ring_keep(&r, least);
        kept_at[least] = clock++;
    }
    ring_close(&r);
}
