/* A render in progress: evaluating expressions, running statements, calling functions. One thread,
 * one call of jinja_render. */
#ifndef SMOE_TEXT_JINJA_RUN_H
#define SMOE_TEXT_JINJA_RUN_H

#include "text/jinja_ast.h"

/* The variables of one call of a function. */
typedef struct jact {
    struct jact *outer;
    jval *slots;
} jact;

struct jrun {
    jmem mem;
    const jinja_template *t;
    smoe_error *err;
    int code; /* of the first error */
    uint32_t pos;
    uint64_t steps, max_steps;
    uint64_t max_output_bytes;
    int depth;
    jact *act;
    jbuf *out;
    jbuf main_out;
    jdict vars;
    struct tm now;
};

/* "NAME:LINE:COLUMN: …" at the place being run; returns false. */
bool jfail(jrun *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a limit: SMOE_ERR_MEMORY. */
bool jfail_limit(jrun *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool jfail_memory(jrun *r);
bool jfail_undefined(jrun *r, jval v); /* "'x' is undefined" */
/* Counts work: n units of about a byte copied or a node run; false beyond the limit. */
bool jcharge(jrun *r, size_t n);
bool jenter(jrun *r); /* one level deeper; false beyond the limit */
void jleave(jrun *r);

/* ---- functions */

typedef struct jargs {
    jval *pos;
    size_t n_pos;
    const jstr **names; /* [n_kw] */
    jval *kw;
    size_t n_kw;
} jargs;

enum { JCALL_ARGS = 8 };

typedef struct jcall {
    jval self;            /* of a method; the value of a filter or test */
    const jargs *args;    /* as written */
    jval arg[JCALL_ARGS]; /* by parameter; J_MISSING when not given */
    const struct jnative *native;
    jval out;
} jcall;

/* A function of the language. params: names of the parameters, separated by commas, those before
 * n_required without a default; a leading "/" means they cannot be given by name; NULL leaves the
 * arguments to fn. */
typedef struct jnative {
    const char *name;
    const char *params;
    uint8_t n_required;
    uint8_t tag; /* tells functions apart that share fn */
    bool (*fn)(jrun *r, jcall *c);
} jnative;

bool jcall_native(jrun *r, const jnative *f, jval self, const jargs *args, jval *out);
bool jcall_value(jrun *r, jval callee, const jargs *args, jval *out);
/* The argument as a whole number or text, or what stands for a missing one; fails on another type.
 * None counts as missing where Python's own function takes it so: the caller decides. */
bool jarg_int(jrun *r, const jcall *c, size_t i, int64_t or_else, int64_t *out);
bool jarg_str(jrun *r, const jcall *c, size_t i, const jstr **out);
bool jarg_truth(jrun *r, const jcall *c, size_t i, bool or_else);

const jnative *jfilter_find(const jstr *name);
const jnative *jtest_find(const jstr *name);
const jnative *jglobal_find(const jstr *name);
/* A method of a value's type; *is_unsafe when it exists but would change the value. */
const jnative *jmethod_find(jval v, const jstr *name, bool *is_unsafe);

/* The tags of the filters select, reject, selectattr and rejectattr. */
enum { CHOOSE_REJECT = 1, CHOOSE_ATTR = 2 };

extern const jnative jtext_filters[], jseq_filters[],
    jvalue_filters[]; /* each ends without a name */
extern const jnative jstr_methods[], jstr_methods_more[];

/* Texts in lower case, unless is_case: how filters compare by default. */
bool jfold_case(jrun *r, bool is_case, jval *v);
enum { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE, CASE_SWAP };
bool jchange_case(jrun *r, const jstr *s, int how, jval *out);

/* What methods and filters share. chars: NULL for white space. max: -1 for all. */
bool jstrip(jrun *r, const jstr *s, const jstr *chars, bool at_start, bool at_end, jval *out);
bool jreplace(jrun *r, const jstr *s, const jstr *old, const jstr *with, int64_t max, jval *out);
bool jsplit_lines(jrun *r, const jstr *s, bool keep_ends, jlist *list);
bool jstr_is_case(const jstr *s, bool is_upper); /* islower, isupper */
/* An attribute as obj.name finds it, without looking for a key; undefined when there is none. */
bool jattr_only(jrun *r, jval v, const jstr *name, jval *out);
/* format.format(args) */
bool jformat(jrun *r, const jstr *format, const jargs *args, jval *out);
/* A stable sort: order[0..n) receives the places of keys in their order. */
bool jsort(jrun *r, const jval *keys, size_t n, bool is_reverse, size_t *order);

/* ---- subscripts */

bool jgetattr(jrun *r, jval v, const jstr *name, jval *out);
bool jgetitem(jrun *r, jval v, jval key, jval *out);
bool jslice_value(jrun *r, jval v, const jslice *s, jval *out);
/* "a.b.0" as filters take it: item by item; an undefined step becomes or_else unless missing */
bool jget_path(jrun *r, jval v, jval path, jval or_else, jval *out);
bool jundefined(jrun *r, jval owner, jval name, jval *out);
bool jundefined_hint(jrun *r, const char *hint, jval *out);

/* ---- operators */

bool jbinary(jrun *r, jop op, jval a, jval b, jval *out);
bool jcompare(jrun *r, jop op, jval a, jval b, bool *out);

/* ---- iterating */

typedef enum jiter_kind {
    ITER_EMPTY,
    ITER_SEQ, /* list or tuple */
    ITER_DICT,
    ITER_STR,
    ITER_RANGE,
    ITER_REVERSED,
    ITER_MAP,
    ITER_SELECT,
    ITER_UNIQUE,
    ITER_BATCH,
    ITER_SLICE,
    ITER_PAIRS,   /* the filter items */
    ITER_FILTERED /* a loop's test */
} jiter_kind;

typedef struct jiter {
    jiter_kind kind;
    bool is_started, is_done;
    jval source;
    jview_kind which; /* ITER_DICT */
    size_t i;
    struct jiter *inner;
    const jcall *call;     /* ITER_MAP and so on: a copy of the filter's call */
    const jnative *native; /* of ITER_MAP, ITER_SELECT; NULL: an attribute, or truth */
    jargs rest;            /* arguments for native */
    jdict *seen;           /* ITER_UNIQUE */
    jlist *list;           /* ITER_SLICE */
    const jnode *loop;     /* ITER_FILTERED */
    jact *act;
} jiter;

bool jiter_of(jrun *r, jval v, jiter **out); /* iter(v): fails when v cannot be iterated */
bool jis_iterable(jval v);
/* The next value, or *done. */
bool jiter_next(jrun *r, jiter *it, jval *v, bool *done);
bool jlist_from(jrun *r, jval v, jlist **out); /* list(v) */
/* A generator over source; call is the filter that makes it (NULL: none). */
bool jiter_new(jrun *r, jiter_kind kind, jval source, const jcall *call, jval *out);

typedef struct jloop {
    jiter *iter;
    jval source;
    int64_t index0;
    int64_t length; /* -1: not known yet */
    jval before, current, after;
    bool has_after;
    jval changed; /* arguments of the last call of changed, or J_MISSING */
    const jnode *node;
    jact *act; /* where a recursive loop was defined */
    int64_t depth0;
} jloop;

bool jloop_attr(jrun *r, jloop *l, const jstr *name, jval *out, bool *found);
bool jloop_advance(jrun *r, jloop *l, jval *v, bool *done);
bool jloop_length(jrun *r, jloop *l, int64_t *out);

typedef struct jmacro {
    const jnode *node;
    jact *act;
} jmacro;

/* ---- running */

typedef enum jflow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } jflow;

bool jeval(jrun *r, const jnode *n, jval *out);
bool jeval_args(jrun *r, const jargspec *spec, const jval *first, jargs *out);
bool jeval_filter(jrun *r, const jnode *n, jval value, jval *out);
bool jexec(jrun *r, const jbody *body, jflow *flow);
bool jassign(jrun *r, const jnode *target, jval v);
void jenter_scope(jrun *r, const jscope *s);
jval *jslot(const jrun *r, jref ref);
bool jcall_macro(jrun *r, const jmacro *m, const jargs *args, jval *out);
bool jcall_loop(jrun *r, jloop *l, const jargs *args, jval *out);

/* Values from JSON; false when a number does not fit. */
bool jfrom_json(jrun *r, struct json_object *o, jinja_origin origin, int depth, jval *out);

#endif
