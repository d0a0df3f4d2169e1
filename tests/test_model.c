/* From config.json to specs, from tensors to references, specs as JSON. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "model/bind.h"
#include "model/source.h"

#include "test.h"

/* ---- configs */

static const char qwen[] =
    "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":160,"
    "\"intermediate_size\":128,\"moe_intermediate_size\":32,\"num_experts\":16,"
    "\"num_experts_per_tok\":4,\"max_position_embeddings\":512}";
static const char mixtral[] =
    "{\"model_type\":\"mixtral\",\"hidden_size\":64,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"vocab_size\":160,\"intermediate_size\":96,"
    "\"num_local_experts\":8,\"num_experts_per_tok\":2}";

static struct json_object *parse(const char *text) {
    smoe_error err;
    struct json_object *root = NULL;
    CHECK_OK(json_parse(&root, text, strlen(text), "test", 0, &err));
    return root;
}

/* base with the members of change put over its own; a JSON null there removes nothing but sets
 * null, "-" removes. */
static struct json_object *changed(const char *base, const char *change) {
    struct json_object *root = parse(base), *with = parse(change);
    json_object_object_foreach(with, key, value) {
        if (json_object_is_type(value, json_type_string) &&
            strcmp(json_object_get_string(value), "-") == 0) {
            json_object_object_del(root, key);
        } else {
            json_object_object_add(root, key, json_object_get(value));
        }
    }
    json_object_put(with);
    return root;
}

static int try_spec(spec *s, const char *base, const char *change, smoe_error *err) {
    static arena a; /* lives as long as the test's process */
    const family *f;
    struct json_object *root = changed(base, change);
    int rc = config_to_spec(s, &f, root, "config.json", NULL, NULL, &a, err);
    json_object_put(root);
    return rc;
}

static spec spec_of(const char *base, const char *change) {
    smoe_error err;
    spec s;
    CHECK_OK(try_spec(&s, base, change, &err));
    return s;
}

static const char *refusal(const char *base, const char *change) {
    static smoe_error err;
    spec s;
    CHECK(try_spec(&s, base, change, &err) != SMOE_OK);
    return err.text;
}

TEST(qwen3_moe_defaults_are_those_of_transformers) {
    spec s = spec_of(qwen, "{\"num_key_value_heads\":\"-\",\"head_dim\":\"-\","
                           "\"max_position_embeddings\":\"-\"}");
    CHECK_TEXT(s.family, "qwen3_moe");
    CHECK_INT(s.context_tok, 32768);
    CHECK_INT(s.layer[0].attn.n_kv_head, 4);
    CHECK_INT(s.layer[0].attn.head_dim, 16);
    CHECK_NEAR(s.layer[0].attn.scale, 0.25, 0);
    CHECK_NEAR(s.norm_eps, 1e-6, 0);
    CHECK_NEAR(s.rope[0].theta, 1e4, 0);
    CHECK_INT(s.rope[0].dim, 16);
    CHECK_INT(s.rope[0].scaling, ROPE_PLAIN);
    CHECK(!s.router.normalise && !s.tied_head && s.layer[3].attn.qk_norm == QK_NORM_HEAD);
    CHECK(!s.layer[0].attn.qkv_bias && !s.layer[0].attn.o_bias && s.layer[0].attn.window_tok == 0);
    CHECK_INT(spec_moe_layers(&s), 4);
    CHECK_INT(s.begin_id, -1);
    CHECK_INT(s.n_end_id, 0);
    CHECK_INT(spec_kv_token_bytes(&s, 1, 2), 4 * 4 * 32 * 2);
    CHECK_INT(spec_kv_token_bytes(&s, 32, 34), 4 * 4 * 2 * 34); /* heads of 16: a block each */
}

TEST(mixtral_defaults_are_those_of_transformers) {
    spec s = spec_of(mixtral, "{\"num_key_value_heads\":null}");
    CHECK_INT(s.layer[0].attn.n_kv_head, 4);
    CHECK_NEAR(s.rope[0].theta, 1e6, 0);
    CHECK_NEAR(s.norm_eps, 1e-5, 0);
    CHECK_INT(s.context_tok, 131072);
    CHECK(s.router.normalise && s.router.score == ROUTER_SOFTMAX && !s.layer[0].attn.qk_norm);
    CHECK_INT(s.layer[2].ffn.moe_index, 2);
    CHECK_INT(s.layer[2].ffn.width, 96);
    s = spec_of(mixtral, "{\"num_key_value_heads\":2,\"sliding_window\":77,\"head_dim\":24}");
    CHECK_INT(s.layer[1].attn.window_tok, 77);
    CHECK_INT(s.layer[1].attn.v_head_dim, 24);
    /* the class's own default of 8 heads of keys does not divide 4 heads */
    CHECK_HAS(refusal(mixtral, "{}"), "not a multiple of num_key_value_heads 8");
}

