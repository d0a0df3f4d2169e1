/* smoe bench: prefill and decode speed under one or several ceilings, as a table and as JSON. How
 * it is measured is in docs/benchmarks.md. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/bench_run.h"
#include "cli/commands.h"
#include "cli/json_add.h"

static const char *const kind_name[BENCH_KINDS] = {"prefill", "decode"};

/* ---- what the runs of one kind say together */

typedef struct summary {
    double tok_per_s[BENCH_REPEATS_MAX]; /* ascending */
    int32_t n_run;
    double median;
    double hit_share, inflight_share, bytes_per_tok, busy_share, wait_share, bytes_per_s;
    double drive_share; /* of the probed rate; below 0: not measured */
} summary;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double part(uint64_t n, uint64_t of) {
    return of ? (double)n / (double)of : 0;
}

static summary summarise(const bench_result *r, enum bench_kind kind, int32_t n_tok) {
    summary s = {.n_run = r->n_run, .drive_share = -1};
    uint64_t hits = 0, inflight = 0, uses = 0, bytes = 0, busy = 0, wait = 0, ns = 0;
    double probed = 0;
    for (int32_t i = 0; i < r->n_run; i++) {
        const bench_run *run = &r->run[kind][i];
        s.tok_per_s[i] = part((uint64_t)n_tok, run->ns) * 1e9;
        hits += run->stats.hits;
        inflight += run->stats.inflight_hits;
        uses += run->stats.uses;
        bytes += run->stats.drive_bytes;
        busy += run->stats.drive_busy_ns;
        wait += run->stats.wait_ns;
        ns += run->ns;
        probed = run->stats.probed_bytes_per_s;
    }
    qsort(s.tok_per_s, (size_t)s.n_run, sizeof *s.tok_per_s, by_value);
    s.median = (s.tok_per_s[(s.n_run - 1) / 2] + s.tok_per_s[s.n_run / 2]) / 2;
    s.hit_share = part(hits, uses);
    s.inflight_share = part(inflight, uses);
    s.bytes_per_tok = part(bytes, (uint64_t)s.n_run * (uint64_t)n_tok);
    s.busy_share = part(busy, ns);
    s.wait_share = part(wait, ns);
    s.bytes_per_s = part(bytes, ns) * 1e9;
    if (probed > 0) {
        s.drive_share = s.bytes_per_s / probed;
    }
    return s;
}

/* ---- table */

enum { SPEED_COLUMNS = 24 };

static void print_head(const bench_job *job) {
    printf("median (lowest to highest) of %d %s run%s, depth %d\n\n", job->n_repeat,
           job->cold ? "cold" : "warm", job->n_repeat == 1 ? "" : "s", job->depth_tok);
    printf("| %-9s | ring  ", "ceiling");
    for (int k = 0; k < BENCH_KINDS; k++) {
        if (job->n_tok[k] > 0) {
            char title[32];
            snprintf(title, sizeof title, "%s %d, tok/s", kind_name[k], job->n_tok[k]);
            printf("| %-*s ", SPEED_COLUMNS, title);
        }
    }
    puts("| hits    | a token   | drive busy | waiting | of the drive |");
    printf("|-----------|-------");
    for (int k = 0; k < BENCH_KINDS; k++) {
        if (job->n_tok[k] > 0) {
            printf("|--------------------------");
        }
    }
    puts("|---------|-----------|------------|---------|--------------|");
    fflush(stdout);
}

static void print_speed(const summary *s) {
    char text[64];
    int digits = s->median < 10 ? 2 : s->median < 1000 ? 1 : 0;
    snprintf(text, sizeof text, "%.*f (%.*f to %.*f)", digits, s->median, digits, s->tok_per_s[0],
             digits, s->tok_per_s[s->n_run - 1]);
    printf("| %-*s ", SPEED_COLUMNS, text);
}

/* The columns behind the speeds are of decode, where it is measured. */
static void print_row(const bench_job *job, const bench_result *r) {
    char bytes[24], share[16] = "-";
    uint64_t experts = r->info.experts_bytes;
    double ring = experts ? (double)r->plan.ring_bytes / (double)experts : 1;
    summary s = {0};
    printf("| %-9s | %3.0f %% ", format_bytes(bytes, r->plan.ceiling_bytes),
           100 * (ring < 1 ? ring : 1));
    for (int k = 0; k < BENCH_KINDS; k++) {
        if (job->n_tok[k] > 0) {
            s = summarise(r, (enum bench_kind)k, job->n_tok[k]);
            print_speed(&s);
        }
    }
    if (s.drive_share >= 0) {
        snprintf(share, sizeof share, "%.0f %%", 100 * s.drive_share);
    }
    printf("| %5.1f %% | %-9s | %8.0f %% | %5.0f %% | %12s |\n", 100 * s.hit_share,
           format_bytes(bytes, (uint64_t)s.bytes_per_tok), 100 * s.busy_share, 100 * s.wait_share,
           share);
    fflush(stdout);
}

