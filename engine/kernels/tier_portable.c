/* tier_portable.c: the kernels in plain C, for any CPU; x86-64 compiles the four lanes to SSE2. */
#include "half.h"

#include <string.h>

#include "packed_portable.inc.h"

#include "packed.inc.h"

#define TIER "portable"
#define TIER_TABLE kernels_portable
#define LANES 4

typedef float half_vector __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) half_vector load_f16(const uint16_t *p)
{
    return (half_vector){half_to_float(p[0]), half_to_float(p[1]), half_to_float(p[2]), half_to_float(p[3])};
}

static inline __attribute__((always_inline)) half_vector load_bf16(const uint16_t *p)
{
    half_vector v;
    uint32_t wide[4];
    for (int i = 0; i < 4; i++) wide[i] = (uint32_t)p[i] << 16;
    memcpy(&v, wide, sizeof v);
    return v;
}

static void to_f16(const float *x, size_t n, uint16_t *h)
{
    for (size_t i = 0; i < n; i++) h[i] = half_from_float(x[i]);
}

#include "tier.inc.h"
