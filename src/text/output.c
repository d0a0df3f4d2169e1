/* The frame of the output parser: input, markers, events, calls that fail, plain text; see output.h
 * and output_impl.h. */
#include "text/output.h"

#include <json-c/json.h>
#include <string.h>

#include "base/utf8.h"
#include "text/output_impl.h"
#include "text/tokenizer_impl.h"

/* ---- input */

bool output_is_blank(const smoe_output_parser *p, size_t offset) {
    return json_is_blank(output_front(p)[offset]) && !output_is_special(p, offset);
}

size_t output_whole(const smoe_output_parser *p, size_t n) {
    const uint8_t *text = (const uint8_t *)output_front(p);
    if (p->is_last || n < output_left(p)) {
        return n;
    }
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t b = text[n - back];
        size_t bytes = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
        if (b >= 0xc0 && bytes > back) {
            return n - back;
        }
        if (b < 0x80 || b >= 0xc0) {
            break;
        }
    }
    return n;
}

marker_match output_match(const smoe_output_parser *p, size_t offset, marker_id m) {
    const marker_text *t = &p->markers[m];
    const char *text = output_front(p) + offset;
    size_t left = output_left(p) - offset;
    size_t n = t->bytes < left ? t->bytes : left;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != t->text[i] || output_is_special(p, offset + i) != (t->special >> i & 1)) {
            return MATCH_NO;
        }
    }
    return n == t->bytes ? MATCH_FULL : p->is_last ? MATCH_NO : MATCH_PART;
}

marker_match output_find(const smoe_output_parser *p, const marker_id *set, size_t *offset,
                         marker_id *found) {
    size_t left = output_left(p);
    for (size_t i = 0; i < left; i++) {
        for (const marker_id *m = set; *m; m++) {
            marker_match r = output_match(p, i, *m);
            if (r != MATCH_NO) {
                *offset = i;
                *found = *m;
                return r;
            }
        }
    }
    *offset = left;
    *found = M_NONE;
    return MATCH_NO;
}

int output_expect(smoe_output_parser *p, const marker_id *set) {
    size_t blanks = 0;
    bool may_come = false;
    while (blanks < output_left(p) && output_is_blank(p, blanks)) {
        blanks++;
    }
    for (const marker_id *m = set; *m; m++) {
        marker_match r = output_match(p, blanks, *m);
        if (r == MATCH_FULL) {
            output_syntax(p, blanks + p->markers[*m].bytes);
            return (int)*m;
        }
        may_come |= r == MATCH_PART;
    }
    /* in any case, so that what fails is the same however the output was cut */
    bool waits = blanks == output_left(p) || may_come;
    output_syntax(p, blanks);
    return waits ? OUTPUT_WAIT : OUTPUT_FAIL;
}

int output_until(smoe_output_parser *p, const marker_id *set, size_t *bytes) {
    marker_id found;
    marker_match r = output_find(p, set, bytes, &found);
    if (*bytes > OUTPUT_NAME_BYTES) {
        return OUTPUT_FAIL;
    }
    return r == MATCH_FULL ? (int)found : OUTPUT_WAIT;
}

/* ---- events */

static void emit(smoe_output_parser *p, const smoe_output_event *event) {
    if (p->rc == SMOE_OK && !p->is_muted && p->fn(p->user, event)) {
        p->rc = err_set(p->err, SMOE_ERR_CANCELLED, "cancelled");
    }
}

static void keep(smoe_output_parser *p, byte_buf *b, const char *text, size_t bytes) {
    if (p->rc == SMOE_OK) {
        p->rc = buf_append(b, text, bytes, p->err);
    }
}

/* The event's source are the next bytes. */
static void account(smoe_output_parser *p, smoe_output_event *event, size_t bytes) {
    const char *source = output_front(p);
    if (p->in_call && bytes) { /* none: the text may itself lie in the log */
        keep(p, &p->log, source, bytes);
    }
    event->source = source;
    event->source_bytes = bytes;
    emit(p, event);
    p->at += bytes;
}

