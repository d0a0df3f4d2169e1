/* Containers, and what Python's operators say of values: truth, equality, order, membership. Owns
 * no state. */
#include "text/jinja_value.h"

#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "text/jinja_run.h"

enum { DICT_SMALL = 8 };

/* ---- lists */

jlist *jlist_new(jrun *r, size_t cap) {
    jlist *list = jget(r, 1, sizeof *list);
    if (!list) {
        return NULL;
    }
    if (cap) {
        list->items = jget(r, cap, sizeof *list->items);
        list->cap = cap;
    }
    return cap && !list->items ? NULL : list;
}

bool jlist_add(jrun *r, jlist *list, jval v) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        jval *items = jget(r, cap, sizeof *items);
        if (!items || !jcharge(r, list->n)) {
            return false;
        }
        if (list->n) {
            memcpy(items, list->items, list->n * sizeof *items);
        }
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = v;
    return true;
}

bool jtuple_of(jrun *r, jval a, jval b, jval *out) {
    jlist *list = jlist_new(r, 2);
    if (!list) {
        return false;
    }
    list->items[0] = a;
    list->items[1] = b;
    list->n = 2;
    *out = (jval){.kind = J_TUPLE, .list = list};
    return true;
}

/* ---- dicts */

static uint64_t hash_number(jval v) {
    if (v.kind == J_FLOAT && !(v.f >= -9.2e18 && v.f <= 9.2e18 && v.f == floor(v.f))) {
        return XXH3_64bits(&v.f, sizeof v.f);
    }
    int64_t i = v.kind == J_FLOAT ? (int64_t)v.f : v.kind == J_BOOL ? v.b : v.i;
    return XXH3_64bits(&i, sizeof i);
}

bool jhash(jrun *r, jval v, uint64_t *hash) {
    switch (v.kind) {
    case J_BOOL:
    case J_INT:
    case J_FLOAT:
        *hash = hash_number(v);
        return true;
    case J_STR:
        *hash = XXH3_64bits(v.s->data, v.s->bytes);
        return jcharge(r, v.s->bytes / 64);
    case J_TUPLE:
        *hash = 0x9e3779b97f4a7c15u;
        if (!jenter(r)) {
            return false;
        }
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t h = 0;
            if (!jcharge(r, 1) || !jhash(r, v.list->items[i], &h)) {
                return false;
            }
            *hash = (*hash ^ h) * 0x100000001b3u + i;
        }
        jleave(r);
        return true;
    case J_VIEW:
        if (v.view->which == JVIEW_VALUES) {
            *hash = XXH3_64bits(&v.view, sizeof v.view);
            return true;
        }
        return jfail(r, "unhashable type: '%s'", jtype_name(v));
    case J_LIST:
    case J_DICT:
    case J_SLICE:
        return jfail(r, "unhashable type: '%s'", jtype_name(v));
    default:
        *hash = XXH3_64bits(&v.kind, sizeof v.kind);
        return true;
    }
}

static bool dict_find(jrun *r, const jdict *d, jval key, uint64_t hash, jval **found) {
    bool is_equal = false;
    *found = NULL;
    size_t n = d->index ? d->n_index : d->n;
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        if (d->index) {
            uint32_t slot = d->index[(hash + i) & (d->n_index - 1)];
            if (!slot) {
                return true;
            }
            at = slot - 1;
        }
        if (!jcharge(r, 1)) {
            return false;
        }
        jentry *e = &d->entries[at];
        if (e->hash == hash && !jequal(r, e->key, key, &is_equal)) {
            return false;
        }
        if (e->hash == hash && is_equal) {
            *found = &e->value;
            return true;
        }
    }
    return true;
}

bool jdict_find(jrun *r, const jdict *d, jval key, jval **found) {
    uint64_t hash = 0;
    return jhash(r, key, &hash) && dict_find(r, d, key, hash, found);
}

jval *jdict_get(jrun *r, const jdict *d, const char *key) {
    jval *found = NULL;
    jstr s = {.data = key, .bytes = strlen(key)};
    return jdict_find(r, d, jtext(&s), &found) ? found : NULL;
}

