/* kernels.c: choosing the tier. Owns the one pointer to the table in use. */
#include "kernels.h"

#include "../descent.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const kernels kernels_portable;
#if defined(__x86_64__)
extern const kernels kernels_avx2, kernels_avx512;
#endif

static const kernels *chosen = &kernels_portable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
#if defined(__x86_64__)
    unsigned a, b, c = 0, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C); /* not every compiler's builtin knows the name */
    bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    const char *asked = getenv("DESCENT_ISA");
    if (asked && !strcmp(asked, "portable")) return;
    if (avx2) chosen = &kernels_avx2;
    if (avx512 && !(asked && !strcmp(asked, "avx2"))) chosen = &kernels_avx512;
#endif
}

const kernels *kernels_get(void)
{
    (void)pthread_once(&once, choose);
    return chosen;
}

const char *descent_isa(void)
{
    return kernels_get()->name;
}
