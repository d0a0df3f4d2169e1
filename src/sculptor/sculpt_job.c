/* A sculpting job; see sculpt_job.h. Called by sculpt.c from one thread. */
#include "sculptor/sculpt_job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "model/bind.h"
#include "sculptor/vault_check.h"

/* A commit costs two or three syncs, so batches are large against a drive's latency and small
 * against a user's patience. */
const sculpt_hooks sculpt_hooks_default = {
    .ops = &write_ops_system,
    .batch_bytes = 64u << 20,
    .block_bytes = 4u << 20,
    .progress_interval_ns = TICKER_INTERVAL_NS,
};

typedef struct job {
    const sculpt_config *config;
    sculpt_plan *plan;
    const sculpt_paths *paths;
    journal journal;
    out_file vault; /* the partial ones */
    out_file scout;
    rows rows;
    uint8_t *out; /* a record, or a block of a scout tensor */
    XXH3_state_t *hash;
    uint64_t unsynced_bytes;
    bool sync_failed;
    smoe_error *err;
} job;

/* ---- paths */

int sculpt_paths_make(sculpt_paths *p, const char *vault_path, smoe_error *err) {
    size_t n = strlen(vault_path);
    size_t suffix = strlen(VAULT_SUFFIX);
    const char *slash = strrchr(vault_path, '/');
    size_t base = slash ? (size_t)(slash + 1 - vault_path) : 0;
    if (n < base + suffix + 1 || strcmp(vault_path + n - suffix, VAULT_SUFFIX) != 0) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%s: a vault's name ends in %s, such as model%s",
                       vault_path, VAULT_SUFFIX, VAULT_SUFFIX);
    }
    enum { LONGEST_SUFFIX = 32 }; /* .scout.safetensors.partial */
    if (n + LONGEST_SUFFIX > FILE_PATH_BYTES) {
        return err_set(err, SMOE_ERR_ARGUMENT, "the vault's path is too long: %zu bytes", n);
    }
    size_t room = FILE_PATH_BYTES;
    out_dir_of(p->dir, vault_path);
    memcpy(p->vault, vault_path, n + 1);
    vault_scout_path(p->scout, room, vault_path);
    memcpy(p->vault_partial, vault_path, n);
    memcpy(p->vault_partial + n, ".partial", sizeof ".partial");
    size_t scout_bytes = strlen(p->scout);
    memcpy(p->scout_partial, p->scout, scout_bytes);
    memcpy(p->scout_partial + scout_bytes, ".partial", sizeof ".partial");
    memcpy(p->journal, vault_path, n);
    memcpy(p->journal + n, ".journal", sizeof ".journal");
    return SMOE_OK;
}

/* ---- units: where their bytes are */

typedef struct unit_range {
    const out_file *file;
    uint64_t offset;
    uint64_t bytes;
    uint64_t end; /* with padding */
} unit_range;

static unit_range range_of(const job *j, int64_t unit) {
    const sculpt_plan *p = j->plan;
    if (unit < p->n_scout) {
        const tensor *t = &p->scout[unit];
        return (unit_range){&j->scout, t->offset, t->bytes, t->offset + t->bytes};
    }
    const vault_record *r = &p->content.record[unit - p->n_scout];
    return (unit_range){&j->vault, r->offset, r->bytes, vault_record_end(r)};
}

