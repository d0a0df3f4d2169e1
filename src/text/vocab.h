/* The tokens of a model: ids to bytes and bytes to ids.
 *
 * tokenizer.json writes byte-level tokens with one printable character for each byte. Here they are
 * kept as the bytes they stand for; tokens with other characters (is_raw) keep their UTF-8. Other
 * vocabularies keep every token as it is written.
 */
#ifndef SMOE_TEXT_VOCAB_H
#define SMOE_TEXT_VOCAB_H

#include "base/mem.h"
#include "text/assets.h"

typedef struct vocab_token {
    uint32_t offset; /* into vocab.bytes */
    uint32_t bytes;
    bool is_present;
    bool is_raw;
    bool is_added;
    bool is_special; /* an added token that is */
    bool is_findable;
    uint8_t type; /* text_token_type; what SentencePiece and GGUF files tell apart */
} vocab_token;

typedef struct vocab {
    vocab_token *tokens; /* [n_id], by id; holes are not present */
    uint32_t n_id;       /* largest id + 1 */
    bool is_byte_level;  /* set before the first token is added */
    byte_buf bytes;
    uint32_t *slots; /* [slot_mask + 1]: id + 1, 0 when free */
    uint32_t slot_mask;
    uint32_t max_token_bytes;
} vocab;

/* Room for n_id ids of which n_token will be used. vocab_free releases it, also after a failure. */
int vocab_init(vocab *v, uint32_t n_id, uint32_t n_token, smoe_error *err);
void vocab_free(vocab *v);
/* Adds content (as tokenizer.json writes it) under a free id. Only tokens of the model are
 * findable; added tokens are here for what they decode to. */
int vocab_add(vocab *v, uint32_t id, const char *content, size_t bytes, bool is_findable,
              smoe_error *err);
/* The same for a token as it is kept: its bytes, or with is_raw its UTF-8. */
int vocab_add_kept(vocab *v, uint32_t id, const char *bytes, size_t n, bool is_raw,
                   bool is_findable, smoe_error *err);
/* The same in bulk: tokens kept this way are found only after vocab_index_kept, which is called
 * once, when no other token has been added, and is several times as fast. */
int vocab_keep(vocab *v, uint32_t id, const char *bytes, size_t n, bool is_raw, bool is_findable,
               smoe_error *err);
void vocab_index_kept(vocab *v);
/* Id of the findable token that stands for these bytes, -1 when there is none. */
int32_t vocab_find(const vocab *v, const char *bytes, size_t n, bool is_raw);
/* Id by content as tokenizer.json writes it. */
int32_t vocab_find_content(const vocab *v, const char *content, size_t bytes);
static inline const char *vocab_text(const vocab *v, uint32_t id) {
    return v->bytes.data + v->tokens[id].offset;
}

/* Writes the bytes that byte-level content stands for to out, which has room for n; returns how
 * many, or SIZE_MAX when a character stands for no byte. */
size_t vocab_map_bytes(const char *content, size_t n, char *out);

#endif
