/* Expressions of the template language, by recursive descent with Jinja2's precedence: or, and,
 * not, comparisons, + and -, ~, * / // %, **, signs, subscripts and calls, filters and tests. */
#include <string.h>

#include "text/jinja_run.h"

static jnode *parse_condition(jparse *p);
static jnode *parse_unary(jparse *p, bool with_filters);
static jnode *parse_primary(jparse *p);
static jnode *parse_postfix(jparse *p, jnode *n);
static jnode *parse_filter_expr(jparse *p, jnode *n);

/* ---- tokens and nodes */

jtoken *jpeek(jparse *p, size_t ahead) {
    size_t i = p->at + ahead;
    return &p->tokens[i < p->n_token ? i : p->n_token - 1];
}

bool jat_name(jparse *p, const char *name) {
    return jpeek(p, 0)->kind == T_NAME && jstr_is(jpeek(p, 0)->text, name);
}

bool jskip_name(jparse *p, const char *name) {
    bool is_there = jat_name(p, name);
    p->at += is_there;
    return is_there;
}

bool jat_op(jparse *p, const char *op) {
    return jpeek(p, 0)->kind == T_OP && strcmp(jpeek(p, 0)->op, op) == 0;
}

bool jskip_op(jparse *p, const char *op) {
    bool is_there = jat_op(p, op);
    p->at += is_there;
    return is_there;
}

static bool fail_unexpected(jparse *p, const char *wanted) {
    static const char *const kinds[] = {[T_EOF] = "the end of the template",
                                        [T_DATA] = "text",
                                        [T_PRINT_BEGIN] = "{{",
                                        [T_PRINT_END] = "}}",
                                        [T_BLOCK_BEGIN] = "{%",
                                        [T_BLOCK_END] = "%}",
                                        [T_NAME] = "a name",
                                        [T_STRING] = "a string",
                                        [T_INT] = "a number",
                                        [T_FLOAT] = "a number",
                                        [T_OP] = "an operator"};
    jtoken *t = jpeek(p, 0);
    if (t->kind == T_NAME) {
        int n = t->text->bytes > 40 ? 40 : (int)t->text->bytes;
        return jparse_fail(p, t->pos, "expected %s, found '%.*s'", wanted, n, t->text->data);
    }
    return jparse_fail(p, t->pos, "expected %s, found %s", wanted,
                       t->kind == T_OP ? t->op : kinds[t->kind]);
}

bool jexpect(jparse *p, jtoken_kind kind, const char *op_or_name) {
    bool is_there = kind == T_OP                             ? jat_op(p, op_or_name)
                    : kind == T_NAME && op_or_name[0] != ' ' ? jat_name(p, op_or_name)
                                                             : jpeek(p, 0)->kind == kind;
    if (!is_there) {
        return fail_unexpected(p, op_or_name);
    }
    p->at++;
    return true;
}

bool jparse_enter(jparse *p) {
    if (++p->nesting > JINJA_NESTING) {
        return jparse_fail(p, jpeek(p, 0)->pos, "nested deeper than %d levels", JINJA_NESTING);
    }
    return true;
}

void jparse_leave(jparse *p) {
    p->nesting--;
}

jnode *jnode_new(jparse *p, jnode_kind kind, size_t pos) {
    jnode *n = jparse_get(p, 1, sizeof *n);
    if (n) {
        n->kind = kind;
        n->pos = (uint32_t)pos;
        n->depth = 1;
    }
    return n;
}

bool jnode_adopt(jparse *p, jnode *parent, const jnode *child) {
    if (!parent || !child) {
        return false;
    }
    if (child->depth >= parent->depth) {
        parent->depth = (uint16_t)(child->depth + 1);
    }
    if (parent->depth > 4 * JINJA_NESTING) {
        return jparse_fail(p, parent->pos, "an expression of more than %d levels",
                           4 * JINJA_NESTING);
    }
    return true;
}

bool jbody_add(jparse *p, jbody *body, jnode *node) {
    if (!node) {
        return false;
    }
    if ((body->n & (body->n - 1)) == 0) {
        jnode **items = jparse_get(p, body->n ? 2 * (size_t)body->n : 1, sizeof *items);
        if (!items) {
            return false;
        }
        if (body->n) {
            memcpy(items, body->items, body->n * sizeof *items);
        }
        body->items = items;
    }
    body->items[body->n++] = node;
    return true;
}

