/* Tokenizers: text to ids and back, exactly as the checkpoint's own tokenizer.json says.
 *
 * Immutable once built, so any thread may use it. Opens no files: the container hands over bytes.
 */
#ifndef SMOE_TEXT_TOKENIZER_H
#define SMOE_TEXT_TOKENIZER_H

#include "base/error.h"
#include "text/assets.h"

/* *out is the caller's (smoe_tokenizer_close). assets is only read during the call. Refuses what it
 * does not implement exactly, naming it: a tokenizer that is nearly right is wrong. */
int tokenizer_build(smoe_tokenizer **out, const text_assets *assets, smoe_error *err);

/* Id of a token by its exact content, -1 when there is none. */
int32_t tokenizer_id(const smoe_tokenizer *t, const char *content, size_t bytes);
/* Whether id is an added token marked special. */
bool tokenizer_is_special(const smoe_tokenizer *t, int32_t id);
/* The bytes that a token adds to a text (borrowed, *n of them); NULL for ids without a token and for
 * control tokens, which add none. */
const char *tokenizer_token_bytes(const smoe_tokenizer *t, int32_t id, size_t *n);

/* Appends the ids of text to a growing array (*ids, *n_id, *cap; realloc'ed). */
int tokenizer_encode(const smoe_tokenizer *t, const char *text, size_t bytes, bool parse_special,
                     int32_t **ids, size_t *n_id, size_t *cap, smoe_error *err);

/* Incremental decoding: hands out text only in whole UTF-8 characters. A value type; one for each
 * stream. Never allocates after init. */
typedef struct text_stream {
    const smoe_tokenizer *tokenizer;
    bool keep_special;
    bool at_start;   /* nothing handed out yet */
    uint8_t held[8]; /* an unfinished character */
    uint8_t n_held;
} text_stream;

void text_stream_init(text_stream *s, const smoe_tokenizer *t, bool keep_special);
/* Upper bound of the bytes one push or the flush can write. */
size_t text_stream_max_bytes(const smoe_tokenizer *t);
/* Writes what became whole to out; returns its bytes. Ids out of range write nothing. */
size_t text_stream_push(text_stream *s, int32_t id, char *out);
/* The rest, malformed bytes as U+FFFD. */
size_t text_stream_flush(text_stream *s, char *out);

#endif
