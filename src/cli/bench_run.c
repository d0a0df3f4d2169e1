/* See bench_run.h. */
#include "cli/bench_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

/* ---- the page cache */

static void drop_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

/* NAME-00001-of-00009.gguf: the number's place in path; NULL when path is not of such a set. */
static char *set_number(char *path, int *n_file) {
    char *of = strstr(path, "-of-");
    for (char *next = of; next; next = strstr(of + 1, "-of-")) {
        of = next;
    }
    if (!of || of - path < 6 || of[-6] != '-') {
        return NULL;
    }
    long n = strtol(of + 4, NULL, 10);
    *n_file = n > 0 && n <= 99999 ? (int)n : 0;
    return *n_file ? of - 5 : NULL;
}

static void drop_folder(const char *path) {
    char file[FILE_PATH_BYTES];
    DIR *dir = opendir(path);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        if (file_join(file, sizeof file, path, e->d_name)) {
            drop_file(file);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* All files of a model that hold experts. */
static void drop_model(const char *path) {
    char file[FILE_PATH_BYTES], digits[16];
    int n_file = 0;
    if (file_is_dir(path)) {
        drop_folder(path);
        return;
    }
    drop_file(path);
    snprintf(file, sizeof file, "%s", path);
    char *number = set_number(file, &n_file);
    for (int i = 1; number && i <= n_file; i++) {
        snprintf(digits, sizeof digits, "%05d", i);
        memcpy(number, digits, 5);
        drop_file(file);
    }
}

static void drop_all(const bench_job *job) {
    const option_list *copies = &job->model->vault_on;
    drop_model(job->path);
    for (size_t i = 0; i < copies->n_item; i++) {
        drop_folder(copies->item[i]);
    }
}

/* ---- one run */

typedef struct measurer {
    const bench_job *job;
    smoe_model *model;
    smoe_session *session;
    int32_t *ids; /* [longest sequence] */
    int32_t vocab;
    smoe_error *err;
} measurer;

/* The same tokens in every run of the program: Knuth's MMIX generator, its upper bits. */
static void random_ids(const measurer *m, int32_t *ids, int32_t n, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int32_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % (uint64_t)m->vocab);
    }
}

static int sync_to(const measurer *m, int32_t n_tok) {
    return smoe_session_sync(m->session, m->ids, (size_t)n_tok, m->err);
}

static int timed_sync(const measurer *m, int32_t n_tok, bench_run *out) {
    uint64_t start_ns = now_ns();
    int rc = sync_to(m, n_tok);
    out->ns += now_ns() - start_ns;
    return rc;
}

static int run_prefill(const measurer *m, int32_t n_tok, bench_run *out) {
    int32_t depth = m->job->depth_tok;
    int rc = depth > 0 ? sync_to(m, depth) : SMOE_OK;
    smoe_model_stats_reset(m->model);
    return rc ? rc : timed_sync(m, depth + n_tok, out);
}

