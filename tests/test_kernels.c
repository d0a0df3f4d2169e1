/* kernels: every variant against the portable oracle, and the contracts of kernels.h. */
#include "test.h"

#include <math.h>

#include "formats/half.h"
#include "kernels/kernels.h"
#include "sculptor/quantise.h"

static const dtype WEIGHT_TYPES[] = {DT_F32, DT_F16, DT_BF16, DT_Q8, DT_Q4, DT_Q2};
static const int32_t SIZES[] = {1, 15, 31, 33, 63, 65, 192, 200, 1027, 4096};
enum { N_TYPE = 6, N_SIZE = 10, MAX_TOK = 33, MAX_ROW = 9 };
static const float POISON = -12345.5f;

/* ---- inputs */

static size_t type_row_bytes(dtype type, int32_t n_col) {
    size_t n = (size_t)n_col;
    switch (type) {
    case DT_F32:
        return 4 * n;
    case DT_F16:
    case DT_BF16:
        return 2 * n;
    case DT_Q8:
        return (n + 31) / 32 * sizeof(block_q8);
    case DT_Q4:
        return (n + 31) / 32 * sizeof(block_q4);
    default:
        return (n + 63) / 64 * sizeof(block_q2);
    }
}

/* Random bytes with sane scales, padding and all: n_row rows that end at an unmapped page, pad
 * bytes between them. */
static uint8_t *random_weights(dtype type, int32_t n_row, int32_t n_col, size_t pad) {
    size_t row_bytes = type_row_bytes(type, n_col);
    uint8_t *w = test_guarded(row_bytes * (size_t)n_row + pad * (size_t)(n_row - 1));
    for (int32_t r = 0; r < n_row; r++) {
        uint8_t *row = w + (row_bytes + pad) * (size_t)r;
        for (size_t i = 0; i < row_bytes; i++) {
            row[i] = (uint8_t)test_rand();
        }
        size_t block = type == DT_Q8   ? sizeof(block_q8)
                       : type == DT_Q4 ? sizeof(block_q4)
                       : type == DT_Q2 ? sizeof(block_q2)
                                       : 0;
        for (size_t i = 0; block && i < row_bytes; i += block) {
            uint16_t d = f32_to_f16(test_uniform(-0.01f, 0.01f));
            memcpy(row + i, &d, sizeof d);
        }
        for (int32_t c = 0; !block && c < n_col; c++) {
            float v = test_normal();
            uint16_t h = type == DT_F16 ? f32_to_f16(v) : f32_to_bf16(v);
            memcpy(row + (size_t)c * row_bytes / (size_t)n_col, type == DT_F32 ? (void *)&v : &h,
                   type == DT_F32 ? 4 : 2);
        }
    }
    return w;
}

static float *random_floats(size_t n) {
    float *x = test_guarded(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = test_normal();
    }
    return x;
}

static float *poisoned(size_t n) {
    float *y = test_guarded(n * sizeof *y);
    for (size_t i = 0; i < n; i++) {
        y[i] = POISON;
    }
    return y;
}

/* A product's operands; activations in both forms. */
typedef struct operands {
    dtype type;
    bool q8;
    int32_t n_row;
    int32_t n_col;
    int32_t n_tok;
    uint8_t *w;
    size_t w_row_bytes;
    float *x;
    act_q8 *x_q8;
    size_t x_stride;
} operands;

static operands make_operands(dtype type, bool q8, int32_t n_row, int32_t n_col, int32_t n_tok,
                              size_t pad) {
    operands o = {type, q8, n_row, n_col, n_tok, NULL, 0, NULL, NULL, 0};
    o.w = random_weights(type, n_row, n_col, pad);
    o.w_row_bytes = type_row_bytes(type, n_col) + pad;
    o.x_stride = q8 ? act_row_blocks(n_col) : (size_t)n_col + 3;
    o.x = random_floats((size_t)(n_tok - 1) * ((size_t)n_col + 3) + (size_t)n_col);
    if (q8) {
        o.x_q8 = test_guarded((size_t)n_tok * o.x_stride * sizeof *o.x_q8);
        for (int32_t t = 0; t < n_tok; t++) {
            kernels_variant(0)->quantize_act(o.x + (size_t)t * ((size_t)n_col + 3), n_col,
                                             o.x_q8 + (size_t)t * o.x_stride);
        }
    }
    return o;
}

