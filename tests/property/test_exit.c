/* test_exit.c: early exit. A token stops once its g moves by less than a threshold, and is read at its last state: against the
 * references; the same whatever way it is run; with pages that others share, deepen, cut and save; at whatever scale. That it
 * is so beside other texts, through pauses, is in test_scheduler.c. Pages hold 32 tokens (engine/cache.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "compare.h"
#include "example.h"
#include "model_file.h"

enum { DESCENDING = 4 };
static const test_family descending[DESCENDING] = {TEST_NRGPT, TEST_CEM, TEST_CEM_SWIGLU, TEST_LLAMA_CEM};

/* ---- Examples in which some tokens stop ---------------------------------------------------------------------------- */

typedef struct stopping {
    example e; /* `expected` without exit */
    descent_exit exit;
    reference_run expected;
} stopping;

/* r_t of some step of some token, of a sub-layer that descends. */
static double some_change(const example *e, rng *r)
{
    for (;;) {
        size_t p = rng_below(r, e->expected.programs);
        if (!test_has_energy(e->model.family, p % e->expected.kinds)) continue;
        size_t t = rng_below(r, e->expected.steps[p]), i = rng_below(r, e->expected.count);
        return e->expected.at[p][t].relative_change[i];
    }
}

/* Draws until no decision is so close that rounding could make it another. `where` may set what is not drawn. */
static stopping stopping_draw(uint64_t seed, const example_wish *wish)
{
    stopping s = {.e = example_draw(seed, wish)};
    rng *r = &s.e.r;
    for (size_t draws = 0;; draws++) {
        if (draws == 1000) compare_fail("no threshold that is far from every r_t");
        s.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE,
                                .threshold = (float)(some_change(&s.e, r) * (1.0 + (double)rng_between(r, 1, 40) / 100)),
                                .min_steps = (uint16_t)(rng_below(r, 3) ? 0 : rng_between(r, 1, 4)),
                                .check_every = (uint16_t)(rng_below(r, 3) ? 0 : rng_between(r, 1, 3)),
                                .first = rng_below(r, 4) ? 0 : (uint32_t)rng_below(r, s.e.count + 1)};
        reference_request request = {
            .tokens = s.e.tokens, .count = s.e.count, .depth = s.e.depth, .exit = s.exit, .round_page = wish->round_page};
        s.expected = reference_compute(&s.e.model, &request);
        if (s.expected.closest > 1e-3 && reference_sensitivity(&s.e.model, &request, &s.expected) < 0.03) break;
        reference_free(&s.expected);
    }
    return s;
}

static void stopping_free(stopping *s)
{
    reference_free(&s->expected);
    example_free(&s->e);
}

/* Row steps of token i in all. */
static size_t steps_of(const reference_run *run, size_t i)
{
    size_t sum = 0;
    for (size_t p = 0; p < run->programs; p++) sum += run->used[p][i];
    return sum;
}

static void compare_steps(const descent_sequence *sequence, const reference_run *expected)
{
    for (size_t i = 0; i < expected->count; i++)
        if (descent_sequence_token_steps(sequence, i) != steps_of(expected, i))
            compare_fail("token %zu took %u steps, expected %zu", i, descent_sequence_token_steps(sequence, i),
                         steps_of(expected, i));
}

/* ---- Against the references ------------------------------------------------------------------------------------------ */

/* What happened to descents, over all rounds. */
typedef struct tally {
    size_t at_once, midway, never; /* descents that stopped with their first step, later, not at all */
    size_t mixed;                  /* texts in which some stopped and some did not */
} tally;

static void count_stops(const reference_run *run, tally *t)
{
    size_t stopped = 0, went_on = 0;
    for (size_t p = 0; p < run->programs; p++)
        for (size_t i = 0; i < run->count && run->steps[p] > 1; i++) {
            size_t used = run->used[p][i];
            bool stops = used < run->steps[p];
            t->at_once += stops && used == 1;
            t->midway += stops && used > 1;
            t->never += !stops;
            stopped += stops;
            went_on += !stops;
        }
    t->mixed += stopped > 0 && went_on > 0;
}