static int32_t likeliest(const measurer *m) {
    const float *logits = smoe_session_logits(m->session);
    int32_t best = 0;
    for (int32_t i = 1; i < m->vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static int run_decode(const measurer *m, int32_t n_tok, bench_run *out) {
    int32_t n = m->job->depth_tok + 1; /* the first token has to come from somewhere */
    int rc = sync_to(m, n);
    smoe_model_stats_reset(m->model);
    for (int32_t i = 0; rc == SMOE_OK && i < n_tok; i++) {
        m->ids[n++] = likeliest(m);
        rc = timed_sync(m, n, out);
    }
    return rc;
}

/* A run after the same beginning as all others, with tokens of its own behind. */
static int run_one(const measurer *m, enum bench_kind kind, int32_t number, bench_run *out) {
    const bench_job *job = m->job;
    int32_t n_tok = job->n_tok[kind];
    int32_t n_fresh = kind == BENCH_PREFILL ? n_tok : 1;
    *out = (bench_run){0};
    if (job->show_step) {
        fprintf(stderr, "\r%s of %d tokens, run %d of %d\033[K",
                kind == BENCH_PREFILL ? "prefill" : "decode", n_tok, number, job->n_repeat);
    }
    random_ids(m, m->ids, job->depth_tok, 0);
    random_ids(m, m->ids + job->depth_tok, n_fresh, 2 + 2 * (uint64_t)number + kind);
    int rc = kind == BENCH_PREFILL ? run_prefill(m, n_tok, out) : run_decode(m, n_tok, out);
    smoe_model_stats(m->model, &out->stats);
    return rc;
}

/* ---- a process */

/* Warm: the first run of each kind is not kept. Cold: one run of one kind. */
static int run_kinds(const measurer *m, int cold_kind, int32_t cold_number, bench_result *out) {
    int rc = SMOE_OK;
    for (int kind = 0; kind < BENCH_KINDS; kind++) {
        if (m->job->n_tok[kind] == 0 || (m->job->cold && kind != cold_kind)) {
            continue;
        }
        int32_t first = m->job->cold ? cold_number : 0;
        int32_t last = m->job->cold ? cold_number : m->job->n_repeat;
        for (int32_t i = first; rc == SMOE_OK && i <= last; i++) {
            bench_run run;
            rc = run_one(m, (enum bench_kind)kind, i, &run);
            if (i > 0) {
                out->run[kind][i - 1] = run;
            }
        }
    }
    return rc;
}

static int measure_here(const bench_job *job, int cold_kind, int32_t cold_number,
                        bench_result *out) {
    measurer m = {.job = job, .err = &out->error};
    int32_t longest = job->n_tok[BENCH_PREFILL] > job->n_tok[BENCH_DECODE] + 1
                          ? job->n_tok[BENCH_PREFILL]
                          : job->n_tok[BENCH_DECODE] + 1;
    longest += job->depth_tok;
    m.ids = mem_array((size_t)longest, sizeof *m.ids);
    if (!m.ids) {
        return err_no_memory(m.err, (uint64_t)longest * sizeof *m.ids);
    }
    smoe_model_options *o = &job->model->options;
    o->context_tok = o->context_tok ? o->context_tok : longest;
    if (job->cold) {
        drop_all(job);
    }
    int rc = open_model_with(job->path, job->model, &m.model, &m.session, m.err);
    if (rc == SMOE_OK && interrupted()) { /* while it was being opened */
        close_model(m.model, m.session);
        rc = SMOE_ERR_CANCELLED;
    } else if (rc == SMOE_OK) {
        m.vocab = smoe_model_info(m.model)->vocab_size;
        out->plan = *smoe_model_plan(m.model);
        out->info = *smoe_model_info(m.model);
        interrupt_begin(m.session);
        rc = run_kinds(&m, cold_kind, cold_number, out);
        interrupt_end();
        close_model(m.model, m.session);
    }
    free(m.ids);
    return rc;
}

static bool read_whole(int fd, void *out, size_t bytes) {
    size_t n = 0;
    while (n < bytes) {
        ssize_t got = read(fd, (char *)out + n, bytes - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        n += (size_t)got;
    }
    return true;
}

static bool write_whole(int fd, const void *data, size_t bytes) {
    size_t n = 0;
    while (n < bytes) {
        ssize_t put = write(fd, (const char *)data + n, bytes - n);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return false;
        }
        n += (size_t)put;
    }
    return true;
}

static int died(bench_result *out, int status) {
    if (WIFSIGNALED(status)) {
        return err_set(&out->error, SMOE_ERR_MEMORY, "the measurement was ended by signal %d%s",
                       WTERMSIG(status), WTERMSIG(status) == SIGKILL ? "; out of memory?" : "");
    }
    return err_set(&out->error, SMOE_ERR_IO, "the measurement ended without a result");
}

/* measure_here in a process of its own. */
static void measure_apart(const bench_job *job, int cold_kind, int32_t cold_number,
                          bench_result *out) {
    int ends[2], status = 0;
    if (pipe(ends) != 0) {
        out->code = err_errno(&out->error, errno, "cannot make a pipe");
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        out->code = measure_here(job, cold_kind, cold_number, out);
        _exit(write_whole(ends[1], out, sizeof *out) ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0) {
        out->code = err_errno(&out->error, errno, "cannot start a process");
    } else {
        bool whole = read_whole(ends[0], out, sizeof *out);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        out->code = whole ? out->code : died(out, status);
    }
    close(ends[0]);
}

static void measure_cold(const bench_job *job, bench_result *out) {
    for (int kind = 0; kind < BENCH_KINDS; kind++) {
        for (int32_t i = 1; job->n_tok[kind] > 0 && i <= job->n_repeat; i++) {
            measure_apart(job, kind, i, out);
            if (out->code != SMOE_OK || interrupted()) {
                return;
            }
        }
    }
}

bool bench_measure(const bench_job *job, uint64_t memory_bytes, bench_result *out) {
    memset(out, 0, sizeof *out);
    job->model->options.memory_bytes = memory_bytes;
    interrupt_begin(NULL); /* the child gets it too */
    if (job->cold) {
        measure_cold(job, out);
    } else {
        measure_apart(job, 0, 0, out);
    }
    if (job->show_step) {
        fputs("\r\033[K", stderr);
    }
    out->n_run = job->n_repeat;
    return !interrupt_end();
}
