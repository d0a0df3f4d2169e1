/* Building and walking a trie; see trie.h. Built level by level from the sorted keys, so that the
 * children of each node are neighbours and nothing recurses. */
#include "text/trie.h"

#include <string.h>

enum { MAX_NODES = 1 << 26, FEW_CHILDREN = 8 };

typedef struct trie_key {
    const char *data;
    size_t bytes;
    int32_t value;
    uint32_t index; /* where it stood, so that equal keys keep their order */
} trie_key;

/* A node to be given children: the keys that pass it. */
typedef struct trie_range {
    uint32_t low, high;
} trie_range;

typedef struct trie_builder {
    trie *t;
    const trie_key *keys;
    trie_range *ranges; /* [cap], beside the nodes */
    size_t cap;
    smoe_error *err;
} trie_builder;

static int compare_keys(const void *a, const void *b) {
    const trie_key *x = a;
    const trie_key *y = b;
    int order = memcmp(x->data, y->data, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (order == 0 && x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return order ? order : x->index < y->index ? -1 : 1;
}

static int new_node(trie_builder *b, uint8_t label, uint32_t low, uint32_t high) {
    trie *t = b->t;
    if (t->n_node == MAX_NODES) {
        return err_set(b->err, SMOE_ERR_UNSUPPORTED, "a vocabulary of more than %d trie nodes",
                       MAX_NODES);
    }
    if (t->n_node >= b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 1024;
        trie_node *nodes = realloc(t->nodes, cap * sizeof *nodes);
        if (!nodes) {
            return err_no_memory(b->err, cap * sizeof *nodes);
        }
        t->nodes = nodes;
        trie_range *ranges = realloc(b->ranges, cap * sizeof *ranges);
        if (!ranges) {
            return err_no_memory(b->err, cap * sizeof *ranges);
        }
        b->ranges = ranges;
        b->cap = cap;
    }
    t->nodes[t->n_node] = (trie_node){.value = -1, .label = label};
    b->ranges[t->n_node++] = (trie_range){low, high};
    return SMOE_OK;
}

/* Gives a node its value and its children; depth bytes lead to it. */
static int expand(trie_builder *b, size_t node, size_t depth) {
    uint32_t low = b->ranges[node].low;
    uint32_t high = b->ranges[node].high;
    int rc = SMOE_OK;
    for (; low < high && b->keys[low].bytes == depth; low++) {
        b->t->nodes[node].value = b->keys[low].value;
    }
    b->t->nodes[node].first = (uint32_t)b->t->n_node;
    while (low < high && rc == SMOE_OK) {
        uint8_t label = (uint8_t)b->keys[low].data[depth];
        uint32_t end = low + 1;
        while (end < high && (uint8_t)b->keys[end].data[depth] == label) {
            end++;
        }
        rc = new_node(b, label, low, end);
        b->t->nodes[node].n_child++;
        low = end;
    }
    return rc;
}

static int build_levels(trie_builder *b, uint32_t n_key) {
    int rc = new_node(b, 0, 0, n_key);
    size_t begin = 0;
    for (size_t depth = 0; rc == SMOE_OK && begin < b->t->n_node; depth++) {
        size_t end = b->t->n_node;
        for (; begin < end && rc == SMOE_OK; begin++) {
            rc = expand(b, begin, depth);
        }
    }
    return rc;
}

int trie_build(trie *t, const text_piece *keys, const int32_t *values, size_t n, smoe_error *err) {
    trie_key *sorted = mem_array(n + 1, sizeof *sorted);
    trie_builder b = {.t = t, .keys = sorted, .err = err};
    uint32_t n_key = 0;
    if (!sorted) {
        return err_no_memory(err, (n + 1) * sizeof *sorted);
    }
    for (size_t i = 0; i < n; i++) {
        if (keys[i].bytes > 0) {
            sorted[n_key] = (trie_key){keys[i].data, keys[i].bytes, values[i], n_key};
            n_key++;
        }
    }
    qsort(sorted, n_key, sizeof *sorted, compare_keys);
    int rc = n_key ? build_levels(&b, n_key) : SMOE_OK;
    for (uint32_t i = 0; rc == SMOE_OK && n_key && i < t->nodes[0].n_child; i++) {
        uint32_t child = t->nodes[0].first + i;
        t->after_root[t->nodes[child].label] = child;
    }
    free(b.ranges);
    free(sorted);
    return rc;
}

void trie_free(trie *t) {
    free(t->nodes);
    *t = (trie){0};
}

uint32_t trie_step(const trie *t, uint32_t node, uint8_t b) {
    if (node == 0) {
        return t->after_root[b];
    }
    const trie_node *from = &t->nodes[node];
    uint32_t low = from->first;
    uint32_t high = low + from->n_child;
    while (high - low > FEW_CHILDREN) {
        uint32_t mid = low + (high - low) / 2;
        if (t->nodes[mid].label <= b) {
            low = mid;
        } else {
            high = mid;
        }
    }
    while (low < high && t->nodes[low].label < b) {
        low++;
    }
    return low < high && t->nodes[low].label == b ? low : 0;
}

size_t trie_longest(const trie *t, const char *text, size_t bytes, int32_t *value) {
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        node = trie_step(t, node, (uint8_t)text[i]);
        if (node == 0) {
            break;
        }
        if (t->nodes[node].value >= 0) {
            longest = i + 1;
            *value = t->nodes[node].value;
        }
    }
    return longest;
}
