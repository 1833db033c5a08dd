/* kernels.c: choosing the tier. Owns the list of those this machine has and the pointer to the one in use. */
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
extern void project_avx512_vnni(const product *p), project_back_avx512_vnni(const product *p);
extern void project_avx512_vbmi(const product *p), project_back_avx512_vbmi(const product *p);

static kernels avx512_vnni, avx512_vbmi; /* kernels_avx512 but for their products */
#endif

enum { MOST_TIERS = 5 };

static const kernels *tiers[MOST_TIERS] = {&kernels_portable}; /* those of this machine, each above the one before */
static size_t n_tiers = 1;
static const kernels *chosen = &kernels_portable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_tiers(void)
{
#if defined(__x86_64__)
    unsigned a, b, c = 0, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C); /* not every compiler's builtin knows the name */
    if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    tiers[n_tiers++] = &kernels_avx2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
        return;
    tiers[n_tiers++] = &kernels_avx512;
    if (!__builtin_cpu_supports("avx512vnni")) return;
    avx512_vnni = avx512_vbmi = kernels_avx512;
    avx512_vnni.name = "avx512-vnni";
    avx512_vnni.project = project_avx512_vnni;
    avx512_vnni.project_back = project_back_avx512_vnni;
    tiers[n_tiers++] = &avx512_vnni;
    if (!__builtin_cpu_supports("avx512vbmi")) return;
    avx512_vbmi.name = "avx512-vbmi";
    avx512_vbmi.project = project_avx512_vbmi;
    avx512_vbmi.project_back = project_back_avx512_vbmi;
    tiers[n_tiers++] = &avx512_vbmi;
#endif
}

static void choose(void)
{
    find_tiers();
    chosen = tiers[n_tiers - 1];
    const char *asked = getenv("DESCENT_ISA");
    for (size_t i = 0; asked && i < n_tiers; i++)
        if (!strcmp(asked, tiers[i]->name)) chosen = tiers[i];
}

const kernels *kernels_get(void)
{
    (void)pthread_once(&once, choose);
    return chosen;
}

const kernels *const *kernels_tiers(size_t *n)
{
    (void)pthread_once(&once, choose);
    *n = n_tiers;
    return tiers;
}

const char *descent_isa(void)
{
    return kernels_get()->name;
}
