/* blocks_k.c: the types of 256 numbers with two levels of scales, Q4_K and Q6_K, from floats and back. See blocks.h; called by
 * blocks.c.
 *
 * Q4_K: 8 parts of 32 numbers, x = d s_j q - e m_j with q in 0..15, s_j and m_j in 0..63, d and e in half precision.
 * Q6_K: 16 parts of 16 numbers, x = d s_j q with q in -32..31, s_j in -128..127, d in half precision.
 * Encoding finds for each part alone the scale (and offset) that loses least, from these some candidates of d (and e), and for
 * each candidate the integers near the part's own that lose least. */
#include "blocks.h"

#include "kernels/half.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 };

#define HALF_LARGEST 65504.0f

static uint16_t half_at(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return half;
}

static float clamp(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

/* ---- Q6_K ------------------------------------------------------------------------------------------------------- */

/* 128 bytes of low nibbles, 64 of upper pairs of bits, 16 scales, d. Half a block is 4 rows of 32 numbers: rows 0 and 2 share
 * the first 32 bytes' nibbles, 1 and 3 the others', and each byte of pairs has one of every row. */
enum { Q6_PARTS = 16, Q6_PART = BLOCK / Q6_PARTS, Q6_HIGH = 128, Q6_SCALES = 192, Q6_D = 208 };

void block_decode_q6_k(const unsigned char *block, float *out)
{
    float d = half_to_float(half_at(block + Q6_D));
    for (int i = 0; i < BLOCK; i++) {
        int half = i / 128, row = i % 128 / 32, l = i % 32;
        int low = block[half * 64 + row % 2 * 32 + l] >> (row / 2 * 4) & 15;
        int high = block[Q6_HIGH + half * 32 + l] >> (row * 2) & 3;
        out[i] = d * (float)(int8_t)block[Q6_SCALES + i / Q6_PART] * (float)((low | high << 4) - 32);
    }
}

static void store_q6_k(uint16_t d, const float *scales, const float *q, unsigned char *block)
{
    memset(block, 0, Q6_SCALES);
    for (int i = 0; i < BLOCK; i++) {
        int half = i / 128, row = i % 128 / 32, l = i % 32, value = (int)q[i] + 32;
        block[half * 64 + row % 2 * 32 + l] |= (unsigned char)((value & 15) << (row / 2 * 4));
        block[Q6_HIGH + half * 32 + l] |= (unsigned char)(value >> 4 << (row * 2));
    }
    for (int j = 0; j < Q6_PARTS; j++) block[Q6_SCALES + j] = (unsigned char)(int)scales[j];
    memcpy(block + Q6_D, &d, sizeof d);
}

/* The scale that loses least for 16 numbers alone. */
static float q6_part_scale(const float *x, const float *w)
{
    float peak = 0, best = 0, q[Q6_PART];
    for (int i = 0; i < Q6_PART; i++)
        if (fabsf(x[i]) > fabsf(peak)) peak = x[i];
    double least = HUGE_VAL;
    for (int i = 0; i < 16 && peak != 0; i++)
        for (int side = -1; side <= 1; side += 2) {
            (void)block_round(x, w, Q6_PART, peak / ((float)side * (32.5f - 0.2f * (float)i)), -32, 31, q);
            float d = block_fit(x, w, Q6_PART, q);
            double error = block_round(x, w, Q6_PART, d, -32, 31, q);
            if (!(error < least)) continue;
            least = error;
            best = d;
        }
    return best;
}

/* The integer scales and q for one d; the squared error. */
static double q6_with(const float *x, const float *w, const float *wanted, float d, float *scales, float *q)
{
    double sum = 0;
    for (int j = 0; j < Q6_PARTS; j++) {
        float trial[Q6_PART], middle = d != 0 ? rintf(clamp(wanted[j] / d, -128, 127)) : 0;
        double least = HUGE_VAL;
        for (int by = -1; by <= 1; by++) {
            float scale = clamp(middle + (float)by, -128, 127);
            double error = block_round(x + j * Q6_PART, w + j * Q6_PART, Q6_PART, d * scale, -32, 31, trial);
            if (!(error < least)) continue;
            least = error;
            scales[j] = scale;
            memcpy(q + j * Q6_PART, trial, sizeof trial);
        }
        sum += least;
    }
    return sum;
}

void block_encode_q6_k(const float *x, const float *w, unsigned char *block)
{
    static const float spans[] = {-128, 127, -126, 125, -123, 121, -112, 96};
    float wanted[Q6_PARTS], largest = 0, peak = 0, scales[Q6_PARTS] = {0}, q[BLOCK] = {0}, trial_scales[Q6_PARTS], trial[BLOCK];
    for (int j = 0; j < Q6_PARTS; j++) {
        wanted[j] = q6_part_scale(x + j * Q6_PART, w + j * Q6_PART);
        if (fabsf(wanted[j]) > fabsf(largest)) largest = wanted[j];
    }
    for (int i = 0; i < BLOCK; i++) peak = fmaxf(peak, fabsf(x[i]));
    bool fits = peak <= HALF_LARGEST * 128 * 32; /* beyond that squares overflow some time, and no candidate is found at all */
    uint16_t best = 0;
    double least = HUGE_VAL;
    for (size_t i = 0; i < sizeof spans / sizeof *spans && largest != 0 && fits; i++)
        for (uint16_t up = 0; up < 2; up++) { /* d is coarse where numbers are small: the next larger one too */
            uint16_t d = (uint16_t)(half_from_float(largest / spans[i]) + up);
            double error = q6_with(x, w, wanted, half_to_float(d), trial_scales, trial);
            if (!(error < least)) continue;
            least = error;
            best = d;
            memcpy(scales, trial_scales, sizeof scales);
            memcpy(q, trial, sizeof q);
        }
    if (!fits || (largest != 0 && !(least < HUGE_VAL))) best = 0x7c00; /* infinite: what d has no room for */
    store_q6_k(best, scales, q, block);
}

/* ---- Q4_K ------------------------------------------------------------------------------------------------------- */

/* d, e, 12 bytes of 8 scales and 8 offsets of 6 bits, 128 bytes of nibbles: 32 bytes have two parts' numbers, the first in
 * their lower halves. */
enum { Q4_PARTS = 8, Q4_PART = BLOCK / Q4_PARTS, Q4_SCALES = 4, Q4_NUMBERS = 16, Q4_MOST = 63 };

/* The first four scales and offsets are whole bytes' lower six bits; their upper two hold those of the last four, whose lower
 * four stand together. */
static void q4_scales(const unsigned char *packed, int j, int *scale, int *offset)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *offset = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
        *offset = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

void block_decode_q4_k(const unsigned char *block, float *out)
{
    float d = half_to_float(half_at(block)), e = half_to_float(half_at(block + 2));
    for (int j = 0; j < Q4_PARTS; j++) {
        int scale, offset;
        q4_scales(block + Q4_SCALES, j, &scale, &offset);
        float step = d * (float)scale, down = e * (float)offset;
        for (int i = 0; i < Q4_PART; i++) {
            int q = block[Q4_NUMBERS + j / 2 * Q4_PART + i] >> (j % 2 * 4) & 15;
            out[j * Q4_PART + i] = step * (float)q - down;
        }
    }
}

/* A block on its way: what is stored, and the loss. */
typedef struct q4_block {
    uint16_t d, e;
    float scales[Q4_PARTS], offsets[Q4_PARTS], q[BLOCK];
    double error;
} q4_block;

static void store_q4_k(const q4_block *b, unsigned char *block)
{
    memcpy(block, &b->d, sizeof b->d);
    memcpy(block + 2, &b->e, sizeof b->e);
    unsigned char *packed = block + Q4_SCALES;
    for (int j = 0; j < 4; j++) {
        int scale = (int)b->scales[j], offset = (int)b->offsets[j];
        int last_scale = (int)b->scales[j + 4], last_offset = (int)b->offsets[j + 4];
        packed[j] = (unsigned char)(scale | last_scale >> 4 << 6);
        packed[j + 4] = (unsigned char)(offset | last_offset >> 4 << 6);
        packed[j + 8] = (unsigned char)((last_scale & 15) | (last_offset & 15) << 4);
    }
    for (int i = 0; i < BLOCK / 2; i++) {
        const float *first = b->q + i / Q4_PART * 2 * Q4_PART + i % Q4_PART;
        block[Q4_NUMBERS + i] = (unsigned char)((int)first[0] | (int)first[Q4_PART] << 4);
    }
}

/* Rounds x + down to multiples of step, 0..15; the squared error. */
static double q4_round(const float *x, const float *w, float step, float down, float *q)
{
    float shifted[Q4_PART];
    for (int i = 0; i < Q4_PART; i++) shifted[i] = x[i] + down;
    return block_round(shifted, w, Q4_PART, step, 0, 15, q);
}

/* What x = step a - down b needs for the least squared error, over n numbers; neither below 0. */
typedef struct q4_sums {
    double aa, ab, bb, ax, bx;
} q4_sums;

static void q4_add(q4_sums *sums, const float *x, const float *w, const float *q, double scale, double offset)
{
    for (int i = 0; i < Q4_PART; i++) {
        double a = scale * (double)q[i], weight = (double)w[i];
        sums->aa += weight * a * a;
        sums->ab += weight * a * offset;
        sums->bb += weight * offset * offset;
        sums->ax += weight * a * (double)x[i];
        sums->bx += weight * offset * (double)x[i];
    }
}

static void q4_solve(const q4_sums *s, float *step, float *down)
{
    double determinant = s->aa * s->bb - s->ab * s->ab;
    double up = determinant > 0 ? (s->ax * s->bb - s->bx * s->ab) / determinant : 0;
    double off = determinant > 0 ? (s->ax * s->ab - s->bx * s->aa) / determinant : -1;
    if (off < 0) {
        off = 0;
        up = s->aa > 0 ? s->ax / s->aa : 0;
    }
    *step = up > 0 ? (float)up : 0;
    *down = (float)off;
}

/* The step and offset that lose least for 32 numbers alone. */
static void q4_part(const float *x, const float *w, float *step, float *down)
{
    float low = 0, high = x[0], q[Q4_PART];
    for (int i = 0; i < Q4_PART; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *step = 0;
    *down = -low;
    if (!(high > low)) return;
    double least = HUGE_VAL;
    for (int i = 0; i < 20; i++) {
        float span = 14 + 0.1f * (float)i, own_step, own_down;
        (void)q4_round(x, w, (high - low) / span, -low, q);
        q4_sums sums = {0};
        q4_add(&sums, x, w, q, 1, 1);
        q4_solve(&sums, &own_step, &own_down);
        double error = q4_round(x, w, own_step, own_down, q);
        if (!(error < least)) continue;
        least = error;
        *step = own_step;
        *down = own_down;
    }
}

/* Integers near those wanted, and q, for b's d and e. */
static void q4_with(const float *x, const float *w, const float *steps, const float *downs, q4_block *b)
{
    float d = half_to_float(b->d), e = half_to_float(b->e), trial[Q4_PART];
    b->error = 0;
    for (int j = 0; j < Q4_PARTS; j++) {
        float scale = d > 0 ? rintf(clamp(steps[j] / d, 0, Q4_MOST)) : 0;
        float offset = e > 0 ? rintf(clamp(downs[j] / e, 0, Q4_MOST)) : 0;
        double least = HUGE_VAL;
        for (int by = 0; by < 9; by++) {
            float s = clamp(scale + (float)(by / 3 - 1), 0, Q4_MOST), m = clamp(offset + (float)(by % 3 - 1), 0, Q4_MOST);
            double error = q4_round(x + j * Q4_PART, w + j * Q4_PART, d * s, e * m, trial);
            if (!(error < least)) continue;
            least = error;
            b->scales[j] = s;
            b->offsets[j] = m;
            memcpy(b->q + j * Q4_PART, trial, sizeof trial);
        }
        b->error += least;
    }
}

/* d and e anew, for the integers there are. */
static void q4_refit(const float *x, const float *w, q4_block *b)
{
    q4_sums sums = {0};
    float d, e;
    for (int j = 0; j < Q4_PARTS; j++)
        q4_add(&sums, x + j * Q4_PART, w + j * Q4_PART, b->q + j * Q4_PART, (double)b->scales[j], (double)b->offsets[j]);
    q4_solve(&sums, &d, &e);
    b->d = half_from_float(d);
    b->e = half_from_float(e);
}

void block_encode_q4_k(const float *x, const float *w, unsigned char *block)
{
    float steps[Q4_PARTS], downs[Q4_PARTS], largest_step = 0, largest_down = 0;
    for (int j = 0; j < Q4_PARTS; j++) {
        q4_part(x + j * Q4_PART, w + j * Q4_PART, &steps[j], &downs[j]);
        largest_step = fmaxf(largest_step, steps[j]);
        largest_down = fmaxf(largest_down, downs[j]);
    }
    q4_block best = {.d = 0x7c00, .scales = {1}, .error = HUGE_VAL}; /* infinite: what d or e has no room for */
    bool fits = largest_step / Q4_MOST < HALF_LARGEST && largest_down / Q4_MOST < HALF_LARGEST;
    for (int i = 0; i < 4 && fits; i++) { /* both rounded down and up: they are coarse where numbers are small */
        q4_block b = {.d = half_from_float(largest_step / Q4_MOST), .e = half_from_float(largest_down / Q4_MOST)};
        b.d = (uint16_t)(b.d + (largest_step > 0 && (i & 1)));
        b.e = (uint16_t)(b.e + (largest_down > 0 && (i & 2)));
        for (int again = 0; again < 3; again++) {
            q4_with(x, w, steps, downs, &b);
            if (b.error < best.error) best = b;
            q4_refit(x, w, &b);
        }
    }
    store_q4_k(&best, block);
}
