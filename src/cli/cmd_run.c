/* smoe run: continue a prompt. */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/live.h"
#include "cli/stats.h"

typedef struct run_flags {
    model_flags model;
    sampling_flags sampling;
    const char *prompt, *prompt_file, *ids;
    const char *grammar, *schema;
    const char *trace;
    smoe_constraint *constraint; /* from these two; NULL: none */
    int32_t max_tok;
    int32_t top_logprobs;
    bool has_logprobs;
    option_list stop;
    bool special, ignore_end, json, stats, token_stats, live;
} run_flags;

typedef struct printer {
    bool
        keeps_text; /* for the JSON value, or until the live view is gone, instead of printing it */
    bool is_live;
    byte_buf text;
    const smoe_tokenizer *tokenizer; /* may be NULL */
    struct json_object *logprobs;    /* array with an element for each token; NULL: not asked for */
    const smoe_model *costs_of;      /* NULL: costs are not asked for */
    smoe_stats last;                 /* counters after the latest token */
    token_cost cost;                 /* of the latest token */
    byte_buf costs;                  /* "[ {…}, {…}", of all tokens */
    size_t costs_before_bytes;       /* of costs, without the latest token */
    size_t n_cost;
} printer;

/* A number that JSON has: an impossible token's log-probability is -infinity, shown as null. */
static struct json_object *logprob_json(float v) {
    return isfinite(v) ? json_object_new_double((double)v) : NULL;
}

static struct json_object *token_json(const printer *p, int32_t id, float logprob) {
    struct json_object *o = json_object_new_object();
    char *text = NULL;
    size_t bytes = 0;
    json_object_object_add(o, "id", json_object_new_int(id));
    if (p->tokenizer && smoe_detokenize(p->tokenizer, &id, 1, true, &text, &bytes, NULL) == 0) {
        json_object_object_add(o, "token", json_object_new_string_len(text, (int)bytes));
        smoe_free(text);
    }
    json_object_object_add(o, "logprob", logprob_json(logprob));
    return o;
}

static void keep_logprobs(printer *p, const smoe_token *token) {
    struct json_object *o = token_json(p, token->id, token->logprob);
    struct json_object *top = json_object_new_array();
    for (size_t i = 0; i < token->n_top; i++) {
        json_object_array_add(top, token_json(p, token->top[i].id, token->top[i].logprob));
    }
    json_object_object_add(o, "top", top);
    json_object_array_add(p->logprobs, o);
}

/* What the token took, into costs. As text, since a value of its own for each number would take
 * more memory than a plan has to spare. */
static int keep_cost(printer *p) {
    smoe_stats now;
    char text[TOKEN_COST_BYTES];
    smoe_model_stats(p->costs_of, &now);
    p->cost = token_cost_since(&p->last, &now);
    token_cost_text(text, &p->cost);
    p->costs_before_bytes = p->costs.bytes;
    p->n_cost++;
    return buf_printf(&p->costs, NULL, "%s%s", p->n_cost == 1 ? "[ " : ", ", text);
}

static struct json_object *raw_json(const char *text) {
    struct json_object *o = json_object_new_object();
    json_object_set_serializer(o, json_object_userdata_to_json_string, (void *)(uintptr_t)text,
                               NULL);
    return o;
}

/* The tokens' costs, and what was done after the last of n_id tokens: for an end token, or for one
 * that was interrupted. An end token may have been handed out like any other. */
static void add_costs(struct json_object *o, printer *p, size_t n_id, char rest[TOKEN_COST_BYTES]) {
    token_cost latest = p->cost;
    bool had_end = p->n_cost > n_id;
    size_t bytes = had_end ? p->costs_before_bytes : p->costs.bytes;
    if (keep_cost(p) != SMOE_OK) {
        return;
    }
    token_cost_text(rest, &p->cost);
    if (had_end) {
        token_cost_add(&latest, &p->cost);
        token_cost_text(rest, &latest);
    }
    p->costs.data[bytes] = '\0';
    p->costs.bytes = bytes;
    if (buf_append(&p->costs, bytes ? " ]" : "[ ]", bytes ? 2 : 3, NULL) == SMOE_OK) {
        json_object_object_add(o, "token_stats", raw_json(p->costs.data));
        json_object_object_add(o, "after_tokens", raw_json(rest));
    }
}