/* Rows [r, r + n_row) and tokens [t, t + n_tok) of the product into y's place for (t, r). */
static void multiply(const kernels *k, const operands *o, float *y, size_t y_stride, int32_t r,
                     int32_t n_row, int32_t t, int32_t n_tok) {
    matmul_fn *fn = o->q8 ? k->mm_q8[o->type] : k->mm_f32[o->type];
    size_t skip = (size_t)t * o->x_stride;
    const void *x = o->q8 ? (const void *)(o->x_q8 + skip) : (const void *)(o->x + skip);
    fn(y + (size_t)t * y_stride + (size_t)r, y_stride, o->w + o->w_row_bytes * (size_t)r,
       o->w_row_bytes, n_row, o->n_col, x, o->x_stride, n_tok);
}

/* Sum of |w x|, in units of which rounding errors of one element are bounded. */
static double magnitude(const operands *o, int32_t t, int32_t r) {
    static float w[4096], x[4096];
    kernels_variant(0)->dequant_row[o->type](o->w + o->w_row_bytes * (size_t)r, o->n_col, w);
    double sum = 0;
    memcpy(x, o->x + (size_t)t * ((size_t)o->n_col + 3), (size_t)o->n_col * sizeof *x);
    for (int32_t c = 0; c < o->n_col; c++) {
        sum += fabs((double)w[c] * (double)x[c]);
    }
    return sum;
}

static void check_product(const kernels *k, const operands *o) {
    size_t gap = 2, stride = (size_t)o->n_row + gap;
    size_t n_y = (size_t)(o->n_tok - 1) * stride + (size_t)o->n_row;
    float *y = poisoned(n_y), *want = poisoned(n_y);
    multiply(kernels_variant(0), o, want, stride, 0, o->n_row, 0, o->n_tok);
    multiply(k, o, y, stride, 0, o->n_row, 0, o->n_tok);
    for (size_t i = 0; i < n_y; i++) {
        int32_t t = (int32_t)(i / stride), r = (int32_t)(i % stride);
        if (r >= o->n_row) {
            CHECK(y[i] == POISON);
            continue;
        }
        /* Each of n / 8 additions in a lane rounds by half an ulp of at most the magnitude; errors
         * of random sign grow with the root of their number. */
        double bound = 6e-8 * (4 + sqrt(o->n_col)) * magnitude(o, t, r) * (o->q8 ? 1.1 : 1) + 1e-30;
        if (!(fabs((double)y[i] - (double)want[i]) <= bound)) {
            FAIL("%s type %d q8 %d: [%d x %d] x %d at (%d, %d): %.9g, expected %.9g within %.3g",
                 k->name, o->type, o->q8, o->n_row, o->n_col, o->n_tok, t, r, (double)y[i],
                 (double)want[i], bound);
        }
    }
}

static bool has_q8(dtype type) {
    return type == DT_Q8 || type == DT_Q4 || type == DT_Q2;
}

