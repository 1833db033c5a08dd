/* gguf_text.c: metadata values as one printable line, for `descent info` and for messages. Whatever bytes a file holds,
 * what comes out is valid UTF-8 without control characters. Values were checked by gguf.c, so walking them needs no
 * more checks. Called by model.c and gguf_values.c. */
#include "gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_ELEMENTS 8

/* A line being written. It grows by units that are never cut: a character, an escape, a number. */
typedef struct line {
    char *text;
    size_t size, at;
    size_t safe; /* the last end of a unit that leaves room for "..." */
    bool full;
} line;

static void put(line *out, const char *unit, size_t bytes)
{
    if (out->full) return;
    if (bytes >= out->size - out->at) {
        out->full = true;
        out->at = out->safe;
        while (out->at < out->size - 1 && out->at < out->safe + 3) out->text[out->at++] = '.';
    } else {
        memcpy(out->text + out->at, unit, bytes);
        out->at += bytes;
        if (out->at + 3 < out->size) out->safe = out->at;
    }
    out->text[out->at] = '\0';
}

static void put_string(line *out, const unsigned char *text, uint64_t bytes, bool quoted)
{
    if (quoted) put(out, "\"", 1);
    for (uint64_t i = 0; i < bytes && !out->full;) {
        size_t length = gguf_utf8_length(text + i, bytes - i);
        char escape[20];
        if (length && !gguf_is_control(text + i, length) && text[i] != '\\' && !(quoted && text[i] == '"')) {
            put(out, (const char *)text + i, length);
        } else if (text[i] == '\n' || text[i] == '\t' || text[i] == '\r' || text[i] == '\\' || (quoted && text[i] == '"')) {
            escape[0] = '\\';
            escape[1] = (char)(text[i] == '\n' ? 'n' : text[i] == '\t' ? 't' : text[i] == '\r' ? 'r' : text[i]);
            put(out, escape, 2);
        } else {
            /* A C1 control is two bytes: escape each, as one that is no character is escaped alone. */
            if (!length) length = 1;
            int written = 0;
            for (size_t j = 0; j < length; j++)
                written += snprintf(escape + written, sizeof escape - (size_t)written, "\\x%02x", (unsigned)text[i + j]);
            put(out, escape, (size_t)written);
        }
        i += length;
    }
    if (quoted) put(out, "\"", 1);
}

/* The shortest decimal that reads back as the same number. */
static void put_real(line *out, double value, bool single)
{
    char text[40];
    for (int digits = single ? 6 : 15; digits <= (single ? 9 : 17); digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) break;
    }
    put(out, text, strlen(text));
}

static void put_number(line *out, uint32_t type, const unsigned char *data)
{
    char text[32];
    uint16_t half;
    float single;
    double real;
    switch (type) {
    case GGUF_VALUE_F32:
        memcpy(&single, data, sizeof single);
        put_real(out, (double)single, true);
        return;
    case GGUF_VALUE_F64:
        memcpy(&real, data, sizeof real);
        put_real(out, real, false);
        return;
    case GGUF_VALUE_BOOL:
        (void)snprintf(text, sizeof text, "%s", data[0] ? "true" : "false");
        break;
    case GGUF_VALUE_U8:
        (void)snprintf(text, sizeof text, "%u", (unsigned)data[0]);
        break;
    case GGUF_VALUE_I8:
        (void)snprintf(text, sizeof text, "%d", (int)(int8_t)data[0]);
        break;
    case GGUF_VALUE_U16:
        memcpy(&half, data, sizeof half);
        (void)snprintf(text, sizeof text, "%u", (unsigned)half);
        break;
    case GGUF_VALUE_I16:
        memcpy(&half, data, sizeof half);
        (void)snprintf(text, sizeof text, "%d", (int)(int16_t)half);
        break;
    case GGUF_VALUE_U32:
        (void)snprintf(text, sizeof text, "%" PRIu32, gguf_read_u32(data));
        break;
    case GGUF_VALUE_I32:
        (void)snprintf(text, sizeof text, "%" PRId32, (int32_t)gguf_read_u32(data));
        break;
    case GGUF_VALUE_U64:
        (void)snprintf(text, sizeof text, "%" PRIu64, gguf_read_u64(data));
        break;
    default:
        (void)snprintf(text, sizeof text, "%" PRId64, (int64_t)gguf_read_u64(data));
        break;
    }
    put(out, text, strlen(text));
}

static void put_shape(line *out, uint32_t element, uint64_t count)
{
    char text[48];
    (void)snprintf(text, sizeof text, "%s[%" PRIu64 "]", gguf_value_type_name(element), count);
    put(out, text, strlen(text));
}

/* Bytes of the elements of an array. */
static uint64_t elements_bytes(uint32_t element, uint64_t count, const unsigned char *data)
{
    if (gguf_value_bytes(element)) return count * gguf_value_bytes(element);
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count; i++) {
        const unsigned char *at = data + bytes;
        if (element == GGUF_VALUE_STRING)
            bytes += 8 + gguf_read_u64(at);
        else
            bytes += 12 + elements_bytes(gguf_read_u32(at), gguf_read_u64(at + 4), at + 12);
    }
    return bytes;
}

/* The first elements; of an array inside the array only its type and count. */
static void put_array(line *out, const gguf_entry *entry)
{
    put_shape(out, entry->element, entry->count);
    put(out, " [", 2);
    const unsigned char *at = entry->data;
    for (uint64_t i = 0; i < entry->count && i < SHOWN_ELEMENTS && !out->full; i++) {
        if (i) put(out, ", ", 2);
        if (entry->element == GGUF_VALUE_STRING) {
            uint64_t bytes = gguf_read_u64(at);
            put_string(out, at + 8, bytes, true);
            at += 8 + bytes;
        } else if (entry->element == GGUF_VALUE_ARRAY) {
            uint32_t element = gguf_read_u32(at);
            uint64_t count = gguf_read_u64(at + 4);
            put_shape(out, element, count);
            at += 12 + elements_bytes(element, count, at + 12);
        } else {
            put_number(out, entry->element, at);
            at += gguf_value_bytes(entry->element);
        }
    }
    if (entry->count > SHOWN_ELEMENTS) put(out, ", ...", 5);
    put(out, "]", 1);
}

bool gguf_metadata_text(const gguf_file *file, size_t i, char *text, size_t size)
{
    if (i >= file->n_entries || !size) return false;
    const gguf_entry *entry = &file->entries[i];
    line out = {.text = text, .size = size};
    text[0] = '\0';
    if (entry->type == GGUF_VALUE_ARRAY)
        put_array(&out, entry);
    else if (entry->type == GGUF_VALUE_STRING)
        put_string(&out, entry->data, entry->count, false);
    else
        put_number(&out, entry->type, entry->data);
    return true;
}
