/* Reads model of a settings document: a BPE or Unigram model with its tables, or with a
 * model_source in their place. Byte-level models are those whose pre-tokenizer is ByteLevel. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "text/tokenizer_read.h"

/* ---- the vocabulary */

static int read_vocab_id(reader *r, const char *content, struct json_object *value, int64_t *id) {
    char what[PATH_BYTES];
    *id = json_object_get_int64(value);
    if (json_object_is_type(value, json_type_int) && *id >= 0 && *id < LIMIT_VOCAB) {
        return SMOE_OK; /* naming it for an error is slow a hundred thousand times */
    }
    snprintf(what, sizeof what, "model.vocab: id of \"%.100s\"", content);
    return json_value_int(value, r->label, what, 0, LIMIT_VOCAB - 1, id, r->err);
}

/* Largest id of the added tokens, -1 without any; checks every one. */
static int find_max_added(reader *r, struct json_object *added, int64_t *max_id) {
    int rc = SMOE_OK;
    *max_id = -1;
    for (size_t i = 0; added && i < json_object_array_length(added) && rc == SMOE_OK; i++) {
        char path[PATH_BYTES];
        int64_t id = 0;
        snprintf(path, sizeof path, "added_tokens[%zu].", i);
        json_at at = {json_object_array_get_idx(added, i), r->label, path};
        if (!json_object_is_type(at.object, json_type_object)) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: added_tokens[%zu] must be an object",
                           r->label, i);
        }
        rc = json_need_int(&at, "id", 0, LIMIT_VOCAB - 1, &id, r->err);
        *max_id = id > *max_id ? id : *max_id;
    }
    return rc;
}

/* Makes room for n tokens of the model with ids up to max_id, and for the added ones. */
static int init_vocab(reader *r, struct json_object *added, size_t n, int64_t max_id) {
    uint32_t n_added = added ? (uint32_t)json_object_array_length(added) : 0;
    int64_t max_added = -1;
    if (n == 0 || n > LIMIT_VOCAB) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.vocab has %s tokens", r->label,
                       n ? "too many" : "no");
    }
    int rc = find_max_added(r, added, &max_added);
    max_id = max_added > max_id ? max_added : max_id;
    if (rc == SMOE_OK && max_id >= 2 * ((int64_t)n + n_added) + 1024) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: id %lld is out of range for %zu tokens",
                       r->label, (long long)max_id, n + n_added);
    }
    r->n_model = (uint32_t)n;
    r->t->vocab.is_byte_level = r->t->pretok.is_byte_level;
    return rc ? rc : vocab_init(&r->t->vocab, (uint32_t)max_id + 1, (uint32_t)n, r->err);
}

/* {"token": id, ...} as a list. */
static int list_vocab(reader *r, struct json_object *entries, json_tables *out) {
    size_t n = (size_t)json_object_object_length(entries);
    struct json_object_iterator it = json_object_iter_begin(entries);
    struct json_object_iterator end = json_object_iter_end(entries);
    int rc = SMOE_OK;
    out->token = mem_array(n + 1, sizeof *out->token);
    if (!out->token) {
        return err_no_memory(r->err, n * sizeof *out->token);
    }
    for (; rc == SMOE_OK && !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *content = json_object_iter_peek_name(&it);
        table_token *t = &out->token[out->n_token++];
        t->content = (text_piece){content, strlen(content)};
        rc = read_vocab_id(r, content, json_object_iter_peek_value(&it), &t->id);
    }
    return rc;
}

static int fill_vocab(reader *r, const json_tables *tables, struct json_object *added) {
    vocab *v = &r->t->vocab;
    int64_t max_id = 0;
    for (size_t i = 0; i < tables->n_token; i++) {
        max_id = tables->token[i].id > max_id ? tables->token[i].id : max_id;
    }
    int rc = init_vocab(r, added, tables->n_token, max_id);
    for (size_t i = 0; i < tables->n_token && rc == SMOE_OK; i++) {
        const text_piece *content = &tables->token[i].content;
        uint32_t id = (uint32_t)tables->token[i].id;
        if (v->tokens[id].is_present) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.vocab: two tokens have id %u",
                           r->label, id);
        }
        rc = vocab_add(v, id, content->data, content->bytes, true, r->err);
    }
    return rc;
}

