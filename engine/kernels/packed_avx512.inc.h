/* packed_avx512.inc.h: what packed.inc.h is written over, for AVX-512 with VNNI, and VBMI where it is compiled with that. */
#include "inline.h"
#include "packed_layout.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PACKED_INLINE INLINE

enum { BYTE_OFFSET = 128 }; /* what signed_cell leaves in Q8_0's weights */

typedef __m512i cell;  /* 64 bytes */
typedef __m512i words; /* 32 of 16 bits */
typedef __m512i ints;  /* 16 lanes */
typedef __m512 floats; /* 16 lanes */

/* Cells are loaded in the order of memory: in others, as compilers choose them, the second cache level gives half as much. */
INLINE cell load_cell(const uint8_t *from)
{
    cell c = _mm512_load_si512(from);
    __asm__ volatile("" : "+v"(c) : : "memory");
    return c;
}

INLINE cell signed_cell(cell c)
{
    return c;
}

/* Pairs of bytes: four times eight to eight times four. */
INLINE __m512i four_by_eight(void)
{
    return _mm512_set_epi64(0x001f0017000f0007, 0x001e0016000e0006, 0x001d0015000d0005, 0x001c0014000c0004, 0x001b0013000b0003,
                            0x001a0012000a0002, 0x0019001100090001, 0x0018001000080000);
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
    return _mm512_permutexvar_epi16(four_by_eight(), _mm512_shuffle_epi8(c, pairs));
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

INLINE ints spread_ints(const int32_t two[2])
{
    long long value;
    memcpy(&value, two, sizeof value);
    return _mm512_set1_epi64(value);
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

INLINE floats over(floats a, floats b)
{
    return _mm512_div_ps(a, b);
}

/* b if one is not a number. */
INLINE floats larger(floats a, floats b)
{
    return _mm512_max_ps(a, b);
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

/* Of 4 x 32 numbers, `most` over the largest magnitude of each 32, and the scale that makes numbers again of integers up to
 * 127. That magnitude, as integers order it, is not finite where one of the 32 is not, and so is the scale. Below 2^-110 a
 * block counts as zeros: the inverse of its scale might be none. */
INLINE void scales_of_four(const floats x[8], float most, float inverse[4], float scale[4])
{
    const __m512i magnitude = _mm512_set1_epi32(INT32_MAX);
    const __m128 least = _mm_set1_ps(0x1p-110f);
    __m512i m[4];
    for (int b = 0; b < 4; b++)
        m[b] = _mm512_max_epi32(_mm512_and_si512(magnitude, _mm512_castps_si512(x[2 * b])),
                                _mm512_and_si512(magnitude, _mm512_castps_si512(x[2 * b + 1])));
    __m512i low = _mm512_max_epi32(_mm512_unpacklo_epi32(m[0], m[1]), _mm512_unpackhi_epi32(m[0], m[1]));
    __m512i high = _mm512_max_epi32(_mm512_unpacklo_epi32(m[2], m[3]), _mm512_unpackhi_epi32(m[2], m[3]));
    __m512i all = _mm512_max_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    __m128 max = _mm_castsi128_ps(_mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1)));
    _mm_storeu_ps(inverse, _mm_div_ps(_mm_set1_ps(most), _mm_max_ps(least, max))); /* the second if one is not a number */
    _mm_storeu_ps(scale, _mm_maskz_div_ps(_mm_cmp_ps_mask(max, least, _CMP_NLT_UQ), max, _mm_set1_ps(127.0f)));
}

/* 4 x 32 numbers as bytes in the order of the sets, up to 127, and their scales. */
INLINE void round_four(const floats x[8], int8_t *to, float scale[4])
{
    float inverse[4];
    scales_of_four(x, 127.0f, inverse, scale);
    for (int b = 0; b < 4; b += 2) {
        __m512i q[4];
        for (int i = 0; i < 4; i++) q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(x[2 * b + i], _mm512_set1_ps(inverse[b + i / 2])));
        __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
        _mm512_storeu_si512(to + 32 * b, _mm512_permutexvar_epi16(four_by_eight(), bytes));
    }
}

/* Rounded to words, in the order of the sets. */
INLINE words to_words(floats low, floats high)
{
    const __m512i sets = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(sets, _mm512_packs_epi32(_mm512_cvtps_epi32(low), _mm512_cvtps_epi32(high)));
}

INLINE words load_words(const int16_t *from)
{
    return _mm512_load_si512(from);
}

INLINE void store_words(int16_t *to, words v)
{
    _mm512_store_si512(to, v);
}

