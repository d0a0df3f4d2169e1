/* Iterating: over values, and over what lazy filters make of them. A generator is a value that is
 * used up; everything else can be iterated again. */
#include <string.h>

#include "text/jinja_run.h"

bool jis_iterable(jval v) {
    switch (v.kind) {
    case J_UNDEFINED:
    case J_STR:
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_VIEW:
    case J_RANGE:
    case J_ITER:
        return true;
    default:
        return false;
    }
}

bool jiter_of(jrun *r, jval v, jiter **out) {
    if (v.kind == J_ITER) {
        *out = v.iter;
        return true;
    }
    if (!jis_iterable(v)) {
        return jfail(r, "'%s' object is not iterable", jtype_name(v));
    }
    jiter *it = jget(r, 1, sizeof *it);
    if (!it) {
        return false;
    }
    it->source = v;
    switch (v.kind) {
    case J_LIST:
    case J_TUPLE:
        it->kind = ITER_SEQ;
        break;
    case J_STR:
        it->kind = ITER_STR;
        break;
    case J_RANGE:
        it->kind = ITER_RANGE;
        break;
    case J_DICT:
        it->kind = ITER_DICT;
        it->which = JVIEW_KEYS;
        break;
    case J_VIEW:
        it->kind = ITER_DICT;
        it->which = v.view->which;
        it->source = (jval){.kind = J_DICT, .is_input = v.view->is_input, .dict = v.view->dict};
        break;
    default:
        it->kind = ITER_EMPTY;
        break;
    }
    *out = it;
    return true;
}

static bool next_entry(jrun *r, jiter *it, jval *v, bool *done) {
    const jdict *d = it->source.dict;
    if (it->i >= d->n) {
        *done = true;
        return true;
    }
    const jentry *e = &d->entries[it->i++];
    if (it->which == JVIEW_ITEMS) {
        return jtuple_of(r, e->key, e->value, v);
    }
    *v = it->which == JVIEW_KEYS ? e->key : e->value;
    return true;
}

static bool next_char(jrun *r, jiter *it, jval *v, bool *done) {
    const jstr *s = it->source.s;
    size_t used;
    if (it->i >= s->bytes) {
        *done = true;
        return true;
    }
    jstr_at(s, it->i, &used);
    it->i += used;
    return jstr_part(r, s, it->i - used, it->i, v);
}

/* From the last item to the first. A text is reversed as a text elsewhere. */
static bool next_reversed(jrun *r, jiter *it, jval *v, bool *done) {
    size_t n = 0;
    if (!jlength(r, it->source, &n)) {
        return false;
    }
    if (it->i >= n) {
        *done = true;
        return true;
    }
    size_t i = n - ++it->i;
    if (it->source.kind == J_DICT || it->source.kind == J_VIEW) {
        jdict *d = it->source.kind == J_DICT ? it->source.dict : it->source.view->dict;
        jiter at = {.kind = ITER_DICT, .i = i};
        at.source = (jval){.kind = J_DICT, .dict = d};
        at.which = it->source.kind == J_VIEW ? it->source.view->which : JVIEW_KEYS;
        return next_entry(r, &at, v, done);
    }
    if (it->source.kind == J_RANGE) {
        *v = jint(it->source.range->start + (int64_t)i * it->source.range->step);
        return true;
    }
    *v = it->source.list->items[i];
    return true;
}

/* ---- lazy filters */

bool jiter_new(jrun *r, jiter_kind kind, jval source, const jcall *call, jval *out) {
    jiter *it = jget(r, 1, sizeof *it);
    jcall *copy = it && call ? jget(r, 1, sizeof *copy) : NULL;
    jargs *args = copy ? jget(r, 1, sizeof *args) : NULL;
    if (!it || (call && !args)) {
        return false;
    }
    it->kind = kind;
    it->source = source;
    if (call) {
        *copy = *call;
        *args = *call->args; /* the caller's is gone when the generator runs */
        copy->args = args;
        it->call = copy;
    }
    if (kind == ITER_UNIQUE) {
        it->seen = jget(r, 1, sizeof *it->seen);
    }
    *out = (jval){.kind = J_ITER, .iter = it};
    return kind != ITER_UNIQUE || it->seen;
}

/* Some look at the value only when the first item is asked for, and make nothing of a false one. */
static bool start_lazy(jrun *r, jiter *it) {
    it->is_started = true;
    bool is_falsy_empty = it->kind == ITER_MAP || it->kind == ITER_SELECT;
    if (is_falsy_empty && !jtruth(r, it->source)) {
        it->is_done = true;
        return true;
    }
    return jiter_of(r, it->source, &it->inner);
}

