/* test_draft.c: from what was measured, the step at which it pays most to ask for a guess, against sums done by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "draft.h"

/* A step of r rows takes base + r * each seconds. */
static draft_costs measured(double base, double each, double reading)
{
    draft_costs costs = {.reading = reading};
    for (size_t r = 1; r <= DRAFT_ROWS; r++) costs.step[r] = base + (double)r * each;
    return costs;
}

/* After so many tokens that were each known after `steps`. */
static draft_record known_after(uint32_t total, uint32_t steps, size_t tokens)
{
    draft_record record = {.weight = 0};
    for (size_t i = 0; i < tokens; i++) draft_count_token(&record, total, steps, 1);
    return record;
}

static void rows_that_cost_nothing_are_filled(void **state)
{
    const draft_costs free_rows = measured(1e-3, 0, 0);
    (void)state;
    for (uint32_t total = 2; total <= 8; total++)
        for (uint32_t known = 1; known < total; known++) {
            /* Asked at every step it comes as early as it is known; asked at `known` it comes as early, with fewer rows, and of
             * equal ones the first is taken. */
            draft_record record = known_after(total, known, 20);
            assert_int_equal(draft_choose(&free_rows, &record, total, 0), 1);
        }
}

static void rows_that_cost_as_much_as_steps_are_not(void **state)
{
    const draft_costs dear = measured(0, 1e-3, 1e-5);
    (void)state;
    draft_record late = known_after(4, 3, 20), never = known_after(4, 4, 20);
    assert_int_equal(draft_choose(&dear, &late, 4, 0), 0);
    assert_int_equal(draft_choose(&dear, &never, 4, 0), 0);
    const draft_costs cheap = measured(1e-3, 1e-4, 1e-5);
    assert_int_equal(draft_choose(&cheap, &never, 4, 0), 0); /* four steps whatever is drafted */
}

/* T 4, known after 2 steps: every step 2 x (b + 4 e), every second 2 x (b + 2 e), never 4 x (b + e). */
static void fewer_rows_where_as_many_bring_no_more(void **state)
{
    const draft_costs costs = measured(1e-3, 2e-4, 0);
    (void)state;
    draft_record record = known_after(4, 2, 20);
    assert_int_equal(draft_choose(&costs, &record, 4, 0), 2);
    const draft_costs readings = measured(1e-3, 0, 1e-3); /* 4 of each step against 1 */
    assert_int_equal(draft_choose(&readings, &record, 4, 0), 2);
}

/* What is counted last weighs most: in 64 tokens nearly all. */
static void a_record_forgets(void **state)
{
    const draft_costs costs = measured(1e-3, 1e-5, 0);
    (void)state;
    draft_record record = known_after(4, 1, 1000);
    assert_int_equal(draft_choose(&costs, &record, 4, 0), 1);
    for (size_t i = 0; i < 400; i++) draft_count_token(&record, 4, 4, 1);
    assert_int_equal(draft_choose(&costs, &record, 4, 0), 0);
    assert_true(record.weight < 65 && record.weight > 60);
}

/* Tokens known after one step or after three of four. Asked every second step they seem to be after two or never, but that says
 * nothing against what was seen at every step. */
static void asking_seldom_unlearns_nothing(void **state)
{
    const draft_costs costs = measured(1e-3, 1e-5, 0);
    (void)state;
    draft_record record = {.weight = 0};
    for (size_t i = 0; i < 400; i++) draft_count_token(&record, 4, i % 2 ? 1 : 3, 1);
    for (size_t i = 0; i < 400; i++) draft_count_token(&record, 4, i % 2 ? 2 : 4, 2);
    assert_true(record.known[1] > 30 && record.known[3] > 30 && record.known[2] + record.known[4] < 0.01);
    assert_int_equal(draft_choose(&costs, &record, 4, 0), 1);
    draft_record fresh = {.weight = 0}; /* where nothing is known it is taken as it was seen */
    draft_count_token(&fresh, 4, 2, 2);
    draft_count_token(&fresh, 4, 4, 3);
    assert_true(fresh.known[2] > 0.9 && fresh.known[4] == 1);
    draft_record long_one = {.weight = 0}; /* parts of five steps */
    draft_count_token(&long_one, 40, 7, 7);
    draft_count_token(&long_one, 40, 40, 7);
    draft_count_token(&long_one, 40, 39, 40);
    assert_true(long_one.known[2] > 1.4 && long_one.known[8] > 1.4);
}

