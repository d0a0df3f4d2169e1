/* The cache policy; see policy.h. Owns the statistics of records, and no memory for experts. */
#include "streamer/policy.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

/* A layer's token halves the weight of those this many before it. */
static const float half_life_tok[POLICY_SHARES] = {4, 32, 512};
/* What the longest share starts from: as if it had seen this many tokens of no preference. */
#define PRIOR_TOK 8

/* AdaGrad (Duchi, Hazan, Singer 2011) with a decaying sum, so that it keeps learning. */
#define LEARNING_RATE 0.1f
#define SLOPE_DECAY   0.9995f

/* Feature 0 is 1; the others are zero for a record of which nothing is known. */
enum { F_ONE, F_MARGIN, F_SHARE, F_USED = F_SHARE + POLICY_SHARES, F_RECENT, F_SCORE };

static const float first_weight[POLICY_FEATURES] = {0, 0.3f, 0, 0.4f, 0.4f, 0.3f, 0.1f, 0};

void routing_margins(const float *score, int32_t n_expert, bool is_log, uint8_t *margin) {
    float best = -HUGE_VALF;
    for (int32_t e = 0; e < n_expert; e++) {
        best = score[e] > best ? score[e] : best; /* false for NaN */
    }
    for (int32_t e = 0; e < n_expert; e++) {
        float below = is_log ? best - score[e] : logf(best / score[e]);
        below *= ROUTING_MARGIN_STEPS;
        /* NaN, and infinite differences, end at the maximum */
        margin[e] = below < ROUTING_MARGIN_MAX ? (uint8_t)(below > 0 ? below + 0.5f : 0)
                                               : ROUTING_MARGIN_MAX;
    }
}

/* ---- a turn */

static policy_record *records_of(const policy *p, int32_t moe_index) {
    return p->record + (size_t)moe_index * (size_t)p->n_row;
}

static float sigmoid(float z) {
    return 1 / (1 + expf(-z));
}

static float predict(const policy *p, const policy_record *rec) {
    float z = 0;
    for (int32_t f = 0; f < POLICY_FEATURES; f++) {
        z += p->weight[f] * rec->feature[f];
    }
    return z;
}

/* One step on the layer's last features, now that it is known which were used. */
static void learn(policy *p, int32_t moe_index) {
    const policy_record *rec = records_of(p, moe_index);
    float slope[POLICY_FEATURES] = {0};
    for (int32_t e = 0; e < p->layer[moe_index].n_expert; e++) {
        float miss = (p->n_use[e] > 0 ? 1.0f : 0.0f) - sigmoid(predict(p, &rec[e]));
        for (int32_t f = 0; f < POLICY_FEATURES; f++) {
            slope[f] += miss * rec[e].feature[f];
        }
    }
    for (int32_t f = 0; f < POLICY_FEATURES; f++) {
        p->slope2[f] = p->slope2[f] * SLOPE_DECAY + slope[f] * slope[f];
        p->weight[f] += LEARNING_RATE * slope[f] / sqrtf(p->slope2[f] + 1e-3f);
    }
}

/* Counts uses in n_use and notes when each record was used last. */
static void count(policy *p, const routing *r) {
    policy_record *rec = records_of(p, r->moe_index);
    memset(p->n_use, 0, (size_t)p->n_row * sizeof *p->n_use);
    for (int32_t t = 0; t < r->n_tok; t++) {
        for (int32_t i = 0; i < r->n_used; i++) {
            int32_t e = r->choice[(size_t)t * (size_t)r->stride + (size_t)i];
            p->n_use[e] = (uint16_t)(p->n_use[e] + (p->n_use[e] < UINT16_MAX));
            rec[e].n_use += rec[e].n_use < UINT32_MAX;
            rec[e].last_tok = p->n_tok[r->moe_index] + (uint32_t)t + 1;
        }
    }
}

