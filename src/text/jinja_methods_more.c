/* Methods that test and change the letters of strings, and those of lists, dicts and the engine's
 * own objects; finding a method by name. Owns no state. */
#include <math.h>
#include <string.h>

#include "text/jinja_run.h"
#include "text/unicode.h"

/* ---- letters */

static bool str_case(jrun *r, jcall *c) {
    return jchange_case(r, c->self.s, c->native->tag, &c->out);
}

static uint32_t category(uint32_t cp) {
    return ucd_class(cp) & UCD_CATEGORY_MASK; /* the letters come first */
}

static bool is_alpha(uint32_t cp) {
    uint32_t c = category(cp);
    return c <= UCD_LO;
}

static bool is_decimal(uint32_t cp) {
    return category(cp) == UCD_ND;
}

static bool is_numeric(uint32_t cp) {
    uint32_t c = category(cp);
    return c == UCD_ND || c == UCD_NL || c == UCD_NO;
}

static bool is_alnum(uint32_t cp) {
    return is_alpha(cp) || is_numeric(cp);
}

static bool is_digit(uint32_t cp) {
    return is_decimal(cp) || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 ||
           (cp >= 0x2070 && cp <= 0x2089 && category(cp) == UCD_NO);
}

static bool is_ascii(uint32_t cp) {
    return cp < 0x80;
}

static bool (*const char_tests[])(uint32_t) = {is_alpha,   is_alnum,       is_decimal, is_digit,
                                               is_numeric, jchar_is_space, is_ascii};
enum { TEST_ALPHA, TEST_ALNUM, TEST_DECIMAL, TEST_DIGIT, TEST_NUMERIC, TEST_SPACE, TEST_ASCII };

/* Whether all characters pass, of at least one (isascii: of any number). */
static bool str_test(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    bool holds = s->bytes > 0 || c->native->tag == TEST_ASCII;
    size_t used;
    for (size_t i = 0; i < s->bytes && holds; i += used) {
        holds = char_tests[c->native->tag](jstr_at(s, i, &used));
    }
    c->out = jbool(holds);
    return jcharge(r, s->bytes / 4);
}

bool jstr_is_case(const jstr *s, bool is_upper) {
    bool has_any = false;
    size_t used;
    for (size_t i = 0; i < s->bytes; i += used) {
        uint32_t c = category(jstr_at(s, i, &used));
        bool is_up = c == UCD_LU;
        bool is_low = c == UCD_LL;
        if (c == UCD_LT || (is_upper ? is_low : is_up)) {
            return false;
        }
        has_any = has_any || is_up || is_low;
    }
    return has_any;
}

static bool str_is_case(jrun *r, jcall *c) {
    c->out = jbool(jstr_is_case(c->self.s, c->native->tag == CASE_UPPER));
    return jcharge(r, c->self.s->bytes / 4);
}

/* Upper case only at the beginning of words, lower case only inside of them. */
static bool str_istitle(jrun *r, jcall *c) {
    const jstr *s = c->self.s;
    bool is_inside = false;
    bool has_any = false;
    bool holds = true;
    size_t used;
    for (size_t i = 0; i < s->bytes && holds; i += used) {
        uint32_t k = category(jstr_at(s, i, &used));
        bool is_up = k == UCD_LU || k == UCD_LT;
        bool is_low = k == UCD_LL;
        holds = !(is_up && is_inside) && !(is_low && !is_inside);
        is_inside = is_up || is_low;
        has_any = has_any || is_inside;
    }
    c->out = jbool(holds && has_any);
    return jcharge(r, s->bytes / 4);
}

const jnative jstr_methods_more[] = {{"lower", "/", 0, CASE_LOWER, str_case},
                                     {"casefold", "/", 0, CASE_LOWER, str_case},
                                     {"upper", "/", 0, CASE_UPPER, str_case},
                                     {"capitalize", "/", 0, CASE_CAPITALIZE, str_case},
                                     {"title", "/", 0, CASE_TITLE, str_case},
                                     {"swapcase", "/", 0, CASE_SWAP, str_case},
                                     {"isalpha", "/", 0, TEST_ALPHA, str_test},
                                     {"isalnum", "/", 0, TEST_ALNUM, str_test},
                                     {"isdecimal", "/", 0, TEST_DECIMAL, str_test},
                                     {"isdigit", "/", 0, TEST_DIGIT, str_test},
                                     {"isnumeric", "/", 0, TEST_NUMERIC, str_test},
                                     {"isspace", "/", 0, TEST_SPACE, str_test},
                                     {"isascii", "/", 0, TEST_ASCII, str_test},
                                     {"islower", "/", 0, CASE_LOWER, str_is_case},
                                     {"isupper", "/", 0, CASE_UPPER, str_is_case},
                                     {"istitle", "/", 0, 0, str_istitle},
                                     {NULL, NULL, 0, 0, NULL}};

/* ---- lists and tuples */

static bool list_index(jrun *r, jcall *c) {
    const jlist *list = c->self.list;
    int64_t n = (int64_t)list->n;
    int64_t start;
    int64_t end;
    bool found = false;
    if (!jarg_int(r, c, 1, 0, &start) || !jarg_int(r, c, 2, n, &end)) {
        return false;
    }
    start = start < -n ? 0 : start < 0 ? start + n : start;
    end = end < -n ? 0 : end < 0 ? end + n : end > n ? n : end;
    for (int64_t i = start; i < end && !found; i++) {
        if (!jcharge(r, 1) || !jequal(r, list->items[i], c->arg[0], &found)) {
            return false;
        }
        c->out = jint(i);
    }
    return found || jfail(r, "the value is not in the list");
}

