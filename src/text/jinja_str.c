/* Strings with marks: building, cutting, joining and searching them. Owns no state. */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_run.h"

/* The buffer behind a string that was made by joining. Bytes before used belong to strings and
 * never change; the string that ends at used may be grown in place, which keeps a text that a
 * template builds piece by piece from costing the square of its length. */
typedef struct jroom {
    char *data;
    size_t used, cap;
} jroom;

/* ---- memory */

enum { JMEM_CHUNK_BYTES = 32 << 10, JMEM_ALIGN_BYTES = 16 };

void *jmem_get(jmem *m, size_t n, size_t size) {
    size_t want;
    if (__builtin_mul_overflow(n, size, &want) || want > m->max_bytes) {
        return NULL;
    }
    want = (size_t)round_up(want ? want : 1, JMEM_ALIGN_BYTES);
    if (want > m->bump_bytes) {
        bool is_large = want > JMEM_CHUNK_BYTES / 4;
        size_t block = is_large ? want : (size_t)JMEM_CHUNK_BYTES;
        if (m->blocks.total_bytes + block > m->max_bytes) {
            return NULL;
        }
        uint8_t *p = arena_get(&m->blocks, block, 1);
        if (!p || is_large) {
            return p;
        }
        m->bump = p;
        m->bump_bytes = block;
    }
    void *p = m->bump;
    m->bump += want;
    m->bump_bytes -= want;
    return p;
}

void *jget(jrun *r, size_t n, size_t size) {
    void *p = jmem_get(&r->mem, n, size);
    if (!p) {
        jfail_memory(r);
    }
    return p;
}

/* ---- characters */

size_t jstr_count(const char *data, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        n += ((uint8_t)data[i] & 0xc0) != 0x80;
    }
    return n;
}

size_t jstr_offset(const jstr *s, size_t n_char) {
    if (s->n_char == s->bytes || n_char >= s->n_char) {
        return n_char >= s->n_char ? s->bytes : n_char;
    }
    size_t i = 0;
    for (; n_char; n_char--) {
        for (i++; i < s->bytes && ((uint8_t)s->data[i] & 0xc0) == 0x80; i++) {
        }
    }
    return i;
}

uint32_t jstr_at(const jstr *s, size_t offset, size_t *used) {
    uint32_t cp = 0xfffd;
    size_t n = utf8_decode((const uint8_t *)s->data + offset, s->bytes - offset, &cp);
    *used = n ? n : 1;
    return cp;
}

bool jchar_is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* ---- building */

static bool reserve(jrun *r, jbuf *b, size_t more) {
    size_t need = b->bytes + more;
    if (need <= b->cap) {
        return true;
    }
    if (b == &r->main_out && need > r->max_output_bytes) {
        return jfail_limit(r, "the output grows past its limit of %llu bytes",
                           (unsigned long long)r->max_output_bytes);
    }
    size_t cap = b->cap * 2 > need ? b->cap * 2 : need + 48;
    char *data = jget(r, cap, 1);
    if (!data) {
        return false;
    }
    if (b->bytes) {
        memcpy(data, b->data, b->bytes);
    }
    b->data = data;
    b->cap = cap;
    return true;
}

static bool add_mark(jrun *r, jbuf *b, size_t start, size_t end) {
    if (start == end) {
        return true;
    }
    if (b->n_mark && b->marks[b->n_mark - 1].end == start) {
        b->marks[b->n_mark - 1].end = end;
        return true;
    }
    if (b->n_mark == b->cap_mark) {
        size_t cap = b->cap_mark ? b->cap_mark * 2 : 4;
        jmark *marks = jget(r, cap, sizeof *marks);
        if (!marks) {
            return false;
        }
        if (b->n_mark) {
            memcpy(marks, b->marks, b->n_mark * sizeof *marks);
        }
        b->marks = marks;
        b->cap_mark = cap;
    }
    b->marks[b->n_mark++] = (jmark){start, end};
    return true;
}

