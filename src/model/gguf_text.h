/* The text side of a GGUF file: its tokenizer's keys as tables, chat template, sampling
 * defaults. */
#ifndef SMOE_MODEL_GGUF_TEXT_H
#define SMOE_MODEL_GGUF_TEXT_H

#include "formats/gguf.h"
#include "model/spec.h"
#include "text/assets.h"

/* Fills text, which must be empty, from the keys of a header; label names its file. A header
 * that says that there is no vocabulary leaves it without tables. text_assets_free also after
 * failure. */
int gguf_text_take(text_assets *text, const gguf_header *h, const char *label, smoe_error *err);
/* Fills text->tables from text->gguf, as a vault stores it. */
int gguf_text_decode(text_assets *text, smoe_error *err);
/* Begin and end ids by what the tables say; token counts must agree. label names the file. */
int gguf_text_ids(spec *s, const text_tables *t, const char *label, smoe_error *err);

#endif
