/* The sculptor: what it writes, and what it leaves behind when anything goes wrong. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/half.h"
#include "formats/safetensors.h"
#include "model/source.h"
#include "sculptor/quantise.h"
#include "sculptor/sculpt_job.h"
#include "tiny_checkpoint.h"

static smoe_error err;

static int sculpt_type(const char *from, const char *to, const char *type) {
    smoe_sculpt_options o = {.expert_type = type, .n_thread = 2};
    return smoe_sculpt(from, to, &o, &err);
}

/* test_path keeps a few only; these tests hold on to theirs. */
#define HOLD_PATH(var, name)                                                                       \
    char var[1024];                                                                                \
    snprintf(var, sizeof var, "%s", test_path(name))
#define HOLD_CHECKPOINT(var, name, ...)                                                            \
    char var[1024];                                                                                \
    snprintf(var, sizeof var, "%s", tiny_checkpoint_make(name, &(tiny_checkpoint){__VA_ARGS__}))

/* NAME.scout.safetensors for NAME.smoe, in a static buffer. */
static const char *scout_of(const char *vault) {
    static char path[FILE_PATH_BYTES];
    CHECK(vault_scout_path(path, sizeof path, vault));
    return path;
}

static bool same_vault(const char *a, const char *b) {
    char scout[FILE_PATH_BYTES];
    snprintf(scout, sizeof scout, "%s", scout_of(a));
    return same_file(a, b) && same_file(scout, scout_of(b));
}

static bool leftovers(const char *vault) {
    static const char *const suffix[] = {".partial", ".journal"};
    char path[FILE_PATH_BYTES + 16];
    bool any = false;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", vault, suffix[i]);
        any |= file_exists(path);
    }
    snprintf(path, sizeof path, "%s.partial", scout_of(vault));
    return any || file_exists(path);
}

/* ---- what it writes */

static void read_part(const source *s, const expert_ref *e, int k, uint8_t *out) {
    const extent *x = &e->ext[e->part[k].ext];
    const model_file *f = &s->files.file[x->file];
    CHECK_OK(file_read_at(f->fd, f->path, x->offset + e->part[k].at_bytes, out,
                          (size_t)e->part[k].bytes, &err));
}

/* Each part of every eleventh expert equals its rows quantised one by one. */
static void check_experts(const source *from, const source *vault, dtype type) {
    static uint8_t stored[1 << 20], got[1 << 20], want[1 << 20];
    static float x[4096];
    for (int32_t m = 0; m < from->n_moe_layer; m++) {
        for (int32_t i = 0; i < from->n_expert_row; i += 11) {
            const expert_ref *a = source_expert(from, m, i), *b = source_expert(vault, m, i);
            CHECK(b->n_ext == 1 && b->ext[0].offset % VAULT_RECORD_ALIGN == 0 && b->has_checksum);
            for (int k = 0; k < PART_COUNT; k++) {
                int32_t n_row = a->part[k].n_row, n_col = a->part[k].n_col;
                size_t row_bytes = dtype_row_bytes(type, (uint64_t)n_col);
                CHECK_INT(b->part[k].type, type);
                CHECK_INT(b->part[k].bytes, (size_t)n_row * row_bytes);
                CHECK_INT(b->part[k].at_bytes % VAULT_PART_ALIGN, 0);
                read_part(from, a, k, stored);
                read_part(vault, b, k, got);
                for (int32_t r = 0; r < n_row; r++) {
                    for (int32_t c = 0; c < n_col; c++) {
                        uint16_t h;
                        memcpy(&h, stored + 2 * ((size_t)r * (size_t)n_col + (size_t)c), 2);
                        x[c] = bf16_to_f32(h);
                    }
                    CHECK(quantise_row(type, x, n_col, want + (size_t)r * row_bytes));
                }
                CHECK(memcmp(got, want, (size_t)n_row * row_bytes) == 0);
                if (type == DT_BF16) {
                    CHECK(memcmp(got, stored, (size_t)n_row * row_bytes) == 0);
                }
            }
        }
    }
}

static double bits_per_weight(const source *vault) {
    double bits = 0, n = 0;
    const expert_ref *e = source_expert(vault, 0, 0);
    for (int k = 0; k < PART_COUNT; k++) {
        bits += 8 * (double)e->part[k].bytes;
        n += (double)e->part[k].n_row * e->part[k].n_col;
    }
    return bits / n;
}

