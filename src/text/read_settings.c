/* Reads normalizer, pre_tokenizer, decoder and post_processor of a settings document: strict, and
 * everything that is not implemented exactly is refused by its name. Recursion over nested
 * Sequences is bounded by the JSON depth limit.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/base64.h"
#include "text/tokenizer_read.h"

/* The pattern of ByteLevel with use_regex, which is that of GPT-2. */
static const char byte_level_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

int read_unsupported(const reader *r, const char *what, const char *name) {
    return err_set(r->err, SMOE_ERR_UNSUPPORTED, "%s: %s %s is not supported", r->label, what,
                   name);
}

int read_need_bool(const json_at *at, const char *key, bool *out, smoe_error *err) {
    if (!json_find(at->object, key)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: %s%s is missing", at->label, at->parent, key);
    }
    return json_opt_bool(at, key, out, err);
}

int read_each(reader *r, const json_at *at, const char *key, read_fn fn) {
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

int read_pattern(const reader *r, const json_at *at, const char **text, size_t *bytes,
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

int read_compile(const reader *r, const json_at *at, const char *text, size_t bytes,
                 text_pattern **out) {
    char where[PATH_BYTES * 2];
    snprintf(where, sizeof where, "%.250s: %.200spattern", at->label, at->parent);
    return pattern_compile(out, text, bytes, where, r->err);
}

int read_char(reader *r, const json_at *at, const char *key, const char **out, size_t *bytes) {
    const char *text = NULL;
    uint32_t cp = 0;
    int rc = json_need_text(at, key, &text, bytes, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (*bytes == 0 || utf8_decode((const uint8_t *)text, *bytes, &cp) != *bytes) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: %s%s must be one character", r->label,
                       at->parent, key);
    }
    *out = arena_text(&r->t->text, text, *bytes);
    return *out ? SMOE_OK : err_no_memory(r->err, *bytes);
}

/* Keeps the text under key in the tokenizer's arena. */
static int keep_text(reader *r, const json_at *at, const char *key, const char **out,
                     size_t *bytes) {
    const char *text = NULL;
    int rc = json_need_text(at, key, &text, bytes, r->err);
    if (rc == SMOE_OK) {
        *out = arena_text(&r->t->text, text, *bytes);
        rc = *out ? SMOE_OK : err_no_memory(r->err, *bytes);
    }
    return rc;
}

/* ---- normalizer */

/* The next free step, which the tokenizer owns from here on. */
static int new_normalizer(reader *r, enum normalize_kind kind, normalize_step **step) {
    if (r->t->n_normalizer == TOKENIZER_NORMALIZERS) {
        return read_unsupported(r, "a normalizer of more steps than", "16");
    }
    *step = &r->t->normalizers[r->t->n_normalizer++];
    (*step)->kind = kind;
    return SMOE_OK;
}

static int read_replace(reader *r, const json_at *at, normalize_step *step) {
    const char *from = NULL;
    size_t bytes = 0;
    bool is_regex = false;
    int rc = read_pattern(r, at, &from, &bytes, &is_regex);
    rc = rc ? rc : keep_text(r, at, "content", &step->to, &step->to_bytes);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (is_regex) {
        return read_compile(r, at, from, bytes, &step->pattern);
    }
    step->from = arena_text(&r->t->text, from, bytes);
    step->from_bytes = bytes;
    return step->from ? SMOE_OK : err_no_memory(r->err, bytes);
}

static int read_charsmap(reader *r, const json_at *at, normalize_step *step) {
    const char *text = NULL;
    size_t n = 0;
    int rc = json_need_text(at, "precompiled_charsmap", &text, &n, r->err);
    uint8_t *map = rc == SMOE_OK ? malloc(BASE64_DECODED_BYTES(n) + 1) : NULL;
    if (rc == SMOE_OK && !map) {
        rc = err_no_memory(r->err, n);
    }
    if (rc == SMOE_OK) {
        size_t bytes = base64_decode(text, n, map);
        rc = bytes == SIZE_MAX
                 ? err_set(r->err, SMOE_ERR_FORMAT, "%s: %sprecompiled_charsmap is not base64",
                           r->label, at->parent)
                 : charsmap_read(&step->map, (char *)map, bytes, r->label, r->err);
    }
    free(map);
    return rc;
}

/* A type of our own: what SentencePiece does to a text. */
static int read_sentencepiece(reader *r, const json_at *at, normalize_step *step) {
    int rc = read_need_bool(at, "add_dummy_prefix", &step->add_dummy_prefix, r->err);
    rc =
        rc ? rc : read_need_bool(at, "remove_extra_whitespaces", &step->remove_extra_space, r->err);
    rc = rc ? rc : read_need_bool(at, "escape_whitespaces", &step->escape_space, r->err);
    rc = rc ? rc : read_need_bool(at, "joins_user_defined", &r->t->joins_user_defined, r->err);
    return rc ? rc : read_charsmap(r, at, step);
}

static int read_plain_normalizer(reader *r, const json_at *at, const char *type) {
    static const char *const names[] = {"NFC",     "NFD",   "NFKC",      "NFKD",       "Replace",
                                        "Prepend", "Strip", "Lowercase", "Precompiled"};
    normalize_step *step = NULL;
    unsigned kind = 0;
    while (kind <= NORMALIZE_PRECOMPILED && strcmp(type, names[kind]) != 0) {
        kind++;
    }
    if (kind > NORMALIZE_PRECOMPILED) {
        bool is_own = r->source && strcmp(type, "SentencePiece") == 0;
        int rc = is_own ? new_normalizer(r, NORMALIZE_SENTENCEPIECE, &step)
                        : read_unsupported(r, "normalizer", type);
        return rc ? rc : read_sentencepiece(r, at, step);
    }
    int rc = new_normalizer(r, (enum normalize_kind)kind, &step);
    if (rc != SMOE_OK) {
        return rc;
    }
    switch ((enum normalize_kind)kind) {
    case NORMALIZE_REPLACE:
        return read_replace(r, at, step);
    case NORMALIZE_PREPEND:
        return keep_text(r, at, "prepend", &step->to, &step->to_bytes);
    case NORMALIZE_STRIP:
        rc = read_need_bool(at, "strip_left", &step->strip_left, r->err);
        return rc ? rc : read_need_bool(at, "strip_right", &step->strip_right, r->err);
    case NORMALIZE_PRECOMPILED:
        return read_charsmap(r, at, step);
    default:
        return SMOE_OK;
    }
}

int read_normalizer(reader *r, const json_at *at) {
    const char *type = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    return strcmp(type, "Sequence") == 0 ? read_each(r, at, "normalizers", read_normalizer)
                                         : read_plain_normalizer(r, at, type);
}

/* ---- pre_tokenizer */

static int new_step(reader *r, pretok_step **step) {
    pretok *p = &r->t->pretok;
    if (p->n_step == PRETOK_STEPS) {
        return read_unsupported(r, "a pre-tokenizer of more steps than", "32");
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
    return rc ? rc : read_unsupported(r, "Split behavior", name);
}

static int read_split(reader *r, const json_at *at, pretok_step *step) {
    const char *text = NULL;
    bool is_regex = false;
    size_t bytes = 0;
    int rc = read_pattern(r, at, &text, &bytes, &is_regex);
    rc = rc ? rc : read_behavior(r, at, &step->behavior);
    rc = rc ? rc : json_opt_bool(at, "invert", &step->invert, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (is_regex) {
        step->kind = PRETOK_PATTERN;
        return read_compile(r, at, text, bytes, &step->pattern);
    }
    step->kind = PRETOK_LITERAL;
    step->literal = arena_text(&r->t->text, text, bytes);
    step->literal_bytes = bytes;
    return step->literal ? SMOE_OK : err_no_memory(r->err, bytes);
}

static int read_digits(reader *r, const json_at *at, pretok_step *step) {
    bool individual = false;
    int rc = read_need_bool(at, "individual_digits", &individual, r->err);
    step->behavior = individual ? PRETOK_ISOLATED : PRETOK_CONTIGUOUS;
    return rc;
}

static int read_prepend_scheme(reader *r, const json_at *at, enum pretok_prepend *out) {
    static const char *const names[] = {"never", "first", "always"};
    const char *name = names[PRETOK_PREPEND_ALWAYS];
    bool adds = true;
    int rc = json_opt_text(at, "prepend_scheme", &name, NULL, r->err);
    rc = rc ? rc : json_opt_bool(at, "add_prefix_space", &adds, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum pretok_prepend)i;
            if (!adds && i != PRETOK_PREPEND_NEVER) {
                return err_set(r->err, SMOE_ERR_FORMAT,
                               "%s: %sadd_prefix_space contradicts prepend_scheme", r->label,
                               at->parent);
            }
            return SMOE_OK;
        }
    }
    return read_unsupported(r, "Metaspace prepend_scheme", name);
}

int read_metaspace(reader *r, const json_at *at, pretok_step *out) {
    bool splits = true;
    int rc = read_char(r, at, "replacement", &out->literal, &out->literal_bytes);
    rc = rc ? rc : read_prepend_scheme(r, at, &out->prepend);
    rc = rc ? rc : json_opt_bool(at, "split", &splits, r->err);
    out->kind = PRETOK_METASPACE;
    out->behavior = PRETOK_MERGED_WITH_NEXT;
    out->keeps_whole = !splits;
    return rc;
}

static int read_byte_level(reader *r, const json_at *at) {
    pretok *p = &r->t->pretok;
    pretok_step *step = NULL;
    bool use_regex = true;
    int rc = read_need_bool(at, "add_prefix_space", &p->add_prefix_space, r->err);
    rc = rc ? rc : json_opt_bool(at, "use_regex", &use_regex, r->err);
    p->n_before_prefix = p->n_step;
    p->is_byte_level = true;
    if (rc != SMOE_OK || !use_regex) {
        return rc;
    }
    rc = new_step(r, &step);
    return rc ? rc
              : pattern_compile(&step->pattern, byte_level_pattern, sizeof byte_level_pattern - 1,
                                r->label, r->err);
}

static int read_plain_pre_tokenizer(reader *r, const json_at *at, const char *type) {
    static const char *const names[] = {
        [PRETOK_PATTERN] = "Split",         [PRETOK_LITERAL] = "",
        [PRETOK_DIGITS] = "Digits",         [PRETOK_PUNCTUATION] = "Punctuation",
        [PRETOK_SPACE] = "WhitespaceSplit", [PRETOK_WORDS] = "Whitespace",
        [PRETOK_METASPACE] = "Metaspace",
    };
    pretok_step *step = NULL;
    unsigned kind = 0;
    while (kind <= PRETOK_METASPACE && strcmp(type, names[kind]) != 0) {
        kind++;
    }
    int rc = kind > PRETOK_METASPACE || kind == PRETOK_LITERAL
                 ? read_unsupported(r, "pre-tokenizer", type)
                 : new_step(r, &step);
    if (rc != SMOE_OK) {
        return rc;
    }
    step->kind = (enum pretok_kind)kind;
    switch (step->kind) {
    case PRETOK_PATTERN:
        return read_split(r, at, step);
    case PRETOK_DIGITS:
        return read_digits(r, at, step);
    case PRETOK_PUNCTUATION:
        return json_find(at->object, "behavior") ? read_behavior(r, at, &step->behavior) : SMOE_OK;
    case PRETOK_METASPACE:
        return read_metaspace(r, at, step);
    default: /* the spaces go */
        step->behavior = PRETOK_REMOVED;
        step->invert = step->kind == PRETOK_WORDS;
        return SMOE_OK;
    }
}

int read_pre_tokenizer(reader *r, const json_at *at) {
    const char *type = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (r->t->pretok.is_byte_level) {
        return read_unsupported(r, "a pre-tokenizer behind ByteLevel:", type);
    }
    if (strcmp(type, "Sequence") == 0) {
        return read_each(r, at, "pretokenizers", read_pre_tokenizer);
    }
    return strcmp(type, "ByteLevel") == 0 ? read_byte_level(r, at)
                                          : read_plain_pre_tokenizer(r, at, type);
}
