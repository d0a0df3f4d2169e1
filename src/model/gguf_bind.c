/* Binding GGUF tensors; see gguf_bind.h. Looks at descriptions of tensors only, never at their
 * data. */
#include "model/gguf_bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/bind.h"

enum { NAME_BYTES = 160 };

/* By role; those of a layer go behind "blk.N.". */
static const char *const role_tensor[ROLE_COUNT] = {
    [ROLE_EMBED] = "token_embd.weight",
    [ROLE_OUT_NORM] = "output_norm.weight",
    [ROLE_HEAD] = "output.weight",
    [ROLE_ROPE_DIVISORS] = "rope_freqs.weight",
    [ROLE_ATTN_NORM] = "attn_norm.weight",
    [ROLE_ATTN_Q] = "attn_q.weight",
    [ROLE_ATTN_K] = "attn_k.weight",
    [ROLE_ATTN_V] = "attn_v.weight",
    [ROLE_ATTN_O] = "attn_output.weight",
    [ROLE_ATTN_Q_BIAS] = "attn_q.bias",
    [ROLE_ATTN_K_BIAS] = "attn_k.bias",
    [ROLE_ATTN_V_BIAS] = "attn_v.bias",
    [ROLE_ATTN_O_BIAS] = "attn_output.bias",
    [ROLE_ATTN_Q_NORM] = "attn_q_norm.weight",
    [ROLE_ATTN_K_NORM] = "attn_k_norm.weight",
    [ROLE_FFN_NORM] = "ffn_norm.weight",
    [ROLE_FFN_GATE] = "ffn_gate.weight",
    [ROLE_FFN_UP] = "ffn_up.weight",
    [ROLE_FFN_DOWN] = "ffn_down.weight",
    [ROLE_ROUTER] = "ffn_gate_inp.weight",
    [ROLE_SHARED_GATE] = "ffn_gate_shexp.weight",
    [ROLE_SHARED_UP] = "ffn_up_shexp.weight",
    [ROLE_SHARED_DOWN] = "ffn_down_shexp.weight",
    [ROLE_SHARED_SCALE] = "ffn_gate_inp_shexp.weight",
    [ROLE_HEAD_FACTOR] = "output.scale",
    [ROLE_ATTN_Q_FACTOR] = "attn_q.scale",
    [ROLE_ATTN_K_FACTOR] = "attn_k.scale",
    [ROLE_ATTN_V_FACTOR] = "attn_v.scale",
    [ROLE_ATTN_O_FACTOR] = "attn_output.scale",
    [ROLE_FFN_GATE_FACTOR] = "ffn_gate.scale",
    [ROLE_FFN_UP_FACTOR] = "ffn_up.scale",
    [ROLE_FFN_DOWN_FACTOR] = "ffn_down.scale",
    [ROLE_SHARED_GATE_FACTOR] = "ffn_gate_shexp.scale",
    [ROLE_SHARED_UP_FACTOR] = "ffn_up_shexp.scale",
    [ROLE_SHARED_DOWN_FACTOR] = "ffn_down_shexp.scale",
};

static const char fused_tensor[] = "ffn_gate_up_exps.weight"; /* gate's rows, then up's */

typedef struct binder {
    source *s;
    const tensor_table *table;
    bool *is_bound; /* [table->n_item] */
    const char *label;
    smoe_error *err;
} binder;

static const char *layer_name(char out[NAME_BYTES], int32_t layer, const char *name) {
    snprintf(out, NAME_BYTES, "blk.%d.%s", layer, name);
    return out;
}

static const tensor *find(const binder *b, const char *name) {
    const tensor *t = tensor_table_find(b->table, name);
    if (t) {
        b->is_bound[t - b->table->item] = true;
    }
    return t;
}

static int missing(const binder *b, const char *name) {
    return err_set(b->err, SMOE_ERR_FORMAT, "%s: tensor %s is missing", b->label, name);
}

/* ---- shapes and types */

/* "[16, 8]" */
static void shape_text(char *out, size_t out_bytes, const int64_t *shape, int32_t rank) {
    size_t n = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < rank && n < out_bytes; i++) {
        n += (size_t)snprintf(out + n, out_bytes - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    }
}

