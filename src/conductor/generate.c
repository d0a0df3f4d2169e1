/* Generation: prefill, then one token at a time, with stop texts and streaming of whole characters.
 *
 * Everything is allocated before the first token.
 */
#include <math.h>
#include <string.h>

#include "conductor/model.h"
#include "conductor/sampler.h"
#include "text/mask.h"
#include "text/tokenizer.h"

typedef struct generation {
    smoe_session *session;
    const smoe_generate_options *options;
    sampler sampler;
    text_stream text;
    bool has_text;
    int32_t *ids; /* [prompt + max_tok] */
    size_t n_id;
    size_t n_prompt;
    char *held; /* text that may be the start of a stop text */
    size_t held_bytes;
    size_t longest_stop;
    char *piece; /* [text_stream_max_bytes] */
    smoe_token token;
    smoe_logprob *top;          /* [top_logprobs] */
    constraint_run *constraint; /* NULL: none */
    uint64_t *allowed;          /* [vocab_size] bits */
} generation;

static bool is_end(const spec *s, int32_t id) {
    for (int32_t i = 0; i < s->n_end_id; i++) {
        if (s->end_id[i] == id) {
            return true;
        }
    }
    return false;
}

/* Position of the earliest stop text in held, or -1. */
static ptrdiff_t find_stop(const generation *g) {
    ptrdiff_t best = -1;
    for (size_t i = 0; i < g->options->n_stop; i++) {
        const char *stop = g->options->stop[i];
        const char *at = memmem(g->held, g->held_bytes, stop, strlen(stop));
        if (at && (best < 0 || at - g->held < best)) {
            best = at - g->held;
        }
    }
    return best;
}

/* Bytes at the end of held that could grow into a stop text. */
static size_t stop_prefix_bytes(const generation *g) {
    size_t most = 0;
    for (size_t i = 0; i < g->options->n_stop; i++) {
        const char *stop = g->options->stop[i];
        size_t n = strlen(stop);
        size_t len = g->held_bytes < n ? g->held_bytes : n - 1;
        for (; len > most; len--) {
            if (memcmp(g->held + g->held_bytes - len, stop, len) == 0) {
                most = len;
                break;
            }
        }
    }
    return most;
}

/* Notes the choice, and how likely it was where that is asked for. */
static void note_choice(generation *g, int32_t id) {
    const smoe_generate_options *o = g->options;
    g->token = (smoe_token){.id = id, .logprob = NAN, .top = g->top};
    if (o->logprobs) {
        g->token.n_top = sampler_logprobs(g->session->logits, g->sampler.n_vocab, id,
                                          &g->token.logprob, g->top, (size_t)o->top_logprobs);
    }
}

static int emit(generation *g, size_t bytes, smoe_error *err) {
    g->token.text = g->held;
    g->token.text_bytes = bytes;
    bool stop = g->options->on_token && g->options->on_token(g->options->user, &g->token);
    memmove(g->held, g->held + bytes, g->held_bytes - bytes);
    g->held_bytes -= bytes;
    return stop ? err_set(err, SMOE_ERR_CANCELLED, "cancelled") : SMOE_OK;
}

/* Adds a token's text and hands out what is certain. *stopped: a stop text is complete. */
static int take_token(generation *g, int32_t id, bool last, bool *stopped, smoe_error *err) {
    size_t n = g->has_text ? text_stream_push(&g->text, id, g->piece) : 0;
    memcpy(g->held + g->held_bytes, g->piece, n);
    g->held_bytes += n;
    if (last && g->has_text) {
        n = text_stream_flush(&g->text, g->piece);
        memcpy(g->held + g->held_bytes, g->piece, n);
        g->held_bytes += n;
    }
    ptrdiff_t at = find_stop(g);
    *stopped = at >= 0;
    /* no stop text goes across a control token: text and structure keep their order */
    bool is_certain = last || (g->has_text && tokenizer_is_special(g->text.tokenizer, id));
    size_t ready = at >= 0      ? (size_t)at
                   : is_certain ? g->held_bytes
                                : g->held_bytes - stop_prefix_bytes(g);
    return emit(g, ready, err);
}

