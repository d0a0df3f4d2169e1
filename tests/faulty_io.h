/* A back end that misbehaves on order: wraps the thread back end and bends what comes back. One
 * script at a time for the whole process; driven, like any back end, by one thread.
 *
 *     faulty_reset();
 *     faulty_add(&(fault){.kind = FAULT_ERRNO, .value = EIO, .nth = 3, .times = 1});
 *     config.ops = &faulty_ops;
 */
#ifndef SMOE_TESTS_FAULTY_IO_H
#define SMOE_TESTS_FAULTY_IO_H

#include "streamer/io.h"

#define FAULT_FOREVER INT32_MAX

typedef enum fault_kind {
    FAULT_ERRNO, /* value is the errno; the buffer is overwritten */
    FAULT_SHORT, /* only value bytes arrive (fewer than asked for), the rest is overwritten */
    FAULT_HALF,  /* half of the bytes asked for */
    FAULT_EOF,   /* 0 */
    FAULT_FLIP   /* the lowest bit of byte from is flipped */
} fault_kind;

/* Applies to reads that overlap [from, to) of file; to 0: every read of every file. */
typedef struct fault {
    fault_kind kind;
    int32_t value;
    int32_t file;
    uint64_t from, to;
    int32_t nth;   /* spares this many fitting reads first */
    int32_t times; /* then strikes so many */
} fault;

typedef enum faulty_order {
    FAULTY_AS_IT_COMES,
    FAULTY_IN_ORDER, /* of submission; this and the following: one for each reap */
    FAULTY_REVERSED,
    FAULTY_SHUFFLED
} faulty_order;

typedef struct faulty_script {
    int open_code;       /* not 0: open fails with it */
    bool refuses_direct; /* open fails with SMOE_ERR_UNSUPPORTED when direct */
    int32_t take_max;    /* not 0: each submit takes at most so many */
    bool takes_nothing;
    bool only_waiting; /* nothing is finished until somebody waits */
    faulty_order order;
} faulty_script;

extern faulty_script faulty;
extern const io_ops faulty_ops;

void faulty_reset(void); /* an obedient back end, an empty log */
void faulty_add(const fault *f);
void faulty_clear(void); /* lifts the faults, keeps the rest */

/* Reads as taken, oldest first. */
int32_t faulty_logged(void);
const io_read *faulty_log(int32_t index);
int32_t faulty_most_in_flight(void);
int32_t faulty_open_count(void); /* opened and not closed */

#endif
