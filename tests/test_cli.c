/* The program as a user meets it: commands, options, exit statuses, what lands on which stream. */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "model_util.h"

static smoe_error err;

#define TALES "models/tales-8m"

/* The run succeeded; its standard output. */
static const char *good(test_run r) {
    if (r.status != 0) {
        FAIL("exit status %d: %s", r.status, r.err);
    }
    return r.out;
}

/* The run failed as errors do: status 1, one line on stderr that begins with "smoe" and holds part,
 * nothing on stdout. */
static void bad(test_run r, const char *part) {
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, part);
    CHECK(strncmp(r.err, "smoe", 4) == 0);
    CHECK_TEXT(r.out, "");
    CHECK(strchr(r.err, '\n') == r.err + strlen(r.err) - 1);
}

static struct json_object *parsed(const char *text) {
    struct json_object *o = NULL;
    CHECK_OK(json_parse(&o, text, strlen(text), "output", JSON_UNIQUE_KEYS, &err));
    return o;
}

static int64_t number(struct json_object *o, const char *key) {
    struct json_object *v = json_find(o, key);
    CHECK(v && json_object_is_type(v, json_type_int));
    return json_object_get_int64(v);
}

TEST(cli_help_lists_every_command) {
    static const char *const commands[] = {"run",     "chat",     "sculpt", "verify",
                                           "inspect", "tokenize", "logits", "eval",
                                           "synth",   "bench",    "plan",   "doctor"};
    test_run all = test_smoe("--help", NULL);
    good(all);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        CHECK_HAS(all.out, commands[i]);
        test_run one = test_smoe(commands[i], "--help", NULL);
        CHECK_HAS(good(one), "--");
        CHECK_TEXT(one.err, "");
        CHECK_TEXT(good(test_smoe("help", commands[i], NULL)), one.out);
    }
    CHECK_HAS(good(test_smoe("--version", NULL)), SMOE_VERSION);
    test_run none = test_smoe(NULL, NULL);
    CHECK_INT(none.status, 1);
    CHECK_HAS(none.err, "Usage");
}

TEST(cli_bad_usage_is_named) {
    CHECK_INT(test_smoe("dance", NULL).status, 1);
    bad(test_smoe("run", NULL), "missing argument: MODEL");
    bad(test_smoe("run", TALES, "extra", NULL), "extra");
    bad(test_smoe("run", TALES, "--nosuch", NULL), "--nosuch");
    bad(test_smoe("run", TALES, "--prompt", NULL), "needs a value");
    bad(test_smoe("run", TALES, "-p", "x", "--temp", "hot", NULL), "--temp");
    bad(test_smoe("run", TALES, "-p", "x", "--temp", "-1", NULL), "--temp");
    bad(test_smoe("run", TALES, "-p", "x", "--memory", "8Q", NULL), "--memory");
    bad(test_smoe("run", TALES, "-p", "x", "--io", "magic", NULL), "auto|uring|threads");
    bad(test_smoe("run", TALES, "-p", "x", "--seed", "-4", NULL), "--seed");
    bad(test_smoe("run", TALES, "-p", "x", "--json=1", NULL), "takes no value");
    bad(test_smoe("run", TALES, "-q", "-p", "x", "--isa", "mmx", NULL), "mmx");
    bad(test_smoe("run", TALES, "-q", NULL), "exactly one of");
    bad(test_smoe("run", TALES, "-q", "--ids", "1,x", NULL), "--ids");
    bad(test_smoe("run", TALES, "-q", "--ids", "4096", NULL), "4096");
    bad(test_smoe("run", "no/such", "-p", "x", NULL), "no/such");
    bad(test_smoe("sculpt", TALES, NULL), "-o NAME.smoe");
    bad(test_smoe("eval", TALES, NULL), "--text");
    bad(test_smoe("logits", TALES, "--ids", "none", NULL), "--out");
}

TEST(cli_run_prints_golden_text) {
    test_run r = test_smoe("run", TALES, "--prompt", "Once upon a time there was a", "-n", "20",
                           "--temp", "0", "--precision", "reference", "--stats", NULL);
    CHECK_TEXT(good(r), "Once upon a time there was a great deal of work in the country, and the "
                        "people were very fond of the people. The people\n");
    CHECK_HAS(r.err, "memory plan");
    CHECK_HAS(r.err, "tok/s");
    CHECK_HAS(r.err, "misses");
    CHECK_HAS(r.err, "peak");
}