static void check_kind(const char *from_path, const char *name, dtype type, double max_bits) {
    char file[32];
    snprintf(file, sizeof file, "%s.smoe", name);
    HOLD_PATH(path, file);
    source *from = NULL, *vault = NULL;
    CHECK_OK(sculpt_type(from_path, path, name));
    CHECK(!leftovers(path));
    CHECK_OK(smoe_verify(path, NULL, NULL, &err));
    CHECK_OK(source_open(&from, from_path, &err));
    CHECK_OK(source_open(&vault, path, &err));
    CHECK(vault->kind == CONTAINER_VAULT && vault->weights_checksum != 0);
    CHECK(bits_per_weight(vault) <= max_bits);
    check_experts(from, vault, type);
    CHECK(!vault->text.tokenizer_json.data);
    CHECK_INT(vault->text.prepared.data != NULL, from->text.tokenizer_json.data != NULL);
    if (from->text.tokenizer_json.data) {
        CHECK_TEXT(vault->text.tokenizer_config.data, from->text.tokenizer_config.data);
        CHECK_TEXT(vault->text.chat_template.data, from->text.chat_template.data);
        CHECK_TEXT(vault->text.generation.data, from->text.generation.data);
    }
    dtype matrix = type == DT_BF16 ? DT_BF16 : DT_Q8;
    CHECK_INT(vault->global[ROLE_EMBED].type, matrix);
    CHECK_INT(vault->layer[0][ROLE_ATTN_O].type, matrix);
    CHECK_INT(vault->layer[0][ROLE_ROUTER].type, from->layer[0][ROLE_ROUTER].type);
    source_close(vault);
    source_close(from);
}

TEST(sculptor_writes_every_type) {
    HOLD_CHECKPOINT(tiny, "tiny", .width = 64, .n_expert = 12);
    check_kind(test_model("tales-8m"), "q4", DT_Q4, 4.6);
    check_kind(test_model("tales-8m"), "bf16", DT_BF16, 16);
    check_kind(tiny, "q2", DT_Q2, 2.7);
    check_kind(tiny, "q8", DT_Q8, 8.5);
}

/* Norms and router gates keep their bytes; matrices become what quantise_row makes of them. */
TEST(sculptor_keeps_small_tensors_exact) {
    HOLD_CHECKPOINT(dir, "f32", .type = DT_F32);
    HOLD_PATH(path, "a.smoe");
    source *from = NULL, *vault = NULL;
    CHECK_OK(sculpt_type(dir, path, "q8"));
    CHECK_OK(source_open(&from, dir, &err));
    CHECK_OK(source_open(&vault, path, &err));
    for (int32_t i = 0; i < from->spec.n_layer; i++) {
        for (role r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT; r++) {
            const weight_ref *a = &from->layer[i][r], *b = &vault->layer[i][r];
            CHECK_INT(!a->name, !b->name);
            if (a->name && b->type != DT_Q8) {
                static char x[1 << 16], y[1 << 16];
                CHECK(!scout_role_is_matrix(r) && a->bytes == b->bytes && b->type == DT_F32);
                CHECK_OK(file_read_at(from->files.file[a->file].fd, dir, a->offset, x,
                                      (size_t)a->bytes, &err));
                CHECK_OK(file_read_at(vault->files.file[b->file].fd, path, b->offset, y,
                                      (size_t)b->bytes, &err));
                CHECK(memcmp(x, y, (size_t)a->bytes) == 0);
            }
        }
    }
    CHECK_INT(vault->global[ROLE_HEAD].type, DT_Q8);
    source_close(from);
    source_close(vault);
}

/* The scout can be decoded from what docs/format.md says alone. */
TEST(sculptor_scout_is_plain_safetensors) {
    HOLD_CHECKPOINT(dir, "bf16", 0);
    tensor_table table = {0};
    file_set files = {0};
    arena names = {0};
    struct json_object *meta = NULL;
    CHECK_OK(sculpt_type(dir, test_path("a.smoe"), "q4"));
    CHECK_OK(
        safetensors_open(&table, &names, &files, test_path("a.scout.safetensors"), &meta, &err));
    const tensor *t = tensor_table_find(&table, "layers.1.attn_q.weight");
    CHECK(t && t->type == DT_U8 && t->shape[0] == 32 && t->shape[1] == 2 * 34);
    struct json_object *text = NULL;
    CHECK(json_object_object_get_ex(meta, "layers.1.attn_q.weight", &text));
    CHECK_TEXT(json_object_get_string(text), "q8 32 64");
    CHECK(json_object_object_get_ex(meta, "format", &text));
    CHECK_TEXT(json_object_get_string(text), "smoe.scout");
    t = tensor_table_find(&table, "out_norm.weight");
    CHECK(t && t->type == DT_BF16 && t->rank == 1 && t->shape[0] == 64);
    json_object_put(meta);
    tensor_table_free(&table);
    file_set_close(&files);
    arena_free(&names);
}