TEST(dense_layers_stand_where_the_config_says) {
    spec s = spec_of(qwen, "{\"num_hidden_layers\":6,\"decoder_sparse_step\":2,"
                           "\"mlp_only_layers\":[3,3]}");
    static const int32_t moe_index[] = {-1, 0, -1, -1, -1, 1};
    for (int i = 0; i < 6; i++) {
        CHECK_INT(s.layer[i].ffn.moe_index, moe_index[i]);
        CHECK_INT(s.layer[i].ffn.kind, moe_index[i] < 0 ? FFN_DENSE : FFN_MOE);
        CHECK_INT(s.layer[i].ffn.width, moe_index[i] < 0 ? 128 : 32);
    }
    CHECK_INT(spec_moe_layer(&s, 1), 5);
    CHECK_INT(spec_moe_layer(&s, 2), -1);
    CHECK_HAS(refusal(qwen, "{\"mlp_only_layers\":[0],\"intermediate_size\":null}"),
              "intermediate_size is null");
    CHECK_HAS(refusal(qwen, "{\"mlp_only_layers\":[0,1,2,3]}"), "mixture-of-experts");
}

TEST(windows_need_use_sliding_window) {
    static const char types[] =
        "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
        "\"sliding_attention\"]";
    char change[512];
    spec s = spec_of(qwen, "{\"sliding_window\":9}");
    CHECK_INT(s.layer[3].attn.window_tok, 0);
    s = spec_of(qwen, "{\"sliding_window\":9,\"use_sliding_window\":true}");
    CHECK_INT(s.layer[0].attn.window_tok, 9);
    s = spec_of(qwen, "{\"sliding_window\":null,\"use_sliding_window\":true}");
    CHECK_INT(s.layer[0].attn.window_tok, 0);
    s = spec_of(qwen, "{\"use_sliding_window\":true,\"max_window_layers\":2}");
    CHECK_INT(s.layer[1].attn.window_tok, 0);
    CHECK_INT(s.layer[2].attn.window_tok, 4096);
    snprintf(change, sizeof change, "{\"use_sliding_window\":true,\"sliding_window\":9,%s}", types);
    s = spec_of(qwen, change);
    CHECK_INT(s.layer[2].attn.window_tok, 0);
    CHECK_INT(s.layer[3].attn.window_tok, 9);
    snprintf(change, sizeof change, "{\"num_hidden_layers\":5,%s}", types);
    CHECK_HAS(refusal(qwen, change), "each layer once");
}

TEST(old_and_new_spellings_give_one_spec) {
    smoe_error err;
    spec old = spec_of(qwen, "{\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\","
                             "\"factor\":2},\"torch_dtype\":\"bfloat16\"}");
    spec new_ =
        spec_of(qwen, "{\"rope_parameters\":{\"rope_theta\":500000,\"rope_type\":\"linear\","
                      "\"factor\":2.0},\"dtype\":\"bfloat16\",\"num_experts\":\"-\","
                      "\"num_local_experts\":16}");
    char nested[1024];
    snprintf(nested, sizeof nested,
             "{\"model_type\":\"seeing\",\"tie_word_embeddings\":false,"
             "\"text_config\":%s}",
             qwen);
    spec wrapped = spec_of(nested, "{}");
    spec plain = spec_of(qwen, "{}");
    struct json_object *a, *b, *c, *d;
    CHECK_OK(spec_to_json(&old, &a, &err));
    CHECK_OK(spec_to_json(&new_, &b, &err));
    CHECK_OK(spec_to_json(&wrapped, &c, &err));
    CHECK_OK(spec_to_json(&plain, &d, &err));
    CHECK_TEXT(json_object_to_json_string(a), json_object_to_json_string(b));
    CHECK_TEXT(json_object_to_json_string(c), json_object_to_json_string(d));
    CHECK_NEAR(old.rope[0].factor, 2, 0);
    CHECK_NEAR(old.rope[0].theta, 5e5, 0);
    json_object_put(a);
    json_object_put(b);
    json_object_put(c);
    json_object_put(d);
    spec by_name =
        spec_of(qwen, "{\"model_type\":null,\"architectures\":[\"Qwen3MoeForCausalLM\"]}");
    CHECK_TEXT(by_name.family, "qwen3_moe");
}

