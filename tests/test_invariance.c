/* The exactness contract: logits and tokens are the same bits whatever the ring, the threads, the
 * I/O back end, the prefill chunk, the bets, and wherever the weights come from. */
#include <stdio.h>

#include "layers/exec.h"
#include "model_util.h"
#include "tiny_gguf.h"

enum { N_PROMPT = 150, N_NEW = 12 };

typedef struct outcome {
    float *logits; /* [N_PROMPT][vocab] */
    int32_t *ids;  /* [N_NEW] */
    float *last;   /* [vocab]: after the generated ids */
    size_t vocab;
} outcome;

static const int32_t *prompt_of(size_t vocab) {
    static int32_t ids[N_PROMPT];
    uint32_t state = 12345;
    for (int i = 0; i < N_PROMPT; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % vocab);
    }
    return ids;
}

static outcome run_model(const char *path, const smoe_model_options *options) {
    smoe_error err;
    opened o = open_with(path, options);
    outcome r = {.vocab = (size_t)smoe_model_info(o.model)->vocab_size};
    const int32_t *prompt = prompt_of(r.vocab);
    int32_t all[N_PROMPT + N_NEW];
    r.logits = all_logits(&o, prompt, N_PROMPT);
    r.ids = greedy(&o, prompt, N_PROMPT, N_NEW);
    memcpy(all, prompt, sizeof(int32_t) * N_PROMPT);
    memcpy(all + N_PROMPT, r.ids, sizeof(int32_t) * N_NEW);
    CHECK_OK(smoe_session_sync(o.session, all, N_PROMPT + N_NEW, &err));
    r.last = malloc(r.vocab * sizeof(float));
    memcpy(r.last, smoe_session_logits(o.session), r.vocab * sizeof(float));
    close_opened(&o);
    return r;
}

static void check_same(const outcome *want, const char *path, const smoe_model_options *options,
                       const char *what) {
    outcome got = run_model(path, options);
    size_t row = want->vocab * sizeof(float);
    for (size_t t = 0; t < N_PROMPT; t++) {
        if (memcmp(got.logits + t * want->vocab, want->logits + t * want->vocab, row)) {
            FAIL("%s: logits of token %zu differ", what, t);
        }
    }
    if (memcmp(got.ids, want->ids, sizeof(int32_t) * N_NEW) || memcmp(got.last, want->last, row)) {
        FAIL("%s: generated tokens or their logits differ", what);
    }
    free(got.logits);
    free(got.ids);
    free(got.last);
}

static smoe_model_options base_options(void) {
    return (smoe_model_options){.n_thread = 2, .context_tok = 192, .chunk_tok = 64};
}

/* What is read ahead, and how the drive was judged. */
static void check_ahead(const outcome *want, const char *path, uint64_t floor) {
    smoe_model_options o = base_options();
    o.ring_bytes = 2 * floor;
    o.lookahead = SMOE_OFF;
    check_same(want, path, &o, "no lookahead");
    o.lookahead = SMOE_ON;
    check_same(want, path, &o, "lookahead");
    o.ring_bytes = floor;
    o.chunk_tok = 7;
    o.io = SMOE_IO_THREADS;
    o.direct = SMOE_OFF;
    check_same(want, path, &o, "lookahead, smallest ring");
    o = base_options();
    o.probe = SMOE_PROBE_REDO;
    o.ring_bytes = 2 * floor;
    check_same(want, path, &o, "as probed");
}

