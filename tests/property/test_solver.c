/* test_solver.c: Anderson's method (descent_solver): its steps and its ends against the references; that what it ends at is
 * where plain steps end as well, where both converge, and stands still; that it says where it did not; the same bits whatever
 * way it is run, and pages for who asks the same. Pages hold 32 tokens (engine/cache.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "compare.h"
#include "example.h"
#include "model_file.h"

static descent_solver anderson(uint32_t nstep, float residual)
{
    return (descent_solver){.method = DESCENT_SOLVER_ANDERSON, .nstep = nstep, .residual = residual};
}

static void wide_enough(test_model *model)
{
    if (model->width < 12) model->width = 12;
}

static bool no_near_choice(void)
{
    return reference_choices() >
           20.0; /* well off every edge: changes that are nearly others of them carry the rounding of states */
}

/* ---- Against the references -------------------------------------------------------------------------------------- */

static void steps_are_the_references(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(48); round++) {
        rng r = rng_seeded(test_seed(420, round));
        example_wish wish = {.family = TEST_NRGPT, .context = 24, .most = 4, .adjust = wide_enough, .accept = no_near_choice};
        wish.solver = anderson((uint32_t)rng_below(&r, 5), 0);
        if (rng_below(&r, 2)) wish.motion = (descent_motion){.n_scales = 2, .step_scale = {1.0f, 0.5f}};
        example e = example_draw(test_seed(421, round), &wish);
        drive_options options = {.depth = e.depth,
                                 .motion = wish.motion,
                                 .solver = wish.solver,
                                 .chunks = (drive_chunks)(round % 3),
                                 .mates = round % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcome(&got, &e.expected);
        outcome_free(&got);
        example_free(&e);
    }
    compare_report();
}

typedef struct ends {
    size_t converged, not_converged, early;
} ends;

/* The sequence's steps and ends are the run's. Who stops with the last step may have converged or not. */
static void compare_ends(const descent_sequence *sequence, const reference_run *run, ends *seen)
{
    for (size_t i = 0; i < run->count; i++) {
        size_t used = run->used[0][i];
        if (descent_sequence_token_steps(sequence, i) != used)
            compare_fail("token %zu took %u steps, expected %zu", i, descent_sequence_token_steps(sequence, i), used);
        bool converged = descent_sequence_converged(sequence, i), early = used < run->steps[0];
        if (early && !converged) compare_fail("token %zu has converged and it is said that it has not", i);
        seen->early += early;
        seen->converged += converged;
        seen->not_converged += !converged;
    }
}

static void ends_are_the_references(void **state)
{
    ends seen = {0};
    size_t rounds = test_rounds(32);
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        example_wish wish = {.family = TEST_NRGPT, .context = 20, .most = 4, .adjust = wide_enough, .accept = no_near_choice};
        wish.solver = anderson(2, 0);
        example e = example_draw(test_seed(422, round), &wish);
        reference_run expected = {0};
        for (size_t draws = 0;; draws++) {
            if (draws == 1000) compare_fail("no residual that is far from every one met");
            wish.solver.residual = (float)rng_between(&e.r, 1, 400) / 200;
            reference_request request = {.tokens = e.tokens, .count = e.count, .depth = e.depth, .solver = wish.solver};
            expected = reference_compute(&e.model, &request);
            if (expected.closest > 1e-3 && no_near_choice() && reference_sensitivity(&e.model, &request, &expected) < 0.03)
                break;
            reference_free(&expected);
        }
        drive_options options = {.depth = e.depth,
                                 .solver = wish.solver,
                                 .chunks = (drive_chunks)(round % 3),
                                 .mates = round % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        compare_about("seed %llu, %s, residual %g", (unsigned long long)test_seed(422, round), test_model_words(&e.model),
                      (double)wish.solver.residual);
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcome(&got, &expected);
        outcome_free(&got);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence_options how = {.depth = e.depth, .solver = wish.solver};
        descent_sequence *sequence = drive_sequence_as(cache, &how, e.tokens, e.count);
        drive_finish(batch, sequence);
        compare_ends(sequence, &expected, &seen);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        reference_free(&expected);
        example_free(&e);
    }
    if (rounds == 32) assert_true(seen.converged > 0 && seen.not_converged > 0 && seen.early > 0);
}

