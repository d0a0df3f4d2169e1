/* smoe inspect: what a model is and needs, from its headers. */
#include <stdio.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/common.h"

static void print_count(const char *label, uint64_t n, const char *rest) {
    double v = (double)n;
    const char *unit = "";
    if (v >= 1e9) {
        v /= 1e9;
        unit = " billion";
    } else if (v >= 1e6) {
        v /= 1e6;
        unit = " million";
    }
    printf("%-16s %.4g%s%s\n", label, v, unit, rest);
}

static void print_info(const char *path, const smoe_info *i) {
    char a[24];
    char b[24];
    printf("%s\n", path);
    printf("%-16s %s (%s)\n", "family", i->family, i->container);
    print_count("parameters", i->n_param, "");
    print_count("  a token uses", i->n_param_active, "");
    printf("%-16s %d, of which %d with experts\n", "layers", i->n_layer, i->n_moe_layer);
    printf("%-16s %d, vocabulary %d\n", "width", i->d_model, i->vocab_size);
    printf("%-16s %d a layer, %d used, width %d, %s\n", "experts", i->n_expert, i->n_expert_used,
           i->expert_width_dim, i->expert_type);
    printf("%-16s %s each, %s in all\n", "expert bytes", format_bytes(a, i->expert_bytes),
           format_bytes(b, i->experts_bytes));
    printf("%-16s %s: the experts one token touches; the smallest ring is %s\n", "token cycle",
           format_bytes(a, i->token_cycle_bytes), format_bytes(b, i->smallest_ring_bytes));
    printf("%-16s %s of dense weights stay in memory\n", "scout", format_bytes(a, i->scout_bytes));
    uint64_t context = (uint64_t)i->context_tok;
    printf("%-16s %d tokens; KV %s a token, %s for all", "context", i->context_tok,
           format_bytes(a, i->kv_token_bytes), format_bytes(b, i->kv_token_bytes * context));
    printf("; in q8 %s, %s\n", format_bytes(a, i->kv_q8_token_bytes),
           format_bytes(b, i->kv_q8_token_bytes * context));
}

/* The container's own content, and where there is nothing else the reason why not. */
static int print_container(const char *path, bool runs, const smoe_error *why) {
    smoe_error err;
    char *text = NULL;
    int rc = smoe_describe_container(path, &text, &err);
    if (rc != SMOE_OK) {
        return fail(runs ? &err : why);
    }
    if (text) {
        printf("%s%s", runs ? "\n" : "", text);
        smoe_free(text);
    }
    return runs ? 0 : fail(why);
}

static int run(const command *self, int argc, char **argv) {
    smoe_error err;
    smoe_info info;
    bool json = false;
    char *text;
    const char *path = NULL;
    const option own[] = {{OPTION_FLAG, 0, "json", NULL, &json, 0, 0,
                           "print everything, the spec too, as JSON", NULL},
                          {0}};
    const option *const tables[] = {own, NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    if (json) {
        if (smoe_describe_json(path, &text, &err) != SMOE_OK) {
            return fail(&err);
        }
        puts(text);
        smoe_free(text);
        return 0;
    }
    bool runs = smoe_describe(path, &info, &err) == SMOE_OK;
    if (runs) {
        print_info(path, &info);
    }
    return print_container(path, runs, &err);
}

const command command_inspect = {.name = "inspect",
                                 .arguments = "MODEL",
                                 .summary = "print what a model is and needs",
                                 .n_argument = 1,
                                 .run = run};
