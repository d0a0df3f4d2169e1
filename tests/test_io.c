/* io: both back ends against a file of random bytes, direct and buffered, and every way to be
 * refused: by the path, by the file system, by the kernel. */
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "streamer/io.h"

enum { FILE_BYTES = 5 * 65536 + 1234, DEPTH = 8 };

static smoe_error err;
static uint8_t file_data[FILE_BYTES];
static const char *file_path;

static void write_random_file(void) {
    for (size_t i = 0; i < FILE_BYTES; i++) {
        file_data[i] = (uint8_t)test_rand();
    }
    file_path = test_path("data");
    test_write_file(file_path, file_data, FILE_BYTES);
}

/* Opens the test file; skips the test where this back end or direct I/O is not to be had. */
static io *open_or_skip(const io_ops *ops, bool direct) {
    io_config config = {.path = &file_path, .n_file = 1, .depth = DEPTH, .direct = direct};
    io *handle = NULL;
    int rc = ops->open(&handle, &config, &err);
    if (rc == SMOE_ERR_UNSUPPORTED) {
        SKIP("%s", err.text);
    }
    CHECK_OK(rc);
    return handle;
}

static void *pages(size_t bytes) {
    void *p = aligned_alloc(IO_ALIGN_BYTES, (bytes + IO_ALIGN_BYTES - 1) & ~(IO_ALIGN_BYTES - 1u));
    CHECK(p);
    return p;
}

static void check_done(const io_read *reads, const io_done *done) {
    const io_read *r = &reads[done->tag - 100];
    uint64_t left = r->offset < FILE_BYTES ? FILE_BYTES - r->offset : 0;
    uint64_t want = r->bytes < left ? r->bytes : left;
    CHECK_INT(done->result, want);
    CHECK(want == 0 || memcmp(r->buf, file_data + r->offset, want) == 0);
}

/* Random reads through one handle, as many at a time as it takes; all come back once and right. */
static void read_all_over(const io_ops *ops, io *handle, bool direct) {
    enum { N = 200 };
    static io_read reads[N];
    io_done done[3];
    bool seen[N] = {false};
    int32_t n_sent = 0, n_back = 0;
    for (int32_t i = 0; i < N; i++) {
        uint64_t offset = test_rand() % (FILE_BYTES + 3 * IO_ALIGN_BYTES);
        uint32_t bytes = 1 + (uint32_t)(test_rand() % 100000);
        if (direct) {
            offset -= offset % IO_ALIGN_BYTES;
            bytes += IO_ALIGN_BYTES - bytes % IO_ALIGN_BYTES;
        }
        reads[i] = (io_read){
            .bytes = bytes, .offset = offset, .buf = pages(bytes), .tag = 100 + (uint64_t)i};
    }
    while (n_back < N) {
        int32_t ask = N - n_sent < 2 * DEPTH ? N - n_sent : 2 * DEPTH;
        int32_t taken = ops->submit(handle, reads + n_sent, ask);
        n_sent += taken;
        CHECK(n_sent - n_back <= DEPTH);
        CHECK(taken == ask || n_sent - n_back == DEPTH);
        int32_t n = ops->reap(handle, done, 3, test_rand() % 2);
        for (int32_t i = 0; i < n; i++) {
            CHECK(!seen[done[i].tag - 100]);
            seen[done[i].tag - 100] = true;
            check_done(reads, &done[i]);
        }
        n_back += n;
    }
    CHECK_INT(ops->reap(handle, done, 3, true), 0);
    for (int32_t i = 0; i < N; i++) {
        free(reads[i].buf);
    }
}

static void check_backend(const io_ops *ops, bool direct) {
    write_random_file();
    io *handle = open_or_skip(ops, direct);
    io_done done;
    CHECK_INT(ops->reap(handle, &done, 1, true), 0);
    CHECK_INT(ops->reap(handle, &done, 1, false), 0);
    read_all_over(ops, handle, direct);
    ops->close(handle);
    ops->close(NULL);
}

TEST(io_threads_read_buffered) {
    check_backend(&io_thread_ops, false);
}

TEST(io_threads_read_direct) {
    check_backend(&io_thread_ops, true);
}

TEST(io_uring_reads_buffered) {
    check_backend(&io_uring_ops, false);
}

TEST(io_uring_reads_direct) {
    check_backend(&io_uring_ops, true);
}

/* From here on, this process gets errnum for this system call. */
static void forbid(unsigned call, unsigned errnum) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the call's number comes first */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errnum),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        SKIP("no system call filter here");
    }
}

/* ---- registered buffers */

enum { ROOM_BYTES = 20 << 20, SLICE_BYTES = 8 << 20 };

