/* test_kernels.c: every instruction set's kernels against plain double loops and against OpenBLAS, over random shapes and
 * tails; and that no output bit depends on how the work is cut. */
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cblas.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static rng source = {88172645463325252u};

static size_t below(size_t n)
{
    return rng_below(&source, n);
}

static float number(void)
{
    return rng_signed(&source);
}

static float *numbers(size_t n)
{
    float *a = malloc((n ? n : 1) * sizeof *a);
    assert_non_null(a);
    for (size_t i = 0; i < n; i++) a[i] = number();
    return a;
}

/* A random matrix in its type, and the same numbers as floats [rows][cols]. Its rows end where the memory ends, so that a
 * sanitizer sees a kernel that reads past them. */
typedef struct sample {
    matrix w;
    void *data;
    float *wide;
} sample;

/* Rows of blocks, the matrix beginning at some number of them. */
static sample make_blocks(size_t rows, size_t cols)
{
    sample s = {.wide = numbers(rows * cols)};
    size_t first = below(2) ? below(70) : below(5) * 16, blocks = (first + cols + Q8_BLOCK - 1) / Q8_BLOCK;
    q8_block *data = calloc(rows * blocks, sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < rows * blocks; i++) {
        data[i].scale = number() / 127;
        for (size_t n = 0; n < Q8_BLOCK; n++) data[i].quant[n] = (int8_t)(below(256) - 128);
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            const q8_block *b = &data[r * blocks + (first + c) / Q8_BLOCK];
            s.wide[r * cols + c] = b->scale * (float)b->quant[(first + c) % Q8_BLOCK];
        }
    s.data = data;
    s.w = (matrix){
        .data = data, .type = NUMBER_Q8_ROWS, .rows = rows, .cols = cols, .stride = blocks * sizeof *data, .first = first};
    return s;
}

static sample make(number_type type, size_t rows, size_t cols, size_t gap)
{
    if (type == NUMBER_Q8_ROWS) return make_blocks(rows, cols);
    sample s = {.wide = numbers(rows * cols)};
    size_t stride = (cols + gap) * number_bytes(type);
    s.data = malloc((rows - 1) * stride + cols * number_bytes(type));
    assert_non_null(s.data);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            char *to = (char *)s.data + r * stride + c * number_bytes(type);
            float *value = &s.wide[r * cols + c];
            uint32_t bits;
            memcpy(&bits, value, sizeof bits);
            if (type == NUMBER_F32) memcpy(to, value, sizeof *value);
            if (type == NUMBER_F16) {
                uint16_t half = half_from_float(*value);
                memcpy(to, &half, sizeof half);
                *value = half_to_float(half);
            }
            if (type == NUMBER_BF16) {
                uint16_t half = (uint16_t)(bits >> 16);
                memcpy(to, &half, sizeof half);
                bits = (uint32_t)half << 16;
                memcpy(value, &bits, sizeof bits);
            }
        }
    s.w = (matrix){.data = s.data, .type = type, .rows = rows, .cols = cols, .stride = stride};
    return s;
}

static void drop(sample *s)
{
    free(s->data);
    free(s->wide);
}

static void close_to(double found, double expected, double terms)
{
    if (!(fabs(found - expected) <= 3e-7 * sqrt(terms + 1) + 2e-6 * fabs(expected)))
        fail_msg("found %.9g, expected %.9g over %g terms", found, expected, terms);
}

/* Rows [first, last) of W x, and columns [first, last) of W^T u. */
static void project_rows(const kernels *k, const matrix *w, const float *x, size_t xs, size_t count, float *y, size_t ys,
                         size_t first, size_t last, bool add)
{
    product p = product_whole(w, x, xs, count, y, ys);
    p.first_row = first;
    p.last_row = last;
    p.add = add;
    k->project(&p);
}

