/* Decoding: ids to text, one at a time or all at once; see tokenizer.h. A stream holds back at most
 * the three bytes of an unfinished character. */
#include <string.h>

#include "base/utf8.h"
#include "text/lossy.h"
#include "text/tokenizer_impl.h"

void text_stream_init(text_stream *s, const smoe_tokenizer *t, bool keep_special) {
    *s = (text_stream){.tokenizer = t,
                       .keep_special = keep_special,
                       .at_start = true,
                       .n_strip = t->decoder.n_strip};
}

size_t text_stream_max_bytes(const smoe_tokenizer *t) {
    return LOSSY_REPLACEMENT_BYTES *
           ((size_t)t->decoder.max_bytes + sizeof(((text_stream *)0)->held));
}

/* One character, or U+FFFD, to out; returns its bytes. */
static size_t hand_out(text_stream *s, const void *c, size_t bytes, char *out) {
    const decoder *d = &s->tokenizer->decoder;
    if (s->n_strip > 0) {
        s->n_strip--;
        if (bytes == d->strip_bytes && memcmp(c, d->strip, bytes) == 0) {
            return 0;
        }
        s->n_strip = 0;
    }
    memcpy(out, c, bytes);
    return bytes;
}

/* Writes what the held bytes settle; leaves an unfinished character, unless is_end. */
static size_t settle(text_stream *s, char *out, bool is_end) {
    size_t written = 0;
    size_t done = 0;
    while (done < s->n_held) {
        uint32_t cp;
        bool is_open = false;
        size_t left = s->n_held - done;
        size_t used = utf8_decode(s->held + done, left, &cp);
        if (used) {
            written += hand_out(s, s->held + done, used, out + written);
            done += used;
            continue;
        }
        used = lossy_subpart(s->held + done, left, &is_open);
        if (is_open && !is_end) {
            break;
        }
        /* byte tokens that make no character are one U+FFFD each */
        for (size_t n = s->holds_byte ? used : 1; n > 0; n--) {
            written += hand_out(s, LOSSY_REPLACEMENT, LOSSY_REPLACEMENT_BYTES, out + written);
        }
        done += used;
    }
    s->n_held = (uint8_t)(s->n_held - done);
    memmove(s->held, s->held + done, s->n_held);
    return written;
}

static size_t push_byte(text_stream *s, uint8_t byte, bool is_token, char *out) {
    size_t written = 0;
    if (s->holds_byte != is_token) {
        written = settle(s, out, true);
        s->holds_byte = is_token;
    }
    if (s->n_held == 0 && byte < 0x80) {
        char c = (char)byte;
        return written + hand_out(s, &c, 1, out + written);
    }
    s->held[s->n_held++] = byte;
    return written + settle(s, out + written, false);
}

/* Whether an id has a part in the text. */
static bool is_shown(const text_stream *s, int32_t id) {
    const vocab *v = &s->tokenizer->vocab;
    return id >= 0 && (uint32_t)id < v->n_id && v->tokens[id].is_present &&
           (!v->tokens[id].is_special || s->keep_special);
}

/* Writes what a token stands for. */
static size_t push_text(text_stream *s, const char *text, uint32_t bytes, int byte, char *out) {
    if (byte >= 0 && s->is_malformed) {
        return hand_out(s, LOSSY_REPLACEMENT, LOSSY_REPLACEMENT_BYTES, out);
    }
    if (byte >= 0) {
        return push_byte(s, (uint8_t)byte, true, out);
    }
    if (s->n_held == 0 && s->n_strip == 0 && utf8_valid((const uint8_t *)text, bytes)) {
        memcpy(out, text, bytes);
        return bytes;
    }
    size_t written = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        written += push_byte(s, (uint8_t)text[i], false, out + written);
    }
    if (!s->tokenizer->decoder.is_byte_level) {
        written += settle(s, out + written, true); /* bytes of two tokens never make a character */
    }
    return written;
}

/* What id stands for at this place, and whether the next token may still be the first. */
static const char *next_text(text_stream *s, uint32_t id, uint32_t *bytes, int *byte) {
    const decoder *d = &s->tokenizer->decoder;
    const vocab *v = &s->tokenizer->vocab;
    bool is_first = s->at_start && !(d->starts_late && s->has_text);
    const char *text = decoder_text(d, v, id, is_first, bytes, byte);
    uint32_t whole = 0;
    decoder_text(d, v, id, false, &whole, byte);
    s->at_start = d->starts_late && is_first && (d->drops_each || *bytes == whole);
    return text;
}

size_t text_stream_push(text_stream *s, int32_t id, char *out) {
    uint32_t bytes = 0;
    int byte = -1;
    if (!is_shown(s, id)) {
        return 0;
    }
    const char *text = next_text(s, (uint32_t)id, &bytes, &byte);
    size_t written = push_text(s, text, bytes, byte, out);
    s->has_text |= written > 0 || s->n_held > 0;
    return written;
}

size_t text_stream_flush(text_stream *s, char *out) {
    return settle(s, out, true);
}

/* ---- all at once */

static int byte_of(const text_stream *s, int32_t id) {
    uint32_t bytes;
    int byte;
    decoder_text(&s->tokenizer->decoder, &s->tokenizer->vocab, (uint32_t)id, false, &bytes, &byte);
    return byte;
}

/* Whether the run of byte tokens that begins at ids[0] is malformed; *run is its length. */
static bool is_malformed_run(const text_stream *s, const int32_t *ids, size_t n_id, size_t *run) {
    uint8_t held[4];
    size_t n_held = 0;
    bool is_open = false;
    bool is_malformed = false;
    size_t i = 0;
    for (; i < n_id; i++) {
        int byte = is_shown(s, ids[i]) ? byte_of(s, ids[i]) : INT32_MAX;
        if (byte < 0) {
            break;
        }
        if (byte == INT32_MAX || is_malformed) {
            continue;
        }
        uint32_t cp;
        held[n_held++] = (uint8_t)byte;
        if (utf8_decode(held, n_held, &cp)) {
            n_held = 0;
            continue;
        }
        lossy_subpart(held, n_held, &is_open);
        is_malformed = !is_open;
    }
    *run = i;
    return is_malformed || n_held > 0;
}

int smoe_detokenize(const smoe_tokenizer *tokenizer, const int32_t *ids, size_t n_id,
                    bool keep_special, char **text, size_t *text_bytes, smoe_error *err) {
    size_t most = text_stream_max_bytes(tokenizer);
    byte_buf out = {.max_bytes = SIZE_MAX / 2};
    char *piece = malloc(most);
    size_t run_end = 0; /* of the byte tokens that i is in */
    text_stream s;
    int rc = piece ? buf_append(&out, "", 0, err) : err_no_memory(err, most);
    text_stream_init(&s, tokenizer, keep_special);
    for (size_t i = 0; i < n_id && rc == SMOE_OK; i++) {
        if (tokenizer->decoder.has_fallback && !tokenizer->decoder.keeps_valid && i >= run_end) {
            s.is_malformed = is_malformed_run(&s, ids + i, n_id - i, &run_end);
            run_end += i;
        }
        rc = buf_append(&out, piece, text_stream_push(&s, ids[i], piece), err);
    }
    if (rc == SMOE_OK) {
        rc = buf_append(&out, piece, text_stream_flush(&s, piece), err);
    }
    free(piece);
    if (rc != SMOE_OK) {
        buf_free(&out);
        return rc;
    }
    *text = out.data;
    *text_bytes = out.bytes;
    return SMOE_OK;
}
