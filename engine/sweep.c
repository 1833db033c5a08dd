/* sweep.c: see sweep.h. Owns what a sweep was asked, the leg it is in, and the measures it makes. Shapes: logits [V]; of each
 * token run, [count - 1], its energy and r. Called by generation.c and scheduler.c where a generation is a sweep.
 *
 * Every number is a sum over positions in their order, whatever order rows and observations came in, so that measures are the
 * same bit for bit whatever ran beside. Observations are kept by position until the leg ends: a pause only has them come again.
 */
#include "sweep.h"

#include "sequence.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far the descents of a token have come. */
typedef struct token_end {
    double energy;
    float last;    /* r of its last step so far in the present sub-layer; NaN where that has no T */
    float largest; /* r over the sub-layers that have ended */
} token_end;

typedef struct sweep sweep;
struct sweep {
    const descent_model *model;
    const descent_model_cost *model_cost;
    uint32_t *tokens; /* [count] */
    size_t count, first;
    descent_depth *depths; /* [n_depths] as asked */
    size_t *order;         /* of the legs */
    descent_measure *measures;
    size_t n_depths;
    bool deepens;             /* a leg goes on from the one before */
    bool energy, convergence; /* asked for, and the model has them */
    float threshold;
    uint64_t experiment;
    void (*done)(void *user, const descent_sweep_result *result);
    void *user;

    size_t leg;          /* in `order` */
    size_t read;         /* the next position to be read in it */
    token_end *ends;     /* [count - 1], NULL where nothing is observed */
    double step_seconds; /* of this leg, and where it went on from those before it of these */
    double reading_seconds;
    uint64_t steps_charged;    /* of the sequence */
    sequence_work work_before; /* what the sequence had run before this leg, where that does not count */
    bool shared;
    descent_status status; /* of the first measure that diverged */
};

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static descent_code check_tokens(const descent_model_info *info, const descent_sweep_options *o, descent_status *status)
{
    if (!o->tokens || o->count < 2 || o->count > (size_t)info->context + 1)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "an input of %zu tokens; expected 2 to %zu, the context of %s and one that is only predicted",
                            o->tokens ? o->count : 0, (size_t)info->context + 1, info->name);
    if (o->first < 1 || o->first >= o->count)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "the first position predicted is %zu; expected 1 to %zu", o->first,
                            o->count - 1);
    for (size_t i = 0; i < o->count; i++)
        if (o->tokens[i] >= info->vocab)
            return descent_fail(status, DESCENT_BAD_ARGUMENT,
                                "the input has token %u at position %zu; the vocabulary has ids 0 to %u", o->tokens[i], i,
                                info->vocab - 1);
    return DESCENT_OK;
}

static descent_code check_options(const descent_model_info *info, const descent_sweep_options *o, descent_status *status)
{
    if (!o->done) return descent_fail(status, DESCENT_BAD_ARGUMENT, "a sweep needs `done`, to be told its measures");
    if (!o->depths || o->n_depths == 0 || o->n_depths > DESCENT_SWEEP_DEPTHS)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "%zu depths; expected 1 to %d", o->depths ? o->n_depths : 0,
                            DESCENT_SWEEP_DEPTHS);
    if (o->convergence && !(o->threshold >= 0 && isfinite(o->threshold)))
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "the threshold of convergence is %g; expected a finite number of at least 0", (double)o->threshold);
    return check_tokens(info, o, status);
}

static void sort_legs(sweep *w)
{
    bool deepens = descent_model_describe(w->model)->deepens;
    for (size_t d = 0; d < w->n_depths; d++) {
        size_t at = d;
        for (; deepens && at > 0 && w->depths[w->order[at - 1]].steps[0] > w->depths[d].steps[0]; at--)
            w->order[at] = w->order[at - 1];
        w->order[at] = d;
    }
}

static uint64_t bytes_predicted(const sweep *w)
{
    const descent_tokenizer *tokenizer = descent_model_tokenizer(w->model);
    uint64_t sum = 0;
    for (size_t i = w->first; tokenizer && i < w->count; i++) {
        size_t bytes = 0;
        if (descent_tokenizer_piece(tokenizer, w->tokens[i], &bytes)) sum += bytes;
    }
    return sum;
}

