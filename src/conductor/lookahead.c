/* Lookahead; see lookahead.h. */
#include "conductor/lookahead.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "conductor/model.h"

/* Tokens between two looks at the counters, and how long it stays off before it tries again. */
#define WINDOW_TOK 8
#define REST_TOK   64
/* Fewer bets than this in a window say nothing. */
#define LEAST_READS 16
/* A bet that is not used has cost the drive a read and the ring a place. With an idle drive that is
 * nearly free; the busier the drive, the more of them have to be used. */
#define LEAST_USEFUL      0.35
#define LEAST_USEFUL_BUSY 0.60
#define BUSY_SHARE        0.95

/* Of a layer behind the next only what is nearly certain is read: there is time to read the rest
 * when it is the next one, with a better guess. A share is of the last some hundred guesses. */
#define FAR_SURE   0.75f
#define SURE_GUESS 64

static void forget_guesses(lookahead *a) {
    for (int32_t i = 0; i < AHEAD_LAYERS; i++) {
        a->made_at[i] = -1;
    }
}

uint64_t lookahead_bytes(const spec *s, smoe_switch mode) {
    return mode == SMOE_OFF ? 0 : ahead_gates_bytes(s);
}

int lookahead_open(lookahead *a, smoe_switch mode, const spec *s, const scout *sc, const kernels *k,
                   pool *p, smoe_error *err) {
    *a = (lookahead){.mode = mode, .is_on = mode != SMOE_OFF, .n_used = 1};
    if (mode == SMOE_OFF) {
        return SMOE_OK;
    }
    for (int32_t l = 0; l < s->n_layer; l++) {
        int32_t n_used = s->layer[l].ffn.kind == FFN_MOE ? s->layer[l].ffn.n_expert_used : 0;
        a->n_used = n_used > a->n_used ? n_used : a->n_used;
    }
    size_t n_rank = AHEAD_LAYERS * (size_t)a->n_used;
    a->rank = mem_array(AHEAD_LAYERS * n_rank, sizeof *a->rank);
    a->sure = mem_array(n_rank, sizeof *a->sure);
    if (!a->rank || !a->sure) {
        return err_no_memory(err, AHEAD_LAYERS * n_rank * sizeof *a->rank);
    }
    forget_guesses(a);
    return ahead_open(&a->gates, s, sc, k, p, err);
}

void lookahead_close(lookahead *a) {
    ahead_close(&a->gates);
    free(a->rank);
    free(a->sure);
    *a = (lookahead){0};
}

/* What was guessed at MoE layer `from` of the one `far` behind it. */
static int32_t *guess_at(const lookahead *a, int32_t from, int32_t far) {
    return a->rank + (size_t)(from % AHEAD_LAYERS * AHEAD_LAYERS + far - 1) * (size_t)a->n_used;
}

static float *sure_at(const lookahead *a, int32_t far) {
    return a->sure + (size_t)(far - 1) * (size_t)a->n_used;
}

static void judge(lookahead *a, const scratch *s, const int32_t *guess, int32_t n, int32_t far) {
    float *sure = sure_at(a, far);
    for (int32_t r = 0; r < n; r++) {
        bool is_right = s->first_slot[guess[r]] < s->first_slot[guess[r] + 1];
        if (far == 1) {
            a->guessed++;
            a->right += is_right;
        } else if (sure[r] >= FAR_SURE) {
            a->far++;
            a->far_right += is_right;
        }
        sure[r] += ((float)is_right - sure[r]) / SURE_GUESS;
    }
}

void lookahead_judge(smoe_model *m, int32_t layer, int32_t n_needed) {
    lookahead *a = &m->ahead;
    const ffn_spec *ffn = &m->exec.spec->layer[layer].ffn;
    for (int32_t far = 1; far <= AHEAD_LAYERS && far <= ffn->moe_index; far++) {
        int32_t from = ffn->moe_index - far;
        if (a->made_at[from % AHEAD_LAYERS] == from) {
            judge(a, &m->exec.s, guess_at(a, from, far), ffn->n_expert_used, far);
            a->named += far == 1 ? (uint64_t)n_needed : 0;
        }
    }
}

