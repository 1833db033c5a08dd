/* exit.c: early exit. Owns the criteria and when they are asked; shapes: states before and after a step, [rows of the
 * tile][stride], logits [readings][V]. sequence.c has what was asked checked here, the families ask in their steps, and batch.c
 * acts on the answer: a token of a model that deepens stops for good (cache.h says how it is read), elsewhere it goes on to its
 * next sub-layer.
 *
 * Whether a token stops follows from the states of its own descent, of two steps that follow each other, and from nothing that
 * happened around it. Most criteria find both in the step just made. Two need something of earlier steps, which stays with
 * the token (exit_memory): its energy a step before, since the energy after a step is had with the next step where history
 * moves; and which token was likeliest at the checks before. */
#include "exit.h"

#include "batch.h"
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <string.h>

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    float threshold;
    bool reads; /* logits of tokens on their way */
} criteria[] = {[DESCENT_EXIT_NONE] = {"none", 0.0f, false},       [DESCENT_EXIT_STATE] = {"state", 0.03f, false},
                [DESCENT_EXIT_COSINE] = {"cosine", 1e-3f, false},  [DESCENT_EXIT_ENERGY] = {"energy", 1e-4f, false},
                [DESCENT_EXIT_ENTROPY] = {"entropy", 1e-3f, true}, [DESCENT_EXIT_KL] = {"kl", 1e-3f, true},
                [DESCENT_EXIT_ARGMAX] = {"argmax", 5.0f, true}};
enum { CRITERIA = sizeof criteria / sizeof criteria[0] };

const char *descent_exit_name(descent_exit_criterion criterion)
{
    return (unsigned)criterion < CRITERIA ? criteria[criterion].name : NULL;
}

float descent_exit_default_threshold(descent_exit_criterion criterion)
{
    return (unsigned)criterion < CRITERIA ? criteria[criterion].threshold : 0.0f;
}

bool exit_reads(const descent_exit *exit)
{
    return criteria[exit->criterion].reads;
}

static descent_code check_threshold(const descent_exit *exit, descent_status *status)
{
    double threshold = (double)exit->threshold;
    if (exit->criterion == DESCENT_EXIT_ARGMAX) {
        if (threshold >= 1 && threshold <= DESCENT_MAX_STEPS && threshold == floor(threshold)) return DESCENT_OK;
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "exit threshold of argmax is %g; expected a whole number from 1 to %u", threshold,
                            DESCENT_MAX_STEPS);
    }
    if (threshold >= 0 && !isinf(threshold)) return DESCENT_OK;
    return descent_fail(status, DESCENT_BAD_ARGUMENT, "exit threshold is %g; expected a finite number of at least 0",
                        threshold);
}

static descent_code check_model(const descent_model_info *info, const descent_exit *exit, descent_status *status)
{
    bool descends = false;
    for (uint32_t k = 0; k < info->kinds; k++) descends = descends || info->terms[k] > 0;
    if (!descends)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "early exit is asked of %s (%s, %s), which does not descend an energy; expected none", info->name,
                            info->family, info->variant);
    if (exit_reads(exit) && !info->deepens)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "exit by %s is asked of %s (%s), whose layers descend one after another: only the last one's end "
                            "says what follows; expected none, state, cosine or energy",
                            criteria[exit->criterion].name, info->name, info->family);
    return DESCENT_OK;
}

descent_code exit_complete(const descent_model_info *info, descent_exit *exit, descent_status *status)
{
    if (exit->criterion == DESCENT_EXIT_NONE) {
        *exit = (descent_exit){.criterion = DESCENT_EXIT_NONE};
        return DESCENT_OK;
    }
    if ((unsigned)exit->criterion >= CRITERIA)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "exit criterion %d; expected DESCENT_EXIT_NONE to DESCENT_EXIT_ARGMAX, 0 to %d",
                            (int)exit->criterion, CRITERIA - 1);
    descent_code code = check_threshold(exit, status);
    if (code == DESCENT_OK) code = check_model(info, exit, status);
    if (code != DESCENT_OK) return code;
    if (exit->min_steps == 0) exit->min_steps = 1;
    if (exit->check_every == 0) exit->check_every = 1;
    return DESCENT_OK;
}

bool exits_equal(const descent_exit *a, const descent_exit *b)
{
    return a->criterion == b->criterion && !memcmp(&a->threshold, &b->threshold, sizeof a->threshold) &&
           a->min_steps == b->min_steps && a->check_every == b->check_every && a->first == b->first;
}

/* ---- When it is asked -------------------------------------------------------------------------------------------- */

static const descent_exit *exit_of(const row *r)
{
    return &r->sequence->seed.exit;
}

