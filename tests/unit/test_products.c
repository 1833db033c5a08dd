/* test_products.c: products and hidden layers of a tile are what double loops say, and the same bits on any number of threads,
 * in whichever of their ways they are computed. */
#include "batch.h"
#include "kernels/packed.h"
#include "rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WIDTH = 320, MOST_HIDDEN = 1600 };

static rng source = {88172645463325252u};

static float number(void)
{
    return rng_signed(&source);
}

static float *numbers(size_t n)
{
    float *a = aligned_alloc(64, (n * sizeof *a + 63) / 64 * 64);
    assert_non_null(a);
    for (size_t i = 0; i < n; i++) a[i] = number();
    return a;
}

/* A hidden layer as FF2W has one: units z = A x + b, to the outputs by the columns of B and by the rows of A. */
typedef struct layer {
    size_t width, hidden, n, rows; /* rows the workspace has room for */
    workspace work;
    matrix a, b;
    float *bias, *x, *out[2];
} layer;

static void make_matrix(matrix *w, size_t rows, size_t cols)
{
    *w = (matrix){.data = numbers(rows * cols), .type = NUMBER_F32, .rows = rows, .cols = cols, .stride = cols * sizeof(float)};
}

/* Q8_0: a scale of 2^-7, as half precision has it, and 32 bytes, those beyond the row's end 0. */
static void make_packed(matrix *w, size_t rows, size_t cols)
{
    size_t blocks = (cols + 31) / 32;
    char *data = calloc(rows * blocks, 34), *at = data;
    assert_non_null(data);
    for (size_t r = 0; r < rows; r++)
        for (size_t b = 0; b < blocks; b++, at += 34) {
            at[1] = 0x20;
            for (size_t i = 0; i < 32 && b * 32 + i < cols; i++) at[2 + i] = (char)(int8_t)(number() * 127);
        }
    *w =
        (matrix){.type = NUMBER_Q8_0, .rows = rows, .cols = cols, .packed = packed_create(NUMBER_Q8_0, data, rows, cols, true)};
    assert_non_null(w->packed);
    free(data);
}

static void free_matrix(matrix *w)
{
    if (w->type == NUMBER_Q8_0) packed_destroy((packed *)(uintptr_t)w->packed);
    free((void *)(uintptr_t)w->data);
}

static void make_layer(layer *l, number_type type, size_t width, size_t hidden, size_t n, size_t rows)
{
    void (*const make)(matrix *, size_t, size_t) = type == NUMBER_F32 ? make_matrix : make_packed;
    *l = (layer){.width = width, .hidden = hidden, .n = n, .rows = rows};
    l->work.wide_stride = (width + 15) / 16 * 16;
    l->work.hidden_stride = (hidden + 15) / 16 * 16;
    l->work.rows = rows;
    for (int i = 0; i < 2; i++) {
        l->work.hidden[i] = numbers(rows * l->work.hidden_stride);
        l->work.wide[i] = numbers(rows * l->work.wide_stride);
        l->out[i] = numbers(rows * l->work.wide_stride);
    }
    l->x = numbers(rows * l->work.wide_stride);
    l->bias = numbers(hidden);
    make(&l->a, hidden, width);
    make(&l->b, width, hidden);
}

static void free_layer(layer *l)
{
    for (int i = 0; i < 2; i++) {
        free(l->work.hidden[i]);
        free(l->work.wide[i]);
        free(l->out[i]);
    }
    free(l->x);
    free(l->bias);
    free_matrix(&l->a);
    free_matrix(&l->b);
}

/* hidden[0] = (A x + b)^2, hidden[1] = A x + b */
static void fill_units(const tile *t, const void *arg, size_t first, size_t last)
{
    const layer *l = arg;
    size_t hs = t->work->hidden_stride;
    assert_int_equal(first % PRODUCT_CUT, 0);
    assert_true(first < last && last <= l->hidden);
    tile_project_rows(t, &l->a, l->bias, l->x, t->work->wide_stride, t->work->hidden[1], hs, first, last);
    for (size_t i = 0; i < t->n; i++)
        for (size_t f = i * hs + first; f < i * hs + last; f++)
            t->work->hidden[0][f] = t->work->hidden[1][f] * t->work->hidden[1][f];
}