TEST(sculptor_rounds_other_floats_to_bf16) {
    static const dtype type[] = {DT_F32, DT_F16};
    for (int i = 0; i < 2; i++) {
        const char *dir =
            tiny_checkpoint_make(i ? "f16" : "f32", &(tiny_checkpoint){.type = type[i]});
        HOLD_PATH(path, i ? "f16.smoe" : "f32.smoe");
        CHECK_OK(sculpt_type(dir, path, "bf16"));
        CHECK_OK(smoe_verify(path, NULL, NULL, &err));
        source *s = NULL;
        CHECK_OK(source_open(&s, path, &err));
        CHECK_INT(s->expert[0].part[PART_DOWN].type, DT_BF16);
        CHECK_INT(s->global[ROLE_EMBED].type, DT_BF16);
        CHECK_INT(s->layer[0][ROLE_ATTN_NORM].type, type[i]);
        source_close(s);
    }
}

TEST(sculptor_bytes_do_not_depend_on_threads_or_blocks) {
    HOLD_CHECKPOINT(dir, "t", .vocab_size = 700, .d_model = 96, .width = 80);
    HOLD_PATH(first, "t1.smoe");
    smoe_sculpt_options o = {.n_thread = 1, .expert_type = "q2"};
    CHECK_OK(smoe_sculpt(dir, first, &o, &err));
    for (int32_t n = 2; n <= 5; n++) {
        char name[32];
        sculpt_hooks hooks = sculpt_hooks_default;
        hooks.block_bytes = (uint64_t)(n * 517);
        hooks.batch_bytes = 1;
        o.n_thread = n;
        snprintf(name, sizeof name, "t%d.smoe", n);
        CHECK_OK(sculpt_with_hooks(dir, test_path(name), &o, &hooks, &err));
        CHECK(same_vault(first, test_path(name)));
    }
}

/* ---- faults: every call of the write table in turn goes wrong */

enum fault { FAULT_NONE, FAULT_KILL, FAULT_SHORT_KILL, FAULT_NO_SPACE, FAULT_IO, FAULT_SHORT };

typedef struct unsynced {
    int fd; /* a duplicate, of the file written to */
    ino_t file;
    uint64_t offset;
    size_t bytes;
} unsynced;

/* Counts calls; at call number at, and all later ones when sticky, does the fault. */
typedef struct faulty {
    enum fault fault;
    int at;
    bool sticky;
    uint64_t batch_bytes; /* 0: 40000 */
    int n_call;
    unsynced range[8192];
    int n_range;
} faulty;

static bool due(faulty *f) {
    f->n_call++;
    return f->fault != FAULT_NONE && (f->n_call == f->at || (f->sticky && f->n_call > f->at));
}

static int fail(const faulty *f) {
    if (f->fault == FAULT_KILL || f->fault == FAULT_SHORT_KILL) {
        kill(getpid(), SIGKILL);
    }
    errno = f->fault == FAULT_NO_SPACE ? ENOSPC : EIO;
    return -1;
}

static ssize_t faulty_write(void *ctx, int fd, const void *buf, size_t bytes, uint64_t offset) {
    faulty *f = ctx;
    bool now = due(f);
    if (now && f->fault == FAULT_SHORT) {
        bytes = (bytes + 1) / 2;
    } else if (now) {
        if (f->fault == FAULT_SHORT_KILL) {
            CHECK(pwrite(fd, buf, bytes / 2, (off_t)offset) == (ssize_t)(bytes / 2));
        }
        return fail(f);
    }
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && f->n_range < 8192);
    f->range[f->n_range++] = (unsynced){dup(fd), st.st_ino, offset, bytes};
    return pwrite(fd, buf, bytes, (off_t)offset);
}

