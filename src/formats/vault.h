/* The vault container, version 1: its header as bytes and as structs. docs/format.md has the
 * layout.
 *
 * Reading is split in two: a parser over bytes that never touches a file, and vault_read, which
 * reads a file's header (never its records). The parser holds a header to everything that version 1
 * says, so what it returns is consistent: records are aligned, inside the file, disjoint, and as
 * long as their layer's matrices ask. It knows nothing of models.
 */
#ifndef SMOE_FORMATS_VAULT_H
#define SMOE_FORMATS_VAULT_H

#include "base/error.h"
#include "base/mem.h"
#include "formats/tensor.h"

#define VAULT_VERSION        1u
#define VAULT_PROLOGUE_BYTES 48u
#define VAULT_RECORD_ALIGN   16384u /* of records in the file */
#define VAULT_PART_ALIGN     64u    /* of matrices in a record */
#define VAULT_SUFFIX         ".smoe"
#define VAULT_SCOUT_SUFFIX   ".scout.safetensors"

extern const uint8_t VAULT_MAGIC[8];

enum vault_part_kind { VAULT_GATE, VAULT_UP, VAULT_DOWN, VAULT_PARTS };

/* The sections that hold text; VAULT_SPEC is always there. */
enum vault_text_kind {
    VAULT_SPEC,
    VAULT_TOKENIZER,
    VAULT_TOKENIZER_CONFIG,
    VAULT_CHAT_TEMPLATE,
    VAULT_GENERATION,
    VAULT_GGUF_TOKENIZER,
    VAULT_PREPARED_TOKENIZER,
    VAULT_TEXTS
};

typedef struct vault_text {
    const char *data; /* NULL when absent; not NUL-terminated */
    size_t bytes;
} vault_text;

/* One matrix inside every record of a layer. */
typedef struct vault_part {
    dtype type;
    int32_t n_row;
    int32_t n_col;
    uint64_t at_bytes; /* from the start of the record */
    uint64_t bytes;
} vault_part;

typedef struct vault_layer { /* one for each MoE layer, in order */
    int32_t layer;           /* its number among all layers of the model */
    int32_t n_expert;
    vault_part part[VAULT_PARTS];
    uint64_t record_bytes; /* to the end of the last part */
    int64_t first_record;  /* index of expert 0's record */
} vault_layer;

typedef struct vault_record {
    uint64_t offset;
    uint64_t bytes;    /* without the zeros up to the next VAULT_RECORD_ALIGN */
    uint64_t checksum; /* XXH3-64 of those bytes */
} vault_record;

typedef struct vault_scout {
    uint64_t file_bytes;
    uint64_t head_bytes;    /* what comes before its data: length field and JSON header */
    uint64_t head_checksum; /* XXH3-64 of those */
    uint64_t checksum;      /* XXH3-64 of the whole file */
} vault_scout;

/* Everything a header says. The arrays belong to the arena given to the decoder, or to whoever
 * builds a vault; texts borrow from the decoded bytes. */
typedef struct vault_content {
    uint64_t header_bytes;
    uint64_t file_bytes;
    vault_text text[VAULT_TEXTS];
    vault_layer *layer; /* [n_layer] */
    int32_t n_layer;
    vault_record *record; /* [n_record], layer by layer, expert by expert */
    int64_t n_record;
    vault_scout scout;
    uint64_t *scout_tensor; /* [n_scout_tensor] XXH3-64 of each scout tensor, in file order */
    int32_t n_scout_tensor;
} vault_content;

/* ---- reading */

/* Checks the prologue, the first VAULT_PROLOGUE_BYTES bytes of a file of file_bytes. On success
 * *header_bytes is the size of the header, prologue included: inside the file and the limit. */
int vault_peek(const uint8_t *prologue, uint64_t file_bytes, const char *label,
               uint64_t *header_bytes, smoe_error *err);
/* Decodes a whole header of exactly bytes bytes. label names the vault in errors. */
int vault_decode(vault_content *out, const uint8_t *data, size_t bytes, uint64_t file_bytes,
                 const char *label, arena *a, smoe_error *err);
/* Reads and decodes the header of an open file; its bytes go to the arena as well. */
int vault_read(vault_content *out, model_file *f, arena *a, smoe_error *err);
/* A record's place in the model, for messages: number among all layers, and expert. */
void vault_record_name(const vault_content *c, int64_t record, int32_t *layer, int32_t *expert);

/* ---- writing */

/* Fills at_bytes and bytes of the parts and record_bytes from their types and shapes. */
void vault_layer_place(vault_layer *l);
/* Fills header_bytes, file_bytes, first_record and the records' offset and bytes. Texts, layers
 * (placed), n_record and n_scout_tensor are set; record is there. */
int vault_place(vault_content *c, smoe_error *err);
/* Writes c->header_bytes bytes to out, checksums included. */
void vault_encode(const vault_content *c, uint8_t *out);
/* Recomputes both checksums of a header of bytes bytes (at least the prologue). */
void vault_seal(uint8_t *header, size_t bytes);

/* The offset behind a record and its padding. */
uint64_t vault_record_end(const vault_record *r);
/* NAME.scout.safetensors for NAME.smoe; false when it does not fit. */
bool vault_scout_path(char *out, size_t out_bytes, const char *vault_path);

#endif
