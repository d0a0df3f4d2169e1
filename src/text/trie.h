/* A set of byte strings with a value each, walked byte by byte: for everything that looks for the
 * strings that begin at a place. Immutable once built. */
#ifndef SMOE_TEXT_TRIE_H
#define SMOE_TEXT_TRIE_H

#include "base/mem.h"
#include "text/assets.h"

typedef struct trie_node {
    uint32_t first; /* of its children, which are neighbours in the order of their labels */
    int32_t value;  /* -1: no key ends here */
    uint16_t n_child;
    uint8_t label;
} trie_node;

typedef struct trie {
    trie_node *nodes; /* [n_node]; 0 is the root; NULL: holds nothing */
    size_t n_node;
    uint32_t after_root[256]; /* children of the root, 0: none */
} trie;

/* values[i] belongs to keys[i]; of equal keys the last counts, empty ones are left out. trie_free
 * releases it, also after a failure. */
int trie_build(trie *t, const text_piece *keys, const int32_t *values, size_t n, smoe_error *err);
void trie_free(trie *t);

/* The node behind byte b from a node on, 0 when there is none. */
uint32_t trie_step(const trie *t, uint32_t node, uint8_t b);
/* Bytes of the longest key at the start of text, 0 when there is none; *value is its value. */
size_t trie_longest(const trie *t, const char *text, size_t bytes, int32_t *value);

#endif
