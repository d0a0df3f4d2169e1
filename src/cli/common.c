/* Shared parts of the commands; see common.h. */
#include "cli/common.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/live.h"
#include "cli/stats.h"

const option *model_option_rows(model_flags *f) {
    static option rows[21];
    smoe_model_options *o = &f->options;
    const option all[] = {
        {OPTION_GROUP, 0, "Memory and streaming:", NULL, NULL, 0, 0, NULL, NULL},
        {OPTION_SIZE, 'm', "memory", "SIZE", &o->memory_bytes, 0, 0,
         "ceiling for the whole process (default: from what is free)", NULL},
        {OPTION_SIZE, 0, "ring", "SIZE", &o->ring_bytes, 0, 0,
         "memory for experts (default: what the ceiling leaves)", NULL},
        {OPTION_INT, 'c', "ctx", "N", &o->context_tok, 1, LIMIT_CONTEXT_TOK,
         "context in tokens (default: the model's, at most 4096)", NULL},
        {OPTION_INT, 0, "chunk", "N", &o->chunk_tok, 1, LIMIT_CONTEXT_TOK,
         "prompt tokens computed at once (default: up to 512, or 1024 when streaming)", NULL},
        {OPTION_INT, 't', "threads", "N", &o->n_thread, 1, LIMIT_THREADS,
         "compute threads (default: one a physical core)", NULL},
        {OPTION_CHOICE, 0, "pin", "auto|on|off", &f->pin, 0, 0,
         "bind threads to CPUs (auto: one for each core, none streaming)", NULL},
        {OPTION_INT, 0, "spec", "N", &o->spec_ranks, 0, LIMIT_EXPERTS,
         "read the gate's next N ranks ahead (default: 0)", NULL},
        {OPTION_CHOICE, 0, "lookahead", "auto|on|off", &f->lookahead, 0, 0,
         "read what the next layers will probably name (auto: while it pays)", NULL},
        {OPTION_LIST, 0, "vault-on", "DIR", &f->vault_on, 0, 0,
         "a folder on another drive with a copy of the model; several times", NULL},
        {OPTION_FLAG, 0, "probe", NULL, &f->probe, 0, 0,
         "measure the drive again, whatever is remembered of it", NULL},
        {OPTION_CHOICE, 0, "io", "auto|uring|threads", &f->io, 0, 0, "how the drive is read", NULL},
        {OPTION_CHOICE, 0, "direct", "auto|on|off", &f->direct, 0, 0,
         "O_DIRECT reads that bypass the page cache", NULL},
        {OPTION_CHOICE, 0, "policy", "adaptive|recency", &f->policy, 0, 0,
         "which experts the ring keeps", NULL},
        {OPTION_FLAG, 0, "no-learn", NULL, &f->no_learn, 0, 0,
         "neither use nor keep how often experts were used in earlier runs", NULL},
        {OPTION_FLAG, 0, "resident", NULL, &o->resident, 0, 0,
         "read every expert at the start and keep it", NULL},
        {OPTION_CHOICE, 0, "precision", "default|reference", &f->precision, 0, 0,
         "reference: float32 on dequantised weights, slow", NULL},
        {OPTION_CHOICE, 0, "kv", "auto|f16|f32|q8", &f->kv, 0, 0,
         "how keys and values are kept (auto: f16; f32 in reference)", NULL},
        {OPTION_TEXT, 0, "isa", "auto|portable|avx2|avxvnni|avx512|amx|neon", &o->isa, 0, 0,
         "instruction set of the kernels", NULL},
        {OPTION_FLAG, 'q', "quiet", NULL, &f->quiet, 0, 0, "no plan and notices on stderr", NULL},
        {0}};
    _Static_assert(sizeof rows == sizeof all, "one row each");
    memcpy(rows, all, sizeof all);
    return rows;
}

