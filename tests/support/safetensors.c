/* safetensors.c: eight bytes of header length, a JSON object of name -> dtype, shape, data_offsets, then the bytes. */
#include "safetensors.h"

#include "test_model.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    char name[96];
    safetensors_array array;
} entry;

struct safetensors {
    const char *path;
    entry *entries;
    size_t count;
};

static void give_up(const safetensors *file, const char *what)
{
    fprintf(stderr, "%s: %s\n", file->path, what);
    exit(1);
}

static unsigned char *read_all(const safetensors *file, size_t *bytes)
{
    FILE *stream = fopen(file->path, "rb");
    if (!stream) give_up(file, "cannot be opened");
    if (fseek(stream, 0, SEEK_END)) give_up(file, "cannot be read");
    long size = ftell(stream);
    rewind(stream);
    if (size < 8) give_up(file, "is too short for a safetensors file");
    unsigned char *data = test_alloc((size_t)size, 1);
    if (fread(data, 1, (size_t)size, stream) != (size_t)size) give_up(file, "cannot be read");
    (void)fclose(stream);
    *bytes = (size_t)size;
    return data;
}

static void read_entry(const safetensors *file, entry *to, const char *name, json_t *about, const unsigned char *data,
                       size_t bytes)
{
    const char *dtype = json_string_value(json_object_get(about, "dtype"));
    json_t *shape = json_object_get(about, "shape"), *offsets = json_object_get(about, "data_offsets");
    json_int_t begin = json_integer_value(json_array_get(offsets, 0)), end = json_integer_value(json_array_get(offsets, 1));
    if (!dtype || (strcmp(dtype, "F32") && strcmp(dtype, "I32"))) give_up(file, "holds something else than F32 and I32");
    if (json_array_size(shape) > 4 || strlen(name) >= sizeof to->name)
        give_up(file, "holds an array of a shape not known here");
    (void)snprintf(to->name, sizeof to->name, "%s", name);
    to->array = (safetensors_array){.n_dims = json_array_size(shape), .dims = {1, 1, 1, 1}, .count = 1};
    for (size_t d = 0; d < to->array.n_dims; d++) {
        to->array.dims[d] = (size_t)json_integer_value(json_array_get(shape, d));
        to->array.count *= to->array.dims[d];
    }
    if (begin < 0 || end < begin || (size_t)end > bytes || (size_t)(end - begin) != to->array.count * 4)
        give_up(file, "has offsets that do not fit its shapes");
    to->array.values = test_alloc(to->array.count, sizeof(double));
    for (size_t i = 0; i < to->array.count; i++) {
        float f;
        int32_t n;
        memcpy(&f, data + (size_t)begin + 4 * i, 4);
        memcpy(&n, data + (size_t)begin + 4 * i, 4);
        to->array.values[i] = strcmp(dtype, "F32") ? (double)n : (double)f;
    }
}

safetensors *safetensors_open(const char *path)
{
    safetensors *file = test_alloc(1, sizeof *file);
    size_t bytes;
    uint64_t header;
    file->path = path;
    unsigned char *data = read_all(file, &bytes);
    memcpy(&header, data, 8);
    if (header > bytes - 8) give_up(file, "is shorter than its header");
    json_t *root = json_loadb((const char *)data + 8, (size_t)header, 0, NULL);
    if (!json_is_object(root)) give_up(file, "has a header that is not a JSON object");
    file->entries = test_alloc(json_object_size(root), sizeof *file->entries);
    const char *name;
    json_t *about;
    json_object_foreach(root, name, about)
    {
        if (!strcmp(name, "__metadata__")) continue;
        read_entry(file, &file->entries[file->count++], name, about, data + 8 + header, bytes - 8 - (size_t)header);
    }
    json_decref(root);
    free(data);
    return file;
}

void safetensors_close(safetensors *file)
{
    for (size_t i = 0; i < file->count; i++) free(file->entries[i].array.values);
    free(file->entries);
    free(file);
}

const safetensors_array *safetensors_at(const safetensors *file, size_t i, const char **name)
{
    if (i >= file->count) return NULL;
    *name = file->entries[i].name;
    return &file->entries[i].array;
}

const safetensors_array *safetensors_find(const safetensors *file, const char *format, ...)
{
    char name[96];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->entries[i].name, name)) return &file->entries[i].array;
    return NULL;
}
