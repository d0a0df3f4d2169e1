/* Reading back; see vault_check.h. Writes nothing. */
#include "sculptor/vault_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/file.h"

enum { CHECK_BLOCK_BYTES = 4 << 20 };

/* A range read in blocks, each handed to up to two hashes; or looked through for a byte that is
 * not zero. */
typedef struct reader {
    int fd;
    const char *path;
    uint8_t *block; /* [CHECK_BLOCK_BYTES] */
    XXH3_state_t *part;
    XXH3_state_t *whole; /* NULL: none */
    ticker *ticker;      /* NULL: none */
    smoe_error *err;
} reader;

static int reader_open(reader *r, smoe_error *err) {
    r->err = err;
    r->block = malloc(CHECK_BLOCK_BYTES);
    r->part = XXH3_createState();
    return r->block && r->part ? SMOE_OK : err_no_memory(err, CHECK_BLOCK_BYTES);
}

static void reader_close(reader *r) {
    free(r->block);
    XXH3_freeState(r->part);
    XXH3_freeState(r->whole);
}

static int hash_range(reader *r, uint64_t offset, uint64_t bytes, uint64_t *checksum) {
    XXH3_64bits_reset(r->part);
    for (uint64_t at = 0; at < bytes;) {
        size_t n = bytes - at < CHECK_BLOCK_BYTES ? (size_t)(bytes - at) : CHECK_BLOCK_BYTES;
        int rc = file_read_at(r->fd, r->path, offset + at, r->block, n, r->err);
        if (rc != SMOE_OK) {
            return rc;
        }
        XXH3_64bits_update(r->part, r->block, n);
        if (r->whole) {
            XXH3_64bits_update(r->whole, r->block, n);
        }
        at += n;
        rc = r->ticker ? ticker_add(r->ticker, n, r->err) : SMOE_OK;
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    *checksum = XXH3_64bits_digest(r->part);
    return SMOE_OK;
}

static int check_zeros(reader *r, uint64_t from, uint64_t to) {
    while (from < to) {
        size_t n = to - from < CHECK_BLOCK_BYTES ? (size_t)(to - from) : CHECK_BLOCK_BYTES;
        int rc = file_read_at(r->fd, r->path, from, r->block, n, r->err);
        if (rc != SMOE_OK) {
            return rc;
        }
        for (size_t i = 0; i < n; i++) {
            if (r->block[i]) {
                return err_set(r->err, SMOE_ERR_CHECKSUM,
                               "%s: byte %" PRIu64 " between records is %02x, expected 00", r->path,
                               from + i, r->block[i]);
            }
        }
        from += n;
        rc = ticker_add(r->ticker, n, r->err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return SMOE_OK;
}

int vault_check_range(int fd, const char *path, uint64_t offset, uint64_t bytes, uint64_t *checksum,
                      smoe_error *err) {
    reader r = {.fd = fd, .path = path};
    int rc = reader_open(&r, err);
    rc = rc == SMOE_OK ? hash_range(&r, offset, bytes, checksum) : rc;
    reader_close(&r);
    return rc;
}

uint64_t vault_check_bytes(const vault_check *c) {
    return c->content->scout.file_bytes + c->content->file_bytes - c->zeros_from;
}

/* ---- scout */

static int differs(smoe_error *err, const char *path, const char *what, uint64_t found,
                   uint64_t want) {
    return err_set(err, SMOE_ERR_CHECKSUM,
                   "%s: %s is damaged: checksum %016" PRIx64 ", expected %016" PRIx64, path, what,
                   found, want);
}

static int check_tensors(vault_check *c, reader *r) {
    const vault_content *v = c->content;
    uint64_t found = 0;
    int rc = hash_range(r, 0, v->scout.head_bytes, &found);
    if (rc == SMOE_OK && found != v->scout.head_checksum) {
        return differs(r->err, r->path, "the header", found, v->scout.head_checksum);
    }
    for (int32_t i = 0; i < v->n_scout_tensor && rc == SMOE_OK; i++) {
        c->bad_unit = i;
        rc = hash_range(r, c->scout[i].offset, c->scout[i].bytes, &found);
        if (rc == SMOE_OK && found != v->scout_tensor[i]) {
            return err_set(r->err, SMOE_ERR_CHECKSUM,
                           "%s: tensor %s is damaged: checksum %016" PRIx64
                           ", expected %016" PRIx64,
                           r->path, c->scout[i].name, found, v->scout_tensor[i]);
        }
    }
    return rc;
}

int vault_check_scout(vault_check *c, uint64_t *whole, smoe_error *err) {
    reader r = {.fd = c->scout_fd, .path = c->scout_path, .ticker = c->ticker};
    c->bad_unit = -1;
    int rc = reader_open(&r, err);
    if (rc == SMOE_OK) {
        r.whole = XXH3_createState();
        rc = r.whole ? SMOE_OK : err_no_memory(err, sizeof(XXH3_state_t *));
    }
    if (rc == SMOE_OK) {
        XXH3_64bits_reset(r.whole);
        rc = check_tensors(c, &r);
    }
    if (rc == SMOE_OK) {
        *whole = XXH3_64bits_digest(r.whole);
        c->bad_unit = -1;
    }
    reader_close(&r);
    return rc;
}

/* ---- records */

static int by_offset(const void *a, const void *b) {
    uint64_t x = (*(const vault_record *const *)a)->offset;
    uint64_t y = (*(const vault_record *const *)b)->offset;
    return x < y ? -1 : x > y;
}

/* *end: where the previous record ended; moved to the end of this one. */
static int check_record(vault_check *c, reader *r, const vault_record *record, uint64_t *end) {
    int64_t index = record - c->content->record;
    uint64_t found = 0;
    int rc = check_zeros(r, *end, record->offset);
    if (rc != SMOE_OK) {
        return rc;
    }
    c->bad_unit = c->content->n_scout_tensor + index;
    rc = hash_range(r, record->offset, record->bytes, &found);
    if (rc == SMOE_OK && found != record->checksum) {
        int32_t layer;
        int32_t expert;
        vault_record_name(c->content, index, &layer, &expert);
        return err_set(r->err, SMOE_ERR_CHECKSUM,
                       "%s: the record of layer %d, expert %d is damaged: checksum %016" PRIx64
                       ", expected %016" PRIx64,
                       r->path, layer, expert, found, record->checksum);
    }
    *end = record->offset + record->bytes;
    return rc;
}

static int check_all_records(vault_check *c, reader *r, const vault_record **sorted) {
    const vault_content *v = c->content;
    uint64_t end = c->zeros_from;
    for (int64_t i = 0; i < v->n_record; i++) {
        sorted[i] = &v->record[i];
    }
    qsort(sorted, (size_t)v->n_record, sizeof *sorted, by_offset);
    for (int64_t i = 0; i < v->n_record; i++) {
        int rc = check_record(c, r, sorted[i], &end);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return check_zeros(r, end, v->file_bytes);
}

int vault_check_records(vault_check *c, smoe_error *err) {
    reader r = {.fd = c->vault_fd, .path = c->vault_path, .ticker = c->ticker};
    size_t n = (size_t)c->content->n_record;
    c->bad_unit = -1;
    const vault_record **sorted = mem_array(n, sizeof *sorted);
    int rc = sorted ? reader_open(&r, err) : err_no_memory(err, n * sizeof *sorted);
    if (rc == SMOE_OK) {
        rc = check_all_records(c, &r, sorted);
        c->bad_unit = rc == SMOE_OK ? -1 : c->bad_unit;
    }
    reader_close(&r);
    free(sorted);
    return rc;
}
