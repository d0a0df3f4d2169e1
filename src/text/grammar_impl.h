/* Between the steps that compile a grammar: checks, nondeterministic automaton, deterministic one.
 * Private to grammar*.c. */
#ifndef SMOE_TEXT_GRAMMAR_IMPL_H
#define SMOE_TEXT_GRAMMAR_IMPL_H

#include "text/grammar.h"

/* Every rule has a body and none begins with itself (grammar_check.c). */
int grammar_check(const grammar *g, const char *what, smoe_error *err);

enum nfa_kind {
    NFA_FAIL,
    NFA_ACCEPT,
    NFA_BYTE,  /* a byte of [low, high] leads to a */
    NFA_SPLIT, /* a or b, without reading */
    NFA_CALL   /* rule a, then b */
};

typedef struct nfa_node {
    uint8_t kind;
    uint8_t low, high;
    uint32_t a, b;
} nfa_node;

/* One pool for all rules. Equal nodes are one node, so that equal tails of rules are shared. */
typedef struct nfa {
    nfa_node *node;
    uint32_t n;
    uint32_t cap;
    uint32_t *slots; /* index + 1 of nodes by content; loops are left out */
    uint32_t slot_mask;
    uint32_t *entry; /* [n_rule] */
    uint64_t work;   /* nodes of the grammar met so far */
    const char *what;
    smoe_error *err;
} nfa;

enum { NFA_AT_FAIL = 0, NFA_AT_ACCEPT = 1 };

/* nfa_free releases it, also after a failure. */
int nfa_build(nfa *out, const grammar *g, const char *what, smoe_error *err);
void nfa_free(nfa *m);

/* Subset construction. States are sets of nodes; state 0 is the empty set. */
typedef struct dfa {
    const nfa *nfa;
    uint32_t n_class;
    uint8_t class_of[256]; /* rising: each class is a range of bytes */
    uint8_t first_of[257]; /* first byte of each class */
    uint32_t *next;        /* [n_state][n_class] */
    uint32_t n_state;
    uint32_t cap_state;
    uint32_t *set_at; /* [n_state + 1] into items */
    uint32_t *items;  /* nodes that read, call or accept; sorted */
    uint32_t n_item;
    uint32_t cap_item;
    uint32_t *slots;
    uint32_t slot_mask;
    grammar_step *calls;
    uint32_t *call_at; /* [n_state + 1]; valid up to the states done */
    uint32_t n_call;
    uint32_t cap_call;
    uint32_t n_done;
    uint32_t *seen; /* [nfa.n]: stamp of the last closure that met the node */
    uint32_t stamp;
    uint32_t *stack, *targets; /* [nfa.n + 1] */
    uint64_t work;
    smoe_error *err;
} dfa;

/* Both end with dfa_free. start adds the state of a node; grow completes all states, where entry
 * gives the state of each rule's first node (NULL: calls are refused). */
int dfa_init(dfa *d, const nfa *m, smoe_error *err);
int dfa_start(dfa *d, uint32_t node, uint32_t *state);
int dfa_grow(dfa *d, const uint32_t *entry);
bool dfa_accepts(const dfa *d, uint32_t state);
void dfa_free(dfa *d);

#endif
