/* A thin skin over json-c: strict parsing with limits, and typed getters whose errors name the
 * file and the field.
 *
 * json-c is lenient in three ways that matter to us; a pass over the text before it refuses them:
 * duplicate keys (it keeps the last), NULs inside keys (it cuts the key there) and lone surrogate
 * escapes (it writes U+FFFD). Escaped pairs like \ud836\udc5d, which it misreads, are written out
 * before it sees them.
 */
#ifndef SMOE_BASE_JSON_H
#define SMOE_BASE_JSON_H

#include <json-c/json.h>

#include "base/error.h"

enum json_flags {
    JSON_UNIQUE_KEYS = 1 /* refuse an object at depth 1 or 2 that names a key twice */
};

/* Parses exactly one value. label names the text in errors ("DIR/config.json"). *out is the
 * caller's (json_object_put), untouched on failure. */
int json_parse(struct json_object **out, const char *text, size_t bytes, const char *label,
               unsigned flags, smoe_error *err);
/* Reads at most max_bytes of a regular file and parses it. */
int json_load(struct json_object **out, const char *path, uint64_t max_bytes, unsigned flags,
              smoe_error *err);

/* Where a value stands, for messages: "config.json: rope_scaling.factor". */
typedef struct json_at {
    struct json_object *object; /* an object, never NULL */
    const char *label;
    const char *parent; /* dotted prefix of the field names, "" at the top */
} json_at;

/* Each getter: 0 with *out set; or SMOE_ERR_FORMAT naming the field. A missing key or an explicit
 * null is an error for json_need_*, and leaves *out alone (returns 0) for json_opt_*; but a field
 * that is there must have the right type and range. */
int json_need_int(const json_at *at, const char *key, int64_t min, int64_t max, int64_t *out,
                  smoe_error *err);
int json_opt_int(const json_at *at, const char *key, int64_t min, int64_t max, int64_t *out,
                 smoe_error *err);
/* Finite numbers only. Bounds are inclusive unless above_zero. */
int json_need_positive(const json_at *at, const char *key, double *out, smoe_error *err);
int json_opt_positive(const json_at *at, const char *key, double *out, smoe_error *err);
int json_opt_number(const json_at *at, const char *key, double min, double max, double *out,
                    smoe_error *err);
int json_opt_bool(const json_at *at, const char *key, bool *out, smoe_error *err);
/* *out borrows from the document; *bytes may be NULL (then a NUL inside is an error). */
int json_need_text(const json_at *at, const char *key, const char **out, size_t *bytes,
                   smoe_error *err);
int json_opt_text(const json_at *at, const char *key, const char **out, size_t *bytes,
                  smoe_error *err);
int json_opt_object(const json_at *at, const char *key, struct json_object **out, smoe_error *err);
int json_need_object(const json_at *at, const char *key, struct json_object **out, smoe_error *err);
int json_opt_array(const json_at *at, const char *key, struct json_object **out, smoe_error *err);

/* The value under key, NULL when absent or null. */
struct json_object *json_find(struct json_object *object, const char *key);
/* A whole number in range from one value; used for array members. */
int json_value_int(struct json_object *value, const char *label, const char *what, int64_t min,
                   int64_t max, int64_t *out, smoe_error *err);

#endif
