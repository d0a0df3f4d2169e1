/* Cutting text; see pretok.h. Depth first: each piece of a step goes through the later steps before
 * the next one is looked for, so nothing is stored but one class string for each step.
 */
#include "text/pretok.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

void pretok_free(pretok *p) {
    for (size_t i = 0; i < p->n_step; i++) {
        pattern_free(p->steps[i].pattern);
    }
    *p = (pretok){0};
}

int pretok_run_init(pretok_run *r, const pretok *p, pretok_fn fn, void *user, smoe_error *err) {
    *r = (pretok_run){.pretok = p, .fn = fn, .user = user};
    int rc = SMOE_OK;
    for (size_t i = 0; i < p->n_step && rc == SMOE_OK; i++) {
        if (p->steps[i].kind == PRETOK_PATTERN) {
            rc = pattern_scan_init(&r->at[i].scan, p->steps[i].pattern, err);
        }
    }
    return rc;
}

void pretok_run_free(pretok_run *r) {
    for (size_t i = 0; i < PRETOK_STEPS; i++) {
        pattern_scan_free(&r->at[i].scan);
        free(r->at[i].classes);
        buf_free(&r->at[i].changed);
    }
    free(r->prefixed);
    *r = (pretok_run){0};
}

/* ---- matches of one step in one piece */

typedef struct finder {
    pretok_run *run;
    size_t index;
    const char *text;
    size_t bytes;
    size_t byte_at;  /* the byte ... */
    size_t class_at; /* ... of this code point, where the last match ended or began */
    bool is_ascii;
    size_t next; /* literals and digits: where to look on */
} finder;

static int finder_start(finder *f, smoe_error *err) {
    const pretok_step *step = &f->run->pretok->steps[f->index];
    if (step->kind != PRETOK_PATTERN) {
        return SMOE_OK;
    }
    uint8_t **classes = &f->run->at[f->index].classes;
    size_t *cap = &f->run->at[f->index].cap;
    if (*cap < f->bytes) {
        free(*classes);
        size_t want = f->bytes < 4096 ? 4096 : f->bytes;
        *classes = malloc(want);
        *cap = *classes ? want : 0;
        if (!*classes) {
            return err_no_memory(err, want);
        }
    }
    size_t n = pattern_classify(step->pattern, f->text, f->bytes, *classes);
    f->is_ascii = n == f->bytes;
    pattern_scan_start(&f->run->at[f->index].scan, *classes, n);
    return SMOE_OK;
}

/* Byte offset of a code point at or behind the last one asked for. */
static size_t byte_offset(finder *f, size_t class_at) {
    if (f->is_ascii) {
        return class_at;
    }
    while (f->class_at < class_at) {
        uint8_t b = (uint8_t)f->text[f->byte_at];
        f->byte_at += b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
        f->class_at++;
    }
    return f->byte_at;
}

static bool next_literal(finder *f, const pretok_step *step, size_t *start, size_t *end) {
    const char *hit =
        memmem(f->text + f->next, f->bytes - f->next, step->literal, step->literal_bytes);
    if (!hit) {
        return false;
    }
    *start = (size_t)(hit - f->text);
    *end = f->next = *start + step->literal_bytes;
    return true;
}

/* What the reference library calls punctuation, from a table of Unicode 8. */
static bool is_punctuation(uint32_t cp) {
    static const ucd_range since_8[] = {{0x2e43, 0x2e44},   {0x1144b, 0x1144f}, {0x1145b, 0x1145b},
                                        {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x11c41, 0x11c45},
                                        {0x11c70, 0x11c71}, {0x1e95e, 0x1e95f}};
    const uint32_t mask = 1u << UCD_PC | 1u << UCD_PD | 1u << UCD_PS | 1u << UCD_PE | 1u << UCD_PI |
                          1u << UCD_PF | 1u << UCD_PO;
    if (cp < 0x80) {
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    }
    if (cp == 0x166d || cp == 0x111c9) {
        return true; /* no longer */
    }
    if (!(mask >> (ucd_class(cp) & UCD_CATEGORY_MASK) & 1) || ucd_is_since_9(cp)) {
        return false;
    }
    for (size_t i = 0; i < sizeof since_8 / sizeof *since_8; i++) {
        if (cp >= since_8[i].first && cp <= since_8[i].last) {
            return false;
        }
    }
    return true;
}

