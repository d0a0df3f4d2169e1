/* smoe logits: every row of logits for a sequence of ids, as a safetensors file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/common.h"

typedef struct sink {
    int fd;
    const char *path;
    uint64_t at_bytes;
    size_t row_bytes;
    smoe_error err;
    bool failed;
} sink;

static bool write_row(void *user, size_t position_tok, const float *logits) {
    sink *s = user;
    (void)position_tok;
    s->failed =
        file_write_at(s->fd, s->path, s->at_bytes, logits, s->row_bytes, &s->err) != SMOE_OK;
    s->at_bytes += s->row_bytes;
    return s->failed;
}

/* 8 bytes of length, then JSON padded with spaces to a multiple of 8, as the format asks. */
static int write_header(sink *s, size_t n_tok, int32_t vocab) {
    char header[256] = {0};
    int n = snprintf(header + 8, sizeof header - 8,
                     "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%zu,%d],\"data_offsets\":[0,%zu]}}",
                     n_tok, vocab, n_tok * s->row_bytes);
    uint64_t length = ((uint64_t)n + 7) / 8 * 8;
    memset(header + 8 + n, ' ', (size_t)length - (size_t)n);
    for (int i = 0; i < 8; i++) {
        header[i] = (char)(length >> 8 * i & 0xff);
    }
    s->at_bytes = 8 + length;
    return file_write_at(s->fd, s->path, 0, header, (size_t)s->at_bytes, &s->err);
}

/* Writes to NAME.partial and renames, so that the name exists only when the file is whole. */
static int write_logits(smoe_model *model, smoe_session *session, const int32_t *ids, size_t n_id,
                        const char *out) {
    char partial[FILE_PATH_BYTES];
    smoe_error err;
    int32_t vocab = smoe_model_info(model)->vocab_size;
    if (snprintf(partial, sizeof partial, "%s.partial", out) >= (int)sizeof partial) {
        return fail_text("logits: the name %s is too long", out);
    }
    sink s = {.path = partial, .row_bytes = (size_t)vocab * sizeof(float)};
    s.fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (s.fd < 0) {
        return fail_text("cannot write %s: %s", partial, strerror(errno));
    }
    int rc = write_header(&s, n_id, vocab);
    if (rc == SMOE_OK) {
        interrupt_begin(session);
        rc = smoe_session_score(session, ids, n_id, write_row, &s, &err);
        err = s.failed ? s.err : err;
    } else {
        err = s.err;
    }
    if (close(s.fd) != 0 && rc == SMOE_OK) {
        rc = err_errno(&err, errno, "cannot write %s", partial);
    }
    if (rc == SMOE_OK && rename(partial, out) != 0) {
        rc = err_errno(&err, errno, "cannot name %s", out);
    }
    if (rc != SMOE_OK) {
        unlink(partial);
        return interrupt_end() ? EXIT_STOPPED : fail(&err);
    }
    return 0;
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
         "receives `logits` [tokens, vocabulary] float32", NULL},
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
