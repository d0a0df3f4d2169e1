/* Numbers of schemas, exactly: bounds are decimal texts, and a number is compared with them digit
 * by digit, as it is written.
 *
 * Whole numbers have at most SCHEMA_INT_DIGITS digits, fractions at most SCHEMA_FRAC_DIGITS; only a
 * number without bounds may have an exponent. So no text can stay in a number for ever, and what is
 * written fits the types that read it.
 */
#include <stdio.h>
#include <string.h>

#include "text/schema_impl.h"

/* A decimal without leading zeros of the whole and trailing zeros of the fraction. */
typedef struct decimal {
    bool is_negative;
    char whole[SCHEMA_INT_DIGITS + 2]; /* "0" at least; one more than may be written */
    char frac[SCHEMA_FRAC_DIGITS + 1];
} decimal;

/* A bound on a magnitude. */
typedef struct bound {
    bool is_there;
    bool is_exclusive;
    decimal at;
} bound;

typedef struct range {
    schema_reader *r;
    const bound *low, *high;
    size_t n_frac; /* digits behind the point at most; 0: none */
} range;

/* ---- reading */

static bool is_number(struct json_object *value) {
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

static bool is_zero(const decimal *d) {
    return strcmp(d->whole, "0") == 0 && !d->frac[0];
}

/* A JSON number's text; false when it has too many digits. */
static bool parse_decimal(const char *text, decimal *out) {
    char digits[64];
    int n = 0;
    int point = -1;
    long exponent = 0;
    *out = (decimal){.is_negative = *text == '-'};
    text += *text == '-';
    for (; *text && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.') {
            point = n;
        } else if (n < (int)sizeof digits) {
            digits[n++] = *text;
        } else {
            return false;
        }
    }
    if (*text) {
        exponent = strtol(text + 1, NULL, 10);
        exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
    }
    point = (int)exponent + (point < 0 ? n : point);
    int first = 0;
    while (first < n && digits[first] == '0') {
        first++;
    }
    while (n > first && digits[n - 1] == '0') {
        n--;
    }
    if (first == n) {
        memcpy(out->whole, "0", 2);
        out->is_negative = false;
        return true;
    }
    int n_whole = 0;
    int n_frac = 0;
    for (int i = first; i < point; i++) {
        if (n_whole == SCHEMA_INT_DIGITS) {
            return false;
        }
        out->whole[n_whole++] = i < n ? digits[i] : '0';
    }
    if (n_whole == 0) {
        out->whole[0] = '0';
    }
    for (int i = point; i < n; i++) {
        if (n_frac == SCHEMA_FRAC_DIGITS) {
            return false;
        }
        out->frac[n_frac++] = i < first ? '0' : digits[i];
    }
    return true;
}

static int compare_magnitude(const decimal *a, const decimal *b) {
    size_t n_a = strlen(a->whole);
    size_t n_b = strlen(b->whole);
    if (n_a != n_b) {
        return n_a < n_b ? -1 : 1;
    }
    int order = strcmp(a->whole, b->whole);
    return order ? order : strcmp(a->frac, b->frac);
}

static int compare(const decimal *a, const decimal *b) {
    if (a->is_negative != b->is_negative) {
        return a->is_negative ? -1 : 1;
    }
    int order = compare_magnitude(a, b);
    return a->is_negative ? -order : order;
}

/* Takes a bound when it is tighter: sign 1 for lower bounds, -1 for upper ones. */
static void tighten(bound *b, const decimal *at, bool is_exclusive, int sign) {
    int order = b->is_there ? sign * compare(at, &b->at) : 1;
    if (order > 0) {
        *b = (bound){true, is_exclusive, *at};
    } else if (order == 0) {
        b->is_exclusive |= is_exclusive;
    }
}

static bool read_bound(schema_reader *r, struct json_object *schema, const schema_place *at,
                       const char *key, bool is_exclusive, int sign, bound *out) {
    struct json_object *value = schema_find(schema, key);
    schema_place here = {at, key, 0};
    decimal d;
    if (!json_object_object_get_ex(schema, key, NULL)) {
        return true;
    }
    if (!is_number(value)) {
        return schema_wrong(r, &here, "must be a number");
    }
    if (!parse_decimal(json_object_to_json_string(value), &d)) {
        return schema_wrong(r, &here,
                            "more than %d digits before or %d behind the point are not "
                            "supported",
                            SCHEMA_INT_DIGITS, SCHEMA_FRAC_DIGITS);
    }
    tighten(out, &d, is_exclusive, sign);
    return true;
}

