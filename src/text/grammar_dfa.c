/* The deterministic automaton: subset construction, the removal of states that can never end, and
 * the program that the rest works with. */
#include <string.h>
#include <xxhash.h>

#include "text/grammar_impl.h"

/* ---- bytes that no node tells apart */

static void find_classes(dfa *d) {
    bool begins[257] = {[0] = true};
    for (uint32_t i = 0; i < d->nfa->n; i++) {
        const nfa_node *node = &d->nfa->node[i];
        if (node->kind == NFA_BYTE) {
            begins[node->low] = true;
            begins[node->high + 1] = true;
        }
    }
    d->n_class = 0;
    for (uint32_t b = 0; b < 256; b++) {
        if (begins[b]) {
            d->first_of[d->n_class++] = (uint8_t)b;
        }
        d->class_of[b] = (uint8_t)(d->n_class - 1);
    }
}

int dfa_init(dfa *d, const nfa *m, smoe_error *err) {
    size_t n = (size_t)m->n + 1;
    *d = (dfa){.nfa = m, .err = err};
    find_classes(d);
    d->seen = mem_array(n, sizeof *d->seen);
    d->stack = mem_array(n, sizeof *d->stack);
    d->targets = mem_array(n, sizeof *d->targets);
    d->slot_mask = 255;
    d->slots = mem_array(d->slot_mask + 1, sizeof *d->slots);
    return d->seen && d->stack && d->targets && d->slots ? SMOE_OK : err_no_memory(err, 12 * n);
}

void dfa_free(dfa *d) {
    free(d->next);
    free(d->set_at);
    free(d->items);
    free(d->slots);
    free(d->calls);
    free(d->call_at);
    free(d->seen);
    free(d->stack);
    free(d->targets);
    *d = (dfa){0};
}

/* ---- sets of nodes */

static int grow_states(dfa *d) {
    uint32_t cap = d->cap_state ? 2 * d->cap_state : 64;
    if (d->n_state >= GRAMMAR_STATES ||
        (uint64_t)d->n_state * d->n_class * sizeof *d->next >= GRAMMAR_TABLE_BYTES) {
        return err_set(d->err, SMOE_ERR_UNSUPPORTED,
                       "%s: it needs more than %u states; use smaller repetitions", d->nfa->what,
                       d->n_state);
    }
    if (d->n_state < d->cap_state) {
        return SMOE_OK;
    }
    uint32_t *next = realloc(d->next, (size_t)cap * d->n_class * sizeof *next);
    d->next = next ? next : d->next;
    uint32_t *set_at = realloc(d->set_at, (cap + 1) * sizeof *set_at);
    d->set_at = set_at ? set_at : d->set_at;
    uint32_t *call_at = realloc(d->call_at, (cap + 1) * sizeof *call_at);
    d->call_at = call_at ? call_at : d->call_at;
    if (!next || !set_at || !call_at) {
        return err_no_memory(d->err, (uint64_t)cap * (d->n_class + 2) * sizeof *next);
    }
    d->cap_state = cap;
    return SMOE_OK;
}

static uint32_t set_hash(const uint32_t *items, uint32_t n) {
    return (uint32_t)XXH3_64bits(items, n * sizeof *items);
}

static int grow_state_slots(dfa *d) {
    uint32_t n = 2 * (d->slot_mask + 1);
    uint32_t *slots = mem_array(n, sizeof *slots);
    if (!slots) {
        return err_no_memory(d->err, n * sizeof *slots);
    }
    free(d->slots);
    d->slots = slots;
    d->slot_mask = n - 1;
    for (uint32_t s = 0; s < d->n_state; s++) {
        uint32_t at = set_hash(d->items + d->set_at[s], d->set_at[s + 1] - d->set_at[s]);
        while (slots[at & d->slot_mask]) {
            at++;
        }
        slots[at & d->slot_mask] = s + 1;
    }
    return SMOE_OK;
}

static int add_state(dfa *d, const uint32_t *items, uint32_t n) {
    int rc = grow_states(d);
    if (rc == SMOE_OK && (!d->items || d->n_item + n > d->cap_item)) {
        uint32_t cap = 2 * (d->n_item + n) + 64;
        uint32_t *grown = realloc(d->items, cap * sizeof *grown);
        if (!grown) {
            return err_no_memory(d->err, cap * sizeof *grown);
        }
        d->items = grown;
        d->cap_item = cap;
    }
    if (rc == SMOE_OK) {
        if (n) {
            memcpy(d->items + d->n_item, items, n * sizeof *items);
        }
        memset(d->next + (size_t)d->n_state * d->n_class, 0, d->n_class * sizeof *d->next);
        d->set_at[d->n_state] = d->n_item;
        d->n_item += n;
        d->set_at[++d->n_state] = d->n_item;
    }
    return rc;
}