/* The measure of a leg before anything of it was read. */
static void begin_measure(const sweep *w, size_t depth, uint64_t bytes)
{
    descent_measure *m = &w->measures[depth];
    *m = descent_measure_cost(w->model_cost, w->depths[depth], w->count - 1, w->count - w->first);
    m->predictions = m->items = w->count - w->first;
    m->bytes = bytes;
}

static descent_code copy_arrays(sweep *w, const descent_sweep_options *o, descent_status *status)
{
    w->tokens = malloc(w->count * sizeof *w->tokens);
    w->depths = malloc(w->n_depths * sizeof *w->depths);
    w->order = malloc(w->n_depths * sizeof *w->order);
    w->measures = malloc(w->n_depths * sizeof *w->measures);
    if (w->energy || w->convergence) w->ends = calloc(w->count - 1, sizeof *w->ends);
    if (!w->tokens || !w->depths || !w->order || !w->measures || (!w->ends && (w->energy || w->convergence)))
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a sweep of %zu tokens at %zu depths", w->count,
                            w->n_depths);
    memcpy(w->tokens, o->tokens, w->count * sizeof *w->tokens);
    return DESCENT_OK;
}

/* Tokens may take other steps than the depth says. */
static bool is_counted(const descent_sequence_options *how)
{
    return how->exit.criterion != DESCENT_EXIT_NONE || how->solver.method != DESCENT_SOLVER_PLAIN || how->history.prompt > 0;
}

/* Checks every depth with everything else that a sequence is asked, and leaves the largest in `how`. */
static descent_code take_depths(sweep *w, const descent_depth *depths, descent_sequence_options *how, descent_status *status)
{
    descent_sequence_options asked = *how;
    for (size_t d = 0; d < w->n_depths; d++) {
        *how = asked;
        how->depth = depths[d];
        descent_code code = sequence_complete_options(w->model, how, status);
        if (code != DESCENT_OK) return code;
        w->depths[d] = how->depth;
    }
    if (how->solver.method != DESCENT_SOLVER_PLAIN && w->n_depths > 1)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "a sweep over %zu depths with the solver anderson, which begins anew at each: ask for one depth",
                            w->n_depths);
    sort_legs(w);
    how->depth = w->depths[w->order[w->n_depths - 1]];
    how->no_sharing = how->no_sharing || is_counted(how); /* what is found in the cache is not */
    w->deepens = descent_model_describe(w->model)->deepens && how->history.policy == DESCENT_HISTORY_OWN;
    return DESCENT_OK;
}

static bool has_energy(const descent_model_info *info)
{
    for (uint32_t k = 0; k < info->kinds; k++)
        if (info->terms[k]) return true;
    return false;
}

static bool has_steps(const descent_model_info *info)
{
    for (uint32_t k = 0; k < info->kinds; k++)
        if (info->trained.steps[k]) return true;
    return false;
}

static void tell(void *user, const descent_generation_report *report)
{
    const sweep *w = user;
    descent_sweep_result result = {.end = report->end,
                                   .status = report->end == DESCENT_END_FAILED ? report->status : w->status,
                                   .measures = w->measures,
                                   .n_depths = w->n_depths,
                                   .row_steps = report->row_steps,
                                   .exit_cost = report->exit_cost,
                                   .pauses = report->pauses,
                                   .shared = w->shared || report->pauses > 0,
                                   .queue_seconds = report->queue_seconds,
                                   .seconds = report->prompt_seconds + report->generation_seconds};
    w->done(w->user, &result);
}

