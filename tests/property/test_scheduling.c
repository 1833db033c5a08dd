/* test_scheduling.c: who runs when. Rows join at the next step, prompts share their chunk, the background waits, whoever is
 * cancelled leaves; what is found in the cache is counted; every generation ends once, for the reason it gives.
 *
 * What happens in which order is made certain by a gate: a generation whose first token the scheduler's thread hands to a
 * callback that waits. What is submitted or cancelled meanwhile, the thread finds all at once when the gate opens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "compare.h"
#include "example.h"
#include "model_file.h"
#include "scheduled.h"

enum { CONTEXT = 120, LONG = 100, MOST = 8, SICK = 3 };

typedef struct setting {
    example e;
    descent_scheduler *scheduler;
    gathering with;
    scheduled runs[MOST];
    size_t count; /* submitted */
} setting;

static void start(setting *s, const descent_scheduler_options *options)
{
    s->scheduler = scheduled_start(s->e.engine, options);
    gathering_begin(&s->with);
}

static setting set_up(uint64_t test, size_t kind, const descent_scheduler_options *options)
{
    setting s = {.e.r = rng_seeded(test_seed(test, kind))};
    s.e.model = random_model(&s.e.r, (test_family)kind, CONTEXT);
    s.e.tokens = random_tokens(&s.e.r, &s.e.model, LONG);
    s.e.depth = random_depth(&s.e.r, &s.e.model, 4);
    s.e.engine = drive_open_test_model(&s.e.model);
    compare_about("seed %llu, %s", (unsigned long long)test_seed(test, kind), test_model_words(&s.e.model));
    descent_scheduler_options one = options ? *options : (descent_scheduler_options){.chunk = 0};
    one.threads = 1;
    s.scheduler = scheduled_start(s.e.engine, &one);
    return s;
}

/* It has no reference to compare with: that would be of the engine's numbers. */
static void release_model(setting *s)
{
    descent_model_close(s->e.engine);
    test_model_free(&s->e.model);
    free(s->e.tokens);
}

/* A setting must lie where it stays. */
static void tear_down(setting *s)
{
    gathering_wait(&s->with, s->count);
    for (size_t n = 0; n < s->count; n++) {
        assert_int_equal(s->runs[n].ends, 1);
        scheduled_free(&s->runs[n]);
    }
    descent_scheduler_state state = descent_scheduler_describe(s->scheduler);
    assert_int_equal(state.running + state.waiting + state.rows, 0);
    assert_int_equal(state.cache.pages, state.cache.idle_pages);
    descent_scheduler_destroy(s->scheduler);
    gathering_finish(&s->with);
    release_model(s);
}

/* The text's first `count` tokens from `from` on, continued by `limit`. */
static scheduled ask(const setting *s, size_t from, size_t count, size_t limit)
{
    scheduled run = {.options = {.prompt = s->e.tokens + from, .prompt_count = count, .limit = limit, .depth = s->e.depth}};
    run.options.sampling = descent_sampling_defaults();
    run.options.sampling.seed = 5;
    return run;
}

static scheduled *submit(setting *s, scheduled run)
{
    scheduled *kept = &s->runs[s->count++];
    *kept = run;
    scheduled_submit(s->scheduler, s->e.engine, &s->with, kept);
    return kept;
}

/* The scheduler's thread stands still until gathering_open. */
static scheduled *shut(setting *s, scheduled run)
{
    run.gate = true;
    scheduled *gate = submit(s, run);
    gathering_wait_for_gate(&s->with);
    return gate;
}

static void expect_alone(const setting *s, const scheduled *run)
{
    scheduled alone = scheduled_alone(s->e.engine, DESCENT_PAGE_F32, &run->options);
    compare_scheduled(run, &alone);
    scheduled_free(&alone);
}

/* Callbacks of what is refused. */
static void never_observed(void *user, const descent_observation *observation)
{
    (void)user;
    (void)observation;
}

static bool never_chosen(void *user, const descent_choice *choice)
{
    (void)user;
    (void)choice;
    return true;
}

static void never_ended(void *user, const descent_generation_report *report)
{
    (void)user;
    (void)report;
}

static uint64_t total(const setting *s)
{
    return row_steps_at(&s->e.model, s->e.depth);
}

/* ---- Joining ----------------------------------------------------------------------------------------------------- */

/* A deep text and a shallow one that comes later: the shallow one is through before the deep one's next token. */
static void a_newcomer_joins_at_the_next_step(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = set_up(320, kind, NULL);
        gathering_begin(&s.with);
        scheduled deep = ask(&s, 0, 1, 3), shallow = ask(&s, 10, 4, 5);
        deep.options.depth = depth_of(kind, 40, 40);
        shallow.options.depth = depth_of(kind, 1, 1);
        scheduled *first = shut(&s, deep), *second = submit(&s, shallow);
        gathering_open(&s.with);
        gathering_wait(&s.with, 2);
        expect_alone(&s, first);
        expect_alone(&s, second);
        if (test_deepens(kind)) {
            assert_int_equal(second->first_call, 1);
            assert_int_equal(second->last_call, 1 + second->generated);
        } else {
            /* Through the layers together: a token each, in whichever order. */
            assert_true(second->first_call <= 2);
            assert_true(second->last_call > first->last_call);
        }
        tear_down(&s);
    }
}