void output_text(smoe_output_parser *p, size_t bytes) {
    if (bytes == 0) {
        return;
    }
    account(p, &(smoe_output_event){.kind = p->kind, .text = output_front(p), .text_bytes = bytes},
            bytes);
}

void output_syntax(smoe_output_parser *p, size_t bytes) {
    if (bytes) {
        account(p, &(smoe_output_event){.kind = SMOE_OUTPUT_SYNTAX, .text = ""}, bytes);
    }
}

void output_arguments(smoe_output_parser *p, size_t bytes) {
    if (bytes) {
        output_made(p, output_front(p), bytes, bytes);
    }
}

void output_made(smoe_output_parser *p, const char *text, size_t text_bytes, size_t bytes) {
    p->has_args = true;
    account(p,
            &(smoe_output_event){.kind = SMOE_OUTPUT_CALL_ARGUMENTS,
                                 .call = p->n_call,
                                 .text = text,
                                 .text_bytes = text_bytes},
            bytes);
}

void output_made_text(smoe_output_parser *p, const char *text) {
    output_made(p, text, strlen(text), 0);
}

void output_made_string(smoe_output_parser *p, size_t bytes) {
    if (bytes == 0 || p->rc != SMOE_OK) {
        return;
    }
    p->scratch.bytes = 0;
    p->rc = json_escape(&p->scratch, output_front(p), bytes, p->err);
    output_made(p, p->scratch.data, p->scratch.bytes, bytes);
}

/* ---- calls */

void output_open_call(smoe_output_parser *p, enum output_state state) {
    p->in_call = true;
    p->call_begun = false;
    p->has_args = false;
    p->n_section_call = 0;
    p->log.bytes = 0;
    p->state = state;
    p->object = (object_call){.place = 0};
    output_set(p, &p->name, "", 0);
    output_set(p, &p->id, "", 0);
    output_set(p, &p->key, "", 0);
    json_scan_init(&p->scan);
}

void output_set(smoe_output_parser *p, byte_buf *b, const char *text, size_t bytes) {
    b->bytes = 0;
    keep(p, b, text, bytes);
}

bool output_set_name(smoe_output_parser *p, const char *text, size_t bytes) {
    while (bytes && json_is_blank(text[0])) {
        text++;
        bytes--;
    }
    while (bytes && json_is_blank(text[bytes - 1])) {
        bytes--;
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20) {
            return false;
        }
    }
    output_set(p, &p->name, text, bytes);
    return bytes > 0 && bytes <= OUTPUT_NAME_BYTES;
}

static void emit_call(smoe_output_parser *p, smoe_output_kind kind) {
    emit(p, &(smoe_output_event){.kind = kind,
                                 .call = p->n_call,
                                 .text = "",
                                 .source = "",
                                 .name = p->name.data,
                                 .id = p->id.data});
}

void output_begin_call(smoe_output_parser *p) {
    p->call_begun = true;
    p->has_begun = true;
    emit_call(p, SMOE_OUTPUT_CALL_BEGIN);
}

void output_end_call(smoe_output_parser *p) {
    if (!p->has_args) {
        output_made_text(p, "{}");
    }
    emit_call(p, SMOE_OUTPUT_CALL_END);
    int32_t n = p->n_section_call + 1;
    p->n_call++;
    output_open_call(p, p->state);
    p->n_section_call = n;
}

void output_close_section(smoe_output_parser *p) {
    p->in_call = false;
    p->kind = SMOE_OUTPUT_CONTENT;
    p->state = S_TEXT;
}

bool output_fail(smoe_output_parser *p) {
    if (p->call_begun) {
        emit_call(p, SMOE_OUTPUT_CALL_FAILED);
        p->n_call++;
    }
    output_close_section(p);
    p->has_begun = true;
    if (p->log.bytes) {
        emit(p, &(smoe_output_event){.kind = SMOE_OUTPUT_CONTENT,
                                     .text = p->log.data,
                                     .text_bytes = p->log.bytes,
                                     .source = ""});
    }
    p->call_begun = false;
    p->skip_newlines = 0;
    return true;
}

