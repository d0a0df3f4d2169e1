/* A call written as one JSON object with its name and arguments in any order: Qwen and Hermes, old
 * Mistral, Llama; and what stands around such objects. See output_impl.h.
 *
 * Arguments are handed out as they come once the name is known; those that come before it wait in
 * the log. Arguments may be an object, a string that holds one, or null.
 */
#include <string.h>

#include "text/output_impl.h"

enum { AT_OPEN, AT_FIRST_KEY, AT_KEY, IN_KEY, AT_COLON, AT_VALUE, IN_VALUE, AFTER_VALUE };
enum { FOR_NOTHING, FOR_NAME, FOR_ID, FOR_ARGUMENTS };

/* What an object step has read but not accounted for. */
typedef struct reader {
    smoe_output_parser *p;
    size_t n; /* from the front */
} reader;

static void settle(reader *r) {
    if (r->p->object.is_streaming) {
        output_arguments(r->p, r->n);
    } else {
        output_syntax(r->p, r->n);
    }
    r->n = 0;
}

/* ---- values */

static uint8_t target_of(const byte_buf *key) {
    static const struct {
        const char *key;
        uint8_t target;
    } rows[] = {{"name", FOR_NAME},
                {"id", FOR_ID},
                {"arguments", FOR_ARGUMENTS},
                {"parameters", FOR_ARGUMENTS}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(key->data, rows[i].key) == 0) {
            return rows[i].target;
        }
    }
    return FOR_NOTHING;
}

/* The first byte of a value. */
static bool begin_value(reader *r, char c) {
    smoe_output_parser *p = r->p;
    object_call *o = &p->object;
    settle(r);
    o->target = target_of(&p->key);
    o->value_from = p->log.bytes;
    json_scan_init(&p->scan);
    if (o->target == FOR_NAME || o->target == FOR_ID) {
        return c == '"' && !(o->target == FOR_NAME && o->has_name);
    }
    if (o->target == FOR_ARGUMENTS) {
        if (o->has_args || !(c == '{' || c == '"' || c == 'n')) {
            return false;
        }
        o->has_args = true;
        o->args_are_text = c == '"';
        o->is_streaming = c == '{' && o->has_name;
    }
    return true;
}

/* The inside of the string that ends the log. */
static void read_text(smoe_output_parser *p, byte_buf *out) {
    size_t from = p->object.value_from + 1;
    out->bytes = 0;
    if (p->rc == SMOE_OK) {
        p->rc = json_unescape(out, p->log.data + from, p->log.bytes - 1 - from, p->err);
    }
}

/* Whether a call of that name may be meant: JSON alone, without a marker, needs a tool of it. */
static bool accept_name(const smoe_output_parser *p) {
    bool is_bare = p->format.calls == CALLS_LLAMA && p->log.data[0] != '<';
    return !is_bare || output_has_tool(p, p->name.data);
}

static bool take_name(smoe_output_parser *p) {
    object_call *o = &p->object;
    read_text(p, &p->scratch);
    if (p->rc != SMOE_OK) {
        return true;
    }
    o->has_name = true;
    if (!output_set_name(p, p->scratch.data, p->scratch.bytes) || !accept_name(p)) {
        return false;
    }
    output_begin_call(p);
    if (o->args_bytes && !o->args_are_text && p->rc == SMOE_OK) {
        output_made(p, p->log.data + o->args_from, o->args_bytes, 0);
    }
    return true;
}

/* The value is whole, and all of it is in the log. */
static bool end_value(reader *r) {
    smoe_output_parser *p = r->p;
    object_call *o = &p->object;
    settle(r);
    if (o->target == FOR_NAME) {
        return take_name(p);
    }
    if (o->target == FOR_ID) {
        read_text(p, &p->id);
        return p->id.bytes <= OUTPUT_NAME_BYTES && strlen(p->id.data) == p->id.bytes;
    }
    if (o->target == FOR_ARGUMENTS && p->log.data[o->value_from] != 'n' && !o->is_streaming) {
        o->args_from = o->value_from;
        o->args_bytes = p->log.bytes - o->value_from;
    }
    o->is_streaming = false;
    return true;
}

/* The object is whole. */
static bool end_object(smoe_output_parser *p) {
    object_call *o = &p->object;
    if (!o->has_name) {
        return false;
    }
    if (o->args_are_text) {
        o->value_from = o->args_from;
        p->scratch.bytes = 0;
        if (p->rc == SMOE_OK) {
            p->rc = json_unescape(&p->scratch, p->log.data + o->args_from + 1, o->args_bytes - 2,
                                  p->err);
        }
        if (p->rc == SMOE_OK &&
            json_kind_of(p->scratch.data, p->scratch.bytes) != JSON_KIND_OBJECT) {
            return false;
        }
        output_made(p, p->scratch.data, p->scratch.bytes, 0);
    }
    if (p->format.calls == CALLS_HERMES) {
        p->state = S_OBJECT_END;
        return true;
    }
    output_end_call(p);
    p->state = p->format.calls == CALLS_LLAMA ? S_LLAMA_NEXT : S_ARRAY_NEXT;
    return true;
}