/* While a long prompt is computed, running texts take every step with at most a chunk of its rows beside them, and short
 * prompts that come later get their share of it. */
static void a_long_prompt_delays_nobody_by_more_than_a_chunk(void **state)
{
    const descent_scheduler_options options = {.chunk = 4};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = set_up(321, kind, &options);
        gathering_begin(&s.with);
        scheduled running = ask(&s, 1, 1, 14);
        scheduled *text = shut(&s, running), *prompt = submit(&s, ask(&s, 0, 80, 1));
        scheduled *shorts[] = {submit(&s, ask(&s, 2, 6, 1)), submit(&s, ask(&s, 3, 6, 1))};
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        /* 80 tokens by 4 take 20 rounds and more, 13 tokens take 13, and 6 tokens at a third of the chunk 6. */
        assert_true(text->last_call < prompt->first_call);
        for (size_t n = 0; n < 2; n++) assert_true(shorts[n]->last_call < text->last_call);
        for (size_t n = 0; n < s.count; n++) expect_alone(&s, &s.runs[n]);
        descent_scheduler_state state_now = descent_scheduler_describe(s.scheduler);
        for (size_t i = 4; i < DESCENT_ROW_BUCKETS; i++) assert_int_equal(state_now.steps_by_rows[i], 0); /* 4 + 3 rows */
        /* Nor is it slower than that: whole chunks in flight, each token's row at once. */
        assert_true(state_now.steps <= (14 + 80 / 4 + 3 * 6) * total(&s) + total(&s));
        tear_down(&s);
    }
}

/* A chunk is shared evenly, and what one prompt does not take of its share goes to the others. */
static void a_chunk_is_shared_to_the_last_row(void **state)
{
    const descent_scheduler_options options = {.chunk = 20};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = set_up(337, kind, &options);
        gathering_begin(&s.with);
        (void)shut(&s, ask(&s, 1, 1, 1));
        scheduled read = ask(&s, 0, 37, 1);
        read.options.read_prompt = true;
        scheduled *many = submit(&s, read), *few = submit(&s, ask(&s, 2, 3, 1));
        gathering_open(&s.with);
        gathering_wait(&s.with, 3);
        assert_int_equal(few->first_call - many->first_call, 20 - 3); /* they came out of one round, the others' first */
        expect_alone(&s, many);
        expect_alone(&s, few);
        tear_down(&s);
    }
}

/* Beyond max_running they wait in the order they came. */
static void the_others_wait_in_their_order(void **state)
{
    const descent_scheduler_options options = {.max_running = 1};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind += 3) {
        setting s = set_up(322, kind, &options);
        gathering_begin(&s.with);
        (void)shut(&s, ask(&s, 0, 5, 2));
        for (size_t n = 1; n < MOST; n++) (void)submit(&s, ask(&s, n, 5 + n, 3));
        descent_scheduler_state waiting = descent_scheduler_describe(s.scheduler);
        assert_int_equal(waiting.waiting, MOST - 1);
        assert_int_equal(waiting.running, 1);
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        for (size_t n = 1; n < MOST; n++) {
            assert_true(s.runs[n].first_call > s.runs[n - 1].last_call);
            expect_alone(&s, &s.runs[n]);
        }
        tear_down(&s);
    }
}

static void the_background_runs_while_nobody_else_is_there(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (uint32_t running = 1; running <= 64; running *= 8) {
            const descent_scheduler_options options = {.max_running = running, .chunk = 7};
            setting s = set_up(323, kind, &options);
            gathering_begin(&s.with);
            scheduled behind = ask(&s, 0, 40, 6), ahead = ask(&s, 1, 30, 4);
            behind.options.background = true;
            scheduled *first = shut(&s, behind);
            scheduled *second = submit(&s, behind), *third = submit(&s, ahead), *fourth = submit(&s, ahead);
            gathering_open(&s.with);
            gathering_wait(&s.with, 4);
            /* The first had chosen a token; nothing of both in the background is called before the others are through. */
            assert_int_equal(third->first_call < fourth->first_call ? third->first_call : fourth->first_call, 1);
            assert_int_equal(third->last_call > fourth->last_call ? third->last_call : fourth->last_call, 2 * (4 + 1));
            assert_true(second->first_call > 2 * (4 + 1));
            for (size_t n = 0; n < s.count; n++) expect_alone(&s, &s.runs[n]);
            assert_int_equal(first->report.pauses, running == 1); /* its place was needed */
            tear_down(&s);
        }
}

/* Rows of the background that are under way stand still too, where that loses nothing. */
static void the_background_stops_in_the_middle_of_a_token(void **state)
{
    (void)state;
    setting s = set_up(338, TEST_NRGPT, NULL);
    gathering_begin(&s.with);
    scheduled deep = ask(&s, 0, 1, 1), shallow = ask(&s, 1, 1, 1), ahead = ask(&s, 2, 1, 30);
    deep.options.background = shallow.options.background = shallow.gate = true;
    deep.options.depth.steps[0] = 10;
    shallow.options.depth.steps[0] = ahead.options.depth.steps[0] = 1;
    (void)shut(&s, ask(&s, 3, 1, 1));
    const scheduled *under_way = submit(&s, deep);
    (void)submit(&s, shallow);
    gathering_open(&s.with);
    gathering_wait_for_gate(&s.with); /* the shallow one's: the deep one has made a step beside it */
    const scheduled *first = submit(&s, ahead);
    gathering_open(&s.with);
    gathering_wait(&s.with, s.count);
    assert_true(under_way->first_call > first->last_call);
    for (size_t n = 0; n < s.count; n++) expect_alone(&s, &s.runs[n]);
    tear_down(&s);
}

