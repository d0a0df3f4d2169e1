/* Line plots as SVG; see plot.h. */
#include "cli/plot.h"

#include <math.h>

enum { WIDTH = 800, HEIGHT = 480, LEFT = 64, RIGHT = 150, TOP = 60, BOTTOM = 52 };
enum { X_TICKS = 8, Y_TICKS = 5 };

/* Colours that remain apart for colour-blind readers (Okabe and Ito 2008), and dashes for print. */
static const struct style {
    const char *colour, *dash;
} style[PLOT_SERIES_MAX] = {{"#0072b2", "none"},    {"#e69f00", "6 3"},  {"#009e73", "2 3"},
                            {"#cc79a7", "8 3 2 3"}, {"#d55e00", "none"}, {"#000000", "4 4"},
                            {"#56b4e9", "none"},    {"#999999", "2 2"}};

static void put_text(FILE *f, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            fputc((unsigned char)*text < ' ' ? ' ' : *text, f);
        }
    }
}

static void put_label(FILE *f, double x, double y, const char *attributes, const char *text) {
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    put_text(f, text);
    fputs("</text>\n", f);
}

/* A step of 1, 2 or 5 times a power of ten that gives at most n of them. */
static double nice_step(double range, int n) {
    double unit = pow(10, floor(log10(range / n)));
    const double factor[] = {1, 2, 5, 10};
    for (int i = 0; i < 4; i++) {
        if (factor[i] * unit * n >= range) {
            return factor[i] * unit;
        }
    }
    return 10 * unit;
}

static double x_at(const plot *p, double x) {
    double most = p->n && p->x[p->n - 1] > 0 ? p->x[p->n - 1] : 1;
    return LEFT + (WIDTH - LEFT - RIGHT) * x / most;
}

static double y_at(const plot *p, double y) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / p->y_max;
}

static void put_axes(FILE *f, const plot *p) {
    double x_most = p->n && p->x[p->n - 1] > 0 ? p->x[p->n - 1] : 1;
    double x_step = nice_step(x_most, X_TICKS), y_step = nice_step(p->y_max, Y_TICKS);
    char text[32];
    for (int i = 0; i * y_step <= p->y_max * (1 + 1e-9); i++) {
        double y = y_at(p, i * y_step);
        fprintf(f, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", LEFT, y, WIDTH - RIGHT);
        snprintf(text, sizeof text, "%g", i * y_step);
        put_label(f, LEFT - 8, y + 4, "text-anchor=\"end\"", text);
    }
    for (int i = 0; i * x_step <= x_most * (1 + 1e-9); i++) {
        double x = x_at(p, i * x_step);
        fprintf(f, "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/>\n", x, TOP, HEIGHT - BOTTOM);
        snprintf(text, sizeof text, "%g", i * x_step);
        put_label(f, x, HEIGHT - BOTTOM + 18, "text-anchor=\"middle\"", text);
    }
    fprintf(f, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n", LEFT, TOP,
            HEIGHT - BOTTOM, WIDTH - RIGHT);
    put_label(f, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12, "text-anchor=\"middle\"", p->x_label);
    snprintf(text, sizeof text, "rotate(-90 18 %d)", (TOP + HEIGHT - BOTTOM) / 2);
    fprintf(f, "<g transform=\"%s\">", text);
    put_label(f, 18, (TOP + HEIGHT - BOTTOM) / 2.0, "text-anchor=\"middle\"", p->y_label);
    fputs("</g>\n", f);
}

static void put_series(FILE *f, const plot *p, size_t s) {
    const char *colour = style[s].colour, *dash = style[s].dash;
    double y = TOP + 16 + 22 * (double)s;
    fprintf(f,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" "
            "points=\"",
            colour, dash);
    for (size_t i = 0; i < p->n; i++) {
        fprintf(f, "%s%.1f,%.1f", i ? " " : "", x_at(p, p->x[i]), y_at(p, p->series[s].y[i]));
    }
    fputs("\"/>\n", f);
    for (size_t i = 0; i < p->n; i++) {
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x_at(p, p->x[i]),
                y_at(p, p->series[s].y[i]), colour);
    }
    fprintf(f,
            "<path d=\"M%d %.1fh28\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\"/>\n",
            WIDTH - RIGHT + 16, y - 4, colour, dash);
    put_label(f, WIDTH - RIGHT + 52, y, "", p->series[s].name);
}

void plot_write(FILE *f, const plot *p) {
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_label(f, LEFT, 26, "font-size=\"17\"", p->title);
    put_label(f, LEFT, 46, "fill=\"#555\"", p->subtitle);
    put_axes(f, p);
    for (size_t s = 0; s < p->n_series && s < PLOT_SERIES_MAX; s++) {
        put_series(f, p, s);
    }
    fputs("</svg>\n", f);
}
