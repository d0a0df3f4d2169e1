/* Byte-pair encoding: the merge table and its application to one piece of text.
 *
 * A piece starts as a list of symbols: its bytes, or its characters. The result is that of merging,
 * again and again, the pair of lowest rank (the leftmost of equals) until no pair has a merge. Time
 * is O(n log n) in the piece, however long.
 *
 * Three kinds of models differ in what a piece starts as, and in what becomes of that which has no
 * token: byte-level ones, those of characters with an unknown token or byte tokens from the start,
 * and SentencePiece's, where characters without a token may merge and fall back only at the end.
 */
#ifndef SMOE_TEXT_BPE_H
#define SMOE_TEXT_BPE_H

#include "text/cp_table.h"
#include "text/trie.h"
#include "text/vocab.h"

typedef struct bpe_merge {
    uint32_t left, right; /* symbols; left is UINT32_MAX in a free slot */
    uint32_t rank;
    uint32_t id; /* of the product */
} bpe_merge;

enum bpe_kind { BPE_BYTES, BPE_CHARS, BPE_SENTENCEPIECE };

/* A symbol that is no token of its own, BPE_SENTENCEPIECE only; its number is the vocabulary's n_id
 * + index. The first four stand for unknown characters of one to four bytes. */
typedef struct bpe_extra {
    int32_t token; /* a user-defined symbol, which never merges; -1: a character without a token */
    uint32_t bytes;
} bpe_extra;
enum { BPE_UNKNOWN_EXTRAS = 4 };

typedef struct bpe_model {
    enum bpe_kind kind;
    bpe_merge *merges; /* [merge_mask + 1], open addressing */
    uint32_t merge_mask;
    uint32_t n_merge;         /* added so far */
    int32_t byte_id[256];     /* BPE_BYTES: -1: the byte has no token */
    cp_table char_id;         /* the other kinds: symbol of a character */
    int32_t unk_id;           /* -1: what has no token is left out */
    bool fuse_unk;            /* neighbouring unknown characters are one token */
    bool has_fallback;        /* characters without a token become byte tokens ... */
    int32_t fallback_id[256]; /* ... when each of their bytes has one; -1: it has not */
    bool ignore_merges;       /* a piece that is a token stays one, whatever the merges give */
    bpe_extra *extra;         /* [n_extra] */
    uint32_t n_extra;
    trie verbatim;   /* user-defined symbols; the values are symbols */
    bool has_unused; /* some tokens are of type TEXT_TOKEN_UNUSED */
    bool cuts_words; /* no merge crosses the place before a U+2581, see bpe_find_cuts */
} bpe_model;

/* Room for n_merge merges. bpe_free releases it, also after a failure. */
int bpe_init(bpe_model *m, size_t n_merge, const vocab *v, smoe_error *err);
void bpe_free(bpe_model *m);
/* A pair given twice keeps the later rank, as in the reference library. */
void bpe_add_merge(bpe_model *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
/* Announces a pair that will be added soon, any numbers. */
void bpe_prefetch_merge(const bpe_model *m, uint32_t left, uint32_t right);

/* Notes whether a piece may be cut before each U+2581 behind another character without a change in
 * the result: when that is a token and none has one inside. Not for BPE_BYTES. */
void bpe_find_cuts(bpe_model *m, const vocab *v);

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
    int32_t *start; /* symbols of a piece before and after merging */
    size_t cap_start;
    uint32_t (*parts)[2];     /* [n_id]: the two symbols + 1 that last made an unused token */
    struct bpe_cached *cache; /* of short pieces; NULL until bpe_scratch_cache */
} bpe_scratch;
/* Worth it for texts of some kilobytes. Without memory it does nothing. */
void bpe_scratch_cache(bpe_scratch *s);
void bpe_scratch_free(bpe_scratch *s);

/* Appends the ids of one piece (at most LIMIT_PROMPT_BYTES; valid UTF-8 unless BPE_BYTES). */
int bpe_encode(const bpe_model *m, const vocab *v, const char *piece, size_t bytes, bpe_scratch *s,
               id_list *out, smoe_error *err);

#endif
