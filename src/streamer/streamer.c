/* The streamer's work: demand in, items out, bets when the drive would idle; see streamer.h.
 *
 * Owns which expert is where (entries over the ring's blocks) and the current demand. Space is the
 * ring's business, reads are the queue's.
 *
 * Why streamer_next cannot wait for ever. Let the caller hold no item. If an entry of the demand is
 * ready, it is handed out. Otherwise every expert still owed is being read or waits for space.
 * While anything is in flight, waiting ends: a back end ends every read, a piece has a bounded
 * number of attempts, so each load lands or fails. Demand pieces wait for nothing but depth. If
 * nothing is in flight, no demand load is unfinished, so what is owed waits for space; speculative
 * loads that still had to send reads were cancelled for that (free_unsent_bets), so none is
 * unfinished either. Then every block is free or kept, the ring gives up any of them, and a slot is
 * never larger than the ring (checked at open). So space is found, a read is sent, and the demand
 * advances. A caller that keeps items and asks for more can exhaust the ring: it gets an error
 * instead of a wait.
 */
#include "streamer/streamer.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "streamer/streamer_state.h"

/* ---- entries */

static void forget(streamer *s, int32_t id) {
    entry *e = &s->entry[id];
    *entry_slot(s, e->moe_index, e->expert) = -1;
    s->n_present--;
    e->wanted = -1;
}

static void on_evict(void *user, int32_t id) {
    forget(user, id);
}

/* Cancels an unfinished load; its block follows when its last read has landed. */
static void discard(streamer *s, int32_t id) {
    forget(s, id);
    if (queue_cancel(&s->queue, id)) {
        ring_drop(&s->ring, id);
    }
}

/* Returns the entry, or -1 without room. */
static int32_t start_load(streamer *s, int32_t moe_index, int32_t expert, int32_t wanted,
                          double most_value) {
    const expert_ref *ref = source_expert(s->source, moe_index, expert);
    int32_t id = ring_take(&s->ring, streamer_slot_bytes(ref), most_value, on_evict, s);
    if (id >= 0) {
        s->entry[id] = (entry){.moe_index = moe_index, .expert = expert, .wanted = wanted};
        *entry_slot(s, moe_index, expert) = id;
        s->n_present++;
        ring_set_value(&s->ring, id,
                       wanted < 0 ? policy_bet_value(&s->policy, moe_index)
                                  : policy_value(&s->policy, moe_index, expert));
        queue_push(&s->queue, id, ref, ring_at(&s->ring, id), wanted >= 0);
    }
    return id;
}

/* ---- bets */

/* Bets start only into space that is free or of little value; being themselves of great value until
 * their layer's next turn, they never push out each other. */
static bool start_bet(streamer *s) {
    while (s->n_bet > 0) {
        bet b = s->bet[0];
        s->n_bet--;
        memmove(s->bet, s->bet + 1, (size_t)s->n_bet * sizeof b);
        if (*entry_slot(s, b.moe_index, b.expert) >= 0) {
            continue;
        }
        int32_t id = start_load(s, b.moe_index, b.expert, -1, policy_bet_limit(&s->policy));
        if (id >= 0) {
            s->entry[id].is_bet = true;
            s->stats.spec_reads++;
            return true;
        }
    }
    return false;
}

static void drop_bets_on(streamer *s, int32_t moe_index) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_bet; i++) {
        if (s->bet[i].moe_index != moe_index) {
            s->bet[n++] = s->bet[i];
        }
    }
    s->n_bet = n;
}

/* ---- the sweep */

/* What it reads stays until its layer's demand, since nothing in the ring is worth more, and it is
 * at most half of it. */
static bool start_sweep(streamer *s) {
    while (s->sweep_at < s->n_sweep && s->sweep_bytes < s->ring.bytes / 2) {
        int32_t expert = s->sweep[s->sweep_at];
        if (*entry_slot(s, s->sweep_moe, expert) >= 0) {
            s->sweep_at++;
            continue;
        }
        int32_t id = start_load(s, s->sweep_moe, expert, -1, INFINITY);
        if (id < 0) {
            return false; /* again when something is released */
        }
        s->sweep_at++;
        s->sweep_bytes += s->ring.block[id].bytes;
        s->entry[id].is_sweep = true;
        s->stats.sweep_reads++;
        return true;
    }
    return false;
}

