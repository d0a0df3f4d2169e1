/* Reads a pattern in Oniguruma's Ruby syntax and writes it in PCRE2's, with every character class
 * as a set of code points; see pattern_parse.h. What the engines read differently, or what could
 * backtrack exponentially, ends in an error that names it. Recursion is bounded by MAX_DEPTH.
 *
 * Facts about Oniguruma were checked against the reference library: under (?i) the letters s and k
 * also match U+017F and U+212A, and the pairs ss, ff, fi, fl and st also match ligatures (which is
 * why those pairs are refused); \h is a hexadecimal digit; {1,3}+ repeats, it is not possessive.
 */
#include "text/pattern_parse.h"

#include <string.h>

#include "base/utf8.h"

enum {
    MAX_DEPTH = 32,
    MAX_REPEAT = 1000,     /* of a character class */
    MAX_GROUP_REPEAT = 16, /* of a group, unless it is unlimited */
    MAX_LENGTH = 4096,     /* of what a limited repeat can match */
    FREE_OPTIONS = 2,      /* optional classes of a top-level branch that are not counted */
    UNBOUNDED = 1 << 29    /* twice this is still an int32_t */
};

typedef struct parser {
    pattern_parsed *out;
    const char *text;
    size_t bytes;
    size_t pos;
    const char *where;
    smoe_error *err;
    bool is_folding;     /* inside (?i:...) */
    uint32_t last_fold;  /* the folded literal right before, 0 when there is none */
    unsigned depth;      /* of groups and of classes */
    bool has_folded_run; /* the last atom may be repeated into a pair that folds */
    unsigned n_option;   /* uncounted optional classes of this top-level branch */
} parser;

/* What one piece of a pattern can match, in code points. */
typedef struct extent {
    int32_t min, max;
    bool has_choice;  /* an alternation inside */
    bool is_group;    /* more than one character set */
    bool is_position; /* an anchor or look-around */
} extent;

static int refuse(parser *p, size_t at, const char *what) {
    return err_set(p->err, SMOE_ERR_UNSUPPORTED,
                   "%s: %s at byte %zu of the pattern is not supported", p->where, what, at);
}

static int peek(const parser *p) {
    return p->pos < p->bytes ? (unsigned char)p->text[p->pos] : -1;
}

static bool at_text(const parser *p, const char *text) {
    size_t n = strlen(text);
    return p->bytes - p->pos >= n && memcmp(p->text + p->pos, text, n) == 0;
}

static int emit(parser *p, const char *text) {
    return buf_append(&p->out->text, text, strlen(text), p->err);
}

/* Takes the set over and emits its mark. */
static int emit_set(parser *p, cp_set *set) {
    pattern_parsed *out = p->out;
    unsigned i = 0;
    if (set->is_broken) {
        cp_set_free(set);
        return err_no_memory(p->err, sizeof *set);
    }
    while (i < out->n_set && !cp_set_equal(&out->sets[i], set)) {
        i++;
    }
    if (i < out->n_set) {
        cp_set_free(set);
    } else if (i == PATTERN_SETS) {
        cp_set_free(set);
        return refuse(p, p->pos, "a 65th character class");
    } else {
        out->sets[out->n_set++] = *set;
    }
    char mark[2] = {PATTERN_SET_MARK, (char)(i + 1)};
    return buf_append(&out->text, mark, sizeof mark, p->err);
}

/* ---- escapes and characters */

static int parse_hex(parser *p, size_t max_digits, uint32_t *out) {
    size_t start = p->pos;
    uint32_t v = 0;
    while (p->pos - start < max_digits) {
        int c = peek(p);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            break;
        }
        v = v << 4 | (uint32_t)digit;
        p->pos++;
    }
    if (p->pos == start || v > UCD_LAST || (v >= 0xd800 && v < 0xe000)) {
        return refuse(p, start, "this hexadecimal escape");
    }
    *out = v;
    return SMOE_OK;
}

