/* Values as text: Python's str and repr, JSON, HTML escapes, case, and numbers read from text. Owns
 * no state. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja_run.h"
#include "text/unicode.h"

/* ---- numbers */

/* The shortest digits that read back as d (> 0, finite), as 0.DIGITS * 10^point. */
static int shortest_digits(double d, char digits[20], int *point) {
    char text[40];
    for (int n = 1;; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, d);
        if (n == 17 || strtod(text, NULL) == d) {
            break;
        }
    }
    int n_digit = 0;
    const char *e = strchr(text, 'e');
    for (const char *c = text; c < e; c++) {
        if (*c >= '0' && *c <= '9') { /* the radix character depends on the locale */
            digits[n_digit++] = *c;
        }
    }
    while (n_digit > 1 && digits[n_digit - 1] == '0') {
        n_digit--;
    }
    *point = (int)strtol(e + 1, NULL, 10) + 1;
    return n_digit;
}

size_t jfloat_repr(double f, char out[40]) {
    char digits[20];
    char *o = out;
    int point;
    if (!isfinite(f)) {
        return (size_t)snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    }
    if (signbit(f)) {
        *o++ = '-';
    }
    if (f == 0) {
        memcpy(o, "0.0", 3);
        return (size_t)(o + 3 - out);
    }
    int n = shortest_digits(fabs(f), digits, &point);
    if (point > 16 || point < -3) {
        *o++ = digits[0];
        if (n > 1) {
            *o++ = '.';
            memcpy(o, digits + 1, (size_t)n - 1);
            o += n - 1;
        }
        return (size_t)(o - out) +
               (size_t)snprintf(o, 8, "e%c%02d", point <= 0 ? '-' : '+', abs(point - 1));
    }
    if (point <= 0) {
        *o++ = '0';
        *o++ = '.';
    }
    for (int i = point < 0 ? point : 0; i < n || i < point; i++) {
        if (i == point && point > 0) {
            *o++ = '.';
        }
        *o++ = i < 0 || i >= n ? '0' : digits[i];
    }
    if (n <= point) {
        *o++ = '.';
        *o++ = '0';
    }
    return (size_t)(o - out);
}

static bool add_number(jrun *r, jbuf *b, jval v) {
    char text[40];
    size_t n;
    if (v.kind == J_FLOAT) {
        n = jfloat_repr(v.f, text);
    } else {
        n = (size_t)snprintf(text, sizeof text, "%lld", (long long)v.i);
    }
    return jbuf_add(r, b, text, n, v.is_input);
}

/* text without white space around it and without the underscores that may stand between digits, in
 * out; false when an underscore stands elsewhere or the text is too long for a number. */
