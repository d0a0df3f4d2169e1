/* The inside of smoe_output_parser, for the files that share it.
 *
 * Input waits in `in` until it is certain what it is. A step looks at its front and either accounts
 * for some of it (an event, maybe another state) or waits for more. While a tool call is read,
 * all that was accounted for since it began is kept in `log`, so that a malformed one can be handed
 * out as content.
 */
#ifndef SMOE_TEXT_OUTPUT_IMPL_H
#define SMOE_TEXT_OUTPUT_IMPL_H

#include "text/output.h"
#include "text/output_json.h"

struct json_object;

enum {
    OUTPUT_NAME_BYTES = 256,     /* of a tool, a parameter or a call's id */
    OUTPUT_HEADER_BYTES = 1024,  /* of a harmony message */
    OUTPUT_CALL_BYTES = 16 << 20 /* a longer call is malformed */
};

/* Literal pieces of the formats. A list of them ends with M_NONE. */
typedef enum marker_id {
    M_NONE,
    M_THINK,
    M_THINK_END,
    M_BRACKET,
    M_BRACKET_END,
    M_THOUGHT,
    M_THOUGHT_END,
    /* those of a format stand together */
    M_ARG_KEY,
    M_ARG_KEY_END,
    M_ARG_VALUE,
    M_ARG_VALUE_END,
    M_TOOL_CALL,
    M_TOOL_CALL_END,
    M_FUNCTION,
    M_FUNCTION_END,
    M_PARAMETER,
    M_PARAMETER_END,
    M_MINIMAX,
    M_MINIMAX_END,
    M_INVOKE,
    M_INVOKE_END,
    M_NAMED_PARAMETER,
    M_DSML,
    M_DSML_END,
    M_DSML_OLD,
    M_DSML_OLD_END,
    M_DSML_INVOKE,
    M_DSML_INVOKE_END,
    M_DSML_PARAMETER,
    M_DSML_PARAMETER_END,
    M_STRING_TRUE,
    M_STRING_FALSE,
    M_DEEPSEEK_CALLS,
    M_DEEPSEEK_CALLS_END,
    M_DEEPSEEK_CALL,
    M_DEEPSEEK_SEP,
    M_DEEPSEEK_CALL_END,
    M_FENCE_JSON,
    M_FENCE,
    M_KIMI_CALLS,
    M_KIMI_CALLS_END,
    M_KIMI_CALL,
    M_KIMI_ARGUMENTS,
    M_KIMI_CALL_END,
    M_START,
    M_CHANNEL,
    M_MESSAGE,
    M_END,
    M_RETURN,
    M_CALL,
    M_ASSISTANT,
    M_TO,
    M_GEMMA_CALL,
    M_GEMMA_CALL_END,
    M_GEMMA_QUOTE,
    M_ESCAPE_CALL,
    M_ESCAPE_CALL_END,
    M_ESCAPE_QUOTE,
    M_CALL_COLON,
    M_TOOL_CALLS,
    M_ARGS,
    M_CALL_ID,
    M_PYTHON_TAG,
    M_NEWLINE,
    M_BRACE,
    M_COLON,
    M_GREATER,
    M_QUOTE_GREATER,
    M_COUNT
} marker_id;

typedef struct marker_text {
    const char *text;
    size_t bytes;     /* at most 64 */
    uint64_t special; /* a bit for each byte that is part of a control token */
} marker_text;

