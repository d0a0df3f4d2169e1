/* The prepared form of a tokenizer, as a vault keeps it; docs/format.md has the layout. Settings as
 * a document without tables, and the tables flat: lengths, kinds and bytes of the tokens, merges by
 * symbols, scores. Every number is checked before it is used.
 */
#include <string.h>

#include "base/limits.h"
#include "text/tokenizer_read.h"

enum { HEAD_BYTES = 48, MERGE_BYTES = 16, SCORE_BYTES = 8 };
enum { MERGES_AHEAD = 16 }; /* their slots are fetched while earlier ones are filled */
static const char magic[8] = {'s', 'm', 'o', 'e', 't', 'o', 'k', '1'};

enum { KIND_PRESENT = 1, KIND_RAW = 2, KIND_FINDABLE = 4, KIND_TYPE_SHIFT = 4 };
enum { FLAG_BYTE_LEVEL = 1, FLAG_SCORES = 2 };

typedef struct prepared {
    const uint8_t *settings, *lengths, *kinds, *text, *merges, *scores;
    uint32_t settings_bytes, n_id, text_bytes, n_merge, flags;
} prepared;

static uint32_t get_u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put_u32(uint8_t *p, uint32_t v) {
    for (unsigned i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> 8 * i);
    }
}

/* Where each part is; returns the bytes of the whole. */
static uint64_t place(prepared *p, const uint8_t *data) {
    uint64_t at = HEAD_BYTES;
    const struct {
        const uint8_t **part;
        uint64_t bytes;
    } parts[] = {{&p->settings, p->settings_bytes},
                 {&p->lengths, (uint64_t)4 * p->n_id},
                 {&p->kinds, p->n_id},
                 {&p->text, p->text_bytes},
                 {&p->merges, (uint64_t)MERGE_BYTES * p->n_merge},
                 {&p->scores, p->flags & FLAG_SCORES ? (uint64_t)SCORE_BYTES * p->n_id : 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].part = data ? data + at : NULL;
        at += parts[i].bytes;
    }
    return at;
}

/* ---- reading */

static int malformed(const smoe_tokenizer *t, const char *what, smoe_error *err) {
    return err_set(err, SMOE_ERR_FORMAT, "%s: %s; sculpt the model again", t->label, what);
}

static int fill_tokens(const prepared *p, smoe_tokenizer *t, smoe_error *err) {
    uint64_t at = 0;
    int rc = SMOE_OK;
    for (uint32_t id = 0; id < p->n_id && rc == SMOE_OK; id++) {
        uint32_t bytes = get_u32(p->lengths + 4 * (size_t)id);
        unsigned kind = p->kinds[id];
        unsigned type = kind >> KIND_TYPE_SHIFT;
        if (bytes > p->text_bytes - at || type > TEXT_TOKEN_BYTE) {
            return malformed(t, "malformed token table", err);
        }
        if (kind & KIND_PRESENT) {
            rc = vocab_keep(&t->vocab, id, (const char *)p->text + at, bytes, kind & KIND_RAW,
                            kind & KIND_FINDABLE, err);
            t->vocab.tokens[id].type = (uint8_t)type;
        }
        at += bytes;
    }
    vocab_index_kept(&t->vocab);
    return rc;
}

static int fill_merges(const prepared *p, smoe_tokenizer *t, smoe_error *err) {
    int rc = bpe_init(&t->bpe, p->n_merge, &t->vocab, err);
    for (uint32_t i = 0; i < p->n_merge && rc == SMOE_OK; i++) {
        const uint8_t *m = p->merges + MERGE_BYTES * (size_t)i;
        if (p->n_merge - i > MERGES_AHEAD) {
            const uint8_t *later = m + (size_t)MERGE_BYTES * MERGES_AHEAD;
            bpe_prefetch_merge(&t->bpe, get_u32(later), get_u32(later + 4));
        }
        uint32_t left = get_u32(m);
        uint32_t right = get_u32(m + 4);
        uint32_t id = get_u32(m + 12);
        if (left >= p->n_id || right >= p->n_id || id >= p->n_id ||
            !t->vocab.tokens[id].is_present) {
            return malformed(t, "malformed merge table", err);
        }
        bpe_add_merge(&t->bpe, left, right, get_u32(m + 8), id);
    }
    return rc;
}

