/* Routing traces, replays and the cache policy: what was recorded comes back, damage is noticed,
 * replays count as a plain simulation does and as the streamer did, and the policy is never far
 * behind plain recency. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "model_util.h"
#include "streamer/replay.h"
#include "streamer/ring.h"

static smoe_error err;

enum { L = 3, E = 12, K = 3, N_TOK = 400 };

/* ---- routing made up: each expert's score moves at random around a level of its own */

typedef struct made {
    int32_t n_layer, n_expert, n_used;
    float stay;   /* of a score's motion from token to token: 0 none, near 1 all */
    float level;  /* spread of the levels */
    int32_t turn; /* tokens after which levels are drawn anew; 0: never */
    float *score, *centre;
    int32_t *choice;
    uint8_t *margin;
} made;

static void make(made *m) {
    size_t n = (size_t)m->n_layer * (size_t)m->n_expert;
    m->score = calloc(n, sizeof *m->score);
    m->centre = calloc(n, sizeof *m->centre);
    m->choice = calloc((size_t)m->n_used, sizeof *m->choice);
    m->margin = calloc((size_t)m->n_expert, 1);
}

static void made_free(made *m) {
    free(m->score);
    free(m->centre);
    free(m->choice);
    free(m->margin);
}

/* The routing of token tok in layer l, valid until the next call. */
static routing make_turn(made *m, int32_t tok, int32_t l) {
    float *score = m->score + l * m->n_expert, *centre = m->centre + l * m->n_expert;
    float sum[512];
    bool used[512] = {false};
    for (int32_t e = 0; e < m->n_expert; e++) {
        if (tok == 0 || (m->turn > 0 && tok % m->turn == 0)) {
            centre[e] = m->level * test_normal();
        }
        score[e] = m->stay * score[e] + sqrtf(1 - m->stay * m->stay) * test_normal();
        sum[e] = score[e] + centre[e];
    }
    for (int32_t i = 0; i < m->n_used; i++) {
        int32_t best = -1;
        for (int32_t e = 0; e < m->n_expert; e++) {
            best = !used[e] && (best < 0 || sum[e] > sum[best]) ? e : best;
        }
        used[best] = true;
        m->choice[i] = best;
    }
    routing_margins(sum, m->n_expert, true, m->margin);
    return (routing){.moe_index = l,
                     .n_tok = 1,
                     .choice = m->choice,
                     .stride = m->n_used,
                     .n_used = m->n_used,
                     .margin = m->margin};
}

static trace_header header_of(const made *m, uint32_t unit) {
    trace_header h = {.model_id = 0x1234567890abcdef,
                      .n_layer = m->n_layer,
                      .n_row = m->n_expert,
                      .name = "made up"};
    size_t n = (size_t)m->n_layer * (size_t)m->n_expert;
    h.layer = malloc((size_t)m->n_layer * sizeof *h.layer);
    h.unit = malloc(n * sizeof *h.unit);
    for (int32_t l = 0; l < m->n_layer; l++) {
        h.layer[l] = (policy_layer){m->n_expert, m->n_used};
    }
    for (size_t i = 0; i < n; i++) {
        h.unit[i] = unit ? unit : 1 + (uint32_t)(test_rand() % 3);
    }
    return h;
}

/* Records n_tok tokens; unit 0: records of 1 to 3 units. */
static void record(made *m, const char *path, int32_t n_tok, uint32_t unit) {
    trace_writer *w;
    make(m);
    trace_header h = header_of(m, unit);
    CHECK_OK(trace_writer_open(&w, path, &h, &err));
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t l = 0; l < m->n_layer; l++) {
            routing r = make_turn(m, t, l);
            trace_write(w, &r);
        }
    }
    CHECK_OK(trace_writer_close(w, &err));
    free(h.layer);
    free(h.unit);
    made_free(m);
}

static trace recorded(made m, int32_t n_tok, uint32_t unit) {
    trace t;
    record(&m, test_path("t.trace"), n_tok, unit);
    CHECK_OK(trace_read(&t, test_path("t.trace"), &err));
    return t;
}

static const made small = {.n_layer = L, .n_expert = E, .n_used = K, .stay = 0.7f, .level = 0.7f};

static double hits(const trace *t, replay_kind kind, uint64_t ring_bytes) {
    replay_result r;
    CHECK_OK(replay(t, kind, ring_bytes, &r, &err));
    return 100 * (double)r.hits / (double)r.uses;
}