/* \xHH below 0x80, \x{H...} and \uHHHH; pos is behind the letter. */
static int parse_code_point(parser *p, char letter, uint32_t *cp) {
    size_t start = p->pos;
    int rc;
    if (letter == 'x' && peek(p) == '{') {
        p->pos++;
        rc = parse_hex(p, 6, cp);
        if (rc == SMOE_OK && peek(p) != '}') {
            return refuse(p, start, "this hexadecimal escape");
        }
        p->pos++;
        return rc;
    }
    rc = parse_hex(p, letter == 'x' ? 2 : 4, cp);
    if (rc == SMOE_OK && (letter == 'x' ? *cp >= 0x80 : p->pos - start != 4)) {
        return refuse(p, start, "this hexadecimal escape");
    }
    return rc;
}

/* The set of \s \S \d \D \w \W; false for other letters. */
static bool shorthand_set(char letter, cp_set *set) {
    switch (letter) {
    case 's':
    case 'S':
        cp_set_add_flag(set, UCD_SPACE);
        break;
    case 'd':
    case 'D':
        cp_set_add_categories(set, 1u << UCD_ND);
        break;
    case 'w':
    case 'W':
        cp_set_add_flag(set, UCD_WORD);
        /* Oniguruma's table also holds these superscripts and fractions */
        cp_set_add(set, 0xb2, 0xb3);
        cp_set_add(set, 0xb9, 0xb9);
        cp_set_add(set, 0xbc, 0xbe);
        break;
    default:
        return false;
    }
    if (letter < 'a') {
        cp_set_invert(set);
    }
    return true;
}

/* \p{Name}, \P{Name}, \p{^Name}; pos is behind the letter. */
static int parse_property(parser *p, char letter, cp_set *set) {
    size_t start = p->pos;
    const char *end = peek(p) == '{' ? memchr(p->text + start, '}', p->bytes - start) : NULL;
    if (!end) {
        return refuse(p, start, "a property without {}");
    }
    const char *name = p->text + start + 1;
    bool is_negated = letter == 'P';
    if (name < end && *name == '^') {
        is_negated = !is_negated;
        name++;
    }
    size_t n = (size_t)(end - name);
    uint32_t mask = ucd_category_mask(name, n);
    int script = mask ? -1 : ucd_script_by_name(name, n);
    if (mask == 0 && script < 0) {
        return err_set(p->err, SMOE_ERR_UNSUPPORTED, "%s: property \\p{%.*s} is not supported",
                       p->where, (int)(n < 40 ? n : 40), name);
    }
    cp_set members = {0};
    if (script >= 0) {
        cp_set_add_script(&members, script);
    } else {
        cp_set_add_categories(&members, mask);
    }
    if (is_negated) {
        cp_set_invert(&members);
    }
    cp_set_union(set, &members);
    cp_set_free(&members);
    p->pos = (size_t)(end - p->text) + 1;
    return SMOE_OK;
}

static uint32_t control_escape(char letter) {
    switch (letter) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case 'a':
        return '\a';
    case 'e':
        return 0x1b;
    default:
        return 0;
    }
}

/* One escape, in or out of a class; pos is at the backslash. Either *is_set with the members added
 * to set, or *cp. */
static int parse_escape(parser *p, cp_set *set, bool *is_set, uint32_t *cp) {
    size_t start = p->pos++;
    int c = peek(p);
    *is_set = false;
    if (c < 0 || c >= 0x80) {
        return refuse(p, start, "this escape");
    }
    char letter = (char)c;
    p->pos++;
    if (letter == 'p' || letter == 'P') {
        *is_set = true;
        return parse_property(p, letter, set);
    }
    if (letter == 'x' || letter == 'u') {
        return parse_code_point(p, letter, cp);
    }
    cp_set members = {0};
    if (shorthand_set(letter, &members)) {
        *is_set = true;
        cp_set_union(set, &members);
        cp_set_free(&members);
        return SMOE_OK;
    }
    *cp = control_escape(letter);
    if (*cp) {
        return SMOE_OK;
    }
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) {
        char what[16] = "escape \\?";
        what[8] = letter;
        return refuse(p, start, what);
    }
    *cp = (uint32_t)c;
    return SMOE_OK;
}

static int parse_character(parser *p, uint32_t *cp) {
    size_t n = utf8_decode((const uint8_t *)p->text + p->pos, p->bytes - p->pos, cp);
    if (n == 0) {
        return err_set(p->err, SMOE_ERR_FORMAT, "%s: the pattern is not UTF-8", p->where);
    }
    p->pos += n;
    return SMOE_OK;
}

