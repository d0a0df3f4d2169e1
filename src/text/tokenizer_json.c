/* Reads tokenizer.json into a smoe_tokenizer: strict, and everything that is not implemented
 * exactly is refused by its name. Recursion over nested Sequences is bounded by the JSON depth
 * limit.
 *
 * "truncation" and "padding" are passed over, as are special tokens that a post-processor would
 * add: both are choices of one call in the reference library's users, not of the vocabulary.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

enum { PATH_BYTES = 256 };

/* The pattern of ByteLevel with use_regex, which is that of GPT-2. */
static const char byte_level_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct reader {
    smoe_tokenizer *t;
    const char *label;
    smoe_error *err;
    uint32_t n_model;  /* tokens of the model */
    int32_t max_added; /* largest id of an added token so far, -1 at first */
} reader;

static int unsupported(const reader *r, const char *what, const char *name) {
    return err_set(r->err, SMOE_ERR_UNSUPPORTED, "%s: %s %s is not supported", r->label, what,
                   name);
}

static int need_bool(const json_at *at, const char *key, bool *out, smoe_error *err) {
    if (!json_find(at->object, key)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s is missing", at->label, at->parent, key);
    }
    return json_opt_bool(at, key, out, err);
}

/* Calls fn for each object in the array at->key, with its path as the parent of its fields. */
typedef int (*each_fn)(reader *r, const json_at *at);
static int for_each(reader *r, const json_at *at, const char *key, each_fn fn) {
    struct json_object *list = NULL;
    int rc = json_opt_array(at, key, &list, r->err);
    if (rc == SMOE_OK && !list) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: %s%s is missing", at->label, at->parent, key);
    }
    size_t n = rc == SMOE_OK ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n && rc == SMOE_OK; i++) {
        char path[PATH_BYTES];
        json_at item = {json_object_array_get_idx(list, i), at->label, path};
        /* a path too long to print is cut; it only serves messages */
        int used = snprintf(path, sizeof path, "%s%s[%zu].", at->parent, key, i);
        if (!json_object_is_type(item.object, json_type_object)) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: %s%s[%zu] must be an object", at->label,
                           at->parent, key, i);
        }
        if (used < 0 || (size_t)used >= sizeof path) {
            item.parent = "...";
        }
        rc = fn(r, &item);
    }
    return rc;
}

/* ---- normalizer */

static int add_normalizer(reader *r, normalize_step step) {
    if (r->t->n_normalizer == TOKENIZER_NORMALIZERS) {
        return unsupported(r, "a normalizer of more steps than", "16");
    }
    r->t->normalizers[r->t->n_normalizer++] = step;
    return SMOE_OK;
}

/* The {"String": ...} or {"Regex": ...} under key "pattern". */
static int read_pattern(reader *r, const json_at *at, const char **text, size_t *bytes,
                        bool *is_regex) {
    struct json_object *object = NULL;
    char path[PATH_BYTES];
    int rc = json_need_object(at, "pattern", &object, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    snprintf(path, sizeof path, "%.200spattern.", at->parent);
    json_at inner = {object, at->label, path};
    *is_regex = json_find(object, "Regex") != NULL;
    rc = json_need_text(&inner, *is_regex ? "Regex" : "String", text, bytes, r->err);
    if (rc == SMOE_OK && json_object_object_length(object) != 1) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: %spattern must have one member", at->label,
                       at->parent);
    }
    if (rc == SMOE_OK && *bytes == 0) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: %spattern is empty", at->label, at->parent);
    }
    return rc;
}

static int read_replace(reader *r, const json_at *at) {
    normalize_step step = {.kind = NORMALIZE_REPLACE};
    bool is_regex = false;
    const char *from;
    const char *to;
    int rc = read_pattern(r, at, &from, &step.from_bytes, &is_regex);
    rc = rc ? rc : json_need_text(at, "content", &to, &step.to_bytes, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (is_regex) {
        return unsupported(r, "normalizer Replace with", "a Regex");
    }
    step.from = arena_text(&r->t->text, from, step.from_bytes);
    step.to = arena_text(&r->t->text, to, step.to_bytes);
    return step.from && step.to ? add_normalizer(r, step) : err_no_memory(r->err, step.to_bytes);
}

static int read_normalizer(reader *r, const json_at *at) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (unsigned i = 0; i < 4; i++) {
        if (strcmp(type, forms[i]) == 0) {
            return add_normalizer(r, (normalize_step){.kind = NORMALIZE_NFC + i});
        }
    }
    if (strcmp(type, "Replace") == 0) {
        return read_replace(r, at);
    }
    return strcmp(type, "Sequence") == 0 ? for_each(r, at, "normalizers", read_normalizer)
                                         : unsupported(r, "normalizer", type);
}

