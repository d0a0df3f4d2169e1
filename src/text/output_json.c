/* JSON byte by byte; see output_json.h. */
#include "text/output_json.h"

#include <string.h>

#include "base/utf8.h"

enum {
    AT_VALUE,      /* a value must come */
    AT_FIRST_ITEM, /* a value or ] */
    AT_FIRST_KEY,  /* a key or } */
    AT_KEY,        /* a key must come */
    IN_KEY,        /* inside its quotes */
    AT_COLON,
    IN_STRING,
    IN_ESCAPE, /* after a backslash */
    IN_HEX,
    IN_KEY_ESCAPE,
    IN_KEY_HEX,
    IN_LITERAL,
    NUMBER_MINUS,
    NUMBER_ZERO,
    NUMBER_WHOLE,
    NUMBER_POINT,
    NUMBER_FRACTION,
    NUMBER_E,
    NUMBER_E_SIGN,
    NUMBER_EXPONENT,
    AFTER_VALUE /* , or the end of what is open */
};

void json_scan_init(json_scan *s) {
    *s = (json_scan){.state = AT_VALUE};
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool in_object(const json_scan *s) {
    uint32_t top = s->depth - 1;
    return s->is_object[top / 8] >> top % 8 & 1;
}

static json_step enter(json_scan *s, bool is_object) {
    if (s->depth == LIMIT_JSON_DEPTH) {
        return JSON_BAD;
    }
    uint8_t bit = (uint8_t)(1u << s->depth % 8);
    uint8_t *bits = &s->is_object[s->depth / 8];
    *bits = (uint8_t)(is_object ? *bits | bit : *bits & ~bit);
    s->depth++;
    s->state = is_object ? AT_FIRST_KEY : AT_FIRST_ITEM;
    return JSON_MORE;
}

static json_step value_done(json_scan *s) {
    s->state = AFTER_VALUE;
    return s->depth ? JSON_MORE : JSON_DONE;
}

static json_step leave(json_scan *s, bool is_object) {
    if (in_object(s) != is_object) {
        return JSON_BAD;
    }
    s->depth--;
    return value_done(s);
}

static json_step to(json_scan *s, uint8_t state) {
    s->state = state;
    return JSON_MORE;
}

static json_step begin_value(json_scan *s, char c) {
    s->rest = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : NULL;
    if (s->rest) {
        return to(s, IN_LITERAL);
    }
    switch (c) {
    case '{':
    case '[':
        return enter(s, c == '{');
    case '"':
        return to(s, IN_STRING);
    case '-':
        return to(s, NUMBER_MINUS);
    case '0':
        return to(s, NUMBER_ZERO);
    default:
        return is_digit(c) ? to(s, NUMBER_WHOLE) : JSON_BAD;
    }
}

static json_step after_value(json_scan *s, char c) {
    if (c == ',') {
        return to(s, in_object(s) ? AT_KEY : AT_VALUE);
    }
    return c == '}' || c == ']' ? leave(s, c == '}') : JSON_BAD;
}

/* A byte that is no part of the number. */
static json_step end_number(json_scan *s, char c) {
    if (s->depth == 0) {
        return JSON_PAST;
    }
    s->state = AFTER_VALUE;
    return json_is_blank(c) ? JSON_MORE : after_value(s, c);
}

static json_step number(json_scan *s, char c) {
    bool digit = is_digit(c);
    bool exponent = c == 'e' || c == 'E';
    switch (s->state) {
    case NUMBER_MINUS:
        return digit ? to(s, c == '0' ? NUMBER_ZERO : NUMBER_WHOLE) : JSON_BAD;
    case NUMBER_ZERO:
    case NUMBER_WHOLE:
        if (digit) {
            return s->state == NUMBER_WHOLE ? JSON_MORE : JSON_BAD;
        }
        return c == '.' ? to(s, NUMBER_POINT) : exponent ? to(s, NUMBER_E) : end_number(s, c);
    case NUMBER_POINT:
        return digit ? to(s, NUMBER_FRACTION) : JSON_BAD;
    case NUMBER_FRACTION:
        return digit ? JSON_MORE : exponent ? to(s, NUMBER_E) : end_number(s, c);
    case NUMBER_E:
        return digit                  ? to(s, NUMBER_EXPONENT)
               : c == '+' || c == '-' ? to(s, NUMBER_E_SIGN)
                                      : JSON_BAD;
    case NUMBER_E_SIGN:
        return digit ? to(s, NUMBER_EXPONENT) : JSON_BAD;
    default:
        return digit ? JSON_MORE : end_number(s, c);
    }
}

static json_step in_text(json_scan *s, char c) {
    bool key = s->state == IN_KEY || s->state == IN_KEY_ESCAPE || s->state == IN_KEY_HEX;
    uint8_t plain = key ? IN_KEY : IN_STRING;
    if (s->state == IN_ESCAPE || s->state == IN_KEY_ESCAPE) {
        if (c == 'u') {
            s->left = 4;
            return to(s, key ? IN_KEY_HEX : IN_HEX);
        }
        return c && strchr("\"\\/bfnrt", c) ? to(s, plain) : JSON_BAD;
    }
    if (s->state == IN_HEX || s->state == IN_KEY_HEX) {
        s->left--;
        return !is_hex(c) ? JSON_BAD : s->left ? JSON_MORE : to(s, plain);
    }
    if (c == '\\') {
        return to(s, key ? IN_KEY_ESCAPE : IN_ESCAPE);
    }
    if (c == '"') {
        return key ? to(s, AT_COLON) : value_done(s);
    }
    return (unsigned char)c < 0x20 ? JSON_BAD : JSON_MORE;
}

json_step json_scan_byte(json_scan *s, char c) {
    switch (s->state) {
    case IN_LITERAL:
        if (*s->rest != c) {
            return JSON_BAD;
        }
        s->rest++;
        return *s->rest ? JSON_MORE : value_done(s);
    case IN_KEY:
    case IN_STRING:
    case IN_ESCAPE:
    case IN_HEX:
    case IN_KEY_ESCAPE:
    case IN_KEY_HEX:
        return in_text(s, c);
    case AT_VALUE:
    case AT_FIRST_ITEM:
    case AT_FIRST_KEY:
    case AT_KEY:
    case AT_COLON:
    case AFTER_VALUE:
        break;
    default:
        return number(s, c);
    }
    if (json_is_blank(c)) {
        return JSON_MORE;
    }
    switch (s->state) {
    case AT_FIRST_ITEM:
        return c == ']' ? leave(s, false) : begin_value(s, c);
    case AT_FIRST_KEY:
    case AT_KEY:
        return c == '"'                               ? to(s, IN_KEY)
               : c == '}' && s->state == AT_FIRST_KEY ? leave(s, true)
                                                      : JSON_BAD;
    case AT_COLON:
        return c == ':' ? to(s, AT_VALUE) : JSON_BAD;
    case AFTER_VALUE:
        return s->depth ? after_value(s, c) : JSON_BAD;
    default:
        return begin_value(s, c);
    }
}

static unsigned kind_at(const char *text, size_t bytes) {
    switch (text[0]) {
    case 'n':
        return JSON_KIND_NULL;
    case 't':
    case 'f':
        return JSON_KIND_BOOLEAN;
    case '"':
        return JSON_KIND_STRING;
    case '[':
        return JSON_KIND_ARRAY;
    case '{':
        return JSON_KIND_OBJECT;
    default:
        break;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '.' || text[i] == 'e' || text[i] == 'E') {
            return JSON_KIND_NUMBER;
        }
    }
    return JSON_KIND_INTEGER;
}

