/* Quantisers of the block types; see quantise.h. Works block by block on the stack, allocates
 * nothing, and is called from any thread.
 *
 * With weights x, codebook values v (nearest to x / d) and a scale d, the squared error is sum (x -
 * d v)^2. For given v it is least at d = sum(x v) / sum(v^2), where it falls short of sum(x^2) by
 * sum(x v)^2 / sum(v^2). So a trial scale is judged by that gain, and then replaced by the scale
 * that attains it. Sums run in four fixed lanes of a vector type that the compiler maps to whatever
 * the machine has, each operation rounded as IEEE 754 says.
 */
#include "sculptor/quantise.h"

#include <math.h>
#include <string.h>

#include "formats/half.h"

typedef float vec4 __attribute__((vector_size(16)));
typedef int32_t mask4 __attribute__((vector_size(16)));

static const float MAX_F16 = 65504.0f;

static vec4 splat(float a) {
    return (vec4){a, a, a, a};
}

static float sum4(vec4 v) {
    return (v[0] + v[1]) + (v[2] + v[3]);
}

/* A codebook as steps: the value of v is base plus each step whose threshold v exceeds. */
typedef struct steps {
    int32_t n; /* codebook size - 1 */
    vec4 base;
    vec4 threshold[15]; /* each in all lanes, as are base and step */
    vec4 step[15];
} steps;

static steps make_steps(const int8_t *codebook, int32_t n_value) {
    steps s = {.n = n_value - 1, .base = splat(codebook[0])};
    for (int32_t i = 0; i < s.n; i++) {
        s.threshold[i] = splat((float)(codebook[i] + codebook[i + 1]) * 0.5f);
        s.step[i] = splat((float)(codebook[i + 1] - codebook[i]));
    }
    return s;
}

/* sum(x v) and sum(v^2) */
typedef struct moments {
    float xv;
    float vv;
} moments;

/* Adds the step to v where x exceeds the threshold. */
static inline vec4 climb(vec4 v, vec4 x, vec4 threshold, vec4 step) {
    return v + (vec4)((mask4)(x > threshold) & (mask4)step);
}

/* n_step and n (a multiple of 16): constants where this is inlined. Sixteen weights at a time, in
 * names rather than arrays so that they stay in registers at any optimisation level. */
static inline __attribute__((always_inline)) moments measure(const steps *s, int32_t n_step,
                                                             const vec4 *x, int32_t n, float d) {
    vec4 inverse = splat(1.0f / d), xv = {0}, vv = {0};
    for (int32_t i = 0; i < n / 4; i += 4) {
        vec4 xa = x[i] * inverse, xb = x[i + 1] * inverse;
        vec4 xc = x[i + 2] * inverse, xe = x[i + 3] * inverse;
        vec4 a = s->base, b = a, c = a, e = a;
        for (int32_t j = 0; j < n_step; j++) {
            vec4 threshold = s->threshold[j], step = s->step[j];
            a = climb(a, xa, threshold, step);
            b = climb(b, xb, threshold, step);
            c = climb(c, xc, threshold, step);
            e = climb(e, xe, threshold, step);
        }
        xv += (x[i] * a + x[i + 1] * b) + (x[i + 2] * c + x[i + 3] * e);
        vv += (a * a + b * b) + (c * c + e * e);
    }
    return (moments){sum4(xv), sum4(vv)};
}

static float gain_of(moments m) {
    return m.vv > 0 ? m.xv * m.xv / m.vv : 0;
}

static int32_t nearest(const steps *s, float scaled) {
    int32_t index = 0;
    for (int32_t i = 0; i < s->n; i++) {
        index += scaled > s->threshold[i][0];
    }
    return index;
}

static void range_of(const float *x, int32_t n, float *lowest, float *highest) {
    *lowest = *highest = 0;
    for (int32_t i = 0; i < n; i++) {
        *lowest = x[i] < *lowest ? x[i] : *lowest;
        *highest = x[i] > *highest ? x[i] : *highest;
    }
}

