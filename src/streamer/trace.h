/* Routing traces: what the router chose, token by token and layer by layer, in a file.
 *
 * The writer appends what it is given through a fixed buffer and remembers the first error until
 * trace_writer_close; the reader holds a whole, checked trace in memory. docs/cache-policy.md has
 * the format to the byte. Neither knows what the ring holds or held.
 */
#ifndef SMOE_STREAMER_TRACE_H
#define SMOE_STREAMER_TRACE_H

#include "streamer/policy.h"

typedef struct trace_header {
    uint64_t model_id;   /* a hash of the routers, which are what decides routing */
    int32_t n_layer;     /* of those with experts */
    int32_t n_row;       /* experts of the largest */
    policy_layer *layer; /* [n_layer] */
    uint32_t *unit;      /* [n_layer][n_row]: what a record takes in the ring, in RING_UNIT_BYTES */
    char name[256];      /* of the model's file or folder, for people */
} trace_header;

typedef struct trace_writer trace_writer;

/* Creates or replaces the file and writes the header. *out is the caller's (trace_writer_close). */
int trace_writer_open(trace_writer **out, const char *path, const trace_header *h, smoe_error *err);
/* Never allocates, never fails: the first error ends the writing and comes with the close. */
void trace_write(trace_writer *w, const routing *r);
/* Writes the end, or removes a file without a turn. On failure the file holds what could be
 * written. NULL is allowed. */
int trace_writer_close(trace_writer *w, smoe_error *err);

/* One layer's turn. */
typedef struct trace_turn {
    int32_t moe_index;
    int32_t n_tok;         /* 1: decode; more: a chunk of a prompt */
    const uint8_t *choice; /* uint16 [n_tok][n_used], little-endian, unaligned */
    const uint8_t *margin; /* [n_expert] of the last token; NULL: none */
} trace_turn;

typedef struct trace {
    trace_header header;
    trace_turn *turn; /* [n_turn] */
    size_t n_turn;
    bool is_whole; /* the end is there: the recording was not cut off */
    int32_t max_tok;
    uint64_t n_tok, n_decode_tok; /* by the first layer's turns */
    char *text;                   /* the file */
} trace;

/* Checks everything: ids, sizes, and, when the file has its end, the checksum. A file that stops in
 * the middle is read up to its last whole turn. *out is the caller's (trace_free), zeroed after
 * failure. */
int trace_read(trace *out, const char *path, smoe_error *err);
/* The same from memory, which becomes the trace's, also on failure; label stands in errors. */
int trace_parse(trace *out, char *text, size_t bytes, const char *label, smoe_error *err);
void trace_free(trace *t);

static inline int32_t trace_choice(const trace_turn *turn, size_t i) {
    return turn->choice[2 * i] | turn->choice[2 * i + 1] << 8;
}

#endif
