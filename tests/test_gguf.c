/* GGUF files: the reader, split models, every malformed file by its verdict, models against their
 * makers' logits, and vaults made from them. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bad_cases.h"
#include "formats/gguf.h"
#include "model/source.h"
#include "model_util.h"
#include "streamer/streamer.h"
#include "tiny_gguf.h"

/* ---- malformed files */

/* Opens the model, tokenizer and all. What opens must run; other than by its numbers it may not
 * fail. Returns what opening did. */
static int run_a_little(const char *path, smoe_error *err) {
    static const int32_t prompt[] = {1, 5, 100, 7};
    smoe_model *m;
    smoe_session *s;
    smoe_model_options options = {.n_thread = 1};
    smoe_generate_options generate = {.sampling = {.top_p = 1, .repetition_penalty = 1},
                                      .max_tok = 3};
    int open_rc = smoe_model_open(&m, path, &options, err);
    if (open_rc != SMOE_OK) {
        return open_rc;
    }
    CHECK_INT(smoe_session_open(&s, m, err), SMOE_OK);
    int rc = smoe_generate(s, prompt, 4, &generate, NULL, NULL, NULL, err);
    CHECK(rc == SMOE_OK || rc == SMOE_ERR_NUMERIC);
    smoe_session_close(s);
    smoe_model_close(m);
    return SMOE_OK;
}

static void run_cases(const char *prefix) {
    bad_case *c;
    size_t n = bad_cases(&c, prefix);
    for (size_t i = 0; i < n; i++) {
        char path[256];
        smoe_error err = {0};
        source *s = NULL;
        snprintf(path, sizeof path, "bad/%s", c[i].file);
        int rc = source_open(&s, test_data(path), &err);
        if (getenv("SMOE_TEST_VERBOSE")) {
            printf("%s: %s\n", c[i].file, rc ? err.text : "opens");
        }
        CHECK((s == NULL) == (rc != SMOE_OK));
        source_close(s);
        if (rc == SMOE_OK) {
            rc = run_a_little(test_data(path), &err);
        }
        bad_case_check(&c[i], rc, &err);
    }
    free(c);
}

TEST_LIMIT(bad_gguf_files_end_by_verdict, 10) {
    run_cases("gguf/");
}

TEST_LIMIT(bad_splits_end_by_verdict, 10) {
    run_cases("split/");
}

TEST(ok_gguf_opens) {
    run_cases("ok.gguf");
}

/* ---- models */

static smoe_error err;

/* Compares with a fixture's logits, or another implementation's for the same ids. */
static void check_logits(const char *path, const char *expected, const char *ids_name,
                         const char *logits_name, double limit) {
    size_t n_id, n_logit;
    smoe_model_options options = {.n_thread = 2, .precision = SMOE_PRECISION_REFERENCE};
    test_apply_permutation(&options);
    if (test_ring_floor()) {
        options.ring_bytes = ring_floor(path);
    }
    opened o = open_with(path, &options);
    int32_t *ids = truth_ids(expected, ids_name, &n_id);
    float *want = truth_floats(expected, logits_name, &n_logit);
    float *got = all_logits(&o, ids, n_id);
    double lo = HUGE_VAL, hi = -HUGE_VAL, worst = 0;
    for (size_t i = 0; i < n_logit; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        lo = fmin(lo, (double)want[i]);
        hi = fmax(hi, (double)want[i]);
        worst = d <= worst ? worst : d;
    }
    printf("%s: %g of the range\n", path, worst / (hi - lo));
    if (!(worst <= limit * (hi - lo))) {
        FAIL("%s: logits are off by %g of their range", path, worst / (hi - lo));
    }
    free(ids);
    free(want);
    free(got);
    close_opened(&o);
}

static void check_fixture(const char *name) {
    char expected[96], file[64];
    snprintf(file, sizeof file, "gguf/%s.gguf", name);
    snprintf(expected, sizeof expected, "fixtures/%s/expected.safetensors", name);
    check_logits(test_data(file), test_data(expected), "input_ids", "logits", 1e-4);
}

/* llama.cpp's logits for the model that the malformed files are made of. */
TEST(gguf_ok_logits) {
    check_logits(test_data("bad/ok.gguf"), test_data("bad/ok_expected.safetensors"), "input_ids",
                 "logits", 1e-4);
}

TEST(gguf_fixture_qwen3_moe) {
    check_logits(test_vectors("vectors/gguf/qwen3_moe.gguf"),
                 test_data("fixtures/qwen3_moe/expected.safetensors"), "input_ids", "logits", 1e-4);
}

