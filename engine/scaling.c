/* scaling.c: what measures of inputs come to: their sums, what they cost by count, and one row for each depth with intervals.
 * Nothing here knows of a scheduler: sweep.c makes measures, whoever asked for them sums them up, and the rows are a function
 * of the measures alone. Shapes: measures [inputs][depths]; of each unit of resampling [units][depths][COMPONENTS]. */
#include "random.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Measures ---------------------------------------------------------------------------------------------------- */

void descent_measure_add(descent_measure *sum, const descent_measure *part)
{
    if (part->code != DESCENT_OK) sum->code = part->code;
    sum->predictions += part->predictions;
    sum->bytes += part->bytes;
    sum->nats += part->nats;
    sum->items += part->items;
    sum->right += part->right;
    sum->tokens += part->tokens;
    sum->token_steps += part->token_steps;
    sum->cost.weights += part->cost.weights;
    sum->cost.attention += part->cost.attention;
    sum->cost.head += part->cost.head;
    sum->cost.exit += part->cost.exit;
    sum->energy += part->energy;
    sum->relative_change += part->relative_change;
    sum->converged += part->converged;
    sum->seconds += part->seconds;
}

static bool is_zero(descent_depth depth)
{
    for (int k = 0; k < DESCENT_MAX_KINDS; k++)
        if (depth.steps[k]) return false;
    return true;
}

static uint64_t row_steps(const descent_model_info *info, descent_depth depth)
{
    uint64_t steps = 0;
    if (is_zero(depth)) depth = info->trained;
    for (uint32_t k = 0; k < info->kinds; k++) steps += info->trained.steps[k] ? depth.steps[k] : 1;
    return steps * info->layers;
}

descent_measure descent_measure_cost(const descent_model_cost *cost, descent_depth depth, uint64_t tokens, uint64_t predictions)
{
    if (is_zero(depth)) depth = cost->info->trained;
    uint64_t seen = tokens % 2 ? (tokens + 1) / 2 * tokens : tokens / 2 * (tokens + 1); /* 1 + 2 + ... + tokens */
    if (cost->strict) seen -= tokens;
    descent_measure measure = {.depth = depth, .tokens = tokens, .token_steps = tokens * row_steps(cost->info, depth)};
    measure.cost.weights = tokens * descent_cost_token(cost, depth, 0).weights;
    measure.cost.attention = descent_cost_token(cost, depth, seen).attention;
    measure.cost.head = predictions * cost->head.multiply_adds;
    return measure;
}

uint64_t descent_sweep_steps(const descent_model *model, const descent_depth *depths, size_t n_depths,
                             const descent_history *history, uint64_t tokens)
{
    const descent_model_info *info = descent_model_describe(model);
    uint64_t sum = 0, largest = 0;
    for (size_t d = 0; d < n_depths; d++) {
        uint64_t steps = row_steps(info, depths[d]);
        if (history && history->prompt_steps > steps) steps = history->prompt_steps;
        if (steps > largest) largest = steps;
        sum = steps > UINT64_MAX - sum ? UINT64_MAX : sum + steps;
    }
    bool deepens = info->deepens && (!history || history->policy == DESCENT_HISTORY_OWN);
    uint64_t each = deepens ? largest : sum;
    return each && tokens > UINT64_MAX / each ? UINT64_MAX : tokens * each;
}

/* ---- Metrics ----------------------------------------------------------------------------------------------------- */

/* What metrics are made of: they are quotients of sums. */
enum component { NATS, PREDICTIONS, BYTES, RIGHT, ITEMS, ENERGY, CHANGE, CONVERGED, COMPONENTS };

const char *descent_metric_name(descent_metric metric)
{
    static const char *const names[DESCENT_METRICS] = {"loss",   "perplexity",      "bits_per_byte", "accuracy",
                                                       "energy", "relative_change", "converged"};
    return (unsigned)metric < DESCENT_METRICS ? names[metric] : NULL;
}

static void add_components(const descent_measure *measure, double sums[COMPONENTS])
{
    sums[NATS] += measure->nats;
    sums[PREDICTIONS] += (double)measure->predictions;
    sums[BYTES] += (double)measure->bytes;
    sums[RIGHT] += (double)measure->right;
    sums[ITEMS] += (double)measure->items;
    sums[ENERGY] += measure->energy;
    sums[CHANGE] += measure->relative_change;
    sums[CONVERGED] += (double)measure->converged;
}

