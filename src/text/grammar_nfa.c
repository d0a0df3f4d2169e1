/* Expression trees to a nondeterministic automaton over bytes (Thompson 1968), built from the end:
 * each part is given the node that follows it. Characters become their UTF-8 bytes here. */
#include <string.h>
#include <xxhash.h>

#include "base/utf8.h"
#include "text/grammar_impl.h"

/* ---- the pool */

static int grow(nfa *m) {
    uint32_t cap = m->cap ? 2 * m->cap : 1024;
    nfa_node *node = realloc(m->node, cap * sizeof *node);
    if (!node) {
        return err_no_memory(m->err, cap * sizeof *node);
    }
    m->node = node;
    m->cap = cap;
    return SMOE_OK;
}

static uint32_t hash_of(const nfa_node *node) {
    uint32_t key[3] = {(uint32_t)node->kind << 16 | (uint32_t)node->low << 8 | node->high, node->a,
                       node->b};
    return (uint32_t)XXH3_64bits(key, sizeof key);
}

static bool same(const nfa_node *x, const nfa_node *y) {
    return x->kind == y->kind && x->low == y->low && x->high == y->high && x->a == y->a &&
           x->b == y->b;
}

/* Twice the slots, or the first ones. */
static int grow_slots(nfa *m) {
    uint32_t n = m->slots ? 2 * (m->slot_mask + 1) : 4096;
    uint32_t *slots = mem_array(n, sizeof *slots);
    if (!slots) {
        return err_no_memory(m->err, n * sizeof *slots);
    }
    for (uint32_t i = 0; m->slots && i <= m->slot_mask; i++) {
        if (m->slots[i]) {
            uint32_t at = hash_of(&m->node[m->slots[i] - 1]) & (n - 1);
            while (slots[at]) {
                at = (at + 1) & (n - 1);
            }
            slots[at] = m->slots[i];
        }
    }
    free(m->slots);
    m->slots = slots;
    m->slot_mask = n - 1;
    return SMOE_OK;
}

/* A node of its own, whose content may change. */
static int add(nfa *m, nfa_node node, uint32_t *out) {
    if (m->n >= GRAMMAR_NFA_NODES) {
        return err_set(m->err, SMOE_ERR_UNSUPPORTED,
                       "%s: written out, it has more than %u parts; use smaller repetitions",
                       m->what, GRAMMAR_NFA_NODES);
    }
    int rc = m->n == m->cap ? grow(m) : SMOE_OK;
    if (rc == SMOE_OK) {
        m->node[m->n] = node;
        *out = m->n++;
    }
    return rc;
}

/* The node with this content. */
static int find(nfa *m, nfa_node node, uint32_t *out) {
    int rc = 2 * m->n >= m->slot_mask ? grow_slots(m) : SMOE_OK;
    if (rc != SMOE_OK) {
        return rc;
    }
    uint32_t at = hash_of(&node) & m->slot_mask;
    for (; m->slots[at]; at = (at + 1) & m->slot_mask) {
        if (same(&m->node[m->slots[at] - 1], &node)) {
            *out = m->slots[at] - 1;
            return SMOE_OK;
        }
    }
    rc = add(m, node, out);
    if (rc == SMOE_OK) {
        m->slots[at] = *out + 1;
    }
    return rc;
}

static int find_byte(nfa *m, uint8_t low, uint8_t high, uint32_t next, uint32_t *out) {
    return find(m, (nfa_node){.kind = NFA_BYTE, .low = low, .high = high, .a = next}, out);
}

static int find_split(nfa *m, uint32_t a, uint32_t b, uint32_t *out) {
    if (a == b || b == NFA_AT_FAIL || a == NFA_AT_FAIL) {
        *out = a == NFA_AT_FAIL ? b : a;
        return SMOE_OK;
    }
    return find(m, (nfa_node){.kind = NFA_SPLIT, .a = a, .b = b}, out);
}

/* ---- characters */