static void end_sweep(streamer *s) {
    s->sweep_at = s->n_sweep = 0;
    s->sweep_bytes = 0;
}

/* What earlier runs used most goes into free space only, and is worth what the policy says. */
static bool start_warm(streamer *s) {
    while (s->warm_at < (s->is_idle ? s->n_warm : s->n_learned)) {
        int32_t moe_index = s->warm[s->warm_at] / s->source->n_expert_row;
        int32_t expert = s->warm[s->warm_at] % s->source->n_expert_row;
        if (*entry_slot(s, moe_index, expert) >= 0) {
            s->warm_at++;
            continue;
        }
        int32_t id = start_load(s, moe_index, expert, -1, -INFINITY);
        if (id < 0) {
            s->warm_at = s->n_warm; /* the ring is full */
            return false;
        }
        s->warm_at++;
        ring_set_value(&s->ring, id, policy_value(&s->policy, moe_index, expert));
        s->entry[id].is_warm = true;
        s->stats.warm_reads++;
        return true;
    }
    return false;
}

/* A demand waits for space: bets that could only go on reading after it give theirs back. */
static bool free_unsent_bets(streamer *s) {
    bool freed = false;
    int32_t id;
    while ((id = queue_unsent_spec(&s->queue)) >= 0) {
        discard(s, id);
        freed = true;
    }
    return freed;
}

/* ---- sending */

static bool start_miss(streamer *s) {
    if (s->miss_at == s->n_miss) {
        return false;
    }
    int32_t wanted = s->miss[s->miss_at];
    if (start_load(s, s->moe_index, s->want[wanted], wanted, INFINITY) < 0) {
        return false;
    }
    s->miss_at++;
    return true;
}

/* Sends what the depth allows: all demand reads before any speculative one. */
static void pump(streamer *s) {
    queue *q = &s->queue;
    bool is_clear;
    do {
        while ((is_clear = queue_stage(q, true)) && queue_has_room(q, true) && start_miss(s)) {
        }
    } while (is_clear && queue_has_room(q, true) && s->miss_at < s->n_miss && free_unsent_bets(s));
    if (is_clear && s->miss_at == s->n_miss) {
        while (queue_stage(q, false) && queue_has_room(q, false) &&
               (start_sweep(s) || start_bet(s) || start_warm(s))) {
        }
    }
    queue_send(q);
}

/* ---- taking in */

static bool checksum_holds(streamer *s, int32_t id) {
    const entry *e = &s->entry[id];
    const expert_ref *ref = source_expert(s->source, e->moe_index, e->expert);
    const uint8_t *base = ring_at(&s->ring, id);
    if (!ref->has_checksum) {
        return true;
    }
    if (ref->n_ext == 1) {
        return XXH3_64bits(extent_at(ref, 0, base), (size_t)ref->ext[0].bytes) == ref->checksum;
    }
    XXH3_64bits_reset(s->hash);
    for (int32_t i = 0; i < ref->n_ext; i++) {
        XXH3_64bits_update(s->hash, extent_at(ref, i, base), (size_t)ref->ext[i].bytes);
    }
    return XXH3_64bits_digest(s->hash) == ref->checksum;
}

/* The load is lost. Only a demand has somebody to tell. */
static void lose(streamer *s, int32_t id, int code) {
    const entry *e = &s->entry[id];
    const load *l = &s->queue.load[id];
    if (e->wanted >= 0 && s->failure.code == 0) {
        const expert_ref *ref = source_expert(s->source, e->moe_index, e->expert);
        s->failure = (struct failure){.code = code,
                                      .errnum = l->errnum,
                                      .moe_index = e->moe_index,
                                      .expert = e->expert,
                                      .file = code == SMOE_ERR_IO ? l->bad_file : ref->ext[0].file,
                                      .offset = l->bad_offset};
    }
    forget(s, id);
    ring_drop(&s->ring, id);
}

