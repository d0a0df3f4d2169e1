/* Sessions: one token timeline with its KV cache.
 *
 * The caller hands over whole sequences; what of the cache can be kept is decided here. The cache
 * only ever grows by whole finished batches, so a failed or cancelled call leaves a valid prefix.
 */
#include <string.h>

#include "base/clock.h"
#include "conductor/model.h"

/* Places logits, ids and the cache in one map; offsets of the cache are in units. */
static int map_session(smoe_session *s, smoe_error *err) {
    const smoe_model *m = s->model;
    const spec *sp = &m->source->spec;
    uint64_t context = (uint64_t)m->plan.context_tok;
    uint64_t logits_bytes = round_up((uint64_t)sp->vocab_size * sizeof(float), 64);
    uint64_t ids_bytes = round_up(context * sizeof(int32_t), 64);
    enum kv_type type = m->exec.kv_type;
    uint64_t at = 0;
    s->kv.k_offset = mem_array((size_t)sp->n_layer, sizeof(uint64_t));
    s->kv.v_offset = mem_array((size_t)sp->n_layer, sizeof(uint64_t));
    if (!s->kv.k_offset || !s->kv.v_offset) {
        return err_no_memory(err, (uint64_t)sp->n_layer * sizeof(uint64_t));
    }
    for (int32_t l = 0; l < sp->n_layer; l++) {
        const attn_spec *a = &sp->layer[l].attn;
        s->kv.k_offset[l] = at;
        at += context * (uint64_t)a->n_kv_head * kv_row_units(type, a->head_dim);
        s->kv.v_offset[l] = at;
        at += context * (uint64_t)a->n_kv_head * kv_row_units(type, a->v_head_dim);
    }
    s->kv.bytes = at * kv_unit_of(type).bytes;
    s->kv.type = type;
    s->kv.context_tok = m->plan.context_tok;
    s->bytes = logits_bytes + ids_bytes + s->kv.bytes;
    int rc = mem_map(&s->base, s->bytes, err);
    if (rc == SMOE_OK) {
        s->logits = s->base;
        s->ids = (int32_t *)(void *)((char *)s->base + logits_bytes);
        s->kv.base = (char *)s->base + logits_bytes + ids_bytes;
    }
    return rc;
}

int smoe_session_open(smoe_session **out, smoe_model *model, smoe_error *err) {
    if (model->session_open) {
        return err_set(err, SMOE_ERR_MEMORY,
                       "the memory plan has room for one session; close the other one first");
    }
    smoe_session *s = mem_array(1, sizeof *s);
    if (!s) {
        return err_no_memory(err, sizeof *s);
    }
    s->model = model;
    int rc = map_session(s, err);
    if (rc != SMOE_OK) {
        smoe_session_close(s);
        return rc;
    }
    model->session_open = true;
    *out = s;
    return SMOE_OK;
}

void smoe_session_close(smoe_session *s) {
    if (!s) {
        return;
    }
    if (s->base) {
        s->model->session_open = false;
    }
    mem_unmap(s->base, s->bytes);
    free(s->kv.k_offset);
    free(s->kv.v_offset);
    free(s);
}

void smoe_session_cancel(smoe_session *s) {
    atomic_store(&s->cancelled, true);
}

const float *smoe_session_logits(const smoe_session *s) {
    return s->logits;
}

static int check_ids(const smoe_session *s, const int32_t *ids, size_t n, smoe_error *err) {
    const spec *sp = &s->model->source->spec;
    if (n == 0) {
        return err_set(err, SMOE_ERR_ARGUMENT, "an empty token sequence has no continuation");
    }
    if (n > (size_t)s->kv.context_tok) {
        return err_set(err, SMOE_ERR_CONTEXT,
                       "%zu tokens are more than the context of %d; raise --ctx (the model was "
                       "made for %d)",
                       n, s->kv.context_tok, sp->context_tok);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= sp->vocab_size) {
            return err_set(err, SMOE_ERR_ARGUMENT, "token %zu is %d, outside the vocabulary of %d",
                           i, ids[i], sp->vocab_size);
        }
    }
    return SMOE_OK;
}

