/* The tokenizer as a whole: building it from a container's texts, and encoding.
 *
 * Encoding goes as in the reference library: added tokens are cut out of the text, the rest is
 * normalised, added tokens that are looked for after that are cut out, and what remains goes
 * through the pre-tokenizers, piece by piece, into the model.
 */
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "text/lossy.h"
#include "text/tokenizer_read.h"

enum { CACHE_FROM_BYTES = 2048 };

/* ---- building */

/* A template that does not parse is an error only for those who ask for chat. */
static int read_template(smoe_tokenizer *t, const text_assets *assets, smoe_error *err) {
    char name[256];
    smoe_error why;
    if (!assets->chat_template.data) {
        return SMOE_OK;
    }
    t->output = output_format_detect(assets->chat_template.data, assets->chat_template.bytes);
    snprintf(name, sizeof name, "%.200s: chat template", assets->label ? assets->label : "model");
    if (template_parse(&t->chat, assets->chat_template.data, assets->chat_template.bytes, name,
                       &why) == SMOE_OK) {
        return SMOE_OK;
    }
    t->chat_error = mem_copy_text(why.text, strlen(why.text));
    return t->chat_error ? SMOE_OK : err_no_memory(err, sizeof why.text);
}

/* Texts of special tokens by name: tokenizer_config.json's, else those that the tokenizer's own
 * file names, which t->special already holds. */
static int read_special(smoe_tokenizer *t, const text_assets *assets, smoe_error *err) {
    char label[256];
    struct json_object *own = t->special;
    snprintf(label, sizeof label, "%.200s: tokenizer_config.json",
             assets->label ? assets->label : "model");
    t->special = NULL;
    int rc = template_special_tokens(&t->special, &assets->tokenizer_config, label, err);
    if (rc == SMOE_OK && own) {
        struct json_object_iterator it = json_object_iter_begin(own);
        struct json_object_iterator end = json_object_iter_end(own);
        for (; rc == SMOE_OK && !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
            const char *name = json_object_iter_peek_name(&it);
            struct json_object *text = json_object_iter_peek_value(&it);
            if (!json_find(t->special, name) &&
                json_object_object_add(t->special, name, json_object_get(text)) != 0) {
                json_object_put(text);
                rc = err_no_memory(err, sizeof(void *));
            }
        }
    }
    json_object_put(own);
    return rc;
}

/* ---- the forms that assets may come in */

/* The first of these that is there is used. */
static const char *form_name(const text_assets *assets) {
    return assets->prepared.data          ? "prepared tokenizer"
           : assets->tokenizer_json.data  ? "tokenizer.json"
           : assets->tables               ? "tokenizer"
           : assets->tokenizer_model.data ? "tokenizer.model"
           : assets->tiktoken.data        ? "tiktoken.model"
                                          : NULL;
}

static int read_form(smoe_tokenizer *t, const text_assets *assets, struct json_object **settings,
                     smoe_error *err) {
    if (assets->prepared.data) {
        return tokenizer_read_prepared(t, &assets->prepared, settings, err);
    }
    if (assets->tokenizer_json.data) {
        return tokenizer_read_json(t, &assets->tokenizer_json, settings, err);
    }
    if (assets->tables) {
        return tokenizer_read_tables(t, assets->tables, settings, err);
    }
    return assets->tokenizer_model.data ? tokenizer_read_sentencepiece(t, assets, settings, err)
                                        : tokenizer_read_tiktoken(t, assets, settings, err);
}

/* *settings as in tokenizer_read.h. */
static int build(smoe_tokenizer **out, const text_assets *assets, struct json_object **settings,
                 smoe_error *err) {
    const char *origin = assets->label ? assets->label : "model";
    const char *form = form_name(assets);
    char label[256];
    if (!form) {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "%s has no tokenizer.json, tokenizer.model or tiktoken.model", origin);
    }
    smoe_tokenizer *t = mem_array(1, sizeof *t);
    snprintf(label, sizeof label, "%.200s: %s", origin, form);
    if (t) {
        t->label = mem_copy_text(label, strlen(label));
    }
    int rc = t && t->label ? SMOE_OK : err_no_memory(err, sizeof *t);
    rc = rc ? rc : read_form(t, assets, settings, err);
    if (rc != SMOE_OK) {
        smoe_tokenizer_close(t);
        return rc;
    }
    *out = t;
    return SMOE_OK;
}

