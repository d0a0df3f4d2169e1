/* The terminal of the live view, and what it remembers between two frames; see live.h. */
#include "cli/live.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "cli/common.h"

#define FRAME_NS      200000000u
#define HALF_LIFE_TOK 32.0 /* of the heat */
enum { TEXT_BYTES = 16384, SAMPLES = 6, SIGNALS = 4 };

static const int caught[SIGNALS] = {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};

static struct live {
    const smoe_model *model;
    int32_t max_tok;
    int32_t n_layer, n_expert;
    uint8_t *place;            /* [n_layer][n_expert], as are the next three */
    uint32_t *uses, *last_use; /* at this frame and at the one before */
    float *heat;
    char *frame;
    char *text; /* the end of what was written */
    size_t text_bytes;
    uint64_t n_tok;
    uint64_t next_ns;
    struct sample {
        uint64_t ns;
        smoe_stats stats;
    } sample[SAMPLES]; /* the latest last */
    int n_sample;
    uint64_t seen_decode_tok, seen_prefill_tok;
    bool has_colour;
    bool has_signals;
    struct sigaction before[SIGNALS];
} live;

static volatile sig_atomic_t is_shown;

/* ---- the terminal */

static const char enter_text[] = "\033[?1049h\033[?25l\033[?7l\033[2J";
static const char leave_text[] = "\033[0m\033[?7h\033[?25h\033[?1049l";

/* Async-signal-safe. */
static void leave(void) {
    if (is_shown) {
        is_shown = 0;
        ssize_t n = write(STDERR_FILENO, leave_text, sizeof leave_text - 1);
        (void)n; /* a terminal that is gone needs nothing */
    }
}

