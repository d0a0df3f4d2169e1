/* The ceiling while running: the bits stay the same through every change of the ring, and pressure
 * takes and gives back what it should. */
#include "model_util.h"

#include <fcntl.h>
#include <stdio.h>

#include "conductor/pressure.h"

static smoe_error err;

TEST(resizing_changes_no_bit) {
    enum { N = 40 };
    smoe_model_options o = {.n_thread = 2, .context_tok = 96, .chunk_tok = 16};
    const char *path = test_model("tales-8m");
    uint64_t floor_bytes = ring_floor(path);
    opened want = open_with(path, &o);
    o.ring_bytes = 3 * floor_bytes;
    o.memory_bytes = 256u << 20;
    opened got = open_with(path, &o);
    size_t row = (size_t)smoe_model_info(want.model)->vocab_size * sizeof(float);
    uint64_t middle = smoe_model_plan(got.model)->ceiling_bytes;
    uint64_t ring = smoe_model_plan(got.model)->ring_bytes;
    int32_t ids[N];
    for (int32_t i = 0; i < N; i++) {
        ids[i] = (int32_t)(test_rand() % 1000);
        /* from a third up to the floor and far beyond every expert */
        uint64_t less = ring - floor_bytes - test_rand() % floor_bytes;
        uint64_t to = i % 3 == 0 ? middle - less : i % 3 == 1 ? middle : 2 * middle;
        CHECK_OK(smoe_model_set_memory(got.model, to, &err));
        CHECK(smoe_model_plan(got.model)->ceiling_bytes == to);
        CHECK_OK(smoe_session_sync(want.session, ids, (size_t)i + 1, &err));
        CHECK_OK(smoe_session_sync(got.session, ids, (size_t)i + 1, &err));
        CHECK(memcmp(smoe_session_logits(want.session), smoe_session_logits(got.session), row) ==
              0);
    }
    smoe_stats s;
    smoe_model_stats(got.model, &s);
    CHECK_INT(s.n_resize, N);
    CHECK(s.ring_bytes > ring);
    close_opened(&want);
    close_opened(&got);
}

TEST(too_small_a_ceiling_is_refused_and_harmless) {
    smoe_model_options o = {.context_tok = 64, .memory_bytes = 64u << 20};
    opened m = open_with(test_model("tales-8m"), &o);
    uint64_t ring = smoe_model_plan(m.model)->ring_bytes;
    CHECK_INT(smoe_model_set_memory(m.model, 1 << 20, &err), SMOE_ERR_MEMORY);
    CHECK(strstr(err.text, "smallest that works") != NULL);
    CHECK(smoe_model_plan(m.model)->ring_bytes == ring);
    int32_t id = 5;
    CHECK_OK(smoe_session_sync(m.session, &id, 1, &err));
    close_opened(&m);
}

/* ---- what pressure decides */

enum { MIB = 1 << 20 };
static const pressure_bounds bounds = {1000u * MIB, 800u * MIB, 100u * MIB};
static pressure gauge;
static pressure_sample at;

static uint64_t next(double seconds, double stall_s, uint64_t faults, uint64_t ring) {
    const char *why = NULL;
    at.now_ns += (uint64_t)(seconds * 1e9);
    at.stall_us += (uint64_t)(stall_s * 1e6);
    at.n_fault += faults;
    uint64_t out = pressure_decide(&gauge, &at, &bounds, ring, &why);
    CHECK((out != ring) == (why != NULL));
    return out;
}

static void begin(void) {
    pressure_open(&gauge);
    at = (pressure_sample){.now_ns = 1, .limit_bytes = UINT64_MAX};
    CHECK(next(0, 0, 0, bounds.ring_bytes) == bounds.ring_bytes);
}

TEST(pressure_follows_a_falling_limit) {
    begin();
    at.limit_bytes = 700u * MIB;
    CHECK(next(0.25, 0, 0, 800u * MIB) == 500u * MIB);
    at.limit_bytes = 150u * MIB; /* below what works: the floor, not less */
    CHECK(next(0.25, 0, 0, 500u * MIB) == 100u * MIB);
    at.limit_bytes = UINT64_MAX;
    CHECK(next(0.25, 0, 0, 100u * MIB) == 100u * MIB); /* not calm for long enough */
    CHECK(next(10, 0, 0, 100u * MIB) == 150u * MIB);
    pressure_close(&gauge);
}

TEST(pressure_gives_way_and_comes_back) {
    begin();
    uint64_t ring = next(0.25, 0.05, 0, 800u * MIB); /* 20 % stalled */
    CHECK(ring == 700u * MIB);
    ring = next(0.25, 0, 100, ring); /* 400 faults a second */
    CHECK(ring == 700u * MIB - 700u * MIB / 8);
    uint64_t low = ring;
    for (int i = 0; i < 40; i++) { /* half a minute of calm between, as after two relapses */
        ring = next(0.25, 0, 0, ring);
        CHECK(ring == low);
    }
    ring = next(20, 0, 0, ring);
    CHECK(ring == low + 50u * MIB);
    for (int i = 0; i < 20; i++) {
        ring = next(60, 0, 0, ring);
    }
    CHECK(ring == 800u * MIB); /* never beyond the plan */
    for (int i = 0; i < 100; i++) {
        ring = next(0.25, 0.25, 0, ring);
    }
    CHECK(ring == 100u * MIB); /* never below the floor */
    pressure_close(&gauge);
}

TEST(pressure_ignores_noise) {
    begin();
    for (int i = 0; i < 100; i++) {
        CHECK(next(0.25, 0.01, 2, 800u * MIB) == 800u * MIB);
    }
    pressure_close(&gauge);
}

/* What the system's PSI and meminfo say at the next look. */
static uint64_t look_at(unsigned total_us, unsigned available_kib) {
    pressure_sample s;
    char text[160];
    snprintf(text, sizeof text, "some avg10=0.00 avg60=0.00 avg300=0.00 total=%u\nfull total=1\n",
             total_us);
    test_write_file(test_path("psi"), text, strlen(text));
    snprintf(text, sizeof text, "MemTotal: 1600000 kB\nMemFree: 1 kB\nMemAvailable: %u kB\n",
             available_kib);
    test_write_file(test_path("meminfo"), text, strlen(text));
    uint64_t total = gauge.total_us, foreign = gauge.foreign_us;
    pressure_close(&gauge);
    gauge = (pressure){.hold_ns = 1, .total_us = total, .foreign_us = foreign};
    gauge.stall_fd = open(test_path("psi"), O_RDONLY | O_CLOEXEC);
    gauge.meminfo_fd = open(test_path("meminfo"), O_RDONLY | O_CLOEXEC);
    CHECK(gauge.stall_fd >= 0 && gauge.meminfo_fd >= 0);
    CHECK(pressure_look(&gauge, &s));
    return s.stall_us;
}

TEST(pressure_of_other_cgroups_does_not_count) {
    uint64_t first = look_at(1000000, 800000);
    CHECK_INT(look_at(2000000, 800000), first);          /* half of the memory is available */
    CHECK_INT(look_at(2500000, 90000), first + 500000);  /* less than a sixteenth */
    CHECK_INT(look_at(2600000, 800000), first + 500000); /* plenty again */
    pressure_close(&gauge);
}

TEST(pressure_can_look) {
    pressure_sample s;
    pressure_open(&gauge);
    CHECK(pressure_look(&gauge, &s));
    CHECK(s.limit_bytes > 0);
    CHECK(!pressure_look(&gauge, &s)); /* too early */
    pressure_close(&gauge);
}