/* Adds the characters first to last, all of one length in UTF-8, as an alternative of *start. */
static int add_range(nfa *m, uint32_t first, uint32_t last, uint32_t next, uint32_t *start) {
    uint8_t low[4];
    uint8_t high[4];
    size_t n = utf8_encode(first, low);
    for (size_t i = 1; i < n; i++) {
        uint32_t tail = (1u << 6 * i) - 1;
        if ((first & ~tail) == (last & ~tail)) {
            continue;
        }
        /* split until the bytes from i on take all their values wherever those before differ */
        uint32_t middle = (first & tail) != 0     ? (first | tail) + 1
                          : (last & tail) != tail ? last & ~tail
                                                  : 0;
        if (middle) {
            int rc = add_range(m, first, middle - 1, next, start);
            return rc ? rc : add_range(m, middle, last, next, start);
        }
    }
    utf8_encode(last, high);
    uint32_t node = next;
    int rc = SMOE_OK;
    while (n-- > 0 && rc == SMOE_OK) {
        rc = find_byte(m, low[n], high[n], node, &node);
    }
    return rc ? rc : find_split(m, node, *start, start);
}

static int emit_class(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start) {
    static const ucd_range lengths[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, UCD_LAST}};
    int rc = SMOE_OK;
    *start = NFA_AT_FAIL;
    for (uint32_t i = node->n; i-- > 0 && rc == SMOE_OK;) {
        for (size_t k = sizeof lengths / sizeof *lengths; k-- > 0 && rc == SMOE_OK;) {
            ucd_range r = node->ranges[i];
            r.first = r.first > lengths[k].first ? r.first : lengths[k].first;
            r.last = r.last < lengths[k].last ? r.last : lengths[k].last;
            if (r.first <= r.last) {
                rc = add_range(m, r.first, r.last, next, start);
            }
        }
    }
    return rc;
}

/* ---- nodes */

/* Repetitions of repetitions may ask for much that adds no node. */
static int count_work(nfa *m, uint64_t n) {
    m->work += n;
    return m->work <= GRAMMAR_WORK ? SMOE_OK
                                   : err_set(m->err, SMOE_ERR_UNSUPPORTED,
                                             "%s: it takes too long to write out; use smaller "
                                             "repetitions",
                                             m->what);
}

static int emit(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start);

static int emit_bytes(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start) {
    int rc = SMOE_OK;
    *start = next;
    for (uint32_t i = node->n; i-- > 0 && rc == SMOE_OK;) {
        uint8_t byte = (uint8_t)node->bytes[i];
        rc = find_byte(m, byte, byte, *start, start);
    }
    return rc;
}

static int emit_alt(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start) {
    int rc = SMOE_OK;
    *start = NFA_AT_FAIL;
    for (uint32_t i = node->n; i-- > 0 && rc == SMOE_OK;) {
        uint32_t one;
        rc = emit(m, node->child[i], next, &one);
        rc = rc ? rc : find_split(m, one, *start, start);
    }
    return rc;
}

static int emit_repeat(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start) {
    const grammar_node *child = node->child[0];
    uint32_t copies = node->min;
    int rc = SMOE_OK;
    *start = next;
    if (node->max == GRAMMAR_MANY) {
        uint32_t loop;
        uint32_t body;
        rc = add(m, (nfa_node){.kind = NFA_SPLIT, .a = NFA_AT_FAIL, .b = next}, &loop);
        rc = rc ? rc : emit(m, child, loop, &body);
        if (rc != SMOE_OK) {
            return rc;
        }
        m->node[loop].a = body;
        *start = copies ? body : loop;
        copies -= copies > 0;
    } else {
        for (uint32_t i = node->max; i > node->min && rc == SMOE_OK; i--) {
            rc = emit(m, child, *start, start);
            rc = rc ? rc : find_split(m, *start, next, start);
        }
    }
    for (uint32_t i = 0; i < copies && rc == SMOE_OK; i++) {
        rc = emit(m, child, *start, start);
    }
    return rc;
}

/* Two chains run side by side: what may follow while nothing has been written, and once something
 * has, so that a separator is due. */
