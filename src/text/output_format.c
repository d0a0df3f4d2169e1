/* The formats' markers: which a template has, and how the tokenizer writes them; see output.h. */
#include <string.h>

#include "text/output_impl.h"
#include "text/tokenizer.h"

static const char *const marker_texts[M_COUNT] = {
    [M_NONE] = "",
    [M_THINK] = "<think>",
    [M_THINK_END] = "</think>",
    [M_BRACKET] = "[THINK]",
    [M_BRACKET_END] = "[/THINK]",
    [M_THOUGHT] = "<|channel>thought",
    [M_THOUGHT_END] = "<channel|>",
    [M_TOOL_CALL] = "<tool_call>",
    [M_TOOL_CALL_END] = "</tool_call>",
    [M_FUNCTION] = "<function=",
    [M_FUNCTION_END] = "</function>",
    [M_PARAMETER] = "<parameter=",
    [M_PARAMETER_END] = "</parameter>",
    [M_ARG_KEY] = "<arg_key>",
    [M_ARG_KEY_END] = "</arg_key>",
    [M_ARG_VALUE] = "<arg_value>",
    [M_ARG_VALUE_END] = "</arg_value>",
    [M_MINIMAX] = "<minimax:tool_call>",
    [M_MINIMAX_END] = "</minimax:tool_call>",
    [M_INVOKE] = "<invoke name=\"",
    [M_INVOKE_END] = "</invoke>",
    [M_NAMED_PARAMETER] = "<parameter name=\"",
    [M_DSML] = "<｜DSML｜tool_calls>",
    [M_DSML_END] = "</｜DSML｜tool_calls>",
    [M_DSML_OLD] = "<｜DSML｜function_calls>",
    [M_DSML_OLD_END] = "</｜DSML｜function_calls>",
    [M_DSML_INVOKE] = "<｜DSML｜invoke name=\"",
    [M_DSML_INVOKE_END] = "</｜DSML｜invoke>",
    [M_DSML_PARAMETER] = "<｜DSML｜parameter name=\"",
    [M_DSML_PARAMETER_END] = "</｜DSML｜parameter>",
    [M_STRING_TRUE] = "\" string=\"true\">",
    [M_STRING_FALSE] = "\" string=\"false\">",
    [M_DEEPSEEK_CALLS] = "<｜tool▁calls▁begin｜>",
    [M_DEEPSEEK_CALLS_END] = "<｜tool▁calls▁end｜>",
    [M_DEEPSEEK_CALL] = "<｜tool▁call▁begin｜>",
    [M_DEEPSEEK_SEP] = "<｜tool▁sep｜>",
    [M_DEEPSEEK_CALL_END] = "<｜tool▁call▁end｜>",
    [M_FENCE_JSON] = "```json",
    [M_FENCE] = "```",
    [M_KIMI_CALLS] = "<|tool_calls_section_begin|>",
    [M_KIMI_CALLS_END] = "<|tool_calls_section_end|>",
    [M_KIMI_CALL] = "<|tool_call_begin|>",
    [M_KIMI_ARGUMENTS] = "<|tool_call_argument_begin|>",
    [M_KIMI_CALL_END] = "<|tool_call_end|>",
    [M_START] = "<|start|>",
    [M_CHANNEL] = "<|channel|>",
    [M_MESSAGE] = "<|message|>",
    [M_END] = "<|end|>",
    [M_RETURN] = "<|return|>",
    [M_CALL] = "<|call|>",
    [M_ASSISTANT] = "assistant",
    [M_TO] = "to=",
    [M_GEMMA_CALL] = "<|tool_call>",
    [M_GEMMA_CALL_END] = "<tool_call|>",
    [M_GEMMA_QUOTE] = "<|\"|>",
    [M_ESCAPE_CALL] = "<start_function_call>",
    [M_ESCAPE_CALL_END] = "<end_function_call>",
    [M_ESCAPE_QUOTE] = "<escape>",
    [M_CALL_COLON] = "call:",
    [M_TOOL_CALLS] = "[TOOL_CALLS]",
    [M_ARGS] = "[ARGS]",
    [M_CALL_ID] = "[CALL_ID]",
    [M_PYTHON_TAG] = "<|python_tag|>",
    [M_NEWLINE] = "\n",
    [M_BRACE] = "{",
    [M_COLON] = ":",
    [M_GREATER] = ">",
    [M_QUOTE_GREATER] = "\">",
};

