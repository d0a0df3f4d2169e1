/* Sets of code points; see cp_set.h. Owns no state of its own. */
#include "text/cp_set.h"

#include <stdlib.h>
#include <string.h>

void cp_set_free(cp_set *s) {
    free(s->ranges);
    *s = (cp_set){0};
}

static void append(cp_set *s, uint32_t first, uint32_t last) {
    if (s->is_broken) {
        return;
    }
    if (s->n_range && first <= s->ranges[s->n_range - 1].last + 1) {
        if (last > s->ranges[s->n_range - 1].last) {
            s->ranges[s->n_range - 1].last = last;
        }
        return;
    }
    if (s->n_range == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 8;
        ucd_range *grown = realloc(s->ranges, cap * sizeof *grown);
        if (!grown) {
            s->is_broken = true;
            return;
        }
        s->ranges = grown;
        s->cap = cap;
    }
    s->ranges[s->n_range++] = (ucd_range){first, last};
}

/* Takes over built's ranges. */
static void replace(cp_set *s, cp_set *built) {
    built->is_broken |= s->is_broken;
    free(s->ranges);
    *s = *built;
}

void cp_set_union(cp_set *s, const cp_set *other) {
    cp_set out = {.is_broken = other->is_broken};
    size_t i = 0;
    size_t j = 0;
    while (i < s->n_range || j < other->n_range) {
        bool from_s =
            j == other->n_range || (i < s->n_range && s->ranges[i].first <= other->ranges[j].first);
        ucd_range r = from_s ? s->ranges[i++] : other->ranges[j++];
        append(&out, r.first, r.last);
    }
    replace(s, &out);
}

void cp_set_add(cp_set *s, uint32_t first, uint32_t last) {
    if (s->n_range == 0 || first >= s->ranges[s->n_range - 1].first) {
        append(s, first, last);
        return;
    }
    ucd_range one = {first, last};
    cp_set_union(s, &(cp_set){.ranges = &one, .n_range = 1});
}

static void add_runs(cp_set *s, uint32_t mask, uint8_t flag) {
    cp_set found = {0};
    for (size_t i = 0; i < ucd_n_run; i++) {
        uint32_t class = ucd_runs[i] & 0xff;
        uint32_t last = i + 1 < ucd_n_run ? (ucd_runs[i + 1] >> 8) - 1 : UCD_LAST;
        if ((mask >> (class & UCD_CATEGORY_MASK) & 1) || (flag && (class & flag) == flag)) {
            append(&found, ucd_runs[i] >> 8, last);
        }
    }
    cp_set_union(s, &found);
    cp_set_free(&found);
}

void cp_set_add_categories(cp_set *s, uint32_t mask) {
    add_runs(s, mask, 0);
}

void cp_set_add_flag(cp_set *s, uint8_t flag) {
    add_runs(s, 0, flag);
}

void cp_set_add_script(cp_set *s, int script) {
    cp_set found = {0};
    for (size_t i = 0; i < ucd_n_script_run; i++) {
        uint32_t last = i + 1 < ucd_n_script_run ? (ucd_script_runs[i + 1] >> 8) - 1 : UCD_LAST;
        if ((int)(ucd_script_runs[i] & 0xff) == script) {
            append(&found, ucd_script_runs[i] >> 8, last);
        }
    }
    cp_set_union(s, &found);
    cp_set_free(&found);
}

void cp_set_intersect(cp_set *s, const cp_set *other) {
    cp_set out = {.is_broken = other->is_broken};
    size_t i = 0;
    size_t j = 0;
    while (i < s->n_range && j < other->n_range) {
        ucd_range a = s->ranges[i];
        ucd_range b = other->ranges[j];
        uint32_t first = a.first > b.first ? a.first : b.first;
        uint32_t last = a.last < b.last ? a.last : b.last;
        if (first <= last) {
            append(&out, first, last);
        }
        if (a.last < b.last) {
            i++;
        } else {
            j++;
        }
    }
    replace(s, &out);
}

void cp_set_invert(cp_set *s) {
    cp_set out = {0};
    uint32_t next = 0;
    for (size_t i = 0; i < s->n_range; i++) {
        if (s->ranges[i].first > next) {
            append(&out, next, s->ranges[i].first - 1);
        }
        next = s->ranges[i].last + 1;
    }
    if (next <= UCD_LAST) {
        append(&out, next, UCD_LAST);
    }
    replace(s, &out);
}

bool cp_set_has(const cp_set *s, uint32_t cp) {
    size_t low = 0;
    size_t high = s->n_range;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->ranges[mid].last < cp) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < s->n_range && s->ranges[low].first <= cp;
}

bool cp_set_equal(const cp_set *a, const cp_set *b) {
    return a->n_range == b->n_range &&
           (a->n_range == 0 || memcmp(a->ranges, b->ranges, a->n_range * sizeof *a->ranges) == 0);
}
