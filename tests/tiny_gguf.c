/* Writes the small GGUF model; see tiny_gguf.h. */
#include "tiny_gguf.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mem.h"
#include "formats/half.h"
#include "formats/safetensors.h"
#include "sculptor/quantise.h"
#include "test.h"

enum { MAX_TENSORS = 512, NAME_BYTES = 96, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8 };

/* One tensor: as GGUF names it, rows of values, and the checkpoint's names and rows that they are
 * of. Slices (experts) are stacked behind each other. */
typedef struct item {
    char name[NAME_BYTES];
    char origin[2][NAME_BYTES];    /* of the first and the second half of a slice's rows */
    int32_t n_slice, n_row, n_col; /* n_row of a slice; 0: a vector */
    bool is_fused, is_permuted, is_qkv;
    dtype type;
    int32_t factors_of; /* item that these are the factors of; 0: none */
    bool has_factors;
    uint64_t offset;
} item;

typedef struct builder {
    tiny_gguf c;
    item item[MAX_TENSORS];
    int32_t n;
} builder;

static int32_t or_else(int32_t v, int32_t other) {
    return v ? v : other;
}

/* ---- the list */

static item *add(builder *b, const char *name, const char *origin, int32_t n_row, int32_t n_col,
                 dtype type) {
    item *t = &b->item[b->n++];
    CHECK(b->n <= MAX_TENSORS);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->origin[0], sizeof t->origin[0], "%s", origin);
    t->n_slice = 1;
    t->n_row = n_row;
    t->n_col = n_col;
    t->type = type;
    return t;
}

static item *add_layer(builder *b, int32_t layer, const char *name, const char *origin,
                       int32_t n_row, int32_t n_col, dtype type) {
    char full[NAME_BYTES], from[NAME_BYTES];
    snprintf(full, sizeof full, "blk.%d.%.40s.weight", layer, name);
    snprintf(from, sizeof from, "model.layers.%d.%.60s.weight", layer, origin);
    return add(b, full, from, n_row, n_col, type);
}

/* One expert's matrix in a tensor of its own, or the stack of all. */
static void add_part(builder *b, int32_t layer, int32_t expert, int part) {
    static const char *const names[] = {"gate", "up", "down"};
    char name[48], origin[NAME_BYTES];
    bool down = part == 2;
    dtype type = b->c.expert[layer % 2][part];
    if (expert < 0) {
        snprintf(name, sizeof name, "ffn_%s_exps", names[part]);
        snprintf(origin, sizeof origin, "mlp.experts.{}.%s_proj", names[part]);
    } else {
        snprintf(name, sizeof name, "ffn_%s.%d", names[part], expert);
        snprintf(origin, sizeof origin, "mlp.experts.%d.%s_proj", expert, names[part]);
    }
    item *t = add_layer(b, layer, name, origin, down ? b->c.d_model : b->c.width,
                        down ? b->c.width : b->c.d_model, type ? type : DT_F32);
    t->n_slice = expert < 0 ? b->c.n_expert : 1;
}

static void add_experts(builder *b, int32_t layer) {
    if (b->c.form == TINY_SINGLE) {
        for (int32_t x = 0; x < b->c.n_expert; x++) {
            for (int part = 0; part < 3; part++) {
                add_part(b, layer, x, part);
            }
        }
        return;
    }
    add_part(b, layer, -1, 0);
    if (b->c.form == TINY_FUSED) {
        item *t = &b->item[b->n - 1];
        snprintf(t->name, sizeof t->name, "blk.%d.ffn_gate_up_exps.weight", layer);
        snprintf(t->origin[1], sizeof t->origin[1], "model.layers.%d.mlp.experts.{}.up_proj.weight",
                 layer);
        t->n_row *= 2;
        t->is_fused = true;
    } else {
        add_part(b, layer, -1, 1);
    }
    add_part(b, layer, -1, 2);
}