const option *sampling_option_rows(sampling_flags *f) {
    static option rows[22];
    smoe_sampling *s = &f->sampling;
    s->xtc_threshold = 0.1f;
    s->dry_base = 1.75f;
    s->dry_allowed_tok = 2;
    s->mirostat_eta = 0.1f;
    const option all[] = {
        {OPTION_GROUP, 0, "Sampling (defaults: the model's own):", NULL, NULL, 0, 0, NULL, NULL},
        {OPTION_NUMBER, 0, "temp", "T", &s->temperature, 0, 100, "0 takes the likeliest token",
         &f->has_temperature},
        {OPTION_INT, 0, "top-k", "N", &s->top_k, 0, INT32_MAX, "keep the N likeliest (0: all)",
         &f->has_top_k},
        {OPTION_NUMBER, 0, "top-p", "P", &s->top_p, 1e-6, 1,
         "keep the likeliest that make up P (1: all)", &f->has_top_p},
        {OPTION_NUMBER, 0, "min-p", "P", &s->min_p, 0, 1,
         "drop those below P times the likeliest (0: none)", &f->has_min_p},
        {OPTION_NUMBER, 0, "typical-p", "P", &s->typical_p, 1e-6, 1,
         "keep those of typical surprise that make up P (1: all)", &f->has_typical_p},
        {OPTION_NUMBER, 0, "xtc-probability", "P", &s->xtc_probability, 0, 1,
         "how often to exclude the top choices (0: off)", NULL},
        {OPTION_NUMBER, 0, "xtc-threshold", "P", &s->xtc_threshold, 1e-6, 1,
         "what makes a top choice for XTC (default: 0.1)", NULL},
        {OPTION_NUMBER, 0, "repeat-penalty", "R", &s->repetition_penalty, 0.01, 100,
         "above 1 discourages tokens already there (1: off)", &f->has_penalty},
        {OPTION_NUMBER, 0, "presence-penalty", "V", &s->presence_penalty, -100, 100,
         "taken off the logits of tokens already chosen (0: off)", NULL},
        {OPTION_NUMBER, 0, "frequency-penalty", "V", &s->frequency_penalty, -100, 100,
         "the same for each time a token was chosen (0: off)", NULL},
        {OPTION_INT, 0, "penalty-last", "N", &s->penalty_last_tok, 0, INT32_MAX,
         "penalties look at the last N tokens (0: all)", NULL},
        {OPTION_NUMBER, 0, "dry-multiplier", "V", &s->dry_multiplier, 0, 100,
         "penalty on prolonging a repeat (0: off)", NULL},
        {OPTION_NUMBER, 0, "dry-base", "V", &s->dry_base, 1, 100,
         "how it grows with each repeated token (default: 1.75)", NULL},
        {OPTION_INT, 0, "dry-allowed", "N", &s->dry_allowed_tok, 1, INT32_MAX,
         "shorter repeats are free (default: 2)", NULL},
        {OPTION_INT, 0, "dry-last", "N", &s->dry_last_tok, 0, INT32_MAX,
         "DRY looks at the last N tokens (0: all)", NULL},
        {OPTION_LIST, 0, "dry-breaker", "TEXT", &f->dry_breaker, 0, 0,
         "no repeat goes across it; several times (default: newline : \" *)", NULL},
        {OPTION_LIST, 0, "logit-bias", "ID=V", &f->bias_text, 0, 0,
         "add V to a token's logit (-inf bans it); several times", NULL},
        {OPTION_NUMBER, 0, "mirostat-tau", "BITS", &s->mirostat_tau, 0, 100,
         "mirostat 2: hold this surprise instead of cutting (0: off)", NULL},
        {OPTION_NUMBER, 0, "mirostat-eta", "V", &s->mirostat_eta, 1e-6, 1,
         "how fast mirostat learns (default: 0.1)", NULL},
        {OPTION_SEED, 0, "seed", "N", &s->seed, 0, 0, "same seed, same text (default: random)",
         &f->has_seed},
        {0}};
    _Static_assert(sizeof rows == sizeof all, "one row each");
    memcpy(rows, all, sizeof all);
    return rows;
}

/* "ID=V"; V may be inf or -inf. */
static int parse_bias(const char *text, smoe_logit_bias *out, smoe_error *err) {
    char *end;
    errno = 0;
    long id = strtol(text, &end, 10);
    bool has_id = end != text && *end == '=' && !errno && id >= 0 && id <= INT32_MAX;
    const char *number = end + has_id;
    float v = has_id ? strtof(number, &end) : 0;
    if (!has_id || end == number || *end) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "--logit-bias: \"%s\" is not ID=V, as in 1234=-1.5 or 1234=-inf", text);
    }
    *out = (smoe_logit_bias){(int32_t)id, v};
    return SMOE_OK;
}