/* Reads the file's start to this place of the room and compares. */
static void read_to(io *handle, uint8_t *at) {
    io_read r = {.bytes = 5 * 65536, .buf = at, .tag = 100};
    io_done done;
    memset(at, 0xaa, r.bytes);
    CHECK_INT(io_uring_ops.submit(handle, &r, 1), 1);
    CHECK_INT(io_uring_ops.reap(handle, &done, 1, true), 1);
    check_done(&r, &done);
}

static uint64_t pinned(io *handle) {
    return io_uring_ops.pinned_bytes(handle);
}

static io *open_with_room(uint8_t **room, uint64_t bytes) {
    write_random_file();
    io *handle = open_or_skip(&io_uring_ops, true);
    *room = pages(ROOM_BYTES);
    CHECK_INT(pinned(handle), 0);
    io_uring_ops.set_room(handle, *room, bytes, ROOM_BYTES);
    CHECK_INT(pinned(handle), 0);
    return handle;
}

TEST(io_uring_registers_what_reads_land_in) {
    uint8_t *room;
    io *handle = open_with_room(&room, 18 << 20);
    read_to(handle, room + IO_ALIGN_BYTES);
    if (pinned(handle) == 0) {
        SKIP("this system registers no buffers");
    }
    CHECK_INT(pinned(handle), SLICE_BYTES);
    read_to(handle, room + SLICE_BYTES - IO_ALIGN_BYTES); /* across two slices */
    read_to(handle, room + (18 << 20));                   /* behind the end */
    CHECK_INT(pinned(handle), SLICE_BYTES);
    read_to(handle, room + 2 * SLICE_BYTES); /* the last slice is cut short by the end */
    CHECK_INT(pinned(handle), SLICE_BYTES + (2 << 20));
    io_uring_ops.close(handle);
    free(room);
}

TEST(io_uring_lets_go_of_what_the_room_loses) {
    uint8_t *room;
    io *handle = open_with_room(&room, ROOM_BYTES);
    read_to(handle, room);
    read_to(handle, room + SLICE_BYTES);
    if (pinned(handle) != 2 * SLICE_BYTES) {
        SKIP("this system registers too few buffers");
    }
    io_uring_ops.set_room(handle, room, SLICE_BYTES + IO_ALIGN_BYTES, ROOM_BYTES);
    CHECK_INT(pinned(handle), SLICE_BYTES);
    read_to(handle, room + SLICE_BYTES); /* behind the end, but still memory */
    CHECK_INT(pinned(handle), SLICE_BYTES);
    io_uring_ops.set_room(handle, room, ROOM_BYTES, ROOM_BYTES);
    read_to(handle, room + SLICE_BYTES);
    CHECK_INT(pinned(handle), 2 * SLICE_BYTES);
    io_uring_ops.set_room(handle, room, 0, ROOM_BYTES);
    CHECK_INT(pinned(handle), 0);
    read_to(handle, room);
    io_uring_ops.close(handle);
    free(room);
}

/* Pages that the kernel holds for this process; 0 when it does not say. */
static uint64_t held_kib(void) {
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "VmPin:", 6) == 0) {
            kib = strtoull(line + 6, NULL, 10);
        }
    }
    if (f) {
        fclose(f);
    }
    return kib;
}

/* A process that ends otherwise leaves its memory taken for a while, and the next one starts short
 * of it. */
TEST(io_uring_lets_go_when_it_is_closed) {
    uint8_t *room;
    io *handle = open_with_room(&room, ROOM_BYTES);
    read_to(handle, room);
    uint64_t before_kib = held_kib();
    io_uring_ops.close(handle);
    if (before_kib < SLICE_BYTES / 1024) {
        SKIP("this system does not count pinned pages");
    }
    CHECK_INT(held_kib(), 0);
    free(room);
}

TEST(io_uring_reads_without_a_right_to_pin) {
    uint8_t *room;
    io *handle = open_with_room(&room, ROOM_BYTES);
    forbid(SYS_io_uring_register, EPERM);
    read_to(handle, room);
    CHECK_INT(pinned(handle), 0);
    io_uring_ops.set_room(handle, room, SLICE_BYTES, ROOM_BYTES);
    read_to(handle, room);
    io_uring_ops.close(handle);
    free(room);
}

static void close_in_flight(const io_ops *ops) {
    write_random_file();
    for (int32_t i = 0; i < 20; i++) {
        io *handle = open_or_skip(ops, false);
        io_read reads[DEPTH];
        for (int32_t r = 0; r < DEPTH; r++) {
            reads[r] =
                (io_read){.bytes = 65536, .offset = 4096u * (unsigned)r, .buf = pages(65536)};
        }
        CHECK_INT(ops->submit(handle, reads, DEPTH), DEPTH);
        ops->close(handle);
        for (int32_t r = 0; r < DEPTH; r++) {
            free(reads[r].buf); /* a late write would be seen by AddressSanitizer or the heap */
        }
    }
}