/* ---- The limit --------------------------------------------------------------------------------------------------- */

static void tiny_epsilon(test_model *model)
{
    model->norm_epsilon = 1e-12;
}

typedef struct limit {
    outcome out;
    size_t unconverged;
    uint64_t steps;
} limit;

static limit run_to(const example *e, descent_depth depth, const descent_motion *motion, const descent_solver *solver)
{
    limit l = {.unconverged = 0};
    descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = {.depth = depth, .motion = *motion, .solver = *solver};
    descent_sequence *sequence = drive_sequence_as(cache, &how, e->tokens, e->count);
    drive_finish(batch, sequence);
    l.out = drive_read(batch, e->engine, sequence);
    l.steps = descent_sequence_steps_run(sequence);
    for (size_t i = 0; i < e->count; i++) l.unconverged += !descent_sequence_converged(sequence, i);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return l;
}

static double farthest(const outcome *a, const outcome *b)
{
    double most = 0;
    for (size_t i = 0; i < a->count * a->vocab; i++) most = fmax(most, fabs((double)a->logits[i] - (double)b->logits[i]));
    return most;
}

/* |a - b| of directions of states, the largest of all tokens. */
static double turned(const outcome *a, const outcome *b, bool centred)
{
    double most = 0;
    for (size_t i = 0; i < a->count; i++) {
        const float *x = a->states + i * a->width, *y = b->states + i * b->width;
        double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;
        for (size_t c = 0; c < a->width && centred; c++) {
            mean_x += (double)x[c] / (double)a->width;
            mean_y += (double)y[c] / (double)a->width;
        }
        for (size_t c = 0; c < a->width; c++) {
            double p = (double)x[c] - mean_x, q = (double)y[c] - mean_y;
            xx += p * p;
            yy += q * q;
            xy += p * q;
        }
        most = fmax(most, sqrt(fmax(0, 2 - 2 * xy / sqrt(xx * yy))));
    }
    return most;
}

/* All tokens of a solved text begin once more, with what they ended at: an angular step turns none of them. */
static void expect_rest(const example *e, const outcome *solved)
{
    descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = {.depth = depth_of(TEST_NRGPT, 1, 0), .motion = {.rule = DESCENT_RULE_ANGULAR}};
    descent_sequence *sequence = drive_sequence_as(cache, &how, e->tokens, e->count);
    descent_status status;
    for (size_t i = 0; i < e->count; i++) {
        const float *x = solved->states + i * solved->width;
        expect_ok(descent_sequence_start(sequence, (descent_site){.position = i}, x, &status), &status);
    }
    drive_finish(batch, sequence);
    outcome moved = drive_read(batch, e->engine, sequence);
    double far = turned(&moved, solved, !e->model.rms);
    if (!(far < 1e-3)) compare_fail("a step turns a solved token by %g", far);
    outcome_free(&moved);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
}

/* Of an NRGPT angular steps have a limit in x; where 600 and 1,200 of them end at the same logits, Anderson's end is that. */
static void it_ends_where_angular_steps_end(void **state)
{
    size_t compared = 0, fewer = 0, rested = 0, rounds = test_rounds(24);
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        example_wish wish = {.family = TEST_NRGPT, .context = 8, .most = 2, .adjust = tiny_epsilon};
        example e = example_draw(test_seed(423, round), &wish);
        const descent_motion turning = {.rule = DESCENT_RULE_ANGULAR, .n_scales = 1, .step_scale = {0.25f}};
        const descent_motion quarter = {.n_scales = 1, .step_scale = {0.25f}};
        const descent_solver plain = {.method = DESCENT_SOLVER_PLAIN}, solver = anderson(5, 1e-5f);
        limit half = run_to(&e, depth_of(TEST_NRGPT, 600, 0), &turning, &plain);
        limit all = run_to(&e, depth_of(TEST_NRGPT, 1200, 0), &turning, &plain);
        limit solved = run_to(&e, depth_of(TEST_NRGPT, 400, 0), &quarter, &solver);
        bool both = solved.unconverged == 0 && farthest(&half.out, &all.out) < 1e-4;
        if (both && farthest(&solved.out, &all.out) > 1e-3)
            compare_fail("logits are %g from those of 1200 angular steps", farthest(&solved.out, &all.out));
        if (solved.unconverged == 0) expect_rest(&e, &solved.out);
        compared += both;
        rested += solved.unconverged == 0;
        fewer += both && solved.steps < 200 * e.count;
        outcome_free(&half.out);
        outcome_free(&all.out);
        outcome_free(&solved.out);
        example_free(&e);
    }
    if (rounds == 24) assert_true(compared >= 5 && fewer >= 5 && rested >= 10);
}