static void back_columns(const kernels *k, const matrix *w, const float *u, size_t us, size_t count, float *o, size_t os,
                         size_t first, size_t last, bool add)
{
    product p = product_whole(w, u, us, count, o, os);
    p.first_col = first;
    p.last_col = last;
    p.add = add;
    k->project_back(&p);
}

/* W x and W^T u of random shapes, types and strides, stored and added, against double loops. */
static void products_equal_double(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    for (int round = 0; round < 120; round++) {
        size_t rows = 1 + below(round % 10 == 0 ? 700 : 70), cols = 1 + below(round % 10 == 5 ? 700 : 70),
               count = 1 + below(11);
        size_t xs = cols + below(5), ys = rows + below(5);
        sample s = make((number_type)(round % 4), rows, cols, below(4));
        float *x = numbers(count * xs), *u = numbers(count * ys), *start = numbers(count * (xs + ys));
        float *y = malloc(count * ys * sizeof *y), *o = malloc(count * xs * sizeof *o);
        assert_true(y && o);
        for (size_t k = 0; k < n_tables; k++) {
            bool add = below(2);
            memcpy(y, start, count * ys * sizeof *y);
            memcpy(o, start, count * xs * sizeof *o);
            project_rows(table[k], &s.w, x, xs, count, y, ys, 0, rows, add);
            back_columns(table[k], &s.w, u, ys, count, o, xs, 0, cols, add);
            for (size_t m = 0; m < count; m++) {
                for (size_t r = 0; r < rows; r++) {
                    double sum = add ? (double)start[m * ys + r] : 0;
                    for (size_t c = 0; c < cols; c++) sum += (double)s.wide[r * cols + c] * (double)x[m * xs + c];
                    close_to((double)y[m * ys + r], sum, (double)cols);
                }
                for (size_t c = 0; c < cols; c++) {
                    double sum = add ? (double)start[m * xs + c] : 0;
                    for (size_t r = 0; r < rows; r++) sum += (double)s.wide[r * cols + c] * (double)u[m * ys + r];
                    close_to((double)o[m * xs + c], sum, (double)rows);
                }
                for (size_t r = rows; r < ys; r++) assert_true(y[m * ys + r] == start[m * ys + r]);
            }
        }
        free(x), free(u), free(start), free(y), free(o);
        drop(&s);
    }
}

/* Memory of n bytes that ends where the process may not read, which masked loads that go too far would not be told by a
 * sanitizer. */
typedef struct fenced {
    char *bytes;
    void *pages;
    size_t size;
} fenced;

static fenced fence(const void *from, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (n + page - 1) / page * page + page;
    char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + size - page, page, PROT_NONE), 0);
    char *bytes = pages + size - page - n;
    memcpy(bytes, from, n);
    return (fenced){bytes, pages, size};
}

static float *floats_of(const fenced *f)
{
    return (float *)(void *)f->bytes;
}

static void nothing_behind_the_end_is_touched(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    for (int round = 0; round < 400; round++) {
        size_t rows = 1 + below(round % 4 ? 70 : 300), cols = 1 + below(round % 4 ? 70 : 300), count = 1 + below(7);
        sample s = make((number_type)(round % 4), rows, cols, below(4));
        size_t bytes = s.w.type == NUMBER_Q8_ROWS ? rows * s.w.stride : (rows - 1) * s.w.stride + cols * number_bytes(s.w.type);
        float *x = numbers(count * cols), *u = numbers(count * rows), *y = numbers(count * rows), *o = numbers(count * cols);
        fenced weights = fence(s.data, bytes), in = fence(x, count * cols * sizeof *x),
               back = fence(u, count * rows * sizeof *u);
        fenced out = fence(y, count * rows * sizeof *y), back_out = fence(o, count * cols * sizeof *o);
        matrix w = s.w;
        w.data = weights.bytes;
        for (size_t k = 0; k < n_tables; k++) {
            bool add = below(2);
            memcpy(out.bytes, y, count * rows * sizeof *y);
            memcpy(back_out.bytes, o, count * cols * sizeof *o);
            project_rows(table[k], &w, floats_of(&in), cols, count, floats_of(&out), rows, 0, rows, add);
            back_columns(table[k], &w, floats_of(&back), rows, count, floats_of(&back_out), cols, 0, cols, add);
            project_rows(table[k], &s.w, x, cols, count, y, rows, 0, rows, add);
            back_columns(table[k], &s.w, u, rows, count, o, cols, 0, cols, add);
            assert_memory_equal(out.bytes, y, count * rows * sizeof *y);
            assert_memory_equal(back_out.bytes, o, count * cols * sizeof *o);
            (void)table[k]->softmax(floats_of(&in), cols);
            table[k]->gelu(floats_of(&back), rows, floats_of(&out), floats_of(&back));
            memcpy(in.bytes, x, count * cols * sizeof *x);
            memcpy(back.bytes, u, count * rows * sizeof *u);
        }
        const fenced all[] = {weights, in, back, out, back_out};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) assert_int_equal(munmap(all[i].pages, all[i].size), 0);
        free(x), free(u), free(y), free(o);
        drop(&s);
    }
}

