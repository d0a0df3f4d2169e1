/* The cache of masks and the walks that fill it; see mask.h and mask_impl.h. */
#include <string.h>

#include "text/mask_impl.h"

enum {
    VISITS = 512,          /* entries that one mask may take before a direct walk is cheaper */
    WALK_WORK = 400000000, /* steps of one walk over the tree */
    GENERAL_STEP_WORK = 20 /* a step of the walker, in steps along one state */
};

static uint32_t list_words(const smoe_constraint *c) {
    return MASK_LIST_WORDS + 2 * c->full.n_node;
}

int mask_cache_init(smoe_constraint *c, smoe_error *err) {
    mask_cache *k = &c->cache;
    mask_scratch *s = &c->scratch;
    k->cap_list = list_words(c);
    k->entry = mem_array(MASK_ENTRIES, sizeof *k->entry);
    k->head = mem_array(MASK_ENTRIES, sizeof *k->head);
    k->bits = mem_array(MASK_BITMAPS * c->n_word, sizeof *k->bits);
    k->list = mem_array(k->cap_list, sizeof *k->list);
    s->config = mem_array(MASK_CONFIGS, sizeof *s->config);
    s->frame = mem_array((size_t)c->full.max_depth + 1, sizeof *s->frame);
    s->bits = mem_array(c->n_word, sizeof *s->bits);
    s->ids = mem_array(c->full.n_id, sizeof *s->ids);
    s->exits = mem_array(c->full.n_node, sizeof *s->exits);
    s->stamp = mem_array(c->full.n_node, sizeof *s->stamp);
    if (!k->entry || !k->head || !k->bits || !k->list || !s->config || !s->frame || !s->bits ||
        !s->ids || !s->exits || !s->stamp) {
        return err_no_memory(err, mask_cache_bytes(c));
    }
    return walker_open(&s->walker, &c->program, err);
}

void mask_cache_free(smoe_constraint *c) {
    mask_cache *k = &c->cache;
    mask_scratch *s = &c->scratch;
    free(k->entry);
    free(k->head);
    free(k->bits);
    free(k->list);
    free(s->config);
    free(s->frame);
    free(s->bits);
    free(s->ids);
    free(s->exits);
    free(s->stamp);
    walker_close(&s->walker);
}

uint64_t mask_cache_bytes(const smoe_constraint *c) {
    return MASK_ENTRIES * (sizeof(mask_entry) + sizeof(uint32_t)) +
           (uint64_t)(MASK_BITMAPS + 1) * c->n_word * sizeof(uint64_t) +
           (uint64_t)list_words(c) * sizeof(uint32_t) + MASK_CONFIGS * sizeof(grammar_config) +
           ((uint64_t)c->full.max_depth + 1) * sizeof(mask_frame) +
           (uint64_t)c->full.n_id * sizeof(int32_t) +
           (uint64_t)c->full.n_node * 2 * sizeof(uint32_t) + walker_bytes(&c->program);
}

/* ---- walks */

static int too_ambiguous(smoe_error *err) {
    return err_set(err, SMOE_ERR_UNSUPPORTED,
                   "constraint: the grammar is too ambiguous here, or nested too deep");
}

static void begin(smoe_constraint *c) {
    mask_scratch *s = &c->scratch;
    memset(s->bits, 0, c->n_word * sizeof *s->bits);
    s->n_id = 0;
    s->n_exit = 0;
    s->work = 0;
    walker_release(&s->walker, WALK_END + 1, 1);
    if (++s->now == 0) {
        memset(s->stamp, 0, c->full.n_node * sizeof *s->stamp);
        s->now = 1;
    }
}

/* Allows the tokens of a node; notes it when the grammar may have left the rule there and more
 * tokens lie below. */
