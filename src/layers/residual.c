/* Norm into a block and addition out of it; see residual.h. */
#include "layers/residual.h"

typedef struct residual_state {
    const exec *exec;
    const weight *norm;
} residual_state;

static void norm_task(void *job, int32_t tok, int32_t thread) {
    const residual_state *r = job;
    const exec *e = r->exec;
    (void)thread;
    int32_t d = e->spec->d_model;
    e->kernels->rms_norm(e->s.x + (size_t)tok * (size_t)d, r->norm->data, (float)e->spec->norm_eps,
                         d, e->s.norm.f + (size_t)tok * e->s.norm.f_stride);
}

void residual_norm(const exec *e, const weight *norm, int32_t n_tok) {
    residual_state r = {e, norm};
    pool_run(e->pool, norm_task, &r, n_tok);
}

static void add_task(void *job, int32_t tok, int32_t thread) {
    const residual_state *r = job;
    const exec *e = r->exec;
    (void)thread;
    size_t d = (size_t)e->spec->d_model;
    e->kernels->add_scaled(e->s.x + (size_t)tok * d, (float)e->spec->residual_scale,
                           e->s.out + (size_t)tok * d, (int32_t)d);
}

void residual_add(const exec *e, int32_t n_tok) {
    residual_state r = {e, NULL};
    pool_run(e->pool, add_task, &r, n_tok);
}