static int faulty_sync(void *ctx, int fd) {
    faulty *f = ctx;
    struct stat st;
    if (due(f) && f->fault != FAULT_SHORT) {
        return fail(f);
    }
    CHECK(fstat(fd, &st) == 0);
    int kept = 0;
    for (int i = 0; i < f->n_range; i++) {
        if (f->range[i].file == st.st_ino) {
            close(f->range[i].fd);
        } else {
            f->range[kept++] = f->range[i];
        }
    }
    f->n_range = kept;
    return 0; /* a test need not wait for the drive */
}

static int faulty_rename(void *ctx, const char *from, const char *to) {
    faulty *f = ctx;
    if (due(f) && f->fault != FAULT_SHORT) {
        return fail(f);
    }
    return rename(from, to);
}

static int plenty(void *ctx, const char *dir, uint64_t *bytes) {
    (void)ctx;
    (void)dir;
    *bytes = UINT64_MAX;
    return 0;
}

/* The power fails: what was not synced is garbage. */
static void lose_unsynced(faulty *f) {
    static char garbage[1 << 16];
    memset(garbage, 0xcc, sizeof garbage);
    for (int i = 0; i < f->n_range; i++) {
        const unsynced *r = &f->range[i];
        for (size_t at = 0; at < r->bytes; at += sizeof garbage) {
            size_t n = r->bytes - at < sizeof garbage ? r->bytes - at : sizeof garbage;
            CHECK(pwrite(r->fd, garbage, n, (off_t)(r->offset + at)) == (ssize_t)n);
        }
        close(r->fd);
    }
    f->n_range = 0;
}

static int sculpt_faulty(const char *from, const char *to, faulty *f, bool overwrite) {
    write_ops ops = {faulty_write, faulty_sync, faulty_rename, plenty, f};
    sculpt_hooks hooks = {.ops = &ops,
                          .batch_bytes = f->batch_bytes ? f->batch_bytes : 40000,
                          .block_bytes = 4096,
                          .progress_interval_ns = 0};
    smoe_sculpt_options o = {.expert_type = "q4", .n_thread = 1, .overwrite = overwrite};
    return sculpt_with_hooks(from, to, &o, &hooks, &err);
}

static void forget_unsynced(faulty *f) {
    while (f->n_range > 0) {
        close(f->range[--f->n_range].fd);
    }
}

/* The same job again, without faults, to its end. */
static void finish(const char *from, const char *to, bool overwrite) {
    static faulty none;
    none = (faulty){0};
    CHECK_OK(sculpt_faulty(from, to, &none, overwrite));
}

static void remove_vault(const char *vault) {
    unlink(vault);
    unlink(scout_of(vault));
}

/* A small job's source and its right result. */
static void make_reference(char *from, char *want) {
    const char *made = tiny_checkpoint_make("from", &(tiny_checkpoint){0});
    memcpy(from, made, strlen(made) + 1);
    made = test_path("want.smoe");
    memcpy(want, made, strlen(made) + 1);
    CHECK_OK(sculpt_type(from, want, "q4"));
}

static int count_calls(const char *from) {
    static faulty f;
    HOLD_PATH(path, "count.smoe");
    f = (faulty){0};
    CHECK_OK(sculpt_faulty(from, path, &f, false));
    remove_vault(path);
    CHECK(f.n_call > 50);
    return f.n_call;
}

/* Runs in a child that the fault kills; whether it came to its end. */
static bool run_killed(const char *from, const char *to, enum fault fault, int at, bool overwrite) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        static faulty f;
        f = (faulty){.fault = fault, .at = at};
        _exit(sculpt_faulty(from, to, &f, overwrite) == SMOE_OK ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
    return WIFEXITED(status);
}

TEST(sculptor_resumes_after_kill_anywhere) {
    char from[1024], want[1024];
    make_reference(from, want);
    int n = count_calls(from);
    for (int round = 0; round < 2; round++) {
        for (int at = 1; at <= n; at += 1 + round * 2) {
            HOLD_PATH(path, "killed.smoe");
            CHECK(!run_killed(from, path, round ? FAULT_SHORT_KILL : FAULT_KILL, at, false));
            if (file_exists(path)) {
                CHECK_OK(smoe_verify(path, NULL, NULL, &err));
                unlink(test_path("killed.smoe.journal"));
            } else {
                finish(from, path, false);
            }
            CHECK(same_vault(want, path) && !leftovers(path));
            remove_vault(path);
        }
    }
}