TEST(gguf_fixture_qwen2_moe) {
    check_fixture("qwen2_moe");
}

TEST(gguf_fixture_mixtral) {
    check_fixture("mixtral");
}

TEST(gguf_fixture_olmoe) {
    check_fixture("olmoe");
}

/* olmoe.gguf with attention.clamp_kqv, and a key that keeps what follows aligned. */
static const char *clipped_gguf(float clip) {
    static const char key[] = "olmoe.attention.clamp_kqv";
    size_t bytes, n = strlen(key);
    char *data = test_read_file(test_data("gguf/olmoe.gguf"), &bytes);
    char *out = calloc(1, bytes + 64), *at = out + 24;
    CHECK(out && n == 25);
    memcpy(out, data, 24);
    out[16] = (char)(out[16] + 2); /* the number of keys */
    at[0] = (char)n;
    memcpy(at + 8, key, n);
    at[8 + n] = 6;
    memcpy(at + 12 + n, &clip, sizeof clip);
    at += 16 + n;
    at[0] = 1;
    memcpy(at + 8, "x\10\0\0\0\2\0\0\0\0\0\0\0xx", 15);
    memcpy(out + 24 + 64, data + 24, bytes - 24);
    test_write_file(test_path("clip.gguf"), out, bytes + 64);
    free(data);
    free(out);
    return test_path("clip.gguf");
}

/* The folder of the olmoe fixture with clip_qkv in its configuration. */
static const char *clipped_folder(const char *clip_qkv) {
    size_t bytes;
    char from[1200], to[1200];
    CHECK(mkdir(test_path("clip"), 0777) == 0);
    snprintf(from, sizeof from, "%s", test_data("fixtures/olmoe/model.safetensors"));
    char *data = test_read_file(from, &bytes);
    test_write_file(test_path("clip/model.safetensors"), data, bytes);
    free(data);
    data = test_read_file(test_data("fixtures/olmoe/config.json"), &bytes);
    char *at = memmem(data, bytes, "\"clip_qkv\": null", 16);
    CHECK(at);
    int n = snprintf(to, sizeof to, "%.*s\"clip_qkv\": %s%.*s", (int)(at - data), data, clip_qkv,
                     (int)(bytes - 16 - (size_t)(at - data)), at + 16);
    test_write_file(test_path("clip/config.json"), to, (size_t)n);
    free(data);
    return test_path("clip");
}

/* Queries, keys and values are clipped behind their norms. The logits are of an implementation in
 * float64 by itself, which gives those of the fixture, unclipped, within 3e-7. */