/* x of plain steps never rests, but what norms see of it does, more and more slowly: where Anderson's end is that of angular
 * steps, more plain steps come nearer to it. */
static void it_ends_where_plain_steps_lead(void **state)
{
    size_t compared = 0, nearer = 0, rounds = test_rounds(24);
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        example_wish wish = {.family = TEST_NRGPT, .context = 8, .most = 2, .adjust = tiny_epsilon};
        example e = example_draw(test_seed(423, round), &wish);
        const descent_motion none = {.n_scales = 0}, quarter = {.n_scales = 1, .step_scale = {0.25f}};
        const descent_solver plain = {.method = DESCENT_SOLVER_PLAIN}, solver = anderson(5, 1e-5f);
        limit some = run_to(&e, depth_of(TEST_NRGPT, 100, 0), &none, &plain);
        limit more = run_to(&e, depth_of(TEST_NRGPT, 3000, 0), &none, &plain);
        limit solved = run_to(&e, depth_of(TEST_NRGPT, 400, 0), &quarter, &solver);
        double before = turned(&some.out, &solved.out, !e.model.rms), after = turned(&more.out, &solved.out, !e.model.rms);
        if (solved.unconverged == 0 && after < 0.3) {
            compared++;
            nearer += after < before / 2 || after < 1e-3;
        }
        outcome_free(&some.out);
        outcome_free(&more.out);
        outcome_free(&solved.out);
        example_free(&e);
    }
    if (getenv("DESCENT_TEST_MARGINS")) print_message("%zu compared, %zu nearer\n", compared, nearer);
    if (rounds == 24) assert_true(compared >= 2 && nearer == compared);
}

/* ---- Ways to run it ---------------------------------------------------------------------------------------------- */

enum { TEXT = 2 * PAGE_TOKENS + 9 };

typedef struct setting {
    rng r;
    example e;
    descent_sequence_options how;
    descent_cache *cache;
    descent_batch *batch;
} setting;

/* A text of TEXT tokens whose solver is through in the middle of many descents. */
static setting set_up(uint64_t test, size_t round)
{
    example_wish wish = {.family = TEST_NRGPT, .context = TEXT, .count = TEXT, .most = 2};
    setting s = {.r = rng_seeded(test_seed(test, round)), .e = example_draw(test_seed(test, round), &wish)};
    s.how =
        (descent_sequence_options){.depth = depth_of(TEST_NRGPT, 12, 0),
                                   .motion = motion_scaled(0.25f),
                                   .solver = anderson((uint32_t)rng_between(&s.r, 1, 6), (float)rng_between(&s.r, 5, 60) / 50)};
    s.cache = drive_cache(s.e.engine, DESCENT_PAGE_F32, 0);
    s.batch = drive_batch(s.cache, 0, 1);
    return s;
}

static void tear_down(setting *s)
{
    descent_batch_destroy(s->batch);
    descent_cache_destroy(s->cache);
    example_free(&s->e);
}

static void expect_alone(const setting *s, const descent_sequence *sequence)
{
    drive_options options = {.depth = descent_sequence_depth(sequence), .motion = s->how.motion, .solver = s->how.solver};
    outcome expected = drive(s->e.engine, s->e.tokens, TEXT, &options), got = drive_read(s->batch, s->e.engine, sequence);
    compare_outcomes(&got, &expected);
    outcome_free(&got);
    outcome_free(&expected);
}

