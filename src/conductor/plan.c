/* The memory plan; see plan.h. Pure arithmetic over sizes, no allocation. */
#include "conductor/plan.h"

#include "conductor/lookahead.h"
#include "layers/scratch.h"
#include "streamer/streamer.h"

#define CONTEXT_DEFAULT_TOK 4096
#define CHUNK_USUAL_TOK     256
/* With every expert in memory a longer chunk means larger groups of tokens for each expert: prefill
 * of 512 tokens of the 30B shape's first 12 layers was 3 % faster on two Zen 4 cores. */
#define CHUNK_RESIDENT_TOK 512
/* When experts are streamed each chunk sweeps nearly all of them, so a longer one reads less: the
 * 17 GB of Qwen3-30B-A3B in Q4_K take as long to read as some 700 tokens to compute, on two cores
 * and 1.6 GB/s. */
#define CHUNK_SWEEP_TOK 1024

/* Kept free under the ceiling: the allocator's slack and library pages touched for the first time
 * during the run (0.3 MiB measured on the tales models), thread stacks, the streamer's tables, and
 * what a generation takes for its sampler and ids. */
#define RESERVE_BYTES         ((uint64_t)2 << 20)
#define RESERVE_THREAD_BYTES  (128u << 10)
#define RESERVE_EXPERT_BYTES  268u
#define RESERVE_VOCAB_BYTES   9u
#define RESERVE_CONTEXT_BYTES 8u

static scratch_config scratch_for(const source *s, const smoe_model_options *o, int32_t chunk) {
    return (scratch_config){.spec = &s->spec,
                            .max_tok = chunk,
                            .n_thread = o->n_thread,
                            .spec_ranks = o->spec_ranks,
                            .reference = o->precision == SMOE_PRECISION_REFERENCE};
}

/* Of a chunk, and the gates' copies that guesses are made with. */
static uint64_t work_bytes(const source *s, const smoe_model_options *o, int32_t chunk) {
    scratch_config c = scratch_for(s, o, chunk);
    return scratch_size(&c) + lookahead_bytes(&s->spec, o->lookahead);
}

enum kv_type plan_kv_type(smoe_kv_type type) {
    return type == SMOE_KV_F32 ? KV_F32 : type == SMOE_KV_Q8 ? KV_Q8 : KV_F16;
}

const char *plan_kv_name(smoe_kv_type type) {
    return type == SMOE_KV_F32 ? "f32" : type == SMOE_KV_Q8 ? "q8" : "f16";
}

uint64_t plan_session_bytes(const spec *sp, int32_t context_tok, enum kv_type type) {
    kv_unit unit = kv_unit_of(type);
    return (uint64_t)context_tok * spec_kv_token_bytes(sp, unit.n_value, unit.bytes) +
           (uint64_t)sp->vocab_size * sizeof(float) + (uint64_t)context_tok * sizeof(int32_t);
}

int plan_defaults(smoe_model_options *o, const spec *sp, smoe_error *err) {
    if (o->n_thread < 0 || o->n_thread > LIMIT_THREADS) {
        return err_set(err, SMOE_ERR_ARGUMENT, "threads: %d is out of range (1 to %d)", o->n_thread,
                       LIMIT_THREADS);
    }
    if (o->context_tok < 0 || o->context_tok > sp->context_tok) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "context: %d is out of range: this model was made for 1 to %d tokens",
                       o->context_tok, sp->context_tok);
    }
    if (o->chunk_tok < 0) {
        return err_set(err, SMOE_ERR_ARGUMENT, "chunk: %d must be at least 1", o->chunk_tok);
    }
    if (o->precision > SMOE_PRECISION_REFERENCE || o->io > SMOE_IO_THREADS || o->pin > SMOE_OFF ||
        o->direct > SMOE_OFF || o->policy > SMOE_POLICY_RECENCY || o->kv > SMOE_KV_Q8) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "precision, io, pin, direct, policy or kv: no such choice");
    }
    if (o->spec_ranks < 0 || o->spec_ranks > LIMIT_EXPERTS) {
        return err_set(err, SMOE_ERR_ARGUMENT, "spec: %d is out of range (0 to %d)", o->spec_ranks,
                       LIMIT_EXPERTS);
    }
    if (o->kv == SMOE_KV_AUTO) {
        o->kv = o->precision == SMOE_PRECISION_REFERENCE ? SMOE_KV_F32 : SMOE_KV_F16;
    }
    o->n_thread = o->n_thread ? o->n_thread : machine_threads();
    if (!o->context_tok) {
        o->context_tok =
            sp->context_tok < CONTEXT_DEFAULT_TOK ? sp->context_tok : CONTEXT_DEFAULT_TOK;
    }
    if (o->chunk_tok > o->context_tok) {
        o->chunk_tok = o->context_tok;
    }
    return SMOE_OK;
}

