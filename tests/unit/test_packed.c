/* test_packed.c: quantized matrices as the kernels have them. Rows of a packed matrix against a decoder written here from the
 * description of the file format; both products, on every instruction set, against sums of integers over activations rounded
 * here, and against plain double loops over what was never rounded, within what rounding may cost; and that no bit depends on
 * how the work is cut. */
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rng source = {88172645463325252u};

static size_t below(size_t n)
{
    return rng_below(&source, n);
}

static float number(void)
{
    return rng_signed(&source);
}

static void *memory(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

static float *numbers(size_t n)
{
    float *a = memory(n * sizeof *a);
    for (size_t i = 0; i < n; i++) a[i] = number();
    return a;
}

/* ---- The file format ---------------------------------------------------------------------------------------------- */

static const struct {
    number_type type;
    size_t numbers, bytes;
} formats[] = {{NUMBER_Q8_0, 32, 34}, {NUMBER_Q4_0, 32, 18}, {NUMBER_Q4_K, 256, 144}, {NUMBER_Q6_K, 256, 210}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static size_t format_of(number_type type)
{
    size_t f = 0;
    while (formats[f].type != type) f++;
    return f;
}

static uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void put_half(uint8_t *p, float value)
{
    uint16_t h = half_from_float(value);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* One number of a block of the file: weight = scale * quant - min. */
typedef struct decoded {
    int quant;
    float scale, min;
} decoded;

static decoded decode(number_type type, const uint8_t *p, size_t at)
{
    if (type == NUMBER_Q8_0) return (decoded){(int8_t)p[2 + at], half_to_float(half_at(p)), 0};
    if (type == NUMBER_Q4_0) {
        int quant = at < 16 ? p[2 + at] % 16 : p[2 + at - 16] / 16;
        return (decoded){quant - 8, half_to_float(half_at(p)), 0};
    }
    if (type == NUMBER_Q4_K) {
        size_t sub = at / 32;
        const uint8_t *s = p + 4;
        int scale = sub < 4 ? s[sub] % 64 : s[sub + 4] % 16 + s[sub - 4] / 64 * 16;
        int min = sub < 4 ? s[sub + 4] % 64 : s[sub + 4] / 16 + s[sub] / 64 * 16;
        uint8_t byte = p[16 + sub / 2 * 32 + at % 32];
        return (decoded){sub % 2 ? byte / 16 : byte % 16, half_to_float(half_at(p)) * (float)scale,
                         half_to_float(half_at(p + 2)) * (float)min};
    }
    size_t half = at / 128, quarter = at % 128 / 32, l = at % 32; /* Q6_K */
    uint8_t low = p[half * 64 + quarter % 2 * 32 + l], high = p[128 + half * 32 + l];
    int quant = (quarter < 2 ? low % 16 : low / 16) + (high >> 2 * quarter) % 4 * 16;
    return (decoded){quant - 32, half_to_float(half_at(p + 208)) * (float)(int8_t)p[192 + at / 16], 0};
}

/* A tensor of a file with random bits for weights, and the matrix packed from it. */
typedef struct sample {
    matrix w;
    packed *p;
    size_t row_bytes, file_bytes;
    decoded *number;  /* [rows][cols] */
    size_t run, runs; /* columns that share the scale of a row, and how many such there are in whole blocks of 32 */
    float *row_scale; /* [rows][runs] */
} sample;

typedef enum kind { ANY_BITS, LARGEST, SMALLEST, EVEN } kind;

/* Scales of weights between 2^-20 and 1: rows that differ widely. */
static float some_scale(void)
{
    float s = ldexpf(1.0f + (float)below(1000) / 1000.0f, -(int)below(20));
    return below(2) ? s : -s;
}

static void fill_block(number_type type, uint8_t *p, kind k, float scale)
{
    size_t bytes = formats[format_of(type)].bytes;
    for (size_t i = 0; i < bytes; i++) p[i] = k == LARGEST ? 0xff : k == SMALLEST ? 0 : (uint8_t)rng_next(&source);
    if (type == NUMBER_Q8_0 && (k == LARGEST || k == SMALLEST)) memset(p + 2, k == LARGEST ? 127 : -128, 32);
    if (type == NUMBER_Q6_K) {
        if (k == LARGEST) memset(p + 192, 127, 16);
        if (k == SMALLEST) memset(p + 192, -128, 16);
        put_half(p + 208, scale);
    } else {
        put_half(p, scale);
    }
    if (type == NUMBER_Q4_K) put_half(p + 2, scale * number());
}

static sample make(number_type type, size_t rows, size_t cols, kind k)
{
    size_t f = format_of(type), blocks = (cols + formats[f].numbers - 1) / formats[f].numbers;
    sample s = {.row_bytes = blocks * formats[f].bytes};
    s.file_bytes = rows * s.row_bytes;
    uint8_t *file = memory(s.file_bytes); /* ends where the tensor ends */
    float *even = numbers(blocks);
    for (size_t r = 0; r < rows; r++)
        for (size_t b = 0; b < blocks; b++) {
            if (r % 32 == 0) even[b] = some_scale();
            fill_block(type, file + r * s.row_bytes + b * formats[f].bytes, k, k == EVEN ? even[b] : some_scale());
        }
    s.number = memory(rows * cols * sizeof *s.number);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            s.number[r * cols + c] =
                decode(type, file + r * s.row_bytes + c / formats[f].numbers * formats[f].bytes, c % formats[f].numbers);
    s.run = type == NUMBER_Q6_K ? 16 : 32;
    s.runs = (cols + 31) / 32 * (32 / s.run);
    s.row_scale = memory(rows * s.runs * sizeof *s.row_scale);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0, c = 0; i < s.runs; i++, c += s.run) {
            const uint8_t *block = file + r * s.row_bytes + c / formats[f].numbers * formats[f].bytes;
            s.row_scale[r * s.runs + i] = decode(type, block, c % formats[f].numbers).scale;
        }
    s.p = packed_create(type, file, rows, cols, true);
    assert_non_null(s.p);
    free(file), free(even); /* nothing of the file is read afterwards */
    s.w = (matrix){.type = type, .rows = rows, .cols = cols, .packed = s.p};
    return s;
}

static void drop(sample *s)
{
    packed_destroy(s->p);
    free(s->row_scale);
    free(s->number);
}

static double weight(const sample *s, size_t r, size_t c)
{
    decoded d = s->number[r * s->w.cols + c];
    return (double)d.scale * d.quant - (double)d.min;
}

/* A shape among those that have tails of every kind. */
static size_t some_size(size_t round)
{
    static const size_t edges[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 300, 511, 512, 513};
    return round % 3 ? 1 + below(round % 8 == 1 ? 700 : 100) : edges[below(sizeof edges / sizeof edges[0])];
}

static void rows_are_as_in_the_file(void **unused)
{
    (void)unused;
    for (size_t round = 0; round < 80; round++) {
        size_t f = round % FORMATS, rows = some_size(round), cols = some_size(round + 1);
        sample s = make(formats[f].type, rows, cols, (kind)(round / FORMATS % 4));
        float *row = memory(cols * sizeof *row), *start = numbers(cols);
        for (size_t r = 0; r < rows; r++) {
            packed_row(s.p, r, row, false);
            for (size_t c = 0; c < cols; c++) {
                decoded d = s.number[r * cols + c];
                float expected = d.scale * (float)d.quant;
                if (formats[f].type == NUMBER_Q4_K) expected -= d.min;
                assert_true(row[c] == expected);
            }
            memcpy(row, start, cols * sizeof *row);
            packed_row(s.p, r, row, true);
            for (size_t c = 0; c < cols; c++) {
                decoded d = s.number[r * cols + c];
                float expected = d.scale * (float)d.quant;
                if (formats[f].type == NUMBER_Q4_K) expected -= d.min;
                assert_true(row[c] == start[c] + expected);
            }
        }
        free(row), free(start);
        drop(&s);
    }
}

static void a_packed_matrix_is_as_large_as_its_tensor(void **unused)
{
    (void)unused;
    for (size_t f = 0; f < FORMATS; f++)
        for (int k = 0; k < 2; k++) {
            sample s = make(formats[f].type, 512, 1024, k ? EVEN : ANY_BITS);
            bool can_be_even = formats[f].type == NUMBER_Q8_0 || formats[f].type == NUMBER_Q4_0;
            assert_int_equal(packed_is_even(s.p), k && can_be_even);
            /* W^T u takes a float a row and one or two a block, unless scales are even. */
            size_t both_ways = packed_is_even(s.p) ? 0 : 512 * sizeof(float) + (2 * 512 / 32 * 1024 / 32 + 16) * sizeof(float);
            assert_true(packed_bytes(s.p) <= s.file_bytes + s.file_bytes * 3 / 100 + 256 + both_ways);
            uint8_t *file = memory(s.file_bytes);
            memset(file, 0x3c, s.file_bytes);
            packed *one_way = packed_create(formats[f].type, file, 512, 1024, false);
            assert_non_null(one_way);
            assert_true(packed_bytes(one_way) <= s.file_bytes + s.file_bytes * 3 / 100 + 256);
            packed_destroy(one_way);
            free(file);
            drop(&s);
        }
}

/* ---- Products ----------------------------------------------------------------------------------------------------- */

/* 32 activations rounded as packed.h says: to nearest, ties to even, by one scale. Numbers beyond n are zeros. */
static float rounded(const float *x, size_t n, int q[32])
{
    float max = 0;
    for (size_t i = 0; i < n; i++) max = fmaxf(max, fabsf(x[i]));
    for (size_t i = 0; i < 32; i++) q[i] = 0;
    if (max < 0x1p-110f) return 0;
    float inverse = 127.0f / max;
    for (size_t i = 0; i < n; i++) q[i] = (int)nearbyintf(x[i] * inverse);
    return max / 127.0f;
}

/* What rounding allows a sum to differ by, and the sum of magnitudes, which float order is measured by. */
typedef struct expected {
    double sum, rounded_sum, magnitude, rounding;
} expected;

/* Row r of W x, with activations rounded and not. */
static expected expect_project(const sample *s, const float *x, size_t r)
{
    expected e = {0};
    size_t cols = s->w.cols;
    for (size_t first = 0; first < cols; first += 32) {
        size_t n = cols - first < 32 ? cols - first : 32;
        int q[32];
        double scale = (double)rounded(x + first, n, q);
        for (size_t i = 0; i < n; i++) {
            double w = weight(s, r, first + i);
            decoded d = s->number[r * cols + first + i];
            e.sum += w * (double)x[first + i];
            e.rounded_sum += w * q[i] * scale;
            e.magnitude += (fabs((double)d.scale * d.quant) + fabs((double)d.min)) * abs(q[i]) * scale;
            e.rounding += fabs(w) * (scale == 0 ? 0x1p-110 : scale * 0.5001); /* 0: or too small */
        }
    }
    return e;
}

/* The mean of the magnitudes of row r's scales: of whole blocks of 32, those behind the last column too. */
static float mean_scale(const sample *s, size_t r)
{
    double sum = 0;
    for (size_t i = 0; i < s->runs; i++) sum += fabs((double)s->row_scale[r * s->runs + i]);
    return (float)(sum / (double)s->runs);
}

/* Over 2^15, to the nearest; halves go up. */
static long over_words(long product_of_two)
{
    long up = product_of_two + (1 << 14);
    return up >= 0 ? up / 32768 : -((-up + 32767) / 32768);
}

/* The bytes that n rows of a block become for the columns that share the scales of column c, and their unit; where that is 0,
 * they were too small, and what the weights are of theirs at most is in *small. *half: what a byte may be off by: half by its
 * own rounding, and three times half a word. */
static double folded(const sample *s, const float *u, size_t first, size_t n, size_t c, int q[32], double *small, double *half)
{
    float v[32], left[32], max = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        float mean = mean_scale(s, first + i);
        v[i] = u[i] * mean;
        left[i] = s->row_scale[(first + i) * s->runs + c / s->run] * (1.0f / fmaxf(mean, 0x1p-100f));
        max = fmaxf(max, fabsf(v[i]));
        largest = fmaxf(largest, fabsf(left[i]));
    }
    float by_v = 127.0f * 256.0f / fmaxf(max, 0x1p-110f), by_left = 16384.0f / fmaxf(largest, 0x1p-100f);
    long word[32], most = 1;
    for (size_t i = 0; i < n; i++) {
        word[i] = over_words((long)nearbyintf(v[i] * by_v) * (long)nearbyintf(left[i] * by_left));
        if (labs(word[i]) > most) most = labs(word[i]);
    }
    long by = (long)(4161536.0f / (float)most); /* 127 * 2^15 */
    if (by > 32767) by = 32767;
    for (size_t i = 0; i < n; i++) q[i] = (int)over_words(word[i] * by);
    *half = 0.5001 + 1.5 * (double)by / 32768;
    *small = 0x1p-110 * (double)largest;
    return max < 0x1p-110f ? 0 : (double)max * (double)largest / 127 * 256 / (double)by;
}

/* Column c of W^T u. */
static expected expect_back(const sample *s, const float *u, size_t c)
{
    expected e = {0};
    size_t cols = s->w.cols;
    bool even = packed_is_even(s->p);
    for (size_t first = 0; first < s->w.rows; first += 32) {
        size_t n = s->w.rows - first < 32 ? s->w.rows - first : 32;
        int q[32];
        double small = 0x1p-110, half = 0.5001;
        double scale = even ? (double)rounded(u + first, n, q) * (double)s->number[first * cols + c].scale
                            : folded(s, u + first, first, n, c, q, &small, &half);
        for (size_t i = 0; i < n; i++) {
            decoded d = s->number[(first + i) * cols + c];
            double min = (double)d.min * (double)u[first + i];
            e.sum += weight(s, first + i, c) * (double)u[first + i];
            e.rounded_sum += d.quant * q[i] * scale - min;
            e.magnitude += abs(d.quant * q[i]) * fabs(scale) + fabs(min);
            e.rounding += abs(d.quant) * (scale == 0 ? small : fabs(scale) * half);
        }
    }
    return e;
}

static void check(double found, double start, expected e, number_type type, const char *tier)
{
    double order = 4e-6 * (e.magnitude + fabs(start)) + 1e-30;
    if (!(fabs(found - start - e.rounded_sum) <= order))
        fail_msg("%s, type %d: found %.9g, rounded here %.9g, may differ by %.3g", tier, (int)type, found - start,
                 e.rounded_sum, order);
    if (!(fabs(found - start - e.sum) <= e.rounding + order))
        fail_msg("%s, type %d: found %.9g, exact %.9g, may differ by %.3g", tier, (int)type, found - start, e.sum,
                 e.rounding + order);
}

static void products_equal_the_reference(void **unused)
{
    (void)unused;
    size_t n_tiers;
    const kernels *const *tiers = kernels_tiers(&n_tiers);
    for (size_t round = 0; round < 64; round++) {
        size_t f = round % FORMATS, rows = some_size(round), cols = some_size(round + 1), count = 1 + below(round % 5 ? 3 : 21);
        size_t xs = cols + below(5), us = rows + below(5);
        sample s = make(formats[f].type, rows, cols, (kind)(round / FORMATS % 4));
        /* Every vector ends where its memory ends. */
        float *x = numbers((count - 1) * xs + cols), *u = numbers((count - 1) * us + rows);
        for (size_t i = 0; i < (count - 1) * xs + cols; i++) x[i] *= below(9) ? 1.0f : 30.0f;
        for (size_t i = 0; i < (count - 1) * us + rows; i++) u[i] *= below(9) ? 1e-4f : 0.0f;
        float *y = memory(((count - 1) * us + rows) * sizeof *y), *o = memory(((count - 1) * xs + cols) * sizeof *o);
        for (size_t k = 0; k < n_tiers; k++) {
            bool add = below(2);
            float start = add ? 0.25f : 0.0f;
            for (size_t i = 0; i < (count - 1) * us + rows; i++) y[i] = 0.25f;
            for (size_t i = 0; i < (count - 1) * xs + cols; i++) o[i] = 0.25f;
            product p = product_whole(&s.w, x, xs, count, y, us), back = product_whole(&s.w, u, us, count, o, xs);
            p.add = back.add = add;
            tiers[k]->project(&p);
            tiers[k]->project_back(&back);
            for (size_t m = 0; m < count; m++) {
                for (size_t r = 0; r < rows; r++)
                    check((double)y[m * us + r], (double)start, expect_project(&s, x + m * xs, r), s.w.type, tiers[k]->name);
                for (size_t c = 0; c < cols; c++)
                    check((double)o[m * xs + c], (double)start, expect_back(&s, u + m * us, c), s.w.type, tiers[k]->name);
                for (size_t r = rows; r < us && m + 1 < count; r++) assert_true(y[m * us + r] == 0.25f);
                for (size_t c = cols; c < xs && m + 1 < count; c++) assert_true(o[m * xs + c] == 0.25f);
            }
        }
        free(x), free(u), free(y), free(o);
        drop(&s);
    }
}

/* Weights and activations that are whole numbers, scales that are 1 or -1, or for the K types whole: nothing is rounded, so
 * every tier has to find the very sum, whatever the signs and however large. */
static void whole_numbers_are_exact(void **unused)
{
    (void)unused;
    size_t n_tiers;
    const kernels *const *tiers = kernels_tiers(&n_tiers);
    for (size_t round = 0; round < 64; round++) {
        size_t f = round % FORMATS, rows = 1 + below(96), cols = 1 + below(96), bytes = formats[f].bytes;
        number_type type = formats[f].type;
        bool super = type == NUMBER_Q4_K || type == NUMBER_Q6_K, even = below(2);
        kind k = (kind)(round / FORMATS % 4);
        size_t blocks = (cols + formats[f].numbers - 1) / formats[f].numbers;
        uint8_t *file = memory(rows * blocks * bytes);
        for (size_t b = 0; b < rows * blocks; b++) {
            uint8_t *block = file + b * bytes;
            fill_block(type, block, k, !super && !even && below(2) ? -1.0f : 1.0f);
            if (type == NUMBER_Q4_K) put_half(block + 2, 1.0f);
            for (size_t i = 0; type == NUMBER_Q6_K && i < 16; i++) block[192 + i] = (uint8_t)((int)below(17) - 8);
        }
        packed *p = packed_create(type, file, rows, cols, true);
        assert_non_null(p);
        matrix w = {.type = type, .rows = rows, .cols = cols, .packed = p};
        float x[96], u[96], y[96], o[96];
        bool same = below(2); /* all of one sign, the largest */
        for (size_t i = 0; i < 96; i++) x[i] = u[i] = same || i % 32 == 0 ? 127.0f : (float)((int)below(255) - 127);
        product forth = product_whole(&w, x, cols, 1, y, rows), back = product_whole(&w, u, rows, 1, o, cols);
        for (size_t t = 0; t < n_tiers; t++) {
            tiers[t]->project(&forth);
            tiers[t]->project_back(&back);
            for (size_t r = 0; r < rows; r++) {
                long sum = 0;
                for (size_t c = 0; c < cols; c++) {
                    size_t n = formats[f].numbers;
                    decoded d = decode(type, file + (r * blocks + c / n) * bytes, c % n);
                    sum += (long)x[c] * ((long)d.scale * d.quant - (long)d.min);
                }
                assert_true(y[r] == (float)sum && labs(sum) < 1 << 24);
            }
            for (size_t c = 0; !super && c < cols; c++) {
                long sum = 0;
                for (size_t r = 0; r < rows; r++) {
                    decoded d = decode(type, file + (r * blocks + c / 32) * bytes, c % 32);
                    sum += (long)u[r] * (long)d.scale * d.quant;
                }
                assert_true(o[c] == (float)sum);
            }
        }
        packed_destroy(p);
        free(file);
    }
}

/* All of a product, and the same in parts: one vector at a time, outputs cut on multiples of PRODUCT_CUT, sums on multiples of
 * PRODUCT_GROUP. */
static void in_parts(void (*multiply)(const product *), product whole, size_t outputs, size_t inputs, bool back, float *out)
{
    size_t cut = below(outputs / PRODUCT_CUT + 1) * PRODUCT_CUT, group = below(inputs / PRODUCT_GROUP + 1) * PRODUCT_GROUP;
    size_t output[3] = {0, cut, outputs}, input[3] = {0, group, inputs};
    for (size_t m = 0; m < whole.count; m++)
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < 2; j++) {
                product p = whole;
                p.in += m * p.in_stride;
                p.out = out + m * p.out_stride;
                p.count = 1;
                p.first_row = back ? input[j] : output[i];
                p.last_row = back ? input[j + 1] : output[i + 1];
                p.first_col = back ? output[i] : input[j];
                p.last_col = back ? output[i + 1] : input[j + 1];
                p.add = whole.add || j > 0;
                multiply(&p);
            }
}

