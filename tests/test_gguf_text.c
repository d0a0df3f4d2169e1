/* The text side of GGUF files: pre-tokenizers by name, and tokenizers without a model that runs. */
#include <stdio.h>

#include "test.h"
#include "text/gguf_pre.h"
#include "text/pretok.h"

static smoe_error err;

/* ---- pre-tokenizers */

static int add_piece(void *user, const char *text, size_t bytes, smoe_error *e) {
    byte_buf *out = user;
    int rc = out->bytes > 0 ? buf_append(out, "|", 1, e) : SMOE_OK;
    return rc ? rc : buf_append(out, text, bytes, e);
}

/* The pieces of a text with bars between. */
static void check_cut(const char *name, const char *text, const char *want) {
    pretok p = {0};
    pretok_run run = {0};
    byte_buf out = {.max_bytes = 1000};
    const gguf_pre *pre = gguf_pre_by_name(name);
    CHECK(pre);
    for (const char *const *at = pre->patterns; *at; at++) {
        pretok_step *step = &p.steps[p.n_step++];
        *step = (pretok_step){.kind = PRETOK_PATTERN, .behavior = PRETOK_ISOLATED};
        CHECK_OK(pattern_compile(&step->pattern, *at, strlen(*at), name, &err));
    }
    CHECK_OK(pretok_run_init(&run, &p, add_piece, &out, &err));
    CHECK_OK(pretok_run_text(&run, text, strlen(text), true, &err));
    CHECK_OK(buf_append(&out, "", 1, &err));
    if (strcmp((char *)out.data, want) != 0) {
        FAIL("%s: %s, expected %s", name, (char *)out.data, want);
    }
    free(out.data);
    pretok_run_free(&run);
    pretok_free(&p);
}

/* Cuts worked out from the published patterns. */
TEST(gguf_pre_tokenizers_cut_as_published) {
    static const struct {
        const char *names[6];
        const char *want;
    } rows[] = {
        {{"llama-bpe", "llama3", "dbrx", "glm4", "minicpm5", "jais-2"},
         "I|'ll| pay| |123|45| euros|\n\n| | now"},
        {{"qwen2", "megrez", "hunyuan", "seed-coder", "bailingmoe", "laguna"},
         "I|'ll| pay| |1|2|3|4|5| euros|\n\n| | now"},
        {{"qwen35", "tekken"}, "I|'ll| pay| |1|2|3|4|5| euros|\n\n| | now"},
        {{"gpt-4o", "llama4", "minimax-m2", "kimi-k2"}, "I'll| pay| |123|45| euros|\n\n| | now"},
        {{"deepseek-v3", "hy_v4"}, "I|'ll| pay| |123|45| euros|\n\n| | now"},
        {{"deepseek-llm"}, "I|'|ll| pay| |12345| euros|\n|\n| | now"},
        {{"deepseek-coder"}, "I|'|ll| pay| |1|2|3|4|5| euros|\n|\n| | now"},
        {{"afmoe"}, "I|'ll| pay| |12|345| euros|\n\n| | now"},
        {{"tiny_aya", "cohere2moe"}, "I'll| pay| |12|345| euros|\n\n| | now"},
        {{"youtu"}, "I'll| pay| |1|2|3|4|5| euros|\n\n| | now"},
        {{"gpt-2", "olmo", "trillion"}, "I|'ll| pay| 12345| euros|\n\n | now"},
        {{"starcoder", "smollm", "exaone"}, "I|'ll| pay| |1|2|3|4|5| euros|\n\n | now"},
        {{"falcon"}, "I|'|ll| pay| |123|45| euros|\n\n | now"},
        {{"default"}, "I|'|ll| pay| |123|45| euros|\n\n | now"},
        {{"bloom"}, "I'll| pay| 12345| euros|\n\n | now"},
        {{"viking"}, "I'll| pay| |1|2|3|4|5| euros|\n\n | now"},
        {{"superbpe"}, "I'll pay |12|345| euros\n\n  now"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < 6 && rows[i].names[k]; k++) {
            check_cut(rows[i].names[k], "I'll pay 12345 euros\n\n  now", rows[i].want);
        }
    }
    check_cut("youtu", "\xe4\xb8\xad\xef\xbc\x8c\xec\x95\x88",
              "\xe4\xb8\xad|\xef\xbc\x8c|\xec\x95\x88");
    check_cut("kimi-k2", "\xe4\xb8\xad\xe5\x9b\xbdok", "\xe4\xb8\xad\xe5\x9b\xbd|ok");
    check_cut("afmoe", "1234567 \xe4\xb8\xad", "1|234|567| |\xe4\xb8\xad");
}

