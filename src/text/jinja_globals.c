/* Tests, and the functions that every template can call. Owns no state. */
#include <stdio.h>
#include <string.h>

#include "text/jinja_run.h"

/* ---- tests */

static bool test_operator(jrun *r, jcall *c) {
    bool holds = false;
    bool ok = jcompare(r, (jop)c->native->tag, c->self, c->arg[0], &holds);
    c->out = jbool(holds);
    return ok;
}

static bool test_kind(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(c->self.kind == (jkind)c->native->tag);
    return true;
}

static bool test_defined(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(c->self.kind != J_UNDEFINED);
    return true;
}

static bool test_truth(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(c->self.kind == J_BOOL && c->self.b == (c->native->tag == 1));
    return true;
}

static bool test_number(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(jis_number(c->self));
    return true;
}

static bool test_iterable(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(jis_iterable(c->self) || c->self.kind == J_LOOP);
    return true;
}

static bool test_sequence(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(jhas_length(c->self) && c->self.kind != J_VIEW && c->self.kind != J_LOOP);
    return true;
}

static bool test_callable(jrun *r, jcall *c) {
    (void)r;
    jkind k = c->self.kind;
    c->out = jbool(k == J_MACRO || k == J_METHOD || k == J_NATIVE || k == J_JOINER || k == J_LOOP ||
                   k == J_UNDEFINED);
    return true;
}

static bool test_same(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(jsame(c->self, c->arg[0]));
    return true;
}

static bool test_escaped(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(c->self.kind == J_STR && c->self.s->is_safe);
    return true;
}

/* value % number == tag, or with an argument: value % argument == 0 */
static bool test_remainder(jrun *r, jcall *c) {
    jval number = c->native->n_required ? c->arg[0] : jint(2);
    jval rest;
    bool holds = false;
    if (!jbinary(r, OP_MOD, c->self, number, &rest) ||
        !jequal(r, rest, jint(c->native->tag), &holds)) {
        return false;
    }
    c->out = jbool(holds);
    return true;
}

static bool test_case(jrun *r, jcall *c) {
    const jstr *s;
    if (!jstr_from(r, c->self, &s)) {
        return false;
    }
    c->out = jbool(jstr_is_case(s, c->native->tag == CASE_UPPER));
    return jcharge(r, s->bytes / 4);
}

static bool test_name(jrun *r, jcall *c) {
    uint64_t hash;
    if (!jhash(r, c->self, &hash)) {
        return false;
    }
    c->out = jbool(c->self.kind == J_STR &&
                   (c->native->tag ? jtest_find(c->self.s) : jfilter_find(c->self.s)) != NULL);
    return true;
}

static const jnative tests[] = {{"defined", "/", 0, 0, test_defined},
                                {"undefined", "/", 0, J_UNDEFINED, test_kind},
                                {"none", "/", 0, J_NONE, test_kind},
                                {"boolean", "/", 0, J_BOOL, test_kind},
                                {"integer", "/", 0, J_INT, test_kind},
                                {"float", "/", 0, J_FLOAT, test_kind},
                                {"string", "/", 0, J_STR, test_kind},
                                {"mapping", "/", 0, J_DICT, test_kind},
                                {"true", "/", 0, 1, test_truth},
                                {"false", "/", 0, 0, test_truth},
                                {"number", "/", 0, 0, test_number},
                                {"iterable", "/", 0, 0, test_iterable},
                                {"sequence", "/", 0, 0, test_sequence},
                                {"callable", "/", 0, 0, test_callable},
                                {"sameas", "other", 1, 0, test_same},
                                {"escaped", "/", 0, 0, test_escaped},
                                {"odd", "/", 0, 1, test_remainder},
                                {"even", "/", 0, 0, test_remainder},
                                {"divisibleby", "num", 1, 0, test_remainder},
                                {"lower", "/", 0, CASE_LOWER, test_case},
                                {"upper", "/", 0, CASE_UPPER, test_case},
                                {"filter", "/", 0, 0, test_name},
                                {"test", "/", 0, 1, test_name},
                                {"in", "seq", 1, OP_IN, test_operator},
                                {"==", "/b", 1, OP_EQ, test_operator},
                                {"eq", "/b", 1, OP_EQ, test_operator},
                                {"equalto", "/b", 1, OP_EQ, test_operator},
                                {"!=", "/b", 1, OP_NE, test_operator},
                                {"ne", "/b", 1, OP_NE, test_operator},
                                {">", "/b", 1, OP_GT, test_operator},
                                {"gt", "/b", 1, OP_GT, test_operator},
                                {"greaterthan", "/b", 1, OP_GT, test_operator},
                                {">=", "/b", 1, OP_GE, test_operator},
                                {"ge", "/b", 1, OP_GE, test_operator},
                                {"<", "/b", 1, OP_LT, test_operator},
                                {"lt", "/b", 1, OP_LT, test_operator},
                                {"lessthan", "/b", 1, OP_LT, test_operator},
                                {"<=", "/b", 1, OP_LE, test_operator},
                                {"le", "/b", 1, OP_LE, test_operator}};