static void no_bit_depends_on_the_cut(void **unused)
{
    (void)unused;
    size_t n_tiers;
    const kernels *const *tiers = kernels_tiers(&n_tiers);
    for (size_t round = 0; round < 48; round++) {
        size_t f = round % FORMATS, rows = 1 + below(700), cols = 1 + below(700), count = 1 + below(round % 5 ? 6 : 40);
        sample s = make(formats[f].type, rows, cols, round / FORMATS % 2 ? EVEN : ANY_BITS);
        float *x = numbers(count * cols), *u = numbers(count * rows);
        float *y = memory(count * rows * sizeof *y), *o = memory(count * cols * sizeof *o);
        float *y_parts = memory(count * rows * sizeof *y), *o_parts = memory(count * cols * sizeof *o);
        for (size_t k = 0; k < n_tiers; k++) {
            bool add = below(2);
            for (size_t i = 0; i < count * rows; i++) y[i] = y_parts[i] = 0.5f;
            for (size_t i = 0; i < count * cols; i++) o[i] = o_parts[i] = 0.5f;
            product forth = product_whole(&s.w, x, cols, count, y, rows), back = product_whole(&s.w, u, rows, count, o, cols);
            forth.add = back.add = add;
            tiers[k]->project(&forth);
            tiers[k]->project_back(&back);
            in_parts(tiers[k]->project, forth, rows, cols, false, y_parts);
            in_parts(tiers[k]->project_back, back, cols, rows, true, o_parts);
            assert_memory_equal(y, y_parts, count * rows * sizeof *y);
            assert_memory_equal(o, o_parts, count * cols * sizeof *o);
        }
        free(x), free(u), free(y), free(o), free(y_parts), free(o_parts);
        drop(&s);
    }
}

