/* test_scaling.c: summing up measures. Sums and quotients by hand; intervals against resampling written down once more,
 * plainly, and against a distribution whose interval is known; differences of depths, resampled together; what cannot be summed
 * up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drive.h"
#include "random.h"
#include "rng.h"
#include "test_model.h"

enum { INPUTS = 60, DEPTHS = 3 };

static descent_measure measure(uint16_t depth, uint64_t predictions, double nats)
{
    return (descent_measure){.depth = {{depth}},
                             .predictions = predictions,
                             .bytes = 3 * predictions,
                             .nats = nats,
                             .items = predictions,
                             .right = predictions / 2,
                             .tokens = predictions,
                             .token_steps = predictions * depth,
                             .cost = {predictions, 2 * predictions, 3 * predictions, 4 * predictions},
                             .energy = -2 * nats,
                             .relative_change = 0.5 * (double)predictions,
                             .converged = predictions / 4,
                             .seconds = 0.25};
}

static void summarize(const descent_measure *measures, const uint64_t *units, size_t n_inputs, size_t n_depths,
                      const descent_scaling_options *options, descent_scaling_row *rows)
{
    descent_status status;
    expect_ok(descent_scaling_summarize(measures, units, n_inputs, n_depths, options, rows, &status), &status);
}

static void near(double got, double expected, double off)
{
    if (!(fabs(got - expected) <= off)) fail_msg("%.17g, expected %.17g within %.2g", got, expected, off);
}

/* Two inputs at two depths. */
static void sums_and_quotients(void **state)
{
    const descent_measure of[] = {measure(2, 4, 8.0), measure(8, 4, 6.0), measure(2, 12, 20.0), measure(8, 12, 13.0)};
    const descent_scaling_options options = {.reference = 1, .resamples = 10};
    descent_scaling_row rows[2];
    (void)state;
    summarize(of, NULL, 2, 2, &options, rows);
    for (size_t d = 0; d < 2; d++) {
        const descent_scaling_row *row = &rows[d];
        const descent_estimate *m = row->metrics;
        double nats = d ? 19 : 28;
        assert_int_equal(row->sum.depth.steps[0], d ? 8 : 2);
        assert_int_equal(row->inputs, 2);
        assert_int_equal(row->diverged, 0);
        assert_int_equal(row->sum.predictions, 16);
        assert_int_equal(row->sum.bytes, 48);
        assert_int_equal(row->sum.right, 8);
        assert_int_equal(row->sum.token_steps, 16 * (d ? 8 : 2));
        assert_int_equal(row->sum.cost.weights, 16);
        assert_int_equal(row->sum.cost.attention, 32);
        assert_int_equal(row->sum.cost.head, 48);
        assert_int_equal(row->sum.cost.exit, 64);
        near(row->sum.seconds, 0.5, 0);
        near(m[DESCENT_METRIC_LOSS].value, nats / 16, 1e-15);
        near(m[DESCENT_METRIC_PERPLEXITY].value, exp(nats / 16), 1e-14);
        near(m[DESCENT_METRIC_BITS].value, nats / (48 * log(2)), 1e-15);
        near(m[DESCENT_METRIC_ACCURACY].value, 0.5, 0);
        near(m[DESCENT_METRIC_ENERGY].value, -2 * nats / 16, 1e-15);
        near(m[DESCENT_METRIC_CHANGE].value, 0.5, 0);
        near(m[DESCENT_METRIC_CONVERGED].value, 0.25, 0);
        near(row->difference[DESCENT_METRIC_LOSS].value, d ? 0 : 9.0 / 16, 1e-15);
        near(row->difference[DESCENT_METRIC_ENERGY].value, d ? 0 : -18.0 / 16, 1e-15);
    }
    near(rows[1].difference[DESCENT_METRIC_LOSS].low, 0, 0);
    near(rows[1].difference[DESCENT_METRIC_LOSS].high, 0, 0);
}