/* The criterion is asked of the row once it has done so many steps of its sub-layer. */
static bool due(const tile *t, const row *r, uint32_t done)
{
    const descent_exit *exit = exit_of(r);
    return exit->criterion != DESCENT_EXIT_NONE && t->model->info.terms[r->where.kind] > 0 && r->position >= exit->first &&
           done >= exit->min_steps && (done - exit->min_steps) % exit->check_every == 0;
}

/* Energies of a history that moves are compared by the step behind: tile_weigh. */
static bool weighed_later(const tile *t, const row *r)
{
    return exit_of(r)->criterion == DESCENT_EXIT_ENERGY && t->model->info.deepens;
}

static bool asks(const tile *t, const row *r)
{
    return r->moved && !r->stops && !weighed_later(t, r) && due(t, r, r->where.step + 1);
}

bool tile_asks(const tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        if ((t->rows[i]->moved && t->rows[i]->stops) || asks(t, t->rows[i])) return true;
    return false;
}

/* An energy, or a whole step, was computed for nothing but to see whether the row stops. */
static void count_energy(const row *r)
{
    r->sequence->work.energies[r->where.kind]++;
    r->sequence->work.energies_seen[r->where.kind] += r->position + 1;
}

/* ---- By energies ------------------------------------------------------------------------------------------------- */

/* E at g is compared with that at the next g, or, where history moves, with that of the step before as well. */
static bool weighs(const tile *t, const row *r)
{
    if (exit_of(r)->criterion != DESCENT_EXIT_ENERGY || r->measuring) return false;
    return due(t, r, r->where.step + 1) || (t->model->info.deepens && due(t, r, r->where.step));
}

bool tile_weighs(const tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (weighs(t, t->rows[i])) return true;
    return false;
}

static float energy_of(const tile *t, size_t i, int when)
{
    double sum = 0;
    for (uint32_t k = 0; k < t->model->info.terms[t->rows[i]->where.kind]; k++) sum += (double)t->work->energy[when][i][k];
    return (float)sum;
}

static double energy_change(float before, float after)
{
    return fabs((double)after - (double)before) / fmax(1, fabs((double)before));
}

void tile_weigh(const tile *t)
{
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        if (!weighs(t, r) || r->sequence->ended != DESCENT_OK) continue;
        float energy = energy_of(t, i, 0);
        r->stops = due(t, r, r->where.step) &&
                   energy_change(r->asked.energy, energy) < (double)exit_of(r)->threshold; /* false of NaN */
        r->asked.energy = due(t, r, r->where.step + 1) ? energy : NAN;
        if (r->stops) count_energy(r);
    }
}

/* ---- By states --------------------------------------------------------------------------------------------------- */

enum { LANES = 8 };

static double sum_lanes(double *lanes)
{
    for (int k = 1; k < LANES; k++) lanes[0] += lanes[k];
    return lanes[0];
}

float relative_change(const float *g, const float *next_g, size_t n)
{
    double moved[LANES] = {0}, length[LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        double before = (double)g[i], change = (double)next_g[i] - before;
        moved[i % LANES] += change * change;
        length[i % LANES] += before * before;
    }
    return (float)sqrt(sum_lanes(moved) / sum_lanes(length));
}

/* 1 - cos(a, b), as half the square of the distance of a / |a| and b / |b|: exact where they are near each other. */
static double cosine_distance(const float *a, const float *b, size_t n)
{
    double of_a[LANES] = {0}, of_b[LANES] = {0}, apart[LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        of_a[i % LANES] += (double)a[i] * (double)a[i];
        of_b[i % LANES] += (double)b[i] * (double)b[i];
    }
    double length_a = sqrt(sum_lanes(of_a)), length_b = sqrt(sum_lanes(of_b));
    for (size_t i = 0; i < n; i++) {
        double difference = (double)a[i] / length_a - (double)b[i] / length_b;
        apart[i % LANES] += difference * difference;
    }
    return sum_lanes(apart) / 2;
}

void tile_decide(const tile *t, const float *g, const float *next_g)
{
    size_t width = t->model->info.width, stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        const float *before = g + i * stride, *after = next_g + i * stride;
        double change = NAN;
        if (!asks(t, r) || exit_reads(exit_of(r))) continue;
        if (exit_of(r)->criterion == DESCENT_EXIT_STATE) change = (double)relative_change(before, after, width);
        if (exit_of(r)->criterion == DESCENT_EXIT_COSINE) change = cosine_distance(before, after, width);
        if (exit_of(r)->criterion == DESCENT_EXIT_ENERGY) {
            change = energy_change(energy_of(t, i, 0), energy_of(t, i, 1));
            count_energy(r);
        }
        r->stops = change < (double)exit_of(r)->threshold;
    }
}

