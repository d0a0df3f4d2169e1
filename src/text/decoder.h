/* Decoders: what each token adds to a text.
 *
 * The decoder of a tokenizer.json is a list of steps over lists of texts. Those that act on each
 * token alone are applied once, when the tokenizer is built; the rest is what a stream can do on
 * the way: bytes join to characters, and the start of the text loses a character.
 */
#ifndef SMOE_TEXT_DECODER_H
#define SMOE_TEXT_DECODER_H

#include "text/pattern.h"
#include "text/vocab.h"

enum { DECODER_STEPS = 8 };

enum decode_kind { DECODE_REPLACE, DECODE_STRIP, DECODE_METASPACE };

typedef struct decode_step {
    enum decode_kind kind;
    const char *from; /* REPLACE: a string, when there is no pattern; METASPACE: its symbol; STRIP:
                       * a character. Borrowed from the tokenizer's arena. */
    size_t from_bytes;
    const char *to; /* REPLACE */
    size_t to_bytes;
    text_pattern *pattern;    /* REPLACE; owned */
    uint32_t n_start, n_stop; /* STRIP: at most so many characters */
    bool drops_at_start;      /* METASPACE: the text's first token loses its symbols ... */
    bool drops_one;           /* ... or only the one that it begins with */
} decode_step;

/* What a token stands for in a text. */
typedef struct decode_text {
    uint32_t offset; /* into decoder.bytes */
    uint32_t bytes;
    int16_t byte; /* a token of one byte: its value; else -1 */
} decode_text;

typedef struct decoder {
    bool is_read;
    bool is_byte_level; /* a token stands for its bytes in the vocabulary; the rest is not used */
    decode_step steps[DECODER_STEPS];
    size_t n_step;
    bool has_fallback; /* tokens like <0x0A> stand for a byte */
    bool keeps_valid;  /* in a malformed run of byte tokens, what is a character stays one */
    bool starts_late;  /* drops_one: the first token is the first that adds to the text ... */
    bool drops_each;   /* ... and those before it that had nothing but the symbol count as none */
    bool is_fused;     /* further steps act on the text as a whole */
    const char *strip; /* a character that the start of the text loses ... */
    uint32_t strip_bytes;
    uint32_t n_strip;   /* ... so many times at most */
    decode_text *text;  /* [n_id] */
    decode_text *first; /* [n_id] as the first token of a text; NULL: the same */
    byte_buf bytes;
    uint32_t max_bytes; /* of one token */
} decoder;

/* Fills the tables, once the vocabulary is whole. decoder_free releases it, also after a failure.
 */
int decoder_prepare(decoder *d, const vocab *v, smoe_error *err);
void decoder_free(decoder *d);

/* What id stands for, not NUL-terminated; *byte is its value when it is a byte token, else -1. */
const char *decoder_text(const decoder *d, const vocab *v, uint32_t id, bool is_first,
                         uint32_t *bytes, int *byte);

#endif
