/* What must hold of a grammar before it is compiled: every rule that is used is defined, and none
 * begins with itself (left recursion), which a machine that reads from left to right cannot follow.
 */
#include <stdio.h>
#include <string.h>

#include "text/grammar_impl.h"

typedef struct checker {
    const grammar *g;
    const char *what;
    bool *is_nullable; /* [n_rule]: the rule matches the empty text */
    uint64_t work;
    uint32_t *edge_at; /* [n_rule + 1] into edges */
    uint32_t *edges;   /* rules that a rule may begin with */
    uint32_t n_edge;
    uint32_t cap_edge;
    smoe_error *err;
} checker;

/* "line 3: " or nothing, for rules that come from no lines. */
static const char *place(char out[32], uint32_t line) {
    out[0] = '\0';
    if (line) {
        snprintf(out, 32, "line %u: ", line);
    }
    return out;
}

static int check_defined(const checker *c) {
    char where[32];
    for (uint32_t i = 0; i < c->g->n_rule; i++) {
        const grammar_rule *rule = &c->g->rules[i];
        if (!rule->body) {
            return err_set(c->err, SMOE_ERR_FORMAT, "%s: %srule \"%.100s\" is not defined", c->what,
                           place(where, rule->line), rule->name);
        }
    }
    return SMOE_OK;
}

/* ---- which rules match the empty text */

static bool is_nullable(checker *c, const grammar_node *node);

static bool list_is_nullable(checker *c, const grammar_node *node) {
    uint32_t n_required = 0;
    for (uint32_t i = 0; i + 2 < node->n; i++) {
        if (node->is_required[i]) {
            n_required++;
            if (!is_nullable(c, node->child[i])) {
                return false;
            }
        }
    }
    return n_required < 2 || is_nullable(c, node->child[node->n - 1]);
}

static bool is_nullable(checker *c, const grammar_node *node) {
    c->work++;
    switch (node->kind) {
    case GRAMMAR_BYTES:
        return node->n == 0;
    case GRAMMAR_CLASS:
        return false;
    case GRAMMAR_SEQ:
    case GRAMMAR_BOTH:
        for (uint32_t i = 0; i < node->n; i++) {
            if (!is_nullable(c, node->child[i])) {
                return false;
            }
        }
        return true;
    case GRAMMAR_ALT:
        for (uint32_t i = 0; i < node->n; i++) {
            if (is_nullable(c, node->child[i])) {
                return true;
            }
        }
        return false;
    case GRAMMAR_REPEAT:
        return node->min == 0 || is_nullable(c, node->child[0]);
    case GRAMMAR_CALL:
        return c->is_nullable[node->rule];
    case GRAMMAR_LIST:
        return list_is_nullable(c, node);
    }
    return false;
}

static int find_nullable(checker *c) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < c->g->n_rule; i++) {
            if (!c->is_nullable[i] && is_nullable(c, c->g->rules[i].body)) {
                c->is_nullable[i] = true;
                changed = true;
            }
            if (c->work > GRAMMAR_WORK) {
                return err_set(c->err, SMOE_ERR_UNSUPPORTED,
                               "%s: it has too many rules that may be empty", c->what);
            }
        }
    }
    return SMOE_OK;
}

/* ---- which rules a rule may begin with */

static int add_edge(checker *c, uint32_t rule) {
    if (c->n_edge == c->cap_edge) {
        uint32_t cap = c->cap_edge ? 2 * c->cap_edge : 256;
        uint32_t *edges = realloc(c->edges, cap * sizeof *edges);
        if (!edges) {
            return err_no_memory(c->err, cap * sizeof *edges);
        }
        c->edges = edges;
        c->cap_edge = cap;
    }
    c->edges[c->n_edge++] = rule;
    return SMOE_OK;
}

static int add_edges(checker *c, const grammar_node *node);

/* Children from the first on, while all before may be empty. */
static int add_leading(checker *c, const grammar_node *node) {
    int rc = SMOE_OK;
    for (uint32_t i = 0; i < node->n && rc == SMOE_OK; i++) {
        rc = add_edges(c, node->child[i]);
        if (!is_nullable(c, node->child[i])) {
            break;
        }
    }
    return rc;
}

static int add_list(checker *c, const grammar_node *node) {
    int rc = SMOE_OK;
    bool meets_separator = false;
    for (uint32_t i = 0; i + 1 < node->n && rc == SMOE_OK; i++) {
        bool may_be_empty = is_nullable(c, node->child[i]);
        rc = add_edges(c, node->child[i]);
        meets_separator |= may_be_empty;
        if (i + 2 < node->n && node->is_required[i] && !may_be_empty) {
            break;
        }
    }
    return rc || !meets_separator ? rc : add_edges(c, node->child[node->n - 1]);
}

