/* base: JSON skin, pool, errors, arena. */
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <json-c/json.h>
#include <stdatomic.h>

#include "base/direct_reader.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"

static smoe_error err;

static int parse(const char *text, unsigned flags) {
    struct json_object *root = NULL;
    int rc = json_parse(&root, text, strlen(text), "t.json", flags, &err);
    json_object_put(root);
    return rc;
}

TEST(json_refuses_what_json_c_would_bend) {
    CHECK_OK(
        parse("{\"a\": [1, 2.5, \"\\ud83d\\ude00\"], \"b\": {\"a\": null}}", JSON_UNIQUE_KEYS));
    CHECK_OK(parse(" 12 ", 0));
    CHECK_OK(parse("12", 0));
    CHECK_ERR(parse("", 0), SMOE_ERR_FORMAT);
    CHECK_ERR(parse("{\"a\": 1} x", 0), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "garbage");
    CHECK_ERR(parse("{\"a\": 1, \"a\": 2}", JSON_UNIQUE_KEYS), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "duplicate name a");
    CHECK_ERR(parse("{\"x\": {\"a\": 1, \"a\": 2}}", JSON_UNIQUE_KEYS), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "duplicate");
    CHECK_ERR(parse("{\"a\\u0000b\": 1}", 0), SMOE_ERR_FORMAT);
    CHECK_ERR(parse("[\"\\ud800\"]", 0), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "surrogate");
    CHECK_ERR(parse("[\"\xc0\x80\"]", 0), SMOE_ERR_FORMAT);
    CHECK_ERR(parse("{\"a\": ", 0), SMOE_ERR_FORMAT);
}

