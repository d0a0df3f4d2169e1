/* Applying the steps of a decoder to every token; see decoder.h. */
#include "text/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"

void decoder_free(decoder *d) {
    for (size_t i = 0; i < d->n_step; i++) {
        pattern_free(d->steps[i].pattern);
    }
    free(d->text);
    free(d->first);
    buf_free(&d->bytes);
    *d = (decoder){0};
}

/* ---- one step on one token */

static int replace_text(const decode_step *step, const byte_buf *in, byte_buf *out,
                        smoe_error *err) {
    const char *text = in->data;
    size_t left = in->bytes;
    int rc = SMOE_OK;
    while (rc == SMOE_OK && left > 0) {
        const char *hit = memmem(text, left, step->from, step->from_bytes);
        size_t plain = hit ? (size_t)(hit - text) : left;
        rc = buf_append(out, text, plain, err);
        rc = rc || !hit ? rc : buf_append(out, step->to, step->to_bytes, err);
        plain += hit ? step->from_bytes : 0;
        text += plain;
        left -= plain;
    }
    return rc;
}

/* Byte offset of the n-th code point. */
static size_t offset_of(const char *text, size_t n) {
    size_t at = 0;
    for (; n > 0; n--) {
        uint8_t b = (uint8_t)text[at];
        at += b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    }
    return at;
}

static int replace_matches(const decode_step *step, pattern_scan *scan, const byte_buf *in,
                           uint8_t *classes, byte_buf *out, smoe_error *err) {
    size_t at = 0;
    int rc = SMOE_OK;
    pattern_scan_start(scan, classes,
                       pattern_classify(step->pattern, in->data, in->bytes, classes));
    while (rc == SMOE_OK) {
        size_t start = 0;
        size_t end = 0;
        bool found = false;
        rc = pattern_scan_next(scan, &start, &end, &found, err);
        if (rc != SMOE_OK || !found) {
            break;
        }
        size_t from = offset_of(in->data, start);
        rc = buf_append(out, in->data + at, from - at, err);
        rc = rc ? rc : buf_append(out, step->to, step->to_bytes, err);
        at = from + offset_of(in->data + from, end - start);
    }
    return rc ? rc : buf_append(out, in->data + at, in->bytes - at, err);
}

static int replace_pattern(const decode_step *step, const byte_buf *in, byte_buf *out,
                           smoe_error *err) {
    pattern_scan scan = {0};
    uint8_t *classes = malloc(in->bytes + 1);
    int rc =
        classes ? pattern_scan_init(&scan, step->pattern, err) : err_no_memory(err, in->bytes + 1);
    rc = rc ? rc : replace_matches(step, &scan, in, classes, out, err);
    pattern_scan_free(&scan);
    free(classes);
    return rc;
}

static int strip_text(const decode_step *step, const byte_buf *in, byte_buf *out, smoe_error *err) {
    const char *start = in->data;
    size_t left = in->bytes;
    size_t n = step->from_bytes;
    for (uint32_t i = 0; i < step->n_start && left >= n && memcmp(start, step->from, n) == 0; i++) {
        start += n;
        left -= n;
    }
    for (uint32_t i = 0;
         i < step->n_stop && left >= n && memcmp(start + left - n, step->from, n) == 0; i++) {
        left -= n;
    }
    return buf_append(out, start, left, err);
}

/* Symbols become spaces; at the start of a text all of them go, or one. */
static int replace_symbols(const decode_step *step, const byte_buf *in, bool is_first,
                           byte_buf *out, smoe_error *err) {
    decode_step space = *step;
    byte_buf rest = *in;
    bool drops = is_first && step->drops_at_start;
    space.to = " ";
    space.to_bytes = drops && !step->drops_one ? 0 : 1;
    if (drops && step->drops_one && in->bytes >= step->from_bytes &&
        memcmp(in->data, step->from, step->from_bytes) == 0) {
        rest.data += step->from_bytes;
        rest.bytes -= step->from_bytes;
    }
    return replace_text(&space, &rest, out, err);
}

