/* The search for the best cut; see unigram.h. One pass forward that keeps the best way to each
 * place, one backward that collects it. */
#include "text/unigram.h"

#include "base/utf8.h"

enum { NO_START = -1 };

/* The best way to a place: its score, and the token that ends there. */
typedef struct unigram_node {
    double score;
    int32_t start; /* NO_START: nothing ends here */
    int32_t id;
} unigram_node;

void unigram_free(unigram_model *m) {
    trie_free(&m->tokens);
    free(m->score);
    m->score = NULL;
}

void unigram_scratch_free(unigram_scratch *s) {
    free(s->nodes);
    *s = (unigram_scratch){0};
}

static void offer(const unigram_model *m, unigram_node *node, double score, size_t start,
                  int32_t id) {
    if (node->start == NO_START || score > node->score) {
        *node =
            (unigram_node){m->is_sentencepiece ? (double)(float)score : score, (int32_t)start, id};
    }
}

static void search(const unigram_model *m, unigram_node *nodes, const char *piece, size_t bytes) {
    for (size_t start = 0; start < bytes;) {
        uint32_t cp = 0;
        uint32_t node = 0;
        bool has_single = false;
        double so_far = nodes[start].score;
        size_t used = utf8_decode((const uint8_t *)piece + start, bytes - start, &cp);
        for (size_t end = start + 1; end <= bytes; end++) {
            node = trie_step(&m->tokens, node, (uint8_t)piece[end - 1]);
            if (node == 0) {
                break;
            }
            int32_t id = m->tokens.nodes[node].value;
            if (id >= 0) {
                offer(m, &nodes[end], m->score[id] + so_far, start, id);
                has_single |= end - start == used;
            }
        }
        if (!has_single) {
            offer(m, &nodes[start + used], m->unk_score + so_far, start, m->unk_id);
        }
        start += used;
    }
}

static int reserve(unigram_scratch *s, size_t n, smoe_error *err) {
    if (n > s->cap_node) {
        size_t cap = n < 256 ? 256 : n;
        free(s->nodes);
        s->nodes = mem_array(cap, sizeof *s->nodes);
        s->cap_node = s->nodes ? cap : 0;
    }
    return s->nodes ? SMOE_OK : err_no_memory(err, n * sizeof *s->nodes);
}

/* Appends, last one first, the ids of an unknown stretch. */
static void add_unknown(const unigram_model *m, const vocab *v, const char *text, size_t bytes,
                        id_list *out) {
    int32_t whole = m->is_sentencepiece ? -1 : vocab_find_content(v, text, bytes);
    bool falls_back = whole < 0 && m->has_fallback;
    for (size_t i = 0; i < bytes && falls_back; i++) {
        falls_back = m->fallback_id[(uint8_t)text[i]] >= 0;
    }
    if (!falls_back) {
        out->ids[out->n++] = whole >= 0 ? whole : m->unk_id;
    }
    for (size_t i = bytes; falls_back && i-- > 0;) {
        out->ids[out->n++] = m->fallback_id[(uint8_t)text[i]];
    }
}

static void reverse(int32_t *ids, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        int32_t id = ids[i];
        ids[i] = ids[n - 1 - i];
        ids[n - 1 - i] = id;
    }
}

int unigram_encode(const unigram_model *m, const vocab *v, const char *piece, size_t bytes,
                   unigram_scratch *s, id_list *out, smoe_error *err) {
    size_t before = out->n;
    int rc = reserve(s, bytes + 1, err);
    rc = rc ? rc : id_list_reserve(out, bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (size_t i = 0; i <= bytes; i++) {
        s->nodes[i] = (unigram_node){.start = NO_START};
    }
    s->nodes[0].score = s->so_far;
    search(m, s->nodes, piece, bytes);
    s->so_far = m->is_sentencepiece ? s->nodes[bytes].score : 0;
    for (size_t end = bytes; end > 0;) {
        size_t start = (size_t)s->nodes[end].start;
        int32_t id = s->nodes[end].id;
        /* neighbouring unknown characters are one */
        while (id == m->unk_id && start > 0 && s->nodes[start].id == m->unk_id) {
            start = (size_t)s->nodes[start].start;
        }
        if (id < 0) {
            return err_set(err, SMOE_ERR_UNSUPPORTED,
                           "a character that the tokenizer does not know, and it has no unknown "
                           "token");
        }
        if (id == m->unk_id) {
            add_unknown(m, v, piece + start, end - start, out);
        } else {
            out->ids[out->n++] = id;
        }
        end = start;
    }
    reverse(out->ids + before, out->n - before);
    return SMOE_OK;
}