/* The same bits however many vectors go together and whichever part of the output is asked for. */
static void no_bit_depends_on_the_cut(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    for (int round = 0; round < 90; round++) {
        size_t rows = 1 + below(300), cols = 1 + below(300), count = 1 + below(13);
        sample s = make((number_type)(round % 4), rows, cols, 0);
        float *x = numbers(count * cols), *u = numbers(count * rows);
        float *y = numbers(count * rows), *o = numbers(count * cols), *y1 = numbers(rows), *o1 = numbers(cols);
        for (size_t k = 0; k < n_tables; k++) {
            project_rows(table[k], &s.w, x, cols, count, y, rows, 0, rows, false);
            back_columns(table[k], &s.w, u, rows, count, o, cols, 0, cols, false);
            for (size_t m = 0; m < count; m++) {
                size_t cut = below(rows + 1), column = below(cols / 16 + 1) * 16;
                project_rows(table[k], &s.w, x + m * cols, cols, 1, y1, rows, 0, cut, false);
                project_rows(table[k], &s.w, x + m * cols, cols, 1, y1, rows, cut, rows, false);
                if (column > 0) back_columns(table[k], &s.w, u + m * rows, rows, 1, o1, cols, 0, column, false);
                if (column < cols) back_columns(table[k], &s.w, u + m * rows, rows, 1, o1, cols, column, cols, false);
                assert_memory_equal(y1, y + m * rows, rows * sizeof *y);
                assert_memory_equal(o1, o + m * cols, cols * sizeof *o);
            }
        }
        free(x), free(u), free(y), free(o), free(y1), free(o1);
        drop(&s);
    }
}

/* Weights of value 0 take rows out of a W^T u without a trace: a masked token is as good as an absent one. */
static void zero_weights_leave_no_trace(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    sample s = make(NUMBER_F32, 32, 100, 0);
    float u[32] = {0}, all[100], some[100];
    for (int i = 0; i < 20; i++) u[i] = number();
    matrix fewer = s.w;
    fewer.rows = 20;
    for (size_t k = 0; k < n_tables; k++) {
        back_columns(table[k], &s.w, u, 32, 1, all, 100, 0, 100, false);
        back_columns(table[k], &fewer, u, 32, 1, some, 100, 0, 100, false);
        assert_memory_equal(all, some, sizeof all);
    }
    drop(&s);
}