static uint64_t size_of(const out_file *f) {
    struct stat st;
    return fstat(f->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t allocated_bytes(const out_file *f) {
    struct stat st;
    return fstat(f->fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

/* ---- opening and resuming */

static int exists_error(const char *path, smoe_error *err) {
    return err_set(err, SMOE_ERR_ARGUMENT,
                   "%s exists; choose another name, or --overwrite to replace it", path);
}

/* Before any work: what stands in the place of the two files. */
static int check_names(const sculpt_config *conf, smoe_error *err) {
    const char *name[2] = {conf->paths->vault, conf->paths->scout};
    for (int i = 0; i < 2; i++) {
        if (file_is_dir(name[i])) {
            return err_set(err, SMOE_ERR_ARGUMENT, "%s is a folder; choose another name", name[i]);
        }
    }
    if (!conf->overwrite && file_exists(conf->paths->vault)) {
        return exists_error(conf->paths->vault, err);
    }
    return SMOE_OK;
}

/* A run that was killed between the two final renames left the scout under its final name. */
static int adopt_scout(job *j) {
    const sculpt_paths *p = j->paths;
    bool complete = j->journal.n_noted == j->plan->n_unit;
    bool renamed = complete && !file_exists(p->scout_partial) && file_exists(p->scout) &&
                   file_exists(p->vault_partial);
    if (renamed) {
        return out_rename(j->config->hooks->ops, p->scout, p->scout_partial, j->err);
    }
    if (!j->config->overwrite && file_exists(p->scout)) {
        if (j->journal.n_noted == 0) {
            unlink(p->journal);
        }
        return exists_error(p->scout, j->err);
    }
    return SMOE_OK;
}

/* The last batch is read again, in case the drive did not keep what it had confirmed. Everything
 * is read again at the end; this finds damage before the hours of work that may lie between. */
static int trust_journal(job *j) {
    int64_t n = j->journal.n_noted;
    uint64_t size[2] = {size_of(&j->scout), size_of(&j->vault)};
    while (n > 0 && range_of(j, n - 1).end > size[n - 1 >= j->plan->n_scout]) {
        n--;
    }
    uint64_t seen_bytes = 0;
    int64_t good = n;
    for (int64_t unit = n - 1; unit >= 0 && seen_bytes < j->config->hooks->batch_bytes; unit--) {
        unit_range r = range_of(j, unit);
        uint64_t found;
        int rc = vault_check_range(r.file->fd, r.file->path, r.offset, r.bytes, &found, j->err);
        if (rc == SMOE_ERR_MEMORY) {
            return rc;
        }
        good = rc == SMOE_OK && found == j->journal.checksum[unit] ? good : unit;
        seen_bytes += r.bytes;
    }
    return journal_cut(&j->journal, good, j->err);
}

static int open_files(job *j) {
    const sculpt_paths *p = j->paths;
    const write_ops *ops = j->config->hooks->ops;
    bool discarded;
    int rc = journal_open(&j->journal, ops, p->journal, j->plan->id, j->plan->n_unit, &discarded,
                          j->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (discarded) {
        log_line(j->config->log, SMOE_LOG_NOTICE,
                 "%s belongs to a different job (other checkpoint, options or version): starting "
                 "over",
                 p->journal);
    }
    rc = adopt_scout(j);
    rc = rc == SMOE_OK ? out_open(&j->scout, ops, p->scout_partial, j->err) : rc;
    rc = rc == SMOE_OK ? out_open(&j->vault, ops, p->vault_partial, j->err) : rc;
    rc = rc == SMOE_OK ? trust_journal(j) : rc;
    if (rc == SMOE_OK && j->journal.n_noted == 0) {
        rc = out_truncate(&j->scout, 0, j->err);
        rc = rc == SMOE_OK ? out_truncate(&j->vault, 0, j->err) : rc;
    } else if (rc == SMOE_OK) {
        log_line(j->config->log, SMOE_LOG_NOTICE,
                 "resuming: %" PRId64 " of %" PRId64 " pieces are done", j->journal.n_noted,
                 j->plan->n_unit);
    }
    return rc;
}

static int check_space(const job *j) {
    const sculpt_plan *p = j->plan;
    const write_ops *ops = j->config->hooks->ops;
    uint64_t total = p->content.file_bytes + p->scout_bytes + journal_max_bytes(p->n_unit);
    uint64_t have =
        allocated_bytes(&j->vault) + allocated_bytes(&j->scout) + allocated_bytes(&j->journal.file);
    uint64_t need = total > have ? total - have : 0;
    uint64_t available;
    if (ops->available(ops->ctx, j->paths->dir, &available) != 0) {
        return err_errno(j->err, errno, "cannot see how much space is left in %s", j->paths->dir);
    }
    if (available < need) {
        char a[24];
        char b[24];
        return err_set(j->err, SMOE_ERR_IO,
                       "not enough space in %s: needs %" PRIu64 " bytes (%s) more, %" PRIu64
                       " (%s) are available",
                       j->paths->dir, need, format_bytes(a, need), available,
                       format_bytes(b, available));
    }
    return SMOE_OK;
}

/* ---- the work */

/* Data first, then the journal that vouches for it. After a failed sync the system may forget that
 * anything was unwritten, so nothing since the last commit may be committed any more. */
static int commit(job *j, smoe_error *err) {
    int rc = out_sync(&j->scout, err);
    rc = rc == SMOE_OK ? out_sync(&j->vault, err) : rc;
    rc = rc == SMOE_OK ? journal_commit(&j->journal, err) : rc;
    j->sync_failed = rc != SMOE_OK;
    j->unsynced_bytes = 0;
    return rc;
}

static int finish_unit(job *j, uint64_t checksum, uint64_t bytes) {
    journal_note(&j->journal, checksum);
    j->unsynced_bytes += bytes;
    return j->unsynced_bytes >= j->config->hooks->batch_bytes ? commit(j, j->err) : SMOE_OK;
}

static int sculpt_tensor(job *j, int32_t index) {
    const tensor *t = &j->plan->scout[index];
    const weight_ref *w = j->plan->origin[index];
    row_matrix m = {.file = w->file,
                    .offset = w->offset,
                    .type = w->type,
                    .n_row = w->n_row,
                    .n_col = w->n_col,
                    .to = j->plan->scout_to[index],
                    .what = w->name};
    uint64_t to_row_bytes = dtype_row_bytes(m.to, (uint64_t)m.n_col);
    uint64_t from_row_bytes = dtype_row_bytes(m.type, (uint64_t)m.n_col);
    int32_t most = rows_in_block(&j->rows, &m);
    XXH3_64bits_reset(j->hash);
    for (int32_t row = 0; row < m.n_row; row += most) {
        int32_t n = m.n_row - row < most ? m.n_row - row : most;
        size_t bytes = (size_t)n * to_row_bytes;
        int rc = rows_convert(&j->rows, &m, row, n, j->out, j->err);
        rc = rc == SMOE_OK ? out_write(&j->scout, t->offset + (uint64_t)row * to_row_bytes, j->out,
                                       bytes, j->err)
                           : rc;
        XXH3_64bits_update(j->hash, j->out, bytes);
        rc = rc == SMOE_OK ? ticker_add(j->config->ticker, (uint64_t)n * from_row_bytes, j->err)
                           : rc;
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return finish_unit(j, XXH3_64bits_digest(j->hash), t->bytes);
}

static int sculpt_part(job *j, const row_matrix *m, uint8_t *out) {
    uint64_t to_row_bytes = dtype_row_bytes(m->to, (uint64_t)m->n_col);
    uint64_t from_row_bytes = dtype_row_bytes(m->type, (uint64_t)m->n_col);
    int32_t most = rows_in_block(&j->rows, m);
    for (int32_t row = 0; row < m->n_row; row += most) {
        int32_t n = m->n_row - row < most ? m->n_row - row : most;
        int rc =
            rows_convert(&j->rows, m, row, n, out + (size_t)row * (size_t)to_row_bytes, j->err);
        rc = rc == SMOE_OK ? ticker_add(j->config->ticker, (uint64_t)n * from_row_bytes, j->err)
                           : rc;
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return SMOE_OK;
}

static void read_ahead(const job *j, int64_t unit) {
    int32_t layer;
    int32_t expert;
    if (unit < j->plan->n_scout || unit >= j->plan->n_unit) {
        return;
    }
    const expert_ref *e = sculpt_unit_expert(j->plan, unit, &layer, &expert);
    for (int32_t i = 0; i < e->n_ext; i++) {
        const model_file *f = &j->plan->source->files.file[e->ext[i].file];
        posix_fadvise(f->fd, (off_t)e->ext[i].offset, (off_t)e->ext[i].bytes, POSIX_FADV_WILLNEED);
    }
}

static int sculpt_expert(job *j, int64_t unit) {
    int32_t layer;
    int32_t expert;
    char what[64];
    const expert_ref *e = sculpt_unit_expert(j->plan, unit, &layer, &expert);
    const vault_record *r = &j->plan->content.record[unit - j->plan->n_scout];
    const vault_layer *l = j->plan->content.layer;
    while (l->layer != layer) {
        l++;
    }
    size_t padded = (size_t)(vault_record_end(r) - r->offset);
    memset(j->out, 0, padded);
    for (int k = 0; k < PART_COUNT; k++) {
        const struct expert_part *part = &e->part[k];
        snprintf(what, sizeof what, "layer %d, expert %d, %s", layer, expert,
                 expert_part_name((enum expert_part_kind)k));
        row_matrix m = {.file = e->ext[part->ext].file,
                        .offset = e->ext[part->ext].offset + part->at_bytes,
                        .type = part->type,
                        .n_row = part->n_row,
                        .n_col = part->n_col,
                        .to = l->part[k].type,
                        .what = what};
        int rc = sculpt_part(j, &m, j->out + l->part[k].at_bytes);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    int rc = out_write(&j->vault, r->offset, j->out, padded, j->err);
    return rc == SMOE_OK ? finish_unit(j, XXH3_64bits(j->out, (size_t)r->bytes), padded) : rc;
}

static int sculpt_units(job *j) {
    sculpt_plan *p = j->plan;
    int64_t first = j->journal.n_noted;
    uint64_t done = 0;
    for (int64_t unit = 0; unit < first; unit++) {
        done += sculpt_unit_source_bytes(p, unit);
    }
    int rc = ticker_start(j->config->ticker, "sculpt", done, p->source_bytes, j->err);
    /* not a unit: the same few bytes every time */
    rc = rc == SMOE_OK ? out_write(&j->scout, 0, p->scout_head, p->scout_head_bytes, j->err) : rc;
    for (int64_t unit = first; unit < p->n_unit && rc == SMOE_OK; unit++) {
        read_ahead(j, unit + 1);
        rc = unit < p->n_scout ? sculpt_tensor(j, (int32_t)unit) : sculpt_expert(j, unit);
    }
    return rc == SMOE_OK ? commit(j, j->err) : rc;
}

/* ---- the end */

/* Reads both partial files back. A piece that differs is dropped from the journal with all after
 * it, so that the next run makes it again instead of failing on it for ever. */
static int check_partials(job *j) {
    vault_content *c = &j->plan->content;
    for (int64_t unit = 0; unit < j->plan->n_unit; unit++) {
        uint64_t checksum = j->journal.checksum[unit];
        if (unit < j->plan->n_scout) {
            c->scout_tensor[unit] = checksum;
        } else {
            c->record[unit - j->plan->n_scout].checksum = checksum;
        }
    }
    c->scout.file_bytes = j->plan->scout_bytes;
    c->scout.head_bytes = j->plan->scout_head_bytes;
    c->scout.head_checksum = XXH3_64bits(j->plan->scout_head, j->plan->scout_head_bytes);
    vault_check check = {.content = c,
                         .vault_fd = j->vault.fd,
                         .vault_path = j->vault.path,
                         .scout_fd = j->scout.fd,
                         .scout_path = j->scout.path,
                         .scout = j->plan->scout,
                         /* the header and its zeros are written later */
                         .zeros_from = round_up(c->header_bytes, VAULT_RECORD_ALIGN),
                         .ticker = j->config->ticker,
                         .bad_unit = -1};
    posix_fadvise(j->vault.fd, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(j->scout.fd, 0, 0, POSIX_FADV_DONTNEED);
    int rc = ticker_start(j->config->ticker, "verify", 0, vault_check_bytes(&check), j->err);
    rc = rc == SMOE_OK ? vault_check_scout(&check, &c->scout.checksum, j->err) : rc;
    rc = rc == SMOE_OK ? vault_check_records(&check, j->err) : rc;
    if (rc == SMOE_ERR_CHECKSUM || rc == SMOE_ERR_FORMAT) {
        (void)journal_cut(&j->journal, check.bad_unit >= 0 ? check.bad_unit : 0, NULL);
    }
    return rc;
}

/* With its zeros up to the first record; read back as everything else was. */
static int write_header(job *j) {
    const vault_content *c = &j->plan->content;
    size_t padded = (size_t)round_up(c->header_bytes, VAULT_RECORD_ALIGN);
    uint8_t *header = mem_array(padded, 1);
    uint64_t found = 0;
    if (!header) {
        return err_no_memory(j->err, padded);
    }
    vault_encode(c, header);
    uint64_t want = XXH3_64bits(header, padded);
    int rc = out_write(&j->vault, 0, header, padded, j->err);
    free(header);
    rc = rc == SMOE_OK ? out_sync(&j->vault, j->err) : rc;
    rc = rc == SMOE_OK ? out_sync(&j->scout, j->err) : rc;
    if (rc == SMOE_OK) {
        posix_fadvise(j->vault.fd, 0, (off_t)padded, POSIX_FADV_DONTNEED);
        rc = vault_check_range(j->vault.fd, j->vault.path, 0, padded, &found, j->err);
    }
    if (rc == SMOE_OK && found != want) {
        rc = err_set(j->err, SMOE_ERR_CHECKSUM,
                     "%s: the header is not what was written: checksum %016" PRIx64
                     ", expected %016" PRIx64 "; run the same command again",
                     j->vault.path, found, want);
    }
    return rc;
}

/* The old vault goes first and the new one comes last: at no moment does a vault stand beside a
 * scout that is not its own. */
static int rename_all(job *j) {
    const sculpt_paths *p = j->paths;
    const write_ops *ops = j->config->hooks->ops;
    if (j->config->overwrite && unlink(p->vault) != 0 && errno != ENOENT) {
        return err_errno(j->err, errno, "cannot replace %s", p->vault);
    }
    int rc = out_rename(ops, p->scout_partial, p->scout, j->err);
    rc = rc == SMOE_OK ? out_sync_dir(ops, p->dir, j->err) : rc;
    rc = rc == SMOE_OK ? out_rename(ops, p->vault_partial, p->vault, j->err) : rc;
    rc = rc == SMOE_OK ? out_sync_dir(ops, p->dir, j->err) : rc;
    if (rc == SMOE_OK) {
        unlink(p->journal);
    }
    return rc;
}

static int run(job *j) {
    const sculpt_plan *p = j->plan;
    uint64_t block = j->config->hooks->block_bytes;
    uint64_t out_bytes = block > p->max_record_bytes ? block : p->max_record_bytes;
    out_bytes = out_bytes > p->max_row_bytes ? out_bytes : p->max_row_bytes;
    j->out = malloc((size_t)out_bytes);
    j->hash = XXH3_createState();
    if (!j->out || !j->hash) {
        return err_no_memory(j->err, out_bytes);
    }
    int rc = rows_open(&j->rows, p->source, j->config->pool, block, p->max_col, p->max_row_bytes,
                       j->err);
    rc = rc == SMOE_OK ? open_files(j) : rc;
    rc = rc == SMOE_OK ? check_space(j) : rc;
    if (rc != SMOE_OK) {
        return rc;
    }
    rc = sculpt_units(j);
    if (rc != SMOE_OK) {
        if (!j->sync_failed) {
            (void)commit(j, NULL);
        }
        return rc;
    }
    rc = out_truncate(&j->vault, p->content.file_bytes, j->err);
    rc = rc == SMOE_OK ? out_truncate(&j->scout, p->scout_bytes, j->err) : rc;
    rc = rc == SMOE_OK ? check_partials(j) : rc;
    rc = rc == SMOE_OK ? write_header(j) : rc;
    return rc == SMOE_OK ? rename_all(j) : rc;
}

int sculpt_job_run(const sculpt_config *conf, smoe_error *err) {
    job j = {.config = conf,
             .plan = conf->plan,
             .paths = conf->paths,
             .journal.file.fd = -1,
             .vault.fd = -1,
             .scout.fd = -1,
             .err = err};
    int rc = check_names(conf, err);
    rc = rc == SMOE_OK ? run(&j) : rc;
    out_close(&j.vault);
    out_close(&j.scout);
    journal_close(&j.journal);
    rows_close(&j.rows);
    XXH3_freeState(j.hash);
    free(j.out);
    return rc;
}
