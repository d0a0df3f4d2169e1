/* The probe: how this drive likes to be read, measured on the model's own file.
 *
 * At start the streamer asks for expert-sized reads at places drawn at random, with several block
 * sizes, depths and back ends, past the page cache and through it, and goes on with what was
 * fastest. What was measured is remembered for each drive and file, so only the first start pays
 * for it (a second or two).
 *
 * Owns the measurement. Never decides what is read for the model, never writes to a drive it
 * measures, and needs no memory of its own but a few tables: reads land in the ring.
 */
#ifndef SMOE_STREAMER_PROBE_H
#define SMOE_STREAMER_PROBE_H

#include "base/log.h"
#include "model/source.h"
#include "streamer/io.h"

/* What was chosen, and the figures that made it so. */
typedef struct probe_result {
    const io_ops *ops;
    bool direct;
    int32_t depth;
    uint32_t read_bytes;
    double bytes_per_s;          /* the chosen way, on a machine that does nothing else */
    double busy_bytes_per_s;     /* while every CPU goes through weights; 0: not measured */
    double single_bytes_per_s;   /* the same with one read in flight */
    double other_bytes_per_s;    /* the other back end; 0: not measured */
    double buffered_bytes_per_s; /* through the page cache; 0: not measured */
    double latency_ns;           /* median of one read of 4 KiB alone */
    bool is_rotating;            /* says so and answers like it */
    bool is_remembered;          /* read from the store, not measured now */
} probe_result;

typedef struct probe_config {
    const source *source;
    const char *const *path; /* its files' copies on the drive to measure; NULL: its own */
    const io_ops *ops[2];    /* back ends that are allowed, the preferred one first; NULL: none */
    smoe_switch direct;
    int32_t depth;       /* 0: to be found */
    uint32_t read_bytes; /* 0: to be found */
    void *room;          /* IO_ALIGN_BYTES aligned; what it holds is lost */
    uint64_t room_bytes; /* at least IO_ALIGN_BYTES */
    uint64_t budget_ns;  /* about so much time in all; 0: chosen */
} probe_config;

/* Where file i of the source is on the drive to measure. */
static inline const char *probe_path(const probe_config *c, int32_t i) {
    return c->path ? c->path[i] : source_file_path(c->source, i);
}

/* Fails only when no allowed way of reading works at all: then *err says why for the first. */
int probe_run(probe_result *out, const probe_config *config, smoe_error *err);

/* The store: one small file in the user's cache folder ($XDG_CACHE_HOME/smoe, else
 * ~/.cache/smoe). An entry holds for one file on one device (its inode, size and time), one kernel
 * and one set of allowed ways. probe_recall fills out and returns true when there is one;
 * probe_remember replaces it, and drops the oldest beyond 64. Neither fails: without a writable
 * folder the next start measures again. */
bool probe_recall(probe_result *out, const probe_config *config);
void probe_remember(const probe_result *result, const probe_config *config);

/* One line: what was chosen, and why. */
void probe_log(const probe_result *r, const log_sink *log);

#endif
