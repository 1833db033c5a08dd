/* packed_avx512.inc.h: what packed.inc.h is written over, for AVX-512 with VNNI, and VBMI where it is compiled with that. */
#include <immintrin.h>

enum { BYTE_OFFSET = 128 }; /* what byte_cell leaves in Q8_0's weights */

typedef __m512i cell;  /* 64 bytes */
typedef __m512i ints;  /* 16 lanes */
typedef __m512 floats; /* 16 lanes */

INLINE cell load_cell(const uint8_t *from)
{
    return _mm512_load_si512(from);
}

INLINE cell byte_cell(const uint8_t *from)
{
    return load_cell(from);
}

INLINE cell turn(cell c)
{
#ifdef __AVX512VBMI__
    const __m512i from = _mm512_set_epi64(0x3f372f271f170f07, 0x3e362e261e160e06, 0x3d352d251d150d05, 0x3c342c241c140c04,
                                          0x3b332b231b130b03, 0x3a322a221a120a02, 0x3931292119110901, 0x3830282018100800);
    return _mm512_permutexvar_epi8(from, c);
#else
    /* Within 128 bits two rows become eight pairs; then pairs of four such lanes become columns. */
    const __m512i pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    const __m512i from = _mm512_set_epi64(0x001f0017000f0007, 0x001e0016000e0006, 0x001d0015000d0005, 0x001c0014000c0004,
                                          0x001b0013000b0003, 0x001a0012000a0002, 0x0019001100090001, 0x0018001000080000);
    return _mm512_permutexvar_epi16(from, _mm512_shuffle_epi8(c, pairs));
#endif
}

INLINE cell lower(cell c)
{
    return _mm512_and_si512(c, _mm512_set1_epi8(15));
}

INLINE cell upper(cell c)
{
    return lower(_mm512_srli_epi16(c, 4));
}

INLINE cell with_crumb(cell nibbles, cell crumbs, int set)
{
    __m512i at4 = set == 0   ? _mm512_slli_epi16(crumbs, 4)
                  : set == 1 ? _mm512_slli_epi16(crumbs, 2)
                  : set == 2 ? crumbs
                             : _mm512_srli_epi16(crumbs, 2);
    return _mm512_ternarylogic_epi32(nibbles, at4, _mm512_set1_epi8(0x30), 0xf8); /* nibbles | (at4 & 0x30) */
}

INLINE cell spread(const int8_t *eight)
{
    long long value;
    memcpy(&value, eight, sizeof value);
    return _mm512_set1_epi64(value);
}

INLINE ints splat_ints(int32_t value)
{
    return _mm512_set1_epi32(value);
}

INLINE ints dot(ints sum, cell w, cell x, bool bytes)
{
    (void)bytes;
    return _mm512_dpbusd_epi32(sum, w, x);
}

INLINE ints negative(ints v)
{
    return _mm512_sub_epi32(_mm512_setzero_si512(), v);
}

INLINE floats pair_sums(ints a, ints b)
{
    __m512 fa = _mm512_castsi512_ps(a), fb = _mm512_castsi512_ps(b);
    __m512i even = _mm512_castps_si512(_mm512_shuffle_ps(fa, fb, 0x88));
    __m512i odd = _mm512_castps_si512(_mm512_shuffle_ps(fa, fb, 0xdd));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
}

INLINE floats load_floats(const float *from)
{
    return _mm512_loadu_ps(from);
}

INLINE void store_floats(float *to, floats v)
{
    _mm512_storeu_ps(to, v);
}

INLINE floats splat_floats(float value)
{
    return _mm512_set1_ps(value);
}

INLINE floats times(floats a, floats b)
{
    return _mm512_mul_ps(a, b);
}

INLINE floats times_plus(floats a, floats b, floats c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE floats minus_times(floats a, floats b, floats c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

INLINE floats load_halves(const uint8_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

INLINE floats load_uint8(const uint8_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
}

INLINE floats load_int8(const uint8_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
}

INLINE float sum_floats(floats v)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* The largest magnitude, as integers order it: infinity above every number, what is not a number above that. */
INLINE float largest(floats a, floats b)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __m512i max =
        _mm512_max_epi32(_mm512_andnot_si512(sign, _mm512_castps_si512(a)), _mm512_andnot_si512(sign, _mm512_castps_si512(b)));
    __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(max), _mm512_extracti64x4_epi64(max, 1));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

/* x * inverse to nearest, ties to even, as bytes in the order of the sets; their sum. */
INLINE int32_t round_sixteen(floats x, float inverse, int8_t *to)
{
    __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
    const __m128i sets = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_shuffle_epi8(_mm512_cvtepi32_epi8(whole), sets));
    return _mm512_reduce_add_epi32(whole);
}
