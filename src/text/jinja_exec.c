/* Runs statements: output, assignments, loops, macros and blocks. */
#include <string.h>

#include "text/jinja_run.h"

/* ---- scopes and assignments */

void jenter_scope(jrun *r, const jscope *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        const jload *l = &s->loads[i];
        jval *slot = &r->act->slots[l->slot];
        *slot = jmissing();
        if (l->kind == LOAD_ALIAS) {
            *slot = *jslot(r, l->from);
        } else if (l->kind == LOAD_CONTEXT) {
            jval *found = NULL;
            const jnative *global = jglobal_find(l->name);
            if (jdict_find(r, &r->vars, jtext(l->name), &found) && found) {
                *slot = *found;
            } else if (global) {
                *slot = (jval){.kind = J_NATIVE, .native = global};
            }
        }
    }
}

static bool assign_tuple(jrun *r, const jnode *target, jval v) {
    jlist *list;
    if (!jlist_from(r, v, &list)) {
        return false;
    }
    if (list->n != target->items.n) {
        return jfail(r, "%s values to unpack (expected %u, got %zu)",
                     list->n < target->items.n ? "not enough" : "too many", target->items.n,
                     list->n);
    }
    for (size_t i = 0; i < list->n; i++) {
        if (!jassign(r, target->items.items[i], list->items[i])) {
            return false;
        }
    }
    return true;
}

bool jassign(jrun *r, const jnode *target, jval v) {
    r->pos = target->pos;
    if (target->kind == N_TUPLE) {
        return assign_tuple(r, target, v);
    }
    jval *slot = jslot(r, target->ref);
    if (target->kind == N_NSREF) {
        if (slot->kind != J_NAMESPACE) {
            return jfail(r, "cannot assign attribute on non-namespace object");
        }
        return jdict_put(r, &slot->space->attrs, jtext(target->attr), v);
    }
    *slot = v;
    return true;
}

/* ---- output */

static bool print_values(jrun *r, const jnode *n) {
    jval v;
    for (uint32_t i = 0; i < n->items.n; i++) {
        if (!jeval(r, n->items.items[i], &v) || !jbuf_value(r, r->out, v, false)) {
            return false;
        }
    }
    return true;
}

/* The result of a block, which must be a string already. */
static bool print_string(jrun *r, jval v) {
    return v.kind == J_STR ? jbuf_str(r, r->out, v.s)
                           : jfail(r, "the block makes a '%s', not a string", jtype_name(v));
}

/* Runs a body and keeps its output as a value. */
static bool capture(jrun *r, const jbody *body, jflow *flow, jval *out) {
    jbuf text = {0};
    jbuf *back = r->out;
    r->out = &text;
    bool ok = jexec(r, body, flow);
    r->out = back;
    return ok && jbuf_take(r, &text, out);
}

static bool exec_set_block(jrun *r, const jnode *n, jflow *flow) {
    jval v;
    jenter_scope(r, &n->scope);
    if (!capture(r, &n->body, flow, &v)) {
        return false;
    }
    if (*flow != FLOW_NEXT) {
        return true;
    }
    return (!n->b || jeval_filter(r, n->b, v, &v)) && jassign(r, n->a, v);
}

static bool exec_filter_block(jrun *r, const jnode *n, jflow *flow) {
    jval v;
    jenter_scope(r, &n->scope);
    if (!capture(r, &n->body, flow, &v)) {
        return false;
    }
    if (*flow != FLOW_NEXT) {
        return true;
    }
    return jeval_filter(r, n->a, v, &v) && print_string(r, v);
}

static bool exec_with(jrun *r, const jnode *n, jflow *flow) {
    jval *values = jget(r, n->more.n + 1u, sizeof *values);
    for (uint32_t i = 0; values && i < n->more.n; i++) {
        if (!jeval(r, n->more.items[i], &values[i])) {
            return false;
        }
    }
    if (!values) {
        return false;
    }
    jenter_scope(r, &n->scope);
    for (uint32_t i = 0; i < n->items.n; i++) {
        if (!jassign(r, n->items.items[i], values[i])) {
            return false;
        }
    }
    return jexec(r, &n->body, flow);
}

