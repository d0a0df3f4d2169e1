/* Unicode normal forms over utf8proc's data, and string replacement; see normalize.h.
 *
 * Only the spans that a form can change are decomposed. A span ends before each code point that
 * starts a new character and stays as it is (is_stable): what lies on the two sides of such a place
 * normalises independently. utf8proc's own ordering of marks is quadratic, so marks are ordered
 * here by counting.
 */
#include "text/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/unicode.h"

enum { CCC_VALUES = 256, DECOMPOSED_MAX = 32, FEW_MARKS = 16 };

/* Scratch of one call. */
typedef struct span {
    int32_t *cps;
    int32_t *sorted; /* marks being ordered */
    size_t n;
    size_t cap;
    utf8proc_option_t options;
} span;

static utf8proc_option_t options_of(enum normalize_kind kind) {
    switch (kind) {
    case NORMALIZE_NFD:
        return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NORMALIZE_NFKC:
        return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NORMALIZE_NFKD:
        return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    default:
        return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    }
}

static uint8_t combining_class(int32_t cp) {
    return (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* A starter that the form leaves alone and that never joins what stands before it. cp was assigned
 * in Unicode 9. Marks count as unstable even where they do not join. */
static bool is_stable(uint32_t cp, utf8proc_option_t options) {
    const uint32_t marks = 1u << UCD_MN | 1u << UCD_MC | 1u << UCD_ME;
    int32_t parts[DECOMPOSED_MAX];
    int ignored = 0;
    bool composes = options & UTF8PROC_COMPOSE;
    if (cp < 0xa0 || (cp < 0x300 && composes && !(options & UTF8PROC_COMPAT))) {
        return true;
    }
    if (cp >= 0xac00 && cp <= 0xd7a3) {
        return composes;
    }
    if ((cp >= 0x1161 && cp <= 0x1175) || (cp >= 0x11a8 && cp <= 0x11c2)) {
        return !composes;
    }
    if (marks >> (ucd_class(cp) & UCD_CATEGORY_MASK) & 1) {
        return false;
    }
    return utf8proc_decompose_char((int32_t)cp, parts, DECOMPOSED_MAX, options, &ignored) == 1 &&
           parts[0] == (int32_t)cp;
}

static int reserve(span *s, size_t more, smoe_error *err) {
    if (s->cap - s->n >= more) {
        return SMOE_OK;
    }
    size_t cap = s->cap ? s->cap * 2 : 256;
    cap = cap < s->n + more ? s->n + more : cap;
    int32_t *cps = realloc(s->cps, cap * sizeof *cps);
    if (!cps) {
        return err_no_memory(err, cap * sizeof *cps);
    }
    s->cps = cps;
    int32_t *sorted = realloc(s->sorted, cap * sizeof *sorted);
    if (!sorted) {
        return err_no_memory(err, cap * sizeof *sorted);
    }
    s->sorted = sorted;
    s->cap = cap;
    return SMOE_OK;
}

static int decompose(span *s, uint32_t cp, smoe_error *err) {
    int ignored = 0;
    int rc = reserve(s, DECOMPOSED_MAX, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    utf8proc_ssize_t n =
        utf8proc_decompose_char((int32_t)cp, s->cps + s->n, DECOMPOSED_MAX, s->options, &ignored);
    if (n < 0 || n > DECOMPOSED_MAX) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "cannot normalise U+%04X", cp);
    }
    s->n += (size_t)n;
    return SMOE_OK;
}

static void order_few_marks(int32_t *cps, size_t n) {
    for (size_t i = 1; i < n; i++) {
        int32_t cp = cps[i];
        size_t k = i;
        while (k > 0 && combining_class(cps[k - 1]) > combining_class(cp)) {
            cps[k] = cps[k - 1];
            k--;
        }
        cps[k] = cp;
    }
}

/* Stable counting sort of cps[first..last) by combining class, none of which is 0. */
static void order_marks(span *s, size_t first, size_t last) {
    size_t start[CCC_VALUES + 1] = {0};
    for (size_t i = first; i < last; i++) {
        start[combining_class(s->cps[i]) + 1]++;
    }
    for (size_t c = 1; c <= CCC_VALUES; c++) {
        start[c] += start[c - 1];
    }
    for (size_t i = first; i < last; i++) {
        s->sorted[start[combining_class(s->cps[i])]++] = s->cps[i];
    }
    memcpy(s->cps + first, s->sorted, (last - first) * sizeof *s->cps);
}

static void order_all_marks(span *s) {
    for (size_t i = 0; i < s->n;) {
        size_t first = i;
        while (i < s->n && combining_class(s->cps[i]) != 0) {
            i++;
        }
        if (i - first <= FEW_MARKS) {
            order_few_marks(s->cps + first, i - first);
        } else {
            order_marks(s, first, i);
        }
        i += i == first;
    }
}

/* Normalises what the span holds and empties it. */
static int flush(span *s, byte_buf *out, smoe_error *err) {
    int rc = SMOE_OK;
    order_all_marks(s);
    utf8proc_ssize_t n = (utf8proc_ssize_t)s->n;
    if (s->options & UTF8PROC_COMPOSE) {
        n = utf8proc_normalize_utf32(s->cps, n, s->options);
    }
    for (utf8proc_ssize_t i = 0; i < n && rc == SMOE_OK; i++) {
        uint8_t text[4];
        rc = buf_append(out, text, utf8_encode((uint32_t)s->cps[i], text), err);
    }
    s->n = 0;
    return rc;
}

/* Loop state: text[copied..i) is settled but not yet appended; base is where the last stable code
 * point began, which a following mark may still change. */
static int normalize_form(utf8proc_option_t options, const char *text, size_t bytes, byte_buf *out,
                          smoe_error *err) {
    span s = {.options = options};
    size_t copied = 0;
    size_t base = 0;
    int rc = SMOE_OK;
    for (size_t i = 0; i < bytes && rc == SMOE_OK;) {
        uint32_t cp = 0;
        size_t used = utf8_decode((const uint8_t *)text + i, bytes - i, &cp);
        bool is_new = cp >= 0x300 && ucd_is_since_9(cp);
        if (is_new || is_stable(cp, options)) {
            if (s.n) {
                rc = flush(&s, out, err);
                copied = i;
            }
            base = is_new ? i + used : i;
            i += used;
            continue;
        }
        if (s.n == 0) {
            rc = buf_append(out, text + copied, base - copied, err);
            if (base < i && rc == SMOE_OK) {
                uint32_t first = 0;
                utf8_decode((const uint8_t *)text + base, bytes - base, &first);
                rc = decompose(&s, first, err);
            }
        }
        rc = rc ? rc : decompose(&s, cp, err);
        i += used;
        copied = base = i;
    }
    if (rc == SMOE_OK && s.n) {
        rc = flush(&s, out, err);
    }
    rc = rc ? rc : buf_append(out, text + copied, bytes - copied, err);
    free(s.cps);
    free(s.sorted);
    return rc;
}

/* ---- strings and characters */

static int replace_text(const normalize_step *step, const char *text, size_t bytes,
                        normalize_place *place, byte_buf *out, smoe_error *err) {
    const char *start = text;
    const char *end = text + bytes;
    int rc = SMOE_OK;
    while (rc == SMOE_OK) {
        const char *hit = memmem(text, (size_t)(end - text), step->from, step->from_bytes);
        rc = buf_append(out, text, (size_t)((hit ? hit : end) - text), err);
        if (!hit) {
            break;
        }
        uint32_t cp = 0;
        bool is_one = utf8_decode((const uint8_t *)hit, step->from_bytes, &cp) == step->from_bytes;
        place->keeps_start &= hit != start || (is_one && step->to_bytes > 0);
        rc = rc ? rc : buf_append(out, step->to, step->to_bytes, err);
        text = hit + step->from_bytes;
    }
    return rc;
}

/* Bytes of the n code points at p. */
static size_t bytes_of(const char *p, size_t n) {
    size_t bytes = 0;
    for (; n > 0; n--) {
        uint8_t b = (uint8_t)p[bytes];
        bytes += b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    }
    return bytes;
}

static int replace_matches(const normalize_step *step, pattern_scan *scan, const char *text,
                           size_t bytes, normalize_place *place, byte_buf *out, smoe_error *err) {
    size_t at = 0;    /* the byte ... */
    size_t class = 0; /* ... of this code point */
    int rc = SMOE_OK;
    while (rc == SMOE_OK) {
        size_t start = 0;
        size_t end = 0;
        bool found = false;
        rc = pattern_scan_next(scan, &start, &end, &found, err);
        if (rc != SMOE_OK || !found) {
            break;
        }
        size_t gap = bytes_of(text + at, start - class);
        rc = buf_append(out, text + at, gap, err);
        rc = rc ? rc : buf_append(out, step->to, step->to_bytes, err);
        place->keeps_start &= start > 0 || (end <= 1 && step->to_bytes > 0);
        at += gap + bytes_of(text + at + gap, end - start);
        class = end;
    }
    return rc ? rc : buf_append(out, text + at, bytes - at, err);
}

static int replace_pattern(const normalize_step *step, const char *text, size_t bytes,
                           normalize_place *place, byte_buf *out, smoe_error *err) {
    pattern_scan scan = {0};
    uint8_t *classes = malloc(bytes + 1);
    int rc = classes ? pattern_scan_init(&scan, step->pattern, err) : err_no_memory(err, bytes + 1);
    if (rc == SMOE_OK) {
        pattern_scan_start(&scan, classes, pattern_classify(step->pattern, text, bytes, classes));
        rc = replace_matches(step, &scan, text, bytes, place, out, err);
    }
    pattern_scan_free(&scan);
    free(classes);
    return rc;
}

static int prepend(const normalize_step *step, const char *text, size_t bytes, byte_buf *out,
                   smoe_error *err) {
    int rc = bytes ? buf_append(out, step->to, step->to_bytes, err) : SMOE_OK;
    return rc ? rc : buf_append(out, text, bytes, err);
}

static int strip(const normalize_step *step, const char *text, size_t bytes, normalize_place *place,
                 byte_buf *out, smoe_error *err) {
    size_t start = 0;
    size_t end = 0; /* behind the last character that is no space */
    bool is_leading = true;
    for (size_t i = 0; i < bytes;) {
        uint32_t cp = 0;
        size_t used = utf8_decode((const uint8_t *)text + i, bytes - i, &cp);
        bool is_space = ucd_is_space(cp);
        i += used;
        is_leading &= is_space;
        start = is_leading ? i : start;
        end = is_space ? end : i;
    }
    start = step->strip_left ? start : 0;
    end = step->strip_right ? end : bytes;
    place->keeps_start &= start == 0;
    return end > start ? buf_append(out, text + start, end - start, err) : SMOE_OK;
}

static int lowercase(const char *text, size_t bytes, byte_buf *out, smoe_error *err) {
    int rc = SMOE_OK;
    for (size_t i = 0; i < bytes && rc == SMOE_OK;) {
        uint32_t cp = 0;
        uint32_t low[2];
        uint8_t encoded[8];
        size_t n = 0;
        i += utf8_decode((const uint8_t *)text + i, bytes - i, &cp);
        size_t n_low = ucd_lower(cp, low);
        for (size_t k = 0; k < n_low; k++) {
            n += utf8_encode(low[k], encoded + n);
        }
        rc = buf_append(out, encoded, n, err);
    }
    return rc;
}

/* The reference library looks a whole grapheme cluster of up to five bytes up, then its characters,
 * and takes the shortest entry at its start for all of it. */
static int apply_map(const charsmap *map, const char *text, size_t bytes, byte_buf *out,
                     smoe_error *err) {
    int rc = SMOE_OK;
    for (size_t i = 0; i < bytes && rc == SMOE_OK;) {
        const char *to = NULL;
        size_t cluster = ucd_grapheme(text + i, bytes - i);
        if (cluster < 6 && charsmap_find(map, text + i, cluster, false, &to)) {
            rc = buf_append(out, to, strlen(to), err);
            i += cluster;
            continue;
        }
        for (size_t end = i + cluster; i < end && rc == SMOE_OK;) {
            size_t used = bytes_of(text + i, 1);
            bool found = charsmap_find(map, text + i, used, false, &to) > 0;
            rc =
                found ? buf_append(out, to, strlen(to), err) : buf_append(out, text + i, used, err);
            i += used;
        }
    }
    return rc;
}

/* ---- one step */

void normalize_step_free(normalize_step *step) {
    pattern_free(step->pattern);
    charsmap_free(&step->map);
    trie_free(&step->verbatim);
    step->pattern = NULL;
}

int normalize_apply(const normalize_step *step, const char *text, size_t bytes,
                    normalize_place *place, byte_buf *out, smoe_error *err) {
    normalize_place whole = {.is_start = true, .is_end = true, .keeps_start = true};
    place = place ? place : &whole;
    switch (step->kind) {
    case NORMALIZE_REPLACE:
        return step->pattern ? replace_pattern(step, text, bytes, place, out, err)
                             : replace_text(step, text, bytes, place, out, err);
    case NORMALIZE_PREPEND:
        return prepend(step, text, bytes, out, err);
    case NORMALIZE_STRIP:
        return strip(step, text, bytes, place, out, err);
    case NORMALIZE_LOWERCASE:
        return lowercase(text, bytes, out, err);
    case NORMALIZE_PRECOMPILED:
        return apply_map(&step->map, text, bytes, out, err);
    case NORMALIZE_SENTENCEPIECE:
        return normalize_sentencepiece(step, text, bytes, place, out, err);
    default:
        return normalize_form(options_of(step->kind), text, bytes, out, err);
    }
}
