/* Synthetic models: their blocks, bytes, routing, and that every architecture of them runs. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "conductor/model.h"
#include "kernels/kernels.h"
#include "model_util.h"
#include "sculptor/synth.h"

static smoe_error err;

static const synth_shape base = {.name = "small",
                                 .arch = "qwen3moe",
                                 .n_layer = 2,
                                 .d_model = 512,
                                 .n_head = 8,
                                 .n_kv_head = 2,
                                 .head_dim = 64,
                                 .vocab_size = 2048,
                                 .context_tok = 1024,
                                 .n_expert = 16,
                                 .n_expert_used = 4,
                                 .expert_width = 64,
                                 .dense_width = 128,
                                 .rope_theta = 1e6,
                                 .norm_eps = 1e-6};

static synth_shape shape_of(const char *arch) {
    synth_shape s = base;
    s.arch = arch;
    s.qk_norm = strcmp(arch, "qwen3moe") == 0 ? SYNTH_QK_HEAD
                : strcmp(arch, "olmoe") == 0  ? SYNTH_QK_WHOLE
                                              : SYNTH_QK_PLAIN;
    s.normalise = strcmp(arch, "qwen3moe") == 0 || strcmp(arch, "llama") == 0;
    if (strcmp(arch, "gpt-oss") == 0) {
        s.qkv_bias = s.is_oss = s.normalise = true;
        s.yarn_factor = 32;
        s.yarn_context_tok = 256;
        s.window_tok = 64;
    } else if (strcmp(arch, "qwen2moe") == 0) {
        s.qkv_bias = s.shared_gate = true;
        s.n_shared = 1;
        s.shared_width = 192;
    } else if (strcmp(arch, "deepseek") == 0) {
        s.n_dense = 1;
        s.n_shared = 2;
        s.shared_width = 128;
    } else {
        s.dense_width = 64;
    }
    return s;
}

/* Writes a model into the test's folder. */
static const char *written(const char *name, synth_shape shape, dtype type, double skew,
                           uint64_t seed) {
    smoe_synth_options o = {.n_thread = 2};
    const char *path = test_path(name);
    synth_plan p = {.shape = shape, .type = type, .skew = skew, .seed = seed};
    CHECK_OK(synth_plan_make(&p, &err));
    CHECK_OK(synth_write(&p, path, &o, &err));
    synth_plan_free(&p);
    return path;
}

TEST(synth_blocks_have_the_wanted_deviation) {
    enum { BLOCKS = 2048, MAX_ELEMS = 256 };
    const kernels *k = kernels_variant(0);
    int n_type = 0;
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
        if (!synth_has_type((dtype)t)) {
            continue;
        }
        const dtype_info *info = dtype_get((dtype)t);
        int32_t n = info->block_elems * BLOCKS;
        uint8_t *data = test_guarded((size_t)info->block_bytes * BLOCKS);
        float *x = malloc((size_t)n * sizeof *x);
        synth_fill f;
        double want = 0.0217, sum = 0, squares = 0;
        synth_fill_init(&f, (dtype)t, test_rand(), want);
        synth_blocks(&f, 77, BLOCKS, data);
        k->dequant_row[t](data, n, x);
        for (int32_t i = 0; i < n; i++) {
            sum += (double)x[i];
            squares += (double)x[i] * (double)x[i];
        }
        double std = sqrt(squares / n), mean = sum / n;
        if (!(fabs(std / want - 1) < 0.06) || !(fabs(mean) < 5 * want / sqrt(n) + 0.001 * want)) {
            FAIL("%s: deviation %g instead of %g, mean %g", info->name, std, want, mean);
        }
        free(x);
        n_type++;
    }
    CHECK_INT(n_type, 15);
}

/* Rows of a tensor, dequantised. */
static float *values(const synth_plan *p, const char *name, int64_t first, int64_t n_row) {
    for (int32_t i = 0; i < p->n_tensor; i++) {
        const synth_tensor *t = &p->tensor[i];
        if (strcmp(t->name, name) == 0) {
            uint8_t *data = test_guarded((size_t)((uint64_t)n_row * t->row_bytes));
            float *x = malloc((size_t)(n_row * t->n_col) * sizeof *x);
            synth_rows(t, first, n_row, data);
            kernels_variant(0)->dequant_row[t->fill.type](data, (int32_t)(n_row * t->n_col), x);
            return x;
        }
    }
    FAIL("no tensor %s", name);
}