/* ---- pre_tokenizer */

static int new_step(reader *r, pretok_step **step) {
    pretok *p = &r->t->pretok;
    if (p->n_step == PRETOK_STEPS) {
        return unsupported(r, "a pre-tokenizer of more steps than", "32");
    }
    *step = &p->steps[p->n_step++];
    return SMOE_OK;
}

static int read_behavior(reader *r, const json_at *at, enum pretok_behavior *out) {
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const char *name = NULL;
    int rc = json_need_text(at, "behavior", &name, NULL, r->err);
    for (unsigned i = 0; i < 5 && rc == SMOE_OK; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = PRETOK_ISOLATED + i;
            return SMOE_OK;
        }
    }
    return rc ? rc : unsupported(r, "Split behavior", name);
}

static int read_split(reader *r, const json_at *at) {
    pretok_step *step = NULL;
    const char *text = NULL;
    char where[PATH_BYTES * 2];
    bool is_regex = false;
    size_t bytes = 0;
    int rc = new_step(r, &step);
    rc = rc ? rc : read_pattern(r, at, &text, &bytes, &is_regex);
    rc = rc ? rc : read_behavior(r, at, &step->behavior);
    rc = rc ? rc : json_opt_bool(at, "invert", &step->invert, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (is_regex) {
        snprintf(where, sizeof where, "%.250s: %.200spattern", at->label, at->parent);
        step->kind = PRETOK_PATTERN;
        return pattern_compile(&step->pattern, text, bytes, where, r->err);
    }
    step->kind = PRETOK_LITERAL;
    step->literal = arena_text(&r->t->text, text, bytes);
    step->literal_bytes = bytes;
    return step->literal ? SMOE_OK : err_no_memory(r->err, bytes);
}

static int read_digits(reader *r, const json_at *at) {
    pretok_step *step = NULL;
    bool individual = false;
    int rc = new_step(r, &step);
    rc = rc ? rc : need_bool(at, "individual_digits", &individual, r->err);
    if (rc == SMOE_OK) {
        step->kind = PRETOK_DIGITS;
        step->behavior = individual ? PRETOK_ISOLATED : PRETOK_CONTIGUOUS;
    }
    return rc;
}

static int read_byte_level(reader *r, const json_at *at) {
    pretok *p = &r->t->pretok;
    pretok_step *step = NULL;
    bool use_regex = true;
    int rc = need_bool(at, "add_prefix_space", &p->add_prefix_space, r->err);
    rc = rc ? rc : json_opt_bool(at, "use_regex", &use_regex, r->err);
    p->n_before_prefix = p->n_step;
    p->is_complete = true;
    if (rc != SMOE_OK || !use_regex) {
        return rc;
    }
    rc = new_step(r, &step);
    return rc ? rc
              : pattern_compile(&step->pattern, byte_level_pattern, sizeof byte_level_pattern - 1,
                                r->label, r->err);
}

static int read_pre_tokenizer(reader *r, const json_at *at) {
    const char *type = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (r->t->pretok.is_complete) {
        return unsupported(r, "a pre-tokenizer behind ByteLevel:", type);
    }
    if (strcmp(type, "Sequence") == 0) {
        return for_each(r, at, "pretokenizers", read_pre_tokenizer);
    }
    if (strcmp(type, "Split") == 0) {
        return read_split(r, at);
    }
    if (strcmp(type, "Digits") == 0) {
        return read_digits(r, at);
    }
    return strcmp(type, "ByteLevel") == 0 ? read_byte_level(r, at)
                                          : unsupported(r, "pre-tokenizer", type);
}

/* ---- post_processor and decoder */

static int read_post_processor(reader *r, const json_at *at) {
    const char *type = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK || strcmp(type, "ByteLevel") == 0 ||
        strcmp(type, "TemplateProcessing") == 0) {
        return rc;
    }
    return strcmp(type, "Sequence") == 0 ? for_each(r, at, "processors", read_post_processor)
                                         : unsupported(r, "post-processor", type);
}

