/* The tables of a SentencePiece model, made from its tokens and scores.
 *
 * That library merges two symbols whenever their text together is a token, the highest score first.
 * Here that is a merge for each way to cut a token in two, with the rank of its score, so that
 * bpe.c gives the same result. Characters that are no tokens may take part, as symbols of their
 * own.
 */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer_read.h"

enum { UNUSED_BYTES = 512 }; /* longest token that may have to fall apart */

typedef struct builder {
    smoe_tokenizer *t;
    bpe_model *m;
    const double *score;
    uint32_t *order; /* ids of the mergeable tokens, the highest score first */
    uint32_t n_order;
    size_t cap_extra;
    smoe_error *err;
} builder;

static int wrong_token(const builder *b, uint32_t id, const char *what) {
    return err_set(b->err, SMOE_ERR_FORMAT, "%s: token %u %s", b->t->label, id, what);
}

/* ---- checks and what both kinds have */

static bool takes_part(const vocab_token *t) {
    return t->is_present && t->is_findable && t->bytes > 0;
}

static int check_tokens(const builder *b) {
    const vocab *v = &b->t->vocab;
    for (uint32_t id = 0; id < v->n_id; id++) {
        const vocab_token *t = &v->tokens[id];
        const char *text = vocab_text(v, id);
        if (!takes_part(t)) {
            continue;
        }
        if (!utf8_valid((const uint8_t *)text, t->bytes)) {
            return wrong_token(b, id, "is not UTF-8");
        }
        if (vocab_find(v, text, t->bytes, false) != (int32_t)id) {
            return wrong_token(b, id, "has the text of another one");
        }
        if (!isfinite(b->score[id])) {
            return wrong_token(b, id, "has a score that is not finite");
        }
        if (t->bytes > ADDED_TOKEN_BYTES ||
            (t->type == TEXT_TOKEN_UNUSED && t->bytes > UNUSED_BYTES)) {
            return wrong_token(b, id, "is too long");
        }
    }
    return SMOE_OK;
}

static int find_fallback(const builder *b, int32_t ids[256]) {
    const vocab *v = &b->t->vocab;
    unsigned n = 0;
    for (unsigned i = 0; i < 256; i++) {
        ids[i] = -1;
    }
    for (uint32_t id = 0; id < v->n_id; id++) {
        static const char hex[] = "0123456789ABCDEF";
        const vocab_token *t = &v->tokens[id];
        const char *text = vocab_text(v, id);
        if (!t->is_present || t->type != TEXT_TOKEN_BYTE) {
            continue;
        }
        const char *high = t->bytes == 6 && text[3] ? strchr(hex, text[3]) : NULL;
        const char *low = high && text[4] ? strchr(hex, text[4]) : NULL;
        if (!low || memcmp(text, "<0x", 3) != 0 || text[5] != '>') {
            return wrong_token(b, id, "is no byte token, though its type says so");
        }
        int32_t *at = &ids[(high - hex) << 4 | (low - hex)];
        n += *at < 0;
        *at = (int32_t)id;
    }
    return n == 256
               ? SMOE_OK
               : err_set(b->err, SMOE_ERR_FORMAT,
                         "%s: byte_fallback needs 256 byte tokens, there are %u", b->t->label, n);
}

/* A trie of the user-defined tokens, or of all that text can become. */
static int build_trie(const builder *b, trie *out, bool only_user_defined) {
    const vocab *v = &b->t->vocab;
    text_piece *keys = mem_array(v->n_id, sizeof *keys);
    int32_t *ids = mem_array(v->n_id, sizeof *ids);
    size_t n = 0;
    int rc = keys && ids ? SMOE_OK : err_no_memory(b->err, v->n_id * sizeof *keys);
    for (uint32_t id = 0; id < v->n_id && rc == SMOE_OK; id++) {
        const vocab_token *t = &v->tokens[id];
        bool is_in =
            only_user_defined ? t->type == TEXT_TOKEN_USER_DEFINED : t->type != TEXT_TOKEN_UNUSED;
        if (takes_part(t) && is_in) {
            keys[n] = (text_piece){vocab_text(v, id), t->bytes};
            ids[n++] = (int32_t)id;
        }
    }
    rc = rc ? rc : trie_build(out, keys, ids, n, b->err);
    free(keys);
    free(ids);
    return rc;
}