/* Adds what an ASCII letter matches besides itself under (?i). */
static void add_folded(cp_set *set, uint32_t cp) {
    bool is_upper = cp >= 'A' && cp <= 'Z';
    if (!is_upper && !(cp >= 'a' && cp <= 'z')) {
        return;
    }
    cp_set_add(set, cp ^ 0x20, cp ^ 0x20);
    if ((cp | 0x20) == 's') {
        cp_set_add(set, 0x17f, 0x17f);
    } else if ((cp | 0x20) == 'k') {
        cp_set_add(set, 0x212a, 0x212a);
    }
}

/* ---- character classes */

static int parse_class(parser *p, cp_set *set);

/* One member from pos on: a nested class, a shorthand (*is_set) or a single code point. */
static int parse_class_atom(parser *p, cp_set *set, bool *is_set, uint32_t *cp) {
    *is_set = false;
    if (peek(p) == '[') {
        if (at_text(p, "[:")) {
            return refuse(p, p->pos, "a POSIX bracket");
        }
        cp_set inner = {0};
        *is_set = true;
        int rc = parse_class(p, &inner);
        cp_set_union(set, &inner);
        cp_set_free(&inner);
        return rc;
    }
    return peek(p) == '\\' ? parse_escape(p, set, is_set, cp) : parse_character(p, cp);
}

/* A single code point, or a range that begins with it. */
static int parse_class_member(parser *p, cp_set *set) {
    size_t start = p->pos;
    bool is_set;
    uint32_t first = 0;
    uint32_t last = 0;
    int rc = parse_class_atom(p, set, &is_set, &first);
    if (rc != SMOE_OK) {
        return rc;
    }
    bool is_range = peek(p) == '-' && p->pos + 1 < p->bytes && p->text[p->pos + 1] != ']';
    if (is_set || !is_range) {
        if (is_set && is_range) {
            return refuse(p, p->pos, "a range that begins with a set");
        }
        if (!is_set) {
            cp_set_add(set, first, first);
        }
        return SMOE_OK;
    }
    p->pos++;
    cp_set none = {0};
    rc = parse_class_atom(p, &none, &is_set, &last);
    cp_set_free(&none);
    if (rc != SMOE_OK) {
        return rc;
    }
    bool is_chained = peek(p) == '-' && p->pos + 1 < p->bytes && p->text[p->pos + 1] != ']';
    if (is_set || last < first || is_chained) {
        return refuse(p, start, "this range");
    }
    cp_set_add(set, first, last);
    return SMOE_OK;
}

/* Members up to the closing bracket; && intersects what stands on its two sides. */
static int parse_class_body(parser *p, cp_set *set) {
    cp_set side = {0};
    bool has_intersection = false;
    int rc = SMOE_OK;
    if (peek(p) == ']' || at_text(p, "&&")) {
        return refuse(p, p->pos, "a class that begins like this");
    }
    while (rc == SMOE_OK && peek(p) != ']') {
        if (peek(p) < 0) {
            rc = err_set(p->err, SMOE_ERR_FORMAT, "%s: a character class is not closed", p->where);
        } else if (at_text(p, "&&")) {
            p->pos += 2;
            if (has_intersection) {
                cp_set_intersect(set, &side);
            } else {
                cp_set_union(set, &side);
            }
            has_intersection = true;
            cp_set_free(&side);
            rc = peek(p) == ']' ? refuse(p, p->pos, "an empty side of &&") : SMOE_OK;
        } else {
            rc = parse_class_member(p, &side);
        }
    }
    if (has_intersection) {
        cp_set_intersect(set, &side);
    } else {
        cp_set_union(set, &side);
    }
    cp_set_free(&side);
    p->pos++;
    return rc;
}

/* pos is at the opening bracket. */
static int parse_class(parser *p, cp_set *set) {
    size_t start = p->pos++;
    bool is_negated = peek(p) == '^';
    p->pos += is_negated;
    if (++p->depth > MAX_DEPTH) {
        return refuse(p, start, "nesting this deep");
    }
    int rc = parse_class_body(p, set);
    p->depth--;
    if (rc != SMOE_OK) {
        return rc;
    }
    if (p->is_folding) {
        if (is_negated || (set->n_range && set->ranges[set->n_range - 1].last >= 0x80)) {
            return refuse(p, start, "this class under (?i)");
        }
        for (uint32_t cp = 'A'; cp <= 'z'; cp++) {
            if (cp_set_has(set, cp)) {
                add_folded(set, cp);
            }
        }
    }
    if (is_negated) {
        cp_set_invert(set);
    }
    return SMOE_OK;
}

