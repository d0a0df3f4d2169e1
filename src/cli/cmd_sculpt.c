/* smoe sculpt and smoe verify: make a vault, check a vault. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/common.h"

static int run_sculpt(const command *self, int argc, char **argv) {
    static const char *const expert_types[] = {NULL, "keep", "q4", "q2", "q8", "bf16"};
    static const char *const scout_types[] = {NULL, "keep", "q8", "bf16"};
    smoe_error err;
    int quant = 0;
    int scout = 0;
    bool quiet = false;
    const char *out = NULL;
    const char *path = NULL;
    smoe_sculpt_options o = {.progress = show_progress, .log = log_to_stderr, .user = &quiet};
    const option own[] = {
        {OPTION_TEXT, 'o', "output", "NAME.smoe", &out, 0, 0,
         "the vault to write; its scout goes beside it", NULL},
        {OPTION_CHOICE, 0, "quant", "auto|keep|q4|q2|q8|bf16", &quant, 0, 0,
         "type of the experts (auto: keep for GGUF files, else q4)", NULL},
        {OPTION_CHOICE, 0, "scout", "auto|keep|q8|bf16", &scout, 0, 0,
         "type of the dense weights (auto: as --quant keep and bf16, else q8)", NULL},
        {OPTION_INT, 't', "threads", "N", &o.n_thread, 1, 1024,
         "quantising threads (default: one a core)", NULL},
        {OPTION_FLAG, 0, "overwrite", NULL, &o.overwrite, 0, 0,
         "replace a finished vault of that name", NULL},
        {OPTION_FLAG, 'q', "quiet", NULL, &quiet, 0, 0, "no progress and notices", NULL},
        {0}};
    const option *const tables[] = {own, NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    if (!out) {
        return fail_text("sculpt: name the vault to write with -o NAME.smoe");
    }
    o.expert_type = expert_types[quant];
    o.scout_type = scout_types[scout];
    interrupt_begin(NULL);
    rc = smoe_sculpt(path, out, &o, &err);
    return end_job(rc, &err, out, quiet);
}

const command command_sculpt = {
    .name = "sculpt",
    .arguments = "CHECKPOINT",
    .summary = "quantise a checkpoint into a vault",
    .details = "  Interrupted work (Ctrl-C, power loss) resumes when called again with the same "
               "arguments,\n  and gives the same bytes. NAME.smoe exists only when it is complete "
               "and verified.",
    .n_argument = 1,
    .run = run_sculpt};

static int run_verify(const command *self, int argc, char **argv) {
    smoe_error err;
    bool quiet = false;
    const char *path = NULL;
    const option own[] = {{OPTION_FLAG, 'q', "quiet", NULL, &quiet, 0, 0, "no progress", NULL},
                          {0}};
    const option *const tables[] = {own, NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    rc = smoe_verify(path, show_progress, &quiet, &err);
    end_progress();
    if (rc != SMOE_OK) {
        return fail(&err);
    }
    printf("%s: every checksum is right\n", path);
    return 0;
}

const command command_verify = {.name = "verify",
                                .arguments = "VAULT",
                                .summary = "check every checksum of a vault and its scout",
                                .n_argument = 1,
                                .run = run_verify};
