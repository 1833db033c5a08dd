/* test_reach.c: reaching in. A token that starts from an exported x(k) ends with the same bits; replacing x or g by itself, or
 * adding nothing, changes nothing; a real change does what the reference says, and nothing before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"

static const char *const hows[] = {"SET_X", "ADD_X", "SET_G", "ADD_G"};

static void intervene(descent_sequence *sequence, descent_site site, descent_intervention how, const float *values)
{
    descent_status status;
    expect_ok(descent_sequence_intervene(sequence, site, how, values, &status), &status);
}

static void start(descent_sequence *sequence, descent_site site, const float *x)
{
    descent_status status;
    expect_ok(descent_sequence_start(sequence, site, x, &status), &status);
}

/* Where descents may begin: any step of a model that deepens, step 0 of any sub-layer of one that does not. */
static descent_site random_start(example *e)
{
    descent_site site = {0, 0, 0, 0};
    if (!test_deepens(e->model.family)) {
        site.layer = (uint32_t)rng_below(&e->r, e->model.layers);
        site.kind = (uint32_t)rng_below(&e->r, test_kinds(e->model.family));
    } else {
        site.step = (uint32_t)rng_below(&e->r, e->depth.steps[0]);
    }
    return site;
}

static void restarting_from_an_exported_state_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(60); round++) {
        example_wish wish = {.family = family_of(round), .context = 70};
        example e = example_draw(test_seed(80, round), &wish);
        drive_options options = {
            .depth = e.depth, .observe = OBSERVE_ALL, .page_type = (descent_page_type)(round / TEST_FAMILIES % 2)};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        descent_site site = random_start(&e);
        size_t from = round % 3 ? rng_below(&e.r, e.count) : 0; /* tokens before run from their embedding */
        descent_cache *cache = drive_cache(e.engine, options.page_type, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, e.depth, round % 4 < 2, e.tokens, e.count);
        record *seen = record_create(e.engine, e.count, e.depth);
        record_observe(seen, sequence, OBSERVE_ALL);
        for (site.position = from; site.position < e.count; site.position++)
            start(sequence, site, record_at(expected.seen, site)->x + site.position * expected.width);
        compare_about("seed %llu, %s, tokens from %zu on start at layer %u, kind %u, step %u",
                      (unsigned long long)test_seed(80, round), test_model_words(&e.model), from, site.layer, site.kind,
                      site.step);
        drive_finish(batch, sequence);
        outcome got = drive_read(batch, e.engine, sequence);
        compare_outcomes(&got, &expected);
        for (size_t p = 0; p < seen->programs; p++)
            for (size_t t = 0; t <= seen->steps[p]; t++)
                for (size_t i = 0; i < e.count; i++) {
                    const record_step *a = &seen->at[p][t], *b = &expected.seen->at[p][t];
                    size_t program = site.layer * seen->kinds + site.kind;
                    bool skipped = i >= from && (p < program || (p == program && t < site.step));
                    if (a->seen[i] != !skipped)
                        compare_fail("program %zu, step %zu, position %zu came %u times", p, t, i, a->seen[i]);
                    if (skipped) continue;
                    compare_bits(a->x + i * seen->width, b->x + i * seen->width, seen->width, "observed x");
                    compare_bits(a->g + i * seen->width, b->g + i * seen->width, seen->width, "observed g");
                    compare_bits(&a->energy[0][i], &b->energy[0][i], 1, "energy");
                    compare_bits(&a->own_change[i], &b->own_change[i], 1, "own_change");
                }
        record_free(seen);
        outcome_free(&got);
        outcome_free(&expected);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

static void a_token_needs_the_history_of_its_own_steps(void **state)
{
    (void)state;
    example_wish wish = {.context = 8, .count = 5};
    example e = example_draw(test_seed(81, 0), &wish);
    descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence *sequence = drive_sequence(cache, (descent_depth){{6, 0}}, true, e.tokens, 4);
    float *x = test_alloc(e.model.width, sizeof *x);
    descent_status status;
    for (size_t i = 0; i < 4; i++) start(sequence, (descent_site){0, 0, 3, i}, x);
    expect_code(descent_sequence_start(sequence, (descent_site){0, 0, 3, 1}, x, &status), DESCENT_BAD_ARGUMENT, &status, "1");
    drive_finish(batch, sequence);
    drive_append(sequence, e.tokens + 4, 1); /* from step 0, where nobody before it has a g */
    expect_code(descent_batch_finish(batch, sequence, &status), DESCENT_BAD_ARGUMENT, &status, "4");
    start(sequence, (descent_site){0, 0, 4, 4}, x);
    drive_finish(batch, sequence);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    free(x);
    example_free(&e);
}

static void a_layered_model_starts_at_step_0_only(void **state)
{
    (void)state;
    example_wish wish = {.family = TEST_CEM, .context = 8, .count = 5};
    example e = example_draw(test_seed(82, 0), &wish);
    descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
    descent_sequence *sequence = drive_sequence(cache, (descent_depth){{3, 3}}, true, e.tokens, 4);
    float *x = test_alloc(e.model.width, sizeof *x);
    descent_status status;
    expect_code(descent_sequence_start(sequence, (descent_site){0, 1, 2, 0}, x, &status), DESCENT_UNSUPPORTED, &status, "step");
    descent_sequence_destroy(sequence);
    descent_cache_destroy(cache);
    free(x);
    example_free(&e);
}

static descent_site random_site(example *e)
{
    descent_site site = {.layer = (uint32_t)rng_below(&e->r, e->model.layers), .position = rng_below(&e->r, e->count)};
    site.kind = (uint32_t)rng_below(&e->r, test_kinds(e->model.family));
    site.step = (uint32_t)rng_below(&e->r, sublayer_steps_at(e->depth, site.kind));
    return site;
}

static void replacing_by_the_same_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(60); round++) {
        example_wish wish = {.family = family_of(round), .context = 50};
        example e = example_draw(test_seed(83, round), &wish);
        drive_options options = {.depth = e.depth, .observe = OBSERVE_ALL};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, e.depth, false, e.tokens, e.count);
        float *nothing = test_alloc(e.model.width, sizeof *nothing);
        for (size_t n = 0; n < 6; n++) {
            descent_site site = random_site(&e);
            const record_step *step = record_at(expected.seen, site);
            descent_intervention how = (descent_intervention)(n % 4);
            const float *same = how == DESCENT_SET_X ? step->x : step->g;
            intervene(sequence, site, how,
                      how == DESCENT_SET_X || how == DESCENT_SET_G ? same + site.position * e.model.width : nothing);
        }
        drive_finish(batch, sequence);
        outcome got = drive_read(batch, e.engine, sequence);
        compare_outcomes(&got, &expected);
        free(nothing);
        outcome_free(&got);
        outcome_free(&expected);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* Runs e with a change and compares with the reference; then the same text untouched, which must be as if nothing had been.
 * False where the change makes the model one that magnifies rounding. */