/* The normaliser leaves user-defined symbols alone. */
static int protect_symbols(const builder *b) {
    int rc = SMOE_OK;
    for (size_t i = 0; i < b->t->n_normalizer && rc == SMOE_OK; i++) {
        normalize_step *step = &b->t->normalizers[i];
        if (step->kind == NORMALIZE_SENTENCEPIECE) {
            rc = build_trie(b, &step->verbatim, true);
        }
    }
    return rc;
}

/* ---- Unigram */

static int build_unigram(builder *b, int32_t unk_id) {
    unigram_model *m = &b->t->unigram;
    const vocab *v = &b->t->vocab;
    float least = INFINITY;
    float most = 1.17549435e-38f; /* the library starts from FLT_MIN, and so do we */
    m->is_sentencepiece = true;
    m->unk_id = unk_id;
    m->score = b->t->score;
    b->t->score = NULL;
    for (uint32_t id = 0; id < v->n_id; id++) {
        if (v->tokens[id].is_present && v->tokens[id].is_findable &&
            v->tokens[id].type == TEXT_TOKEN_NORMAL) {
            float score = (float)m->score[id];
            least = score < least ? score : least;
            most = score > most ? score : most;
        }
    }
    m->unk_score = (double)(least - 10.0f);
    for (uint32_t id = 0; id < v->n_id; id++) {
        if (v->tokens[id].type == TEXT_TOKEN_USER_DEFINED) {
            m->score[id] = (double)((float)v->tokens[id].bytes * most) - 0.1;
        }
    }
    return build_trie(b, &m->tokens, false);
}

/* ---- BPE */

static int add_extra(builder *b, int32_t token, size_t bytes, int32_t *symbol) {
    bpe_model *m = b->m;
    if (m->n_extra == b->cap_extra) {
        size_t cap = b->cap_extra ? b->cap_extra * 2 : 64;
        bpe_extra *extra = realloc(m->extra, cap * sizeof *extra);
        if (!extra) {
            return err_no_memory(b->err, cap * sizeof *extra);
        }
        m->extra = extra;
        b->cap_extra = cap;
    }
    *symbol = (int32_t)(b->t->vocab.n_id + m->n_extra);
    m->extra[m->n_extra++] = (bpe_extra){token, (uint32_t)bytes};
    return SMOE_OK;
}

/* Every character of the tokens as a symbol: its token, or one of its own. */
static int add_chars(builder *b, uint32_t id) {
    const vocab *v = &b->t->vocab;
    const uint8_t *text = (const uint8_t *)vocab_text(v, id);
    size_t bytes = v->tokens[id].bytes;
    int rc = SMOE_OK;
    for (size_t i = 0; i < bytes && rc == SMOE_OK;) {
        uint32_t cp = 0;
        size_t used = utf8_decode(text + i, bytes - i, &cp);
        if (cp_table_get(&b->m->char_id, cp) < 0) {
            int32_t symbol = vocab_find(v, (const char *)text + i, used, false);
            rc = symbol < 0 ? add_extra(b, -1, used, &symbol) : SMOE_OK;
            rc = rc ? rc : cp_table_set(&b->m->char_id, cp, symbol, b->err);
        }
        i += used;
    }
    return rc;
}

/* The symbol whose text these bytes are, -1 when there is none. */
static int32_t find_symbol(const builder *b, const char *text, size_t bytes) {
    uint32_t cp = 0;
    if (bytes <= 4 && utf8_decode((const uint8_t *)text, bytes, &cp) == bytes) {
        return cp_table_get(&b->m->char_id, cp);
    }
    return vocab_find(&b->t->vocab, text, bytes, false);
}

static int compare_scores(const void *a, const void *b, void *user) {
    const double *score = user;
    double x = score[*(const uint32_t *)a];
    double y = score[*(const uint32_t *)b];
    return x > y ? -1 : x < y;
}

