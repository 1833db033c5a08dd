/* tier_avx512_vbmi.c: the kernels for AVX-512 with VNNI and VBMI, which puts 64 bytes in any order in one instruction. Compiled
 * with those features on; called only where the CPU has them. */
#define TIER "avx512-vbmi"
#define TIER_TABLE kernels_avx512_vbmi
#define TIER_PACKED "packed_avx512.inc.h"

#include "tier_avx512.inc.h"
