/* Binding a checkpoint's tensors to what the spec asks for; see bind.h. Looks at descriptions of
 * tensors only, never at their data. */
#include "model/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 256 };

/* How names of the bare text model appear inside a model of several modalities: in place of
 * "model.", and before every other name. */
typedef struct wrapping {
    const char *model;
    const char *other;
} wrapping;

static const wrapping wrappings[] = {
    {"model.", ""},
    {"language_model.model.", "language_model."},
    {"model.language_model.", ""},
};

typedef struct binder {
    source *s;
    const family *f;
    const tensor_table *table;
    const wrapping *wrap;
    const char *label;
    smoe_error *err;
} binder;

/* Writes pattern with its numbers in place; a pattern that does not fit is cut and found nowhere.
 */
static void make_name(char out[NAME_BYTES], const wrapping *wrap, const char *pattern,
                      int32_t layer, int32_t expert) {
    static const char model[] = "model.", layer_mark[] = "{layer}", expert_mark[] = "{expert}";
    bool in_model = strncmp(pattern, model, sizeof model - 1) == 0;
    int n = snprintf(out, NAME_BYTES, "%s", in_model ? wrap->model : wrap->other);
    const char *p = pattern + (in_model ? sizeof model - 1 : 0);
    while (*p && n >= 0 && n < NAME_BYTES - 1) {
        size_t room = NAME_BYTES - (size_t)n;
        if (strncmp(p, layer_mark, sizeof layer_mark - 1) == 0) {
            n += snprintf(out + n, room, "%d", layer);
            p += sizeof layer_mark - 1;
        } else if (strncmp(p, expert_mark, sizeof expert_mark - 1) == 0) {
            n += snprintf(out + n, room, "%d", expert);
            p += sizeof expert_mark - 1;
        } else {
            out[n++] = *p++;
            out[n] = '\0';
        }
    }
}

static const char *role_pattern(const family *f, role r) {
    for (size_t i = 0; i < f->n_tensor; i++) {
        if (f->tensor[i].role == r) {
            return f->tensor[i].pattern;
        }
    }
    return NULL;
}

static const wrapping *find_wrapping(const family *f, const tensor_table *table) {
    char name[NAME_BYTES];
    const char *pattern = role_pattern(f, ROLE_EMBED);
    for (size_t i = 0; pattern && i < sizeof wrappings / sizeof *wrappings; i++) {
        make_name(name, &wrappings[i], pattern, 0, 0);
        if (tensor_table_find(table, name)) {
            return &wrappings[i];
        }
    }
    return &wrappings[0];
}

