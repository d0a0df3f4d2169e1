/* Filters on sequences and mappings. Owns no state. */
#include <string.h>

#include "text/jinja_run.h"

static bool is_given(const jcall *c, size_t i) {
    return c->arg[i].kind != J_MISSING && c->arg[i].kind != J_NONE;
}

static bool make_generator(jrun *r, jcall *c) {
    return jiter_new(r, (jiter_kind)c->native->tag, c->self, c, &c->out);
}

static bool do_select(jrun *r, jcall *c) {
    return jiter_new(r, ITER_SELECT, c->self, c, &c->out);
}

static bool do_list(jrun *r, jcall *c) {
    jlist *list;
    if (!jlist_from(r, c->self, &list)) {
        return false;
    }
    c->out = jlist_value(list);
    c->out.is_input = c->self.is_input;
    return true;
}

static bool do_first(jrun *r, jcall *c) {
    jiter *it;
    bool is_done = false;
    if (!jiter_of(r, c->self, &it) || !jiter_next(r, it, &c->out, &is_done)) {
        return false;
    }
    return !is_done || jundefined_hint(r, "No first item, sequence was empty.", &c->out);
}

/* What Python's reversed() takes. */
static bool is_reversible(jval v) {
    return v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_STR || v.kind == J_DICT ||
           v.kind == J_RANGE || v.kind == J_VIEW || v.kind == J_UNDEFINED;
}

static bool reverse_text(jrun *r, jval v, jval *out) {
    jslice s = {jnone(), jnone(), jint(-1)};
    return jslice_value(r, v, &s, out);
}

static bool do_last(jrun *r, jcall *c) {
    jval it;
    bool is_done = false;
    jval source = c->self;
    if (!is_reversible(source)) {
        return jfail(r, "'%s' object is not reversible", jtype_name(source));
    }
    if (source.kind == J_STR) {
        jval last = jint(-1);
        return source.s->bytes ? jgetitem(r, source, last, &c->out)
                               : jundefined_hint(r, "No last item, sequence was empty.", &c->out);
    }
    if (source.kind != J_UNDEFINED && (!jiter_new(r, ITER_REVERSED, source, NULL, &it) ||
                                       !jiter_next(r, it.iter, &c->out, &is_done))) {
        return false;
    }
    is_done = is_done || source.kind == J_UNDEFINED;
    return !is_done || jundefined_hint(r, "No last item, sequence was empty.", &c->out);
}

static bool do_reverse(jrun *r, jcall *c) {
    if (c->self.kind == J_STR) {
        return reverse_text(r, c->self, &c->out);
    }
    if (c->self.kind == J_UNDEFINED) {
        return jiter_new(r, ITER_EMPTY, c->self, NULL, &c->out);
    }
    if (is_reversible(c->self)) {
        return jiter_new(r, ITER_REVERSED, c->self, NULL, &c->out);
    }
    jlist *list;
    if (!jlist_from(r, c->self, &list)) {
        return false;
    }
    for (size_t i = 0; i < list->n / 2; i++) {
        jval v = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = v;
    }
    c->out = jlist_value(list);
    return true;
}

static bool do_join(jrun *r, jcall *c) {
    const jstr *separator = NULL;
    jbuf b = {0};
    jiter *it;
    jval v;
    bool is_done = false;
    if (c->arg[0].kind != J_MISSING && !jstr_from(r, c->arg[0], &separator)) {
        return false;
    }
    if (!jiter_of(r, c->self, &it)) {
        return false;
    }
    for (size_t i = 0;; i++) {
        if (!jiter_next(r, it, &v, &is_done)) {
            return false;
        }
        if (is_done) {
            return jbuf_take(r, &b, &c->out);
        }
        if (is_given(c, 1) && !jget_path(r, v, c->arg[1], jmissing(), &v)) {
            return false;
        }
        if ((i && separator && !jbuf_str(r, &b, separator)) || !jbuf_value(r, &b, v, false)) {
            return false;
        }
    }
}

/* ---- sorting */