int tokenizer_build(smoe_tokenizer **out, const text_assets *assets, smoe_error *err) {
    struct json_object *settings = NULL;
    smoe_tokenizer *t = NULL;
    int rc = build(&t, assets, &settings, err);
    json_object_put(settings);
    rc = rc ? rc : read_template(t, assets, err);
    rc = rc ? rc : read_special(t, assets, err);
    if (rc != SMOE_OK) {
        smoe_tokenizer_close(t);
        return rc;
    }
    *out = t;
    return SMOE_OK;
}

int tokenizer_prepare(text_blob *out, const text_assets *assets, smoe_error *err) {
    struct json_object *settings = NULL;
    smoe_tokenizer *t = NULL;
    int rc = build(&t, assets, &settings, err);
    rc = rc ? rc : tokenizer_write_prepared(out, t, settings, err);
    json_object_put(settings);
    smoe_tokenizer_close(t);
    return rc;
}

void smoe_tokenizer_close(smoe_tokenizer *t) {
    if (!t) {
        return;
    }
    added_matcher_free(&t->raw_matcher);
    added_matcher_free(&t->normalized_matcher);
    for (size_t i = 0; i < t->n_normalizer; i++) {
        normalize_step_free(&t->normalizers[i]);
    }
    pretok_free(&t->pretok);
    decoder_free(&t->decoder);
    bpe_free(&t->bpe);
    unigram_free(&t->unigram);
    vocab_free(&t->vocab);
    arena_free(&t->text);
    jinja_free(t->chat);
    free(t->chat_error);
    json_object_put(t->special);
    free(t->added);
    free(t->score);
    free(t->label);
    free(t);
}

/* ---- looking up */

size_t smoe_tokenizer_size(const smoe_tokenizer *t) {
    return t->vocab.n_id;
}

int32_t tokenizer_id(const smoe_tokenizer *t, const char *content, size_t bytes) {
    for (size_t i = 0; i < t->n_added; i++) {
        if (t->added[i].bytes == bytes && memcmp(t->added[i].content, content, bytes) == 0) {
            return t->added[i].id;
        }
    }
    return vocab_find_content(&t->vocab, content, bytes);
}

bool tokenizer_is_special(const smoe_tokenizer *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->vocab.n_id && t->vocab.tokens[id].is_special;
}

const tokenizer_around *tokenizer_template(const smoe_tokenizer *t) {
    return &t->around;
}

static bool is_control(const smoe_tokenizer *t, int32_t id) {
    for (size_t i = 0; i < t->n_added; i++) {
        if (t->added[i].id == id && t->added[i].is_control) {
            return true;
        }
    }
    return false;
}

const char *tokenizer_token_bytes(const smoe_tokenizer *t, int32_t id, size_t *n) {
    *n = 0;
    if (id < 0 || (uint32_t)id >= t->vocab.n_id || !t->vocab.tokens[id].is_present) {
        return NULL;
    }
    const vocab_token *token = &t->vocab.tokens[id];
    if (token->is_special || (token->is_added && is_control(t, id))) {
        return NULL;
    }
    uint32_t bytes = 0;
    int byte = -1;
    const char *text = decoder_text(&t->decoder, &t->vocab, (uint32_t)id, false, &bytes, &byte);
    *n = bytes;
    return text;
}

/* ---- encoding */

typedef struct encoder {
    const smoe_tokenizer *t;
    id_list *out;
    bpe_scratch bpe;
    unigram_scratch unigram;
    pretok_run run;
    byte_buf normal[2]; /* normalised text, and room for the next step */
} encoder;

