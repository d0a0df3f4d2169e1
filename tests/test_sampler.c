/* The sampling chain against distributions and penalties computed the slow way. */
#include <math.h>

#include "conductor/sampler.h"
#include "test.h"
#include "text/tokenizer.h"

static smoe_error err;

enum { N = 50, DRAWS = 40000, HISTORY = 300 };

static const smoe_sampling neutral = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 7};

static void open_sampler(sampler *s, const smoe_sampling *o) {
    CHECK_OK(sampler_open(s, o, N, HISTORY, &err));
}

/* ---- the chain, by sorting everything */

typedef struct chain {
    double p[N]; /* relative mass; 0 when cut */
    int order[N];
    int n;
} chain;

static double mass(const chain *c) {
    double sum = 0;
    for (int i = 0; i < c->n; i++) {
        sum += c->p[c->order[i]];
    }
    return sum;
}

static void sort_by(chain *c, const double *key) {
    for (int i = 0; i < c->n; i++) {
        for (int j = i + 1; j < c->n; j++) {
            int a = c->order[i];
            int b = c->order[j];
            if (key[b] > key[a] || (key[b] == key[a] && b < a)) {
                c->order[i] = b;
                c->order[j] = a;
            }
        }
    }
}

static void keep(chain *c, int n) {
    c->n = n < c->n ? n : c->n;
}

static void keep_mass(chain *c, double share) {
    double want = share * mass(c);
    double sum = 0;
    int n = 0;
    while (n < c->n && sum < want) {
        sum += c->p[c->order[n++]];
    }
    keep(c, n);
}

static void keep_typical(chain *c, double share) {
    double total = mass(c);
    double entropy = 0;
    double key[N] = {0};
    for (int i = 0; i < c->n; i++) {
        double p = c->p[c->order[i]] / total;
        entropy -= p * log(p);
    }
    for (int i = 0; i < c->n; i++) {
        key[c->order[i]] = -fabs(-log(c->p[c->order[i]] / total) - entropy);
    }
    sort_by(c, key);
    keep_mass(c, share);
    sort_by(c, c->p);
}

static void keep_min_p(chain *c, double share) {
    int n = 0;
    while (n < c->n && c->p[c->order[n]] >= share * c->p[c->order[0]]) {
        n++;
    }
    keep(c, n);
}

static void normalise(const chain *c, double *p, double weight) {
    double total = mass(c);
    for (int i = 0; i < c->n; i++) {
        p[c->order[i]] += weight * c->p[c->order[i]] / total;
    }
}

/* p[N]: the distribution that the options mean. */
static void expected_chain(const smoe_sampling *o, const float *logits, double *p) {
    chain c = {.n = N};
    for (int i = 0; i < N; i++) {
        c.p[i] = exp((double)logits[i] / (double)o->temperature);
        c.order[i] = i;
        p[i] = 0;
    }
    sort_by(&c, c.p);
    if (o->top_k > 0) {
        keep(&c, o->top_k);
    }
    if (o->typical_p > 0 && o->typical_p < 1) {
        keep_typical(&c, (double)o->typical_p);
    }
    chain likeliest = c;
    keep_mass(&likeliest, (double)o->top_p);
    keep_min_p(&c, (double)o->min_p);
    keep(&c, likeliest.n);
    int above = 0;
    double total = mass(&c);
    while (above < c.n && c.p[c.order[above]] >= (double)o->xtc_threshold * total) {
        above++;
    }
    double chance = above >= 2 ? (double)o->xtc_probability : 0;
    normalise(&c, p, 1 - chance);
    if (chance > 0) {
        memmove(c.order, c.order + above - 1, sizeof c.order - (size_t)(above - 1) * sizeof(int));
        c.n -= above - 1;
        normalise(&c, p, chance);
    }
}

static void check_chain(const smoe_sampling *o) {
    float logits[N];
    double want[N];
    int count[N] = {0};
    sampler s;
    for (int i = 0; i < N; i++) {
        logits[i] = 2 * test_normal();
    }
    open_sampler(&s, o);
    expected_chain(o, logits, want);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = -1;
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
        CHECK(id >= 0 && id < N);
        count[id]++;
    }
    for (int i = 0; i < N; i++) {
        double sd = sqrt(want[i] * (1 - want[i]) / DRAWS);
        CHECK_NEAR((double)count[i] / DRAWS, want[i], 6 * sd + 1e-12);
    }
    sampler_close(&s);
}

