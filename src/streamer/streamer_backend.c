/* How a streamer reads: chooses the back end, the way and the sizes, by the probe where it may, and
 * opens the queue on them. Nothing here runs while a model computes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "streamer/streamer_state.h"

/* Without a probe. Measured with records of 2.5 MB on a virtual NVMe disk: from 4 reads of 1 MiB in
 * flight on, both back ends reach the rate of 4 MiB reads without a streamer; reads of 256 KiB lose
 * up to a quarter with threads. Small experts are one read each and want the depth. */
#define DEFAULT_DEPTH      16
#define DEFAULT_READ_BYTES (1u << 20)

/* ---- the files, and their copies on other drives */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A copy must be of the same length; what is in it is checked where records have checksums. */
static int add_copy(const source *s, const char *dir, char **path, smoe_error *err) {
    char name[FILE_PATH_BYTES];
    for (int32_t i = 0; i < s->files.n_file; i++) {
        const char *own = source_file_path(s, i);
        uint64_t bytes = 0;
        int fd = -1;
        if (!file_join(name, sizeof name, dir, last_part(own))) {
            return err_set(err, SMOE_ERR_ARGUMENT, "%s: the path is too long", dir);
        }
        int rc = file_open_read(name, 0, &fd, &bytes, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        close(fd);
        if (bytes != s->files.file[i].bytes) {
            return err_set(err, SMOE_ERR_ARGUMENT,
                           "%s: %llu bytes, so it is no copy of %s (%llu bytes); copy it again",
                           name, (unsigned long long)bytes, own,
                           (unsigned long long)s->files.file[i].bytes);
        }
        path[i] = mem_copy_text(name, strlen(name));
        if (!path[i]) {
            return err_no_memory(err, strlen(name));
        }
    }
    return SMOE_OK;
}

static void free_paths(char **path, int32_t n) {
    for (int32_t i = 0; path && i < n; i++) {
        free(path[i]);
    }
    free(path);
}

/* Paths of all drives, the source's own first; *out is the caller's (free_paths). */
static int all_paths(char ***out, const streamer_config *c, smoe_error *err) {
    const source *s = c->source;
    int32_t n_file = s->files.n_file;
    char **path = mem_array((size_t)n_file * (size_t)(c->n_copy + 1), sizeof *path);
    int rc = path ? SMOE_OK : err_no_memory(err, (uint64_t)n_file * sizeof *path);
    for (int32_t i = 0; i < n_file && rc == SMOE_OK; i++) {
        const char *own = source_file_path(s, i);
        path[i] = mem_copy_text(own, strlen(own));
        rc = path[i] ? SMOE_OK : err_no_memory(err, strlen(own));
    }
    for (int32_t d = 0; d < c->n_copy && rc == SMOE_OK; d++) {
        rc = add_copy(s, c->copy_dir[d], path + (size_t)(d + 1) * (size_t)n_file, err);
    }
    if (rc != SMOE_OK) {
        free_paths(path, n_file * (c->n_copy + 1));
        path = NULL;
    }
    *out = path;
    return rc;
}

/* ---- the back end */

/* Opens with the first of the allowed back ends, then of the allowed ways to read, that the system
 * takes, direct reads first. A refusal is not an error while there is another choice. */
typedef struct backend_choice {
    const io_ops *ops[2];
    int32_t n_ops;
    smoe_switch direct;
    io_config io;
} backend_choice;

static int choose(backend_choice *c, const log_sink *log, queue_config *out, smoe_error *err) {
    smoe_error refusal[2] = {{0}}, direct_refusal = {0};
    for (int32_t way = c->direct == SMOE_OFF; way < (c->direct == SMOE_ON ? 1 : 2); way++) {
        c->io.direct = way == 0;
        for (int32_t i = 0; i < c->n_ops; i++) {
            int rc = c->ops[i]->open(&out->io, &c->io, &refusal[i]);
            if (rc != SMOE_OK && rc != SMOE_ERR_UNSUPPORTED) {
                *err = refusal[i];
                return rc;
            }
            if (rc != SMOE_OK) {
                continue;
            }
            out->ops = c->ops[i];
            out->direct = c->io.direct;
            if (i > 0) {
                log_line(log, SMOE_LOG_NOTICE, "%s; reading with %s", refusal[0].text,
                         out->ops->name);
            }
            if (direct_refusal.code) {
                log_line(log, SMOE_LOG_NOTICE, "%s; reading through the page cache",
                         direct_refusal.text);
            }
            return SMOE_OK;
        }
        direct_refusal = refusal[c->n_ops - 1];
    }
    return err_set(err, SMOE_ERR_UNSUPPORTED, "%s", direct_refusal.text);
}

/* ---- the probe */

/* From the store or anew; false when no allowed way works, which choose finds as well and says. */
static bool probe_drive(probe_result *r, const probe_config *pc, smoe_probe_mode mode) {
    if (mode == SMOE_PROBE_REDO || !probe_recall(r, pc)) {
        if (probe_run(r, pc, NULL) != SMOE_OK) {
            return false;
        }
        probe_remember(r, pc);
    }
    return true;
}

/* Drives with copies give what they have beside the first, read in the way that was chosen there.
 * Without the rate of one there is none of all. */
static void probe_copies(streamer *s, const streamer_config *config, probe_config *pc,
                         const probe_result *first) {
    int32_t n_file = s->source->files.n_file;
    pc->ops[0] = first->ops;
    pc->ops[1] = NULL;
    pc->direct = first->direct ? SMOE_ON : SMOE_OFF;
    pc->depth = first->depth;
    pc->read_bytes = first->read_bytes;
    for (int32_t d = 0; d < config->n_copy; d++) {
        probe_result r = {0};
        pc->path += n_file;
        bool is_known = probe_drive(&r, pc, config->probe) && r.bytes_per_s > 0;
        s->probed_bytes_per_s = is_known ? s->probed_bytes_per_s + r.bytes_per_s : 0;
        s->probed_busy_bytes_per_s = is_known && r.busy_bytes_per_s > 0
                                         ? s->probed_busy_bytes_per_s + r.busy_bytes_per_s
                                         : 0;
        if (!is_known) {
            return;
        }
        probe_log(&r, &s->log);
    }
}

static void probe(streamer *s, const streamer_config *config, backend_choice *c,
                  uint32_t *read_bytes) {
    probe_config pc = {.source = s->source,
                       .path = c->io.path,
                       .ops = {c->ops[0], c->n_ops > 1 ? c->ops[1] : NULL},
                       .direct = config->direct,
                       .depth = config->depth,
                       .read_bytes = config->read_bytes,
                       .room = s->ring.base,
                       .room_bytes = s->ring.bytes};
    probe_result r = {0};
    if (!probe_drive(&r, &pc, config->probe)) {
        return;
    }
    probe_log(&r, &s->log);
    if (r.bytes_per_s <= 0) {
        return;
    }
    /* Only what was measured against something else is a preference. What the probe had to take
     * since the system refused the rest is left to choose, which says so. */
    if (c->n_ops > 1 && c->ops[1] == r.ops && r.other_bytes_per_s > 0) {
        c->ops[1] = c->ops[0];
        c->ops[0] = r.ops;
    }
    if (c->direct == SMOE_AUTO && !r.direct && r.buffered_bytes_per_s > 0) {
        c->direct = SMOE_OFF;
    }
    c->io.depth = r.depth;
    *read_bytes = r.read_bytes;
    s->probed_bytes_per_s = r.bytes_per_s;
    s->probed_busy_bytes_per_s = r.busy_bytes_per_s;
    probe_copies(s, config, &pc, &r);
}

int streamer_open_queue(streamer *s, const streamer_config *config, smoe_error *err) {
    smoe_error scratch;
    char **path;
    err = err ? err : &scratch;
    int32_t n_drive = config->n_copy + 1, n_file = s->source->files.n_file;
    int rc = all_paths(&path, config, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    uint32_t read_bytes = config->read_bytes ? config->read_bytes : DEFAULT_READ_BYTES;
    backend_choice choice = {
        .ops = {config->ops ? config->ops : &io_uring_ops, &io_thread_ops},
        .n_ops = config->ops ? 1 : 2,
        .direct = config->direct,
        .io = {.path = (const char *const *)path,
               .n_file = n_file * n_drive,
               .depth = config->depth ? config->depth : DEFAULT_DEPTH},
    };
    if (config->probe != SMOE_PROBE_OFF) {
        probe(s, config, &choice, &read_bytes);
    }
    queue_config qc = {.n_drive = n_drive,
                       .n_file = n_file,
                       .depth = choice.io.depth,
                       .read_bytes = (uint32_t)round_up(read_bytes, IO_ALIGN_BYTES),
                       .n_load = s->ring.n_block};
    choice.io.depth = queue_slots(qc.depth, n_drive);
    rc = choose(&choice, &s->log, &qc, err);
    free_paths(path, n_file * n_drive);
    if (rc == SMOE_OK) {
        rc = queue_open(&s->queue, &qc, err);
        if (rc != SMOE_OK) {
            qc.ops->close(qc.io);
        }
    }
    if (rc == SMOE_OK) {
        streamer_say_room(s, s->ring.bytes);
    }
    return rc;
}

void streamer_say_room(streamer *s, uint64_t bytes) {
    if (s->queue.ops->set_room) {
        s->queue.ops->set_room(s->queue.io, s->ring.base, bytes, s->ring.most_bytes);
    }
}

uint64_t streamer_pinned_bytes(const streamer *s) {
    return s->queue.ops->pinned_bytes ? s->queue.ops->pinned_bytes(s->queue.io) : 0;
}
