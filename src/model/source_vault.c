/* Opens a vault and its scout as a source: headers only, never a record or a weight.
 *
 * The vault header is consistent in itself when vault_read returns; here it is held against the
 * spec, and the scout against both. File 0 of the source is the vault, file 1 the scout.
 */
#include "model/source_open.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "formats/vault.h"
#include "model/bind.h"
#include "model/gguf_text.h"

typedef struct opener {
    source *s;
    vault_content content;
    arena scratch; /* header bytes, tables, the scout's names */
    tensor_table scout;
    struct json_object *metadata; /* of the scout, NULL when it has none */
    const char *scout_path;       /* of the file set */
    int32_t n_bound;
    smoe_error *err;
} opener;

/* ---- what the header carries */

static int copy_blob(text_blob *out, const vault_text *text, smoe_error *err) {
    if (text->data) {
        out->data = mem_copy_text(text->data, text->bytes);
        out->bytes = text->bytes;
        return out->data ? SMOE_OK : err_no_memory(err, text->bytes);
    }
    return SMOE_OK;
}

static int check_text_sizes(const opener *o) {
    for (int t = 0; t < VAULT_TEXTS; t++) {
        bool large =
            t == VAULT_TOKENIZER || t == VAULT_GGUF_TOKENIZER || t == VAULT_PREPARED_TOKENIZER;
        size_t limit = large ? LIMIT_TOKENIZER_BYTES : LIMIT_CONFIG_BYTES;
        if (o->content.text[t].bytes > limit) {
            return err_set(o->err, SMOE_ERR_FORMAT,
                           "%s: vault header: a text of %zu bytes, the limit is %zu", o->s->path,
                           o->content.text[t].bytes, limit);
        }
    }
    return SMOE_OK;
}

static int take_text(opener *o) {
    const vault_text *text = o->content.text;
    text_assets *a = &o->s->text;
    int rc = check_text_sizes(o);
    if (rc != SMOE_OK) {
        return rc;
    }
    a->label = mem_copy_text(o->s->path, strlen(o->s->path));
    if (!a->label) {
        return err_no_memory(o->err, strlen(o->s->path));
    }
    rc = copy_blob(&a->tokenizer_json, &text[VAULT_TOKENIZER], o->err);
    rc =
        rc == SMOE_OK ? copy_blob(&a->tokenizer_config, &text[VAULT_TOKENIZER_CONFIG], o->err) : rc;
    rc = rc == SMOE_OK ? copy_blob(&a->chat_template, &text[VAULT_CHAT_TEMPLATE], o->err) : rc;
    rc = rc == SMOE_OK ? copy_blob(&a->generation, &text[VAULT_GENERATION], o->err) : rc;
    rc = rc == SMOE_OK ? copy_blob(&a->gguf, &text[VAULT_GGUF_TOKENIZER], o->err) : rc;
    return rc == SMOE_OK && a->gguf.data ? gguf_text_decode(a, o->err) : rc;
}

static int take_spec(opener *o) {
    source *s = o->s;
    const vault_text *text = &o->content.text[VAULT_SPEC];
    char label[FILE_PATH_BYTES + 16];
    struct json_object *json = NULL;
    snprintf(label, sizeof label, "%s: spec", s->path);
    int rc = json_parse(&json, text->data, text->bytes, label, JSON_UNIQUE_KEYS, o->err);
    rc = rc == SMOE_OK ? spec_from_json(&s->spec, json, label, &s->arena, o->err) : rc;
    json_object_put(json);
    return rc;
}

/* ---- experts */