/* ---- the file */

TEST(trace_comes_back_as_written) {
    enum { CHUNK = 5 };
    int32_t choice[CHUNK * 4];
    uint8_t margin[E];
    made m = small;
    trace_header h = header_of(&m, 0);
    trace_writer *w;
    trace t;
    for (int32_t i = 0; i < CHUNK * 4; i++) {
        choice[i] = i % 4 == 3 ? 99 : (i / 4 + i % 4 * 2) % E; /* every fourth is not written */
    }
    for (int32_t e = 0; e < E; e++) {
        margin[e] = (uint8_t)(e * 20);
    }
    const char *path = test_path("t.trace");
    CHECK_OK(trace_writer_open(&w, path, &h, &err));
    routing chunk = {1, CHUNK, choice, 4, K, NULL}, one = {0, 1, choice, 4, K, margin};
    trace_write(w, &chunk);
    trace_write(w, &one);
    CHECK_OK(trace_writer_close(w, &err));
    CHECK_OK(trace_read(&t, path, &err));
    CHECK(t.is_whole);
    CHECK_INT(t.n_turn, 2);
    CHECK_INT(t.max_tok, CHUNK);
    CHECK_INT(t.n_decode_tok, 1);
    CHECK(t.header.model_id == h.model_id);
    CHECK_TEXT(t.header.name, "made up");
    CHECK(memcmp(t.header.unit, h.unit, (size_t)(L * E) * sizeof *h.unit) == 0);
    CHECK_INT(t.turn[0].moe_index, 1);
    CHECK(!t.turn[0].margin);
    for (int32_t i = 0; i < CHUNK * K; i++) {
        CHECK_INT(trace_choice(&t.turn[0], (size_t)i), choice[i / K * 4 + i % K]);
    }
    CHECK(memcmp(t.turn[1].margin, margin, E) == 0);
    trace_free(&t);
}

TEST(trace_cut_off_is_read_to_its_last_turn) {
    size_t bytes;
    trace t;
    record(&(made){.n_layer = L, .n_expert = E, .n_used = K}, test_path("t.trace"), 10, 1);
    char *text = test_read_file(test_path("t.trace"), &bytes);
    test_write_file(test_path("cut.trace"), text, bytes - 24 - 5);
    CHECK_OK(trace_read(&t, test_path("cut.trace"), &err));
    CHECK(!t.is_whole);
    CHECK_INT(t.n_turn, 10 * L - 1);
    trace_free(&t);
    free(text);
}

/* Any byte that differs is an error, never a wrong reading: the checksum covers all. */
TEST(trace_damage_is_noticed) {
    size_t bytes;
    record(&(made){.n_layer = 2, .n_expert = 4, .n_used = 2}, test_path("t.trace"), 3, 1);
    char *text = test_read_file(test_path("t.trace"), &bytes);
    for (size_t i = 0; i < bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            trace t;
            char *copy = malloc(bytes);
            memcpy(copy, text, bytes);
            copy[i] = (char)(copy[i] ^ 1 << bit);
            int rc = trace_parse(&t, copy, bytes, "copy", &err);
            CHECK(rc != SMOE_OK || !t.is_whole);
            CHECK(rc == SMOE_OK || strstr(err.text, "copy"));
            trace_free(&t);
        }
    }
    for (size_t n = 0; n < bytes; n++) {
        trace t;
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        CHECK(trace_parse(&t, copy, n, "copy", &err) != SMOE_OK || !t.is_whole);
        trace_free(&t);
    }
    free(text);
}

TEST(trace_write_errors_show_at_the_end) {
    made m = small;
    trace_writer *w;
    make(&m);
    trace_header h = header_of(&m, 1);
    CHECK_ERR(trace_writer_open(&w, test_path("no/such/folder"), &h, &err), SMOE_ERR_IO);
    CHECK_OK(trace_writer_open(&w, "/dev/full", &h, &err));
    alloc_guard_forbid(true);
    for (int32_t t = 0; t < 5000; t++) {
        routing r = make_turn(&m, t, t % L);
        trace_write(w, &r);
    }
    alloc_guard_forbid(false);
    CHECK_INT(alloc_guard_violations(), 0);
    CHECK_ERR(trace_writer_close(w, &err), SMOE_ERR_IO);
    CHECK_HAS(err.text, "/dev/full");
}

