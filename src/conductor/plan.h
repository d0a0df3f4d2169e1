/* The memory plan: one ceiling, divided before anything large is taken. */
#ifndef SMOE_CONDUCTOR_PLAN_H
#define SMOE_CONDUCTOR_PLAN_H

#include "conductor/machine.h"
#include "layers/exec.h"
#include "model/source.h"

/* Divides the ceiling. options has its zeros resolved by plan_defaults. The error of a ceiling or
 * ring that is too small names the smallest that works. */
int plan_make(smoe_plan *out, const source *s, const smoe_model_options *options,
              const machine_memory *machine, smoe_error *err);

/* Fills in n_thread, context_tok and kv where zero and refuses values out of range. chunk_tok stays
 * zero for plan_make to choose. */
int plan_defaults(smoe_model_options *options, const spec *sp, smoe_error *err);

/* The plan as lines for a person. */
void plan_log(const smoe_plan *plan, const source *s, const log_sink *log);

/* Bytes of one sequence's KV cache and logits row. */
uint64_t plan_session_bytes(const spec *sp, int32_t context_tok, enum kv_type type);

/* The kernels' name for a type, never SMOE_KV_AUTO; and a person's. */
enum kv_type plan_kv_type(smoe_kv_type type);
const char *plan_kv_name(smoe_kv_type type);

#endif
