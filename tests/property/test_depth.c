/* test_depth.c: T. Deepening in place gives the bits of a run from scratch; prefixes at other depths serve as they are;
 * memory is bounded before it is taken; where a family cannot deepen, another depth starts again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"

static void set_depth(descent_sequence *sequence, descent_depth depth)
{
    descent_status status;
    expect_ok(descent_sequence_set_depth(sequence, depth, &status), &status);
}

/* The families that deepen, in turns of eight rounds. */
static test_family deepening(size_t round)
{
    test_family family = TEST_NRGPT;
    for (size_t turn = round / 8; turn > 0; turn--) do
            family = (test_family)((family + 1) % TEST_FAMILIES);
        while (!test_deepens(family));
    return family;
}

static descent_depth at(unsigned steps)
{
    return (descent_depth){{(uint16_t)steps, 0}};
}

static void expect_read(descent_batch *batch, const example *e, const descent_sequence *sequence, const outcome *expected)
{
    outcome got = drive_read(batch, e->engine, sequence);
    compare_outcomes(&got, expected);
    outcome_free(&got);
}

static void deepening_gives_the_bits_of_a_run_from_scratch(void **state)
{
    static const unsigned ladder[] = {1, 2, 5, 12};
    (void)state;
    for (size_t round = 0; round < test_rounds(60); round++) {
        example_wish wish = {.family = deepening(round), .context = 70, .most = 1};
        example e = example_draw(test_seed(60, round), &wish);
        descent_page_type type = (descent_page_type)(round % 2);
        descent_cache *cache = drive_cache(e.engine, type, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, at(1), round % 4 > 1, e.tokens, e.count);
        record *seen = record_create(e.engine, e.count, at(12));
        record_observe(seen, sequence, OBSERVE_ALL);
        for (size_t n = 0; n < 4; n++) {
            set_depth(sequence, at(ladder[n]));
            drive_finish(batch, sequence);
            drive_options scratch = {.depth = at(ladder[n]), .page_type = type, .observe = OBSERVE_ALL};
            outcome expected = drive(e.engine, e.tokens, e.count, &scratch);
            expect_read(batch, &e, sequence, &expected);
            if (descent_sequence_steps_run(sequence) != e.count * ladder[n])
                compare_fail("%llu row steps were run to bring %zu tokens to %u",
                             (unsigned long long)descent_sequence_steps_run(sequence), e.count, ladder[n]);
            for (size_t t = 0; t < ladder[n]; t++) /* what every step saw, apart from where the ladder paused */
                for (size_t i = 0; i < e.count; i++) {
                    compare_bits(seen->at[0][t].x + i * seen->width, expected.seen->at[0][t].x + i * seen->width, seen->width,
                                 "x");
                    compare_bits(seen->at[0][t].g + i * seen->width, expected.seen->at[0][t].g + i * seen->width, seen->width,
                                 "g");
                    compare_bits(&seen->at[0][t].energy[0][i], &expected.seen->at[0][t].energy[0][i], 1, "energy");
                }
            outcome_free(&expected);
        }
        record_free(seen);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* Tokens at a larger depth stay and serve as history for tokens that come later at a smaller one. */
static void a_deeper_prefix_serves_as_it_is(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(60); round++) {
        example_wish wish = {.family = deepening(round), .context = 70, .most = 1};
        example e = example_draw(test_seed(61, round), &wish);
        unsigned deep = (unsigned)rng_between(&e.r, 4, 9), shallow = (unsigned)rng_between(&e.r, 1, deep - 1);
        size_t prefix = rng_below(&e.r, e.count);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, at(deep), round % 2, e.tokens, prefix);
        drive_finish(batch, sequence);
        set_depth(sequence, at(shallow));
        assert_int_equal(descent_sequence_finished(sequence), prefix);
        drive_append(sequence, e.tokens + prefix, e.count - prefix);
        drive_finish(batch, sequence);
        drive_options scratch = {.depth = at(shallow)};
        outcome expected = drive(e.engine, e.tokens, e.count, &scratch);
        float *x = test_alloc(expected.width, sizeof *x), *logits = test_alloc(expected.vocab, sizeof *logits);
        descent_status status;
        for (size_t i = prefix; i < e.count; i++) {
            uint32_t steps;
            expect_ok(descent_sequence_state(sequence, i, x, &steps, &status), &status);
            assert_int_equal(steps, shallow);
            compare_bits(x, expected.states + i * expected.width, expected.width, "state behind a deeper prefix");
            drive_logits(batch, sequence, i, logits);
            compare_bits(logits, expected.logits + i * expected.vocab, expected.vocab, "logits behind a deeper prefix");
        }
        if (prefix > 0) { /* the deeper tokens have no logits at the smaller depth */
            descent_reading reading = {sequence, prefix - 1};
            expect_code(descent_batch_logits(batch, &reading, 1, logits, &status), DESCENT_BAD_ARGUMENT, &status, NULL);
        }
        set_depth(sequence, at(deep)); /* and the later ones can catch up */
        drive_finish(batch, sequence);
        scratch.depth = at(deep);
        outcome caught_up = drive(e.engine, e.tokens, e.count, &scratch);
        expect_read(batch, &e, sequence, &caught_up);
        free(x);
        free(logits);
        outcome_free(&expected);
        outcome_free(&caught_up);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* A shared page is deepened by one sequence while others wait, stand still, or read it as history. */
static void sharers_of_a_page_at_different_depths(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(60); round++) {
        example_wish wish = {.family = deepening(round), .context = 100, .count = 97, .most = 1};
        example e = example_draw(test_seed(62, round), &wish);
        descent_cache *cache = drive_cache(e.engine, (descent_page_type)(round % 2), 0);
        descent_batch *batch = drive_batch(cache, (uint32_t)rng_between(&e.r, 5, 200), 1);
        descent_sequence *first = drive_sequence(cache, at(2), true, e.tokens, e.count);
        drive_finish(batch, first);
        descent_sequence_destroy(first);

        enum { SHARERS = 4 };
        unsigned depths[SHARERS];
        descent_sequence *sharers[SHARERS];
        for (size_t n = 0; n < SHARERS; n++) {
            depths[n] = (unsigned)rng_between(&e.r, 1, 7);
            /* The same first pages, then each its own way. */
            sharers[n] = drive_sequence(cache, at(depths[n]), true, e.tokens, e.count - 20 + n);
        }
        descent_status status;
        for (bool working = true; working;) {
            working = false;
            for (size_t n = 0; n < SHARERS; n++) {
                size_t added, most = rng_between(&e.r, 0, 40);
                expect_ok(descent_batch_add(batch, sharers[n], most, &added, &status), &status);
                working = working || descent_sequence_finished(sharers[n]) < descent_sequence_length(sharers[n]);
                if (rng_below(&e.r, 5) == 0) descent_batch_remove(batch, sharers[n]);
            }
            for (size_t n = rng_between(&e.r, 1, 3); n > 0; n--) expect_ok(descent_batch_step(batch, NULL, &status), &status);
        }
        for (size_t n = 0; n < SHARERS; n++) {
            size_t length = descent_sequence_length(sharers[n]);
            drive_options scratch = {.depth = at(depths[n]), .page_type = (descent_page_type)(round % 2)};
            outcome expected = drive(e.engine, e.tokens, length, &scratch);
            float *logits = test_alloc(expected.vocab, sizeof *logits);
            compare_about("%s, sharer %zu of depth %u", test_model_words(&e.model), n, depths[n]);
            drive_logits(batch, sharers[n], length - 1, logits);
            compare_bits(logits, expected.logits + (length - 1) * expected.vocab, expected.vocab, "last logits");
            free(logits);
            outcome_free(&expected);
        }
        for (size_t n = 0; n < SHARERS; n++) descent_sequence_destroy(sharers[n]);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* Where T of a layer changes the input of the next, another depth starts again: the same bits as new. */
static void another_depth_starts_again_where_the_model_does_not_deepen(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(20 * TEST_FAMILIES); round++) {
        example_wish wish = {.family = family_of(round), .context = 70};
        if (test_deepens(wish.family)) continue;
        example e = example_draw(test_seed(63, round), &wish);
        assert_false(descent_model_describe(e.engine)->deepens);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, e.depth, round / TEST_FAMILIES % 2, e.tokens, e.count);
        drive_finish(batch, sequence);
        for (size_t n = 0; n < 3; n++) {
            descent_depth before = descent_sequence_depth(sequence);
            descent_depth depth = n == 2 ? e.depth : random_depth(&e.r, &e.model, 6);
            set_depth(sequence, depth);
            if (memcmp(&before, &depth, sizeof depth) && round / TEST_FAMILIES % 2 == 0)
                assert_int_equal(descent_sequence_finished(sequence), 0);
            drive_finish(batch, sequence);
            drive_options scratch = {.depth = depth};
            outcome expected = drive(e.engine, e.tokens, e.count, &scratch);
            expect_read(batch, &e, sequence, &expected);
            outcome_free(&expected);
        }
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* ---- The largest T ----------------------------------------------------------------------------------------------- */

static void tiny(test_model *model)
{
    model->width = 4;
    model->heads = 1;
    model->hidden = 5;
    model->layers = 1;
    model->vocab = 7;
    model->rank = -1;
    model->eta_entries = 1;
    model->rate = "scalar";
}

static void the_largest_depth_runs(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        bool first = test_has_depth(family, 0);
        if (!first && !test_has_depth(family, 1)) continue;
        example_wish wish = {.family = family, .context = 2, .count = 2, .most = 1, .adjust = tiny};
        example e = example_draw(test_seed(64, family), &wish);
        descent_depth deep = depth_of(family, DESCENT_MAX_STEPS, first ? 1 : DESCENT_MAX_STEPS), less = deep;
        less.steps[first ? 0 : 1]--;
        drive_options options = {.depth = deep};
        outcome largest = drive(e.engine, e.tokens, e.count, &options);
        options.chunks = DRIVE_SINGLE;
        outcome again = drive(e.engine, e.tokens, e.count, &options);
        compare_outcomes(&again, &largest);
        options.depth = less;
        outcome before = drive(e.engine, e.tokens, e.count, &options);
        if (test_deepens(family)) { /* its last step is one from the state before */
            double *x = test_alloc(2 * 4, sizeof *x);
            for (size_t i = 0; i < 8; i++) x[i] = (double)before.states[i];
            reference_change start[2] = {{{0, 0, 0, 0}, DESCENT_SET_X, x}, {{0, 0, 0, 1}, DESCENT_SET_X, x + 4}};
            reference_request request = {.tokens = e.tokens, .count = 2, .depth = at(1), .changes = start, .n_changes = 2};
            reference_run step = reference_compute(&e.model, &request);
            compare_states(largest.states, step.states, 2, 4, "one step from x(65534)");
            reference_free(&step);
            free(x);
        }
        outcome_free(&largest);
        outcome_free(&again);
        outcome_free(&before);
        example_free(&e);
    }
}

/* Resident memory of this process in bytes. */
static uint64_t resident(void)
{
    unsigned long long size = 0, pages = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    if (!stream || fscanf(stream, "%llu %llu", &size, &pages) != 2) pages = 0;
    if (stream) (void)fclose(stream);
    return pages * 4096;
}

static void memory_is_bounded_before_it_is_taken(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        example_wish wish = {.family = family, .context = 4096, .count = 1};
        example e = example_draw(test_seed(65, family), &wish);
        uint32_t *tokens = random_tokens(&e.r, &e.model, 4096);
        bool layered = !test_deepens(family); /* a plane a layer, whatever T */
        descent_depth deep = depth_of(family, DESCENT_MAX_STEPS, DESCENT_MAX_STEPS);
        uint64_t needed = bytes_at(e.engine, DESCENT_PAGE_F32, 4096, deep);
        uint64_t shallow = bytes_at(e.engine, DESCENT_PAGE_F32, 4096, e.depth);
        uint64_t plane = (uint64_t)4096 * e.model.width * sizeof(float);
        assert_true(layered ? needed == shallow : needed >= plane * DESCENT_MAX_STEPS);
        assert_true(shallow >= plane * (layered ? e.model.layers : e.depth.steps[0]));
        assert_true(bytes_at(e.engine, DESCENT_PAGE_F16, 4096, e.depth) < shallow);

        uint64_t limit = layered ? shallow / 2 : shallow * 8;
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, limit);
        descent_batch *batch = drive_batch(cache, 0, 1);
        uint64_t before = resident();
        descent_sequence *sequence = drive_sequence(cache, deep, false, NULL, 0);
        descent_status status;
        descent_code code = descent_sequence_append(sequence, tokens, 4096, &status);
        size_t added = 0;
        char number[24];
        if (code == DESCENT_OK) code = descent_batch_add(batch, sequence, SIZE_MAX, &added, &status);
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)limit);
        expect_code(code, DESCENT_LIMIT, &status, number);
        if (resident() > before + limit + (4u << 20))
            compare_fail("%llu bytes were taken before the refusal", (unsigned long long)(resident() - before));
        assert_true(descent_cache_describe(cache).bytes <= limit);
        descent_sequence_destroy(sequence);

        sequence = drive_sequence(cache, e.depth, false, tokens, 32); /* and the cache is as good as before */
        drive_finish(batch, sequence);
        drive_options options = {.depth = e.depth};
        outcome expected = drive(e.engine, tokens, 32, &options);
        expect_read(batch, &e, sequence, &expected);
        outcome_free(&expected);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        free(tokens);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(deepening_gives_the_bits_of_a_run_from_scratch),
                                       cmocka_unit_test(a_deeper_prefix_serves_as_it_is),
                                       cmocka_unit_test(sharers_of_a_page_at_different_depths),
                                       cmocka_unit_test(another_depth_starts_again_where_the_model_does_not_deepen),
                                       cmocka_unit_test(the_largest_depth_runs),
                                       cmocka_unit_test(memory_is_bounded_before_it_is_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
