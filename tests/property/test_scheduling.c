/* test_scheduling.c: who runs when. Rows join at the next step, prompts share their chunk, the background waits; what is found
 * in the cache is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cache.h"
#include "compare.h"
#include "setting.h"

/* ---- Joining ----------------------------------------------------------------------------------------------------- */

/* A deep text and a shallow one that comes later: the shallow one is through before the deep one's next token. */
static void a_newcomer_joins_at_the_next_step(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = setting_up(320, kind, NULL);
        gathering_begin(&s.with);
        scheduled deep = setting_ask(&s, 0, 1, 3), shallow = setting_ask(&s, 10, 4, 5);
        deep.options.depth = depth_of(kind, 40, 40);
        shallow.options.depth = depth_of(kind, 1, 1);
        scheduled *first = setting_shut(&s, deep), *second = setting_submit(&s, shallow);
        gathering_open(&s.with);
        gathering_wait(&s.with, 2);
        setting_expect_alone(&s, first);
        setting_expect_alone(&s, second);
        if (test_deepens(kind)) {
            assert_int_equal(second->first_call, 1);
            assert_int_equal(second->last_call, 1 + second->generated);
        } else {
            /* Through the layers together: a token each, in whichever order. */
            assert_true(second->first_call <= 2);
            assert_true(second->last_call > first->last_call);
        }
        setting_down(&s);
    }
}

/* While a long prompt is computed, running texts take every step with at most a chunk of its rows beside them, and short
 * prompts that come later get their share of it. */
static void a_long_prompt_delays_nobody_by_more_than_a_chunk(void **state)
{
    const descent_scheduler_options options = {.chunk = 4};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = setting_up(321, kind, &options);
        gathering_begin(&s.with);
        scheduled running = setting_ask(&s, 1, 1, 14);
        scheduled *text = setting_shut(&s, running), *prompt = setting_submit(&s, setting_ask(&s, 0, 80, 1));
        scheduled *shorts[] = {setting_submit(&s, setting_ask(&s, 2, 6, 1)), setting_submit(&s, setting_ask(&s, 3, 6, 1))};
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        /* 80 tokens by 4 take 20 rounds and more, 13 tokens take 13, and 6 tokens at a third of the chunk 6. */
        assert_true(text->last_call < prompt->first_call);
        for (size_t n = 0; n < 2; n++) assert_true(shorts[n]->last_call < text->last_call);
        for (size_t n = 0; n < s.count; n++) setting_expect_alone(&s, &s.runs[n]);
        descent_scheduler_state state_now = descent_scheduler_describe(s.scheduler);
        for (size_t i = 4; i < DESCENT_ROW_BUCKETS; i++) assert_int_equal(state_now.steps_by_rows[i], 0); /* 4 + 3 rows */
        /* Nor is it slower than that: whole chunks in flight, each token's row at once. */
        assert_true(state_now.steps <= (14 + 80 / 4 + 3 * 6) * setting_row_steps(&s) + setting_row_steps(&s));
        setting_down(&s);
    }
}

/* A chunk is shared evenly, and what one prompt does not take of its share goes to the others. */
static void a_chunk_is_shared_to_the_last_row(void **state)
{
    const descent_scheduler_options options = {.chunk = 20};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = setting_up(337, kind, &options);
        gathering_begin(&s.with);
        (void)setting_shut(&s, setting_ask(&s, 1, 1, 1));
        scheduled read = setting_ask(&s, 0, 37, 1);
        read.options.read_prompt = true;
        scheduled *many = setting_submit(&s, read), *few = setting_submit(&s, setting_ask(&s, 2, 3, 1));
        gathering_open(&s.with);
        gathering_wait(&s.with, 3);
        assert_int_equal(few->first_call - many->first_call, 20 - 3); /* they came out of one round, the others' first */
        setting_expect_alone(&s, many);
        setting_expect_alone(&s, few);
        setting_down(&s);
    }
}