/* ---- merges */

static int malformed_merge(const reader *r, size_t index) {
    return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.merges: malformed merge %zu", r->label,
                   index);
}

static text_piece piece_of(struct json_object *text) {
    return (text_piece){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
}

/* One merge as it is written; false when it is neither form, or not that of the first. */
static bool list_merge(struct json_object *item, bool is_text, table_merge *out) {
    *out = (table_merge){0};
    if (is_text) {
        out->left = json_object_is_type(item, json_type_string) ? piece_of(item) : out->left;
        return out->left.data != NULL;
    }
    if (!json_object_is_type(item, json_type_array) || json_object_array_length(item) != 2) {
        return false;
    }
    struct json_object *left = json_object_array_get_idx(item, 0);
    struct json_object *right = json_object_array_get_idx(item, 1);
    if (!json_object_is_type(left, json_type_string) ||
        !json_object_is_type(right, json_type_string)) {
        return false;
    }
    out->left = piece_of(left);
    out->right = piece_of(right);
    return true;
}

static int list_merges(reader *r, struct json_object *list, json_tables *out) {
    size_t n = json_object_array_length(list);
    bool is_text =
        n > 0 && json_object_is_type(json_object_array_get_idx(list, 0), json_type_string);
    out->merge = mem_array(n + 1, sizeof *out->merge);
    if (!out->merge) {
        return err_no_memory(r->err, n * sizeof *out->merge);
    }
    for (; out->n_merge < n; out->n_merge++) {
        if (!list_merge(json_object_array_get_idx(list, out->n_merge), is_text,
                        &out->merge[out->n_merge])) {
            return malformed_merge(r, out->n_merge);
        }
    }
    return SMOE_OK;
}

/* Cuts the older form, "left right", at its space. */
static bool split_merge(table_merge *m) {
    const char *text = m->left.data;
    const char *end = text + m->left.bytes;
    if (!m->right.data) {
        const char *space = memchr(text, ' ', m->left.bytes);
        if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1))) {
            return false;
        }
        m->left.bytes = (size_t)(space - text);
        m->right = (text_piece){space + 1, (size_t)(end - space - 1)};
    }
    return m->left.bytes > 0 && m->right.bytes > 0;
}

static int add_merge(reader *r, const table_merge *m, size_t index, uint32_t rank) {
    const vocab *v = &r->t->vocab;
    char joined[1024];
    size_t n = m->left.bytes + m->right.bytes;
    char *product = n <= sizeof joined ? joined : malloc(n);
    if (!product) {
        return err_no_memory(r->err, n);
    }
    memcpy(product, m->left.data, m->left.bytes);
    memcpy(product + m->left.bytes, m->right.data, m->right.bytes);
    int32_t left = vocab_find_content(v, m->left.data, m->left.bytes);
    int32_t right = vocab_find_content(v, m->right.data, m->right.bytes);
    int32_t id = vocab_find_content(v, product, n);
    text_piece missing = left < 0 ? m->left : right < 0 ? m->right : (text_piece){product, n};
    int rc = SMOE_OK;
    if (left < 0 || right < 0 || id < 0) {
        rc = err_set(r->err, SMOE_ERR_FORMAT,
                     "%s: model.merges[%zu]: merge %s %.*s is not in the vocabulary", r->label,
                     index, left < 0 || right < 0 ? "part" : "result",
                     (int)(missing.bytes < 100 ? missing.bytes : 100), missing.data);
    } else {
        bpe_add_merge(&r->t->bpe, (uint32_t)left, (uint32_t)right, rank, (uint32_t)id);
    }
    if (product != joined) {
        free(product);
    }
    return rc;
}

