/* Calls written with a tag for each parameter: Qwen3-Coder, GLM, MiniMax, DeepSeek's DSML. See
 * output_impl.h.
 *
 * These write strings as they are and other values as JSON, so the tool's schema tells which it is.
 * A parameter that is a string is handed out as it comes, any other when it is whole: as JSON if it
 * is JSON of a kind that the schema allows, else as a string. Without a schema, what reads as JSON
 * other than a string is taken for that.
 */
#include <string.h>

#include "text/output_impl.h"

typedef struct tag_format {
    marker_id call, call_end, section_end; /* call NONE: the name follows at once, one call only */
    marker_id name_end[4]; /* those behind M_NEWLINE or M_GREATER and the like stay unread */
    marker_id parameter, key_end[3], value, value_end; /* value NONE: right after the key */
    bool is_framed;  /* a newline after the key's end and before the value's end is no part of it */
    bool has_python; /* True, False, None */
} tag_format;

static const tag_format qwen = {.call = M_FUNCTION,
                                .call_end = M_FUNCTION_END,
                                .section_end = M_TOOL_CALL_END,
                                .name_end = {M_GREATER},
                                .parameter = M_PARAMETER,
                                .key_end = {M_GREATER},
                                .value_end = M_PARAMETER_END,
                                .is_framed = true,
                                .has_python = true};
static const tag_format glm = {.call_end = M_TOOL_CALL_END,
                               .name_end = {M_NEWLINE, M_ARG_KEY, M_TOOL_CALL_END},
                               .parameter = M_ARG_KEY,
                               .key_end = {M_ARG_KEY_END},
                               .value = M_ARG_VALUE,
                               .value_end = M_ARG_VALUE_END};
static const tag_format minimax = {.call = M_INVOKE,
                                   .call_end = M_INVOKE_END,
                                   .section_end = M_MINIMAX_END,
                                   .name_end = {M_QUOTE_GREATER},
                                   .parameter = M_NAMED_PARAMETER,
                                   .key_end = {M_QUOTE_GREATER},
                                   .value_end = M_PARAMETER_END};
static const tag_format dsml = {.call = M_DSML_INVOKE,
                                .call_end = M_DSML_INVOKE_END,
                                .section_end = M_DSML_END,
                                .name_end = {M_QUOTE_GREATER},
                                .parameter = M_DSML_PARAMETER,
                                .key_end = {M_STRING_TRUE, M_STRING_FALSE},
                                .value_end = M_DSML_PARAMETER_END};

static const tag_format *format_of(const smoe_output_parser *p) {
    switch (p->format.calls) {
    case CALLS_GLM:
        return &glm;
    case CALLS_MINIMAX:
        return &minimax;
    case CALLS_DSML:
        return &dsml;
    default:
        return &qwen;
    }
}

static bool go_to(smoe_output_parser *p, enum output_state state) {
    p->state = state;
    return true;
}

static bool step_section(smoe_output_parser *p, const tag_format *f) {
    if (f->call == M_NONE) {
        return go_to(p, S_TAG_NAME);
    }
    marker_id also = f == &dsml ? M_DSML_OLD_END : M_NONE;
    int m = output_expect(p, (const marker_id[]){f->call, f->section_end, also, M_NONE});
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == (int)f->call) {
        return go_to(p, S_TAG_NAME);
    }
    if (m == OUTPUT_FAIL || p->n_section_call == 0) {
        return output_fail(p);
    }
    output_close_section(p);
    return true;
}

static bool step_name(smoe_output_parser *p, const tag_format *f) {
    size_t bytes;
    int m = output_until(p, f->name_end, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL || !output_set_name(p, output_front(p), bytes)) {
        return output_fail(p);
    }
    bool is_read = m == (int)f->name_end[0];
    output_syntax(p, bytes + (is_read ? p->markers[m].bytes : 0));
    output_begin_call(p);
    return go_to(p, S_TAG_NEXT);
}

static bool step_next(smoe_output_parser *p, const tag_format *f) {
    int m = output_expect(p, (const marker_id[]){f->parameter, f->call_end, M_NONE});
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL) {
        return output_fail(p);
    }
    if (m == (int)f->parameter) {
        return go_to(p, S_TAG_KEY);
    }
    if (p->has_args) {
        output_made_text(p, "}");
    }
    output_end_call(p);
    if (f->section_end == M_NONE) {
        output_close_section(p);
        return true;
    }
    return go_to(p, S_TAGS);
}

/* ---- values */

static bool is_string(const smoe_output_parser *p) {
    return p->value_kinds == JSON_KIND_STRING;
}

