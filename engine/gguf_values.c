/* gguf_values.c: reading metadata values as the type a caller needs. gguf.c has checked that every value lies in the
 * file; here the question is whether it is what was asked for, and if not, a message that says what it is instead.
 * Called by the families' loaders and the tokenizers. */
#include "gguf_internal.h"
#include "status.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

size_t gguf_metadata_count(const gguf_file *file)
{
    return file->n_entries;
}

const char *gguf_metadata_key(const gguf_file *file, size_t i)
{
    return i < file->n_entries ? file->entries[i].key : NULL;
}

gguf_value_type gguf_metadata_type(const gguf_file *file, size_t i)
{
    return (gguf_value_type)file->entries[i].type;
}

gguf_string gguf_metadata_bytes(const gguf_file *file, size_t i)
{
    const gguf_entry *entry = &file->entries[i];
    return (gguf_string){(const char *)entry->whole, (size_t)entry->whole_bytes};
}

bool gguf_has(const gguf_file *file, const char *key)
{
    return gguf_find_entry(file, key) != NULL;
}

/* The error for a value (entry NULL: no value) that is not `expected`. */
static descent_code wrong(const gguf_file *file, const char *key, const gguf_entry *entry, const char *expected,
                          descent_status *status)
{
    if (!entry) return descent_fail(status, DESCENT_BAD_FILE, "key %.96s is missing, expected %s", key, expected);
    char text[96];
    (void)gguf_metadata_text(file, (size_t)(entry - file->entries), text, sizeof text);
    const char *type = entry->type == GGUF_VALUE_ARRAY ? "array" : gguf_value_type_name(entry->type);
    return descent_fail(status, DESCENT_BAD_FILE, "key %.96s: found %s %s, expected %s", key, type, text, expected);
}

/* The value as an integer. False where it is of another type or a u64 past INT64_MAX, which no caller's range reaches. */
static bool read_integer(const gguf_entry *entry, int64_t *value)
{
    const unsigned char *data = entry->data;
    uint16_t half;
    uint64_t wide;
    switch (entry->type) {
    case GGUF_VALUE_U8:
        *value = data[0];
        return true;
    case GGUF_VALUE_I8:
        *value = (int64_t)data[0] - (data[0] > INT8_MAX ? 256 : 0);
        return true;
    case GGUF_VALUE_U16:
        memcpy(&half, data, sizeof half);
        *value = half;
        return true;
    case GGUF_VALUE_I16:
        memcpy(&half, data, sizeof half);
        *value = (int16_t)half;
        return true;
    case GGUF_VALUE_U32:
        *value = gguf_read_u32(data);
        return true;
    case GGUF_VALUE_I32:
        *value = (int32_t)gguf_read_u32(data);
        return true;
    case GGUF_VALUE_I64:
        *value = (int64_t)gguf_read_u64(data);
        return true;
    case GGUF_VALUE_U64:
        wide = gguf_read_u64(data);
        *value = (int64_t)(wide & INT64_MAX);
        return wide <= INT64_MAX;
    default:
        return false;
    }
}

static descent_code get_integer(const gguf_file *file, const char *key, int64_t min, int64_t max, int64_t *value,
                                descent_status *status)
{
    const gguf_entry *entry = gguf_find_entry(file, key);
    int64_t found = 0;
    if (!entry || !read_integer(entry, &found) || found < min || found > max) {
        char expected[80];
        (void)snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min, (long long)max);
        return wrong(file, key, entry, expected, status);
    }
    *value = found;
    return descent_ok(status);
}

descent_code gguf_get_u32(const gguf_file *file, const char *key, uint32_t min, uint32_t max, uint32_t *value,
                          descent_status *status)
{
    int64_t found = 0;
    descent_code code = get_integer(file, key, min, max, &found, status);
    if (!code) *value = (uint32_t)found;
    return code;
}

descent_code gguf_get_i32(const gguf_file *file, const char *key, int32_t min, int32_t max, int32_t *value,
                          descent_status *status)
{
    int64_t found = 0;
    descent_code code = get_integer(file, key, min, max, &found, status);
    if (!code) *value = (int32_t)found;
    return code;
}

