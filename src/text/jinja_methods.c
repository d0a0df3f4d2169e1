/* Methods of strings: finding, cutting, replacing and aligning. Those that test and change letters,
 * and the methods of other types, are in jinja_methods_more.c. Owns no state. */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_run.h"

/* The bytes of a string that start and end (arg[at] and arg[at + 1]) leave, as in Python. */
static bool byte_window(jrun *r, const jcall *c, size_t at, size_t *from, size_t *to,
                        bool *is_past) {
    const jstr *s = c->self.s;
    int64_t n = (int64_t)s->n_char;
    int64_t start = 0;
    int64_t end = n;
    if ((c->arg[at].kind != J_NONE && !jarg_int(r, c, at, 0, &start)) ||
        (c->arg[at + 1].kind != J_NONE && !jarg_int(r, c, at + 1, n, &end))) {
        return false;
    }
    start = start < -n ? 0 : start < 0 ? start + n : start;
    end = end < -n ? 0 : end < 0 ? end + n : end > n ? n : end;
    *is_past = start > end || start > n;
    *from = jstr_offset(s, *is_past ? (size_t)n : (size_t)start);
    *to = jstr_offset(s, (size_t)end);
    *to = *to < *from ? *from : *to;
    return jcharge(r, s->n_char == s->bytes ? 0 : s->bytes / 8);
}

enum { FIND_FIRST = 0, FIND_LAST = 1, FIND_OR_FAIL = 2 };

static bool str_find(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    const jstr *part;
    size_t from;
    size_t to;
    size_t at = SIZE_MAX;
    bool is_past;
    if (!jarg_str(r, c, 0, &part) || !byte_window(r, c, 1, &from, &to, &is_past) ||
        !jcharge(r, (to - from) / 16)) {
        return false;
    }
    if (!is_past && (c->native->tag & FIND_LAST)) {
        if (!jstr_rfind(r, s, from, to, part, &at)) {
            return false;
        }
    } else if (!is_past) {
        at = jstr_find(s, from, to, part);
    }
    if (at == SIZE_MAX && (c->native->tag & FIND_OR_FAIL)) {
        return jfail(r, "substring not found");
    }
    c->out = jint(at == SIZE_MAX ? -1 : (int64_t)jstr_count(s->data, at));
    return true;
}

static bool str_count(jrun *r, jcall *c) {
    const jstr *part;
    size_t from;
    size_t to;
    bool is_past;
    int64_t n = 0;
    if (!jarg_str(r, c, 0, &part) || !byte_window(r, c, 1, &from, &to, &is_past)) {
        return false;
    }
    if (part->bytes == 0) {
        n = is_past ? 0 : (int64_t)jstr_count(c->self.s->data + from, to - from) + 1;
    }
    while (part->bytes && !is_past) {
        size_t at = jstr_find(c->self.s, from, to, part);
        if (at == SIZE_MAX) {
            break;
        }
        if (!jcharge(r, (at - from) / 16 + part->bytes / 64)) {
            return false;
        }
        from = at + part->bytes;
        n++;
    }
    c->out = jint(n);
    return jcharge(r, (to - from) / 16);
}

static bool has_affix(const jstr *s, size_t from, size_t to, const jstr *part, bool is_end) {
    if (part->bytes > to - from) {
        return false;
    }
    const char *at = is_end ? s->data + to - part->bytes : s->data + from;
    return part->bytes == 0 || memcmp(at, part->data, part->bytes) == 0;
}

static bool str_starts_ends(jrun *r, jcall *c) {
    size_t from;
    size_t to;
    bool is_past;
    bool is_end = c->native->tag == 1;
    jval what = c->arg[0];
    if (!byte_window(r, c, 1, &from, &to, &is_past)) {
        return false;
    }
    if (what.kind == J_STR) {
        c->out = jbool(!is_past && has_affix(c->self.s, from, to, what.s, is_end));
        return true;
    }
    if (what.kind != J_TUPLE) {
        return jfail(r, "%s first arg must be str or a tuple of str, not %s", c->native->name,
                     jtype_name(what));
    }
    bool found = false;
    for (size_t i = 0; i < what.list->n && !found; i++) {
        if (what.list->items[i].kind != J_STR) {
            return jfail(r, "%s takes a tuple of str", c->native->name);
        }
        found = !is_past && has_affix(c->self.s, from, to, what.list->items[i].s, is_end);
    }
    c->out = jbool(found);
    return true;
}

