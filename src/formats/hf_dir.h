/* The weight files of a published checkpoint folder: one safetensors file, or an index and shards.
 */
#ifndef SMOE_FORMATS_HF_DIR_H
#define SMOE_FORMATS_HF_DIR_H

#include "formats/safetensors.h"

#define HF_SINGLE_NAME "model.safetensors"
#define HF_INDEX_NAME  "model.safetensors.index.json"

/* Opens every weight file of the folder once and collects all tensors. What was opened stays in
 * files after failure too. */
int hf_dir_open_weights(tensor_table *table, arena *names, file_set *files, const char *dir,
                        smoe_error *err);

#endif
