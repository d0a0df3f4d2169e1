/* The plan of a sculpting job; see sculpt_plan.h. */
#include "sculptor/sculpt_plan.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/file.h"
#include "formats/safetensors.h"
#include "model/bind.h"
#include "sculptor/rows.h"
#include "text/tokenizer.h"

/* Bump when a change makes other bytes from the same checkpoint and options, so that no partial
 * vault is finished by code that would have written it differently. */
#define SCULPTOR_REVISION "sculptor 1"

enum { SCOUT_META_FIXED = 2, SCOUT_META_TEXT_BYTES = 48 };

bool scout_role_is_matrix(role r) {
    switch (r) {
    case ROLE_EMBED:
    case ROLE_HEAD:
    case ROLE_ATTN_Q:
    case ROLE_ATTN_K:
    case ROLE_ATTN_V:
    case ROLE_ATTN_O:
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_FFN_DOWN:
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
    case ROLE_SHARED_DOWN:
        return true;
    default:
        return false;
    }
}

static bool is_block_type(dtype t) {
    return dtype_get(t)->block_elems > 1;
}

/* ---- scout */

typedef struct scout_list {
    sculpt_plan *p;
    smoe_error *err;
    int32_t width; /* only tensors whose elements have this many bytes are taken */
} scout_list;

static dtype target_of(const sculpt_plan *p, role r, const weight_ref *w) {
    return p->scout_type != DT_NONE && scout_role_is_matrix(r) ? p->scout_type : w->type;
}

static int32_t element_width(dtype to) {
    return is_block_type(to) ? 1 : dtype_get(to)->block_bytes;
}

static int note_source(sculpt_plan *p, dtype type, dtype to, int32_t n_col, const char *what,
                       smoe_error *err) {
    uint64_t from_bytes = dtype_row_bytes(type, (uint64_t)n_col);
    uint64_t to_bytes = dtype_row_bytes(to, (uint64_t)n_col);
    uint64_t row_bytes = from_bytes > to_bytes ? from_bytes : to_bytes;
    if (!dtype_get(type)->is_weight) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: %s has type %s, which no weight has",
                       p->source->path, what, dtype_get(type)->name);
    }
    p->max_col = n_col > p->max_col ? n_col : p->max_col;
    p->max_row_bytes = row_bytes > p->max_row_bytes ? row_bytes : p->max_row_bytes;
    return SMOE_OK;
}