/* ---- stripping */

static bool is_stripped(const jstr *chars, const jstr *s, size_t at, size_t used) {
    if (!chars) {
        size_t n;
        return jchar_is_space(jstr_at(s, at, &n));
    }
    jstr one = {.data = s->data + at, .bytes = used};
    return jstr_find(chars, 0, chars->bytes, &one) != SIZE_MAX;
}

bool jstrip(jrun *r, const jstr *s, const jstr *chars, bool at_start, bool at_end, jval *out) {
    size_t start = 0;
    size_t end = s->bytes;
    size_t used = 0;
    size_t cost = 1 + (chars ? chars->bytes / 16 : 0);
    while (at_start && start < end) {
        jstr_at(s, start, &used);
        if (!jcharge(r, cost) || !is_stripped(chars, s, start, used)) {
            break;
        }
        start += used;
    }
    while (at_end && end > start) {
        size_t last = end - 1;
        while (last > start && ((uint8_t)s->data[last] & 0xc0) == 0x80) {
            last--;
        }
        if (!jcharge(r, cost) || !is_stripped(chars, s, last, end - last)) {
            break;
        }
        end = last;
    }
    return r->code == SMOE_OK && jstr_part(r, s, start, end, out);
}

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

static bool str_strip(jrun *r, jcall *c) {
    const jstr *chars = NULL;
    bool has_chars = c->arg[0].kind != J_MISSING && c->arg[0].kind != J_NONE;
    if (has_chars && !jarg_str(r, c, 0, &chars)) {
        return false;
    }
    return jstrip(r, c->self.s, chars, c->native->tag & STRIP_LEFT, c->native->tag & STRIP_RIGHT,
                  &c->out);
}

static bool str_remove_affix(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    const jstr *part;
    bool is_end = c->native->tag == 1;
    if (!jarg_str(r, c, 0, &part)) {
        return false;
    }
    bool has = has_affix(s, 0, s->bytes, part, is_end);
    size_t cut = has ? part->bytes : 0;
    return is_end ? jstr_part(r, s, 0, s->bytes - cut, &c->out)
                  : jstr_part(r, s, cut, s->bytes, &c->out);
}

/* ---- splitting */

static bool add_part(jrun *r, jlist *list, const jstr *s, size_t start, size_t end) {
    jval part;
    return jcharge(r, 1) && jstr_part(r, s, start, end, &part) && jlist_add(r, list, part);
}

/* Python's split() at runs of white space; the rest, once max pieces are cut, keeps its end. */
static bool split_space(jrun *r, const jstr *s, int64_t max, jlist *list) {
    size_t used = 0;
    size_t i = 0;
    while (i < s->bytes) {
        while (i < s->bytes && jchar_is_space(jstr_at(s, i, &used))) {
            i += used;
        }
        if (i == s->bytes) {
            break;
        }
        if (max >= 0 && (int64_t)list->n >= max) {
            jval rest;
            return jstr_part(r, s, i, s->bytes, &rest) &&
                   jstrip(r, rest.s, NULL, false, true, &rest) && jlist_add(r, list, rest);
        }
        size_t start = i;
        while (i < s->bytes && !jchar_is_space(jstr_at(s, i, &used))) {
            i += used;
        }
        if (!jcharge(r, (i - start) / 8) || !add_part(r, list, s, start, i)) {
            return false;
        }
    }
    return true;
}

static size_t char_before(const jstr *s, size_t end) {
    do {
        end--;
    } while (end > 0 && ((uint8_t)s->data[end] & 0xc0) == 0x80);
    return end;
}

/* The same from the end; the list comes out reversed. */
static bool rsplit_space(jrun *r, const jstr *s, int64_t max, jlist *list) {
    size_t used;
    size_t end = s->bytes;
    for (;;) {
        while (end > 0 && jchar_is_space(jstr_at(s, char_before(s, end), &used))) {
            end = char_before(s, end);
        }
        if (end == 0) {
            return true;
        }
        if (max >= 0 && (int64_t)list->n >= max) {
            jval rest;
            return jstr_part(r, s, 0, end, &rest) && jstrip(r, rest.s, NULL, true, false, &rest) &&
                   jlist_add(r, list, rest);
        }
        size_t stop = end;
        while (end > 0 && !jchar_is_space(jstr_at(s, char_before(s, end), &used))) {
            end = char_before(s, end);
        }
        if (!jcharge(r, (stop - end) / 8) || !add_part(r, list, s, end, stop)) {
            return false;
        }
    }
}