static double quotient(double sum, double count)
{
    return count > 0 ? sum / count : NAN;
}

static void form_metrics(const double sums[COMPONENTS], double metrics[DESCENT_METRICS])
{
    double predictions = sums[PREDICTIONS];
    metrics[DESCENT_METRIC_LOSS] = quotient(sums[NATS], predictions);
    metrics[DESCENT_METRIC_PERPLEXITY] = exp(metrics[DESCENT_METRIC_LOSS]);
    metrics[DESCENT_METRIC_BITS] = quotient(sums[NATS], log(2) * sums[BYTES]);
    metrics[DESCENT_METRIC_ACCURACY] = quotient(sums[RIGHT], sums[ITEMS]);
    metrics[DESCENT_METRIC_ENERGY] = quotient(sums[ENERGY], predictions);
    metrics[DESCENT_METRIC_CHANGE] = quotient(sums[CHANGE], predictions);
    /* where there is no r nothing has converged, and nothing has not */
    metrics[DESCENT_METRIC_CONVERGED] = isnan(sums[CHANGE]) ? NAN : quotient(sums[CONVERGED], predictions);
}

/* ---- Units ------------------------------------------------------------------------------------------------------- */

typedef struct member {
    uint64_t unit;
    size_t input;
} member;

static int by_unit(const void *a, const void *b)
{
    const member *m = a, *n = b;
    if (m->unit != n->unit) return m->unit < n->unit ? -1 : 1;
    return (m->input > n->input) - (m->input < n->input);
}

/* Numbers units 0, 1, ... as they first come: numbers [n_inputs]. Returns how many there are; 0: no memory. */
static size_t number_units(const uint64_t *units, size_t n_inputs, size_t *numbers)
{
    member *members = malloc(n_inputs * sizeof *members);
    size_t n = 0;
    if (!members) return 0;
    for (size_t i = 0; i < n_inputs; i++) members[i] = (member){.unit = units ? units[i] : i, .input = i};
    qsort(members, n_inputs, sizeof *members, by_unit);
    for (size_t i = 0, first = 0; i < n_inputs; i++) { /* of each input the first of its unit */
        if (members[i].unit != members[first].unit) first = i;
        numbers[members[i].input] = members[first].input;
    }
    for (size_t i = 0; i < n_inputs; i++) numbers[i] = numbers[i] == i ? n++ : numbers[numbers[i]];
    free(members);
    return n;
}

/* ---- Resampling -------------------------------------------------------------------------------------------------- */

enum { DEFAULT_RESAMPLES = 1000, MOST_RESAMPLES = 100000, MOST_NUMBERS = DESCENT_SCALING_NUMBERS };

/* A summary in the making. */
typedef struct summary {
    const descent_measure *measures;
    size_t n_inputs, n_depths, n_units;
    descent_scaling_options options; /* complete */
    size_t *numbers;                 /* [n_inputs] the unit of each */
    double *units;                   /* [n_units][n_depths][COMPONENTS] */
    double *values;                  /* [n_depths][DESCENT_METRICS][resamples] */
    uint32_t *drawn;                 /* [n_units] of a resample: how often */
    double *sums;                    /* [n_depths][COMPONENTS] likewise */
    double *sorted;                  /* [resamples] */
} summary;

static descent_code complete_options(descent_scaling_options *o, size_t n_depths, descent_status *status)
{
    if (o->resamples == 0) o->resamples = DEFAULT_RESAMPLES;
    if (o->level == 0) o->level = 0.95;
    if (o->resamples > MOST_RESAMPLES)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "%u resamples; expected at most %d", o->resamples, MOST_RESAMPLES);
    if (!(o->level > 0 && o->level < 1))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "the level of intervals is %g; expected more than 0, less than 1",
                            o->level);
    if (o->reference < DESCENT_NO_REFERENCE || (o->reference >= 0 && (size_t)o->reference >= n_depths))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "the reference is depth %d of %zu, counted from 0", o->reference,
                            n_depths);
    return DESCENT_OK;
}

