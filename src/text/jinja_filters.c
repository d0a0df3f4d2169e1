/* Filters on numbers and values of any kind, and finding a filter by name. Owns no state. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_run.h"

static bool is_given(const jcall *c, size_t i) {
    return c->arg[i].kind != J_MISSING && c->arg[i].kind != J_NONE;
}

static bool do_default(jrun *r, jcall *c) {
    bool is_absent =
        c->self.kind == J_UNDEFINED || (jarg_truth(r, c, 1, false) && !jtruth(r, c->self));
    c->out = c->self;
    if (is_absent) {
        c->out = c->arg[0];
        return c->arg[0].kind != J_MISSING || jtext_of(r, "", &c->out);
    }
    return true;
}

static bool do_length(jrun *r, jcall *c) {
    size_t n = 0;
    bool ok = jlength(r, c->self, &n);
    c->out = jint((int64_t)n);
    return ok;
}

static bool do_attr(jrun *r, jcall *c) {
    const jstr *name;
    return jarg_str(r, c, 0, &name) && jattr_only(r, c->self, name, &c->out);
}

/* ---- numbers */

static bool whole_from(jrun *r, double f, int64_t *out) {
    if (!(f >= -0x1p63 && f < 0x1p63)) {
        return isfinite(f) ? jfail(r, "a whole number beyond 64 bits")
                           : jfail(r, "cannot convert this float to a whole number");
    }
    *out = (int64_t)f;
    return true;
}

static bool do_int(jrun *r, jcall *c) {
    jval v = c->self;
    int64_t i = 0;
    int64_t base;
    double f = 0;
    bool ok = false;
    if (!jarg_int(r, c, 1, 10, &base)) {
        return false;
    }
    if (v.kind == J_UNDEFINED) {
        return jfail_undefined(r, v);
    }
    if (v.kind == J_STR) {
        if (!jparse_int(r, v.s, base, &ok, &i)) {
            return false;
        }
        if (!ok && jparse_float(v.s, &f) && isfinite(f)) {
            ok = true;
            if (!whole_from(r, f, &i)) {
                return false;
            }
        }
    } else if (v.kind == J_FLOAT && !isnan(v.f)) {
        ok = true;
        if (!whole_from(r, v.f, &i)) {
            return false;
        }
    } else if (v.kind == J_INT || v.kind == J_BOOL) {
        ok = true;
        i = v.kind == J_BOOL ? v.b : v.i;
    }
    c->out = ok ? jint(i) : c->arg[0].kind == J_MISSING ? jint(0) : c->arg[0];
    c->out.is_input |= ok && (v.is_input || (v.kind == J_STR && v.s->n_mark));
    return true;
}

static bool do_float(jrun *r, jcall *c) {
    jval v = c->self;
    double f = 0;
    bool ok = jis_number(v);
    if (v.kind == J_UNDEFINED) {
        return jfail_undefined(r, v);
    }
    if (v.kind == J_STR) {
        ok = jparse_float(v.s, &f);
    } else if (ok) {
        f = v.kind == J_FLOAT ? v.f : v.kind == J_BOOL ? v.b : (double)v.i;
    }
    c->out = ok ? jfloat(f) : c->arg[0].kind == J_MISSING ? jfloat(0) : c->arg[0];
    c->out.is_input |= ok && (v.is_input || (v.kind == J_STR && v.s->n_mark));
    return true;
}

static bool do_abs(jrun *r, jcall *c) {
    jval v = c->self;
    if (!jis_number(v)) {
        return v.kind == J_UNDEFINED ? jfail_undefined(r, v)
                                     : jfail(r, "bad operand type for abs(): '%s'", jtype_name(v));
    }
    if (v.kind == J_FLOAT) {
        c->out = jfloat(fabs(v.f));
        c->out.is_input = v.is_input;
        return true;
    }
    bool is_negative = v.kind == J_INT && v.i < 0;
    return jbinary(r, OP_MUL, v, jint(is_negative ? -1 : 1), &c->out);
}

/* Rounds a whole number to a negative number of places, halves to even. */
static int64_t round_whole(int64_t i, int64_t places) {
    if (places < -18) {
        return 0;
    }
    int64_t unit = 1;
    for (; places < 0; places++) {
        unit *= 10;
    }
    int64_t rest = i % unit;
    int64_t down = i - rest;
    int64_t up = 0;
    rest = rest < 0 ? -rest : rest;
    bool is_up = rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
    if (!is_up || __builtin_add_overflow(down, i < 0 ? -unit : unit, &up)) {
        return down;
    }
    return up;
}

