/* test_gguf_values.c: metadata values as the type a caller asks for, the messages when they are not, and values as text.
 * Expected texts are written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf.h"
#include "gguf_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A writer being filled, then the file made of it. */
typedef struct made {
    uint8_t *bytes;
    gguf_file *file;
} made;

static made make(gguf_writer *writer)
{
    made all;
    size_t size;
    descent_status status;
    all.bytes = gguf_writer_build(writer, &size);
    gguf_writer_destroy(writer);
    if (gguf_open_memory(all.bytes, size, &all.file, &status)) fail_msg("%s", status.message);
    return all;
}

static void unmake(made all)
{
    gguf_close(all.file);
    free(all.bytes);
}

static void expect_failure(descent_code found, const descent_status *status, const char *message)
{
    assert_int_equal(found, DESCENT_BAD_FILE);
    assert_int_equal(status->code, DESCENT_BAD_FILE);
    assert_string_equal(status->message, message);
}

/* One key of every type. */
static gguf_writer *every_type(void)
{
    const uint16_t u16 = 65535;
    const int16_t i16 = -32768;
    const int8_t i8 = -128;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_u8(writer, "u8", 255);
    gguf_writer_raw(writer, "i8", GGUF_VALUE_I8, &i8, 1);
    gguf_writer_raw(writer, "u16", GGUF_VALUE_U16, &u16, 2);
    gguf_writer_raw(writer, "i16", GGUF_VALUE_I16, &i16, 2);
    gguf_writer_u32(writer, "u32", 4294967295u);
    gguf_writer_i32(writer, "i32", INT32_MIN);
    gguf_writer_u64(writer, "u64", 65536);
    gguf_writer_i64(writer, "i64", -65536);
    gguf_writer_f32(writer, "f32", 0.1f);
    gguf_writer_f64(writer, "f64", 0.1);
    gguf_writer_bool(writer, "bool", true);
    gguf_writer_string(writer, "string", "caf\xc3\xa9");
    gguf_writer_i32s(writer, "array", (const int32_t[]){1, -2}, 2);
    return writer;
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------ */

static void integers_of_any_type(void **state)
{
    (void)state;
    made all = make(every_type());
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"u8", 255},         {"i8", -128},       {"u16", 65535}, {"i16", -32768},
                    {"u32", 4294967295}, {"i32", INT32_MIN}, {"u64", 65536}, {"i64", -65536}};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        uint32_t natural = 77;
        int32_t integer = 77;
        bool fits_u32 = integers[i].value >= 0, fits_i32 = integers[i].value <= INT32_MAX;
        descent_status status;
        descent_code code = gguf_get_u32(all.file, integers[i].key, 0, UINT32_MAX, &natural, &status);
        assert_int_equal(code, fits_u32 ? DESCENT_OK : DESCENT_BAD_FILE);
        assert_int_equal(natural, fits_u32 ? (uint32_t)integers[i].value : 77);
        assert_int_equal(status.code, code);
        code = gguf_get_i32(all.file, integers[i].key, INT32_MIN, INT32_MAX, &integer, &status);
        assert_int_equal(code, fits_i32 ? DESCENT_OK : DESCENT_BAD_FILE);
        assert_int_equal(integer, fits_i32 ? (int32_t)integers[i].value : 77);
    }
    unmake(all);
}

static void integers_out_of_range(void **state)
{
    (void)state;
    gguf_writer *writer = every_type();
    gguf_writer_u64(writer, "huge", UINT64_MAX);
    gguf_writer_u64(writer, "wraps", ((uint64_t)1 << 63) + 5);
    made all = make(writer);
    uint32_t natural = 77;
    int32_t integer = 77;
    descent_status status;
    assert_int_equal(gguf_get_u32(all.file, "u8", 255, 255, &natural, &status), DESCENT_OK);
    expect_failure(gguf_get_u32(all.file, "u8", 0, 254, &natural, &status), &status,
                   "key u8: found u8 255, expected an integer from 0 to 254");
    expect_failure(gguf_get_u32(all.file, "u8", 256, 300, &natural, &status), &status,
                   "key u8: found u8 255, expected an integer from 256 to 300");
    expect_failure(gguf_get_i32(all.file, "i32", -5, 5, &integer, &status), &status,
                   "key i32: found i32 -2147483648, expected an integer from -5 to 5");
    expect_failure(gguf_get_u32(all.file, "huge", 0, UINT32_MAX, &natural, &status), &status,
                   "key huge: found u64 18446744073709551615, expected an integer from 0 to 4294967295");
    expect_failure(gguf_get_u32(all.file, "wraps", 0, 10, &natural, &status), &status,
                   "key wraps: found u64 9223372036854775813, expected an integer from 0 to 10");
    expect_failure(gguf_get_i32(all.file, "wraps", 0, 10, &integer, &status), &status,
                   "key wraps: found u64 9223372036854775813, expected an integer from 0 to 10");
    assert_int_equal(natural, 255);
    assert_int_equal(integer, 77);
    unmake(all);
}

