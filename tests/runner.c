/* The test runner: forks for each test, runs as many at once as there are CPUs, limits their time,
 * keeps their output together, counts. Last line: N passed, N failed, N skipped.
 *
 *     smoe-test [--list] [PATTERN...]
 *
 * PATTERN is a part of a test's or a file's name. Tests whose names begin with demo_ run only when
 * named in full: they exist to fail in front of the harness's own tests.
 *
 * Environment: SMOE_TEST_JOBS (tests at once), SMOE_TEST_SLOW (a factor on time limits, for
 * sanitizers), SMOE_TEST_VERBOSE (show what passing tests print), SMOE_TEST_SEED, SMOE_TEST_ALL and
 * the permutations of test_apply_permutation. A value that means nothing is refused.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

enum { EXIT_SKIP = 77, MAX_JOBS = 64, MAX_NAMED = 100, SHOWN_BYTES = 1 << 16 };

/* One running test. */
typedef struct job {
    const test_case *test;
    pid_t pid;
    double start_s;
    bool is_late;
    int out_fd; /* an unlinked file that holds stdout and stderr */
    char dir[256];
} job;

typedef struct tally {
    int n_passed, n_failed, n_skipped;
    const char *failed[MAX_NAMED];
} tally;

static test_case *first_test;

/* Kept in order of file names; inside a file, in order of definition. */
void test_register(test_case *t) {
    test_case **at = &first_test;
    while (*at && (strcmp((*at)->file, t->file) <= 0)) {
        at = &(*at)->next;
    }
    t->next = *at;
    *at = t;
}

double harness_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    perror(what);
    exit(2);
}

/* ---- one test */

/* In the child: never returns. */
static void run_test(const job *j) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(j->out_fd, STDOUT_FILENO);
    dup2(j->out_fd, STDERR_FILENO);
    close(j->out_fd);
    harness_begin(j->dir);
    setenv("XDG_CACHE_HOME", j->dir, 1); /* what is measured and learned stays in the test */
    j->test->fn();
    fflush(NULL);
    _exit(0);
}

static void start(job *j, const test_case *t) {
    const char *tmp = getenv("TMPDIR");
    *j = (job){.test = t, .start_s = harness_now_s()};
    int n = snprintf(j->dir, sizeof j->dir, "%s/smoe-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (n < 0 || (size_t)n >= sizeof j->dir || !mkdtemp(j->dir)) {
        die("cannot make a folder for a test");
    }
    char name[sizeof j->dir + 8];
    snprintf(name, sizeof name, "%s/output", j->dir);
    j->out_fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0600);
    if (j->out_fd < 0 || unlink(name) != 0) {
        die("cannot keep the output of a test");
    }
    fflush(NULL);
    j->pid = fork();
    if (j->pid < 0) {
        die("fork");
    }
    if (j->pid == 0) {
        run_test(j);
    }
    setpgid(j->pid, j->pid); /* here too, so that a kill cannot come too early */
}

static void show_output(const job *j) {
    static char text[SHOWN_BYTES];
    off_t bytes = lseek(j->out_fd, 0, SEEK_END);
    off_t from = bytes > SHOWN_BYTES ? bytes - SHOWN_BYTES : 0;
    ssize_t n = pread(j->out_fd, text, sizeof text, from);
    if (n <= 0) {
        return;
    }
    if (from > 0) {
        printf("     (only the last %d bytes of its output)\n", SHOWN_BYTES);
    }
    fwrite(text, 1, (size_t)n, stdout);
    if (text[n - 1] != '\n') {
        putchar('\n');
    }
}

static void finish(job *j, int status, tally *sum) {
    const test_case *t = j->test;
    kill(-j->pid, SIGKILL); /* whatever the test left running */
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP;
    printf("%-4s %6.2f s  %s\n",
           ok        ? "ok"
           : skipped ? "skip"
                     : "FAIL",
           harness_now_s() - j->start_s, t->name);
    if (!ok || getenv("SMOE_TEST_VERBOSE")) {
        show_output(j);
    }
    if (j->is_late) {
        printf("%s: %s: over its time limit of %d s\n", t->file, t->name, t->limit_s);
    } else if (WIFSIGNALED(status)) {
        printf("%s: %s: ended by signal %d (%s)\n", t->file, t->name, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    }
    fflush(stdout);
    close(j->out_fd);
    harness_remove_dir(j->dir);
    sum->n_passed += ok;
    sum->n_skipped += skipped;
    if (!ok && !skipped) {
        if (sum->n_failed < MAX_NAMED) {
            sum->failed[sum->n_failed] = t->name;
        }
        sum->n_failed++;
    }
    j->pid = 0;
}

/* ---- all tests */

static bool wanted(const test_case *t, int argc, char **argv) {
    bool is_demo = strncmp(t->name, "demo_", 5) == 0;
    for (int i = 1; i < argc; i++) {
        if (is_demo ? strcmp(t->name, argv[i]) == 0
                    : strstr(t->name, argv[i]) || strstr(t->file, argv[i])) {
            return true;
        }
    }
    return argc < 2 && !is_demo;
}

static int cpus(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Collects what has ended and kills what is late; returns how many tests still run. */
static int reap(job *jobs, int n_job, int slow, tally *sum) {
    int n_running = 0;
    for (int i = 0; i < n_job; i++) {
        job *j = &jobs[i];
        int status = 0;
        if (j->pid == 0) {
            continue;
        }
        pid_t got = waitpid(j->pid, &status, WNOHANG);
        if (got == j->pid) {
            finish(j, status, sum);
            continue;
        }
        n_running++;
        if (!j->is_late && harness_now_s() - j->start_s > j->test->limit_s * (double)slow) {
            j->is_late = true;
            kill(-j->pid, SIGKILL);
        }
    }
    return n_running;
}

static void run_all(int argc, char **argv, tally *sum) {
    static job jobs[MAX_JOBS];
    int n_cpu = cpus();
    int n_job =
        (int)harness_env_int("SMOE_TEST_JOBS", 1, MAX_JOBS, n_cpu < MAX_JOBS ? n_cpu : MAX_JOBS);
    int slow = (int)harness_env_int("SMOE_TEST_SLOW", 1, 1000, 1);
    const test_case *next = first_test;
    useconds_t nap_us = 200;
    for (;;) {
        for (int i = 0; i < n_job && next; i++) {
            while (next && !wanted(next, argc, argv)) {
                next = next->next;
            }
            if (next && jobs[i].pid == 0) {
                start(&jobs[i], next);
                next = next->next;
                nap_us = 200;
            }
        }
        if (reap(jobs, n_job, slow, sum) == 0 && !next) {
            return;
        }
        usleep(nap_us);
        nap_us = nap_us < 5000 ? nap_us * 2 : nap_us;
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const test_case *t = first_test; t; t = t->next) {
            printf("%s: %s\n", t->file, t->name);
        }
        return 0;
    }
    harness_check_environment();
    tally sum = {0};
    run_all(argc, argv, &sum);
    for (int i = 0; i < sum.n_failed && i < MAX_NAMED; i++) {
        printf("%s%s%s", i == 0 ? "failed: " : " ", sum.failed[i],
               i + 1 == sum.n_failed ? "\n"
               : i + 1 == MAX_NAMED  ? " …\n"
                                     : "");
    }
    printf("%d passed, %d failed, %d skipped\n", sum.n_passed, sum.n_failed, sum.n_skipped);
    return sum.n_failed || sum.n_passed + sum.n_skipped == 0 ? 1 : 0;
}