static void land(streamer *s, int32_t id) {
    entry *e = &s->entry[id];
    if (!checksum_holds(s, id)) {
        if (e->was_reread) {
            lose(s, id, SMOE_ERR_CHECKSUM);
            return;
        }
        /* once more: the drive may be right and the way from it wrong */
        e->was_reread = true;
        s->queue.read_retries++;
        queue_push(&s->queue, id, source_expert(s->source, e->moe_index, e->expert),
                   ring_at(&s->ring, id), e->wanted >= 0);
        return;
    }
    e->is_ready = true;
    if (e->wanted >= 0) {
        s->n_miss_open -= !e->was_ahead;
        s->ready[s->n_ready++] = id;
    } else {
        ring_keep(&s->ring, id);
    }
}

static void take_in(streamer *s) {
    load_end end;
    int32_t id;
    while ((id = queue_pop(&s->queue, &end)) >= 0) {
        if (end == LOAD_LANDED) {
            land(s, id);
        } else if (end == LOAD_FAILED) {
            lose(s, id, SMOE_ERR_IO);
        } else {
            ring_drop(&s->ring, id);
        }
    }
}

/* ---- the demand */

/* Counts one use and claims the entry when there is one. */
static void claim(streamer *s, int32_t wanted) {
    int32_t id = *entry_slot(s, s->moe_index, s->want[wanted]);
    streamer_stats *n = &s->stats;
    if (s->is_counting) {
        bool is_ready = id >= 0 && s->entry[id].is_ready;
        n->uses++;
        n->hits += is_ready;
        n->inflight_hits += id >= 0 && !is_ready;
        n->misses += id < 0;
        n->spec_used += id >= 0 && s->entry[id].is_bet;
        n->sweep_used += id >= 0 && s->entry[id].is_sweep;
        n->warm_used += id >= 0 && s->entry[id].is_warm;
        s->n_use[entry_slot(s, s->moe_index, s->want[wanted]) - s->entry_of]++;
    }
    if (id < 0) {
        s->miss[s->n_miss++] = wanted;
        s->n_miss_open++;
        return;
    }
    entry *e = &s->entry[id];
    e->wanted = wanted;
    e->was_ahead = !e->is_ready;
    e->is_bet = e->is_sweep = e->is_warm = false;
    if (!e->is_ready) {
        queue_set_class(&s->queue, id, true);
        return;
    }
    if (s->ring.block[id].state == RING_KEPT) {
        ring_hold(&s->ring, id);
    }
    s->ready[s->n_ready++] = id;
}

/* A turn changes the values of the layer's records and of no other's. */
static void set_values(streamer *s, int32_t moe_index) {
    for (int32_t e = 0; e < s->policy.layer[moe_index].n_expert; e++) {
        int32_t id = *entry_slot(s, moe_index, e);
        if (id >= 0) {
            ring_set_value(&s->ring, id, policy_value(&s->policy, moe_index, e));
        }
    }
}

void streamer_route(streamer *s, const routing *r, const float *score, bool is_log) {
    routing full = *r;
    streamer_abandon(s);
    full.margin = s->margin;
    routing_margins(score, s->policy.layer[r->moe_index].n_expert, is_log, s->margin);
    if (s->record) {
        trace_write(s->record, &full);
    }
    policy_turn(&s->policy, &full);
    set_values(s, r->moe_index);
    s->is_routed = true;
}

void streamer_demand(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n) {
    streamer_abandon(s);
    drop_bets_on(s, moe_index);
    end_sweep(s);
    if (!s->is_routed && s->is_counting) {
        routing r = {.moe_index = moe_index, .n_tok = 1, .choice = experts, .n_used = n};
        policy_turn(&s->policy, &r);
        set_values(s, moe_index);
    }
    s->is_routed = false;
    s->moe_index = moe_index;
    s->n_want = n;
    for (int32_t i = 0; i < n; i++) {
        s->want[i] = experts[i];
        claim(s, i);
    }
    if (s->n_ready < n) {
        pump(s);
    }
}