/* ---- replays */

/* Least recently used by a plain list, what the turn needs being safe. */
static uint64_t plain_recency_hits(const trace *t, int32_t n_slot) {
    int32_t list[L * E], n = 0; /* the most recent first */
    uint64_t n_hit = 0;
    for (size_t i = 0; i < t->n_turn; i++) {
        int32_t kept[L * E], n_kept = 0;
        bool is_used[L * E] = {false}, was_there[L * E] = {false};
        for (int32_t k = 0; k < K; k++) {
            is_used[t->turn[i].moe_index * E + trace_choice(&t->turn[i], (size_t)k)] = true;
        }
        for (int32_t j = 0; j < n; j++) {
            was_there[list[j]] = true;
            n_hit += is_used[list[j]];
            if (!is_used[list[j]]) {
                kept[n_kept++] = list[j];
            }
        }
        n = 0; /* of one turn, what was read is taken for younger than what was there */
        for (int32_t there = 0; there <= 1; there++) {
            for (int32_t r = L * E - 1; r >= 0; r--) {
                if (is_used[r] && was_there[r] == there) {
                    list[n++] = r;
                }
            }
        }
        for (int32_t j = 0; j < n_kept && n < n_slot; j++) {
            list[n++] = kept[j];
        }
    }
    return n_hit;
}

TEST(replay_counts_recency_as_a_list_does) {
    trace t = recorded(small, N_TOK, 2);
    for (int32_t n_slot = K; n_slot <= L * E; n_slot += 2) {
        replay_result r;
        CHECK_OK(replay(&t, REPLAY_RECENCY, (uint64_t)n_slot * 8192, &r, &err));
        CHECK_INT(r.uses, N_TOK * L * K);
        CHECK_INT(r.hits, plain_recency_hits(&t, n_slot));
        CHECK_INT(r.read_bytes, (r.uses - r.hits) * 8192);
    }
    trace_free(&t);
}

/* The fewest misses of any policy at all, by trying every choice of what to give up. */
static int32_t fewest_misses(const int32_t *use, int32_t n, uint32_t held, int32_t n_slot) {
    while (n > 0 && held >> *use & 1) {
        use++;
        n--;
    }
    if (n == 0) {
        return 0;
    }
    uint32_t with = held | 1u << *use;
    if (__builtin_popcount(with) <= n_slot) {
        return 1 + fewest_misses(use + 1, n - 1, with, n_slot);
    }
    int32_t best = INT32_MAX;
    for (uint32_t rest = held; rest; rest &= rest - 1) {
        int32_t misses = fewest_misses(use + 1, n - 1, with & ~(rest & -rest), n_slot);
        best = misses < best ? misses : best;
    }
    return 1 + best;
}

TEST(replay_optimum_is_optimal) {
    enum { N = 14 };
    for (int32_t round = 0; round < 20; round++) {
        int32_t use[N];
        trace t = recorded((made){.n_layer = 1, .n_expert = 5, .n_used = 1}, N, 1);
        for (int32_t i = 0; i < N; i++) {
            use[i] = trace_choice(&t.turn[i], 0);
        }
        for (int32_t n_slot = 1; n_slot <= 4; n_slot++) {
            replay_result r;
            CHECK_OK(replay(&t, REPLAY_OPTIMUM, (uint64_t)n_slot * 4096, &r, &err));
            CHECK_INT(r.uses - r.hits, fewest_misses(use, N, 0, n_slot));
        }
        trace_free(&t);
    }
}

TEST(replay_holds_for_all_policies) {
    for (uint32_t unit = 0; unit <= 1; unit++) {
        trace t = recorded(small, N_TOK, unit);
        uint64_t full = replay_full_bytes(&t), cycle = replay_cycle_bytes(&t);
        for (replay_kind kind = 0; kind < REPLAY_KINDS; kind++) {
            double before = 0;
            for (uint64_t size = cycle / 2; size <= full; size += cycle / 2) {
                double now = hits(&t, kind, size);
                CHECK(now <= hits(&t, REPLAY_OPTIMUM, size) + (unit ? 1e-9 : 2));
                CHECK(now >= before - 2); /* a larger ring is no loss */
                before = now;
            }
            replay_result r;
            CHECK_OK(replay(&t, kind, full, &r, &err));
            CHECK_INT(r.evictions, 0);
            CHECK(r.uses - r.hits <= L * E);
        }
        trace_free(&t);
    }
    trace t = recorded(small, 10, 2);
    replay_result r;
    CHECK_ERR(replay(&t, REPLAY_RECENCY, 4096, &r, &err), SMOE_ERR_ARGUMENT);
    trace_free(&t);
}

