/* gguf_types.c: the numbers a GGUF file uses for tensor types and value types, with their names and sizes. The engine
 * computes with few of the tensor types; the others are here so that `descent info` lists any file and loading can
 * refuse them by name. Called by everything that meets a type. */
#include "gguf_internal.h"

#include <string.h>

/* Types ggml only makes while computing (Q8_1, Q8_K) are in no file and not here. */
static const gguf_type_info types[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},     {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},  {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210}, {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18}, {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},       {25, "I16", 1, 2},      {26, "I32", 1, 4},        {27, "I64", 1, 8},       {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56}, {30, "BF16", 1, 2},     {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},  {41, "Q1_0", 128, 18},
};

const gguf_type_info *gguf_type_find(uint32_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type) return &types[i];
    return NULL;
}

const char *gguf_type_name(uint32_t type)
{
    const gguf_type_info *info = gguf_type_find(type);
    return info ? info->name : "unknown";
}

static const struct {
    const char *name;
    uint32_t bytes;
} value_types[] = {
    [GGUF_VALUE_U8] = {"u8", 1},       [GGUF_VALUE_I8] = {"i8", 1},     [GGUF_VALUE_U16] = {"u16", 2},
    [GGUF_VALUE_I16] = {"i16", 2},     [GGUF_VALUE_U32] = {"u32", 4},   [GGUF_VALUE_I32] = {"i32", 4},
    [GGUF_VALUE_F32] = {"f32", 4},     [GGUF_VALUE_BOOL] = {"bool", 1}, [GGUF_VALUE_STRING] = {"string", 0},
    [GGUF_VALUE_ARRAY] = {"array", 0}, [GGUF_VALUE_U64] = {"u64", 8},   [GGUF_VALUE_I64] = {"i64", 8},
    [GGUF_VALUE_F64] = {"f64", 8},
};

const char *gguf_value_type_name(uint32_t type)
{
    return type < sizeof value_types / sizeof value_types[0] ? value_types[type].name : "unknown";
}

uint32_t gguf_value_bytes(uint32_t type)
{
    return type < sizeof value_types / sizeof value_types[0] ? value_types[type].bytes : 0;
}

uint32_t gguf_read_u32(const unsigned char *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

uint64_t gguf_read_u64(const unsigned char *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return value;
}