/* Beyond max_running they wait in the order they came. */
static void the_others_wait_in_their_order(void **state)
{
    const descent_scheduler_options options = {.max_running = 1};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind += 3) {
        setting s = setting_up(322, kind, &options);
        gathering_begin(&s.with);
        (void)setting_shut(&s, setting_ask(&s, 0, 5, 2));
        for (size_t n = 1; n < SETTING_MOST; n++) (void)setting_submit(&s, setting_ask(&s, n, 5 + n, 3));
        descent_scheduler_state waiting = descent_scheduler_describe(s.scheduler);
        assert_int_equal(waiting.waiting, SETTING_MOST - 1);
        assert_int_equal(waiting.running, 1);
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        for (size_t n = 1; n < SETTING_MOST; n++) {
            assert_true(s.runs[n].first_call > s.runs[n - 1].last_call);
            setting_expect_alone(&s, &s.runs[n]);
        }
        setting_down(&s);
    }
}

static void the_background_runs_while_nobody_else_is_there(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (uint32_t running = 1; running <= 64; running *= 8) {
            const descent_scheduler_options options = {.max_running = running, .chunk = 7};
            setting s = setting_up(323, kind, &options);
            gathering_begin(&s.with);
            scheduled behind = setting_ask(&s, 0, 40, 6), ahead = setting_ask(&s, 1, 30, 4);
            behind.options.background = true;
            scheduled *first = setting_shut(&s, behind);
            scheduled *second = setting_submit(&s, behind), *third = setting_submit(&s, ahead),
                      *fourth = setting_submit(&s, ahead);
            gathering_open(&s.with);
            gathering_wait(&s.with, 4);
            /* The first had chosen a token; nothing of both in the background is called before the others are through. */
            assert_int_equal(third->first_call < fourth->first_call ? third->first_call : fourth->first_call, 1);
            assert_int_equal(third->last_call > fourth->last_call ? third->last_call : fourth->last_call, 2 * (4 + 1));
            assert_true(second->first_call > 2 * (4 + 1));
            for (size_t n = 0; n < s.count; n++) setting_expect_alone(&s, &s.runs[n]);
            assert_int_equal(first->report.pauses, running == 1); /* its place was needed */
            setting_down(&s);
        }
}

/* Rows of the background that are under way stand still too, where that loses nothing. */
static void the_background_stops_in_the_middle_of_a_token(void **state)
{
    (void)state;
    setting s = setting_up(338, TEST_NRGPT, NULL);
    gathering_begin(&s.with);
    scheduled deep = setting_ask(&s, 0, 1, 1), shallow = setting_ask(&s, 1, 1, 1), ahead = setting_ask(&s, 2, 1, 30);
    deep.options.background = shallow.options.background = shallow.gate = true;
    deep.options.depth.steps[0] = 10;
    shallow.options.depth.steps[0] = ahead.options.depth.steps[0] = 1;
    (void)setting_shut(&s, setting_ask(&s, 3, 1, 1));
    const scheduled *under_way = setting_submit(&s, deep);
    (void)setting_submit(&s, shallow);
    gathering_open(&s.with);
    gathering_wait_for_gate(&s.with); /* the shallow one's: the deep one has made a step beside it */
    const scheduled *first = setting_submit(&s, ahead);
    gathering_open(&s.with);
    gathering_wait(&s.with, s.count);
    assert_true(under_way->first_call > first->last_call);
    for (size_t n = 0; n < s.count; n++) setting_expect_alone(&s, &s.runs[n]);
    setting_down(&s);
}

/* With x(T) observed the limit counts the plane that this takes. */
static void what_observing_takes_is_counted(void **state)
{
    (void)state;
    for (size_t short_of = 0; short_of < 2; short_of++) {
        setting s = setting_up(339, TEST_NRGPT, NULL);
        descent_depth more = s.e.depth;
        more.steps[0]++;
        uint64_t needed = bytes_at(s.e.engine, DESCENT_PAGE_F32, 50 + 19 - 1, more);
        descent_scheduler_destroy(s.scheduler);
        setting_start(&s, &(descent_scheduler_options){.cache.byte_limit = needed - short_of, .threads = 1});
        scheduled run = setting_ask(&s, 0, 50, 19);
        run.options.observe = DESCENT_OBSERVE_FINAL;
        run.options.calls = (descent_generation_calls){never_chosen, never_ended, never_observed};
        descent_generation *generation = NULL;
        descent_status status;
        if (short_of)
            expect_code(descent_scheduler_submit(s.scheduler, &run.options, &generation, &status), DESCENT_LIMIT, &status,
                        "bytes");
        else
            setting_expect_alone(&s, (setting_submit(&s, run), gathering_wait(&s.with, 1), &s.runs[0]));
        setting_down(&s);
    }
}