static void others_come_first(void **state)
{
    const draft_costs cheap = measured(1e-3, 1e-6, 0), dear = measured(1e-3, 1e-4, 0);
    (void)state;
    draft_record record = known_after(8, 1, 20);
    assert_int_equal(draft_choose(&cheap, &record, 8, 0), 1);
    assert_int_equal(draft_choose(&cheap, &record, 8, 8), 1);  /* 16 rows */
    assert_int_equal(draft_choose(&cheap, &record, 8, 9), 2);  /* 17 would be too many: 13 */
    assert_int_equal(draft_choose(&cheap, &record, 8, 14), 4); /* 16 */
    assert_int_equal(draft_choose(&cheap, &record, 8, 15), 0);
    assert_int_equal(draft_choose(&cheap, &record, 8, 400), 0);
    /* Beside one other 9 rows of 1.9 ms for 2 of 1.2 are too slow for it, 5 of 1.5 just so. */
    assert_int_equal(draft_choose(&dear, &record, 8, 1), 2);
    assert_int_equal(draft_choose(&dear, &record, 8, 0), 1);
}

/* Alone, a few tokens are tried at the finest step first, and again from time to time; beside others nothing unknown is tried.
 */
static void what_is_not_known_is_tried_alone(void **state)
{
    const draft_costs none = {.reading = 0};
    (void)state;
    for (uint32_t total = 2; total <= 64; total++) {
        draft_record record = {.weight = 0};
        assert_int_equal(draft_choose(&none, &record, total, 0), (total + DRAFT_PARTS - 1) / DRAFT_PARTS);
        assert_int_equal(draft_choose(&none, &record, total, 1), 0);
    }
    draft_record record = {.weight = 0};
    assert_int_equal(draft_choose(&none, &record, 1, 0), 0);
    const draft_costs dear = measured(0, 1e-3, 1e-5);
    record = known_after(4, 4, 1);
    size_t tried = 0;
    for (size_t i = 0; i < 1000; i++) {
        bool tries = draft_choose(&dear, &record, 4, 0) > 0;
        tried += tries;
        draft_count_token(&record, 4, 4, tries ? 1 : 0);
    }
    assert_true(tried > 10 && tried < 40);
}

static void one_slow_step_says_little(void **state)
{
    draft_costs costs = {.reading = 0};
    (void)state;
    draft_count_step(&costs, 3, 1e-3);
    assert_true(costs.step[3] == 1e-3);
    draft_count_step(&costs, 3, 10.0);
    assert_true(costs.step[3] > 1e-3 && costs.step[3] < 1.2e-3);
    for (size_t i = 0; i < 400; i++) draft_count_step(&costs, 3, 2e-3);
    assert_true(costs.step[3] > 1.99e-3 && costs.step[3] < 2.01e-3);
    draft_count_step(&costs, DRAFT_ROWS + 1, 1.0); /* of no use, and not written anywhere */
    draft_count_step(&costs, 0, 1.0);
    assert_true(costs.step[0] == 0 && costs.reading == 0);
    draft_count_readings(&costs, 4, 4e-6);
    assert_true(costs.reading == 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_cost_nothing_are_filled),      cmocka_unit_test(rows_that_cost_as_much_as_steps_are_not),
        cmocka_unit_test(fewer_rows_where_as_many_bring_no_more), cmocka_unit_test(a_record_forgets),
        cmocka_unit_test(asking_seldom_unlearns_nothing),         cmocka_unit_test(others_come_first),
        cmocka_unit_test(what_is_not_known_is_tried_alone),       cmocka_unit_test(one_slow_step_says_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
