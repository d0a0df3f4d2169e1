/* Regular expressions of schemas: the part of ECMA-262's syntax that finite automata can follow.
 * Characters are turned into what stands for them inside a JSON string. Anchors may stand at the
 * ends of the alternatives of the whole; without one, anything may stand there. */
#include <string.h>

#include "base/utf8.h"
#include "text/schema_impl.h"

enum { REGEX_NESTING = 100, REGEX_REPEAT = 1000 };

typedef struct regex {
    schema_reader *r;
    const schema_place *at;
    const char *text;
    size_t bytes;
    size_t pos;
    uint32_t depth;
} regex;

static void *refuse(const regex *x, const char *what) {
    return schema_wrong(x->r, x->at, "%s (at byte %zu) is not supported in a regular expression",
                        what, x->pos);
}

static bool failed(const regex *x) {
    return grammar_status(x->r->g) != SMOE_OK;
}

static int peek(const regex *x) {
    return x->pos < x->bytes ? (uint8_t)x->text[x->pos] : -1;
}

static bool skip(regex *x, const char *text) {
    size_t n = strlen(text);
    bool is_there = x->bytes - x->pos >= n && memcmp(x->text + x->pos, text, n) == 0;
    x->pos += is_there ? n : 0;
    return is_there;
}

/* ---- characters inside a JSON string */

/* The \u00xx of a control character. */
static const grammar_node *control(schema_reader *r, uint32_t cp) {
    static const char hex[] = "0123456789abcdef";
    char text[] = "\\u0000";
    text[4] = hex[cp >> 4 & 15];
    text[5] = hex[cp & 15];
    return grammar_text(r->g, text);
}

/* How JSON writes a character that cannot stand for itself; NULL when it can. */
static const char *short_escape(uint32_t cp) {
    static const char *const escapes[] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f",
        ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
    return cp < sizeof escapes / sizeof *escapes ? escapes[cp] : NULL;
}

const grammar_node *schema_set(schema_reader *r, const cp_set *set) {
    cp_set plain = {0};
    const grammar_node *node[36];
    size_t n = 0;
    cp_set_add(&plain, 0x20, '"' - 1);
    cp_set_add(&plain, '"' + 1, '\\' - 1);
    cp_set_add(&plain, '\\' + 1, UCD_LAST);
    cp_set_intersect(&plain, set);
    node[n++] = grammar_class(r->g, &plain);
    for (uint32_t cp = 0; cp <= '\\'; cp++) {
        bool needs_escape = cp < 0x20 || cp == '"' || cp == '\\';
        if (needs_escape && cp_set_has(set, cp)) {
            const char *escape = short_escape(cp);
            node[n++] = escape ? grammar_text(r->g, escape) : control(r, cp);
        }
    }
    cp_set_free(&plain);
    return grammar_alt(r->g, n, node);
}

const grammar_node *schema_literal(schema_reader *r, const char *text, size_t bytes) {
    byte_buf out = {.max_bytes = 8 * (size_t)GRAMMAR_TEXT_BYTES};
    static const char hex[] = "0123456789abcdef";
    int rc = buf_append(&out, "", 0, NULL);
    for (size_t i = 0; i < bytes && rc == SMOE_OK; i++) {
        uint8_t b = (uint8_t)text[i];
        const char *escape = short_escape(b);
        if (escape) {
            rc = buf_append(&out, escape, 2, NULL);
        } else if (b < 0x20) {
            char code[] = {'\\', 'u', '0', '0', hex[b >> 4], hex[b & 15]};
            rc = buf_append(&out, code, sizeof code, NULL);
        } else {
            rc = buf_append(&out, text + i, 1, NULL);
        }
    }
    if (rc != SMOE_OK) {
        grammar_out_of_memory(r->g, bytes);
    }
    const grammar_node *node = rc ? NULL : grammar_bytes(r->g, out.data, out.bytes);
    buf_free(&out);
    return node;
}

