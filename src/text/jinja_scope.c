/* Which variable a name means. Jinja2 decides this before a template runs, from where names are
 * read and assigned, and templates can see the result: a name that a scope assigns before it reads
 * it is undefined there even when the caller gave one; a scope that assigns a name of an outer
 * scope begins with a copy. This file decides the same and gives each variable a slot of its
 * function.
 *
 * First the names of a scope are declared in the order they come (declare), without looking into
 * scopes inside it; then its nodes are bound (bind), which declares and binds the inner scopes.
 */
#include <string.h>

#include "text/jinja_run.h"

enum { MAX_SYMBOLS = 2000, MAX_SLOTS = 60000, MAX_WORK = 300000000 };

typedef struct variable {
    const jfunc *func;
    uint16_t slot;
} variable;

typedef struct symbol {
    const jstr *name;
    uint16_t slot;
    bool is_stored;
    bool is_merged; /* stored by a branch that is being merged */
    jload_kind load;
    variable alias;
} symbol;

/* The names declared so far; an if statement declares its branches in copies. */
typedef struct symbols {
    symbol *list;
    size_t n, cap;
} symbols;

typedef struct frame {
    struct frame *parent;
    jfunc *func;
    symbols own;
    symbols slots; /* every name of this frame with its slot, in whatever branch */
    bool in_loop;
} frame;

typedef struct resolver {
    jparse *p;
    frame *f;
    symbols *s;
} resolver;

/* ---- symbols */

static bool is_working(jparse *p, size_t n) {
    p->work += n;
    if (p->work > MAX_WORK) {
        return jparse_fail(p, 0, "too many variables");
    }
    return true;
}

static symbol *find_in(const symbols *s, const jstr *name) {
    for (size_t i = 0; i < s->n; i++) {
        if (jstr_equal(s->list[i].name, name)) {
            return &s->list[i];
        }
    }
    return NULL;
}

static bool grow(jparse *p, symbols *s, size_t n) {
    if (n > MAX_SYMBOLS) {
        return jparse_fail(p, 0, "more than %d variables in one scope", MAX_SYMBOLS);
    }
    if (n > s->cap) {
        size_t cap = n < 8 ? 8 : 2 * n;
        symbol *list = realloc(s->list, cap * sizeof *list);
        if (!list) {
            err_no_memory(p->err, cap * sizeof *list);
            return false;
        }
        s->list = list;
        s->cap = cap;
    }
    return true;
}

static bool find_outer(const frame *f, const jstr *name, variable *v) {
    for (f = f->parent; f; f = f->parent) {
        const symbol *found = find_in(&f->own, name);
        if (found) {
            *v = (variable){f->func, found->slot};
            return true;
        }
    }
    return false;
}

/* The symbol's place in the scope, made when it is not there. */
static symbol *define(resolver *x, const jstr *name) {
    symbol *s = find_in(x->s, name);
    symbol *slot = find_in(&x->f->slots, name);
    if (s) {
        return s;
    }
    if (!slot) {
        if (x->f->func->n_slot >= MAX_SLOTS) {
            jparse_fail(x->p, 0, "more than %d variables", MAX_SLOTS);
            return NULL;
        }
        if (!grow(x->p, &x->f->slots, x->f->slots.n + 1)) {
            return NULL;
        }
        slot = &x->f->slots.list[x->f->slots.n++];
        *slot = (symbol){.name = name, .slot = x->f->func->n_slot++};
    }
    if (!grow(x->p, x->s, x->s->n + 1)) {
        return NULL;
    }
    s = &x->s->list[x->s->n++];
    *s = (symbol){.name = name, .slot = slot->slot};
    return s;
}

static bool declare_parameter(resolver *x, const jstr *name, uint16_t *slot) {
    symbol *s = define(x, name);
    if (s) {
        s->is_stored = true;
        s->load = LOAD_PARAM;
        *slot = s->slot;
    }
    return s != NULL;
}

static bool declare_store(resolver *x, const jstr *name) {
    symbol *known = find_in(x->s, name);
    symbol *s = define(x, name);
    if (!s) {
        return false;
    }
    s->is_stored = true;
    if (!known) {
        s->load = find_outer(x->f, name, &s->alias) ? LOAD_ALIAS : LOAD_UNDEFINED;
    }
    return true;
}

static bool declare_load(resolver *x, const jstr *name) {
    variable outer;
    if (find_in(x->s, name) || find_outer(x->f, name, &outer)) {
        return true;
    }
    symbol *s = define(x, name);
    if (s) {
        s->load = LOAD_CONTEXT;
    }
    return s != NULL;
}

/* ---- walking */

typedef bool (*visitor)(void *user, jnode *n);

static bool each_of(const jbody *body, visitor fn, void *user) {
    for (uint32_t i = 0; i < body->n; i++) {
        if (!fn(user, body->items[i])) {
            return false;
        }
    }
    return true;
}