/* Rows in order of precedence; all texts of a row must be in the template, none being NULL. */
static const struct {
    const char *need[2];
    output_calls calls;
} call_rows[] = {
    {{"<|channel|>", "<|message|>"}, CALLS_HARMONY},
    {{"｜DSML｜", "tool_calls"}, CALLS_DSML},
    {{"｜DSML｜", "function_calls"}, CALLS_DSML},
    {{"<｜tool▁calls▁begin｜>", "```json"}, CALLS_DEEPSEEK_FENCED},
    {{"<｜tool▁calls▁begin｜>", NULL}, CALLS_DEEPSEEK},
    {{"<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"}, CALLS_KIMI},
    {{"<minimax:tool_call>", "<invoke name="}, CALLS_MINIMAX},
    {{"<|tool_call>", "<tool_call|>"}, CALLS_GEMMA},
    {{"<start_function_call>", "<escape>"}, CALLS_FUNCTION_GEMMA},
    {{"[TOOL_CALLS]", NULL}, CALLS_MISTRAL},
    {{"<tool_call>", "<arg_key>"}, CALLS_GLM},
    {{"<tool_call>", "<function="}, CALLS_QWEN_XML},
    {{"<tool_call>", "arguments"}, CALLS_HERMES},
    {{"{\"name\": ", "\"parameters\": "}, CALLS_LLAMA},
};

static const struct {
    const char *need;
    output_reasoning reasoning;
} reasoning_rows[] = {
    {"<|channel>thought", REASONING_CHANNEL},
    {"[THINK]", REASONING_BRACKET},
    {"<think>", REASONING_THINK},
    {"</think>", REASONING_THINK},
};

static bool holds(const char *source, size_t bytes, const char *text) {
    return !text || memmem(source, bytes, text, strlen(text));
}

output_format output_format_detect(const char *source, size_t bytes) {
    output_format f = {CALLS_NONE, REASONING_NONE};
    for (size_t i = 0; i < sizeof call_rows / sizeof call_rows[0]; i++) {
        if (holds(source, bytes, call_rows[i].need[0]) &&
            holds(source, bytes, call_rows[i].need[1])) {
            f.calls = call_rows[i].calls;
            break;
        }
    }
    for (size_t i = 0;
         f.calls != CALLS_HARMONY && i < sizeof reasoning_rows / sizeof reasoning_rows[0]; i++) {
        if (holds(source, bytes, reasoning_rows[i].need)) {
            f.reasoning = reasoning_rows[i].reasoning;
            break;
        }
    }
    return f;
}

const char *output_calls_name(output_calls calls) {
    static const char *const names[] = {
        [CALLS_NONE] = "none",         [CALLS_HERMES] = "hermes",
        [CALLS_QWEN_XML] = "qwen-xml", [CALLS_GLM] = "glm",
        [CALLS_MINIMAX] = "minimax",   [CALLS_DSML] = "dsml",
        [CALLS_DEEPSEEK] = "deepseek", [CALLS_DEEPSEEK_FENCED] = "deepseek-fenced",
        [CALLS_KIMI] = "kimi",         [CALLS_HARMONY] = "harmony",
        [CALLS_GEMMA] = "gemma",       [CALLS_FUNCTION_GEMMA] = "function-gemma",
        [CALLS_MISTRAL] = "mistral",   [CALLS_LLAMA] = "llama",
    };
    return names[calls];
}

/* ---- what may come in content */

static const marker_id harmony_text[] = {M_START, M_CHANNEL, M_END, M_RETURN, M_CALL, M_NONE};

