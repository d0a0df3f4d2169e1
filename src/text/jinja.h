/* A Jinja2 engine for chat templates: parse once, render often.
 *
 * Behaves as Jinja2 3.1.6 with an immutable sandbox, no autoescaping and no loader: what templates
 * can do there they do here, with the same text; what is an error there is one here, and nothing a
 * template or a value holds can crash, hang or grow without bound. See template.h for the settings
 * and variables of chat templates.
 *
 * Every string knows which of its bytes came from outside (messages, tools, arguments) and keeps
 * that through every operation; so does the output. A number, a truth value or a container from
 * outside is marked too, and what is printed of it.
 */
#ifndef SMOE_TEXT_JINJA_H
#define SMOE_TEXT_JINJA_H

#include <json-c/json.h>
#include <time.h>

#include "base/mem.h"

/* Bounds of a template; the first three hold for parsing. */
#define JINJA_SOURCE_BYTES (1u << 20)
#define JINJA_NESTING      100 /* brackets, blocks and operators inside each other */
#define JINJA_PARSE_BYTES  (256u << 20)
#define JINJA_CALL_DEPTH   1200 /* expressions, statements and macro calls inside each other */
#define JINJA_STEPS        50000000u
#define JINJA_MEMORY_BYTES (1u << 30)
#define JINJA_OUTPUT_BYTES (256u << 20)

typedef struct jinja_template jinja_template;

/* *out is the caller's (jinja_free), untouched on failure. Immutable, may be shared by threads.
 * name stands in errors ("NAME:LINE:COLUMN: …"). trim: the settings trim_blocks and lstrip_blocks,
 * both. */
int jinja_parse(jinja_template **out, const char *source, size_t bytes, const char *name, bool trim,
                smoe_error *err);
void jinja_free(jinja_template *t); /* NULL is allowed */

typedef enum jinja_origin {
    JINJA_TRUSTED,  /* part of the model: its special tokens */
    JINJA_INPUT,    /* from outside: marked */
    JINJA_MESSAGES, /* from outside, but see jinja_is_role */
} jinja_origin;

/* A role that chat formats know is a word of the format rather than text: templates build control
 * tokens from it. The member "role" of each message is left unmarked when it is one of these. */
bool jinja_is_role(const char *role, size_t bytes);

typedef struct jinja_var {
    const char *name;
    struct json_object *value; /* NULL: none */
    jinja_origin origin;
} jinja_var;

typedef struct jinja_options {
    const jinja_var *vars; /* a later one of the same name counts */
    size_t n_var;
    struct tm now;      /* what strftime_now formats */
    uint64_t max_steps; /* 0: JINJA_STEPS; likewise below */
    uint64_t max_memory_bytes;
    uint64_t max_output_bytes;
} jinja_options;

typedef struct jinja_segment {
    size_t start, end; /* bytes of the text */
    bool is_input;
} jinja_segment;

/* Segments follow each other without gaps, are not empty and take turns in is_input. */
typedef struct jinja_output {
    char *text; /* NUL-terminated, UTF-8 */
    size_t bytes;
    jinja_segment *segments;
    size_t n_segment;
} jinja_output;

/* *out is the caller's (jinja_output_free), untouched on failure. Fails with SMOE_ERR_ARGUMENT when
 * the template refuses the values, SMOE_ERR_MEMORY when a limit is hit. */
int jinja_render(const jinja_template *t, const jinja_options *options, jinja_output *out,
                 smoe_error *err);
void jinja_output_free(jinja_output *out);

#endif
