/* What the benchmark program's files share. A benchmark prints a table to standard output. */
#ifndef SMOE_BENCH_BENCH_H
#define SMOE_BENCH_BENCH_H

/* argv: what follows the benchmark's name. Returns the exit status. */
typedef int bench_fn(int argc, char **argv);

bench_fn bench_kernels;   /* bench_kernels.c */
bench_fn bench_kv;        /* bench_kv.c */
bench_fn bench_model;     /* bench_model.c */
bench_fn bench_codebooks; /* bench_codebooks.c */
bench_fn bench_grammar;   /* bench_grammar.c */
bench_fn bench_tokenizer; /* bench_tokenizer.c */

#endif
