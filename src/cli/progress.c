/* Progress of long work on stderr: a bar with rate and time left on a terminal; elsewhere a plain
 * line each tenth of the way, so that logs stay short. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/common.h"

static int last_tenth = -1;
static bool bar_open;

static void print_left(char out[32], const smoe_progress *p) {
    double rate = p->elapsed_ns ? (double)p->fresh_bytes * 1e9 / (double)p->elapsed_ns : 0;
    double left_s = rate > 0 ? (double)(p->total_bytes - p->done_bytes) / rate : 0;
    if (p->done_bytes >= p->total_bytes) {
        snprintf(out, 32, "done");
    } else if (rate <= 0) {
        snprintf(out, 32, "--");
    } else if (left_s >= 3600) {
        long minutes = (long)(left_s / 60);
        snprintf(out, 32, "%ld h %02ld min left", minutes / 60, minutes % 60);
    } else if (left_s >= 60) {
        snprintf(out, 32, "%d min %02d s left", (int)left_s / 60, (int)left_s % 60);
    } else {
        snprintf(out, 32, "%d s left", (int)(left_s + 0.5));
    }
}

bool show_progress(void *user, const smoe_progress *p) {
    const bool *quiet = user;
    char bar[31];
    char done[24];
    char total[24];
    char rate[24];
    char left[32];
    if (interrupted()) {
        return true;
    }
    if (quiet && *quiet) {
        return false;
    }
    double part = p->total_bytes ? (double)p->done_bytes / (double)p->total_bytes : 1;
    uint64_t per_s =
        p->elapsed_ns ? (uint64_t)((double)p->fresh_bytes * 1e9 / (double)p->elapsed_ns) : 0;
    bool terminal = isatty(STDERR_FILENO);
    int tenth = (int)(part * 10);
    if (!terminal && tenth == last_tenth) {
        return false;
    }
    last_tenth = tenth;
    for (int i = 0; i < 30; i++) {
        bar[i] = i < (int)(part * 30) ? '#' : '.';
    }
    bar[30] = '\0';
    print_left(left, p);
    fprintf(stderr, "%s%s [%s] %3.0f %%  %s of %s  %s/s  %s%s", terminal ? "\r" : "", p->phase, bar,
            part * 100, format_bytes(done, p->done_bytes), format_bytes(total, p->total_bytes),
            format_bytes(rate, per_s), left, terminal ? "\033[K" : "\n");
    bar_open = terminal;
    return false;
}

void end_progress(void) {
    if (bar_open) {
        fputc('\n', stderr);
    }
    bar_open = false;
    last_tenth = -1;
}