/* Any number of vectors at once gives each what it gets alone: all that are taken together, and one more. */
static void no_bit_depends_on_the_count(void **unused)
{
    (void)unused;
    enum { ROWS = 97, COLS = 289, MOST = 17 };
    size_t n_tiers;
    const kernels *const *tiers = kernels_tiers(&n_tiers);
    for (size_t round = 0; round < 2 * FORMATS; round++) {
        sample s = make(formats[round % FORMATS].type, ROWS, COLS, round / FORMATS % 2 ? EVEN : ANY_BITS);
        float *x = numbers(MOST * COLS), *u = numbers(MOST * ROWS);
        for (size_t k = 0; k < n_tiers; k++) {
            float y[MOST * ROWS], o[MOST * COLS], y_alone[MOST * ROWS], o_alone[MOST * COLS];
            for (size_t m = 0; m < MOST; m++) {
                product forth = product_whole(&s.w, x + m * COLS, COLS, 1, y_alone + m * ROWS, ROWS);
                product back = product_whole(&s.w, u + m * ROWS, ROWS, 1, o_alone + m * COLS, COLS);
                tiers[k]->project(&forth);
                tiers[k]->project_back(&back);
            }
            for (size_t count = 1; count <= MOST; count++) {
                product forth = product_whole(&s.w, x, COLS, count, y, ROWS),
                        back = product_whole(&s.w, u, ROWS, count, o, COLS);
                tiers[k]->project(&forth);
                tiers[k]->project_back(&back);
                assert_memory_equal(y, y_alone, count * ROWS * sizeof *y);
                assert_memory_equal(o, o_alone, count * COLS * sizeof *o);
            }
        }
        free(x), free(u);
        drop(&s);
    }
}

