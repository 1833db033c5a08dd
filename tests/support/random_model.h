/* random_model.h: models of random shape, variant and weights. */
#ifndef TEST_RANDOM_MODEL_H
#define TEST_RANDOM_MODEL_H

#include "descent.h"
#include "rng.h"
#include "test_model.h"

/* Any variant of a family: every choice is drawn, shapes include odd heads, odd hidden widths and vocabularies, widths that
 * 32 does not divide. Weights are F32; a test that wants another type or variant changes it before random_weights. Trained
 * steps are drawn in 1..5. */
test_model random_shape(rng *r, test_family family, size_t context);

/* Adds the tensors the shape asks for, with numbers of a size that keeps states moderate, rounded to the model's weight
 * type: what happens to x in a few steps is then a property of the mathematics, not of chaos. */
void random_weights(test_model *model, rng *r);

/* Both, and rounded. */
test_model random_model(rng *r, test_family family, size_t context);

/* The depth of `first` and `second` steps, of the kinds that have a T. */
descent_depth depth_of(test_family family, size_t first, size_t second);
/* A depth of 1..most in every kind that has one. */
descent_depth random_depth(rng *r, const test_model *model, size_t most);
/* count tokens below the vocabulary. Owned by the caller. */
uint32_t *random_tokens(rng *r, const test_model *model, size_t count);

/* How many of the rounds a test means to run fit: all of them, fewer under sanitizers, DESCENT_TEST_ROUNDS times as many
 * where that is set. At least 1. */
size_t test_rounds(size_t meant);
/* The seed of a round: the test's own number and the round's, moved by DESCENT_TEST_SEED where that is set. */
uint64_t test_seed(uint64_t test, size_t round);

#endif
