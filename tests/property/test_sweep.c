/* test_sweep.c: a sweep's measures are those of as many runs, each at one depth alone: for every family, with early exit, where
 * states diverge. Numbers against the references, and what a sweep costs: of a model that deepens, one pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "swept.h"

/* Row steps of all depths, and of the largest. */
static uint64_t count_steps(const swept *s, const test_model *model, uint64_t *largest)
{
    uint64_t all = 0;
    *largest = 0;
    for (size_t d = 0; d < s->options.n_depths; d++) {
        uint64_t steps = (s->options.count - 1) * row_steps_at(model, s->depths[d]);
        *largest = steps > *largest ? steps : *largest;
        all += steps;
    }
    return all;
}

static void a_sweep_measures_what_each_depth_is_alone(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8 * TEST_FAMILIES); round++) {
        example e = swept_example(400, round);
        swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
        descent_scheduler_options way = swept_ways[round % 3];
        way.cache.page_type = (descent_page_type)(round / 3 % DESCENT_PAGE_TYPES);
        swept_expect(e.engine, way.cache.page_type, s);
        swept_run(e.engine, s, &way);
        compare_swept(s, false);
        assert_false(s->result.shared);
        assert_int_equal(s->result.pauses, 0);
        free(s);
        example_free(&e);
    }
}

static void where_the_model_deepens_it_is_one_pass(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(3 * TEST_FAMILIES); round++) {
        example e = swept_example(401, round);
        swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
        uint64_t largest, all = count_steps(s, &e.model, &largest), wanted = test_deepens(e.model.family) ? largest : all;
        size_t twice = 0; /* what is asked again and again in a row is run once */
        for (size_t d = 1; d < s->options.n_depths; d++)
            if (!memcmp(&s->depths[d], &s->depths[d - 1], sizeof s->depths[d]))
                twice += (s->options.count - 1) * row_steps_at(&e.model, s->depths[d]);
        s->options.how.no_sharing = true; /* where a depth comes again, pages of its first time would do */
        swept_run(e.engine, s, &swept_ways[round % 2]);
        assert_int_equal(descent_sweep_steps(e.engine, s->depths, s->options.n_depths, NULL, s->options.count - 1), wanted);
        assert_int_equal(s->result.row_steps, test_deepens(e.model.family) ? largest : all - twice);
        free(s);
        example_free(&e);
    }
}

/* Each token stops where it does at each depth alone; those that all have stopped are read once more at the next one. */
static void early_exit_is_that_of_each_depth(void **state)
{
    static const float thresholds[] = {0.02f, 0.1f, 0.3f, 1.0f};
    uint64_t asked = 0;
    uint64_t saved = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(8 * TEST_FAMILIES); round++) {
        example e = swept_example(402, round);
        swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
        if (test_descends(e.model.family)) {
            size_t criteria = test_deepens(e.model.family) ? 6 : 3; /* layers have no logits on the way */
            descent_exit_criterion criterion = (descent_exit_criterion)(DESCENT_EXIT_STATE + rng_below(&e.r, criteria));
            float threshold = criterion == DESCENT_EXIT_ARGMAX ? (float)rng_between(&e.r, 1, 2) : thresholds[round / 3 % 4];
            s->options.how.exit = (descent_exit){.criterion = criterion, .threshold = threshold};
            s->options.how.exit.min_steps = (uint16_t)rng_between(&e.r, 1, 2);
            s->options.how.exit.first = rng_below(&e.r, 2) ? 0 : (uint32_t)rng_below(&e.r, s->options.count);
            if (rng_below(&e.r, 2)) s->options.how.motion = motion_scaled(0.75f);
            swept_expect(e.engine, DESCENT_PAGE_F32, s);
            swept_run(e.engine, s, &swept_ways[round % 3]);
            compare_swept(s, false);
            for (size_t d = 0; d < s->options.n_depths; d++)
                saved += (s->options.count - 1) * row_steps_at(&e.model, s->depths[d]) - s->measures[d].token_steps;
            for (size_t d = 0; d < s->options.n_depths; d++) asked += s->measures[d].cost.exit;
        }
        free(s);
        example_free(&e);
    }
    assert_true(saved > 0 && asked > 0);
}

/* Where x(t) is another at every T each depth is run by itself, and nothing is kept of the one before; what a prompt's tokens
 * take is counted. */