static void reals_are_finite(void **state)
{
    (void)state;
    gguf_writer *writer = every_type();
    gguf_writer_f32(writer, "nan", NAN);
    gguf_writer_f32(writer, "inf", -INFINITY);
    gguf_writer_f64(writer, "nan64", (double)NAN);
    gguf_writer_f64(writer, "wide", 1e39);
    made all = make(writer);
    float value = 0;
    descent_status status;
    assert_int_equal(gguf_get_f32(all.file, "f32", &value, &status), DESCENT_OK);
    assert_true(value == 0.1f);
    value = 0;
    assert_int_equal(gguf_get_f32(all.file, "f64", &value, &status), DESCENT_OK);
    assert_true(value == 0.1f);
    expect_failure(gguf_get_f32(all.file, "nan", &value, &status), &status, "key nan: found f32 nan, expected a finite f32");
    expect_failure(gguf_get_f32(all.file, "inf", &value, &status), &status, "key inf: found f32 -inf, expected a finite f32");
    expect_failure(gguf_get_f32(all.file, "nan64", &value, &status), &status,
                   "key nan64: found f64 nan, expected a finite f32");
    expect_failure(gguf_get_f32(all.file, "wide", &value, &status), &status,
                   "key wide: found f64 1e+39, expected a finite f32");
    expect_failure(gguf_get_f32(all.file, "u32", &value, &status), &status,
                   "key u32: found u32 4294967295, expected a finite f32");
    assert_true(value == 0.1f);
    unmake(all);
}

/* ---- Every getter on what is not its type ------------------------------------------------------------------------- */

static descent_code get_as(const gguf_file *file, const char *getter, const char *key, descent_status *status)
{
    uint32_t natural;
    int32_t integer;
    float real;
    bool truth;
    gguf_string string;
    gguf_array array;
    if (!strcmp(getter, "u32")) return gguf_get_u32(file, key, 0, UINT32_MAX, &natural, status);
    if (!strcmp(getter, "i32")) return gguf_get_i32(file, key, INT32_MIN, INT32_MAX, &integer, status);
    if (!strcmp(getter, "f32")) return gguf_get_f32(file, key, &real, status);
    if (!strcmp(getter, "bool")) return gguf_get_bool(file, key, &truth, status);
    if (!strcmp(getter, "string")) return gguf_get_string(file, key, &string, status);
    if (!strcmp(getter, "strings")) return gguf_get_string_array(file, key, &array, status);
    if (!strcmp(getter, "f32s")) return gguf_get_f32_array(file, key, &array, status);
    if (!strcmp(getter, "i32s")) return gguf_get_i32_array(file, key, &array, status);
    return gguf_get_u8_array(file, key, &array, status);
}

