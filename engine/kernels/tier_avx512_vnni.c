/* tier_avx512_vnni.c: the kernels for AVX-512 with VNNI, which adds up products of bytes in one instruction. Compiled with
 * those features on; called only where the CPU has them. */
#define TIER "avx512-vnni"
#define TIER_TABLE kernels_avx512_vnni
#define TIER_PACKED "packed_avx512.inc.h"

#include "tier_avx512.inc.h"