/* With x(T) observed the limit counts the plane that this takes. */
static void what_observing_takes_is_counted(void **state)
{
    (void)state;
    for (size_t short_of = 0; short_of < 2; short_of++) {
        setting s = set_up(339, TEST_NRGPT, NULL);
        descent_depth more = s.e.depth;
        more.steps[0]++;
        uint64_t needed = descent_cache_bytes_needed(s.e.engine, DESCENT_PAGE_F32, 50 + 19 - 1, more);
        descent_scheduler_destroy(s.scheduler);
        start(&s, &(descent_scheduler_options){.cache.byte_limit = needed - short_of, .threads = 1});
        scheduled run = ask(&s, 0, 50, 19);
        run.options.observe = DESCENT_OBSERVE_FINAL;
        run.options.calls = (descent_generation_calls){never_chosen, never_ended, never_observed};
        descent_generation *generation = NULL;
        descent_status status;
        if (short_of)
            expect_code(descent_scheduler_submit(s.scheduler, &run.options, &generation, &status), DESCENT_LIMIT, &status,
                        "bytes");
        else
            expect_alone(&s, (submit(&s, run), gathering_wait(&s.with, 1), &s.runs[0]));
        tear_down(&s);
    }
}

/* One that reads its prompt and is paused in the middle goes on with the position that comes next. */
static void a_pause_repeats_no_reading(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = set_up(340, kind, NULL);
        uint64_t one_page = descent_cache_bytes_needed(s.e.engine, DESCENT_PAGE_F32, 1, s.e.depth);
        descent_scheduler_destroy(s.scheduler);
        start(&s, &(descent_scheduler_options){.cache.byte_limit = 5 * one_page, .threads = 1, .chunk = 1});
        scheduled grows = ask(&s, 0, 1, 90), read = ask(&s, 1, 90, 1);
        read.options.read_prompt = true;
        const scheduled *first = shut(&s, grows), *reader = submit(&s, read);
        gathering_open(&s.with);
        gathering_wait(&s.with, 2);
        expect_alone(&s, first);
        expect_alone(&s, reader);
        assert_int_equal(reader->report.pauses, 1);
        assert_true(reader->first_call < first->last_call); /* it had begun to read */
        tear_down(&s);
    }
}

/* ---- The cache --------------------------------------------------------------------------------------------------- */

static void choices_of_one_prompt_share_its_pages(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (int lone = 0; lone < 2; lone++) { /* with lone, the first of them goes away before it has begun */
            setting s = set_up(324, kind, NULL);
            gathering_begin(&s.with);
            (void)shut(&s, ask(&s, 7, 1, 1));
            for (uint32_t n = 0; n < 4; n++) {
                scheduled choice = ask(&s, 0, 2 * PAGE_TOKENS + 6, 5);
                choice.options.sampling.choice = n;
                if (n > 0) choice.options.like = s.runs[1].generation;
                (void)submit(&s, choice);
            }
            if (lone) scheduled_cancel(&s.runs[1]);
            gathering_open(&s.with);
            gathering_wait(&s.with, s.count);
            for (size_t n = 1 + (size_t)lone; n < s.count; n++) {
                bool first = n == 1 + (size_t)lone;
                expect_alone(&s, &s.runs[n]);
                assert_int_equal(s.runs[n].report.reused, first ? 0 : 2 * PAGE_TOKENS);
                assert_int_equal(s.runs[n].report.row_steps, (uint64_t)(first ? 2 * PAGE_TOKENS + 10 : 10) * total(&s));
            }
            tear_down(&s);
        }
}

/* The handle of one that has ended, of one with another prompt, of one in the background: nobody is waited for. */
static void whoever_is_not_alike_is_not_waited_for(void **state)
{
    (void)state;
    setting s = set_up(325, TEST_NRGPT, NULL);
    gathering_begin(&s.with);
    scheduled run = ask(&s, 0, 2 * PAGE_TOKENS + 6, 5);
    descent_generation *gone = submit(&s, run)->generation;
    gathering_wait(&s.with, 1);
    run.options.like = gone;
    run.options.sampling.seed = 9;
    (void)submit(&s, run);
    gathering_wait(&s.with, 2);
    assert_int_equal(s.runs[1].report.reused, 2 * PAGE_TOKENS);

    scheduled behind = ask(&s, 0, 50, 2);
    behind.options.background = true;
    (void)shut(&s, ask(&s, 3, 1, 1));
    scheduled ahead = ask(&s, 0, 50, 2);
    ahead.options.like = submit(&s, behind)->generation;
    scheduled *after = submit(&s, ahead);
    scheduled other = ask(&s, 4, 50, 2);
    other.options.like = after->generation;
    (void)submit(&s, other);
    gathering_open(&s.with);
    gathering_wait(&s.with, s.count);
    for (size_t n = 0; n < s.count; n++) expect_alone(&s, &s.runs[n]);
    tear_down(&s);
}

