/* See topology.h. */
#include "base/topology.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_NODES = 1024 };

typedef struct place {
    int32_t cpu;
    int32_t node;
    int32_t rank; /* among the allowed CPUs of its core */
} place;

/* A list such as "0-3,8,10-11". False when there is no such file or it is not such a list. */
static bool read_list(const char *path, cpu_set_t *out) {
    char text[4096];
    FILE *f = fopen(path, "re");
    CPU_ZERO(out);
    if (!f) {
        return false;
    }
    char *at = fgets(text, sizeof text, f);
    fclose(f);
    while (at && *at && *at != '\n') {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (end == at) {
            return false;
        }
        if (*end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            if (end == at) {
                return false;
            }
        }
        for (unsigned long i = first; i <= last && i < CPU_SETSIZE; i++) {
            CPU_SET(i, out);
        }
        at = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\n' && *end != '\0') {
            return false;
        }
    }
    return CPU_COUNT(out) > 0;
}

static int32_t rank_of(const char *sys_dir, int32_t cpu, const cpu_set_t *allowed) {
    char path[512];
    cpu_set_t siblings;
    int32_t rank = 0;
    snprintf(path, sizeof path, "%s/cpu/cpu%d/topology/thread_siblings_list", sys_dir, cpu);
    if (read_list(path, &siblings) && CPU_ISSET((size_t)cpu, &siblings)) {
        for (size_t i = 0; i < (size_t)cpu; i++) {
            rank += CPU_ISSET(i, &siblings) && CPU_ISSET(i, allowed);
        }
    }
    return rank;
}

/* node_of stays 0 for CPUs that no node claims. */
static void read_nodes(const char *sys_dir, int32_t *node_of) {
    char path[512];
    cpu_set_t online, cpus;
    snprintf(path, sizeof path, "%s/node/online", sys_dir);
    if (!read_list(path, &online)) {
        return;
    }
    for (int32_t n = 0; n < MAX_NODES && n < CPU_SETSIZE; n++) {
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", sys_dir, n);
        if (!CPU_ISSET((size_t)n, &online) || !read_list(path, &cpus)) {
            continue;
        }
        for (size_t i = 0; i < CPU_SETSIZE; i++) {
            node_of[i] = CPU_ISSET(i, &cpus) ? n : node_of[i];
        }
    }
}

static int before(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

void topology_read(topology *out, const char *sys_dir, const cpu_set_t *allowed) {
    int32_t node_of[CPU_SETSIZE] = {0};
    place p[CPU_SETSIZE];
    int32_t n = 0;
    *out = (topology){.n_cpu = 1, .n_core = 1, .n_node = 1, .nodes = {1}};
    read_nodes(sys_dir, node_of);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, allowed)) {
            int32_t cpu = (int32_t)i;
            p[n++] = (place){cpu, node_of[i], rank_of(sys_dir, cpu, allowed)};
        }
    }
    if (n == 0) {
        return;
    }
    qsort(p, (size_t)n, sizeof *p, before);
    *out = (topology){.n_cpu = n};
    for (int32_t i = 0; i < n; i++) {
        uint64_t *word = &out->nodes[p[i].node / 64], bit = UINT64_C(1) << p[i].node % 64;
        out->order[i] = p[i].cpu;
        out->n_core += p[i].rank == 0;
        out->n_node += !(*word & bit);
        *word |= bit;
    }
}

/* ---- this machine */

static topology here;

static void read_here(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        CPU_ZERO(&allowed);
    }
    topology_read(&here, "/sys/devices/system", &allowed);
}

const topology *topology_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_here);
    return &here;
}

void topology_spread(void *base, uint64_t bytes) {
#ifdef SYS_mbind
    enum { INTERLEAVE = 3 }; /* MPOL_INTERLEAVE of linux/mempolicy.h */
    const topology *t = topology_get();
    if (t->n_node > 1) {
        (void)syscall(SYS_mbind, base, (unsigned long)bytes, INTERLEAVE, t->nodes,
                      (unsigned long)MAX_NODES, 0u);
    }
#else
    (void)base, (void)bytes;
#endif
}
