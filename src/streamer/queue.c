/* From loads to reads; see queue.h. Owns the back end, the pieces and the lists of loads. */
#include "streamer/queue.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

/* One read of a load, from its first submission until all its needed bytes are there. */
struct piece {
    int32_t load;
    int32_t ext;
    int32_t next; /* spare pieces */
    enum { PIECE_SPARE, PIECE_FLIGHT, PIECE_AGAIN } state;
    bool is_spec;
    int32_t drive;
    uint64_t sent_ns;
    uint64_t offset; /* in the file */
    uint32_t bytes;
    uint32_t done_bytes;
    int32_t n_retry;
    int32_t n_passing;
};

int32_t queue_slots(int32_t depth, int32_t n_drive) {
    return 2 * depth * n_drive;
}

int queue_open(queue *q, const queue_config *config, smoe_error *err) {
    size_t n_slot = (size_t)queue_slots(config->depth, config->n_drive);
    size_t n_load = (size_t)config->n_load;
    *q = (queue){.ops = config->ops,
                 .direct = config->direct,
                 .n_drive = config->n_drive,
                 .n_file = config->n_file,
                 .depth = config->depth * config->n_drive,
                 .n_slot = (int32_t)n_slot,
                 .read_bytes = config->read_bytes,
                 .n_load = config->n_load,
                 .list = {{-1, -1}, {-1, -1}}};
    q->load = mem_array(n_load, sizeof *q->load);
    q->finished = mem_array(n_load, sizeof *q->finished);
    q->piece = mem_array(n_slot, sizeof *q->piece);
    q->batch = mem_array(n_slot, sizeof *q->batch);
    q->done = mem_array(n_slot, sizeof *q->done);
    if (!q->load || !q->finished || !q->piece || !q->batch || !q->done) {
        queue_close(q);
        return err_no_memory(err, n_load * sizeof *q->load);
    }
    for (int32_t i = 0; i < q->n_slot; i++) {
        q->piece[i].next = i + 1 < q->n_slot ? i + 1 : -1;
    }
    q->io = config->io;
    return SMOE_OK;
}

void queue_close(queue *q) {
    if (q->ops) {
        q->ops->close(q->io);
    }
    free(q->load);
    free(q->finished);
    free(q->piece);
    free(q->batch);
    free(q->done);
    *q = (queue){0};
}

uint64_t queue_held_bytes(const queue *q) {
    return (uint64_t)q->n_load * (sizeof *q->load + sizeof *q->finished) +
           (uint64_t)q->n_slot * (sizeof *q->piece + sizeof *q->batch + sizeof *q->done);
}

/* ---- where bytes go */

static uint64_t cover_at(const expert_ref *ref, int32_t ext) {
    uint64_t at = 0;
    for (int32_t i = 0; i < ext; i++) {
        at += extent_cover_bytes(&ref->ext[i]);
    }
    return at;
}

const uint8_t *extent_at(const expert_ref *ref, int32_t ext, const uint8_t *base) {
    const extent *e = &ref->ext[ext];
    return base + cover_at(ref, ext) + (e->offset - extent_cover_start(e));
}

/* The first byte to read of an extent and the one behind the last. */
static uint64_t read_start(const queue *q, const extent *e) {
    return q->direct ? extent_cover_start(e) : e->offset;
}

static uint64_t read_end(const queue *q, const extent *e) {
    return q->direct ? extent_cover_start(e) + extent_cover_bytes(e) : e->offset + e->bytes;
}

/* ---- lists */

static void list_append(queue *q, int32_t id) {
    load *l = &q->load[id];
    struct load_list *list = &q->list[l->is_demand];
    l->next = -1;
    l->is_listed = true;
    if (list->tail >= 0) {
        q->load[list->tail].next = id;
    } else {
        list->head = id;
    }
    list->tail = id;
}

static void list_remove(queue *q, int32_t id) {
    load *l = &q->load[id];
    struct load_list *list = &q->list[l->is_demand];
    int32_t before = -1;
    if (!l->is_listed) {
        return;
    }
    for (int32_t i = list->head; i != id; i = q->load[i].next) {
        before = i;
    }
    if (before >= 0) {
        q->load[before].next = l->next;
    } else {
        list->head = l->next;
    }
    if (list->tail == id) {
        list->tail = before;
    }
    l->is_listed = false;
}

static void free_piece(queue *q, int32_t p) {
    piece *e = &q->piece[p];
    q->n_spec -= e->is_spec;
    q->n_begun--;
    q->n_begun_of[e->drive]--;
    q->load[e->load].n_piece--;
    e->state = PIECE_SPARE;
    e->next = q->spare_piece;
    q->spare_piece = p;
}

/* Nothing more of this load is to be read. */
static void stop_load(queue *q, int32_t id) {
    list_remove(q, id);
    for (int32_t p = 0; q->n_again > 0 && p < q->n_slot; p++) {
        if (q->piece[p].state == PIECE_AGAIN && q->piece[p].load == id) {
            q->n_again--;
            free_piece(q, p);
        }
    }
}