static bool try_change(example *e, descent_site site, descent_intervention how)
{
    size_t C = e->model.width;
    double *values = test_alloc(2 * C, sizeof *values);
    float *given = test_alloc(2 * C, sizeof *given);
    for (size_t c = 0; c < 2 * C; c++) {
        given[c] = (float)(0.5 * rng_normal(&e->r));
        values[c] = (double)given[c];
    }
    /* The second, an addition of the same kind of thing, comes on top of the first. */
    descent_intervention on_top = how < DESCENT_SET_G ? DESCENT_ADD_X : DESCENT_ADD_G;
    reference_change changes[2] = {{site, how, values}, {site, on_top, values + C}};
    reference_request request = {.tokens = e->tokens, .count = e->count, .depth = e->depth, .changes = changes, .n_changes = 2};
    reference_run expected = reference_compute(&e->model, &request);
    bool good = reference_sensitivity(&e->model, &request, &expected) < 0.03;
    if (good) {
        drive_options options = {.depth = e->depth, .observe = OBSERVE_ALL};
        outcome untouched = drive(e->engine, e->tokens, e->count, &options);
        descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, e->depth, true, e->tokens, e->count);
        record *seen = record_create(e->engine, e->count, e->depth);
        record_observe(seen, sequence, OBSERVE_ALL);
        intervene(sequence, site, how, given);
        intervene(sequence, site, on_top, given + C);
        drive_finish(batch, sequence);
        outcome got = drive_read(batch, e->engine, sequence);
        compare_outcome(&got, &expected);
        compare_record(seen, &expected, 0, site.position);
        compare_record_looks(seen, &expected, site.position, site.position + 1);
        compare_record(seen, &expected, site.position + 1, e->count);
        compare_bits(got.logits, untouched.logits, site.position * got.vocab, "logits before the change");
        compare_bits(got.states, untouched.states, site.position * got.width, "states before the change");
        /* The first token of an attention without a diagonal has one key, and its g says nothing. */
        if (reference_distance(expected.states + site.position * C, e->expected.states + site.position * C, C) > 1e-3 &&
            !memcmp(got.states + site.position * C, untouched.states + site.position * C, C * sizeof(float)))
            compare_fail("the change changed nothing");
        record_free(seen);
        outcome_free(&got);
        descent_sequence_destroy(sequence);

        options.sharing = true;
        got = drive_in(cache, batch, e->engine, e->tokens, e->count, &options);
        compare_about("%s: untouched, after a sequence that was changed at position %zu", test_model_words(&e->model),
                      site.position);
        compare_bits(got.logits, untouched.logits, got.count * got.vocab, "logits");
        outcome_free(&got);
        outcome_free(&untouched);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
    }
    reference_free(&expected);
    free(values);
    free(given);
    return good;
}

static void a_change_does_what_the_reference_says(void **state)
{
    (void)state;
    size_t compared = 0, rounds = test_rounds(120);
    for (size_t round = 0; round < rounds; round++) {
        example_wish wish = {.family = family_of(round), .context = 50};
        example e = example_draw(test_seed(84, round), &wish);
        descent_site site = random_site(&e);
        descent_intervention how = (descent_intervention)(round / TEST_FAMILIES % 4);
        compare_about("seed %llu, %s, %zu tokens at depth %u,%u, %s at layer %u, kind %u, step %u, position %zu",
                      (unsigned long long)test_seed(84, round), test_model_words(&e.model), e.count, e.depth.steps[0],
                      e.depth.steps[1], hows[how], site.layer, site.kind, site.step, site.position);
        compared += try_change(&e, site, how);
        example_free(&e);
    }
    assert_true(compared * 2 >= rounds);
    compare_report();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarting_from_an_exported_state_gives_the_same_bits),
        cmocka_unit_test(a_token_needs_the_history_of_its_own_steps), cmocka_unit_test(a_layered_model_starts_at_step_0_only),
        cmocka_unit_test(replacing_by_the_same_changes_nothing), cmocka_unit_test(a_change_does_what_the_reference_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
