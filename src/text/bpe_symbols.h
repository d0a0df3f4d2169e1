/* What a piece starts as, and what its symbols end as; the two ends of bpe.c. */
#ifndef SMOE_TEXT_BPE_SYMBOLS_H
#define SMOE_TEXT_BPE_SYMBOLS_H

#include "text/bpe.h"

/* Writes the symbols of a piece to out, which has room for bytes of them; returns how many. */
size_t bpe_first_symbols(const bpe_model *m, const vocab *v, const char *piece, size_t bytes,
                         int32_t *out);

/* Appends the ids that symbols of a SentencePiece model become; out has room for as many as the
 * piece has bytes. */
void bpe_last_symbols(const bpe_model *m, const vocab *v, const char *piece,
                      const uint32_t (*parts)[2], const int32_t *symbols, size_t n, id_list *out);

#endif
