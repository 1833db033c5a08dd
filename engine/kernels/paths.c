/* paths.c: which arithmetic a product goes through, by the type of the numbers it multiplies with, the instruction set, and
 * whether one row is multiplied or several: a table, since nothing else decides it. The kernels are built so (tier.inc.h,
 * packed.inc.h); this says it to whoever asks, through descent.h. */
#include "kernels.h"

#include "../descent.h"

#include <string.h>

/* What an instruction set has for each way to multiply. */
static const struct {
    const char *tier, *floats, *integers;
} tiers[] = {
    {"portable", "f32, 4 lanes", "int8 to int32, one at a time"},
    {"avx2", "f32, 8 lanes", "int8 to int32, vpmaddubsw"},
    {"avx512", "f32, 16 lanes", "int8 to int32, vpmaddubsw of avx2"},
    {"avx512-vnni", "f32, 16 lanes", "int8 to int32, vpdpbusd"},
    {"avx512-vbmi", "f32, 16 lanes", "int8 to int32, vpdpbusd and vpermb"},
};

/* How the numbers come to it: alone, for one row; together, for several. */
static const struct {
    const char *numbers;
    bool pages, integers;
    const char *one, *several;
} types[] = {
    {"F32", false, false, "as they are", "the same, a band in the first cache level for all rows"},
    {"F16", false, false, "widened as they are loaded", "the same, a band in the first cache level for all rows"},
    {"BF16", false, false, "widened as they are loaded", "the same, a band in the first cache level for all rows"},
    {"Q8_0", false, true, "packed in blocks of 32 x 32", "the same, a block for up to 16 rows"},
    {"Q4_0", false, true, "packed in blocks of 32 x 32", "the same, a block for up to 16 rows"},
    {"Q4_K", false, true, "packed in blocks of 32 x 32", "the same, a block for up to 16 rows"},
    {"Q6_K", false, true, "packed in blocks of 32 x 32", "the same, a block for up to 16 rows"},
    {"f32", true, false, "as they are", "the same, a page for up to 16 rows"},
    {"f16", true, false, "widened as they are loaded", "the same, a page for up to 16 rows"},
    {"bf16", true, false, "widened as they are loaded", "the same, a page for up to 16 rows"},
    {"q8", true, false, "4096 numbers at a time made f32", "the same, once for up to 16 rows"},
};

bool descent_path_at(size_t i, descent_path *path)
{
    if (i >= sizeof types / sizeof types[0]) return false;
    const char *arithmetic = NULL, *isa = kernels_get()->name;
    for (size_t t = 0; t < sizeof tiers / sizeof tiers[0]; t++)
        if (!strcmp(isa, tiers[t].tier)) arithmetic = types[i].integers ? tiers[t].integers : tiers[t].floats;
    *path = (descent_path){.numbers = types[i].numbers,
                           .pages = types[i].pages,
                           .arithmetic = arithmetic,
                           .one = types[i].one,
                           .several = types[i].several};
    return true;
}
