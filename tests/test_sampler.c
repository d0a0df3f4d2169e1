/* The sampling chain against distributions computed the slow way. */
#include <math.h>

#include "conductor/sampler.h"
#include "test.h"

static smoe_error err;

enum { N = 50, DRAWS = 40000 };

static const smoe_sampling neutral = {
    .temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repetition_penalty = 1, .seed = 7};

/* What the chain means, by sorting everything. */
static void expected_chain(const smoe_sampling *o, const float *logits, const bool *seen,
                           double *p) {
    int order[N];
    double v[N], sum = 0;
    for (int i = 0; i < N; i++) {
        double l = (double)logits[i];
        if (seen && seen[i]) {
            l = l > 0 ? l / (double)o->repetition_penalty : l * (double)o->repetition_penalty;
        }
        v[i] = l / (double)o->temperature;
        order[i] = i;
        p[i] = 0;
    }
    for (int i = 0; i < N; i++) {
        for (int j = i + 1; j < N; j++) {
            if (v[order[j]] > v[order[i]]) {
                int swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
        }
    }
    int k = o->top_k > 0 && o->top_k < N ? o->top_k : N;
    double best = v[order[0]], kept = 0;
    for (int i = 0; i < k; i++) {
        sum += exp(v[order[i]] - best);
    }
    double run = 0;
    for (int i = 0; i < k; i++) {
        double e = exp(v[order[i]] - best);
        if (run >= (double)o->top_p * sum || e < (double)o->min_p) {
            break;
        }
        run += e;
        p[order[i]] = e;
        kept += e;
    }
    for (int i = 0; i < N; i++) {
        p[i] /= kept;
    }
}

static void check_chain(const smoe_sampling *o, bool with_seen) {
    float logits[N];
    bool seen[N] = {false};
    double want[N];
    int count[N] = {0};
    sampler s;
    for (int i = 0; i < N; i++) {
        logits[i] = 2 * test_normal();
        seen[i] = with_seen && test_rand() % 3 == 0;
    }
    CHECK_OK(sampler_open(&s, o, N, &err));
    for (int i = 0; i < N; i++) {
        if (seen[i]) {
            sampler_see(&s, i);
        }
    }
    expected_chain(o, logits, seen, want);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = -1;
        CHECK_OK(sampler_choose(&s, logits, &id, &err));
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
    check_chain(&o, false);
    o.temperature = 0.5f;
    check_chain(&o, false);
    o.top_k = 5;
    check_chain(&o, false);
    o.top_p = 0.8f;
    check_chain(&o, false);
    o.min_p = 0.2f;
    check_chain(&o, false);
    o.top_k = 0;
    check_chain(&o, false);
    o.top_p = 1;
    check_chain(&o, false);
    o = neutral;
    o.repetition_penalty = 1.5f;
    check_chain(&o, true);
}

TEST(sampler_greedy_takes_the_best_and_lowest_id) {
    sampler s;
    smoe_sampling o = neutral;
    int32_t id;
    float logits[4] = {1, 3, 3, 2};
    o.temperature = 0;
    CHECK_OK(sampler_open(&s, &o, 4, &err));
    CHECK_OK(sampler_choose(&s, logits, &id, &err));
    CHECK_INT(id, 1);
    sampler_close(&s);
}

TEST(sampler_same_seed_same_choices) {
    float logits[N];
    int32_t first[100];
    for (int i = 0; i < N; i++) {
        logits[i] = test_normal();
    }
    for (int round = 0; round < 2; round++) {
        sampler s;
        CHECK_OK(sampler_open(&s, &neutral, N, &err));
        for (int i = 0; i < 100; i++) {
            int32_t id;
            CHECK_OK(sampler_choose(&s, logits, &id, &err));
            if (round) {
                CHECK_INT(id, first[i]);
            }
            first[i] = id;
        }
        sampler_close(&s);
    }
}

TEST(sampler_refuses_what_is_not_finite) {
    sampler s;
    int32_t id;
    float logits[3] = {1, NAN, 2};
    CHECK_OK(sampler_open(&s, &neutral, 3, &err));
    CHECK_ERR(sampler_choose(&s, logits, &id, &err), SMOE_ERR_NUMERIC);
    logits[1] = HUGE_VALF;
    CHECK_ERR(sampler_choose(&s, logits, &id, &err), SMOE_ERR_NUMERIC);
    logits[0] = logits[1] = logits[2] = -HUGE_VALF;
    CHECK_ERR(sampler_choose(&s, logits, &id, &err), SMOE_ERR_NUMERIC);
    logits[1] = 0;
    CHECK_OK(sampler_choose(&s, logits, &id, &err));
    CHECK_INT(id, 1);
    sampler_close(&s);
    smoe_sampling o = neutral;
    o.top_p = 0;
    CHECK_ERR(sampler_open(&s, &o, 3, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "top-p");
}