TEST(olmoe_clips_queries_keys_and_values) {
    char expected[1200], file[1200];
    snprintf(expected, sizeof expected, "%s",
             test_data("fixtures/olmoe_clip/expected.safetensors"));
    snprintf(file, sizeof file, "%s", clipped_gguf(0.75f));
    check_logits(file, expected, "input_ids", "logits", 1e-5);
    check_logits(clipped_folder("0.75"), expected, "input_ids", "logits", 1e-5);
    source *s;
    CHECK_OK(source_open(&s, file, &err));
    CHECK_NEAR(s->spec.layer[2].attn.clip, 0.75, 0);
    source_close(s);
    CHECK_ERR(source_open(&s, clipped_gguf(-1), &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "olmoe.attention.clamp_kqv must be >= 0");
}

/* ---- models as published: quantised, in one file or several */

/* Greedy ids of exact arithmetic on the file's weights, from the truth files' README; limit says
 * how many are compared: behind it the best logit leads by less than rounding may change. */
static void check_greedy(const char *path, const int32_t *prompt, size_t n_prompt,
                         const int32_t *want, size_t limit) {
    smoe_model_options options = {
        .n_thread = 2, .context_tok = 64, .precision = SMOE_PRECISION_REFERENCE};
    test_apply_permutation(&options);
    if (test_ring_floor()) {
        options.ring_bytes = ring_floor(path);
    }
    opened o = open_with(path, &options);
    int32_t *got = greedy(&o, prompt, n_prompt, limit);
    for (size_t i = 0; i < limit; i++) {
        CHECK_INT(got[i], want[i]);
    }
    free(got);
    close_opened(&o);
}

static const char tales_8m[] = "vectors/gguf/tales/tales-8m-Q4_0.gguf";
static const char tales_28m[] = "vectors/gguf/tales/tales-28m-Q4_K_M.gguf";
static const int32_t prompt_8m[] = {3138, 625, 258, 535, 450, 308, 258};
static const int32_t prompt_28m[] = {2824, 672, 258, 526, 443, 307, 258};

TEST(gguf_tales_8m_q4_0_greedy) {
    static const int32_t want[] = {572,  1902, 288, 952, 11,  270, 259,  560,  466, 308, 470,
                                   2422, 288,  952, 13,  469, 308, 470,  2422, 288, 259, 560,
                                   466,  11,   270, 278, 308, 470, 2422, 288,  259, 560};
    check_greedy(test_vectors(tales_8m), prompt_8m, 7, want, 32);
}

TEST(gguf_tales_28m_q4_k_m_greedy) {
    static const int32_t want[] = {462, 434, 336, 258, 1018, 434,  307, 258,  466, 592,  462,
                                   11,  269, 276, 307, 466,  2231, 13,  8191, 198, 8190, 622,
                                   584, 435, 198, 810, 307,  258,  466, 592,  462, 11};
    check_greedy(test_vectors(tales_28m), prompt_28m, 7, want, 32);
}

/* The lead at the 19th id is nothing. Opened at each part. */
TEST(gguf_tales_8m_q8_0_split_greedy) {
    static const int32_t want[] = {572, 1902, 288, 952, 297,  259, 1210, 11,  270,
                                   259, 771,  405, 470, 2422, 288, 259,  771, 13};
    for (int part = 1; part <= 3; part++) {
        char path[96];
        snprintf(path, sizeof path, "vectors/gguf/tales/split/tales-8m-Q8_0-%05d-of-00003.gguf",
                 part);
        check_greedy(test_vectors(path), prompt_8m, 7, want, 18);
    }
}

/* Perplexity over positions 1 to 511 of the first n_window windows of valid.txt. */
static double perplexity(const char *path, const char *tokenizer_of, size_t n_window,
                         smoe_precision precision) {
    size_t bytes, n_id;
    int32_t *ids;
    smoe_tokenizer *tokenizer;
    char *text = test_read_file(test_vectors("models/valid.txt"), &bytes);
    bytes = bytes < 4000 * n_window ? bytes : 4000 * n_window;
    CHECK_OK(smoe_tokenizer_open(&tokenizer, tokenizer_of, &err));
    CHECK_OK(smoe_tokenize(tokenizer, text, bytes, false, &ids, &n_id, &err));
    CHECK(n_id >= 512 * n_window);
    smoe_model_options options = {.n_thread = 2, .context_tok = 512, .precision = precision};
    test_apply_permutation(&options);
    opened o = open_with(path, &options);
    double sum = 0;
    for (size_t i = 0; i < n_window; i++) {
        sum += window_nll(&o, ids + 512 * i, 512) / (double)n_window;
    }
    smoe_free(ids);
    free(text);
    smoe_tokenizer_close(tokenizer);
    close_opened(&o);
    return exp(sum);
}

static void check_near(const char *path, double got, double want, double limit) {
    double off = fabs(got / want - 1);
    printf("%s: perplexity %.4f, expected %.4f, off by %.3f %%\n", path, got, want, 100 * off);
    if (!(off <= limit)) {
        FAIL("%s: perplexity %.4f, expected %.4f", path, got, want);
    }
}

/* want: exact arithmetic on the file, over all windows that the truth files' README takes. A quick
 * run takes one window and holds the two precisions against each other. */
static void check_perplexity(const char *path, const char *tokenizer_of, size_t n_window,
                             double want) {
    size_t n = test_thorough() ? n_window : 1;
    double exact = perplexity(path, tokenizer_of, n, SMOE_PRECISION_REFERENCE);
    double usual = perplexity(path, tokenizer_of, n, SMOE_PRECISION_DEFAULT);
    if (test_thorough()) {
        check_near(path, exact, want, 0.001);
        check_near(path, usual, want, 0.01);
    }
    check_near(path, usual, exact, 0.01);
}

TEST_LIMIT(gguf_tales_8m_q4_0_perplexity, 180) {
    check_perplexity(test_vectors(tales_8m), test_model("tales-8m"), 24, 27.1119);
}

TEST_LIMIT(gguf_tales_28m_q4_k_m_perplexity, 180) {
    check_perplexity(test_vectors(tales_28m), test_vectors("models/tales-28m"), 12, 31.2377);
}

/* In three files, opened at the second. */
TEST_LIMIT(gguf_tales_8m_q8_0_split_perplexity, 180) {
    check_perplexity(test_vectors("vectors/gguf/tales/split/tales-8m-Q8_0-00002-of-00003.gguf"),
                     test_model("tales-8m"), 24, 26.5726);
}

/* ---- forms of one model */

static float *logits_of(const char *path, smoe_precision precision, size_t *n) {
    static const int32_t ids[] = {3, 17, 60, 4, 4, 31, 9, 25, 50, 1, 12, 40};
    smoe_model_options options = {.n_thread = 2, .precision = precision};
    test_apply_permutation(&options);
    if (test_ring_floor()) {
        options.ring_bytes = ring_floor(path);
    }
    opened o = open_with(path, &options);
    *n = sizeof ids / sizeof *ids * (size_t)smoe_model_info(o.model)->vocab_size;
    float *out = all_logits(&o, ids, sizeof ids / sizeof *ids);
    close_opened(&o);
    return out;
}

static void check_same_logits(const char *a, const char *b) {
    for (int p = 0; p < 2; p++) {
        size_t n, m;
        smoe_precision precision = p ? SMOE_PRECISION_REFERENCE : SMOE_PRECISION_DEFAULT;
        float *x = logits_of(a, precision, &n), *y = logits_of(b, precision, &m);
        CHECK_INT(n, m);
        CHECK(memcmp(x, y, n * sizeof *x) == 0);
        CHECK(isfinite(x[0]) && x[0] != x[1]);
        free(x);
        free(y);
    }
}

/* Rows of q and k permuted for neighbouring pairs, shared experts, leading dense layers: a GGUF
 * file computes what the checkpoint folder does. */
TEST(gguf_deepseek_computes_what_its_folder_does) {
    tiny_gguf shape = {.n_dense = 1, .n_shared = 2};
    size_t n, m;
    const char *folder = tiny_gguf_make_folder("folder", &shape);
    const char *file = tiny_gguf_make("m.gguf", &shape);
    float *x = logits_of(folder, SMOE_PRECISION_REFERENCE, &n);
    float *y = logits_of(file, SMOE_PRECISION_REFERENCE, &m);
    CHECK_INT(n, m);
    for (size_t i = 0; i < n; i++) {
        CHECK_NEAR(y[i], x[i], 1e-5);
    }
    free(x);
    free(y);
}

static const char *vault_of(const char *path, const char *name, const char *quant);

/* What llama3's scaling makes of the frequencies 1, 0.1, 0.01 and 0.001, as converters store it. */
TEST(gguf_rope_divisors_are_llama3_scaling) {
    double wavelength = 2 * M_PI / 0.1, smooth = (64 / wavelength - 1) / (4 - 1);
    float divisors[] = {1, (float)(1 / ((1 - smooth) / 8 + smooth)), 8, 8};
    tiny_gguf shape = {.divisors = divisors,
                       .rope = "{\"rope_type\": \"llama3\", \"factor\": 8, "
                               "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                               "\"original_max_position_embeddings\": 64}"};
    size_t n, m;
    const char *file = tiny_gguf_make("m.gguf", &shape);
    float *x = logits_of(tiny_gguf_make_folder("folder", &shape), SMOE_PRECISION_REFERENCE, &n);
    float *y = logits_of(file, SMOE_PRECISION_REFERENCE, &m);
    shape.divisors = NULL;
    float *plain = logits_of(tiny_gguf_make("p.gguf", &shape), SMOE_PRECISION_REFERENCE, &m);
    double far = 0;
    CHECK_INT(n, m);
    for (size_t i = 0; i < n; i++) {
        CHECK_NEAR(y[i], x[i], 1e-5);
        far = fmax(far, fabs((double)plain[i] - (double)x[i]));
    }
    CHECK(far > 1e-3);
    free(x);
    free(y);
    free(plain);
    check_same_logits(file, vault_of(file, "m.smoe", NULL));
    /* values that no frequency can be divided by */
    divisors[2] = 0;
    shape.divisors = divisors;
    smoe_model *model;
    CHECK_ERR(smoe_model_open(&model, tiny_gguf_make("bad.gguf", &shape), NULL, &err),
              SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "tensor rope_freqs.weight holds 0");
}

TEST(gguf_expert_forms_are_one_model) {
    tiny_gguf shape = {.n_shared = 1, .alignment = 8};
    const char *stacked = tiny_gguf_make("stacked.gguf", &shape);
    shape.form = TINY_FUSED;
    check_same_logits(stacked, tiny_gguf_make("fused.gguf", &shape));
    shape.form = TINY_SINGLE;
    shape.fused_qkv = true;
    check_same_logits(stacked, tiny_gguf_make("single.gguf", &shape));
}

/* As NVFP4 files have them; for each expert and each resident matrix. */
TEST(gguf_factors_multiply_products) {
    char plain[1200], scaled[1200];
    tiny_gguf shape = {.n_shared = 1, .n_dense = 1};
    snprintf(plain, sizeof plain, "%s", tiny_gguf_make("plain.gguf", &shape));
    shape.factors = true;
    snprintf(scaled, sizeof scaled, "%s", tiny_gguf_make("scaled.gguf", &shape));
    source *s;
    CHECK_OK(source_open(&s, scaled, &err));
    CHECK(s->spec.scaled_head && s->spec.layer[0].attn.scaled == 15);
    CHECK_INT(s->spec.layer[0].ffn.scaled, 7);
    CHECK_INT(s->spec.layer[1].ffn.scaled, 63);
    source_close(s);
    check_same_logits(plain, scaled);
    check_same_logits(scaled, vault_of(scaled, "m.smoe", NULL));
}

static int32_t extents_of(const char *path) {
    source *s;
    CHECK_OK(source_open(&s, path, &err));
    int32_t n = source_expert(s, 0, 1)->n_ext;
    CHECK_INT(expert_bytes(source_expert(s, 0, 1)), 3 * 32 * 32 * 4);
    source_close(s);
    return n;
}

TEST(gguf_slices_that_touch_are_read_at_once) {
    tiny_gguf shape = {0};
    CHECK_INT(extents_of(tiny_gguf_make("stacked.gguf", &shape)), 3);
    shape.form = TINY_FUSED;
    CHECK_INT(extents_of(tiny_gguf_make("fused.gguf", &shape)), 2);
    shape.form = TINY_SINGLE;
    CHECK_INT(extents_of(tiny_gguf_make("single.gguf", &shape)), 1);
    shape.alignment = 8192; /* holes between */
    CHECK_INT(extents_of(tiny_gguf_make("wide.gguf", &shape)), 3);
}

/* Slices with less than a page between are one read, in which no page comes twice; what is computed
 * stays the same with direct reads and without, and in a vault of the same weights. */
TEST(gguf_slices_that_share_a_page_are_read_once) {
    tiny_gguf shape = {.expert = {{DT_Q8_0, DT_Q8_0, DT_Q8_0}, {DT_Q4_0, DT_Q8_0, DT_F16}},
                       .width = 160,
                       .form = TINY_SINGLE,
                       .alignment = 2048};
    const char *path = tiny_gguf_make("m.gguf", &shape);
    source *s;
    CHECK_OK(source_open(&s, path, &err));
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        CHECK_INT(source_expert(s, m, 1)->n_ext, 1);
    }
    streamer *st;
    streamer_stats stats;
    streamer_config config = {.source = s, .ring_bytes = streamer_ring_full(s)};
    CHECK_OK(streamer_open(&st, &config, &err));
    CHECK_OK(streamer_preload(st, &err));
    streamer_get_stats(st, &stats);
    CHECK_INT(stats.n_read, s->n_moe_layer * s->n_expert_row);
    /* the file may end within the last page */
    CHECK(stats.drive_bytes <= streamer_ring_full(s));
    streamer_close(st);
    source_close(s);
    check_same_logits(path, vault_of(path, "m.smoe", NULL));
}

