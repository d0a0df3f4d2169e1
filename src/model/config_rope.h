/* Rotary positions in config.json; part of config.c's work. */
#ifndef SMOE_MODEL_CONFIG_ROPE_H
#define SMOE_MODEL_CONFIG_ROPE_H

#include "model/config.h"

/* rope_parameters, or rope_theta and rope_scaling; head_dim is what rotates when nothing says less.
 * All derived factors are resolved. */
int config_rope(const config *c, double default_theta, int32_t head_dim, int32_t context_tok,
                rope_spec *out, smoe_error *err);

#endif
