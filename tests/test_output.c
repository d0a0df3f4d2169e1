/* Splitting output into reasoning, content and calls: every format in every cut of its bytes,
 * against hand-written cases and against what the published chat templates render. */
#include <json-c/json.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "test.h"
#include "text/output.h"
#include "text/output_json.h"
#include "text/tokenizer.h"

static smoe_error err;

/* ---- collecting events into [["content", text], ["call", name, id, arguments], …] */

typedef struct collector {
    struct json_object *list;
    byte_buf run; /* text of the kind that came last */
    smoe_output_kind kind;
    byte_buf args;
    byte_buf source;
    bool in_call;
    int32_t n_call;
    int left; /* events until it asks to stop; < 0: never */
} collector;

static void add_row(collector *c, const char *what, struct json_object *a, struct json_object *b,
                    struct json_object *d) {
    struct json_object *row = json_object_new_array();
    json_object_array_add(row, json_object_new_string(what));
    struct json_object *const parts[] = {a, b, d};
    for (int i = 0; i < 3 && parts[i]; i++) {
        json_object_array_add(row, parts[i]);
    }
    json_object_array_add(c->list, row);
}

static void end_run(collector *c) {
    if (c->run.bytes) {
        add_row(c, c->kind == SMOE_OUTPUT_CONTENT ? "content" : "reasoning",
                json_object_new_string_len(c->run.data, (int)c->run.bytes), NULL, NULL);
    }
    c->run.bytes = 0;
}

static struct json_object *parse(const char *text) {
    enum json_tokener_error failed;
    struct json_object *o = json_tokener_parse_verbose(text, &failed);
    if (failed != json_tokener_success) {
        FAIL("no JSON: %s", text);
    }
    return o;
}

static bool collect(void *user, const smoe_output_event *e) {
    collector *c = user;
    CHECK_OK(buf_append(&c->source, e->source, e->source_bytes, &err));
    if (e->kind == SMOE_OUTPUT_CONTENT || e->kind == SMOE_OUTPUT_REASONING) {
        CHECK(!c->in_call && e->text_bytes > 0);
        CHECK(utf8_valid((const uint8_t *)e->text, e->text_bytes));
        if (e->kind != c->kind) {
            end_run(c);
        }
        c->kind = e->kind;
        CHECK_OK(buf_append(&c->run, e->text, e->text_bytes, &err));
    } else if (e->kind == SMOE_OUTPUT_CALL_BEGIN) {
        end_run(c);
        CHECK(!c->in_call);
        CHECK_INT(e->call, c->n_call);
        c->in_call = true;
        c->args.bytes = 0;
    } else if (e->kind == SMOE_OUTPUT_CALL_ARGUMENTS) {
        CHECK(c->in_call && e->call == c->n_call);
        CHECK(utf8_valid((const uint8_t *)e->text, e->text_bytes));
        CHECK_OK(buf_append(&c->args, e->text, e->text_bytes, &err));
    } else if (e->kind != SMOE_OUTPUT_SYNTAX) {
        CHECK(c->in_call && e->call == c->n_call);
        c->in_call = false;
        c->n_call++;
        if (e->kind == SMOE_OUTPUT_CALL_END) {
            CHECK_INT(json_kind_of(c->args.data, c->args.bytes), JSON_KIND_OBJECT);
            add_row(c, "call", json_object_new_string(e->name), json_object_new_string(e->id),
                    parse(c->args.data));
        } else {
            add_row(c, "failed", json_object_new_string(e->name), NULL, NULL);
        }
    }
    return c->left >= 0 && c->left-- == 0;
}

static void begin(collector *c) {
    *c = (collector){.list = json_object_new_array(), .left = -1};
    c->run.max_bytes = c->args.max_bytes = c->source.max_bytes = SIZE_MAX / 2;
    CHECK_OK(buf_append(&c->args, "", 0, &err));
    CHECK_OK(buf_append(&c->source, "", 0, &err));
}

static void release(collector *c) {
    json_object_put(c->list);
    buf_free(&c->run);
    buf_free(&c->args);
    buf_free(&c->source);
}

/* ---- running a text through in pieces */

typedef struct output_case {
    output_format format;
    const char *name, *prompt, *tools, *text;
    size_t bytes;
} output_case;

