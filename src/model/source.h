/* A source: an opened checkpoint folder, GGUF file or vault, headers only, described in one form
 * whatever the container. Everything above the extent list (streamer, scout, conductor,
 * sculptor) works from this and never asks where it came from. */
#ifndef SMOE_MODEL_SOURCE_H
#define SMOE_MODEL_SOURCE_H

#include "base/log.h"
#include "formats/tensor.h"
#include "model/spec.h"
#include "text/assets.h"

/* What a resident tensor is for. The scout file names tensors ROLE.weight, or layers.N.ROLE.weight.
 */
typedef enum role {
    ROLE_EMBED,         /* [vocab_size, d_model] */
    ROLE_OUT_NORM,      /* [d_model] */
    ROLE_HEAD,          /* [vocab_size, d_model]; absent when tied */
    ROLE_ROPE_DIVISORS, /* [rope dim / 2]: of the frequencies of spec.rope[0] */
    ROLE_HEAD_FACTOR,   /* [1]: multiplies the head's product, as the other factors do theirs */
    ROLE_ATTN_NORM,     /* [d_model]; the first role of a layer */
    ROLE_ATTN_Q,        /* [n_head * head_dim, d_model] */
    ROLE_ATTN_K,        /* [n_kv_head * head_dim, d_model] */
    ROLE_ATTN_V,        /* [n_kv_head * v_head_dim, d_model] */
    ROLE_ATTN_O,        /* [d_model, n_head * v_head_dim] */
    ROLE_ATTN_Q_BIAS,
    ROLE_ATTN_K_BIAS,
    ROLE_ATTN_V_BIAS,
    ROLE_ATTN_O_BIAS,
    ROLE_ATTN_Q_NORM, /* [head_dim], or [n_head * head_dim] by spec.qk_norm */
    ROLE_ATTN_K_NORM, /* [head_dim], or [n_kv_head * head_dim] */
    ROLE_FFN_NORM,    /* [d_model] */
    ROLE_FFN_GATE,    /* dense: [width, d_model] */
    ROLE_FFN_UP,
    ROLE_FFN_DOWN,    /* dense: [d_model, width] */
    ROLE_ROUTER,      /* [n_expert, d_model] */
    ROLE_SHARED_GATE, /* [shared_width, d_model] */
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,   /* [d_model, shared_width] */
    ROLE_SHARED_SCALE,  /* [1, d_model]: its sigmoid scales the shared expert's output */
    ROLE_ATTN_Q_FACTOR, /* [1] */
    ROLE_ATTN_K_FACTOR,
    ROLE_ATTN_V_FACTOR,
    ROLE_ATTN_O_FACTOR,
    ROLE_FFN_GATE_FACTOR, /* dense: [1]; MoE: [n_expert] */
    ROLE_FFN_UP_FACTOR,
    ROLE_FFN_DOWN_FACTOR,
    ROLE_SHARED_GATE_FACTOR, /* [1] */
    ROLE_SHARED_UP_FACTOR,
    ROLE_SHARED_DOWN_FACTOR,
    ROLE_COUNT
} role;

#define ROLE_FIRST_OF_LAYER ROLE_ATTN_NORM

const char *role_name(role r); /* "embed", "attn_q", … */
/* The role of the factor of a resident matrix's product; ROLE_COUNT when it can have none. */
role role_factor(role r);

/* A resident tensor as stored. Vectors have n_row 1. */
typedef struct weight_ref {
    const char *name; /* as the container calls it; NULL: the spec has no such tensor */
    dtype type;
    int32_t n_row;
    int32_t n_col;
    int32_t file;
    uint64_t offset;
    uint64_t bytes;
} weight_ref;

enum expert_part_kind { PART_GATE, PART_UP, PART_DOWN, PART_COUNT };

/* Direct reads begin and end at multiples of this. */
#define EXTENT_PAGE_BYTES 4096u

typedef struct extent {
    int32_t file;
    uint64_t offset;
    uint64_t bytes;
} extent;

/* One expert: the byte ranges to read and where its three matrices are inside them. */
typedef struct expert_ref {
    extent ext[PART_COUNT];
    int32_t n_ext; /* no two share a page or touch: a vault record is one */
    struct expert_part {
        int32_t ext;
        uint64_t at_bytes; /* from the start of that extent */
        uint64_t bytes;
        dtype type;
        int32_t n_row;
        int32_t n_col;
    } part[PART_COUNT];
    bool has_checksum;
    uint64_t checksum; /* XXH3-64 over the extents' bytes, in order */
} expert_ref;

typedef enum container_kind {
    CONTAINER_CHECKPOINT,
    CONTAINER_VAULT,
    CONTAINER_GGUF
} container_kind;

typedef struct source {
    container_kind kind;
    char *path; /* as given */
    spec spec;
    file_set files;
    weight_ref global[ROLE_FIRST_OF_LAYER]; /* by role */
    weight_ref (*layer)[ROLE_COUNT];        /* [n_layer], by role */
    expert_ref *expert;                     /* [n_moe_layer][spec_max_experts] */
    int32_t n_moe_layer;
    int32_t n_expert_row; /* experts in a row of the array above */
    text_assets text;
    uint64_t weights_checksum; /* vault: of its scout file; else 0 */
    arena arena;               /* spec, names, refs */
} source;

/* Opens by looking at path: a folder is a checkpoint; a file is a GGUF file (any one of a split
 * model) or a vault.
 * *out is the caller's (source_close), NULL after failure. */
int source_open(source **out, const char *path, smoe_error *err);
void source_close(source *s);

/* Whether source_open takes path for a GGUF file: by its magic, or by a name that ends in .gguf, so
 * that the errors of a damaged file speak of the right format. */
int source_is_gguf(const char *path, bool *out, smoe_error *err);

/* Only the text side of a folder, which may hold nothing else. *text must be empty;
 * text_assets_free also after failure. */
int source_read_text(text_assets *text, const char *dir, smoe_error *err);
/* The same of a GGUF file, whatever its architecture, with tensors or without. */
int source_read_gguf_text(text_assets *text, const char *path, smoe_error *err);

static inline const expert_ref *source_expert(const source *s, int32_t moe_index, int32_t expert) {
    return &s->expert[(size_t)moe_index * (size_t)s->n_expert_row + (size_t)expert];
}
uint64_t expert_bytes(const expert_ref *e); /* sum of its extents, what is between parts too */
uint64_t source_experts_bytes(const source *s);
uint64_t source_max_expert_bytes(const source *s);
/* Sum over MoE layers of the n_expert_used largest experts: what one token can touch. */
uint64_t source_token_cycle_bytes(const source *s);
uint64_t source_scout_bytes(const source *s);
const char *source_file_path(const source *s, int32_t file);

#endif
