/* smoe_sculpt: options and paths, and what belongs together for one job. */
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "sculptor/sculpt_job.h"

/* ---- options */

static int type_option(const char *what, const char *name, const dtype *allowed, size_t n,
                       dtype *out, smoe_error *err) {
    dtype t = dtype_by_name(name);
    if (strcmp(name, "keep") == 0) {
        *out = DT_NONE;
        return SMOE_OK;
    }
    for (size_t i = 0; i < n; i++) {
        if (allowed[i] == t) {
            *out = t;
            return SMOE_OK;
        }
    }
    return err_set(err, SMOE_ERR_ARGUMENT, "%s cannot be %s; choose one of %s", what, name,
                   n == 2 ? "keep, q8, bf16" : "keep, q4, q2, q8, bf16");
}

/* GGUF files keep their types when nothing is asked for: they are quantised already. */
static int take_types(const smoe_sculpt_options *o, const source *s, dtype *expert, dtype *scout,
                      smoe_error *err) {
    static const dtype of_expert[] = {DT_Q4, DT_Q2, DT_Q8, DT_BF16};
    static const dtype of_scout[] = {DT_Q8, DT_BF16};
    const char *expert_default = s->kind == CONTAINER_GGUF ? "keep" : "q4";
    int rc = type_option("the expert type", o->expert_type ? o->expert_type : expert_default,
                         of_expert, sizeof of_expert / sizeof *of_expert, expert, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    const char *scout_default = *expert == DT_NONE ? "keep" : *expert == DT_BF16 ? "bf16" : "q8";
    return type_option("the scout type", o->scout_type ? o->scout_type : scout_default, of_scout,
                       sizeof of_scout / sizeof *of_scout, scout, err);
}

/* ---- places */

/* A vault inside the checkpoint's folder would put one more safetensors file among its shards. */
static int check_places(const source *s, const sculpt_paths *p, smoe_error *err) {
    char *from = realpath(s->path, NULL);
    char *to = realpath(p->dir, NULL);
    int rc = SMOE_OK;
    if (!to) {
        rc = err_set(err, SMOE_ERR_IO, "there is no folder %s to write the vault to", p->dir);
    } else if (from && file_is_dir(from)) {
        size_t n = strlen(from);
        bool inside = strncmp(to, from, n) == 0 && (to[n] == '/' || to[n] == '\0');
        if (inside) {
            rc = err_set(err, SMOE_ERR_ARGUMENT,
                         "%s would lie inside the checkpoint %s; write it somewhere else", p->vault,
                         s->path);
        }
    }
    free(from);
    free(to);
    return rc;
}

static int check_source(const source *s, smoe_error *err) {
    if (s->kind == CONTAINER_VAULT) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "%s is a vault already; sculpt from the checkpoint it was made of", s->path);
    }
    return SMOE_OK;
}

/* ---- the job */

static const char *type_text(dtype t) {
    return t == DT_NONE ? "they are" : dtype_get(t)->name;
}

static void log_plan(const log_sink *log, const sculpt_plan *p, const sculpt_paths *paths) {
    char vault[24];
    char scout[24];
    log_line(log, SMOE_LOG_PLAN, "%lld experts as %s: %s (%s); scout as %s: %s (%s)",
             (long long)p->content.n_record, type_text(p->expert_type), paths->vault,
             format_bytes(vault, p->content.file_bytes), type_text(p->scout_type), paths->scout,
             format_bytes(scout, p->scout_bytes));
    dtype stored = p->source->expert[0].part[PART_GATE].type;
    if (p->expert_type == DT_BF16 && stored != DT_BF16) {
        log_line(log, SMOE_LOG_NOTICE, "the experts are stored as %s: bf16 rounds them",
                 dtype_get(stored)->name);
    }
}

static int sculpt_source(const source *s, const sculpt_paths *paths, dtype expert, dtype scout,
                         const smoe_sculpt_options *o, const sculpt_hooks *hooks, smoe_error *err) {
    log_sink log = {.fn = o->log, .user = o->user};
    ticker progress = {
        .fn = o->progress, .user = o->user, .interval_ns = hooks->progress_interval_ns};
    sculpt_plan plan;
    pool *workers = NULL;
    int rc = sculpt_plan_make(&plan, s, expert, scout, err);
    rc = rc == SMOE_OK ? pool_open(&workers, o->n_thread ? o->n_thread : cpu_count(), err) : rc;
    if (rc == SMOE_OK) {
        sculpt_config config = {.plan = &plan,
                                .paths = paths,
                                .hooks = hooks,
                                .pool = workers,
                                .ticker = &progress,
                                .log = &log,
                                .overwrite = o->overwrite};
        log_plan(&log, &plan, paths);
        rc = sculpt_job_run(&config, err);
    }
    pool_close(workers);
    sculpt_plan_free(&plan);
    return rc;
}

int sculpt_with_hooks(const char *checkpoint_path, const char *vault_path,
                      const smoe_sculpt_options *options, const sculpt_hooks *hooks,
                      smoe_error *err) {
    static const smoe_sculpt_options defaults;
    const smoe_sculpt_options *o = options ? options : &defaults;
    sculpt_paths paths;
    dtype expert = DT_NONE;
    dtype scout = DT_NONE;
    source *s = NULL;
    int rc = sculpt_paths_make(&paths, vault_path, err);
    rc = rc == SMOE_OK ? source_open(&s, checkpoint_path, err) : rc;
    rc = rc == SMOE_OK ? take_types(o, s, &expert, &scout, err) : rc;
    rc = rc == SMOE_OK ? check_source(s, err) : rc;
    rc = rc == SMOE_OK ? check_places(s, &paths, err) : rc;
    rc = rc == SMOE_OK ? sculpt_source(s, &paths, expert, scout, o, hooks, err) : rc;
    source_close(s);
    return rc;
}

SMOE_API int smoe_sculpt(const char *checkpoint_path, const char *vault_path,
                         const smoe_sculpt_options *options, smoe_error *err) {
    return sculpt_with_hooks(checkpoint_path, vault_path, options, &sculpt_hooks_default, err);
}