static void arrive(mask_scratch *s, const mask_trie *t, uint32_t at, bool is_exit) {
    for (uint32_t k = t->node[at].token_at; k < t->node[at + 1].token_at; k++) {
        uint32_t id = (uint32_t)t->ids[k];
        uint64_t bit = 1ull << (id % 64);
        if (!(s->bits[id / 64] & bit)) {
            s->bits[id / 64] |= bit;
            s->ids[s->n_id++] = (int32_t)id;
        }
    }
    if (is_exit && t->node[at].end > at + 1 && s->stamp[at] != s->now) {
        s->stamp[at] = s->now;
        s->exits[s->n_exit++] = at;
    }
}

/* One step in general: from frame[0] to frame[1]. */
static bool step(mask_scratch *s, grammar_walker *w, mask_frame *frame, uint8_t byte) {
    walker_release(w, frame[0].n_node, frame[0].n_link);
    frame[1].first = frame[0].first + frame[0].n;
    uint32_t room = MASK_CONFIGS - frame[1].first;
    frame[1].n = walker_step(w, s->config + frame[0].first, frame[0].n, byte,
                             s->config + frame[1].first, room < MASK_WIDTH ? room : MASK_WIDTH);
    frame[1].n_node = w->n_node;
    frame[1].n_link = w->n_link;
    s->work += w->n_work + GENERAL_STEP_WORK;
    return !w->is_exceeded;
}

/* Walks the nodes below one, from the n configurations at the start of s->config. Stacks end at
 * WALK_END, where what follows is not known: exits. */
static bool walk(smoe_constraint *c, grammar_walker *w, const mask_trie *t, uint32_t top,
                 uint32_t n) {
    const grammar_program *p = &c->program;
    mask_scratch *s = &c->scratch;
    const trie_node *node = t->node;
    uint32_t base = node[top].depth;
    uint32_t end = node[top].end;
    s->frame[0] = (mask_frame){0, n, w->n_node, w->n_link};
    for (uint32_t i = top + 1; i < end;) {
        mask_frame *frame = &s->frame[node[i].depth - base - 1];
        bool is_exit;
        if (++s->work > WALK_WORK) {
            return false;
        }
        uint32_t to = 0;
        grammar_config from = s->config[frame[0].first];
        if (frame[0].n == 1) {
            to = grammar_next(p, from.state, node[i].byte);
            if (!to) {
                i = node[i].end;
                continue;
            }
        }
        uint8_t flags = to ? p->flags[to] : GRAMMAR_CALLS;
        is_exit = flags & GRAMMAR_ACCEPTS;
        if (!(flags & GRAMMAR_CALLS) && (!is_exit || from.stack == WALK_END)) {
            /* one state that neither calls nor returns: the stack stays as it is */
            uint32_t first = frame[0].first + 1;
            s->config[first] = (grammar_config){to, from.stack};
            frame[1] =
                (mask_frame){first, (flags & GRAMMAR_READS) != 0, frame[0].n_node, frame[0].n_link};
        } else {
            if (!step(s, w, frame, node[i].byte)) {
                return false;
            }
            is_exit = w->accepts;
            if (frame[1].n == 0 && !is_exit) {
                i = node[i].end;
                continue;
            }
        }
        arrive(s, t, i, is_exit);
        i = frame[1].n ? i + 1 : node[i].end;
    }
    walker_release(w, s->frame[0].n_node, s->frame[0].n_link);
    return true;
}

/* ---- the cache */

static void clear(mask_cache *k) {
    k->n_entry = 0;
    k->n_bits = 0;
    k->n_list = 0;
    memset(k->head, 0, MASK_ENTRIES * sizeof *k->head);
}

static uint32_t *slot_of(const mask_cache *k, uint32_t parent, uint32_t state) {
    uint32_t h = (parent * 2654435761u ^ state) * 2246822519u;
    return &k->head[(h ^ h >> 15) & (MASK_ENTRIES - 1)];
}

