/* A small test harness: registry, one process for each test, time limit, printing checks.
 *
 *     TEST(ring_evicts_oldest) { CHECK_INT(ring_count(r), 3); }
 *
 * A test ends at its first failed check. SKIP(...) ends it as skipped. Tests may leave files behind
 * only inside test_dir(), which is removed after each test; processes they leave are killed.
 * Several tests run at once, and what a test prints is shown when it fails. See runner.c for
 * arguments and environment.
 */
#ifndef SMOE_TESTS_TEST_H
#define SMOE_TESTS_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "smoe.h"

typedef struct test_case {
    const char *name;
    const char *file;
    void (*fn)(void);
    int limit_s;
    struct test_case *next;
} test_case;

void test_register(test_case *t);

#define TEST_LIMIT(test_name, seconds)                                                             \
    static void test_##test_name(void);                                                            \
    __attribute__((constructor)) static void test_register_##test_name(void) {                     \
        static test_case t = {#test_name, __FILE__, test_##test_name, seconds, NULL};              \
        test_register(&t);                                                                         \
    }                                                                                              \
    static void test_##test_name(void)
#define TEST(test_name) TEST_LIMIT(test_name, 60)

void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define SKIP(...) test_skip(__VA_ARGS__)
#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            FAIL("%s", #cond);                                                                     \
        }                                                                                          \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_) {                                                                       \
            FAIL("%s is %lld, expected %lld", #got, got_, want_);                                  \
        }                                                                                          \
    } while (0)
#define CHECK_TEXT(got, want)                                                                      \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (!got_ || strcmp(got_, want_) != 0) {                                                   \
            FAIL("%s is \"%s\", expected \"%s\"", #got, got_ ? got_ : "(null)", want_);            \
        }                                                                                          \
    } while (0)
#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *text_ = (text), *part_ = (part);                                               \
        if (!text_ || !strstr(text_, part_)) {                                                     \
            FAIL("%s is \"%s\", without \"%s\"", #text, text_ ? text_ : "(null)", part_);          \
        }                                                                                          \
    } while (0)
/* got within tol of want, neither NaN */
#define CHECK_NEAR(got, want, tol)                                                                 \
    do {                                                                                           \
        double got_ = (double)(got), want_ = (double)(want), tol_ = (double)(tol);                 \
        if (!(got_ - want_ <= tol_ && want_ - got_ <= tol_)) {                                     \
            FAIL("%s is %.9g, expected %.9g within %.3g", #got, got_, want_, tol_);                \
        }                                                                                          \
    } while (0)
/* The call succeeds; prints the error text when not. err is a smoe_error variable. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        if ((call) != SMOE_OK) {                                                                   \
            FAIL("%s: %s", #call, err.text);                                                       \
        }                                                                                          \
    } while (0)
/* The call fails with this code. */
#define CHECK_ERR(call, code)                                                                      \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ != (code)) {                                                                       \
            FAIL("%s returned %d, expected %d (%s)", #call, rc_, (code), err.text);                \
        }                                                                                          \
    } while (0)

/* ---- inputs */

/* A fresh folder for this test. */
const char *test_dir(void);
/* test_dir()/name, in one of eight rotating static buffers. */
const char *test_path(const char *name);
/* The folder of committed test data (tests/data), and of bundled models (models/), joined with
 * name. */
const char *test_data(const char *name);
const char *test_model(const char *name);
/* The folder of the test program (build/, build/asan/, …), joined with name. */
const char *test_built(const char *name);
/* The full vectors: $SMOE_VECTORS or ../shared when that is there, joined with name; SKIPs the test
 * when absent. */
const char *test_vectors(const char *name);
bool test_has_vectors(void);

/* Deterministic random numbers; the seed is printed when a test fails ($SMOE_TEST_SEED sets it). */
uint64_t test_rand(void);
float test_uniform(float lo, float hi);
float test_normal(void);

/* n bytes that end right before an unmapped page, so that reading past the end faults; fill 0xa5.
 * Never freed: the process ends with the test. */
void *test_guarded(size_t n);

void test_write_file(const char *path, const void *data, size_t bytes);
/* malloc'ed, NUL-terminated; fails the test when unreadable. */
char *test_read_file(const char *path, size_t *bytes);

/* ---- permutations: make check-all runs the tests again with these in the environment */

/* Puts SMOE_TEST_THREADS=N, SMOE_TEST_IO=uring|threads, SMOE_TEST_ISA=portable|avx2|...|neon
 * and SMOE_TEST_CHUNK=N into the options, where set; the rest stays as it is. For tests that do not
 * themselves compare such choices. */
void test_apply_permutation(smoe_model_options *options);
/* SMOE_TEST_RING=floor: the test should open its models with a ring of one token cycle. */
bool test_ring_floor(void);
/* SMOE_TEST_ALL=1: time does not matter; try every case instead of a sample. */
bool test_thorough(void);
/* A sanitizer or emulator stretches time: take a smaller sample. */
bool test_is_slow(void);

/* ---- running the program */

typedef struct test_run {
    int status; /* exit status, or 128 + signal */
    char *out;  /* stdout, NUL-terminated */
    char *err;  /* stderr */
    double seconds;
    long max_rss_kib;
} test_run;

/* Runs $SMOE_BIN (or test_built("smoe")) with these arguments (NULL-terminated), standard input
 * empty. */
test_run test_smoe(const char *arg, ...) __attribute__((sentinel));
/* Any program: argv[0] is its path; input (NULL: empty) is its standard input. */
test_run test_smoe_argv(const char *const *argv, const char *input);

/* ---- allocation guard (tests/alloc_guard.c): the test program's malloc counts and can refuse
 *
 * Covers malloc, calloc, realloc, reallocarray, aligned_alloc, posix_memalign, memalign, valloc
 * and anonymous mmap, called from the library, the tests or other libraries, on any thread. */

/* Whether the guard is compiled in: with glibc, not under Address-, Thread- or MemorySanitizer.
 * Where it is not, nothing is counted and nothing fails. */
bool alloc_guard_active(void);
/* While forbidden, any allocation on any thread is recorded as a violation (and succeeds). The
 * first one's backtrace is printed when the test then fails. */
void alloc_guard_forbid(bool on);
uint64_t alloc_guard_violations(void);
/* Of the program's own allocations, the n-th of all from now (1 = the next) and those after it fail
 * with ENOMEM; 0: none. Shared libraries are spared. */
void alloc_guard_fail_at(uint64_t n);
/* Whether an allocation has been refused since alloc_guard_fail_at. */
bool alloc_guard_has_failed(void);
/* Allocations so far, whatever became of them. */
uint64_t alloc_guard_count(void);

#endif