static void exits_are_the_references(void **state)
{
    tally of[DESCENDING] = {{0}};
    size_t rounds = test_rounds(48);
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        size_t n = round % DESCENDING;
        example_wish wish = {.family = descending[n], .context = 48, .most = n ? 5 : 10};
        stopping s = stopping_draw(test_seed(180, round), &wish);
        drive_options options = {.depth = s.e.depth,
                                 .exit = s.exit,
                                 .chunks = (drive_chunks)(round / DESCENDING % 3),
                                 .mates = round / DESCENDING % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        compare_about("seed %llu, %s, threshold %g, min_steps %u, check_every %u, first %u",
                      (unsigned long long)test_seed(180, round), test_model_words(&s.e.model), (double)s.exit.threshold,
                      s.exit.min_steps, s.exit.check_every, s.exit.first);
        outcome got = drive(s.e.engine, s.e.tokens, s.e.count, &options);
        compare_outcome(&got, &s.expected);
        count_stops(&s.expected, &of[n]);
        outcome_free(&got);

        descent_cache *cache = drive_cache(s.e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence_options how = {.depth = s.e.depth, .exit = s.exit};
        descent_sequence *sequence = drive_sequence_as(cache, &how, s.e.tokens, s.e.count);
        drive_finish(batch, sequence);
        compare_steps(sequence, &s.expected);
        size_t total = 0;
        for (size_t i = 0; i < s.e.count; i++) total += steps_of(&s.expected, i);
        assert_int_equal(descent_sequence_steps_run(sequence), total);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        stopping_free(&s);
    }
    for (size_t n = 0; n < DESCENDING && rounds == 48; n++)
        assert_true(of[n].at_once > 0 && of[n].midway > 0 && of[n].never > 0 && of[n].mixed > 0);
    compare_report();
}

/* No threshold is below 0, and below a very large one is everything. */
static void all_or_none(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(16); round++) {
        example_wish wish = {.family = descending[round % DESCENDING], .context = 70, .most = 6};
        example e = example_draw(test_seed(181, round), &wish);
        drive_options options = {.depth = e.depth, .observe = OBSERVE_ALL};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        options.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE};
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcomes(&got, &expected);
        outcome_free(&got);
        outcome_free(&expected);

        uint16_t least = (uint16_t)(1 + round / DESCENDING % 2);
        options.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 3e38f, .min_steps = least};
        got = drive(e.engine, e.tokens, e.count, &options);
        options.exit = (descent_exit){.criterion = DESCENT_EXIT_NONE, .threshold = NAN}; /* of no criterion: not looked at */
        for (size_t k = 0; k < DESCENT_MAX_KINDS; k++)
            if (options.depth.steps[k] > least) options.depth.steps[k] = least;
        expected = drive(e.engine, e.tokens, e.count, &options);
        compare_outcomes(&got, &expected);
        outcome_free(&got);
        outcome_free(&expected);
        example_free(&e);
    }
}

/* ---- Ways to run it --------------------------------------------------------------------------------------------------- */

static void widen(test_model *model)
{
    model->width = test_kinds(model->family) > 1 ? model->heads * (128 / model->heads / 2 * 2) : 121;
    model->hidden = 203;
}

