/* Merging; see bpe.h. What pieces start and end as is in bpe_symbols.c. Short pieces scan for the
 * lowest rank; long ones keep the candidates in a heap ordered by rank and position and the symbols
 * in a linked list. Both give the same ids. */
#include "text/bpe.h"

#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "text/bpe_symbols.h"

enum { SHORT_SYMBOLS = 32, CACHE_SLOTS = 4096, CACHE_PIECE_BYTES = 16, CACHE_IDS = 7 };

enum { LINE_BYTES = 64 };
#define SLOTS_OF_LINE ((uint32_t)(LINE_BYTES / sizeof(bpe_merge)))
#define HUGE_BYTES    ((size_t)2 << 20)

#define SPACE       "\xe2\x96\x81"
#define SPACE_BYTES 3u

typedef struct bpe_symbol {
    int32_t id;          /* -1: merged into the one before */
    uint32_t prev, next; /* UINT32_MAX at the ends */
} bpe_symbol;

typedef struct bpe_candidate {
    uint64_t order; /* rank << 32 | position: the least comes first */
    uint32_t id;    /* of the product; an outdated candidate is known by it */
} bpe_candidate;

typedef struct bpe_cached {
    char piece[CACHE_PIECE_BYTES];
    uint8_t bytes;
    uint8_t n_id; /* 0: the slot is free */
    int32_t ids[CACHE_IDS];
} bpe_cached;

/* ---- the merge table */

int bpe_init(bpe_model *m, size_t n_merge, const vocab *v, smoe_error *err) {
    size_t n_slot = 16;
    while (n_slot < n_merge + n_merge / 2) {
        n_slot *= 2;
    }
    size_t bytes = n_slot * sizeof *m->merges;
    bool is_huge = bytes >= HUGE_BYTES; /* fewer page faults now, fewer misses later */
    m->merges = aligned_alloc(is_huge ? HUGE_BYTES : LINE_BYTES, bytes);
    if (!m->merges) {
        return err_no_memory(err, bytes);
    }
    if (is_huge) {
        madvise(m->merges, bytes, MADV_HUGEPAGE);
    }
    m->merge_mask = (uint32_t)(n_slot - 1);
    memset(m->merges, 0xff, bytes); /* left: UINT32_MAX */
    for (unsigned b = 0; b < 256; b++) {
        char byte = (char)b;
        m->byte_id[b] = vocab_find(v, &byte, 1, false);
        m->fallback_id[b] = -1;
    }
    m->unk_id = -1;
    return SMOE_OK;
}

void bpe_free(bpe_model *m) {
    free(m->merges);
    free(m->extra);
    cp_table_free(&m->char_id);
    trie_free(&m->verbatim);
    m->merges = NULL;
    m->extra = NULL;
}

/* A search begins where a cache line does, so most end in the one. */
static uint32_t first_slot(const bpe_model *m, uint32_t left, uint32_t right) {
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 32 ^ hash >> 15) & m->merge_mask & ~(SLOTS_OF_LINE - 1);
}

/* The slot of the pair, or the free one where it would go. */
static bpe_merge *find_slot(const bpe_model *m, uint32_t left, uint32_t right) {
    uint32_t slot = first_slot(m, left, right);
    while (m->merges[slot].left != UINT32_MAX &&
           (m->merges[slot].left != left || m->merges[slot].right != right)) {
        slot = (slot + 1) & m->merge_mask;
    }
    return &m->merges[slot];
}

static const bpe_merge *find_merge(const bpe_model *m, int32_t left, int32_t right) {
    const bpe_merge *merge = find_slot(m, (uint32_t)left, (uint32_t)right);
    return merge->left == UINT32_MAX ? NULL : merge;
}

void bpe_prefetch_merge(const bpe_model *m, uint32_t left, uint32_t right) {
    __builtin_prefetch(&m->merges[first_slot(m, left, right)], 1);
}

