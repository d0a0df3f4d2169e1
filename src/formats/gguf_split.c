/* Models in several GGUF files, NAME-00001-of-0000N.gguf; see gguf.h. The first file holds the
 * metadata and says how many there are; each holds some of the tensors. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "formats/gguf.h"

static const char key_no[] = "split.no", key_count[] = "split.count",
                  key_tensors[] = "split.tensors.count", key_arch[] = "general.architecture";

enum { SUFFIX_BYTES = sizeof "-00001-of-00001.gguf" - 1, DIGITS = 5 };

/* What a file says of its place. */
typedef struct part {
    int64_t no; /* from 0 */
    int64_t count;
    int64_t n_tensor; /* of all files; -1: not said */
} part;

static int read_part(const gguf_header *h, const char *label, part *p, smoe_error *err) {
    *p = (part){.n_tensor = -1};
    int rc = gguf_opt_int(h, label, key_count, 0, 65535, &p->count, err);
    rc = rc ? rc : gguf_opt_int(h, label, key_no, 0, 65535, &p->no, err);
    rc = rc ? rc : gguf_opt_int(h, label, key_tensors, 0, INT32_MAX, &p->n_tensor, err);
    if (rc == SMOE_OK && p->no >= (p->count > 0 ? p->count : 1)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %s %" PRId64 " is out of range: %s is %" PRId64,
                     label, key_no, p->no, key_count, p->count);
    }
    if (rc == SMOE_OK && p->count > LIMIT_SHARDS) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: %s %" PRId64 ", the limit is %d files", label,
                     key_count, p->count, LIMIT_SHARDS);
    }
    return rc;
}

static bool read_digits(const char *text, int64_t *out) {
    *out = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        *out = *out * 10 + (text[i] - '0');
    }
    return true;
}

/* The number (from 1) and count in a file's name; false when it is not of that form. */
static bool parse_name(const char *path, size_t *stem_bytes, int64_t *number, int64_t *count) {
    size_t n = strlen(path);
    if (n < SUFFIX_BYTES) {
        return false;
    }
    const char *suffix = path + n - SUFFIX_BYTES;
    *stem_bytes = n - SUFFIX_BYTES;
    return suffix[0] == '-' && read_digits(suffix + 1, number) &&
           strncmp(suffix + 1 + DIGITS, "-of-", 4) == 0 &&
           read_digits(suffix + 5 + DIGITS, count) && strcmp(suffix + 5 + 2 * DIGITS, ".gguf") == 0;
}

/* The set being opened. */
typedef struct split {
    gguf_header *head;
    tensor_table *table;
    arena *names;
    file_set *files;
    const char *path;
    size_t stem_bytes;
    int64_t count;
    smoe_error *err;
} split;

static int part_path(const split *s, int64_t number, char out[FILE_PATH_BYTES]) {
    int n = snprintf(out, FILE_PATH_BYTES, "%.*s-%05d-of-%05d.gguf", (int)s->stem_bytes, s->path,
                     (int)number, (int)s->count);
    return n > 0 && n < FILE_PATH_BYTES
               ? SMOE_OK
               : err_set(s->err, SMOE_ERR_ARGUMENT, "%s: path too long", s->path);
}

/* The name must tell the same as the file; then it tells the names of the others. */
static int check_name(split *s, const char *path, const part *p) {
    int64_t number = 0, count = 0;
    if (!parse_name(path, &s->stem_bytes, &number, &count)) {
        return err_set(s->err, SMOE_ERR_FORMAT,
                       "%s: %s says %" PRId64
                       " files, but its name does not end in -00001-of-0000N.gguf",
                       path, key_count, p->count);
    }
    if (count != p->count || number != p->no + 1) {
        return err_set(s->err, SMOE_ERR_FORMAT,
                       "%s: name and content disagree: %s is %" PRId64 " and %s is %" PRId64, path,
                       key_no, p->no, key_count, p->count);
    }
    s->count = count;
    return SMOE_OK;
}

