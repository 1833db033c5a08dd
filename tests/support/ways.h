/* ways.h: that how a text is computed changes no bit of it, whatever it was asked to be. */
#ifndef TEST_WAYS_H
#define TEST_WAYS_H

#include "example.h"

/* The example's text at `base` (depth and knobs; how it is run is not looked at), computed in eight ways, with threads, chunks,
 * neighbours, sharing and observers, is the one computed plainly, and those that are observed are seen alike. `about` names the
 * knobs where it is not. */
void ways_change_nothing(const example *e, const drive_options *base, uint64_t seed, const char *about);

/* An example_wish's adjustment: wide enough for products to be shared among threads. */
void ways_widen(test_model *model);

#endif
