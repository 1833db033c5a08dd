/* solver.h: the fixed point of a descent, by Anderson's method: what was asked, checked, and the step. */
#ifndef DESCENT_SOLVER_H
#define DESCENT_SOLVER_H

#include "model.h"

struct tile;
struct row;

/* Gives equal solvers equal fields, and checks them beside the completed motion and exit. */
descent_code solver_complete(const descent_model *model, const descent_motion *motion, const descent_exit *exit,
                             descent_solver *solver, descent_status *status);
/* Of completed ones. */
bool solvers_equal(const descent_solver *a, const descent_solver *b);

/* Numbers that a row keeps to itself: states and residuals of its last steps. */
size_t solver_row_numbers(const descent_model *model, const descent_solver *solver);

/* The next state `to` [C] of a row from x and from `update`, what the model's own step takes off x, s of which would be taken.
 * Its descent stops (row.solved) where the residual is small enough. */
void solver_move(const struct tile *t, struct row *r, const float *x, const float *update, float s, float *to);

#endif
