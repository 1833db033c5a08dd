/* reference.c: the arithmetic and the bookkeeping both references share. */
#include "reference.h"

#include "random.h"
#include "reference_cem.h"
#include "reference_gpt.h"
#include "reference_nrgpt.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *of_nan(size_t count)
{
    double *values = test_alloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = NAN;
    return values;
}

size_t reference_kinds(const test_model *model)
{
    return test_kinds(model->family);
}

reference_run reference_run_create(const test_model *model, const reference_request *request)
{
    size_t count = request->count, kinds = reference_kinds(model);
    reference_run run = {.count = count, .width = model->width, .vocab = model->vocab, .kinds = kinds};
    run.programs = model->layers * kinds;
    run.steps = test_alloc(run.programs, sizeof *run.steps);
    run.at = test_alloc(run.programs, sizeof(reference_step *));
    run.used = test_alloc(run.programs, sizeof(size_t *));
    run.closest = INFINITY;
    for (size_t p = 0; p < run.programs; p++) {
        run.steps[p] = sublayer_steps_at(request->depth, p % kinds);
        run.used[p] = test_alloc(count, sizeof(size_t));
        for (size_t i = 0; i < count; i++) {
            run.used[p][i] = kinds == 1 ? reference_token_steps(request, i) : run.steps[p];
            if (run.used[p][i] > run.steps[p]) run.steps[p] = run.used[p][i];
        }
        run.at[p] = test_alloc(run.steps[p] + 1, sizeof(reference_step));
        for (size_t t = 0; t <= run.steps[p]; t++) {
            reference_step *step = &run.at[p][t];
            step->x = of_nan(count * model->width);
            step->g = of_nan(count * model->width);
            for (size_t e = 0; e < DESCENT_MAX_TERMS; e++) step->energy[e] = of_nan(count);
            step->own_change = of_nan(count);
            step->history_change = of_nan(count);
            step->update_norm = of_nan(count);
            step->relative_change = of_nan(count);
            step->said = model->family == TEST_NRGPT ? of_nan(count * model->vocab) : NULL;
            step->slope = of_nan(count);
        }
    }
    run.states = of_nan(count * model->width);
    run.logits = of_nan(count * model->vocab);
    return run;
}

void reference_free(reference_run *run)
{
    for (size_t p = 0; p < run->programs; p++) {
        for (size_t t = 0; t <= run->steps[p]; t++) {
            reference_step *step = &run->at[p][t];
            free(step->x);
            free(step->g);
            for (size_t e = 0; e < DESCENT_MAX_TERMS; e++) free(step->energy[e]);
            free(step->own_change);
            free(step->history_change);
            free(step->update_norm);
            free(step->relative_change);
            free(step->said);
            free(step->slope);
        }
        free(run->at[p]);
        free(run->used[p]);
    }
    free(run->at);
    free(run->used);
    free(run->steps);
    free(run->states);
    free(run->logits);
    memset(run, 0, sizeof *run);
}

const reference_step *reference_at(const reference_run *run, descent_site site)
{
    return &run->at[site.layer * run->kinds + site.kind][site.step];
}

double reference_energy(const reference_step *step, size_t position)
{
    double sum = step->energy[0][position];
    return isnan(step->energy[1][position]) ? sum : sum + step->energy[1][position];
}

size_t sublayer_steps_at(descent_depth depth, size_t kind)
{
    return depth.steps[kind] ? depth.steps[kind] : 1;
}

size_t reference_token_steps(const reference_request *request, size_t i)
{
    const descent_history *history = &request->history;
    bool of_prompt = history->prompt_steps > 0 && i < history->prompt;
    return of_prompt ? history->prompt_steps : sublayer_steps_at(request->depth, 0);
}

size_t row_steps_at(const test_model *model, descent_depth depth)
{
    size_t steps = 0;
    for (size_t k = 0; k < test_kinds(model->family); k++) steps += sublayer_steps_at(depth, k);
    return model->layers * steps;
}

static double nearest_choice;

