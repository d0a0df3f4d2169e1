/* probe: what it chooses works, what it remembers comes back, and a damaged store is no store. */
#include "streamer_fixture.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/clock.h"
#include "streamer/probe.h"

static uint8_t *room;
enum { ROOM_BYTES = 1 << 20 };

static probe_config config_for(const io_ops *first, const io_ops *second) {
    make_fixture(&(fixture_config){.n_moe = 2,
                                   .n_expert = 16,
                                   .n_used = 4,
                                   .n_ext = 3,
                                   .min_bytes = 20000,
                                   .more_bytes = 9000,
                                   .align = 1});
    room = aligned_alloc(4096, ROOM_BYTES);
    return (probe_config){.source = &fx.source,
                          .ops = {first, second},
                          .room = room,
                          .room_bytes = ROOM_BYTES,
                          .budget_ns = 20000000};
}

static void check_sane(const probe_result *r, const probe_config *c) {
    CHECK(r->ops == c->ops[0] || r->ops == c->ops[1]);
    CHECK(r->depth >= 1 && r->depth <= 64);
    CHECK(r->read_bytes >= 4096 && r->read_bytes % 4096 == 0);
    CHECK((uint64_t)r->depth * r->read_bytes <= c->room_bytes);
    CHECK(r->bytes_per_s > 0);
    CHECK(r->latency_ns > 0);
}

TEST(probe_chooses_something_that_works) {
    probe_result r;
    probe_config c = config_for(&io_thread_ops, NULL);
    CHECK_OK(probe_run(&r, &c, &err));
    check_sane(&r, &c);
    c.direct = SMOE_OFF;
    CHECK_OK(probe_run(&r, &c, &err));
    check_sane(&r, &c);
    CHECK(!r.direct);
    c.depth = 3;
    c.read_bytes = 8192;
    CHECK_OK(probe_run(&r, &c, &err));
    CHECK_INT(r.depth, 3);
    CHECK_INT(r.read_bytes, 8192);
    free(room);
    close_all(NULL);
}

/* A ring of one block has room for one read. */
TEST(probe_stays_within_its_room) {
    probe_result r;
    probe_config c = config_for(&io_thread_ops, NULL);
    c.room_bytes = 4096;
    CHECK_OK(probe_run(&r, &c, &err));
    CHECK_INT(r.depth, 1);
    free(room);
    close_all(NULL);
}

TEST(probe_says_why_nothing_works) {
    probe_result r;
    probe_config c = config_for(&faulty_ops, NULL);
    faulty.open_code = SMOE_ERR_UNSUPPORTED;
    CHECK_INT(probe_run(&r, &c, &err), SMOE_ERR_UNSUPPORTED);
    CHECK(err.text[0] != '\0');
    faulty_reset();
    free(room);
    close_all(NULL);
}

/* A back end whose page cache is quick in its first look, or always. */
static int32_t quick_looks;

typedef struct moody_io {
    io *inner;
    int32_t wait_us;
} moody_io;

static int moody_open(io **out, const io_config *config, smoe_error *e) {
    io_config c = *config;
    moody_io *m = calloc(1, sizeof *m);
    CHECK(m);
    c.direct = false; /* every file system has this one */
    /* far apart: on a busy machine a look that does not wait can take milliseconds */
    m->wait_us = config->direct ? 15000 : quick_looks > 0 ? 0 : 90000;
    quick_looks -= !config->direct;
    *out = (io *)m;
    return io_thread_ops.open(&m->inner, &c, e);
}

static int32_t moody_submit(io *handle, const io_read *reads, int32_t n) {
    return io_thread_ops.submit(((moody_io *)handle)->inner, reads, n);
}

static int32_t moody_reap(io *handle, io_done *done, int32_t max, bool wait) {
    moody_io *m = (moody_io *)handle;
    usleep((useconds_t)m->wait_us);
    return io_thread_ops.reap(m->inner, done, max, wait);
}

static void moody_close(io *handle) {
    io_thread_ops.close(((moody_io *)handle)->inner);
    free(handle);
}

