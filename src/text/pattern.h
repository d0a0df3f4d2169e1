/* Regular expressions of tokenizers, exactly as the reference library reads them.
 *
 * A pattern in Oniguruma's Ruby syntax is translated for PCRE2, which never sees Unicode: it runs
 * over a class string, one byte for each code point of the text. ASCII keeps its own bytes. All
 * other code points that no character class of this pattern tells apart share one byte from 0x80
 * up. So the Unicode version is that of unicode.h, whatever the system's PCRE2 has.
 *
 * Constructs whose meaning differs between the two engines, or whose cost is not bounded by a
 * polynomial, are refused by name. A compiled pattern is immutable and may be shared by threads.
 */
#ifndef SMOE_TEXT_PATTERN_H
#define SMOE_TEXT_PATTERN_H

#include "base/error.h"

typedef struct text_pattern text_pattern;

/* *out is the caller's (pattern_free), untouched on failure. where names the pattern in errors. */
int pattern_compile(text_pattern **out, const char *source, size_t bytes, const char *where,
                    smoe_error *err);
void pattern_free(text_pattern *p); /* NULL is allowed */

/* Writes the class string of text (valid UTF-8) to classes, which has room for bytes bytes; returns
 * its length: the number of code points. */
size_t pattern_classify(const text_pattern *p, const char *text, size_t bytes, uint8_t *classes);

/* One pass over a class string. Offsets count code points. */
typedef struct pattern_scan {
    const text_pattern *pattern;
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *context;
    const uint8_t *classes;
    size_t n_class;
    size_t next;         /* where the next search begins */
    size_t last_end;     /* end of the last match */
    bool has_match;      /* last_end is set */
    size_t counted_at;   /* where the step counter last saw the search */
    uint64_t spare_step; /* of the budget, which each start adds to */
} pattern_scan;

/* A scan that can be started often, but not moved; pattern_scan_free releases it, also after a
 * failure. */
int pattern_scan_init(pattern_scan *s, const text_pattern *p, smoe_error *err);
void pattern_scan_free(pattern_scan *s);
/* classes is borrowed until the next start. */
void pattern_scan_start(pattern_scan *s, const uint8_t *classes, size_t n_class);
/* The next match; an empty one right behind another match is passed over. *found is false at the
 * end. Fails when matching takes more steps than a sane pattern needs. */
int pattern_scan_next(pattern_scan *s, size_t *start, size_t *end, bool *found, smoe_error *err);

#endif
