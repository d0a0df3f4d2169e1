/* quants: ggml's block types against published values, and every variant against the portable
 * oracle. */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "formats/half.h"
#include "formats/safetensors.h"
#include "kernels/kernels.h"

/* The types, and where their blocks have f16 scales (-1: none). */
static const struct {
    dtype type;
    int16_t d;
    int16_t min;
} TYPES[] = {
    {DT_Q4_0, 0, -1},    {DT_Q4_1, 0, 2},    {DT_Q5_0, 0, -1},   {DT_Q5_1, 0, 2},
    {DT_Q8_0, 0, -1},    {DT_Q2_K, 80, 82},  {DT_Q3_K, 108, -1}, {DT_Q4_K, 0, 2},
    {DT_Q5_K, 0, 2},     {DT_Q6_K, 208, -1}, {DT_IQ1_S, 0, -1},  {DT_IQ1_M, -1, -1},
    {DT_IQ2_XXS, 0, -1}, {DT_IQ2_XS, 0, -1}, {DT_IQ2_S, 0, -1},  {DT_IQ3_XXS, 0, -1},
    {DT_IQ3_S, 0, -1},   {DT_IQ4_NL, 0, -1}, {DT_IQ4_XS, 0, -1}, {DT_TQ1_0, 52, -1},
    {DT_TQ2_0, 64, -1},  {DT_MXFP4, -1, -1}, {DT_NVFP4, -1, -1}, {DT_Q1_0, 0, -1},
    {DT_Q2_0, 0, -1},
};
enum { N_TYPE = sizeof TYPES / sizeof *TYPES, MAX_ROW = 9, MAX_TOK = 19, MAX_COL = 1344 };
static const int32_t SIZES[] = {1, 31, 64, 65, 160, 256, 288, 500, 1024, 1344};
enum { N_SIZE = sizeof SIZES / sizeof *SIZES };
static const float POISON = -12345.5f;

/* ---- inputs */

/* Gives a block of random bytes the scale d, and the scale of its minima. */
static void set_block_scale(int i, uint8_t *block, float d, float min) {
    uint16_t bits = f32_to_f16(d), min_bits = f32_to_f16(min);
    if (TYPES[i].d >= 0) {
        memcpy(block + TYPES[i].d, &bits, sizeof bits);
    }
    if (TYPES[i].min >= 0) {
        memcpy(block + TYPES[i].min, &min_bits, sizeof min_bits);
    }
    if (TYPES[i].type == DT_IQ1_M) {
        for (int k = 0; k < 4; k++) {
            block[49 + 2 * k] = (uint8_t)((block[49 + 2 * k] & 15) | (bits >> 4 * k & 15) << 4);
        }
    } else if (TYPES[i].type == DT_MXFP4) {
        block[0] = (uint8_t)(128 + (int)floorf(log2f(fabsf(d) + 1e-4f)));
    } else if (TYPES[i].type == DT_NVFP4) {
        for (int k = 0; k < 4; k++) {
            block[k] = (uint8_t)(block[k] & 0x3f);
        }
    }
}

/* n_row rows that end at an unmapped page, pad bytes between them. */
static uint8_t *random_rows(int i, int32_t n_row, int32_t n_col, size_t pad) {
    size_t row_bytes = dtype_row_bytes(TYPES[i].type, (uint64_t)n_col);
    size_t block_bytes = dtype_get(TYPES[i].type)->block_bytes;
    uint8_t *w = test_guarded(row_bytes * (size_t)n_row + pad * (size_t)(n_row - 1));
    for (int32_t r = 0; r < n_row; r++) {
        uint8_t *row = w + (row_bytes + pad) * (size_t)r;
        for (size_t b = 0; b < row_bytes; b++) {
            row[b] = (uint8_t)test_rand();
        }
        for (size_t b = 0; b < row_bytes; b += block_bytes) {
            set_block_scale(i, row + b, test_uniform(-0.01f, 0.01f), test_uniform(-0.02f, 0.02f));
        }
    }
    return w;
}

static float *poisoned(size_t n) {
    float *y = test_guarded(n * sizeof *y);
    for (size_t i = 0; i < n; i++) {
        y[i] = POISON;
    }
    return y;
}

/* A product's operands; rows and tokens end at unmapped pages. */
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