/* Outer dimensions of 1 may be stored or left out. */
static int check_shape(const binder *b, const tensor *t, const int64_t *want, int32_t rank) {
    bool same = true;
    for (int32_t i = 1; i <= LIMIT_TENSOR_RANK; i++) {
        int64_t found = i <= t->rank ? t->shape[t->rank - i] : 1;
        same &= found == (i <= rank ? want[rank - i] : 1);
    }
    if (same) {
        return SMOE_OK;
    }
    char found[LIMIT_TENSOR_RANK * 24], expected[LIMIT_TENSOR_RANK * 24];
    shape_text(found, sizeof found, t->shape, t->rank);
    shape_text(expected, sizeof expected, want, rank);
    return err_set(b->err, SMOE_ERR_FORMAT,
                   "%s: the shape of %s differs: [%s], expected [%s] (rows first)",
                   b->s->files.file[t->file].path, t->name, found, expected);
}

static int check_type(const binder *b, const tensor *t, bool is_vector) {
    bool fits = is_vector ? t->type == DT_F32 || t->type == DT_F16 || t->type == DT_BF16
                          : dtype_get(t->type)->is_weight;
    if (fits) {
        return SMOE_OK;
    }
    return err_set(b->err, SMOE_ERR_UNSUPPORTED, "%s: wrong type %s for %s",
                   b->s->files.file[t->file].path, dtype_get(t->type)->name, t->name);
}

/* ---- resident tensors */

static void role_tensor_name(char out[NAME_BYTES], const spec *s, int32_t layer, role r) {
    static const char *const of_experts[] = {"ffn_gate_exps.scale", "ffn_up_exps.scale",
                                             "ffn_down_exps.scale"};
    if (r < ROLE_FIRST_OF_LAYER) {
        snprintf(out, NAME_BYTES, "%s", role_tensor[r]);
    } else if (r >= ROLE_FFN_GATE_FACTOR && r <= ROLE_FFN_DOWN_FACTOR &&
               s->layer[layer].ffn.kind == FFN_MOE) {
        layer_name(out, layer, of_experts[r - ROLE_FFN_GATE_FACTOR]);
    } else {
        layer_name(out, layer, role_tensor[r]);
    }
}

static int take_ref(const binder *b, const tensor *t, role_shape shape, uint64_t at_bytes,
                    uint64_t bytes, weight_ref *ref) {
    int rc = check_type(b, t, shape.n_row == 1);
    if (rc != SMOE_OK) {
        return rc;
    }
    *ref = (weight_ref){.name = arena_text(&b->s->arena, t->name, strlen(t->name)),
                        .type = t->type,
                        .n_row = shape.n_row,
                        .n_col = shape.n_col,
                        .file = t->file,
                        .offset = t->offset + at_bytes,
                        .bytes = bytes};
    return ref->name ? SMOE_OK : err_no_memory(b->err, strlen(t->name));
}

/* The tensor that holds q, k and v one after the other, for the roles that may be part of one, and
 * which part: 0, 1, 2. NULL: none. */
static const tensor *find_fused_qkv(const binder *b, int32_t layer, role r, int *part) {
    char name[NAME_BYTES];
    bool is_weight = r == ROLE_ATTN_Q || r == ROLE_ATTN_K || r == ROLE_ATTN_V;
    bool is_bias = r == ROLE_ATTN_Q_BIAS || r == ROLE_ATTN_K_BIAS || r == ROLE_ATTN_V_BIAS;
    if (!is_weight && !is_bias) {
        return NULL;
    }
    *part = (int)r - (int)(is_weight ? ROLE_ATTN_Q : ROLE_ATTN_Q_BIAS);
    return find(b, layer_name(name, layer, is_weight ? "attn_qkv.weight" : "attn_qkv.bias"));
}

/* Part of what find_fused_qkv found: rows of a matrix, elements of a vector. */
static int bind_fused_qkv(const binder *b, weight_ref *ref, int32_t layer, role r, const tensor *t,
                          int part) {
    int64_t before = 0, all = 0;
    role_shape shape = role_shape_of(&b->s->spec, layer, r);
    for (int i = 0; i < 3; i++) {
        role_shape one = role_shape_of(&b->s->spec, layer, (role)((int)r - part + i));
        int64_t n = one.rank == 1 ? one.n_col : one.n_row;
        before += i < part ? n : 0;
        all += n;
    }
    bool is_vector = shape.rank == 1;
    int64_t want[2] = {all, is_vector ? 1 : shape.n_col};
    int rc = check_shape(b, t, want, is_vector ? 1 : 2);
    uint64_t unit = is_vector ? dtype_get(t->type)->block_bytes
                              : dtype_row_bytes(t->type, (uint64_t)shape.n_col);
    uint64_t n = (uint64_t)(is_vector ? shape.n_col : shape.n_row);
    return rc ? rc : take_ref(b, t, shape, (uint64_t)before * unit, n * unit, ref);
}

