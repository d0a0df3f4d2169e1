/* Building grammars: nodes and rules; see grammar.h. */
#include "text/grammar.h"

#include <string.h>
#include <xxhash.h>

void grammar_init(grammar *g, smoe_error *err) {
    *g = (grammar){.err = err};
}

void grammar_free(grammar *g) {
    arena_free(&g->memory);
    free(g->rules);
    free(g->slots);
    *g = (grammar){0};
}

void grammar_out_of_memory(grammar *g, uint64_t bytes) {
    if (g->status == SMOE_OK) {
        g->status = err_no_memory(g->err, bytes);
    }
}

/* ---- nodes */

static void *get(grammar *g, size_t n, size_t size) {
    void *p = g->status == SMOE_OK ? arena_get(&g->memory, n, size) : NULL;
    if (!p) {
        grammar_out_of_memory(g, n * size);
    }
    return p;
}

static grammar_node *new_node(grammar *g, enum grammar_kind kind, uint32_t depth) {
    if (g->status == SMOE_OK && (g->n_node >= GRAMMAR_NODES || depth > GRAMMAR_DEPTH)) {
        g->status =
            err_set(g->err, SMOE_ERR_UNSUPPORTED,
                    depth > GRAMMAR_DEPTH ? "the grammar is nested deeper than the limit of %u"
                                          : "the grammar has more parts than the limit of %u",
                    depth > GRAMMAR_DEPTH ? GRAMMAR_DEPTH : GRAMMAR_NODES);
    }
    grammar_node *node = get(g, 1, sizeof *node);
    if (node) {
        g->n_node++;
        node->kind = kind;
        node->depth = depth;
    }
    return node;
}

const grammar_node *grammar_bytes(grammar *g, const char *bytes, size_t n) {
    grammar_node *node = new_node(g, GRAMMAR_BYTES, 1);
    char *copy = node && n <= GRAMMAR_TEXT_BYTES ? get(g, n ? n : 1, 1) : NULL;
    if (!copy) {
        grammar_out_of_memory(g, n);
        return NULL;
    }
    if (n) {
        memcpy(copy, bytes, n);
    }
    node->bytes = copy;
    node->n = (uint32_t)n;
    return node;
}

const grammar_node *grammar_text(grammar *g, const char *text) {
    return grammar_bytes(g, text, strlen(text));
}

const grammar_node *grammar_class(grammar *g, const cp_set *set) {
    grammar_node *node = new_node(g, GRAMMAR_CLASS, 1);
    ucd_range *copy =
        node && !set->is_broken ? get(g, set->n_range ? set->n_range : 1, sizeof *copy) : NULL;
    if (!copy) {
        grammar_out_of_memory(g, set->n_range * sizeof *copy);
        return NULL;
    }
    if (set->n_range) {
        memcpy(copy, set->ranges, set->n_range * sizeof *copy);
    }
    node->ranges = copy;
    node->n = (uint32_t)set->n_range;
    return node;
}

const grammar_node *grammar_range(grammar *g, uint32_t first, uint32_t last) {
    ucd_range one = {first, last};
    return grammar_class(g, &(cp_set){.ranges = &one, .n_range = 1});
}

static grammar_node *with_children(grammar *g, enum grammar_kind kind, size_t n,
                                   const grammar_node *const *child) {
    uint32_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (!child[i]) {
            grammar_out_of_memory(g, sizeof(grammar_node)); /* unless the reason is known */
            return NULL;
        }
        depth = child[i]->depth > depth ? child[i]->depth : depth;
    }
    grammar_node *node = new_node(g, kind, depth + 1);
    const grammar_node **copy = node ? get(g, n ? n : 1, sizeof *copy) : NULL;
    if (!copy) {
        return NULL;
    }
    if (n) {
        memcpy(copy, child, n * sizeof(const grammar_node *));
    }
    node->child = copy;
    node->n = (uint32_t)n;
    return node;
}

const grammar_node *grammar_seq(grammar *g, size_t n, const grammar_node *const *child) {
    return n == 1 ? child[0] : with_children(g, GRAMMAR_SEQ, n, child);
}

const grammar_node *grammar_alt(grammar *g, size_t n, const grammar_node *const *child) {
    return n == 1 ? child[0] : with_children(g, GRAMMAR_ALT, n, child);
}

const grammar_node *grammar_repeat(grammar *g, const grammar_node *child, uint32_t min,
                                   uint32_t max) {
    grammar_node *node = with_children(g, GRAMMAR_REPEAT, 1, &child);
    if (node) {
        node->min = min;
        node->max = max;
    }
    return node;
}

