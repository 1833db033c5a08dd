/* test_exit.c: early exit, by every criterion. A token stops once it holds, and is read at its last state: against the
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
#include "paged.h"
#include "ways.h"

enum { DESCENDING = 4, CRITERIA = DESCENT_EXIT_ARGMAX + 1 };
static const test_family descending[DESCENDING] = {TEST_NRGPT, TEST_CEM, TEST_CEM_SWIGLU, TEST_LLAMA_CEM};

/* Every criterion of every family that has it; NRGPT has them all. */
typedef struct way_to_stop {
    test_family family;
    descent_exit_criterion criterion;
} way_to_stop;

static const way_to_stop ways_to_stop[] = {
    {TEST_NRGPT, DESCENT_EXIT_STATE},       {TEST_CEM, DESCENT_EXIT_ENERGY},        {TEST_NRGPT, DESCENT_EXIT_ENERGY},
    {TEST_CEM_SWIGLU, DESCENT_EXIT_STATE},  {TEST_NRGPT, DESCENT_EXIT_ARGMAX},      {TEST_LLAMA_CEM, DESCENT_EXIT_COSINE},
    {TEST_NRGPT, DESCENT_EXIT_KL},          {TEST_CEM, DESCENT_EXIT_STATE},         {TEST_NRGPT, DESCENT_EXIT_ENTROPY},
    {TEST_LLAMA_CEM, DESCENT_EXIT_ENERGY},  {TEST_NRGPT, DESCENT_EXIT_COSINE},      {TEST_CEM, DESCENT_EXIT_COSINE},
    {TEST_CEM_SWIGLU, DESCENT_EXIT_ENERGY}, {TEST_CEM_SWIGLU, DESCENT_EXIT_COSINE}, {TEST_LLAMA_CEM, DESCENT_EXIT_STATE},
};
enum { WAYS_TO_STOP = sizeof ways_to_stop / sizeof ways_to_stop[0] };

static const way_to_stop deepening[] = {{TEST_NRGPT, DESCENT_EXIT_STATE},  {TEST_NRGPT, DESCENT_EXIT_ENERGY},
                                        {TEST_NRGPT, DESCENT_EXIT_ARGMAX}, {TEST_NRGPT, DESCENT_EXIT_KL},
                                        {TEST_NRGPT, DESCENT_EXIT_COSINE}, {TEST_NRGPT, DESCENT_EXIT_ENTROPY}};
enum { DEEPENING = sizeof deepening / sizeof deepening[0] };

/* A threshold that nothing reaches, and one that everything does. */
static float never(descent_exit_criterion criterion)
{
    return criterion == DESCENT_EXIT_ARGMAX ? DESCENT_MAX_STEPS : 0.0f;
}

static float always(descent_exit_criterion criterion)
{
    return criterion == DESCENT_EXIT_ARGMAX ? 1.0f : 3e38f;
}

/* ---- Examples in which some tokens stop ---------------------------------------------------------------------------- */

typedef struct stopping {
    example e; /* `expected` without exit */
    descent_exit exit;
    reference_run expected;
} stopping;

/* What the criterion compares, of some step of some token of a sub-layer that descends, in a run that never stops. */
static double some_value(const example *e, const reference_run *run, descent_exit_criterion criterion, rng *r)
{
    for (;;) {
        size_t p = rng_below(r, run->programs);
        if (!test_has_energy(e->model.family, p % run->kinds)) continue;
        size_t t = rng_below(r, run->steps[p]), i = rng_below(r, run->count);
        return fabs(reference_exit_value(run, criterion, p, t, i));
    }
}