/* Pages that will not be shared are not waited for. */
static void whoever_shares_nothing_is_not_waited_for(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) { /* the last of them shares */
        const descent_scheduler_options options = {.chunk = 4};
        setting s = set_up(343, TEST_NRGPT, &options);
        gathering_begin(&s.with);
        scheduled first = ask(&s, 0, 50, 2), second = first, other = ask(&s, 3, 1, 1);
        first.options.read_prompt = how == 0;
        first.options.observe = how == 1 ? DESCENT_OBSERVE_CONVERGENCE : 0;
        first.options.calls.observe = never_observed;
        (void)shut(&s, other);
        second.options.like = submit(&s, first)->generation;
        (void)submit(&s, second);
        other.gate = true;
        (void)submit(&s, other);
        gathering_open(&s.with);
        gathering_wait_for_gate(&s.with); /* the other's, long before the first's prompt is there */
        descent_scheduler_state now = descent_scheduler_describe(s.scheduler);
        assert_int_equal(now.running, how < 2 ? 3 : 2);
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        tear_down(&s);
    }
}

/* One goes away before it has begun, with two like it that have just come, the first of them in the background: the other
 * does not come to wait for that one, which waits for it. */
static void nobody_waits_for_the_background(void **state)
{
    const descent_scheduler_options options = {.max_running = 1};
    (void)state;
    setting s = set_up(342, TEST_NRGPT, &options);
    gathering_begin(&s.with);
    scheduled leaves = ask(&s, 1, 1, 1), alike = ask(&s, 0, 50, 2);
    leaves.end_gate = true;
    (void)shut(&s, ask(&s, 3, 1, 1));
    scheduled *held = submit(&s, leaves), *gone = submit(&s, alike);
    scheduled_cancel(held);
    scheduled_cancel(gone);
    gathering_open(&s.with);
    gathering_wait_for_gate(&s.with); /* the first of both is buried: what comes now is not in a line when the second is */
    alike.options.like = gone->generation;
    alike.options.background = true;
    const scheduled *behind = submit(&s, alike);
    alike.options.background = false;
    const scheduled *ahead = submit(&s, alike);
    gathering_open(&s.with);
    gathering_wait(&s.with, s.count);
    assert_true(ahead->last_call < behind->first_call);
    expect_alone(&s, ahead);
    expect_alone(&s, behind);
    tear_down(&s);
}

/* A prompt that goes on where an earlier text ended finds what was generated, and its text is as of a prompt never seen; but
 * not what was computed with steps of another size. */
static void a_second_turn_finds_the_first(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (int scaled = 0; scaled < 1 + test_descends(kind); scaled++) {
            setting s = set_up(336, kind, NULL);
            gathering_begin(&s.with);
            scheduled first = ask(&s, 0, 20, 60), second = ask(&s, 0, 20, 9);
            if (scaled) first.options.step_scale = 0.75f;
            const scheduled *turn = submit(&s, first);
            gathering_wait(&s.with, 1);
            uint32_t text[20 + 60 + 7];
            memcpy(text, s.e.tokens, 20 * sizeof *text);
            memcpy(text + 20, turn->tokens, 60 * sizeof *text);
            memcpy(text + 80, s.e.tokens, 7 * sizeof *text);
            second.options.prompt = text;
            second.options.prompt_count = 87;
            const scheduled *next = submit(&s, second);
            gathering_wait(&s.with, 2);
            expect_alone(&s, next);
            assert_int_equal(next->report.reused, scaled ? 0 : 2 * PAGE_TOKENS);
            assert_int_equal(next->report.deepened, 0);
            tear_down(&s);
        }
}

static void what_is_found_at_a_smaller_depth_is_deepened(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        if (!test_has_depth(kind, 0)) continue;
        setting s = set_up(326, kind, NULL);
        gathering_begin(&s.with);
        static const unsigned depths[] = {2, 5, 3};
        for (size_t n = 0; n < 3; n++) {
            scheduled run = ask(&s, 0, 3 * PAGE_TOKENS, 2);
            run.options.depth = depth_of(kind, depths[n], 1);
            (void)submit(&s, run);
            gathering_wait(&s.with, n + 1);
            expect_alone(&s, &s.runs[n]);
        }
        size_t whole = test_deepens(kind) ? 2 * PAGE_TOKENS : 0;
        assert_int_equal(s.runs[0].report.reused + s.runs[0].report.deepened, 0);
        assert_int_equal(s.runs[1].report.reused, 0);
        assert_int_equal(s.runs[1].report.deepened, whole);
        assert_int_equal(s.runs[2].report.reused, whole);
        assert_int_equal(s.runs[2].report.deepened, 0);
        if (whole) assert_int_equal(s.runs[1].report.row_steps, whole * 3 + (PAGE_TOKENS + 1) * 5);
        tear_down(&s);
    }
}