static void end_demand(streamer *s) {
    s->n_want = s->n_handed = 0;
    s->miss_at = s->n_miss = s->n_miss_open = 0;
    s->ready_at = s->n_ready = 0;
    s->failure = (struct failure){0};
}

/* What an abandoned demand leaves in the ring: ready entries and those whose reads are all under
 * way stay as cache, the others are given up. */
static void let_go(streamer *s, int32_t id) {
    entry *e = &s->entry[id];
    e->wanted = -1;
    if (e->is_ready) {
        if (e->n_held == 0) {
            ring_keep(&s->ring, id);
        }
    } else if (queue_is_sent(&s->queue, id)) {
        queue_set_class(&s->queue, id, false);
    } else {
        discard(s, id);
    }
}

void streamer_abandon(streamer *s) {
    bool has_rest = s->n_handed < s->n_want;
    for (int32_t i = 0; has_rest && i < s->n_want; i++) {
        int32_t id = *entry_slot(s, s->moe_index, s->want[i]);
        if (id >= 0 && s->entry[id].wanted >= 0) {
            let_go(s, id);
        }
    }
    if (has_rest) {
        s->n_bet = 0;
        end_sweep(s);
    }
    end_demand(s);
}

static int report(const struct failure *f, const streamer *s, smoe_error *err) {
    const char *path = source_file_path(s->source, f->file);
    int32_t layer = spec_moe_layer(&s->source->spec, f->moe_index);
    char why[128];
    if (f->code == SMOE_ERR_CHECKSUM) {
        return err_set(err, f->code,
                       "%s: expert %d of layer %d differs from its checksum, also when read "
                       "again; restore the file from a good copy",
                       path, f->expert, layer);
    }
    if (f->errnum == 0) {
        return err_set(err, f->code,
                       "%s: cannot read expert %d of layer %d: reading stops at byte %llu, too "
                       "early; if the file was cut short, restore it from a good copy",
                       path, f->expert, layer, (unsigned long long)f->offset);
    }
    return err_set(err, f->code, "%s: cannot read expert %d of layer %d at byte %llu: %s", path,
                   f->expert, layer, (unsigned long long)f->offset,
                   strerror_r(f->errnum, why, sizeof why));
}

static void hand_out(streamer *s, streamer_item *item) {
    int32_t id = s->ready[s->ready_at++];
    entry *e = &s->entry[id];
    const expert_ref *ref = source_expert(s->source, e->moe_index, e->expert);
    const uint8_t *base = ring_at(&s->ring, id);
    *item = (streamer_item){.expert = e->expert, .index = e->wanted, .entry = id};
    for (int32_t p = 0; p < PART_COUNT; p++) {
        item->part[p] = extent_at(ref, ref->part[p].ext, base) + ref->part[p].at_bytes;
    }
    e->wanted = -1;
    e->n_held++;
    s->n_handed++;
}

/* Nothing is in flight and nothing can be sent. */
static int report_standstill(const streamer *s, smoe_error *err) {
    char ring_text[24];
    if (s->queue.n_again > 0) {
        return err_set(err, SMOE_ERR_IO, "the %s back end takes no more reads", s->queue.ops->name);
    }
    return err_set(err, SMOE_ERR_ARGUMENT,
                   "layer %d: no room for its next expert: the ring (%s) is full of experts that "
                   "were not released",
                   spec_moe_layer(&s->source->spec, s->moe_index),
                   format_bytes(ring_text, s->ring.bytes));
}

/* Blocks until something of the demand is ready or lost. */
static int await(streamer *s, smoe_error *err) {
    while (s->ready_at == s->n_ready && s->failure.code == 0) {
        if (s->queue.n_flight == 0) {
            return report_standstill(s, err);
        }
        uint64_t start_ns = now_ns();
        int32_t n = queue_reap(&s->queue, true);
        uint64_t waited_ns = now_ns() - start_ns;
        s->stats.wait_ns += waited_ns;
        s->stats.wait_ahead_ns += s->n_miss_open == 0 ? waited_ns : 0;
        if (n == 0) {
            return err_set(err, SMOE_ERR_IO, "the %s back end lost its reads", s->queue.ops->name);
        }
        take_in(s);
        pump(s); /* the drive works on while the caller computes */
    }
    return SMOE_OK;
}

