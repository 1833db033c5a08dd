/* tier_avx512.c: the kernels for AVX-512 (F, BW, VL, DQ). Compiled with those features on; called only where the CPU has them.
 * Packed matrices go as with AVX2: what 512 bits would gain them is VNNI, which is the next tier. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define TIER "avx512"
#define TIER_TABLE kernels_avx512
#define LANES 16

static inline __attribute__((always_inline)) __m512 load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline __attribute__((always_inline)) __m512 load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
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