static void finish_if_done(queue *q, int32_t id) {
    load *l = &q->load[id];
    if (l->n_piece == 0 && !l->is_listed) {
        q->finished[(q->finished_at + q->n_finished) % q->n_load] = id;
        q->n_finished++;
    }
}

/* ---- what the streamer asks for */

void queue_push(queue *q, int32_t id, const expert_ref *ref, uint8_t *base, bool is_demand) {
    q->load[id] = (load){.ref = ref, .base = base, .is_demand = is_demand};
    list_append(q, id);
}

void queue_set_class(queue *q, int32_t id, bool is_demand) {
    load *l = &q->load[id];
    if (l->is_demand == is_demand) {
        return;
    }
    bool was_listed = l->is_listed;
    list_remove(q, id);
    l->is_demand = is_demand;
    if (was_listed) {
        list_append(q, id);
    }
    for (int32_t p = 0; p < q->n_slot; p++) {
        piece *e = &q->piece[p];
        if (e->state != PIECE_SPARE && e->load == id) {
            q->n_spec += (int)!is_demand - (int)e->is_spec;
            e->is_spec = !is_demand;
            e->n_retry = e->n_passing = 0; /* who asks anew gets all attempts */
        }
    }
}

bool queue_cancel(queue *q, int32_t id) {
    load *l = &q->load[id];
    stop_load(q, id);
    l->is_cancelled = true;
    if (l->n_piece > 0) {
        return false;
    }
    return true;
}

static int32_t find_again(const queue *q, int32_t id, bool is_demand) {
    for (int32_t p = 0; q->n_again > 0 && p < q->n_slot; p++) {
        const piece *e = &q->piece[p];
        if (e->state == PIECE_AGAIN && (id < 0 || e->load == id) &&
            q->load[e->load].is_demand == is_demand) {
            return p;
        }
    }
    return -1;
}

bool queue_is_sent(const queue *q, int32_t id) {
    const load *l = &q->load[id];
    return !l->is_listed && find_again(q, id, l->is_demand) < 0;
}

int32_t queue_unsent_spec(const queue *q) {
    int32_t p = find_again(q, -1, false);
    return p >= 0 ? q->piece[p].load : q->list[false].head;
}

/* ---- sending */

static void add_to_batch(queue *q, int32_t p) {
    piece *e = &q->piece[p];
    const load *l = &q->load[e->load];
    const extent *x = &l->ref->ext[e->ext];
    uint64_t at = e->offset + e->done_bytes;
    e->state = PIECE_FLIGHT;
    q->batch[q->n_batch++] = (io_read){
        .file = e->drive * q->n_file + x->file,
        .bytes = e->bytes - e->done_bytes,
        .offset = at,
        .buf = l->base + cover_at(l->ref, e->ext) + (at - extent_cover_start(x)),
        .tag = (uint64_t)p,
    };
}

/* The drive with the least to do, so that a faster one gets more; blocks are dealt out in turn
 * while they are equal. */
static int32_t choose_drive(const queue *q, uint64_t at) {
    int32_t first = (int32_t)(at / q->read_bytes % (uint64_t)q->n_drive);
    int32_t best = first;
    for (int32_t i = 1; i < q->n_drive; i++) {
        int32_t d = (first + i) % q->n_drive;
        best = q->n_begun_of[d] < q->n_begun_of[best] ? d : best;
    }
    return best;
}

/* Cuts the next piece off the first load of a class. */
static int32_t cut_piece(queue *q, bool is_demand) {
    int32_t id = q->list[is_demand].head;
    load *l = &q->load[id];
    const extent *x = &l->ref->ext[l->ext];
    uint64_t at = l->at > 0 ? l->at : read_start(q, x);
    uint64_t left = read_end(q, x) - at;
    uint32_t bytes = left < q->read_bytes ? (uint32_t)left : q->read_bytes;
    int32_t drive = choose_drive(q, at);
    int32_t p = q->spare_piece;
    q->spare_piece = q->piece[p].next;
    q->piece[p] = (piece){.load = id,
                          .ext = l->ext,
                          .is_spec = !is_demand,
                          .drive = drive,
                          .offset = at,
                          .bytes = bytes};
    q->n_begun++;
    q->n_begun_of[drive]++;
    q->n_spec += !is_demand;
    l->n_piece++;
    l->at = at + bytes;
    if (bytes == left) {
        l->ext++;
        l->at = 0;
        if (l->ext == l->ref->n_ext) {
            list_remove(q, id);
        }
    }
    return p;
}

bool queue_has_room(const queue *q, bool is_demand) {
    /* without a slot: reads of an abandoned demand hold theirs until they land */
    return q->spare_piece >= 0 && (is_demand ? q->n_begun - q->n_spec : q->n_begun) < q->depth;
}

