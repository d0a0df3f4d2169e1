/* Writes the small checkpoint; see tiny_checkpoint.h. */
#include "tiny_checkpoint.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/half.h"
#include "formats/safetensors.h"
#include "test.h"

enum { MAX_TENSORS = 4096, HEADS = 2, KV_HEADS = 1, HEAD_DIM = 16 };

typedef struct builder {
    tiny_checkpoint c;
    tensor item[MAX_TENSORS];
    char name[MAX_TENSORS][96];
    int32_t n;
} builder;

static void add(builder *b, const char *layer_name, int32_t layer, int32_t rows, int32_t cols) {
    char *name = b->name[b->n];
    if (layer < 0) {
        snprintf(name, sizeof b->name[0], "%s", layer_name);
    } else {
        snprintf(name, sizeof b->name[0], "model.layers.%d.%s.weight", layer, layer_name);
    }
    tensor *t = &b->item[b->n++];
    *t = (tensor){.name = name, .type = b->c.type, .rank = rows ? 2 : 1};
    for (int i = 0; i < LIMIT_TENSOR_RANK; i++) {
        t->shape[i] = 1;
    }
    t->shape[0] = rows ? rows : cols;
    t->shape[t->rank - 1] = cols;
}

static void list_tensors(builder *b) {
    int32_t d = b->c.d_model;
    add(b, "model.embed_tokens.weight", -1, b->c.vocab_size, d);
    add(b, "model.norm.weight", -1, 0, d);
    add(b, "lm_head.weight", -1, b->c.vocab_size, d);
    for (int32_t i = 0; i < b->c.n_layer; i++) {
        add(b, "input_layernorm", i, 0, d);
        add(b, "self_attn.q_proj", i, HEADS * HEAD_DIM, d);
        add(b, "self_attn.k_proj", i, KV_HEADS * HEAD_DIM, d);
        add(b, "self_attn.v_proj", i, KV_HEADS * HEAD_DIM, d);
        add(b, "self_attn.o_proj", i, d, HEADS * HEAD_DIM);
        add(b, "self_attn.q_norm", i, 0, HEAD_DIM);
        add(b, "self_attn.k_norm", i, 0, HEAD_DIM);
        add(b, "post_attention_layernorm", i, 0, d);
        add(b, "mlp.gate", i, b->c.n_expert, d);
        for (int32_t e = 0; e < b->c.n_expert; e++) {
            char name[48];
            snprintf(name, sizeof name, "mlp.experts.%d.gate_proj", e);
            add(b, name, i, b->c.width, d);
            snprintf(name, sizeof name, "mlp.experts.%d.up_proj", e);
            add(b, name, i, b->c.width, d);
            snprintf(name, sizeof name, "mlp.experts.%d.down_proj", e);
            add(b, name, i, d, b->c.width);
        }
    }
}

static void write_values(const builder *b, const tensor *t, FILE *f) {
    uint64_t n = t->bytes / dtype_get(t->type)->block_bytes;
    bool bad = b->c.bad_tensor && strcmp(b->c.bad_tensor, t->name) == 0;
    for (uint64_t i = 0; i < n; i++) {
        float v = bad && i == (uint64_t)t->shape[t->rank - 1] + 1 ? NAN : test_normal() * 0.05f;
        uint16_t h = t->type == DT_F16 ? f32_to_f16(v) : f32_to_bf16(v);
        size_t put = t->type == DT_F32 ? fwrite(&v, sizeof v, 1, f) : fwrite(&h, sizeof h, 1, f);
        CHECK(put == 1);
    }
}

static void write_weights(builder *b, const char *path) {
    char *head = NULL;
    size_t head_bytes = 0;
    smoe_error err;
    CHECK_OK(safetensors_head(b->item, b->n, NULL, 0, &head, &head_bytes, &err));
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(head, 1, head_bytes, f) == head_bytes);
    free(head);
    const tensor *last = &b->item[b->n - 1];
    if (b->c.sparse) {
        CHECK(fflush(f) == 0 && ftruncate(fileno(f), (off_t)(last->offset + last->bytes)) == 0);
    } else {
        for (int32_t i = 0; i < b->n; i++) {
            write_values(b, &b->item[i], f);
        }
    }
    CHECK(fclose(f) == 0);
}

static void write_config(const builder *b, const char *path) {
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": "
                     "\"qwen3_moe\", \"hidden_size\": %d, \"vocab_size\": %d, "
                     "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
                     "\"num_key_value_heads\": %d, \"head_dim\": %d, \"num_experts\": %d, "
                     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": %d, "
                     "\"intermediate_size\": 64, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, "
                     "\"rope_theta\": 10000.0, \"max_position_embeddings\": 128, "
                     "\"norm_topk_prob\": true, \"tie_word_embeddings\": false, "
                     "\"eos_token_id\": 1}",
                     b->c.d_model, b->c.vocab_size, b->c.n_layer, HEADS, KV_HEADS, HEAD_DIM,
                     b->c.n_expert, b->c.width);
    test_write_file(path, text, (size_t)n);
}

const char *tiny_checkpoint_make(const char *name, const tiny_checkpoint *shape) {
    builder *b = calloc(1, sizeof *b);
    char path[1200];
    CHECK(b);
    b->c = *shape;
    b->c.type = shape->type ? shape->type : DT_BF16;
    b->c.vocab_size = shape->vocab_size ? shape->vocab_size : 96;
    b->c.d_model = shape->d_model ? shape->d_model : 64;
    b->c.width = shape->width ? shape->width : 32;
    b->c.n_layer = shape->n_layer ? shape->n_layer : 2;
    b->c.n_expert = shape->n_expert ? shape->n_expert : 4;
    const char *dir = test_path(name);
    CHECK(mkdir(dir, 0777) == 0);
    list_tensors(b);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_config(b, path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_weights(b, path);
    free(b);
    return dir;
}

bool same_file(const char *a, const char *b) {
    size_t n[2];
    char *data[2] = {test_read_file(a, &n[0]), test_read_file(b, &n[1])};
    bool same = n[0] == n[1] && memcmp(data[0], data[1], n[0]) == 0;
    free(data[0]);
    free(data[1]);
    return same;
}