static bool begin_value(smoe_output_parser *p, const tag_format *f) {
    p->skip_newlines = f->is_framed;
    p->value_from = p->log.bytes;
    if (is_string(p)) {
        output_made_text(p, "\"");
    }
    return go_to(p, S_TAG_VALUE);
}

static bool step_key(smoe_output_parser *p, const tag_format *f) {
    size_t bytes;
    int m = output_until(p, f->key_end, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL || memchr(output_front(p), '\0', bytes)) {
        return output_fail(p);
    }
    output_set(p, &p->key, output_front(p), bytes);
    p->value_kinds = m == M_STRING_TRUE    ? JSON_KIND_STRING
                     : m == M_STRING_FALSE ? JSON_KIND_ANY & ~(unsigned)JSON_KIND_STRING
                                           : output_parameter_kinds(p, p->key.data);
    output_made_text(p, p->has_args ? ", \"" : "{\"");
    output_made_string(p, bytes);
    output_made_text(p, "\": ");
    output_syntax(p, p->markers[m].bytes);
    return f->value ? go_to(p, S_TAG_OPEN) : begin_value(p, f);
}

static bool step_open(smoe_output_parser *p, const tag_format *f) {
    int m = output_expect(p, (const marker_id[]){f->value, M_NONE});
    return m == OUTPUT_WAIT ? false : m == OUTPUT_FAIL ? output_fail(p) : begin_value(p, f);
}

/* Python's spelling of what has another one in JSON; NULL when it is not allowed here. */
static const char *from_python(const char *text, size_t bytes, unsigned kinds) {
    static const struct {
        const char *python, *json;
        unsigned kind;
    } rows[] = {{"True", "true", JSON_KIND_BOOLEAN},
                {"False", "false", JSON_KIND_BOOLEAN},
                {"None", "null", JSON_KIND_NULL}};
    for (size_t i = 0; i < 3 && kinds != JSON_KIND_ANY; i++) {
        if ((kinds & rows[i].kind) && strlen(rows[i].python) == bytes &&
            memcmp(rows[i].python, text, bytes) == 0) {
            return rows[i].json;
        }
    }
    return NULL;
}

/* The value that ends the log, when it is not a string for sure. */
static void make_value(smoe_output_parser *p, const tag_format *f) {
    const char *text = p->log.data + p->value_from;
    size_t bytes = p->log.bytes - p->value_from;
    const char *core = text;
    size_t n = bytes;
    while (n && json_is_blank(core[0])) {
        core++;
        n--;
    }
    while (n && json_is_blank(core[n - 1])) {
        n--;
    }
    unsigned kind = json_kind_of(core, n);
    unsigned allowed = p->value_kinds;
    allowed |= allowed & JSON_KIND_NUMBER ? (unsigned)JSON_KIND_INTEGER : 0;
    bool may_be_text = allowed & JSON_KIND_STRING;
    const char *python = f->has_python ? from_python(core, n, allowed) : NULL;
    if (kind == JSON_KIND_STRING ? !may_be_text : (kind & allowed) != 0) {
        output_made(p, core, n, 0);
    } else if (python) {
        output_made_text(p, python);
    } else {
        p->scratch.bytes = 0;
        if (p->rc == SMOE_OK) {
            p->rc = json_escape(&p->scratch, text, bytes, p->err);
        }
        output_made_text(p, "\"");
        output_made(p, p->scratch.data, p->scratch.bytes, 0);
        output_made_text(p, "\"");
    }
}

static bool step_value(smoe_output_parser *p, const tag_format *f) {
    size_t at;
    marker_id m;
    if (output_skip_newline(p)) {
        p->value_from = p->log.bytes;
        return true;
    }
    marker_match r = output_find(p, (const marker_id[]){f->value_end, M_NONE}, &at, &m);
    size_t lead = f->is_framed ? output_newlines_before(p, at, 1) : 0;
    size_t ready = output_whole(p, at - lead);
    if (is_string(p)) {
        output_made_string(p, ready);
    } else {
        output_syntax(p, ready);
    }
    if (r != MATCH_FULL) {
        return ready > 0;
    }
    if (is_string(p)) {
        output_made_text(p, "\"");
    } else {
        make_value(p, f);
    }
    output_syntax(p, lead + p->markers[m].bytes);
    return go_to(p, S_TAG_NEXT);
}

bool output_step_tags(smoe_output_parser *p) {
    const tag_format *f = format_of(p);
    switch (p->state) {
    case S_TAGS:
        return step_section(p, f);
    case S_TAG_NAME:
        return step_name(p, f);
    case S_TAG_NEXT:
        return step_next(p, f);
    case S_TAG_KEY:
        return step_key(p, f);
    case S_TAG_OPEN:
        return step_open(p, f);
    default:
        return step_value(p, f);
    }
}