static const jnative *find_native(jrun *r, jval name, bool is_filter) {
    const jnative *f = NULL;
    if (name.kind == J_STR) {
        f = is_filter ? jfilter_find(name.s) : jtest_find(name.s);
    }
    if (!f) {
        jfail(r, "there is no %s of that name", is_filter ? "filter" : "test");
    }
    return f;
}

static bool start_map(jrun *r, jiter *it) {
    const jargs *args = it->call->args;
    if (args->n_pos == 0) {
        bool has_attribute = false;
        for (size_t i = 0; i < args->n_kw; i++) {
            has_attribute = has_attribute || jstr_is(args->names[i], "attribute");
            if (!jstr_is(args->names[i], "attribute") && !jstr_is(args->names[i], "default")) {
                return jfail(r, "map does not take this keyword argument");
            }
        }
        return has_attribute || jfail(r, "map requires a filter argument");
    }
    it->native = find_native(r, args->pos[0], true);
    it->rest = (jargs){args->pos + 1, args->n_pos - 1, args->names, args->kw, args->n_kw};
    return it->native != NULL;
}

static jval keyword(const jargs *args, const char *name) {
    for (size_t i = 0; i < args->n_kw; i++) {
        if (jstr_is(args->names[i], name)) {
            return args->kw[i];
        }
    }
    return jmissing();
}

static bool next_mapped(jrun *r, jiter *it, jval *v, bool *done) {
    if (it->i++ == 0 && !start_map(r, it)) {
        return false;
    }
    jval item;
    if (!jiter_next(r, it->inner, &item, done) || *done) {
        return r->code == SMOE_OK;
    }
    if (it->native) {
        return jcall_native(r, it->native, item, &it->rest, v);
    }
    const jargs *args = it->call->args;
    return jget_path(r, item, keyword(args, "attribute"), keyword(args, "default"), v);
}

static bool start_select(jrun *r, jiter *it) {
    const jargs *args = it->call->args;
    size_t skip = (it->call->native->tag & CHOOSE_ATTR) ? 1 : 0;
    if (args->n_pos < skip) {
        return jfail(r, "%s needs the name of an attribute", it->call->native->name);
    }
    if (args->n_pos > skip) {
        it->native = find_native(r, args->pos[skip], false);
        it->rest = (jargs){args->pos + skip + 1, args->n_pos - skip - 1, args->names, args->kw,
                           args->n_kw};
        return it->native != NULL;
    }
    return true;
}

static bool next_selected(jrun *r, jiter *it, jval *v, bool *done) {
    if (it->i++ == 0 && !start_select(r, it)) {
        return false;
    }
    uint8_t tag = it->call->native->tag;
    for (;;) {
        jval item;
        if (!jcharge(r, 1) || !jiter_next(r, it->inner, v, done) || *done) {
            return r->code == SMOE_OK;
        }
        item = *v;
        if ((tag & CHOOSE_ATTR) && !jget_path(r, item, it->call->args->pos[0], jmissing(), &item)) {
            return false;
        }
        if (it->native && !jcall_native(r, it->native, item, &it->rest, &item)) {
            return false;
        }
        if (jtruth(r, item) == !(tag & CHOOSE_REJECT)) {
            return r->code == SMOE_OK;
        }
    }
}

static bool next_unique(jrun *r, jiter *it, jval *v, bool *done) {
    bool is_case = jarg_truth(r, it->call, 0, false);
    for (;;) {
        jval key;
        jval *seen;
        if (!jiter_next(r, it->inner, v, done) || *done) {
            return r->code == SMOE_OK;
        }
        if (!jget_path(r, *v, it->call->arg[1], jmissing(), &key) ||
            !jfold_case(r, is_case, &key) || !jdict_find(r, it->seen, key, &seen)) {
            return false;
        }
        if (!seen) {
            return jdict_put(r, it->seen, key, jnone());
        }
    }
}

static bool next_batch(jrun *r, jiter *it, jval *v, bool *done) {
    int64_t size = 0;
    jlist *list = jlist_new(r, 0);
    if (!list || !jarg_int(r, it->call, 0, 0, &size)) {
        return false;
    }
    if (size == 0) {
        return jfail(r, "batch needs a size");
    }
    bool is_end = false;
    while (size < 0 || list->n < (size_t)size) {
        jval item;
        if (!jcharge(r, 1) || !jiter_next(r, it->inner, &item, &is_end)) {
            return false;
        }
        if (is_end) {
            break;
        }
        if (!jlist_add(r, list, item)) {
            return false;
        }
    }
    if (!list->n) {
        *done = true;
        return true;
    }
    jval fill = it->call->arg[1];
    while (fill.kind != J_MISSING && fill.kind != J_NONE && size > 0 && list->n < (size_t)size) {
        if (!jcharge(r, 1) || !jlist_add(r, list, fill)) {
            return false;
        }
    }
    *v = jlist_value(list);
    return true;
}

