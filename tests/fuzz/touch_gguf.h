/* touch_gguf.h: reads everything a GGUF file that opened offers, as every caller together would, and ends the program
 * where something the reader promises does not hold. For the fuzzer and for the unit tests' random files. */
#ifndef DESCENT_TESTS_TOUCH_GGUF_H
#define DESCENT_TESTS_TOUCH_GGUF_H

#include "gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void touch_require(bool holds, const char *what)
{
    if (holds) return;
    (void)fprintf(stderr, "touch_gguf: %s\n", what);
    abort();
}

/* UTF-8 without control characters, by the table of well-formed sequences in the Unicode standard (3-7). */
static void touch_text(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        unsigned char low = 0x80, high = 0xbf;
        int more = 0;
        touch_require(*c >= 0x20 && *c != 0x7f, "a control character");
        touch_require(!(c[0] == 0xc2 && c[1] < 0xa0), "a C1 control character");
        if (*c >= 0x80) {
            touch_require(*c >= 0xc2 && *c <= 0xf4, "a byte that begins no character");
            more = *c < 0xe0 ? 1 : *c < 0xf0 ? 2 : 3;
            if (*c == 0xe0) low = 0xa0;
            if (*c == 0xed) high = 0x9f;
            if (*c == 0xf0) low = 0x90;
            if (*c == 0xf4) high = 0x8f;
        }
        c++;
        for (int i = 0; i < more; i++, c++) {
            touch_require(*c >= low && *c <= high, "a broken character");
            low = 0x80;
            high = 0xbf;
        }
    }
}

static void touch_status(const descent_status *status, descent_code code)
{
    touch_require(status->code == code, "the code in the status is another");
    touch_require((status->message[0] != '\0') == (code != DESCENT_OK), "a message with success, or none with failure");
    touch_text(status->message);
}

/* A typed getter may fail, but must say so well. Returns a sum of what was read, so that reading is not optimized away. */
static uint64_t touch_typed(const gguf_file *file, const char *key)
{
    uint64_t sum = 0;
    descent_status status;
    uint32_t natural = 7;
    int32_t integer = -7;
    float real = 0;
    bool truth = false;
    gguf_string string = {NULL, 0};
    gguf_array array = {0, NULL, NULL};
    touch_status(&status, gguf_get_u32(file, key, 5, 1u << 20, &natural, &status));
    touch_require(natural >= 5 && natural <= 1u << 20, "a u32 out of range");
    touch_status(&status, gguf_get_i32(file, key, -1000, 1000, &integer, &status));
    touch_require(integer >= -1000 && integer <= 1000, "an i32 out of range");
    touch_status(&status, gguf_get_f32(file, key, &real, &status));
    touch_require(real - real == 0, "an f32 that is not finite");
    touch_status(&status, gguf_get_bool(file, key, &truth, &status));
    touch_status(&status, gguf_get_string(file, key, &string, &status));
    for (size_t i = 0; i < string.bytes; i++) sum += (unsigned char)string.text[i];
    descent_code code = gguf_get_string_array(file, key, &array, &status);
    touch_status(&status, code);
    for (size_t i = 0; i < array.count && !code; i++) {
        gguf_string element = gguf_string_at(&array, i);
        for (size_t j = 0; j < element.bytes; j++) sum += (unsigned char)element.text[j];
    }
    code = gguf_get_f32_array(file, key, &array, &status);
    touch_status(&status, code);
    for (size_t i = 0; i < array.count && !code; i++) sum += gguf_f32_at(&array, i) > 0;
    code = gguf_get_i32_array(file, key, &array, &status);
    touch_status(&status, code);
    for (size_t i = 0; i < array.count && !code; i++) sum += (uint32_t)gguf_i32_at(&array, i);
    code = gguf_get_u8_array(file, key, &array, &status);
    touch_status(&status, code);
    for (size_t i = 0; i < array.count && !code; i++) sum += array.data[i];
    return sum + natural + (uint32_t)integer + truth;
}

static uint64_t touch_gguf(const gguf_file *file)
{
    uint64_t sum = 0;
    const unsigned char *start = gguf_data(file), *end = start + gguf_bytes(file);
    for (size_t i = 0; i < gguf_metadata_count(file); i++) {
        static const size_t sizes[] = {1, 2, 4, 5, 40, 4096};
        char text[4096];
        const char *key = gguf_metadata_key(file, i);
        touch_text(key);
        touch_require(gguf_has(file, key), "a key that is there is not found");
        touch_require(strcmp(gguf_value_type_name(gguf_metadata_type(file, i)), "unknown") != 0, "a value of no type");
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            memset(text, 'x', sizeof text);
            touch_require(gguf_metadata_text(file, i, text, sizes[j]), "a value has no text");
            touch_require(memchr(text, '\0', sizes[j]) != NULL, "a text without its NUL");
            touch_text(text);
        }
        sum += touch_typed(file, key);
    }
    touch_require(!gguf_metadata_key(file, gguf_metadata_count(file)), "a key past the last");
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        const unsigned char *data = tensor->data;
        const gguf_type_info *type = gguf_type_find(tensor->type);
        touch_text(tensor->name);
        touch_require(gguf_find_tensor(file, tensor->name) == tensor, "a tensor that is there is not found");
        touch_require(type && tensor->numbers / type->block * type->block_bytes == tensor->bytes, "a tensor of the wrong size");
        touch_require(tensor->bytes && data >= start && data < end && tensor->bytes <= (uint64_t)(end - data),
                      "a tensor outside the file");
        touch_require((uintptr_t)data % 8 == 0, "a tensor that is not aligned");
        for (uint64_t j = 0; j < tensor->bytes; j++) sum += data[j];
    }
    touch_require(!gguf_tensor_at(file, gguf_tensor_count(file)), "a tensor past the last");
    return sum;
}

#endif
