/* Evaluates expressions. */
#include <string.h>

#include "text/jinja_run.h"

/* ---- names */

jval *jslot(const jrun *r, jref ref) {
    jact *act = r->act;
    for (uint16_t i = 0; i < ref.up; i++) {
        act = act->outer;
    }
    return &act->slots[ref.slot];
}

static bool eval_name(jrun *r, const jnode *n, jval *out) {
    *out = *jslot(r, n->ref);
    return out->kind != J_MISSING || jundefined(r, jmissing(), jtext(n->name), out);
}

/* ---- calls */

/* The values of *args. */
static bool add_star(jrun *r, jval star, jlist *pos) {
    jlist *more;
    if (!jlist_from(r, star, &more)) {
        return false;
    }
    for (size_t i = 0; i < more->n; i++) {
        if (!jlist_add(r, pos, more->items[i])) {
            return false;
        }
    }
    return true;
}

/* The names and values of **kwargs, behind the n_kw there are. */
static bool add_star2(jrun *r, jval star2, jargs *out) {
    if (star2.kind != J_DICT) {
        return jfail(r, "the argument after ** must be a mapping, not '%s'", jtype_name(star2));
    }
    const jdict *d = star2.dict;
    const jstr **names = jget(r, out->n_kw + d->n + 1, sizeof *names);
    jval *values = jget(r, out->n_kw + d->n + 1, sizeof *values);
    if (!names || !values) {
        return false;
    }
    if (out->n_kw) {
        memcpy(names, out->names, out->n_kw * sizeof *names);
        memcpy(values, out->kw, out->n_kw * sizeof *values);
    }
    size_t n_written = out->n_kw;
    for (size_t i = 0; i < d->n; i++) {
        if (d->entries[i].key.kind != J_STR) {
            return jfail(r, "keywords must be strings");
        }
        for (size_t k = 0; k < n_written; k++) {
            if (jstr_equal(names[k], d->entries[i].key.s)) {
                return jfail(r, "a keyword argument given twice");
            }
        }
        names[out->n_kw] = d->entries[i].key.s;
        values[out->n_kw++] = d->entries[i].value;
    }
    out->names = names;
    out->kw = values;
    return true;
}

bool jeval_args(jrun *r, const jargspec *spec, const jval *first, jargs *out) {
    jlist *pos = jlist_new(r, spec->pos.n + (first ? 1u : 0u));
    jval v;
    if (!pos) {
        return false;
    }
    *out = (jargs){0};
    if (first) {
        pos->items[pos->n++] = *first;
    }
    for (uint32_t i = 0; i < spec->pos.n; i++) {
        if (!jeval(r, spec->pos.items[i], &pos->items[pos->n])) {
            return false;
        }
        pos->n++;
    }
    if (spec->kw.n) {
        out->names = jget(r, spec->kw.n, sizeof *out->names);
        out->kw = jget(r, spec->kw.n, sizeof *out->kw);
        if (!out->names || !out->kw) {
            return false;
        }
        memcpy(out->names, spec->names, spec->kw.n * sizeof *out->names);
    }
    for (uint32_t i = 0; i < spec->kw.n; i++) {
        if (!jeval(r, spec->kw.items[i], &out->kw[i])) {
            return false;
        }
        out->n_kw++;
    }
    if (spec->star && (!jeval(r, spec->star, &v) || !add_star(r, v, pos))) {
        return false;
    }
    if (spec->star2 && (!jeval(r, spec->star2, &v) || !add_star2(r, v, out))) {
        return false;
    }
    out->pos = pos->items;
    out->n_pos = pos->n;
    return true;
}

static bool eval_call(jrun *r, const jnode *n, jval *out) {
    jval callee;
    jargs args;
    if (!jeval(r, n->a, &callee) || !jeval_args(r, n->args, NULL, &args)) {
        return false;
    }
    r->pos = n->a->pos;
    return jcall_value(r, callee, &args, out);
}

bool jeval_filter(jrun *r, const jnode *n, jval value, jval *out) {
    jargs args;
    if (n->a) {
        /* A chain of filters on a block: the innermost takes the text. */
        if (n->a->kind == N_FILTER ? !jeval_filter(r, n->a, value, &value)
                                   : !jeval(r, n->a, &value)) {
            return false;
        }
    }
    if (!jeval_args(r, n->args, NULL, &args)) {
        return false;
    }
    r->pos = n->pos;
    if (!n->native) {
        return jfail(r, "there is no %s of this name", n->kind == N_FILTER ? "filter" : "test");
    }
    return jcall_native(r, n->native, value, &args, out);
}

/* ---- operators */

static bool eval_unary(jrun *r, const jnode *n, jval *out) {
    jval v;
    if (!jeval(r, n->a, &v)) {
        return false;
    }
    r->pos = n->pos;
    if (n->kind == N_NOT) {
        *out = jbool(!jtruth(r, v));
        return true;
    }
    if (!jis_number(v)) {
        return v.kind == J_UNDEFINED ? jfail_undefined(r, v)
                                     : jfail(r, "'%s' has no sign", jtype_name(v));
    }
    int64_t sign = n->kind == N_NEG ? -1 : 1;
    if (v.kind == J_FLOAT) {
        *out = jfloat(sign < 0 ? -v.f : v.f);
        out->is_input = v.is_input;
        return true;
    }
    return jbinary(r, OP_MUL, v, jint(sign), out);
}

