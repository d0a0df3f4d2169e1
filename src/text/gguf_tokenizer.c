/* Tokenizers from the tables of a GGUF file: byte-level BPE ("gpt2") and SentencePiece ("llama").
 *
 * Control tokens and user-defined ones are added tokens, which are looked for in the text as it
 * comes. Unused tokens are there to be decoded only.
 */
#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "text/gguf_pre.h"
#include "text/settings_write.h"
#include "text/tokenizer_read.h"

enum { MERGE_PART_BYTES = 1024 };

static uint8_t type_of(const text_tables *g, int32_t id) {
    return g->type ? g->type[id] : TEXT_TOKEN_NORMAL;
}

static bool is_added(const text_tables *g, int32_t id) {
    uint8_t type = type_of(g, id);
    return g->token[id].bytes > 0 && (type == TEXT_TOKEN_CONTROL || type == TEXT_TOKEN_UNKNOWN ||
                                      type == TEXT_TOKEN_USER_DEFINED);
}

/* ---- tables */

static int fill_tokens(const text_tables *g, smoe_tokenizer *t, smoe_error *err) {
    uint32_t n_findable = 0;
    int rc = SMOE_OK;
    for (int32_t id = 0; id < g->n_token && rc == SMOE_OK; id++) {
        text_piece p = g->token[id];
        uint8_t type = type_of(g, id);
        bool is_findable = p.bytes > 0 && type == TEXT_TOKEN_NORMAL;
        if (is_findable && vocab_find_content(&t->vocab, p.data, p.bytes) >= 0) {
            return err_set(err, SMOE_ERR_FORMAT, "%s: token %d has the text of another one",
                           t->label, id);
        }
        rc = vocab_add(&t->vocab, (uint32_t)id, p.data, p.bytes, is_findable, err);
        t->vocab.tokens[id].type = type;
        n_findable += is_findable;
    }
    return rc == SMOE_OK && n_findable == 0
               ? err_set(err, SMOE_ERR_FORMAT, "%s: no token has a text", t->label)
               : rc;
}

static int add_merge(const text_tables *g, smoe_tokenizer *t, int32_t rank, smoe_error *err) {
    const vocab *v = &t->vocab;
    text_piece m = g->merge[rank];
    char joined[2 * MERGE_PART_BYTES];
    /* a part may begin with the space that separates, as an old converter wrote it */
    const char *space = m.bytes > 1 ? memchr(m.data + 1, ' ', m.bytes - 1) : NULL;
    size_t left_bytes = space ? (size_t)(space - m.data) : 0;
    size_t right_bytes = space ? m.bytes - left_bytes - 1 : 0;
    if (right_bytes == 0 || m.bytes > sizeof joined) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: malformed merge %d", t->label, rank);
    }
    memcpy(joined, m.data, left_bytes);
    memcpy(joined + left_bytes, space + 1, right_bytes);
    int32_t left = vocab_find_content(v, m.data, left_bytes);
    int32_t right = vocab_find_content(v, space + 1, right_bytes);
    int32_t id = vocab_find_content(v, joined, left_bytes + right_bytes);
    if (left < 0 || right < 0 || id < 0) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: a part or the result of merge %d is not in the vocabulary", t->label,
                       rank);
    }
    bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, (uint32_t)rank, (uint32_t)id);
    return SMOE_OK;
}

static int fill_bpe(const model_source *source, smoe_tokenizer *t, smoe_error *err) {
    const text_tables *g = source->user;
    int rc = fill_tokens(g, t, err);
    rc = rc ? rc : bpe_init(&t->bpe, (size_t)g->n_merge, &t->vocab, err);
    for (int32_t i = 0; i < g->n_merge && rc == SMOE_OK; i++) {
        rc = add_merge(g, t, i, err);
    }
    return rc;
}

static int fill_sentencepiece(const model_source *source, smoe_tokenizer *t, smoe_error *err) {
    const text_tables *g = source->user;
    t->score = mem_array(t->vocab.n_id, sizeof *t->score);
    if (!t->score) {
        return err_no_memory(err, t->vocab.n_id * sizeof *t->score);
    }
    for (int32_t id = 0; id < g->n_token; id++) {
        t->score[id] = (double)g->score[id];
    }
    return fill_tokens(g, t, err);
}

/* ---- settings */

static int write_added(const text_tables *g, settings *s, const char *label, smoe_error *err) {
    for (int32_t id = 0; id < g->n_token; id++) {
        text_piece p = g->token[id];
        if (!is_added(g, id)) {
            continue;
        }
        if (!utf8_valid((const uint8_t *)p.data, p.bytes)) {
            return err_set(err, SMOE_ERR_FORMAT, "%s: control token %d is not UTF-8", label, id);
        }
        settings_added(s, &(settings_token){.id = id,
                                            .content = p.data,
                                            .bytes = p.bytes,
                                            .special = type_of(g, id) != TEXT_TOKEN_USER_DEFINED});
    }
    return SMOE_OK;
}

