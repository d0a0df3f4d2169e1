/* The ceiling while running: what the caller asks for, and what the system's memory pressure asks
 * for. Owns the decision's execution; sizes come from plan.c and pressure.c. */
#include "conductor/model.h"

int smoe_model_set_memory(smoe_model *m, uint64_t memory_bytes, smoe_error *err) {
    smoe_plan p = m->plan;
    uint64_t floor_bytes = streamer_ring_floor(m->source);
    uint64_t full_bytes = streamer_ring_full(m->source);
    uint64_t fixed_bytes = p.ceiling_bytes - p.ring_bytes; /* what is not the ring's, slack too */
    if (p.ring_bytes >= full_bytes) {
        /* the ceiling may have had more room than the ring could use */
        fixed_bytes =
            p.process_bytes + p.scout_bytes + p.kv_bytes + p.scratch_bytes + p.reserve_bytes;
    }
    if (memory_bytes < fixed_bytes + floor_bytes) {
        return err_set(err, SMOE_ERR_MEMORY,
                       "memory: a ceiling of %llu bytes is too small; the smallest that works with "
                       "this context and chunk is %llu bytes",
                       (unsigned long long)memory_bytes,
                       (unsigned long long)(fixed_bytes + floor_bytes));
    }
    uint64_t ring_bytes = memory_bytes - fixed_bytes;
    ring_bytes = ring_bytes < full_bytes ? ring_bytes : full_bytes;
    int rc = streamer_resize(m->streamer, ring_bytes, err);
    if (rc == SMOE_OK) {
        m->plan.ceiling_bytes = memory_bytes;
        m->plan.ring_bytes = ring_bytes;
        m->n_resize++;
    }
    return rc;
}

void resize_under_pressure(smoe_model *m) {
    pressure_sample sample;
    const char *why = NULL;
    char from[24], to[24];
    if (!pressure_look(&m->pressure, &sample)) {
        return;
    }
    pressure_bounds bounds = {m->plan.ceiling_bytes, m->plan.ring_bytes,
                              streamer_ring_floor(m->source)};
    uint64_t ring_bytes = streamer_ring_bytes(m->streamer);
    uint64_t next = pressure_decide(&m->pressure, &sample, &bounds, ring_bytes, &why);
    if (next == ring_bytes || streamer_resize(m->streamer, next, NULL) != SMOE_OK) {
        return;
    }
    m->n_resize++;
    log_line(&m->log, SMOE_LOG_NOTICE, "%s: ring from %s to %s", why,
             format_bytes(from, ring_bytes), format_bytes(to, next));
}
