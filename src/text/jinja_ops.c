/* Arithmetic, comparisons and subscripts with Python's rules. Owns no state. */
#include <math.h>
#include <string.h>

#include "text/jinja_run.h"

/* ---- numbers */

static double to_double(jval v) {
    return v.kind == J_FLOAT ? v.f : v.kind == J_BOOL ? v.b : (double)v.i;
}

static int64_t to_int(jval v) {
    return v.kind == J_BOOL ? v.b : v.i;
}

static bool overflow(jrun *r) {
    return jfail(r, "a whole number beyond 64 bits");
}

static bool int_power(jrun *r, int64_t base, int64_t exponent, jval *out) {
    if (exponent < 0) {
        if (base == 0) {
            return jfail(r, "0 cannot be raised to a negative power");
        }
        *out = jfloat(pow((double)base, (double)exponent));
        return true;
    }
    int64_t result = 1;
    while (exponent) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) {
            return overflow(r);
        }
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) {
            return overflow(r);
        }
    }
    *out = jint(result);
    return true;
}

static bool int_divide(jrun *r, jop op, int64_t a, int64_t b, jval *out) {
    if (b == 0) {
        return jfail(r, "division by zero");
    }
    if (op == OP_DIV) {
        *out = jfloat((double)a / (double)b);
        return true;
    }
    if (b == -1) {
        int64_t negated = 0;
        if (op == OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &negated)) {
            return overflow(r);
        }
        *out = jint(negated);
        return true;
    }
    int64_t quotient = a / b;
    int64_t rest = a % b;
    bool is_below = rest != 0 && (rest < 0) != (b < 0);
    *out = jint(op == OP_FLOORDIV ? quotient - is_below : rest + (is_below ? b : 0));
    return true;
}

static bool int_binary(jrun *r, jop op, int64_t a, int64_t b, jval *out) {
    int64_t result = 0;
    bool is_over = false;
    switch (op) {
    case OP_ADD:
        is_over = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUB:
        is_over = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MUL:
        is_over = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_POW:
        return int_power(r, a, b, out);
    default:
        return int_divide(r, op, a, b, out);
    }
    *out = jint(result);
    return is_over ? overflow(r) : true;
}

static double float_mod(double a, double b) {
    double rest = fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
    }
    return rest != 0 ? rest : copysign(0.0, b);
}

static bool float_floor(double a, double b, jval *out) {
    double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient -= 1;
    }
    double whole = quotient != 0 ? floor(quotient) : copysign(0.0, a / b);
    *out = jfloat(quotient - whole > 0.5 ? whole + 1 : whole);
    return true;
}

static bool float_binary(jrun *r, jop op, double a, double b, jval *out) {
    switch (op) {
    case OP_ADD:
        *out = jfloat(a + b);
        return true;
    case OP_SUB:
        *out = jfloat(a - b);
        return true;
    case OP_MUL:
        *out = jfloat(a * b);
        return true;
    case OP_POW:
        if ((a == 0 && b < 0) || (a < 0 && b != floor(b))) {
            return jfail(r, "this power is not a real number");
        }
        *out = jfloat(pow(a, b));
        return isfinite(out->f) || !isfinite(a) || !isfinite(b)
                   ? true
                   : jfail(r, "the result of ** is too large");
    default:
        if (b == 0) {
            return jfail(r, "division by zero");
        }
        if (op == OP_FLOORDIV) {
            return float_floor(a, b, out);
        }
        *out = jfloat(op == OP_DIV ? a / b : float_mod(a, b));
        return true;
    }
}

/* ---- sequences */

static bool repeat(jrun *r, jval v, int64_t n, jval *out) {
    size_t each = v.kind == J_STR ? v.s->bytes : v.list->n;
    size_t times = n < 0 || each == 0 ? 0 : (size_t)n;
    if (times && each > JINJA_MEMORY_BYTES / times) {
        return jfail_memory(r);
    }
    if (v.kind == J_STR) {
        jbuf b = {.is_safe = v.s->is_safe};
        for (size_t i = 0; i < times; i++) {
            if (!jcharge(r, 1) || !jbuf_str(r, &b, v.s)) {
                return false;
            }
        }
        return jbuf_take(r, &b, out);
    }
    jlist *list = jlist_new(r, each * times);
    for (size_t i = 0; list && i < times; i++) {
        if (!jcharge(r, each)) {
            return false;
        }
        memcpy(list->items + list->n, v.list->items, each * sizeof *list->items);
        list->n += each;
    }
    *out = (jval){.kind = v.kind, .is_input = v.is_input, .list = list};
    return list != NULL;
}