static bool split_text(jrun *r, const jstr *s, const jstr *sep, int64_t max, jlist *list) {
    size_t start = 0;
    while (max < 0 || (int64_t)list->n < max) {
        size_t at = jstr_find(s, start, s->bytes, sep);
        if (at == SIZE_MAX) {
            break;
        }
        if (!jcharge(r, (at - start) / 16 + sep->bytes / 64) || !add_part(r, list, s, start, at)) {
            return false;
        }
        start = at + sep->bytes;
    }
    return jcharge(r, (s->bytes - start) / 16) && add_part(r, list, s, start, s->bytes);
}

static bool rsplit_text(jrun *r, const jstr *s, const jstr *sep, int64_t max, jlist *list) {
    size_t end = s->bytes;
    while (max < 0 || (int64_t)list->n < max) {
        size_t at;
        if (!jstr_rfind(r, s, 0, end, sep, &at)) {
            return false;
        }
        if (at == SIZE_MAX) {
            break;
        }
        if (!jcharge(r, (end - at) / 16) || !add_part(r, list, s, at + sep->bytes, end)) {
            return false;
        }
        end = at;
    }
    return jcharge(r, end / 16) && add_part(r, list, s, 0, end);
}

static bool str_split(jrun *r, jcall *c) {
    bool is_right = c->native->tag == 1;
    bool has_sep = c->arg[0].kind != J_MISSING && c->arg[0].kind != J_NONE;
    const jstr *sep = NULL;
    int64_t max = -1;
    jlist *list = jlist_new(r, 0);
    if (!list || (has_sep && !jarg_str(r, c, 0, &sep)) || !jarg_int(r, c, 1, -1, &max)) {
        return false;
    }
    if (sep && sep->bytes == 0) {
        return jfail(r, "empty separator");
    }
    bool ok = is_right ? (sep ? rsplit_text(r, c->self.s, sep, max, list)
                              : rsplit_space(r, c->self.s, max, list))
                       : (sep ? split_text(r, c->self.s, sep, max, list)
                              : split_space(r, c->self.s, max, list));
    for (size_t i = 0; is_right && i < list->n / 2; i++) {
        jval v = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = v;
    }
    c->out = jlist_value(list);
    return ok;
}

