/* rng.h: the tests' random numbers. One seed gives one stream on every machine, so a failure is repeated by its seed. */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

rng rng_seeded(uint64_t seed);
uint64_t rng_next(rng *r);
/* 0 .. n-1, n > 0. */
size_t rng_below(rng *r, size_t n);
/* low .. high, both included. */
size_t rng_between(rng *r, size_t low, size_t high);
/* [0, 1). */
double rng_uniform(rng *r);
/* [-1, 1), as a float. */
float rng_signed(rng *r);
/* Normal with mean 0 and deviation 1. */
double rng_normal(rng *r);

#endif