descent_code gguf_get_f32(const gguf_file *file, const char *key, float *value, descent_status *status)
{
    const gguf_entry *entry = gguf_find_entry(file, key);
    double found = (double)NAN;
    if (entry && entry->type == GGUF_VALUE_F32) {
        float single;
        memcpy(&single, entry->data, sizeof single);
        found = (double)single;
    } else if (entry && entry->type == GGUF_VALUE_F64) {
        memcpy(&found, entry->data, sizeof found);
    }
    if (!(fabs(found) <= (double)FLT_MAX)) return wrong(file, key, entry, "a finite f32", status);
    *value = (float)found;
    return descent_ok(status);
}

descent_code gguf_get_bool(const gguf_file *file, const char *key, bool *value, descent_status *status)
{
    const gguf_entry *entry = gguf_find_entry(file, key);
    if (!entry || entry->type != GGUF_VALUE_BOOL) return wrong(file, key, entry, "a bool", status);
    *value = entry->data[0] != 0;
    return descent_ok(status);
}

descent_code gguf_get_string(const gguf_file *file, const char *key, gguf_string *value, descent_status *status)
{
    const gguf_entry *entry = gguf_find_entry(file, key);
    if (!entry || entry->type != GGUF_VALUE_STRING) return wrong(file, key, entry, "a string", status);
    for (uint64_t i = 0; i < entry->count;) {
        size_t length = gguf_utf8_length(entry->data + i, entry->count - i);
        if (!length || !entry->data[i]) return wrong(file, key, entry, "a string that is UTF-8 without NUL", status);
        i += length;
    }
    *value = (gguf_string){(const char *)entry->data, (size_t)entry->count};
    return descent_ok(status);
}

bool gguf_string_is(gguf_string string, const char *text)
{
    return string.bytes == strlen(text) && memcmp(string.text, text, string.bytes) == 0;
}

static descent_code get_array(const gguf_file *file, const char *key, uint32_t type, uint32_t or_type, const char *expected,
                              gguf_array *array, descent_status *status)
{
    const gguf_entry *entry = gguf_find_entry(file, key);
    if (!entry || entry->type != GGUF_VALUE_ARRAY || (entry->element != type && entry->element != or_type))
        return wrong(file, key, entry, expected, status);
    *array = (gguf_array){(size_t)entry->count, entry->data, entry->ends};
    return descent_ok(status);
}

descent_code gguf_get_string_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status)
{
    return get_array(file, key, GGUF_VALUE_STRING, GGUF_VALUE_STRING, "an array of strings", array, status);
}

descent_code gguf_get_f32_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status)
{
    return get_array(file, key, GGUF_VALUE_F32, GGUF_VALUE_F32, "an array of f32", array, status);
}

descent_code gguf_get_i32_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status)
{
    gguf_array found = {0, NULL, NULL};
    descent_code code = get_array(file, key, GGUF_VALUE_I32, GGUF_VALUE_U32, "an array of i32", &found, status);
    if (code) return code;
    const gguf_entry *entry = gguf_find_entry(file, key);
    for (size_t i = 0; i < found.count && entry->element == GGUF_VALUE_U32; i++)
        if (gguf_read_u32(found.data + 4 * i) > INT32_MAX)
            return wrong(file, key, entry, "an array of i32: one of its numbers is larger", status);
    *array = found;
    return code;
}

descent_code gguf_get_u8_array(const gguf_file *file, const char *key, gguf_array *array, descent_status *status)
{
    return get_array(file, key, GGUF_VALUE_U8, GGUF_VALUE_I8, "an array of u8", array, status);
}

gguf_string gguf_string_at(const gguf_array *array, size_t i)
{
    uint64_t start = (i ? array->ends[i - 1] : 0) + 8;
    return (gguf_string){(const char *)array->data + start, (size_t)(array->ends[i] - start)};
}

float gguf_f32_at(const gguf_array *array, size_t i)
{
    float value;
    memcpy(&value, array->data + 4 * i, sizeof value);
    return value;
}

int32_t gguf_i32_at(const gguf_array *array, size_t i)
{
    return (int32_t)gguf_read_u32(array->data + 4 * i);
}
