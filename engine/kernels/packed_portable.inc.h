/* packed_portable.inc.h: what packed.inc.h is written over, in plain C. */
#include "half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BYTE_OFFSET = 128 }; /* what byte_cell leaves in Q8_0's weights */

typedef struct cell {
    uint8_t byte[64];
} cell;
typedef struct ints {
    int32_t lane[16];
} ints;
typedef struct floats {
    float lane[16];
} floats;

INLINE cell load_cell(const uint8_t *from)
{
    cell c;
    memcpy(&c, from, sizeof c);
    return c;
}

INLINE cell byte_cell(const uint8_t *from)
{
    return load_cell(from);
}

INLINE cell turn(cell c)
{
    cell t;
    for (int i = 0; i < 64; i++) t.byte[i] = c.byte[i % 8 * 8 + i / 8];
    return t;
}

INLINE cell lower(cell c)
{
    for (int i = 0; i < 64; i++) c.byte[i] &= 15;
    return c;
}

INLINE cell upper(cell c)
{
    for (int i = 0; i < 64; i++) c.byte[i] >>= 4;
    return c;
}

INLINE cell with_crumb(cell nibbles, cell crumbs, int set)
{
    for (int i = 0; i < 64; i++) nibbles.byte[i] |= (uint8_t)((crumbs.byte[i] >> 2 * set & 3) << 4);
    return nibbles;
}

INLINE cell spread(const int8_t *eight)
{
    cell c;
    for (int i = 0; i < 64; i += 8) memcpy(c.byte + i, eight, 8);
    return c;
}

INLINE ints splat_ints(int32_t value)
{
    ints v;
    for (int l = 0; l < 16; l++) v.lane[l] = value;
    return v;
}

INLINE ints dot(ints sum, cell w, cell x, bool bytes)
{
    (void)bytes;
    for (int l = 0; l < 16; l++)
        for (int k = 0; k < 4; k++) sum.lane[l] += (int32_t)w.byte[4 * l + k] * (int8_t)x.byte[4 * l + k];
    return sum;
}

INLINE ints negative(ints v)
{
    for (int l = 0; l < 16; l++) v.lane[l] = -v.lane[l];
    return v;
}

INLINE floats pair_sums(ints a, ints b)
{
    floats v;
    for (int l = 0; l < 16; l += 4)
        for (int k = 0; k < 2; k++) {
            v.lane[l + k] = (float)(a.lane[l + 2 * k] + a.lane[l + 2 * k + 1]);
            v.lane[l + 2 + k] = (float)(b.lane[l + 2 * k] + b.lane[l + 2 * k + 1]);
        }
    return v;
}

INLINE floats load_floats(const float *from)
{
    floats v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store_floats(float *to, floats v)
{
    memcpy(to, &v, sizeof v);
}

INLINE floats splat_floats(float value)
{
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = value;
    return v;
}

INLINE floats times(floats a, floats b)
{
    for (int l = 0; l < 16; l++) a.lane[l] *= b.lane[l];
    return a;
}

INLINE floats times_plus(floats a, floats b, floats c)
{
    for (int l = 0; l < 16; l++) c.lane[l] += a.lane[l] * b.lane[l];
    return c;
}

INLINE floats minus_times(floats a, floats b, floats c)
{
    for (int l = 0; l < 16; l++) c.lane[l] -= a.lane[l] * b.lane[l];
    return c;
}

INLINE floats load_halves(const uint8_t *from)
{
    uint16_t half[16];
    memcpy(half, from, sizeof half);
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = half_to_float(half[l]);
    return v;
}

INLINE floats load_uint8(const uint8_t *from)
{
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = (float)from[l];
    return v;
}

INLINE floats load_int8(const uint8_t *from)
{
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = (float)(int8_t)from[l];
    return v;
}

/* The same additions as the other tiers': halves of the lanes onto each other. */
INLINE float sum_floats(floats v)
{
    for (int n = 8; n > 0; n /= 2)
        for (int l = 0; l < n; l++) v.lane[l] += v.lane[l + n];
    return v.lane[0];
}

INLINE float largest(floats a, floats b)
{
    uint32_t bits[32], max = 0;
    memcpy(bits, &a, sizeof a);
    memcpy(bits + 16, &b, sizeof b);
    for (int l = 0; l < 32; l++) max = (bits[l] & 0x7fffffffu) > max ? bits[l] & 0x7fffffffu : max;
    float value;
    memcpy(&value, &max, sizeof value);
    return value;
}

INLINE int32_t round_sixteen(floats x, float inverse, int8_t *to)
{
    int32_t sum = 0;
    for (int l = 0; l < 16; l++) {
        float scaled = x.lane[l] * inverse;
        int8_t rounded = fabsf(scaled) < 128.0f ? (int8_t)lrintf(scaled) : 0; /* not a number: its block's scale says so */
        to[(l / 2 % 2) * 8 + l / 4 * 2 + l % 2] = rounded;
        sum += rounded;
    }
    return sum;
}
