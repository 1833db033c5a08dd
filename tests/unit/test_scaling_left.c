/* test_scaling_left.c: an experiment whose client leaves while it is summed up, which may take seconds: the rest of the work is
 * not done, and nothing is said. The experiment is made by hand; its loop never runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "scaling.h"

enum { INPUTS = 3 };

static void woken(uv_async_t *wake)
{
    (void)wake;
}

static void nobody_waits_for_rows_that_nobody_reads(void **state)
{
    const descent_model_info info = {.kinds = 1, .kind_names = {"block"}, .terms = {2}, .trained = {{4}}, .deepens = true};
    served_model model = {.info = &info};
    descent_depth depth = {{4}};
    scaling_input inputs[INPUTS] = {{.unit = 0}, {.unit = 1}, {.unit = 2}};
    scaling_plan plan = {.depths = &depth,
                         .n_depths = 1,
                         .inputs = inputs,
                         .n_inputs = INPUTS,
                         .options = {.resamples = 10, .level = 0.95, .reference = 0}};
    descent_measure measures[INPUTS];
    bool done[INPUTS] = {true, true, true};
    for (size_t i = 0; i < INPUTS; i++)
        measures[i] = (descent_measure){.depth = depth, .predictions = 4, .nats = (double)i, .items = 4, .tokens = 4};
    scaling s = {.request = {.model = &model, .scaling = &plan}, .n_inputs = INPUTS, .n_tasks = INPUTS, .measures = measures};
    s.summary.done = done;
    uv_loop_t loop;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_async_init(&loop, &s.wake, woken), 0);
    assert_int_equal(pthread_mutex_init(&s.lock, NULL), 0);

    scaling_sum_up(&s);
    assert_int_equal(s.summary.n_rows, 1);
    assert_true(s.summary.rows.bytes > 2);
    scaling_gone(&s);
    assert_true(s.gone);
    scaling_sum_up(&s);
    assert_int_equal(s.summary.n_rows, 0);
    assert_int_equal(s.summary.error.status, 0);

    json_text_release(&s.summary.rows);
    (void)pthread_mutex_destroy(&s.lock);
    uv_close((uv_handle_t *)&s.wake, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_waits_for_rows_that_nobody_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
