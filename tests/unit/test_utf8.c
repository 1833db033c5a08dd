/* test_utf8.c: strict reading, the stream that repairs, and texts made printable. Python's own decoder is the reference for
 * the stream in tests/tokenizer. */
#include "utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void edges_of_every_length(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t code; /* 0: not a character */
    } cases[] = {
        {"A", 0x41},
        {"\x7f", 0x7F},
        {"\xc2\x80", 0x80},
        {"\xdf\xbf", 0x7FF},
        {"\xe0\xa0\x80", 0x800},
        {"\xed\x9f\xbf", 0xD7FF},
        {"\xee\x80\x80", 0xE000},
        {"\xef\xbf\xbf", 0xFFFF},
        {"\xf0\x90\x80\x80", 0x10000},
        {"\xf4\x8f\xbf\xbf", 0x10FFFF},
        {"\x80", 0},
        {"\xbf", 0},
        {"\xc0\x80", 0},
        {"\xc1\xbf", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xed\xa0\x80", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
        {"\xe2\x82", 0},
        {"\xf0\x9f\x98", 0},
        {"\xc3(", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint32_t code = 0;
        size_t bytes = strlen(cases[i].text), read = utf8_read(cases[i].text, bytes, &code);
        assert_int_equal(read, cases[i].code ? bytes : 0);
        assert_int_equal(code, cases[i].code);
        assert_int_equal(utf8_valid(cases[i].text, bytes), cases[i].code != 0);
    }
    assert_int_equal(utf8_read("", 0, &(uint32_t){0}), 0);
    assert_int_equal(utf8_first_invalid("ab\xe2\x82", 4), 2);
    assert_int_equal(utf8_first_invalid("\0\xc3\xa4", 3), 3);
}

static void printable_is_one_line_that_fits(void **state)
{
    (void)state;
    char out[12];
    assert_string_equal(utf8_printable("a\nb", 3, out, sizeof out), "a\\x0ab");
    assert_string_equal(utf8_printable("\xc3\xa4\xff", 3, out, sizeof out), "\xc3\xa4\\xff");
    assert_string_equal(utf8_printable("01234567890", 11, out, sizeof out), "01234567890");
    assert_string_equal(utf8_printable("012345678901", 12, out, sizeof out), "01234567...");
    assert_string_equal(utf8_printable("0123456\xc3\xa4"
                                       "890",
                                       12, out, sizeof out),
                        "0123456...");
    assert_string_equal(utf8_printable("\xc2\x85", 2, out, sizeof out), "\\xc2\\x85");
    assert_string_equal(utf8_printable("\0", 1, out, sizeof out), "\\x00");
}

static void stream_per_subpart_and_per_byte(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *per_subpart, *per_byte;
    } cases[] = {
        {"a\xe2\x82\xac", "a\xe2\x82\xac", "a\xe2\x82\xac"},
        {"\xe2\x82z", "\xef\xbf\xbdz", "\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xf0\x9f\x98\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xe2\x82\xac"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f", "\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc3\xff", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        const char *bytes = cases[i / 2].bytes, *expected = i % 2 ? cases[i / 2].per_byte : cases[i / 2].per_subpart;
        utf8_stream s = {.replacement = i % 2 ? UTF8_PER_BYTE : UTF8_PER_SUBPART};
        char whole[64], single[64];
        size_t count = strlen(bytes), n = utf8_stream_push(&s, bytes, count, whole);
        n += utf8_stream_finish(&s, whole + n);
        size_t m = 0;
        for (size_t b = 0; b < count; b++) m += utf8_stream_push(&s, bytes + b, 1, single + m);
        m += utf8_stream_finish(&s, single + m);
        whole[n] = single[m] = '\0';
        assert_string_equal(whole, expected);
        assert_string_equal(single, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_of_every_length),
        cmocka_unit_test(printable_is_one_line_that_fits),
        cmocka_unit_test(stream_per_subpart_and_per_byte),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
