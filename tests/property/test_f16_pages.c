/* test_f16_pages.c: pages of f16 against references whose history is rounded to f16, nearest and ties to even, at the same
 * tolerances as pages of f32. A number that lies so near the middle of two halves that f32 and float64 may round it
 * differently proves nothing either way, so models with such a number are drawn again, as are those that magnify rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "compare.h"
#include "example.h"

/* Of the draw at hand: numbers that f32 arithmetic might round to the other side, and numbers that rounding changes. */
static size_t doubtful, different;

static double round_and_count(double value)
{
    double room = 1e-6 * fmax(1.0, fabs(value));
    doubtful += round_to_f16(value - room) != round_to_f16(value + room);
    different += round_to_f16(value) != value;
    return round_to_f16(value);
}

static bool no_doubt(void)
{
    return doubtful == 0 && different > 0;
}

/* A new draw: narrow enough that it may have no doubtful number. */
static void narrow(test_model *model)
{
    doubtful = different = 0;
    model->layers = 1;
    model->heads = model->heads > 2 ? 2 : model->heads;
    model->width = test_kinds(model->family) > 1 ? 4 : 5;
    model->rank = model->rank > 2 ? 2 : model->rank;
}

static void f16_pages_equal_the_reference(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(40); round++) {
        size_t count = round % 4 < 2 ? 6 : 34;
        example_wish wish = {.family = family_of(round),
                             .count = count,
                             .context = count,
                             .most = count < 9 ? 3 : 1,
                             .round_page = round_and_count,
                             .adjust = narrow,
                             .accept = no_doubt};
        example e = example_draw(test_seed(20, round), &wish);
        for (size_t way = 0; way < 3; way++) {
            drive_options options = {.depth = e.depth,
                                     .observe = OBSERVE_ALL,
                                     .page_type = DESCENT_PAGE_F16,
                                     .chunks = (drive_chunks)way,
                                     .mates = way,
                                     .seed = round};
            outcome got = drive(e.engine, e.tokens, e.count, &options);
            compare_outcome(&got, &e.expected);
            outcome_free(&got);
        }
        example_free(&e);
    }
    compare_report();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(f16_pages_equal_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
