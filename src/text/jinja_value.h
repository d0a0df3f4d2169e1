/* Values of the template language: Python's, as far as templates can see them.
 *
 * Everything lives in the memory of one render (or, for constants, of the template) and is freed
 * with it. No value changes once made, except what namespaces hold.
 * Functions that can fail return false after the run holds the error.
 */
#ifndef SMOE_TEXT_JINJA_VALUE_H
#define SMOE_TEXT_JINJA_VALUE_H

#include "text/jinja.h"

typedef enum jkind {
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_VIEW, /* what items(), keys() and values() return */
    J_RANGE,
    J_ITER, /* a generator: used up by iterating */
    J_NAMESPACE,
    J_LOOP,
    J_MACRO,
    J_METHOD, /* a method with its object */
    J_NATIVE, /* a global function */
    J_CYCLER,
    J_JOINER,
    J_SLICE,  /* only as a subscript */
    J_MISSING /* an argument or variable without a value; never seen by a template */
} jkind;

/* Bytes of a string that came from outside. */
typedef struct jmark {
    size_t start, end;
} jmark;

typedef struct jstr {
    const char *data; /* valid UTF-8, not NUL-terminated */
    size_t bytes;
    size_t n_char;      /* code points */
    const jmark *marks; /* sorted, apart from each other, not empty */
    size_t n_mark;
    struct jroom *room; /* NULL, or the room behind data that an appended text may use */
    bool is_safe;       /* markupsafe's Markup */
} jstr;

typedef struct jval {
    jkind kind;
    bool is_input; /* came from outside (strings: see marks) */
    union {
        bool b;
        int64_t i;
        double f;
        const jstr *s;
        struct jlist *list; /* J_LIST, J_TUPLE */
        struct jdict *dict;
        struct jview *view;
        struct jrange *range;
        struct jiter *iter;
        struct jspace *space;
        struct jloop *loop;
        struct jmacro *macro;
        struct jbound *bound;
        const struct jnative *native;
        struct jcycler *cycler;
        struct jjoiner *joiner;
        struct jslice *slice;
        const struct jundef *undef; /* NULL: nothing to say about it */
    };
} jval;

typedef struct jlist {
    jval *items;
    size_t n, cap;
    bool is_group; /* a tuple of groupby: has the names grouper and list */
} jlist;

typedef struct jentry {
    jval key, value;
    uint64_t hash;
} jentry;

typedef struct jdict {
    jentry *entries; /* in order of insertion */
    size_t n, cap;
    uint32_t *index; /* [n_index] entry + 1, or 0; NULL while small */
    size_t n_index;  /* a power of two */
} jdict;

typedef enum jview_kind { JVIEW_KEYS, JVIEW_VALUES, JVIEW_ITEMS } jview_kind;
typedef struct jview {
    jdict *dict;
    bool is_input;
    jview_kind which;
} jview;

typedef struct jrange {
    int64_t start, stop, step;
    int64_t n;
} jrange;

typedef struct jslice {
    jval start, stop, step;
} jslice;

typedef struct jspace {
    jdict attrs;
} jspace;

typedef struct jbound {
    jval self;
    const struct jnative *method;
} jbound;

typedef struct jcycler {
    jlist items;
    size_t pos;
} jcycler;

typedef struct jjoiner {
    jval separator;
    bool is_used;
} jjoiner;

/* Why a value is undefined, for messages. */
typedef struct jundef {
    const char *hint;  /* a whole sentence, or NULL */
    const char *owner; /* "dict object", or NULL: a variable */
    jval name;
} jundef;

typedef struct jrun jrun;

static inline jval jnone(void) {
    return (jval){.kind = J_NONE};
}
static inline jval jbool(bool b) {
    return (jval){.kind = J_BOOL, .b = b};
}
static inline jval jint(int64_t i) {
    return (jval){.kind = J_INT, .i = i};
}
static inline jval jfloat(double f) {
    return (jval){.kind = J_FLOAT, .f = f};
}
static inline jval jmissing(void) {
    return (jval){.kind = J_MISSING};
}
static inline jval jtext(const jstr *s) {
    return (jval){.kind = J_STR, .s = s};
}
static inline jval jlist_value(jlist *list) {
    return (jval){.kind = J_LIST, .list = list};
}
static inline bool jis_number(jval v) {
    return v.kind == J_INT || v.kind == J_FLOAT || v.kind == J_BOOL;
}

/* ---- memory */

/* Small blocks cut from arena blocks; 16-byte aligned and zeroed. */
typedef struct jmem {
    arena blocks;
    uint8_t *bump;
    size_t bump_bytes;
    uint64_t max_bytes;
} jmem;
void *jmem_get(jmem *m, size_t n, size_t size); /* NULL when the limit or the memory is reached */
void *jget(jrun *r, size_t n, size_t size);