static void the_way_it_is_run_changes_nothing(void **state)
{
    static const drive_options ways[] = {{.threads = 4, .observe = OBSERVE_ALL},
                                         {.max_rows = 1},
                                         {.max_rows = 3, .mates = 4, .chunks = DRIVE_UNEVEN},
                                         {.chunks = DRIVE_UNEVEN, .mates = 20, .sharing = true, .threads = 2},
                                         {.chunks = DRIVE_SINGLE, .mates = 7, .sharing = true}};
    size_t stopped = 0, ended = 0, rounds = test_rounds(6);
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        setting s = set_up(425, round);
        descent_sequence *sequence = drive_sequence_as(s.cache, &s.how, s.e.tokens, TEXT);
        drive_finish(s.batch, sequence);
        for (size_t i = 0; i < TEXT; i++) {
            stopped += descent_sequence_token_steps(sequence, i) < 12;
            ended += !descent_sequence_converged(sequence, i);
        }
        outcome expected = drive_read(s.batch, s.e.engine, sequence);
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            drive_options options = ways[way];
            options.depth = s.how.depth;
            options.motion = s.how.motion;
            options.solver = s.how.solver;
            options.seed = test_seed(426, round * 100 + way);
            compare_about("seed %llu, %s, way %zu", (unsigned long long)test_seed(425, round), test_model_words(&s.e.model),
                          way);
            outcome got = drive(s.e.engine, s.e.tokens, TEXT, &options);
            compare_outcomes(&got, &expected);
            outcome_free(&got);
        }
        outcome_free(&expected);
        descent_sequence_destroy(sequence);
        tear_down(&s);
    }
    if (rounds == 6) assert_true(stopped > 0 && ended > 0);
}

/* Rows leave in the middle and begin again, tokens are cut off and come back, T changes, and all of it goes through a file. */
static void interrupted_descents_begin_again(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        setting s = set_up(427, round);
        descent_sequence *sequence = drive_sequence_as(s.cache, &s.how, s.e.tokens, TEXT);
        descent_status status;
        for (size_t n = 0; n < 10; n++) {
            size_t added, kept = rng_between(&s.r, 1, TEXT);
            expect_ok(descent_batch_add(s.batch, sequence, rng_between(&s.r, 1, TEXT), &added, &status), &status);
            for (size_t steps = rng_below(&s.r, 14); steps > 0; steps--)
                expect_ok(descent_batch_step(s.batch, NULL, &status), &status);
            descent_batch_remove(s.batch, sequence);
            if (n % 5 == 1) {
                expect_ok(descent_sequence_truncate(sequence, kept, &status), &status);
                drive_append(sequence, s.e.tokens + kept, TEXT - kept);
            }
            if (n % 5 == 2) {
                expect_ok(descent_sequence_save(sequence, scratch_path("solved"), &status), &status);
                descent_sequence_destroy(sequence);
                expect_ok(descent_sequence_restore(s.cache, scratch_path("solved"), &sequence, &status), &status);
            }
            descent_depth other = depth_of(TEST_NRGPT, rng_between(&s.r, 9, 14), 0);
            if (n % 5 == 3) expect_ok(descent_sequence_set_depth(sequence, other, &status), &status);
        }
        drive_finish(s.batch, sequence);
        expect_alone(&s, sequence);
        descent_sequence_destroy(sequence);
        tear_down(&s);
    }
}

/* A descent that is begun again at another T, and altered: tokens wait until its first one has come to rest anew. */
static void what_rested_once_does_not_rest_for_ever(void **state)
{
    size_t later = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(24); round++) {
        setting s = set_up(429, round);
        descent_status status;
        size_t width = descent_model_describe(s.e.engine)->width;
        float *values = test_alloc(width, sizeof *values);
        uint32_t before = 0;
        for (size_t c = 0; c < width; c++) values[c] = (float)rng_below(&s.r, 2000) / 500.0f - 2.0f;
        outcome got[2];
        s.how.no_sharing = true;
        for (size_t way = 0; way < 2; way++) {
            size_t added;
            descent_depth depth = s.how.depth;
            descent_sequence *sequence = drive_sequence_as(s.cache, &s.how, s.e.tokens, TEXT);
            if (way == 0) {
                expect_ok(descent_batch_add(s.batch, sequence, 1, &added, &status), &status);
                while (descent_batch_rows(s.batch) > 0) expect_ok(descent_batch_step(s.batch, NULL, &status), &status);
                before = descent_sequence_token_steps(sequence, 0);
            }
            depth.steps[0] = 40;
            expect_ok(descent_sequence_set_depth(sequence, depth, &status), &status);
            expect_ok(descent_sequence_intervene(sequence, (descent_site){.step = before - 1}, DESCENT_SET_X, values, &status),
                      &status);
            drive_finish(s.batch, sequence);
            later += way == 0 && descent_sequence_token_steps(sequence, 0) > before;
            got[way] = drive_read(s.batch, s.e.engine, sequence);
            descent_sequence_destroy(sequence);
        }
        compare_outcomes(&got[0], &got[1]);
        outcome_free(&got[0]);
        outcome_free(&got[1]);
        free(values);
        tear_down(&s);
    }
    assert_true(later > 0);
}