TEST(cli_run_json_holds_everything) {
    test_run r = test_smoe("run", TALES, "-q", "--json", "--ids", "3138,625,258,535,450,308,258",
                           "-n", "8", "--temp", "0", "--precision", "reference", NULL);
    struct json_object *o = parsed(good(r));
    CHECK_TEXT(r.err, "");
    struct json_object *ids = json_find(o, "ids");
    CHECK_INT(json_object_array_length(ids), 8);
    CHECK_INT(json_object_get_int(json_object_array_get_idx(ids, 0)), 572);
    CHECK_TEXT(json_object_get_string(json_find(o, "finish")), "length");
    CHECK_HAS(json_object_get_string(json_find(o, "text")), " great deal of work");
    struct json_object *stats = json_find(o, "stats");
    CHECK_INT(number(stats, "uses"),
              number(stats, "hits") + number(stats, "inflight_hits") + number(stats, "misses"));
    CHECK(number(stats, "decode_tok") == 7 && number(stats, "prefill_tok") == 7);
    CHECK(number(stats, "drive_bytes") > 0);
    CHECK(number(stats, "peak_process_bytes") <= number(stats, "ceiling_bytes"));
}

TEST(cli_run_takes_prompts_from_files_and_stops) {
    test_write_file(test_path("prompt"), "Once upon a time there was a", 28);
    test_run r = test_smoe("run", TALES, "-q", "-f", test_path("prompt"), "-n", "20", "--temp", "0",
                           "--precision", "reference", "--stop", " in the", NULL);
    CHECK_TEXT(good(r), " great deal of work\n");
    const char *argv[] = {test_built("smoe"), "run", TALES, "-q", "-f", "-", "-n", "2",
                          "--temp",           "0",   NULL};
    CHECK_TEXT(good(test_smoe_argv(argv, "Once upon a time there was a")), " great deal\n");
    /* the same seed gives the same text, another seed another */
    test_run a = test_smoe("run", TALES, "-q", "-p", "The", "-n", "30", "--seed", "5", NULL);
    test_run b = test_smoe("run", TALES, "-q", "-p", "The", "-n", "30", "--seed", "5", NULL);
    test_run c = test_smoe("run", TALES, "-q", "-p", "The", "-n", "30", "--seed", "6", NULL);
    CHECK_TEXT(good(a), good(b));
    CHECK(strcmp(good(a), good(c)) != 0);
}

TEST(cli_sculpt_inspect_verify) {
    char vault[512];
    snprintf(vault, sizeof vault, "%s", test_path("t.smoe"));
    test_run r = test_smoe("sculpt", TALES, "-o", vault, NULL);
    good(r);
    CHECK_HAS(r.err, "wrote");
    bad(test_smoe("sculpt", TALES, "-q", "-o", vault, NULL), "--overwrite");
    good(test_smoe("sculpt", TALES, "-q", "-o", vault, "--overwrite", "--quant", "q8", NULL));
    CHECK_HAS(good(test_smoe("verify", "-q", vault, NULL)), "right");
    struct json_object *o = parsed(good(test_smoe("inspect", "--json", vault, NULL)));
    CHECK_TEXT(json_object_get_string(json_find(o, "family")), "qwen3_moe");
    CHECK_TEXT(json_object_get_string(json_find(o, "container")), "vault");
    CHECK_TEXT(json_object_get_string(json_find(o, "expert_type")), "q8");
    CHECK_INT(number(o, "n_expert"), 32);
    CHECK_INT(number(o, "n_param"), 8493888); /* counted by hand from config.json */
    CHECK_INT(number(o, "token_cycle_bytes"), 6 * 4 * number(o, "expert_bytes"));
    CHECK_INT(number(json_find(o, "spec"), "n_layer"), 6);
    const char *text = good(test_smoe("inspect", TALES, NULL));
    CHECK_HAS(text, "token cycle");
    CHECK_HAS(text, "bf16");
    /* flip one bit of a record in the middle; what lies between records is zeros */
    size_t bytes;
    char *data = test_read_file(vault, &bytes);
    size_t at = bytes / 2;
    while (!data[at]) {
        at++;
    }
    data[at] ^= 1;
    test_write_file(vault, data, bytes);
    r = test_smoe("verify", "-q", vault, NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "expert");
}