int streamer_next(streamer *s, streamer_item *items, int32_t max, int32_t *n, smoe_error *err) {
    *n = 0;
    if (s->n_handed == s->n_want) {
        end_demand(s);
        return SMOE_OK;
    }
    int rc = SMOE_OK;
    /* Items at hand need no back end, unless others of the demand are on their way. */
    if (s->n_ready < s->n_want) {
        streamer_poll(s);
        rc = await(s, err);
    }
    if (rc == SMOE_OK && s->failure.code) {
        rc = report(&s->failure, s, err);
    }
    if (rc != SMOE_OK) {
        streamer_abandon(s);
        return rc;
    }
    while (*n < max && s->ready_at < s->n_ready) {
        hand_out(s, &items[(*n)++]);
    }
    return SMOE_OK;
}

void streamer_release(streamer *s, const streamer_item *item) {
    entry *e = &s->entry[item->entry];
    e->n_held--;
    if (e->n_held == 0 && e->wanted < 0) {
        ring_keep(&s->ring, item->entry);
        if (s->miss_at < s->n_miss) {
            pump(s);
        }
    }
}

/* ---- the rest of the interface */

/* How many layers' turns pass until this one's. */
static int32_t turns_until(const streamer *s, int32_t moe_index) {
    int32_t n = moe_index - s->moe_index;
    return n > 0 ? n : n + s->source->n_moe_layer;
}

/* Behind what is on the same layer or on an earlier one. */
static void add_bet(streamer *s, bet b) {
    int32_t turns = turns_until(s, b.moe_index), at = s->n_bet;
    while (at > 0 && turns_until(s, s->bet[at - 1].moe_index) > turns) {
        at--;
    }
    if (at == STREAMER_BETS) {
        return;
    }
    s->n_bet -= s->n_bet == STREAMER_BETS;
    memmove(s->bet + at + 1, s->bet + at, (size_t)(s->n_bet - at) * sizeof *s->bet);
    s->bet[at] = b;
    s->n_bet++;
}

void streamer_bet(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n) {
    drop_bets_on(s, moe_index);
    for (int32_t i = 0; i < n; i++) {
        if (*entry_slot(s, moe_index, experts[i]) < 0) {
            add_bet(s, (bet){.moe_index = moe_index, .expert = experts[i]});
        }
    }
    if (s->n_bet > 0) {
        pump(s);
    }
}

void streamer_sweep(streamer *s, int32_t moe_index, const int32_t *experts, int32_t n) {
    end_sweep(s);
    s->sweep_moe = moe_index;
    s->n_sweep = n;
    memcpy(s->sweep, experts, (size_t)n * sizeof *experts);
    pump(s);
}

void streamer_poll(streamer *s) {
    queue_reap(&s->queue, false);
    take_in(s);
    pump(s);
}

/* Waits until the block that is being read is free or kept. */
static int settle(streamer *s, int32_t id, smoe_error *err) {
    if (!s->entry[id].is_ready &&
        *entry_slot(s, s->entry[id].moe_index, s->entry[id].expert) == id) {
        discard(s, id);
    }
    while (s->ring.block[id].state == RING_HELD) {
        if (queue_reap(&s->queue, true) == 0) {
            return err_set(err, SMOE_ERR_IO, "the %s back end lost its reads", s->queue.ops->name);
        }
        take_in(s);
    }
    return SMOE_OK;
}

int streamer_resize(streamer *s, uint64_t ring_bytes, smoe_error *err) {
    uint64_t floor_bytes = streamer_ring_floor(s->source);
    int32_t held;
    if (ring_bytes < floor_bytes) {
        return err_set(err, SMOE_ERR_MEMORY,
                       "a ring of %llu bytes is below one token cycle, %llu bytes",
                       (unsigned long long)ring_bytes, (unsigned long long)floor_bytes);
    }
    streamer_abandon(s);
    s->n_bet = 0;
    end_sweep(s);
    int rc = SMOE_OK;
    while (rc == SMOE_OK) {
        if (ring_bytes < s->ring.bytes) { /* pinned memory cannot be given back */
            streamer_say_room(s, ring_bytes / RING_UNIT_BYTES * RING_UNIT_BYTES);
        }
        if (ring_resize(&s->ring, ring_bytes, on_evict, s, &held)) {
            break;
        }
        rc = held < 0 ? err_no_memory(err, ring_bytes) : settle(s, held, err);
    }
    streamer_say_room(s, s->ring.bytes);
    return rc;
}

