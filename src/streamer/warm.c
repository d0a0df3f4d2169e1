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
    s->n_warm = heat_order(&s->policy, order);
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
    streamer_poll(s);
    while (s->queue.n_flight > 0 && now_ns() < end_ns) {
        if (queue_reap(&s->queue, true) == 0) {
            return false;
        }
        streamer_poll(s);
    }
    return s->queue.n_flight > 0 || s->warm_at < s->n_warm;
}
