/* tier_avx2.c: the kernels for AVX2 with FMA and F16C. Compiled with those features on; called only where the CPU has them. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"
#include "packed_avx2.inc.h"

#include "packed.inc.h"

#define TIER "avx2"
#define TIER_TABLE kernels_avx2
#define LANES 8

INLINE __m256 load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256 load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* Said outright: compilers that may fuse an addition with a product do so here and not there. */
INLINE __m256 times_plus_f32(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* In a register from here on: else compilers load again what is used twice. */
INLINE __m256 in_register(__m256 v)
{
    __asm__("" : "+x"(v));
    return v;
}

INLINE __m256i first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE __m256 load_some(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}

INLINE void store_some(float *p, __m256 v, size_t n)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}

/* There are no masks of 16 bits. */
INLINE __m256 load_some_f16(const uint16_t *p, size_t n)
{
    if (n == 8) return load_f16(p);
    uint16_t some[8] = {0};
    for (size_t i = 0; i < n; i++) some[i] = p[i];
    return load_f16(some);
}

INLINE __m256 load_some_bf16(const uint16_t *p, size_t n)
{
    if (n == 8) return load_bf16(p);
    uint16_t some[8] = {0};
    for (size_t i = 0; i < n; i++) some[i] = p[i];
    return load_bf16(some);
}

static void to_f16(const float *x, size_t n, uint16_t *h)
{
    for (size_t i = 0; i < n; i++) h[i] = (uint16_t)_cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

#include "tier.inc.h"
