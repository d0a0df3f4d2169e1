/* Reads added_tokens of a settings document and builds the matchers; see tokenizer_read.h. */
#include <stdlib.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "text/tokenizer_read.h"
#include "text/unicode.h"

static bool is_plain_text(const char *content, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        uint32_t cp = 0;
        i += utf8_decode((const uint8_t *)content + i, bytes - i, &cp);
        if (!ucd_is_space(cp) && !ucd_is_word(cp)) {
            return false;
        }
    }
    return true;
}

/* The id that the reference library gives: the model's, or the next free one. Where the file says
 * otherwise, the library and the file disagree on every later id. */
static int check_added_id(reader *r, const added_token *a) {
    int32_t n_model = (int32_t)r->n_model;
    if (r->source) {
        return SMOE_OK; /* other files give the ids themselves */
    }
    int32_t expected = vocab_find_content(&r->t->vocab, a->content, a->bytes);
    if (expected < 0) {
        expected = r->max_added >= n_model ? r->max_added + 1 : n_model;
    }
    if (a->id == expected) {
        return SMOE_OK;
    }
    return err_set(r->err, SMOE_ERR_UNSUPPORTED,
                   "%s: added token %.100s has id %d where the vocabulary makes it %d", r->label,
                   a->content, a->id, expected);
}

static int read_added_fields(reader *r, const json_at *at, added_token *a) {
    const char *content = NULL;
    size_t bytes = 0;
    int64_t id = 0;
    int rc = json_need_int(at, "id", 0, LIMIT_VOCAB - 1, &id, r->err);
    rc = rc ? rc : json_need_text(at, "content", &content, &bytes, r->err);
    rc = rc ? rc : read_need_bool(at, "single_word", &a->single_word, r->err);
    rc = rc ? rc : read_need_bool(at, "lstrip", &a->lstrip, r->err);
    rc = rc ? rc : read_need_bool(at, "rstrip", &a->rstrip, r->err);
    rc = rc ? rc : read_need_bool(at, "normalized", &a->normalized, r->err);
    rc = rc ? rc : read_need_bool(at, "special", &a->special, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (bytes == 0 || bytes > ADDED_TOKEN_BYTES) {
        return err_set(r->err, bytes ? SMOE_ERR_UNSUPPORTED : SMOE_ERR_FORMAT,
                       bytes ? "%s: %scontent: an added token of more than 1024 bytes"
                             : "%s: %scontent: empty added token",
                       r->label, at->parent);
    }
    a->content = arena_text(&r->t->text, content, bytes);
    a->bytes = (uint32_t)bytes;
    a->id = (int32_t)id;
    a->is_control = a->special || !is_plain_text(content, bytes);
    return a->content ? SMOE_OK : err_no_memory(r->err, bytes);
}

static int read_added_token(reader *r, const json_at *at) {
    smoe_tokenizer *t = r->t;
    added_token *a = &t->added[t->n_added];
    int rc = read_added_fields(r, at, a);
    rc = rc ? rc : check_added_id(r, a);
    if (rc != SMOE_OK) {
        return rc;
    }
    vocab_token *v = &t->vocab.tokens[a->id];
    if (v->is_added) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: two added tokens have id %d", r->label, a->id);
    }
    if (!v->is_present) {
        rc = vocab_add(&t->vocab, (uint32_t)a->id, a->content, a->bytes, false, r->err);
    }
    v->is_added = true;
    v->is_special = a->special;
    r->max_added = a->id > r->max_added ? a->id : r->max_added;
    t->n_added++;
    return rc;
}

/* What a token is looked for by: its content, normalised when it says so. */
static int search_text(reader *r, const added_token *a, added_pattern *out) {
    byte_buf in = {.max_bytes = 1u << 20};
    int rc = buf_append(&in, a->content, a->bytes, r->err);
    for (size_t i = 0; a->normalized && i < r->t->n_normalizer && rc == SMOE_OK; i++) {
        byte_buf next = {.max_bytes = in.max_bytes};
        rc = normalize_apply(&r->t->normalizers[i], in.data, in.bytes, NULL, &next, r->err);
        buf_free(&in);
        in = next;
    }
    if (rc == SMOE_OK && in.bytes == 0) {
        rc = err_set(r->err, SMOE_ERR_UNSUPPORTED, "%s: added token %d normalises to nothing",
                     r->label, a->id);
    }
    if (rc == SMOE_OK) {
        *out = (added_pattern){arena_text(&r->t->text, in.data, in.bytes), (uint32_t)in.bytes, a};
        rc = out->text ? SMOE_OK : err_no_memory(r->err, in.bytes);
    }
    buf_free(&in);
    return rc;
}

static int build_matcher(reader *r, added_matcher *m, bool normalized) {
    smoe_tokenizer *t = r->t;
    size_t n = 0;
    int rc = SMOE_OK;
    added_pattern *patterns = mem_array(t->n_added, sizeof *patterns);
    if (!patterns) {
        return err_no_memory(r->err, t->n_added * sizeof *patterns);
    }
    for (size_t i = 0; i < t->n_added && rc == SMOE_OK; i++) {
        if (t->added[i].normalized == normalized) {
            rc = search_text(r, &t->added[i], &patterns[n]);
            n++;
        }
    }
    if (rc != SMOE_OK) {
        free(patterns);
        return rc;
    }
    return added_matcher_build(m, patterns, n, r->err);
}

int read_added(reader *r, const json_at *root, struct json_object *list) {
    int rc = SMOE_OK;
    if (list) {
        size_t n = json_object_array_length(list);
        r->t->added = mem_array(n, sizeof *r->t->added);
        if (!r->t->added) {
            return err_no_memory(r->err, n * sizeof *r->t->added);
        }
        rc = read_each(r, root, "added_tokens", read_added_token);
    }
    rc = rc ? rc : build_matcher(r, &r->t->raw_matcher, false);
    return rc ? rc : build_matcher(r, &r->t->normalized_matcher, true);
}