/* ---- sets */

static void add_text(cp_set *set, const char *text) {
    for (; *text; text++) {
        cp_set_add(set, (uint8_t)*text, (uint8_t)*text);
    }
}

/* \d \w \s and their opposites, which are narrow enough for every reading of them: what one
 * implementation takes for white space and another does not is in neither. */
static void add_named(cp_set *set, int letter) {
    cp_set named = {0};
    switch (letter | 0x20) {
    case 'd':
        cp_set_add(&named, '0', '9');
        break;
    case 'w':
        cp_set_add(&named, '0', '9');
        cp_set_add(&named, 'A', 'Z');
        cp_set_add(&named, 'a', 'z');
        add_text(&named, "_");
        break;
    default:
        add_text(&named, "\t\n\v\f\r ");
        if (letter == 'S') {
            cp_set_add_flag(&named, UCD_SPACE);
            cp_set_add(&named, 0x1c, 0x1f);
            cp_set_add(&named, 0xfeff, 0xfeff);
        }
        break;
    }
    if (letter < 'a') {
        cp_set_invert(&named);
    }
    cp_set_union(set, &named);
    cp_set_free(&named);
}

static bool read_hex(regex *x, int digits, uint32_t *cp) {
    *cp = 0;
    for (int i = 0; i < digits; i++, x->pos++) {
        int c = peek(x);
        uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
        if (d == 16) {
            refuse(x, "an escape with too few digits");
            return false;
        }
        *cp = *cp << 4 | d;
    }
    return true;
}

/* \uHHHH, two of them for one character, or \u{H...}; the u has been read. */
static bool read_unicode(regex *x, uint32_t *cp) {
    uint32_t low;
    if (skip(x, "{")) {
        int digits = 0;
        while (digits < 6 && x->pos + (size_t)digits < x->bytes &&
               x->text[x->pos + (size_t)digits] != '}') {
            digits++;
        }
        if (!read_hex(x, digits ? digits : 1, cp)) {
            return false;
        }
        if (!skip(x, "}") || *cp > UCD_LAST) {
            refuse(x, "this \\u{...}");
            return false;
        }
        return true;
    }
    if (!read_hex(x, 4, cp)) {
        return false;
    }
    if (*cp >= 0xd800 && *cp <= 0xdbff && skip(x, "\\u")) {
        if (!read_hex(x, 4, &low)) {
            return false;
        }
        *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
        if (low < 0xdc00 || low > 0xdfff) {
            refuse(x, "half of a surrogate pair");
            return false;
        }
    } else if (*cp >= 0xd800 && *cp <= 0xdfff) {
        refuse(x, "half of a surrogate pair");
        return false;
    }
    return true;
}

/* \p{L} or \P{L}; the letter has been read. */
static void add_property(regex *x, int letter, cp_set *set) {
    const char *name = x->text + x->pos + 1;
    const char *end = peek(x) == '{' ? memchr(name, '}', x->bytes - x->pos - 1) : NULL;
    uint32_t mask = end ? ucd_category_mask(name, (size_t)(end - name)) : 0;
    cp_set named = {0};
    if (!mask) {
        refuse(x, "a property other than general categories, such as \\p{L}");
        return;
    }
    x->pos += (size_t)(end - name) + 2;
    cp_set_add_categories(&named, mask);
    if (letter == 'P') {
        cp_set_invert(&named);
    }
    cp_set_union(set, &named);
    cp_set_free(&named);
}

