/* Building a tokenizer from its settings and tables: what the readers of the different files share.
 *
 * Settings are a document in the language of tokenizer.json. The tables of the model (tokens,
 * merges, scores) are part of the document there; the other forms bring them along in a
 * model_source and have their settings put together here.
 */
#ifndef SMOE_TEXT_TOKENIZER_READ_H
#define SMOE_TEXT_TOKENIZER_READ_H

#include "base/json.h"
#include "text/json_tables.h"
#include "text/tokenizer_impl.h"

/* Tables that are not in the document. */
typedef struct model_source {
    uint32_t n_id; /* largest id of the model's own tokens + 1 */
    /* Fills vocab, merges (unless SentencePiece) and scores. The vocabulary is initialised. */
    int (*fill)(const struct model_source *self, smoe_tokenizer *t, smoe_error *err);
    const void *user;
} model_source;

/* Fills t. source is NULL when the document has the tables. */
int tokenizer_read_settings(smoe_tokenizer *t, struct json_object *root, const model_source *source,
                            smoe_error *err);

/* ---- the forms; each fills t from assets. *settings becomes the document without tables, the
 * caller's (json_object_put), also after a failure. */

int tokenizer_read_json(smoe_tokenizer *t, const text_blob *json, struct json_object **settings,
                        smoe_error *err);
int tokenizer_read_sentencepiece(smoe_tokenizer *t, const text_assets *assets,
                                 struct json_object **settings, smoe_error *err);
int tokenizer_read_tiktoken(smoe_tokenizer *t, const text_assets *assets,
                            struct json_object **settings, smoe_error *err);
int tokenizer_read_tables(smoe_tokenizer *t, const text_tables *tables,
                          struct json_object **settings, smoe_error *err);
int tokenizer_read_prepared(smoe_tokenizer *t, const text_blob *prepared,
                            struct json_object **settings, smoe_error *err);
/* *out is the caller's (free). */
int tokenizer_write_prepared(text_blob *out, const smoe_tokenizer *t, struct json_object *settings,
                             smoe_error *err);

/* ---- between the files that read settings */

typedef struct reader {
    smoe_tokenizer *t;
    const char *label;
    smoe_error *err;
    const model_source *source;
    const json_tables *tables; /* of the document, cut out of it; NULL: they are still there */
    uint32_t n_model;          /* tokens of the model */
    int32_t max_added;         /* largest id of an added token so far, -1 at first */
} reader;

enum { PATH_BYTES = 256 };

int read_unsupported(const reader *r, const char *what, const char *name);
int read_need_bool(const json_at *at, const char *key, bool *out, smoe_error *err);
/* Calls fn for each object in the array at->key, with its path as the parent of its fields. */
typedef int (*read_fn)(reader *r, const json_at *at);
int read_each(reader *r, const json_at *at, const char *key, read_fn fn);
/* The {"String": ...} or {"Regex": ...} under key "pattern". */
int read_pattern(const reader *r, const json_at *at, const char **text, size_t *bytes,
                 bool *is_regex);
/* Compiles text, which stands at at.pattern. */
int read_compile(const reader *r, const json_at *at, const char *text, size_t bytes,
                 text_pattern **out);
/* A text of exactly one character, kept in the tokenizer's arena. */
int read_char(reader *r, const json_at *at, const char *key, const char **out, size_t *bytes);
/* The options of Metaspace, as pre-tokenizer and as decoder. */
int read_metaspace(reader *r, const json_at *at, pretok_step *out);

int read_normalizer(reader *r, const json_at *at);
int read_pre_tokenizer(reader *r, const json_at *at);
int read_post_processor(reader *r, const json_at *at);
int read_decoder(reader *r, const json_at *at);
int read_model(reader *r, const json_at *root, struct json_object *added);
int read_added(reader *r, const json_at *root, struct json_object *list);

/* Makes the tables of a SentencePiece model from its vocabulary and t->score. */
int sentencepiece_build(smoe_tokenizer *t, int32_t unk_id, bool byte_fallback, smoe_error *err);

#endif