TEST(synth_edge_columns_carry_a_constant) {
    static const dtype types[] = {DT_Q4_K, DT_Q8_0, DT_F16, DT_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        synth_plan p = {.shape = shape_of("qwen3moe"), .type = types[i], .skew = 1};
        CHECK_OK(synth_plan_make(&p, &err));
        float *embed = values(&p, "token_embd.weight", 9, 1);
        float *head = values(&p, "output.weight", 9, 1);
        float *control = values(&p, "output.weight", SYNTH_FIRST_CONTROL, SYNTH_CONTROLS);
        float *out = values(&p, "blk.1.attn_output.weight", 0, SYNTH_EDGE + 1);
        float *down = values(&p, "blk.1.ffn_down_exps.weight", 512 * 3, SYNTH_EDGE + 1);
        for (int c = 0; c < SYNTH_EDGE; c++) {
            CHECK_NEAR(embed[c], 1, 0.02);
            CHECK(head[c] == 0);
        }
        CHECK(embed[SYNTH_EDGE] != 1 && head[SYNTH_EDGE] != 0);
        for (int c = 0; c < SYNTH_CONTROLS * 512; c++) {
            CHECK(control[c] == 0);
        }
        for (int c = 0; c < SYNTH_EDGE * 512; c++) {
            CHECK(out[c] == 0);
        }
        for (int c = 0; c < SYNTH_EDGE * 64; c++) {
            CHECK(down[c] == 0);
        }
        CHECK(out[SYNTH_EDGE * 512 + 40] != 0 && down[SYNTH_EDGE * 64 + 40] != 0);
        free(embed);
        free(head);
        free(control);
        free(out);
        free(down);
        synth_plan_free(&p);
    }
}

/* Logits of a few tokens are finite and spread as planned, and the choices differ. */
static void check_runs(const char *path) {
    enum { PROMPT = 24, TOKENS = 24 };
    smoe_model_options options = {.n_thread = 2, .context_tok = 64};
    test_apply_permutation(&options);
    opened o = open_with(path, &options);
    int32_t prompt[PROMPT], vocab = smoe_model_info(o.model)->vocab_size;
    for (int i = 0; i < PROMPT; i++) {
        prompt[i] = (int32_t)(test_rand() % (uint64_t)vocab);
    }
    CHECK_OK(smoe_session_sync(o.session, prompt, PROMPT, &err));
    const float *logits = smoe_session_logits(o.session);
    double squares = 0;
    for (int32_t i = 0; i < vocab; i++) {
        CHECK(isfinite(logits[i]));
        squares += (double)logits[i] * (double)logits[i] / vocab;
    }
    CHECK_NEAR(sqrt(squares), 4, 0.6);
    int32_t *ids = greedy(&o, prompt, PROMPT, TOKENS);
    int n_new = 0;
    for (int i = 0; i < TOKENS; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) {
            seen |= ids[k] == ids[i];
        }
        n_new += !seen;
        CHECK(ids[i] < SYNTH_FIRST_CONTROL || ids[i] >= SYNTH_FIRST_CONTROL + SYNTH_CONTROLS);
    }
    CHECK(n_new > TOKENS / 4);
    smoe_free(ids);
    close_opened(&o);
}

TEST(synth_runs_in_every_architecture) {
    static const char *const archs[] = {"qwen3moe", "qwen2moe", "llama", "olmoe", "deepseek"};
    static const dtype types[] = {DT_Q4_K, DT_MXFP4, DT_Q8_0, DT_IQ4_XS, DT_F16};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        smoe_info info;
        const char *path = written("m.gguf", shape_of(archs[i]), types[i], SYNTH_SKEW, i);
        CHECK_OK(smoe_describe(path, &info, &err));
        CHECK_INT(info.n_expert, 16);
        CHECK_INT(info.n_moe_layer, strcmp(archs[i], "deepseek") == 0 ? 1 : 2);
        check_runs(path);
    }
}