/* ---- structure */

static bool in_value(reader *r, char c) {
    switch (json_scan_byte(&r->p->scan, c)) {
    case JSON_MORE:
        r->n++;
        return true;
    case JSON_DONE:
        r->n++;
        r->p->object.place = AFTER_VALUE;
        return end_value(r);
    case JSON_PAST:
        r->p->object.place = AFTER_VALUE;
        return end_value(r);
    default:
        return false;
    }
}

static bool in_key(reader *r, char c) {
    smoe_output_parser *p = r->p;
    json_step step = json_scan_byte(&p->scan, c);
    r->n++;
    if (step == JSON_DONE) {
        p->object.place = AT_COLON;
    } else if (step == JSON_MORE && p->rc == SMOE_OK && p->key.bytes < OUTPUT_NAME_BYTES) {
        p->rc = buf_append(&p->key, &c, 1, p->err);
    }
    return step == JSON_DONE || step == JSON_MORE;
}

static bool begin_key(reader *r) {
    smoe_output_parser *p = r->p;
    json_scan_init(&p->scan);
    json_scan_byte(&p->scan, '"');
    output_set(p, &p->key, "", 0);
    p->object.place = IN_KEY;
    r->n++;
    return true;
}

/* One byte; *done: it was the object's last. False when it makes the object malformed. Counts the
 * byte unless the value ended before it, which is why the caller looks at place again. */
static bool read_byte(reader *r, char c, bool *done) {
    object_call *o = &r->p->object;
    if (o->place == IN_KEY) {
        return in_key(r, c);
    }
    if (o->place == IN_VALUE) {
        return in_value(r, c);
    }
    if (json_is_blank(c)) {
        r->n++;
        return true;
    }
    if (o->place == AT_VALUE) {
        if (!begin_value(r, c)) {
            return false;
        }
        o->place = IN_VALUE;
        return in_value(r, c);
    }
    if ((o->place == AT_FIRST_KEY || o->place == AT_KEY) && c == '"') {
        return begin_key(r);
    }
    bool is_close = c == '}' && (o->place == AT_FIRST_KEY || o->place == AFTER_VALUE);
    bool fits = is_close || (o->place == AT_OPEN && c == '{') ||
                (o->place == AT_COLON && c == ':') || (o->place == AFTER_VALUE && c == ',');
    o->place = (uint8_t)(o->place == AT_OPEN    ? AT_FIRST_KEY
                         : o->place == AT_COLON ? AT_VALUE
                                                : AT_KEY);
    r->n++;
    *done = is_close;
    return fits;
}

bool output_step_object(smoe_output_parser *p) {
    reader r = {p, 0};
    size_t n = output_whole(p, output_left(p));
    size_t end = p->at + n;
    bool done = false;
    while (p->at + r.n < end && !done && p->rc == SMOE_OK) {
        if (output_is_special(p, r.n) || !read_byte(&r, output_front(p)[r.n], &done)) {
            settle(&r);
            return output_fail(p);
        }
    }
    settle(&r);
    if (done && !end_object(p)) {
        return output_fail(p);
    }
    return n > 0;
}

/* ---- around objects */

/* Accounts for blanks, and for the byte behind them when it is one of `accept`: returns it. 0 when
 * more must come, the byte itself without accounting for it otherwise. */
static char next_byte(smoe_output_parser *p, const char *accept) {
    size_t n = 0;
    while (n < output_left(p) && output_is_blank(p, n)) {
        n++;
    }
    char c = n < output_left(p) ? output_front(p)[n] : '\0';
    bool is_special = n < output_left(p) && output_is_special(p, n);
    bool is_taken = c && !is_special && strchr(accept, c);
    if (n == output_left(p) || is_taken) {
        output_syntax(p, n + is_taken);
    }
    return n < output_left(p) || is_taken ? (is_special || c == '\0' ? '\1' : c) : '\0';
}

