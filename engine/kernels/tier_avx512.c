/* tier_avx512.c: the kernels for AVX-512 (F, BW, VL, DQ) without VNNI, so packed matrices go as with AVX2. Compiled with those
 * features on; called only where the CPU has them. */
#define TIER "avx512"
#define TIER_TABLE kernels_avx512
#define TIER_PACKED "packed_avx2.inc.h"

#include "tier_avx512.inc.h"
