/* What every layer kind computes with: the kernels, the thread pool, and the scratch memory of one
 * batch. Owned by the model; the thread inside the API call uses it alone.
 *
 * A batch is tokens of any sequences with their positions; prefill is many tokens of one sequence,
 * decode one token each of one or more. The same code runs both, and no result depends on what else
 * is in the batch.
 */
#ifndef SMOE_LAYERS_EXEC_H
#define SMOE_LAYERS_EXEC_H

#include "base/pool.h"
#include "kernels/kernels.h"
#include "model/spec.h"
#include "scout/scout.h"

/* Keys and values of one sequence, in units of their type (kv_unit). Layer l, head h, position p of
 * K starts at unit k_offset[l] + (h * context_tok + p) * kv_row_units(head_dim); V likewise, from
 * v_offset[l]. */
typedef struct kv_cache {
    void *base;
    uint64_t bytes;
    enum kv_type type;
    int32_t context_tok;
    uint64_t *k_offset; /* [n_layer], in units */
    uint64_t *v_offset;
} kv_cache;

typedef struct batch {
    int32_t n_tok;
    const int32_t *id;         /* [n_tok] */
    const int32_t *pos;        /* [n_tok] */
    const kv_cache *const *kv; /* [n_tok]: the sequence each token belongs to */
} batch;

/* Rows of activations in both forms: floats, and int8 blocks made when a quantised weight wants
 * them. */
typedef struct rows {
    float *f;  /* [n][f_stride] */
    act_q8 *q; /* [n][q_stride]; NULL in reference precision */
    size_t f_stride;
    size_t q_stride;
} rows;

/* How many MoE layers guesses reach ahead, see ahead.h. */
#define AHEAD_LAYERS 3

/* Scratch for up to max_tok tokens; all pointers into one map. Slots are (token, rank) pairs of a
 * MoE layer, max_slot = max_tok * n_expert_used. */
typedef struct scratch {
    void *base;
    uint64_t bytes;
    int32_t max_tok;
    int32_t max_slot;
    int32_t logit_rows;
    float *x;        /* [max_tok][d_model]: the residual stream */
    rows norm;       /* [max_tok], d_model wide: a block's normed input */
    rows attn;       /* [max_tok], n_head * v_head_dim wide: attention output */
    rows hidden;     /* [max_slot], experts' width wide: activated hidden values */
    rows wide;       /* [max_tok], dense and shared width wide: the same, in hidden's memory */
    rows gathered;   /* [max(max_slot, AHEAD_LAYERS)], d_model wide: inputs in slot order */
    float *q;        /* [max_tok][n_head * head_dim] */
    float *k;        /* [max_tok][n_kv_head * head_dim] */
    float *v;        /* [max_tok][n_kv_head * v_head_dim] */
    float *up;       /* strides as hidden, or as wide */
    float *shared;   /* [max_tok][d_model]: what the shared expert adds; NULL without one */
    float *out;      /* [max(max_tok, max_slot)][d_model]: block or expert outputs */
    float *rope_cos; /* [n_rope][max_tok][rope dim / 2] */
    float *rope_sin;
    float *attend; /* [n_thread][attend_stride]: what a task of attention works with */
    size_t attend_stride;
    float *router;          /* [max_tok][n_expert] */
    float *weight;          /* [max_tok][n_expert_used] */
    int32_t *choice;        /* [max_tok][ranks]: expert ids by rank; ranks = used + spec_ranks */
    int32_t *slot;          /* [max_tok][n_expert_used]: where that pair went */
    int32_t *token_of_slot; /* [max_slot] */
    int32_t *first_slot;    /* [n_expert + 1] */
    int32_t *needed;        /* [n_expert]: distinct experts of the layer */
    int32_t *ahead;         /* [n_expert]: guessed experts of the next layer, moe_guess_union */
    bool *is_ahead;         /* [n_expert]: whether that list has it */
    int32_t *ahead_choice;  /* [n_expert_used] */
    float *ahead_weight;    /* [n_expert_used] */
    float *ahead_score;     /* [AHEAD_LAYERS][n_expert] */
    float *logits;          /* [logit_rows][vocab_size] */
    rows head_in;           /* [logit_rows], d_model wide: normed input of the head */
    int32_t *pos;           /* [max_tok] */
    const kv_cache **kv;    /* [max_tok] */
} scratch;

typedef struct exec {
    const spec *spec;
    const scout *scout;
    const kernels *kernels;
    pool *pool;
    bool reference; /* float activations everywhere */
    enum kv_type kv_type;
    int32_t spec_ranks;
    float *inv_freq[SPEC_ROPES]; /* [rope dim / 2], from rope_prepare */
    scratch s;
} exec;

/* One matrix product of a set that is scheduled as one job over the threads:
 * y[t][r] = w[r] . x[t]. */
typedef struct linear_job {
    const void *w;
    dtype type;
    size_t row_bytes;
    int32_t n_row;
    int32_t n_col;
    const rows *x;
    int32_t x_row; /* first row of x */
    float *y;
    size_t y_stride;
    int32_t n_tok;
    const float *factor; /* multiplies the results; NULL: none */
} linear_job;

/* Whether products with this type take int8 activations here. */
bool exec_wants_q8(const exec *e, dtype type);
/* Fills x->q from x->f for n rows of n_col values. */
void rows_quantize(const exec *e, const rows *x, int32_t n, int32_t n_col);
/* Runs all jobs; their outputs must not overlap. Rows of x must be quantised where the type wants
 * it. */
void linear_run(const exec *e, const linear_job *jobs, int32_t n_job);
/* Rows that the widest kernels compute side by side: tasks are multiples of it. */
#define LINEAR_ROW_GROUP 16
/* Rows [row, row + n_row) of a job, in this thread. */
void linear_rows(const exec *e, const linear_job *job, int32_t row, int32_t n_row);
/* Brings the first rows from `row` on nearer. Kernels do so only for what lies behind their own. */
void linear_prefetch(const linear_job *job, int32_t row);
/* Tells before a job which products come after it: threads that wait for its end, or while the
 * caller works alone, bring nearer what they will have first (pool_set_next). Only w, row_bytes,
 * n_row and n_tok are looked at. */
void linear_next(const exec *e, const linear_job *jobs, int32_t n_job);
/* How many rows make a task, a multiple of `multiple`, of n_row in all, whose weights times tokens
 * are work_bytes. */
int32_t linear_rows_a_task(const exec *e, int64_t n_row, uint64_t work_bytes, int32_t multiple);
/* A job over a resident matrix. */
linear_job linear_of(const weight *w, const rows *x, float *y, size_t y_stride, int32_t n_tok);

/* y[t][c] += bias[c]; nothing without a bias. */
void add_bias(const exec *e, float *y, size_t y_stride, const weight *bias, int32_t n_tok);

#endif
