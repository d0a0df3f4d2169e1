/* Sampling: the sampler's life and the chain; see sampler.h.
 *
 * Candidates come off a binary heap in falling order, so a usual top-k or top-p costs O(vocabulary)
 * and a few dozen pops instead of a sort.
 */
#include "conductor/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

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

/* At least 0, below 1. */
static double next_uniform(sampler *s) {
    return (double)(next_random(s->rng) >> 11) * 0x1p-53;
}

/* ---- opening */

static int take_bias(sampler *s, const smoe_sampling *o, smoe_error *err) {
    if (o->n_bias == 0) {
        return SMOE_OK;
    }
    s->bias = mem_array(o->n_bias, sizeof *s->bias);
    if (!s->bias) {
        return err_no_memory(err, o->n_bias * sizeof *s->bias);
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].id < 0 || o->bias[i].id >= s->n_vocab) {
            return err_set(err, SMOE_ERR_ARGUMENT,
                           "logit bias: token id %d is not in the vocabulary (0 to %d)",
                           o->bias[i].id, s->n_vocab - 1);
        }
        s->bias[i] = o->bias[i];
        s->is_forced |= o->bias[i].bias == HUGE_VALF;
    }
    s->n_bias = o->n_bias;
    return SMOE_OK;
}

int sampler_open(sampler *out, const smoe_sampling *options, int32_t n_vocab, size_t max_history,
                 smoe_error *err) {
    size_t n = (size_t)n_vocab;
    bool dry = options->dry_multiplier > 0;
    *out = (sampler){.options = *options, .n_vocab = n_vocab, .max_history = max_history};
    int rc = sampling_check(options, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    out->logit = mem_array(n, sizeof *out->logit);
    out->key = mem_array(n, sizeof *out->key);
    out->heap = mem_array(n, sizeof *out->heap);
    out->n_seen = mem_array(n, sizeof *out->n_seen);
    out->n_output = mem_array(n, sizeof *out->n_output);
    out->history = mem_array(max_history + 1, sizeof *out->history);
    if (dry) {
        out->breaks = mem_array(n, 1);
        out->dry_len = mem_array(n, sizeof *out->dry_len);
        out->dry_z = mem_array(max_history + 1, sizeof *out->dry_z);
    }
    if (!out->logit || !out->key || !out->heap || !out->n_seen || !out->n_output || !out->history ||
        (dry && (!out->breaks || !out->dry_len || !out->dry_z))) {
        rc = err_no_memory(err, 5 * n * sizeof(float) + 2 * max_history * sizeof(int32_t));
    }
    rc = rc ? rc : take_bias(out, options, err);
    if (rc != SMOE_OK) {
        sampler_close(out);
        return rc;
    }
    out->mu = 2 * options->mirostat_tau; /* where the paper starts */
    uint64_t state = options->seed;
    for (int i = 0; i < 4; i++) {
        out->rng[i] = splitmix(&state);
    }
    return SMOE_OK;
}

void sampler_close(sampler *s) {
    free(s->logit);
    free(s->key);
    free(s->heap);
    free(s->n_seen);
    free(s->n_output);
    free(s->bias);
    free(s->history);
    free(s->breaks);
    free(s->dry_len);
    free(s->dry_z);
    *s = (sampler){.n_vocab = 0};
}

/* ---- the sequence */

static void see(sampler *s, int32_t id, bool is_prompt) {
    size_t window = (size_t)s->options.penalty_last_tok;
    if (id < 0 || id >= s->n_vocab || s->n_history == s->max_history) {
        return;
    }
    s->history[s->n_history++] = id;
    s->n_prompt += is_prompt;
    s->n_seen[id]++;
    s->n_output[id] += !is_prompt;
    if (window && s->n_history > window) {
        size_t at = s->n_history - 1 - window;
        s->n_seen[s->history[at]]--;
        s->n_output[s->history[at]] -= at >= s->n_prompt;
    }
}

void sampler_see_prompt(sampler *s, int32_t id) {
    see(s, id, true);
}

void sampler_see(sampler *s, int32_t id) {
    see(s, id, false);
}

/* ---- before the choice: bias and penalties */

static int copy_logits(sampler *s, const float *logits, smoe_error *err) {
    bool any = false;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float v = logits[i];
        if (isnan(v) || v == HUGE_VALF) {
            any = false;
            break;
        }
        s->logit[i] = v;
        any |= v > -HUGE_VALF;
    }
    return any ? SMOE_OK
               : err_set(err, SMOE_ERR_NUMERIC,
                         "the logits are not finite, so no token can be chosen; the weights "
                         "may be damaged");
}