/* Parts that start and end anywhere: right, and nothing beside them is written. */
static void any_part_is_right(void **unused)
{
    (void)unused;
    size_t n_tiers;
    const kernels *const *tiers = kernels_tiers(&n_tiers);
    for (size_t round = 0; round < 96; round++) { /* two in four have columns of one block only, which is never whole */
        size_t f = round % FORMATS, rows = 2 + below(200), cols = 2 + below(round / FORMATS % 4 < 2 ? 200 : 30);
        sample s = make(formats[f].type, rows, cols, round / FORMATS % 2 ? EVEN : ANY_BITS);
        float *x = numbers(cols), *u = numbers(rows), *y = numbers(rows), *o = numbers(cols);
        product p = product_whole(&s.w, x, cols, 1, y, rows);
        p.first_row = below(rows - 1), p.last_row = p.first_row + 1 + below(rows - p.first_row);
        p.first_col = below(cols - 1), p.last_col = p.first_col + 1 + below(cols - p.first_col);
        product back = p;
        back.in = u, back.out = o;
        float *x_part = memory(cols * sizeof *x), *u_part = memory(rows * sizeof *u); /* what the part leaves of them */
        for (size_t c = 0; c < cols; c++) x_part[c] = c >= p.first_col && c < p.last_col ? x[c] : 0.0f;
        for (size_t r = 0; r < rows; r++) u_part[r] = r >= p.first_row && r < p.last_row ? u[r] : 0.0f;
        for (size_t k = 0; k < n_tiers; k++) {
            for (size_t r = 0; r < rows; r++) y[r] = 7;
            for (size_t c = 0; c < cols; c++) o[c] = 7;
            tiers[k]->project(&p);
            tiers[k]->project_back(&back);
            for (size_t r = 0; r < rows; r++)
                if (r >= p.first_row && r < p.last_row)
                    check((double)y[r], 0, expect_project(&s, x_part, r), s.w.type, tiers[k]->name);
                else
                    assert_true(y[r] == 7.0f);
            for (size_t c = 0; c < cols; c++)
                if (c >= p.first_col && c < p.last_col)
                    check((double)o[c], 0, expect_back(&s, u_part, c), s.w.type, tiers[k]->name);
                else
                    assert_true(o[c] == 7.0f);
        }
        free(x), free(u), free(y), free(o), free(x_part), free(u_part);
        drop(&s);
    }
}

