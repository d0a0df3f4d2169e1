/* The conductor under stress: ceilings, allocation in the loop, failing drives, cancelling, NaN. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conductor/machine.h"
#include "conductor/model.h"
#include "conductor/plan.h"
#include "faulty_io.h"
#include "layers/ahead.h"
#include "model_util.h"
#include "tiny_gguf.h"

static smoe_error err;

static const int32_t PROMPT[] = {3138, 625, 258, 535, 450, 308, 258};
enum { N_PROMPT = sizeof PROMPT / sizeof *PROMPT };

/* ---- sessions and arguments */

/* What the gate itself makes of the stream as it is now. */
static void score_exactly(const exec *e, int32_t layer, float *score) {
    const weight *gate = &e->scout->layer[layer][ROLE_ROUTER];
    size_t d = (size_t)e->spec->d_model;
    float x[1024], row[1024];
    CHECK(d <= 1024);
    e->kernels->rms_norm(e->s.x, e->scout->layer[layer][ROLE_FFN_NORM].data,
                         (float)e->spec->norm_eps, (int32_t)d, x);
    for (int32_t r = 0; r < gate->n_row; r++) {
        e->kernels->dequant_row[gate->type]((const char *)gate->data + (size_t)r * gate->row_bytes,
                                            (int32_t)d, row);
        score[r] = 0;
        for (size_t c = 0; c < d; c++) {
            score[r] += row[c] * x[c];
        }
    }
}

/* How many experts the gate puts clearly before this one. */
static int32_t clearly_better(const float *score, int32_t n, int32_t expert) {
    int32_t n_better = 0;
    for (int32_t i = 0; i < n; i++) {
        n_better += score[i] > score[expert] + 0.1f;
    }
    return n_better;
}

/* Guesses are made with copies of the gates in 8 bits; what they name is what the gates would, but
 * for scores that are nearly equal. By falling score: what is least sure is read last, or not. */
TEST(guesses_are_those_of_the_gates) {
    smoe_model_options options = {.n_thread = 1, .context_tok = 16};
    opened o = open_with(test_model("tales-8m"), &options);
    CHECK_OK(smoe_session_sync(o.session, PROMPT, N_PROMPT, &err));
    const exec *e = &o.model->exec;
    const ahead_gates *gates = &o.model->ahead.gates;
    ahead_jobs jobs;
    int32_t rank[AHEAD_LAYERS][16], n_layer = e->spec->n_layer, layer[AHEAD_LAYERS];
    for (int32_t first = 0; first < n_layer; first += AHEAD_LAYERS) {
        int32_t n = n_layer - first < AHEAD_LAYERS ? n_layer - first : AHEAD_LAYERS;
        for (int32_t i = 0; i < n; i++) {
            layer[i] = first + i;
        }
        moe_guess_begin(e, gates, layer, n, &jobs);
        linear_run(e, jobs.job, n);
        moe_guess_end(e, &jobs, rank[0], 16);
        for (int32_t i = 0; i < n; i++) {
            const ffn_spec *ffn = &e->spec->layer[layer[i]].ffn;
            float score[64];
            CHECK(ffn->n_expert <= 64 && ffn->n_expert_used <= 16);
            score_exactly(e, layer[i], score);
            for (int32_t r = 0; r < ffn->n_expert_used; r++) {
                CHECK(clearly_better(score, ffn->n_expert, rank[i][r]) <= r);
            }
            CHECK_INT(moe_guess_union(e, gates, layer[i], 1), ffn->n_expert_used);
            for (int32_t r = 0; r < ffn->n_expert_used; r++) {
                CHECK(e->s.is_ahead[rank[i][r]]);
                CHECK(r == 0 || e->s.ahead[r] > e->s.ahead[r - 1]);
            }
        }
    }
    close_opened(&o);
}

