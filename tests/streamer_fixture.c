/* The source made by hand and the checks; see streamer_fixture.h. Owns fx and err. */
#include "streamer_fixture.h"

#include <stdio.h>
#include <xxhash.h>

#include "base/mem.h"
#include "streamer/streamer_state.h"

smoe_error err;

/* ---- a source made by hand: random experts in one or two files */

struct fixture fx;

static uint64_t grow_file(int32_t file, uint64_t bytes, uint32_t align) {
    model_file *f = &fx.file[file];
    uint64_t at = round_up(f->bytes + (align == 1 ? test_rand() % 5000 : 0), align);
    f->bytes = at + bytes;
    return at;
}

static void add_expert(const fixture_config *c, expert_ref *ref) {
    uint64_t bytes[PART_COUNT];
    uint64_t at = 0;
    ref->n_ext = c->n_ext;
    for (int32_t p = 0; p < PART_COUNT; p++) {
        bytes[p] = c->min_bytes + (c->more_bytes ? test_rand() % c->more_bytes : 0);
        ref->part[p].bytes = bytes[p];
        ref->part[p].ext = c->n_ext == 1 ? 0 : p;
        ref->part[p].at_bytes = c->n_ext == 1 ? at : 0;
        at += bytes[p];
    }
    for (int32_t i = 0; i < c->n_ext; i++) {
        int32_t file = i == 1;
        uint64_t size = c->n_ext == 1 ? at : bytes[i];
        ref->ext[i] =
            (extent){.file = file, .offset = grow_file(file, size, c->align), .bytes = size};
    }
}

static void fill_files(void) {
    for (int32_t f = 0; f < fx.source.files.n_file; f++) {
        uint64_t bytes = fx.file[f].bytes;
        fx.data[f] = malloc(bytes + 8);
        for (uint64_t i = 0; i < bytes; i += 8) {
            uint64_t v = test_rand();
            memcpy(fx.data[f] + i, &v, 8);
        }
        snprintf(fx.path[f], sizeof fx.path[f], "%s", test_path(f ? "b.bin" : "a.bin"));
        fx.file[f].path = fx.path[f];
        test_write_file(fx.path[f], fx.data[f], bytes);
    }
}

static void set_checksum(expert_ref *ref) {
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (int32_t i = 0; i < ref->n_ext; i++) {
        XXH3_64bits_update(state, fx.data[ref->ext[i].file] + ref->ext[i].offset,
                           ref->ext[i].bytes);
    }
    ref->has_checksum = true;
    ref->checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
}

/* MoE layers are the odd ones: layer 2 m + 1 has moe_index m. */
void make_fixture(const fixture_config *c) {
    memset(&fx, 0, sizeof fx);
    faulty_reset();
    source *s = &fx.source;
    s->path = fx.path[0];
    s->spec.n_layer = 2 * c->n_moe;
    s->spec.layer = fx.layer;
    s->files = (file_set){.file = fx.file, .n_file = c->n_ext == 1 ? 1 : 2};
    s->expert = fx.expert;
    s->n_moe_layer = c->n_moe;
    s->n_expert_row = c->n_expert;
    for (int32_t l = 0; l < s->spec.n_layer; l++) {
        bool is_moe = l % 2 == 1;
        fx.layer[l].ffn = (ffn_spec){.kind = is_moe ? FFN_MOE : FFN_DENSE,
                                     .moe_index = is_moe ? l / 2 : -1,
                                     .n_expert = is_moe ? c->n_expert : 0,
                                     .n_expert_used = is_moe ? c->n_used : 0};
    }
    for (int32_t i = 0; i < c->n_moe * c->n_expert; i++) {
        add_expert(c, &fx.expert[i]);
    }
    fill_files();
    for (int32_t i = 0; c->checksums && i < c->n_moe * c->n_expert; i++) {
        set_checksum(&fx.expert[i]);
    }
}

/* 2 layers of 8 equal experts of one page and a bit: slots are 2 pages. */
void make_small(void) {
    make_fixture(&(fixture_config){
        .n_moe = 2, .n_expert = 8, .n_used = 2, .n_ext = 1, .min_bytes = 2000, .align = 4096});
}

void make_paged(int32_t n_ext, uint32_t align) {
    make_fixture(&(fixture_config){.n_moe = 2,
                                   .n_expert = 4,
                                   .n_used = 1,
                                   .n_ext = n_ext,
                                   .min_bytes = 9000,
                                   .align = align,
                                   .checksums = true});
}

