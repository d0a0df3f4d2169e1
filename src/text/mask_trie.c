/* Building the prefix tree; see mask_trie.h: the tokens are sorted, then each adds the nodes that
 * it does not share with the one before it. */
#include "text/mask_trie.h"

#include <string.h>

typedef struct sorted {
    uint64_t head; /* the first eight bytes, so that most comparisons need no text */
    const char *text;
    uint32_t bytes;
    int32_t id;
} sorted;

static int compare(const void *a, const void *b) {
    const sorted *x = a;
    const sorted *y = b;
    if (x->head != y->head) {
        return x->head < y->head ? -1 : 1;
    }
    uint32_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, n);
    if (order) {
        return order;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static uint64_t head_of(const char *text, uint32_t n) {
    uint64_t v = 0;
    for (uint32_t i = 0; i < 8; i++) {
        v = v << 8 | (i < n ? (uint8_t)text[i] : 0);
    }
    return v;
}

static uint32_t shared_bytes(const sorted *a, const sorted *b) {
    uint32_t n = a->bytes < b->bytes ? a->bytes : b->bytes;
    uint32_t i = 0;
    while (i < n && a->text[i] == b->text[i]) {
        i++;
    }
    return i;
}

static void add_nodes(mask_trie *t, const sorted *list, uint32_t n) {
    uint32_t open[MASK_TOKEN_BYTES + 1] = {0}; /* the node at each depth of the path */
    uint32_t depth = 0;
    t->n_node = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i ? shared_bytes(&list[i - 1], &list[i]) : 0;
        for (; depth > shared; depth--) {
            t->node[open[depth]].end = t->n_node;
        }
        while (depth < list[i].bytes) {
            uint8_t byte = (uint8_t)list[i].text[depth++];
            open[depth] = t->n_node;
            t->node[t->n_node++] =
                (trie_node){.token_at = i, .depth = (uint16_t)depth, .byte = byte};
        }
        t->max_depth = depth > t->max_depth ? depth : t->max_depth;
        t->ids[i] = list[i].id;
    }
    for (; depth > 0; depth--) {
        t->node[open[depth]].end = t->n_node;
    }
    t->node[0].end = t->n_node;
    t->node[t->n_node] = (trie_node){.token_at = n};
}

int mask_trie_build(mask_trie *t, const mask_tokens *tokens, const int32_t *ids, uint32_t n,
                    smoe_error *err) {
    *t = (mask_trie){.n_id = n};
    sorted *list = mem_array(n, sizeof *list);
    t->ids = mem_array(n, sizeof *t->ids);
    if (!list || !t->ids) {
        free(list);
        return err_no_memory(err, n * sizeof *list);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = tokens->at[ids[i]];
        list[i] = (sorted){
            .text = tokens->bytes + at, .bytes = tokens->at[ids[i] + 1] - at, .id = ids[i]};
        list[i].head = head_of(list[i].text, list[i].bytes);
    }
    qsort(list, n, sizeof *list, compare);
    uint64_t n_node = 1;
    for (uint32_t i = 0; i < n; i++) {
        n_node += list[i].bytes - (i ? shared_bytes(&list[i - 1], &list[i]) : 0);
    }
    t->node = n_node < UINT32_MAX ? mem_array(n_node + 1, sizeof *t->node) : NULL;
    if (t->node) {
        add_nodes(t, list, n);
    }
    free(list);
    return t->node ? SMOE_OK : err_no_memory(err, n_node * sizeof *t->node);
}

void mask_trie_free(mask_trie *t) {
    free(t->node);
    free(t->ids);
    *t = (mask_trie){0};
}

uint64_t mask_trie_bytes(const mask_trie *t) {
    return (uint64_t)(t->n_node + 1) * sizeof *t->node + (uint64_t)t->n_id * sizeof *t->ids;
}