static void close_generation(generation *g) {
    sampler_close(&g->sampler);
    free(g->ids);
    free(g->held);
    free(g->piece);
    free(g->top);
    constraint_stop(g->constraint);
    free(g->allowed);
}

static int check_options(const smoe_generate_options *o, const smoe_model *m, smoe_error *err) {
    if (o->n_stop && !m->tokenizer) {
        return err_set(err, SMOE_ERR_ARGUMENT, "stop: %s has no tokenizer, so no text to stop at",
                       m->source->path);
    }
    if (o->top_logprobs < 0 || o->top_logprobs > SMOE_MAX_TOP_LOGPROBS) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "top log-probabilities: %d is out of range (0 to %d)", o->top_logprobs,
                       SMOE_MAX_TOP_LOGPROBS);
    }
    return SMOE_OK;
}

static int open_constraint(generation *g, smoe_error *err) {
    const smoe_generate_options *o = g->options;
    size_t n_vocab = (size_t)g->session->model->source->spec.vocab_size;
    if (!o->constraint) {
        return SMOE_OK;
    }
    if (o->ignore_end) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "constraint: a text that must end cannot go on past its end; leave out "
                       "ignore_end");
    }
    g->allowed = mem_array(mask_words(n_vocab), sizeof *g->allowed);
    if (!g->allowed) {
        return err_no_memory(err, n_vocab / 8);
    }
    g->sampler.allowed = g->allowed;
    return constraint_start(&g->constraint, o->constraint, err);
}

