/* smoe trace: records the routing of a run, and replays it against cache policies. */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json_add.h"
#include "cli/plot.h"

enum { MAX_RINGS = 64, MAX_POLICIES = PLOT_SERIES_MAX };

typedef struct replay_flags {
    const char *rings, *policies, *svg;
    bool json;
} replay_flags;

typedef struct replays {
    smoe_trace *trace;
    smoe_trace_info info;
    uint64_t ring[MAX_RINGS];
    size_t n_ring;
    size_t policy[MAX_POLICIES]; /* numbers of smoe_trace_policy */
    size_t n_policy;
    bool decode; /* only uses by single tokens are shown */
    smoe_replay result[MAX_RINGS][MAX_POLICIES];
} replays;

/* ---- what to replay */

/* Takes the next item of a list off *rest into out; false at the end. Too long ones are cut. */
static bool next_item(const char **rest, char *out, size_t out_bytes) {
    if (!*rest || !**rest) {
        return false;
    }
    size_t n = strcspn(*rest, ",");
    snprintf(out, out_bytes, "%.*s", (int)(n < out_bytes ? n : out_bytes - 1), *rest);
    *rest += n + ((*rest)[n] == ',');
    return true;
}

static int smaller_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Without a list: from less than a token cycle to all experts. */
static void default_rings(replays *r) {
    static const double cycles[] = {0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 14};
    uint64_t full = r->info.experts_bytes;
    for (size_t i = 0; i < sizeof cycles / sizeof *cycles; i++) {
        double bytes = cycles[i] * (double)r->info.token_cycle_bytes;
        if (bytes < 0.97 * (double)full) {
            r->ring[r->n_ring++] = (uint64_t)bytes;
        }
    }
    r->ring[r->n_ring++] = full;
}

static int choose_rings(replays *r, const char *list) {
    char item[64];
    if (!list) {
        default_rings(r);
        return 0;
    }
    while (next_item(&list, item, sizeof item)) {
        if (r->n_ring == MAX_RINGS) {
            return fail_text("trace replay: --ring takes at most %d sizes", MAX_RINGS);
        }
        if (!parse_size(item, &r->ring[r->n_ring++])) {
            return fail_text("trace replay: --ring: \"%s\" is not a size such as 512M or 8G", item);
        }
    }
    qsort(r->ring, r->n_ring, sizeof *r->ring, smaller_first);
    return r->n_ring ? 0 : fail_text("trace replay: --ring names no size");
}

static int policy_number(const char *name, size_t *number) {
    const char *known;
    for (size_t i = 0; (known = smoe_trace_policy(i)); i++) {
        if (strcmp(known, name) == 0) {
            *number = i;
            return 0;
        }
    }
    fprintf(stderr, "smoe: trace replay: no policy \"%s\"; there are", name);
    for (size_t i = 0; (known = smoe_trace_policy(i)); i++) {
        fprintf(stderr, "%s %s", i ? "," : "", known);
    }
    fputc('\n', stderr);
    return 1;
}

static int choose_policies(replays *r, const char *list) {
    char item[64];
    if (!list) {
        for (size_t i = 0; smoe_trace_policy(i) && i < MAX_POLICIES; i++) {
            r->policy[r->n_policy++] = i;
        }
        return 0;
    }
    while (next_item(&list, item, sizeof item)) {
        if (r->n_policy == MAX_POLICIES) {
            return fail_text("trace replay: --policy takes at most %d names", MAX_POLICIES);
        }
        if (policy_number(item, &r->policy[r->n_policy++]) != 0) {
            return 1;
        }
    }
    return r->n_policy ? 0 : fail_text("trace replay: --policy names none");
}

/* ---- what comes out */

static double hit_percent(const replays *r, const smoe_replay *x) {
    uint64_t uses = r->decode ? x->decode_uses : x->uses;
    uint64_t hits = r->decode ? x->decode_hits : x->hits;
    return uses ? 100.0 * (double)hits / (double)uses : 0;
}

