/* The misbehaving back end; see faulty_io.h. Owns the script, the log and one table of reads. */
#include "faulty_io.h"

#include <errno.h>

#include "base/mem.h"
#include "test.h"

enum { MAX_FAULTS = 64, MAX_LOG = 1 << 16, MAX_DEPTH = 1024 };

faulty_script faulty;

static fault faults[MAX_FAULTS];
static int32_t n_fault;
static io_read taken[MAX_LOG];
static int32_t n_taken;
static int32_t most_in_flight;
static int32_t n_opened;

typedef struct faulty_io {
    io *inner;
    struct slot {
        io_read read;
        enum { SLOT_SPARE, SLOT_FLIGHT, SLOT_DONE } state;
        uint64_t serial;
        bool has_fault;
        fault fault;
        int32_t result;
    } slot[MAX_DEPTH];
    int32_t depth;
    int32_t n_flight; /* in the inner back end */
    int32_t n_done;
    uint64_t serial;
} faulty_io;

void faulty_reset(void) {
    faulty = (faulty_script){0};
    n_fault = n_taken = most_in_flight = 0;
}

void faulty_clear(void) {
    n_fault = 0;
}

void faulty_add(const fault *f) {
    CHECK(n_fault < MAX_FAULTS);
    faults[n_fault++] = *f;
}

int32_t faulty_logged(void) {
    return n_taken;
}

const io_read *faulty_log(int32_t index) {
    CHECK(index >= 0 && index < n_taken && index < MAX_LOG);
    return &taken[index];
}

int32_t faulty_most_in_flight(void) {
    return most_in_flight;
}

int32_t faulty_open_count(void) {
    return n_opened;
}

static int faulty_open(io **out, const io_config *config, smoe_error *err) {
    *out = NULL;
    if (faulty.open_code) {
        return err_set(err, faulty.open_code, "faulty: open refused");
    }
    if (faulty.refuses_direct && config->direct) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "faulty: direct refused");
    }
    faulty_io *f = mem_array(1, sizeof *f);
    CHECK(f && config->depth <= MAX_DEPTH);
    f->depth = config->depth;
    int rc = io_thread_ops.open(&f->inner, config, err);
    if (rc != SMOE_OK) {
        free(f);
        return rc;
    }
    n_opened++;
    *out = (io *)f;
    return SMOE_OK;
}

static void faulty_close(io *handle) {
    faulty_io *f = (faulty_io *)handle;
    if (f) {
        io_thread_ops.close(f->inner);
        free(f);
        n_opened--;
    }
}

static bool fits(const fault *f, const io_read *r) {
    return f->to == 0 ||
           (f->file == r->file && r->offset < f->to && r->offset + r->bytes > f->from);
}

static void draw_fault(struct slot *s) {
    s->has_fault = false;
    for (int32_t i = 0; i < n_fault && !s->has_fault; i++) {
        fault *f = &faults[i];
        if (!fits(f, &s->read) || f->times <= 0) {
            continue;
        }
        if (f->nth > 0) {
            f->nth--;
            continue;
        }
        f->times -= f->times != FAULT_FOREVER;
        s->fault = *f;
        s->has_fault = true;
    }
}

static int32_t faulty_submit(io *handle, const io_read *reads, int32_t n) {
    faulty_io *f = (faulty_io *)handle;
    n = faulty.take_max > 0 && n > faulty.take_max ? faulty.take_max : n;
    n = faulty.takes_nothing ? 0 : n;
    n = n > f->depth - f->n_flight - f->n_done ? f->depth - f->n_flight - f->n_done : n;
    for (int32_t i = 0; i < n; i++) {
        int32_t s = 0;
        while (f->slot[s].state != SLOT_SPARE) {
            s++;
        }
        f->slot[s] = (struct slot){.read = reads[i], .state = SLOT_FLIGHT, .serial = f->serial++};
        draw_fault(&f->slot[s]);
        if (n_taken < MAX_LOG) {
            taken[n_taken++] = reads[i];
        }
        io_read inner = reads[i];
        inner.tag = (uint64_t)s;
        CHECK_INT(io_thread_ops.submit(f->inner, &inner, 1), 1);
        f->n_flight++;
    }
    int32_t in_flight = f->n_flight + f->n_done;
    most_in_flight = in_flight > most_in_flight ? in_flight : most_in_flight;
    return n;
}

static void bend(struct slot *s, int32_t result) {
    uint8_t *buf = s->read.buf;
    const fault *f = &s->fault;
    int32_t keep = result;
    s->result = result;
    if (!s->has_fault || result < 0) {
        return;
    }
    if (f->kind == FAULT_ERRNO) {
        keep = 0;
        s->result = -f->value;
    } else if (f->kind == FAULT_EOF) {
        keep = s->result = 0;
    } else if (f->kind == FAULT_SHORT) {
        keep = s->result = f->value < result ? f->value : result;
    } else if (f->kind == FAULT_HALF) {
        keep = s->result = (result + 1) / 2;
    } else {
        buf[f->from - s->read.offset] ^= 1;
    }
    memset(buf + keep, 0xee, (size_t)(result - keep));
}

static int32_t gather(faulty_io *f, bool wait) {
    io_done done[64];
    int32_t n = io_thread_ops.reap(f->inner, done, 64, wait);
    for (int32_t i = 0; i < n; i++) {
        struct slot *s = &f->slot[done[i].tag];
        bend(s, done[i].result);
        s->state = SLOT_DONE;
    }
    f->n_flight -= n;
    f->n_done += n;
    return n;
}

static io_done hand_back(faulty_io *f, struct slot *s) {
    s->state = SLOT_SPARE;
    f->n_done--;
    return (io_done){.tag = s->read.tag, .result = s->result};
}

static struct slot *pick(faulty_io *f) {
    struct slot *best = NULL;
    int32_t skip = (int32_t)(test_rand() % (uint64_t)f->n_done);
    for (int32_t i = 0; i < f->depth; i++) {
        struct slot *s = &f->slot[i];
        if (s->state != SLOT_DONE) {
            continue;
        }
        if (faulty.order == FAULTY_SHUFFLED && skip-- == 0) {
            return s;
        }
        bool earlier = !best || s->serial < best->serial;
        if (!best || earlier == (faulty.order == FAULTY_IN_ORDER)) {
            best = s;
        }
    }
    return best;
}

static int32_t faulty_reap(io *handle, io_done *done, int32_t max, bool wait) {
    faulty_io *f = (faulty_io *)handle;
    int32_t n = 0;
    if (!wait && faulty.only_waiting) {
        return 0;
    }
    if (faulty.order != FAULTY_AS_IT_COMES) {
        /* the order is only known once all have landed */
        while (f->n_flight > 0) {
            gather(f, true);
        }
        if (f->n_done > 0 && max > 0) {
            done[n++] = hand_back(f, pick(f));
        }
        return n;
    }
    gather(f, wait && f->n_done == 0);
    for (int32_t i = 0; i < f->depth && n < max; i++) {
        if (f->slot[i].state == SLOT_DONE) {
            done[n++] = hand_back(f, &f->slot[i]);
        }
    }
    return n;
}

const io_ops faulty_ops = {
    .name = "faulty",
    .open = faulty_open,
    .submit = faulty_submit,
    .reap = faulty_reap,
    .close = faulty_close,
};
