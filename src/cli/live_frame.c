/* One frame of the live view; see live.h. Owns no state, does no I/O: numbers in, a screen out. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/log.h"
#include "base/utf8.h"
#include "cli/live.h"

enum { LABEL_COLUMNS = 8, LEVELS = 8 };

typedef struct screen {
    char *out;
    size_t bytes;
    int n_column, n_row;
    int row; /* lines begun */
    int column;
    const char *style; /* in force; "" is plain */
} screen;

static void put(screen *s, const char *bytes, size_t n) {
    if (n <= LIVE_FRAME_BYTES - s->bytes) {
        memcpy(s->out + s->bytes, bytes, n);
        s->bytes += n;
    }
}

static void put_style(screen *s, const char *style) {
    if (strcmp(style, s->style) != 0) {
        put(s, "\033[0", 3);
        put(s, style, strlen(style));
        put(s, "m", 1);
        s->style = style;
    }
}

/* The next line; false when the screen is full. */
static bool begin_line(screen *s) {
    if (s->row == s->n_row) {
        return false;
    }
    put_style(s, "");
    /* cleared before it is written: a cursor behind the last column would take that with it */
    put(s, s->row > 0 ? "\r\n\033[K" : "\033[H\033[K", s->row > 0 ? 5 : 6);
    s->row++;
    s->column = 0;
    return true;
}

/* One character of the given width, or nothing where it does not fit. */
static void put_char(screen *s, const char *bytes, size_t n, int width) {
    if (s->column + width <= s->n_column) {
        put(s, bytes, n);
        s->column += width;
    }
}

/* ASCII, cut at the edge. */
__attribute__((format(printf, 2, 3))) static void put_text(screen *s, const char *format, ...) {
    char text[LIVE_COLUMNS + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (const char *p = text; *p; p++) {
        put_char(s, p, 1, 1);
    }
}

static void put_bar(screen *s, double part, int width) {
    int full = part > 0 ? (int)lround((part < 1 ? part : 1) * width) : 0;
    put_text(s, "[");
    for (int i = 0; i < width; i++) {
        put_text(s, i < full ? "#" : ".");
    }
    put_text(s, "]");
}

/* ---- the numbers */

static void put_head(screen *s, const live_picture *p) {
    begin_line(s);
    put_style(s, ";1");
    put_text(s, "%.1f tok/s", p->tok_per_s);
    put_style(s, "");
    put_text(s, "  token %llu", (unsigned long long)p->n_tok);
    if (p->max_tok >= 0) {
        put_text(s, " of %lld", (long long)p->max_tok);
    }
    put_text(s, "  hits %.1f %%  waiting %.0f %%  lookahead %s", 100 * p->hit_share,
             100 * p->wait_share, p->stats->lookahead_on ? "on" : "off");
    if (p->stats->n_resize) {
        put_text(s, "  %llu resizes", (unsigned long long)p->stats->n_resize);
    }
}

static int bar_columns(const screen *s) {
    int width = s->n_column - 56; /* what the numbers beside it take */
    return width > 40 ? 40 : width < 8 ? 8 : width;
}

static void put_ring(screen *s, const live_picture *p) {
    char used[24], all[24];
    double total = (double)p->stats->ring_bytes;
    int64_t n_ready = 0, n = (int64_t)p->n_layer * p->n_expert;
    if (!begin_line(s)) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        n_ready += p->place[i] == SMOE_PLACE_RING;
    }
    put_text(s, "ring  ");
    put_bar(s, total > 0 ? (double)p->stats->ring_used_bytes / total : 0, bar_columns(s));
    put_text(s, " %s of %s, %lld of %lld experts", format_bytes(used, p->stats->ring_used_bytes),
             format_bytes(all, p->stats->ring_bytes), (long long)n_ready, (long long)n);
}

static void put_drive(screen *s, const live_picture *p) {
    char now[24], most[24];
    double probed = p->stats->probed_bytes_per_s;
    if (!begin_line(s)) {
        return;
    }
    put_text(s, "drive ");
    if (probed > 0) {
        put_bar(s, p->bytes_per_s / probed, bar_columns(s));
    }
    put_text(s, "%s%s/s", probed > 0 ? " " : "", format_bytes(now, (uint64_t)p->bytes_per_s));
    if (probed > 0) {
        put_text(s, " of the probed %s/s", format_bytes(most, (uint64_t)probed));
    } else {
        put_text(s, ", not probed");
    }
    put_text(s, ", busy %.0f %%", 100 * p->busy_share);
}

/* ---- the map */

/* A grid of n folded into groups of step, so that at most room remain. */
static int32_t fold_step(int32_t n, int room) {
    return room < 1 ? n : (n + room - 1) / room;
}

typedef struct cell {
    int level; /* 0 to LEVELS - 1 */
    uint8_t place;
} cell;

/* Of the experts in one cell the hottest, and the nearest place. */
static cell fold(const live_picture *p, int32_t layer, int32_t n_layer, int32_t expert,
                 int32_t n_expert) {
    cell c = {0, SMOE_PLACE_DRIVE};
    float heat = 0;
    for (int32_t l = layer; l < layer + n_layer && l < p->n_layer; l++) {
        for (int32_t e = expert; e < expert + n_expert && e < p->n_expert; e++) {
            size_t at = (size_t)l * (size_t)p->n_expert + (size_t)e;
            heat = p->heat[at] > heat ? p->heat[at] : heat;
            c.place = p->place[at] > c.place ? p->place[at] : c.place;
        }
    }
    /* by the root: most experts are used by a few tokens in a hundred */
    c.level = heat < 0.004f ? 0 : (int)ceilf(sqrtf(heat < 1 ? heat : 1) * (LEVELS - 1));
    return c;
}

