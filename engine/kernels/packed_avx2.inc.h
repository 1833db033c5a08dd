/* packed_avx2.inc.h: what packed.inc.h is written over, for AVX2, two registers for 16 lanes. Sums of two products of bytes
 * have to fit 16 bits, so Q8_0's weights are signed here and their magnitudes, at most 128, go against activations, at most
 * 127, that took over the sign. The other types' weights are at most 63 and need no such care. */
#include "inline.h"
#include "packed_layout.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PACKED_INLINE INLINE

enum { BYTE_OFFSET = 0 }; /* what signed_cell leaves in Q8_0's weights */

typedef struct cell {
    __m256i low, high;
} cell;
typedef cell ints;
typedef cell words; /* 32 of 16 bits */
typedef struct floats {
    __m256 low, high;
} floats;

INLINE cell load_cell(const uint8_t *from)
{
    const __m256i *at = (const __m256i *)(const void *)from;
    return (cell){_mm256_load_si256(at), _mm256_load_si256(at + 1)};
}

INLINE cell signed_cell(cell c)
{
    const __m256i top = _mm256_set1_epi8((char)0x80);
    return (cell){_mm256_xor_si256(c.low, top), _mm256_xor_si256(c.high, top)};
}

/* Two rows of 128 bits become eight pairs, two such lanes eight quadruples, and two of those the columns. */
INLINE cell turn(cell c)
{
    const __m256i pairs = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    const __m256i from = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_shuffle_epi8(c.low, pairs), high = _mm256_shuffle_epi8(c.high, pairs);
    __m256i even = _mm256_permute2x128_si256(low, high, 0x20), odd = _mm256_permute2x128_si256(low, high, 0x31);
    return (cell){_mm256_permutevar8x32_epi32(_mm256_unpacklo_epi16(even, odd), from),
                  _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi16(even, odd), from)};
}

INLINE cell lower(cell c)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    return (cell){_mm256_and_si256(c.low, nibble), _mm256_and_si256(c.high, nibble)};
}

INLINE cell upper(cell c)
{
    return lower((cell){_mm256_srli_epi16(c.low, 4), _mm256_srli_epi16(c.high, 4)});
}

INLINE __m256i crumb_at_4(__m256i crumbs, int set)
{
    __m256i at4 = set == 0   ? _mm256_slli_epi16(crumbs, 4)
                  : set == 1 ? _mm256_slli_epi16(crumbs, 2)
                  : set == 2 ? crumbs
                             : _mm256_srli_epi16(crumbs, 2);
    return _mm256_and_si256(at4, _mm256_set1_epi8(0x30));
}

INLINE cell with_crumb(cell nibbles, cell crumbs, int set)
{
    return (cell){_mm256_or_si256(nibbles.low, crumb_at_4(crumbs.low, set)),
                  _mm256_or_si256(nibbles.high, crumb_at_4(crumbs.high, set))};
}

INLINE cell spread(const int8_t *eight)
{
    long long value;
    memcpy(&value, eight, sizeof value);
    __m256i v = _mm256_set1_epi64x(value);
    return (cell){v, v};
}

INLINE ints splat_ints(int32_t value)
{
    __m256i v = _mm256_set1_epi32(value);
    return (ints){v, v};
}

INLINE __m256i dot_eight(__m256i sum, __m256i w, __m256i x, bool bytes)
{
    __m256i pairs = bytes ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) : _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

INLINE ints dot(ints sum, cell w, cell x, bool bytes)
{
    return (ints){dot_eight(sum.low, w.low, x.low, bytes), dot_eight(sum.high, w.high, x.high, bytes)};
}

INLINE ints spread_ints(const int32_t two[2])
{
    long long value;
    memcpy(&value, two, sizeof value);
    __m256i v = _mm256_set1_epi64x(value);
    return (ints){v, v};
}

INLINE floats pair_sums(ints a, ints b)
{
    return (floats){_mm256_cvtepi32_ps(_mm256_hadd_epi32(a.low, b.low)), _mm256_cvtepi32_ps(_mm256_hadd_epi32(a.high, b.high))};
}

