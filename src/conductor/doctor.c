/* What the machine offers a streaming engine, and what stands in its way; see smoe_doctor in
 * smoe.h.
 *
 * Owns the list of checks. Reads Linux files and asks the I/O back ends; changes nothing.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/cpu.h"
#include "base/topology.h"
#include "conductor/model.h"

typedef struct doctor {
    smoe_check_fn fn;
    void *user;
    source *source; /* NULL: no model given */
} doctor;

/* remedy: NULL for none. */
__attribute__((format(printf, 5, 6))) static void say(const doctor *d, const char *name,
                                                      smoe_check_state state, const char *remedy,
                                                      const char *format, ...) {
    smoe_check c = {.name = name, .state = state, .remedy = remedy};
    va_list args;
    va_start(args, format);
    vsnprintf(c.text, sizeof c.text, format, args);
    va_end(args);
    d->fn(d->user, &c);
}

/* The first line of a small file; false when there is none. */
static bool first_line(const char *path, char *out, size_t bytes) {
    FILE *f = fopen(path, "re");
    bool got = f && fgets(out, (int)bytes, f);
    if (f) {
        fclose(f);
    }
    if (got) {
        out[strcspn(out, "\n")] = '\0';
    }
    return got;
}

/* ---- processor */

#if defined(__aarch64__)
#define WISH "ASIMD dot products"
#else
#define WISH "AVX2"
#endif

static void check_cpu(const doctor *d) {
    const kernels *k;
    unsigned f = cpu_features();
    const topology *t = topology_get();
    if (kernels_select(&k, NULL, NULL) != SMOE_OK) {
        return;
    }
    bool fast = f & (CPU_AVX2 | CPU_ASIMD_DOT);
    say(d, "processor", fast ? SMOE_CHECK_OK : SMOE_CHECK_WARN,
        fast ? NULL : "use a processor with " WISH ": decode is bound by arithmetic without",
        "%d usable, %d core%s, %d memory node%s, kernels %s (%s%s%s%s%s%s)", t->n_cpu, t->n_core,
        t->n_core == 1 ? "" : "s", t->n_node, t->n_node == 1 ? "" : "s", k->name, fast ? "" : "no ",
        WISH, f & CPU_AVX512 ? ", AVX-512" : "", f & CPU_AVX512_VNNI ? ", VNNI" : "",
        f & CPU_AVX512_BF16 ? ", bf16" : "", f & CPU_AMX ? ", AMX" : "");
}

static void check_quota(const doctor *d) {
    double cpus = machine_cpu_quota();
    if (cpus <= 0) {
        say(d, "cpu limit", SMOE_CHECK_OK, NULL, "none");
    } else if (cpus + 0.01 >= cpu_count()) {
        say(d, "cpu limit", SMOE_CHECK_OK, NULL, "the cgroup allows %.2g", cpus);
    } else {
        say(d, "cpu limit", SMOE_CHECK_WARN,
            "run with --threads no larger than the limit, or raise cpu.max: threads that wait for "
            "each other are stopped in turn",
            "the cgroup allows %.2g of %d", cpus, cpu_count());
    }
}

/* ---- memory */

static void check_memory(const doctor *d) {
    machine_memory m;
    char a[24], b[24];
    smoe_model_options o = {0};
    smoe_plan plan;
    smoe_error why;
    machine_memory_now(&m);
    if (!d->source) {
        say(d, "memory", SMOE_CHECK_OK, NULL, "%s free for this process",
            format_bytes(a, m.available_bytes));
        return;
    }
    int rc = plan_defaults(&o, &d->source->spec, &why);
    rc = rc ? rc : plan_make(&plan, d->source, &o, &m, &why);
    if (rc != SMOE_OK) {
        say(d, "memory", SMOE_CHECK_FAIL, "free memory, raise the cgroup's limit, or shorten --ctx",
            "%s", why.text);
        return;
    }
    say(d, "memory", SMOE_CHECK_OK, NULL, "%s free for this process; the model needs %s at least",
        format_bytes(a, m.available_bytes), format_bytes(b, plan.smallest_ceiling_bytes));
}