void bpe_add_merge(bpe_model *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
    bpe_merge *slot = find_slot(m, left, right);
    m->n_merge += slot->left == UINT32_MAX;
    *slot = (bpe_merge){left, right, rank, id};
}

/* Bytes up to the next U+2581 that stands behind another character. */
static size_t word_bytes(const char *text, size_t bytes) {
    size_t at = 0;
    while (bytes - at >= SPACE_BYTES && memcmp(text + at, SPACE, SPACE_BYTES) == 0) {
        at += SPACE_BYTES;
    }
    const char *next = memmem(text + at, bytes - at, SPACE, SPACE_BYTES);
    return next ? (size_t)(next - text) : bytes;
}

void bpe_find_cuts(bpe_model *m, const vocab *v) {
    m->cuts_words = cp_table_get(&m->char_id, 0x2581) >= 0;
    for (uint32_t id = 0; id < v->n_id && m->cuts_words; id++) {
        const vocab_token *t = &v->tokens[id];
        m->cuts_words =
            !t->is_findable || t->bytes == 0 || word_bytes(vocab_text(v, id), t->bytes) == t->bytes;
    }
}

/* ---- output and scratch */

int id_list_reserve(id_list *out, size_t more, smoe_error *err) {
    if (out->cap - out->n >= more) {
        return SMOE_OK;
    }
    size_t cap = out->cap ? out->cap * 2 : 64;
    cap = cap < out->n + more ? out->n + more : cap;
    int32_t *ids = realloc(out->ids, cap * sizeof *ids);
    if (!ids) {
        return err_no_memory(err, cap * sizeof *ids);
    }
    out->ids = ids;
    out->cap = cap;
    return SMOE_OK;
}

void bpe_scratch_cache(bpe_scratch *s) {
    if (!s->cache) {
        s->cache = mem_array(CACHE_SLOTS, sizeof *s->cache);
    }
}

void bpe_scratch_free(bpe_scratch *s) {
    free(s->symbols);
    free(s->heap);
    free(s->start);
    free(s->parts);
    free(s->cache);
    *s = (bpe_scratch){0};
}

/* ---- short pieces */

/* ids[n] are merged in place; returns how many remain. */
static size_t merge_short(const bpe_model *m, int32_t *ids, size_t n) {
    const bpe_merge *pairs[SHORT_SYMBOLS] = {NULL}; /* pairs[i] joins ids[i] and ids[i + 1] */
    for (size_t i = 0; i + 1 < n; i++) {
        pairs[i] = find_merge(m, ids[i], ids[i + 1]);
    }
    while (n > 1) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pairs[i] && (best == n || pairs[i]->rank < pairs[best]->rank)) {
                best = i;
            }
        }
        if (best == n) {
            break;
        }
        ids[best] = (int32_t)pairs[best]->id;
        for (size_t i = best + 1; i + 1 < n; i++) {
            ids[i] = ids[i + 1];
            pairs[i] = pairs[i + 1];
        }
        n--;
        pairs[best] = best + 1 < n ? find_merge(m, ids[best], ids[best + 1]) : NULL;
        if (best > 0) {
            pairs[best - 1] = find_merge(m, ids[best - 1], ids[best]);
        }
    }
    return n;
}

/* ---- long pieces */

static int reserve_heap(bpe_scratch *s, size_t n, smoe_error *err) {
    if (n <= s->cap_heap) {
        return SMOE_OK;
    }
    size_t cap = s->cap_heap * 2 > n ? s->cap_heap * 2 : n;
    bpe_candidate *heap = realloc(s->heap, cap * sizeof *heap);
    if (!heap) {
        return err_no_memory(err, cap * sizeof *heap);
    }
    s->heap = heap;
    s->cap_heap = cap;
    return SMOE_OK;
}

static int reserve_symbols(bpe_scratch *s, size_t n, smoe_error *err) {
    if (n > s->cap_symbol) {
        free(s->symbols);
        s->symbols = mem_array(n, sizeof *s->symbols);
        s->cap_symbol = s->symbols ? n : 0;
    }
    return s->symbols ? SMOE_OK : err_no_memory(err, n * sizeof *s->symbols);
}