/* An activation that is not finite shows in every output of its vector, and in no other vector's. */
static void what_is_not_finite_shows(void **unused)
{
    (void)unused;
    size_t n_tiers;
    const kernels *const *tiers = kernels_tiers(&n_tiers);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    enum { ROWS = 70, COLS = 90, COUNT = 5 };
    for (size_t round = 0; round < 48; round++) {
        sample s = make(formats[round % FORMATS].type, ROWS, COLS, (kind)(round / FORMATS % 4));
        float *x = numbers(COUNT * COLS), *u = numbers(COUNT * ROWS), y[COUNT * ROWS], o[COUNT * COLS], y2[COUNT * ROWS],
              o2[COUNT * COLS];
        size_t m = below(COUNT);
        product forth = product_whole(&s.w, x, COLS, COUNT, y, ROWS), back = product_whole(&s.w, u, ROWS, COUNT, o, COLS);
        for (size_t k = 0; k < n_tiers; k++) {
            float *xi = &x[m * COLS + below(COLS)], *ui = &u[m * ROWS + below(ROWS)], x_was = *xi, u_was = *ui;
            tiers[k]->project(&forth);
            tiers[k]->project_back(&back);
            memcpy(y2, y, sizeof y);
            memcpy(o2, o, sizeof o);
            *xi = bad[round % 3], *ui = bad[round % 3];
            tiers[k]->project(&forth);
            tiers[k]->project_back(&back);
            *xi = x_was, *ui = u_was;
            for (size_t i = 0; i < COUNT * ROWS; i++) assert_true(i / ROWS == m ? !isfinite(y[i]) : y[i] == y2[i]);
            for (size_t i = 0; i < COUNT * COLS; i++) assert_true(i / COLS == m ? !isfinite(o[i]) : o[i] == o2[i]);
        }
        free(x), free(u);
        drop(&s);
    }
}