static bool reindex(jrun *r, jdict *d) {
    size_t n_index = 4 * d->cap;
    uint32_t *index = jget(r, n_index, sizeof *index);
    if (!index || !jcharge(r, n_index)) {
        return false;
    }
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->entries[i].hash & (n_index - 1);
        while (index[at]) {
            at = (at + 1) & (n_index - 1);
        }
        index[at] = (uint32_t)i + 1;
    }
    d->index = index;
    d->n_index = n_index;
    return true;
}

static bool dict_grow(jrun *r, jdict *d) {
    size_t cap = d->cap ? d->cap * 2 : 4;
    jentry *entries = cap < UINT32_MAX / 8 ? jget(r, cap, sizeof *entries) : NULL;
    if (!entries) {
        return jfail_memory(r);
    }
    if (d->n) {
        memcpy(entries, d->entries, d->n * sizeof *entries);
    }
    d->entries = entries;
    d->cap = cap;
    return cap <= DICT_SMALL || reindex(r, d);
}

bool jdict_put(jrun *r, jdict *d, jval key, jval value) {
    uint64_t hash = 0;
    jval *found;
    if (!jhash(r, key, &hash) || !dict_find(r, d, key, hash, &found)) {
        return false;
    }
    if (found) {
        *found = value;
        return true;
    }
    if (d->n == d->cap && !dict_grow(r, d)) {
        return false;
    }
    if (d->index) {
        size_t at = hash & (d->n_index - 1);
        while (d->index[at]) {
            at = (at + 1) & (d->n_index - 1);
        }
        d->index[at] = (uint32_t)d->n + 1;
    }
    d->entries[d->n++] = (jentry){key, value, hash};
    return true;
}

/* ---- types, truth and length */

const char *jtype_name(jval v) {
    static const char *const names[] = {[J_UNDEFINED] = "Undefined", [J_NONE] = "NoneType",
                                        [J_BOOL] = "bool",           [J_INT] = "int",
                                        [J_FLOAT] = "float",         [J_STR] = "str",
                                        [J_LIST] = "list",           [J_TUPLE] = "tuple",
                                        [J_DICT] = "dict",           [J_VIEW] = "dict view",
                                        [J_RANGE] = "range",         [J_ITER] = "generator",
                                        [J_NAMESPACE] = "Namespace", [J_LOOP] = "LoopContext",
                                        [J_MACRO] = "Macro",         [J_METHOD] = "method",
                                        [J_NATIVE] = "function",     [J_CYCLER] = "Cycler",
                                        [J_JOINER] = "Joiner",       [J_SLICE] = "slice",
                                        [J_MISSING] = "missing"};
    return names[v.kind];
}

bool jhas_length(jval v) {
    return v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_DICT ||
           v.kind == J_VIEW || v.kind == J_RANGE || v.kind == J_UNDEFINED || v.kind == J_LOOP;
}

bool jlength(jrun *r, jval v, size_t *n) {
    int64_t length = 0;
    switch (v.kind) {
    case J_UNDEFINED:
        *n = 0;
        return true;
    case J_STR:
        *n = v.s->n_char;
        return true;
    case J_LIST:
    case J_TUPLE:
        *n = v.list->n;
        return true;
    case J_DICT:
        *n = v.dict->n;
        return true;
    case J_VIEW:
        *n = v.view->dict->n;
        return true;
    case J_RANGE:
        *n = (size_t)v.range->n;
        return true;
    case J_LOOP:
        if (!jloop_length(r, v.loop, &length)) {
            return false;
        }
        *n = (size_t)length;
        return true;
    default:
        return jfail(r, "object of type '%s' has no len()", jtype_name(v));
    }
}

bool jtruth(jrun *r, jval v) {
    size_t n = 0;
    switch (v.kind) {
    case J_UNDEFINED:
    case J_NONE:
    case J_MISSING:
        return false;
    case J_BOOL:
        return v.b;
    case J_INT:
        return v.i != 0;
    case J_FLOAT:
        return v.f != 0;
    case J_LOOP:
        return true;
    default:
        return !jhas_length(v) || (jlength(r, v, &n) && n > 0);
    }
}

/* ---- equality */