static bool exec_if(jrun *r, const jnode *n, jflow *flow) {
    jval test;
    if (!jeval(r, n->a, &test)) {
        return false;
    }
    if (jtruth(r, test)) {
        return jexec(r, &n->body, flow);
    }
    for (uint32_t i = 0; i < n->items.n; i++) {
        const jnode *branch = n->items.items[i];
        if (!jeval(r, branch->a, &test)) {
            return false;
        }
        if (jtruth(r, test)) {
            return jexec(r, &branch->body, flow);
        }
    }
    return jexec(r, &n->orelse, flow);
}

/* ---- loops */

static bool new_loop(jrun *r, const jnode *n, jval source, int64_t depth0, jact *defined,
                     jloop **out) {
    jloop *l = jget(r, 1, sizeof *l);
    if (!l) {
        return false;
    }
    if (n->c) {
        jval filtered;
        if (!jiter_new(r, ITER_FILTERED, jnone(), NULL, &filtered) ||
            !jiter_of(r, source, &filtered.iter->inner)) {
            return false;
        }
        filtered.iter->loop = n;
        filtered.iter->act = r->act;
        source = filtered;
    }
    *l = (jloop){.source = source, .index0 = -1, .length = -1, .node = n, .act = defined};
    l->changed = jmissing();
    l->depth0 = depth0;
    *out = l;
    return jiter_of(r, source, &l->iter);
}

static bool run_loop(jrun *r, const jnode *n, jval source, int64_t depth0, jact *defined,
                     jflow *outer) {
    jloop *l;
    jval item;
    bool is_done = false;
    bool is_empty = true; /* until an iteration has run to its end, as in Jinja2 */
    if (!new_loop(r, n, source, depth0, defined, &l)) {
        return false;
    }
    for (;;) {
        jflow flow = FLOW_NEXT;
        if (!jloop_advance(r, l, &item, &is_done)) {
            return false;
        }
        if (is_done) {
            break;
        }
        jenter_scope(r, &n->scope);
        r->act->slots[n->loop_slot] = (jval){.kind = J_LOOP, .loop = l};
        if (!jassign(r, n->a, item) || !jexec(r, &n->body, &flow)) {
            return false;
        }
        if (flow == FLOW_BREAK) {
            break;
        }
        is_empty = is_empty && flow == FLOW_CONTINUE;
    }
    if (is_empty && n->orelse.n) {
        jenter_scope(r, &n->else_scope);
        return jexec(r, &n->orelse, outer);
    }
    return true;
}

/* The body of a recursive loop is a function of its own, with the source as its argument. */
static bool call_recursive(jrun *r, const jnode *n, jval source, int64_t depth0, jact *outer,
                           jval *out) {
    jbuf text = {0};
    jbuf *back_out = r->out;
    jact *back = r->act;
    jact *act = jget(r, 1, sizeof *act);
    jval *slots = jget(r, n->func->n_slot + 1u, sizeof *slots);
    if (!act || !slots) {
        return false;
    }
    *act = (jact){outer, slots};
    for (uint32_t i = 0; i < n->func->n_slot; i++) {
        slots[i] = jmissing();
    }
    r->act = act;
    r->out = &text;
    jflow flow = FLOW_NEXT;
    bool ok = jenter(r) && run_loop(r, n, source, depth0, outer, &flow);
    jleave(r);
    r->act = back;
    r->out = back_out;
    return ok && jbuf_take(r, &text, out);
}

bool jcall_loop(jrun *r, jloop *l, const jargs *args, jval *out) {
    if (!l->node->is_recursive) {
        return jfail(r, "The loop must have the 'recursive' marker to be called recursively.");
    }
    if (args->n_pos != 1 || args->n_kw) {
        return jfail(r, "loop() takes one argument");
    }
    return call_recursive(r, l->node, args->pos[0], l->depth0 + 1, l->act, out);
}

static bool exec_for(jrun *r, const jnode *n, jflow *flow) {
    jval source;
    jval text;
    if (!jeval(r, n->b, &source)) {
        return false;
    }
    if (n->is_recursive) {
        return call_recursive(r, n, source, 0, r->act, &text) && jbuf_str(r, r->out, text.s);
    }
    return run_loop(r, n, source, 0, r->act, flow);
}

