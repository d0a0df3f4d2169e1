/* What tests call: failing, inputs, permutations, running the program. Runs in the process of one
 * test; the runner is in runner.c. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

enum { EXIT_SKIP = 77, PATH_BYTES = 1024 };

static char dir_path[256];
static uint64_t rand_state;
static uint64_t rand_seed = 20261129;

void harness_begin(const char *dir) {
    snprintf(dir_path, sizeof dir_path, "%s", dir);
    rand_seed = (uint64_t)harness_env_int("SMOE_TEST_SEED", 0, INT64_MAX, (int64_t)rand_seed);
    rand_state = rand_seed;
}

void test_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    alloc_guard_fail_at(0);
    alloc_guard_forbid(false);
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (seed %" PRIu64 ")\n", rand_seed);
    va_end(args);
    alloc_guard_report();
    fflush(NULL);
    _exit(1);
}

void test_skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(NULL);
    _exit(EXIT_SKIP);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void harness_remove_dir(const char *dir) {
    if (nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) {
        fprintf(stderr, "cannot remove %s: %s\n", dir, strerror(errno));
    }
}

/* ---- the environment */

static void refuse(const char *name, const char *value, const char *want) {
    fprintf(stderr, "%s=%s: expected %s\n", name, value, want);
    exit(2);
}

int64_t harness_env_int(const char *name, int64_t min, int64_t max, int64_t fallback) {
    const char *text = getenv(name);
    if (!text || !*text) {
        return fallback;
    }
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 0);
    if (errno != 0 || *end != '\0' || v < min || v > max) {
        char want[64];
        snprintf(want, sizeof want, "a whole number from %" PRId64 " to %" PRId64, min, max);
        refuse(name, text, want);
    }
    return v;
}

/* The value of name when it is one of the words (parted by spaces), NULL when unset. */
static const char *env_word(const char *name, const char *words) {
    const char *text = getenv(name);
    if (!text || !*text) {
        return NULL;
    }
    size_t n = strlen(text);
    for (const char *at = words; (at = strstr(at, text)) != NULL; at++) {
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) {
            return text;
        }
    }
    refuse(name, text, words);
    return NULL;
}

bool test_ring_floor(void) {
    return env_word("SMOE_TEST_RING", "floor") != NULL;
}

bool test_thorough(void) {
    return harness_env_int("SMOE_TEST_ALL", 0, 1, 0) == 1;
}

bool test_is_slow(void) {
    return harness_env_int("SMOE_TEST_SLOW", 1, 1000, 1) > 1;
}

void test_apply_permutation(smoe_model_options *o) {
    o->n_thread = (int32_t)harness_env_int("SMOE_TEST_THREADS", 1, 64, o->n_thread);
    o->chunk_tok = (int32_t)harness_env_int("SMOE_TEST_CHUNK", 1, 1 << 20, o->chunk_tok);
    const char *io = env_word("SMOE_TEST_IO", "uring threads");
    if (io) {
        o->io = strcmp(io, "uring") == 0 ? SMOE_IO_URING : SMOE_IO_THREADS;
    }
    const char *isa = env_word("SMOE_TEST_ISA", "portable avx2 avxvnni avx512 amx neon");
    o->isa = isa ? isa : o->isa;
}

void harness_check_environment(void) {
    smoe_model_options o = {0};
    test_apply_permutation(&o);
    test_ring_floor();
    test_thorough();
    test_is_slow();
    harness_env_int("SMOE_TEST_SEED", 0, INT64_MAX, 0);
}

/* ---- inputs */

const char *test_dir(void) {
    return dir_path;
}

static const char *joined(const char *dir, const char *name) {
    static char path[8][PATH_BYTES];
    static int next;
    char *out = path[next++ % 8];
    int n = snprintf(out, PATH_BYTES, "%s/%s", dir, name);
    if (n < 0 || n >= PATH_BYTES) {
        FAIL("path too long: %s/%s", dir, name);
    }
    return out;
}

const char *test_path(const char *name) {
    return joined(dir_path, name);
}

const char *test_data(const char *name) {
    return joined("tests/data", name);
}

const char *test_model(const char *name) {
    return joined("models", name);
}

