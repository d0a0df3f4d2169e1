/* What the machine, the cgroup and this process say about memory. Linux files, read afresh. */
#ifndef SMOE_CONDUCTOR_MACHINE_H
#define SMOE_CONDUCTOR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct machine_memory {
    uint64_t available_bytes; /* the process may still take this much: least of MemAvailable and
                                 every limit of its cgroup and the cgroup's parents */
    uint64_t process_bytes;   /* resident now (VmRSS) */
    uint64_t peak_bytes;      /* most ever resident (VmHWM) */
    uint64_t limit_bytes;     /* what this process may be resident with under the limits of its
                                 cgroups, beside what others in them use; 0: no limit */
} machine_memory;

void machine_memory_now(machine_memory *out);
uint64_t machine_peak_bytes(void);
/* Calls fn for each folder of the cgroup file system that limits this process through controller
 * ("memory"), from its own cgroup up, since every parent's limit holds too. */
typedef void (*cgroup_fn)(void *user, const char *dir, bool v2);
void machine_visit_cgroups(const char *controller, cgroup_fn fn, void *user);
/* The least memory limit of the process's cgroup and its parents; UINT64_MAX: none. */
uint64_t machine_memory_limit(void);
/* The least CPU limit of these in CPUs; 0: none. */
double machine_cpu_quota(void);
/* Threads to compute with unless told otherwise: one for each physical core that this process may
 * use, but no more than the cgroup's quota lets run at once. */
int32_t machine_threads(void);

/* Drops from the page cache what reading ahead has brought in of the running program and nobody
 * maps, such as its debug data: a cgroup counts it as the process's memory. */
void machine_forget_program(void);

#endif