/* Keeps what scratch holds as an entry; false when there is no room. */
static bool keep(smoe_constraint *c, uint32_t parent, uint32_t state, enum mask_tree tree) {
    mask_cache *k = &c->cache;
    const mask_scratch *s = &c->scratch;
    bool has_bits = s->n_id * sizeof *s->ids > c->n_word * sizeof *s->bits;
    uint32_t words = s->n_exit + (has_bits ? 0 : s->n_id);
    if (k->n_entry == MASK_ENTRIES || k->cap_list - k->n_list < words ||
        (has_bits && k->n_bits == MASK_BITMAPS)) {
        return false;
    }
    mask_entry *e = &k->entry[k->n_entry];
    uint32_t *slot = slot_of(k, parent, state);
    *e = (mask_entry){.parent = parent,
                      .state = state,
                      .chain = *slot,
                      .tree = (uint8_t)tree,
                      .has_bits = has_bits};
    *slot = ++k->n_entry;
    if (has_bits) {
        memcpy(k->bits + k->n_bits * c->n_word, s->bits, c->n_word * sizeof *s->bits);
        e->at = k->n_bits++;
    } else {
        memcpy(k->list + k->n_list, s->ids, s->n_id * sizeof *s->ids);
        e->at = k->n_list;
        e->n_id = s->n_id;
        k->n_list += s->n_id;
    }
    memcpy(k->list + k->n_list, s->exits, s->n_exit * sizeof *s->exits);
    e->exit_at = k->n_list;
    e->n_exit = s->n_exit;
    k->n_list += s->n_exit;
    return true;
}

static const mask_trie *tree_of(const smoe_constraint *c, enum mask_tree tree) {
    return tree == MASK_FULL ? &c->full : tree == MASK_REST ? &c->rest : &c->rest_long;
}

/* What a state allows by itself. */
static bool fill_state(smoe_constraint *c, uint32_t state, enum mask_tree tree) {
    mask_scratch *s = &c->scratch;
    s->config[0] = (grammar_config){state, WALK_END};
    return walk(c, &s->walker, tree_of(c, tree), 0, 1);
}

/* What a caller's state allows after the exits of the chain before it. */
static bool fill_caller(smoe_constraint *c, const mask_entry *before, uint32_t state) {
    mask_scratch *s = &c->scratch;
    grammar_walker *w = &s->walker;
    const mask_trie *t = tree_of(c, before->tree);
    uint32_t n = walker_enter(w, state, WALK_END, s->config, MASK_WIDTH);
    bool is_exit = w->accepts;
    bool is_good = !w->is_exceeded;
    for (uint32_t i = 0; i < before->n_exit && is_good; i++) {
        uint32_t at = c->cache.list[before->exit_at + i];
        if (is_exit && s->stamp[at] != s->now) {
            s->stamp[at] = s->now;
            s->exits[s->n_exit++] = at;
        }
        is_good = n == 0 || walk(c, w, t, at, n);
    }
    return is_good;
}

enum found { FOUND, NO_ROOM, EXCEEDED };

/* tree: of a state by itself; a caller's is that of the chain before it. */
static enum found find_entry(smoe_constraint *c, uint32_t parent, uint32_t state,
                             enum mask_tree tree, uint32_t *out) {
    mask_cache *k = &c->cache;
    for (uint32_t at = *slot_of(k, parent, state); at; at = k->entry[at - 1].chain) {
        const mask_entry *e = &k->entry[at - 1];
        if (e->parent == parent && e->state == state && e->tree == tree) {
            *out = at;
            return FOUND;
        }
    }
    begin(c);
    if (!(parent ? fill_caller(c, &k->entry[parent - 1], state) : fill_state(c, state, tree))) {
        return EXCEEDED;
    }
    if (!keep(c, parent, state, tree)) {
        return NO_ROOM;
    }
    *out = k->n_entry;
    return FOUND;
}

/* ---- masks */

typedef struct collector {
    smoe_constraint *c;
    const grammar_walker *walker; /* of the run */
    uint64_t *mask;
    size_t n_id;
    uint32_t n_visit;
} collector;

