/* Memory facts from /proc and the cgroup files; see machine.h. Owns no state. */
#include "conductor/machine.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/topology.h"

/* The number after `key` at the start of a line of a small text file; false when there is none. */
static bool field(const char *path, const char *key, uint64_t *out) {
    FILE *f = fopen(path, "re");
    char line[512];
    bool found = false;
    size_t n = strlen(key);
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned long long v;
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%llu", &v) == 1) {
            *out = v;
            found = true;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* ---- cgroups */

/* Walks from a cgroup up to the mount, since every parent's limit holds too. */
static void visit_hierarchy(const char *mount, const char *cgroup, bool v2, cgroup_fn fn,
                            void *user) {
    char dir[1100];
    snprintf(dir, sizeof dir, "%s%s", mount, cgroup);
    size_t root = strlen(mount);
    for (;;) {
        fn(user, dir, v2);
        char *slash = strrchr(dir, '/');
        if (!slash || strlen(dir) <= root) {
            return;
        }
        *slash = '\0';
    }
}

/* Whether a line of /proc/self/cgroup, "4:cpu,cpuacct:/path", is of this controller. */
static bool is_of(const char *line, const char *controller) {
    const char *at = strchr(line, ':');
    size_t n = strlen(controller);
    while (at && at[1] != '/') {
        at++;
        if (strncmp(at, controller, n) == 0 && (at[n] == ',' || at[n] == ':')) {
            return true;
        }
        at += strcspn(at, ",:");
        at = *at == ',' ? at : NULL;
    }
    return false;
}

void machine_visit_cgroups(const char *controller, cgroup_fn fn, void *user) {
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[1024], mount[64];
    snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *path = strchr(line, '/');
        if (!path) {
            continue;
        }
        if (strncmp(line, "0::", 3) == 0) {
            visit_hierarchy("/sys/fs/cgroup", path, true, fn, user);
        } else if (is_of(line, controller)) {
            visit_hierarchy(mount, path, false, fn, user);
            /* inside a container the path is the host's, and the mount is the cgroup itself */
            fn(user, mount, false);
        }
    }
    if (f) {
        fclose(f);
    }
}

/* False when the folder has no limit of memory. */
static bool limit_of(const char *dir, bool v2, uint64_t *limit) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.max" : "memory.limit_in_bytes");
    return field(path, "", limit); /* no such file, or "max" */
}

/* What one folder leaves: its limit less what it uses, cache that can go given back. */
static void apply_limit(void *user, const char *dir, bool v2) {
    uint64_t *available = user;
    char path[1200];
    uint64_t limit;
    uint64_t used;
    uint64_t cache = 0;
    if (!limit_of(dir, v2, &limit)) {
        return;
    }
    snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (!field(path, "", &used)) {
        return;
    }
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    field(path, v2 ? "inactive_file " : "total_inactive_file ", &cache);
    used = used > cache ? used - cache : 0;
    uint64_t left = limit > used ? limit - used : 0;
    *available = left < *available ? left : *available;
}

static void take_least_limit(void *user, const char *dir, bool v2) {
    uint64_t *least = user;
    uint64_t limit = 0;
    if (limit_of(dir, v2, &limit) && limit < *least) {
        *least = limit;
    }
}

uint64_t machine_memory_limit(void) {
    uint64_t least = UINT64_MAX;
    machine_visit_cgroups("memory", take_least_limit, &least);
    return least < (uint64_t)1 << 62 ? least : UINT64_MAX; /* v1 writes a huge number for none */
}

/* "QUOTA PERIOD" in microseconds, "max" or -1 for none. */
static void take_least_quota(void *user, const char *dir, bool v2) {
    double *least = user;
    char path[1200];
    uint64_t quota = 0, period = 100000;
    snprintf(path, sizeof path, "%s/%s", dir, v2 ? "cpu.max" : "cpu.cfs_quota_us");
    FILE *f = fopen(path, "re");
    long long found = -1, second = 0;
    int n = f ? fscanf(f, "%lld %lld", &found, &second) : 0;
    if (f) {
        fclose(f);
    }
    if (n < 1 || found <= 0) {
        return;
    }
    quota = (uint64_t)found;
    if (v2) {
        period = n == 2 && second > 0 ? (uint64_t)second : period;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
        (void)field(path, "", &period);
    }
    double cpus = period > 0 ? (double)quota / (double)period : 0;
    *least = cpus > 0 && (*least <= 0 || cpus < *least) ? cpus : *least;
}

double machine_cpu_quota(void) {
    double least = 0;
    machine_visit_cgroups("cpu", take_least_quota, &least);
    return least;
}

int32_t machine_threads(void) {
    double quota = machine_cpu_quota();
    int32_t n = topology_get()->n_core;
    int32_t most = quota > 0 && quota < n ? (int32_t)(quota + 0.999) : n;
    return most < LIMIT_THREADS ? most : LIMIT_THREADS;
}

/* ---- memory */

void machine_memory_now(machine_memory *out) {
    uint64_t kib = 0;
    *out = (machine_memory){.available_bytes = UINT64_MAX / 2};
    if (field("/proc/meminfo", "MemAvailable:", &kib)) {
        out->available_bytes = kib << 10;
    }
    uint64_t left_bytes = UINT64_MAX;
    machine_visit_cgroups("memory", apply_limit, &left_bytes);
    out->available_bytes = left_bytes < out->available_bytes ? left_bytes : out->available_bytes;
    if (field("/proc/self/status", "VmRSS:", &kib)) {
        out->process_bytes = kib << 10;
    }
    out->limit_bytes = left_bytes < (uint64_t)1 << 62 ? left_bytes + out->process_bytes : 0;
    out->peak_bytes = machine_peak_bytes();
}

uint64_t machine_peak_bytes(void) {
    uint64_t kib = 0;
    field("/proc/self/status", "VmHWM:", &kib);
    return kib << 10;
}

void machine_forget_program(void) {
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}
