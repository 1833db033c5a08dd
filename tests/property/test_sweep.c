/* test_sweep.c: a sweep's measures are those of as many runs, each at one depth alone, a token at a time, by sequences and
 * batches: for every family, in whatever chunks, beside whatever else, through pauses, in the background. Numbers against the
 * references, and what a sweep costs: of a model that deepens, one pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"
#include "scheduled.h"

enum { CONTEXT = 80, MOST_DEPTHS = 6, MOST_SWEEPS = 12 };

/* ---- One depth, a token at a time ---------------------------------------------------------------------------------- */

/* What an observer saw of each descent: [programs][count]. */
typedef struct descents {
    const descent_model_info *info;
    size_t count;
    double *energy; /* behind its end; NaN: it has none */
    double *change; /* r of its last step; NaN where it has no T */
    size_t *steps;  /* that it made */
} descents;

static void look(void *user, const descent_observation *seen)
{
    descents *d = user;
    size_t at = (seen->site.layer * d->info->kinds + seen->site.kind) * d->count + seen->site.position;
    if (!seen->final) {
        d->steps[at]++;
        d->change[at] = d->info->trained.steps[seen->site.kind] ? (double)seen->relative_change : (double)NAN;
        return;
    }
    for (uint32_t i = 0; i < d->info->terms[seen->site.kind]; i++)
        d->energy[at] = (i ? d->energy[at] : 0.0) + (double)seen->energy[i];
}

static descents descents_create(const descent_model *model, size_t count)
{
    descents d = {.info = descent_model_describe(model), .count = count};
    size_t n = d.info->layers * d.info->kinds * count;
    d.energy = test_alloc(n, sizeof *d.energy);
    d.change = test_alloc(n, sizeof *d.change);
    d.steps = test_alloc(n, sizeof *d.steps);
    for (size_t i = 0; i < n; i++) d.energy[i] = d.change[i] = NAN;
    return d;
}

static void descents_free(descents *d)
{
    free(d->energy);
    free(d->change);
    free(d->steps);
}

static double nats_of(const float *logits, size_t vocab, uint32_t token, bool *right)
{
    double largest = (double)logits[0], sum = 0;
    size_t likeliest = 0;
    for (size_t v = 1; v < vocab; v++)
        if ((double)logits[v] > largest) largest = (double)logits[likeliest = v];
    for (size_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - largest);
    *right = likeliest == token;
    return log(sum) - ((double)logits[token] - largest);
}

/* Ends of token i's descents: its energy, and the largest r. */
static void add_ends(const descents *d, size_t i, const descent_sweep_options *o, descent_measure *m)
{
    double energy = 0, change = NAN;
    bool any = false;
    for (size_t p = 0; p < d->info->layers * d->info->kinds; p++) {
        double e = d->energy[p * d->count + i];
        any = any || !isnan(e);
        energy += isnan(e) ? 0 : e;
        change = fmax(change, d->change[p * d->count + i]);
    }
    m->energy += o->energy && any ? energy : NAN;
    m->relative_change += o->convergence ? change : NAN;
    if (o->convergence) m->converged += change < (double)o->threshold;
}

static void add_cost(const descents *d, size_t i, const descent_model_cost *cost, descent_measure *m)
{
    for (size_t p = 0; p < d->info->layers * d->info->kinds; p++) {
        const descent_kind_cost *kind = &cost->kinds[p % d->info->kinds];
        size_t steps = d->steps[p * d->count + i];
        m->token_steps += steps;
        m->cost.weights += (steps * kind->step.multiply_adds + kind->entry.multiply_adds) / d->info->layers;
        m->cost.attention += steps * (i + 1 - cost->strict) * (kind->attention / d->info->layers);
    }
}

/* What is said of a depth at which a state is not finite. */
static descent_measure diverged(const descent_model *model, const descent_model_cost *cost, const descent_sweep_options *o,
                                descent_depth depth)
{
    const descent_model_info *info = descent_model_describe(model);
    descent_measure m = {.depth = depth, .code = DESCENT_DIVERGED, .predictions = o->count - o->first, .tokens = o->count - 1};
    m.items = m.predictions;
    m.nats = m.energy = m.relative_change = NAN;
    for (size_t i = 0; i < m.tokens; i++) {
        descent_token_cost token = descent_cost_token(cost, depth, i + 1 - cost->strict);
        for (uint32_t k = 0; k < info->kinds; k++) m.token_steps += info->layers * sublayer_steps_at(depth, k);
        m.cost.weights += token.weights;
        m.cost.attention += token.attention;
    }
    m.cost.head = m.predictions * info->vocab * info->width;
    return m;
}