/* Marks the first bytes of an expert's slice of a stacked tensor of the file at path. */
static void mark_slice(const char *path, const tensor *t, int32_t expert, uint64_t mark) {
    int fd = open(path, O_RDWR);
    uint64_t slice_bytes = t->bytes / (uint64_t)t->shape[0];
    off_t at = (off_t)(t->offset + (uint64_t)expert * slice_bytes);
    CHECK(fd >= 0 && pwrite(fd, &mark, sizeof mark, at) == sizeof mark && close(fd) == 0);
}

static void mark_expert(const char *path, int32_t expert) {
    static const char *const names[] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                                        "blk.0.ffn_down_exps.weight"};
    gguf_header h;
    tensor_table table = {0};
    arena names_arena = {0};
    file_set files = {0};
    CHECK_OK(gguf_open(&h, &table, &names_arena, &files, path, &err));
    for (uint64_t p = 0; p < PART_COUNT; p++) {
        const tensor *t = tensor_table_find(&table, names[p]);
        CHECK(t && t->bytes > UINT32_MAX && t->offset + t->bytes > (p + 1) << 32);
        mark_slice(path, t, expert, 0xab5eed0000000000u + p);
    }
    gguf_header_free(&h);
    tensor_table_free(&table);
    arena_free(&names_arena);
    file_set_close(&files);
}