static void run_layer(layer *l, team *threads)
{
    tile t = {.kernels = kernels_get(), .team = threads, .work = &l->work, .n = l->n};
    const hidden_sum sums[] = {
        {.w = &l->b, .columns = true, .in = l->work.hidden[0], .out = l->out[0], .scratch = l->work.wide[0]},
        {.w = &l->a, .in = l->work.hidden[1], .out = l->out[1], .scratch = l->work.wide[1]}};
    for (int i = 0; i < 2; i++)
        for (size_t c = 0; c < l->rows * l->work.wide_stride; c++) l->out[i][c] = NAN; /* every output is stored */
    tile_hidden(&t, l->hidden, 4 * tile_product_work(&t, &l->a), fill_units, l, sums, 2);
}

static void check_layer(const layer *l)
{
    const float *a = l->a.data, *b = l->b.data;
    double *z = malloc(l->hidden * sizeof *z), *most = malloc(l->hidden * sizeof *most); /* were nothing to cancel */
    assert_non_null(z);
    assert_non_null(most);
    for (size_t i = 0; i < l->n; i += l->n / 3 + 1) {
        for (size_t f = 0; f < l->hidden; f++) {
            z[f] = (double)l->bias[f];
            most[f] = fabs(z[f]);
            for (size_t c = 0; c < l->width; c++) {
                double term = (double)a[f * l->width + c] * (double)l->x[i * l->work.wide_stride + c];
                z[f] += term;
                most[f] += fabs(term);
            }
        }
        for (size_t c = 0; c < l->width; c++) {
            double columns = 0, rows = 0, size[2] = {0, 0};
            for (size_t f = 0; f < l->hidden; f++) {
                columns += (double)b[c * l->hidden + f] * z[f] * z[f];
                rows += (double)a[f * l->width + c] * z[f];
                size[0] += fabs((double)b[c * l->hidden + f] * most[f] * most[f]);
                size[1] += fabs((double)a[f * l->width + c] * most[f]);
            }
            assert_true(fabs((double)l->out[0][i * l->work.wide_stride + c] - columns) <= 1e-6 * size[0]);
            assert_true(fabs((double)l->out[1][i * l->work.wide_stride + c] - rows) <= 1e-6 * size[1]);
        }
    }
    free(z);
    free(most);
}

static void check_hidden_layers(number_type type)
{
    static const size_t hiddens[] = {1, 31, 200, 256, 257, 512, 600, 1024, MOST_HIDDEN}, widths[] = {33, 130, MOST_WIDTH},
                        counts[] = {1, 3, 17, 128};
    team *teams[4];
    for (unsigned i = 0; i < 4; i++) {
        teams[i] = team_create(i + 1);
        assert_non_null(teams[i]);
    }
    for (size_t h = 0; h < sizeof hiddens / sizeof *hiddens; h++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                layer l;
                if (counts[n] > 17 && widths[w] > 130) continue;
                make_layer(&l, type, widths[w], hiddens[h], counts[n], n % 2 ? counts[n] : 128);
                size_t numbers_out = counts[n] * l.work.wide_stride;
                float *expected = malloc(2 * numbers_out * sizeof *expected);
                assert_non_null(expected);
                for (unsigned i = 0; i < 4; i++) {
                    run_layer(&l, teams[i]);
                    if (i == 0 && type == NUMBER_F32) check_layer(&l);
                    for (int k = 0; k < 2; k++)
                        if (i == 0)
                            memcpy(expected + (size_t)k * numbers_out, l.out[k], numbers_out * sizeof *expected);
                        else
                            assert_memory_equal(expected + (size_t)k * numbers_out, l.out[k], numbers_out * sizeof *expected);
                }
                free(expected);
                free_layer(&l);
            }
    for (unsigned i = 0; i < 4; i++) team_destroy(teams[i]);
}

