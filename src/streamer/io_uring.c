/* The io_uring back end (see io_uring(7)): reads go to the kernel in batches, one system call a
 * batch, and finished ones are taken from shared memory, without another thread in between.
 *
 * Owns the queue pair and the descriptors. Sessions of one model may be driven by different threads
 * in turn, so the queue is not bound to one (IORING_SETUP_SINGLE_ISSUER would refuse the second).
 * Never retries a read.
 */
#include "streamer/io_files.h"

#ifdef SMOE_HAVE_URING

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

#define URING_MAX_DEPTH 4096

/* Registered buffers: slices of the memory that reads land in, each pinned when a read first lands
 * in it, so that later reads find its pages without a walk. Pinning all at once would take the
 * whole ring's memory before the first token. A read across two slices goes the ordinary way. */
#define SLICE_BYTES (8u << 20)
#define MAX_SLICES  (1u << 14) /* the kernel's limit (IORING_MAX_REG_BUFFERS) */

typedef struct uring_room {
    uint8_t *base;
    uint64_t bytes;
    uint64_t slice_bytes;
    uint64_t pinned_bytes;
    unsigned n_slice;
    bool is_refused;     /* the system pins no more (`ulimit -l`); what is pinned stays */
    uint64_t *pinned_of; /* [n_slice]: bytes that are pinned of it, 0: it is not registered */
} uring_room;

typedef struct uring_io {
    struct io_uring ring;
    bool is_set_up;
    bool has_fixed_files; /* registered: saves a descriptor look-up a read */
    bool direct;
    int broken; /* -errno once the kernel has refused the queue itself */
    int *fd;    /* [n_file] */
    int32_t n_file;
    int32_t depth;
    int32_t n_open; /* accepted, not reaped */
    struct uring_slot {
        uint64_t tag;
        int32_t next; /* spare slots */
        bool is_open;
    } * slot; /* [depth] */
    int32_t spare;
    uring_room room;
} uring_io;

static void uring_close(io *handle) {
    uring_io *u = (uring_io *)handle;
    if (!u) {
        return;
    }
    if (u->is_set_up) {
        struct io_uring_cqe *cqe;
        while (u->n_open > 0 && !u->broken) {
            int r = io_uring_submit_and_wait(&u->ring, 1);
            if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY) {
                break;
            }
            while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
                io_uring_cqe_seen(&u->ring, cqe);
                u->n_open--;
            }
        }
        /* else the kernel gives pinned memory back some time after the process has ended */
        (void)io_uring_unregister_buffers(&u->ring);
        io_uring_queue_exit(&u->ring);
    }
    io_files_close(u->fd, u->n_file);
    free(u->room.pinned_of);
    free(u->slot);
    free(u);
}

static int refuse(int errnum, const char *what, smoe_error *err) {
    char why[128];
    return err_set(err, SMOE_ERR_UNSUPPORTED, "io_uring: %s (%s)", what,
                   strerror_r(errnum, why, sizeof why));
}