/* piece 0: random pieces of up to 12 bytes. */
static void run_case(collector *c, const output_case *k, size_t piece) {
    smoe_output_parser *p;
    smoe_output_options o = {.tools_json = k->tools, .fn = collect, .user = c};
    begin(c);
    CHECK_OK(output_open(&p, NULL, k->format, k->prompt, &o, &err));
    for (size_t i = 0; i < k->bytes;) {
        size_t n = piece ? piece : 1 + test_rand() % 12;
        n = n < k->bytes - i ? n : k->bytes - i;
        const char *text = k->text + i;
        if (piece == 2) {
            text = memcpy(test_guarded(n), text, n);
        }
        CHECK_OK(output_push_text(p, text, n, false, &err));
        i += n;
    }
    CHECK_OK(smoe_output_flush(p, &err));
    smoe_output_close(p);
    end_run(c);
}

static void check_case(const output_case *k, struct json_object *want) {
    for (int round = 0; round < 10; round++) {
        collector c;
        run_case(&c, k, round == 0 ? k->bytes + 1 : round < 4 ? (size_t)round : 0);
        if (!json_object_equal(c.list, want)) {
            FAIL("%s, %s: \"%s\" gives\n%s\nexpected\n%s", output_calls_name(k->format.calls),
                 k->name, k->text, json_object_to_json_string(c.list),
                 json_object_to_json_string(want));
        }
        if (c.source.bytes != k->bytes || memcmp(c.source.data, k->text, k->bytes) != 0) {
            FAIL("%s, %s: the sources of \"%s\" are\n%s", output_calls_name(k->format.calls),
                 k->name, k->text, c.source.data);
        }
        release(&c);
    }
}

/* ---- hand-written cases */

static const char *text_of(struct json_object *row, const char *key) {
    struct json_object *v = NULL;
    CHECK(json_object_object_get_ex(row, key, &v));
    return json_object_get_string(v);
}

static output_reasoning reasoning_named(const char *name) {
    static const char *const names[] = {"none", "think", "bracket", "channel"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(names[i], name) == 0) {
            return (output_reasoning)i;
        }
    }
    FAIL("no reasoning %s", name);
}

static output_calls calls_named(const char *name) {
    for (output_calls c = CALLS_NONE; c <= CALLS_LLAMA; c++) {
        if (strcmp(output_calls_name(c), name) == 0) {
            return c;
        }
    }
    FAIL("no format %s", name);
}

static char *read_tools(void) {
    return test_read_file(test_data("output/tools.json"), &(size_t){0});
}

/* Calls fn with each case and its expected events. */
static void each_case(void (*fn)(const output_case *k, struct json_object *want)) {
    char *tools = read_tools();
    char *file = test_read_file(test_data("output/cases.jsonl"), &(size_t){0});
    int n = 0;
    for (char *line = strtok_r(file, "\n", &(char *){NULL}), *next = NULL; line; line = next) {
        next = line + strlen(line) + 1;
        struct json_object *row = parse(line);
        struct json_object *with_tools = json_object_object_get(row, "tools");
        output_case k = {.format = {calls_named(text_of(row, "calls")),
                                    reasoning_named(text_of(row, "reasoning"))},
                         .name = text_of(row, "name"),
                         .prompt = text_of(row, "prompt"),
                         .tools = json_object_get_boolean(with_tools) ? tools : NULL,
                         .text = text_of(row, "text")};
        k.bytes = strlen(k.text);
        fn(&k, json_object_object_get(row, "events"));
        json_object_put(row);
        n++;
        char *end = strchr(next, '\n');
        if (!end) {
            break;
        }
        *end = '\0';
    }
    CHECK(n > 90);
    free(file);
    free(tools);
}

TEST(output_cases_in_every_cut) {
    each_case(check_case);
}

/* However an answer is cut off, nothing is lost: the sources are what came, and content and
 * reasoning stand in it in order. */
static void check_prefixes(const output_case *k, struct json_object *want) {
    (void)want;
    for (size_t n = 0; n < k->bytes; n += 1 + test_rand() % 3) {
        collector c;
        smoe_output_parser *p;
        smoe_output_options o = {.tools_json = k->tools, .fn = collect, .user = &c};
        if (((uint8_t)k->text[n] & 0xc0) == 0x80) {
            continue;
        }
        begin(&c);
        CHECK_OK(output_open(&p, NULL, k->format, k->prompt, &o, &err));
        CHECK_OK(output_push_text(p, k->text, n, false, &err));
        CHECK_OK(smoe_output_flush(p, &err));
        CHECK(!c.in_call);
        CHECK_INT(c.source.bytes, n);
        CHECK(memcmp(c.source.data, k->text, n) == 0);
        smoe_output_close(p);
        release(&c);
    }
}