/* The criterion is asked of a descent after so many steps. */
static bool asked_after(const descent_exit *exit, size_t steps)
{
    size_t least = exit->min_steps ? exit->min_steps : 1, every = exit->check_every ? exit->check_every : 1;
    return steps >= least && (steps - least) % every == 0;
}

/* What was run for token i to see whether it stops: logits read, and energies, by the steps its descents made. */
static uint64_t asked_of(const descents *d, size_t i, const descent_sweep_options *o, const descent_model_cost *cost,
                         descent_depth depth)
{
    const descent_exit *exit = &o->how.exit;
    uint64_t sum = 0;
    if (exit->criterion < DESCENT_EXIT_ENERGY || i < exit->first) return 0;
    for (size_t p = 0; p < d->info->layers * d->info->kinds; p++) {
        size_t k = p % d->info->kinds, steps = d->steps[p * d->count + i], seen = i + 1 - cost->strict;
        const descent_kind_cost *kind = &cost->kinds[k];
        uint64_t attention = kind->attention / d->info->layers * seen, checks = 0;
        if (d->info->terms[k] == 0) continue;
        for (size_t t = 1; t <= steps; t++) checks += asked_after(exit, t);
        if (exit->criterion != DESCENT_EXIT_ENERGY)
            sum += checks * (exit->criterion == DESCENT_EXIT_KL ? 2 : 1) * cost->head.multiply_adds;
        else if (!d->info->deepens)
            sum += checks * (kind->energy / d->info->layers + attention / 2);
        else if (steps < depth.steps[0]) /* the step that told it to stop */
            sum += kind->step.multiply_adds + attention;
    }
    return sum;
}

