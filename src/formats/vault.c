/* The vault header; see vault.h and docs/format.md. Owns no state, never reads a record. */
#include "formats/vault.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/limits.h"

/* As PNG's: the high bit catches 7-bit transfers, CR LF text conversions, 0x1a stops `type`. */
const uint8_t VAULT_MAGIC[8] = {0x89, 'S', 'M', 'O', 'E', '\r', '\n', 0x1a};

enum { /* offsets in the prologue */
       AT_VERSION = 8,
       AT_N_SECTION = 12,
       AT_HEADER_BYTES = 16,
       AT_FILE_BYTES = 24,
       AT_BODY_CHECKSUM = 32,
       AT_PROLOGUE_CHECKSUM = 40
};

enum { SECTION_ENTRY_BYTES = 24, SECTION_ALIGN = 8 };
enum { LAYER_ENTRY_BYTES = 104, PART_ENTRY_BYTES = 32, RECORD_ENTRY_BYTES = 24 };
enum { SCOUT_FIXED_BYTES = 32, SCOUT_TENSOR_BYTES = 8 };

enum section_kind { /* as stored */
                    SECTION_SPEC = 1,
                    SECTION_TOKENIZER = 2,
                    SECTION_TOKENIZER_CONFIG = 3,
                    SECTION_CHAT_TEMPLATE = 4,
                    SECTION_GENERATION = 5,
                    SECTION_LAYERS = 6,
                    SECTION_RECORDS = 7,
                    SECTION_SCOUT = 8,
                    SECTION_GGUF_TOKENIZER = 9,
                    SECTION_PREPARED_TOKENIZER = 10,
                    SECTION_END
};

static const enum section_kind section_of_text[VAULT_TEXTS] = {
    [VAULT_SPEC] = SECTION_SPEC,
    [VAULT_TOKENIZER] = SECTION_TOKENIZER,
    [VAULT_TOKENIZER_CONFIG] = SECTION_TOKENIZER_CONFIG,
    [VAULT_CHAT_TEMPLATE] = SECTION_CHAT_TEMPLATE,
    [VAULT_GENERATION] = SECTION_GENERATION,
    [VAULT_GGUF_TOKENIZER] = SECTION_GGUF_TOKENIZER,
    [VAULT_PREPARED_TOKENIZER] = SECTION_PREPARED_TOKENIZER,
};

static const char *const section_name[SECTION_END] = {
    "",       "spec",    "tokenizer", "tokenizer configuration", "chat template",      "generation",
    "layers", "records", "scout",     "GGUF tokenizer",          "prepared tokenizer",
};

/* The stored number of a type is its index, or for ggml's block types GGML_CODES and its number in
 * GGUF files; the enum itself may change. */
static const dtype type_of_code[] = {DT_NONE, DT_F32, DT_F16, DT_BF16, DT_Q8, DT_Q4, DT_Q2};
enum { TYPE_CODES = sizeof type_of_code / sizeof *type_of_code, GGML_CODES = 256 };

static dtype type_by_code(uint32_t code) {
    if (code < TYPE_CODES) {
        return type_of_code[code];
    }
    dtype t = code >= GGML_CODES ? dtype_by_ggml(code - GGML_CODES) : DT_NONE;
    const dtype_info *info = dtype_get(t);
    return info->is_weight && info->block_elems > 1 ? t : DT_NONE;
}

/* ---- bytes */

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get_u64(const uint8_t *p) {
    return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

static void put_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> 8 * i);
    }
}

static void put_u64(uint8_t *p, uint64_t v) {
    put_u32(p, (uint32_t)v);
    put_u32(p + 4, (uint32_t)(v >> 32));
}

static uint64_t body_checksum(const uint8_t *header, size_t bytes) {
    return XXH3_64bits(header + VAULT_PROLOGUE_BYTES, bytes - VAULT_PROLOGUE_BYTES);
}

