/* The heat file; see heat.h. Owns no state. */
#include "streamer/heat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

#define MAGIC       "smoeheat"
#define VERSION     1
#define FIXED_BYTES (8 + 4 + 4 + 8 + 4 + 4 + 4 * POLICY_FEATURES)
/* Older runs never weigh more than so many tokens, so that habits may change. */
#define PAST_MAX_TOK 65536
/* A weight beyond this was not learned. */
#define WEIGHT_MAX 50.0f

typedef struct fixed { /* as stored, little-endian */
    char magic[8];
    uint32_t version;
    uint32_t n_tok; /* that the shares stand for */
    uint64_t model_id;
    uint32_t n_layer, n_row;
    float weight[POLICY_FEATURES];
} fixed;
_Static_assert(sizeof(fixed) == FIXED_BYTES, "no padding");

static size_t n_record(const policy *p) {
    return (size_t)p->n_layer * (size_t)p->n_row;
}

static size_t text_bytes(const policy *p) {
    return FIXED_BYTES + 2 * n_record(p) + 8;
}

static int check(const policy *p, uint64_t model_id, const char *text, size_t bytes,
                 const char *label, smoe_error *err) {
    fixed f;
    uint64_t sum;
    bool is_whole = bytes >= FIXED_BYTES + 8 && memcmp(text, MAGIC, 8) == 0;
    if (is_whole) {
        memcpy(&f, text, sizeof f);
        memcpy(&sum, text + bytes - 8, 8);
        is_whole = f.version == VERSION && XXH3_64bits(text, bytes - 8) == sum;
    }
    if (!is_whole) {
        return err_set(err, SMOE_ERR_FORMAT, "%s is damaged or of another version", label);
    }
    if (f.model_id != model_id || f.n_layer != (uint32_t)p->n_layer ||
        f.n_row != (uint32_t)p->n_row || bytes != text_bytes(p)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s is about another model", label);
    }
    for (int32_t i = 0; i < POLICY_FEATURES; i++) {
        if (!(fabsf(f.weight[i]) <= WEIGHT_MAX)) {
            return err_set(err, SMOE_ERR_FORMAT, "%s holds impossible weights", label);
        }
    }
    return SMOE_OK;
}

int heat_read(policy *p, uint64_t model_id, const char *text, size_t bytes, const char *label,
              smoe_error *err) {
    fixed f;
    int rc = check(p, model_id, text, bytes, label, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    memcpy(&f, text, sizeof f);
    p->past_tok = f.n_tok < PAST_MAX_TOK ? f.n_tok : PAST_MAX_TOK;
    for (size_t i = 0; i < n_record(p); i++) {
        uint16_t share;
        memcpy(&share, text + FIXED_BYTES + 2 * i, 2);
        p->record[i].past = (float)share / UINT16_MAX;
    }
    policy_begin(p, f.weight);
    return SMOE_OK;
}

int heat_write(const policy *p, uint64_t model_id, char **text, size_t *bytes, smoe_error *err) {
    fixed f = {.magic = MAGIC,
               .version = VERSION,
               .model_id = model_id,
               .n_layer = (uint32_t)p->n_layer,
               .n_row = (uint32_t)p->n_row};
    char *out = malloc(text_bytes(p));
    if (!out) {
        return err_no_memory(err, text_bytes(p));
    }
    memcpy(f.weight, p->weight, sizeof f.weight);
    f.n_tok = p->past_tok + p->n_tok[0];
    f.n_tok = f.n_tok < PAST_MAX_TOK ? f.n_tok : PAST_MAX_TOK;
    memcpy(out, &f, sizeof f);
    for (size_t i = 0; i < n_record(p); i++) {
        size_t layer = i / (size_t)p->n_row;
        double n_tok = (double)p->n_tok[layer];
        double uses = (double)p->record[i].past * p->past_tok + (double)p->record[i].n_use;
        double share = n_tok + p->past_tok > 0 ? uses / (n_tok + p->past_tok) : 0;
        uint16_t stored = (uint16_t)lrint((share < 1 ? share : 1) * UINT16_MAX);
        memcpy(out + FIXED_BYTES + 2 * i, &stored, 2);
    }
    uint64_t sum = XXH3_64bits(out, text_bytes(p) - 8);
    memcpy(out + text_bytes(p) - 8, &sum, 8);
    *text = out;
    *bytes = text_bytes(p);
    return SMOE_OK;
}

typedef struct ranked {
    float past;
    int32_t record;
} ranked;

static int hotter_first(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->past != y->past) {
        return x->past < y->past ? 1 : -1;
    }
    return x->record - y->record;
}

int32_t heat_order(const policy *p, int32_t *order) {
    ranked *list = mem_array(n_record(p), sizeof *list);
    int32_t n = 0;
    for (size_t i = 0; list && i < n_record(p); i++) {
        if (p->record[i].past > 0) {
            list[n++] = (ranked){p->record[i].past, (int32_t)i};
        }
    }
    if (list) {
        qsort(list, (size_t)n, sizeof *list, hotter_first);
    }
    for (int32_t i = 0; i < n; i++) {
        order[i] = list[i].record;
    }
    free(list);
    return n;
}
