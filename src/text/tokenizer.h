/* Tokenizers: text to ids and back, exactly as the checkpoint's own files say: tokenizer.json as
 * the reference library reads it, tokenizer.model as SentencePiece does, tiktoken.model, or the
 * tables of a GGUF file.
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
/* The bytes that a token adds to a text (borrowed, *n of them); NULL for ids without a token and
 * for control tokens, which add none. */
const char *tokenizer_token_bytes(const smoe_tokenizer *t, int32_t id, size_t *n);

/* Appends the ids of text to a growing array (*ids, *n_id, *cap; realloc'ed). */
int tokenizer_encode(const smoe_tokenizer *t, const char *text, size_t bytes, bool parse_special,
                     int32_t **ids, size_t *n_id, size_t *cap, smoe_error *err);

/* Ids that the model's template for a single text puts before and after it, which encoding leaves
 * to the caller; in order. At most TOKENIZER_AROUND of each. */
enum { TOKENIZER_AROUND = 4 };
typedef struct tokenizer_around {
    int32_t before[TOKENIZER_AROUND];
    int32_t after[TOKENIZER_AROUND];
    size_t n_before, n_after;
} tokenizer_around;
const tokenizer_around *tokenizer_template(const smoe_tokenizer *t);

/* The tokenizer in the form that a vault keeps, from any of the forms in assets: settings and flat
 * tables, quick to build from. *out is the caller's (free). */
int tokenizer_prepare(text_blob *out, const text_assets *assets, smoe_error *err);

/* Incremental decoding: hands out text only in whole UTF-8 characters. A value type; one for each
 * stream. Never allocates after init.
 *
 * Byte tokens (<0x0A>) become characters as they come. In a run of them that is malformed, each
 * byte that belongs to no character is one U+FFFD. Only smoe_detokenize, which sees the whole run,
 * can do as the reference library: there one malformed byte makes every byte of the run a U+FFFD.
 */
typedef struct text_stream {
    const smoe_tokenizer *tokenizer;
    bool keep_special;
    bool at_start;     /* the next token may be the first of the text */
    bool has_text;     /* something was handed out, or is held */
    bool is_malformed; /* the bytes of this run are all U+FFFD */
    bool holds_byte;   /* what is held came from byte tokens */
    uint32_t n_strip;  /* characters that the start of the text may still lose */
    uint8_t held[8];   /* an unfinished character */
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