static int fill(const model_source *source, smoe_tokenizer *t, smoe_error *err) {
    const prepared *p = source->user;
    bool is_byte_level = p->flags & FLAG_BYTE_LEVEL;
    if (is_byte_level != t->vocab.is_byte_level) {
        return malformed(t, "tables and settings contradict each other", err);
    }
    int rc = fill_tokens(p, t, err);
    if (rc == SMOE_OK && (p->flags & FLAG_SCORES)) {
        t->score = mem_array(t->vocab.n_id, sizeof *t->score);
        if (!t->score) {
            return err_no_memory(err, t->vocab.n_id * sizeof *t->score);
        }
        for (uint32_t id = 0; id < p->n_id; id++) {
            uint64_t bits = get_u32(p->scores + SCORE_BYTES * (size_t)id) |
                            (uint64_t)get_u32(p->scores + SCORE_BYTES * (size_t)id + 4) << 32;
            memcpy(&t->score[id], &bits, sizeof bits);
        }
        return SMOE_OK;
    }
    if (rc == SMOE_OK && t->is_unigram) {
        return malformed(t, "a Unigram model without scores", err);
    }
    return rc ? rc : fill_merges(p, t, err);
}

int tokenizer_read_prepared(smoe_tokenizer *t, const text_blob *blob, struct json_object **settings,
                            smoe_error *err) {
    const uint8_t *data = (const uint8_t *)blob->data;
    if (blob->bytes < HEAD_BYTES || memcmp(data, magic, sizeof magic) != 0) {
        return malformed(t, "not a prepared tokenizer", err);
    }
    prepared p = {.settings_bytes = get_u32(data + 8),
                  .n_id = get_u32(data + 12),
                  .text_bytes = get_u32(data + 16),
                  .n_merge = get_u32(data + 20),
                  .flags = get_u32(data + 24)};
    if (p.n_id > LIMIT_VOCAB || p.flags > (FLAG_BYTE_LEVEL | FLAG_SCORES) ||
        place(&p, data) != blob->bytes) {
        return malformed(t, "malformed head", err);
    }
    model_source source = {.n_id = p.n_id, .fill = fill, .user = &p};
    int rc = json_parse(settings, (const char *)p.settings, p.settings_bytes, t->label, 0, err);
    return rc ? rc : tokenizer_read_settings(t, *settings, &source, err);
}

/* ---- writing */

static int compare_ranks(const void *a, const void *b) {
    const bpe_merge *x = a;
    const bpe_merge *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return x->left != y->left ? (x->left < y->left ? -1 : 1) : (x->right > y->right) * 2 - 1;
}

static int write_merges(const bpe_model *m, uint8_t *out, smoe_error *err) {
    uint32_t n = 0;
    bpe_merge *sorted = mem_array((size_t)m->n_merge + 1, sizeof *sorted);
    if (!sorted) {
        return err_no_memory(err, m->n_merge * sizeof *sorted);
    }
    for (uint32_t slot = 0; slot <= m->merge_mask; slot++) {
        if (m->merges[slot].left != UINT32_MAX) {
            sorted[n++] = m->merges[slot];
        }
    }
    qsort(sorted, n, sizeof *sorted, compare_ranks);
    for (uint32_t i = 0; i < n; i++, out += MERGE_BYTES) {
        put_u32(out, sorted[i].left);
        put_u32(out + 4, sorted[i].right);
        put_u32(out + 8, sorted[i].rank);
        put_u32(out + 12, sorted[i].id);
    }
    free(sorted);
    return SMOE_OK;
}