static descent_code check_measures(const descent_measure *measures, size_t n_inputs, size_t n_depths, descent_status *status)
{
    for (size_t i = 1; i < n_inputs; i++)
        for (size_t d = 0; d < n_depths; d++)
            if (memcmp(&measures[i * n_depths + d].depth, &measures[d].depth, sizeof measures->depth) != 0)
                return descent_fail(status, DESCENT_BAD_ARGUMENT,
                                    "measure %zu of input %zu is of another depth than that of input 0", d, i);
    return DESCENT_OK;
}

static descent_code make_room(summary *s, const uint64_t *units, descent_status *status)
{
    size_t of_unit = s->n_depths * COMPONENTS, resamples = s->options.resamples;
    s->numbers = s->n_inputs <= MOST_NUMBERS ? malloc(s->n_inputs * sizeof *s->numbers) : NULL;
    if (s->numbers) s->n_units = number_units(units, s->n_inputs, s->numbers);
    if (s->n_units == 0) return descent_fail(status, DESCENT_NO_MEMORY, "no memory to sum up %zu inputs", s->n_inputs);
    if (s->n_units > MOST_NUMBERS / of_unit || resamples > MOST_NUMBERS / (s->n_depths * DESCENT_METRICS))
        return descent_fail(status, DESCENT_LIMIT,
                            "%zu units at %zu depths, resampled %zu times: a summary holds %d numbers of units and as many of "
                            "resamples, %d for each unit and %d for each resample at a depth",
                            s->n_units, s->n_depths, resamples, MOST_NUMBERS, COMPONENTS, DESCENT_METRICS);
    s->units = calloc(s->n_units * of_unit, sizeof *s->units);
    s->values = malloc(s->n_depths * DESCENT_METRICS * resamples * sizeof *s->values);
    s->drawn = malloc(s->n_units * sizeof *s->drawn);
    s->sums = malloc(of_unit * sizeof *s->sums);
    s->sorted = malloc(resamples * sizeof *s->sorted);
    if (s->units && s->values && s->drawn && s->sums && s->sorted) return DESCENT_OK;
    return descent_fail(status, DESCENT_NO_MEMORY, "no memory to resample %zu units at %zu depths", s->n_units, s->n_depths);
}

static void add_units(const summary *s)
{
    for (size_t i = 0; i < s->n_inputs; i++)
        for (size_t d = 0; d < s->n_depths; d++)
            add_components(&s->measures[i * s->n_depths + d], s->units + (s->numbers[i] * s->n_depths + d) * COMPONENTS);
}

static double *values_of(const summary *s, size_t depth, int metric)
{
    return s->values + (depth * DESCENT_METRICS + (size_t)metric) * s->options.resamples;
}