static bool add_item(jparse *p, jnode *parent, jnode *child) {
    return jnode_adopt(p, parent, child) && jbody_add(p, &parent->items, child);
}

/* ---- operators */

static jnode *new_binary(jparse *p, jnode_kind kind, jop op, jnode *a, jnode *b, size_t pos) {
    jnode *n = a && b ? jnode_new(p, kind, pos) : NULL;
    if (!n || !jnode_adopt(p, n, a) || !jnode_adopt(p, n, b)) {
        return NULL;
    }
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static jnode *new_unary(jparse *p, jnode_kind kind, jnode *a, size_t pos) {
    jnode *n = a ? jnode_new(p, kind, pos) : NULL;
    if (!n || !jnode_adopt(p, n, a)) {
        return NULL;
    }
    n->a = a;
    return n;
}

typedef struct op_name {
    const char *text;
    jop op;
} op_name;

/* Whether an operator of the list stands here; skips it. */
static bool skip_one_of(jparse *p, const op_name *list, size_t n, jop *op) {
    for (size_t i = 0; i < n; i++) {
        if (jskip_op(p, list[i].text)) {
            *op = list[i].op;
            return true;
        }
    }
    return false;
}

static jnode *parse_power(jparse *p) {
    jnode *left = parse_unary(p, true);
    for (size_t pos = jpeek(p, 0)->pos; left && jskip_op(p, "**"); pos = jpeek(p, 0)->pos) {
        left = new_binary(p, N_BINARY, OP_POW, left, parse_unary(p, true), pos);
    }
    return left;
}

static jnode *parse_product(jparse *p) {
    static const op_name list[] = {
        {"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}};
    jop op;
    jnode *left = parse_power(p);
    for (size_t pos = jpeek(p, 0)->pos; left && skip_one_of(p, list, 4, &op);
         pos = jpeek(p, 0)->pos) {
        left = new_binary(p, N_BINARY, op, left, parse_power(p), pos);
    }
    return left;
}

static jnode *parse_concat(jparse *p) {
    size_t pos = jpeek(p, 0)->pos;
    jnode *first = parse_product(p);
    if (!first || !jat_op(p, "~")) {
        return first;
    }
    jnode *n = jnode_new(p, N_CONCAT, pos);
    bool ok = add_item(p, n, first);
    while (ok && jskip_op(p, "~")) {
        ok = add_item(p, n, parse_product(p));
    }
    return ok ? n : NULL;
}

static jnode *parse_sum(jparse *p) {
    static const op_name list[] = {{"+", OP_ADD}, {"-", OP_SUB}};
    jop op;
    jnode *left = parse_concat(p);
    for (size_t pos = jpeek(p, 0)->pos; left && skip_one_of(p, list, 2, &op);
         pos = jpeek(p, 0)->pos) {
        left = new_binary(p, N_BINARY, op, left, parse_concat(p), pos);
    }
    return left;
}

static bool skip_comparison(jparse *p, jop *op) {
    static const op_name list[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
                                   {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};
    if (skip_one_of(p, list, 6, op)) {
        return true;
    }
    if (jskip_name(p, "in")) {
        *op = OP_IN;
        return true;
    }
    jtoken *next = jpeek(p, 1);
    if (jat_name(p, "not") && next->kind == T_NAME && jstr_is(next->text, "in")) {
        p->at += 2;
        *op = OP_NOTIN;
        return true;
    }
    return false;
}

static jnode *parse_comparison(jparse *p) {
    size_t pos = jpeek(p, 0)->pos;
    jnode *first = parse_sum(p);
    jnode *n = NULL;
    jop op;
    for (size_t at = jpeek(p, 0)->pos; first && skip_comparison(p, &op); at = jpeek(p, 0)->pos) {
        if (!n) {
            n = new_unary(p, N_COMPARE, first, pos);
        }
        jnode *operand = new_unary(p, N_OPERAND, parse_sum(p), at);
        if (!n || !operand || !add_item(p, n, operand)) {
            return NULL;
        }
        operand->op = op;
    }
    return n ? n : first;
}

static jnode *parse_not(jparse *p) {
    size_t pos = jpeek(p, 0)->pos;
    if (!jat_name(p, "not")) {
        return parse_comparison(p);
    }
    p->at++;
    jnode *n = jparse_enter(p) ? new_unary(p, N_NOT, parse_not(p), pos) : NULL;
    jparse_leave(p);
    return n;
}

static jnode *parse_and(jparse *p) {
    jnode *left = parse_not(p);
    for (size_t pos = jpeek(p, 0)->pos; left && jskip_name(p, "and"); pos = jpeek(p, 0)->pos) {
        left = new_binary(p, N_AND, 0, left, parse_not(p), pos);
    }
    return left;
}

static jnode *parse_or(jparse *p) {
    jnode *left = parse_and(p);
    for (size_t pos = jpeek(p, 0)->pos; left && jskip_name(p, "or"); pos = jpeek(p, 0)->pos) {
        left = new_binary(p, N_OR, 0, left, parse_and(p), pos);
    }
    return left;
}

/* value if condition else other, the last part optional */
static jnode *parse_condition(jparse *p) {
    jnode *value = jparse_enter(p) ? parse_or(p) : NULL;
    for (size_t pos = jpeek(p, 0)->pos; value && jskip_name(p, "if"); pos = jpeek(p, 0)->pos) {
        jnode *n = new_binary(p, N_COND, 0, parse_or(p), value, pos);
        if (n && jskip_name(p, "else")) {
            n->c = parse_condition(p);
            n = jnode_adopt(p, n, n->c) ? n : NULL;
        }
        value = n;
    }
    jparse_leave(p);
    return value;
}

jnode *jparse_expression(jparse *p) {
    return parse_condition(p);
}

/* ---- literals */

/* A name, a tuple in parentheses, or name.attribute. */
static jnode *parse_set_target(jparse *p) {
    jtoken *t = jpeek(p, 0);
    jtoken *dot = jpeek(p, 1);
    jtoken *attr = jpeek(p, 2);
    bool is_dotted = t->kind == T_NAME && dot->kind == T_OP && strcmp(dot->op, ".") == 0;
    if (!is_dotted) {
        return parse_primary(p);
    }
    if (attr->kind != T_NAME) {
        p->at += 2;
        fail_unexpected(p, "a name");
        return NULL;
    }
    jnode *n = jnode_new(p, N_NSREF, t->pos);
    if (n) {
        n->name = t->text;
        n->attr = attr->text;
        p->at += 3;
    }
    return n;
}

static bool is_tuple_end(jparse *p, const char *end) {
    jtoken *t = jpeek(p, 0);
    return t->kind == T_PRINT_END || t->kind == T_BLOCK_END || jat_op(p, ")") ||
           (end && jat_name(p, end));
}

jnode *jparse_tuple(jparse *p, jtuple_rule rule, const char *end) {
    size_t pos = jpeek(p, 0)->pos;
    jnode *first = NULL;
    jnode *tuple = NULL;
    while (!is_tuple_end(p, end)) {
        jnode *n = rule == TUPLE_SET_TARGET ? parse_set_target(p)
                   : rule == TUPLE_TARGET   ? parse_primary(p)
                   : rule == TUPLE_NO_COND  ? parse_or(p)
                                            : parse_condition(p);
        if (!n) {
            return NULL;
        }
        bool is_more = jskip_op(p, ",");
        if (!first && !is_more) {
            return n;
        }
        tuple = tuple ? tuple : jnode_new(p, N_TUPLE, pos);
        first = n;
        if (!add_item(p, tuple, n)) {
            return NULL;
        }
        if (!is_more) {
            return tuple;
        }
    }
    if (!tuple && rule == TUPLE_PARENS) {
        return jnode_new(p, N_TUPLE, pos);
    }
    if (!tuple) {
        fail_unexpected(p, "an expression");
    }
    return tuple;
}

static jnode *parse_list(jparse *p) {
    jnode *n = jnode_new(p, N_LIST, jpeek(p, 0)->pos);
    p->at++;
    while (n && !jat_op(p, "]")) {
        if ((n->items.n && !jexpect(p, T_OP, ",")) || jat_op(p, "]")) {
            break;
        }
        if (!add_item(p, n, parse_condition(p))) {
            return NULL;
        }
    }
    return n && jexpect(p, T_OP, "]") ? n : NULL;
}

static jnode *parse_dict(jparse *p) {
    jnode *n = jnode_new(p, N_DICT, jpeek(p, 0)->pos);
    p->at++;
    while (n && !jat_op(p, "}")) {
        if ((n->items.n && !jexpect(p, T_OP, ",")) || jat_op(p, "}")) {
            break;
        }
        if (!add_item(p, n, parse_condition(p)) || !jexpect(p, T_OP, ":") ||
            !add_item(p, n, parse_condition(p))) {
            return NULL;
        }
    }
    return n && jexpect(p, T_OP, "}") ? n : NULL;
}

static jnode *new_const(jparse *p, jval value, size_t pos) {
    jnode *n = jnode_new(p, N_CONST, pos);
    if (n) {
        n->value = value;
    }
    return n;
}

static jnode *parse_name(jparse *p) {
    jtoken *t = jpeek(p, 0);
    p->at++;
    if (jstr_is(t->text, "true") || jstr_is(t->text, "True")) {
        return new_const(p, jbool(true), t->pos);
    }
    if (jstr_is(t->text, "false") || jstr_is(t->text, "False")) {
        return new_const(p, jbool(false), t->pos);
    }
    if (jstr_is(t->text, "none") || jstr_is(t->text, "None")) {
        return new_const(p, jnone(), t->pos);
    }
    jnode *n = jnode_new(p, N_NAME, t->pos);
    if (n) {
        n->name = t->text;
    }
    return n;
}

/* Strings beside each other are one. */
static jnode *parse_string(jparse *p) {
    size_t pos = jpeek(p, 0)->pos;
    size_t first = p->at;
    size_t bytes = 0;
    for (; jpeek(p, 0)->kind == T_STRING; p->at++) {
        bytes += jpeek(p, 0)->text->bytes;
    }
    const jstr *s = p->tokens[first].text;
    if (p->at > first + 1) {
        char *data = jparse_get(p, bytes ? bytes : 1, 1);
        if (!data) {
            return NULL;
        }
        size_t used = 0;
        for (size_t i = first; i < p->at; i++) {
            const jstr *part = p->tokens[i].text;
            memcpy(data + used, part->data, part->bytes);
            used += part->bytes;
        }
        s = jstr_of(p->mem, data, bytes, false);
        if (!s) {
            jparse_get(p, SIZE_MAX, 1);
            return NULL;
        }
    }
    return new_const(p, jtext(s), pos);
}

static jnode *parse_primary(jparse *p) {
    jtoken *t = jpeek(p, 0);
    jnode *n = NULL;
    if (!jparse_enter(p)) {
        jparse_leave(p);
        return NULL;
    }
    if (t->kind == T_NAME) {
        n = parse_name(p);
    } else if (t->kind == T_STRING) {
        n = parse_string(p);
    } else if (t->kind == T_INT || t->kind == T_FLOAT) {
        p->at++;
        n = new_const(p, t->number, t->pos);
    } else if (jskip_op(p, "(")) {
        n = jparse_tuple(p, TUPLE_PARENS, NULL);
        n = n && jexpect(p, T_OP, ")") ? n : NULL;
    } else if (jat_op(p, "[")) {
        n = parse_list(p);
    } else if (jat_op(p, "{")) {
        n = parse_dict(p);
    } else {
        fail_unexpected(p, "an expression");
    }
    jparse_leave(p);
    return n;
}

static jnode *parse_unary(jparse *p, bool with_filters) {
    size_t pos = jpeek(p, 0)->pos;
    bool is_minus = jat_op(p, "-");
    jnode *n = NULL;
    if (is_minus || jat_op(p, "+")) {
        p->at++;
        if (jparse_enter(p)) {
            n = new_unary(p, is_minus ? N_NEG : N_POS, parse_unary(p, false), pos);
        }
        jparse_leave(p);
    } else {
        n = parse_primary(p);
    }
    n = n ? parse_postfix(p, n) : NULL;
    return n && with_filters ? parse_filter_expr(p, n) : n;
}

/* ---- subscripts and calls */

/* One subscript: an expression, or start:stop:step with each part optional. */
static jnode *parse_subscribed(jparse *p) {
    size_t pos = jpeek(p, 0)->pos;
    jnode *part[3] = {NULL, NULL, NULL};
    if (!jat_op(p, ":")) {
        part[0] = parse_condition(p);
        if (!part[0] || !jat_op(p, ":")) {
            return part[0];
        }
    }
    jnode *n = jnode_new(p, N_SLICE, pos);
    for (int i = 1; n && i < 3 && jskip_op(p, ":"); i++) {
        if (!jat_op(p, ":") && !jat_op(p, "]") && !jat_op(p, ",")) {
            part[i] = parse_condition(p);
            if (!part[i]) {
                return NULL;
            }
        }
    }
    for (int i = 0; i < 3; i++) {
        if (n && part[i] && !jnode_adopt(p, n, part[i])) {
            return NULL;
        }
    }
    if (n) {
        n->a = part[0];
        n->b = part[1];
        n->c = part[2];
    }
    return n;
}

static jnode *parse_brackets(jparse *p, jnode *object) {
    size_t pos = jpeek(p, 0)->pos;
    jnode *tuple = jnode_new(p, N_TUPLE, pos);
    p->at++;
    while (tuple && !jat_op(p, "]")) {
        if (tuple->items.n && !jexpect(p, T_OP, ",")) {
            return NULL;
        }
        if (!add_item(p, tuple, parse_subscribed(p))) {
            return NULL;
        }
    }
    if (!tuple || !jexpect(p, T_OP, "]")) {
        return NULL;
    }
    jnode *key = tuple->items.n == 1 ? tuple->items.items[0] : tuple;
    return new_binary(p, N_GETITEM, 0, object, key, pos);
}

static jnode *parse_dot(jparse *p, jnode *object) {
    size_t pos = jpeek(p, 0)->pos;
    jtoken *t = jpeek(p, 1);
    p->at += 2;
    if (t->kind == T_NAME) {
        jnode *n = new_unary(p, N_GETATTR, object, pos);
        if (n) {
            n->name = t->text;
        }
        return n;
    }
    if (t->kind != T_INT) {
        jparse_fail(p, t->pos, "expected a name or a number behind the dot");
        return NULL;
    }
    return new_binary(p, N_GETITEM, 0, object, new_const(p, t->number, t->pos), pos);
}

static bool add_keyword(jparse *p, jnode *n, jargspec *args) {
    const jstr *name = jpeek(p, 0)->text;
    size_t pos = jpeek(p, 0)->pos;
    p->at += 2;
    jnode *value = parse_condition(p);
    for (uint32_t i = 0; value && i < args->kw.n; i++) {
        if (jstr_equal(args->names[i], name)) {
            return jparse_fail(p, pos, "keyword argument repeated");
        }
    }
    if (!jnode_adopt(p, n, value)) {
        return false;
    }
    if ((args->kw.n & (args->kw.n - 1)) == 0) {
        size_t cap = args->kw.n ? 2 * (size_t)args->kw.n : 1;
        const jstr **names = jparse_get(p, cap, sizeof *names);
        if (!names) {
            return false;
        }
        if (args->kw.n) {
            memcpy(names, args->names, args->kw.n * sizeof *names);
        }
        args->names = names;
    }
    args->names[args->kw.n] = name;
    return jbody_add(p, &args->kw, value);
}

static bool add_argument(jparse *p, jnode *n, jargspec *args) {
    size_t pos = jpeek(p, 0)->pos;
    jtoken *next = jpeek(p, 1);
    bool is_star = jat_op(p, "*");
    bool is_star2 = jat_op(p, "**");
    bool is_keyword = jpeek(p, 0)->kind == T_NAME && next->kind == T_OP && !strcmp(next->op, "=");
    bool is_late = is_star2 || is_keyword ? args->star2 != NULL
                                          : args->star || args->star2 || (args->kw.n && !is_star);
    if (is_late) {
        return jparse_fail(p, pos, "an argument in the wrong place");
    }
    if (is_keyword) {
        return args->kw.n < 1000 ? add_keyword(p, n, args)
                                 : jparse_fail(p, pos, "too many keyword arguments");
    }
    p->at += is_star || is_star2;
    jnode *value = parse_condition(p);
    if (!jnode_adopt(p, n, value)) {
        return false;
    }
    if (is_star) {
        args->star = value;
    } else if (is_star2) {
        args->star2 = value;
    } else {
        return jbody_add(p, &args->pos, value);
    }
    return true;
}

static jargspec *parse_arguments(jparse *p, jnode *n) {
    jargspec *args = jparse_get(p, 1, sizeof *args);
    bool is_first = true;
    p->at++;
    while (args && !jat_op(p, ")")) {
        if (!is_first && !jexpect(p, T_OP, ",")) {
            return NULL;
        }
        if (!is_first && jat_op(p, ")")) {
            break;
        }
        if (!add_argument(p, n, args)) {
            return NULL;
        }
        is_first = false;
    }
    return args && jexpect(p, T_OP, ")") ? args : NULL;
}

static jnode *parse_call(jparse *p, jnode *callee) {
    jnode *n = new_unary(p, N_CALL, callee, jpeek(p, 0)->pos);
    if (n) {
        n->args = parse_arguments(p, n);
    }
    return n && n->args ? n : NULL;
}

static jnode *parse_postfix(jparse *p, jnode *n) {
    for (;;) {
        if (!n) {
            return NULL;
        }
        if (jat_op(p, ".")) {
            n = parse_dot(p, n);
        } else if (jat_op(p, "[")) {
            n = parse_brackets(p, n);
        } else if (jat_op(p, "(")) {
            n = parse_call(p, n);
        } else {
            return n;
        }
    }
}

/* ---- filters and tests */

/* A name with dots in it, as one. */
static const jstr *parse_dotted(jparse *p) {
    if (jpeek(p, 0)->kind != T_NAME) {
        fail_unexpected(p, "a name");
        return NULL;
    }
    const jstr *name = jpeek(p, 0)->text;
    p->at++;
    while (jat_op(p, ".")) {
        jtoken *t = jpeek(p, 1);
        if (t->kind != T_NAME) {
            p->at++;
            fail_unexpected(p, "a name");
            return NULL;
        }
        p->at += 2;
        name = jstr_of(p->mem, ".", 1, false); /* no filter or test has a dot in its name */
    }
    return name ? name : jparse_get(p, SIZE_MAX, 1);
}

static jnode *parse_filter(jparse *p, jnode *value) {
    size_t pos = jpeek(p, 0)->pos;
    const jstr *name = parse_dotted(p);
    jnode *n = name ? jnode_new(p, N_FILTER, pos) : NULL;
    if (!n || (value && !jnode_adopt(p, n, value))) {
        return NULL;
    }
    n->a = value;
    n->name = name;
    n->native = jfilter_find(name);
    if (jat_op(p, "(")) {
        n->args = parse_arguments(p, n);
        return n->args ? n : NULL;
    }
    n->args = jparse_get(p, 1, sizeof *n->args);
    return n->args ? n : NULL;
}

static bool is_test_argument(jparse *p) {
    jtoken *t = jpeek(p, 0);
    return t->kind == T_STRING || t->kind == T_INT || t->kind == T_FLOAT || jat_op(p, "[") ||
           jat_op(p, "{") ||
           (t->kind == T_NAME && !jat_name(p, "else") && !jat_name(p, "or") && !jat_name(p, "and"));
}

static jnode *parse_test(jparse *p, jnode *value) {
    size_t pos = jpeek(p, 0)->pos;
    p->at++;
    bool is_negated = jskip_name(p, "not");
    const jstr *name = parse_dotted(p);
    jnode *n = name ? new_unary(p, N_TEST, value, pos) : NULL;
    if (!n) {
        return NULL;
    }
    n->name = name;
    n->native = jtest_find(name);
    if (jat_op(p, "(")) {
        n->args = parse_arguments(p, n);
    } else {
        n->args = jparse_get(p, 1, sizeof *n->args);
        if (n->args && is_test_argument(p)) {
            if (jat_name(p, "is")) {
                jparse_fail(p, jpeek(p, 0)->pos, "tests with 'is' cannot be chained");
                return NULL;
            }
            jnode *argument = parse_primary(p);
            argument = argument ? parse_postfix(p, argument) : NULL;
            if (!jnode_adopt(p, n, argument) || !jbody_add(p, &n->args->pos, argument)) {
                return NULL;
            }
        }
    }
    if (!n->args) {
        return NULL;
    }
    return is_negated ? new_unary(p, N_NOT, n, pos) : n;
}

static jnode *parse_filter_expr(jparse *p, jnode *n) {
    for (;;) {
        if (!n) {
            return NULL;
        }
        if (jskip_op(p, "|")) {
            n = parse_filter(p, n);
        } else if (jat_name(p, "is")) {
            n = parse_test(p, n);
        } else if (jat_op(p, "(")) {
            n = parse_call(p, n);
        } else {
            return n;
        }
    }
}

jnode *jparse_filters(jparse *p, bool is_inline) {
    jnode *n = NULL;
    while (is_inline || jskip_op(p, "|")) {
        n = parse_filter(p, n);
        if (!n) {
            return NULL;
        }
        is_inline = false;
    }
    return n;
}