static void large_products_equal_openblas(void **unused)
{
    (void)unused;
    size_t n_tables, rows = 769, cols = 515, count = 37;
    const kernels *const *table = kernels_tiers(&n_tables);
    sample s = make(NUMBER_F32, rows, cols, 0);
    float *x = numbers(count * cols), *y = numbers(count * rows), *o = numbers(count * cols), *expected = numbers(count * rows);
    for (size_t k = 0; k < n_tables; k++) {
        project_rows(table[k], &s.w, x, cols, count, y, rows, 0, rows, false);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)count, (int)rows, (int)cols, 1, x, (int)cols, s.wide,
                    (int)cols, 0, expected, (int)rows);
        for (size_t i = 0; i < count * rows; i++) /* both sides are rounded: twice the room */
            close_to((double)y[i] / 2, (double)expected[i] / 2, (double)cols);
        back_columns(table[k], &s.w, y, rows, count, o, cols, 0, cols, false);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)count, (int)cols, (int)rows, 1, y, (int)rows, s.wide,
                    (int)cols, 0, expected, (int)cols);
        for (size_t i = 0; i < count * cols; i++)
            close_to((double)o[i] / 100, (double)expected[i] / 100, (double)rows); /* sums of the size of 100 */
    }
    free(x), free(y), free(o), free(expected);
    drop(&s);
}

static void activations_equal_double(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    enum { N = 20011 };
    float *z = numbers(N), *value = numbers(N), *slope = numbers(N);
    for (size_t i = 0; i < N; i++) z[i] = i % 7 == 0 ? number() * 1000.0f : number() * (float)(1 + i % 15);
    z[0] = 0, z[1] = -0.0f, z[2] = 3e38f, z[3] = -3e38f, z[4] = 1e-40f;
    for (size_t k = 0; k < n_tables; k++) {
        table[k]->gelu(z, N, value, slope);
        for (size_t i = 0; i < N; i++) {
            double v = (double)z[i], cdf = 0.5 * erfc(-v / sqrt(2)), density = exp(-0.5 * v * v) / sqrt(2 * acos(-1));
            assert_true(fabs((double)value[i] - v * cdf) <= 6e-7 * fmax(1e-2, fabs(v * cdf)));
            double expected = cdf + (v == 0 ? 0 : v * density);
            assert_true(fabs((double)slope[i] - expected) <= 4e-7);
        }
        table[k]->silu(z, N, value);
        for (size_t i = 0; i < N; i++) {
            double v = (double)z[i], expected = v / (1 + exp(-v));
            assert_true(fabs((double)value[i] - expected) <= 3e-7 * fmax(1e-20, fabs(expected)) || fabs(expected) < 1e-35);
        }
    }
    free(z), free(value), free(slope);
}

static void softmax_equals_double(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    for (size_t k = 0; k < n_tables; k++) {
        assert_true(table[k]->softmax(NULL, 0) == 0.0f);
        for (size_t n = 1; n < 200; n += 1 + n / 20) {
            float *a = numbers(n);
            double *p = malloc(n * sizeof *p), max = -1e300, sum = 0, scale = n % 3 == 0 ? 300 : 5;
            assert_non_null(p);
            for (size_t i = 0; i < n; i++) {
                a[i] *= (float)scale;
                max = fmax(max, (double)a[i]);
            }
            for (size_t i = 0; i < n; i++) sum += p[i] = exp((double)a[i] - max);
            float log_sum = table[k]->softmax(a, n);
            assert_true(fabs((double)log_sum - (max + log(sum))) <= 4e-7 * fmax(1, fabs(max)));
            for (size_t i = 0; i < n; i++) { /* what is taken from the largest is rounded, by half of its last place */
                double far = fmax(0, -log(p[i])), room = 1e-6 + far * 0x1p-24;
                assert_true(fabs((double)a[i] - p[i] / sum) <= room * p[i] / sum + 1e-37);
            }
            free(a), free(p);
        }
    }
}

