/* bench_loops.c: the loops of bench_machine.h for each instruction set. The compiler may neither drop nor reorder what they do
 * into something else, so sums end in a volatile; each keeps as many sums going as hide the time one addition takes.
 */
#include "bench_machine.h"

#include <stdio.h>
#include <string.h>

static volatile uint64_t sink;

enum { SUMS = 16 };     /* two units, results after four or five cycles, and some to spare */
enum { READ_SUMS = 8 }; /* in registers: what is read goes by once, in order */

/* ---- Portable ---------------------------------------------------------------------------------------------------- */

enum { PORTABLE_LANES = 64 };

static void portable_int8(uint64_t rounds)
{
    int32_t sums[PORTABLE_LANES] = {0};
    int8_t a[PORTABLE_LANES];
    uint8_t b[PORTABLE_LANES];
    for (int k = 0; k < PORTABLE_LANES; k++) {
        a[k] = (int8_t)(k - 32);
        b[k] = (uint8_t)k;
    }
    for (uint64_t i = 0; i < rounds; i++) {
        __asm__ volatile("" : : "r"(a), "r"(b) : "memory"); /* they may have changed: nothing is known beforehand */
        for (int k = 0; k < PORTABLE_LANES; k++) sums[k] += a[k] * b[k];
    }
    sink = (uint64_t)(uint32_t)sums[1] + (uint32_t)sums[PORTABLE_LANES - 1];
}

static void portable_f32(uint64_t rounds)
{
    float sums[PORTABLE_LANES] = {0}, a = 1.000001f, b = 1e-9f;
    for (uint64_t i = 0; i < rounds; i++) {
        __asm__ volatile("" : "+m"(a), "+m"(b));
        for (int k = 0; k < PORTABLE_LANES; k++) sums[k] = sums[k] * a + b;
    }
    sink = sums[1] > 0 && sums[PORTABLE_LANES - 1] > 0;
}

typedef uint64_t pair __attribute__((vector_size(16)));

static void portable_read(const unsigned char *from, size_t bytes)
{
    pair sums[READ_SUMS] = {{0}};
    for (size_t at = 0; at < bytes; at += sizeof sums)
#pragma GCC unroll 8
        for (int k = 0; k < READ_SUMS; k++) {
            pair words;
            memcpy(&words, from + at + (size_t)k * sizeof words, sizeof words);
            sums[k] += words;
        }
#pragma GCC unroll 8
    for (int k = 1; k < READ_SUMS; k++) sums[0] += sums[k];
    sink = sums[0][0] + sums[0][1];
}

static const machine_loops portable = {.name = "portable",
                                       .int8_per_round = PORTABLE_LANES,
                                       .f32_per_round = PORTABLE_LANES,
                                       .int8 = portable_int8,
                                       .f32 = portable_f32,
                                       .read = portable_read};

#if defined(__x86_64__)
#include <immintrin.h>

/* ---- AVX2 -------------------------------------------------------------------------------------------------------- */

#define AVX2 __attribute__((target("avx2,fma")))

/* Bytes widened to 16 bits before they are multiplied: the shorter way saturates. A round is 16 multiply-adds a sum; an
 * addition takes one cycle, so few sums do. */
AVX2 static void avx2_int8(uint64_t rounds)
{
    __m256i sums[SUMS / 2], a = _mm256_set1_epi16(-7), b = _mm256_set1_epi16(9);
    for (int k = 0; k < SUMS / 2; k++) sums[k] = _mm256_set1_epi32(k);
    for (uint64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < SUMS / 2; k++) {
            __asm__ volatile("" : "+x"(a)); /* may have changed: one product would do for all sums */
            sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(a, b));
        }
    }
    for (int k = 1; k < SUMS / 2; k++) sums[0] = _mm256_xor_si256(sums[0], sums[k]);
    sink = (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

AVX2 static void avx2_f32(uint64_t rounds)
{
    __m256 sums[SUMS - 4], a = _mm256_set1_ps(1.000001f), b = _mm256_set1_ps(1e-9f);
    for (int k = 0; k < SUMS - 4; k++) sums[k] = _mm256_set1_ps((float)k);
    for (uint64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < SUMS - 4; k++) sums[k] = _mm256_fmadd_ps(sums[k], a, b);
    }
    for (int k = 1; k < SUMS - 4; k++) sums[0] = _mm256_xor_ps(sums[0], sums[k]);
    sink = (uint64_t)_mm256_extract_epi64(_mm256_castps_si256(sums[0]), 0);
}