/* The comma-separated attributes of v as a list, which is how sort compares. */
static bool sort_key(jrun *r, jval v, jval attributes, bool is_case, jval *out) {
    jlist *list = jlist_new(r, 1);
    size_t start = 0;
    bool is_more = true;
    while (list && is_more) {
        jval path = attributes;
        jval key;
        is_more = false;
        if (attributes.kind == J_STR) {
            const jstr *s = attributes.s;
            const char *comma =
                start < s->bytes ? memchr(s->data + start, ',', s->bytes - start) : NULL;
            size_t end = comma ? (size_t)(comma - s->data) : s->bytes;
            if (!jstr_part(r, s, start, end, &path)) {
                return false;
            }
            start = end + 1;
            is_more = comma != NULL;
        }
        if (!jget_path(r, v, path, jmissing(), &key) || !jfold_case(r, is_case, &key) ||
            !jlist_add(r, list, key)) {
            return false;
        }
    }
    *out = jlist_value(list);
    return list != NULL;
}

/* The items of list in the order of their keys. */
static bool reorder(jrun *r, const jlist *list, const jval *keys, bool is_reverse, jlist **out) {
    size_t *order = jget(r, list->n + 1, sizeof *order);
    jlist *sorted = jlist_new(r, list->n);
    if (!order || !sorted || !jsort(r, keys, list->n, is_reverse, order)) {
        return false;
    }
    for (size_t i = 0; i < list->n; i++) {
        sorted->items[sorted->n++] = list->items[order[i]];
    }
    *out = sorted;
    return true;
}

static bool do_sort(jrun *r, jcall *c) {
    jlist *list;
    if (!jlist_from(r, c->self, &list)) {
        return false;
    }
    jval *keys = jget(r, list->n + 1, sizeof *keys);
    bool is_case = jarg_truth(r, c, 1, false);
    for (size_t i = 0; keys && i < list->n; i++) {
        if (!sort_key(r, list->items[i], c->arg[2], is_case, &keys[i])) {
            return false;
        }
    }
    jlist *sorted;
    if (!keys || !reorder(r, list, keys, jarg_truth(r, c, 0, false), &sorted)) {
        return false;
    }
    c->out = jlist_value(sorted);
    c->out.is_input = c->self.is_input;
    return true;
}

static bool do_dictsort(jrun *r, jcall *c) {
    const jstr *by = NULL;
    if (c->arg[1].kind != J_MISSING && !jarg_str(r, c, 1, &by)) {
        return false;
    }
    bool by_value = by && jstr_is(by, "value");
    if (by && !by_value && !jstr_is(by, "key")) {
        return jfail(r, "You can only sort by either \"key\" or \"value\"");
    }
    if (c->self.kind != J_DICT) {
        return c->self.kind == J_UNDEFINED
                   ? jfail_undefined(r, c->self)
                   : jfail(r, "dictsort works on a mapping, not on '%s'", jtype_name(c->self));
    }
    const jdict *d = c->self.dict;
    bool is_case = jarg_truth(r, c, 0, false);
    jlist *list = jlist_new(r, d->n);
    jval *keys = jget(r, d->n + 1, sizeof *keys);
    for (size_t i = 0; list && keys && i < d->n; i++) {
        keys[i] = by_value ? d->entries[i].value : d->entries[i].key;
        if (!jfold_case(r, is_case, &keys[i]) ||
            !jtuple_of(r, d->entries[i].key, d->entries[i].value, &list->items[i])) {
            return false;
        }
        list->n++;
    }
    jlist *sorted;
    if (!list || !keys || !reorder(r, list, keys, jarg_truth(r, c, 2, false), &sorted)) {
        return false;
    }
    c->out = jlist_value(sorted);
    c->out.is_input = c->self.is_input;
    return true;
}

static bool add_group(jrun *r, const jcall *c, jlist *groups, jval key, jlist *members,
                      bool is_case) {
    jval group;
    if (!is_case && !jget_path(r, members->items[0], c->arg[0], c->arg[1], &key)) {
        return false;
    }
    if (!jtuple_of(r, key, jlist_value(members), &group)) {
        return false;
    }
    group.list->is_group = true;
    return jlist_add(r, groups, group);
}