/* ---- atoms */

static int parse_alternatives(parser *p, extent *out);

static int emit_literal(parser *p, uint32_t cp, size_t at) {
    cp_set set = {0};
    cp_set_add(&set, cp, cp);
    p->has_folded_run = false;
    if (p->is_folding) {
        static const char pairs[5][3] = {"ss", "ff", "fi", "fl", "st"};
        uint32_t low = cp >= 'A' && cp <= 'Z' ? cp | 0x20 : cp;
        bool is_pair = false;
        for (size_t i = 0; i < 5; i++) {
            is_pair |= p->last_fold == (uint32_t)pairs[i][0] && low == (uint32_t)pairs[i][1];
        }
        if (cp >= 0x80 || is_pair) {
            cp_set_free(&set);
            return refuse(p, at, "this character under (?i)");
        }
        add_folded(&set, cp);
        p->last_fold = low;
        p->has_folded_run = low == 's' || low == 'f';
    }
    return emit_set(p, &set);
}

static int parse_group(parser *p, extent *out) {
    static const struct {
        const char *open;
        bool is_look, is_fold;
    } kinds[] = {{"(?:", false, false}, {"(?>", false, false}, {"(?i:", false, true},
                 {"(?=", true, false},  {"(?!", true, false},  {"(?<=", true, false},
                 {"(?<!", true, false}};
    size_t start = p->pos;
    size_t kind = 0;
    size_t n_kind = sizeof kinds / sizeof kinds[0];
    if (at_text(p, "(?")) {
        while (kind < n_kind && !at_text(p, kinds[kind].open)) {
            kind++;
        }
        if (kind == n_kind) {
            return refuse(p, start, "this kind of group");
        }
        p->pos += strlen(kinds[kind].open);
    } else {
        p->pos++; /* what a group captures is never used */
    }
    bool was_folding = p->is_folding;
    p->is_folding |= kinds[kind].is_fold;
    int rc = ++p->depth > MAX_DEPTH ? refuse(p, start, "nesting this deep") : SMOE_OK;
    rc = rc ? rc : emit(p, kinds[kind].is_fold ? "(?:" : kinds[kind].open);
    rc = rc ? rc : parse_alternatives(p, out);
    if (rc == SMOE_OK && peek(p) != ')') {
        rc = err_set(p->err, SMOE_ERR_FORMAT, "%s: a group is not closed", p->where);
    }
    p->pos++;
    p->depth--;
    p->is_folding = was_folding;
    p->has_folded_run = true;
    out->is_group = true;
    if (kinds[kind].is_look) {
        *out = (extent){.is_position = true};
    }
    return rc ? rc : emit(p, ")");
}

/* A backslash: an anchor, a set or a literal. */
static int parse_escaped_atom(parser *p, extent *out) {
    static const char *const anchors[] = {"\\A", "\\z", "\\Z"};
    size_t start = p->pos;
    for (size_t i = 0; i < 3; i++) {
        if (at_text(p, anchors[i])) {
            p->pos += 2;
            *out = (extent){.is_position = true};
            return emit(p, anchors[i]);
        }
    }
    cp_set set = {0};
    bool is_set;
    uint32_t cp;
    int rc = parse_escape(p, &set, &is_set, &cp);
    if (rc == SMOE_OK && is_set) {
        char letter = p->text[start + 1];
        if (p->is_folding && strchr("pPwW", letter)) {
            cp_set_free(&set);
            return refuse(p, start, "this class under (?i)");
        }
        p->last_fold = 0;
        p->has_folded_run = false;
        return emit_set(p, &set);
    }
    cp_set_free(&set);
    return rc ? rc : emit_literal(p, cp, start);
}

