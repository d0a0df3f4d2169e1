/* The reader of GBNF: rules `name ::= alternatives`, strings, classes, `.`, groups, repetitions and
 * comments, as llama.cpp writes them. A rule ends with its line, unless a group is open or `|` or
 * `::=` stands at the end of the line.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar.h"

enum { NESTING = 200 };

typedef struct reader {
    grammar *g;
    const char *text;
    size_t bytes;
    size_t at;
    uint32_t depth; /* groups that are open */
    size_t counted; /* line ends before here are in n_line */
    uint32_t n_line;
} reader;

/* ---- messages */

static uint32_t line_of(reader *r, size_t at) {
    if (at < r->counted) {
        r->counted = 0;
        r->n_line = 0;
    }
    for (; r->counted < at; r->counted++) {
        r->n_line += r->text[r->counted] == '\n';
    }
    return r->n_line + 1;
}

/* In characters, from 1. */
static uint32_t column_of(const reader *r, size_t at) {
    uint32_t column = 1;
    while (at > 0 && r->text[at - 1] != '\n') {
        at--;
        column += ((uint8_t)r->text[at] & 0xc0) != 0x80;
    }
    return column;
}

/* Notes the first error, at a byte offset; returns NULL. */
__attribute__((format(printf, 3, 4))) static void *wrong(reader *r, size_t at, const char *format,
                                                         ...) {
    if (r->g->status == SMOE_OK) {
        char why[400];
        va_list args;
        va_start(args, format);
        vsnprintf(why, sizeof why, format, args);
        va_end(args);
        r->g->status = err_set(r->g->err, SMOE_ERR_FORMAT, "grammar: line %u, column %u: %s",
                               line_of(r, at), column_of(r, at), why);
    }
    return NULL;
}

static bool failed(const reader *r) {
    return r->g->status != SMOE_OK;
}

/* ---- characters */

static int peek(const reader *r) {
    return r->at < r->bytes ? (uint8_t)r->text[r->at] : -1;
}

static bool has(const reader *r, const char *text) {
    size_t n = strlen(text);
    return r->bytes - r->at >= n && memcmp(r->text + r->at, text, n) == 0;
}

/* White space and comments; line ends only where they do not end a rule. */
static void skip_space(reader *r, bool over_lines) {
    for (int c = peek(r); c >= 0; c = peek(r)) {
        if (c == '#') {
            while (peek(r) >= 0 && peek(r) != '\n') {
                r->at++;
            }
        } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && over_lines)) {
            r->at++;
        } else {
            return;
        }
    }
}

