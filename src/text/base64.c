/* Base64; see base64.h. Owns no state. */
#include "text/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* -1 for a character outside the alphabet. */
static int digit(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

size_t base64_decode(const char *text, size_t n, uint8_t *out) {
    size_t used = 0;
    if (n % 4) {
        return SIZE_MAX;
    }
    for (size_t i = 0; i < n; i += 4) {
        size_t n_pad = 0;
        while (i + 4 == n && n_pad < 2 && text[n - 1 - n_pad] == '=') {
            n_pad++;
        }
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = k >= 4 - n_pad ? 0 : digit(text[i + k]);
            if (d < 0) {
                return SIZE_MAX;
            }
            bits = bits << 6 | (uint32_t)d;
        }
        for (size_t k = 0; k < 3 - n_pad; k++) {
            out[used++] = (uint8_t)(bits >> (16 - 8 * k));
        }
    }
    return used;
}

void base64_encode(const uint8_t *data, size_t n, char *out) {
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t bits = (uint32_t)data[i] << 16;
        bits |= left > 1 ? (uint32_t)data[i + 1] << 8 : 0;
        bits |= left > 2 ? data[i + 2] : 0;
        for (size_t k = 0; k < 4; k++) {
            *out++ = k <= left ? alphabet[bits >> (18 - 6 * k) & 63] : '=';
        }
    }
}
