/* Line plots as SVG: axes, grid, one line a series, a legend. Knows nothing of what is plotted. */
#ifndef SMOE_CLI_PLOT_H
#define SMOE_CLI_PLOT_H

#include <stdio.h>

enum { PLOT_SERIES_MAX = 8 };

typedef struct plot {
    const char *title, *subtitle;
    const char *x_label, *y_label;
    const double *x; /* [n], ascending, from 0 on */
    size_t n;
    double y_max; /* the y axis goes from 0 to this */
    struct plot_series {
        const char *name;
        const double *y; /* [n] */
    } series[PLOT_SERIES_MAX];
    size_t n_series;
} plot;

/* Writes one SVG document; texts are escaped. Errors stay in the stream. */
void plot_write(FILE *f, const plot *p);

#endif