static void update_shares(policy *p, const routing *r) {
    policy_record *rec = records_of(p, r->moe_index);
    float n = (float)r->n_tok;
    for (int32_t i = 0; i < POLICY_SHARES; i++) {
        float rate = 1 - exp2f(-n / half_life_tok[i]);
        float first = n / ((float)p->n_tok[r->moe_index] + (float)p->past_tok + n + PRIOR_TOK);
        rate = i == POLICY_SHARES - 1 && first > rate ? first : rate;
        for (int32_t e = 0; e < p->layer[r->moe_index].n_expert; e++) {
            rec[e].share[i] += rate * ((float)p->n_use[e] / n - rec[e].share[i]);
        }
    }
}

/* The scores' features: the margin to the last rank chosen, and the softmax of the scores. */
static void score_features(policy *p, const routing *r) {
    policy_record *rec = records_of(p, r->moe_index);
    int32_t n_expert = p->layer[r->moe_index].n_expert;
    const int32_t *last = r->choice + (size_t)(r->n_tok - 1) * (size_t)r->stride;
    int32_t limit = 0;
    float sum = 0;
    for (int32_t i = 0; i < r->n_used; i++) {
        limit = r->margin[last[i]] > limit ? r->margin[last[i]] : limit;
    }
    for (int32_t e = 0; e < n_expert; e++) {
        float score = expf(-(float)r->margin[e] / ROUTING_MARGIN_STEPS);
        float over = expf((float)(limit - r->margin[e]) / ROUTING_MARGIN_STEPS);
        rec[e].feature[F_MARGIN] = logf(over + 1e-3f) / 2;
        rec[e].feature[F_SCORE] = score;
        sum += score;
    }
    for (int32_t e = 0; e < n_expert; e++) {
        rec[e].feature[F_SCORE] *= (float)r->n_used / 2 / sum;
    }
}

static void set_features(policy *p, const routing *r) {
    const policy_layer *layer = &p->layer[r->moe_index];
    policy_record *rec = records_of(p, r->moe_index);
    uint32_t n_tok = p->n_tok[r->moe_index];
    float base = (float)layer->n_used / (float)layer->n_expert;
    for (int32_t e = 0; e < layer->n_expert; e++) {
        float *x = rec[e].feature;
        uint32_t age = n_tok - rec[e].last_tok;
        x[F_ONE] = 1;
        x[F_MARGIN] = x[F_SCORE] = 0;
        for (int32_t i = 0; i < POLICY_SHARES; i++) {
            x[F_SHARE + i] = logf((rec[e].share[i] / base + 0.08f) / 1.08f);
        }
        x[F_USED] = rec[e].last_tok && age == 0;
        x[F_RECENT] = rec[e].last_tok ? 1 / (1 + (float)age) : 0;
    }
    if (r->margin) {
        score_features(p, r);
    }
}

static void set_values(policy *p, int32_t moe_index) {
    policy_record *rec = records_of(p, moe_index);
    double next_turn = (double)(p->n_turn + (uint64_t)p->n_layer);
    for (int32_t e = 0; e < p->layer[moe_index].n_expert; e++) {
        double z = (double)predict(p, &rec[e]);
        /* log2 sigmoid(z), without overflow */
        double log2_p = -(z > 0 ? log1p(exp(-z)) : log1p(exp(z)) - z) * M_LOG2E;
        rec[e].value = log2_p - next_turn / p->n_layer;
    }
}

void policy_turn(policy *p, const routing *r) {
    policy_record *rec = records_of(p, r->moe_index);
    p->n_turn++;
    count(p, r);
    if (p->kind == POLICY_RECENCY) {
        p->n_tok[r->moe_index] += (uint32_t)r->n_tok;
        for (int32_t e = 0; e < p->layer[r->moe_index].n_expert; e++) {
            rec[e].value = p->n_use[e] > 0 ? (double)p->n_turn : rec[e].value;
        }
        return;
    }
    /* only single tokens are lessons: of a chunk's experts nearly all are used */
    if (p->n_tok[r->moe_index] > 0 && r->n_tok == 1) {
        learn(p, r->moe_index);
    }
    update_shares(p, r);
    p->n_tok[r->moe_index] += (uint32_t)r->n_tok;
    set_features(p, r);
    set_values(p, r->moe_index);
}

