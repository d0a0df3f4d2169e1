/* The journal; see journal.h. In the machine's own byte order: it never leaves the machine. */
#include "sculptor/journal.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/mem.h"

#define JOURNAL_MAGIC 0x314c4e524a4d5331u

typedef struct head {
    uint64_t magic;
    uint64_t id[2];
    uint64_t n_unit;
    uint64_t check;
} head;

typedef struct entry {
    uint64_t checksum;
    uint64_t check;
} entry;

enum { ENTRIES_AT_ONCE = 256 };

uint64_t journal_max_bytes(int64_t n_unit) {
    return sizeof(head) + (uint64_t)n_unit * sizeof(entry);
}

static uint64_t entry_check(const journal *j, int64_t unit, uint64_t checksum) {
    uint64_t text[4] = {j->id[0], j->id[1], (uint64_t)unit, checksum};
    return XXH3_64bits(text, sizeof text);
}

static head make_head(const journal *j) {
    head h = {.magic = JOURNAL_MAGIC, .id = {j->id[0], j->id[1]}, .n_unit = (uint64_t)j->n_unit};
    h.check = XXH3_64bits(&h, offsetof(head, check));
    return h;
}

/* Only one process may work on these files, and on the file that has this name now: one that just
 * finished may have removed the file we opened. */
static int lock(const journal *j, smoe_error *err) {
    struct stat held;
    struct stat named;
    if (flock(j->file.fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) {
            return err_errno(err, errno, "cannot lock %s", j->file.path);
        }
        return err_set(err, SMOE_ERR_IO, "another smoe is writing this vault: it holds %s",
                       j->file.path);
    }
    if (fstat(j->file.fd, &held) != 0 || stat(j->file.path, &named) != 0 ||
        held.st_ino != named.st_ino || held.st_dev != named.st_dev) {
        return err_set(err, SMOE_ERR_IO, "another smoe has just finished this vault: %s is gone",
                       j->file.path);
    }
    return SMOE_OK;
}

static int read_entries(journal *j, uint64_t file_bytes, smoe_error *err) {
    entry batch[ENTRIES_AT_ONCE];
    int64_t there = (int64_t)((file_bytes - sizeof(head)) / sizeof(entry));
    there = there < j->n_unit ? there : j->n_unit;
    for (int64_t at = 0; at < there; at += ENTRIES_AT_ONCE) {
        int64_t n = there - at < ENTRIES_AT_ONCE ? there - at : ENTRIES_AT_ONCE;
        int rc = file_read_at(j->file.fd, j->file.path, journal_max_bytes(at), batch,
                              (size_t)n * sizeof(entry), err);
        if (rc != SMOE_OK) {
            return rc;
        }
        for (int64_t i = 0; i < n; i++) {
            if (batch[i].check != entry_check(j, at + i, batch[i].checksum)) {
                return SMOE_OK;
            }
            j->checksum[at + i] = batch[i].checksum;
            j->n_noted = j->n_committed = at + i + 1;
        }
    }
    return SMOE_OK;
}

static int begin(journal *j, smoe_error *err) {
    head h = make_head(j);
    int rc = out_truncate(&j->file, 0, err);
    rc = rc == SMOE_OK ? out_write(&j->file, 0, &h, sizeof h, err) : rc;
    return rc == SMOE_OK ? out_sync(&j->file, err) : rc;
}

int journal_open(journal *j, const write_ops *ops, const char *path, const uint64_t id[2],
                 int64_t n_unit, bool *discarded, smoe_error *err) {
    struct stat st;
    head want;
    head found;
    *discarded = false;
    *j = (journal){.file.fd = -1, .id = {id[0], id[1]}, .n_unit = n_unit};
    j->checksum = mem_array((size_t)n_unit, sizeof *j->checksum);
    if (!j->checksum) {
        return err_no_memory(err, (uint64_t)n_unit * sizeof *j->checksum);
    }
    int rc = out_open(&j->file, ops, path, err);
    rc = rc == SMOE_OK ? lock(j, err) : rc;
    if (rc != SMOE_OK) {
        return rc;
    }
    if (fstat(j->file.fd, &st) != 0) {
        return err_errno(err, errno, "cannot look at %s", path);
    }
    want = make_head(j);
    if ((uint64_t)st.st_size >= sizeof found) {
        rc = file_read_at(j->file.fd, path, 0, &found, sizeof found, err);
        if (rc != SMOE_OK || memcmp(&found, &want, sizeof want) == 0) {
            return rc == SMOE_OK ? read_entries(j, (uint64_t)st.st_size, err) : rc;
        }
    }
    *discarded = st.st_size > 0;
    return begin(j, err);
}

void journal_close(journal *j) {
    out_close(&j->file);
    free(j->checksum);
    j->checksum = NULL;
}

void journal_note(journal *j, uint64_t checksum) {
    j->checksum[j->n_noted++] = checksum;
}

int journal_commit(journal *j, smoe_error *err) {
    entry batch[ENTRIES_AT_ONCE];
    for (int64_t at = j->n_committed; at < j->n_noted; at += ENTRIES_AT_ONCE) {
        int64_t n = j->n_noted - at < ENTRIES_AT_ONCE ? j->n_noted - at : ENTRIES_AT_ONCE;
        for (int64_t i = 0; i < n; i++) {
            uint64_t checksum = j->checksum[at + i];
            batch[i] = (entry){checksum, entry_check(j, at + i, checksum)};
        }
        int rc = out_write(&j->file, journal_max_bytes(at), batch, (size_t)n * sizeof(entry), err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    int rc = out_sync(&j->file, err);
    if (rc == SMOE_OK) {
        j->n_committed = j->n_noted;
    }
    return rc;
}

int journal_cut(journal *j, int64_t n_done, smoe_error *err) {
    j->n_noted = n_done < j->n_noted ? n_done : j->n_noted;
    if (j->n_committed <= j->n_noted) {
        return SMOE_OK;
    }
    j->n_committed = j->n_noted;
    int rc = out_truncate(&j->file, journal_max_bytes(j->n_committed), err);
    return rc == SMOE_OK ? out_sync(&j->file, err) : rc;
}
