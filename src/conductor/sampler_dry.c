/* DRY, the penalty on prolonging a repeat; see sampler.h. Never allocates.
 *
 * A token is penalised when the end of the sequence has occurred before and that token came next.
 * How long a piece before each place equals the end of the sequence is the Z-function of the
 * sequence read backwards, so all places together cost linear time.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "conductor/sampler.h"
#include "text/tokenizer.h"

/* Those of the proposal that made DRY known (text-generation-webui, pull request 5677). */
static const char *const default_breakers[] = {"\n", ":", "\"", "*"};

static bool holds_any(const char *text, size_t bytes, const char *const *breaker, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (memmem(text, bytes, breaker[i], strlen(breaker[i]))) {
            return true;
        }
    }
    return false;
}

int sampler_set_breakers(sampler *s, const smoe_tokenizer *t, smoe_error *err) {
    const char *const *breaker = s->options.dry_breaker;
    size_t n = s->options.n_dry_breaker;
    if (!s->breaks || (!t && !breaker)) {
        return SMOE_OK;
    }
    if (!t) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "DRY breakers are texts, and this model has no tokenizer");
    }
    if (!breaker) {
        breaker = default_breakers;
        n = sizeof default_breakers / sizeof default_breakers[0];
    }
    for (size_t i = 0; i < n; i++) {
        if (!breaker[i][0]) {
            return err_set(err, SMOE_ERR_ARGUMENT, "a DRY breaker must not be empty");
        }
    }
    char *text = mem_array(text_stream_max_bytes(t), 1);
    if (!text) {
        return err_no_memory(err, text_stream_max_bytes(t));
    }
    for (int32_t id = 0; id < s->n_vocab; id++) {
        text_stream stream; /* of one token */
        text_stream_init(&stream, t, true);
        s->breaks[id] = holds_any(text, text_stream_push(&stream, id, text), breaker, n);
    }
    free(text);
    return SMOE_OK;
}

/* z[i] for 0 < i < n: how many tokens before and at place n - 1 - i equal those at the end, counted
 * up to most. place 0 is the oldest of the window. */
static void repeat_lengths(const int32_t *window, size_t n, size_t most, int32_t *z) {
    size_t left = 0;
    size_t right = 0; /* [left, right) is the match that reaches furthest */
    for (size_t i = 1; i < n; i++) {
        size_t len = 0;
        if (i < right) {
            len = (size_t)z[i - left] < right - i ? (size_t)z[i - left] : right - i;
        }
        while (len < most && i + len < n && window[n - 1 - len] == window[n - 1 - i - len]) {
            len++;
        }
        if (i + len > right) {
            left = i;
            right = i + len;
        }
        z[i] = (int32_t)len;
    }
}

/* Tokens at the end of the window before one that breaks repeats. */
static size_t unbroken(const sampler *s, const int32_t *window, size_t n) {
    size_t len = 0;
    while (len < n && !s->breaks[window[n - 1 - len]]) {
        len++;
    }
    return len;
}

void sampler_apply_dry(sampler *s) {
    const smoe_sampling *o = &s->options;
    size_t n = s->n_history;
    if (!s->breaks || n < 2) {
        return;
    }
    if (o->dry_last_tok > 0 && n > (size_t)o->dry_last_tok) {
        n = (size_t)o->dry_last_tok;
    }
    const int32_t *window = s->history + s->n_history - n;
    size_t most = unbroken(s, window, n);
    if (most < (size_t)o->dry_allowed_tok) {
        return;
    }
    repeat_lengths(window, n, most, s->dry_z);
    for (size_t i = 1; i < n; i++) {
        int32_t next = window[n - i];
        if (s->dry_z[i] >= o->dry_allowed_tok && s->dry_z[i] > s->dry_len[next]) {
            s->dry_len[next] = s->dry_z[i];
        }
    }
    for (size_t i = 1; i < n; i++) {
        int32_t next = window[n - i];
        if (s->dry_len[next] > 0) {
            double over = (double)(s->dry_len[next] - o->dry_allowed_tok);
            double penalty = (double)o->dry_multiplier * pow((double)o->dry_base, over);
            s->logit[next] -= (float)fmin(penalty, 1e30); /* stays a finite logit */
            s->dry_len[next] = 0;
        }
    }
}
