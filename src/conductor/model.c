/* Opening a model: describe, plan, print the plan, and only then take memory.
 *
 * The order is the contract: nothing large is allocated before the plan is made and logged, and an
 * error at any step gives everything back.
 */
#include "conductor/model.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/topology.h"
#include "layers/rope.h"
#include "layers/scratch.h"
#include "text/tokenizer.h"

void smoe_free(void *p) {
    free(p);
}

int model_open_headers(smoe_model *m, const char *path, smoe_model_options *o, smoe_error *err) {
    int rc = source_open(&m->source, path, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if ((rc = spec_check_runnable(&m->source->spec, err)) != SMOE_OK ||
        (rc = plan_defaults(o, &m->source->spec, err)) != SMOE_OK ||
        (rc = sampling_from_text(&m->sampling, &m->source->text, err)) != SMOE_OK) {
        return rc;
    }
    if (text_assets_has_tokenizer(&m->source->text)) {
        rc = tokenizer_build(&m->tokenizer, &m->source->text, err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    text_assets_free(&m->source->text);
    info_from_source(&m->info, m->source);
    return kernels_select(&m->exec.kernels, o->isa, err);
}

/* The divisors of a model's frequencies; NULL when it has none. */
static int find_divisors(const smoe_model *m, const float **out, smoe_error *err) {
    const weight *w = &m->scout.global[ROLE_ROPE_DIVISORS];
    *out = w->data;
    for (int32_t i = 0; w->data && i < w->n_col; i++) {
        if (!isfinite((*out)[i]) || (*out)[i] <= 0) {
            return err_set(err, SMOE_ERR_FORMAT, "%s: tensor %s holds %g, which divides nothing",
                           m->source->path, m->source->global[ROLE_ROPE_DIVISORS].name,
                           (double)(*out)[i]);
        }
    }
    return SMOE_OK;
}

static int take_scratch(smoe_model *m, const smoe_model_options *o, smoe_error *err) {
    const spec *s = &m->source->spec;
    scratch_config c = {.spec = s,
                        .max_tok = m->plan.chunk_tok,
                        .n_thread = m->plan.n_thread,
                        .spec_ranks = o->spec_ranks,
                        .reference = o->precision == SMOE_PRECISION_REFERENCE};
    const float *divisors = NULL;
    int rc = find_divisors(m, &divisors, err);
    rc = rc ? rc : scratch_map(&m->exec.s, &c, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t n_freq = 0;
    for (int32_t r = 0; r < s->n_rope; r++) {
        n_freq += (size_t)s->rope[r].dim / 2;
    }
    m->inv_freq = mem_array(n_freq, sizeof *m->inv_freq);
    if (!m->inv_freq) {
        return err_no_memory(err, n_freq * sizeof *m->inv_freq);
    }
    float *at = m->inv_freq;
    for (int32_t r = 0; r < s->n_rope; r++) {
        m->exec.inv_freq[r] = at;
        rope_frequencies(&s->rope[r], s->rope[r].has_divisors ? divisors : NULL, at);
        at += s->rope[r].dim / 2;
    }
    return SMOE_OK;
}

static const io_ops *ops_for(smoe_io_choice choice) {
    return choice == SMOE_IO_URING     ? &io_uring_ops
           : choice == SMOE_IO_THREADS ? &io_thread_ops
                                       : NULL;
}

static bool holds_every_expert(const smoe_model *m) {
    return m->plan.ring_bytes >= streamer_ring_full(m->source);
}

/* With fewer threads than cores the system may move them to whichever core is idle, which is better
 * than to wait for the one they are bound to; with one for each core there is none to move to. When
 * the drive is read all the time there is: the caller, which nobody binds, wakes up where the
 * drive's interrupt arrives, and a worker bound to that CPU would wait beside an idle one. */
static int start_threads(smoe_model *m, smoe_switch pin, smoe_error *err) {
    int32_t n_thread = m->plan.n_thread;
    int rc = pool_open(&m->pool, n_thread, err);
    if (rc != SMOE_OK || pin == SMOE_OFF ||
        (pin == SMOE_AUTO && (n_thread != topology_get()->n_core || !holds_every_expert(m)))) {
        return rc;
    }
    if (!pool_pin(m->pool)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "pin: %d threads need as many CPUs; there are %d",
                       n_thread, topology_get()->n_cpu);
    }
    return SMOE_OK;
}

/* Takes what the plan lists. */
static int take_memory(smoe_model *m, const smoe_model_options *o, const io_ops *ops,
                       smoe_error *err) {
    int rc = scout_load(&m->scout, m->source, err);
    if (rc != SMOE_OK || (rc = start_threads(m, o->pin, err)) != SMOE_OK ||
        (rc = take_scratch(m, o, err)) != SMOE_OK ||
        (rc = lookahead_open(&m->ahead, o->lookahead, &m->source->spec, &m->scout, m->exec.kernels,
                             m->pool, err)) != SMOE_OK) {
        return rc;
    }
    /* With room for every expert each is read once, however; a back end of the caller's own is not
     * to be judged by the drive. */
    bool probes = !ops && !holds_every_expert(m);
    streamer_config c = {.source = m->source,
                         .ops = ops ? ops : ops_for(o->io),
                         .direct = o->direct,
                         .ring_bytes = m->plan.ring_bytes,
                         .may_grow = true,
                         .probe = probes ? o->probe : SMOE_PROBE_OFF,
                         .copy_dir = o->vault_on,
                         .n_copy = o->n_vault_on < IO_DRIVES ? (int32_t)o->n_vault_on : IO_DRIVES,
                         .policy =
                             o->policy == SMOE_POLICY_RECENCY ? POLICY_RECENCY : POLICY_ADAPTIVE,
                         .log = m->log};
    if (!m->scout.is_locked) {
        log_line(&m->log, SMOE_LOG_PLAN,
                 "scout not locked in memory (the limit on locked memory, ulimit -l, is lower)");
    }
    rc = streamer_open(&m->streamer, &c, err);
    if (rc == SMOE_OK && o->resident) {
        rc = streamer_preload(m->streamer, err);
        streamer_reset_stats(m->streamer);
    }
    return rc;
}

/* While the caller computes, what has landed is taken in and what waits is sent: the drive is never
 * idle for longer than a task takes. */
static void keep_reading(void *user) {
    streamer_poll(user);
}

static void set_exec(smoe_model *m, const smoe_model_options *o) {
    exec *e = &m->exec;
    e->spec = &m->source->spec;
    e->scout = &m->scout;
    e->pool = m->pool;
    e->reference = o->precision == SMOE_PRECISION_REFERENCE;
    e->kv_type = plan_kv_type(o->kv);
    e->spec_ranks = o->spec_ranks;
    pool_set_tick(m->pool, keep_reading, m->streamer, IO_TICK_NS);
}

int smoe_model_open(smoe_model **out, const char *path, const smoe_model_options *options,
                    smoe_error *err) {
    return model_open(out, path, options, NULL, err);
}

int model_open(smoe_model **out, const char *path, const smoe_model_options *options,
               const io_ops *ops, smoe_error *err) {
    smoe_model_options o = options ? *options : (smoe_model_options){0};
    machine_memory machine;
    uint64_t start_ns = now_ns();
    smoe_model *m = mem_array(1, sizeof *m);
    if (!m) {
        return err_no_memory(err, sizeof *m);
    }
    m->log = (log_sink){o.log, o.log_user};
    int rc = model_open_headers(m, path, &o, err);
    if (rc == SMOE_OK) {
        /* what parsing took is given back to the system before the rest is measured */
        malloc_trim(0);
        machine_memory_now(&machine);
        rc = plan_make(&m->plan, m->source, &o, &machine, err);
    }
    if (rc == SMOE_OK) {
        plan_log(&m->plan, m->source, &m->log);
        rc = take_memory(m, &o, ops, err);
    }
    if (rc != SMOE_OK) {
        smoe_model_close(m);
        return rc;
    }
    if (streamer_is_direct(m->streamer)) {
        file_set_forget_heads(&m->source->files);
        machine_forget_program();
    }
    set_exec(m, &o);
    pressure_open(&m->pressure);
    m->learns = o.learn;
    if (m->learns) {
        learn_load(m);
    }
    /* What fits is read in idle time, whether earlier runs used it or not. */
    if (holds_every_expert(m) && !o.resident) {
        rc = streamer_warm_rest(m->streamer, err);
    }
    if (rc != SMOE_OK) {
        smoe_model_close(m);
        return rc;
    }
    m->open_ns = now_ns() - start_ns;
    *out = m;
    return SMOE_OK;
}

void smoe_model_close(smoe_model *m) {
    if (!m) {
        return;
    }
    if (m->learns) {
        learn_save(m);
    }
    pressure_close(&m->pressure);
    (void)trace_writer_close(m->trace, NULL);
    streamer_close(m->streamer);
    lookahead_close(&m->ahead);
    scratch_unmap(&m->exec.s);
    pool_close(m->pool);
    scout_free(&m->scout);
    free(m->inv_freq);
    smoe_tokenizer_close(m->tokenizer);
    source_close(m->source);
    free(m);
}

const smoe_plan *smoe_model_plan(const smoe_model *m) {
    return &m->plan;
}

const smoe_info *smoe_model_info(const smoe_model *m) {
    return &m->info;
}

const smoe_tokenizer *smoe_model_tokenizer(const smoe_model *m) {
    return m->tokenizer;
}

const int32_t *smoe_model_end_ids(const smoe_model *m, size_t *n_id) {
    *n_id = (size_t)m->source->spec.n_end_id;
    return m->source->spec.end_id;
}

smoe_sampling smoe_model_sampling(const smoe_model *m) {
    return m->sampling;
}

void smoe_model_stats(const smoe_model *m, smoe_stats *out) {
    streamer_stats s;
    streamer_get_stats(m->streamer, &s);
    *out = (smoe_stats){.prefill_tok = m->prefill_tok,
                        .decode_tok = m->decode_tok,
                        .prefill_ns = m->prefill_ns,
                        .decode_ns = m->decode_ns,
                        .open_ns = m->open_ns,
                        .drive_bytes = s.drive_bytes,
                        .decode_drive_bytes = m->decode_drive_bytes,
                        .n_read = s.n_read,
                        .uses = s.uses,
                        .hits = s.hits,
                        .inflight_hits = s.inflight_hits,
                        .misses = s.misses,
                        .spec_reads = s.spec_reads,
                        .spec_used = s.spec_used,
                        .sweep_reads = s.sweep_reads,
                        .sweep_used = s.sweep_used,
                        .guessed = m->ahead.guessed,
                        .guessed_right = m->ahead.right,
                        .guess_named = m->ahead.named,
                        .guessed_far = m->ahead.far,
                        .guessed_far_right = m->ahead.far_right,
                        .lookahead_on = m->ahead.is_on && !streamer_has_all(m->streamer),
                        .lookahead_switches = m->ahead.n_switch,
                        .warm_reads = s.warm_reads,
                        .warm_used = s.warm_used,
                        .evictions = s.evictions,
                        .read_retries = s.read_retries,
                        .wait_ns = s.wait_ns,
                        .wait_ahead_ns = s.wait_ahead_ns,
                        .drive_busy_ns = s.drive_busy_ns,
                        .work_ns = m->prefill_ns + m->decode_ns,
                        .peak_process_bytes = machine_peak_bytes(),
                        .ceiling_bytes = m->plan.ceiling_bytes,
                        .ring_bytes = streamer_ring_bytes(m->streamer),
                        .ring_used_bytes = streamer_used_bytes(m->streamer),
                        .ring_registered_bytes = streamer_pinned_bytes(m->streamer),
                        .n_resize = m->n_resize,
                        .probed_bytes_per_s = s.probed_bytes_per_s,
                        .probed_busy_bytes_per_s = s.probed_busy_bytes_per_s,
                        .n_drive = s.n_drive,
                        .direct = streamer_is_direct(m->streamer)};
    _Static_assert((int)SMOE_STAT_SLOTS == (int)IO_SLOTS, "histograms agree");
    _Static_assert((int)SMOE_STAT_DRIVES == (int)IO_DRIVES, "drives agree");
    memcpy(out->read_us, s.latency_us.count, sizeof out->read_us);
    memcpy(out->read_kib, s.size_kib.count, sizeof out->read_kib);
    memcpy(out->drive_bytes_of, s.bytes_of_drive, sizeof out->drive_bytes_of);
    snprintf(out->io_backend, sizeof out->io_backend, "%s", streamer_backend(m->streamer));
    snprintf(out->isa, sizeof out->isa, "%s", m->exec.kernels->name);
    snprintf(out->kv_type, sizeof out->kv_type, "%s", plan_kv_name(m->plan.kv));
}

void smoe_model_stats_reset(smoe_model *m) {
    streamer_reset_stats(m->streamer);
    m->prefill_tok = m->decode_tok = 0;
    m->prefill_ns = m->decode_ns = 0;
    m->decode_drive_bytes = 0;
    m->ahead.guessed = m->ahead.right = m->ahead.named = m->ahead.n_switch = 0;
    m->n_resize = 0;
}

void smoe_model_experts(const smoe_model *m, uint8_t *place, uint32_t *uses) {
    _Static_assert((int)SMOE_PLACE_DRIVE == (int)STREAMER_ABSENT, "places agree");
    _Static_assert((int)SMOE_PLACE_READING == (int)STREAMER_READING, "places agree");
    _Static_assert((int)SMOE_PLACE_RING == (int)STREAMER_RESIDENT, "places agree");
    int32_t n_expert = m->info.n_expert;
    for (int32_t l = 0; l < m->info.n_moe_layer; l++) {
        for (int32_t e = 0; e < n_expert; e++) {
            size_t at = (size_t)l * (size_t)n_expert + (size_t)e;
            uint32_t n_use = 0;
            /* rows are as long as the longest layer's; n_expert is the first's */
            streamer_place where = e < m->source->n_expert_row
                                       ? streamer_expert(m->streamer, l, e, &n_use)
                                       : STREAMER_ABSENT;
            if (place) {
                place[at] = (uint8_t)where;
            }
            if (uses) {
                uses[at] = n_use;
            }
        }
    }
}
