/* Compiled patterns and scans over class strings; see pattern.h. Character sets become bytes here:
 * code points beyond ASCII that lie in the same sets share one.
 *
 * Cost: the engine reports each pass of a place to which it may come back (PATTERN_COUNT). Passes,
 * and the characters between them, are taken from a budget that is linear in the text, so a hostile
 * pattern ends in an error instead of a hang. PCRE2's own limit would not do: its JIT leaves the
 * characters of a repeat out.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pattern_parse.h"

enum {
    PAGE_BITS = 8,
    PAGE_CPS = 1 << PAGE_BITS,
    PAGES = (UCD_LAST + 1) >> PAGE_BITS,
    OTHER_CLASSES = 128 /* class bytes for code points beyond ASCII */
};
#define SPARE_STEPS           (4u << 20) /* of all searches together ... */
#define SPARE_STEPS_PER_CLASS 64u        /* ... and for each code point */

struct text_pattern {
    pcre2_code *code;
    char *where; /* for errors */
    uint16_t page_of[PAGES];
    uint8_t (*pages)[PAGE_CPS];
    bool has_jit;
};

/* ---- from sets to class bytes */

typedef struct class_map {
    uint64_t members[OTHER_CLASSES]; /* the sets that hold class 0x80 + i, one bit each */
    unsigned n_class;
    uint8_t *of; /* [UCD_LAST + 1] */
} class_map;

static int compare_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorted code points at which membership in some set may change, from 0x80 on; the last is
 * UCD_LAST + 1. *edges is the caller's. */
static int find_edges(const pattern_parsed *p, uint32_t **edges, size_t *n_edge, smoe_error *err) {
    size_t n = 2;
    for (unsigned i = 0; i < p->n_set; i++) {
        n += 2 * p->sets[i].n_range;
    }
    uint32_t *e = mem_array(n, sizeof *e);
    if (!e) {
        return err_no_memory(err, n * sizeof *e);
    }
    size_t k = 0;
    e[k++] = 0x80;
    e[k++] = UCD_LAST + 1;
    for (unsigned i = 0; i < p->n_set; i++) {
        for (size_t r = 0; r < p->sets[i].n_range; r++) {
            ucd_range range = p->sets[i].ranges[r];
            e[k++] = range.first < 0x80 ? 0x80 : range.first;
            e[k++] = range.last < 0x80 ? 0x80 : range.last + 1;
        }
    }
    qsort(e, k, sizeof *e, compare_u32);
    *edges = e;
    *n_edge = k;
    return SMOE_OK;
}

static int class_of(class_map *map, uint64_t members, const char *where, uint8_t *class,
                    smoe_error *err) {
    unsigned i = 0;
    while (i < map->n_class && map->members[i] != members) {
        i++;
    }
    if (i == OTHER_CLASSES) {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "%s: the pattern tells more than %d kinds of characters apart", where,
                       OTHER_CLASSES);
    }
    if (i == map->n_class) {
        map->members[map->n_class++] = members;
    }
    *class = (uint8_t)(0x80 + i);
    return SMOE_OK;
}

