/* test_status.c: messages are always one printable line that fits, and memory is what was asked for or NULL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "status.h"

#include <string.h>

static void fail_fills_and_returns(void **state)
{
    (void)state;
    descent_status status = {DESCENT_OK, ""};
    assert_int_equal(descent_fail(&status, DESCENT_LIMIT, "%d of %s", 3, "four"), DESCENT_LIMIT);
    assert_int_equal(status.code, DESCENT_LIMIT);
    assert_string_equal(status.message, "3 of four");
    assert_int_equal(descent_ok(&status), DESCENT_OK);
    assert_int_equal(status.code, DESCENT_OK);
    assert_string_equal(status.message, "");
}

static void status_may_be_null(void **state)
{
    (void)state;
    assert_int_equal(descent_fail(NULL, DESCENT_IO, "%s", "unheard"), DESCENT_IO);
    assert_int_equal(descent_ok(NULL), DESCENT_OK);
}

static void messages_are_one_printable_line(void **state)
{
    (void)state;
    descent_status status;
    (void)descent_fail(&status, DESCENT_BAD_FILE, "key '%s'", "a\nb\x1b[31m\x7f\xc3\xa9");
    assert_string_equal(status.message, "key 'a?b?[31m?\xc3\xa9'");
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    char text[2 * DESCENT_MESSAGE_SIZE];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    descent_status status;
    (void)descent_fail(&status, DESCENT_BAD_FILE, "%s", text);
    assert_int_equal(strlen(status.message), DESCENT_MESSAGE_SIZE - 1);
    assert_memory_equal(status.message, text, DESCENT_MESSAGE_SIZE - 1);
}

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1}, {3, 7}, {64, 1}, {65, 1}, {1000, 12}, {0, 8}, {8, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *memory = descent_alloc(sizes[i][0], sizes[i][1]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t j = 0; j < sizes[i][0] * sizes[i][1]; j++) assert_int_equal(memory[j], 0);
        memset(memory, 0xa5, sizes[i][0] * sizes[i][1]);
        descent_free(memory);
    }
    descent_free(NULL);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    assert_null(descent_alloc(SIZE_MAX, 2));
    assert_null(descent_alloc(SIZE_MAX / 2 + 1, 2));
    assert_null(descent_alloc(SIZE_MAX, 1));
    assert_null(descent_alloc((size_t)1 << 24, ((size_t)1 << 23) + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_fills_and_returns),          cmocka_unit_test(status_may_be_null),
        cmocka_unit_test(messages_are_one_printable_line), cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(memory_is_zeroed_and_aligned),    cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