static void check_cgroup_memory(const doctor *d) {
    char a[24];
    uint64_t limit = machine_memory_limit();
    if (limit == UINT64_MAX) {
        say(d, "cgroup memory", SMOE_CHECK_OK, NULL, "no limit");
    } else {
        say(d, "cgroup memory", SMOE_CHECK_OK, NULL,
            "limit of %s; a ceiling above it is not taken, page cache counts within it",
            format_bytes(a, limit));
    }
}

/* CAP_IPC_LOCK, bit 14 of the effective set: no limit on locked memory. */
static bool may_lock_all(void) {
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long set = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "CapEff: %llx", &set) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return set >> 14 & 1;
}

static void check_memlock(const doctor *d) {
    struct rlimit l;
    char a[24], b[24];
    uint64_t need = d->source ? scout_load_bytes(d->source) : 0;
    if (getrlimit(RLIMIT_MEMLOCK, &l) != 0) {
        return;
    }
    if (l.rlim_cur == RLIM_INFINITY || may_lock_all()) {
        say(d, "locked memory", SMOE_CHECK_OK, NULL, "no limit");
    } else if (need > 0 && l.rlim_cur >= need) {
        say(d, "locked memory", SMOE_CHECK_OK, NULL, "limit of %s, the dense weights take %s",
            format_bytes(a, l.rlim_cur), format_bytes(b, need));
    } else {
        say(d, "locked memory", SMOE_CHECK_WARN,
            "ulimit -l unlimited, LimitMEMLOCK=infinity in a service, --ulimit memlock=-1 in a "
            "container: else dense weights may be paged out and reads cost more processor time",
            "limit of %s%s%s", format_bytes(a, l.rlim_cur), need ? ", the dense weights take " : "",
            need ? format_bytes(b, need) : "");
    }
}

static void check_huge_pages(const doctor *d) {
    char line[128];
    if (!first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) {
        say(d, "huge pages", SMOE_CHECK_OK, NULL, "this kernel has none");
    } else if (strstr(line, "[never]")) {
        say(d, "huge pages", SMOE_CHECK_WARN,
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: else the ring's address "
            "translation costs more",
            "off (%s)", line);
    } else {
        say(d, "huge pages", SMOE_CHECK_OK, NULL, "%s", line);
    }
}

static void check_pressure(const doctor *d) {
    char line[128];
    if (first_line("/proc/pressure/memory", line, sizeof line)) {
        say(d, "memory pressure", SMOE_CHECK_OK, NULL, "%s", line);
    } else {
        say(d, "memory pressure", SMOE_CHECK_WARN,
            "boot with psi=1: else the ring notices only falling cgroup limits and page faults",
            "the kernel does not tell (no PSI)");
    }
}

/* ---- reading */

static void check_uring(const doctor *d) {
    static const char *const self[] = {"/proc/self/exe"};
    io_config c = {.path = self, .n_file = 1, .depth = 4};
    io *handle = NULL;
    smoe_error why = {0};
    char line[64];
    const char *remedy = "build with liburing and a kernel of 5.6 or later; threads read instead";
    if (io_uring_ops.open(&handle, &c, &why) == SMOE_OK) {
        io_uring_ops.close(handle);
        say(d, "io_uring", SMOE_CHECK_OK, NULL, "works");
        return;
    }
    if (first_line("/proc/sys/kernel/io_uring_disabled", line, sizeof line) && line[0] != '0') {
        remedy = "sysctl kernel.io_uring_disabled=0; threads read instead";
    } else if (strstr(why.text, "not permitted")) {
        remedy =
            "a container's seccomp profile forbids it: allow io_uring_setup, io_uring_enter and "
            "io_uring_register; threads read instead";
    }
    say(d, "io_uring", SMOE_CHECK_WARN, remedy, "%s", why.text);
}

static const char *file_system_name(unsigned long type) {
    static const struct {
        unsigned long type;
        const char *name;
    } known[] = {{0xef53, "ext4"},          {0x58465342, "xfs"},  {0x9123683e, "btrfs"},
                 {0xf2f52010, "f2fs"},      {0x2fc12fc1, "zfs"},  {0x01021994, "tmpfs"},
                 {0x794c7630, "overlayfs"}, {0x6969, "nfs"},      {0x65735546, "fuse"},
                 {0x01021997, "9p"},        {0xff534d42, "cifs"}, {0x4d44, "vfat"},
                 {0x2011bab0, "exfat"},     {0x5346544e, "ntfs"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].type == type) {
            return known[i].name;
        }
    }
    return "another";
}