TEST(sampler_follows_the_chain) {
    smoe_sampling o = neutral;
    check_chain(&o);
    o.temperature = 0.5f;
    check_chain(&o);
    o.top_k = 5;
    check_chain(&o);
    o.top_p = 0.8f;
    check_chain(&o);
    o.min_p = 0.2f;
    check_chain(&o);
    o.top_k = 0;
    check_chain(&o);
    o.top_p = 1;
    check_chain(&o);
}

TEST(sampler_follows_typical_p_and_xtc) {
    smoe_sampling o = neutral;
    o.typical_p = 0.5f;
    check_chain(&o);
    o.typical_p = 0.05f; /* a single token, rarely the likeliest */
    check_chain(&o);
    o.top_k = 12;
    o.typical_p = 0.7f;
    check_chain(&o);
    o.top_p = 0.9f;
    o.min_p = 0.1f;
    check_chain(&o);
    o = neutral;
    o.xtc_probability = 1;
    o.xtc_threshold = 0.05f;
    check_chain(&o);
    o.xtc_probability = 0.5f;
    o.temperature = 0.7f;
    o.min_p = 0.02f;
    check_chain(&o);
    o.xtc_threshold = 0.9f; /* never two above it */
    check_chain(&o);
}

/* Any mixture of steps. */
TEST(sampler_follows_random_chains) {
    int n = test_thorough() ? 100 : 12;
    for (int i = 0; i < n; i++) {
        smoe_sampling o = neutral;
        o.temperature = test_uniform(0.3f, 1.5f);
        o.top_k = test_rand() % 2 ? 0 : (int32_t)(1 + test_rand() % 60);
        o.typical_p = test_rand() % 2 ? 1 : test_uniform(0.2f, 1);
        o.top_p = test_rand() % 2 ? 1 : test_uniform(0.1f, 1);
        o.min_p = test_rand() % 2 ? 0 : test_uniform(0, 0.3f);
        o.xtc_probability = test_rand() % 2 ? 0 : test_uniform(0, 1);
        o.xtc_threshold = test_uniform(0.01f, 0.3f);
        o.seed = test_rand();
        check_chain(&o);
    }
}

/* ---- ties, seeds, what is not finite */

TEST(sampler_greedy_takes_the_best_and_lowest_id) {
    sampler s;
    smoe_sampling o = neutral;
    int32_t id;
    float logits[4] = {1, 3, 3, 2};
    o.temperature = 0;
    CHECK_OK(sampler_open(&s, &o, 4, 0, &err));
    CHECK_OK(sampler_choose(&s, logits, &id, &err));
    CHECK_INT(id, 1);
    sampler_close(&s);
}

TEST(sampler_cuts_ties_by_id) {
    float logits[N] = {0};
    smoe_sampling o = neutral;
    int32_t id;
    sampler s;
    o.top_k = 3;
    open_sampler(&s, &o);
    for (int i = 0; i < 200; i++) {
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
        CHECK(id < 3);
    }
    sampler_close(&s);
    o.top_k = 0;
    o.top_p = 0.1f; /* five of fifty */
    o.typical_p = 0.5f;
    open_sampler(&s, &o);
    for (int i = 0; i < 200; i++) {
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
        CHECK(id < 5);
    }
    sampler_close(&s);
}

static void check_same_seed(const smoe_sampling *o) {
    float logits[N];
    int32_t first[100];
    for (int i = 0; i < N; i++) {
        logits[i] = test_normal();
    }
    for (int round = 0; round < 2; round++) {
        sampler s;
        open_sampler(&s, o);
        for (int i = 0; i < 100; i++) {
            int32_t id;
            CHECK_OK(sampler_choose(&s, logits, &id, &err));
            if (round) {
                CHECK_INT(id, first[i]);
            }
            first[i] = id;
            sampler_see(&s, id);
        }
        sampler_close(&s);
    }
}

TEST(sampler_same_seed_same_choices) {
    smoe_sampling o = neutral;
    check_same_seed(&o);
    o.xtc_probability = 0.5f;
    o.xtc_threshold = 0.1f;
    o.dry_multiplier = 0.8f;
    o.dry_base = 1.75f;
    o.dry_allowed_tok = 2;
    o.typical_p = 0.9f;
    o.frequency_penalty = 0.2f;
    check_same_seed(&o);
    o = neutral;
    o.mirostat_tau = 3;
    o.mirostat_eta = 0.1f;
    check_same_seed(&o);
}