static int32_t likeliest(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* Of layers behind the next one only what has proved to be sure is bet on: three of four of it are
 * right, where of all guesses fewer would be. */
TEST(far_bets_are_mostly_right) {
    enum { N_TOK = 96 };
    smoe_model_options options = {.n_thread = 1,
                                  .context_tok = N_TOK,
                                  .ring_bytes = (uint64_t)2 << 20,
                                  .probe = SMOE_PROBE_OFF,
                                  .lookahead = SMOE_ON};
    opened o = open_with(test_model("tales-8m"), &options);
    int32_t ids[N_TOK + 1];
    memcpy(ids, PROMPT, sizeof PROMPT);
    for (size_t n = N_PROMPT; n <= N_TOK; n++) {
        CHECK_OK(smoe_session_sync(o.session, ids, n, &err));
        ids[n] = likeliest(smoe_session_logits(o.session), o.model->source->spec.vocab_size);
    }
    smoe_stats st;
    smoe_model_stats(o.model, &st);
    CHECK(st.guessed > 0 && st.guessed_right < st.guessed && st.guessed <= st.guess_named);
    CHECK(st.guessed_far > 100 && st.guessed_far < 2 * st.guessed);
    CHECK(st.guessed_far_right * 10 > st.guessed_far * 7);
    CHECK(st.guessed_far_right <= st.guessed_far);
    close_opened(&o);
}

TEST(session_refuses_what_cannot_be) {
    smoe_model_options options = {.n_thread = 1, .context_tok = 16};
    opened o = open_with(test_model("tales-8m"), &options);
    int32_t ids[17] = {0};
    CHECK_ERR(smoe_session_sync(o.session, ids, 0, &err), SMOE_ERR_ARGUMENT);
    CHECK_ERR(smoe_session_sync(o.session, ids, 17, &err), SMOE_ERR_CONTEXT);
    ids[3] = 4096;
    CHECK_ERR(smoe_session_sync(o.session, ids, 5, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "token 3 is 4096");
    ids[3] = -1;
    CHECK_ERR(smoe_session_sync(o.session, ids, 5, &err), SMOE_ERR_ARGUMENT);
    smoe_session *second;
    CHECK_ERR(smoe_session_open(&second, o.model, &err), SMOE_ERR_MEMORY);
    ids[3] = 0;
    CHECK_OK(smoe_session_sync(o.session, ids, 16, &err));
    close_opened(&o);
    options.context_tok = 5000;
    CHECK_ERR(smoe_model_open(&o.model, test_model("tales-8m"), &options, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "1024");
}

TEST(generation_ends_at_context_stop_and_end) {
    smoe_model_options options = {.n_thread = 2, .context_tok = 32};
    opened o = open_with(test_model("tales-8m"), &options);
    static const char *const stop[] = {"never there", "great"};
    smoe_generate_options g = {.sampling = {.top_p = 1, .repetition_penalty = 1},
                               .max_tok = -1,
                               .stop = stop,
                               .n_stop = 2};
    int32_t *ids = NULL;
    size_t n = 0;
    smoe_finish finish;
    /* " great deal of work in the country, ..." is the golden continuation */
    CHECK_OK(smoe_generate(o.session, PROMPT, N_PROMPT, &g, &ids, &n, &finish, &err));
    CHECK_INT(finish, SMOE_FINISH_STOP);
    CHECK(n >= 1 && n <= 3);
    smoe_free(ids);
    g.n_stop = 0;
    CHECK_OK(smoe_generate(o.session, PROMPT, N_PROMPT, &g, &ids, &n, &finish, &err));
    CHECK_INT(finish, SMOE_FINISH_LENGTH);
    CHECK_INT(n, 32 - N_PROMPT + 1);
    smoe_free(ids);
    close_opened(&o);
}

/* Heads of 16 values take a whole block of q8 each. */
static void check_kv_bytes(const char *path, smoe_precision precision, smoe_kv_type kv,
                           smoe_kv_type want, const char *name, uint64_t token_bytes) {
    smoe_model_options options = {
        .n_thread = 1, .context_tok = 100, .precision = precision, .kv = kv};
    opened o = open_with(path, &options);
    const smoe_plan *plan = smoe_model_plan(o.model);
    smoe_stats stats;
    smoe_model_stats(o.model, &stats);
    CHECK_INT(plan->kv, want);
    CHECK_TEXT(stats.kv_type, name);
    CHECK_INT(o.session->kv.bytes, 100 * token_bytes);
    uint64_t vocab = (uint64_t)smoe_model_info(o.model)->vocab_size;
    CHECK_INT(plan->kv_bytes, 100 * token_bytes + vocab * 4 + 100 * 4);
    close_opened(&o);
}

TEST(kv_types_take_what_the_plan_says) {
    const char *tales = test_model("tales-8m"), *small = test_data("fixtures/mixtral");
    const smoe_precision usual = SMOE_PRECISION_DEFAULT, exact = SMOE_PRECISION_REFERENCE;
    smoe_info info;
    CHECK_OK(smoe_describe(tales, &info, &err));
    uint64_t f16 = info.kv_token_bytes, q8 = info.kv_q8_token_bytes;
    CHECK_INT(q8, f16 / 64 * 34);
    check_kv_bytes(tales, usual, SMOE_KV_AUTO, SMOE_KV_F16, "f16", f16);
    check_kv_bytes(tales, exact, SMOE_KV_AUTO, SMOE_KV_F32, "f32", 2 * f16);
    check_kv_bytes(tales, usual, SMOE_KV_F32, SMOE_KV_F32, "f32", 2 * f16);
    check_kv_bytes(tales, exact, SMOE_KV_F16, SMOE_KV_F16, "f16", f16);
    check_kv_bytes(tales, usual, SMOE_KV_Q8, SMOE_KV_Q8, "q8", q8);
    CHECK_OK(smoe_describe(small, &info, &err));
    CHECK_INT(info.kv_q8_token_bytes, info.kv_token_bytes / 32 * 34);
    check_kv_bytes(small, usual, SMOE_KV_Q8, SMOE_KV_Q8, "q8", info.kv_q8_token_bytes);
    smoe_model *model;
    smoe_model_options options = {.kv = (smoe_kv_type)(SMOE_KV_Q8 + 1)};
    CHECK_ERR(smoe_model_open(&model, tales, &options, &err), SMOE_ERR_ARGUMENT);
}

/* ---- one ceiling */

/* Runs in a process of its own, so that VmHWM is this model's alone. */
static void check_ceiling(const char *path, uint64_t ceiling, bool reference) {
    smoe_model_options options = {.n_thread = 2,
                                  .context_tok = 256,
                                  .memory_bytes = ceiling,
                                  .precision = reference ? SMOE_PRECISION_REFERENCE
                                                         : SMOE_PRECISION_DEFAULT};
    opened o = open_with(path, &options);
    const smoe_plan *plan = smoe_model_plan(o.model);
    CHECK(plan->process_bytes + plan->scout_bytes + plan->kv_bytes + plan->scratch_bytes +
              plan->ring_bytes + plan->reserve_bytes <=
          ceiling);
    int32_t ids[200];
    for (int i = 0; i < 200; i++) {
        ids[i] = (int32_t)(test_rand() % 4096);
    }
    CHECK(window_nll(&o, ids, 200) > 0); /* keeps no rows: the test's own memory counts too */
    free(greedy(&o, ids, 50, 40));
    smoe_stats stats;
    smoe_model_stats(o.model, &stats);
    if (stats.peak_process_bytes > ceiling) {
        FAIL("%s: peak %llu bytes above the ceiling of %llu", path,
             (unsigned long long)stats.peak_process_bytes, (unsigned long long)ceiling);
    }
    CHECK_INT(stats.uses, stats.hits + stats.inflight_hits + stats.misses);
    close_opened(&o);
}

/* The smallest ceiling that the plan names for this process as it is now. */
static uint64_t smallest_ceiling(const char *path, bool reference) {
    smoe_model *model;
    smoe_model_options options = {.n_thread = 2,
                                  .context_tok = 256,
                                  .memory_bytes = 1,
                                  .precision = reference ? SMOE_PRECISION_REFERENCE
                                                         : SMOE_PRECISION_DEFAULT};
    CHECK_ERR(smoe_model_open(&model, path, &options, &err), SMOE_ERR_MEMORY);
    const char *at = strstr(err.text, "works is ");
    CHECK(at);
    return strtoull(at + 9, NULL, 10);
}

static void check_ceilings(const char *path, bool reference) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    check_ceiling(path, smallest_ceiling(path, reference), reference);
}

TEST(ceiling_holds_checkpoint) {
    check_ceilings(test_model("tales-8m"), false);
}

TEST(ceiling_holds_reference) {
    check_ceilings(test_model("tales-8m"), true);
}

TEST(ceiling_holds_q4_vault) {
    check_ceilings(sculpted(test_model("tales-8m"), "q4"), false);
}

TEST(ceiling_holds_28m_vault) {
    check_ceilings(sculpted(test_vectors("models/tales-28m"), "q4"), false);
}

/* The kernel kills what goes beyond a cgroup's limit, and counts page tables and neighbours too. */
/* Whole pages at the start of a file, at most n of them, that the page cache holds. */
static size_t cached_pages(const char *path, size_t n) {
    unsigned char held[64];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n_held = 0;
    int fd = open(path, O_RDONLY);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    n = n < (size_t)st.st_size / page ? n : (size_t)st.st_size / page;
    CHECK(n > 0 && n <= sizeof held);
    void *map = mmap(NULL, n * page, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && mincore(map, n * page, held) == 0);
    for (size_t i = 0; i < n; i++) {
        n_held += held[i] & 1;
    }
    munmap(map, n * page);
    close(fd);
    return n_held;
}

static void drop_from_page_cache(const char *path) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && fsync(fd) == 0);
    CHECK_INT(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

/* With direct I/O nothing of a file's head stays in the page cache, which a cgroup counts as the
 * process's: a tokenizer makes megabytes of it. */
static void check_head_is_forgotten(const char *path, size_t n_page) {
    drop_from_page_cache(path);
    if (cached_pages(path, n_page) > 0) {
        SKIP("this file system keeps its files in memory");
    }
    opened o = open_with(path, NULL);
    smoe_stats stats;
    smoe_model_stats(o.model, &stats);
    bool is_direct = stats.direct;
    close_opened(&o);
    if (!is_direct) {
        SKIP("no direct I/O here");
    }
    CHECK_INT(cached_pages(path, n_page), 0);
}

TEST(heads_leave_the_page_cache) {
    tiny_gguf shape = {.form = TINY_STACKED};
    char path[512];
    snprintf(path, sizeof path, "%s", tiny_gguf_make("head.gguf", &shape));
    check_head_is_forgotten(path, 64);
    snprintf(path, sizeof path, "%s", sculpted(test_model("tales-8m"), "q4"));
    check_head_is_forgotten(path, 1);
}

TEST(plan_stays_within_what_a_cgroup_leaves) {
    source *s;
    smoe_plan free_plan, p;
    smoe_model_options o = {.memory_bytes = 20 << 20, .n_thread = 1, .context_tok = 64};
    machine_memory machine = {.available_bytes = 1 << 30, .process_bytes = 5 << 20};
    CHECK_OK(source_open(&s, test_model("tales-8m"), &err));
    CHECK_OK(plan_defaults(&o, &s->spec, &err));
    CHECK_OK(plan_make(&free_plan, s, &o, &machine, &err));
    CHECK_INT(free_plan.ceiling_bytes, 20 << 20);
    CHECK(free_plan.reserve_bytes >= (20 << 20) / 512);
    machine.limit_bytes = 30 << 20;
    CHECK_OK(plan_make(&p, s, &o, &machine, &err));
    CHECK_INT(p.ring_bytes, free_plan.ring_bytes);
    machine.limit_bytes = free_plan.smallest_ceiling_bytes;
    CHECK_OK(plan_make(&p, s, &o, &machine, &err));
    CHECK_INT(p.ceiling_bytes, machine.limit_bytes);
    CHECK(p.ring_bytes < free_plan.ring_bytes);
    CHECK(p.process_bytes + p.scout_bytes + p.kv_bytes + p.scratch_bytes + p.ring_bytes +
              p.reserve_bytes <=
          machine.limit_bytes);
    machine.limit_bytes -= 1 << 20;
    CHECK_ERR(plan_make(&p, s, &o, &machine, &err), SMOE_ERR_MEMORY);
    CHECK_HAS(err.text, "what the cgroup's limit leaves");
    source_close(s);
}

/* A long chunk is for who has the memory: it never costs the ring an expert. */
TEST(plan_takes_longer_chunks_only_beside_every_expert) {
    source *s;
    smoe_plan p;
    smoe_model_options o = {.memory_bytes = 1 << 30, .n_thread = 1};
    machine_memory machine = {.available_bytes = (uint64_t)2 << 30, .process_bytes = 5 << 20};
    CHECK_OK(source_open(&s, test_model("tales-8m"), &err));
    CHECK_OK(plan_defaults(&o, &s->spec, &err));
    uint64_t full = streamer_ring_full(s);
    CHECK_OK(plan_make(&p, s, &o, &machine, &err));
    CHECK_INT(p.chunk_tok, 512);
    bool is_shorter = false;
    for (int32_t mib = 1024; mib >= 16; mib -= mib > 64 ? 16 : 1) {
        o.memory_bytes = (uint64_t)mib << 20;
        CHECK_OK(plan_make(&p, s, &o, &machine, &err));
        bool holds_all = p.ring_bytes >= full;
        CHECK(p.chunk_tok <= 256 || holds_all || p.scratch_bytes <= p.ring_bytes / 8);
        is_shorter |= holds_all && p.chunk_tok <= 256;
    }
    CHECK(is_shorter);
    source_close(s);
}

TEST(ring_below_a_token_cycle_is_refused_by_name) {
    smoe_model *model;
    smoe_model_options options = {.n_thread = 1, .ring_bytes = 4096};
    CHECK_ERR(smoe_model_open(&model, test_model("tales-8m"), &options, &err), SMOE_ERR_ARGUMENT);
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)ring_floor(test_model("tales-8m")));
    CHECK_HAS(err.text, number);
    CHECK_HAS(err.text, "token cycle");
}

