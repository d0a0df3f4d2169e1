/* Which CPUs share a core and which a memory node, as Linux tells it in sysfs, and in what order
 * compute threads should take them. Where sysfs says nothing, every CPU is a core of its own and
 * all are on one node. Never changes a thread's affinity.
 */
#ifndef SMOE_BASE_TOPOLOGY_H
#define SMOE_BASE_TOPOLOGY_H

#include <sched.h>
#include <stdint.h>

typedef struct topology {
    int32_t n_cpu;              /* that this process may use, at least 1 */
    int32_t n_core;             /* physical cores among them */
    int32_t n_node;             /* memory nodes that these CPUs belong to */
    uint64_t nodes[16];         /* their numbers, as a mask */
    int32_t order[CPU_SETSIZE]; /* [n_cpu]: one CPU of each core first, node by node; then the
                                   cores' second CPUs in the same order, and so on */
} topology;

/* Of this machine and this process's affinity; read once. */
const topology *topology_get(void);
/* For tests: from another tree instead of /sys/devices/system. */
void topology_read(topology *out, const char *sys_dir, const cpu_set_t *allowed);
/* Lets the pages of a map that has not been touched come from all nodes in turn, when this process
 * may use CPUs of several: no node's memory is then the limit of all threads. Best effort. */
void topology_spread(void *base, uint64_t bytes);

#endif
