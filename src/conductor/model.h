/* The conductor's own view of an open model and its sessions. Private to src/conductor. */
#ifndef SMOE_CONDUCTOR_MODEL_H
#define SMOE_CONDUCTOR_MODEL_H

#include <stdatomic.h>

#include "conductor/lookahead.h"
#include "conductor/plan.h"
#include "conductor/pressure.h"
#include "layers/exec.h"
#include "model/source.h"
#include "streamer/streamer.h"

struct smoe_model {
    source *source;
    smoe_tokenizer *tokenizer; /* NULL when the checkpoint has none */
    scout scout;
    pool *pool;
    streamer *streamer;
    exec exec;
    smoe_plan plan;
    smoe_info info;
    smoe_sampling sampling; /* the checkpoint's defaults */
    float *inv_freq;        /* what exec.inv_freq points into */
    log_sink log;
    bool learns;         /* what is learned is kept at the close */
    uint64_t routing_id; /* once learns */
    lookahead ahead;
    pressure pressure;
    trace_writer *trace; /* NULL: nothing is recorded */
    uint64_t n_resize;   /* times the ring changed its size */
    bool session_open;   /* the plan has room for one */
    /* counters that are not the streamer's */
    uint64_t prefill_tok, decode_tok;
    uint64_t prefill_ns, decode_ns;
    uint64_t open_ns;
    uint64_t decode_drive_bytes;
};

struct smoe_session {
    smoe_model *model;
    kv_cache kv;
    int32_t *ids; /* [context_tok]: tokens whose keys and values are cached */
    int32_t n_id;
    float *logits;   /* [vocab_size] */
    bool has_logits; /* of the last of ids */
    void *base;      /* one map holds logits, ids and the cache */
    uint64_t bytes;
    atomic_bool cancelled;
};

/* Runs one batch through all layers; scratch.x then holds the residual stream. With an error the
 * batch's cache entries are not to be used. */
int forward_layers(smoe_model *m, const batch *b, const atomic_bool *cancelled, smoe_error *err);
/* Logits of n tokens of the batch from row first on, n <= scratch.logit_rows: [n][vocab_size]. */
void forward_head(smoe_model *m, int32_t first, int32_t n, float *logits);

/* Between batches: gives ring back when the system wants memory, takes it again when it does not.
 */
void resize_under_pressure(smoe_model *m);

/* smoe_model_open with the I/O back end given, which is how tests put a faulty one in; NULL: as the
 * options say. */
int model_open(smoe_model **out, const char *path, const smoe_model_options *options,
               const io_ops *ops, smoe_error *err);

/* Headers, text, kernels: what is needed to plan. Resolves zeros in options. After failure m is to
 * be closed all the same. */
int model_open_headers(smoe_model *m, const char *path, smoe_model_options *options,
                       smoe_error *err);

/* smoe_session_sync that keeps a cancel which came since the last public call began. */
int session_sync(smoe_session *s, const int32_t *ids, size_t n_id, smoe_error *err);

/* A hash of the routers' weights: what routes alike has the same. */
uint64_t routing_id(const smoe_model *m);
/* Takes what earlier runs learned, with a notice when that is damaged; keeps what this one did. */
void learn_load(smoe_model *m);
void learn_save(const smoe_model *m);

/* Fills out from headers alone. */
void info_from_source(smoe_info *out, const source *s);

/* The checkpoint's sampling defaults over ours. */
int sampling_from_text(smoe_sampling *out, const text_assets *text, smoe_error *err);

#endif