/* ---- no allocation in the loops */

static bool forbid_after_first(void *user, const smoe_token *token) {
    int *n = user;
    (void)token;
    if (++*n == 1) {
        alloc_guard_forbid(true);
    }
    return false;
}

static void check_no_allocation(smoe_model_options options) {
    static const char *const stop[] = {"no such text"};
    int n_token = 0;
    opened o = open_with(test_model("tales-8m"), &options);
    smoe_generate_options g = {.sampling = smoe_model_sampling(o.model),
                               .max_tok = 40,
                               .ignore_end = true,
                               .stop = stop,
                               .n_stop = 1,
                               .on_token = forbid_after_first,
                               .user = &n_token};
    CHECK_OK(smoe_generate(o.session, PROMPT, N_PROMPT, &g, NULL, NULL, NULL, &err));
    alloc_guard_forbid(false);
    CHECK_INT(n_token, 40);
    CHECK_INT(alloc_guard_violations(), 0);
    /* prefill of a warm session */
    int32_t ids[100];
    for (int i = 0; i < 100; i++) {
        ids[i] = (int32_t)(test_rand() % 4096);
    }
    alloc_guard_forbid(true);
    CHECK_OK(smoe_session_sync(o.session, ids, 100, &err));
    alloc_guard_forbid(false);
    CHECK_INT(alloc_guard_violations(), 0);
    close_opened(&o);
}

