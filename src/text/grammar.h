/* Context-free grammars: an expression tree for each rule, made by the readers of GBNF and of JSON
 * schemas, and their compiled form.
 *
 * A grammar is only built up here; grammar_compile turns it into a grammar_program, which is
 * immutable and holds no pointer into it. Nothing here knows of tokens.
 *
 * Errors stick: once a builder function has failed, all of them return NULL, and NULL is allowed
 * wherever a node is taken, so that readers check once, with grammar_status.
 */
#ifndef SMOE_TEXT_GRAMMAR_H
#define SMOE_TEXT_GRAMMAR_H

#include "base/mem.h"
#include "text/cp_set.h"

#define GRAMMAR_TEXT_BYTES  (4u << 20) /* longest grammar or schema */
#define GRAMMAR_MANY        UINT32_MAX /* no upper bound of a repetition */
#define GRAMMAR_REPEAT_MAX  100000u    /* largest count that may be written */
#define GRAMMAR_RULES       65536u
#define GRAMMAR_NODES       500000u
#define GRAMMAR_DEPTH       1000u   /* nesting of nodes */
#define GRAMMAR_NFA_NODES   500000u /* of all rules, repetitions written out */
#define GRAMMAR_STATES      200000u /* of the compiled form */
#define GRAMMAR_TABLE_BYTES (64u << 20)
#define GRAMMAR_WORK        10000000u /* steps of the subset construction */

enum grammar_kind {
    GRAMMAR_BYTES,  /* exactly these bytes; none: the empty text */
    GRAMMAR_CLASS,  /* one character out of a set, in UTF-8; an empty set matches nothing */
    GRAMMAR_SEQ,    /* all children in order */
    GRAMMAR_ALT,    /* any child */
    GRAMMAR_REPEAT, /* the child min to max times */
    GRAMMAR_CALL,   /* another rule */
    GRAMMAR_LIST,   /* see grammar_list */
    GRAMMAR_BOTH    /* what both children match; neither calls a rule */
};

typedef struct grammar_node {
    enum grammar_kind kind;
    uint32_t depth; /* 1 + that of the deepest child */
    uint32_t n;     /* bytes, ranges or children */
    union {
        const char *bytes;
        const ucd_range *ranges; /* sorted, disjoint */
        const struct grammar_node **child;
    };
    union {
        struct {
            uint32_t min, max;
        };
        uint32_t rule;
        const bool *is_required; /* GRAMMAR_LIST: [n - 2] */
    };
} grammar_node;

typedef struct grammar_rule {
    const char *name;
    uint32_t line; /* where it is defined or, without a body, first used; 0: not from lines */
    const grammar_node *body;
} grammar_rule;

typedef struct grammar {
    arena memory;
    grammar_rule *rules;
    uint32_t n_rule;
    uint32_t cap_rule;
    uint32_t *slots; /* names to rules: index + 1, 0 when free */
    uint32_t slot_mask;
    uint32_t n_node;
    int status;
    smoe_error *err;
} grammar;

/* err receives the first error; it must outlive the building. */
void grammar_init(grammar *g, smoe_error *err);
void grammar_free(grammar *g);
static inline int grammar_status(const grammar *g) {
    return g->status;
}
/* Notes that memory ran out, for callers that allocate for themselves. */
void grammar_out_of_memory(grammar *g, uint64_t bytes);

/* ---- nodes; children and texts are copied or shared, never taken over */

const grammar_node *grammar_bytes(grammar *g, const char *bytes, size_t n);
const grammar_node *grammar_text(grammar *g, const char *text); /* up to its NUL */
/* A set that is broken (out of memory) makes the grammar so. */
const grammar_node *grammar_class(grammar *g, const cp_set *set);
const grammar_node *grammar_range(grammar *g, uint32_t first, uint32_t last);
const grammar_node *grammar_seq(grammar *g, size_t n, const grammar_node *const *child);
const grammar_node *grammar_alt(grammar *g, size_t n, const grammar_node *const *child);
const grammar_node *grammar_repeat(grammar *g, const grammar_node *child, uint32_t min,
                                   uint32_t max);
const grammar_node *grammar_optional(grammar *g, const grammar_node *child);
const grammar_node *grammar_both(grammar *g, const grammar_node *a, const grammar_node *b);
const grammar_node *grammar_call(grammar *g, uint32_t rule);
/* Items in order, each at most once, those not required may be left out; then, with has_more, more
 * any number of times; a separator between any two. */
const grammar_node *grammar_list(grammar *g, size_t n, const grammar_node *const *item,
                                 const bool *is_required, const grammar_node *more, bool has_more,
                                 const grammar_node *separator);

/* A sequence or choice of the nodes written down. */
#define GRAMMAR_SEQ_OF(g, ...)                                                                     \
    grammar_seq(g, sizeof((const grammar_node *const[]){__VA_ARGS__}) / sizeof(grammar_node *),    \
                (const grammar_node *const[]){__VA_ARGS__})
#define GRAMMAR_ALT_OF(g, ...)                                                                     \
    grammar_alt(g, sizeof((const grammar_node *const[]){__VA_ARGS__}) / sizeof(grammar_node *),    \
                (const grammar_node *const[]){__VA_ARGS__})

/* ---- rules */

/* The rule of that name, made without a body when new; UINT32_MAX after an error. */
uint32_t grammar_rule_named(grammar *g, const char *name, size_t bytes, uint32_t line);
/* A rule that only the caller knows; name is for messages. */
uint32_t grammar_rule_new(grammar *g, const char *name);
void grammar_define(grammar *g, uint32_t rule, const grammar_node *body);

/* ---- the compiled form */

typedef struct grammar_step {
    uint32_t entry;  /* first state of the rule that is called */
    uint32_t resume; /* state after it */
} grammar_step;

enum {
    GRAMMAR_ACCEPTS = 1, /* the rule may end here */
    GRAMMAR_READS = 2,   /* some byte goes on from here */
    GRAMMAR_CALLS = 4    /* another rule may begin here */
};

/* One deterministic automaton over bytes and calls for each rule. Every state can reach the end of
 * its rule, and no rule begins with itself, so a walk never hangs and never meets a dead end. State
 * 0 is none. */
typedef struct grammar_program {
    uint32_t n_state;
    uint32_t n_class;
    uint8_t class_of[256]; /* bytes that no state tells apart */
    uint32_t *next;        /* [n_state][n_class]; 0: the byte is not allowed */
    uint8_t *flags;        /* [n_state] */
    uint32_t *call_at;     /* [n_state + 1] into calls */
    grammar_step *calls;
    uint32_t root;
} grammar_program;

static inline uint32_t grammar_next(const grammar_program *p, uint32_t state, uint8_t byte) {
    return p->next[(size_t)state * p->n_class + p->class_of[byte]];
}

/* Compiles the language of the root rule. what names the grammar in errors ("grammar"). *out is the
 * caller's (grammar_program_free), empty after a failure. Refuses rules without a body, left
 * recursion, a root that can never end, and whatever passes the limits above. */
int grammar_compile(grammar_program *out, const grammar *g, uint32_t root, const char *what,
                    smoe_error *err);
void grammar_program_free(grammar_program *p);
uint64_t grammar_program_bytes(const grammar_program *p);

/* ---- GBNF */

/* Reads GBNF, the notation of llama.cpp, into g; *root is the rule of that name. Errors name line
 * and column. */
int gbnf_read(grammar *g, const char *text, size_t bytes, uint32_t *root);

#endif
