/* The pushdown machine; see grammar_walk.h. Nodes of the graph refer to older ones only, so what is
 * new can be dropped from the end, and the rest be compacted in one pass. */
#include "text/grammar_walk.h"

#include <string.h>

enum {
    UNION_DEPTH = 2000,  /* recursion */
    STEP_WORK = 1u << 20 /* unions and arrivals of one step */
};

int walker_open(grammar_walker *w, const grammar_program *program, smoe_error *err) {
    *w = (grammar_walker){.program = program};
    w->node = mem_array(WALK_NODES, sizeof *w->node);
    w->link = mem_array(WALK_LINKS, sizeof *w->link);
    w->head = mem_array(WALK_NODES, sizeof *w->head);
    w->temp = mem_array(WALK_LINKS, sizeof *w->temp);
    w->memo = mem_array(WALK_MEMO, sizeof *w->memo);
    w->todo = mem_array(WALK_LINKS, sizeof *w->todo);
    w->seen = mem_array(program->n_state, sizeof *w->seen);
    w->where = mem_array(program->n_state, sizeof *w->where);
    if (!w->node || !w->link || !w->head || !w->temp || !w->memo || !w->todo || !w->seen ||
        !w->where) {
        return err_no_memory(err, walker_bytes(program));
    }
    /* node 1 ends everything; it is not in the table, for nothing else has its link */
    w->link[0] = (grammar_config){0, 0};
    w->node[WALK_END] = (walk_node){.first = 0, .n = 1};
    w->n_node = WALK_END + 1;
    w->n_link = 1;
    w->stamp = 1;
    return SMOE_OK;
}

void walker_close(grammar_walker *w) {
    free(w->node);
    free(w->link);
    free(w->head);
    free(w->temp);
    free(w->memo);
    free(w->todo);
    free(w->seen);
    free(w->where);
    *w = (grammar_walker){0};
}

uint64_t walker_bytes(const grammar_program *program) {
    return WALK_NODES * (sizeof(walk_node) + sizeof(uint32_t)) +
           WALK_LINKS * 3 * sizeof(grammar_config) + WALK_MEMO * sizeof(walk_memo) +
           (uint64_t)program->n_state * (sizeof(grammar_config) + sizeof(uint32_t));
}

/* ---- the graph */

static uint32_t slot_of(const grammar_config *link, uint32_t n) {
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ ((uint64_t)link[i].state << 32 | link[i].stack)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return (uint32_t)h & (WALK_NODES - 1);
}

/* The node with these links; 0 when there is no room. */
static uint32_t find_node(grammar_walker *w, const grammar_config *link, uint32_t n) {
    uint32_t slot = slot_of(link, n);
    for (uint32_t at = w->head[slot]; at; at = w->node[at].chain) {
        if (w->node[at].n == n &&
            memcmp(w->link + w->node[at].first, link, n * sizeof *link) == 0) {
            return at;
        }
    }
    if (w->n_node >= WALK_NODES || w->n_link + n > WALK_LINKS) {
        w->is_exceeded = true;
        return 0;
    }
    uint32_t at = w->n_node++;
    memcpy(w->link + w->n_link, link, n * sizeof *link);
    w->node[at] = (walk_node){w->n_link, n, slot, w->head[slot]};
    w->n_link += n;
    w->head[slot] = at;
    return at;
}

static bool put_temp(grammar_walker *w, grammar_config link) {
    if (w->n_temp >= WALK_LINKS || w->n_work++ > STEP_WORK) {
        w->is_exceeded = true;
        return false;
    }
    w->temp[w->n_temp++] = link;
    return true;
}

static uint32_t unite(grammar_walker *w, uint32_t a, uint32_t b, uint32_t depth);

/* Puts the merged links of two nodes onto temp. */
static bool merge_links(grammar_walker *w, uint32_t a, uint32_t b, uint32_t depth) {
    uint32_t i = w->node[a].first;
    uint32_t j = w->node[b].first;
    uint32_t i_end = i + w->node[a].n;
    uint32_t j_end = j + w->node[b].n;
    while (i < i_end || j < j_end) {
        grammar_config link;
        if (j == j_end || (i < i_end && w->link[i].state < w->link[j].state)) {
            link = w->link[i++];
        } else if (i == i_end || w->link[j].state < w->link[i].state) {
            link = w->link[j++];
        } else {
            link = w->link[i++];
            link.stack = unite(w, link.stack, w->link[j++].stack, depth + 1);
            if (w->is_exceeded) {
                return false;
            }
        }
        if (!put_temp(w, link)) {
            return false;
        }
    }
    return true;
}

static uint32_t unite(grammar_walker *w, uint32_t a, uint32_t b, uint32_t depth) {
    if (a == b) {
        return a;
    }
    if (depth > UNION_DEPTH) {
        w->is_exceeded = true;
        return 0;
    }
    walk_memo *memo = &w->memo[(a * 2654435761u ^ b * 2246822519u) >> 22];
    if (memo->a == a && memo->b == b && memo->stamp == w->stamp) {
        return memo->result;
    }
    uint32_t base = w->n_temp;
    uint32_t result = 0;
    if (merge_links(w, a, b, depth)) {
        result = find_node(w, w->temp + base, w->n_temp - base);
    }
    w->n_temp = base;
    if (!w->is_exceeded) {
        *memo = (walk_memo){a, b, result, w->stamp};
    }
    return result;
}

