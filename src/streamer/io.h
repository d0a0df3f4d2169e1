/* The I/O back ends, behind one small table: io_uring, threads with pread, and whatever a test puts
 * in their place.
 *
 * A back end is driven by one thread at a time (the conductor's; sessions may change it between
 * calls). Reads are queued with submit and come back,
 * in any order, from reap. Retrying, splitting and deciding what to read are the streamer's work:
 * a back end hands over short reads and errors as they are.
 */
#ifndef SMOE_STREAMER_IO_H
#define SMOE_STREAMER_IO_H

#include "base/error.h"

/* With direct I/O, offset, bytes and buf are multiples of this. */
#define IO_ALIGN_BYTES 4096u
/* How often a thread that computes looks after its reads. */
#define IO_TICK_NS 100000u

/* Counts by powers of two: slot i has the values from 2^(i-1) below 2^i, slot 0 zero. */
enum { IO_SLOTS = 28, IO_DRIVES = 8 };
typedef struct io_histogram {
    uint64_t count[IO_SLOTS];
} io_histogram;

typedef struct io_read {
    int32_t file; /* index into the paths given at open */
    uint32_t bytes;
    uint64_t offset;
    void *buf;    /* the caller's until the read is reaped */
    uint64_t tag; /* comes back unchanged */
} io_read;

typedef struct io_done {
    uint64_t tag;
    int32_t result; /* bytes read, 0 at the end of the file, or -errno */
} io_done;

typedef struct io_config {
    const char *const *path; /* [n_file]; opened read-only by the back end */
    int32_t n_file;
    int32_t depth; /* reads in flight at most */
    bool direct;   /* O_DIRECT */
} io_config;

typedef struct io io; /* each back end's own; begins with nothing in common */

typedef struct io_ops {
    const char *name; /* "io_uring", "threads" */
    /* *out is the caller's (close). With direct, fails with SMOE_ERR_UNSUPPORTED when the file
     * system refuses O_DIRECT, and with the same when the system refuses the back end itself. */
    int (*open)(io **out, const io_config *config, smoe_error *err);
    /* Takes up to n reads, in order; returns how many (fewer when depth is reached). */
    int32_t (*submit)(io *io, const io_read *reads, int32_t n);
    /* Up to max finished reads; with wait, blocks until there is at least one. Waiting with nothing
     * in flight returns 0. */
    int32_t (*reap)(io *io, io_done *done, int32_t max, bool wait);
    /* Waits for reads in flight; NULL is allowed. */
    void (*close)(io *io);
    /* May be NULL. Says that most reads will land in the first bytes of a map of most_bytes at
     * base, both whole pages, so that the back end may pin what is used of it. To be said again
     * before the memory behind a new end is given back, and after it has grown; most_bytes stays
     * the same. Memory behind the end stays pinned while a read into it is in flight. What the
     * system refuses to pin costs only speed. */
    void (*set_room)(io *io, void *base, uint64_t bytes, uint64_t most_bytes);
    /* May be NULL. Bytes of the room that are pinned now. */
    uint64_t (*pinned_bytes)(const io *io);
} io_ops;

extern const io_ops io_uring_ops;
extern const io_ops io_thread_ops;

#endif