static int check_layer(const opener *o, int32_t moe_index) {
    const source *s = o->s;
    const vault_layer *l = &o->content.layer[moe_index];
    int32_t layer = spec_moe_layer(&s->spec, moe_index);
    int32_t n_expert = s->spec.layer[layer].ffn.n_expert;
    if (l->layer != layer || l->n_expert != n_expert) {
        return err_set(o->err, SMOE_ERR_FORMAT,
                       "%s: the layer table has layer %d with %d experts where the spec has layer "
                       "%d with %d",
                       s->path, l->layer, l->n_expert, layer, n_expert);
    }
    for (int k = 0; k < PART_COUNT; k++) {
        role_shape want = expert_part_shape(&s->spec, layer, (enum expert_part_kind)k);
        const vault_part *p = &l->part[k];
        if (p->n_row != want.n_row || p->n_col != want.n_col) {
            return err_set(o->err, SMOE_ERR_FORMAT,
                           "%s: layer %d: the experts' %s has shape [%d, %d], expected [%d, %d]",
                           s->path, layer, expert_part_name((enum expert_part_kind)k), p->n_row,
                           p->n_col, want.n_row, want.n_col);
        }
    }
    return SMOE_OK;
}

static void fill_expert(expert_ref *e, const vault_layer *l, const vault_record *r) {
    *e = (expert_ref){.n_ext = 1, .has_checksum = true, .checksum = r->checksum};
    e->ext[0] = (extent){.file = 0, .offset = r->offset, .bytes = r->bytes};
    for (int k = 0; k < PART_COUNT; k++) {
        const vault_part *p = &l->part[k];
        e->part[k].at_bytes = p->at_bytes;
        e->part[k].bytes = p->bytes;
        e->part[k].type = p->type;
        e->part[k].n_row = p->n_row;
        e->part[k].n_col = p->n_col;
    }
}