/* json-c 0.16 reads the pairs of U+xD800 to U+xDFFF as U+FFFD. */
TEST(json_reads_every_escaped_pair) {
    static const struct {
        const char *json, *text;
    } cases[] = {{"[\"a\\ud836\\udc5d\\\\ud836\\u0041\"]", "a\xf0\x9d\xa1\x9d\\ud836A"},
                 {"[\"\\uDAB7\\uDFFF|\\ud83d\\ude00\"]", "\xf2\xbd\xbf\xbf|\xf0\x9f\x98\x80"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_object *root = NULL;
        CHECK_OK(json_parse(&root, cases[i].json, strlen(cases[i].json), "t", 0, &err));
        CHECK_TEXT(json_object_get_string(json_object_array_get_idx(root, 0)), cases[i].text);
        json_object_put(root);
    }
}

TEST(json_depth_is_limited) {
    size_t n = 100000;
    char *deep = malloc(n + 1);
    memset(deep, '[', n);
    deep[n] = '\0';
    CHECK_ERR(parse(deep, 0), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "nesting too deep");
}

TEST(json_getters_name_file_and_field) {
    struct json_object *root = NULL;
    const char *text =
        "{\"i\": 7, \"f\": 1.5, \"s\": \"x\", \"n\": null, \"big\": 36893488147419103248,"
        " \"t\": true, \"e\": 1e400}";
    CHECK_OK(json_parse(&root, text, strlen(text), "c.json", 0, &err));
    json_at at = {root, "c.json", "rope."};
    int64_t i = 0;
    CHECK_OK(json_need_int(&at, "i", 1, 10, &i, &err));
    CHECK_INT(i, 7);
    CHECK_ERR(json_need_int(&at, "i", 8, 10, &i, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "c.json: rope.i is 7, out of range (8 to 10)");
    CHECK_ERR(json_need_int(&at, "f", 0, 10, &i, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "c.json: rope.f must be an integer");
    CHECK_ERR(json_need_int(&at, "t", 0, 10, &i, &err), SMOE_ERR_FORMAT);
    CHECK_ERR(json_need_int(&at, "big", 0, INT64_MAX, &i, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "out of range");
    CHECK_ERR(json_need_int(&at, "e", 0, INT64_MAX, &i, &err), SMOE_ERR_FORMAT);
    CHECK_ERR(json_need_int(&at, "n", 0, 10, &i, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "c.json: rope.n is null");
    CHECK_OK(json_opt_int(&at, "none", 0, 10, &i, &err));
    CHECK_INT(i, 7);
    json_object_put(root);
}

static void count_task(void *job, int32_t task, int32_t thread) {
    (void)thread;
    atomic_fetch_add(&((atomic_int *)job)[task], 1);
}

TEST(pool_runs_each_task_once) {
    for (int32_t n_thread = 1; n_thread <= 5; n_thread++) {
        pool *p = NULL;
        CHECK_OK(pool_open(&p, n_thread, &err));
        for (int round = 0; round < 3000; round++) {
            static atomic_int hit[64];
            static const char coming[20000];
            memset(hit, 0, sizeof hit);
            for (int32_t i = 0; i < n_thread; i++) {
                pool_set_next(p, i, coming, test_rand() % sizeof coming);
            }
            int32_t n = (int32_t)(test_rand() % 64);
            pool_run(p, count_task, hit, n);
            for (int32_t i = 0; i < 64; i++) {
                CHECK_INT(hit[i], i < n);
            }
        }
        pool_close(p);
    }
}

TEST(errors_are_cleaned_for_terminals) {
    err_set(&err, SMOE_ERR_FORMAT, "name \x1b[31m%s", "\xff\xfe ok");
    CHECK_TEXT(err.text, "name ?[31m?? ok");
    char long_name[4000];
    memset(long_name, 'a', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    err_set(&err, SMOE_ERR_FORMAT, "%s", long_name);
    CHECK(strlen(err.text) < SMOE_ERROR_TEXT_BYTES);
}

TEST(arena_and_buffers_check_sizes) {
    arena a = {0};
    volatile size_t huge = SIZE_MAX / 2;
    CHECK(arena_get(&a, huge, 4) == NULL);
    char *p = arena_get(&a, 3, 100);
    CHECK(p && (uintptr_t)p % 64 == 0 && p[299] == 0);
    arena_free(&a);
    byte_buf b = {.max_bytes = 10};
    CHECK_OK(buf_printf(&b, &err, "%s", "0123456789"));
    CHECK_ERR(buf_append(&b, "x", 1, &err), SMOE_ERR_MEMORY);
    CHECK_TEXT(b.data, "0123456789");
    buf_free(&b);
    char text[24];
    CHECK_TEXT(format_bytes(text, 1536), "1.50 KiB");
    CHECK_TEXT(format_bytes(text, 12), "12 B");
}

/* ---- reading past the page cache */

TEST(direct_reader_gives_the_files_bytes) {
    enum { BYTES = 700001 };
    static uint8_t want[BYTES], got[BYTES];
    smoe_error e;
    direct_reader r;
    const char *path = test_path("data.bin");
    for (size_t i = 0; i < BYTES; i++) {
        want[i] = (uint8_t)test_rand();
    }
    test_write_file(path, want, BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_OK(direct_reader_open(&r, &e));
    for (int round = 0; round < 200; round++) {
        size_t at = test_rand() % BYTES, n = 1 + test_rand() % (BYTES - at);
        n = round % 3 ? n : 1 + n % 5000;
        if (round % 2) { /* from the drive, where the file system has one */
            fsync(fd);
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        memset(got, 0xa5, n);
        CHECK_OK(direct_read(&r, path, fd, at, got, n, &e));
        CHECK(memcmp(got, want + at, n) == 0);
    }
    CHECK_OK(direct_read(&r, path, fd, BYTES - 1, got, 1, &e));
    CHECK_ERR(direct_read(&r, path, fd, BYTES - 1, got, 2, &e), SMOE_ERR_FORMAT);
    CHECK_HAS(e.text, "data.bin");
    direct_reader_close(&r);
    close(fd);
}

static void count_tick(void *user) {
    ++*(int32_t *)user;
}

static void add_task(void *job, int32_t task, int32_t thread) {
    (void)thread;
    atomic_fetch_add((atomic_int *)job, task);
}

/* Pages of the file that are in memory. */
static size_t cached_pages(int fd, size_t bytes) {
    enum { PAGE = 4096 };
    unsigned char in[64];
    size_t n = 0;
    CHECK(bytes <= sizeof in * PAGE);
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && mincore(map, bytes, in) == 0);
    for (size_t i = 0; i < (bytes + PAGE - 1) / PAGE; i++) {
        n += in[i] & 1;
    }
    munmap(map, bytes);
    return n;
}

/* Under a cgroup's limit what it leaves there would be the process's. */
TEST(direct_reader_leaves_nothing_in_the_page_cache) {
    enum { BYTES = 200000 };
    static char data[BYTES], got[BYTES];
    smoe_error e;
    direct_reader r;
    const char *path = test_path("data");
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (char)test_rand();
    }
    test_write_file(path, data, BYTES);
    int fd = open(path, O_RDWR | O_CLOEXEC), direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    CHECK(fd >= 0 && fsync(fd) == 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    if (direct < 0 || cached_pages(fd, BYTES) > 0) {
        SKIP("this file system has no direct reads or keeps what it is told to drop");
    }
    close(direct);
    CHECK_OK(direct_reader_open(&r, &e));
    for (size_t at = 0; at < BYTES; at += 50000) {
        CHECK_OK(direct_read(&r, path, fd, at, got + at, 50000, &e));
    }
    CHECK(memcmp(got, data, BYTES) == 0);
    CHECK_INT(cached_pages(fd, BYTES), 0);
    direct_reader_close(&r);
    close(fd);
}

TEST(pool_ticks_between_the_callers_tasks) {
    for (int32_t n_thread = 1; n_thread <= 2; n_thread++) {
        pool *p;
        int32_t n_tick = 0;
        atomic_int sum = 0;
        CHECK_OK(pool_open(&p, n_thread, &err));
        pool_set_tick(p, count_tick, &n_tick, 0);
        for (int32_t i = 0; i < 100 && n_tick == 0; i++) {
            sum = 0;
            pool_run(p, add_task, &sum, 100); /* the workers may take them all */
            CHECK_INT(sum, 4950);
        }
        CHECK(n_tick > 0);
        pool_set_tick(p, NULL, NULL, 0);
        int32_t before = n_tick;
        pool_run(p, add_task, &sum, 100);
        CHECK_INT(n_tick, before);
        pool_close(p);
    }
}
