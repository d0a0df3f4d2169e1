/* Counters as the program shows them, what each token took, and the live view. */
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/live.h"
#include "cli/stats.h"
#include "model_util.h"

static smoe_error err;

#define TALES  "models/tales-8m"
#define PROMPT "3138,625,258,535,450,308,258"

static struct json_object *parsed(const char *text) {
    struct json_object *o = NULL;
    CHECK_OK(json_parse(&o, text, strlen(text), "output", JSON_UNIQUE_KEYS, &err));
    return o;
}

static uint64_t number(struct json_object *o, const char *key) {
    struct json_object *v = json_find(o, key);
    if (!v || !json_object_is_type(v, json_type_int)) {
        FAIL("%s is no whole number", key);
    }
    return json_object_get_uint64(v);
}

static uint64_t array_sum(struct json_object *o, const char *key, size_t n) {
    struct json_object *a = json_find(o, key);
    uint64_t sum = 0;
    CHECK(a && json_object_is_type(a, json_type_array));
    CHECK_INT(json_object_array_length(a), n);
    for (size_t i = 0; i < n; i++) {
        sum += json_object_get_uint64(json_object_array_get_idx(a, i));
    }
    return sum;
}

/* ---- counters */

/* Every field has a value of its own, so that none can stand in another's place. */
static smoe_stats made_stats(void) {
    return (smoe_stats){.prefill_tok = 101,
                        .decode_tok = 50,
                        .prefill_ns = 103000000,
                        .decode_ns = 500000000,
                        .open_ns = 70000000,
                        .drive_bytes = 40000000,
                        .decode_drive_bytes = 30000000,
                        .n_read = 100,
                        .uses = 1000,
                        .hits = 700,
                        .inflight_hits = 60,
                        .misses = 240,
                        .spec_reads = 80,
                        .spec_used = 60,
                        .sweep_reads = 40,
                        .sweep_used = 39,
                        .guessed = 200,
                        .guessed_right = 150,
                        .guess_named = 300,
                        .guessed_far = 50,
                        .guessed_far_right = 47,
                        .lookahead_on = true,
                        .lookahead_switches = 2,
                        .evictions = 111,
                        .read_retries = 3,
                        .wait_ns = 90000000,
                        .wait_ahead_ns = 20000000,
                        .drive_busy_ns = 80000000,
                        .work_ns = 603000000,
                        .peak_process_bytes = 5000000,
                        .ceiling_bytes = 6000000,
                        .ring_bytes = 4000000,
                        .ring_used_bytes = 3000000,
                        .ring_registered_bytes = 2000000,
                        .n_resize = 4,
                        .read_us = {[6] = 90, [9] = 9, [12] = 1},
                        .read_kib = {[9] = 100},
                        .probed_bytes_per_s = 1e9,
                        .probed_busy_bytes_per_s = 6e8,
                        .n_drive = 2,
                        .drive_bytes_of = {30000000, 10000000},
                        .io_backend = "io_uring",
                        .isa = "avx2",
                        .kv_type = "q8",
                        .direct = true};
}

static double real(struct json_object *o, const char *key) {
    struct json_object *v = json_find(o, key);
    if (!v || json_object_is_type(v, json_type_null)) {
        FAIL("%s has no value", key);
    }
    return json_object_get_double(v);
}