static int emit_list(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start) {
    const grammar_node *more = node->child[node->n - 2];
    const grammar_node *separator = node->child[node->n - 1];
    uint32_t due;
    uint32_t fresh;
    uint32_t one;
    int rc = add(m, (nfa_node){.kind = NFA_SPLIT, .a = NFA_AT_FAIL, .b = next}, &due);
    rc = rc ? rc : emit(m, more, due, &fresh);
    rc = rc ? rc : emit(m, separator, fresh, &one);
    if (rc != SMOE_OK) {
        return rc;
    }
    m->node[due].a = one;
    rc = find_split(m, fresh, next, &fresh);
    for (uint32_t i = node->n - 2; i-- > 0 && rc == SMOE_OK;) {
        uint32_t item;
        rc = emit(m, node->child[i], due, &item);
        rc = rc ? rc : emit(m, separator, item, &one);
        if (rc != SMOE_OK) {
            return rc;
        }
        if (node->is_required[i]) {
            due = one;
            fresh = item;
            continue;
        }
        rc = find_split(m, one, due, &due);
        rc = rc ? rc : find_split(m, item, fresh, &fresh);
    }
    *start = fresh;
    return rc;
}

/* ---- both: the product of two automata */

typedef struct product {
    nfa *m;
    dfa *d;
    uint32_t *pair; /* [n][2]: states */
    uint32_t *node; /* [n]: where the pair begins */
    uint32_t n;
    uint32_t cap;
    uint32_t *slots; /* index + 1 */
    uint32_t slot_mask;
} product;

static uint32_t *pair_slot(const product *p, uint32_t a, uint32_t b) {
    uint32_t key[2] = {a, b};
    uint32_t at = (uint32_t)XXH3_64bits(key, sizeof key) & p->slot_mask;
    while (p->slots[at] &&
           (p->pair[2 * (p->slots[at] - 1)] != a || p->pair[2 * (p->slots[at] - 1) + 1] != b)) {
        at = (at + 1) & p->slot_mask;
    }
    return &p->slots[at];
}

static int grow_product(product *p) {
    uint32_t cap = p->cap ? 2 * p->cap : 256;
    uint32_t *pair = realloc(p->pair, 2 * cap * sizeof *pair);
    p->pair = pair ? pair : p->pair;
    uint32_t *node = realloc(p->node, cap * sizeof *node);
    p->node = node ? node : p->node;
    uint32_t *slots = mem_array(4 * (size_t)cap, sizeof *slots);
    if (!pair || !node || !slots) {
        free(slots);
        return err_no_memory(p->m->err, 28ull * cap);
    }
    free(p->slots);
    p->slots = slots;
    p->slot_mask = 4 * cap - 1;
    p->cap = cap;
    for (uint32_t i = 0; i < p->n; i++) {
        *pair_slot(p, p->pair[2 * i], p->pair[2 * i + 1]) = i + 1;
    }
    return SMOE_OK;
}

/* The node where a pair of states begins. */
static int find_pair(product *p, uint32_t a, uint32_t b, uint32_t *node) {
    int rc = p->n == p->cap ? grow_product(p) : SMOE_OK;
    if (rc != SMOE_OK) {
        return rc;
    }
    uint32_t *slot = pair_slot(p, a, b);
    if (!*slot) {
        rc = add(p->m, (nfa_node){.kind = NFA_SPLIT}, &p->node[p->n]);
        p->pair[2 * p->n] = a;
        p->pair[2 * p->n + 1] = b;
        *slot = rc == SMOE_OK ? ++p->n : 0;
    }
    if (rc == SMOE_OK) {
        *node = p->node[*slot - 1];
    }
    return rc;
}

