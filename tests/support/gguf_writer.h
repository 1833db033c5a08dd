/* gguf_writer.h: builds GGUF version 3 files for tests, from scratch and sharing nothing with the reader under test.
 *
 *     gguf_writer *writer = gguf_writer_create();
 *     gguf_writer_string(writer, "general.architecture", "nrgpt");
 *     gguf_writer_u32(writer, "nrgpt.vocab_size", 65);
 *     gguf_writer_tensor(writer, "token_embd.weight", GGUF_WRITER_F32, 2, (uint64_t[]){C, V}, values);
 *     gguf_writer_save(writer, path);
 *     gguf_writer_destroy(writer);
 *
 * Keys, values and tensors are copied and come out in the order they went in. Nothing is checked: a test may write what
 * no file should hold, twice the same key included. Running out of memory or disk ends the test program with a message.
 */
#ifndef DESCENT_TESTS_GGUF_WRITER_H
#define DESCENT_TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tensor types a tensor of floats can be written as, by ggml's numbers. */
enum { GGUF_WRITER_F32 = 0, GGUF_WRITER_F16 = 1, GGUF_WRITER_Q4_0 = 2, GGUF_WRITER_Q8_0 = 8, GGUF_WRITER_BF16 = 30 };

typedef struct gguf_writer gguf_writer;

gguf_writer *gguf_writer_create(void);
void gguf_writer_destroy(gguf_writer *writer);

void gguf_writer_u8(gguf_writer *writer, const char *key, uint8_t value);
void gguf_writer_u32(gguf_writer *writer, const char *key, uint32_t value);
void gguf_writer_i32(gguf_writer *writer, const char *key, int32_t value);
void gguf_writer_u64(gguf_writer *writer, const char *key, uint64_t value);
void gguf_writer_i64(gguf_writer *writer, const char *key, int64_t value);
void gguf_writer_f32(gguf_writer *writer, const char *key, float value);
void gguf_writer_f64(gguf_writer *writer, const char *key, double value);
void gguf_writer_bool(gguf_writer *writer, const char *key, bool value);
void gguf_writer_string(gguf_writer *writer, const char *key, const char *value);
void gguf_writer_string_bytes(gguf_writer *writer, const char *key, const void *value, size_t bytes);

void gguf_writer_strings(gguf_writer *writer, const char *key, const char *const *values, size_t count);
/* Strings with NULs: bytes[i] is the length of values[i]. */
void gguf_writer_strings_bytes(gguf_writer *writer, const char *key, const char *const *values, const size_t *bytes,
                               size_t count);
void gguf_writer_f32s(gguf_writer *writer, const char *key, const float *values, size_t count);
void gguf_writer_i32s(gguf_writer *writer, const char *key, const int32_t *values, size_t count);
void gguf_writer_u8s(gguf_writer *writer, const char *key, const uint8_t *values, size_t count);

/* A value as the file holds it: its GGUF value type and the bytes that follow. */
void gguf_writer_raw(gguf_writer *writer, const char *key, uint32_t value_type, const void *value, size_t bytes);

/* A tensor of floats in one of the types above, dims fastest first. Q8_0 and Q4_0 need dims[0] to be a multiple of 32. */
void gguf_writer_tensor(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                        const float *values);
/* A tensor of any type from its bytes. */
void gguf_writer_tensor_raw(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                            const void *data, size_t bytes);

/* Alignment of tensor data, 32 unless set; also writes general.alignment. */
void gguf_writer_alignment(gguf_writer *writer, uint32_t alignment);

/* The whole file in memory aligned to 64, released with free(). */
uint8_t *gguf_writer_build(const gguf_writer *writer, size_t *bytes);
/* Where the metadata, the tensor list and the tensor data end in what gguf_writer_build gives. */
typedef struct gguf_writer_layout {
    size_t metadata_end, tensors_end, data_start, data_end;
} gguf_writer_layout;
gguf_writer_layout gguf_writer_layout_of(const gguf_writer *writer);
void gguf_writer_save(const gguf_writer *writer, const char *path);

/* One number rounded to nearest even, as the types above hold it. */
uint16_t gguf_writer_to_f16(float value);
uint16_t gguf_writer_to_bf16(float value);

#endif