static void add_bits(const collector *k, const uint64_t *bits) {
    size_t n = mask_words(k->n_id);
    n = n < k->c->n_word ? n : k->c->n_word;
    for (size_t i = 0; i < n; i++) {
        k->mask[i] |= bits[i];
    }
}

static void add_entry(const collector *k, const mask_entry *e) {
    const mask_cache *cache = &k->c->cache;
    if (e->has_bits) {
        add_bits(k, cache->bits + e->at * k->c->n_word);
        return;
    }
    for (uint32_t i = 0; i < e->n_id; i++) {
        uint32_t id = cache->list[e->at + i];
        if (id < k->n_id) {
            k->mask[id / 64] |= 1ull << (id % 64);
        }
    }
}

/* Adds what a state allows, then what its callers do behind it; no deeper than a token is long. */
static enum found add_chain(collector *k, uint32_t parent, grammar_config at, enum mask_tree tree) {
    uint32_t index;
    if (++k->n_visit > VISITS) {
        return NO_ROOM;
    }
    enum found found = find_entry(k->c, parent, at.state, tree, &index);
    if (found != FOUND) {
        return found;
    }
    add_entry(k, &k->c->cache.entry[index - 1]);
    if (k->c->cache.entry[index - 1].n_exit == 0) {
        return FOUND;
    }
    const walk_node *stack = &k->walker->node[at.stack];
    for (uint32_t i = 0; i < stack->n && found == FOUND; i++) {
        grammar_config caller = k->walker->link[stack->first + i];
        if (caller.state) {
            found = add_chain(k, index, caller, tree);
        }
    }
    return found;
}

/* One place: core tokens by the length of the run, the others by walks. */
static enum found add_config(collector *k, grammar_config at) {
    smoe_constraint *c = k->c;
    if (c->run[at.state] == 0) {
        return add_chain(k, 0, at, MASK_FULL);
    }
    add_bits(k, c->core + c->run[at.state] * c->n_word);
    enum found found = add_chain(k, 0, (grammar_config){c->same[at.state], at.stack}, MASK_REST);
    return found == FOUND && c->rest_long.n_id ? add_chain(k, 0, at, MASK_LONG) : found;
}

static enum found collect(collector *k, const grammar_config *config, uint32_t n) {
    enum found found = FOUND;
    memset(k->mask, 0, mask_words(k->n_id) * sizeof *k->mask);
    k->n_visit = 0;
    for (uint32_t i = 0; i < n && found == FOUND; i++) {
        found = add_config(k, config[i]);
    }
    return found;
}

/* Without the cache: one walk over all tokens. */
static bool collect_directly(collector *k, grammar_walker *walker, const grammar_config *config,
                             uint32_t n) {
    smoe_constraint *c = k->c;
    mask_scratch *s = &c->scratch;
    size_t n_word = mask_words(k->n_id);
    begin(c);
    memcpy(s->config, config, n * sizeof *config);
    bool is_good = walk(c, walker, &c->full, 0, n);
    memset(k->mask, 0, n_word * sizeof *k->mask);
    memcpy(k->mask, s->bits, (n_word < c->n_word ? n_word : c->n_word) * sizeof *k->mask);
    return is_good;
}

int mask_collect(smoe_constraint *c, grammar_walker *walker, const grammar_config *config,
                 uint32_t n, uint64_t *mask, size_t n_id, smoe_error *err) {
    collector k = {.c = c, .walker = walker, .mask = mask, .n_id = n_id};
    enum found found = collect(&k, config, n);
    if (found == NO_ROOM && k.n_visit <= VISITS) {
        clear(&c->cache);
        found = collect(&k, config, n);
    }
    if (found == NO_ROOM && collect_directly(&k, walker, config, n)) {
        found = FOUND;
    }
    if (found != FOUND) {
        return too_ambiguous(err);
    }
    if (n_id % 64) {
        mask[n_id / 64] &= (1ull << (n_id % 64)) - 1;
    }
    return SMOE_OK;
}
