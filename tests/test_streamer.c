/* streamer: what it hands out and what it counts, in rings of every size, with and without bets. */
#include "streamer_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "streamer/probe.h"
#include "streamer/streamer_state.h"

/* ---- the ring's sizes */

TEST(streamer_slot_is_the_sum_of_covers) {
    expert_ref e = {.n_ext = 3,
                    .ext = {{.offset = 4095, .bytes = 2},
                            {.offset = 4096, .bytes = 4096},
                            {.offset = 8191, .bytes = 4098}}};
    CHECK_INT(streamer_slot_bytes(&e), 8192 + 4096 + 3 * 4096);
}

TEST(streamer_floor_is_one_token_cycle) {
    make_fixture(&(fixture_config){.n_moe = 3,
                                   .n_expert = 7,
                                   .n_used = 2,
                                   .n_ext = 3,
                                   .min_bytes = 1000,
                                   .more_bytes = 40000,
                                   .align = 1});
    uint64_t want = 0, all = 0;
    for (int32_t m = 0; m < 3; m++) {
        uint64_t first = 0, second = 0;
        for (int32_t e = 0; e < 7; e++) {
            uint64_t b = streamer_slot_bytes(source_expert(&fx.source, m, e));
            all += b;
            if (b > first) {
                second = first;
                first = b;
            } else if (b > second) {
                second = b;
            }
        }
        want += first + second;
    }
    CHECK_INT(streamer_ring_floor(&fx.source), want);
    CHECK_INT(streamer_ring_full(&fx.source), all);
    streamer *s = NULL;
    streamer_config config = {.probe = SMOE_PROBE_OFF,
                              .source = &fx.source,
                              .ops = &io_thread_ops,
                              .ring_bytes = want - 1};
    CHECK_ERR(streamer_open(&s, &config, &err), SMOE_ERR_MEMORY);
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)want);
    CHECK_HAS(err.text, text);
    CHECK(!s);
    close_all(NULL);
}

/* ---- data */

static void sweep(const fixture_config *c, const io_ops *ops, smoe_switch direct,
                  uint32_t read_bytes) {
    make_fixture(c);
    uint64_t floor_bytes = streamer_ring_floor(&fx.source);
    uint64_t ring_bytes[] = {floor_bytes, floor_bytes + 4096, streamer_ring_full(&fx.source)};
    for (int32_t r = 0; r < 3; r++) {
        streamer *s = NULL;
        streamer_config config = {.probe = SMOE_PROBE_OFF,
                                  .source = &fx.source,
                                  .ops = ops,
                                  .direct = direct,
                                  .ring_bytes = ring_bytes[r],
                                  .read_bytes = read_bytes,
                                  .depth = r == 1 ? 1 : 0};
        int rc = streamer_open(&s, &config, &err);
        if (rc == SMOE_ERR_UNSUPPORTED) {
            close_all(NULL);
            SKIP("%s", err.text);
        }
        CHECK_OK(rc);
        CHECK_TEXT(streamer_backend(s), ops->name);
        CHECK(streamer_is_direct(s) == (direct == SMOE_ON));
        CHECK(streamer_held_bytes(s) >= ring_bytes[r]);
        int32_t order[MAX_EXPERT];
        for (int32_t round = 0; round < 2 * c->n_moe; round++) {
            for (int32_t e = 0; e < c->n_expert; e++) {
                order[e] = round % 2 ? e : c->n_expert - 1 - e;
            }
            use(s, round % c->n_moe, order, c->n_expert);
        }
        streamer_close(s);
    }
    close_all(NULL);
}

static void sweep_forms(const io_ops *ops, smoe_switch direct) {
    fixture_config c = {.n_moe = 2,
                        .n_expert = 6,
                        .n_used = 2,
                        .n_ext = 1,
                        .min_bytes = 9000,
                        .more_bytes = 20000,
                        .align = 16384,
                        .checksums = true};
    sweep(&c, ops, direct, 0);
    c.align = 1;
    sweep(&c, ops, direct, 4096);
    c.n_ext = 3;
    sweep(&c, ops, direct, 8192);
    c.checksums = false;
    c.min_bytes = 1;
    c.more_bytes = 6000;
    sweep(&c, ops, direct, 1);
}