static int take_experts(opener *o) {
    source *s = o->s;
    const vault_content *c = &o->content;
    int32_t n_moe = spec_moe_layers(&s->spec);
    if (n_moe != c->n_layer) {
        return err_set(o->err, SMOE_ERR_FORMAT,
                       "%s: the layer table has %d layers, the spec %d MoE layers", s->path,
                       c->n_layer, n_moe);
    }
    for (int32_t i = 0; i < n_moe; i++) {
        int rc = check_layer(o, i);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    int rc = source_take_refs(s, (uint64_t)c->n_record, s->path, o->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (int32_t i = 0; i < n_moe; i++) {
        const vault_layer *l = &c->layer[i];
        for (int32_t e = 0; e < l->n_expert; e++) {
            size_t at = (size_t)i * (size_t)s->n_expert_row + (size_t)e;
            fill_expert(&s->expert[at], l, &c->record[l->first_record + e]);
        }
    }
    return SMOE_OK;
}

/* ---- the scout */

static int wrong_scout(const opener *o, const char *what, uint64_t found, uint64_t want) {
    return err_set(o->err, SMOE_ERR_FORMAT,
                   "%s is not the scout of %s: its %s is %" PRIx64 ", expected %" PRIx64
                   "; copy the two files together",
                   o->scout_path, o->s->path, what, found, want);
}

static int add_scout_file(opener *o) {
    char path[FILE_PATH_BYTES];
    int32_t index;
    if (!vault_scout_path(path, sizeof path, o->s->path)) {
        return err_set(o->err, SMOE_ERR_ARGUMENT, "%s: the path is too long", o->s->path);
    }
    if (!file_exists(path)) {
        return err_set(o->err, SMOE_ERR_IO,
                       "%s is missing: a vault needs its scout beside it; copy it there or sculpt "
                       "again",
                       path);
    }
    int rc = file_set_add(&o->s->files, path, &index, o->err);
    if (rc == SMOE_OK) {
        o->scout_path = o->s->files.file[index].path;
    }
    return rc;
}

/* Reads and checks what comes before the scout's data, and parses it. */
static int read_scout_head(opener *o) {
    const vault_scout *want = &o->content.scout;
    model_file *f = &o->s->files.file[1];
    if (f->bytes != want->file_bytes) {
        return wrong_scout(o, "size in bytes", f->bytes, want->file_bytes);
    }
    size_t json_bytes;
    uint8_t length[SAFETENSORS_LENGTH_BYTES] = {0};
    size_t n = f->bytes < sizeof length ? (size_t)f->bytes : sizeof length;
    int rc = model_file_read_head(f, 0, length, n, o->err);
    rc = rc == SMOE_OK ? safetensors_header_length(length, f->bytes, f->path, &json_bytes, o->err)
                       : rc;
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t head_bytes = json_bytes + sizeof length;
    if (head_bytes != want->head_bytes) {
        return wrong_scout(o, "header size in bytes", head_bytes, want->head_bytes);
    }
    char *head = arena_get(&o->scratch, head_bytes, 1);
    if (!head) {
        return err_no_memory(o->err, head_bytes);
    }
    rc = model_file_read_head(f, 0, head, head_bytes, o->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    uint64_t found = XXH3_64bits(head, head_bytes);
    if (found != want->head_checksum) {
        return wrong_scout(o, "header checksum", found, want->head_checksum);
    }
    return safetensors_parse(&o->scout, &o->scratch, head + sizeof length, json_bytes, f->bytes, 1,
                             f->path, &o->metadata, o->err);
}

static int shape_error(const opener *o, const tensor *t, role_shape want) {
    char shape[48];
    if (want.rank == 1) {
        snprintf(shape, sizeof shape, "[%d]", want.n_col);
    } else {
        snprintf(shape, sizeof shape, "[%d, %d]", want.n_row, want.n_col);
    }
    return err_set(o->err, SMOE_ERR_FORMAT, "%s: %s does not have the expected shape %s",
                   o->scout_path, t->name, shape);
}

/* Quantised matrices are U8 tensors [n_row, row_bytes] whose type and true shape the file's
 * metadata gives as "TYPE ROWS COLUMNS" under the tensor's name. */
static int quantised_type(const opener *o, const tensor *t, role_shape want, dtype *type) {
    json_at at = {.object = o->metadata, .label = o->scout_path, .parent = "__metadata__."};
    const char *text;
    char name[16];
    int n_row;
    int n_col;
    int rc = json_need_text(&at, t->name, &text, NULL, o->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    bool read = sscanf(text, "%15s %9d %9d", name, &n_row, &n_col) == 3;
    *type = read ? dtype_by_name(name) : DT_NONE;
    const dtype_info *info = dtype_get(*type);
    if (!info->is_weight || info->block_elems < 2) {
        return err_set(o->err, SMOE_ERR_FORMAT, "%s: __metadata__ says \"%s\" of %s", o->scout_path,
                       text, t->name);
    }
    bool fits = t->rank == 2 && n_row == want.n_row && n_col == want.n_col &&
                t->shape[0] == want.n_row &&
                (uint64_t)t->shape[1] == dtype_row_bytes(*type, (uint64_t)want.n_col);
    return fits ? SMOE_OK : shape_error(o, t, want);
}

static int bind_tensor(opener *o, weight_ref *w, const char *name, role_shape want) {
    const tensor *t = tensor_table_find(&o->scout, name);
    if (!t) {
        return err_set(o->err, SMOE_ERR_FORMAT, "%s has no tensor %s", o->scout_path, name);
    }
    dtype type = t->type;
    if (t->type == DT_U8 && o->metadata) {
        int rc = quantised_type(o, t, want, &type);
        if (rc != SMOE_OK) {
            return rc;
        }
    } else {
        bool fits = t->rank == want.rank && t->shape[t->rank - 1] == want.n_col &&
                    (t->rank == 1 || t->shape[0] == want.n_row);
        if (!fits) {
            return shape_error(o, t, want);
        }
    }
    if (!dtype_get(type)->is_weight) {
        return err_set(o->err, SMOE_ERR_FORMAT, "%s: %s has type %s, which no weight has",
                       o->scout_path, name, dtype_get(type)->name);
    }
    char *copy = arena_text(&o->s->arena, name, strlen(name));
    if (!copy) {
        return err_no_memory(o->err, strlen(name));
    }
    *w = (weight_ref){.name = copy,
                      .type = type,
                      .n_row = want.n_row,
                      .n_col = want.n_col,
                      .file = 1,
                      .offset = t->offset,
                      .bytes = t->bytes};
    o->n_bound++;
    return SMOE_OK;
}

static int bind_layer(opener *o, int32_t layer) {
    const spec *s = &o->s->spec;
    char name[64];
    for (role r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT; r++) {
        if (role_is_wanted(s, layer, r)) {
            snprintf(name, sizeof name, "layers.%d.%s.weight", layer, role_name(r));
            int rc = bind_tensor(o, &o->s->layer[layer][r], name, role_shape_of(s, layer, r));
            if (rc != SMOE_OK) {
                return rc;
            }
        }
    }
    return SMOE_OK;
}

static int bind_scout(opener *o) {
    const spec *s = &o->s->spec;
    char name[64];
    if (o->scout.n_item != o->content.n_scout_tensor) {
        return err_set(o->err, SMOE_ERR_FORMAT, "%s has %d tensors, its vault says %d",
                       o->scout_path, o->scout.n_item, o->content.n_scout_tensor);
    }
    for (role r = 0; r < ROLE_FIRST_OF_LAYER; r++) {
        if (role_is_wanted(s, 0, r)) {
            snprintf(name, sizeof name, "%s.weight", role_name(r));
            int rc = bind_tensor(o, &o->s->global[r], name, role_shape_of(s, 0, r));
            if (rc != SMOE_OK) {
                return rc;
            }
        }
    }
    for (int32_t i = 0; i < s->n_layer; i++) {
        int rc = bind_layer(o, i);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    if (o->n_bound != o->scout.n_item) {
        return err_set(o->err, SMOE_ERR_FORMAT,
                       "%s has %d tensors, the spec of the vault asks for %d", o->scout_path,
                       o->scout.n_item, o->n_bound);
    }
    return SMOE_OK;
}

/* ---- */

static int open_all(opener *o, const char *path) {
    source *s = o->s;
    int32_t index;
    s->kind = CONTAINER_VAULT;
    s->path = mem_copy_text(path, strlen(path));
    if (!s->path) {
        return err_no_memory(o->err, strlen(path));
    }
    int rc = file_set_add(&s->files, path, &index, o->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    rc = vault_read(&o->content, &s->files.file[0], &o->scratch, o->err);
    rc = rc == SMOE_OK ? take_text(o) : rc;
    rc = rc == SMOE_OK ? take_spec(o) : rc;
    rc = rc == SMOE_OK ? take_experts(o) : rc;
    rc = rc == SMOE_OK ? add_scout_file(o) : rc;
    rc = rc == SMOE_OK ? read_scout_head(o) : rc;
    rc = rc == SMOE_OK ? bind_scout(o) : rc;
    s->weights_checksum = o->content.scout.checksum;
    return rc;
}

/* Megabytes that are read once are not worth a copy: the prepared tokenizer stays in the header,
 * which the texts take over. */
static void keep_header(opener *o) {
    const vault_text *prepared = &o->content.text[VAULT_PREPARED_TOKENIZER];
    if (prepared->data) {
        text_assets *a = &o->s->text;
        memcpy(&a->prepared.data, &prepared->data, sizeof prepared->data); /* drops const */
        a->prepared.bytes = prepared->bytes;
        a->backing = o->scratch;
        o->scratch = (arena){0};
    }
}

int source_open_vault(source **out, const char *path, smoe_error *err) {
    *out = NULL;
    opener o = {.err = err};
    o.s = mem_array(1, sizeof *o.s);
    if (!o.s) {
        return err_no_memory(err, sizeof *o.s);
    }
    int rc = open_all(&o, path);
    if (rc == SMOE_OK) {
        keep_header(&o);
    }
    json_object_put(o.metadata);
    tensor_table_free(&o.scout);
    arena_free(&o.scratch);
    if (rc != SMOE_OK) {
        source_close(o.s);
        return rc;
    }
    *out = o.s;
    return SMOE_OK;
}
