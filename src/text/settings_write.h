/* Putting settings documents together for the forms of tokenizers that have none. */
#ifndef SMOE_TEXT_SETTINGS_WRITE_H
#define SMOE_TEXT_SETTINGS_WRITE_H

#include "base/json.h"

/* A document being written; json-c takes what is added over. is_broken: memory ran out somewhere,
 * which is looked at once at the end. */
typedef struct settings {
    struct json_object *root;
    struct json_object *added; /* root.added_tokens */
    bool is_broken;
} settings;

void settings_start(settings *s);
/* The document, the caller's; NULL with the error set when memory ran out. */
struct json_object *settings_end(settings *s, smoe_error *err);

/* A new object of a type under key of parent (an object), or at the end of parent (an array, key
 * NULL); the document's. NULL when memory is out; everything below takes that. */
struct json_object *settings_type(settings *s, struct json_object *parent, const char *key,
                                  const char *type);
/* A new array under key. */
struct json_object *settings_array(settings *s, struct json_object *parent, const char *key);
void settings_text(settings *s, struct json_object *parent, const char *key, const char *text,
                   size_t bytes);
void settings_bool(settings *s, struct json_object *parent, const char *key, bool value);
void settings_int(settings *s, struct json_object *parent, const char *key, int64_t value);

/* One of added_tokens, looked for before normalisation. */
typedef struct settings_token {
    int64_t id;
    const char *content;
    size_t bytes;
    bool special, lstrip, rstrip, single_word, normalized;
} settings_token;
void settings_added(settings *s, const settings_token *token);

/* {"pattern": {kind: text}} in parent; kind is String or Regex. */
void settings_pattern(settings *s, struct json_object *parent, const char *kind, const char *text);

/* Byte-level splitting by patterns one after the other (NULL-terminated), and its decoder. */
void settings_byte_level(settings *s, const char *const *patterns);

/* What SentencePiece does before and after its model. */
typedef struct settings_sentencepiece {
    const char *charsmap;
    size_t charsmap_bytes;
    bool add_dummy_prefix, remove_extra_space, escape_space;
    bool joins_user_defined;
    bool byte_fallback;
} settings_sentencepiece;
void settings_add_sentencepiece(settings *s, const settings_sentencepiece *o);

/* The text of a special token by the name that chat templates know it by ("bos_token"). */
void settings_special(settings *s, const char *name, const char *text, size_t bytes);

/* Tokens around each text; -1: none. */
void settings_around(settings *s, int64_t before, int64_t after);

#endif