/* Computes ids[n_id..n_id+n) as one batch and appends them. */
static int extend(smoe_session *s, const int32_t *ids, int32_t n, smoe_error *err) {
    smoe_model *m = s->model;
    scratch *sc = &m->exec.s;
    for (int32_t i = 0; i < n; i++) {
        sc->pos[i] = s->n_id + i;
        sc->kv[i] = &s->kv;
    }
    batch b = {n, ids, sc->pos, sc->kv};
    resize_under_pressure(m);
    int rc = forward_layers(m, &b, &s->cancelled, err);
    if (rc == SMOE_OK) {
        memcpy(s->ids + s->n_id, ids, (size_t)n * sizeof *ids);
        s->n_id += n;
    }
    return rc;
}

typedef struct stopwatch {
    uint64_t start_ns;
    uint64_t drive_bytes;
    int32_t n_id;
} stopwatch;

static stopwatch start_watch(const smoe_session *s) {
    streamer_stats st;
    streamer_get_stats(s->model->streamer, &st);
    return (stopwatch){now_ns(), st.drive_bytes, s->n_id};
}

static void stop_watch(smoe_session *s, const stopwatch *w, bool decode) {
    smoe_model *m = s->model;
    streamer_stats st;
    uint64_t ns = now_ns() - w->start_ns;
    uint64_t tok = (uint64_t)(s->n_id - w->n_id);
    streamer_get_stats(m->streamer, &st);
    if (decode) {
        m->decode_ns += ns;
        m->decode_tok += tok;
        m->decode_drive_bytes += st.drive_bytes - w->drive_bytes;
        lookahead_adjust(m);
    } else {
        m->prefill_ns += ns;
        m->prefill_tok += tok;
    }
}

int smoe_session_sync(smoe_session *s, const int32_t *ids, size_t n_id, smoe_error *err) {
    atomic_store(&s->cancelled, false);
    return session_sync(s, ids, n_id, err);
}

int session_sync(smoe_session *s, const int32_t *ids, size_t n_id, smoe_error *err) {
    int rc = check_ids(s, ids, n_id, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    int32_t n = (int32_t)n_id;
    int32_t common = 0;
    while (common < n && common < s->n_id && s->ids[common] == ids[common]) {
        common++;
    }
    if (common == n && n == s->n_id && s->has_logits) {
        return SMOE_OK;
    }
    common = common < n ? common : n - 1; /* the last token's logits have to be computed */
    bool decode = n - common == 1 && common > 0;
    s->n_id = common;
    s->has_logits = false;
    stopwatch watch = start_watch(s);
    int32_t chunk = s->model->plan.chunk_tok;
    while (rc == SMOE_OK && s->n_id < n) {
        int32_t left = n - s->n_id;
        int32_t take = left < chunk ? left : chunk;
        rc = extend(s, ids + s->n_id, take, err);
        if (rc == SMOE_OK && s->n_id == n) {
            forward_head(s->model, take - 1, 1, s->logits);
            s->has_logits = true;
        }
    }
    stop_watch(s, &watch, decode);
    return rc;
}

/* Hands out the logits of the last take tokens, a few rows at a time. */
static int score_rows(smoe_session *s, int32_t take, smoe_logits_fn fn, void *user,
                      smoe_error *err) {
    const scratch *sc = &s->model->exec.s;
    size_t vocab = (size_t)s->model->source->spec.vocab_size;
    size_t first_pos = (size_t)s->n_id - (size_t)take;
    for (int32_t done = 0; done < take;) {
        int32_t n = take - done < sc->logit_rows ? take - done : sc->logit_rows;
        forward_head(s->model, done, n, sc->logits);
        for (int32_t i = 0; i < n; i++) {
            if (fn(user, first_pos + (size_t)done + (size_t)i, sc->logits + (size_t)i * vocab)) {
                return err_set(err, SMOE_ERR_CANCELLED, "cancelled");
            }
        }
        done += n;
    }
    return SMOE_OK;
}

int smoe_session_score(smoe_session *s, const int32_t *ids, size_t n_id, smoe_logits_fn fn,
                       void *user, smoe_error *err) {
    int rc = check_ids(s, ids, n_id, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    s->n_id = 0;
    s->has_logits = false;
    atomic_store(&s->cancelled, false);
    stopwatch watch = start_watch(s);
    while (rc == SMOE_OK && (size_t)s->n_id < n_id) {
        size_t left = n_id - (size_t)s->n_id;
        int32_t chunk = s->model->plan.chunk_tok;
        int32_t take = left < (size_t)chunk ? (int32_t)left : chunk;
        rc = extend(s, ids + s->n_id, take, err);
        if (rc == SMOE_OK) {
            rc = score_rows(s, take, fn, user, err);
        }
    }
    stop_watch(s, &watch, false);
    return rc;
}
