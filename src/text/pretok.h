/* Pre-tokenizers: the list of steps that cut text into the pieces the model works on.
 *
 * Steps are plain data, built from tokenizer.json. Each step sees the pieces of the one before it,
 * each piece alone. The last one, ByteLevel, hands pieces to the caller. Immutable once built.
 */
#ifndef SMOE_TEXT_PRETOK_H
#define SMOE_TEXT_PRETOK_H

#include "base/mem.h"
#include "text/pattern.h"

enum { PRETOK_STEPS = 32 };

enum pretok_kind {
    PRETOK_PATTERN, /* Split by a regular expression */
    PRETOK_LITERAL, /* Split by a string */
    PRETOK_DIGITS   /* each number character is a match */
};

enum pretok_behavior {
    PRETOK_ISOLATED,             /* every match is a piece, so is what lies between */
    PRETOK_REMOVED,              /* matches are dropped */
    PRETOK_CONTIGUOUS,           /* neighbouring matches are one piece */
    PRETOK_MERGED_WITH_PREVIOUS, /* a match joins what stands before it */
    PRETOK_MERGED_WITH_NEXT
};

typedef struct pretok_step {
    enum pretok_kind kind;
    enum pretok_behavior behavior;
    bool invert;           /* matches and what lies between change places */
    text_pattern *pattern; /* PRETOK_PATTERN: owned */
    const char *literal;   /* PRETOK_LITERAL: never empty; borrowed from the tokenizer's arena */
    size_t literal_bytes;
} pretok_step;

typedef struct pretok {
    pretok_step steps[PRETOK_STEPS];
    size_t n_step;
    size_t n_before_prefix; /* add_prefix_space acts on the pieces of this many steps */
    bool add_prefix_space;  /* a piece that does not begin with a space gets one */
    bool is_complete;       /* ByteLevel has been read */
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
    } at[PRETOK_STEPS];
    char *prefixed; /* a piece with its space */
    size_t cap_prefixed;
} pretok_run;

/* pretok_run_free releases it, also after a failure. */
int pretok_run_init(pretok_run *r, const pretok *p, pretok_fn fn, void *user, smoe_error *err);
void pretok_run_free(pretok_run *r);
/* Cuts text (valid UTF-8). */
int pretok_run_text(pretok_run *r, const char *text, size_t bytes, smoe_error *err);

#endif
