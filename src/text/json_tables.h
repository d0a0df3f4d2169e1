/* The tables of a tokenizer.json, read without a tree of objects: a vocabulary and its merges are
 * hundreds of thousands of values, and building them as such takes most of the time of opening.
 *
 * Only the plain shape is read here. Whatever is not, be it valid or not, is left to json_parse and
 * the readers behind it, so what is refused, and why, does not depend on this.
 */
#ifndef SMOE_TEXT_JSON_TABLES_H
#define SMOE_TEXT_JSON_TABLES_H

#include "base/mem.h"
#include "text/assets.h"

typedef struct table_token {
    text_piece content;
    int64_t id;
} table_token;

/* "left right" with right.data NULL, or ["left", "right"]. */
typedef struct table_merge {
    text_piece left, right;
} table_merge;

/* Pieces point into the document, or into text when it writes them with escapes. */
typedef struct json_tables {
    table_token *token;
    size_t n_token;
    table_merge *merge; /* all in the same form */
    size_t n_merge;
    arena text;
} json_tables;

/* Looks for model.vocab and model.merges in json. *found: both are plain, and *rest (the caller's,
 * free) is the document with an empty object and an empty array in their place. Fails only without
 * memory; json_tables_free releases it in any case. */
int json_tables_cut(json_tables *t, const text_blob *json, text_blob *rest, bool *found,
                    smoe_error *err);
void json_tables_free(json_tables *t);

#endif
