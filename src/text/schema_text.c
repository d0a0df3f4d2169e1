/* Strings of schemas: lengths, patterns and the formats that are known. */
#include <string.h>

#include "text/schema_impl.h"

const grammar_node *schema_char(schema_reader *r, bool with_unicode_escapes) {
    grammar *g = r->g;
    cp_set plain = {0};
    cp_set_add(&plain, 0x20, '"' - 1);
    cp_set_add(&plain, '"' + 1, '\\' - 1);
    cp_set_add(&plain, '\\' + 1, UCD_LAST);
    const grammar_node *one = grammar_class(g, &plain);
    cp_set_free(&plain);
    const grammar_node *simple[8];
    static const char *const escapes[8] = {"\\\"", "\\\\", "\\/", "\\b",
                                           "\\f",  "\\n",  "\\r", "\\t"};
    for (size_t i = 0; i < 8; i++) {
        simple[i] = grammar_text(g, escapes[i]);
    }
    const grammar_node *known = grammar_alt(g, 8, simple);
    if (!with_unicode_escapes) {
        return GRAMMAR_ALT_OF(g, one, known);
    }
    cp_set hex = {0};
    cp_set_add(&hex, '0', '9');
    cp_set_add(&hex, 'A', 'F');
    cp_set_add(&hex, 'a', 'f');
    const grammar_node *any = grammar_class(g, &hex);
    cp_set_free(&hex);
    cp_set low = {0};
    cp_set_add(&low, '0', '7');
    const grammar_node *octal = grammar_class(g, &low);
    cp_set_free(&low);
    cp_set but_d = {0};
    cp_set_add(&but_d, '0', '9');
    cp_set_add(&but_d, 'A', 'C');
    cp_set_add(&but_d, 'E', 'F');
    cp_set_add(&but_d, 'a', 'c');
    cp_set_add(&but_d, 'e', 'f');
    const grammar_node *not_d = grammar_class(g, &but_d);
    cp_set_free(&but_d);
    const grammar_node *d = GRAMMAR_ALT_OF(g, grammar_text(g, "d"), grammar_text(g, "D"));
    const grammar_node *high = GRAMMAR_ALT_OF(
        g, grammar_range(g, '8', '9'), grammar_range(g, 'A', 'B'), grammar_range(g, 'a', 'b'));
    const grammar_node *tail =
        GRAMMAR_ALT_OF(g, grammar_range(g, 'C', 'F'), grammar_range(g, 'c', 'f'));
    /* no half of a pair without the other */
    const grammar_node *begin = grammar_text(g, "\\u");
    const grammar_node *single = GRAMMAR_SEQ_OF(
        g, begin, GRAMMAR_ALT_OF(g, GRAMMAR_SEQ_OF(g, not_d, any), GRAMMAR_SEQ_OF(g, d, octal)),
        any, any);
    const grammar_node *pair =
        GRAMMAR_SEQ_OF(g, begin, d, high, any, any, begin, d, tail, any, any);
    return GRAMMAR_ALT_OF(g, one, known, single, pair);
}

/* ---- formats: regular expressions for texts that every reading of the format accepts */

#define YEAR_DAYS                                                                                  \
    "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-(?:"                                   \
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"                                               \
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LEAP_DAYS                                                                                  \
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
#define DATE "(?:" YEAR_DAYS "|" LEAP_DAYS ")"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"                                 \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL "){0,3}"
#define BYTE  "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4  BYTE "\\." BYTE "\\." BYTE "\\." BYTE
#define H16   "[0-9a-fA-F]{1,4}"
#define LS32  "(?:" H16 ":" H16 "|" IPV4 ")"
/* RFC 3986, appendix A: a scheme, an authority with a name for host, and what may follow */
#define URI_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI                                                                                        \
    "[A-Za-z][A-Za-z0-9+.-]{0,15}://" HOST "(?::[0-9]{1,4})?(?:/" URI_CHAR "*)*"                   \
    "(?:\\?(?:" URI_CHAR "|[/?])*)?(?:#(?:" URI_CHAR "|[/?])*)?"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"

