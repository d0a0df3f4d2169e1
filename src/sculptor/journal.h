/* The journal of a job in progress: which units of work are on the drive, with their checksums.
 *
 * A job is a fixed list of units done in order, so the journal is a growing list of checksums, each
 * with a check of its own. A unit is committed only after its data is on the drive; an entry torn
 * by a crash fails its check and ends the list. The journal also locks the job: its file is held
 * with flock, which the system releases whatever becomes of the process.
 */
#ifndef SMOE_SCULPTOR_JOURNAL_H
#define SMOE_SCULPTOR_JOURNAL_H

#include "sculptor/out_file.h"

typedef struct journal {
    out_file file;
    uint64_t id[2];
    int64_t n_unit;
    int64_t n_noted;     /* done, maybe not yet committed */
    int64_t n_committed; /* in the file */
    uint64_t *checksum;  /* [n_unit], n_noted of them set */
} journal;

/* Opens or creates path for the job id. A journal of a different job, or a broken one, is begun
 * anew; *discarded says so. j is the caller's (journal_close), also after failure. */
int journal_open(journal *j, const write_ops *ops, const char *path, const uint64_t id[2],
                 int64_t n_unit, bool *discarded, smoe_error *err);
void journal_close(journal *j);
/* The next unit is done. */
void journal_note(journal *j, uint64_t checksum);
/* Puts the noted units on the drive; their data must already be there. */
int journal_commit(journal *j, smoe_error *err);
/* Forgets the units from n_done on. */
int journal_cut(journal *j, int64_t n_done, smoe_error *err);
/* Bytes of a complete journal. */
uint64_t journal_max_bytes(int64_t n_unit);

#endif
