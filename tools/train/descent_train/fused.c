/* fused.c: the trainer's element-wise work on a CPU, each piece in one pass over memory.
 *
 * On a CPU the products of these models run at several hundred GFLOP/s, and what stands between them (gelu and its
 * derivatives, masked softmax, rotations) takes most of the time when it is done one elementary operation a pass. fused.py
 * compiles this file for the machine it runs on and calls it on the tensors' memory; where there is no compiler the same
 * functions in PyTorch do the work. tests/train holds the one to the other.
 *
 * Kernels exist for float (suffix _f32) and bfloat16 (_bf16) storage; they compute in float. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MAX_LENGTH 8192 /* the longest window: a row of scores stands on the stack */

/* exp of x in [-87, 88], to 2e-7: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. */
static inline float exponential(float x)
{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f);
    float r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666657f + r * (0.0416665795f + r * (0.00833345205f + r * 0.00138900883f)))));
    union {
        int32_t bits;
        float value;
    } power = {.bits = ((int32_t)n + 127) << 23};
    return p * power.value;
}

static inline float logistic(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

/* N(x) and its density n(x). The tail by Abramowitz and Stegun 26.2.17's sibling 7.1.26, error below 1.5e-7. */
static inline float normal_cdf(float x, float *density)
{
    float bell = exponential(-0.5f * x * x), y = fabsf(x) * 0.707106781f;
    float t = 1.0f / (1.0f + 0.3275911f * y);
    float tail = 0.5f * t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f)))) * bell;
    *density = 0.398942280f * bell;
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float from_bf16(uint16_t h)
{
    union {
        uint32_t bits;
        float value;
    } wide = {.bits = (uint32_t)h << 16};
    return wide.value;
}

/* Rounded to nearest, ties to even; NaN stays one. */
static inline uint16_t to_bf16(float f)
{
    union {
        float value;
        uint32_t bits;
    } wide = {.value = f};
    uint32_t rounded = wide.bits + 0x7fff + (wide.bits >> 16 & 1);
    return (uint16_t)((wide.bits & 0x7fffffff) > 0x7f800000 ? wide.bits >> 16 | 0x40 : rounded >> 16);
}

#define REAL float
#define NAME(x) x##_f32
#define LOAD(x) (x)
#define STORE(x) (x)
#include "fused.inc.h"
#undef REAL
#undef NAME
#undef LOAD
#undef STORE

#define REAL uint16_t
#define NAME(x) x##_bf16
#define LOAD(x) from_bf16(x)
#define STORE(x) to_bf16(x)
#include "fused.inc.h"
