/* Statements of the template language, and jinja_parse. */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_run.h"

static bool parse_body(jparse *p, jbody *body, const char *const *ends);

/* ---- targets */

static bool can_assign(const jnode *n) {
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->items.n; i++) {
            if (!can_assign(n->items.items[i])) {
                return false;
            }
        }
    }
    return n->kind == N_NAME || n->kind == N_TUPLE || n->kind == N_NSREF;
}

static void set_use(jnode *n, jname_use use) {
    n->use = use;
    for (uint32_t i = 0; n->kind == N_TUPLE && i < n->items.n; i++) {
        set_use(n->items.items[i], use);
    }
}

static jnode *parse_target(jparse *p, jtuple_rule rule, const char *end, jname_use use) {
    jnode *n = jparse_tuple(p, rule, end);
    if (n && !can_assign(n)) {
        jparse_fail(p, n->pos, "this cannot be assigned to");
        return NULL;
    }
    if (n) {
        set_use(n, use);
    }
    return n;
}

static jnode *parse_name_target(jparse *p, jname_use use) {
    jtoken *t = jpeek(p, 0);
    if (!jexpect(p, T_NAME, " a name")) {
        return NULL;
    }
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        if (jstr_is(t->text, reserved[i])) {
            jparse_fail(p, t->pos, "%s cannot be assigned to", reserved[i]);
            return NULL;
        }
    }
    jnode *n = jnode_new(p, N_NAME, t->pos);
    if (n) {
        n->name = t->text;
        n->use = use;
    }
    return n;
}

/* ---- statements */

/* The body up to {% end %} and over it. */
static bool parse_block(jparse *p, jbody *body, const char *end) {
    const char *const ends[] = {end, NULL};
    if (!parse_body(p, body, ends)) {
        return false;
    }
    p->at++;
    return true;
}

static bool parse_for(jparse *p, jnode *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    n->kind = N_FOR;
    size_t target = p->at;
    n->a = parse_target(p, TUPLE_TARGET, "in", USE_PARAM);
    size_t behind = p->at;
    if (!n->a || !jexpect(p, T_NAME, "in")) {
        return false;
    }
    n->b = jparse_tuple(p, TUPLE_NO_COND, "recursive");
    if (!n->b) {
        return false;
    }
    if (jskip_name(p, "if")) {
        n->c = jparse_expression(p);
        size_t back = p->at;
        p->at = target;
        n->test_target = n->c ? parse_target(p, TUPLE_TARGET, "in", USE_PARAM) : NULL;
        if (!n->test_target || p->at != behind) {
            return false;
        }
        p->at = back;
    }
    n->is_recursive = jskip_name(p, "recursive");
    if (!parse_body(p, &n->body, ends)) {
        return false;
    }
    if (jskip_name(p, "endfor")) {
        return true;
    }
    p->at++;
    return parse_block(p, &n->orelse, "endfor");
}

static bool parse_if(jparse *p, jnode *n) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    jnode *branch = n;
    for (;;) {
        branch->kind = N_IF;
        branch->a = jparse_tuple(p, TUPLE_NO_COND, NULL);
        if (!branch->a || !parse_body(p, &branch->body, ends)) {
            return false;
        }
        if (jskip_name(p, "endif")) {
            return true;
        }
        if (jskip_name(p, "else")) {
            return parse_block(p, &n->orelse, "endif");
        }
        p->at++;
        branch = jnode_new(p, N_IF, jpeek(p, 0)->pos);
        if (!jbody_add(p, &n->items, branch)) {
            return false;
        }
    }
}

static bool parse_set(jparse *p, jnode *n) {
    n->a = parse_target(p, TUPLE_SET_TARGET, NULL, USE_STORE);
    if (!n->a) {
        return false;
    }
    if (jskip_op(p, "=")) {
        n->kind = N_SET;
        n->b = jparse_tuple(p, TUPLE_FULL, NULL);
        return n->b != NULL;
    }
    n->kind = N_SETBLOCK;
    if (jat_op(p, "|")) {
        n->b = jparse_filters(p, false);
        if (!n->b) {
            return false;
        }
    }
    return parse_block(p, &n->body, "endset");
}

