/* tier_avx2.c: the kernels for AVX2 with FMA and F16C. Compiled with those features on; called only where the CPU has them. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "packed_avx2.inc.h"

#include "packed.inc.h"

#define TIER "avx2"
#define TIER_TABLE kernels_avx2
#define LANES 8

static inline __attribute__((always_inline)) __m256 load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline __attribute__((always_inline)) __m256 load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static void to_f16(const float *x, size_t n, uint16_t *h)
{
    for (size_t i = 0; i < n; i++) h[i] = (uint16_t)_cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

#include "tier.inc.h"