static double round_float(double f, int64_t places) {
    char text[400];
    if (!isfinite(f) || places > 300) {
        return f;
    }
    if (places < 0) {
        double unit = places < -308 ? INFINITY : pow(10, (double)-places);
        return isinf(unit) ? copysign(0, f) : rint(f / unit) * unit;
    }
    /* printf rounds the exact value, halves to even, as Python does. */
    if (fabs(f) >= 0x1p53) {
        return f;
    }
    snprintf(text, sizeof text, "%.*f", (int)places, f);
    return strtod(text, NULL);
}

static bool do_round(jrun *r, jcall *c) {
    jval v = c->self;
    int64_t places = 0;
    const jstr *method = NULL;
    if ((is_given(c, 0) && !jarg_int(r, c, 0, 0, &places)) ||
        (c->arg[1].kind != J_MISSING && !jarg_str(r, c, 1, &method))) {
        return false;
    }
    bool is_ceil = method && jstr_is(method, "ceil");
    bool is_floor = method && jstr_is(method, "floor");
    if (method && !is_ceil && !is_floor && !jstr_is(method, "common")) {
        return jfail(r, "method must be common, ceil or floor");
    }
    if (!jis_number(v)) {
        return v.kind == J_UNDEFINED ? jfail_undefined(r, v)
                                     : jfail(r, "'%s' cannot be rounded", jtype_name(v));
    }
    double f = v.kind == J_FLOAT ? v.f : v.kind == J_BOOL ? v.b : (double)v.i;
    if (is_ceil || is_floor) {
        double unit = pow(10, (double)places);
        double whole = is_ceil ? ceil(f * unit) : floor(f * unit);
        if (!isfinite(whole)) {
            return jfail(r, "this number cannot be rounded");
        }
        c->out = jfloat(whole / unit);
    } else if (v.kind == J_FLOAT) {
        int64_t whole = 0;
        bool is_int = c->arg[0].kind == J_NONE;
        f = round_float(f, places);
        if (is_int && !whole_from(r, f, &whole)) {
            return false;
        }
        c->out = is_int ? jint(whole) : jfloat(f);
    } else {
        int64_t i = v.kind == J_BOOL ? v.b : v.i;
        c->out = jint(places < 0 ? round_whole(i, places) : i);
    }
    c->out.is_input = v.is_input;
    return true;
}

static bool do_filesize(jrun *r, jcall *c) {
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    jval v = c->self;
    bool is_binary = jarg_truth(r, c, 0, false);
    double base = is_binary ? 1024 : 1000;
    double f = 0;
    char text[100];
    if (v.kind == J_STR ? !jparse_float(v.s, &f) : !jis_number(v)) {
        return jfail(r, "filesizeformat needs a number");
    }
    f = v.kind == J_STR ? f : v.kind == J_FLOAT ? v.f : v.kind == J_BOOL ? v.b : (double)v.i;
    if (f == 1) {
        return jtext_of(r, "1 Byte", &c->out);
    }
    if (f < base) {
        if (!(fabs(f) < 1e15)) {
            return jfail(r, "filesizeformat needs a finite number");
        }
        snprintf(text, sizeof text, "%lld Bytes", (long long)f);
        return jtext_of(r, text, &c->out);
    }
    double unit = base * base;
    int i = 0;
    for (; i < 7 && f >= unit; i++) {
        unit *= base;
    }
    snprintf(text, sizeof text, "%.1f %s", base * f / unit, (is_binary ? binary : decimal)[i]);
    return jtext_of(r, text, &c->out);
}

/* ---- JSON and Python's own notation */

static bool separators(jrun *r, jval v, jjson_style *style) {
    jlist *list;
    if (!jlist_from(r, v, &list)) {
        return false;
    }
    if (list->n != 2 || list->items[0].kind != J_STR || list->items[1].kind != J_STR) {
        return jfail(r, "tojson: separators must be two strings");
    }
    style->item_separator = list->items[0].s;
    style->key_separator = list->items[1].s;
    return true;
}

