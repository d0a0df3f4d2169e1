/* Matrix products against the memory they read.
 *
 * One token: all rows of a matrix larger than the caches, in GB/s of weights, beside the fastest of
 * two reads of the same memory in the same run, a plain one and one that prefetches; and rows that
 * stay in L2, which shows what the unpacking takes. 2 to 64 tokens, which are small, usual and
 * large groups of an expert in prefill: in GOP/s (a multiply and an add are two). Best of a few
 * repetitions, since other work on the machine only ever slows one down.
 *
 * smoe-bench kernels [VARIANT|- [TYPE|- [q8|f32|- [TOKENS]]]]; portable code for ggml's types only
 * when asked for.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "sculptor/quantise.h"

enum { N_COL = 2048, ROWS_A_TASK = 64, REPEATS = 8, PREFILL_TOK = 64, PREFILL_ROWS = 1024 };
static const int32_t groups[] = {2, 4, 8, 16, PREFILL_TOK};
enum { N_GROUP = sizeof groups / sizeof *groups };
static const size_t WEIGHT_BYTES = (size_t)1 << 30; /* beyond any L3: some have 256 MiB and more */
static const size_t CACHED_BYTES = (size_t)1 << 20;

typedef struct product {
    matmul_fn *fn;
    const uint8_t *w;
    size_t w_row_bytes;
    int32_t n_row;
    const void *x;
    size_t x_stride;
    int32_t n_tok;
    float *y;
} product;

typedef struct bench_state {
    uint8_t *weights;   /* WEIGHT_BYTES */
    float *x;           /* [PREFILL_TOK][N_COL] */
    act_q8 *x_q8;       /* [PREFILL_TOK][act_row_stride(N_COL)] */
    float *y;           /* large enough for either shape */
    uint64_t *read_sum; /* one for each task of a plain read, so that it is not optimised away */
    pool *threads[2];   /* of one and of two threads */
} bench_state;

static void product_task(void *job, int32_t task, int32_t thread) {
    (void)thread;
    const product *p = job;
    int32_t first = task * ROWS_A_TASK;
    int32_t n = p->n_row - first < ROWS_A_TASK ? p->n_row - first : ROWS_A_TASK;
    p->fn(p->y + first, (size_t)p->n_row, p->w + p->w_row_bytes * (size_t)first, p->w_row_bytes, n,
          N_COL, p->x, p->x_stride, p->n_tok);
}

static const size_t READ_TASK_BYTES = (size_t)1 << 20;

/* ahead: how far to prefetch in bytes, 0 for a plain read; a constant where this is inlined. */
static inline __attribute__((always_inline)) void read_memory(void *job, int32_t task,
                                                              size_t ahead) {
    typedef uint64_t lanes __attribute__((vector_size(16), aligned(16)));
    const bench_state *s = job;
    const lanes *p = (const lanes *)(const void *)(s->weights + READ_TASK_BYTES * (size_t)task);
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < READ_TASK_BYTES / sizeof *p; i += 4) {
        if (ahead > 0) {
            __builtin_prefetch((const char *)&p[i] + ahead);
        }
        a += p[i];
        b += p[i + 1];
        c += p[i + 2];
        d += p[i + 3];
    }
    a += b + c + d;
    s->read_sum[task] = a[0] + a[1];
}

static void read_task(void *job, int32_t task, int32_t thread) {
    (void)thread;
    read_memory(job, task, 0);
}

static void read_ahead_task(void *job, int32_t task, int32_t thread) {
    (void)thread;
    read_memory(job, task, 4096);
}

/* Seconds of the fastest of REPEATS runs. */
static double best_s(pool *threads, pool_fn fn, void *job, int32_t n_task) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t start = now_ns();
        pool_run(threads, fn, job, n_task);
        uint64_t took = now_ns() - start;
        best = took < best ? took : best;
    }
    return (double)best * 1e-9;
}

/* Repeats one quantised row over all of the weights' memory; for types without a quantiser, bytes
 * that are finite and normal wherever a type has its scales. Returns the number of rows. */
