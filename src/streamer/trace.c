/* Routing traces; see trace.h. Owns the format, and the writer's file. */
#include "streamer/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"

#define MAGIC        "smoetrac"
#define VERSION      1
#define FIXED_BYTES  32 /* of the header, before its tables */
#define TURN_BYTES   8  /* before its choices */
#define BUFFER_BYTES 65536
#define UNIT_MAX     (1u << 22) /* a record of 16 GiB: sums of sizes cannot overflow */

enum { TAG_TURN = 'T', TAG_END = 'E' };
enum { FLAG_MARGINS = 1 };

static void put16(uint8_t *to, uint32_t v) {
    to[0] = (uint8_t)v;
    to[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *to, uint32_t v) {
    put16(to, v);
    put16(to + 2, v >> 16);
}

static void put64(uint8_t *to, uint64_t v) {
    put32(to, (uint32_t)v);
    put32(to + 4, (uint32_t)(v >> 32));
}

static uint32_t get32(const void *from) {
    const uint8_t *b = from;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint64_t get64(const void *from) {
    return get32(from) | (uint64_t)get32((const uint8_t *)from + 4) << 32;
}

/* ---- writing */

struct trace_writer {
    int fd;
    int32_t n_layer;
    policy_layer *layer;
    uint64_t n_turn;
    XXH3_state_t *hash;
    smoe_error error;
    char path[FILE_PATH_BYTES];
    size_t n_buffer;
    uint8_t buffer[BUFFER_BYTES];
};

static void flush(trace_writer *w) {
    size_t done = 0;
    while (done < w->n_buffer && w->error.code == 0) {
        ssize_t n = write(w->fd, w->buffer + done, w->n_buffer - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            err_errno(&w->error, n ? errno : ENOSPC, "cannot write %s", w->path);
        }
    }
    XXH3_64bits_update(w->hash, w->buffer, w->n_buffer);
    w->n_buffer = 0;
}

static void append(trace_writer *w, const void *data, size_t bytes) {
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t n = BUFFER_BYTES - w->n_buffer;
        n = n < bytes ? n : bytes;
        memcpy(w->buffer + w->n_buffer, from, n);
        w->n_buffer += n;
        from += n;
        bytes -= n;
        if (w->n_buffer == BUFFER_BYTES) {
            flush(w);
        }
    }
}

static void append32(trace_writer *w, uint32_t v) {
    uint8_t b[4];
    put32(b, v);
    append(w, b, sizeof b);
}

static void append_header(trace_writer *w, const trace_header *h) {
    size_t n_record = (size_t)h->n_layer * (size_t)h->n_row;
    size_t n_name = strlen(h->name);
    uint8_t fixed[FIXED_BYTES] = MAGIC;
    put32(fixed + 8, VERSION);
    put32(fixed + 12, (uint32_t)n_name);
    put64(fixed + 16, h->model_id);
    put32(fixed + 24, (uint32_t)h->n_layer);
    put32(fixed + 28, (uint32_t)h->n_row);
    append(w, fixed, sizeof fixed);
    for (int32_t m = 0; m < h->n_layer; m++) {
        append32(w, (uint32_t)h->layer[m].n_expert);
        append32(w, (uint32_t)h->layer[m].n_used);
    }
    for (size_t i = 0; i < n_record; i++) {
        append32(w, h->unit[i]);
    }
    append(w, h->name, n_name);
}

int trace_writer_open(trace_writer **out, const char *path, const trace_header *h,
                      smoe_error *err) {
    trace_writer *w = mem_array(1, sizeof *w);
    *out = NULL;
    if (!w || strlen(path) >= sizeof w->path) {
        free(w);
        return w ? err_set(err, SMOE_ERR_ARGUMENT, "%s: the path is too long", path)
                 : err_no_memory(err, sizeof *w);
    }
    memcpy(w->path, path, strlen(path));
    w->n_layer = h->n_layer;
    w->layer = mem_array((size_t)h->n_layer, sizeof *w->layer);
    w->hash = XXH3_createState();
    w->fd = -1;
    if (!w->layer || !w->hash) {
        (void)trace_writer_close(w, NULL);
        return err_no_memory(err, sizeof *w);
    }
    memcpy(w->layer, h->layer, (size_t)h->n_layer * sizeof *w->layer);
    XXH3_64bits_reset(w->hash);
    w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        int e = errno;
        (void)trace_writer_close(w, NULL);
        return err_errno(err, e, "cannot write %s", path);
    }
    append_header(w, h);
    *out = w;
    return SMOE_OK;
}

