/* The GGUF container, versions 2 and 3, little-endian: keys with values, a directory of tensors,
 * and aligned data. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 * Reading is split in two: a parser over bytes that never touches a file, and an opener that
 * reads a file's header (never its data). What comes out is consistent: types are known, names
 * are UTF-8 and unique, every value and every tensor lies inside the file. What keys mean is not
 * known here. */
#ifndef SMOE_FORMATS_GGUF_H
#define SMOE_FORMATS_GGUF_H

#include "base/error.h"
#include "base/mem.h"
#include "formats/tensor.h"

typedef enum gguf_type { /* as stored */
                         GGUF_U8,
                         GGUF_I8,
                         GGUF_U16,
                         GGUF_I16,
                         GGUF_U32,
                         GGUF_I32,
                         GGUF_F32,
                         GGUF_BOOL,
                         GGUF_TEXT,
                         GGUF_ARRAY,
                         GGUF_U64,
                         GGUF_I64,
                         GGUF_F64,
                         GGUF_TYPES
} gguf_type;

typedef struct gguf_value {
    const char *key;
    gguf_type type; /* of the value, or of an array's elements; never GGUF_ARRAY */
    bool is_array;
    uint64_t n;          /* elements; 1 unless is_array */
    const uint8_t *data; /* of the elements as stored, back to back, unaligned; borrowed */
    uint64_t bytes;
} gguf_value;

typedef struct gguf_header {
    uint32_t version;
    uint64_t alignment;    /* of the data, a power of two >= 8 */
    uint64_t header_bytes; /* without the padding before the data */
    gguf_value *value;     /* [n_value], in file order */
    int32_t *by_key;       /* [n_value]: indices in order of the keys */
    int32_t n_value;
    uint8_t *bytes; /* what the values borrow from, when gguf_open read it; else NULL */
} gguf_header;

/* ---- reading */

enum { GGUF_MAGIC_BYTES = 4, GGUF_VERSION = 3 };

bool gguf_has_magic(const uint8_t *data, size_t bytes);

/* Checks the first bytes of a file of file_bytes as far as they go, allocating nothing. *need_bytes
 * becomes 0 when they hold the whole header; else so many must be there before it can go on, more
 * than bytes and at most file_bytes. */
int gguf_measure(const uint8_t *data, size_t bytes, uint64_t file_bytes, const char *label,
                 uint64_t *need_bytes, smoe_error *err);

/* Parses a file's first bytes, which must hold the whole header. Values borrow from data, their
 * keys and the arrays are the arena's. Appends the tensors to table in the order of the directory,
 * names in the arena, offsets absolute, in file number file of its set. After failure the table may
 * hold some of them. */
int gguf_parse(gguf_header *out, tensor_table *table, arena *names, const uint8_t *data,
               size_t bytes, uint64_t file_bytes, int32_t file, const char *label, smoe_error *err);

/* Adds path to the set, reads its header and parses it as above. *out is the caller's
 * (gguf_header_free), empty after failure. */
int gguf_open(gguf_header *out, tensor_table *table, arena *names, file_set *files,
              const char *path, smoe_error *err);
/* The same for a model in one file or in several (NAME-00001-of-0000N.gguf), whichever of them path
 * is; the set and the table are empty before. *out is the first file's header. */
int gguf_open_model(gguf_header *out, tensor_table *table, arena *names, file_set *files,
                    const char *path, smoe_error *err);
void gguf_header_free(gguf_header *h);

/* ---- writing */

/* Appends a whole GGUF file without tensors: the keys of h that begin with prefix, in their
 * order. */
int gguf_write_keys(byte_buf *out, const gguf_header *h, const char *prefix, smoe_error *err);

/* ---- values
 *
 * A getter returns 0 with *out set, or SMOE_ERR_FORMAT naming the key. A missing key is an error
 * for gguf_need_*, and leaves *out alone (returns 0) for gguf_opt_*; but a key that is there must
 * have the right type and range. label names the file. */

const gguf_value *gguf_find(const gguf_header *h, const char *key); /* NULL: not there */

int gguf_need_int(const gguf_header *h, const char *label, const char *key, int64_t min,
                  int64_t max, int64_t *out, smoe_error *err);
int gguf_opt_int(const gguf_header *h, const char *label, const char *key, int64_t min, int64_t max,
                 int64_t *out, smoe_error *err);
/* Finite; F32 or F64. */
int gguf_opt_number(const gguf_header *h, const char *label, const char *key, double *out,
                    smoe_error *err);
int gguf_opt_bool(const gguf_header *h, const char *label, const char *key, bool *out,
                  smoe_error *err);
/* *out borrows, is not NUL-terminated and may hold anything. */
int gguf_need_text(const gguf_header *h, const char *label, const char *key, const char **out,
                   size_t *bytes, smoe_error *err);
int gguf_opt_text(const gguf_header *h, const char *label, const char *key, const char **out,
                  size_t *bytes, smoe_error *err);
/* An array of one type; *out is NULL (returns 0) when the key is not there. */
int gguf_opt_array(const gguf_header *h, const char *label, const char *key, gguf_type type,
                   const gguf_value **out, smoe_error *err);

/* Element i of a value of whole numbers; false when it is of another type or beyond int64_t. */
bool gguf_int_at(const gguf_value *v, uint64_t i, int64_t *out);
/* Element i of a value of type F32 or F64. */
bool gguf_number_at(const gguf_value *v, uint64_t i, double *out);
/* Walks the texts of a value: *at is 0 at first. */
void gguf_next_text(const gguf_value *v, uint64_t *at, const char **text, size_t *bytes);
const char *gguf_type_name(gguf_type type); /* "u32", "text", … */

#endif
