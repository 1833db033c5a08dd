/* tier_avx512.inc.h: what the kernels of every AVX-512 tier (F, BW, VL, DQ) share. A tier's file defines its name, and what its
 * packed products are written over. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16

static inline __attribute__((always_inline)) __m512 load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static void to_f16(const float *x, size_t n, uint16_t *h)
{
    for (size_t i = 0; i < n; i++) h[i] = (uint16_t)_cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

#include "tier.inc.h"
