/* JSON byte by byte, for text that is still coming: where a value ends, whether it is well-formed,
 * and strings to and from their escaped form. Pure functions; only the last two allocate. */
#ifndef SMOE_TEXT_OUTPUT_JSON_H
#define SMOE_TEXT_OUTPUT_JSON_H

#include "base/limits.h"
#include "base/mem.h"

typedef enum json_step {
    JSON_MORE, /* the byte belongs to the value, which goes on */
    JSON_DONE, /* the byte ends the value */
    JSON_PAST, /* the value (a number) ended before this byte */
    JSON_BAD   /* no JSON */
} json_step;

typedef struct json_scan {
    uint8_t state;
    uint8_t left;                                /* of an escape's hex digits */
    const char *rest;                            /* of a literal */
    uint32_t depth;                              /* open arrays and objects */
    uint8_t is_object[LIMIT_JSON_DEPTH / 8 + 1]; /* a bit for each depth */
} json_scan;

/* A scan of one value (RFC 8259), which may have white space before it. */
void json_scan_init(json_scan *s);
json_step json_scan_byte(json_scan *s, char c);

typedef enum json_kind {
    JSON_KIND_NULL = 1,
    JSON_KIND_BOOLEAN = 2,
    JSON_KIND_INTEGER = 4, /* no fraction, no exponent */
    JSON_KIND_NUMBER = 8,
    JSON_KIND_STRING = 16,
    JSON_KIND_ARRAY = 32,
    JSON_KIND_OBJECT = 64
} json_kind;
enum { JSON_KIND_ANY = 127 };

/* The kind of a text that is exactly one value, 0 when it is not one. */
unsigned json_kind_of(const char *text, size_t bytes);

/* Appends text as it stands between the quotes of a JSON string. */
int json_escape(byte_buf *out, const char *text, size_t bytes, smoe_error *err);
/* Appends what a well-formed string's inside means. A lone surrogate becomes U+FFFD. */
int json_unescape(byte_buf *out, const char *text, size_t bytes, smoe_error *err);

static inline bool json_is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

#endif
