/* safetensors.h: reads the small safetensors files that hold expected numbers. */
#ifndef TEST_SAFETENSORS_H
#define TEST_SAFETENSORS_H

#include <stddef.h>

typedef struct safetensors safetensors;

/* One array, F32 or I32 in the file, as doubles. */
typedef struct safetensors_array {
    size_t n_dims;
    size_t dims[4]; /* slowest first, as the file writes them; 1 past n_dims */
    size_t count;
    double *values;
} safetensors_array;

/* Reads the whole file; ends the test program with a message where it is missing or malformed. */
safetensors *safetensors_open(const char *path);
void safetensors_close(safetensors *file);
/* Arrays in the header's order, with their names; NULL past the last. */
const safetensors_array *safetensors_at(const safetensors *file, size_t i, const char **name);
/* NULL where there is none of that name. */
const safetensors_array *safetensors_find(const safetensors *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
