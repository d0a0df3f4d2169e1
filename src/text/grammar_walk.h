/* Following a compiled grammar byte by byte.
 *
 * Where a walk stands is a set of configurations: a state and the stack of states to resume once
 * rules end. Stacks with the same top are kept as one: a stack here is a set of stacks, as a graph
 * whose nodes are shared and never differ in content, so that ambiguous grammars need no more room
 * than states times depth, and equal sets have equal numbers.
 *
 * A walker owns the graph. It has a fixed size and allocates only when opened.
 */
#ifndef SMOE_TEXT_GRAMMAR_WALK_H
#define SMOE_TEXT_GRAMMAR_WALK_H

#include "text/grammar.h"

enum {
    WALK_END = 1, /* the stack below the root: nothing is left to resume */
    WALK_NODES = 1 << 15,
    WALK_LINKS = 1 << 16,
    WALK_MEMO = 1 << 10
};

typedef struct grammar_config {
    uint32_t state; /* one that reads */
    uint32_t stack;
} grammar_config;

typedef struct walk_node {
    uint32_t first, n; /* its links, by rising state: what to resume, and the stack below. State 0
                          is the end of everything. */
    uint32_t slot, chain;
} walk_node;

typedef struct walk_memo {
    uint32_t a, b, result, stamp;
} walk_memo;

typedef struct grammar_walker {
    const grammar_program *program;
    walk_node *node; /* [WALK_NODES]; 0 is none */
    uint32_t n_node;
    grammar_config *link; /* [WALK_LINKS] */
    uint32_t n_link;
    uint32_t *head;       /* [WALK_NODES]: nodes by content */
    grammar_config *temp; /* [WALK_LINKS]: links of nodes in the making */
    uint32_t n_temp;
    walk_memo *memo; /* [WALK_MEMO]: unions computed lately */
    uint32_t stamp;
    grammar_config *seen; /* [n_state]: what a step has reached */
    uint32_t n_seen;
    uint32_t *where;      /* [n_state]: place in seen */
    grammar_config *todo; /* [WALK_LINKS] */
    uint32_t n_todo;
    uint32_t n_work;  /* of this step */
    bool accepts;     /* the last step reached the end */
    bool is_exceeded; /* room or work ran out: the last result is void */
} grammar_walker;

/* *w is the caller's (walker_close), also after a failure. The program outlives it. */
int walker_open(grammar_walker *w, const grammar_program *program, smoe_error *err);
void walker_close(grammar_walker *w);
uint64_t walker_bytes(const grammar_program *program);

/* Each of these writes at most max configurations to out and returns how many; w->accepts says
 * whether the walk may end there. With w->is_exceeded set, nothing of it holds. */

/* Where a walk stands that enters a state with this stack, before it reads. */
uint32_t walker_enter(grammar_walker *w, uint32_t state, uint32_t stack, grammar_config *out,
                      uint32_t max);
/* Reads a byte. out must not overlap in. */
uint32_t walker_step(grammar_walker *w, const grammar_config *in, uint32_t n, uint8_t byte,
                     grammar_config *out, uint32_t max);

/* Drops the nodes that were made since there were n_node and n_link. */
void walker_release(grammar_walker *w, uint32_t n_node, uint32_t n_link);
/* Drops the nodes that these configurations do not need, and renumbers the rest. */
void walker_collect(grammar_walker *w, grammar_config *config, uint32_t n);

#endif