/* "[16, 8]" */
static void shape_text(char *out, size_t out_bytes, const int64_t *shape, int32_t rank) {
    size_t n = 0;
    out[0] = '\0';
    rank = rank < LIMIT_TENSOR_RANK ? rank : LIMIT_TENSOR_RANK;
    for (int32_t i = 0; i < rank && n < out_bytes; i++) {
        n += (size_t)snprintf(out + n, out_bytes - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    }
}

static int check_shape(const binder *b, const tensor *t, role_shape want) {
    int64_t shape[2] = {want.rank == 1 ? want.n_col : want.n_row, want.n_col};
    bool same = t->rank == want.rank;
    for (int32_t i = 0; same && i < want.rank && i < 2; i++) {
        same = t->shape[i] == shape[i];
    }
    if (same) {
        return SMOE_OK;
    }
    char found[LIMIT_TENSOR_RANK * 24], expected[48];
    shape_text(found, sizeof found, t->shape, t->rank);
    shape_text(expected, sizeof expected, shape, want.rank);
    return err_set(b->err, SMOE_ERR_FORMAT, "%s: tensor %s has shape [%s], expected [%s]",
                   b->s->files.file[t->file].path, t->name, found, expected);
}

static int missing(const binder *b, const char *name) {
    return err_set(b->err, SMOE_ERR_FORMAT, "%s: tensor %s is missing", b->label, name);
}

static int find_tensor(const binder *b, const char *name, role_shape want, const tensor **out) {
    const tensor *t = tensor_table_find(b->table, name);
    if (!t) {
        return missing(b, name);
    }
    int rc = check_shape(b, t, want);
    if (rc == SMOE_OK && t->type != DT_F32 && t->type != DT_F16 && t->type != DT_BF16) {
        rc = err_set(b->err, SMOE_ERR_UNSUPPORTED,
                     "%s: tensor %s is of type %s, expected f32, f16 or bf16",
                     b->s->files.file[t->file].path, t->name, dtype_get(t->type)->name);
    }
    *out = t;
    return rc;
}

static int bind_role(const binder *b, weight_ref *ref, int32_t layer, role r) {
    if (!role_is_wanted(&b->s->spec, layer, r)) {
        return SMOE_OK;
    }
    char name[NAME_BYTES];
    const tensor *t;
    const char *pattern = role_pattern(b->f, r);
    if (!pattern) {
        return err_set(b->err, SMOE_ERR_UNSUPPORTED, "family %s has no tensor for %s", b->f->name,
                       role_name(r));
    }
    role_shape shape = role_shape_of(&b->s->spec, layer, r);
    make_name(name, b->wrap, pattern, layer, 0);
    int rc = find_tensor(b, name, shape, &t);
    if (rc != SMOE_OK) {
        return rc;
    }
    *ref = (weight_ref){.name = arena_text(&b->s->arena, t->name, strlen(t->name)),
                        .type = t->type,
                        .n_row = shape.n_row,
                        .n_col = shape.n_col,
                        .file = t->file,
                        .offset = t->offset,
                        .bytes = t->bytes};
    return ref->name ? SMOE_OK : err_no_memory(b->err, strlen(t->name));
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

static int bind_expert(const binder *b, expert_ref *e, int32_t layer, int32_t expert) {
    extent range[PART_COUNT];
    for (int p = 0; p < PART_COUNT; p++) {
        char name[NAME_BYTES];
        const tensor *t;
        role_shape shape = expert_part_shape(&b->s->spec, layer, (enum expert_part_kind)p);
        make_name(name, b->wrap, b->f->expert[p], layer, expert);
        int rc = find_tensor(b, name, shape, &t);
        if (rc != SMOE_OK) {
            return rc;
        }
        range[p] = (extent){t->file, t->offset, t->bytes};
        e->part[p].bytes = t->bytes;
        e->part[p].type = t->type;
        e->part[p].n_row = shape.n_row;
        e->part[p].n_col = shape.n_col;
    }
    expert_ref_set_extents(e, range);
    return SMOE_OK;
}

/* Counts the experts whose tensors are all there; names the first tensor that is not. */
static int count_experts(const binder *b, uint64_t *n_stored) {
    const spec *s = &b->s->spec;
    *n_stored = 0;
    for (int32_t i = 0; i < s->n_layer; i++) {
        for (int32_t x = 0; x < s->layer[i].ffn.n_expert; x++) {
            for (int p = 0; p < PART_COUNT; p++) {
                char name[NAME_BYTES];
                make_name(name, b->wrap, b->f->expert[p], i, x);
                if (!tensor_table_find(b->table, name)) {
                    return missing(b, name);
                }
            }
            ++*n_stored;
        }
    }
    return SMOE_OK;
}

static int bind_experts(const binder *b) {
    int rc = SMOE_OK;
    for (int32_t m = 0; m < b->s->n_moe_layer; m++) {
        int32_t layer = spec_moe_layer(&b->s->spec, m);
        for (int32_t x = 0; rc == SMOE_OK && x < b->s->spec.layer[layer].ffn.n_expert; x++) {
            expert_ref *row = &b->s->expert[(size_t)m * (size_t)b->s->n_expert_row];
            rc = bind_expert(b, &row[x], layer, x);
        }
    }
    return rc;
}

int bind_checkpoint(source *s, const family *f, const tensor_table *table, const char *label,
                    smoe_error *err) {
    uint64_t n_stored = 0;
    binder b = {s, f, table, find_wrapping(f, table), label, err};
    char embed[NAME_BYTES];
    make_name(embed, b.wrap, role_pattern(f, ROLE_EMBED), 0, 0);
    int rc = tensor_table_find(table, embed) ? count_experts(&b, &n_stored) : missing(&b, embed);
    rc = rc ? rc : source_take_refs(s, n_stored, label, err);
    rc = rc ? rc : bind_resident(&b);
    return rc ? rc : bind_experts(&b);
}