/* int32 is a pair of bounds; what is written fits int64 and double anyway. */
static bool read_format(schema_reader *r, struct json_object *schema, const schema_place *at,
                        bound *low, bound *high) {
    struct json_object *value = schema_find(schema, "format");
    schema_place here = {at, "format", 0};
    decimal least;
    decimal most;
    if (!json_object_object_get_ex(schema, "format", NULL)) {
        return true;
    }
    const char *name =
        json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
    if (strcmp(name, "int32") == 0) {
        parse_decimal("-2147483648", &least);
        parse_decimal("2147483647", &most);
        tighten(low, &least, false, 1);
        tighten(high, &most, false, -1);
        return true;
    }
    return strcmp(name, "int64") == 0 || strcmp(name, "double") == 0 ||
           schema_wrong(r, &here, "the format \"%.40s\" of numbers is not supported", name);
}

/* ---- magnitudes */

static const grammar_node *never(const range *g) {
    return grammar_class(g->r->g, &(cp_set){0});
}

static const grammar_node *digits(const range *g, size_t min, size_t max) {
    return grammar_repeat(g->r->g, grammar_range(g->r->g, '0', '9'), (uint32_t)min, (uint32_t)max);
}

/* One step of a comparison: the digits strictly between the bounds, then those that are equal to
 * one and stay bound. */
typedef struct choice {
    const grammar_node *node[4];
    size_t n;
} choice;

static void add(const range *g, choice *c, char first, char last, const grammar_node *rest) {
    c->node[c->n++] =
        GRAMMAR_SEQ_OF(g->r->g, grammar_range(g->r->g, (uint8_t)first, (uint8_t)last), rest);
}

/* Digits behind the point from place at on; tight_low: all before equal the lower bound's. */
static const grammar_node *fraction(const range *g, size_t at, bool tight_low, bool tight_high) {
    if (!tight_low && !tight_high) {
        return digits(g, at == 0, g->n_frac - at);
    }
    const char *low_text = g->low->at.frac;
    const char *high_text = g->high->at.frac;
    bool low_left = tight_low && at < strlen(low_text);
    bool high_left = tight_high && at < strlen(high_text);
    bool may_end = at > 0 && !low_left && !(tight_low && g->low->is_exclusive) &&
                   (high_left || !(tight_high && g->high->is_exclusive));
    choice c = {0};
    if (may_end) {
        c.node[c.n++] = grammar_text(g->r->g, "");
    }
    if (at < g->n_frac) {
        char low = low_left ? low_text[at] : '0';
        char high = !tight_high ? '9' : high_left ? high_text[at] : '0';
        if (low == high && tight_low && tight_high) {
            add(g, &c, low, low, fraction(g, at + 1, true, true));
        } else if (low <= high) {
            if (tight_low) {
                add(g, &c, low, low, fraction(g, at + 1, true, tight_high && low == high));
            }
            if (tight_high && !(tight_low && low == high)) {
                add(g, &c, high, high, fraction(g, at + 1, false, true));
            }
            char first = (char)(low + tight_low);
            char last = (char)(high - tight_high);
            if (first <= last) {
                add(g, &c, first, last, fraction(g, at + 1, false, false));
            }
        }
    }
    return c.n ? grammar_alt(g->r->g, c.n, c.node) : never(g);
}

/* What follows the whole digits. */
static const grammar_node *behind_whole(const range *g, bool tight_low, bool tight_high) {
    grammar *out = g->r->g;
    bool may_end = !(tight_low && (g->low->at.frac[0] || g->low->is_exclusive)) &&
                   !(tight_high && !g->high->at.frac[0] && g->high->is_exclusive);
    choice c = {0};
    if (may_end) {
        c.node[c.n++] = grammar_text(out, "");
    }
    if (g->n_frac) {
        c.node[c.n++] =
            GRAMMAR_SEQ_OF(out, grammar_text(out, "."), fraction(g, 0, tight_low, tight_high));
    }
    return c.n ? grammar_alt(out, c.n, c.node) : never(g);
}

