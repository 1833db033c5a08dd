/* test_history.c: which state of an earlier token is read, and how deep a prompt's tokens go (descent_history): every policy
 * and prompt_steps against the references; the same bits whatever way it is run, through pages that others share, rows taken
 * out in the middle, files and other T; in the memory that is said; and refused where it means nothing. Pages hold 32 tokens
 * (engine/cache.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "compare.h"
#include "example.h"
#include "model_file.h"
#include "paged.h"
#include "scheduled.h"
#include "ways.h"

/* Every policy, with a prompt of fewer steps than the rest, of more, and of as many (0: not said). */
typedef struct kind {
    descent_history_policy policy;
    bool prompt;
} kind;

static const kind kinds[] = {{DESCENT_HISTORY_LAST, false},
                             {DESCENT_HISTORY_LATEST, true},
                             {DESCENT_HISTORY_LAST, true},
                             {DESCENT_HISTORY_OWN, true},
                             {DESCENT_HISTORY_LATEST, false}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Of OWN the steps are those beyond T. */
static descent_history history_of(const kind *k, size_t tokens, rng *r)
{
    descent_history h = {.policy = k->policy};
    if (!k->prompt) return h;
    h.prompt_steps = (uint32_t)rng_between(r, 1, 7);
    h.prompt = (uint32_t)rng_between(r, 0, tokens);
    return h;
}

static const char *words(const descent_history *h)
{
    static char text[96];
    (void)snprintf(text, sizeof text, "history %s, %u steps of %u tokens of a prompt", descent_history_name(h->policy),
                   h->prompt_steps, h->prompt);
    return text;
}

/* ---- Against the references -------------------------------------------------------------------------------------- */

static void histories_are_the_references(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(30 * KINDS); round++) {
        rng r = rng_seeded(test_seed(600, round));
        example_wish wish = {
            .family = TEST_NRGPT, .context = 48, .most = 8, .history = history_of(&kinds[round % KINDS], 48, &r)};
        if (rng_below(&r, 4) == 0) wish.motion = motion_random(&r, true);
        example e = example_draw(test_seed(601, round), &wish);
        drive_options options = {.depth = e.depth,
                                 .motion = wish.motion,
                                 .history = e.history,
                                 .chunks = (drive_chunks)(round / KINDS % 3),
                                 .mates = round % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        compare_about("seed %llu, %s at T = %u, %s", (unsigned long long)test_seed(601, round), test_model_words(&e.model),
                      e.depth.steps[0], words(&e.history));
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcome(&got, &e.expected);
        outcome_free(&got);
        options.observe = 0; /* an observer has last states read once more */
        got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcome(&got, &e.expected);
        outcome_free(&got);
        example_free(&e);
    }
    compare_report();
}

/* Who stops early is read where it stopped, at its T otherwise. */
static void exits_beside_histories_are_the_references(void **state)
{
    size_t stopped = 0, went_on = 0, rounds = test_rounds(12 * KINDS);
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        rng r = rng_seeded(test_seed(604, round));
        example_wish wish = {
            .family = TEST_NRGPT, .context = 40, .most = 8, .history = history_of(&kinds[round % KINDS], 40, &r)};
        example e = example_draw(test_seed(605, round), &wish);
        reference_request request = {.tokens = e.tokens, .count = e.count, .depth = e.depth, .history = e.history};
        request.exit.criterion = round / KINDS % 2 ? DESCENT_EXIT_ENERGY : DESCENT_EXIT_STATE;
        reference_run expected = {0};
        bool apart = false; /* no decision is so near that rounding could make it another */
        for (size_t draws = 0; draws < 1000 && !apart; draws++) {
            if (draws > 0) reference_free(&expected);
            request.exit.threshold = (float)rng_between(&r, 1, 100) / 200;
            request.exit.first = rng_below(&r, 3) ? 0 : (uint32_t)rng_below(&r, e.count);
            expected = reference_compute(&e.model, &request);
            apart = expected.closest > 1e-3 && reference_sensitivity(&e.model, &request, &expected) < 0.03;
        }
        if (!apart) compare_fail("no threshold that is far from every value");
        drive_options options = {.depth = e.depth,
                                 .exit = request.exit,
                                 .history = e.history,
                                 .chunks = (drive_chunks)(round % 3),
                                 .mates = round % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        compare_about("seed %llu, %s at T = %u, %s, exit %d at %g", (unsigned long long)test_seed(605, round),
                      test_model_words(&e.model), e.depth.steps[0], words(&e.history), (int)request.exit.criterion,
                      (double)request.exit.threshold);
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcome(&got, &expected);
        for (size_t i = 0; i < e.count; i++) {
            size_t T = reference_token_steps(&request, i);
            stopped += expected.used[0][i] < T;
            went_on += expected.used[0][i] == T;
        }
        outcome_free(&got);
        reference_free(&expected);
        example_free(&e);
    }
    assert_true(rounds < 12 * KINDS || (stopped > 100 && went_on > 100));
}

/* ---- What a policy comes to -------------------------------------------------------------------------------------- */

static outcome drawn_at(const example *e, uint16_t T, descent_history history)
{
    drive_options options = {.depth = {{T}}, .history = history};
    return drive(e->engine, e->tokens, e->count, &options);
}

static bool same_logits(const outcome *a, const outcome *b, size_t from, size_t to)
{
    return !memcmp(a->logits + from * a->vocab, b->logits + from * b->vocab, (to - from) * a->vocab * sizeof(float));
}

/* A history of one token that sees itself alone is the same by every policy; a longer one is another text, but where no token
 * has come less far than whoever reads it. */
static void policies_differ_where_they_should(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(20); round++) {
        example_wish wish = {.family = TEST_NRGPT, .context = 50, .count = 50};
        example e = example_draw(test_seed(606, round), &wish);
        const uint32_t prompt = 20;
        const uint16_t T = 5;
        outcome own = drawn_at(&e, T, (descent_history){.prompt_steps = 0});
        outcome more = drawn_at(&e, T, (descent_history){.prompt_steps = 8, .prompt = prompt});
        outcome at_8 = drawn_at(&e, 8, (descent_history){.prompt_steps = 0});
        outcome latest = drawn_at(&e, T, (descent_history){.policy = DESCENT_HISTORY_LATEST});
        outcome latest_3 = drawn_at(&e, T, (descent_history){DESCENT_HISTORY_LATEST, 3, prompt});
        outcome at_3 = drawn_at(&e, 3, (descent_history){.prompt_steps = 0});
        outcome last = drawn_at(&e, T, (descent_history){.policy = DESCENT_HISTORY_LAST});
        outcome last_3 = drawn_at(&e, T, (descent_history){DESCENT_HISTORY_LAST, 3, prompt});
        outcome last_at_3 = drawn_at(&e, 3, (descent_history){.policy = DESCENT_HISTORY_LAST});
        compare_outcomes(&latest, &own);
        assert_true(same_logits(&more, &own, prompt, e.count)); /* deeper planes are read by nobody */
        assert_true(same_logits(&more, &at_8, 0, prompt));
        assert_true(same_logits(&latest_3, &at_3, 0, prompt));
        assert_false(same_logits(&latest_3, &own, prompt, e.count));
        assert_true(same_logits(&last, &own, 0, 1)); /* nobody is before it */
        assert_false(same_logits(&last, &own, 1, e.count));
        assert_true(same_logits(&last_3, &last_at_3, 0, prompt));
        assert_false(same_logits(&last_3, &last, prompt, e.count));
        outcome *all[] = {&own, &more, &at_8, &latest, &latest_3, &at_3, &last, &last_3, &last_at_3};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++) outcome_free(all[n]);
        example_free(&e);
    }
}