/* Openers of calls, with that of each kind of reasoning. */
#define OPENERS(name, ...)                                                                         \
    static const marker_id name[][6] = {                                                           \
        [REASONING_NONE] = {__VA_ARGS__ M_NONE},                                                   \
        [REASONING_THINK] = {__VA_ARGS__ M_THINK, M_NONE},                                         \
        [REASONING_BRACKET] = {__VA_ARGS__ M_BRACKET, M_NONE},                                     \
        [REASONING_CHANNEL] = {__VA_ARGS__ M_THOUGHT, M_NONE},                                     \
    }
OPENERS(plain_openers, );
OPENERS(tool_call_openers, M_TOOL_CALL, );
OPENERS(minimax_openers, M_MINIMAX, );
OPENERS(dsml_openers, M_DSML, M_DSML_OLD, );
OPENERS(deepseek_openers, M_DEEPSEEK_CALLS, );
OPENERS(kimi_openers, M_KIMI_CALLS, );
OPENERS(gemma_openers, M_GEMMA_CALL, );
OPENERS(escape_openers, M_ESCAPE_CALL, );
OPENERS(mistral_openers, M_TOOL_CALLS, );
OPENERS(llama_openers, M_PYTHON_TAG, );

/* first and last are the markers of its own that a format has. */
static const struct {
    const marker_id (*openers)[6];
    uint8_t lead;
    marker_id first, last;
} content_rows[] = {
    [CALLS_NONE] = {plain_openers, 0, M_NONE, M_NONE},
    [CALLS_HERMES] = {tool_call_openers, 1, M_TOOL_CALL, M_TOOL_CALL_END},
    [CALLS_QWEN_XML] = {tool_call_openers, 2, M_TOOL_CALL, M_PARAMETER_END},
    [CALLS_GLM] = {tool_call_openers, 1, M_ARG_KEY, M_TOOL_CALL_END},
    [CALLS_MINIMAX] = {minimax_openers, 1, M_PARAMETER_END, M_NAMED_PARAMETER},
    [CALLS_DSML] = {dsml_openers, 2, M_DSML, M_STRING_FALSE},
    [CALLS_DEEPSEEK] = {deepseek_openers, 0, M_DEEPSEEK_CALLS, M_FENCE},
    [CALLS_DEEPSEEK_FENCED] = {deepseek_openers, 0, M_DEEPSEEK_CALLS, M_FENCE},
    [CALLS_KIMI] = {kimi_openers, 0, M_KIMI_CALLS, M_KIMI_CALL_END},
    [CALLS_HARMONY] = {plain_openers, 0, M_START, M_TO},
    [CALLS_GEMMA] = {gemma_openers, 0, M_GEMMA_CALL, M_GEMMA_QUOTE},
    [CALLS_FUNCTION_GEMMA] = {escape_openers, 0, M_ESCAPE_CALL, M_ESCAPE_QUOTE},
    [CALLS_MISTRAL] = {mistral_openers, 0, M_TOOL_CALLS, M_CALL_ID},
    [CALLS_LLAMA] = {llama_openers, 0, M_PYTHON_TAG, M_PYTHON_TAG},
};

/* Newlines that belong to reasoning's markers: after the opener, before and after the closer. */
static const struct {
    marker_id first, last;
    uint8_t after_open, before_close, after_close;
} frame_rows[] = {
    [REASONING_NONE] = {M_NONE, M_NONE, 0, 0, 0},
    [REASONING_THINK] = {M_THINK, M_THINK_END, 1, 1, 2},
    [REASONING_BRACKET] = {M_BRACKET, M_BRACKET_END, 0, 0, 0},
    [REASONING_CHANNEL] = {M_THOUGHT, M_THOUGHT_END, 1, 1, 0},
};

const marker_id *output_openers(const smoe_output_parser *p) {
    static const marker_id closers[][2] = {
        [REASONING_NONE] = {M_NONE},
        [REASONING_THINK] = {M_THINK_END},
        [REASONING_BRACKET] = {M_BRACKET_END},
        [REASONING_CHANNEL] = {M_THOUGHT_END},
    };
    output_reasoning r = p->format.reasoning;
    if (p->format.calls == CALLS_HARMONY) {
        return harmony_text;
    }
    if (p->kind == SMOE_OUTPUT_REASONING) {
        return closers[r];
    }
    /* <think> is text that an answer may talk about, so it counts only where an answer begins */
    if (r == REASONING_THINK && p->has_begun) {
        r = REASONING_NONE;
    }
    return content_rows[p->format.calls].openers[r];
}

