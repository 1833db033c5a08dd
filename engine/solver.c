/* solver.c: Anderson's method for the limit T -> infinity of a descent. Owns what may be asked of it (descent_solver) and one
 * step.
 *
 * x itself has no limit: its gradient is taken behind a norm, which sees no length of x (of LayerNorm, no mean either), so that
 * |x| grows with every step while its direction comes to rest. What is solved for is that direction: with |x| held at |x(0)|,
 *
 *     F(x) = x + s f(x),   f = -(R grad less its part along x),   residual |f| / |x|
 *
 * f being the angular step of motion.c. With the last n states x_k and steps f_k kept, the next state is
 *
 *     x + s f - sum_k c_k ( dx_k + s df_k ),   c minimizing | f - sum_k c_k df_k |,   dx_k, df_k: from one to the next
 *
 * moved by no more than a tenth of |x|, and brought to the length |x(0)| again. (D. G. Anderson, "Iterative procedures for
 * nonlinear integral equations", 1965.) History moves with the steps: a token stops only where those before it have stopped,
 * too.
 *
 * NRGPT's alone: what follows a sub-layer of a CEM sees the length of x beside what is added to it, which has no limit.
 *
 * Shapes: x, f [C] of one row; row.kept is a ring of nstep + 1 pairs of them. Called by motion.c. */
#include "solver.h"

#include "batch.h"
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <string.h>

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static descent_code check_alone(const descent_motion *motion, const descent_exit *exit, descent_status *status)
{
    const char *other = motion->momentum > 0                   ? "momentum"
                        : motion->rule != DESCENT_RULE_PLAIN   ? "a step rule"
                        : motion->noise.sigma > 0              ? "noise"
                        : exit->criterion != DESCENT_EXIT_NONE ? "early exit"
                                                               : NULL;
    if (!other) return DESCENT_OK;
    return descent_fail(status, DESCENT_BAD_ARGUMENT,
                        "the solver is anderson and %s is asked: it has steps and an end of its own, expected one or the other",
                        other);
}

descent_code solver_complete(const descent_model *model, const descent_motion *motion, const descent_exit *exit,
                             descent_solver *solver, descent_status *status)
{
    const descent_model_info *info = &model->info;
    if (solver->method == DESCENT_SOLVER_PLAIN) {
        *solver = (descent_solver){.method = DESCENT_SOLVER_PLAIN};
        return DESCENT_OK;
    }
    if (solver->method != DESCENT_SOLVER_ANDERSON)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "solver method %d; expected DESCENT_SOLVER_PLAIN or DESCENT_SOLVER_ANDERSON", (int)solver->method);
    if (model->invariance == SEES_ALL)
        return descent_fail(
            status, DESCENT_UNSUPPORTED,
            "the solver is anderson, which is for NRGPT, whose block and head see no length of x; %s is %s (%s): "
            "expected plain",
            info->name, info->family, info->variant);
    if (solver->nstep == 0) solver->nstep = 5;
    if (solver->nstep > DESCENT_MAX_NSTEP)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "solver nstep is %u; expected at most %d", solver->nstep,
                            DESCENT_MAX_NSTEP);
    if (!(solver->residual >= 0) || isinf(solver->residual))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "solver residual is %g; expected a finite number of at least 0",
                            (double)solver->residual);
    if (solver->residual == 0) solver->residual = 0; /* -0 */
    return check_alone(motion, exit, status);
}

bool solvers_equal(const descent_solver *a, const descent_solver *b)
{
    return a->method == b->method && a->nstep == b->nstep && !memcmp(&a->residual, &b->residual, sizeof a->residual);
}

size_t solver_row_numbers(const descent_model *model, const descent_solver *solver)
{
    return solver->method == DESCENT_SOLVER_ANDERSON ? 2 * (solver->nstep + (size_t)1) * model->info.width : 0;
}

/* ---- The ring ---------------------------------------------------------------------------------------------------- */

typedef struct solving {
    size_t width, nstep;
    size_t made; /* steps of this descent before this one */
    float *ring;
} solving;

/* State and step `back` steps ago; 0: now. */
static float *state_of(const solving *v, size_t back)
{
    return v->ring + 2 * ((v->made - back) % (v->nstep + 1)) * v->width;
}

static float *step_of(const solving *v, size_t back)
{
    return state_of(v, back) + v->width;
}

static solving solving_of(const tile *t, const row *r)
{
    const page *p = sequence_page(r->sequence, r->position);
    return (solving){.width = t->model->info.width,
                     .nstep = r->sequence->seed.solver.nstep,
                     .made = r->progress - p->origin[r->position % PAGE_TOKENS],
                     .ring = r->kept};
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

static double product_of(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t c = 0; c < n; c++) sum += a[c] * b[c];
    return sum;
}

static void add_times(double *a, double by, const double *b, size_t n)
{
    for (size_t c = 0; c < n; c++) a[c] += by * b[c];
}