void trace_write(trace_writer *w, const routing *r) {
    uint8_t b[TURN_BYTES] = {TAG_TURN, r->margin ? FLAG_MARGINS : 0};
    if (w->error.code) {
        return;
    }
    put16(b + 2, (uint32_t)r->moe_index);
    put32(b + 4, (uint32_t)r->n_tok);
    append(w, b, sizeof b);
    for (int32_t t = 0; t < r->n_tok; t++) {
        for (int32_t i = 0; i < r->n_used; i++) {
            put16(b, (uint32_t)r->choice[(size_t)t * (size_t)r->stride + (size_t)i]);
            append(w, b, 2);
        }
    }
    if (r->margin) {
        append(w, r->margin, (size_t)w->layer[r->moe_index].n_expert);
    }
    w->n_turn++;
}

/* Where nothing was computed there is nothing to replay. Path may be a device, which stays. */
static void remove_empty(const trace_writer *w) {
    struct stat st;
    if (w->n_turn == 0 && stat(w->path, &st) == 0 && S_ISREG(st.st_mode)) {
        (void)unlink(w->path);
    }
}

int trace_writer_close(trace_writer *w, smoe_error *err) {
    if (!w) {
        return SMOE_OK;
    }
    smoe_error end = {0};
    if (w->fd >= 0) {
        uint8_t b[TURN_BYTES + 16] = {TAG_END};
        flush(w);
        put64(b + TURN_BYTES, w->n_turn);
        put64(b + TURN_BYTES + 8, XXH3_64bits_digest(w->hash));
        append(w, b, sizeof b);
        flush(w);
        if (close(w->fd) != 0 && w->error.code == 0) {
            err_errno(&w->error, errno, "cannot write %s", w->path);
        }
        remove_empty(w);
        end = w->error;
    }
    XXH3_freeState(w->hash);
    free(w->layer);
    free(w);
    return end.code ? err_set(err, end.code, "%s", end.text) : SMOE_OK;
}

/* ---- reading */

static int bad(smoe_error *err, const char *label, const char *what) {
    return err_set(err, SMOE_ERR_FORMAT, "%s: %s; record it again", label, what);
}

static int read_tables(trace_header *h, const uint8_t *at, const char *label, smoe_error *err) {
    size_t n_record = (size_t)h->n_layer * (size_t)h->n_row;
    h->layer = mem_array((size_t)h->n_layer, sizeof *h->layer);
    h->unit = mem_array(n_record, sizeof *h->unit);
    if (!h->layer || !h->unit) {
        return err_no_memory(err, n_record * sizeof *h->unit);
    }
    for (int32_t m = 0; m < h->n_layer; m++, at += 8) {
        uint32_t n_expert = get32(at), n_used = get32(at + 4);
        if (n_expert < 1 || n_expert > (uint32_t)h->n_row || n_used < 1 || n_used > n_expert) {
            return bad(err, label, "a layer's number of experts is impossible");
        }
        h->layer[m] = (policy_layer){(int32_t)n_expert, (int32_t)n_used};
    }
    for (size_t i = 0; i < n_record; i++, at += 4) {
        bool is_there = (int32_t)(i % (size_t)h->n_row) < h->layer[i / (size_t)h->n_row].n_expert;
        h->unit[i] = get32(at);
        if (h->unit[i] > UNIT_MAX || (h->unit[i] > 0) != is_there) {
            return bad(err, label, "an expert's size is impossible");
        }
    }
    return SMOE_OK;
}

/* *bytes: in, of the file; out, of the header. */
static int read_header(trace_header *h, const char *text, size_t *bytes, const char *label,
                       smoe_error *err) {
    if (*bytes < FIXED_BYTES || memcmp(text, MAGIC, 8) != 0) {
        return err_set(err, SMOE_ERR_FORMAT, "%s is no routing trace of smoe", label);
    }
    if (get32(text + 8) != VERSION) {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "%s: version %u of the format; this program reads %d", label,
                       get32(text + 8), VERSION);
    }
    uint32_t n_name = get32(text + 12), n_layer = get32(text + 24), n_row = get32(text + 28);
    if (n_name >= sizeof h->name || n_layer < 1 || n_layer > LIMIT_LAYERS || n_row < 1 ||
        n_row > LIMIT_EXPERTS) {
        return bad(err, label, "the header is damaged");
    }
    size_t need = FIXED_BYTES + 8 * (size_t)n_layer + 4 * (size_t)n_layer * n_row + n_name;
    if (*bytes < need) {
        return bad(err, label, "the file stops within its header");
    }
    *bytes = need;
    h->model_id = get64(text + 16);
    h->n_layer = (int32_t)n_layer;
    h->n_row = (int32_t)n_row;
    memcpy(h->name, text + need - n_name, n_name);
    return read_tables(h, (const uint8_t *)text + FIXED_BYTES, label, err);
}