static const char shade[LEVELS + 1] = " .:-=+*#";

static const char *style_of(const live_picture *p, cell c) {
    static const char *const colour[3][LEVELS] = {
        {";38;5;240", ";38;5;240", ";38;5;244", ";38;5;248", ";38;5;179", ";38;5;214", ";38;5;208",
         ";38;5;203"},
        {";48;5;58", ";48;5;58;38;5;250", ";48;5;58;38;5;250", ";48;5;58;38;5;252",
         ";48;5;58;38;5;179", ";48;5;58;38;5;214", ";48;5;58;38;5;208", ";48;5;58;38;5;203"},
        {";48;5;24", ";48;5;24;38;5;250", ";48;5;24;38;5;252", ";48;5;24;38;5;255",
         ";48;5;24;38;5;222", ";48;5;24;38;5;214", ";48;5;24;38;5;208", ";48;5;24;38;5;203"}};
    static const char *const plain[3] = {"", ";4", ";7"};
    return p->has_colour ? colour[c.place][c.level] : plain[c.place];
}

static void put_legend(screen *s, const live_picture *p, int32_t layer_step, int32_t expert_step) {
    if (!begin_line(s)) {
        return;
    }
    put_text(s, "layers by experts, use \"%s\", ", shade + 1);
    put_style(s, style_of(p, (cell){1, SMOE_PLACE_RING}));
    put_text(s, "in the ring");
    put_style(s, "");
    put_text(s, ", ");
    put_style(s, style_of(p, (cell){1, SMOE_PLACE_READING}));
    put_text(s, "being read");
    put_style(s, "");
    if (layer_step > 1 || expert_step > 1) {
        put_text(s, "; a cell: best of %d x %d", layer_step, expert_step);
    }
}

static void put_map(screen *s, const live_picture *p, int n_line) {
    int room = s->n_column - LABEL_COLUMNS;
    int32_t layer_step = fold_step(p->n_layer, n_line);
    int32_t expert_step = fold_step(p->n_expert, room);
    int wide = expert_step == 1 && p->n_expert > 0 && room / p->n_expert >= 2 ? 2 : 1;
    put_legend(s, p, layer_step, expert_step);
    for (int32_t l = 0; n_line > 0 && l < p->n_layer && begin_line(s); l += layer_step) {
        int32_t last = l + layer_step <= p->n_layer ? l + layer_step - 1 : p->n_layer - 1;
        char label[32];
        snprintf(label, sizeof label, last > l ? "%d-%d" : "%d", l, last);
        put_text(s, "%-*s", LABEL_COLUMNS, label);
        for (int32_t e = 0; e < p->n_expert; e += expert_step) {
            cell c = fold(p, l, layer_step, e, expert_step);
            put_style(s, style_of(p, c));
            for (int i = 0; i < wide; i++) {
                put_char(s, &shade[c.level], 1, 1);
            }
        }
    }
}

/* ---- the text */

/* The character at text, as it may be shown: control characters and what is malformed become
 * spaces. Returns its bytes. */
static size_t next_char(const char *text, size_t n, uint8_t shown[4], size_t *shown_bytes,
                        int *width) {
    uint32_t cp;
    size_t bytes = utf8_decode((const uint8_t *)text, n, &cp);
    *width = bytes ? utf8proc_charwidth((utf8proc_int32_t)cp) : 1;
    if (bytes == 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) {
        cp = ' ';
        *width = 1;
    }
    *shown_bytes = utf8_encode(cp, shown);
    return bytes ? bytes : 1;
}

/* Breaks the text into lines and puts those from first on. Returns their number. */
static int wrap(screen *s, const live_picture *p, int first) {
    int line = 0, column = 0;
    bool is_shown = first == 0 && begin_line(s);
    for (size_t at = 0; at < p->text_bytes;) {
        uint8_t shown[4];
        size_t shown_bytes;
        int width;
        bool is_break = p->text[at] == '\n';
        size_t used = next_char(p->text + at, p->text_bytes - at, shown, &shown_bytes, &width);
        if (is_break || column + width > s->n_column) {
            line++;
            column = 0;
            is_shown = line >= first && begin_line(s);
        }
        if (!is_break) {
            if (is_shown) {
                put_char(s, (const char *)shown, shown_bytes, width);
            }
            column += width;
        }
        at += used;
    }
    return line + 1;
}

static void put_end_of_text(screen *s, const live_picture *p) {
    screen blind = *s; /* counts lines; shows none */
    int room = s->n_row - s->row;
    int n_line = wrap(&blind, p, INT32_MAX);
    wrap(s, p, n_line > room ? n_line - room : 0);
}

size_t live_frame(const live_picture *p, int n_column, int n_row, char out[LIVE_FRAME_BYTES]) {
    screen s = {.out = out,
                .n_column = n_column < LIVE_COLUMNS ? n_column : LIVE_COLUMNS,
                .n_row = n_row < LIVE_ROWS ? n_row : LIVE_ROWS,
                .style = ""};
    if (s.n_column < 1 || s.n_row < 1) {
        return 0;
    }
    put_head(&s, p);
    put_ring(&s, p);
    put_drive(&s, p);
    /* a quarter, and at least five lines, for the text, with a rule above it */
    int text_rows = s.n_row / 4 > 5 ? s.n_row / 4 : 5;
    put_map(&s, p, s.n_row - s.row - 1 - text_rows - 1);
    if (begin_line(&s)) {
        for (int i = 0; i < s.n_column; i++) {
            put_text(&s, "-");
        }
        put_end_of_text(&s, p);
    }
    put_style(&s, "");
    if (s.row < s.n_row) {
        put(&s, "\r\n\033[J", 5);
    }
    return s.bytes;
}