static int read_decoder(reader *r, const json_at *at) {
    const char *type = NULL;
    struct json_object *list = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK || strcmp(type, "ByteLevel") == 0) {
        return rc;
    }
    if (strcmp(type, "Sequence") != 0) {
        return unsupported(r, "decoder", type);
    }
    rc = json_opt_array(at, "decoders", &list, r->err);
    if (rc == SMOE_OK && (!list || json_object_array_length(list) != 1)) {
        return unsupported(r, "a decoder Sequence of other than", "one ByteLevel");
    }
    return rc ? rc : for_each(r, at, "decoders", read_decoder);
}

/* ---- model */

static int check_model_options(reader *r, const json_at *at) {
    static const char *const texts[] = {"unk_token", "continuing_subword_prefix",
                                        "end_of_word_suffix"};
    const char *type = "BPE"; /* files of the first releases do not name it */
    bool byte_fallback = false;
    double dropout = 0;
    int rc = json_opt_text(at, "type", &type, NULL, r->err);
    if (rc == SMOE_OK && strcmp(type, "BPE") != 0) {
        return unsupported(r, "model type", type);
    }
    for (unsigned i = 0; i < 3 && rc == SMOE_OK; i++) {
        const char *text = "";
        size_t bytes = 0;
        rc = json_opt_text(at, texts[i], &text, &bytes, r->err);
        if (rc == SMOE_OK && bytes > 0) {
            return unsupported(r, "model with", texts[i]);
        }
    }
    rc = rc ? rc : json_opt_bool(at, "byte_fallback", &byte_fallback, r->err);
    rc = rc ? rc : json_opt_number(at, "dropout", 0, 1, &dropout, r->err);
    rc = rc ? rc : json_opt_bool(at, "ignore_merges", &r->t->bpe.ignore_merges, r->err);
    if (rc == SMOE_OK && (byte_fallback || dropout > 0)) {
        return unsupported(r, "model with", byte_fallback ? "byte_fallback" : "dropout");
    }
    return rc;
}

static int read_vocab_id(reader *r, const char *content, struct json_object *value, int64_t *id) {
    char what[PATH_BYTES];
    *id = json_object_get_int64(value);
    if (json_object_is_type(value, json_type_int) && *id >= 0 && *id < LIMIT_VOCAB) {
        return SMOE_OK; /* naming it for an error is slow a hundred thousand times */
    }
    snprintf(what, sizeof what, "model.vocab: id of \"%.100s\"", content);
    return json_value_int(value, r->label, what, 0, LIMIT_VOCAB - 1, id, r->err);
}

/* Largest id of the vocab and the added tokens; checks every one. */
static int find_max_id(reader *r, struct json_object *entries, struct json_object *added,
                       int64_t *max_id) {
    struct json_object_iterator it = json_object_iter_begin(entries);
    struct json_object_iterator end = json_object_iter_end(entries);
    int64_t id = 0;
    int rc = SMOE_OK;
    *max_id = 0;
    for (; rc == SMOE_OK && !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        rc = read_vocab_id(r, json_object_iter_peek_name(&it), json_object_iter_peek_value(&it),
                           &id);
        *max_id = id > *max_id ? id : *max_id;
    }
    for (size_t i = 0; added && i < json_object_array_length(added) && rc == SMOE_OK; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "added_tokens[%zu].", i);
        json_at at = {json_object_array_get_idx(added, i), r->label, path};
        if (!json_object_is_type(at.object, json_type_object)) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: added_tokens[%zu] must be an object",
                           r->label, i);
        }
        rc = json_need_int(&at, "id", 0, LIMIT_VOCAB - 1, &id, r->err);
        *max_id = id > *max_id ? id : *max_id;
    }
    return rc;
}

static int read_vocab(reader *r, struct json_object *entries, struct json_object *added) {
    vocab *v = &r->t->vocab;
    int64_t max_id = 0;
    uint32_t n = (uint32_t)json_object_object_length(entries);
    uint32_t n_added = added ? (uint32_t)json_object_array_length(added) : 0;
    if (n == 0) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.vocab has no tokens", r->label);
    }
    int rc = find_max_id(r, entries, added, &max_id);
    if (rc == SMOE_OK && max_id >= 2 * ((int64_t)n + n_added) + 1024) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: id %lld is out of range for %u tokens",
                       r->label, (long long)max_id, n + n_added);
    }
    rc = rc ? rc : vocab_init(v, (uint32_t)max_id + 1, n, r->err);
    struct json_object_iterator it = json_object_iter_begin(entries);
    struct json_object_iterator end = json_object_iter_end(entries);
    for (; rc == SMOE_OK && !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *content = json_object_iter_peek_name(&it);
        uint32_t id = (uint32_t)json_object_get_int64(json_object_iter_peek_value(&it));
        if (v->tokens[id].is_present) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.vocab: two tokens have id %u",
                           r->label, id);
        }
        rc = vocab_add(v, id, content, strlen(content), true, r->err);
    }
    return rc;
}