/* Tensors of more than 4 GiB each: their last expert is found, read and weighed. */
TEST(gguf_of_more_than_4_gib) {
    enum { EXPERTS = 520, EXPERT_BYTES = 3 * 2048 * 1024 * 4 };
    tiny_gguf shape = {
        .d_model = 1024, .width = 2048, .n_layer = 1, .n_expert = EXPERTS, .sparse = true};
    const char *path = tiny_gguf_make("m.gguf", &shape);
    source *s;
    streamer *st;
    streamer_item item;
    int32_t n, last = EXPERTS - 1;
    mark_expert(path, last);
    CHECK_OK(source_open(&s, path, &err));
    CHECK(source_experts_bytes(s) == (uint64_t)EXPERTS * EXPERT_BYTES);
    CHECK(source_token_cycle_bytes(s) == 2ull * EXPERT_BYTES);
    streamer_config config = {.source = s, .ring_bytes = streamer_ring_floor(s)};
    CHECK_OK(streamer_open(&st, &config, &err));
    streamer_demand(st, 0, &last, 1);
    CHECK_OK(streamer_next(st, &item, 1, &n, &err));
    CHECK_INT(n, 1);
    for (uint64_t p = 0; p < PART_COUNT; p++) {
        uint64_t mark = 0;
        memcpy(&mark, item.part[p], sizeof mark);
        CHECK(mark == 0xab5eed0000000000u + p);
    }
    streamer_release(st, &item);
    streamer_close(st);
    source_close(s);
}

