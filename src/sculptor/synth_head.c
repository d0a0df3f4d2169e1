/* The head of a synthetic GGUF file: keys as llama.cpp's converters write them, a tokenizer of the
 * right size, the directory of tensors. See synth.h. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "formats/gguf.h"
#include "sculptor/synth.h"

typedef struct writer {
    const synth_plan *p;
    byte_buf *out;
    smoe_error *err;
    int rc;
    uint32_t n_key;
} writer;

/* ---- values */

static void put(writer *w, const void *data, size_t bytes) {
    w->rc = w->rc ? w->rc : buf_append(w->out, data, bytes, w->err);
}

static void put_number(writer *w, uint64_t v, size_t bytes) {
    uint8_t le[8];
    for (size_t i = 0; i < bytes; i++) {
        le[i] = (uint8_t)(v >> 8 * i);
    }
    put(w, le, bytes);
}

static void put_text(writer *w, const char *text) {
    put_number(w, strlen(text), 8);
    put(w, text, strlen(text));
}

/* name stands behind the architecture's when it begins with a dot. */
static void put_key(writer *w, const char *name, gguf_type type) {
    char key[128];
    snprintf(key, sizeof key, "%s%s", *name == '.' ? w->p->shape.arch : "", name);
    put_text(w, key);
    put_number(w, type, 4);
    w->n_key++;
}

static void put_u32(writer *w, const char *name, int32_t v) {
    put_key(w, name, GGUF_U32);
    put_number(w, (uint32_t)v, 4);
}

static void put_f32(writer *w, const char *name, double v) {
    float f = (float)v;
    put_key(w, name, GGUF_F32);
    put(w, &f, sizeof f);
}

static void put_bool(writer *w, const char *name, bool v) {
    put_key(w, name, GGUF_BOOL);
    put_number(w, v, 1);
}

static void put_string(writer *w, const char *name, const char *text) {
    put_key(w, name, GGUF_TEXT);
    put_text(w, text);
}

static void put_array(writer *w, const char *name, gguf_type type, int32_t n) {
    put_key(w, name, GGUF_ARRAY);
    put_number(w, type, 4);
    put_number(w, (uint64_t)n, 8);
}

/* ---- keys */

/* general.file_type: llama.cpp's numbers for files that are mostly of a type (llama_ftype). */
static int32_t file_type(dtype type) {
    static const struct {
        dtype type;
        int32_t number;
    } known[] = {{DT_F16, 1},   {DT_Q4_0, 2},    {DT_Q8_0, 7},    {DT_Q5_0, 8},  {DT_Q5_1, 9},
                 {DT_Q2_K, 10}, {DT_Q3_K, 11},   {DT_Q4_K, 14},   {DT_Q5_K, 16}, {DT_Q6_K, 18},
                 {DT_BF16, 32}, {DT_IQ4_NL, 25}, {DT_IQ4_XS, 30}, {DT_MXFP4, 38}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].type == type) {
            return known[i].number;
        }
    }
    return 0;
}

static void put_general(writer *w) {
    char name[160];
    const synth_plan *p = w->p;
    snprintf(name, sizeof name, "Synthetic %s (%s routing, seed %llu)", p->shape.name,
             p->skew > 0 ? "skewed" : "uniform", (unsigned long long)p->seed);
    put_string(w, "general.architecture", p->shape.arch);
    put_string(w, "general.type", "model");
    put_string(w, "general.name", name);
    put_string(w, "general.description",
               "Random weights of a published model's shape, for benchmarks");
    put_u32(w, "general.alignment", SYNTH_ALIGNMENT);
    put_u32(w, "general.file_type", file_type(p->type));
    put_u32(w, "general.quantization_version", 2);
}

static void put_shape(writer *w) {
    const synth_shape *s = &w->p->shape;
    put_u32(w, ".block_count", s->n_layer);
    put_u32(w, ".context_length", s->context_tok);
    put_u32(w, ".embedding_length", s->d_model);
    put_u32(w, ".feed_forward_length", s->dense_width);
    put_u32(w, ".vocab_size", s->vocab_size);
    put_u32(w, ".attention.head_count", s->n_head);
    put_u32(w, ".attention.head_count_kv", s->n_kv_head);
    put_u32(w, ".attention.key_length", s->head_dim);
    put_u32(w, ".attention.value_length", s->head_dim);
    put_f32(w, ".attention.layer_norm_rms_epsilon", s->norm_eps);
    put_u32(w, ".rope.dimension_count", s->head_dim);
    put_f32(w, ".rope.freq_base", s->rope_theta);
    put_u32(w, ".expert_count", s->n_expert);
    put_u32(w, ".expert_used_count", s->n_expert_used);
    put_u32(w, ".expert_feed_forward_length", s->expert_width);
    put_bool(w, ".expert_weights_norm", s->normalise);
    if (s->n_shared > 0) {
        put_u32(w, ".expert_shared_feed_forward_length", s->shared_width);
        put_u32(w, ".expert_shared_count", s->n_shared);
    }
    if (strcmp(s->arch, "deepseek") == 0) {
        put_u32(w, ".leading_dense_block_count", s->n_dense);
        put_f32(w, ".expert_weights_scale", 1);
    }
}

