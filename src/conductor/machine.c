/* Memory facts from /proc and the cgroup files; see machine.h. Owns no state. */
#include "conductor/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

/* What one cgroup folder leaves: its limit less what it uses, cache that can go given back. */
static void apply_limit(const char *dir, bool v2, uint64_t *available) {
    char path[1200];
    uint64_t limit;
    uint64_t used;
    uint64_t cache = 0;
    snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.max" : "memory.limit_in_bytes");
    if (!field(path, "", &limit)) {
        return; /* no such file, or "max" */
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

/* Walks from a cgroup up to the mount, since every parent's limit holds too. */
static void apply_hierarchy(const char *mount, const char *cgroup, bool v2, uint64_t *available) {
    char dir[1100];
    snprintf(dir, sizeof dir, "%s%s", mount, cgroup);
    size_t root = strlen(mount);
    for (;;) {
        apply_limit(dir, v2, available);
        char *slash = strrchr(dir, '/');
        if (!slash || strlen(dir) <= root) {
            return;
        }
        *slash = '\0';
    }
}

static void apply_cgroups(uint64_t *available) {
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[1024];
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *path = strchr(line, '/');
        if (!path) {
            continue;
        }
        if (strncmp(line, "0::", 3) == 0) {
            apply_hierarchy("/sys/fs/cgroup", path, true, available);
        } else if (strstr(line, ":memory:")) {
            apply_hierarchy("/sys/fs/cgroup/memory", path, false, available);
            /* inside a container the path is the host's, and the mount is the cgroup itself */
            apply_limit("/sys/fs/cgroup/memory", false, available);
        }
    }
    if (f) {
        fclose(f);
    }
}

void machine_memory_now(machine_memory *out) {
    uint64_t kib = 0;
    *out = (machine_memory){.available_bytes = UINT64_MAX / 2};
    if (field("/proc/meminfo", "MemAvailable:", &kib)) {
        out->available_bytes = kib << 10;
    }
    apply_cgroups(&out->available_bytes);
    if (field("/proc/self/status", "VmRSS:", &kib)) {
        out->process_bytes = kib << 10;
    }
    out->peak_bytes = machine_peak_bytes();
}

uint64_t machine_peak_bytes(void) {
    uint64_t kib = 0;
    field("/proc/self/status", "VmHWM:", &kib);
    return kib << 10;
}
