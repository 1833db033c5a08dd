/* random.h: random numbers as a function of where they are used. See "Sampling" in descent.h and random.c. */
#ifndef DESCENT_RANDOM_H
#define DESCENT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Philox4x32-10: a bijection of 128-bit counters for each 64-bit key, the least significant word first. */
void descent_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The uniform number in [0, 1), of 53 bits, that chooses the token at `position` of choice `choice` of prompt `prompt`
 * in a request with this seed. */
double descent_random_uniform(int64_t seed, uint32_t prompt, uint32_t choice, uint64_t position);

/* Where in a descent noise is added. */
typedef struct noise_place {
    uint32_t position, layer;
    uint16_t kind, step;
} noise_place;

/* `count` standard normal numbers of a place, the same bits on every machine. */
void descent_random_normals(int64_t seed, noise_place place, double *out, size_t count);

#endif
