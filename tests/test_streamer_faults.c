/* streamer: how it behaves when the drive, the system or the caller does not: failed and short
 * reads, wrong bytes, refusals to open, abandoned demands. */
#include "streamer_fixture.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "streamer/streamer_state.h"

/* ---- faults */

static void recovers(const fault *f, smoe_switch direct, uint64_t least_retries) {
    for (int32_t n_ext = 1; n_ext <= 3; n_ext += 2) {
        make_paged(n_ext, n_ext == 1 ? 4096 : 1);
        streamer *s = open_streamer(&faulty_ops, direct, streamer_ring_floor(&fx.source));
        faulty_add(f);
        USE(s, 1, 2, 3);
        USE(s, 0, 0, 1);
        if (stat_retries(s) < least_retries) {
            FAIL("fault %d: %llu retries", (int)f->kind, (unsigned long long)stat_retries(s));
        }
        close_all(s);
    }
}

TEST(streamer_recovers_from_passing_faults) {
    for (int32_t nth = 0; nth < 3; nth++) {
        for (smoe_switch d = SMOE_ON; d <= SMOE_OFF; d++) {
            recovers(&(fault){FAULT_ERRNO, .value = EIO, .nth = nth, .times = 1}, d, 1);
            recovers(&(fault){FAULT_ERRNO, .value = EIO, .nth = nth, .times = 3}, d, 3);
            recovers(&(fault){FAULT_ERRNO, .value = EAGAIN, .nth = nth, .times = 50}, d, 50);
            recovers(&(fault){FAULT_ERRNO, .value = EINTR, .nth = nth, .times = 50}, d, 50);
            recovers(&(fault){FAULT_ERRNO, .value = ECANCELED, .nth = nth, .times = 9}, d, 9);
            recovers(&(fault){FAULT_EOF, .nth = nth, .times = 2}, d, 2);
            recovers(&(fault){FAULT_HALF, .nth = nth, .times = 5}, d, 1);
        }
    }
}

TEST(streamer_resumes_short_reads_of_any_length) {
    const int32_t length[] = {1, 511, 512, 4095, 4096, 4097, 8191, 8192, 8193, 9000, 12288, 26999};
    for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
        for (smoe_switch d = SMOE_ON; d <= SMOE_OFF; d++) {
            recovers(&(fault){FAULT_SHORT, .value = length[i], .times = 3}, d, 0);
        }
    }
    /* buffered reads advance however short they are; direct ones by whole pages */
    recovers(&(fault){FAULT_SHORT, .value = 100, .times = FAULT_FOREVER}, SMOE_OFF, 100);
    recovers(&(fault){FAULT_SHORT, .value = 5000, .times = FAULT_FOREVER}, SMOE_ON, 4);
}

/* A fault that stays ends the demand with its name; lifted, the same expert is read. */
static void fails(const fault *f, int code, const char *part) {
    for (smoe_switch d = SMOE_ON; d <= SMOE_OFF; d++) {
        make_paged(1, 1);
        streamer *s = open_streamer(&faulty_ops, d, streamer_ring_floor(&fx.source));
        fault aimed = *f;
        const extent *x = &source_expert(&fx.source, 1, 2)->ext[0];
        aimed.from = x->offset + 5000;
        aimed.to = aimed.from + 1;
        faulty_add(&aimed);
        USE(s, 1, 0);
        for (int32_t i = 0; i < 3; i++) {
            use_failing(s, 1, 2, code);
            CHECK_HAS(err.text, fx.path[0]);
            CHECK_HAS(err.text, "layer 3");
            CHECK_HAS(err.text, "expert 2");
            CHECK_HAS(err.text, part);
            if (code == SMOE_ERR_IO) {
                char at[64];
                uint64_t start = x->offset - (d == SMOE_ON ? x->offset % IO_ALIGN_BYTES : 0);
                snprintf(at, sizeof at, "at byte %llu", (unsigned long long)start);
                CHECK_HAS(err.text, at);
            }
            USE(s, 0, 1, 0);
        }
        faulty_clear();
        USE(s, 1, 2, 3);
        check_counted(s);
        close_all(s);
    }
}

