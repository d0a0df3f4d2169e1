/* Chat templates: a Jinja2 template with the settings and variables that the transformers library
 * gives it, and the ids of what it renders.
 *
 * Settings: trim_blocks, lstrip_blocks, break and continue, generation blocks, tojson as json.dumps
 * with ensure_ascii off, raise_exception, strftime_now; values cannot be changed (immutable
 * sandbox). Variables: messages, tools and documents (none when not given), add_generation_prompt,
 * the special tokens by name (bos_token, …), then the caller's own.
 *
 * Text from outside cannot become control tokens. The rendered text comes with segments that say
 * which bytes the template owns. A caller that encodes must not encode segment by segment, because
 * tokens cross their borders ("user\n" + "Hello"): encode the concatenated text as one, and let a
 * control token be found only where all of its bytes lie in one segment that is not input. Wherever
 * no control token is, the ids are then those of the whole text. template_trusted gives the ranges
 * in the form that tokenizer_encode_spans takes.
 */
#ifndef SMOE_TEXT_TEMPLATE_H
#define SMOE_TEXT_TEMPLATE_H

#include "text/added.h"
#include "text/assets.h"
#include "text/jinja.h"

typedef struct template_request {
    struct json_object *messages; /* an array */
    struct json_object *tools;    /* an array, or NULL */
    struct json_object *kwargs;   /* an object, or NULL; its variables count over the others */
    struct json_object *special;  /* an object of texts by name, or NULL; these are trusted */
    bool add_generation;
    const char *now; /* "YYYY-MM-DD hh:mm:ss", or NULL: the local time */
} template_request;

int template_parse(jinja_template **out, const char *source, size_t bytes, const char *name,
                   smoe_error *err);
/* *out is the caller's (jinja_output_free), untouched on failure. */
int template_render(const jinja_template *t, const template_request *q, jinja_output *out,
                    smoe_error *err);
/* The ranges that the template owns; *spans is the caller's (free). */
int template_trusted(const jinja_output *o, text_span **spans, size_t *n, smoe_error *err);
/* The special tokens of a tokenizer_config.json as an object by name ("bos_token": "<s>"); *out is
 * the caller's (json_object_put). config may be empty. */
int template_special_tokens(struct json_object **out, const text_blob *config, const char *label,
                            smoe_error *err);

#endif
