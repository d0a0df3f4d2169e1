/* The ways to fill a source, private to source_open. Both return 0 with *out the caller's
 * (source_close), or an error with *out NULL. */
#ifndef SMOE_MODEL_SOURCE_OPEN_H
#define SMOE_MODEL_SOURCE_OPEN_H

#include "model/source.h"

/* A file that need not be there; leaves the blob empty when it is not. */
int source_read_optional(text_blob *blob, const char *dir, const char *name, uint64_t max_bytes,
                         smoe_error *err);

/* path is a folder with config.json and safetensors. */
int source_open_checkpoint(source **out, const char *path, smoe_error *err);
/* path is a GGUF file, or one of the files of a model that is split. */
int source_open_gguf(source **out, const char *path, smoe_error *err);
/* path is a regular file; says so when it is no vault. */
int source_open_vault(source **out, const char *path, smoe_error *err);

#endif
