/* gguf_internal.h: what the three files of the GGUF reader share. gguf.c fills it, gguf_values.c and gguf_text.c read it. */
#ifndef DESCENT_GGUF_INTERNAL_H
#define DESCENT_GGUF_INTERNAL_H

#include "gguf.h"

/* One metadata entry. Where the value is a string or an array, `data` lies past its length or its type and count. */
typedef struct gguf_entry {
    const char *key;
    uint32_t type;
    uint32_t element; /* arrays: the type of an element; otherwise type */
    uint64_t count;   /* arrays: elements; strings: bytes; otherwise 1 */
    const unsigned char *data;
    uint64_t *ends;             /* arrays of strings: see gguf_array */
    const unsigned char *whole; /* from the key's length to the end of the value: whole_bytes */
    uint64_t whole_bytes;
} gguf_entry;

struct gguf_file {
    const unsigned char *data;
    uint64_t bytes;
    void *mapping; /* data, where it is to be unmapped; NULL where it is the caller's */
    size_t n_entries, n_tensors;
    gguf_entry *entries;
    gguf_tensor *tensors;
    const gguf_entry **entries_by_key;
    const gguf_tensor **tensors_by_name;
    char *names;    /* every key and tensor name, NUL-terminated */
    uint64_t *ends; /* of the strings of every array */
};

/* NULL when there is none. */
const gguf_entry *gguf_find_entry(const gguf_file *file, const char *key);

/* Bytes of one value of a type of fixed size; 0 for strings, arrays and numbers that are no type. */
uint32_t gguf_value_bytes(uint32_t type);

/* Bytes, 1..4, of the UTF-8 character at `text` (`bytes` of them readable); 0 when there is none. */
size_t gguf_utf8_length(const unsigned char *text, uint64_t bytes);
/* True when that character is a control character: C0, DEL or C1. */
bool gguf_is_control(const unsigned char *text, size_t length);

/* Unaligned little-endian reads. */
uint32_t gguf_read_u32(const unsigned char *from);
uint64_t gguf_read_u64(const unsigned char *from);

#endif
