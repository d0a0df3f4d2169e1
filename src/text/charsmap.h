/* Precompiled character maps of SentencePiece models: a double-array trie of what is replaced, and
 * the replacements, NUL-terminated, behind it. Checked once; every walk stays inside. */
#ifndef SMOE_TEXT_CHARSMAP_H
#define SMOE_TEXT_CHARSMAP_H

#include "base/mem.h"

typedef struct charsmap {
    uint32_t *units; /* [n_unit] */
    size_t n_unit;
    char *texts; /* ends with a NUL; n_text counts it */
    size_t n_text;
} charsmap;

/* where names the map in errors. charsmap_free releases it, also after a failure. An empty map is
 * allowed and replaces nothing. */
int charsmap_read(charsmap *m, const char *data, size_t bytes, const char *where, smoe_error *err);
void charsmap_free(charsmap *m);

/* Bytes of the shortest or longest entry at the start of text, 0 when there is none. *to is its
 * replacement, NUL-terminated, borrowed. */
size_t charsmap_find(const charsmap *m, const char *text, size_t bytes, bool longest,
                     const char **to);

#endif
