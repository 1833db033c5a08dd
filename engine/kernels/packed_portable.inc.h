/* packed_portable.inc.h: what packed.inc.h is written over, in plain C. Nothing has to be inlined: an instrumented build would
 * take minutes to compile. */
#include "half.h"
#include "packed_layout.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PACKED_INLINE static inline

enum { BYTE_OFFSET = 128 }; /* what signed_cell leaves in Q8_0's weights */

typedef struct cell {
    uint8_t byte[64];
} cell;
typedef struct ints {
    int32_t lane[16];
} ints;
typedef struct words {
    int16_t word[32];
} words;
typedef struct floats {
    float lane[16];
} floats;

static inline cell load_cell(const uint8_t *from)
{
    cell c;
    memcpy(&c, from, sizeof c);
    return c;
}

static inline cell signed_cell(cell c)
{
    return c;
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

static inline floats over(floats a, floats b)
{
    for (int l = 0; l < 16; l++) a.lane[l] /= b.lane[l];
    return a;
}

/* b if one is not a number. */
static inline floats larger(floats a, floats b)
{
    for (int l = 0; l < 16; l++) a.lane[l] = a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l];
    return a;
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

/* The integer nearest to v; not a number, or too large for a word: 0. */
static int16_t nearest_word(float v)
{
    return fabsf(v) <= 32767.0f ? (int16_t)lrintf(v) : 0;
}

/* Where number i of 32 is in the order of the sets. */
static size_t in_sets(size_t i)
{
    return packed_set(i) * 8 + packed_place(i);
}

/* 32 numbers as words in the order of the sets, up to `most`, and the scale that makes numbers again of integers up to 127. The
 * largest magnitude, as integers order it, is not finite where one of the 32 is not, and so is the scale. Below 2^-110 they
 * count as zeros: the inverse of the scale might be none. */
static void round_block(const floats v[2], float most, int16_t to[32], float *scale)
{
    float x[32], max;
    uint32_t bits[32], largest = 0;
    memcpy(x, v, sizeof x);
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 32; i++) largest = (bits[i] & 0x7fffffffu) > largest ? bits[i] & 0x7fffffffu : largest;
    memcpy(&max, &largest, sizeof max);
    float inverse = most / (max < 0x1p-110f ? 0x1p-110f : max);
    *scale = (max < 0x1p-110f ? 0.0f : max) / 127.0f;
    for (size_t i = 0; i < 32; i++) to[in_sets(i)] = nearest_word(x[i] * inverse);
}

/* 4 x 32 numbers as bytes. */
static void round_four(const floats v[8], int8_t *to, float scale[4])
{
    for (int b = 0; b < 4; b++) {
        int16_t word[32];
        round_block(v + 2 * b, 127.0f, word, &scale[b]);
        for (int i = 0; i < 32; i++) to[32 * b + i] = (int8_t)word[i];
    }
}

/* The same as words, up to WORD_MOST. */
static void round_words(const floats v[8], int16_t *to, float scale[4])
{
    for (int b = 0; b < 4; b++) round_block(v + 2 * b, (float)WORD_MOST, to + 32 * b, &scale[b]);
}

/* Rounded to words, in the order of the sets. */
static words to_words(floats low, floats high)
{
    words w;
    for (size_t i = 0; i < 32; i++) w.word[in_sets(i)] = nearest_word(i < 16 ? low.lane[i] : high.lane[i - 16]);
    return w;
}

static inline words load_words(const int16_t *from)
{
    words w;
    memcpy(&w, from, sizeof w);
    return w;
}

static inline void store_words(int16_t *to, words v)
{
    memcpy(to, &v, sizeof v);
}

/* a b / 2^15, rounded. */
static inline int16_t fold_word(int16_t a, int16_t b)
{
    return (int16_t)((a * b + (1 << 14)) >> 15);
}

static words fold(words a, words b)
{
    for (int i = 0; i < 32; i++) a.word[i] = fold_word(a.word[i], b.word[i]);
    return a;
}

/* The largest magnitude of each of 4 x 32 words. */
static void largest_of_four(const int16_t *word, int32_t largest[4])
{
    for (int k = 0; k < 4; k++) {
        largest[k] = 0;
        for (int i = 0; i < 32; i++) {
            int magnitude = word[32 * k + i] < 0 ? -word[32 * k + i] : word[32 * k + i];
            largest[k] = magnitude > largest[k] ? magnitude : largest[k];
        }
    }
}

/* What 16 such words are to be multiplied with to become bytes, and what these count then, as packed_layout.h has it. */
static void byte_factors(const int32_t largest[16], int32_t by[16], float unit[16])
{
    for (int k = 0; k < 16; k++) {
        by[k] = (int32_t)((float)WORD_TO_BYTE / (float)(largest[k] > 1 ? largest[k] : 1));
        if (by[k] > WORD_TOP) by[k] = WORD_TOP;
        unit[k] = (float)WORD_UNIT / (float)by[k];
    }
}

/* 2 x 32 words times their factors / 2^15, as bytes: 8 of a set of the first, 8 of the second. */
static void narrow_pair(const int16_t *word, const int32_t by[2], int8_t *to)
{
    for (int i = 0; i < 64; i++) {
        int16_t byte = fold_word(word[i], (int16_t)by[i / 32]);
        to[i % 32 / 8 * 16 + i / 32 * 8 + i % 8] = (int8_t)(byte > 127 ? 127 : byte < -128 ? -128 : byte);
    }
}

/* Of two such pairs, minus `offset` times the sums of bytes 0 to 3 of each set, and of bytes 4 to 7. */
static void starts_of_pairs(const int8_t *byte, int offset, int32_t start[4][2])
{
    memset(start, 0, 4 * sizeof start[0]);
    for (int i = 0; i < 128; i++) start[i / 64 * 2 + i / 8 % 2][i / 4 % 2] -= offset * byte[i];
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
