/* Rotary positions; see rope.h. Pure arithmetic, no state. */
#include "layers/rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586

/* The dimension whose wavelength makes `rotations` turns within the original context. */
static double yarn_dimension(const rope_spec *r, double rotations) {
    return r->dim * log(r->original_context_tok / (rotations * TWO_PI)) / (2 * log(r->theta));
}

static void yarn_range(const rope_spec *r, double *low, double *high) {
    *low = yarn_dimension(r, r->beta_fast);
    *high = yarn_dimension(r, r->beta_slow);
    if (r->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, r->dim - 1);
    if (*low == *high) {
        *high += 0.001; /* as the reference: avoids 0 / 0 */
    }
}

static double llama3_frequency(const rope_spec *r, double f) {
    double wavelength = TWO_PI / f;
    double low = r->original_context_tok / r->low_freq_factor;
    double high = r->original_context_tok / r->high_freq_factor;
    if (wavelength < high) {
        return f;
    }
    if (wavelength > low) {
        return f / r->factor;
    }
    double smooth = (r->original_context_tok / wavelength - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * f / r->factor + smooth * f;
}

void rope_frequencies(const rope_spec *r, const float *divisors, float *out) {
    double low = 0;
    double high = 1;
    if (r->scaling == ROPE_YARN) {
        yarn_range(r, &low, &high);
    }
    for (int32_t i = 0; i < r->dim / 2; i++) {
        double f = pow(r->theta, -2.0 * i / r->dim);
        if (r->scaling == ROPE_LINEAR) {
            f /= r->factor;
        } else if (r->scaling == ROPE_YARN) {
            double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
            f = f / r->factor * ramp + f * (1 - ramp);
        } else if (r->scaling == ROPE_LLAMA3) {
            f = llama3_frequency(r, f);
        }
        out[i] = (float)(divisors ? f / (double)divisors[i] : f);
    }
}

void rope_prepare(const exec *e, const int32_t *pos, int32_t n_tok) {
    for (int32_t r = 0; r < e->spec->n_rope; r++) {
        const rope_spec *rope = &e->spec->rope[r];
        int32_t half = rope->dim / 2;
        float scale = (float)rope->attention_factor;
        size_t base = (size_t)r * (size_t)e->s.max_tok * (size_t)half;
        for (int32_t t = 0; t < n_tok; t++) {
            float *cosine = e->s.rope_cos + base + (size_t)t * (size_t)half;
            float *sine = e->s.rope_sin + base + (size_t)t * (size_t)half;
            for (int32_t i = 0; i < half; i++) {
                /* the angle is rounded to float first, as the reference implementation does */
                float angle = (float)pos[t] * e->inv_freq[r][i];
                cosine[i] = cosf(angle) * scale;
                sine[i] = sinf(angle) * scale;
            }
        }
    }
}

void rope_apply(const exec *e, int32_t rope, int32_t tok, float *head) {
    const rope_spec *r = &e->spec->rope[rope];
    int32_t half = r->dim / 2;
    size_t at = ((size_t)rope * (size_t)e->s.max_tok + (size_t)tok) * (size_t)half;
    const float *cosine = e->s.rope_cos + at;
    const float *sine = e->s.rope_sin + at;
    /* where pair i starts, and how far its two values are apart */
    int32_t step = r->interleaved ? 2 : 1;
    int32_t apart = r->interleaved ? 1 : half;
    for (int32_t i = 0; i < half; i++) {
        float *pair = head + i * step;
        float a = pair[0];
        float b = pair[apart];
        pair[0] = a * cosine[i] - b * sine[i];
        pair[apart] = b * cosine[i] + a * sine[i];
    }
}