/* One that reads its prompt and is paused in the middle goes on with the position that comes next. */
static void a_pause_repeats_no_reading(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = setting_up(340, kind, NULL);
        uint64_t one_page = bytes_at(s.e.engine, DESCENT_PAGE_F32, 1, s.e.depth);
        descent_scheduler_destroy(s.scheduler);
        setting_start(&s, &(descent_scheduler_options){.cache.byte_limit = 5 * one_page, .threads = 1, .chunk = 1});
        scheduled grows = setting_ask(&s, 0, 1, 90), read = setting_ask(&s, 1, 90, 1);
        read.options.read_prompt = true;
        const scheduled *first = setting_shut(&s, grows), *reader = setting_submit(&s, read);
        gathering_open(&s.with);
        gathering_wait(&s.with, 2);
        setting_expect_alone(&s, first);
        setting_expect_alone(&s, reader);
        assert_int_equal(reader->report.pauses, 1);
        assert_true(reader->first_call < first->last_call); /* it had begun to read */
        setting_down(&s);
    }
}

/* ---- The cache --------------------------------------------------------------------------------------------------- */

static void choices_of_one_prompt_share_its_pages(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (int lone = 0; lone < 2; lone++) { /* with lone, the first of them goes away before it has begun */
            setting s = setting_up(324, kind, NULL);
            gathering_begin(&s.with);
            (void)setting_shut(&s, setting_ask(&s, 7, 1, 1));
            for (uint32_t n = 0; n < 4; n++) {
                scheduled choice = setting_ask(&s, 0, 2 * PAGE_TOKENS + 6, 5);
                choice.options.sampling.choice = n;
                if (n > 0) choice.options.like = s.runs[1].generation;
                (void)setting_submit(&s, choice);
            }
            if (lone) scheduled_cancel(&s.runs[1]);
            gathering_open(&s.with);
            gathering_wait(&s.with, s.count);
            for (size_t n = 1 + (size_t)lone; n < s.count; n++) {
                bool first = n == 1 + (size_t)lone;
                setting_expect_alone(&s, &s.runs[n]);
                assert_int_equal(s.runs[n].report.reused, first ? 0 : 2 * PAGE_TOKENS);
                assert_int_equal(s.runs[n].report.row_steps,
                                 (uint64_t)(first ? 2 * PAGE_TOKENS + 10 : 10) * setting_row_steps(&s));
            }
            setting_down(&s);
        }
}

/* The handle of one that has ended, of one with another prompt, of one in the background: nobody is waited for. */
static void whoever_is_not_alike_is_not_waited_for(void **state)
{
    (void)state;
    setting s = setting_up(325, TEST_NRGPT, NULL);
    gathering_begin(&s.with);
    scheduled run = setting_ask(&s, 0, 2 * PAGE_TOKENS + 6, 5);
    descent_generation *gone = setting_submit(&s, run)->generation;
    gathering_wait(&s.with, 1);
    run.options.like = gone;
    run.options.sampling.seed = 9;
    (void)setting_submit(&s, run);
    gathering_wait(&s.with, 2);
    assert_int_equal(s.runs[1].report.reused, 2 * PAGE_TOKENS);

    scheduled behind = setting_ask(&s, 0, 50, 2);
    behind.options.background = true;
    (void)setting_shut(&s, setting_ask(&s, 3, 1, 1));
    scheduled ahead = setting_ask(&s, 0, 50, 2);
    ahead.options.like = setting_submit(&s, behind)->generation;
    scheduled *after = setting_submit(&s, ahead);
    scheduled other = setting_ask(&s, 4, 50, 2);
    other.options.like = after->generation;
    (void)setting_submit(&s, other);
    gathering_open(&s.with);
    gathering_wait(&s.with, s.count);
    for (size_t n = 0; n < s.count; n++) setting_expect_alone(&s, &s.runs[n]);
    setting_down(&s);
}

