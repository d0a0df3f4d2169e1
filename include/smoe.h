/* smoe: run Mixture-of-Experts language models that are larger than memory.
 *
 * This header is the whole public API. The library never prints, exits or aborts: every function
 * that can fail returns 0 or a negative smoe_status and fills the smoe_error it was given (NULL is
 * allowed) with one sentence that names the file, tensor or field and the remedy. Lines meant for a
 * person (the memory plan, fallbacks) go to the smoe_log_fn of the options.
 *
 * Threads: a model may be shared by several threads once open, but its sessions take turns: two
 * calls on sessions of one model must not overlap. smoe_session_cancel may be called at any time
 * from any thread or signal handler. Tokenizers are immutable and may be shared freely.
 */
#ifndef SMOE_H
#define SMOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SMOE_VERSION "0.1.0"

#define SMOE_API      __attribute__((visibility("default")))
#define SMOE_MUST_USE __attribute__((warn_unused_result))

/* ------------------------------------------------------------------ errors */

typedef enum smoe_status {
    SMOE_OK = 0,
    SMOE_ERR_ARGUMENT = -1,    /* the caller asked for something that cannot be */
    SMOE_ERR_IO = -2,          /* the system refused: open, read, write, no space */
    SMOE_ERR_FORMAT = -3,      /* a file breaks its own format, or lies about its content */
    SMOE_ERR_UNSUPPORTED = -4, /* well-formed, but not something this version runs */
    SMOE_ERR_MEMORY = -5,      /* the ceiling, or the machine, is too small */
    SMOE_ERR_CHECKSUM = -6,    /* stored bytes differ from what was written */
    SMOE_ERR_CANCELLED = -7,   /* smoe_session_cancel, or a callback asked to stop */
    SMOE_ERR_CONTEXT = -8,     /* the token sequence is longer than the context */
    SMOE_ERR_NUMERIC = -9      /* logits are not finite: nothing can be sampled from them */
} smoe_status;

#define SMOE_ERROR_TEXT_BYTES 640

typedef struct smoe_error {
    int code;                         /* a smoe_status */
    char text[SMOE_ERROR_TEXT_BYTES]; /* one line, no trailing newline, valid UTF-8 */
} smoe_error;

typedef enum smoe_log_level { SMOE_LOG_PLAN, SMOE_LOG_NOTICE, SMOE_LOG_WARNING } smoe_log_level;

/* Receives one line without a newline. Called only from the thread inside an API call. */
typedef void (*smoe_log_fn)(void *user, smoe_log_level level, const char *line);

/* Long work (sculpting, verifying) reports here a few times a second; returning true stops it
 * with SMOE_ERR_CANCELLED. */
typedef struct smoe_progress {
    const char *phase;   /* "sculpt", "verify" */
    uint64_t done_bytes; /* of total_bytes; bytes of the source that are finished */
    uint64_t total_bytes;
    uint64_t fresh_bytes; /* done in this run (a resumed job starts above zero) */
    uint64_t elapsed_ns;
} smoe_progress;
typedef bool (*smoe_progress_fn)(void *user, const smoe_progress *progress);

/* Releases strings and arrays that functions below hand over. NULL is allowed. */
SMOE_API void smoe_free(void *p);

/* ------------------------------------------------------------------ looking at a model */

typedef struct smoe_info {
    char family[32];    /* "qwen3_moe", "mixtral", … */
    char container[24]; /* "vault", "checkpoint", "gguf" */
    int32_t n_layer;
    int32_t n_moe_layer;
    int32_t d_model;
    int32_t vocab_size;
    int32_t n_expert;         /* of each MoE layer */
    int32_t n_expert_used;    /* of each token in each MoE layer */
    int32_t expert_width_dim; /* rows of an expert's gate and up */
    int32_t context_tok;      /* the longest the model was made for */
    char expert_type[16];     /* element or block type of the experts, "mixed" when they differ */
    uint64_t n_param;
    uint64_t n_param_active;      /* used by one token */
    uint64_t expert_bytes;        /* largest expert record */
    uint64_t experts_bytes;       /* all experts */
    uint64_t token_cycle_bytes;   /* of the experts that one token touches */
    uint64_t smallest_ring_bytes; /* a token cycle as it lies in the ring, aligned */
    uint64_t scout_bytes;         /* resident weights */
    uint64_t kv_token_bytes;      /* KV cache for one token in f16, */
    uint64_t kv_q8_token_bytes;   /* and in q8 */
} smoe_info;