enum output_state {
    S_TEXT,
    S_HEADER,  /* harmony: up to <|message|> */
    S_SECTION, /* between calls written as NAME, separator, JSON */
    S_NAME,
    S_FENCE_NAME,
    S_FENCE,
    S_ARGS,
    S_ARGS_FENCE,
    S_ARGS_END,
    S_OBJECT, /* a call written as one JSON object */
    S_OBJECT_END,
    S_MISTRAL, /* after [TOOL_CALLS] */
    S_CALL_ID,
    S_ARRAY,
    S_ARRAY_NEXT,
    S_LLAMA, /* after <|python_tag|> */
    S_LLAMA_NEXT,
    S_PYTHON,
    S_TAGS, /* between calls written with tags */
    S_TAG_NAME,
    S_TAG_NEXT,
    S_TAG_KEY,
    S_TAG_OPEN,
    S_TAG_VALUE,
    S_GEMMA,
    S_GEMMA_NAME,
    S_GEMMA_KEY,
    S_GEMMA_VALUE,
    S_GEMMA_STRING,
    S_GEMMA_NEXT,
    S_GEMMA_END,
    S_COUNT
};

/* A call as a JSON object: where in it the parser stands. */
typedef struct object_call {
    uint8_t place;
    uint8_t target;    /* what the value is for */
    bool is_streaming; /* the value is handed out as it comes */
    bool has_name, has_args;
    bool args_are_text;           /* a JSON string that holds JSON */
    size_t value_from;            /* in log */
    size_t args_from, args_bytes; /* in log: arguments that came before the name, or as text */
} object_call;

/* Gemma's notation being turned into JSON. */
typedef struct gemma_value {
    uint32_t depth;
    uint8_t is_object[LIMIT_JSON_DEPTH / 8 + 1];
    bool is_key;   /* the string read is one */
    bool is_first; /* nothing stands in the innermost object or array */
} gemma_value;

struct smoe_output_parser {
    output_format format;
    const smoe_tokenizer *tokenizer; /* NULL: markers are text */
    smoe_output_fn fn;
    void *user;
    bool is_muted;             /* the prompt's end is read: no events */
    struct json_object *tools; /* array; NULL: none */
    marker_text markers[M_COUNT];
    int32_t special_ids[M_COUNT]; /* control tokens that markers hold */
    size_t n_special_id;
    char *token_text; /* [text_stream_max_bytes] */

    byte_buf in;
    byte_buf in_special; /* a byte for each of in: whether it is a control token's */
    size_t at;           /* what of in is accounted for */
    bool is_last;        /* no more input comes */
    int rc;              /* the first failure; nothing goes on after it */
    smoe_error *err;

    enum output_state state;
    smoe_output_kind kind; /* of text: content or reasoning */
    bool has_begun;        /* content that is not white space, or a call, came */
    uint8_t skip_newlines; /* that may still follow a marker */

    bool in_call;           /* log is kept */
    bool call_begun;        /* CALL_BEGIN is out */
    bool has_args;          /* some of the arguments are out */
    int32_t n_call;         /* begun and over */
    int32_t n_section_call; /* ended in this section */
    byte_buf log;
    byte_buf name, id, key, scratch;
    json_scan scan;
    object_call object;
    gemma_value gemma;
    unsigned value_kinds; /* json_kind bits that the value may have */
    size_t value_from;    /* in log */
};

/* ---- input */

typedef enum marker_match { MATCH_NO, MATCH_PART, MATCH_FULL } marker_match;

static inline size_t output_left(const smoe_output_parser *p) {
    return p->in.bytes - p->at;
}
static inline const char *output_front(const smoe_output_parser *p) {
    return p->in.data + p->at;
}
static inline bool output_is_special(const smoe_output_parser *p, size_t offset) {
    return p->in_special.data[p->at + offset] != 0;
}
/* Blank and no part of a control token. */
bool output_is_blank(const smoe_output_parser *p, size_t offset);
/* n, or less so that no character is cut at the end of what came. */
size_t output_whole(const smoe_output_parser *p, size_t n);
/* A marker at an offset from the front. PART: it may become one. */
marker_match output_match(const smoe_output_parser *p, size_t offset, marker_id m);
/* The first place where one of the markers stands: MATCH_FULL, where one may come to stand
 * (MATCH_PART), or the end of what came (MATCH_NO). */
marker_match output_find(const smoe_output_parser *p, const marker_id *set, size_t *offset,
                         marker_id *found);