TEST(loops_do_not_allocate) {
    if (!alloc_guard_active()) {
        SKIP("the allocation guard is not in this build");
    }
    smoe_model_options options = {.n_thread = 2, .context_tok = 128};
    options.ring_bytes = ring_floor(test_model("tales-8m"));
    check_no_allocation(options);
    options.io = SMOE_IO_THREADS;
    options.spec_ranks = 4;
    check_no_allocation(options);
    options.precision = SMOE_PRECISION_REFERENCE;
    check_no_allocation(options);
}

/* Every allocation of opening fails once; each time there is an error and nothing leaks or crashes.
 */
TEST(opening_survives_each_failed_allocation) {
    if (!alloc_guard_active()) {
        SKIP("the allocation guard is not in this build");
    }
    const char *path = test_data("bad/ok-model");
    smoe_model_options options = {.n_thread = 1, .context_tok = 16};
    opened o = open_with(path, &options); /* counts, and warms up what the C library keeps */
    close_opened(&o);
    uint64_t before = alloc_guard_count();
    o = open_with(path, &options);
    uint64_t n = alloc_guard_count() - before;
    close_opened(&o);
    uint64_t step = test_thorough() ? 1 : n / 150 + 1;
    for (uint64_t i = 1; i <= n; i += step) {
        smoe_model *model = NULL;
        err.text[0] = '\0';
        alloc_guard_fail_at(i);
        int rc = smoe_model_open(&model, path, &options, &err);
        bool refused = alloc_guard_has_failed();
        alloc_guard_fail_at(0);
        if (rc == SMOE_OK) {
            smoe_model_close(model);
        } else if (!err.text[0]) {
            FAIL("allocation %llu: an error without a text", (unsigned long long)i);
        }
        CHECK(refused || rc == SMOE_OK);
    }
}