/* ---- strings */

/* A string under construction. Zero-initialise. */
typedef struct jbuf {
    char *data;
    size_t bytes, cap;
    jmark *marks;
    size_t n_mark, cap_mark;
    bool is_safe; /* of the string it becomes */
} jbuf;
bool jbuf_add(jrun *r, jbuf *b, const char *data, size_t bytes, bool is_input);
bool jbuf_text(jrun *r, jbuf *b, const char *text, bool is_input); /* NUL-terminated */
bool jbuf_char(jrun *r, jbuf *b, uint32_t cp, bool is_input);
bool jbuf_fill(jrun *r, jbuf *b, uint32_t cp, size_t n, bool is_input);
bool jbuf_str(jrun *r, jbuf *b, const jstr *s);
/* bytes start to end of s, with their marks */
bool jbuf_part(jrun *r, jbuf *b, const jstr *s, size_t start, size_t end);
/* The string; the buffer is given up. */
bool jbuf_take(jrun *r, jbuf *b, jval *out);

const jstr *jstr_of(jmem *m, const char *data, size_t bytes, bool is_input); /* borrows data */
bool jtext_of(jrun *r, const char *text, jval *out); /* a copy of a NUL-terminated text */
bool jstr_part(jrun *r, const jstr *s, size_t start, size_t end, jval *out);
bool jstr_join(jrun *r, const jstr *a, const jstr *b, jval *out);
/* Whether any byte from start to end is marked. */
bool jstr_is_input(const jstr *s, size_t start, size_t end);
bool jstr_equal(const jstr *a, const jstr *b);
bool jstr_is(const jstr *s, const char *text);
size_t jstr_offset(const jstr *s, size_t n_char); /* byte of a code point's start */
size_t jstr_count(const char *data, size_t bytes);
/* First place of part in s from byte from and before end, SIZE_MAX when there is none. */
size_t jstr_find(const jstr *s, size_t from, size_t end, const jstr *part);
/* The last place, in *at. Its worst case is not linear, so that it may fail for too much work. */
bool jstr_rfind(jrun *r, const jstr *s, size_t from, size_t end, const jstr *part, size_t *at);
uint32_t jstr_at(const jstr *s, size_t offset, size_t *used); /* the code point at a byte */
bool jchar_is_space(uint32_t cp);                             /* str.isspace */

/* ---- containers */

bool jlist_add(jrun *r, jlist *list, jval v);
jlist *jlist_new(jrun *r, size_t cap);
bool jtuple_of(jrun *r, jval a, jval b, jval *out);
/* *found is NULL when there is none. Fails on an unhashable key. */
bool jdict_find(jrun *r, const jdict *d, jval key, jval **found);
bool jdict_put(jrun *r, jdict *d, jval key, jval value);
jval *jdict_get(jrun *r, const jdict *d, const char *key); /* NULL when absent */

/* ---- what Python's operators do */

const char *jtype_name(jval v); /* "str", "NoneType", … */
bool jtruth(jrun *r, jval v);
bool jequal(jrun *r, jval a, jval b, bool *equal);
/* a < b as -1, equal 0, 1; fails when they have no order; NaN: *order 2 */
bool jorder(jrun *r, jval a, jval b, int *order);
bool jcontains(jrun *r, jval container, jval v, bool *found);
bool jlength(jrun *r, jval v, size_t *n); /* len(): fails without a length */
bool jhas_length(jval v);
bool jhash(jrun *r, jval v, uint64_t *hash);
bool jsame(jval a, jval b); /* is */

/* ---- text of values */

typedef struct jjson_style {
    bool ensure_ascii, sort_keys, has_indent;
    const jstr *indent; /* of one level */
    const jstr *item_separator, *key_separator;
} jjson_style;

bool jstr_from(jrun *r, jval v, const jstr **out);       /* str(v) */
bool jsoft_str(jrun *r, jval v, const jstr **out);       /* the same, but keeps is_safe */
bool jbuf_value(jrun *r, jbuf *b, jval v, bool is_repr); /* appends str(v) or repr(v) */
size_t jfloat_repr(double f, char out[40]);
bool jtojson(jrun *r, jval v, const jjson_style *style, jbuf *b);
bool jescape(jrun *r, const jstr *s, jval *out); /* for HTML */
/* printf-style: text % args */
bool jpercent(jrun *r, const jstr *format, jval args, jval *out);
/* Python's int(text, base) and float(text): *ok says whether the text is one */
bool jparse_int(jrun *r, const jstr *s, int64_t base, bool *ok, int64_t *out);
bool jparse_float(const jstr *s, double *out);

#endif