INLINE floats load_floats(const float *from)
{
    return (floats){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

INLINE void store_floats(float *to, floats v)
{
    _mm256_storeu_ps(to, v.low);
    _mm256_storeu_ps(to + 8, v.high);
}

INLINE floats splat_floats(float value)
{
    return (floats){_mm256_set1_ps(value), _mm256_set1_ps(value)};
}

INLINE floats times(floats a, floats b)
{
    return (floats){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

INLINE floats times_plus(floats a, floats b, floats c)
{
    return (floats){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

INLINE floats minus_times(floats a, floats b, floats c)
{
    return (floats){_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}

INLINE floats over(floats a, floats b)
{
    return (floats){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

/* b if one is not a number. */
INLINE floats larger(floats a, floats b)
{
    return (floats){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

INLINE floats load_halves(const uint8_t *from)
{
    const __m128i *at = (const __m128i *)(const void *)from;
    return (floats){_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}

INLINE floats load_uint8(const uint8_t *from)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
    return (floats){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

INLINE floats load_int8(const uint8_t *from)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
    return (floats){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

INLINE float sum_floats(floats v)
{
    __m256 eight = _mm256_add_ps(v.low, v.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

INLINE __m256i magnitudes(__m256 v)
{
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(INT32_MAX));
}

/* Of 4 x 32 numbers, `most` over the largest magnitude of each 32, and the scale that makes numbers again of integers up to
 * 127. That magnitude, as integers order it, is not finite where one of the 32 is not, and so is the scale. Below 2^-110 a
 * block counts as zeros: the inverse of its scale might be none. */
INLINE void scales_of_four(const floats v[8], float most, float inverse[4], float scale[4])
{
    const __m128 least = _mm_set1_ps(0x1p-110f);
    __m128i m[4];
    for (int b = 0; b < 4; b++) {
        __m256i low = _mm256_max_epi32(magnitudes(v[2 * b].low), magnitudes(v[2 * b].high));
        __m256i high = _mm256_max_epi32(magnitudes(v[2 * b + 1].low), magnitudes(v[2 * b + 1].high));
        __m256i max = _mm256_max_epi32(low, high);
        m[b] = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    }
    __m128i even = _mm_max_epi32(_mm_unpacklo_epi32(m[0], m[1]), _mm_unpackhi_epi32(m[0], m[1]));
    __m128i odd = _mm_max_epi32(_mm_unpacklo_epi32(m[2], m[3]), _mm_unpackhi_epi32(m[2], m[3]));
    __m128 max = _mm_castsi128_ps(_mm_max_epi32(_mm_unpacklo_epi64(even, odd), _mm_unpackhi_epi64(even, odd)));
    _mm_storeu_ps(inverse, _mm_div_ps(_mm_set1_ps(most), _mm_max_ps(least, max))); /* the second if one is not a number */
    _mm_storeu_ps(scale, _mm_div_ps(_mm_andnot_ps(_mm_cmplt_ps(max, least), max), _mm_set1_ps(127.0f)));
}

/* 4 x 32 numbers as bytes in the order of the sets, up to 127, and their scales. */
INLINE void round_four(const floats v[8], int8_t *to, float scale[4])
{
    float inverse[4];
    scales_of_four(v, 127.0f, inverse, scale);
    const __m256i sets = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* as packing goes within 128 bits */
    for (int b = 0; b < 4; b++) {
        __m256 by = _mm256_set1_ps(inverse[b]);
        __m256i half[2];
        for (int h = 0; h < 2; h++)
            half[h] = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(v[2 * b + h].low, by)),
                                         _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * b + h].high, by)));
        __m256i bytes = _mm256_packs_epi16(half[0], half[1]);
        bytes = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, order), sets);
        _mm256_storeu_si256((__m256i *)(void *)(to + 32 * b), bytes);
    }
}

/* Rounded to words, in the order of the sets. */
INLINE __m256i sixteen_words(floats v)
{
    const __m256i sets = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi32(_mm256_cvtps_epi32(v.low), _mm256_cvtps_epi32(v.high)), sets);
}

INLINE words to_words(floats low, floats high)
{
    return (words){sixteen_words(low), sixteen_words(high)};
}

INLINE words load_words(const int16_t *from)
{
    return load_cell((const uint8_t *)from);
}

/* The same with words up to WORD_MOST. */
INLINE void round_words(const floats v[8], int16_t *to, float scale[4])
{
    float inverse[4];
    scales_of_four(v, (float)WORD_MOST, inverse, scale);
    for (int b = 0; b < 4; b++) {
        floats by = splat_floats(inverse[b]);
        words w = to_words(times(v[2 * b], by), times(v[2 * b + 1], by));
        memcpy(to + 32 * b, &w, sizeof w);
    }
}

INLINE void store_words(int16_t *to, words v)
{
    memcpy(to, &v, sizeof v);
}

/* Each word times the other's / 2^15, rounded. */
INLINE words fold(words a, words b)
{
    return (words){_mm256_mulhrs_epi16(a.low, b.low), _mm256_mulhrs_epi16(a.high, b.high)};
}

/* The largest magnitude of each of 4 x 32 words. */
INLINE void largest_of_four(const int16_t *word, int32_t largest[4])
{
    __m128i m[4];
    for (int k = 0; k < 4; k++) {
        words w = load_words(word + 32 * k);
        __m256i max = _mm256_max_epu16(_mm256_abs_epi16(w.low), _mm256_abs_epi16(w.high));
        m[k] = _mm_max_epu16(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    }
    __m128i low = _mm_max_epu16(_mm_unpacklo_epi16(m[0], m[1]), _mm_unpackhi_epi16(m[0], m[1]));
    __m128i high = _mm_max_epu16(_mm_unpacklo_epi16(m[2], m[3]), _mm_unpackhi_epi16(m[2], m[3]));
    __m128i two = _mm_max_epu16(_mm_unpacklo_epi32(low, high), _mm_unpackhi_epi32(low, high));
    _mm_storeu_si128((__m128i *)(void *)largest, _mm_cvtepu16_epi32(_mm_max_epu16(two, _mm_srli_si128(two, 8))));
}

/* What 16 such words are to be multiplied with to become bytes, and what these count then, as packed_layout.h has it. */
INLINE void byte_factors(const int32_t largest[16], int32_t by[16], float unit[16])
{
    for (int h = 0; h < 16; h += 8) {
        __m256i most = _mm256_load_si256((const __m256i *)(const void *)(largest + h));
        __m256 ratio = _mm256_div_ps(_mm256_set1_ps((float)WORD_TO_BYTE),
                                     _mm256_cvtepi32_ps(_mm256_max_epi32(most, _mm256_set1_epi32(1))));
        __m256i factor = _mm256_min_epi32(_mm256_cvttps_epi32(ratio), _mm256_set1_epi32(WORD_TOP));
        _mm256_store_si256((__m256i *)(void *)(by + h), factor);
        _mm256_storeu_ps(unit + h, _mm256_div_ps(_mm256_set1_ps((float)WORD_UNIT), _mm256_cvtepi32_ps(factor)));
    }
}

/* 2 x 32 words times their factors / 2^15, as bytes: 8 of a set of the first, 8 of the second. */
INLINE void narrow_pair(const int16_t *word, const int32_t by[2], int8_t *to)
{
    __m256i of_a = _mm256_set1_epi16((int16_t)by[0]), of_b = _mm256_set1_epi16((int16_t)by[1]);
    words a = fold(load_words(word), (words){of_a, of_a}), b = fold(load_words(word + 32), (words){of_b, of_b});
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_packs_epi16(a.low, b.low));
    _mm256_storeu_si256((__m256i *)(void *)(to + 32), _mm256_packs_epi16(a.high, b.high));
}

/* Of two such pairs, minus `offset` times the sums of bytes 0 to 3 of each set, and of bytes 4 to 7. */
INLINE void starts_of_pairs(const int8_t *byte, int offset, int32_t start[4][2])
{
    const __m256i by = _mm256_set1_epi8((char)offset), one = _mm256_set1_epi16(1);
    for (int p = 0; p < 2; p++) {
        const __m256i *at = (const __m256i *)(const void *)(byte + 64 * p);
        __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(by, _mm256_loadu_si256(at)),
                                         _mm256_maddubs_epi16(by, _mm256_loadu_si256(at + 1)));
        __m256i sums = _mm256_madd_epi16(pairs, one);
        __m128i both = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        _mm_storeu_si128((__m128i *)(void *)start[2 * p], _mm_sub_epi32(_mm_setzero_si128(), both));
    }
}

/* Of the sums of 4 x 32 of these bytes, minus `offset` times: [..][0] is that of bytes 0 to 3 of each set, [..][1] that of
 * bytes 4 to 7, of all sets if they are to be `whole`, else of the first two, and [..][4] and [..][5] of the others. */
INLINE void starts_of_four(const int8_t *byte, int offset, bool whole, int32_t start[4][8])
{
    const __m256i by = _mm256_set1_epi8((char)offset), one = _mm256_set1_epi16(1);
    for (int b = 0; b < 4; b++) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)(byte + 32 * b));
        __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(by, bytes), one);
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
        if (whole) sum = _mm256_add_epi32(sum, _mm256_permute2x128_si256(sum, sum, 1));
        _mm256_storeu_si256((__m256i *)(void *)start[b], _mm256_sub_epi32(_mm256_setzero_si256(), sum));
    }
}
