/* smoe eval: perplexity of a text, and the divergence from logits that were kept of another run.
 *
 * The measure: the text's tokens are cut into windows of --ctx tokens that each start afresh; the
 * first token of a window is not scored; a shorter rest at the end is left out. Each window's value
 * is its mean negative log-likelihood, and the perplexity is exp of their mean. The divergence is
 * the mean of KL(kept || here) over the same positions, in nats.
 */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/logits_file.h"

typedef struct eval_flags {
    model_flags model;
    const char *text;
    const char *save;
    const char *against;
    int32_t n_window;
    bool json, stats;
} eval_flags;

/* The logits to compare with, and what came of it. */
typedef struct base_run {
    logits_reader file;
    float *row;
    double kl;
    size_t n_same; /* positions where both hold the same token the likeliest */
} base_run;

typedef struct scoring {
    const int32_t *ids; /* of the present window */
    size_t n_id;
    size_t first_row; /* of the window, among all windows */
    int32_t vocab;
    double nll;            /* of the window, summed */
    base_run *base;        /* NULL: none */
    logits_writer *writer; /* NULL: none */
    smoe_error err;        /* of these two; code 0: none */
} scoring;

/* The logarithm of the sum of exp(x), and which x is the largest. */
static double log_sum(const float *x, int32_t n, int32_t *largest) {
    double max = -HUGE_VAL;
    *largest = 0;
    for (int32_t i = 0; i < n; i++) {
        if ((double)x[i] > max) {
            max = (double)x[i];
            *largest = i;
        }
    }
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - max);
    }
    return max + log(sum);
}

/* Adds the divergence of a row that has log_sum total and its largest value at best. */
static int compare_row(base_run *b, size_t row, const float *logits, double total, int32_t best,
                       smoe_error *err) {
    int rc = logits_read_row(&b->file, row, b->row, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    int32_t base_best;
    double base_total = log_sum(b->row, b->file.shape.vocab, &base_best);
    double kl = 0;
    for (int32_t i = 0; i < b->file.shape.vocab; i++) {
        double log_p = (double)b->row[i] - base_total;
        double p = exp(log_p);
        kl += p > 0 ? p * (log_p - ((double)logits[i] - total)) : 0;
    }
    if (!isfinite(kl)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: row %zu of its logits has no finite divergence",
                       b->file.path, row);
    }
    b->kl += kl;
    b->n_same += best == base_best;
    return SMOE_OK;
}

/* Adds -log p(next token). */
static bool score_row(void *user, size_t position_tok, const float *logits) {
    scoring *s = user;
    int rc = s->writer ? logits_write_row(s->writer, logits, &s->err) : SMOE_OK;
    if (rc == SMOE_OK && position_tok + 1 < s->n_id) {
        int32_t best;
        double total = log_sum(logits, s->vocab, &best);
        s->nll += total - (double)logits[s->ids[position_tok + 1]];
        if (s->base) {
            rc = compare_row(s->base, s->first_row + position_tok, logits, total, best, &s->err);
        }
    }
    return rc != SMOE_OK;
}

/* A line that holds only <|endoftext|> separates documents: with the line ends around it, it counts
 * as one newline. Shortens text in place. */
static size_t join_documents(char *text, size_t bytes) {
    static const char separator[] = "\n<|endoftext|>\n";
    size_t n = sizeof separator - 1;
    size_t out = 0;
    for (size_t i = 0; i < bytes;) {
        if (bytes - i >= n && memcmp(text + i, separator, n) == 0) {
            text[out++] = '\n';
            i += n;
        } else {
            text[out++] = text[i++];
        }
    }
    return out;
}

typedef struct result {
    struct json_object *window_nll;
    double nll; /* mean */
    size_t n_window, ctx;
} result;

