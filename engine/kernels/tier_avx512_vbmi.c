/* tier_avx512_vbmi.c: what AVX-512 tiers gain by VNNI and VBMI, which puts 64 bytes in any order in one
 * instruction: the products of packed
 * matrices. Everything else is tier_avx512.c's. Compiled with those features on; called only where the CPU has them. */
#include "packed_avx512.inc.h"

#include "packed.inc.h"

extern const kernels kernels_avx512;

void project_avx512_vbmi(const product *p);
void project_back_avx512_vbmi(const product *p);

void project_avx512_vbmi(const product *p)
{
    if (p->w->packed)
        project_packed(p);
    else
        kernels_avx512.project(p);
}

void project_back_avx512_vbmi(const product *p)
{
    if (p->w->packed)
        project_back_packed(p);
    else
        kernels_avx512.project_back(p);
}