static void check_file_system(const doctor *d, const char *path) {
    struct statfs st;
    if (statfs(path, &st) != 0) {
        return;
    }
    const char *name = file_system_name((unsigned long)st.f_type & 0xffffffff);
    bool remote = strcmp(name, "nfs") == 0 || strcmp(name, "cifs") == 0 ||
                  strcmp(name, "9p") == 0 || strcmp(name, "fuse") == 0;
    say(d, "file system", remote ? SMOE_CHECK_WARN : SMOE_CHECK_OK,
        remote ? "copy the model to a local drive: each expert is asked for over there" : NULL,
        "%s", name);
}

static void check_direct(const doctor *d, const char *path) {
    const char *const one[] = {path};
    io_config c = {.path = one, .n_file = 1, .depth = 1, .direct = true};
    io *handle = NULL;
    smoe_error why = {0};
    if (io_thread_ops.open(&handle, &c, &why) == SMOE_OK) {
        io_thread_ops.close(handle);
        say(d, "direct reads", SMOE_CHECK_OK, NULL, "O_DIRECT works");
    } else {
        say(d, "direct reads", SMOE_CHECK_WARN,
            "put the model on ext4, xfs or btrfs: through the page cache, reads are slower and "
            "take "
            "memory beside the ring",
            "%s", why.text);
    }
}

/* A partition has its queue one level up. */
static bool drive_line(dev_t dev, const char *name, char *out, size_t bytes) {
    char path[160];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s%s", major(dev), minor(dev),
                 i ? "../" : "", name);
        if (first_line(path, out, bytes)) {
            return true;
        }
    }
    return false;
}

static void check_drive(const doctor *d, const char *path) {
    struct stat st;
    char rotating[16], model[96] = "";
    if (stat(path, &st) != 0) {
        return;
    }
    if (!drive_line(st.st_dev, "queue/rotational", rotating, sizeof rotating)) {
        say(d, "drive", SMOE_CHECK_OK, NULL, "no block device to ask behind %s", path);
        return;
    }
    (void)drive_line(st.st_dev, "device/model", model, sizeof model);
    if (rotating[0] == '1') {
        say(d, "drive", SMOE_CHECK_WARN,
            "use an SSD; a virtual drive may say so wrongly: smoe plan MODEL measures it",
            "%s%ssays that it rotates", model, *model ? " " : "");
    } else {
        say(d, "drive", SMOE_CHECK_OK, NULL, "%s%snot rotating", model, *model ? ", " : "");
    }
}

static void check_files(const doctor *d) {
    struct rlimit l;
    int32_t need = d->source->files.n_file + 32;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < (rlim_t)need) {
        say(d, "open files", SMOE_CHECK_FAIL, "ulimit -n 4096",
            "limit of %llu, the model alone has %d", (unsigned long long)l.rlim_cur,
            d->source->files.n_file);
    }
}

static void check_model(const doctor *d) {
    const char *path = source_file_path(d->source, 0);
    check_files(d);
    check_file_system(d, path);
    check_drive(d, path);
    check_direct(d, path);
}

/* ---- the whole */

static source *open_source(const doctor *d, const char *path) {
    source *s = NULL;
    smoe_error why = {0};
    int rc = source_open(&s, path, &why);
    rc = rc ? rc : spec_check_runnable(&s->spec, &why);
    if (rc != SMOE_OK) {
        say(d, "model", SMOE_CHECK_FAIL, "give a model that smoe inspect can read", "%s", why.text);
        source_close(s);
        return NULL;
    }
    say(d, "model", SMOE_CHECK_OK, NULL, "%s, %d file%s", path, s->files.n_file,
        s->files.n_file == 1 ? "" : "s");
    return s;
}

void smoe_doctor(const char *path, smoe_check_fn fn, void *user) {
    doctor d = {.fn = fn, .user = user};
    d.source = path ? open_source(&d, path) : NULL;
    check_cpu(&d);
    check_quota(&d);
    check_memory(&d);
    check_cgroup_memory(&d);
    check_memlock(&d);
    check_huge_pages(&d);
    check_pressure(&d);
    check_uring(&d);
    if (d.source) {
        check_model(&d);
    }
    source_close(d.source);
}