static void the_way_it_is_run_changes_nothing(void **state)
{
    static const drive_options ways[] = {{.threads = 4},
                                         {.observe = OBSERVE_ALL, .threads = 2},
                                         {.observe = OBSERVE_ALL, .chunks = DRIVE_SINGLE},
                                         {.max_rows = 1},
                                         {.max_rows = 3, .mates = 4, .chunks = DRIVE_UNEVEN},
                                         {.chunks = DRIVE_UNEVEN, .mates = 7, .observe = OBSERVE_ALL},
                                         {.chunks = DRIVE_UNEVEN, .mates = 20, .sharing = true, .threads = 2},
                                         {.chunks = DRIVE_SINGLE, .mates = 7, .sharing = true}};
    (void)state;
    for (size_t round = 0; round < test_rounds(4); round++) {
        example_wish wish = {.family = descending[round % DESCENDING], .context = 74, .count = 70, .most = 6, .adjust = widen};
        stopping s = stopping_draw(test_seed(182, round), &wish);
        drive_options base = {.depth = s.e.depth, .exit = s.exit, .page_type = (descent_page_type)(round % DESCENT_PAGE_TYPES)};
        outcome expected = drive(s.e.engine, s.e.tokens, s.e.count, &base), observed = {0};
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            drive_options options = ways[way];
            options.depth = base.depth;
            options.exit = base.exit;
            options.page_type = base.page_type;
            options.seed = test_seed(183, round * 100 + way);
            compare_about("seed %llu, %s, way %zu", (unsigned long long)test_seed(182, round), test_model_words(&s.e.model),
                          way);
            outcome got = drive(s.e.engine, s.e.tokens, s.e.count, &options);
            compare_outcomes(&got, &expected);
            if (options.observe && observed.seen) compare_records(got.seen, observed.seen);
            if (options.observe && !observed.seen)
                observed = got;
            else
                outcome_free(&got);
        }
        outcome_free(&observed);
        outcome_free(&expected);
        stopping_free(&s);
    }
}

/* ---- Pages ------------------------------------------------------------------------------------------------------------ */

enum { TEXT = 4 * PAGE_TOKENS + 9 };

typedef struct setting {
    rng r;
    test_model model;
    uint32_t *tokens; /* [TEXT] */
    descent_depth depth;
    descent_exit exit;
    descent_model *engine;
    descent_cache *cache;
    descent_batch *batch;
} setting;

/* What a text is alone. */
typedef struct alone {
    outcome out;
    uint32_t steps[TEXT];
} alone;

static alone run_alone(const setting *set, descent_depth depth, descent_exit exit, size_t count)
{
    alone a;
    descent_cache *cache = drive_cache(set->engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = {.depth = depth, .exit = exit};
    descent_sequence *sequence = drive_sequence_as(cache, &how, set->tokens, count);
    drive_finish(batch, sequence);
    a.out = drive_read(batch, set->engine, sequence);
    for (size_t i = 0; i < count; i++) a.steps[i] = descent_sequence_token_steps(sequence, i);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return a;
}

/* The finished sequence is what it is alone; released. */
static void expect_alone(const setting *set, const descent_sequence *sequence, alone *a)
{
    outcome got = drive_read(set->batch, set->engine, sequence);
    compare_outcomes(&got, &a->out);
    for (size_t i = 0; i < got.count; i++)
        if (descent_sequence_token_steps(sequence, i) != a->steps[i])
            compare_fail("token %zu took %u steps, alone %u", i, descent_sequence_token_steps(sequence, i), a->steps[i]);
    outcome_free(&got);
    outcome_free(&a->out);
}

/* A threshold that some step of the text goes below, and some do not. */
static float threshold_of(setting *set)
{
    drive_options options = {.depth = set->depth, .observe = DESCENT_OBSERVE_CONVERGENCE};
    outcome seen = drive(set->engine, set->tokens, TEXT, &options);
    size_t p = test_has_energy(set->model.family, 0) ? 0 : 1, t = rng_below(&set->r, seen.seen->steps[p]);
    float change = seen.seen->at[p][t].relative_change[rng_below(&set->r, TEXT)];
    outcome_free(&seen);
    return change * 1.05f;
}

static setting set_up(uint64_t test, size_t round, test_family chosen)
{
    setting set = {.r = rng_seeded(test_seed(test, round))};
    set.model = random_model(&set.r, chosen, TEXT);
    set.tokens = random_tokens(&set.r, &set.model, TEXT);
    set.depth = depth_of(chosen, rng_between(&set.r, 2, 9), rng_between(&set.r, 2, 9));
    set.engine = drive_open_test_model(&set.model);
    set.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE,
                              .threshold = threshold_of(&set),
                              .min_steps = (uint16_t)rng_below(&set.r, 3),
                              .check_every = (uint16_t)rng_below(&set.r, 3)};
    set.cache = drive_cache(set.engine, DESCENT_PAGE_F32, 0);
    set.batch = drive_batch(set.cache, 0, 1);
    compare_about("seed %llu, %s at depth %u,%u, threshold %g", (unsigned long long)test_seed(test, round),
                  test_model_words(&set.model), set.depth.steps[0], set.depth.steps[1], (double)set.exit.threshold);
    return set;
}

