/* What one run learns for the next: the file's text, where it lies, what it warms. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_util.h"
#include "streamer/heat.h"

static smoe_error err;

enum { L = 2, E = 6, K = 2, ID = 77 };

static const policy_layer layers[L] = {{E, K}, {E - 1, K}};

static void turn(policy *p, int32_t l, int32_t a, int32_t b) {
    policy_turn(p, &(routing){.moe_index = l,
                              .n_tok = 1,
                              .choice = (const int32_t[]){a, b},
                              .stride = K,
                              .n_used = K});
}

/* Layer 0 uses 3 always and 1 or 5; layer 1 uses 0 and 2. */
static void some_tokens(policy *p, int32_t n) {
    for (int32_t t = 0; t < n; t++) {
        turn(p, 0, 3, t % 4 ? 1 : 5);
        turn(p, 1, 0, 2);
    }
}

TEST(heat_is_merged_and_ordered) {
    policy p, q, r;
    char *text;
    size_t bytes;
    CHECK_OK(policy_open(&p, POLICY_ADAPTIVE, layers, L, E, &err));
    some_tokens(&p, 100);
    CHECK_OK(heat_write(&p, ID, &text, &bytes, &err));
    CHECK_OK(policy_open(&q, POLICY_ADAPTIVE, layers, L, E, &err));
    CHECK_OK(heat_read(&q, ID, text, bytes, "t", &err));
    CHECK_INT(q.past_tok, 100);
    CHECK_NEAR(q.record[1].past, 0.75, 1e-4);
    CHECK(memcmp(p.weight, q.weight, sizeof p.weight) == 0);
    int32_t order[L * E];
    CHECK_INT(heat_order(&q, order), 5);
    CHECK_INT(order[0], 3);
    CHECK_INT(order[1], E + 0);
    CHECK_INT(order[2], E + 2);
    CHECK_INT(order[3], 1);
    CHECK_INT(order[4], 5);
    CHECK(policy_value(&q, 0, 3) > policy_value(&q, 0, 5));
    CHECK(policy_value(&q, 0, 5) > policy_value(&q, 0, 0));
    free(text);
    for (int32_t t = 0; t < 100; t++) { /* 100 more without 3 */
        turn(&q, 0, 0, 1);
        turn(&q, 1, 0, 2);
    }
    CHECK_OK(heat_write(&q, ID, &text, &bytes, &err));
    CHECK_OK(policy_open(&r, POLICY_ADAPTIVE, layers, L, E, &err));
    CHECK_OK(heat_read(&r, ID, text, bytes, "t", &err));
    CHECK_INT(r.past_tok, 200);
    CHECK_NEAR(r.record[3].past, 0.5, 1e-4);
    CHECK_NEAR(r.record[1].past, 0.875, 1e-4);
    free(text);
    policy_close(&p);
    policy_close(&q);
    policy_close(&r);
}

