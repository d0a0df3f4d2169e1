/* Calls written as a name and a JSON object of arguments between markers: DeepSeek, Kimi, part of
 * Mistral's; and harmony's headers. See output_impl.h. */
#include <string.h>

#include "text/output_impl.h"

typedef struct named_format {
    marker_id section_end, call, separator, call_end;
} named_format;

static const named_format deepseek = {M_DEEPSEEK_CALLS_END, M_DEEPSEEK_CALL, M_DEEPSEEK_SEP,
                                      M_DEEPSEEK_CALL_END};
static const named_format kimi = {M_KIMI_CALLS_END, M_KIMI_CALL, M_KIMI_ARGUMENTS, M_KIMI_CALL_END};

static bool go_to(smoe_output_parser *p, enum output_state state) {
    p->state = state;
    return true;
}

static bool begin_arguments(smoe_output_parser *p) {
    output_begin_call(p);
    return go_to(p, S_ARGS);
}

/* ---- names */

static bool step_section(smoe_output_parser *p, const named_format *f) {
    int m = output_expect(p, (const marker_id[]){f->call, f->section_end, M_NONE});
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == (int)f->call) {
        return go_to(p, S_NAME);
    }
    if (m == OUTPUT_FAIL || p->n_section_call == 0) {
        return output_fail(p);
    }
    output_close_section(p);
    return true;
}

/* "functions.NAME:INDEX" is the id of a call of NAME. */
static bool set_kimi_name(smoe_output_parser *p, const char *text, size_t bytes) {
    static const char prefix[] = "functions.";
    if (!output_set_name(p, text, bytes)) {
        return false;
    }
    output_set(p, &p->id, p->name.data, p->name.bytes);
    const char *name = p->id.data;
    size_t n = p->id.bytes;
    if (n >= sizeof prefix - 1 && memcmp(name, prefix, sizeof prefix - 1) == 0) {
        name += sizeof prefix - 1;
        n -= sizeof prefix - 1;
    }
    size_t end = n;
    while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') {
        end--;
    }
    bool has_index = end > 0 && end < n && name[end - 1] == ':';
    return output_set_name(p, name, has_index ? end - 1 : n);
}

static bool step_name(smoe_output_parser *p, const named_format *f) {
    size_t bytes;
    int m = output_until(p, (const marker_id[]){f->separator, M_NONE}, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL) {
        return output_fail(p);
    }
    bool ok = f == &kimi ? set_kimi_name(p, output_front(p), bytes)
                         : output_set_name(p, output_front(p), bytes);
    bool is_fenced = p->format.calls == CALLS_DEEPSEEK_FENCED;
    if (!ok || (is_fenced && strcmp(p->name.data, "function") != 0)) {
        return output_fail(p);
    }
    output_syntax(p, bytes + p->markers[m].bytes);
    return is_fenced ? go_to(p, S_FENCE_NAME) : begin_arguments(p);
}

static bool step_fence_name(smoe_output_parser *p) {
    size_t bytes;
    int m = output_until(p, (const marker_id[]){M_NEWLINE, M_NONE}, &bytes);
    if (m == OUTPUT_WAIT) {
        return false;
    }
    if (m == OUTPUT_FAIL || !output_set_name(p, output_front(p), bytes)) {
        return output_fail(p);
    }
    output_syntax(p, bytes);
    return go_to(p, S_FENCE);
}

static bool step_fence(smoe_output_parser *p) {
    int m = output_expect(p, (const marker_id[]){M_FENCE_JSON, M_NONE});
    return m == OUTPUT_WAIT ? false : m == OUTPUT_FAIL ? output_fail(p) : begin_arguments(p);
}

/* ---- arguments */

/* Whether harmony's next message begins at the front, without an end of this one. */
static marker_match next_message(const smoe_output_parser *p) {
    marker_match start = output_match(p, 0, M_START);
    return start != MATCH_NO ? start : output_match(p, 0, M_CHANNEL);
}

static bool step_args_end(smoe_output_parser *p) {
    static const marker_id harmony_end[] = {M_CALL, M_END, M_RETURN, M_NONE};
    bool is_harmony = p->format.calls == CALLS_HARMONY;
    const named_format *f = p->format.calls == CALLS_KIMI ? &kimi : &deepseek;
    int m = output_expect(p, is_harmony ? harmony_end : (const marker_id[]){f->call_end, M_NONE});
    marker_match next = is_harmony && m == OUTPUT_FAIL ? next_message(p) : MATCH_NO;
    if (m == OUTPUT_WAIT || next == MATCH_PART) {
        return false;
    }
    if (m == OUTPUT_FAIL && next == MATCH_NO) {
        return output_fail(p);
    }
    output_end_call(p);
    if (is_harmony) {
        output_close_section(p);
        return true;
    }
    return go_to(p, S_SECTION);
}

/* What comes after the arguments; Mistral has nothing there. */
static bool after_arguments(smoe_output_parser *p) {
    if (p->format.calls == CALLS_MISTRAL) {
        output_end_call(p);
        output_close_section(p);
        return true;
    }
    return go_to(p, p->format.calls == CALLS_DEEPSEEK_FENCED ? S_ARGS_FENCE : S_ARGS_END);
}

