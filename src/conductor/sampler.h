/* Choosing the next token from logits. Owns no model state; one sampler for each generation. */
#ifndef SMOE_CONDUCTOR_SAMPLER_H
#define SMOE_CONDUCTOR_SAMPLER_H

#include "smoe.h"

typedef struct sampler {
    smoe_sampling options;
    uint64_t rng[4];
    int32_t n_vocab;
    float *logit;  /* [n_vocab]: after penalties */
    int32_t *heap; /* [n_vocab]: candidate ids */
    uint8_t *seen; /* [n_vocab]: occurs in the sequence */
} sampler;

/* Allocates; *out is the caller's (sampler_close), empty after failure. */
int sampler_open(sampler *out, const smoe_sampling *options, int32_t n_vocab, smoe_error *err);
void sampler_close(sampler *s);
int sampling_check(const smoe_sampling *options, smoe_error *err);
/* Marks a token of the sequence for the repetition penalty. */
void sampler_see(sampler *s, int32_t id);
/* The chain, in this order: repetition penalty (arXiv 1909.05858), temperature, top-k, top-p
 * (arXiv 1904.09751), min-p (arXiv 2407.01082), draw. SMOE_ERR_NUMERIC when the logits hold NaN or
 * no finite value. Never allocates. */
int sampler_choose(sampler *s, const float *logits, int32_t *id, smoe_error *err);

#endif