static descent_measure measured_alone(const descent_model *model, const descent_sweep_options *o, descent_page_type page_type,
                                      descent_depth depth)
{
    const descent_model_info *info = descent_model_describe(model);
    descent_measure m = {
        .depth = depth, .predictions = o->count - o->first, .items = o->count - o->first, .tokens = o->count - 1};
    descent_cache *cache = drive_cache(model, page_type, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = o->how;
    how.depth = depth;
    how.no_sharing = true;
    descent_sequence *sequence = drive_sequence_as(cache, &how, NULL, 0);
    descents d = descents_create(model, o->count - 1);
    descent_model_cost cost;
    descent_status status;
    float *logits = test_alloc(info->vocab, sizeof *logits);
    expect_ok(descent_model_count(model, &cost, &status), &status);
    expect_ok(descent_sequence_observe(sequence, OBSERVE_ALL, look, &d, &status), &status);
    for (size_t i = 0; i + 1 < o->count; i++) {
        bool right;
        drive_append(sequence, &o->tokens[i], 1);
        descent_code code = descent_batch_finish(batch, sequence, &status);
        if (code == DESCENT_DIVERGED) {
            m = diverged(model, &cost, o, depth);
            break;
        }
        expect_ok(code, &status);
        add_cost(&d, i, &cost, &m);
        m.cost.exit += asked_of(&d, i, o, &cost, depth);
        if (i + 1 < o->first) continue;
        drive_logits(batch, sequence, i, logits);
        m.nats += nats_of(logits, info->vocab, o->tokens[i + 1], &right);
        m.right += right;
        m.cost.head += (uint64_t)info->vocab * info->width;
        add_ends(&d, i, o, &m);
    }
    free(logits);
    descents_free(&d);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return m;
}

/* ---- Through a scheduler ------------------------------------------------------------------------------------------- */

/* A sweep, and what came of it. */
typedef struct swept {
    gathering *with;
    descent_sweep_options options; /* `done` and `user` are filled in */
    descent_depth depths[MOST_DEPTHS];
    uint32_t tokens[CONTEXT + 1];
    descent_generation *handle; /* until it has ended */
    size_t order;               /* those that ended before it */
    descent_sweep_result result;
    descent_measure measures[MOST_DEPTHS];
    descent_measure alone[MOST_DEPTHS]; /* what they are to be */
} swept;

static void done(void *user, const descent_sweep_result *result)
{
    swept *s = user;
    (void)pthread_mutex_lock(&s->with->lock);
    s->result = *result;
    memcpy(s->measures, result->measures, result->n_depths * sizeof *s->measures);
    s->handle = NULL;
    s->order = s->with->ended++;
    (void)pthread_cond_broadcast(&s->with->changed);
    (void)pthread_mutex_unlock(&s->with->lock);
}

static void submit(descent_scheduler *scheduler, gathering *with, swept *s)
{
    descent_status status;
    s->with = with;
    s->options.tokens = s->tokens;
    s->options.depths = s->depths;
    s->options.done = done;
    s->options.user = s;
    (void)pthread_mutex_lock(&with->lock);
    descent_code code = descent_scheduler_sweep(scheduler, &s->options, &s->handle, &status);
    (void)pthread_mutex_unlock(&with->lock);
    expect_ok(code, &status);
}

static void same_double(double got, double expected, const char *what, size_t depth)
{
    if (isnan(got) && isnan(expected)) return;
    if (!(fabs(got - expected) <= 1e-12 * fmax(1.0, fabs(expected))))
        compare_fail("depth %zu of the list: %s is %.17g, expected %.17g", depth, what, got, expected);
}

static void same_count(uint64_t got, uint64_t expected, const char *what, size_t depth)
{
    if (got != expected)
        compare_fail("depth %zu of the list: %s is %llu, expected %llu", depth, what, (unsigned long long)got,
                     (unsigned long long)expected);
}

/* Against runs that do the same sums elsewhere, in doubles. */
static void compare_measure(const descent_measure *got, const descent_measure *expected, size_t depth)
{
    assert_memory_equal(&got->depth, &expected->depth, sizeof got->depth);
    same_count(got->code, expected->code, "code", depth);
    same_count(got->predictions, expected->predictions, "predictions", depth);
    same_count(got->items, expected->items, "items", depth);
    same_count(got->right, expected->right, "right", depth);
    same_count(got->tokens, expected->tokens, "tokens", depth);
    same_count(got->token_steps, expected->token_steps, "token_steps", depth);
    same_count(got->converged, expected->converged, "converged", depth);
    same_count(got->cost.weights, expected->cost.weights, "weights", depth);
    same_count(got->cost.attention, expected->cost.attention, "attention", depth);
    same_count(got->cost.head, expected->cost.head, "head", depth);
    same_count(got->cost.exit, expected->cost.exit, "exit", depth);
    same_double(got->nats, expected->nats, "nats", depth);
    same_double(got->energy, expected->energy, "energy", depth);
    same_double(got->relative_change, expected->relative_change, "relative_change", depth);
    if (got->code == DESCENT_OK && !(got->seconds > 0))
        compare_fail("depth %zu of the list took %g seconds", depth, got->seconds);
}

/* The same bits. */
static void compare_bits_of(const descent_measure *got, const descent_measure *expected, size_t depth)
{
    descent_measure a = *got, b = *expected;
    a.seconds = b.seconds = 0;
    same_count(a.right, b.right, "right", depth);
    if (memcmp(&a.nats, &b.nats, sizeof a.nats) != 0) compare_fail("depth %zu: nats %.17g and %.17g", depth, a.nats, b.nats);
    if (memcmp(&a.energy, &b.energy, sizeof a.energy) != 0 && !(isnan(a.energy) && isnan(b.energy)))
        compare_fail("depth %zu: energy %.17g and %.17g", depth, a.energy, b.energy);
    if (memcmp(&a.relative_change, &b.relative_change, sizeof a.energy) != 0 &&
        !(isnan(a.relative_change) && isnan(b.relative_change)))
        compare_fail("depth %zu: r %.17g and %.17g", depth, a.relative_change, b.relative_change);
    compare_measure(got, expected, depth);
}

static void compare_swept(const swept *s, bool bits)
{
    if (s->result.end != DESCENT_END_LENGTH) compare_fail("end %d: %s", s->result.end, s->result.status.message);
    assert_int_equal(s->result.n_depths, s->options.n_depths);
    for (size_t d = 0; d < s->options.n_depths; d++)
        (bits ? compare_bits_of : compare_measure)(&s->measures[d], &s->alone[d], d);
}

/* Runs one alone. */
static void run_alone(const descent_model *model, swept *s, const descent_scheduler_options *how)
{
    gathering with;
    descent_scheduler *scheduler = scheduled_start(model, how);
    gathering_begin(&with);
    submit(scheduler, &with, s);
    gathering_wait(&with, 1);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
}

/* ---- Drawing ------------------------------------------------------------------------------------------------------- */

static swept *swept_draw(const example *e, rng *r, size_t longest)
{
    swept *s = test_alloc(1, sizeof *s);
    descent_sweep_options *o = &s->options;
    o->count = rng_between(r, 2, longest);
    o->first = rng_below(r, 2) ? 1 : rng_between(r, 1, o->count - 1);
    o->n_depths = rng_between(r, 1, MOST_DEPTHS);
    uint32_t *tokens = random_tokens(r, &e->model, o->count);
    memcpy(s->tokens, tokens, o->count * sizeof *tokens);
    free(tokens);
    for (size_t d = 0; d < o->n_depths; d++) s->depths[d] = random_depth(r, &e->model, 6);
    o->energy = rng_below(r, 4) > 0;
    o->convergence = rng_below(r, 4) > 0;
    o->threshold = 0.3f;
    o->how.share_group = rng_below(r, 4);
    if (test_descends(e->model.family) && rng_below(r, 3) == 0) o->how.motion = motion_random(r, e->model.family == TEST_NRGPT);
    return s;
}

static void expect_alone(const descent_model *model, descent_page_type page_type, swept *s)
{
    s->options.tokens = s->tokens;
    for (size_t d = 0; d < s->options.n_depths; d++) s->alone[d] = measured_alone(model, &s->options, page_type, s->depths[d]);
}

static example draw(uint64_t test, size_t round)
{
    example_wish wish = {.family = family_of(round), .context = CONTEXT, .count = 1, .most = 4};
    return example_draw(test_seed(test, round), &wish);
}

/* ---- Alone --------------------------------------------------------------------------------------------------------- */

static const descent_scheduler_options ways[] = {{.threads = 1}, {.threads = 2, .chunk = 5}, {.threads = 1, .chunk = 1}};

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
        example e = draw(400, round);
        swept *s = swept_draw(&e, &e.r, CONTEXT + 1);
        descent_scheduler_options way = ways[round % 3];
        way.cache.page_type = (descent_page_type)(round / 3 % DESCENT_PAGE_TYPES);
        expect_alone(e.engine, way.cache.page_type, s);
        run_alone(e.engine, s, &way);
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
        example e = draw(401, round);
        swept *s = swept_draw(&e, &e.r, CONTEXT + 1);
        uint64_t largest, all = count_steps(s, &e.model, &largest), wanted = test_deepens(e.model.family) ? largest : all;
        size_t twice = 0; /* what is asked again and again in a row is run once */
        for (size_t d = 1; d < s->options.n_depths; d++)
            if (!memcmp(&s->depths[d], &s->depths[d - 1], sizeof s->depths[d]))
                twice += (s->options.count - 1) * row_steps_at(&e.model, s->depths[d]);
        s->options.how.no_sharing = true; /* where a depth comes again, pages of its first time would do */
        run_alone(e.engine, s, &ways[round % 2]);
        assert_int_equal(descent_sweep_steps(e.engine, s->depths, s->options.n_depths, s->options.count - 1), wanted);
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
        example e = draw(402, round);
        swept *s = swept_draw(&e, &e.r, CONTEXT + 1);
        if (test_descends(e.model.family)) {
            size_t criteria = test_deepens(e.model.family) ? 6 : 3; /* layers have no logits on the way */
            descent_exit_criterion criterion = (descent_exit_criterion)(DESCENT_EXIT_STATE + rng_below(&e.r, criteria));
            float threshold = criterion == DESCENT_EXIT_ARGMAX ? (float)rng_between(&e.r, 1, 2) : thresholds[round / 3 % 4];
            s->options.how.exit = (descent_exit){.criterion = criterion, .threshold = threshold};
            s->options.how.exit.min_steps = (uint16_t)rng_between(&e.r, 1, 2);
            s->options.how.exit.first = rng_below(&e.r, 2) ? 0 : (uint32_t)rng_below(&e.r, s->options.count);
            if (rng_below(&e.r, 2)) s->options.how.motion = motion_scaled(0.75f);
            expect_alone(e.engine, DESCENT_PAGE_F32, s);
            run_alone(e.engine, s, &ways[round % 3]);
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
        example e = draw(403, round);
        swept *s = swept_draw(&e, &e.r, 50);
        bool depths = test_has_depth(e.model.family, 0) || test_has_depth(e.model.family, 1);
        s->options.energy = s->options.convergence = true;
        if (test_descends(e.model.family) && round % 2) s->options.how.motion = motion_scaled(1.25f);
        run_alone(e.engine, s, &ways[0]);
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

/* ---- Beside others ------------------------------------------------------------------------------------------------- */

/* Sweeps of one model, and texts that are generated meanwhile. */
typedef struct crowd {
    swept *sweeps[MOST_SWEEPS];
    size_t n_sweeps;
    scheduled texts[MOST_SWEEPS];
    uint32_t *prompts[MOST_SWEEPS];
    size_t n_texts;
} crowd;

/* Each sweep is run alone first, to the bits that it must have. Some begin as others do, so that pages are shared. */
static crowd crowd_draw(const example *e, rng *r, size_t n)
{
    crowd c = {.n_sweeps = n, .n_texts = n};
    for (size_t i = 0; i < n; i++) {
        swept *s = c.sweeps[i] = swept_draw(e, r, CONTEXT + 1);
        if (i > 0 && rng_below(r, 2)) {
            const swept *other = c.sweeps[rng_below(r, i)];
            size_t same = other->options.count < s->options.count ? other->options.count : s->options.count;
            memcpy(s->tokens, other->tokens, (same < 65 ? same : 65) * sizeof *s->tokens);
        }
        if (test_descends(e->model.family) && rng_below(r, 3) == 0)
            s->options.how.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 0.2f};
        run_alone(e->engine, s, &ways[0]);
        memcpy(s->alone, s->measures, sizeof s->alone);
        s->options.background = rng_below(r, 2);
        size_t count = rng_between(r, 1, CONTEXT - 10);
        c.prompts[i] = random_tokens(r, &e->model, count);
        c.texts[i] = (scheduled){.options = {.prompt = c.prompts[i],
                                             .prompt_count = count,
                                             .limit = rng_between(r, 1, 9),
                                             .depth = random_depth(r, &e->model, 6),
                                             .sampling = descent_sampling_defaults()}};
    }
    return c;
}

static void crowd_free(crowd *c)
{
    for (size_t i = 0; i < c->n_sweeps; i++) {
        free(c->sweeps[i]);
        scheduled_free(&c->texts[i]);
        free(c->prompts[i]);
    }
}

/* All at once, the texts among the sweeps; the first text waits so that there is something to begin beside. Returns pauses. */
static uint64_t run_crowd(const example *e, crowd *c, const descent_scheduler_options *how)
{
    gathering with;
    uint64_t pauses = 0, row_steps = 0;
    descent_scheduler *scheduler = scheduled_start(e->engine, how);
    gathering_begin(&with);
    for (size_t i = 0; i < c->n_texts; i++) c->texts[i] = (scheduled){.options = c->texts[i].options, .gate = i == 0};
    for (size_t i = 0; i < c->n_sweeps; i++) {
        submit(scheduler, &with, c->sweeps[i]);
        scheduled_submit(scheduler, e->engine, &with, &c->texts[i]);
        if (i == 0) gathering_wait_for_gate(&with);
    }
    gathering_open(&with);
    gathering_wait(&with, 2 * c->n_sweeps);
    for (size_t i = 0; i < c->n_sweeps; i++) {
        compare_swept(c->sweeps[i], true);
        pauses += c->sweeps[i]->result.pauses;
        row_steps += c->sweeps[i]->result.row_steps + c->texts[i].report.row_steps;
        scheduled_free(&c->texts[i]);
    }
    descent_scheduler_state state = descent_scheduler_describe(scheduler);
    assert_int_equal(state.row_steps, row_steps);
    assert_int_equal(state.running + state.waiting + state.rows, 0);
    assert_int_equal(state.cache.pages, state.cache.idle_pages);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
    return pauses;
}

static void the_same_bits_whatever_runs_beside(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = draw(404, round);
        crowd c = crowd_draw(&e, &e.r, MOST_SWEEPS);
        for (size_t n = 0; n < 3; n++) (void)run_crowd(&e, &c, &ways[n]);
        crowd_free(&c);
        example_free(&e);
    }
}