static bool list_count(jrun *r, jcall *c) {
    int64_t n = 0;
    for (size_t i = 0; i < c->self.list->n; i++) {
        bool is_equal = false;
        if (!jcharge(r, 1) || !jequal(r, c->self.list->items[i], c->arg[0], &is_equal)) {
            return false;
        }
        n += is_equal;
    }
    c->out = jint(n);
    return true;
}

static bool list_copy(jrun *r, jcall *c) {
    jlist *list;
    bool ok = jlist_from(r, c->self, &list);
    c->out = jlist_value(list);
    c->out.is_input = c->self.is_input;
    return ok;
}

static const jnative list_methods[] = {{"index", "/value,start,stop", 1, 0, list_index},
                                       {"count", "/value", 1, 0, list_count},
                                       {"copy", "/", 0, 0, list_copy},
                                       {NULL, NULL, 0, 0, NULL}};
static const char *const list_unsafe[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};

/* ---- dicts */

static bool dict_get(jrun *r, jcall *c) {
    jval *found = NULL;
    if (!jdict_find(r, c->self.dict, c->arg[0], &found)) {
        return false;
    }
    c->out = found ? *found : c->arg[1].kind == J_MISSING ? jnone() : c->arg[1];
    return true;
}

static bool dict_view(jrun *r, jcall *c) {
    jview *view = jget(r, 1, sizeof *view);
    if (!view) {
        return false;
    }
    *view = (jview){c->self.dict, c->self.is_input, (jview_kind)c->native->tag};
    c->out = (jval){.kind = J_VIEW, .is_input = c->self.is_input, .view = view};
    return true;
}

static bool dict_copy(jrun *r, jcall *c) {
    (void)r;
    c->out = c->self; /* a dict never changes */
    return true;
}

static const jnative dict_methods[] = {
    {"get", "/key,default", 1, 0, dict_get}, {"items", "/", 0, JVIEW_ITEMS, dict_view},
    {"keys", "/", 0, JVIEW_KEYS, dict_view}, {"values", "/", 0, JVIEW_VALUES, dict_view},
    {"copy", "/", 0, 0, dict_copy},          {NULL, NULL, 0, 0, NULL}};
static const char *const dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};

/* ---- objects */

static bool loop_cycle(jrun *r, jcall *c) {
    if (c->args->n_pos == 0 || c->args->n_kw) {
        return jfail(r, "no items for cycling given");
    }
    c->out = c->args->pos[(size_t)c->self.loop->index0 % c->args->n_pos];
    return true;
}

static bool loop_changed(jrun *r, jcall *c) {
    jlist *list = jlist_new(r, c->args->n_pos);
    bool is_equal = false;
    for (size_t i = 0; list && i < c->args->n_pos; i++) {
        list->items[list->n++] = c->args->pos[i];
    }
    jval now = {.kind = J_TUPLE, .list = list};
    if (!list || !jequal(r, c->self.loop->changed, now, &is_equal)) {
        return false;
    }
    c->self.loop->changed = now;
    c->out = jbool(!is_equal);
    return true;
}

static bool cycler_next(jrun *r, jcall *c) {
    jcycler *y = c->self.cycler;
    (void)r;
    c->out = y->items.items[y->pos];
    y->pos = (y->pos + 1) % y->items.n;
    return true;
}

static bool cycler_reset(jrun *r, jcall *c) {
    (void)r;
    c->self.cycler->pos = 0;
    return true;
}

static bool float_is_integer(jrun *r, jcall *c) {
    (void)r;
    c->out = jbool(isfinite(c->self.f) && c->self.f == floor(c->self.f));
    return true;
}

static const jnative loop_methods[] = {{"cycle", NULL, 0, 0, loop_cycle},
                                       {"changed", NULL, 0, 0, loop_changed},
                                       {NULL, NULL, 0, 0, NULL}};
static const jnative cycler_methods[] = {
    {"next", "/", 0, 0, cycler_next}, {"reset", "/", 0, 0, cycler_reset}, {NULL, NULL, 0, 0, NULL}};
static const jnative float_methods[] = {{"is_integer", "/", 0, 0, float_is_integer},
                                        {NULL, NULL, 0, 0, NULL}};

/* ---- finding methods */

static const jnative *find_in(const jnative *list, const jstr *name) {
    for (; list->name; list++) {
        if (jstr_is(name, list->name)) {
            return list;
        }
    }
    return NULL;
}

static bool is_listed(const char *const *names, const jstr *name) {
    for (; *names; names++) {
        if (jstr_is(name, *names)) {
            return true;
        }
    }
    return false;
}

const jnative *jmethod_find(jval v, const jstr *name, bool *is_unsafe) {
    const jnative *found;
    *is_unsafe = false;
    switch (v.kind) {
    case J_STR:
        found = find_in(jstr_methods, name);
        return found ? found : find_in(jstr_methods_more, name);
    case J_LIST:
        *is_unsafe = is_listed(list_unsafe, name);
        return find_in(list_methods, name);
    case J_TUPLE:
        found = find_in(list_methods, name);
        return found && (found->fn == list_index || found->fn == list_count) ? found : NULL;
    case J_DICT:
        *is_unsafe = is_listed(dict_unsafe, name);
        return find_in(dict_methods, name);
    case J_FLOAT:
        return find_in(float_methods, name);
    case J_LOOP:
        return find_in(loop_methods, name);
    case J_CYCLER:
        return find_in(cycler_methods, name);
    default:
        return NULL;
    }
}