TEST(sampler_refuses_what_is_not_finite) {
    sampler s;
    int32_t id;
    float logits[3] = {1, NAN, 2};
    CHECK_OK(sampler_open(&s, &neutral, 3, 0, &err));
    CHECK_ERR(sampler_choose(&s, logits, &id, &err), SMOE_ERR_NUMERIC);
    logits[1] = HUGE_VALF;
    CHECK_ERR(sampler_choose(&s, logits, &id, &err), SMOE_ERR_NUMERIC);
    logits[0] = logits[1] = logits[2] = -HUGE_VALF;
    CHECK_ERR(sampler_choose(&s, logits, &id, &err), SMOE_ERR_NUMERIC);
    logits[1] = 0;
    CHECK_OK(sampler_choose(&s, logits, &id, &err));
    CHECK_INT(id, 1);
    sampler_close(&s);
}

/* One finite logit, and logits that differ by more than floats can hold, with every step on. */
TEST(sampler_survives_extreme_logits) {
    smoe_sampling o = neutral;
    int32_t id = -1;
    sampler s;
    float logits[N];
    o.temperature = 0.01f;
    o.typical_p = 0.99f;
    o.min_p = 0.5f;
    o.top_p = 0.9f;
    o.xtc_probability = 1;
    o.xtc_threshold = 0.01f;
    for (int mirostat = 0; mirostat < 2; mirostat++) {
        if (mirostat) {
            o = neutral;
            o.mirostat_tau = 0.001f;
            o.mirostat_eta = 1;
        }
        open_sampler(&s, &o);
        for (int i = 0; i < N; i++) {
            logits[i] = -HUGE_VALF;
        }
        logits[17] = 3e38f;
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
        CHECK_INT(id, 17);
        for (int i = 0; i < N; i++) {
            logits[i] = i % 2 ? -3e38f : -HUGE_VALF;
        }
        logits[17] = 3e38f;
        for (int i = 0; i < 50; i++) {
            CHECK_OK(sampler_choose(&s, logits, &id, &err));
            CHECK_INT(id, 17);
        }
        sampler_close(&s);
    }
}

/* ---- bias */

static void check_bias(const smoe_logit_bias *bias, size_t n, const float *want) {
    smoe_sampling o = neutral;
    float logits[4] = {1, 2, 3, 4};
    int32_t id;
    sampler s;
    o.bias = bias;
    o.n_bias = n;
    CHECK_OK(sampler_open(&s, &o, 4, 0, &err));
    CHECK_OK(sampler_choose(&s, logits, &id, &err));
    for (int i = 0; i < 4; i++) {
        CHECK(s.logit[i] == want[i]);
    }
    CHECK(want[id] > -HUGE_VALF);
    sampler_close(&s);
}

TEST(sampler_bias_adds_bans_and_forces) {
    const float inf = HUGE_VALF;
    check_bias((smoe_logit_bias[]){{1, 2.5f}, {1, 1}, {3, -1}}, 3, (float[]){1, 5.5f, 3, 3});
    check_bias((smoe_logit_bias[]){{0, -inf}, {2, -inf}}, 2, (float[]){-inf, 2, -inf, 4});
    check_bias((smoe_logit_bias[]){{0, inf}, {2, inf}, {2, 1}}, 3, (float[]){1, -inf, 4, -inf});
    check_bias((smoe_logit_bias[]){{0, inf}, {2, inf}, {2, -inf}}, 3,
               (float[]){1, -inf, -inf, -inf});
}

TEST(sampler_says_when_the_bias_leaves_nothing) {
    smoe_sampling o = neutral;
    float logits[2] = {1, -HUGE_VALF};
    int32_t id;
    sampler s;
    o.bias = (smoe_logit_bias[]){{0, -HUGE_VALF}};
    o.n_bias = 1;
    CHECK_OK(sampler_open(&s, &o, 2, 0, &err));
    CHECK_ERR(sampler_choose(&s, logits, &id, &err), SMOE_ERR_NUMERIC);
    CHECK_HAS(err.text, "bans");
    sampler_close(&s);
}

