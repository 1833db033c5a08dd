/* half.h: half precision in plain integer arithmetic, for CPUs without the conversion instructions and for loading files. */
#ifndef DESCENT_HALF_H
#define DESCENT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu, fraction = h & 0x3ffu, bits;
    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24 */
        float magnitude = (float)fraction * 5.9604644775390625e-8f;
        memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0); /* a NaN comes out quiet, as in hardware */
    } else {
        bits = sign | (exponent + 112u) << 23 | fraction << 13;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even; too large becomes infinity. */
static inline uint16_t half_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) return (uint16_t)sign;
    uint32_t exponent = magnitude >> 23, fraction = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t shift = exponent < 113 ? 126 - exponent : 13; /* subnormal halves lose more bits */
    uint32_t rest = fraction & ((1u << shift) - 1), tie = 1u << (shift - 1);
    uint32_t rounded = fraction >> shift;
    rounded += rest > tie || (rest == tie && (rounded & 1));
    if (exponent >= 113) rounded += (exponent - 113) << 10;
    return (uint16_t)(sign | rounded);
}

#endif
