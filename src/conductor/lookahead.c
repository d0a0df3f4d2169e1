/* Lookahead; see lookahead.h. */
#include "conductor/lookahead.h"

#include "base/clock.h"
#include "conductor/model.h"
#include "layers/ahead.h"

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

void lookahead_init(lookahead *a, smoe_switch mode) {
    *a = (lookahead){.mode = mode, .is_on = mode != SMOE_OFF, .layer = -1};
}

void lookahead_judge(smoe_model *m, int32_t layer, int32_t n_needed) {
    lookahead *a = &m->ahead;
    const scratch *s = &m->exec.s;
    if (a->layer == layer && a->is_decode) {
        a->guessed += (uint64_t)a->n_guess;
        a->named += (uint64_t)n_needed;
        for (int32_t i = 0; i < n_needed; i++) {
            a->right += s->is_ahead[s->needed[i]];
        }
    }
    a->layer = -1;
}

static int32_t next_moe(const spec *s, int32_t layer) {
    do {
        layer++;
    } while (layer < s->n_layer && s->layer[layer].ffn.kind != FFN_MOE);
    return layer < s->n_layer ? layer : -1;
}

void lookahead_guess(smoe_model *m, int32_t layer, int32_t n_tok) {
    lookahead *a = &m->ahead;
    const exec *e = &m->exec;
    int32_t next = next_moe(e->spec, layer);
    bool is_decode = n_tok == 1;
    if (next < 0 || streamer_has_all(m->streamer) ||
        (is_decode ? !a->is_on : a->mode == SMOE_OFF)) {
        return;
    }
    int32_t moe_index = e->spec->layer[next].ffn.moe_index;
    a->n_guess = moe_guess(e, next, n_tok);
    a->layer = next;
    a->is_decode = is_decode;
    if (is_decode) {
        streamer_bet(m->streamer, moe_index, e->s.ahead, a->n_guess);
    } else {
        streamer_sweep(m->streamer, moe_index, e->s.ahead, a->n_guess);
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
