/* Whole models: prefill and decode of a checkpoint and of vaults made from it, resident and with
 * the smallest ring, each the median of several runs with the spread beside it.
 *
 * smoe-bench model [CHECKPOINT]: default is tales-28m of the full vectors, else the bundled model.
 * Uses the library through smoe.h alone.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "smoe.h"

enum { REPEATS = 7, PREFILL_TOK = 512, DECODE_TOK = 128, CONTEXT_TOK = 768 };

static int complain(const smoe_error *err) {
    fprintf(stderr, "smoe-bench model: %s\n", err->text);
    return -1;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_rate(double *rate) {
    qsort(rate, REPEATS, sizeof *rate, compare);
    printf("  %8.1f (%.1f to %.1f)", rate[REPEATS / 2], rate[0], rate[REPEATS - 1]);
}

/* One repetition: a fresh prompt, then greedy decoding after it. */
static int measure(smoe_model *model, smoe_session *session, int repeat, double *prefill,
                   double *decode, smoe_stats *stats, smoe_error *err) {
    int32_t ids[PREFILL_TOK];
    uint32_t state = (uint32_t)repeat * 2654435761u + 1;
    uint32_t vocab = (uint32_t)smoe_model_info(model)->vocab_size;
    for (int i = 0; i < PREFILL_TOK; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % vocab);
    }
    smoe_generate_options o = {.sampling = {.top_p = 1, .repetition_penalty = 1},
                               .max_tok = DECODE_TOK,
                               .ignore_end = true};
    smoe_model_stats_reset(model);
    int rc = smoe_generate(session, ids, PREFILL_TOK, &o, NULL, NULL, NULL, err);
    smoe_model_stats(model, stats);
    *prefill = (double)stats->prefill_tok * 1e9 / (double)stats->prefill_ns;
    *decode = (double)stats->decode_tok * 1e9 / (double)stats->decode_ns;
    return rc;
}

static int bench_one(const char *path, const char *label, bool resident, uint64_t ring_bytes) {
    smoe_error err;
    smoe_model *model;
    smoe_session *session;
    smoe_stats stats = {0};
    double prefill[REPEATS];
    double decode[REPEATS];
    smoe_model_options options = {
        .context_tok = CONTEXT_TOK, .resident = resident, .ring_bytes = ring_bytes};
    if (smoe_model_open(&model, path, &options, &err) != SMOE_OK) {
        return complain(&err);
    }
    int rc = smoe_session_open(&session, model, &err);
    if (rc != SMOE_OK) {
        smoe_model_close(model);
        return complain(&err);
    }
    for (int i = 0; i < REPEATS && rc == SMOE_OK; i++) {
        rc = measure(model, session, i, &prefill[i], &decode[i], &stats, &err);
    }
    if (rc == SMOE_OK) {
        printf("%-22s", label);
        print_rate(prefill);
        print_rate(decode);
        printf("  %5.1f %%  %7.1f KiB\n",
               stats.uses ? 100.0 * (double)stats.hits / (double)stats.uses : 0,
               (double)stats.decode_drive_bytes / (double)stats.decode_tok / 1024);
    }
    smoe_session_close(session);
    smoe_model_close(model);
    return rc == SMOE_OK ? 0 : complain(&err);
}

/* Resident, then with a ring of two token cycles. */
static int bench_both(const char *path, const char *type) {
    char label[64];
    smoe_info info;
    smoe_error err;
    if (smoe_describe(path, &info, &err) != SMOE_OK) {
        return complain(&err);
    }
    snprintf(label, sizeof label, "%s resident", type);
    int rc = bench_one(path, label, true, 0);
    snprintf(label, sizeof label, "%s, 1/4 in the ring", type);
    uint64_t quarter = info.experts_bytes / 4;
    uint64_t least = 2 * info.token_cycle_bytes;
    return rc ? rc : bench_one(path, label, false, quarter > least ? quarter : least);
}

static const char *default_model(void) {
    static char path[1024];
    struct stat st;
    const char *vectors = getenv("SMOE_VECTORS");
    snprintf(path, sizeof path, "%s/models/tales-28m", vectors ? vectors : "../shared");
    return stat(path, &st) == 0 ? path : "models/tales-8m";
}

int bench_model(int argc, char **argv) {
    static const char *const types[] = {"q8", "q4", "q2"};
    const char *checkpoint = argc > 0 ? argv[0] : default_model();
    char dir[] = "/tmp/smoe-bench-XXXXXX";
    char vault[64];
    char scout[64];
    smoe_error err;
    if (!mkdtemp(dir)) {
        perror("smoe-bench model");
        return 1;
    }
    printf("%s: %d tokens of prefill, then %d of decode; tok/s, median (range) of %d; hit rate and "
           "drive bytes a decoded token of the last\n",
           checkpoint, PREFILL_TOK, DECODE_TOK, REPEATS);
    int rc = bench_both(checkpoint, "bf16");
    for (size_t i = 0; i < sizeof types / sizeof *types && rc == 0; i++) {
        smoe_sculpt_options o = {.expert_type = types[i]};
        snprintf(vault, sizeof vault, "%s/%s.smoe", dir, types[i]);
        snprintf(scout, sizeof scout, "%s/%s.scout.safetensors", dir, types[i]);
        rc = smoe_sculpt(checkpoint, vault, &o, &err) == SMOE_OK ? 0 : complain(&err);
        rc = rc ? rc : bench_both(vault, types[i]);
        unlink(vault);
        unlink(scout);
    }
    rmdir(dir);
    return rc ? 1 : 0;
}