static void pages_are_shared_between_equal_solvers(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(4); round++) {
        setting s = set_up(428, round);
        descent_sequence_options asked[] = {s.how, s.how, s.how, s.how, s.how, s.how};
        const size_t found[] = {0, 2 * PAGE_TOKENS, 0, 0, 0, 0};
        asked[2].depth.steps[0]++;
        asked[3].solver.nstep++;
        asked[4].solver.residual *= 2;
        asked[5].solver = (descent_solver){.method = DESCENT_SOLVER_PLAIN, .nstep = 3};
        for (size_t n = 0; n < 6; n++) {
            s.how = asked[n];
            descent_sequence *sequence = drive_sequence_as(s.cache, &s.how, s.e.tokens, TEXT);
            assert_int_equal(descent_sequence_reused(sequence), found[n]);
            drive_finish(s.batch, sequence);
            expect_alone(&s, sequence);
            descent_sequence_destroy(sequence);
        }
        tear_down(&s);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void what_it_does_not_go_with_is_refused(void **state)
{
    const descent_solver right = {.method = DESCENT_SOLVER_ANDERSON};
    const struct {
        descent_sequence_options how;
        const char *words;
    } wrong[] = {{{.solver = {.method = (descent_solver_method)2}}, "solver method 2"},
                 {{.solver = anderson(17, 0)}, "nstep is 17; expected at most 16"},
                 {{.solver = anderson(1, -0.5f)}, "residual is -0.5"},
                 {{.solver = anderson(1, NAN)}, "residual is"},
                 {{.solver = anderson(1, INFINITY)}, "residual is inf"},
                 {{.solver = right, .motion = {.momentum = 0.5f}}, "momentum"},
                 {{.solver = right, .motion = {.rule = DESCENT_RULE_ANGULAR}}, "a step rule"},
                 {{.solver = right, .motion = {.noise = {.sigma = 1}}}, "noise"},
                 {{.solver = right, .exit = {.criterion = DESCENT_EXIT_STATE, .threshold = 1}}, "early exit"}};
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        example_wish wish = {.family = chosen, .context = 8};
        example e = example_draw(test_seed(429, chosen), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_sequence *sequence = NULL;
        descent_status status;
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong && chosen == TEST_NRGPT; n++)
            expect_code(descent_sequence_create(cache, &wrong[n].how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status,
                        wrong[n].words);
        descent_sequence_options how = {.solver = right};
        descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
        expect_code(code, chosen == TEST_NRGPT ? DESCENT_OK : DESCENT_UNSUPPORTED, &status,
                    chosen == TEST_NRGPT ? NULL : "is for NRGPT");
        descent_sequence_destroy(sequence);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_the_references),
                                       cmocka_unit_test(ends_are_the_references),
                                       cmocka_unit_test(it_ends_where_angular_steps_end),
                                       cmocka_unit_test(it_ends_where_plain_steps_lead),
                                       cmocka_unit_test(the_way_it_is_run_changes_nothing),
                                       cmocka_unit_test(interrupted_descents_begin_again),
                                       cmocka_unit_test(what_rested_once_does_not_rest_for_ever),
                                       cmocka_unit_test(pages_are_shared_between_equal_solvers),
                                       cmocka_unit_test(what_it_does_not_go_with_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
