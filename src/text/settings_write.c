/* Writing settings documents with json-c; see settings_write.h. */
#include "text/settings_write.h"

#include <string.h>

#include "base/mem.h"
#include "text/base64.h"

static void put(settings *s, struct json_object *parent, const char *key,
                struct json_object *value) {
    bool added = false;
    if (parent && value) {
        added = key ? json_object_object_add(parent, key, value) == 0
                    : json_object_array_add(parent, value) == 0;
    }
    if (!added) {
        s->is_broken = true;
        json_object_put(value);
    }
}

void settings_start(settings *s) {
    *s = (settings){.root = json_object_new_object()};
    settings_text(s, s->root, "version", "1.0", 3);
    s->added = settings_array(s, s->root, "added_tokens");
}

struct json_object *settings_end(settings *s, smoe_error *err) {
    if (s->is_broken) {
        json_object_put(s->root);
        err_no_memory(err, sizeof *s);
        return NULL;
    }
    return s->root;
}

struct json_object *settings_type(settings *s, struct json_object *parent, const char *key,
                                  const char *type) {
    struct json_object *o = json_object_new_object();
    put(s, parent, key, o);
    if (s->is_broken) {
        return NULL;
    }
    settings_text(s, o, "type", type, strlen(type));
    return o;
}

struct json_object *settings_array(settings *s, struct json_object *parent, const char *key) {
    struct json_object *list = json_object_new_array();
    put(s, parent, key, list);
    return s->is_broken ? NULL : list;
}

void settings_text(settings *s, struct json_object *parent, const char *key, const char *text,
                   size_t bytes) {
    put(s, parent, key, bytes <= INT32_MAX ? json_object_new_string_len(text, (int)bytes) : NULL);
}

void settings_bool(settings *s, struct json_object *parent, const char *key, bool value) {
    put(s, parent, key, json_object_new_boolean(value));
}

void settings_int(settings *s, struct json_object *parent, const char *key, int64_t value) {
    put(s, parent, key, json_object_new_int64(value));
}

void settings_added(settings *s, const settings_token *token) {
    struct json_object *o = json_object_new_object();
    put(s, s->added, NULL, o);
    if (s->is_broken) {
        return;
    }
    settings_int(s, o, "id", token->id);
    settings_text(s, o, "content", token->content, token->bytes);
    settings_bool(s, o, "single_word", token->single_word);
    settings_bool(s, o, "lstrip", token->lstrip);
    settings_bool(s, o, "rstrip", token->rstrip);
    settings_bool(s, o, "normalized", token->normalized);
    settings_bool(s, o, "special", token->special);
}

void settings_pattern(settings *s, struct json_object *parent, const char *kind, const char *text) {
    struct json_object *o = json_object_new_object();
    put(s, parent, "pattern", o);
    if (!s->is_broken) {
        settings_text(s, o, kind, text, strlen(text));
    }
}

void settings_byte_level(settings *s, const char *const *patterns) {
    struct json_object *sequence = settings_type(s, s->root, "pre_tokenizer", "Sequence");
    struct json_object *steps = settings_array(s, sequence, "pretokenizers");
    for (; *patterns; patterns++) {
        struct json_object *split = settings_type(s, steps, NULL, "Split");
        settings_pattern(s, split, "Regex", *patterns);
        settings_text(s, split, "behavior", "Isolated", 8);
    }
    struct json_object *last = settings_type(s, steps, NULL, "ByteLevel");
    settings_bool(s, last, "add_prefix_space", false);
    settings_bool(s, last, "use_regex", false);
    settings_type(s, s->root, "decoder", "ByteLevel");
}

static void add_charsmap(settings *s, struct json_object *parent, const char *map, size_t bytes) {
    size_t n = BASE64_ENCODED_BYTES(bytes);
    char *text = mem_array(n + 1, 1);
    if (!text) {
        s->is_broken = true;
        return;
    }
    base64_encode((const uint8_t *)map, bytes, text);
    settings_text(s, parent, "precompiled_charsmap", text, n);
    free(text);
}

void settings_add_sentencepiece(settings *s, const settings_sentencepiece *o) {
    struct json_object *n = settings_type(s, s->root, "normalizer", "SentencePiece");
    settings_bool(s, n, "add_dummy_prefix", o->add_dummy_prefix);
    settings_bool(s, n, "remove_extra_whitespaces", o->remove_extra_space);
    settings_bool(s, n, "escape_whitespaces", o->escape_space);
    settings_bool(s, n, "joins_user_defined", o->joins_user_defined);
    add_charsmap(s, n, o->charsmap, o->charsmap_bytes);
    struct json_object *sequence = settings_type(s, s->root, "decoder", "Sequence");
    struct json_object *steps = settings_array(s, sequence, "decoders");
    struct json_object *symbols = settings_type(s, steps, NULL, "SentencePiece");
    settings_bool(s, symbols, "drops_at_start", o->add_dummy_prefix || o->remove_extra_space);
    settings_bool(s, symbols, "drops_each", o->remove_extra_space);
    if (o->byte_fallback) {
        struct json_object *fallback = settings_type(s, steps, NULL, "ByteFallback");
        settings_bool(s, fallback, "keeps_valid", true);
    }
    settings_type(s, steps, NULL, "Fuse");
}

void settings_special(settings *s, const char *name, const char *text, size_t bytes) {
    struct json_object *o = json_find(s->root, "special");
    if (!o) {
        o = json_object_new_object();
        put(s, s->root, "special", o);
    }
    if (!s->is_broken) {
        settings_text(s, o, name, text, bytes);
    }
}

static void add_side(settings *s, struct json_object *list, struct json_object *tokens, int64_t id,
                     const char *name) {
    if (id < 0 || s->is_broken) {
        return;
    }
    struct json_object *item = json_object_new_object();
    put(s, list, NULL, item);
    struct json_object *special = settings_type(s, s->is_broken ? NULL : item, "SpecialToken", "");
    settings_text(s, special, "id", name, strlen(name));
    struct json_object *token = settings_type(s, tokens, name, "");
    put(s, settings_array(s, token, "ids"), NULL, json_object_new_int64(id));
}

void settings_around(settings *s, int64_t before, int64_t after) {
    struct json_object *o = settings_type(s, s->root, "post_processor", "TemplateProcessing");
    struct json_object *list = settings_array(s, o, "single");
    struct json_object *tokens = settings_type(s, o, "special_tokens", "");
    add_side(s, list, tokens, before, "before");
    struct json_object *item = json_object_new_object();
    put(s, list, NULL, item);
    settings_type(s, s->is_broken ? NULL : item, "Sequence", "");
    add_side(s, list, tokens, after, "after");
}
