/* Progress of long work on stderr: a bar with rate and time left on a terminal; elsewhere a plain
 * line each tenth of the way, so that logs stay short. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/common.h"

static int last_tenth = -1;
static bool bar_open;

static void print_left(char out[48], const smoe_progress *p) {
    double rate = p->elapsed_ns ? (double)p->fresh_bytes * 1e9 / (double)p->elapsed_ns : 0;
    double left_s = rate > 0 ? (double)(p->total_bytes - p->done_bytes) / rate : 0;
    if (p->done_bytes >= p->total_bytes) {
        snprintf(out, 48, "done");
    } else if (rate <= 0) {
        snprintf(out, 48, "--");
    } else if (left_s >= 3600) {
        long minutes = (long)(left_s / 60);
        snprintf(out, 48, "%ld h %02ld min left", minutes / 60, minutes % 60);
    } else if (left_s >= 60) {
        snprintf(out, 48, "%d min %02d s left", (int)left_s / 60, (int)left_s % 60);
    } else {
        snprintf(out, 48, "%d s left", (int)(left_s + 0.5));
    }
}

enum { BAR_MAX = 30, LINE_MAX_COLUMNS = 400 };

static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* The text, with a bar before it where the line has room for one. */
static void print_line(const char *phase, double part, const char *text) {
    char bar[BAR_MAX + 1];
    bool terminal = isatty(STDERR_FILENO);
    int room = terminal ? terminal_columns() - (int)(strlen(phase) + strlen(text)) - 5 : BAR_MAX;
    int width = room < BAR_MAX ? room : BAR_MAX;
    width = width < 0 ? 0 : width;
    for (int i = 0; i < width; i++) {
        bar[i] = i < (int)(part * width) ? '#' : '.';
    }
    bar[width] = '\0';
    fprintf(stderr, "%s%s %s%s%s%s%s", terminal ? "\r" : "", phase, width ? "[" : "", bar,
            width ? "] " : "", text, terminal ? "\033[K" : "\n");
    bar_open = terminal;
}

bool show_progress(void *user, const smoe_progress *p) {
    const bool *quiet = user;
    char text[LINE_MAX_COLUMNS];
    char done[24];
    char total[24];
    char rate[24];
    char left[48];
    if (interrupted()) {
        return true;
    }
    if (quiet && *quiet) {
        return false;
    }
    double part = p->total_bytes ? (double)p->done_bytes / (double)p->total_bytes : 1;
    uint64_t per_s =
        p->elapsed_ns ? (uint64_t)((double)p->fresh_bytes * 1e9 / (double)p->elapsed_ns) : 0;
    int tenth = (int)(part * 10);
    if (!isatty(STDERR_FILENO) && tenth == last_tenth) {
        return false;
    }
    last_tenth = tenth;
    print_left(left, p);
    snprintf(text, sizeof text, "%3.0f %%  %s of %s  %s/s  %s", part * 100,
             format_bytes(done, p->done_bytes), format_bytes(total, p->total_bytes),
             format_bytes(rate, per_s), left);
    print_line(p->phase, part, text);
    return false;
}

void end_progress(void) {
    if (bar_open) {
        fputc('\n', stderr);
    }
    bar_open = false;
    last_tenth = -1;
}