/* The first text comes to hold as much as fits once, but little when the long sweep behind it begins, which must then make
 * room. */
static void make_it_grow(const example *e, crowd *c)
{
    descent_depth deepest = {{test_has_depth(e->model.family, 0) ? 6 : 0, test_has_depth(e->model.family, 1) ? 6 : 0}};
    for (size_t n = 0; n < 2; n++) {
        swept *s = c->sweeps[n];
        s->options.count = n ? CONTEXT + 1 : 2; /* the first is gone before the text has grown */
        s->options.first = 1;
        s->options.background = false;
        for (size_t i = 0; i <= CONTEXT; i++) s->tokens[i] = (uint32_t)(i % e->model.vocab);
        s->depths[0] = deepest;
        run_alone(e->engine, s, &ways[0]);
        memcpy(s->alone, s->measures, sizeof s->alone);
    }
    c->texts[0].options.prompt_count = 1;
    c->texts[0].options.limit = CONTEXT;
    c->texts[0].options.depth = deepest;
}

/* So little memory that most must make room for others, again and again. */
static void pauses_change_no_measure(void **state)
{
    uint64_t pauses = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = draw(405, round);
        crowd c = crowd_draw(&e, &e.r, 8);
        make_it_grow(&e, &c);
        descent_scheduler_options way = ways[2];             /* slow enough to be there when the text has grown */
        descent_sequence_options most = {.depth = {{7, 6}}}; /* a plane more than any, for energies behind the last step */
        for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++)
            if (!descent_model_describe(e.engine)->trained.steps[k]) most.depth.steps[k] = 0;
        if (test_descends(e.model.family)) most.motion.momentum = 0.5f;
        uint64_t bytes = descent_cache_bytes_needed(e.engine, DESCENT_PAGE_F32, CONTEXT, &most);
        way.cache.byte_limit = round < TEST_FAMILIES ? bytes * 17 / 10 : bytes;
        pauses += run_crowd(&e, &c, &way);
        crowd_free(&c);
        example_free(&e);
    }
    assert_true(pauses > 0);
}

