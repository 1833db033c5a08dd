/* gguf_writer.c: builds GGUF version 3 files for tests. The metadata, the tensor list and the tensor data each grow in a
 * buffer of their own and are joined when the file is built. Written from the format's definition alone. */
#include "gguf_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U8 = 0, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10, I64 = 11, F64 = 12 };
enum { HEADER_BYTES = 24, BLOCK = 32 };

typedef struct buffer {
    uint8_t *data;
    size_t bytes, capacity;
} buffer;

struct gguf_writer {
    buffer metadata, tensors, data;
    uint64_t n_metadata, n_tensors;
    uint32_t alignment;
};

static void die(const char *what)
{
    (void)fprintf(stderr, "gguf_writer: %s\n", what);
    exit(2);
}

static void append(buffer *to, const void *data, size_t bytes)
{
    if (to->bytes + bytes > to->capacity) {
        to->capacity = 2 * (to->bytes + bytes) + 256;
        to->data = realloc(to->data, to->capacity);
        if (!to->data) die("out of memory");
    }
    if (bytes) memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
}

static void append_u32(buffer *to, uint32_t value)
{
    append(to, &value, sizeof value);
}

static void append_u64(buffer *to, uint64_t value)
{
    append(to, &value, sizeof value);
}

static void append_string(buffer *to, const void *text, size_t bytes)
{
    append_u64(to, bytes);
    append(to, text, bytes);
}

static size_t align_up(size_t bytes, uint32_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

gguf_writer *gguf_writer_create(void)
{
    gguf_writer *writer = calloc(1, sizeof *writer);
    if (!writer) die("out of memory");
    writer->alignment = 32;
    return writer;
}

void gguf_writer_destroy(gguf_writer *writer)
{
    if (!writer) return;
    free(writer->metadata.data);
    free(writer->tensors.data);
    free(writer->data.data);
    free(writer);
}

/* ---- Metadata --------------------------------------------------------------------------------------------------- */

void gguf_writer_raw(gguf_writer *writer, const char *key, uint32_t value_type, const void *value, size_t bytes)
{
    append_string(&writer->metadata, key, strlen(key));
    append_u32(&writer->metadata, value_type);
    append(&writer->metadata, value, bytes);
    writer->n_metadata++;
}

void gguf_writer_u8(gguf_writer *writer, const char *key, uint8_t value)
{
    gguf_writer_raw(writer, key, U8, &value, sizeof value);
}

void gguf_writer_u32(gguf_writer *writer, const char *key, uint32_t value)
{
    gguf_writer_raw(writer, key, U32, &value, sizeof value);
}

void gguf_writer_i32(gguf_writer *writer, const char *key, int32_t value)
{
    gguf_writer_raw(writer, key, I32, &value, sizeof value);
}

void gguf_writer_u64(gguf_writer *writer, const char *key, uint64_t value)
{
    gguf_writer_raw(writer, key, U64, &value, sizeof value);
}

void gguf_writer_i64(gguf_writer *writer, const char *key, int64_t value)
{
    gguf_writer_raw(writer, key, I64, &value, sizeof value);
}

void gguf_writer_f32(gguf_writer *writer, const char *key, float value)
{
    gguf_writer_raw(writer, key, F32, &value, sizeof value);
}

void gguf_writer_f64(gguf_writer *writer, const char *key, double value)
{
    gguf_writer_raw(writer, key, F64, &value, sizeof value);
}

void gguf_writer_bool(gguf_writer *writer, const char *key, bool value)
{
    uint8_t byte = value;
    gguf_writer_raw(writer, key, BOOL, &byte, 1);
}

void gguf_writer_string_bytes(gguf_writer *writer, const char *key, const void *value, size_t bytes)
{
    gguf_writer_raw(writer, key, STRING, NULL, 0);
    append_string(&writer->metadata, value, bytes);
}

void gguf_writer_string(gguf_writer *writer, const char *key, const char *value)
{
    gguf_writer_string_bytes(writer, key, value, strlen(value));
}

static void begin_array(gguf_writer *writer, const char *key, uint32_t type, size_t count)
{
    gguf_writer_raw(writer, key, ARRAY, NULL, 0);
    append_u32(&writer->metadata, type);
    append_u64(&writer->metadata, count);
}

void gguf_writer_strings(gguf_writer *writer, const char *key, const char *const *values, size_t count)
{
    begin_array(writer, key, STRING, count);
    for (size_t i = 0; i < count; i++) append_string(&writer->metadata, values[i], strlen(values[i]));
}

void gguf_writer_strings_bytes(gguf_writer *writer, const char *key, const char *const *values, const size_t *bytes,
                               size_t count)
{
    begin_array(writer, key, STRING, count);
    for (size_t i = 0; i < count; i++) append_string(&writer->metadata, values[i], bytes[i]);
}

void gguf_writer_f32s(gguf_writer *writer, const char *key, const float *values, size_t count)
{
    begin_array(writer, key, F32, count);
    append(&writer->metadata, values, count * sizeof *values);
}

void gguf_writer_i32s(gguf_writer *writer, const char *key, const int32_t *values, size_t count)
{
    begin_array(writer, key, I32, count);
    append(&writer->metadata, values, count * sizeof *values);
}

void gguf_writer_u8s(gguf_writer *writer, const char *key, const uint8_t *values, size_t count)
{
    begin_array(writer, key, U8, count);
    append(&writer->metadata, values, count);
}

void gguf_writer_alignment(gguf_writer *writer, uint32_t alignment)
{
    writer->alignment = alignment;
    gguf_writer_u32(writer, "general.alignment", alignment);
}

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

uint16_t gguf_writer_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t gguf_writer_to_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) return (uint16_t)(sign | 0x7e00);
    double size = fabs((double)value);
    if (size >= 65520.0) return (uint16_t)(sign | 0x7c00); /* halfway to 65536 and beyond */
    if (size < ldexp(1.0, -14)) return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(size, 24)));
    int exponent;
    double fraction = frexp(size, &exponent);                /* in [0.5, 1) */
    double mantissa = nearbyint(ldexp(fraction, 11)) - 1024; /* 1024 where it rounds up to the next power of two */
    return (uint16_t)(sign | (uint16_t)((exponent + 14) * 1024 + (int)mantissa));
}