static int encode_piece(void *user, const char *text, size_t bytes, smoe_error *err) {
    encoder *e = user;
    if (e->t->is_unigram) {
        return unigram_encode(&e->t->unigram, &e->t->vocab, text, bytes, &e->unigram, e->out, err);
    }
    return bpe_encode(&e->t->bpe, &e->t->vocab, text, bytes, &e->bpe, e->out, err);
}

static int append_id(id_list *out, int32_t id, smoe_error *err) {
    int rc = id_list_reserve(out, 1, err);
    if (rc == SMOE_OK) {
        out->ids[out->n++] = id;
    }
    return rc;
}

/* Applies the normalisers; *text and *bytes then point to the result. */
static int normalize(encoder *e, const char **text, size_t *bytes, normalize_place *place,
                     smoe_error *err) {
    int rc = SMOE_OK;
    for (size_t i = 0; i < e->t->n_normalizer && rc == SMOE_OK; i++) {
        byte_buf *out = &e->normal[i % 2];
        out->bytes = 0;
        out->max_bytes = (size_t)LIMIT_PROMPT_BYTES * 4;
        rc = buf_append(out, "", 0, err);
        rc = rc ? rc : normalize_apply(&e->t->normalizers[i], *text, *bytes, place, out, err);
        *text = out->data;
        *bytes = out->bytes;
    }
    if (rc == SMOE_OK && *bytes > LIMIT_PROMPT_BYTES) {
        return err_set(err, SMOE_ERR_ARGUMENT, "a text that normalises to more than %u bytes",
                       LIMIT_PROMPT_BYTES);
    }
    return rc;
}

/* One stretch of text between tokens of the first matcher. is_trusted: as a whole. is_first: the
 * text begins with it. */
