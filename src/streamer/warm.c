/* Between demands: what earlier runs learned comes in and goes out, and idle time fills the ring.
 * Works on the streamer's state; owns none. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "streamer/heat.h"
#include "streamer/streamer_state.h"

int streamer_warm(streamer *s, uint64_t model_id, const char *text, size_t bytes, const char *label,
                  smoe_error *err) {
    size_t n = (size_t)s->source->n_moe_layer * (size_t)s->source->n_expert_row;
    int32_t *order = mem_array(n, sizeof *order);
    if (!order) {
        return err_no_memory(err, n * sizeof *order);
    }
    int rc = heat_read(&s->policy, model_id, text, bytes, label, err);
    if (rc != SMOE_OK) {
        free(order);
        return rc;
    }
    free(s->warm);
    s->warm = order;
    s->warm_at = 0;
    s->n_warm = s->n_learned = heat_order(&s->policy, order);
    return SMOE_OK;
}

int streamer_warm_rest(streamer *s, smoe_error *err) {
    int32_t n_record = s->source->n_moe_layer * s->source->n_expert_row;
    int32_t *order = mem_array((size_t)n_record, sizeof *order);
    bool *is_listed = mem_array((size_t)n_record, sizeof *is_listed);
    if (!order || !is_listed) {
        free(order);
        free(is_listed);
        return err_no_memory(err, (uint64_t)n_record * sizeof *order);
    }
    int32_t n = s->n_warm - s->warm_at;
    for (int32_t i = 0; i < n; i++) {
        order[i] = s->warm[s->warm_at + i];
        is_listed[order[i]] = true;
    }
    for (int32_t r = 0; r < n_record; r++) {
        if (!is_listed[r] && s->source->expert[r].n_ext > 0) {
            order[n++] = r;
        }
    }
    free(is_listed);
    free(s->warm);
    s->warm = order;
    s->n_learned = s->n_learned > s->warm_at ? s->n_learned - s->warm_at : 0;
    s->warm_at = 0;
    s->n_warm = n;
    return SMOE_OK;
}

int streamer_heat(const streamer *s, uint64_t model_id, char **text, size_t *bytes,
                  smoe_error *err) {
    *text = NULL;
    if (s->policy.n_tok[0] < HEAT_LEAST_TOK) {
        return SMOE_OK;
    }
    return heat_write(&s->policy, model_id, text, bytes, err);
}

bool streamer_idle(streamer *s, uint64_t budget_ns) {
    uint64_t end_ns = now_ns() + budget_ns;
    s->is_idle = true;
    streamer_poll(s);
    while (s->queue.n_flight > 0 && now_ns() < end_ns) {
        if (queue_reap(&s->queue, true) == 0) {
            break;
        }
        streamer_poll(s);
    }
    s->is_idle = false;
    return s->queue.n_flight > 0 || s->warm_at < s->n_warm;
}