TEST(gguf_pre_tokenizers_are_found_by_whole_names) {
    CHECK(gguf_pre_by_name(NULL) == gguf_pre_by_name("default"));
    CHECK(gguf_pre_by_name("") == gguf_pre_by_name("default"));
    CHECK(!gguf_pre_by_name("llama"));
    CHECK(!gguf_pre_by_name("llama3 llama-v3"));
    CHECK(!gguf_pre_by_name(" "));
    CHECK(gguf_pre_by_name("llama-bpe")->add_bos && gguf_pre_by_name("llama-bpe")->ignore_merges);
    CHECK(gguf_pre_by_name("qwen2")->is_nfc && !gguf_pre_by_name("qwen2")->add_bos);
}

/* ---- text without a model */

TEST(gguf_tokenizer_needs_no_known_architecture) {
    static const char *const files[] = {"bad/gguf/arch_format.gguf", "bad/ok.gguf"};
    char out[2][200];
    for (int i = 0; i < 2; i++) {
        test_run r = test_smoe("tokenize", test_data(files[i]), "-p", "Once upon a time", NULL);
        CHECK_INT(r.status, 0);
        snprintf(out[i], sizeof out[i], "%s", r.out);
    }
    CHECK_TEXT(out[0], out[1]);
    CHECK(strlen(out[0]) > 10);
}

/* ---- tokens before every text */

/* Writes ok.gguf with another value of add_bos_token. */
static const char *with_add_bos(const char *name, bool add_bos) {
    static const char key[] = "tokenizer.ggml.add_bos_token";
    size_t bytes;
    char *data = test_read_file(test_data("bad/ok.gguf"), &bytes);
    char *at = memmem(data, bytes, key, strlen(key));
    CHECK(at && at[strlen(key)] == 7 && at[strlen(key) + 4] == 0);
    at[strlen(key) + 4] = add_bos;
    test_write_file(test_path(name), data, bytes);
    free(data);
    return test_path(name);
}

TEST(gguf_run_begins_a_prompt_as_the_file_says) {
    char no[200], yes[200];
    snprintf(no, sizeof no, "%s", with_add_bos("no.gguf", false));
    snprintf(yes, sizeof yes, "%s", with_add_bos("yes.gguf", true));
    test_run r = test_smoe("run", no, "-p", "a", "-n", "1", "--json", NULL);
    CHECK_INT(r.status, 0);
    CHECK(!strstr(r.out, "\"prompt_ids\": [ 269"));
    CHECK_HAS(r.out, "\"prompt_ids\": [");
    r = test_smoe("run", yes, "-p", "a", "-n", "1", "--json", NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "\"prompt_ids\": [ 269,");
    /* ids that are given are the whole prompt, and tokenize shows what a text alone becomes */
    r = test_smoe("run", yes, "--ids", "5", "-n", "1", "--json", NULL);
    CHECK_HAS(r.out, "\"prompt_ids\": [ 5 ]");
    r = test_smoe("tokenize", yes, "-p", "a", NULL);
    CHECK(strncmp(r.out, "269", 3) != 0);
}

TEST(gguf_prompt_has_one_begin_token) {
    smoe_tokenizer *t;
    int32_t *ids;
    size_t n, m;
    CHECK_OK(smoe_tokenizer_open(&t, with_add_bos("yes.gguf", true), &err));
    char *bos;
    CHECK_OK(smoe_detokenize(t, (int32_t[]){269}, 1, true, &bos, &m, &err));
    CHECK_OK(smoe_tokenize_prompt(t, bos, m, true, &ids, &n, &err));
    CHECK(n == 1 && ids[0] == 269);
    smoe_free(ids);
    CHECK_OK(smoe_tokenize_prompt(t, bos, m, false, &ids, &n, &err));
    CHECK(n > 2 && ids[0] == 269 && ids[1] != 269);
    smoe_free(ids);
    CHECK_OK(smoe_tokenize_prompt(t, "", 0, false, &ids, &n, &err));
    CHECK(n == 1 && ids[0] == 269);
    smoe_free(ids);
    smoe_free(bos);
    smoe_tokenizer_close(t);
}