static bool one(jnode *n, visitor fn, void *user) {
    return !n || fn(user, n);
}

/* Every node right below, in the order in which Jinja2 walks them. */
static bool each_child(jnode *n, visitor fn, void *user) {
    bool is_filter_block = n->kind == N_FILTERBLOCK;
    bool is_for = n->kind == N_FOR;
    bool is_if = n->kind == N_IF;
    bool ok = one(is_filter_block ? NULL : n->a, fn, user) && one(n->b, fn, user) &&
              one(is_for ? NULL : n->c, fn, user);
    if (ok && n->args) {
        ok = each_of(&n->args->pos, fn, user) && each_of(&n->args->kw, fn, user) &&
             one(n->args->star, fn, user) && one(n->args->star2, fn, user);
    }
    ok = ok && (is_if || each_of(&n->items, fn, user)) && each_of(&n->more, fn, user) &&
         each_of(&n->body, fn, user) && (!is_if || each_of(&n->items, fn, user)) &&
         each_of(&n->orelse, fn, user);
    return ok && one(is_for ? n->c : NULL, fn, user) &&
           one(is_filter_block ? n->a : NULL, fn, user);
}

/* ---- declaring */

static bool declare(void *user, jnode *n);

static bool declare_branch(resolver *x, const jbody *body, symbols *copy) {
    symbols *original = x->s;
    bool ok = is_working(x->p, original->n) && grow(x->p, copy, original->n);
    if (ok && original->n) {
        memcpy(copy->list, original->list, original->n * sizeof *copy->list);
    }
    copy->n = ok ? original->n : 0;
    x->s = copy;
    ok = ok && each_of(body, declare, x);
    x->s = original;
    return ok;
}

/* A name that a branch assigns keeps its value from before in the others. */
static bool merge_branches(resolver *x, const symbols branch[3]) {
    size_t n_before = x->s->n;
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < branch[k].n; i++) {
            const symbol *from = &branch[k].list[i];
            symbol *to = is_working(x->p, x->s->n) ? define(x, from->name) : NULL;
            if (!to) {
                return false;
            }
            to->load = from->load;
            to->alias = from->alias;
        }
    }
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < branch[k].n; i++) {
            symbol *s = find_in(x->s, branch[k].list[i].name);
            size_t at = (size_t)(s - x->s->list);
            bool was_stored = at < n_before && s->is_stored;
            if (branch[k].list[i].is_stored && !was_stored) {
                s->load = find_outer(x->f, s->name, &s->alias) ? LOAD_ALIAS : LOAD_CONTEXT;
                s->is_merged = true;
            }
        }
    }
    for (size_t i = 0; i < x->s->n; i++) {
        x->s->list[i].is_stored = x->s->list[i].is_stored || x->s->list[i].is_merged;
        x->s->list[i].is_merged = false;
    }
    return true;
}

static bool declare_if(resolver *x, jnode *n) {
    symbols branch[3] = {{0}, {0}, {0}};
    bool ok = declare(x, n->a) && declare_branch(x, &n->body, &branch[0]) &&
              declare_branch(x, &n->items, &branch[1]) &&
              declare_branch(x, &n->orelse, &branch[2]) && merge_branches(x, branch);
    for (int i = 0; i < 3; i++) {
        free(branch[i].list);
    }
    return ok;
}

static bool declare(void *user, jnode *n) {
    resolver *x = user;
    uint16_t slot;
    if (!is_working(x->p, 1 + x->s->n)) {
        return false;
    }
    switch (n->kind) {
    case N_NAME:
        return n->use == USE_PARAM   ? declare_parameter(x, n->name, &slot)
               : n->use == USE_STORE ? declare_store(x, n->name)
                                     : declare_load(x, n->name);
    case N_NSREF:
        return declare_load(x, n->name);
    case N_IF:
        return declare_if(x, n);
    case N_MACRO:
        return declare_store(x, n->name);
    case N_SET:
        return declare(x, n->b) && declare(x, n->a);
    case N_FOR:
        return declare(x, n->b);
    case N_CALLBLOCK:
    case N_FILTERBLOCK:
    case N_SETBLOCK:
        return !n->a || declare(x, n->a);
    case N_WITH:
        return each_of(&n->more, declare, x);
    default:
        return each_child(n, declare, x);
    }
}

/* ---- names that a body needs from outside */

typedef struct wanted {
    const char *names[3];
    bool is_gone[3]; /* assigned before it was read */
    bool is_read[3];
} wanted;