TEST(telemetry_json_has_every_counter) {
    smoe_stats s = made_stats();
    struct json_object *o = stats_object(&s);
    const struct {
        const char *key;
        uint64_t value;
    } whole[] = {{"prefill_tok", s.prefill_tok},
                 {"decode_tok", s.decode_tok},
                 {"prefill_ns", s.prefill_ns},
                 {"decode_ns", s.decode_ns},
                 {"open_ns", s.open_ns},
                 {"drive_bytes", s.drive_bytes},
                 {"decode_drive_bytes", s.decode_drive_bytes},
                 {"n_read", s.n_read},
                 {"uses", s.uses},
                 {"hits", s.hits},
                 {"inflight_hits", s.inflight_hits},
                 {"misses", s.misses},
                 {"spec_reads", s.spec_reads},
                 {"spec_used", s.spec_used},
                 {"sweep_reads", s.sweep_reads},
                 {"sweep_used", s.sweep_used},
                 {"guessed", s.guessed},
                 {"guessed_right", s.guessed_right},
                 {"guess_named", s.guess_named},
                 {"guessed_far", s.guessed_far},
                 {"guessed_far_right", s.guessed_far_right},
                 {"lookahead_switches", s.lookahead_switches},
                 {"evictions", s.evictions},
                 {"read_retries", s.read_retries},
                 {"wait_ns", s.wait_ns},
                 {"wait_ahead_ns", s.wait_ahead_ns},
                 {"wait_miss_ns", 70000000},
                 {"drive_busy_ns", s.drive_busy_ns},
                 {"work_ns", s.work_ns},
                 {"peak_process_bytes", s.peak_process_bytes},
                 {"ceiling_bytes", s.ceiling_bytes},
                 {"ring_bytes", s.ring_bytes},
                 {"ring_used_bytes", s.ring_used_bytes},
                 {"ring_registered_bytes", s.ring_registered_bytes},
                 {"n_resize", s.n_resize},
                 {"read_us_p50", 64},
                 {"read_us_p90", 64},
                 {"read_us_p99", 512}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (number(o, whole[i].key) != whole[i].value) {
            FAIL("%s is %llu", whole[i].key, (unsigned long long)number(o, whole[i].key));
        }
    }
    CHECK_INT(array_sum(o, "read_us", SMOE_STAT_SLOTS), s.n_read);
    CHECK_INT(array_sum(o, "read_kib", SMOE_STAT_SLOTS), s.n_read);
    CHECK_INT(array_sum(o, "drive_bytes_of", 2), s.drive_bytes);
    CHECK_NEAR(real(o, "hit_share"), 0.7, 1e-9);
    CHECK_NEAR(real(o, "spec_used_share"), 0.75, 1e-9);
    CHECK_NEAR(real(o, "sweep_used_share"), 0.975, 1e-9);
    CHECK_NEAR(real(o, "lookahead_precision"), 0.75, 1e-9);
    CHECK_NEAR(real(o, "lookahead_recall"), 0.5, 1e-9);
    CHECK_NEAR(real(o, "read_bytes_mean"), 4e5, 1e-3);
    CHECK_NEAR(real(o, "read_bytes_per_s"), 5e8, 1);
    CHECK_NEAR(real(o, "probed_bytes_per_s"), 1e9, 1);
    CHECK_NEAR(real(o, "probed_busy_bytes_per_s"), 6e8, 1);
    CHECK_NEAR(real(o, "probed_share"), 0.5, 1e-9);
    CHECK_NEAR(real(o, "drive_busy_share"), 80.0 / 603, 1e-9);
    CHECK_NEAR(real(o, "wait_share"), 90.0 / 603, 1e-9);
    CHECK_NEAR(real(o, "decode_drive_bytes_per_tok"), 6e5, 1e-3);
    CHECK_NEAR(real(o, "decode_tok_per_s"), 100, 1e-6);
    CHECK(json_object_get_boolean(json_find(o, "lookahead_on")));
    CHECK(json_object_get_boolean(json_find(o, "direct")));
    CHECK_TEXT(json_object_get_string(json_find(o, "io_backend")), "io_uring");
    CHECK_TEXT(json_object_get_string(json_find(o, "isa")), "avx2");
    CHECK_TEXT(json_object_get_string(json_find(o, "kv_type")), "q8");
    json_object_put(o);
}

TEST(telemetry_json_of_nothing_divides_by_nothing) {
    smoe_stats s = {0};
    struct json_object *o = stats_object(&s);
    static const char *const ratios[] = {"hit_share",        "spec_used_share", "read_bytes_mean",
                                         "probed_share",     "wait_share",      "sweep_used_share",
                                         "drive_busy_share", "lookahead_recall"};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        struct json_object *v;
        CHECK(json_object_object_get_ex(o, ratios[i], &v) && !v);
    }
    CHECK_INT(number(o, "read_us_p50"), 0);
    json_object_put(o);
}