static void getters_say_what_they_found(void **state)
{
    (void)state;
    static const struct {
        const char *getter, *expected;
    } getters[] = {{"u32", "an integer from 0 to 4294967295"},
                   {"i32", "an integer from -2147483648 to 2147483647"},
                   {"f32", "a finite f32"},
                   {"bool", "a bool"},
                   {"string", "a string"},
                   {"strings", "an array of strings"},
                   {"f32s", "an array of f32"},
                   {"i32s", "an array of i32"},
                   {"u8s", "an array of u8"}};
    static const struct {
        const char *key, *found, *works_as;
    } keys[] = {{"bool", "bool true", "bool"},
                {"string", "string caf\xc3\xa9", "string"},
                {"array", "array i32[2] [1, -2]", "i32s"},
                {"i8", "i8 -128", "i32"}};
    made all = make(every_type());
    for (size_t i = 0; i < sizeof getters / sizeof getters[0]; i++) {
        char message[256];
        descent_status status;
        for (size_t j = 0; j < sizeof keys / sizeof keys[0]; j++) {
            descent_code code = get_as(all.file, getters[i].getter, keys[j].key, &status);
            if (strcmp(getters[i].getter, keys[j].works_as) == 0) {
                assert_int_equal(code, DESCENT_OK);
                assert_string_equal(status.message, "");
                continue;
            }
            (void)snprintf(message, sizeof message, "key %s: found %s, expected %s", keys[j].key, keys[j].found,
                           getters[i].expected);
            expect_failure(code, &status, message);
        }
        (void)snprintf(message, sizeof message, "key none is missing, expected %s", getters[i].expected);
        expect_failure(get_as(all.file, getters[i].getter, "none", &status), &status, message);
        assert_int_equal(get_as(all.file, getters[i].getter, "none", NULL), DESCENT_BAD_FILE);
    }
    assert_true(gguf_has(all.file, "bool"));
    assert_false(gguf_has(all.file, "none"));
    bool truth = false;
    assert_int_equal(gguf_get_bool(all.file, "bool", &truth, NULL), DESCENT_OK);
    assert_true(truth);
    unmake(all);
}

/* ---- Strings and arrays ------------------------------------------------------------------------------------------- */

static void strings_hold_no_nul(void **state)
{
    (void)state;
    gguf_writer *writer = every_type();
    gguf_writer_string_bytes(writer, "nul", "a\0b", 3);
    gguf_writer_string_bytes(writer, "broken", "a\xff", 2);
    gguf_writer_string(writer, "empty", "");
    made all = make(writer);
    gguf_string value = {NULL, 9};
    descent_status status;
    assert_int_equal(gguf_get_string(all.file, "string", &value, &status), DESCENT_OK);
    assert_int_equal(value.bytes, 5);
    assert_true(gguf_string_is(value, "caf\xc3\xa9"));
    assert_false(gguf_string_is(value, "caf\xc3\xa8"));
    assert_false(gguf_string_is(value, "caf"));
    expect_failure(gguf_get_string(all.file, "nul", &value, &status), &status,
                   "key nul: found string a\\x00b, expected a string that is UTF-8 without NUL");
    expect_failure(gguf_get_string(all.file, "broken", &value, &status), &status,
                   "key broken: found string a\\xff, expected a string that is UTF-8 without NUL");
    assert_int_equal(value.bytes, 5);
    assert_int_equal(gguf_get_string(all.file, "empty", &value, &status), DESCENT_OK);
    assert_int_equal(value.bytes, 0);
    assert_true(gguf_string_is(value, ""));
    unmake(all);
}

static void arrays_element_by_element(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "", "x\0y", "\xff"};
    static const size_t lengths[] = {1, 0, 3, 1};
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_u8(writer, "odd", 0); /* what follows is unaligned */
    gguf_writer_strings_bytes(writer, "tokens", tokens, lengths, 4);
    gguf_writer_strings(writer, "more", (const char *const[]){"second array"}, 1);
    gguf_writer_f32s(writer, "scores", (const float[]){1.5f, -INFINITY}, 2);
    gguf_writer_i32s(writer, "types", (const int32_t[]){INT32_MIN, 6}, 2);
    gguf_writer_u8s(writer, "map", (const uint8_t[]){0, 255}, 2);
    gguf_writer_strings(writer, "none", NULL, 0);
    made all = make(writer);
    gguf_array array;
    assert_int_equal(gguf_get_string_array(all.file, "tokens", &array, NULL), DESCENT_OK);
    assert_int_equal(array.count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(gguf_string_at(&array, i).bytes, lengths[i]);
        assert_memory_equal(gguf_string_at(&array, i).text, tokens[i], lengths[i]);
    }
    assert_int_equal(gguf_get_string_array(all.file, "more", &array, NULL), DESCENT_OK);
    assert_int_equal(array.count, 1);
    assert_true(gguf_string_is(gguf_string_at(&array, 0), "second array"));
    assert_int_equal(gguf_get_string_array(all.file, "none", &array, NULL), DESCENT_OK);
    assert_int_equal(array.count, 0);
    assert_int_equal(gguf_get_f32_array(all.file, "scores", &array, NULL), DESCENT_OK);
    assert_int_equal(array.count, 2);
    assert_true(gguf_f32_at(&array, 0) == 1.5f && isinf(gguf_f32_at(&array, 1)));
    assert_int_equal(gguf_get_i32_array(all.file, "types", &array, NULL), DESCENT_OK);
    assert_int_equal(array.count, 2);
    assert_int_equal(gguf_i32_at(&array, 0), INT32_MIN);
    assert_int_equal(gguf_i32_at(&array, 1), 6);
    assert_int_equal(gguf_get_u8_array(all.file, "map", &array, NULL), DESCENT_OK);
    assert_int_equal(array.count, 2);
    assert_int_equal(array.data[1], 255);
    unmake(all);
}