/* Three of four bets are used, and those would have pushed out the same a layer later; so what a
 * bet risks is a quarter of the victim's chance, and what it wins is that the drive reads while the
 * cores compute. Measured from 0.03 to 0.6 (docs/streaming.md): too low leaves the drive idle when
 * the whole ring is worth keeping, too high costs reads. */
#define BET_CHANCE 0.2

double policy_bet_value(const policy *p, int32_t moe_index) {
    (void)moe_index;
    return p->kind == POLICY_RECENCY ? (double)p->n_turn : -(double)p->n_turn / p->n_layer;
}

double policy_bet_limit(const policy *p) {
    if (p->kind == POLICY_RECENCY) {
        return (double)p->n_turn - p->n_layer;
    }
    /* The chance, in the turn that comes last of the next n_layer. */
    return log2(BET_CHANCE) - (double)p->n_turn / p->n_layer - 1;
}

/* ---- open and close */

int policy_open(policy *p, policy_kind kind, const policy_layer *layer, int32_t n_layer,
                int32_t n_row, smoe_error *err) {
    *p = (policy){.kind = kind, .n_layer = n_layer, .n_row = n_row};
    p->layer = mem_array((size_t)n_layer, sizeof *p->layer);
    p->record = mem_array((size_t)n_layer * (size_t)n_row, sizeof *p->record);
    p->n_tok = mem_array((size_t)n_layer, sizeof *p->n_tok);
    p->n_use = mem_array((size_t)n_row, sizeof *p->n_use);
    if (!p->layer || !p->record || !p->n_tok || !p->n_use) {
        uint64_t bytes = policy_held_bytes(p);
        policy_close(p);
        return err_no_memory(err, bytes);
    }
    memcpy(p->layer, layer, (size_t)n_layer * sizeof *layer);
    memcpy(p->weight, first_weight, sizeof first_weight);
    for (int32_t m = 0; m < n_layer; m++) {
        float base = (float)layer[m].n_used / (float)layer[m].n_expert;
        p->weight[F_ONE] += logf(base) / (float)n_layer;
        for (int32_t e = 0; e < layer[m].n_expert; e++) {
            for (int32_t i = 0; i < POLICY_SHARES; i++) {
                records_of(p, m)[e].share[i] = base;
            }
            records_of(p, m)[e].feature[F_ONE] = 1;
        }
    }
    for (int32_t m = 0; m < n_layer && kind == POLICY_ADAPTIVE; m++) {
        set_values(p, m);
    }
    return SMOE_OK;
}

void policy_begin(policy *p, const float *weight) {
    memcpy(p->weight, weight, sizeof p->weight);
    for (int32_t m = 0; m < p->n_layer && p->kind == POLICY_ADAPTIVE; m++) {
        policy_record *rec = records_of(p, m);
        for (int32_t e = 0; e < p->layer[m].n_expert; e++) {
            for (int32_t i = 0; i < POLICY_SHARES; i++) {
                rec[e].share[i] = rec[e].past;
            }
        }
        set_features(p, &(routing){.moe_index = m});
        set_values(p, m);
    }
}

void policy_close(policy *p) {
    free(p->layer);
    free(p->record);
    free(p->n_tok);
    free(p->n_use);
    *p = (policy){0};
}

uint64_t policy_held_bytes(const policy *p) {
    uint64_t n_layer = (uint64_t)p->n_layer, n_row = (uint64_t)p->n_row;
    return n_layer * n_row * sizeof *p->record + n_row * sizeof *p->n_use +
           n_layer * (sizeof *p->layer + sizeof *p->n_tok);
}
