/* rng.c: splitmix64 and what is drawn from it. */
#include "rng.h"

#include <math.h>

rng rng_seeded(uint64_t seed)
{
    return (rng){seed * 0x9e3779b97f4a7c15u + 0x1234567u};
}

uint64_t rng_next(rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t rng_below(rng *r, size_t n)
{
    return (size_t)(rng_next(r) % n);
}

size_t rng_between(rng *r, size_t low, size_t high)
{
    return low + rng_below(r, high - low + 1);
}

double rng_uniform(rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

float rng_signed(rng *r)
{
    return (float)((double)(uint32_t)(rng_next(r) >> 32) / 2147483648.0 - 1.0);
}

double rng_normal(rng *r)
{
    double radius = sqrt(-2.0 * log(1.0 - rng_uniform(r)));
    return radius * cos(6.283185307179586 * rng_uniform(r));
}