/* Bets on one layer: of a far one, only what is sure. */
static void bet_on(smoe_model *m, int32_t moe_index, int32_t far, const int32_t *guess, int32_t n) {
    const float *sure = sure_at(&m->ahead, far);
    int32_t *bet = m->exec.s.ahead_choice, n_bet = 0;
    for (int32_t r = 0; r < n; r++) {
        if (far == 1 || sure[r] >= FAR_SURE) {
            bet[n_bet++] = guess[r];
        }
    }
    streamer_bet(m->streamer, moe_index, bet, n_bet);
}

void lookahead_begin(smoe_model *m, int32_t layer, int32_t n_tok) {
    lookahead *a = &m->ahead;
    const spec *s = m->exec.spec;
    int32_t moe_index = s->layer[layer].ffn.moe_index, far[AHEAD_LAYERS], n = 0;
    if (moe_index == 0 || n_tok > 1) {
        forget_guesses(a); /* of another token */
    }
    a->jobs.n = 0;
    if (n_tok > 1 || !a->is_on || streamer_has_all(m->streamer)) {
        return;
    }
    while (n < AHEAD_LAYERS && moe_index + n + 1 < m->source->n_moe_layer) {
        far[n] = spec_moe_layer(s, moe_index + n + 1);
        n++;
    }
    moe_guess_begin(&m->exec, &a->gates, far, n, &a->jobs);
}

static void guess_for_token(smoe_model *m, int32_t moe_index) {
    lookahead *a = &m->ahead;
    const ahead_jobs *jobs = &a->jobs;
    moe_guess_end(&m->exec, jobs, guess_at(a, moe_index, 1), a->n_used);
    a->made_at[moe_index % AHEAD_LAYERS] = moe_index;
    for (int32_t i = 0; i < jobs->n; i++) {
        bet_on(m, moe_index + i + 1, i + 1, guess_at(a, moe_index, i + 1),
               m->exec.spec->layer[jobs->layer[i]].ffn.n_expert_used);
    }
}

void lookahead_guess(smoe_model *m, int32_t layer, int32_t n_tok) {
    lookahead *a = &m->ahead;
    const spec *s = m->exec.spec;
    int32_t moe_index = s->layer[layer].ffn.moe_index, next = moe_index + 1;
    if (a->jobs.n > 0) {
        guess_for_token(m, moe_index);
    } else if (n_tok > 1 && a->mode != SMOE_OFF && next < m->source->n_moe_layer &&
               !streamer_has_all(m->streamer)) {
        int32_t n = moe_guess_union(&m->exec, &a->gates, spec_moe_layer(s, next), n_tok);
        streamer_sweep(m->streamer, next, m->exec.s.ahead, n);
    }
}

static struct lookahead_window counters(const smoe_model *m) {
    streamer_stats s;
    streamer_get_stats(m->streamer, &s);
    return (struct lookahead_window){s.spec_reads, s.spec_used, s.drive_busy_ns, now_ns()};
}

static void open_window(smoe_model *m) {
    m->ahead.n_tok = 0;
    m->ahead.at = counters(m);
}

void lookahead_adjust(smoe_model *m) {
    lookahead *a = &m->ahead;
    if (a->mode != SMOE_AUTO || streamer_has_all(m->streamer)) {
        return;
    }
    if (!a->is_on) {
        if (--a->rest_tok <= 0) {
            a->is_on = true;
            a->n_switch++;
            open_window(m);
        }
        return;
    }
    if (++a->n_tok < WINDOW_TOK) {
        return;
    }
    struct lookahead_window now = counters(m);
    uint64_t reads = now.reads - a->at.reads;
    if (now.reads >= a->at.reads && reads >= LEAST_READS) {
        double useful = (double)(now.used - a->at.used) / (double)reads;
        double busy = (double)(now.busy_ns - a->at.busy_ns) / (double)(now.time_ns - a->at.time_ns);
        if (useful < (busy > BUSY_SHARE ? LEAST_USEFUL_BUSY : LEAST_USEFUL)) {
            a->is_on = false;
            a->n_switch++;
            a->rest_tok = REST_TOK;
        }
    }
    open_window(m);
}
