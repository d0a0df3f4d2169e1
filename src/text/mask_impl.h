/* The inside of smoe_constraint. Private to mask*.c. */
#ifndef SMOE_TEXT_MASK_IMPL_H
#define SMOE_TEXT_MASK_IMPL_H

#include <pthread.h>

#include "text/mask.h"
#include "text/mask_trie.h"

enum {
    MASK_CORE_CHARS = 128,     /* longest token that counts as made of core characters */
    MASK_REST_BYTES = 32,      /* longest token of the rest */
    MASK_ENTRIES = 1 << 14,    /* of the cache */
    MASK_BITMAPS = 256,        /* bitmaps of the cache */
    MASK_LIST_WORDS = 1 << 19, /* of the cache, besides twice the nodes of the tree */
    MASK_CONFIGS = 1 << 16,    /* configurations along one path of the tree */
    MASK_WIDTH = 1 << 12       /* configurations of one place */
};

/* Which tokens a walk is about. */
enum mask_tree { MASK_FULL, MASK_REST, MASK_LONG };

/* What a state allows after a chain of callers: entry (parent, state) holds what it adds to its
 * parent's. */
typedef struct mask_entry {
    uint32_t parent; /* index + 1; 0: the state is where the walk stands, not a caller */
    uint32_t state;
    uint32_t chain;   /* next of the same slot, index + 1 */
    uint8_t tree;     /* a mask_tree, whose nodes the exits are */
    bool has_bits;    /* bits instead of ids */
    uint32_t at;      /* bitmap number, or place in the lists */
    uint32_t n_id;    /* ids, when no bitmap */
    uint32_t exit_at; /* place in the lists */
    uint32_t n_exit;  /* nodes where the last caller's rule may have ended */
} mask_entry;

typedef struct mask_cache {
    mask_entry *entry; /* [MASK_ENTRIES] */
    uint32_t n_entry;
    uint32_t *head;  /* [MASK_ENTRIES] */
    uint64_t *bits;  /* [MASK_BITMAPS][n_word] */
    uint32_t n_bits; /* bitmaps in use */
    uint32_t *list;  /* [cap_list] */
    uint32_t n_list;
    uint32_t cap_list;
} mask_cache;

typedef struct mask_frame {
    uint32_t first, n;       /* into configs */
    uint32_t n_node, n_link; /* of the walker, to go back to */
} mask_frame;

/* Room for one walk over the tree. */
typedef struct mask_scratch {
    grammar_walker walker;
    grammar_config *config; /* [MASK_CONFIGS] */
    mask_frame *frame;      /* [max_depth + 1] */
    uint64_t *bits;         /* [n_word]: what the walk has allowed */
    int32_t *ids;           /* [full.n_id]: the same in a list */
    uint32_t n_id;
    uint32_t *exits; /* [full.n_node] */
    uint32_t n_exit;
    uint32_t *stamp; /* [full.n_node]: exits that are in the list */
    uint32_t now;
    uint64_t work;
} mask_scratch;

struct smoe_constraint {
    grammar_program program;
    mask_tokens tokens;
    mask_trie full;      /* every token */
    mask_trie rest;      /* those not made of core characters alone, of at most MASK_REST_BYTES */
    mask_trie rest_long; /* and the longer ones */
    size_t n_word;
    uint64_t *core; /* [MASK_CORE_CHARS + 1][n_word]: tokens of at most so many core characters */
    uint8_t *run;   /* [n_state]: core characters that the state surely reads, then none */
    uint32_t *same; /* [n_state]: a state that allows the same tokens of the rest */
    pthread_mutex_t lock; /* over what follows */
    mask_cache cache;
    mask_scratch scratch;
};

/* Characters that texts are mostly made of and that structure is not: all from U+0020 up without
 * quotes, backslashes, angle brackets and U+007F. */
static inline bool mask_is_core(uint32_t cp) {
    return cp >= 0x20 && cp != '"' && cp != '\\' && cp != '<' && cp != '>' && cp != 0x7f;
}

/* Fills run and same (mask_core.c). */
int mask_find_runs(smoe_constraint *c, smoe_error *err);
/* Fills same (mask_same.c). after: [n_state] where any core character leads from a state, 0: not to
 * one place. */
int mask_find_same(smoe_constraint *c, const uint32_t *after, smoe_error *err);
/* Sorts the tokens into core and trees. */
int mask_split_tokens(smoe_constraint *c, smoe_error *err);

/* The cache and the scratch (mask_fill.c); freed also after a failure. */
int mask_cache_init(smoe_constraint *c, smoe_error *err);
void mask_cache_free(smoe_constraint *c);
uint64_t mask_cache_bytes(const smoe_constraint *c);
/* Sets the bits (of n_word words, those of ids below n_id) that configurations allow; the lock is
 * held. walker holds their stacks. */
int mask_collect(smoe_constraint *c, grammar_walker *walker, const grammar_config *config,
                 uint32_t n, uint64_t *mask, size_t n_id, smoe_error *err);

#endif