static void tear_down(setting *set)
{
    descent_batch_destroy(set->batch);
    descent_cache_usage usage = descent_cache_describe(set->cache);
    assert_int_equal(usage.pages, usage.idle_pages);
    descent_cache_destroy(set->cache);
    descent_model_close(set->engine);
    test_model_free(&set->model);
    free(set->tokens);
}

/* Of the tokens that came from others: the run at the front that has nothing left to do, and those that have, which make the
 * steps they lack; what has stopped among these is in neither. */
static void expect_counted(const descent_sequence *sequence, const alone *a, size_t found)
{
    size_t reused = descent_sequence_reused(sequence), unfinished = 0;
    for (size_t i = 0; i < found; i++) {
        uint32_t made = descent_sequence_token_steps(sequence, i);
        bool done = made >= a->steps[i];
        assert_true(made > 0 && (done || i >= reused) && (!done || i != reused));
        unfinished += !done;
    }
    assert_true(reused <= found);
    assert_int_equal(descent_sequence_deepened(sequence), unfinished);
}

/* The last token's logits of the first `count` tokens at `depth`, in the cache there is, as they are alone; returns how many
 * tokens came from others. */
static size_t expect_last(setting *set, descent_depth depth, descent_exit exit, size_t count)
{
    alone a = run_alone(set, depth, exit, count);
    descent_sequence_options how = {.depth = depth, .exit = exit};
    uint64_t hits = descent_cache_describe(set->cache).shared_hits;
    descent_sequence *sequence = drive_sequence_as(set->cache, &how, set->tokens, count);
    size_t found = (size_t)(descent_cache_describe(set->cache).shared_hits - hits) * PAGE_TOKENS;
    expect_counted(sequence, &a, found);
    drive_finish(set->batch, sequence);
    float *logits = test_alloc(a.out.vocab, sizeof *logits);
    drive_logits(set->batch, sequence, count - 1, logits);
    compare_bits(logits, a.out.logits + (count - 1) * a.out.vocab, a.out.vocab, "logits of the last token");
    free(logits);
    descent_sequence_destroy(sequence);
    outcome_free(&a.out);
    return found;
}

/* Whoever asks for the same exit shares pages, whatever T where the model deepens; nobody else does. */
static void pages_are_shared_between_equal_exits(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        bool deepens = round % 3 < 2;
        setting set = set_up(184, round, deepens ? TEST_NRGPT : TEST_CEM);
        const size_t whole = TEXT / PAGE_TOKENS * PAGE_TOKENS;
        descent_exit exit = set.exit;
        descent_depth depth = set.depth;
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 0);
        assert_int_equal(expect_last(&set, depth, exit, TEXT), whole);
        for (size_t turn = 0; turn < 5; turn++) {
            depth.steps[0] = (uint16_t)rng_between(&set.r, 1, 14);
            size_t found = expect_last(&set, depth, exit, TEXT - rng_below(&set.r, 40));
            if (deepens) assert_true(found >= whole - 2 * PAGE_TOKENS);
        }
        depth = set.depth;
        descent_exit others[] = {exit, exit, exit, {.criterion = DESCENT_EXIT_NONE}};
        others[0].threshold *= 2;
        others[1].min_steps = (uint16_t)(exit.min_steps + 2);
        others[2].check_every = (uint16_t)(exit.check_every + 2);
        for (size_t n = 0; n < 4; n++) assert_int_equal(expect_last(&set, depth, others[n], TEXT), 0);
        tear_down(&set);
    }
}

