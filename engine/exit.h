/* exit.h: whether tokens stop their descent early: what was asked, checked, and the decision behind a step. */
#ifndef DESCENT_EXIT_H
#define DESCENT_EXIT_H

#include "model.h"

struct tile;

/* Puts defaults where fields are 0, makes every field 0 where nothing stops, and checks the rest. */
descent_code exit_complete(const descent_model_info *info, descent_exit *exit, descent_status *status);
bool exits_equal(const descent_exit *a, const descent_exit *b);

/* The criterion asks what may follow: logits are read of rows on their way. */
bool exit_reads(const descent_exit *exit);

/* |next_g - g| / |g|, the r_t of models.md. */
float relative_change(const float *g, const float *next_g, size_t n);

/* ---- For a family's step: arrays are [rows][wide_stride] --------------------------------------------------------- */

/* True where some row's sequence decides by energies at g of this step: work->energy[0] is to hold them. */
bool tile_weighs(const struct tile *t);

/* Where history moves, between the forces and the update: rows whose energy has hardly changed with the step before stop, and
 * do not make this one (row.stops). */
void tile_weigh(const struct tile *t);

/* Behind tile_scatter. True where some row's sequence asks after the step just made, or its solver is through. */
bool tile_asks(const struct tile *t);

/* Marks the rows that stop with the step just made (row.stops), from g before and after it; where history is frozen,
 * work->energy[1] holds energies at next_g if tile_weighs. */
void tile_decide(const struct tile *t, const float *g, const float *next_g);

/* The same of the rows that stop by what their states say of the next token. scratch is [work->rows][wide_stride]. */
void tile_decide_by_logits(const struct tile *t, const float *x, const float *next_x, float *scratch);

#endif
