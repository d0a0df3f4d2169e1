/* Measuring for `smoe bench`: each measurement in a process of its own, so that it begins with
 * nothing in memory and a peak of its own. Prints nothing but progress. */
#ifndef SMOE_CLI_BENCH_RUN_H
#define SMOE_CLI_BENCH_RUN_H

#include "cli/common.h"

enum { BENCH_REPEATS_MAX = 100, LIMIT_BENCH_TOK = 1 << 24 };

enum bench_kind { BENCH_PREFILL, BENCH_DECODE, BENCH_KINDS };

typedef struct bench_job {
    const char *path;
    model_flags *model; /* memory_bytes is set for each row */
    int32_t n_tok[BENCH_KINDS];
    int32_t depth_tok; /* tokens before those that are measured */
    int32_t n_repeat;
    bool cold;      /* each repeat with a fresh ring and nothing of the model in the page cache */
    bool show_step; /* say on stderr what is being done */
} bench_job;

typedef struct bench_run {
    uint64_t ns;
    smoe_stats stats; /* of these tokens alone */
} bench_run;

typedef struct bench_result {
    int code; /* 0, or a smoe_status that error explains */
    smoe_error error;
    smoe_plan plan;
    smoe_info info;
    int32_t n_run; /* of each kind that was asked for */
    bench_run run[BENCH_KINDS][BENCH_REPEATS_MAX];
} bench_result;

/* Runs a job under one ceiling (0: the automatic one). Returns false when Ctrl-C ended it; else out
 * holds the runs or an error. */
bool bench_measure(const bench_job *job, uint64_t memory_bytes, bench_result *out);

#endif
