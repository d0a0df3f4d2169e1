/* What tensors a spec asks for, and the arrays that hold references to them; see bind.h. */
#include <inttypes.h>

#include "model/bind.h"

/* Sizes a shape can have, each an expression of the spec. */
typedef enum dim {
    DIM_MODEL,
    DIM_VOCAB,
    DIM_QUERIES, /* n_head * head_dim */
    DIM_KEYS,    /* n_kv_head * head_dim */
    DIM_VALUES,  /* n_kv_head * v_head_dim */
    DIM_HEADS,   /* n_head * v_head_dim: what the heads give together */
    DIM_Q_NORM,  /* head_dim, or DIM_QUERIES */
    DIM_K_NORM,  /* head_dim, or DIM_KEYS */
    DIM_FFN,     /* width */
    DIM_EXPERTS,
    DIM_SHARED, /* shared_width */
    DIM_ROPE_PAIRS,
    DIM_FACTORS, /* one, or one for each expert */
    DIM_ONE,
    DIM_VECTOR /* in place of rows: rank 1 */
} dim;

/* When a role is there. */
typedef enum want {
    WANT_ALWAYS,
    WANT_UNTIED,
    WANT_ROPE_DIVISORS,
    WANT_GQA,
    WANT_QKV_BIAS,
    WANT_O_BIAS,
    WANT_QK_NORM,
    WANT_FFN,
    WANT_DENSE,
    WANT_MOE,
    WANT_SHARED,
    WANT_SHARED_SCALE,
    WANT_FACTOR
} want;