TEST(heat_damaged_or_foreign_changes_nothing) {
    policy p, q;
    char *text;
    size_t bytes;
    CHECK_OK(policy_open(&p, POLICY_ADAPTIVE, layers, L, E, &err));
    CHECK_OK(policy_open(&q, POLICY_ADAPTIVE, layers, L, E, &err));
    some_tokens(&p, 50);
    CHECK_OK(heat_write(&p, ID, &text, &bytes, &err));
    CHECK_ERR(heat_read(&q, ID + 1, text, bytes, "t.heat", &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "t.heat is about another model");
    for (size_t n = 0; n < bytes; n++) {
        CHECK_ERR(heat_read(&q, ID, text, n, "t", &err), SMOE_ERR_FORMAT);
        text[n] = (char)(text[n] ^ 0x10);
        CHECK_ERR(heat_read(&q, ID, text, bytes, "t", &err), SMOE_ERR_FORMAT);
        text[n] = (char)(text[n] ^ 0x10);
    }
    CHECK_INT(q.past_tok, 0);
    CHECK_OK(heat_read(&q, ID, text, bytes, "t", &err));
    free(text);
    policy_close(&p);
    policy_close(&q);
}

static int32_t n_notice;
static char notice[640];

static void on_log(void *user, smoe_log_level level, const char *line) {
    (void)user;
    if (level == SMOE_LOG_NOTICE && strstr(line, ".heat")) {
        n_notice++;
        snprintf(notice, sizeof notice, "%s", line);
    }
}

/* Opens, waits until idle work is done, computes; returns the logits of the last row. */
static float *learning_run(const char *path, uint64_t ring_bytes, smoe_stats *stats) {
    smoe_model_options options = {
        .ring_bytes = ring_bytes, .lookahead = SMOE_OFF, .learn = true, .log = on_log};
    int32_t prompt[40];
    for (int32_t i = 0; i < 40; i++) {
        prompt[i] = 100 + i * 13 % 70;
    }
    n_notice = 0;
    opened o = open_with(path, &options);
    while (smoe_model_idle(o.model, 5)) {
    }
    CHECK_OK(smoe_session_sync(o.session, prompt, 40, &err));
    size_t bytes = (size_t)smoe_model_info(o.model)->vocab_size * sizeof(float);
    float *row = malloc(bytes);
    memcpy(row, smoe_session_logits(o.session), bytes);
    smoe_model_stats(o.model, stats);
    CHECK_INT(stats->uses, stats->hits + stats->inflight_hits + stats->misses);
    close_opened(&o);
    return row;
}

/* Nothing was learned yet, but there is room for every expert. */
TEST(heat_idle_time_fills_a_ring_for_all) {
    int32_t prompt[40];
    smoe_stats stats;
    for (int32_t i = 0; i < 40; i++) {
        prompt[i] = 100 + i * 13 % 70;
    }
    for (int with_idle = 0; with_idle <= 1; with_idle++) {
        opened o = open_with(sculpted(test_model("tales-8m"), "q4"), &(smoe_model_options){0});
        while (with_idle && smoe_model_idle(o.model, 5)) {
        }
        CHECK_OK(smoe_session_sync(o.session, prompt, 40, &err));
        smoe_model_stats(o.model, &stats);
        CHECK_INT(stats.evictions, 0);
        if (with_idle) {
            CHECK_INT(stats.hits, stats.uses);
            CHECK(stats.warm_used > 0);
            CHECK(!stats.lookahead_on); /* nothing is left to guess */
        } else {
            CHECK(stats.sweep_reads + stats.warm_reads > 0); /* the drive decides of which */
        }
        close_opened(&o);
    }
}

TEST(heat_warms_the_next_run) {
    char heat[1100];
    smoe_stats first, second;
    char *vault = strdup(sculpted(test_model("tales-8m"), "q4"));
    uint64_t ring_bytes = 2 * ring_floor(vault);
    snprintf(heat, sizeof heat, "%s.heat", vault);
    float *a = learning_run(vault, ring_bytes, &first);
    CHECK_INT(first.warm_reads, 0);
    CHECK_INT(access(heat, R_OK), 0);
    float *b = learning_run(vault, ring_bytes, &second);
    CHECK_INT(n_notice, 0);
    CHECK(memcmp(a, b, 4096 * sizeof *a) == 0);
    CHECK(second.warm_reads > 0 && second.warm_used > 0);
    CHECK(second.warm_used <= second.warm_reads);
    CHECK(second.misses < first.misses);
    /* damaged: one notice, a cold start, and a good file at the end */
    test_write_file(heat, "smoeheat, once", 14);
    free(learning_run(vault, ring_bytes, &second));
    CHECK_INT(n_notice, 1);
    CHECK_HAS(notice, "damaged");
    CHECK_INT(second.warm_reads, 0);
    free(learning_run(vault, ring_bytes, &second));
    CHECK_INT(n_notice, 0);
    CHECK(second.warm_reads > 0);
    free(a);
    free(b);
    free(vault);
}

/* Nothing is written beside a checkpoint, which is its maker's, but into the cache folder. */
TEST(heat_of_a_checkpoint_is_in_the_cache) {
    smoe_stats first, second;
    const char *path = test_model("tales-8m");
    uint64_t ring_bytes = 2 * ring_floor(path);
    setenv("XDG_CACHE_HOME", test_path("cache"), 1);
    free(learning_run(path, ring_bytes, &first));
    CHECK_INT(access(test_path("cache/smoe"), R_OK), 0);
    free(learning_run(path, ring_bytes, &second));
    CHECK(second.warm_reads > 0);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1); /* no place: no matter */
    free(learning_run(path, ring_bytes, &second));
    CHECK_INT(second.warm_reads, 0);
    CHECK_INT(n_notice, 0);
}

TEST(heat_can_be_left_out) {
    setenv("XDG_CACHE_HOME", test_path("cache"), 1);
    test_run r = test_smoe("run", test_model("tales-8m"), "-p", "Once", "-n", "40", "--temp", "0",
                           "--memory", "26M", "--ignore-end", "--no-learn", "--stats", NULL);
    CHECK_INT(r.status, 0);
    r = test_smoe("run", test_model("tales-8m"), "-p", "Once", "-n", "40", "--temp", "0",
                  "--memory", "26M", "--ignore-end", "--stats", NULL);
    CHECK(!strstr(r.err, "in idle time")); /* the first kept nothing */
    r = test_smoe("run", test_model("tales-8m"), "-p", "Once", "-n", "40", "--temp", "0",
                  "--memory", "26M", "--ignore-end", "--stats", NULL);
    CHECK_HAS(r.err, "read in idle time");
}