static bool step_object_end(smoe_output_parser *p) {
    int m = output_expect(p, (const marker_id[]){M_TOOL_CALL_END, M_NONE});
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

/* [TOOL_CALLS]: an array of objects, or NAME[ARGS]{…}, NAME[CALL_ID]ID[ARGS]{…}, NAME{…} */
static bool step_mistral(smoe_output_parser *p) {
    size_t bytes;
    if (output_left(p) && output_is_blank(p, 0)) {
        output_syntax(p, 1);
        return true;
    }
    if (output_left(p) && output_front(p)[0] == '[' && !output_is_special(p, 0)) {
        output_syntax(p, 1);
        p->state = S_ARRAY;
        return true;
    }
    int m = output_until(p, (const marker_id[]){M_ARGS, M_CALL_ID, M_BRACE, M_NONE}, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL || !output_set_name(p, output_front(p), bytes)) {
        return output_fail(p);
    }
    output_syntax(p, bytes + (m == M_BRACE ? 0 : p->markers[m].bytes));
    p->state = m == M_CALL_ID ? S_CALL_ID : S_ARGS;
    if (p->state == S_ARGS) {
        output_begin_call(p);
    }
    return true;
}

static bool step_call_id(smoe_output_parser *p) {
    size_t bytes;
    int m = output_until(p, (const marker_id[]){M_ARGS, M_NONE}, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL || memchr(output_front(p), '\0', bytes)) {
        return output_fail(p);
    }
    output_set(p, &p->id, output_front(p), bytes);
    output_syntax(p, bytes + p->markers[m].bytes);
    output_begin_call(p);
    p->state = S_ARGS;
    return true;
}

static bool step_array(smoe_output_parser *p) {
    char c = next_byte(p, "");
    if (c == '\0') {
        return false;
    }
    if (c != '{') {
        return output_fail(p);
    }
    p->state = S_OBJECT;
    return true;
}

static bool step_array_next(smoe_output_parser *p) {
    char c = next_byte(p, ",]");
    if (c == ',') {
        p->state = S_ARRAY;
    } else if (c == ']') {
        output_close_section(p);
    } else if (c) {
        output_fail(p);
    }
    return c != '\0';
}

static bool step_llama(smoe_output_parser *p) {
    char c = next_byte(p, "");
    if (c) {
        p->state = c == '{' ? S_OBJECT : S_PYTHON;
    }
    return c != '\0';
}

static bool step_llama_next(smoe_output_parser *p) {
    char c = next_byte(p, ";");
    if (c == '{') {
        p->state = S_OBJECT;
    } else if (c && c != ';') {
        output_fail(p);
    }
    return c != '\0';
}

bool output_step_list(smoe_output_parser *p) {
    switch (p->state) {
    case S_OBJECT_END:
        return step_object_end(p);
    case S_MISTRAL:
        return step_mistral(p);
    case S_CALL_ID:
        return step_call_id(p);
    case S_ARRAY:
        return step_array(p);
    case S_ARRAY_NEXT:
        return step_array_next(p);
    case S_LLAMA:
        return step_llama(p);
    case S_LLAMA_NEXT:
        return step_llama_next(p);
    default:
        break;
    }
    size_t n = output_whole(p, output_left(p));
    output_syntax(p, n);
    return n > 0;
}

/* ---- Llama's built-in tools: <|python_tag|>NAME.call(KEY="VALUE", KEY="VALUE") */

static size_t identifier(const char *text) {
    size_t n = 0;
    while ((text[n] >= 'a' && text[n] <= 'z') || (text[n] >= 'A' && text[n] <= 'Z') ||
           text[n] == '_' || (n && text[n] >= '0' && text[n] <= '9')) {
        n++;
    }
    return n;
}

/* Where a value that begins at text ends: at a quote with the next key or the call's end behind it,
 * since quotes inside are not escaped. NULL when there is none. */
static const char *value_end(const char *text) {
    for (const char *at = strchr(text, '"'); at; at = strchr(at + 1, '"')) {
        if (at[1] == ')' && at[2] == '\0') {
            return at;
        }
        size_t n = at[1] == ',' && at[2] == ' ' ? identifier(at + 3) : 0;
        if (n && at[3 + n] == '=' && at[4 + n] == '"') {
            return at;
        }
    }
    return NULL;
}

/* Appends the arguments as JSON; false when the text is not of this form. */
static bool read_pairs(smoe_output_parser *p, const char *text, byte_buf *out) {
    int rc = buf_append(out, "{", 1, p->err);
    bool is_first = true;
    while (rc == SMOE_OK && strcmp(text, ")") != 0) {
        size_t n = identifier(text);
        const char *value = text + n + 2;
        const char *end = n && text[n] == '=' && text[n + 1] == '"' ? value_end(value) : NULL;
        if (!end) {
            return false;
        }
        rc = buf_printf(out, p->err, "%s\"%.*s\": \"", is_first ? "" : ", ", (int)n, text);
        rc = rc ? rc : json_escape(out, value, (size_t)(end - value), p->err);
        rc = rc ? rc : buf_append(out, "\"", 1, p->err);
        text = end[1] == ',' ? end + 3 : end + 1;
        is_first = false;
    }
    p->rc = rc ? rc : buf_append(out, "}", 1, p->err);
    return p->rc == SMOE_OK;
}

bool output_finish_python(smoe_output_parser *p) {
    static const char call[] = ".call(";
    const char *text = p->log.data + p->markers[M_PYTHON_TAG].bytes;
    text += strspn(text, " \t\r\n");
    size_t n = identifier(text);
    p->scratch.bytes = 0;
    if (strlen(p->log.data) != p->log.bytes || strncmp(text + n, call, sizeof call - 1) != 0 ||
        !output_set_name(p, text, n) || !read_pairs(p, text + n + sizeof call - 1, &p->scratch)) {
        return false;
    }
    output_begin_call(p);
    output_made(p, p->scratch.data, p->scratch.bytes, 0);
    output_end_call(p);
    return true;
}