TEST(kernels_tables_are_complete) {
    CHECK(kernels_variant(0) && strcmp(kernels_variant(0)->name, "portable") == 0);
    CHECK(kernels_variant(-1) == NULL);
    int n = 0;
    for (const kernels *k; (k = kernels_variant(n)); n++) {
        for (int i = 0; i < N_TYPE; i++) {
            CHECK(k->mm_f32[WEIGHT_TYPES[i]] && k->dequant_row[WEIGHT_TYPES[i]]);
            CHECK(!!k->mm_q8[WEIGHT_TYPES[i]] == has_q8(WEIGHT_TYPES[i]));
        }
        CHECK(k->quantize_act && k->rms_norm && k->silu_mul && k->exp_sum && k->add_scaled &&
              k->max_of);
        for (int i = 0; i < KV_TYPES; i++) {
            CHECK(k->kv_dot[i] && k->kv_mix[i] && k->kv_store[i]);
        }
    }
    smoe_error err;
    const kernels *best = NULL, *named = NULL;
    CHECK_OK(kernels_select(&best, NULL, &err));
    CHECK(best == kernels_variant(n - 1));
    CHECK_OK(kernels_select(&named, "auto", &err));
    CHECK(named == best);
    CHECK_OK(kernels_select(&named, "portable", &err));
    CHECK(named == kernels_variant(0));
    CHECK_ERR(kernels_select(&named, "sse9", &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "portable");
    static const char *const name[] = {"avx2", "avxvnni", "avx512", "amx"};
    for (int i = 0; i < 4; i++) {
        bool here = false;
        for (int v = 0; v < n; v++) {
            here = here || strcmp(kernels_variant(v)->name, name[i]) == 0;
        }
        int rc = kernels_select(&named, name[i], &err);
        CHECK_INT(rc, here ? SMOE_OK : SMOE_ERR_UNSUPPORTED);
        CHECK(!here || strcmp(named->name, name[i]) == 0);
    }
}

TEST(kernels_products_match_portable) {
    for (int v = 0; kernels_variant(v); v++) {
        for (int i = 0; i < N_TYPE * N_SIZE * 2; i++) {
            dtype type = WEIGHT_TYPES[i / 2 % N_TYPE];
            if (i % 2 && !has_q8(type)) {
                continue;
            }
            int32_t n_row = 1 + (int32_t)(test_rand() % MAX_ROW);
            int32_t n_tok = 1 + (int32_t)(test_rand() % 9);
            operands o = make_operands(type, i % 2, n_row, SIZES[i / 2 / N_TYPE],
                                       test_rand() % 8 ? n_tok : MAX_TOK, test_rand() % 4);
            check_product(kernels_variant(v), &o);
        }
    }
}

TEST(kernels_products_of_every_small_shape) {
    for (int v = 1; kernels_variant(v); v++) {
        for (int i = 0; i < 2 * N_TYPE; i++) {
            dtype type = WEIGHT_TYPES[i / 2];
            for (int32_t j = 0; j < 81 && (i % 2 == 0 || has_q8(type)); j++) {
                operands o = make_operands(type, i % 2, 1 + j / 9, 65, 1 + j % 9, 1);
                check_product(kernels_variant(v), &o);
            }
        }
    }
}

/* Every element alone, and rows and tokens split at random, give the same bits as all at once. */
TEST(kernels_products_do_not_depend_on_company) {
    for (int v = 0; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        for (int i = 0; i < 2 * N_TYPE * 4; i++) {
            dtype type = WEIGHT_TYPES[i / 2 % N_TYPE];
            if (i % 2 && !has_q8(type)) {
                continue;
            }
            static const int32_t n_col[] = {63, 200, 1027, 4160};
            operands o = make_operands(type, i % 2, MAX_ROW, n_col[i / (2 * N_TYPE)], MAX_TOK, 3);
            size_t stride = MAX_ROW + 1, n_y = MAX_TOK * stride - 1;
            float *all = poisoned(n_y), *one = poisoned(n_y), *split = poisoned(n_y);
            multiply(k, &o, all, stride, 0, MAX_ROW, 0, MAX_TOK);
            for (int32_t t = 0; t < MAX_TOK; t++) {
                for (int32_t r = 0; r < MAX_ROW; r++) {
                    multiply(k, &o, one, stride, r, 1, t, 1);
                }
            }
            int32_t r = 1 + (int32_t)(test_rand() % (MAX_ROW - 1));
            int32_t t = 1 + (int32_t)(test_rand() % (MAX_TOK - 1));
            multiply(k, &o, split, stride, 0, r, 0, t);
            multiply(k, &o, split, stride, r, MAX_ROW - r, 0, t);
            multiply(k, &o, split, stride, 0, MAX_ROW, t, MAX_TOK - t);
            CHECK(memcmp(all, one, n_y * sizeof *all) == 0);
            CHECK(memcmp(all, split, n_y * sizeof *all) == 0);
        }
    }
}

/* Integer products of rows side by side add in the same order in every instruction set, and their
 * integers are exact: the variants above portable give the same bits. */
TEST(kernels_products_of_rows_agree) {
    static const int32_t n_col[] = {32, 352, 65, 1027, 4160};
    for (int i = 0; i < N_TYPE * 36; i++) {
        dtype type = WEIGHT_TYPES[i % N_TYPE];
        int32_t n_row = 1 + (int32_t)(test_rand() % 40);
        int32_t most_tok = (const int32_t[]){1, 40, 150}[i / N_TYPE % 3];
        int32_t n_tok = 1 + (int32_t)(test_rand() % (uint32_t)most_tok);
        if (!has_q8(type) || !kernels_variant(1)) {
            continue;
        }
        operands o = make_operands(type, true, n_row, n_col[test_rand() % 5], n_tok, 1);
        size_t n_y = (size_t)n_row * (size_t)n_tok;
        float *want = poisoned(n_y), *y = poisoned(n_y);
        multiply(kernels_variant(1), &o, want, (size_t)n_row, 0, n_row, 0, n_tok);
        for (int v = 2; kernels_variant(v); v++) {
            multiply(kernels_variant(v), &o, y, (size_t)n_row, 0, n_row, 0, n_tok);
            CHECK(memcmp(y, want, n_y * sizeof *y) == 0);
        }
    }
}

/* The same activations for enough tokens that every kernel has its say. */
enum { EXTREME_TOK = 17 };

/* Rows of one extreme weight against activations of +-127: exact integers, so that any overflow or
 * saturation on the way shows. */
static void check_extreme(const kernels *k, dtype type, int32_t sign, bool alternate) {
    enum { N_COL = 128 };
    uint8_t w[N_COL / 32 * sizeof(block_q8)] = {0};
    uint16_t d = f32_to_f16(1);
    for (size_t i = 0; i < type_row_bytes(type, N_COL);) {
        block_q8 *q8 = (block_q8 *)(w + i);
        block_q4 *q4 = (block_q4 *)(w + i);
        block_q2 *q2 = (block_q2 *)(w + i);
        memcpy(w + i, &d, sizeof d);
        if (type == DT_Q8) {
            memset(q8->q, sign > 0 ? 127 : -128, sizeof q8->q);
            i += sizeof *q8;
        } else if (type == DT_Q4) {
            memset(q4->q, sign > 0 ? 0xff : 0x00, sizeof q4->q);
            i += sizeof *q4;
        } else {
            /* largest scale, codebook 1 for its largest last value, 2 for its least first */
            uint32_t run = sign > 0 ? 0x1f : 0x2f, meta = run | run << 6 | run << 12 | run << 18;
            memcpy(q2->meta, &meta, sizeof q2->meta);
            memset(q2->q, sign > 0 ? 0xff : 0x00, sizeof q2->q);
            i += sizeof *q2;
        }
    }
    act_q8 x[N_COL / 32];
    float weight[N_COL], y[EXTREME_TOK];
    double want = 0;
    k->dequant_row[type](w, N_COL, weight);
    for (int32_t c = 0; c < N_COL; c++) {
        int8_t q = alternate && c % 3 == 1 ? -127 : 127;
        x[c / 32].q[c % 32] = q;
        want += (double)weight[c] * q;
    }
    for (int32_t b = 0; b < N_COL / 32; b++) {
        x[b].d = 1;
        x[b].d_sum = 0;
        x[b].fix[0] = x[b].fix[1] = 0;
        for (int32_t i = 0; i < 32; i++) {
            x[b].d_sum += x[b].q[i];
            x[b].fix[i / 16] -= 128 * x[b].q[i];
        }
        x[b].fix_all = x[b].fix[0] + x[b].fix[1];
    }
    CHECK(fabs(want) > 1e5);
    for (int32_t n_tok = 1; n_tok <= EXTREME_TOK; n_tok += EXTREME_TOK - 1) {
        k->mm_q8[type](y, 1, w, sizeof w, 1, N_COL, x, 0, n_tok);
        for (int32_t t = 0; t < n_tok; t++) {
            CHECK(fabs((double)y[t] - want) <= fabs(want) * 1e-6);
        }
    }
}

TEST(kernels_products_survive_extremes) {
    for (int v = 0; kernels_variant(v); v++) {
        for (int i = 0; i < 12; i++) {
            check_extreme(kernels_variant(v), WEIGHT_TYPES[3 + i % 3], i / 3 % 2 ? 1 : -1, i / 6);
        }
    }
}

TEST(kernels_products_keep_nan_and_zero) {
    for (int v = 0; kernels_variant(v); v++) {
        for (int i = 0; i < 2 * N_TYPE; i++) {
            dtype type = WEIGHT_TYPES[i / 2];
            if (i % 2 && !has_q8(type)) {
                continue;
            }
            operands o = make_operands(type, i % 2, 5, 200, 20, 0);
            float y[20 * 5];
            memset(o.x, 0, 203 * 19 * sizeof *o.x);
            o.x[203 * 19 + 150] = NAN;
            for (size_t t = 0; i % 2 && t < 20; t++) {
                kernels_variant(v)->quantize_act(o.x + 203 * t, 200, o.x_q8 + t * o.x_stride);
            }
            multiply(kernels_variant(v), &o, y, 5, 0, 5, 0, 20);
            for (int j = 0; j < 100; j++) {
                CHECK(j < 95 ? y[j] == 0 : isnan(y[j]));
            }
        }
    }
}

TEST(kernels_dequant_is_exact) {
    for (int v = 1; kernels_variant(v); v++) {
        for (int i = 0; i < N_TYPE * N_SIZE; i++) {
            dtype type = WEIGHT_TYPES[i % N_TYPE];
            int32_t n = SIZES[i / N_TYPE];
            uint8_t *w = random_weights(type, 1, n, 0);
            float *out = poisoned((size_t)n), *want = poisoned((size_t)n);
            kernels_variant(v)->dequant_row[type](w, n, out);
            kernels_variant(0)->dequant_row[type](w, n, want);
            for (int32_t c = 0; c < n; c++) {
                CHECK(out[c] == want[c]);
            }
        }
    }
}

TEST(kernels_quantize_act_is_exact_everywhere) {
    for (int v = 0; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        for (int i = 0; i < N_SIZE; i++) {
            int32_t n = SIZES[i];
            size_t n_block = act_row_blocks(n);
            float *x = random_floats((size_t)n);
            act_q8 *q = test_guarded(n_block * sizeof *q), *want = malloc(n_block * sizeof *want);
            x[n / 2] *= 30;
            k->quantize_act(x, n, q);
            kernels_variant(0)->quantize_act(x, n, want);
            CHECK(memcmp(q, want, n_block * sizeof *q) == 0);
            for (size_t c = 0; c < n_block * 32; c++) {
                const act_q8 *b = &q[c / 32];
                float value = c < (size_t)n ? x[c] : 0;
                CHECK(fabsf(value - b->d * (float)b->q[c % 32]) <= b->d * 0.501f);
                CHECK(b->q[c % 32] >= -127);
            }
        }
        float odd[64] = {0};
        act_q8 q[2];
        odd[3] = INFINITY;
        odd[40] = 1e-40f;
        k->quantize_act(odd, 64, q);
        CHECK(isnan(q[0].d) && q[1].d == 0 && q[1].q[8] == 0);
        odd[3] = 3e38f;
        odd[63] = NAN;
        k->quantize_act(odd, 64, q);
        CHECK(q[0].q[3] == 127 && isfinite(q[0].d) && isnan(q[1].d));
    }
}

/* ---- elementwise, row and attention kernels */

static void check_close(const kernels *k, const char *what, const float *got, const float *want,
                        int32_t n, double relative, double absolute) {
    for (int32_t i = 0; i < n; i++) {
        double bound = relative * fabs((double)want[i]) + absolute;
        if (!(fabs((double)got[i] - (double)want[i]) <= bound)) {
            FAIL("%s %s: element %d of %d is %.9g, expected %.9g", k->name, what, i, n,
                 (double)got[i], (double)want[i]);
        }
    }
}

TEST(kernels_row_operations_match_portable) {
    const kernels *ref = kernels_variant(0);
    for (int v = 1; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        for (int i = 0; i < N_SIZE; i++) {
            int32_t n = SIZES[i];
            size_t bytes = (size_t)n * sizeof(float);
            float *a = random_floats((size_t)n), *b = random_floats((size_t)n);
            float *got = poisoned((size_t)n), *want = poisoned((size_t)n);
            k->rms_norm(a, b, 1e-6f, n, got);
            ref->rms_norm(a, b, 1e-6f, n, want);
            check_close(k, "rms_norm", got, want, n, 3e-6, 0);
            for (int32_t c = 0; c < n; c++) {
                a[c] *= c % 5 == 0 ? 40 : 3;
            }
            k->silu_mul(a, b, n, got);
            ref->silu_mul(a, b, n, want);
            check_close(k, "silu_mul", got, want, n, 1e-6, 1e-37);
            memcpy(got, a, bytes);
            memcpy(want, a, bytes);
            float sum = k->exp_sum(got, 100, n), sum_want = ref->exp_sum(want, 100, n);
            check_close(k, "exp_sum", got, want, n, 4e-7, 1e-44);
            check_close(k, "exp_sum's sum", &sum, &sum_want, 1, 1e-5, 1e-44);
            memcpy(got, b, bytes);
            memcpy(want, b, bytes);
            k->add_scaled(got, 0.37f, a, n);
            ref->add_scaled(want, 0.37f, a, n);
            check_close(k, "add_scaled", got, want, n, 1e-6, 1e-5);
            CHECK(k->max_of(a, n) == ref->max_of(a, n));
            a[test_rand() % (size_t)n] = NAN;
            CHECK(k->max_of(a, n) == ref->max_of(a, n));
            a[n - 1] = 500;
            CHECK(k->max_of(a, n) == 500);
        }
    }
}

TEST(kernels_exponentials_at_the_edges) {
    for (int v = 0; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        float x[9] = {0, -INFINITY, -200, -95, NAN, 1, -0.0f, -1e-30f, -3};
        k->exp_sum(x, 0, 9);
        CHECK(x[0] == 1 && x[1] == 0 && x[2] == 0 && x[6] == 1 && x[7] == 1);
        CHECK_NEAR(x[3], 5.52e-42, 1e-43);
        CHECK(isnan(x[4]));
        float gate[9] = {-1000, 1000, NAN, 0, 88, -88, 90, -90, -104}, up[9], out[9];
        for (int i = 0; i < 9; i++) {
            up[i] = 2;
        }
        k->silu_mul(gate, up, 9, out);
        CHECK(out[0] == 0 && out[1] == 2000 && isnan(out[2]) && out[3] == 0 && out[4] == 176);
        CHECK(fabsf(out[5]) < 1e-30f && out[6] == 180 && fabsf(out[7]) < 1e-30f);
        CHECK(isfinite(out[8]));
    }
}

/* Stored rows, stride units apart, that end at an unmapped page; what lies between them has to stay
 * as it was, and every variant has to store the same bits. */
static uint8_t *make_rows(const kernels *k, enum kv_type type, int32_t n_row, int32_t dim,
                          size_t stride) {
    size_t unit = kv_unit_of(type).bytes, row = kv_row_units(type, dim) * unit;
    size_t bytes = (size_t)(n_row - 1) * stride * unit + row;
    uint8_t *cache = test_guarded(bytes), *want = test_guarded(bytes);
    memset(cache, 0xd6, bytes);
    memset(want, 0xd6, bytes);
    for (int32_t i = 0; i < n_row; i++) {
        const float *x = random_floats((size_t)dim);
        k->kv_store[type](x, dim, cache + (size_t)i * stride * unit);
        kernels_variant(0)->kv_store[type](x, dim, want + (size_t)i * stride * unit);
    }
    CHECK(memcmp(cache, want, bytes) == 0);
    return cache;
}

static void check_kv(const kernels *k, enum kv_type type, int32_t n_q, int32_t n_row, int32_t dim) {
    const kernels *ref = kernels_variant(0);
    size_t unit = kv_unit_of(type).bytes, stride = kv_row_units(type, dim) + 3, n = (size_t)n_row;
    size_t gap = n + 2, n_out = (size_t)(n_q - 1) * gap + n, n_acc = (size_t)n_q * (size_t)dim;
    uint8_t *cache = make_rows(k, type, n_row, dim, stride);
    float *q = random_floats(n_acc), *p = random_floats(n_out);
    kv_rows rows = {cache, stride, n_row, dim};
    float *got = poisoned(n_out), *want = poisoned(n_out), *alone = poisoned(n_out);
    k->kv_dot[type](q, n_q, &rows, 0.125f, got, gap);
    ref->kv_dot[type](q, n_q, &rows, 0.125f, want, gap);
    check_close(k, "kv_dot", got, want, (int32_t)n_out, 1e-6, 1e-6 * sqrt(dim));
    for (size_t i = 0; i < n * (size_t)n_q; i++) {
        kv_rows one = {cache + i % n * stride * unit, stride, 1, dim};
        k->kv_dot[type](q + i / n * (size_t)dim, 1, &one, 0.125f, alone + i / n * gap + i % n, 1);
    }
    CHECK(memcmp(got, alone, n_out * sizeof *got) == 0);

    float *acc = random_floats(n_acc), *acc_want = malloc(n_acc * sizeof *acc);
    float *step = malloc(n_acc * sizeof *acc);
    memcpy(acc_want, acc, n_acc * sizeof *acc);
    memcpy(step, acc, n_acc * sizeof *acc);
    k->kv_mix[type](p, gap, n_q, &rows, acc);
    ref->kv_mix[type](p, gap, n_q, &rows, acc_want);
    check_close(k, "kv_mix", acc, acc_want, (int32_t)n_acc, 1e-6, 1e-6 * n_row);
    for (size_t i = 0; i < n * (size_t)n_q; i++) {
        kv_rows one = {cache + i % n * stride * unit, stride, 1, dim};
        k->kv_mix[type](p + i / n * gap + i % n, 1, 1, &one, step + i / n * (size_t)dim);
    }
    CHECK(memcmp(acc, step, n_acc * sizeof *acc) == 0);
    free(acc_want);
    free(step);
}

/* In int8 blocks: the same bits as floats of the same values give. */
static void check_kv_q8_as_floats(const kernels *k, int32_t n_q, int32_t n_row, int32_t dim) {
    size_t stride = kv_row_units(KV_Q8, dim), n = (size_t)n_row, d = (size_t)dim;
    uint8_t *cache = make_rows(k, KV_Q8, n_row, dim, stride);
    float *values = test_guarded(n * d * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        k->dequant_row[DT_Q8](cache + i * stride * sizeof(block_q8), dim, values + i * d);
    }
    kv_rows blocks = {cache, stride, n_row, dim}, floats = {values, d, n_row, dim};
    float *q = random_floats((size_t)n_q * d), *p = random_floats((size_t)n_q * n);
    float *got = poisoned((size_t)n_q * n), *want = poisoned((size_t)n_q * n);
    k->kv_dot[KV_Q8](q, n_q, &blocks, 0.3f, got, n);
    k->kv_dot[KV_F32](q, n_q, &floats, 0.3f, want, n);
    CHECK(memcmp(got, want, (size_t)n_q * n * sizeof *got) == 0);
    float *acc = random_floats((size_t)n_q * d), *acc_want = test_guarded((size_t)n_q * d * 4);
    memcpy(acc_want, acc, (size_t)n_q * d * sizeof *acc);
    k->kv_mix[KV_Q8](p, n, n_q, &blocks, acc);
    k->kv_mix[KV_F32](p, n, n_q, &floats, acc_want);
    CHECK(memcmp(acc, acc_want, (size_t)n_q * d * sizeof *acc) == 0);
}

/* The variant before has the very same functions, which need no second look: guarded memory is
 * never freed, and a process has only so many maps. */
static bool attends_as_before(int v) {
    const kernels *k = kernels_variant(v), *before = kernels_variant(v - 1);
    bool same = before != NULL;
    for (int i = 0; same && i < KV_TYPES; i++) {
        same = k->kv_dot[i] == before->kv_dot[i] && k->kv_mix[i] == before->kv_mix[i] &&
               k->kv_store[i] == before->kv_store[i];
    }
    return same;
}

TEST(kernels_attention_matches_portable) {
    static const int32_t head_dim[] = {1, 7, 8, 24, 40, 64, 80, 96, 128, 129, 192, 256, 545};
    for (int v = 0; kernels_variant(v); v++) {
        if (attends_as_before(v)) {
            continue;
        }
        for (int i = 0; i < 13; i++) {
            for (int32_t n_row = 1; n_row < 40; n_row += 6) {
                /* Few as in decode, or as many as share rows turned into floats. */
                int32_t n_q = 1 + (int32_t)(test_rand() % 9) + (n_row % 12 == 1 ? 15 : 0);
                check_kv(kernels_variant(v), KV_F32, n_q, n_row, head_dim[i]);
                check_kv(kernels_variant(v), KV_F16, n_q, n_row, head_dim[i]);
                check_kv(kernels_variant(v), KV_Q8, n_q, n_row, head_dim[i]);
                check_kv_q8_as_floats(kernels_variant(v), n_q, n_row, head_dim[i]);
            }
        }
    }
}

/* A block of one value and its negative, and what is made of them. */
static block_q8 stored_block(const kernels *k, float a, float b) {
    float x[32] = {a, b};
    block_q8 block;
    memset(&block, 0xd6, sizeof block);
    k->kv_store[KV_Q8](x, 32, &block);
    return block;
}

TEST(kernels_kv_q8_stores_nearest) {
    for (int v = 0; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        block_q8 b = stored_block(k, 127.0f, -2.5f); /* ties to even */
        CHECK(f16_to_f32(b.d) == 1 && b.q[0] == 127 && b.q[1] == -2 && b.q[2] == 0);
        b = stored_block(k, -127.0f, 3.5f);
        CHECK(f16_to_f32(b.d) == 1 && b.q[0] == -127 && b.q[1] == 4);
        b = stored_block(k, 0, -0.0f);
        CHECK(b.d == 0 && b.q[0] == 0 && b.q[1] == 0);
        b = stored_block(k, 0x1p-20f, -0x1p-21f); /* the scale is subnormal, coarse: no wrapping */
        CHECK(b.d == 0 && b.q[0] == 0 && b.q[1] == 0);
        b = stored_block(k, 1e-5f, -1e-5f);
        CHECK(b.d == 1 && b.q[0] == 127 && b.q[1] == -127);
        const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 8.4e6f, -3e38f};
        for (int i = 0; i < 6; i++) {
            b = stored_block(k, 1, bad[i]);
            CHECK(isnan(f16_to_f32(b.d)));
        }
        for (int round = 0; round < 2000; round++) {
            float x[45], magnitude = ldexpf(1, (int)(test_rand() % 30) - 10);
            block_q8 row[2];
            for (int i = 0; i < 45; i++) {
                x[i] = test_normal() * magnitude;
            }
            k->kv_store[KV_Q8](x, 45, row);
            for (int i = 0; i < 64; i++) {
                float d = f16_to_f32(row[i / 32].d), got = d * (float)row[i / 32].q[i % 32];
                /* half a step, and what rounding in floats adds */
                CHECK(fabsf(got - (i < 45 ? x[i] : 0)) <= d * 0.50001f);
            }
        }
    }
}