/* ---- plain text */

size_t output_newlines_before(const smoe_output_parser *p, size_t offset, size_t most) {
    size_t n = 0;
    while (n < most && n < offset && output_front(p)[offset - 1 - n] == '\n' &&
           !output_is_special(p, offset - 1 - n)) {
        n++;
    }
    return n;
}

/* A marker is whole, with the newlines before it that belong to it. */
static void pass_marker(smoe_output_parser *p, marker_id m, size_t lead) {
    enum output_state next = output_state_after(p, m);
    size_t bytes = lead + p->markers[m].bytes;
    if (next != S_TEXT) {
        output_open_call(p, next);
        output_syntax(p, bytes);
    } else if (p->format.calls == CALLS_HARMONY) {
        p->kind = SMOE_OUTPUT_CONTENT;
        if (m == M_START || m == M_CHANNEL) {
            output_open_call(p, S_HEADER);
        }
        output_syntax(p, bytes);
    } else {
        bool is_opener = p->kind == SMOE_OUTPUT_CONTENT;
        p->kind = is_opener ? SMOE_OUTPUT_REASONING : SMOE_OUTPUT_CONTENT;
        p->skip_newlines = output_trail(p, is_opener);
        output_syntax(p, bytes);
    }
}

bool output_skip_newline(smoe_output_parser *p) {
    if (p->skip_newlines == 0 || output_left(p) == 0) {
        return false;
    }
    bool skip = output_front(p)[0] == '\n' && !output_is_special(p, 0);
    p->skip_newlines = skip ? (uint8_t)(p->skip_newlines - 1) : 0;
    output_syntax(p, skip);
    return true;
}

/* Llama writes a call as nothing but a JSON object. Returns whether to go no further here. */
static bool begin_bare_object(smoe_output_parser *p, bool *progress) {
    enum { MOST_BLANKS = 64 };
    size_t n = 0;
    if (p->format.calls != CALLS_LLAMA || p->has_begun || !p->tools ||
        p->kind != SMOE_OUTPUT_CONTENT) {
        return false;
    }
    while (n < output_left(p) && output_is_blank(p, n)) {
        n++;
    }
    if (n > MOST_BLANKS) {
        p->has_begun = true;
        return false;
    }
    bool is_object = n < output_left(p) && output_front(p)[n] == '{' && !output_is_special(p, n);
    if (is_object) {
        output_open_call(p, S_OBJECT);
        output_syntax(p, n);
    }
    *progress = is_object;
    return is_object || (n == output_left(p) && !p->is_last);
}

/* Notes that content begins before an offset, which changes what may come there. */
static bool begins(smoe_output_parser *p, size_t offset) {
    size_t blanks = 0;
    if (p->has_begun || p->kind != SMOE_OUTPUT_CONTENT) {
        return false;
    }
    while (blanks < offset && output_is_blank(p, blanks)) {
        blanks++;
    }
    p->has_begun = blanks < offset;
    return p->has_begun;
}

bool output_step_text(smoe_output_parser *p) {
    size_t at;
    marker_id m;
    bool progress = false;
    if (output_skip_newline(p)) {
        return true;
    }
    if (begin_bare_object(p, &progress)) {
        return progress;
    }
    marker_match r = output_find(p, output_openers(p), &at, &m);
    if (begins(p, at)) {
        return true;
    }
    size_t lead = p->is_last && r == MATCH_NO ? 0 : output_newlines_before(p, at, output_lead(p));
    size_t ready = output_whole(p, at - lead);
    output_text(p, ready);
    if (r == MATCH_FULL) {
        pass_marker(p, m, lead);
    }
    return ready > 0 || r == MATCH_FULL;
}

/* ---- the loop */

