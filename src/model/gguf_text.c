/* Text tables of a GGUF file; see gguf_text.h. Knows how GGUF spells things, not what a tokenizer
 * does with them. */
#include "model/gguf_text.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

static const char prefix[] = "tokenizer.ggml.";

/* The tables being filled. */
typedef struct taker {
    text_tables *t;
    const gguf_header *h;
    const char *label;
    smoe_error *err;
} taker;

enum { KEY_BYTES = 64 };

static const char *key_of(char out[KEY_BYTES], const char *name) {
    snprintf(out, KEY_BYTES, "%s%s", prefix, name);
    return out;
}

/* ---- kind */

/* Tokenizers that the text side builds. */
static bool is_known_model(const char *model, size_t bytes) {
    static const char *const known[] = {"gpt2", "llama"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i]) == bytes && memcmp(known[i], model, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* How files without a vocabulary say so. */
static bool is_no_model(const char *model, size_t bytes) {
    return (bytes == 4 && memcmp(model, "none", 4) == 0) ||
           (bytes == 8 && memcmp(model, "no_vocab", 8) == 0);
}

static int take_kind(const taker *k) {
    char key[KEY_BYTES];
    const char *model = NULL, *pre = NULL;
    size_t model_bytes = 0, pre_bytes = 0;
    int rc = gguf_need_text(k->h, k->label, key_of(key, "model"), &model, &model_bytes, k->err);
    rc = rc ? rc : gguf_opt_text(k->h, k->label, key_of(key, "pre"), &pre, &pre_bytes, k->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (!is_known_model(model, model_bytes)) {
        return err_set(k->err, SMOE_ERR_UNSUPPORTED,
                       "%s: tokenizer model %.*s is not supported (gpt2 and llama are)", k->label,
                       model_bytes < 64 ? (int)model_bytes : 64, model);
    }
    k->t->model = mem_copy_text(model, model_bytes);
    k->t->pre = pre ? mem_copy_text(pre, pre_bytes) : NULL;
    return k->t->model && (!pre || k->t->pre) ? SMOE_OK
                                              : err_no_memory(k->err, model_bytes + pre_bytes);
}

/* ---- arrays */

static int wrong_length(const taker *k, const char *key, uint64_t found) {
    return err_set(k->err, SMOE_ERR_FORMAT, "%s: %s has %llu elements for %d tokens", k->label, key,
                   (unsigned long long)found, k->t->n_token);
}

/* Pieces of an array of texts; NULL when it is not there. *out is the caller's (free). */
static int take_pieces(const taker *k, const char *name, text_piece **out, int32_t *n) {
    char key[KEY_BYTES];
    const gguf_value *v;
    int rc = gguf_opt_array(k->h, k->label, key_of(key, name), GGUF_TEXT, &v, k->err);
    if (rc != SMOE_OK || !v) {
        return rc;
    }
    if (v->n > LIMIT_VOCAB) {
        return err_set(k->err, SMOE_ERR_FORMAT, "%s: %s has %llu elements, the limit is %d",
                       k->label, key, (unsigned long long)v->n, LIMIT_VOCAB);
    }
    *n = (int32_t)v->n;
    *out = mem_array((size_t)v->n + 1, sizeof **out);
    if (!*out) {
        return err_no_memory(k->err, v->n * sizeof **out);
    }
    uint64_t at = 0;
    for (int32_t i = 0; i < *n; i++) {
        gguf_next_text(v, &at, &(*out)[i].data, &(*out)[i].bytes);
    }
    return SMOE_OK;
}

static int missing(const taker *k, const char *name) {
    return err_set(k->err, SMOE_ERR_FORMAT, "%s: key %s%s is missing", k->label, prefix, name);
}

static int take_tokens(const taker *k) {
    text_tables *t = k->t;
    int rc = take_pieces(k, "tokens", &t->token, &t->n_token);
    if (rc == SMOE_OK && !t->token) {
        return missing(k, "tokens");
    }
    if (rc == SMOE_OK && t->n_token == 0) {
        return err_set(k->err, SMOE_ERR_FORMAT, "%s: %stokens is empty", k->label, prefix);
    }
    rc = rc ? rc : take_pieces(k, "merges", &t->merge, &t->n_merge);
    if (rc == SMOE_OK && !t->merge && strcmp(t->model, "gpt2") == 0) {
        return missing(k, "merges");
    }
    return rc;
}

static int take_scores(const taker *k) {
    char key[KEY_BYTES];
    const gguf_value *v;
    text_tables *t = k->t;
    int rc = gguf_opt_array(k->h, k->label, key_of(key, "scores"), GGUF_F32, &v, k->err);
    if (rc == SMOE_OK && !v && strcmp(t->model, "llama") == 0) {
        return missing(k, "scores");
    }
    if (rc != SMOE_OK || !v) {
        return rc;
    }
    if (v->n != (uint64_t)t->n_token) {
        return wrong_length(k, key, v->n);
    }
    t->score = mem_array((size_t)v->n, sizeof *t->score);
    if (!t->score) {
        return err_no_memory(k->err, v->n * sizeof *t->score);
    }
    for (uint64_t i = 0; i < v->n; i++) {
        double d = 0;
        gguf_number_at(v, i, &d);
        t->score[i] = (float)d;
    }
    return SMOE_OK;
}

static int take_types(const taker *k) {
    char key[KEY_BYTES];
    const gguf_value *v;
    text_tables *t = k->t;
    int rc = gguf_opt_array(k->h, k->label, key_of(key, "token_type"), GGUF_I32, &v, k->err);
    if (rc != SMOE_OK || !v) {
        return rc;
    }
    if (v->n != (uint64_t)t->n_token) {
        return wrong_length(k, key, v->n);
    }
    t->type = mem_array((size_t)v->n, sizeof *t->type);
    if (!t->type) {
        return err_no_memory(k->err, v->n);
    }
    for (uint64_t i = 0; i < v->n; i++) {
        int64_t type = 0;
        gguf_int_at(v, i, &type);
        if (type < 0 || type > TEXT_TOKEN_BYTE) {
            return err_set(k->err, SMOE_ERR_FORMAT, "%s: %s: token %llu has unknown type %lld",
                           k->label, key, (unsigned long long)i, (long long)type);
        }
        t->type[i] = type ? (uint8_t)type : TEXT_TOKEN_NORMAL; /* 0: undefined */
    }
    return SMOE_OK;
}

static int take_normalizer(const taker *k) {
    char key[KEY_BYTES];
    const gguf_value *v = gguf_find(k->h, key_of(key, "precompiled_charsmap"));
    if (!v) {
        return SMOE_OK;
    }
    if (!v->is_array || (v->type != GGUF_U8 && v->type != GGUF_I8)) {
        return err_set(k->err, SMOE_ERR_FORMAT, "%s: %s must be an array of bytes", k->label, key);
    }
    k->t->normalizer = (text_piece){(const char *)v->data, (size_t)v->bytes};
    return SMOE_OK;
}

/* ---- ids and flags */

static int take_ids(const taker *k) {
    static const char *const name[TEXT_SPECIALS] = {
        [TEXT_BOS] = "bos_token_id",     [TEXT_EOS] = "eos_token_id",
        [TEXT_EOT] = "eot_token_id",     [TEXT_EOM] = "eom_token_id",
        [TEXT_UNK] = "unknown_token_id", [TEXT_SEP] = "seperator_token_id", /* as GGUF spells it */
        [TEXT_PAD] = "padding_token_id", [TEXT_CLS] = "cls_token_id",
        [TEXT_MASK] = "mask_token_id"};
    int rc = SMOE_OK;
    for (int i = 0; rc == SMOE_OK && i < TEXT_SPECIALS; i++) {
        char key[KEY_BYTES];
        int64_t id = -1;
        rc = gguf_opt_int(k->h, k->label, key_of(key, name[i]), -1, UINT32_MAX, &id, k->err);
        id = id == UINT32_MAX ? -1 : id; /* -1 in the unsigned type that most files use */
        if (rc == SMOE_OK && id >= k->t->n_token) {
            rc = err_set(k->err, SMOE_ERR_FORMAT, "%s: %s is %lld, but there are %d tokens",
                         k->label, key, (long long)id, k->t->n_token);
        }
        k->t->id[i] = (int32_t)id;
    }
    return rc;
}

static int take_flag(const taker *k, const char *name, text_flag *out) {
    char key[KEY_BYTES];
    bool b = false;
    key_of(key, name);
    *out = TEXT_FLAG_OPEN;
    int rc = gguf_opt_bool(k->h, k->label, key, &b, k->err);
    if (rc == SMOE_OK && gguf_find(k->h, key)) {
        *out = b ? TEXT_FLAG_YES : TEXT_FLAG_NO;
    }
    return rc;
}

static int take_flags(const taker *k) {
    text_tables *t = k->t;
    int rc = take_flag(k, "add_bos_token", &t->add_bos);
    rc = rc ? rc : take_flag(k, "add_eos_token", &t->add_eos);
    rc = rc ? rc : take_flag(k, "add_space_prefix", &t->add_space_prefix);
    return rc ? rc : take_flag(k, "remove_extra_whitespaces", &t->remove_extra_space);
}

/* ---- the whole */

static int fill_tables(text_assets *text, const gguf_header *h, const char *label,
                       smoe_error *err) {
    text->tables = mem_array(1, sizeof *text->tables);
    if (!text->tables) {
        return err_no_memory(err, sizeof *text->tables);
    }
    taker k = {text->tables, h, label, err};
    int rc = take_kind(&k);
    rc = rc ? rc : take_tokens(&k);
    rc = rc ? rc : take_scores(&k);
    rc = rc ? rc : take_types(&k);
    rc = rc ? rc : take_normalizer(&k);
    rc = rc ? rc : take_ids(&k);
    return rc ? rc : take_flags(&k);
}

int gguf_text_decode(text_assets *text, smoe_error *err) {
    gguf_header h;
    tensor_table table = {0};
    arena names = {0};
    const char *label = text->label ? text->label : "tokenizer";
    const uint8_t *data = (const uint8_t *)text->gguf.data;
    int rc =
        gguf_parse(&h, &table, &names, data, text->gguf.bytes, text->gguf.bytes, 0, label, err);
    rc = rc ? rc : fill_tables(text, &h, label, err);
    tensor_table_free(&table);
    arena_free(&names);
    return rc;
}

static int take_template(text_assets *text, const gguf_header *h, const char *label,
                         smoe_error *err) {
    const char *source = NULL;
    size_t bytes = 0;
    int rc = gguf_opt_text(h, label, "tokenizer.chat_template", &source, &bytes, err);
    if (rc != SMOE_OK || !source) {
        return rc;
    }
    text->chat_template.data = mem_copy_text(source, bytes);
    text->chat_template.bytes = bytes;
    return text->chat_template.data ? SMOE_OK : err_no_memory(err, bytes);
}

/* general.sampling keys, as generation_config.json calls them. */
static int take_generation(text_assets *text, const gguf_header *h, const char *label,
                           smoe_error *err) {
    static const struct {
        const char *key, *name;
    } numbers[] = {{"general.sampling.temp", "temperature"},
                   {"general.sampling.top_p", "top_p"},
                   {"general.sampling.min_p", "min_p"},
                   {"general.sampling.penalty_repeat", "repetition_penalty"}};
    int64_t top_k = -1;
    struct json_object *o = json_object_new_object();
    int rc = o ? gguf_opt_int(h, label, "general.sampling.top_k", 0, INT32_MAX, &top_k, err)
               : err_no_memory(err, sizeof text->generation);
    if (rc == SMOE_OK && top_k >= 0) {
        json_object_object_add(o, "top_k", json_object_new_int64(top_k));
    }
    for (size_t i = 0; rc == SMOE_OK && i < sizeof numbers / sizeof *numbers; i++) {
        double d = 0;
        rc = gguf_opt_number(h, label, numbers[i].key, &d, err);
        if (rc == SMOE_OK && gguf_find(h, numbers[i].key)) {
            json_object_object_add(o, numbers[i].name, json_object_new_double(d));
        }
    }
    if (rc == SMOE_OK && json_object_object_length(o) > 0) {
        const char *json = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        text->generation.data = json ? mem_copy_text(json, strlen(json)) : NULL;
        text->generation.bytes = json ? strlen(json) : 0;
        rc = text->generation.data ? SMOE_OK : err_no_memory(err, text->generation.bytes);
    }
    json_object_put(o);
    return rc;
}

int gguf_text_take(text_assets *text, const gguf_header *h, const char *label, smoe_error *err) {
    char key[KEY_BYTES];
    const char *model = "";
    size_t model_bytes = 0;
    byte_buf blob = {.max_bytes = LIMIT_TOKENIZER_BYTES};
    text->label = mem_copy_text(label, strlen(label));
    int rc = text->label ? SMOE_OK : err_no_memory(err, strlen(label));
    rc = rc ? rc : take_generation(text, h, label, err);
    rc = rc ? rc : gguf_need_text(h, label, key_of(key, "model"), &model, &model_bytes, err);
    if (rc != SMOE_OK || is_no_model(model, model_bytes)) {
        return rc;
    }
    rc = take_template(text, h, label, err);
    rc = rc ? rc : gguf_write_keys(&blob, h, prefix, err);
    text->gguf = (text_blob){blob.data, blob.bytes};
    return rc ? rc : gguf_text_decode(text, err);
}

/* ---- ids */

/* Tokens that end generation whatever a file names as such, by their texts: instruction-tuned
 * models end a turn with one and a document with another, and files have room for few. */
static bool is_end_text(text_piece p) {
    static const char *const texts[] = {
        "<|im_end|>",        "<|endoftext|>",
        "<|eot_id|>",        "<|eom_id|>",
        "<|end_of_text|>",   "<|end|>",
        "<|return|>",        "<|call|>",
        "<end_of_turn>",     "<EOT>",
        "<|endofsentence|>", "<\xef\xbd\x9c\x65nd\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strlen(texts[i]) == p.bytes && memcmp(texts[i], p.data, p.bytes) == 0) {
            return true;
        }
    }
    return false;
}

static void add_end_id(spec *s, int32_t id) {
    bool known = id < 0 || s->n_end_id == SPEC_END_IDS;
    for (int32_t i = 0; i < s->n_end_id; i++) {
        known |= s->end_id[i] == id;
    }
    if (!known) {
        s->end_id[s->n_end_id++] = id;
    }
}

int gguf_text_ids(spec *s, const text_tables *t, const char *label, smoe_error *err) {
    if (!t) {
        return SMOE_OK;
    }
    if (t->n_token != s->vocab_size) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %d tokens, but token_embd.weight has %d rows",
                       label, t->n_token, s->vocab_size);
    }
    s->begin_id = t->id[TEXT_BOS];
    add_end_id(s, t->id[TEXT_EOS]);
    add_end_id(s, t->id[TEXT_EOT]);
    add_end_id(s, t->id[TEXT_EOM]);
    for (int32_t i = 0; t->type && i < t->n_token; i++) {
        bool marks = t->type[i] == TEXT_TOKEN_CONTROL || t->type[i] == TEXT_TOKEN_USER_DEFINED;
        if (marks && is_end_text(t->token[i])) {
            add_end_id(s, i);
        }
    }
    return SMOE_OK;
}