/* ---- macros */

/* Takes the keyword argument of that name out of args; J_MISSING when there is none. */
static jval take_keyword(jargs *args, const jstr *name) {
    for (size_t i = 0; i < args->n_kw; i++) {
        if (jstr_equal(args->names[i], name)) {
            jval v = args->kw[i];
            args->n_kw--;
            memmove(args->names + i, args->names + i + 1, (args->n_kw - i) * sizeof *args->names);
            memmove(args->kw + i, args->kw + i + 1, (args->n_kw - i) * sizeof *args->kw);
            return v;
        }
    }
    return jmissing();
}

static bool catch_keywords(jrun *r, const jnode *n, const jargs *args, jval *slots) {
    if (!n->extras.has_kwargs) {
        if (args->n_kw == 0) {
            return true;
        }
        int bytes = args->names[0]->bytes > 60 ? 60 : (int)args->names[0]->bytes;
        return jfail(r, "the macro takes no keyword argument '%.*s'", bytes, args->names[0]->data);
    }
    jdict *d = jget(r, 1, sizeof *d);
    for (size_t i = 0; d && i < args->n_kw; i++) {
        if (!jdict_put(r, d, jtext(args->names[i]), args->kw[i])) {
            return false;
        }
    }
    slots[n->extras.kwargs] = (jval){.kind = J_DICT, .dict = d};
    return d != NULL;
}

static bool catch_positions(jrun *r, const jnode *n, const jargs *args, jval *slots) {
    size_t n_more = args->n_pos > n->items.n ? args->n_pos - n->items.n : 0;
    if (!n->extras.has_varargs) {
        return n_more == 0 || jfail(r, "the macro takes not more than %u argument(s)", n->items.n);
    }
    jlist *list = jlist_new(r, n_more);
    for (size_t i = 0; list && i < n_more; i++) {
        list->items[list->n++] = args->pos[n->items.n + i];
    }
    slots[n->extras.varargs] = (jval){.kind = J_TUPLE, .list = list};
    return list != NULL;
}

static bool bind_macro(jrun *r, const jnode *n, jargs *args, jval *slots) {
    static const jstr caller = {.data = "caller", .bytes = 6, .n_char = 6};
    const jextras *e = &n->extras;
    bool found_caller = args->n_pos >= n->items.n && e->explicit_caller;
    for (uint32_t i = 0; i < n->items.n; i++) {
        const jnode *parameter = n->items.items[i];
        jval *slot = &slots[parameter->ref.slot];
        if (i < args->n_pos) {
            *slot = args->pos[i];
        } else {
            *slot = take_keyword(args, parameter->name);
            found_caller = found_caller || jstr_is(parameter->name, "caller");
        }
    }
    if (e->has_caller && !e->explicit_caller && !found_caller) {
        jval v = take_keyword(args, &caller);
        if ((v.kind == J_MISSING || v.kind == J_NONE) &&
            !jundefined_hint(r, "No caller defined", &v)) {
            return false;
        }
        slots[e->caller] = v;
    }
    return catch_keywords(r, n, args, slots) && catch_positions(r, n, args, slots);
}

/* Defaults are evaluated at each call, in the macro's scope, where they see earlier parameters. */
static bool fill_defaults(jrun *r, const jnode *n) {
    uint32_t n_bare = n->items.n - n->more.n;
    for (uint32_t i = 0; i < n->items.n; i++) {
        jval v;
        if (r->act->slots[n->items.items[i]->ref.slot].kind != J_MISSING) {
            continue;
        }
        if (i >= n_bare) {
            if (!jeval(r, n->more.items[i - n_bare], &v)) {
                return false;
            }
        } else if (!jundefined_hint(r, "a parameter that was not provided", &v)) {
            return false;
        }
        r->act->slots[n->items.items[i]->ref.slot] = v;
    }
    return true;
}