/* Newlines right before an offset, at most so many. */
size_t output_newlines_before(const smoe_output_parser *p, size_t offset, size_t most);
/* Accounts for a newline that belongs to the marker before it. Whether it looked for one. */
bool output_skip_newline(smoe_output_parser *p);

enum { OUTPUT_WAIT = -1, OUTPUT_FAIL = -2 };
/* One of the markers must come, maybe after blanks: accounts for both and returns the marker, else
 * for the blanks alone. */
int output_expect(smoe_output_parser *p, const marker_id *set);
/* A short text up to one of the markers: returns it with the text's length; accounts for nothing.
 */
int output_until(smoe_output_parser *p, const marker_id *set, size_t *bytes);

/* ---- events; each accounts for the first bytes at the front */

void output_text(smoe_output_parser *p, size_t bytes);
void output_syntax(smoe_output_parser *p, size_t bytes);
/* Arguments as they stand in the output. */
void output_arguments(smoe_output_parser *p, size_t bytes);
/* Arguments that are made from them; bytes may be 0. */
void output_made(smoe_output_parser *p, const char *text, size_t text_bytes, size_t bytes);
void output_made_text(smoe_output_parser *p, const char *text);
/* A piece of a JSON string, from the text at the front. */
void output_made_string(smoe_output_parser *p, size_t bytes);

/* ---- calls */

/* From here on the log is kept. */
void output_open_call(smoe_output_parser *p, enum output_state state);
/* Sets name or id to the text without blanks around it; false when it cannot be one. */
bool output_set_name(smoe_output_parser *p, const char *text, size_t bytes);
void output_set(smoe_output_parser *p, byte_buf *b, const char *text, size_t bytes);
void output_begin_call(smoe_output_parser *p);
/* Ends the call, with {} when it had no arguments; the log starts anew. */
void output_end_call(smoe_output_parser *p);
/* After the last call of a section: back to content. */
void output_close_section(smoe_output_parser *p);
/* All since the log began is content after all. Returns true, as a step does that went on. */
bool output_fail(smoe_output_parser *p);

/* ---- steps: whether anything was done */

bool output_step_text(smoe_output_parser *p);
bool output_step_header(smoe_output_parser *p);
bool output_step_named(smoe_output_parser *p);  /* S_SECTION to S_ARGS_END */
bool output_step_object(smoe_output_parser *p); /* S_OBJECT */
bool output_step_list(smoe_output_parser *p);   /* S_OBJECT_END to S_PYTHON */
bool output_step_tags(smoe_output_parser *p);   /* S_TAGS to S_TAG_VALUE */
bool output_step_gemma(smoe_output_parser *p);  /* S_GEMMA to S_GEMMA_END */
/* The whole answer has come: a call in S_PYTHON can be read. False when it is none. */
bool output_finish_python(smoe_output_parser *p);

/* ---- the format */

/* Markers that may begin something in content; those that end reasoning. */
const marker_id *output_openers(const smoe_output_parser *p);
/* Newlines before a marker in content that belong to it. */
size_t output_lead(const smoe_output_parser *p);
/* Puts the texts into p->markers and finds out which parts are control tokens. */
int output_prepare_markers(smoe_output_parser *p, smoe_error *err);
/* Whether a control token is part of one of the markers. */
bool output_knows_token(const smoe_output_parser *p, int32_t id);
/* What an opener of a call starts; S_TEXT for every other marker. */
enum output_state output_state_after(const smoe_output_parser *p, marker_id m);
/* Newlines after a marker of reasoning that belong to it. */
uint8_t output_trail(const smoe_output_parser *p, bool is_opener);

/* ---- tools */

int output_read_tools(smoe_output_parser *p, const char *json, smoe_error *err);
bool output_has_tool(const smoe_output_parser *p, const char *name);
/* The kinds that the schema of the call's tool allows for a parameter; JSON_KIND_ANY when it does
 * not say. */
unsigned output_parameter_kinds(const smoe_output_parser *p, const char *parameter);

#endif