static bool join_lists(jrun *r, jval a, jval b, jval *out) {
    jlist *list = jlist_new(r, a.list->n + b.list->n);
    if (!list || !jcharge(r, a.list->n + b.list->n)) {
        return false;
    }
    for (size_t i = 0; i < a.list->n; i++) {
        list->items[list->n++] = a.list->items[i];
    }
    for (size_t i = 0; i < b.list->n; i++) {
        list->items[list->n++] = b.list->items[i];
    }
    *out = (jval){.kind = a.kind, .is_input = a.is_input || b.is_input, .list = list};
    return true;
}

/* A text marked safe takes another text in escaped. */
static bool join_texts(jrun *r, const jstr *a, const jstr *b, jval *out) {
    if (!a->is_safe && !b->is_safe) {
        return jstr_join(r, a, b, out);
    }
    jval left;
    jval right;
    jbuf text = {.is_safe = true};
    return jescape(r, a, &left) && jescape(r, b, &right) && jbuf_str(r, &text, left.s) &&
           jbuf_str(r, &text, right.s) && jbuf_take(r, &text, out);
}

static bool add_sequences(jrun *r, jval a, jval b, jval *out, bool *is_done) {
    *is_done = a.kind == b.kind && (a.kind == J_STR || a.kind == J_LIST || a.kind == J_TUPLE);
    if (!*is_done) {
        return true;
    }
    return a.kind == J_STR ? join_texts(r, a.s, b.s, out) : join_lists(r, a, b, out);
}

bool jbinary(jrun *r, jop op, jval a, jval b, jval *out) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    bool is_done = false;
    if (op == OP_MOD && a.kind == J_STR) {
        return jpercent(r, a.s, b, out);
    }
    if (a.kind == J_UNDEFINED || b.kind == J_UNDEFINED) {
        return jfail_undefined(r, a.kind == J_UNDEFINED ? a : b);
    }
    if (jis_number(a) && jis_number(b)) {
        bool is_float = a.kind == J_FLOAT || b.kind == J_FLOAT;
        bool ok = is_float ? float_binary(r, op, to_double(a), to_double(b), out)
                           : int_binary(r, op, to_int(a), to_int(b), out);
        out->is_input = a.is_input || b.is_input;
        return ok;
    }
    if (op == OP_ADD && (!add_sequences(r, a, b, out, &is_done) || is_done)) {
        return is_done && r->code == SMOE_OK;
    }
    bool is_a = a.kind == J_STR || a.kind == J_LIST || a.kind == J_TUPLE;
    bool is_b = b.kind == J_STR || b.kind == J_LIST || b.kind == J_TUPLE;
    if (op == OP_MUL && is_a && (b.kind == J_INT || b.kind == J_BOOL)) {
        return repeat(r, a, to_int(b), out);
    }
    if (op == OP_MUL && is_b && (a.kind == J_INT || a.kind == J_BOOL)) {
        return repeat(r, b, to_int(a), out);
    }
    return jfail(r, "%s does not work on %s and %s", names[op], jtype_name(a), jtype_name(b));
}

bool jcompare(jrun *r, jop op, jval a, jval b, bool *out) {
    int order = 0;
    switch (op) {
    case OP_EQ:
        return jequal(r, a, b, out);
    case OP_NE:
        if (!jequal(r, a, b, out)) {
            return false;
        }
        *out = !*out;
        return true;
    case OP_IN:
    case OP_NOTIN:
        if (!jcontains(r, b, a, out)) {
            return false;
        }
        *out = *out == (op == OP_IN);
        return true;
    default:
        if (!jorder(r, a, b, &order)) {
            return false;
        }
        *out = order != 2 && (op == OP_LT   ? order < 0
                              : op == OP_LE ? order <= 0
                              : op == OP_GT ? order > 0
                                            : order >= 0);
        return true;
    }
}

/* ---- undefined */

bool jundefined_hint(jrun *r, const char *hint, jval *out) {
    jundef *u = jget(r, 1, sizeof *u);
    if (u) {
        u->hint = hint;
    }
    *out = (jval){.kind = J_UNDEFINED, .undef = u};
    return u != NULL;
}

