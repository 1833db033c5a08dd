/* tier_avx512_vnni.c: what AVX-512 tiers gain by VNNI, which adds up products of bytes in one instruction: the products of
 * packed matrices. Everything else is tier_avx512.c's. Compiled with those features on; called only where the CPU has them. */
#include "packed_avx512.inc.h"

#include "packed.inc.h"

extern const kernels kernels_avx512;

void project_avx512_vnni(const product *p);
void project_back_avx512_vnni(const product *p);

void project_avx512_vnni(const product *p)
{
    if (p->w->packed)
        project_packed(p);
    else
        kernels_avx512.project(p);
}

void project_back_avx512_vnni(const product *p)
{
    if (p->w->packed)
        project_back_packed(p);
    else
        kernels_avx512.project_back(p);
}