const grammar_node *grammar_optional(grammar *g, const grammar_node *child) {
    return grammar_repeat(g, child, 0, 1);
}

const grammar_node *grammar_both(grammar *g, const grammar_node *a, const grammar_node *b) {
    return with_children(g, GRAMMAR_BOTH, 2, (const grammar_node *const[]){a, b});
}

const grammar_node *grammar_call(grammar *g, uint32_t rule) {
    grammar_node *node = new_node(g, GRAMMAR_CALL, 1);
    if (node) {
        node->rule = rule;
    }
    return node;
}

/* The children are the items, then what may follow, then the separator. */
const grammar_node *grammar_list(grammar *g, size_t n, const grammar_node *const *item,
                                 const bool *is_required, const grammar_node *more, bool has_more,
                                 const grammar_node *separator) {
    const grammar_node **child = get(g, n + 2, sizeof *child);
    bool *required = child ? get(g, n + 1, sizeof *required) : NULL;
    if (!required) {
        return NULL;
    }
    if (n) {
        memcpy(child, item, n * sizeof(const grammar_node *));
        memcpy(required, is_required, n * sizeof *required);
    }
    child[n] = has_more ? more : grammar_class(g, &(cp_set){0});
    child[n + 1] = separator;
    grammar_node *node = with_children(g, GRAMMAR_LIST, n + 2, child);
    if (node) {
        node->is_required = required;
    }
    return node;
}

/* ---- rules */

static uint32_t add_rule(grammar *g, const char *name, size_t bytes, uint32_t line) {
    if (g->status != SMOE_OK) {
        return UINT32_MAX;
    }
    if (g->n_rule >= GRAMMAR_RULES) {
        g->status = err_set(g->err, SMOE_ERR_UNSUPPORTED,
                            "the grammar has more rules than the limit of %u", GRAMMAR_RULES);
        return UINT32_MAX;
    }
    if (g->n_rule == g->cap_rule) {
        uint32_t cap = g->cap_rule ? 2 * g->cap_rule : 64;
        grammar_rule *rules = realloc(g->rules, cap * sizeof *rules);
        if (!rules) {
            grammar_out_of_memory(g, cap * sizeof *rules);
            return UINT32_MAX;
        }
        g->rules = rules;
        g->cap_rule = cap;
    }
    char *copy = arena_text(&g->memory, name, bytes);
    if (!copy) {
        grammar_out_of_memory(g, bytes);
        return UINT32_MAX;
    }
    g->rules[g->n_rule] = (grammar_rule){.name = copy, .line = line};
    return g->n_rule++;
}

uint32_t grammar_rule_new(grammar *g, const char *name) {
    return add_rule(g, name, strlen(name), 0);
}

static uint32_t *slot_of(const grammar *g, const char *name, size_t bytes) {
    uint32_t slot = (uint32_t)XXH3_64bits(name, bytes) & g->slot_mask;
    for (;; slot = (slot + 1) & g->slot_mask) {
        const grammar_rule *rule = g->slots[slot] ? &g->rules[g->slots[slot] - 1] : NULL;
        if (!rule || (strlen(rule->name) == bytes && memcmp(rule->name, name, bytes) == 0)) {
            return &g->slots[slot];
        }
    }
}

uint32_t grammar_rule_named(grammar *g, const char *name, size_t bytes, uint32_t line) {
    if (!g->slots && g->status == SMOE_OK) {
        /* twice the most rules there can be: it never grows */
        g->slot_mask = 2 * GRAMMAR_RULES - 1;
        g->slots = mem_array(g->slot_mask + 1, sizeof *g->slots);
    }
    if (!g->slots || g->status != SMOE_OK) {
        grammar_out_of_memory(g, 2 * GRAMMAR_RULES * sizeof *g->slots);
        return UINT32_MAX;
    }
    uint32_t *slot = slot_of(g, name, bytes);
    if (*slot) {
        return *slot - 1;
    }
    uint32_t rule = add_rule(g, name, bytes, line);
    *slot = rule == UINT32_MAX ? 0 : rule + 1;
    return rule;
}

void grammar_define(grammar *g, uint32_t rule, const grammar_node *body) {
    if (!body) {
        grammar_out_of_memory(g, sizeof(grammar_node)); /* unless the reason is known */
    } else if (g->status == SMOE_OK) {
        g->rules[rule].body = body;
    }
}