bool jundefined(jrun *r, jval owner, jval name, jval *out) {
    jundef *u = jget(r, 1, sizeof *u);
    if (!u) {
        return false;
    }
    u->owner = owner.kind == J_MISSING ? NULL : owner.kind == J_NONE ? "None" : jtype_name(owner);
    u->name = name;
    *out = (jval){.kind = J_UNDEFINED, .undef = u};
    return true;
}

/* ---- attributes */

static bool macro_attr(jrun *r, const jnode *n, const jstr *name, jval *out, bool *found) {
    const jextras *e = &n->extras;
    const struct {
        const char *name;
        bool value;
    } flag[] = {{"catch_kwargs", e->has_kwargs},
                {"catch_varargs", e->has_varargs},
                {"caller", e->has_caller},
                {"explicit_caller", e->explicit_caller}};
    *found = true;
    if (jstr_is(name, "name")) {
        *out = n->name ? jtext(n->name) : jnone();
        return true;
    }
    if (jstr_is(name, "arguments")) {
        jlist *list = jlist_new(r, n->items.n);
        for (uint32_t i = 0; list && i < n->items.n; i++) {
            list->items[list->n++] = jtext(n->items.items[i]->name);
        }
        *out = (jval){.kind = J_TUPLE, .list = list};
        return list != NULL;
    }
    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++) {
        if (jstr_is(name, flag[i].name)) {
            *out = jbool(flag[i].value);
            return true;
        }
    }
    *found = false;
    return true;
}

/* Attributes of the engine's own objects. */
static bool object_attr(jrun *r, jval v, const jstr *name, jval *out, bool *found) {
    jval *value = NULL;
    *found = true;
    switch (v.kind) {
    case J_NAMESPACE:
        if (!jdict_find(r, &v.space->attrs, jtext(name), &value)) {
            return false;
        }
        *found = value != NULL;
        *out = value ? *value : jnone();
        return true;
    case J_LOOP:
        return jloop_attr(r, v.loop, name, out, found);
    case J_CYCLER:
        if (jstr_is(name, "current")) {
            *out = v.cycler->items.items[v.cycler->pos];
            return true;
        }
        break;
    case J_MACRO:
        return macro_attr(r, v.macro->node, name, out, found);
    case J_TUPLE:
        if (v.list->is_group && (jstr_is(name, "grouper") || jstr_is(name, "list"))) {
            *out = v.list->items[jstr_is(name, "list")];
            return true;
        }
        break;
    default:
        break;
    }
    *found = false;
    return true;
}

/* A method that would change a value: undefined, as in Jinja2's immutable sandbox. */
static bool undefined_unsafe(jrun *r, jval v, const jstr *name, jval *out) {
    jbuf b = {0};
    jval text;
    bool ok = jbuf_text(r, &b, "templates cannot change values: ", false) &&
              jbuf_text(r, &b, jtype_name(v), false) && jbuf_text(r, &b, ".", false) &&
              jbuf_str(r, &b, name) && jbuf_add(r, &b, "", 1, false) && jbuf_take(r, &b, &text);
    return ok && jundefined_hint(r, text.s->data, out);
}

/* An attribute as Python's getattr finds it: a method or a field, never a key. */
static bool find_attr(jrun *r, jval v, const jstr *name, jval *out, bool *found) {
    bool is_unsafe = false;
    if (!object_attr(r, v, name, out, found) || *found) {
        return r->code == SMOE_OK;
    }
    const jnative *method = jmethod_find(v, name, &is_unsafe);
    *found = method != NULL || is_unsafe;
    if (is_unsafe) {
        return undefined_unsafe(r, v, name, out);
    }
    if (method) {
        jbound *b = jget(r, 1, sizeof *b);
        if (!b) {
            return false;
        }
        *b = (jbound){v, method};
        *out = (jval){.kind = J_METHOD, .bound = b};
    }
    return true;
}