static descent_code make_sweep(const descent_model *model, const descent_model_cost *cost, const descent_sweep_options *o,
                               descent_sequence_options *how, sweep **out, descent_status *status)
{
    const descent_model_info *info = descent_model_describe(model);
    sweep *w = calloc(1, sizeof *w);
    if (!w) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a sweep");
    w->model = model;
    w->model_cost = cost;
    w->count = o->count;
    w->first = o->first;
    w->read = o->first - 1;
    w->n_depths = o->n_depths;
    w->energy = o->energy && has_energy(info);
    w->convergence = o->convergence && has_steps(info);
    w->threshold = o->threshold;
    w->experiment = o->experiment;
    w->done = o->done;
    w->user = o->user;
    descent_code code = copy_arrays(w, o, status);
    if (code == DESCENT_OK) code = take_depths(w, o->depths, how, status);
    if (code != DESCENT_OK) {
        sweep_free(w);
        return code;
    }
    uint64_t bytes = bytes_predicted(w);
    for (size_t d = 0; d < w->n_depths; d++) begin_measure(w, d, bytes);
    *out = w;
    return DESCENT_OK;
}

/* Energies are read behind the last step, and r where it was made. Where layers descend both come with the sub-layer's end. */
static int flags_of(const sweep *w)
{
    bool layered = !descent_model_describe(w->model)->deepens;
    int flags = w->energy ? DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_FINAL : 0;
    if (w->convergence) flags |= DESCENT_OBSERVE_CONVERGENCE | (layered ? DESCENT_OBSERVE_FINAL : 0);
    return flags;
}

descent_code sweep_create(const descent_model *model, const descent_model_cost *cost, const descent_sweep_options *o,
                          descent_generation **out, descent_status *status)
{
    descent_sequence_options how = o->how;
    sweep *w = NULL;
    descent_code code = check_options(descent_model_describe(model), o, status);
    how.history.prompt = (uint32_t)o->first - 1;
    if (code == DESCENT_OK) code = make_sweep(model, cost, o, &how, &w, status);
    if (code != DESCENT_OK) return code;
    code = generation_create_reading(w->tokens, w->count - 1, &how, flags_of(w), w->first - 1, out, status);
    if (code != DESCENT_OK) {
        sweep_free(w);
        return code;
    }
    descent_generation *g = *out;
    g->sweep = w;
    g->background = o->background;
    g->calls.ended = tell;
    g->user = w;
    return DESCENT_OK;
}

void sweep_free(sweep *w)
{
    if (!w) return;
    free(w->tokens);
    free(w->depths);
    free(w->order);
    free(w->measures);
    free(w->ends);
    free(w);
}

/* ---- Legs -------------------------------------------------------------------------------------------------------- */

descent_depth sweep_depth(const sweep *w)
{
    return w->depths[w->order[w->leg]];
}

size_t sweep_private_from(const sweep *w)
{
    return (w->first - 1) / PAGE_TOKENS;
}

void sweep_begin(sweep *w)
{
    w->steps_charged = 0;
    w->work_before = (sequence_work){.steps = {0}};
}

static descent_measure *present(const sweep *w)
{
    return &w->measures[w->order[w->leg]];
}

/* Of tokens that have one kind of step: those of each, and the positions up to its own for each of them. What a solver had to
 * begin again is not among them. */
static void count_steps(const descent_sequence *s, uint64_t *steps, uint64_t *seen)
{
    *steps = *seen = 0;
    for (size_t i = 0; i < descent_sequence_length(s); i++) {
        uint64_t own = descent_sequence_token_steps(s, i);
        *steps += own;
        *seen += own * (i + 1);
    }
}

/* Its steps as they were run, early ends included, and what these took to find: the sequence ran all of them. */
static void count_work(const descent_generation *g, descent_measure *m)
{
    const sweep *w = g->sweep;
    const descent_model_cost *cost = w->model_cost;
    const sequence_work *all = &g->sequence->work, *before = &w->work_before;
    uint64_t layers = cost->info->layers;
    m->token_steps = m->cost.weights = m->cost.attention = 0;
    m->cost.exit = (all->readings - before->readings) * cost->head.multiply_adds;
    for (uint32_t k = 0; k < cost->info->kinds; k++) {
        const descent_kind_cost *kind = &cost->kinds[k]; /* of all layers together, which are alike */
        uint64_t step = kind->step.multiply_adds / layers, attention = kind->attention / layers;
        uint64_t steps = all->steps[k] - before->steps[k], begun = all->begun[k] - before->begun[k];
        uint64_t seen = all->seen[k] - before->seen[k];
        if (cost->info->deepens) count_steps(g->sequence, &steps, &seen);
        if (cost->strict) seen -= steps;
        uint64_t energies = all->energies[k] - before->energies[k];
        uint64_t energies_seen = all->energies_seen[k] - before->energies_seen[k] - (cost->strict ? energies : 0);
        m->token_steps += steps;
        m->cost.weights += steps * step + begun * (kind->entry.multiply_adds / layers);
        m->cost.attention += seen * attention;
        if (cost->info->deepens) /* whole steps that were not made */
            m->cost.exit += energies * step + energies_seen * attention;
        else
            m->cost.exit += energies * (kind->energy / layers) + energies_seen * attention / 2;
    }
}

