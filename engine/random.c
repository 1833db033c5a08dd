/* random.c: counter-based random numbers. There is no generator and no state: a number is computed from the place that
 * uses it, so it is the same whatever was drawn before, in whatever order, on whatever thread, and a drafted token can be
 * checked later against the very number that would have chosen it.
 *
 * The function is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): ten
 * rounds, each multiplying two of the four counter words by fixed odd constants, mixing the high halves with the other
 * two and the key, which grows by a Weyl constant a round. A seed fills the key and (position, prompt, choice) fill the
 * counter, 64 + 32 + 32 bits, with nothing hashed or folded: two different places never share a counter.
 *
 * Called by sampler.c. */
#include "random.h"

enum { rounds = 10 };

void descent_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < rounds; round++) {
        uint64_t even = (uint64_t)0xD2511F53u * c0;
        uint64_t odd = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(odd >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(even >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)odd;
        c3 = (uint32_t)even;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double descent_random_uniform(int64_t seed, uint32_t prompt, uint32_t choice, uint64_t position)
{
    uint64_t bits = (uint64_t)seed;
    uint32_t key[2] = {(uint32_t)bits, (uint32_t)(bits >> 32)};
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), prompt, choice};
    uint32_t words[4];
    descent_philox(counter, key, words);
    uint64_t mantissa = ((uint64_t)words[0] << 21) | (words[1] >> 11);
    return (double)mantissa * 0x1p-53;
}
