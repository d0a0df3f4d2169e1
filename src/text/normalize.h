/* Normalisers: the list of steps that a tokenizer applies to text before it splits it.
 *
 * The four Unicode forms are those of Unicode 9, as in the reference library: code points assigned
 * later neither decompose, compose nor move. Steps are plain data, built from tokenizer.json.
 */
#ifndef SMOE_TEXT_NORMALIZE_H
#define SMOE_TEXT_NORMALIZE_H

#include "base/mem.h"

enum normalize_kind {
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_REPLACE /* every occurrence of one string by another */
};

typedef struct normalize_step {
    enum normalize_kind kind;
    const char *from; /* NORMALIZE_REPLACE: never empty; borrowed from the tokenizer's arena */
    size_t from_bytes;
    const char *to;
    size_t to_bytes;
} normalize_step;

/* Appends the normalised form of text (valid UTF-8) to out. Time is linear in text. */
int normalize_apply(const normalize_step *step, const char *text, size_t bytes, byte_buf *out,
                    smoe_error *err);

#endif