static void what_alone_cannot_fit_is_refused(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (size_t short_of = 0; short_of < 2; short_of++) {
            setting s = set_up(327, kind, NULL);
            uint64_t needed = descent_cache_bytes_needed(s.e.engine, DESCENT_PAGE_F32, 50 + 19 - 1, s.e.depth);
            descent_scheduler_destroy(s.scheduler);
            start(&s, &(descent_scheduler_options){.cache.byte_limit = needed - short_of, .threads = 1});
            scheduled run = ask(&s, 0, 50, 19);
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
                expect_alone(&s, (submit(&s, run), gathering_wait(&s.with, 1), &s.runs[0]));
            }
            tear_down(&s);
        }
}

/* Deep pages that others left are more than a shallow text needs: where there is room for no more than that, it goes on with
 * pages of its own. */
static void pages_too_deep_for_the_limit_are_let_go(void **state)
{
    (void)state;
    setting s = set_up(328, TEST_NRGPT, NULL);
    scheduled deep = ask(&s, 0, 33, 2), shallow = ask(&s, 0, 90, 20);
    shallow.options.depth.steps[0] = 1;
    uint64_t limit = descent_cache_bytes_needed(s.e.engine, DESCENT_PAGE_F32, 109, shallow.options.depth);
    uint16_t *steps = deep.options.depth.steps;
    for (*steps = 1; descent_cache_bytes_needed(s.e.engine, DESCENT_PAGE_F32, 34, deep.options.depth) <= limit;) ++*steps;
    --*steps;
    assert_true(*steps > 1);
    descent_scheduler_destroy(s.scheduler);
    start(&s, &(descent_scheduler_options){.cache.byte_limit = limit, .threads = 1});
    (void)submit(&s, deep);
    gathering_wait(&s.with, 1);
    (void)submit(&s, shallow);
    gathering_wait(&s.with, 2);
    expect_alone(&s, &s.runs[0]);
    expect_alone(&s, &s.runs[1]);
    assert_int_equal(s.runs[1].report.reused, PAGE_TOKENS);
    assert_int_equal(s.runs[1].report.pauses, 1);
    tear_down(&s);
}

/* ---- Ending ------------------------------------------------------------------------------------------------------ */

static void the_cancelled_leave_from_wherever_they_are(void **state)
{
    const descent_scheduler_options options = {.chunk = 4, .max_running = 4};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = set_up(329, kind, &options);
        gathering_begin(&s.with);
        scheduled decoding = ask(&s, 0, 3, 20), reading = ask(&s, 1, 60, 2), long_one = ask(&s, 0, LONG, 2);
        decoding.cancel_after = 3;
        reading.options.read_prompt = long_one.options.read_prompt = true;
        reading.cancel_at_read = 1;
        scheduled *prompt = shut(&s, long_one); /* its first token is read, the others are still to come */
        scheduled *stays = submit(&s, ask(&s, 5, 1, 40));
        scheduled *token = submit(&s, decoding), *position = submit(&s, reading), *queued = submit(&s, ask(&s, 2, 5, 3));
        scheduled_cancel(prompt);
        scheduled_cancel(queued);
        scheduled_cancel(queued); /* twice is once */
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        const scheduled *cancelled[] = {prompt, token, position, queued};
        for (size_t n = 0; n < 4; n++) assert_int_equal(cancelled[n]->report.end, DESCENT_END_CANCELLED);
        assert_int_equal(prompt->generated + queued->generated + queued->report.row_steps, 0);
        assert_int_equal(prompt->prompt_read, 1);                  /* though four were there to be read */
        assert_int_equal(prompt->report.row_steps, 4 * total(&s)); /* the chunk that was in flight, and no step more */
        assert_int_equal(token->generated, 3);
        assert_int_equal(token->report.row_steps, (3 + 2) * total(&s));
        assert_int_equal(position->prompt_read, 1);
        assert_true(position->report.row_steps <= 2 * 4 * total(&s));
        expect_alone(&s, stays);
        tear_down(&s);
    }
}

static void destroying_cancels_all(void **state)
{
    const descent_scheduler_options options = {.chunk = 4, .max_running = 2};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = set_up(330, kind, &options);
        gathering_begin(&s.with);
        for (size_t n = 0; n < MOST; n++) {
            scheduled run = ask(&s, n, 50, 60);
            run.options.background = n % 3 == 2;
            run.options.like = n == 1 ? s.runs[0].generation : NULL;
            (void)submit(&s, run);
        }
        descent_scheduler_destroy(s.scheduler);
        assert_int_equal(s.with.ended, MOST);
        for (size_t n = 0; n < MOST; n++) {
            assert_int_equal(s.runs[n].ends, 1);
            assert_int_equal(s.runs[n].report.end, DESCENT_END_CANCELLED);
            scheduled_free(&s.runs[n]);
        }
        gathering_finish(&s.with);
        release_model(&s);
    }
    descent_scheduler_destroy(NULL);
}

static void add_characters(gguf_writer *w)
{
    static char spelled[200][3];
    static const char *pieces[200];
    for (size_t i = 0; i < 200; i++) {
        (void)snprintf(spelled[i], sizeof spelled[i], "%c%c", (char)(0xc4 + i / 64), (char)(0x80 + i % 64));
        pieces[i] = spelled[i];
    }
    gguf_writer_string(w, "tokenizer.ggml.model", "chars");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", pieces, 200);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
}

