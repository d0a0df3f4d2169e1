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
        io_uring_queue_exit(&u->ring);
    }
    io_files_close(u->fd, u->n_file);
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
            io_uring_prep_read(sqe, fd, r->buf, r->bytes, r->offset);
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

#endif

const io_ops io_uring_ops = {
    .name = "io_uring",
    .open = uring_open,
    .submit = uring_submit,
    .reap = uring_reap,
    .close = uring_close,
};
