/* The test runner: forks for each test, limits its time, counts. Last line: N passed, N failed. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_SKIP = 77 };

static test_case *first_test;
static char dir_path[256];
static uint64_t rand_state;
static uint64_t rand_seed = 20261129;

void test_register(test_case *t) {
    test_case **at = &first_test;
    while (*at && (strcmp((*at)->file, t->file) < 0)) {
        at = &(*at)->next;
    }
    while (*at && strcmp((*at)->file, t->file) == 0) {
        at = &(*at)->next;
    }
    t->next = *at;
    *at = t;
}

void test_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (seed %llu)\n", (unsigned long long)rand_seed);
    va_end(args);
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

/* ---- inputs */

const char *test_dir(void) {
    return dir_path;
}

static const char *joined(const char *dir, const char *name) {
    static char path[8][1024];
    static int next;
    char *out = path[next++ % 8];
    snprintf(out, sizeof path[0], "%s/%s", dir, name);
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

static const char *vectors_dir(void) {
    const char *dir = getenv("SMOE_VECTORS");
    return dir && *dir ? dir : "../shared";
}

bool test_has_vectors(void) {
    struct stat st;
    return stat(vectors_dir(), &st) == 0;
}

const char *test_vectors(const char *name) {
    const char *path = joined(vectors_dir(), name);
    struct stat st;
    if (stat(path, &st) != 0) {
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
        FAIL("cannot write %s", path);
    }
}

char *test_read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        FAIL("cannot read %s", path);
    }
    long n = ftell(f);
    char *data = malloc((size_t)n + 1);
    rewind(f);
    if (!data || fread(data, 1, (size_t)n, f) != (size_t)n) {
        FAIL("cannot read %s", path);
    }
    data[n] = '\0';
    fclose(f);
    if (bytes) {
        *bytes = (size_t)n;
    }
    return data;
}

/* ---- running the program */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

test_run test_smoe_argv(const char *const *argv, const char *input) {
    static int serial;
    char name[3][64];
    const char *path[3];
    test_run run = {0};
    for (int i = 0; i < 3; i++) {
        snprintf(name[i], sizeof name[i], "run-%d-%d", serial, i);
        path[i] = test_path(name[i]);
    }
    serial++;
    test_write_file(path[0], input ? input : "", input ? strlen(input) : 0);
    double start = now_s();
    pid_t pid = fork();
    if (pid == 0) {
        int in = open(path[0], O_RDONLY);
        int out = open(path[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int err = open(path[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(in, 0);
        dup2(out, 1);
        dup2(err, 2);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    int status = 0;
    struct rusage use;
    while (wait4(pid, &status, 0, &use) < 0 && errno == EINTR) {
    }
    run.seconds = now_s() - start;
    run.max_rss_kib = use.ru_maxrss;
    run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    run.out = test_read_file(path[1], NULL);
    run.err = test_read_file(path[2], NULL);
    return run;
}

test_run test_smoe(const char *arg, ...) {
    const char *argv[64] = {getenv("SMOE_BIN") ? getenv("SMOE_BIN") : "build/smoe"};
    int n = 1;
    va_list args;
    va_start(args, arg);
    for (const char *a = arg; a && n < 63; a = va_arg(args, const char *)) {
        argv[n++] = a;
    }
    va_end(args);
    return test_smoe_argv(argv, NULL);
}

/* ---- the runner */

static void remove_dir(const char *path) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) {
        fprintf(stderr, "cannot remove %s\n", path);
    }
}

static int run_one(const test_case *t) {
    snprintf(dir_path, sizeof dir_path, "%s/smoe-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir_path)) {
        perror("mkdtemp");
        return 1;
    }
    const char *seed = getenv("SMOE_TEST_SEED");
    rand_seed = seed ? strtoull(seed, NULL, 0) : rand_seed;
    rand_state = rand_seed;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        t->fn();
        fflush(NULL);
        _exit(0);
    }
    int status = 0;
    int factor = getenv("SMOE_TEST_SLOW") ? atoi(getenv("SMOE_TEST_SLOW")) : 1;
    double end = now_s() + t->limit_s * factor;
    pid_t got;
    useconds_t nap_us = 200;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && now_s() < end) {
        usleep(nap_us);
        nap_us = nap_us < 5000 ? nap_us * 2 : nap_us;
    }
    if (got == 0) {
        fprintf(stderr, "%s: %s: over its time limit of %d s\n", t->file, t->name, t->limit_s);
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    remove_dir(dir_path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool wanted(const test_case *t, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strstr(t->name, argv[i]) || strstr(t->file, argv[i])) {
            return true;
        }
    }
    return argc < 2;
}

int main(int argc, char **argv) {
    int n_passed = 0, n_failed = 0, n_skipped = 0;
    for (const test_case *t = first_test; t; t = t->next) {
        if (!wanted(t, argc, argv)) {
            continue;
        }
        double start = now_s();
        int rc = run_one(t);
        const char *verdict = rc == 0 ? "ok" : rc == EXIT_SKIP ? "skip" : "FAIL";
        n_passed += rc == 0;
        n_skipped += rc == EXIT_SKIP;
        n_failed += rc != 0 && rc != EXIT_SKIP;
        if (rc > 128) {
            fprintf(stderr, "%s: %s: ended by signal %d\n", t->file, t->name, rc - 128);
        }
        printf("%-4s %6.2f s  %s\n", verdict, now_s() - start, t->name);
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed || n_passed == 0 ? 1 : 0;
}