/* ---- Ways to run it ---------------------------------------------------------------------------------------------- */

static void the_way_it_is_run_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * KINDS); round++) {
        rng r = rng_seeded(test_seed(607, round));
        example_wish wish = {.family = TEST_NRGPT,
                             .context = 70,
                             .count = 66,
                             .most = 6,
                             .adjust = ways_widen,
                             .history = history_of(&kinds[round % KINDS], 66, &r)};
        example e = example_draw(test_seed(608, round), &wish);
        drive_options base = {
            .depth = e.depth, .history = e.history, .page_type = (descent_page_type)(round % DESCENT_PAGE_TYPES)};
        ways_change_nothing(&e, &base, test_seed(609, round * 100), words(&e.history));
        example_free(&e);
    }
}

/* A token whose last energy is read at T, beside a prompt's that is just there on its way to a larger T, with another g than
 * its state has: what others read of it is that g. */
static void a_last_energy_leaves_a_deeper_prompt_alone(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        example_wish wish = {.family = TEST_NRGPT, .context = 12, .count = 12};
        example e = example_draw(test_seed(618, round), &wish);
        const descent_site site = {.step = 3, .position = 2};
        float *g = test_alloc(e.model.width, sizeof *g);
        for (size_t c = 0; c < e.model.width; c++) g[c] = (float)rng_normal(&e.r);
        outcome got[2];
        for (size_t observed = 0; observed < 2; observed++) {
            descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
            descent_batch *batch = drive_batch(cache, 0, 1);
            descent_sequence_options how = {.depth = {{3}}, .history = {.prompt_steps = 6, .prompt = 8}, .no_sharing = true};
            descent_sequence *sequence = drive_sequence_as(cache, &how, e.tokens, e.count);
            descent_status status;
            expect_ok(descent_sequence_intervene(sequence, site, DESCENT_SET_G, g, &status), &status);
            record *seen = record_create(e.engine, e.count, (descent_depth){{6}});
            record_observe(seen, sequence, observed ? OBSERVE_ALL : 0);
            drive_finish(batch, sequence);
            got[observed] = drive_read(batch, e.engine, sequence);
            descent_sequence_destroy(sequence);
            record_free(seen);
            descent_batch_destroy(batch);
            descent_cache_destroy(cache);
        }
        compare_outcomes(&got[1], &got[0]);
        outcome_free(&got[0]);
        outcome_free(&got[1]);
        free(g);
        example_free(&e);
    }
}

