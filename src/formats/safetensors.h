/* The safetensors container: little-endian u64 header length, a JSON header, raw row-major data.
 *
 * Reading is split in two: a parser over bytes that never touches a file, and an opener that reads
 * a file's header (never its data). Both hold a file to the whole format: strict JSON, unique
 * names, shapes that match their byte ranges, ranges that cover the data without holes or overlaps.
 */
#ifndef SMOE_FORMATS_SAFETENSORS_H
#define SMOE_FORMATS_SAFETENSORS_H

#include "base/error.h"
#include "base/mem.h"
#include "formats/tensor.h"

struct json_object;

/* ---- reading */

enum { SAFETENSORS_LENGTH_BYTES = 8 };

/* Checks the length field, the first 8 bytes of a file of file_bytes. On success *header_bytes is
 * the size of the JSON that follows: inside the file and within the format's limit. */
int safetensors_header_length(const uint8_t *length, uint64_t file_bytes, const char *label,
                              size_t *header_bytes, smoe_error *err);

/* Parses the JSON header (without its length field) of a file of file_bytes that is number file of
 * its set. Appends its tensors to table in the order of their data, names in the arena, offsets
 * absolute. *metadata (may be NULL) receives the __metadata__ object, the caller's, NULL when there
 * is none. After failure the table may hold some of the tensors. */
int safetensors_parse(tensor_table *table, arena *names, const char *header, size_t header_bytes,
                      uint64_t file_bytes, int32_t file, const char *label,
                      struct json_object **metadata, smoe_error *err);

/* Adds path to the set, reads its header and parses it as above. */
int safetensors_open(tensor_table *table, arena *names, file_set *files, const char *path,
                     struct json_object **metadata, smoe_error *err);

/* ---- writing */

typedef struct safetensors_meta {
    const char *key;
    const char *value;
} safetensors_meta;

/* Makes everything of a file that comes before its data: the length field and the header, padded
 * with spaces so that the data begins at a multiple of 8. The n_item tensors (name, type, rank and
 * shape set; element types only, no block types) lie behind it in this order without gaps: offset
 * (absolute) and bytes of each are filled in. Readers that cast in place want the widest types
 * first. meta becomes __metadata__; with n_meta 0 there is none.
 * *head is the caller's (free), untouched on failure. */
int safetensors_head(tensor *item, int32_t n_item, const safetensors_meta *meta, int32_t n_meta,
                     char **head, size_t *head_bytes, smoe_error *err);

#endif
