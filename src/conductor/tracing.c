/* The public side of routing traces: recording from an open model, replaying from a file. Owns no
 * format and no policy; see streamer/trace.h and streamer/replay.h. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "conductor/model.h"
#include "streamer/replay.h"

struct smoe_trace {
    trace t;
};

uint64_t routing_id(const smoe_model *m) {
    const spec *s = &m->source->spec;
    uint64_t id = 0;
    for (int32_t i = 0; i < m->source->n_moe_layer; i++) {
        const weight *w = &m->scout.layer[spec_moe_layer(s, i)][ROLE_ROUTER];
        id = XXH3_64bits_withSeed(w->data, (size_t)w->n_row * w->row_bytes, id);
    }
    return id;
}

int smoe_trace_start(smoe_model *m, const char *path, smoe_error *err) {
    trace_header h;
    if (m->trace) {
        return err_set(err, SMOE_ERR_ARGUMENT, "a trace is being recorded already; stop it first");
    }
    int rc = streamer_trace_header(m->streamer, &h, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    const char *name = strrchr(m->source->path, '/');
    h.model_id = routing_id(m);
    snprintf(h.name, sizeof h.name, "%s", name && name[1] ? name + 1 : m->source->path);
    rc = trace_writer_open(&m->trace, path, &h, err);
    streamer_record(m->streamer, m->trace);
    free(h.layer);
    free(h.unit);
    return rc;
}

int smoe_trace_stop(smoe_model *m, smoe_error *err) {
    trace_writer *w = m->trace;
    m->trace = NULL;
    streamer_record(m->streamer, NULL);
    return trace_writer_close(w, err);
}

int smoe_trace_open(smoe_trace **out, const char *path, smoe_error *err) {
    smoe_trace *t = mem_array(1, sizeof *t);
    if (!t) {
        return err_no_memory(err, sizeof *t);
    }
    int rc = trace_read(&t->t, path, err);
    if (rc != SMOE_OK) {
        free(t);
        return rc;
    }
    *out = t;
    return SMOE_OK;
}

void smoe_trace_close(smoe_trace *t) {
    if (t) {
        trace_free(&t->t);
        free(t);
    }
}

void smoe_trace_describe(const smoe_trace *recording, smoe_trace_info *out) {
    const trace *t = &recording->t;
    *out = (smoe_trace_info){.n_moe_layer = t->header.n_layer,
                             .n_expert = t->header.layer[0].n_expert,
                             .n_expert_used = t->header.layer[0].n_used,
                             .n_tok = t->n_tok,
                             .n_decode_tok = t->n_decode_tok,
                             .token_cycle_bytes = replay_cycle_bytes(t),
                             .experts_bytes = replay_full_bytes(t),
                             .cut_off = !t->is_whole};
    memcpy(out->model, t->header.name, sizeof out->model);
}

const char *smoe_trace_policy(size_t i) {
    return i < REPLAY_KINDS ? replay_name[i] : NULL;
}

int smoe_trace_replay(const smoe_trace *recording, size_t kind, uint64_t ring_bytes,
                      smoe_replay *out, smoe_error *err) {
    replay_result r;
    if (kind >= REPLAY_KINDS) {
        return err_set(err, SMOE_ERR_ARGUMENT, "there is no policy %zu", kind);
    }
    int rc = replay(&recording->t, (replay_kind)kind, ring_bytes, &r, err);
    if (rc == SMOE_OK) {
        *out = (smoe_replay){.uses = r.uses,
                             .hits = r.hits,
                             .decode_uses = r.decode_uses,
                             .decode_hits = r.decode_hits,
                             .read_bytes = r.read_bytes,
                             .decode_read_bytes = r.decode_read_bytes,
                             .evictions = r.evictions};
    }
    return rc;
}