/* Ceiling when none was given: what is resident now and what may still be taken, less a share for
 * the rest of the machine. */
static uint64_t default_ceiling(const machine_memory *m) {
    uint64_t share = m->available_bytes / 16;
    uint64_t most = (uint64_t)64 << 20;
    return m->process_bytes + m->available_bytes - share - (share < most ? share : most);
}

/* The longest chunk whose scratch takes at most a quarter of what scratch and ring share (beyond
 * the usual length a sixteenth, since decode wants the ring), and leaves the ring its floor, or
 * beyond the usual length room for every expert if there is. */
static int32_t choose_chunk(const source *s, const smoe_model_options *o, uint64_t shared_bytes,
                            uint64_t floor_bytes, bool is_streaming) {
    int32_t chunk = is_streaming ? CHUNK_SWEEP_TOK : CHUNK_RESIDENT_TOK;
    uint64_t long_floor_bytes = is_streaming ? floor_bytes : streamer_ring_full(s);
    chunk = chunk < o->context_tok ? chunk : o->context_tok;
    while (chunk > 1) {
        uint64_t scratch_bytes = work_bytes(s, o, chunk);
        bool is_long = chunk > CHUNK_USUAL_TOK;
        uint64_t most = is_long ? shared_bytes / 16 : shared_bytes / 4;
        uint64_t ring_bytes = is_long ? long_floor_bytes : floor_bytes;
        if (scratch_bytes <= most && scratch_bytes + ring_bytes <= shared_bytes) {
            break;
        }
        chunk /= 2;
    }
    return chunk;
}

/* A fresh start of the same program is resident with a few pages more or less, so the ceiling named
 * in the error is this much above the sum. */
#define SMALLEST_MARGIN_BYTES (512u << 10)

static int too_small(const smoe_plan *p, const smoe_model_options *o, smoe_error *err) {
    char have[24];
    char need[24];
    const char *whose = o->memory_bytes == p->ceiling_bytes ? "a ceiling of"
                        : o->memory_bytes ? "what the cgroup's limit leaves, a ceiling of"
                                          : "what is free allows a ceiling of";
    return err_set(err, SMOE_ERR_MEMORY,
                   "memory: %s %s (%llu bytes) is too small; the smallest that works is %llu bytes "
                   "(%s) with these options; a shorter --ctx or --chunk needs less",
                   whose, format_bytes(have, p->ceiling_bytes),
                   (unsigned long long)p->ceiling_bytes,
                   (unsigned long long)p->smallest_ceiling_bytes,
                   format_bytes(need, p->smallest_ceiling_bytes));
}

static int plan_ring(smoe_plan *p, const source *s, const smoe_model_options *o,
                     uint64_t fixed_bytes, smoe_error *err) {
    uint64_t floor = streamer_ring_floor(s);
    uint64_t full = streamer_ring_full(s);
    uint64_t wanted = o->resident ? full : o->ring_bytes;
    if (o->resident && o->ring_bytes && o->ring_bytes < full) {
        return err_set(
            err, SMOE_ERR_ARGUMENT,
            "ring: %llu bytes cannot hold every expert (%llu bytes); leave out --ring or "
            "--resident",
            (unsigned long long)o->ring_bytes, (unsigned long long)full);
    }
    if (wanted && wanted < floor) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "ring: %llu bytes is below one token cycle; the smallest that works is %llu "
                       "bytes",
                       (unsigned long long)wanted, (unsigned long long)floor);
    }
    uint64_t least = wanted ? (wanted < full ? wanted : full) : floor;
    if (fixed_bytes + least > p->ceiling_bytes) {
        return too_small(p, o, err);
    }
    uint64_t left = p->ceiling_bytes - fixed_bytes;
    p->ring_bytes = wanted ? least : left < full ? left / IO_ALIGN_BYTES * IO_ALIGN_BYTES : full;
    return SMOE_OK;
}

static uint64_t reserve_for(const source *s, const smoe_model_options *o) {
    return RESERVE_BYTES + (uint64_t)o->n_thread * RESERVE_THREAD_BYTES +
           (uint64_t)s->n_moe_layer * (uint64_t)s->n_expert_row * RESERVE_EXPERT_BYTES +
           (uint64_t)s->spec.vocab_size * RESERVE_VOCAB_BYTES +
           (uint64_t)o->context_tok * RESERVE_CONTEXT_BYTES;
}

/* What the kernel takes for memory that is in use: page tables are a 512th, the lists of buffers
 * that are registered with the drive's queue up to as much again. Measured: 0.22 %, with huge
 * pages. */
static uint64_t kernel_bytes(uint64_t used_bytes) {
    return used_bytes / 256;
}

