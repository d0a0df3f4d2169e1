/* smoe plan: what a model would take and give here, without running it. */
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json_add.h"

/* The library's own lines, the memory table and the probe's, are part of the answer. */
static void log_to_stdout(void *user, smoe_log_level level, const char *line) {
    const bool *silent = user;
    if (level == SMOE_LOG_WARNING) {
        fprintf(stderr, "warning: %s\n", line);
    } else if (!*silent) {
        puts(line);
    }
}

/* ---- text */

static void print_speed(char out[48], const smoe_forecast_row *r) {
    int digits = r->tok_per_s_high < 10 ? 1 : 0;
    if (r->tok_per_s_high <= 0) {
        snprintf(out, 48, "-");
    } else {
        snprintf(out, 48, "%.*f to %.*f", digits, r->tok_per_s_low, digits, r->tok_per_s_high);
    }
}

static void print_row(const smoe_forecast_row *r) {
    char ceiling[24], ring[24], hits[32], speed[48];
    snprintf(hits, sizeof hits, "%.0f to %.0f %%", 100 * r->hit_low, 100 * r->hit_high);
    print_speed(speed, r);
    printf("  %-10s %-10s %5.0f %%   %-13s %s\n", format_bytes(ceiling, r->ceiling_bytes),
           format_bytes(ring, r->ring_bytes), 100 * (r->ring_share < 1 ? r->ring_share : 1), hits,
           speed);
}

static void print_rows(const smoe_forecast *f) {
    puts("\ndecode, by ceiling\n  ceiling    ring       experts   hits          tok/s");
    bool is_shown = !f->fits;
    for (int32_t i = 0; i < f->n_row; i++) {
        if (!is_shown && f->row[i].ring_bytes >= f->asked.ring_bytes) {
            print_row(&f->asked);
            is_shown = true;
            if (f->row[i].ring_bytes == f->asked.ring_bytes) {
                continue;
            }
        }
        print_row(&f->row[i]);
    }
    if (!is_shown) {
        print_row(&f->asked);
    }
    puts("  Hits: all experts used alike, to some used far more than others; text mostly lies\n"
         "  between. Speeds: reading and computing in turn, to both at once.");
}

static void print_rates(const smoe_forecast *f) {
    char a[24], b[24];
    printf("\n%-13s %s: the experts that one token touches\n", "token cycle",
           format_bytes(a, f->info.token_cycle_bytes));
    if (f->drive_bytes_per_s > 0) {
        printf("%-13s %.2f GB/s: a token that finds nothing in memory waits %.0f ms\n", "drive",
               f->drive_bytes_per_s * 1e-9,
               (double)f->info.token_cycle_bytes / f->drive_bytes_per_s * 1e3);
    }
    if (f->compute_bytes_per_s > 0) {
        printf(
            "%-13s %.1f GB/s of weights with %d thread%s; a token takes %s: at most %.1f tok/s\n",
            "processor", f->compute_bytes_per_s * 1e-9, f->plan.n_thread,
            f->plan.n_thread == 1 ? "" : "s", format_bytes(b, f->token_weight_bytes),
            f->compute_bytes_per_s / (double)f->token_weight_bytes);
    }
    if (f->prefill_tok_per_s_most > 0) {
        printf("%-13s at most %.0f tok/s: a chunk of %d tokens needs nearly every expert once\n",
               "prefill", f->prefill_tok_per_s_most, f->plan.chunk_tok);
    }
}

/* ---- advice */

enum { ADVICE_MAX = 8, ADVICE_BYTES = 256 };

typedef struct advice {
    char line[ADVICE_MAX][ADVICE_BYTES];
    int n;
} advice;

__attribute__((format(printf, 2, 3))) static void advise(advice *a, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (a->n < ADVICE_MAX) {
        vsnprintf(a->line[a->n++], ADVICE_BYTES, format, args);
    }
    va_end(args);
}