static void add_ffn(builder *b, int32_t layer) {
    int32_t d = b->c.d_model, w = b->c.width * 2, shared = b->c.width * b->c.n_shared;
    dtype type = b->c.dense;
    add_layer(b, layer, "ffn_norm", "post_attention_layernorm", 0, d, DT_F32);
    if (layer < b->c.n_dense) {
        add_layer(b, layer, "ffn_gate", "mlp.gate_proj", w, d, type);
        add_layer(b, layer, "ffn_up", "mlp.up_proj", w, d, type);
        add_layer(b, layer, "ffn_down", "mlp.down_proj", d, w, type);
        return;
    }
    add_layer(b, layer, "ffn_gate_inp", "mlp.gate", b->c.n_expert, d, DT_F32);
    if (shared) {
        add_layer(b, layer, "ffn_gate_shexp", "mlp.shared_experts.gate_proj", shared, d, type);
        add_layer(b, layer, "ffn_up_shexp", "mlp.shared_experts.up_proj", shared, d, type);
        add_layer(b, layer, "ffn_down_shexp", "mlp.shared_experts.down_proj", d, shared, type);
    }
    add_experts(b, layer);
}

/* Rows of q, k and v; one tensor when they are fused. */
static void add_attention(builder *b, int32_t layer) {
    int32_t d = b->c.d_model;
    dtype type = b->c.dense;
    if (b->c.fused_qkv) {
        add_layer(b, layer, "attn_qkv", "self_attn.q_proj", (HEADS + 2 * KV_HEADS) * HEAD_DIM, d,
                  type)
            ->is_qkv = true;
        return;
    }
    add_layer(b, layer, "attn_q", "self_attn.q_proj", HEADS * HEAD_DIM, d, type)->is_permuted =
        true;
    add_layer(b, layer, "attn_k", "self_attn.k_proj", KV_HEADS * HEAD_DIM, d, type)->is_permuted =
        true;
    add_layer(b, layer, "attn_v", "self_attn.v_proj", KV_HEADS * HEAD_DIM, d, type);
}

/* Of matrices that are products: not the embedding (item 0), not the router. */
static void add_factors(builder *b, int32_t of) {
    char name[NAME_BYTES];
    item *t = &b->item[of];
    if (t->n_row == 0 || strstr(t->name, "ffn_gate_inp")) {
        return;
    }
    snprintf(name, sizeof name, "%.*s.scale", (int)(strlen(t->name) - strlen(".weight")), t->name);
    t->has_factors = true;
    add(b, name, "", 0, t->n_slice, DT_F32)->factors_of = of;
    /* for low-precision activations, which nobody has to use */
    snprintf(name, sizeof name, "%.*s.input_scale", (int)(strlen(t->name) - strlen(".weight")),
             t->name);
    add(b, name, "", 0, 1, DT_F32)->factors_of = of;
}

/* Of slice s of item i. */
static float factor_of(int32_t i, int32_t s) {
    return ldexpf(1, (i + 2 * s) % 7 - 3);
}

static void list_tensors(builder *b) {
    int32_t d = b->c.d_model;
    dtype type = b->c.dense;
    add(b, "token_embd.weight", "model.embed_tokens.weight", TINY_VOCAB, d, type);
    add(b, "output_norm.weight", "model.norm.weight", 0, d, DT_F32);
    add(b, "output.weight", "lm_head.weight", TINY_VOCAB, d, type);
    if (b->c.divisors && b->c.form != TINY_SINGLE) {
        add(b, "rope_freqs.weight", "", 0, HEAD_DIM / 2, DT_F32);
    }
    for (int32_t i = 0; i < b->c.n_layer; i++) {
        add_layer(b, i, "attn_norm", "input_layernorm", 0, d, DT_F32);
        add_attention(b, i);
        add_layer(b, i, "attn_output", "self_attn.o_proj", d, HEADS * HEAD_DIM, type);
        add_ffn(b, i);
    }
    for (int32_t i = 1, n = b->n; b->c.factors && i < n; i++) {
        add_factors(b, i);
    }
    for (int32_t i = 0; b->c.bad_tensor && i < b->n; i++) {
        if (strcmp(b->item[i].name, b->c.bad_tensor) == 0) {
            snprintf(b->item[i].name, NAME_BYTES, "blk.0.nosuch.weight");
        }
    }
}