TEST(streamer_data_threads_buffered) {
    sweep_forms(&io_thread_ops, SMOE_OFF);
}

TEST(streamer_data_threads_direct) {
    sweep_forms(&io_thread_ops, SMOE_ON);
}

TEST(streamer_data_uring_buffered) {
    sweep_forms(&io_uring_ops, SMOE_OFF);
}

TEST(streamer_data_uring_direct) {
    sweep_forms(&io_uring_ops, SMOE_ON);
}

/* ---- accounting */

TEST(streamer_counts_at_the_floor) {
    make_small();
    CHECK_INT(streamer_ring_floor(&fx.source), 4 * 8192);
    streamer *s = open_faulty(4 * 8192);
    USE(s, 0, 0, 1);
    USE(s, 1, 0, 1);
    check_stats(s, 0, 0, 4, 0);
    USE(s, 0, 1, 0); /* the whole cycle again: all hits */
    USE(s, 1, 1, 0);
    check_stats(s, 4, 0, 4, 0);
    USE(s, 0, 0, 2); /* 0 is of this demand: the oldest other one goes, layer 0's expert 1 */
    check_stats(s, 5, 0, 5, 1);
    USE(s, 1, 0, 1);
    check_stats(s, 7, 0, 5, 1);
    USE(s, 0, 1);
    check_stats(s, 7, 0, 6, 2);
    streamer_stats n;
    streamer_get_stats(s, &n);
    CHECK_INT(n.drive_bytes, 6 * 6000);
    CHECK_INT(n.n_read, 6);
    CHECK_INT(n.spec_reads, 0);
    streamer_reset_stats(s);
    streamer_get_stats(s, &n);
    CHECK_INT(n.uses + n.n_read + n.drive_bytes + n.evictions + n.wait_ns + n.drive_busy_ns, 0);
    close_all(s);
}

