/* Sets of code points as sorted ranges: what a character class of a pattern denotes.
 *
 * Zero-initialise. A set that ran out of memory becomes and stays is_broken; callers check once at
 * the end. Used only while a tokenizer is built.
 */
#ifndef SMOE_TEXT_CP_SET_H
#define SMOE_TEXT_CP_SET_H

#include "text/unicode.h"

typedef struct cp_set {
    ucd_range *ranges; /* sorted, disjoint, never adjacent */
    size_t n_range;
    size_t cap;
    bool is_broken;
} cp_set;

void cp_set_free(cp_set *s); /* leaves it empty */
void cp_set_add(cp_set *s, uint32_t first, uint32_t last);
/* Every code point whose category is in the mask (UCD category bits). */
void cp_set_add_categories(cp_set *s, uint32_t mask);
/* Every code point whose class has all bits of flag. */
void cp_set_add_flag(cp_set *s, uint8_t flag);
void cp_set_add_script(cp_set *s, int script);
void cp_set_union(cp_set *s, const cp_set *other);
void cp_set_intersect(cp_set *s, const cp_set *other);
void cp_set_invert(cp_set *s);
bool cp_set_has(const cp_set *s, uint32_t cp);
bool cp_set_equal(const cp_set *a, const cp_set *b);

#endif