/* ---- penalties and DRY: the logits they leave */

typedef struct sequence {
    int32_t id[HISTORY];
    int n, n_prompt;
} sequence;

static void random_sequence(sequence *q, int n, int alphabet, sampler *s) {
    q->n = n;
    q->n_prompt = n / 3;
    for (int i = 0; i < n; i++) {
        q->id[i] = (int32_t)(test_rand() % (uint64_t)alphabet);
        if (i < q->n_prompt) {
            sampler_see_prompt(s, q->id[i]);
        } else {
            sampler_see(s, q->id[i]);
        }
    }
}

static void random_logits(float *logits) {
    for (int i = 0; i < N; i++) {
        logits[i] = 3 * test_normal();
    }
}

static void check_penalties(const smoe_sampling *o, int n) {
    sequence q;
    float logits[N];
    int32_t id;
    sampler s;
    open_sampler(&s, o);
    random_sequence(&q, n, N / 2, &s);
    random_logits(logits);
    CHECK_OK(sampler_choose(&s, logits, &id, &err));
    int from = o->penalty_last_tok > 0 && n > o->penalty_last_tok ? n - o->penalty_last_tok : 0;
    for (int t = 0; t < N; t++) {
        int seen = 0;
        int output = 0;
        for (int i = from; i < n; i++) {
            seen += q.id[i] == t;
            output += q.id[i] == t && i >= q.n_prompt;
        }
        double v = (double)logits[t];
        if (seen) {
            v = v > 0 ? v / (double)o->repetition_penalty : v * (double)o->repetition_penalty;
        }
        if (output) {
            v -= (double)o->presence_penalty + output * (double)o->frequency_penalty;
        }
        CHECK_NEAR(s.logit[t], v, 1e-4);
    }
    sampler_close(&s);
}

TEST(sampler_penalties_count_in_their_window) {
    smoe_sampling o = neutral;
    for (int i = 0; i < 60; i++) {
        o.repetition_penalty = i % 3 ? test_uniform(0.8f, 1.5f) : 1;
        o.presence_penalty = i % 4 ? test_uniform(-2, 2) : 0;
        o.frequency_penalty = i % 5 ? test_uniform(-2, 2) : 0;
        o.penalty_last_tok = i % 2 ? (int32_t)(1 + test_rand() % 80) : 0;
        check_penalties(&o, (int)(test_rand() % 100));
    }
}

/* Longest run before place i that equals the end of the window, without breakers. */
static int repeat_before(const sequence *q, int from, int i, const bool *breaks) {
    int len = 0;
    while (i - 1 - len >= from && q->id[i - 1 - len] == q->id[q->n - 1 - len] &&
           !breaks[q->id[i - 1 - len]]) {
        len++;
    }
    return len;
}

static void check_dry(const smoe_sampling *o, int n, int alphabet) {
    sequence q;
    float logits[N];
    bool breaks[N] = {false};
    int32_t id;
    sampler s;
    open_sampler(&s, o);
    for (int t = 0; t < N; t++) {
        breaks[t] = test_rand() % 6 == 0;
        s.breaks[t] = breaks[t];
    }
    random_sequence(&q, n, alphabet, &s);
    random_logits(logits);
    for (int round = 0; round < 2; round++) { /* the second finds nothing left of the first */
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
        int from = o->dry_last_tok > 0 && n > o->dry_last_tok ? n - o->dry_last_tok : 0;
        for (int t = 0; t < N; t++) {
            int longest = 0;
            for (int i = from + 1; i < n; i++) {
                int len = q.id[i] == t ? repeat_before(&q, from, i, breaks) : 0;
                longest = len > longest ? len : longest;
            }
            double v = (double)logits[t];
            if (longest >= o->dry_allowed_tok) {
                v -= (double)o->dry_multiplier *
                     pow((double)o->dry_base, longest - o->dry_allowed_tok);
            }
            CHECK_NEAR(s.logit[t], v, 1e-4 + 1e-6 * fabs(v));
        }
    }
    sampler_close(&s);
}