static bool clean_number(const jstr *s, char *out, size_t out_bytes) {
    size_t start = 0;
    size_t end = s->bytes;
    size_t n = 0;
    size_t used;
    while (start < end && jchar_is_space(jstr_at(s, start, &used))) {
        start += used;
    }
    while (end > start) {
        size_t last = end - 1;
        while (last > start && ((uint8_t)s->data[last] & 0xc0) == 0x80) {
            last--;
        }
        if (!jchar_is_space(jstr_at(s, last, &used))) {
            break;
        }
        end = last;
    }
    for (size_t i = start; i < end; i++) {
        char c = s->data[i];
        bool is_between = i > start && i + 1 < end && (s->data[i - 1] | 32) >= '0' &&
                          s->data[i - 1] != '_' && s->data[i + 1] != '_' && s->data[i - 1] != '.' &&
                          s->data[i + 1] != '.';
        if (c == '_' && is_between) {
            continue;
        }
        if (c == '_' || c == '\0' || n + 1 >= out_bytes) {
            return false;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return n > 0;
}

bool jparse_float(const jstr *s, double *out) {
    char text[400];
    char *end;
    if (!clean_number(s, text, sizeof text) || text[strspn(text, "+-")] == '\0') {
        return false;
    }
    /* strtod knows more than Python does: hexadecimal and nan(…). */
    if (strpbrk(text, "xXpP(")) {
        return false;
    }
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) {
        return false;
    }
    *out = strtod_l(text, &end, c_locale);
    freelocale(c_locale);
    return end != text && *end == '\0';
}

static int digit_value(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 87 : 99;
}

bool jparse_int(jrun *r, const jstr *s, int64_t base, bool *ok, int64_t *out) {
    char text[400];
    *ok = false;
    if (base != 0 && (base < 2 || base > 36)) {
        return true; /* a ValueError in Python, which those who ask take as "no number" */
    }
    if (!clean_number(s, text, sizeof text)) {
        return true;
    }
    const char *p = text;
    bool is_negative = *p == '-';
    p += *p == '-' || *p == '+';
    int prefix = p[0] == '0' ? (p[1] | 32) : 0;
    int prefix_base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (prefix_base && (base == 0 || base == prefix_base)) {
        base = prefix_base;
        p += 2;
    } else if (base == 0) {
        if (p[0] == '0' && p[strspn(p, "0")] != '\0') {
            return true;
        }
        base = 10;
    }
    int64_t value = 0;
    const char *start = p;
    for (; *p; p++) {
        int digit = digit_value(*p);
        if (digit >= base) {
            return true;
        }
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, (int64_t)digit, &value)) {
            return jfail(r, "a whole number beyond 64 bits");
        }
    }
    if (p == start) {
        return true;
    }
    if (!is_negative && value == INT64_MIN) {
        return jfail(r, "a whole number beyond 64 bits");
    }
    *out = is_negative ? value : -value;
    *ok = true;
    return true;
}

/* ---- str and repr */

static bool is_printable(uint32_t cp) {
    if (cp < 0x7f) {
        return cp >= 0x20;
    }
    uint32_t c = ucd_class(cp) & UCD_CATEGORY_MASK;
    return c != UCD_CC && c != UCD_CF && c != UCD_CS && c != UCD_CO && c != UCD_CN && c != UCD_ZL &&
           c != UCD_ZP && c != UCD_ZS;
}

static bool add_hex(jrun *r, jbuf *b, uint32_t cp, bool is_input) {
    char text[16];
    int n = cp < 0x100     ? snprintf(text, sizeof text, "\\x%02x", cp)
            : cp < 0x10000 ? snprintf(text, sizeof text, "\\u%04x", cp)
                           : snprintf(text, sizeof text, "\\U%08x", cp);
    return jbuf_add(r, b, text, (size_t)n, is_input);
}

static bool add_str_repr(jrun *r, jbuf *b, const jstr *s) {
    bool has_single = s->bytes && memchr(s->data, '\'', s->bytes);
    bool has_double = s->bytes && memchr(s->data, '"', s->bytes);
    uint32_t quote = has_single && !has_double ? '"' : '\'';
    bool is_any = s->n_mark > 0;
    bool ok = jbuf_char(r, b, quote, is_any);
    size_t used;
    for (size_t i = 0; ok && i < s->bytes; i += used) {
        uint32_t cp = jstr_at(s, i, &used);
        bool is_input = jstr_is_input(s, i, i + used);
        const char *escape = cp == '\n'   ? "\\n"
                             : cp == '\r' ? "\\r"
                             : cp == '\t' ? "\\t"
                             : cp == '\\' ? "\\\\"
                                          : NULL;
        if (escape) {
            ok = jbuf_text(r, b, escape, is_input);
        } else if (cp == quote) {
            ok = jbuf_char(r, b, '\\', is_input) && jbuf_char(r, b, cp, is_input);
        } else if (!is_printable(cp)) {
            ok = add_hex(r, b, cp, is_input);
        } else {
            ok = jbuf_add(r, b, s->data + i, used, is_input);
        }
    }
    return ok && jbuf_char(r, b, quote, is_any);
}

