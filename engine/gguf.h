/* gguf.h: a GGUF version 3 file, mapped read-only or read, and checked from end to end before anything in it can be reached.
 *
 * After gguf_open succeeded every name, value and tensor below is known to lie inside the file, so callers check only
 * what their model needs: that a key exists and holds what it should (the typed getters), that a tensor has the shape
 * and type expected. Nothing is copied but names; values and tensor data are views into the mapping, valid until
 * gguf_close. A gguf_file is immutable, but for gguf_release, and may be read by any number of threads.
 *
 * Messages name the key or tensor, and for contents the offset; they do not repeat the path unless the system refused
 * to open it. On failure out-parameters are left untouched. Files are little-endian, as is every machine this runs on.
 */
#ifndef DESCENT_GGUF_H
#define DESCENT_GGUF_H

#include "descent.h"

typedef struct gguf_file gguf_file;

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* DESCENT_IO: not opened, or not a regular file. DESCENT_UNSUPPORTED: another version or byte order, a header larger
 * than 1 GiB. DESCENT_BAD_FILE: anything wrong inside. The file must not change while it is open. */
descent_code gguf_open(const char *path, gguf_file **file, descent_status *status);

/* The same from a copy in memory, which takes the file's size: the file may change afterwards. DESCENT_IO too where it becomes
 * shorter while it is read, DESCENT_LIMIT where the machine has less memory than that. */
descent_code gguf_read(const char *path, gguf_file **file, descent_status *status);

/* The same over bytes the caller keeps, aligned to 8 or more and unchanged until gguf_close. */
descent_code gguf_open_memory(const void *data, size_t bytes, gguf_file **file, descent_status *status);

/* NULL is allowed. */
void gguf_close(gguf_file *file);

/* The whole file. Memory of tensors that were released is not to be read. */
const void *gguf_data(const gguf_file *file);
uint64_t gguf_bytes(const gguf_file *file);

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

/* Tensor types by ggml's numbers: those this engine computes with. gguf_type_find knows the other standard ones too. */
typedef enum gguf_type {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q8_0 = 8,
    GGUF_Q4_K = 12,
    GGUF_Q6_K = 14,
    GGUF_BF16 = 30
} gguf_type;

typedef struct gguf_type_info {
    uint32_t type;
    const char *name; /* "F32", "Q8_0", ... */
    uint32_t block;   /* numbers in a block; a row is a whole number of blocks */
    uint32_t block_bytes;
} gguf_type_info;

/* NULL when the number stands for no type. */
const gguf_type_info *gguf_type_find(uint32_t type);
/* "F32", ...; "unknown" when the number stands for no type. */
const char *gguf_type_name(uint32_t type);

#define GGUF_MAX_DIMS 4

typedef struct gguf_tensor {
    const char *name;             /* UTF-8 without control characters, 1..64 bytes */
    uint32_t type;                /* one that gguf_type_find knows */
    uint32_t n_dims;              /* 1..4 */
    uint64_t dims[GGUF_MAX_DIMS]; /* each at least 1, fastest first; 1 past n_dims */
    uint64_t numbers;             /* the product of dims */
    const void *data;             /* aligned to 8 at least; NULL once it was released */
    uint64_t bytes;
} gguf_tensor;

size_t gguf_tensor_count(const gguf_file *file);
/* In the file's order; NULL past the last. */
const gguf_tensor *gguf_tensor_at(const gguf_file *file, size_t i);
/* NULL when there is none of that name. */
const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name);

/* Gives back the memory of a tensor that nobody will read again: the whole pages of memory inside it, for a file that is mapped
 * or read (those of gguf_open_memory are the caller's). Returns how many bytes that was. Not while another thread reads the
 * file. */
uint64_t gguf_release(gguf_file *file, const gguf_tensor *tensor);

/* Bytes inside the file, not NUL-terminated. */
typedef struct gguf_string {
    const char *text;
    size_t bytes;
} gguf_string;

/* ---- Metadata -------------------------------------------------------------------------------------------------- */

