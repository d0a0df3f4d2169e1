/* Between the parts of the schema reader. Private to schema*.c. */
#ifndef SMOE_TEXT_SCHEMA_IMPL_H
#define SMOE_TEXT_SCHEMA_IMPL_H

#include "base/json.h"
#include "text/schema.h"

enum {
    SCHEMA_DEPTH = 250,      /* of schemas within schemas, after allOf has been merged */
    SCHEMA_VISITS = 200000,  /* schemas met in all */
    SCHEMA_NAME_BYTES = 250, /* longest name of a property beside additional ones */
    SCHEMA_LENGTH = 4096,    /* longest string of a bounded length */
    SCHEMA_ITEMS = 65536,    /* most items that may be asked for */
    SCHEMA_INT_DIGITS = 18,  /* of a whole number */
    SCHEMA_FRAC_DIGITS = 15, /* behind the point */
    SCHEMA_MULTIPLES = 2000  /* most multiples that are written out */
};

/* Where a schema stands, as a chain of steps of its JSON pointer. */
typedef struct schema_place {
    const struct schema_place *up;
    const char *key; /* NULL: index */
    size_t index;
} schema_place;

enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8, /* every integer is a number too */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127 - TYPE_INTEGER
};

/* A rule that a reference has named and whose schema is still to be read. */
typedef struct schema_pending {
    uint32_t rule;
    struct json_object *schema;
} schema_pending;

typedef struct schema_reader {
    grammar *g;
    struct json_object *root;
    struct json_object *made; /* an array that owns the schemas made by merging */
    schema_pending *pending;
    size_t n_pending;
    size_t cap_pending;
    uint32_t n_visit;
    uint32_t depth;
    uint32_t space, value, string; /* rules; UINT32_MAX until needed */
} schema_reader;

/* Notes the first error at a place; returns NULL. */
void *schema_wrong(schema_reader *r, const schema_place *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The keyword's value, NULL when absent; a null counts as a value of the wrong type. */
static inline struct json_object *schema_find(struct json_object *schema, const char *key) {
    struct json_object *value = NULL;
    json_object_object_get_ex(schema, key, &value);
    return value;
}
/* A count; false after an error. */
bool schema_count(schema_reader *r, struct json_object *schema, const schema_place *at,
                  const char *key, uint32_t *out);

/* A rule of its own around a node, so that equal ones are shared. */
const grammar_node *schema_rule(schema_reader *r, const char *name, const grammar_node *body);
/* Any JSON string, with its quotes. */
const grammar_node *schema_any_string(schema_reader *r);

/* schema_text.c: the string with the keywords minLength, maxLength, pattern and format; regular
 * expressions. what names the text in errors. The result matches the inside of a JSON string. */
const grammar_node *schema_string(schema_reader *r, struct json_object *schema,
                                  const schema_place *at);
const grammar_node *schema_regex(schema_reader *r, const char *pattern, size_t bytes,
                                 const schema_place *at);
/* One character inside a JSON string: however it is written, or without \u escapes. */
const grammar_node *schema_char(schema_reader *r, bool with_unicode_escapes);
/* Characters of a set as they stand inside a JSON string. */
const grammar_node *schema_set(schema_reader *r, const cp_set *set);
/* A text as it stands inside a JSON string. */
const grammar_node *schema_literal(schema_reader *r, const char *text, size_t bytes);

/* schema_number.c: a number with minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
 * and format. */
const grammar_node *schema_number(schema_reader *r, struct json_object *schema,
                                  const schema_place *at, bool is_integer);

/* schema_merge.c. The schema that demands both; NULL after an error; owned by the reader. */
struct json_object *schema_merge(schema_reader *r, struct json_object *a, struct json_object *b,
                                 const schema_place *at);
/* The schema without $ref and allOf at its top. */
struct json_object *schema_flatten(schema_reader *r, struct json_object *schema,
                                   const schema_place *at);
/* The schema without the named keywords (NULL-terminated) and annotations. */
struct json_object *schema_without(schema_reader *r, struct json_object *schema,
                                   const char *const *keys);
struct json_object *schema_resolve(schema_reader *r, struct json_object *ref,
                                   const schema_place *at);
/* Keeps a new value until the end; returns it, or NULL without memory. */
struct json_object *schema_own(schema_reader *r, struct json_object *value);
bool schema_is_annotation(const char *key);
/* Whether a schema says nothing but annotations and the named keyword. */
bool schema_is_only(struct json_object *schema, const char *key);
/* The types that a schema's `type` allows; TYPE_ANY without one; 0 after an error. */
unsigned schema_types(schema_reader *r, struct json_object *schema, const schema_place *at);
unsigned schema_value_type(struct json_object *value);
/* Whether no value can satisfy both. */
bool schema_is_disjoint(schema_reader *r, struct json_object *a, struct json_object *b,
                        const schema_place *at, int depth);
bool schema_equal(struct json_object *a, struct json_object *b);

#endif
