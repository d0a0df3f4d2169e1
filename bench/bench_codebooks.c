/* Derives the value tables of src/formats/codebook.c and prints them beside the built-in ones.
 *
 * Blocks of normal values, a quarter of the blocks heavy-tailed, are quantised with the tables so
 * far: each block with its best sign, each run in it with its best table and scale (tried in a grid
 * and refitted). Then each table value moves to the least-squares optimum over all weights that
 * chose it, each block's error counting relative to its power. This repeats as Lloyd and Max do for
 * one table. The result is scaled so that its largest magnitude fits the integer range, and
 * rounded.
 *
 * Arithmetic is double and the random numbers are fixed, so every machine prints the same; about
 * a minute.
 */
#include "bench.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "formats/dtype.h"

enum { BLOCK = 64, N_BLOCK = 6000, MAX_BOOK = 4, MAX_VALUE = 16, N_GRID = 14 };

typedef struct design {
    int n_book;
    int n_value;
    int run;           /* weights that share a scale and a table */
    int runs_per_sign; /* runs that share a sign */
    int rounds;
    double value[MAX_BOOK][MAX_VALUE];
} design;

typedef struct run_fit {
    double scale;
    double error;
    int book;
} run_fit;

static double samples[N_BLOCK * BLOCK];
static uint64_t rand_state;