size_t output_lead(const smoe_output_parser *p) {
    if (p->kind == SMOE_OUTPUT_REASONING) {
        return frame_rows[p->format.reasoning].before_close;
    }
    uint8_t lead = content_rows[p->format.calls].lead;
    /* an answer of GLM begins with a newline before <think> */
    return lead == 0 && !p->has_begun && p->format.reasoning == REASONING_THINK ? 1 : lead;
}

uint8_t output_trail(const smoe_output_parser *p, bool is_opener) {
    return is_opener ? frame_rows[p->format.reasoning].after_open
                     : frame_rows[p->format.reasoning].after_close;
}

enum output_state output_state_after(const smoe_output_parser *p, marker_id m) {
    switch (m) {
    case M_TOOL_CALL:
        return p->format.calls == CALLS_HERMES ? S_OBJECT : S_TAGS;
    case M_MINIMAX:
    case M_DSML:
    case M_DSML_OLD:
        return S_TAGS;
    case M_DEEPSEEK_CALLS:
    case M_KIMI_CALLS:
        return S_SECTION;
    case M_GEMMA_CALL:
    case M_ESCAPE_CALL:
        return S_GEMMA;
    case M_TOOL_CALLS:
        return S_MISTRAL;
    case M_PYTHON_TAG:
        return S_LLAMA;
    default:
        return S_TEXT;
    }
}

/* ---- markers and control tokens */

static int add_special(smoe_output_parser *p, marker_text *m, size_t from, size_t bytes,
                       int32_t id) {
    for (size_t i = from; i < from + bytes && i < 64; i++) {
        m->special |= (uint64_t)1 << i;
    }
    for (size_t i = 0; i < p->n_special_id; i++) {
        if (p->special_ids[i] == id) {
            return SMOE_OK;
        }
    }
    if (p->n_special_id < M_COUNT) {
        p->special_ids[p->n_special_id++] = id;
    }
    return SMOE_OK;
}

/* Notes which bytes of the marker are control tokens. */
static int look_up(smoe_output_parser *p, marker_text *m, smoe_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    size_t cap = 0;
    size_t from = 0;
    int rc = tokenizer_encode(p->tokenizer, m->text, m->bytes, true, &ids, &n, &cap, err);
    text_stream stream;
    text_stream_init(&stream, p->tokenizer, true);
    for (size_t i = 0; i < n && rc == SMOE_OK; i++) {
        size_t bytes = text_stream_push(&stream, ids[i], p->token_text);
        if (tokenizer_is_special(p->tokenizer, ids[i])) {
            rc = add_special(p, m, from, bytes, ids[i]);
        }
        from += bytes;
    }
    free(ids);
    return rc;
}

static bool is_of_format(const output_format *f, size_t m) {
    return (m >= content_rows[f->calls].first && m <= content_rows[f->calls].last) ||
           (m >= frame_rows[f->reasoning].first && m <= frame_rows[f->reasoning].last);
}

int output_prepare_markers(smoe_output_parser *p, smoe_error *err) {
    int rc = SMOE_OK;
    for (size_t i = 0; i < M_COUNT && rc == SMOE_OK; i++) {
        p->markers[i] = (marker_text){.text = marker_texts[i], .bytes = strlen(marker_texts[i])};
        if (p->tokenizer && i != M_NONE && is_of_format(&p->format, i)) {
            rc = look_up(p, &p->markers[i], err);
        }
    }
    return rc;
}

bool output_knows_token(const smoe_output_parser *p, int32_t id) {
    for (size_t i = 0; i < p->n_special_id; i++) {
        if (p->special_ids[i] == id) {
            return true;
        }
    }
    return false;
}
