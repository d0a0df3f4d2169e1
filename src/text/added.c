/* Finding added tokens; see added.h. Matching narrows a range of the sorted patterns byte by byte;
 * most positions of a text fail at the first byte. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

static int compare_patterns(const void *a, const void *b) {
    const added_pattern *x = a;
    const added_pattern *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, n);
    if (order == 0 && x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return order;
}

int added_matcher_build(added_matcher *m, added_pattern *patterns, size_t n, smoe_error *err) {
    m->patterns = patterns;
    m->n = n;
    qsort(patterns, n, sizeof *patterns, compare_patterns);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && compare_patterns(&patterns[i - 1], &patterns[i]) == 0) {
            return err_set(err, SMOE_ERR_UNSUPPORTED,
                           "added tokens %d and %d are looked for by the same text",
                           patterns[i - 1].token->id, patterns[i].token->id);
        }
        m->first[(uint8_t)patterns[i].text[0] + 1]++;
    }
    for (size_t b = 1; b < 257; b++) {
        m->first[b] += m->first[b - 1];
    }
    return SMOE_OK;
}

void added_matcher_free(added_matcher *m) {
    free(m->patterns);
    *m = (added_matcher){0};
}

const text_span *text_span_at(const text_span *spans, size_t n, size_t at) {
    size_t low = 0;
    size_t high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (spans[mid].end <= at) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < n && spans[low].start <= at ? &spans[low] : NULL;
}

/* ---- one place */

/* The first pattern in [low, high) whose byte at depth is at least b; all of them are longer. */
static size_t lower_bound(const added_matcher *m, size_t low, size_t high, size_t depth,
                          unsigned b) {
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if ((uint8_t)m->patterns[mid].text[depth] < b) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* The longest pattern at `at` that may stand there. */
static const added_pattern *match_at(const added_scan *s, size_t at) {
    const added_matcher *m = s->matcher;
    const added_pattern *best = NULL;
    unsigned b = (uint8_t)s->text[at];
    size_t low = m->first[b];
    size_t high = m->first[b + 1];
    if (low == high) {
        return NULL;
    }
    const text_span *span = text_span_at(s->trusted, s->n_trusted, at);
    for (size_t depth = 1; low < high; depth++) {
        if (m->patterns[low].bytes == depth) {
            bool is_allowed =
                !m->patterns[low].token->is_control || (span && at + depth <= span->end);
            best = is_allowed ? &m->patterns[low] : best;
            low++;
        }
        if (at + depth >= s->bytes) {
            break;
        }
        b = (uint8_t)s->text[at + depth];
        low = lower_bound(m, low, high, depth, b);
        high = lower_bound(m, low, high, depth, b + 1);
    }
    return best;
}

/* ---- what surrounds a match */

/* Start of the character that ends before `at`; at > 0. */
static size_t char_before(const char *text, size_t at, uint32_t *cp) {
    size_t start = at - 1;
    while (start > 0 && ((uint8_t)text[start] & 0xc0) == 0x80) {
        start--;
    }
    utf8_decode((const uint8_t *)text + start, at - start, cp);
    return start;
}

static bool is_word_boundary(const added_scan *s, size_t start, size_t end) {
    uint32_t cp = 0;
    if (start > 0) {
        char_before(s->text, start, &cp);
        if (ucd_is_word(cp)) {
            return false;
        }
    }
    if (end < s->bytes) {
        utf8_decode((const uint8_t *)s->text + end, s->bytes - end, &cp);
        return !ucd_is_word(cp);
    }
    return true;
}

static size_t skip_space_back(const char *text, size_t at, size_t least) {
    while (at > least) {
        uint32_t cp = 0;
        size_t start = char_before(text, at, &cp);
        if (!ucd_is_space(cp) || start < least) {
            break;
        }
        at = start;
    }
    return at;
}

static size_t skip_space(const char *text, size_t at, size_t bytes) {
    while (at < bytes) {
        uint32_t cp = 0;
        size_t used = utf8_decode((const uint8_t *)text + at, bytes - at, &cp);
        if (!ucd_is_space(cp)) {
            break;
        }
        at += used;
    }
    return at;
}

/* ---- the pass */

void added_scan_start(added_scan *s, const added_matcher *m, const char *text, size_t bytes,
                      const text_span *trusted, size_t n_trusted) {
    *s = (added_scan){
        .matcher = m, .text = text, .bytes = bytes, .trusted = trusted, .n_trusted = n_trusted};
}

/* The next accepted match, with its white space; s->from moves behind it. */
static const added_token *find_token(added_scan *s, size_t *start, size_t *end) {
    if (s->matcher->n == 0) {
        s->from = s->bytes;
    }
    while (s->from < s->bytes) {
        const added_pattern *p = match_at(s, s->from);
        if (!p) {
            s->from++;
            continue;
        }
        *start = s->from;
        *end = s->from += p->bytes;
        if (p->token->single_word && !is_word_boundary(s, *start, *end)) {
            continue;
        }
        if (p->token->lstrip) {
            *start = *start > s->start_offset ? skip_space_back(s->text, *start, s->start_offset)
                                              : s->start_offset;
        }
        if (p->token->rstrip) {
            *end = skip_space(s->text, *end, s->bytes);
        }
        return p->token;
    }
    return NULL;
}

bool added_scan_next(added_scan *s, size_t *start, size_t *end, const added_token **token) {
    const added_token *found = s->held;
    size_t found_start = s->held_start;
    size_t found_end = s->held_end;
    s->held = NULL;
    if (!found) {
        found = find_token(s, &found_start, &found_end);
        size_t plain_end = found ? found_start : s->bytes;
        if (s->start_offset < plain_end) {
            *start = s->start_offset;
            *end = plain_end;
            *token = NULL;
            s->start_offset = plain_end;
            s->held = found;
            s->held_start = found_start;
            s->held_end = found_end;
            return true;
        }
    }
    if (found) {
        *start = found_start;
        *end = s->start_offset = found_end;
        *token = found;
        return true;
    }
    return false;
}