static void hidden_layers(void **state)
{
    (void)state;
    check_hidden_layers(NUMBER_F32);
}

/* Against numbers they are checked by test_packed.c. */
static void quantized_hidden_layers(void **state)
{
    (void)state;
    check_hidden_layers(NUMBER_Q8_0);
}

/* Rows of a tile beside each other change nothing either: one at a time comes to the same bits. */
static void check_rows_beside_each_other(number_type type)
{
    team *two = team_create(2);
    assert_non_null(two);
    layer l;
    make_layer(&l, type, 130, 700, 19, 128);
    size_t ws = l.work.wide_stride;
    run_layer(&l, two);
    float *together[2] = {l.out[0], l.out[1]}, *x = l.x, *alone[2] = {numbers(128 * ws), numbers(128 * ws)};
    for (size_t i = 0; i < 19; i++) {
        l.x = x + i * ws;
        l.n = 1;
        for (int k = 0; k < 2; k++) l.out[k] = alone[k];
        run_layer(&l, two);
        for (int k = 0; k < 2; k++) assert_memory_equal(together[k] + i * ws, alone[k], 130 * sizeof(float));
    }
    l.x = x;
    for (int k = 0; k < 2; k++) {
        l.out[k] = together[k];
        free(alone[k]);
    }
    free_layer(&l);
    team_destroy(two);
}

static void rows_beside_each_other(void **state)
{
    (void)state;
    check_rows_beside_each_other(NUMBER_F32);
    check_rows_beside_each_other(NUMBER_Q8_0);
}

static void check_products(const layer *l, team *one, team *many)
{
    tile t = {.kernels = kernels_get(), .team = one, .work = (workspace *)(uintptr_t)&l->work, .n = l->n};
    size_t ws = l->work.wide_stride, hs = l->work.hidden_stride, z_numbers = l->n * hs, y_numbers = l->n * ws;
    float *z[2] = {numbers(z_numbers), numbers(z_numbers)}, *y[2] = {numbers(y_numbers), numbers(y_numbers)};
    for (int add = 0; add < 2; add++) {
        memcpy(z[1], z[0], z_numbers * sizeof(float));
        memcpy(y[1], y[0], y_numbers * sizeof(float));
        for (int i = 0; i < 2; i++) {
            t.team = i ? many : one;
            tile_project(&t, &l->a, l->bias, l->x, ws, z[i], hs, add);
            tile_project_back(&t, &l->a, z[i], hs, y[i], ws, add);
        }
        assert_memory_equal(z[0], z[1], z_numbers * sizeof(float));
        assert_memory_equal(y[0], y[1], y_numbers * sizeof(float));
    }
    for (int i = 0; i < 2; i++) {
        free(z[i]);
        free(y[i]);
    }
}

static void products_on_threads(void **state)
{
    static const size_t hiddens[] = {1, 40, 300, MOST_HIDDEN}, widths[] = {1, 65, MOST_WIDTH}, counts[] = {1, 5, 64};
    (void)state;
    team *one = team_create(1);
    assert_non_null(one);
    for (unsigned threads = 2; threads <= 5; threads++) {
        team *many = team_create(threads);
        assert_non_null(many);
        for (size_t h = 0; h < sizeof hiddens / sizeof *hiddens; h++)
            for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
                layer l;
                size_t n = counts[(h + w + threads) % 3];
                make_layer(&l, (h + w) % 2 ? NUMBER_Q8_0 : NUMBER_F32, widths[w], hiddens[h], n, 128);
                check_products(&l, one, many);
                free_layer(&l);
            }
        team_destroy(many);
    }
    team_destroy(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_layers),
        cmocka_unit_test(quantized_hidden_layers),
        cmocka_unit_test(rows_beside_each_other),
        cmocka_unit_test(products_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