/* Somebody begins to look when tokens behind a prompt have ended whose plane at T nobody needed, and the prompt's go on:
 * energies at T are what they are to who has looked from the beginning. */
static void who_looks_late_sees_the_same(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        example_wish wish = {.family = TEST_NRGPT, .context = 20, .count = 20};
        example e = example_draw(test_seed(619, round), &wish);
        descent_history history = {(descent_history_policy)(round % 2), 16, 8};
        record *seen[2];
        for (size_t late = 0; late < 2; late++) {
            descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
            descent_batch *batch = drive_batch(cache, 0, 1);
            descent_sequence_options how = {.depth = {{3}}, .history = history, .no_sharing = true};
            descent_sequence *sequence = drive_sequence_as(cache, &how, e.tokens, 12);
            descent_status status;
            size_t added;
            seen[late] = record_create(e.engine, e.count, (descent_depth){{16}});
            if (!late) record_observe(seen[late], sequence, OBSERVE_ALL);
            expect_ok(descent_batch_add(batch, sequence, SIZE_MAX, &added, &status), &status);
            for (size_t n = 0; n < 4; n++) expect_ok(descent_batch_step(batch, NULL, &status), &status);
            descent_batch_remove(batch, sequence);
            if (late) record_observe(seen[late], sequence, OBSERVE_ALL);
            drive_append(sequence, e.tokens + 12, e.count - 12);
            drive_finish(batch, sequence);
            descent_sequence_destroy(sequence);
            descent_batch_destroy(batch);
            descent_cache_destroy(cache);
        }
        const record_step *last = record_at(seen[1], (descent_site){.step = 3});
        for (size_t i = 12; i < e.count; i++) assert_int_equal(last->seen[i], 1);
        compare_records(seen[1], seen[0]);
        record_free(seen[0]);
        record_free(seen[1]);
        example_free(&e);
    }
}

/* ---- Pages, pauses, files ---------------------------------------------------------------------------------------- */

enum { TEXT = 4 * PAGE_TOKENS + 9, TIMES = 14 };

static paged set_up(uint64_t test, size_t round)
{
    return paged_up(test, round, TEST_NRGPT, TEXT);
}

