/* test_independence.c: what a row computes does not depend, bit for bit, on anything but its own sequence: not on the rows
 * beside it, on threads, on the chunks its tokens came in, on where its pages lie or who computed them, on observers.
 * Models are wide enough for products to be shared among threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "compare.h"
#include "example.h"
#include "ways.h"

enum { TOKENS = 112 }; /* with these widths every product and every attention is worth sharing among threads */

static void widen(test_model *model)
{
    ways_widen(model);
    model->vocab += 180;
}

static example draw(uint64_t test, size_t round, test_weight weight)
{
    example_wish wish = {
        .family = family_of(round), .weight = weight, .context = TOKENS + 5, .count = TOKENS, .most = 4, .adjust = widen};
    return example_draw(test_seed(test, round), &wish);
}

static const char *const page_words[DESCENT_PAGE_TYPES] = {"f32", "f16", "bf16", "q8"};

static const drive_options ways[] = {{.threads = 2},
                                     {.threads = 4},
                                     {.observe = OBSERVE_ALL},
                                     {.observe = DESCENT_OBSERVE_ENERGY, .threads = 2},
                                     {.observe = DESCENT_OBSERVE_STATE, .chunks = DRIVE_SINGLE},
                                     {.observe = DESCENT_OBSERVE_CONVERGENCE | DESCENT_OBSERVE_FINAL, .max_rows = 13},
                                     {.max_rows = 1},
                                     {.max_rows = 3, .mates = 4, .chunks = DRIVE_UNEVEN},
                                     {.chunks = DRIVE_SINGLE},
                                     {.chunks = DRIVE_UNEVEN, .threads = 4},
                                     {.chunks = DRIVE_UNEVEN, .mates = 7, .observe = OBSERVE_ALL},
                                     {.chunks = DRIVE_WHOLE, .mates = 7, .threads = 2},
                                     {.chunks = DRIVE_UNEVEN, .mates = 63, .threads = 2},
                                     {.chunks = DRIVE_SINGLE, .mates = 7},
                                     {.chunks = DRIVE_UNEVEN, .mates = 7, .sharing = true, .observe = OBSERVE_ALL}};

static void run_every_way(const example *e, descent_page_type type, uint64_t seed)
{
    drive_options base = {.depth = e->depth, .page_type = type};
    outcome expected = drive(e->engine, e->tokens, e->count, &base);
    if (type == DESCENT_PAGE_F32 && e->model.weight >= TEST_Q8_0)
        compare_rounded(&expected, &e->expected, &e->allowed);
    else if (type == DESCENT_PAGE_F32)
        compare_outcome(&expected, &e->expected);
    outcome observed = {0};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        drive_options options = ways[way];
        options.depth = e->depth;
        options.page_type = base.page_type;
        options.seed = seed * 100 + way;
        compare_about("seed %llu, %s, weights %d, %s pages, way %zu", (unsigned long long)seed, test_model_words(&e->model),
                      (int)e->model.weight, page_words[type], way);
        outcome got = drive(e->engine, e->tokens, e->count, &options);
        compare_outcomes(&got, &expected);
        /* Of those who saw everything, all saw the same. */
        if (options.observe == OBSERVE_ALL && observed.seen) compare_records(got.seen, observed.seen);
        if (options.observe == OBSERVE_ALL && !observed.seen) {
            observed = got;
            continue;
        }
        outcome_free(&got);
    }
    outcome_free(&observed);
    outcome_free(&expected);
}

static void the_way_it_is_run_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(4); round++) {
        example e = draw(50, round, TEST_F32);
        run_every_way(&e, DESCENT_PAGE_F32, test_seed(50, round));
        run_every_way(&e, (descent_page_type)(1 + round % (DESCENT_PAGE_TYPES - 1)), test_seed(50, round));
        example_free(&e);
    }
}

/* The families that multiply both ways. */
static void nor_where_weights_are_quantized(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2); round++) {
        example e = draw(54, round, round % 2 ? TEST_Q4_0 : TEST_Q8_0);
        run_every_way(&e, DESCENT_PAGE_F32, test_seed(54, round));
        example_free(&e);
    }
}