/* The pages of a prompt that is exempt are those of who asks for no exit; those behind it are not. */
static void an_exempt_prompt_shares_with_everybody(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        setting set = set_up(185, round, round % 2 ? TEST_NRGPT : TEST_CEM);
        descent_exit exit = set.exit, none = {.criterion = DESCENT_EXIT_NONE};
        exit.first = 2 * PAGE_TOKENS + 5;
        descent_depth depth = set.depth;
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 0);
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 4 * PAGE_TOKENS);
        assert_int_equal(expect_last(&set, depth, none, TEXT), 2 * PAGE_TOKENS);
        exit.first++;
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 2 * PAGE_TOKENS);
        tear_down(&set);
    }
}

/* Planes past those that some token came to are given back: the cache holds what was computed. */
static void pages_hold_what_was_computed(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        setting set = set_up(186, round, TEST_NRGPT);
        descent_exit exit = {.criterion = DESCENT_EXIT_STATE, .threshold = 3e38f, .min_steps = (uint16_t)(1 + round)};
        descent_sequence_options how = {.depth = {{200}}, .exit = exit};
        descent_sequence *sequence = drive_sequence_as(set.cache, &how, set.tokens, 4 * PAGE_TOKENS);
        drive_finish(set.batch, sequence);
        uint64_t planes = exit.min_steps + 1u; /* one for each step, and the last states */
        assert_int_equal(descent_cache_describe(set.cache).bytes,
                         pages_bytes(set.engine, DESCENT_PAGE_F32, 4 * PAGE_TOKENS, (page_needs){.planes = (uint32_t)planes}));
        /* A page cut in two holds tokens that go on again. */
        descent_status status;
        expect_ok(descent_sequence_truncate(sequence, 3 * PAGE_TOKENS + 7, &status), &status);
        drive_append(sequence, set.tokens + 3 * PAGE_TOKENS + 7, 20);
        drive_finish(set.batch, sequence);
        alone a = run_alone(&set, how.depth, exit, 3 * PAGE_TOKENS + 27);
        expect_alone(&set, sequence, &a);
        descent_sequence_destroy(sequence);
        tear_down(&set);
    }
}

/* What would not fit with the plane of who stops at T is refused before anything of it is computed. */
static void what_stopping_takes_is_counted(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(4); round++) {
        setting set = set_up(192, round, TEST_NRGPT);
        uint64_t plain = bytes_at(set.engine, DESCENT_PAGE_F32, TEXT, set.depth);
        descent_depth more = {{(uint16_t)(set.depth.steps[0] + 1)}};
        uint64_t needed = bytes_at(set.engine, DESCENT_PAGE_F32, TEXT, more);
        for (size_t n = 0; n < 3; n++) { /* no exit; exit that fits; exit that does not */
            descent_sequence_options how = {.depth = set.depth, .no_sharing = true};
            if (n > 0) how.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE};
            descent_cache *cache = drive_cache(set.engine, DESCENT_PAGE_F32, n == 0 ? plain : needed - (n == 2));
            descent_batch *batch = drive_batch(cache, 8, 1);
            descent_sequence *sequence = drive_sequence_as(cache, &how, set.tokens, TEXT);
            size_t added = 0;
            char words[64];
            descent_status status;
            (void)snprintf(words, sizeof words, "needs %llu bytes", (unsigned long long)needed);
            descent_code code = descent_batch_add(batch, sequence, SIZE_MAX, &added, &status);
            expect_code(code, n == 2 ? DESCENT_LIMIT : DESCENT_OK, &status, n == 2 ? words : NULL);
            assert_int_equal(added, n == 2 ? 0 : 8);
            if (n < 2) drive_finish(batch, sequence);
            descent_sequence_destroy(sequence);
            descent_batch_destroy(batch);
            descent_cache_destroy(cache);
        }
        tear_down(&set);
    }
}

