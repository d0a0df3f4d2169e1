/* smoe plan and smoe doctor: what they say of the bundled and of a synthetic model. */
#include <json-c/json.h>
#include <stdio.h>

#include "base/json.h"
#include "test.h"

static smoe_error err;

#define TALES "models/tales-8m"

static struct json_object *get(struct json_object *o, const char *key) {
    struct json_object *v = json_find(o, key);
    if (!v) {
        FAIL("no key %s in %s", key, json_object_to_json_string(o));
    }
    return v;
}

static double number(struct json_object *o, const char *key) {
    return json_object_get_double(get(o, key));
}

static const char *text(struct json_object *o, const char *key) {
    return json_object_get_string(get(o, key));
}

static struct json_object *parsed(test_run r, int status) {
    struct json_object *o = NULL;
    if (r.status != status) {
        FAIL("exit status %d: %s", r.status, r.err);
    }
    CHECK_OK(json_parse(&o, r.out, strlen(r.out), "output", JSON_UNIQUE_KEYS, &err));
    return o;
}

/* More ring never means fewer hits or a slower run. */
static void check_rows(struct json_object *rows, size_t n_least) {
    size_t n = json_object_array_length(rows);
    CHECK(n >= n_least);
    for (size_t i = 0; i < n; i++) {
        struct json_object *r = json_object_array_get_idx(rows, i);
        CHECK(number(r, "hit_share_low") <= number(r, "hit_share_high") + 1e-9);
        CHECK(number(r, "tok_per_s_low") <= number(r, "tok_per_s_high") + 1e-9);
        if (i > 0) {
            struct json_object *before = json_object_array_get_idx(rows, i - 1);
            CHECK(number(r, "ring_bytes") > number(before, "ring_bytes"));
            CHECK(number(r, "hit_share_low") >= number(before, "hit_share_low"));
            CHECK(number(r, "hit_share_high") >= number(before, "hit_share_high"));
            CHECK(number(r, "tok_per_s_low") >= number(before, "tok_per_s_low"));
        }
    }
}

/* A ceiling of 15 MiB above what the program is, 20 MiB with most compilers: code that checks for
 * undefined behaviour is twice as large. */
static const char *ceiling(void) {
    static char text[32];
    struct json_object *o = parsed(
        test_smoe("plan", TALES, "--memory", "64M", "--drive-rate", "1G", "--json", NULL), 0);
    snprintf(text, sizeof text, "%.0f", number(get(o, "plan"), "process_bytes") + (15 << 20));
    json_object_put(o);
    return text;
}

TEST(plan_reckons_by_ceiling) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    const char *size = ceiling();
    struct json_object *o =
        parsed(test_smoe("plan", TALES, "--memory", size, "--drive-rate", "1M", "--json", NULL), 0);
    struct json_object *plan = get(o, "plan"), *asked = get(o, "asked");
    CHECK(json_object_get_boolean(get(o, "fits")));
    CHECK_INT(number(plan, "ceiling_bytes"), strtoll(size, NULL, 10));
    double sum = number(plan, "process_bytes") + number(plan, "scout_bytes") +
                 number(plan, "kv_bytes") + number(plan, "scratch_bytes") +
                 number(plan, "ring_bytes") + number(plan, "reserve_bytes");
    CHECK(sum <= number(plan, "ceiling_bytes"));
    check_rows(get(o, "rows"), 4);
    /* at a megabyte a second the drive is all that counts */
    double miss = 1 - number(asked, "hit_share_high");
    CHECK(number(asked, "hit_share_high") > 0.5 && miss > 0.01);
    CHECK_NEAR(number(asked, "tok_per_s_high"),
               number(o, "drive_bytes_per_s") / (miss * number(o, "token_cycle_bytes")), 0.01);
    CHECK(json_object_array_length(get(o, "advice")) > 0);
    json_object_put(o);
}

TEST(plan_takes_the_type_of_the_kv_cache) {
    struct json_object *f16 = parsed(
        test_smoe("plan", TALES, "--memory", "64M", "--drive-rate", "1G", "--json", NULL), 0);
    struct json_object *q8 = parsed(test_smoe("plan", TALES, "--memory", "64M", "--drive-rate",
                                              "1G", "--json", "--kv", "q8", NULL),
                                    0);
    CHECK_TEXT(text(get(f16, "plan"), "kv_type"), "f16");
    CHECK_TEXT(text(get(q8, "plan"), "kv_type"), "q8");
    double saved = number(get(f16, "plan"), "kv_bytes") - number(get(q8, "plan"), "kv_bytes");
    CHECK_INT(saved, 1024 * (1536 - 816));
    json_object_put(f16);
    json_object_put(q8);
    test_run r = test_smoe("plan", TALES, "--kv", "q4", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "--kv must be one of auto|f16|f32|q8");
}