static void raw_array(gguf_writer *writer, const char *key, uint32_t type, uint64_t count, const void *data, size_t bytes)
{
    uint8_t value[128];
    memcpy(value, &type, 4);
    memcpy(value + 4, &count, 8);
    memcpy(value + 12, data, bytes);
    gguf_writer_raw(writer, key, GGUF_VALUE_ARRAY, value, 12 + bytes);
}

static void arrays_of_the_other_sign(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create();
    raw_array(writer, "fits", GGUF_VALUE_U32, 2, (const uint32_t[]){1, INT32_MAX}, 8);
    raw_array(writer, "large", GGUF_VALUE_U32, 2, (const uint32_t[]){1, 2147483648u}, 8);
    raw_array(writer, "bytes", GGUF_VALUE_I8, 2, (const int8_t[]){1, -1}, 2);
    made all = make(writer);
    gguf_array array = {0, NULL, NULL};
    descent_status status;
    assert_int_equal(gguf_get_i32_array(all.file, "fits", &array, &status), DESCENT_OK);
    assert_int_equal(gguf_i32_at(&array, 1), INT32_MAX);
    expect_failure(gguf_get_i32_array(all.file, "large", &array, &status), &status,
                   "key large: found array u32[2] [1, 2147483648], expected an array of i32: one of its numbers is larger");
    assert_int_equal(gguf_get_u8_array(all.file, "bytes", &array, &status), DESCENT_OK);
    assert_int_equal(array.data[1], 255);
    unmake(all);
}

/* ---- Text --------------------------------------------------------------------------------------------------------- */

static void expect_text(const gguf_file *file, const char *key, size_t size, const char *expected)
{
    char text[256];
    for (size_t i = 0; i < gguf_metadata_count(file); i++) {
        if (strcmp(gguf_metadata_key(file, i), key) != 0) continue;
        memset(text, '#', sizeof text);
        assert_true(gguf_metadata_text(file, i, text, size));
        assert_string_equal(text, expected);
        for (size_t j = size; j < sizeof text; j++) assert_int_equal(text[j], '#');
        return;
    }
    fail_msg("no key %s", key);
}

