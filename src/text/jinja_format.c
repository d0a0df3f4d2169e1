/* Formatting of values into text: Python's % operator and str.format. Owns no state.
 *
 * Both read a specification (fill, alignment, sign, width, precision, type) and share what makes
 * text of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_run.h"

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 500, FLOAT_TEXT_BYTES = 1200 };

typedef struct format_spec {
    uint32_t fill;
    char align; /* < > = ^ */
    char sign;  /* 0, '+' or ' ' */
    bool is_alternate;
    bool is_safe;             /* texts are put in escaped */
    char group;               /* 0, ',' or '_' */
    int64_t width, precision; /* -1: none */
    char type;                /* 0: none */
} format_spec;

/* ---- padding */

/* Adds text, whose first n_prefix bytes are a sign or the like, with fill so that it is as wide as
 * asked. */
static bool pad_into(jrun *r, jbuf *to, const format_spec *f, const jstr *text, size_t n_prefix) {
    size_t width = f->width > 0 ? (size_t)f->width : 0;
    size_t n = width > text->n_char ? width - text->n_char : 0;
    size_t left = f->align == '>' ? n : f->align == '^' ? n / 2 : 0;
    size_t inner = f->align == '=' ? n : 0;
    if (f->align != '=') {
        n_prefix = 0;
    }
    return jbuf_fill(r, to, f->fill, left, false) && jbuf_part(r, to, text, 0, n_prefix) &&
           jbuf_fill(r, to, f->fill, inner, false) &&
           jbuf_part(r, to, text, n_prefix, text->bytes) &&
           jbuf_fill(r, to, f->fill, n - left - inner, false);
}

static bool add_padded(jrun *r, jbuf *to, const format_spec *f, const char *text, size_t bytes,
                       size_t n_prefix, bool is_input) {
    const jstr *s = jstr_of(&r->mem, text, bytes, is_input);
    return s ? pad_into(r, to, f, s, n_prefix) : jfail_memory(r);
}

static bool format_text(jrun *r, jbuf *to, const format_spec *f, const jstr *s) {
    jval part = jtext(s);
    if (f->precision >= 0 && (size_t)f->precision < s->n_char &&
        !jstr_part(r, s, 0, jstr_offset(s, (size_t)f->precision), &part)) {
        return false;
    }
    if (f->is_safe && !jescape(r, part.s, &part)) {
        return false;
    }
    return pad_into(r, to, f, part.s, 0);
}

/* ---- numbers */

/* digits with a separator between groups of `each` from the right, at least `width` wide with zeros
 * in front; returns the bytes. out holds 2 * (n + width) + 2. */
static size_t group_digits(const char *digits, size_t n, char group, size_t each, size_t width,
                           char *out) {
    char back[4 * FLOAT_TEXT_BYTES];
    size_t used = 0;
    for (size_t i = 0; (i < n || used < width) && used + 2 < sizeof back; i++) {
        if (i && i % each == 0) {
            back[used++] = group;
        }
        back[used++] = i < n ? digits[n - 1 - i] : '0';
    }
    for (size_t i = 0; i < used; i++) {
        out[i] = back[used - 1 - i];
    }
    return used;
}

/* Puts sign, prefix and digits together; tail is what follows the whole digits. */
static bool add_number(jrun *r, jbuf *to, const format_spec *f, bool is_negative,
                       const char *prefix, const char *digits, size_t n, const char *tail,
                       bool is_input) {
    char text[6 * FLOAT_TEXT_BYTES];
    size_t used = 0;
    if (is_negative || f->sign) {
        text[used++] = is_negative ? '-' : f->sign;
    }
    size_t n_prefix = strlen(prefix);
    memcpy(text + used, prefix, n_prefix);
    used += n_prefix;
    size_t head = used;
    size_t n_tail = strlen(tail);
    if (f->group) {
        bool is_decimal = !strchr("boxX", f->type) || !f->type;
        size_t taken = head + n_tail;
        size_t width = f->align == '=' && f->fill == '0' && f->width > (int64_t)taken
                           ? (size_t)f->width - taken
                           : 0;
        width = width > FLOAT_TEXT_BYTES ? FLOAT_TEXT_BYTES : width;
        used += group_digits(digits, n, f->group, is_decimal ? 3 : 4, width, text + used);
    } else {
        memcpy(text + used, digits, n);
        used += n;
    }
    memcpy(text + used, tail, n_tail);
    used += n_tail;
    char *copy = jget(r, used + 1, 1);
    if (!copy) {
        return false;
    }
    memcpy(copy, text, used);
    return add_padded(r, to, f, copy, used, head, is_input);
}