/* Draws until no decision is so close that rounding could make it another. `wish` may set what is not drawn. */
static stopping stopping_draw(uint64_t seed, descent_exit_criterion criterion, const example_wish *wish)
{
    stopping s = {.e = example_draw(seed, wish)};
    rng *r = &s.e.r;
    reference_request request = {.tokens = s.e.tokens,
                                 .count = s.e.count,
                                 .depth = s.e.depth,
                                 .exit = {.criterion = criterion, .threshold = never(criterion)},
                                 .round_page = wish->round_page};
    reference_run endless = reference_compute(&s.e.model, &request);
    for (size_t draws = 0;; draws++) {
        if (draws == 1000) compare_fail("no threshold that is far from every value");
        double threshold = (double)rng_between(r, 1, 3);
        if (criterion != DESCENT_EXIT_ARGMAX) threshold = some_value(&s.e, &endless, criterion, r);
        if (criterion == DESCENT_EXIT_ENTROPY) /* differs little between tokens */
            threshold = (threshold + some_value(&s.e, &endless, criterion, r)) / 2;
        else if (criterion != DESCENT_EXIT_ARGMAX)
            threshold *= 1.0 + (double)rng_between(r, 1, 40) / 100;
        s.exit = (descent_exit){.criterion = criterion,
                                .threshold = (float)threshold,
                                .min_steps = (uint16_t)(rng_below(r, 3) ? 0 : rng_between(r, 1, 4)),
                                .check_every = (uint16_t)(rng_below(r, 3) ? 0 : rng_between(r, 1, 3)),
                                .first = rng_below(r, 4) ? 0 : (uint32_t)rng_below(r, s.e.count + 1)};
        request.exit = s.exit;
        s.expected = reference_compute(&s.e.model, &request);
        if (s.expected.closest > 1e-3 && reference_sensitivity(&s.e.model, &request, &s.expected) < 0.03) break;
        reference_free(&s.expected);
    }
    reference_free(&endless);
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

/* How often a descent of so many steps was asked, and whether, where history moves, the last asking was answered by a step not
 * made. */
static size_t checks(const descent_exit *exit, size_t used)
{
    size_t least = exit->min_steps ? exit->min_steps : 1, every = exit->check_every ? exit->check_every : 1;
    return used < least ? 0 : (used - least) / every + 1;
}

static void compare_cost(const descent_sequence *sequence, const stopping *s)
{
    const reference_run *run = &s->expected;
    descent_exit_cost cost = descent_sequence_exit_cost(sequence), wanted = {0};
    for (size_t p = 0; p < run->programs; p++)
        for (size_t i = s->exit.first; i < run->count && test_has_energy(s->e.model.family, p % run->kinds); i++) {
            size_t asked = checks(&s->exit, run->used[p][i]);
            bool stopped = run->used[p][i] < run->steps[p];
            if (s->exit.criterion == DESCENT_EXIT_ENERGY && s->e.model.family == TEST_NRGPT)
                wanted.energies += stopped ? 1 : 0;
            else if (s->exit.criterion == DESCENT_EXIT_ENERGY)
                wanted.energies += asked;
            if (s->exit.criterion >= DESCENT_EXIT_ENTROPY)
                wanted.readings += s->exit.criterion == DESCENT_EXIT_KL ? 2 * asked : asked;
        }
    assert_int_equal(cost.energies, wanted.energies);
    assert_int_equal(cost.readings, wanted.readings);
}

static void exits_are_the_references(void **state)
{
    enum { ROUNDS = 4 * WAYS_TO_STOP };
    tally of[CRITERIA] = {{0}};
    size_t rounds = test_rounds(ROUNDS);
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        const way_to_stop *way = &ways_to_stop[round % WAYS_TO_STOP];
        example_wish wish = {.family = way->family, .context = 48, .most = way->family == TEST_NRGPT ? 10 : 5};
        stopping s = stopping_draw(test_seed(180, round), way->criterion, &wish);
        drive_options options = {.depth = s.e.depth,
                                 .exit = s.exit,
                                 .chunks = (drive_chunks)(round % 3),
                                 .mates = round / WAYS_TO_STOP % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        compare_about("seed %llu, %s, %s threshold %g, min_steps %u, check_every %u, first %u",
                      (unsigned long long)test_seed(180, round), test_model_words(&s.e.model),
                      descent_exit_name(way->criterion), (double)s.exit.threshold, s.exit.min_steps, s.exit.check_every,
                      s.exit.first);
        outcome got = drive(s.e.engine, s.e.tokens, s.e.count, &options);
        compare_outcome(&got, &s.expected);
        count_stops(&s.expected, &of[way->criterion]);
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
        compare_cost(sequence, &s);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        stopping_free(&s);
    }
    for (size_t n = DESCENT_EXIT_STATE; n < CRITERIA && rounds == ROUNDS; n++) {
        assert_true(of[n].midway > 0 && of[n].never > 0 && of[n].mixed > 0);
        assert_true(of[n].at_once > 0 || n >= DESCENT_EXIT_KL); /* no two steps of these models say nearly the same */
    }
    compare_report();
}

/* No threshold is below 0, and below a very large one is everything, at the first check (but for argmax, which needs one before
 * it). */
static void all_or_none(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * WAYS_TO_STOP); round++) {
        const way_to_stop *way = &ways_to_stop[round % WAYS_TO_STOP];
        example_wish wish = {.family = way->family, .context = 70, .most = 6};
        example e = example_draw(test_seed(181, round), &wish);
        drive_options options = {.depth = e.depth, .observe = OBSERVE_ALL};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        options.exit = (descent_exit){.criterion = way->criterion, .threshold = never(way->criterion)};
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcomes(&got, &expected);
        outcome_free(&got);
        outcome_free(&expected);

        uint16_t least = (uint16_t)(1 + round / WAYS_TO_STOP % 2);
        options.exit = (descent_exit){.criterion = way->criterion, .threshold = always(way->criterion), .min_steps = least};
        if (way->criterion != DESCENT_EXIT_ARGMAX) {
            got = drive(e.engine, e.tokens, e.count, &options);
            options.exit =
                (descent_exit){.criterion = DESCENT_EXIT_NONE, .threshold = NAN}; /* of no criterion: not looked at */
            for (size_t k = 0; k < DESCENT_MAX_KINDS; k++)
                if (options.depth.steps[k] > least) options.depth.steps[k] = least;
            expected = drive(e.engine, e.tokens, e.count, &options);
            compare_outcomes(&got, &expected);
            outcome_free(&got);
            outcome_free(&expected);
        }
        example_free(&e);
    }
}