static builder *new_builder(const tiny_gguf *shape) {
    builder *b = calloc(1, sizeof *b);
    CHECK(b);
    b->c = *shape;
    b->c.dense = shape->dense ? shape->dense : DT_F32;
    b->c.d_model = or_else(shape->d_model, 32);
    b->c.width = or_else(shape->width, 32);
    b->c.n_layer = or_else(shape->n_layer, 3);
    b->c.n_expert = or_else(shape->n_expert, 4);
    b->c.alignment = or_else(shape->alignment, 32);
    list_tensors(b);
    return b;
}

/* ---- values */

/* Row of the checkpoint's tensor that origin names; vectors are row 0. */
static void make_row(const char *origin, int32_t row, int32_t n_col, bool is_norm, float *out) {
    uint64_t seed = XXH3_64bits(origin, strlen(origin)) + (uint64_t)row * 0x9e3779b97f4a7c15u;
    for (int32_t c = 0; c < n_col; c++) {
        uint64_t bits = XXH3_64bits_withSeed(&c, sizeof c, seed);
        float v = (float)(int32_t)(bits >> 32) * 0x1p-31f;
        out[c] = is_norm ? 1 + 0.25f * v : 0.25f * v;
    }
}

/* Row r of a tensor whose rows were put in neighbouring pairs: within a head, row i of the first
 * half goes to 2i, of the second half to 2i + 1. */
static int32_t unpermuted(int32_t r) {
    int32_t head = r / HEAD_DIM, at = r % HEAD_DIM;
    return head * HEAD_DIM + at / 2 + at % 2 * (HEAD_DIM / 2);
}

/* Row of the fused q, k and v: puts the name of the one that it is of into origin. */
static int32_t qkv_row(char *origin, int32_t row) {
    char *letter = strstr(origin, "q_proj");
    int32_t keys = HEADS * HEAD_DIM, values = keys + KV_HEADS * HEAD_DIM;
    *letter = row < keys ? 'q' : row < values ? 'k' : 'v';
    return row < keys ? unpermuted(row) : row < values ? unpermuted(row - keys) : row - values;
}

static void item_row(const item *t, int32_t slice, int32_t row, float *out) {
    char origin[NAME_BYTES + 16];
    bool second = t->is_fused && row >= t->n_row / 2;
    const char *pattern = t->origin[second], *mark = strstr(pattern, "{}");
    row = second ? row - t->n_row / 2 : t->is_permuted ? unpermuted(row) : row;
    if (mark) {
        snprintf(origin, sizeof origin, "%.*s%d%s", (int)(mark - pattern), pattern, slice,
                 mark + 2);
    } else {
        snprintf(origin, sizeof origin, "%s", pattern);
    }
    if (t->is_qkv) {
        row = qkv_row(origin, row);
    }
    make_row(origin, row, t->n_col, t->n_row == 0, out);
}

static void write_q4_0(const float *x, uint8_t *out) {
    float most = 0;
    for (int i = 0; i < 32; i++) {
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    }
    float d = most / -8;
    uint16_t h = f32_to_f16(d);
    memcpy(out, &h, 2);
    memset(out + 2, 0, 16);
    for (int i = 0; i < 32; i++) {
        int q = d != 0 ? (int)lrintf(x[i] / d) + 8 : 8;
        q = q < 0 ? 0 : q > 15 ? 15 : q;
        out[2 + i % 16] |= (uint8_t)(q << (i < 16 ? 0 : 4));
    }
}

/* Any bytes will do for K types, but for their scales. */
static void write_k(dtype type, const float *x, uint8_t *out) {
    size_t n = dtype_get(type)->block_bytes;
    uint16_t d = f32_to_f16(0.002f), least = f32_to_f16(0.001f);
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)XXH3_64bits_withSeed(x, 256 * sizeof *x, i);
    }
    if (type == DT_Q4_K) {
        memcpy(out, &d, 2);
        memcpy(out + 2, &least, 2);
    } else {
        d = f32_to_f16(0.0001f);
        memcpy(out + n - 2, &d, 2);
    }
}