/* move = s f less the combination of changes whose df is nearest to f. The changes, the newest first, are made orthogonal in
 * df, each with its dx, and f loses its part along each. One that adds next to nothing to the newer ones is left out, and one
 * along which steps grow instead of shrinking: plain steps lead away from what lies there. `scratch` [2 n + 1][C]. */
static void accelerate(const solving *v, size_t n, double s, double *move, double *scratch)
{
    const double least = 1e-3;
    size_t C = v->width, made = 0;
    double *left = scratch, *changes = scratch + C;
    for (size_t c = 0; c < C; c++) {
        left[c] = (double)step_of(v, 0)[c];
        move[c] = s * left[c];
    }
    for (size_t k = 0; k < n; k++) {
        double *f = changes + 2 * made * C, *x = f + C;
        const float *f0 = step_of(v, k + 1), *f1 = step_of(v, k), *x0 = state_of(v, k + 1), *x1 = state_of(v, k);
        for (size_t c = 0; c < C; c++) {
            f[c] = (double)f1[c] - (double)f0[c];
            x[c] = (double)x1[c] - (double)x0[c];
        }
        double own = sqrt(product_of(f, f, C));
        for (size_t j = 0; j < made; j++) {
            const double *earlier = changes + 2 * j * C;
            double along = product_of(f, earlier, C);
            add_times(f, -along, earlier, C);
            add_times(x, -along, earlier + C, C);
        }
        double rest = sqrt(product_of(f, f, C));
        if (!(rest > least * own) || !(product_of(x, f, C) < 0)) continue;
        for (size_t c = 0; c < 2 * C; c++) f[c] /= rest;
        double part = product_of(left, f, C);
        add_times(move, -part, x, C);
        add_times(move, -part * s, f, C);
        add_times(left, -part, f, C);
        made++;
    }
}

/* Writes x without its mean and f into the ring. Returns |f| / |x|. */
static double look(const tile *t, row *r, const solving *v, const float *x, const float *update, double *mean_x)
{
    size_t C = v->width;
    bool centred = t->model->invariance == SEES_NO_LENGTH_OR_MEAN;
    float *state = state_of(v, 0), *step = step_of(v, 0);
    double mean_u = 0, square = 0, along = 0, turned = 0;
    *mean_x = 0;
    for (size_t c = 0; centred && c < C; c++) {
        *mean_x += (double)x[c] / (double)C;
        mean_u += (double)update[c] / (double)C;
    }
    for (size_t c = 0; c < C; c++) {
        double at = (double)x[c] - *mean_x;
        state[c] = (float)at;
        square += at * at;
        along += at * ((double)update[c] - mean_u);
    }
    if (v->made == 0) r->start = (float)sqrt(square);
    double part = square > 0 ? along / square : 0, length = r->start > 0 ? sqrt(square) / (double)r->start : 1;
    for (size_t c = 0; c < C; c++) {
        double f = length * (part * (double)state[c] - ((double)update[c] - mean_u));
        step[c] = (float)f;
        turned += f * f;
    }
    return square > 0 ? sqrt(turned / square) : 0;
}

/* Every earlier token has come to rest by step t + 1. What was found out at a step holds at that and at later ones. */
static bool history_rests(const row *r)
{
    descent_sequence *s = r->sequence;
    size_t j = r->where.step >= s->rest_step && s->rest_before <= r->position ? s->rest_before : 0;
    for (; j < r->position; j++) {
        uint32_t stopped = sequence_page(s, j)->stopped[j % PAGE_TOKENS];
        if (stopped == 0 || stopped > r->where.step + 1) break;
    }
    s->rest_step = r->where.step;
    s->rest_before = j;
    return j == r->position;
}

void solver_move(const tile *t, row *r, const float *x, const float *update, float s, float *to)
{
    solving v = solving_of(t, r);
    size_t C = v.width;
    const double farthest = 0.1; /* of a state's length, in one step */
    double mean_x, length = 0, *move = t->work->numbers;
    double residual = look(t, r, &v, x, update, &mean_x);
    const float *state = state_of(&v, 0);
    accelerate(&v, v.made < v.nstep ? v.made : v.nstep, (double)s, move, move + C);
    double moved = sqrt(product_of(move, move, C)), most = farthest * sqrt(dot(state, state, C)),
           part = moved > most ? most / moved : 1;
    for (size_t c = 0; c < C; c++) {
        move[c] = (double)state[c] + part * move[c];
        length += move[c] * move[c];
    }
    double back = length > 0 ? (double)r->start / sqrt(length) : 1;
    for (size_t c = 0; c < C; c++) to[c] = (float)(mean_x + back * move[c]);
    if (r->measuring) return;
    r->solved = residual < (double)r->sequence->seed.solver.residual && history_rests(r);
    if (r->solved) r->sequence->rest_before = r->position + 1;
}