/* ---- failing drives */

typedef struct faulted {
    smoe_model *model;
    smoe_session *session;
} faulted;

static faulted open_faulty(const char *path) {
    faulted f;
    smoe_model_options options = {.n_thread = 2, .context_tok = 128, .direct = SMOE_OFF};
    options.ring_bytes = ring_floor(path);
    faulty_reset();
    CHECK_OK(model_open(&f.model, path, &options, &faulty_ops, &err));
    CHECK_OK(smoe_session_open(&f.session, f.model, &err));
    return f;
}

static void close_faulty(faulted *f) {
    smoe_session_close(f->session);
    smoe_model_close(f->model);
    CHECK_INT(faulty_open_count(), 0);
}

/* A fault that persists fails the request with a reason; once lifted, the same session gives the
 * right logits. */
static void check_persistent(const fault *bad, int code, const char *part) {
    const char *path = sculpted(test_model("tales-8m"), "q4");
    faulted f = open_faulty(path);
    size_t vocab = (size_t)smoe_model_info(f.model)->vocab_size;
    CHECK_OK(smoe_session_sync(f.session, PROMPT, N_PROMPT, &err));
    float *want = malloc(vocab * sizeof *want);
    memcpy(want, smoe_session_logits(f.session), vocab * sizeof *want);
    CHECK_OK(smoe_session_sync(f.session, (const int32_t[]){1}, 1, &err)); /* forget the prefix */
    fault here = *bad;
    if (bad->kind == FAULT_FLIP) { /* in the record that was read first */
        here.file = faulty_log(0)->file;
        here.from = faulty_log(0)->offset + 100;
        here.to = here.from + 1;
    }
    faulty_add(&here);
    CHECK_ERR(smoe_session_sync(f.session, PROMPT, N_PROMPT, &err), code);
    CHECK_HAS(err.text, part);
    CHECK_HAS(err.text, "expert");
    CHECK_HAS(err.text, ".smoe");
    faulty_clear();
    CHECK_OK(smoe_session_sync(f.session, PROMPT, N_PROMPT, &err));
    CHECK(memcmp(want, smoe_session_logits(f.session), vocab * sizeof *want) == 0);
    free(want);
    close_faulty(&f);
}