static void every_end_says_its_reason(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind += 2) {
        setting s = set_up(331, kind, NULL);
        descent_scheduler_destroy(s.scheduler);
        descent_model_close(s.e.engine);
        const char *path = scratch_path("spelled.gguf");
        write_model_with(&s.e.model, path, add_characters);
        s.e.engine = drive_open(path);
        assert_non_null(descent_model_tokenizer(s.e.engine));
        start(&s, &(descent_scheduler_options){.threads = 1});
        const descent_logit_bias eos = {.token = 2, .bias = 1000.0f};
        for (size_t i = 0; i < LONG; i++)
            if (s.e.tokens[i] == 2) s.e.tokens[i] = 1;

        scheduled wanted = ask(&s, 0, 9, 30), stopped = ask(&s, 0, 9, 30), full = ask(&s, 0, LONG, 1000);
        wanted.options.sampling.bias = &eos;
        wanted.options.sampling.n_bias = 1;
        wanted.options.sampling.min_tokens = 4;
        stopped.options.sampling.ignore_eos = full.options.sampling.ignore_eos = true;
        stopped.stop_after = 6;
        scheduled few = ask(&s, 0, 9, 3), none = ask(&s, 0, 9, 0), read = none;
        few.options.sampling.ignore_eos = true;
        read.options.read_prompt = true;
        uint32_t *whole = random_tokens(&s.e.r, &s.e.model, CONTEXT);
        scheduled brim = ask(&s, 0, 9, 7);
        brim.options.prompt = whole;
        brim.options.prompt_count = CONTEXT;
        const scheduled asked[] = {wanted, stopped, full, few, none, read, brim};
        static const size_t tokens[] = {5, 6, CONTEXT + 1 - LONG, 3, 0, 0, 1};
        static const descent_generation_end ends[] = {DESCENT_END_EOS,    DESCENT_END_STOPPED, DESCENT_END_LENGTH,
                                                      DESCENT_END_LENGTH, DESCENT_END_LENGTH,  DESCENT_END_LENGTH};
        for (size_t n = 0; n < 7; n++) (void)submit(&s, asked[n]);
        gathering_wait(&s.with, s.count);
        for (size_t n = 0; n < 7; n++) {
            const descent_generation_report *r = &s.runs[n].report;
            assert_int_equal(s.runs[n].generated, tokens[n]);
            if (n < 6) assert_int_equal(r->end, ends[n]);
            if (n != 1) expect_alone(&s, &s.runs[n]);
            assert_int_equal(r->status.code, DESCENT_OK);
            assert_int_equal(r->prompt_count, asked[n].options.prompt_count);
            assert_true(r->queue_seconds >= 0 && r->prompt_seconds > 0 && r->generation_seconds >= 0);
        }
        assert_int_equal(s.runs[0].tokens[4], 2); /* not before min_tokens, and told as a token */
        assert_int_equal(s.runs[5].prompt_read, 9);
        tear_down(&s);
        free(whole);
    }
}

static void whoever_diverges_ends_alone(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = set_up(332, kind, NULL);
        descent_scheduler_destroy(s.scheduler);
        descent_model_close(s.e.engine);
        for (size_t i = 0; i < LONG; i++)
            if (s.e.tokens[i] == SICK) s.e.tokens[i] = 0;
        double *embedding = test_model_find(&s.e.model, "token_embd.weight");
        if (s.e.model.tied) { /* or every logit of that token would be sick as well */
            test_tensor *head = test_model_add(&s.e.model, s.e.model.vocab, s.e.model.width, true, "output.weight");
            for (size_t n = 0; n < s.e.model.vocab * s.e.model.width; n++) head->values[n] = embedding[n] / 2;
            s.e.model.tied = false;
        }
        for (size_t c = 0; c < s.e.model.width; c++) embedding[SICK * s.e.model.width + c] = NAN;
        s.e.engine = drive_open_test_model(&s.e.model);
        start(&s, &(descent_scheduler_options){.threads = 1, .chunk = 16});
        const descent_logit_bias never = {.token = SICK, .bias = -INFINITY}, always = {.token = SICK, .bias = 1000.0f};
        uint32_t sick[40];
        memcpy(sick, s.e.tokens, sizeof sick);
        sick[21] = SICK;
        scheduled healthy = ask(&s, 0, 40, 9), prompt = healthy, chosen = healthy;
        healthy.options.sampling.bias = &never;
        chosen.options.sampling.bias = &always;
        healthy.options.sampling.n_bias = chosen.options.sampling.n_bias = 1;
        prompt.options.prompt = sick;
        (void)submit(&s, healthy);
        (void)submit(&s, prompt);
        (void)submit(&s, chosen);
        (void)submit(&s, healthy);
        gathering_wait(&s.with, 4);
        expect_alone(&s, &s.runs[0]);
        expect_alone(&s, &s.runs[3]);
        for (size_t n = 1; n < 3; n++) {
            const descent_generation_report *r = &s.runs[n].report;
            assert_int_equal(r->end, DESCENT_END_FAILED);
            expect_code(r->status.code, DESCENT_DIVERGED, &r->status, n == 1 ? "token 21, step 0" : "token 40, step 0");
            assert_int_equal(s.runs[n].generated, n - 1);
        }
        tear_down(&s);
    }
}

/* ---- Watching ---------------------------------------------------------------------------------------------------- */

typedef struct seen {
    descent_observation *of[CONTEXT];
    size_t count[CONTEXT];
} seen;

