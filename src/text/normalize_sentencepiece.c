/* The normaliser of the SentencePiece library: a character map, user-defined symbols left alone,
 * extra spaces removed, a dummy prefix, spaces as U+2581. Works front to back in one pass.
 *
 * A text that control tokens cut is several texts; at a symbol that was cut out as an added token
 * the text goes on, which is what place says.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/lossy.h"
#include "text/normalize.h"

#define SPACE_SYMBOL       "\xe2\x96\x81"
#define SPACE_SYMBOL_BYTES 3u

/* What the next step of the pass reads and writes. */
typedef struct chunk {
    const char *to; /* replacement */
    size_t to_bytes;
    size_t used; /* bytes of text; at least 1 */
} chunk;

static chunk next_chunk(const normalize_step *step, const char *text, size_t bytes) {
    int32_t ignored = 0;
    const char *to = NULL;
    size_t used = trie_longest(&step->verbatim, text, bytes, &ignored);
    if (used) {
        return (chunk){text, used, used};
    }
    used = charsmap_find(&step->map, text, bytes, true, &to);
    if (used) {
        return (chunk){to, strlen(to), used};
    }
    uint32_t cp = 0;
    used = utf8_decode((const uint8_t *)text, bytes, &cp);
    /* a map may end inside a character */
    return used ? (chunk){text, used, used}
                : (chunk){LOSSY_REPLACEMENT, LOSSY_REPLACEMENT_BYTES, 1};
}

static int append_escaped(const normalize_step *step, const char *text, size_t bytes, byte_buf *out,
                          smoe_error *err) {
    int rc = SMOE_OK;
    while (bytes > 0 && rc == SMOE_OK) {
        const char *space = step->escape_space ? memchr(text, ' ', bytes) : NULL;
        size_t plain = space ? (size_t)(space - text) : bytes;
        rc = buf_append(out, text, plain, err);
        if (space && rc == SMOE_OK) {
            rc = buf_append(out, SPACE_SYMBOL, SPACE_SYMBOL_BYTES, err);
            plain++;
        }
        text += plain;
        bytes -= plain;
    }
    return rc;
}

static size_t skip_leading(const normalize_step *step, const char *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        chunk c = next_chunk(step, text + at, bytes - at);
        if (c.to_bytes != 1 || c.to[0] != ' ') {
            break;
        }
        at += c.used;
    }
    return at;
}

static void trim_end(const normalize_step *step, byte_buf *out, size_t least) {
    const char *space = step->escape_space ? SPACE_SYMBOL : " ";
    size_t n = strlen(space);
    while (out->bytes - least >= n && memcmp(out->data + out->bytes - n, space, n) == 0) {
        out->bytes -= n;
    }
}

int normalize_sentencepiece(const normalize_step *step, const char *text, size_t bytes,
                            const normalize_place *place, byte_buf *out, smoe_error *err) {
    bool trims = step->remove_extra_space;
    bool after_space = trims && place->is_start;
    size_t before = out->bytes;
    size_t at = after_space ? skip_leading(step, text, bytes) : 0;
    int rc = SMOE_OK;
    if (at == bytes && place->is_end) {
        return SMOE_OK; /* nothing, or nothing but spaces */
    }
    if (step->add_dummy_prefix && place->is_start) {
        rc = append_escaped(step, " ", 1, out, err);
    }
    while (at < bytes && rc == SMOE_OK) {
        chunk c = next_chunk(step, text + at, bytes - at);
        at += c.used;
        while (after_space && c.to_bytes > 0 && c.to[0] == ' ') {
            c.to++;
            c.to_bytes--;
        }
        if (c.to_bytes > 0) {
            rc = append_escaped(step, c.to, c.to_bytes, out, err);
            after_space = trims && c.to[c.to_bytes - 1] == ' ';
        }
    }
    if (trims && place->is_end) {
        trim_end(step, out, before);
    }
    return rc;
}