/* ---- Ways to run it --------------------------------------------------------------------------------------------------- */

static void the_way_it_is_run_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(10); round++) {
        const way_to_stop *stop = &ways_to_stop[round % WAYS_TO_STOP];
        example_wish wish = {.family = stop->family, .context = 74, .count = 70, .most = 6, .adjust = ways_widen};
        stopping s = stopping_draw(test_seed(182, round), stop->criterion, &wish);
        drive_options base = {.depth = s.e.depth, .exit = s.exit, .page_type = (descent_page_type)(round % DESCENT_PAGE_TYPES)};
        ways_change_nothing(&s.e, &base, test_seed(183, round * 100), "stopping early");
        stopping_free(&s);
    }
}

/* ---- Pages ------------------------------------------------------------------------------------------------------------ */

enum { TEXT = 4 * PAGE_TOKENS + 9 };

typedef struct setting {
    paged p;
    descent_depth depth;
    descent_exit exit;
} setting;

/* What a text is alone. */
typedef struct alone {
    outcome out;
    uint32_t steps[TEXT];
} alone;

static alone run_alone(const setting *set, descent_depth depth, descent_exit exit, size_t count)
{
    alone a;
    descent_cache *cache = drive_cache(set->p.engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = {.depth = depth, .exit = exit};
    descent_sequence *sequence = drive_sequence_as(cache, &how, set->p.tokens, count);
    drive_finish(batch, sequence);
    a.out = drive_read(batch, set->p.engine, sequence);
    for (size_t i = 0; i < count; i++) a.steps[i] = descent_sequence_token_steps(sequence, i);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return a;
}

/* The finished sequence is what it is alone; released. */
static void expect_alone(const setting *set, const descent_sequence *sequence, alone *a)
{
    outcome got = drive_read(set->p.batch, set->p.engine, sequence);
    compare_outcomes(&got, &a->out);
    for (size_t i = 0; i < got.count; i++)
        if (descent_sequence_token_steps(sequence, i) != a->steps[i])
            compare_fail("token %zu took %u steps, alone %u", i, descent_sequence_token_steps(sequence, i), a->steps[i]);
    outcome_free(&got);
    outcome_free(&a->out);
}

/* Tokens of the text take different numbers of steps. */
static bool takes_sides(const setting *set)
{
    alone a = run_alone(set, set->depth, set->exit, TEXT);
    bool differ = false;
    for (size_t i = 1; i < TEXT; i++) differ = differ || a.steps[i] != a.steps[0];
    outcome_free(&a.out);
    return differ;
}

/* A threshold that some tokens go below sooner than others. */
static float threshold_of(setting *set)
{
    if (set->exit.criterion == DESCENT_EXIT_ARGMAX) return (float)rng_between(&set->p.r, 1, 2);
    set->exit.threshold = 8.0f;
    for (size_t turn = 0; turn < 40 && !takes_sides(set); turn++) set->exit.threshold /= 2;
    return set->exit.threshold;
}

static setting set_up(uint64_t test, size_t round, way_to_stop way)
{
    setting set = {.p = paged_up(test, round, way.family, TEXT)};
    rng *r = &set.p.r;
    set.depth = depth_of(way.family, rng_between(r, 2, 9), rng_between(r, 2, 9));
    set.exit = (descent_exit){
        .criterion = way.criterion, .min_steps = (uint16_t)rng_below(r, 3), .check_every = (uint16_t)rng_below(r, 3)};
    set.exit.threshold = threshold_of(&set);
    compare_about("seed %llu, %s at depth %u,%u, threshold %g", (unsigned long long)test_seed(test, round),
                  test_model_words(&set.p.model), set.depth.steps[0], set.depth.steps[1], (double)set.exit.threshold);
    return set;
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

/* Cut short anywhere, it counts those that are left. */
static void expect_counted_when_cut(const setting *set, const descent_sequence_options *how, const alone *a, size_t count,
                                    size_t found)
{
    for (size_t kept = found; kept > 0; kept -= kept < 7 ? kept : 7) {
        descent_status status;
        descent_sequence *sequence = drive_sequence_as(set->p.cache, how, set->p.tokens, count);
        expect_ok(descent_sequence_truncate(sequence, kept, &status), &status);
        expect_counted(sequence, a, kept);
        descent_sequence_destroy(sequence);
    }
}

/* The last token's logits of the first `count` tokens at `depth`, in the cache there is, as they are alone; returns how many
 * tokens came from others. */
static size_t expect_last(setting *set, descent_depth depth, descent_exit exit, size_t count)
{
    alone a = run_alone(set, depth, exit, count);
    descent_sequence_options how = {.depth = depth, .exit = exit};
    uint64_t hits = descent_cache_describe(set->p.cache).shared_hits;
    descent_sequence *sequence = drive_sequence_as(set->p.cache, &how, set->p.tokens, count);
    size_t found = (size_t)(descent_cache_describe(set->p.cache).shared_hits - hits) * PAGE_TOKENS;
    expect_counted(sequence, &a, found);
    expect_counted_when_cut(set, &how, &a, count, found);
    drive_finish(set->p.batch, sequence);
    float *logits = test_alloc(a.out.vocab, sizeof *logits);
    drive_logits(set->p.batch, sequence, count - 1, logits);
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
    for (size_t round = 0; round < test_rounds(WAYS_TO_STOP); round++) {
        bool deepens = ways_to_stop[round % WAYS_TO_STOP].family == TEST_NRGPT;
        setting set = set_up(184, round, ways_to_stop[round % WAYS_TO_STOP]);
        const size_t whole = TEXT / PAGE_TOKENS * PAGE_TOKENS;
        descent_exit exit = set.exit;
        descent_depth depth = set.depth;
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 0);
        assert_int_equal(expect_last(&set, depth, exit, TEXT), whole);
        for (size_t turn = 0; turn < 5; turn++) {
            depth.steps[test_has_energy(set.p.model.family, 0) ? 0 : 1] = (uint16_t)rng_between(&set.p.r, 1, 14);
            size_t found = expect_last(&set, depth, exit, TEXT - rng_below(&set.p.r, 40));
            if (deepens) assert_true(found >= whole - 2 * PAGE_TOKENS);
        }
        depth = set.depth;
        descent_exit others[] = {exit, exit, exit, {.criterion = DESCENT_EXIT_NONE}};
        others[0].threshold *= 2;
        if (exit.criterion != DESCENT_EXIT_ARGMAX) {
            others[1].criterion = exit.criterion == DESCENT_EXIT_STATE ? DESCENT_EXIT_COSINE : DESCENT_EXIT_STATE;
            assert_int_equal(expect_last(&set, depth, others[1], TEXT), 0);
            others[1].criterion = exit.criterion;
        }
        others[1].min_steps = (uint16_t)(exit.min_steps + 2);
        others[2].check_every = (uint16_t)(exit.check_every + 2);
        for (size_t n = 0; n < 4; n++) assert_int_equal(expect_last(&set, depth, others[n], TEXT), 0);
        paged_down(&set.p);
    }
}

/* The pages of a prompt that is exempt are those of who asks for no exit; those behind it are not. */
static void an_exempt_prompt_shares_with_everybody(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        setting set = set_up(185, round, ways_to_stop[round % WAYS_TO_STOP]);
        descent_exit exit = set.exit, none = {.criterion = DESCENT_EXIT_NONE};
        exit.first = 2 * PAGE_TOKENS + 5;
        descent_depth depth = set.depth;
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 0);
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 4 * PAGE_TOKENS);
        assert_int_equal(expect_last(&set, depth, none, TEXT), 2 * PAGE_TOKENS);
        exit.first++;
        assert_int_equal(expect_last(&set, depth, exit, TEXT), 2 * PAGE_TOKENS);
        paged_down(&set.p);
    }
}

