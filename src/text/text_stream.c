/* Decoding: ids to text, one at a time or all at once; see tokenizer.h. A stream holds back at most
 * the three bytes of an unfinished character. */
#include <string.h>

#include "base/utf8.h"
#include "text/lossy.h"
#include "text/tokenizer_impl.h"

void text_stream_init(text_stream *s, const smoe_tokenizer *t, bool keep_special) {
    *s = (text_stream){.tokenizer = t, .keep_special = keep_special, .at_start = true};
}

size_t text_stream_max_bytes(const smoe_tokenizer *t) {
    return LOSSY_REPLACEMENT_BYTES *
           ((size_t)t->vocab.max_token_bytes + sizeof(((text_stream *)0)->held));
}

/* Writes what the held bytes settle; leaves an unfinished character. */
static size_t settle(text_stream *s, char *out) {
    size_t written = 0;
    size_t done = 0;
    while (done < s->n_held) {
        uint32_t cp;
        bool is_open = false;
        size_t left = s->n_held - done;
        size_t used = utf8_decode(s->held + done, left, &cp);
        if (used) {
            memcpy(out + written, s->held + done, used);
            written += used;
        } else {
            used = lossy_subpart(s->held + done, left, &is_open);
            if (is_open) {
                break;
            }
            memcpy(out + written, LOSSY_REPLACEMENT, LOSSY_REPLACEMENT_BYTES);
            written += LOSSY_REPLACEMENT_BYTES;
        }
        done += used;
    }
    s->n_held = (uint8_t)(s->n_held - done);
    memmove(s->held, s->held + done, s->n_held);
    return written;
}

size_t text_stream_push(text_stream *s, int32_t id, char *out) {
    const vocab *v = &s->tokenizer->vocab;
    size_t written = 0;
    if (id < 0 || (uint32_t)id >= v->n_id || !v->tokens[id].is_present ||
        (v->tokens[id].is_special && !s->keep_special)) {
        return 0;
    }
    const char *text = vocab_text(v, (uint32_t)id);
    for (uint32_t i = 0; i < v->tokens[id].bytes; i++) {
        if (s->n_held == 0 && (uint8_t)text[i] < 0x80) {
            out[written++] = text[i];
            continue;
        }
        s->held[s->n_held++] = (uint8_t)text[i];
        written += settle(s, out + written);
    }
    s->at_start &= written == 0;
    return written;
}

size_t text_stream_flush(text_stream *s, char *out) {
    if (s->n_held == 0) {
        return 0;
    }
    s->n_held = 0;
    s->at_start = false;
    memcpy(out, LOSSY_REPLACEMENT, LOSSY_REPLACEMENT_BYTES);
    return LOSSY_REPLACEMENT_BYTES;
}

int smoe_detokenize(const smoe_tokenizer *tokenizer, const int32_t *ids, size_t n_id,
                    bool keep_special, char **text, size_t *text_bytes, smoe_error *err) {
    size_t most = text_stream_max_bytes(tokenizer);
    byte_buf out = {.max_bytes = SIZE_MAX / 2};
    char *piece = malloc(most);
    text_stream s;
    int rc = piece ? buf_append(&out, "", 0, err) : err_no_memory(err, most);
    text_stream_init(&s, tokenizer, keep_special);
    for (size_t i = 0; i < n_id && rc == SMOE_OK; i++) {
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