const jnative *jtest_find(const jstr *name) {
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (jstr_is(name, tests[i].name)) {
            return &tests[i];
        }
    }
    return NULL;
}

/* ---- functions */

enum { MAX_RANGE = 100000 };

static bool global_range(jrun *r, jcall *c) {
    int64_t v[3] = {0, 0, 1};
    size_t n = c->arg[2].kind != J_MISSING ? 3 : c->arg[1].kind != J_MISSING ? 2 : 1;
    jrange *range = jget(r, 1, sizeof *range);
    if (!range) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!jarg_int(r, c, i, 0, &v[n == 1 ? 1 : i])) {
            return false;
        }
    }
    if (v[2] == 0) {
        return jfail(r, "range() arg 3 must not be zero");
    }
    bool is_down = v[2] < 0;
    uint64_t step = is_down ? 0 - (uint64_t)v[2] : (uint64_t)v[2];
    uint64_t span = 0;
    if (is_down ? v[0] > v[1] : v[0] < v[1]) {
        span = is_down ? (uint64_t)v[0] - (uint64_t)v[1] : (uint64_t)v[1] - (uint64_t)v[0];
    }
    uint64_t count = span ? (span - 1) / step + 1 : 0;
    if (count > MAX_RANGE) {
        return jfail(r, "Range too big. The sandbox blocks ranges larger than %d.", MAX_RANGE);
    }
    *range = (jrange){v[0], v[1], v[2], (int64_t)count};
    c->out = (jval){.kind = J_RANGE, .range = range};
    return true;
}

/* The items of dict(…): from a mapping or from pairs, then from the keywords. */
static bool fill_dict(jrun *r, const jcall *c, jdict *d) {
    if (c->args->n_pos > 1) {
        return jfail(r, "%s expected at most 1 argument", c->native->name);
    }
    if (c->args->n_pos == 1) {
        jval source = c->args->pos[0];
        jview view = {source.kind == J_DICT ? source.dict : NULL, false, JVIEW_ITEMS};
        jlist *list;
        if (source.kind == J_DICT) {
            source = (jval){.kind = J_VIEW, .view = &view};
        }
        if (!jlist_from(r, source, &list)) {
            return false;
        }
        for (size_t i = 0; i < list->n; i++) {
            jlist *pair;
            if (!jlist_from(r, list->items[i], &pair)) {
                return false;
            }
            if (pair->n != 2) {
                return jfail(r, "%s needs pairs", c->native->name);
            }
            if (!jdict_put(r, d, pair->items[0], pair->items[1])) {
                return false;
            }
        }
    }
    for (size_t i = 0; i < c->args->n_kw; i++) {
        if (!jdict_put(r, d, jtext(c->args->names[i]), c->args->kw[i])) {
            return false;
        }
    }
    return true;
}

static bool global_dict(jrun *r, jcall *c) {
    jdict *d = jget(r, 1, sizeof *d);
    c->out = (jval){.kind = J_DICT, .dict = d};
    c->out.is_input = c->args->n_pos == 1 && c->args->pos[0].is_input;
    return d && fill_dict(r, c, d);
}

static bool global_namespace(jrun *r, jcall *c) {
    jspace *space = jget(r, 1, sizeof *space);
    c->out = (jval){.kind = J_NAMESPACE, .space = space};
    return space && fill_dict(r, c, &space->attrs);
}

static bool global_cycler(jrun *r, jcall *c) {
    jcycler *y = jget(r, 1, sizeof *y);
    if (!y || c->args->n_pos == 0 || c->args->n_kw) {
        return y && jfail(r, "cycler needs at least one item");
    }
    for (size_t i = 0; i < c->args->n_pos; i++) {
        if (!jlist_add(r, &y->items, c->args->pos[i])) {
            return false;
        }
    }
    c->out = (jval){.kind = J_CYCLER, .cycler = y};
    return true;
}

static bool global_joiner(jrun *r, jcall *c) {
    jjoiner *j = jget(r, 1, sizeof *j);
    if (!j) {
        return false;
    }
    j->separator = c->arg[0];
    c->out = (jval){.kind = J_JOINER, .joiner = j};
    return c->arg[0].kind != J_MISSING || jtext_of(r, ", ", &j->separator);
}

static bool global_raise(jrun *r, jcall *c) {
    const jstr *s;
    if (!jstr_from(r, c->arg[0], &s)) {
        return false;
    }
    int bytes = s->bytes > 400 ? 400 : (int)s->bytes;
    return jfail(r, "%.*s", bytes, s->data);
}