/* Answers to one question share its pages: those before the first token that predicts. */
static void what_comes_before_the_answers_is_run_once(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = draw(406, round);
        swept *s[3];
        gathering with;
        descent_scheduler *scheduler = scheduled_start(e.engine, &ways[0]);
        gathering_begin(&with);
        for (size_t i = 0; i < 3; i++) {
            s[i] = swept_draw(&e, &e.r, CONTEXT + 1);
            descent_sweep_options *o = &s[i]->options;
            o->count = 75;
            o->first = 70;
            if (i == 0) o->how.motion.noise.sigma = 0; /* with noise nothing is shared */
            o->how = s[0]->options.how;
            o->n_depths = test_has_depth(e.model.family, 0) || test_has_depth(e.model.family, 1) ? 3 : 1;
            for (uint16_t d = 0; d < 3; d++)
                s[i]->depths[d] = (descent_depth){
                    {test_has_depth(e.model.family, 0) ? 4 - d : 0, test_has_depth(e.model.family, 1) ? 1 + d : 0}};
            for (size_t k = 0; k < CONTEXT; k++)
                s[i]->tokens[k] = (uint32_t)(i > 0 && k < 70 ? s[0]->tokens[k] : k % e.model.vocab);
            s[i]->tokens[72] = (uint32_t)i % (uint32_t)e.model.vocab;
            expect_alone(e.engine, DESCENT_PAGE_F32, s[i]);
            submit(scheduler, &with, s[i]);
            gathering_wait(&with, i + 1);
            compare_swept(s[i], false);
        }
        /* 64 of 74 tokens lie in whole pages before the one that predicts */
        for (size_t i = 1; i < 3; i++) assert_int_equal(s[i]->result.row_steps, s[0]->result.row_steps * 10 / 74);
        for (size_t i = 0; i < 3; i++) free(s[i]);
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        example_free(&e);
    }
}

