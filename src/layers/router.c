/* Router kinds; see router.h. Pure arithmetic, no state. */
#include "layers/router.h"

#include <math.h>

static float max_of(const float *x, int32_t n) {
    float max = x[0];
    for (int32_t i = 1; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    return max;
}

static void softmax(const kernels *k, float *x, int32_t n) {
    float scale = 1.0f / k->exp_sum(x, max_of(x, n), n);
    for (int32_t i = 0; i < n; i++) {
        x[i] *= scale;
    }
}

/* Insertion into a short list sorted by falling score: n_rank is at most a few dozen. Scanning
 * experts in ascending order and moving only past strictly smaller ones keeps ties at the lower
 * id. */
static void best_ranks(const float *score, int32_t n_expert, int32_t n_rank, int32_t *choice) {
    int32_t n = 0;
    for (int32_t e = 0; e < n_expert; e++) {
        float s = isnan(score[e]) ? -HUGE_VALF : score[e];
        int32_t at = n;
        while (at > 0) {
            float other = score[choice[at - 1]];
            other = isnan(other) ? -HUGE_VALF : other;
            if (other >= s) {
                break;
            }
            at--;
        }
        if (at >= n_rank) {
            continue;
        }
        int32_t last = n < n_rank ? n : n_rank - 1;
        for (int32_t i = last; i > at; i--) {
            choice[i] = choice[i - 1];
        }
        choice[at] = e;
        n = last + 1;
    }
}

void router_choose(const kernels *k, const router_spec *r, float *logits, int32_t n_expert,
                   int32_t n_used, int32_t n_rank, int32_t *choice, float *weight) {
    if (r->score == ROUTER_SOFTMAX) {
        softmax(k, logits, n_expert);
    }
    best_ranks(logits, n_expert, n_rank, choice);
    for (int32_t i = 0; i < n_used; i++) {
        weight[i] = logits[choice[i]];
    }
    if (r->score == ROUTER_SOFTMAX_SELECTED) {
        softmax(k, weight, n_used);
    }
    float sum = 0;
    for (int32_t i = 0; i < n_used; i++) {
        sum += weight[i];
    }
    float scale = (float)r->scale;
    for (int32_t i = 0; i < n_used; i++) {
        weight[i] = r->normalise ? weight[i] / sum * scale : weight[i] * scale;
    }
}