static void write_tokens(const vocab *v, uint8_t *lengths, uint8_t *kinds, uint8_t *text) {
    for (uint32_t id = 0; id < v->n_id; id++) {
        const vocab_token *t = &v->tokens[id];
        uint32_t bytes = t->is_present ? t->bytes : 0;
        put_u32(lengths + 4 * (size_t)id, bytes);
        kinds[id] = (uint8_t)((t->is_present ? KIND_PRESENT : 0) | (t->is_raw ? KIND_RAW : 0) |
                              (t->is_findable ? KIND_FINDABLE : 0) | t->type << KIND_TYPE_SHIFT);
        if (bytes) {
            memcpy(text, vocab_text(v, id), bytes);
            text += bytes;
        }
    }
}

static int write_all(const prepared *p, const smoe_tokenizer *t, const char *settings,
                     uint8_t *data, smoe_error *err) {
    prepared at = *p;
    const double *score = t->is_unigram ? t->unigram.score : t->score;
    place(&at, data);
    memcpy(data, magic, sizeof magic);
    put_u32(data + 8, p->settings_bytes);
    put_u32(data + 12, p->n_id);
    put_u32(data + 16, p->text_bytes);
    put_u32(data + 20, p->n_merge);
    put_u32(data + 24, p->flags);
    memcpy(data + (at.settings - data), settings, p->settings_bytes);
    write_tokens(&t->vocab, data + (at.lengths - data), data + (at.kinds - data),
                 data + (at.text - data));
    for (uint32_t id = 0; score && id < p->n_id; id++) {
        uint64_t bits;
        uint8_t *to = data + (at.scores - data) + SCORE_BYTES * (size_t)id;
        memcpy(&bits, &score[id], sizeof bits);
        put_u32(to, (uint32_t)bits);
        put_u32(to + 4, (uint32_t)(bits >> 32));
    }
    return p->n_merge ? write_merges(&t->bpe, data + (at.merges - data), err) : SMOE_OK;
}

int tokenizer_write_prepared(text_blob *out, const smoe_tokenizer *t, struct json_object *settings,
                             smoe_error *err) {
    const double *score = t->is_unigram ? t->unigram.score : t->score;
    const char *text = json_object_to_json_string_ext(settings, JSON_C_TO_STRING_PLAIN |
                                                                    JSON_C_TO_STRING_NOSLASHESCAPE);
    size_t settings_bytes = text ? strlen(text) : 0;
    uint64_t text_bytes = 0;
    if (!text) {
        return err_no_memory(err, 0);
    }
    for (uint32_t id = 0; id < t->vocab.n_id; id++) {
        text_bytes += t->vocab.tokens[id].is_present ? t->vocab.tokens[id].bytes : 0;
    }
    prepared p = {.settings_bytes = (uint32_t)settings_bytes,
                  .n_id = t->vocab.n_id,
                  .text_bytes = (uint32_t)text_bytes,
                  .n_merge = score ? 0 : t->bpe.n_merge,
                  .flags = (t->vocab.is_byte_level ? (uint32_t)FLAG_BYTE_LEVEL : 0) |
                           (score ? (uint32_t)FLAG_SCORES : 0)};
    uint64_t bytes = place(&p, NULL);
    if (settings_bytes > LIMIT_TOKENIZER_BYTES || bytes > LIMIT_TOKENIZER_BYTES) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: more than %u bytes when prepared", t->label,
                       LIMIT_TOKENIZER_BYTES);
    }
    uint8_t *data = mem_array((size_t)bytes + 1, 1);
    int rc = data ? write_all(&p, t, text, data, err) : err_no_memory(err, bytes);
    if (rc != SMOE_OK) {
        free(data);
        return rc;
    }
    *out = (text_blob){(char *)data, (size_t)bytes};
    return SMOE_OK;
}