static bool print_token(void *user, const smoe_token *token) {
    printer *p = user;
    if (p->costs_of && keep_cost(p) != SMOE_OK) {
        return true;
    }
    if (p->logprobs) {
        keep_logprobs(p, token);
    }
    if (p->is_live) {
        live_token(token->text, token->text_bytes);
    }
    bool is_interrupted = interrupted(); /* it may have come before the call began */
    if (p->keeps_text) {
        return buf_append(&p->text, token->text, token->text_bytes, NULL) != SMOE_OK ||
               is_interrupted;
    }
    fwrite(token->text, 1, token->text_bytes, stdout);
    fflush(stdout);
    return ferror(stdout) != 0 || is_interrupted;
}

/* The prompt's ids from whichever of the three options was given; before the model is opened. */
static int prompt_ids(const run_flags *f, const char *path, int32_t **ids, size_t *n_id,
                      smoe_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    if ((f->prompt != NULL) + (f->prompt_file != NULL) + (f->ids != NULL) != 1) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "give the prompt by exactly one of --prompt, --prompt-file and --ids");
    }
    if (f->ids) {
        return parse_ids(f->ids, strlen(f->ids), "--ids", ids, n_id, err);
    }
    if (f->prompt) {
        return tokenize_early(path, f->prompt, strlen(f->prompt), f->special, true, ids, n_id, err);
    }
    int rc = read_input(f->prompt_file, &text, &bytes, err);
    rc = rc ? rc : tokenize_early(path, text, bytes, f->special, true, ids, n_id, err);
    free(text);
    return rc;
}

/* Reads --grammar or --json-schema. It comes before the model, so that the plan counts its memory,
 * and so that mistakes show at once. */
static int open_constraint(run_flags *f, const char *model_path, smoe_error *err) {
    smoe_tokenizer *tokenizer = NULL;
    char *text = NULL;
    const char *inline_text = f->schema && strchr("{tf \t\n", *f->schema) ? f->schema : NULL;
    size_t bytes = inline_text ? strlen(inline_text) : 0;
    if (!f->grammar && !f->schema) {
        return SMOE_OK;
    }
    if (f->grammar && f->schema) {
        return err_set(err, SMOE_ERR_ARGUMENT, "give --grammar or --json-schema, not both");
    }
    if (f->schema && (f->schema[0] == '\0' || access(f->schema, F_OK) == 0)) {
        inline_text = NULL; /* a file of that name counts */
    }
    int rc =
        inline_text ? SMOE_OK : read_input(f->grammar ? f->grammar : f->schema, &text, &bytes, err);
    rc = rc ? rc : smoe_tokenizer_open(&tokenizer, model_path, err);
    if (rc == SMOE_OK) {
        const char *source = inline_text ? inline_text : text;
        rc = f->grammar
                 ? smoe_constraint_open_gbnf(&f->constraint, tokenizer, source, bytes, err)
                 : smoe_constraint_open_schema(&f->constraint, tokenizer, source, bytes, err);
    }
    smoe_tokenizer_close(tokenizer);
    free(text);
    return rc;
}

static struct json_object *id_array(const int32_t *ids, size_t n) {
    struct json_object *a = json_object_new_array();
    for (size_t i = 0; i < n; i++) {
        json_object_array_add(a, json_object_new_int(ids[i]));
    }
    return a;
}

static void print_result(const smoe_model *model, const smoe_sampling *sampling,
                         const int32_t *prompt, size_t n_prompt, const int32_t *ids, size_t n_id,
                         printer *p, const char *finish) {
    char rest[TOKEN_COST_BYTES];
    struct json_object *o = json_object_new_object();
    json_object_object_add(o, "prompt_ids", id_array(prompt, n_prompt));
    json_object_object_add(o, "ids", id_array(ids, n_id));
    json_object_object_add(
        o, "text",
        json_object_new_string_len(p->text.data ? p->text.data : "", (int)p->text.bytes));
    if (p->logprobs) {
        json_object_object_add(o, "logprobs", p->logprobs);
        p->logprobs = NULL;
    }
    json_object_object_add(o, "finish", json_object_new_string(finish));
    json_object_object_add(o, "seed", json_object_new_uint64(sampling->seed));
    if (p->costs_of) {
        add_costs(o, p, n_id, rest);
    }
    json_object_object_add(o, "stats", stats_json(model));
    print_json(o);
}