static void every_type_as_text(void **state)
{
    (void)state;
    made all = make(every_type());
    static const char *const texts[][2] = {{"u8", "255"},
                                           {"i8", "-128"},
                                           {"u16", "65535"},
                                           {"i16", "-32768"},
                                           {"u32", "4294967295"},
                                           {"i32", "-2147483648"},
                                           {"u64", "65536"},
                                           {"i64", "-65536"},
                                           {"f32", "0.1"},
                                           {"f64", "0.1"},
                                           {"bool", "true"},
                                           {"string", "caf\xc3\xa9"},
                                           {"array", "i32[2] [1, -2]"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) expect_text(all.file, texts[i][0], 256, texts[i][1]);
    char text[8] = "same";
    assert_false(gguf_metadata_text(all.file, gguf_metadata_count(all.file), text, sizeof text));
    assert_false(gguf_metadata_text(all.file, 0, text, 0));
    assert_string_equal(text, "same");
    assert_null(gguf_metadata_key(all.file, gguf_metadata_count(all.file)));
    unmake(all);
}

static void reals_as_they_read_back(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_f32(writer, "third", 1.0f / 3);
    gguf_writer_f32(writer, "large", 16777216.0f);
    gguf_writer_f64(writer, "third64", 1.0 / 3);
    gguf_writer_f64(writer, "nan", (double)NAN);
    made all = make(writer);
    expect_text(all.file, "third", 256, "0.33333334");
    expect_text(all.file, "large", 256, "16777216");
    expect_text(all.file, "third64", 256, "0.3333333333333333");
    expect_text(all.file, "nan", 256, "nan");
    unmake(all);
}

static void strings_escaped(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_string_bytes(writer, "controls", "a\n\t\r\x1b[0m\0\x7f\xc2\x85\xc2\xa0", 14);
    gguf_writer_string(writer, "quotes", "say \"\\\"");
    gguf_writer_string(writer, "broken", "\xff\xc0\x80\xed\xa0\x80\xe2\x82\xf4\x90\x80\x80");
    gguf_writer_string(writer, "wide", "\xe2\x82\xac\xf0\x9f\x98\x80");
    gguf_writer_strings(writer, "list", (const char *const[]){"\"", "\\", "\n", "\xf0\x9f\x98\x80"}, 4);
    made all = make(writer);
    expect_text(all.file, "controls", 256, "a\\n\\t\\r\\x1b[0m\\x00\\x7f\\xc2\\x85\xc2\xa0");
    expect_text(all.file, "quotes", 256, "say \"\\\\\"");
    expect_text(all.file, "broken", 256, "\\xff\\xc0\\x80\\xed\\xa0\\x80\\xe2\\x82\\xf4\\x90\\x80\\x80");
    expect_text(all.file, "wide", 256, "\xe2\x82\xac\xf0\x9f\x98\x80");
    expect_text(all.file, "list", 256, "string[4] [\"\\\"\", \"\\\\\", \"\\n\", \"\xf0\x9f\x98\x80\"]");
    unmake(all);
}

static void arrays_shortened(void **state)
{
    (void)state;
    uint8_t many[300];
    for (int i = 0; i < 300; i++) many[i] = (uint8_t)i;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_u8s(writer, "eight", many, 8);
    gguf_writer_u8s(writer, "many", many, 300);
    gguf_writer_strings(writer, "none", NULL, 0);
    /* u8[1] [7], string[2] ["a", ""], array[1] [u8[0]] */
    static const uint8_t nested[] = {0,   0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7,                          /* u8[1] */
                                     8,   0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,     /* string[2] */
                                     'a', 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; /* array[0] */
    raw_array(writer, "nested", GGUF_VALUE_ARRAY, 3, nested, sizeof nested);
    made all = make(writer);
    expect_text(all.file, "eight", 256, "u8[8] [0, 1, 2, 3, 4, 5, 6, 7]");
    expect_text(all.file, "many", 256, "u8[300] [0, 1, 2, 3, 4, 5, 6, 7, ...]");
    expect_text(all.file, "none", 256, "string[0] []");
    expect_text(all.file, "nested", 256, "array[3] [u8[1], string[2], array[0]]");
    unmake(all);
}

static void text_cut_between_characters(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_string(writer, "plain", "abcdef");
    gguf_writer_string(writer, "euros", "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    gguf_writer_string(writer, "escapes", "\x01\x01\x01\x01");
    made all = make(writer);
    expect_text(all.file, "plain", 7, "abcdef");
    expect_text(all.file, "plain", 6, "ab...");
    expect_text(all.file, "plain", 5, "a...");
    expect_text(all.file, "plain", 4, "...");
    expect_text(all.file, "plain", 3, "..");
    expect_text(all.file, "plain", 2, ".");
    expect_text(all.file, "plain", 1, "");
    expect_text(all.file, "euros", 10, "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    expect_text(all.file, "euros", 9, "\xe2\x82\xac...");
    expect_text(all.file, "euros", 7, "\xe2\x82\xac...");
    expect_text(all.file, "euros", 6, "...");
    expect_text(all.file, "escapes", 17, "\\x01\\x01\\x01\\x01");
    expect_text(all.file, "escapes", 16, "\\x01\\x01\\x01...");
    expect_text(all.file, "escapes", 15, "\\x01\\x01...");
    unmake(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_any_type),     cmocka_unit_test(integers_out_of_range),
        cmocka_unit_test(reals_are_finite),         cmocka_unit_test(getters_say_what_they_found),
        cmocka_unit_test(strings_hold_no_nul),      cmocka_unit_test(arrays_element_by_element),
        cmocka_unit_test(arrays_of_the_other_sign), cmocka_unit_test(every_type_as_text),
        cmocka_unit_test(reals_as_they_read_back),  cmocka_unit_test(strings_escaped),
        cmocka_unit_test(arrays_shortened),         cmocka_unit_test(text_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