/* ---- By what follows --------------------------------------------------------------------------------------------- */

/* A row that asks, and where the logits at x(t+1), and for KL at x(t), stand among those read with it. */
typedef struct asking {
    row *row;
    const float *logits, *before; /* [V]; before: NULL where it is not needed */
} asking;

typedef struct asking_rows {
    const tile *t;
    asking of[TILE_ROWS];
    size_t n;
} asking_rows;

/* The likeliest token, the lowest of equals; NO_TOKEN where a logit is not finite. */
static uint32_t likeliest(const float *logits, size_t vocab)
{
    size_t best = 0;
    bool finite = true;
    for (size_t v = 0; v < vocab; v++) {
        finite = finite && isfinite(logits[v]);
        if (logits[v] > logits[best]) best = v;
    }
    return finite ? (uint32_t)best : NO_TOKEN;
}

/* sum_v exp(l_v - max l), and the largest logit. */
static double sum_exp(const float *logits, size_t vocab, double *largest)
{
    double sum = 0;
    *largest = (double)logits[0];
    for (size_t v = 1; v < vocab; v++) *largest = fmax(*largest, (double)logits[v]);
    for (size_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - *largest);
    return sum;
}

/* H(p) = log sum exp l - sum_v p_v l_v, in nats. */
static double entropy(const float *logits, size_t vocab)
{
    double largest, sum = sum_exp(logits, vocab, &largest), mean = 0;
    for (size_t v = 0; v < vocab; v++) mean += exp((double)logits[v] - largest) * ((double)logits[v] - largest);
    return log(sum) - mean / sum;
}

/* KL(p || q) of p and q by their logits, in nats. Rounding may not make it negative: a threshold of 0 stops nobody. */
static double divergence(const float *p, const float *q, size_t vocab)
{
    double largest_p, largest_q, sum_p = sum_exp(p, vocab, &largest_p), sum_q = sum_exp(q, vocab, &largest_q), mean = 0;
    for (size_t v = 0; v < vocab; v++) {
        double log_p = (double)p[v] - largest_p, log_q = (double)q[v] - largest_q;
        mean += exp(log_p) * (log_p - log_q);
    }
    double kl = mean / sum_p + log(sum_q) - log(sum_p);
    return kl < 0 ? 0 : kl;
}

static void judge(const void *arg, size_t i, unsigned thread)
{
    (void)thread;
    const asking_rows *rows = arg;
    const asking *a = &rows->of[i];
    row *r = a->row;
    size_t vocab = rows->t->model->info.vocab;
    double threshold = (double)exit_of(r)->threshold;
    if (exit_of(r)->criterion == DESCENT_EXIT_ENTROPY) r->stops = entropy(a->logits, vocab) < threshold;
    if (exit_of(r)->criterion == DESCENT_EXIT_KL) r->stops = divergence(a->logits, a->before, vocab) < threshold;
    if (exit_of(r)->criterion != DESCENT_EXIT_ARGMAX) return;
    uint32_t token = likeliest(a->logits, vocab);
    bool same = token != NO_TOKEN && token == r->asked.likeliest;
    r->asked.likeliest = token;
    r->asked.unchanged = same ? r->asked.unchanged + 1 : 0;
    r->stops = (double)r->asked.unchanged >= threshold;
}

void tile_decide_by_logits(const tile *t, const float *x, const float *next_x, float *scratch)
{
    size_t vocab = t->model->info.vocab, stride = t->work->wide_stride;
    asking_rows rows = {.t = t};
    for (size_t next = 0; t->work->readings > 0 && next < t->n;) { /* 0: nobody in the batch has asked for one yet */
        const float *states[2 * TILE_ROWS];
        size_t count = 0;
        for (rows.n = 0; next < t->n && count + 2 <= t->work->readings; next++) {
            row *r = t->rows[next];
            if (!asks(t, r) || !exit_reads(exit_of(r))) continue;
            bool both = exit_of(r)->criterion == DESCENT_EXIT_KL;
            rows.of[rows.n++] = (asking){.row = r,
                                         .logits = t->work->logits + count * vocab,
                                         .before = both ? t->work->logits + (count + 1) * vocab : NULL};
            states[count++] = next_x + next * stride;
            if (both) states[count++] = x + next * stride;
            r->sequence->work.readings += both ? 2 : 1;
        }
        tile_read_logits(t, states, count, scratch);
        tile_each(t, rows.n, count * vocab * 40, judge, &rows);
    }
}
