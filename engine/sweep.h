/* sweep.h: one input run at several depths and measured at each, as the scheduler's files see it. A sweep is a generation that
 * chooses nothing: it waits, begins, pauses and ends as the others do, and its *legs*, one for each depth, follow each other
 * in one life. Where tokens are deepened they are run from the smallest on, in one sequence; elsewhere in the order asked, each
 * from nothing. Everything here is the scheduler thread's. */
#ifndef DESCENT_SWEEP_H
#define DESCENT_SWEEP_H

#include "generation.h"

/* Checks the options and copies what they point to. `cost` outlives it. */
descent_code sweep_create(const descent_model *model, const descent_model_cost *cost, const descent_sweep_options *options,
                          descent_generation **out, descent_status *status);
void sweep_free(struct sweep *sweep); /* NULL is allowed */

/* The depth of its present leg, and the page from which on its sequence keeps to itself. */
descent_depth sweep_depth(const struct sweep *sweep);
size_t sweep_private_from(const struct sweep *sweep);

/* Its sequence is a new one: after a pause its leg begins again, and what was read of it stays read. */
void sweep_begin(struct sweep *sweep);
/* Takes the observation of a row. */
void sweep_observe(struct sweep *sweep, const descent_observation *observation);
/* generation_due and generation_read of sweeps. Behind the last position of a leg the next one begins, or the sweep ends. */
bool sweep_due(const descent_generation *g, size_t *position);
void sweep_read(descent_generation *g, size_t position, const float *logits);
/* Its sequence has ended, a state not being finite. */
void sweep_diverged(descent_generation *g);

/* A step or a reading took so many seconds, with so many rows (or positions) in all. Every running sweep is charged with its
 * share of the step; where somebody outside of their experiment had a part in it, this is remembered. */
void sweeps_charge_step(descent_generation *const *running, size_t n, double seconds, size_t rows);
void sweeps_charge_reading(descent_generation *const *readers, size_t n, double seconds);

#endif