TEST(output_loses_nothing_when_cut_off) {
    each_case(check_prefixes);
}

/* ---- what is held back, and for how long */

static void check_held(output_format format, const char *text, const char *out) {
    collector c;
    smoe_output_parser *p;
    smoe_output_options o = {.fn = collect, .user = &c};
    begin(&c);
    CHECK_OK(output_open(&p, NULL, format, NULL, &o, &err));
    CHECK_OK(output_push_text(p, text, strlen(text), false, &err));
    CHECK_OK(buf_append(&c.run, "", 0, &err));
    CHECK_TEXT(c.run.data, out);
    smoe_output_close(p);
    release(&c);
}

TEST(output_holds_back_no_more_than_it_must) {
    output_format f = {CALLS_HERMES, REASONING_THINK};
    check_held(f, "ab <", "ab ");
    check_held(f, "ab <tool_cal", "ab ");
    check_held(f, "ab <tool_cap", "ab <tool_cap");
    check_held(f, "ab\n", "ab");
    check_held(f, "ab\n\n", "ab\n");
    check_held(f, "ab\nc", "ab\nc");
    check_held(f, "ab\n<tool_x", "ab\n<tool_x");
    check_held(f, "ab \xe4\xbd", "ab ");
    check_held(f, "<think>x</thin", "x");
    f.calls = CALLS_MISTRAL;
    check_held(f, "ab\n[TOOL", "ab\n");
    f.calls = CALLS_LLAMA;
    check_held(f, "{\"name\": ", "{\"name\": "); /* no tools, so no call */
}

TEST(output_hands_arguments_out_as_they_come) {
    static const char head[] = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1, \"x";
    collector c;
    smoe_output_parser *p;
    smoe_output_options o = {.fn = collect, .user = &c};
    begin(&c);
    CHECK_OK(output_open(&p, NULL, (output_format){CALLS_HERMES, REASONING_NONE}, NULL, &o, &err));
    CHECK_OK(output_push_text(p, head, sizeof head - 1, false, &err));
    CHECK_TEXT(c.args.data, "{\"a\": [1, \"x");
    smoe_output_close(p);
    release(&c);
}

/* ---- the published templates */

static output_format detect_file(const char *name) {
    char path[512];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", test_vectors("vectors/templates/jinja"), name);
    char *source = test_read_file(path, &bytes);
    output_format f = output_format_detect(source, bytes);
    free(source);
    return f;
}

