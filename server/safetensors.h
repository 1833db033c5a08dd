/* safetensors.h: vectors of 32-bit floats in a safetensors file: eight bytes that say how long the header is, a JSON object
 * that says of each tensor its type, shape and place, and the numbers, little-endian as in memory. What is read comes from
 * outside: its memory is bounded by its bytes. Pure; any thread.
 */
#ifndef DESCENT_SERVER_SAFETENSORS_H
#define DESCENT_SERVER_SAFETENSORS_H

#include "json_text.h"

enum { SAFETENSORS_NAME = 96, SAFETENSORS_MESSAGE = 256 };

typedef struct safetensors_vector {
    char name[SAFETENSORS_NAME]; /* printable ASCII */
    const float *values;         /* [width] */
} safetensors_vector;

/* Appends a file of `count` vectors, in their order; `metadata` is pairs of key and value, ended by NULL. */
void safetensors_write(json_text *out, const safetensors_vector *vectors, size_t count, size_t width,
                       const char *const *metadata);

/* Reads a file that holds nothing but F32 vectors of `width` numbers. *vectors (one piece of memory, with the numbers behind,
 * to free) and *count; false: `message` says what is wrong, and where. */
bool safetensors_read(const unsigned char *bytes, size_t size, size_t width, safetensors_vector **vectors, size_t *count,
                      char message[SAFETENSORS_MESSAGE]);

/* Bytes that base64 text stands for, padded or not; false where it is none. *bytes is to free, NULL where it fails. */
bool base64_decode(const char *text, size_t length, unsigned char **bytes, size_t *size);

#endif