/* Types of metadata values, GGUF's numbers. */
typedef enum gguf_value_type {
    GGUF_VALUE_U8 = 0,
    GGUF_VALUE_I8 = 1,
    GGUF_VALUE_U16 = 2,
    GGUF_VALUE_I16 = 3,
    GGUF_VALUE_U32 = 4,
    GGUF_VALUE_I32 = 5,
    GGUF_VALUE_F32 = 6,
    GGUF_VALUE_BOOL = 7,
    GGUF_VALUE_STRING = 8,
    GGUF_VALUE_ARRAY = 9,
    GGUF_VALUE_U64 = 10,
    GGUF_VALUE_I64 = 11,
    GGUF_VALUE_F64 = 12
} gguf_value_type;

/* "u8", "f32", "string", "array", ...; "unknown" when the number stands for no type. */
const char *gguf_value_type_name(uint32_t type);

size_t gguf_metadata_count(const gguf_file *file);
/* In the file's order; NULL past the last. UTF-8 without control characters. */
const char *gguf_metadata_key(const gguf_file *file, size_t i);
/* A gguf_value_type; i must be below the count. */
gguf_value_type gguf_metadata_type(const gguf_file *file, size_t i);

/* The i-th value as one line of valid UTF-8, at most size bytes with the NUL, cut between characters and ended with
 * "..." where it is longer. Control characters, backslashes and bytes that are not UTF-8 are escaped as \n, \\, \x1b.
 * Strings of arrays stand in quotes; arrays begin with type and count and show their first entries:
 * "string[50257] [\"!\", \"\\\"\", \"#\", ...]". False, and text untouched, when i is past the last or size is 0. */
bool gguf_metadata_text(const gguf_file *file, size_t i, char *text, size_t size);

/* The i-th entry as it lies in the file, key, type and value, for whoever writes it again; i must be below the count. */
gguf_string gguf_metadata_bytes(const gguf_file *file, size_t i);

/* What tensor data is aligned to in the file: general.alignment, or what GGUF says where that is not there. */
uint32_t gguf_alignment(const gguf_file *file);

bool gguf_has(const gguf_file *file, const char *key);

/* Typed getters. DESCENT_BAD_FILE when the key is missing, of another type or out of range; the message says which was
 * found and which expected. */

/* Any integer type whose value lies in min..max. */
descent_code gguf_get_u32(const gguf_file *file, const char *key, uint32_t min, uint32_t max, uint32_t *value,
                          descent_status *status);
descent_code gguf_get_i32(const gguf_file *file, const char *key, int32_t min, int32_t max, int32_t *value,
                          descent_status *status);
/* f32, or an f64 that is finite as an f32; finite. */
descent_code gguf_get_f32(const gguf_file *file, const char *key, float *value, descent_status *status);
descent_code gguf_get_bool(const gguf_file *file, const char *key, bool *value, descent_status *status);

/* The string holds no NUL and is valid UTF-8. */
descent_code gguf_get_string(const gguf_file *file, const char *key, gguf_string *value, descent_status *status);
/* True when the string is exactly the C string `text`. */
bool gguf_string_is(gguf_string string, const char *text);

/* One array of the file. */
typedef struct gguf_array {
    size_t count;
    const unsigned char *data; /* the first element, unaligned */
    const uint64_t *ends;      /* of string arrays: where, from data, each string ends */
} gguf_array;

descent_code gguf_get_string_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status);
descent_code gguf_get_f32_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status);
descent_code gguf_get_i32_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status);
descent_code gguf_get_u8_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status);

/* Element i of an array the getter of the same type gave; i must be below its count. A string element is any bytes,
 * NULs and broken UTF-8 included; an f32 element may be non-finite. The i32 getter also takes u32 arrays whose every
 * element fits. A u8 array's bytes may be read at data directly; the u8 getter also takes i8, the same bytes. */
gguf_string gguf_string_at(const gguf_array *array, size_t i);
float gguf_f32_at(const gguf_array *array, size_t i);
int32_t gguf_i32_at(const gguf_array *array, size_t i);

#endif