/* Rows leave in the middle of their descents again and again, tokens are cut off and come back, T becomes another, and the
 * sequence goes through a file: what comes out is what comes out alone, at the depth asked last. */
static void interrupted_descents_go_on(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8 * KINDS); round++) {
        paged s = set_up(610, round);
        descent_sequence_options how = {.depth = {{(uint16_t)rng_between(&s.r, 1, 6)}},
                                        .history = history_of(&kinds[round % KINDS], TEXT, &s.r)};
        if (how.history.policy == DESCENT_HISTORY_OWN && kinds[round % KINDS].prompt) how.history.prompt_steps += 6;
        if (rng_below(&s.r, 3) == 0) how.motion.momentum = 0.5f;
        if (rng_below(&s.r, 3) == 0) how.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 0.1f};
        descent_sequence *sequence = drive_sequence_as(s.cache, &how, s.tokens, TEXT);
        descent_status status;
        for (size_t n = 0; n < TIMES; n++) {
            size_t added, most = rng_between(&s.r, 1, TEXT);
            expect_ok(descent_batch_add(s.batch, sequence, most, &added, &status), &status);
            for (size_t steps = rng_below(&s.r, 20); steps > 0; steps--) {
                expect_ok(descent_batch_add(s.batch, sequence, most, &added, &status), &status);
                expect_ok(descent_batch_step(s.batch, NULL, &status), &status);
            }
            descent_batch_remove(s.batch, sequence);
            if (n % 4 == 1) {
                size_t kept = rng_between(&s.r, 1, TEXT);
                expect_ok(descent_sequence_truncate(sequence, kept, &status), &status);
                drive_append(sequence, s.tokens + kept, TEXT - kept);
            }
            if (n % 4 == 2) {
                expect_ok(descent_sequence_save(sequence, scratch_path("history"), &status), &status);
                descent_sequence_destroy(sequence);
                expect_ok(descent_sequence_restore(s.cache, scratch_path("history"), &sequence, &status), &status);
            }
            if (n % 7 == 3) {
                how.depth.steps[0] = (uint16_t)rng_between(&s.r, how.depth.steps[0], 6);
                expect_ok(descent_sequence_set_depth(sequence, how.depth, &status), &status);
            }
        }
        drive_finish(s.batch, sequence);
        paged_expect_alone(&s, sequence, &how);
        descent_sequence_destroy(sequence);
        paged_down(&s);
    }
}

/* A larger T and back again: a sequence that reads last states is computed anew, as is one whose prompt's tokens may be short
 * of it; a T that OWN does not go with is refused, and nothing has happened. */
static void another_depth_is_as_if_asked_at_once(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(3 * KINDS); round++) {
        paged s = set_up(611, round);
        descent_sequence_options how = {.depth = {{2}}, .history = history_of(&kinds[round % KINDS], TEXT, &s.r)};
        bool own = how.history.policy == DESCENT_HISTORY_OWN;
        if (own) how.history.prompt_steps = 5;
        descent_sequence *sequence = drive_sequence_as(s.cache, &how, s.tokens, TEXT);
        descent_status status;
        for (uint16_t T = 3; T < 10; T = (uint16_t)(T + 2)) {
            drive_finish(s.batch, sequence);
            descent_depth depth = {{T}};
            descent_code code = descent_sequence_set_depth(sequence, depth, &status);
            if (own && T > 5) {
                expect_code(code, DESCENT_BAD_ARGUMENT, &status, "prompt_steps is 5, steps 7");
                break;
            }
            expect_ok(code, &status);
            how.depth = depth;
            drive_finish(s.batch, sequence);
            paged_expect_alone(&s, sequence, &how);
        }
        assert_int_equal(descent_sequence_depth(sequence).steps[0], how.depth.steps[0]);
        descent_sequence_destroy(sequence);
        paged_down(&s);
    }
}