static int bind_role(const binder *b, weight_ref *ref, int32_t layer, role r) {
    char name[NAME_BYTES];
    int part = 0;
    if (!role_is_wanted(&b->s->spec, layer, r)) {
        return SMOE_OK;
    }
    role_tensor_name(name, &b->s->spec, layer, r);
    const tensor *t = find(b, name);
    const tensor *fused = t ? NULL : find_fused_qkv(b, layer, r, &part);
    if (!t) {
        return fused ? bind_fused_qkv(b, ref, layer, r, fused, part) : missing(b, name);
    }
    role_shape shape = role_shape_of(&b->s->spec, layer, r);
    int64_t want[2] = {shape.n_row, shape.n_col};
    int rc = check_shape(b, t, want + 2 - shape.rank, shape.rank);
    return rc ? rc : take_ref(b, t, shape, 0, t->bytes, ref);
}

static int bind_resident(const binder *b) {
    int rc = SMOE_OK;
    for (int r = 0; rc == SMOE_OK && r < ROLE_FIRST_OF_LAYER; r++) {
        rc = bind_role(b, &b->s->global[r], 0, (role)r);
    }
    for (int32_t i = 0; rc == SMOE_OK && i < b->s->spec.n_layer; i++) {
        for (int r = ROLE_FIRST_OF_LAYER; rc == SMOE_OK && r < ROLE_COUNT; r++) {
            rc = bind_role(b, &b->s->layer[i][r], i, (role)r);
        }
    }
    return rc;
}

/* ---- experts */

/* Where one part of each expert of a layer lies: in expert x's slice of a tensor, from row
 * first_row of the slice's n_row. */
typedef struct stack {
    const tensor *t;
    int32_t n_row; /* of a slice */
    int32_t first_row;
} stack;

static bool has_tensor(const binder *b, int32_t layer, const char *name) {
    char full[NAME_BYTES];
    return tensor_table_find(b->table, layer_name(full, layer, name)) != NULL;
}

static const char *single_name(char out[NAME_BYTES], int32_t layer, enum expert_part_kind part,
                               int32_t expert) {
    snprintf(out, NAME_BYTES, "blk.%d.ffn_%s.%d.weight", layer, expert_part_name(part), expert);
    return out;
}

static bool is_single(const binder *b, int32_t layer) {
    char name[NAME_BYTES];
    return tensor_table_find(b->table, single_name(name, layer, PART_GATE, 0)) != NULL;
}

/* Experts seen to be stored, so that no key alone sizes an array. */
static uint64_t count_stored(const binder *b) {
    uint64_t n = 0;
    for (int32_t m = 0; m < spec_moe_layers(&b->s->spec); m++) {
        char name[NAME_BYTES];
        int32_t layer = spec_moe_layer(&b->s->spec, m);
        int32_t n_expert = b->s->spec.layer[layer].ffn.n_expert, k = 0;
        const tensor *t =
            tensor_table_find(b->table, layer_name(name, layer, "ffn_down_exps.weight"));
        if (t && t->rank == 3) {
            k = t->shape[0] < n_expert ? (int32_t)t->shape[0] : n_expert;
        }
        while (!t && k < n_expert &&
               tensor_table_find(b->table, single_name(name, layer, PART_DOWN, k))) {
            k++;
        }
        n += (uint64_t)k;
    }
    return n;
}

static int find_stack(const binder *b, int32_t layer, enum expert_part_kind part, stack *out) {
    char name[NAME_BYTES], own[32];
    const ffn_spec *f = &b->s->spec.layer[layer].ffn;
    role_shape shape = expert_part_shape(&b->s->spec, layer, part);
    bool fused = part != PART_DOWN && has_tensor(b, layer, fused_tensor);
    snprintf(own, sizeof own, "ffn_%s_exps.weight", expert_part_name(part));
    out->n_row = fused ? 2 * shape.n_row : shape.n_row;
    out->first_row = fused && part == PART_UP ? shape.n_row : 0;
    out->t = find(b, layer_name(name, layer, fused ? fused_tensor : own));
    if (!out->t) {
        return missing(b, name);
    }
    int64_t want[3] = {f->n_expert, out->n_row, shape.n_col};
    int rc = check_shape(b, out->t, want, 3);
    return rc ? rc : check_type(b, out->t, false);
}