static int fill_merges(reader *r, const json_tables *tables) {
    static const char comment[] = "#version"; /* a line of merges.txt, without a rank */
    uint32_t rank = 0;
    int rc = bpe_init(&r->t->bpe, tables->n_merge, &r->t->vocab, r->err);
    for (size_t i = 0; i < tables->n_merge && rc == SMOE_OK; i++) {
        table_merge m = tables->merge[i];
        if (!m.right.data && m.left.bytes >= sizeof comment - 1 &&
            memcmp(m.left.data, comment, sizeof comment - 1) == 0) {
            continue;
        }
        rc = split_merge(&m) ? add_merge(r, &m, i, rank++) : malformed_merge(r, i);
    }
    return rc;
}

/* ---- BPE */

/* What becomes of characters that have no token. */
static int read_unknown(reader *r, const json_at *at, const char **unk, size_t *unk_bytes) {
    bpe_model *m = &r->t->bpe;
    static const char *const unused[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout = 0;
    int rc = json_opt_text(at, "unk_token", unk, unk_bytes, r->err);
    for (unsigned i = 0; i < 2 && rc == SMOE_OK; i++) {
        const char *text = "";
        size_t bytes = 0;
        rc = json_opt_text(at, unused[i], &text, &bytes, r->err);
        if (rc == SMOE_OK && bytes > 0) {
            return read_unsupported(r, "model with", unused[i]);
        }
    }
    rc = rc ? rc : json_opt_bool(at, "fuse_unk", &m->fuse_unk, r->err);
    rc = rc ? rc : json_opt_bool(at, "byte_fallback", &m->has_fallback, r->err);
    rc = rc ? rc : json_opt_number(at, "dropout", 0, 1, &dropout, r->err);
    rc = rc ? rc : json_opt_bool(at, "ignore_merges", &m->ignore_merges, r->err);
    return rc == SMOE_OK && dropout > 0 ? read_unsupported(r, "model with", "dropout") : rc;
}

/* Ids of the byte tokens <0x00> to <0xFF>, -1 where there is none; returns how many there are. */
static unsigned find_fallback(const vocab *v, int32_t ids[256]) {
    unsigned n = 0;
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        ids[b] = vocab_find_content(v, name, 6);
        n += ids[b] >= 0;
    }
    return n;
}

/* The symbols that pieces start as, once the vocabulary is there. */
static int prepare_symbols(reader *r) {
    bpe_model *m = &r->t->bpe;
    const vocab *v = &r->t->vocab;
    int rc = SMOE_OK;
    m->kind = v->is_byte_level ? BPE_BYTES : BPE_CHARS;
    if (m->kind == BPE_BYTES) {
        for (unsigned b = 0; b < 256 && m->has_fallback; b++) {
            if (m->byte_id[b] < 0) {
                return read_unsupported(r, "pre-tokenizer ByteLevel with", "byte_fallback");
            }
        }
        return SMOE_OK;
    }
    find_fallback(v, m->fallback_id);
    for (uint32_t id = 0; id < v->n_id && rc == SMOE_OK; id++) {
        uint32_t cp = 0;
        const vocab_token *t = &v->tokens[id];
        if (t->is_findable && t->bytes > 0 && t->bytes <= 4 &&
            utf8_decode((const uint8_t *)vocab_text(v, id), t->bytes, &cp) == t->bytes) {
            rc = cp_table_set(&m->char_id, cp, (int32_t)id, r->err);
        }
    }
    bpe_find_cuts(m, v);
    return rc;
}

static int list_tables(reader *r, const json_at *at, json_tables *out) {
    struct json_object *entries = NULL;
    struct json_object *merges = NULL;
    int rc = json_need_object(at, "vocab", &entries, r->err);
    rc = rc ? rc : json_opt_array(at, "merges", &merges, r->err);
    if (rc == SMOE_OK && !merges) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.merges is missing", r->label);
    }
    rc = rc ? rc : list_vocab(r, entries, out);
    return rc ? rc : list_merges(r, merges, out);
}

