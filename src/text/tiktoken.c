/* tiktoken files: a line for each token, its bytes in base64 and its rank, which is its id.
 *
 * Such a tokenizer merges two neighbours whenever their bytes together are a token, the lowest rank
 * first. A token can only come to be in one way: by the merges that its own bytes would go through.
 * So one merge for each token gives the same result.
 *
 * The file says neither pattern nor special tokens. Those are in tokenizer_config.json
 * (added_tokens_decoder); the pattern is known by tokenizer_class, or given there as pat_str.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "text/base64.h"
#include "text/config_tokens.h"
#include "text/gguf_pre.h"
#include "text/tokenizer_read.h"

enum { TOKEN_BYTES = 1024, KIMI_RESERVED = 256 };

/* ---- the file */

/* Tokens by rank; bytes are one behind the other. */
typedef struct ranks {
    byte_buf text;
    uint32_t *end; /* [cap]: of each token in text */
    uint32_t n;
    uint32_t cap;
} ranks;

static void free_ranks(ranks *k) {
    buf_free(&k->text);
    free(k->end);
}

static int add_token(ranks *k, const uint8_t *bytes, size_t n, smoe_error *err) {
    if (k->n == k->cap) {
        uint32_t cap = k->cap ? k->cap * 2 : 4096;
        uint32_t *end = realloc(k->end, cap * sizeof *end);
        if (!end) {
            return err_no_memory(err, cap * sizeof *end);
        }
        k->end = end;
        k->cap = cap;
    }
    int rc = buf_append(&k->text, bytes, n, err);
    k->end[k->n++] = (uint32_t)k->text.bytes;
    return rc;
}

static int bad_line(const smoe_tokenizer *t, uint32_t line, const char *why, smoe_error *err) {
    return err_set(err, SMOE_ERR_FORMAT, "%s: line %u %s", t->label, line + 1, why);
}

/* "BASE64 RANK"; ranks count up from 0. */
static int read_line(const smoe_tokenizer *t, ranks *k, const char *line, size_t n,
                     smoe_error *err) {
    uint8_t bytes[BASE64_DECODED_BYTES(2 * TOKEN_BYTES)];
    char rank[16];
    const char *space = memchr(line, ' ', n);
    size_t n_text = space ? (size_t)(space - line) : 0;
    snprintf(rank, sizeof rank, " %u", k->n);
    if (n_text == 0 || n - n_text != strlen(rank) || memcmp(space, rank, n - n_text) != 0) {
        return bad_line(t, k->n, "is not a token and the next rank", err);
    }
    if (n_text > BASE64_ENCODED_BYTES(TOKEN_BYTES) || k->n == LIMIT_VOCAB) {
        return bad_line(t, k->n, "is beyond the limits of tokens", err);
    }
    size_t n_byte = base64_decode(line, n_text, bytes);
    if (n_byte == SIZE_MAX || n_byte == 0) {
        return bad_line(t, k->n, "has a token that is not base64", err);
    }
    return add_token(k, bytes, n_byte, err);
}

static int read_ranks(const smoe_tokenizer *t, ranks *k, const text_blob *file, smoe_error *err) {
    const char *line = file->data;
    const char *end = file->data + file->bytes;
    int rc = SMOE_OK;
    k->text.max_bytes = LIMIT_TOKENIZER_BYTES;
    while (line < end && rc == SMOE_OK) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline ? newline : end;
        size_t n = (size_t)(stop - line);
        n -= n > 0 && line[n - 1] == '\r';
        rc = n ? read_line(t, k, line, n, err) : SMOE_OK;
        line = newline ? newline + 1 : end;
    }
    return rc == SMOE_OK && k->n == 0 ? err_set(err, SMOE_ERR_FORMAT, "%s has no tokens", t->label)
                                      : rc;
}

/* ---- merges */

/* Ends of the parts that a token's bytes go through; the last part's end is the token's. */
typedef struct parts {
    uint32_t end[TOKEN_BYTES];
    int32_t joined[TOKEN_BYTES]; /* id of part i with the next one, -1: none */
    size_t n;
} parts;

static int32_t join(const vocab *v, const char *text, const parts *p, size_t i) {
    uint32_t start = i ? p->end[i - 1] : 0;
    return i + 1 < p->n ? vocab_find(v, text + start, p->end[i + 1] - start, false) : -1;
}

static void merge_at(const vocab *v, const char *text, parts *p, size_t i) {
    memmove(p->end + i, p->end + i + 1, (p->n - i - 1) * sizeof *p->end);
    memmove(p->joined + i, p->joined + i + 1, (p->n - i - 1) * sizeof *p->joined);
    p->n--;
    p->joined[i] = join(v, text, p, i);
    if (i > 0) {
        p->joined[i - 1] = join(v, text, p, i - 1);
    }
}

/* Merges the bytes of a token until two parts are left. False when it never comes to that: then
 * nothing becomes this token. */
static bool split_in_two(const vocab *v, const char *text, uint32_t bytes, parts *p) {
    p->n = bytes;
    for (uint32_t i = 0; i < bytes; i++) {
        p->end[i] = i + 1;
    }
    for (uint32_t i = 0; i < bytes; i++) {
        p->joined[i] = join(v, text, p, i);
    }
    while (p->n > 2) {
        size_t best = p->n;
        for (size_t i = 0; i + 1 < p->n; i++) {
            if (p->joined[i] >= 0 && (best == p->n || p->joined[i] < p->joined[best])) {
                best = i;
            }
        }
        if (best == p->n) {
            return false;
        }
        merge_at(v, text, p, best);
    }
    return p->n == 2;
}

