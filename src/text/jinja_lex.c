/* Splits a template's source into tokens, with white space control. Owns no state; see Jinja2's
 * documentation for the rules of trim_blocks, lstrip_blocks and the signs - and +. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_ast.h"
#include "text/unicode.h"

bool jparse_fail(jparse *p, size_t pos, const char *format, ...) {
    char text[400];
    size_t line = 1;
    size_t start = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pos = pos > p->t->bytes ? p->t->bytes : pos;
    for (size_t i = 0; i < pos; i++) {
        if (p->t->source[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    size_t column = 1 + jstr_count(p->t->source + start, pos - start);
    err_set(p->err, SMOE_ERR_FORMAT, "%s:%zu:%zu: %s", p->t->name, line, column, text);
    return false;
}

void *jparse_get(jparse *p, size_t n, size_t size) {
    void *got = jmem_get(p->mem, n, size);
    if (!got) {
        err_set(p->err, SMOE_ERR_MEMORY, "%s: the template needs more memory than %u bytes",
                p->t->name, JINJA_PARSE_BYTES);
    }
    return got;
}

/* ---- the source as it is read */

typedef struct lexer {
    jparse *p;
    const char *s;
    size_t n;
    size_t at;
    char *open; /* brackets waiting for their end */
    size_t n_open;
    bool is_line_start; /* the next data begins a line */
} lexer;

static jtoken *add_token(lexer *x, jtoken_kind kind, size_t pos) {
    jparse *p = x->p;
    if (p->n_token == p->cap_token) {
        size_t cap = p->cap_token ? p->cap_token * 2 : 256;
        jtoken *tokens = realloc(p->tokens, cap * sizeof *tokens);
        if (!tokens) {
            err_no_memory(p->err, cap * sizeof *tokens);
            return NULL;
        }
        p->tokens = tokens;
        p->cap_token = cap;
    }
    jtoken *t = &p->tokens[p->n_token++];
    *t = (jtoken){.kind = kind, .pos = (uint32_t)pos};
    return t;
}

static bool add_text(lexer *x, jtoken_kind kind, size_t pos, const char *data, size_t bytes) {
    jtoken *t = add_token(x, kind, pos);
    const jstr *s = t ? jstr_of(x->p->mem, data, bytes, false) : NULL;
    if (t && !s) {
        jparse_get(x->p, SIZE_MAX, 1);
    }
    if (s) {
        t->text = s;
    }
    return s != NULL;
}

static char at(const lexer *x, size_t i) {
    return i < x->n ? x->s[i] : '\0';
}

static bool has(const lexer *x, size_t i, const char *text) {
    size_t n = strlen(text);
    return i <= x->n && x->n - i >= n && memcmp(x->s + i, text, n) == 0;
}

static size_t skip_space(const lexer *x, size_t i) {
    uint32_t cp;
    while (i < x->n) {
        size_t used = utf8_decode((const uint8_t *)x->s + i, x->n - i, &cp);
        if (!used || !jchar_is_space(cp)) {
            break;
        }
        i += used;
    }
    return i;
}

/* The end of s[start..end) without white space at its end. */
static size_t strip_end(const lexer *x, size_t start, size_t end) {
    size_t keep = start;
    for (size_t i = start; i < end;) {
        uint32_t cp = 0;
        size_t used = utf8_decode((const uint8_t *)x->s + i, end - i, &cp);
        i += used ? used : 1;
        keep = jchar_is_space(cp) ? keep : i;
    }
    return keep;
}

/* Behind a tag's end at i: the newline that trim_blocks takes. */
static size_t trim_newline(const lexer *x, size_t i) {
    return x->p->trim && at(x, i) == '\n' ? i + 1 : i;
}

/* The length of the end of a block tag or comment at i ("%}", "-%}", "+%}"), with the white space
 * it takes; 0 when there is none. */
static size_t block_end(const lexer *x, size_t i, const char *end) {
    if (has(x, i, end)) {
        return trim_newline(x, i + 2) - i;
    }
    if (at(x, i) == '+' && has(x, i + 1, end)) {
        return 3;
    }
    return at(x, i) == '-' && has(x, i + 1, end) ? skip_space(x, i + 3) - i : 0;
}

/* ---- template data */