TEST(output_formats_are_told_by_the_template) {
    static const struct {
        const char *file;
        output_format format;
    } rows[] = {
        {"GLM-4.6.jinja", {CALLS_GLM, REASONING_THINK}},
        {"HuggingFaceTB-SmolLM3-3B.jinja", {CALLS_NONE, REASONING_THINK}},
        {"Kimi-K2-Instruct.jinja", {CALLS_KIMI, REASONING_NONE}},
        {"LFM2-8B-A1B.jinja", {CALLS_NONE, REASONING_NONE}},
        {"MiniMax-M2.jinja", {CALLS_MINIMAX, REASONING_THINK}},
        {"Qwen-Qwen3-0.6B.jinja", {CALLS_HERMES, REASONING_THINK}},
        {"Qwen3-Coder.jinja", {CALLS_QWEN_XML, REASONING_NONE}},
        {"Qwen3.5-4B.jinja", {CALLS_QWEN_XML, REASONING_THINK}},
        {"deepseek-ai-DeepSeek-V3.1.jinja", {CALLS_DEEPSEEK, REASONING_THINK}},
        {"deepseek-ai-DeepSeek-V4.jinja", {CALLS_DSML, REASONING_THINK}},
        {"google-gemma-4-31B-it.jinja", {CALLS_GEMMA, REASONING_CHANNEL}},
        {"ibm-granite-granite-4.0.jinja", {CALLS_HERMES, REASONING_NONE}},
        {"meta-llama-Llama-3.1-8B-Instruct.jinja", {CALLS_LLAMA, REASONING_NONE}},
        {"microsoft-Phi-3.5-mini-instruct.jinja", {CALLS_NONE, REASONING_NONE}},
        {"mistralai-Ministral-3-14B-Reasoning-2512.jinja", {CALLS_MISTRAL, REASONING_BRACKET}},
        {"openai-gpt-oss-120b.jinja", {CALLS_HARMONY, REASONING_NONE}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        output_format f = detect_file(rows[i].file);
        if (f.calls != rows[i].format.calls || f.reasoning != rows[i].format.reasoning) {
            FAIL("%s: calls %s, reasoning %d", rows[i].file, output_calls_name(f.calls),
                 (int)f.reasoning);
        }
    }
}

/* Where the assistant's own text begins and ends in what a template renders. */
static const struct {
    const char *file, *begin, *end;
} turns[] = {
    {"GLM-4.6.jinja", "<|assistant|>", "<|observation|>"},
    {"MiniMax-M2.jinja", "]~b]ai\n", "[e~["},
    {"Qwen-Qwen3-0.6B.jinja", "<|im_start|>assistant\n", "<|im_end|>"},
    {"Qwen3-Coder.jinja", "<|im_start|>assistant", "<|im_end|>"},
    {"Qwen3.5-4B.jinja", "<|im_start|>assistant\n", "<|im_end|>"},
    {"deepseek-ai-DeepSeek-V3.1.jinja", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
    {"deepseek-ai-DeepSeek-V4.jinja", "<｜Assistant｜></think>", "<｜end▁of▁sentence｜>"},
    {"google-gemma-4-31B-it.jinja", "<|turn>model\n", "<|tool_response>"},
    {"ibm-granite-granite-4.0.jinja", "<|start_of_role|>assistant<|end_of_role|>",
     "<|end_of_text|>"},
    {"meta-llama-Llama-3.1-8B-Instruct.jinja", "<|start_header_id|>assistant<|end_header_id|>\n\n",
     "<|eot_id|>"},
    {"mistralai-Ministral-3-14B-Reasoning-2512.jinja", "[/INST]", "</s>"},
    {"openai-gpt-oss-120b.jinja", "<|start|>assistant", "<|start|>functions"},
};

/* The row's assistant message with tool calls as events; content may be left out by a template. */
static struct json_object *expected_calls(struct json_object *message, size_t most) {
    struct json_object *list = json_object_new_array();
    struct json_object *calls = json_object_object_get(message, "tool_calls");
    size_t n = json_object_array_length(calls);
    for (size_t i = 0; i < n && i < most; i++) {
        struct json_object *f =
            json_object_object_get(json_object_array_get_idx(calls, i), "function");
        struct json_object *row = json_object_new_array();
        json_object_array_add(row, json_object_new_string("call"));
        json_object_array_add(row, json_object_get(json_object_object_get(f, "name")));
        json_object_array_add(row, json_object_new_string(""));
        json_object_array_add(row, json_object_get(json_object_object_get(f, "arguments")));
        json_object_array_add(list, row);
    }
    return list;
}

/* Content is what the message says; blanks around it are the template's (the model's own answer
 * would not have them), and "None" what some make of a message without content. */
static void check_content(struct json_object *list, const char *content, const char *file) {
    if (json_object_array_length(list) == 0) {
        return;
    }
    struct json_object *first = json_object_array_get_idx(list, 0);
    if (strcmp(json_object_get_string(json_object_array_get_idx(first, 0)), "content") != 0) {
        return;
    }
    const char *text = json_object_get_string(json_object_array_get_idx(first, 1));
    text += strspn(text, "\n");
    bool is_none = !content && (strcmp(text, "None") == 0 || strcmp(text, "null") == 0);
    if (*text && !is_none && (!content || strcmp(text, content) != 0)) {
        FAIL("%s: content is \"%s\"", file, text);
    }
    json_object_array_del_idx(list, 0, 1);
}

static void check_turn(struct json_object *row, const char *file, const char *begin_text,
                       const char *end_text) {
    struct json_object *messages = json_object_object_get(row, "messages");
    struct json_object *kwargs = json_object_object_get(row, "kwargs");
    struct json_object *message = json_object_array_get_idx(messages, 1);
    struct json_object *content = json_object_object_get(message, "content");
    const char *from = strstr(text_of(row, "expected"), begin_text);
    CHECK(from);
    from += strlen(begin_text);
    const char *to = strstr(from, end_text);
    CHECK(to);
    output_case k = {.format = detect_file(file),
                     .name = file,
                     .tools = json_object_to_json_string(json_object_object_get(kwargs, "tools")),
                     .text = from,
                     .bytes = (size_t)(to - from)};
    bool one_call = k.format.calls == CALLS_HARMONY; /* the template writes the first alone */
    struct json_object *want = expected_calls(message, one_call ? 1 : SIZE_MAX);
    for (size_t piece = 0; piece < 8; piece++) {
        collector c;
        run_case(&c, &k, piece == 7 ? k.bytes : piece);
        CHECK_INT(c.source.bytes, k.bytes);
        CHECK(memcmp(c.source.data, k.text, k.bytes) == 0);
        check_content(c.list, json_object_get_string(content), file);
        if (json_object_array_length(c.list) > json_object_array_length(want)) {
            json_object_array_del_idx(c.list, json_object_array_length(want),
                                      1); /* Gemma's order */
        }
        if (!json_object_equal(c.list, want)) {
            FAIL("%s: \"%.*s\" gives\n%s\nexpected\n%s", file, (int)k.bytes, k.text,
                 json_object_to_json_string(c.list), json_object_to_json_string(want));
        }
        release(&c);
    }
    json_object_put(want);
}

TEST(output_reads_what_the_templates_write) {
    int n = 0;
    char *file = test_read_file(test_vectors("vectors/templates/vectors.jsonl"), &(size_t){0});
    char *rest = NULL;
    for (char *line = strtok_r(file, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        struct json_object *row = parse(line);
        const char *name = text_of(row, "case");
        bool has_calls = strncmp(name, "tool-call", 9) == 0;
        for (size_t i = 0; has_calls && i < sizeof turns / sizeof turns[0]; i++) {
            if (strcmp(text_of(row, "template"), turns[i].file) == 0 &&
                json_object_object_get(row, "expected")) {
                check_turn(row, turns[i].file, turns[i].begin, turns[i].end);
                n++;
            }
        }
        json_object_put(row);
    }
    CHECK_INT(n, 32);
    free(file);
}

/* ---- control tokens */

/* models/tales-8m's tokenizer with markers added as control tokens. */
static smoe_tokenizer *open_with_tokens(const char *const *marks, const char *chat_template) {
    size_t n;
    smoe_tokenizer *t = NULL;
    char *json = test_read_file(test_model("tales-8m/tokenizer.json"), &n);
    struct json_object *root = parse(json);
    struct json_object *added = json_object_object_get(root, "added_tokens");
    int id = 4096;
    for (; *marks; marks++) {
        struct json_object *o = parse("{\"single_word\": false, \"lstrip\": false, \"rstrip\": "
                                      "false, \"normalized\": false, \"special\": true}");
        json_object_object_add(o, "id", json_object_new_int(id++));
        json_object_object_add(o, "content", json_object_new_string(*marks));
        json_object_array_add(added, o);
    }
    char *changed = strdup(json_object_to_json_string(root));
    char *source = strdup(chat_template);
    text_assets assets = {.label = (char[]){"test"},
                          .tokenizer_json = {changed, strlen(changed)},
                          .chat_template = {source, strlen(source)}};
    CHECK_OK(tokenizer_build(&t, &assets, &err));
    free(changed);
    free(source);
    free(json);
    json_object_put(root);
    return t;
}

/* As smoe_generate hands tokens over. */
static void check_tokens(const smoe_tokenizer *t, const char *text, const char *prompt,
                         bool parse_special, const char *want_text) {
    int32_t *ids;
    int32_t *prompt_ids;
    size_t n;
    size_t n_prompt;
    collector c;
    smoe_output_parser *p;
    text_stream stream;
    char *piece = malloc(text_stream_max_bytes(t));
    begin(&c);
    CHECK_OK(smoe_tokenize(t, text, strlen(text), parse_special, &ids, &n, &err));
    CHECK_OK(smoe_tokenize(t, prompt, strlen(prompt), true, &prompt_ids, &n_prompt, &err));
    smoe_output_options o = {.prompt = prompt_ids, .n_prompt = n_prompt, .fn = collect, .user = &c};
    CHECK_OK(smoe_output_open(&p, t, &o, &err));
    text_stream_init(&stream, t, false);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = text_stream_push(&stream, ids[i], piece);
        CHECK_OK(smoe_output_push(p, ids[i], piece, bytes, &err));
    }
    CHECK_OK(smoe_output_flush(p, &err));
    smoe_output_close(p);
    end_run(&c);
    struct json_object *want = parse(want_text);
    if (!json_object_equal(c.list, want)) {
        FAIL("\"%s\" gives\n%s\nexpected\n%s", text, json_object_to_json_string(c.list), want_text);
    }
    json_object_put(want);
    smoe_free(ids);
    smoe_free(prompt_ids);
    free(piece);
    release(&c);
}

TEST(output_control_tokens_count_by_id_alone) {
    static const char *const marks[] = {"<|start|>", "<|channel|>",   "<|message|>", "<|end|>",
                                        "<|call|>",  "<|constrain|>", NULL};
    smoe_tokenizer *t = open_with_tokens(marks, "<|channel|> <|message|>");
    check_tokens(t,
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
                 "to=functions.f <|constrain|>json<|message|>{\"a\": \"b\"}<|call|>",
                 "<|start|>user<|message|>x<|end|><|start|>assistant", true,
                 "[[\"reasoning\", \"Hm.\"], [\"call\", \"f\", \"\", {\"a\": \"b\"}]]");
    /* the same letters as text are content, and so are markers that only look like it */
    check_tokens(t, "a<|end|><|start|>b", "<|start|>assistant<|channel|>final<|message|>", false,
                 "[[\"content\", \"a<|end|><|start|>b\"]]");
    check_tokens(t, "<|channel|>final<|message|>a<|call|>", "<|start|>assistant", false,
                 "[[\"content\", \"<|channel|>final<|message|>a<|call|>\"]]");
    /* a control token inside arguments ends them */
    check_tokens(t, " to=functions.f<|channel|>commentary json<|message|>{\"a\": \"b<|call|>",
                 "<|start|>assistant", true,
                 "[[\"failed\", \"f\"], [\"content\", \" to=functions.f<|channel|>commentary "
                 "json<|message|>{\\\"a\\\": \\\"b\"]]");
    smoe_tokenizer_close(t);
}

TEST(output_markers_may_mix_control_tokens_and_text) {
    static const char *const marks[] = {"｜DSML｜", "<think>", "</think>", "<|pad|>", NULL};
    smoe_tokenizer *t = open_with_tokens(marks, "｜DSML｜ tool_calls <think>");
    check_tokens(t,
                 "Hm</think>Yes <|pad|>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
                 "<｜DSML｜parameter name=\"a\" string=\"true\">x</｜DSML｜parameter>\n"
                 "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
                 "hello <think>", true,
                 "[[\"reasoning\", \"Hm\"], [\"content\", \"Yes \"], [\"call\", \"f\", \"\", "
                 "{\"a\": \"x\"}]]");
    check_tokens(t, "a <｜DSML｜tool_calls> </think>", "<think></think>", false,
                 "[[\"content\", \"a <｜DSML｜tool_calls> </think>\"]]");
    smoe_tokenizer_close(t);
}

/* ---- errors and limits */

TEST(output_callback_can_stop_it) {
    for (int after = 0; after < 5; after++) {
        static const char text[] = "ab<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>c";
        collector c;
        smoe_output_parser *p;
        smoe_output_options o = {.fn = collect, .user = &c};
        begin(&c);
        c.left = after;
        CHECK_OK(
            output_open(&p, NULL, (output_format){CALLS_HERMES, REASONING_NONE}, NULL, &o, &err));
        CHECK_ERR(output_push_text(p, text, sizeof text - 1, false, &err), SMOE_ERR_CANCELLED);
        CHECK_ERR(output_push_text(p, "x", 1, false, &err), SMOE_ERR_CANCELLED);
        CHECK_ERR(smoe_output_flush(p, &err), SMOE_ERR_CANCELLED);
        smoe_output_close(p);
        release(&c);
    }
}

static bool ignore(void *user, const smoe_output_event *e) {
    (void)user;
    (void)e;
    return false;
}

static int run_once(const output_case *k) {
    smoe_output_parser *p = NULL;
    smoe_output_options o = {.fn = ignore};
    int rc = output_open(&p, NULL, k->format, k->prompt, &o, &err);
    if (rc == SMOE_OK) {
        rc = output_push_text(p, k->text, k->bytes, false, &err);
        rc = rc ? rc : smoe_output_flush(p, &err);
    }
    smoe_output_close(p);
    return rc;
}

/* Every allocation fails once: an error that says so, and nothing leaks or crashes. */
static void check_allocations(const output_case *k, struct json_object *want) {
    (void)want;
    bool has_failed = true;
    for (uint64_t n = 1; has_failed; n++) {
        err.text[0] = '\0';
        alloc_guard_fail_at(n);
        int rc = run_once(k);
        has_failed = alloc_guard_has_failed();
        alloc_guard_fail_at(0);
        CHECK_INT(rc, has_failed ? SMOE_ERR_MEMORY : SMOE_OK);
        CHECK(!has_failed || err.text[0]);
    }
}

TEST(output_survives_each_failed_allocation) {
    if (!alloc_guard_active()) {
        SKIP("the allocation guard is not in this build");
    }
    each_case(check_allocations);
}

TEST(output_refuses_bad_tools) {
    static const char *const bad[] = {"{}", "[1]", "[{\"function\": {}}]", "[", "[{\"name\": 3}]"};
    smoe_output_options o = {.fn = collect};
    smoe_output_parser *p = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        o.tools_json = bad[i];
        CHECK_ERR(smoe_output_open(&p, NULL, &o, &err), SMOE_ERR_FORMAT);
        CHECK_HAS(err.text, "tools");
        CHECK(!p);
    }
}

/* Odd schemas say nothing, and never crash. */
TEST(output_survives_odd_schemas) {
    static const char *const schemas[] = {"null",
                                          "[]",
                                          "3",
                                          "{\"type\": null}",
                                          "{\"type\": [null, 3]}",
                                          "{\"type\": \"x\"}",
                                          "{\"anyOf\": 3}",
                                          "{\"anyOf\": [null, {}]}",
                                          "{\"enum\": []}",
                                          "{\"allOf\": [1]}",
                                          "{\"type\": \"string\", \"enum\": [1]}",
                                          "{\"nullable\": \"a\"}"};
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        char tools[256];
        collector c;
        snprintf(tools, sizeof tools,
                 "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": %s}}}, {\"name\": "
                 "\"g\", \"parameters\": %s}]",
                 schemas[i], schemas[i]);
        output_case k = {.format = {CALLS_MINIMAX, REASONING_NONE},
                         .tools = tools,
                         .text = "<minimax:tool_call><invoke name=\"f\"><parameter "
                                 "name=\"a\">x</parameter></invoke><invoke name=\"g\"><parameter "
                                 "name=\"a\">y</parameter></invoke></minimax:tool_call>"};
        k.bytes = strlen(k.text);
        run_case(&c, &k, 3);
        CHECK_TEXT(json_object_to_json_string_ext(c.list, JSON_C_TO_STRING_PLAIN),
                   "[[\"call\",\"f\",\"\",{\"a\":\"x\"}],[\"call\",\"g\",\"\",{\"a\":\"y\"}]]");
        release(&c);
    }
}

