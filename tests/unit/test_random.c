/* test_random.c: normal numbers as a function of a place: near those that the C library's functions make of the same uniform
 * ones, standard normal as a whole, other ones at every place, and the very bits they have always been. Uniform numbers are in
 * test_sampler.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { MANY = 200000 };
static double many[MANY];

static void each_is_what_the_formula_says(void **state)
{
    const double pi = 3.14159265358979323846;
    (void)state;
    for (uint32_t n = 0; n < 2000; n++) {
        noise_place place = {.position = n * 7919, .layer = n % 5, .kind = (uint16_t)(n % 2), .step = (uint16_t)(n * 31)};
        uint32_t key[2] = {n, 0xfffffffeu}, counter[4] = {place.position, 0, place.layer, 1}, words[4];
        counter[1] = 0x80000000u + place.kind * 0x10000u + place.step;
        descent_philox(counter, key, words);
        double u = ((double)words[0] * 0x1p21 + (double)(words[1] >> 11) + 1) * 0x1p-53;
        double v = ((double)words[2] * 0x1p21 + (double)(words[3] >> 11)) * 0x1p-53, out[4];
        descent_random_normals((int64_t)n - 0x200000000, place, out, 4);
        double radius = sqrt(-2 * log(u));
        assert_true(fabs(out[2] - radius * cos(2 * pi * v)) < 4e-15);
        assert_true(fabs(out[3] - radius * sin(2 * pi * v)) < 4e-15);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Moments, and the largest distance of the distribution from the normal one: 1.63 / sqrt(n) is passed by one sample in 100, and
 * this sample is always the same. */
static void together_they_are_standard_normal(void **state)
{
    double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbours = 0, apart = 0;
    (void)state;
    for (uint32_t i = 0; i < MANY / 100; i++)
        descent_random_normals(7, (noise_place){.position = i / 10, .step = (uint16_t)(i % 10)}, many + (size_t)i * 100, 100);
    for (size_t i = 0; i < MANY; i++) {
        double x = many[i];
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        cubes += x * x * x;
        fourths += x * x * x * x;
        if (i > 0) neighbours += x * many[i - 1];
    }
    assert_true(fabs(sum / MANY) < 4 / sqrt(MANY) && fabs(squares / MANY - 1) < 4 * sqrt(2.0 / MANY));
    assert_true(fabs(cubes / MANY) < 4 * sqrt(15.0 / MANY) && fabs(fourths / MANY - 3) < 4 * sqrt(96.0 / MANY));
    assert_true(fabs(neighbours / MANY) < 4 / sqrt(MANY));
    qsort(many, MANY, sizeof *many, ascending);
    for (size_t i = 0; i < MANY; i++) {
        double below = 0.5 * erfc(-many[i] / sqrt(2.0));
        apart = fmax(apart, fmax(fabs(below - (double)i / MANY), fabs(below - (double)(i + 1) / MANY)));
    }
    assert_true(apart < 1.63 / sqrt(MANY));
}

/* A place's numbers are a prefix of more of them; each part of a place, and the seed, makes others. */
static void places_differ(void **state)
{
    const noise_place places[] = {{0, 0, 0, 0},           {1, 0, 0, 0},      {0, 1, 0, 0},
                                  {0, 0, 1, 0},           {0, 0, 0, 1},      {0x80000000u, 0, 0, 0},
                                  {0, 0x80000000u, 0, 0}, {0, 0, 0, 0x8000}, {0, 0, 0, 0xffff}};
    enum { PLACES = sizeof places / sizeof *places, EACH = 7 };
    double out[PLACES + 1][EACH];
    (void)state;
    for (size_t p = 0; p < PLACES; p++) descent_random_normals(3, places[p], out[p], EACH);
    descent_random_normals(3 + ((int64_t)1 << 32), places[0], out[PLACES], EACH);
    for (size_t p = 0; p <= PLACES; p++)
        for (size_t q = 0; q < p; q++)
            for (size_t i = 0; i < EACH; i++) assert_true(out[p][i] != out[q][i]);
    for (size_t count = 1; count < EACH; count++) {
        double some[EACH] = {0};
        descent_random_normals(3, places[4], some, count);
        assert_memory_equal(some, out[4], count * sizeof *some);
        assert_true(some[count] == 0);
    }
}

/* Whatever compiler, machine and instruction set. */
static void the_bits_never_change(void **state)
{
    uint64_t hash = 0xcbf29ce484222325u;
    double out[64];
    (void)state;
    for (uint32_t n = 0; n < 4000; n++) {
        descent_random_normals((int64_t)n * 0x123456789, (noise_place){.position = n, .step = (uint16_t)n}, out, 64);
        for (size_t i = 0; i < 64; i++) {
            uint64_t bits;
            memcpy(&bits, &out[i], sizeof bits);
            hash = (hash ^ bits) * 0x100000001b3u;
        }
    }
    if (hash != 0x15be883cbe8210b6u) fail_msg("the hash is 0x%016llx", (unsigned long long)hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_is_what_the_formula_says),
                                       cmocka_unit_test(together_they_are_standard_normal), cmocka_unit_test(places_differ),
                                       cmocka_unit_test(the_bits_never_change)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
