/* Progress of long work, a few times a second. Header-only. */
#ifndef SMOE_SCULPTOR_TICKER_H
#define SMOE_SCULPTOR_TICKER_H

#include "base/clock.h"
#include "base/error.h"

#define TICKER_INTERVAL_NS 200000000u

typedef struct ticker {
    smoe_progress_fn fn; /* NULL: silent */
    void *user;
    uint64_t interval_ns;
    smoe_progress state;
    uint64_t start_ns;
    uint64_t last_ns;
} ticker;

/* SMOE_ERR_CANCELLED when the callback asks to stop. */
static inline int ticker_report(ticker *t, smoe_error *err) {
    t->last_ns = now_ns();
    t->state.elapsed_ns = t->last_ns - t->start_ns;
    if (t->fn && t->fn(t->user, &t->state)) {
        return err_set(err, SMOE_ERR_CANCELLED, "%s: cancelled", t->state.phase);
    }
    return SMOE_OK;
}

/* done_bytes: finished by an earlier run. */
static inline int ticker_start(ticker *t, const char *phase, uint64_t done_bytes,
                               uint64_t total_bytes, smoe_error *err) {
    t->state =
        (smoe_progress){.phase = phase, .done_bytes = done_bytes, .total_bytes = total_bytes};
    t->start_ns = now_ns();
    return ticker_report(t, err);
}

static inline int ticker_add(ticker *t, uint64_t bytes, smoe_error *err) {
    t->state.done_bytes += bytes;
    t->state.fresh_bytes += bytes;
    bool last = t->state.done_bytes == t->state.total_bytes;
    return last || now_ns() - t->last_ns >= t->interval_ns ? ticker_report(t, err) : SMOE_OK;
}

#endif