static bool do_groupby(jrun *r, jcall *c) {
    jlist *list;
    bool is_case = jarg_truth(r, c, 2, false);
    if (!jlist_from(r, c->self, &list)) {
        return false;
    }
    jval *keys = jget(r, list->n + 1, sizeof *keys);
    size_t *order = jget(r, list->n + 1, sizeof *order);
    jlist *groups = jlist_new(r, 0);
    for (size_t i = 0; keys && i < list->n; i++) {
        if (!jget_path(r, list->items[i], c->arg[0], c->arg[1], &keys[i]) ||
            !jfold_case(r, is_case, &keys[i])) {
            return false;
        }
    }
    if (!keys || !order || !groups || !jsort(r, keys, list->n, false, order)) {
        return false;
    }
    for (size_t i = 0; i < list->n;) {
        jval key = keys[order[i]];
        jlist *members = jlist_new(r, 0);
        bool is_equal = true;
        while (members && i < list->n && is_equal) {
            if (!jlist_add(r, members, list->items[order[i]])) {
                return false;
            }
            i++;
            if (i < list->n && !jequal(r, key, keys[order[i]], &is_equal)) {
                return false;
            }
        }
        if (!members || !add_group(r, c, groups, key, members, is_case)) {
            return false;
        }
    }
    c->out = jlist_value(groups);
    return true;
}

/* ---- aggregates */

static bool do_min_max(jrun *r, jcall *c) {
    jiter *it;
    jval v;
    jval key;
    jval best = jmissing();
    bool is_done = false;
    bool is_case = jarg_truth(r, c, 0, false);
    int wanted = c->native->tag ? 1 : -1;
    if (!jiter_of(r, c->self, &it)) {
        return false;
    }
    for (;;) {
        int order = 0;
        if (!jiter_next(r, it, &v, &is_done)) {
            return false;
        }
        if (is_done) {
            return best.kind != J_MISSING ||
                   jundefined_hint(r, "No aggregated item, sequence was empty.", &c->out);
        }
        if (!jget_path(r, v, c->arg[1], jmissing(), &key) || !jfold_case(r, is_case, &key)) {
            return false;
        }
        if (best.kind != J_MISSING && !jorder(r, key, best, &order)) {
            return false;
        }
        if (best.kind == J_MISSING || order == wanted) {
            best = key;
            c->out = v;
        }
    }
}

static bool do_sum(jrun *r, jcall *c) {
    jiter *it;
    jval v;
    bool is_done = false;
    c->out = c->arg[1].kind == J_MISSING ? jint(0) : c->arg[1];
    if (c->out.kind == J_STR) {
        return jfail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    if (!jiter_of(r, c->self, &it)) {
        return false;
    }
    for (;;) {
        if (!jiter_next(r, it, &v, &is_done)) {
            return false;
        }
        if (is_done) {
            return true;
        }
        if ((is_given(c, 0) && !jget_path(r, v, c->arg[0], jmissing(), &v)) ||
            !jbinary(r, OP_ADD, c->out, v, &c->out)) {
            return false;
        }
    }
}

const jnative jseq_filters[] = {
    {"list", "/", 0, 0, do_list},
    {"first", "/", 0, 0, do_first},
    {"last", "/", 0, 0, do_last},
    {"reverse", "/", 0, 0, do_reverse},
    {"join", "d,attribute", 0, 0, do_join},
    {"sort", "reverse,case_sensitive,attribute", 0, 0, do_sort},
    {"dictsort", "case_sensitive,by,reverse", 0, 0, do_dictsort},
    {"groupby", "attribute,default,case_sensitive", 1, 0, do_groupby},
    {"min", "case_sensitive,attribute", 0, 0, do_min_max},
    {"max", "case_sensitive,attribute", 0, 1, do_min_max},
    {"sum", "attribute,start", 0, 0, do_sum},
    {"map", NULL, 0, ITER_MAP, make_generator},
    {"unique", "case_sensitive,attribute", 0, ITER_UNIQUE, make_generator},
    {"batch", "linecount,fill_with", 1, ITER_BATCH, make_generator},
    {"slice", "slices,fill_with", 1, ITER_SLICE, make_generator},
    {"items", "/", 0, ITER_PAIRS, make_generator},
    {"select", NULL, 0, 0, do_select},
    {"reject", NULL, 0, CHOOSE_REJECT, do_select},
    {"selectattr", NULL, 0, CHOOSE_ATTR, do_select},
    {"rejectattr", NULL, 0, CHOOSE_ATTR | CHOOSE_REJECT, do_select},
    {NULL, NULL, 0, 0, NULL}};
