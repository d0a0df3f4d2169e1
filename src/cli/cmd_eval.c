/* smoe eval: perplexity of a text.
 *
 * The measure: the text's tokens are cut into windows of --ctx tokens that each start afresh; the
 * first token of a window is not scored; a shorter rest at the end is left out. Each window's value
 * is its mean negative log-likelihood, and the perplexity is exp of their mean.
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

typedef struct window {
    const int32_t *ids;
    size_t n_id;
    int32_t vocab;
    double sum;
} window;

/* Adds -log p(next token). */
static bool score_row(void *user, size_t position_tok, const float *logits) {
    window *w = user;
    if (position_tok + 1 >= w->n_id) {
        return false;
    }
    double max = -HUGE_VAL;
    for (int32_t i = 0; i < w->vocab; i++) {
        max = (double)logits[i] > max ? (double)logits[i] : max;
    }
    double sum = 0;
    for (int32_t i = 0; i < w->vocab; i++) {
        sum += exp((double)logits[i] - max);
    }
    w->sum += max + log(sum) - (double)logits[w->ids[position_tok + 1]];
    return false;
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

typedef struct eval_flags {
    model_flags model;
    const char *text;
    int32_t n_window;
    bool json, stats;
} eval_flags;

static int score_windows(smoe_model *model, smoe_session *session, const int32_t *ids,
                         size_t n_window, size_t ctx, const eval_flags *f, smoe_error *err) {
    bool shows = !f->json && !f->model.quiet && isatty(STDERR_FILENO);
    double total = 0;
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; i < n_window; i++) {
        window w = {.ids = ids + i * ctx, .n_id = ctx, .vocab = smoe_model_info(model)->vocab_size};
        int rc = smoe_session_score(session, w.ids, ctx, score_row, &w, err);
        if (rc != SMOE_OK) {
            json_object_put(list);
            return rc;
        }
        double nll = w.sum / (double)(ctx - 1);
        total += nll;
        json_object_array_add(list, json_object_new_double(nll));
        if (shows) {
            fprintf(stderr, "\rwindow %zu of %zu: perplexity so far %.4f ", i + 1, n_window,
                    exp(total / (double)(i + 1)));
        }
    }
    double nll = total / (double)n_window;
    if (shows) {
        fputc('\n', stderr);
    }
    if (f->json) {
        struct json_object *o = json_object_new_object();
        json_object_object_add(o, "window", json_object_new_int64((int64_t)ctx));
        json_object_object_add(o, "windows", json_object_new_int64((int64_t)n_window));
        json_object_object_add(o, "nll_per_window", list);
        json_object_object_add(o, "nll", json_object_new_double(nll));
        json_object_object_add(o, "ppl", json_object_new_double(exp(nll)));
        json_object_object_add(o, "stats", stats_json(model));
        print_json(o);
    } else {
        json_object_put(list);
        printf("perplexity %.6f over %zu windows of %zu tokens\n", exp(nll), n_window, ctx);
    }
    return SMOE_OK;
}

static int evaluate(const eval_flags *f, smoe_model *model, smoe_session *session,
                    const int32_t *ids, size_t n_id) {
    smoe_error err;
    size_t ctx = (size_t)smoe_model_plan(model)->context_tok;
    size_t n_window = n_id / ctx;
    if (ctx < 2) {
        return fail_text("eval: a window of one token scores nothing; --ctx must be at least 2");
    }
    if (f->n_window > 0 && (size_t)f->n_window < n_window) {
        n_window = (size_t)f->n_window;
    }
    if (n_window == 0) {
        return fail_text("eval: %s has %zu tokens, less than one window of %zu; lower --ctx",
                         f->text, n_id, ctx);
    }
    interrupt_begin(session);
    int rc = score_windows(model, session, ids, n_window, ctx, f, &err);
    bool stopped = interrupt_end();
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

static int run(const command *self, int argc, char **argv) {
    eval_flags f = {0};
    smoe_model *model;
    smoe_session *session;
    const char *path = NULL;
    const option own[] = {
        {OPTION_TEXT, 'f', "text", "FILE", &f.text, 0, 0, "the text (-: standard input)", NULL},
        {OPTION_INT, 0, "windows", "K", &f.n_window, 0, INT32_MAX,
         "only the first K windows (default: all)", NULL},
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
    smoe_error err;
    int32_t *ids = NULL;
    size_t n_id = 0;
    if (text_ids(&f, path, &ids, &n_id, &err) != SMOE_OK) {
        return fail(&err);
    }
    rc = open_model(path, &f.model, &model, &session);
    if (rc == 0) {
        rc = evaluate(&f, model, session, ids, n_id);
        close_model(model, session);
    }
    smoe_free(ids);
    return rc;
}

const command command_eval = {.name = "eval",
                              .arguments = "MODEL",
                              .summary = "measure the perplexity of a text",
                              .details = "  The text is cut into windows of --ctx tokens that each "
                                         "start afresh; the first token\n  of a window is not "
                                         "scored.",
                              .n_argument = 1,
                              .run = run};