static bool eval_binary(jrun *r, const jnode *n, jval *out) {
    jval a;
    jval b;
    if (!jeval(r, n->a, &a) || !jeval(r, n->b, &b)) {
        return false;
    }
    r->pos = n->pos;
    return jbinary(r, n->op, a, b, out);
}

/* a < b < c holds when each pair does; later operands are not looked at once one does not. */
static bool eval_compare(jrun *r, const jnode *n, jval *out) {
    jval left;
    jval right;
    bool holds = true;
    if (!jeval(r, n->a, &left)) {
        return false;
    }
    for (uint32_t i = 0; i < n->items.n && holds; i++) {
        const jnode *operand = n->items.items[i];
        if (!jeval(r, operand->a, &right)) {
            return false;
        }
        r->pos = operand->pos;
        if (!jcompare(r, operand->op, left, right, &holds)) {
            return false;
        }
        left = right;
    }
    *out = jbool(holds);
    return true;
}

static bool eval_concat(jrun *r, const jnode *n, jval *out) {
    jval v;
    const jstr *part;
    for (uint32_t i = 0; i < n->items.n; i++) {
        if (!jeval(r, n->items.items[i], &v)) {
            return false;
        }
        r->pos = n->pos;
        if (!jstr_from(r, v, &part)) {
            return false;
        }
        if (i == 0) {
            *out = jtext(part);
        } else if (!jstr_join(r, out->s, part, out)) {
            return false;
        }
    }
    return true;
}

static bool eval_logic(jrun *r, const jnode *n, jval *out) {
    if (!jeval(r, n->a, out)) {
        return false;
    }
    bool holds = jtruth(r, *out);
    return holds == (n->kind == N_OR) || jeval(r, n->b, out);
}

static bool eval_condition(jrun *r, const jnode *n, jval *out) {
    jval test;
    if (!jeval(r, n->a, &test)) {
        return false;
    }
    if (jtruth(r, test)) {
        return jeval(r, n->b, out);
    }
    if (n->c) {
        return jeval(r, n->c, out);
    }
    return jundefined_hint(r, "a conditional expression without else whose condition is false",
                           out);
}

/* ---- literals and subscripts */

static bool eval_list(jrun *r, const jnode *n, jval *out) {
    jlist *list = jlist_new(r, n->items.n);
    for (uint32_t i = 0; list && i < n->items.n; i++) {
        if (!jeval(r, n->items.items[i], &list->items[i])) {
            return false;
        }
        list->n++;
    }
    *out = (jval){.kind = n->kind == N_LIST ? J_LIST : J_TUPLE, .list = list};
    return list != NULL;
}

static bool eval_dict(jrun *r, const jnode *n, jval *out) {
    jdict *d = jget(r, 1, sizeof *d);
    for (uint32_t i = 0; d && i + 1 < n->items.n; i += 2) {
        jval key;
        jval value;
        if (!jeval(r, n->items.items[i], &key) || !jeval(r, n->items.items[i + 1], &value)) {
            return false;
        }
        r->pos = n->items.items[i]->pos;
        if (!jdict_put(r, d, key, value)) {
            return false;
        }
    }
    *out = (jval){.kind = J_DICT, .dict = d};
    return d != NULL;
}

static bool eval_slice(jrun *r, const jnode *n, jslice *out) {
    *out = (jslice){jnone(), jnone(), jnone()};
    return (!n->a || jeval(r, n->a, &out->start)) && (!n->b || jeval(r, n->b, &out->stop)) &&
           (!n->c || jeval(r, n->c, &out->step));
}

static bool eval_subscript(jrun *r, const jnode *n, jval *out) {
    jval object;
    jval key;
    jslice slice;
    if (!jeval(r, n->a, &object)) {
        return false;
    }
    if (n->kind == N_GETATTR) {
        r->pos = n->pos;
        return jgetattr(r, object, n->name, out);
    }
    if (n->b->kind == N_SLICE) {
        if (!eval_slice(r, n->b, &slice)) {
            return false;
        }
        r->pos = n->pos;
        return jslice_value(r, object, &slice, out);
    }
    if (!jeval(r, n->b, &key)) {
        return false;
    }
    r->pos = n->pos;
    return jgetitem(r, object, key, out);
}

static bool eval_kind(jrun *r, const jnode *n, jval *out) {
    switch (n->kind) {
    case N_CONST:
        *out = n->value;
        return true;
    case N_NAME:
        return eval_name(r, n, out);
    case N_GETATTR:
    case N_GETITEM:
        return eval_subscript(r, n, out);
    case N_CALL:
        return eval_call(r, n, out);
    case N_FILTER:
    case N_TEST:
        return jeval_filter(r, n, jnone(), out);
    case N_NOT:
    case N_NEG:
    case N_POS:
        return eval_unary(r, n, out);
    case N_BINARY:
        return eval_binary(r, n, out);
    case N_AND:
    case N_OR:
        return eval_logic(r, n, out);
    case N_COMPARE:
        return eval_compare(r, n, out);
    case N_CONCAT:
        return eval_concat(r, n, out);
    case N_COND:
        return eval_condition(r, n, out);
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, n, out);
    case N_DICT:
        return eval_dict(r, n, out);
    default:
        return jfail(r, "a slice cannot stand here");
    }
}

bool jeval(jrun *r, const jnode *n, jval *out) {
    *out = jnone();
    if (!jcharge(r, 1) || !jenter(r)) {
        return false;
    }
    r->pos = n->pos;
    bool ok = eval_kind(r, n, out) && r->code == SMOE_OK;
    jleave(r);
    return ok;
}
