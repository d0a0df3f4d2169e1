/* Counters as text and as JSON; see stats.h. Owns no state. */
#include "cli/stats.h"
#include "cli/json_add.h"

#include <inttypes.h>
#include <json-c/json.h>

#include "base/log.h"

static double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static double percent(uint64_t part, uint64_t whole) {
    return 100 * ratio((double)part, (double)whole);
}

static double per_s(uint64_t n, uint64_t ns) {
    return 1e9 * ratio((double)n, (double)ns);
}

static double seconds(uint64_t ns) {
    return (double)ns * 1e-9;
}

uint64_t stats_percentile(const uint64_t count[SMOE_STAT_SLOTS], double share) {
    uint64_t n = 0, seen = 0;
    for (int i = 0; i < SMOE_STAT_SLOTS; i++) {
        n += count[i];
    }
    for (int i = 0; i < SMOE_STAT_SLOTS && n > 0; i++) {
        seen += count[i];
        if ((double)seen >= share * (double)n) {
            return 1ull << i;
        }
    }
    return 0;
}

/* ---- text */

static void format_us(char out[24], uint64_t us) {
    if (us < 1000) {
        snprintf(out, 24, "%" PRIu64 " us", us);
    } else if (us < 1000000) {
        snprintf(out, 24, "%.1f ms", (double)us * 1e-3);
    } else {
        snprintf(out, 24, "%.1f s", (double)us * 1e-6);
    }
}

static void print_drives(const smoe_stats *s, FILE *out) {
    char a[24], b[24], c[24];
    fprintf(out, "drive    %s in %" PRIu64 " reads of %s, %s a decoded token (%s, %s)\n",
            format_bytes(a, s->drive_bytes), s->n_read,
            format_bytes(b, s->n_read ? s->drive_bytes / s->n_read : 0),
            format_bytes(c, s->decode_tok ? s->decode_drive_bytes / s->decode_tok : 0),
            s->io_backend, s->direct ? "O_DIRECT" : "buffered");
    for (int32_t i = 0; i < s->n_drive && s->n_drive > 1; i++) {
        fprintf(out, "         %s from drive %d\n", format_bytes(a, s->drive_bytes_of[i]), i + 1);
    }
}

static void print_rate(const smoe_stats *s, FILE *out) {
    char a[24], b[24], c[24];
    double rate = per_s(s->drive_bytes, s->drive_busy_ns);
    if (s->n_read == 0) {
        return;
    }
    fprintf(out, "rate     %s/s while reading, ", format_bytes(a, (uint64_t)rate));
    if (s->probed_bytes_per_s > 0) {
        fprintf(out, "%.1f %% of the probed %s/s", 100 * rate / s->probed_bytes_per_s,
                format_bytes(b, (uint64_t)s->probed_bytes_per_s));
        if (s->probed_busy_bytes_per_s > 0) {
            fprintf(out, " (%s/s while all cores compute)",
                    format_bytes(b, (uint64_t)s->probed_busy_bytes_per_s));
        }
        fputc('\n', out);
    } else {
        fputs("the drive was not probed\n", out);
    }
    format_us(a, stats_percentile(s->read_us, 0.5));
    format_us(b, stats_percentile(s->read_us, 0.9));
    format_us(c, stats_percentile(s->read_us, 0.99));
    fprintf(out, "latency  half of the reads below %s, 90 %% below %s, 99 %% below %s\n", a, b, c);
}

static void print_ahead(const smoe_stats *s, FILE *out) {
    if (s->spec_reads) {
        fprintf(out, "bets     %" PRIu64 " read ahead in decode, %" PRIu64 " used (%.1f %%)\n",
                s->spec_reads, s->spec_used, percent(s->spec_used, s->spec_reads));
    }
    if (s->sweep_reads) {
        fprintf(out, "sweep    %" PRIu64 " read ahead in prefill, %" PRIu64 " used (%.1f %%)\n",
                s->sweep_reads, s->sweep_used, percent(s->sweep_used, s->sweep_reads));
    }
    if (s->warm_reads) {
        fprintf(out, "warm     %" PRIu64 " read in idle time, %" PRIu64 " used (%.1f %%)\n",
                s->warm_reads, s->warm_used, percent(s->warm_used, s->warm_reads));
    }
    fprintf(out, "guesses  lookahead is %s", s->lookahead_on ? "on" : "off");
    if (s->lookahead_switches) {
        fprintf(out, ", %" PRIu64 " changes", s->lookahead_switches);
    }
    if (s->guessed) {
        fprintf(out, "; %" PRIu64 " experts guessed, %.1f %% right; %.1f %% of the needed guessed",
                s->guessed, percent(s->guessed_right, s->guessed),
                percent(s->guessed_right, s->guess_named));
    }
    if (s->guessed_far) {
        fprintf(out, "; %" PRIu64 " sure ones further ahead, %.1f %% right", s->guessed_far,
                percent(s->guessed_far_right, s->guessed_far));
    }
    fputc('\n', out);
}

