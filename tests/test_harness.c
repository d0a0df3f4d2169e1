/* The harness tested by itself: the allocation guard, the runner's verdicts, the lint scripts, and
 * the fuzz corpora, which the fuzz targets must survive. The demo_ tests are what the runner is
 * shown; they run only when named. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/pool.h"
#include "test.h"

static smoe_error err;

/* ---- the allocation guard */

static void need_guard(void) {
    if (!alloc_guard_active()) {
        SKIP("no allocation guard in this build");
    }
}

/* Keeps the compiler from dropping an allocation nobody looks at. */
static void *volatile sink;

TEST(alloc_guard_counts_every_kind) {
    need_guard();
    uint64_t before = alloc_guard_count();
    sink = malloc(10);
    sink = calloc(3, 10);
    sink = realloc(sink, 100);
    sink = reallocarray(sink, 10, 20);
    sink = aligned_alloc(64, 128);
    void *p = NULL;
    CHECK_INT(posix_memalign(&p, 4096, 10), 0);
    CHECK_INT((uintptr_t)p % 4096, 0);
    sink = strdup("from inside the C library");
    sink = mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(sink != MAP_FAILED);
    CHECK_INT(alloc_guard_count() - before, 8);
    CHECK_INT(posix_memalign(&p, 24, 10), EINVAL);
    CHECK_INT(alloc_guard_violations(), 0);
}

static void *allocate(void *arg) {
    sink = malloc(10);
    return arg;
}