bool jcall_macro(jrun *r, const jmacro *m, const jargs *args, jval *out) {
    const jnode *n = m->node;
    jargs rest = *args;
    jact *back = r->act;
    jact *act = jget(r, 1, sizeof *act);
    jval *slots = jget(r, n->func->n_slot + 1u, sizeof *slots);
    rest.names = jget(r, args->n_kw + 1, sizeof *rest.names);
    rest.kw = jget(r, args->n_kw + 1, sizeof *rest.kw);
    if (!act || !slots || !rest.names || !rest.kw) {
        return false;
    }
    if (args->n_kw) {
        memcpy(rest.names, args->names, args->n_kw * sizeof *rest.names);
        memcpy(rest.kw, args->kw, args->n_kw * sizeof *rest.kw);
    }
    for (uint32_t i = 0; i < n->func->n_slot; i++) {
        slots[i] = jmissing();
    }
    if (!bind_macro(r, n, &rest, slots) || !jenter(r)) {
        return false;
    }
    *act = (jact){m->act, slots};
    r->act = act;
    jenter_scope(r, &n->scope);
    jflow flow = FLOW_NEXT;
    bool ok = fill_defaults(r, n) && capture(r, &n->body, &flow, out);
    r->act = back;
    jleave(r);
    return ok;
}

static bool new_macro(jrun *r, const jnode *n, jval *out) {
    jmacro *m = jget(r, 1, sizeof *m);
    if (m) {
        *m = (jmacro){n, r->act};
    }
    *out = (jval){.kind = J_MACRO, .macro = m};
    return m != NULL;
}

/* {% call f(…) %}: f gets the body as the keyword argument caller. */
static bool call_with_caller(jrun *r, const jnode *n, jval caller, jval *out) {
    static const jstr name = {.data = "caller", .bytes = 6, .n_char = 6};
    jargs args;
    jval callee;
    if (!n->a) {
        args = (jargs){0};
        return jcall_value(r, caller, &args, out);
    }
    if (!jeval(r, n->a->a, &callee) || !jeval_args(r, n->a->args, NULL, &args)) {
        return false;
    }
    jargs more = args;
    more.names = jget(r, args.n_kw + 1, sizeof *more.names);
    more.kw = jget(r, args.n_kw + 1, sizeof *more.kw);
    if (!more.names || !more.kw) {
        return false;
    }
    for (size_t i = 0; i < args.n_kw; i++) {
        if (jstr_equal(args.names[i], &name)) {
            return jfail(r, "a call block cannot be given another caller");
        }
        more.names[i] = args.names[i];
        more.kw[i] = args.kw[i];
    }
    more.names[args.n_kw] = &name;
    more.kw[args.n_kw] = caller;
    more.n_kw++;
    r->pos = n->pos;
    return jcall_value(r, callee, &more, out);
}

static bool exec_call_block(jrun *r, const jnode *n) {
    jval caller;
    jval out;
    return new_macro(r, n, &caller) && call_with_caller(r, n, caller, &out) && print_string(r, out);
}

/* ---- statements */

static bool exec_node(jrun *r, const jnode *n, jflow *flow) {
    jval v;
    switch (n->kind) {
    case N_DATA:
        return jbuf_str(r, r->out, n->value.s);
    case N_PRINT:
        return print_values(r, n);
    case N_SET:
        return jeval(r, n->b, &v) && jassign(r, n->a, v);
    case N_SETBLOCK:
        return exec_set_block(r, n, flow);
    case N_IF:
        return exec_if(r, n, flow);
    case N_FOR:
        return exec_for(r, n, flow);
    case N_MACRO:
        if (!new_macro(r, n, &v)) {
            return false;
        }
        *jslot(r, n->ref) = v;
        return true;
    case N_CALLBLOCK:
        return exec_call_block(r, n);
    case N_FILTERBLOCK:
        return exec_filter_block(r, n, flow);
    case N_WITH:
        return exec_with(r, n, flow);
    default:
        *flow = n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return true;
    }
}

bool jexec(jrun *r, const jbody *body, jflow *flow) {
    bool ok = jenter(r);
    for (uint32_t i = 0; ok && i < body->n && *flow == FLOW_NEXT; i++) {
        r->pos = body->items[i]->pos;
        ok = jcharge(r, 1) && exec_node(r, body->items[i], flow) && r->code == SMOE_OK;
    }
    jleave(r);
    return ok;
}