static void advise_context(advice *a, const smoe_forecast *f) {
    char now[24], q8[24];
    uint64_t q8_bytes = f->info.kv_q8_token_bytes * (uint64_t)f->plan.context_tok;
    if (f->plan.kv_bytes <= f->plan.ring_bytes / 8) {
        return;
    }
    advise(a, "The context of %d tokens takes %s, which a shorter --ctx would give to the ring.",
           f->plan.context_tok, format_bytes(now, f->plan.kv_bytes));
    if (f->plan.kv != SMOE_KV_Q8 && q8_bytes < f->plan.kv_bytes - f->plan.kv_bytes / 4) {
        advise(a, "With --kv q8 it takes %s (docs/quantisation.md says at what loss).",
               format_bytes(q8, q8_bytes));
    }
}

static void advise_memory(advice *a, const smoe_forecast *f) {
    char more[24], speed[48], whole[24];
    const smoe_forecast_row *now = &f->asked;
    if (now->ring_share >= 1) {
        advise(a, "Every expert fits: each is read once, at its first use or in idle time before. "
                  "--resident reads them all at the start.");
        return;
    }
    for (int32_t i = 0; i < f->n_row; i++) {
        const smoe_forecast_row *r = &f->row[i];
        if (r->ring_bytes > now->ring_bytes && r->tok_per_s_high > 0 &&
            r->tok_per_s_low > now->tok_per_s_low * 1.15) {
            print_speed(speed, r);
            advise(a, "%s more memory for the ring would give %s tok/s; all experts take %s.",
                   format_bytes(more, r->ring_bytes - now->ring_bytes), speed,
                   format_bytes(whole, f->info.experts_bytes));
            break;
        }
    }
    advise_context(a, f);
}

static void advise_drive(advice *a, const smoe_forecast *f) {
    const smoe_forecast_row *now = &f->asked;
    double compute = f->compute_bytes_per_s / (double)f->token_weight_bytes;
    if (now->ring_share >= 1) {
        return;
    }
    if (f->drive_bytes_per_s <= 0) {
        advise(a, "The drive's rate is not known; leave it to the probe, or say --drive-rate.");
    } else if (now->tok_per_s_high < compute * 0.95) {
        advise(a, "The drive limits, whatever the routing: memory, or a second drive with a copy "
                  "(--vault-on), helps more than threads.");
    } else if (now->tok_per_s_low < compute * 0.6) {
        advise(a, "Whether the drive or the processor limits depends on the routing of the text.");
    } else {
        advise(a, "The processor limits; more memory would help little.");
    }
}

static void advise_format(advice *a, const smoe_forecast *f) {
    bool is_wide = strcmp(f->info.expert_type, "bf16") == 0 ||
                   strcmp(f->info.expert_type, "f16") == 0 ||
                   strcmp(f->info.expert_type, "f32") == 0;
    if (is_wide && f->asked.ring_share < 1) {
        advise(a,
               "The experts are %s: a vault (smoe sculpt --quant q4) has less than a third of the "
               "bytes to read.",
               f->info.expert_type);
    }
}

static void gather_advice(advice *a, const smoe_forecast *f) {
    *a = (advice){.n = 0};
    if (!f->fits) {
        advise(a, "Does not fit: %s", f->why_not.text);
    }
    advise_memory(a, f);
    advise_drive(a, f);
    advise_format(a, f);
}

/* ---- JSON */

static const char *kv_name(smoe_kv_type type) {
    return type == SMOE_KV_F32 ? "f32" : type == SMOE_KV_Q8 ? "q8" : "f16";
}

static struct json_object *plan_json(const smoe_plan *p) {
    struct json_object *o = json_object_new_object();
    json_add_count(o, "ceiling_bytes", p->ceiling_bytes);
    json_add_count(o, "process_bytes", p->process_bytes);
    json_add_count(o, "scout_bytes", p->scout_bytes);
    json_add_count(o, "kv_bytes", p->kv_bytes);
    json_object_object_add(o, "kv_type", json_object_new_string(kv_name(p->kv)));
    json_add_count(o, "scratch_bytes", p->scratch_bytes);
    json_add_count(o, "ring_bytes", p->ring_bytes);
    json_add_count(o, "reserve_bytes", p->reserve_bytes);
    json_add_count(o, "smallest_ceiling_bytes", p->smallest_ceiling_bytes);
    json_add_count(o, "context_tok", (uint64_t)p->context_tok);
    json_add_count(o, "chunk_tok", (uint64_t)p->chunk_tok);
    json_add_count(o, "threads", (uint64_t)p->n_thread);
    return o;
}