static bool step(smoe_output_parser *p) {
    if (p->in_call && p->log.bytes > OUTPUT_CALL_BYTES) {
        return output_fail(p);
    }
    switch (p->state) {
    case S_TEXT:
        return output_step_text(p);
    case S_HEADER:
        return output_step_header(p);
    case S_OBJECT:
        return output_step_object(p);
    default:
        break;
    }
    if (p->state <= S_ARGS_END) {
        return output_step_named(p);
    }
    if (p->state <= S_PYTHON) {
        return output_step_list(p);
    }
    return p->state <= S_TAG_VALUE ? output_step_tags(p) : output_step_gemma(p);
}

static void run(smoe_output_parser *p) {
    while (p->rc == SMOE_OK && step(p)) {
    }
    if (p->at && p->rc == SMOE_OK) {
        size_t left = output_left(p);
        memmove(p->in.data, p->in.data + p->at, left);
        memmove(p->in_special.data, p->in_special.data + p->at, left);
        p->in.bytes = p->in_special.bytes = left;
        p->at = 0;
    }
}

int output_push_text(smoe_output_parser *p, const char *text, size_t bytes, bool is_special,
                     smoe_error *err) {
    p->err = err;
    if (p->rc != SMOE_OK) {
        return err_set(err, p->rc, "this output has ended with an error before");
    }
    keep(p, &p->in, text, bytes);
    for (size_t i = 0; i < bytes; i++) {
        keep(p, &p->in_special, is_special ? "\1" : "", 1);
    }
    run(p);
    return p->rc;
}

int smoe_output_push(smoe_output_parser *p, int32_t id, const char *text, size_t text_bytes,
                     smoe_error *err) {
    int rc = output_push_text(p, text, text_bytes, false, err);
    if (rc == SMOE_OK && output_knows_token(p, id)) {
        const vocab *v = &p->tokenizer->vocab;
        rc = output_push_text(p, vocab_text(v, (uint32_t)id), v->tokens[id].bytes, true, err);
    }
    return rc;
}

/* Whether the open call has all that it needs, so that only its end is missing. */
static bool is_complete(smoe_output_parser *p) {
    switch (p->state) {
    case S_ARGS_FENCE:
    case S_ARGS_END:
    case S_OBJECT_END:
    case S_GEMMA_END:
        output_end_call(p);
        return true;
    case S_SECTION:
    case S_TAGS:
    case S_ARRAY_NEXT:
    case S_LLAMA_NEXT:
        return p->n_section_call > 0;
    case S_PYTHON:
        return output_finish_python(p);
    default:
        return false;
    }
}

int smoe_output_flush(smoe_output_parser *p, smoe_error *err) {
    int rc = output_push_text(p, "", 0, false, err);
    p->is_last = true;
    while (rc == SMOE_OK) {
        run(p);
        rc = p->rc;
        if (!p->in_call || rc != SMOE_OK) {
            break;
        }
        if (output_left(p) == 0 && is_complete(p)) {
            output_close_section(p);
        } else {
            output_fail(p);
        }
        rc = p->rc;
    }
    return rc;
}

/* ---- what the prompt left open */

static const marker_id reasoning_opener[] = {
    [REASONING_NONE] = M_NONE,
    [REASONING_THINK] = M_THINK,
    [REASONING_BRACKET] = M_BRACKET,
    [REASONING_CHANNEL] = M_THOUGHT,
};

/* Reads the end of the prompt, which is in p->in, without events: the header that the last message
 * of harmony begins with, or reasoning that is open, with nothing but blanks behind its marker. */
static void prime(smoe_output_parser *p) {
    bool harmony = p->format.calls == CALLS_HARMONY;
    marker_id m = harmony ? M_START : reasoning_opener[p->format.reasoning];
    size_t at = p->in.bytes;
    bool found = false;
    while (m != M_NONE && at > 0 && !found) {
        found = output_match(p, --at, m) == MATCH_FULL;
    }
    p->at = at;
    if (found && harmony) {
        p->at += p->markers[m].bytes;
    }
    for (size_t i = p->markers[m].bytes; found && !harmony && i < output_left(p); i++) {
        found = output_is_blank(p, i);
    }
    if (found) {
        run(p);
    }
    p->in.bytes = p->in_special.bytes = p->at = 0;
    p->log.bytes = 0;
}