void stats_print(const smoe_stats *s, FILE *out) {
    char a[24], b[24];
    fprintf(out, "open     ready for the first token after %.3f s\n", seconds(s->open_ns));
    fprintf(out, "prefill  %8" PRIu64 " tok   %10.1f tok/s\n", s->prefill_tok,
            per_s(s->prefill_tok, s->prefill_ns));
    fprintf(out, "decode   %8" PRIu64 " tok   %10.1f tok/s\n", s->decode_tok,
            per_s(s->decode_tok, s->decode_ns));
    print_drives(s, out);
    print_rate(s, out);
    fprintf(out,
            "experts  %" PRIu64 " uses: %" PRIu64 " hits (%.1f %%), %" PRIu64 " in flight, %" PRIu64
            " misses; %" PRIu64 " evicted\n",
            s->uses, s->hits, percent(s->hits, s->uses), s->inflight_hits, s->misses, s->evictions);
    print_ahead(s, out);
    if (s->read_retries) {
        fprintf(out, "retries  %" PRIu64 " reads were repeated\n", s->read_retries);
    }
    fprintf(out,
            "waiting  %.3f s for the drive (%.1f %% of the work): %.3f s for misses, %.3f s for "
            "reads begun ahead; drive busy %.1f %%\n",
            seconds(s->wait_ns), percent(s->wait_ns, s->work_ns),
            seconds(s->wait_ns - s->wait_ahead_ns), seconds(s->wait_ahead_ns),
            percent(s->drive_busy_ns, s->work_ns));
    fprintf(out, "ring     %s of %s in use", format_bytes(a, s->ring_used_bytes),
            format_bytes(b, s->ring_bytes));
    if (s->ring_registered_bytes) {
        fprintf(out, ", %s registered with the drive's queue",
                format_bytes(a, s->ring_registered_bytes));
    }
    if (s->n_resize) {
        fprintf(out, "; resized %" PRIu64 " times", s->n_resize);
    }
    fputc('\n', out);
    fprintf(out, "memory   peak %s of a ceiling of %s; KV in %s; kernels %s\n",
            format_bytes(a, s->peak_process_bytes), format_bytes(b, s->ceiling_bytes), s->kv_type,
            s->isa);
}

/* ---- JSON */

/* null where there is nothing to divide by */
static void add_ratio(struct json_object *o, const char *key, double part, double whole) {
    json_object_object_add(o, key, whole > 0 ? json_object_new_double(part / whole) : NULL);
}

static void add_share(struct json_object *o, const char *key, uint64_t part, uint64_t whole) {
    add_ratio(o, key, (double)part, (double)whole);
}

static void add_array(struct json_object *o, const char *key, const uint64_t *v, size_t n) {
    struct json_object *a = json_object_new_array();
    for (size_t i = 0; i < n; i++) {
        json_object_array_add(a, json_object_new_uint64(v[i]));
    }
    json_object_object_add(o, key, a);
}

static void add_time(struct json_object *o, const smoe_stats *s) {
    json_add_count(o, "prefill_tok", s->prefill_tok);
    json_add_count(o, "prefill_ns", s->prefill_ns);
    json_add_count(o, "decode_tok", s->decode_tok);
    json_add_count(o, "decode_ns", s->decode_ns);
    json_add_count(o, "open_ns", s->open_ns);
    json_add_count(o, "work_ns", s->work_ns);
    json_add_number(o, "prefill_tok_per_s", per_s(s->prefill_tok, s->prefill_ns));
    json_add_number(o, "decode_tok_per_s", per_s(s->decode_tok, s->decode_ns));
    json_add_count(o, "wait_ns", s->wait_ns);
    json_add_count(o, "wait_miss_ns", s->wait_ns - s->wait_ahead_ns);
    json_add_count(o, "wait_ahead_ns", s->wait_ahead_ns);
    add_share(o, "wait_share", s->wait_ns, s->work_ns);
}