static void print_foot(const bench_job *job, const bench_result *r) {
    int kind = job->n_tok[BENCH_DECODE] > 0 ? BENCH_DECODE : BENCH_PREFILL;
    const smoe_stats *s = &r->run[kind][r->n_run - 1].stats;
    printf("\n%s, %d layers, %s experts; %d thread%s, %s, KV in %s, %s, %s", r->info.family,
           r->info.n_layer, r->info.expert_type, r->plan.n_thread, r->plan.n_thread == 1 ? "" : "s",
           s->isa, s->kv_type, s->io_backend, s->direct ? "O_DIRECT" : "buffered");
    if (s->probed_bytes_per_s > 0) {
        printf("; the drive gave %.2f GB/s when probed", s->probed_bytes_per_s * 1e-9);
    }
    if (s->probed_busy_bytes_per_s > 0) {
        printf(", %.2f while all cores computed", s->probed_busy_bytes_per_s * 1e-9);
    }
    putchar('\n');
}

/* ---- JSON */

static struct json_object *kind_json(const bench_result *r, enum bench_kind kind, int32_t n_tok) {
    struct json_object *o = json_object_new_object();
    struct json_object *runs = json_object_new_array();
    summary s = summarise(r, kind, n_tok);
    json_add_count(o, "tokens", (uint64_t)n_tok);
    json_add_number(o, "tok_per_s", s.median);
    json_add_number(o, "tok_per_s_lowest", s.tok_per_s[0]);
    json_add_number(o, "tok_per_s_highest", s.tok_per_s[s.n_run - 1]);
    for (int32_t i = 0; i < r->n_run; i++) {
        json_object_array_add(
            runs, json_object_new_double(part((uint64_t)n_tok, r->run[kind][i].ns) * 1e9));
    }
    json_object_object_add(o, "runs", runs);
    json_add_number(o, "hit_share", s.hit_share);
    json_add_number(o, "inflight_hit_share", s.inflight_share);
    json_add_number(o, "drive_bytes_per_tok", s.bytes_per_tok);
    json_add_number(o, "drive_bytes_per_s", s.bytes_per_s);
    json_add_number(o, "drive_busy_share", s.busy_share);
    json_add_number(o, "wait_share", s.wait_share);
    if (s.drive_share >= 0) {
        json_add_number(o, "probed_share", s.drive_share);
    }
    return o;
}

static struct json_object *row_json(const bench_job *job, const bench_result *r) {
    struct json_object *o = json_object_new_object();
    if (r->code != SMOE_OK) {
        json_add_count(o, "memory_bytes", job->model->options.memory_bytes);
        json_object_object_add(o, "error", json_object_new_string(r->error.text));
        return o;
    }
    int kind = job->n_tok[BENCH_DECODE] > 0 ? BENCH_DECODE : BENCH_PREFILL;
    const smoe_stats *s = &r->run[kind][r->n_run - 1].stats;
    json_add_count(o, "memory_bytes", r->plan.ceiling_bytes);
    json_add_count(o, "ring_bytes", r->plan.ring_bytes);
    json_add_count(o, "experts_bytes", r->info.experts_bytes);
    json_add_count(o, "peak_process_bytes", s->peak_process_bytes);
    json_add_count(o, "threads", (uint64_t)r->plan.n_thread);
    json_add_number(o, "probed_bytes_per_s", s->probed_bytes_per_s);
    json_add_number(o, "probed_busy_bytes_per_s", s->probed_busy_bytes_per_s);
    json_object_object_add(o, "io_backend", json_object_new_string(s->io_backend));
    json_object_object_add(o, "direct", json_object_new_boolean(s->direct));
    json_object_object_add(o, "isa", json_object_new_string(s->isa));
    json_object_object_add(o, "kv_type", json_object_new_string(s->kv_type));
    for (int k = 0; k < BENCH_KINDS; k++) {
        if (job->n_tok[k] > 0) {
            json_object_object_add(o, kind_name[k],
                                   kind_json(r, (enum bench_kind)k, job->n_tok[k]));
        }
    }
    return o;
}

/* ---- rows */