AVX2 static void avx2_read(const unsigned char *from, size_t bytes)
{
    __m256i sums[READ_SUMS];
#pragma GCC unroll 8
    for (int k = 0; k < READ_SUMS; k++) sums[k] = _mm256_setzero_si256();
    for (const unsigned char *at = from; at < from + bytes; at += sizeof sums)
#pragma GCC unroll 8
        for (int k = 0; k < READ_SUMS; k++)
            sums[k] = _mm256_add_epi64(sums[k], _mm256_loadu_si256((const __m256i *)(const void *)(at + 32 * k)));
#pragma GCC unroll 8
    for (int k = 1; k < READ_SUMS; k++) sums[0] = _mm256_add_epi64(sums[0], sums[k]);
    sink = (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

static const machine_loops avx2 = {.name = "avx2",
                                   .int8_per_round = SUMS / 2 * 16,
                                   .f32_per_round = (SUMS - 4) * 8,
                                   .int8 = avx2_int8,
                                   .f32 = avx2_f32,
                                   .read = avx2_read};

/* ---- AVX-512 ------------------------------------------------------------------------------------------------------ */

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define AVX512_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* As with AVX2. */
AVX512 static void avx512_int8(uint64_t rounds)
{
    __m512i sums[SUMS], a = _mm512_set1_epi16(-7), b = _mm512_set1_epi16(9);
    for (int k = 0; k < SUMS; k++) sums[k] = _mm512_set1_epi32(k);
    for (uint64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < SUMS; k++) {
            __asm__ volatile("" : "+v"(a));
            sums[k] = _mm512_add_epi32(sums[k], _mm512_madd_epi16(a, b));
        }
    }
    for (int k = 1; k < SUMS; k++) sums[0] = _mm512_xor_si512(sums[0], sums[k]);
    sink = (uint64_t)_mm512_reduce_or_epi64(sums[0]);
}

AVX512_VNNI static void avx512_vnni_int8(uint64_t rounds)
{
    __m512i sums[SUMS], a = _mm512_set1_epi8(7), b = _mm512_set1_epi8(-9);
    for (int k = 0; k < SUMS; k++) sums[k] = _mm512_set1_epi32(k);
    for (uint64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < SUMS; k++) sums[k] = _mm512_dpbusd_epi32(sums[k], a, b);
    }
    for (int k = 1; k < SUMS; k++) sums[0] = _mm512_xor_si512(sums[0], sums[k]);
    sink = (uint64_t)_mm512_reduce_or_epi64(sums[0]);
}

AVX512 static void avx512_f32(uint64_t rounds)
{
    __m512 sums[SUMS], a = _mm512_set1_ps(1.000001f), b = _mm512_set1_ps(1e-9f);
    for (int k = 0; k < SUMS; k++) sums[k] = _mm512_set1_ps((float)k);
    for (uint64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < SUMS; k++) sums[k] = _mm512_fmadd_ps(sums[k], a, b);
    }
    for (int k = 1; k < SUMS; k++) sums[0] = _mm512_add_ps(sums[0], sums[k]);
    sink = _mm512_reduce_add_ps(sums[0]) > 0;
}

AVX512 static void avx512_read(const unsigned char *from, size_t bytes)
{
    __m512i sums[READ_SUMS];
#pragma GCC unroll 8
    for (int k = 0; k < READ_SUMS; k++) sums[k] = _mm512_setzero_si512();
    for (const unsigned char *at = from; at < from + bytes; at += sizeof sums)
#pragma GCC unroll 8
        for (int k = 0; k < READ_SUMS; k++) sums[k] = _mm512_add_epi64(sums[k], _mm512_loadu_si512(at + 64 * k));
#pragma GCC unroll 8
    for (int k = 1; k < READ_SUMS; k++) sums[0] = _mm512_add_epi64(sums[0], sums[k]);
    sink = (uint64_t)_mm512_reduce_or_epi64(sums[0]);
}

static const machine_loops avx512 = {.name = "avx512",
                                     .int8_per_round = SUMS * 32,
                                     .f32_per_round = SUMS * 16,
                                     .int8 = avx512_int8,
                                     .f32 = avx512_f32,
                                     .read = avx512_read};

static const machine_loops avx512_vnni = {.name = "avx512 vnni",
                                          .int8_per_round = SUMS * 64,
                                          .f32_per_round = SUMS * 16,
                                          .int8 = avx512_vnni_int8,
                                          .f32 = avx512_f32,
                                          .read = avx512_read};

const machine_loops *machine_loops_get(void)
{
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return __builtin_cpu_supports("avx512vnni") ? &avx512_vnni : &avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : &portable;
}

const char *machine_features(char *text, size_t size)
{
    const struct {
        const char *name;
        int there;
    } features[] = {
        {"avx2", __builtin_cpu_supports("avx2")},
        {"fma", __builtin_cpu_supports("fma")},
        {"avx512f", __builtin_cpu_supports("avx512f")},
        {"avx512bw", __builtin_cpu_supports("avx512bw")},
        {"avx512vl", __builtin_cpu_supports("avx512vl")},
        {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
        {"avx512vbmi", __builtin_cpu_supports("avx512vbmi")},
        {"avx512bf16", __builtin_cpu_supports("avx512bf16")},
    };
    size_t used = (size_t)snprintf(text, size, "x86-64");
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].there && used < size) used += (size_t)snprintf(text + used, size - used, " %s", features[i].name);
    return text;
}

#else

const machine_loops *machine_loops_get(void)
{
    return &portable;
}

const char *machine_features(char *text, size_t size)
{
    (void)snprintf(text, size, "not x86-64");
    return text;
}

#endif
