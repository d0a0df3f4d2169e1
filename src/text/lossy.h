/* What becomes of bytes that are not UTF-8: each longest start of a character that breaks off, and
 * each byte that starts none, turns into one U+FFFD, as in Rust's from_utf8_lossy. */
#ifndef SMOE_TEXT_LOSSY_H
#define SMOE_TEXT_LOSSY_H

#include "base/mem.h"

#define LOSSY_REPLACEMENT       "\xef\xbf\xbd"
#define LOSSY_REPLACEMENT_BYTES 3u

/* For bytes that are not a whole character: how many (at least 1) one U+FFFD stands for; *is_open
 * when they all could still begin a character that needs more than n bytes. n is at least 1. */
size_t lossy_subpart(const uint8_t *p, size_t n, bool *is_open);

/* Appends text with malformed bytes replaced. */
int lossy_append(byte_buf *out, const char *text, size_t bytes, smoe_error *err);

#endif
