/* smoe logits: every row of logits for a sequence of ids, as a safetensors file. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/common.h"

typedef struct sink {
    int fd;
    char path[FILE_PATH_BYTES];   /* what is written */
    char target[FILE_PATH_BYTES]; /* what it becomes */
    bool is_file;
    size_t row_bytes;
    smoe_error err; /* code 0: none */
    bool failed;
} sink;

static int write_all(sink *s, const void *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(s->fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return err_errno(&s->err, n < 0 ? errno : ENOSPC, "cannot write %s", s->path);
        }
        done += (size_t)n;
    }
    return SMOE_OK;
}

static bool write_row(void *user, size_t position_tok, const float *logits) {
    sink *s = user;
    (void)position_tok;
    s->failed = write_all(s, logits, s->row_bytes) != SMOE_OK;
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
    return write_all(s, header, (size_t)(8 + length));
}

/* A file is written under a name of its own and renamed when it is whole, so that the name asked
 * for never stands for a part; a device or pipe is written as it is. Returns the exit status. */
static int open_sink(sink *s, const char *out) {
    struct stat st;
    char resolved[PATH_MAX];
    s->is_file = stat(out, &st) != 0 || S_ISREG(st.st_mode);
    if (!s->is_file) {
        snprintf(s->path, sizeof s->path, "%s", out);
        s->fd = open(out, O_WRONLY | O_CLOEXEC);
    } else {
        const char *target = realpath(out, resolved) ? resolved : out; /* follow links */
        snprintf(s->target, sizeof s->target, "%s", target);
        if (snprintf(s->path, sizeof s->path, "%s.XXXXXX", target) >= (int)sizeof s->path) {
            return fail_text("logits: the name %s is too long", out);
        }
        s->fd = mkostemp(s->path, O_CLOEXEC);
        if (s->fd >= 0) {
            mode_t mask = umask(0);
            umask(mask);
            fchmod(s->fd, 0666 & ~mask);
        }
    }
    return s->fd >= 0 ? 0 : fail_text("cannot write %s: %s", out, strerror(errno));
}

static int write_logits(smoe_model *model, smoe_session *session, const int32_t *ids, size_t n_id,
                        const char *out) {
    static sink s;
    smoe_error err;
    int32_t vocab = smoe_model_info(model)->vocab_size;
    s = (sink){.row_bytes = (size_t)vocab * sizeof(float)};
    if (open_sink(&s, out)) {
        return 1;
    }
    interrupt_begin(session);
    int rc = write_header(&s, n_id, vocab);
    if (rc == SMOE_OK) {
        rc = smoe_session_score(session, ids, n_id, write_row, &s, &err);
    }
    bool stopped = interrupt_end();
    err = s.err.code ? s.err : err;
    if (close(s.fd) != 0 && rc == SMOE_OK) {
        rc = err_errno(&err, errno, "cannot write %s", s.path);
    }
    if (s.is_file && rc == SMOE_OK && rename(s.path, s.target) != 0) {
        rc = err_errno(&err, errno, "cannot name %s", out);
    }
    if (rc != SMOE_OK) {
        if (s.is_file) {
            unlink(s.path);
        }
        return stopped ? EXIT_STOPPED : fail(&err);
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
