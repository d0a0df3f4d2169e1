/* A tensor as a container describes it, and the set of files it lives in. */
#ifndef SMOE_FORMATS_TENSOR_H
#define SMOE_FORMATS_TENSOR_H

#include "base/error.h"
#include "base/limits.h"
#include "base/mem.h"
#include "formats/dtype.h"

typedef struct tensor {
    const char *name; /* arena of its owner */
    dtype type;
    int32_t rank;
    int64_t shape[LIMIT_TENSOR_RANK]; /* outermost first; unused are 1 */
    int32_t file;                     /* index into the file set */
    uint64_t offset;                  /* absolute, in that file */
    uint64_t bytes;
} tensor;

/* Open files of one model. Owns the descriptors and path copies. */
typedef struct model_file {
    char *path;
    int fd;
    uint64_t bytes;
    uint64_t head_bytes; /* as far as model_file_read_head has read */
} model_file;

typedef struct file_set {
    model_file *file; /* [n_file] */
    int32_t n_file;
} file_set;

/* Opens path for reading and appends it; returns its index in *index. */
int file_set_add(file_set *set, const char *path, int32_t *index, smoe_error *err);
void file_set_close(file_set *set);
/* file_read_only_at of a file's head, which is taken in once. */
int model_file_read_head(model_file *f, uint64_t offset, void *buf, size_t bytes, smoe_error *err);
/* Tells the page cache that nobody here needs those heads again: with a tokenizer in it, a head is
 * several MiB, and counts as the process's memory in its cgroup. */
void file_set_forget_heads(const file_set *set);

/* Tensors by name. Names point into an arena that must outlive the table. */
typedef struct tensor_table {
    tensor *item; /* [n_item], in file order */
    int32_t n_item;
    int32_t *bucket; /* open addressing over item indices, -1 empty */
    int32_t n_bucket;
} tensor_table;

/* Appends; refuses a name already there ("duplicate name ..."). Reserve first for speed. */
int tensor_table_add(tensor_table *t, const tensor *item, const char *label, smoe_error *err);
const tensor *tensor_table_find(const tensor_table *t, const char *name);
void tensor_table_free(tensor_table *t);

#endif