static void count_ends(const sweep *w, descent_measure *m)
{
    m->energy = w->energy ? 0 : NAN;
    m->relative_change = w->convergence ? 0 : NAN;
    for (size_t i = w->first - 1; w->ends && i + 1 < w->count; i++) {
        const token_end *end = &w->ends[i];
        if (w->energy) m->energy += end->energy;
        if (!w->convergence) continue;
        m->relative_change += (double)end->largest;
        m->converged += end->largest < w->threshold;
    }
}

/* A measure that cannot be made: a state or a logit was not finite. */
static void spoil(sweep *w, const descent_status *status)
{
    descent_measure *m = present(w);
    m->code = status->code;
    m->nats = m->energy = m->relative_change = NAN;
    m->right = m->converged = 0;
    if (w->status.code == DESCENT_OK) w->status = *status;
}

static void finish_measure(const descent_generation *g)
{
    sweep *w = g->sweep;
    descent_measure *m = present(w);
    m->seconds = w->step_seconds + w->reading_seconds;
    if (m->code != DESCENT_OK) return;
    if (is_counted(&g->options)) count_work(g, m);
    count_ends(w, m);
}

/* Takes the sequence to the depth of the present leg. Where that is another computation, it loses its tokens: they are appended
 * again as rows are enrolled, when others can be asked to make room. */
static descent_code descend(descent_generation *g, descent_status *status)
{
    sweep *w = g->sweep;
    descent_sequence *s = g->sequence;
    descent_depth depth = sweep_depth(w);
    descent_code code = descent_sequence_observe(s, 0, NULL, NULL, status);
    g->observing = false;
    if (code == DESCENT_OK && !w->deepens) {
        w->work_before = s->work;
        w->step_seconds = 0;
        code = descent_sequence_truncate(s, 0, status);
    }
    return code == DESCENT_OK ? descent_sequence_set_depth(s, depth, status) : code;
}

/* The next leg, and where nothing is left to do in it, as every token has stopped already or the depth is the same, its measure
 * at once. */
static void next_leg(descent_generation *g)
{
    sweep *w = g->sweep;
    descent_status status;
    for (;;) {
        const descent_measure *before = present(w);
        if (++w->leg == w->n_depths) {
            generation_end(g, DESCENT_END_LENGTH, NULL);
            return;
        }
        w->read = w->first - 1;
        w->reading_seconds = 0;
        descent_depth depth = sweep_depth(w);
        bool same = !memcmp(&depth, &before->depth, sizeof depth);
        if (!same && descend(g, &status) != DESCENT_OK) {
            generation_end(g, DESCENT_END_FAILED, &status);
            return;
        }
        if (!same && (g->sequence->length < g->count || descent_sequence_finished(g->sequence) < g->count)) return;
        *present(w) = *before;
        present(w)->depth = depth;
    }
}

void sweep_diverged(descent_generation *g)
{
    sweep *w = g->sweep;
    descent_status status;
    (void)descent_sequence_state_code(g->sequence, &status);
    for (;;) {
        spoil(w, &status);
        finish_measure(g);
        if (!w->deepens || w->leg + 1 == w->n_depths) break;
        w->leg++; /* every larger T comes by the same step */
    }
    next_leg(g);
}

/* ---- What is observed -------------------------------------------------------------------------------------------- */

