/* Tokenizers: encoding and decoding in MB/s of text, one core, and what opening costs from the
 * checkpoint's file and from the prepared form that a vault keeps. All is processor time, which
 * other programs disturb less than the clock on the wall; nothing here waits for anything.
 *
 * smoe-bench tokenizer [TOKENIZER_FOLDER [FILE...]]: default is the published tokenizer of Qwen3
 * (scripts/fetch-tokenizers.sh), else the bundled model's. Without files the texts are the held-out
 * stories beside the test vectors, this project's documents, and its sources.
 */
#include "bench.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "text/tokenizer.h"

enum { ROUNDS = 7 };
#define PIECE_BYTES (256u << 10) /* of one call: a long prompt */

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

/* ---- one text */

static int encode(const smoe_tokenizer *t, const char *text, size_t bytes, int32_t **ids, size_t *n,
                  size_t *cap, smoe_error *err) {
    int rc = SMOE_OK;
    *n = 0;
    for (size_t at = 0; at < bytes && rc == SMOE_OK; at += PIECE_BYTES) {
        size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        rc = tokenizer_encode(t, text + at, piece, true, ids, n, cap, err);
    }
    return rc;
}

/* Token by token, as generation does. */
static size_t decode(const smoe_tokenizer *t, const int32_t *ids, size_t n, char *room) {
    text_stream s;
    size_t bytes = 0;
    text_stream_init(&s, t, true);
    for (size_t i = 0; i < n; i++) {
        bytes += text_stream_push(&s, ids[i], room);
    }
    return bytes + text_stream_flush(&s, room);
}

static int bench_text(const smoe_tokenizer *t, const char *name, const char *text, size_t bytes,
                      smoe_error *err) {
    double in[ROUNDS];
    double out[ROUNDS];
    int32_t *ids = NULL;
    size_t n = 0;
    size_t cap = 0;
    size_t decoded = 0;
    char *room = malloc(text_stream_max_bytes(t));
    int rc = room ? SMOE_OK : err_no_memory(err, text_stream_max_bytes(t));
    for (int i = 0; i < ROUNDS && rc == SMOE_OK; i++) {
        uint64_t start = cpu_ns();
        rc = encode(t, text, bytes, &ids, &n, &cap, err);
        uint64_t middle = cpu_ns();
        decoded = rc ? 0 : decode(t, ids, n, room);
        in[i] = (double)bytes * 1e3 / (double)(middle - start);
        out[i] = (double)decoded * 1e3 / (double)(cpu_ns() - middle);
    }
    if (rc == SMOE_OK) {
        printf("%-24.24s %7.2f MB %6.2f bytes/token %8.1f MB/s in %8.1f MB/s out\n", name,
               (double)bytes / 1e6, n ? (double)bytes / (double)n : 0, median(in), median(out));
    }
    free(ids);
    free(room);
    return rc;
}

static int append_files(byte_buf *out, const char *pattern, smoe_error *err) {
    glob_t found;
    int rc = SMOE_OK;
    if (glob(pattern, 0, NULL, &found) != 0) {
        return SMOE_OK;
    }
    for (size_t i = 0; i < found.gl_pathc && rc == SMOE_OK; i++) {
        char *text = NULL;
        size_t bytes = 0;
        rc = file_read_all(found.gl_pathv[i], LIMIT_PROMPT_BYTES, &text, &bytes, err);
        rc = rc ? rc : buf_append(out, text, bytes, err);
        free(text);
    }
    globfree(&found);
    return rc;
}

/* The files of up to three patterns as one text; nothing is printed when there are none. */
static int bench_files(const smoe_tokenizer *t, const char *name, const char *const patterns[3],
                       smoe_error *err) {
    byte_buf text = {.max_bytes = (size_t)1 << 30};
    int rc = SMOE_OK;
    for (int i = 0; i < 3 && patterns[i] && rc == SMOE_OK; i++) {
        rc = append_files(&text, patterns[i], err);
    }
    rc = rc || text.bytes == 0 ? rc : bench_text(t, name, text.data, text.bytes, err);
    buf_free(&text);
    return rc;
}

/* ---- opening */

static int time_builds(const text_assets *assets, const char *what, smoe_error *err) {
    double ms[ROUNDS];
    int rc = SMOE_OK;
    for (int i = 0; i < ROUNDS && rc == SMOE_OK; i++) {
        smoe_tokenizer *t = NULL;
        uint64_t start = cpu_ns();
        rc = tokenizer_build(&t, assets, err);
        ms[i] = (double)(cpu_ns() - start) / 1e6;
        smoe_tokenizer_close(t);
    }
    if (rc == SMOE_OK) {
        printf("%-24s %8.1f ms\n", what, median(ms));
    }
    return rc;
}

static int bench_open(const char *folder, smoe_error *err) {
    char path[FILE_PATH_BYTES];
    text_assets file = {.label = (char[]){"tokenizer"}};
    text_assets vault = {.label = file.label};
    if (!file_join(path, sizeof path, folder, "tokenizer.json") || !file_exists(path)) {
        return SMOE_OK;
    }
    int rc = file_read_all(path, LIMIT_TOKENIZER_BYTES, &file.tokenizer_json.data,
                           &file.tokenizer_json.bytes, err);
    rc = rc ? rc : tokenizer_prepare(&vault.prepared, &file, err);
    rc = rc ? rc : time_builds(&file, "open tokenizer.json", err);
    rc = rc ? rc : time_builds(&vault, "open prepared", err);
    free(file.tokenizer_json.data);
    free(vault.prepared.data);
    return rc;
}

/* ---- the command */

static int bench_defaults(const smoe_tokenizer *t, smoe_error *err) {
    static char stories[FILE_PATH_BYTES];
    const char *shared = getenv("SMOE_VECTORS");
    snprintf(stories, sizeof stories, "%s/models/valid.txt", shared ? shared : "../shared");
    int rc = bench_files(t, "stories", (const char *const[3]){stories}, err);
    rc = rc ? rc : bench_files(t, "documents", (const char *const[3]){"docs/*.md", "*.md"}, err);
    return rc ? rc
              : bench_files(t, "sources",
                            (const char *const[3]){"src/*/[!u]*.c", "src/*/*.h", "tests/*.[ch]"},
                            err);
}

static const char *default_tokenizer(void) {
    static char path[FILE_PATH_BYTES];
    const char *cache = getenv("SMOE_CACHE");
    snprintf(path, sizeof path, "%s/tokenizers/qwen3", cache ? cache : ".cache");
    return file_is_dir(path) ? path : "models/tales-8m";
}

int bench_tokenizer(int argc, char **argv) {
    const char *path = argc > 0 ? argv[0] : default_tokenizer();
    smoe_tokenizer *t = NULL;
    smoe_error err;
    int rc = smoe_tokenizer_open(&t, path, &err);
    if (rc == SMOE_OK) {
        printf("%s: %zu tokens; medians of %d\n", path, smoe_tokenizer_size(t), ROUNDS);
        rc = argc > 1 ? SMOE_OK : bench_defaults(t, &err);
    }
    for (int i = 1; i < argc && rc == SMOE_OK; i++) {
        rc = bench_files(t, argv[i], (const char *const[3]){argv[i]}, &err);
    }
    rc = rc ? rc : bench_open(path, &err);
    smoe_tokenizer_close(t);
    if (rc != SMOE_OK) {
        fprintf(stderr, "smoe-bench tokenizer: %s\n", err.text);
    }
    return rc ? 1 : 0;
}
