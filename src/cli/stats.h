/* The counters of smoe_stats for people and for programs; docs/telemetry.md says what they mean. */
#ifndef SMOE_CLI_STATS_H
#define SMOE_CLI_STATS_H

#include <stdio.h>

#include "smoe.h"

struct json_object;

/* Several lines. */
void stats_print(const smoe_stats *s, FILE *out);
/* One object, the caller's: all counters, and the figures that are made of them (null where there
 * is nothing to divide by). */
struct json_object *stats_object(const smoe_stats *s);
/* The value that a share of all counted ones stays below: the end of the slot where it is reached;
 * 0 when nothing was counted. */
uint64_t stats_percentile(const uint64_t count[SMOE_STAT_SLOTS], double share);

/* What one token took: the differences of two looks at the counters. *last is moved to now. */
typedef struct token_cost {
    uint64_t ns, drive_bytes, hits, inflight_hits, misses, wait_ns;
} token_cost;
token_cost token_cost_since(smoe_stats *last, const smoe_stats *now);
void token_cost_add(token_cost *to, const token_cost *c);
/* "{…}" into out; returns its length. */
enum { TOKEN_COST_BYTES = 256 };
int token_cost_text(char out[TOKEN_COST_BYTES], const token_cost *c);

#endif