static int set_up(uring_io *u, smoe_error *err) {
    /* Cooperative: finished reads interrupt no computing thread. Kernels before 5.19 refuse it. */
    int r = io_uring_queue_init((unsigned)u->depth, &u->ring,
                                IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    if (r == -EINVAL) {
        r = io_uring_queue_init((unsigned)u->depth, &u->ring, 0);
    }
    if (r < 0) {
        return refuse(-r, "the system does not offer it", err);
    }
    u->is_set_up = true;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
    bool has_read = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    if (!has_read) {
        return refuse(EOPNOTSUPP, "the kernel is too old for it", err);
    }
    u->has_fixed_files = io_uring_register_files(&u->ring, u->fd, (unsigned)u->n_file) == 0;
    return SMOE_OK;
}

static int uring_open(io **out, const io_config *config, smoe_error *err) {
    *out = NULL;
    if (config->depth < 1 || config->depth > URING_MAX_DEPTH) {
        return err_set(err, SMOE_ERR_ARGUMENT, "I/O depth is %d, out of range (1 to %d)",
                       config->depth, URING_MAX_DEPTH);
    }
    uring_io *u = mem_array(1, sizeof *u);
    if (!u) {
        return err_no_memory(err, sizeof *u);
    }
    u->n_file = config->n_file;
    u->depth = config->depth;
    u->direct = config->direct;
    u->slot = mem_array((size_t)u->depth, sizeof *u->slot);
    int rc = u->slot ? io_files_open(&u->fd, config, err)
                     : err_no_memory(err, (uint64_t)u->depth * sizeof *u->slot);
    if (rc == SMOE_OK) {
        rc = set_up(u, err);
    }
    if (rc != SMOE_OK) {
        uring_close((io *)u);
        return rc;
    }
    for (int32_t i = 0; i < u->depth; i++) {
        u->slot[i].next = i + 1 < u->depth ? i + 1 : -1;
    }
    *out = (io *)u;
    return SMOE_OK;
}

/* ---- registered buffers */

/* An empty buffer (bytes 0) ends a registration. */
static bool register_slice(uring_io *u, unsigned slice, uint64_t bytes) {
    uring_room *room = &u->room;
    struct iovec v = {.iov_base = bytes ? room->base + slice * room->slice_bytes : NULL,
                      .iov_len = bytes};
    if (io_uring_register_buffers_update_tag(&u->ring, slice, &v, NULL, 1) < 0) {
        return false;
    }
    room->pinned_bytes += bytes - room->pinned_of[slice];
    room->pinned_of[slice] = bytes;
    return true;
}

static uint64_t slice_room_bytes(const uring_room *room, unsigned slice) {
    uint64_t start = slice * room->slice_bytes;
    uint64_t left = room->bytes > start ? room->bytes - start : 0;
    return left < room->slice_bytes ? left : room->slice_bytes;
}

/* The registered slice that the whole read lands in, or -1. */
static int slice_of(uring_io *u, const io_read *r) {
    uring_room *room = &u->room;
    uint64_t at = (uint64_t)((uintptr_t)r->buf - (uintptr_t)room->base);
    if (!room->n_slice || at >= room->bytes || r->bytes > room->bytes - at) {
        return -1;
    }
    unsigned slice = (unsigned)(at / room->slice_bytes);
    if ((at + r->bytes - 1) / room->slice_bytes != slice) {
        return -1;
    }
    if (!room->pinned_of[slice] && !room->is_refused) {
        room->is_refused = !register_slice(u, slice, slice_room_bytes(room, slice));
    }
    return room->pinned_of[slice] ? (int)slice : -1;
}

static void open_room(uring_io *u, void *base, uint64_t most_bytes) {
    uint64_t slice_bytes = SLICE_BYTES;
    while (most_bytes / slice_bytes >= MAX_SLICES) {
        slice_bytes *= 2;
    }
    unsigned n_slice = (unsigned)(most_bytes / slice_bytes + 1);
    uint64_t *pinned_of = mem_array(n_slice, sizeof *pinned_of);
    /* Through the page cache a read is a copy, which registering does not make cheaper. */
    if (!u->direct || !pinned_of || io_uring_register_buffers_sparse(&u->ring, n_slice) < 0) {
        free(pinned_of);
        return;
    }
    u->room = (uring_room){
        .base = base, .slice_bytes = slice_bytes, .n_slice = n_slice, .pinned_of = pinned_of};
}

static void uring_set_room(io *handle, void *base, uint64_t bytes, uint64_t most_bytes) {
    uring_io *u = (uring_io *)handle;
    uring_room *room = &u->room;
    if (!room->n_slice && bytes > 0) {
        open_room(u, base, most_bytes);
    }
    room->bytes = bytes;
    for (unsigned slice = 0; slice < room->n_slice; slice++) {
        if (room->pinned_of[slice] && room->pinned_of[slice] != slice_room_bytes(room, slice)) {
            (void)register_slice(u, slice, 0);
            room->is_refused = false; /* there is room under the limit again */
        }
    }
}

static uint64_t uring_pinned_bytes(const io *handle) {
    return ((const uring_io *)handle)->room.pinned_bytes;
}

/* ---- reads */

static bool is_passing(int r) {
    return r == -EINTR || r == -EAGAIN || r == -EBUSY;
}

/* Hands what is prepared to the kernel, waiting for n_wait completions. What the kernel leaves for
 * now stays prepared and goes with the next call. */
static void enter(uring_io *u, unsigned n_wait) {
    int r = io_uring_submit_and_wait(&u->ring, n_wait);
    if (r < 0 && !is_passing(r)) {
        u->broken = r;
    } else if (r < 0 && r != -EINTR && n_wait > 0) {
        struct timespec nap = {.tv_nsec = 1000000};
        nanosleep(&nap, NULL);
    }
}

static int32_t uring_submit(io *handle, const io_read *reads, int32_t n) {
    uring_io *u = (uring_io *)handle;
    int32_t taken = 0;
    for (; taken < n && u->spare >= 0 && u->n_open < u->depth; taken++) {
        const io_read *r = &reads[taken];
        int32_t s = u->spare;
        if (!u->broken) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
            if (!sqe) {
                break;
            }
            int fd = u->has_fixed_files ? r->file : u->fd[r->file];
            int slice = slice_of(u, r);
            if (slice >= 0) {
                io_uring_prep_read_fixed(sqe, fd, r->buf, r->bytes, r->offset, slice);
            } else {
                io_uring_prep_read(sqe, fd, r->buf, r->bytes, r->offset);
            }
            /* A buffered read copies: on a kernel worker, not here. */
            unsigned flags = (u->has_fixed_files ? IOSQE_FIXED_FILE : 0u) |
                             (u->direct ? 0u : (unsigned)IOSQE_ASYNC);
            io_uring_sqe_set_flags(sqe, flags);
            io_uring_sqe_set_data64(sqe, (unsigned)s);
        }
        u->spare = u->slot[s].next;
        u->slot[s].tag = r->tag;
        u->slot[s].is_open = true;
        u->n_open++;
    }
    if (taken > 0 && !u->broken) {
        enter(u, 0);
    }
    return taken;
}

