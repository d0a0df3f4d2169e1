/* Writing files of logits; see logits_file.h. */
#include "cli/logits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(const logits_writer *w, const void *data, size_t bytes, smoe_error *err) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(w->fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return err_errno(err, n < 0 ? errno : ENOSPC, "cannot write %s", w->path);
        }
        done += (size_t)n;
    }
    return SMOE_OK;
}

/* 8 bytes of length, then JSON padded with spaces to a multiple of 8, as the format asks. */
static int write_header(const logits_writer *w, const logits_shape *s, smoe_error *err) {
    char header[512] = {0};
    char window[32] = "";
    size_t n_row = (s->n_window ? s->n_window : 1) * s->n_tok;
    size_t ids_bytes = n_row * sizeof(int32_t);
    if (s->n_window) {
        snprintf(window, sizeof window, "%zu,", s->n_window);
    }
    int n =
        snprintf(header + 8, sizeof header - 8,
                 "{\"ids\":{\"dtype\":\"I32\",\"shape\":[%s%zu],\"data_offsets\":[0,%zu]},"
                 "\"logits\":{\"dtype\":\"F32\",\"shape\":[%s%zu,%d],\"data_offsets\":[%zu,%zu]}}",
                 window, s->n_tok, ids_bytes, window, s->n_tok, s->vocab, ids_bytes,
                 ids_bytes + n_row * w->row_bytes);
    uint64_t length = ((uint64_t)n + 7) / 8 * 8;
    memset(header + 8 + n, ' ', (size_t)length - (size_t)n);
    for (int i = 0; i < 8; i++) {
        header[i] = (char)(length >> 8 * i & 0xff);
    }
    return write_all(w, header, (size_t)(8 + length), err);
}

static int open_target(logits_writer *w, const char *out, smoe_error *err) {
    struct stat st;
    char resolved[PATH_MAX];
    w->is_file = stat(out, &st) != 0 || S_ISREG(st.st_mode);
    if (!w->is_file) {
        snprintf(w->path, sizeof w->path, "%s", out);
        w->fd = open(out, O_WRONLY | O_CLOEXEC);
    } else {
        const char *target = realpath(out, resolved) ? resolved : out; /* follow links */
        snprintf(w->target, sizeof w->target, "%s", target);
        if (snprintf(w->path, sizeof w->path, "%s.XXXXXX", target) >= (int)sizeof w->path) {
            return err_set(err, SMOE_ERR_ARGUMENT, "the name %s is too long", out);
        }
        w->fd = mkostemp(w->path, O_CLOEXEC);
        if (w->fd >= 0) {
            mode_t mask = umask(0);
            umask(mask);
            fchmod(w->fd, 0666 & ~mask);
        }
    }
    return w->fd >= 0 ? SMOE_OK : err_errno(err, errno, "cannot write %s", out);
}

int logits_create(logits_writer *w, const char *out, const logits_shape *shape, const int32_t *ids,
                  smoe_error *err) {
    size_t n_row = (shape->n_window ? shape->n_window : 1) * shape->n_tok;
    w->row_bytes = (size_t)shape->vocab * sizeof(float);
    int rc = open_target(w, out, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    rc = write_header(w, shape, err);
    rc = rc ? rc : write_all(w, ids, n_row * sizeof *ids, err);
    return rc ? logits_close(w, rc, err) : SMOE_OK;
}

int logits_write_row(logits_writer *w, const float *row, smoe_error *err) {
    return write_all(w, row, w->row_bytes, err);
}

int logits_close(logits_writer *w, int rc, smoe_error *err) {
    if (close(w->fd) != 0 && rc == SMOE_OK) {
        rc = err_errno(err, errno, "cannot write %s", w->path);
    }
    if (w->is_file && rc == SMOE_OK && rename(w->path, w->target) != 0) {
        rc = err_errno(err, errno, "cannot name %s", w->target);
    }
    if (w->is_file && rc != SMOE_OK) {
        unlink(w->path);
    }
    return rc;
}