static int read_bpe_tables(reader *r, const json_at *at, struct json_object *added) {
    json_tables own = {0};
    int rc = SMOE_OK;
    if (r->source) {
        rc = init_vocab(r, added, r->source->n_id, (int64_t)r->source->n_id - 1);
        return rc ? rc : r->source->fill(r->source, r->t, r->err);
    }
    if (!r->tables) {
        rc = list_tables(r, at, &own);
    }
    rc = rc ? rc : fill_vocab(r, r->tables ? r->tables : &own, added);
    rc = rc ? rc : fill_merges(r, r->tables ? r->tables : &own);
    json_tables_free(&own);
    return rc;
}

static int read_bpe(reader *r, const json_at *at, struct json_object *added) {
    const char *unk = NULL;
    size_t unk_bytes = 0;
    int rc = read_unknown(r, at, &unk, &unk_bytes);
    rc = rc ? rc : read_bpe_tables(r, at, added);
    if (rc == SMOE_OK && unk) {
        r->t->bpe.unk_id = vocab_find_content(&r->t->vocab, unk, unk_bytes);
        if (r->t->bpe.unk_id < 0) {
            return err_set(r->err, SMOE_ERR_FORMAT,
                           "%s: model.unk_token %.60s is not in the vocabulary", r->label, unk);
        }
    }
    return rc ? rc : prepare_symbols(r);
}

/* ---- Unigram */

/* [["token", score], ...] */
static int read_scored_vocab(reader *r, struct json_object *list, struct json_object *added) {
    smoe_tokenizer *t = r->t;
    size_t n = json_object_array_length(list);
    int rc = init_vocab(r, added, n, (int64_t)n - 1);
    t->score = rc == SMOE_OK ? mem_array(t->vocab.n_id, sizeof *t->score) : NULL;
    if (rc == SMOE_OK && !t->score) {
        rc = err_no_memory(r->err, t->vocab.n_id * sizeof *t->score);
    }
    for (size_t i = 0; i < n && rc == SMOE_OK; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        bool is_pair =
            json_object_is_type(item, json_type_array) && json_object_array_length(item) == 2;
        struct json_object *text = is_pair ? json_object_array_get_idx(item, 0) : NULL;
        struct json_object *score = is_pair ? json_object_array_get_idx(item, 1) : NULL;
        bool is_number = json_object_is_type(score, json_type_double) ||
                         json_object_is_type(score, json_type_int);
        if (!json_object_is_type(text, json_type_string) || !is_number) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.vocab[%zu] is malformed", r->label,
                           i);
        }
        t->score[i] = json_object_get_double(score);
        rc = vocab_add(&t->vocab, (uint32_t)i, json_object_get_string(text),
                       (size_t)json_object_get_string_len(text), true, r->err);
    }
    return rc;
}

/* The trie, and the score of an unknown character: ten less than the least. */
static int build_unigram(reader *r) {
    smoe_tokenizer *t = r->t;
    unigram_model *m = &t->unigram;
    uint32_t n = r->n_model;
    size_t n_key = 0;
    double least = HUGE_VAL;
    text_piece *keys = mem_array(n, sizeof *keys);
    int32_t *ids = mem_array(n, sizeof *ids);
    int rc = keys && ids ? SMOE_OK : err_no_memory(r->err, n * sizeof *keys);
    for (uint32_t id = 0; id < n && rc == SMOE_OK; id++) {
        const vocab_token *token = &t->vocab.tokens[id];
        if (!token->is_findable) {
            continue;
        }
        keys[n_key] = (text_piece){vocab_text(&t->vocab, id), token->bytes};
        ids[n_key] = (int32_t)id;
        least = t->score[id] < least ? t->score[id] : least;
        if (!isfinite(t->score[id])) {
            rc = err_set(r->err, SMOE_ERR_FORMAT, "%s: the score of token %u is not finite",
                         r->label, id);
        } else if (token->bytes > ADDED_TOKEN_BYTES) {
            rc = read_unsupported(r, "a Unigram token of more than", "1024 bytes");
        } else if (vocab_find(&t->vocab, keys[n_key].data, token->bytes, false) != (int32_t)id) {
            rc = read_unsupported(r, "a Unigram vocabulary with", "one token twice");
        }
        n_key++;
    }
    rc = rc ? rc : trie_build(&m->tokens, keys, ids, n_key, r->err);
    m->score = t->score;
    t->score = NULL;
    m->unk_score = least - 10;
    free(keys);
    free(ids);
    return rc;
}