/* The same with words up to WORD_MOST. */
INLINE void round_words(const floats x[8], int16_t *to, float scale[4])
{
    float inverse[4];
    scales_of_four(x, (float)WORD_MOST, inverse, scale);
    for (int b = 0; b < 4; b++) {
        floats by = splat_floats(inverse[b]);
        _mm512_store_si512(to + 32 * b, to_words(times(x[2 * b], by), times(x[2 * b + 1], by)));
    }
}

/* Each word times the other's / 2^15, rounded. */
INLINE words fold(words a, words b)
{
    return _mm512_mulhrs_epi16(a, b);
}

/* The largest magnitude of each of 4 x 32 words. */
INLINE void largest_of_four(const int16_t *word, int32_t largest[4])
{
    __m512i m[4];
    for (int k = 0; k < 4; k++) m[k] = _mm512_abs_epi16(load_words(word + 32 * k));
    __m512i low = _mm512_max_epu16(_mm512_unpacklo_epi16(m[0], m[1]), _mm512_unpackhi_epi16(m[0], m[1]));
    __m512i high = _mm512_max_epu16(_mm512_unpacklo_epi16(m[2], m[3]), _mm512_unpackhi_epi16(m[2], m[3]));
    __m512i all = _mm512_max_epu16(_mm512_unpacklo_epi32(low, high), _mm512_unpackhi_epi32(low, high));
    __m256i four = _mm256_max_epu16(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    __m128i two = _mm_max_epu16(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    _mm_storeu_si128((__m128i *)(void *)largest, _mm_cvtepu16_epi32(_mm_max_epu16(two, _mm_srli_si128(two, 8))));
}

/* What 16 such words are to be multiplied with to become bytes, and what these count then, as packed_layout.h has it. */
INLINE void byte_factors(const int32_t largest[16], int32_t by[16], float unit[16])
{
    __m512 most = _mm512_cvtepi32_ps(_mm512_max_epi32(_mm512_load_si512(largest), _mm512_set1_epi32(1)));
    __m512i ratio = _mm512_cvttps_epi32(_mm512_div_ps(_mm512_set1_ps((float)WORD_TO_BYTE), most));
    ratio = _mm512_min_epi32(ratio, _mm512_set1_epi32(WORD_TOP));
    _mm512_store_si512(by, ratio);
    _mm512_storeu_ps(unit, _mm512_div_ps(_mm512_set1_ps((float)WORD_UNIT), _mm512_cvtepi32_ps(ratio)));
}

/* 2 x 32 words times their factors / 2^15, as bytes: 8 of a set of the first, 8 of the second. */
INLINE void narrow_pair(const int16_t *word, const int32_t by[2], int8_t *to)
{
    __m512i a = _mm512_mulhrs_epi16(load_words(word), _mm512_set1_epi16((int16_t)by[0]));
    __m512i b = _mm512_mulhrs_epi16(load_words(word + 32), _mm512_set1_epi16((int16_t)by[1]));
    _mm512_storeu_si512(to, _mm512_packs_epi16(a, b));
}

/* Of two such pairs, minus `offset` times the sums of bytes 0 to 3 of each set, and of bytes 4 to 7. */
INLINE void starts_of_pairs(const int8_t *byte, int offset, int32_t start[4][2])
{
    const __m512i by = _mm512_set1_epi8((char)offset);
    __m512i x = _mm512_dpbusd_epi32(_mm512_setzero_si512(), by, _mm512_loadu_si512(byte));
    __m512i y = _mm512_dpbusd_epi32(_mm512_setzero_si512(), by, _mm512_loadu_si512(byte + 64));
    __m512i sums = _mm512_add_epi32(_mm512_shuffle_i64x2(x, y, 0x88), _mm512_shuffle_i64x2(x, y, 0xdd));
    sums = _mm512_add_epi32(sums, _mm512_shuffle_i64x2(sums, sums, 0xb1)); /* twice those of x, twice those of y */
    __m256i two = _mm512_castsi512_si256(_mm512_shuffle_i64x2(sums, sums, 0x08));
    _mm256_storeu_si256((__m256i *)(void *)start, _mm256_sub_epi32(_mm256_setzero_si256(), two));
}

/* Of the sums of 4 x 32 of these bytes, minus `offset` times: [..][0] is that of bytes 0 to 3 of each set, [..][1] that of
 * bytes 4 to 7, of all sets if they are to be `whole`, else of the first two, and [..][4] and [..][5] of the others. */
INLINE void starts_of_four(const int8_t *byte, int offset, bool whole, int32_t start[4][8])
{
    for (int b = 0; b < 4; b += 2) {
        __m512i bytes = _mm512_loadu_si512(byte + 32 * b);
        __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)offset), bytes);
        sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
        if (whole) sum = _mm512_add_epi32(sum, _mm512_shuffle_i64x2(sum, sum, 0xb1));
        _mm512_storeu_si512(start[b], _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
}