static const struct {
    const char *name;
    const char *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(?:[0-9]{1,4}W|(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|"
                 "[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
                 "(?:T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|"
                 "[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))?|"
                 "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|"
                 "[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))$"},
    {"email", "^" ATOM "(?:\\." ATOM "){0,2}@" HOST "$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16
             ":){4}" LS32 "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16
             ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16
             ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16
             "|(?:(?:" H16 ":){0,6}" H16 ")?::)$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"uri", "^" URI "$"},
    {"json-pointer", "^(?:/(?:[^/~]|~[01])*)*$"},
};

static const grammar_node *read_format(schema_reader *r, struct json_object *value,
                                       const schema_place *at) {
    schema_place here = {at, "format", 0};
    const char *name =
        json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return schema_regex(r, formats[i].pattern, strlen(formats[i].pattern), &here);
        }
    }
    return schema_wrong(r, &here,
                        "the format \"%.40s\" is not supported; known are date, time, date-time, "
                        "duration, email, hostname, ipv4, ipv6, uuid, uri and json-pointer",
                        name);
}

static const grammar_node *read_pattern(schema_reader *r, struct json_object *value,
                                        const schema_place *at) {
    schema_place here = {at, "pattern", 0};
    if (!json_object_is_type(value, json_type_string)) {
        return schema_wrong(r, &here, "must be a string");
    }
    return schema_regex(r, json_object_get_string(value), (size_t)json_object_get_string_len(value),
                        &here);
}

/* Strings of min to max characters. */
static const grammar_node *of_length(schema_reader *r, uint32_t min, uint32_t max) {
    grammar *g = r->g;
    const grammar_node *one = schema_char(r, false);
    if (max != GRAMMAR_MANY) {
        return grammar_repeat(g, one, min, max);
    }
    return GRAMMAR_SEQ_OF(g, grammar_repeat(g, one, min, min),
                          grammar_repeat(g, schema_char(r, true), 0, GRAMMAR_MANY));
}

/* The same for a pattern's texts, which write control characters as \u00xx. */
static const grammar_node *of_pattern_length(schema_reader *r, uint32_t min, uint32_t max) {
    return grammar_repeat(r->g, schema_char(r, true), min, max);
}

const grammar_node *schema_string(schema_reader *r, struct json_object *schema,
                                  const schema_place *at) {
    grammar *g = r->g;
    uint32_t min = 0;
    uint32_t max = GRAMMAR_MANY;
    const grammar_node *inside = NULL;
    if (!schema_count(r, schema, at, "minLength", &min) ||
        !schema_count(r, schema, at, "maxLength", &max)) {
        return NULL;
    }
    bool has_length = min > 0 || max != GRAMMAR_MANY;
    bool has_pattern = json_object_object_get_ex(schema, "pattern", NULL);
    bool has_format = json_object_object_get_ex(schema, "format", NULL);
    if (!has_length && !has_pattern && !has_format) {
        return schema_any_string(r);
    }
    if (min > SCHEMA_LENGTH) {
        return schema_wrong(r, at, "minLength is above the limit of %d", SCHEMA_LENGTH);
    }
    if (max < min) {
        return grammar_class(g, &(cp_set){0});
    }
    max = max != GRAMMAR_MANY && max > SCHEMA_LENGTH ? SCHEMA_LENGTH : max;
    if (has_pattern) {
        inside = read_pattern(r, schema_find(schema, "pattern"), at);
    }
    if (has_format) {
        const grammar_node *format = read_format(r, schema_find(schema, "format"), at);
        inside = has_pattern ? grammar_both(g, inside, format) : format;
    }
    if (has_length) {
        inside = has_pattern || has_format ? grammar_both(g, inside, of_pattern_length(r, min, max))
                                           : of_length(r, min, max);
    }
    return schema_rule(r, "string",
                       GRAMMAR_SEQ_OF(g, grammar_text(g, "\""), inside, grammar_text(g, "\"")));
}