TEST(telemetry_percentiles_are_ends_of_slots) {
    uint64_t count[SMOE_STAT_SLOTS] = {[0] = 1, [1] = 1, [4] = 2};
    CHECK_INT(stats_percentile(count, 0.25), 1);
    CHECK_INT(stats_percentile(count, 0.5), 2);
    CHECK_INT(stats_percentile(count, 0.51), 16);
    CHECK_INT(stats_percentile(count, 1), 16);
    uint64_t last[SMOE_STAT_SLOTS] = {[SMOE_STAT_SLOTS - 1] = 5};
    CHECK_INT(stats_percentile(last, 0.99), 1 << (SMOE_STAT_SLOTS - 1));
}

TEST(telemetry_text_names_every_figure) {
    smoe_stats s = made_stats();
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    CHECK(f);
    stats_print(&s, f);
    fclose(f);
    static const char *const parts[] = {
        "decode         50 tok        100.0 tok/s",
        "in 100 reads of 391 KiB, 586 KiB a decoded token (io_uring, O_DIRECT)",
        "28.6 MiB from drive 1",
        "9.54 MiB from drive 2",
        "50.0 % of the probed 954 MiB/s",
        "half of the reads below 64 us, 90 % below 64 us, 99 % below 512 us",
        "1000 uses: 700 hits (70.0 %), 60 in flight, 240 misses; 111 evicted",
        "ready for the first token after 0.070 s",
        "80 read ahead in decode, 60 used (75.0 %)",
        "40 read ahead in prefill, 39 used (97.5 %)",
        "lookahead is on, 2 changes; 200 experts guessed, 75.0 % right; 50.0 % of the needed",
        "3 reads were repeated",
        "0.070 s for misses, 0.020 s for reads begun ahead",
        "resized 4 times",
        "kernels avx2"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        CHECK_HAS(text, parts[i]);
    }
    free(text);
}

static void check_sums(struct json_object *stats) {
    CHECK_INT(number(stats, "uses"),
              number(stats, "hits") + number(stats, "inflight_hits") + number(stats, "misses"));
    CHECK_INT(number(stats, "wait_ns"),
              number(stats, "wait_miss_ns") + number(stats, "wait_ahead_ns"));
    CHECK_INT(number(stats, "work_ns"), number(stats, "prefill_ns") + number(stats, "decode_ns"));
    CHECK_INT(array_sum(stats, "read_us", SMOE_STAT_SLOTS), number(stats, "n_read"));
    CHECK_INT(array_sum(stats, "drive_bytes_of", 1), number(stats, "drive_bytes"));
    CHECK(number(stats, "ring_used_bytes") <= number(stats, "ring_bytes"));
}

/* The array has an element a token, and with what came after the last the sums are the totals. */
static void check_costs(struct json_object *o) {
    static const char *const keys[] = {"drive_bytes", "hits", "inflight_hits", "misses", "wait_ns"};
    struct json_object *a = json_find(o, "token_stats"), *rest = json_find(o, "after_tokens");
    struct json_object *stats = json_find(o, "stats");
    size_t n = json_object_array_length(a);
    CHECK_INT(n, json_object_array_length(json_find(o, "ids")));
    check_sums(stats);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        uint64_t sum = number(rest, keys[k]);
        for (size_t i = 0; i < n; i++) {
            sum += number(json_object_array_get_idx(a, i), keys[k]);
        }
        /* reads ahead may still land after the last look */
        if (strcmp(keys[k], "drive_bytes") != 0) {
            CHECK_INT(sum, number(stats, keys[k]));
        } else {
            CHECK(sum > 0 && sum <= number(stats, keys[k]));
        }
    }
    uint64_t ns = number(rest, "ns");
    for (size_t i = 0; i < n; i++) {
        ns += number(json_object_array_get_idx(a, i), "ns");
    }
    CHECK_INT(ns, number(stats, "work_ns"));
}