/* Whole digits from place at on, of n. */
static const grammar_node *whole(const range *g, size_t at, size_t n, bool tight_low,
                                 bool tight_high) {
    if (at == n) {
        return behind_whole(g, tight_low, tight_high);
    }
    char least = at == 0 && n > 1 ? '1' : '0';
    if (!tight_low && !tight_high) {
        const grammar_node *rest = behind_whole(g, false, false);
        return GRAMMAR_SEQ_OF(g->r->g, grammar_range(g->r->g, (uint8_t)least, '9'),
                              digits(g, n - at - 1, n - at - 1), rest);
    }
    char low = tight_low ? g->low->at.whole[at] : least;
    char high = tight_high ? g->high->at.whole[at] : '9';
    choice c = {0};
    if (tight_low && tight_high && low == high) {
        return GRAMMAR_SEQ_OF(g->r->g, grammar_range(g->r->g, (uint8_t)low, (uint8_t)low),
                              whole(g, at + 1, n, true, true));
    }
    if (low > high) {
        return never(g);
    }
    if (tight_low) {
        add(g, &c, low, low, whole(g, at + 1, n, true, false));
    }
    if (tight_high) {
        add(g, &c, high, high, whole(g, at + 1, n, false, true));
    }
    char first = (char)(low + tight_low);
    char last = (char)(high - tight_high);
    if (first <= last) {
        add(g, &c, first, last, whole(g, at + 1, n, false, false));
    }
    return c.n ? grammar_alt(g->r->g, c.n, c.node) : never(g);
}

/* Magnitudes between two bounds, of which the lower one is there. */
static const grammar_node *magnitudes(schema_reader *r, const bound *low, const bound *high,
                                      size_t n_frac) {
    range g = {.r = r, .low = low, .high = high, .n_frac = n_frac};
    const grammar_node *by_length[SCHEMA_INT_DIGITS + 1];
    size_t n = 0;
    size_t shortest = strlen(low->at.whole);
    size_t longest = high->is_there ? strlen(high->at.whole) : SCHEMA_INT_DIGITS;
    if (high->is_there && compare_magnitude(&low->at, &high->at) > 0) {
        return never(&g);
    }
    for (size_t length = shortest; length <= longest; length++) {
        by_length[n++] =
            whole(&g, 0, length, length == shortest, high->is_there && length == longest);
    }
    return grammar_alt(r->g, n, by_length);
}

/* ---- signed ranges */

/* Turns the bound of a whole number into an inclusive one; sign 1 for lower bounds. */
static void make_whole(bound *b, int sign) {
    if (!b->is_there) {
        return;
    }
    bool has_frac = b->at.frac[0] != 0;
    bool moves = has_frac || b->is_exclusive;
    /* cutting the fraction off goes towards zero */
    bool towards_zero = b->at.is_negative == (sign > 0);
    long long v = strtoll(b->at.whole, NULL, 10);
    v = b->at.is_negative ? -v : v;
    if (moves && !(has_frac && towards_zero)) {
        v += sign;
    }
    b->is_exclusive = false;
    b->at = (decimal){.is_negative = v < 0};
    snprintf(b->at.whole, sizeof b->at.whole, "%.18lld", v < 0 ? -v : v);
    size_t zeros = strspn(b->at.whole, "0");
    size_t n = strlen(b->at.whole);
    zeros = zeros == n ? n - 1 : zeros;
    memmove(b->at.whole, b->at.whole + zeros, n - zeros + 1);
}

static const grammar_node *bounded(schema_reader *r, const bound *low, const bound *high,
                                   size_t n_frac) {
    grammar *g = r->g;
    const bound zero = {.is_there = true, .at = {.whole = "0"}};
    const bound above_zero = {
        .is_there = true, .is_exclusive = n_frac > 0, .at = {.whole = {n_frac ? '0' : '1'}}};
    const bound none = {0};
    const grammar_node *node[2];
    size_t n = 0;
    bool low_negative = !low->is_there || low->at.is_negative;
    bool high_negative =
        high->is_there && (high->at.is_negative || (is_zero(&high->at) && high->is_exclusive));
    if (low->is_there && high->is_there) {
        int order = compare(&low->at, &high->at);
        if (order > 0 || (order == 0 && (low->is_exclusive || high->is_exclusive))) {
            return grammar_class(g, &(cp_set){0});
        }
    }
    if (!high_negative) {
        node[n++] = magnitudes(r, low_negative ? &zero : low, high, n_frac);
    }
    if (low_negative) {
        /* magnitudes of negative numbers: the bounds change places */
        const bound *least = high->is_there && high->at.is_negative ? high : &above_zero;
        const bound *most = low->is_there ? low : &none;
        node[n++] = GRAMMAR_SEQ_OF(g, grammar_text(g, "-"), magnitudes(r, least, most, n_frac));
    }
    return n ? grammar_alt(g, n, node) : grammar_class(g, &(cp_set){0});
}

