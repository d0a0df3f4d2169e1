/* What tensors a spec asks for: each role's presence and exact shape as an expression of the spec,
 * the same for every family and container; and the binding of a checkpoint's tensors to roles. */
#ifndef SMOE_MODEL_BIND_H
#define SMOE_MODEL_BIND_H

#include "model/family.h"
#include "model/source.h"

/* Whether the spec has this tensor; layer is ignored for the roles before ROLE_FIRST_OF_LAYER. */
bool role_is_wanted(const spec *s, int32_t layer, role r);

typedef struct role_shape {
    int32_t rank; /* 1: a vector, n_row is 1 */
    int32_t n_row;
    int32_t n_col;
} role_shape;

role_shape role_shape_of(const spec *s, int32_t layer, role r);
/* The same for one matrix of an expert of a MoE layer. */
role_shape expert_part_shape(const spec *s, int32_t layer, enum expert_part_kind part);
const char *expert_part_name(enum expert_part_kind part); /* "gate", "up", "down" */

/* Takes the reference arrays of s (layer, expert) for its spec from its arena, zeroed. n_stored is
 * how many experts the container has been seen to hold: a spec that promises many times more is
 * refused, so that no number alone sizes an array. label names the container. */
int source_take_refs(source *s, uint64_t n_stored, const char *label, smoe_error *err);

/* Fills ext[] and n_ext of e, and ext and at_bytes of its parts, from where the parts lie: range[k]
 * is part k's. Ranges of one file whose pages touch or overlap are merged, with what is between. */
void expert_ref_set_extents(expert_ref *e, const extent range[PART_COUNT]);

/* Finds every tensor that s->spec asks for by the family's names, checks its shape and type, and
 * fills the references. label names the checkpoint in errors. */
int bind_checkpoint(source *s, const family *f, const tensor_table *table, const char *label,
                    smoe_error *err);

#endif
