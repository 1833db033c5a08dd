/* test_motion.c: how a step moves (descent_motion): every kind of motion, of every family that descends, against the
 * references; the same bits whatever way it is run, through pages that others share and deepen, rows taken out in the middle
 * and files; and refused where it means nothing. step_scale alone is in test_step_scale.c; beside others, paused and drafted,
 * motions run in test_scheduler.c, test_drafts.c and test_lifecycle.c. Pages hold 32 tokens (engine/cache.h). */
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

enum { DESCENDING = 4 };
static const test_family descending[DESCENDING] = {TEST_NRGPT, TEST_CEM, TEST_CEM_SWIGLU, TEST_LLAMA_CEM};

typedef enum motion_kind { MOMENTUM, NOISE, ANGULAR, MIXED, MOTIONS } motion_kind;

/* A motion of a kind; one in two has step scales as well. */
static descent_motion motion_of(motion_kind kind, rng *r)
{
    descent_motion m = {.n_scales = (uint32_t)(rng_below(r, 2) ? 0 : rng_between(r, 1, 4))};
    for (uint32_t t = 0; t < m.n_scales; t++) m.step_scale[t] = (float)rng_between(r, 1, 12) / 8;
    if (kind == ANGULAR || kind == MIXED) m.rule = DESCENT_RULE_ANGULAR;
    if (kind == MOMENTUM || kind == MIXED) m.momentum = (float)rng_between(r, 1, 9) / 10;
    if (kind == NOISE || (kind == MIXED && rng_below(r, 2)))
        m.noise = (descent_noise){.seed = (int64_t)rng_next(r),
                                  .sigma = (float)rng_between(r, 1, 10) / 20,
                                  .schedule = (descent_noise_schedule)rng_below(r, 2)};
    return m;
}

static bool has_kind(motion_kind kind, test_family chosen)
{
    return chosen == TEST_NRGPT || kind == MOMENTUM || kind == NOISE;
}

/* The round's kind and family; false where the family has no such motion. */
static bool choose(size_t round, motion_kind *kind, test_family *chosen)
{
    *kind = (motion_kind)(round % MOTIONS);
    *chosen = descending[round / MOTIONS % DESCENDING];
    return has_kind(*kind, *chosen);
}

static const char *motion_words(const descent_motion *m)
{
    static char words[160];
    (void)snprintf(words, sizeof words, "%u scales, momentum %g, rule %d, noise %g %d", m->n_scales, (double)m->momentum,
                   (int)m->rule, (double)m->noise.sigma, (int)m->noise.schedule);
    return words;
}

/* ---- Against the references -------------------------------------------------------------------------------------- */

static void motions_are_the_references(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(24 * MOTIONS); round++) {
        motion_kind kind;
        test_family chosen;
        rng r = rng_seeded(test_seed(400, round));
        if (!choose(round, &kind, &chosen)) continue;
        descent_motion motion = motion_of(kind, &r);
        example_wish wish = {.family = chosen, .context = 40, .motion = motion};
        example e = example_draw(test_seed(401, round), &wish);
        drive_options options = {.depth = e.depth,
                                 .motion = motion,
                                 .chunks = (drive_chunks)(round % 3),
                                 .mates = round % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        compare_about("seed %llu, %s, %s", (unsigned long long)test_seed(401, round), test_model_words(&e.model),
                      motion_words(&motion));
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcome(&got, &e.expected);
        outcome_free(&got);
        example_free(&e);
    }
    compare_report();
}

/* Every kind does something to every family that has it. */
static void motions_move(void **state)
{
    (void)state;
    for (size_t round = 0; round < MOTIONS * DESCENDING; round++) {
        motion_kind kind;
        test_family chosen;
        rng r = rng_seeded(test_seed(402, round));
        if (!choose(round, &kind, &chosen)) continue;
        example_wish wish = {.family = chosen, .context = 20, .count = 20};
        example e = example_draw(test_seed(403, round), &wish);
        drive_options options = {.depth = depth_of(chosen, 3, 3)};
        outcome plain = drive(e.engine, e.tokens, e.count, &options);
        options.motion = motion_of(kind, &r);
        options.motion.n_scales = 0;
        outcome moved = drive(e.engine, e.tokens, e.count, &options);
        if (!memcmp(plain.logits, moved.logits, plain.count * plain.vocab * sizeof(float)))
            compare_fail("%s changes nothing", motion_words(&options.motion));
        outcome_free(&plain);
        outcome_free(&moved);
        example_free(&e);
    }
}

