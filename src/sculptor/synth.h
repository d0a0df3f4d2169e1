/* Synthetic models: GGUF files of a published model's exact shape with random weights, to measure
 * with. What the weights are and why is in docs/synth.md.
 *
 * Everything random comes from a counter: the value at a place of a tensor depends on the seed, the
 * tensor's name and the place alone, so that any thread can make any part in any order.
 */
#ifndef SMOE_SCULPTOR_SYNTH_H
#define SMOE_SCULPTOR_SYNTH_H

#include "base/error.h"
#include "base/mem.h"
#include "formats/dtype.h"

/* ---- shapes */

typedef enum synth_qk_norm { SYNTH_QK_PLAIN, SYNTH_QK_HEAD, SYNTH_QK_WHOLE } synth_qk_norm;

typedef struct synth_shape {
    const char *name;   /* of --shape */
    const char *arch;   /* general.architecture */
    const char *origin; /* whose config.json the numbers are from */
    int32_t n_layer, d_model, n_head, n_kv_head, head_dim, vocab_size, context_tok;
    int32_t n_expert, n_expert_used, expert_width;
    int32_t dense_width; /* of dense layers; also what the file says where it has none */
    int32_t n_dense;     /* dense layers, the first ones */
    int32_t n_shared, shared_width;
    synth_qk_norm qk_norm;
    bool shared_gate, qkv_bias;
    bool normalise; /* router weights are divided by their sum */
    bool is_oss;    /* what only gpt-oss has: sinks, biases everywhere, its activation */
    double rope_theta, norm_eps;
    double yarn_factor; /* 0: none */
    int32_t yarn_context_tok;
    int32_t window_tok; /* 0: none */
} synth_shape;

/* NULL when there is none of that name. */
const synth_shape *synth_shape_find(const char *name);
/* "NAME, NAME, …" */
void synth_shape_list(char *out, size_t out_bytes);

/* ---- random blocks */

enum { SYNTH_EDGE = 32, SYNTH_SCALES = 16 };

/* Block types that can be made. */
bool synth_has_type(dtype type);

/* What a row's first SYNTH_EDGE columns hold. */
typedef enum synth_edge { SYNTH_EDGE_RANDOM, SYNTH_EDGE_ZERO, SYNTH_EDGE_STD } synth_edge;

/* How to make blocks of one tensor: zero mean, this standard deviation. */
typedef struct synth_fill {
    dtype type;
    uint64_t key;
    double std;
    uint16_t d[SYNTH_SCALES];    /* f16 scales around the one that gives std */
    uint16_t dmin[SYNTH_SCALES]; /* that make the mean exactly zero */
} synth_fill;

void synth_fill_init(synth_fill *f, dtype type, uint64_t key, double std);
/* Blocks number first to first + n_block - 1 of the tensor. */
void synth_blocks(const synth_fill *f, uint64_t first, uint64_t n_block, uint8_t *out);
/* Overwrites the first SYNTH_EDGE columns of a row with zero, or with +std. Only for the types that
 * synth_edge_type gives. */
void synth_edge_row(const synth_fill *f, synth_edge edge, uint8_t *row);
/* The nearest type to type whose rows' edges can be set and whose blocks divide n_col. */
dtype synth_edge_type(dtype type, int32_t n_col);
/* type, or what takes its place where its blocks do not divide n_col. */
dtype synth_dividing_type(dtype type, int32_t n_col);

/* Uniformly distributed bits number i of a stream. */
static inline uint64_t synth_bits(uint64_t key, uint64_t i) {
    /* splitmix64: Steele, Lea, Flood 2014, doi:10.1145/2714064.2660195 */
    uint64_t z = key + i * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Uniform in (-1, 1). */
static inline double synth_unit(uint64_t key, uint64_t i) {
    return ((double)(synth_bits(key, i) >> 11) + 0.5) * 0x1p-52 - 1;
}

double synth_normal(uint64_t key, uint64_t i); /* standard normal */

/* ---- the plan */

typedef enum synth_kind {
    SYNTH_WEIGHT, /* random blocks */
    SYNTH_NORM,   /* near std */
    SYNTH_ROUTER  /* random floats; bias in the edge columns */
} synth_kind;

typedef struct synth_tensor {
    char name[64];
    synth_kind kind;
    int32_t rank;
    int64_t n_col, n_row, n_slice; /* values; 1 beyond the rank */
    synth_edge edge;
    int32_t zero_from, zero_to; /* rows of each slice that are zero */
    double bias;                /* SYNTH_ROUTER: standard deviation in an edge column */
    synth_fill fill;
    uint64_t row_bytes, bytes;
    uint64_t offset; /* from the start of the data */
} synth_tensor;

typedef struct synth_plan {
    synth_shape shape; /* n_layer as asked for */
    dtype type;
    double skew; /* of the routers; see docs/synth.md */
    uint64_t seed;
    synth_tensor *tensor; /* [n_tensor], in file order */
    int32_t n_tensor, cap_tensor;
    byte_buf head; /* the file's, up to the first tensor */
    uint64_t file_bytes;
} synth_plan;

enum { SYNTH_ALIGNMENT = 32 };

#define SYNTH_SKEW 0.88 /* --routing skewed */

/* Lists the tensors and makes the head. p->shape, type, skew and seed are set, the rest is zero.
 * The caller's (synth_plan_free), after failure as well. */
int synth_plan_make(synth_plan *p, smoe_error *err);
void synth_plan_free(synth_plan *p);
/* Rows first to first + n_row - 1 of a tensor, counted through its slices. */
void synth_rows(const synth_tensor *t, int64_t first, int64_t n_row, uint8_t *out);
/* Appends keys, tokenizer and directory. */
int synth_head(synth_plan *p, smoe_error *err);

enum { SYNTH_CONTROLS = 3, SYNTH_FIRST_CONTROL = 256 }; /* ids of control tokens */

/* ---- the file */

/* Writes path from the plan. */
int synth_write(const synth_plan *p, const char *path, const smoe_synth_options *o,
                smoe_error *err);

#endif