TEST(synth_shapes_are_complete) {
    char names[400], *save = NULL;
    synth_shape_list(names, sizeof names);
    for (char *n = strtok_r(names, ", ", &save); n; n = strtok_r(NULL, ", ", &save)) {
        const synth_shape *s = synth_shape_find(n);
        CHECK(s && s->arch && s->origin && s->n_expert_used <= s->n_expert);
        synth_plan p = {.shape = *s, .type = DT_Q4_K, .skew = SYNTH_SKEW};
        CHECK_OK(synth_plan_make(&p, &err));
        for (int32_t i = 0; i < p.n_tensor; i++) {
            const synth_tensor *t = &p.tensor[i];
            CHECK_INT(t->n_col % dtype_get(t->fill.type)->block_elems, 0);
        }
        if (strcmp(n, "qwen3-30b-a3b") == 0) {
            CHECK_NEAR((double)p.file_bytes * 1e-9, 17.83, 0.01);
        }
        synth_plan_free(&p);
    }
}

TEST(synth_same_seed_same_bytes) {
    synth_shape shape = shape_of("qwen2moe");
    char *data[3];
    size_t bytes[3];
    for (int i = 0; i < 3; i++) {
        smoe_synth_options o = {.n_thread = i == 0 ? 1 : 3};
        const char *path = test_path("m.gguf");
        synth_plan p = {.shape = shape, .type = DT_Q4_K, .skew = 1, .seed = i == 2 ? 8 : 7};
        CHECK_OK(synth_plan_make(&p, &err));
        CHECK_OK(synth_write(&p, path, &o, &err));
        data[i] = test_read_file(path, &bytes[i]);
        CHECK_INT(bytes[i], p.file_bytes);
        synth_plan_free(&p);
    }
    CHECK(bytes[0] == bytes[1] && memcmp(data[0], data[1], bytes[0]) == 0);
    CHECK(bytes[0] == bytes[2] && memcmp(data[0], data[2], bytes[0]) != 0);
    for (int i = 0; i < 3; i++) {
        free(data[i]);
    }
}

/* ---- routing */

enum { EXPERTS = 128, USED = 8, SIZES = 4, DECODE_TOK = 250 };

/* A layer's experts, the most recent first. */
typedef struct recency {
    int32_t expert[EXPERTS];
    int32_t n;
    uint64_t uses, hits[SIZES]; /* with 16, 32, 48 and 64 of 128 kept */
} recency;

static void use_expert(recency *r, int32_t expert) {
    int32_t at = 0;
    while (at < r->n && r->expert[at] != expert) {
        at++;
    }
    r->uses++;
    for (int i = 0; i < SIZES; i++) {
        r->hits[i] += at < r->n && at < 16 * (i + 1);
    }
    r->n += at == r->n;
    memmove(r->expert + 1, r->expert, (size_t)at * sizeof *r->expert);
    r->expert[0] = expert;
}

/* Decodes random tokens (a small vocabulary's greedy ones soon repeat) and adds what the last
 * layer's router chooses. */
static void add_run(const char *path, recency *sum) {
    smoe_model_options options = {
        .n_thread = 2, .context_tok = DECODE_TOK + 64, .lookahead = SMOE_OFF};
    opened o = open_with(path, &options);
    recency r = {.uses = 0};
    int32_t ids[DECODE_TOK + 32];
    for (int i = 0; i < DECODE_TOK + 32; i++) {
        ids[i] = (int32_t)(test_rand() % 2048);
    }
    for (int n = 32; n <= DECODE_TOK + 32; n++) {
        CHECK_OK(smoe_session_sync(o.session, ids, (size_t)n, &err));
        for (int k = 0; n > 32 && k < USED; k++) {
            use_expert(&r, o.model->exec.s.choice[k]);
        }
    }
    sum->uses += r.uses;
    for (int i = 0; i < SIZES; i++) {
        sum->hits[i] += r.hits[i];
    }
    sum->n += r.n;
    close_opened(&o);
}

static recency hits_with(double skew) {
    enum { SEEDS = 4 };
    recency sum = {.uses = 0};
    synth_shape s = shape_of("qwen3moe");
    s.n_expert = EXPERTS;
    s.n_expert_used = USED;
    s.d_model = 1024; /* less of it is edge */
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        add_run(written("m.gguf", s, DT_Q4_K, skew, seed), &sum);
    }
    sum.n /= SEEDS;
    return sum;
}