/* One atom; pos is not at the end, at '|' or at ')'. */
static int parse_atom(parser *p, extent *out) {
    size_t start = p->pos;
    int c = peek(p);
    cp_set set = {0};
    uint32_t cp;
    int rc;
    *out = (extent){.min = 1, .max = 1};
    switch (c) {
    case '(':
        return parse_group(p, out);
    case '\\':
        return parse_escaped_atom(p, out);
    case '[':
        rc = parse_class(p, &set);
        p->last_fold = 0;
        p->has_folded_run = false;
        if (rc != SMOE_OK) {
            cp_set_free(&set);
            return rc;
        }
        return emit_set(p, &set);
    case '.':
        p->pos++;
        p->last_fold = 0;
        p->has_folded_run = false;
        cp_set_add(&set, '\n', '\n');
        cp_set_invert(&set);
        return emit_set(p, &set);
    case '^':
    case '$':
        p->pos++;
        *out = (extent){.is_position = true};
        return emit(p, c == '^' ? "^" : "$");
    case '*':
    case '+':
    case '?':
        return refuse(p, start, "a quantifier with nothing before it");
    default:
        rc = parse_character(p, &cp);
        return rc ? rc : emit_literal(p, cp, start);
    }
}

/* ---- quantifiers */

static bool parse_number(const parser *p, size_t *at, int32_t *out) {
    size_t start = *at;
    int32_t v = 0;
    while (*at < p->bytes && p->text[*at] >= '0' && p->text[*at] <= '9') {
        v = v > MAX_REPEAT ? v : v * 10 + (p->text[*at] - '0');
        (*at)++;
    }
    *out = v;
    return *at > start;
}

/* {n}, {n,}, {n,m} or {,m} at pos; false when the brace is a literal. */
static bool parse_interval(parser *p, int32_t *min, int32_t *max) {
    size_t at = p->pos + 1;
    bool has_min = parse_number(p, &at, min);
    if (at < p->bytes && p->text[at] == ',') {
        at++;
        bool has_max = parse_number(p, &at, max);
        if (!has_max) {
            *max = UNBOUNDED;
        }
        if (!has_min && !has_max) {
            return false;
        }
    } else if (has_min) {
        *max = *min;
    } else {
        return false;
    }
    if (at >= p->bytes || p->text[at] != '}') {
        return false;
    }
    p->pos = at + 1;
    return true;
}

/* A quantifier at pos, with its suffix; *has false when there is none. */
static int parse_quantifier(parser *p, bool *has, int32_t *min, int32_t *max, const char **suffix) {
    size_t start = p->pos;
    int c = peek(p);
    bool is_interval = c == '{';
    *has = true;
    *suffix = "";
    *min = c == '+';
    *max = c == '?' ? 1 : UNBOUNDED;
    if (is_interval) {
        *has = parse_interval(p, min, max);
    } else if (c == '?' || c == '*' || c == '+') {
        p->pos++;
    } else {
        *has = false;
    }
    if (!*has) {
        return SMOE_OK;
    }
    if (*min > MAX_REPEAT || (*max > MAX_REPEAT && *max != UNBOUNDED) || *min > *max) {
        return refuse(p, start, "this repeat count");
    }
    c = peek(p);
    if (c == '?' || c == '+') {
        if (is_interval && (c == '+' || *min == *max)) {
            return refuse(p, start, "a repeat count with this suffix");
        }
        *suffix = c == '?' ? "?" : "+";
        p->pos++;
        c = peek(p);
    }
    int32_t ignored;
    if (c == '?' || c == '*' || c == '+' || (c == '{' && parse_interval(p, &ignored, &ignored))) {
        return refuse(p, start, "a quantifier of a quantifier");
    }
    return SMOE_OK;
}

static int emit_quantifier(parser *p, int32_t min, int32_t max, const char *suffix) {
    if (max == UNBOUNDED) {
        return buf_printf(&p->out->text, p->err, "{%d,}%s", min, suffix);
    }
    return buf_printf(&p->out->text, p->err, "{%d,%d}%s", min, max, suffix);
}

static int32_t repeated(int32_t length, int32_t times) {
    int64_t v = (int64_t)length * times;
    return v > UNBOUNDED ? UNBOUNDED : (int32_t)v;
}