TEST(cli_logits_writes_safetensors) {
    char out[512];
    size_t n_id, n_want, n_got;
    const char *truth = "tests/data/fixtures/qwen3_moe/expected.safetensors";
    int32_t *ids = truth_ids(truth, "input_ids", &n_id);
    float *want = truth_floats(truth, "logits", &n_want);
    char text[4096] = "[";
    for (size_t i = 0; i < n_id; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%d%s", ids[i], i + 1 < n_id ? ", " : "]\n");
    }
    test_write_file(test_path("ids"), text, strlen(text));
    snprintf(out, sizeof out, "%s", test_path("logits.safetensors"));
    good(test_smoe("logits", "tests/data/fixtures/qwen3_moe", "-q", "--ids", test_path("ids"),
                   "--out", out, "--precision", "reference", NULL));
    float *got = truth_floats(out, "logits", &n_got);
    CHECK_INT(n_got, n_want);
    for (size_t i = 0; i < n_got; i++) {
        CHECK_NEAR(got[i], want[i], 1e-3);
    }
    int32_t *kept = truth_int32(out, "ids", &n_got);
    CHECK_INT(n_got, n_id);
    CHECK(memcmp(kept, ids, n_id * sizeof *ids) == 0);
    bad(test_smoe("logits", "tests/data/fixtures/qwen3_moe", "-q", "--ids", test_path("ids"),
                  "--out", "/nonexistent/x", NULL),
        "/nonexistent/x");
}

TEST(cli_eval_measures_as_the_golden_file) {
    size_t bytes;
    char *text = test_read_file(test_data("valid-head.txt"), &bytes);
    test_write_file(test_path("text"), text, 20000);
    test_run r = test_smoe("eval", TALES, "-q", "--text", test_path("text"), "--ctx", "512",
                           "--windows", "2", "--json", NULL);
    struct json_object *o = parsed(good(r));
    CHECK_INT(number(o, "windows"), 2);
    char *golden = test_read_file(TALES "/golden.json", NULL);
    struct json_object *g = json_find(parsed(golden), "perplexity");
    struct json_object *want = json_find(g, "nll_per_window");
    struct json_object *got = json_find(o, "nll_per_window");
    for (size_t i = 0; i < 2; i++) {
        CHECK_NEAR(json_object_get_double(json_object_array_get_idx(got, i)),
                   json_object_get_double(json_object_array_get_idx(want, i)), 5e-3);
    }
    bad(test_smoe("eval", TALES, "-q", "--text", TALES "/config.json", "--ctx", "1024", NULL),
        "less than one window");
}

/* The mean divergence of b from a, and the share of positions with the same best token, over the
 * first n_tok - 1 rows of each window; computed anew from two files that eval kept. */
static double divergence(const float *a, const float *b, size_t n_row, size_t n_tok, size_t vocab,
                         double *same) {
    double kl = 0;
    size_t n = 0;
    size_t n_same = 0;
    for (size_t row = 0; row < n_row; row++, a += vocab, b += vocab) {
        if (row % n_tok == n_tok - 1) {
            continue;
        }
        double sum_a = 0;
        double sum_b = 0;
        double sum = 0;
        size_t best_a = 0;
        size_t best_b = 0;
        for (size_t i = 0; i < vocab; i++) {
            sum_a += exp((double)a[i]);
            sum_b += exp((double)b[i]);
            sum += exp((double)a[i]) * ((double)a[i] - (double)b[i]);
            best_a = a[i] > a[best_a] ? i : best_a;
            best_b = b[i] > b[best_b] ? i : best_b;
        }
        kl += sum / sum_a - log(sum_a) + log(sum_b);
        n_same += best_a == best_b;
        n++;
    }
    *same = (double)n_same / (double)n;
    return kl / (double)n;
}

/* Three windows of 64 tokens of the text at test_path("text"). */
static test_run eval_text(const char *option, const char *file, const char *precision) {
    return test_smoe("eval", TALES, "-q", "--no-learn", "--text", test_path("text"), "--ctx", "64",
                     "--windows", "3", "--json", "--precision", precision, option, file, NULL);
}

static double measure(test_run r, const char *key) {
    struct json_object *v = json_find(parsed(good(r)), key);
    CHECK(v && json_object_is_type(v, json_type_double));
    return json_object_get_double(v);
}

