/* The live view: what a model does while it writes, redrawn about five times a second on the
 * terminal at standard error.
 *
 * live_frame turns numbers into a screen and touches nothing else; the functions of live.c own the
 * terminal between open and close. One view at a time; everything is allocated in live_open.
 */
#ifndef SMOE_CLI_LIVE_H
#define SMOE_CLI_LIVE_H

#include "cli/options.h"

/* ---- a frame */

typedef struct live_picture {
    int32_t n_layer, n_expert; /* layers with experts, experts of each */
    const uint8_t *place;      /* [n_layer][n_expert]: smoe_place */
    const float *heat; /* [n_layer][n_expert]: share of the last tokens that used it, 0 to 1 */
    const smoe_stats *stats;
    double tok_per_s, bytes_per_s, hit_share, busy_share, wait_share; /* of the last second or so */
    uint64_t n_tok;
    int64_t max_tok;   /* < 0: no bound */
    const char *text;  /* UTF-8, may be cut anywhere; control characters are shown as spaces */
    size_t text_bytes; /* the end of it is shown */
    bool has_colour;   /* else shades and underlines only */
} live_picture;

enum { LIVE_COLUMNS = 240, LIVE_ROWS = 100 }; /* what is used of larger terminals */
/* A cell may begin with a change of style. */
#define LIVE_FRAME_BYTES ((size_t)LIVE_COLUMNS * LIVE_ROWS * 24 + 4096)

/* A whole screen of at most n_row lines of at most n_column columns, from the cursor's home on.
 * Returns its bytes, at most LIVE_FRAME_BYTES, without a NUL. */
size_t live_frame(const live_picture *p, int n_column, int n_row, char out[LIVE_FRAME_BYTES]);

/* ---- the terminal */

/* Whether standard error is a terminal that can be drawn on; prints the error when not. */
bool live_is_possible(const char *command_name);
/* Takes the screen over. Ctrl-C is the caller's; signals that end or stop the program give it back
 * first. max_tok < 0: no bound. */
int live_open(const smoe_model *model, int32_t max_tok, smoe_error *err);
/* After each token, with its text. Redraws when it is time to. */
void live_token(const char *text, size_t bytes);
/* Gives the screen back. Nothing without an open view. */
void live_close(void);
/* Gives the screen back for a line on standard error; the next frame takes it again. */
void live_suspend(void);

#endif