/* The turn at text; *bytes: in, what is left; out, its length, or 0 when it is not whole. */
static int read_turn(const trace_header *h, const char *text, size_t *bytes, trace_turn *turn,
                     uint32_t *seen, const char *label, smoe_error *err) {
    uint32_t moe_index = (uint8_t)text[2] | (uint32_t)(uint8_t)text[3] << 8;
    uint32_t n_tok = get32(text + 4);
    if (text[0] != TAG_TURN || (text[1] & ~FLAG_MARGINS) || moe_index >= (uint32_t)h->n_layer ||
        n_tok < 1 || n_tok > LIMIT_CONTEXT_TOK) {
        return bad(err, label, "a layer's turn is damaged");
    }
    const policy_layer *l = &h->layer[moe_index];
    size_t n_choice = (size_t)n_tok * (size_t)l->n_used;
    size_t need = TURN_BYTES + 2 * n_choice;
    *turn = (trace_turn){.moe_index = (int32_t)moe_index,
                         .n_tok = (int32_t)n_tok,
                         .choice = (const uint8_t *)text + TURN_BYTES};
    if (text[1] & FLAG_MARGINS) {
        turn->margin = turn->choice + 2 * n_choice;
        need += (size_t)l->n_expert;
    }
    if (need > *bytes) {
        *bytes = 0;
        return SMOE_OK;
    }
    *bytes = need;
    for (size_t i = 0; i < n_choice; i++) {
        int32_t e = trace_choice(turn, i);
        size_t mark = (i / (size_t)l->n_used) % UINT32_MAX + 1;
        if (i == 0) {
            memset(seen, 0, (size_t)h->n_row * sizeof *seen);
        }
        if (e >= l->n_expert || seen[e] == mark) {
            return bad(err, label, "a token's choice of experts is impossible");
        }
        seen[e] = (uint32_t)mark;
    }
    return SMOE_OK;
}

static int read_end(trace *t, const char *text, size_t at, size_t bytes, const char *label,
                    smoe_error *err) {
    static const char tag[TURN_BYTES] = {TAG_END};
    if (bytes - at >= TURN_BYTES && memcmp(text + at, tag, sizeof tag) != 0) {
        return bad(err, label, "the end is damaged");
    }
    if (bytes - at != TURN_BYTES + 16) {
        return bad(err, label,
                   bytes - at < TURN_BYTES + 16 ? "the end is not whole"
                                                : "something follows the end");
    }
    if (get64(text + at + TURN_BYTES) != t->n_turn ||
        get64(text + at + TURN_BYTES + 8) != XXH3_64bits(text, at)) {
        return bad(err, label, "the content differs from its checksum");
    }
    t->is_whole = true;
    return SMOE_OK;
}

static int read_turns(trace *t, size_t at, size_t bytes, const char *label, smoe_error *err) {
    const trace_header *h = &t->header;
    /* no turn is shorter than this, which bounds their number */
    t->turn = mem_array((bytes - at) / (TURN_BYTES + 2) + 1, sizeof *t->turn);
    uint32_t *seen = mem_array((size_t)h->n_row, sizeof *seen);
    int rc = t->turn && seen ? SMOE_OK : err_no_memory(err, bytes);
    while (rc == SMOE_OK && bytes - at >= TURN_BYTES) {
        size_t n = bytes - at;
        if (t->text[at] == TAG_END) {
            rc = read_end(t, t->text, at, bytes, label, err);
            break;
        }
        trace_turn *turn = &t->turn[t->n_turn];
        rc = read_turn(h, t->text + at, &n, turn, seen, label, err);
        if (rc != SMOE_OK || n == 0) {
            break;
        }
        at += n;
        t->n_turn++;
        t->max_tok = turn->n_tok > t->max_tok ? turn->n_tok : t->max_tok;
        if (turn->moe_index == 0) {
            t->n_tok += (uint64_t)turn->n_tok;
            t->n_decode_tok += turn->n_tok == 1;
        }
    }
    free(seen);
    return rc;
}

int trace_parse(trace *out, char *text, size_t bytes, const char *label, smoe_error *err) {
    *out = (trace){.text = text};
    size_t header_bytes = bytes;
    int rc = read_header(&out->header, text, &header_bytes, label, err);
    rc = rc ? rc : read_turns(out, header_bytes, bytes, label, err);
    if (rc != SMOE_OK) {
        trace_free(out);
    }
    return rc;
}

int trace_read(trace *out, const char *path, smoe_error *err) {
    char *text;
    size_t bytes;
    *out = (trace){0};
    int rc = file_read_all(path, LIMIT_TRACE_BYTES, &text, &bytes, err);
    return rc ? rc : trace_parse(out, text, bytes, path, err);
}

void trace_free(trace *t) {
    free(t->header.layer);
    free(t->header.unit);
    free(t->turn);
    free(t->text);
    *t = (trace){0};
}