static int add_merges(smoe_tokenizer *t, uint32_t n, smoe_error *err) {
    const vocab *v = &t->vocab;
    parts *p = mem_array(1, sizeof *p);
    int rc = p ? bpe_init(&t->bpe, n, v, err) : err_no_memory(err, sizeof *p);
    for (uint32_t id = 0; id < n && rc == SMOE_OK; id++) {
        const char *text = vocab_text(v, id);
        if (split_in_two(v, text, v->tokens[id].bytes, p)) {
            int32_t left = vocab_find(v, text, p->end[0], false);
            int32_t right = vocab_find(v, text + p->end[0], p->end[1] - p->end[0], false);
            bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, id, id);
        }
    }
    free(p);
    return rc;
}

static int fill(const model_source *source, smoe_tokenizer *t, smoe_error *err) {
    const ranks *k = source->user;
    vocab *v = &t->vocab;
    int rc = SMOE_OK;
    for (uint32_t id = 0; id < k->n && rc == SMOE_OK; id++) {
        uint32_t start = id ? k->end[id - 1] : 0;
        const char *text = k->text.data + start;
        if (vocab_find(v, text, k->end[id] - start, false) >= 0) {
            return bad_line(t, id, "has a token that was there before", err);
        }
        rc = vocab_add_kept(v, id, text, k->end[id] - start, false, true, err);
    }
    for (unsigned b = 0; b < 256 && rc == SMOE_OK; b++) {
        char byte = (char)b;
        if (vocab_find(v, &byte, 1, false) < 0) {
            rc = err_set(err, SMOE_ERR_FORMAT, "%s: no token for byte %u", t->label, b);
        }
    }
    return rc ? rc : add_merges(t, k->n, err);
}

/* ---- settings */

typedef struct specials {
    settings *s;
    uint32_t n_base;
    bool has[KIMI_RESERVED]; /* whether id n_base + i has a token */
} specials;

static int add_special(void *user, const settings_token *token, smoe_error *err) {
    specials *p = user;
    (void)err;
    if (token->id >= p->n_base && token->id < (int64_t)p->n_base + KIMI_RESERVED) {
        p->has[token->id - p->n_base] = true;
    }
    settings_added(p->s, token);
    return SMOE_OK;
}

/* Kimi gives all of the 256 ids behind the base a token. */
static void add_reserved(specials *p) {
    for (uint32_t i = 0; i < KIMI_RESERVED; i++) {
        char name[48];
        if (!p->has[i]) {
            snprintf(name, sizeof name, "<|reserved_token_%u|>", p->n_base + i);
            settings_added(p->s, &(settings_token){.id = (int64_t)p->n_base + i,
                                                   .content = name,
                                                   .bytes = strlen(name),
                                                   .special = true});
        }
    }
}

static int write_settings(settings *s, const config_tokens *c, uint32_t n_base, smoe_error *err) {
    specials special = {.s = s, .n_base = n_base};
    const char *class = NULL;
    const char *pattern = NULL;
    int rc = config_tokens_text(c, "tokenizer_class", &class, err);
    rc = rc ? rc : config_tokens_text(c, "pat_str", &pattern, err);
    bool is_kimi = class && strcmp(class, "TikTokenTokenizer") == 0;
    if (rc == SMOE_OK && !pattern && !is_kimi) {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "%s: tokenizer_class %.60s is not supported with tiktoken.model (only "
                       "TikTokenTokenizer is)",
                       c->label, class ? class : "(none)");
    }
    rc = rc ? rc : config_tokens_each(c, add_special, &special, err);
    if (is_kimi) {
        add_reserved(&special);
    }
    settings_byte_level(s, (const char *const[]){pattern ? pattern : gguf_pre_kimi(), NULL});
    struct json_object *model = settings_type(s, s->root, "model", "BPE");
    settings_bool(s, model, "ignore_merges", true);
    return rc;
}

int tokenizer_read_tiktoken(smoe_tokenizer *t, const text_assets *assets, struct json_object **out,
                            smoe_error *err) {
    ranks k = {0};
    settings s;
    config_tokens c;
    char label[256];
    snprintf(label, sizeof label, "%.200s: tokenizer_config.json",
             assets->label ? assets->label : "model");
    int rc = config_tokens_read(&c, &assets->tokenizer_config, label, err);
    rc = rc ? rc : read_ranks(t, &k, &assets->tiktoken, err);
    if (rc == SMOE_OK) {
        settings_start(&s);
        rc = write_settings(&s, &c, k.n, err);
        *out = rc == SMOE_OK ? settings_end(&s, err) : (json_object_put(s.root), NULL);
        rc = rc || *out ? rc : SMOE_ERR_MEMORY;
    }
    model_source source = {.n_id = k.n, .fill = fill, .user = &k};
    rc = rc ? rc : tokenizer_read_settings(t, *out, &source, err);
    config_tokens_free(&c);
    free_ranks(&k);
    return rc;
}