bool jbuf_add(jrun *r, jbuf *b, const char *data, size_t bytes, bool is_input) {
    if (!jcharge(r, bytes / 128) || !reserve(r, b, bytes)) {
        return false;
    }
    if (bytes) {
        memcpy(b->data + b->bytes, data, bytes);
    }
    b->bytes += bytes;
    return !is_input || add_mark(r, b, b->bytes - bytes, b->bytes);
}

bool jbuf_text(jrun *r, jbuf *b, const char *text, bool is_input) {
    return jbuf_add(r, b, text, strlen(text), is_input);
}

bool jbuf_char(jrun *r, jbuf *b, uint32_t cp, bool is_input) {
    uint8_t text[4];
    return jbuf_add(r, b, (const char *)text, utf8_encode(cp, text), is_input);
}

bool jbuf_fill(jrun *r, jbuf *b, uint32_t cp, size_t n, bool is_input) {
    for (size_t i = 0; i < n; i++) {
        if (!jcharge(r, 1) || !jbuf_char(r, b, cp, is_input)) {
            return false;
        }
    }
    return true;
}

/* The first mark that ends after a byte. */
static size_t mark_after(const jstr *s, size_t offset) {
    size_t lo = 0;
    size_t hi = s->n_mark;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->marks[mid].end > offset) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

bool jbuf_part(jrun *r, jbuf *b, const jstr *s, size_t start, size_t end) {
    size_t at = b->bytes;
    if (start >= end) {
        return true;
    }
    if (!jbuf_add(r, b, s->data + start, end - start, false)) {
        return false;
    }
    for (size_t i = mark_after(s, start); i < s->n_mark && s->marks[i].start < end; i++) {
        size_t from = s->marks[i].start > start ? s->marks[i].start : start;
        size_t to = s->marks[i].end < end ? s->marks[i].end : end;
        if (!add_mark(r, b, at + from - start, at + to - start)) {
            return false;
        }
    }
    return true;
}

bool jbuf_str(jrun *r, jbuf *b, const jstr *s) {
    return jbuf_part(r, b, s, 0, s->bytes);
}

bool jbuf_take(jrun *r, jbuf *b, jval *out) {
    jstr *s = jget(r, 1, sizeof *s);
    if (!s) {
        return false;
    }
    *s = (jstr){.data = b->bytes ? b->data : "",
                .bytes = b->bytes,
                .n_char = b->bytes ? jstr_count(b->data, b->bytes) : 0,
                .marks = b->marks,
                .n_mark = b->n_mark,
                .is_safe = b->is_safe};
    *b = (jbuf){0};
    *out = jtext(s);
    return true;
}

/* ---- making strings */

const jstr *jstr_of(jmem *m, const char *data, size_t bytes, bool is_input) {
    bool is_marked = is_input && bytes;
    jstr *s = jmem_get(m, 1, sizeof *s + (is_marked ? sizeof(jmark) : 0));
    if (!s) {
        return NULL;
    }
    *s = (jstr){.data = data, .bytes = bytes, .n_char = jstr_count(data, bytes)};
    if (is_marked) {
        jmark *mark = (jmark *)(void *)(s + 1);
        *mark = (jmark){0, bytes};
        s->marks = mark;
        s->n_mark = 1;
    }
    return s;
}

bool jtext_of(jrun *r, const char *text, jval *out) {
    jbuf b = {0};
    return jbuf_text(r, &b, text, false) && jbuf_take(r, &b, out);
}

bool jstr_part(jrun *r, const jstr *s, size_t start, size_t end, jval *out) {
    start = start > s->bytes ? s->bytes : start;
    end = end < start ? start : end > s->bytes ? s->bytes : end;
    jstr *part = jget(r, 1, sizeof *part);
    if (!part || !jcharge(r, s->n_char == s->bytes ? 0 : (end - start) / 64)) {
        return false;
    }
    *part = (jstr){.data = s->data + start, .bytes = end - start, .is_safe = s->is_safe};
    part->n_char = s->n_char == s->bytes ? part->bytes : jstr_count(part->data, part->bytes);
    jbuf marks = {0};
    for (size_t i = mark_after(s, start); i < s->n_mark && s->marks[i].start < end; i++) {
        size_t from = s->marks[i].start > start ? s->marks[i].start : start;
        size_t to = s->marks[i].end < end ? s->marks[i].end : end;
        if (!jcharge(r, 1) || !add_mark(r, &marks, from - start, to - start)) {
            return false;
        }
    }
    part->marks = marks.marks;
    part->n_mark = marks.n_mark;
    *out = jtext(part);
    return true;
}