static int apply_step(const decode_step *step, const byte_buf *in, bool is_first, byte_buf *out,
                      smoe_error *err) {
    switch (step->kind) {
    case DECODE_STRIP:
        return strip_text(step, in, out, err);
    case DECODE_METASPACE:
        return replace_symbols(step, in, is_first, out, err);
    default:
        return step->pattern ? replace_pattern(step, in, out, err)
                             : replace_text(step, in, out, err);
    }
}

/* ---- the tables */

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The value of "<0x0A>"; -1 for other texts. The reference library reads a sign there, too. */
static int byte_value(const char *text, size_t bytes) {
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') {
        return -1;
    }
    int high = text[3] == '+' ? 0 : hex_digit(text[3]);
    int low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Fills one entry with what content becomes. two: room for its forms on the way. */
static int fill_text(decoder *d, decode_text *out, const char *content, size_t bytes, bool is_first,
                     byte_buf two[2], smoe_error *err) {
    byte_buf *in = &two[0];
    byte_buf *next = &two[1];
    in->bytes = 0;
    int rc = buf_append(in, content, bytes, err);
    for (size_t i = 0; i < d->n_step && rc == SMOE_OK; i++) {
        next->bytes = 0;
        rc = buf_append(next, "", 0, err);
        rc = rc ? rc : apply_step(&d->steps[i], in, is_first, next, err);
        byte_buf *swap = in;
        in = next;
        next = swap;
    }
    if (rc != SMOE_OK) {
        return rc;
    }
    int byte = d->has_fallback ? byte_value(in->data, in->bytes) : -1;
    if (byte >= 0) {
        in->data[0] = (char)byte;
        in->bytes = 1;
    }
    *out = (decode_text){
        .offset = (uint32_t)d->bytes.bytes, .bytes = (uint32_t)in->bytes, .byte = (int16_t)byte};
    d->max_bytes = out->bytes > d->max_bytes ? out->bytes : d->max_bytes;
    return buf_append(&d->bytes, in->data, in->bytes, err);
}

static int fill_table(decoder *d, const vocab *v, decode_text **table, bool is_first,
                      smoe_error *err) {
    byte_buf two[2] = {{.max_bytes = UINT32_MAX}, {.max_bytes = UINT32_MAX}};
    int rc = SMOE_OK;
    *table = mem_array(v->n_id, sizeof **table);
    if (!*table) {
        return err_no_memory(err, (uint64_t)v->n_id * sizeof **table);
    }
    for (uint32_t id = 0; id < v->n_id && rc == SMOE_OK; id++) {
        (*table)[id].byte = -1;
        if (v->tokens[id].is_present) {
            rc = fill_text(d, &(*table)[id], vocab_text(v, id), v->tokens[id].bytes, is_first, two,
                           err);
        }
    }
    buf_free(&two[0]);
    buf_free(&two[1]);
    return rc;
}

int decoder_prepare(decoder *d, const vocab *v, smoe_error *err) {
    bool has_first = false;
    if (d->is_byte_level) {
        d->max_bytes = v->max_token_bytes;
        return SMOE_OK;
    }
    for (size_t i = 0; i < d->n_step; i++) {
        has_first |= d->steps[i].kind == DECODE_METASPACE && d->steps[i].drops_at_start;
    }
    d->bytes.max_bytes = (size_t)2 * LIMIT_TOKENIZER_BYTES;
    int rc = fill_table(d, v, &d->text, false, err);
    return rc || !has_first ? rc : fill_table(d, v, &d->first, true, err);
}

const char *decoder_text(const decoder *d, const vocab *v, uint32_t id, bool is_first,
                         uint32_t *bytes, int *byte) {
    if (d->is_byte_level) {
        *bytes = v->tokens[id].bytes;
        *byte = -1;
        return vocab_text(v, id);
    }
    const decode_text *t = is_first && d->first ? &d->first[id] : &d->text[id];
    *bytes = t->bytes;
    *byte = t->byte;
    return d->bytes.data + t->offset;
}