/* With an older vault of another kind in place: at every moment what has the name is whole. */
TEST(sculptor_overwrites_whole_or_not_at_all) {
    char from[1024], want[1024];
    make_reference(from, want);
    HOLD_PATH(path, "again.smoe");
    int n = count_calls(from) + 8;
    CHECK_ERR(sculpt_type(from, want, "q4"), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "exists");
    for (int at = n - 16; at <= n; at++) {
        CHECK_OK(sculpt_type(from, path, "q8"));
        bool ended = run_killed(from, path, FAULT_KILL, at, true);
        if (file_exists(path)) {
            CHECK_OK(smoe_verify(path, NULL, NULL, &err));
        }
        if (!ended) {
            finish(from, path, true);
        }
        CHECK(same_vault(want, path) && !leftovers(path));
        remove_vault(path);
    }
}

/* Two interruptions at random places, then the end. */
TEST(sculptor_resumes_after_several_kills) {
    char from[1024], want[1024];
    make_reference(from, want);
    int n = count_calls(from);
    for (int round = 0; round < 20; round++) {
        HOLD_PATH(path, "k.smoe");
        run_killed(from, path, FAULT_SHORT_KILL, 1 + (int)(test_rand() % (uint64_t)n), false);
        if (!file_exists(path)) {
            run_killed(from, path, FAULT_KILL, 1 + (int)(test_rand() % (uint64_t)n), false);
        }
        if (!file_exists(path)) {
            finish(from, path, false);
        }
        CHECK(same_vault(want, path));
        unlink(test_path("k.smoe.journal"));
        remove_vault(path);
    }
}

TEST(sculptor_survives_lost_power_anywhere) {
    static faulty f;
    char from[1024], want[1024];
    make_reference(from, want);
    int n = count_calls(from);
    for (int at = 1; at <= n; at++) {
        HOLD_PATH(path, "power.smoe");
        f = (faulty){.fault = FAULT_IO, .at = at, .sticky = true};
        CHECK_ERR(sculpt_faulty(from, path, &f, false), SMOE_ERR_IO);
        lose_unsynced(&f);
        if (!file_exists(path)) {
            finish(from, path, false);
        }
        CHECK(same_vault(want, path));
        unlink(test_path("power.smoe.journal"));
        remove_vault(path);
    }
}

TEST(sculptor_reports_write_errors_and_resumes) {
    static const enum fault fault[] = {FAULT_NO_SPACE, FAULT_IO, FAULT_SHORT};
    static faulty f;
    char from[1024], want[1024];
    make_reference(from, want);
    int n = count_calls(from);
    for (int k = 0; k < 3; k++) {
        for (int at = 1; at <= n; at += 1 + (k != 0)) {
            HOLD_PATH(path, "error.smoe");
            f = (faulty){.fault = fault[k], .at = at, .sticky = k == 0};
            int rc = sculpt_faulty(from, path, &f, false);
            forget_unsynced(&f);
            if (fault[k] == FAULT_SHORT) {
                CHECK_INT(rc, SMOE_OK);
            } else {
                CHECK_INT(rc, SMOE_ERR_IO);
                CHECK_HAS(err.text, fault[k] == FAULT_NO_SPACE ? "No space left" : "Input/output");
                CHECK_HAS(err.text, test_dir());
                if (!file_exists(path)) {
                    finish(from, path, false);
                }
            }
            CHECK(same_vault(want, path));
            unlink(test_path("error.smoe.journal"));
            remove_vault(path);
        }
    }
}

/* A drive that confirms and forgets: found at the end, and made again by the next run. */
TEST(sculptor_checks_what_it_wrote) {
    static faulty f;
    char from[1024], want[1024];
    make_reference(from, want);
    HOLD_PATH(path, "lost.smoe");
    f = (faulty){.fault = FAULT_IO, .at = count_calls(from) - 5, .sticky = true};
    CHECK_ERR(sculpt_faulty(from, path, &f, false), SMOE_ERR_IO);
    forget_unsynced(&f);
    int fd = open(test_path("lost.smoe.partial"), O_RDWR);
    uint8_t byte = 0;
    CHECK(pread(fd, &byte, 1, 16384 + 3 * 16384 + 100) == 1);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, 16384 + 3 * 16384 + 100) == 1);
    f = (faulty){.batch_bytes = 1};
    CHECK_ERR(sculpt_faulty(from, path, &f, false), SMOE_ERR_CHECKSUM);
    forget_unsynced(&f);
    CHECK_HAS(err.text, "layer 0, expert 3");
    CHECK(!file_exists(path));
    finish(from, path, false);
    CHECK(same_vault(want, path));
    close(fd);
}