static bool step_args(smoe_output_parser *p) {
    size_t n = output_whole(p, output_left(p));
    size_t blanks = 0;
    while (!p->has_args && blanks < n && output_is_blank(p, blanks)) {
        blanks++;
    }
    if (blanks || n == 0) {
        output_syntax(p, blanks);
        return blanks > 0;
    }
    if (!p->has_args && (output_front(p)[0] != '{' || output_is_special(p, 0))) {
        return p->format.calls == CALLS_MISTRAL ? output_fail(p) : after_arguments(p);
    }
    for (size_t i = 0; i < n; i++) {
        json_step r =
            output_is_special(p, i) ? JSON_BAD : json_scan_byte(&p->scan, output_front(p)[i]);
        if (r == JSON_DONE) {
            output_arguments(p, i + 1);
            return after_arguments(p);
        }
        if (r != JSON_MORE) {
            output_arguments(p, i); /* as they would have come in smaller pieces */
            return output_fail(p);
        }
    }
    output_arguments(p, n);
    return true;
}

static bool step_args_fence(smoe_output_parser *p) {
    int m = output_expect(p, (const marker_id[]){M_FENCE, M_NONE});
    return m == OUTPUT_WAIT ? false : m == OUTPUT_FAIL ? output_fail(p) : go_to(p, S_ARGS_END);
}

bool output_step_named(smoe_output_parser *p) {
    const named_format *f = p->format.calls == CALLS_KIMI ? &kimi : &deepseek;
    switch (p->state) {
    case S_SECTION:
        return step_section(p, f);
    case S_NAME:
        return step_name(p, f);
    case S_FENCE_NAME:
        return step_fence_name(p);
    case S_FENCE:
        return step_fence(p);
    case S_ARGS:
        return step_args(p);
    case S_ARGS_FENCE:
        return step_args_fence(p);
    default:
        return step_args_end(p);
    }
}

/* ---- harmony's headers: [assistant] [to=RECIPIENT] <|channel|>CHANNEL [to=RECIPIENT] [type] */

static const char *skip_blanks(const char *text) {
    return text + strspn(text, " \t\r\n");
}

/* Whether one of the two begins with the other. */
static bool agrees(const char *text, const char *want) {
    size_t n = strlen(text) < strlen(want) ? strlen(text) : strlen(want);
    return memcmp(text, want, n) == 0;
}

/* Whether this can be the beginning of a header. */
static bool is_plausible(const char *header) {
    static const char role[] = "assistant";
    header = skip_blanks(header);
    if (strncmp(header, role, sizeof role - 1) == 0) {
        header = skip_blanks(header + sizeof role - 1);
    } else if (agrees(header, role)) {
        return true;
    }
    return agrees(header, "<|channel|>") || agrees(header, "to=") ||
           agrees(header, "<|constrain|>");
}

/* The word behind a mark, up to a blank or a marker; 0 bytes when the mark is not there. */
static size_t word_behind(const char *header, const char *mark, const char **word) {
    const char *at = strstr(header, mark);
    *word = at ? at + strlen(mark) : header;
    return at ? strcspn(*word, " \t\r\n<") : 0;
}

static bool end_header(smoe_output_parser *p) {
    static const char prefix[] = "functions.";
    const char *word;
    size_t n = word_behind(p->key.data, "to=", &word);
    if (n) {
        bool has_prefix = strncmp(word, prefix, sizeof prefix - 1) == 0;
        size_t skip = has_prefix && n > sizeof prefix - 1 ? sizeof prefix - 1 : 0;
        return output_set_name(p, word + skip, n - skip) ? begin_arguments(p) : output_fail(p);
    }
    n = word_behind(p->key.data, "<|channel|>", &word);
    bool is_reasoning = n == strlen("analysis") && memcmp(word, "analysis", n) == 0;
    output_close_section(p);
    p->kind = is_reasoning ? SMOE_OUTPUT_REASONING : SMOE_OUTPUT_CONTENT;
    return true;
}

/* How many of the n bytes at the front can belong to the header, which takes them over. */
static size_t read_header(smoe_output_parser *p, size_t n) {
    size_t i = 0;
    while (i < n && p->rc == SMOE_OK) {
        const char *c = output_front(p) + i;
        bool is_too_long = p->key.bytes >= OUTPUT_HEADER_BYTES && (*c & 0xc0) != 0x80;
        p->rc = buf_append(&p->key, c, 1, p->err);
        if (is_too_long || p->rc != SMOE_OK || !is_plausible(p->key.data)) {
            break;
        }
        i++;
    }
    return i;
}

bool output_step_header(smoe_output_parser *p) {
    size_t at;
    marker_id m;
    marker_match r = output_find(p, (const marker_id[]){M_MESSAGE, M_NONE}, &at, &m);
    size_t n = output_whole(p, at);
    size_t taken = read_header(p, n);
    output_syntax(p, taken);
    if (taken < n) {
        return output_fail(p);
    }
    if (r != MATCH_FULL) {
        return n > 0;
    }
    output_syntax(p, p->markers[M_MESSAGE].bytes);
    return end_header(p);
}