/* Columns as even as they go, the first ones longer. */
static bool next_slice(jrun *r, jiter *it, jval *v, bool *done) {
    int64_t n_slice = 0;
    if (!jarg_int(r, it->call, 0, 0, &n_slice)) {
        return false;
    }
    if (!it->list && !jlist_from(r, it->source, &it->list)) {
        return false;
    }
    if (n_slice == 0) {
        return jfail(r, "integer division or modulo by zero");
    }
    if (n_slice < 0 || it->i >= (size_t)n_slice) {
        *done = true;
        return true;
    }
    size_t k = it->i++;
    size_t each = it->list->n / (size_t)n_slice;
    size_t extra = it->list->n % (size_t)n_slice;
    size_t start = k * each + (k < extra ? k : extra);
    size_t n = each + (k < extra);
    jlist *list = jlist_new(r, n + 1);
    if (!list || !jcharge(r, n + 1)) {
        return false;
    }
    for (; list->n < n; list->n++) {
        list->items[list->n] = it->list->items[start + list->n];
    }
    jval fill = it->call->arg[1];
    if (fill.kind != J_MISSING && fill.kind != J_NONE && k >= extra) {
        list->items[list->n++] = fill;
    }
    *v = jlist_value(list);
    return true;
}

/* ---- a loop with a test */

/* What the target holds, as a value again: a tuple for a tuple. */
static bool collect_target(jrun *r, const jnode *target, jval *out) {
    if (target->kind == N_NAME) {
        *out = *jslot(r, target->ref);
        return true;
    }
    jlist *list = jlist_new(r, target->items.n);
    for (uint32_t i = 0; list && i < target->items.n; i++) {
        if (!collect_target(r, target->items.items[i], &list->items[i])) {
            return false;
        }
        list->n++;
    }
    *out = (jval){.kind = J_TUPLE, .list = list};
    return list != NULL;
}

static bool next_filtered(jrun *r, jiter *it, jval *v, bool *done) {
    jact *back = r->act;
    bool ok = true;
    r->act = it->act;
    if (it->i++ == 0) {
        jenter_scope(r, &it->loop->test_scope);
    }
    for (;;) {
        jval item;
        jval test = jnone();
        ok = jcharge(r, 1) && jiter_next(r, it->inner, &item, done);
        if (!ok || *done) {
            break;
        }
        ok = jassign(r, it->loop->test_target, item) && jeval(r, it->loop->c, &test);
        if (!ok || jtruth(r, test)) {
            ok = ok && collect_target(r, it->loop->test_target, v);
            break;
        }
    }
    r->act = back;
    return ok;
}

/* ---- the next item */

static bool next_of(jrun *r, jiter *it, jval *v, bool *done) {
    switch (it->kind) {
    case ITER_SEQ:
        if (it->i < it->source.list->n) {
            *v = it->source.list->items[it->i++];
        } else {
            *done = true;
        }
        return true;
    case ITER_DICT:
        return next_entry(r, it, v, done);
    case ITER_STR:
        return next_char(r, it, v, done);
    case ITER_RANGE:
        if (it->i < (size_t)it->source.range->n) {
            *v = jint(it->source.range->start + (int64_t)it->i++ * it->source.range->step);
        } else {
            *done = true;
        }
        return true;
    case ITER_REVERSED:
        return next_reversed(r, it, v, done);
    case ITER_MAP:
        return next_mapped(r, it, v, done);
    case ITER_SELECT:
        return next_selected(r, it, v, done);
    case ITER_UNIQUE:
        return next_unique(r, it, v, done);
    case ITER_BATCH:
        return next_batch(r, it, v, done);
    case ITER_SLICE:
        return next_slice(r, it, v, done);
    case ITER_PAIRS:
        return jiter_next(r, it->inner, v, done);
    case ITER_FILTERED:
        return next_filtered(r, it, v, done);
    default:
        *done = true;
        return true;
    }
}

/* The filter items: a dict only, but that is found out late. */
static bool start_pairs(jrun *r, jiter *it) {
    it->is_started = true;
    if (it->source.kind == J_UNDEFINED) {
        it->is_done = true;
        return true;
    }
    if (it->source.kind != J_DICT) {
        return jfail(r, "items works on a mapping, not on '%s'", jtype_name(it->source));
    }
    bool ok = jiter_of(r, it->source, &it->inner);
    if (ok) {
        it->inner->which = JVIEW_ITEMS;
    }
    return ok;
}