/* A Q8_0 block: a scale in f16 and 32 signed bytes, the largest of which is 127 in size. */
static void append_q8_0_block(buffer *to, const float *values)
{
    float largest = 0;
    for (int i = 0; i < BLOCK; i++) largest = fmaxf(largest, fabsf(values[i]));
    float scale = largest / 127;
    uint16_t half = gguf_writer_to_f16(scale);
    append(to, &half, sizeof half);
    for (int i = 0; i < BLOCK; i++) {
        int8_t quantum = scale > 0 ? (int8_t)lrintf(values[i] / scale) : 0;
        append(to, &quantum, 1);
    }
}

/* A Q4_0 block: a scale in f16 and 32 nibbles of 8 more than -7..7, the first 16 numbers in the lower ones. */
static void append_q4_0_block(buffer *to, const float *values)
{
    float largest = 0;
    uint8_t nibbles[BLOCK / 2];
    for (int i = 0; i < BLOCK; i++) largest = fmaxf(largest, fabsf(values[i]));
    float scale = largest / 7;
    uint16_t half = gguf_writer_to_f16(scale);
    for (int i = 0; i < BLOCK / 2; i++) {
        long low = scale > 0 ? lrintf(values[i] / scale) : 0, high = scale > 0 ? lrintf(values[i + BLOCK / 2] / scale) : 0;
        nibbles[i] = (uint8_t)((low + 8) | (high + 8) << 4);
    }
    append(to, &half, sizeof half);
    append(to, nibbles, sizeof nibbles);
}