bool streamer_has_all(const streamer *s) {
    return s->n_present == s->n_expert;
}

uint64_t streamer_ring_bytes(const streamer *s) {
    return s->ring.bytes;
}

static int load_layer(streamer *s, int32_t moe_index, smoe_error *err) {
    streamer_item items[16];
    int32_t n = 0;
    for (int32_t e = 0; e < s->source->n_expert_row; e++) {
        if (source_expert(s->source, moe_index, e)->n_ext > 0) {
            s->all[n++] = e;
        }
    }
    streamer_demand(s, moe_index, s->all, n);
    do {
        int rc = streamer_next(s, items, 16, &n, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        for (int32_t i = 0; i < n; i++) {
            streamer_release(s, &items[i]);
        }
    } while (n > 0);
    return SMOE_OK;
}

int streamer_preload(streamer *s, smoe_error *err) {
    uint64_t full_bytes = streamer_ring_full(s->source);
    if (s->ring.bytes < full_bytes) {
        char have[24], need[24];
        return err_set(err, SMOE_ERR_ARGUMENT, "a ring of %s cannot hold every expert: needs %s",
                       format_bytes(have, s->ring.bytes), format_bytes(need, full_bytes));
    }
    int rc = SMOE_OK;
    s->is_counting = false;
    for (int32_t m = 0; m < s->source->n_moe_layer && rc == SMOE_OK; m++) {
        rc = load_layer(s, m, err);
    }
    s->is_counting = true;
    return rc;
}

void streamer_record(streamer *s, trace_writer *w) {
    s->record = w;
}

void streamer_get_stats(const streamer *s, streamer_stats *out) {
    const queue *q = &s->queue;
    *out = s->stats;
    out->drive_bytes = q->drive_bytes;
    out->n_read = q->n_read;
    out->read_retries = q->read_retries;
    out->evictions = s->ring.evictions;
    out->probed_bytes_per_s = s->probed_bytes_per_s;
    out->probed_busy_bytes_per_s = s->probed_busy_bytes_per_s;
    out->n_drive = q->n_drive;
    memcpy(out->bytes_of_drive, q->bytes_of, sizeof q->bytes_of);
    out->latency_us = q->latency_us;
    out->size_kib = q->size_kib;
    out->drive_busy_ns = q->busy_ns + (q->n_flight > 0 ? now_ns() - q->busy_since_ns : 0);
}

void streamer_reset_stats(streamer *s) {
    queue *q = &s->queue;
    s->stats = (streamer_stats){.warm_reads = s->stats.warm_reads, .warm_used = s->stats.warm_used};
    q->drive_bytes = q->n_read = q->read_retries = q->busy_ns = 0;
    memset(q->bytes_of, 0, sizeof q->bytes_of);
    q->latency_us = q->size_kib = (io_histogram){0};
    q->busy_since_ns = now_ns();
    s->ring.evictions = 0;
    memset(s->n_use, 0,
           (size_t)s->source->n_moe_layer * (size_t)s->source->n_expert_row * sizeof *s->n_use);
}

streamer_place streamer_expert(const streamer *s, int32_t moe_index, int32_t expert,
                               uint32_t *n_use) {
    const int32_t *slot = entry_slot(s, moe_index, expert);
    *n_use = s->n_use[slot - s->entry_of];
    return *slot < 0                  ? STREAMER_ABSENT
           : s->entry[*slot].is_ready ? STREAMER_RESIDENT
                                      : STREAMER_READING;
}

uint64_t streamer_used_bytes(const streamer *s) {
    return ring_used_bytes(&s->ring);
}
