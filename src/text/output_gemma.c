/* Gemma's calls, call:NAME{key:<|"|>text<|"|>,n:2,list:[1,{a:true}]}, made into JSON as they come.
 * FunctionGemma writes <escape> for the quote. See output_impl.h. */
#include <string.h>

#include "text/output_impl.h"

static marker_id quote_of(const smoe_output_parser *p) {
    return p->format.calls == CALLS_GEMMA ? M_GEMMA_QUOTE : M_ESCAPE_QUOTE;
}

static bool go_to(smoe_output_parser *p, enum output_state state) {
    p->state = state;
    return true;
}

static bool in_object(const gemma_value *g) {
    uint32_t top = g->depth - 1;
    return g->is_object[top / 8] >> top % 8 & 1;
}

/* ---- objects and arrays */

/* Reads a { or [ at the front. */
static bool enter(smoe_output_parser *p, bool is_object) {
    gemma_value *g = &p->gemma;
    if (g->depth == LIMIT_JSON_DEPTH) {
        return output_fail(p);
    }
    uint8_t bit = (uint8_t)(1u << g->depth % 8);
    uint8_t *bits = &g->is_object[g->depth / 8];
    *bits = (uint8_t)(is_object ? *bits | bit : *bits & ~bit);
    g->depth++;
    g->is_first = true;
    output_made(p, is_object ? "{" : "[", 1, 1);
    return go_to(p, is_object ? S_GEMMA_KEY : S_GEMMA_VALUE);
}

/* Reads the end of the innermost one at the front. */
static bool leave(smoe_output_parser *p) {
    gemma_value *g = &p->gemma;
    output_made(p, in_object(g) ? "}" : "]", 1, 1);
    g->depth--;
    g->is_first = false;
    return go_to(p, g->depth ? S_GEMMA_NEXT : S_GEMMA_END);
}

/* ---- steps */

static bool step_call(smoe_output_parser *p) {
    int m = output_expect(p, (const marker_id[]){M_CALL_COLON, M_NONE});
    return m == OUTPUT_WAIT ? false : m == OUTPUT_FAIL ? output_fail(p) : go_to(p, S_GEMMA_NAME);
}

static bool step_name(smoe_output_parser *p) {
    size_t bytes;
    int m = output_until(p, (const marker_id[]){M_BRACE, M_NONE}, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL || !output_set_name(p, output_front(p), bytes)) {
        return output_fail(p);
    }
    output_syntax(p, bytes);
    output_begin_call(p);
    p->gemma = (gemma_value){.depth = 0};
    return enter(p, true);
}

static bool begin_string(smoe_output_parser *p, bool is_key) {
    p->gemma.is_key = is_key;
    output_syntax(p, p->markers[quote_of(p)].bytes);
    output_made_text(p, "\"");
    return go_to(p, S_GEMMA_STRING);
}

static bool is_bare_key(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] <= 0x20 || strchr("{}[],\"<>", text[i])) {
            return false;
        }
    }
    return bytes > 0;
}

static bool step_key(smoe_output_parser *p) {
    size_t bytes;
    marker_match quote = output_match(p, 0, quote_of(p));
    if (quote == MATCH_FULL) {
        return begin_string(p, true);
    }
    if (output_front(p)[0] == '}' && p->gemma.is_first) {
        return leave(p);
    }
    int m = output_until(p, (const marker_id[]){M_COLON, M_NONE}, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL || !is_bare_key(output_front(p), bytes)) {
        return output_fail(p);
    }
    output_made_text(p, "\"");
    output_made_string(p, bytes);
    output_made_text(p, "\"");
    output_made(p, ": ", 2, 1);
    return go_to(p, S_GEMMA_VALUE);
}

static bool step_string(smoe_output_parser *p) {
    size_t at;
    marker_id m;
    marker_match r = output_find(p, (const marker_id[]){quote_of(p), M_NONE}, &at, &m);
    size_t ready = output_whole(p, at);
    output_made_string(p, ready);
    if (r != MATCH_FULL) {
        return ready > 0;
    }
    output_made(p, "\"", 1, p->markers[m].bytes);
    p->gemma.is_first = false;
    return go_to(p, S_GEMMA_NEXT);
}

/* A word with something behind it: a number, or what JSON or Python calls true, false and none. */
static bool step_word(smoe_output_parser *p) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *text = output_front(p);
    size_t left = output_left(p);
    size_t n = 0;
    while (n < left && !strchr(",}] \t\r\n", text[n])) { /* a NUL ends it too, and is no value */
        n++;
    }
    if (n == left && n <= OUTPUT_NAME_BYTES) {
        return false;
    }
    unsigned kind = n < left ? json_kind_of(text, n) : 0;
    if (kind & (JSON_KIND_NULL | JSON_KIND_BOOLEAN | JSON_KIND_INTEGER | JSON_KIND_NUMBER)) {
        output_arguments(p, n);
        return go_to(p, S_GEMMA_NEXT);
    }
    for (size_t i = 0; i < 3; i++) {
        if (strlen(python[i][0]) == n && memcmp(python[i][0], text, n) == 0) {
            output_made(p, python[i][1], strlen(python[i][1]), n);
            return go_to(p, S_GEMMA_NEXT);
        }
    }
    return output_fail(p);
}

static bool step_value(smoe_output_parser *p) {
    marker_match quote = output_match(p, 0, quote_of(p));
    char c = output_front(p)[0];
    if (quote != MATCH_NO) {
        return quote == MATCH_FULL && begin_string(p, false);
    }
    if (c == '{' || c == '[') {
        return enter(p, c == '{');
    }
    if (c == ']' && p->gemma.is_first && !in_object(&p->gemma)) {
        return leave(p);
    }
    p->gemma.is_first = false;
    return step_word(p);
}

/* After a key in quotes, or after a value. */
static bool step_next(smoe_output_parser *p) {
    gemma_value *g = &p->gemma;
    char c = output_front(p)[0];
    if (g->is_key) {
        g->is_key = false;
        output_made(p, c == ':' ? ": " : "", c == ':' ? 2 : 0, c == ':');
        return c == ':' ? go_to(p, S_GEMMA_VALUE) : output_fail(p);
    }
    if (c == ',') {
        output_made(p, ", ", 2, 1);
        return go_to(p, in_object(g) ? S_GEMMA_KEY : S_GEMMA_VALUE);
    }
    return c == (in_object(g) ? '}' : ']') ? leave(p) : output_fail(p);
}

static bool step_end(smoe_output_parser *p) {
    marker_id end = p->format.calls == CALLS_GEMMA ? M_GEMMA_CALL_END : M_ESCAPE_CALL_END;
    int m = output_expect(p, (const marker_id[]){end, M_NONE});
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL) {
        return output_fail(p);
    }
    output_end_call(p);
    output_close_section(p);
    return true;
}

bool output_step_gemma(smoe_output_parser *p) {
    switch (p->state) {
    case S_GEMMA:
        return step_call(p);
    case S_GEMMA_NAME:
        return step_name(p);
    case S_GEMMA_STRING:
        return step_string(p);
    case S_GEMMA_END:
        return step_end(p);
    default:
        break;
    }
    if (output_left(p) == 0) {
        return false;
    }
    if (output_is_blank(p, 0)) {
        output_syntax(p, 1);
        return true;
    }
    if (output_is_special(p, 0) && output_match(p, 0, quote_of(p)) == MATCH_NO) {
        return output_fail(p);
    }
    switch (p->state) {
    case S_GEMMA_KEY:
        return step_key(p);
    case S_GEMMA_VALUE:
        return step_value(p);
    default:
        return step_next(p);
    }
}