static void histories_are_those_of_each_depth(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(18); round++) {
        example e = swept_example(416, round * TEST_FAMILIES + TEST_NRGPT);
        swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
        descent_history *h = &s->options.how.history;
        h->policy = (descent_history_policy)(round % 3);
        if (rng_below(&e.r, 3)) h->prompt_steps = h->policy == DESCENT_HISTORY_OWN ? 7 : (uint32_t)rng_between(&e.r, 1, 7);
        h->prompt = (uint32_t)rng_below(&e.r, 99); /* not looked at */
        s->options.how.no_sharing = round % 2;
        if (rng_below(&e.r, 3) == 0) s->options.how.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 0.1f};
        swept_expect(e.engine, DESCENT_PAGE_F32, s);
        swept_run(e.engine, s, &swept_ways[round / 3 % 3]);
        compare_swept(s, false);
        uint64_t most = descent_sweep_steps(e.engine, s->depths, s->options.n_depths, h, s->options.count - 1), sum = 0;
        for (size_t d = 0; d < s->options.n_depths; d++) {
            bool again = false; /* what is asked again is measured once */
            for (size_t k = 0; k < d; k++) again = again || !memcmp(&s->depths[k], &s->depths[d], sizeof s->depths[d]);
            sum += again ? 0 : s->measures[d].token_steps;
        }
        assert_true(s->result.row_steps <= most);
        if (h->policy != DESCENT_HISTORY_OWN && s->options.how.no_sharing) assert_int_equal(s->result.row_steps, sum);
        free(s);
        example_free(&e);
    }
}

/* A solver that finds the end before its T has taken fewer steps. */
static void solvers_are_counted_by_their_steps(void **state)
{
    uint64_t saved = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        example e = swept_example(413, round * TEST_FAMILIES + TEST_NRGPT);
        swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
        s->options.n_depths = 1;
        s->depths[0] = (descent_depth){{20}};
        s->options.how.motion = (descent_motion){.n_scales = 0};
        s->options.how.solver = (descent_solver){.method = DESCENT_SOLVER_ANDERSON, .residual = 0.2f};
        swept_expect(e.engine, DESCENT_PAGE_F32, s);
        swept_run(e.engine, s, &swept_ways[round % 3]);
        compare_swept(s, false);
        saved += 20 * (s->options.count - 1) - s->measures[0].token_steps;
        free(s);
        example_free(&e);
    }
    assert_true(saved > 0);
}

/* ---- Against the references ---------------------------------------------------------------------------------------- */

/* What the reference makes of a measure, and how far from it one may be that is within tolerance everywhere. */
typedef struct bounds {
    double nats, energy, change;
    double nats_off, energy_off, change_off;
    size_t right, right_off, converged;
    bool close; /* some r is so near the threshold that it may lie on either side */
} bounds;

static double largest_of(const double *values, size_t n)
{
    double largest = 1;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(values[i]));
    return largest;
}

static void add_reference_prediction(const double *logits, size_t vocab, uint32_t token, bounds *b)
{
    double largest = logits[0], sum = 0, second = -INFINITY, tolerance = 2e-5 * largest_of(logits, vocab);
    size_t likeliest = 0;
    for (size_t v = 1; v < vocab; v++)
        if (logits[v] > largest) largest = logits[likeliest = v];
    for (size_t v = 0; v < vocab; v++) {
        sum += exp(logits[v] - largest);
        if (v != likeliest) second = fmax(second, logits[v]);
    }
    b->nats += log(sum) + largest - logits[token];
    b->nats_off += 2 * tolerance;
    b->right += likeliest == token;
    b->right_off += largest - second <= 2 * tolerance;
}

static void add_reference_ends(const reference_run *run, const example *e, size_t i, double threshold, bounds *b)
{
    double change = -1;
    for (size_t p = 0; p < run->programs; p++) {
        size_t kind = p % run->kinds;
        double energy = reference_energy(run->at[p] + run->steps[p], i);
        if (test_has_energy(e->model.family, kind)) {
            b->energy += energy;
            b->energy_off += 1e-4 * fmax(1, fabs(energy)) * DESCENT_MAX_TERMS;
        }
        if (test_has_depth(e->model.family, kind)) change = fmax(change, run->at[p][run->steps[p] - 1].relative_change[i]);
    }
    b->change += change;
    b->change_off += 1e-4 * fmax(1, fabs(change));
    b->converged += change < threshold;
    b->close = b->close || fabs(change - threshold) < 2e-4 * fmax(1, fabs(change));
}