static seen *watched; /* one at a time: a generation's user is what the callbacks of scheduled.c know */

static void watch(void *user, const descent_observation *observation)
{
    (void)user;
    size_t i = observation->site.position;
    assert_true(i < CONTEXT);
    watched->of[i] = realloc(watched->of[i], (watched->count[i] + 1) * sizeof(descent_observation));
    watched->of[i][watched->count[i]++] = *observation;
}

static void compare_seen(const seen *got, const seen *expected, size_t from)
{
    for (size_t i = 0; i < CONTEXT; i++) {
        size_t wanted = i < from ? 0 : expected->count[i];
        if (got->count[i] != wanted) compare_fail("%zu observations of token %zu, expected %zu", got->count[i], i, wanted);
        for (size_t n = 0; n < wanted; n++) {
            const descent_observation *a = &got->of[i][n], *b = &expected->of[i][n];
            assert_true(a->site.layer == b->site.layer && a->site.kind == b->site.kind && a->site.step == b->site.step);
            assert_true(a->site.position == b->site.position && a->final == b->final);
            compare_bits(a->energy, b->energy, DESCENT_MAX_TERMS, "energies");
            compare_bits(&a->own_change, &b->own_change, 1, "own change");
            compare_bits(&a->history_change, &b->history_change, 1, "change by history");
            compare_bits(&a->update_norm, &b->update_norm, 1, "update");
        }
    }
}

/* Steps of each of the first `count` tokens; true where one of them took fewer than one before it. */
static bool overtaken(const seen *s, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i<count; most = s->count[i]> most ? s->count[i] : most, i++)
        if (s->count[i] < most) return true;
    return false;
}

static void seen_free(seen *s)
{
    for (size_t i = 0; i < CONTEXT; i++) free(s->of[i]);
    memset(s, 0, sizeof *s);
}

/* What each step of the prompt and `more` tokens behind it is. */
static seen watch_alone(const setting *s, const descent_generation_options *o, int flags, const uint32_t *more, size_t count)
{
    seen got = {.count = {0}};
    descent_cache *cache = drive_cache(s->e.engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = {.depth = o->depth, .exit = o->exit, .no_sharing = true};
    descent_sequence *sequence = drive_sequence_as(cache, &how, NULL, 0);
    descent_status status;
    expect_ok(descent_sequence_observe(sequence, flags, watch, NULL, &status), &status);
    drive_append(sequence, o->prompt, o->prompt_count);
    if (count > 0) drive_append(sequence, more, count);
    watched = &got;
    drive_finish(batch, sequence);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return got;
}

/* A threshold that half of the prompt's tokens are below after their first step. */
static float middling(const setting *s, const descent_generation_options *o)
{
    seen all = watch_alone(s, o, DESCENT_OBSERVE_CONVERGENCE, NULL, 0);
    float found = NAN;
    for (size_t i = 0; i < o->prompt_count; i++) {
        float change = all.of[i][0].relative_change;
        size_t below = 0;
        for (size_t k = 0; k < o->prompt_count; k++) below += all.of[k][0].relative_change < change;
        if (below <= o->prompt_count / 2 && !(change <= found)) found = change;
    }
    seen_free(&all);
    return found;
}

/* What is observed is each step of each row that was asked for, once, also where others took its memory in between, and where
 * tokens of the prompt stop before those ahead of them. */
static void each_step_is_observed_once(void **state)
{
    const int flags = DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_CONVERGENCE | DESCENT_OBSERVE_FINAL;
    uint32_t pauses = 0;
    size_t overtakings = 0;
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (int how = 0; how < (test_descends(kind) ? 8 : 4); how++) {
            setting s = set_up(333, kind, NULL);
            if (how >= 4) s.e.depth = depth_of(kind, 6, 6);
            scheduled run = ask(&s, 0, 20, 60);
            if (how >= 4)
                run.options.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = middling(&s, &run.options)};
            descent_depth deeper = s.e.depth;
            if (test_deepens(kind)) deeper.steps[0]++; /* x(T) is read with a plane of its own, and so is who stops there */
            uint64_t needed = descent_cache_bytes_needed(s.e.engine, DESCENT_PAGE_F32, 79, deeper);
            descent_scheduler_destroy(s.scheduler);
            start(&s, &(descent_scheduler_options){.cache.byte_limit = how % 4 < 2 ? 0 : needed + needed / 3, .threads = 1});
            seen got = {.count = {0}}, expected;
            scheduled alone = scheduled_alone(s.e.engine, DESCENT_PAGE_F32, &run.options);
            expected = watch_alone(&s, &run.options, flags, alone.tokens, alone.generated - 1);
            watched = &got;
            run.options.observe = flags;
            run.options.observe_prompt = how % 2;
            run.options.calls.observe = watch;
            (void)shut(&s, ask(&s, 30, 20, 60)); /* began before it, and grows */
            scheduled *kept = submit(&s, run);
            gathering_open(&s.with);
            gathering_wait(&s.with, 2);
            compare_scheduled(kept, &alone);
            pauses += kept->report.pauses;
            assert_int_equal(s.runs[0].report.pauses, 0); /* who began first always goes on */
            compare_seen(&got, &expected, how % 2 ? 0 : 19);
            overtakings += how >= 4 && test_deepens(kind) && overtaken(&expected, 20);
            seen_free(&got);
            seen_free(&expected);
            scheduled_free(&alone);
            tear_down(&s);
        }
    assert_true(pauses > 0 && overtakings > 0);
}