static int generate(run_flags *f, smoe_model *model, smoe_session *session, const int32_t *prompt,
                    size_t n_prompt) {
    static const char *const finish_name[] = {"length", "end", "stop"};
    smoe_error err;
    smoe_finish finish = SMOE_FINISH_LENGTH;
    int32_t *ids = NULL;
    size_t n_id = 0;
    /* a terminal shows the text in the view until that is over */
    bool is_late = f->live && !f->json && isatty(STDOUT_FILENO);
    printer p = {.keeps_text = f->json || is_late,
                 .is_live = f->live,
                 .text = {.max_bytes = SIZE_MAX / 2},
                 .costs = {.max_bytes = SIZE_MAX / 2},
                 .costs_of = f->token_stats ? model : NULL,
                 .tokenizer = smoe_model_tokenizer(model)};
    smoe_sampling sampling;
    if (resolve_sampling(model, &f->sampling, &sampling) != 0) {
        return 1;
    }
    bool fits = n_prompt <= (size_t)smoe_model_plan(model)->context_tok;
    if (!f->json && f->prompt && fits) {
        fputs(f->prompt, stdout);
        fflush(stdout);
    }
    smoe_generate_options o = {.sampling = sampling,
                               .max_tok = f->max_tok,
                               .ignore_end = f->ignore_end,
                               .stop = f->stop.item,
                               .n_stop = f->stop.n_item,
                               .constraint = f->constraint,
                               .logprobs = f->has_logprobs,
                               .top_logprobs = f->top_logprobs,
                               .on_token = print_token,
                               .user = &p};
    p.logprobs = f->has_logprobs ? json_object_new_array() : NULL;
    smoe_model_stats(model, &p.last);
    interrupt_begin(session);
    int rc = f->live && live_open(model, f->max_tok, &err) != SMOE_OK
                 ? err.code
                 : smoe_generate(session, prompt, n_prompt, &o, &ids, &n_id, &finish, &err);
    live_close();
    bool stopped = interrupt_end();
    if (is_late && p.text.bytes) {
        fwrite(p.text.data, 1, p.text.bytes, stdout);
    }
    if (f->json && (rc == SMOE_OK || stopped)) {
        print_result(model, &sampling, prompt, n_prompt, ids, n_id, &p,
                     stopped ? "interrupted" : finish_name[finish]);
    } else if (rc == SMOE_OK || stopped) {
        putchar('\n');
        if (!smoe_model_tokenizer(model)) {
            for (size_t i = 0; i < n_id; i++) {
                printf("%d%c", ids[i], i + 1 == n_id ? '\n' : ' ');
            }
        }
    } else if (!f->json && f->prompt && fits) {
        putchar('\n');
    }
    if (f->stats && (rc == SMOE_OK || stopped)) {
        fflush(stdout);
        fprintf(stderr, "seed     %llu\n", (unsigned long long)sampling.seed);
        print_stats(model);
    }
    smoe_free(ids);
    buf_free(&p.text);
    buf_free(&p.costs);
    json_object_put(p.logprobs);
    if (rc == SMOE_ERR_CANCELLED && ferror(stdout)) {
        return 1; /* main says that standard output failed */
    }
    return rc == SMOE_OK ? 0 : stopped ? EXIT_STOPPED : fail(&err);
}

/* The generation with a recording around it, if one was asked for. */
static int generate_traced(run_flags *f, smoe_model *model, smoe_session *session,
                           const int32_t *prompt, size_t n_prompt) {
    smoe_error err;
    if (f->trace && smoe_trace_start(model, f->trace, &err) != SMOE_OK) {
        return fail(&err);
    }
    int rc = generate(f, model, session, prompt, n_prompt);
    if (smoe_trace_stop(model, &err) != SMOE_OK) {
        rc = fail(&err);
    }
    return rc;
}