/* What may follow the i-th pair. */
static int fill_pair(product *p, uint32_t i, uint32_t next) {
    const dfa *d = p->d;
    const uint32_t *a = d->next + (size_t)p->pair[2 * i] * d->n_class;
    const uint32_t *b = d->next + (size_t)p->pair[2 * i + 1] * d->n_class;
    bool ends = dfa_accepts(d, p->pair[2 * i]) && dfa_accepts(d, p->pair[2 * i + 1]);
    uint32_t start = ends ? next : NFA_AT_FAIL;
    int rc = SMOE_OK;
    for (uint32_t c = 0; c < d->n_class && rc == SMOE_OK; c++) {
        uint32_t to = 0;
        uint32_t first = c;
        if (!a[c] || !b[c]) {
            continue;
        }
        while (c + 1 < d->n_class && a[c + 1] == a[first] && b[c + 1] == b[first]) {
            c++;
        }
        uint8_t high = c + 1 < d->n_class ? (uint8_t)(d->first_of[c + 1] - 1) : 0xff;
        rc = find_pair(p, a[c], b[c], &to);
        rc = rc ? rc : find_byte(p->m, d->first_of[first], high, to, &to);
        rc = rc ? rc : find_split(p->m, to, start, &start);
    }
    p->m->node[p->node[i]].a = start;
    return rc;
}

static int emit_both(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start) {
    uint32_t at[2] = {0};
    dfa d = {0};
    product p = {.m = m, .d = &d};
    int rc = emit(m, node->child[0], NFA_AT_ACCEPT, &at[0]);
    rc = rc ? rc : emit(m, node->child[1], NFA_AT_ACCEPT, &at[1]);
    rc = rc ? rc : dfa_init(&d, m, m->err);
    rc = rc ? rc : dfa_start(&d, at[0], &at[0]);
    rc = rc ? rc : dfa_start(&d, at[1], &at[1]);
    rc = rc ? rc : dfa_grow(&d, NULL);
    rc = rc ? rc : find_pair(&p, at[0], at[1], start);
    for (uint32_t i = 0; i < p.n && rc == SMOE_OK; i++) {
        rc = fill_pair(&p, i, next);
    }
    rc = rc ? rc : count_work(m, d.work + m->n / 16);
    free(p.pair);
    free(p.node);
    free(p.slots);
    dfa_free(&d);
    return rc;
}

static int emit(nfa *m, const grammar_node *node, uint32_t next, uint32_t *start) {
    int rc = count_work(m, 1);
    if (rc != SMOE_OK) {
        return rc;
    }
    switch (node->kind) {
    case GRAMMAR_BYTES:
        return emit_bytes(m, node, next, start);
    case GRAMMAR_CLASS:
        return emit_class(m, node, next, start);
    case GRAMMAR_SEQ:
        *start = next;
        for (uint32_t i = node->n; i-- > 0 && rc == SMOE_OK;) {
            rc = emit(m, node->child[i], *start, start);
        }
        return rc;
    case GRAMMAR_ALT:
        return emit_alt(m, node, next, start);
    case GRAMMAR_REPEAT:
        return emit_repeat(m, node, next, start);
    case GRAMMAR_CALL:
        return find(m, (nfa_node){.kind = NFA_CALL, .a = node->rule, .b = next}, start);
    case GRAMMAR_LIST:
        return emit_list(m, node, next, start);
    case GRAMMAR_BOTH:
        return emit_both(m, node, next, start);
    }
    return rc;
}

int nfa_build(nfa *out, const grammar *g, const char *what, smoe_error *err) {
    *out = (nfa){.what = what, .err = err};
    uint32_t at;
    out->entry = mem_array(g->n_rule, sizeof *out->entry);
    int rc = out->entry ? SMOE_OK : err_no_memory(err, g->n_rule * sizeof *out->entry);
    rc = rc ? rc : find(out, (nfa_node){.kind = NFA_FAIL}, &at);
    rc = rc ? rc : find(out, (nfa_node){.kind = NFA_ACCEPT}, &at);
    for (uint32_t i = 0; i < g->n_rule && rc == SMOE_OK; i++) {
        rc = emit(out, g->rules[i].body, NFA_AT_ACCEPT, &out->entry[i]);
    }
    return rc;
}

void nfa_free(nfa *m) {
    free(m->node);
    free(m->slots);
    free(m->entry);
    *m = (nfa){0};
}
