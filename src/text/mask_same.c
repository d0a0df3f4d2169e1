/* States that no short token tells apart. In a counted run of characters, like [^<>]{1,200}, every
 * place is a state of its own, but far from the end all of them allow the same tokens: a walk for
 * one serves the others.
 *
 * Two states are the same to a depth when all byte strings up to that length lead from both to
 * states with the same flags, or from neither. That is an equivalence, so runs are gone through
 * from their end: a state joins its successor's class when the two are the same. */
#include <string.h>

#include "text/mask_impl.h"

enum { SAME_WORK = 16000000 }; /* steps; when they are used up, states stay apart */

typedef struct comparer {
    const grammar_program *p;
    uint32_t *other; /* [n_state]: what a state was last compared with ... */
    int8_t *known;   /* ... how deep both are the same ... */
    int8_t *limit;   /* ... of so many bytes looked at */
    uint32_t work;
} comparer;

/* To which depth two states are the same, at most limit; -1: their own flags differ. Recursion is
 * bounded by limit. */
static int same_depth(comparer *k, uint32_t a, uint32_t b, int limit) {
    const grammar_program *p = k->p;
    if (a == b) {
        return limit;
    }
    if (p->flags[a] != p->flags[b] || (p->flags[a] & GRAMMAR_CALLS)) {
        return -1;
    }
    if (k->other[a] == b && (k->known[a] < k->limit[a] || k->limit[a] >= limit)) {
        return k->known[a] < limit ? k->known[a] : limit;
    }
    int depth = limit;
    for (unsigned byte = 0; byte < 256 && depth > 0; byte++) {
        uint32_t to_a = grammar_next(p, a, (uint8_t)byte);
        uint32_t to_b = grammar_next(p, b, (uint8_t)byte);
        if (++k->work > SAME_WORK) {
            return -1;
        }
        if (!to_a != !to_b) {
            depth = 0;
        } else if (to_a) {
            int below = 1 + same_depth(k, to_a, to_b, depth - 1);
            depth = below < depth ? below : depth;
        }
    }
    k->other[a] = b;
    k->known[a] = (int8_t)depth;
    k->limit[a] = (int8_t)limit;
    return depth;
}

/* Classes of the states on the way from one, along after. path: room for all states. */
static void find_path(comparer *k, const uint32_t *after, uint32_t from, int depth, uint32_t *same,
                      uint32_t *path) {
    uint32_t n = 0;
    for (uint32_t s = from; s && !same[s]; s = after[s]) {
        same[s] = s; /* until its successor's is known; also ends a circle */
        path[n++] = s;
    }
    while (n > 0) {
        uint32_t s = path[--n];
        uint32_t next = after[s];
        if (next && next != s && same_depth(k, s, next, depth) >= depth) {
            same[s] = same[next];
        }
    }
}

int mask_find_same(smoe_constraint *c, const uint32_t *after, smoe_error *err) {
    uint32_t n = c->program.n_state;
    int depth = (int)c->rest.max_depth;
    uint32_t *path = mem_array(n, sizeof *path);
    comparer k = {.p = &c->program,
                  .other = mem_array(n, sizeof *k.other),
                  .known = mem_array(n, 1),
                  .limit = mem_array(n, 1)};
    c->same = mem_array(n, sizeof *c->same);
    bool has_room = path && k.other && k.known && k.limit && c->same;
    for (uint32_t s = 1; s < n && has_room; s++) {
        find_path(&k, after, s, depth, c->same, path);
    }
    free(path);
    free(k.other);
    free(k.known);
    free(k.limit);
    return has_room ? SMOE_OK : err_no_memory(err, 14ull * n);
}