void vault_seal(uint8_t *header, size_t bytes) {
    put_u64(header + AT_BODY_CHECKSUM, body_checksum(header, bytes));
    put_u64(header + AT_PROLOGUE_CHECKSUM, XXH3_64bits(header, AT_PROLOGUE_CHECKSUM));
}

uint64_t vault_record_end(const vault_record *r) {
    return round_up(r->offset + r->bytes, VAULT_RECORD_ALIGN);
}

bool vault_scout_path(char *out, size_t out_bytes, const char *vault_path) {
    size_t n = strlen(vault_path);
    size_t suffix = strlen(VAULT_SUFFIX);
    if (n > suffix && strcmp(vault_path + n - suffix, VAULT_SUFFIX) == 0) {
        n -= suffix;
    }
    if (n > FILE_PATH_BYTES) {
        return false;
    }
    int need = snprintf(out, out_bytes, "%.*s%s", (int)n, vault_path, VAULT_SCOUT_SUFFIX);
    return need >= 0 && (size_t)need < out_bytes;
}

void vault_record_name(const vault_content *c, int64_t record, int32_t *layer, int32_t *expert) {
    *layer = *expert = -1;
    for (int32_t i = 0; i < c->n_layer; i++) {
        const vault_layer *l = &c->layer[i];
        if (record >= l->first_record && record - l->first_record < l->n_expert) {
            *layer = l->layer;
            *expert = (int32_t)(record - l->first_record);
        }
    }
}

/* ---- decoding */

typedef struct decoder {
    vault_content *c;
    const uint8_t *data;
    size_t bytes;
    uint64_t file_bytes;
    const char *label;
    arena *a;
    smoe_error *err;
    const uint8_t *section[SECTION_END]; /* NULL: absent */
    uint64_t section_bytes[SECTION_END];
} decoder;

int vault_peek(const uint8_t *prologue, uint64_t file_bytes, const char *label,
               uint64_t *header_bytes, smoe_error *err) {
    if (file_bytes < VAULT_PROLOGUE_BYTES || memcmp(prologue, VAULT_MAGIC, sizeof VAULT_MAGIC)) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s is not a vault; make one from a checkpoint with smoe sculpt", label);
    }
    uint32_t version = get_u32(prologue + AT_VERSION);
    if (version != VAULT_VERSION) {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "%s is a vault of format version %u, this smoe reads version %u; sculpt it "
                       "again",
                       label, version, VAULT_VERSION);
    }
    uint64_t found = XXH3_64bits(prologue, AT_PROLOGUE_CHECKSUM);
    uint64_t stored = get_u64(prologue + AT_PROLOGUE_CHECKSUM);
    if (found != stored) {
        return err_set(err, SMOE_ERR_CHECKSUM,
                       "%s: the prologue is damaged: checksum %016" PRIx64 ", expected %016" PRIx64,
                       label, found, stored);
    }
    uint64_t want_file = get_u64(prologue + AT_FILE_BYTES);
    if (want_file != file_bytes) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s has %" PRIu64 " bytes, its header says %" PRIu64
                       "; copy or sculpt it again",
                       label, file_bytes, want_file);
    }
    uint64_t header = get_u64(prologue + AT_HEADER_BYTES);
    if (header < VAULT_PROLOGUE_BYTES || header > file_bytes || header > LIMIT_VAULT_HEADER_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: a header of %" PRIu64 " bytes does not fit (file: %" PRIu64
                       ", limit: %" PRIu64 ")",
                       label, header, file_bytes, (uint64_t)LIMIT_VAULT_HEADER_BYTES);
    }
    *header_bytes = header;
    return SMOE_OK;
}

static int bad(const decoder *d, const char *what) {
    return err_set(d->err, SMOE_ERR_FORMAT, "%s: vault header: %s", d->label, what);
}