static const grammar_node *unbounded(schema_reader *r, bool is_integer) {
    grammar *g = r->g;
    const grammar_node *digit = grammar_range(g, '0', '9');
    const grammar_node *integer = GRAMMAR_SEQ_OF(
        g, grammar_optional(g, grammar_text(g, "-")),
        GRAMMAR_ALT_OF(g, grammar_text(g, "0"),
                       GRAMMAR_SEQ_OF(g, grammar_range(g, '1', '9'),
                                      grammar_repeat(g, digit, 0, SCHEMA_INT_DIGITS - 1))));
    if (is_integer) {
        return integer;
    }
    const grammar_node *frac =
        GRAMMAR_SEQ_OF(g, grammar_text(g, "."), grammar_repeat(g, digit, 1, SCHEMA_FRAC_DIGITS));
    cp_set signs = {0};
    cp_set_add(&signs, '+', '+');
    cp_set_add(&signs, '-', '-');
    const grammar_node *sign = grammar_optional(g, grammar_class(g, &signs));
    cp_set_free(&signs);
    const grammar_node *exponent =
        GRAMMAR_SEQ_OF(g, GRAMMAR_ALT_OF(g, grammar_text(g, "e"), grammar_text(g, "E")), sign,
                       grammar_repeat(g, digit, 1, 2));
    return GRAMMAR_SEQ_OF(g, integer, grammar_optional(g, frac), grammar_optional(g, exponent));
}

/* ---- multiples */

/* v * 10^places as a whole number; false when it does not fit. */
static bool scaled(const decimal *d, size_t places, int64_t *out) {
    char text[SCHEMA_INT_DIGITS + SCHEMA_FRAC_DIGITS + 3];
    size_t n = strlen(d->frac);
    int used = snprintf(text, sizeof text, "%s%s", d->whole, d->frac);
    if (used < 0 || (size_t)used + places - n > SCHEMA_INT_DIGITS) {
        return false;
    }
    memset(text + used, '0', places - n);
    text[(size_t)used + places - n] = '\0';
    *out = strtoll(text, NULL, 10) * (d->is_negative ? -1 : 1);
    return true;
}

/* Writes a scaled number as a decimal. */
static const grammar_node *unscaled(schema_reader *r, int64_t v, size_t places) {
    char text[48];
    char digits_text[32];
    int n = snprintf(digits_text, sizeof digits_text, "%0*lld", (int)places + 1,
                     (long long)(v < 0 ? -v : v));
    size_t whole_bytes = (size_t)n - places;
    snprintf(text, sizeof text, "%s%.*s%s%s", v < 0 ? "-" : "", (int)whole_bytes, digits_text,
             places ? "." : "", digits_text + whole_bytes);
    if (places) {
        size_t end = strlen(text);
        while (text[end - 1] == '0') {
            end--;
        }
        end -= text[end - 1] == '.';
        text[end] = '\0';
    }
    return grammar_text(r->g, text);
}

static const grammar_node *listed(schema_reader *r, const bound *low, const bound *high,
                                  const decimal *step, const schema_place *at) {
    size_t places = strlen(step->frac);
    int64_t first;
    int64_t last;
    int64_t by;
    const bound *bounds[] = {low, high};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(bounds[i]->at.frac);
        places = n > places ? n : places;
    }
    if (!scaled(step, places, &by) || !scaled(&low->at, places, &first) ||
        !scaled(&high->at, places, &last)) {
        return schema_wrong(r, at, "numbers with so many digits are not supported");
    }
    first += low->is_exclusive;
    last -= high->is_exclusive;
    int64_t k = first / by + (first % by > 0);
    int64_t end = last / by - (last % by < 0);
    if (end - k >= SCHEMA_MULTIPLES) {
        return schema_wrong(r, at, "more than %d multiples within the bounds are not supported",
                            SCHEMA_MULTIPLES);
    }
    const grammar_node **node = mem_array(end >= k ? (size_t)(end - k + 1) : 0, sizeof *node);
    size_t n = 0;
    if (!node) {
        grammar_out_of_memory(r->g, SCHEMA_MULTIPLES * sizeof *node);
        return NULL;
    }
    for (; k <= end; k++) {
        node[n++] = unscaled(r, k * by, places);
    }
    const grammar_node *choices = grammar_alt(r->g, n, node);
    free((void *)node);
    return choices;
}

/* Whole multiples without bounds, by remainder: one rule for each, which names that of the number
 * that a digit makes of it. */
