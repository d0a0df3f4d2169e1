/* From loads to reads: splits what is to be loaded into pieces, keeps as many in flight as the
 * depth allows, resumes short reads, retries failed ones and says which loads have finished.
 *
 * A load is one expert on its way into one ring block; its id is the block's. Demand pieces always
 * pass speculative ones: the caller stages demand first and speculative only when no demand waits.
 * Knows nothing of recency or of what a load is for, and allocates only in queue_open. Driven by
 * one thread.
 */
#ifndef SMOE_STREAMER_QUEUE_H
#define SMOE_STREAMER_QUEUE_H

#include "model/source.h"
#include "streamer/io.h"

/* Attempts after the first when a read fails, and when the system asks to try again. */
#define QUEUE_RETRIES         3
#define QUEUE_PASSING_RETRIES 1000

typedef enum load_end { LOAD_LANDED, LOAD_FAILED, LOAD_CANCELLED } load_end;

typedef struct load {
    const expert_ref *ref;
    uint8_t *base;   /* of its block */
    int32_t next;    /* in the list of its class */
    int32_t n_piece; /* begun and not finished */
    int32_t ext;     /* next byte to ask for: extent and file offset */
    uint64_t at;     /* 0: the extent's start */
    bool is_demand;  /* class */
    bool is_listed;  /* has bytes not asked for yet */
    bool is_cancelled;
    bool is_failed;
    int errnum;       /* why it failed; 0: the file ended */
    int32_t bad_file; /* where */
    uint64_t bad_offset;
} load;

typedef struct piece piece;

typedef struct queue {
    const io_ops *ops;
    io *io;
    bool direct;
    int32_t n_drive; /* copies of every file, each on a drive with a queue of its own */
    int32_t n_file;  /* of one copy */
    int32_t depth;   /* of all drives together, for each class; see queue_has_room */
    int32_t n_slot;  /* pieces, of both classes */
    uint32_t read_bytes;
    load *load; /* [n_load] */
    int32_t n_load;
    struct load_list {
        int32_t head, tail;
    } list[2];    /* by is_demand: loads with bytes not asked for yet */
    piece *piece; /* [n_slot] */
    int32_t spare_piece;
    int32_t n_begun;               /* pieces in use */
    int32_t n_spec;                /* of which speculative */
    int32_t n_begun_of[IO_DRIVES]; /* by drive */
    int32_t n_flight;              /* of which at the back end */
    int32_t n_again;               /* of which waiting to be sent again */
    io_read *batch;                /* [n_slot]; tag: piece */
    int32_t n_batch;
    io_done *done;     /* [n_slot] */
    int32_t *finished; /* [n_load], circular */
    int32_t finished_at, n_finished;
    uint64_t busy_since_ns;
    uint64_t drive_bytes, n_read, read_retries, busy_ns;
    uint64_t bytes_of[IO_DRIVES];
    io_histogram latency_us; /* of reads, from their submission until they were taken in */
    io_histogram size_kib;   /* of reads */
} queue;

typedef struct queue_config {
    const io_ops *ops;
    io *io; /* the queue's after success: queue_close closes it; takes queue_slots reads */
    bool direct;
    int32_t n_drive;     /* 1 to IO_DRIVES; the back end has n_drive * n_file paths, a drive's */
    int32_t n_file;      /* copies one after the other */
    int32_t depth;       /* of each drive: as many reads as it serves at once */
    uint32_t read_bytes; /* a multiple of IO_ALIGN_BYTES */
    int32_t n_load;
} queue_config;

/* How many reads a queue of this depth has in flight at most: the back end's depth. */
int32_t queue_slots(int32_t depth, int32_t n_drive);
int queue_open(queue *q, const queue_config *config, smoe_error *err);
/* Waits for reads in flight; takes a zeroed queue too. */
void queue_close(queue *q);
uint64_t queue_held_bytes(const queue *q);

_Static_assert(IO_ALIGN_BYTES == EXTENT_PAGE_BYTES, "extents are merged by pages");

/* Bytes an extent takes in a block, and where in the block each extent's cover starts. */
static inline uint64_t extent_cover_start(const extent *e) {
    return e->offset / IO_ALIGN_BYTES * IO_ALIGN_BYTES;
}
static inline uint64_t extent_cover_bytes(const extent *e) {
    return (e->offset + e->bytes - extent_cover_start(e) + IO_ALIGN_BYTES - 1) / IO_ALIGN_BYTES *
           IO_ALIGN_BYTES;
}
/* First byte of extent ext of an expert whose block is at base. */
const uint8_t *extent_at(const expert_ref *ref, int32_t ext, const uint8_t *base);

void queue_push(queue *q, int32_t id, const expert_ref *ref, uint8_t *base, bool is_demand);
/* Moves an active load to the other class. */
void queue_set_class(queue *q, int32_t id, bool is_demand);
/* Returns true when nothing of the load is in flight: its block may be reused at once. Otherwise
 * it will be popped as LOAD_CANCELLED. */
bool queue_cancel(queue *q, int32_t id);
/* Whether everything of an active load has been handed to the back end. */
bool queue_is_sent(const queue *q, int32_t id);
/* A speculative load that needs more reads to be sent, or -1. */
int32_t queue_unsent_spec(const queue *q);

/* Prepares reads of one class while the depth allows; true when nothing of the class waits. */
bool queue_stage(queue *q, bool is_demand);
/* Whether another piece of the class could be staged now. Demand has the whole depth to itself,
 * whatever is speculative; speculative reads fill what of the depth is free. So a demand's read
 * finds at most as many others before it as the drive serves at once, and is delayed by at most the
 * time that one block of each takes. */
bool queue_has_room(const queue *q, bool is_demand);
/* Hands what was staged to the back end, in one call. */
void queue_send(queue *q);
/* Takes in finished reads; with wait, blocks for at least one. Returns how many. */
int32_t queue_reap(queue *q, bool wait);
/* The next finished load, or -1. */
int32_t queue_pop(queue *q, load_end *end);

#endif
