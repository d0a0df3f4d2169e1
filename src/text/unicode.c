/* Look-ups in the generated Unicode tables; see unicode.h. Owns no state. */
#include "text/unicode.h"

#include <string.h>

static const char category_names[UCD_CATEGORIES][3] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

uint8_t ucd_class(uint32_t cp) {
    size_t low = 0;
    size_t high = ucd_n_run;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (ucd_runs[mid] >> 8 <= cp) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return (uint8_t)(ucd_runs[low] & 0xff);
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
