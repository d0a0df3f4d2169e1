/* Sampling; see sampler.h.
 *
 * Candidates come off a binary heap in falling order, so a usual top-k or top-p costs O(vocabulary)
 * and a few dozen pops instead of a sort. Equal logits rank by id, which makes the result a
 * function of the logits and the seed alone.
 */
#include "conductor/sampler.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

int sampling_check(const smoe_sampling *o, smoe_error *err) {
    if (!(o->temperature >= 0 && o->temperature <= 100)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "temperature: %g is out of range (0 to 100)",
                       (double)o->temperature);
    }
    if (o->top_k < 0) {
        return err_set(err, SMOE_ERR_ARGUMENT, "top-k: %d must be 0 (off) or more", o->top_k);
    }
    if (!(o->top_p > 0 && o->top_p <= 1)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "top-p: %g is out of range (above 0, to 1)",
                       (double)o->top_p);
    }
    if (!(o->min_p >= 0 && o->min_p <= 1)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "min-p: %g is out of range (0 to 1)",
                       (double)o->min_p);
    }
    if (!(o->repetition_penalty > 0 && o->repetition_penalty <= 100)) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "repetition penalty: %g is out of range (above 0, to 100)",
                       (double)o->repetition_penalty);
    }
    return SMOE_OK;
}

/* splitmix64 (Steele, Lea, Flood 2014) spreads the seed over the state. */
static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

/* xoshiro256** (Blackman and Vigna, arXiv 1805.01407) */
static uint64_t next_random(uint64_t s[4]) {
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

int sampler_open(sampler *out, const smoe_sampling *options, int32_t n_vocab, smoe_error *err) {
    *out = (sampler){.options = *options, .n_vocab = n_vocab};
    int rc = sampling_check(options, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    out->logit = mem_array((size_t)n_vocab, sizeof *out->logit);
    out->heap = mem_array((size_t)n_vocab, sizeof *out->heap);
    out->seen = mem_array((size_t)n_vocab, 1);
    if (!out->logit || !out->heap || !out->seen) {
        sampler_close(out);
        return err_no_memory(err, (uint64_t)n_vocab * 9);
    }
    uint64_t state = options->seed;
    for (int i = 0; i < 4; i++) {
        out->rng[i] = splitmix(&state);
    }
    return SMOE_OK;
}

void sampler_close(sampler *s) {
    free(s->logit);
    free(s->heap);
    free(s->seen);
    s->logit = NULL;
    s->heap = NULL;
    s->seen = NULL;
}

void sampler_see(sampler *s, int32_t id) {
    if (id >= 0 && id < s->n_vocab) {
        s->seen[id] = 1;
    }
}

static bool ranks_before(const sampler *s, int32_t a, int32_t b) {
    return s->logit[a] > s->logit[b] || (s->logit[a] == s->logit[b] && a < b);
}

static void sift_down(sampler *s, int32_t at, int32_t n) {
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) {
            return;
        }
        if (child + 1 < n && ranks_before(s, s->heap[child + 1], s->heap[child])) {
            child++;
        }
        if (!ranks_before(s, s->heap[child], s->heap[at])) {
            return;
        }
        int32_t swap = s->heap[at];
        s->heap[at] = s->heap[child];
        s->heap[child] = swap;
        at = child;
    }
}

/* Copies logits with the penalty applied; finds the best. */
static int penalised(sampler *s, const float *logits, int32_t *best, smoe_error *err) {
    float penalty = s->options.repetition_penalty;
    *best = -1;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float v = logits[i];
        if (isnan(v) || v == HUGE_VALF) {
            *best = -1;
            break;
        }
        if (s->seen[i] && penalty != 1) {
            v = v > 0 ? v / penalty : v * penalty;
        }
        s->logit[i] = v;
        if (v > -HUGE_VALF && (*best < 0 || v > s->logit[*best])) {
            *best = i;
        }
    }
    return *best >= 0 ? SMOE_OK
                      : err_set(err, SMOE_ERR_NUMERIC,
                                "the logits are not finite, so no token can be chosen; the weights "
                                "may be damaged (try smoe verify)");
}

/* Probability of a candidate relative to the best one. */
static float relative(const sampler *s, int32_t id, float max) {
    return expf((s->logit[id] - max) / s->options.temperature);
}

/* Whether top-p is a share of the top k alone, so that the list can be cut only once it is whole.
 */
static bool cuts_later(const sampler *s) {
    return s->options.top_p < 1 && s->options.top_k > 0 && s->options.top_k < s->n_vocab;
}

/* Takes the best candidates off the heap in order until the chain ends the list; they stand at the
 * end of heap, best last. total receives the sum of their relative probabilities. */
static int32_t take_candidates(sampler *s, float max, double *total) {
    int32_t n = s->n_vocab;
    int32_t most = s->options.top_k > 0 && s->options.top_k < n ? s->options.top_k : n;
    double all = 0; /* the mass that top-p is a share of */
    for (int32_t i = 0; i < n; i++) {
        s->heap[i] = i;
    }
    for (int32_t i = n / 2 - 1; i >= 0; i--) {
        sift_down(s, i, n);
    }
    bool later = cuts_later(s);
    if (s->options.top_p < 1 && !later) {
        for (int32_t i = 0; i < n; i++) {
            all += (double)relative(s, i, max);
        }
    }
    int32_t taken = 0;
    while (taken < most) {
        int32_t id = s->heap[0];
        float p = relative(s, id, max);
        if (p == 0 || (!later && p < s->options.min_p)) {
            break;
        }
        s->heap[0] = s->heap[n - 1 - taken];
        s->heap[n - 1 - taken] = id;
        taken++;
        sift_down(s, 0, n - taken);
        *total += (double)p;
        if (s->options.top_p < 1 && !later && *total >= (double)s->options.top_p * all) {
            break;
        }
    }
    return taken;
}

static int32_t cut(const sampler *s, float max, int32_t taken, double *total) {
    double want = *total * (double)s->options.top_p;
    double sum = 0;
    int32_t kept = 0;
    while (kept < taken && sum < want) {
        float p = relative(s, s->heap[s->n_vocab - 1 - kept], max);
        if (p < s->options.min_p) {
            break;
        }
        sum += (double)p;
        kept++;
    }
    *total = sum;
    return kept;
}

int sampler_choose(sampler *s, const float *logits, int32_t *id, smoe_error *err) {
    int32_t best;
    int rc = penalised(s, logits, &best, err);
    if (rc != SMOE_OK || s->options.temperature == 0) {
        *id = best;
        return rc;
    }
    float max = s->logit[best];
    double total = 0;
    int32_t taken = take_candidates(s, max, &total);
    if (cuts_later(s)) {
        taken = cut(s, max, taken, &total);
    }
    double draw = (double)(next_random(s->rng) >> 11) * 0x1p-53 * total;
    for (int32_t i = 0; i < taken; i++) {
        *id = s->heap[s->n_vocab - 1 - i];
        draw -= (double)relative(s, *id, max);
        if (draw < 0) {
            break;
        }
    }
    return SMOE_OK;
}
