/* A sculpting job: the partial files, the units of work, resuming, the final check and the renames.
 *
 * A job's files are NAME.smoe.partial, NAME.scout.safetensors.partial and NAME.smoe.journal beside
 * the vault. They stay after any failure, so that the same job resumes.
 */
#ifndef SMOE_SCULPTOR_SCULPT_JOB_H
#define SMOE_SCULPTOR_SCULPT_JOB_H

#include "base/log.h"
#include "sculptor/journal.h"
#include "sculptor/rows.h"
#include "sculptor/sculpt_plan.h"
#include "sculptor/ticker.h"

/* What tests put in other values for. */
typedef struct sculpt_hooks {
    const write_ops *ops;
    uint64_t batch_bytes; /* written between two commits of the journal */
    uint64_t block_bytes; /* of a matrix at once in memory */
    uint64_t progress_interval_ns;
} sculpt_hooks;

extern const sculpt_hooks sculpt_hooks_default;

typedef struct sculpt_paths {
    char dir[FILE_PATH_BYTES];
    char vault[FILE_PATH_BYTES];
    char scout[FILE_PATH_BYTES];
    char vault_partial[FILE_PATH_BYTES];
    char scout_partial[FILE_PATH_BYTES];
    char journal[FILE_PATH_BYTES];
} sculpt_paths;

/* SMOE_ERR_ARGUMENT when vault_path does not end in .smoe or is too long. */
int sculpt_paths_make(sculpt_paths *p, const char *vault_path, smoe_error *err);

typedef struct sculpt_config {
    sculpt_plan *plan; /* receives checksums */
    const sculpt_paths *paths;
    const sculpt_hooks *hooks;
    pool *pool;
    ticker *ticker;
    const log_sink *log;
    bool overwrite;
} sculpt_config;

/* Does the whole job; the names exist afterwards only on success. */
int sculpt_job_run(const sculpt_config *conf, smoe_error *err);

/* smoe_sculpt with other hooks. */
int sculpt_with_hooks(const char *checkpoint_path, const char *vault_path,
                      const smoe_sculpt_options *options, const sculpt_hooks *hooks,
                      smoe_error *err);

#endif
