/* tier_avx512.c: the kernels for AVX-512 (F, BW, VL, DQ). Compiled with those features on; called only where the CPU has them.
 * Packed matrices go as with AVX2: what 512 bits would gain them is VNNI, which is the next tier. */
#include "inline.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define TIER "avx512"
#define TIER_TABLE kernels_avx512
#define LANES 16

INLINE __m512 load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512 load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* Said outright: compilers that may fuse an addition with a product do so here and not there. */
INLINE __m512 times_plus_f32(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* In a register from here on: else compilers load again what is used three times. */
INLINE __m512 in_register(__m512 v)
{
    __asm__("" : "+v"(v));
    return v;
}

INLINE __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

INLINE __m512 load_some(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

INLINE void store_some(float *p, __m512 v, size_t n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

INLINE __m512 load_some_f16(const uint16_t *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

INLINE __m512 load_some_bf16(const uint16_t *p, size_t n)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static void to_f16(const float *x, size_t n, uint16_t *h)
{
    for (size_t i = 0; i < n; i++) h[i] = (uint16_t)_cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

#include "kernels.h"

extern const kernels kernels_avx2;

static void project_packed(const product *p)
{
    kernels_avx2.project(p);
}

static void project_back_packed(const product *p)
{
    kernels_avx2.project_back(p);
}

#include "tier.inc.h"