/* Adds the data before a tag that begins at end with this sign. */
static bool add_data(lexer *x, size_t end, char sign, bool is_print) {
    size_t start = x->at;
    size_t keep = end;
    if (sign == '-') {
        keep = strip_end(x, start, end);
    } else if (sign != '+' && x->p->trim && !is_print) {
        const char *newline = end > start ? memrchr(x->s + start, '\n', end - start) : NULL;
        size_t line = newline ? (size_t)(newline - x->s) + 1 : start;
        if ((newline || x->is_line_start) && strip_end(x, line, end) == line) {
            keep = line;
        }
    }
    return keep == start || add_text(x, T_DATA, start, x->s + start, keep - start);
}

/* Whether the tag at i is {% raw %}; *body receives where its text begins. */
static bool is_raw(const lexer *x, size_t i, size_t *body) {
    i += 2;
    i += at(x, i) == '-' || at(x, i) == '+';
    i = skip_space(x, i);
    if (!has(x, i, "raw")) {
        return false;
    }
    i = skip_space(x, i + 3);
    if (has(x, i, "-%}")) {
        *body = skip_space(x, i + 3);
        return true;
    }
    *body = i + 2;
    return has(x, i, "%}");
}

static bool lex_raw(lexer *x, size_t tag, size_t body) {
    x->at = body;
    x->is_line_start = x->s[body - 1] == '\n';
    for (size_t i = body; i + 1 < x->n; i++) {
        if (!has(x, i, "{%")) {
            continue;
        }
        char sign = at(x, i + 2);
        size_t j = i + 2 + (sign == '-' || sign == '+');
        j = skip_space(x, j);
        if (!has(x, j, "endraw")) {
            continue;
        }
        j = skip_space(x, j + 6);
        size_t used = block_end(x, j, "%}");
        if (!used) {
            continue;
        }
        if (!add_data(x, i, sign, false)) {
            return false;
        }
        x->at = j + used;
        x->is_line_start = x->s[x->at - 1] == '\n';
        return true;
    }
    return jparse_fail(x->p, tag, "{%% raw %%} without {%% endraw %%}");
}

static bool lex_comment(lexer *x, size_t tag) {
    /* The sign after {# belongs to the tag even where it could begin the end. */
    size_t i = tag + 2 + (at(x, tag + 2) == '-' || at(x, tag + 2) == '+');
    for (; i + 1 < x->n; i++) {
        size_t used = block_end(x, i, "#}");
        if (used) {
            x->at = i + used;
            x->is_line_start = x->s[x->at - 1] == '\n';
            return true;
        }
    }
    return jparse_fail(x->p, tag, "a comment without its end");
}

/* ---- inside of tags */

static bool is_digit_of(char c, int base) {
    int v = c >= '0' && c <= '9'                 ? c - '0'
            : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87
                                                 : 99;
    return v < base;
}

/* Digits with single underscores between them, at least one digit; returns their end, or i. */
static size_t skip_digits(const lexer *x, size_t i, int base) {
    size_t end = i;
    while (is_digit_of(at(x, i), base)) {
        end = ++i;
        i += at(x, i) == '_';
    }
    return end;
}

/* The end of a float at i, or i. */
static size_t skip_float(const lexer *x, size_t i) {
    size_t end = skip_digits(x, i, 10);
    if (end == i || (i > 0 && x->s[i - 1] == '.')) {
        return i;
    }
    size_t fraction = end;
    if (at(x, end) == '.') {
        size_t digits = skip_digits(x, end + 1, 10);
        fraction = digits > end + 1 ? digits : end;
    }
    if ((at(x, fraction) | 32) == 'e') {
        size_t e = fraction + 1;
        e += at(x, e) == '+' || at(x, e) == '-';
        size_t digits = skip_digits(x, e, 10);
        if (digits > e) {
            return digits;
        }
    }
    return fraction > end ? fraction : i;
}

static bool lex_integer(lexer *x) {
    size_t pos = x->at;
    int base = 10;
    size_t i = pos;
    if (x->s[i] == '0') {
        char c = at(x, i + 1) | 32;
        int prefixed = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 0;
        size_t digits = i + 2 + (at(x, i + 2) == '_');
        if (prefixed && skip_digits(x, digits, prefixed) > digits) {
            base = prefixed;
            i = digits;
        }
    }
    size_t end = skip_digits(x, i, base == 10 && x->s[i] == '0' ? 1 : base);
    uint64_t value = 0;
    for (; i < end; i++) {
        char c = x->s[i];
        uint64_t digit = (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 87);
        if (c == '_') {
            continue;
        }
        if (value > (INT64_MAX - digit) / (uint64_t)base) {
            return jparse_fail(x->p, pos, "a number beyond 64 bits");
        }
        value = value * (uint64_t)base + digit;
    }
    jtoken *t = add_token(x, T_INT, pos);
    x->at = end;
    if (t) {
        t->number = jint((int64_t)value);
    }
    return t != NULL;
}

