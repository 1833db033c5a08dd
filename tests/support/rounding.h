/* rounding.h: what may be expected of an engine that rounds the vectors it multiplies by quantized weights to 8 bits.
 *
 * How far that takes a result is measured, not guessed: the float64 reference is run again with its own vectors rounded so,
 * blocks of 32 numbers to whole multiples of a 127th of their largest, to nearest and a few times up or down by chance. The
 * engine may be three times as far from the exact reference as the farthest of these is, in the root mean square over all
 * numbers: its blocks may lie along scaled vectors, and one draw of rounding errors is longer than another. A product that is
 * wrong anywhere is farther away than that by an order of magnitude. */
#ifndef TEST_ROUNDING_H
#define TEST_ROUNDING_H

#include "drive.h"
#include "reference.h"

typedef struct rounding {
    double logits, states; /* root mean squares of differences to the exact run */
} rounding;

rounding rounding_of(const test_model *model, const reference_request *request, const reference_run *exact);
/* Fails the running test where the outcome is farther from the exact run than it may be. */
void compare_rounded(const outcome *got, const reference_run *exact, const rounding *allowed);

#endif