static void draw_measures(rng *r, descent_measure measures[INPUTS][DEPTHS], uint64_t units[INPUTS])
{
    for (size_t i = 0; i < INPUTS; i++) {
        uint64_t predictions = rng_between(r, 4, 40);
        units[i] = i > 0 && rng_below(r, 3) ? units[i - 1] : rng_next(r);
        for (size_t d = 0; d < DEPTHS; d++) {
            measures[i][d] = measure((uint16_t)(d + 1), predictions, (2 + rng_normal(r) / 4) * (double)predictions);
            measures[i][d].right = rng_below(r, predictions + 1);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Ranks of n values lie between 0 and n - 1. */
static double at_share(const double *sorted, size_t n, double share)
{
    double rank = share * (double)(n - 1), below = floor(rank);
    size_t i = (size_t)below, next = i + 1 < n ? i + 1 : i;
    return sorted[i] * (1 - (rank - below)) + sorted[next] * (rank - below);
}

/* Loss and accuracy of depth `d` over the units of one resample, put together input by input. */
static void resampled(descent_measure measures[INPUTS][DEPTHS], const uint64_t *units, const uint64_t *distinct,
                      size_t n_distinct, uint64_t seed, uint32_t which, size_t d, double *loss, double *accuracy)
{
    double nats = 0, predictions = 0, right = 0, items = 0;
    for (size_t k = 0; k < n_distinct; k++) {
        uint64_t unit = distinct[(size_t)(descent_random_uniform((int64_t)seed, which, UINT32_MAX, k) * (double)n_distinct)];
        for (size_t i = 0; i < INPUTS; i++) {
            if (units[i] != unit) continue;
            nats += measures[i][d].nats;
            predictions += (double)measures[i][d].predictions;
            right += (double)measures[i][d].right;
            items += (double)measures[i][d].items;
        }
    }
    *loss = nats / predictions;
    *accuracy = right / items;
}

static void intervals_are_percentiles_over_resamples_of_units(void **state)
{
    (void)state;
    for (size_t round = 0; round < 5; round++) {
        rng r = rng_seeded(500 + round);
        descent_measure measures[INPUTS][DEPTHS];
        uint64_t units[INPUTS], distinct[INPUTS];
        size_t n_distinct = 0;
        draw_measures(&r, measures, units);
        for (size_t i = 0; i < INPUTS; i++) {
            size_t k = 0;
            while (k < n_distinct && distinct[k] != units[i]) k++;
            if (k == n_distinct) distinct[n_distinct++] = units[i];
        }
        const descent_scaling_options options = {.resamples = 101, .level = 0.8, .seed = rng_next(&r), .reference = 2};
        descent_scaling_row rows[DEPTHS];
        summarize(&measures[0][0], units, INPUTS, DEPTHS, &options, rows);
        for (size_t d = 0; d < DEPTHS; d++) {
            double losses[101], accuracies[101], differences[101], unused, reference;
            for (uint32_t b = 0; b < 101; b++) {
                resampled(measures, units, distinct, n_distinct, options.seed, b, d, &losses[b], &accuracies[b]);
                resampled(measures, units, distinct, n_distinct, options.seed, b, 2, &reference, &unused);
                differences[b] = losses[b] - reference;
            }
            qsort(losses, 101, sizeof *losses, by_value);
            qsort(accuracies, 101, sizeof *accuracies, by_value);
            qsort(differences, 101, sizeof *differences, by_value);
            near(rows[d].metrics[DESCENT_METRIC_LOSS].low, at_share(losses, 101, 0.1), 1e-12);
            near(rows[d].metrics[DESCENT_METRIC_LOSS].high, at_share(losses, 101, 0.9), 1e-12);
            near(rows[d].metrics[DESCENT_METRIC_ACCURACY].low, at_share(accuracies, 101, 0.1), 1e-12);
            near(rows[d].metrics[DESCENT_METRIC_ACCURACY].high, at_share(accuracies, 101, 0.9), 1e-12);
            near(rows[d].difference[DESCENT_METRIC_LOSS].low, at_share(differences, 101, 0.1), 1e-12);
            near(rows[d].difference[DESCENT_METRIC_LOSS].high, at_share(differences, 101, 0.9), 1e-12);
        }
        descent_scaling_row again[DEPTHS];
        summarize(&measures[0][0], units, INPUTS, DEPTHS, &options, again);
        assert_memory_equal(rows, again, sizeof rows);
    }
}

/* Means of n normal numbers lie within 1.96 deviations / sqrt(n) of theirs, 95 times of 100. Eight inputs that are alike are
 * one unit: counted one by one they would seem to say more than they do. */
static void known_intervals(void **state)
{
    enum { UNITS = 400, ALIKE = 8 };
    descent_measure *measures = test_alloc(UNITS * ALIKE, sizeof *measures);
    uint64_t *units = test_alloc(UNITS * ALIKE, sizeof *units);
    rng r = rng_seeded(600);
    double squares = 0, mean = 0;
    (void)state;
    for (size_t u = 0; u < UNITS; u++) {
        double nats = 3 + rng_normal(&r);
        mean += nats / UNITS;
        squares += nats * nats / UNITS;
        for (size_t i = 0; i < ALIKE; i++) {
            measures[u * ALIKE + i] = measure(1, 1, nats);
            units[u * ALIKE + i] = u;
        }
    }
    double deviation = sqrt(squares - mean * mean), half = 1.96 * deviation / sqrt(UNITS);
    descent_scaling_options options = {.resamples = 4000};
    descent_scaling_row row;
    summarize(measures, units, UNITS * ALIKE, 1, &options, &row);
    const descent_estimate *loss = &row.metrics[DESCENT_METRIC_LOSS];
    near(loss->value, mean, 1e-12);
    near((loss->high - loss->low) / 2, half, 0.06 * half);
    near((loss->high + loss->low) / 2, mean, 0.06 * half);
    summarize(measures, NULL, UNITS * ALIKE, 1, &options, &row);
    near((loss->high - loss->low) / 2, half / sqrt(ALIKE), 0.06 * half / sqrt(ALIKE));
    free(measures);
    free(units);
}

/* Inputs differ much, depths by the same small number on each: the difference is certain, where intervals overlap. */
static void differences_are_paired(void **state)
{
    descent_measure measures[INPUTS][2];
    rng r = rng_seeded(601);
    (void)state;
    for (size_t i = 0; i < INPUTS; i++) {
        double nats = 10 * (3 + rng_normal(&r));
        measures[i][0] = measure(1, 10, nats);
        measures[i][1] = measure(2, 10, nats - 0.1);
    }
    descent_scaling_row rows[2];
    summarize(&measures[0][0], NULL, INPUTS, 2, NULL, rows);
    assert_true(rows[1].metrics[DESCENT_METRIC_LOSS].high > rows[0].metrics[DESCENT_METRIC_LOSS].low + 0.2);
    near(rows[1].difference[DESCENT_METRIC_LOSS].value, -0.01, 1e-12);
    near(rows[1].difference[DESCENT_METRIC_LOSS].low, -0.01, 1e-12);
    near(rows[1].difference[DESCENT_METRIC_LOSS].high, -0.01, 1e-12);
    const descent_scaling_options none = {.reference = DESCENT_NO_REFERENCE};
    summarize(&measures[0][0], NULL, INPUTS, 2, &none, rows);
    for (int m = 0; m < DESCENT_METRICS; m++) assert_true(isnan(rows[1].difference[m].value));
}

/* What does not exist is NaN, and nothing else is. */
static void what_does_not_exist(void **state)
{
    descent_measure measures[2][2] = {{measure(1, 4, 3), measure(2, 4, 3)}, {measure(1, 4, 2), measure(2, 4, 2)}};
    descent_scaling_row rows[2];
    (void)state;
    measures[1][1].code = DESCENT_DIVERGED;
    measures[1][1].nats = measures[1][1].energy = measures[1][1].relative_change = NAN;
    measures[1][1].right = measures[1][1].converged = 0;
    for (size_t i = 0; i < 2; i++)
        for (size_t d = 0; d < 2; d++) measures[i][d].bytes = 0;
    summarize(&measures[0][0], NULL, 2, 2, NULL, rows);
    assert_int_equal(rows[0].diverged, 0);
    assert_int_equal(rows[1].diverged, 1);
    assert_int_equal(rows[1].sum.code, DESCENT_DIVERGED);
    for (int m = 0; m < DESCENT_METRICS; m++) {
        bool accuracy = m == DESCENT_METRIC_ACCURACY, bits = m == DESCENT_METRIC_BITS;
        assert_int_equal(isnan(rows[0].metrics[m].value), bits);
        assert_int_equal(isnan(rows[1].metrics[m].value), !accuracy);
        assert_int_equal(isnan(rows[1].metrics[m].low), !accuracy);
        assert_int_equal(isnan(rows[1].difference[m].value), !accuracy);
    }
    near(rows[1].metrics[DESCENT_METRIC_ACCURACY].value, 0.25, 0);
    const uint64_t same[] = {7, 7}; /* a single unit says nothing of how units differ */
    summarize(&measures[0][0], same, 2, 2, NULL, rows);
    near(rows[0].metrics[DESCENT_METRIC_LOSS].value, 5.0 / 8, 1e-15);
    assert_true(isnan(rows[0].metrics[DESCENT_METRIC_LOSS].low) && isnan(rows[0].metrics[DESCENT_METRIC_LOSS].high));
}

/* Matched answers: an item an input. */
static void exact_match(void **state)
{
    descent_measure measures[4] = {{.depth = {{1}}, .items = 1, .right = 1},
                                   {.depth = {{1}}, .items = 1, .right = 0},
                                   {.depth = {{1}}, .items = 1, .right = 1},
                                   {.depth = {{1}}, .items = 1, .right = 1}};
    descent_scaling_row row;
    (void)state;
    summarize(measures, NULL, 4, 1, NULL, &row);
    near(row.metrics[DESCENT_METRIC_ACCURACY].value, 0.75, 0);
    assert_true(row.metrics[DESCENT_METRIC_ACCURACY].low < 0.75);
    near(row.metrics[DESCENT_METRIC_ACCURACY].high, 1, 0);
    assert_true(isnan(row.metrics[DESCENT_METRIC_LOSS].value));
}

static void refuse(const descent_measure *measures, size_t inputs, size_t depths, descent_scaling_options options,
                   descent_code code, const char *words)
{
    descent_scaling_row rows[2];
    descent_status status;
    expect_code(descent_scaling_summarize(measures, NULL, inputs, depths, &options, rows, &status), code, &status, words);
}

static void what_cannot_be_summed_up(void **state)
{
    descent_measure measures[] = {measure(1, 4, 3), measure(2, 4, 3), measure(1, 4, 2), measure(3, 4, 2)};
    const descent_scaling_options good = {.resamples = 10};
    descent_scaling_options o;
    (void)state;
    refuse(measures, 0, 2, good, DESCENT_BAD_ARGUMENT, "0 inputs");
    refuse(measures, 2, 0, good, DESCENT_BAD_ARGUMENT, "0 depths");
    refuse(NULL, 2, 2, good, DESCENT_BAD_ARGUMENT, "expected 1 or more");
    refuse(measures, 2, 2, good, DESCENT_BAD_ARGUMENT, "measure 1 of input 1");
    o = good, o.resamples = 100001, refuse(measures, 1, 2, o, DESCENT_BAD_ARGUMENT, "at most 100000");
    o = good, o.level = 1, refuse(measures, 1, 2, o, DESCENT_BAD_ARGUMENT, "less than 1");
    o = good, o.level = NAN, refuse(measures, 1, 2, o, DESCENT_BAD_ARGUMENT, "level");
    o = good, o.reference = 2, refuse(measures, 1, 2, o, DESCENT_BAD_ARGUMENT, "depth 2 of 2");
    o = good, o.reference = -2, refuse(measures, 1, 2, o, DESCENT_BAD_ARGUMENT, "depth -2 of 2");
    descent_measure *many = test_alloc(DESCENT_SWEEP_DEPTHS, sizeof *many);
    refuse(many, 1, DESCENT_SWEEP_DEPTHS, (descent_scaling_options){.resamples = 100000}, DESCENT_LIMIT,
           "resampled 100000 times");
    free(many);
}

typedef struct asked {
    uint64_t calls, done, total, until;
} asked;

static bool until(void *user, uint64_t done, uint64_t total)
{
    asked *a = user;
    assert_true(done >= a->done && done <= total);
    a->calls++;
    a->done = done;
    a->total = total;
    return a->calls < a->until;
}

/* Asked before every resample, row and difference; told to stop, it is asked no more. */
static void it_stops_where_nobody_wants_it(void **state)
{
    const descent_measure measures[] = {measure(1, 4, 3), measure(2, 4, 3), measure(1, 4, 2), measure(2, 4, 2)};
    descent_scaling_row rows[2], expected[2];
    descent_status status;
    (void)state;
    for (uint64_t calls = 1; calls <= 15; calls++) {
        asked a = {.until = calls};
        descent_scaling_options o = {.resamples = 10, .progress = until, .user = &a};
        descent_code code = descent_scaling_summarize(measures, NULL, 2, 2, &o, rows, &status);
        assert_int_equal(a.total, 14);
        if (calls <= 14) {
            expect_code(code, DESCENT_IO, &status, "told to stop");
            assert_int_equal(a.calls, calls);
            assert_int_equal(a.done, calls - 1);
        } else {
            expect_ok(code, &status);
            assert_int_equal(a.calls, 14);
        }
    }
    summarize(measures, NULL, 2, 2, &(descent_scaling_options){.resamples = 10}, expected);
    assert_memory_equal(&rows[1].metrics[0], &expected[1].metrics[0], sizeof rows->metrics[0]);
}

static void metrics_have_names(void **state)
{
    (void)state;
    for (int m = 0; m < DESCENT_METRICS; m++)
        for (int k = 0; k < m; k++)
            assert_string_not_equal(descent_metric_name((descent_metric)m), descent_metric_name((descent_metric)k));
    assert_string_equal(descent_metric_name(DESCENT_METRIC_BITS), "bits_per_byte");
    assert_null(descent_metric_name(DESCENT_METRICS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_quotients),       cmocka_unit_test(intervals_are_percentiles_over_resamples_of_units),
        cmocka_unit_test(known_intervals),          cmocka_unit_test(differences_are_paired),
        cmocka_unit_test(what_does_not_exist),      cmocka_unit_test(exact_match),
        cmocka_unit_test(what_cannot_be_summed_up), cmocka_unit_test(it_stops_where_nobody_wants_it),
        cmocka_unit_test(metrics_have_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
