/* swept.c: see swept.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "swept.h"

#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const descent_scheduler_options swept_ways[SWEPT_WAYS] = {
    {.threads = 1}, {.threads = 2, .chunk = 5}, {.threads = 1, .chunk = 1}};

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
    how.history.prompt = (uint32_t)o->first - 1;
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

void swept_submit(descent_scheduler *scheduler, gathering *with, swept *s)
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

void compare_swept(const swept *s, bool bits)
{
    if (s->result.end != DESCENT_END_LENGTH) compare_fail("end %d: %s", s->result.end, s->result.status.message);
    assert_int_equal(s->result.n_depths, s->options.n_depths);
    for (size_t d = 0; d < s->options.n_depths; d++)
        (bits ? compare_bits_of : compare_measure)(&s->measures[d], &s->alone[d], d);
}

/* Runs one alone. */
void swept_run(const descent_model *model, swept *s, const descent_scheduler_options *how)
{
    gathering with;
    descent_scheduler *scheduler = scheduled_start(model, how);
    gathering_begin(&with);
    swept_submit(scheduler, &with, s);
    gathering_wait(&with, 1);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
}

/* ---- Drawing ------------------------------------------------------------------------------------------------------- */

swept *swept_draw(const example *e, rng *r, size_t longest)
{
    swept *s = test_alloc(1, sizeof *s);
    descent_sweep_options *o = &s->options;
    o->count = rng_between(r, 2, longest);
    o->first = rng_below(r, 2) ? 1 : rng_between(r, 1, o->count - 1);
    o->n_depths = rng_between(r, 1, SWEPT_DEPTHS);
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

void swept_expect(const descent_model *model, descent_page_type page_type, swept *s)
{
    s->options.tokens = s->tokens;
    for (size_t d = 0; d < s->options.n_depths; d++) s->alone[d] = measured_alone(model, &s->options, page_type, s->depths[d]);
}

example swept_example(uint64_t test, size_t round)
{
    example_wish wish = {.family = family_of(round), .context = SWEPT_CONTEXT, .count = 1, .most = 4};
    return example_draw(test_seed(test, round), &wish);
}