bool queue_stage(queue *q, bool is_demand) {
    int32_t p;
    while ((p = find_again(q, -1, is_demand)) >= 0) {
        q->n_again--;
        add_to_batch(q, p);
    }
    while (q->list[is_demand].head >= 0 && queue_has_room(q, is_demand)) {
        add_to_batch(q, cut_piece(q, is_demand));
    }
    return q->list[is_demand].head < 0;
}

void queue_send(queue *q) {
    if (q->n_batch == 0) {
        return;
    }
    uint64_t sent_ns = now_ns();
    for (int32_t i = 0; i < q->n_batch; i++) {
        q->piece[q->batch[i].tag].sent_ns = sent_ns;
    }
    int32_t taken = q->ops->submit(q->io, q->batch, q->n_batch);
    for (int32_t i = taken; i < q->n_batch; i++) {
        q->piece[q->batch[i].tag].state = PIECE_AGAIN;
        q->n_again++;
    }
    if (q->n_flight == 0 && taken > 0) {
        q->busy_since_ns = sent_ns;
    }
    q->n_flight += taken;
    q->n_batch = 0;
}

/* ---- taking in */

/* Adds what a read brought. Returns 0 to go on, 1 when the piece is complete; anything else is
 * failure, after as many attempts as its kind deserves. */
static int take_result(queue *q, piece *e, int32_t result) {
    const extent *x = &q->load[e->load].ref->ext[e->ext];
    uint64_t need_end = x->offset + x->bytes;
    uint64_t end = e->offset + e->bytes;
    bool advanced = false;
    if (result > 0 && (uint32_t)result <= e->bytes - e->done_bytes) {
        uint32_t got = e->done_bytes + (uint32_t)result;
        q->drive_bytes += (uint32_t)result;
        q->bytes_of[e->drive] += (uint32_t)result;
        if (e->offset + got >= (need_end < end ? need_end : end)) {
            return 1;
        }
        /* a direct read can only go on from a multiple of the alignment */
        got = q->direct ? got / IO_ALIGN_BYTES * IO_ALIGN_BYTES : got;
        advanced = got > e->done_bytes;
        e->done_bytes = got;
    }
    bool passing = result == -EINTR || result == -EAGAIN || result == -ECANCELED;
    if (passing) {
        e->n_passing++;
    } else if (!advanced) {
        e->n_retry++;
    }
    return e->n_retry > QUEUE_RETRIES || e->n_passing > QUEUE_PASSING_RETRIES ? -1 : 0;
}

static void fail_load(queue *q, const piece *e, int32_t result) {
    load *l = &q->load[e->load];
    if (!l->is_failed) {
        l->is_failed = true;
        l->errnum = result < 0 ? -result : 0;
        l->bad_file = l->ref->ext[e->ext].file;
        l->bad_offset = e->offset + e->done_bytes;
    }
}

static void count(io_histogram *h, uint64_t value) {
    int32_t slot = value ? 64 - __builtin_clzll(value) : 0;
    h->count[slot < IO_SLOTS ? slot : IO_SLOTS - 1]++;
}

/* Another drive may have what this one cannot give. */
static void change_drive(queue *q, piece *e) {
    q->n_begun_of[e->drive]--;
    e->drive = (e->drive + 1) % q->n_drive;
    q->n_begun_of[e->drive]++;
}

static void take_done(queue *q, const io_done *done, uint64_t at_ns) {
    int32_t p = (int32_t)done->tag;
    piece *e = &q->piece[p];
    int32_t id = e->load;
    load *l = &q->load[id];
    q->n_flight--;
    q->n_read++;
    count(&q->latency_us, (at_ns - e->sent_ns) / 1000);
    count(&q->size_kib, (e->bytes - e->done_bytes) >> 10);
    int verdict = take_result(q, e, done->result);
    if (verdict == 0 && !l->is_cancelled && !l->is_failed) {
        q->read_retries++;
        if (done->result < 0) {
            change_drive(q, e);
        }
        e->state = PIECE_AGAIN;
        q->n_again++;
        return;
    }
    if (verdict < 0 && !l->is_cancelled) {
        fail_load(q, e, done->result);
        stop_load(q, id);
    }
    free_piece(q, p);
    finish_if_done(q, id);
}

int32_t queue_reap(queue *q, bool wait) {
    if (q->n_flight == 0) {
        return 0;
    }
    int32_t n = q->ops->reap(q->io, q->done, q->n_slot, wait);
    uint64_t at_ns = n > 0 ? now_ns() : 0;
    for (int32_t i = 0; i < n; i++) {
        take_done(q, &q->done[i], at_ns);
    }
    if (q->n_flight == 0) {
        q->busy_ns += at_ns - q->busy_since_ns;
    }
    return n;
}

int32_t queue_pop(queue *q, load_end *end) {
    if (q->n_finished == 0) {
        return -1;
    }
    int32_t id = q->finished[q->finished_at];
    q->finished_at = (q->finished_at + 1) % q->n_load;
    q->n_finished--;
    load *l = &q->load[id];
    *end = l->is_cancelled ? LOAD_CANCELLED : l->is_failed ? LOAD_FAILED : LOAD_LANDED;
    return id;
}