/* The state with these items (sorted). */
static int find_state(dfa *d, const uint32_t *items, uint32_t n, uint32_t *state) {
    int rc = d->n_state == 0 ? add_state(d, NULL, 0) : SMOE_OK; /* state 0 */
    rc = rc == SMOE_OK && 2 * d->n_state >= d->slot_mask ? grow_state_slots(d) : rc;
    if (rc != SMOE_OK || n == 0) {
        *state = 0;
        return rc;
    }
    uint32_t at = set_hash(items, n) & d->slot_mask;
    for (; d->slots[at]; at = (at + 1) & d->slot_mask) {
        uint32_t s = d->slots[at] - 1;
        if (d->set_at[s + 1] - d->set_at[s] == n &&
            memcmp(d->items + d->set_at[s], items, n * sizeof *items) == 0) {
            *state = s;
            return SMOE_OK;
        }
    }
    *state = d->n_state;
    rc = add_state(d, items, n);
    if (rc == SMOE_OK) {
        d->slots[at] = *state + 1;
    }
    return rc;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The state of the first n targets and what they reach without reading. */
static int close_targets(dfa *d, uint32_t n, uint32_t *state) {
    const nfa_node *node = d->nfa->node;
    uint32_t n_stack = 0;
    uint32_t n_found = 0;
    d->stamp++;
    for (uint32_t i = 0; i < n; i++) {
        if (d->seen[d->targets[i]] != d->stamp) {
            d->seen[d->targets[i]] = d->stamp;
            d->stack[n_stack++] = d->targets[i];
        }
    }
    while (n_stack) {
        uint32_t at = d->stack[--n_stack];
        d->work++;
        if (node[at].kind != NFA_SPLIT) {
            if (node[at].kind != NFA_FAIL) {
                d->targets[n_found++] = at;
            }
            continue;
        }
        uint32_t to[2] = {node[at].a, node[at].b};
        for (int i = 0; i < 2; i++) {
            if (d->seen[to[i]] != d->stamp) {
                d->seen[to[i]] = d->stamp;
                d->stack[n_stack++] = to[i];
            }
        }
    }
    if (d->work > GRAMMAR_WORK) {
        return err_set(d->err, SMOE_ERR_UNSUPPORTED, "%s: it is too complex to compile",
                       d->nfa->what);
    }
    qsort(d->targets, n_found, sizeof *d->targets, compare);
    return find_state(d, d->targets, n_found, state);
}

int dfa_start(dfa *d, uint32_t node, uint32_t *state) {
    d->targets[0] = node;
    return close_targets(d, 1, state);
}

bool dfa_accepts(const dfa *d, uint32_t state) {
    return d->set_at[state] < d->set_at[state + 1] &&
           d->items[d->set_at[state]] == NFA_AT_ACCEPT; /* the lowest node that an item can be */
}

/* ---- transitions */

/* The nodes that the items of a state reach by the bytes of a class; returns their number. */
static uint32_t gather(dfa *d, uint32_t state, uint32_t class) {
    uint8_t byte = d->first_of[class];
    uint32_t n = 0;
    for (uint32_t i = d->set_at[state]; i < d->set_at[state + 1]; i++) {
        const nfa_node *node = &d->nfa->node[d->items[i]];
        if (node->kind == NFA_BYTE && node->low <= byte && byte <= node->high) {
            d->targets[n++] = node->a;
        }
    }
    return n;
}

/* Whether the items tell the class from the one before it. */
static bool differs(const dfa *d, uint32_t state, uint32_t class) {
    uint8_t byte = d->first_of[class];
    for (uint32_t i = d->set_at[state]; i < d->set_at[state + 1]; i++) {
        const nfa_node *node = &d->nfa->node[d->items[i]];
        if (node->kind == NFA_BYTE && (node->low == byte || node->high + 1 == byte)) {
            return true;
        }
    }
    return false;
}

static int fill_row(dfa *d, uint32_t state) {
    uint32_t to = 0;
    int rc = SMOE_OK;
    for (uint32_t c = 0; c < d->n_class && rc == SMOE_OK; c++) {
        if (c == 0 || differs(d, state, c)) {
            uint32_t n = gather(d, state, c);
            rc = n ? close_targets(d, n, &to) : SMOE_OK;
            to = n ? to : 0;
        }
        d->next[(size_t)state * d->n_class + c] = to;
    }
    d->work += (d->set_at[state + 1] - d->set_at[state]) * (uint64_t)d->n_class / 8;
    return rc;
}

static int add_call(dfa *d, uint32_t entry, uint32_t resume) {
    if (d->n_call == d->cap_call) {
        uint32_t cap = d->cap_call ? 2 * d->cap_call : 64;
        grammar_step *calls = realloc(d->calls, cap * sizeof *calls);
        if (!calls) {
            return err_no_memory(d->err, cap * sizeof *calls);
        }
        d->calls = calls;
        d->cap_call = cap;
    }
    d->calls[d->n_call++] = (grammar_step){entry, resume};
    return SMOE_OK;
}

/* One call for each rule that may begin here, whatever the number of places it comes from. */
static int fill_calls(dfa *d, uint32_t state, const uint32_t *entry) {
    uint32_t from = d->n_call;
    int rc = SMOE_OK;
    d->call_at[state] = from;
    for (uint32_t i = d->set_at[state]; i < d->set_at[state + 1] && rc == SMOE_OK; i++) {
        const nfa_node *node = &d->nfa->node[d->items[i]];
        if (node->kind != NFA_CALL) {
            continue;
        }
        if (!entry) {
            return err_set(d->err, SMOE_ERR_UNSUPPORTED,
                           "%s: an intersection with a rule is not supported", d->nfa->what);
        }
        bool is_known = false;
        for (uint32_t k = from; k < d->n_call; k++) {
            is_known |= d->calls[k].entry == entry[node->a];
        }
        if (is_known) {
            continue;
        }
        uint32_t n = 0;
        uint32_t resume;
        for (uint32_t k = i; k < d->set_at[state + 1]; k++) {
            const nfa_node *other = &d->nfa->node[d->items[k]];
            if (other->kind == NFA_CALL && entry[other->a] == entry[node->a]) {
                d->targets[n++] = other->b;
            }
            d->work++;
        }
        rc = close_targets(d, n, &resume);
        rc = rc ? rc : add_call(d, entry[node->a], resume);
    }
    d->call_at[state + 1] = d->n_call;
    return rc;
}

int dfa_grow(dfa *d, const uint32_t *entry) {
    int rc = SMOE_OK;
    for (; d->n_done < d->n_state && rc == SMOE_OK; d->n_done++) {
        rc = fill_row(d, d->n_done);
        rc = rc ? rc : fill_calls(d, d->n_done, entry);
    }
    return rc;
}

/* ---- states that can never end */

typedef struct trimmer {
    const dfa *d;
    uint8_t *can_end;
    uint32_t *from_at; /* [n_state + 1] into from: the states that lead here */
    uint32_t *from;
    uint32_t *queue;
    uint32_t n_queue;
} trimmer;

/* Visits each state that s leads to; counts it or, with is_second, notes s there. */
static void note_edges(trimmer *t, uint32_t s, bool is_second) {
    const dfa *d = t->d;
    uint32_t last = 0;
    for (uint32_t c = 0; c < d->n_class; c++) {
        uint32_t to = d->next[(size_t)s * d->n_class + c];
        if (to && to != last) {
            uint32_t at = t->from_at[to]++;
            if (is_second) {
                t->from[at] = s;
            }
        }
        last = to;
    }
    for (uint32_t i = d->call_at[s]; i < d->call_at[s + 1]; i++) {
        uint32_t to[2] = {d->calls[i].entry, d->calls[i].resume};
        for (int k = 0; k < 2; k++) {
            uint32_t at = t->from_at[to[k]]++;
            if (is_second) {
                t->from[at] = s;
            }
        }
    }
}

static void mark(trimmer *t, uint32_t s) {
    if (!t->can_end[s]) {
        t->can_end[s] = 1;
        t->queue[t->n_queue++] = s;
    }
}

static bool leads_to_end(const trimmer *t, uint32_t s) {
    const dfa *d = t->d;
    for (uint32_t c = 0; c < d->n_class; c++) {
        if (t->can_end[d->next[(size_t)s * d->n_class + c]]) {
            return true;
        }
    }
    for (uint32_t i = d->call_at[s]; i < d->call_at[s + 1]; i++) {
        if (t->can_end[d->calls[i].entry] && t->can_end[d->calls[i].resume]) {
            return true;
        }
    }
    return false;
}

static int find_ends(trimmer *t, smoe_error *err) {
    const dfa *d = t->d;
    uint64_t n_edge = 0;
    t->from_at = mem_array((size_t)d->n_state + 1, sizeof *t->from_at);
    t->queue = mem_array(d->n_state, sizeof *t->queue);
    t->can_end = mem_array(d->n_state, 1);
    if (!t->from_at || !t->queue || !t->can_end) {
        return err_no_memory(err, 9ull * d->n_state);
    }
    for (uint32_t s = 0; s < d->n_state; s++) {
        note_edges(t, s, false);
    }
    for (uint32_t s = 0; s <= d->n_state; s++) {
        uint32_t n = t->from_at[s];
        t->from_at[s] = (uint32_t)n_edge;
        n_edge += n;
    }
    t->from = mem_array(n_edge, sizeof *t->from);
    if (!t->from) {
        return err_no_memory(err, n_edge * sizeof *t->from);
    }
    for (uint32_t s = 0; s < d->n_state; s++) {
        note_edges(t, s, true);
    }
    for (uint32_t s = 0; s < d->n_state; s++) {
        if (dfa_accepts(d, s)) {
            mark(t, s);
        }
    }
    while (t->n_queue) {
        uint32_t s = t->queue[--t->n_queue];
        /* filling moved each start to the next one's place */
        for (uint32_t i = s ? t->from_at[s - 1] : 0; i < t->from_at[s]; i++) {
            if (!t->can_end[t->from[i]] && leads_to_end(t, t->from[i])) {
                mark(t, t->from[i]);
            }
        }
    }
    return SMOE_OK;
}

/* ---- the program */

/* Hands the tables over, without what cannot end. */
static void take_tables(grammar_program *p, dfa *d, const uint8_t *can_end) {
    uint32_t n_call = 0;
    for (uint32_t s = 0; s < d->n_state; s++) {
        uint32_t *row = d->next + (size_t)s * d->n_class;
        uint8_t flags = dfa_accepts(d, s) ? GRAMMAR_ACCEPTS : 0;
        for (uint32_t c = 0; c < d->n_class; c++) {
            row[c] = can_end[row[c]] ? row[c] : 0;
            flags |= row[c] ? GRAMMAR_READS : 0;
        }
        uint32_t first = d->call_at[s];
        uint32_t last = d->call_at[s + 1];
        d->call_at[s] = n_call;
        for (uint32_t i = first; i < last; i++) {
            grammar_step call = d->calls[i];
            if (can_end[call.entry] && can_end[call.resume]) {
                d->calls[n_call++] = call;
                flags |= GRAMMAR_CALLS;
            }
        }
        p->flags[s] = flags;
    }
    d->call_at[d->n_state] = n_call;
    p->n_state = d->n_state;
    p->n_class = d->n_class;
    memcpy(p->class_of, d->class_of, sizeof p->class_of);
    p->next = d->next;
    p->call_at = d->call_at;
    p->calls = d->calls;
    d->next = NULL;
    d->call_at = NULL;
    d->calls = NULL;
}

static int make_program(grammar_program *out, dfa *d, const uint32_t *entry, uint32_t root,
                        const char *what, smoe_error *err) {
    trimmer t = {.d = d};
    int rc = find_ends(&t, err);
    if (rc == SMOE_OK && !t.can_end[entry[root]]) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: no finite text matches it", what);
    }
    if (rc == SMOE_OK) {
        out->flags = mem_array(d->n_state, 1);
        rc = out->flags ? SMOE_OK : err_no_memory(err, d->n_state);
    }
    if (rc == SMOE_OK) {
        take_tables(out, d, t.can_end);
        out->root = entry[root];
    }
    free(t.can_end);
    free(t.from_at);
    free(t.from);
    free(t.queue);
    return rc;
}