static int find_single(const binder *b, int32_t layer, enum expert_part_kind part, int32_t expert,
                       stack *out) {
    char name[NAME_BYTES];
    role_shape shape = expert_part_shape(&b->s->spec, layer, part);
    out->n_row = shape.n_row;
    out->first_row = 0;
    out->t = find(b, single_name(name, layer, part, expert));
    if (!out->t) {
        return missing(b, name);
    }
    int64_t want[2] = {shape.n_row, shape.n_col};
    int rc = check_shape(b, out->t, want, 2);
    return rc ? rc : check_type(b, out->t, false);
}

/* Fills e from slice number slice of each part's tensor. */
static void fill_expert(const binder *b, expert_ref *e, int32_t layer, const stack part[PART_COUNT],
                        int32_t slice) {
    extent range[PART_COUNT];
    for (int p = 0; p < PART_COUNT; p++) {
        const tensor *t = part[p].t;
        role_shape shape = expert_part_shape(&b->s->spec, layer, (enum expert_part_kind)p);
        uint64_t row_bytes = dtype_row_bytes(t->type, (uint64_t)shape.n_col);
        uint64_t row = (uint64_t)slice * (uint64_t)part[p].n_row + (uint64_t)part[p].first_row;
        uint64_t bytes = (uint64_t)shape.n_row * row_bytes;
        range[p] = (extent){t->file, t->offset + row * row_bytes, bytes};
        e->part[p].bytes = bytes;
        e->part[p].type = t->type;
        e->part[p].n_row = shape.n_row;
        e->part[p].n_col = shape.n_col;
    }
    expert_ref_set_extents(e, range);
}

static int bind_layer_experts(const binder *b, int32_t moe_index) {
    int32_t layer = spec_moe_layer(&b->s->spec, moe_index);
    expert_ref *row = &b->s->expert[(size_t)moe_index * (size_t)b->s->n_expert_row];
    bool single = is_single(b, layer);
    stack part[PART_COUNT];
    int rc = SMOE_OK;
    for (int p = 0; rc == SMOE_OK && !single && p < PART_COUNT; p++) {
        rc = find_stack(b, layer, (enum expert_part_kind)p, &part[p]);
    }
    for (int32_t x = 0; rc == SMOE_OK && x < b->s->spec.layer[layer].ffn.n_expert; x++) {
        for (int p = 0; rc == SMOE_OK && single && p < PART_COUNT; p++) {
            rc = find_single(b, layer, (enum expert_part_kind)p, x, &part[p]);
        }
        if (rc == SMOE_OK) {
            fill_expert(b, &row[x], layer, part, single ? 0 : x);
        }
    }
    return rc;
}

/* ---- what is left */

/* Whether the name is of a block behind the model's own. */
static bool is_beyond(const char *name, int32_t n_layer) {
    int32_t layer = 0;
    if (strncmp(name, "blk.", 4) != 0) {
        return false;
    }
    for (const char *p = name + 4; *p >= '0' && *p <= '9'; p++) {
        layer = layer < LIMIT_LAYERS ? layer * 10 + (*p - '0') : layer;
    }
    return layer >= n_layer;
}

/* Scales for int8 or fp4 activations, which this program chooses by itself. */
static bool is_input_scale(const char *name) {
    static const char suffix[] = ".input_scale";
    size_t n = strlen(name);
    return n > sizeof suffix && strcmp(name + n - (sizeof suffix - 1), suffix) == 0;
}

static int refuse_unbound(const binder *b) {
    for (int32_t i = 0; i < b->table->n_item; i++) {
        const char *name = b->table->item[i].name;
        if (!b->is_bound[i] && !is_input_scale(name) && !is_beyond(name, b->s->spec.n_layer)) {
            return err_set(b->err, SMOE_ERR_UNSUPPORTED,
                           "%s: tensor %s is not one that a %s model has here", b->label, name,
                           b->s->spec.family);
        }
    }
    return SMOE_OK;
}

int gguf_bind(source *s, const tensor_table *table, const char *label, smoe_error *err) {
    binder b = {.s = s, .table = table, .label = label, .err = err};
    b.is_bound = mem_array((size_t)table->n_item + 1, sizeof *b.is_bound);
    if (!b.is_bound) {
        return err_no_memory(err, (uint64_t)table->n_item);
    }
    int rc = source_take_refs(s, count_stored(&b), label, err);
    rc = rc ? rc : bind_resident(&b);
    for (int32_t m = 0; rc == SMOE_OK && m < s->n_moe_layer; m++) {
        rc = bind_layer_experts(&b, m);
    }
    rc = rc ? rc : refuse_unbound(&b);
    free(b.is_bound);
    return rc;
}