typedef struct bench_flags {
    bench_job job;
    option_list memory;
    uint64_t memory_bytes[OPTION_LIST_MAX];
    bool json;
} bench_flags;

static int measure_rows(bench_flags *f) {
    static bench_result result, last;
    struct json_object *rows = json_object_new_array();
    size_t n_row = f->memory.n_item > 0 ? f->memory.n_item : 1;
    int status = 0;
    if (!f->json) {
        print_head(&f->job);
    }
    for (size_t i = 0; i < n_row; i++) {
        if (!bench_measure(&f->job, f->memory_bytes[i], &result)) {
            status = EXIT_STOPPED;
            break;
        }
        json_object_array_add(rows, row_json(&f->job, &result));
        if (result.code != SMOE_OK) {
            status = fail(&result.error);
        } else if (!f->json) {
            print_row(&f->job, &result);
            last = result;
        }
    }
    if (f->json) {
        struct json_object *o = json_object_new_object();
        json_object_object_add(o, "model", json_object_new_string(f->job.path));
        json_add_count(o, "depth", (uint64_t)f->job.depth_tok);
        json_object_object_add(o, "cold", json_object_new_boolean(f->job.cold));
        json_object_object_add(o, "rows", rows);
        print_json(o);
    } else {
        json_object_put(rows);
        if (last.n_run > 0) {
            print_foot(&f->job, &last);
        }
    }
    return status;
}

/* The model's options but for --memory, which may be given several times here. */
static void take_rows(const option *from, option *to, size_t n) {
    size_t used = 0;
    for (; from->name && used + 1 < n; from++) {
        if (strcmp(from->name, "memory") != 0) {
            to[used++] = *from;
        }
    }
    to[used] = (option){0};
}

static int run(const command *self, int argc, char **argv) {
    enum { MODEL_ROWS = 48 };
    static bench_flags f;
    static model_flags model;
    static option model_rows[MODEL_ROWS];
    f.job = (bench_job){.model = &model, .n_tok = {512, 128}, .n_repeat = 3};
    const option own[] = {
        {OPTION_INT, 'p', "prefill", "N", &f.job.n_tok[BENCH_PREFILL], 0, LIMIT_BENCH_TOK,
         "prompt tokens (default: 512; 0: no prefill)", NULL},
        {OPTION_INT, 'n', "decode", "N", &f.job.n_tok[BENCH_DECODE], 0, LIMIT_BENCH_TOK,
         "generated tokens (default: 128; 0: no decode)", NULL},
        {OPTION_INT, 'd', "depth", "N", &f.job.depth_tok, 0, LIMIT_BENCH_TOK,
         "tokens that are in the context before (default: 0)", NULL},
        {OPTION_INT, 'r', "repeats", "N", &f.job.n_repeat, 1, BENCH_REPEATS_MAX,
         "runs that count (default: 3)", NULL},
        {OPTION_LIST, 'm', "memory", "SIZE", &f.memory, 0, 0,
         "ceiling for the whole process; several times, for a row each", NULL},
        {OPTION_FLAG, 0, "cold", NULL, &f.job.cold, 0, 0,
         "begin each run with a fresh ring and nothing in the page cache", NULL},
        {OPTION_FLAG, 0, "json", NULL, &f.json, 0, 0, "print one JSON object", NULL},
        {0}};
    take_rows(model_option_rows(&model), model_rows, MODEL_ROWS);
    const option *const tables[] = {own, model_rows, NULL};
    int rc = options_parse(self, tables, argc, argv, &f.job.path);
    if (rc) {
        return rc < 0;
    }
    for (size_t i = 0; i < f.memory.n_item; i++) {
        if (!parse_size(f.memory.item[i], &f.memory_bytes[i])) {
            return fail_text("bench: --memory must be a size such as 512M or 8G, not \"%s\"",
                             f.memory.item[i]);
        }
    }
    if (f.job.n_tok[BENCH_PREFILL] + f.job.n_tok[BENCH_DECODE] == 0) {
        return fail_text("bench: -p 0 and -n 0 leave nothing to measure");
    }
    f.job.show_step = !model.quiet && isatty(STDERR_FILENO);
    model.quiet = true; /* the plans would stand between the rows */
    return measure_rows(&f);
}

const command command_bench = {
    .name = "bench",
    .arguments = "MODEL",
    .summary = "measure prefill and decode under one or several ceilings",
    .details =
        "  Random tokens, then greedy decoding. Each ceiling is measured in a process of its "
        "own. Columns\n  behind the speeds are of decode.",
    .n_argument = 1,
    .run = run};