/* One entry of the section table; *end is where the previous section ended. */
static int take_section(decoder *d, const uint8_t *entry, uint32_t *last_kind, uint64_t *end) {
    uint32_t kind = get_u32(entry);
    uint64_t offset = get_u64(entry + 8);
    uint64_t bytes = get_u64(entry + 16);
    if (kind == 0 || kind >= SECTION_END || get_u32(entry + 4) != 0) {
        return err_set(d->err, SMOE_ERR_FORMAT, "%s: vault header: unknown section kind %u",
                       d->label, kind);
    }
    if (kind <= *last_kind) {
        return bad(d, "sections out of order");
    }
    if (offset != round_up(*end, SECTION_ALIGN) || offset > d->bytes || bytes > d->bytes - offset) {
        return err_set(d->err, SMOE_ERR_FORMAT,
                       "%s: vault header: section %s at byte %" PRIu64 " with %" PRIu64
                       " bytes is not where it belongs",
                       d->label, section_name[kind], offset, bytes);
    }
    d->section[kind] = d->data + offset;
    d->section_bytes[kind] = bytes;
    *last_kind = kind;
    *end = offset + bytes;
    return SMOE_OK;
}

static int decode_sections(decoder *d) {
    uint32_t n = get_u32(d->data + AT_N_SECTION);
    if (n >= SECTION_END || d->bytes < VAULT_PROLOGUE_BYTES + (size_t)n * SECTION_ENTRY_BYTES) {
        return bad(d, "more sections than it can hold");
    }
    uint64_t end = VAULT_PROLOGUE_BYTES + (uint64_t)n * SECTION_ENTRY_BYTES;
    uint32_t last_kind = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *entry = d->data + VAULT_PROLOGUE_BYTES + (size_t)i * SECTION_ENTRY_BYTES;
        int rc = take_section(d, entry, &last_kind, &end);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    if (round_up(end, SECTION_ALIGN) != d->bytes) {
        return bad(d, "bytes behind the last section");
    }
    static const enum section_kind needed[] = {SECTION_SPEC, SECTION_LAYERS, SECTION_RECORDS,
                                               SECTION_SCOUT};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!d->section[needed[i]]) {
            return err_set(d->err, SMOE_ERR_FORMAT, "%s: vault header: no section %s", d->label,
                           section_name[needed[i]]);
        }
    }
    for (int t = 0; t < VAULT_TEXTS; t++) {
        enum section_kind kind = section_of_text[t];
        d->c->text[t] = (vault_text){.data = (const char *)d->section[kind],
                                     .bytes = (size_t)d->section_bytes[kind]};
    }
    return SMOE_OK;
}

static int decode_part(const decoder *d, const uint8_t *p, int32_t layer, vault_part *part) {
    uint32_t code = get_u32(p);
    uint32_t n_row = get_u32(p + 4);
    uint32_t n_col = get_u32(p + 8);
    bool known = type_by_code(code) != DT_NONE;
    if (!known || n_row < 1 || n_row > LIMIT_DIM || n_col < 1 || n_col > LIMIT_DIM ||
        get_u32(p + 12) != 0) {
        return err_set(d->err, SMOE_ERR_FORMAT,
                       "%s: vault header: layer %d: no matrix has type %u and shape [%u, %u]",
                       d->label, layer, code, n_row, n_col);
    }
    *part = (vault_part){.type = type_by_code(code),
                         .n_row = (int32_t)n_row,
                         .n_col = (int32_t)n_col,
                         .at_bytes = get_u64(p + 16),
                         .bytes = get_u64(p + 24)};
    return SMOE_OK;
}

