/* Unigram models: the most probable way to cut a piece of text into tokens.
 *
 * The sum of scores is in double precision as in the reference library, or for SentencePiece's own
 * models rounded to single precision at every step as in that library. Time is linear in the piece
 * times the longest token.
 */
#ifndef SMOE_TEXT_UNIGRAM_H
#define SMOE_TEXT_UNIGRAM_H

#include "text/bpe.h"

typedef struct unigram_model {
    trie tokens;   /* the values are ids; unused tokens are not in it */
    double *score; /* [n_id]; owned */
    double unk_score;
    int32_t unk_id; /* -1: text with an unknown character cannot be encoded */
    bool is_sentencepiece;
    bool has_fallback; /* as in bpe_model */
    int32_t fallback_id[256];
} unigram_model;

void unigram_free(unigram_model *m);

/* Scratch of one encoding call; zero-initialise. */
typedef struct unigram_scratch {
    double so_far; /* SentencePiece: the score that this piece's adds to, which decides how sums
                      round */
    struct unigram_node *nodes;
    size_t cap_node;
} unigram_scratch;
void unigram_scratch_free(unigram_scratch *s);

/* Appends the ids of one piece (valid UTF-8, at most LIMIT_PROMPT_BYTES). */
int unigram_encode(const unigram_model *m, const vocab *v, const char *piece, size_t bytes,
                   unigram_scratch *s, id_list *out, smoe_error *err);

#endif