static bool is_match(enum pretok_kind kind, uint32_t cp) {
    switch (kind) {
    case PRETOK_DIGITS:
        return ucd_is_number(cp);
    case PRETOK_PUNCTUATION:
        return is_punctuation(cp);
    default:
        return ucd_is_space(cp);
    }
}

/* The next character that is a match by itself. */
static bool next_char(finder *f, const pretok_step *step, size_t *start, size_t *end) {
    while (f->next < f->bytes) {
        uint32_t cp = 0;
        *start = f->next;
        f->next += utf8_decode((const uint8_t *)f->text + f->next, f->bytes - f->next, &cp);
        *end = f->next;
        if (is_match(step->kind, cp)) {
            return true;
        }
    }
    return false;
}

/* 0: white space, 1: a word character, 2: another. */
static int word_kind(uint32_t cp) {
    return ucd_is_word(cp) ? 1 : ucd_is_space(cp) ? 0 : 2;
}

static bool next_word(finder *f, size_t *start, size_t *end) {
    int kind = 0;
    while (f->next < f->bytes) {
        uint32_t cp = 0;
        size_t used = utf8_decode((const uint8_t *)f->text + f->next, f->bytes - f->next, &cp);
        int next = word_kind(cp);
        if (kind != 0 && next != kind) {
            break;
        }
        if (kind == 0) {
            *start = f->next;
            kind = next;
        }
        f->next += used;
        *end = f->next;
    }
    return kind != 0;
}

static int finder_next(finder *f, size_t *start, size_t *end, bool *found, smoe_error *err) {
    const pretok_step *step = &f->run->pretok->steps[f->index];
    int rc = SMOE_OK;
    switch (step->kind) {
    case PRETOK_LITERAL:
    case PRETOK_METASPACE:
        *found = next_literal(f, step, start, end);
        return SMOE_OK;
    case PRETOK_WORDS:
        *found = next_word(f, start, end);
        return SMOE_OK;
    case PRETOK_PATTERN:
        rc = pattern_scan_next(&f->run->at[f->index].scan, start, end, found, err);
        break;
    default:
        *found = next_char(f, step, start, end);
        return SMOE_OK;
    }
    if (rc == SMOE_OK && *found) {
        *start = byte_offset(f, *start);
        *end = byte_offset(f, *end);
    }
    return rc;
}

/* ---- joining matches and gaps by the behaviour */

static int run_step(pretok_run *r, size_t index, const char *text, size_t bytes, bool is_first,
                    smoe_error *err);

typedef struct joiner {
    pretok_run *run;
    size_t index;
    const char *text;
    bool is_first;  /* text is what the whole text begins with */
    bool has_piece; /* one waits for what follows */
    size_t start, end;
    bool was_match; /* the last part, false at first */
} joiner;

static int joiner_flush(joiner *j, smoe_error *err) {
    if (!j->has_piece) {
        return SMOE_OK;
    }
    j->has_piece = false;
    return j->end > j->start ? run_step(j->run, j->index + 1, j->text + j->start, j->end - j->start,
                                        j->is_first && j->start == 0, err)
                             : SMOE_OK;
}

static int joiner_add(joiner *j, size_t start, size_t end, bool is_match, smoe_error *err) {
    const pretok_step *step = &j->run->pretok->steps[j->index];
    bool joins = false;
    is_match ^= step->invert;
    switch (step->behavior) {
    case PRETOK_ISOLATED:
    case PRETOK_REMOVED:
        break;
    case PRETOK_CONTIGUOUS:
        joins = is_match == j->was_match;
        break;
    case PRETOK_MERGED_WITH_PREVIOUS:
        joins = is_match && !j->was_match;
        break;
    case PRETOK_MERGED_WITH_NEXT:
        joins = !is_match && j->was_match;
        break;
    }
    j->was_match = is_match;
    if (joins && j->has_piece) {
        j->end = end;
        return SMOE_OK;
    }
    int rc = joiner_flush(j, err);
    j->has_piece = !(step->behavior == PRETOK_REMOVED && is_match);
    j->start = start;
    j->end = end;
    return rc;
}