streamer *open_streamer(const io_ops *ops, smoe_switch direct, uint64_t ring_bytes) {
    streamer *s = NULL;
    streamer_config config = {.probe = SMOE_PROBE_OFF,
                              .source = &fx.source,
                              .ops = ops,
                              .direct = direct,
                              .ring_bytes = ring_bytes,
                              .depth = 4,
                              .policy = POLICY_RECENCY}; /* its counts can be told in advance */
    CHECK_OK(streamer_open(&s, &config, &err));
    return s;
}

streamer *open_faulty(uint64_t ring_bytes) {
    return open_streamer(&faulty_ops, SMOE_OFF, ring_bytes);
}

void close_all(streamer *s) {
    streamer_close(s);
    CHECK_INT(faulty_open_count(), 0);
    free(fx.data[0]);
    free(fx.data[1]);
}

/* ---- checks */

void check_item(int32_t moe_index, const streamer_item *item) {
    const expert_ref *ref = source_expert(&fx.source, moe_index, item->expert);
    for (int32_t p = 0; p < PART_COUNT; p++) {
        const extent *x = &ref->ext[ref->part[p].ext];
        CHECK(memcmp(item->part[p], fx.data[x->file] + x->offset + ref->part[p].at_bytes,
                     ref->part[p].bytes) == 0);
    }
}

/* Blocks, entries and the table of experts agree. */
void check_sound(const streamer *s) {
    CHECK(ring_is_sound(&s->ring));
    int32_t n_found = 0;
    for (int32_t i = 0; i < s->source->n_moe_layer * s->source->n_expert_row; i++) {
        int32_t id = s->entry_of[i];
        if (id < 0) {
            continue;
        }
        const entry *e = &s->entry[id];
        CHECK_INT(e->moe_index * s->source->n_expert_row + e->expert, i);
        bool is_kept = s->ring.block[id].state == RING_KEPT;
        CHECK(is_kept || s->ring.block[id].state == RING_HELD);
        CHECK(is_kept == (e->is_ready && e->n_held == 0 && e->wanted < 0));
        n_found += is_kept;
    }
    CHECK_INT(s->ring.n_kept, n_found);
}

void check_counted(const streamer *s) {
    streamer_stats n;
    streamer_get_stats(s, &n);
    CHECK_INT(n.uses, n.hits + n.inflight_hits + n.misses);
}

/* Runs a whole demand, each item released before the next; fails the test on an error. */
void use(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n) {
    streamer_item items[3];
    bool seen[MAX_EXPERT] = {false};
    int32_t total = 0, got;
    streamer_demand(s, moe_index, experts, n);
    do {
        CHECK_OK(streamer_next(s, items, 3, &got, &err));
        for (int32_t i = 0; i < got; i++) {
            CHECK_INT(items[i].expert, experts[items[i].index]);
            CHECK(!seen[items[i].index]);
            seen[items[i].index] = true;
            check_item(moe_index, &items[i]);
            streamer_release(s, &items[i]);
        }
        total += got;
    } while (got > 0);
    CHECK_INT(total, n);
    check_sound(s);
}

/* A demand that must fail, after any number of items. */
void use_failing(streamer *s, int32_t moe_index, int32_t expert, int code) {
    streamer_item item;
    int32_t n = 1;
    streamer_demand(s, moe_index, &expert, 1);
    CHECK_ERR(streamer_next(s, &item, 1, &n, &err), code);
    CHECK_INT(n, 0);
    CHECK_OK(streamer_next(s, &item, 1, &n, &err));
    CHECK_INT(n, 0);
    streamer_abandon(s);
    check_sound(s);
}

void check_stats(const streamer *s, uint64_t hits, uint64_t inflight_hits, uint64_t misses,
                 uint64_t evictions) {
    streamer_stats n;
    streamer_get_stats(s, &n);
    CHECK_INT(n.hits, hits);
    CHECK_INT(n.inflight_hits, inflight_hits);
    CHECK_INT(n.misses, misses);
    CHECK_INT(n.evictions, evictions);
    check_counted(s);
}

uint64_t stat_retries(const streamer *s) {
    streamer_stats n;
    streamer_get_stats(s, &n);
    return n.read_retries;
}