static void put_oss(writer *w) {
    const synth_shape *s = &w->p->shape;
    put_u32(w, ".attention.sliding_window", s->window_tok);
    put_string(w, ".rope.scaling.type", "yarn");
    put_f32(w, ".rope.scaling.factor", s->yarn_factor);
    put_u32(w, ".rope.scaling.original_context_length", s->yarn_context_tok);
}

/* ---- tokenizer: one token a byte, control tokens, a space before each small letter, and words
 * that no text leads to, which fill the vocabulary */

enum { FIRST_MERGED = SYNTH_FIRST_CONTROL + SYNTH_CONTROLS, LETTERS = 26 };

static const char *const controls[SYNTH_CONTROLS] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* GPT-2's alphabet: printable Latin-1 stands for itself, other bytes for U+0100 and on. */
static void byte_text(char out[4], int32_t byte) {
    uint32_t cp = 0x100;
    for (int32_t b = 0; b <= byte; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        if (b == byte) {
            cp = printable ? (uint32_t)b : cp;
        } else {
            cp += !printable;
        }
    }
    if (cp < 0x80) {
        snprintf(out, 4, "%c", (int)cp);
    } else {
        snprintf(out, 4, "%c%c", (int)(0xc0 | cp >> 6), (int)(0x80 | (cp & 0x3f)));
    }
}

static void put_tokens(writer *w, int32_t n) {
    char space[4], text[32];
    byte_text(space, ' ');
    put_array(w, "tokenizer.ggml.tokens", GGUF_TEXT, n);
    for (int32_t i = 0; i < n; i++) {
        if (i < SYNTH_FIRST_CONTROL) {
            byte_text(text, i);
        } else if (i < FIRST_MERGED) {
            snprintf(text, sizeof text, "%s", controls[i - SYNTH_FIRST_CONTROL]);
        } else if (i < FIRST_MERGED + LETTERS) {
            snprintf(text, sizeof text, "%s%c", space, 'a' + i - FIRST_MERGED);
        } else {
            snprintf(text, sizeof text, "%sw%d", space, i);
        }
        put_text(w, text);
    }
}

static void put_tokenizer(writer *w) {
    enum { NORMAL = 1, CONTROL = 3 };
    int32_t n = w->p->shape.vocab_size;
    char space[4], text[32];
    byte_text(space, ' ');
    put_string(w, "tokenizer.ggml.model", "gpt2");
    put_string(w, "tokenizer.ggml.pre", "qwen2");
    put_tokens(w, n);
    put_array(w, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (int32_t i = 0; i < n; i++) {
        bool control = i >= SYNTH_FIRST_CONTROL && i < FIRST_MERGED;
        put_number(w, control ? CONTROL : NORMAL, 4);
    }
    put_array(w, "tokenizer.ggml.merges", GGUF_TEXT, LETTERS);
    for (int32_t i = 0; i < LETTERS; i++) {
        snprintf(text, sizeof text, "%s %c", space, 'a' + i);
        put_text(w, text);
    }
    put_u32(w, "tokenizer.ggml.bos_token_id", SYNTH_FIRST_CONTROL);
    put_u32(w, "tokenizer.ggml.padding_token_id", SYNTH_FIRST_CONTROL);
    put_u32(w, "tokenizer.ggml.eos_token_id", SYNTH_FIRST_CONTROL + 2);
    put_bool(w, "tokenizer.ggml.add_bos_token", false);
    put_string(w, "tokenizer.chat_template", chatml);
}

/* ---- the head */

static void put_directory(writer *w) {
    for (int32_t i = 0; i < w->p->n_tensor; i++) {
        const synth_tensor *t = &w->p->tensor[i];
        put_text(w, t->name);
        put_number(w, (uint64_t)t->rank, 4);
        put_number(w, (uint64_t)t->n_col, 8);
        if (t->rank > 1) {
            put_number(w, (uint64_t)t->n_row, 8);
        }
        if (t->rank > 2) {
            put_number(w, (uint64_t)t->n_slice, 8);
        }
        put_number(w, (uint64_t)dtype_to_ggml(t->fill.type), 4);
        put_number(w, t->offset, 8);
    }
}

int synth_head(synth_plan *p, smoe_error *err) {
    enum { KEY_COUNT_AT = 16 };
    static const char zeros[SYNTH_ALIGNMENT];
    p->head.max_bytes = LIMIT_GGUF_HEADER_BYTES;
    writer w = {.p = p, .out = &p->head, .err = err};
    put(&w, "GGUF", GGUF_MAGIC_BYTES);
    put_number(&w, GGUF_VERSION, 4);
    put_number(&w, (uint64_t)p->n_tensor, 8);
    put_number(&w, 0, 8);
    put_general(&w);
    put_shape(&w);
    if (p->shape.is_oss) {
        put_oss(&w);
    }
    put_tokenizer(&w);
    put_directory(&w);
    put(&w, zeros, (size_t)(round_up(p->head.bytes, SYNTH_ALIGNMENT) - p->head.bytes));
    for (size_t i = 0; w.rc == SMOE_OK && i < 4; i++) {
        p->head.data[KEY_COUNT_AT + i] = (char)(w.n_key >> 8 * i);
    }
    return w.rc;
}
