/* reference.h: what both float64 references share: the request, the run they fill, and a choice between them by family.
 *
 * The references are the mathematics written down once more, slowly: whole sequence, no cache, no batch, every sum a
 * plain loop in double. They are checked against numbers of a third implementation in tests/golden/test_references.c.
 * The one thing they know of the engine is that history is rounded once, to the type of a page.
 *
 * Shapes: L tokens, C width, V vocab. A *program* is one sub-layer of one layer: layer * kinds + kind. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include "descent.h"
#include "test_model.h"

/* A replaced or added x or g at one site, as descent_sequence_intervene. */
typedef struct reference_change {
    descent_site site;
    descent_intervention how;
    const double *values; /* [C] */
} reference_change;

/* Rounds what a slot of a page holds of a token, one part of it, to the type of the page, in place. */
typedef void (*page_rounding)(double *values, size_t count);

typedef struct reference_request {
    const uint32_t *tokens;
    size_t count;
    descent_depth depth;
    descent_motion motion;
    descent_solver solver;
    descent_exit exit;
    descent_history history;
    page_rounding round_page; /* NULL: to f32 */
    const reference_change *changes;
    size_t n_changes;
} reference_request;

/* One step of a program for every token. Entry [t] of T + 1 is the reading at x(t); the last one has no update after it.
 * What does not exist is NaN. */
typedef struct reference_step {
    double *x, *g;                     /* [L][C] */
    double *energy[DESCENT_MAX_TERMS]; /* [L] */
    double *own_change;                /* [L] E(g(t+1); keys of t) - E(g(t); keys of t) */
    double *history_change;            /* [L] E(g(t); keys of t) - E(g(t); keys of t-1) */
    double *update_norm;               /* [L] */
    double *relative_change;           /* [L] */
    double *said;                      /* [L][V] logits read at x(t), of NRGPT at T, and before where the exit asks for them */
    double *slope; /* [L] grad^T J R grad, at x(t) as the energy's gradient, the norm and the rate are there */
} reference_step;

typedef struct reference_run {
    size_t count, width, vocab, programs, kinds;
    size_t *steps;  /* [programs] T of each, the larger one where a prompt has another */
    size_t **used;  /* [programs][L] steps that each token made: its T, fewer where it stopped. Its x stays as it was then */
    double closest; /* of all decisions to stop or not, how near the nearest was to be another: below 1e-3 rounding may do */
    reference_step **at; /* [programs][T + 1] */
    double *states;      /* [L][C], what the final norm reads */
    double *logits;      /* [L][V] */
} reference_run;

/* Steps of a sub-layer of a kind: its T, or the one of a kind that has none. */
size_t sublayer_steps_at(descent_depth depth, size_t kind);
/* T of token i where that is one number. */
size_t reference_token_steps(const reference_request *request, size_t i);
/* Row steps a token takes. */
size_t row_steps_at(const test_model *model, descent_depth depth);

reference_run reference_compute(const test_model *model, const reference_request *request);
void reference_free(reference_run *run);
/* The step of a site; its position is not looked at. */
const reference_step *reference_at(const reference_run *run, descent_site site);
/* Sum of an observation's energy terms at a position. */
double reference_energy(const reference_step *step, size_t position);

/* The energy of g (C numbers) of the token at `position` in a sub-layer, every key held: `keys` [position + 1][C] is the
 * norm of each token's x where the sub-layer takes its history from: the same step (NRGPT), the sub-layer's input (CEM). */
double reference_frozen_energy(const test_model *model, descent_site site, const double *keys, page_rounding round_page,
                               const double *g);

/* How far the run moves, as the largest part of the tolerances for f32 (compare.h), when every number of the embedding is
 * moved by up to one part in 2^24: what rounding alone may do. A comparison means something where this is small. */
double reference_sensitivity(const test_model *model, const reference_request *request, const reference_run *run);

/* ---- For the two families ---------------------------------------------------------------------------------------- */

size_t reference_kinds(const test_model *model);
reference_run reference_run_create(const test_model *model, const reference_request *request);

/* Has every vector rounded before it is multiplied by a matrix, from now on, as products of quantized weights do: 32 numbers
 * at a time to whole multiples of a 127th of the largest of them. 0: not; 1: to nearest; more: up or down by chance, each
 * number another chance. See rounding.h. */
void reference_round_vectors(uint64_t way);

/* y = W x, W of rows x columns. */
void reference_product(const double *w, size_t rows, size_t columns, const double *x, double *y);
/* y = W^T u. */
void reference_transposed(const double *w, size_t rows, size_t columns, const double *u, double *y);
double reference_dot(const double *a, const double *b, size_t n);
void reference_round_page(page_rounding round, double *values, size_t count); /* NULL: to f32 */
double reference_distance(const double *a, const double *b, size_t n);        /* |a - b| */
/* log sum exp of n > 0 numbers, and the softmax into p. */
double reference_softmax(const double *a, size_t n, double *p);
/* g = norm(x); rms: RMSNorm, otherwise LayerNorm. bias NULL: none. */
void reference_norm(const double *x, size_t n, double epsilon, const double *weight, const double *bias, bool rms, double *g);
/* gradient^T J step, J_ab = dg_a / dx_b of that norm at x, every entry of it formed. */
double reference_slope(const double *x, size_t n, double epsilon, const double *weight, bool rms, const double *gradient,
                       const double *step);
double reference_gelu(double z);
double reference_gelu_slope(double z);

/* Of the step t of token i, what each criterion but argmax compares with its threshold. x, g, energies and, where they are
 * asked for, what is said at t and t + 1 are there. */
double reference_exit_value(const reference_run *run, descent_exit_criterion criterion, size_t program, size_t t, size_t i);
/* Whether token i stops with step t, of which the same is there: then `used` says so. */
void reference_decide(const reference_request *request, reference_run *run, size_t program, size_t t, size_t i);
/* Steps that tokens did not make have changed nothing: NaN. */
void reference_blank(reference_run *run);

/* A step of one token's descent: next from x [C] and `update`, what R (CEM: eta P) makes of the gradient. d [C] is what
 * momentum keeps from step to step, zero before the first; `start` [C] is x(0), `centred` whether means are no part of a state.
 */
void reference_move(const reference_request *request, descent_site site, bool centred, const double *start, const double *x,
                    const double *update, double *d, size_t width, double *next);
/* The same by Anderson's method, from all states x(0) .. x(t) of the descent; `steps` [t + 1][C] are those of before and
 * receives this one. Returns the relative residual at x(t). */
double reference_solve(const reference_request *request, descent_site site, bool centred, const double *const *states,
                       const double *update, double *steps, size_t width, double *next);
/* How near a choice of Anderson's method (what change to leave out) came to being another, in the last reference_compute: 0 is
 * on the edge. Rounding may decide those. */
double reference_choices(void);
/* Whether token i stops with step t by its residual, those before it having stopped: then `used` says so. */
void reference_decide_residual(const reference_request *request, reference_run *run, size_t t, size_t i, double residual);
/* Applies the request's changes of x (or of g) at a site to C numbers. */
void reference_apply(const reference_request *request, descent_site site, bool of_g, double *values, size_t width);

#endif