/* Cut anywhere, going on with the same tokens: as if nothing had been. */
static void cutting_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        setting set = set_up(187, round, descending[round % 2]);
        alone a = run_alone(&set, set.depth, set.exit, TEXT);
        descent_sequence_options how = {.depth = set.depth, .exit = set.exit, .no_sharing = round % 4 > 1};
        descent_sequence *sequence = drive_sequence_as(set.cache, &how, set.tokens, TEXT);
        for (size_t turn = 0; turn < 6; turn++) {
            descent_status status;
            size_t keep = rng_below(&set.r, TEXT);
            drive_finish(set.batch, sequence);
            expect_ok(descent_sequence_truncate(sequence, keep, &status), &status);
            drive_append(sequence, set.tokens + keep, TEXT - keep);
        }
        drive_finish(set.batch, sequence);
        expect_alone(&set, sequence, &a);
        descent_sequence_destroy(sequence);
        tear_down(&set);
    }
}

/* One sequence taken from T to T: what has stopped stays, what has not goes on. */
static void a_larger_depth_takes_on_who_has_not_stopped(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        setting set = set_up(188, round, TEST_NRGPT);
        descent_sequence_options how = {.depth = {{1}}, .exit = set.exit, .no_sharing = true};
        descent_sequence *sequence = drive_sequence_as(set.cache, &how, set.tokens, TEXT);
        descent_status status;
        for (uint16_t T = 1; T <= 12; T = (uint16_t)(T + rng_between(&set.r, 1, 4))) {
            descent_depth depth = {{T}};
            expect_ok(descent_sequence_set_depth(sequence, depth, &status), &status);
            drive_finish(set.batch, sequence);
            alone a = run_alone(&set, depth, set.exit, TEXT);
            expect_alone(&set, sequence, &a);
        }
        descent_sequence_destroy(sequence);
        tear_down(&set);
    }
}

/* Saved finished or in the middle of its way, restored, taken on to a larger T where the model deepens, and longer. */
static void a_restored_sequence_keeps_who_stopped(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        setting set = set_up(189, round, descending[round % DESCENDING]);
        size_t saved = rng_between(&set.r, 1, TEXT), added = 0;
        descent_depth deeper = set.depth;
        if (descent_model_describe(set.engine)->deepens) deeper.steps[0] = (uint16_t)(deeper.steps[0] + 3);
        alone a = run_alone(&set, deeper, set.exit, TEXT);
        descent_sequence_options how = {.depth = set.depth, .exit = set.exit};
        descent_sequence *sequence = drive_sequence_as(set.cache, &how, set.tokens, saved), *restored = NULL;
        descent_status status;
        expect_ok(descent_batch_add(set.batch, sequence, SIZE_MAX, &added, &status), &status);
        for (size_t n = rng_between(&set.r, 0, 3); n > 0; n--) expect_ok(descent_batch_step(set.batch, NULL, &status), &status);
        if (round % 2)
            descent_batch_remove(set.batch, sequence);
        else
            drive_finish(set.batch, sequence);
        expect_ok(descent_sequence_save(sequence, scratch_path("stopped"), &status), &status);
        descent_sequence_destroy(sequence);
        expect_ok(descent_sequence_restore(set.cache, scratch_path("stopped"), &restored, &status), &status);
        expect_ok(descent_sequence_set_depth(restored, deeper, &status), &status);
        drive_append(restored, set.tokens + saved, TEXT - saved);
        drive_finish(set.batch, restored);
        expect_alone(&set, restored, &a);
        descent_sequence_destroy(restored);
        tear_down(&set);
    }
}

/* ---- Scale ------------------------------------------------------------------------------------------------------------ */

static void multiply(test_model *model, const char *part, double by)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        const test_tensor *tensor = &model->tensors[i];
        for (size_t n = 0; strstr(tensor->name, part) && n < tensor->rows * tensor->columns; n++) tensor->values[n] *= by;
    }
}