/* splitmix64 (Steele, Lea, Flood 2014), to (0, 1) */
static double uniform(void) {
    uint64_t z = rand_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

static double normal(void) {
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static void make_samples(void) {
    rand_state = 1;
    for (int b = 0; b < N_BLOCK; b++) {
        int heavy = uniform() < 0.25;
        for (int i = 0; i < BLOCK; i++) {
            double chi = 0; /* Student's t: a normal over the root of a mean of 6 squares */
            for (int k = 0; heavy && k < 6; k++) {
                double g = normal();
                chi += g * g;
            }
            samples[b * BLOCK + i] = normal() / (heavy ? sqrt(chi / 6) : 1);
        }
    }
}

static int nearest(const double *value, int n, double v) {
    int index = 0;
    for (int i = 0; i + 1 < n; i++) {
        index += v > (value[i] + value[i + 1]) / 2;
    }
    return index;
}

/* The squared error at this scale, and the scale that is best for the values chosen. */
static double error_at(const double *value, int n_value, const double *x, int n, double d,
                       double *refit) {
    double error = 0, xv = 0, vv = 0;
    for (int i = 0; i < n; i++) {
        double v = value[nearest(value, n_value, x[i] / d)];
        error += (x[i] - d * v) * (x[i] - d * v);
        xv += x[i] * v;
        vv += v * v;
    }
    *refit = vv > 0 ? xv / vv : 0;
    return error;
}

static run_fit fit_run(const design *g, const double *x, double sign) {
    run_fit best = {0, INFINITY, 0};
    double max = 0;
    for (int i = 0; i < g->run; i++) {
        max = fmax(max, fabs(x[i]));
    }
    for (int b = 0; b < g->n_book; b++) {
        const double *value = g->value[b];
        double extreme = fmax(fabs(value[0]), fabs(value[g->n_value - 1]));
        for (int i = 0; i < N_GRID; i++) {
            double refit, d = sign * max / extreme * (0.6 + 0.07 * i);
            for (int again = 0; again < 2; again++, d = refit) {
                double error = error_at(value, g->n_value, x, g->run, d, &refit);
                if (error < best.error) {
                    best = (run_fit){d, error, b};
                }
                if (refit * sign <= 0) {
                    break;
                }
            }
        }
    }
    return best;
}

/* The better sign's fits of runs_per_sign runs; returns their squared error. */
static double fit_block(const design *g, const double *x, run_fit *fit) {
    double least = INFINITY;
    for (double sign = -1; sign <= 1; sign += 2) {
        run_fit trial[BLOCK / 16];
        double error = 0;
        for (int r = 0; r < g->runs_per_sign; r++) {
            trial[r] = fit_run(g, x + r * g->run, sign);
            error += trial[r].error;
        }
        if (error < least) {
            least = error;
            memcpy(fit, trial, sizeof trial);
        }
    }
    return least;
}

/* One pass over all samples; moves the values when asked. Returns the relative RMS error. */
static double pass(design *g, int move) {
    double xv[MAX_BOOK][MAX_VALUE] = {{0}}, vv[MAX_BOOK][MAX_VALUE] = {{0}}, sum = 0;
    int n = g->run * g->runs_per_sign, n_block = N_BLOCK * BLOCK / n;
    for (int b = 0; b < n_block; b++) {
        const double *x = samples + b * n;
        run_fit fit[BLOCK / 16];
        double power = 0;
        for (int i = 0; i < n; i++) {
            power += x[i] * x[i];
        }
        sum += fit_block(g, x, fit) / power;
        for (int i = 0; i < n; i++) {
            const run_fit *f = &fit[i / g->run];
            int v = nearest(g->value[f->book], g->n_value, x[i] / f->scale);
            xv[f->book][v] += f->scale * x[i] / power;
            vv[f->book][v] += f->scale * f->scale / power;
        }
    }
    for (int i = 0; move && i < g->n_book * g->n_value; i++) {
        int b = i / g->n_value, v = i % g->n_value;
        if (vv[b][v] > 0) {
            g->value[b][v] = xv[b][v] / vv[b][v];
        }
    }
    return sqrt(sum / n_block);
}

/* Rounds each table so that its largest magnitude becomes top, or bottom where that is negative. */
static void round_values(design *g, double bottom, double top) {
    for (int b = 0; b < g->n_book; b++) {
        double low = g->value[b][0], high = g->value[b][g->n_value - 1];
        double factor = -low > high ? bottom / low : top / high;
        for (int v = 0; v < g->n_value; v++) {
            g->value[b][v] = rint(g->value[b][v] * factor);
        }
    }
}

static void print_values(const design *g, const char *title, double error) {
    printf("%s, relative RMS error %.4f\n", title, error);
    for (int b = 0; b < g->n_book; b++) {
        for (int v = 0; v < g->n_value; v++) {
            printf("%s%.4g", v ? ", " : "    ", g->value[b][v]);
        }
        printf("\n");
    }
    fflush(stdout);
}

static void derive(design *g, const char *name, const int8_t *built_in, double bottom, double top) {
    for (int i = 0; i < g->rounds; i++) {
        pass(g, 1);
    }
    printf("%s\n", name);
    print_values(g, "  derived", pass(g, 0));
    round_values(g, bottom, top);
    print_values(g, "  rounded", pass(g, 0));
    for (int i = 0; i < g->n_book * g->n_value; i++) {
        g->value[i / g->n_value][i % g->n_value] = built_in[i];
    }
    print_values(g, "  built in", pass(g, 0));
}

int bench_codebooks(int argc, char **argv) {
    (void)argc;
    (void)argv;
    make_samples();
    design q4 = {.n_book = 1, .n_value = 16, .run = 32, .runs_per_sign = 1, .rounds = 60};
    for (int v = 0; v < 16; v++) {    /* lopsided from the start: symmetry would stay symmetric */
        double t = (v + 0.5) / 8 - 1; /* to the left, since -64 is the larger end */
        q4.value[0][v] = 1.4 * t + 1.6 * t * t * t - 0.25;
    }
    derive(&q4, "Q4", Q4_CODEBOOK, -64, 63);
    design q2 = {.n_book = 4,
                 .n_value = 4,
                 .run = 16,
                 .runs_per_sign = 4,
                 .rounds = 40,
                 .value = {{-1.5, -0.45, 0.45, 1.5},
                           {-1, -0.2, 0.5, 1.8},
                           {-1.8, -0.5, 0.2, 1},
                           {-1, -0.6, 0.6, 1}}};
    derive(&q2, "Q2", Q2_CODEBOOK[0], -62, 62);
    return 0;
}