static size_t count_numbers(uint32_t n_dims, const uint64_t *dims)
{
    size_t count = 1;
    for (uint32_t i = 0; i < n_dims; i++) count *= (size_t)dims[i];
    return count;
}

static void begin_tensor(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims)
{
    append_string(&writer->tensors, name, strlen(name));
    append_u32(&writer->tensors, n_dims);
    append(&writer->tensors, dims, n_dims * sizeof *dims);
    append_u32(&writer->tensors, type);
    size_t offset = align_up(writer->data.bytes, writer->alignment);
    while (writer->data.bytes < offset) append(&writer->data, "", 1);
    append_u64(&writer->tensors, offset);
    writer->n_tensors++;
}

void gguf_writer_tensor_raw(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                            const void *data, size_t bytes)
{
    begin_tensor(writer, name, type, n_dims, dims);
    append(&writer->data, data, bytes);
}

void gguf_writer_tensor(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                        const float *values)
{
    begin_tensor(writer, name, type, n_dims, dims);
    size_t count = count_numbers(n_dims, dims);
    if ((type == GGUF_WRITER_Q8_0 || type == GGUF_WRITER_Q4_0) && dims[0] % BLOCK)
        die("a quantized tensor's rows must be a multiple of 32 long");
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        switch (type) {
        case GGUF_WRITER_F32:
            append(&writer->data, &values[i], sizeof values[i]);
            break;
        case GGUF_WRITER_F16:
            half = gguf_writer_to_f16(values[i]);
            append(&writer->data, &half, sizeof half);
            break;
        case GGUF_WRITER_BF16:
            half = gguf_writer_to_bf16(values[i]);
            append(&writer->data, &half, sizeof half);
            break;
        case GGUF_WRITER_Q8_0:
            if (i % BLOCK == 0) append_q8_0_block(&writer->data, values + i);
            break;
        case GGUF_WRITER_Q4_0:
            if (i % BLOCK == 0) append_q4_0_block(&writer->data, values + i);
            break;
        default:
            die("a tensor type it cannot write");
        }
    }
}

/* ---- The file --------------------------------------------------------------------------------------------------- */

gguf_writer_layout gguf_writer_layout_of(const gguf_writer *writer)
{
    gguf_writer_layout layout;
    layout.metadata_end = HEADER_BYTES + writer->metadata.bytes;
    layout.tensors_end = layout.metadata_end + writer->tensors.bytes;
    layout.data_start = align_up(layout.tensors_end, writer->alignment);
    layout.data_end = layout.data_start + writer->data.bytes;
    return layout;
}

uint8_t *gguf_writer_build(const gguf_writer *writer, size_t *bytes)
{
    gguf_writer_layout layout = gguf_writer_layout_of(writer);
    /* The last tensor is padded like the others, as most writers do. */
    size_t total = align_up(layout.data_end, writer->alignment);
    buffer file = {NULL, 0, 0};
    append(&file, "GGUF", 4);
    append_u32(&file, 3);
    append_u64(&file, writer->n_tensors);
    append_u64(&file, writer->n_metadata);
    append(&file, writer->metadata.data, writer->metadata.bytes);
    append(&file, writer->tensors.data, writer->tensors.bytes);
    while (file.bytes < layout.data_start) append(&file, "", 1);
    append(&file, writer->data.data, writer->data.bytes);
    while (file.bytes < total) append(&file, "", 1);
    uint8_t *aligned = aligned_alloc(64, align_up(total, 64));
    if (!aligned) die("out of memory");
    memcpy(aligned, file.data, total);
    free(file.data);
    *bytes = total;
    return aligned;
}

void gguf_writer_save(const gguf_writer *writer, const char *path)
{
    size_t bytes;
    uint8_t *data = gguf_writer_build(writer, &bytes);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        die("cannot write a file");
    }
    free(data);
}
