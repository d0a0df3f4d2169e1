/* smoe bench: what it measures on the bundled model, and what it refuses. */
#include <json-c/json.h>

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

static struct json_object *bench(test_run r, int status) {
    struct json_object *o = NULL;
    if (r.status != status) {
        FAIL("exit status %d: %s", r.status, r.err);
    }
    CHECK_OK(json_parse(&o, r.out, strlen(r.out), "output", JSON_UNIQUE_KEYS, &err));
    return o;
}

static struct json_object *row(struct json_object *o, size_t i) {
    struct json_object *v = json_object_array_get_idx(get(o, "rows"), i);
    CHECK(v);
    return v;
}

static void check_kind(struct json_object *k, int n_tok, size_t n_run) {
    CHECK_INT(number(k, "tokens"), n_tok);
    CHECK_INT(json_object_array_length(get(k, "runs")), n_run);
    CHECK(number(k, "tok_per_s_lowest") > 0);
    CHECK(number(k, "tok_per_s") >= number(k, "tok_per_s_lowest"));
    CHECK(number(k, "tok_per_s_highest") >= number(k, "tok_per_s"));
    CHECK(number(k, "hit_share") >= 0 && number(k, "hit_share") <= 1);
    CHECK(number(k, "wait_share") >= 0 && number(k, "wait_share") <= 1);
}

TEST(bench_measures_a_row_for_each_ceiling) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    struct json_object *o =
        bench(test_smoe("bench", TALES, "-p", "32", "-n", "8", "-r", "2", "--depth", "16",
                        "--memory", "64M", "--memory", "20M", "--json", "--threads", "2", NULL),
              0);
    CHECK_INT(json_object_array_length(get(o, "rows")), 2);
    for (size_t i = 0; i < 2; i++) {
        struct json_object *r = row(o, i);
        check_kind(get(r, "prefill"), 32, 2);
        check_kind(get(r, "decode"), 8, 2);
        CHECK_INT(number(r, "memory_bytes"), i == 0 ? 64 << 20 : 20 << 20);
        CHECK(number(r, "peak_process_bytes") <= number(r, "memory_bytes"));
    }
    /* everything fits under the first ceiling, and not under the second */
    CHECK(number(get(row(o, 0), "decode"), "hit_share") >
          number(get(row(o, 1), "decode"), "hit_share"));
    CHECK(number(get(row(o, 1), "decode"), "drive_bytes_per_tok") > 0);
    CHECK(number(row(o, 1), "ring_bytes") < number(row(o, 1), "experts_bytes"));
    json_object_put(o);
}

TEST(bench_cold_begins_each_run_with_an_empty_ring) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    struct json_object *o = bench(test_smoe("bench", TALES, "-p", "0", "-n", "4", "-r", "2",
                                            "--cold", "--memory", "26M", "--json", NULL),
                                  0);
    struct json_object *k = get(row(o, 0), "decode");
    check_kind(k, 4, 2);
    CHECK(!json_find(row(o, 0), "prefill"));
    CHECK(number(k, "hit_share") < 0.9 && number(k, "drive_bytes_per_tok") > 0);
    json_object_put(o);
}

TEST(bench_tells_the_share_of_the_probed_rate) {
    struct json_object *o = bench(test_smoe("bench", TALES, "-p", "0", "-n", "4", "-r", "1",
                                            "--ring", "4M", "--probe", "--json", NULL),
                                  0);
    struct json_object *r = row(o, 0), *k = get(r, "decode");
    double rate = number(k, "drive_bytes_per_s");
    CHECK(rate > 0);
    CHECK_NEAR(number(k, "probed_share") * number(r, "probed_bytes_per_s") / rate, 1, 1e-6);
    CHECK(number(r, "probed_busy_bytes_per_s") > 0);
    json_object_put(o);
}

TEST(bench_goes_on_after_a_ceiling_that_is_too_small) {
    struct json_object *o = bench(test_smoe("bench", TALES, "-p", "4", "-n", "2", "-r", "1",
                                            "--memory", "5M", "--memory", "64M", "--json", NULL),
                                  1);
    CHECK_HAS(json_object_get_string(get(row(o, 0), "error")), "too small");
    check_kind(get(row(o, 1), "decode"), 2, 1);
    json_object_put(o);
    test_run r =
        test_smoe("bench", TALES, "-p", "4", "-n", "2", "-r", "1", "--memory", "64M", NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "| 64.0 MiB  | 100 % |");
    CHECK_HAS(r.out, "qwen3_moe, 6 layers");
}

TEST(bench_names_bad_usage) {
    CHECK_HAS(test_smoe("bench", TALES, "--memory", "8Q", NULL).err, "8Q");
    CHECK_HAS(test_smoe("bench", TALES, "-p", "0", "-n", "0", NULL).err, "nothing to measure");
    CHECK_HAS(test_smoe("bench", TALES, "-p", "9", "--ctx", "4", "-r", "1", NULL).err, "--ctx");
    CHECK_HAS(test_smoe("bench", "no/such", NULL).err, "no/such");
    test_run r = test_smoe("bench", "--help", NULL);
    const char *first = strstr(r.out, "--memory");
    CHECK(first && !strstr(first + 1, "--memory"));
}
