/* random.c: counter-based random numbers. There is no generator and no state: a number is computed from the place that
 * uses it, so it is the same whatever was drawn before, in whatever order, on whatever thread, and a drafted token can be
 * checked later against the very number that would have chosen it.
 *
 * The function is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): ten
 * rounds, each multiplying two of the four counter words by fixed odd constants, mixing the high halves with the other
 * two and the key, which grows by a Weyl constant a round. A seed fills the key and (position, prompt, choice) fill the
 * counter, 64 + 32 + 32 bits, with nothing hashed or folded: two different places never share a counter.
 *
 * Normal numbers are made from pairs of uniform ones by the formula of Box and Muller, with a logarithm, a sine and a cosine of
 * our own: those of a C library may differ in a last bit from one machine to another.
 *
 * Called by sampler.c and motion.c. */
#include "random.h"

#include <math.h>
#include <string.h>

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

/* ---- Normal numbers ---------------------------------------------------------------------------------------------- */

static const double pi = 3.14159265358979323846, ln_2 = 0.69314718055994530942;

/* log x, 0 < x: of 2^e m with m near 1, e ln 2 + 2 (z + z^3/3 + z^5/5 + ...), z = (m - 1) / (m + 1). */
static double natural_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.41421356237309504880) {
        m /= 2;
        exponent++;
    }
    double z = (m - 1) / (m + 1), square = z * z, sum = 0;
    for (int k = 12; k >= 0; k--) sum = sum * square + 1.0 / (2 * k + 1);
    return exponent * ln_2 + 2 * z * sum;
}

/* cos and sin of 2 pi u, u in [0, 1): their series at what is left beside whole quarters of a turn, and turned by those. */
static void unit_circle(double u, double *cosine, double *sine)
{
    int quarter = (int)(4 * u + 0.5);
    double angle = 2 * pi * (u - quarter / 4.0), square = angle * angle, c = 1, s = 1;
    for (int k = 9; k > 0; k--) {
        c = 1 - square / ((2 * k - 1) * (2 * k)) * c;
        s = 1 - square / ((2 * k) * (2 * k + 1)) * s;
    }
    s *= angle;
    const double turned[] = {c, s, -c, -s, c};
    *cosine = turned[(4 - quarter % 4) % 4];
    *sine = turned[(5 - quarter % 4) % 4];
}

/* A counter's second word has its highest bit here and nowhere else: tokens are chosen by other numbers. */
void descent_random_normals(int64_t seed, noise_place place, double *out, size_t count)
{
    uint64_t bits = (uint64_t)seed;
    uint32_t key[2] = {(uint32_t)bits, (uint32_t)(bits >> 32)}, words[4];
    uint32_t counter[4] = {place.position, 0x80000000u | (uint32_t)place.kind << 16 | place.step, place.layer, 0};
    for (size_t i = 0; i < count; i += 2, counter[3]++) {
        double cosine, sine;
        descent_philox(counter, key, words);
        uint64_t first = ((uint64_t)words[0] << 21) | (words[1] >> 11), second = ((uint64_t)words[2] << 21) | (words[3] >> 11);
        double radius = sqrt(-2 * natural_log((double)(first + 1) * 0x1p-53));
        unit_circle((double)second * 0x1p-53, &cosine, &sine);
        out[i] = radius * cosine;
        if (i + 1 < count) out[i + 1] = radius * sine;
    }
}