const char *test_built(const char *name) {
    static char dir[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    char *slash = n > 0 ? strrchr(dir, '/') : NULL;
    if (!slash) {
        FAIL("cannot find the folder of the test program");
    }
    *slash = '\0';
    return joined(dir, name);
}

static const char *vectors_dir(void) {
    const char *dir = getenv("SMOE_VECTORS");
    return dir && *dir ? dir : "../shared";
}

bool test_has_vectors(void) {
    return access(vectors_dir(), R_OK) == 0;
}

const char *test_vectors(const char *name) {
    const char *path = joined(vectors_dir(), name);
    if (access(path, R_OK) != 0) {
        SKIP("no %s (set SMOE_VECTORS)", path);
    }
    return path;
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t test_rand(void) {
    uint64_t z = rand_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

float test_uniform(float lo, float hi) {
    return lo + (hi - lo) * (float)(test_rand() >> 40) * 0x1p-24f;
}

/* Box and Muller 1958, one of the pair. */
float test_normal(void) {
    float u = 1.0f - test_uniform(0, 1);
    return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * test_uniform(0, 1));
}

void *test_guarded(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (n + page - 1) / page * page;
    char *p = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + body, page, PROT_NONE) != 0) {
        FAIL("no guarded memory of %zu bytes", n);
    }
    memset(p, 0xa5, body);
    return p + body - n;
}

void test_write_file(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) {
        FAIL("cannot write %s: %s", path, strerror(errno));
    }
}

char *test_read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    long n = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (n < 0) {
        FAIL("cannot read %s: %s", path, strerror(errno));
    }
    char *data = malloc((size_t)n + 1);
    rewind(f);
    if (!data || fread(data, 1, (size_t)n, f) != (size_t)n) {
        FAIL("cannot read %s: %s", path, strerror(errno));
    }
    data[n] = '\0';
    fclose(f);
    if (bytes) {
        *bytes = (size_t)n;
    }
    return data;
}

/* ---- running the program */

/* In the child: never returns. */
static void exec_with(const char *const *argv, const char *const path[3]) {
    static const int flags[3] = {O_RDONLY, O_WRONLY | O_CREAT | O_TRUNC,
                                 O_WRONLY | O_CREAT | O_TRUNC};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 3; i++) {
        int fd = open(path[i], flags[i] | O_CLOEXEC, 0600);
        if (fd < 0 || dup2(fd, i) != i) {
            _exit(127);
        }
    }
    execv(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
    fflush(NULL);
    _exit(127);
}

test_run test_smoe_argv(const char *const *argv, const char *input) {
    static int serial;
    static char name[3][64];
    const char *path[3];
    test_run run = {0};
    for (int i = 0; i < 3; i++) {
        snprintf(name[i], sizeof name[i], "run-%d-%d", serial, i);
        path[i] = test_path(name[i]);
    }
    serial++;
    test_write_file(path[0], input ? input : "", input ? strlen(input) : 0);
    double start_s = harness_now_s();
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        FAIL("fork: %s", strerror(errno));
    }
    if (pid == 0) {
        exec_with(argv, path);
    }
    int status = 0;
    struct rusage use;
    while (wait4(pid, &status, 0, &use) < 0) {
        if (errno != EINTR) {
            FAIL("wait: %s", strerror(errno));
        }
    }
    run.seconds = harness_now_s() - start_s;
    run.max_rss_kib = use.ru_maxrss;
    run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    run.out = test_read_file(path[1], NULL);
    run.err = test_read_file(path[2], NULL);
    return run;
}

test_run test_smoe(const char *arg, ...) {
    enum { MAX_ARGS = 64 };
    const char *bin = getenv("SMOE_BIN");
    const char *argv[MAX_ARGS] = {bin && *bin ? bin : test_built("smoe")};
    int n = 1;
    va_list args;
    va_start(args, arg);
    for (const char *a = arg; a; a = va_arg(args, const char *)) {
        if (n == MAX_ARGS - 1) {
            FAIL("more than %d arguments", MAX_ARGS - 2);
        }
        argv[n++] = a;
    }
    va_end(args);
    return test_smoe_argv(argv, NULL);
}