static int check_repeat(parser *p, size_t start, const extent *atom, int32_t max) {
    bool is_fixed = atom->min == atom->max && atom->min > 0 && !atom->has_choice;
    if (atom->is_position) {
        return refuse(p, start, "a quantifier of an anchor or look-around");
    }
    if (atom->is_group && max == UNBOUNDED && !is_fixed) {
        return refuse(p, start, "an unlimited repeat of a group of varying length");
    }
    if (atom->is_group && max > 1 && atom->min == 0) {
        return refuse(p, start, "a repeat of a group that can match nothing");
    }
    bool is_long = atom->max < UNBOUNDED && repeated(atom->max, max) > MAX_LENGTH;
    if (max != UNBOUNDED && (is_long || (atom->is_group && max > MAX_GROUP_REPEAT))) {
        return refuse(p, start, "a repeat this long");
    }
    if (p->is_folding && p->has_folded_run && max > 1) {
        return refuse(p, start, "this repeat under (?i)");
    }
    return SMOE_OK;
}

/* Marks a place where the engine may come back to try otherwise, so that it reports each pass. Not
 * needed where a pass ends the match, nor for a few optional characters. */
static int emit_count(parser *p, const extent *piece, bool is_option) {
    bool is_top = p->depth == 0;
    bool is_last = p->pos == p->bytes || peek(p) == '|';
    if ((piece->min == piece->max && !piece->has_choice) || (is_top && is_last)) {
        return SMOE_OK;
    }
    if (is_top && is_option && p->n_option < FREE_OPTIONS) {
        p->n_option++;
        return SMOE_OK;
    }
    return emit(p, PATTERN_COUNT);
}

/* An atom with its quantifier. */
static int parse_piece(parser *p, extent *out) {
    size_t start = p->pos;
    bool has = false;
    int32_t min = 1;
    int32_t max = 1;
    const char *suffix = "";
    int rc = parse_atom(p, out);
    rc = rc ? rc : parse_quantifier(p, &has, &min, &max, &suffix);
    if (rc == SMOE_OK && has) {
        rc = check_repeat(p, start, out, max);
        rc = rc ? rc : emit_quantifier(p, min, max, suffix);
        out->min = repeated(out->min, min);
        out->max = out->max ? repeated(out->max, max) : 0;
    }
    return rc ? rc : emit_count(p, out, max == 1 && !out->is_group);
}

static int parse_branch(parser *p, extent *out) {
    int rc = SMOE_OK;
    *out = (extent){0};
    p->last_fold = 0;
    p->n_option = p->depth ? p->n_option : 0;
    while (rc == SMOE_OK && peek(p) >= 0 && peek(p) != '|' && peek(p) != ')') {
        extent piece = {0};
        rc = parse_piece(p, &piece);
        out->min = out->min + piece.min > UNBOUNDED ? UNBOUNDED : out->min + piece.min;
        out->max = out->max + piece.max > UNBOUNDED ? UNBOUNDED : out->max + piece.max;
        out->has_choice |= piece.has_choice;
    }
    return rc;
}

static int parse_alternatives(parser *p, extent *out) {
    int rc = parse_branch(p, out);
    while (rc == SMOE_OK && peek(p) == '|') {
        extent branch;
        p->pos++;
        rc = emit(p, "|");
        rc = rc ? rc : parse_branch(p, &branch);
        if (rc == SMOE_OK) {
            out->min = branch.min < out->min ? branch.min : out->min;
            out->max = branch.max > out->max ? branch.max : out->max;
            out->has_choice = true;
        }
    }
    return rc;
}

int pattern_parse(pattern_parsed *out, const char *source, size_t bytes, const char *where,
                  smoe_error *err) {
    parser p = {.out = out, .text = source, .bytes = bytes, .where = where, .err = err};
    extent all;
    out->text.max_bytes = 1u << 16;
    if (bytes == 0) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: the pattern is empty", where);
    }
    int rc = parse_alternatives(&p, &all);
    if (rc == SMOE_OK && p.pos < bytes) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: an unmatched ) at byte %zu of the pattern", where,
                       p.pos);
    }
    return rc;
}

void pattern_parsed_free(pattern_parsed *p) {
    for (unsigned i = 0; i < p->n_set; i++) {
        cp_set_free(&p->sets[i]);
    }
    buf_free(&p->text);
    *p = (pattern_parsed){0};
}
