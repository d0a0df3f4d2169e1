/* Every malformed safetensors file, index and config ends by its verdict; what the messages say. */
#include <stdio.h>
#include <sys/stat.h>

#include "bad_cases.h"
#include "model/source.h"

static void run_cases(const char *prefix) {
    bad_case *c;
    size_t n = bad_cases(&c, prefix);
    for (size_t i = 0; i < n; i++) {
        smoe_error err = {0};
        source *s = NULL;
        char *dir = bad_case_folder(&c[i]);
        int rc = source_open(&s, dir, &err);
        if (getenv("SMOE_TEST_VERBOSE")) {
            printf("%s: %s\n", c[i].file, rc ? err.text : "opens");
        }
        bad_case_check(&c[i], rc, &err);
        CHECK((s == NULL) == (rc != SMOE_OK));
        source_close(s);
        free(dir);
    }
    free(c);
}

/* Limits: each case is to end well under a second; these are for a whole group. */
TEST_LIMIT(bad_safetensors_end_by_verdict, 10) {
    run_cases("safetensors/");
}

TEST_LIMIT(bad_indexes_end_by_verdict, 10) {
    run_cases("index/");
}

TEST_LIMIT(bad_configs_end_by_verdict, 10) {
    run_cases("config/");
}

TEST(ok_model_opens) {
    run_cases("ok-model/config");
}

static const char *message_of(const char *file) {
    static smoe_error err;
    bad_case c = {.verdict = BAD_REFUSE};
    source *s;
    snprintf(c.file, sizeof c.file, "%s", file);
    char *dir = bad_case_folder(&c);
    CHECK(source_open(&s, dir, &err) != SMOE_OK);
    free(dir);
    return err.text;
}

TEST(bad_file_messages_say_what_is_wrong) {
    CHECK_HAS(message_of("safetensors/hlen_max.safetensors"), "runs past the end of the file");
    CHECK_HAS(message_of("safetensors/dup_name.safetensors"), "duplicate name model.norm.weight");
    CHECK_HAS(message_of("safetensors/json_array.safetensors"), "must be an object");
    CHECK_HAS(message_of("safetensors/off_range.safetensors"),
              "tensor model.norm.weight: lies past the end of the file");
    CHECK_HAS(message_of("safetensors/shape_wrap.safetensors"), "element count overflows");
    CHECK_HAS(message_of("safetensors/dtype_unknown.safetensors"), "dtype Q7 unknown");
    CHECK_HAS(message_of("safetensors/off_one.safetensors"), "must be two integers");
    CHECK_HAS(message_of("safetensors/shape_swapped.safetensors"),
              "tensor model.layers.0.self_attn.k_proj.weight has shape [16, 8], expected [8, 16]");
    CHECK_HAS(message_of("safetensors/json_nul.safetensors"), "NUL");
    CHECK_HAS(message_of("safetensors/missing_expert.safetensors"), "up_proj.weight is missing");
    CHECK_HAS(message_of("index/missing_shard/model.safetensors.index.json"),
              "model-00002-of-00002.safetensors");
    CHECK_HAS(message_of("index/absolute/model.safetensors.index.json"), "plain file names");
    CHECK_HAS(message_of("index/empty_map/model.safetensors.index.json"),
              "tensor model.embed_tokens.weight is missing");
    CHECK_HAS(message_of("config/type_unknown.json"),
              "model type nosuch is not supported (known families: qwen3_moe, mixtral, "
              "qwen2_moe, olmoe, deepseek)");
    CHECK_HAS(message_of("config/zero_hidden_size.json"),
              "hidden_size is 0 but must be at least 1");
    CHECK_HAS(message_of("config/topk_gt.json"), "num_experts_per_tok 5 exceeds num_experts 4");
    CHECK_HAS(message_of("config/layers_more.json"), "model.layers.2.");
    CHECK_HAS(message_of("config/experts_more.json"), "experts.4.");
    CHECK_HAS(message_of("config/untied.json"), "tensor lm_head.weight is missing");
    CHECK_HAS(message_of("config/quant_unknown.json"), "quantization method nosuch");
    CHECK_HAS(message_of("config/rope_yarn_missing.json"), "rope_scaling.factor is missing");
    CHECK_HAS(message_of("config/big_hidden.json"), "hidden_size");
}

/* Opens the valid model after its weights were replaced by something that is no regular file. */
TEST(weights_must_be_regular_files) {
    smoe_error err;
    source *s;
    bad_case c = {"ok-model/config.json", BAD_ACCEPT};
    char path[1024];
    char *dir = bad_case_folder(&c);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    CHECK(remove(path) == 0 && mkdir(path, 0700) == 0);
    CHECK_ERR(source_open(&s, dir, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "is not a file");
    CHECK(remove(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK_ERR(source_open(&s, dir, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "is not a file");
    CHECK(remove(path) == 0);
    CHECK_ERR(source_open(&s, dir, &err), SMOE_ERR_IO);
    CHECK_HAS(err.text, "has no weights");
    free(dir);
}

TEST(paths_that_are_no_model_say_so) {
    smoe_error err;
    source *s;
    CHECK_ERR(source_open(&s, test_path("nothing"), &err), SMOE_ERR_IO);
    CHECK_HAS(err.text, "nothing: No such file");
    CHECK_ERR(source_open(&s, test_dir(), &err), SMOE_ERR_IO);
    CHECK_HAS(err.text, "no config.json");
    test_write_file(test_path("m.gguf"), "GGUF\3\0\0\0", 8);
    CHECK_ERR(source_open(&s, test_path("m.gguf"), &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "m.gguf: the header");
    CHECK_HAS(err.text, "runs past the end of the file (8 bytes)");
    CHECK_ERR(source_open(&s, "", &err), SMOE_ERR_IO);
}
