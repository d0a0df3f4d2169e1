/* smoe logits: every row of logits for a sequence of ids, as a safetensors file. */
#include <stdlib.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/logits_file.h"

typedef struct sink {
    logits_writer writer;
    smoe_error err; /* code 0: none */
} sink;

static bool write_row(void *user, size_t position_tok, const float *logits) {
    sink *s = user;
    (void)position_tok;
    return logits_write_row(&s->writer, logits, &s->err) != SMOE_OK;
}

static int write_logits(smoe_model *model, smoe_session *session, const int32_t *ids, size_t n_id,
                        const char *out) {
    static sink s;
    smoe_error err;
    logits_shape shape = {.n_tok = n_id, .vocab = smoe_model_info(model)->vocab_size};
    interrupt_begin(session);
    int rc = logits_create(&s.writer, out, &shape, ids, &err);
    if (rc == SMOE_OK) {
        rc = smoe_session_score(session, ids, n_id, write_row, &s, &err);
        err = s.err.code ? s.err : err;
        rc = logits_close(&s.writer, rc, &err);
    }
    bool stopped = interrupt_end();
    return rc == SMOE_OK ? 0 : stopped ? EXIT_STOPPED : fail(&err);
}

static int run(const command *self, int argc, char **argv) {
    model_flags flags = {0};
    smoe_error err;
    smoe_model *model;
    smoe_session *session;
    const char *path = NULL;
    const char *ids_file = NULL;
    const char *out = NULL;
    bool stats = false;
    char *text;
    size_t bytes;
    int32_t *ids;
    size_t n_id;
    const option own[] = {
        {OPTION_TEXT, 0, "ids", "FILE", &ids_file, 0, 0, "token ids as text (-: standard input)",
         NULL},
        {OPTION_TEXT, 'o', "out", "FILE", &out, 0, 0,
         "receives `logits` [tokens, vocabulary] float32, and `ids`", NULL},
        {OPTION_FLAG, 0, "stats", NULL, &stats, 0, 0, "print statistics on stderr", NULL},
        {0}};
    const option *const tables[] = {own, model_option_rows(&flags), NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    if (!ids_file || !out) {
        return fail_text("logits: needs --ids FILE and --out FILE");
    }
    if (read_input(ids_file, &text, &bytes, &err) != SMOE_OK) {
        return fail(&err);
    }
    rc = parse_ids(text, bytes, ids_file, &ids, &n_id, &err);
    free(text);
    if (rc != SMOE_OK) {
        return fail(&err);
    }
    if (flags.options.context_tok == 0 && n_id <= INT32_MAX) {
        flags.options.context_tok = (int32_t)(n_id ? n_id : 1); /* just what is needed */
    }
    rc = open_model(path, &flags, &model, &session);
    if (rc == 0) {
        rc = write_logits(model, session, ids, n_id, out);
        if (rc == 0 && stats) {
            print_stats(model);
        }
        close_model(model, session);
    }
    free(ids);
    return rc;
}

const command command_logits = {.name = "logits",
                                .arguments = "MODEL",
                                .summary = "write every row of logits for given ids",
                                .n_argument = 1,
                                .run = run};