/* obj[key], without the fallback to attributes. */
static bool find_item(jrun *r, jval v, jval key, jval *out, bool *found) {
    *found = false;
    if (v.kind == J_DICT) {
        jval *value = NULL;
        if (key.kind == J_LIST || key.kind == J_DICT) {
            return true;
        }
        if (!jdict_find(r, v.dict, key, &value)) {
            return false;
        }
        *found = value != NULL;
        *out = value ? *value : jnone();
        return true;
    }
    if (key.kind != J_INT && key.kind != J_BOOL) {
        return true;
    }
    if (v.kind != J_STR && v.kind != J_LIST && v.kind != J_TUPLE && v.kind != J_RANGE) {
        return true;
    }
    size_t n = 0;
    int64_t i = to_int(key);
    if (!jlength(r, v, &n)) {
        return false;
    }
    i += i < 0 ? (int64_t)n : 0;
    if (i < 0 || i >= (int64_t)n) {
        return true;
    }
    *found = true;
    if (v.kind == J_RANGE) {
        *out = jint(v.range->start + i * v.range->step);
    } else if (v.kind == J_STR) {
        size_t at = jstr_offset(v.s, (size_t)i);
        size_t used;
        jstr_at(v.s, at, &used);
        return jcharge(r, v.s->n_char == v.s->bytes ? 0 : at / 16) &&
               jstr_part(r, v.s, at, at + used, out);
    } else {
        *out = v.list->items[i];
    }
    return true;
}

bool jgetattr(jrun *r, jval v, const jstr *name, jval *out) {
    bool found = false;
    if (v.kind == J_UNDEFINED) {
        return jfail_undefined(r, v);
    }
    if (!find_attr(r, v, name, out, &found) || found) {
        return r->code == SMOE_OK;
    }
    if (!find_item(r, v, jtext(name), out, &found) || found) {
        return r->code == SMOE_OK;
    }
    return jundefined(r, v, jtext(name), out);
}

bool jgetitem(jrun *r, jval v, jval key, jval *out) {
    bool found = false;
    if (v.kind == J_UNDEFINED) {
        return jfail_undefined(r, v);
    }
    if (!find_item(r, v, key, out, &found) || found) {
        return r->code == SMOE_OK;
    }
    if (key.kind == J_STR && (!find_attr(r, v, key.s, out, &found) || found)) {
        return r->code == SMOE_OK;
    }
    return jundefined(r, v, key, out);
}

bool jattr_only(jrun *r, jval v, const jstr *name, jval *out) {
    bool found = false;
    if (v.kind == J_UNDEFINED) {
        return jfail_undefined(r, v);
    }
    if (!find_attr(r, v, name, out, &found)) {
        return false;
    }
    return found || jundefined(r, v, jtext(name), out);
}

bool jget_path(jrun *r, jval v, jval path, jval or_else, jval *out) {
    *out = v;
    if (path.kind == J_NONE || path.kind == J_MISSING) {
        return true;
    }
    bool has_default = or_else.kind != J_MISSING && or_else.kind != J_NONE;
    size_t start = 0;
    size_t bytes = path.kind == J_STR ? path.s->bytes : 0;
    for (;;) {
        jval key = path;
        size_t end = bytes;
        if (path.kind == J_STR) {
            const char *dot =
                start < bytes ? memchr(path.s->data + start, '.', bytes - start) : NULL;
            end = dot ? (size_t)(dot - path.s->data) : bytes;
            bool ok = false;
            int64_t i = 0;
            if (!jstr_part(r, path.s, start, end, &key)) {
                return false;
            }
            bool is_digits = end > start;
            for (size_t k = start; k < end; k++) {
                is_digits = is_digits && path.s->data[k] >= '0' && path.s->data[k] <= '9';
            }
            if (is_digits && !jparse_int(r, key.s, 10, &ok, &i)) {
                return false;
            }
            key = ok ? jint(i) : key;
        }
        if (!jgetitem(r, *out, key, out)) {
            return false;
        }
        if (has_default && out->kind == J_UNDEFINED) {
            *out = or_else;
        }
        if (end >= bytes) {
            return true;
        }
        start = end + 1;
    }
}

/* ---- slices */

static bool slice_part(jrun *r, jval v, int64_t or_else, int64_t *out) {
    if (v.kind == J_NONE || v.kind == J_MISSING) {
        *out = or_else;
        return true;
    }
    if (v.kind != J_INT && v.kind != J_BOOL) {
        return jfail(r, "slice indices must be integers or None");
    }
    *out = to_int(v);
    return true;
}