TEST(sampler_dry_equals_the_naive_search) {
    smoe_sampling o = neutral;
    for (int i = 0; i < 300; i++) {
        o.dry_multiplier = test_uniform(0.1f, 2);
        o.dry_base = test_uniform(1, 2);
        o.dry_allowed_tok = (int32_t)(1 + test_rand() % 3);
        o.dry_last_tok = i % 3 ? 0 : (int32_t)(1 + test_rand() % 100);
        check_dry(&o, (int)(test_rand() % 150), (int)(1 + test_rand() % 6));
    }
}

/* A whole sequence of one token: the exponent must not reach infinity. */
TEST(sampler_dry_stays_finite) {
    smoe_sampling o = neutral;
    float logits[N] = {0};
    int32_t id = 3;
    sampler s;
    o.dry_multiplier = 100;
    o.dry_base = 100;
    o.dry_allowed_tok = 1;
    open_sampler(&s, &o);
    for (int i = 0; i < HISTORY; i++) {
        sampler_see(&s, 3);
    }
    CHECK_OK(sampler_choose(&s, logits, &id, &err));
    CHECK(isfinite(s.logit[3]) && s.logit[3] < -1e29f);
    CHECK(id != 3);
    sampler_close(&s);
}

TEST(sampler_breakers_are_tokens_that_hold_the_text) {
    static const char *const breakers[] = {"a", "\n"};
    smoe_tokenizer *t;
    smoe_sampling o = neutral;
    sampler s;
    o.dry_multiplier = 1;
    o.dry_base = 1.75f;
    o.dry_allowed_tok = 2;
    o.dry_breaker = breakers;
    o.n_dry_breaker = 2;
    CHECK_OK(smoe_tokenizer_open(&t, test_model("tales-8m"), &err));
    int32_t n = (int32_t)smoe_tokenizer_size(t);
    CHECK_OK(sampler_open(&s, &o, n, 10, &err));
    CHECK_OK(sampler_set_breakers(&s, t, &err));
    for (int32_t id = 0; id < n; id += 7) {
        char *text;
        size_t bytes;
        CHECK_OK(smoe_detokenize(t, &id, 1, true, &text, &bytes, &err));
        CHECK_INT(s.breaks[id], strpbrk(text, "a\n") != NULL);
        smoe_free(text);
    }
    CHECK_ERR(sampler_set_breakers(&s, NULL, &err), SMOE_ERR_ARGUMENT);
    sampler_close(&s);
    smoe_tokenizer_close(t);
}

/* ---- mirostat */

/* The mean surprise of what is chosen comes to tau, while the distributions change; tau lies
 * between the surprise of their best tokens and their entropy. */
TEST(sampler_mirostat_holds_its_surprise) {
    enum { STEPS = 6000, SETTLE = 500, VOCAB = 400 };
    static float logits[VOCAB];
    const float taus[] = {1.5f, 3, 5};
    const float spreads[] = {3, 1.8f, 0.8f};
    for (int k = 0; k < 3; k++) {
        smoe_sampling o = neutral;
        double sum = 0;
        sampler s;
        o.mirostat_tau = taus[k];
        o.mirostat_eta = 0.1f;
        CHECK_OK(sampler_open(&s, &o, VOCAB, 0, &err));
        for (int i = 0; i < STEPS; i++) {
            int32_t id;
            double total = 0;
            float spread = spreads[k] * test_uniform(1, 1.5f);
            for (int j = 0; j < VOCAB; j++) {
                logits[j] = spread * test_normal();
                total += exp((double)logits[j]);
            }
            CHECK_OK(sampler_choose(&s, logits, &id, &err));
            if (i >= SETTLE) {
                sum -= log2(exp((double)logits[id]) / total);
            }
        }
        CHECK_NEAR(sum / (STEPS - SETTLE), taus[k], 0.1);
        sampler_close(&s);
    }
}

/* Nothing above mu is ever chosen, but the best always may be. */
TEST(sampler_mirostat_cuts_at_mu) {
    smoe_sampling o = neutral;
    float logits[N];
    sampler s;
    o.mirostat_tau = 2;
    o.mirostat_eta = 0.3f;
    open_sampler(&s, &o);
    for (int i = 0; i < 2000; i++) {
        double total = 0;
        float best = -HUGE_VALF;
        int32_t id;
        float mu = s.mu;
        random_logits(logits);
        for (int j = 0; j < N; j++) {
            total += exp((double)logits[j]);
            best = fmaxf(best, logits[j]);
        }
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
        double surprise = -log2(exp((double)logits[id]) / total);
        CHECK(surprise <= (double)mu + 1e-4 || logits[id] == best);
        CHECK_NEAR(s.mu, (double)mu - 0.3 * (surprise - 2), 1e-4);
    }
    sampler_close(&s);
}