static int decode_layer(const decoder *d, const uint8_t *p, vault_layer *l) {
    uint32_t layer = get_u32(p);
    uint32_t n_expert = get_u32(p + 4);
    if (layer >= LIMIT_LAYERS || n_expert < 1 || n_expert > LIMIT_EXPERTS) {
        return err_set(d->err, SMOE_ERR_FORMAT, "%s: vault header: layer %u with %u experts",
                       d->label, layer, n_expert);
    }
    *l = (vault_layer){.layer = (int32_t)layer, .n_expert = (int32_t)n_expert};
    for (int k = 0; k < VAULT_PARTS; k++) {
        int rc = decode_part(d, p + 8 + k * PART_ENTRY_BYTES, l->layer, &l->part[k]);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    vault_layer placed = *l;
    vault_layer_place(&placed);
    for (int k = 0; k < VAULT_PARTS; k++) {
        if (placed.part[k].at_bytes != l->part[k].at_bytes ||
            placed.part[k].bytes != l->part[k].bytes) {
            return err_set(d->err, SMOE_ERR_FORMAT,
                           "%s: vault header: layer %d: a matrix at byte %" PRIu64 " with %" PRIu64
                           " bytes, expected %" PRIu64 " with %" PRIu64,
                           d->label, l->layer, l->part[k].at_bytes, l->part[k].bytes,
                           placed.part[k].at_bytes, placed.part[k].bytes);
        }
    }
    l->record_bytes = placed.record_bytes;
    return SMOE_OK;
}

static int decode_layers(const decoder *d) {
    vault_content *c = d->c;
    uint64_t bytes = d->section_bytes[SECTION_LAYERS];
    if (bytes % LAYER_ENTRY_BYTES != 0 || bytes / LAYER_ENTRY_BYTES > LIMIT_LAYERS) {
        return bad(d, "the layer table has a wrong size");
    }
    c->n_layer = (int32_t)(bytes / LAYER_ENTRY_BYTES);
    c->layer = arena_get(d->a, (size_t)c->n_layer, sizeof *c->layer);
    if (!c->layer) {
        return err_no_memory(d->err, bytes);
    }
    c->n_record = 0;
    for (int32_t i = 0; i < c->n_layer; i++) {
        const uint8_t *p = d->section[SECTION_LAYERS] + (size_t)i * LAYER_ENTRY_BYTES;
        int rc = decode_layer(d, p, &c->layer[i]);
        if (rc != SMOE_OK) {
            return rc;
        }
        if (i > 0 && c->layer[i].layer <= c->layer[i - 1].layer) {
            return bad(d, "layers out of order");
        }
        c->layer[i].first_record = c->n_record;
        c->n_record += c->layer[i].n_expert;
    }
    return SMOE_OK;
}

static int record_error(const decoder *d, int64_t i, const char *what) {
    int32_t layer;
    int32_t expert;
    vault_record_name(d->c, i, &layer, &expert);
    return err_set(d->err, SMOE_ERR_FORMAT,
                   "%s: vault header: layer %d, expert %d: record at byte %" PRIu64 " with %" PRIu64
                   " bytes %s",
                   d->label, layer, expert, d->c->record[i].offset, d->c->record[i].bytes, what);
}

static int decode_layer_records(const decoder *d, const vault_layer *l) {
    uint64_t data_offset = round_up(d->bytes, VAULT_RECORD_ALIGN);
    for (int64_t i = l->first_record; i < l->first_record + l->n_expert; i++) {
        const uint8_t *p = d->section[SECTION_RECORDS] + (size_t)i * RECORD_ENTRY_BYTES;
        vault_record *r = &d->c->record[i];
        *r = (vault_record){
            .offset = get_u64(p), .bytes = get_u64(p + 8), .checksum = get_u64(p + 16)};
        if (r->bytes != l->record_bytes) {
            return record_error(d, i, "differs from its layer's matrices");
        }
        if (r->offset % VAULT_RECORD_ALIGN != 0) {
            return record_error(d, i, "is not aligned");
        }
        if (r->offset < data_offset || r->offset > d->file_bytes ||
            r->bytes > d->file_bytes - r->offset) {
            return record_error(d, i, "is not inside the file");
        }
    }
    return SMOE_OK;
}

static int by_offset(const void *a, const void *b) {
    uint64_t x = (*(const vault_record *const *)a)->offset;
    uint64_t y = (*(const vault_record *const *)b)->offset;
    return x < y ? -1 : x > y;
}

static int check_disjoint(const decoder *d) {
    vault_content *c = d->c;
    size_t n = (size_t)c->n_record;
    const vault_record **sorted = mem_array(n, sizeof *sorted);
    if (!sorted) {
        return err_no_memory(d->err, n * sizeof *sorted);
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &c->record[i];
    }
    qsort(sorted, n, sizeof *sorted, by_offset);
    int rc = SMOE_OK;
    for (size_t i = 1; i < n && rc == SMOE_OK; i++) {
        if (sorted[i]->offset < vault_record_end(sorted[i - 1])) {
            rc = record_error(d, sorted[i] - c->record, "overlaps another record");
        }
    }
    free(sorted);
    return rc;
}

static int decode_records(const decoder *d) {
    vault_content *c = d->c;
    uint64_t bytes = d->section_bytes[SECTION_RECORDS];
    if (bytes % RECORD_ENTRY_BYTES != 0 || bytes / RECORD_ENTRY_BYTES != (uint64_t)c->n_record) {
        return bad(d, "the record table does not match the layer table");
    }
    if (d->file_bytes % VAULT_RECORD_ALIGN != 0) {
        return bad(d, "the file does not end where a record could");
    }
    c->record = arena_get(d->a, (size_t)c->n_record, sizeof *c->record);
    if (!c->record) {
        return err_no_memory(d->err, bytes);
    }
    for (int32_t i = 0; i < c->n_layer; i++) {
        int rc = decode_layer_records(d, &c->layer[i]);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return check_disjoint(d);
}

static int decode_scout(const decoder *d) {
    vault_content *c = d->c;
    const uint8_t *p = d->section[SECTION_SCOUT];
    uint64_t bytes = d->section_bytes[SECTION_SCOUT];
    if (bytes < SCOUT_FIXED_BYTES || bytes % SCOUT_TENSOR_BYTES != 0) {
        return bad(d, "the scout section has a wrong size");
    }
    c->scout = (vault_scout){.file_bytes = get_u64(p),
                             .head_bytes = get_u64(p + 8),
                             .head_checksum = get_u64(p + 16),
                             .checksum = get_u64(p + 24)};
    if (c->scout.head_bytes > c->scout.file_bytes) {
        return bad(d, "the scout's head is longer than the scout");
    }
    c->n_scout_tensor = (int32_t)((bytes - SCOUT_FIXED_BYTES) / SCOUT_TENSOR_BYTES);
    c->scout_tensor = arena_get(d->a, (size_t)c->n_scout_tensor, sizeof *c->scout_tensor);
    if (!c->scout_tensor) {
        return err_no_memory(d->err, bytes);
    }
    for (int32_t i = 0; i < c->n_scout_tensor; i++) {
        c->scout_tensor[i] = get_u64(p + SCOUT_FIXED_BYTES + (size_t)i * SCOUT_TENSOR_BYTES);
    }
    return SMOE_OK;
}

int vault_decode(vault_content *out, const uint8_t *data, size_t bytes, uint64_t file_bytes,
                 const char *label, arena *a, smoe_error *err) {
    uint64_t header_bytes;
    if (bytes < VAULT_PROLOGUE_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %zu bytes are too few for a vault", label, bytes);
    }
    int rc = vault_peek(data, file_bytes, label, &header_bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (header_bytes != bytes) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %zu header bytes, expected %" PRIu64, label,
                       bytes, header_bytes);
    }
    uint64_t found = body_checksum(data, bytes);
    uint64_t stored = get_u64(data + AT_BODY_CHECKSUM);
    if (found != stored) {
        return err_set(err, SMOE_ERR_CHECKSUM,
                       "%s: the header is damaged: checksum %016" PRIx64 ", expected %016" PRIx64,
                       label, found, stored);
    }
    *out = (vault_content){.header_bytes = bytes, .file_bytes = file_bytes};
    decoder d = {.c = out,
                 .data = data,
                 .bytes = bytes,
                 .file_bytes = file_bytes,
                 .label = label,
                 .a = a,
                 .err = err};
    rc = decode_sections(&d);
    rc = rc == SMOE_OK ? decode_layers(&d) : rc;
    rc = rc == SMOE_OK ? decode_records(&d) : rc;
    return rc == SMOE_OK ? decode_scout(&d) : rc;
}

int vault_read(vault_content *out, model_file *f, arena *a, smoe_error *err) {
    uint8_t prologue[VAULT_PROLOGUE_BYTES] = {0};
    uint64_t header_bytes;
    size_t n = f->bytes < sizeof prologue ? (size_t)f->bytes : sizeof prologue;
    int rc = model_file_read_head(f, 0, prologue, n, err);
    rc = rc == SMOE_OK ? vault_peek(prologue, f->bytes, f->path, &header_bytes, err) : rc;
    if (rc != SMOE_OK) {
        return rc;
    }
    uint8_t *data = arena_get(a, (size_t)header_bytes, 1);
    if (!data) {
        return err_no_memory(err, header_bytes);
    }
    rc = model_file_read_head(f, 0, data, (size_t)header_bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    return vault_decode(out, data, (size_t)header_bytes, f->bytes, f->path, a, err);
}

/* ---- encoding */

void vault_layer_place(vault_layer *l) {
    uint64_t end = 0;
    for (int k = 0; k < VAULT_PARTS; k++) {
        vault_part *p = &l->part[k];
        p->at_bytes = round_up(end, VAULT_PART_ALIGN);
        p->bytes = (uint64_t)p->n_row * dtype_row_bytes(p->type, (uint64_t)p->n_col);
        end = p->at_bytes + p->bytes;
    }
    l->record_bytes = end;
}

/* NULL when the section is none of the texts. */
static const vault_text *text_of_section(const vault_content *c, int kind) {
    for (int t = 0; t < VAULT_TEXTS; t++) {
        if ((int)section_of_text[t] == kind) {
            return &c->text[t];
        }
    }
    return NULL;
}

static uint64_t section_size(const vault_content *c, int kind) {
    switch (kind) {
    case SECTION_LAYERS:
        return (uint64_t)c->n_layer * LAYER_ENTRY_BYTES;
    case SECTION_RECORDS:
        return (uint64_t)c->n_record * RECORD_ENTRY_BYTES;
    case SECTION_SCOUT:
        return SCOUT_FIXED_BYTES + (uint64_t)c->n_scout_tensor * SCOUT_TENSOR_BYTES;
    default:
        return text_of_section(c, kind)->bytes;
    }
}

static bool section_present(const vault_content *c, int kind) {
    const vault_text *text = text_of_section(c, kind);
    return !text || text->data;
}

static uint32_t section_count(const vault_content *c) {
    uint32_t n = 0;
    for (int kind = SECTION_SPEC; kind < SECTION_END; kind++) {
        n += section_present(c, kind);
    }
    return n;
}

int vault_place(vault_content *c, smoe_error *err) {
    uint64_t end = VAULT_PROLOGUE_BYTES + (uint64_t)section_count(c) * SECTION_ENTRY_BYTES;
    for (int kind = SECTION_SPEC; kind < SECTION_END; kind++) {
        end = section_present(c, kind) ? round_up(end + section_size(c, kind), SECTION_ALIGN) : end;
    }
    if (end > LIMIT_VAULT_HEADER_BYTES) {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "the vault's header would have %" PRIu64 " bytes, the limit is %" PRIu64,
                       end, (uint64_t)LIMIT_VAULT_HEADER_BYTES);
    }
    c->header_bytes = end;
    uint64_t offset = round_up(end, VAULT_RECORD_ALIGN);
    int64_t n = 0;
    for (int32_t i = 0; i < c->n_layer; i++) {
        c->layer[i].first_record = n;
        for (int32_t e = 0; e < c->layer[i].n_expert; e++, n++) {
            c->record[n].offset = offset;
            c->record[n].bytes = c->layer[i].record_bytes;
            offset = vault_record_end(&c->record[n]);
        }
    }
    c->file_bytes = offset;
    return SMOE_OK;
}

static uint32_t type_code(dtype t) {
    uint32_t code = 0;
    for (uint32_t i = 1; i < TYPE_CODES; i++) {
        code = type_of_code[i] == t ? i : code;
    }
    return code ? code : (uint32_t)(GGML_CODES + dtype_to_ggml(t));
}

static void encode_layer(const vault_layer *l, uint8_t *p) {
    put_u32(p, (uint32_t)l->layer);
    put_u32(p + 4, (uint32_t)l->n_expert);
    for (int k = 0; k < VAULT_PARTS; k++) {
        uint8_t *q = p + 8 + k * PART_ENTRY_BYTES;
        put_u32(q, type_code(l->part[k].type));
        put_u32(q + 4, (uint32_t)l->part[k].n_row);
        put_u32(q + 8, (uint32_t)l->part[k].n_col);
        put_u64(q + 16, l->part[k].at_bytes);
        put_u64(q + 24, l->part[k].bytes);
    }
}

static void encode_records(const vault_content *c, uint8_t *p) {
    for (int64_t i = 0; i < c->n_record; i++, p += RECORD_ENTRY_BYTES) {
        put_u64(p, c->record[i].offset);
        put_u64(p + 8, c->record[i].bytes);
        put_u64(p + 16, c->record[i].checksum);
    }
}

static void encode_scout(const vault_content *c, uint8_t *p) {
    put_u64(p, c->scout.file_bytes);
    put_u64(p + 8, c->scout.head_bytes);
    put_u64(p + 16, c->scout.head_checksum);
    put_u64(p + 24, c->scout.checksum);
    for (int32_t i = 0; i < c->n_scout_tensor; i++) {
        put_u64(p + SCOUT_FIXED_BYTES + (size_t)i * SCOUT_TENSOR_BYTES, c->scout_tensor[i]);
    }
}

static void encode_section(const vault_content *c, int kind, uint8_t *p) {
    switch (kind) {
    case SECTION_LAYERS:
        for (int32_t i = 0; i < c->n_layer; i++) {
            encode_layer(&c->layer[i], p + (size_t)i * LAYER_ENTRY_BYTES);
        }
        break;
    case SECTION_RECORDS:
        encode_records(c, p);
        break;
    case SECTION_SCOUT:
        encode_scout(c, p);
        break;
    default:
        memcpy(p, text_of_section(c, kind)->data, text_of_section(c, kind)->bytes);
        break;
    }
}

void vault_encode(const vault_content *c, uint8_t *out) {
    memset(out, 0, (size_t)c->header_bytes);
    memcpy(out, VAULT_MAGIC, sizeof VAULT_MAGIC);
    put_u32(out + AT_VERSION, VAULT_VERSION);
    put_u32(out + AT_N_SECTION, section_count(c));
    put_u64(out + AT_HEADER_BYTES, c->header_bytes);
    put_u64(out + AT_FILE_BYTES, c->file_bytes);
    uint8_t *entry = out + VAULT_PROLOGUE_BYTES;
    uint64_t end = VAULT_PROLOGUE_BYTES + (uint64_t)section_count(c) * SECTION_ENTRY_BYTES;
    for (int kind = SECTION_SPEC; kind < SECTION_END; kind++) {
        if (section_present(c, kind)) {
            uint64_t bytes = section_size(c, kind);
            put_u32(entry, (uint32_t)kind);
            put_u64(entry + 8, end);
            put_u64(entry + 16, bytes);
            encode_section(c, kind, out + end);
            end = round_up(end + bytes, SECTION_ALIGN);
            entry += SECTION_ENTRY_BYTES;
        }
    }
    vault_seal(out, (size_t)c->header_bytes);
}
