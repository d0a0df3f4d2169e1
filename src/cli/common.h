/* What several commands share: the model's options, messages, statistics, input. The program uses
 * the library through smoe.h alone, as any other program would. */
#ifndef SMOE_CLI_COMMON_H
#define SMOE_CLI_COMMON_H

#include <signal.h>

#include "cli/options.h"

struct json_object;

/* Exit statuses: 0, 1 for any error, 130 when stopped by Ctrl-C. */
enum { EXIT_STOPPED = 130 };

typedef struct model_flags {
    smoe_model_options options;
    int precision, kv, io, pin, direct, lookahead,
        policy; /* choices, copied into options by open_model */
    bool probe, no_learn;
    option_list vault_on;
    bool quiet;
} model_flags;

/* Rows that set these flags, ended by a row without a name; static storage. */
const option *model_option_rows(model_flags *flags);
typedef struct sampling_flags {
    smoe_sampling sampling;
    bool has_temperature, has_top_k, has_top_p, has_min_p, has_typical_p, has_penalty, has_seed;
    option_list bias_text; /* "ID=V" */
    option_list dry_breaker;
    smoe_logit_bias bias[OPTION_LIST_MAX];
} sampling_flags;
/* Sets what is off in sampling, and the rows' targets. */
const option *sampling_option_rows(sampling_flags *flags);

/* Copies the choices of the rows into flags->options, and the log to stderr. */
void take_model_choices(model_flags *flags);
/* Opens a model and its session with plan and notices on stderr. */
int open_model_with(const char *path, model_flags *flags, smoe_model **model,
                    smoe_session **session, smoe_error *err);
/* The same, and prints the error; returns 0 or 1. */
int open_model(const char *path, model_flags *flags, smoe_model **model, smoe_session **session);
void close_model(smoe_model *model, smoe_session *session);
/* The model's sampling defaults with the given flags over them; a seed of its own when none. *out
 * borrows from flags. Prints the error; returns 0 or 1. */
int resolve_sampling(const smoe_model *model, sampling_flags *flags, smoe_sampling *out);

/* "smoe: ERROR" on stderr; returns 1. */
int fail(const smoe_error *err);
int fail_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

void print_stats(const smoe_model *model);               /* on stderr */
struct json_object *stats_json(const smoe_model *model); /* caller's */
/* One JSON value and a newline on stdout; releases it. */
void print_json(struct json_object *o);

/* The whole of a file or pipe, or of stdin for "-", at most LIMIT_PROMPT_BYTES; *text is malloc'ed.
 */
int read_input(const char *path, char **text, size_t *bytes, smoe_error *err);
/* Tokenises before the model is opened, so that what a long text takes is part of the process that
 * the memory plan measures: smoe_tokenize, or smoe_tokenize_prompt. *ids is the caller's
 * (smoe_free). */
int tokenize_early(const char *model_path, const char *text, size_t bytes, bool special,
                   bool is_prompt, int32_t **ids, size_t *n_id, smoe_error *err);
/* Whole numbers separated by spaces, commas, brackets or newlines; *ids is malloc'ed. */
int parse_ids(const char *text, size_t bytes, const char *label, int32_t **ids, size_t *n_id,
              smoe_error *err);

/* The end of a long job that writes a file, after interrupt_begin: prints its error, or that the
 * file is written; returns the exit status. */
int end_job(int rc, const smoe_error *err, const char *out, bool quiet);
/* Progress of sculpting and verifying: a bar on a terminal, a line now and then elsewhere. */
bool show_progress(void *user, const smoe_progress *p);
void end_progress(void);
void log_to_stderr(void *user, smoe_log_level level, const char *line);

/* From begin to end Ctrl-C cancels this session's call (NULL: only sets the flag) instead of ending
 * the program; interrupt_end returns whether it was pressed. */
void interrupt_begin(smoe_session *session);
bool interrupt_end(void);
bool interrupted(void);

#endif