static bool look_for(void *user, jnode *n) {
    wanted *w = user;
    for (int i = 0; n->kind == N_NAME && i < 3; i++) {
        if (!w->names[i] || w->is_gone[i] || !jstr_is(n->name, w->names[i])) {
            continue;
        }
        if (n->use == USE_LOAD) {
            w->is_read[i] = true;
        } else {
            w->is_gone[i] = true;
        }
    }
    return each_child(n, look_for, w);
}

/* Whether a loop's target or a set statement below takes the name loop. */
static bool find_loop_store(void *user, jnode *n) {
    jnode **found = user;
    if (n->kind == N_NAME && n->use == USE_STORE && jstr_is(n->name, "loop")) {
        *found = n;
        return false;
    }
    if (n->kind == N_FOR) {
        wanted w = {.names = {"loop"}};
        look_for(&w, n->a);
        if (w.is_gone[0]) {
            *found = n->a;
            return false;
        }
    }
    return each_child(n, find_loop_store, user);
}

/* ---- binding */

static bool bind_node(resolver *x, jnode *n, bool is_soft);

static bool bind_all(resolver *x, const jbody *body, bool is_soft) {
    for (uint32_t i = 0; i < body->n; i++) {
        if (!bind_node(x, body->items[i], is_soft)) {
            return false;
        }
    }
    return true;
}

static bool bind_name(resolver *x, const jstr *name, size_t pos, jref *ref) {
    variable v = {x->f->func, 0};
    const symbol *s = find_in(x->s, name);
    if (s) {
        v.slot = s->slot;
    } else if (!find_outer(x->f, name, &v)) {
        return jparse_fail(x->p, pos, "a name that is used but not declared");
    }
    *ref = (jref){(uint16_t)(x->f->func->level - v.func->level), v.slot};
    return is_working(x->p, x->s->n);
}

/* Begins a scope below x's; func: a function of its own. */
static resolver open_frame(const resolver *x, frame *f, jfunc *func, bool in_loop) {
    *f = (frame){.parent = x->f, .func = func ? func : x->f->func, .in_loop = in_loop};
    return (resolver){x->p, f, &f->own};
}

/* Writes down what entering the scope does. */
static bool close_frame(resolver *x, jscope *out, bool ok) {
    const symbols *s = x->s;
    if (ok) {
        out->loads = jparse_get(x->p, s->n ? s->n : 1, sizeof *out->loads);
        ok = out->loads != NULL;
    }
    for (size_t i = 0; ok && i < s->n; i++) {
        const symbol *from = &s->list[i];
        if (from->load == LOAD_PARAM) {
            continue;
        }
        jload *l = &out->loads[out->n++];
        *l = (jload){.kind = from->load, .slot = from->slot, .name = from->name};
        if (from->load == LOAD_ALIAS) {
            l->from =
                (jref){(uint16_t)(x->f->func->level - from->alias.func->level), from->alias.slot};
        }
    }
    free(x->f->own.list);
    free(x->f->slots.list);
    return ok;
}

static jfunc *new_function(resolver *x) {
    jfunc *func = jparse_get(x->p, 1, sizeof *func);
    if (func) {
        func->outer = x->f->func;
        func->level = (uint16_t)(x->f->func->level + 1);
    }
    return func;
}

static bool bind_for(resolver *x, jnode *n) {
    jnode *found = NULL;
    if (!find_loop_store(&found, n)) {
        return jparse_fail(x->p, found->pos, "the variable loop cannot be assigned in a loop");
    }
    if (!bind_node(x, n->b, false)) {
        return false;
    }
    n->func = n->is_recursive ? new_function(x) : NULL;
    if (n->is_recursive && !n->func) {
        return false;
    }
    static const jstr loop = {.data = "loop", .bytes = 4, .n_char = 4};
    frame f;
    resolver y = open_frame(x, &f, n->func, true);
    bool ok = declare_parameter(&y, &loop, &n->loop_slot) && declare(&y, n->a) &&
              each_of(&n->body, declare, &y) && bind_node(&y, n->a, false) &&
              bind_all(&y, &n->body, false);
    ok = close_frame(&y, &n->scope, ok);
    if (ok && n->c) {
        y = open_frame(x, &f, n->func, false);
        ok = declare(&y, n->test_target) && declare(&y, n->c) &&
             bind_node(&y, n->test_target, false) && bind_node(&y, n->c, false);
        ok = close_frame(&y, &n->test_scope, ok);
    }
    if (ok && n->orelse.n) {
        y = open_frame(x, &f, n->func, x->f->in_loop && !n->is_recursive);
        ok = each_of(&n->orelse, declare, &y) && bind_all(&y, &n->orelse, false);
        ok = close_frame(&y, &n->else_scope, ok);
    }
    return ok;
}

