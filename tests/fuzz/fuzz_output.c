/* Fuzz target: the output parser, every format. The first bytes choose the format and the cuts; the
 * rest is output. However it is cut, the events are the same, nothing is lost or repeated, and what
 * ends as a call has a JSON object for its arguments. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/output.h"
#include "text/output_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char tools[] =
    "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": "
    "{\"type\": \"number\"}, \"o\": {\"type\": [\"object\", \"null\"]}}}}, {\"name\": \"now\"}]";

/* A claim that must hold for every input. */
static void must(bool claim) {
    if (!claim) {
        abort();
    }
}

/* All events as one text, neighbours of one kind joined. */
typedef struct record {
    byte_buf events;
    byte_buf source;
    byte_buf args;
    int last_kind;
    bool in_call;
    int32_t n_call;
} record;

static void put(byte_buf *b, const void *data, size_t bytes) {
    must(buf_append(b, data, bytes, NULL) == SMOE_OK);
}

static bool on_event(void *user, const smoe_output_event *e) {
    record *r = user;
    put(&r->source, e->source, e->source_bytes);
    if (e->kind == SMOE_OUTPUT_SYNTAX) {
        must(e->text_bytes == 0 && e->source_bytes > 0);
        return false;
    }
    if (r->last_kind != (int)e->kind) {
        char kind = (char)('0' + (int)e->kind);
        put(&r->events, "\n", 1);
        put(&r->events, &kind, 1);
        r->last_kind = (int)e->kind;
    }
    put(&r->events, e->text, e->text_bytes);
    switch (e->kind) {
    case SMOE_OUTPUT_CALL_BEGIN:
        must(!r->in_call && e->call == r->n_call && e->name[0]);
        put(&r->events, e->name, strlen(e->name));
        r->in_call = true;
        r->args.bytes = 0;
        break;
    case SMOE_OUTPUT_CALL_ARGUMENTS:
        must(r->in_call && e->call == r->n_call);
        put(&r->args, e->text, e->text_bytes);
        break;
    case SMOE_OUTPUT_CALL_END:
        must(json_kind_of(r->args.data, r->args.bytes) == JSON_KIND_OBJECT);
        put(&r->events, e->id, strlen(e->id));
        /* fallthrough */
    case SMOE_OUTPUT_CALL_FAILED:
        must(r->in_call && e->call == r->n_call);
        r->in_call = false;
        r->n_call++;
        break;
    default:
        must(!r->in_call && e->text_bytes > 0);
        break;
    }
    return false;
}

static void init(record *r) {
    *r = (record){.last_kind = -1};
    r->events.max_bytes = r->source.max_bytes = r->args.max_bytes = SIZE_MAX / 2;
    put(&r->events, "", 0);
    put(&r->source, "", 0);
    put(&r->args, "", 0);
}

static void release(record *r) {
    buf_free(&r->events);
    buf_free(&r->source);
    buf_free(&r->args);
}

typedef struct input {
    output_format format;
    const char *prompt;
    const char *tools;
    bool has_special;
    const char *text;
    size_t bytes;
} input;

/* Whether a byte belongs to a control token: a matter of its place alone. */
static bool is_special(const input *in, size_t at) {
    return in->has_special && at / 16 % 5 == 4;
}

/* cuts 0: as long as possible. */
static void run(record *r, const input *in, uint32_t cuts) {
    smoe_output_parser *p;
    smoe_output_options o = {.tools_json = in->tools, .fn = on_event, .user = r};
    init(r);
    must(output_open(&p, NULL, in->format, in->prompt, &o, NULL) == SMOE_OK);
    for (size_t i = 0; i < in->bytes;) {
        size_t most = cuts ? 1 + (cuts >> 16) % 9 : in->bytes;
        size_t n = 1;
        cuts = cuts ? cuts * 1664525u + 1013904223u : 0;
        while (n < most && i + n < in->bytes && is_special(in, i + n) == is_special(in, i)) {
            n++;
        }
        must(output_push_text(p, in->text + i, n, is_special(in, i), NULL) == SMOE_OK);
        i += n;
    }
    must(smoe_output_flush(p, NULL) == SMOE_OK);
    smoe_output_close(p);
    must(!r->in_call);
    must(r->source.bytes == in->bytes);
    must(in->bytes == 0 || memcmp(r->source.data, in->text, in->bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const prompts[] = {"", "<think>\n", "<|start|>assistant", "[THINK]"};
    if (bytes < 3) {
        return 0;
    }
    input in = {.format = {(output_calls)(data[0] % (CALLS_LLAMA + 1)),
                           (output_reasoning)(data[1] % (REASONING_CHANNEL + 1))},
                .prompt = prompts[data[1] >> 2 & 3],
                .tools = data[1] & 16 ? NULL : tools,
                .has_special = data[1] & 32,
                .text = (const char *)data + 3,
                .bytes = bytes - 3};
    record whole;
    record cut;
    run(&whole, &in, 0);
    for (uint32_t i = 0; i < 3; i++) {
        run(&cut, &in, 1 + data[2] * 3u + i * 65536u);
        must(cut.events.bytes == whole.events.bytes);
        must(memcmp(cut.events.data, whole.events.data, whole.events.bytes) == 0);
        release(&cut);
    }
    output_format found = output_format_detect(in.text, in.bytes);
    must(found.calls <= CALLS_LLAMA && output_calls_name(found.calls));
    release(&whole);
    return 0;
}
