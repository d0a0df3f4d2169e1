/* Constraints: a compiled grammar over the vocabulary of a tokenizer. For each place in the grammar
 * it answers which tokens may come next.
 *
 * What a state allows by itself is computed once and kept, with the few prefixes that lead out of
 * its rule; what those allow depends on the callers and is kept for each chain of them. A cache of
 * a fixed size holds both; when it is full it starts anew. Results never depend on it.
 */
#ifndef SMOE_TEXT_MASK_H
#define SMOE_TEXT_MASK_H

#include "text/grammar_walk.h"

/* Takes the program over, also after a failure. *out is the caller's (smoe_constraint_close); it
 * keeps nothing of the tokenizer. */
int constraint_build(smoe_constraint **out, grammar_program *program,
                     const smoe_tokenizer *tokenizer, smoe_error *err);

/* One text in the making. Not thread safe; several may share a constraint. */
typedef struct constraint_run constraint_run;

/* *out is the caller's (constraint_stop), at the start of the grammar. The constraint outlives it.
 * Nothing allocates after this. */
int constraint_start(constraint_run **out, const smoe_constraint *c, smoe_error *err);
void constraint_stop(constraint_run *r); /* NULL is allowed */

/* Sets the bits of the ids that may come next among the first n_id, and clears the others; returns
 * in *n_allowed whether there are any (0: none). End ids are the caller's affair. */
int constraint_mask(constraint_run *r, uint64_t *mask, size_t n_id, bool *has_any, smoe_error *err);
/* Whether the text may end here. */
bool constraint_may_end(const constraint_run *r);
/* Whether it must, because nothing can follow. */
bool constraint_must_end(const constraint_run *r);
/* Goes on by a token. SMOE_ERR_ARGUMENT, and nothing changes, when it is not allowed. */
int constraint_take(constraint_run *r, int32_t id, smoe_error *err);
/* Goes on by bytes, whatever the tokens. */
int constraint_take_bytes(constraint_run *r, const char *bytes, size_t n, smoe_error *err);

static inline bool mask_has(const uint64_t *mask, int32_t id) {
    return mask[(uint32_t)id / 64] >> ((uint32_t)id % 64) & 1;
}
static inline size_t mask_words(size_t n_id) {
    return (n_id + 63) / 64;
}

#endif