TEST(cli_eval_compares_with_kept_logits) {
    char exact[512];
    char usual[512];
    size_t n_exact, n_usual;
    double same;
    char *text = test_read_file(test_data("valid-head.txt"), NULL);
    test_write_file(test_path("text"), text, 2000);
    snprintf(exact, sizeof exact, "%s", test_path("exact.safetensors"));
    snprintf(usual, sizeof usual, "%s", test_path("usual.safetensors"));
    good(eval_text("--save", exact, "reference"));
    good(eval_text("--save", usual, "default"));
    test_run r = eval_text("--against", exact, "default");
    float *a = truth_floats(exact, "logits", &n_exact);
    float *b = truth_floats(usual, "logits", &n_usual);
    CHECK_INT(n_exact, 3 * 64 * 4096);
    CHECK_INT(n_usual, n_exact);
    double kl = divergence(a, b, 3 * 64, 64, 4096, &same);
    CHECK(kl > 0 && kl < 0.01 && same > 0.9);
    CHECK_NEAR(measure(r, "kl"), kl, 1e-9);
    CHECK_NEAR(measure(r, "same_best"), same, 1e-9);
    CHECK_NEAR(measure(eval_text("--against", exact, "reference"), "kl"), 0, 1e-12);
    CHECK_HAS(good(test_smoe("eval", TALES, "-q", "--text", test_path("text"), "--ctx", "64",
                             "--windows", "2", "--against", exact, NULL)),
              "of 126 positions\n");
}

/* What smoe logits writes, one sequence, is a window to compare with. */
TEST(cli_eval_compares_with_one_sequence) {
    char *text = test_read_file(test_data("valid-head.txt"), NULL);
    test_write_file(test_path("text"), text, 400);
    const char *ids = good(test_smoe("tokenize", TALES, "--file", test_path("text"), NULL));
    const char *end = ids;
    for (int i = 0; i < 64; i++) {
        end += strspn(end, " ");
        end += strcspn(end, " \n");
    }
    test_write_file(test_path("ids"), ids, (size_t)(end - ids));
    good(test_smoe("logits", TALES, "-q", "--ids", test_path("ids"), "--out", test_path("one"),
                   NULL));
    test_run r = test_smoe("eval", TALES, "-q", "--text", test_path("text"), "--ctx", "64",
                           "--windows", "1", "--against", test_path("one"), "--json", NULL);
    CHECK_NEAR(measure(r, "kl"), 0, 1e-12);
}

TEST(cli_eval_refuses_other_logits) {
    char *text = test_read_file(test_data("valid-head.txt"), NULL);
    test_write_file(test_path("text"), text, 2000);
    char base[512];
    snprintf(base, sizeof base, "%s", test_path("base"));
    good(test_smoe("eval", TALES, "-q", "--text", test_path("text"), "--ctx", "64", "--windows",
                   "2", "--save", base, NULL));
    bad(eval_text("--against", base, "default"), "ends after 2 of 3 windows");
    bad(test_smoe("eval", TALES, "-q", "--text", test_path("text"), "--ctx", "32", "--against",
                  base, NULL),
        "give --ctx 64");
    test_write_file(test_path("text"), text + 1, 2000);
    bad(test_smoe("eval", TALES, "-q", "--text", test_path("text"), "--ctx", "64", "--windows", "2",
                  "--against", base, NULL),
        "logits of other tokens");
    bad(eval_text("--against", "/nonexistent/x", "default"), "/nonexistent/x");
    bad(eval_text("--save", "/nonexistent/x", "default"), "/nonexistent/x");
}

TEST(cli_eval_refuses_broken_logits) {
    static const struct {
        const char *header, *says;
    } broken[] = {
        {"[1]", "no safetensors"},
        {"{}", "logits"},
        {"{\"logits\":3}", "logits"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,16]}}", "not fit"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[1,4],\"data_offsets\":[8,24]}}", "not fit"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[1,0],\"data_offsets\":[0,0]}}", "not fit"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],"
         "\"data_offsets\":[0,16]}}",
         "not fit"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "vocabulary"},
        {"{\"logits\":{\"dtype\":\"F16\",\"shape\":[1,4],\"data_offsets\":[0,16]}}", "F16"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[1,-4],\"data_offsets\":[0,16]}}", "shape"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[1,1,1,4],\"data_offsets\":[0,16]}}", "shape"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
         "\"ids\":{\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "differ in shape"},
        {"{\"logits\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", "vocabulary"},
    };
    char *text = test_read_file(test_data("valid-head.txt"), NULL);
    test_write_file(test_path("text"), text, 2000);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char file[512] = {0};
        size_t n = strlen(broken[i].header);
        file[0] = (char)n;
        memcpy(file + 8, broken[i].header, n);
        test_write_file(test_path("base"), file, 8 + n + 16);
        bad(eval_text("--against", test_path("base"), "default"), broken[i].says);
    }
    test_write_file(test_path("base"), "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    bad(eval_text("--against", test_path("base"), "default"), "no safetensors");
    test_write_file(test_path("base"), "\2", 1);
    bad(eval_text("--against", test_path("base"), "default"), "base");
}