/* Mirostat takes the place of the cuts, so the model's defaults for these do not hold. */
static void drop_cuts(const sampling_flags *f, smoe_sampling *s) {
    s->top_k = f->has_top_k ? s->top_k : 0;
    s->top_p = f->has_top_p ? s->top_p : 1;
    s->min_p = f->has_min_p ? s->min_p : 0;
    s->typical_p = f->has_typical_p ? s->typical_p : 1;
}

int resolve_sampling(const smoe_model *model, sampling_flags *f, smoe_sampling *out) {
    smoe_sampling defaults = smoe_model_sampling(model);
    smoe_sampling s = f->sampling;
    s.temperature = f->has_temperature ? s.temperature : defaults.temperature;
    s.top_k = f->has_top_k ? s.top_k : defaults.top_k;
    s.top_p = f->has_top_p ? s.top_p : defaults.top_p;
    s.min_p = f->has_min_p ? s.min_p : defaults.min_p;
    s.typical_p = f->has_typical_p ? s.typical_p : defaults.typical_p;
    s.repetition_penalty = f->has_penalty ? s.repetition_penalty : defaults.repetition_penalty;
    if (s.mirostat_tau > 0) {
        drop_cuts(f, &s);
    }
    for (size_t i = 0; i < f->bias_text.n_item; i++) {
        smoe_error err;
        if (parse_bias(f->bias_text.item[i], &f->bias[i], &err) != SMOE_OK) {
            return fail(&err);
        }
    }
    s.bias = f->bias;
    s.n_bias = f->bias_text.n_item;
    s.dry_breaker = f->dry_breaker.n_item ? f->dry_breaker.item : NULL;
    s.n_dry_breaker = f->dry_breaker.n_item;
    if (!f->has_seed) {
        uint32_t seed; /* short enough to type again */
        s.seed = getrandom(&seed, sizeof seed, 0) == sizeof seed ? seed : 1;
    }
    *out = s;
    return 0;
}

void log_to_stderr(void *user, smoe_log_level level, const char *line) {
    const bool *quiet = user;
    if (level == SMOE_LOG_WARNING || !quiet || !*quiet) {
        live_suspend();
        fprintf(stderr, "%s%s\n", level == SMOE_LOG_WARNING ? "warning: " : "", line);
    }
}

void take_model_choices(model_flags *flags) {
    flags->options.precision = (smoe_precision)flags->precision;
    flags->options.kv = (smoe_kv_type)flags->kv;
    flags->options.io = (smoe_io_choice)flags->io;
    flags->options.policy = (smoe_policy)flags->policy;
    flags->options.learn = !flags->no_learn;
    flags->options.direct = (smoe_switch)flags->direct;
    flags->options.pin = (smoe_switch)flags->pin;
    flags->options.lookahead = (smoe_switch)flags->lookahead;
    flags->options.probe = flags->probe ? SMOE_PROBE_REDO : SMOE_PROBE_AUTO;
    flags->options.vault_on = flags->vault_on.item;
    flags->options.n_vault_on = flags->vault_on.n_item;
    flags->options.log = log_to_stderr;
    flags->options.log_user = &flags->quiet;
}

int open_model_with(const char *path, model_flags *flags, smoe_model **model,
                    smoe_session **session, smoe_error *err) {
    take_model_choices(flags);
    int rc = smoe_model_open(model, path, &flags->options, err);
    if (rc == SMOE_OK) {
        rc = smoe_session_open(session, *model, err);
        if (rc != SMOE_OK) {
            smoe_model_close(*model);
        }
    }
    return rc;
}

int open_model(const char *path, model_flags *flags, smoe_model **model, smoe_session **session) {
    smoe_error err;
    return open_model_with(path, flags, model, session, &err) == SMOE_OK ? 0 : fail(&err);
}

void close_model(smoe_model *model, smoe_session *session) {
    smoe_session_close(session);
    smoe_model_close(model);
}

int fail(const smoe_error *err) {
    fprintf(stderr, "smoe: %s\n", err->text);
    return 1;
}