/* All 65536 halves upwards; downwards each half, its neighbours and the ties between. */
TEST(kernels_half_conversion_is_exact) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint32_t e = h >> 10 & 31, m = h & 1023;
        double want = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, (int)e - 25);
        float got = f16_to_f32((uint16_t)h);
        if (e == 31) {
            CHECK(m ? isnan(got) : isinf(got));
            continue;
        }
        CHECK((double)got == (h & 0x8000 ? -want : want));
        CHECK_INT(f32_to_f16(got), h);
        if ((h & 0x7fff) < 0x7bff) {
            float next = f16_to_f32((uint16_t)(h + 1)), tie = got + (next - got) / 2;
            CHECK_INT(f32_to_f16(tie), h & 1 ? h + 1 : h);
            CHECK_INT(f32_to_f16(nextafterf(tie, next)), h + 1);
            CHECK_INT(f32_to_f16(nextafterf(tie, got)), h);
        }
    }
    CHECK_INT(f32_to_f16(65519.9f), 0x7bff);
    CHECK_INT(f32_to_f16(65520.0f), 0x7c00);
    CHECK_INT(f32_to_bf16(1.00390625f), 0x3f80);
    CHECK_INT(f32_to_bf16(1.01171875f), 0x3f82);
    CHECK(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    for (int v = 0; kernels_variant(v); v++) {
        float x[16];
        uint16_t h[16];
        for (int i = 0; i < 4000; i++) {
            x[i % 16] = f32_from_bits((uint32_t)test_rand());
            x[i % 16] = isnan(x[i % 16]) ? 1 : x[i % 16];
            if (i % 16 == 15) {
                kernels_variant(v)->kv_store[KV_F16](x, 16, h);
                for (int j = 0; j < 16; j++) {
                    CHECK_INT(h[j], f32_to_f16(x[j]));
                }
            }
        }
    }
}
