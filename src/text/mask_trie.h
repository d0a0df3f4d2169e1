/* The texts of all tokens as a prefix tree in one array, for walks that ask of each token whether a
 * grammar allows it. Immutable once built. */
#ifndef SMOE_TEXT_MASK_TRIE_H
#define SMOE_TEXT_MASK_TRIE_H

#include "base/mem.h"

#define MASK_TOKEN_BYTES 1024u /* a longer token is never allowed; shorter ones spell its text */

/* The texts by id; a token that may not stand in a constrained text has no bytes. */
typedef struct mask_tokens {
    char *bytes;
    uint32_t *at; /* [n_id + 1] into bytes */
    uint32_t n_id;
} mask_tokens;

/* In preorder: the children of a node follow it, each with all below it. */
typedef struct trie_node {
    uint32_t end;      /* index behind the last node below */
    uint32_t token_at; /* its tokens: ids[token_at] up to the next node's token_at */
    uint16_t depth;    /* bytes from the root */
    uint8_t byte;
} trie_node;

typedef struct mask_trie {
    trie_node *node; /* [n_node + 1]; node 0 is the root */
    uint32_t n_node;
    int32_t *ids; /* by text */
    uint32_t n_id;
    uint32_t max_depth;
} mask_trie;

/* The tree of n tokens, none empty. mask_trie_free releases it, also after a failure. */
int mask_trie_build(mask_trie *t, const mask_tokens *tokens, const int32_t *ids, uint32_t n,
                    smoe_error *err);
void mask_trie_free(mask_trie *t);
uint64_t mask_trie_bytes(const mask_trie *t);

#endif
