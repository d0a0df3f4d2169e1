/* Replays of a trace; see replay.h. Owns the state of one replay. */
#include "streamer/replay.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "streamer/ring.h"

const char *const replay_name[REPLAY_KINDS] = {"recency",  "segmented", "frequency", "aged",
                                               "adaptive", "foresight", "optimum"};

/* Counts of REPLAY_AGED halve in so many tokens. */
#define AGED_HALF_TOK 64

typedef struct past { /* of a record */
    uint64_t last;    /* turn of its last use */
    uint32_t next;    /* of its next one; for those that look ahead */
    double count;     /* of uses; REPLAY_AGED: in units that grow by time */
    bool is_again;    /* REPLAY_SEGMENTED: used while it was in the ring */
} past;

typedef struct promotion {
    int32_t record;
    uint64_t turn;
} promotion;

typedef struct state {
    const trace *trace;
    replay_kind kind;
    ring ring;
    policy policy;
    int32_t *block_of;  /* [n_layer * n_row], -1: not in the ring */
    int32_t *record_of; /* [ring.n_block] */
    past *past;         /* [n_layer * n_row] */
    uint32_t *next_use; /* for those that look ahead: turn of the next use, of each use in order */
    size_t next_use_at;
    promotion *promoted; /* REPLAY_SEGMENTED: in order, from promoted_at on */
    size_t promoted_at, n_promoted;
    uint64_t again_bytes;
    int32_t *need; /* [n_row]: distinct experts of the turn, ascending */
    int32_t *held; /* [n_row]: blocks of the turn */
    int32_t n_held;
    int32_t *choice; /* [max_tok][most used] */
    bool *is_needed; /* [n_row] */
    replay_result result;
} state;

static size_t n_record(const trace *t) {
    return (size_t)t->header.n_layer * (size_t)t->header.n_row;
}

static int32_t record_at(const trace *t, int32_t moe_index, int32_t expert) {
    return moe_index * t->header.n_row + expert;
}

static uint64_t bytes_of(const state *s, int32_t record) {
    return (uint64_t)s->trace->header.unit[record] * RING_UNIT_BYTES;
}

uint64_t replay_full_bytes(const trace *t) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n_record(t); i++) {
        sum += t->header.unit[i];
    }
    return sum * RING_UNIT_BYTES;
}