static const struct {
    const char *name;
    want when;
    dim row, col;
} roles[ROLE_COUNT] = {
    [ROLE_EMBED] = {"embed", WANT_ALWAYS, DIM_VOCAB, DIM_MODEL},
    [ROLE_OUT_NORM] = {"out_norm", WANT_ALWAYS, DIM_VECTOR, DIM_MODEL},
    [ROLE_HEAD] = {"head", WANT_UNTIED, DIM_VOCAB, DIM_MODEL},
    [ROLE_ROPE_DIVISORS] = {"rope_divisors", WANT_ROPE_DIVISORS, DIM_VECTOR, DIM_ROPE_PAIRS},
    [ROLE_ATTN_NORM] = {"attn_norm", WANT_ALWAYS, DIM_VECTOR, DIM_MODEL},
    [ROLE_ATTN_Q] = {"attn_q", WANT_GQA, DIM_QUERIES, DIM_MODEL},
    [ROLE_ATTN_K] = {"attn_k", WANT_GQA, DIM_KEYS, DIM_MODEL},
    [ROLE_ATTN_V] = {"attn_v", WANT_GQA, DIM_VALUES, DIM_MODEL},
    [ROLE_ATTN_O] = {"attn_o", WANT_GQA, DIM_MODEL, DIM_HEADS},
    [ROLE_ATTN_Q_BIAS] = {"attn_q_bias", WANT_QKV_BIAS, DIM_VECTOR, DIM_QUERIES},
    [ROLE_ATTN_K_BIAS] = {"attn_k_bias", WANT_QKV_BIAS, DIM_VECTOR, DIM_KEYS},
    [ROLE_ATTN_V_BIAS] = {"attn_v_bias", WANT_QKV_BIAS, DIM_VECTOR, DIM_VALUES},
    [ROLE_ATTN_O_BIAS] = {"attn_o_bias", WANT_O_BIAS, DIM_VECTOR, DIM_MODEL},
    [ROLE_ATTN_Q_NORM] = {"attn_q_norm", WANT_QK_NORM, DIM_VECTOR, DIM_Q_NORM},
    [ROLE_ATTN_K_NORM] = {"attn_k_norm", WANT_QK_NORM, DIM_VECTOR, DIM_K_NORM},
    [ROLE_FFN_NORM] = {"ffn_norm", WANT_FFN, DIM_VECTOR, DIM_MODEL},
    [ROLE_FFN_GATE] = {"ffn_gate", WANT_DENSE, DIM_FFN, DIM_MODEL},
    [ROLE_FFN_UP] = {"ffn_up", WANT_DENSE, DIM_FFN, DIM_MODEL},
    [ROLE_FFN_DOWN] = {"ffn_down", WANT_DENSE, DIM_MODEL, DIM_FFN},
    [ROLE_ROUTER] = {"router", WANT_MOE, DIM_EXPERTS, DIM_MODEL},
    [ROLE_SHARED_GATE] = {"shared_gate", WANT_SHARED, DIM_SHARED, DIM_MODEL},
    [ROLE_SHARED_UP] = {"shared_up", WANT_SHARED, DIM_SHARED, DIM_MODEL},
    [ROLE_SHARED_DOWN] = {"shared_down", WANT_SHARED, DIM_MODEL, DIM_SHARED},
    [ROLE_SHARED_SCALE] = {"shared_scale", WANT_SHARED_SCALE, DIM_ONE, DIM_MODEL},
    [ROLE_HEAD_FACTOR] = {"head_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
    [ROLE_ATTN_Q_FACTOR] = {"attn_q_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
    [ROLE_ATTN_K_FACTOR] = {"attn_k_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
    [ROLE_ATTN_V_FACTOR] = {"attn_v_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
    [ROLE_ATTN_O_FACTOR] = {"attn_o_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
    [ROLE_FFN_GATE_FACTOR] = {"ffn_gate_factor", WANT_FACTOR, DIM_VECTOR, DIM_FACTORS},
    [ROLE_FFN_UP_FACTOR] = {"ffn_up_factor", WANT_FACTOR, DIM_VECTOR, DIM_FACTORS},
    [ROLE_FFN_DOWN_FACTOR] = {"ffn_down_factor", WANT_FACTOR, DIM_VECTOR, DIM_FACTORS},
    [ROLE_SHARED_GATE_FACTOR] = {"shared_gate_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
    [ROLE_SHARED_UP_FACTOR] = {"shared_up_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
    [ROLE_SHARED_DOWN_FACTOR] = {"shared_down_factor", WANT_FACTOR, DIM_VECTOR, DIM_ONE},
};

const char *role_name(role r) {
    return roles[r].name;
}

static const role factor_of[ROLE_COUNT] = {
    [ROLE_HEAD] = ROLE_HEAD_FACTOR,
    [ROLE_ATTN_Q] = ROLE_ATTN_Q_FACTOR,
    [ROLE_ATTN_K] = ROLE_ATTN_K_FACTOR,
    [ROLE_ATTN_V] = ROLE_ATTN_V_FACTOR,
    [ROLE_ATTN_O] = ROLE_ATTN_O_FACTOR,
    [ROLE_FFN_GATE] = ROLE_FFN_GATE_FACTOR,
    [ROLE_FFN_UP] = ROLE_FFN_UP_FACTOR,
    [ROLE_FFN_DOWN] = ROLE_FFN_DOWN_FACTOR,
    [ROLE_SHARED_GATE] = ROLE_SHARED_GATE_FACTOR,
    [ROLE_SHARED_UP] = ROLE_SHARED_UP_FACTOR,
    [ROLE_SHARED_DOWN] = ROLE_SHARED_DOWN_FACTOR,
};

role role_factor(role r) {
    return factor_of[r] ? factor_of[r] : ROLE_COUNT;
}

/* Whether the spec says that a product has a factor. */
static bool has_factor(const spec *s, const layer_spec *l, role r) {
    if (r == ROLE_HEAD_FACTOR) {
        return s->scaled_head;
    }
    return r <= ROLE_ATTN_O_FACTOR ? l->attn.scaled >> (r - ROLE_ATTN_Q_FACTOR) & 1
                                   : l->ffn.scaled >> (r - ROLE_FFN_GATE_FACTOR) & 1;
}

bool role_is_wanted(const spec *s, int32_t layer, role r) {
    const layer_spec *l = &s->layer[r < ROLE_FIRST_OF_LAYER ? 0 : layer];
    bool gqa = l->attn.kind == ATTN_GQA;
    switch (roles[r].when) {
    case WANT_ALWAYS:
        break;
    case WANT_UNTIED:
        return !s->tied_head;
    case WANT_ROPE_DIVISORS:
        return s->rope[0].has_divisors;
    case WANT_GQA:
        return gqa;
    case WANT_QKV_BIAS:
        return gqa && l->attn.qkv_bias;
    case WANT_O_BIAS:
        return gqa && l->attn.o_bias;
    case WANT_QK_NORM:
        return gqa && l->attn.qk_norm;
    case WANT_FFN:
        return l->ffn.kind != FFN_NONE;
    case WANT_DENSE:
        return l->ffn.kind == FFN_DENSE;
    case WANT_MOE:
        return l->ffn.kind == FFN_MOE;
    case WANT_SHARED:
        return l->ffn.shared_width > 0;
    case WANT_SHARED_SCALE:
        return l->ffn.shared_gate;
    case WANT_FACTOR:
        return has_factor(s, l, r);
    }
    return true;
}

static int32_t dim_size(const spec *s, const layer_spec *l, dim d) {
    const attn_spec *a = &l->attn;
    switch (d) {
    case DIM_MODEL:
        return s->d_model;
    case DIM_VOCAB:
        return s->vocab_size;
    case DIM_QUERIES:
        return a->n_head * a->head_dim;
    case DIM_KEYS:
        return a->n_kv_head * a->head_dim;
    case DIM_VALUES:
        return a->n_kv_head * a->v_head_dim;
    case DIM_HEADS:
        return a->n_head * a->v_head_dim;
    case DIM_Q_NORM:
        return a->qk_norm == QK_NORM_WHOLE ? a->n_head * a->head_dim : a->head_dim;
    case DIM_K_NORM:
        return a->qk_norm == QK_NORM_WHOLE ? a->n_kv_head * a->head_dim : a->head_dim;
    case DIM_FFN:
        return l->ffn.width;
    case DIM_EXPERTS:
        return l->ffn.n_expert;
    case DIM_SHARED:
        return l->ffn.shared_width;
    case DIM_ROPE_PAIRS:
        return s->rope[0].dim / 2;
    case DIM_FACTORS:
        return l->ffn.kind == FFN_MOE ? l->ffn.n_expert : 1;
    case DIM_ONE:
    case DIM_VECTOR:
        break;
    }
    return 1;
}

role_shape role_shape_of(const spec *s, int32_t layer, role r) {
    const layer_spec *l = &s->layer[r < ROLE_FIRST_OF_LAYER ? 0 : layer];
    return (role_shape){.rank = roles[r].row == DIM_VECTOR ? 1 : 2,
                        .n_row = dim_size(s, l, roles[r].row),
                        .n_col = dim_size(s, l, roles[r].col)};
}

role_shape expert_part_shape(const spec *s, int32_t layer, enum expert_part_kind part) {
    int32_t width = s->layer[layer].ffn.width;
    return part == PART_DOWN ? (role_shape){2, s->d_model, width}
                             : (role_shape){2, width, s->d_model};
}

const char *expert_part_name(enum expert_part_kind part) {
    return part == PART_GATE ? "gate" : part == PART_UP ? "up" : "down";
}

/* Layers may differ in their experts, so rows of equal length waste some; this much is fine. */
enum { ROW_WASTE = 16 };

int source_take_refs(source *s, uint64_t n_stored, const char *label, smoe_error *err) {
    s->n_moe_layer = spec_moe_layers(&s->spec);
    s->n_expert_row = spec_max_experts(&s->spec);
    uint64_t n_expert = (uint64_t)s->n_moe_layer * (uint64_t)s->n_expert_row;
    if (n_expert / ROW_WASTE > n_stored) {
        return err_set(err, SMOE_ERR_FORMAT,
                       "%s: %d layers of %d experts promised, %" PRIu64 " experts stored", label,
                       s->n_moe_layer, s->n_expert_row, n_stored);
    }
    s->layer = arena_get(&s->arena, (size_t)s->spec.n_layer, sizeof *s->layer);
    s->expert = arena_get(&s->arena, (size_t)n_expert, sizeof *s->expert);
    return s->layer && s->expert ? SMOE_OK : err_no_memory(err, n_expert * sizeof *s->expert);
}

/* Whether part x lies before part y. */
static bool lies_before(const extent *x, const extent *y) {
    return x->file != y->file ? x->file < y->file : x->offset < y->offset;
}

/* Whether y, which does not lie before x, begins on the page where x ends or right behind it: such
 * ranges are one read, and the page is held once. */
static bool covers_touch(const extent *x, const extent *y) {
    uint64_t end = x->offset + x->bytes;
    uint64_t cover_end = (end + EXTENT_PAGE_BYTES - 1) / EXTENT_PAGE_BYTES * EXTENT_PAGE_BYTES;
    return x->file == y->file && y->offset / EXTENT_PAGE_BYTES * EXTENT_PAGE_BYTES <= cover_end;
}

void expert_ref_set_extents(expert_ref *e, const extent range[PART_COUNT]) {
    int order[PART_COUNT];
    for (int i = 0; i < PART_COUNT; i++) {
        int at = i;
        for (; at > 0 && lies_before(&range[i], &range[order[at - 1]]); at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    e->n_ext = 0;
    for (int i = 0; i < PART_COUNT; i++) {
        const extent *r = &range[order[i]];
        extent *last = e->n_ext > 0 ? &e->ext[e->n_ext - 1] : NULL;
        if (!last || !covers_touch(last, r)) {
            last = &e->ext[e->n_ext++];
            *last = (extent){r->file, r->offset, 0};
        }
        uint64_t at = r->offset - last->offset;
        e->part[order[i]].ext = e->n_ext - 1;
        e->part[order[i]].at_bytes = at;
        last->bytes = at + r->bytes > last->bytes ? at + r->bytes : last->bytes;
    }
}