static int add_edges(checker *c, const grammar_node *node) {
    int rc = SMOE_OK;
    switch (node->kind) {
    case GRAMMAR_BYTES:
    case GRAMMAR_CLASS:
    case GRAMMAR_BOTH:
        return SMOE_OK;
    case GRAMMAR_SEQ:
        return add_leading(c, node);
    case GRAMMAR_ALT:
        for (uint32_t i = 0; i < node->n && rc == SMOE_OK; i++) {
            rc = add_edges(c, node->child[i]);
        }
        return rc;
    case GRAMMAR_REPEAT:
        return node->max ? add_edges(c, node->child[0]) : SMOE_OK;
    case GRAMMAR_CALL:
        return add_edge(c, node->rule);
    case GRAMMAR_LIST:
        return add_list(c, node);
    }
    return rc;
}

/* ---- cycles */

static int refuse_cycle(const checker *c, const uint32_t *path, uint32_t n, uint32_t rule) {
    char chain[300] = "";
    char where[32];
    size_t used = 0;
    uint32_t from = n - 1;
    while (path[from] != rule) {
        from--;
    }
    for (uint32_t i = from; i < n && used < sizeof chain; i++) {
        used += (size_t)snprintf(chain + used, sizeof chain - used, "%.60s -> ",
                                 c->g->rules[path[i]].name);
    }
    if (used < sizeof chain) {
        snprintf(chain + used, sizeof chain - used, "%.60s", c->g->rules[rule].name);
    }
    return err_set(c->err, SMOE_ERR_UNSUPPORTED,
                   "%s: %srule \"%.100s\" begins with itself (%s), so it cannot be read from left "
                   "to right; put something before the recursion",
                   c->what, place(where, c->g->rules[rule].line), c->g->rules[rule].name, chain);
}

/* Depth-first over the rules; at[r] is the next edge of a rule on the path. */
static int find_cycle(const checker *c, uint32_t *path, uint32_t *at, uint8_t *mark) {
    enum { NEW, OPEN, DONE };
    for (uint32_t root = 0; root < c->g->n_rule; root++) {
        uint32_t n = 0;
        if (mark[root] != NEW) {
            continue;
        }
        path[n++] = root;
        mark[root] = OPEN;
        at[root] = c->edge_at[root];
        while (n) {
            uint32_t rule = path[n - 1];
            if (at[rule] == c->edge_at[rule + 1]) {
                mark[rule] = DONE;
                n--;
                continue;
            }
            uint32_t to = c->edges[at[rule]++];
            if (mark[to] == OPEN) {
                return refuse_cycle(c, path, n, to);
            }
            if (mark[to] == NEW) {
                mark[to] = OPEN;
                at[to] = c->edge_at[to];
                path[n++] = to;
            }
        }
    }
    return SMOE_OK;
}

static int check_left_recursion(checker *c) {
    uint32_t n = c->g->n_rule;
    int rc = SMOE_OK;
    for (uint32_t i = 0; i < n && rc == SMOE_OK; i++) {
        c->edge_at[i] = c->n_edge;
        rc = add_edges(c, c->g->rules[i].body);
    }
    c->edge_at[n] = c->n_edge;
    uint32_t *path = mem_array(n, sizeof *path);
    uint32_t *at = mem_array(n, sizeof *at);
    uint8_t *mark = mem_array(n, 1);
    if (rc == SMOE_OK) {
        rc = path && at && mark ? find_cycle(c, path, at, mark) : err_no_memory(c->err, n * 9ull);
    }
    free(path);
    free(at);
    free(mark);
    return rc;
}

int grammar_check(const grammar *g, const char *what, smoe_error *err) {
    checker c = {.g = g, .what = what, .err = err};
    int rc = check_defined(&c);
    if (rc != SMOE_OK) {
        return rc;
    }
    c.is_nullable = mem_array(g->n_rule, sizeof *c.is_nullable);
    c.edge_at = mem_array(g->n_rule + 1, sizeof *c.edge_at);
    rc = c.is_nullable && c.edge_at ? find_nullable(&c) : err_no_memory(err, g->n_rule * 5ull);
    rc = rc ? rc : check_left_recursion(&c);
    free(c.is_nullable);
    free(c.edge_at);
    free(c.edges);
    return rc;
}
