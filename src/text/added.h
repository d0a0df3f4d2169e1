/* Added tokens: strings that are found in text before anything else splits it.
 *
 * Two matchers, as in the reference library: tokens that are looked for in the text as it came, and
 * (normalized) those looked for after the normaliser. At one place the longest counts.
 */
#ifndef SMOE_TEXT_ADDED_H
#define SMOE_TEXT_ADDED_H

#include "base/mem.h"

#define ADDED_TOKEN_BYTES 1024u /* longest content */

typedef struct added_token {
    const char *content; /* owned by the tokenizer's arena */
    uint32_t bytes;
    int32_t id;
    bool single_word; /* only between characters that are no word characters */
    bool lstrip;      /* takes the white space before it along */
    bool rstrip;
    bool normalized;
    bool special;
    /* Whether text that is not trusted must not become this token: all special ones, and others
     * unless they are made of letters, digits and white space only. */
    bool is_control;
} added_token;

typedef struct added_pattern {
    const char *text; /* what is looked for; never empty */
    uint32_t bytes;
    const added_token *token;
} added_pattern;

typedef struct added_matcher {
    added_pattern *patterns; /* sorted by text; owned */
    size_t n;
    uint32_t first[257]; /* patterns that begin with byte b: first[b] up to first[b + 1] */
} added_matcher;

/* Takes the array of n patterns over (malloc'ed), also after a failure. */
int added_matcher_build(added_matcher *m, added_pattern *patterns, size_t n, smoe_error *err);
void added_matcher_free(added_matcher *m);

/* The ranges of a text that may hold control tokens: sorted, disjoint. */
typedef struct text_span {
    size_t start, end;
} text_span;
/* The span that holds offset at, NULL when none does. */
const text_span *text_span_at(const text_span *spans, size_t n, size_t at);

/* One pass over a text. Each part is plain text (token NULL) or a token with the white space it
 * takes along. Parts may be empty and, with rstrip, may overlap; both as in the reference. */
typedef struct added_scan {
    const added_matcher *matcher;
    const char *text;
    size_t bytes;
    const text_span *trusted;
    size_t n_trusted;
    size_t from;         /* where the next search begins */
    size_t start_offset; /* end of the last part handed out */
    const added_token *held;
    size_t held_start, held_end; /* a token that waits behind its plain text */
} added_scan;

void added_scan_start(added_scan *s, const added_matcher *m, const char *text, size_t bytes,
                      const text_span *trusted, size_t n_trusted);
/* False at the end. */
bool added_scan_next(added_scan *s, size_t *start, size_t *end, const added_token **token);

#endif