reference_run reference_compute(const test_model *model, const reference_request *request)
{
    static reference_run (*const of[TEST_FAMILIES])(const test_model *, const reference_request *) = {
        [TEST_NRGPT] = reference_nrgpt,   [TEST_CEM] = reference_cem,
        [TEST_GPT] = reference_gpt,       [TEST_GPT_REC] = reference_gpt_rec_parallel,
        [TEST_LLAMA] = reference_cem,     [TEST_CEM_SWIGLU] = reference_cem,
        [TEST_LLAMA_CEM] = reference_cem,
    };
    nearest_choice = INFINITY;
    return of[model->family](model, request);
}

void reference_round_page(page_rounding round, double *values, size_t count)
{
    for (size_t i = 0; !round && i < count; i++) values[i] = round_to_f32(values[i]);
    if (round) round(values, count);
}

double reference_frozen_energy(const test_model *model, descent_site site, const double *keys, page_rounding round_page,
                               const double *g)
{
    return test_sublayer(model->family, 0) ? reference_cem_energy(model, site, keys, round_page, g)
                                           : reference_nrgpt_energy(model, site, keys, round_page, g);
}

/* ---- Conditioning ------------------------------------------------------------------------------------------------ */

static double moved(const double *a, const double *b, size_t rows, size_t width, bool by_row, double tolerance)
{
    double worst = 0.0;
    for (size_t r = 0; r < rows; r++) {
        double largest = 1.0;
        for (size_t c = 0; c < width && by_row; c++) largest = fmax(largest, fabs(b[r * width + c]));
        for (size_t c = 0; c < width; c++) {
            double allowed = tolerance * (by_row ? largest : fmax(1.0, fabs(b[r * width + c])));
            double part = fabs(a[r * width + c] - b[r * width + c]) / allowed;
            if (part > worst) worst = part; /* NaN: what does not exist does not move */
        }
    }
    return worst;
}

double reference_sensitivity(const test_model *model, const reference_request *request, const reference_run *run)
{
    test_model other = test_model_copy(model);
    double *embedding = test_model_find(&other, "token_embd.weight"), worst = 0.0;
    size_t C = model->width, L = request->count;
    /* Signs in a pattern that is even across neither rows nor columns. */
    for (size_t i = 0; i < other.vocab * C; i++) embedding[i] *= 1.0 + ((i * 2654435761u >> 7) & 1 ? 0x1p-24 : -0x1p-24);
    reference_run near = reference_compute(&other, request);
    for (size_t p = 0; p < run->programs; p++)
        for (size_t t = 0; t <= run->steps[p]; t++) {
            const reference_step *a = &near.at[p][t], *b = &run->at[p][t];
            worst = fmax(worst, moved(a->x, b->x, L, C, true, 2e-5));
            worst = fmax(worst, moved(a->g, b->g, L, C, true, 2e-5));
            for (size_t e = 0; e < DESCENT_MAX_TERMS; e++)
                worst = fmax(worst, moved(a->energy[e], b->energy[e], 1, L, false, 1e-4));
            worst = fmax(worst, moved(a->own_change, b->own_change, 1, L, false, 1e-4));
            worst = fmax(worst, moved(a->history_change, b->history_change, 1, L, false, 1e-4));
            worst = fmax(worst, moved(a->slope, b->slope, 1, L, false, 1e-4));
        }
    worst = fmax(worst, moved(near.states, run->states, L, C, true, 2e-5));
    worst = fmax(worst, moved(near.logits, run->logits, L, model->vocab, false, 2e-5));
    reference_free(&near);
    test_model_free(&other);
    return worst;
}

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

static uint64_t rounding_way;
static rng rounding_chance;

void reference_round_vectors(uint64_t way)
{
    rounding_way = way;
    rounding_chance = rng_seeded(way);
}