/* One resample of all depths together. */
static void resample(const summary *s, uint32_t which)
{
    const uint32_t stream = UINT32_MAX; /* of no text's choices */
    size_t n = s->n_units, numbers = s->n_depths * COMPONENTS;
    memset(s->drawn, 0, n * sizeof *s->drawn);
    memset(s->sums, 0, numbers * sizeof *s->sums);
    for (size_t k = 0; k < n; k++)
        s->drawn[(size_t)(descent_random_uniform((int64_t)s->options.seed, which, stream, k) * (double)n)]++;
    for (size_t u = 0; u < n; u++) {
        if (s->drawn[u] == 0) continue; /* 0 times what is not a number would be none either */
        double times = s->drawn[u];
        const double *unit = s->units + u * numbers;
        for (size_t c = 0; c < numbers; c++) s->sums[c] += times * unit[c];
    }
    for (size_t d = 0; d < s->n_depths; d++) {
        double metrics[DESCENT_METRICS];
        form_metrics(s->sums + d * COMPONENTS, metrics);
        for (int m = 0; m < DESCENT_METRICS; m++) values_of(s, d, m)[which] = metrics[m];
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two neighbours of rank share * (n - 1). */
static double percentile(const double *sorted, size_t n, double share)
{
    double rank = share * (double)(n - 1);
    size_t below = (size_t)rank;
    if (below + 1 >= n || sorted[below] == sorted[below + 1]) return sorted[below];
    double part = rank - (double)below;
    return part > 0 ? sorted[below] + part * (sorted[below + 1] - sorted[below]) : sorted[below];
}

/* The interval of values [resamples], those of `minus` subtracted (NULL: none). */
static descent_estimate estimate(const summary *s, double value, const double *values, const double *minus)
{
    descent_estimate e = {.value = value, .low = NAN, .high = NAN};
    size_t n = s->options.resamples;
    if (s->n_units < 2 || isnan(value)) return e;
    for (size_t i = 0; i < n; i++) {
        s->sorted[i] = minus ? values[i] - minus[i] : values[i];
        if (isnan(s->sorted[i])) return e; /* what was drawn had no such metric */
    }
    qsort(s->sorted, n, sizeof *s->sorted, by_value);
    double outside = (1 - s->options.level) / 2;
    e.low = percentile(s->sorted, n, outside);
    e.high = percentile(s->sorted, n, 1 - outside);
    return e;
}

static void sum_row(const summary *s, size_t depth, descent_scaling_row *row)
{
    double sums[COMPONENTS] = {0}, metrics[DESCENT_METRICS];
    *row = (descent_scaling_row){.inputs = s->n_inputs, .sum = {.depth = s->measures[depth].depth}};
    for (size_t i = 0; i < s->n_inputs; i++) {
        const descent_measure *measure = &s->measures[i * s->n_depths + depth];
        row->diverged += measure->code != DESCENT_OK;
        descent_measure_add(&row->sum, measure);
    }
    add_components(&row->sum, sums);
    form_metrics(sums, metrics);
    for (int m = 0; m < DESCENT_METRICS; m++) row->metrics[m] = estimate(s, metrics[m], values_of(s, depth, m), NULL);
}

/* A row's difference to that of the reference. */
static void compare_row(const summary *s, size_t depth, descent_scaling_row *rows)
{
    const descent_estimate none = {NAN, NAN, NAN};
    int reference = s->options.reference;
    for (int m = 0; m < DESCENT_METRICS; m++) {
        descent_estimate *difference = &rows[depth].difference[m];
        *difference = none;
        if (reference == DESCENT_NO_REFERENCE) continue;
        double value = rows[depth].metrics[m].value - rows[reference].metrics[m].value;
        *difference = estimate(s, value, values_of(s, depth, m), values_of(s, (size_t)reference, m));
    }
}

static bool goes_on(const summary *s, uint64_t done)
{
    const descent_scaling_options *o = &s->options;
    return !o->progress || o->progress(o->user, done, (uint64_t)o->resamples + 2 * s->n_depths);
}

static descent_code stopped(descent_status *status)
{
    return descent_fail(status, DESCENT_IO, "told to stop summing up");
}

/* Resamples, then rows, then their differences; is it still wanted before each? */
static descent_code sum_up(const summary *s, descent_scaling_row *rows, descent_status *status)
{
    uint64_t resamples = s->options.resamples, depths = s->n_depths;
    add_units(s);
    for (uint32_t i = 0; s->n_units > 1 && i < resamples; i++) {
        if (!goes_on(s, i)) return stopped(status);
        resample(s, i);
    }
    for (size_t d = 0; d < depths; d++) {
        if (!goes_on(s, resamples + d)) return stopped(status);
        sum_row(s, d, &rows[d]);
    }
    for (size_t d = 0; d < depths; d++) {
        if (!goes_on(s, resamples + depths + d)) return stopped(status);
        compare_row(s, d, rows);
    }
    return descent_ok(status);
}

static void release(summary *s)
{
    free(s->numbers);
    free(s->units);
    free(s->values);
    free(s->drawn);
    free(s->sums);
    free(s->sorted);
}

descent_code descent_scaling_summarize(const descent_measure *measures, const uint64_t *units, size_t n_inputs, size_t n_depths,
                                       const descent_scaling_options *options, descent_scaling_row *rows,
                                       descent_status *status)
{
    if (!measures || !rows || n_inputs == 0 || n_depths == 0 || n_depths > DESCENT_SWEEP_DEPTHS)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "%zu inputs at %zu depths; expected 1 or more, 1 to %d depths, and a place for the rows", n_inputs,
                            n_depths, DESCENT_SWEEP_DEPTHS);
    summary s = {.measures = measures, .n_inputs = n_inputs, .n_depths = n_depths};
    if (options) s.options = *options;
    descent_code code = complete_options(&s.options, n_depths, status);
    if (code == DESCENT_OK) code = check_measures(measures, n_inputs, n_depths, status);
    if (code == DESCENT_OK) code = make_room(&s, units, status);
    if (code == DESCENT_OK) code = sum_up(&s, rows, status);
    release(&s);
    return code;
}