/* (a, b=1): parameters and the defaults of the last ones. */
static bool parse_signature(jparse *p, jnode *n) {
    if (!jexpect(p, T_OP, "(")) {
        return false;
    }
    while (!jat_op(p, ")")) {
        if (n->items.n && !jexpect(p, T_OP, ",")) {
            return false;
        }
        jnode *parameter = parse_name_target(p, USE_PARAM);
        for (uint32_t i = 0; parameter && i < n->items.n; i++) {
            if (jstr_equal(n->items.items[i]->name, parameter->name)) {
                return jparse_fail(p, parameter->pos, "a parameter given twice");
            }
        }
        if (!parameter || n->items.n >= 1000) {
            return parameter && jparse_fail(p, parameter->pos, "too many parameters");
        }
        if (jskip_op(p, "=")) {
            if (!jbody_add(p, &n->more, jparse_expression(p))) {
                return false;
            }
        } else if (n->more.n) {
            return jparse_fail(p, parameter->pos, "a parameter without a default behind one with");
        }
        if (!jbody_add(p, &n->items, parameter)) {
            return false;
        }
    }
    return jexpect(p, T_OP, ")");
}

static bool parse_macro(jparse *p, jnode *n) {
    n->kind = N_MACRO;
    jnode *name = parse_name_target(p, USE_STORE);
    if (!name) {
        return false;
    }
    n->name = name->name;
    return parse_signature(p, n) && parse_block(p, &n->body, "endmacro");
}

static bool parse_call_block(jparse *p, jnode *n) {
    n->kind = N_CALLBLOCK;
    if (jat_op(p, "(") && !parse_signature(p, n)) {
        return false;
    }
    n->a = jparse_expression(p);
    if (n->a && n->a->kind != N_CALL) {
        return jparse_fail(p, n->a->pos, "expected a call");
    }
    return n->a && parse_block(p, &n->body, "endcall");
}

static bool parse_filter_block(jparse *p, jnode *n) {
    n->kind = N_FILTERBLOCK;
    n->a = jparse_filters(p, true);
    return n->a && parse_block(p, &n->body, "endfilter");
}

static bool parse_with(jparse *p, jnode *n) {
    n->kind = N_WITH;
    while (jpeek(p, 0)->kind != T_BLOCK_END) {
        if (n->items.n && !jexpect(p, T_OP, ",")) {
            return false;
        }
        if (!jbody_add(p, &n->items, parse_target(p, TUPLE_TARGET, NULL, USE_PARAM)) ||
            !jexpect(p, T_OP, "=") || !jbody_add(p, &n->more, jparse_expression(p))) {
            return false;
        }
    }
    return parse_block(p, &n->body, "endwith");
}

static bool parse_print(jparse *p, jnode *n) {
    n->kind = N_PRINT;
    while (jpeek(p, 0)->kind != T_BLOCK_END) {
        if ((n->items.n && !jexpect(p, T_OP, ",")) ||
            !jbody_add(p, &n->items, jparse_expression(p))) {
            return false;
        }
    }
    return true;
}

static bool parse_generation(jparse *p, jnode *n) {
    n->kind = N_CALLBLOCK;
    return parse_block(p, &n->body, "endgeneration");
}

static bool parse_break(jparse *p, jnode *n) {
    (void)p;
    n->kind = N_BREAK;
    return true;
}

static bool parse_continue(jparse *p, jnode *n) {
    (void)p;
    n->kind = N_CONTINUE;
    return true;
}

static const struct statement {
    const char *name;
    bool (*parse)(jparse *p, jnode *n);
} statements[] = {{"for", parse_for},
                  {"if", parse_if},
                  {"set", parse_set},
                  {"macro", parse_macro},
                  {"call", parse_call_block},
                  {"filter", parse_filter_block},
                  {"with", parse_with},
                  {"print", parse_print},
                  {"generation", parse_generation},
                  {"break", parse_break},
                  {"continue", parse_continue}};

static jnode *parse_statement(jparse *p) {
    jtoken *t = jpeek(p, 0);
    if (t->kind != T_NAME) {
        jparse_fail(p, t->pos, "expected the name of a statement");
        return NULL;
    }
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (jskip_name(p, statements[i].name)) {
            jnode *n = jnode_new(p, N_DATA, t->pos);
            return n && statements[i].parse(p, n) ? n : NULL;
        }
    }
    int bytes = t->text->bytes > 40 ? 40 : (int)t->text->bytes;
    jparse_fail(p, t->pos, "there is no statement '%.*s' here", bytes, t->text->data);
    return NULL;
}