TEST(yarn_is_resolved_as_in_transformers) {
    spec s = spec_of(qwen, "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                           "\"original_max_position_embeddings\":32}}");
    const rope_spec *r = &s.rope[0];
    CHECK_INT(r->scaling, ROPE_YARN);
    CHECK_NEAR(r->attention_factor, 1.138629436111989, 1e-15);
    CHECK_NEAR(r->beta_fast, 32, 0);
    CHECK_NEAR(r->beta_slow, 1, 0);
    CHECK_INT(r->original_context_tok, 32);
    CHECK(r->truncate);
    s = spec_of(qwen, "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1.0,"
                      "\"mscale_all_dim\":0.5,\"beta_fast\":16,\"beta_slow\":2,"
                      "\"truncate\":false}}");
    CHECK_NEAR(s.rope[0].attention_factor, (0.1 * log(40) + 1) / (0.05 * log(40) + 1), 1e-15);
    CHECK_NEAR(s.rope[0].beta_fast, 16, 0);
    CHECK_INT(s.rope[0].original_context_tok, 512);
    CHECK(!s.rope[0].truncate);
    s = spec_of(qwen, "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
                      "\"attention_factor\":0.75}}");
    CHECK_NEAR(s.rope[0].attention_factor, 0.75, 0);
}

TEST(rope_kinds_are_read_or_refused) {
    spec s = spec_of(qwen, "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                           "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                           "\"original_max_position_embeddings\":128}}");
    CHECK_INT(s.rope[0].scaling, ROPE_LLAMA3);
    CHECK_INT(s.rope[0].original_context_tok, 128);
    CHECK_NEAR(s.rope[0].attention_factor, 1, 0);
    CHECK_HAS(refusal(qwen, "{\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}}"),
              "rope type dynamic is not supported");
    CHECK_HAS(refusal(qwen, "{\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}"),
              "rope type longrope is not supported");
    CHECK_HAS(refusal(qwen, "{\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1}}}"),
              "full_attention");
    CHECK_HAS(refusal(qwen, "{\"head_dim\":15}"), "rope.dim is odd");
    CHECK_HAS(refusal(qwen, "{\"hidden_act\":\"gelu\"}"), "activation other than silu");
}