TEST(telemetry_token_stats_sum_to_the_totals) {
    test_run r = test_smoe("run", TALES, "-q", "--json", "--token-stats", "--ids", PROMPT, "-n",
                           "12", "--temp", "0", "--ring", "4M", NULL);
    CHECK_INT(r.status, 0);
    struct json_object *o = parsed(r.out);
    CHECK_INT(json_object_array_length(json_find(o, "token_stats")), 12);
    CHECK_INT(number(json_find(o, "after_tokens"), "ns"), 0);
    check_costs(o);
    r = test_smoe("run", TALES, "-q", "--token-stats", "-p", "x", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "--token-stats goes with --json");
    /* none without asking, none without tokens */
    r = test_smoe("run", TALES, "-q", "--json", "--ids", "5", "-n", "1", NULL);
    CHECK(!json_find(parsed(r.out), "token_stats"));
    r = test_smoe("run", TALES, "-q", "--json", "--token-stats", "--ids", "5", "-n", "0", NULL);
    CHECK_INT(json_object_array_length(json_find(parsed(r.out), "token_stats")), 0);
}

/* An end token is computed like any other and is no part of the output; with a stop text half
 * matched it is even handed out. */
TEST(telemetry_token_stats_account_for_the_end) {
    opened m = open_with(TALES, NULL);
    size_t n_end;
    int32_t end = smoe_model_end_ids(m.model, &n_end)[0];
    CHECK(n_end > 0);
    close_opened(&m);
    char bias[64];
    snprintf(bias, sizeof bias, "%d=inf", end);
    test_run r = test_smoe("run", TALES, "-q", "--json", "--token-stats", "--ids", PROMPT, "-n",
                           "12", "--temp", "0", "--logit-bias", bias, NULL);
    CHECK_INT(r.status, 0);
    struct json_object *o = parsed(r.out);
    CHECK_TEXT(json_object_get_string(json_find(o, "finish")), "end");
    CHECK_INT(json_object_array_length(json_find(o, "token_stats")), 0);
    CHECK(number(json_find(o, "after_tokens"), "ns") > 0);
    check_costs(o);
    test_write_file(test_path("g"), "root ::= \"On\" \"e\"?", 18);
    snprintf(bias, sizeof bias, "%d=99", end);
    r = test_smoe("run", TALES, "-q", "--json", "--token-stats", "--ids", PROMPT, "--temp", "0",
                  "--logit-bias", bias, "--grammar", test_path("g"), "--stop", "One", NULL);
    o = parsed(r.out);
    CHECK_TEXT(json_object_get_string(json_find(o, "text")), "On");
    CHECK_TEXT(json_object_get_string(json_find(o, "finish")), "end");
    CHECK(json_object_array_length(json_find(o, "token_stats")) > 0);
    CHECK(number(json_find(o, "after_tokens"), "ns") > 0);
    check_costs(o);
}

/* ---- experts */

typedef struct look {
    const smoe_model *model;
    uint64_t n_call, uses, n_ready;
} look;

static bool look_at_experts(void *user, const smoe_token *token) {
    look *l = user;
    smoe_stats s;
    const smoe_info *info = smoe_model_info(l->model);
    size_t n = (size_t)info->n_moe_layer * (size_t)info->n_expert;
    uint8_t *place = malloc(n);
    uint32_t *uses = malloc(n * sizeof *uses);
    (void)token;
    memset(place, 0xa5, n);
    smoe_model_stats(l->model, &s);
    smoe_model_experts(l->model, place, uses);
    l->uses = l->n_ready = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(place[i] <= SMOE_PLACE_RING);
        l->uses += uses[i];
        l->n_ready += place[i] == SMOE_PLACE_RING;
    }
    CHECK_INT(l->uses, s.uses);
    CHECK(s.ring_used_bytes <= s.ring_bytes);
    CHECK(l->n_ready * info->expert_bytes <= s.ring_used_bytes);
    smoe_model_experts(l->model, NULL, NULL);
    l->n_call++;
    free(place);
    free(uses);
    return false;
}

TEST(telemetry_experts_are_where_the_counters_say) {
    smoe_model_options options = {.ring_bytes = ring_floor(TALES)};
    opened m = open_with(TALES, &options);
    static const int32_t prompt[] = {3138, 625, 258, 535};
    look l = {.model = m.model};
    smoe_generate_options o = {.sampling = smoe_model_sampling(m.model),
                               .max_tok = 6,
                               .ignore_end = true,
                               .on_token = look_at_experts,
                               .user = &l};
    CHECK_OK(smoe_generate(m.session, prompt, 4, &o, NULL, NULL, NULL, &err));
    CHECK_INT(l.n_call, 6);
    CHECK(l.uses > 0 && l.n_ready > 0);
    smoe_model_stats_reset(m.model);
    look_at_experts(&l, NULL);
    CHECK_INT(l.uses, 0);
    CHECK(l.n_ready > 0);
    close_opened(&m);
}