/* One conversion of strftime in the C locale; false when it is not known. */
static bool add_time(const struct tm *t, char what, char text[32]) {
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    int hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    int monday = (t->tm_wday + 6) % 7;
    int year = t->tm_year + 1900;
    const struct {
        char what;
        const char *text; /* NULL: the number, at least so wide */
        int keep, number, width;
    } table[] = {{'A', days[t->tm_wday], 9, 0, 0},
                 {'a', days[t->tm_wday], 3, 0, 0},
                 {'B', months[t->tm_mon], 9, 0, 0},
                 {'b', months[t->tm_mon], 3, 0, 0},
                 {'h', months[t->tm_mon], 3, 0, 0},
                 {'p', t->tm_hour < 12 ? "AM" : "PM", 2, 0, 0},
                 {'n', "\n", 1, 0, 0},
                 {'t', "\t", 1, 0, 0},
                 {'%', "%", 1, 0, 0},
                 {'f', "000000", 6, 0, 0},
                 {'Z', "", 0, 0, 0}, /* the time is local and says no zone */
                 {'z', "", 0, 0, 0},
                 {'d', NULL, 0, t->tm_mday, 2},
                 {'m', NULL, 0, t->tm_mon + 1, 2},
                 {'Y', NULL, 0, year, 1},
                 {'y', NULL, 0, year % 100, 2},
                 {'C', NULL, 0, year / 100, 2},
                 {'H', NULL, 0, t->tm_hour, 2},
                 {'I', NULL, 0, hour, 2},
                 {'M', NULL, 0, t->tm_min, 2},
                 {'S', NULL, 0, t->tm_sec, 2},
                 {'j', NULL, 0, t->tm_yday + 1, 3},
                 {'w', NULL, 0, t->tm_wday, 1},
                 {'u', NULL, 0, monday + 1, 1},
                 {'U', NULL, 0, (t->tm_yday + 7 - t->tm_wday) / 7, 2},
                 {'W', NULL, 0, (t->tm_yday + 7 - monday) / 7, 2}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].what == what && table[i].text) {
            snprintf(text, 32, "%.*s", table[i].keep, table[i].text);
            return true;
        }
        if (table[i].what == what) {
            snprintf(text, 32, "%0*d", table[i].width, table[i].number);
            return true;
        }
    }
    snprintf(text, 32, "%2d", t->tm_mday);
    return what == 'e';
}

/* Conversions that stand for several. */
static const char *composed_time(char what) {
    switch (what) {
    case 'D':
    case 'x':
        return "m/d/y";
    case 'F':
        return "Y-m-d";
    case 'T':
    case 'X':
        return "H:M:S";
    case 'R':
        return "H:M";
    case 'r':
        return "I:M:S p";
    case 'c':
        return "a b e H:M:S Y";
    default:
        return NULL;
    }
}

static bool add_conversion(jrun *r, jbuf *b, char what, bool is_input) {
    char text[32];
    const char *parts = composed_time(what);
    for (; parts && *parts; parts++) {
        bool is_letter = (*parts | 32) >= 'a' && (*parts | 32) <= 'z';
        if (is_letter ? !add_conversion(r, b, *parts, is_input)
                      : !jbuf_add(r, b, parts, 1, is_input)) {
            return false;
        }
    }
    if (composed_time(what)) {
        return true;
    }
    if (!add_time(&r->now, what, text)) {
        return jfail(r, "strftime_now does not know this conversion");
    }
    return jbuf_text(r, b, text, is_input);
}

/* The conversion at the % of format[*i]; *i moves to its end. A dash behind the % leaves out
 * leading zeros, as in glibc. */
static bool one_conversion(jrun *r, const jstr *format, size_t *i, jbuf *b) {
    bool is_input = jstr_is_input(format, *i, *i + 1);
    bool is_bare = *i + 2 < format->bytes && format->data[*i + 1] == '-';
    jbuf piece = {0};
    jval text;
    *i += is_bare ? 2 : 1;
    if (!add_conversion(r, &piece, *i < format->bytes ? format->data[*i] : '\0', is_input) ||
        !jbuf_take(r, &piece, &text)) {
        return false;
    }
    size_t zeros = 0;
    while (is_bare && zeros + 1 < text.s->bytes && text.s->data[zeros] == '0') {
        zeros++;
    }
    return jbuf_part(r, b, text.s, zeros, text.s->bytes);
}

/* The C library's strftime would depend on the locale. */
static bool global_strftime(jrun *r, jcall *c) {
    const jstr *format;
    jbuf b = {0};
    if (!jarg_str(r, c, 0, &format)) {
        return false;
    }
    for (size_t i = 0; i < format->bytes; i++) {
        bool ok = format->data[i] == '%' ? one_conversion(r, format, &i, &b)
                                         : jbuf_part(r, &b, format, i, i + 1);
        if (!ok) {
            return false;
        }
    }
    return jbuf_take(r, &b, &c->out);
}

static const jnative globals[] = {{"range", "/start,stop,step", 1, 0, global_range},
                                  {"dict", NULL, 0, 0, global_dict},
                                  {"namespace", NULL, 0, 0, global_namespace},
                                  {"cycler", NULL, 0, 0, global_cycler},
                                  {"joiner", "sep", 0, 0, global_joiner},
                                  {"raise_exception", "message", 1, 0, global_raise},
                                  {"strftime_now", "format", 1, 0, global_strftime}};

const jnative *jglobal_find(const jstr *name) {
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        if (jstr_is(name, globals[i].name)) {
            return &globals[i];
        }
    }
    return NULL;
}
