/* How often each expert is used, over all runs: the text of a NAME.heat file and what it holds.
 *
 * Owns the format and the merging of a run into what was known; where the file lies is the
 * conductor's business. docs/cache-policy.md has the format to the byte.
 */
#ifndef SMOE_STREAMER_HEAT_H
#define SMOE_STREAMER_HEAT_H

#include "streamer/policy.h"

/* Fewer tokens than this are no reason to write. */
#define HEAT_LEAST_TOK 16

/* Puts what text says into a policy that has seen no token yet: shares and weights. A text that is
 * damaged or about another model changes nothing and is SMOE_ERR_FORMAT; label stands in errors. */
int heat_read(policy *p, uint64_t model_id, const char *text, size_t bytes, const char *label,
              smoe_error *err);
/* What is known now; *text is the caller's (free). */
int heat_write(const policy *p, uint64_t model_id, char **text, size_t *bytes, smoe_error *err);

/* order: [n_layer * n_row] receives the records of which something is known to be used, as
 * moe_index * n_row + expert, the hottest first; returns their number. */
int32_t heat_order(const policy *p, int32_t *order);

#endif