TEST(output_bounds_names_headers_and_depth) {
    static const struct {
        output_calls calls;
        const char *head;
        char fill;
        size_t n;
        bool began;
    } rows[] = {
        {CALLS_KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>", 'x', 400, false},
        {CALLS_HARMONY, "<|channel|>", 'x', 2000, false},
        {CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", '[', 300, true},
        {CALLS_GEMMA, "<|tool_call>call:f{a:", '[', 300, true},
        {CALLS_MISTRAL, "[TOOL_CALLS]", 'x', 300, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[3000];
        collector c;
        size_t head = strlen(rows[i].head);
        memcpy(text, rows[i].head, head);
        memset(text + head, rows[i].fill, rows[i].n);
        text[head + rows[i].n] = '\0';
        output_case k = {
            .format = {rows[i].calls, REASONING_NONE}, .text = text, .bytes = head + rows[i].n};
        run_case(&c, &k, 0);
        size_t last = json_object_array_length(c.list) - 1;
        CHECK_INT(last, rows[i].began);
        struct json_object *content = json_object_array_get_idx(c.list, last);
        CHECK_TEXT(json_object_get_string(json_object_array_get_idx(content, 1)), text);
        release(&c);
    }
}

/* ---- JSON byte by byte, against json-c */

static void check_kind(const char *text, unsigned want) {
    if (json_kind_of(text, strlen(text)) != want) {
        FAIL("%s is of kind %u, expected %u", text, json_kind_of(text, strlen(text)), want);
    }
}

TEST(output_json_kinds) {
    check_kind("null", JSON_KIND_NULL);
    check_kind("true", JSON_KIND_BOOLEAN);
    check_kind("-0", JSON_KIND_INTEGER);
    check_kind("120", JSON_KIND_INTEGER);
    check_kind("1.5", JSON_KIND_NUMBER);
    check_kind("1E+9", JSON_KIND_NUMBER);
    check_kind("\"a\\u00e9\\n\"", JSON_KIND_STRING);
    check_kind("[1, {\"a\": [] }, -2.5e-3 ]", JSON_KIND_ARRAY);
    check_kind("{\"a\\\"\": {}, \"b\": [null]}", JSON_KIND_OBJECT);
    static const char *const bad[] = {
        "",       " 1",  "1 ",       "01",         "1.",   ".5",    "+1",      "-",
        "1e",     "1e+", "nul",      "nulll",      "\"",   "\"\\x", "\"\\x\"", "\"\\u12\"",
        "\"\n\"", "[",   "[1,]",     "[1 2]",      "[1}",  "{",     "{1: 2}",  "{\"a\"}",
        "{,}",    "{}}", "{\"a\":}", "{\"a\":1,}", "True", "[]]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_kind(bad[i], 0);
    }
}

/* Random strings of JSON's characters: what counts as JSON, json-c reads too (and more). */
TEST(output_json_agrees_with_the_reader) {
    static const char letters[] = "{}[]\",:\\ 01-.eE+truefalsn";
    int n_json = 0;
    for (int i = 0; i < 20000; i++) {
        char text[16];
        size_t n = 1 + test_rand() % 12;
        for (size_t j = 0; j < n; j++) {
            text[j] = letters[test_rand() % (sizeof letters - 1)];
        }
        text[n] = '\0';
        struct json_tokener *tok = json_tokener_new();
        json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
        struct json_object *o = json_tokener_parse_ex(tok, text, (int)n + 1);
        bool ok = json_tokener_get_error(tok) == json_tokener_success &&
                  json_tokener_get_parse_end(tok) >= n && text[0] != ' ' && text[n - 1] != ' ';
        bool got = json_kind_of(text, n) != 0;
        n_json += got;
        if (got && !ok) {
            FAIL("\"%s\" is no JSON", text);
        }
        json_object_put(o);
        json_tokener_free(tok);
    }
    CHECK(n_json > 20);
}

TEST(output_json_strings_both_ways) {
    byte_buf a = {.max_bytes = 1 << 20};
    byte_buf b = {.max_bytes = 1 << 20};
    for (int i = 0; i < 2000; i++) {
        char text[40];
        size_t n = test_rand() % sizeof text;
        for (size_t j = 0; j < n; j++) {
            text[j] = (char)(test_rand() % 128);
        }
        a.bytes = b.bytes = 0;
        CHECK_OK(buf_append(&a, "\"", 1, &err));
        CHECK_OK(json_escape(&a, text, n, &err));
        CHECK_OK(buf_append(&a, "\"", 1, &err));
        CHECK_INT(json_kind_of(a.data, a.bytes), JSON_KIND_STRING);
        CHECK_OK(json_unescape(&b, a.data + 1, a.bytes - 2, &err));
        CHECK_INT(b.bytes, n);
        CHECK(n == 0 || memcmp(b.data, text, n) == 0);
    }
    static const char escaped[] = "\\/\\b\\f\\uD83D\\uDE00\\ud800x\\u00E9\\udc00";
    b.bytes = 0;
    CHECK_OK(json_unescape(&b, escaped, sizeof escaped - 1, &err));
    CHECK_TEXT(b.data, "/\b\f😀\xef\xbf\xbdxé\xef\xbf\xbd");
    buf_free(&a);
    buf_free(&b);
}