static int read_unigram(reader *r, const json_at *at, struct json_object *added) {
    unigram_model *m = &r->t->unigram;
    struct json_object *list = NULL;
    int64_t unk_id = -1;
    r->t->is_unigram = true;
    if (r->t->pretok.is_byte_level) {
        return read_unsupported(r, "model Unigram with pre-tokenizer", "ByteLevel");
    }
    int rc = json_opt_int(at, "unk_id", 0, LIMIT_VOCAB - 1, &unk_id, r->err);
    rc = rc ? rc : json_opt_bool(at, "byte_fallback", &m->has_fallback, r->err);
    if (rc == SMOE_OK && r->source) {
        rc = init_vocab(r, added, r->source->n_id, (int64_t)r->source->n_id - 1);
        rc = rc ? rc : r->source->fill(r->source, r->t, r->err);
    } else {
        rc = rc ? rc : json_opt_array(at, "vocab", &list, r->err);
        if (rc == SMOE_OK && !list) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.vocab is missing", r->label);
        }
        rc = rc ? rc : read_scored_vocab(r, list, added);
    }
    if (rc == SMOE_OK && unk_id >= (int64_t)r->n_model) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.unk_id is out of range", r->label);
    }
    m->unk_id = (int32_t)unk_id;
    find_fallback(&r->t->vocab, m->fallback_id);
    return rc ? rc : build_unigram(r);
}

/* ---- either */

/* A model of our own: SentencePiece's, whose tables are made from vocabulary and scores. */
static int read_sentencepiece(reader *r, const json_at *at, struct json_object *added,
                              bool is_unigram) {
    int64_t unk_id = 0;
    bool byte_fallback = false;
    r->t->is_unigram = is_unigram;
    int rc = json_need_int(at, "unk_id", 0, LIMIT_VOCAB - 1, &unk_id, r->err);
    rc = rc ? rc : json_opt_bool(at, "byte_fallback", &byte_fallback, r->err);
    rc = rc ? rc : init_vocab(r, added, r->source->n_id, (int64_t)r->source->n_id - 1);
    if (rc == SMOE_OK && (uint64_t)unk_id >= r->source->n_id) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: unk_id is out of range", r->label);
    }
    rc = rc ? rc : r->source->fill(r->source, r->t, r->err);
    return rc ? rc : sentencepiece_build(r->t, (int32_t)unk_id, byte_fallback, r->err);
}

int read_model(reader *r, const json_at *root, struct json_object *added) {
    struct json_object *model = NULL;
    const char *type = "BPE"; /* files of the first releases do not name it */
    int rc = json_need_object(root, "model", &model, r->err);
    json_at at = {model, root->label, "model."};
    rc = rc ? rc : json_opt_text(&at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (r->source && strncmp(type, "SentencePiece", 13) == 0) {
        return read_sentencepiece(r, &at, added, strcmp(type + 13, "Unigram") == 0);
    }
    if (strcmp(type, "BPE") == 0) {
        return read_bpe(r, &at, added);
    }
    return strcmp(type, "Unigram") == 0 ? read_unigram(r, &at, added)
                                        : read_unsupported(r, "model type", type);
}