static double number(jval v) {
    return v.kind == J_FLOAT ? v.f : v.kind == J_BOOL ? v.b : (double)v.i;
}

static int64_t whole(jval v) {
    return v.kind == J_BOOL ? v.b : v.i;
}

/* -1, 0, 1, or 2 when one is not a number. A whole number beyond 2^53 is compared exactly. */
static int order_numbers(jval a, jval b) {
    if (a.kind != J_FLOAT && b.kind != J_FLOAT) {
        return (whole(a) > whole(b)) - (whole(a) < whole(b));
    }
    double x = number(a);
    double y = number(b);
    if (isnan(x) || isnan(y)) {
        return 2;
    }
    if (x == y && a.kind != b.kind && fabs(x) >= 0x1p53 && fabs(x) < 0x1p63) {
        int64_t i = a.kind == J_FLOAT ? (int64_t)a.f : whole(a);
        int64_t k = b.kind == J_FLOAT ? (int64_t)b.f : whole(b);
        return (i > k) - (i < k);
    }
    if (x == y && a.kind != b.kind && fabs(x) >= 0x1p63) {
        return a.kind == J_INT ? (x > 0 ? -1 : 0) : (x > 0 ? 1 : 0);
    }
    return (x > y) - (x < y);
}

static bool equal_lists(jrun *r, const jlist *a, const jlist *b, bool *equal) {
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++) {
        if (!jcharge(r, 1) || !jequal(r, a->items[i], b->items[i], equal)) {
            return false;
        }
    }
    return true;
}

static bool equal_dicts(jrun *r, const jdict *a, const jdict *b, bool *equal) {
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++) {
        jval *other;
        if (!dict_find(r, b, a->entries[i].key, a->entries[i].hash, &other)) {
            return false;
        }
        *equal = other != NULL;
        if (other && !jequal(r, a->entries[i].value, *other, equal)) {
            return false;
        }
    }
    return true;
}

bool jsame(jval a, jval b) {
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
    case J_UNDEFINED:
    case J_NONE:
    case J_MISSING:
        return true;
    case J_BOOL:
        return a.b == b.b;
    case J_INT:
        return a.i == b.i;
    case J_FLOAT:
        return (a.f == b.f && !signbit(a.f) == !signbit(b.f)) || (isnan(a.f) && isnan(b.f));
    case J_STR:
        return a.s == b.s || (a.s->data == b.s->data && a.s->bytes == b.s->bytes);
    default:
        return a.list == b.list;
    }
}

bool jequal(jrun *r, jval a, jval b, bool *equal) {
    if (jis_number(a) && jis_number(b)) {
        *equal = order_numbers(a, b) == 0;
        return true;
    }
    *equal = false;
    if (a.kind != b.kind) {
        return true;
    }
    bool ok = true;
    switch (a.kind) {
    case J_STR:
        *equal = jstr_equal(a.s, b.s);
        return jcharge(r, a.s->bytes == b.s->bytes ? a.s->bytes / 64 : 0);
    case J_RANGE:
        *equal = a.range->n == b.range->n &&
                 (a.range->n == 0 || (a.range->start == b.range->start &&
                                      (a.range->n == 1 || a.range->step == b.range->step)));
        return true;
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
        if (a.list == b.list) {
            *equal = true;
            return true;
        }
        if (!jenter(r)) {
            return false;
        }
        ok = a.kind == J_DICT ? equal_dicts(r, a.dict, b.dict, equal)
                              : equal_lists(r, a.list, b.list, equal);
        jleave(r);
        return ok;
    default:
        *equal = jsame(a, b);
        return true;
    }
}

/* ---- order and membership */

static bool order_lists(jrun *r, const jlist *a, const jlist *b, int *order) {
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool is_equal;
        if (!jcharge(r, 1) || !jequal(r, a->items[i], b->items[i], &is_equal)) {
            return false;
        }
        if (!is_equal) {
            return jorder(r, a->items[i], b->items[i], order);
        }
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return true;
}