TEST(synth_skewed_routing_has_published_hit_rates) {
    static const double want[SIZES] = {0.36, 0.64, 0.81, 0.90};
    recency r = hits_with(SYNTH_SKEW);
    for (int i = 0; i < SIZES; i++) {
        CHECK_NEAR((double)r.hits[i] / (double)r.uses, want[i], 0.07);
    }
    CHECK(r.n > EXPERTS * 6 / 10); /* experts used at all */
}

TEST(synth_uniform_routing_hits_by_chance) {
    static const double chance[SIZES] = {0.10, 0.23, 0.35, 0.48};
    recency r = hits_with(0);
    for (int i = 0; i < SIZES; i++) {
        CHECK_NEAR((double)r.hits[i] / (double)r.uses, chance[i], 0.12);
    }
    CHECK(r.n > EXPERTS * 9 / 10);
}

/* ---- what goes wrong */

static bool stop_at_once(void *user, const smoe_progress *progress) {
    (void)user;
    return progress->done_bytes > 0;
}

static void check_nothing_left(const char *path) {
    char partial[1200];
    snprintf(partial, sizeof partial, "%s.partial", path);
    CHECK(!file_exists(path) && !file_exists(partial));
}

TEST(synth_leaves_nothing_when_it_fails) {
    const char *path = test_path("m.gguf");
    smoe_synth_options o = {.shape = "tiny", .n_layer = 1, .n_thread = 2};
    o.progress = stop_at_once;
    CHECK_ERR(smoe_synth(path, &o, &err), SMOE_ERR_CANCELLED);
    check_nothing_left(path);
    o.progress = NULL;
    struct rlimit old, small = {1 << 20, RLIM_INFINITY};
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    int rc = smoe_synth(path, &o, &err);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_ERR(rc, SMOE_ERR_IO);
    CHECK_HAS(err.text, "m.gguf.partial");
    check_nothing_left(path);
    synth_plan p = {.shape = base, .type = DT_Q4_K};
    CHECK_OK(synth_plan_make(&p, &err));
    p.file_bytes = 1ull << 60;
    CHECK_ERR(synth_write(&p, path, &o, &err), SMOE_ERR_IO);
    CHECK_HAS(err.text, "needs 1024 PiB");
    check_nothing_left(path);
    synth_plan_free(&p);
}

TEST(synth_refuses_what_it_does_not_know) {
    const char *path = test_path("m.gguf");
    smoe_synth_options o = {.shape = "gpt-5"};
    CHECK_ERR(smoe_synth(path, &o, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "qwen3-30b-a3b, ");
    o = (smoe_synth_options){.shape = "tiny", .type = "q4_q"};
    CHECK_ERR(smoe_synth(path, &o, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "q4_k, ");
    o = (smoe_synth_options){.shape = "deepseek-moe-16b", .n_layer = 1};
    CHECK_ERR(smoe_synth(path, &o, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "more than 1 layers");
    o = (smoe_synth_options){.shape = "tiny", .n_layer = 1};
    CHECK_ERR(smoe_synth(test_path("m.smoe"), &o, &err), SMOE_ERR_ARGUMENT);
    CHECK_ERR(smoe_synth(test_path("no/m.gguf"), &o, &err), SMOE_ERR_IO);
    test_write_file(path, "kept", 4);
    CHECK_ERR(smoe_synth(path, &o, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "--overwrite");
}

TEST(cli_synth_writes_a_model_that_runs) {
    char path[1200];
    snprintf(path, sizeof path, "%s", test_path("m.gguf"));
    test_run r = test_smoe("synth", "--shape", "tiny", "--layers", "1", "-o", path, NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.err, "wrote ");
    CHECK(file_exists(path));
    CHECK_INT(test_smoe("synth", "--shape", "tiny", "-o", path, NULL).status, 1);
    r = test_smoe("run", path, "-q", "-p", "a small test", "-n", "8", "--temp", "0", "--memory",
                  "100M", "--ctx", "64", NULL);
    if (r.status != 0) {
        FAIL("exit status %d: %s", r.status, r.err);
    }
    CHECK_HAS(r.out, "a small test w");
    CHECK_INT(test_smoe("synth", "--shape", "tiny", NULL).status, 1);
    CHECK_INT(test_smoe("synth", "-o", path, NULL).status, 1);
}