/* ---- refusals */

static int no_room(void *ctx, const char *dir, uint64_t *bytes) {
    (void)ctx;
    (void)dir;
    *bytes = 1000;
    return 0;
}

TEST(sculptor_asks_for_space_first) {
    HOLD_CHECKPOINT(dir, "from", 0);
    write_ops ops = write_ops_system;
    ops.available = no_room;
    sculpt_hooks hooks = sculpt_hooks_default;
    hooks.ops = &ops;
    CHECK_ERR(sculpt_with_hooks(dir, test_path("a.smoe"), NULL, &hooks, &err), SMOE_ERR_IO);
    CHECK_HAS(err.text, "not enough space");
    CHECK_HAS(err.text, "1000 (1000 B) are available");
}

TEST(sculptor_refuses_bad_requests) {
    HOLD_CHECKPOINT(dir, "from", 0);
    char path[1100];
    CHECK_ERR(sculpt_type(dir, test_path("a.bin"), "q4"), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, ".smoe");
    CHECK_ERR(sculpt_type(dir, test_path(".smoe"), "q4"), SMOE_ERR_ARGUMENT);
    CHECK_ERR(sculpt_type(dir, test_path("a.smoe"), "q5"), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "q4, q2, q8, bf16");
    smoe_sculpt_options o = {.scout_type = "q4"};
    CHECK_ERR(smoe_sculpt(dir, test_path("a.smoe"), &o, &err), SMOE_ERR_ARGUMENT);
    snprintf(path, sizeof path, "%s/a.smoe", dir);
    CHECK_ERR(sculpt_type(dir, path, "q4"), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "inside the checkpoint");
    CHECK_ERR(sculpt_type(dir, test_path("none/a.smoe"), "q4"), SMOE_ERR_IO);
    CHECK_HAS(err.text, "none");
    CHECK_ERR(sculpt_type(dir, "/proc/a.smoe", "q4"), SMOE_ERR_IO);
    CHECK_HAS(err.text, "/proc/a.smoe");
    CHECK(sculpt_type(test_path("nowhere"), test_path("a.smoe"), "q4") != SMOE_OK);
    CHECK_OK(sculpt_type(dir, test_path("a.smoe"), "q4"));
    CHECK_ERR(sculpt_type(test_path("a.smoe"), test_path("b.smoe"), "q4"), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "vault already");
    CHECK_ERR(sculpt_type(dir, test_path("a.smoe"), "q4"), SMOE_ERR_ARGUMENT);
    o = (smoe_sculpt_options){.overwrite = true};
    CHECK(mkdir(test_path("d.smoe"), 0777) == 0);
    CHECK_ERR(smoe_sculpt(dir, test_path("d.smoe"), &o, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "is a folder");
    test_write_file(test_path("c.scout.safetensors"), "mine", 4);
    CHECK_ERR(sculpt_type(dir, test_path("c.smoe"), "q4"), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "c.scout.safetensors exists");
    CHECK(!leftovers(test_path("c.smoe")));
}

TEST(sculptor_names_weights_that_are_not_finite) {
    static const struct {
        const char *tensor, *says;
    } bad[] = {
        {"model.layers.1.mlp.experts.2.up_proj.weight", "layer 1, expert 2, up: row 1"},
        {"model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.k_proj.weight: row 1"},
        {"model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.weight: row 1"},
    };
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "bad%d", i);
        const char *dir =
            tiny_checkpoint_make(name, &(tiny_checkpoint){.bad_tensor = bad[i].tensor});
        CHECK_ERR(sculpt_type(dir, test_path("a.smoe"), i == 1 ? "bf16" : "q4"), SMOE_ERR_NUMERIC);
        CHECK_HAS(err.text, bad[i].says);
        CHECK(!file_exists(test_path("a.smoe")));
    }
}

typedef struct watcher {
    uint64_t stop_at_bytes;
    uint64_t first_done, last_done, total;
    int n_call, n_discard, n_resume;
} watcher;

