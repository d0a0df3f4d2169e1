/* Attention over a long KV cache: scores and weighted sums of one token.
 *
 * CONTEXT_TOK positions of DIM values for each head of the cache, in tiles of TILE_TOK rows as the
 * attention layer takes them, head after head through more memory than the caches hold, one thread.
 * For one query head on each head of the cache and for several that share it: the time of a head,
 * and GB/s of stored bytes. Best of a few repetitions.
 *
 * smoe-bench kv [VARIANT [TYPE]]
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/kernels.h"

enum { CONTEXT_TOK = 8192, DIM = 128, TILE_TOK = 128, MAX_QUERIES = 64, REPEATS = 9 };
static const int32_t query_heads[] = {1, 4, 8, 32, MAX_QUERIES};
static const size_t CACHE_BYTES = (size_t)128 << 20;
static const char *const type_name[KV_TYPES] = {"f32", "f16", "q8"};

typedef struct kv_bench {
    uint8_t *cache;
    float q[MAX_QUERIES * DIM];
    float p[MAX_QUERIES * TILE_TOK]; /* what kv_mix weighs with: nothing that grows */
    float score[MAX_QUERIES * TILE_TOK];
    float acc[MAX_QUERIES * DIM];
    float sum; /* of results, so that nothing is optimised away */
} kv_bench;

static void fill_cache(kv_bench *b, enum kv_type type, size_t row_bytes) {
    float row[DIM];
    uint32_t seed = 1;
    for (size_t r = 0; r < CACHE_BYTES / row_bytes; r++) {
        for (int c = 0; r < 256 && c < DIM; c++) {
            seed = seed * 1664525u + 1013904223u;
            row[c] = (float)(int32_t)seed * 0x1p-31f;
        }
        if (r < 256) {
            kernels_variant(0)->kv_store[type](row, DIM, b->cache + r * row_bytes);
        } else {
            memcpy(b->cache + r * row_bytes, b->cache + r % 256 * row_bytes, row_bytes);
        }
    }
}

/* All tiles of all heads, for scores or for weighted sums. */
static void pass(kv_bench *b, const kernels *k, enum kv_type type, bool mixes, int32_t n_q,
                 size_t n_tile, size_t row_bytes) {
    for (size_t t = 0; t < n_tile; t++) {
        kv_rows rows = {b->cache + t * TILE_TOK * row_bytes, kv_row_units(type, DIM), TILE_TOK,
                        DIM};
        if (mixes) {
            k->kv_mix[type](b->p, TILE_TOK, n_q, &rows, b->acc);
        } else {
            k->kv_dot[type](b->q, n_q, &rows, 0.1f, b->score, TILE_TOK);
        }
        b->sum += b->acc[0] + b->score[0];
    }
}

static double best_s(kv_bench *b, const kernels *k, enum kv_type type, bool mixes, int32_t n_q,
                     size_t n_tile, size_t row_bytes) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t start = now_ns();
        pass(b, k, type, mixes, n_q, n_tile, row_bytes);
        uint64_t took = now_ns() - start;
        best = took < best ? took : best;
    }
    return (double)best * 1e-9;
}

static void bench_type(kv_bench *b, const kernels *k, enum kv_type type) {
    size_t row_bytes = kv_row_units(type, DIM) * kv_unit_of(type).bytes;
    size_t head_bytes = CONTEXT_TOK * row_bytes, n_head = CACHE_BYTES / head_bytes;
    fill_cache(b, type, row_bytes);
    printf("%-9s %-5s", k->name, type_name[type]);
    for (size_t i = 0; i < 2 * sizeof query_heads / sizeof *query_heads; i++) {
        size_t n_tile = n_head * CONTEXT_TOK / TILE_TOK;
        double s =
            best_s(b, k, type, i % 2, query_heads[i / 2], n_tile, row_bytes) / (double)n_head;
        printf("  %7.0f us %5.1f", s * 1e6, (double)head_bytes / s * 1e-9);
    }
    putchar('\n');
    fflush(stdout);
}

int bench_kv(int argc, char **argv) {
    static kv_bench b;
    smoe_error err;
    void *base = NULL;
    if (mem_map(&base, CACHE_BYTES, &err) != SMOE_OK) {
        fprintf(stderr, "smoe-bench: %s\n", err.text);
        return 1;
    }
    (void)madvise(base, CACHE_BYTES, MADV_HUGEPAGE);
    b.cache = base;
    memset(b.cache, 1, CACHE_BYTES);
    for (int i = 0; i < MAX_QUERIES * DIM; i++) {
        b.q[i] = (float)(i % 17 - 8) * 0.1f;
    }
    for (int i = 0; i < MAX_QUERIES * TILE_TOK; i++) {
        b.p[i] = (float)(i % 13 - 6) * 1e-6f;
    }
    printf("a head of %d positions, %d values; one thread; GB/s of stored bytes\n", CONTEXT_TOK,
           DIM);
    printf("%-15s", "");
    for (size_t i = 0; i < sizeof query_heads / sizeof *query_heads; i++) {
        printf("  %d quer%s: kv_dot    kv_mix         ", query_heads[i],
               query_heads[i] == 1 ? "y  " : "ies");
    }
    putchar('\n');
    for (int v = 0; kernels_variant(v); v++) {
        for (int type = 0; type < KV_TYPES; type++) {
            const kernels *k = kernels_variant(v);
            if ((argc > 0 && strcmp(argv[0], k->name) != 0) ||
                (argc > 1 && strcmp(argv[1], type_name[type]) != 0)) {
                continue;
            }
            bench_type(&b, k, (enum kv_type)type);
        }
    }
    mem_unmap(base, CACHE_BYTES);
    return b.sum == 1.0f; /* never */
}
