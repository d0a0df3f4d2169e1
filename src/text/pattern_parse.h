/* The translation behind pattern.c: Oniguruma syntax in, PCRE2 syntax and character sets out. */
#ifndef SMOE_TEXT_PATTERN_PARSE_H
#define SMOE_TEXT_PATTERN_PARSE_H

#include "base/mem.h"
#include "text/cp_set.h"

enum {
    PATTERN_SETS = 64,      /* distinct character sets of one pattern */
    PATTERN_SET_MARK = 0x01 /* in pattern_parsed.text: a set, whose index + 1 follows */
};

/* PCRE2's callout: reports that matching passes a place of choice. */
#define PATTERN_COUNT "(?C1)"

typedef struct pattern_parsed {
    byte_buf text; /* PCRE2 syntax with marks in the place of sets */
    cp_set sets[PATTERN_SETS];
    unsigned n_set;
} pattern_parsed;

/* Zero-initialise out; pattern_parsed_free releases it, also after a failure. */
int pattern_parse(pattern_parsed *out, const char *source, size_t bytes, const char *where,
                  smoe_error *err);
void pattern_parsed_free(pattern_parsed *p);

#endif