static bool watch(void *user, const smoe_progress *p) {
    watcher *w = user;
    if (strcmp(p->phase, "sculpt") == 0) {
        w->first_done = w->n_call++ ? w->first_done : p->done_bytes;
        CHECK(p->done_bytes >= w->last_done && p->done_bytes <= p->total_bytes);
        w->last_done = p->done_bytes;
        w->total = p->total_bytes;
        CHECK_INT(p->done_bytes - p->fresh_bytes, w->first_done);
    }
    return p->done_bytes > w->stop_at_bytes;
}

static void watch_log(void *user, smoe_log_level level, const char *line) {
    watcher *w = user;
    (void)level;
    w->n_discard += strstr(line, "starting over") != NULL;
    w->n_resume += strstr(line, "resuming") != NULL;
}

TEST(sculptor_reports_progress_and_stops_when_asked) {
    HOLD_CHECKPOINT(dir, "from", 0);
    HOLD_PATH(path, "a.smoe");
    sculpt_hooks hooks = {.ops = &write_ops_system, .batch_bytes = 1, .block_bytes = 4096};
    watcher w = {.stop_at_bytes = 60000};
    smoe_sculpt_options o = {.progress = watch, .log = watch_log, .user = &w};
    CHECK_ERR(sculpt_with_hooks(dir, path, &o, &hooks, &err), SMOE_ERR_CANCELLED);
    CHECK(!file_exists(path) && leftovers(path));
    w = (watcher){.stop_at_bytes = UINT64_MAX};
    CHECK_OK(sculpt_with_hooks(dir, path, &o, &hooks, &err));
    CHECK(w.n_resume == 1 && w.first_done > 0 && w.last_done == w.total && w.total > 60000);
}

TEST(sculptor_drops_a_partial_of_another_job) {
    HOLD_CHECKPOINT(dir, "from", 0);
    HOLD_PATH(path, "a.smoe");
    sculpt_hooks hooks = {.ops = &write_ops_system, .batch_bytes = 1, .block_bytes = 4096};
    watcher w = {.stop_at_bytes = 60000};
    smoe_sculpt_options o = {
        .expert_type = "bf16", .progress = watch, .log = watch_log, .user = &w};
    CHECK_ERR(sculpt_with_hooks(dir, path, &o, &hooks, &err), SMOE_ERR_CANCELLED);
    w = (watcher){.stop_at_bytes = UINT64_MAX};
    o.expert_type = "q2";
    CHECK_OK(sculpt_with_hooks(dir, path, &o, &hooks, &err));
    CHECK(w.n_discard == 1 && w.n_resume == 0 && w.first_done == 0);
    CHECK_OK(sculpt_type(dir, test_path("b.smoe"), "q2"));
    CHECK(same_vault(path, test_path("b.smoe")));
    CHECK_OK(smoe_verify(path, NULL, NULL, &err));
}

static bool try_the_same(void *user, const smoe_progress *p) {
    const char *const *paths = user;
    (void)p;
    CHECK_ERR(sculpt_type(paths[0], paths[1], "q4"), SMOE_ERR_IO);
    CHECK_HAS(err.text, "another smoe is writing this vault");
    return true;
}

TEST(sculptor_locks_its_vault) {
    const char *paths[2] = {tiny_checkpoint_make("from", &(tiny_checkpoint){0}),
                            test_path("a.smoe")};
    smoe_sculpt_options o = {.progress = try_the_same, .user = paths};
    CHECK_ERR(smoe_sculpt(paths[0], paths[1], &o, &err), SMOE_ERR_CANCELLED);
    CHECK_OK(sculpt_type(paths[0], paths[1], "q4"));
}

static long peak_kib(void) {
    struct rusage use;
    CHECK(getrusage(RUSAGE_SELF, &use) == 0);
    return use.ru_maxrss;
}

/* 64 MiB of embeddings and head pass through a few MiB. */
TEST(sculptor_memory_does_not_grow_with_the_checkpoint) {
    if (!alloc_guard_active()) {
        SKIP("a sanitizer's own memory would count");
    }
    HOLD_CHECKPOINT(dir, "big", .vocab_size = 1 << 18, .sparse = true);
    long before = peak_kib();
    CHECK_OK(sculpt_type(dir, test_path("a.smoe"), "q4"));
    CHECK(peak_kib() - before < 20 << 10);
}