static struct json_object *row_json(const smoe_forecast_row *r) {
    struct json_object *o = json_object_new_object();
    json_add_count(o, "ceiling_bytes", r->ceiling_bytes);
    json_add_count(o, "ring_bytes", r->ring_bytes);
    json_add_number(o, "ring_share", r->ring_share);
    json_add_number(o, "hit_share_low", r->hit_low);
    json_add_number(o, "hit_share_high", r->hit_high);
    json_add_number(o, "tok_per_s_low", r->tok_per_s_low);
    json_add_number(o, "tok_per_s_high", r->tok_per_s_high);
    return o;
}

static void print_as_json(const char *path, const smoe_forecast *f) {
    struct json_object *o = json_object_new_object(), *rows = json_object_new_array();
    struct json_object *lines = json_object_new_array();
    advice a;
    gather_advice(&a, f);
    json_object_object_add(o, "model", json_object_new_string(path));
    json_object_object_add(o, "fits", json_object_new_boolean(f->fits));
    if (!f->fits) {
        json_object_object_add(o, "why_not", json_object_new_string(f->why_not.text));
    }
    json_object_object_add(o, "plan", plan_json(&f->plan));
    json_add_count(o, "experts_bytes", f->info.experts_bytes);
    json_add_count(o, "token_cycle_bytes", f->info.token_cycle_bytes);
    json_add_count(o, "token_weight_bytes", f->token_weight_bytes);
    json_add_number(o, "drive_bytes_per_s", f->drive_bytes_per_s);
    json_add_number(o, "compute_bytes_per_s", f->compute_bytes_per_s);
    json_add_number(o, "prefill_tok_per_s_most", f->prefill_tok_per_s_most);
    json_object_object_add(o, "asked", row_json(&f->asked));
    for (int32_t i = 0; i < f->n_row; i++) {
        json_object_array_add(rows, row_json(&f->row[i]));
    }
    json_object_object_add(o, "rows", rows);
    for (int i = 0; i < a.n; i++) {
        json_object_array_add(lines, json_object_new_string(a.line[i]));
    }
    json_object_object_add(o, "advice", lines);
    print_json(o);
}

/* ---- the command */

static void print_text(const smoe_forecast *f) {
    char ceiling[24], speed[48];
    advice a;
    print_rates(f);
    print_rows(f);
    if (f->fits && f->asked.tok_per_s_high > 0) {
        print_speed(speed, &f->asked);
        printf("\nexpected under %s: %s tok/s of decode\n",
               format_bytes(ceiling, f->plan.ceiling_bytes), speed);
    }
    printf("%ssmallest ceiling that works: %s\n", f->fits ? "" : "\n",
           format_bytes(ceiling, f->plan.smallest_ceiling_bytes));
    gather_advice(&a, f);
    puts("\nadvice");
    for (int i = 0; i < a.n; i++) {
        printf("  - %s\n", a.line[i]);
    }
}

static int run(const command *self, int argc, char **argv) {
    smoe_error err;
    smoe_forecast f;
    model_flags model = {0};
    bool json = false;
    uint64_t drive_rate = 0;
    const char *path = NULL;
    const option own[] = {
        {OPTION_SIZE, 0, "drive-rate", "SIZE", &drive_rate, 0, 0,
         "bytes a second that the drive gives, such as 2G (default: as probed)", NULL},
        {OPTION_FLAG, 0, "json", NULL, &json, 0, 0, "print one JSON object", NULL},
        {0}};
    const option *const tables[] = {own, model_option_rows(&model), NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    bool silent = json || model.quiet;
    take_model_choices(&model);
    model.options.log = log_to_stdout;
    model.options.log_user = &silent;
    if (smoe_model_forecast(path, &model.options, (double)drive_rate, &f, &err) != SMOE_OK) {
        return fail(&err);
    }
    if (json) {
        print_as_json(path, &f);
    } else {
        print_text(&f);
    }
    return 0;
}

const command command_plan = {
    .name = "plan",
    .arguments = "MODEL",
    .summary = "what fits here and how fast it would be, without running it",
    .details =
        "  Reads headers, asks the drive for a second unless it is known, times the kernels. "
        "Takes the\n  options of a run, so that they can be tried out.",
    .n_argument = 1,
    .run = run};