static void add_bias(sampler *s, const float *logits) {
    if (s->is_forced) {
        for (int32_t i = 0; i < s->n_vocab; i++) {
            s->logit[i] = -HUGE_VALF;
        }
        for (size_t i = 0; i < s->n_bias; i++) {
            if (s->bias[i].bias == HUGE_VALF) {
                s->logit[s->bias[i].id] = logits[s->bias[i].id];
            }
        }
    }
    for (size_t i = 0; i < s->n_bias; i++) {
        if (s->bias[i].bias < HUGE_VALF) {
            s->logit[s->bias[i].id] += s->bias[i].bias;
        }
    }
}

static void penalise(sampler *s) {
    float repetition = s->options.repetition_penalty;
    float frequency = s->options.frequency_penalty;
    float presence = s->options.presence_penalty;
    if (repetition == 1 && frequency == 0 && presence == 0) {
        return;
    }
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float v = s->logit[i];
        if (s->n_seen[i] == 0) {
            continue;
        }
        v = v > 0 ? v / repetition : v * repetition;
        if (s->n_output[i]) {
            v -= frequency * (float)s->n_output[i] + presence;
        }
        s->logit[i] = v > FLT_MAX ? FLT_MAX : v;
    }
}

static void keep_allowed(sampler *s) {
    for (int32_t i = 0; s->allowed && i < s->n_vocab; i++) {
        if (!(s->allowed[i / 64] >> (i % 64) & 1)) {
            s->logit[i] = -HUGE_VALF;
        }
    }
}

static int find_best(const sampler *s, int32_t *best, smoe_error *err) {
    *best = -1;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->logit[i] > -HUGE_VALF && (*best < 0 || s->logit[i] > s->logit[*best])) {
            *best = i;
        }
    }
    return *best >= 0 ? SMOE_OK
                      : err_set(err, SMOE_ERR_NUMERIC,
                                "no token can be chosen: the logit bias, or the constraint, bans "
                                "every one that the model gives a chance");
}

/* ---- candidates */

static bool ranks_before(const float *key, int32_t a, int32_t b) {
    return key[a] > key[b] || (key[a] == key[b] && a < b);
}

static void sift_down(int32_t *heap, const float *key, int32_t at, int32_t n) {
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) {
            return;
        }
        if (child + 1 < n && ranks_before(key, heap[child + 1], heap[child])) {
            child++;
        }
        if (!ranks_before(key, heap[child], heap[at])) {
            return;
        }
        int32_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

static void make_heap(int32_t *heap, const float *key, int32_t n) {
    for (int32_t i = n / 2 - 1; i >= 0; i--) {
        sift_down(heap, key, i, n);
    }
}

/* Moves the best of a heap of n to its end, behind the n - 1 others. */
static int32_t pop(int32_t *heap, const float *key, int32_t n) {
    int32_t id = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = id;
    sift_down(heap, key, 0, n - 1);
    return id;
}

/* Probability of a candidate relative to one with logit max. */
static float relative(const sampler *s, int32_t id, float max) {
    return expf((s->logit[id] - max) / s->options.temperature);
}

/* Leaves the k best candidates at the front; returns how many there are. */
static int32_t keep_top_k(sampler *s, int32_t n, int32_t k) {
    if (k >= n) {
        return n;
    }
    make_heap(s->heap, s->logit, n);
    for (int32_t i = 0; i < k; i++) {
        pop(s->heap, s->logit, n - i);
    }
    memmove(s->heap, s->heap + n - k, (size_t)k * sizeof *s->heap);
    return k;
}

/* Typical-p: keeps those whose surprise is nearest to the expected one until they make up the
 * share; returns how many, at the front. */
static int32_t keep_typical(sampler *s, int32_t n, float max) {
    double total = 0;
    double weighted = 0; /* sum of p * log p before normalising */
    for (int32_t i = 0; i < n; i++) {
        double p = (double)relative(s, s->heap[i], max);
        total += p;
        if (p > 0) {
            weighted +=
                p * ((double)s->logit[s->heap[i]] - (double)max) / (double)s->options.temperature;
        }
    }
    /* surprise is log(total) - x and entropy log(total) - weighted / total */
    for (int32_t i = 0; i < n; i++) {
        int32_t id = s->heap[i];
        double x = ((double)s->logit[id] - (double)max) / (double)s->options.temperature;
        s->key[id] = (float)-fabs(x - weighted / total);
    }
    make_heap(s->heap, s->key, n);
    double sum = 0;
    int32_t kept = 0;
    while (kept < n && sum < (double)s->options.typical_p * total) {
        sum += (double)relative(s, pop(s->heap, s->key, n - kept), max);
        kept++;
    }
    memmove(s->heap, s->heap + n - kept, (size_t)kept * sizeof *s->heap);
    return kept;
}