/* Reads headers only. */
SMOE_API int smoe_describe(const char *path, smoe_info *out, smoe_error *err) SMOE_MUST_USE;
/* The same and the whole spec as JSON; *json is the caller's (smoe_free), untouched on failure. */
SMOE_API int smoe_describe_json(const char *path, char **json, smoe_error *err) SMOE_MUST_USE;

/* What a GGUF file holds, for people to read: its metadata, and its tensors with those of all
 * layers in one line. Also for architectures that cannot be run. *text is the caller's
 * (smoe_free), untouched on failure; NULL when path is no GGUF file. */
SMOE_API int smoe_describe_container(const char *path, char **text, smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ sculpting */

typedef struct smoe_sculpt_options {
    const char *expert_type; /* "q4", "q2", "q8", "bf16", or "keep": as stored, bit for bit; NULL:
                                keep for GGUF files, else q4 */
    const char
        *scout_type;  /* "q8", "bf16" or "keep"; NULL: what the experts keep or are, else q8 */
    int32_t n_thread; /* 0: one for each core */
    bool overwrite;   /* replace a finished vault of that name */
    smoe_progress_fn progress;
    smoe_log_fn log;
    void *user; /* handed to both callbacks */
} smoe_sculpt_options;

/* Writes vault_path and, beside it, its scout. An interrupted job resumes when called again with
 * the same arguments and yields the same bytes. The names exist only when complete and verified. */
SMOE_API int smoe_sculpt(const char *checkpoint_path, const char *vault_path,
                         const smoe_sculpt_options *options, smoe_error *err) SMOE_MUST_USE;

/* Reads the whole vault and its scout and compares every checksum; the error names the first
 * record that differs. */
SMOE_API int smoe_verify(const char *vault_path, smoe_progress_fn progress, void *user,
                         smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ synthetic models */

typedef struct smoe_synth_options {
    const char *shape; /* "qwen3-30b-a3b", …; the error for an unknown one lists them */
    const char *type;  /* of the experts: "q4_k", "q8_0", …; NULL: q4_k */
    bool uniform;      /* routing near-uniform instead of skewed */
    uint64_t seed;
    int32_t n_layer;  /* 0: as many as the shape has */
    int32_t n_thread; /* 0: one for each core */
    bool overwrite;   /* replace a file of that name */
    smoe_progress_fn progress;
    smoe_log_fn log;
    void *user; /* handed to both callbacks */
} smoe_synth_options;

/* Writes a GGUF file of a published model's exact shape with random weights, to measure with; see
 * docs/synth.md. The same options give the same bytes. path ends in .gguf and exists only when
 * complete; after failure nothing is left. */
SMOE_API int smoe_synth(const char *path, const smoe_synth_options *options,
                        smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ models */

typedef struct smoe_model smoe_model;
typedef struct smoe_session smoe_session;
typedef struct smoe_tokenizer smoe_tokenizer;

typedef enum smoe_precision {
    SMOE_PRECISION_DEFAULT,  /* int8 activations against quantised weights */
    SMOE_PRECISION_REFERENCE /* float32 on dequantised weights */
} smoe_precision;
typedef enum smoe_kv_type {
    SMOE_KV_AUTO, /* f16; f32 in reference precision */
    SMOE_KV_F16,
    SMOE_KV_F32,
    SMOE_KV_Q8 /* int8 in blocks of 32 with an f16 scale: 8.5 bits a value; docs/quantisation.md */
} smoe_kv_type;
typedef enum smoe_io_choice { SMOE_IO_AUTO, SMOE_IO_URING, SMOE_IO_THREADS } smoe_io_choice;
typedef enum smoe_policy {
    SMOE_POLICY_ADAPTIVE, /* keep what is likeliest to be used next; docs/cache-policy.md */
    SMOE_POLICY_RECENCY   /* keep what was used last */
} smoe_policy;
typedef enum smoe_switch { SMOE_AUTO, SMOE_ON, SMOE_OFF } smoe_switch;

typedef enum smoe_probe_mode { SMOE_PROBE_AUTO, SMOE_PROBE_REDO, SMOE_PROBE_OFF } smoe_probe_mode;

typedef struct smoe_model_options {
    uint64_t memory_bytes; /* ceiling for the whole process; 0: from what is available now */
    uint64_t ring_bytes;   /* 0: what the ceiling leaves */
    int32_t context_tok;   /* 0: the model's own, at most 4096 */
    int32_t chunk_tok;     /* prefill chunk; 0: chosen by the plan */
    int32_t n_thread;      /* 0: one for each physical core this process may use, no more than its
                              cgroup lets run at once */
    smoe_switch pin;       /* bind threads to CPUs of their own, one a core first; auto: when there
                              is one for each core and room for every expert. The calling thread
                              is never bound. */
    int32_t spec_ranks;    /* read the gate's next N ranks ahead at low priority; 0: off */
    smoe_precision precision;
    smoe_kv_type kv; /* how keys and values are kept; changes results slightly */
    smoe_io_choice io;
    smoe_policy policy;    /* what the ring keeps; never changes a result */
    smoe_switch direct;    /* O_DIRECT: auto falls back with a notice, on insists */
    smoe_switch lookahead; /* read what the next layer's gate would name, in decode; auto: while it
                              pays, by what is measured */
    smoe_probe_mode probe; /* measure the drive: once for each drive and file, anew, or never */
    const char *const *vault_on; /* [n_vault_on]: folders on other drives with copies of the model's
                                    files (not of the scout's); reads are spread over all drives */
    size_t n_vault_on;
    bool learn;    /* start from how often earlier runs used each expert, and keep it at the close:
                        in NAME.heat beside a vault or GGUF file, else in the user's cache folder */
    bool resident; /* ring for every expert, all read at open */
    /* NULL or "auto"; "portable", "avx2", "avxvnni", "avx512", "amx", "neon" cap the kernels */
    const char *isa;
    smoe_log_fn log;
    void *log_user;
} smoe_model_options;

/* Everything the plan accounts for, in bytes. */
typedef struct smoe_plan {
    uint64_t ceiling_bytes;
    uint64_t process_bytes; /* program, libraries, tokenizer, headers: measured */
    uint64_t scout_bytes;
    uint64_t kv_bytes;
    uint64_t scratch_bytes;
    uint64_t ring_bytes;
    uint64_t reserve_bytes; /* kept free under the ceiling */
    uint64_t token_cycle_bytes;
    uint64_t smallest_ceiling_bytes;
    smoe_kv_type kv; /* never SMOE_KV_AUTO */
    int32_t context_tok;
    int32_t chunk_tok;
    int32_t n_thread;
} smoe_plan;

/* Opens a vault, a checkpoint folder, or a GGUF file (any file of a split model). The plan is
 * logged before memory is taken. */
SMOE_API int smoe_model_open(smoe_model **out, const char *path, const smoe_model_options *options,
                             smoe_error *err) SMOE_MUST_USE;
SMOE_API void smoe_model_close(smoe_model *model); /* after its sessions; NULL is allowed */
/* Between calls on sessions, when there is time: reads into what is free of the ring, for about
 * budget_ms, experts that earlier runs used most and, where the ring has room for all, every other
 * one too. Returns whether there is more to do. */
SMOE_API bool smoe_model_idle(smoe_model *model, int32_t budget_ms);
SMOE_API const smoe_plan *smoe_model_plan(const smoe_model *model);
/* Another ceiling, between calls on the model's sessions: the ring shrinks or grows, nothing that
 * is computed changes. Below what the plan needs it is SMOE_ERR_MEMORY, which names the smallest.
 * The ring also follows a falling cgroup limit and memory pressure by itself, with a notice, and
 * grows back up to the ceiling. */
SMOE_API int smoe_model_set_memory(smoe_model *model, uint64_t memory_bytes,
                                   smoe_error *err) SMOE_MUST_USE;
SMOE_API const smoe_info *smoe_model_info(const smoe_model *model);
/* Borrowed; NULL when the checkpoint has no tokenizer. */
SMOE_API const smoe_tokenizer *smoe_model_tokenizer(const smoe_model *model);
/* Borrowed end-of-generation ids; *n_id receives how many. */
SMOE_API const int32_t *smoe_model_end_ids(const smoe_model *model, size_t *n_id);

/* ------------------------------------------------------------------ forecasts */

/* Decode under one ceiling. Low and high are for experts that are used all alike and for some being
 * used far more than others (docs/synth.md), and for reading and computing that do not overlap and
 * that do. */
typedef struct smoe_forecast_row {
    uint64_t ceiling_bytes;
    uint64_t ring_bytes;
    double ring_share;                    /* of all experts, 0 to 1 */
    double hit_low, hit_high;             /* share of expert uses that need no read */
    double tok_per_s_low, tok_per_s_high; /* 0: the drive's rate is not known */
} smoe_forecast_row;

enum { SMOE_FORECAST_ROWS = 5 };
typedef struct smoe_forecast {
    smoe_info info;
    smoe_plan plan;                /* of the ceiling asked for, or of the smallest that works */
    bool fits;                     /* false: the ceiling is too small, as why_not says */
    smoe_error why_not;            /* when it does not fit */
    double drive_bytes_per_s;      /* 0: not known */
    double compute_bytes_per_s;    /* weights that the processor multiplies with one token; 0: not
                                      known */
    uint64_t token_weight_bytes;   /* weights that a token is multiplied with */
    double prefill_tok_per_s_most; /* what the drive allows when each chunk needs every expert; 0:
                                      no limit */
    smoe_forecast_row asked;       /* under plan.ceiling_bytes */
    smoe_forecast_row row[SMOE_FORECAST_ROWS]; /* [n_row], by size: the smallest ring that works, a
                                                  quarter, a half, three quarters, every expert */
    int32_t n_row;
} smoe_forecast;

/* What smoe_model_open would plan, and how fast the model would probably be, without loading it.
 * The drive is probed as options say, unless its rate is given (above 0). */
SMOE_API int smoe_model_forecast(const char *path, const smoe_model_options *options,
                                 double drive_bytes_per_s, smoe_forecast *out,
                                 smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ the machine */

typedef enum smoe_check_state {
    SMOE_CHECK_OK,
    SMOE_CHECK_WARN, /* works, but less well than it could */
    SMOE_CHECK_FAIL  /* the model cannot run here */
} smoe_check_state;

typedef struct smoe_check {
    const char *name; /* "io_uring" */
    smoe_check_state state;
    char text[768];     /* what was found, one line */
    const char *remedy; /* what to do; NULL: nothing */
} smoe_check;

/* Borrowed until it returns. */
typedef void (*smoe_check_fn)(void *user, const smoe_check *check);

/* Looks at what streaming depends on, processor, limits, I/O, and, with a path, at that model and
 * the drive it lies on. Changes nothing and measures no speed. path may be NULL. */
SMOE_API void smoe_doctor(const char *path, smoe_check_fn fn, void *user);

/* ------------------------------------------------------------------ text */

/* PATH: a vault, a checkpoint folder, a GGUF file of any architecture, or any folder with tokenizer
 * files. */
SMOE_API int smoe_tokenizer_open(smoe_tokenizer **out, const char *path,
                                 smoe_error *err) SMOE_MUST_USE;
SMOE_API void smoe_tokenizer_close(smoe_tokenizer *tokenizer);
SMOE_API size_t smoe_tokenizer_size(const smoe_tokenizer *tokenizer); /* largest id + 1 */

/* text: UTF-8, may hold NULs. With parse_special false, text that looks like a control token stays
 * text. *ids is the caller's (smoe_free), untouched on failure. */
SMOE_API int smoe_tokenize(const smoe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                           bool parse_special, int32_t **ids, size_t *n_id,
                           smoe_error *err) SMOE_MUST_USE;
/* The same for a text that the model is to continue: the ids that its tokenizer puts before every
 * text come first, unless the text itself, with parse_special, begins with them. */
SMOE_API int smoe_tokenize_prompt(const smoe_tokenizer *tokenizer, const char *text,
                                  size_t text_bytes, bool parse_special, int32_t **ids,
                                  size_t *n_id, smoe_error *err) SMOE_MUST_USE;
/* The raw text of ids; *text is NUL-terminated and the caller's (smoe_free). Control tokens are
 * left out unless keep_special. Malformed sequences become U+FFFD. */
SMOE_API int smoe_detokenize(const smoe_tokenizer *tokenizer, const int32_t *ids, size_t n_id,
                             bool keep_special, char **text, size_t *text_bytes,
                             smoe_error *err) SMOE_MUST_USE;

typedef struct smoe_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* plain text: never becomes control tokens, whatever it holds */
} smoe_message;

/* Renders with the model's chat template; with add_generation the prompt ends where the assistant
 * begins. *ids is the caller's (smoe_free). */
SMOE_API int smoe_chat_tokens(const smoe_tokenizer *tokenizer, const smoe_message *messages,
                              size_t n_message, bool add_generation, int32_t **ids, size_t *n_id,
                              smoe_error *err) SMOE_MUST_USE;

/* What a chat template renders. The JSON texts are as the OpenAI API has them. Whatever they hold
 * stays text: control tokens come from the template only. */
typedef struct smoe_render_options {
    const char *messages; /* a JSON array */
    size_t messages_bytes;
    const char *tools; /* a JSON array; NULL: none */
    size_t tools_bytes;
    const char *variables; /* a JSON object of further variables of the template; NULL: none */
    size_t variables_bytes;
    bool add_generation; /* end where the assistant begins; add_generation_prompt in variables
                            counts over it */
    const char *now; /* "2026-01-02 03:04:05" for templates that print the date; NULL: local time */
} smoe_render_options;

/* The prompt as text and as ids, by the model's own template. *text is NUL-terminated; both are the
 * caller's (smoe_free), untouched on failure; either of text and ids may be NULL when not wanted. A
 * template that refuses the messages is SMOE_ERR_ARGUMENT, with the place in the template. */
SMOE_API int smoe_render(const smoe_tokenizer *tokenizer, const smoe_render_options *options,
                         char **text, size_t *text_bytes, int32_t **ids, size_t *n_id,
                         smoe_error *err) SMOE_MUST_USE;
/* The same text by a template of the caller's. name stands in errors. special: a JSON object of the
 * special tokens by name ({"bos_token": "<s>"}), NULL: none. *text is the caller's (smoe_free). */
SMOE_API int smoe_render_template(const char *source, size_t source_bytes, const char *name,
                                  const char *special, const smoe_render_options *options,
                                  char **text, size_t *text_bytes, smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ constraints */

/* What a generated text must look like; see docs/constrained-output.md. A constraint belongs to the
 * vocabulary of a tokenizer, which it does not need once open. It may be shared by threads. Its
 * memory is taken at open: open it before the model, so that the plan counts it. */
typedef struct smoe_constraint smoe_constraint;

/* A grammar in GBNF, whose rule "root" is the whole text. */
SMOE_API int smoe_constraint_open_gbnf(smoe_constraint **out, const smoe_tokenizer *tokenizer,
                                       const char *text, size_t text_bytes,
                                       smoe_error *err) SMOE_MUST_USE;
/* JSON that a JSON Schema (draft 2020-12) validates. Keywords that are not supported are errors
 * that name them. */
SMOE_API int smoe_constraint_open_schema(smoe_constraint **out, const smoe_tokenizer *tokenizer,
                                         const char *text, size_t text_bytes,
                                         smoe_error *err) SMOE_MUST_USE;
SMOE_API void smoe_constraint_close(smoe_constraint *constraint);           /* NULL is allowed */
SMOE_API uint64_t smoe_constraint_bytes(const smoe_constraint *constraint); /* memory it holds */

/* ------------------------------------------------------------------ what an answer holds */

/* Splits a model's output into reasoning, content and tool calls while it comes. Which markers mean
 * what is told by the chat template's text; with a template that has none known, all is content. */
typedef struct smoe_output_parser smoe_output_parser;

typedef enum smoe_output_kind {
    SMOE_OUTPUT_CONTENT,
    SMOE_OUTPUT_REASONING,
    SMOE_OUTPUT_CALL_BEGIN,     /* call, name and id are known */
    SMOE_OUTPUT_CALL_ARGUMENTS, /* a piece of them; joined they are one JSON object */
    SMOE_OUTPUT_CALL_END,
    SMOE_OUTPUT_CALL_FAILED, /* a call that began is malformed; its whole text follows as content */
    SMOE_OUTPUT_SYNTAX       /* markers, and white space that belongs to them */
} smoe_output_kind;

/* Everything is borrowed until the callback returns. text never holds a part of a character. The
 * sources of all events, joined, are the output, byte for byte, but for control tokens that mark
 * nothing: these are left out. */
typedef struct smoe_output_event {
    smoe_output_kind kind;
    int32_t call;     /* 0, 1, … in the order of CALL_BEGIN; of the kinds with CALL */
    const char *text; /* of CONTENT, REASONING and CALL_ARGUMENTS */
    size_t text_bytes;
    const char *source; /* the output's own bytes that this event accounts for; may be none */
    size_t source_bytes;
    const char *name; /* of CALL_BEGIN and CALL_END; NUL-terminated */
    const char *id;   /* the same; "" when the model gave none */
} smoe_output_event;

/* Returning true ends the push or flush with SMOE_ERR_CANCELLED. */
typedef bool (*smoe_output_fn)(void *user, const smoe_output_event *event);

typedef struct smoe_output_options {
    const char *chat_template; /* Jinja source; NULL: the tokenizer's own */
    /* Tools as they went into the prompt, a JSON array of {"type": "function", "function": {"name",
     * "parameters": schema}} or of the inner objects; NULL: none. Formats that write values without
     * their types take these from the schemas, and Llama's bare JSON is a call only when it names
     * one of the tools. */
    const char *tools_json;
    const int32_t *prompt; /* what the output continues: it may have opened the reasoning */
    size_t n_prompt;
    smoe_output_fn fn;
    void *user;
} smoe_output_options;

/* *out is the caller's (smoe_output_close). tokenizer must outlive it; NULL: markers are found by
 * their text alone, else those that are control tokens by id alone. */
SMOE_API int smoe_output_open(smoe_output_parser **out, const smoe_tokenizer *tokenizer,
                              const smoe_output_options *options, smoe_error *err) SMOE_MUST_USE;
SMOE_API void smoe_output_close(smoe_output_parser *parser);
/* A token and the text that came with it, as smoe_token has them. After an error (out of memory,
 * cancelled) only closing is allowed. */
SMOE_API int smoe_output_push(smoe_output_parser *parser, int32_t id, const char *text,
                              size_t text_bytes, smoe_error *err) SMOE_MUST_USE;
/* The end of the output: hands out what was held back. */
SMOE_API int smoe_output_flush(smoe_output_parser *parser, smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ sessions */

/* A session is one mutable token timeline with its KV cache, taken from the plan at open. */
SMOE_API int smoe_session_open(smoe_session **out, smoe_model *model,
                               smoe_error *err) SMOE_MUST_USE;
SMOE_API void smoe_session_close(smoe_session *session);
/* Brings the session to exactly this sequence: a common prefix is kept, the rest computed. After
 * success smoe_session_logits holds the logits that follow the last id. After failure the session
 * is valid and holds some prefix of ids. */
SMOE_API int smoe_session_sync(smoe_session *session, const int32_t *ids, size_t n_id,
                               smoe_error *err) SMOE_MUST_USE;
/* [vocab_size], borrowed until the next call on the session. */
SMOE_API const float *smoe_session_logits(const smoe_session *session);
/* Drops the timeline and computes ids from position 0, handing each row of logits to fn in order.
 */
typedef bool (*smoe_logits_fn)(void *user, size_t position_tok, const float *logits);
SMOE_API int smoe_session_score(smoe_session *session, const int32_t *ids, size_t n_id,
                                smoe_logits_fn fn, void *user, smoe_error *err) SMOE_MUST_USE;
/* Async-signal-safe. The call in progress ends with SMOE_ERR_CANCELLED within a layer's work. */
SMOE_API void smoe_session_cancel(smoe_session *session);

/* ------------------------------------------------------------------ generation */

typedef struct smoe_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY bans the token, +INFINITY allows no others */
} smoe_logit_bias;

/* How a token is chosen from logits. Zero turns a step off unless the field says otherwise; what
 * each step does, their order and their sources are in docs/sampling.md. */
typedef struct smoe_sampling {
    float temperature;        /* 0: greedy (after bias and penalties); the rest is then unused */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 1: off; prompt and output */
    uint64_t seed;
    float typical_p;             /* 0 or 1: off */
    float xtc_probability;       /* 0: off */
    float xtc_threshold;         /* with XTC: above 0 */
    int32_t penalty_last_tok;    /* the penalties look at so many last tokens; 0: at all */
    float presence_penalty;      /* output only */
    float frequency_penalty;     /* output only */
    float dry_multiplier;        /* 0: off */
    float dry_base;              /* with DRY: at least 1 */
    int32_t dry_allowed_tok;     /* with DRY: at least 1; repeats shorter than this are free */
    int32_t dry_last_tok;        /* 0: all */
    float mirostat_tau;          /* 0: off; aimed-at surprise in bits. Not with top-k to XTC */
    float mirostat_eta;          /* with mirostat: above 0 */
    const smoe_logit_bias *bias; /* [n_bias], borrowed during smoe_generate */
    size_t n_bias;
    /* Texts that a repeat for DRY never crosses, borrowed; NULL: newline, colon, quote, star. */
    const char *const *dry_breaker;
    size_t n_dry_breaker;
} smoe_sampling;

/* The checkpoint's generation defaults, else temperature 0.7, top-p 0.95; seed 0. What is off has
 * the usual parameters: XTC threshold 0.1, DRY base 1.75 and 2 allowed, mirostat eta 0.1. */
SMOE_API smoe_sampling smoe_model_sampling(const smoe_model *model);

typedef enum smoe_finish { SMOE_FINISH_LENGTH, SMOE_FINISH_END, SMOE_FINISH_STOP } smoe_finish;

/* Natural logarithm of a token's probability under the model's own distribution, the softmax of its
 * logits before anything in smoe_sampling. -INFINITY for a probability of zero. */
typedef struct smoe_logprob {
    int32_t id;
    float logprob;
} smoe_logprob;

enum { SMOE_MAX_TOP_LOGPROBS = 128 };

/* A token as it was chosen. Everything is borrowed until the callback returns. */
typedef struct smoe_token {
    int32_t id;
    const char *text; /* what became whole through it: maybe empty, never part of a character */
    size_t text_bytes;
    float logprob;           /* NAN unless options.logprobs */
    const smoe_logprob *top; /* [n_top], likeliest first; equal ones by id */
    size_t n_top;
} smoe_token;

typedef struct smoe_generate_options {
    smoe_sampling sampling;
    int32_t max_tok;         /* < 0: until the context is full */
    bool ignore_end;         /* go on past end-of-generation ids */
    const char *const *stop; /* texts that end generation; not part of the output */
    size_t n_stop;
    bool logprobs;        /* fill smoe_token.logprob */
    int32_t top_logprobs; /* and as many of the likeliest; at most SMOE_MAX_TOP_LOGPROBS */
    /* Only tokens that go on with a text of this kind are chosen, and end ids where it may end;
     * generation ends by itself where it must. Not with ignore_end. NULL: none. */
    const smoe_constraint *constraint;
    /* Each id as chosen, the end id only when it lets out text that was held back for a stop text.
     * A control token has no text, and all text before it comes with it at the latest. Returning
     * true ends with SMOE_ERR_CANCELLED. */
    bool (*on_token)(void *user, const smoe_token *token);
    void *user;
} smoe_generate_options;

/* Continues prompt. *ids (the caller's, smoe_free) receives the chosen ids without an end id; both
 * out pointers may be NULL. After SMOE_ERR_CANCELLED they hold what was generated. */
SMOE_API int smoe_generate(smoe_session *session, const int32_t *prompt, size_t n_prompt,
                           const smoe_generate_options *options, int32_t **ids, size_t *n_id,
                           smoe_finish *finish, smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ routing traces */

/* Records the routing of everything that is computed from now on, replacing path: which experts
 * each token chose in each layer, and the layer's scores. A write that fails shows at the stop, not
 * before. */
SMOE_API int smoe_trace_start(smoe_model *model, const char *path, smoe_error *err) SMOE_MUST_USE;
/* Ends the recording; without one it does nothing. A recording during which nothing
 * was computed leaves no file. Closing the model drops a recording's errors. */
SMOE_API int smoe_trace_stop(smoe_model *model, smoe_error *err) SMOE_MUST_USE;

typedef struct smoe_trace smoe_trace;

typedef struct smoe_trace_info {
    char model[256]; /* name of the file or folder */
    int32_t n_moe_layer;
    int32_t n_expert, n_expert_used; /* of the first layer with experts */
    uint64_t n_tok, n_decode_tok;
    uint64_t token_cycle_bytes; /* as they lie in the ring, the most that one token needs */
    uint64_t experts_bytes;     /* a ring for all */
    bool cut_off;               /* the recording did not come to its end */
} smoe_trace_info;

/* What a ring would have done with the trace. Each use is counted once. */
typedef struct smoe_replay {
    uint64_t uses, hits;
    uint64_t decode_uses, decode_hits; /* of which by single tokens */
    uint64_t read_bytes, decode_read_bytes;
    uint64_t evictions;
} smoe_replay;

/* Reads and checks a trace. *out is the caller's (smoe_trace_close, which takes NULL). */
SMOE_API int smoe_trace_open(smoe_trace **out, const char *path, smoe_error *err) SMOE_MUST_USE;
SMOE_API void smoe_trace_close(smoe_trace *trace);
SMOE_API void smoe_trace_describe(const smoe_trace *trace, smoe_trace_info *out);
/* The policies' names, by number; NULL past the last. docs/cache-policy.md says what they do. */
SMOE_API const char *smoe_trace_policy(size_t i);
/* A ring of ring_bytes, at least the largest expert, under the policy of that number. */
SMOE_API int smoe_trace_replay(const smoe_trace *trace, size_t policy, uint64_t ring_bytes,
                               smoe_replay *out, smoe_error *err) SMOE_MUST_USE;

/* ------------------------------------------------------------------ counters */

/* Since open or the last reset. Each expert use is counted in exactly one of hits, in-flight hits
 * and misses: uses = hits + inflight_hits + misses. A use is one expert in one chunk or token. */
enum { SMOE_STAT_SLOTS = 28, SMOE_STAT_DRIVES = 8 };
typedef struct smoe_stats {
    uint64_t prefill_tok, decode_tok;
    uint64_t prefill_ns, decode_ns;
    uint64_t drive_bytes;        /* everything read for experts, speculative included */
    uint64_t decode_drive_bytes; /* of which while decoding */
    uint64_t n_read;
    uint64_t uses, hits, inflight_hits, misses;
    uint64_t spec_reads, spec_used;   /* experts read ahead in decode; of which demanded later */
    uint64_t sweep_reads, sweep_used; /* the same in prefill */
    uint64_t guessed, guessed_right;  /* experts that lookahead guessed in decode; of which named */
    uint64_t guess_named;             /* all that the gates named where there was a guess */
    uint64_t guessed_far;             /* guessed of layers behind the next and thought sure, */
    uint64_t guessed_far_right;       /* of which named */
    bool lookahead_on;                /* now; lookahead_switches counts its changes */
    uint64_t lookahead_switches;
    uint64_t warm_reads, warm_used; /* since open: experts read in idle time */
    uint64_t evictions;
    uint64_t read_retries;
    uint64_t wait_ns;       /* the forward pass stood still for the drive */
    uint64_t wait_ahead_ns; /* of which only for what had been begun ahead */
    uint64_t drive_busy_ns; /* at least one read was in flight */
    uint64_t work_ns;       /* prefill_ns + decode_ns */
    uint64_t open_ns;       /* what smoe_model_open took, until the first prefill could begin */
    uint64_t peak_process_bytes; /* VmHWM */
    uint64_t ceiling_bytes;
    uint64_t ring_bytes;            /* now */
    uint64_t ring_used_bytes;       /* now: of which hold experts */
    uint64_t ring_registered_bytes; /* now: of which io_uring has pinned as registered buffers */
    uint64_t n_resize;              /* times the ring changed its size */
    /* Powers of two: slot i counts values from 2^(i-1) below 2^i, slot 0 zeros. */
    uint64_t read_us[SMOE_STAT_SLOTS];  /* reads by their time from submission on */
    uint64_t read_kib[SMOE_STAT_SLOTS]; /* reads by size */
    double probed_bytes_per_s;          /* what the drives can do together; 0: not measured */
    double probed_busy_bytes_per_s;     /* while every CPU goes through weights */
    int32_t n_drive;
    uint64_t drive_bytes_of[SMOE_STAT_DRIVES];
    char io_backend[16];
    char isa[16];
    char kv_type[8]; /* "f16", "f32", "q8" */
    bool direct;
} smoe_stats;

/* These two and smoe_model_experts may be called between calls on the model's sessions, and from
 * smoe_generate's on_token on its thread, where everything that the token took is counted; never
 * from another thread while a call runs. */
SMOE_API void smoe_model_stats(const smoe_model *model, smoe_stats *out);
SMOE_API void smoe_model_stats_reset(smoe_model *model);

typedef enum smoe_place { SMOE_PLACE_DRIVE, SMOE_PLACE_READING, SMOE_PLACE_RING } smoe_place;

/* Where each expert is, a smoe_place, and how often it was used since open or the last reset (the
 * sum over all is uses): [n_moe_layer][n_expert] of smoe_info. Either may be NULL. */
SMOE_API void smoe_model_experts(const smoe_model *model, uint8_t *place, uint32_t *uses);

#ifdef __cplusplus
}
#endif

#endif