static bool refer(const example *e, const swept *s, descent_depth depth, bounds *b)
{
    reference_request request = {
        .tokens = s->tokens, .count = s->options.count - 1, .depth = depth, .motion = s->options.how.motion};
    reference_run run = reference_compute(&e->model, &request);
    *b = (bounds){.nats = 0};
    for (size_t i = s->options.first - 1; i + 1 < s->options.count; i++) {
        add_reference_prediction(run.logits + i * run.vocab, run.vocab, s->tokens[i + 1], b);
        add_reference_ends(&run, e, i, (double)s->options.threshold, b);
    }
    bool steady = reference_sensitivity(&e->model, &request, &run) < 0.03;
    reference_free(&run);
    return steady && !b->close;
}

static void within(double got, double expected, double off, const char *what, size_t depth)
{
    if (!(fabs(got - expected) <= off))
        compare_fail("depth %zu: %s is %.9g, of the reference %.9g, allowed %.2g", depth, what, got, expected, off);
}

static void measures_are_the_references(void **state)
{
    size_t compared = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(6 * TEST_FAMILIES); round++) {
        example e = swept_example(403, round);
        swept *s = swept_draw(&e, &e.r, 50);
        bool depths = test_has_depth(e.model.family, 0) || test_has_depth(e.model.family, 1);
        s->options.energy = s->options.convergence = true;
        if (test_descends(e.model.family) && round % 2) s->options.how.motion = motion_scaled(1.25f);
        swept_run(e.engine, s, &swept_ways[0]);
        for (size_t d = 0; d < s->options.n_depths; d++) {
            const descent_measure *m = &s->measures[d];
            bounds b;
            if (!refer(&e, s, s->depths[d], &b)) continue;
            compared++;
            within(m->nats, b.nats, b.nats_off, "nats", d);
            within((double)m->right, (double)b.right, (double)b.right_off, "right", d);
            if (test_descends(e.model.family))
                within(m->energy, b.energy, b.energy_off, "energy", d);
            else
                assert_true(isnan(m->energy));
            if (depths) {
                within(m->relative_change, b.change, b.change_off, "r", d);
                assert_int_equal(m->converged, b.converged);
            } else {
                assert_true(isnan(m->relative_change));
            }
        }
        free(s);
        example_free(&e);
    }
    assert_true(compared > test_rounds(6 * TEST_FAMILIES));
}

/* ---- Ends ---------------------------------------------------------------------------------------------------------- */

/* Steps so long that states leave what floats hold after a few. */
static void lengthen_steps(test_model *model)
{
    double *rate = test_model_find(model, "blk.0.rate.weight");
    size_t n = !strcmp(model->rate, "matrix") ? model->width * model->width : !strcmp(model->rate, "diag") ? model->width : 1;
    for (size_t i = 0; i < n; i++) rate[i] = round_to_f32(rate[i] * 1e38);
}

static void depths_that_diverge_say_so(void **state)
{
    size_t finite = 0, mixed = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(24); round++) {
        example e = swept_example(409, round * TEST_FAMILIES + TEST_NRGPT);
        descent_model_close(e.engine);
        lengthen_steps(&e.model);
        e.engine = drive_open_test_model(&e.model);
        swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1), *healthy = swept_draw(&e, &e.r, 2);
        s->options.n_depths = SWEPT_DEPTHS;
        for (size_t d = 0; d < SWEPT_DEPTHS; d++) s->depths[d] = (descent_depth){{(uint16_t)rng_between(&e.r, 1, 12)}};
        swept_expect(e.engine, DESCENT_PAGE_F32, s);
        swept_run(e.engine, s, &swept_ways[round % 3]);
        compare_swept(s, false);
        size_t ok = 0;
        for (size_t d = 0; d < SWEPT_DEPTHS; d++) ok += s->measures[d].code == DESCENT_OK;
        if (ok < SWEPT_DEPTHS) expect_code(s->result.status.code, DESCENT_DIVERGED, &s->result.status, "diverged at token");
        finite += ok;
        mixed += ok > 0 && ok < SWEPT_DEPTHS;
        free(healthy);
        free(s);
        example_free(&e);
    }
    assert_true(finite > 0 && mixed > 0);
}

/* Where each depth is a run of its own, one that diverges leaves the others as they are: attention goes too far with its
 * second step. */
