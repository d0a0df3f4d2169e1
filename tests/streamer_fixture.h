/* What the streamer's tests share: a source made by hand over files of random bytes, and checks of
 * what comes out of a streamer against those bytes. One fixture at a time. */
#ifndef SMOE_TESTS_STREAMER_FIXTURE_H
#define SMOE_TESTS_STREAMER_FIXTURE_H

#include "faulty_io.h"
#include "streamer/streamer.h"
#include "test.h"

extern smoe_error err;

enum { MAX_MOE = 4, MAX_EXPERT = 32, MAX_LAYER = 2 * MAX_MOE };

typedef struct fixture_config {
    int32_t n_moe;
    int32_t n_expert;
    int32_t n_used;
    int32_t n_ext;       /* 1: one record an expert; 3: three extents in two files */
    uint32_t min_bytes;  /* of a matrix */
    uint32_t more_bytes; /* at most so many more */
    uint32_t align;      /* of extents; 1: anywhere */
    bool checksums;
} fixture_config;

extern struct fixture {
    source source;
    layer_spec layer[MAX_LAYER];
    expert_ref expert[MAX_MOE * MAX_EXPERT];
    model_file file[2];
    uint8_t *data[2];
    char path[2][1024];
} fx;

/* Fills fx and writes its files; resets the faulty back end. MoE layers are the odd ones: layer
 * 2 m + 1 has moe_index m. */
void make_fixture(const fixture_config *c);
/* 2 layers of 8 equal experts of one page and a bit: slots are 2 pages; 2 used. */
void make_small(void);
/* 2 layers of 4 experts of 27000 bytes with checksums, 1 used. */
void make_paged(int32_t n_ext, uint32_t align);

streamer *open_streamer(const io_ops *ops, smoe_switch direct, uint64_t ring_bytes);
streamer *open_faulty(uint64_t ring_bytes); /* buffered */
void close_all(streamer *s);                /* and the fixture */

void check_item(int32_t moe_index, const streamer_item *item);
/* Blocks, entries and the table of experts agree. */
void check_sound(const streamer *s);
void check_counted(const streamer *s);
void check_stats(const streamer *s, uint64_t hits, uint64_t inflight_hits, uint64_t misses,
                 uint64_t evictions);
uint64_t stat_retries(const streamer *s);

/* Runs a whole demand, each item checked and released before the next; fails on an error. */
void use(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n);
/* A demand that must fail with code; the streamer goes on. */
void use_failing(streamer *s, int32_t moe_index, int32_t expert, int code);

#define USE(s, m, ...)                                                                             \
    use(s, m, (const int32_t[]){__VA_ARGS__},                                                      \
        (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))
#define BET(s, m, ...)                                                                             \
    streamer_bet(s, m, (const int32_t[]){__VA_ARGS__},                                             \
                 (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

#endif