/* A merge for each way to cut a token, or with no rank only counts them. */
static size_t add_cuts(builder *b, uint32_t id, uint32_t rank, bool counts) {
    const vocab *v = &b->t->vocab;
    const char *text = vocab_text(v, id);
    size_t bytes = v->tokens[id].bytes;
    size_t n = 0;
    for (size_t cut = 1; cut < bytes; cut++) {
        if (((uint8_t)text[cut] & 0xc0) == 0x80) {
            continue;
        }
        int32_t left = find_symbol(b, text, cut);
        int32_t right = left < 0 ? -1 : find_symbol(b, text + cut, bytes - cut);
        if (right < 0) {
            continue;
        }
        n++;
        if (!counts) {
            bpe_add_merge(b->m, (uint32_t)left, (uint32_t)right, rank, id);
        }
    }
    return n;
}

static int build_merges(builder *b) {
    const vocab *v = &b->t->vocab;
    size_t n_merge = 0;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < b->n_order; i++) {
        n_merge += add_cuts(b, b->order[i], 0, true);
    }
    int rc = bpe_init(b->m, n_merge, v, b->err);
    for (uint32_t i = 0; i < b->n_order && rc == SMOE_OK; i++) {
        rank += i > 0 && b->score[b->order[i]] != b->score[b->order[i - 1]];
        add_cuts(b, b->order[i], rank, false);
    }
    return rc;
}

/* User-defined symbols as symbols that never merge. */
static int freeze_symbols(builder *b) {
    trie *t = &b->m->verbatim;
    int rc = build_trie(b, t, true);
    for (size_t i = 0; i < t->n_node && rc == SMOE_OK; i++) {
        int32_t id = t->nodes[i].value;
        if (id >= 0) {
            rc = add_extra(b, id, b->t->vocab.tokens[id].bytes, &t->nodes[i].value);
        }
    }
    return rc;
}

static int build_bpe(builder *b, int32_t unk_id) {
    const vocab *v = &b->t->vocab;
    int32_t ignored;
    int rc = SMOE_OK;
    b->m->kind = BPE_SENTENCEPIECE;
    for (size_t i = 1; i <= BPE_UNKNOWN_EXTRAS && rc == SMOE_OK; i++) {
        rc = add_extra(b, -1, i, &ignored);
    }
    for (uint32_t id = 0; id < v->n_id && rc == SMOE_OK; id++) {
        if (takes_part(&v->tokens[id])) {
            b->m->has_unused |= v->tokens[id].type == TEXT_TOKEN_UNUSED;
            b->order[b->n_order++] = id;
            rc = add_chars(b, id);
        }
    }
    rc = rc ? rc : freeze_symbols(b);
    if (rc != SMOE_OK) {
        return rc;
    }
    qsort_r(b->order, b->n_order, sizeof *b->order, compare_scores, (void *)(uintptr_t)b->score);
    rc = build_merges(b);
    b->m->unk_id = unk_id;
    bpe_find_cuts(b->m, v);
    return rc;
}

int sentencepiece_build(smoe_tokenizer *t, int32_t unk_id, bool byte_fallback, smoe_error *err) {
    builder b = {.t = t, .m = &t->bpe, .score = t->score, .err = err};
    int rc = check_tokens(&b);
    rc = rc ? rc : protect_symbols(&b);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (t->is_unigram) {
        t->unigram.has_fallback = byte_fallback;
        rc = byte_fallback ? find_fallback(&b, t->unigram.fallback_id) : SMOE_OK;
        return rc ? rc : build_unigram(&b, unk_id);
    }
    b.order = mem_array(t->vocab.n_id, sizeof *b.order);
    rc = b.order ? build_bpe(&b, unk_id) : err_no_memory(err, t->vocab.n_id * sizeof *b.order);
    t->bpe.has_fallback = byte_fallback;
    rc = rc || !byte_fallback ? rc : find_fallback(&b, t->bpe.fallback_id);
    free(b.order);
    return rc;
}