TEST(streamer_names_what_it_cannot_read) {
    fails(&(fault){FAULT_ERRNO, .value = EIO, .times = FAULT_FOREVER}, SMOE_ERR_IO, strerror(EIO));
    fails(&(fault){FAULT_ERRNO, .value = EAGAIN, .times = FAULT_FOREVER}, SMOE_ERR_IO,
          strerror(EAGAIN));
    fails(&(fault){FAULT_EOF, .times = FAULT_FOREVER}, SMOE_ERR_IO, "too early");
}

TEST(streamer_names_a_flipped_bit) {
    fails(&(fault){FAULT_FLIP, .times = FAULT_FOREVER}, SMOE_ERR_CHECKSUM, "checksum");
}

TEST(streamer_rereads_a_flipped_bit_once) {
    make_paged(3, 1);
    streamer *s = open_faulty(streamer_ring_floor(&fx.source));
    const extent *x = &source_expert(&fx.source, 1, 2)->ext[2];
    faulty_add(&(fault){FAULT_FLIP, .file = x->file, .from = x->offset + x->bytes - 1,
                        .to = x->offset + x->bytes, .times = 1});
    USE(s, 1, 0, 2);
    CHECK_INT(stat_retries(s), 1);
    close_all(s);
}

TEST(streamer_direct_one_byte_reads_end) {
    make_paged(1, 4096);
    streamer *s = open_streamer(&faulty_ops, SMOE_ON, streamer_ring_floor(&fx.source));
    faulty_add(&(fault){FAULT_SHORT, .value = 1, .times = FAULT_FOREVER});
    use_failing(s, 1, 2, SMOE_ERR_IO);
    faulty_clear();
    USE(s, 1, 2);
    close_all(s);
}

TEST(streamer_sees_a_file_cut_short) {
    make_paged(1, 4096);
    streamer *s = open_streamer(&io_thread_ops, SMOE_OFF, streamer_ring_floor(&fx.source));
    const extent *x = &source_expert(&fx.source, 1, 3)->ext[0];
    CHECK_INT(truncate(fx.path[0], (off_t)(x->offset + 100)), 0);
    use_failing(s, 1, 3, SMOE_ERR_IO);
    CHECK_HAS(err.text, "too early");
    USE(s, 1, 2);
    close_all(s);
}

TEST(streamer_error_spares_items_in_hand) {
    make_paged(1, 4096);
    streamer *s = open_faulty(4 * streamer_ring_floor(&fx.source));
    faulty.order = FAULTY_IN_ORDER;
    const extent *x = &source_expert(&fx.source, 0, 2)->ext[0];
    faulty_add(&(fault){FAULT_ERRNO, .value = EIO, .from = x->offset, .to = x->offset + 1,
                        .times = FAULT_FOREVER});
    streamer_item items[4];
    int32_t n, total = 0;
    int rc;
    streamer_demand(s, 0, (const int32_t[]){0, 1, 2, 3}, 4);
    while ((rc = streamer_next(s, items + total, 4 - total, &n, &err)) == SMOE_OK) {
        CHECK(n > 0);
        total += n;
    }
    CHECK_INT(rc, SMOE_ERR_IO);
    CHECK(total >= 1);
    streamer_abandon(s);
    for (int32_t i = 0; i < total; i++) {
        check_item(0, &items[i]);
        streamer_release(s, &items[i]);
    }
    check_sound(s);
    USE(s, 0, 0, 1, 3);
    faulty_clear();
    USE(s, 0, 0, 1, 2, 3);
    close_all(s);
}

TEST(streamer_back_end_that_takes_little) {
    make_small();
    streamer *s = open_faulty(4 * 8192);
    faulty.take_max = 1;
    USE(s, 0, 0, 1, 2, 3, 4, 5, 6, 7);
    faulty.takes_nothing = true;
    use_failing(s, 1, 2, SMOE_ERR_IO);
    CHECK_HAS(err.text, "takes no more reads");
    faulty.takes_nothing = false;
    USE(s, 1, 2, 3);
    close_all(s);
}

/* ---- giving up */