/* No more than the cgroup leaves, whatever was asked for: beyond it the kernel kills. */
static uint64_t ceiling_for(const smoe_model_options *o, const machine_memory *m) {
    uint64_t bytes = o->memory_bytes ? o->memory_bytes : default_ceiling(m);
    return m->limit_bytes && m->limit_bytes < bytes ? m->limit_bytes : bytes;
}

int plan_make(smoe_plan *out, const source *s, const smoe_model_options *o,
              const machine_memory *machine, smoe_error *err) {
    smoe_plan p = {.ceiling_bytes = ceiling_for(o, machine),
                   .process_bytes = machine->process_bytes,
                   .scout_bytes = scout_load_bytes(s),
                   .kv_bytes = plan_session_bytes(&s->spec, o->context_tok, plan_kv_type(o->kv)),
                   .token_cycle_bytes = source_token_cycle_bytes(s),
                   .kv = o->kv,
                   .context_tok = o->context_tok,
                   .n_thread = o->n_thread};
    p.reserve_bytes = reserve_for(s, o);
    uint64_t fixed = p.process_bytes + p.scout_bytes + p.kv_bytes + p.reserve_bytes;
    uint64_t full = streamer_ring_full(s);
    uint64_t floor = o->resident            ? full
                     : !o->ring_bytes       ? streamer_ring_floor(s)
                     : o->ring_bytes < full ? o->ring_bytes
                                            : full;
    uint64_t most_used = fixed + full < p.ceiling_bytes ? fixed + full : p.ceiling_bytes;
    p.reserve_bytes += kernel_bytes(most_used);
    uint64_t least_fixed = fixed;
    fixed += kernel_bytes(most_used);
    uint64_t shared = p.ceiling_bytes > fixed ? p.ceiling_bytes - fixed : 0;
    bool is_streaming = floor < full && (o->ring_bytes || shared < full + full / 16);
    p.chunk_tok = o->chunk_tok ? o->chunk_tok : choose_chunk(s, o, shared, floor, is_streaming);
    p.scratch_bytes = work_bytes(s, o, p.chunk_tok);
    p.smallest_ceiling_bytes =
        least_fixed + work_bytes(s, o, o->chunk_tok ? o->chunk_tok : 1) + floor;
    p.smallest_ceiling_bytes += p.smallest_ceiling_bytes / 255; /* its own kernel_bytes with it */
    if (p.smallest_ceiling_bytes < machine->peak_bytes) {
        p.smallest_ceiling_bytes = machine->peak_bytes; /* reading the headers took this much */
    }
    p.smallest_ceiling_bytes += SMALLEST_MARGIN_BYTES;
    if (p.ceiling_bytes < machine->peak_bytes) {
        return too_small(&p, o, err);
    }
    int rc = plan_ring(&p, s, o, fixed + p.scratch_bytes, err);
    if (rc == SMOE_OK) {
        *out = p;
    }
    return rc;
}

void plan_log(const smoe_plan *p, const source *s, const log_sink *log) {
    char a[24];
    char b[24];
    uint64_t full = streamer_ring_full(s);
    uint64_t sum = p->process_bytes + p->scout_bytes + p->kv_bytes + p->scratch_bytes +
                   p->ring_bytes + p->reserve_bytes;
    log_line(log, SMOE_LOG_PLAN, "memory plan under a ceiling of %s",
             format_bytes(a, p->ceiling_bytes));
    log_line(log, SMOE_LOG_PLAN, "  %-10s %11s  program, libraries, tokenizer (measured)",
             "process", format_bytes(a, p->process_bytes));
    log_line(log, SMOE_LOG_PLAN, "  %-10s %11s  resident dense weights", "scout",
             format_bytes(a, p->scout_bytes));
    log_line(log, SMOE_LOG_PLAN, "  %-10s %11s  context of %d tokens in %s", "KV",
             format_bytes(a, p->kv_bytes), p->context_tok, plan_kv_name(p->kv));
    log_line(log, SMOE_LOG_PLAN, "  %-10s %11s  prefill chunk of %d token%s, %d thread%s",
             "scratch", format_bytes(a, p->scratch_bytes), p->chunk_tok,
             p->chunk_tok == 1 ? "" : "s", p->n_thread, p->n_thread == 1 ? "" : "s");
    log_line(log, SMOE_LOG_PLAN,
             "  %-10s %11s  %.0f %% of all experts; the smallest that works is %s", "ring",
             format_bytes(a, p->ring_bytes),
             full ? 100.0 * (double)p->ring_bytes / (double)full : 100.0,
             format_bytes(b, streamer_ring_floor(s)));
    log_line(log, SMOE_LOG_PLAN, "  %-10s %11s  thread stacks, allocator slack, page tables",
             "reserve", format_bytes(a, p->reserve_bytes));
    log_line(log, SMOE_LOG_PLAN, "  %-10s %11s", "sum", format_bytes(a, sum));
}