bool jorder(jrun *r, jval a, jval b, int *order) {
    if (a.kind == J_UNDEFINED || b.kind == J_UNDEFINED) {
        return jfail_undefined(r, a.kind == J_UNDEFINED ? a : b);
    }
    if (jis_number(a) && jis_number(b)) {
        *order = order_numbers(a, b);
        return true;
    }
    if (a.kind == J_STR && b.kind == J_STR) {
        size_t n = a.s->bytes < b.s->bytes ? a.s->bytes : b.s->bytes;
        int c = n ? memcmp(a.s->data, b.s->data, n) : 0;
        *order = c ? (c > 0) - (c < 0) : (a.s->bytes > b.s->bytes) - (a.s->bytes < b.s->bytes);
        return jcharge(r, n / 64);
    }
    if ((a.kind == J_LIST || a.kind == J_TUPLE) && a.kind == b.kind) {
        if (!jenter(r)) {
            return false;
        }
        bool ok = order_lists(r, a.list, b.list, order);
        jleave(r);
        return ok;
    }
    return jfail(r, "values of types '%s' and '%s' have no order", jtype_name(a), jtype_name(b));
}

static bool contains_walk(jrun *r, jval container, jval v, bool *found) {
    jiter *it;
    jval item;
    bool is_done = false;
    if (!jiter_of(r, container, &it)) {
        return false;
    }
    while (!*found) {
        if (!jiter_next(r, it, &item, &is_done)) {
            return false;
        }
        if (is_done) {
            return true;
        }
        *found = jsame(item, v);
        if (!jcharge(r, 1) || (!*found && !jequal(r, item, v, found))) {
            return false;
        }
    }
    return true;
}

bool jcontains(jrun *r, jval container, jval v, bool *found) {
    jval *value;
    *found = false;
    if (container.kind == J_VIEW && container.view->which == JVIEW_KEYS) {
        container = (jval){.kind = J_DICT, .dict = container.view->dict};
    }
    switch (container.kind) {
    case J_STR:
        if (v.kind != J_STR) {
            return jfail(r, "'in <string>' requires string as left operand, not %s", jtype_name(v));
        }
        *found = jstr_find(container.s, 0, container.s->bytes, v.s) != SIZE_MAX;
        return jcharge(r, container.s->bytes / 16 + v.s->bytes / 16);
    case J_DICT:
        if (!jdict_find(r, container.dict, v, &value)) {
            return false;
        }
        *found = value != NULL;
        return true;
    case J_UNDEFINED:
    case J_LIST:
    case J_TUPLE:
    case J_VIEW:
    case J_RANGE:
    case J_ITER:
        return contains_walk(r, container, v, found);
    default:
        return jfail(r, "argument of type '%s' is not iterable", jtype_name(container));
    }
}

/* ---- sorting */

/* Merges order[a..b) and order[b..c) through spare. */
static bool merge(jrun *r, const jval *keys, bool is_reverse, size_t *order, size_t *spare,
                  const size_t cut[3]) {
    size_t i = cut[0];
    size_t k = cut[1];
    for (size_t at = cut[0]; at < cut[2]; at++) {
        bool is_right = i == cut[1];
        if (!is_right && k < cut[2]) {
            int c = 0;
            bool ok = is_reverse ? jorder(r, keys[order[i]], keys[order[k]], &c)
                                 : jorder(r, keys[order[k]], keys[order[i]], &c);
            if (!ok || !jcharge(r, 1)) {
                return false;
            }
            is_right = c == -1;
        }
        spare[at] = is_right ? order[k++] : order[i++];
    }
    memcpy(order + cut[0], spare + cut[0], (cut[2] - cut[0]) * sizeof *order);
    return true;
}

bool jsort(jrun *r, const jval *keys, size_t n, bool is_reverse, size_t *order) {
    size_t *spare = jget(r, n + 1, sizeof *spare);
    for (size_t i = 0; spare && i < n; i++) {
        order[i] = i;
    }
    for (size_t run = 1; spare && run < n; run *= 2) {
        for (size_t a = 0; a + run < n; a += 2 * run) {
            size_t cut[3] = {a, a + run, a + 2 * run < n ? a + 2 * run : n};
            if (!merge(r, keys, is_reverse, order, spare, cut)) {
                return false;
            }
        }
    }
    return spare != NULL;
}