static bool read_indent(jrun *r, const jcall *c, jjson_style *style) {
    int64_t n = 0;
    jbuf b = {0};
    jval text;
    if (!is_given(c, 1)) {
        return true;
    }
    style->has_indent = true;
    if (c->arg[1].kind == J_STR) {
        style->indent = c->arg[1].s;
        return true;
    }
    if (!jarg_int(r, c, 1, 0, &n) || !jbuf_fill(r, &b, ' ', n > 0 ? (size_t)n : 0, false) ||
        !jbuf_take(r, &b, &text)) {
        return false;
    }
    style->indent = text.s;
    return true;
}

static bool do_tojson(jrun *r, jcall *c) {
    static const jstr comma = {.data = ", ", .bytes = 2, .n_char = 2};
    static const jstr bare_comma = {.data = ",", .bytes = 1, .n_char = 1};
    static const jstr colon = {.data = ": ", .bytes = 2, .n_char = 2};
    jjson_style style = {.ensure_ascii = jarg_truth(r, c, 0, false),
                         .sort_keys = jarg_truth(r, c, 3, false),
                         .key_separator = &colon};
    jbuf b = {0};
    if (!read_indent(r, c, &style)) {
        return false;
    }
    style.item_separator = style.has_indent ? &bare_comma : &comma;
    if (is_given(c, 2) && !separators(r, c->arg[2], &style)) {
        return false;
    }
    return jtojson(r, c->self, &style, &b) && jbuf_take(r, &b, &c->out);
}

/* The value with the keys of its dicts in order, as pprint shows it. */
static bool sort_keys(jrun *r, jval v, jval *out) {
    *out = v;
    if (v.kind != J_LIST && v.kind != J_TUPLE && v.kind != J_DICT) {
        return true;
    }
    if (!jenter(r)) {
        return false;
    }
    if (v.kind == J_DICT) {
        size_t n = v.dict->n;
        jdict *d = jget(r, 1, sizeof *d);
        jval *keys = jget(r, n + 1, sizeof *keys);
        size_t *order = jget(r, n + 1, sizeof *order);
        for (size_t i = 0; keys && i < n; i++) {
            keys[i] = v.dict->entries[i].key;
        }
        if (!d || !keys || !order || !jsort(r, keys, n, false, order)) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            jval item;
            if (!sort_keys(r, v.dict->entries[order[i]].value, &item) ||
                !jdict_put(r, d, keys[order[i]], item)) {
                return false;
            }
        }
        out->dict = d;
    } else {
        jlist *list = jlist_new(r, v.list->n);
        for (size_t i = 0; list && i < v.list->n; i++) {
            if (!sort_keys(r, v.list->items[i], &list->items[i])) {
                return false;
            }
            list->n++;
        }
        out->list = list;
    }
    jleave(r);
    return out->list != NULL;
}

static bool do_pprint(jrun *r, jcall *c) {
    jbuf b = {0};
    jval sorted;
    if (!sort_keys(r, c->self, &sorted) || !jbuf_value(r, &b, sorted, true) ||
        !jbuf_take(r, &b, &c->out)) {
        return false;
    }
    bool is_atom = c->self.kind <= J_FLOAT;
    return is_atom || c->out.s->n_char <= 80 ||
           jfail(r, "pprint: the value is wider than 80 columns, use tojson(indent=…)");
}

const jnative jvalue_filters[] = {
    {"default", "default_value,boolean", 0, 0, do_default},
    {"d", "default_value,boolean", 0, 0, do_default},
    {"length", "/", 0, 0, do_length},
    {"count", "/", 0, 0, do_length},
    {"attr", "name", 1, 0, do_attr},
    {"int", "default,base", 0, 0, do_int},
    {"float", "default", 0, 0, do_float},
    {"abs", "/", 0, 0, do_abs},
    {"round", "precision,method", 0, 0, do_round},
    {"filesizeformat", "binary", 0, 0, do_filesize},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, 0, do_tojson},
    {"pprint", "/", 0, 0, do_pprint},
    {NULL, NULL, 0, 0, NULL}};

const jnative *jfilter_find(const jstr *name) {
    const jnative *const lists[] = {jtext_filters, jseq_filters, jvalue_filters};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (const jnative *f = lists[i]; f->name; f++) {
            if (jstr_is(name, f->name)) {
                return f;
            }
        }
    }
    return NULL;
}