TEST(alloc_guard_sees_all_threads) {
    need_guard();
    pthread_t thread;
    alloc_guard_forbid(true);
    free(NULL);
    CHECK_INT(alloc_guard_violations(), 0);
    CHECK_INT(pthread_create(&thread, NULL, allocate, NULL), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    alloc_guard_forbid(false);
    uint64_t n = alloc_guard_violations();
    CHECK(n >= 1);
    sink = malloc(10);
    CHECK_INT(alloc_guard_violations(), n);
}

TEST(alloc_guard_refuses_from_the_nth) {
    need_guard();
    alloc_guard_fail_at(2);
    void *first = malloc(10);
    CHECK(!alloc_guard_has_failed());
    /* Called so that the compiler cannot know it, and think that errno stays as it is. */
    void *(*volatile get)(size_t) = malloc;
    errno = 0;
    void *second = get(10);
    int second_errno = errno;
    void *third = calloc(1, 10);
    void *grown = realloc(first, 1000);
    void *mapped = mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    alloc_guard_fail_at(0);
    void *after = malloc(10);
    CHECK(first && !second && !third && !grown && mapped == MAP_FAILED && after);
    CHECK_INT(second_errno, ENOMEM);
    CHECK(alloc_guard_has_failed());
    alloc_guard_fail_at(100);
    CHECK(!alloc_guard_has_failed());
}

TEST(pool_survives_every_refused_allocation) {
    need_guard();
    for (uint64_t n = 1;; n++) {
        pool *p = NULL;
        CHECK(n < 100);
        alloc_guard_fail_at(n);
        int rc = pool_open(&p, 2, &err);
        bool refused = alloc_guard_has_failed();
        alloc_guard_fail_at(0);
        if (rc == SMOE_OK) {
            pool_close(p);
        }
        if (!refused) {
            CHECK_INT(rc, SMOE_OK);
            return;
        }
    }
}

/* ---- the runner */

TEST(demo_passes) {
}

TEST(demo_fails) {
    int three = 3;
    CHECK_INT(three, 4);
}

TEST(demo_skips) {
    SKIP("for a reason");
}

TEST(demo_crashes) {
    puts("printed before the end");
    fflush(stdout);
    raise(SIGKILL);
}

TEST_LIMIT(demo_hangs, 1) {
    for (;;) {
        pause();
    }
}

TEST(demo_allocates) {
    alloc_guard_forbid(true);
    allocate(NULL);
    alloc_guard_forbid(false);
    CHECK_INT(alloc_guard_violations(), 0);
}

TEST(runner_reports_each_verdict) {
    unsetenv("SMOE_TEST_SLOW"); /* so that demo_hangs ends after a second */
    const char *argv[] = {"/proc/self/exe", "demo_passes", "demo_fails", "demo_skips",
                          "demo_crashes",   "demo_hangs",  NULL};
    test_run run = test_smoe_argv(argv, NULL);
    CHECK_INT(run.status, 1);
    CHECK_HAS(run.out, "\n1 passed, 3 failed, 1 skipped\n");
    CHECK_HAS(run.out, "\nfailed: ");
    CHECK_HAS(run.out, "three is 3, expected 4 (seed ");
    CHECK_HAS(run.out, "for a reason\n");
    CHECK_HAS(run.out, "printed before the end\n");
    CHECK_HAS(run.out, "demo_crashes: ended by signal 9");
    CHECK_HAS(run.out, "demo_hangs: over its time limit of 1 s");
}

TEST(runner_needs_something_to_run) {
    const char *argv[] = {"/proc/self/exe", "no_test_has_this_name", NULL};
    test_run run = test_smoe_argv(argv, NULL);
    CHECK_INT(run.status, 1);
    CHECK_TEXT(run.out, "0 passed, 0 failed, 0 skipped\n");
}

TEST(runner_shows_where_a_forbidden_allocation_was) {
    need_guard();
    const char *argv[] = {"/proc/self/exe", "demo_allocates", NULL};
    test_run run = test_smoe_argv(argv, NULL);
    CHECK_INT(run.status, 1);
    CHECK_HAS(run.out, "1 allocations where none is allowed");
    if (access("/usr/bin/addr2line", X_OK) == 0) {
        CHECK_HAS(run.out, "test_harness.c:");
    }
}

TEST(runner_refuses_meaningless_environment) {
    const char *argv[] = {"/proc/self/exe", "demo_passes", NULL};
    setenv("SMOE_TEST_IO", "thread", 1);
    test_run run = test_smoe_argv(argv, NULL);
    CHECK_INT(run.status, 2);
    CHECK_TEXT(run.err, "SMOE_TEST_IO=thread: expected uring threads\n");
    unsetenv("SMOE_TEST_IO");
    setenv("SMOE_TEST_THREADS", "0", 1);
    run = test_smoe_argv(argv, NULL);
    CHECK_INT(run.status, 2);
    CHECK_TEXT(run.err, "SMOE_TEST_THREADS=0: expected a whole number from 1 to 64\n");
}

TEST(permutations_reach_the_options) {
    smoe_model_options o = {.n_thread = 2, .spec_ranks = 4};
    unsetenv("SMOE_TEST_THREADS");
    unsetenv("SMOE_TEST_ISA");
    unsetenv("SMOE_TEST_RING");
    setenv("SMOE_TEST_IO", "threads", 1);
    setenv("SMOE_TEST_CHUNK", "1", 1);
    test_apply_permutation(&o);
    CHECK_INT(o.n_thread, 2);
    CHECK_INT(o.spec_ranks, 4);
    CHECK_INT(o.chunk_tok, 1);
    CHECK_INT(o.io, SMOE_IO_THREADS);
    CHECK(o.isa == NULL && !test_ring_floor());
    setenv("SMOE_TEST_THREADS", "1", 1);
    setenv("SMOE_TEST_ISA", "portable", 1);
    setenv("SMOE_TEST_RING", "floor", 1);
    test_apply_permutation(&o);
    CHECK_INT(o.n_thread, 1);
    CHECK_TEXT(o.isa, "portable");
    CHECK(test_ring_floor());
}

/* ---- scripts and corpora */

static void check_script(const char *path) {
    const char *argv[] = {"/bin/sh", path, test_dir(), NULL};
    test_run run = test_smoe_argv(argv, NULL);
    if (run.status != 0) {
        FAIL("%s ended with %d:\n%s%s", path, run.status, run.out, run.err);
    }
}

TEST(scripts_check_includes) {
    check_script("tests/scripts/check-includes.sh");
}

TEST(scripts_check_style) {
    check_script("tests/scripts/check-style.sh");
}

TEST(scripts_sum_tests) {
    check_script("tests/scripts/sum-tests.sh");
}

/* Each folder of tests/fuzz/corpus through the target of its name. */
TEST_LIMIT(fuzz_corpora_are_survived, 120) {
    DIR *dir = opendir("tests/fuzz/corpus");
    if (!dir) {
        SKIP("no fuzz corpora");
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.') {
            continue;
        }
        char name[300];
        snprintf(name, sizeof name, "fuzz-replay/%s", e->d_name);
        const char *program = test_built(name);
        char corpus[300];
        snprintf(corpus, sizeof corpus, "tests/fuzz/corpus/%s", e->d_name);
        const char *argv[] = {program, corpus, NULL};
        test_run run = test_smoe_argv(argv, NULL);
        if (run.status != 0) {
            FAIL("%s %s ended with %d:\n%s%s", program, corpus, run.status, run.out, run.err);
        }
    }
    closedir(dir);
}