/* ---- frames */

enum { MAX_LAYER = 94, MAX_EXPERT = 512 };
static uint8_t place[MAX_LAYER * MAX_EXPERT];
static float heat[MAX_LAYER * MAX_EXPERT];
static char frame[LIVE_FRAME_BYTES];

static live_picture made_picture(int32_t n_layer, int32_t n_expert, const smoe_stats *stats) {
    for (int32_t i = 0; i < n_layer * n_expert; i++) {
        place[i] = (uint8_t)(test_rand() % 3);
        heat[i] = test_uniform(0, 1);
    }
    return (live_picture){.n_layer = n_layer,
                          .n_expert = n_expert,
                          .place = place,
                          .heat = heat,
                          .stats = stats,
                          .tok_per_s = 12.5,
                          .bytes_per_s = 5e8,
                          .hit_share = 0.678,
                          .busy_share = 0.81,
                          .n_tok = 17,
                          .max_tok = 256,
                          .text = "Once upon a time\nthere was",
                          .text_bytes = 26,
                          .has_colour = true};
}

/* The frame as a terminal without escape sequences has it: lines ended by newlines, in a static
 * buffer. Fails when a line is longer than n_column or there are more than n_row. Each character of
 * these tests but the wide one takes one column. */
static const char *shown(const live_picture *p, int n_column, int n_row) {
    static char text[LIVE_FRAME_BYTES + 1];
    size_t n = live_frame(p, n_column, n_row, frame), used = 0;
    int column = 0, line = n > 0;
    CHECK(n <= LIVE_FRAME_BYTES);
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)frame[i];
        if (c == '\033') {
            CHECK(frame[++i] == '[');
            do {
                i++;
                CHECK(i < n);
            } while (strchr("0123456789;", frame[i]));
            CHECK(strchr("HKJm", frame[i]));
            if (frame[i] == 'J') { /* what follows the last line */
                CHECK_INT(column, 0);
                line--;
            }
        } else if (c == '\r') {
            CHECK(frame[++i] == '\n');
            text[used++] = '\n';
            column = 0;
            line++;
        } else {
            CHECK(c >= 0x20 && c != 0x7f);
            column += (c & 0xc0) != 0x80;
            column += c == 0xe4; /* the first byte of the wide ones here */
            text[used++] = (char)c;
        }
        if (column > n_column || line > n_row) {
            FAIL("column %d, line %d in a terminal of %d x %d", column, line, n_column, n_row);
        }
    }
    text[used] = '\0';
    return text;
}

TEST(live_frame_shows_the_numbers) {
    smoe_stats s = made_stats();
    live_picture p = made_picture(48, 128, &s);
    for (int has_colour = 0; has_colour < 2; has_colour++) {
        p.has_colour = has_colour;
        const char *text = shown(&p, 80, 24);
        CHECK_HAS(text, "12.5 tok/s  token 17 of 256  hits 67.8 %");
        CHECK_HAS(text, "2.86 MiB of 3.81 MiB");
        CHECK_HAS(text, "of 6144 experts");
        CHECK_HAS(text, "477 MiB/s of the probed 954 MiB/s, busy 81 %");
        CHECK_HAS(text, "best of 4 x 2");
        CHECK_HAS(text, "\n0-3 ");
        CHECK_HAS(text, "\n44-47 ");
        CHECK_HAS(text, "Once upon a time\nthere was");
        CHECK((strstr(frame, "38;5;") != NULL) == (has_colour == 1));
    }
    s.probed_bytes_per_s = 0;
    p.max_tok = -1;
    CHECK_HAS(shown(&p, 80, 24), "477 MiB/s, not probed");
    CHECK(!strstr(shown(&p, 80, 24), "of 256"));
}

