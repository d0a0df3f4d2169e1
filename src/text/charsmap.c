/* Reading and walking a precompiled character map; see charsmap.h.
 *
 * The layout is that of Darts-clone, little-endian units of 32 bits: bit 8 says that a value
 * follows, bits 0 to 7 and bit 31 are the label, bit 9 scales the offset of bits 10 to 30 by 256.
 */
#include "text/charsmap.h"

#include <string.h>

#include "base/utf8.h"

enum { HEAD_BYTES = 4 };

static uint32_t get_u32(const char *p) {
    const uint8_t *b = (const uint8_t *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

int charsmap_read(charsmap *m, const char *data, size_t bytes, const char *where, smoe_error *err) {
    if (bytes == 0) {
        return SMOE_OK;
    }
    uint64_t trie_bytes = bytes > HEAD_BYTES ? get_u32(data) : 0;
    if (trie_bytes < 4 || trie_bytes % 4 || trie_bytes > bytes - HEAD_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: malformed precompiled character map", where);
    }
    size_t n_text = bytes - HEAD_BYTES - (size_t)trie_bytes;
    if (!utf8_valid((const uint8_t *)data + HEAD_BYTES + trie_bytes, n_text)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: a precompiled character map that is not UTF-8",
                       where);
    }
    m->n_unit = (size_t)trie_bytes / 4;
    m->units = mem_array(m->n_unit, sizeof *m->units);
    m->texts = mem_copy_text(data + HEAD_BYTES + trie_bytes, n_text);
    m->n_text = n_text + 1; /* the copy ends with a NUL */
    if (!m->units || !m->texts) {
        return err_no_memory(err, bytes);
    }
    for (size_t i = 0; i < m->n_unit; i++) {
        m->units[i] = get_u32(data + HEAD_BYTES + 4 * i);
    }
    return SMOE_OK;
}

void charsmap_free(charsmap *m) {
    free(m->units);
    free(m->texts);
    *m = (charsmap){0};
}

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

size_t charsmap_find(const charsmap *m, const char *text, size_t bytes, bool longest,
                     const char **to) {
    size_t found = 0;
    if (m->n_unit == 0) {
        return 0;
    }
    size_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < bytes && text[i] && (longest || found == 0); i++) {
        uint8_t b = (uint8_t)text[i];
        at ^= b;
        if (at >= m->n_unit || (m->units[at] & (1u << 31 | 0xff)) != b) {
            break;
        }
        uint32_t unit = m->units[at];
        at ^= offset_of(unit);
        if ((unit >> 8 & 1) && at < m->n_unit) {
            size_t value = m->units[at] & 0x7fffffff;
            /* a value inside a character would make malformed text */
            if (value < m->n_text && ((uint8_t)m->texts[value] & 0xc0) != 0x80) {
                *to = m->texts + value;
                found = i + 1;
            }
        }
    }
    return found;
}