/* The vector, or a rounded copy of it in *copy. */
static const double *rounded(const double *v, size_t count, double **copy)
{
    *copy = NULL;
    if (!rounding_way) return v;
    *copy = test_alloc(count, sizeof **copy);
    for (size_t first = 0; first < count; first += 32) {
        size_t end = first + 32 < count ? first + 32 : count;
        double largest = 0;
        for (size_t i = first; i < end; i++) largest = fmax(largest, fabs(v[i]));
        for (size_t i = first; i < end && largest > 0; i++) {
            double quant = v[i] * 127 / largest, chance = (double)rng_below(&rounding_chance, 1 << 20) / (1 << 20);
            (*copy)[i] = (rounding_way == 1 ? nearbyint(quant) : floor(quant + chance)) * largest / 127;
        }
    }
    return *copy;
}

void reference_product(const double *w, size_t rows, size_t columns, const double *x, double *y)
{
    double *copy;
    const double *v = rounded(x, columns, &copy);
    for (size_t r = 0; r < rows; r++) y[r] = reference_dot(w + r * columns, v, columns);
    free(copy);
}

void reference_transposed(const double *w, size_t rows, size_t columns, const double *u, double *y)
{
    double *copy;
    const double *v = rounded(u, rows, &copy);
    for (size_t c = 0; c < columns; c++) y[c] = 0.0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) y[c] += w[r * columns + c] * v[r];
    free(copy);
}