TEST(gguf_tensors_that_nothing_asks_for_are_refused) {
    source *s;
    tiny_gguf shape = {.bad_tensor = "blk.0.ffn_norm.weight"};
    CHECK_ERR(source_open(&s, tiny_gguf_make("m.gguf", &shape), &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "tensor blk.0.ffn_norm.weight is missing");
    /* the head, without which it is tied to the embedding */
    shape.bad_tensor = "output.weight";
    CHECK_ERR(source_open(&s, tiny_gguf_make("n.gguf", &shape), &err), SMOE_ERR_UNSUPPORTED);
    CHECK_HAS(err.text, "tensor blk.0.nosuch.weight is not one that a deepseek model has here");
}

/* ---- vaults of GGUF files */

/* Types that differ between layers and between the parts of an expert. */
static const tiny_gguf mixed = {.dense = DT_Q8_0,
                                .expert = {{DT_Q4_K, DT_Q4_K, DT_Q6_K}, {DT_Q8_0, DT_Q4_0, DT_F16}},
                                .d_model = 256,
                                .width = 256,
                                .n_shared = 1,
                                .n_dense = 1};

static const char *vault_of(const char *path, const char *name, const char *quant) {
    const char *vault = test_path(name);
    smoe_sculpt_options o = {.expert_type = quant, .n_thread = 2};
    CHECK_OK(smoe_sculpt(path, vault, &o, &err));
    CHECK_OK(smoe_verify(vault, NULL, NULL, &err));
    return vault;
}

TEST(gguf_and_its_vault_give_the_same_bits) {
    const char *path = tiny_gguf_make("m.gguf", &mixed);
    source *s, *v;
    const char *vault = vault_of(path, "m.smoe", NULL);
    check_same_logits(path, vault);
    CHECK_OK(source_open(&s, path, &err));
    CHECK_OK(source_open(&v, vault, &err));
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        const expert_ref *a = source_expert(s, m, 2), *b = source_expert(v, m, 2);
        CHECK_INT(b->n_ext, 1);
        for (int p = 0; p < PART_COUNT; p++) {
            CHECK_INT(a->part[p].type, b->part[p].type);
            CHECK_INT(a->part[p].bytes, b->part[p].bytes);
        }
    }
    CHECK_INT(v->layer[1][ROLE_ATTN_Q].type, DT_Q8_0);
    source_close(s);
    source_close(v);
}

TEST(gguf_is_requantised_on_request) {
    smoe_info info;
    const char *path = tiny_gguf_make("m.gguf", &mixed);
    const char *vault = vault_of(path, "q8.smoe", "q8");
    size_t n, m;
    CHECK_OK(smoe_describe(vault, &info, &err));
    CHECK_TEXT(info.expert_type, "q8");
    CHECK_TEXT(info.container, "vault");
    float *x = logits_of(path, SMOE_PRECISION_REFERENCE, &n);
    float *y = logits_of(vault, SMOE_PRECISION_REFERENCE, &m);
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        off += (double)((x[i] - y[i]) * (x[i] - y[i]));
        size += (double)(x[i] * x[i]);
    }
    CHECK(off > 0 && off < 1e-3 * size);
    free(x);
    free(y);
}