int grammar_compile(grammar_program *out, const grammar *g, uint32_t root, const char *what,
                    smoe_error *err) {
    nfa m = {0};
    dfa d = {0};
    *out = (grammar_program){0};
    int rc = g->status ? g->status : grammar_check(g, what, err);
    rc = rc ? rc : nfa_build(&m, g, what, err);
    rc = rc ? rc : dfa_init(&d, &m, err);
    uint32_t *entry = rc ? NULL : mem_array(g->n_rule, sizeof *entry);
    if (rc == SMOE_OK && !entry) {
        rc = err_no_memory(err, g->n_rule * sizeof *entry);
    }
    for (uint32_t i = 0; i < g->n_rule && rc == SMOE_OK; i++) {
        rc = dfa_start(&d, m.entry[i], &entry[i]);
    }
    rc = rc ? rc : dfa_grow(&d, entry);
    rc = rc ? rc : make_program(out, &d, entry, root, what, err);
    free(entry);
    dfa_free(&d);
    nfa_free(&m);
    return rc;
}

void grammar_program_free(grammar_program *p) {
    free(p->next);
    free(p->flags);
    free(p->call_at);
    free(p->calls);
    *p = (grammar_program){0};
}

uint64_t grammar_program_bytes(const grammar_program *p) {
    return (uint64_t)p->n_state * (p->n_class * sizeof *p->next + sizeof *p->call_at + 1) +
           (p->call_at ? p->call_at[p->n_state] : 0) * sizeof *p->calls;
}