TEST(io_threads_close_waits) {
    close_in_flight(&io_thread_ops);
}

TEST(io_uring_close_waits) {
    close_in_flight(&io_uring_ops);
}

/* ---- several driving threads, one after the other */

typedef struct relay {
    const io_ops *ops;
    io *handle;
    io_read read;
} relay;

static void *submit_and_leave(void *arg) {
    relay *r = arg;
    CHECK_INT(r->ops->submit(r->handle, &r->read, 1), 1);
    return NULL;
}

static void check_relay(const io_ops *ops, bool direct) {
    write_random_file();
    relay r = {.ops = ops, .handle = open_or_skip(ops, direct)};
    r.read = (io_read){.bytes = 65536, .buf = pages(65536), .tag = 100};
    for (int32_t i = 0; i < 50; i++) {
        pthread_t thread;
        io_done done;
        CHECK_INT(pthread_create(&thread, NULL, submit_and_leave, &r), 0);
        pthread_join(thread, NULL);
        CHECK_INT(ops->reap(r.handle, &done, 1, true), 1);
        /* the system may take back what an ended thread had asked for, but says so */
        if (done.result != -ECANCELED && done.result != -EINTR) {
            check_done(&r.read, &done);
        }
    }
    ops->close(r.handle);
    free(r.read.buf);
}

TEST(io_threads_may_be_driven_in_turn) {
    check_relay(&io_thread_ops, false);
}

TEST(io_uring_may_be_driven_in_turn) {
    check_relay(&io_uring_ops, true);
}

/* ---- refusals */

static int try_open(const io_ops *ops, const char *path, bool direct) {
    const char *paths[2] = {file_path, path};
    io_config config = {.path = paths, .n_file = 2, .depth = 2, .direct = direct};
    io *handle = (io *)&config;
    int rc = ops->open(&handle, &config, &err);
    CHECK(rc != SMOE_OK && !handle);
    return rc;
}

static void check_refusals(const io_ops *ops) {
    write_random_file();
    const char *none = test_path("none");
    CHECK_INT(try_open(ops, none, false), SMOE_ERR_IO);
    CHECK_HAS(err.text, none);
    CHECK_INT(try_open(ops, test_dir(), false), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, test_dir());
    /* no O_DIRECT in /proc */
    CHECK_INT(try_open(ops, "/proc/self/maps", true), SMOE_ERR_UNSUPPORTED);
    CHECK_HAS(err.text, "/proc/self/maps");
    CHECK_HAS(err.text, "O_DIRECT");
    io_config config = {.path = &file_path, .n_file = 1, .depth = 0};
    io *handle = NULL;
    CHECK_ERR(ops->open(&handle, &config, &err), SMOE_ERR_ARGUMENT);
    config.depth = 1 << 20;
    CHECK_ERR(ops->open(&handle, &config, &err), SMOE_ERR_ARGUMENT);
}

TEST(io_threads_refuse) {
    check_refusals(&io_thread_ops);
}

TEST(io_uring_refuses) {
#ifndef SMOE_HAVE_URING
    SKIP("built without io_uring");
#endif
    check_refusals(&io_uring_ops);
}

TEST(io_uring_forbidden_is_unsupported) {
    write_random_file();
    forbid(SYS_io_uring_setup, EPERM);
    io_config config = {.path = &file_path, .n_file = 1, .depth = 4};
    io *handle = NULL;
    CHECK_ERR(io_uring_ops.open(&handle, &config, &err), SMOE_ERR_UNSUPPORTED);
    CHECK_HAS(err.text, "io_uring");
}

TEST(io_uring_forbidden_later_fails_reads) {
    write_random_file();
    io *handle = open_or_skip(&io_uring_ops, false);
    forbid(SYS_io_uring_enter, EPERM);
    io_read reads[2] = {{.bytes = 4096, .buf = pages(4096), .tag = 1},
                        {.bytes = 4096, .buf = pages(4096), .tag = 2}};
    io_done done[2];
    for (int32_t i = 0; i < 3; i++) {
        CHECK_INT(io_uring_ops.submit(handle, reads, 2), 2);
        CHECK_INT(io_uring_ops.reap(handle, done, 2, true), 2);
        CHECK_INT(done[0].result, -EPERM);
        CHECK_INT(done[1].result, -EPERM);
        CHECK_INT(done[0].tag + done[1].tag, 3);
    }
    io_uring_ops.close(handle);
    free(reads[0].buf);
    free(reads[1].buf);
}