/* What follows a backslash: adds to set, and sets *cp when it is one character. */
static bool read_escape(regex *x, cp_set *set, bool in_class, uint32_t *cp) {
    static const char control_names[] = "tnrfv0b";
    static const char controls[] = "\t\n\r\f\v\0\b";
    int c = peek(x);
    *cp = UINT32_MAX;
    if (c <= 0) {
        return refuse(x, "a backslash before nothing");
    }
    x->pos++;
    if (strchr("dwsDWS", c)) {
        add_named(set, c);
        return true;
    }
    if (c == 'p' || c == 'P') {
        add_property(x, c, set);
        return !failed(x);
    }
    const char *found = strchr(control_names, c);
    if (c == 'u' || c == 'x') {
        if (!(c == 'u' ? read_unicode(x, cp) : read_hex(x, 2, cp))) {
            return false;
        }
    } else if (found && (c != 'b' || in_class) && (c != '0' || peek(x) < '0' || peek(x) > '9')) {
        *cp = (uint8_t)controls[found - control_names];
    } else if ((c >= '0' && c <= '9') || c == 'k') {
        return refuse(x, "a reference to a group");
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80) {
        return refuse(x, c == 'b' || c == 'B' ? "a word boundary" : "this escape");
    } else {
        *cp = (uint32_t)c;
    }
    cp_set_add(set, *cp, *cp);
    return true;
}

/* One member of a class: *cp is its character, or UINT32_MAX for a named set. */
static bool read_member(regex *x, cp_set *set, uint32_t *cp) {
    if (skip(x, "\\")) {
        return read_escape(x, set, true, cp);
    }
    x->pos += utf8_decode((const uint8_t *)x->text + x->pos, x->bytes - x->pos, cp);
    cp_set_add(set, *cp, *cp);
    return true;
}

static const grammar_node *read_class(regex *x) {
    bool invert = skip(x, "^");
    cp_set set = {0};
    while (peek(x) >= 0 && peek(x) != ']' && !failed(x)) {
        uint32_t first;
        uint32_t last;
        if (!read_member(x, &set, &first)) {
            break;
        }
        if (peek(x) != '-' || x->pos + 1 >= x->bytes || x->text[x->pos + 1] == ']') {
            continue;
        }
        x->pos++;
        if (!read_member(x, &set, &last)) {
            break;
        }
        if (first == UINT32_MAX || last == UINT32_MAX || last < first) {
            refuse(x, "this range in a class");
        } else {
            cp_set_add(&set, first, last);
        }
    }
    if (!failed(x) && !skip(x, "]")) {
        refuse(x, "a class without an end");
    }
    if (invert) {
        cp_set_invert(&set);
    }
    const grammar_node *node = failed(x) ? NULL : schema_set(x->r, &set);
    cp_set_free(&set);
    return node;
}

/* ---- expressions */

static const grammar_node *read_choice(regex *x, bool is_whole);

static const grammar_node *read_group(regex *x) {
    if (skip(x, "?")) {
        if (peek(x) == '=' || peek(x) == '!') {
            return refuse(x, "lookahead");
        }
        if (skip(x, "<")) {
            if (peek(x) == '=' || peek(x) == '!') {
                return refuse(x, "lookbehind");
            }
            while (peek(x) >= 0 && peek(x) != '>') {
                x->pos++;
            }
            skip(x, ">");
        } else if (!skip(x, ":")) {
            return refuse(x, "this kind of group");
        }
    }
    if (x->depth++ >= REGEX_NESTING) {
        return refuse(x, "so deep a nesting");
    }
    const grammar_node *node = read_choice(x, false);
    x->depth--;
    return !failed(x) && !skip(x, ")") ? refuse(x, "a group without an end") : node;
}

static const grammar_node *read_atom(regex *x) {
    cp_set set = {0};
    uint32_t cp = 0;
    int c = peek(x);
    if (skip(x, "(")) {
        return read_group(x);
    }
    if (skip(x, "[")) {
        return read_class(x);
    }
    if (c == '^' || c == '$') {
        return refuse(x, "an anchor that does not stand at an end");
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') {
        return refuse(x, "a repetition of nothing");
    }
    if (skip(x, ".")) {
        add_text(&set, "\n\r");
        cp_set_add(&set, 0x2028, 0x2029);
        cp_set_invert(&set);
    } else if (skip(x, "\\")) {
        read_escape(x, &set, false, &cp);
    } else {
        read_member(x, &set, &cp);
    }
    const grammar_node *node = failed(x) ? NULL : schema_set(x->r, &set);
    cp_set_free(&set);
    return node;
}