TEST(streamer_counts_above_the_floor) {
    make_small();
    streamer *s = open_faulty(4 * 8192 + 4096); /* half a slot more changes nothing */
    USE(s, 0, 0, 1);
    USE(s, 1, 0, 1);
    USE(s, 0, 2, 3);
    check_stats(s, 0, 0, 6, 2);
    streamer_close(s);
    s = open_faulty(streamer_ring_full(&fx.source));
    for (int32_t i = 0; i < 3; i++) {
        USE(s, 0, 0, 1, 2, 3, 4, 5, 6, 7);
        USE(s, 1, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    check_stats(s, 32, 0, 16, 0);
    close_all(s);
}

TEST(streamer_preloads_everything) {
    make_fixture(&(fixture_config){.n_moe = 3,
                                   .n_expert = 9,
                                   .n_used = 2,
                                   .n_ext = 3,
                                   .min_bytes = 500,
                                   .more_bytes = 30000,
                                   .align = 1,
                                   .checksums = true});
    streamer *s = open_faulty(streamer_ring_full(&fx.source));
    CHECK_OK(streamer_preload(s, &err));
    check_stats(s, 0, 0, 0, 0);
    streamer_stats before, after;
    streamer_get_stats(s, &before);
    for (int32_t m = 0; m < 3; m++) {
        USE(s, m, 8, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    check_stats(s, 27, 0, 0, 0);
    streamer_get_stats(s, &after);
    CHECK_INT(after.n_read, before.n_read);
    streamer_close(s);
    s = open_faulty(streamer_ring_full(&fx.source) - 1);
    CHECK_ERR(streamer_preload(s, &err), SMOE_ERR_ARGUMENT);
    close_all(s);
}

TEST(streamer_hits_come_first) {
    make_small();
    streamer *s = open_faulty(8 * 8192);
    faulty.only_waiting = true;
    USE(s, 0, 5, 6);
    streamer_item items[8];
    int32_t n;
    streamer_demand(s, 0, (const int32_t[]){1, 5, 2, 6}, 4);
    CHECK_OK(streamer_next(s, items, 8, &n, &err));
    CHECK_INT(n, 2);
    CHECK_INT(items[0].index, 1);
    CHECK_INT(items[1].index, 3);
    int32_t total = n;
    while (total < 4) {
        CHECK_OK(streamer_next(s, items + total, 8 - total, &n, &err));
        CHECK(n > 0);
        total += n;
    }
    CHECK_OK(streamer_next(s, items, 8, &n, &err));
    CHECK_INT(n, 0);
    for (int32_t i = 0; i < 4; i++) {
        check_item(0, &items[i]); /* held all along */
        streamer_release(s, &items[i]);
    }
    check_stats(s, 2, 0, 4, 0);
    close_all(s);
}

TEST(streamer_hits_touch_no_back_end) {
    make_small();
    streamer *s = open_faulty(8 * 8192);
    USE(s, 0, 1, 2);
    faulty.takes_nothing = true;
    USE(s, 0, 2, 1);
    check_stats(s, 2, 0, 2, 0);
    close_all(s);
}

/* ---- a ring smaller than the demand */

TEST(streamer_ring_of_one_expert) {
    make_fixture(&(fixture_config){
        .n_moe = 1, .n_expert = 5, .n_used = 1, .n_ext = 1, .min_bytes = 5000, .align = 4096});
    streamer *s = open_faulty(streamer_ring_floor(&fx.source));
    CHECK_INT(s->ring.bytes, streamer_slot_bytes(&fx.expert[0]));
    for (int32_t i = 0; i < 4; i++) {
        USE(s, 0, 4, 0, 1, 3, 2);
    }
    USE(s, 0, 2);
    check_stats(s, 3, 0, 5 + 3 * 4 + 1, 17); /* the last stays and leads the next round */
    BET(s, 0, 1);
    streamer_poll(s);
    USE(s, 0, 2);
    close_all(s);
}

TEST(streamer_held_items_fill_the_ring) {
    make_small();
    streamer *s = open_faulty(4 * 8192);
    streamer_item items[8];
    int32_t total = 0, n = 0;
    streamer_demand(s, 0, (const int32_t[]){0, 1, 2, 3, 4, 5}, 6);
    while (total < 4) {
        CHECK_OK(streamer_next(s, items + total, 8 - total, &n, &err));
        total += n;
    }
    CHECK_ERR(streamer_next(s, items + total, 4, &n, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "layer 1");
    for (int32_t i = 0; i < 4; i++) {
        check_item(0, &items[i]);
        streamer_release(s, &items[i]);
    }
    USE(s, 0, 0, 1, 2, 3, 4, 5);
    close_all(s);
}

static void add_random_fault(void) {
    const int32_t errnum[] = {EIO, EAGAIN, EINTR};
    uint64_t at = test_rand() % fx.file[0].bytes;
    fault_kind kind = (fault_kind)(test_rand() % 5);
    faulty_clear();
    faulty_add(&(fault){.kind = kind,
                        .value = kind == FAULT_SHORT ? 1 + (int32_t)(test_rand() % 9000)
                                                     : errnum[test_rand() % 3],
                        .from = at,
                        .to = at + 1 + (kind == FAULT_FLIP ? 0 : test_rand() % 100000),
                        .nth = (int32_t)(test_rand() % 2),
                        .times = test_rand() % 4 ? 1 : 5});
}

/* Steps of every kind in random order over experts of very different size, in a ring at its floor:
 * everything handed out is right until its release, and every demand ends. */
static void stress(const fixture_config *c, uint64_t more_bytes, faulty_order order, int32_t n_step,
                   bool has_faults) {
    make_fixture(c);
    streamer *s = open_faulty(streamer_ring_floor(&fx.source) + more_bytes);
    faulty.order = order;
    streamer_item held[MAX_EXPERT];
    int32_t held_moe[MAX_EXPERT], n_held = 0, moe = 0;
    for (int32_t step = 0; step < n_step; step++) {
        int32_t list[MAX_EXPERT], n = 1 + (int32_t)(test_rand() % (unsigned)c->n_used);
        int32_t what = (int32_t)(test_rand() % 100);
        n = test_rand() % 50 == 0 ? c->n_expert : n;
        for (int32_t i = 0; i < c->n_expert; i++) {
            int32_t j = (int32_t)(test_rand() % (unsigned)(i + 1));
            list[i] = list[j];
            list[j] = i;
        }
        if (what < 15) {
            moe = (moe + 1) % c->n_moe;
            streamer_demand(s, moe, list, n);
        } else if (what < 20) {
            BET(s, (moe + 1) % c->n_moe, list[0], list[1], list[2]);
        } else if (what < 22) {
            streamer_abandon(s);
        } else if (what < 30) {
            streamer_poll(s);
        } else if (what < 60 && n_held > 0) {
            n_held--;
            check_item(held_moe[n_held], &held[n_held]);
            streamer_release(s, &held[n_held]);
        } else if (n_held < MAX_EXPERT) {
            int rc = streamer_next(s, &held[n_held], MAX_EXPERT - n_held, &n, &err);
            CHECK(rc == SMOE_OK || (rc == SMOE_ERR_ARGUMENT && n_held > 0) ||
                  (has_faults && (rc == SMOE_ERR_IO || rc == SMOE_ERR_CHECKSUM)));
            for (int32_t i = 0; i < n; i++) {
                held_moe[n_held++] = moe;
            }
        }
        if (has_faults && step % 20 == 0) {
            add_random_fault();
        }
        check_sound(s);
    }
    faulty_clear();
    while (n_held > 0) {
        streamer_release(s, &held[--n_held]);
    }
    int32_t all[MAX_EXPERT];
    for (int32_t i = 0; i < c->n_expert; i++) {
        all[i] = i;
    }
    for (int32_t m = 0; m < c->n_moe; m++) {
        use(s, m, all, c->n_expert);
    }
    check_counted(s);
    close_all(s);
}

static const fixture_config mixed_sizes = {.n_moe = 3,
                                           .n_expert = 16,
                                           .n_used = 3,
                                           .n_ext = 3,
                                           .min_bytes = 100,
                                           .more_bytes = 20000,
                                           .align = 1,
                                           .checksums = true};

TEST(streamer_stress_as_it_comes) {
    stress(&mixed_sizes, 0, FAULTY_AS_IT_COMES, 20000, false);
}

TEST(streamer_stress_shuffled) {
    stress(&mixed_sizes, 100000, FAULTY_SHUFFLED, 8000, true);
}

TEST(streamer_stress_reversed) {
    fixture_config c = mixed_sizes;
    c.n_used = 1;
    c.n_moe = 1;
    stress(&c, 0, FAULTY_REVERSED, 5000, true);
}

/* ---- bets */

TEST(streamer_bets_turn_misses_into_hits) {
    make_small();
    streamer *s = open_faulty(16 * 8192);
    faulty.order = FAULTY_IN_ORDER;
    USE(s, 0, 0);
    BET(s, 1, 3, 4, 5);
    for (int32_t i = 0; i < 5; i++) {
        streamer_poll(s);
    }
    USE(s, 1, 3, 4);
    check_stats(s, 2, 0, 1, 0);
    faulty.only_waiting = true;
    BET(s, 0, 6, 7, 2, 3, 1);
    USE(s, 0, 6, 1); /* 6 is on its way, 1 was still waiting behind the depth's four */
    check_stats(s, 2, 1, 2, 0);
    streamer_stats n;
    streamer_get_stats(s, &n);
    CHECK_INT(n.spec_used, 3);
    CHECK_INT(n.spec_reads, 7);
    USE(s, 0, 6); /* used before: no longer the bet's merit */
    streamer_get_stats(s, &n);
    CHECK_INT(n.spec_used, 3);
    close_all(s);
}

/* The index in the log of the first read of an expert, or -1. */
static int32_t first_read(int32_t moe_index, int32_t expert) {
    const extent *x = &source_expert(&fx.source, moe_index, expert)->ext[0];
    for (int32_t i = 0; i < faulty_logged(); i++) {
        const io_read *r = faulty_log(i);
        if (r->offset >= x->offset && r->offset < x->offset + x->bytes) {
            return i;
        }
    }
    return -1;
}

static bool is_read_of(const io_read *r, int32_t moe_index, int32_t expert) {
    const extent *x = &source_expert(&fx.source, moe_index, expert)->ext[0];
    return r->offset >= x->offset && r->offset < x->offset + x->bytes;
}

TEST(streamer_bets_never_delay_a_demand) {
    make_fixture(&(fixture_config){
        .n_moe = 2, .n_expert = 8, .n_used = 4, .n_ext = 1, .min_bytes = 30000, .align = 4096});
    streamer *s = NULL;
    streamer_config config = {.probe = SMOE_PROBE_OFF,
                              .source = &fx.source,
                              .ops = &faulty_ops,
                              .direct = SMOE_OFF,
                              .ring_bytes = streamer_ring_full(&fx.source),
                              .depth = 4,
                              .read_bytes = 8192};
    CHECK_OK(streamer_open(&s, &config, &err));
    faulty.only_waiting = true;
    faulty.order = FAULTY_IN_ORDER;
    BET(s, 1, 0, 1, 2, 3);
    CHECK_INT(faulty_logged(), 4); /* as much as the drive serves at once, not more */
    USE(s, 0, 0, 1, 2, 3);         /* 12 reads each of 90000 bytes in 8 KiB */
    int32_t n_demand = 0, n_spec_between = 0;
    for (int32_t i = 4; i < faulty_logged() && n_demand < 4 * 11; i++) {
        bool is_demand = false;
        for (int32_t e = 0; e < 4; e++) {
            is_demand |= is_read_of(faulty_log(i), 0, e);
        }
        n_demand += is_demand;
        n_spec_between += !is_demand;
    }
    CHECK_INT(n_demand, 4 * 11);
    CHECK_INT(n_spec_between, 0);
    CHECK_INT(faulty_most_in_flight(), 8); /* the demand had the depth to itself */
    /* with nothing else to do the bet goes on */
    faulty.only_waiting = false;
    for (int32_t i = 0; i < 100; i++) {
        streamer_poll(s);
        CHECK(s->queue.n_spec <= 4);
    }
    CHECK(first_read(1, 3) > 0);
    USE(s, 1, 0, 1, 2, 3);
    check_stats(s, 4, 0, 4, 0);
    close_all(s);
}

TEST(streamer_bets_start_behind_the_demand) {
    make_small();
    streamer *s = open_faulty(streamer_ring_full(&fx.source));
    faulty.only_waiting = true;
    streamer_demand(s, 0, (const int32_t[]){0, 1, 2, 3, 4}, 5); /* depth 4 */
    BET(s, 1, 6);
    streamer_item items[8];
    int32_t n = 0, total = 0;
    while (total < 5) {
        CHECK(first_read(1, 6) < 0 || first_read(0, 4) >= 0);
        CHECK_OK(streamer_next(s, items + total, 8 - total, &n, &err));
        total += n;
    }
    CHECK(first_read(1, 6) > first_read(0, 4)); /* without a poll */
    close_all(s);
}

/* Whatever the order they were placed in, also over the last layer to the next token's first. */
TEST(streamer_bets_start_by_their_layers_turns) {
    make_fixture(&(fixture_config){
        .n_moe = 4, .n_expert = 8, .n_used = 2, .n_ext = 1, .min_bytes = 3000, .align = 4096});
    streamer *s = open_faulty(streamer_ring_full(&fx.source));
    faulty.only_waiting = true;
    USE(s, 1, 0);
    streamer_demand(s, 1, (const int32_t[]){1, 2, 3, 4, 5, 6}, 6); /* more than the depth */
    BET(s, 0, 3);
    BET(s, 3, 4, 5);
    BET(s, 2, 6);
    BET(s, 3, 7);
    streamer_item items[8];
    int32_t n = 0, total = 0;
    while (total < 6) {
        CHECK_OK(streamer_next(s, items + total, 8 - total, &n, &err));
        total += n;
    }
    for (int32_t i = 0; i < total; i++) {
        streamer_release(s, &items[i]);
    }
    faulty.only_waiting = false;
    for (int32_t i = 0; i < 50 || s->queue.n_flight > 0; i++) {
        streamer_poll(s);
    }
    CHECK(first_read(2, 6) >= 0 && first_read(2, 6) < first_read(3, 7));
    CHECK(first_read(3, 7) < first_read(0, 3));
    CHECK_INT(first_read(3, 4), -1); /* replaced */
    close_all(s);
}

TEST(streamer_bets_wait_for_a_demand_without_space) {
    make_paged(1, 4096);
    for (int32_t e = 0; e < 4; e++) { /* layer 1's experts shrink to a page */
        expert_ref *ref = &fx.expert[4 + e];
        ref->has_checksum = false;
        ref->ext[0].bytes = 300;
        for (int32_t p = 0; p < PART_COUNT; p++) {
            ref->part[p].bytes = 100;
            ref->part[p].at_bytes = (uint64_t)p * 100;
        }
    }
    streamer *s = open_faulty(streamer_ring_floor(&fx.source)); /* 7 pages and 1 */
    streamer_item item;
    int32_t n;
    streamer_demand(s, 0, (const int32_t[]){0, 1}, 2);
    CHECK_OK(streamer_next(s, &item, 1, &n, &err));
    BET(s, 1, 3); /* would fit beside the item held, expert 1 does not */
    streamer_poll(s);
    CHECK_INT(faulty_logged(), 1);
    streamer_release(s, &item);
    CHECK_OK(streamer_next(s, &item, 1, &n, &err));
    CHECK_INT(n, 1);
    streamer_release(s, &item);
    USE(s, 1, 3);
    check_counted(s);
    close_all(s);
}

TEST(streamer_demanded_bet_is_promoted) {
    make_fixture(&(fixture_config){
        .n_moe = 2, .n_expert = 4, .n_used = 2, .n_ext = 1, .min_bytes = 30000, .align = 4096});
    streamer *s = NULL;
    streamer_config config = {.probe = SMOE_PROBE_OFF,
                              .source = &fx.source,
                              .ops = &faulty_ops,
                              .direct = SMOE_OFF,
                              .ring_bytes = streamer_ring_full(&fx.source),
                              .depth = 4,
                              .read_bytes = 8192};
    CHECK_OK(streamer_open(&s, &config, &err));
    faulty.only_waiting = true;
    BET(s, 1, 2);
    CHECK_INT(faulty_logged(), 4);
    CHECK_INT(s->queue.n_spec, 4);
    streamer_demand(s, 1, (const int32_t[]){2}, 1);
    CHECK_INT(s->queue.n_spec, 0);
    streamer_item item;
    int32_t n;
    CHECK_OK(streamer_next(s, &item, 1, &n, &err));
    check_item(1, &item);
    streamer_release(s, &item);
    check_stats(s, 0, 1, 0, 0);
    close_all(s);
}

TEST(streamer_bets_spare_the_current_token) {
    make_small();
    streamer *s = open_faulty(4 * 8192);
    USE(s, 0, 0, 1);
    USE(s, 1, 0, 1);
    BET(s, 0, 5, 6); /* the ring holds exactly this token: no room */
    streamer_poll(s);
    USE(s, 0, 0, 1);
    check_stats(s, 2, 0, 4, 0);
    streamer_close(s);
    s = open_faulty(5 * 8192);
    USE(s, 0, 0, 1);
    USE(s, 1, 0, 1);
    USE(s, 0, 0); /* 0.1 is now of the token before */
    BET(s, 1, 5, 6, 7);
    for (int32_t i = 0; i < 50 || s->queue.n_flight > 0; i++) {
        streamer_poll(s);
    }
    USE(s, 1, 0, 1, 5, 6); /* 5 took the free slot, 6 took 0.1's, 7 found none */
    USE(s, 0, 0);
    check_stats(s, 1 + 4 + 1, 0, 4, 1);
    close_all(s);
}

TEST(streamer_bets_fail_quietly) {
    make_paged(1, 4096);
    streamer *s = open_faulty(streamer_ring_full(&fx.source));
    const extent *x = &source_expert(&fx.source, 1, 2)->ext[0];
    faulty_add(&(fault){FAULT_ERRNO, .value = EIO, .from = x->offset, .to = x->offset + 1,
                        .times = FAULT_FOREVER});
    BET(s, 1, 2, 1);
    for (int32_t i = 0; i < 50 || s->queue.n_flight > 0; i++) {
        streamer_poll(s);
    }
    USE(s, 1, 1);
    check_stats(s, 1, 0, 0, 0);
    use_failing(s, 1, 2, SMOE_ERR_IO);
    faulty_clear();
    USE(s, 1, 2);
    close_all(s);
}

TEST(streamer_bets_are_bounded) {
    make_small();
    streamer *s = open_faulty(streamer_ring_full(&fx.source));
    faulty.only_waiting = true;
    for (int32_t i = 0; i < 1000; i++) {
        BET(s, i % 2, i % 8, (i + 1) % 8, (i + 2) % 8);
        CHECK(s->n_bet <= 6);
    }
    USE(s, 0, 0, 1, 2, 3, 4, 5, 6, 7);
    USE(s, 1, 0, 1, 2, 3, 4, 5, 6, 7);
    check_counted(s);
    close_all(s);
}

/* ---- several drives */

/* A fixture with a copy of its files in a folder; the last copy's path goes to name. */
static void make_copied(char dir[1100], char name[1200]) {
    make_fixture(&(fixture_config){.n_moe = 2,
                                   .n_expert = 16,
                                   .n_used = 4,
                                   .n_ext = 1,
                                   .min_bytes = 30000,
                                   .align = 4096,
                                   .checksums = true});
    snprintf(dir, 1100, "%s/copy", test_dir());
    CHECK_INT(mkdir(dir, 0700), 0);
    for (int32_t i = 0; i < fx.source.files.n_file; i++) {
        snprintf(name, 1200, "%s/%s", dir, strrchr(fx.path[i], '/') + 1);
        test_write_file(name, fx.data[i], (size_t)fx.file[i].bytes);
    }
}

/* The first file's copies share its reads; a copy of another length is refused by name. */
TEST(streamer_reads_from_every_copy) {
    char dir[1100], name[1200];
    make_copied(dir, name);
    const char *dirs[] = {dir};
    streamer_config config = {.source = &fx.source,
                              .ops = &io_thread_ops,
                              .ring_bytes = 16 * 98304,
                              .depth = 4,
                              .read_bytes = 16384,
                              .probe = SMOE_PROBE_OFF,
                              .copy_dir = dirs,
                              .n_copy = 1};
    streamer *s = NULL;
    CHECK_OK(streamer_open(&s, &config, &err));
    USE(s, 0, 1, 3, 5, 7, 9, 11);
    USE(s, 1, 0, 2, 4, 6);
    streamer_stats st;
    streamer_get_stats(s, &st);
    CHECK_INT(st.n_drive, 2);
    CHECK(st.bytes_of_drive[0] > 0 && st.bytes_of_drive[1] > 0);
    CHECK(st.bytes_of_drive[0] + st.bytes_of_drive[1] == st.drive_bytes);
    streamer_close(s);
    CHECK_INT(truncate(name, 100), 0);
    CHECK_INT(streamer_open(&s, &config, &err), SMOE_ERR_ARGUMENT);
    CHECK(strstr(err.text, "no copy of") != NULL);
    close_all(NULL);
}

/* The rate of several drives is the sum of what each gives. */
TEST(streamer_probes_every_copy) {
    char dir[1100], name[1200];
    make_copied(dir, name);
    const char *dirs[] = {dir};
    const char *const copies[] = {name};
    CHECK_INT(fx.source.files.n_file, 1);
    streamer_config config = {.source = &fx.source,
                              .ops = &io_thread_ops,
                              .ring_bytes = 16 * 98304,
                              .depth = 4,
                              .read_bytes = 16384,
                              .copy_dir = dirs,
                              .n_copy = 1};
    streamer_stats st;
    for (int round = 0; round < 2; round++) { /* measured, then remembered */
        streamer *s = NULL;
        CHECK_OK(streamer_open(&s, &config, &err));
        streamer_get_stats(s, &st);
        streamer_close(s);
    }
    probe_result own, copy;
    probe_config pc = {
        .source = &fx.source, .ops = {&io_thread_ops}, .depth = 4, .read_bytes = 16384};
    CHECK(probe_recall(&own, &pc));
    pc.path = copies;
    pc.direct = own.direct ? SMOE_ON : SMOE_OFF;
    CHECK(probe_recall(&copy, &pc));
    CHECK(own.bytes_per_s > 0 && copy.bytes_per_s > 0);
    CHECK_NEAR(st.probed_bytes_per_s, own.bytes_per_s + copy.bytes_per_s, 1);
    close_all(NULL);
}

/* ---- sweeps */

TEST(streamer_sweeps_in_order_behind_the_demand) {
    make_small();
    streamer *s = open_faulty(12 * 8192);
    const int32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    streamer_item items[8];
    int32_t n;
    streamer_demand(s, 0, all, 2);
    streamer_sweep(s, 1, all, 8);
    int32_t seen = 0;
    do {
        CHECK_OK(streamer_next(s, items, 8, &n, &err));
        for (int32_t i = 0; i < n; i++, seen++) {
            check_item(0, &items[i]);
            streamer_release(s, &items[i]);
        }
    } while (n > 0);
    CHECK_INT(seen, 2);
    /* half the ring, 6 of 8, and never more */
    for (int32_t i = 0; i < 100; i++) {
        streamer_poll(s);
        usleep(1000);
    }
    streamer_stats st;
    streamer_get_stats(s, &st);
    CHECK_INT(st.sweep_reads, 6);
    USE(s, 1, 0, 1, 2, 3, 4, 5, 6, 7);
    streamer_get_stats(s, &st);
    CHECK_INT(st.sweep_used, 6);
    CHECK_INT(st.misses, 4);
    CHECK_INT(st.hits + st.inflight_hits, 6);
    check_sound(s);
    close_all(s);
}

TEST(streamer_resizes_between_demands) {
    make_small();
    streamer *s = NULL;
    streamer_config config = {.source = &fx.source,
                              .ops = &io_thread_ops,
                              .ring_bytes = 6 * 8192,
                              .may_grow = true,
                              .probe = SMOE_PROBE_OFF,
                              .depth = 4};
    CHECK_OK(streamer_open(&s, &config, &err));
    for (int32_t round = 0; round < 200; round++) {
        int32_t layer = round % 2, a = (int32_t)(test_rand() % 8), b = (a + 3) % 8;
        USE(s, layer, a, b);
        BET(s, 1 - layer, b, a);
        uint64_t to = (4 + test_rand() % 14) * 8192; /* with reads of bets in flight */
        CHECK_OK(streamer_resize(s, to, &err));
        check_sound(s);
    }
    CHECK_INT(streamer_resize(s, 4096, &err), SMOE_ERR_MEMORY);
    close_all(s);
}
