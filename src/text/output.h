/* Splitting a model's output into reasoning, content and tool calls; see smoe_output_parser.
 *
 * Opens no files, knows no model names: the chat template's text tells the format.
 */
#ifndef SMOE_TEXT_OUTPUT_H
#define SMOE_TEXT_OUTPUT_H

#include "base/error.h"

/* How tool calls are written. */
typedef enum output_calls {
    CALLS_NONE,
    CALLS_HERMES,   /* <tool_call>{"name": …, "arguments": …}</tool_call>: Qwen, Granite */
    CALLS_QWEN_XML, /* <tool_call><function=NAME><parameter=KEY>: Qwen3-Coder, Qwen3.5 */
    CALLS_GLM,      /* <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value> */
    CALLS_MINIMAX,  /* <minimax:tool_call><invoke name="…"><parameter name="…"> */
    CALLS_DSML,     /* the same with tags like <｜DSML｜invoke: DeepSeek V3.2, V4 */
    CALLS_DEEPSEEK, /* <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}: V3.1 */
    CALLS_DEEPSEEK_FENCED, /* …function<｜tool▁sep｜>NAME and a ```json block: V3, R1 */
    CALLS_KIMI,           /* <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…} */
    CALLS_HARMONY,        /* channels: gpt-oss */
    CALLS_GEMMA,          /* <|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|> */
    CALLS_FUNCTION_GEMMA, /* <start_function_call>call:NAME{key:<escape>text<escape>} */
    CALLS_MISTRAL,        /* [TOOL_CALLS][{…}] or [TOOL_CALLS]NAME[ARGS]{…} */
    CALLS_LLAMA           /* {"name": …, "parameters": …} as the whole answer */
} output_calls;

/* How reasoning is marked; harmony's channels are part of CALLS_HARMONY. */
typedef enum output_reasoning {
    REASONING_NONE,
    REASONING_THINK,   /* <think>…</think> */
    REASONING_BRACKET, /* [THINK]…[/THINK] */
    REASONING_CHANNEL  /* <|channel>thought … <channel|> */
} output_reasoning;

typedef struct output_format {
    output_calls calls;
    output_reasoning reasoning;
} output_format;

/* By the literal markers in a template's source; both NONE when it has none known. */
output_format output_format_detect(const char *source, size_t bytes);
/* "hermes", "none". */
const char *output_calls_name(output_calls calls);

/* smoe_output_open with the format given instead of the template, and the end of the prompt as text
 * (maybe with ids too, which then count). */
int output_open(smoe_output_parser **out, const smoe_tokenizer *tokenizer, output_format format,
                const char *prompt_end, const smoe_output_options *options, smoe_error *err);
/* Any bytes of output. is_special: they are a control token's text. */
int output_push_text(smoe_output_parser *p, const char *text, size_t bytes, bool is_special,
                     smoe_error *err);

#endif