static int64_t clamp(int64_t i, int64_t n, bool is_down) {
    if (i < 0) {
        i = i < -n ? -1 : i + n;
        return i < 0 ? (is_down ? -1 : 0) : i;
    }
    int64_t last = is_down ? n - 1 : n;
    return i > last ? last : i;
}

/* The indices that start:stop:step picks of n items, as a first, a step and a count. */
static bool slice_range(jrun *r, const jslice *s, int64_t n, jrange *out) {
    int64_t step = 1;
    int64_t start = 0;
    int64_t stop = 0;
    if (!slice_part(r, s->step, 1, &step)) {
        return false;
    }
    if (step == 0) {
        return jfail(r, "slice step cannot be zero");
    }
    step = step < -INT64_MAX ? -INT64_MAX : step;
    bool is_down = step < 0;
    bool has_start = s->start.kind != J_NONE && s->start.kind != J_MISSING;
    bool has_stop = s->stop.kind != J_NONE && s->stop.kind != J_MISSING;
    if (!slice_part(r, s->start, 0, &start) || !slice_part(r, s->stop, 0, &stop)) {
        return false;
    }
    start = has_start ? clamp(start, n, is_down) : is_down ? n - 1 : 0;
    stop = has_stop ? clamp(stop, n, is_down) : is_down ? -1 : n;
    int64_t count = 0;
    if (is_down && start > stop) {
        count = (start - stop - 1) / -step + 1;
    } else if (!is_down && start < stop) {
        count = (stop - start - 1) / step + 1;
    }
    *out = (jrange){start, stop, step, count};
    return true;
}

static bool slice_text(jrun *r, const jstr *s, const jrange *range, jval *out) {
    if (range->step == 1 || range->n == 0) {
        size_t start = jstr_offset(s, (size_t)range->start);
        size_t end = jstr_offset(s, (size_t)(range->start + range->n));
        return jcharge(r, s->n_char == s->bytes ? 0 : end / 8) &&
               jstr_part(r, s, start, range->n ? end : start, out);
    }
    /* Offsets of all characters, so that any step costs the same. */
    uint32_t *at = jget(r, s->n_char + 1, sizeof *at);
    jbuf b = {.is_safe = s->is_safe};
    if (!at || s->bytes > UINT32_MAX || !jcharge(r, s->bytes / 4)) {
        return at && jfail_memory(r);
    }
    size_t n = 0;
    for (size_t i = 0; i < s->bytes; i++) {
        if (((uint8_t)s->data[i] & 0xc0) != 0x80) {
            at[n++] = (uint32_t)i;
        }
    }
    at[n] = (uint32_t)s->bytes;
    for (int64_t i = 0, k = range->start; i < range->n; i++, k += i < range->n ? range->step : 0) {
        if (!jcharge(r, 1) || !jbuf_part(r, &b, s, at[k], at[k + 1])) {
            return false;
        }
    }
    return jbuf_take(r, &b, out);
}

bool jslice_value(jrun *r, jval v, const jslice *s, jval *out) {
    jrange range = {0};
    size_t n = 0;
    if (v.kind == J_UNDEFINED) {
        return jfail_undefined(r, v);
    }
    if (v.kind != J_STR && v.kind != J_LIST && v.kind != J_TUPLE && v.kind != J_RANGE) {
        return jfail(r, "'%s' object cannot be sliced", jtype_name(v));
    }
    if (!jlength(r, v, &n) || !slice_range(r, s, (int64_t)n, &range)) {
        return false;
    }
    if (v.kind == J_STR) {
        return slice_text(r, v.s, &range, out);
    }
    if (v.kind == J_RANGE) {
        jrange *part = jget(r, 1, sizeof *part);
        if (!part) {
            return false;
        }
        const jrange *of = v.range;
        int64_t step = 0;
        if (__builtin_mul_overflow(of->step, range.step, &step)) {
            return overflow(r);
        }
        *part = (jrange){of->start + range.start * of->step, of->start + range.stop * of->step,
                         step, range.n};
        *out = (jval){.kind = J_RANGE, .range = part};
        return true;
    }
    jlist *list = jlist_new(r, (size_t)range.n);
    if (!list || !jcharge(r, (size_t)range.n)) {
        return false;
    }
    for (int64_t i = 0; i < range.n; i++) {
        list->items[list->n++] = v.list->items[range.start + i * range.step];
    }
    *out = (jval){.kind = v.kind, .is_input = v.is_input, .list = list};
    return true;
}
