/* Look-ups in the generated Unicode tables; see unicode.h. Owns no state. */
#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

static const char category_names[UCD_CATEGORIES][3] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

static uint8_t run_value(const uint32_t *runs, size_t n_run, uint32_t cp) {
    size_t low = 0;
    size_t high = n_run;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (runs[mid] >> 8 <= cp) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return (uint8_t)(runs[low] & 0xff);
}

uint8_t ucd_class(uint32_t cp) {
    return run_value(ucd_runs, ucd_n_run, cp);
}

bool ucd_is_space(uint32_t cp) {
    return ucd_class(cp) & UCD_SPACE;
}

bool ucd_is_word(uint32_t cp) {
    return (ucd_class(cp) & UCD_WORD) || cp == 0x200c || cp == 0x200d;
}

bool ucd_is_number(uint32_t cp) {
    if (cp < 0x80) {
        return cp >= '0' && cp <= '9';
    }
    uint8_t category = ucd_class(cp) & UCD_CATEGORY_MASK;
    /* the thirteen numbers that came with Unicode 17 */
    bool is_new = (cp >= 0x11de0 && cp <= 0x11de9) || (cp >= 0x16ff4 && cp <= 0x16ff6);
    return category == UCD_ND || category == UCD_NL || category == UCD_NO || is_new;
}

bool ucd_is_since_9(uint32_t cp) {
    size_t low = 0;
    size_t high = ucd_n_since_9;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (ucd_since_9[mid].last < cp) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < ucd_n_since_9 && ucd_since_9[low].first <= cp;
}

uint32_t ucd_category_mask(const char *name, size_t bytes) {
    uint32_t mask = 0;
    if (bytes == 0 || bytes > 2) {
        return 0;
    }
    for (unsigned i = 0; i < UCD_CATEGORIES; i++) {
        if (memcmp(category_names[i], name, bytes) == 0) {
            mask |= 1u << i;
        }
    }
    return mask;
}

/* ---- scripts */

/* The next character that counts in a property name, in lower case; -1 at the end. */
static int name_char(const char *name, size_t bytes, size_t *at) {
    while (*at < bytes && (name[*at] == ' ' || name[*at] == '_' || name[*at] == '-')) {
        (*at)++;
    }
    if (*at == bytes) {
        return -1;
    }
    char c = name[(*at)++];
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : (unsigned char)c;
}

static bool same_name(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    size_t i = 0;
    size_t k = 0;
    int c;
    do {
        c = name_char(a, a_bytes, &i);
        if (c != name_char(b, b_bytes, &k)) {
            return false;
        }
    } while (c >= 0);
    return true;
}

int ucd_script_by_name(const char *name, size_t bytes) {
    for (size_t i = 0; i < ucd_n_script; i++) {
        if (same_name(name, bytes, ucd_script_names[i], strlen(ucd_script_names[i]))) {
            return (int)i;
        }
    }
    return -1;
}

/* ---- grapheme clusters */

static uint8_t break_of(uint32_t cp) {
    return run_value(ucd_break_runs, ucd_n_break_run, cp);
}

static bool joins_hangul(uint8_t left, uint8_t right) {
    switch (left) {
    case UCD_BREAK_L:
        return right == UCD_BREAK_L || right == UCD_BREAK_V || right == UCD_BREAK_LV ||
               right == UCD_BREAK_LVT;
    case UCD_BREAK_LV:
    case UCD_BREAK_V:
        return right == UCD_BREAK_V || right == UCD_BREAK_T;
    case UCD_BREAK_LVT:
    case UCD_BREAK_T:
        return right == UCD_BREAK_T;
    default:
        return false;
    }
}

/* What the cluster so far says about the next boundary. */
typedef struct cluster {
    uint8_t last;
    size_t n_regional;
    bool is_picture;  /* a pictograph and extenders */
    bool was_picture; /* the same and a joiner behind it */
} cluster;

static void take(cluster *c, uint8_t kind) {
    uint8_t value = kind & UCD_BREAK_MASK;
    c->was_picture = c->is_picture && value == UCD_BREAK_ZWJ;
    c->is_picture = (kind & UCD_BREAK_PICTOGRAPH) || (c->is_picture && value == UCD_BREAK_EXTEND);
    c->n_regional += value == UCD_BREAK_REGIONAL;
    c->last = value;
}

static bool continues(const cluster *c, uint8_t kind) {
    uint8_t value = kind & UCD_BREAK_MASK;
    bool is_control = value == UCD_BREAK_CONTROL || value == UCD_BREAK_CR || value == UCD_BREAK_LF;
    switch (c->last) {
    case UCD_BREAK_CR:
        return value == UCD_BREAK_LF;
    case UCD_BREAK_LF:
    case UCD_BREAK_CONTROL:
        return false;
    case UCD_BREAK_PREPEND:
        return !is_control;
    default:
        return value == UCD_BREAK_EXTEND || value == UCD_BREAK_ZWJ || value == UCD_BREAK_SPACING ||
               joins_hangul(c->last, value) || (c->was_picture && (kind & UCD_BREAK_PICTOGRAPH)) ||
               (c->last == UCD_BREAK_REGIONAL && value == UCD_BREAK_REGIONAL &&
                c->n_regional % 2 == 1);
    }
}

size_t ucd_grapheme(const char *text, size_t bytes) {
    const uint8_t *p = (const uint8_t *)text;
    cluster c = {0};
    uint32_t cp = 0;
    size_t at = utf8_decode(p, bytes, &cp);
    take(&c, break_of(cp));
    while (at < bytes) {
        size_t used = utf8_decode(p + at, bytes - at, &cp);
        uint8_t kind = break_of(cp);
        if (!continues(&c, kind)) {
            break;
        }
        take(&c, kind);
        at += used;
    }
    return at;
}

/* ---- lower case */

size_t ucd_lower(uint32_t cp, uint32_t *out) {
    /* what came with Unicode 16 and 17: first, last, step to the lower case, stride */
    static const struct {
        uint32_t first, last;
        int32_t add;
        uint32_t stride;
    } since_16[] = {{0x1c89, 0x1c89, 1, 1},    {0xa7cb, 0xa7cb, 0x264 - 0xa7cb, 1},
                    {0xa7cc, 0xa7ce, 1, 2},    {0xa7d2, 0xa7d4, 1, 2},
                    {0xa7da, 0xa7da, 1, 1},    {0xa7dc, 0xa7dc, 0x19b - 0xa7dc, 1},
                    {0x10d50, 0x10d65, 32, 1}, {0x16ea0, 0x16eb8, 27, 1}};
    if (cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    for (size_t i = 0; i < sizeof since_16 / sizeof *since_16; i++) {
        if (cp >= since_16[i].first && cp <= since_16[i].last &&
            (cp - since_16[i].first) % since_16[i].stride == 0) {
            out[0] = (uint32_t)((int32_t)cp + since_16[i].add);
            return 1;
        }
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}