TEST(read_errors_lose_only_the_request) {
    check_persistent(&(fault){.kind = FAULT_ERRNO, .value = EIO, .times = FAULT_FOREVER},
                     SMOE_ERR_IO, "Input/output error");
}

TEST(flipped_bits_are_found_and_named) {
    check_persistent(&(fault){.kind = FAULT_FLIP, .times = FAULT_FOREVER}, SMOE_ERR_CHECKSUM,
                     "checksum");
}

TEST(a_file_cut_short_is_named) {
    check_persistent(&(fault){.kind = FAULT_EOF, .times = FAULT_FOREVER}, SMOE_ERR_IO, "too early");
}

TEST(passing_faults_do_not_show) {
    const char *path = sculpted(test_model("tales-8m"), "q4");
    opened plain = open_with(path, NULL);
    int32_t *want = greedy(&plain, PROMPT, N_PROMPT, 20);
    close_opened(&plain);
    faulted f = open_faulty(path);
    for (int i = 0; i < 40; i++) {
        faulty_add(&(fault){.kind = i % 2 ? FAULT_HALF : FAULT_ERRNO,
                            .value = i % 4 ? EINTR : EIO,
                            .nth = 9 * i,
                            .times = 1});
    }
    opened o = {f.model, f.session};
    int32_t *got = greedy(&o, PROMPT, N_PROMPT, 20);
    CHECK(memcmp(want, got, 20 * sizeof *got) == 0);
    smoe_stats stats;
    smoe_model_stats(f.model, &stats);
    CHECK(stats.read_retries > 0);
    free(want);
    free(got);
    close_faulty(&f);
}

/* ---- cancelling */

typedef struct canceller {
    smoe_session *session;
    int after;
} canceller;

static bool cancel_after(void *user, const smoe_token *token) {
    canceller *c = user;
    (void)token;
    if (c->after-- == 0) {
        smoe_session_cancel(c->session);
    }
    return false;
}

/* Between two tokens no call is in progress, so the cancel must hold for the one that comes. */
TEST(cancel_ends_generation_and_keeps_what_there_is) {
    opened o = open_with(test_model("tales-8m"), NULL);
    canceller c = {o.session, 5};
    smoe_generate_options g = {.sampling = {.top_p = 1, .repetition_penalty = 1},
                               .max_tok = 50,
                               .on_token = cancel_after,
                               .user = &c};
    int32_t *ids = NULL;
    size_t n = 0;
    CHECK_ERR(smoe_generate(o.session, PROMPT, N_PROMPT, &g, &ids, &n, NULL, &err),
              SMOE_ERR_CANCELLED);
    CHECK_INT(n, 6);
    smoe_free(ids);
    free(greedy(&o, PROMPT, N_PROMPT, 10)); /* and the session goes on */
    close_opened(&o);
}
