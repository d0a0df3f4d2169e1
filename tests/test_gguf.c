/* GGUF files: the reader, split models, every malformed file by its verdict, models against their
 * makers' logits, and vaults made from them. */
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "bad_cases.h"
#include "formats/gguf.h"
#include "model/source.h"
#include "model_util.h"

/* ---- malformed files */

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
        bad_case_check(&c[i], rc, &err);
        CHECK((s == NULL) == (rc != SMOE_OK));
        source_close(s);
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
    snprintf(file, sizeof file, "vectors/gguf/%s.gguf", name);
    snprintf(expected, sizeof expected, "fixtures/%s/expected.safetensors", name);
    check_logits(test_vectors(file), test_data(expected), "input_ids", "logits", 1e-4);
}

TEST(gguf_fixture_qwen3_moe) {
    check_fixture("qwen3_moe");
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

/* ---- models as published: quantised, in one file or several */

/* Greedy ids of exact arithmetic on the file's weights, from the truth files' README; limit says how
 * many are compared: behind it the best logit leads by less than rounding may change. */
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

/* Perplexity over positions 1 to 511 of the first windows of valid.txt. */
static void check_perplexity(const char *path, const char *tokenizer_of, size_t n_window,
                             smoe_precision precision, double want, double limit) {
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
    double off = fabs(exp(sum) / want - 1);
    printf("%s: perplexity %.4f, expected %.4f, off by %.3f %%\n", path, exp(sum), want, 100 * off);
    if (!(off <= limit)) {
        FAIL("%s: perplexity %.4f, expected %.4f", path, exp(sum), want);
    }
    smoe_free(ids);
    free(text);
    smoe_tokenizer_close(tokenizer);
    close_opened(&o);
}

TEST(gguf_tales_8m_perplexity_default) {
    check_perplexity(test_vectors(tales_8m), test_model("tales-8m"), 24, SMOE_PRECISION_DEFAULT,
                     27.1119, 0.01);
}

TEST(gguf_tales_8m_perplexity_reference) {
    check_perplexity(test_vectors(tales_8m), test_model("tales-8m"), 24, SMOE_PRECISION_REFERENCE,
                     27.1119, 0.001);
}

TEST(gguf_tales_28m_perplexity_default) {
    check_perplexity(test_vectors(tales_28m), test_vectors("models/tales-28m"), 12,
                     SMOE_PRECISION_DEFAULT, 31.2377, 0.01);
}

TEST(gguf_tales_28m_perplexity_reference) {
    check_perplexity(test_vectors(tales_28m), test_vectors("models/tales-28m"), 12,
                     SMOE_PRECISION_REFERENCE, 31.2377, 0.001);
}