static void norms_equal_double(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    static const float sizes[] = {1.0f, 1e-18f, 1e19f, 3e37f};
    for (size_t k = 0; k < n_tables; k++)
        for (int round = 0; round < 40; round++) {
            size_t n = 1 + below(200);
            float *x = numbers(n), *w = numbers(n), *b = numbers(n), *g = numbers(n), eps = 1e-5f;
            for (size_t i = 0; i < n; i++) x[i] *= sizes[round % 4];
            double mean = 0, centred = 0, squares = 0;
            for (size_t i = 0; i < n; i++) mean += (double)x[i] / (double)n;
            for (size_t i = 0; i < n; i++) centred += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
            for (size_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i] / (double)n;
            table[k]->layer_norm(x, n, w, b, eps, g);
            for (size_t i = 0; i < n; i++)
                close_to((double)g[i], ((double)x[i] - mean) / sqrt(centred + (double)eps) * (double)w[i] + (double)b[i], 1);
            table[k]->rms_norm(x, n, w, eps, g);
            for (size_t i = 0; i < n; i++) close_to((double)g[i], (double)x[i] / sqrt(squares + (double)eps) * (double)w[i], 1);
            free(x), free(w), free(b), free(g);
        }
}

/* Every half there is, and floats halfway between two of them. The value of a half is computed from its definition. */
static void halves_are_exact(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    uint16_t *half = malloc(65536 * sizeof *half), *back = malloc(65536 * sizeof *back);
    float *wide = malloc(65536 * sizeof *wide);
    assert_true(half && back && wide);
    for (uint32_t h = 0; h < 65536; h++) half[h] = (uint16_t)h;
    for (size_t k = 0; k < n_tables; k++) {
        table[k]->from_f16(half, 65536, wide);
        table[k]->to_f16(wide, 65536, back);
        for (uint32_t h = 0; h < 65536; h++) {
            int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
            if (exponent == 31 && fraction) {
                assert_true(isnan(wide[h]) && (back[h] & 0x7fff) > 0x7c00);
                continue;
            }
            double value = exponent == 31 ? INFINITY : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
            assert_true((double)wide[h] == (h & 0x8000 ? -value : value));
            assert_int_equal(back[h], h);
        }
        for (uint32_t h = 0; h + 1 < 0x7c00; h++) { /* ties go to the even one, a hair beside them to the nearer */
            float middle = (wide[h] + wide[h + 1]) / 2,
                  three[3] = {middle, nextafterf(middle, 0), nextafterf(middle, INFINITY)};
            uint16_t found[3];
            table[k]->to_f16(three, 3, found);
            assert_int_equal(found[0], h & 1 ? h + 1 : h);
            assert_int_equal(found[1], h);
            assert_int_equal(found[2], h + 1);
        }
        float extremes[4] = {65519.9f, 65520.0f, 1e30f, -1e30f};
        table[k]->to_f16(extremes, 4, back);
        assert_int_equal(back[0], 0x7bff);
        assert_int_equal(back[1], 0x7c00);
        assert_int_equal(back[2], 0x7c00);
        assert_int_equal(back[3], 0xfc00);
    }
    free(half), free(back), free(wide);
}

/* All of bf16, what lies between two, and what is not finite. */
static void bf16_is_nearest_and_even(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    for (size_t k = 0; k < n_tables; k++)
        for (uint32_t h = 0; h < 0x7f80; h++) { /* 0x7f80 is what comes behind the largest: infinity */
            uint32_t bits[4] = {h << 16, (h << 16) + 0x8000, (h << 16) + 0x7fff, (h << 16) + 0x8001};
            float values[8];
            uint16_t found[8];
            memcpy(values, bits, sizeof bits);
            for (int i = 0; i < 4; i++) values[4 + i] = -values[i];
            table[k]->to_bf16(values, 8, found);
            uint32_t expected[4] = {h, h & 1 ? h + 1 : h, h, h + 1};
            for (int i = 0; i < 8; i++) assert_int_equal(found[i], expected[i % 4] | (i < 4 ? 0 : 0x8000));
        }
    for (size_t k = 0; k < n_tables; k++) {
        float wild[3] = {INFINITY, -INFINITY, NAN};
        uint16_t found[3];
        table[k]->to_bf16(wild, 3, found);
        assert_int_equal(found[0], 0x7f80);
        assert_int_equal(found[1], 0xff80);
        assert_true((found[2] & 0x7fff) > 0x7f80);
    }
}

