/* JSON schemas to grammars: a subset of draft 2020-12, named in docs/constrained-output.md. What a
 * grammar cannot say, or this reader does not know, is refused by name; nothing is ignored. */
#ifndef SMOE_TEXT_SCHEMA_H
#define SMOE_TEXT_SCHEMA_H

#include "text/grammar.h"

/* Reads a schema into g; *root is the rule of the whole document. Errors name the place as a JSON
 * pointer ("#/properties/age/minimum"). */
int schema_read(grammar *g, const char *text, size_t bytes, uint32_t *root);

#endif