/* Pages that will not be shared are not waited for. */
static void whoever_shares_nothing_is_not_waited_for(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) { /* the last of them shares */
        const descent_scheduler_options options = {.chunk = 4};
        setting s = setting_up(343, TEST_NRGPT, &options);
        gathering_begin(&s.with);
        scheduled first = setting_ask(&s, 0, 50, 2), second = first, other = setting_ask(&s, 3, 1, 1);
        first.options.read_prompt = how == 0;
        first.options.observe = how == 1 ? DESCENT_OBSERVE_CONVERGENCE : 0;
        first.options.calls.observe = never_observed;
        (void)setting_shut(&s, other);
        second.options.like = setting_submit(&s, first)->generation;
        (void)setting_submit(&s, second);
        other.gate = true;
        (void)setting_submit(&s, other);
        gathering_open(&s.with);
        gathering_wait_for_gate(&s.with); /* the other's, long before the first's prompt is there */
        descent_scheduler_state now = descent_scheduler_describe(s.scheduler);
        assert_int_equal(now.running, how < 2 ? 3 : 2);
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        setting_down(&s);
    }
}

/* One goes away before it has begun, with two like it that have just come, the first of them in the background: the other
 * does not come to wait for that one, which waits for it. */
static void nobody_waits_for_the_background(void **state)
{
    const descent_scheduler_options options = {.max_running = 1};
    (void)state;
    setting s = setting_up(342, TEST_NRGPT, &options);
    gathering_begin(&s.with);
    scheduled leaves = setting_ask(&s, 1, 1, 1), alike = setting_ask(&s, 0, 50, 2);
    leaves.end_gate = true;
    (void)setting_shut(&s, setting_ask(&s, 3, 1, 1));
    scheduled *held = setting_submit(&s, leaves), *gone = setting_submit(&s, alike);
    scheduled_cancel(held);
    scheduled_cancel(gone);
    gathering_open(&s.with);
    gathering_wait_for_gate(&s.with); /* the first of both is buried: what comes now is not in a line when the second is */
    alike.options.like = gone->generation;
    alike.options.background = true;
    const scheduled *behind = setting_submit(&s, alike);
    alike.options.background = false;
    const scheduled *ahead = setting_submit(&s, alike);
    gathering_open(&s.with);
    gathering_wait(&s.with, s.count);
    assert_true(ahead->last_call < behind->first_call);
    setting_expect_alone(&s, ahead);
    setting_expect_alone(&s, behind);
    setting_down(&s);
}

/* A prompt that goes on where an earlier text ended finds what was generated, and its text is as of a prompt never seen; but
 * not what was computed with steps of another size. */
static void a_second_turn_finds_the_first(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (int scaled = 0; scaled < 1 + test_descends(kind); scaled++) {
            setting s = setting_up(336, kind, NULL);
            gathering_begin(&s.with);
            scheduled first = setting_ask(&s, 0, 20, 60), second = setting_ask(&s, 0, 20, 9);
            if (scaled) first.options.motion = motion_scaled(0.75f);
            const scheduled *turn = setting_submit(&s, first);
            gathering_wait(&s.with, 1);
            uint32_t text[20 + 60 + 7];
            memcpy(text, s.e.tokens, 20 * sizeof *text);
            memcpy(text + 20, turn->tokens, 60 * sizeof *text);
            memcpy(text + 80, s.e.tokens, 7 * sizeof *text);
            second.options.prompt = text;
            second.options.prompt_count = 87;
            const scheduled *next = setting_submit(&s, second);
            gathering_wait(&s.with, 2);
            setting_expect_alone(&s, next);
            assert_int_equal(next->report.reused, scaled ? 0 : 2 * PAGE_TOKENS);
            assert_int_equal(next->report.deepened, 0);
            setting_down(&s);
        }
}

static void what_is_found_at_a_smaller_depth_is_deepened(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        if (!test_has_depth(kind, 0)) continue;
        setting s = setting_up(326, kind, NULL);
        gathering_begin(&s.with);
        static const unsigned depths[] = {2, 5, 3};
        for (size_t n = 0; n < 3; n++) {
            scheduled run = setting_ask(&s, 0, 3 * PAGE_TOKENS, 2);
            run.options.depth = depth_of(kind, depths[n], 1);
            (void)setting_submit(&s, run);
            gathering_wait(&s.with, n + 1);
            setting_expect_alone(&s, &s.runs[n]);
        }
        size_t whole = test_deepens(kind) ? 2 * PAGE_TOKENS : 0;
        assert_int_equal(s.runs[0].report.reused + s.runs[0].report.deepened, 0);
        assert_int_equal(s.runs[1].report.reused, 0);
        assert_int_equal(s.runs[1].report.deepened, whole);
        assert_int_equal(s.runs[2].report.reused, whole);
        assert_int_equal(s.runs[2].report.deepened, 0);
        if (whole) assert_int_equal(s.runs[1].report.row_steps, whole * 3 + (PAGE_TOKENS + 1) * 5);
        setting_down(&s);
    }
}