static void convert(dtype type, const float *x, int32_t n, uint8_t *out) {
    const dtype_info *info = dtype_get(type);
    if (type == DT_F32 || type == DT_F16 || type == DT_Q8_0) {
        CHECK(quantise_row(type == DT_Q8_0 ? DT_Q8 : type, x, n, out));
        return;
    }
    CHECK(type == DT_Q4_0 || type == DT_Q4_K || type == DT_Q6_K);
    for (int32_t i = 0; i < n; i += info->block_elems, out += info->block_bytes) {
        if (type == DT_Q4_0) {
            write_q4_0(x + i, out);
        } else {
            write_k(type, x + i, out);
        }
    }
}

/* ---- GGUF */

static void put(FILE *f, const void *data, size_t n) {
    CHECK(fwrite(data, 1, n, f) == n);
}

static void put_u32(FILE *f, uint32_t v) {
    put(f, &v, sizeof v);
}

static void put_u64(FILE *f, uint64_t v) {
    put(f, &v, sizeof v);
}

static void put_text(FILE *f, const char *text) {
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}

static void put_int(FILE *f, const char *key, int32_t v) {
    put_text(f, key);
    put_u32(f, 4);
    put_u32(f, (uint32_t)v);
}

static void put_keys(FILE *f, const tiny_gguf *c) {
    float eps = 1e-6f;
    put_text(f, "general.architecture");
    put_u32(f, 8);
    put_text(f, "deepseek");
    put_int(f, "general.alignment", c->alignment);
    put_int(f, "deepseek.block_count", c->n_layer);
    put_int(f, "deepseek.context_length", 256);
    put_int(f, "deepseek.embedding_length", c->d_model);
    put_int(f, "deepseek.feed_forward_length", 2 * c->width);
    put_int(f, "deepseek.attention.head_count", HEADS);
    put_int(f, "deepseek.attention.head_count_kv", KV_HEADS);
    put_int(f, "deepseek.attention.key_length", HEAD_DIM);
    put_int(f, "deepseek.attention.value_length", HEAD_DIM);
    put_int(f, "deepseek.expert_count", c->n_expert);
    put_int(f, "deepseek.expert_used_count", 2);
    put_int(f, "deepseek.expert_shared_count", c->n_shared);
    put_int(f, "deepseek.expert_feed_forward_length", c->width);
    put_int(f, "deepseek.leading_dense_block_count", c->n_dense);
    put_text(f, "deepseek.attention.layer_norm_rms_epsilon");
    put_u32(f, 6);
    put(f, &eps, sizeof eps);
    put_text(f, "tokenizer.ggml.model");
    put_u32(f, 8);
    put_text(f, "no_vocab");
}

enum { KEYS = 17 };

static uint64_t item_bytes(const item *t) {
    uint64_t rows = (uint64_t)t->n_slice * (uint64_t)(t->n_row ? t->n_row : 1);
    return rows * dtype_row_bytes(t->type, (uint64_t)t->n_col);
}

static void put_directory(FILE *f, builder *b) {
    uint64_t at = 0;
    for (int32_t i = 0; i < b->n; i++) {
        item *t = &b->item[i];
        uint32_t n_dim = t->n_slice > 1 ? 3 : t->n_row ? 2 : 1;
        uint64_t dims[3] = {(uint64_t)t->n_col, (uint64_t)t->n_row, (uint64_t)t->n_slice};
        put_text(f, t->name);
        put_u32(f, n_dim);
        put(f, dims, n_dim * sizeof *dims);
        put_u32(f, (uint32_t)dtype_to_ggml(t->type));
        put_u64(f, at);
        t->offset = at;
        at = round_up(at + item_bytes(t), (uint64_t)b->c.alignment);
    }
}

static void pad(FILE *f, int32_t alignment) {
    while (ftell(f) % alignment != 0) {
        put(f, "\xa5", 1);
    }
}

