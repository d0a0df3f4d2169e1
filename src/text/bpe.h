/* Byte-pair encoding: the merge table and its application to one piece of text.
 *
 * The result is that of merging, again and again, the pair of lowest rank (the leftmost of equals)
 * until no pair has a merge. Time is O(n log n) in the piece, however long.
 */
#ifndef SMOE_TEXT_BPE_H
#define SMOE_TEXT_BPE_H

#include "text/vocab.h"

typedef struct bpe_merge {
    uint32_t left, right; /* ids; left is UINT32_MAX in a free slot */
    uint32_t rank;
    uint32_t id; /* of the product */
} bpe_merge;

typedef struct bpe_model {
    bpe_merge *merges; /* [merge_mask + 1], open addressing */
    uint32_t merge_mask;
    int32_t byte_id[256]; /* -1: the byte has no token and is left out */
    bool ignore_merges;   /* a piece that is a token stays one, whatever the merges give */
} bpe_model;

/* Room for n_merge merges. bpe_free releases it, also after a failure. */
int bpe_init(bpe_model *m, size_t n_merge, const vocab *v, smoe_error *err);
void bpe_free(bpe_model *m);
/* A pair given twice keeps the later rank, as in the reference library. */
void bpe_add_merge(bpe_model *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

/* A growing list of ids; realloc'ed. */
typedef struct id_list {
    int32_t *ids;
    size_t n;
    size_t cap;
} id_list;
int id_list_reserve(id_list *out, size_t more, smoe_error *err);

/* Scratch of one encoding call; zero-initialise. */
typedef struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t cap_symbol;
    struct bpe_candidate *heap;
    size_t cap_heap;
    struct bpe_cached *cache; /* of short pieces; NULL until bpe_scratch_cache */
} bpe_scratch;
/* Worth it for texts of some kilobytes. Without memory it does nothing. */
void bpe_scratch_cache(bpe_scratch *s);
void bpe_scratch_free(bpe_scratch *s);

/* Appends the ids of one piece (at most LIMIT_PROMPT_BYTES). */
int bpe_encode(const bpe_model *m, const vocab *v, const char *piece, size_t bytes, bpe_scratch *s,
               id_list *out, smoe_error *err);

#endif
