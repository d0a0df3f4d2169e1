/* Pre-tokenizers: the list of steps that cut text into the pieces the model works on.
 *
 * Steps are plain data, built from tokenizer.json. Each step sees the pieces of the one before it,
 * each piece alone; those of the last go to the caller. Immutable once built.
 */
#ifndef SMOE_TEXT_PRETOK_H
#define SMOE_TEXT_PRETOK_H

#include "base/mem.h"
#include "text/pattern.h"

enum { PRETOK_STEPS = 32 };

enum pretok_kind {
    PRETOK_PATTERN, /* Split by a regular expression */
    PRETOK_LITERAL, /* Split by a string */
    PRETOK_DIGITS,  /* each number character is a match */
    PRETOK_PUNCTUATION,
    PRETOK_SPACE,    /* each white space character is a match */
    PRETOK_WORDS,    /* runs of word characters and runs of others that are no space */
    PRETOK_METASPACE /* spaces become a symbol, which splits */
};

enum pretok_behavior {
    PRETOK_ISOLATED,             /* every match is a piece, so is what lies between */
    PRETOK_REMOVED,              /* matches are dropped */
    PRETOK_CONTIGUOUS,           /* neighbouring matches are one piece */
    PRETOK_MERGED_WITH_PREVIOUS, /* a match joins what stands before it */
    PRETOK_MERGED_WITH_NEXT
};

/* Whether METASPACE puts its symbol before a piece that does not begin with it. */
enum pretok_prepend {
    PRETOK_PREPEND_NEVER,
    PRETOK_PREPEND_FIRST, /* only before the piece that the whole text begins with */
    PRETOK_PREPEND_ALWAYS
};

typedef struct pretok_step {
    enum pretok_kind kind;
    enum pretok_behavior behavior;
    bool invert;           /* matches and what lies between change places */
    text_pattern *pattern; /* PRETOK_PATTERN: owned */
    const char *literal;   /* PRETOK_LITERAL, METASPACE's symbol: never empty; borrowed from the
                            * tokenizer's arena */
    size_t literal_bytes;
    enum pretok_prepend prepend; /* METASPACE */
    bool keeps_whole;            /* METASPACE does not split */
} pretok_step;

typedef struct pretok {
    pretok_step steps[PRETOK_STEPS];
    size_t n_step;
    size_t n_before_prefix; /* add_prefix_space acts on the pieces of this many steps */
    bool add_prefix_space;  /* a piece that does not begin with a space gets one */
    bool is_byte_level;     /* the last step is ByteLevel */
} pretok;

void pretok_free(pretok *p);

/* Receives each piece, in order; never empty. text lives until the return. */
typedef int (*pretok_fn)(void *user, const char *text, size_t bytes, smoe_error *err);

/* Scratch of one encoding call. */
typedef struct pretok_run {
    const pretok *pretok;
    pretok_fn fn;
    void *user;
    struct {
        pattern_scan scan;
        uint8_t *classes;
        size_t cap;
        byte_buf changed; /* METASPACE: a piece with its symbols */
    } at[PRETOK_STEPS];
    char *prefixed; /* a piece with its space */
    size_t cap_prefixed;
} pretok_run;

/* pretok_run_free releases it, also after a failure. */
int pretok_run_init(pretok_run *r, const pretok *p, pretok_fn fn, void *user, smoe_error *err);
void pretok_run_free(pretok_run *r);
/* Cuts text (valid UTF-8). is_first: it begins with the first character of all the caller has. */
int pretok_run_text(pretok_run *r, const char *text, size_t bytes, bool is_first, smoe_error *err);

#endif