/* ---- Ways to run it ---------------------------------------------------------------------------------------------- */

static void the_way_it_is_run_changes_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * MOTIONS); round++) {
        motion_kind kind;
        test_family chosen;
        rng r = rng_seeded(test_seed(404, round));
        if (!choose(round / 2 * (MOTIONS + 1) + round % 2 * MOTIONS, &kind, &chosen)) continue;
        example_wish wish = {.family = chosen, .context = 70, .count = 66, .most = 6, .adjust = ways_widen};
        wish.motion = motion_of(kind, &r);
        example e = example_draw(test_seed(405, round), &wish);
        drive_options base = {
            .depth = e.depth, .motion = wish.motion, .page_type = (descent_page_type)(round % DESCENT_PAGE_TYPES)};
        ways_change_nothing(&e, &base, test_seed(406, round * 100), motion_words(&wish.motion));
        example_free(&e);
    }
}

/* ---- Pages, pauses, files ---------------------------------------------------------------------------------------- */

enum { TEXT = 3 * PAGE_TOKENS + 9, TIMES = 12 };

typedef struct setting {
    paged p;
    descent_depth depth;
    descent_motion motion;
} setting;

static setting set_up(uint64_t test, size_t round, motion_kind kind, test_family chosen)
{
    setting s = {.p = paged_up(test, round, chosen, TEXT)};
    s.depth = depth_of(chosen, rng_between(&s.p.r, 2, 6), rng_between(&s.p.r, 2, 6));
    s.motion = motion_of(kind, &s.p.r);
    compare_about("seed %llu, %s at depth %u,%u, %s", (unsigned long long)test_seed(test, round), test_model_words(&s.p.model),
                  s.depth.steps[0], s.depth.steps[1], motion_words(&s.motion));
    return s;
}

/* Rows leave in the middle of their descents again and again, tokens are cut off and come back, T grows, and the sequence goes
 * through a file: what comes out is what comes out alone, at the depth asked last. */
static void interrupted_descents_go_on(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8 * MOTIONS); round++) {
        motion_kind kind;
        test_family chosen;
        if (!choose(round, &kind, &chosen)) continue;
        setting s = set_up(407, round, kind, chosen);
        bool deepens = descent_model_describe(s.p.engine)->deepens;
        descent_status status;
        descent_sequence_options how = {.depth = s.depth, .motion = s.motion};
        if (deepens) how.depth.steps[0] = 1;
        descent_sequence *sequence = drive_sequence_as(s.p.cache, &how, s.p.tokens, TEXT);
        for (size_t n = 0; n < TIMES; n++) {
            size_t added, most = rng_between(&s.p.r, 1, TEXT);
            expect_ok(descent_batch_add(s.p.batch, sequence, most, &added, &status), &status);
            for (size_t steps = rng_below(&s.p.r, 5); steps > 0; steps--)
                expect_ok(descent_batch_step(s.p.batch, NULL, &status), &status);
            descent_batch_remove(s.p.batch, sequence);
            if (n % 4 == 1) {
                size_t kept = rng_between(&s.p.r, 1, TEXT);
                expect_ok(descent_sequence_truncate(sequence, kept, &status), &status);
                drive_append(sequence, s.p.tokens + kept, TEXT - kept);
            }
            if (n % 4 == 2) {
                expect_ok(descent_sequence_save(sequence, scratch_path("moving"), &status), &status);
                descent_sequence_destroy(sequence);
                expect_ok(descent_sequence_restore(s.p.cache, scratch_path("moving"), &sequence, &status), &status);
            }
            descent_depth deeper = descent_sequence_depth(sequence);
            if (deepens && deeper.steps[0] < s.depth.steps[0]) {
                deeper.steps[0]++;
                expect_ok(descent_sequence_set_depth(sequence, deeper, &status), &status);
            }
        }
        expect_ok(descent_sequence_set_depth(sequence, s.depth, &status), &status);
        drive_finish(s.p.batch, sequence);
        how.depth = s.depth;
        paged_expect_alone(&s.p, sequence, &how);
        descent_sequence_destroy(sequence);
        paged_down(&s.p);
    }
}

