/* Opening and closing a streamer: checks the source, chooses the back end and the way of reading,
 * takes all memory. Nothing here runs while a model computes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "streamer/streamer_state.h"

#define MAX_DEPTH      256
#define MAX_READ_BYTES (1u << 30)

/* ---- the source */

static int check_extent(const source *s, const expert_ref *ref, int32_t m, int32_t e, int32_t i,
                        smoe_error *err) {
    const extent *x = &ref->ext[i];
    uint64_t end;
    if (x->file < 0 || x->file >= s->files.n_file) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: expert %d of layer %d is in file %d of %d",
                       s->path, e, spec_moe_layer(&s->spec, m), x->file, s->files.n_file);
    }
    if (x->bytes == 0 || __builtin_add_overflow(x->offset, x->bytes, &end) ||
        end > s->files.file[x->file].bytes) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: expert %d of layer %d, %llu bytes at byte %llu, is not within the file",
                       source_file_path(s, x->file), e, spec_moe_layer(&s->spec, m),
                       (unsigned long long)x->bytes, (unsigned long long)x->offset);
    }
    return SMOE_OK;
}

static int check_expert(const source *s, int32_t m, int32_t e, smoe_error *err) {
    const expert_ref *ref = source_expert(s, m, e);
    bool is_sane = ref->n_ext >= 0 && ref->n_ext <= PART_COUNT;
    for (int32_t p = 0; is_sane && ref->n_ext > 0 && p < PART_COUNT; p++) {
        int32_t x = ref->part[p].ext;
        is_sane = x >= 0 && x < ref->n_ext && ref->part[p].at_bytes <= ref->ext[x].bytes &&
                  ref->part[p].bytes <= ref->ext[x].bytes - ref->part[p].at_bytes;
    }
    if (!is_sane) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: expert %d of layer %d has matrices outside its "
                       "own bytes",
                       s->path, e, spec_moe_layer(&s->spec, m));
    }
    for (int32_t i = 0; i < ref->n_ext; i++) {
        int rc = check_extent(s, ref, m, e, i, err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return SMOE_OK;
}

/* Checks every expert; *least_bytes is the smallest slot, *n_expert their number. */
static int check_source(const source *s, uint64_t *least_bytes, int64_t *n_expert,
                        smoe_error *err) {
    *least_bytes = UINT64_MAX;
    *n_expert = 0;
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        for (int32_t e = 0; e < s->n_expert_row; e++) {
            int rc = check_expert(s, m, e, err);
            if (rc != SMOE_OK) {
                return rc;
            }
            uint64_t bytes = streamer_slot_bytes(source_expert(s, m, e));
            *least_bytes = bytes > 0 && bytes < *least_bytes ? bytes : *least_bytes;
            *n_expert += bytes > 0;
        }
    }
    if (*n_expert == 0) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: no expert to stream", s->path);
    }
    return SMOE_OK;
}

static int open_policy(streamer *s, policy_kind kind, smoe_error *err) {
    const source *src = s->source;
    policy_layer *layer = mem_array((size_t)src->n_moe_layer, sizeof *layer);
    if (!layer) {
        return err_no_memory(err, (uint64_t)src->n_moe_layer * sizeof *layer);
    }
    for (int32_t m = 0; m < src->n_moe_layer; m++) {
        const ffn_spec *ffn = &src->spec.layer[spec_moe_layer(&src->spec, m)].ffn;
        layer[m] = (policy_layer){ffn->n_expert, ffn->n_expert_used};
    }
    int rc = policy_open(&s->policy, kind, layer, src->n_moe_layer, src->n_expert_row, err);
    free(layer);
    return rc;
}

/* ---- open and close */

static int open_tables(streamer *s, smoe_error *err) {
    size_t n_row = (size_t)s->source->n_expert_row, n_layer = (size_t)s->source->n_moe_layer;
    size_t n_block = (size_t)s->ring.n_block;
    s->entry = mem_array(n_block, sizeof *s->entry);
    s->entry_of = mem_array(n_layer * n_row, sizeof *s->entry_of);
    s->n_use = mem_array(n_layer * n_row, sizeof *s->n_use);
    s->margin = mem_array(n_row, sizeof *s->margin);
    s->all = mem_array(n_row, sizeof *s->all);
    s->want = mem_array(n_row, sizeof *s->want);
    s->miss = mem_array(n_row, sizeof *s->miss);
    s->ready = mem_array(n_row, sizeof *s->ready);
    s->sweep = mem_array(n_row, sizeof *s->sweep);
    s->hash = XXH3_createState();
    s->table_bytes = n_block * sizeof *s->entry +
                     n_layer * n_row * (sizeof *s->entry_of + sizeof *s->n_use) +
                     n_row * sizeof *s->margin + 5 * n_row * sizeof *s->want + sizeof *s;
    if (!s->entry || !s->entry_of || !s->n_use || !s->margin || !s->all || !s->want || !s->miss ||
        !s->ready || !s->sweep || !s->hash) {
        return err_no_memory(err, s->table_bytes);
    }
    memset(s->entry_of, 0xff, n_layer * n_row * sizeof *s->entry_of);
    return SMOE_OK;
}