static void print_result(const result *r, const base_run *base, const smoe_model *model) {
    size_t n = r->n_window * (r->ctx - 1);
    double kl = base ? base->kl / (double)n : 0;
    double same = base ? (double)base->n_same / (double)n : 0;
    if (r->window_nll) {
        struct json_object *o = json_object_new_object();
        json_object_object_add(o, "window", json_object_new_int64((int64_t)r->ctx));
        json_object_object_add(o, "windows", json_object_new_int64((int64_t)r->n_window));
        json_object_object_add(o, "nll_per_window", json_object_get(r->window_nll));
        json_object_object_add(o, "nll", json_object_new_double(r->nll));
        json_object_object_add(o, "ppl", json_object_new_double(exp(r->nll)));
        if (base) {
            json_object_object_add(o, "kl", json_object_new_double(kl));
            json_object_object_add(o, "same_best", json_object_new_double(same));
        }
        json_object_object_add(o, "stats", stats_json(model));
        print_json(o);
        return;
    }
    printf("perplexity %.6f over %zu windows of %zu tokens\n", exp(r->nll), r->n_window, r->ctx);
    if (base) {
        printf("divergence %.6f nats from %s; the likeliest token is the same at %.2f %% of %zu "
               "positions\n",
               kl, base->file.path, 100 * same, n);
    }
}

static int score_windows(smoe_session *session, scoring *s, const int32_t *ids, bool shows,
                         result *r, smoe_error *err) {
    double total = 0;
    s->n_id = r->ctx;
    for (size_t i = 0; i < r->n_window; i++) {
        s->first_row = i * r->ctx;
        s->ids = ids + s->first_row;
        s->nll = 0;
        int rc = smoe_session_score(session, s->ids, s->n_id, score_row, s, err);
        if (s->err.code) {
            *err = s->err;
            rc = s->err.code;
        }
        if (rc != SMOE_OK) {
            return rc;
        }
        double nll = s->nll / (double)(r->ctx - 1);
        total += nll;
        if (r->window_nll) {
            json_object_array_add(r->window_nll, json_object_new_double(nll));
        }
        if (shows) {
            fprintf(stderr, "\rwindow %zu of %zu: perplexity so far %.4f ", i + 1, r->n_window,
                    exp(total / (double)(i + 1)));
        }
    }
    if (shows) {
        fputc('\n', stderr);
    }
    r->nll = total / (double)r->n_window;
    return SMOE_OK;
}

/* Whether the kept logits are of these windows and this vocabulary. */
static int check_base(const logits_reader *file, const int32_t *ids, const result *r, int32_t vocab,
                      smoe_error *err) {
    const logits_shape *s = &file->shape;
    if (s->vocab != vocab) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "%s has logits of %d tokens; the model's vocabulary has %d", file->path,
                       s->vocab, vocab);
    }
    if (s->n_tok != r->ctx) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "%s has windows of %zu tokens, not %zu; give --ctx %zu", file->path,
                       s->n_tok, r->ctx, s->n_tok);
    }
    if (s->n_window < r->n_window) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%s ends after %zu of %zu windows; give --windows",
                       file->path, s->n_window, r->n_window);
    }
    return logits_check_ids(file, ids, r->n_window * r->ctx, err);
}

/* Scores all windows with the files that f names. */
static int measure(const eval_flags *f, smoe_session *session, const int32_t *ids, scoring *s,
                   result *r, smoe_error *err) {
    static logits_writer writer;
    logits_shape shape = {.n_window = r->n_window, .n_tok = r->ctx, .vocab = s->vocab};
    bool shows = !f->json && !f->model.quiet && isatty(STDERR_FILENO);
    int rc = s->base ? check_base(&s->base->file, ids, r, s->vocab, err) : SMOE_OK;
    if (rc == SMOE_OK && f->save) {
        rc = logits_create(&writer, f->save, &shape, ids, err);
        s->writer = rc == SMOE_OK ? &writer : NULL;
    }
    rc = rc ? rc : score_windows(session, s, ids, shows, r, err);
    return s->writer ? logits_close(s->writer, rc, err) : rc;
}

