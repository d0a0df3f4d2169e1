/* quantise: error bounds, odd input, determinism. */
#include "test.h"

#include <math.h>

#include "formats/half.h"
#include "kernels/kernels.h"
#include "sculptor/quantise.h"

enum { N = 64 * 256 };

static void fill_normal(float *x, float scale) {
    for (int i = 0; i < N; i++) {
        x[i] = scale * test_normal();
    }
}

static double relative_rms(const float *x, const float *back, int32_t n) {
    double error = 0, power = 0;
    for (int32_t i = 0; i < n; i++) {
        error += ((double)x[i] - (double)back[i]) * ((double)x[i] - (double)back[i]);
        power += (double)x[i] * (double)x[i];
    }
    return sqrt(error / power);
}

static double round_trip(dtype type, const float *x, int32_t n) {
    static uint8_t stored[N * 4];
    static float back[N];
    CHECK(quantise_row(type, x, n, stored));
    kernels_variant(0)->dequant_row[type](stored, n, back);
    return relative_rms(x, back, n);
}

/* Scales from the largest weight alone: it meets the codebook's end of its own sign. */
static double q4_by_maximum(const float *x) {
    static float back[N];
    for (int b = 0; b < N / 32; b++) {
        float max = 0;
        for (int i = 0; i < 32; i++) {
            max = fabsf(x[32 * b + i]) > fabsf(max) ? x[32 * b + i] : max;
        }
        float d = f16_to_f32(f32_to_f16(max / (float)Q4_CODEBOOK[0]));
        for (int i = 0; i < 32; i++) {
            float best = INFINITY;
            for (int j = 0; j < 16; j++) {
                float v = d * (float)Q4_CODEBOOK[j];
                best = fabsf(v - x[32 * b + i]) < fabsf(best - x[32 * b + i]) ? v : best;
            }
            back[32 * b + i] = best;
        }
    }
    return relative_rms(x, back, N);
}

TEST(quantise_error_is_small_at_every_scale) {
    static float x[N];
    for (float scale = 1e-3f; scale < 2e3f; scale *= 10) {
        fill_normal(x, scale);
        CHECK(round_trip(DT_F32, x, N) == 0);
        CHECK(round_trip(DT_F16, x, N) < 3e-4);
        CHECK(round_trip(DT_BF16, x, N) < 2e-3);
        CHECK(round_trip(DT_Q8, x, N) < 0.0065);
        CHECK(round_trip(DT_Q4, x, N) < 0.078);
        CHECK(round_trip(DT_Q2, x, N) < 0.27);
        CHECK(round_trip(DT_Q4, x, N) < 0.93 * q4_by_maximum(x));
    }
}

TEST(quantise_heavy_tails) {
    static float x[N];
    fill_normal(x, 0.02f);
    for (int i = 0; i < N; i += 1 + (int)(test_rand() % 100)) {
        x[i] *= 12;
    }
    CHECK(round_trip(DT_Q8, x, N) < 0.015);
    CHECK(round_trip(DT_Q4, x, N) < 0.12);
    CHECK(round_trip(DT_Q2, x, N) < 0.27);
}

TEST(quantise_mirrored_weights_have_the_same_error) {
    static float x[N];
    fill_normal(x, 1);
    double q4 = round_trip(DT_Q4, x, N), q2 = round_trip(DT_Q2, x, N);
    for (int i = 0; i < N; i++) {
        x[i] = -x[i];
    }
    CHECK_NEAR(round_trip(DT_Q4, x, N), q4, 1e-3);
    CHECK_NEAR(round_trip(DT_Q2, x, N), q2, 1e-3);
}

static size_t row_bytes(dtype type, int32_t n) {
    size_t cols = (size_t)n;
    return type == DT_Q8   ? (cols + 31) / 32 * sizeof(block_q8)
           : type == DT_Q4 ? (cols + 31) / 32 * sizeof(block_q4)
           : type == DT_Q2 ? (cols + 63) / 64 * sizeof(block_q2)
                           : cols * (type == DT_F32 ? 4 : 2);
}

static const dtype TYPES[] = {DT_F32, DT_F16, DT_BF16, DT_Q8, DT_Q4, DT_Q2};

/* Lengths that end inside a block: no read or write past the ends, and the same bytes as the row
 * padded with zeros. */
TEST(quantise_tails) {
    for (int i = 0; i < 6; i++) {
        for (int32_t n = 1; n < 130; n += 1 + (int32_t)(test_rand() % 5)) {
            size_t bytes = row_bytes(TYPES[i], n);
            float *x = test_guarded((size_t)n * sizeof *x), padded[192] = {0};
            uint8_t *out = test_guarded(bytes), again[192 * 4];
            for (int32_t c = 0; c < n; c++) {
                padded[c] = x[c] = test_normal();
            }
            CHECK(quantise_row(TYPES[i], x, n, out));
            CHECK(quantise_row(TYPES[i], padded, 192, again));
            CHECK(memcmp(out, again, bytes) == 0);
        }
    }
}

TEST(quantise_refuses_what_is_not_finite) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 4; j++) {
            float x[96] = {0}, out[96];
            x[70] = bad[j];
            CHECK_INT(quantise_row(TYPES[i], x, 96, out), j == 3 && i % 2 == 0 && i < 3);
        }
    }
}

TEST(quantise_zero_tiny_and_large_blocks) {
    static const float size[] = {0, 1e-44f, 1e-30f, 1e-8f, 3e-7f, 1e-5f, 1e-2f, 1e4f, 1.27e6f};
    for (int i = 3; i < 6; i++) {
        for (int j = 0; j < 9; j++) {
            float x[64], back[64];
            uint8_t out[256];
            for (int c = 0; c < 64; c++) {
                x[c] = size[j] * (float)(c % 7 - 3) / 3;
            }
            CHECK(quantise_row(TYPES[i], x, 64, out));
            kernels_variant(0)->dequant_row[TYPES[i]](out, 64, back);
            for (int c = 0; c < 64; c++) {
                CHECK(fabsf(back[c] - x[c]) <= size[j]);
                CHECK(fabsf(back[c] - x[c]) <= size[j] * 0.35f || size[j] < 1e-4f);
            }
        }
    }
}

TEST(quantise_is_deterministic) {
    static float x[N];
    static uint8_t a[N * 4], b[N * 4];
    fill_normal(x, 0.05f);
    for (int i = 0; i < 6; i++) {
        memset(a, 0, sizeof a);
        memset(b, 0xff, sizeof b);
        CHECK(quantise_row(TYPES[i], x, N, a));
        CHECK(quantise_row(TYPES[i], x, N, b));
        CHECK(memcmp(a, b, row_bytes(TYPES[i], N)) == 0);
    }
}

/* Weights that the codebook holds exactly come back exactly. */
TEST(quantise_finds_exact_blocks) {
    float x[64], back[64];
    uint8_t out[64];
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int i = 0; i < 64; i++) {
            x[i] = 0.25f * (float)(sign * Q4_CODEBOOK[i % 16]);
        }
        CHECK(quantise_row(DT_Q4, x, 64, out));
        kernels_variant(0)->dequant_row[DT_Q4](out, 64, back);
        CHECK(memcmp(x, back, sizeof x) == 0);
    }
}