/* Planes past those that some token came to are given back: the cache holds what was computed. */
static void pages_hold_what_was_computed(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        setting set = set_up(186, round, deepening[round % DEEPENING]);
        descent_exit exit = set.exit;
        exit.threshold = always(exit.criterion);
        exit.min_steps = (uint16_t)(1 + round);
        exit.check_every = 1;
        descent_sequence_options how = {.depth = {{200}}, .exit = exit};
        descent_sequence *sequence = drive_sequence_as(set.p.cache, &how, set.p.tokens, 4 * PAGE_TOKENS);
        drive_finish(set.p.batch, sequence);
        uint64_t bytes = 0;
        for (size_t block = 0; block < 4; block++) { /* a plane for each step, and one of the last states */
            uint32_t deepest = 0;
            for (size_t i = block * PAGE_TOKENS; i < (block + 1) * PAGE_TOKENS; i++)
                if (descent_sequence_token_steps(sequence, i) > deepest) deepest = descent_sequence_token_steps(sequence, i);
            assert_true(deepest == exit.min_steps || exit.criterion == DESCENT_EXIT_ARGMAX);
            bytes += pages_bytes(set.p.engine, DESCENT_PAGE_F32, PAGE_TOKENS, (page_needs){.planes = deepest + 1});
        }
        assert_int_equal(descent_cache_describe(set.p.cache).bytes, bytes);
        /* A page cut in two holds tokens that go on again. */
        descent_status status;
        expect_ok(descent_sequence_truncate(sequence, 3 * PAGE_TOKENS + 7, &status), &status);
        drive_append(sequence, set.p.tokens + 3 * PAGE_TOKENS + 7, 20);
        drive_finish(set.p.batch, sequence);
        alone a = run_alone(&set, how.depth, exit, 3 * PAGE_TOKENS + 27);
        expect_alone(&set, sequence, &a);
        descent_sequence_destroy(sequence);
        paged_down(&set.p);
    }
}

