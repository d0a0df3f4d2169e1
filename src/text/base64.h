/* Base64 (RFC 4648, the standard alphabet, padded), strictly. */
#ifndef SMOE_TEXT_BASE64_H
#define SMOE_TEXT_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that n characters can decode to at most, and encode to exactly. */
#define BASE64_DECODED_BYTES(n) ((n) / 4 * 3)
#define BASE64_ENCODED_BYTES(n) (((n) + 2) / 3 * 4)

/* Writes what text stands for to out; returns its bytes, SIZE_MAX when it is malformed. */
size_t base64_decode(const char *text, size_t n, uint8_t *out);
/* Writes BASE64_ENCODED_BYTES(n) characters. */
void base64_encode(const uint8_t *data, size_t n, char *out);

#endif
