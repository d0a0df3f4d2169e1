/* Normalisers: the list of steps that a tokenizer applies to text before it splits it.
 *
 * The four Unicode forms are those of Unicode 9, as in the reference library: code points assigned
 * later neither decompose, compose nor move. Steps are plain data, built from tokenizer.json.
 */
#ifndef SMOE_TEXT_NORMALIZE_H
#define SMOE_TEXT_NORMALIZE_H

#include "base/mem.h"
#include "text/charsmap.h"
#include "text/pattern.h"
#include "text/trie.h"

enum normalize_kind {
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_REPLACE, /* every occurrence of one string, or match of a pattern, by another */
    NORMALIZE_PREPEND, /* puts a string before text that is not empty */
    NORMALIZE_STRIP,   /* white space at the ends */
    NORMALIZE_LOWERCASE,
    NORMALIZE_PRECOMPILED,  /* a character map as the reference library applies it */
    NORMALIZE_SENTENCEPIECE /* all that the original library does to a text */
};

typedef struct normalize_step {
    enum normalize_kind kind;
    const char *from; /* REPLACE: never empty; borrowed from the tokenizer's arena */
    size_t from_bytes;
    const char *to; /* REPLACE and PREPEND */
    size_t to_bytes;
    text_pattern *pattern; /* REPLACE by pattern; owned */
    bool strip_left, strip_right;
    charsmap map;  /* PRECOMPILED and SENTENCEPIECE; owned */
    trie verbatim; /* SENTENCEPIECE: user-defined symbols, which nothing changes; owned */
    bool add_dummy_prefix, remove_extra_space, escape_space;
} normalize_step;

void normalize_step_free(normalize_step *step);

/* Where the text stands, and what became of its start. */
typedef struct normalize_place {
    bool is_start; /* nothing but control tokens right before it */
    bool is_end;
    bool keeps_start; /* the first character of the result comes from the first of the text; steps
                       * only ever clear it */
} normalize_place;

/* Appends the normalised form of text (valid UTF-8) to out. place may be NULL: a whole text. Time
 * is linear in text. */
int normalize_apply(const normalize_step *step, const char *text, size_t bytes,
                    normalize_place *place, byte_buf *out, smoe_error *err);

/* NORMALIZE_SENTENCEPIECE, for normalize_apply. */
int normalize_sentencepiece(const normalize_step *step, const char *text, size_t bytes,
                            const normalize_place *place, byte_buf *out, smoe_error *err);

#endif