static bool add_list_repr(jrun *r, jbuf *b, const jlist *list, bool is_tuple, bool in) {
    bool ok = jbuf_text(r, b, is_tuple ? "(" : "[", in);
    for (size_t i = 0; ok && i < list->n; i++) {
        ok = (i == 0 || jbuf_text(r, b, ", ", in)) && jbuf_value(r, b, list->items[i], true);
    }
    ok = ok && (!is_tuple || list->n != 1 || jbuf_text(r, b, ",", in));
    return ok && jbuf_text(r, b, is_tuple ? ")" : "]", in);
}

static bool add_dict_repr(jrun *r, jbuf *b, const jdict *d, bool in) {
    bool ok = jbuf_text(r, b, "{", in);
    for (size_t i = 0; ok && i < d->n; i++) {
        ok = (i == 0 || jbuf_text(r, b, ", ", in)) && jbuf_value(r, b, d->entries[i].key, true) &&
             jbuf_text(r, b, ": ", in) && jbuf_value(r, b, d->entries[i].value, true);
    }
    return ok && jbuf_text(r, b, "}", in);
}

static bool add_view_repr(jrun *r, jbuf *b, jval v) {
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    jlist *list;
    return jlist_from(r, v, &list) && jbuf_text(r, b, names[v.view->which], v.view->is_input) &&
           jbuf_text(r, b, "(", v.view->is_input) &&
           add_list_repr(r, b, list, false, v.view->is_input) &&
           jbuf_text(r, b, ")", v.view->is_input);
}

static bool add_range_repr(jrun *r, jbuf *b, const jrange *range) {
    char text[100];
    if (range->step == 1) {
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)range->start,
                 (long long)range->stop);
    } else {
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)range->start,
                 (long long)range->stop, (long long)range->step);
    }
    return jbuf_text(r, b, text, false);
}

static bool add_object_repr(jrun *r, jbuf *b, jval v) {
    char text[100];
    int64_t length = 0;
    switch (v.kind) {
    case J_NAMESPACE:
        return jbuf_text(r, b, "<Namespace ", false) &&
               add_dict_repr(r, b, &v.space->attrs, false) && jbuf_text(r, b, ">", false);
    case J_LOOP:
        if (!jloop_length(r, v.loop, &length)) {
            return false;
        }
        snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)v.loop->index0 + 1,
                 (long long)length);
        return jbuf_text(r, b, text, false);
    case J_MACRO:
        if (!v.macro->node->name) {
            return jbuf_text(r, b, "<Macro anonymous>", false);
        }
        return jbuf_text(r, b, "<Macro ", false) && add_str_repr(r, b, v.macro->node->name) &&
               jbuf_text(r, b, ">", false);
    default:
        snprintf(text, sizeof text, "<%s object>", jtype_name(v));
        return jbuf_text(r, b, text, false);
    }
}

static bool add_compound(jrun *r, jbuf *b, jval v) {
    switch (v.kind) {
    case J_LIST:
    case J_TUPLE:
        return add_list_repr(r, b, v.list, v.kind == J_TUPLE, v.is_input);
    case J_DICT:
        return add_dict_repr(r, b, v.dict, v.is_input);
    case J_VIEW:
        return add_view_repr(r, b, v);
    case J_RANGE:
        return add_range_repr(r, b, v.range);
    default:
        return add_object_repr(r, b, v);
    }
}

/* Markup('…'), as Python shows a safe string inside of a list. */
static bool add_text_repr(jrun *r, jbuf *b, const jstr *s) {
    if (!s->is_safe) {
        return add_str_repr(r, b, s);
    }
    return jbuf_text(r, b, "Markup(", false) && add_str_repr(r, b, s) &&
           jbuf_text(r, b, ")", false);
}