static bool format_int(jrun *r, jbuf *to, const format_spec *f, int64_t i, bool is_input) {
    char digits[MAX_PRECISION + 80];
    size_t n = sizeof digits;
    uint64_t v = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = f->type == 'b'                     ? 2
                    : f->type == 'o'                   ? 8
                    : f->type == 'x' || f->type == 'X' ? 16
                                                       : 10;
    const char *set = f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    size_t least = f->precision > 0 ? (size_t)f->precision : 1;
    do {
        digits[--n] = set[v % base];
        v /= base;
    } while (v || sizeof digits - n < least);
    const char *prefix = !f->is_alternate || base == 10 ? ""
                         : f->type == 'b'               ? "0b"
                         : f->type == 'o'               ? "0o"
                         : f->type == 'x'               ? "0x"
                                                        : "0X";
    return add_number(r, to, f, i < 0, prefix, digits + n, sizeof digits - n, "", is_input);
}

/* printf without the locale's radix character. */
static void print_double(char out[FLOAT_TEXT_BYTES], char type, bool is_alternate, int precision,
                         double v) {
    char text[FLOAT_TEXT_BYTES];
    size_t n = 0;
    switch (type) {
    case 'e':
        snprintf(text, sizeof text, is_alternate ? "%#.*e" : "%.*e", precision, v);
        break;
    case 'g':
        snprintf(text, sizeof text, is_alternate ? "%#.*g" : "%.*g", precision, v);
        break;
    default:
        snprintf(text, sizeof text, is_alternate ? "%#.*f" : "%.*f", precision, v);
        break;
    }
    for (const char *c = text; *c; c++) {
        bool is_plain =
            (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || *c == '-' || *c == '+';
        if (is_plain) {
            out[n++] = *c;
        } else if (n == 0 || out[n - 1] != '.') {
            out[n++] = '.';
        }
    }
    out[n] = '\0';
}

static void upper_ascii(char *s) {
    for (; *s; s++) {
        *s = *s >= 'a' && *s <= 'z' ? (char)(*s - 32) : *s;
    }
}

static bool format_float(jrun *r, jbuf *to, const format_spec *f, double v, bool is_input) {
    char text[FLOAT_TEXT_BYTES + 4];
    bool is_negative = signbit(v) && !isnan(v);
    char type = f->type ? (char)(f->type | 32) : 0;
    double a = fabs(v);
    if (f->type == '%') {
        a *= 100;
        type = 'f';
    }
    int precision = f->precision < 0               ? 6
                    : f->precision > MAX_PRECISION ? MAX_PRECISION
                                                   : (int)f->precision;
    if (isnan(v) || isinf(v)) {
        snprintf(text, sizeof text, "%s", isnan(v) ? "nan" : "inf");
    } else if (!type && f->precision < 0) {
        text[jfloat_repr(a, text)] = '\0';
    } else if (!type) {
        print_double(text, 'g', f->is_alternate, precision ? precision : 1, a);
        if (!strpbrk(text, ".e")) {
            strncat(text, ".0", 3);
        }
    } else {
        print_double(text, type, f->is_alternate, precision, a);
    }
    if (f->type >= 'A' && f->type <= 'Z') {
        upper_ascii(text);
    }
    if (f->type == '%') {
        strncat(text, "%", 2);
    }
    size_t n = strspn(text, "0123456789");
    n = n ? n : strlen(text);
    return add_number(r, to, f, is_negative, "", text, n, text + n, is_input);
}

static int64_t int_of(jval v) {
    return v.kind == J_BOOL ? v.b : v.i;
}

static double double_of(jval v) {
    return v.kind == J_FLOAT ? v.f : (double)int_of(v);
}

/* ---- the % operator */

typedef struct percent {
    const jstr *format;
    size_t at;
    jval args;
    size_t n_used;
    bool is_mapping;
    jval named; /* of %(name); J_MISSING: none */
} percent;

static bool next_argument(jrun *r, percent *p, jval *out) {
    if (p->named.kind != J_MISSING) {
        *out = p->named;
        return true;
    }
    if (p->args.kind == J_TUPLE) {
        if (p->n_used >= p->args.list->n) {
            return jfail(r, "not enough arguments for format string");
        }
        *out = p->args.list->items[p->n_used++];
        return true;
    }
    if (p->n_used++) {
        return jfail(r, "not enough arguments for format string");
    }
    *out = p->args;
    return true;
}

static char here(const percent *p) {
    return p->at < p->format->bytes ? p->format->data[p->at] : '\0';
}

static bool read_name(jrun *r, percent *p) {
    size_t start = ++p->at;
    int open = 1;
    for (; open && p->at < p->format->bytes; p->at++) {
        open += (here(p) == '(') - (here(p) == ')');
    }
    jval key;
    jval *found;
    if (open || p->args.kind != J_DICT) {
        return jfail(r, open ? "incomplete format key" : "format requires a mapping");
    }
    if (!jstr_part(r, p->format, start, p->at - 1, &key) ||
        !jdict_find(r, p->args.dict, key, &found)) {
        return false;
    }
    if (!found) {
        return jfail(r, "the mapping lacks a key of the format string");
    }
    p->named = *found;
    return true;
}

static bool read_count(jrun *r, percent *p, int64_t most, int64_t *out) {
    if (here(p) == '*') {
        jval v = jnone();
        p->at++;
        if (!next_argument(r, p, &v)) {
            return false;
        }
        if (v.kind != J_INT) {
            return jfail(r, "* wants int");
        }
        *out = v.i;
    } else {
        for (*out = 0; here(p) >= '0' && here(p) <= '9'; p->at++) {
            *out = *out > most ? *out : *out * 10 + (here(p) - '0');
        }
    }
    return *out <= most || jfail(r, "a width or precision beyond %lld", (long long)most);
}

static bool read_spec(jrun *r, percent *p, format_spec *f) {
    bool is_zero = false;
    *f = (format_spec){.fill = ' ', .align = '>', .width = -1, .precision = -1};
    f->is_safe = p->format->is_safe;
    p->named = jmissing();
    if (here(p) == '(' && !read_name(r, p)) {
        return false;
    }
    for (; here(p) && strchr("-+ #0", here(p)); p->at++) {
        char c = here(p);
        is_zero = is_zero || c == '0';
        f->is_alternate = f->is_alternate || c == '#';
        f->align = c == '-' ? '<' : f->align;
        f->sign = c == '+' || (c == ' ' && f->sign != '+') ? c : f->sign;
    }
    if (!read_count(r, p, MAX_WIDTH, &f->width)) {
        return false;
    }
    if (f->width < 0) {
        f->align = '<';
        f->width = f->width < -MAX_WIDTH ? MAX_WIDTH : -f->width;
    }
    if (here(p) == '.') {
        p->at++;
        if (!read_count(r, p, MAX_PRECISION, &f->precision)) {
            return false;
        }
        f->precision = f->precision < 0 ? 0 : f->precision;
    }
    while (here(p) && strchr("hlL", here(p))) {
        p->at++;
    }
    f->type = here(p);
    if (!f->type) {
        return jfail(r, "incomplete format");
    }
    if (is_zero && f->align != '<' && strchr("diuoxXeEfFgG", f->type)) {
        f->align = '=';
        f->fill = '0';
    }
    p->at++;
    return true;
}

static bool percent_number(jrun *r, jbuf *to, format_spec *f, jval v) {
    bool is_float_type = strchr("eEfFgG", f->type) != NULL;
    bool is_hex = strchr("xXo", f->type) != NULL;
    if (!jis_number(v) || (is_hex && v.kind == J_FLOAT)) {
        return jfail(r, "%%%c format: a number is required, not %s", f->type, jtype_name(v));
    }
    if (is_float_type) {
        return format_float(r, to, f, double_of(v), v.is_input);
    }
    if (v.kind == J_FLOAT && !(v.f > -9.2e18 && v.f < 9.2e18)) {
        return jfail(r, "a whole number beyond 64 bits");
    }
    f->type = is_hex ? f->type : 'd';
    return format_int(r, to, f, v.kind == J_FLOAT ? (int64_t)v.f : int_of(v), v.is_input);
}

static bool percent_char(jrun *r, jbuf *to, format_spec *f, jval v) {
    jbuf b = {0};
    f->precision = -1;
    if (v.kind == J_STR && v.s->n_char == 1) {
        return format_text(r, to, f, v.s);
    }
    bool is_scalar =
        v.kind == J_INT && v.i >= 0 && v.i <= 0x10ffff && (v.i < 0xd800 || v.i > 0xdfff);
    if (!is_scalar) {
        return jfail(r, "%%c requires int or char");
    }
    jval text;
    return jbuf_char(r, &b, (uint32_t)v.i, v.is_input) && jbuf_take(r, &b, &text) &&
           format_text(r, to, f, text.s);
}

static bool percent_one(jrun *r, jbuf *to, percent *p) {
    format_spec f;
    jval v = jnone();
    jval text;
    jbuf b = {0};
    if (!read_spec(r, p, &f)) {
        return false;
    }
    if (f.type == '%') {
        return jbuf_char(r, to, '%', false);
    }
    if (!next_argument(r, p, &v)) {
        return false;
    }
    switch (f.type) {
    case 's':
    case 'r':
        return jbuf_value(r, &b, v, f.type == 'r') && jbuf_take(r, &b, &text) &&
               format_text(r, to, &f, text.s);
    case 'c':
        return percent_char(r, to, &f, v);
    default:
        if (!strchr("diuoxXeEfFgG", f.type)) {
            return jfail(r, "unsupported format character");
        }
        return percent_number(r, to, &f, v);
    }
}

bool jpercent(jrun *r, const jstr *format, jval args, jval *out) {
    jbuf b = {.is_safe = format->is_safe};
    percent p = {.format = format, .args = args};
    p.is_mapping = args.kind == J_DICT || args.kind == J_LIST || args.kind == J_RANGE ||
                   args.kind == J_UNDEFINED;
    while (p.at < format->bytes) {
        const char *next = memchr(format->data + p.at, '%', format->bytes - p.at);
        size_t end = next ? (size_t)(next - format->data) : format->bytes;
        if (!jbuf_part(r, &b, format, p.at, end)) {
            return false;
        }
        p.at = end + (next != NULL);
        if (next && !percent_one(r, &b, &p)) {
            return false;
        }
    }
    size_t n_given = args.kind == J_TUPLE ? args.list->n : 1;
    if (p.n_used < n_given && !p.is_mapping) {
        return jfail(r, "not all arguments converted during string formatting");
    }
    return jbuf_take(r, &b, out);
}

/* ---- str.format */

typedef struct formatter {
    const jargs *args;
    const jstr *format;
    int64_t next; /* number of the next {}, -1 once numbers are given */
    int nesting;
} formatter;

static uint32_t spec_char(const jstr *s, size_t at, size_t *used) {
    *used = 0;
    return at < s->bytes ? jstr_at(s, at, used) : 0;
}

static bool parse_count(const jstr *s, size_t *at, int64_t *out) {
    size_t start = *at;
    for (*out = 0; *at < s->bytes && s->data[*at] >= '0' && s->data[*at] <= '9'; (*at)++) {
        *out = *out > MAX_WIDTH ? *out : *out * 10 + (s->data[*at] - '0');
    }
    return *at > start;
}

static bool parse_spec(jrun *r, const jstr *s, format_spec *f) {
    size_t at = 0;
    size_t used;
    size_t used2;
    uint32_t first = spec_char(s, 0, &used);
    uint32_t second = spec_char(s, used, &used2);
    *f = (format_spec){.fill = ' ', .width = -1, .precision = -1};
    if (second && second < 0x80 && strchr("<>=^", (int)second)) {
        f->fill = first;
        f->align = (char)second;
        at = used + used2;
    } else if (first && first < 0x80 && strchr("<>=^", (int)first)) {
        f->align = (char)first;
        at = used;
    }
    if (at < s->bytes && strchr("+- ", s->data[at]) && s->data[at]) {
        f->sign = s->data[at] == '-' ? '\0' : s->data[at];
        at++;
    }
    f->is_alternate = at < s->bytes && s->data[at] == '#';
    at += f->is_alternate;
    if (at < s->bytes && s->data[at] == '0') {
        f->fill = f->align ? f->fill : '0';
        f->align = f->align ? f->align : '=';
        at++;
    }
    bool ok = true;
    if (!parse_count(s, &at, &f->width)) {
        f->width = -1;
    }
    if (at < s->bytes && (s->data[at] == ',' || s->data[at] == '_')) {
        f->group = s->data[at++];
    }
    if (at < s->bytes && s->data[at] == '.') {
        at++;
        ok = parse_count(s, &at, &f->precision);
    }
    if (at < s->bytes) {
        f->type = s->data[at++];
    }
    ok = ok && at == s->bytes && f->width <= MAX_WIDTH && f->precision <= MAX_PRECISION;
    return ok || jfail(r, "an invalid format specification");
}

static bool format_value(jrun *r, jbuf *to, jval v, const jstr *spec) {
    format_spec f;
    if (!parse_spec(r, spec, &f)) {
        return false;
    }
    bool is_float_type = f.type && strchr("eEfFgG%", f.type);
    if (jis_number(v) && (v.kind != J_BOOL || f.type)) {
        f.align = f.align ? f.align : '>';
        if (f.type == 'n') {
            f.type = v.kind == J_FLOAT ? 'g' : 'd';
        }
        if (v.kind == J_FLOAT || is_float_type) {
            return (!f.type || is_float_type) ? format_float(r, to, &f, double_of(v), v.is_input)
                                              : jfail(r, "an unknown format code for a float");
        }
        if ((f.type && !strchr("bdoxX", f.type)) || f.precision >= 0) {
            return jfail(r, "an unknown format code for a whole number");
        }
        return format_int(r, to, &f, int_of(v), v.is_input);
    }
    const jstr *text;
    bool takes_spec = v.kind == J_STR || v.kind == J_BOOL;
    if (!jsoft_str(r, v, &text)) {
        return false;
    }
    if ((!takes_spec && spec->bytes) || (f.type && f.type != 's') || f.align == '=' || f.sign ||
        f.group || f.is_alternate) {
        return jfail(r, "this format specification does not fit '%s'", jtype_name(v));
    }
    f.align = f.align ? f.align : v.kind == J_BOOL ? '>' : '<';
    return format_text(r, to, &f, text);
}

/* The value of "name", "0" or "", before any attributes. */
static bool first_value(jrun *r, formatter *x, const jstr *name, jval *out) {
    bool is_number = false;
    int64_t i = 0;
    if (name->bytes && name->data[0] >= '0' && name->data[0] <= '9' &&
        !jparse_int(r, name, 10, &is_number, &i)) {
        return false;
    }
    if (name->bytes == 0 || is_number) {
        bool is_mixed = name->bytes == 0 ? x->next < 0 : x->next > 0;
        if (is_mixed) {
            return jfail(r, "a format string numbers some fields and not others");
        }
        i = name->bytes == 0 ? x->next++ : i;
        x->next = name->bytes == 0 ? x->next : -1;
        if (i < 0 || (size_t)i >= x->args->n_pos) {
            return jfail(r, "a format string asks for more arguments than there are");
        }
        *out = x->args->pos[i];
        return true;
    }
    for (size_t k = 0; k < x->args->n_kw; k++) {
        if (jstr_equal(x->args->names[k], name)) {
            *out = x->args->kw[k];
            return true;
        }
    }
    return jfail(r, "a format string asks for an argument that is not given");
}

/* name, then any of .attribute and [key]. */
static bool field_value(jrun *r, formatter *x, const jstr *field, jval *out) {
    size_t end = 0;
    jval part;
    while (end < field->bytes && field->data[end] != '.' && field->data[end] != '[') {
        end++;
    }
    if (!jstr_part(r, field, 0, end, &part) || !first_value(r, x, part.s, out)) {
        return false;
    }
    while (end < field->bytes) {
        bool is_attribute = field->data[end] == '.';
        size_t start = ++end;
        while (end < field->bytes &&
               (is_attribute ? field->data[end] != '.' && field->data[end] != '['
                             : field->data[end] != ']')) {
            end++;
        }
        if (!jstr_part(r, field, start, end, &part) || end == start ||
            (!is_attribute && end == field->bytes)) {
            return jfail(r, "a malformed field in a format string");
        }
        bool is_number = false;
        int64_t i = 0;
        if (!is_attribute && (!jparse_int(r, part.s, 10, &is_number, &i))) {
            return false;
        }
        bool ok = is_attribute ? jgetattr(r, *out, part.s, out)
                               : jgetitem(r, *out, is_number ? jint(i) : part, out);
        if (!ok) {
            return false;
        }
        end += !is_attribute;
    }
    return true;
}

static bool format_into(jrun *r, formatter *x, const jstr *s, jbuf *to);

/* One replacement field: s[start..end), without its braces. */
static bool format_field(jrun *r, formatter *x, const jstr *s, size_t start, size_t end, jbuf *to) {
    size_t name_end = start;
    int in_brackets = 0;
    for (; name_end < end; name_end++) {
        char c = s->data[name_end];
        in_brackets = c == '[' ? 1 : c == ']' ? 0 : in_brackets;
        if (!in_brackets && (c == '!' || c == ':')) {
            break;
        }
    }
    jval field;
    jval v = jnone();
    jval spec;
    jbuf spec_text = {0};
    char conversion = 0;
    size_t at = name_end;
    if (at < end && s->data[at] == '!') {
        conversion = at + 1 < end ? s->data[at + 1] : '\0';
        at += 2;
        if ((conversion != 'r' && conversion != 's') || (at < end && s->data[at] != ':')) {
            return jfail(r, "an unknown conversion in a format string");
        }
    }
    if (!jstr_part(r, s, start, name_end, &field) || !field_value(r, x, field.s, &v) ||
        !jstr_part(r, s, at < end ? at + 1 : end, end, &spec)) {
        return false;
    }
    if (!format_into(r, x, spec.s, &spec_text) || !jbuf_take(r, &spec_text, &spec)) {
        return false;
    }
    if (conversion) {
        jbuf b = {0};
        if (!jbuf_value(r, &b, v, conversion == 'r') || !jbuf_take(r, &b, &v)) {
            return false;
        }
    }
    return format_value(r, to, v, spec.s);
}

static bool format_into(jrun *r, formatter *x, const jstr *s, jbuf *to) {
    if (++x->nesting > 3) {
        return jfail(r, "a format string nested too deeply");
    }
    for (size_t i = 0; i < s->bytes;) {
        char c = s->data[i];
        if (c != '{' && c != '}') {
            size_t start = i;
            while (i < s->bytes && s->data[i] != '{' && s->data[i] != '}') {
                i++;
            }
            if (!jbuf_part(r, to, s, start, i)) {
                return false;
            }
            continue;
        }
        if (i + 1 < s->bytes && s->data[i + 1] == c && x->nesting == 1) {
            if (!jbuf_part(r, to, s, i, i + 1)) {
                return false;
            }
            i += 2;
            continue;
        }
        size_t start = ++i;
        int open = c == '{';
        for (; open && i < s->bytes; i++) {
            open += (s->data[i] == '{') - (s->data[i] == '}');
        }
        if (c == '}' || open) {
            return jfail(r, "single '%c' encountered in format string", c);
        }
        if (!format_field(r, x, s, start, i - 1, to)) {
            return false;
        }
    }
    x->nesting--;
    return true;
}

bool jformat(jrun *r, const jstr *format, const jargs *args, jval *out) {
    jbuf b = {.is_safe = format->is_safe};
    formatter x = {.args = args, .format = format};
    return format_into(r, &x, format, &b) && jbuf_take(r, &b, out);
}