void sweep_observe(sweep *w, const descent_observation *seen)
{
    const descent_model_info *info = descent_model_describe(w->model);
    token_end *end = &w->ends[seen->site.position];
    bool deepens = info->deepens;
    if (!seen->final) {
        end->last = info->trained.steps[seen->site.kind] ? seen->relative_change : NAN;
        if (deepens) end->largest = end->last;
        return;
    }
    if (seen->site.layer == 0 && seen->site.kind == 0) {
        end->energy = 0;
        if (!deepens) end->largest = NAN;
    }
    for (uint32_t i = 0; i < info->terms[seen->site.kind]; i++) end->energy += (double)seen->energy[i];
    if (!deepens) end->largest = fmaxf(end->largest, end->last);
}

/* ---- What is read ------------------------------------------------------------------------------------------------ */

bool sweep_due(const descent_generation *g, size_t *position)
{
    const sweep *w = g->sweep;
    size_t last = w->count - 2, next = w->read > g->looked ? w->read : g->looked;
    if (next > last || next >= descent_sequence_finished(g->sequence)) return false;
    if (next == last && g->sequence->rows > 0) return false; /* rows that still read their last energy */
    *position = next;
    return true;
}

/* -log p of the token, and whether it is the likeliest. False where a logit is not finite. */
static bool predict(const float *logits, size_t vocab, uint32_t token, double *nats, bool *right)
{
    size_t likeliest = 0;
    double sum = 0;
    for (size_t v = 0; v < vocab; v++) {
        if (!isfinite(logits[v])) return false;
        if (logits[v] > logits[likeliest]) likeliest = v;
    }
    for (size_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - (double)logits[likeliest]);
    *nats = log(sum) + (double)logits[likeliest] - (double)logits[token];
    *right = likeliest == token;
    return true;
}

void sweep_read(descent_generation *g, size_t position, const float *logits)
{
    sweep *w = g->sweep;
    descent_measure *m = present(w);
    descent_status status;
    double nats;
    bool right;
    if (position != w->read) return;
    w->read++;
    if (m->code == DESCENT_OK) {
        if (predict(logits, descent_model_describe(w->model)->vocab, w->tokens[position + 1], &nats, &right)) {
            m->nats += nats;
            m->right += right;
        } else {
            (void)descent_fail(&status, DESCENT_DIVERGED, "diverged at token %zu: its logits are not finite", position);
            spoil(w, &status);
        }
    }
    if (position + 2 < w->count) return;
    finish_measure(g);
    next_leg(g);
}

/* ---- Seconds ----------------------------------------------------------------------------------------------------- */

/* Who takes part in something that `total` parts are taken in: all of one experiment, or others too. */
static void charge(sweep *w, double *to, double seconds, size_t own, size_t of_experiment, size_t total)
{
    *to += seconds * (double)own / (double)total;
    w->shared = w->shared || of_experiment < total;
}

/* Row steps since the last charge. */
static size_t rows_run(const descent_generation *g)
{
    return g->sweep && g->sequence ? (size_t)(descent_sequence_steps_run(g->sequence) - g->sweep->steps_charged) : 0;
}

void sweeps_charge_step(descent_generation *const *running, size_t n, double seconds, size_t rows)
{
    const descent_generation *first = NULL;
    size_t alike = 0;
    for (size_t i = 0; i < n; i++) {
        size_t own = rows_run(running[i]);
        if (own > 0 && !first) first = running[i];
        if (own > 0 && running[i]->sweep->experiment == first->sweep->experiment) alike += own;
    }
    for (size_t i = 0; first && i < n; i++) {
        size_t own = rows_run(running[i]);
        if (own == 0) continue;
        sweep *w = running[i]->sweep;
        charge(w, &w->step_seconds, seconds, own, alike, rows);
        w->steps_charged += own;
    }
}

void sweeps_charge_reading(descent_generation *const *readers, size_t n, double seconds)
{
    const descent_generation *first = NULL;
    size_t alike = 0;
    for (size_t i = 0; i < n; i++) {
        if (readers[i]->sweep && !first) first = readers[i];
        alike += readers[i]->sweep && readers[i]->sweep->experiment == first->sweep->experiment;
    }
    for (size_t i = 0; first && i < n; i++)
        if (readers[i]->sweep) charge(readers[i]->sweep, &readers[i]->sweep->reading_seconds, seconds, 1, alike, n);
}
