/* tokenizer.model, the file of the SentencePiece library: a protocol buffer with the pieces, what
 * kind of model they are for, and how text is normalised.
 *
 * The reader knows the wire format and the fields that matter, and steps over the others. Symbols
 * that are not made of letters, digits and spaces only are cut out of the text as added tokens, so
 * that text which is not trusted can be kept from becoming them; the other user-defined ones are
 * the model's, as in the library.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "text/config_tokens.h"
#include "text/tokenizer_read.h"
#include "text/unicode.h"

/* ---- the wire format */

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct cursor {
    const uint8_t *p, *end;
} cursor;

typedef struct field {
    uint32_t number;
    enum wire wire;
    uint64_t value; /* WIRE_VARINT, WIRE_FIXED32 */
    cursor bytes;   /* WIRE_BYTES */
} field;

static bool get_varint(cursor *c, uint64_t *out) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && c->p < c->end; shift += 7) {
        uint8_t b = *c->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool get_fixed(cursor *c, unsigned n, uint64_t *out) {
    *out = 0;
    if ((size_t)(c->end - c->p) < n) {
        return false;
    }
    for (unsigned i = 0; i < n; i++) {
        *out |= (uint64_t)*c->p++ << 8 * i;
    }
    return true;
}

/* The next field; *is_end without one. False when the bytes are malformed. */
static bool next_field(cursor *c, field *f, bool *is_end) {
    uint64_t key = 0;
    *is_end = c->p == c->end;
    if (*is_end) {
        return true;
    }
    if (!get_varint(c, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX) {
        return false;
    }
    *f = (field){.number = (uint32_t)(key >> 3), .wire = (enum wire)(key & 7)};
    switch (f->wire) {
    case WIRE_VARINT:
        return get_varint(c, &f->value);
    case WIRE_FIXED64:
        return get_fixed(c, 8, &f->value);
    case WIRE_FIXED32:
        return get_fixed(c, 4, &f->value);
    case WIRE_BYTES:
        if (!get_varint(c, &f->value) || f->value > (uint64_t)(c->end - c->p)) {
            return false;
        }
        f->bytes = (cursor){c->p, c->p + f->value};
        c->p += f->value;
        return true;
    default:
        return false;
    }
}

/* ---- the messages */

typedef struct piece {
    text_piece text;
    float score;
    uint8_t type;
} piece;

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2, MODEL_WORD = 3, MODEL_CHAR = 4 };

typedef struct model_file {
    const char *label;
    smoe_error *err;
    piece *pieces; /* [n] */
    uint32_t n, cap;
    int64_t unk_id; /* -1: none */
    uint64_t model_type;
    bool byte_fallback, spaces_behind;
    int64_t bos_id, eos_id;
    bool has_denormalizer;
    settings_sentencepiece normalizer;
} model_file;

static int malformed(const model_file *f, const char *what) {
    return err_set(f->err, SMOE_ERR_FORMAT, "%s: malformed %s", f->label, what);
}

/* Calls fn for each field of a message. */
typedef int (*field_fn)(model_file *f, const field *at);
static int read_message(model_file *f, cursor c, const char *what, field_fn fn) {
    for (;;) {
        field at = {0};
        bool is_end = false;
        if (!next_field(&c, &at, &is_end)) {
            return malformed(f, what);
        }
        if (is_end) {
            return SMOE_OK;
        }
        int rc = fn(f, &at);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
}

static int read_piece_field(model_file *f, const field *at) {
    piece *p = &f->pieces[f->n - 1];
    if (at->number == 1 && at->wire == WIRE_BYTES) {
        p->text = (text_piece){(const char *)at->bytes.p, (size_t)at->value};
    } else if (at->number == 2 && at->wire == WIRE_FIXED32) {
        uint32_t bits = (uint32_t)at->value;
        memcpy(&p->score, &bits, sizeof bits);
    } else if (at->number == 3 && at->wire == WIRE_VARINT) {
        if (at->value < TEXT_TOKEN_NORMAL || at->value > TEXT_TOKEN_BYTE) {
            return malformed(f, "piece type");
        }
        p->type = (uint8_t)at->value;
    } else if (at->number <= 3) {
        return malformed(f, "piece");
    }
    return SMOE_OK;
}

static int read_piece(model_file *f, cursor c) {
    if (f->n == LIMIT_VOCAB) {
        return err_set(f->err, SMOE_ERR_FORMAT, "%s: more than %d pieces", f->label, LIMIT_VOCAB);
    }
    if (f->n == f->cap) {
        uint32_t cap = f->cap ? f->cap * 2 : 1024;
        piece *grown = realloc(f->pieces, cap * sizeof *grown);
        if (!grown) {
            return err_no_memory(f->err, cap * sizeof *grown);
        }
        f->pieces = grown;
        f->cap = cap;
    }
    f->pieces[f->n++] = (piece){.type = TEXT_TOKEN_NORMAL};
    int rc = read_message(f, c, "piece", read_piece_field);
    const piece *p = &f->pieces[f->n - 1];
    if (rc == SMOE_OK && p->text.bytes == 0) {
        return err_set(f->err, SMOE_ERR_FORMAT, "%s: piece %u is empty", f->label, f->n - 1);
    }
    if (rc == SMOE_OK && p->type == TEXT_TOKEN_UNKNOWN) {
        if (f->unk_id >= 0) {
            return err_set(f->err, SMOE_ERR_FORMAT, "%s: two unknown pieces", f->label);
        }
        f->unk_id = f->n - 1;
    }
    return rc;
}

static int read_trainer_field(model_file *f, const field *at) {
    if (at->wire != WIRE_VARINT) {
        return SMOE_OK;
    }
    switch (at->number) {
    case 3:
        f->model_type = at->value;
        break;
    case 24:
        f->spaces_behind = at->value;
        break;
    case 35:
        f->byte_fallback = at->value;
        break;
    case 41:
        f->bos_id = (int32_t)at->value;
        break;
    case 42:
        f->eos_id = (int32_t)at->value;
        break;
    default:
        break;
    }
    return SMOE_OK;
}

static int read_normalizer_field(model_file *f, const field *at) {
    settings_sentencepiece *n = &f->normalizer;
    if (at->number == 2 && at->wire == WIRE_BYTES) {
        n->charsmap = (const char *)at->bytes.p;
        n->charsmap_bytes = (size_t)at->value;
    } else if (at->wire == WIRE_VARINT) {
        bool value = at->value;
        n->add_dummy_prefix = at->number == 3 ? value : n->add_dummy_prefix;
        n->remove_extra_space = at->number == 4 ? value : n->remove_extra_space;
        n->escape_space = at->number == 5 ? value : n->escape_space;
    }
    return SMOE_OK;
}

static int read_denormalizer_field(model_file *f, const field *at) {
    f->has_denormalizer |= at->number == 2 && at->wire == WIRE_BYTES && at->value > 0;
    return SMOE_OK;
}

static int read_model_field(model_file *f, const field *at) {
    if (at->wire != WIRE_BYTES) {
        return at->number <= 5 ? malformed(f, "model") : SMOE_OK;
    }
    switch (at->number) {
    case 1:
        return read_piece(f, at->bytes);
    case 2:
        return read_message(f, at->bytes, "trainer_spec", read_trainer_field);
    case 3:
        return read_message(f, at->bytes, "normalizer_spec", read_normalizer_field);
    case 5:
        return read_message(f, at->bytes, "denormalizer_spec", read_denormalizer_field);
    default:
        return SMOE_OK;
    }
}

static int refuse(const model_file *f, const char *what) {
    return err_set(f->err, SMOE_ERR_UNSUPPORTED, "%s: %s is not supported", f->label, what);
}

static int check_file(const model_file *f) {
    if (f->n == 0 || f->unk_id < 0) {
        return err_set(f->err, SMOE_ERR_FORMAT, "%s has no %s", f->label,
                       f->n ? "unknown piece" : "pieces");
    }
    if (f->model_type != MODEL_UNIGRAM && f->model_type != MODEL_BPE) {
        return refuse(f, f->model_type == MODEL_WORD   ? "model type WORD"
                         : f->model_type == MODEL_CHAR ? "model type CHAR"
                                                       : "this model type");
    }
    if (f->spaces_behind) {
        return refuse(f, "treat_whitespace_as_suffix");
    }
    return f->has_denormalizer ? refuse(f, "a denormalizer") : SMOE_OK;
}

static int read_file(model_file *f, const text_blob *file) {
    cursor all = {(const uint8_t *)file->data, (const uint8_t *)file->data + file->bytes};
    if (file->bytes > LIMIT_TOKENIZER_BYTES) {
        return err_set(f->err, SMOE_ERR_FORMAT, "%s: more than %u bytes", f->label,
                       LIMIT_TOKENIZER_BYTES);
    }
    int rc = read_message(f, all, "model", read_model_field);
    return rc ? rc : check_file(f);
}

/* ---- settings */

/* Whether a user-defined symbol stays in the model: plain words, where U+2581 counts as a space. */
static bool is_plain(text_piece text) {
    for (size_t i = 0; i < text.bytes;) {
        uint32_t cp = 0;
        size_t used = utf8_decode((const uint8_t *)text.data + i, text.bytes - i, &cp);
        if (used == 0 || (cp != 0x2581 && !ucd_is_space(cp) && !ucd_is_word(cp))) {
            return false;
        }
        i += used;
    }
    return true;
}

static bool is_added(const piece *p) {
    return p->type == TEXT_TOKEN_CONTROL || p->type == TEXT_TOKEN_UNKNOWN ||
           (p->type == TEXT_TOKEN_USER_DEFINED && !is_plain(p->text));
}

typedef struct more_tokens {
    settings *s;
    uint32_t n_piece;
} more_tokens;

/* Tokens that tokenizer_config.json adds behind the pieces. */
static int add_config_token(void *user, const settings_token *token, smoe_error *err) {
    const more_tokens *m = user;
    (void)err;
    if (token->id >= m->n_piece) {
        settings_added(m->s, token);
    }
    return SMOE_OK;
}

static int write_settings(settings *s, model_file *f, const config_tokens *c) {
    bool adds_bos = true;
    bool adds_eos = false;
    bool is_unigram = f->model_type == MODEL_UNIGRAM;
    for (uint32_t id = 0; id < f->n; id++) {
        const piece *p = &f->pieces[id];
        if (is_added(p)) {
            if (!utf8_valid((const uint8_t *)p->text.data, p->text.bytes)) {
                return malformed(f, "piece that is not UTF-8");
            }
            settings_added(s, &(settings_token){.id = id,
                                                .content = p->text.data,
                                                .bytes = p->text.bytes,
                                                .special = p->type != TEXT_TOKEN_USER_DEFINED});
        }
    }
    int rc = config_tokens_each(c, add_config_token, &(more_tokens){s, f->n}, f->err);
    rc = rc ? rc : config_tokens_bool(c, "add_bos_token", &adds_bos, f->err);
    rc = rc ? rc : config_tokens_bool(c, "add_eos_token", &adds_eos, f->err);
    f->normalizer.byte_fallback = f->byte_fallback;
    f->normalizer.joins_user_defined = true;
    settings_add_sentencepiece(s, &f->normalizer);
    struct json_object *model = settings_type(
        s, s->root, "model", is_unigram ? "SentencePieceUnigram" : "SentencePieceBPE");
    settings_int(s, model, "unk_id", f->unk_id);
    settings_bool(s, model, "byte_fallback", f->byte_fallback);
    bool has_bos = adds_bos && f->bos_id >= 0 && f->bos_id < f->n;
    bool has_eos = adds_eos && f->eos_id >= 0 && f->eos_id < f->n;
    static const char *const names[] = {"bos_token", "eos_token", "unk_token"};
    const int64_t ids[] = {f->bos_id, f->eos_id, f->unk_id};
    for (size_t i = 0; i < 3; i++) {
        if (ids[i] >= 0 && ids[i] < f->n && is_added(&f->pieces[ids[i]])) {
            settings_special(s, names[i], f->pieces[ids[i]].text.data,
                             f->pieces[ids[i]].text.bytes);
        }
    }
    settings_around(s, has_bos ? f->bos_id : -1, has_eos ? f->eos_id : -1);
    return rc;
}

static int fill(const model_source *source, smoe_tokenizer *t, smoe_error *err) {
    const model_file *f = source->user;
    int rc = SMOE_OK;
    t->score = mem_array(t->vocab.n_id, sizeof *t->score);
    if (!t->score) {
        return err_no_memory(err, t->vocab.n_id * sizeof *t->score);
    }
    for (uint32_t id = 0; id < f->n && rc == SMOE_OK; id++) {
        const piece *p = &f->pieces[id];
        bool is_findable = !is_added(p) && p->type != TEXT_TOKEN_BYTE;
        rc = vocab_add_kept(&t->vocab, id, p->text.data, p->text.bytes, false, is_findable, err);
        t->vocab.tokens[id].type = p->type;
        t->score[id] = (double)p->score;
    }
    return rc;
}

int tokenizer_read_sentencepiece(smoe_tokenizer *t, const text_assets *assets,
                                 struct json_object **out, smoe_error *err) {
    model_file f = {.label = t->label,
                    .err = err,
                    .unk_id = -1,
                    .model_type = MODEL_UNIGRAM,
                    .bos_id = 1,
                    .eos_id = 2,
                    .normalizer = {.charsmap = "",
                                   .add_dummy_prefix = true,
                                   .remove_extra_space = true,
                                   .escape_space = true}};
    settings s;
    config_tokens c;
    char label[256];
    snprintf(label, sizeof label, "%.200s: tokenizer_config.json",
             assets->label ? assets->label : "model");
    int rc = config_tokens_read(&c, &assets->tokenizer_config, label, err);
    rc = rc ? rc : read_file(&f, &assets->tokenizer_model);
    if (rc == SMOE_OK) {
        settings_start(&s);
        rc = write_settings(&s, &f, &c);
        *out = rc == SMOE_OK ? settings_end(&s, err) : (json_object_put(s.root), NULL);
        rc = rc || *out ? rc : SMOE_ERR_MEMORY;
    }
    model_source source = {.n_id = f.n, .fill = fill, .user = &f};
    rc = rc ? rc : tokenizer_read_settings(t, *out, &source, err);
    config_tokens_free(&c);
    free(f.pieces);
    return rc;
}