static bool read_number(regex *x, uint32_t *out) {
    size_t start = x->pos;
    *out = 0;
    while (peek(x) >= '0' && peek(x) <= '9' && *out <= REGEX_REPEAT) {
        *out = 10 * *out + (uint32_t)(x->text[x->pos++] - '0');
    }
    if (*out > REGEX_REPEAT) {
        refuse(x, "a repetition above 1000");
    }
    return x->pos > start;
}

static const grammar_node *read_repeats(regex *x, const grammar_node *node) {
    while (node && !failed(x)) {
        uint32_t min = 0;
        uint32_t max = GRAMMAR_MANY;
        if (skip(x, "?")) {
            max = 1;
        } else if (skip(x, "+")) {
            min = 1;
        } else if (skip(x, "{")) {
            bool is_good = read_number(x, &min);
            max = min;
            if (skip(x, ",") && !read_number(x, &max)) {
                max = GRAMMAR_MANY;
            }
            if (!is_good || !skip(x, "}") || max < min) {
                return refuse(x, "this repetition");
            }
        } else if (!skip(x, "*")) {
            return node;
        }
        skip(x, "?"); /* lazy: the same texts */
        node = grammar_repeat(x->r->g, node, min, max);
    }
    return NULL;
}

/* One alternative; of the whole it may have anchors. */
static const grammar_node *read_sequence(regex *x, bool is_whole) {
    grammar *g = x->r->g;
    const grammar_node *all = grammar_text(g, "");
    const grammar_node *part[64];
    size_t n = 0;
    bool begins = is_whole && skip(x, "^");
    bool ends = false;
    while (!failed(x) && peek(x) >= 0 && peek(x) != '|' && peek(x) != ')') {
        bool is_last = x->pos + 1 == x->bytes || x->text[x->pos + 1] == '|';
        if (is_whole && peek(x) == '$' && is_last) {
            x->pos++;
            ends = true;
            break;
        }
        if (n == sizeof part / sizeof *part) {
            all = GRAMMAR_SEQ_OF(g, all, grammar_seq(g, n, part));
            n = 0;
        }
        part[n++] = read_repeats(x, read_atom(x));
    }
    all = GRAMMAR_SEQ_OF(g, all, grammar_seq(g, n, part));
    if (is_whole) {
        const grammar_node *nothing = grammar_text(g, "");
        const grammar_node *anything =
            begins && ends ? nothing : grammar_repeat(g, schema_char(x->r, true), 0, GRAMMAR_MANY);
        all = GRAMMAR_SEQ_OF(g, begins ? nothing : anything, all, ends ? nothing : anything);
    }
    return all;
}

static const grammar_node *read_choice(regex *x, bool is_whole) {
    const grammar_node *choice = read_sequence(x, is_whole);
    const grammar_node *part[64];
    size_t n = 0;
    part[n++] = choice;
    while (!failed(x) && skip(x, "|")) {
        if (n == sizeof part / sizeof *part) {
            part[0] = grammar_alt(x->r->g, n, part);
            n = 1;
        }
        part[n++] = read_sequence(x, is_whole);
    }
    return grammar_alt(x->r->g, n, part);
}

const grammar_node *schema_regex(schema_reader *r, const char *pattern, size_t bytes,
                                 const schema_place *at) {
    regex x = {.r = r, .at = at, .text = pattern, .bytes = bytes};
    const grammar_node *node = read_choice(&x, true);
    if (!failed(&x) && x.pos < x.bytes) {
        return refuse(&x, "an unmatched \")\"");
    }
    return node;
}