static int evaluate(const eval_flags *f, smoe_model *model, smoe_session *session,
                    const int32_t *ids, size_t n_id, base_run *base) {
    smoe_error err;
    scoring s = {.vocab = smoe_model_info(model)->vocab_size, .base = base};
    result r = {.ctx = (size_t)smoe_model_plan(model)->context_tok};
    r.n_window = n_id / r.ctx;
    if (r.ctx < 2) {
        return fail_text("eval: a window of one token scores nothing; --ctx must be at least 2");
    }
    if (f->n_window > 0 && (size_t)f->n_window < r.n_window) {
        r.n_window = (size_t)f->n_window;
    }
    if (r.n_window == 0) {
        return fail_text("eval: %s has %zu tokens, less than one window of %zu; lower --ctx",
                         f->text, n_id, r.ctx);
    }
    r.window_nll = f->json ? json_object_new_array() : NULL;
    interrupt_begin(session);
    int rc = measure(f, session, ids, &s, &r, &err);
    bool stopped = interrupt_end();
    if (rc == SMOE_OK) {
        print_result(&r, base, model);
    }
    json_object_put(r.window_nll);
    if (rc != SMOE_OK) {
        return stopped ? EXIT_STOPPED : fail(&err);
    }
    if (f->stats) {
        print_stats(model);
    }
    return 0;
}

/* Before the model is opened: the memory plan then counts what the text takes. */
static int text_ids(const eval_flags *f, const char *path, int32_t **ids, size_t *n_id,
                    smoe_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    int rc = read_input(f->text, &text, &bytes, err);
    rc = rc ? rc
            : tokenize_early(path, text, join_documents(text, bytes), false, false, ids, n_id, err);
    free(text);
    return rc;
}

/* Also before it: opens what to compare with. base->file.fd is -1 after failure. */
static int open_base(base_run *base, const char *path, smoe_error *err) {
    int rc = logits_open(&base->file, path, err);
    if (rc == SMOE_OK) {
        size_t vocab = (size_t)base->file.shape.vocab;
        base->row = mem_array(vocab, sizeof *base->row);
        rc = base->row ? SMOE_OK : err_no_memory(err, vocab * sizeof *base->row);
    }
    return rc;
}

static int run_with(eval_flags *f, const char *path, base_run *base) {
    smoe_model *model;
    smoe_session *session;
    smoe_error err;
    int32_t *ids = NULL;
    size_t n_id = 0;
    int rc = f->against ? open_base(base, f->against, &err) : SMOE_OK;
    rc = rc ? rc : text_ids(f, path, &ids, &n_id, &err);
    if (rc != SMOE_OK) {
        return fail(&err);
    }
    rc = open_model(path, &f->model, &model, &session);
    if (rc == 0) {
        rc = evaluate(f, model, session, ids, n_id, f->against ? base : NULL);
        close_model(model, session);
    }
    smoe_free(ids);
    return rc;
}

static int run(const command *self, int argc, char **argv) {
    eval_flags f = {0};
    base_run base = {.file = {.fd = -1}};
    const char *path = NULL;
    const option own[] = {
        {OPTION_TEXT, 'f', "text", "FILE", &f.text, 0, 0, "the text (-: standard input)", NULL},
        {OPTION_INT, 0, "windows", "K", &f.n_window, 0, INT32_MAX,
         "only the first K windows (default: all)", NULL},
        {OPTION_TEXT, 0, "save", "FILE", &f.save, 0, 0, "keep all logits, as safetensors", NULL},
        {OPTION_TEXT, 0, "against", "FILE", &f.against, 0, 0,
         "the divergence from the logits kept in FILE", NULL},
        {OPTION_FLAG, 0, "json", NULL, &f.json, 0, 0, "print one JSON object", NULL},
        {OPTION_FLAG, 0, "stats", NULL, &f.stats, 0, 0, "print statistics on stderr", NULL},
        {0}};
    const option *const tables[] = {own, model_option_rows(&f.model), NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    if (!f.text) {
        return fail_text("eval: name the text with --text FILE");
    }
    rc = run_with(&f, path, &base);
    free(base.row);
    logits_end(&base.file);
    return rc;
}

const command command_eval = {
    .name = "eval",
    .arguments = "MODEL",
    .summary = "measure the perplexity of a text",
    .details =
        "  The text is cut into windows of --ctx tokens that each start afresh; the first token\n"
        "  of a window is not scored. What a type or an option costs: keep the logits of the\n"
        "  exact run (--precision reference --save FILE), then --against FILE gives the mean\n"
        "  Kullback-Leibler divergence from it and how often the likeliest token is the same.",
    .n_argument = 1,
    .run = run};
