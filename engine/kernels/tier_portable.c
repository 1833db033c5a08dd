/* tier_portable.c: the kernels in plain C, for any CPU; x86-64 compiles the four lanes to SSE2. */
#include "half.h"
#include "inline.h"

#include <string.h>

#include "packed_portable.inc.h"

#include "packed.inc.h"

#define TIER "portable"
#define TIER_TABLE kernels_portable
#define LANES 4

typedef float half_vector __attribute__((vector_size(16)));

INLINE half_vector load_f16(const uint16_t *p)
{
    return (half_vector){half_to_float(p[0]), half_to_float(p[1]), half_to_float(p[2]), half_to_float(p[3])};
}

INLINE half_vector load_bf16(const uint16_t *p)
{
    half_vector v;
    uint32_t wide[4];
    for (int i = 0; i < 4; i++) wide[i] = (uint32_t)p[i] << 16;
    memcpy(&v, wide, sizeof v);
    return v;
}

INLINE half_vector times_plus_f32(half_vector a, half_vector b, half_vector c)
{
    return a * b + c;
}

INLINE half_vector in_register(half_vector v)
{
    return v;
}

INLINE half_vector load_some(const float *p, size_t n)
{
    return (half_vector){p[0], n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f, n > 3 ? p[3] : 0.0f};
}

INLINE void store_some(float *p, half_vector v, size_t n)
{
    for (size_t i = 0; i < n; i++) p[i] = v[i];
}

INLINE half_vector load_some_f16(const uint16_t *p, size_t n)
{
    uint16_t some[4] = {0};
    for (size_t i = 0; i < n; i++) some[i] = p[i];
    return load_f16(some);
}

INLINE half_vector load_some_bf16(const uint16_t *p, size_t n)
{
    uint16_t some[4] = {0};
    for (size_t i = 0; i < n; i++) some[i] = p[i];
    return load_bf16(some);
}

static void to_f16(const float *x, size_t n, uint16_t *h)
{
    for (size_t i = 0; i < n; i++) h[i] = half_from_float(x[i]);
}

#include "tier.inc.h"