/* The scale of this sign (1 or -1) at which the codebook's ends just reach the block's. */
static float covering_scale(const int8_t *codebook, int32_t last, float lowest, float highest,
                            float sign) {
    float below = sign > 0 ? -lowest : highest, above = sign > 0 ? highest : -lowest;
    float by_first = below / (float)-codebook[0], by_last = above / (float)codebook[last];
    return sign * (by_first > by_last ? by_first : by_last);
}

static bool quantise_q8(const float *x, block_q8 *out) {
    float lowest, highest;
    range_of(x, 32, &lowest, &highest);
    float max = highest > -lowest ? highest : -lowest;
    if (max > 127 * MAX_F16) {
        return false;
    }
    memset(out, 0, sizeof *out);
    out->d = f32_to_f16(max / 127);
    float d = f16_to_f32(out->d);
    for (int32_t i = 0; d > 0 && i < 32; i++) {
        float q = rintf(x[i] / d);
        out->q[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
    return true;
}

/* ---- Q4 */

/* Shares of the covering scale that are tried: it pays to clip a block's largest weight when that
 * makes the steps of all others finer. */
static const float Q4_SHARE[] = {0.68f, 0.77f, 0.86f, 0.95f, 1.04f};
enum { N_Q4_SHARE = sizeof Q4_SHARE / sizeof *Q4_SHARE, REFITS = 2 };

static float search_q4(const steps *s, const vec4 *x, float lowest, float highest) {
    float best_gain = 0, best = 0;
    for (int32_t i = 0; i < 2 * N_Q4_SHARE; i++) {
        float sign = i < N_Q4_SHARE ? 1.0f : -1.0f;
        float d = Q4_SHARE[i % N_Q4_SHARE] * covering_scale(Q4_CODEBOOK, 15, lowest, highest, sign);
        moments m = measure(s, 15, x, 32, d);
        if (gain_of(m) > best_gain) {
            best_gain = gain_of(m);
            best = m.xv / m.vv;
        }
    }
    for (int32_t i = 0; i < REFITS && best != 0; i++) {
        moments m = measure(s, 15, x, 32, best);
        if (!(gain_of(m) > best_gain)) {
            break;
        }
        best_gain = gain_of(m);
        best = m.xv / m.vv;
    }
    return best;
}

/* Below this no block type's f16 scale could be anything but zero. */
static const float ALL_ZERO = 0x1p-25f;

static bool quantise_q4(const steps *s, const float *x, block_q4 *out) {
    float lowest, highest;
    range_of(x, 32, &lowest, &highest);
    memset(out, 0, sizeof *out);
    if (highest < ALL_ZERO && lowest > -ALL_ZERO) {
        return true;
    }
    if (highest > 49 * MAX_F16 || lowest < -49 * MAX_F16) {
        return false;
    }
    vec4 v[8];
    memcpy(v, x, sizeof v);
    float d = search_q4(s, v, lowest, highest);
    d = d > MAX_F16 ? MAX_F16 : d < -MAX_F16 ? -MAX_F16 : d;
    uint16_t stored = f32_to_f16(d);
    d = f16_to_f32(stored);
    if (d == 0) {
        return true;
    }
    out->d = stored;
    for (int32_t i = 0; i < 16; i++) {
        int32_t low = nearest(s, x[i] / d), high = nearest(s, x[16 + i] / d);
        out->q[i] = (uint8_t)(low | high << 4);
    }
    return true;
}

/* ---- Q2 */

enum { N_RUN = 4, RUN = 16, N_BOOK = 4, N_SCALE = 16 };
static const float Q2_SHARE[] = {0.4f, 0.52f, 0.64f, 0.76f, 0.88f, 1.0f};
enum { N_Q2_SHARE = sizeof Q2_SHARE / sizeof *Q2_SHARE };

/* How one run is stored, and its moments as stored. */
typedef struct run_choice {
    int32_t s; /* its scale is d * (s + 1) */
    int32_t book;
    moments m;
    float gain; /* by which it lowers the squared error below sum(x^2) */
} run_choice;

typedef struct block_choice {
    float d;
    float gain;
    run_choice run[N_RUN];
} block_choice;

/* Scales of one sign for each run and codebook as if they were stored exactly. */
typedef struct free_fit {
    float scale[N_RUN][N_BOOK]; /* 0 where none of this sign helps */
    float largest;              /* magnitude of the largest among the runs' best */
    float gain;                 /* of all runs, each with its best */
} free_fit;

static free_fit fit_freely(const steps *book, const float *x, float sign) {
    free_fit f = {0};
    for (int32_t k = 0; k < N_RUN; k++) {
        float lowest, highest, run_gain = 0, run_scale = 0;
        vec4 v[RUN / 4];
        memcpy(v, x + RUN * k, sizeof v);
        range_of(x + RUN * k, RUN, &lowest, &highest);
        for (int32_t b = 0; b < N_BOOK; b++) {
            float cover = covering_scale(Q2_CODEBOOK[b], 3, lowest, highest, sign), best = 0;
            for (int32_t i = 0; cover != 0 && i < N_Q2_SHARE; i++) {
                moments m = measure(&book[b], 3, v, RUN, Q2_SHARE[i] * cover);
                if (m.xv * sign > 0 && gain_of(m) > best) {
                    best = gain_of(m);
                    f.scale[k][b] = m.xv / m.vv;
                }
            }
            if (best > run_gain) {
                run_gain = best;
                run_scale = fabsf(f.scale[k][b]);
            }
        }
        f.largest = run_scale > f.largest ? run_scale : f.largest;
        f.gain += run_gain;
    }
    return f;
}

static void try_run(const steps *book, const vec4 *v, float d, int32_t b, int32_t s,
                    run_choice *best) {
    if (s < 0 || s >= N_SCALE) {
        return;
    }
    float scale = d * (float)(s + 1);
    moments m = measure(&book[b], 3, v, RUN, scale);
    float gain = scale * (2 * m.xv - scale * m.vv);
    if (gain > best->gain) {
        *best = (run_choice){s, b, m, gain};
    }
}

/* Chooses each run's scale and codebook for a given d, looking at the two stored scales around each
 * free one. */
static block_choice choose_runs(const steps *book, const float *x, float d, const free_fit *f) {
    block_choice c = {.d = d};
    for (int32_t k = 0; k < N_RUN; k++) {
        vec4 v[RUN / 4];
        memcpy(v, x + RUN * k, sizeof v);
        c.run[k].gain = -INFINITY;
        for (int32_t b = 0; b < N_BOOK; b++) {
            float ratio = f->scale[k][b] / d;
            int32_t s = ratio >= N_SCALE ? N_SCALE - 1 : ratio <= 1 ? 0 : (int32_t)ratio - 1;
            try_run(book, v, d, b, s, &c.run[k]);
            try_run(book, v, d, b, s + 1, &c.run[k]);
        }
        c.gain += c.run[k].gain;
    }
    return c;
}

/* The d that is best for the runs as chosen. */
static float refit_q2(const block_choice *c) {
    float xv = 0, vv = 0;
    for (int32_t k = 0; k < N_RUN; k++) {
        float s = (float)(c->run[k].s + 1);
        xv += s * c->run[k].m.xv;
        vv += s * s * c->run[k].m.vv;
    }
    return vv > 0 ? xv / vv : c->d;
}

static float to_stored(float d) {
    d = d > MAX_F16 ? MAX_F16 : d < -MAX_F16 ? -MAX_F16 : d;
    return f16_to_f32(f32_to_f16(d));
}

static void keep_better(block_choice *best, const steps *book, const float *x, float d,
                        const free_fit *f) {
    d = to_stored(d);
    if (d != 0) {
        block_choice c = choose_runs(book, x, d, f);
        if (best->d == 0 || c.gain > best->gain) {
            *best = c;
        }
    }
}

static void pack_q2(const steps *book, const float *x, const block_choice *c, block_q2 *out) {
    uint32_t meta = 0;
    for (int32_t k = 0; k < N_RUN; k++) {
        const run_choice *run = &c->run[k];
        float scale = c->d * (float)(run->s + 1);
        meta |= (uint32_t)(run->s | run->book << 4) << 6 * k;
        for (int32_t i = 0; i < RUN; i++) {
            int32_t index = nearest(&book[run->book], x[RUN * k + i] / scale);
            out->q[i] = (uint8_t)(out->q[i] | index << 2 * k);
        }
    }
    out->d = f32_to_f16(c->d);
    for (int32_t i = 0; i < 3; i++) {
        out->meta[i] = (uint8_t)(meta >> 8 * i);
    }
}

static bool quantise_q2(const steps *book, const float *x, block_q2 *out) {
    float lowest, highest;
    range_of(x, 64, &lowest, &highest);
    memset(out, 0, sizeof *out);
    if (highest < ALL_ZERO && lowest > -ALL_ZERO) {
        return true;
    }
    if (highest > 127 * MAX_F16 || lowest < -127 * MAX_F16) {
        return false;
    }
    /* The sign that would be better with exact scales, then d such that the largest run scale is
     * one of the upper stored ones. */
    free_fit plus = fit_freely(book, x, 1), minus = fit_freely(book, x, -1);
    const free_fit *f = plus.gain >= minus.gain ? &plus : &minus;
    float largest = f == &plus ? f->largest : -f->largest;
    block_choice best = {0};
    for (int32_t s = N_SCALE; s > N_SCALE - 6; s--) {
        keep_better(&best, book, x, largest / (float)s, f);
    }
    for (int32_t i = 0; i < REFITS && best.d != 0; i++) {
        keep_better(&best, book, x, refit_q2(&best), f);
    }
    if (best.d != 0) {
        pack_q2(book, x, &best, out);
    }
    return true;
}

/* ---- rows */

/* Block b of a row, zeros past its end. */
static const float *block_at(const float *x, int32_t n_col, int32_t b, int32_t n, float *copy) {
    int32_t left = n_col - n * b;
    if (left >= n) {
        return x + (size_t)n * (size_t)b;
    }
    memset(copy, 0, (size_t)n * sizeof *copy);
    memcpy(copy, x + (size_t)n * (size_t)b, (size_t)left * sizeof *copy);
    return copy;
}

static bool quantise_row_q8(const float *x, int32_t n_col, block_q8 *out) {
    float copy[32];
    for (int32_t b = 0; b < (n_col + 31) / 32; b++) {
        if (!quantise_q8(block_at(x, n_col, b, 32, copy), &out[b])) {
            return false;
        }
    }
    return true;
}

static bool quantise_row_q4(const float *x, int32_t n_col, block_q4 *out) {
    float copy[32];
    steps s = make_steps(Q4_CODEBOOK, 16);
    for (int32_t b = 0; b < (n_col + 31) / 32; b++) {
        if (!quantise_q4(&s, block_at(x, n_col, b, 32, copy), &out[b])) {
            return false;
        }
    }
    return true;
}

static bool quantise_row_q2(const float *x, int32_t n_col, block_q2 *out) {
    float copy[64];
    steps book[N_BOOK];
    for (int32_t i = 0; i < N_BOOK; i++) {
        book[i] = make_steps(Q2_CODEBOOK[i], 4);
    }
    for (int32_t b = 0; b < (n_col + 63) / 64; b++) {
        if (!quantise_q2(book, block_at(x, n_col, b, 64, copy), &out[b])) {
            return false;
        }
    }
    return true;
}

/* F16 or BF16. */
static bool convert_row(dtype type, const float *x, int32_t n_col, uint8_t *out) {
    for (int32_t i = 0; i < n_col; i++) {
        uint16_t h = type == DT_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
        float back = type == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
        if (!isfinite(back)) {
            return false;
        }
        memcpy(out + 2 * (size_t)i, &h, sizeof h);
    }
    return true;
}

bool quantise_row(dtype type, const float *x, int32_t n_col, void *out) {
    for (int32_t i = 0; i < n_col; i++) {
        if (!isfinite(x[i])) {
            return false;
        }
    }
    switch (type) {
    case DT_F32:
        memcpy(out, x, (size_t)n_col * sizeof *x);
        return true;
    case DT_F16:
    case DT_BF16:
        return convert_row(type, x, n_col, out);
    case DT_Q8:
        return quantise_row_q8(x, n_col, out);
    case DT_Q4:
        return quantise_row_q4(x, n_col, out);
    case DT_Q2:
        return quantise_row_q2(x, n_col, out);
    default:
        return false;
    }
}