static operands make_operands(int i, bool q8, int32_t n_row, int32_t n_col, int32_t n_tok,
                              size_t pad) {
    operands o = {TYPES[i].type, q8, n_row, n_col, n_tok, NULL, 0, NULL, NULL, 0};
    size_t n_x = (size_t)n_col + 3;
    o.w = random_rows(i, n_row, n_col, pad);
    o.w_row_bytes = dtype_row_bytes(o.type, (uint64_t)n_col) + pad;
    o.x_stride = q8 ? act_row_blocks(n_col) : n_x;
    o.x = test_guarded(((size_t)(n_tok - 1) * n_x + (size_t)n_col) * sizeof *o.x);
    for (size_t k = 0; k < (size_t)(n_tok - 1) * n_x + (size_t)n_col; k++) {
        o.x[k] = test_normal();
    }
    if (q8) {
        o.x_q8 = test_guarded((size_t)n_tok * o.x_stride * sizeof *o.x_q8);
        for (size_t t = 0; t < (size_t)n_tok; t++) {
            kernels_variant(0)->quantize_act(o.x + t * n_x, n_col, o.x_q8 + t * o.x_stride);
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

/* ---- published values */

/* The tensors of a file of vectors; the caller's. */
static void read_vectors(const char *path, float **values, uint8_t **raw, size_t *n_value,
                         size_t *n_raw) {
    smoe_error err;
    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    CHECK_OK(safetensors_open(&table, &names, &files, path, NULL, &err));
    const tensor *v = tensor_table_find(&table, "values"), *r = tensor_table_find(&table, "raw");
    CHECK(v && r && v->type == DT_F32 && r->type == DT_U8);
    *n_value = v->bytes / sizeof **values;
    *n_raw = r->bytes;
    *values = malloc(v->bytes);
    *raw = test_guarded(r->bytes);
    CHECK_OK(file_read_at(files.file[0].fd, path, v->offset, *values, v->bytes, &err));
    CHECK_OK(file_read_at(files.file[0].fd, path, r->offset, *raw, r->bytes, &err));
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
}

/* Every variant gives the very values; 0 and -0 count as equal. */
static void check_vectors(const char *path, dtype type) {
    float *values;
    uint8_t *raw;
    size_t n, n_raw;
    read_vectors(path, &values, &raw, &n, &n_raw);
    CHECK_INT(n_raw, dtype_row_bytes(type, n));
    for (int v = 0; kernels_variant(v); v++) {
        float *out = poisoned(n);
        kernels_variant(v)->dequant_row[type](raw, (int32_t)n, out);
        for (size_t i = 0; i < n; i++) {
            if (!(out[i] == values[i])) {
                FAIL("%s %s: value %zu is %.9g, expected %.9g", kernels_variant(v)->name,
                     dtype_get(type)->name, i, (double)out[i], (double)values[i]);
            }
        }
    }
    free(values);
}

/* The file of a type is named as ggml writes it. */
static const char *file_of(const char *folder, dtype type) {
    static char name[64];
    int n = snprintf(name, sizeof name, "%s/%s.safetensors", folder, dtype_get(type)->name);
    for (int i = (int)strlen(folder) + 1; i < n - (int)strlen(".safetensors"); i++) {
        name[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
    }
    return name;
}

TEST(quants_values_are_exact) {
    for (int i = 0; i < N_TYPE; i++) {
        check_vectors(test_data(file_of("quants", TYPES[i].type)), TYPES[i].type);
    }
}

TEST(quants_values_are_exact_in_full) {
    check_vectors(test_vectors("vectors/quants/F16.safetensors"), DT_F16);
    check_vectors(test_vectors("vectors/quants/BF16.safetensors"), DT_BF16);
    for (int i = 0; i < N_TYPE; i++) {
        check_vectors(test_vectors(file_of("vectors/quants", TYPES[i].type)), TYPES[i].type);
    }
}

TEST(quants_are_found_by_ggml_number) {
    static const struct {
        uint32_t number;
        dtype type;
    } known[] = {{0, DT_F32},      {1, DT_F16},    {2, DT_Q4_0},  {8, DT_Q8_0},   {12, DT_Q4_K},
                 {16, DT_IQ2_XXS}, {29, DT_IQ1_M}, {30, DT_BF16}, {39, DT_MXFP4}, {42, DT_Q2_0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        CHECK_INT(dtype_by_ggml(known[i].number), known[i].type);
    }
    for (int t = 0; t < DT_COUNT; t++) {
        int32_t number = dtype_to_ggml((dtype)t);
        CHECK(number == -1 || dtype_by_ggml((uint32_t)number) == (dtype)t);
    }
    CHECK_INT(dtype_to_ggml(DT_Q4), -1);
    static const uint32_t unknown[] = {4, 5, 9, 15, 31, 38, 43, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        CHECK_INT(dtype_by_ggml(unknown[i]), DT_NONE);
    }
}

/* ---- variants against the oracle */

TEST(quants_dequantise_alike) {
    for (int v = 0; kernels_variant(v); v++) {
        for (int i = 0; i < N_TYPE * N_SIZE; i++) {
            int32_t n = SIZES[i / N_TYPE];
            dtype type = TYPES[i % N_TYPE].type;
            CHECK(dtype_get(type)->is_weight);
            uint8_t *w = random_rows(i % N_TYPE, 1, n, 0);
            float *out = poisoned((size_t)n), *want = poisoned((size_t)n);
            kernels_variant(v)->dequant_row[type](w, n, out);
            kernels_variant(0)->dequant_row[type](w, n, want);
            CHECK(memcmp(out, want, (size_t)n * sizeof *out) == 0);
        }
    }
}

/* Rounding errors of element (t, r) are bounded in units of the largest weight of whole blocks
 * times the sum of activations: minima and codes may cancel. */
static double error_bound(const operands *o, int32_t t, int32_t r) {
    static float w[MAX_COL + 256];
    int32_t elems = dtype_get(o->type)->block_elems;
    int32_t whole = (o->n_col + elems - 1) / elems * elems;
    kernels_variant(0)->dequant_row[o->type](o->w + o->w_row_bytes * (size_t)r, whole, w);
    double largest = 0, sum = 0;
    for (int32_t c = 0; c < whole; c++) {
        largest = fmax(largest, fabs((double)w[c]));
    }
    for (int32_t c = 0; c < o->n_col; c++) {
        sum += fabs((double)o->x[(size_t)t * ((size_t)o->n_col + 3) + (size_t)c]);
    }
    return 4e-8 * (8 + sqrt(o->n_col)) * largest * sum + 1e-30;
}

static void check_product(const kernels *k, const operands *o) {
    size_t stride = (size_t)o->n_row + 2, n_y = (size_t)o->n_tok * stride - 2;
    float *y = poisoned(n_y), *want = poisoned(n_y);
    multiply(kernels_variant(0), o, want, stride, 0, o->n_row, 0, o->n_tok);
    multiply(k, o, y, stride, 0, o->n_row, 0, o->n_tok);
    for (size_t i = 0; i < n_y; i++) {
        int32_t t = (int32_t)(i / stride), r = (int32_t)(i % stride);
        if (r >= o->n_row) {
            CHECK(y[i] == POISON);
            continue;
        }
        double bound = error_bound(o, t, r);
        if (!(fabs((double)y[i] - (double)want[i]) <= bound)) {
            FAIL("%s %s %s: [%d x %d] x %d at (%d, %d): %.9g, expected %.9g within %.3g", k->name,
                 dtype_get(o->type)->name, o->q8 ? "q8" : "f32", o->n_row, o->n_col, o->n_tok, t, r,
                 (double)y[i], (double)want[i], bound);
        }
    }
}

TEST(quants_products_match_portable) {
    for (int v = 1; kernels_variant(v); v++) {
        for (int i = 0; i < N_TYPE * N_SIZE * 2; i++) {
            int32_t n_row = 1 + (int32_t)(test_rand() % MAX_ROW);
            int32_t n_tok = 1 + (int32_t)(test_rand() % (test_rand() % 4 ? 9 : MAX_TOK));
            operands o = make_operands(i / 2 % N_TYPE, i % 2, n_row, SIZES[i / 2 / N_TYPE], n_tok,
                                       test_rand() % 4);
            check_product(kernels_variant(v), &o);
        }
    }
}

/* The oracle against the definition: dequantised weights times dequantised activations. */
TEST(quants_portable_products_are_sums) {
    static float w[MAX_COL];
    for (int i = 0; i < N_TYPE * N_SIZE * 2; i++) {
        operands o = make_operands(i / 2 % N_TYPE, i % 2, 3, SIZES[i / 2 / N_TYPE], 2, 1);
        float *y = poisoned(6);
        multiply(kernels_variant(0), &o, y, 3, 0, 3, 0, 2);
        for (int32_t k = 0; k < 6; k++) {
            const float *x = o.x + (size_t)(k / 3) * ((size_t)o.n_col + 3);
            double want = 0;
            kernels_variant(0)->dequant_row[o.type](o.w + o.w_row_bytes * (size_t)(k % 3), o.n_col,
                                                    w);
            for (int32_t c = 0; c < o.n_col; c++) {
                const act_q8 *b =
                    o.q8 ? &o.x_q8[(size_t)(k / 3) * o.x_stride + (size_t)c / 32] : NULL;
                want += (double)w[c] * (b ? (double)b->d * b->q[c % 32] : (double)x[c]);
            }
            CHECK_NEAR(y[k], want, error_bound(&o, k / 3, k % 3));
        }
    }
}

/* Every element alone, and rows and tokens split at random, give the same bits as all at once. */
TEST(quants_products_do_not_depend_on_company) {
    static const int32_t n_col[] = {63, 512, 1056};
    for (int v = 0; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        for (int i = 0; i < 2 * N_TYPE * 3; i++) {
            operands o =
                make_operands(i / 2 % N_TYPE, i % 2, MAX_ROW, n_col[i / (2 * N_TYPE)], MAX_TOK, 3);
            size_t stride = MAX_ROW + 1, n_y = MAX_TOK * stride - 1;
            float *all = poisoned(n_y), *one = poisoned(n_y), *split = poisoned(n_y);
            multiply(k, &o, all, stride, 0, MAX_ROW, 0, MAX_TOK);
            for (int32_t e = 0; e < MAX_TOK * MAX_ROW; e++) {
                multiply(k, &o, one, stride, e % MAX_ROW, 1, e / MAX_ROW, 1);
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

/* Enough rows and tokens for whole groups of the widest kernels, pieces of them, and more tokens
 * than one chunk: rows that are multiplied with company twice give the same bits. */
TEST(quants_products_of_wide_shapes) {
    static const int32_t n_row[] = {12, 16, 17, 31, 37}, n_col[] = {96, 768, 320};
    for (int v = 0; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        for (int i = 0; i < N_TYPE * 3; i++) {
            int32_t rows = n_row[test_rand() % 5];
            int32_t n_tok = v == 0 ? 2 : 60 + (int32_t)(test_rand() % 12);
            operands o =
                make_operands(i % N_TYPE, true, rows, n_col[i / N_TYPE], n_tok, test_rand() % 4);
            size_t stride = (size_t)rows + 1, n_y = (size_t)n_tok * stride - 1;
            check_product(k, &o);
            float *all = poisoned(n_y), *one = poisoned(n_y);
            multiply(k, &o, all, stride, 0, rows, 0, n_tok);
            for (int32_t t = 0; t < n_tok; t++) {
                int32_t r = (int32_t)(test_rand() % (uint64_t)rows);
                multiply(k, &o, one, stride, 0, r, t, 1);
                multiply(k, &o, one, stride, r, rows - r, t, 1);
            }
            CHECK(memcmp(all, one, n_y * sizeof *all) == 0);
        }
    }
}

/* One token alone, whose activations some kernels rearrange where a row is not too long, gives the
 * bits that it gives beside another. */
TEST(quants_products_of_long_rows) {
    static const int32_t n_col[] = {2880, 16384, 16480};
    enum { ROWS = 17 };
    for (int v = 1; kernels_variant(v); v++) {
        const kernels *k = kernels_variant(v);
        for (int i = 0; i < N_TYPE * 3; i++) {
            operands o = make_operands(i % N_TYPE, true, ROWS, n_col[i / N_TYPE], 2, 1);
            float *both = poisoned(ROWS * 2), *alone = poisoned(ROWS * 2);
            multiply(k, &o, both, ROWS, 0, ROWS, 0, 2);
            multiply(k, &o, alone, ROWS, 0, ROWS, 0, 1);
            multiply(k, &o, alone, ROWS, 0, ROWS, 1, 1);
            CHECK(memcmp(both, alone, ROWS * 2 * sizeof *both) == 0);
        }
    }
}

/* Kernels of rows side by side add in the same order in every instruction set, and their integers
 * are exact: the variants above portable give the same bits. */
TEST(quants_products_of_rows_agree) {
    static const dtype rows[] = {DT_Q8_0, DT_Q4_0,   DT_Q4_K,   DT_Q5_K,
                                 DT_Q6_K, DT_IQ4_NL, DT_IQ4_XS, DT_MXFP4};
    static const int32_t n_col[] = {352, 768, 32, 1056};
    for (int i = 0; i < N_TYPE * 16; i++) {
        bool by_rows = false;
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            by_rows = by_rows || TYPES[i % N_TYPE].type == rows[k];
        }
        int32_t n_row = 1 + (int32_t)(test_rand() % 40);
        int32_t n_tok = 1 + (int32_t)(test_rand() % (i / N_TYPE % 4 ? 18 : 150));
        operands o = make_operands(i % N_TYPE, true, n_row, n_col[test_rand() % 4], n_tok, 1);
        size_t n_y = (size_t)n_row * (size_t)n_tok;
        float *want = poisoned(n_y), *y = poisoned(n_y);
        for (int v = 1; by_rows && kernels_variant(v); v++) {
            multiply(kernels_variant(v), &o, v == 1 ? want : y, (size_t)n_row, 0, n_row, 0, n_tok);
            CHECK(v == 1 || memcmp(y, want, n_y * sizeof *y) == 0);
        }
    }
}

/* The same activations for enough tokens that every kernel has its say. */
enum { EXTREME_TOK = 17 };

/* Activations of +-127 against blocks of one repeated byte, with the signs of the weights and
 * against them: integers of any size on the way, so that overflow and saturation show. */
static void check_extreme(const kernels *k, int i, const uint8_t *block, int pattern) {
    int32_t n = dtype_get(TYPES[i].type)->block_elems;
    act_q8 x[8];
    float w[256], y[EXTREME_TOK];
    double want = 0, magnitude = 0;
    k->dequant_row[TYPES[i].type](block, n, w);
    memset(x, 0, sizeof x);
    for (int32_t c = 0; c < n; c++) {
        bool minus = pattern < 2 ? pattern == 1 : (w[c] < 0) == (pattern == 2);
        x[c / 32].q[c % 32] = minus ? -127 : 127;
        x[c / 32].d_sum += minus ? -127 : 127;
        x[c / 32].fix[c % 32 / 16] -= minus ? -128 * 127 : 128 * 127;
        x[c / 32].fix_all -= minus ? -128 * 127 : 128 * 127;
        x[c / 32].d = 1;
        want += (double)w[c] * (minus ? -127 : 127);
        magnitude += fabs((double)w[c]) * 127;
    }
    CHECK(magnitude < 1e9);
    for (int32_t n_tok = 1; n_tok <= EXTREME_TOK; n_tok += EXTREME_TOK - 1) {
        k->mm_q8[TYPES[i].type](y, 1, block, dtype_get(TYPES[i].type)->block_bytes, 1, n, x, 0,
                                n_tok);
        for (int32_t t = 0; t < n_tok; t++) {
            if (!(fabs((double)y[t] - want) <= magnitude * 2e-6 + 0.1)) {
                FAIL("%s %s: %.9g, expected %.9g", k->name, dtype_get(TYPES[i].type)->name,
                     (double)y[t], want);
            }
        }
    }
}

TEST(quants_products_survive_extremes) {
    for (int v = 0; kernels_variant(v); v++) {
        for (int i = 0; i < N_TYPE * 256 * 2; i++) {
            int type = i % N_TYPE;
            uint8_t block[256];
            memset(block, i / N_TYPE % 256, sizeof block);
            for (size_t k = 0; i / N_TYPE >= 256 && k < sizeof block; k++) {
                block[k] = (uint8_t)test_rand();
            }
            set_block_scale(type, block, 1, 1);
            for (int pattern = 0; pattern < 4; pattern++) {
                check_extreme(kernels_variant(v), type, block, pattern);
            }
        }
    }
}

TEST(quants_products_keep_nan_and_zero) {
    for (int v = 0; kernels_variant(v); v++) {
        for (int i = 0; i < 2 * N_TYPE; i++) {
            operands o = make_operands(i / 2, i % 2, 5, 200, 20, 0);
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
