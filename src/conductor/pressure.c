/* Memory pressure; see pressure.h. The decision is arithmetic over samples, so that tests can make
 * their own. */
#include "conductor/pressure.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "conductor/machine.h"

#define LOOK_NS       250000000u
#define HOLD_FIRST_NS 5000000000u
#define HOLD_MOST_NS  300000000000u
/* Shares of the time in which some task stood still for memory: above the first it hurts, below the
 * second it is noise. */
#define STALL_HIGH 0.10
#define STALL_LOW  0.02
/* Major faults a second: a process that is being paged out has thousands. */
/* The system's PSI rises also when another cgroup runs into its own limit, which a smaller ring
 * would not help: it counts only while less than this share of the memory is available. */
#define SHORT_SHARE (1.0 / 16)
#define FAULTS_HIGH 200.0
#define FAULTS_LOW  20.0

/* ---- looking */

static int open_in(const char *dir, const char *name) {
    char path[1200];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static void open_cgroup(void *user, const char *dir, bool v2) {
    pressure *p = user;
    int fd = p->n_limit < PRESSURE_LIMITS
                 ? open_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes")
                 : -1;
    if (fd >= 0) {
        p->limit_fd[p->n_limit++] = fd;
    }
    if (v2 && p->stall_fd < 0) { /* its own comes first */
        p->stall_fd = open_in(dir, "memory.pressure");
    }
}

void pressure_open(pressure *p) {
    *p = (pressure){.stall_fd = -1, .meminfo_fd = -1, .hold_ns = HOLD_FIRST_NS};
    machine_visit_cgroups("memory", open_cgroup, p);
    if (p->stall_fd < 0) {
        p->stall_fd = open("/proc/pressure/memory", O_RDONLY | O_CLOEXEC);
        p->meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    }
}

void pressure_close(pressure *p) {
    for (int32_t i = 0; i < p->n_limit; i++) {
        close(p->limit_fd[i]);
    }
    if (p->n_limit > 0 || p->hold_ns > 0) { /* else it was never opened */
        if (p->stall_fd >= 0) {
            close(p->stall_fd);
        }
        if (p->meminfo_fd >= 0) {
            close(p->meminfo_fd);
        }
    }
    *p = (pressure){.stall_fd = -1, .meminfo_fd = -1};
}

/* The number after key, or fallback. */
static uint64_t read_number(int fd, const char *key, uint64_t fallback) {
    char text[256];
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : -1;
    if (n <= 0) {
        return fallback;
    }
    text[n] = '\0';
    const char *at = *key ? strstr(text, key) : text;
    char *end = NULL;
    unsigned long long v = at ? strtoull(at + strlen(key), &end, 10) : 0;
    return at && end != at + strlen(key) ? v : fallback; /* "max" is no number */
}

static uint64_t stall_us(pressure *p) {
    uint64_t us = read_number(p->stall_fd, "total=", p->total_us);
    if (p->meminfo_fd >= 0) {
        double all = (double)read_number(p->meminfo_fd, "MemTotal:", 0);
        double left = (double)read_number(p->meminfo_fd, "MemAvailable:", 0);
        p->foreign_us += left > all * SHORT_SHARE ? us - p->total_us : 0;
    }
    p->total_us = us;
    return us - p->foreign_us;
}

bool pressure_look(pressure *p, pressure_sample *out) {
    uint64_t at_ns = now_ns();
    struct rusage use;
    if (at_ns < p->next_ns) {
        return false;
    }
    p->next_ns = at_ns + LOOK_NS;
    *out = (pressure_sample){.now_ns = at_ns, .limit_bytes = UINT64_MAX};
    for (int32_t i = 0; i < p->n_limit; i++) {
        uint64_t limit = read_number(p->limit_fd[i], "", UINT64_MAX);
        out->limit_bytes = limit < out->limit_bytes ? limit : out->limit_bytes;
    }
    out->stall_us = stall_us(p);
    out->n_fault = getrusage(RUSAGE_SELF, &use) == 0 ? (uint64_t)use.ru_majflt : 0;
    return true;
}

/* ---- deciding */

static uint64_t within(uint64_t v, uint64_t least, uint64_t most) {
    return v < least ? least : v > most ? most : v;
}

/* What the plan's ring shrinks to under a lower limit. */
static uint64_t most_under(const pressure_bounds *b, uint64_t limit_bytes) {
    if (limit_bytes >= b->ceiling_bytes) {
        return b->ring_bytes;
    }
    uint64_t less = b->ceiling_bytes - limit_bytes;
    return b->ring_bytes > less + b->floor_bytes ? b->ring_bytes - less : b->floor_bytes;
}

uint64_t pressure_decide(pressure *p, const pressure_sample *s, const pressure_bounds *b,
                         uint64_t ring_bytes, const char **why) {
    pressure_sample last = p->has_last ? p->last : *s;
    double seconds = (double)(s->now_ns - last.now_ns) * 1e-9;
    uint64_t most = most_under(b, s->limit_bytes);
    p->last = *s;
    p->calm_since_ns = p->has_last ? p->calm_since_ns : s->now_ns;
    p->has_last = true;
    if (ring_bytes > most) {
        *why = "the cgroup's limit is lower now";
        p->calm_since_ns = s->now_ns;
        return most;
    }
    if (seconds <= 0) {
        return ring_bytes;
    }
    double stall = (double)(s->stall_us - last.stall_us) * 1e-6 / seconds;
    double faults = (double)(s->n_fault - last.n_fault) / seconds;
    if (stall > STALL_HIGH || faults > FAULTS_HIGH) {
        uint64_t next = within(ring_bytes - ring_bytes / 8, b->floor_bytes, most);
        p->calm_since_ns = s->now_ns;
        p->hold_ns = within(p->hold_ns * 2, HOLD_FIRST_NS, HOLD_MOST_NS);
        if (next != ring_bytes) {
            *why = stall > STALL_HIGH ? "the system stalls for memory"
                                      : "pages of this process come back from the drive";
        }
        return next;
    }
    if (stall > STALL_LOW || faults > FAULTS_LOW) {
        p->calm_since_ns = s->now_ns;
    }
    if (ring_bytes < most && s->now_ns - p->calm_since_ns >= p->hold_ns) {
        *why = "memory is free again";
        p->calm_since_ns = s->now_ns;
        return within(ring_bytes + b->ring_bytes / 16, b->floor_bytes, most);
    }
    return ring_bytes;
}