/* Tokens that came from others in a new sequence of all of TEXT but the last `behind` tokens. */
static size_t found(const setting *s, descent_depth depth, const descent_motion *motion, size_t behind)
{
    return paged_found(&s->p, &(descent_sequence_options){.depth = depth, .motion = *motion}, TEXT - behind) * PAGE_TOKENS;
}

/* Whoever moves alike, and without noise, shares pages, and deepens those of others where the model does; nobody else sees
 * them. */
static void pages_are_shared_between_equal_motions(void **state)
{
    (void)state;
    const size_t whole = TEXT / PAGE_TOKENS * PAGE_TOKENS;
    for (size_t round = 0; round < test_rounds(6 * MOTIONS); round++) {
        motion_kind kind;
        test_family chosen;
        if (!choose(round, &kind, &chosen)) continue;
        setting s = set_up(408, round, kind, chosen);
        bool deepens = descent_model_describe(s.p.engine)->deepens;
        descent_motion plain = {.n_scales = 0}, other = s.motion;
        if (other.rule == DESCENT_RULE_ANGULAR && (other.n_scales > 0 || other.momentum > 0) && rng_below(&s.p.r, 2))
            other.rule = DESCENT_RULE_PLAIN;
        else
            other.momentum = other.momentum > 0.5f ? other.momentum - 0.25f : other.momentum + 0.25f;
        descent_depth depth = s.depth;
        bool shares = s.motion.noise.sigma == 0;
        assert_int_equal(found(&s, depth, &s.motion, 0), 0);
        assert_int_equal(found(&s, depth, &s.motion, 0), shares ? whole : 0);
        for (size_t n = 0; n < 3 && deepens && shares; n++) {
            depth.steps[0] = (uint16_t)rng_between(&s.p.r, 1, 9);
            assert_true(found(&s, depth, &s.motion, rng_below(&s.p.r, 40)) >= whole - 2 * PAGE_TOKENS);
        }
        assert_int_equal(found(&s, s.depth, &plain, 0), 0);
        assert_int_equal(found(&s, s.depth, &other, 0), 0);
        paged_down(&s.p);
    }
}

/* Noise is a function of its seed, of the token's place and of the step: other seeds, and tokens and steps that are nothing
 * else apart, differ; a larger T goes on from the same x(t). */
