/* test_pages.c: pages of f16, bf16 and q8 against references whose history is rounded to the same, nearest and ties to even,
 * at the tolerances of pages of f32. A number that lies so near the middle of two that f32 and float64 may round it
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

/* How far f32 arithmetic may have taken a number. */
static double room_of(double value)
{
    return 1e-6 * fmax(1.0, fabs(value));
}

static void round_and_count(double *value, double (*rounded)(double))
{
    doubtful += rounded(*value - room_of(*value)) != rounded(*value + room_of(*value));
    different += rounded(*value) != *value;
    *value = rounded(*value);
}

static void round_f16(double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) round_and_count(&values[i], round_to_f16);
}

static void round_bf16(double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) round_and_count(&values[i], round_to_bf16);
}

/* Blocks of 32 numbers, whole multiples of a 127th of their largest. */
static void round_q8(double *values, size_t count)
{
    for (size_t first = 0; first < count; first += 32) {
        size_t end = first + 32 < count ? first + 32 : count;
        double largest = 0;
        for (size_t i = first; i < end; i++) largest = fmax(largest, fabs(values[i]));
        for (size_t i = first; i < end && largest > 0; i++) {
            double quant = values[i] * 127 / largest, room = fabs(quant) < 127 ? 127 * room_of(largest) / largest : 0;
            doubtful += nearbyint(quant - 2 * room) != nearbyint(quant + 2 * room);
            different += nearbyint(quant) != quant;
            values[i] = nearbyint(quant) * largest / 127;
        }
    }
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

/* The same over more than a block, where parts of a slot have a gap between them. */
static void narrow_but_of_two_blocks(test_model *model)
{
    narrow(model);
    model->heads = 1;
    model->width = 34;
}

static void pages_equal_the_reference(descent_page_type type, page_rounding round_page, uint64_t test)
{
    for (size_t round = 0; round < test_rounds(40); round++) {
        bool wide = round % 5 == 4;
        size_t count = wide ? 3 : round % 4 < 2 ? 6 : 34;
        descent_history history = {.policy = DESCENT_HISTORY_OWN};
        if (family_of(round) == TEST_NRGPT)
            history = (descent_history){(descent_history_policy)(round / TEST_FAMILIES % 3), 1, (uint32_t)count / 2};
        example_wish wish = {.family = family_of(round),
                             .count = count,
                             .context = count,
                             .most = count == 6 ? 3 : 1,
                             .history = history,
                             .round_page = round_page,
                             .adjust = wide ? narrow_but_of_two_blocks : narrow,
                             .accept = no_doubt};
        example e = example_draw(test_seed(test, round), &wish);
        for (size_t way = 0; way < 3; way++) {
            drive_options options = {.depth = e.depth,
                                     .history = e.history,
                                     .observe = OBSERVE_ALL,
                                     .page_type = type,
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

static void f16(void **state)
{
    (void)state;
    pages_equal_the_reference(DESCENT_PAGE_F16, round_f16, 20);
}

static void bf16(void **state)
{
    (void)state;
    pages_equal_the_reference(DESCENT_PAGE_BF16, round_bf16, 21);
}

static void q8(void **state)
{
    (void)state;
    pages_equal_the_reference(DESCENT_PAGE_Q8, round_q8, 22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(f16), cmocka_unit_test(bf16), cmocka_unit_test(q8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