/* layer -1: a global role. */
static int add_scout_tensor(scout_list *l, int32_t layer, role r, const weight_ref *w) {
    sculpt_plan *p = l->p;
    char name[64];
    if (!w->name || element_width(target_of(p, r, w)) != l->width) {
        return SMOE_OK;
    }
    int rc = note_source(p, w->type, target_of(p, r, w), w->n_col, w->name, l->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (layer < 0) {
        snprintf(name, sizeof name, "%s.weight", role_name(r));
    } else {
        snprintf(name, sizeof name, "layers.%d.%s.weight", layer, role_name(r));
    }
    dtype to = target_of(p, r, w);
    tensor *t = &p->scout[p->n_scout];
    *t = (tensor){.name = arena_text(&p->arena, name, strlen(name))};
    if (!t->name) {
        return err_no_memory(l->err, sizeof name);
    }
    for (int i = 0; i < LIMIT_TENSOR_RANK; i++) {
        t->shape[i] = 1;
    }
    t->type = is_block_type(to) ? DT_U8 : to;
    t->rank = role_shape_of(&p->source->spec, layer < 0 ? 0 : layer, r).rank;
    t->shape[0] = w->n_row;
    t->shape[t->rank - 1] =
        is_block_type(to) ? (int64_t)dtype_row_bytes(to, (uint64_t)w->n_col) : w->n_col;
    p->origin[p->n_scout] = w;
    p->scout_to[p->n_scout++] = to;
    p->source_bytes += w->bytes;
    return SMOE_OK;
}

static int list_scout(sculpt_plan *p, smoe_error *err) {
    const source *s = p->source;
    size_t most = ROLE_FIRST_OF_LAYER + (size_t)s->spec.n_layer * ROLE_COUNT;
    p->scout = arena_get(&p->arena, most, sizeof *p->scout);
    p->origin = arena_get(&p->arena, most, sizeof *p->origin);
    p->scout_to = arena_get(&p->arena, most, sizeof *p->scout_to);
    if (!p->scout || !p->origin || !p->scout_to) {
        return err_no_memory(err, most * sizeof *p->scout);
    }
    /* Widest elements first: then each tensor is aligned to its elements. */
    for (int32_t width = 4; width >= 1; width /= 2) {
        scout_list l = {.p = p, .err = err, .width = width};
        int rc = SMOE_OK;
        for (role r = 0; r < ROLE_FIRST_OF_LAYER && rc == SMOE_OK; r++) {
            rc = add_scout_tensor(&l, -1, r, &s->global[r]);
        }
        for (int32_t i = 0; i < s->spec.n_layer && rc == SMOE_OK; i++) {
            for (role r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT && rc == SMOE_OK; r++) {
                rc = add_scout_tensor(&l, i, r, &s->layer[i][r]);
            }
        }
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    return SMOE_OK;
}

static int make_scout_head(sculpt_plan *p, smoe_error *err) {
    size_t n = SCOUT_META_FIXED + (size_t)p->n_scout;
    safetensors_meta *meta = arena_get(&p->arena, n, sizeof *meta);
    char(*text)[SCOUT_META_TEXT_BYTES] = arena_get(&p->arena, n, sizeof *text);
    if (!meta || !text) {
        return err_no_memory(err, n * sizeof *text);
    }
    int32_t n_meta = 0;
    meta[n_meta++] = (safetensors_meta){"format", "smoe.scout"};
    meta[n_meta++] = (safetensors_meta){"version", "1"};
    for (int32_t i = 0; i < p->n_scout; i++) {
        if (is_block_type(p->scout_to[i])) {
            snprintf(text[i], sizeof *text, "%s %d %d", dtype_get(p->scout_to[i])->name,
                     p->origin[i]->n_row, p->origin[i]->n_col);
            meta[n_meta++] = (safetensors_meta){p->scout[i].name, text[i]};
        }
    }
    int rc = safetensors_head(p->scout, p->n_scout, meta, n_meta, &p->scout_head,
                              &p->scout_head_bytes, err);
    if (rc == SMOE_OK) {
        p->scout_bytes = p->scout_head_bytes;
        for (int32_t i = 0; i < p->n_scout; i++) {
            p->scout_bytes += p->scout[i].bytes;
        }
    }
    return rc;
}

/* ---- experts */

/* All records of a layer have one layout. */
static int mixed_layer(const sculpt_plan *p, const char *what, smoe_error *err) {
    return err_set(err, SMOE_ERR_UNSUPPORTED,
                   "%s: %s is of another type than the layer's first; name a type with --quant",
                   p->source->path, what);
}

static int plan_layer(sculpt_plan *p, int32_t moe_index, smoe_error *err) {
    const source *s = p->source;
    int32_t layer = spec_moe_layer(&s->spec, moe_index);
    vault_layer *l = &p->content.layer[moe_index];
    char what[64];
    *l = (vault_layer){.layer = layer, .n_expert = s->spec.layer[layer].ffn.n_expert};
    for (int k = 0; k < PART_COUNT; k++) {
        role_shape shape = expert_part_shape(&s->spec, layer, (enum expert_part_kind)k);
        dtype stored = source_expert(s, moe_index, 0)->part[k].type;
        l->part[k] = (vault_part){.type = p->expert_type != DT_NONE ? p->expert_type : stored,
                                  .n_row = shape.n_row,
                                  .n_col = shape.n_col};
    }
    vault_layer_place(l);
    uint64_t padded = round_up(l->record_bytes, VAULT_RECORD_ALIGN);
    p->max_record_bytes = padded > p->max_record_bytes ? padded : p->max_record_bytes;
    p->content.n_record += l->n_expert;
    for (int32_t e = 0; e < l->n_expert; e++) {
        const expert_ref *ref = source_expert(s, moe_index, e);
        snprintf(what, sizeof what, "layer %d, expert %d", layer, e);
        for (int k = 0; k < PART_COUNT; k++) {
            int rc = p->expert_type == DT_NONE && ref->part[k].type != l->part[k].type
                         ? mixed_layer(p, what, err)
                         : note_source(p, ref->part[k].type, l->part[k].type, ref->part[k].n_col,
                                       what, err);
            if (rc != SMOE_OK) {
                return rc;
            }
        }
        p->source_bytes += expert_bytes(ref);
    }
    return SMOE_OK;
}

static int plan_experts(sculpt_plan *p, smoe_error *err) {
    vault_content *c = &p->content;
    c->n_layer = p->source->n_moe_layer;
    if (c->n_layer == 0) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s has no experts to put into a vault",
                       p->source->path);
    }
    c->layer = arena_get(&p->arena, (size_t)c->n_layer, sizeof *c->layer);
    if (!c->layer) {
        return err_no_memory(err, (uint64_t)c->n_layer * sizeof *c->layer);
    }
    for (int32_t i = 0; i < c->n_layer; i++) {
        int rc = plan_layer(p, i, err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    c->record = arena_get(&p->arena, (size_t)c->n_record, sizeof *c->record);
    c->scout_tensor = arena_get(&p->arena, (size_t)p->n_scout, sizeof *c->scout_tensor);
    c->n_scout_tensor = p->n_scout;
    return c->record && c->scout_tensor ? SMOE_OK : err_no_memory(err, (uint64_t)c->n_record * 24);
}

/* ---- the header's texts, and the job's identity */

static vault_text text_of(const text_blob *b) {
    return (vault_text){.data = b->data, .bytes = b->data ? b->bytes : 0};
}

/* The tokenizer in its prepared form. One that this version does not support is kept as it came, so
 * that only those who need it are told. */
static int plan_tokenizer(sculpt_plan *p, smoe_error *err) {
    const text_assets *a = &p->source->text;
    vault_text *text = p->content.text;
    bool is_raw_kept = a->tokenizer_json.data || a->gguf.data;
    smoe_error why;
    if (a->prepared.data) {
        text[VAULT_PREPARED_TOKENIZER] = text_of(&a->prepared);
        return SMOE_OK;
    }
    if (!is_raw_kept && !a->tokenizer_model.data && !a->tiktoken.data) {
        return SMOE_OK;
    }
    int rc = tokenizer_prepare(&p->tokenizer, a, &why);
    if (rc == SMOE_OK) {
        text[VAULT_PREPARED_TOKENIZER] = text_of(&p->tokenizer);
        return SMOE_OK;
    }
    if (rc == SMOE_ERR_MEMORY || !is_raw_kept) {
        return err_set(err, rc, "%s", why.text);
    }
    text[VAULT_TOKENIZER] = text_of(&a->tokenizer_json);
    text[VAULT_GGUF_TOKENIZER] = text_of(&a->gguf);
    return SMOE_OK;
}

static int plan_texts(sculpt_plan *p, smoe_error *err) {
    const text_assets *a = &p->source->text;
    vault_text *text = p->content.text;
    struct json_object *json = NULL;
    int rc = spec_to_json(&p->source->spec, &json, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    const char *plain = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
    size_t bytes = plain ? strlen(plain) : 0;
    char *copy = plain ? arena_text(&p->arena, plain, bytes) : NULL;
    json_object_put(json);
    if (!copy) {
        return err_no_memory(err, bytes);
    }
    text[VAULT_SPEC] = (vault_text){.data = copy, .bytes = bytes};
    text[VAULT_TOKENIZER_CONFIG] = text_of(&a->tokenizer_config);
    text[VAULT_CHAT_TEMPLATE] = text_of(&a->chat_template);
    text[VAULT_GENERATION] = text_of(&a->generation);
    return plan_tokenizer(p, err);
}

/* A file's identity for resuming: where it is, its size and when it was last written. */
static int hash_file(XXH3_state_t *h, const model_file *f, smoe_error *err) {
    struct stat st;
    if (fstat(f->fd, &st) != 0) {
        return err_set(err, SMOE_ERR_IO, "cannot look at %s", f->path);
    }
    char *real = realpath(f->path, NULL);
    const char *path = real ? real : f->path;
    int64_t facts[3] = {(int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec,
                        (int64_t)st.st_mtim.tv_nsec};
    XXH3_128bits_update(h, path, strlen(path) + 1);
    XXH3_128bits_update(h, facts, sizeof facts);
    free(real);
    return SMOE_OK;
}

/* The header without checksums holds spec, texts, types, sizes and the format version. */
static int hash_job(sculpt_plan *p, XXH3_state_t *h, uint8_t *header, smoe_error *err) {
    const file_set *files = &p->source->files;
    vault_encode(&p->content, header);
    XXH3_128bits_reset(h);
    XXH3_128bits_update(h, SCULPTOR_REVISION " " SMOE_VERSION,
                        sizeof SCULPTOR_REVISION " " SMOE_VERSION);
    XXH3_128bits_update(h, header, (size_t)p->content.header_bytes);
    XXH3_128bits_update(h, p->scout_head, p->scout_head_bytes);
    for (int32_t i = 0; i < files->n_file; i++) {
        int rc = hash_file(h, &files->file[i], err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    XXH128_hash_t id = XXH3_128bits_digest(h);
    p->id[0] = id.low64;
    p->id[1] = id.high64;
    return SMOE_OK;
}

static int identify(sculpt_plan *p, smoe_error *err) {
    uint8_t *header = malloc((size_t)p->content.header_bytes);
    XXH3_state_t *h = XXH3_createState();
    int rc =
        header && h ? hash_job(p, h, header, err) : err_no_memory(err, p->content.header_bytes);
    XXH3_freeState(h);
    free(header);
    return rc;
}

int sculpt_plan_make(sculpt_plan *p, const source *s, dtype expert_type, dtype scout_type,
                     smoe_error *err) {
    *p = (sculpt_plan){.source = s, .expert_type = expert_type, .scout_type = scout_type};
    int rc = list_scout(p, err);
    rc = rc == SMOE_OK ? make_scout_head(p, err) : rc;
    rc = rc == SMOE_OK ? plan_experts(p, err) : rc;
    rc = rc == SMOE_OK ? plan_texts(p, err) : rc;
    rc = rc == SMOE_OK ? vault_place(&p->content, err) : rc;
    rc = rc == SMOE_OK ? identify(p, err) : rc;
    p->n_unit = p->n_scout + p->content.n_record;
    return rc;
}

void sculpt_plan_free(sculpt_plan *p) {
    free(p->scout_head);
    free(p->tokenizer.data);
    arena_free(&p->arena);
    *p = (sculpt_plan){0};
}

const expert_ref *sculpt_unit_expert(const sculpt_plan *p, int64_t unit, int32_t *layer,
                                     int32_t *expert) {
    int64_t record = unit - p->n_scout;
    int32_t i = 0;
    while (record >= p->content.layer[i].first_record + p->content.layer[i].n_expert) {
        i++;
    }
    *layer = p->content.layer[i].layer;
    *expert = (int32_t)(record - p->content.layer[i].first_record);
    return source_expert(p->source, i, *expert);
}

uint64_t sculpt_unit_source_bytes(const sculpt_plan *p, int64_t unit) {
    int32_t layer;
    int32_t expert;
    return unit < p->n_scout ? p->origin[unit]->bytes
                             : expert_bytes(sculpt_unit_expert(p, unit, &layer, &expert));
}