/* Room for a and b, with a already in it. */
static jroom *room_for(jrun *r, const jstr *a, size_t more) {
    jroom *room = a->room;
    if (room && a->data + a->bytes == room->data + room->used && room->cap - room->used >= more) {
        return room;
    }
    size_t need = a->bytes + more;
    room = jget(r, 1, sizeof *room);
    char *data = room ? jget(r, need > 128 ? 2 * need : need, 1) : NULL;
    if (!data || !jcharge(r, a->bytes / 128)) {
        return NULL;
    }
    if (a->bytes) {
        memcpy(data, a->data, a->bytes);
    }
    *room = (jroom){data, a->bytes, need > 128 ? 2 * need : need};
    return room;
}

bool jstr_join(jrun *r, const jstr *a, const jstr *b, jval *out) {
    if (!a->bytes || !b->bytes) {
        *out = jtext(a->bytes ? a : b);
        return true;
    }
    jroom *room = room_for(r, a, b->bytes);
    jstr *s = jget(r, 1, sizeof *s);
    if (!room || !s || !jcharge(r, b->bytes / 128 + a->n_mark + b->n_mark)) {
        return false;
    }
    memcpy(room->data + room->used, b->data, b->bytes);
    room->used += b->bytes;
    *s = (jstr){.data = room->data + room->used - a->bytes - b->bytes,
                .bytes = a->bytes + b->bytes,
                .n_char = a->n_char + b->n_char,
                .room = room};
    jbuf marks = {.marks = NULL};
    if (a->n_mark + b->n_mark) {
        marks.cap_mark = a->n_mark + b->n_mark;
        marks.marks = jget(r, marks.cap_mark, sizeof(jmark));
        if (!marks.marks) {
            return false;
        }
    }
    for (size_t i = 0; marks.marks && i < a->n_mark; i++) {
        marks.marks[marks.n_mark++] = a->marks[i];
    }
    for (size_t i = 0; i < b->n_mark; i++) {
        if (!add_mark(r, &marks, a->bytes + b->marks[i].start, a->bytes + b->marks[i].end)) {
            return false;
        }
    }
    s->marks = marks.marks;
    s->n_mark = marks.n_mark;
    *out = jtext(s);
    return true;
}

/* ---- comparing and searching */

bool jstr_is_input(const jstr *s, size_t start, size_t end) {
    size_t i = mark_after(s, start);
    return i < s->n_mark && s->marks[i].start < end;
}

bool jstr_equal(const jstr *a, const jstr *b) {
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

bool jstr_is(const jstr *s, const char *text) {
    size_t n = strlen(text);
    return s->bytes == n && (n == 0 || memcmp(s->data, text, n) == 0);
}

size_t jstr_find(const jstr *s, size_t from, size_t end, const jstr *part) {
    if (from > end || part->bytes > end - from) {
        return SIZE_MAX;
    }
    if (part->bytes == 0) {
        return from;
    }
    const char *at = memmem(s->data + from, end - from, part->data, part->bytes);
    return at ? (size_t)(at - s->data) : SIZE_MAX;
}

bool jstr_rfind(jrun *r, const jstr *s, size_t from, size_t end, const jstr *part, size_t *at) {
    *at = SIZE_MAX;
    if (from > end || part->bytes > end - from) {
        return true;
    }
    if (part->bytes == 0) {
        *at = end;
        return true;
    }
    for (size_t i = end - part->bytes + 1; i-- > from;) {
        if (s->data[i] != part->data[0]) {
            continue;
        }
        if (!jcharge(r, 1 + part->bytes / 64)) {
            return false;
        }
        if (memcmp(s->data + i, part->data, part->bytes) == 0) {
            *at = i;
            return true;
        }
    }
    return jcharge(r, (end - from) / 16);
}