static bool find_extras(resolver *x, jnode *n) {
    static const jstr names[3] = {{.data = "caller", .bytes = 6, .n_char = 6},
                                  {.data = "kwargs", .bytes = 6, .n_char = 6},
                                  {.data = "varargs", .bytes = 7, .n_char = 7}};
    jextras *e = &n->extras;
    wanted w = {.names = {"caller", "kwargs", "varargs"}};
    bool is_parameter[3] = {false, false, false};
    each_of(&n->body, look_for, &w);
    for (uint32_t i = 0; i < n->items.n; i++) {
        for (int k = 0; k < 3; k++) {
            is_parameter[k] = is_parameter[k] || jstr_equal(n->items.items[i]->name, &names[k]);
        }
        bool has_default = i >= n->items.n - n->more.n;
        if (w.is_read[0] && !has_default && jstr_is(n->items.items[i]->name, "caller")) {
            return jparse_fail(x->p, n->items.items[i]->pos,
                               "the parameter caller needs a default");
        }
    }
    e->explicit_caller = is_parameter[0];
    e->has_caller = w.is_read[0];
    e->has_kwargs = w.is_read[1] && !is_parameter[1];
    e->has_varargs = w.is_read[2] && !is_parameter[2];
    return (!e->has_caller || e->explicit_caller || declare_parameter(x, &names[0], &e->caller)) &&
           (!e->has_kwargs || declare_parameter(x, &names[1], &e->kwargs)) &&
           (!e->has_varargs || declare_parameter(x, &names[2], &e->varargs));
}

static bool bind_macro(resolver *x, jnode *n) {
    frame f;
    n->func = new_function(x);
    if (!n->func) {
        return false;
    }
    resolver y = open_frame(x, &f, n->func, false);
    bool ok = each_of(&n->items, declare, &y) && each_of(&n->more, declare, &y) &&
              each_of(&n->body, declare, &y) && find_extras(&y, n) &&
              bind_all(&y, &n->items, false) && bind_all(&y, &n->more, false) &&
              bind_all(&y, &n->body, false);
    return close_frame(&y, &n->scope, ok);
}

/* A block of the same function with a scope of its own. */
static bool bind_block(resolver *x, jnode *n) {
    frame f;
    resolver y = open_frame(x, &f, NULL, x->f->in_loop);
    jnode *filter = n->kind == N_FILTERBLOCK ? n->a : n->kind == N_SETBLOCK ? n->b : NULL;
    bool is_with = n->kind == N_WITH;
    bool ok = (!is_with || each_of(&n->items, declare, &y)) && each_of(&n->body, declare, &y) &&
              (!filter || declare(&y, filter)) && (!is_with || bind_all(&y, &n->items, false)) &&
              bind_all(&y, &n->body, false) && (!filter || bind_node(&y, filter, false));
    return close_frame(&y, &n->scope, ok);
}

typedef struct bind_child {
    resolver *x;
    bool is_soft;
} bind_child;

static bool bind_one(void *user, jnode *n) {
    bind_child *c = user;
    return bind_node(c->x, n, c->is_soft);
}

static bool bind_native(resolver *x, jnode *n, bool is_soft) {
    if (!n->native && !is_soft) {
        int bytes = n->name->bytes > 40 ? 40 : (int)n->name->bytes;
        return jparse_fail(x->p, n->pos, "there is no %s named '%.*s'",
                           n->kind == N_FILTER ? "filter" : "test", bytes, n->name->data);
    }
    bind_child c = {x, is_soft};
    return each_child(n, bind_one, &c);
}

static bool bind_node(resolver *x, jnode *n, bool is_soft) {
    bind_child c = {x, is_soft || n->kind == N_IF || n->kind == N_COND};
    switch (n->kind) {
    case N_NAME:
    case N_NSREF:
        return bind_name(x, n->name, n->pos, &n->ref);
    case N_FILTER:
    case N_TEST:
        return bind_native(x, n, is_soft);
    case N_FOR:
        return bind_for(x, n);
    case N_MACRO:
        return bind_name(x, n->name, n->pos, &n->ref) && bind_macro(x, n);
    case N_CALLBLOCK:
        return (!n->a || bind_node(x, n->a, is_soft)) && bind_macro(x, n);
    case N_SETBLOCK:
        return bind_node(x, n->a, is_soft) && bind_block(x, n);
    case N_FILTERBLOCK:
        return bind_block(x, n);
    case N_WITH:
        return bind_all(x, &n->more, is_soft) && bind_block(x, n);
    case N_BREAK:
    case N_CONTINUE:
        return x->f->in_loop || jparse_fail(x->p, n->pos, "this stands outside of a loop");
    default:
        return each_child(n, bind_one, &c);
    }
}

bool jscope_resolve(jparse *p) {
    frame f = {.func = &p->t->func};
    resolver x = {p, &f, &f.own};
    bool ok = each_of(&p->t->body, declare, &x) && bind_all(&x, &p->t->body, false);
    return close_frame(&x, &p->t->scope, ok);
}