static void write_around(const text_tables *g, settings *s, bool add_bos) {
    bool bos = g->add_bos == TEXT_FLAG_OPEN ? add_bos : g->add_bos == TEXT_FLAG_YES;
    bool eos = g->add_eos == TEXT_FLAG_YES;
    settings_around(s, bos ? g->id[TEXT_BOS] : -1, eos ? g->id[TEXT_EOS] : -1);
}

static void write_special(const text_tables *g, settings *s) {
    static const struct {
        enum text_special which;
        const char *name;
    } names[] = {{TEXT_BOS, "bos_token"},  {TEXT_EOS, "eos_token"}, {TEXT_UNK, "unk_token"},
                 {TEXT_SEP, "sep_token"},  {TEXT_PAD, "pad_token"}, {TEXT_CLS, "cls_token"},
                 {TEXT_MASK, "mask_token"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = g->id[names[i].which];
        if (id >= 0 && utf8_valid((const uint8_t *)g->token[id].data, g->token[id].bytes)) {
            settings_special(s, names[i].name, g->token[id].data, g->token[id].bytes);
        }
    }
}

static int write_bpe(const text_tables *g, settings *s, const char *label, smoe_error *err) {
    const gguf_pre *pre = gguf_pre_by_name(g->pre);
    if (!pre) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: pre-tokenizer %.60s is not supported", label,
                       g->pre);
    }
    if (pre->is_nfc) {
        settings_type(s, s->root, "normalizer", "NFC");
    }
    settings_byte_level(s, pre->patterns);
    struct json_object *model = settings_type(s, s->root, "model", "BPE");
    settings_bool(s, model, "ignore_merges", pre->ignore_merges);
    write_around(g, s, pre->add_bos);
    return SMOE_OK;
}

/* The token for what has none: that of its type, else the one that the file names. */
static int32_t unknown_id(const text_tables *g) {
    for (int32_t id = 0; id < g->n_token; id++) {
        if (type_of(g, id) == TEXT_TOKEN_UNKNOWN) {
            return id;
        }
    }
    return g->id[TEXT_UNK] >= 0 ? g->id[TEXT_UNK] : 0;
}

static int write_sentencepiece(const text_tables *g, settings *s, const char *label,
                               smoe_error *err) {
    settings_sentencepiece o = {.charsmap = g->normalizer.data ? g->normalizer.data : "",
                                .charsmap_bytes = g->normalizer.data ? g->normalizer.bytes : 0,
                                .add_dummy_prefix = g->add_space_prefix != TEXT_FLAG_NO,
                                .remove_extra_space = g->remove_extra_space == TEXT_FLAG_YES,
                                .escape_space = true};
    if (!g->score) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: a llama tokenizer without scores", label);
    }
    for (int32_t id = 0; id < g->n_token && !o.byte_fallback; id++) {
        o.byte_fallback = type_of(g, id) == TEXT_TOKEN_BYTE;
    }
    settings_add_sentencepiece(s, &o);
    struct json_object *model = settings_type(s, s->root, "model", "SentencePieceBPE");
    settings_int(s, model, "unk_id", unknown_id(g));
    settings_bool(s, model, "byte_fallback", o.byte_fallback);
    write_around(g, s, true);
    return SMOE_OK;
}

int tokenizer_read_tables(smoe_tokenizer *t, const text_tables *g, struct json_object **out,
                          smoe_error *err) {
    bool is_bpe = strcmp(g->model, "gpt2") == 0;
    settings s;
    if (!is_bpe && strcmp(g->model, "llama") != 0) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: tokenizer model %.60s is not supported",
                       t->label, g->model);
    }
    settings_start(&s);
    int rc = write_added(g, &s, t->label, err);
    write_special(g, &s);
    rc =
        rc ? rc
           : (is_bpe ? write_bpe(g, &s, t->label, err) : write_sentencepiece(g, &s, t->label, err));
    *out = rc == SMOE_OK ? settings_end(&s, err) : (json_object_put(s.root), NULL);
    rc = rc || *out ? rc : SMOE_ERR_MEMORY;
    model_source source = {
        .n_id = (uint32_t)g->n_token, .fill = is_bpe ? fill_bpe : fill_sentencepiece, .user = g};
    return rc ? rc : tokenizer_read_settings(t, *out, &source, err);
}