/* Who has fewer steps of a prompt keeps his own page where somebody's is deeper: the prompt's logits are still to be read. */
static void a_deeper_prompt_of_others_leaves_logits_alone(void **state)
{
    (void)state;
    paged s = set_up(613, 0);
    descent_sequence *sequences[2];
    for (uint32_t i = 0; i < 2; i++) { /* the prompt ends within the first page */
        descent_sequence_options how = {.depth = {{2}}, .history = {.prompt_steps = 7 - 3 * i, .prompt = 20}};
        sequences[i] = drive_sequence_as(s.cache, &how, s.tokens, TEXT);
    }
    for (size_t i = 0; i < 2; i++) drive_finish(s.batch, sequences[i]);
    float *logits = test_alloc(descent_model_describe(s.engine)->vocab, sizeof *logits);
    for (size_t position = 0; position < TEXT; position++) drive_logits(s.batch, sequences[1], position, logits);
    free(logits);
    for (size_t i = 0; i < 2; i++) descent_sequence_destroy(sequences[i]);
    paged_down(&s);
}

/* Whole pages that a sequence of the first `count` tokens found. */
static size_t found(const paged *s, uint16_t T, descent_history history, size_t count)
{
    return paged_found(s, &(descent_sequence_options){.depth = {{T}}, .history = history}, count);
}

/* Last states are of one T: nobody who has another, or another policy, finds them. */
static void last_states_are_shared_at_equal_depths(void **state)
{
    const descent_history own = {.prompt_steps = 0}, last = {.policy = DESCENT_HISTORY_LAST};
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        paged s = set_up(612, round);
        assert_int_equal(found(&s, 4, last, TEXT), 0);
        assert_int_equal(found(&s, 4, last, TEXT), 4);
        assert_int_equal(found(&s, 4, last, 2 * PAGE_TOKENS + 1), 2);
        assert_int_equal(found(&s, 3, last, TEXT), 0);
        assert_int_equal(found(&s, 5, last, TEXT), 0);
        assert_int_equal(found(&s, 4, own, TEXT), 0);
        assert_int_equal(found(&s, 4, last, TEXT), 4);
        /* A prompt of T = 4 is that of others of T = 4, as far as it goes, and what comes behind it is not. */
        descent_history prompt = {DESCENT_HISTORY_LAST, 4, 2 * PAGE_TOKENS + 7};
        assert_int_equal(found(&s, 9, prompt, TEXT), 2);
        assert_int_equal(found(&s, 9, prompt, TEXT), 2);
        assert_int_equal(found(&s, 9, last, TEXT), 0);
        paged_down(&s);
    }
}

/* A text that was begun as a prompt and went on is found by a longer prompt as far as it was one: what was generated behind it
 * was computed otherwise. Where nobody came less far than others, it is a text like any other. */