double reference_dot(const double *a, const double *b, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

double reference_distance(const double *a, const double *b, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}

double reference_softmax(const double *a, size_t n, double *p)
{
    double largest = a[0], sum = 0.0;
    for (size_t i = 1; i < n; i++) largest = fmax(largest, a[i]);
    for (size_t i = 0; i < n; i++) sum += p[i] = exp(a[i] - largest);
    for (size_t i = 0; i < n; i++) p[i] /= sum;
    return largest + log(sum);
}

void reference_norm(const double *x, size_t n, double epsilon, const double *weight, const double *bias, bool rms, double *g)
{
    double mean = 0.0, square = 0.0;
    for (size_t i = 0; i < n && !rms; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
    double scale = 1.0 / sqrt(square + epsilon);
    for (size_t i = 0; i < n; i++) g[i] = (x[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0.0);
}

double reference_slope(const double *x, size_t n, double epsilon, const double *weight, bool rms, const double *gradient,
                       const double *step)
{
    double mean = 0.0, square = 0.0, slope = 0.0;
    for (size_t i = 0; i < n && !rms; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
    double variance = square + epsilon, deviation = sqrt(variance);
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) { /* g_a = weight_a (x_a - mean) / deviation, both of which depend on x_b */
            double moved = (a == b) - (rms ? 0.0 : 1.0 / (double)n);
            double narrowed = (x[a] - mean) * (x[b] - mean) / (double)n / variance;
            slope += gradient[a] * weight[a] * (moved - narrowed) / deviation * step[b];
        }
    return slope;
}

double reference_gelu(double z)
{
    return 0.5 * z * (1.0 + erf(z * sqrt(0.5)));
}

double reference_gelu_slope(double z)
{
    return 0.5 * (1.0 + erf(z * sqrt(0.5))) + z * exp(-0.5 * z * z) / sqrt(2.0 * 3.141592653589793);
}

/* ---- Early exit -------------------------------------------------------------------------------------------------- */

static double entropy(const double *logits, size_t vocab)
{
    double *p = test_alloc(vocab, sizeof *p), sum = 0.0;
    memcpy(p, logits, vocab * sizeof *p);
    (void)reference_softmax(p, vocab, p);
    for (size_t v = 0; v < vocab; v++) sum -= p[v] > 0 ? p[v] * log(p[v]) : 0.0;
    free(p);
    return sum;
}

static double divergence(const double *p_logits, const double *q_logits, size_t vocab)
{
    double *p = test_alloc(vocab, sizeof *p), *q = test_alloc(vocab, sizeof *q), sum = 0.0;
    memcpy(p, p_logits, vocab * sizeof *p);
    memcpy(q, q_logits, vocab * sizeof *q);
    double log_p = reference_softmax(p, vocab, p), log_q = reference_softmax(q, vocab, q);
    for (size_t v = 0; v < vocab; v++) sum += p[v] * ((p_logits[v] - log_p) - (q_logits[v] - log_q));
    free(p);
    free(q);
    return sum;
}

double reference_exit_value(const reference_run *run, descent_exit_criterion criterion, size_t program, size_t t, size_t i)
{
    size_t C = run->width, V = run->vocab;
    const reference_step *before = &run->at[program][t], *after = &run->at[program][t + 1];
    const double *g = before->g + i * C, *next = after->g + i * C;
    switch (criterion) {
    case DESCENT_EXIT_STATE:
        return reference_distance(next, g, C) / sqrt(reference_dot(g, g, C));
    case DESCENT_EXIT_COSINE:
        return 1.0 - reference_dot(next, g, C) / sqrt(reference_dot(g, g, C) * reference_dot(next, next, C));
    case DESCENT_EXIT_ENERGY:
        return fabs(reference_energy(after, i) - reference_energy(before, i)) / fmax(1.0, fabs(reference_energy(before, i)));
    case DESCENT_EXIT_ENTROPY:
        return entropy(after->said + i * V, V);
    case DESCENT_EXIT_KL:
        return divergence(after->said + i * V, before->said + i * V, V);
    default:
        return NAN;
    }
}

static size_t likeliest(const double *logits, size_t vocab, double *lead)
{
    size_t best = 0;
    *lead = INFINITY;
    for (size_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best]) best = v;
    for (size_t v = 0; v < vocab; v++)
        if (v != best) *lead = fmin(*lead, (logits[best] - logits[v]) / fmax(1.0, fabs(logits[best])));
    return best;
}

/* The checks of token i up to that after step t: at how many on end the likeliest token was that of the check before. */
static size_t unchanged_checks(const reference_request *request, reference_run *run, size_t t, size_t i)
{
    size_t least = request->exit.min_steps ? request->exit.min_steps : 1, unchanged = 0, before = run->vocab;
    size_t every = request->exit.check_every ? request->exit.check_every : 1;
    for (size_t done = least; done <= t + 1; done += every) {
        double lead;
        size_t token = likeliest(run->at[0][done].said + i * run->vocab, run->vocab, &lead);
        unchanged = token == before ? unchanged + 1 : 0;
        before = token;
        run->closest = fmin(run->closest, lead * 10);
    }
    return unchanged;
}

/* How near a value is to the other side of its threshold: in parts of it, or of what rounding can be seen in. Of values that
 * are as a square of what moves, the roots count. */
static double nearness(descent_exit_criterion criterion, double value, double threshold)
{
    bool square = criterion == DESCENT_EXIT_COSINE || criterion == DESCENT_EXIT_KL;
    double a = square ? sqrt(fmax(value, 0.0)) : value, b = square ? sqrt(threshold) : threshold;
    double part = criterion == DESCENT_EXIT_STATE ? 0.0 : 0.02;
    return fabs(a - b) / fmax(b, part);
}

void reference_decide(const reference_request *request, reference_run *run, size_t program, size_t t, size_t i)
{
    const descent_exit *exit = &request->exit;
    size_t least = exit->min_steps ? exit->min_steps : 1, every = exit->check_every ? exit->check_every : 1;
    double threshold = (double)exit->threshold;
    if (exit->criterion == DESCENT_EXIT_NONE || i < exit->first || run->used[program][i] <= t) return;
    if (t + 1 < least || (t + 1 - least) % every != 0) return;
    if (exit->criterion == DESCENT_EXIT_ARGMAX) {
        if ((double)unchanged_checks(request, run, t, i) >= threshold) run->used[program][i] = t + 1;
        return;
    }
    double value = reference_exit_value(run, exit->criterion, program, t, i);
    run->closest = fmin(run->closest, nearness(exit->criterion, value, threshold));
    if (value < threshold) run->used[program][i] = t + 1;
}

void reference_blank(reference_run *run)
{
    for (size_t p = 0; p < run->programs; p++)
        for (size_t i = 0; i < run->count; i++)
            for (size_t t = run->used[p][i]; t < run->steps[p]; t++)
                run->at[p][t].own_change[i] = run->at[p][t].update_norm[i] = run->at[p][t].relative_change[i] =
                    run->at[p][t].slope[i] = NAN;
}

/* v without its mean, where that is no part of a state. */
static double *without_mean(const double *v, size_t n, bool centred)
{
    double *out = test_alloc(n, sizeof *out), sum = 0.0;
    for (size_t c = 0; c < n && centred; c++) sum += v[c];
    for (size_t c = 0; c < n; c++) out[c] = v[c] - sum / (double)n;
    return out;
}

/* dx becomes dx_T |x| / |x(0)|. */
static void turn(bool centred, const double *start, const double *x, size_t n, double *dx)
{
    double *at = without_mean(x, n, centred), *from = without_mean(start, n, centred), *move = without_mean(dx, n, centred);
    double square = reference_dot(at, at, n), along = reference_dot(at, move, n);
    for (size_t c = 0; c < n; c++)
        dx[c] = (move[c] - at[c] * along / square) * sqrt(square) / sqrt(reference_dot(from, from, n));
    free(at);
    free(from);
    free(move);
}

/* Normal numbers from the engine's uniform ones, which have tests of their own, as Box and Muller make them. */
static double normal(int64_t seed, descent_site site, size_t c)
{
    uint32_t key[2] = {(uint32_t)(uint64_t)seed, (uint32_t)((uint64_t)seed >> 32)}, words[4];
    uint32_t counter[4] = {(uint32_t)site.position, 0x80000000u + site.kind * 65536u + site.step, site.layer,
                           (uint32_t)(c / 2)};
    descent_philox(counter, key, words);
    double u = ((double)words[0] * 0x1p21 + (double)(words[1] >> 11) + 1.0) * 0x1p-53;
    double v = ((double)words[2] * 0x1p21 + (double)(words[3] >> 11)) * 0x1p-53;
    double angle = 2.0 * 3.14159265358979323846 * v;
    return sqrt(-2.0 * log(u)) * (c % 2 ? sin(angle) : cos(angle));
}

void reference_move(const reference_request *request, descent_site site, bool centred, const double *start, const double *x,
                    const double *update, double *d, size_t width, double *next)
{
    const descent_motion *m = &request->motion;
    size_t t = site.step, n = m->n_scales;
    double s = n ? (double)m->step_scale[t < n ? t : n - 1] : 1.0, *dx = test_alloc(width, sizeof *dx);
    for (size_t c = 0; c < width; c++) {
        d[c] = (double)m->momentum * d[c] + s * update[c];
        dx[c] = -d[c];
    }
    if (m->rule == DESCENT_RULE_ANGULAR) turn(centred, start, x, width, dx);
    for (size_t c = 0; c < width; c++) next[c] = x[c] + dx[c];
    double sigma = (double)m->noise.sigma / (m->noise.schedule == DESCENT_NOISE_DECAY ? (double)t + 1.0 : 1.0);
    double length = sigma * sqrt(reference_dot(next, next, width) / (double)width);
    for (size_t c = 0; c < width && sigma > 0; c++) next[c] += length * normal(m->noise.seed, site, c);
    free(dx);
}

/* Takes from v what lies along each of n orthonormal vectors. */
static void orthogonalize(double *v, const double *basis, size_t n, size_t width)
{
    for (size_t k = 0; k < n; k++) {
        double along = reference_dot(v, basis + k * width, width);
        for (size_t c = 0; c < width; c++) v[c] -= along * basis[k * width + c];
    }
}

double reference_choices(void)
{
    return nearest_choice;
}

/* x + s f less the combination of changes (dx + s df) whose df is nearest to f: the changes, the newest first, are made
 * orthogonal in df, each with its dx, and f loses its part along each. */
static void accelerate(const reference_request *request, size_t t, double s, double *const *states, const double *steps,
                       size_t width, double *move)
{
    size_t kept = request->solver.nstep ? request->solver.nstep : 5, n = t < kept ? t : kept, made = 0;
    double *df = test_alloc(kept * width, sizeof *df), *dx = test_alloc(kept * width, sizeof *dx);
    double *left = test_alloc(width, sizeof *left);
    memcpy(left, steps + t * width, width * sizeof *left);
    for (size_t c = 0; c < width; c++) move[c] = s * left[c];
    for (size_t k = 0; k < n; k++) {
        double *f = df + made * width, *x = dx + made * width;
        for (size_t c = 0; c < width; c++) {
            f[c] = steps[(t - k) * width + c] - steps[(t - k - 1) * width + c];
            x[c] = states[t - k][c] - states[t - k - 1][c];
        }
        double own = sqrt(reference_dot(f, f, width));
        for (size_t j = 0; j < made; j++) {
            double along = reference_dot(f, df + j * width, width);
            for (size_t c = 0; c < width; c++) x[c] -= along * dx[j * width + c];
            orthogonalize(f, df + j * width, 1, width);
        }
        double rest = sqrt(reference_dot(f, f, width));
        double shrinks = -reference_dot(x, f, width), lengths = sqrt(reference_dot(x, x, width)) * rest;
        nearest_choice = fmin(nearest_choice, fabs(rest / own / 1e-3 - 1.0));
        nearest_choice = fmin(nearest_choice, fabs(shrinks) / lengths * 100.0);
        if (!(rest > 1e-3 * own) || !(shrinks > 0)) continue; /* nothing new, or nothing that shrinks */
        for (size_t c = 0; c < width; c++) {
            f[c] /= rest;
            x[c] /= rest;
        }
        double part = reference_dot(left, f, width);
        for (size_t c = 0; c < width; c++) move[c] -= part * (x[c] + s * f[c]);
        orthogonalize(left, f, 1, width);
        made++;
    }
    free(df);
    free(dx);
    free(left);
}

double reference_solve(const reference_request *request, descent_site site, bool centred, const double *const *states,
                       const double *update, double *steps, size_t width, double *next)
{
    const descent_motion *m = &request->motion;
    size_t t = site.step, n = m->n_scales;
    double s = n ? (double)m->step_scale[t < n ? t : n - 1] : 1.0, **at = test_alloc(t + 1, sizeof *at);
    double *f = steps + t * width, *move = test_alloc(width, sizeof *move);
    for (size_t k = 0; k <= t; k++) at[k] = without_mean(states[k], width, centred);
    for (size_t c = 0; c < width; c++) f[c] = -update[c];
    turn(centred, states[0], states[t], width, f);
    double length = sqrt(reference_dot(at[t], at[t], width)), start = sqrt(reference_dot(at[0], at[0], width));
    double residual = sqrt(reference_dot(f, f, width)) / length;
    accelerate(request, t, s, at, steps, width, move);
    double moved = sqrt(reference_dot(move, move, width));
    for (size_t c = 0; c < width; c++) move[c] = at[t][c] + move[c] * (moved > 0.1 * length ? 0.1 * length / moved : 1.0);
    double end = sqrt(reference_dot(move, move, width));
    for (size_t c = 0; c < width; c++) next[c] = states[t][c] - at[t][c] + move[c] * start / end;
    for (size_t k = 0; k <= t; k++) free(at[k]);
    free(at);
    free(move);
    return residual;
}

void reference_decide_residual(const reference_request *request, reference_run *run, size_t t, size_t i, double residual)
{
    double asked = (double)request->solver.residual;
    if (run->used[0][i] <= t || asked == 0.0) return;
    for (size_t j = 0; j < i; j++)
        if (run->used[0][j] > t + 1) return;
    run->closest = fmin(run->closest, fabs(residual - asked) / asked);
    if (residual < asked) run->used[0][i] = t + 1;
}

void reference_apply(const reference_request *request, descent_site site, bool of_g, double *values, size_t width)
{
    for (size_t i = 0; i < request->n_changes; i++) {
        const reference_change *change = &request->changes[i];
        bool changes_g = change->how == DESCENT_SET_G || change->how == DESCENT_ADD_G;
        bool adds = change->how == DESCENT_ADD_X || change->how == DESCENT_ADD_G;
        if (change->site.layer != site.layer || change->site.kind != site.kind || change->site.step != site.step ||
            change->site.position != site.position || changes_g != of_g)
            continue;
        for (size_t c = 0; c < width; c++) values[c] = (adds ? values[c] : 0.0) + change->values[c];
    }
}