typedef struct merge_parts {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} merge_parts;

static bool split_merge(struct json_object *pair, merge_parts *out) {
    struct json_object *left = json_object_array_get_idx(pair, 0);
    struct json_object *right = json_object_array_get_idx(pair, 1);
    if (json_object_array_length(pair) != 2 || !json_object_is_type(left, json_type_string) ||
        !json_object_is_type(right, json_type_string)) {
        return false;
    }
    out->left = json_object_get_string(left);
    out->left_bytes = (size_t)json_object_get_string_len(left);
    out->right = json_object_get_string(right);
    out->right_bytes = (size_t)json_object_get_string_len(right);
    return true;
}

/* The older form, "left right". */
static bool split_merge_text(struct json_object *line, merge_parts *out) {
    const char *text = json_object_get_string(line);
    size_t bytes = (size_t)json_object_get_string_len(line);
    const char *space = memchr(text, ' ', bytes);
    if (!space || memchr(space + 1, ' ', bytes - (size_t)(space + 1 - text))) {
        return false;
    }
    out->left = text;
    out->left_bytes = (size_t)(space - text);
    out->right = space + 1;
    out->right_bytes = bytes - out->left_bytes - 1;
    return true;
}

static int add_merge(reader *r, const merge_parts *m, size_t index, uint32_t rank) {
    const vocab *v = &r->t->vocab;
    char joined[1024];
    size_t n = m->left_bytes + m->right_bytes;
    char *product = n <= sizeof joined ? joined : malloc(n);
    if (!product) {
        return err_no_memory(r->err, n);
    }
    memcpy(product, m->left, m->left_bytes);
    memcpy(product + m->left_bytes, m->right, m->right_bytes);
    int32_t left = vocab_find_content(v, m->left, m->left_bytes);
    int32_t right = vocab_find_content(v, m->right, m->right_bytes);
    int32_t id = vocab_find_content(v, product, n);
    const char *missing = left < 0 ? m->left : right < 0 ? m->right : product;
    size_t missing_bytes = left < 0 ? m->left_bytes : right < 0 ? m->right_bytes : n;
    int rc = SMOE_OK;
    if (left < 0 || right < 0 || id < 0) {
        rc = err_set(r->err, SMOE_ERR_FORMAT,
                     "%s: model.merges[%zu]: merge %s %.*s is not in the vocabulary", r->label,
                     index, left < 0 || right < 0 ? "part" : "result",
                     (int)(missing_bytes < 100 ? missing_bytes : 100), missing);
    } else {
        bpe_add_merge(&r->t->bpe, (uint32_t)left, (uint32_t)right, rank, (uint32_t)id);
    }
    if (product != joined) {
        free(product);
    }
    return rc;
}

static int read_merges(reader *r, struct json_object *list) {
    size_t n = json_object_array_length(list);
    uint32_t rank = 0;
    bool is_text =
        n > 0 && json_object_is_type(json_object_array_get_idx(list, 0), json_type_string);
    int rc = bpe_init(&r->t->bpe, n, &r->t->vocab, r->err);
    for (size_t i = 0; i < n && rc == SMOE_OK; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        merge_parts parts = {0};
        bool is_whole = json_object_is_type(item, is_text ? json_type_string : json_type_array);
        if (is_whole && is_text && strncmp(json_object_get_string(item), "#version", 8) == 0) {
            continue; /* a comment line of merges.txt, without a rank */
        }
        is_whole =
            is_whole && (is_text ? split_merge_text(item, &parts) : split_merge(item, &parts));
        if (!is_whole || parts.left_bytes == 0 || parts.right_bytes == 0) {
            return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.merges: malformed merge %zu",
                           r->label, i);
        }
        rc = add_merge(r, &parts, i, rank++);
    }
    return rc;
}

