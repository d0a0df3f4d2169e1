/* What a sculpting job will write, to the byte, before anything is written: the layout of the vault
 * and of its scout, and the list of units of work. Reads the source's description, no weights. */
#ifndef SMOE_SCULPTOR_SCULPT_PLAN_H
#define SMOE_SCULPTOR_SCULPT_PLAN_H

#include "formats/vault.h"
#include "model/source.h"

/* Units are the scout's tensors in file order, then the records in table order. */
typedef struct sculpt_plan {
    const source *source;      /* outlives the plan */
    dtype expert_type;         /* DT_NONE: each as it is stored */
    dtype scout_type;          /* of the matrices in it; DT_NONE likewise */
    vault_content content;     /* without checksums */
    tensor *scout;             /* [n_scout]; type and shape as the file says */
    const weight_ref **origin; /* [n_scout]; the stored weight behind each */
    dtype *scout_to;           /* [n_scout]; what it is converted to */
    int32_t n_scout;
    text_blob tokenizer; /* in its prepared form; owned, empty without one */
    char *scout_head;    /* what comes before the scout's data */
    size_t scout_head_bytes;
    uint64_t scout_bytes;  /* of the scout file */
    uint64_t source_bytes; /* of all weights */
    int64_t n_unit;
    uint64_t id[2]; /* the job: equal when resuming is right */
    int32_t max_col;
    uint64_t max_row_bytes; /* of the longest row, stored or converted */
    uint64_t max_record_bytes;
    arena arena;
} sculpt_plan;

/* p is the caller's (sculpt_plan_free), also after failure. */
int sculpt_plan_make(sculpt_plan *p, const source *s, dtype expert_type, dtype scout_type,
                     smoe_error *err);
void sculpt_plan_free(sculpt_plan *p);

/* Whether a role's matrix goes to the scout type; the others stay exactly as stored. */
bool scout_role_is_matrix(role r);
/* Bytes of the source that a unit stands for, for progress. */
uint64_t sculpt_unit_source_bytes(const sculpt_plan *p, int64_t unit);
/* The expert behind a unit >= n_scout, and its place. */
const expert_ref *sculpt_unit_expert(const sculpt_plan *p, int64_t unit, int32_t *layer,
                                     int32_t *expert);

#endif