TEST(cli_tokenize_reads_lines) {
    const char *argv[] = {getenv("SMOE_BIN") ? getenv("SMOE_BIN") : test_built("smoe"), "tokenize",
                          TALES, "--jsonl", NULL};
    test_run r = test_smoe_argv(argv, "{\"text\": \"x\\ny<|im_end|>\"}\n\n{\"text\": \"\"}\n");
    good(r);
    char *rest = r.out;
    char *line = strsep(&rest, "\n");
    struct json_object *o = json_tokener_parse(line);
    CHECK_TEXT(json_object_get_string(json_find(o, "decoded")), "x\ny<|im_end|>");
    struct json_object *ids = json_find(o, "ids");
    CHECK_INT(
        json_object_get_int(json_object_array_get_idx(ids, json_object_array_length(ids) - 1)),
        4095);
    json_object_put(o);
    o = json_tokener_parse(strsep(&rest, "\n"));
    CHECK_INT(json_object_array_length(json_find(o, "ids")), 0);
    json_object_put(o);
    CHECK_TEXT(rest, "");
    r = test_smoe_argv(argv, "{\"text\": \"\"}\n{\"t\": 1}\n");
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "line 2: text is missing");
    bad(test_smoe("tokenize", TALES, "--jsonl", "-p", "x", NULL), "--jsonl");
}

TEST(cli_tokenize_round_trips) {
    CHECK_TEXT(good(test_smoe("tokenize", TALES, "-p", "Once upon a time there was a", NULL)),
               "3138 625 258 535 450 308 258\n");
    CHECK_TEXT(good(test_smoe("tokenize", TALES, "--ids", "3138 625 258 535 450 308 258", NULL)),
               "Once upon a time there was a\n");
    CHECK_TEXT(good(test_smoe("tokenize", TALES, "-p", "<|im_end|>", "--special", NULL)), "4095\n");
    CHECK(strcmp(good(test_smoe("tokenize", TALES, "-p", "<|im_end|>", NULL)), "4095\n") != 0);
    struct json_object *o =
        parsed(good(test_smoe("tokenize", TALES, "-p", "x\ny", "--json", NULL)));
    CHECK_TEXT(json_object_get_string(json_find(o, "decoded")), "x\ny");
    bad(test_smoe("tokenize", "tests/data/fixtures/mixtral", "-p", "x", NULL), "tokenizer.json");
}

static test_run chat(const char *input) {
    const char *argv[] = {test_built("smoe"), "chat", TALES, "-q", "-n", "12", "--seed", "3", NULL};
    return test_smoe_argv(argv, input);
}

TEST(cli_chat_answers_and_obeys) {
    test_run r =
        chat("Tell me a tale.\n/stats\nAnd then?\n/clear\n/nosuch\n/help\n/exit\nunseen\n");
    good(r);
    CHECK_HAS(r.out, "forgotten");
    CHECK_HAS(r.out, "/nosuch is no command");
    CHECK_HAS(r.out, "Ctrl-C");
    CHECK_HAS(r.err, "decode");
    CHECK(strlen(r.out) > 60);
    test_run again = chat("Tell me a tale.\n/stats\nAnd then?\n/clear\n/nosuch\n/help\n/exit\n");
    CHECK_TEXT(again.out, r.out);
    /* control tokens in a message are text */
    good(chat("<|im_end|>\\\n<|im_start|>system\n"));
}

/* A ceiling given on the command line holds for the whole process, tokenizer and all. */
TEST(cli_memory_ceiling_holds) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    test_run r = test_smoe("run", TALES, "-p", "x", "--memory", "1", NULL);
    bad(r, "smallest that works is ");
    char least[64];
    CHECK_INT(sscanf(strstr(r.err, "works is ") + 9, "%63[0-9]", least), 1);
    r = test_smoe("run", TALES, "-q", "-p", "Once upon a time", "-n", "60", "--seed", "1",
                  "--memory", least, "--json", NULL);
    struct json_object *o = parsed(good(r));
    int64_t limit = strtoll(least, NULL, 10);
    int64_t peak = number(json_find(o, "stats"), "peak_process_bytes");
    if (peak > limit || (int64_t)r.max_rss_kib * 1024 > limit) {
        FAIL("peak %lld bytes, %ld KiB by the kernel, ceiling %s", (long long)peak, r.max_rss_kib,
             least);
    }
}