static const grammar_node *by_remainder(schema_reader *r, uint32_t step, bool has_sign) {
    grammar *g = r->g;
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < step; i++) {
        uint32_t rule = grammar_rule_new(g, "multiple");
        first = i ? first : rule;
    }
    for (uint32_t i = 0; i < step && grammar_status(g) == SMOE_OK; i++) {
        const grammar_node *node[11];
        size_t n = 0;
        for (uint32_t d = 0; d < 10; d++) {
            node[n++] = GRAMMAR_SEQ_OF(g, grammar_range(g, '0' + d, '0' + d),
                                       grammar_call(g, first + (10 * i + d) % step));
        }
        if (i == 0) {
            node[n++] = grammar_text(g, "");
        }
        grammar_define(g, first + i, grammar_alt(g, n, node));
    }
    const grammar_node *lead[10];
    lead[0] = grammar_text(g, "0");
    for (uint32_t d = 1, left = 0; d < 10; d++) {
        left = left + 1 < step ? left + 1 : 0; /* d modulo step */
        const grammar_node *rest =
            GRAMMAR_SEQ_OF(g, grammar_range(g, '0' + d, '0' + d), grammar_call(g, first + left));
        lead[d] =
            has_sign ? GRAMMAR_SEQ_OF(g, grammar_optional(g, grammar_text(g, "-")), rest) : rest;
    }
    return grammar_alt(g, 10, lead);
}

/* 10^-n with n up to the digits of a fraction: SIZE_MAX when it is none. */
static size_t power_below_one(const decimal *d) {
    size_t n = strlen(d->frac);
    bool is_power =
        strcmp(d->whole, "0") == 0 && n && d->frac[n - 1] == '1' && strspn(d->frac, "0") == n - 1;
    return is_power ? n : SIZE_MAX;
}

static const grammar_node *multiples(schema_reader *r, struct json_object *value, bound *low,
                                     bound *high, bool is_integer, const schema_place *at) {
    schema_place here = {at, "multipleOf", 0};
    decimal step;
    if (!is_number(value) || !parse_decimal(json_object_to_json_string(value), &step) ||
        step.is_negative || is_zero(&step)) {
        return schema_wrong(r, &here,
                            "must be a number above 0 with at most %d digits on each side",
                            SCHEMA_FRAC_DIGITS);
    }
    size_t n_frac = power_below_one(&step);
    bool is_one = strcmp(step.whole, "1") == 0 && !step.frac[0];
    if (is_one || n_frac != SIZE_MAX) {
        if (is_one || is_integer) {
            make_whole(low, 1);
            make_whole(high, -1);
        }
        return bounded(r, low, high, is_one || is_integer ? 0 : n_frac);
    }
    if (low->is_there && high->is_there) {
        if (is_integer && step.frac[0]) {
            return schema_wrong(r, &here, "a fraction is not supported for integers");
        }
        return listed(r, low, high, &step, &here);
    }
    long k = strtol(step.whole, NULL, 10);
    bool from_zero = low->is_there && is_zero(&low->at) && !low->is_exclusive;
    if (step.frac[0] || k > 1000 || high->is_there || (low->is_there && !from_zero)) {
        return schema_wrong(r, &here,
                            "supported are 1 and powers of ten below it; others need "
                            "minimum and maximum, or are whole numbers up to 1000 with "
                            "no bound or minimum 0");
    }
    return by_remainder(r, (uint32_t)k, !from_zero);
}

const grammar_node *schema_number(schema_reader *r, struct json_object *schema,
                                  const schema_place *at, bool is_integer) {
    bound low = {0};
    bound high = {0};
    const grammar_node *node;
    if (!read_bound(r, schema, at, "minimum", false, 1, &low) ||
        !read_bound(r, schema, at, "exclusiveMinimum", true, 1, &low) ||
        !read_bound(r, schema, at, "maximum", false, -1, &high) ||
        !read_bound(r, schema, at, "exclusiveMaximum", true, -1, &high) ||
        !read_format(r, schema, at, &low, &high)) {
        return NULL;
    }
    if (is_integer) {
        make_whole(&low, 1);
        make_whole(&high, -1);
    }
    if (json_object_object_get_ex(schema, "multipleOf", NULL)) {
        node = multiples(r, schema_find(schema, "multipleOf"), &low, &high, is_integer, at);
    } else if (low.is_there || high.is_there) {
        node = bounded(r, &low, &high, is_integer ? 0 : SCHEMA_FRAC_DIGITS);
    } else {
        node = unbounded(r, is_integer);
    }
    return schema_rule(r, is_integer ? "integer" : "number", node);
}