static int take_prompt(smoe_output_parser *p, const char *end, const smoe_output_options *o,
                       smoe_error *err) {
    enum { LAST_TOKENS = 64 };
    size_t from = o->n_prompt > LAST_TOKENS ? o->n_prompt - LAST_TOKENS : 0;
    text_stream stream;
    p->err = err;
    for (size_t i = 0; end && end[i]; i++) {
        keep(p, &p->in, &end[i], 1);
        keep(p, &p->in_special, "", 1);
    }
    if (p->tokenizer) {
        text_stream_init(&stream, p->tokenizer, true);
    }
    for (size_t i = from; p->tokenizer && i < o->n_prompt; i++) {
        bool special = tokenizer_is_special(p->tokenizer, o->prompt[i]);
        size_t n = text_stream_push(&stream, o->prompt[i], p->token_text);
        keep(p, &p->in, p->token_text, n);
        while (n-- > 0) {
            keep(p, &p->in_special, special ? "\1" : "", 1);
        }
    }
    p->is_muted = true;
    if (p->rc == SMOE_OK) {
        prime(p);
    }
    p->is_muted = false;
    return p->rc;
}

/* ---- opening */

int output_open(smoe_output_parser **out, const smoe_tokenizer *tokenizer, output_format format,
                const char *prompt_end, const smoe_output_options *options, smoe_error *err) {
    smoe_output_parser *p = mem_array(1, sizeof *p);
    if (!p) {
        return err_no_memory(err, sizeof *p);
    }
    p->err = err;
    p->format = format;
    p->tokenizer = tokenizer;
    p->fn = options->fn;
    p->user = options->user;
    p->kind = SMOE_OUTPUT_CONTENT;
    byte_buf *const bufs[] = {&p->in, &p->in_special, &p->log,    &p->name,
                              &p->id, &p->key,        &p->scratch};
    int rc = SMOE_OK;
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0] && rc == SMOE_OK; i++) {
        bufs[i]->max_bytes = SIZE_MAX / 2;
        rc = buf_append(bufs[i], "", 0, err);
    }
    if (rc == SMOE_OK && tokenizer) {
        p->token_text = mem_array(text_stream_max_bytes(tokenizer), 1);
        rc = p->token_text ? SMOE_OK : err_no_memory(err, text_stream_max_bytes(tokenizer));
    }
    rc = rc ? rc : output_prepare_markers(p, err);
    rc = rc ? rc : output_read_tools(p, options->tools_json, err);
    if (rc == SMOE_OK && format.calls == CALLS_HARMONY) {
        output_open_call(p, S_HEADER); /* a prompt ends where the header begins */
    }
    rc = rc ? rc : take_prompt(p, prompt_end, options, err);
    if (rc != SMOE_OK) {
        smoe_output_close(p);
        return rc;
    }
    *out = p;
    return SMOE_OK;
}

int smoe_output_open(smoe_output_parser **out, const smoe_tokenizer *tokenizer,
                     const smoe_output_options *options, smoe_error *err) {
    const char *source = options->chat_template;
    output_format format = {CALLS_NONE, REASONING_NONE};
    if (!options->fn) {
        return err_set(err, SMOE_ERR_ARGUMENT, "an output parser needs a function for its events");
    }
    if (source) {
        format = output_format_detect(source, strlen(source));
    } else if (tokenizer) {
        format = tokenizer->output;
    }
    return output_open(out, tokenizer, format, NULL, options, err);
}

void smoe_output_close(smoe_output_parser *p) {
    if (!p) {
        return;
    }
    buf_free(&p->in);
    buf_free(&p->in_special);
    buf_free(&p->log);
    buf_free(&p->name);
    buf_free(&p->id);
    buf_free(&p->key);
    buf_free(&p->scratch);
    json_object_put(p->tools);
    free(p->token_text);
    free(p);
}