static int greater_first(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

uint64_t replay_cycle_bytes(const trace *t) {
    uint64_t sum = 0;
    uint32_t unit[LIMIT_EXPERTS];
    for (int32_t m = 0; m < t->header.n_layer; m++) {
        size_t n = (size_t)t->header.layer[m].n_expert;
        memcpy(unit, t->header.unit + record_at(t, m, 0), n * sizeof *unit);
        qsort(unit, n, sizeof *unit, greater_first);
        for (int32_t i = 0; i < t->header.layer[m].n_used; i++) {
            sum += unit[i];
        }
    }
    return sum * RING_UNIT_BYTES;
}

/* ---- what is needed */

/* The turn's distinct experts, as the forward pass lists them; returns how many. */
static int32_t list_needs(state *s, const trace_turn *turn) {
    const policy_layer *l = &s->trace->header.layer[turn->moe_index];
    int32_t n = 0;
    memset(s->is_needed, 0, (size_t)l->n_expert * sizeof *s->is_needed);
    for (size_t i = 0; i < (size_t)turn->n_tok * (size_t)l->n_used; i++) {
        s->choice[i] = trace_choice(turn, i);
        s->is_needed[s->choice[i]] = true;
    }
    for (int32_t e = 0; e < l->n_expert; e++) {
        if (s->is_needed[e]) {
            s->need[n++] = e;
        }
    }
    return n;
}

/* Fills next_use: backwards, each use knows the one that was seen before. */
static int look_ahead(state *s, smoe_error *err) {
    const trace *t = s->trace;
    size_t n_use = 0, at;
    for (size_t i = 0; i < t->n_turn; i++) {
        n_use += (size_t)list_needs(s, &t->turn[i]);
    }
    uint32_t *next = mem_array(n_record(t), sizeof *next);
    s->next_use = mem_array(n_use ? n_use : 1, sizeof *s->next_use);
    if (!next || !s->next_use) {
        free(next);
        return err_no_memory(err, n_use * sizeof *s->next_use);
    }
    memset(next, 0xff, n_record(t) * sizeof *next);
    at = n_use;
    for (size_t i = t->n_turn; i-- > 0;) {
        int32_t n = list_needs(s, &t->turn[i]);
        at -= (size_t)n;
        for (int32_t j = 0; j < n; j++) {
            int32_t r = record_at(t, t->turn[i].moe_index, s->need[j]);
            s->next_use[at + (size_t)j] = next[r];
            next[r] = (uint32_t)i;
        }
    }
    free(next);
    return SMOE_OK;
}

/* ---- values */

static void promote(state *s, int32_t record, uint64_t turn) {
    past *p = &s->past[record];
    s->again_bytes += p->is_again ? 0 : bytes_of(s, record);
    p->is_again = true;
    s->promoted[s->n_promoted++] = (promotion){record, turn};
}

/* What was promoted longest ago is of the lower half again, until the upper one fits. */
static void demote(state *s) {
    while (s->again_bytes > s->ring.bytes / 2 && s->promoted_at < s->n_promoted) {
        promotion last = s->promoted[s->promoted_at++];
        past *p = &s->past[last.record];
        if (p->is_again && p->last == last.turn) {
            p->is_again = false;
            s->again_bytes -= bytes_of(s, last.record);
            ring_set_value(&s->ring, s->block_of[last.record], (double)p->last);
        }
    }
}

static bool has_policy(replay_kind kind) {
    return kind == REPLAY_RECENCY || kind == REPLAY_ADAPTIVE || kind == REPLAY_FORESIGHT;
}

/* The policy's value; a record whose layer's next turn is known either is certain or comes a token
 * later. */
static double policy_value_of(const state *s, int32_t record) {
    const trace_header *h = &s->trace->header;
    double value = policy_value(&s->policy, record / h->n_row, record % h->n_row);
    if (s->kind != REPLAY_FORESIGHT) {
        return value;
    }
    double next_turn = (double)(s->policy.n_turn + (uint64_t)h->n_layer);
    bool is_next = (double)s->past[record].next + 1 <= next_turn;
    return is_next ? -next_turn / h->n_layer : value - 1;
}

static double value_of(const state *s, int32_t record) {
    const past *p = &s->past[record];
    switch (s->kind) {
    case REPLAY_SEGMENTED:
        return (double)p->last + (p->is_again ? 0x1p40 : 0);
    case REPLAY_FREQUENCY:
    case REPLAY_AGED:
        return p->count;
    case REPLAY_OPTIMUM:
        return -(double)p->next;
    case REPLAY_RECENCY:
    case REPLAY_ADAPTIVE:
    case REPLAY_FORESIGHT:
    case REPLAY_KINDS:
        break;
    }
    return policy_value_of(s, record);
}

static void note_use(state *s, int32_t record, uint64_t turn, bool is_hit) {
    past *p = &s->past[record];
    p->last = turn + 1;
    if (s->kind == REPLAY_AGED) {
        /* log2 of the sum of 2^time over its uses: what decays alike need not be touched */
        double now = (double)turn / s->trace->header.n_layer / AGED_HALF_TOK;
        p->count = p->count == 0 ? now : now + log2(1 + exp2(p->count - now));
    } else {
        p->count++;
    }
    if (s->kind == REPLAY_SEGMENTED && is_hit) {
        promote(s, record, p->last);
    }
}

/* ---- a turn */

static void on_evict(void *user, int32_t block) {
    state *s = user;
    int32_t record = s->record_of[block];
    s->block_of[record] = -1;
    if (s->past[record].is_again) {
        s->past[record].is_again = false;
        s->again_bytes -= bytes_of(s, record);
    }
}

static void release_held(state *s) {
    for (int32_t i = 0; i < s->n_held; i++) {
        ring_keep(&s->ring, s->held[i]);
    }
    s->n_held = 0;
}

static void take(state *s, int32_t record) {
    uint64_t bytes = bytes_of(s, record);
    int32_t block = ring_take(&s->ring, bytes, INFINITY, on_evict, s);
    if (block < 0) { /* more than the ring holds is computed in waves */
        release_held(s);
        block = ring_take(&s->ring, bytes, INFINITY, on_evict, s);
    }
    s->block_of[record] = block;
    s->record_of[block] = record;
    s->held[s->n_held++] = block;
    s->result.read_bytes += bytes;
}

static void learn(state *s, const trace_turn *turn) {
    const policy_layer *l = &s->trace->header.layer[turn->moe_index];
    routing r = {.moe_index = turn->moe_index,
                 .n_tok = turn->n_tok,
                 .choice = s->choice,
                 .stride = l->n_used,
                 .n_used = l->n_used,
                 .margin = turn->margin};
    policy_turn(&s->policy, &r);
    for (int32_t e = 0; e < l->n_expert; e++) {
        int32_t record = record_at(s->trace, turn->moe_index, e);
        if (s->block_of[record] >= 0) {
            ring_set_value(&s->ring, s->block_of[record], policy_value_of(s, record));
        }
    }
}

static void run_turn(state *s, size_t i) {
    const trace_turn *turn = &s->trace->turn[i];
    int32_t n = list_needs(s, turn), n_hit = 0;
    uint64_t read_before = s->result.read_bytes;
    for (int32_t j = 0; j < n && s->next_use; j++) {
        s->past[record_at(s->trace, turn->moe_index, s->need[j])].next =
            s->next_use[s->next_use_at++];
    }
    if (has_policy(s->kind)) {
        learn(s, turn);
    }
    for (int32_t j = 0; j < n; j++) {
        int32_t record = record_at(s->trace, turn->moe_index, s->need[j]);
        bool is_hit = s->block_of[record] >= 0;
        note_use(s, record, i, is_hit);
        if (is_hit) {
            n_hit++;
            ring_hold(&s->ring, s->block_of[record]);
            s->held[s->n_held++] = s->block_of[record];
        }
        s->is_needed[s->need[j]] = is_hit; /* from here on: is there */
    }
    for (int32_t j = 0; j < n; j++) {
        int32_t record = record_at(s->trace, turn->moe_index, s->need[j]);
        if (!s->is_needed[s->need[j]]) {
            take(s, record);
        }
        if (s->block_of[record] >= 0) { /* a wave of a large turn may have pushed it out already */
            ring_set_value(&s->ring, s->block_of[record], value_of(s, record));
        }
    }
    release_held(s);
    if (s->kind == REPLAY_SEGMENTED) {
        demote(s);
    }
    s->result.uses += (uint64_t)n;
    s->result.hits += (uint64_t)n_hit;
    if (turn->n_tok == 1) {
        s->result.decode_uses += (uint64_t)n;
        s->result.decode_hits += (uint64_t)n_hit;
        s->result.decode_read_bytes += s->result.read_bytes - read_before;
    }
}

/* ---- all of it */

static int open_tables(state *s, smoe_error *err) {
    const trace_header *h = &s->trace->header;
    size_t n_row = (size_t)h->n_row, n = n_record(s->trace), most_used = 0, n_promoted = 0;
    for (int32_t m = 0; m < h->n_layer; m++) {
        size_t used = (size_t)h->layer[m].n_used;
        most_used = used > most_used ? used : most_used;
    }
    for (size_t i = 0; i < s->trace->n_turn && s->kind == REPLAY_SEGMENTED; i++) {
        const trace_turn *turn = &s->trace->turn[i];
        size_t used = (size_t)turn->n_tok * (size_t)h->layer[turn->moe_index].n_used;
        n_promoted += used < n_row ? used : n_row;
    }
    s->block_of = mem_array(n, sizeof *s->block_of);
    s->record_of = mem_array((size_t)s->ring.n_block, sizeof *s->record_of);
    s->past = mem_array(n, sizeof *s->past);
    s->promoted = mem_array(n_promoted + 1, sizeof *s->promoted);
    s->need = mem_array(n_row, sizeof *s->need);
    s->held = mem_array(n_row, sizeof *s->held);
    s->is_needed = mem_array(n_row, sizeof *s->is_needed);
    s->choice = mem_array((size_t)s->trace->max_tok * most_used + 1, sizeof *s->choice);
    if (!s->block_of || !s->record_of || !s->past || !s->promoted || !s->need || !s->held ||
        !s->is_needed || !s->choice) {
        return err_no_memory(err, n * (sizeof *s->past + 2 * sizeof *s->block_of));
    }
    memset(s->block_of, 0xff, n * sizeof *s->block_of);
    return SMOE_OK;
}

static void close_tables(state *s) {
    ring_close(&s->ring);
    policy_close(&s->policy);
    free(s->block_of);
    free(s->record_of);
    free(s->past);
    free(s->next_use);
    free(s->promoted);
    free(s->need);
    free(s->held);
    free(s->is_needed);
    free(s->choice);
}

static int open_ring(state *s, uint64_t ring_bytes, smoe_error *err) {
    const trace *t = s->trace;
    uint64_t full_bytes = replay_full_bytes(t), most_bytes = 0;
    for (size_t i = 0; i < n_record(t); i++) {
        uint64_t bytes = bytes_of(s, (int32_t)i);
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    if (ring_bytes < most_bytes) {
        char have[24], need[24];
        return err_set(err, SMOE_ERR_ARGUMENT, "a ring of %s holds no expert: the largest takes %s",
                       format_bytes(have, ring_bytes), format_bytes(need, most_bytes));
    }
    return ring_open_hollow(&s->ring, ring_bytes < full_bytes ? ring_bytes : full_bytes,
                            (int32_t)n_record(t), err);
}

int replay(const trace *t, replay_kind kind, uint64_t ring_bytes, replay_result *out,
           smoe_error *err) {
    const trace_header *h = &t->header;
    state s = {.trace = t, .kind = kind};
    int rc = open_ring(&s, ring_bytes, err);
    rc = rc ? rc : open_tables(&s, err);
    if (rc == SMOE_OK && has_policy(kind)) {
        rc = policy_open(&s.policy, kind == REPLAY_RECENCY ? POLICY_RECENCY : POLICY_ADAPTIVE,
                         h->layer, h->n_layer, h->n_row, err);
    }
    if (rc == SMOE_OK && (kind == REPLAY_OPTIMUM || kind == REPLAY_FORESIGHT)) {
        rc = look_ahead(&s, err);
    }
    for (size_t i = 0; i < t->n_turn && rc == SMOE_OK; i++) {
        run_turn(&s, i);
    }
    s.result.evictions = s.ring.evictions;
    if (rc == SMOE_OK) {
        *out = s.result;
    }
    close_tables(&s);
    return rc;
}
