/* Replacement of malformed bytes; see lossy.h. Owns no state. */
#include "text/lossy.h"

#include "base/utf8.h"

size_t lossy_subpart(const uint8_t *p, size_t n, bool *is_open) {
    uint8_t lead = p[0];
    size_t len = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    /* the second byte's range rules out overlong forms, surrogates and values past U+10FFFF */
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    size_t i = 1;
    while (i < len && i < n && p[i] >= low && p[i] <= high) {
        low = 0x80;
        high = 0xbf;
        i++;
    }
    *is_open = i == n && i < len;
    return i;
}

int lossy_append(byte_buf *out, const char *text, size_t bytes, smoe_error *err) {
    const uint8_t *p = (const uint8_t *)text;
    size_t copied = 0;
    int rc = SMOE_OK;
    for (size_t i = 0; i < bytes && rc == SMOE_OK;) {
        uint32_t cp;
        bool is_open;
        size_t used = utf8_decode(p + i, bytes - i, &cp);
        if (used) {
            i += used;
            continue;
        }
        rc = buf_append(out, text + copied, i - copied, err);
        rc = rc ? rc : buf_append(out, LOSSY_REPLACEMENT, LOSSY_REPLACEMENT_BYTES, err);
        i += lossy_subpart(p + i, bytes - i, &is_open);
        copied = i;
    }
    return rc ? rc : buf_append(out, text + copied, bytes - copied, err);
}