/* ---- the policy */

/* Over routing of every character, from one that only recency foretells to one that only frequency
 * does, and over rings from below a token cycle on. */
TEST_LIMIT(policy_is_never_behind_recency, 120) {
    const float stay[] = {0, 0.5f, 0.8f, 0.95f}, level[] = {0, 0.5f, 1.5f};
    double gain = 0;
    int32_t n = 0;
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 3; j++) {
            for (int32_t turn = 0; turn <= 60; turn += 60) {
                trace t = recorded((made){6, 32, 4, stay[i], level[j], turn, 0, 0, 0, 0}, 600, 1);
                for (int32_t slots = 12; slots <= 6 * 32; slots += slots / 2) {
                    double ours = hits(&t, REPLAY_ADAPTIVE, (uint64_t)slots * 4096);
                    double recency = hits(&t, REPLAY_RECENCY, (uint64_t)slots * 4096);
                    CHECK(ours >= recency - 1);
                    gain += ours - recency;
                    n++;
                }
                trace_free(&t);
            }
        }
    }
    CHECK(gain / n > 3); /* hit rate points */
}

/* Below one token cycle plain recency never hits; neither there nor at one is there a step. */
TEST(policy_has_no_cliff_at_a_token_cycle) {
    trace t = recorded((made){6, 32, 4, 0.3f, 0.8f, 0, 0, 0, 0, 0}, 600, 1);
    double before = hits(&t, REPLAY_ADAPTIVE, 12 * 4096);
    CHECK_NEAR(hits(&t, REPLAY_RECENCY, 20 * 4096), 0, 1e-9);
    CHECK(before > 5);
    for (uint64_t slots = 14; slots <= 48; slots += 2) {
        double now = hits(&t, REPLAY_ADAPTIVE, slots * 4096);
        CHECK(now >= before - 0.5 && now <= before + 6);
        before = now;
    }
    trace_free(&t);
}

TEST(policy_takes_any_scores) {
    enum { N = 6 };
    const float odd[N] = {NAN, INFINITY, -INFINITY, 0, 1e30f, -1e30f};
    policy p;
    policy_layer layer[2] = {{N, 2}, {N, 2}};
    CHECK_OK(policy_open(&p, POLICY_ADAPTIVE, layer, 2, N, &err));
    for (int32_t round = 0; round < 2000; round++) {
        float score[N];
        uint8_t margin[N];
        for (int32_t e = 0; e < N; e++) {
            score[e] = test_rand() % 2 ? odd[test_rand() % N] : test_normal();
        }
        int32_t choice[2] = {(int32_t)(test_rand() % 3), 3 + (int32_t)(test_rand() % 3)};
        routing_margins(score, N, round % 2 == 0, margin);
        routing r = {.moe_index = round % 2,
                     .n_tok = 1,
                     .choice = choice,
                     .stride = 2,
                     .n_used = 2,
                     .margin = margin};
        policy_turn(&p, &r);
        for (int32_t e = 0; e < N; e++) {
            CHECK(isfinite(policy_value(&p, round % 2, e)));
        }
    }
    policy_close(&p);
}

/* ---- the program's own recording against its own counters */

static void same_as_streamer(const char *path, uint64_t ring_bytes, smoe_policy kind) {
    smoe_model_options options = {.ring_bytes = ring_bytes,
                                  .chunk_tok = 16,
                                  .policy = kind,
                                  .lookahead = SMOE_OFF}; /* a replay has no bets */
    test_apply_permutation(&options);
    opened o = open_with(path, &options);
    smoe_stats stats;
    trace t;
    int32_t prompt[40];
    for (int32_t i = 0; i < 40; i++) {
        prompt[i] = 100 + i * 7 % 50;
    }
    CHECK_OK(smoe_trace_start(o.model, test_path("run.trace"), &err));
    CHECK_ERR(smoe_trace_start(o.model, test_path("run.trace"), &err), SMOE_ERR_ARGUMENT);
    free(greedy(&o, prompt, 40, 60));
    CHECK_OK(smoe_trace_stop(o.model, &err));
    CHECK_OK(smoe_trace_stop(o.model, &err)); /* nothing to stop */
    smoe_model_stats(o.model, &stats);
    CHECK_OK(trace_read(&t, test_path("run.trace"), &err));
    CHECK(t.is_whole);
    replay_result r;
    CHECK_OK(replay(&t, kind == SMOE_POLICY_RECENCY ? REPLAY_RECENCY : REPLAY_ADAPTIVE, ring_bytes,
                    &r, &err));
    CHECK_INT(r.uses, stats.uses);
    /* a miss that lands late keeps its neighbours held for longer: another may have to go */
    CHECK_NEAR((double)r.hits, (double)(stats.hits + stats.inflight_hits),
               0.01 * (double)stats.uses);
    CHECK_INT(t.n_tok, stats.prefill_tok + stats.decode_tok);
    trace_free(&t);
    close_opened(&o);
}