static void a_depth_that_diverges_leaves_the_others(void **state)
{
    size_t mixed = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        rng r = rng_seeded(test_seed(410, round));
        test_model model = random_shape(&r, TEST_CEM, SWEPT_CONTEXT);
        model.eta_entries = 2;
        random_weights(&model, &r);
        double *eta = test_model_find(&model, "blk.0.attn_eta");
        if (!eta) eta = test_model_find(&model, "blk.0.attn_eta.weight");
        assert_non_null(eta);
        eta[1] = round_to_f32(3e38);
        example e = {.r = r, .model = model, .engine = drive_open_test_model(&model)};
        swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
        s->options.count = s->options.count < 12 ? 12 : s->options.count;
        s->options.first = 1;
        for (size_t i = 0; i < s->options.count; i++) s->tokens[i] = (uint32_t)rng_below(&r, model.vocab);
        s->options.n_depths = 4;
        static const descent_depth depths[] = {{{2, 1}}, {{1, 1}}, {{3, 2}}, {{1, 3}}};
        memcpy(s->depths, depths, sizeof depths);
        swept_expect(e.engine, DESCENT_PAGE_F32, s);
        swept_run(e.engine, s, &swept_ways[round % 3]);
        compare_swept(s, false);
        for (size_t d = 1; d < 4; d += 2) assert_int_equal(s->measures[d].code, DESCENT_OK);
        mixed += s->measures[0].code == DESCENT_DIVERGED;
        free(s);
        descent_model_close(e.engine);
        test_model_free(&model);
    }
    assert_true(mixed > 0);
}

/* ---- What may be asked --------------------------------------------------------------------------------------------- */

static void never(void *user, const descent_sweep_result *result)
{
    (void)user;
    compare_fail("a sweep that was refused ended: %d", result->end);
}

static void refuse(descent_scheduler *scheduler, const descent_sweep_options *options, descent_code code, const char *words)
{
    descent_generation *handle = NULL;
    descent_status status;
    expect_code(descent_scheduler_sweep(scheduler, options, &handle, &status), code, &status, words);
    assert_null(handle);
}

static void what_cannot_be_swept_is_refused(void **state)
{
    (void)state;
    example e = swept_example(411, TEST_NRGPT);
    descent_scheduler_options little = {.threads = 1, .cache.byte_limit = 1000};
    descent_scheduler *scheduler = scheduled_start(e.engine, &swept_ways[0]), *small = scheduled_start(e.engine, &little);
    swept *s = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
    const descent_sweep_options good = {
        .tokens = s->tokens, .count = 20, .first = 1, .depths = s->depths, .n_depths = 1, .done = never};
    descent_sweep_options o;
    descent_depth wide = {{1, 1}};
    uint32_t unknown[] = {0, 0, (uint32_t)e.model.vocab};
    s->depths[0] = (descent_depth){{2}};
    memset(s->tokens, 0, sizeof s->tokens);
    o = good, o.count = 1, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "an input of 1 tokens");
    o = good, o.count = SWEPT_CONTEXT + 2, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "expected 2 to 81");
    o = good, o.tokens = NULL, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "an input of 0 tokens");
    o = good, o.tokens = unknown, o.count = 3, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "at position 2");
    o = good, o.first = 0, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "first position predicted is 0");
    o = good, o.first = 20, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "expected 1 to 19");
    o = good, o.n_depths = 0, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "0 depths");
    o = good, o.n_depths = DESCENT_SWEEP_DEPTHS + 1, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "expected 1 to 1024");
    o = good, o.depths = &wide, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, NULL);
    o = good, o.done = NULL, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "done");
    o = good, o.convergence = true, o.threshold = NAN, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "threshold of convergence");
    o = good, o.how.motion = motion_scaled(9), refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "step_scale");
    refuse(small, &good, DESCENT_LIMIT, "its limit is 1000");
    free(s);
    descent_scheduler_destroy(scheduler);
    descent_scheduler_destroy(small);
    example_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sweep_measures_what_each_depth_is_alone),
                                       cmocka_unit_test(where_the_model_deepens_it_is_one_pass),
                                       cmocka_unit_test(early_exit_is_that_of_each_depth),
                                       cmocka_unit_test(histories_are_those_of_each_depth),
                                       cmocka_unit_test(solvers_are_counted_by_their_steps),
                                       cmocka_unit_test(measures_are_the_references),
                                       cmocka_unit_test(depths_that_diverge_say_so),
                                       cmocka_unit_test(a_depth_that_diverges_leaves_the_others),
                                       cmocka_unit_test(what_cannot_be_swept_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
