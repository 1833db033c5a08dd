/* packed_portable.inc.h: what packed.inc.h is written over, in plain C. Nothing has to be inlined: an instrumented build would
 * take minutes to compile. */
#include "half.h"
#include "packed_layout.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PACKED_INLINE static inline

enum { TOGETHER = 1 };      /* vectors that share a block */
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

static inline cell load_cell(const uint8_t *from)
{
    cell c;
    memcpy(&c, from, sizeof c);
    return c;
}

static inline cell byte_cell(const uint8_t *from)
{
    return load_cell(from);
}

static cell turn(cell c)
{
    cell t;
    for (int i = 0; i < 64; i++) t.byte[i] = c.byte[i % 8 * 8 + i / 8];
    return t;
}

static inline cell lower(cell c)
{
    for (int i = 0; i < 64; i++) c.byte[i] &= 15;
    return c;
}

static inline cell upper(cell c)
{
    for (int i = 0; i < 64; i++) c.byte[i] >>= 4;
    return c;
}

static cell with_crumb(cell nibbles, cell crumbs, int set)
{
    for (int i = 0; i < 64; i++) nibbles.byte[i] |= (uint8_t)((crumbs.byte[i] >> 2 * set & 3) << 4);
    return nibbles;
}

static inline cell spread(const int8_t *eight)
{
    cell c;
    for (int i = 0; i < 64; i += 8) memcpy(c.byte + i, eight, 8);
    return c;
}

static inline ints splat_ints(int32_t value)
{
    ints v;
    for (int l = 0; l < 16; l++) v.lane[l] = value;
    return v;
}

static ints dot(ints sum, cell w, cell x, bool bytes)
{
    (void)bytes;
    for (int l = 0; l < 16; l++)
        for (int k = 0; k < 4; k++) sum.lane[l] += (int32_t)w.byte[4 * l + k] * (int8_t)x.byte[4 * l + k];
    return sum;
}

static inline ints spread_ints(const int32_t two[2])
{
    ints v;
    for (int l = 0; l < 16; l++) v.lane[l] = two[l % 2];
    return v;
}

static floats pair_sums(ints a, ints b)
{
    floats v;
    for (int l = 0; l < 16; l += 4)
        for (int k = 0; k < 2; k++) {
            v.lane[l + k] = (float)(a.lane[l + 2 * k] + a.lane[l + 2 * k + 1]);
            v.lane[l + 2 + k] = (float)(b.lane[l + 2 * k] + b.lane[l + 2 * k + 1]);
        }
    return v;
}

static inline floats load_floats(const float *from)
{
    floats v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_floats(float *to, floats v)
{
    memcpy(to, &v, sizeof v);
}

static inline floats splat_floats(float value)
{
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = value;
    return v;
}

static inline floats times(floats a, floats b)
{
    for (int l = 0; l < 16; l++) a.lane[l] *= b.lane[l];
    return a;
}

static inline floats times_plus(floats a, floats b, floats c)
{
    for (int l = 0; l < 16; l++) c.lane[l] += a.lane[l] * b.lane[l];
    return c;
}

static inline floats minus_times(floats a, floats b, floats c)
{
    for (int l = 0; l < 16; l++) c.lane[l] -= a.lane[l] * b.lane[l];
    return c;
}

static floats load_halves(const uint8_t *from)
{
    uint16_t half[16];
    memcpy(half, from, sizeof half);
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = half_to_float(half[l]);
    return v;
}

static inline floats load_uint8(const uint8_t *from)
{
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = (float)from[l];
    return v;
}

static inline floats load_int8(const uint8_t *from)
{
    floats v;
    for (int l = 0; l < 16; l++) v.lane[l] = (float)(int8_t)from[l];
    return v;
}

/* The same additions as the other tiers': halves of the lanes onto each other. */
static inline float sum_floats(floats v)
{
    for (int n = 8; n > 0; n /= 2)
        for (int l = 0; l < n; l++) v.lane[l] += v.lane[l + n];
    return v.lane[0];
}

/* 4 x 32 numbers as bytes in the order of the sets, and the scales that make numbers of them again: the largest magnitude, as
 * integers order it, is not finite where one of the 32 is not, and so is the scale. Below 2^-110 a block counts as zeros: the
 * inverse of its scale might be none. */
static void round_four(const floats v[8], int8_t *to, float scale[4])
{
    for (int b = 0; b < 4; b++) {
        float x[32], max;
        uint32_t bits[32], most = 0;
        memcpy(x, &v[2 * b], sizeof x);
        memcpy(bits, x, sizeof bits);
        for (int i = 0; i < 32; i++) most = (bits[i] & 0x7fffffffu) > most ? bits[i] & 0x7fffffffu : most;
        memcpy(&max, &most, sizeof max);
        float inverse = 127.0f / (max < 0x1p-110f ? 0x1p-110f : max);
        scale[b] = (max < 0x1p-110f ? 0.0f : max) / 127.0f;
        for (size_t i = 0; i < 32; i++) {
            float scaled = x[i] * inverse;
            bool number = fabsf(scaled) < 128.0f; /* if not, the scale says so */
            to[32 * b + (int)(packed_set(i) * 8 + packed_place(i))] = number ? (int8_t)lrintf(scaled) : 0;
        }
    }
}

/* Of the sums of 4 x 32 of these bytes, minus `offset` times: [..][0] is that of bytes 0 to 3 of each set, [..][1] that of
 * bytes 4 to 7, of all sets if they are to be `whole`, else of the first two, and [..][4] and [..][5] of the others. */
static void starts_of_four(const int8_t *byte, int offset, bool whole, int32_t start[4][8])
{
    memset(start, 0, 4 * sizeof start[0]);
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < 32; i++)
            for (int part = 0; part < 2; part++)
                if (whole || i / 16 == part) start[b][4 * part + i / 4 % 2] -= offset * byte[32 * b + i];
}