TEST(live_frame_fits_any_terminal) {
    smoe_stats s = made_stats();
    static const int sizes[][2] = {{1, 1},   {5, 2},   {20, 3},  {40, 10},  {79, 23},
                                   {80, 24}, {81, 50}, {132, 8}, {400, 200}};
    static const int32_t models[][2] = {{1, 4}, {6, 16}, {32, 8}, {94, 128}, {61, 512}};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        live_picture p = made_picture(models[m][0], models[m][1], &s);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            shown(&p, sizes[i][0], sizes[i][1]);
        }
    }
    live_picture p = made_picture(6, 16, &s);
    CHECK_INT(live_frame(&p, 0, 24, frame), 0);
}

/* Cells are folded by maximum: one hot, resident expert among cold ones stays to be seen. */
TEST(live_frame_folds_by_maximum) {
    smoe_stats s = made_stats();
    live_picture p = made_picture(48, 128, &s);
    memset(place, SMOE_PLACE_DRIVE, sizeof place);
    memset(heat, 0, sizeof heat);
    p.has_colour = false;
    const char *cold = strstr(shown(&p, 80, 24), "\n0-3 ");
    CHECK(strncmp(cold + 1, "0-3                          ", 29) == 0);
    CHECK(!strstr(strstr(frame, "44-47"), "\033[0;7m"));
    heat[46 * 128 + 3] = 1;
    place[47 * 128 + 2] = SMOE_PLACE_RING;
    shown(&p, 80, 24);
    CHECK_HAS(strstr(frame, "44-47"), "44-47    \033[0;7m#\033[0m ");
}

/* The text's end is shown, wrapped by columns, and nothing in it is an order to the terminal. */
TEST(live_frame_text_is_only_text) {
    smoe_stats s = made_stats();
    live_picture p = made_picture(6, 16, &s);
    char text[4000];
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 5, "omega", 5);
    p.text = text;
    p.text_bytes = sizeof text;
    CHECK_HAS(shown(&p, 80, 24), "omega");
    static const char bad[] = "x\033[2J\x07\xc2\x9by\xff\xe4z\t\xe4\xb8\xad\xe4\xb8\xad end";
    p.text = bad;
    p.text_bytes = sizeof bad - 1;
    CHECK_HAS(shown(&p, 80, 24), "x [2J  y  z \xe4\xb8\xad\xe4\xb8\xad end");
    shown(&p, 13, 24); /* the second wide one does not fit in the rest of its line */
    p.text_bytes = sizeof bad - 1 - 5; /* cut within a character */
    shown(&p, 80, 24);
}

/* ---- the terminal */

typedef struct pty {
    pid_t pid;
    int fd;
    char *out; /* what came so far */
    size_t bytes;
} pty;

/* The program with a terminal of 80 x 24 at standard error, and the file out, or with NULL the same
 * terminal, at standard output. in is its standard input; NULL: none. */