static int encode_plain(encoder *e, const char *text, size_t bytes, normalize_place *place,
                        bool is_trusted, bool is_first, smoe_error *err) {
    text_span all = {0, SIZE_MAX};
    added_scan scan;
    size_t start;
    size_t end;
    const added_token *token;
    place->keeps_start = true;
    int rc = normalize(e, &text, &bytes, place, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    added_scan_start(&scan, &e->t->normalized_matcher, text, bytes, &all, is_trusted);
    while (rc == SMOE_OK && added_scan_next(&scan, &start, &end, &token)) {
        rc = token ? append_id(e->out, token->id, err)
                   : pretok_run_text(&e->run, text + start, end - start,
                                     is_first && start == 0 && place->keeps_start, err);
    }
    return rc;
}

/* A part of a text: plain, or an added token. */
typedef struct part {
    size_t start, end;
    const added_token *token;
    bool is_there;
} part;

static part next_part(added_scan *scan) {
    part p = {0};
    p.is_there = added_scan_next(scan, &p.start, &p.end, &p.token);
    return p;
}

/* Whether the text goes on at this part, which is no end and no token that ends it. */
static bool goes_on(const encoder *e, const part *p) {
    return p->is_there && (!p->token || (e->t->joins_user_defined && !p->token->special));
}

static int encode_text(encoder *e, const char *text, size_t bytes, const text_span *trusted,
                       size_t n_trusted, smoe_error *err) {
    added_scan scan;
    normalize_place place = {.is_start = true};
    int rc = SMOE_OK;
    added_scan_start(&scan, &e->t->raw_matcher, text, bytes, trusted, n_trusted);
    part now = next_part(&scan);
    while (rc == SMOE_OK && now.is_there) {
        part next = next_part(&scan);
        bool joins = goes_on(e, &now);
        place.is_end = !goes_on(e, &next);
        if (now.token) {
            if (joins && place.is_start) {
                place.is_end = false;
                rc = encode_plain(e, text, 0, &place, false, false, err);
            }
            rc = rc ? rc : append_id(e->out, now.token->id, err);
            if (joins && e->t->is_unigram) {
                double score = e->t->unigram.score[now.token->id];
                e->unigram.so_far = (double)(float)(score + e->unigram.so_far);
            }
        } else {
            const text_span *span = text_span_at(trusted, n_trusted, now.start);
            rc = encode_plain(e, text + now.start, now.end - now.start, &place,
                              span && now.end <= span->end, now.start == 0, err);
        }
        place.is_start = !joins;
        e->unigram.so_far = joins ? e->unigram.so_far : 0;
        now = next;
    }
    return rc;
}

int tokenizer_encode_spans(const smoe_tokenizer *t, const char *text, size_t bytes,
                           const text_span *trusted, size_t n_trusted, id_list *out,
                           smoe_error *err) {
    encoder e = {.t = t, .out = out};
    size_t before = out->n;
    int rc = pretok_run_init(&e.run, &t->pretok, encode_piece, &e, err);
    if (bytes >= CACHE_FROM_BYTES) {
        bpe_scratch_cache(&e.bpe);
    }
    rc = rc ? rc : encode_text(&e, text, bytes, trusted, n_trusted, err);
    pretok_run_free(&e.run);
    bpe_scratch_free(&e.bpe);
    unigram_scratch_free(&e.unigram);
    buf_free(&e.normal[0]);
    buf_free(&e.normal[1]);
    if (rc != SMOE_OK) {
        out->n = before;
    }
    return rc;
}

int tokenizer_encode(const smoe_tokenizer *t, const char *text, size_t bytes, bool parse_special,
                     int32_t **ids, size_t *n_id, size_t *cap, smoe_error *err) {
    id_list out = {*ids, *n_id, *cap};
    text_span all = {0, SIZE_MAX};
    byte_buf clean = {.max_bytes = (size_t)LIMIT_PROMPT_BYTES * LOSSY_REPLACEMENT_BYTES};
    int rc = SMOE_OK;
    if (bytes > LIMIT_PROMPT_BYTES) {
        return err_set(err, SMOE_ERR_ARGUMENT, "text of %zu bytes is longer than %u", bytes,
                       LIMIT_PROMPT_BYTES);
    }
    if (!utf8_valid((const uint8_t *)text, bytes)) {
        rc = lossy_append(&clean, text, bytes, err);
        text = clean.data;
        bytes = clean.bytes;
    }
    rc = rc ? rc : tokenizer_encode_spans(t, text, bytes, &all, parse_special, &out, err);
    buf_free(&clean);
    *ids = out.ids;
    *n_id = out.n;
    *cap = out.cap;
    return rc;
}

int smoe_tokenize(const smoe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                  bool parse_special, int32_t **ids, size_t *n_id, smoe_error *err) {
    int32_t *found = NULL;
    size_t n = 0;
    size_t cap = 0;
    int rc = tokenizer_encode(tokenizer, text, text_bytes, parse_special, &found, &n, &cap, err);
    if (rc == SMOE_OK && !found) {
        found = mem_array(1, sizeof *found);
        rc = found ? SMOE_OK : err_no_memory(err, sizeof *found);
    }
    if (rc != SMOE_OK) {
        free(found);
        return rc;
    }
    *ids = found;
    *n_id = n;
    return SMOE_OK;
}

int smoe_tokenize_prompt(const smoe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                         bool parse_special, int32_t **ids, size_t *n_id, smoe_error *err) {
    const tokenizer_around *around = &tokenizer->around;
    size_t n_before = around->n_before, n = 0;
    int32_t *found = NULL;
    int rc = smoe_tokenize(tokenizer, text, text_bytes, parse_special, &found, &n, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (n < n_before || memcmp(found, around->before, n_before * sizeof *found) != 0) {
        int32_t *all = mem_array(n + n_before, sizeof *all);
        if (!all) {
            free(found);
            return err_no_memory(err, (n + n_before) * sizeof *all);
        }
        memcpy(all, around->before, n_before * sizeof *all);
        memcpy(all + n_before, found, n * sizeof *all);
        free(found);
        found = all;
        n += n_before;
    }
    *ids = found;
    *n_id = n;
    return SMOE_OK;
}