static int map_classes(class_map *map, const pattern_parsed *p, const char *where,
                       smoe_error *err) {
    uint32_t *edges = NULL;
    size_t n_edge = 0;
    int rc = find_edges(p, &edges, &n_edge, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (uint32_t cp = 0; cp < 0x80; cp++) {
        map->of[cp] = (uint8_t)cp;
    }
    for (size_t i = 0; i + 1 < n_edge && rc == SMOE_OK; i++) {
        uint64_t members = 0;
        uint8_t class = 0;
        if (edges[i] == edges[i + 1]) {
            continue;
        }
        for (unsigned s = 0; s < p->n_set; s++) {
            members |= (uint64_t)cp_set_has(&p->sets[s], edges[i]) << s;
        }
        rc = class_of(map, members, where, &class, err);
        memset(map->of + edges[i], class, edges[i + 1] - edges[i]);
    }
    free(edges);
    return rc;
}

/* Folds the flat map into pages, equal ones shared. Most equal the one before. */
static int build_pages(text_pattern *p, const uint8_t *of, smoe_error *err) {
    size_t n = 0;
    size_t cap = 0;
    for (size_t i = 0; i < PAGES; i++) {
        const uint8_t *page = of + i * PAGE_CPS;
        size_t k = i > 0 ? p->page_of[i - 1] : n;
        if (k == n || memcmp(p->pages[k], page, PAGE_CPS) != 0) {
            k = 0;
            while (k < n && memcmp(p->pages[k], page, PAGE_CPS) != 0) {
                k++;
            }
        }
        if (k == n && n == cap) {
            cap = cap ? cap * 2 : 64;
            void *grown = realloc(p->pages, cap * PAGE_CPS);
            if (!grown) {
                return err_no_memory(err, cap * PAGE_CPS);
            }
            p->pages = grown;
        }
        if (k == n) {
            memcpy(p->pages[n++], page, PAGE_CPS);
        }
        p->page_of[i] = (uint16_t)k;
    }
    return SMOE_OK;
}

/* ---- compiling */

static int write_set(byte_buf *out, const cp_set *set, const uint64_t *members, unsigned n_class,
                     unsigned index, smoe_error *err) {
    bool has[256] = {false};
    bool is_empty = true;
    for (unsigned c = 0; c < 256; c++) {
        has[c] =
            c < 0x80 ? cp_set_has(set, c) : c - 0x80 < n_class && (members[c - 0x80] >> index & 1);
        is_empty &= !has[c];
    }
    if (is_empty) {
        return buf_printf(out, err, "(?!)");
    }
    int rc = buf_printf(out, err, "[");
    for (unsigned c = 0; c < 256 && rc == SMOE_OK; c++) {
        unsigned last = c;
        if (!has[c]) {
            continue;
        }
        while (last < 255 && has[last + 1]) {
            last++;
        }
        rc = last > c ? buf_printf(out, err, "\\x%02x-\\x%02x", c, last)
                      : buf_printf(out, err, "\\x%02x", c);
        c = last;
    }
    return rc ? rc : buf_printf(out, err, "]");
}

/* The parsed text with its marks resolved. */
static int write_regex(byte_buf *out, const pattern_parsed *p, const class_map *map,
                       smoe_error *err) {
    int rc = SMOE_OK;
    for (size_t i = 0; i < p->text.bytes && rc == SMOE_OK; i++) {
        if (p->text.data[i] != PATTERN_SET_MARK) {
            rc = buf_append(out, p->text.data + i, 1, err);
            continue;
        }
        unsigned index = (unsigned char)p->text.data[++i] - 1u;
        rc = write_set(out, &p->sets[index], map->members, map->n_class, index, err);
    }
    return rc;
}

static int compile_regex(text_pattern *p, const char *regex, size_t bytes, smoe_error *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int code = 0;
    PCRE2_SIZE at = 0;
    if (!context) {
        return err_no_memory(err, bytes);
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* The start optimisations gain nothing, as tokenizers match almost everywhere, and the JIT of
     * 10.42 goes wrong with them: (?>z*'|)' finds a match in z't, where there is none. */
    p->code = pcre2_compile((PCRE2_SPTR)regex, bytes, PCRE2_MULTILINE | PCRE2_NO_START_OPTIMIZE,
                            &code, &at, context);
    pcre2_compile_context_free(context);
    if (!p->code && code == PCRE2_ERROR_HEAP_FAILED) {
        return err_no_memory(err, bytes);
    }
    if (!p->code) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: the pattern is not supported: %s", p->where,
                       why);
    }
    /* without JIT (not built in, or the system forbids executable memory) results are the same */
    p->has_jit = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    return SMOE_OK;
}

static int build(text_pattern *p, const pattern_parsed *parsed, smoe_error *err) {
    class_map map = {.of = malloc(UCD_LAST + 1)};
    byte_buf regex = {.max_bytes = 1u << 20};
    int rc = map.of ? map_classes(&map, parsed, p->where, err) : err_no_memory(err, UCD_LAST + 1);
    rc = rc ? rc : build_pages(p, map.of, err);
    rc = rc ? rc : write_regex(&regex, parsed, &map, err);
    rc = rc ? rc : compile_regex(p, regex.data, regex.bytes, err);
    buf_free(&regex);
    free(map.of);
    return rc;
}

int pattern_compile(text_pattern **out, const char *source, size_t bytes, const char *where,
                    smoe_error *err) {
    pattern_parsed *parsed = mem_array(1, sizeof *parsed);
    text_pattern *p = mem_array(1, sizeof *p);
    int rc = SMOE_OK;
    if (p) {
        p->where = mem_copy_text(where, strlen(where));
    }
    if (!parsed || !p || !p->where) {
        rc = err_no_memory(err, sizeof *p);
    }
    rc = rc ? rc : pattern_parse(parsed, source, bytes, where, err);
    rc = rc ? rc : build(p, parsed, err);
    if (parsed) {
        pattern_parsed_free(parsed);
    }
    free(parsed);
    if (rc != SMOE_OK) {
        pattern_free(p);
        return rc;
    }
    *out = p;
    return SMOE_OK;
}

void pattern_free(text_pattern *p) {
    if (p) {
        pcre2_code_free(p->code);
        free(p->pages);
        free(p->where);
        free(p);
    }
}

size_t pattern_classify(const text_pattern *p, const char *text, size_t bytes, uint8_t *classes) {
    size_t n = 0;
    for (size_t i = 0; i < bytes;) {
        uint8_t b = (uint8_t)text[i];
        uint32_t cp = 0;
        if (b < 0x80) {
            classes[n++] = b;
            i++;
            continue;
        }
        i += utf8_decode((const uint8_t *)text + i, bytes - i, &cp);
        classes[n++] = p->pages[p->page_of[cp >> PAGE_BITS]][cp & (PAGE_CPS - 1)];
    }
    return n;
}

/* ---- scanning */

/* Called by PCRE2 at each PATTERN_COUNT. */
static int count_steps(pcre2_callout_block *block, void *user) {
    pattern_scan *s = user;
    size_t at = block->current_position;
    size_t steps = 1 + (at > s->counted_at ? at - s->counted_at : s->counted_at - at);
    s->counted_at = at;
    if (steps > s->spare_step) {
        return PCRE2_ERROR_MATCHLIMIT;
    }
    s->spare_step -= steps;
    return 0;
}

int pattern_scan_init(pattern_scan *s, const text_pattern *p, smoe_error *err) {
    *s = (pattern_scan){.pattern = p, .spare_step = SPARE_STEPS};
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (!s->match || !s->context) {
        return err_no_memory(err, sizeof *s);
    }
    pcre2_set_callout(s->context, count_steps, s);
    pcre2_set_match_limit(s->context, UINT32_MAX);
    return SMOE_OK;
}

void pattern_scan_free(pattern_scan *s) {
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    *s = (pattern_scan){0};
}

void pattern_scan_start(pattern_scan *s, const uint8_t *classes, size_t n_class) {
    s->classes = classes;
    s->n_class = n_class;
    s->next = 0;
    s->has_match = false;
    s->spare_step += (uint64_t)SPARE_STEPS_PER_CLASS * n_class;
}

/* One search from s->next; > 0 found, 0 none, < 0 a PCRE2 error. */
static int search(pattern_scan *s) {
    const text_pattern *p = s->pattern;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    s->counted_at = s->next;
    if (p->has_jit) {
        rc = pcre2_jit_match(p->code, s->classes, s->n_class, s->next, 0, s->match, s->context);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(p->code, s->classes, s->n_class, s->next, PCRE2_NO_JIT, s->match,
                         s->context);
    }
    return rc == PCRE2_ERROR_NOMATCH ? 0 : rc;
}

int pattern_scan_next(pattern_scan *s, size_t *start, size_t *end, bool *found, smoe_error *err) {
    *found = false;
    while (s->next <= s->n_class) {
        int rc = search(s);
        if (rc == PCRE2_ERROR_NOMEMORY) {
            return err_no_memory(err, s->n_class);
        }
        if (rc < 0) {
            return err_set(err, SMOE_ERR_UNSUPPORTED,
                           "%s: the pattern takes too many steps on this text", s->pattern->where);
        }
        if (rc == 0) {
            s->next = s->n_class + 1;
            return SMOE_OK;
        }
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
        if (at[0] == at[1] && s->has_match && s->last_end == at[1]) {
            s->next++;
            continue;
        }
        *start = at[0];
        *end = at[1];
        s->next = s->last_end = at[1];
        s->has_match = true;
        *found = true;
        return SMOE_OK;
    }
    return SMOE_OK;
}