static uint64_t bytes_a_token(const replays *r, const smoe_replay *x) {
    uint64_t tok = r->decode ? r->info.n_decode_tok : r->info.n_tok;
    return tok ? (r->decode ? x->decode_read_bytes : x->read_bytes) / tok : 0;
}

static double cycles_of(const replays *r, size_t ring) {
    return (double)r->ring[ring] / (double)r->info.token_cycle_bytes;
}

static void print_header(const replays *r, const char *what) {
    printf("\n%-11s %7s", what, "cycles");
    for (size_t p = 0; p < r->n_policy; p++) {
        printf(" %10s", smoe_trace_policy(r->policy[p]));
    }
    putchar('\n');
}

static void print_tables(const replays *r) {
    const smoe_trace_info *i = &r->info;
    char a[24], b[24];
    printf("%s: %d layers with %d experts, %d used; %llu tokens, %llu of them one at a time\n"
           "a token cycle takes %s, all experts %s\n",
           i->model, i->n_moe_layer, i->n_expert, i->n_expert_used, (unsigned long long)i->n_tok,
           (unsigned long long)i->n_decode_tok, format_bytes(a, i->token_cycle_bytes),
           format_bytes(b, i->experts_bytes));
    printf("hits in %% of uses%s\n", r->decode ? ", decode only" : "");
    print_header(r, "ring");
    for (size_t k = 0; k < r->n_ring; k++) {
        printf("%-11s %7.2f", format_bytes(a, r->ring[k]), cycles_of(r, k));
        for (size_t p = 0; p < r->n_policy; p++) {
            printf(" %10.2f", hit_percent(r, &r->result[k][p]));
        }
        putchar('\n');
    }
    print_header(r, "read a token");
    for (size_t k = 0; k < r->n_ring; k++) {
        printf("%-11s %7.2f", format_bytes(a, r->ring[k]), cycles_of(r, k));
        for (size_t p = 0; p < r->n_policy; p++) {
            printf(" %10s", format_bytes(b, bytes_a_token(r, &r->result[k][p])));
        }
        putchar('\n');
    }
}

static void print_as_json(const replays *r) {
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    json_object_object_add(o, "model", json_object_new_string(r->info.model));
    json_add_count(o, "tok", r->info.n_tok);
    json_add_count(o, "decode_tok", r->info.n_decode_tok);
    json_add_count(o, "token_cycle_bytes", r->info.token_cycle_bytes);
    json_add_count(o, "experts_bytes", r->info.experts_bytes);
    json_object_object_add(o, "cut_off", json_object_new_boolean(r->info.cut_off));
    for (size_t k = 0; k < r->n_ring; k++) {
        for (size_t p = 0; p < r->n_policy; p++) {
            const smoe_replay *x = &r->result[k][p];
            struct json_object *row = json_object_new_object();
            json_object_object_add(row, "policy",
                                   json_object_new_string(smoe_trace_policy(r->policy[p])));
            json_add_count(row, "ring_bytes", r->ring[k]);
            json_add_count(row, "uses", x->uses);
            json_add_count(row, "hits", x->hits);
            json_add_count(row, "decode_uses", x->decode_uses);
            json_add_count(row, "decode_hits", x->decode_hits);
            json_add_count(row, "read_bytes", x->read_bytes);
            json_add_count(row, "decode_read_bytes", x->decode_read_bytes);
            json_add_count(row, "evictions", x->evictions);
            json_object_array_add(list, row);
        }
    }
    json_object_object_add(o, "replays", list);
    print_json(o);
}