/* Ids of a text with control tokens in it. */
static int32_t *ids_with(const char *path, const char *text, size_t *n) {
    smoe_tokenizer *t = NULL;
    int32_t *ids = NULL;
    CHECK_OK(smoe_tokenizer_open(&t, path, &err));
    CHECK_OK(smoe_tokenize(t, text, strlen(text), true, &ids, n, &err));
    smoe_tokenizer_close(t);
    return ids;
}

TEST(gguf_tokenizer_survives_in_a_vault) {
    source *s, *v;
    const char *path = test_data("bad/ok.gguf");
    CHECK_OK(source_open(&s, path, &err));
    const char *vault = vault_of(path, "m.smoe", NULL);
    CHECK_OK(source_open(&v, vault, &err));
    const text_tables *a = s->text.tables;
    CHECK(a && !v->text.tables && v->text.prepared.data && !v->text.gguf.data);
    CHECK_TEXT(a->model, "gpt2");
    CHECK_TEXT(a->pre, "qwen2");
    CHECK_INT(a->n_token, 272);
    CHECK(a->merge[0].bytes == 4 && memcmp(a->merge[0].data, "\xc4\xa0 t", 4) == 0);
    CHECK(!a->score);
    CHECK_INT(a->id[TEXT_BOS], 269);
    CHECK_INT(a->id[TEXT_EOS], 271);
    CHECK_INT(a->id[TEXT_UNK], -1);
    CHECK_INT(a->add_bos, TEXT_FLAG_NO);
    CHECK_INT(a->add_space_prefix, TEXT_FLAG_OPEN);
    CHECK_INT(s->spec.begin_id, 269);
    CHECK(s->spec.n_end_id >= 1 && s->spec.end_id[0] == 271);
    CHECK_INT(v->spec.n_end_id, s->spec.n_end_id);
    char text[512] = "Once upon a time, the\xc3\xa9 e\xcc\x81 12 ";
    memcpy(text + strlen(text), a->token[271].data, a->token[271].bytes);
    size_t n, m;
    int32_t *x = ids_with(path, text, &n);
    int32_t *y = ids_with(vault, text, &m);
    CHECK_INT(n, m);
    CHECK(memcmp(x, y, n * sizeof *x) == 0);
    CHECK_INT(x[n - 1], 271);
    smoe_free(x);
    smoe_free(y);
    source_close(s);
    source_close(v);
}

TEST(gguf_fixtures_and_their_vaults_give_the_same_bits) {
    static const char *const names[] = {"bad/ok.gguf", "gguf/qwen2_moe.gguf", "gguf/mixtral.gguf",
                                        "gguf/olmoe.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1200], name[32];
        snprintf(path, sizeof path, "%s", test_data(names[i]));
        snprintf(name, sizeof name, "%zu.smoe", i);
        check_same_logits(path, vault_of(path, name, NULL));
    }
}

TEST(gguf_qwen3_moe_and_its_vault_give_the_same_bits) {
    const char *path = test_vectors("vectors/gguf/qwen3_moe.gguf");
    check_same_logits(path, vault_of(path, "m.smoe", NULL));
}

TEST(gguf_tales_and_their_vaults_give_the_same_bits) {
    static const char *const names[] = {
        tales_8m, tales_28m, "vectors/gguf/tales/split/tales-8m-Q8_0-00003-of-00003.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1200], name[32];
        snprintf(path, sizeof path, "%s", test_vectors(names[i]));
        snprintf(name, sizeof name, "%zu.smoe", i);
        check_same_logits(path, vault_of(path, name, NULL));
    }
}

/* ---- what a file holds, for people */

