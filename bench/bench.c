/* smoe-bench NAME [ARGUMENTS]: the table of benchmarks. Each lives in a file of its own. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *summary;
    bench_fn *fn;
} benches[] = {
    {"kernels", "matrix products of every variant, beside a plain memory read", bench_kernels},
    {"kv", "attention over a long KV cache of every type", bench_kv},
    {"model", "prefill and decode of a checkpoint and its vaults", bench_model},
    {"codebooks", "derive the value tables of Q4 and Q2 and compare with the built-in ones",
     bench_codebooks},
    {"grammar", "token masks of grammars and JSON schemas", bench_grammar},
    {"tokenizer", "encoding, decoding and opening of a tokenizer", bench_tokenizer},
};
enum { N_BENCH = sizeof benches / sizeof *benches };

int main(int argc, char **argv) {
    for (int i = 0; argc > 1 && i < N_BENCH; i++) {
        if (strcmp(argv[1], benches[i].name) == 0) {
            return benches[i].fn(argc - 2, argv + 2);
        }
    }
    fprintf(stderr, "usage: smoe-bench NAME [ARGUMENTS]\n");
    for (int i = 0; i < N_BENCH; i++) {
        fprintf(stderr, "  %-10s %s\n", benches[i].name, benches[i].summary);
    }
    return 1;
}
