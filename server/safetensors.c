/* safetensors.c: see safetensors.h. */
#include "safetensors.h"

#include "fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, HEADER_DEPTH = 4, MOST_HEADER = 16 << 20 };

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void put_pair(json_text *out, const char *key, const char *value, bool first)
{
    if (!first) json_text_put(out, ",");
    json_text_string(out, key, strlen(key));
    json_text_put(out, ":");
    json_text_string(out, value, strlen(value));
}

static void put_header(json_text *out, const safetensors_vector *vectors, size_t count, size_t width,
                       const char *const *metadata)
{
    json_text_put(out, "{\"__metadata__\":{");
    for (size_t i = 0; metadata[i]; i += 2) put_pair(out, metadata[i], metadata[i + 1], i == 0);
    json_text_put(out, "}");
    for (size_t i = 0; i < count; i++) {
        json_text_put(out, ",");
        json_text_string(out, vectors[i].name, strlen(vectors[i].name));
        json_text_put(out, ":{\"dtype\":\"F32\",\"shape\":[");
        json_text_unsigned(out, width);
        json_text_put(out, "],\"data_offsets\":[");
        json_text_unsigned(out, i * width * sizeof(float));
        json_text_put(out, ",");
        json_text_unsigned(out, (i + 1) * width * sizeof(float));
        json_text_put(out, "]}");
    }
    json_text_put(out, "}");
    while (!out->failed && out->bytes % LENGTH_BYTES != 0) json_text_put(out, " "); /* the numbers begin aligned */
}

void safetensors_write(json_text *out, const safetensors_vector *vectors, size_t count, size_t width,
                       const char *const *metadata)
{
    json_text header = {.text = NULL};
    put_header(&header, vectors, count, width, metadata);
    uint64_t length = header.bytes;
    json_text_bytes(out, (const char *)&length, sizeof length);
    if (!header.failed) json_text_bytes(out, header.text, header.bytes);
    for (size_t i = 0; i < count; i++) json_text_bytes(out, (const char *)vectors[i].values, width * sizeof(float));
    out->failed |= header.failed;
    json_text_release(&header);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static bool wrong(char message[SAFETENSORS_MESSAGE], const char *name, const char *what)
{
    char shown[FIELDS_WORDS] = "";
    size_t at = 0;
    for (size_t i = 0; name && name[i] && at + 1 < sizeof shown; i++) /* names come from outside */
        shown[at++] = name[i] >= 0x20 && name[i] < 0x7f ? name[i] : '?';
    (void)snprintf(message, SAFETENSORS_MESSAGE, name ? "tensor \"%.60s\" %s" : "%s%s", name ? shown : "", what);
    return false;
}

/* An integer of a list at most `most`. */
static bool integer_at(const json_t *list, size_t i, uint64_t most, uint64_t *value)
{
    int64_t integer;
    if (!fields_as_integer(json_array_get(list, i), 0, INT64_MAX, &integer) || (uint64_t)integer > most) return false;
    *value = (uint64_t)integer;
    return true;
}

static bool printable(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        if (name[i] < 0x20 || name[i] >= 0x7f) return false;
    return length > 0 && length < SAFETENSORS_NAME;
}

/* Where the numbers of a tensor are, of `size` bytes. */
static bool check_tensor(const char *name, const json_t *tensor, size_t width, size_t size, size_t *begin,
                         char message[SAFETENSORS_MESSAGE])
{
    uint64_t from, to, count;
    const json_t *shape = json_object_get(tensor, "shape"), *offsets = json_object_get(tensor, "data_offsets");
    const char *type = json_string_value(json_object_get(tensor, "dtype"));
    char expected[96];
    if (!printable(name)) return wrong(message, name, "has a name that is not 1 to 95 printable characters");
    if (!type || strcmp(type, "F32") != 0) return wrong(message, name, "is not of dtype F32");
    (void)snprintf(expected, sizeof expected, "has another shape than [%zu], the model's width", width);
    if (json_array_size(shape) != 1 || !integer_at(shape, 0, width, &count) || count != width)
        return wrong(message, name, expected);
    if (json_array_size(offsets) != 2 || !integer_at(offsets, 0, size, &from) || !integer_at(offsets, 1, size, &to) ||
        from > to || to - from != width * sizeof(float))
        return wrong(message, name, "has data_offsets that are not its numbers' place in the file");
    *begin = (size_t)from;
    return true;
}

static bool take_tensors(const json_t *header, const unsigned char *data, size_t size, size_t width,
                         safetensors_vector **vectors, size_t *count, char message[SAFETENSORS_MESSAGE])
{
    const char *name;
    json_t *tensor;
    size_t n = json_object_size(header) - (json_object_get(header, "__metadata__") != NULL), i = 0;
    if (n > size / (width * sizeof(float)) || n * width * sizeof(float) != size)
        return wrong(message, NULL, "its tensors are not of the size of its data");
    safetensors_vector *made = malloc((n ? n : 1) * sizeof *made + n * width * sizeof(float));
    if (!made) return wrong(message, NULL, "there is no memory for it");
    float *values = (float *)(void *)(made + n);
    json_object_foreach((json_t *)(uintptr_t)header, name, tensor)
    {
        if (!strcmp(name, "__metadata__")) continue;
        size_t begin = 0;
        if (!check_tensor(name, tensor, width, size, &begin, message)) {
            free(made);
            return false;
        }
        (void)snprintf(made[i].name, sizeof made[i].name, "%s", name);
        memcpy(values, data + begin, width * sizeof *values);
        made[i++].values = values;
        values += width;
    }
    *vectors = made;
    *count = n;
    return true;
}

bool safetensors_read(const unsigned char *bytes, size_t size, size_t width, safetensors_vector **vectors, size_t *count,
                      char message[SAFETENSORS_MESSAGE])
{
    uint64_t length = 0;
    api_error error = {0};
    *vectors = NULL;
    *count = 0;
    if (size < LENGTH_BYTES) return wrong(message, NULL, "it is shorter than the 8 bytes that say how long its header is");
    memcpy(&length, bytes, sizeof length);
    if (length > size - LENGTH_BYTES || length > MOST_HEADER)
        return wrong(message, NULL, "its header is longer than it, or than 16 MiB");
    const unsigned char *data = bytes + LENGTH_BYTES + (size_t)length;
    json_t *header = fields_parse((const char *)bytes + LENGTH_BYTES, (size_t)length, HEADER_DEPTH, &error);
    if (!header) return wrong(message, NULL, "its header is no JSON object");
    bool fine = take_tensors(header, data, size - LENGTH_BYTES - (size_t)length, width, vectors, count, message);
    json_decref(header);
    return fine;
}

/* ---- Base64 ------------------------------------------------------------------------------------------------------ */

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t length, unsigned char **bytes, size_t *size)
{
    bool padded = length > 0 && length % 4 == 0;
    *bytes = NULL;
    *size = 0;
    for (int i = 0; i < 2 && padded && text[length - 1] == '='; i++) length--;
    unsigned char *out = length % 4 == 1 ? NULL : malloc(length / 4 * 3 + 3);
    if (!out) return false;
    uint32_t bits = 0;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        int value = digit(text[i]);
        if (value < 0) {
            free(out);
            return false;
        }
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 == 1) out[n++] = (unsigned char)(bits >> 4);
        if (i % 4 == 2) out[n++] = (unsigned char)(bits >> 2);
        if (i % 4 == 3) out[n++] = (unsigned char)bits;
    }
    *bytes = out;
    *size = n;
    return true;
}