/* Every state s times as long: embeddings and R (or eta) by s, epsilon by s^2. g, and so r_t, are what they were. */
static test_model enlarge(const test_model *model, double s)
{
    test_model larger = test_model_copy(model);
    multiply(&larger, "token_embd", s);
    multiply(&larger, "position_embd", s);
    multiply(&larger, "blk.0.rate", s);
    multiply(&larger, "_eta", s);
    larger.norm_epsilon = round_to_f32(model->norm_epsilon * s * s);
    test_model_round(&larger);
    return larger;
}

static void untie(test_model *model)
{
    model->tied = false;
}

static void exits_do_not_depend_on_scale(void **state)
{
    static const double scales[] = {3.0, 4.0, 0.25};
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        double s = scales[round / 2 % 3];
        example_wish wish = {.family = descending[round % 2], .context = 60, .most = 8, .adjust = untie};
        stopping small = stopping_draw(test_seed(190, round), &wish);
        const example *e = &small.e;
        test_model larger = enlarge(&e->model, s);
        descent_model *engine = drive_open_test_model(&larger);
        descent_cache *caches[2] = {drive_cache(e->engine, DESCENT_PAGE_F32, 0), drive_cache(engine, DESCENT_PAGE_F32, 0)};
        outcome got[2];
        for (size_t n = 0; n < 2; n++) {
            descent_batch *batch = drive_batch(caches[n], 0, 1);
            descent_sequence_options how = {.depth = e->depth, .exit = small.exit};
            descent_sequence *sequence = drive_sequence_as(caches[n], &how, e->tokens, e->count);
            drive_finish(batch, sequence);
            compare_about("%s, scaled by %g", test_model_words(&e->model), n ? s : 1.0);
            compare_steps(sequence, &small.expected);
            got[n] = drive_read(batch, n ? engine : e->engine, sequence);
            compare_logits(got[n].logits, small.expected.logits, e->count, got[n].vocab, "logits");
            descent_sequence_destroy(sequence);
            descent_batch_destroy(batch);
            descent_cache_destroy(caches[n]);
        }
        if (s != 3.0) compare_bits(got[1].logits, got[0].logits, e->count * got[0].vocab, "logits of both");
        outcome_free(&got[0]);
        outcome_free(&got[1]);
        descent_model_close(engine);
        test_model_free(&larger);
        stopping_free(&small);
    }
}

/* ---- What is refused ---------------------------------------------------------------------------------------------------- */

static void what_is_no_exit_is_refused(void **state)
{
    static const float wrong[] = {-1.0f, -0x1p-149f, INFINITY, -INFINITY, NAN};
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        example_wish wish = {.family = chosen, .context = 8};
        example e = example_draw(test_seed(191, chosen), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_sequence *sequence = NULL;
        descent_status status;
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            descent_sequence_options how = {.exit = {.criterion = DESCENT_EXIT_STATE, .threshold = wrong[n]}};
            expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status, "threshold");
        }
        descent_sequence_options how = {.exit = {.criterion = (descent_exit_criterion)7}};
        expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status, "criterion 7");
        how.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 0.03f};
        descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
        expect_code(code, test_descends(chosen) ? DESCENT_OK : DESCENT_UNSUPPORTED, &status,
                    test_descends(chosen) ? NULL : test_family_name(chosen));
        descent_sequence_destroy(sequence);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exits_are_the_references),
                                       cmocka_unit_test(all_or_none),
                                       cmocka_unit_test(the_way_it_is_run_changes_nothing),
                                       cmocka_unit_test(pages_are_shared_between_equal_exits),
                                       cmocka_unit_test(an_exempt_prompt_shares_with_everybody),
                                       cmocka_unit_test(pages_hold_what_was_computed),
                                       cmocka_unit_test(what_stopping_takes_is_counted),
                                       cmocka_unit_test(cutting_changes_nothing),
                                       cmocka_unit_test(a_larger_depth_takes_on_who_has_not_stopped),
                                       cmocka_unit_test(a_restored_sequence_keeps_who_stopped),
                                       cmocka_unit_test(exits_do_not_depend_on_scale),
                                       cmocka_unit_test(what_is_no_exit_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
