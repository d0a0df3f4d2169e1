/* Errors as values: formatting and cleaning of the one text line. Owns no state. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Copies text to out, replacing what a terminal or a log line could choke on. */
static void clean_copy(char *out, size_t out_bytes, const char *text) {
    size_t n = strlen(text);
    size_t o = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used = utf8_decode((const uint8_t *)text + i, n - i, &cp);
        const char *piece = text + i;
        size_t piece_bytes = used;
        if (used == 0 || cp < 0x20 || cp == 0x7f) {
            piece = "?";
            piece_bytes = 1;
            used = used ? used : 1;
        }
        if (o + piece_bytes + 1 > out_bytes) {
            break;
        }
        memcpy(out + o, piece, piece_bytes);
        o += piece_bytes;
        i += used;
    }
    out[o] = '\0';
}

__attribute__((format(printf, 3, 0))) static int set_v(smoe_error *err, int code,
                                                       const char *format, va_list args) {
    if (!err) {
        return code;
    }
    char raw[SMOE_ERROR_TEXT_BYTES * 2];
    vsnprintf(raw, sizeof raw, format, args);
    err->code = code;
    clean_copy(err->text, sizeof err->text, raw);
    return code;
}

int err_set(smoe_error *err, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set_v(err, code, format, args);
    va_end(args);
    return code;
}

int err_errno(smoe_error *err, int errnum, const char *format, ...) {
    int code = errnum == ENOMEM ? SMOE_ERR_MEMORY : SMOE_ERR_IO;
    char what[SMOE_ERROR_TEXT_BYTES];
    char why[128];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    /* the GNU strerror_r, thread safe: may return a static string instead of filling why */
    return err_set(err, code, "%s: %s", what, strerror_r(errnum, why, sizeof why));
}

int err_prefix(smoe_error *err, int code, const char *format, ...) {
    if (!err) {
        return code;
    }
    char old[SMOE_ERROR_TEXT_BYTES];
    char prefix[SMOE_ERROR_TEXT_BYTES];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return err_set(err, err->code, "%s: %s", prefix, old);
}

int err_no_memory(smoe_error *err, uint64_t bytes) {
    return err_set(
        err, SMOE_ERR_MEMORY,
        "out of memory: could not get %llu bytes; close other programs or lower --memory",
        (unsigned long long)bytes);
}