static void a_second_turn_finds_the_first_prompt_alone(void **state)
{
    const descent_history own = {.prompt_steps = 0};
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        paged s = set_up(613, round);
        const uint32_t first = 2 * PAGE_TOKENS + (uint32_t)rng_below(&s.r, PAGE_TOKENS), second = TEXT - 1;
        assert_int_equal(found(&s, 6, (descent_history){DESCENT_HISTORY_LATEST, 3, first}, TEXT), 0);
        assert_int_equal(found(&s, 6, (descent_history){DESCENT_HISTORY_LATEST, 3, second}, TEXT), 2);
        assert_int_equal(found(&s, 6, (descent_history){DESCENT_HISTORY_LATEST, 3, second}, TEXT), 4);
        assert_int_equal(found(&s, 9, (descent_history){DESCENT_HISTORY_LATEST, 3, first}, TEXT), 2);
        assert_int_equal(found(&s, 6, (descent_history){DESCENT_HISTORY_LATEST, 4, second}, TEXT), 0);
        assert_int_equal(found(&s, 6, own, TEXT), 0);
        /* As deep as whoever reads it: the text of everybody, whatever T. */
        assert_int_equal(found(&s, 6, (descent_history){DESCENT_HISTORY_LATEST, 6, second}, TEXT), 4);
        assert_int_equal(found(&s, 3, (descent_history){DESCENT_HISTORY_LATEST, 5, first}, TEXT), 4);
        assert_int_equal(found(&s, 3, (descent_history){DESCENT_HISTORY_OWN, 8, first}, TEXT), 4);
        assert_int_equal(found(&s, 8, own, TEXT), 4);
        paged_down(&s);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static uint64_t bytes_of_pages(const paged *s, size_t pages, uint32_t planes)
{
    return pages_bytes(s->engine, DESCENT_PAGE_F32, pages * PAGE_TOKENS, (page_needs){.planes = planes});
}

/* A sequence holds what is said to be needed, and needs all of it: of last states one plane, whatever T is; of a prompt what
 * its own T takes, and the plane of last states where others read on. */
static void memory_is_as_reckoned(void **state)
{
    const uint32_t within = 2 * PAGE_TOKENS + 5; /* two pages of prompt, one of both, two behind */
    (void)state;
    for (size_t round = 0; round < test_rounds(4); round++) {
        paged s = set_up(614, round);
        const struct {
            descent_history history;
            uint32_t before, both, behind; /* planes */
        } wanted[] = {{{.policy = DESCENT_HISTORY_OWN}, 7, 7, 7},     {{.policy = DESCENT_HISTORY_LAST}, 1, 1, 1},
                      {{DESCENT_HISTORY_LAST, 3, within}, 1, 1, 1},   {{DESCENT_HISTORY_LAST, 9, within}, 1, 1, 1},
                      {{DESCENT_HISTORY_LATEST, 3, within}, 4, 7, 7}, {{DESCENT_HISTORY_LATEST, 9, within}, 9, 9, 7},
                      {{DESCENT_HISTORY_OWN, 9, within}, 9, 9, 7}};
        for (size_t n = 0; n < sizeof wanted / sizeof *wanted; n++) {
            descent_sequence_options how = {.depth = {{7}}, .history = wanted[n].history, .no_sharing = true};
            uint64_t bytes = bytes_of_pages(&s, 2, wanted[n].before) + bytes_of_pages(&s, 1, wanted[n].both) +
                             bytes_of_pages(&s, 2, wanted[n].behind);
            compare_about("%s", words(&how.history));
            assert_int_equal(descent_cache_bytes_needed(s.engine, DESCENT_PAGE_F32, TEXT, &how), bytes);
            for (size_t less = 0; less < 2; less++) {
                descent_cache *cache = drive_cache(s.engine, DESCENT_PAGE_F32, bytes - less);
                descent_batch *batch = drive_batch(cache, 0, 1);
                descent_sequence *sequence = drive_sequence_as(cache, &how, s.tokens, TEXT);
                descent_status status;
                descent_code code = descent_batch_finish(batch, sequence, &status);
                expect_code(code, less ? DESCENT_LIMIT : DESCENT_OK, &status, NULL);
                if (!less) assert_int_equal(descent_cache_describe(cache).bytes, bytes);
                descent_sequence_destroy(sequence);
                descent_batch_destroy(batch);
                descent_cache_destroy(cache);
            }
        }
        paged_down(&s);
    }
}

/* ---- Through a scheduler ------------------------------------------------------------------------------------------- */

/* Nothing is drafted where the next token reads what this one comes to; with other policies it is, and is the same text. */
static void last_states_are_waited_for(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * KINDS); round++) {
        rng r = rng_seeded(test_seed(615, round));
        example_wish wish = {.family = TEST_NRGPT, .context = 60, .count = 30};
        example e = example_draw(test_seed(616, round), &wish);
        descent_generation_options options = {.prompt = e.tokens,
                                              .prompt_count = 20,
                                              .limit = 24,
                                              .sampling = descent_sampling_defaults(),
                                              .depth = {{6}},
                                              .draft_steps = 1 + (int)rng_below(&r, 3),
                                              .history = history_of(&kinds[round % KINDS], 1, &r)};
        options.sampling.temperature = 0;
        if (options.history.policy == DESCENT_HISTORY_OWN) options.history.prompt_steps = 8;
        compare_about("seed %llu, %s, %s", (unsigned long long)test_seed(616, round), test_model_words(&e.model),
                      words(&options.history));
        scheduled expected = scheduled_alone(e.engine, DESCENT_PAGE_F32, &options), got = {.options = options};
        descent_scheduler *scheduler = scheduled_start(e.engine, &(descent_scheduler_options){.threads = 1});
        gathering with;
        gathering_begin(&with);
        scheduled_submit(scheduler, e.engine, &with, &got);
        gathering_wait(&with, 1);
        compare_scheduled(&got, &expected);
        assert_true((got.report.drafted > 0) == (options.history.policy != DESCENT_HISTORY_LAST));
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        scheduled_free(&got);
        scheduled_free(&expected);
        example_free(&e);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void what_is_no_history_is_refused(void **state)
{
    static const struct {
        descent_sequence_options how;
        const char *words;
    } wrong[] = {
        {{.history = {.policy = (descent_history_policy)3}}, "history policy 3"},
        {{.history = {.prompt_steps = 65536, .prompt = 3}}, "prompt_steps is 65536; expected at most 65535"},
        {{.depth = {{7}}, .history = {.prompt_steps = 6}},
         "prompt_steps is 6, steps 7 and history own, which reads every earlier token at each of the steps: expected at "
         "least 7 prompt_steps, or the history latest or last"},
        {{.solver = {.method = DESCENT_SOLVER_ANDERSON}, .history = {.policy = DESCENT_HISTORY_LAST}}, "anderson"},
        {{.solver = {.method = DESCENT_SOLVER_ANDERSON}, .history = {.policy = DESCENT_HISTORY_LATEST}}, "anderson"},
        {{.solver = {.method = DESCENT_SOLVER_ANDERSON}, .history = {.prompt_steps = 100}}, "anderson and prompt_steps"}};
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        example_wish wish = {.family = chosen, .context = 8};
        example e = example_draw(test_seed(617, chosen), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_sequence *sequence = NULL;
        descent_status status;
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong && (chosen == TEST_NRGPT || n < 2); n++) {
            descent_code code = descent_sequence_create(cache, &wrong[n].how, &sequence, &status);
            expect_code(code, DESCENT_BAD_ARGUMENT, &status, wrong[n].words);
            assert_int_equal(descent_cache_bytes_needed(e.engine, DESCENT_PAGE_F32, 8, &wrong[n].how), UINT64_MAX);
        }
        for (size_t n = 0; n < 3; n++) {
            descent_sequence_options how = {.history = {.policy = (descent_history_policy)n}};
            if (n == 0) how.history.prompt_steps = 60;
            descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
            bool fits = chosen == TEST_NRGPT;
            expect_code(code, fits ? DESCENT_OK : DESCENT_UNSUPPORTED, &status, fits ? NULL : "is for NRGPT");
            if (!fits) expect_code(code, DESCENT_UNSUPPORTED, &status, test_family_name(chosen));
            descent_sequence_destroy(sequence);
            sequence = NULL;
        }
        descent_cache_destroy(cache);
        example_free(&e);
    }
    assert_string_equal(descent_history_name(DESCENT_HISTORY_OWN), "own");
    assert_string_equal(descent_history_name(DESCENT_HISTORY_LATEST), "latest");
    assert_string_equal(descent_history_name(DESCENT_HISTORY_LAST), "last");
    assert_null(descent_history_name((descent_history_policy)3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(histories_are_the_references),
                                       cmocka_unit_test(exits_beside_histories_are_the_references),
                                       cmocka_unit_test(policies_differ_where_they_should),
                                       cmocka_unit_test(the_way_it_is_run_changes_nothing),
                                       cmocka_unit_test(a_last_energy_leaves_a_deeper_prompt_alone),
                                       cmocka_unit_test(who_looks_late_sees_the_same),
                                       cmocka_unit_test(interrupted_descents_go_on),
                                       cmocka_unit_test(another_depth_is_as_if_asked_at_once),
                                       cmocka_unit_test(a_deeper_prompt_of_others_leaves_logits_alone),
                                       cmocka_unit_test(last_states_are_shared_at_equal_depths),
                                       cmocka_unit_test(a_second_turn_finds_the_first_prompt_alone),
                                       cmocka_unit_test(memory_is_as_reckoned),
                                       cmocka_unit_test(last_states_are_waited_for),
                                       cmocka_unit_test(what_is_no_history_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
