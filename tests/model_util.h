/* What tests of whole models share: opening, truth tensors, runs with other settings. */
#ifndef SMOE_TESTS_MODEL_UTIL_H
#define SMOE_TESTS_MODEL_UTIL_H

#include "test.h"

typedef struct opened {
    smoe_model *model;
    smoe_session *session;
} opened;

/* Both fail the test when the model does not open. options may be NULL. */
opened open_with(const char *path, const smoe_model_options *options);
void close_opened(opened *o);

/* A tensor of a safetensors file: F32 as floats, I32 as int32_t, I64 narrowed to it. malloc'ed. */
float *truth_floats(const char *path, const char *name, size_t *n);
int32_t *truth_int32(const char *path, const char *name, size_t *n);
int32_t *truth_ids(const char *path, const char *name, size_t *n);

/* All rows of logits, [n_id][vocab], malloc'ed. */
float *all_logits(opened *o, const int32_t *ids, size_t n_id);
/* n greedy ids after the prompt, end ids ignored, malloc'ed. */
int32_t *greedy(opened *o, const int32_t *prompt, size_t n_prompt, size_t n);
/* Mean negative log-likelihood of ids[1..n). */
double window_nll(opened *o, const int32_t *ids, size_t n_id);

/* Sculpts a checkpoint into the test's folder once; returns the vault's path. */
const char *sculpted(const char *checkpoint, const char *type);
/* The smallest ring of a model. */
uint64_t ring_floor(const char *path);

#endif