bool jiter_next(jrun *r, jiter *it, jval *v, bool *done) {
    *done = false;
    *v = jnone();
    bool is_lazy = it->kind == ITER_MAP || it->kind == ITER_SELECT || it->kind == ITER_UNIQUE ||
                   it->kind == ITER_BATCH;
    if (!jcharge(r, 1) || !jenter(r)) {
        return false;
    }
    bool ok = true;
    if (is_lazy && !it->is_started) {
        ok = start_lazy(r, it);
    } else if (it->kind == ITER_PAIRS && !it->is_started) {
        ok = start_pairs(r, it);
    }
    if (it->is_done) {
        *done = true;
    } else {
        ok = ok && next_of(r, it, v, done);
        it->is_done = *done && it->kind != ITER_SEQ;
    }
    jleave(r);
    return ok;
}

bool jlist_from(jrun *r, jval v, jlist **out) {
    jiter *it;
    jval item;
    bool is_done = false;
    jlist *list = jlist_new(r, 0);
    if (!list || !jiter_of(r, v, &it)) {
        return false;
    }
    for (;;) {
        if (!jiter_next(r, it, &item, &is_done)) {
            return false;
        }
        if (is_done) {
            *out = list;
            return true;
        }
        if (!jlist_add(r, list, item)) {
            return false;
        }
    }
}

/* ---- loops */

bool jloop_length(jrun *r, jloop *l, int64_t *out) {
    if (l->length < 0 && jhas_length(l->source)) {
        size_t n = 0;
        if (!jlength(r, l->source, &n)) {
            return false;
        }
        l->length = (int64_t)n;
    } else if (l->length < 0) {
        /* A generator is read to its end; the loop goes on over what it held. */
        jlist *rest;
        jval again = {.kind = J_ITER, .iter = l->iter};
        if (!jlist_from(r, again, &rest) || !jiter_of(r, jlist_value(rest), &l->iter)) {
            return false;
        }
        l->length = (int64_t)rest->n + l->index0 + 1 + l->has_after;
    }
    *out = l->length;
    return true;
}

/* Reads one item ahead; J_MISSING at the end. */
static bool peek(jrun *r, jloop *l) {
    bool is_done = false;
    if (l->has_after) {
        return true;
    }
    if (!jiter_next(r, l->iter, &l->after, &is_done)) {
        return false;
    }
    l->has_after = !is_done;
    return true;
}

bool jloop_advance(jrun *r, jloop *l, jval *v, bool *done) {
    *done = false;
    if (l->has_after) {
        *v = l->after;
        l->has_after = false;
    } else if (!jiter_next(r, l->iter, v, done) || *done) {
        return r->code == SMOE_OK;
    }
    l->index0++;
    l->before = l->current;
    l->current = *v;
    return true;
}

static bool loop_number(jrun *r, jloop *l, const jstr *name, jval *out, bool *found) {
    static const char *const names[] = {"index",  "index0",   "depth",    "depth0",
                                        "length", "revindex", "revindex0"};
    int64_t length = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!jstr_is(name, names[i])) {
            continue;
        }
        *found = true;
        if (i >= 4 && !jloop_length(r, l, &length)) {
            return false;
        }
        const int64_t values[] = {
            l->index0 + 1, l->index0,          l->depth0 + 1,         l->depth0,
            length,        length - l->index0, length - l->index0 - 1};
        *out = jint(values[i]);
        return true;
    }
    return true;
}

bool jloop_attr(jrun *r, jloop *l, const jstr *name, jval *out, bool *found) {
    *found = false;
    if (!loop_number(r, l, name, out, found) || *found) {
        return r->code == SMOE_OK;
    }
    *found = true;
    if (jstr_is(name, "first")) {
        *out = jbool(l->index0 == 0);
        return true;
    }
    if (jstr_is(name, "last")) {
        bool ok = peek(r, l);
        *out = jbool(!l->has_after);
        return ok;
    }
    if (jstr_is(name, "previtem")) {
        *out = l->before;
        return l->index0 > 0 || jundefined_hint(r, "there is no previous item", out);
    }
    if (jstr_is(name, "nextitem")) {
        if (!peek(r, l)) {
            return false;
        }
        *out = l->after;
        return l->has_after || jundefined_hint(r, "there is no next item", out);
    }
    *found = false;
    return true;
}
