/* topology: the order of CPUs, from trees like those of sysfs, and a pool bound to them. */
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/pool.h"
#include "base/topology.h"
#include "conductor/machine.h"
#include "conductor/model.h"
#include "model_util.h"

static const char *root;

/* Makes the folders on the way too. */
static void write_line(const char *line, const char *path) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *at = dir + 1; *at; at++) {
        if (*at == '/') {
            *at = '\0';
            mkdir(dir, 0777);
            *at = '/';
        }
    }
    test_write_file(path, line, strlen(line));
}

static void siblings(int cpu, const char *list) {
    char path[512];
    snprintf(path, sizeof path, "%s/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
    write_line(list, path);
}

static void nodes(const char *online) {
    char path[512];
    snprintf(path, sizeof path, "%s/node/online", root);
    write_line(online, path);
}

static void node(int n, const char *cpus) {
    char path[512];
    snprintf(path, sizeof path, "%s/node/node%d/cpulist", root, n);
    write_line(cpus, path);
}

static topology read_with(const char *allowed) {
    topology t;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = 0; allowed[i]; i++) {
        if (allowed[i] == '1') {
            CPU_SET(i, &set);
        }
    }
    topology_read(&t, root, &set);
    return t;
}

static void check_order(const topology *t, const int *want, int n) {
    CHECK_INT(t->n_cpu, n);
    for (int i = 0; i < n; i++) {
        CHECK_INT(t->order[i], want[i]);
    }
}

/* Two nodes of two cores with two threads each; siblings are 4 apart. */
static void two_nodes(void) {
    root = test_path("sys");
    for (int i = 0; i < 8; i++) {
        char list[16];
        snprintf(list, sizeof list, "%d,%d\n", i % 4, i % 4 + 4);
        siblings(i, list);
    }
    nodes("0-1\n");
    node(0, "0,2,4,6\n");
    node(1, "1,3,5,7\n");
}

TEST(topology_takes_cores_before_siblings) {
    two_nodes();
    topology t = read_with("11111111");
    CHECK_INT(t.n_core, 4);
    CHECK_INT(t.n_node, 2);
    CHECK_INT(t.nodes[0], 3);
    check_order(&t, (int[]){0, 2, 1, 3, 4, 6, 5, 7}, 8);
}

TEST(topology_sees_only_what_is_allowed) {
    two_nodes();
    topology t = read_with("00001010"); /* both on node 0, the first of their cores not allowed */
    CHECK_INT(t.n_core, 2);
    CHECK_INT(t.n_node, 1);
    CHECK_INT(t.nodes[0], 1);
    check_order(&t, (int[]){4, 6}, 2);
    t = read_with("01000100"); /* one core */
    CHECK_INT(t.n_core, 1);
    CHECK_INT(t.nodes[0], 2);
    check_order(&t, (int[]){1, 5}, 2);
}

TEST(topology_survives_missing_and_broken_files) {
    root = test_path("sys");
    topology t = read_with("111");
    CHECK_INT(t.n_core, 3);
    CHECK_INT(t.n_node, 1);
    check_order(&t, (int[]){0, 1, 2}, 3);
    siblings(0, "0-");
    siblings(1, "x\n");
    siblings(2, "0-99999999999999999999\n");
    nodes("0,,1\n");
    t = read_with("111");
    CHECK_INT(t.n_cpu, 3);
    CHECK_INT(t.order[0], 0);
    CHECK_INT(t.n_node, 1);
    t = read_with("");
    CHECK_INT(t.n_cpu, 1);
    CHECK_INT(t.n_core, 1);
}

TEST(topology_of_this_machine_adds_up) {
    const topology *t = topology_get();
    CHECK(t->n_cpu >= t->n_core && t->n_core >= 1 && t->n_node >= 1);
    CHECK(machine_threads() >= 1 && machine_threads() <= t->n_core);
    for (int32_t i = 0; i < t->n_cpu; i++) {
        for (int32_t j = 0; j < i; j++) {
            CHECK(t->order[i] != t->order[j]);
        }
    }
}

/* ---- a pool bound to CPUs */

static int32_t cpus_of[CPU_SETSIZE];
static pthread_barrier_t all_here;

static void note_cpus(void *job, int32_t task, int32_t thread) {
    (void)job, (void)task;
    cpu_set_t set;
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0);
    cpus_of[thread] = CPU_COUNT(&set);
    pthread_barrier_wait(&all_here); /* one task for each thread */
}

TEST(pool_pins_workers_and_never_the_caller) {
    smoe_error err;
    pool *p;
    int32_t n = topology_get()->n_cpu;
    if (n < 2) {
        SKIP("one CPU");
    }
    CHECK_OK(pool_open(&p, n, &err));
    CHECK(pool_pin(p));
    pthread_barrier_init(&all_here, NULL, (unsigned)n);
    pool_run(p, note_cpus, NULL, n);
    CHECK_INT(cpus_of[0], n);
    for (int32_t i = 1; i < n; i++) {
        CHECK_INT(cpus_of[i], 1);
    }
    pool_close(p);
    CHECK_OK(pool_open(&p, n + 1, &err));
    CHECK(!pool_pin(p));
    pool_close(p);
}

/* A bound worker waits beside an idle CPU while the caller wakes up on its own, where the drive's
 * interrupt arrives: a third of a streamed model's speed. */
TEST(workers_are_bound_only_when_nothing_is_streamed) {
    smoe_error err;
    smoe_model *m;
    int32_t n = topology_get()->n_core;
    if (n < 2) {
        SKIP("one core");
    }
    static const struct {
        smoe_switch pin;
        bool streams, binds;
    } cases[] = {{SMOE_AUTO, false, true},
                 {SMOE_AUTO, true, false},
                 {SMOE_ON, true, true},
                 {SMOE_OFF, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = test_model("tales-8m");
        uint64_t ring_bytes = cases[i].streams ? ring_floor(path) : 0;
        smoe_model_options o = {.n_thread = n, .ring_bytes = ring_bytes, .pin = cases[i].pin};
        CHECK_OK(smoe_model_open(&m, path, &o, &err));
        pthread_barrier_init(&all_here, NULL, (unsigned)n);
        pool_run(m->pool, note_cpus, NULL, n);
        CHECK_INT(cpus_of[1] == 1, cases[i].binds);
        smoe_model_close(m);
    }
}