static void put_data(FILE *f, const builder *b, const item *t) {
    for (int32_t s = 0; t->factors_of && s < t->n_col; s++) {
        float factor = factor_of(t->factors_of, s);
        put(f, &factor, sizeof factor);
    }
    if (t->factors_of) {
        return;
    }
    if (t->origin[0][0] == '\0') {
        put(f, b->c.divisors, (size_t)t->n_col * sizeof *b->c.divisors);
        return;
    }
    float *x = malloc((size_t)t->n_col * sizeof *x);
    uint64_t row_bytes = dtype_row_bytes(t->type, (uint64_t)t->n_col);
    uint8_t *row = malloc((size_t)row_bytes);
    for (int32_t s = 0; s < t->n_slice; s++) {
        for (int32_t r = 0; r < (t->n_row ? t->n_row : 1); r++) {
            item_row(t, s, r, x);
            for (int32_t c = 0; t->has_factors && c < t->n_col; c++) {
                x[c] /= factor_of((int32_t)(t - b->item), s);
            }
            convert(t->type, x, t->n_col, row);
            put(f, row, (size_t)row_bytes);
        }
    }
    free(row);
    free(x);
}

const char *tiny_gguf_make(const char *name, const tiny_gguf *shape) {
    builder *b = new_builder(shape);
    const char *path = test_path(name);
    FILE *f = fopen(path, "wb");
    CHECK(f);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, (uint64_t)b->n);
    put_u64(f, KEYS);
    put_keys(f, &b->c);
    put_directory(f, b);
    pad(f, b->c.alignment);
    const item *last = &b->item[b->n - 1];
    off_t end = ftell(f) + (off_t)(last->offset + item_bytes(last));
    for (int32_t i = 0; !shape->sparse && i < b->n; i++) {
        pad(f, b->c.alignment);
        put_data(f, b, &b->item[i]);
    }
    CHECK(fflush(f) == 0 && ftruncate(fileno(f), end) == 0);
    CHECK(fclose(f) == 0);
    free(b);
    return path;
}

/* ---- folder */

static void write_config(const tiny_gguf *c, const char *path) {
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "{\"model_type\": \"deepseek\", \"hidden_size\": %d, \"vocab_size\": %d, "
                     "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
                     "\"num_key_value_heads\": %d, \"head_dim\": %d, \"n_routed_experts\": %d, "
                     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": %d, "
                     "\"intermediate_size\": %d, \"n_shared_experts\": %d, "
                     "\"first_k_dense_replace\": %d, \"rms_norm_eps\": 1e-6, "
                     "\"max_position_embeddings\": 256, \"rope_scaling\": %s}",
                     c->d_model, TINY_VOCAB, c->n_layer, HEADS, KV_HEADS, HEAD_DIM, c->n_expert,
                     c->width, 2 * c->width, c->n_shared, c->n_dense, c->rope ? c->rope : "null");
    test_write_file(path, text, (size_t)n);
}

static void write_weights(const builder *b, const char *path) {
    smoe_error err;
    char *head = NULL;
    size_t head_bytes = 0;
    float x[1024];
    tensor *list = calloc((size_t)b->n, sizeof *list);
    CHECK(list);
    for (int32_t i = 0; i < b->n; i++) {
        const item *t = &b->item[i];
        list[i] = (tensor){.name = t->origin[0], .type = DT_F32, .rank = t->n_row ? 2 : 1};
        list[i].shape[0] = t->n_row;
        list[i].shape[list[i].rank - 1] = t->n_col;
    }
    CHECK_OK(safetensors_head(list, b->n, NULL, 0, &head, &head_bytes, &err));
    FILE *f = fopen(path, "wb");
    CHECK(f);
    put(f, head, head_bytes);
    for (int32_t i = 0; i < b->n; i++) {
        const item *t = &b->item[i];
        for (int32_t r = 0; r < (t->n_row ? t->n_row : 1); r++) {
            make_row(t->origin[0], r, t->n_col, t->n_row == 0, x);
            put(f, x, (size_t)t->n_col * sizeof *x);
        }
    }
    CHECK(fclose(f) == 0);
    free(head);
    free(list);
}

const char *tiny_gguf_make_folder(const char *name, const tiny_gguf *shape) {
    char path[1200];
    tiny_gguf single = *shape;
    single.form = TINY_SINGLE; /* whose tensors are the checkpoint's, but for their names */
    builder *b = new_builder(&single);
    const char *dir = test_path(name);
    CHECK(mkdir(dir, 0777) == 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_config(&b->c, path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_weights(b, path);
    free(b);
    return dir;
}