static int run(const command *self, int argc, char **argv) {
    run_flags f = {.max_tok = 256};
    smoe_model *model;
    smoe_session *session;
    const char *path = NULL;
    const option own[] = {
        {OPTION_TEXT, 'p', "prompt", "TEXT", &f.prompt, 0, 0, "the text to continue", NULL},
        {OPTION_TEXT, 'f', "prompt-file", "FILE", &f.prompt_file, 0, 0,
         "read the prompt from a file (-: standard input)", NULL},
        {OPTION_TEXT, 0, "ids", "LIST", &f.ids, 0, 0, "the prompt as token ids: 12,7,3052", NULL},
        {OPTION_INT, 'n', "tokens", "N", &f.max_tok, -1, INT32_MAX,
         "tokens to generate at most (default: 256; -1: until the context is full)", NULL},
        {OPTION_LIST, 0, "stop", "TEXT", &f.stop, 0, 0,
         "end before this text; may be given several times", NULL},
        {OPTION_TEXT, 0, "grammar", "FILE", &f.grammar, 0, 0,
         "write only what this GBNF grammar allows", NULL},
        {OPTION_TEXT, 0, "json-schema", "FILE|TEXT", &f.schema, 0, 0,
         "write only JSON that this schema validates", NULL},
        {OPTION_FLAG, 0, "special", NULL, &f.special, 0, 0,
         "read control tokens such as <|im_end|> in the prompt as such", NULL},
        {OPTION_FLAG, 0, "ignore-end", NULL, &f.ignore_end, 0, 0,
         "go on past the model's end tokens", NULL},
        {OPTION_FLAG, 0, "json", NULL, &f.json, 0, 0,
         "print one JSON object with ids, text and statistics", NULL},
        {OPTION_INT, 0, "logprobs", "N", &f.top_logprobs, 0, SMOE_MAX_TOP_LOGPROBS,
         "with --json: each token's log-probability and the N likeliest", &f.has_logprobs},
        {OPTION_FLAG, 0, "token-stats", NULL, &f.token_stats, 0, 0,
         "with --json: what each token took of time and drive", NULL},
        {OPTION_FLAG, 0, "stats", NULL, &f.stats, 0, 0, "print statistics on stderr", NULL},
        {OPTION_FLAG, 0, "live", NULL, &f.live, 0, 0,
         "show experts, ring and drive on the terminal while it writes", NULL},
        {OPTION_TEXT, 'o', "trace", "FILE", &f.trace, 0, 0,
         "record the routing in FILE, for smoe trace replay", NULL},
        {0}};
    const option *const tables[] = {own, sampling_option_rows(&f.sampling),
                                    model_option_rows(&f.model), NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    smoe_error err;
    int32_t *prompt = NULL;
    size_t n_prompt = 0;
    if (f.has_logprobs && !f.json) {
        return fail_text("--logprobs goes with --json");
    }
    if (f.token_stats && !f.json) {
        return fail_text("--token-stats goes with --json");
    }
    if (f.live && !live_is_possible(self->name)) {
        return 1;
    }
    if (self == &command_trace_record && !f.trace) {
        return fail_text("trace record: name the file to write with -o FILE");
    }
    if (prompt_ids(&f, path, &prompt, &n_prompt, &err) != SMOE_OK) {
        return fail(&err);
    }
    rc = open_constraint(&f, path, &err) == SMOE_OK ? 0 : fail(&err);
    rc = rc ? rc : open_model(path, &f.model, &model, &session);
    if (rc == 0) {
        rc = generate_traced(&f, model, session, prompt, n_prompt);
        close_model(model, session);
    }
    smoe_constraint_close(f.constraint);
    smoe_free(prompt);
    return rc;
}

const command command_trace_record = {.name = "trace record",
                                      .arguments = "MODEL",
                                      .summary = "record the routing of a run",
                                      .n_argument = 1,
                                      .run = run};

const command command_run = {.name = "run",
                             .arguments = "MODEL",
                             .summary = "continue a prompt",
                             .n_argument = 1,
                             .run = run};
