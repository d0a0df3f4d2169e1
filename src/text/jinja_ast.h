/* The parsed template. Immutable once jinja_parse has returned. */
#ifndef SMOE_TEXT_JINJA_AST_H
#define SMOE_TEXT_JINJA_AST_H

#include "text/jinja_value.h"

typedef enum jnode_kind {
    /* expressions */
    N_CONST,
    N_NAME,
    N_GETATTR, /* a.name */
    N_GETITEM, /* a[b] */
    N_SLICE,   /* a:b:c, each may be NULL */
    N_CALL,    /* a(args) */
    N_FILTER,  /* a|name(args); a is NULL at the start of a block's filter */
    N_TEST,    /* a is name(args) */
    N_NOT,
    N_NEG,
    N_POS,
    N_BINARY, /* a op b */
    N_AND,
    N_OR,
    N_COMPARE, /* a, then items: N_OPERAND */
    N_OPERAND, /* op a */
    N_CONCAT,  /* items */
    N_COND,    /* b if a else c; c may be NULL */
    N_LIST,
    N_TUPLE,
    N_DICT, /* items: key, value, key, … */
    /* statements */
    N_DATA,        /* value */
    N_PRINT,       /* items */
    N_FOR,         /* a: target, b: iterable, c: test or NULL */
    N_IF,          /* a, body; items: N_IF of elif; orelse */
    N_SET,         /* a = b */
    N_NSREF,       /* a target: name.attr */
    N_SETBLOCK,    /* a: target, b: filter or NULL, body */
    N_MACRO,       /* items: parameters, more: defaults of the last ones */
    N_CALLBLOCK,   /* a: the call, or NULL: the body is printed (generation) */
    N_FILTERBLOCK, /* a: filter */
    N_WITH,        /* items: targets, more: values */
    N_BREAK,
    N_CONTINUE
} jnode_kind;

typedef enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOTIN
} jop;

/* How a name node takes part in finding variables. */
typedef enum jname_use { USE_LOAD, USE_STORE, USE_PARAM } jname_use;

typedef struct jbody {
    struct jnode **items;
    uint32_t n;
} jbody;

typedef struct jargspec {
    jbody pos;
    const jstr **names; /* [kw.n] */
    jbody kw;
    struct jnode *star, *star2; /* *args, **kwargs; may be NULL */
} jargspec;

/* Where a variable lives: a slot of the function that is `up` functions out. */
typedef struct jref {
    uint16_t up, slot;
} jref;

typedef enum jload_kind {
    LOAD_PARAM,   /* set by whoever enters the scope */
    LOAD_CONTEXT, /* from the variables given to the render */
    LOAD_ALIAS,   /* a copy of an outer scope's variable */
    LOAD_UNDEFINED
} jload_kind;

typedef struct jload {
    jload_kind kind;
    uint16_t slot;
    jref from; /* LOAD_ALIAS */
    const jstr *name;
} jload;

/* What happens to a scope's variables when it is entered. */
typedef struct jscope {
    jload *loads;
    uint32_t n;
} jscope;

/* One set of slots: the template, a macro, a call block, a recursive loop. */
typedef struct jfunc {
    struct jfunc *outer;
    uint16_t level;
    uint16_t n_slot;
} jfunc;

/* What a macro takes besides its parameters, and the slots for it. */
typedef struct jextras {
    bool has_caller, has_kwargs, has_varargs;
    bool explicit_caller; /* caller is among the parameters */
    uint16_t caller, kwargs, varargs;
} jextras;

typedef struct jnode {
    jnode_kind kind;
    jop op;
    jname_use use;
    bool is_recursive; /* N_FOR */
    bool is_soft;      /* N_FILTER, N_TEST: an unknown name matters only when reached */
    uint16_t depth;    /* of the tree below */
    uint32_t pos;      /* byte of the source */
    jref ref;          /* N_NAME, N_NSREF, N_MACRO */
    const jstr *name;
    const jstr *attr; /* N_NSREF */
    jval value;
    struct jnode *a, *b, *c;
    struct jnode *test_target; /* N_FOR with a test: the target once more, in the test's scope */
    jbody items, more, body, orelse;
    jargspec *args;
    const struct jnative *native; /* N_FILTER, N_TEST; NULL when there is none of that name */
    jscope scope, test_scope, else_scope;
    jfunc *func; /* N_MACRO, N_CALLBLOCK, recursive N_FOR */
    uint16_t loop_slot;
    jextras extras; /* N_MACRO, N_CALLBLOCK */
} jnode;

struct jinja_template {
    jmem mem;
    const char *name;
    const char *source; /* newlines normalised */
    size_t bytes;
    jbody body;
    jfunc func;
    jscope scope;
};

/* ---- while parsing */

typedef struct jparse {
    jinja_template *t;
    jmem *mem;
    smoe_error *err;
    bool trim;
    struct jtoken *tokens;
    size_t n_token, cap_token;
    size_t at;
    int nesting;
    uint64_t work; /* of finding variables */
} jparse;

/* Fails with "NAME:LINE:COLUMN: …"; returns false. */
bool jparse_fail(jparse *p, size_t pos, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *jparse_get(jparse *p, size_t n, size_t size); /* NULL after it has failed */

typedef enum jtoken_kind {
    T_EOF,
    T_DATA,
    T_PRINT_BEGIN,
    T_PRINT_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP /* text holds one or two characters */
} jtoken_kind;

typedef struct jtoken {
    jtoken_kind kind;
    uint32_t pos;
    char op[3];
    const jstr *text; /* T_DATA, T_NAME, T_STRING */
    jval number;
} jtoken;

bool jlex(jparse *p);

/* jinja_parse_expr.c */
typedef enum jtuple_rule {
    TUPLE_FULL,
    TUPLE_NO_COND,    /* no conditional expressions */
    TUPLE_TARGET,     /* of an assignment */
    TUPLE_SET_TARGET, /* the same, where name.attribute of a namespace is one, too */
    TUPLE_PARENS
} jtuple_rule;
jnode *jparse_expression(jparse *p);
/* An expression or, with commas, a tuple. end: a name that ends it, or NULL. */
jnode *jparse_tuple(jparse *p, jtuple_rule rule, const char *end);
/* The filters of a block; the first without its | when is_inline. */
jnode *jparse_filters(jparse *p, bool is_inline);
jnode *jnode_new(jparse *p, jnode_kind kind, size_t pos);
/* Takes the depth of child into account; false when the tree is too deep. */
bool jnode_adopt(jparse *p, jnode *parent, const jnode *child);
bool jbody_add(jparse *p, jbody *body, jnode *node);
jtoken *jpeek(jparse *p, size_t ahead);
bool jat_name(jparse *p, const char *name);
bool jskip_name(jparse *p, const char *name);
bool jat_op(jparse *p, const char *op);
bool jskip_op(jparse *p, const char *op);
bool jexpect(jparse *p, jtoken_kind kind, const char *op_or_name);
bool jparse_enter(jparse *p); /* one level of nesting more */
void jparse_leave(jparse *p);

/* jinja_scope.c: gives each name its slot. */
bool jscope_resolve(jparse *p);

#endif