static int write_svg(const replays *r, const char *path) {
    double x[MAX_RINGS], y[MAX_POLICIES][MAX_RINGS];
    char subtitle[400], cycle[24];
    snprintf(subtitle, sizeof subtitle, "%s, %llu tokens; a token cycle is %s", r->info.model,
             (unsigned long long)(r->decode ? r->info.n_decode_tok : r->info.n_tok),
             format_bytes(cycle, r->info.token_cycle_bytes));
    plot p = {.title = r->decode ? "Expert cache: hits while decoding" : "Expert cache: hits",
              .subtitle = subtitle,
              .x_label = "ring, in token cycles",
              .y_label = "hits, % of uses",
              .x = x,
              .n = r->n_ring,
              .y_max = 100,
              .n_series = r->n_policy};
    for (size_t k = 0; k < r->n_ring; k++) {
        x[k] = cycles_of(r, k);
        for (size_t i = 0; i < r->n_policy; i++) {
            y[i][k] = hit_percent(r, &r->result[k][i]);
            p.series[i].name = smoe_trace_policy(r->policy[i]);
            p.series[i].y = y[i];
        }
    }
    FILE *f = fopen(path, "we");
    if (!f) {
        return fail_text("cannot write %s: %s", path, strerror(errno));
    }
    plot_write(f, &p);
    bool failed = ferror(f) != 0;
    failed |= fclose(f) != 0;
    return failed ? fail_text("cannot write %s: %s", path, strerror(errno)) : 0;
}

static int replay_all(replays *r, const replay_flags *f) {
    smoe_error err;
    if (choose_rings(r, f->rings) || choose_policies(r, f->policies)) {
        return 1;
    }
    if (r->info.cut_off) {
        fprintf(stderr, "the recording was cut off: replaying its %llu whole tokens\n",
                (unsigned long long)r->info.n_tok);
    }
    r->decode = r->info.n_decode_tok > 0;
    for (size_t k = 0; k < r->n_ring; k++) {
        for (size_t p = 0; p < r->n_policy; p++) {
            if (smoe_trace_replay(r->trace, r->policy[p], r->ring[k], &r->result[k][p], &err)) {
                return fail(&err);
            }
        }
    }
    if (f->json) {
        print_as_json(r);
    } else {
        print_tables(r);
    }
    return f->svg ? write_svg(r, f->svg) : 0;
}

static int run_replay(const command *self, int argc, char **argv) {
    replay_flags f = {0};
    const char *path = NULL;
    const option own[] = {
        {OPTION_TEXT, 0, "ring", "SIZE,…", &f.rings, 0, 0,
         "ring sizes (default: from half a token cycle to all experts)", NULL},
        {OPTION_TEXT, 0, "policy", "NAME,…", &f.policies, 0, 0,
         "recency, segmented, frequency, aged, adaptive, foresight, optimum (default: all)", NULL},
        {OPTION_TEXT, 0, "svg", "FILE", &f.svg, 0, 0, "plot hit rate against ring size", NULL},
        {OPTION_FLAG, 0, "json", NULL, &f.json, 0, 0, "print one JSON object", NULL},
        {0}};
    const option *const tables[] = {own, NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    smoe_error err;
    replays *r = mem_array(1, sizeof *r);
    if (!r) {
        return fail_text("out of memory");
    }
    rc = smoe_trace_open(&r->trace, path, &err) == SMOE_OK ? 0 : fail(&err);
    if (rc == 0) {
        smoe_trace_describe(r->trace, &r->info);
        rc = replay_all(r, &f);
    }
    smoe_trace_close(r->trace);
    free(r);
    return rc;
}

static const command command_replay = {
    .name = "trace replay",
    .arguments = "FILE",
    .summary = "what a ring would have held",
    .details =
        "  Replays a recording against cache policies and ring sizes. adaptive is what smoe\n"
        "  runs with; optimum knows the future. docs/cache-policy.md explains them.",
    .n_argument = 1,
    .run = run_replay};

static int run(const command *self, int argc, char **argv) {
    const char *what = argc > 0 ? argv[0] : "";
    if (strcmp(what, "record") == 0) {
        return command_trace_record.run(&command_trace_record, argc - 1, argv + 1);
    }
    if (strcmp(what, "replay") == 0) {
        return command_replay.run(&command_replay, argc - 1, argv + 1);
    }
    bool help = strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0;
    fprintf(help ? stdout : stderr,
            "smoe trace record MODEL -p TEXT -o FILE   records the routing of a run\n"
            "smoe trace replay FILE                    replays it against cache policies\n"
            "  %s; each has its own --help\n",
            self->summary);
    return help ? 0 : 1;
}

const command command_trace = {.name = "trace",
                               .arguments = "record|replay",
                               .summary = "record routing and replay it against cache policies",
                               .run = run};