/* Two sweeps that stand ready together. */
static void run_pair(const example *e, swept *a, swept *b, uint32_t chunk)
{
    gathering with;
    descent_scheduler *scheduler = scheduled_start(e->engine, &(descent_scheduler_options){.threads = 1, .chunk = chunk});
    scheduled first = {.options = {.prompt = a->tokens, .prompt_count = 1, .sampling = descent_sampling_defaults()},
                       .end_gate = true};
    gathering_begin(&with);
    scheduled_submit(scheduler, e->engine, &with, &first);
    gathering_wait_for_gate(&with);
    submit(scheduler, &with, a);
    submit(scheduler, &with, b);
    gathering_open(&with);
    gathering_wait(&with, 3);
    scheduled_free(&first);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
}

static void others_are_those_of_other_experiments(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = draw(407, round);
        swept *a = swept_draw(&e, &e.r, CONTEXT + 1), *b = swept_draw(&e, &e.r, CONTEXT + 1);
        run_pair(&e, a, b, 128);
        assert_false(a->result.shared || b->result.shared);
        b->options.experiment = 1;
        run_pair(&e, a, b, 128);
        assert_true(a->result.shared && b->result.shared);
        free(a);
        free(b);
        example_free(&e);
    }
}

/* Rows of one text are computed faster together: the long sweep in front is not held up by the short one behind it. */
static void the_first_sweep_goes_first(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(TEST_FAMILIES); round++) {
        example e = draw(412, round);
        swept *a = swept_draw(&e, &e.r, CONTEXT + 1), *b = swept_draw(&e, &e.r, 40);
        a->options.n_depths = b->options.n_depths = 1;
        a->depths[0] = b->depths[0];
        a->options.how.exit.criterion = b->options.how.exit.criterion = DESCENT_EXIT_NONE;
        a->options.count = 80;
        b->options.count = 20;
        a->options.first = b->options.first = 1;
        for (size_t i = 0; i < 80; i++) a->tokens[i] = b->tokens[i] = (uint32_t)((i * 7 + 3) % e.model.vocab);
        b->tokens[0] = (b->tokens[0] + 1) % (uint32_t)e.model.vocab;
        run_pair(&e, a, b, 8);
        assert_true(a->order < b->order);
        free(a);
        free(b);
        example_free(&e);
    }
}