/* What would not fit with the plane of who stops at T is refused before anything of it is computed; by energy nobody does. */
static void what_stopping_takes_is_counted(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(DEEPENING); round++) {
        setting set = set_up(192, round, deepening[round % DEEPENING]);
        uint64_t plain = bytes_at(set.p.engine, DESCENT_PAGE_F32, TEXT, set.depth);
        descent_depth more = {{(uint16_t)(set.depth.steps[0] + (set.exit.criterion != DESCENT_EXIT_ENERGY))}};
        uint64_t needed = bytes_at(set.p.engine, DESCENT_PAGE_F32, TEXT, more);
        for (size_t n = 0; n < 3; n++) { /* no exit; exit that fits; exit that does not */
            descent_sequence_options how = {.depth = set.depth, .no_sharing = true};
            if (n > 0) how.exit = set.exit;
            descent_cache *cache = drive_cache(set.p.engine, DESCENT_PAGE_F32, n == 0 ? plain : needed - (n == 2));
            descent_batch *batch = drive_batch(cache, 8, 1);
            descent_sequence *sequence = drive_sequence_as(cache, &how, set.p.tokens, TEXT);
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
        paged_down(&set.p);
    }
}

/* Cut anywhere, going on with the same tokens: as if nothing had been. */
static void cutting_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        setting set = set_up(187, round, ways_to_stop[round % WAYS_TO_STOP]);
        alone a = run_alone(&set, set.depth, set.exit, TEXT);
        descent_sequence_options how = {.depth = set.depth, .exit = set.exit, .no_sharing = round % 4 > 1};
        descent_sequence *sequence = drive_sequence_as(set.p.cache, &how, set.p.tokens, TEXT);
        for (size_t turn = 0; turn < 6; turn++) {
            descent_status status;
            size_t keep = rng_below(&set.p.r, TEXT);
            drive_finish(set.p.batch, sequence);
            expect_ok(descent_sequence_truncate(sequence, keep, &status), &status);
            drive_append(sequence, set.p.tokens + keep, TEXT - keep);
        }
        drive_finish(set.p.batch, sequence);
        expect_alone(&set, sequence, &a);
        descent_sequence_destroy(sequence);
        paged_down(&set.p);
    }
}