/* Runs the text in a cache that exists; says how many tokens came from others. */
static outcome run_in(descent_cache *cache, descent_batch *batch, const example *e, size_t *reused)
{
    descent_sequence *sequence = drive_sequence(cache, e->depth, true, e->tokens, e->count);
    *reused = descent_sequence_reused(sequence);
    drive_finish(batch, sequence);
    outcome got = drive_read(batch, e->engine, sequence);
    descent_sequence_destroy(sequence);
    return got;
}

static void expect_run(descent_cache *cache, descent_batch *batch, const example *e, const outcome *expected, bool reuses,
                       const char *when)
{
    size_t reused;
    compare_about("%s, %s", test_model_words(&e->model), when);
    outcome got = run_in(cache, batch, e, &reused);
    if (reuses ? reused == 0 : reused > 0) compare_fail("%zu tokens were reused", reused);
    compare_outcomes(&got, expected);
    outcome_free(&got);
}

static void where_pages_lie_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        example e = draw(52, round, TEST_F32);
        descent_page_type type = (descent_page_type)(round % DESCENT_PAGE_TYPES);
        drive_options base = {.depth = e.depth, .page_type = type};
        outcome expected = drive(e.engine, e.tokens, e.count, &base);
        descent_cache *cache = drive_cache(e.engine, type, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        expect_run(cache, batch, &e, &expected, false, "cold");
        expect_run(cache, batch, &e, &expected, true, "warm from a sequence that was destroyed");

        /* A text that agrees for one page, and one that agrees for half of one, beside it. */
        uint32_t *other = random_tokens(&e.r, &e.model, e.count);
        size_t same = round % 2 ? 40 : 20;
        for (size_t i = 0; i < same; i++) other[i] = e.tokens[i];
        descent_sequence *first = drive_sequence(cache, e.depth, true, other, e.count);
        drive_finish(batch, first);
        expect_run(cache, batch, &e, &expected, true, "warm beside a sequence that shares its beginning");
        descent_sequence_destroy(first);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);

        /* Room for hardly more than one text: pages of the first go when the second comes. */
        uint64_t needed = bytes_at(e.engine, type, e.count, e.depth);
        cache = drive_cache(e.engine, type, needed + needed / 4);
        batch = drive_batch(cache, 0, 2);
        expect_run(cache, batch, &e, &expected, false, "cold, tight");
        for (size_t n = 0; n < 3; n++) {
            other[0] = (uint32_t)((e.tokens[0] + 1 + n) % e.model.vocab);
            first = drive_sequence(cache, e.depth, true, other, e.count);
            drive_finish(batch, first);
            descent_cache_usage usage = descent_cache_describe(cache);
            if (usage.bytes > usage.byte_limit)
                compare_fail("%llu bytes held, %llu allowed", (unsigned long long)usage.bytes,
                             (unsigned long long)usage.byte_limit);
            descent_sequence_destroy(first);
        }
        expect_run(cache, batch, &e, &expected, false, "after its pages were evicted");
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        outcome_free(&expected);
        free(other);
        example_free(&e);
    }
}

/* Rows taken out in the middle of their descent and put back later. */
static void preemption_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        example e = draw(53, round, round % 2 ? TEST_Q8_0 : TEST_F32);
        drive_options base = {.depth = e.depth};
        outcome expected = drive(e.engine, e.tokens, e.count, &base);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 40, 1);
        descent_sequence *sequence = drive_sequence(cache, e.depth, round % 4 > 1, e.tokens, e.count);
        descent_sequence *mate = drive_sequence(cache, e.depth, true, e.tokens + 1, e.count - 1);
        descent_status status;
        for (size_t times = 0; times < 9; times++) {
            size_t added;
            expect_ok(descent_batch_add(batch, mate, 3, &added, &status), &status);
            expect_ok(descent_batch_add(batch, sequence, rng_between(&e.r, 1, 30), &added, &status), &status);
            for (size_t n = rng_between(&e.r, 1, 6); n > 0; n--) expect_ok(descent_batch_step(batch, NULL, &status), &status);
            descent_batch_remove(batch, sequence);
        }
        drive_finish(batch, sequence);
        outcome got = drive_read(batch, e.engine, sequence);
        compare_outcomes(&got, &expected);
        descent_sequence_destroy(mate);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        outcome_free(&got);
        outcome_free(&expected);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_it_is_run_changes_nothing), cmocka_unit_test(nor_where_weights_are_quantized),
        cmocka_unit_test(where_pages_lie_changes_nothing), cmocka_unit_test(preemption_changes_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