static void add_drive(struct json_object *o, const smoe_stats *s) {
    double rate = per_s(s->drive_bytes, s->drive_busy_ns);
    json_add_count(o, "drive_bytes", s->drive_bytes);
    add_array(o, "drive_bytes_of", s->drive_bytes_of, (size_t)s->n_drive);
    json_add_count(o, "decode_drive_bytes", s->decode_drive_bytes);
    add_share(o, "decode_drive_bytes_per_tok", s->decode_drive_bytes, s->decode_tok);
    json_add_count(o, "n_read", s->n_read);
    json_add_count(o, "read_retries", s->read_retries);
    add_share(o, "read_bytes_mean", s->drive_bytes, s->n_read);
    json_add_count(o, "read_us_p50", stats_percentile(s->read_us, 0.5));
    json_add_count(o, "read_us_p90", stats_percentile(s->read_us, 0.9));
    json_add_count(o, "read_us_p99", stats_percentile(s->read_us, 0.99));
    add_array(o, "read_us", s->read_us, SMOE_STAT_SLOTS);
    add_array(o, "read_kib", s->read_kib, SMOE_STAT_SLOTS);
    json_add_count(o, "drive_busy_ns", s->drive_busy_ns);
    add_share(o, "drive_busy_share", s->drive_busy_ns, s->work_ns);
    json_add_number(o, "read_bytes_per_s", rate);
    json_add_number(o, "probed_bytes_per_s", s->probed_bytes_per_s);
    json_add_number(o, "probed_busy_bytes_per_s", s->probed_busy_bytes_per_s);
    add_ratio(o, "probed_share", rate, s->probed_bytes_per_s);
    json_object_object_add(o, "io_backend", json_object_new_string(s->io_backend));
    json_object_object_add(o, "direct", json_object_new_boolean(s->direct));
}

static void add_experts(struct json_object *o, const smoe_stats *s) {
    json_add_count(o, "uses", s->uses);
    json_add_count(o, "hits", s->hits);
    json_add_count(o, "inflight_hits", s->inflight_hits);
    json_add_count(o, "misses", s->misses);
    add_share(o, "hit_share", s->hits, s->uses);
    json_add_count(o, "evictions", s->evictions);
    json_add_count(o, "spec_reads", s->spec_reads);
    json_add_count(o, "spec_used", s->spec_used);
    add_share(o, "spec_used_share", s->spec_used, s->spec_reads);
    json_add_count(o, "sweep_reads", s->sweep_reads);
    json_add_count(o, "sweep_used", s->sweep_used);
    add_share(o, "sweep_used_share", s->sweep_used, s->sweep_reads);
    json_add_count(o, "warm_reads", s->warm_reads);
    json_add_count(o, "warm_used", s->warm_used);
    add_share(o, "warm_used_share", s->warm_used, s->warm_reads);
    json_add_count(o, "guessed", s->guessed);
    json_add_count(o, "guessed_right", s->guessed_right);
    json_add_count(o, "guess_named", s->guess_named);
    json_add_count(o, "guessed_far", s->guessed_far);
    json_add_count(o, "guessed_far_right", s->guessed_far_right);
    add_share(o, "lookahead_precision", s->guessed_right, s->guessed);
    add_share(o, "lookahead_recall", s->guessed_right, s->guess_named);
    json_object_object_add(o, "lookahead_on", json_object_new_boolean(s->lookahead_on));
    json_add_count(o, "lookahead_switches", s->lookahead_switches);
}

struct json_object *stats_object(const smoe_stats *s) {
    struct json_object *o = json_object_new_object();
    add_time(o, s);
    add_drive(o, s);
    add_experts(o, s);
    json_add_count(o, "ring_bytes", s->ring_bytes);
    json_add_count(o, "ring_used_bytes", s->ring_used_bytes);
    json_add_count(o, "ring_registered_bytes", s->ring_registered_bytes);
    json_add_count(o, "n_resize", s->n_resize);
    json_add_count(o, "peak_process_bytes", s->peak_process_bytes);
    json_add_count(o, "ceiling_bytes", s->ceiling_bytes);
    json_object_object_add(o, "isa", json_object_new_string(s->isa));
    json_object_object_add(o, "kv_type", json_object_new_string(s->kv_type));
    return o;
}

/* ---- tokens */

token_cost token_cost_since(smoe_stats *last, const smoe_stats *now) {
    token_cost c = {.ns = now->work_ns - last->work_ns,
                    .drive_bytes = now->drive_bytes - last->drive_bytes,
                    .hits = now->hits - last->hits,
                    .inflight_hits = now->inflight_hits - last->inflight_hits,
                    .misses = now->misses - last->misses,
                    .wait_ns = now->wait_ns - last->wait_ns};
    *last = *now;
    return c;
}

void token_cost_add(token_cost *to, const token_cost *c) {
    to->ns += c->ns;
    to->drive_bytes += c->drive_bytes;
    to->hits += c->hits;
    to->inflight_hits += c->inflight_hits;
    to->misses += c->misses;
    to->wait_ns += c->wait_ns;
}

int token_cost_text(char out[TOKEN_COST_BYTES], const token_cost *c) {
    return snprintf(out, TOKEN_COST_BYTES,
                    "{ \"ns\": %" PRIu64 ", \"drive_bytes\": %" PRIu64 ", \"hits\": %" PRIu64
                    ", \"inflight_hits\": %" PRIu64 ", \"misses\": %" PRIu64
                    ", \"wait_ns\": %" PRIu64 " }",
                    c->ns, c->drive_bytes, c->hits, c->inflight_hits, c->misses, c->wait_ns);
}