/* One sequence taken from T to T: what has stopped stays, what has not goes on. */
static void a_larger_depth_takes_on_who_has_not_stopped(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        setting set = set_up(188, round, deepening[round % DEEPENING]);
        descent_sequence_options how = {.depth = {{1}}, .exit = set.exit, .no_sharing = true};
        descent_sequence *sequence = drive_sequence_as(set.p.cache, &how, set.p.tokens, TEXT);
        descent_status status;
        for (uint16_t T = 1; T <= 12; T = (uint16_t)(T + rng_between(&set.p.r, 1, 4))) {
            descent_depth depth = {{T}};
            expect_ok(descent_sequence_set_depth(sequence, depth, &status), &status);
            drive_finish(set.p.batch, sequence);
            alone a = run_alone(&set, depth, set.exit, TEXT);
            expect_alone(&set, sequence, &a);
        }
        descent_sequence_destroy(sequence);
        paged_down(&set.p);
    }
}

/* Saved finished or in the middle of its way, restored, taken on to a larger T where the model deepens, and longer. */
static void a_restored_sequence_keeps_who_stopped(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        setting set = set_up(189, round, ways_to_stop[round % WAYS_TO_STOP]);
        size_t saved = rng_between(&set.p.r, 1, TEXT), added = 0;
        descent_depth deeper = set.depth;
        if (descent_model_describe(set.p.engine)->deepens) deeper.steps[0] = (uint16_t)(deeper.steps[0] + 3);
        alone a = run_alone(&set, deeper, set.exit, TEXT);
        descent_sequence_options how = {.depth = set.depth, .exit = set.exit};
        descent_sequence *sequence = drive_sequence_as(set.p.cache, &how, set.p.tokens, saved), *restored = NULL;
        descent_status status;
        expect_ok(descent_batch_add(set.p.batch, sequence, SIZE_MAX, &added, &status), &status);
        for (size_t n = rng_between(&set.p.r, 0, 3); n > 0; n--)
            expect_ok(descent_batch_step(set.p.batch, NULL, &status), &status);
        if (round % 2)
            descent_batch_remove(set.p.batch, sequence);
        else
            drive_finish(set.p.batch, sequence);
        expect_ok(descent_sequence_save(sequence, scratch_path("stopped"), &status), &status);
        descent_sequence_destroy(sequence);
        expect_ok(descent_sequence_restore(set.p.cache, scratch_path("stopped"), &restored, &status), &status);
        expect_ok(descent_sequence_set_depth(restored, deeper, &status), &status);
        drive_append(restored, set.p.tokens + saved, TEXT - saved);
        drive_finish(set.p.batch, restored);
        expect_alone(&set, restored, &a);
        descent_sequence_destroy(restored);
        paged_down(&set.p);
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
    static const descent_exit_criterion by_state[] = {DESCENT_EXIT_STATE, DESCENT_EXIT_COSINE};
    (void)state;
    for (size_t round = 0; round < test_rounds(12); round++) {
        double s = scales[round / 2 % 3];
        example_wish wish = {.family = descending[round % 2], .context = 60, .most = 8, .adjust = untie};
        stopping small = stopping_draw(test_seed(190, round), by_state[round / 6 % 2], &wish);
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
    static const float wrong[] = {-1.0f, -0x1p-149f, INFINITY, -INFINITY, NAN}, no_count[] = {0.0f, 0.5f, 1.5f, 65536.0f};
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        example_wish wish = {.family = chosen, .context = 8};
        example e = example_draw(test_seed(191, chosen), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_sequence *sequence = NULL;
        descent_status status;
        for (descent_exit_criterion c = DESCENT_EXIT_STATE; c <= DESCENT_EXIT_ARGMAX; c++) {
            descent_sequence_options how = {.exit = {.criterion = c}};
            for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
                how.exit.threshold = wrong[n];
                expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status,
                            "threshold");
            }
            for (size_t n = 0; n < sizeof no_count / sizeof *no_count && c == DESCENT_EXIT_ARGMAX; n++) {
                how.exit.threshold = no_count[n];
                expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status,
                            "a whole number from 1 to 65535");
            }
            how.exit.threshold = descent_exit_default_threshold(c);
            bool fits = test_descends(chosen) && (c < DESCENT_EXIT_ENTROPY || chosen == TEST_NRGPT);
            const char *words = fits                    ? NULL
                                : test_descends(chosen) ? "none, state, cosine or energy"
                                                        : test_family_name(chosen);
            descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
            expect_code(code, fits ? DESCENT_OK : DESCENT_UNSUPPORTED, &status, words);
            descent_sequence_destroy(sequence);
            sequence = NULL;
        }
        descent_sequence_options how = {.exit = {.criterion = (descent_exit_criterion)CRITERIA}};
        expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status, "criterion 7");
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* The names and thresholds that interfaces show. */
static void criteria_have_names_and_thresholds(void **state)
{
    static const struct {
        const char *name;
        float threshold;
    } expected[CRITERIA] = {{"none", 0.0f},     {"state", 0.03f}, {"cosine", 1e-3f}, {"energy", 1e-4f},
                            {"entropy", 1e-3f}, {"kl", 1e-3f},    {"argmax", 5.0f}};
    (void)state;
    for (descent_exit_criterion c = 0; c <= DESCENT_EXIT_ARGMAX; c++) {
        assert_string_equal(descent_exit_name(c), expected[c].name);
        assert_true(descent_exit_default_threshold(c) == expected[c].threshold);
    }
    assert_null(descent_exit_name((descent_exit_criterion)CRITERIA));
    assert_true(descent_exit_default_threshold((descent_exit_criterion)CRITERIA) == 0.0f);
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
                                       cmocka_unit_test(what_is_no_exit_is_refused),
                                       cmocka_unit_test(criteria_have_names_and_thresholds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