static bool lex_float(lexer *x, size_t end) {
    jstr s = {.data = x->s + x->at, .bytes = end - x->at};
    double value = 0;
    jtoken *t = add_token(x, T_FLOAT, x->at);
    if (!t || !jparse_float(&s, &value)) {
        return t && jparse_fail(x->p, x->at, "a malformed number");
    }
    t->number = jfloat(value);
    x->at = end;
    return true;
}

static bool is_word(uint32_t cp, bool is_first) {
    if (cp < 0x80) {
        return (cp | 32) - 'a' < 26 || cp == '_' || (!is_first && cp - '0' < 10);
    }
    uint32_t c = ucd_class(cp) & UCD_CATEGORY_MASK; /* the letters come first */
    bool is_letter = c <= UCD_LO || c == UCD_NL;
    bool is_rest = c == UCD_MN || c == UCD_MC || c == UCD_ND || c == UCD_PC;
    return is_letter || (!is_first && is_rest);
}

/* Returns the end of a name at the reader's place, or that place. */
static size_t skip_name(const lexer *x) {
    size_t i = x->at;
    uint32_t cp;
    while (i < x->n) {
        size_t used = utf8_decode((const uint8_t *)x->s + i, x->n - i, &cp);
        if (!used || !is_word(cp, i == x->at)) {
            break;
        }
        i += used;
    }
    return i;
}

/* ---- string literals */

static int hex_value(const lexer *x, size_t i, size_t n_digit, uint32_t *cp) {
    *cp = 0;
    for (size_t k = 0; k < n_digit; k++) {
        char c = at(x, i + k);
        if (!is_digit_of(c, 16)) {
            return -1;
        }
        *cp = *cp << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 87);
    }
    return *cp > 0x10ffff || (*cp >= 0xd800 && *cp < 0xe000) ? -1 : 0;
}

/* Reads the escape at i (behind the backslash) into out; returns the bytes read, 0 when it is
 * malformed. */
static size_t unescape(const lexer *x, size_t i, char *out, size_t *n_out) {
    static const char from[] = "\n\\'\"abfnrtv";
    static const char to[] = "\0\\'\"\a\b\f\n\r\t\v";
    char c = at(x, i);
    const char *known = c ? strchr(from, c) : NULL;
    uint32_t cp = 0;
    if (known) {
        out[*n_out] = to[known - from];
        *n_out += c != '\n';
        return 1;
    }
    if (c >= '0' && c <= '7') {
        size_t n = 0;
        for (; n < 3 && at(x, i + n) >= '0' && at(x, i + n) <= '7'; n++) {
            cp = cp * 8 + (uint32_t)(at(x, i + n) - '0');
        }
        *n_out += utf8_encode(cp, (uint8_t *)out + *n_out);
        return n;
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
        if (hex_value(x, i + 1, digits, &cp) != 0) {
            return 0;
        }
        *n_out += utf8_encode(cp, (uint8_t *)out + *n_out);
        return digits + 1;
    }
    if (c == 'N') {
        return 0;
    }
    out[(*n_out)++] = '\\';
    return utf8_decode((const uint8_t *)x->s + i, 1, &cp) ? (out[(*n_out)++] = c, 1u) : 0u;
}

static bool lex_string(lexer *x) {
    size_t pos = x->at;
    char quote = x->s[pos];
    size_t end = pos + 1;
    while (end < x->n && x->s[end] != quote) {
        end += x->s[end] == '\\' ? 2 : 1;
    }
    if (end >= x->n) {
        return jparse_fail(x->p, pos, "a string without its end");
    }
    char *out = jparse_get(x->p, end - pos, 2);
    size_t n_out = 0;
    for (size_t i = pos + 1; out && i < end;) {
        if (x->s[i] != '\\') {
            out[n_out++] = x->s[i++];
            continue;
        }
        if ((uint8_t)at(x, i + 1) >= 0x80) {
            out[n_out++] = x->s[i++]; /* a backslash before another character stays */
            continue;
        }
        size_t used = unescape(x, i + 1, out, &n_out);
        if (!used) {
            return jparse_fail(x->p, i, "an escape that is not supported");
        }
        i += 1 + used;
    }
    x->at = end + 1;
    return out && add_text(x, T_STRING, pos, out, n_out);
}