/* ---- Ends ---------------------------------------------------------------------------------------------------------- */

/* One of two is cancelled from the other's end, or from the end of a text that came before both. */
static void a_cancelled_sweep_ends_alone(void **state)
{
    size_t cancelled = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = draw(408, round);
        crowd c = crowd_draw(&e, &e.r, 6);
        gathering with;
        descent_scheduler *scheduler = scheduled_start(e.engine, &ways[round % 3]);
        gathering_begin(&with);
        for (size_t i = 0; i < c.n_sweeps; i++) submit(scheduler, &with, c.sweeps[i]);
        gathering_wait(&with, round % 3);
        (void)pthread_mutex_lock(&with.lock);
        for (size_t i = 0; i < c.n_sweeps; i += 2)
            if (c.sweeps[i]->handle) descent_generation_cancel(c.sweeps[i]->handle);
        (void)pthread_mutex_unlock(&with.lock);
        gathering_wait(&with, c.n_sweeps);
        for (size_t i = 0; i < c.n_sweeps; i++) {
            bool gone = c.sweeps[i]->result.end == DESCENT_END_CANCELLED;
            cancelled += gone;
            if (gone) assert_int_equal(i % 2, 0);
            if (!gone) compare_swept(c.sweeps[i], true);
        }
        descent_scheduler_state left = descent_scheduler_describe(scheduler);
        assert_int_equal(left.running + left.waiting + left.rows, 0);
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        crowd_free(&c);
        example_free(&e);
    }
    assert_true(cancelled > 0);
}

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
        example e = draw(409, round * TEST_FAMILIES + TEST_NRGPT);
        descent_model_close(e.engine);
        lengthen_steps(&e.model);
        e.engine = drive_open_test_model(&e.model);
        swept *s = swept_draw(&e, &e.r, CONTEXT + 1), *healthy = swept_draw(&e, &e.r, 2);
        s->options.n_depths = MOST_DEPTHS;
        for (size_t d = 0; d < MOST_DEPTHS; d++) s->depths[d] = (descent_depth){{(uint16_t)rng_between(&e.r, 1, 12)}};
        expect_alone(e.engine, DESCENT_PAGE_F32, s);
        run_alone(e.engine, s, &ways[round % 3]);
        compare_swept(s, false);
        size_t ok = 0;
        for (size_t d = 0; d < MOST_DEPTHS; d++) ok += s->measures[d].code == DESCENT_OK;
        if (ok < MOST_DEPTHS) expect_code(s->result.status.code, DESCENT_DIVERGED, &s->result.status, "diverged at token");
        finite += ok;
        mixed += ok > 0 && ok < MOST_DEPTHS;
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
        test_model model = random_shape(&r, TEST_CEM, CONTEXT);
        model.eta_entries = 2;
        random_weights(&model, &r);
        double *eta = test_model_find(&model, "blk.0.attn_eta");
        if (!eta) eta = test_model_find(&model, "blk.0.attn_eta.weight");
        assert_non_null(eta);
        eta[1] = round_to_f32(3e38);
        example e = {.r = r, .model = model, .engine = drive_open_test_model(&model)};
        swept *s = swept_draw(&e, &e.r, CONTEXT + 1);
        s->options.count = s->options.count < 12 ? 12 : s->options.count;
        s->options.first = 1;
        for (size_t i = 0; i < s->options.count; i++) s->tokens[i] = (uint32_t)rng_below(&r, model.vocab);
        s->options.n_depths = 4;
        static const descent_depth depths[] = {{{2, 1}}, {{1, 1}}, {{3, 2}}, {{1, 3}}};
        memcpy(s->depths, depths, sizeof depths);
        expect_alone(e.engine, DESCENT_PAGE_F32, s);
        run_alone(e.engine, s, &ways[round % 3]);
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
    example e = draw(411, TEST_NRGPT);
    descent_scheduler_options little = {.threads = 1, .cache.byte_limit = 1000};
    descent_scheduler *scheduler = scheduled_start(e.engine, &ways[0]), *small = scheduled_start(e.engine, &little);
    swept *s = swept_draw(&e, &e.r, CONTEXT + 1);
    const descent_sweep_options good = {
        .tokens = s->tokens, .count = 20, .first = 1, .depths = s->depths, .n_depths = 1, .done = done};
    descent_sweep_options o;
    descent_depth wide = {{1, 1}};
    uint32_t unknown[] = {0, 0, (uint32_t)e.model.vocab};
    s->depths[0] = (descent_depth){{2}};
    memset(s->tokens, 0, sizeof s->tokens);
    o = good, o.count = 1, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "an input of 1 tokens");
    o = good, o.count = CONTEXT + 2, refuse(scheduler, &o, DESCENT_BAD_ARGUMENT, "expected 2 to 81");
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
                                       cmocka_unit_test(measures_are_the_references),
                                       cmocka_unit_test(the_same_bits_whatever_runs_beside),
                                       cmocka_unit_test(pauses_change_no_measure),
                                       cmocka_unit_test(what_comes_before_the_answers_is_run_once),
                                       cmocka_unit_test(others_are_those_of_other_experiments),
                                       cmocka_unit_test(the_first_sweep_goes_first),
                                       cmocka_unit_test(a_cancelled_sweep_ends_alone),
                                       cmocka_unit_test(depths_that_diverge_say_so),
                                       cmocka_unit_test(a_depth_that_diverges_leaves_the_others),
                                       cmocka_unit_test(what_cannot_be_swept_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