/* The end of a list of candidates in heap: best at [end - 1], total their relative mass. */
typedef struct candidates {
    int32_t end, n;
    float max;
    double total;
} candidates;

static int32_t candidate(const sampler *s, const candidates *c, int32_t rank) {
    return s->heap[c->end - 1 - rank];
}

/* Takes the likeliest of the n candidates in falling order until top-p or min-p ends the list. */
static candidates take_likeliest(sampler *s, int32_t n) {
    double all = 0; /* the mass that top-p is a share of */
    make_heap(s->heap, s->logit, n);
    candidates c = {.end = n, .max = s->logit[s->heap[0]]};
    if (s->options.top_p < 1) {
        for (int32_t i = 0; i < n; i++) {
            all += (double)relative(s, s->heap[i], c.max);
        }
    }
    while (c.n < n) {
        float p = relative(s, s->heap[0], c.max);
        if (p == 0 || p < s->options.min_p) {
            break;
        }
        pop(s->heap, s->logit, n - c.n);
        c.n++;
        c.total += (double)p;
        if (s->options.top_p < 1 && c.total >= (double)s->options.top_p * all) {
            break;
        }
    }
    return c;
}

/* XTC: with its probability, drops all but the last of those above the threshold. */
static void exclude_top(sampler *s, candidates *c) {
    if (s->options.xtc_probability == 0 || next_uniform(s) >= (double)s->options.xtc_probability) {
        return;
    }
    int32_t above = 0;
    while (above < c->n && (double)relative(s, candidate(s, c, above), c->max) >=
                               (double)s->options.xtc_threshold * c->total) {
        above++;
    }
    if (above < 2) {
        return;
    }
    c->end -= above - 1;
    c->n -= above - 1;
    c->total = 0;
    for (int32_t i = 0; i < c->n; i++) {
        c->total += (double)relative(s, candidate(s, c, i), c->max);
    }
}

static int32_t draw(sampler *s, const candidates *c) {
    double left = next_uniform(s) * c->total;
    int32_t id = candidate(s, c, 0);
    for (int32_t i = 0; i < c->n && left >= 0; i++) {
        id = candidate(s, c, i);
        left -= (double)relative(s, id, c->max);
    }
    return id;
}

/* Mirostat 2: candidates whose surprise is at most mu, which then moves by the error of what came.
 * Surprise is that of the distribution before the cut. */
static int32_t draw_mirostat(sampler *s, int32_t best) {
    float max = s->logit[best];
    double total = 0;
    double kept = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->key[i] = relative(s, i, max);
        total += (double)s->key[i];
    }
    double least = exp2(-(double)s->mu) * total;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (i != best && (double)s->key[i] < least) {
            s->key[i] = 0;
        }
        kept += (double)s->key[i];
    }
    double left = next_uniform(s) * kept;
    int32_t id = best;
    for (int32_t i = 0; i < s->n_vocab && left >= 0; i++) {
        if (s->key[i] > 0) {
            id = i;
            left -= (double)s->key[i];
        }
    }
    float surprise = (float)-log2((double)s->key[id] / total);
    s->mu -= s->options.mirostat_eta * (surprise - s->options.mirostat_tau);
    return id;
}

int sampler_choose(sampler *s, const float *logits, int32_t *id, smoe_error *err) {
    const smoe_sampling *o = &s->options;
    int32_t best = -1;
    int32_t n = s->n_vocab;
    int rc = copy_logits(s, logits, err);
    if (rc == SMOE_OK) {
        add_bias(s, logits);
        penalise(s);
        sampler_apply_dry(s);
        keep_allowed(s);
        rc = find_best(s, &best, err);
    }
    if (rc != SMOE_OK || o->temperature == 0) {
        *id = best;
        return rc;
    }
    if (o->mirostat_tau > 0) {
        *id = draw_mirostat(s, best);
        return SMOE_OK;
    }
    for (int32_t i = 0; i < n; i++) {
        s->heap[i] = i;
    }
    n = o->top_k > 0 ? keep_top_k(s, n, o->top_k) : n;
    if (o->typical_p > 0 && o->typical_p < 1) {
        n = keep_typical(s, n, s->logit[best]);
    }
    candidates c = take_likeliest(s, n);
    exclude_top(s, &c);
    *id = draw(s, &c);
    return SMOE_OK;
}