static void sift_down(bpe_candidate *heap, size_t n, size_t i) {
    bpe_candidate moved = heap[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && heap[child + 1].order < heap[child].order;
        if (moved.order <= heap[child].order) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

static void sift_up(bpe_candidate *heap, size_t i) {
    bpe_candidate moved = heap[i];
    while (i > 0 && moved.order < heap[(i - 1) / 2].order) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = moved;
}

/* Adds the merge of the symbol at left with its successor, if there is one. */
static int push_candidate(const bpe_model *m, bpe_scratch *s, uint32_t left, size_t *n_heap,
                          bool sift, smoe_error *err) {
    uint32_t right = left == UINT32_MAX ? UINT32_MAX : s->symbols[left].next;
    if (right == UINT32_MAX) {
        return SMOE_OK;
    }
    const bpe_merge *merge = find_merge(m, s->symbols[left].id, s->symbols[right].id);
    if (!merge) {
        return SMOE_OK;
    }
    int rc = reserve_heap(s, *n_heap + 1, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (s->parts) {
        s->parts[merge->id][0] = merge->left + 1;
        s->parts[merge->id][1] = merge->right + 1;
    }
    s->heap[(*n_heap)++] = (bpe_candidate){(uint64_t)merge->rank << 32 | left, merge->id};
    if (sift) {
        sift_up(s->heap, *n_heap - 1);
    }
    return SMOE_OK;
}

/* Merges the symbols [0, n) of the scratch; those that remain have an id. */
static int merge_long(const bpe_model *m, bpe_scratch *s, uint32_t n, smoe_error *err) {
    size_t n_heap = 0;
    int rc = SMOE_OK;
    for (uint32_t i = 0; i < n && rc == SMOE_OK; i++) {
        rc = push_candidate(m, s, i, &n_heap, false, err);
    }
    for (size_t i = n_heap / 2; i-- > 0;) {
        sift_down(s->heap, n_heap, i);
    }
    while (n_heap > 0 && rc == SMOE_OK) {
        bpe_candidate top = s->heap[0];
        bpe_symbol *left = &s->symbols[(uint32_t)top.order];
        s->heap[0] = s->heap[--n_heap];
        if (n_heap) {
            sift_down(s->heap, n_heap, 0);
        }
        if (left->id < 0 || left->next == UINT32_MAX) {
            continue;
        }
        bpe_symbol *right = &s->symbols[left->next];
        const bpe_merge *merge = find_merge(m, left->id, right->id);
        if (!merge || merge->id != top.id) {
            continue;
        }
        left->id = (int32_t)top.id;
        left->next = right->next;
        right->id = -1;
        if (left->next != UINT32_MAX) {
            s->symbols[left->next].prev = (uint32_t)top.order;
        }
        rc = push_candidate(m, s, left->prev, &n_heap, true, err);
        rc = rc ? rc : push_candidate(m, s, (uint32_t)top.order, &n_heap, true, err);
    }
    return rc;
}

/* ids[n] are merged in place. */
static int merge_all(const bpe_model *m, bpe_scratch *s, int32_t *ids, size_t *n, smoe_error *err) {
    uint32_t n_symbol = (uint32_t)*n;
    if (*n <= SHORT_SYMBOLS && !s->parts) {
        *n = merge_short(m, ids, *n);
        return SMOE_OK;
    }
    int rc = reserve_symbols(s, *n, err);
    if (rc != SMOE_OK || *n == 0) {
        return rc;
    }
    for (uint32_t i = 0; i < n_symbol; i++) {
        s->symbols[i] = (bpe_symbol){ids[i], i - 1, i + 1};
    }
    s->symbols[n_symbol - 1].next = UINT32_MAX;
    rc = merge_long(m, s, n_symbol, err);
    *n = 0;
    for (uint32_t i = 0; i < n_symbol && rc == SMOE_OK; i++) {
        if (s->symbols[i].id >= 0) {
            ids[(*n)++] = s->symbols[i].id;
        }
    }
    return rc;
}

/* ---- one piece */

static int reserve_start(const bpe_model *m, const vocab *v, bpe_scratch *s, size_t n,
                         smoe_error *err) {
    if (n > s->cap_start) {
        size_t cap = n < 256 ? 256 : n;
        free(s->start);
        s->start = mem_array(cap, sizeof *s->start);
        s->cap_start = s->start ? cap : 0;
    }
    if (m->has_unused && !s->parts) {
        s->parts = mem_array(v->n_id, sizeof *s->parts);
    }
    return s->start && (s->parts || !m->has_unused) ? SMOE_OK
                                                    : err_no_memory(err, n * sizeof *s->start);
}

static int encode_piece(const bpe_model *m, const vocab *v, const char *piece, size_t bytes,
                        bpe_scratch *s, id_list *out, smoe_error *err) {
    int rc = reserve_start(m, v, s, bytes, err);
    rc = rc ? rc : id_list_reserve(out, bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t n = bpe_first_symbols(m, v, piece, bytes, s->start);
    rc = merge_all(m, s, s->start, &n, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (m->kind == BPE_SENTENCEPIECE) {
        bpe_last_symbols(m, v, piece, (const uint32_t(*)[2])s->parts, s->start, n, out);
        return SMOE_OK;
    }
    memcpy(out->ids + out->n, s->start, n * sizeof *s->start);
    out->n += n;
    return SMOE_OK;
}

static bpe_cached *cache_slot(const bpe_scratch *s, const char *piece, size_t bytes) {
    if (!s->cache || bytes > CACHE_PIECE_BYTES) {
        return NULL;
    }
    return &s->cache[XXH3_64bits(piece, bytes) % CACHE_SLOTS];
}

/* A piece, or a word of one. */
static int encode_word(const bpe_model *m, const vocab *v, const char *piece, size_t bytes,
                       bpe_scratch *s, id_list *out, smoe_error *err) {
    int rc = id_list_reserve(out, SHORT_SYMBOLS, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    bpe_cached *cached = cache_slot(s, piece, bytes);
    if (cached && cached->n_id && cached->bytes == bytes &&
        memcmp(cached->piece, piece, bytes) == 0) {
        memcpy(out->ids + out->n, cached->ids, cached->n_id * sizeof *out->ids);
        out->n += cached->n_id;
        return SMOE_OK;
    }
    size_t before = out->n;
    int32_t whole = m->ignore_merges && !m->cuts_words ? vocab_find(v, piece, bytes, false) : -1;
    if (whole >= 0) {
        out->ids[out->n++] = whole;
    } else {
        rc = encode_piece(m, v, piece, bytes, s, out, err);
    }
    size_t n = out->n - before;
    if (rc == SMOE_OK && cached && n > 0 && n <= CACHE_IDS) {
        memcpy(cached->piece, piece, bytes);
        cached->bytes = (uint8_t)bytes;
        cached->n_id = (uint8_t)n;
        memcpy(cached->ids, out->ids + before, n * sizeof *out->ids);
    }
    return rc;
}

int bpe_encode(const bpe_model *m, const vocab *v, const char *piece, size_t bytes, bpe_scratch *s,
               id_list *out, smoe_error *err) {
    int32_t whole = m->ignore_merges && m->cuts_words ? vocab_find(v, piece, bytes, false) : -1;
    int rc = whole >= 0 ? id_list_reserve(out, 1, err) : SMOE_OK;
    if (rc == SMOE_OK && whole >= 0) {
        out->ids[out->n++] = whole;
        return SMOE_OK;
    }
    while (rc == SMOE_OK && bytes > 0) {
        size_t n = m->cuts_words ? word_bytes(piece, bytes) : bytes;
        rc = encode_word(m, v, piece, n, s, out, err);
        piece += n;
        bytes -= n;
    }
    return rc;
}