static io_done finish(uring_io *u, int32_t s, int32_t result) {
    io_done done = {.tag = u->slot[s].tag, .result = result};
    u->slot[s].is_open = false;
    u->slot[s].next = u->spare;
    u->spare = s;
    u->n_open--;
    return done;
}

static int32_t take_finished(uring_io *u, io_done *done, int32_t max) {
    struct io_uring_cqe *cqe[32];
    int32_t n = 0;
    while (n < max) {
        unsigned want = max - n < 32 ? (unsigned)(max - n) : 32u;
        unsigned got = io_uring_peek_batch_cqe(&u->ring, cqe, want);
        for (unsigned i = 0; i < got; i++) {
            done[n++] = finish(u, (int32_t)io_uring_cqe_get_data64(cqe[i]), cqe[i]->res);
        }
        io_uring_cq_advance(&u->ring, got);
        if (got < want) {
            break;
        }
    }
    return n;
}

/* The queue is gone (a sandbox now forbids it, or its descriptor was closed under us): every read
 * ends with that error, so that nobody waits for ever. */
static int32_t fail_open_reads(uring_io *u, io_done *done, int32_t max) {
    int32_t n = 0;
    for (int32_t s = 0; s < u->depth && n < max; s++) {
        if (u->slot[s].is_open) {
            done[n++] = finish(u, s, u->broken);
        }
    }
    return n;
}

static int32_t uring_reap(io *handle, io_done *done, int32_t max, bool wait) {
    uring_io *u = (uring_io *)handle;
    int32_t n = 0;
    while (u->n_open > 0 && max > 0) {
        n = u->broken ? fail_open_reads(u, done, max) : take_finished(u, done, max);
        if (n > 0 || (!wait && io_uring_sq_ready(&u->ring) == 0)) {
            break;
        }
        enter(u, wait);
        if (!wait) {
            break;
        }
    }
    return n;
}

#else

static int uring_open(io **out, const io_config *config, smoe_error *err) {
    (void)config;
    *out = NULL;
    return err_set(err, SMOE_ERR_UNSUPPORTED, "io_uring: this program was built without it");
}

static int32_t uring_submit(io *handle, const io_read *reads, int32_t n) {
    (void)handle, (void)reads, (void)n;
    return 0;
}

static int32_t uring_reap(io *handle, io_done *done, int32_t max, bool wait) {
    (void)handle, (void)done, (void)max, (void)wait;
    return 0;
}

static void uring_close(io *handle) {
    (void)handle;
}

static void uring_set_room(io *handle, void *base, uint64_t bytes, uint64_t most_bytes) {
    (void)handle, (void)base, (void)bytes, (void)most_bytes;
}

static uint64_t uring_pinned_bytes(const io *handle) {
    (void)handle;
    return 0;
}

#endif

const io_ops io_uring_ops = {
    .name = "io_uring",
    .open = uring_open,
    .submit = uring_submit,
    .reap = uring_reap,
    .close = uring_close,
    .set_room = uring_set_room,
    .pinned_bytes = uring_pinned_bytes,
};