static void a_shut_gate_is_seen_from_outside(void **state)
{
    (void)state;
    setting s = set_up(334, TEST_NRGPT, NULL);
    gathering_begin(&s.with);
    assert_true(descent_scheduler_describe(s.scheduler).seconds_since_step == 0);
    (void)shut(&s, ask(&s, 0, 5, 4));
    double before = descent_scheduler_describe(s.scheduler).seconds_since_step;
    descent_scheduler_state now = descent_scheduler_describe(s.scheduler);
    assert_true(now.seconds_since_step >= before && before > 0);
    assert_int_equal(now.running + now.waiting, 1);
    gathering_open(&s.with);
    gathering_wait(&s.with, 1);
    now = descent_scheduler_describe(s.scheduler);
    assert_true(now.seconds_since_step == 0);
    assert_int_equal(now.row_steps, 8 * total(&s));

    /* With nothing to do it sleeps. */
    clock_t worked = clock();
    const struct timespec pause = {.tv_nsec = 50000000};
    (void)nanosleep(&pause, NULL);
    assert_true((double)(clock() - worked) / CLOCKS_PER_SEC < 0.02);
    tear_down(&s);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static void expect_refused(setting *s, const descent_generation_options *options, const char *words)
{
    descent_generation *generation = NULL;
    descent_status status;
    expect_code(descent_scheduler_submit(s->scheduler, options, &generation, &status), DESCENT_BAD_ARGUMENT, &status, words);
    assert_null(generation);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    setting s = set_up(335, TEST_CEM, NULL);
    gathering_begin(&s.with);
    descent_generation_options good = ask(&s, 0, 9, 3).options;
    good.calls.chosen = never_chosen;
    good.calls.ended = never_ended;
    descent_generation_options o;
    uint32_t *longer = test_alloc(CONTEXT + 1, sizeof *longer);
    uint32_t strange[2] = {0, (uint32_t)s.e.model.vocab};

    o = good, o.prompt = NULL, expect_refused(&s, &o, "prompt");
    o = good, o.prompt_count = 0, expect_refused(&s, &o, "prompt");
    o = good, o.prompt = longer, o.prompt_count = CONTEXT + 1, expect_refused(&s, &o, "prompt has 121 tokens");
    o = good, o.prompt = strange, o.prompt_count = 2, expect_refused(&s, &o, "position 1");
    o = good, o.calls.chosen = NULL, expect_refused(&s, &o, "chosen");
    o = good, o.calls.ended = NULL, expect_refused(&s, &o, "ended");
    o = good, o.observe = 16, expect_refused(&s, &o, "observe is 16");
    o = good, o.observe = 1, expect_refused(&s, &o, "observe");
    o = good, o.sampling.temperature = -1, expect_refused(&s, &o, "temperature");
    o = good, o.sampling.top_p = NAN, expect_refused(&s, &o, "top_p");
    o = good, o.sampling.n_bias = 1, expect_refused(&s, &o, "bias");
    descent_logit_bias *biases = test_alloc(s.e.model.vocab + 1, sizeof *biases);
    o = good, o.sampling.bias = biases, o.sampling.n_bias = s.e.model.vocab + 1, expect_refused(&s, &o, "bias has");
    o = good, o.depth = (descent_depth){{3, 0}}, expect_refused(&s, &o, "mlp steps");
    o = good, o.step_scale = 4.5f, expect_refused(&s, &o, "step_scale");
    o = good, o.step_scale = NAN, expect_refused(&s, &o, "step_scale");
    expect_refused(&s, NULL, "options");
    free(biases);
    free(longer);

    descent_scheduler *none = NULL;
    descent_status status;
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.chunk = 16385}, &none, &status),
                DESCENT_BAD_ARGUMENT, &status, "chunk");
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.max_running = 4097}, &none, &status),
                DESCENT_BAD_ARGUMENT, &status, "max_running");
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.threads = 1025}, &none, &status),
                DESCENT_BAD_ARGUMENT, &status, "threads");
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.cache.page_type = DESCENT_PAGE_TYPES}, &none,
                                         &status),
                DESCENT_BAD_ARGUMENT, &status, "page type");
    expect_code(descent_scheduler_create(NULL, NULL, &none, &status), DESCENT_BAD_ARGUMENT, &status, "model");
    expect_code(descent_scheduler_create(s.e.engine, NULL, NULL, &status), DESCENT_BAD_ARGUMENT, &status, "place");
    assert_null(none);
    tear_down(&s);
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
                                       cmocka_unit_test(pages_too_deep_for_the_limit_are_let_go),
                                       cmocka_unit_test(the_cancelled_leave_from_wherever_they_are),
                                       cmocka_unit_test(destroying_cancels_all),
                                       cmocka_unit_test(every_end_says_its_reason),
                                       cmocka_unit_test(whoever_diverges_ends_alone),
                                       cmocka_unit_test(each_step_is_observed_once),
                                       cmocka_unit_test(a_shut_gate_is_seen_from_outside),
                                       cmocka_unit_test(wrong_arguments_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