static int check_arch(const split *s, const gguf_header *h, const char *path) {
    const char *first = "", *other = "";
    size_t first_bytes = 0, other_bytes = 0;
    int rc = gguf_opt_text(s->head, s->path, key_arch, &first, &first_bytes, s->err);
    rc = rc ? rc : gguf_opt_text(h, path, key_arch, &other, &other_bytes, s->err);
    if (rc == SMOE_OK && other_bytes > 0 &&
        (other_bytes != first_bytes || memcmp(first, other, first_bytes) != 0)) {
        rc = err_set(s->err, SMOE_ERR_FORMAT, "%s: %s is not that of the first file", path,
                     key_arch);
    }
    return rc;
}

/* Opens part number (from 1) behind the first and holds it against the set. */
static int open_part(split *s, int64_t number) {
    char path[FILE_PATH_BYTES];
    gguf_header h = {0};
    part p;
    int rc = part_path(s, number, path);
    rc = rc ? rc : gguf_open(&h, s->table, s->names, s->files, path, s->err);
    rc = rc ? rc : read_part(&h, path, &p, s->err);
    if (rc == SMOE_OK && p.count != s->count) {
        rc = err_set(s->err, SMOE_ERR_FORMAT, "%s: %s is %" PRId64 ", in the first file %" PRId64,
                     path, key_count, p.count, s->count);
    }
    if (rc == SMOE_OK && p.no != number - 1) {
        rc = err_set(s->err, SMOE_ERR_FORMAT,
                     "%s: part %" PRId64 " says it is part %" PRId64 " (%s %" PRId64 ")", path,
                     number, p.no + 1, key_no, p.no);
    }
    rc = rc ? rc : check_arch(s, &h, path);
    gguf_header_free(&h);
    return rc;
}

static int check_tensors(const split *s, const part *first) {
    if (first->n_tensor < 0 || first->n_tensor == s->table->n_item) {
        return SMOE_OK;
    }
    return err_set(s->err, SMOE_ERR_FORMAT,
                   "%s: %s is %" PRId64 ", but the %" PRId64 " files hold %d tensors", s->path,
                   key_tensors, first->n_tensor, s->count, s->table->n_item);
}

/* From a later part to the first, whose header replaces what was read. */
static int restart_at_first(split *s) {
    char path[FILE_PATH_BYTES];
    int rc = part_path(s, 1, path);
    if (rc == SMOE_OK && !file_exists(path)) {
        rc = err_set(s->err, SMOE_ERR_IO, "%s is not the first of its files, and %s is missing",
                     s->path, path);
    }
    gguf_header_free(s->head);
    tensor_table_free(s->table);
    file_set_close(s->files);
    return rc ? rc : gguf_open(s->head, s->table, s->names, s->files, path, s->err);
}

static int open_all(split *s) {
    part p;
    int rc = gguf_open(s->head, s->table, s->names, s->files, s->path, s->err);
    rc = rc ? rc : read_part(s->head, s->path, &p, s->err);
    if (rc != SMOE_OK || p.count < 2) {
        return rc;
    }
    rc = check_name(s, s->path, &p);
    if (rc == SMOE_OK && p.no != 0) {
        rc = restart_at_first(s);
        rc = rc ? rc : read_part(s->head, s->files->file[0].path, &p, s->err);
        rc = rc ? rc : check_name(s, s->files->file[0].path, &p);
    }
    for (int64_t number = 2; rc == SMOE_OK && number <= s->count; number++) {
        rc = open_part(s, number);
    }
    return rc ? rc : check_tensors(s, &p);
}

int gguf_open_model(gguf_header *out, tensor_table *table, arena *names, file_set *files,
                    const char *path, smoe_error *err) {
    split s = {
        .head = out, .table = table, .names = names, .files = files, .path = path, .err = err};
    *out = (gguf_header){0};
    int rc = open_all(&s);
    if (rc != SMOE_OK) {
        gguf_header_free(out);
    }
    return rc;
}