void walker_release(grammar_walker *w, uint32_t n_node, uint32_t n_link) {
    if (w->n_node == n_node) {
        return;
    }
    while (w->n_node > n_node) {
        const walk_node *node = &w->node[--w->n_node];
        w->head[node->slot] = node->chain;
    }
    w->n_link = n_link;
    w->stamp++;
}

void walker_collect(grammar_walker *w, grammar_config *config, uint32_t n) {
    /* slot serves as the mark of a node, then as its new number; chains are made anew */
    for (uint32_t i = WALK_END; i < w->n_node; i++) {
        w->node[i].slot = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        w->node[config[i].stack].slot = 1;
    }
    for (uint32_t i = w->n_node; i-- > WALK_END + 1;) {
        for (uint32_t k = 0; w->node[i].slot && k < w->node[i].n; k++) {
            w->node[w->link[w->node[i].first + k].stack].slot = 1;
        }
    }
    uint32_t n_node = WALK_END + 1;
    uint32_t n_link = 1;
    w->node[WALK_END].slot = WALK_END;
    for (uint32_t i = WALK_END + 1; i < w->n_node; i++) {
        walk_node old = w->node[i];
        if (!old.slot) {
            continue;
        }
        for (uint32_t k = 0; k < old.n; k++) {
            grammar_config link = w->link[old.first + k];
            link.stack = w->node[link.stack].slot;
            w->link[n_link + k] = link;
        }
        w->node[i].slot = n_node;
        w->node[n_node].first = n_link;
        w->node[n_node].n = old.n;
        n_node++;
        n_link += old.n;
    }
    for (uint32_t i = 0; i < n; i++) {
        config[i].stack = w->node[config[i].stack].slot;
    }
    w->n_node = n_node;
    w->n_link = n_link;
    w->stamp++;
    memset(w->head, 0, WALK_NODES * sizeof *w->head);
    for (uint32_t i = WALK_END + 1; i < n_node; i++) {
        uint32_t slot = slot_of(w->link + w->node[i].first, w->node[i].n);
        w->node[i].slot = slot;
        w->node[i].chain = w->head[slot];
        w->head[slot] = i;
    }
}

/* ---- steps */

static void put_todo(grammar_walker *w, uint32_t state, uint32_t stack) {
    if (w->n_todo >= WALK_LINKS || w->n_work++ > STEP_WORK) {
        w->is_exceeded = true;
        return;
    }
    w->todo[w->n_todo++] = (grammar_config){state, stack};
}

/* Notes an arrival; false when it is no news. */
static bool note(grammar_walker *w, grammar_config c) {
    uint32_t at = w->where[c.state];
    if (at >= w->n_seen || w->seen[at].state != c.state) {
        w->where[c.state] = w->n_seen;
        w->seen[w->n_seen++] = c;
        return true;
    }
    uint32_t both = unite(w, w->seen[at].stack, c.stack, 0);
    if (w->is_exceeded || both == w->seen[at].stack) {
        return false;
    }
    w->seen[at].stack = both;
    return true;
}

/* Everything that is reached from a state without reading. No rule begins with itself, so the
 * stacks met here have no more new levels than there are rules, and it ends. */
static void reach(grammar_walker *w, uint32_t state, uint32_t stack) {
    const grammar_program *p = w->program;
    w->n_todo = 0;
    put_todo(w, state, stack);
    while (w->n_todo && !w->is_exceeded) {
        grammar_config c = w->todo[--w->n_todo];
        if (!note(w, c)) {
            continue;
        }
        if (p->flags[c.state] & GRAMMAR_ACCEPTS) {
            const walk_node *node = &w->node[c.stack];
            for (uint32_t i = 0; i < node->n; i++) {
                grammar_config back = w->link[node->first + i];
                if (back.state) {
                    put_todo(w, back.state, back.stack);
                } else {
                    w->accepts = true;
                }
            }
        }
        for (uint32_t i = p->call_at[c.state]; i < p->call_at[c.state + 1]; i++) {
            grammar_step call = p->calls[i];
            /* a call at the very end of a rule returns to the caller's caller */
            bool is_last = p->flags[call.resume] == GRAMMAR_ACCEPTS;
            grammar_config link = {call.resume, c.stack};
            put_todo(w, call.entry, is_last ? c.stack : find_node(w, &link, 1));
        }
    }
}

static uint32_t hand_out(grammar_walker *w, grammar_config *out, uint32_t max) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_seen && !w->is_exceeded; i++) {
        if (!(w->program->flags[w->seen[i].state] & GRAMMAR_READS)) {
            continue;
        }
        if (n == max) {
            w->is_exceeded = true;
            break;
        }
        out[n++] = w->seen[i];
    }
    return w->is_exceeded ? 0 : n;
}

static void begin(grammar_walker *w) {
    w->n_seen = 0;
    w->n_temp = 0;
    w->n_work = 0;
    w->accepts = false;
    w->is_exceeded = false;
}

uint32_t walker_enter(grammar_walker *w, uint32_t state, uint32_t stack, grammar_config *out,
                      uint32_t max) {
    begin(w);
    reach(w, state, stack);
    return hand_out(w, out, max);
}

uint32_t walker_step(grammar_walker *w, const grammar_config *in, uint32_t n, uint8_t byte,
                     grammar_config *out, uint32_t max) {
    begin(w);
    for (uint32_t i = 0; i < n && !w->is_exceeded; i++) {
        uint32_t to = grammar_next(w->program, in[i].state, byte);
        if (to) {
            reach(w, to, in[i].stack);
        }
    }
    return hand_out(w, out, max);
}