static void on_signal(int number) {
    leave();
    if (number == SIGTSTP) {
        raise(SIGSTOP); /* the next frame takes the screen again */
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

bool live_is_possible(const char *command_name) {
    const char *term = getenv("TERM");
    if (!isatty(STDERR_FILENO)) {
        fail_text("%s: --live draws on standard error, which is no terminal", command_name);
        return false;
    }
    if (!term || !*term || strcmp(term, "dumb") == 0) {
        fail_text("%s: --live needs a terminal whose cursor moves; TERM is \"%s\"", command_name,
                  term ? term : "");
        return false;
    }
    return true;
}

static bool find_colour(void) {
    const char *no = getenv("NO_COLOR"); /* https://no-color.org */
    const char *term = getenv("TERM");
    const char *many = getenv("COLORTERM");
    return !(no && *no) && ((many && *many) || (term && strstr(term, "256color")));
}

/* ---- a frame */

static void note_heat(const smoe_stats *s) {
    uint64_t n_decode = s->decode_tok - live.seen_decode_tok;
    double n = (double)(n_decode + (s->prefill_tok != live.seen_prefill_tok));
    float weight = (float)(1 - exp2(-n / HALF_LIFE_TOK));
    size_t n_all = (size_t)live.n_layer * (size_t)live.n_expert;
    live.seen_decode_tok = s->decode_tok;
    live.seen_prefill_tok = s->prefill_tok;
    for (size_t i = 0; i < n_all && n > 0; i++) {
        float part = (float)((double)(live.uses[i] - live.last_use[i]) / n);
        live.heat[i] += weight * ((part < 1 ? part : 1) - live.heat[i]);
        live.last_use[i] = live.uses[i];
    }
}

static void note_sample(uint64_t now, const smoe_stats *s) {
    if (live.n_sample == SAMPLES) {
        memmove(live.sample, live.sample + 1, sizeof live.sample - sizeof *live.sample);
        live.n_sample--;
    }
    live.sample[live.n_sample++] = (struct sample){now, *s};
}

static void fill_rates(live_picture *p) {
    const struct sample *a = &live.sample[0], *b = &live.sample[live.n_sample - 1];
    double s = (double)(b->ns - a->ns) * 1e-9;
    uint64_t uses = b->stats.uses - a->stats.uses;
    uint64_t tok =
        b->stats.decode_tok - a->stats.decode_tok + b->stats.prefill_tok - a->stats.prefill_tok;
    if (s > 0) {
        double busy = (double)(b->stats.drive_busy_ns - a->stats.drive_busy_ns) * 1e-9 / s;
        p->tok_per_s = (double)tok / s;
        p->bytes_per_s = (double)(b->stats.drive_bytes - a->stats.drive_bytes) / s;
        p->busy_share = busy < 1 ? busy : 1;
        p->wait_share = (double)(b->stats.wait_ns - a->stats.wait_ns) * 1e-9 / s;
    }
    p->hit_share = uses ? (double)(b->stats.hits - a->stats.hits) / (double)uses : 0;
}

static void draw(uint64_t now) {
    struct winsize size;
    smoe_stats stats;
    smoe_model_stats(live.model, &stats);
    smoe_model_experts(live.model, live.place, live.uses);
    note_heat(&stats);
    note_sample(now, &stats);
    live_picture p = {.n_layer = live.n_layer,
                      .n_expert = live.n_expert,
                      .place = live.place,
                      .heat = live.heat,
                      .stats = &stats,
                      .n_tok = live.n_tok,
                      .max_tok = live.max_tok,
                      .text = live.text,
                      .text_bytes = live.text_bytes,
                      .has_colour = live.has_colour};
    fill_rates(&p);
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    size_t n = live_frame(&p, is_known ? size.ws_col : 80, is_known ? size.ws_row : 24, live.frame);
    if (!is_shown) {
        is_shown = 1;
        fwrite(enter_text, 1, sizeof enter_text - 1, stderr);
    }
    fwrite(live.frame, 1, n, stderr);
    fflush(stderr);
    live.next_ns = now_ns() + FRAME_NS;
}

/* ---- open to close */

static int take_buffers(void) {
    size_t n = (size_t)live.n_layer * (size_t)live.n_expert;
    live.place = mem_array(n, sizeof *live.place);
    live.uses = mem_array(n, sizeof *live.uses);
    live.last_use = mem_array(n, sizeof *live.last_use);
    live.heat = mem_array(n, sizeof *live.heat);
    live.frame = mem_array(LIVE_FRAME_BYTES, 1);
    live.text = mem_array(TEXT_BYTES, 1);
    return live.place && live.uses && live.last_use && live.heat && live.frame && live.text ? 0
                                                                                            : -1;
}

int live_open(const smoe_model *model, int32_t max_tok, smoe_error *err) {
    const smoe_info *info = smoe_model_info(model);
    live = (struct live){.model = model,
                         .max_tok = max_tok,
                         .n_layer = info->n_moe_layer,
                         .n_expert = info->n_expert,
                         .has_colour = find_colour()};
    if (take_buffers() != 0) {
        live_close();
        return err_no_memory(err, LIVE_FRAME_BYTES);
    }
    struct sigaction action = {.sa_handler = on_signal};
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(caught[i], &action, &live.before[i]);
    }
    live.has_signals = true;
    draw(now_ns());
    return SMOE_OK;
}

/* Keeps the end. */
static void add_text(const char *text, size_t bytes) {
    if (bytes > TEXT_BYTES / 2) {
        text += bytes - TEXT_BYTES / 2;
        bytes = TEXT_BYTES / 2;
    }
    if (live.text_bytes + bytes > TEXT_BYTES) {
        memmove(live.text, live.text + live.text_bytes - TEXT_BYTES / 2, TEXT_BYTES / 2);
        live.text_bytes = TEXT_BYTES / 2;
    }
    memcpy(live.text + live.text_bytes, text, bytes);
    live.text_bytes += bytes;
}

void live_token(const char *text, size_t bytes) {
    uint64_t now = now_ns();
    if (!live.model) {
        return;
    }
    live.n_tok++;
    add_text(text, bytes);
    if (live.n_tok > 1 && now < live.next_ns) {
        return;
    }
    draw(now);
    if (live.n_tok == 1) { /* the prompt is no part of the rates from here on */
        live.sample[0] = live.sample[live.n_sample - 1];
        live.n_sample = 1;
    }
}

void live_suspend(void) {
    leave();
}

void live_close(void) {
    leave();
    for (int i = 0; i < SIGNALS && live.has_signals; i++) {
        sigaction(caught[i], &live.before[i], NULL);
    }
    free(live.place);
    free(live.uses);
    free(live.last_use);
    free(live.heat);
    free(live.frame);
    free(live.text);
    live = (struct live){0};
}