static const io_ops moody_ops = {.name = "moody",
                                 .open = moody_open,
                                 .submit = moody_submit,
                                 .reap = moody_reap,
                                 .close = moody_close};

TEST(probe_takes_the_page_cache_only_when_it_stays_quicker) {
    probe_result r;
    probe_config c = config_for(&moody_ops, NULL);
    c.depth = 2;
    quick_looks = 1;
    CHECK_OK(probe_run(&r, &c, &err));
    CHECK(r.direct);
    CHECK(r.buffered_bytes_per_s > r.bytes_per_s); /* the lucky look is still told */
    quick_looks = INT32_MAX;
    CHECK_OK(probe_run(&r, &c, &err));
    CHECK(!r.direct);
    free(room);
    close_all(NULL);
}

/* A drive that serves one read after the other, the slower the more of them wait: by so much that
 * one at a time is the best however the machine is loaded. */
typedef struct one_lane {
    io_done waiting[64];
    int32_t n;
} one_lane;

static int lane_open(io **out, const io_config *config, smoe_error *e) {
    (void)config, (void)e;
    *out = (io *)calloc(1, sizeof(one_lane));
    CHECK(*out);
    return SMOE_OK;
}

static int32_t lane_submit(io *handle, const io_read *reads, int32_t n) {
    one_lane *l = (one_lane *)handle;
    for (int32_t i = 0; i < n; i++) {
        CHECK(l->n < 64);
        l->waiting[l->n++] = (io_done){.tag = reads[i].tag, .result = (int32_t)reads[i].bytes};
    }
    return n;
}

static int32_t lane_reap(io *handle, io_done *done, int32_t max, bool wait) {
    one_lane *l = (one_lane *)handle;
    (void)max, (void)wait;
    if (l->n == 0) {
        return 0;
    }
    for (uint64_t end_ns = now_ns() + 10000 * (uint64_t)l->n; now_ns() < end_ns;) {
    }
    *done = l->waiting[0];
    memmove(l->waiting, l->waiting + 1, (size_t)--l->n * sizeof *l->waiting);
    return 1;
}

static void lane_close(io *handle) {
    free(handle);
}

/* What is in flight has to last while nobody looks, however few reads the drive wants. */
TEST(probe_keeps_a_drive_of_one_lane_busy) {
    static const io_ops lane_ops = {.name = "lane",
                                    .open = lane_open,
                                    .submit = lane_submit,
                                    .reap = lane_reap,
                                    .close = lane_close};
    probe_result r;
    probe_config c = config_for(&lane_ops, NULL);
    CHECK_OK(probe_run(&r, &c, &err));
    check_sane(&r, &c);
    CHECK(r.depth == 2 && r.read_bytes > 20000); /* the longest reads, and one more of them */
    free(room);
    close_all(NULL);
}

/* A back end that notes where reads land. */
static uint8_t place_used[ROOM_BYTES / 8192];
static int32_t n_place_open[ROOM_BYTES / 8192];

static size_t place_of(const void *buf, uint32_t bytes) {
    size_t at = (size_t)((const uint8_t *)buf - room);
    CHECK(at + bytes <= ROOM_BYTES);
    return at / 8192;
}

static int32_t noting_submit(io *handle, const io_read *reads, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        size_t place = place_of(reads[i].buf, reads[i].bytes);
        place_used[place] = 1;
        CHECK_INT(n_place_open[place]++, 0);
    }
    int32_t done = lane_submit(handle, reads, n);
    one_lane *l = (one_lane *)handle;
    for (int32_t i = 0; i < done; i++) { /* the lane gives the tag back: keep the place in it */
        l->waiting[l->n - done + i].tag |= (uint64_t)place_of(reads[i].buf, 0) << 32;
    }
    return done;
}

static int32_t noting_reap(io *handle, io_done *done, int32_t max, bool wait) {
    int32_t n = lane_reap(handle, done, max, wait);
    for (int32_t i = 0; i < n; i++) {
        n_place_open[done[i].tag >> 32]--;
        done[i].tag = (uint32_t)done[i].tag;
    }
    return n;
}

