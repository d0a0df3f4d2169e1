/* What the tests of grammars and schemas share: machines without tokens, masks the slow way, random
 * texts. */
#ifndef SMOE_TESTS_GRAMMAR_UTIL_H
#define SMOE_TESTS_GRAMMAR_UTIL_H

#include "test.h"
#include "text/grammar_walk.h"
#include "text/mask.h"
#include "text/schema.h"

typedef struct machine {
    grammar_program program;
    grammar_walker walker;
} machine;

typedef int grammar_reader(grammar *g, const char *text, size_t bytes, uint32_t *root);

/* The status of reading and compiling; *m is only to be closed after success. */
int machine_open(machine *m, grammar_reader *read, const char *text, smoe_error *err);
void machine_close(machine *m);
/* Whether bytes are the start of a text of the language, and in *is_whole whether they are one. */
bool machine_reads(machine *m, const char *bytes, size_t n, bool *is_whole);
bool machine_accepts(machine *m, const char *text);

/* The bundled model's tokenizer, opened once. */
const smoe_tokenizer *small_tokenizer(void);
/* The ids that may follow a text, found by reading each token after it. */
void slow_mask(machine *m, const smoe_tokenizer *t, const char *text, size_t bytes, uint64_t *mask);
/* A random set bit; -1 when there is none. */
int32_t random_bit(const uint64_t *mask, size_t n_id);
/* A text of random allowed tokens, with a liking for what closes; NUL-terminated and malloc'ed.
 * NULL when it has not ended after max_tok. */
char *random_text(const smoe_constraint *c, const smoe_tokenizer *t, size_t max_tok, size_t *bytes);

#endif