/* ---- bodies */

static jnode *parse_data(jparse *p) {
    jnode *n = jnode_new(p, N_DATA, jpeek(p, 0)->pos);
    if (n) {
        n->value = jtext(jpeek(p, 0)->text);
    }
    p->at++;
    return n;
}

static jnode *parse_output(jparse *p) {
    jnode *n = jnode_new(p, N_PRINT, jpeek(p, 0)->pos);
    p->at++;
    if (!n || !jbody_add(p, &n->items, jparse_tuple(p, TUPLE_FULL, NULL)) ||
        !jexpect(p, T_PRINT_END, "}}")) {
        return NULL;
    }
    return n;
}

static bool is_one_of(jparse *p, const char *const *names) {
    for (; names && *names; names++) {
        if (jat_name(p, *names)) {
            return true;
        }
    }
    return false;
}

/* Up to the end of the template, or to a tag that begins with one of ends; that name is next. */
static bool parse_nodes(jparse *p, jbody *body, const char *const *ends) {
    for (;;) {
        jtoken *t = jpeek(p, 0);
        jnode *n = NULL;
        if (t->kind == T_EOF) {
            return !ends || jparse_fail(p, t->pos, "the template ends before '%s'", ends[0]);
        }
        if (t->kind == T_DATA) {
            n = parse_data(p);
        } else if (t->kind == T_PRINT_BEGIN) {
            n = parse_output(p);
        } else {
            p->at++;
            if (is_one_of(p, ends)) {
                return true;
            }
            n = parse_statement(p);
            n = n && jexpect(p, T_BLOCK_END, "%}") ? n : NULL;
        }
        if (!jbody_add(p, body, n)) {
            return false;
        }
    }
}

static bool parse_body(jparse *p, jbody *body, const char *const *ends) {
    jskip_op(p, ":");
    bool ok = jparse_enter(p) && jexpect(p, T_BLOCK_END, "%}") && parse_nodes(p, body, ends);
    jparse_leave(p);
    return ok;
}

/* ---- templates */

/* Newlines of all kinds become \n, and one at the end is dropped. */
static void copy_source(jinja_template *t, char *to, const char *source, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r') {
            i += i + 1 < bytes && source[i + 1] == '\n';
            to[n++] = '\n';
        } else {
            to[n++] = source[i];
        }
    }
    n -= n && to[n - 1] == '\n';
    t->source = to;
    t->bytes = n;
}

static int new_template(jinja_template **out, const char *source, size_t bytes, const char *name,
                        smoe_error *err) {
    if (bytes > JINJA_SOURCE_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: a template of %zu bytes (at most %u)", name,
                       bytes, JINJA_SOURCE_BYTES);
    }
    if (!utf8_valid((const uint8_t *)source, bytes)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: the template is not valid UTF-8", name);
    }
    jinja_template *t = mem_array(1, sizeof *t);
    if (!t) {
        return err_no_memory(err, sizeof *t);
    }
    t->mem.max_bytes = JINJA_PARSE_BYTES;
    char *copy = jmem_get(&t->mem, bytes + 1, 1);
    t->name = arena_text(&t->mem.blocks, name, strlen(name));
    if (!copy || !t->name) {
        jinja_free(t);
        return err_no_memory(err, bytes);
    }
    copy_source(t, copy, source, bytes);
    *out = t;
    return SMOE_OK;
}

int jinja_parse(jinja_template **out, const char *source, size_t bytes, const char *name, bool trim,
                smoe_error *err) {
    smoe_error own;
    jinja_template *t = NULL;
    err = err ? err : &own;
    int rc = new_template(&t, source, bytes, name, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    jparse p = {.t = t, .mem = &t->mem, .err = err, .trim = trim};
    bool ok = jlex(&p) && parse_nodes(&p, &t->body, NULL) && jscope_resolve(&p);
    free(p.tokens);
    if (!ok) {
        jinja_free(t);
        return err->code;
    }
    *out = t;
    return SMOE_OK;
}

void jinja_free(jinja_template *t) {
    if (t) {
        arena_free(&t->mem.blocks);
        free(t);
    }
}