TEST(streamer_abandon_keeps_what_is_on_its_way) {
    make_small();
    streamer *s = open_faulty(streamer_ring_full(&fx.source));
    faulty.only_waiting = true;
    streamer_demand(s, 0, (const int32_t[]){0, 1, 2, 3, 4, 5}, 6); /* depth 4 */
    streamer_abandon(s);
    check_sound(s);
    USE(s, 0, 0, 1, 2, 3, 4, 5);
    check_stats(s, 0, 4, 2 + 6, 0);
    streamer_demand(s, 1, (const int32_t[]){0, 1, 2}, 3);
    streamer_item item;
    int32_t n;
    CHECK_OK(streamer_next(s, &item, 1, &n, &err));
    CHECK_INT(n, 1);
    streamer_abandon(s);
    streamer_abandon(s);
    check_item(1, &item);
    streamer_release(s, &item);
    CHECK_OK(streamer_next(s, &item, 1, &n, &err));
    CHECK_INT(n, 0);
    check_sound(s);
    USE(s, 1, 2, 1, 0);
    close_all(s);
}

TEST(streamer_abandon_half_read) {
    make_fixture(&(fixture_config){
        .n_moe = 1, .n_expert = 4, .n_used = 2, .n_ext = 1, .min_bytes = 30000, .align = 4096});
    streamer *s = NULL;
    streamer_config config = {.probe = SMOE_PROBE_OFF,
                              .source = &fx.source,
                              .ops = &faulty_ops,
                              .direct = SMOE_OFF,
                              .ring_bytes = streamer_ring_floor(&fx.source),
                              .depth = 4,
                              .read_bytes = 4096};
    CHECK_OK(streamer_open(&s, &config, &err));
    faulty.only_waiting = true;
    for (int32_t i = 0; i < 20; i++) {
        streamer_demand(s, 0, (const int32_t[]){i % 4, (i + 1) % 4}, 2);
        streamer_abandon(s);
        check_sound(s);
        if (i % 3 == 0) {
            USE(s, 0, (i + 2) % 4);
        }
    }
    close_all(s);
}

TEST(streamer_closes_with_reads_in_flight) {
    const io_ops *ops[] = {&faulty_ops, &io_thread_ops, NULL};
    for (int32_t i = 0; i < 30; i++) {
        make_paged(3, 1);
        streamer *s = open_streamer(ops[i % 3], SMOE_AUTO, streamer_ring_full(&fx.source));
        faulty.only_waiting = true;
        BET(s, 1, 0, 1);
        streamer_demand(s, 0, (const int32_t[]){0, 1, 2}, 3);
        close_all(s);
    }
}

/* ---- opening */

static char log_text[4][1024];
static int32_t n_log_line;

static void take_line(void *user, smoe_log_level level, const char *line) {
    (void)user;
    CHECK_INT(level, SMOE_LOG_NOTICE);
    CHECK(n_log_line < 4);
    snprintf(log_text[n_log_line++], sizeof log_text[0], "%s", line);
}

static int open_logged(streamer **s, const io_ops *ops, smoe_switch direct) {
    streamer_config config = {.probe = SMOE_PROBE_OFF,
                              .source = &fx.source,
                              .ops = ops,
                              .direct = direct,
                              .ring_bytes = streamer_ring_floor(&fx.source),
                              .log = {.fn = take_line}};
    n_log_line = 0;
    return streamer_open(s, &config, &err);
}

TEST(streamer_direct_falls_back_with_a_notice) {
    make_small();
    streamer *s = NULL;
    faulty.refuses_direct = true;
    CHECK_OK(open_logged(&s, &faulty_ops, SMOE_AUTO));
    CHECK_INT(n_log_line, 1);
    CHECK_HAS(log_text[0], "direct refused");
    CHECK(!streamer_is_direct(s));
    USE(s, 0, 1, 2);
    streamer_close(s);
    CHECK_ERR(open_logged(&s, &faulty_ops, SMOE_ON), SMOE_ERR_UNSUPPORTED);
    CHECK_HAS(err.text, "direct refused");
    CHECK(!s);
    CHECK_OK(open_logged(&s, &faulty_ops, SMOE_OFF));
    CHECK_INT(n_log_line, 0);
    close_all(s);
}

