/* smoe synth: write a synthetic model to measure with. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/common.h"

static int run(const command *self, int argc, char **argv) {
    smoe_error err;
    int routing = 0;
    bool quiet = false;
    const char *out = NULL;
    smoe_synth_options o = {.progress = show_progress, .log = log_to_stderr, .user = &quiet};
    const option own[] = {
        {OPTION_TEXT, 0, "shape", "NAME", &o.shape, 0, 0,
         "whose shape: qwen3-30b-a3b, mixtral-8x7b, …", NULL},
        {OPTION_TEXT, 0, "type", "TYPE", &o.type, 0, 0,
         "type of the experts: q4_k, q8_0, mxfp4, … (default: q4_k)", NULL},
        {OPTION_CHOICE, 0, "routing", "skewed|uniform", &routing, 0, 0,
         "some experts are used more than others, or all alike", NULL},
        {OPTION_SEED, 0, "seed", "N", &o.seed, 0, 0, "same seed, same file (default: 0)", NULL},
        {OPTION_INT, 0, "layers", "N", &o.n_layer, 1, 1024, "layers (default: the shape's)", NULL},
        {OPTION_TEXT, 'o', "output", "FILE.gguf", &out, 0, 0, "the file to write", NULL},
        {OPTION_INT, 't', "threads", "N", &o.n_thread, 1, 1024, "threads (default: one a core)",
         NULL},
        {OPTION_FLAG, 0, "overwrite", NULL, &o.overwrite, 0, 0, "replace a file of that name",
         NULL},
        {OPTION_FLAG, 'q', "quiet", NULL, &quiet, 0, 0, "no progress and notices", NULL},
        {0}};
    const option *const tables[] = {own, NULL};
    int rc = options_parse(self, tables, argc, argv, NULL);
    if (rc) {
        return rc < 0;
    }
    if (!out) {
        return fail_text("synth: name the file to write with -o FILE.gguf");
    }
    if (!o.shape) {
        return fail_text("synth: name a shape with --shape, such as qwen3-30b-a3b");
    }
    o.uniform = routing == 1;
    interrupt_begin(NULL);
    rc = smoe_synth(out, &o, &err);
    return end_job(rc, &err, out, quiet);
}

const command command_synth = {
    .name = "synth",
    .arguments = "-o FILE.gguf",
    .summary = "write a model of a known shape with random weights, for benchmarks",
    .details =
        "  The file has the exact shape of a published model and runs here and in llama.cpp; "
        "its text is\n  noise. An unknown --shape or --type lists those there are.",
    .n_argument = 0,
    .run = run};