static void check_everything(const char *path) {
    smoe_model_options resident = base_options();
    resident.resident = true;
    outcome want = run_model(path, &resident);
    uint64_t floor = ring_floor(path);
    const struct {
        const char *what;
        uint64_t ring;
        int32_t threads, chunk, bets;
        smoe_io_choice io;
        smoe_switch direct;
    } cases[] = {
        {"smallest ring", floor, 2, 64, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"ring a little larger", floor + 40960, 2, 64, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"ring of two token cycles", 2 * floor, 2, 64, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"ring as planned", 0, 2, 64, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"one thread", floor, 1, 64, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"three threads", floor, 3, 64, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"threads as back end", floor, 2, 64, 0, SMOE_IO_THREADS, SMOE_AUTO},
        {"threads, buffered", floor, 2, 64, 0, SMOE_IO_THREADS, SMOE_OFF},
        {"buffered", floor, 2, 64, 0, SMOE_IO_AUTO, SMOE_OFF},
        {"bets on 4 ranks", floor, 2, 64, 4, SMOE_IO_AUTO, SMOE_AUTO},
        {"bets on 4 ranks, larger ring", 3 * floor, 2, 64, 4, SMOE_IO_THREADS, SMOE_AUTO},
        {"chunk of 1", floor, 2, 1, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"chunk of 7", floor, 2, 7, 0, SMOE_IO_AUTO, SMOE_AUTO},
        {"one chunk", floor, 2, 192, 0, SMOE_IO_AUTO, SMOE_AUTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        smoe_model_options o = base_options();
        o.ring_bytes = cases[i].ring;
        o.n_thread = cases[i].threads;
        o.chunk_tok = cases[i].chunk;
        o.spec_ranks = cases[i].bets;
        o.io = cases[i].io;
        o.direct = cases[i].direct;
        check_same(&want, path, &o, cases[i].what);
    }
    check_ahead(&want, path, floor);
}

TEST(invariance_checkpoint) {
    check_everything(test_model("tales-8m"));
}

TEST(invariance_q4_vault) {
    check_everything(sculpted(test_model("tales-8m"), "q4"));
}

TEST(invariance_q2_vault) {
    check_everything(sculpted(test_model("tales-8m"), "q2"));
}

/* A shared expert with its gate, computed while the first experts are on their way. */
TEST(invariance_gguf_shared_expert) {
    check_everything(test_data("gguf/qwen2_moe.gguf"));
}

/* Slices at any byte, records of different size in each layer, block types of every activation
 * form. */
TEST(invariance_gguf_mixed_types) {
    static const tiny_gguf shape = {
        .dense = DT_Q8_0,
        .expert = {{DT_Q4_K, DT_Q4_K, DT_Q6_K}, {DT_Q8_0, DT_Q4_0, DT_F16}},
        .d_model = 256,
        .width = 256,
        .n_expert = 6,
        .n_shared = 1,
        .n_dense = 1,
        .alignment = 8};
    check_everything(tiny_gguf_make("m.gguf", &shape));
}

TEST(vault_equals_checkpoint) {
    smoe_model_options o = base_options();
    outcome want = run_model(test_model("tales-8m"), &o);
    check_same(&want, sculpted(test_model("tales-8m"), "bf16"), &o, "bf16 vault");
}

TEST(reference_precision_is_invariant_too) {
    const char *path = test_model("tales-8m");
    smoe_model_options o = base_options();
    o.precision = SMOE_PRECISION_REFERENCE;
    outcome want = run_model(path, &o);
    o.chunk_tok = 7;
    o.n_thread = 1;
    o.ring_bytes = ring_floor(path);
    check_same(&want, path, &o, "reference, small ring, chunk of 7");
}

/* A token's keys and values are quantised by themselves, so int8 blocks change nothing here. */
static void check_q8_kv(const char *path, smoe_precision precision) {
    smoe_model_options o = base_options();
    o.kv = SMOE_KV_Q8;
    o.precision = precision;
    outcome want = run_model(path, &o);
    const struct {
        const char *what;
        int32_t threads, chunk;
        smoe_io_choice io;
        smoe_switch lookahead;
    } cases[] = {
        {"q8 KV, chunk of 1", 2, 1, SMOE_IO_AUTO, SMOE_AUTO},
        {"q8 KV, chunk of 7, one thread", 1, 7, SMOE_IO_AUTO, SMOE_OFF},
        {"q8 KV, one chunk, three threads", 3, 192, SMOE_IO_THREADS, SMOE_ON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o.ring_bytes = ring_floor(path);
        o.n_thread = cases[i].threads;
        o.chunk_tok = cases[i].chunk;
        o.io = cases[i].io;
        o.lookahead = cases[i].lookahead;
        check_same(&want, path, &o, cases[i].what);
    }
    free(want.logits);
    free(want.ids);
    free(want.last);
}

TEST(q8_kv_is_invariant_too) {
    check_q8_kv(test_model("tales-8m"), SMOE_PRECISION_DEFAULT);
    check_q8_kv(sculpted(test_model("tales-8m"), "q4"), SMOE_PRECISION_DEFAULT);
    check_q8_kv(test_data("gguf/qwen2_moe.gguf"), SMOE_PRECISION_REFERENCE);
}

/* A prefix kept from an earlier call must not show either. */
static void check_reused_prefix(smoe_kv_type kv) {
    smoe_error err;
    const char *path = test_model("tales-8m");
    smoe_model_options options = base_options();
    options.kv = kv;
    opened o = open_with(path, &options);
    size_t vocab = (size_t)smoe_model_info(o.model)->vocab_size;
    const int32_t *prompt = prompt_of(vocab);
    float *fresh = all_logits(&o, prompt, N_PROMPT);
    int32_t other[N_PROMPT];
    for (int round = 0; round < 20; round++) {
        size_t keep = (size_t)(test_rand() % N_PROMPT);
        memcpy(other, prompt, sizeof other);
        for (size_t i = keep; i < N_PROMPT; i++) {
            other[i] = (int32_t)(test_rand() % vocab);
        }
        size_t n = 1 + (size_t)(test_rand() % N_PROMPT);
        CHECK_OK(smoe_session_sync(o.session, other, N_PROMPT, &err));
        CHECK_OK(smoe_session_sync(o.session, prompt, n, &err));
        if (memcmp(smoe_session_logits(o.session), fresh + (n - 1) * vocab,
                   vocab * sizeof(float))) {
            FAIL("kept %zu of %d, synced %zu: logits differ", keep, N_PROMPT, n);
        }
    }
    free(fresh);
    close_opened(&o);
}

TEST(reused_prefix_equals_fresh) {
    check_reused_prefix(SMOE_KV_AUTO);
    check_reused_prefix(SMOE_KV_Q8);
}

/* The task with which a thread begins, found one after the other. */
static const char *first_of(const linear_job *jobs, int32_t n_job, int32_t rows_a_task,
                            int32_t task, size_t *left_bytes) {
    for (int32_t i = 0; i < n_job; i++) {
        for (int32_t row = 0; row < jobs[i].n_row; row += rows_a_task) {
            if (task-- == 0) {
                *left_bytes = (size_t)(jobs[i].n_row - row) * jobs[i].row_bytes;
                return (const char *)jobs[i].w + (size_t)row * jobs[i].row_bytes;
            }
        }
    }
    return NULL;
}

static void check_next(const exec *e, const linear_job *jobs, int32_t n_job) {
    uint64_t work_bytes = 0;
    int32_t n_row = 0, n_task = 0, n_thread = pool_threads(e->pool);
    for (int32_t i = 0; i < n_job; i++) {
        n_row += jobs[i].n_row;
        work_bytes += (uint64_t)jobs[i].n_row * jobs[i].row_bytes * (uint64_t)jobs[i].n_tok;
    }
    int32_t per_task = linear_rows_a_task(e, n_row, work_bytes, LINEAR_ROW_GROUP);
    for (int32_t i = 0; i < n_job; i++) {
        n_task += per_task > 0 ? (jobs[i].n_row + per_task - 1) / per_task : 0;
    }
    linear_next(e, jobs, n_job);
    for (int32_t i = 0; i < n_thread; i++) {
        size_t bytes = 0, left_bytes = 0;
        const char *told = pool_next(e->pool, i, &bytes);
        const char *first =
            first_of(jobs, n_job, per_task, pool_first_task(n_task, i, n_thread), &left_bytes);
        CHECK(told == first);
        CHECK(bytes <= left_bytes && (bytes > 0) == (left_bytes > 0));
    }
}

/* What threads bring nearer while they wait is what they have first, and nothing behind it. */
TEST(what_comes_next_is_what_each_thread_has_first) {
    static const char weights[3 << 20];
    const int32_t n_rows[][3] = {{4096, 512, 512}, {100, 1, 17}, {16, 0, 0}, {1, 1, 1}, {0, 0, 0}};
    for (int32_t n_thread = 1; n_thread <= 7; n_thread++) {
        exec e = {0};
        smoe_error err;
        CHECK_OK(pool_open(&e.pool, n_thread, &err));
        for (size_t i = 0; i < sizeof n_rows / sizeof *n_rows; i++) {
            linear_job jobs[3];
            for (int32_t j = 0; j < 3; j++) {
                jobs[j] = (linear_job){.w = weights + (j << 20),
                                       .row_bytes = 256,
                                       .n_row = n_rows[i][j],
                                       .n_tok = 1 + (int32_t)(test_rand() % 3)};
            }
            check_next(&e, jobs, 3);
        }
        pool_close(e.pool);
    }
}
