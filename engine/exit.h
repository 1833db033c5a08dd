/* exit.h: whether tokens stop their descent early: what was asked, checked, and the decision behind a step. */
#ifndef DESCENT_EXIT_H
#define DESCENT_EXIT_H

#include "model.h"

struct tile;

/* Puts defaults where fields are 0, makes every field 0 where nothing stops, and checks the rest. */
descent_code exit_complete(const descent_model_info *info, descent_exit *exit, descent_status *status);
bool exits_equal(const descent_exit *a, const descent_exit *b);

/* |next_g - g| / |g|, the r_t of models.md. */
float relative_change(const float *g, const float *next_g, size_t n);

/* For a family's step, behind tile_scatter. True where some row's sequence asks after this step. */
bool tile_asks(const struct tile *t);
/* Marks the rows that stop with the step just made (row.stops), from g before and after it, both [rows][wide_stride]. */
void tile_decide(const struct tile *t, const float *g, const float *next_g);

#endif
