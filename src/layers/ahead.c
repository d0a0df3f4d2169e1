/* Guessing the next layer's experts; see ahead.h. Owns no state. */
#include "layers/ahead.h"

#include <string.h>

#include "layers/router.h"

typedef struct guess_state {
    const exec *exec;
    int32_t layer;
} guess_state;

static void norm_task(void *job, int32_t tok, int32_t thread) {
    const guess_state *g = job;
    const exec *e = g->exec;
    (void)thread;
    size_t d = (size_t)e->spec->d_model;
    e->kernels->rms_norm(e->s.x + (size_t)tok * d, e->scout->layer[g->layer][ROLE_FFN_NORM].data,
                         (float)e->spec->norm_eps, (int32_t)d, e->s.out + (size_t)tok * d);
}

int32_t moe_guess(const exec *e, int32_t layer, int32_t n_tok) {
    const scratch *s = &e->s;
    const ffn_spec *ffn = &e->spec->layer[layer].ffn;
    size_t n_expert = (size_t)ffn->n_expert, k = (size_t)ffn->n_expert_used;
    guess_state g = {e, layer};
    rows x = {.f = s->out, .f_stride = (size_t)e->spec->d_model};
    pool_run(e->pool, norm_task, &g, n_tok);
    linear_job route =
        linear_of(&e->scout->layer[layer][ROLE_ROUTER], &x, s->router, n_expert, n_tok);
    linear_run(e, &route, 1);
    memset(s->is_ahead, 0, n_expert * sizeof *s->is_ahead);
    for (int32_t t = 0; t < n_tok; t++) {
        router_choose(e->kernels, &e->spec->router, s->router + (size_t)t * n_expert, ffn->n_expert,
                      (int32_t)k, (int32_t)k, s->ahead_choice, s->ahead_weight);
        for (size_t r = 0; r < k; r++) {
            s->is_ahead[s->ahead_choice[r]] = true;
        }
    }
    if (n_tok == 1) {
        memcpy(s->ahead, s->ahead_choice, k * sizeof *s->ahead);
        return (int32_t)k;
    }
    int32_t n = 0;
    for (int32_t x_id = 0; x_id < ffn->n_expert; x_id++) {
        if (s->is_ahead[x_id]) {
            s->ahead[n++] = x_id;
        }
    }
    return n;
}