/* Decode reads into memory that no cache holds, and a virtual drive copies: reads that all land in
 * the same blocks look a quarter quicker than what follows. No two at once share a place. */
TEST(probe_reads_into_all_of_its_room) {
    static const io_ops noting_ops = {.name = "noting",
                                      .open = lane_open,
                                      .submit = noting_submit,
                                      .reap = noting_reap,
                                      .close = lane_close};
    probe_result r;
    probe_config c = config_for(&noting_ops, NULL);
    c.depth = 2;
    c.read_bytes = 8192;
    CHECK_OK(probe_run(&r, &c, &err));
    for (size_t i = 0; i < sizeof place_used; i++) {
        CHECK_INT(place_used[i], 1);
    }
    c.depth = 8; /* more than the room holds */
    c.read_bytes = ROOM_BYTES / 4;
    CHECK_OK(probe_run(&r, &c, &err));
    free(room);
    close_all(NULL);
}

/* Reads that fail make a way worthless, not the probe. */
TEST(probe_survives_failing_reads) {
    probe_result r;
    probe_config c = config_for(&faulty_ops, NULL);
    c.direct = SMOE_OFF;
    faulty_add(&(fault){.kind = FAULT_ERRNO, .value = 5, .times = FAULT_FOREVER});
    CHECK_OK(probe_run(&r, &c, &err));
    CHECK(r.bytes_per_s == 0);
    faulty_reset();
    free(room);
    close_all(NULL);
}

TEST(probe_remembers_for_each_file_and_way) {
    char path[4096];
    probe_result r, back;
    probe_config c = config_for(&io_thread_ops, &io_uring_ops);
    CHECK(!probe_recall(&back, &c));
    CHECK_OK(probe_run(&r, &c, &err));
    probe_remember(&r, &c);
    CHECK(probe_recall(&back, &c));
    CHECK(back.is_remembered);
    CHECK(back.ops == r.ops && back.direct == r.direct && back.depth == r.depth);
    CHECK_INT(back.read_bytes, r.read_bytes);
    probe_config other = c;
    other.direct = SMOE_OFF;
    CHECK(!probe_recall(&back, &other)); /* other ways were allowed */
    for (int32_t i = 1; i <= 100; i++) { /* the store stays small, the newest stay */
        other.depth = i;
        r.depth = 1 + i % 60;
        probe_remember(&r, &other);
    }
    CHECK(probe_recall(&back, &other));
    CHECK_INT(back.depth, 1 + 100 % 60);
    CHECK(!probe_recall(&back, &c));
    CHECK(cache_file_path(path, sizeof path, "drives.tsv", false));
    struct stat st;
    CHECK_INT(stat(path, &st), 0);
    CHECK(st.st_size < 65536);
    test_write_file(path, "nonsense\n\t\t\t\n\xff\xfe", 16);
    CHECK(!probe_recall(&back, &other));
    probe_remember(&r, &other); /* over the nonsense */
    CHECK(probe_recall(&back, &other));
    free(room);
    close_all(NULL);
}

TEST(probe_forgets_a_changed_file) {
    probe_result r, back;
    probe_config c = config_for(&io_thread_ops, NULL);
    CHECK_OK(probe_run(&r, &c, &err));
    probe_remember(&r, &c);
    CHECK(probe_recall(&back, &c));
    CHECK_INT(truncate(fx.path[0], 12345678), 0);
    CHECK(!probe_recall(&back, &c));
    free(room);
    close_all(NULL);
}

TEST(probe_without_a_home_measures_each_time) {
    probe_result r, back;
    probe_config c = config_for(&io_thread_ops, NULL);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK_OK(probe_run(&r, &c, &err));
    probe_remember(&r, &c);
    CHECK(!probe_recall(&back, &c));
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK(!probe_recall(&back, &c));
    free(room);
    close_all(NULL);
}