int fail_text(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("smoe: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return 1;
}

/* ---- statistics */

void print_stats(const smoe_model *model) {
    smoe_stats s;
    smoe_model_stats(model, &s);
    stats_print(&s, stderr);
}

struct json_object *stats_json(const smoe_model *model) {
    smoe_stats s;
    smoe_model_stats(model, &s);
    return stats_object(&s);
}

void print_json(struct json_object *o) {
    puts(json_object_to_json_string_ext(o,
                                        JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(o);
}

/* ---- input */

static int read_stream(FILE *f, const char *path, char **text, size_t *bytes, smoe_error *err) {
    byte_buf b = {.max_bytes = LIMIT_PROMPT_BYTES};
    char piece[65536];
    size_t n;
    int rc = buf_append(&b, "", 0, err);
    while (rc == SMOE_OK && (n = fread(piece, 1, sizeof piece, f)) > 0) {
        rc = buf_append(&b, piece, n, err);
    }
    if (rc == SMOE_OK && ferror(f)) {
        rc = err_errno(err, errno, "cannot read %s", path);
    }
    if (rc != SMOE_OK) {
        buf_free(&b);
        return rc;
    }
    *text = b.data;
    *bytes = b.bytes;
    return SMOE_OK;
}

int read_input(const char *path, char **text, size_t *bytes, smoe_error *err) {
    if (strcmp(path, "-") == 0) {
        return read_stream(stdin, "standard input", text, bytes, err);
    }
    FILE *f = fopen(path, "rbe"); /* pipes are welcome here */
    if (!f) {
        return err_errno(err, errno, "cannot open %s", path);
    }
    int rc = read_stream(f, path, text, bytes, err);
    fclose(f);
    return rc;
}

int tokenize_early(const char *model_path, const char *text, size_t bytes, bool special,
                   bool is_prompt, int32_t **ids, size_t *n_id, smoe_error *err) {
    smoe_tokenizer *t;
    int rc = smoe_tokenizer_open(&t, model_path, err);
    if (rc == SMOE_OK) {
        rc = is_prompt ? smoe_tokenize_prompt(t, text, bytes, special, ids, n_id, err)
                       : smoe_tokenize(t, text, bytes, special, ids, n_id, err);
        smoe_tokenizer_close(t);
    }
    return rc;
}

int parse_ids(const char *text, size_t bytes, const char *label, int32_t **ids, size_t *n_id,
              smoe_error *err) {
    int32_t *out = mem_array(bytes / 2 + 1, sizeof *out); /* a digit and a separator each */
    size_t n = 0;
    size_t i = 0;
    if (!out) {
        return err_no_memory(err, bytes);
    }
    while (i < bytes) {
        char c = text[i];
        if (c == '\0' || !strchr("0123456789", c)) {
            if (c == '\0' || !strchr(" \t\r\n,[]", c)) {
                free(out);
                return err_set(err, SMOE_ERR_ARGUMENT,
                               "%s: byte %zu is no part of a list of token ids", label, i);
            }
            i++;
            continue;
        }
        int64_t v = 0;
        for (; i < bytes && text[i] >= '0' && text[i] <= '9'; i++) {
            v = v * 10 + (text[i] - '0');
            if (v > INT32_MAX) {
                free(out);
                return err_set(err, SMOE_ERR_ARGUMENT, "%s: token id at byte %zu is too large",
                               label, i);
            }
        }
        out[n++] = (int32_t)v;
    }
    *ids = out;
    *n_id = n;
    return SMOE_OK;
}

/* ---- interrupts */

static smoe_session *volatile caught_session;
static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    was_interrupted = 1;
    if (caught_session) {
        smoe_session_cancel(caught_session);
    }
}

void interrupt_begin(smoe_session *session) {
    struct sigaction action = {.sa_handler = on_interrupt};
    was_interrupted = 0;
    caught_session = session;
    sigaction(SIGINT, &action, NULL);
}

bool interrupt_end(void) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(SIGINT, &action, NULL);
    caught_session = NULL;
    return was_interrupted;
}

bool interrupted(void) {
    return was_interrupted;
}

int end_job(int rc, const smoe_error *err, const char *out, bool quiet) {
    bool stopped = interrupt_end();
    end_progress();
    if (rc != SMOE_OK) {
        fail(err);
        return stopped ? EXIT_STOPPED : 1;
    }
    if (!quiet) {
        fprintf(stderr, "wrote %s\n", out);
    }
    return 0;
}