static void noise_is_of_its_place(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(DESCENDING); round++) {
        test_family chosen = descending[round % DESCENDING];
        setting s = set_up(411, round, NOISE, chosen);
        for (size_t i = 1; i < TEXT; i++) s.p.tokens[i] = s.p.tokens[0];
        descent_sequence_options how = {.depth = s.depth, .motion = s.motion};
        how.motion.n_scales = 0;
        outcome first = paged_alone(&s.p, &how, TEXT), again = paged_alone(&s.p, &how, TEXT);
        compare_outcomes(&first, &again);
        how.motion.noise.seed++;
        outcome other = paged_alone(&s.p, &how, TEXT);
        size_t same = 0;
        for (size_t i = 0; i < first.count * first.width; i++) same += first.states[i] == other.states[i];
        if (same > first.count * first.width / 50) compare_fail("%zu numbers are those of another seed", same);
        outcome_free(&first);
        outcome_free(&again);
        outcome_free(&other);
        paged_down(&s.p);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* A sequence holds what is said to be needed, and needs all of it. */
static void memory_is_as_reckoned(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * MOTIONS); round++) {
        motion_kind kind;
        test_family chosen;
        if (!choose(round % MOTIONS + round / MOTIONS * MOTIONS, &kind, &chosen)) continue;
        setting s = set_up(409, round, kind, chosen);
        const descent_model_info *info = descent_model_describe(s.p.engine);
        descent_sequence_options how = {.depth = s.depth, .motion = s.motion}, plain = {.depth = s.depth};
        uint64_t needed = descent_cache_bytes_needed(s.p.engine, DESCENT_PAGE_F32, TEXT, &how);
        uint64_t more = info->deepens && s.motion.momentum > 0 ? 4 * PAGE_TOKENS * (uint64_t)info->width * sizeof(float) : 0;
        assert_int_equal(needed, descent_cache_bytes_needed(s.p.engine, DESCENT_PAGE_F32, TEXT, &plain) + more);
        for (size_t n = 0; n < 2; n++) {
            descent_cache *cache = drive_cache(s.p.engine, DESCENT_PAGE_F32, needed - n);
            descent_batch *batch = drive_batch(cache, 0, 1);
            descent_sequence *sequence = drive_sequence_as(cache, &how, s.p.tokens, TEXT);
            descent_status status;
            descent_code code = descent_batch_finish(batch, sequence, &status);
            expect_code(code, n ? DESCENT_LIMIT : DESCENT_OK, &status, NULL);
            if (n == 0) assert_int_equal(descent_cache_describe(cache).bytes, needed);
            descent_sequence_destroy(sequence);
            descent_batch_destroy(batch);
            descent_cache_destroy(cache);
        }
        paged_down(&s.p);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

typedef struct refusal {
    descent_motion motion;
    const char *words;
} refusal;

static void what_is_no_motion_is_refused(void **state)
{
    static const refusal wrong[] = {{{.momentum = -0.125f}, "momentum is -0.125"},
                                    {{.momentum = 1.0f}, "momentum is 1; expected at least 0 and less than 1"},
                                    {{.momentum = NAN}, "momentum is"},
                                    {{.momentum = INFINITY}, "momentum is inf"},
                                    {{.rule = (descent_step_rule)2}, "step rule 2"},
                                    {{.noise = {.sigma = -0.5f}}, "noise sigma is -0.5"},
                                    {{.noise = {.sigma = NAN}}, "noise sigma is"},
                                    {{.noise = {.sigma = INFINITY}}, "noise sigma is inf"},
                                    {{.noise = {.sigma = 1, .schedule = (descent_noise_schedule)2}}, "noise schedule 2"}};
    static const refusal moving[] = {{{.momentum = 0.5f}, "does not descend an energy"},
                                     {{.noise = {.sigma = 0.5f}}, "does not descend an energy"}};
    static const refusal turning = {{.rule = DESCENT_RULE_ANGULAR}, "is for NRGPT"};
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        example_wish wish = {.family = chosen, .context = 8};
        example e = example_draw(test_seed(410, chosen), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_sequence *sequence = NULL;
        descent_status status;
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            descent_sequence_options how = {.motion = wrong[n].motion};
            descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
            expect_code(code, DESCENT_BAD_ARGUMENT, &status, wrong[n].words);
            assert_int_equal(descent_cache_bytes_needed(e.engine, DESCENT_PAGE_F32, 8, &how), UINT64_MAX);
        }
        for (size_t n = 0; n < sizeof moving / sizeof *moving && !test_descends(chosen); n++) {
            descent_sequence_options how = {.motion = moving[n].motion};
            descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
            expect_code(code, DESCENT_UNSUPPORTED, &status, moving[n].words);
        }
        descent_sequence_options how = {.motion = turning.motion};
        descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
        expect_code(code, chosen == TEST_NRGPT ? DESCENT_OK : DESCENT_UNSUPPORTED, &status,
                    chosen == TEST_NRGPT ? NULL : turning.words);
        descent_sequence_destroy(sequence);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(motions_are_the_references),
                                       cmocka_unit_test(motions_move),
                                       cmocka_unit_test(the_way_it_is_run_changes_nothing),
                                       cmocka_unit_test(interrupted_descents_go_on),
                                       cmocka_unit_test(pages_are_shared_between_equal_motions),
                                       cmocka_unit_test(noise_is_of_its_place),
                                       cmocka_unit_test(memory_is_as_reckoned),
                                       cmocka_unit_test(what_is_no_motion_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
