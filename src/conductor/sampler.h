/* Choosing the next token from logits. Owns no model state; one sampler for each generation.
 *
 * The chain, in this order (docs/sampling.md has the sources): logit bias; repetition, frequency
 * and presence penalties; DRY; then what is not allowed goes, and with temperature 0 the best is
 * taken. Else temperature, and either mirostat 2, or top-k, typical-p, top-p, min-p and XTC; then a
 * draw. Equal values rank by id, so the result is a function of the logits, the tokens seen, what
 * is allowed and the seed alone.
 */
#ifndef SMOE_CONDUCTOR_SAMPLER_H
#define SMOE_CONDUCTOR_SAMPLER_H

#include "smoe.h"

typedef struct sampler {
    smoe_sampling options; /* dry_breaker borrowed until sampler_set_breakers */
    uint64_t rng[4];
    int32_t n_vocab;
    /* [n_vocab] bits, borrowed: only these ids may be chosen; NULL: all. At least one is set. */
    const uint64_t *allowed;
    float *logit;          /* [n_vocab]: after bias and penalties */
    float *key;            /* [n_vocab]: rank of typical-p */
    int32_t *heap;         /* [n_vocab]: candidate ids */
    uint32_t *n_seen;      /* [n_vocab]: uses in the penalties' window */
    uint32_t *n_output;    /* [n_vocab]: of these, chosen ones rather than of the prompt */
    smoe_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
    bool is_forced;   /* a bias of +INFINITY is among them */
    int32_t *history; /* [max_history]: the sequence */
    size_t n_history, max_history;
    size_t n_prompt; /* of n_history */
    float mu;        /* mirostat: the largest surprise now allowed, bits */
    uint8_t *breaks; /* [n_vocab]: a repeat for DRY must not hold this token; NULL without DRY */
    int32_t
        *dry_len;   /* [n_vocab]: longest repeat that a token would prolong; all 0 between calls */
    int32_t *dry_z; /* [max_history] */
} sampler;

/* Allocates for sequences of at most max_history tokens; *out is the caller's (sampler_close),
 * empty after failure. With DRY on, sampler_set_breakers must follow before the first choice, else
 * no token breaks a repeat. */
int sampler_open(sampler *out, const smoe_sampling *options, int32_t n_vocab, size_t max_history,
                 smoe_error *err);
void sampler_close(sampler *s);
int sampling_check(const smoe_sampling *options, smoe_error *err);
/* A token of the prompt; all of them before any sampler_see. Tokens beyond max_history, and ids
 * outside the vocabulary, are left out. */
void sampler_see_prompt(sampler *s, int32_t id);
/* A chosen token. */
void sampler_see(sampler *s, int32_t id);
/* With DRY on: marks the tokens whose text holds one of options.dry_breaker, the texts that no
 * repeat crosses. Without a tokenizer (NULL) none does, and breakers that were given are an error.
 */
int sampler_set_breakers(sampler *s, const smoe_tokenizer *t, smoe_error *err);
/* SMOE_ERR_NUMERIC when the logits hold NaN, +INFINITY or no finite value, or when the bias leaves
 * no token that is allowed. Never allocates. */
int sampler_choose(sampler *s, const float *logits, int32_t *id, smoe_error *err);

/* Log-softmax of id, and of the n_top likeliest, in falling order, into top[n_top]. Returns how
 * many were written (fewer only when the vocabulary is smaller). */
size_t sampler_logprobs(const float *logits, int32_t n_vocab, int32_t id, float *logprob,
                        smoe_logprob *top, size_t n_top);

/* The parts of sampler_choose that have files of their own. */
void sampler_apply_dry(sampler *s);

#endif