static int read_model(reader *r, const json_at *root, struct json_object *added) {
    struct json_object *model = NULL;
    struct json_object *entries = NULL;
    struct json_object *merges = NULL;
    int rc = json_need_object(root, "model", &model, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    json_at at = {model, root->label, "model."};
    rc = check_model_options(r, &at);
    rc = rc ? rc : json_need_object(&at, "vocab", &entries, r->err);
    rc = rc ? rc : json_opt_array(&at, "merges", &merges, r->err);
    if (rc == SMOE_OK && !merges) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: model.merges is missing", r->label);
    }
    rc = rc ? rc : read_vocab(r, entries, added);
    return rc ? rc : read_merges(r, merges);
}

/* ---- added_tokens */

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
    rc = rc ? rc : need_bool(at, "single_word", &a->single_word, r->err);
    rc = rc ? rc : need_bool(at, "lstrip", &a->lstrip, r->err);
    rc = rc ? rc : need_bool(at, "rstrip", &a->rstrip, r->err);
    rc = rc ? rc : need_bool(at, "normalized", &a->normalized, r->err);
    rc = rc ? rc : need_bool(at, "special", &a->special, r->err);
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
        rc = normalize_apply(&r->t->normalizers[i], in.data, in.bytes, &next, r->err);
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

static int read_added(reader *r, const json_at *root, struct json_object *list) {
    int rc = SMOE_OK;
    if (list) {
        size_t n = json_object_array_length(list);
        r->t->added = mem_array(n, sizeof *r->t->added);
        if (!r->t->added) {
            return err_no_memory(r->err, n * sizeof *r->t->added);
        }
        rc = for_each(r, root, "added_tokens", read_added_token);
    }
    rc = rc ? rc : build_matcher(r, &r->t->raw_matcher, false);
    return rc ? rc : build_matcher(r, &r->t->normalized_matcher, true);
}

/* ---- the whole */

/* fn for the object under key, if it is there. */
static int read_part(reader *r, const json_at *root, const char *key, each_fn fn) {
    struct json_object *object = NULL;
    char path[PATH_BYTES];
    int rc = json_opt_object(root, key, &object, r->err);
    if (rc != SMOE_OK || !object) {
        return rc;
    }
    snprintf(path, sizeof path, "%s.", key);
    return fn(r, &(json_at){object, root->label, path});
}

static int read_root(reader *r, const json_at *root) {
    struct json_object *added = NULL;
    const char *version = "1.0";
    int rc = json_opt_text(root, "version", &version, NULL, r->err);
    if (rc == SMOE_OK && strcmp(version, "1.0") != 0) {
        return unsupported(r, "version", version);
    }
    rc = rc ? rc : json_opt_array(root, "added_tokens", &added, r->err);
    rc = rc ? rc : read_part(r, root, "normalizer", read_normalizer);
    rc = rc ? rc : read_part(r, root, "pre_tokenizer", read_pre_tokenizer);
    if (rc == SMOE_OK && !r->t->pretok.is_complete) {
        return unsupported(r, "a pre-tokenizer without", "ByteLevel");
    }
    rc = rc ? rc : read_part(r, root, "post_processor", read_post_processor);
    rc = rc ? rc : read_part(r, root, "decoder", read_decoder);
    if (rc == SMOE_OK && !json_find(root->object, "decoder")) {
        return unsupported(r, "a tokenizer without", "a decoder");
    }
    rc = rc ? rc : read_model(r, root, added);
    if (rc == SMOE_OK) {
        struct json_object *model = json_find(root->object, "model");
        r->n_model = (uint32_t)json_object_object_length(json_find(model, "vocab"));
        r->max_added = -1;
        rc = read_added(r, root, added);
    }
    return rc;
}

int tokenizer_read_json(smoe_tokenizer *t, const text_blob *json, smoe_error *err) {
    struct json_object *root = NULL;
    reader r = {.t = t, .label = t->label, .err = err};
    if (json->bytes > LIMIT_TOKENIZER_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: more than %u bytes", t->label,
                       LIMIT_TOKENIZER_BYTES);
    }
    int rc = json_parse(&root, json->data, json->bytes, t->label, 0, err);
    if (rc == SMOE_OK && !json_object_is_type(root, json_type_object)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: must be an object", t->label);
    }
    rc = rc ? rc : read_root(&r, &(json_at){root, t->label, ""});
    json_object_put(root);
    return rc;
}
