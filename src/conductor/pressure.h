/* Memory pressure: notices that the system wants memory back, and when it no longer does.
 *
 * Looks, at most four times a second and between tokens, at the limits of the process's cgroups, at
 * pressure stall information (PSI; the cgroup's own where there is one, else the whole system's,
 * which counts only while memory is short) and at the process's major faults, and says how large
 * the ring should be: never above the plan's, never below the floor. A falling limit is followed at
 * once. Stalls or faults take an eighth away each time (the roof: more ring would be paid for by
 * other pages); after a calm time, longer after each relapse, a sixteenth of the plan's comes back.
 *
 * Owns a few open descriptors, so that looking allocates nothing. Resizes nothing itself.
 */
#ifndef SMOE_CONDUCTOR_PRESSURE_H
#define SMOE_CONDUCTOR_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

enum { PRESSURE_LIMITS = 8 };

typedef struct pressure_sample {
    uint64_t now_ns;
    uint64_t limit_bytes; /* least of the cgroup limits; UINT64_MAX: none */
    uint64_t stall_us;    /* PSI "some": time in which it concerned this process */
    uint64_t n_fault;     /* major faults of this process so far */
} pressure_sample;

typedef struct pressure_bounds {
    uint64_t ceiling_bytes; /* the plan's, and the ring in it */
    uint64_t ring_bytes;
    uint64_t floor_bytes;
} pressure_bounds;

typedef struct pressure {
    int stall_fd;
    int meminfo_fd;    /* with the system's PSI; -1 with the cgroup's own */
    uint64_t total_us; /* of the PSI at the last look, and what of it did not concern us */
    uint64_t foreign_us;
    int limit_fd[PRESSURE_LIMITS];
    int32_t n_limit;
    uint64_t next_ns; /* of the next look */
    bool has_last;
    pressure_sample last;
    uint64_t calm_since_ns;
    uint64_t hold_ns; /* how long it must be calm before the ring grows */
} pressure;

void pressure_open(pressure *p);
void pressure_close(pressure *p); /* a zeroed one too */
/* False while it is too early for the next look. */
bool pressure_look(pressure *p, pressure_sample *out);
/* The ring's next size, given its present one. *why is a static text when it changes. */
uint64_t pressure_decide(pressure *p, const pressure_sample *s, const pressure_bounds *b,
                         uint64_t ring_bytes, const char **why);

#endif