static void what_alone_cannot_fit_is_refused(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (size_t short_of = 0; short_of < 2; short_of++) {
            setting s = setting_up(327, kind, NULL);
            uint64_t needed = bytes_at(s.e.engine, DESCENT_PAGE_F32, 50 + 19 - 1, s.e.depth);
            descent_scheduler_destroy(s.scheduler);
            setting_start(&s, &(descent_scheduler_options){.cache.byte_limit = needed - short_of, .threads = 1});
            scheduled run = setting_ask(&s, 0, 50, 19);
            if (short_of) {
                char numbers[64];
                descent_generation *generation = NULL;
                descent_status status;
                (void)snprintf(numbers, sizeof numbers, "%llu bytes of state cache; its limit is %llu",
                               (unsigned long long)needed, (unsigned long long)needed - 1);
                run.options.calls.chosen = never_chosen;
                run.options.calls.ended = never_ended;
                expect_code(descent_scheduler_submit(s.scheduler, &run.options, &generation, &status), DESCENT_LIMIT, &status,
                            numbers);
                assert_null(generation);
            } else {
                setting_expect_alone(&s, (setting_submit(&s, run), gathering_wait(&s.with, 1), &s.runs[0]));
            }
            setting_down(&s);
        }
}

/* Deep pages that others left are more than a shallow text needs: where there is room for no more than that, it goes on with
 * pages of its own. */
static void pages_too_deep_for_the_limit_are_let_go(void **state)
{
    (void)state;
    setting s = setting_up(328, TEST_NRGPT, NULL);
    scheduled deep = setting_ask(&s, 0, 33, 2), shallow = setting_ask(&s, 0, 90, 20);
    shallow.options.depth.steps[0] = 1;
    uint64_t limit = bytes_at(s.e.engine, DESCENT_PAGE_F32, 109, shallow.options.depth);
    uint16_t *steps = deep.options.depth.steps;
    for (*steps = 1; bytes_at(s.e.engine, DESCENT_PAGE_F32, 34, deep.options.depth) <= limit;) ++*steps;
    --*steps;
    assert_true(*steps > 1);
    descent_scheduler_destroy(s.scheduler);
    setting_start(&s, &(descent_scheduler_options){.cache.byte_limit = limit, .threads = 1});
    (void)setting_submit(&s, deep);
    gathering_wait(&s.with, 1);
    (void)setting_submit(&s, shallow);
    gathering_wait(&s.with, 2);
    setting_expect_alone(&s, &s.runs[0]);
    setting_expect_alone(&s, &s.runs[1]);
    assert_int_equal(s.runs[1].report.reused, PAGE_TOKENS);
    assert_int_equal(s.runs[1].report.pauses, 1);
    setting_down(&s);
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_newcomer_joins_at_the_next_step),
                                       cmocka_unit_test(a_long_prompt_delays_nobody_by_more_than_a_chunk),
                                       cmocka_unit_test(a_chunk_is_shared_to_the_last_row),
                                       cmocka_unit_test(the_background_stops_in_the_middle_of_a_token),
                                       cmocka_unit_test(what_observing_takes_is_counted),
                                       cmocka_unit_test(a_pause_repeats_no_reading),
                                       cmocka_unit_test(the_others_wait_in_their_order),
                                       cmocka_unit_test(the_background_runs_while_nobody_else_is_there),
                                       cmocka_unit_test(choices_of_one_prompt_share_its_pages),
                                       cmocka_unit_test(whoever_is_not_alike_is_not_waited_for),
                                       cmocka_unit_test(nobody_waits_for_the_background),
                                       cmocka_unit_test(whoever_shares_nothing_is_not_waited_for),
                                       cmocka_unit_test(a_second_turn_finds_the_first),
                                       cmocka_unit_test(what_is_found_at_a_smaller_depth_is_deepened),
                                       cmocka_unit_test(what_alone_cannot_fit_is_refused),
                                       cmocka_unit_test(pages_too_deep_for_the_limit_are_let_go)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