/* ---- operators and tags */

static bool lex_operator(lexer *x) {
    static const char two[][3] = {"**", "//", "==", "!=", ">=", "<="};
    size_t pos = x->at;
    char c = x->s[pos];
    size_t length = 1;
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        length = has(x, pos, two[i]) ? 2 : length;
    }
    if (length == 1 && (!c || !strchr("+-/*%~[](){}><=.:|,;", c))) {
        return jparse_fail(x->p, pos, "a character that cannot stand here");
    }
    if (c == '(' || c == '[' || c == '{') {
        x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (!x->n_open || x->open[x->n_open - 1] != c) {
            return jparse_fail(x->p, pos, "unexpected '%c'", c);
        }
        x->n_open--;
    }
    jtoken *t = add_token(x, T_OP, pos);
    if (t) {
        memcpy(t->op, x->s + pos, length);
    }
    x->at += length;
    return t != NULL;
}

static bool lex_one(lexer *x) {
    char c = x->s[x->at];
    if (c >= '0' && c <= '9') {
        size_t end = skip_float(x, x->at);
        return end > x->at ? lex_float(x, end) : lex_integer(x);
    }
    if (c == '\'' || c == '"') {
        return lex_string(x);
    }
    size_t end = skip_name(x);
    if (end > x->at) {
        size_t pos = x->at;
        x->at = end;
        return add_text(x, T_NAME, pos, x->s + pos, end - pos);
    }
    return lex_operator(x);
}

/* The inside of a print or block tag, up to and with its end. */
static bool lex_tag(lexer *x, size_t tag, bool is_print) {
    size_t begin = x->at;
    x->n_open = 0;
    for (;;) {
        x->at = skip_space(x, x->at);
        size_t used = 0;
        if (!x->n_open && !is_print) {
            used = block_end(x, x->at, "%}");
        } else if (!x->n_open) {
            used = has(x, x->at, "}}")    ? 2
                   : has(x, x->at, "-}}") ? skip_space(x, x->at + 3) - x->at
                                          : 0;
        }
        if (used) {
            jtoken *t = add_token(x, is_print ? T_PRINT_END : T_BLOCK_END, x->at);
            x->at += used;
            x->is_line_start = x->s[x->at - 1] == '\n';
            return t != NULL;
        }
        if (x->at >= x->n) {
            return jparse_fail(x->p, tag, "a tag without its end");
        }
        if (x->at < begin || !lex_one(x)) {
            return false;
        }
    }
}

static bool lex_root(lexer *x) {
    while (x->at < x->n) {
        size_t i = x->at;
        while (i < x->n && !(x->s[i] == '{' && at(x, i + 1) && strchr("{%#", at(x, i + 1)))) {
            i++;
        }
        if (i == x->n) {
            return add_text(x, T_DATA, x->at, x->s + x->at, x->n - x->at);
        }
        char kind = x->s[i + 1];
        char sign = at(x, i + 2);
        size_t body = 0;
        if (!add_data(x, i, sign, kind == '{')) {
            return false;
        }
        bool ok;
        if (kind == '#') {
            ok = lex_comment(x, i);
        } else if (kind == '%' && is_raw(x, i, &body)) {
            ok = lex_raw(x, i, body);
        } else {
            x->at = i + 2 + (sign == '-' || sign == '+');
            ok = add_token(x, kind == '{' ? T_PRINT_BEGIN : T_BLOCK_BEGIN, i) &&
                 lex_tag(x, i, kind == '{');
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

bool jlex(jparse *p) {
    lexer x = {.p = p, .s = p->t->source, .n = p->t->bytes, .is_line_start = true};
    x.open = malloc(x.n + 1);
    if (!x.open) {
        err_no_memory(p->err, x.n + 1);
        return false;
    }
    bool ok = lex_root(&x) && add_token(&x, T_EOF, x.n) != NULL;
    free(x.open);
    return ok;
}
