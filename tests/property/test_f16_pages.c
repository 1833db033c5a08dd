/* test_f16_pages.c: pages of f16 against references whose history is rounded to f16, nearest and ties to even, at the same
 * tolerances as pages of f32. A number that lies so near the middle of two halves that f32 and float64 may round it
 * differently proves nothing either way, so models with such a number are drawn again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "compare.h"
#include "drive.h"
#include "random_model.h"

static size_t doubtful, different;

/* Rounds, and counts what f32 arithmetic might round to the other side. */
static double round_and_count(double value)
{
    double room = 1e-6 * fmax(1.0, fabs(value));
    doubtful += round_to_f16(value - room) != round_to_f16(value + room);
    different += round_to_f16(value) != value;
    return round_to_f16(value);
}

/* A narrow model, its tokens and what the reference makes of them, with no doubtful rounding. */
typedef struct example {
    test_model model;
    uint32_t *tokens;
    size_t count;
    descent_depth depth;
    reference_run expected;
} example;

static example draw(rng *r, bool cem, size_t count)
{
    for (size_t tries = 0; tries < 5000; tries++) {
        example e = {.model = random_shape(r, cem, count), .count = count};
        e.model.layers = 1;
        e.model.heads = rng_between(r, 1, 2);
        e.model.width = cem ? 4 : 5;
        e.model.rank = e.model.rank > 2 ? 2 : e.model.rank;
        e.depth = random_depth(r, &e.model, cem ? 4 : count < 9 ? 3 : 1);
        random_weights(&e.model, r);
        e.tokens = random_tokens(r, &e.model, count);
        doubtful = different = 0;
        reference_request request = {.tokens = e.tokens, .count = count, .depth = e.depth, .round_page = round_and_count};
        e.expected = reference_compute(&e.model, &request);
        if (doubtful == 0 && different > 0) return e;
        reference_free(&e.expected);
        test_model_free(&e.model);
        free(e.tokens);
    }
    compare_fail("no model without a doubtful rounding in 5000 draws");
}

static void f16_pages_equal_the_reference(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(40); round++) {
        rng r = rng_seeded(test_seed(20, round));
        compare_about("seed %llu", (unsigned long long)test_seed(20, round));
        example e = draw(&r, round % 2, round % 4 < 2 ? 6 : 34);
        compare_about("seed %llu, %s, depth %u,%u", (unsigned long long)test_seed(20, round), test_model_words(&e.model),
                      e.depth.steps[0], e.depth.steps[1]);
        descent_model *engine = drive_open_test_model(&e.model);
        for (size_t way = 0; way < 3; way++) {
            drive_options options = {.depth = e.depth, .observe = OBSERVE_ALL, .page_type = DESCENT_PAGE_F16,
                                     .chunks = (drive_chunks)way, .mates = way, .seed = round};
            outcome got = drive(engine, e.tokens, e.count, &options);
            compare_outcome(&got, &e.expected);
            outcome_free(&got);
        }
        descent_model_close(engine);
        reference_free(&e.expected);
        test_model_free(&e.model);
        free(e.tokens);
    }
    compare_report();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(f16_pages_equal_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