TEST(plan_names_a_ceiling_that_works) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    char size[32];
    struct json_object *o =
        parsed(test_smoe("plan", TALES, "--memory", "4M", "--drive-rate", "1G", "--json", NULL), 0);
    CHECK(!json_object_get_boolean(get(o, "fits")));
    CHECK_HAS(text(o, "why_not"), "too small");
    snprintf(size, sizeof size, "%.0f", number(get(o, "plan"), "smallest_ceiling_bytes") + 524288);
    json_object_put(o);
    test_run r = test_smoe("run", TALES, "-q", "-p", "Once", "-n", "2", "--memory", size, NULL);
    if (r.status != 0) {
        FAIL("%s", r.err);
    }
}

TEST(plan_expects_the_hits_of_synthetic_routing) {
    char path[1200];
    snprintf(path, sizeof path, "%s", test_path("m.gguf"));
    CHECK_INT(test_smoe("synth", "-q", "--shape", "tiny", "--layers", "1", "-o", path, NULL).status,
              0);
    struct json_object *o = parsed(
        test_smoe("plan", path, "--drive-rate", "1G", "--memory", "512M", "--json", NULL), 0);
    struct json_object *rows = get(o, "rows");
    struct json_object *quarter = json_object_array_get_idx(rows, 1);
    CHECK_NEAR(number(quarter, "ring_share"), 0.25, 0.001);
    CHECK_NEAR(number(quarter, "hit_share_low"), 0.23, 0.04); /* docs/synth.md */
    CHECK_NEAR(number(quarter, "hit_share_high"), 0.64, 0.05);
    check_rows(rows, 5);
    CHECK_NEAR(number(get(o, "asked"), "hit_share_low"), 1, 1e-9);
    json_object_put(o);
}

TEST(plan_prints_a_table) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    const char *size = ceiling();
    test_run r = test_smoe("plan", TALES, "--memory", size, "--drive-rate", "2G", NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "memory plan under a ceiling of ");
    CHECK_HAS(r.out, "decode, by ceiling");
    CHECK_HAS(r.out, "smallest ceiling that works");
    CHECK_HAS(r.out, "advice");
    r = test_smoe("plan", TALES, "-q", "--memory", size, NULL); /* asks the drive */
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, " GB/s: a token that finds nothing");
    CHECK_INT(test_smoe("plan", "no/such", NULL).status, 1);
    CHECK_INT(test_smoe("plan", TALES, "--ctx", "9999999", NULL).status, 1);
}

/* ---- doctor */

static struct json_object *check_of(struct json_object *o, const char *name) {
    struct json_object *list = get(o, "checks");
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *c = json_object_array_get_idx(list, i);
        if (strcmp(text(c, "check"), name) == 0) {
            return c;
        }
    }
    FAIL("no check %s in %s", name, json_object_to_json_string(list));
}

TEST(doctor_looks_at_machine_and_model) {
    static const char *const names[] = {"model",       "processor",       "cpu limit",
                                        "memory",      "cgroup memory",   "locked memory",
                                        "huge pages",  "memory pressure", "io_uring",
                                        "file system", "drive",           "direct reads"};
    struct json_object *o = parsed(test_smoe("doctor", TALES, "--json", NULL), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct json_object *c = check_of(o, names[i]);
        CHECK(*text(c, "text"));
        CHECK(strcmp(text(c, "state"), "warn") != 0 || *text(c, "remedy"));
    }
    CHECK_INT(number(o, "failures"), 0);
    json_object_put(o);
    test_run r = test_smoe("doctor", NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "ok    memory  ");
    CHECK_HAS(r.out, "Give a MODEL");
}

TEST(doctor_fails_only_when_nothing_runs) {
    struct json_object *o = parsed(test_smoe("doctor", "no/such", "--json", NULL), 1);
    CHECK_TEXT(text(check_of(o, "model"), "state"), "fail");
    CHECK_HAS(text(check_of(o, "model"), "text"), "no/such");
    json_object_put(o);
    char command[1200];
    snprintf(command, sizeof command, "ulimit -n 20; exec '%s' doctor %s --json",
             test_built("smoe"), TALES);
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    o = parsed(test_smoe_argv(argv, NULL), 1);
    CHECK_TEXT(text(check_of(o, "open files"), "state"), "fail");
    json_object_put(o);
    CHECK_INT(test_smoe("doctor", TALES, "more", NULL).status, 1);
}