static int32_t fill_weights(bench_state *s, dtype type, size_t row_bytes) {
    int32_t n_row = (int32_t)(WEIGHT_BYTES / row_bytes);
    if (!quantise_row(type, s->x, N_COL, s->weights)) {
        for (size_t i = 0; i < row_bytes; i++) {
            s->weights[i] = (uint8_t)((i * 2654435761u >> 20 & 0x33) | 0x08);
        }
        for (size_t i = 0; type == DT_MXFP4 && i < row_bytes; i += dtype_get(type)->block_bytes) {
            s->weights[i] = 120; /* an exponent */
        }
    }
    for (int32_t r = 1; r < n_row; r++) {
        memcpy(s->weights + row_bytes * (size_t)r, s->weights, row_bytes);
    }
    return n_row;
}

/* Wanted by argument i of argc, or not asked for. */
static bool wanted(const char *name, int argc, char **argv, int i) {
    return argc <= i || strcmp(argv[i], "-") == 0 || strcmp(argv[i], name) == 0;
}

static bool wanted_tokens(int32_t n_tok, int argc, char **argv) {
    char name[16];
    snprintf(name, sizeof name, "%d", n_tok);
    return wanted(name, argc, argv, 3);
}

/* GB/s of weights with one token. */
static double decode_rate(const bench_state *s, const product *p, int i) {
    int32_t n_task = (p->n_row + ROWS_A_TASK - 1) / ROWS_A_TASK;
    product job = *p;
    return (double)p->n_row * (double)p->w_row_bytes /
           best_s(s->threads[i], product_task, &job, n_task) * 1e-9;
}

static void bench_decode(const bench_state *s, product p, const double *read) {
    for (int i = 0; i < 2; i++) {
        double rate = decode_rate(s, &p, i);
        printf("  %6.2f %4.0f%%", rate, 100 * rate / read[i]);
    }
    p.n_row = (int32_t)(CACHED_BYTES / p.w_row_bytes);
    printf("  %6.2f", decode_rate(s, &p, 0));
}

static void bench_groups(const bench_state *s, product p, int argc, char **argv) {
    p.n_row = PREFILL_ROWS;
    for (int i = 0; i < 2 * N_GROUP; i++) {
        p.n_tok = groups[i / 2];
        if (!wanted_tokens(p.n_tok, argc, argv)) {
            printf("  %5s", "-");
            continue;
        }
        double ops = 2.0 * p.n_tok * PREFILL_ROWS * N_COL;
        int32_t n_task = PREFILL_ROWS / ROWS_A_TASK;
        printf("  %5.0f", ops / best_s(s->threads[i % 2], product_task, &p, n_task) * 1e-9);
    }
}

static void bench_type(bench_state *s, const kernels *k, dtype type, bool q8, const double *read,
                       int argc, char **argv) {
    size_t row_bytes = dtype_row_bytes(type, N_COL);
    product p = {
        .fn = q8 ? k->mm_q8[type] : k->mm_f32[type],
        .w = s->weights,
        .w_row_bytes = row_bytes,
        .n_row = fill_weights(s, type, row_bytes),
        .x = q8 ? (const void *)s->x_q8 : (const void *)s->x,
        .x_stride = q8 ? act_row_stride(N_COL) : N_COL,
        .n_tok = 1,
        .y = s->y,
    };
    printf("%-9s %-7s %-4s", k->name, dtype_get(type)->name, q8 ? "q8" : "f32");
    if (wanted_tokens(1, argc, argv)) {
        bench_decode(s, p, read);
    } else {
        printf("  %6s %5s  %6s %5s  %6s", "-", "", "-", "", "-");
    }
    bench_groups(s, p, argc, argv);
    printf("\n");
    fflush(stdout);
}

static int open_state(bench_state *s, smoe_error *err) {
    uint64_t sum_n = WEIGHT_BYTES / READ_TASK_BYTES;
    uint64_t y_n = WEIGHT_BYTES / dtype_row_bytes(DT_Q1_0, N_COL) + 1;
    void *base = NULL;
    int rc = mem_map(&base, WEIGHT_BYTES, err);
    s->weights = base;
    if (base) {
        (void)madvise(base, WEIGHT_BYTES, MADV_HUGEPAGE); /* as the ring and the resident weights */
    }
    s->x = aligned_alloc(64, (size_t)PREFILL_TOK * N_COL * sizeof *s->x);
    s->x_q8 = aligned_alloc(64, PREFILL_TOK * act_row_stride(N_COL) * sizeof *s->x_q8);
    y_n = y_n < PREFILL_TOK * PREFILL_ROWS ? PREFILL_TOK * PREFILL_ROWS : y_n;
    s->y = aligned_alloc(64, round_up(y_n * sizeof *s->y, 64));
    s->read_sum = calloc(sum_n, sizeof *s->read_sum);
    if (rc == SMOE_OK && (!s->x || !s->x_q8 || !s->y || !s->read_sum)) {
        rc = err_no_memory(err, y_n * sizeof *s->y);
    }
    for (int32_t i = 0; rc == SMOE_OK && i < 2; i++) {
        rc = pool_open(&s->threads[i], i + 1, err);
    }
    return rc;
}