static bool is_line_end(uint32_t cp) {
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool jsplit_lines(jrun *r, const jstr *s, bool keep_ends, jlist *list) {
    size_t start = 0;
    size_t used;
    for (size_t i = 0; i < s->bytes;) {
        uint32_t cp = jstr_at(s, i, &used);
        size_t end = i;
        i += used;
        if (!is_line_end(cp)) {
            continue;
        }
        i += cp == '\r' && i < s->bytes && s->data[i] == '\n';
        if (!jcharge(r, (i - start) / 8) || !add_part(r, list, s, start, keep_ends ? i : end)) {
            return false;
        }
        start = i;
    }
    return start == s->bytes || add_part(r, list, s, start, s->bytes);
}

static bool str_splitlines(jrun *r, jcall *c) {
    jlist *list = jlist_new(r, 0);
    c->out = jlist_value(list);
    return list && jsplit_lines(r, c->self.s, jarg_truth(r, c, 0, false), list);
}

static bool str_partition(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    const jstr *sep;
    bool is_right = c->native->tag == 1;
    size_t at;
    jlist *list = jlist_new(r, 3);
    if (!list || !jarg_str(r, c, 0, &sep)) {
        return false;
    }
    if (sep->bytes == 0) {
        return jfail(r, "empty separator");
    }
    if (is_right && !jstr_rfind(r, s, 0, s->bytes, sep, &at)) {
        return false;
    }
    at = is_right ? at : jstr_find(s, 0, s->bytes, sep);
    bool found = at != SIZE_MAX;
    size_t cut = found ? at : is_right ? 0 : s->bytes;
    size_t behind = found ? at + sep->bytes : cut;
    c->out = (jval){.kind = J_TUPLE, .list = list};
    return jcharge(r, s->bytes / 16) && add_part(r, list, s, 0, cut) &&
           add_part(r, list, s, cut, behind) && add_part(r, list, s, behind, s->bytes);
}

/* ---- replacing and joining */

/* Text that stands in for text from outside counts as from outside: else content could choose where
 * a template's own words appear. */
static bool add_replacement(jrun *r, jbuf *b, const jstr *with, bool is_input) {
    return is_input ? jbuf_add(r, b, with->data, with->bytes, true) : jbuf_str(r, b, with);
}

bool jreplace(jrun *r, const jstr *s, const jstr *old, const jstr *with, int64_t max, jval *out) {
    jbuf b = {.is_safe = s->is_safe};
    size_t from = 0; /* where the text not yet taken over begins */
    size_t look = 0;
    for (int64_t n = 0; max < 0 || n < max; n++) {
        size_t at = jstr_find(s, look, s->bytes, old);
        if (look > s->bytes || at == SIZE_MAX) {
            break;
        }
        bool is_input = old->bytes ? jstr_is_input(s, at, at + old->bytes) : s->n_mark > 0;
        if (!jcharge(r, 1 + old->bytes / 64) || !jbuf_part(r, &b, s, from, at) ||
            !add_replacement(r, &b, with, is_input)) {
            return false;
        }
        from = at + old->bytes;
        look = from;
        if (old->bytes == 0) {
            size_t used = 1;
            if (at < s->bytes) {
                jstr_at(s, at, &used);
            }
            look = at + used;
        }
    }
    return jcharge(r, s->bytes / 16) && jbuf_part(r, &b, s, from, s->bytes) &&
           jbuf_take(r, &b, out);
}

static bool str_replace(jrun *r, jcall *c) {
    const jstr *old;
    const jstr *with;
    int64_t max;
    if (!jarg_str(r, c, 0, &old) || !jarg_str(r, c, 1, &with) || !jarg_int(r, c, 2, -1, &max)) {
        return false;
    }
    if (c->self.s->is_safe) {
        jval escaped;
        if (!jescape(r, with, &escaped)) {
            return false;
        }
        with = escaped.s;
    }
    return jreplace(r, c->self.s, old, with, max, &c->out);
}

static bool str_join(jrun *r, jcall *c) {
    jiter *it;
    jval v;
    bool is_done = false;
    jbuf b = {.is_safe = c->self.s->is_safe};
    if (!jiter_of(r, c->arg[0], &it)) {
        return false;
    }
    for (size_t i = 0;; i++) {
        if (!jiter_next(r, it, &v, &is_done)) {
            return false;
        }
        if (is_done) {
            return jbuf_take(r, &b, &c->out);
        }
        if (v.kind != J_STR) {
            return jfail(r, "sequence item %zu: expected str instance, %s found", i, jtype_name(v));
        }
        if ((c->self.s->is_safe && !jescape(r, v.s, &v)) || (i && !jbuf_str(r, &b, c->self.s)) ||
            !jbuf_str(r, &b, v.s)) {
            return false;
        }
    }
}

/* ---- aligning */

static bool str_align(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    const jstr *fill = NULL;
    int64_t width;
    uint32_t cp = ' ';
    size_t used;
    jbuf b = {.is_safe = s->is_safe};
    if (!jarg_int(r, c, 0, 80, &width) ||
        (c->arg[1].kind != J_MISSING && !jarg_str(r, c, 1, &fill))) {
        return false;
    }
    if (fill && fill->n_char != 1) {
        return jfail(r, "The fill character must be exactly one character long");
    }
    cp = fill ? jstr_at(fill, 0, &used) : cp;
    size_t n = width > (int64_t)s->n_char ? (size_t)width - s->n_char : 0;
    size_t left = 0;
    if (c->native->tag == '^') {
        left = n / 2 + (n & (size_t)width & 1);
    } else if (c->native->tag == '>') {
        left = n;
    }
    return jbuf_fill(r, &b, cp, left, false) && jbuf_str(r, &b, s) &&
           jbuf_fill(r, &b, cp, n - left, false) && jbuf_take(r, &b, &c->out);
}

static bool str_zfill(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    int64_t width;
    jbuf b = {.is_safe = s->is_safe};
    if (!jarg_int(r, c, 0, 0, &width)) {
        return false;
    }
    size_t n = width > (int64_t)s->n_char ? (size_t)width - s->n_char : 0;
    size_t sign = s->bytes && (s->data[0] == '+' || s->data[0] == '-') ? 1 : 0;
    return jbuf_part(r, &b, s, 0, sign) && jbuf_fill(r, &b, '0', n, false) &&
           jbuf_part(r, &b, s, sign, s->bytes) && jbuf_take(r, &b, &c->out);
}

static bool str_expandtabs(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    int64_t size;
    int64_t column = 0;
    size_t used;
    jbuf b = {.is_safe = s->is_safe};
    if (!jarg_int(r, c, 0, 8, &size)) {
        return false;
    }
    for (size_t i = 0; i < s->bytes; i += used) {
        uint32_t cp = jstr_at(s, i, &used);
        if (cp != '\t') {
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
            if (!jbuf_part(r, &b, s, i, i + used)) {
                return false;
            }
            continue;
        }
        int64_t n = size > 0 ? size - column % size : 0;
        column += n;
        if (!jbuf_fill(r, &b, ' ', (size_t)n, jstr_is_input(s, i, i + 1))) {
            return false;
        }
    }
    return jbuf_take(r, &b, &c->out);
}

static bool str_format(jrun *r, jcall *c) {
    return jformat(r, c->self.s, c->args, &c->out);
}

/* format with the fields of a mapping. */
static bool str_format_map(jrun *r, jcall *c) {
    if (c->arg[0].kind != J_DICT) {
        return jfail(r, "format_map needs a mapping, not '%s'", jtype_name(c->arg[0]));
    }
    const jdict *d = c->arg[0].dict;
    jargs args = {0};
    args.names = jget(r, d->n + 1, sizeof *args.names);
    args.kw = jget(r, d->n + 1, sizeof *args.kw);
    if (!args.names || !args.kw) {
        return false;
    }
    for (size_t i = 0; i < d->n; i++) {
        if (d->entries[i].key.kind == J_STR) {
            args.names[args.n_kw] = d->entries[i].key.s;
            args.kw[args.n_kw++] = d->entries[i].value;
        }
    }
    return jformat(r, c->self.s, &args, &c->out);
}

const jnative jstr_methods[] = {{"count", "/sub,start,end", 1, 0, str_count},
                                {"find", "/sub,start,end", 1, FIND_FIRST, str_find},
                                {"rfind", "/sub,start,end", 1, FIND_LAST, str_find},
                                {"index", "/sub,start,end", 1, FIND_OR_FAIL, str_find},
                                {"rindex", "/sub,start,end", 1, FIND_OR_FAIL | FIND_LAST, str_find},
                                {"startswith", "/prefix,start,end", 1, 0, str_starts_ends},
                                {"endswith", "/suffix,start,end", 1, 1, str_starts_ends},
                                {"strip", "/chars", 0, STRIP_LEFT | STRIP_RIGHT, str_strip},
                                {"lstrip", "/chars", 0, STRIP_LEFT, str_strip},
                                {"rstrip", "/chars", 0, STRIP_RIGHT, str_strip},
                                {"removeprefix", "/prefix", 1, 0, str_remove_affix},
                                {"removesuffix", "/suffix", 1, 1, str_remove_affix},
                                {"split", "sep,maxsplit", 0, 0, str_split},
                                {"rsplit", "sep,maxsplit", 0, 1, str_split},
                                {"splitlines", "keepends", 0, 0, str_splitlines},
                                {"partition", "/sep", 1, 0, str_partition},
                                {"rpartition", "/sep", 1, 1, str_partition},
                                {"replace", "/old,new,count", 2, 0, str_replace},
                                {"join", "/iterable", 1, 0, str_join},
                                {"center", "/width,fillchar", 1, '^', str_align},
                                {"ljust", "/width,fillchar", 1, '<', str_align},
                                {"rjust", "/width,fillchar", 1, '>', str_align},
                                {"zfill", "/width", 1, 0, str_zfill},
                                {"expandtabs", "tabsize", 0, 0, str_expandtabs},
                                {"format", NULL, 0, 0, str_format},
                                {"format_map", "/mapping", 1, 0, str_format_map},
                                {NULL, NULL, 0, 0, NULL}};