bool jbuf_value(jrun *r, jbuf *b, jval v, bool is_repr) {
    switch (v.kind) {
    case J_STR:
        return is_repr ? add_text_repr(r, b, v.s) : jbuf_str(r, b, v.s);
    case J_UNDEFINED:
        return !is_repr || jbuf_text(r, b, "Undefined", false);
    case J_NONE:
        return jbuf_text(r, b, "None", v.is_input);
    case J_BOOL:
        return jbuf_text(r, b, v.b ? "True" : "False", v.is_input);
    case J_INT:
    case J_FLOAT:
        return add_number(r, b, v);
    default: {
        bool ok = jenter(r) && jcharge(r, 1) && add_compound(r, b, v);
        jleave(r);
        return ok;
    }
    }
}

bool jsoft_str(jrun *r, jval v, const jstr **out) {
    jbuf b = {0};
    jval text;
    if (v.kind == J_STR) {
        *out = v.s;
        return true;
    }
    if (!jbuf_value(r, &b, v, false) || !jbuf_take(r, &b, &text)) {
        return false;
    }
    *out = text.s;
    return true;
}

bool jstr_from(jrun *r, jval v, const jstr **out) {
    if (!jsoft_str(r, v, out)) {
        return false;
    }
    if ((*out)->is_safe) {
        jstr *plain = jget(r, 1, sizeof *plain);
        if (!plain) {
            return false;
        }
        *plain = **out;
        plain->is_safe = false;
        *out = plain;
    }
    return true;
}

bool jescape(jrun *r, const jstr *s, jval *out) {
    jbuf b = {.is_safe = true};
    size_t start = 0;
    if (s->is_safe) {
        *out = jtext(s);
        return true;
    }
    for (size_t i = 0; i < s->bytes; i++) {
        char c = s->data[i];
        const char *escape = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '\'' ? "&#39;"
                             : c == '"'  ? "&#34;"
                                         : NULL;
        if (escape) {
            if (!jbuf_part(r, &b, s, start, i) ||
                !jbuf_text(r, &b, escape, jstr_is_input(s, i, i + 1))) {
                return false;
            }
            start = i + 1;
        }
    }
    return jbuf_part(r, &b, s, start, s->bytes) && jbuf_take(r, &b, out);
}

/* ---- case */

static uint32_t to_lower(uint32_t cp) {
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

static bool is_cased(uint32_t cp) {
    return to_lower(cp) != cp || (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp) != cp ||
           (ucd_class(cp) & UCD_CATEGORY_MASK) <= UCD_LL;
}

static bool add_cased(jrun *r, jbuf *b, uint32_t cp, int how, bool is_input) {
    if (how == CASE_LOWER) {
        return jbuf_char(r, b, to_lower(cp), is_input);
    }
    if (cp == 0xdf) { /* the one character of German whose capital is two */
        return jbuf_text(r, b, how == CASE_TITLE ? "Ss" : "SS", is_input);
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    return jbuf_char(
        r, b, (uint32_t)(how == CASE_TITLE ? utf8proc_totitle(c) : utf8proc_toupper(c)), is_input);
}

bool jchange_case(jrun *r, const jstr *s, int how, jval *out) {
    jbuf b = {.is_safe = s->is_safe};
    bool is_in_word = false;
    size_t used;
    for (size_t i = 0; i < s->bytes; i += used) {
        uint32_t cp = jstr_at(s, i, &used);
        int now = how;
        if (how == CASE_CAPITALIZE) {
            now = i ? CASE_LOWER : CASE_TITLE;
        } else if (how == CASE_TITLE) {
            now = is_in_word ? CASE_LOWER : CASE_TITLE;
            is_in_word = is_cased(cp);
        } else if (how == CASE_SWAP) {
            now = to_lower(cp) != cp ? CASE_LOWER : CASE_UPPER;
        }
        if (!jcharge(r, 1) || !add_cased(r, &b, cp, now, jstr_is_input(s, i, i + used))) {
            return false;
        }
    }
    return jbuf_take(r, &b, out);
}

bool jfold_case(jrun *r, bool is_case, jval *v) {
    return is_case || v->kind != J_STR || jchange_case(r, v->s, CASE_LOWER, v);
}
