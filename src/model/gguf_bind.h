/* Binding the tensors of a GGUF file to what the spec asks for. */
#ifndef SMOE_MODEL_GGUF_BIND_H
#define SMOE_MODEL_GGUF_BIND_H

#include "model/source.h"

/* Finds every tensor that s->spec asks for, checks its shape and type, and fills the references.
 * Experts are slices of stacked tensors, of one that holds gate and up, or tensors of their own.
 * Refuses tensors of the model's blocks that nothing asked for: they would change what it computes.
 * label names the file in errors. */
int gguf_bind(source *s, const tensor_table *table, const char *label, smoe_error *err);

#endif
