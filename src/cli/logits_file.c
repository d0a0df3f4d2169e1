/* Writing and reading files of logits; see logits_file.h. */
#include "cli/logits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"

/* ---- writing */

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

/* ---- reading */

/* One tensor of the header. */
typedef struct stored {
    int64_t shape[3];
    size_t rank;
    uint64_t offset; /* from the start of the file */
} stored;

/* The numbers of an array, at most 3; *n receives how many. */
static int read_numbers(const json_at *at, const char *key, int64_t *out, size_t *n,
                        smoe_error *err) {
    struct json_object *list = NULL;
    int rc = json_opt_array(at, key, &list, err);
    *n = list ? json_object_array_length(list) : 0;
    if (rc == SMOE_OK && (*n < 1 || *n > 3)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %s.%s is no list of 1 to 3 numbers", at->label,
                     at->parent, key);
    }
    for (size_t i = 0; rc == SMOE_OK && i < *n; i++) {
        rc = json_value_int(json_object_array_get_idx(list, i), at->label, key, 0, INT64_MAX,
                            &out[i], err);
    }
    return rc;
}

/* Data begins at data_at, data_bytes of it. */
static int read_tensor(const json_at *top, const char *name, const char *dtype, uint64_t data_at,
                       uint64_t data_bytes, stored *out, smoe_error *err) {
    json_at at = {NULL, top->label, name};
    const char *type = NULL;
    int64_t range[3];
    size_t n_range = 0;
    int rc = json_need_object(top, name, &at.object, err);
    rc = rc ? rc : json_need_text(&at, "dtype", &type, NULL, err);
    rc = rc ? rc : read_numbers(&at, "shape", out->shape, &out->rank, err);
    rc = rc ? rc : read_numbers(&at, "data_offsets", range, &n_range, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (strcmp(type, dtype) != 0) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s is %s, not %s", top->label, name, type, dtype);
    }
    uint64_t bytes = 4;
    for (size_t i = 0; i < out->rank; i++) {
        if (__builtin_mul_overflow(bytes, (uint64_t)out->shape[i], &bytes)) {
            bytes = 0;
        }
    }
    if (bytes == 0 || n_range != 2 || range[1] < range[0] || (uint64_t)range[1] > data_bytes ||
        (uint64_t)(range[1] - range[0]) != bytes) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: the shape of %s does not fit its data",
                       top->label, name);
    }
    out->offset = data_at + (uint64_t)range[0];
    return SMOE_OK;
}

static int take_shapes(logits_reader *r, const json_at *top, uint64_t data_at, uint64_t data_bytes,
                       smoe_error *err) {
    stored logits;
    stored ids;
    r->has_ids = json_find(top->object, "ids") != NULL;
    int rc = read_tensor(top, "logits", "F32", data_at, data_bytes, &logits, err);
    if (rc == SMOE_OK && r->has_ids) {
        rc = read_tensor(top, "ids", "I32", data_at, data_bytes, &ids, err);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t rank = logits.rank;
    if (rank < 2 || logits.shape[rank - 1] > LIMIT_VOCAB) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: logits must be [windows, tokens, vocabulary] or [tokens, vocabulary]",
                       r->path);
    }
    if (r->has_ids && (ids.rank + 1 != rank ||
                       memcmp(ids.shape, logits.shape, ids.rank * sizeof *ids.shape) != 0)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: ids and logits differ in shape", r->path);
    }
    r->shape = (logits_shape){.n_window = rank == 3 ? (size_t)logits.shape[0] : 1,
                              .n_tok = (size_t)logits.shape[rank - 2],
                              .vocab = (int32_t)logits.shape[rank - 1]};
    r->logits_at = logits.offset;
    r->ids_at = r->has_ids ? ids.offset : 0;
    return SMOE_OK;
}

/* *header is the caller's (free). */
static int read_header(const logits_reader *r, uint64_t file_bytes, char **header,
                       size_t *header_bytes, smoe_error *err) {
    uint8_t raw[8];
    uint64_t n = 0;
    int rc = file_read_at(r->fd, r->path, 0, raw, sizeof raw, err);
    for (size_t i = 0; rc == SMOE_OK && i < sizeof raw; i++) {
        n |= (uint64_t)raw[i] << 8 * i;
    }
    if (rc == SMOE_OK && (n < 2 || n > LIMIT_CONFIG_BYTES || n > file_bytes - sizeof raw)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s is no safetensors file", r->path);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    char *text = malloc(n);
    if (!text) {
        return err_no_memory(err, n);
    }
    rc = file_read_at(r->fd, r->path, sizeof raw, text, n, err);
    if (rc != SMOE_OK) {
        free(text);
        return rc;
    }
    *header = text;
    *header_bytes = n;
    return SMOE_OK;
}

int logits_open(logits_reader *r, const char *path, smoe_error *err) {
    char *header = NULL;
    size_t header_bytes = 0;
    uint64_t file_bytes = 0;
    struct json_object *o = NULL;
    *r = (logits_reader){.path = path, .fd = -1};
    int rc = file_open_read(path, 0, &r->fd, &file_bytes, err);
    rc = rc ? rc : read_header(r, file_bytes, &header, &header_bytes, err);
    rc = rc ? rc : json_parse(&o, header, header_bytes, path, JSON_UNIQUE_KEYS, err);
    if (rc == SMOE_OK && !json_object_is_type(o, json_type_object)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s is no safetensors file", path);
    }
    if (rc == SMOE_OK) {
        json_at top = {o, path, ""};
        uint64_t data_at = 8 + header_bytes;
        rc = take_shapes(r, &top, data_at, file_bytes - data_at, err);
    }
    json_object_put(o);
    free(header);
    if (rc != SMOE_OK) {
        logits_end(r);
    }
    return rc;
}

int logits_read_row(const logits_reader *r, size_t row, float *out, smoe_error *err) {
    size_t bytes = (size_t)r->shape.vocab * sizeof *out;
    return file_read_at(r->fd, r->path, r->logits_at + (uint64_t)row * bytes, out, bytes, err);
}

int logits_check_ids(const logits_reader *r, const int32_t *ids, size_t n, smoe_error *err) {
    int32_t part[1024];
    enum { PART = sizeof part / sizeof *part };
    for (size_t at = 0; r->has_ids && at < n; at += PART) {
        size_t here = n - at < PART ? n - at : PART;
        int rc = file_read_at(r->fd, r->path, r->ids_at + at * sizeof *part, part,
                              here * sizeof *part, err);
        for (size_t i = 0; rc == SMOE_OK && i < here; i++) {
            if (part[i] != ids[at + i]) {
                rc = err_set(err, SMOE_ERR_ARGUMENT,
                             "%s has the logits of other tokens: id %zu is %d there, %d here",
                             r->path, at + i, part[i], ids[at + i]);
            }
        }
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return SMOE_OK;
}

void logits_end(logits_reader *r) {
    if (r->fd >= 0) {
        close(r->fd);
        r->fd = -1;
    }
}
