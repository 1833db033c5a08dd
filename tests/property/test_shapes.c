/* test_shapes.c: models of random shape, variant and weight type against the float64 references: logits, states, every
 * observation; lengths at page borders, at one token and at the whole context. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compare.h"
#include "example.h"

/* One token, two, and both sides of every multiple of 16 a page may hold; the context is that long, or longer. */
static void against_reference(test_family family, uint64_t test, size_t rounds, test_weight weight)
{
    static const size_t lengths[] = {1, 33, 2, 32, 31, 64, 15, 65, 16, 17, 63, 47, 48, 49};
    for (size_t round = 0; round < test_rounds(rounds); round++) {
        size_t count = lengths[round % (sizeof lengths / sizeof *lengths)];
        example_wish wish = {.family = family, .weight = weight, .count = count, .context = round % 3 ? count : count + 7};
        example e = example_draw(test_seed(test, round), &wish);
        drive_options options = {.depth = e.depth,
                                 .observe = OBSERVE_ALL,
                                 .chunks = (drive_chunks)rng_below(&e.r, 3),
                                 .mates = rng_below(&e.r, 3),
                                 .seed = rng_next(&e.r),
                                 .threads = (uint32_t)rng_between(&e.r, 1, 2)};
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        if (weight >= TEST_Q8_0)
            compare_rounded(&got, &e.expected, &e.allowed);
        else
            compare_outcome(&got, &e.expected);
        outcome_free(&got);
        example_free(&e);
    }
    compare_report();
}

static void f32(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++)
        against_reference(family, 10 + family, family == TEST_NRGPT ? 200 : family == TEST_CEM ? 150 : 60, TEST_F32);
}

static void narrower_weights(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        against_reference(family, 310 + family, 15, TEST_F16);
        against_reference(family, 320 + family, 15, TEST_BF16);
    }
}

static void quantized_weights(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        against_reference(family, 330 + family, 15, TEST_Q8_0);
        against_reference(family, 340 + family, 15, TEST_Q4_0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(f32), cmocka_unit_test(narrower_weights),
                                       cmocka_unit_test(quantized_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