unsigned json_kind_of(const char *text, size_t bytes) {
    json_scan s;
    json_scan_init(&s);
    if (bytes == 0 || json_is_blank(text[0])) {
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) {
        json_step r = json_scan_byte(&s, text[i]);
        if (r == JSON_DONE && i + 1 == bytes) {
            return kind_at(text, bytes);
        }
        if (r != JSON_MORE) {
            return 0;
        }
    }
    return json_scan_byte(&s, ' ') == JSON_PAST ? kind_at(text, bytes) : 0;
}

/* ---- strings */

int json_escape(byte_buf *out, const char *text, size_t bytes, smoe_error *err) {
    int rc = SMOE_OK;
    size_t from = 0;
    for (size_t i = 0; i < bytes && rc == SMOE_OK; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }
        const char *named = c == '\n'   ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                            : c == '"'  ? "\\\""
                            : c == '\\' ? "\\\\"
                                        : NULL;
        rc = buf_append(out, text + from, i - from, err);
        from = i + 1;
        rc = rc ? rc : named ? buf_append(out, named, 2, err) : buf_printf(out, err, "\\u%04x", c);
    }
    return rc ? rc : buf_append(out, text + from, bytes - from, err);
}

static uint32_t hex4(const char *p) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        uint32_t digit = is_digit(c) ? (uint32_t)(c - '0') : ((uint32_t)c & 7) + 9;
        v = v << 4 | digit;
    }
    return v;
}

/* Reads the \u escape at p, with its second half if it has one; returns its bytes. */
static size_t read_unicode(const char *p, size_t left, uint32_t *cp) {
    *cp = hex4(p + 2);
    if (*cp >= 0xd800 && *cp < 0xdc00 && left >= 12 && p[6] == '\\' && p[7] == 'u') {
        uint32_t low = hex4(p + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
            return 12;
        }
    }
    *cp = *cp >= 0xd800 && *cp < 0xe000 ? 0xfffd : *cp;
    return 6;
}

int json_unescape(byte_buf *out, const char *text, size_t bytes, smoe_error *err) {
    static const char from[] = "\"\\/bfnrt";
    static const char means[] = "\"\\/\b\f\n\r\t";
    int rc = SMOE_OK;
    size_t i = 0;
    while (i < bytes && rc == SMOE_OK) {
        const char *slash = memchr(text + i, '\\', bytes - i);
        size_t plain = slash ? (size_t)(slash - text) - i : bytes - i;
        rc = buf_append(out, text + i, plain, err);
        i += plain;
        if (i == bytes || rc != SMOE_OK) {
            break;
        }
        if (text[i + 1] == 'u') {
            uint32_t cp;
            uint8_t utf8[4];
            i += read_unicode(text + i, bytes - i, &cp);
            rc = buf_append(out, utf8, utf8_encode(cp, utf8), err);
        } else {
            rc = buf_append(out, means + (strchr(from, text[i + 1]) - from), 1, err);
            i += 2;
        }
    }
    return rc;
}