/* Blocks of every size a float can have, ties, zeros and an unfinished last block. */
static void q8_is_nearest_and_even(void **unused)
{
    (void)unused;
    size_t n_tables;
    const kernels *const *table = kernels_tiers(&n_tables);
    for (int round = 0; round < 400; round++) {
        size_t n = 1 + below(100), blocks = (n + Q8_BLOCK - 1) / Q8_BLOCK;
        float *x = numbers(n), size = ldexpf(1.0f, (int)below(230) - 120);
        q8_block found[2][4];
        for (size_t i = 0; i < n; i++) x[i] = below(9) ? x[i] * size : 0.0f;
        if (round % 3 == 0) { /* a scale of 1: halves are ties */
            for (size_t i = 0; i < n; i++) x[i] = (float)((int)below(253) - 126) / 2;
            for (size_t i = 0; i < n; i += Q8_BLOCK) x[i] = below(2) ? 127.0f : -127.0f;
        }
        if (round % 7 == 0) memset(x, 0, n * sizeof *x);
        for (size_t k = 0; k < n_tables; k++) {
            memset(found[k > 0], 0x55, sizeof found[0]);
            table[k]->to_q8(x, n, found[k > 0]);
            if (k > 0) assert_memory_equal(found[1], found[0], blocks * sizeof(q8_block));
        }
        for (size_t b = 0; b < blocks; b++) {
            double largest = 0;
            for (size_t i = b * Q8_BLOCK; i < n && i < (b + 1) * Q8_BLOCK; i++) largest = fmax(largest, fabs((double)x[i]));
            double scale = (double)(float)(largest / 127);
            assert_true((double)found[0][b].scale == scale);
            for (size_t i = 0; i < Q8_BLOCK; i++) {
                size_t at = b * Q8_BLOCK + i;
                double expected = at < n && scale > 0 ? nearbyint((double)((float)((double)x[at] / scale))) : 0;
                assert_int_equal(found[0][b].quant[i], (int)expected);
            }
        }
        free(x);
    }
    for (size_t k = 0; k < n_tables; k++) { /* a scale that f32 has few bits for, and one it has none for */
        float tiny[2] = {190 * 0x1p-149f, -63 * 0x1p-149f}, least[2] = {0x1p-149f, -0x1p-149f};
        q8_block found;
        table[k]->to_q8(tiny, 2, &found);
        assert_true(found.scale == 0x1p-149f && found.quant[0] == 127 && found.quant[1] == -63);
        table[k]->to_q8(least, 2, &found);
        assert_true(found.scale == 0.0f && found.quant[0] == 0 && found.quant[1] == 0);
    }
}

/* Of 16 vectors no more than four begin in one place of a cache whose places repeat every 4096 bytes. */
static void vectors_lie_apart(void **unused)
{
    (void)unused;
    for (size_t n = 1; n <= 10000; n++) {
        size_t stride = vector_stride(n), in_place[64] = {0};
        assert_true(stride >= n && stride < n + 32 && stride % 16 == 0);
        for (size_t m = 0; m < 16; m++) assert_true(++in_place[m * stride / 16 % 64] <= 4);
    }
}

int main(void)
{
    openblas_set_num_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_lie_apart),
        cmocka_unit_test(products_equal_double),
        cmocka_unit_test(nothing_behind_the_end_is_touched),
        cmocka_unit_test(no_bit_depends_on_the_cut),
        cmocka_unit_test(zero_weights_leave_no_trace),
        cmocka_unit_test(large_products_equal_openblas),
        cmocka_unit_test(activations_equal_double),
        cmocka_unit_test(softmax_equals_double),
        cmocka_unit_test(norms_equal_double),
        cmocka_unit_test(halves_are_exact),
        cmocka_unit_test(bf16_is_nearest_and_even),
        cmocka_unit_test(q8_is_nearest_and_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