TEST(gguf_content_is_described) {
    char *text = NULL;
    CHECK_OK(smoe_describe_container(test_data("gguf/qwen2_moe.gguf"), &text, &err));
    CHECK_HAS(text, "GGUF version 3, 1 file, alignment 32, 54 tensors of ");
    CHECK_HAS(text, "qwen2moe.expert_shared_feed_forward_length");
    CHECK_HAS(text, "tokenizer.ggml.tokens                       text[160]     \"<pad>\", \"<s>\"");
    CHECK_HAS(text, "\nblk.*.attn_q.bias                       x3     f32      [64] ");
    CHECK_HAS(text, "\nblk.*.ffn_down_exps.weight              x3     bf16     [12, 64, 32] ");
    smoe_free(text);
    /* an architecture that cannot be run, and names that must not reach a terminal or a format */
    CHECK_OK(smoe_describe_container(test_data("bad/gguf/arch_format.gguf"), &text, &err));
    CHECK_HAS(text, "\"%s%n%x%s%s%s\"");
    smoe_free(text);
    static const char hostile[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k"
                                  "\10\0\0\0\6\0\0\0\0\0\0\0\033[1\xff\n\"";
    test_write_file(test_path("hostile"), hostile, sizeof hostile - 1);
    CHECK_OK(smoe_describe_container(test_path("hostile"), &text, &err));
    CHECK_HAS(text, "\"\\x1b[1\\xff\\n\\\"\"\n");
    smoe_free(text);
    CHECK_OK(smoe_describe_container(test_data("fixtures/mixtral"), &text, &err));
    CHECK(text == NULL);
    CHECK(smoe_describe_container(test_data("bad/gguf/trunc_key.gguf"), &text, &err) != SMOE_OK);
}

TEST(gguf_inspect_groups_the_old_form) {
    char *text = NULL;
    tiny_gguf shape = {.form = TINY_SINGLE};
    CHECK_OK(smoe_describe_container(tiny_gguf_make("m.gguf", &shape), &text, &err));
    CHECK_HAS(text, "\nblk.*.ffn_gate.*.weight                 x12    f32      [32, 32] ");
    smoe_free(text);
}

TEST(inspect_prints_a_gguf_file) {
    test_run r = test_smoe("inspect", test_data("bad/ok.gguf"), NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "qwen3_moe (gguf)");
    CHECK_HAS(r.out, "general.architecture");
    CHECK_HAS(r.out, "blk.*.ffn_gate_exps.weight");
    r = test_smoe("inspect", test_data("bad/gguf/arch_format.gguf"), NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.out, "blk.*.ffn_gate_exps.weight");
    CHECK_HAS(r.err, "is not supported (known: qwen3moe, llama");
}

/* ---- values */

static const gguf_value *value_of(const gguf_header *h, const char *key, uint64_t n) {
    const gguf_value *v = gguf_find(h, key);
    CHECK(v != NULL);
    CHECK_INT(v->n, n);
    return v;
}

TEST(gguf_getters_hold_to_types_and_ranges) {
    gguf_header h;
    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    int64_t i = 7;
    double d = 7;
    bool b = true;
    const char *text = NULL;
    size_t bytes = 0;
    const gguf_value *array;
    CHECK_OK(gguf_open(&h, &table, &names, &files, test_data("bad/ok.gguf"), &err));
    CHECK_INT(h.version, 3);
    CHECK_INT(table.n_item, 26);
    CHECK_OK(gguf_need_int(&h, "f", "qwen3moe.block_count", 1, 9, &i, &err));
    CHECK_INT(i, 2);
    CHECK_ERR(gguf_need_int(&h, "f", "qwen3moe.block_count", 3, 9, &i, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "f: qwen3moe.block_count is 2, out of range (3 to 9)");
    CHECK_ERR(gguf_need_int(&h, "f", "nosuch", 1, 9, &i, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "f: key nosuch is missing");
    CHECK_OK(gguf_opt_int(&h, "f", "nosuch", 1, 9, &i, &err));
    CHECK_INT(i, 2);
    CHECK_OK(gguf_opt_number(&h, "f", "qwen3moe.rope.freq_base", &d, &err));
    CHECK_NEAR(d, 10000, 0);
    CHECK_ERR(gguf_opt_number(&h, "f", "general.name", &d, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "f: general.name must be a float, not text");
    CHECK_OK(gguf_opt_bool(&h, "f", "tokenizer.ggml.add_bos_token", &b, &err));
    CHECK(!b);
    CHECK_OK(gguf_need_text(&h, "f", "general.name", &text, &bytes, &err));
    CHECK(bytes == 4 && memcmp(text, "tiny", 4) == 0);
    CHECK_ERR(gguf_opt_array(&h, "f", "tokenizer.ggml.tokens", GGUF_I32, &array, &err),
              SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "f: tokenizer.ggml.tokens must be an array of i32, not an array of text");
    CHECK(gguf_int_at(value_of(&h, "tokenizer.ggml.token_type", 272), 271, &i) && i == 3);
    CHECK(!gguf_int_at(value_of(&h, "general.name", 1), 0, &i));
    gguf_header_free(&h);
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
}

TEST(gguf_open_survives_refused_memory) {
    if (!alloc_guard_active()) {
        SKIP("no allocation guard in this build");
    }
    const char *path = test_data("bad/ok.gguf");
    source *s = NULL;
    bool refused = true;
    for (uint64_t n = 1; refused; n++) {
        alloc_guard_fail_at(n);
        int rc = source_open(&s, path, &err);
        refused = alloc_guard_has_failed();
        alloc_guard_fail_at(0);
        CHECK(rc == SMOE_OK || (refused && rc == SMOE_ERR_MEMORY && s == NULL));
        source_close(s);
        s = NULL;
    }
}
