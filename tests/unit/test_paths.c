/* test_paths.c: the table of how products are computed has a line for every type of weights and of pages, and knows the
 * instruction set in use, whichever it is. */
#include "descent.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static void every_type_has_a_line(void **state)
{
    static const char *const weights[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"};
    static const char *const pages[DESCENT_PAGE_TYPES] = {"f32", "f16", "bf16", "q8"};
    (void)state;
    descent_path path;
    size_t n = 0, found = 0;
    for (; descent_path_at(n, &path); n++) {
        assert_true(path.arithmetic && path.one && path.several);
        bool integers = !path.pages && path.numbers[0] == 'Q';
        assert_int_equal(strncmp(path.arithmetic, integers ? "int8" : "f32", 3), 0);
        for (size_t i = 0; !path.pages && i < sizeof weights / sizeof *weights; i++) found += !strcmp(weights[i], path.numbers);
        for (size_t i = 0; path.pages && i < DESCENT_PAGE_TYPES; i++) found += !strcmp(pages[i], path.numbers);
    }
    assert_int_equal(n, sizeof weights / sizeof *weights + DESCENT_PAGE_TYPES);
    assert_int_equal(found, n);
    assert_false(descent_path_at(SIZE_MAX, &path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type_has_a_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
