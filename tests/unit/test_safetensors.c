/* test_safetensors.c: files of states. What is written is read as the same, as other readers' files are laid out; whatever is
 * wrong is said; base64 as RFC 4648 has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

enum { WIDTH = 2 };

static void what_is_written_is_read(void **state)
{
    static const float numbers[3][WIDTH] = {{1, -2}, {0.5f, 3e38f}, {0, -0.0f}};
    static const safetensors_vector vectors[3] = {
        {"x.0.0.block.1", numbers[0]}, {"g.10.0.block.0", numbers[1]}, {"a \"b\"", numbers[2]}};
    static const char *const metadata[] = {"format", "descent.states", "tokens", "1,2", NULL};
    char message[SAFETENSORS_MESSAGE];
    safetensors_vector *read;
    size_t count;
    json_text out = {.text = NULL};
    (void)state;
    safetensors_write(&out, vectors, 3, WIDTH, metadata);
    assert_false(out.failed);
    uint64_t length;
    memcpy(&length, out.text, sizeof length);
    assert_int_equal(length % 8, 0);
    assert_int_equal(out.bytes, 8 + length + sizeof numbers);
    assert_memory_equal(out.text + 8, "{\"__metadata__\":{\"format\":\"descent.states\",\"tokens\":\"1,2\"}", 56);
    assert_memory_equal(out.text + 8 + length, numbers, sizeof numbers);
    assert_true(safetensors_read((unsigned char *)out.text, out.bytes, WIDTH, &read, &count, message));
    assert_int_equal(count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(read[i].name, vectors[i].name);
        assert_memory_equal(read[i].values, vectors[i].values, sizeof numbers[0]);
    }
    free(read);
    json_text_release(&out);
}

/* A file of that header and so many bytes of numbers. */
static bool refused(const char *header, size_t data, const char *words)
{
    char message[SAFETENSORS_MESSAGE] = "";
    safetensors_vector *read = NULL;
    size_t count, size = 8 + strlen(header) + data;
    uint64_t length = strlen(header);
    unsigned char *file = calloc(size, 1);
    assert_non_null(file);
    memcpy(file, &length, sizeof length);
    memcpy(file + 8, header, strlen(header));
    bool fine = safetensors_read(file, size, WIDTH, &read, &count, message);
    free(file);
    free(read);
    if (!fine && strstr(message, words)) return true;
    printf("%s: %s\n", header, fine ? "taken" : message);
    return false;
}

static void what_is_wrong_is_said(void **state)
{
    char message[SAFETENSORS_MESSAGE];
    safetensors_vector *read;
    size_t count;
    (void)state;
    assert_false(safetensors_read((const unsigned char *)"\1\0\0\0\0\0\0", 7, WIDTH, &read, &count, message));
    assert_non_null(strstr(message, "shorter than the 8 bytes"));
    assert_false(safetensors_read((const unsigned char *)"\1\0\0\0\0\0\0\0", 8, WIDTH, &read, &count, message));
    assert_non_null(strstr(message, "longer than it"));
    assert_false(
        safetensors_read((const unsigned char *)"\377\377\377\377\377\377\377\377{}", 10, WIDTH, &read, &count, message));
    assert_true(refused("[]", 0, "no JSON object"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{}}", 8, "no JSON object"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "size of its data"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 16, "size of its data"));
    assert_true(
        refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "tensor \"a\" is not of dtype F32"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}", 8, "shape than [2]"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "shape than [2]"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 8, "data_offsets"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "data_offsets"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 8, "data_offsets"));
    assert_true(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "data_offsets"));
    assert_true(refused("{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "printable"));
    assert_true(refused("{\"\\n\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "printable"));
    assert_true(refused("{\"a\":7}", 8, "dtype"));
}

static void base64_is_read(void **state)
{
    static const struct {
        const char *text, *bytes; /* NULL: none */
    } cases[] = {{"", ""},       {"Zg==", "f"},   {"Zg", "f"},          {"Zm8=", "fo"},
                 {"Zm8", "fo"},  {"Zm9v", "foo"}, {"Zm9vYg==", "foob"}, {"+/+/", "\xfb\xff\xbf"},
                 {"Z", NULL},    {"Zm9vY", NULL}, {"Zm 9v", NULL},      {"Zm9=v", NULL},
                 {"Z===", NULL}, {"-_-_", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *bytes;
        size_t size;
        bool fine = base64_decode(cases[i].text, strlen(cases[i].text), &bytes, &size);
        assert_int_equal(fine, cases[i].bytes != NULL);
        if (!fine) continue;
        assert_int_equal(size, strlen(cases[i].bytes));
        assert_memory_equal(bytes, cases[i].bytes, size);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_is_read), cmocka_unit_test(what_is_wrong_is_said),
                                       cmocka_unit_test(base64_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