/* False where a process may not restrict itself. */
static bool forbid_io_uring(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* ---- fallbacks are said, also when the probe has found them first */

static bool was_said;

static void find_refusal(void *user, smoe_log_level level, const char *line) {
    was_said |= level == SMOE_LOG_NOTICE && strstr(line, user) != NULL;
}

static void check_said(const io_ops *ops, smoe_switch direct, char *what) {
    for (int32_t round = 0; round < 2; round++) { /* measured, then remembered */
        streamer *s = NULL;
        streamer_config config = {.probe = round ? SMOE_PROBE_AUTO : SMOE_PROBE_REDO,
                                  .source = &fx.source,
                                  .ops = ops,
                                  .direct = direct,
                                  .ring_bytes = streamer_ring_full(&fx.source),
                                  .log = {find_refusal, what}};
        was_said = false;
        CHECK_OK(streamer_open(&s, &config, &err));
        CHECK(was_said);
        USE(s, 0, 1, 2);
        streamer_close(s);
    }
}

TEST(streamer_probed_direct_falls_back_with_a_notice) {
    make_small();
    faulty.refuses_direct = true;
    char what[] = "direct refused";
    check_said(&faulty_ops, SMOE_AUTO, what);
    close_all(NULL);
}

TEST(streamer_probed_without_io_uring_says_so) {
    make_small();
    if (!forbid_io_uring()) {
        SKIP("no system call filter here");
    }
    char what[] = "io_uring";
    check_said(NULL, SMOE_OFF, what);
    close_all(NULL);
}

TEST(streamer_reports_a_back_end_that_does_not_open) {
    make_small();
    streamer *s = NULL;
    const int code[] = {SMOE_ERR_IO, SMOE_ERR_MEMORY, SMOE_ERR_UNSUPPORTED};
    for (int32_t i = 0; i < 3; i++) {
        faulty.open_code = code[i];
        CHECK_ERR(open_logged(&s, &faulty_ops, SMOE_AUTO), code[i]);
        CHECK_HAS(err.text, "open refused");
        CHECK_INT(streamer_open(&s,
                                &(streamer_config){.probe = SMOE_PROBE_OFF,
                                                   .source = &fx.source,
                                                   .ops = &faulty_ops,
                                                   .ring_bytes = 1 << 20},
                                NULL),
                  code[i]);
    }
    CHECK_INT(unlink(fx.path[0]), 0);
    CHECK_ERR(open_logged(&s, NULL, SMOE_AUTO), SMOE_ERR_IO);
    CHECK_HAS(err.text, fx.path[0]);
    close_all(NULL);
}

TEST(streamer_without_io_uring_uses_threads) {
    make_small();
    if (!forbid_io_uring()) {
        SKIP("no system call filter here");
    }
    streamer *s = NULL;
    CHECK_OK(open_logged(&s, NULL, SMOE_OFF));
    CHECK_TEXT(streamer_backend(s), "threads");
    CHECK_INT(n_log_line, 1);
    CHECK_HAS(log_text[0], "io_uring");
    USE(s, 1, 1, 2, 3, 4);
    streamer_close(s);
    CHECK_ERR(open_logged(&s, &io_uring_ops, SMOE_OFF), SMOE_ERR_UNSUPPORTED);
    close_all(NULL);
}

TEST(streamer_refuses_lying_sources) {
    make_paged(3, 1);
    expert_ref *e = &fx.expert[6];
    const expert_ref good = *e;
    streamer *s = NULL;
    e->ext[1].file = 2;
    CHECK_ERR(open_logged(&s, NULL, SMOE_AUTO), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "expert 2 of layer 3");
    *e = good;
    e->ext[2].offset = UINT64_MAX - 10;
    CHECK_ERR(open_logged(&s, NULL, SMOE_AUTO), SMOE_ERR_FORMAT);
    *e = good;
    e->ext[2].bytes += fx.file[0].bytes;
    CHECK_ERR(open_logged(&s, NULL, SMOE_AUTO), SMOE_ERR_FORMAT);
    *e = good;
    e->part[0].at_bytes = 1;
    CHECK_ERR(open_logged(&s, NULL, SMOE_AUTO), SMOE_ERR_FORMAT);
    *e = good;
    e->n_ext = 4;
    CHECK_ERR(open_logged(&s, NULL, SMOE_AUTO), SMOE_ERR_FORMAT);
    *e = good;
    CHECK_OK(open_logged(&s, NULL, SMOE_AUTO));
    close_all(s);
}