static int check_config(const streamer_config *c, smoe_error *err) {
    uint64_t floor_bytes = streamer_ring_floor(c->source);
    if (c->ring_bytes < floor_bytes) {
        char have[24], need[24];
        return err_set(err, SMOE_ERR_MEMORY,
                       "a ring of %s is below one token cycle; the smallest that works is %s "
                       "(%llu bytes)",
                       format_bytes(have, c->ring_bytes), format_bytes(need, floor_bytes),
                       (unsigned long long)floor_bytes);
    }
    if (c->depth < 0 || c->depth > MAX_DEPTH) {
        return err_set(err, SMOE_ERR_ARGUMENT, "I/O depth is %d, out of range (1 to %d)", c->depth,
                       MAX_DEPTH);
    }
    if (c->n_copy < 0 || c->n_copy >= IO_DRIVES) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%d folders with copies are too many; at most %d",
                       c->n_copy, IO_DRIVES - 1);
    }
    if (c->read_bytes > MAX_READ_BYTES) {
        return err_set(err, SMOE_ERR_ARGUMENT, "reads of %u bytes are longer than %u",
                       c->read_bytes, MAX_READ_BYTES);
    }
    return SMOE_OK;
}

int streamer_open(streamer **out, const streamer_config *config, smoe_error *err) {
    uint64_t least_bytes;
    int64_t n_expert;
    *out = NULL;
    int rc = check_source(config->source, &least_bytes, &n_expert, err);
    if (rc == SMOE_OK) {
        rc = check_config(config, err);
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    streamer *s = mem_array(1, sizeof *s);
    if (!s) {
        return err_no_memory(err, sizeof *s);
    }
    s->source = config->source;
    s->log = config->log;
    s->is_counting = true;
    s->n_expert = (int32_t)n_expert;
    /* Every expert once, and cancelled loads whose last reads are still in flight. */
    uint64_t most_flight = (uint64_t)queue_slots(MAX_DEPTH, config->n_copy + 1);
    uint64_t n_entry = (uint64_t)n_expert + most_flight;
    /* More than all experts is never filled. */
    uint64_t full_bytes = streamer_ring_full(config->source) + most_flight * least_bytes;
    uint64_t most_bytes = config->may_grow ? full_bytes : config->ring_bytes;
    if (n_entry > most_bytes / least_bytes) {
        n_entry = most_bytes / least_bytes;
    }
    most_bytes = most_bytes < full_bytes ? most_bytes : full_bytes;
    uint64_t first_bytes = config->ring_bytes < full_bytes ? config->ring_bytes : full_bytes;
    rc = ring_open(&s->ring, first_bytes, most_bytes, (int32_t)n_entry, err);
    if (rc == SMOE_OK) {
        rc = open_tables(s, err);
    }
    if (rc == SMOE_OK) {
        rc = open_policy(s, config->policy, err);
    }
    if (rc == SMOE_OK) {
        rc = streamer_open_queue(s, config, err);
    }
    if (rc != SMOE_OK) {
        streamer_close(s);
        return rc;
    }
    *out = s;
    return SMOE_OK;
}

void streamer_close(streamer *s) {
    if (!s) {
        return;
    }
    queue_close(&s->queue); /* first: reads in flight write into the ring */
    ring_close(&s->ring);
    free(s->entry);
    free(s->entry_of);
    free(s->n_use);
    policy_close(&s->policy);
    free(s->margin);
    free(s->all);
    free(s->want);
    free(s->miss);
    free(s->ready);
    free(s->sweep);
    free(s->warm);
    XXH3_freeState(s->hash);
    free(s);
}

const char *streamer_backend(const streamer *s) {
    return s->queue.ops->name;
}

bool streamer_is_direct(const streamer *s) {
    return s->queue.direct;
}

uint64_t streamer_held_bytes(const streamer *s) {
    return s->table_bytes + policy_held_bytes(&s->policy) + ring_held_bytes(&s->ring) +
           queue_held_bytes(&s->queue);
}