static bool is_name_char(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t read_name(reader *r) {
    size_t start = r->at;
    while (is_name_char(peek(r))) {
        r->at++;
    }
    return r->at - start;
}

static int hex_value(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* What follows a backslash. False after an error. */
static bool read_escape(reader *r, uint32_t *cp) {
    static const char simple[] = "tnr\"\\[]-";
    static const char stands_for[] = "\t\n\r\"\\[]-";
    size_t start = r->at - 1;
    int c = peek(r);
    const char *found = c > 0 ? strchr(simple, c) : NULL;
    if (found) {
        *cp = (uint8_t)stands_for[found - simple];
        r->at++;
        return true;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!digits) {
        wrong(r, start,
              "unknown escape; known are \\t \\n \\r \\\" \\\\ \\[ \\] \\- \\xHH \\uHHHH "
              "\\UHHHHHHHH");
        return false;
    }
    r->at++;
    uint32_t v = 0;
    for (int i = 0; i < digits; i++) {
        int d = hex_value(peek(r));
        if (d < 0) {
            wrong(r, start, "\\%c needs %d hexadecimal digits", c, digits);
            return false;
        }
        v = v << 4 | (uint32_t)d;
        r->at++;
    }
    if (v > UCD_LAST || (v >= 0xd800 && v <= 0xdfff)) {
        wrong(r, start, "U+%04X is no character", v);
        return false;
    }
    *cp = v;
    return true;
}

/* One character of a string or class, escapes resolved. The text is valid UTF-8. */
static bool read_char(reader *r, uint32_t *cp) {
    if (peek(r) == '\\') {
        r->at++;
        return read_escape(r, cp);
    }
    r->at += utf8_decode((const uint8_t *)r->text + r->at, r->bytes - r->at, cp);
    return true;
}

/* ---- items */

static const grammar_node *read_string(reader *r) {
    size_t start = r->at++;
    byte_buf text = {.max_bytes = GRAMMAR_TEXT_BYTES};
    const grammar_node *node = NULL;
    while (peek(r) >= 0 && peek(r) != '"' && peek(r) != '\n' && !failed(r)) {
        uint32_t cp = 0;
        uint8_t utf8[4];
        if (read_char(r, &cp) && buf_append(&text, utf8, utf8_encode(cp, utf8), NULL) != SMOE_OK) {
            grammar_out_of_memory(r->g, text.bytes);
        }
    }
    if (peek(r) == '"') {
        r->at++;
        node = grammar_bytes(r->g, text.data, text.bytes);
    } else {
        wrong(r, start, "this string has no closing quote on its line");
    }
    buf_free(&text);
    return node;
}

static const grammar_node *read_class(reader *r) {
    size_t start = r->at++;
    bool invert = peek(r) == '^';
    bool is_empty = true;
    cp_set set = {0};
    r->at += invert;
    while (peek(r) >= 0 && peek(r) != ']' && peek(r) != '\n' && !failed(r)) {
        uint32_t first;
        uint32_t last;
        size_t at = r->at;
        if (!read_char(r, &first)) {
            break;
        }
        last = first;
        if (peek(r) == '-' && r->at + 1 < r->bytes && r->text[r->at + 1] != ']') {
            r->at++;
            if (!read_char(r, &last)) {
                break;
            }
        }
        if (last < first) {
            wrong(r, at, "this range ends before it begins");
        }
        cp_set_add(&set, first, last);
        is_empty = false;
    }
    if (peek(r) != ']') {
        wrong(r, start, "this class has no closing ] on its line");
    } else if (is_empty) {
        wrong(r, start, "this class is empty");
    }
    r->at++;
    if (invert) {
        cp_set_invert(&set);
    }
    const grammar_node *node = failed(r) ? NULL : grammar_class(r->g, &set);
    cp_set_free(&set);
    return node;
}

static const grammar_node *read_alternatives(reader *r);

static const grammar_node *read_group(reader *r) {
    size_t start = r->at++;
    if (r->depth >= NESTING) {
        return wrong(r, start, "groups are nested deeper than %d", NESTING);
    }
    r->depth++;
    skip_space(r, true);
    const grammar_node *node = read_alternatives(r);
    r->depth--;
    if (node && peek(r) != ')') {
        return wrong(r, start, "this group has no closing parenthesis");
    }
    r->at++;
    return node;
}

static const grammar_node *read_reference(reader *r) {
    size_t start = r->at;
    size_t n = read_name(r);
    uint32_t rule = grammar_rule_named(r->g, r->text + start, n, line_of(r, start));
    return grammar_call(r->g, rule);
}

/* A count within braces; false when there is none. */
static bool read_count(reader *r, uint32_t *out) {
    size_t start = r->at;
    uint32_t v = 0;
    while (peek(r) >= '0' && peek(r) <= '9' && v <= GRAMMAR_REPEAT_MAX) {
        v = 10 * v + (uint32_t)(peek(r) - '0');
        r->at++;
    }
    if (v > GRAMMAR_REPEAT_MAX) {
        wrong(r, start, "this count is above the limit of %u", GRAMMAR_REPEAT_MAX);
    }
    *out = v;
    return r->at > start;
}

static bool read_braces(reader *r, uint32_t *min, uint32_t *max) {
    size_t start = r->at++;
    skip_space(r, r->depth > 0);
    bool is_good = read_count(r, min);
    skip_space(r, r->depth > 0);
    *max = *min;
    if (is_good && peek(r) == ',') {
        r->at++;
        skip_space(r, r->depth > 0);
        if (!read_count(r, max)) {
            *max = GRAMMAR_MANY;
        }
        skip_space(r, r->depth > 0);
    }
    if (!is_good || peek(r) != '}') {
        wrong(r, start, "a repetition must be {m}, {m,} or {m,n}");
    } else if (*max < *min) {
        wrong(r, start, "this repetition's maximum is below its minimum");
    }
    r->at++;
    return !failed(r);
}

/* The operators behind an item. */
static const grammar_node *read_repeats(reader *r, const grammar_node *node) {
    for (; node && !failed(r); skip_space(r, r->depth > 0)) {
        uint32_t min = 0;
        uint32_t max = GRAMMAR_MANY;
        int c = peek(r);
        if (c == '*' || c == '+' || c == '?') {
            r->at++;
            min = c == '+';
            max = c == '?' ? 1 : GRAMMAR_MANY;
        } else if (c != '{') {
            return node;
        } else if (!read_braces(r, &min, &max)) {
            return NULL;
        }
        node = grammar_repeat(r->g, node, min, max);
    }
    return NULL;
}

static const grammar_node *read_item(reader *r) {
    int c = peek(r);
    if (c == '"') {
        return read_string(r);
    }
    if (c == '[') {
        return read_class(r);
    }
    if (c == '(') {
        return read_group(r);
    }
    if (c == '.') {
        r->at++;
        return grammar_range(r->g, 0, UCD_LAST);
    }
    if (is_name_char(c)) {
        return read_reference(r);
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') {
        return wrong(r, r->at, "nothing stands before this repetition");
    }
    if (c == '<' || c == '!') {
        return wrong(r, r->at, "tokens by name or number are not supported; write their text");
    }
    uint32_t cp = 0;
    size_t n = utf8_decode((const uint8_t *)r->text + r->at, r->bytes - r->at, &cp);
    return wrong(r, r->at, "unexpected \"%.*s\"", (int)n, r->text + r->at);
}

/* ---- lists of nodes that grow */

typedef struct node_list {
    const grammar_node **node;
    size_t n;
    size_t cap;
} node_list;

static bool append(reader *r, node_list *list, const grammar_node *node) {
    if (!node) {
        return false;
    }
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 8;
        const grammar_node **grown = realloc((void *)list->node, cap * sizeof *grown);
        if (!grown) {
            grammar_out_of_memory(r->g, cap * sizeof *grown);
            return false;
        }
        list->node = grown;
        list->cap = cap;
    }
    list->node[list->n++] = node;
    return true;
}

static const grammar_node *read_sequence(reader *r) {
    node_list list = {0};
    const grammar_node *node = NULL;
    bool is_good = !failed(r);
    while (is_good) {
        int c = peek(r);
        if (c < 0 || c == '|' || c == ')' || c == '\n') {
            break;
        }
        node = read_item(r);
        if (node) {
            skip_space(r, r->depth > 0);
        }
        is_good = append(r, &list, read_repeats(r, node));
    }
    node = !is_good      ? NULL
           : list.n == 0 ? grammar_bytes(r->g, NULL, 0)
                         : grammar_seq(r->g, list.n, list.node);
    free((void *)list.node);
    return node;
}

static const grammar_node *read_alternatives(reader *r) {
    node_list list = {0};
    bool is_good = append(r, &list, read_sequence(r));
    while (is_good && peek(r) == '|') {
        r->at++;
        skip_space(r, true);
        is_good = append(r, &list, read_sequence(r));
    }
    const grammar_node *node = is_good ? grammar_alt(r->g, list.n, list.node) : NULL;
    free((void *)list.node);
    return node;
}

/* ---- rules */

static void read_rule(reader *r) {
    size_t start = r->at;
    size_t n = read_name(r);
    if (n == 0) {
        wrong(r, start, "a rule must begin here: name ::= ...");
        return;
    }
    uint32_t line = line_of(r, start);
    skip_space(r, false);
    if (!has(r, "::=")) {
        wrong(r, r->at, "expected ::= after the rule's name");
        return;
    }
    r->at += 3;
    skip_space(r, true);
    uint32_t rule = grammar_rule_named(r->g, r->text + start, n, line);
    const grammar_node *body = read_alternatives(r);
    if (failed(r)) {
        return;
    }
    if (peek(r) == ')') {
        wrong(r, r->at, "unexpected \")\"");
    } else if (r->g->rules[rule].body) {
        wrong(r, start, "rule \"%.*s\" is defined twice, first in line %u", (int)(n < 64 ? n : 64),
              r->text + start, r->g->rules[rule].line);
    } else {
        grammar_define(r->g, rule, body);
        r->g->rules[rule].line = line;
    }
}

int gbnf_read(grammar *g, const char *text, size_t bytes, uint32_t *root) {
    reader r = {.g = g, .text = text, .bytes = bytes};
    if (bytes > GRAMMAR_TEXT_BYTES) {
        g->status = err_set(g->err, SMOE_ERR_FORMAT, "grammar: %zu bytes are more than %u", bytes,
                            GRAMMAR_TEXT_BYTES);
        return g->status;
    }
    if (!utf8_valid((const uint8_t *)text, bytes)) {
        g->status = err_set(g->err, SMOE_ERR_FORMAT, "grammar: the text is not UTF-8");
        return g->status;
    }
    skip_space(&r, true);
    while (r.at < r.bytes && !failed(&r)) {
        read_rule(&r);
        skip_space(&r, true);
    }
    *root = grammar_rule_named(g, "root", 4, 0);
    if (!failed(&r) && !g->rules[*root].body && g->rules[*root].line == 0) {
        g->status = err_set(g->err, SMOE_ERR_FORMAT,
                            "grammar: there is no rule \"root\", where the text begins");
    }
    return g->status;
}