static pty start(const char *const *argv, const char *in, const char *out) {
    pty p = {.fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), .out = calloc(1, 1)};
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    CHECK(p.fd >= 0 && grantpt(p.fd) == 0 && unlockpt(p.fd) == 0);
    const char *name = ptsname(p.fd);
    CHECK(name);
    int tty = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    int file = out ? open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : tty;
    int input = open(in ? in : "/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(tty >= 0 && file >= 0 && input >= 0 && ioctl(tty, TIOCSWINSZ, &size) == 0);
    p.pid = fork();
    CHECK(p.pid >= 0);
    if (p.pid == 0) {
        if (dup2(input, 0) < 0 || dup2(file, 1) < 0 || dup2(tty, 2) < 0) {
            _exit(99);
        }
        setenv("TERM", "xterm-256color", 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(98);
    }
    close(input);
    close(tty);
    if (out) {
        close(file);
    }
    return p;
}

/* Returns false when nobody has the terminal any more. */
static bool read_more(pty *p) {
    char piece[4096];
    ssize_t n = read(p->fd, piece, sizeof piece);
    if (n > 0) {
        p->out = realloc(p->out, p->bytes + (size_t)n + 1);
        memcpy(p->out + p->bytes, piece, (size_t)n);
        p->bytes += (size_t)n;
        p->out[p->bytes] = '\0';
    }
    return n > 0;
}

/* Reads until part has come since from_bytes, or nobody has the terminal any more. */
static void read_until(pty *p, size_t from_bytes, const char *part) {
    while (!strstr(p->out + from_bytes, part) && read_more(p)) {
    }
}

#define ENTER "\033[?1049h"
#define LEAVE "\033[?1049l"

TEST(live_run_takes_the_screen_and_gives_it_back) {
    const char *out = test_path("out");
    const char *argv[] = {test_built("smoe"),
                          "run",
                          TALES,
                          "-q",
                          "--ids",
                          PROMPT,
                          "-n",
                          "20",
                          "--temp",
                          "0",
                          "--precision",
                          "reference",
                          "--live",
                          "--stats",
                          "--ignore-end",
                          NULL};
    int status;
    pty p = start(argv, NULL, out);
    read_until(&p, 0, "kernels");
    CHECK(waitpid(p.pid, &status, 0) == p.pid && WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    const char *enter = strstr(p.out, ENTER), *leave = strstr(p.out, LEAVE);
    CHECK(enter && leave && enter < leave && !strstr(leave, ENTER));
    CHECK_HAS(enter, "tok/s");
    CHECK_HAS(enter, " of 192 experts");
    CHECK_HAS(leave, "decode"); /* statistics come after it */
    size_t bytes;
    CHECK_HAS(test_read_file(out, &bytes), " great deal of work");
    close(p.fd);
    /* the text comes after the view when both share the terminal */
    p = start(argv, NULL, NULL);
    read_until(&p, 0, "kernels");
    CHECK(waitpid(p.pid, &status, 0) == p.pid && WIFEXITED(status));
    CHECK_HAS(strstr(p.out, LEAVE), " great deal of work");
    close(p.fd);
}

TEST(live_run_gives_the_screen_back_when_ended) {
    static const int ends[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < 2; i++) {
        const char *argv[] = {test_built("smoe"), "run", TALES, "-q",           "--ids", PROMPT,
                              "--live",           "-n",  "-1",  "--ignore-end", NULL};
        int status;
        pty p = start(argv, NULL, test_path("out"));
        read_until(&p, 0, "tok/s");
        CHECK_HAS(p.out, ENTER);
        kill(p.pid, ends[i]);
        read_until(&p, 0, LEAVE);
        CHECK(waitpid(p.pid, &status, 0) == p.pid);
        CHECK_HAS(p.out, LEAVE);
        CHECK_HAS(p.out, "\033[?25h"); /* the cursor is back */
        if (ends[i] == SIGINT) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 130);
        } else {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        }
        close(p.fd);
    }
}

/* Each answer has a view of its own and follows it, as it would have come without. */
TEST(live_chat_shows_each_answer_after_its_view) {
    const char *plain[] = {test_built("smoe"), "chat", TALES, "-q", "-n", "12",
                           "--seed",           "3",    NULL};
    const char *argv[] = {test_built("smoe"), "chat", TALES,    "-q", "-n", "12",
                          "--seed",           "3",    "--live", NULL};
    static const char input[] = "Tell me a tale.\nAnd then?\n";
    int status;
    size_t bytes;
    test_run r = test_smoe_argv(plain, input);
    CHECK_INT(r.status, 0);
    test_write_file(test_path("in"), input, sizeof input - 1);
    pty p = start(argv, test_path("in"), test_path("out"));
    read_until(&p, 0, LEAVE);
    CHECK_HAS(p.out, LEAVE);
    size_t first = (size_t)(strstr(p.out, LEAVE) - p.out) + sizeof LEAVE - 1;
    read_until(&p, first, LEAVE);
    CHECK_HAS(p.out + first, ENTER);
    CHECK_HAS(p.out + first, LEAVE);
    CHECK(waitpid(p.pid, &status, 0) == p.pid && WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    CHECK_TEXT(test_read_file(test_path("out"), &bytes), r.out);
    close(p.fd);
}

TEST(live_needs_a_terminal) {
    test_run r = test_smoe("run", TALES, "-q", "-p", "x", "--live", NULL);
    CHECK_INT(r.status, 1);
    CHECK_TEXT(r.err, "smoe: run: --live draws on standard error, which is no terminal\n");
    r = test_smoe("chat", TALES, "-q", "--live", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "chat: --live");
}
