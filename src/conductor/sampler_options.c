/* What surrounds the choice: the check of sampling options and log-probabilities; see sampler.h. */
#include <math.h>

#include "base/error.h"
#include "conductor/sampler.h"

typedef struct range {
    const char *name;
    float value, min, max;
    bool above_min; /* min itself is out of range */
} range;

static int check_range(const range *r, smoe_error *err) {
    if (r->value >= r->min && r->value <= r->max && !(r->above_min && r->value == r->min)) {
        return SMOE_OK;
    }
    return err_set(err, SMOE_ERR_ARGUMENT, "%s: %g is out of range (%s%g to %g)", r->name,
                   (double)r->value, r->above_min ? "above " : "", (double)r->min, (double)r->max);
}

static int check_count(const char *name, int32_t value, int32_t min, smoe_error *err) {
    if (value >= min) {
        return SMOE_OK;
    }
    return err_set(err, SMOE_ERR_ARGUMENT, "%s: %d must be %d or more", name, value, min);
}

static int check_bias(const smoe_sampling *o, smoe_error *err) {
    if (o->n_bias && !o->bias) {
        return err_set(err, SMOE_ERR_ARGUMENT, "logit bias: %zu entries, but no array", o->n_bias);
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        float v = o->bias[i].bias;
        if (isnan(v) || (isfinite(v) && fabsf(v) > 1e6f)) {
            return err_set(err, SMOE_ERR_ARGUMENT,
                           "logit bias: %g for token id %d is out of range (-1e6 to 1e6, or "
                           "infinite)",
                           (double)v, o->bias[i].id);
        }
    }
    return SMOE_OK;
}

/* What mirostat replaces must be off: it would be without effect. */
static int check_mirostat(const smoe_sampling *o, smoe_error *err) {
    const char *other = o->top_k > 0                           ? "top-k"
                        : o->typical_p > 0 && o->typical_p < 1 ? "typical-p"
                        : o->top_p < 1                         ? "top-p"
                        : o->min_p > 0                         ? "min-p"
                        : o->xtc_probability > 0               ? "XTC"
                                                               : NULL;
    if (o->mirostat_tau == 0 || !other) {
        return SMOE_OK;
    }
    return err_set(err, SMOE_ERR_ARGUMENT, "mirostat takes the place of %s; turn one of them off",
                   other);
}

int sampling_check(const smoe_sampling *o, smoe_error *err) {
    const range ranges[] = {
        {"temperature", o->temperature, 0, 100, false},
        {"top-p", o->top_p, 0, 1, true},
        {"min-p", o->min_p, 0, 1, false},
        {"typical-p", o->typical_p, 0, 1, false},
        {"XTC probability", o->xtc_probability, 0, 1, false},
        {"repetition penalty", o->repetition_penalty, 0, 100, true},
        {"presence penalty", o->presence_penalty, -100, 100, false},
        {"frequency penalty", o->frequency_penalty, -100, 100, false},
        {"DRY multiplier", o->dry_multiplier, 0, 100, false},
        {"mirostat tau", o->mirostat_tau, 0, 100, false},
    };
    const range xtc = {"XTC threshold", o->xtc_threshold, 0, 1, true};
    const range dry = {"DRY base", o->dry_base, 1, 100, false};
    const range eta = {"mirostat eta", o->mirostat_eta, 0, 1, true};
    int rc = SMOE_OK;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && rc == SMOE_OK; i++) {
        rc = check_range(&ranges[i], err);
    }
    rc = rc ? rc : check_count("top-k", o->top_k, 0, err);
    rc = rc ? rc : check_count("penalty window", o->penalty_last_tok, 0, err);
    if (rc == SMOE_OK && o->xtc_probability > 0) {
        rc = check_range(&xtc, err);
    }
    if (rc == SMOE_OK && o->dry_multiplier > 0) {
        rc = check_range(&dry, err);
        rc = rc ? rc : check_count("DRY allowed length", o->dry_allowed_tok, 1, err);
        rc = rc ? rc : check_count("DRY window", o->dry_last_tok, 0, err);
    }
    if (rc == SMOE_OK && o->mirostat_tau > 0) {
        rc = check_range(&eta, err);
        rc = rc ? rc : check_mirostat(o, err);
    }
    return rc ? rc : check_bias(o, err);
}

/* Puts id into the falling list where it belongs, if it does. */
static size_t insert(smoe_logprob *top, size_t n, size_t max, int32_t id, float logit) {
    if (n == max && (max == 0 || top[n - 1].logprob >= logit)) {
        return n;
    }
    size_t at = n < max ? n : n - 1;
    while (at > 0 && top[at - 1].logprob < logit) {
        top[at] = top[at - 1];
        at--;
    }
    top[at] = (smoe_logprob){id, logit};
    return n < max ? n + 1 : n;
}

size_t sampler_logprobs(const float *logits, int32_t n_vocab, int32_t id, float *logprob,
                        smoe_logprob *top, size_t n_top) {
    float max = logits[0];
    double sum = 0;
    size_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        max = logits[i] > max ? logits[i] : max;
        n = insert(top, n, n_top, i, logits[i]);
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += (double)expf(logits[i] - max);
    }
    double log_total = (double)max + log(sum);
    *logprob = (float)((double)logits[id] - log_total);
    for (size_t i = 0; i < n; i++) {
        top[i].logprob = (float)((double)top[i].logprob - log_total);
    }
    return n;
}