/* ---- log-probabilities and options */

TEST(sampler_logprobs_are_of_the_raw_logits) {
    float logits[N];
    smoe_logprob top[N + 5];
    for (int round = 0; round < 50; round++) {
        double total = 0;
        float got;
        size_t n_top = test_rand() % (N + 5);
        int32_t id = (int32_t)(test_rand() % N);
        for (int i = 0; i < N; i++) { /* few values, so that there are ties */
            logits[i] = (float)(test_rand() % 12) - 300;
            total += exp((double)logits[i] + 300);
        }
        logits[5] = -HUGE_VALF;
        id = id == 5 ? 6 : id;
        total = 0;
        for (int i = 0; i < N; i++) {
            total += exp((double)logits[i] + 300);
        }
        size_t n = sampler_logprobs(logits, N, id, &got, top, n_top);
        CHECK_INT(n, n_top < N ? n_top : N);
        CHECK_NEAR(got, (double)logits[id] + 300 - log(total), 1e-4);
        for (size_t i = 0; i < n; i++) {
            int before = 0;
            int32_t t = top[i].id;
            for (int j = 0; j < N; j++) {
                before += logits[j] > logits[t] || (logits[j] == logits[t] && j < t);
            }
            CHECK_INT(before, i);
            if (t != 5) {
                CHECK_NEAR(top[i].logprob, (double)logits[t] + 300 - log(total), 1e-4);
            } else {
                CHECK(top[i].logprob == -HUGE_VALF);
            }
        }
    }
}

static void check_refused(const smoe_sampling *o, const char *name) {
    sampler s;
    CHECK_ERR(sampler_open(&s, o, N, 10, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, name);
}

#define REFUSED(name, ...)                                                                         \
    do {                                                                                           \
        smoe_sampling o_ = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, __VA_ARGS__};   \
        check_refused(&o_, name);                                                                  \
    } while (0)

#pragma GCC diagnostic ignored "-Woverride-init"
TEST(sampler_refuses_options_out_of_range) {
    REFUSED("temperature", .temperature = -1);
    REFUSED("temperature", .temperature = NAN);
    REFUSED("top-k", .top_k = -1);
    REFUSED("top-p", .top_p = 0);
    REFUSED("top-p", .top_p = 1.5f);
    REFUSED("min-p", .min_p = -0.1f);
    REFUSED("typical-p", .typical_p = 2);
    REFUSED("XTC probability", .xtc_probability = 2);
    REFUSED("XTC threshold", .xtc_probability = 0.5f);
    REFUSED("repetition penalty", .repetition_penalty = 0);
    REFUSED("presence penalty", .presence_penalty = NAN);
    REFUSED("frequency penalty", .frequency_penalty = HUGE_VALF);
    REFUSED("penalty window", .penalty_last_tok = -1);
    REFUSED("DRY multiplier", .dry_multiplier = -1);
    REFUSED("DRY base", .dry_multiplier = 1);
    REFUSED("DRY allowed length", .dry_multiplier = 1, .dry_base = 2);
    REFUSED("DRY window", .dry_multiplier = 1, .dry_base = 2, .dry_allowed_tok = 1,
            .dry_last_tok = -1);
    REFUSED("mirostat tau", .mirostat_tau = -1);
    REFUSED("mirostat eta", .mirostat_tau = 3);
    REFUSED("top-k", .mirostat_tau = 3, .mirostat_eta = 0.1f, .top_k = 5);
    REFUSED("XTC", .mirostat_tau = 3, .mirostat_eta = 0.1f, .xtc_probability = 1,
            .xtc_threshold = 0.1f);
    smoe_logit_bias bias = {3, NAN};
    REFUSED("logit bias", .bias = &bias, .n_bias = 1);
    bias.bias = 1e20f;
    REFUSED("logit bias", .bias = &bias, .n_bias = 1);
    bias = (smoe_logit_bias){N, 1};
    REFUSED("vocabulary", .bias = &bias, .n_bias = 1);
    REFUSED("logit bias", .n_bias = 1);
}