static void close_state(bench_state *s) {
    mem_unmap(s->weights, WEIGHT_BYTES);
    free(s->x);
    free(s->x_q8);
    free(s->y);
    free(s->read_sum);
    pool_close(s->threads[0]);
    pool_close(s->threads[1]);
}

static const dtype types[] = {
    DT_F32,    DT_F16,   DT_BF16,    DT_Q8,     DT_Q4,    DT_Q2,      DT_Q4_0,  DT_Q4_1,
    DT_Q5_0,   DT_Q5_1,  DT_Q8_0,    DT_Q2_K,   DT_Q3_K,  DT_Q4_K,    DT_Q5_K,  DT_Q6_K,
    DT_IQ1_S,  DT_IQ1_M, DT_IQ2_XXS, DT_IQ2_XS, DT_IQ2_S, DT_IQ3_XXS, DT_IQ3_S, DT_IQ4_NL,
    DT_IQ4_XS, DT_TQ1_0, DT_TQ2_0,   DT_MXFP4,  DT_NVFP4, DT_Q1_0,    DT_Q2_0,
};

/* The faster of both reads, with one and with two threads. */
static void measure_read(bench_state *s, double *read) {
    double plain[2], ahead[2];
    memset(s->weights, 1, WEIGHT_BYTES);
    const int32_t n_task = (int32_t)(WEIGHT_BYTES / READ_TASK_BYTES);
    for (int i = 0; i < 2; i++) {
        plain[i] = (double)WEIGHT_BYTES * 1e-9 / best_s(s->threads[i], read_task, s, n_task);
        ahead[i] = (double)WEIGHT_BYTES * 1e-9 / best_s(s->threads[i], read_ahead_task, s, n_task);
        read[i] = plain[i] > ahead[i] ? plain[i] : ahead[i];
    }
    printf("memory read: plain %.2f GB/s with 1 thread, %.2f with 2; prefetching %.2f and %.2f; "
           "%d CPUs\n",
           plain[0], plain[1], ahead[0], ahead[1], cpu_count());
}

static void bench_all(bench_state *s, int argc, char **argv) {
    double read[2];
    measure_read(s, read);
    printf("%-22s  %-34s  %s\n", "", "1 token: GB/s, of read", "GOP/s with 1 and 2 threads");
    printf("%-9s %-7s %-4s  %-12s  %-12s  %6s  %12s  %12s  %12s  %12s  %12s\n", "variant", "type",
           "act", "1 thread", "2 threads", "cached", "2 tokens", "4", "8", "16", "64");
    for (int v = 0; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        for (size_t i = 0; i < 2 * sizeof types / sizeof *types; i++) {
            dtype type = types[i / 2];
            bool q8 = i % 2 == 0, slow = v == 0 && type > DT_Q2;
            if ((q8 && !k->mm_q8[type]) || (slow && argc == 0) || !wanted(k->name, argc, argv, 0) ||
                !wanted(dtype_get(type)->name, argc, argv, 1) ||
                !wanted(q8 ? "q8" : "f32", argc, argv, 2)) {
                continue;
            }
            bench_type(s, k, type, q8, read, argc, argv);
        }
    }
}

int bench_kernels(int argc, char **argv) {
    bench_state s = {0};
    smoe_error err;
    if (open_state(&s, &err) != SMOE_OK) {
        fprintf(stderr, "smoe-bench: %s\n", err.text);
        close_state(&s);
        return 1;
    }
    uint32_t seed = 1;
    for (size_t i = 0; i < (size_t)PREFILL_TOK * N_COL; i++) {
        seed = seed * 1664525u + 1013904223u;
        s.x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    for (size_t t = 0; t < PREFILL_TOK; t++) {
        kernels_variant(0)->quantize_act(s.x + t * N_COL, N_COL,
                                         s.x_q8 + t * act_row_stride(N_COL));
    }
    bench_all(&s, argc, argv);
    close_state(&s);
    return 0;
}