static int split(pretok_run *r, size_t index, const char *text, size_t bytes, bool is_first,
                 smoe_error *err) {
    finder f = {.run = r, .index = index, .text = text, .bytes = bytes};
    joiner j = {.run = r, .index = index, .text = text, .is_first = is_first};
    size_t last = 0;
    int rc = finder_start(&f, err);
    while (rc == SMOE_OK) {
        size_t start = 0;
        size_t end = 0;
        bool found;
        rc = finder_next(&f, &start, &end, &found, err);
        if (rc != SMOE_OK || !found) {
            break;
        }
        if (start > last) {
            rc = joiner_add(&j, last, start, false, err);
        }
        rc = rc ? rc : joiner_add(&j, start, end, true, err);
        last = end;
    }
    if (rc == SMOE_OK && last < bytes) {
        rc = joiner_add(&j, last, bytes, false, err);
    }
    return rc ? rc : joiner_flush(&j, err);
}

/* ---- the steps */

static int add_space(pretok_run *r, const char *text, size_t bytes, smoe_error *err) {
    if (r->cap_prefixed < bytes + 1) {
        char *grown = realloc(r->prefixed, bytes + 1);
        if (!grown) {
            return err_no_memory(err, bytes + 1);
        }
        r->prefixed = grown;
        r->cap_prefixed = bytes + 1;
    }
    r->prefixed[0] = ' ';
    memcpy(r->prefixed + 1, text, bytes);
    return SMOE_OK;
}

static int metaspace(pretok_run *r, size_t index, const char *text, size_t bytes, bool is_first,
                     smoe_error *err) {
    const pretok_step *step = &r->pretok->steps[index];
    byte_buf *out = &r->at[index].changed;
    bool has_symbol = text[0] == ' ' || (bytes >= step->literal_bytes &&
                                         memcmp(text, step->literal, step->literal_bytes) == 0);
    bool prepends = step->prepend == PRETOK_PREPEND_ALWAYS ||
                    (step->prepend == PRETOK_PREPEND_FIRST && is_first);
    int rc = SMOE_OK;
    out->bytes = 0;
    out->max_bytes = SIZE_MAX / 2;
    if (prepends && !has_symbol) {
        rc = buf_append(out, step->literal, step->literal_bytes, err);
    }
    while (bytes > 0 && rc == SMOE_OK) {
        const char *space = memchr(text, ' ', bytes);
        size_t plain = space ? (size_t)(space - text) : bytes;
        rc = buf_append(out, text, plain, err);
        if (space && rc == SMOE_OK) {
            rc = buf_append(out, step->literal, step->literal_bytes, err);
            plain++;
        }
        text += plain;
        bytes -= plain;
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    return step->keeps_whole ? run_step(r, index + 1, out->data, out->bytes, is_first, err)
                             : split(r, index, out->data, out->bytes, is_first, err);
}

/* The steps from index on; recursion is bounded by PRETOK_STEPS. */
static int run_step(pretok_run *r, size_t index, const char *text, size_t bytes, bool is_first,
                    smoe_error *err) {
    const pretok *p = r->pretok;
    if (index == p->n_before_prefix && p->add_prefix_space && text[0] != ' ') {
        int rc = add_space(r, text, bytes, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        text = r->prefixed;
        bytes++;
    }
    if (index == p->n_step) {
        return r->fn(r->user, text, bytes, err);
    }
    return p->steps[index].kind == PRETOK_METASPACE
               ? metaspace(r, index, text, bytes, is_first, err)
               : split(r, index, text, bytes, is_first, err);
}

int pretok_run_text(pretok_run *r, const char *text, size_t bytes, bool is_first, smoe_error *err) {
    return bytes ? run_step(r, 0, text, bytes, is_first, err) : SMOE_OK;
}