TEST(sampler_choices_do_not_allocate) {
    smoe_sampling o = neutral;
    float logits[N];
    smoe_logprob top[5];
    float logprob;
    int32_t id;
    sampler s;
    o.typical_p = 0.9f;
    o.xtc_probability = 0.5f;
    o.xtc_threshold = 0.1f;
    o.dry_multiplier = 1;
    o.dry_base = 1.5f;
    o.dry_allowed_tok = 1;
    o.frequency_penalty = 0.1f;
    open_sampler(&s, &o);
    random_logits(logits);
    alloc_guard_forbid(true);
    for (int i = 0; i < HISTORY + 20; i++) { /* more than the history holds */
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
        sampler_logprobs(logits, N, id, &logprob, top, 5);
        sampler_see(&s, id);
    }
    alloc_guard_forbid(false);
    CHECK_INT(alloc_guard_violations(), 0);
    sampler_close(&s);
}

/* ---- through smoe_generate and the program */

typedef struct watcher {
    smoe_session *session;
    int n;
} watcher;

/* The session still holds the logits that the token was chosen from. */
static bool check_token(void *user, const smoe_token *token) {
    watcher *w = user;
    smoe_logprob top[3];
    float logprob;
    const float *logits = smoe_session_logits(w->session);
    CHECK_INT(sampler_logprobs(logits, 4096, token->id, &logprob, top, 3), 3);
    CHECK_INT(token->n_top, 3);
    CHECK(token->logprob == logprob && token->logprob < 0);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(token->top[i].id, top[i].id);
        CHECK(token->top[i].logprob == top[i].logprob);
    }
    w->n++;
    return false;
}

TEST(generation_reports_logprobs) {
    smoe_model_options options = {.n_thread = 1, .context_tok = 64};
    smoe_session *session;
    smoe_model *model;
    CHECK_OK(smoe_model_open(&model, test_model("tales-8m"), &options, &err));
    CHECK_OK(smoe_session_open(&session, model, &err));
    watcher w = {.session = session};
    smoe_generate_options g = {.sampling = smoe_model_sampling(model),
                               .max_tok = 8,
                               .ignore_end = true,
                               .logprobs = true,
                               .top_logprobs = 3,
                               .on_token = check_token,
                               .user = &w};
    CHECK_OK(smoe_generate(session, (int32_t[]){3138, 625}, 2, &g, NULL, NULL, NULL, &err));
    CHECK_INT(w.n, 8);
    g.top_logprobs = SMOE_MAX_TOP_LOGPROBS + 1;
    CHECK_ERR(smoe_generate(session, (int32_t[]){1}, 1, &g, NULL, NULL, NULL, &err),
              SMOE_ERR_ARGUMENT);
    smoe_session_close(session);
    smoe_model_close(model);
}

TEST(cli_sampling_options_reach_the_sampler) {
    const char *model = strdup(test_model("tales-8m"));
    test_run r = test_smoe("run", model, "-q", "-p", "Once", "-n", "3", "--json", "--temp", "0",
                           "--logprobs", "2", NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "\"logprobs\": [ { \"id\": ");
    CHECK_HAS(r.out, "\"top\": [ { \"id\": ");
    r = test_smoe("run", model, "-q", "-p", "Once", "-n", "3", "--logprobs", "2", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "--logprobs goes with --json");
    /* a forced token is all there is */
    r = test_smoe("run", model, "-q", "--ids", "3138", "-n", "3", "--json", "--logit-bias",
                  "258=inf", NULL);
    CHECK_INT(r.status, 0);
    CHECK_HAS(r.out, "\"ids\": [ 258, 258, 258 ]");
    r = test_smoe("run", model, "-q", "-p", "Once", "--logit-bias", "258", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "is not ID=V");
    r = test_smoe("run", model, "-q", "-p", "Once", "-n", "5", "--mirostat-tau", "3", NULL);
    CHECK_INT(r.status, 0);
    r = test_smoe("run", model, "-q", "-p", "Once", "--mirostat-tau", "3", "--top-k", "5", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "mirostat takes the place of top-k");
    r = test_smoe("run", model, "-q", "-p", "a b a b a", "-n", "8", "--dry-multiplier", "1",
                  "--dry-breaker", "x", "--typical-p", "0.9", "--xtc-probability", "0.5", NULL);
    CHECK_INT(r.status, 0);
}