/* Zeros give zeros, and so does what is too small to have a scale; the largest floats there are give no wrong finite number. */
static void the_smallest_and_the_largest(void **unused)
{
    (void)unused;
    size_t n_tiers;
    const kernels *const *tiers = kernels_tiers(&n_tiers);
    enum { ROWS = 40, COLS = 70 };
    static const float sizes[] = {0.0f, -0.0f, 1e-45f, 1e-38f, 7e-34f, 1e-30f, 1e30f, 3.4e38f};
    for (size_t round = 0; round < 32; round++) {
        size_t f = round % FORMATS;
        sample s = make(formats[f].type, ROWS, COLS, round / FORMATS % 2 ? EVEN : ANY_BITS);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            float x[COLS], u[ROWS], y[ROWS], o[COLS];
            for (size_t c = 0; c < COLS; c++) x[c] = sizes[i] * (float)(1 - 2 * (int)below(2));
            for (size_t r = 0; r < ROWS; r++) u[r] = sizes[i] * (float)(1 - 2 * (int)below(2));
            product forth = product_whole(&s.w, x, COLS, 1, y, ROWS), back = product_whole(&s.w, u, ROWS, 1, o, COLS);
            for (size_t k = 0; k < n_tiers; k++) {
                tiers[k]->project(&forth);
                tiers[k]->project_back(&back);
                for (size_t r = 0; r < ROWS; r++)
                    if (isfinite(y[r])) check((double)y[r], 0, expect_project(&s, x, r), s.w.type, tiers[k]->name);
                for (size_t c = 0; c < COLS; c++)
                    if (isfinite(o[c])) check((double)o[c], 0, expect_back(&s, u, c), s.w.type, tiers[k]->name);
                for (size_t r = 0; i < 6 && r < ROWS; r++) assert_true(isfinite(y[r]));
                for (size_t c = 0; i < 6 && c < COLS; c++) assert_true(isfinite(o[c]));
            }
        }
        drop(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_in_the_file),
        cmocka_unit_test(a_packed_matrix_is_as_large_as_its_tensor),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(no_bit_depends_on_the_cut),
        cmocka_unit_test(no_bit_depends_on_the_count),
        cmocka_unit_test(any_part_is_right),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(the_smallest_and_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