TEST(a_trace_of_nothing_leaves_no_file) {
    opened o = open_with(test_model("tales-8m"), NULL);
    CHECK_OK(smoe_trace_start(o.model, test_path("none.trace"), &err));
    CHECK(file_exists(test_path("none.trace")));
    CHECK_OK(smoe_trace_stop(o.model, &err));
    CHECK(!file_exists(test_path("none.trace")));
    close_opened(&o);
}

TEST(replay_is_what_the_streamer_did) {
    char *vault = strdup(sculpted(test_model("tales-8m"), "q4")); /* records of one size */
    uint64_t floor_bytes = ring_floor(vault);
    same_as_streamer(vault, floor_bytes, SMOE_POLICY_ADAPTIVE);
    same_as_streamer(vault, 2 * floor_bytes, SMOE_POLICY_ADAPTIVE);
    same_as_streamer(vault, 4 * floor_bytes + 12345, SMOE_POLICY_ADAPTIVE);
    same_as_streamer(vault, 2 * floor_bytes, SMOE_POLICY_RECENCY);
    free(vault);
}

TEST(policy_changes_no_result) {
    const char *path = test_model("tales-8m");
    smoe_model_options options = {.ring_bytes = ring_floor(path)};
    int32_t prompt[30];
    float *row[2];
    for (int32_t i = 0; i < 30; i++) {
        prompt[i] = 100 + i * 13 % 70;
    }
    for (int32_t kind = 0; kind < 2; kind++) {
        options.policy = (smoe_policy)kind;
        opened o = open_with(path, &options);
        row[kind] = all_logits(&o, prompt, 30);
        close_opened(&o);
    }
    CHECK(memcmp(row[0], row[1], 30 * 4096 * sizeof **row) == 0);
}

/* ---- the commands */

TEST(trace_commands) {
    char *trace_path = strdup(test_path("t.trace")), *svg = strdup(test_path("t.svg"));
    test_run r = test_smoe("trace", "record", test_model("tales-8m"), "-p", "Once", "-n", "20",
                           "--temp", "0", "--ignore-end", "-q", "-o", trace_path, NULL);
    CHECK_INT(r.status, 0);
    r = test_smoe("trace", "replay", trace_path, "--svg", svg, NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "6 layers with 32 experts, 4 used; 20 tokens");
    CHECK_HAS(r.out, "adaptive");
    size_t bytes;
    char *text = test_read_file(svg, &bytes);
    CHECK_HAS(text, "</svg>");
    CHECK_HAS(text, "optimum");
    CHECK_HAS(text, "<polyline");
    free(text);
    r = test_smoe("trace", "replay", trace_path, "--ring", "2M,4M", "--policy", "recency,adaptive",
                  "--json", NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "\"ring_bytes\": 4194304");
    r = test_smoe("trace", "replay", trace_path, "--policy", "lru", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "recency, segmented");
    r = test_smoe("trace", "replay", trace_path, "--ring", "4k", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "holds no expert");
    r = test_smoe("trace", "replay", test_model("tales-8m/config.json"), NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "no routing trace");
    r = test_smoe("trace", "record", test_model("tales-8m"), "-p", "Once", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "-o FILE");
    r = test_smoe("run", test_model("tales-8m"), "-p", "Once", "-n", "2", "-q", "--trace",
                  "/dev/full", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "/dev/full");
    CHECK_INT(test_smoe("trace", NULL).status, 1);
    CHECK_INT(test_smoe("trace", "--help", NULL).status, 0);
    free(trace_path);
    free(svg);
}
