/* test_trial.c: matrices made to be measured: of the types and sizes asked for, multiplied both ways, the same whatever how
 * many vectors; and what is refused. */
#include "descent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 96, COLS = 512, BAND = 32, VECTORS = 5 };

static const struct {
    descent_weight_type type;
    bool tiled;
    double bits; /* of a weight, as the type has them */
} made[] = {{DESCENT_WEIGHT_Q8_0, false, 8.5}, {DESCENT_WEIGHT_Q8_0, true, 8.5},  {DESCENT_WEIGHT_Q4_0, false, 4.5},
            {DESCENT_WEIGHT_Q4_0, true, 4.5},  {DESCENT_WEIGHT_Q4_K, false, 4.5}, {DESCENT_WEIGHT_Q6_K, false, 6.5625},
            {DESCENT_WEIGHT_F16, false, 16},   {DESCENT_WEIGHT_BF16, false, 16},  {DESCENT_WEIGHT_F32, false, 32}};
enum { MADE = sizeof made / sizeof *made };

static descent_trial *make(size_t k)
{
    descent_trial *trial = NULL;
    descent_status status;
    descent_trial_options how = {.type = made[k].type, .tiled = made[k].tiled, .rows = ROWS, .cols = COLS, .vectors = VECTORS};
    assert_int_equal(descent_trial_create(&how, &trial, &status), DESCENT_OK);
    return trial;
}

/* About as large as in a file: less where scales are equal, more where W^T u needs something of them besides. */
static void sizes_are_those_of_the_types(void **state)
{
    (void)state;
    for (size_t k = 0; k < MADE; k++) {
        descent_trial *trial = make(k);
        double stored = ROWS * COLS * made[k].bits / 8, bytes = (double)descent_trial_bytes(trial);
        assert_int_equal(descent_trial_weights(trial), ROWS * COLS);
        assert_true(bytes >= (made[k].tiled ? 0.85 : 1) * stored && bytes < (made[k].tiled ? 1 : 1.1) * stored + 256);
        descent_trial_destroy(trial);
    }
}

static void products_go_both_ways(void **state)
{
    (void)state;
    for (size_t k = 0; k < MADE; k++)
        for (int back = 0; back < 2; back++) {
            descent_trial *trial = make(k);
            size_t n = back ? COLS : ROWS;
            /* Normal weights, whose 32 rows come three times, and normal vectors: n sums of COLS squares, or of ROWS as of
             * three times 32. */
            double expected = back ? COLS * 32.0 * 3 : ROWS * (double)COLS, before = 0;
            for (uint32_t vectors = 1; vectors <= VECTORS; vectors++) {
                const float *last = descent_trial_run(trial, back, vectors, 2);
                double length = 0;
                for (size_t i = 0; i < n; i++) length += (double)last[i] * (double)last[i];
                assert_true(length > expected / 4 && length < 4 * expected && length != before);
                for (size_t r = 0; !back && r < ROWS; r++) assert_true(last[r] == last[r % BAND]);
                before = length;
            }
            descent_trial_destroy(trial);
        }
}

static void as_many_vectors_as_there_are(void **state)
{
    (void)state;
    descent_trial *trial = make(0);
    float last = descent_trial_run(trial, false, VECTORS, 1)[ROWS - 1];
    assert_true(descent_trial_run(trial, false, UINT32_MAX, 1)[ROWS - 1] == last);
    (void)descent_trial_run(trial, false, 1, 0);
    descent_trial_destroy(trial);
    descent_trial_destroy(NULL);
}

static void refuses(descent_trial_options how, const char *what)
{
    descent_trial *trial = NULL;
    descent_status status;
    assert_int_equal(descent_trial_create(&how, &trial, &status), DESCENT_BAD_ARGUMENT);
    assert_null(trial);
    if (!strstr(status.message, what)) fail_msg("expected '%s': %s", what, status.message);
}

static void mistakes(void **state)
{
    (void)state;
    const descent_weight_type type = DESCENT_WEIGHT_Q8_0;
    refuses((descent_trial_options){.rows = 32, .cols = 256, .vectors = 1}, "type 0");
    refuses((descent_trial_options){.type = (descent_weight_type)99, .rows = 32, .cols = 256, .vectors = 1}, "type 99");
    refuses((descent_trial_options){.type = type, .rows = 33, .cols = 256, .vectors = 1}, "33 x 256");
    refuses((descent_trial_options){.type = type, .rows = 32, .cols = 128, .vectors = 1}, "32 x 128");
    refuses((descent_trial_options){.type = type, .cols = 256, .vectors = 1}, "0 x 256");
    refuses((descent_trial_options){.type = type, .rows = 32, .vectors = 1}, "32 x 0");
    refuses((descent_trial_options){.type = type, .rows = SIZE_MAX / 32 * 32, .cols = 256, .vectors = 1}, "at most");
    refuses((descent_trial_options){.type = type, .rows = 32, .cols = 256}, "0 vectors");
    refuses((descent_trial_options){.type = type, .rows = 32, .cols = 256, .vectors = UINT32_MAX}, "vectors");
    descent_status status;
    descent_trial *trial;
    assert_int_equal(descent_trial_create(NULL, &trial, &status), DESCENT_BAD_ARGUMENT);
    assert_int_equal(descent_trial_create(&(descent_trial_options){.type = type}, NULL, &status), DESCENT_BAD_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_types),
        cmocka_unit_test(products_go_both_ways),
        cmocka_unit_test(as_many_vectors_as_there_are),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