TEST(end_ids_come_from_generation_config_first) {
    smoe_error err;
    spec s = spec_of(qwen, "{\"eos_token_id\":[5,6,5],\"bos_token_id\":3}");
    CHECK_INT(s.n_end_id, 2);
    CHECK_INT(s.end_id[1], 6);
    CHECK_INT(s.begin_id, 3);
    const family *f;
    arena a = {0};
    struct json_object *root = changed(qwen, "{\"eos_token_id\":5}");
    struct json_object *generation = parse("{\"eos_token_id\":[7,8]}");
    CHECK_OK(config_to_spec(&s, &f, root, "c", generation, "g", &a, &err));
    CHECK_INT(s.n_end_id, 2);
    CHECK_INT(s.end_id[0], 7);
    json_object_put(generation);
    generation = parse("{\"eos_token_id\":160}");
    CHECK_ERR(config_to_spec(&s, &f, root, "c", generation, "g", &a, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "g: eos_token_id is 160, out of range (-1 to 159)");
    json_object_put(generation);
    json_object_put(root);
    arena_free(&a);
}

/* ---- specs as JSON */

static double rand_number(void) {
    return (double)test_uniform(0.01f, 100.0f);
}

/* A valid spec that uses every field. */
static spec random_spec(arena *a) {
    smoe_error err;
    spec s;
    int32_t n_layer = 1 + (int32_t)(test_rand() % 5), n_moe = 0;
    CHECK_OK(spec_init(&s, n_layer, a, &err));
    snprintf(s.family, sizeof s.family, "family-%u", (unsigned)(test_rand() % 1000));
    s.d_model = 1 + (int32_t)(test_rand() % 1000);
    s.vocab_size = 100;
    s.context_tok = 1 + (int32_t)(test_rand() % 100000);
    s.norm = (norm_kind)(test_rand() % 3);
    s.norm_eps = rand_number();
    s.tied_head = test_rand() & 1;
    s.embed_scale = rand_number();
    s.residual_scale = rand_number();
    s.logit_scale = rand_number();
    s.logit_softcap = rand_number();
    s.begin_id = (int32_t)(test_rand() % 101) - 1;
    s.n_end_id = (int32_t)(test_rand() % (SPEC_END_IDS + 1));
    for (int i = 0; i < s.n_end_id; i++) {
        s.end_id[i] = (int32_t)(test_rand() % 100);
    }
    s.router = (router_spec){.score = (router_score)(test_rand() % 4),
                             .normalise = test_rand() & 1,
                             .scale = rand_number(),
                             .bias = test_rand() & 1,
                             .correction = test_rand() & 1,
                             .n_group = 4,
                             .n_group_used = 2};
    s.n_rope = SPEC_ROPES;
    for (int i = 0; i < SPEC_ROPES; i++) {
        s.rope[i] = (rope_spec){.scaling = (rope_scaling)(test_rand() % 5),
                                .interleaved = test_rand() & 1,
                                .dim = 4,
                                .theta = 1.5 + rand_number(),
                                .factor = rand_number(),
                                .attention_factor = rand_number(),
                                .beta_fast = rand_number(),
                                .beta_slow = rand_number(),
                                .truncate = test_rand() & 1,
                                .original_context_tok = 1 + (int32_t)(test_rand() % 99),
                                .low_freq_factor = 0.5,
                                .high_freq_factor = 1 + rand_number()};
    }
    for (int32_t i = 0; i < n_layer; i++) {
        bool moe = test_rand() & 1;
        s.layer[i].attn = (attn_spec){.kind = (attn_kind)(test_rand() % 5),
                                      .n_head = 6,
                                      .n_kv_head = 3,
                                      .head_dim = 8,
                                      .v_head_dim = 5,
                                      .window_tok = (int32_t)(test_rand() % 50),
                                      .rope = (int32_t)(test_rand() % SPEC_ROPES),
                                      .scale = rand_number(),
                                      .softcap = rand_number(),
                                      .qkv_bias = test_rand() & 1,
                                      .o_bias = test_rand() & 1,
                                      .qk_norm = (qk_norm_kind)(test_rand() % 3),
                                      .sinks = test_rand() & 1,
                                      .gated = test_rand() & 1};
        s.layer[i].ffn = (ffn_spec){.kind = moe ? FFN_MOE : FFN_DENSE,
                                    .width = 7,
                                    .moe_index = moe ? n_moe : -1,
                                    .n_expert = moe ? 8 : 0,
                                    .n_expert_used = moe ? 3 : 0,
                                    .shared_width = moe ? 9 : 0,
                                    .shared_gate = moe && test_rand() & 1,
                                    .bias = test_rand() & 1,
                                    .act = (act_kind)(test_rand() % 5),
                                    .clamp = rand_number()};
        n_moe += moe;
    }
    return s;
}

TEST(spec_json_is_inverse) {
    for (int round = 0; round < 50; round++) {
        smoe_error err;
        arena a = {0};
        struct json_object *json, *again;
        spec back, s = random_spec(&a);
        CHECK_OK(spec_to_json(&s, &json, &err));
        const char *text = json_object_to_json_string(json);
        struct json_object *parsed = parse(text);
        CHECK_OK(spec_from_json(&back, parsed, "vault", &a, &err));
        CHECK_OK(spec_to_json(&back, &again, &err));
        CHECK_TEXT(json_object_to_json_string(again), text);
        CHECK_TEXT(back.family, s.family);
        CHECK(back.norm_eps == s.norm_eps && back.rope[1].theta == s.rope[1].theta);
        for (int32_t i = 0; i < s.n_layer; i++) {
            CHECK(back.layer[i].attn.scale == s.layer[i].attn.scale);
            CHECK_INT(back.layer[i].ffn.act, s.layer[i].ffn.act);
            CHECK_INT(back.layer[i].ffn.n_expert_used, s.layer[i].ffn.n_expert_used);
        }
        json_object_put(again);
        json_object_put(parsed);
        json_object_put(json);
        arena_free(&a);
    }
}

/* A good spec's JSON text with the first occurrence of from replaced by to. */
static const char *spec_refusal(const char *from, const char *to) {
    static smoe_error err;
    arena a = {0};
    struct json_object *json;
    spec back, s = spec_of(qwen, "{}");
    CHECK_OK(spec_to_json(&s, &json, &err));
    const char *text = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
    const char *at = strstr(text, from);
    size_t room = strlen(text) + strlen(to) + 1;
    char *bad = malloc(room);
    CHECK(at && bad);
    snprintf(bad, room, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    json_object_put(json);
    json = parse(bad);
    err.text[0] = '\0';
    CHECK(spec_from_json(&back, json, "vault", &a, &err) != SMOE_OK);
    CHECK(err.text[0]);
    json_object_put(json);
    free(bad);
    arena_free(&a);
    return err.text;
}

TEST(spec_from_json_trusts_nothing) {
    CHECK_HAS(spec_refusal("\"n_layer\":4", "\"n_layer\":5"), "n_layer is 5, but layer has 4");
    CHECK_HAS(spec_refusal("\"d_model\":64", "\"d_model\":0"), "d_model is 0, out of range");
    CHECK_HAS(spec_refusal("\"d_model\":64,", ""), "d_model is missing");
    CHECK_HAS(spec_refusal("\"d_model\":64", "\"d_model\":64,\"extra\":1"),
              "extra is not known to this version");
    CHECK_HAS(spec_refusal("\"norm\":\"rms\"", "\"norm\":\"batch\""), "norm \"batch\"");
    CHECK_HAS(spec_refusal("\"n_kv_head\":2", "\"n_kv_head\":3"), "not a multiple of n_kv_head");
    CHECK_HAS(spec_refusal("\"moe_index\":0", "\"moe_index\":1"), "layer 0: moe_index is 1");
    CHECK_HAS(spec_refusal("\"n_expert_used\":4", "\"n_expert_used\":17"), "n_expert_used is 17");
    CHECK_HAS(spec_refusal("\"n_expert\":16", "\"n_expert\":99999999"), "n_expert is 99999999");
    CHECK_HAS(spec_refusal("\"rope\":0", "\"rope\":1"), "rope is 1");
    CHECK_HAS(spec_refusal("\"theta\":10000.0", "\"theta\":-1"), "rope.theta must be");
    CHECK_HAS(spec_refusal("\"theta\":10000.0", "\"theta\":1e999"), "theta");
    CHECK_HAS(spec_refusal("\"kind\":\"gqa\"", "\"kind\":7"), "layer.attn.kind must be a string");
    CHECK_HAS(spec_refusal("\"head_dim\":32", "\"head_dim\":16777216"), "n_head * head_dim");
    CHECK_HAS(spec_refusal("\"family\":\"qwen3_moe\"",
                           "\"family\":\"qwen3_moeqwen3_moeqwen3_moeqwen3_moe\""),
              "longer than 31 bytes");
    CHECK_HAS(spec_refusal("\"end_id\":[]", "\"end_id\":[160]"), "end_id is 160");
    CHECK_HAS(spec_refusal("\"end_id\":[]", "\"end_id\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
              "array of 0 to 16");
}

TEST(unrunnable_specs_are_named) {
    smoe_error err;
    spec s = spec_of(qwen, "{}");
    CHECK_OK(spec_check_runnable(&s, &err));
    s.layer[2].ffn.bias = true;
    CHECK_ERR(spec_check_runnable(&s, &err), SMOE_ERR_UNSUPPORTED);
    CHECK_TEXT(err.text,
               "this qwen3_moe model needs biases in experts, which this version cannot run");
    s.layer[2].ffn.bias = false;
    s.router.score = ROUTER_SIGMOID;
    CHECK_ERR(spec_check_runnable(&s, &err), SMOE_ERR_UNSUPPORTED);
    CHECK_HAS(err.text, "router");
}

/* ---- binding */

static source *open_fixture(const char *name) {
    smoe_error err;
    source *s;
    char path[64];
    snprintf(path, sizeof path, "fixtures/%s", name);
    CHECK_OK(source_open(&s, test_data(path), &err));
    return s;
}

TEST(fixtures_bind) {
    source *s = open_fixture("qwen3_moe");
    CHECK_INT(s->n_moe_layer, 4);
    CHECK_INT(s->n_expert_row, 16);
    CHECK_TEXT(s->layer[1][ROLE_ATTN_Q_NORM].name, "model.layers.1.self_attn.q_norm.weight");
    CHECK_INT(s->layer[1][ROLE_ATTN_Q_NORM].n_row, 1);
    CHECK_INT(s->layer[1][ROLE_ATTN_Q_NORM].n_col, 32);
    CHECK_INT(s->layer[1][ROLE_ATTN_Q].n_row, 128);
    CHECK_INT(s->global[ROLE_HEAD].n_row, 160);
    CHECK(s->layer[0][ROLE_FFN_GATE].name == NULL && s->layer[0][ROLE_ATTN_Q_BIAS].name == NULL);
    CHECK_INT(source_max_expert_bytes(s), 3 * 64 * 32 * 2);
    CHECK_INT(source_experts_bytes(s), 64 * source_max_expert_bytes(s));
    CHECK_INT(source_token_cycle_bytes(s), 16 * source_max_expert_bytes(s));
    /* everything in the file is either resident or an expert's */
    uint64_t data = source_scout_bytes(s) + source_experts_bytes(s);
    CHECK(s->files.file[0].bytes > data && s->files.file[0].bytes - data < 64 << 10);
    CHECK(s->text.tokenizer_json.data == NULL && s->text.chat_template.data == NULL);
    CHECK_INT(s->spec.end_id[0], 2);
    source_close(s);

    s = open_fixture("qwen3_moe_dense_mix");
    CHECK_INT(s->n_moe_layer, 1);
    CHECK(s->global[ROLE_HEAD].name == NULL && s->spec.tied_head && !s->spec.router.normalise);
    CHECK_INT(s->layer[0][ROLE_FFN_DOWN].n_col, 128);
    CHECK(s->layer[0][ROLE_ROUTER].name == NULL && s->layer[3][ROLE_ROUTER].name != NULL);
    source_close(s);

    s = open_fixture("mixtral");
    CHECK_INT(source_expert(s, 2, 7)->part[PART_DOWN].n_row, 64);
    CHECK_INT(source_expert(s, 2, 7)->part[PART_DOWN].n_col, 96);
    CHECK_INT(source_expert(s, 2, 7)->part[PART_GATE].type, DT_BF16);
    source_close(s);
}

/* The gate, up and down of an expert are where the file's own header puts those names. */
TEST(expert_parts_lie_where_their_tensors_do) {
    static const char *const part_name[] = {"w1", "w3", "w2"};
    smoe_error err;
    source *s = open_fixture("mixtral");
    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    CHECK_OK(safetensors_open(&table, &names, &files,
                              test_data("fixtures/mixtral/model.safetensors"), NULL, &err));
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        for (int32_t x = 0; x < s->n_expert_row; x++) {
            const expert_ref *e = source_expert(s, m, x);
            for (int p = 0; p < PART_COUNT; p++) {
                char name[128];
                snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.%d.%s.weight",
                         m, x, part_name[p]);
                const tensor *t = tensor_table_find(&table, name);
                CHECK(t);
                CHECK_INT(e->ext[e->part[p].ext].offset + e->part[p].at_bytes, t->offset);
                CHECK_INT(e->part[p].bytes, t->bytes);
            }
        }
    }
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
    source_close(s);
}

TEST(touching_extents_are_merged) {
    expert_ref e = {0};
    /* down, gate, up one after the other */
    expert_ref_set_extents(&e, (extent[]){{0, 150, 50}, {0, 200, 50}, {0, 100, 50}});
    CHECK_INT(e.n_ext, 1);
    CHECK_INT(e.ext[0].offset, 100);
    CHECK_INT(e.ext[0].bytes, 150);
    CHECK_INT(e.part[PART_DOWN].at_bytes, 0);
    CHECK_INT(e.part[PART_GATE].at_bytes, 50);
    CHECK_INT(e.part[PART_UP].at_bytes, 100);
    /* a page between, and another file at the touching offset */
    expert_ref_set_extents(&e, (extent[]){{1, 150, 50}, {0, 100, 50}, {0, 8192, 50}});
    CHECK_INT(e.n_ext, 3);
    CHECK_INT(e.part[PART_GATE].ext, 2);
    CHECK_INT(e.part[PART_UP].ext, 0);
    CHECK_INT(e.part[PART_DOWN].ext, 1);
    /* two of three */
    expert_ref_set_extents(&e, (extent[]){{0, 9000, 10}, {0, 100, 50}, {0, 9010, 5}});
    CHECK_INT(e.n_ext, 2);
    CHECK_INT(e.part[PART_DOWN].ext, 1);
    CHECK_INT(e.part[PART_DOWN].at_bytes, 10);
    CHECK_INT(expert_bytes(&e), 65);
}

/* Direct reads take whole pages: what shares one is read at once, and held once. */
TEST(extents_that_share_a_page_are_merged) {
    expert_ref e = {0};
    expert_ref_set_extents(&e, (extent[]){{0, 100, 5000}, {0, 5120, 5000}, {0, 10144, 9000}});
    CHECK_INT(e.n_ext, 1);
    CHECK_INT(e.ext[0].offset, 100);
    CHECK_INT(e.ext[0].bytes, 10144 + 9000 - 100);
    CHECK_INT(e.part[PART_GATE].at_bytes, 0);
    CHECK_INT(e.part[PART_UP].at_bytes, 5020);
    CHECK_INT(e.part[PART_DOWN].at_bytes, 10044);
    /* neighbouring pages without a shared one, then a page between */
    expert_ref_set_extents(&e, (extent[]){{0, 4096, 4000}, {0, 8200, 100}, {0, 16384, 100}});
    CHECK_INT(e.n_ext, 2);
    CHECK_INT(e.part[PART_UP].ext, 0);
    CHECK_INT(e.part[PART_UP].at_bytes, 4104);
    CHECK_INT(e.part[PART_DOWN].ext, 1);
    /* ranges that overlap, as only a hostile file has them */
    expert_ref_set_extents(&e, (extent[]){{0, 100, 500}, {0, 100, 50}, {0, 300, 100}});
    CHECK_INT(e.n_ext, 1);
    CHECK_INT(e.ext[0].bytes, 500);
    CHECK_INT(e.part[PART_DOWN].at_bytes, 200);
}

TEST(promised_experts_must_be_stored) {
    smoe_error err;
    source s = {.spec = spec_of(qwen, "{\"num_experts\":4096}")};
    CHECK_ERR(source_take_refs(&s, 10, "vault", &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "4 layers of 4096 experts promised, 10 experts stored");
    CHECK_OK(source_take_refs(&s, 4 * 4096, "vault", &err));
    arena_free(&s.arena);
}

/* ---- checkpoints made here: every tensor the spec asks for, filled with its own number */

typedef struct made {
    tensor *item;
    int32_t n;
} made;

static void add_tensor(made *m, role_shape shape, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_tensor(made *m, role_shape shape, const char *format, ...) {
    char name[200];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    m->item = realloc(m->item, ((size_t)m->n + 1) * sizeof *m->item);
    tensor t = {.name = strdup(name), .type = DT_F16, .rank = shape.rank};
    t.shape[0] = shape.rank == 1 ? shape.n_col : shape.n_row;
    t.shape[1] = shape.n_col;
    m->item[m->n++] = t;
}

/* Writes config and weights of a qwen3_moe model whose tensor names begin with prefix. */
static void make_checkpoint(const char *config_text, const spec *s, const char *prefix) {
    static const char *const per_layer[ROLE_COUNT] = {
        [ROLE_ATTN_NORM] = "input_layernorm.weight",
        [ROLE_ATTN_Q] = "self_attn.q_proj.weight",
        [ROLE_ATTN_K] = "self_attn.k_proj.weight",
        [ROLE_ATTN_V] = "self_attn.v_proj.weight",
        [ROLE_ATTN_O] = "self_attn.o_proj.weight",
        [ROLE_ATTN_Q_BIAS] = "self_attn.q_proj.bias",
        [ROLE_ATTN_K_BIAS] = "self_attn.k_proj.bias",
        [ROLE_ATTN_V_BIAS] = "self_attn.v_proj.bias",
        [ROLE_ATTN_O_BIAS] = "self_attn.o_proj.bias",
        [ROLE_ATTN_Q_NORM] = "self_attn.q_norm.weight",
        [ROLE_ATTN_K_NORM] = "self_attn.k_norm.weight",
        [ROLE_FFN_NORM] = "post_attention_layernorm.weight",
        [ROLE_ROUTER] = "mlp.gate.weight",
    };
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    smoe_error err;
    made m = {0};
    add_tensor(&m, role_shape_of(s, 0, ROLE_EMBED), "%sembed_tokens.weight", prefix);
    add_tensor(&m, role_shape_of(s, 0, ROLE_OUT_NORM), "%snorm.weight", prefix);
    for (int32_t i = 0; i < s->n_layer; i++) {
        for (int r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT; r++) {
            if (role_is_wanted(s, i, (role)r)) {
                add_tensor(&m, role_shape_of(s, i, (role)r), "%slayers.%d.%s", prefix, i,
                           per_layer[r]);
            }
        }
        for (int32_t x = 0; x < s->layer[i].ffn.n_expert; x++) {
            for (int p = 0; p < PART_COUNT; p++) {
                add_tensor(&m, expert_part_shape(s, i, (enum expert_part_kind)p),
                           "%slayers.%d.mlp.experts.%d.%s.weight", prefix, i, x, parts[p]);
            }
        }
    }
    char *head;
    size_t head_bytes;
    CHECK_OK(safetensors_head(m.item, m.n, NULL, 0, &head, &head_bytes, &err));
    size_t bytes = (size_t)(m.item[m.n - 1].offset + m.item[m.n - 1].bytes);
    head = realloc(head, bytes);
    memset(head + head_bytes, 0, bytes - head_bytes);
    test_write_file(test_path("model.safetensors"), head, bytes);
    test_write_file(test_path("config.json"), config_text, strlen(config_text));
    free(head);
    for (int32_t i = 0; i < m.n; i++) {
        free((void *)(uintptr_t)m.item[i].name);
    }
    free(m.item);
}

TEST(biases_and_wrapped_text_models_bind) {
    static const char *const prefixes[] = {"model.", "language_model.model.",
                                           "model.language_model."};
    for (int i = 0; i < 3; i++) {
        smoe_error err;
        source *s;
        char config_text[2048];
        struct json_object *root = changed(
            qwen, "{\"attention_bias\":true,\"tie_word_embeddings\":true,\"num_experts\":4}");
        const char *text = json_object_to_json_string(root);
        snprintf(config_text, sizeof config_text,
                 i ? "{\"model_type\":\"seeing\",\"text_config\":%s}" : "%s", text);
        spec want = spec_of(text, "{}");
        make_checkpoint(config_text, &want, prefixes[i]);
        CHECK_OK(source_open(&s, test_dir(), &err));
        CHECK_INT(s->layer[3][ROLE_ATTN_K_BIAS].n_col, 64);
        CHECK_INT(s->layer[3][ROLE_ATTN_O_BIAS].n_col, 64);
        CHECK_INT(source_expert(s, 0, 0)->n_ext, 1);
        CHECK_HAS(s->global[ROLE_EMBED].name, prefixes[i]);
        source_close(s);
        json_object_put(root);
    }
}

TEST(wrong_tensors_are_named) {
    smoe_error err;
    source *s;
    struct json_object *root = changed(qwen, "{\"tie_word_embeddings\":true,\"num_experts\":4}");
    const char *text = json_object_to_json_string(root);
    spec want = spec_of(text, "{}");
    want.layer[2].attn.qk_norm = QK_NORM_NONE;
    make_checkpoint(text, &want, "model.");
    CHECK_ERR(source_open(&s, test_dir(), &err), SMOE_ERR_FORMAT);
    CHECK(s == NULL);
    CHECK_HAS(err.text, "tensor model.layers.2.self_attn.q_norm.weight is missing");
    want = spec_of(text, "{\"moe_intermediate_size\":40}");
    make_checkpoint(text, &want, "model.");
    CHECK_ERR(source_open(&s, test_dir(), &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "model.safetensors: tensor model.layers.0.mlp.experts.0.gate_proj.weight "
                        "has shape [40, 64], expected [32, 64]");
    json_object_put(root);
}

TEST(text_files_are_carried_as_bytes) {
    static const char plain[] = "{\"chat_template\":\"plain {{ x }}\"}";
    static const char list[] = "{\"chat_template\":[{\"name\":\"tools\",\"template\":\"t\"},"
                               "{\"name\":\"default\",\"template\":\"d\"}]}";
    smoe_error err;
    source *s;
    spec want = spec_of(qwen, "{\"tie_word_embeddings\":true}");
    struct json_object *root = changed(qwen, "{\"tie_word_embeddings\":true}");
    make_checkpoint(json_object_to_json_string(root), &want, "model.");
    json_object_put(root);
    test_write_file(test_path("tokenizer.json"), "\0raw", 4);
    test_write_file(test_path("tokenizer_config.json"), plain, sizeof plain - 1);
    test_write_file(test_path("generation_config.json"), "{\"eos_token_id\":9}", 18);
    CHECK_OK(source_open(&s, test_dir(), &err));
    CHECK_INT(s->text.tokenizer_json.bytes, 4);
    CHECK_TEXT(s->text.chat_template.data, "plain {{ x }}");
    CHECK_INT(s->spec.end_id[0], 9);
    CHECK_TEXT(s->text.generation.data, "{\"eos_token_id\":9}");
    CHECK_TEXT(s->text.label, test_dir());
    source_close(s);
    test_write_file(test_path("tokenizer_config.json"), list, sizeof list - 1);
    CHECK_OK(source_open(&s, test_dir(), &err));
    CHECK_TEXT(s->text.chat_template.data, "d");
    source_close(s);
    test_write_file(test_path("chat_template.jinja"), "file", 4);
    CHECK_OK(source_open(&s, test_dir(), &err));
    CHECK_TEXT(s->text.chat_template.data, "file");
    source_close(s);
    test_write_file(test_path("generation_config.json"), "[]", 2);
    CHECK_ERR(source_open(&s, test_dir(), &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "generation_config.json must be an object");
}

/* Every allocation of files, table and references refused in turn: an error each time and nothing
 * left half made. Parsing is left out: json-c itself does not survive a refused allocation. */
TEST(binding_survives_every_failed_allocation) {
    static const char path[] = "fixtures/mixtral/model.safetensors";
    smoe_error err = {0};
    tensor_table table = {0};
    arena names = {0}, spec_arena = {0};
    file_set files = {0};
    const family *f;
    spec described;
    struct json_object *root = NULL;
    if (!alloc_guard_active()) {
        SKIP("the allocation guard is not compiled in");
    }
    CHECK_OK(safetensors_open(&table, &names, &files, test_data(path), NULL, &err));
    CHECK_OK(json_load(&root, test_data("fixtures/mixtral/config.json"), 1 << 20, 0, &err));
    CHECK_OK(config_to_spec(&described, &f, root, "c", NULL, NULL, &spec_arena, &err));
    json_object_put(root);
    for (uint64_t n = 1;; n++) {
        source s = {.spec = described};
        tensor_table copy = {0};
        int32_t index;
        alloc_guard_fail_at(n);
        int rc = file_set_add(&s.files, test_data(path), &index, &err);
        for (int32_t i = 0; rc == SMOE_OK && i < table.n_item; i++) {
            rc = tensor_table_add(&copy, &table.item[i], "table", &err);
        }
        rc = rc ? rc : bind_checkpoint(&s, f, &copy, "checkpoint", &err);
        bool refused = alloc_guard_has_failed();
        alloc_guard_fail_at(0);
        CHECK_INT(rc, refused ? SMOE_ERR_MEMORY : SMOE_OK);
        tensor_table_free(&copy);
        file_set_close(&s.files);
        arena_free(&s.arena);
        if (!refused) {
            CHECK(n > 5);
            break;
        }
    }
    tensor_table_free(&table);
    arena_free(&names);
    arena_free(&spec_arena);
    file_set_close(&files);
}

TEST(bundled_model_binds) {
    smoe_error err;
    source *s;
    CHECK_OK(source_open(&s, test_model("tales-8m"), &err));
    CHECK_INT(s->files.n_file, 2);
    CHECK_INT(s->n_moe_layer, 6);
    CHECK(s->text.tokenizer_json.data && s->text.chat_template.data && s->text.generation.data);
    source_close(s);
}
