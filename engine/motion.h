/* motion.h: how a step moves a token: what was asked of it, checked, and the move itself. */
#ifndef DESCENT_MOTION_H
#define DESCENT_MOTION_H

#include "model.h"

struct tile;
struct row;

/* Gives equal motions equal fields (those of no use zero), and checks them. */
descent_code motion_complete(const descent_model *model, descent_motion *motion, descent_status *status);
/* Of completed ones. */
bool motions_equal(const descent_motion *a, const descent_motion *b);
/* A hash that goes on from `hash`. */
uint64_t motion_hash(const descent_motion *motion, uint64_t hash);

/* Numbers that a row keeps to itself from step to step: those that its page does not. */
size_t motion_row_numbers(const descent_model *model, const descent_motion *motion);

/* For a family's step: next_x from x and from `update`, what the model's own step takes off x: R grad. All [rows of the tile]
 * [wide_stride]. What the next step goes on with stands aside until */
void tile_move(const struct tile *t, const float *x, const float *update, float *next_x);
/* row i of the tile has moved indeed. */
void motion_keep(const struct tile *t, size_t i);

#endif