static int open_generation(generation *g, smoe_session *session, const int32_t *prompt,
                           size_t n_prompt, size_t max_tok, const smoe_generate_options *o,
                           smoe_error *err) {
    const smoe_model *m = session->model;
    *g = (generation){.session = session, .options = o, .n_prompt = n_prompt, .n_id = n_prompt};
    for (size_t i = 0; i < o->n_stop; i++) {
        size_t n = strlen(o->stop[i]);
        if (n == 0) {
            return err_set(err, SMOE_ERR_ARGUMENT, "stop: an empty text would stop at once");
        }
        g->longest_stop = n > g->longest_stop ? n : g->longest_stop;
    }
    int rc = check_options(o, m, err);
    rc = rc ? rc
            : sampler_open(&g->sampler, &o->sampling, m->source->spec.vocab_size,
                           n_prompt + max_tok, err);
    rc = rc ? rc : sampler_set_breakers(&g->sampler, m->tokenizer, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t piece_bytes = m->tokenizer ? text_stream_max_bytes(m->tokenizer) : 1;
    g->has_text = m->tokenizer != NULL;
    g->ids = mem_array(n_prompt + max_tok + 1, sizeof *g->ids);
    g->piece = mem_array(piece_bytes, 1);
    g->held = mem_array(2 * piece_bytes + g->longest_stop + 1, 1);
    g->top = mem_array((size_t)o->top_logprobs + 1, sizeof *g->top);
    if (!g->ids || !g->piece || !g->held || !g->top) {
        return err_no_memory(err, (n_prompt + max_tok) * sizeof *g->ids);
    }
    memcpy(g->ids, prompt, n_prompt * sizeof *prompt);
    for (size_t i = 0; i < n_prompt; i++) {
        sampler_see_prompt(&g->sampler, prompt[i]);
    }
    if (g->has_text) {
        text_stream_init(&g->text, m->tokenizer, false);
    }
    return open_constraint(g, err);
}

/* Which ids may come next; end ids where the text may end. */
static int find_allowed(generation *g, smoe_error *err) {
    const spec *sp = &g->session->model->source->spec;
    bool has_any = true;
    if (!g->constraint) {
        return SMOE_OK;
    }
    bool may_end = constraint_may_end(g->constraint);
    int rc = constraint_mask(g->constraint, g->allowed, (size_t)sp->vocab_size, &has_any, err);
    for (int32_t i = 0; i < sp->n_end_id && rc == SMOE_OK; i++) {
        uint64_t bit = 1ull << (sp->end_id[i] % 64);
        uint64_t *word = &g->allowed[sp->end_id[i] / 64];
        *word = may_end ? *word | bit : *word & ~bit;
        has_any |= may_end;
    }
    return rc || has_any ? rc
                         : err_set(err, SMOE_ERR_UNSUPPORTED,
                                   "constraint: after %zu tokens no token of this vocabulary goes "
                                   "on with the grammar",
                                   g->n_id - g->n_prompt);
}

/* The loop proper: no allocation from here on. */
static int run(generation *g, size_t max_tok, smoe_finish *finish, smoe_error *err) {
    const spec *sp = &g->session->model->source->spec;
    bool is_over = g->constraint && constraint_must_end(g->constraint);
    *finish = is_over ? SMOE_FINISH_END : SMOE_FINISH_LENGTH;
    for (size_t i = 0; i < max_tok && !is_over; i++) {
        int32_t id;
        bool stopped = false;
        int rc = find_allowed(g, err);
        rc = rc ? rc : session_sync(g->session, g->ids, g->n_id, err);
        rc = rc ? rc : sampler_choose(&g->sampler, g->session->logits, &id, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        note_choice(g, id);
        if (!g->options->ignore_end && is_end(sp, id)) {
            *finish = SMOE_FINISH_END;
            /* what was held back for a stop text is certain now */
            size_t n = g->has_text ? text_stream_flush(&g->text, g->piece) : 0;
            memcpy(g->held + g->held_bytes, g->piece, n);
            g->held_bytes += n;
            return g->held_bytes ? emit(g, g->held_bytes, err) : SMOE_OK;
        }
        g->ids[g->n_id++] = id;
        sampler_see(&g->sampler, id);
        if (g->constraint) {
            rc = constraint_take(g->constraint, id, err);
            is_over = rc == SMOE_OK && constraint_must_end(g->constraint);
        }
        rc = rc ? rc : take_token(g, id, i + 1 == max_tok || is_over, &stopped, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        if (stopped || is_over) {
            *finish = stopped ? SMOE_FINISH_STOP : SMOE_FINISH_END;
            return SMOE_OK;
        }
    }
    return SMOE_OK;
}

int smoe_generate(smoe_session *session, const int32_t *prompt, size_t n_prompt,
                  const smoe_generate_options *options, int32_t **ids, size_t *n_id,
                  smoe_finish *finish, smoe_error *err) {
    generation g;
    smoe_finish end = SMOE_FINISH_LENGTH;
    size_t context = (size_t)session->kv.context_tok;
    if (n_prompt == 0 || n_prompt > context) {
        return err_set(err, n_prompt ? SMOE_ERR_CONTEXT : SMOE_ERR_ARGUMENT,
                       n_prompt ? "the prompt has %zu tokens, more than the context of %zu; raise "
                                  "--ctx or shorten it"
                                : "the prompt has %zu tokens; at least one is needed (context %zu)",
                       n_prompt, context);
    }
    /* the last token chosen need not be computed, so it may stand past the context */
    size_t room = context - n_prompt + 1;
    size_t max_tok =
        options->max_tok < 0 || (size_t)options->max_tok > room ? room : (size_t)options->max_tok;
    atomic_store(&session->cancelled, false);
    int rc = open_generation(&g, session, prompt, n_prompt, max_tok, options, err);
    if (rc == SMOE_OK) {
        rc = run(&g, max_tok, &end, err);
    }
    bool hand_over = (rc == SMOE_OK || rc == SMOE_ERR_CANCELLED) && g.ids && ids;
    if (hand_over) {
        *n_id = g.n_id - n_prompt;
        memmove(g.ids, g.ids + n_prompt, *n_id * sizeof *g.ids);
        *ids = g.ids;
        g.ids = NULL;
    }
    if (finish) {
        *finish = end;
    }
    close_generation(&g);
    return rc;
}
