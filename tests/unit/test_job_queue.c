/* test_job_queue.c: how long jobs are held, at one moment of a loop that does not run meanwhile. */
#include "job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { HOLD_MS = 10000, MANY = JOB_QUEUE_MANY };

static int turns;

static void count_turn(job *j)
{
    (void)j;
    turns++;
}

/* The time until `count` jobs that are held one behind the other, and not side by side with an earlier hold's end, are let
 * go; and all of them leave again. */
static uint64_t last_is_held_for(job_queue *q, uv_loop_t *loop, job **jobs, int count)
{
    for (int i = 0; i < count; i++) job_queue_hold(q, jobs[i]);
    job_queue_leave(q, jobs[count - 1]);
    for (int i = 0; i + 1 < count; i++) jobs[i]->place.due = uv_now(loop); /* theirs ends now: nobody joins it */
    job_queue_hold(q, jobs[count - 1]);
    uint64_t due = jobs[count - 1]->place.due - uv_now(loop);
    for (int i = 0; i < count; i++) job_queue_leave(q, jobs[i]);
    return due;
}

static void test_many_are_held_twice_as_long(void **state)
{
    (void)state;
    uv_loop_t loop;
    job_queue *q;
    job *jobs[MANY + 1];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(job_queue_open(&loop, HOLD_MS / 1e3, count_turn, &q), 0);
    for (int i = 0; i <= MANY; i++) assert_non_null(jobs[i] = calloc(1, sizeof *jobs[i]));
    for (int round = 0; round < 2; round++) { /* what left is not counted any more */
        assert_int_equal(last_is_held_for(q, &loop, jobs, 1), HOLD_MS);
        assert_int_equal(last_is_held_for(q, &loop, jobs, MANY), HOLD_MS);
        assert_int_equal(last_is_held_for(q, &loop, jobs, MANY + 1), 2 * HOLD_MS);
    }
    job_queue_close(q);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(turns, 0);
    for (int i = 0; i <= MANY; i++) free(jobs[i]);
}

/* A hold joins the end of the one before it, where that leaves it half of its time at least. */
static void test_holds_end_together(void **state)
{
    (void)state;
    uv_loop_t loop;
    job_queue *q;
    job *jobs[3];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(job_queue_open(&loop, HOLD_MS / 1e3, count_turn, &q), 0);
    for (int i = 0; i < 3; i++) assert_non_null(jobs[i] = calloc(1, sizeof *jobs[i]));
    job_queue_hold(q, jobs[0]);
    uint64_t now = uv_now(&loop);
    jobs[0]->place.due = now + HOLD_MS / 2;
    job_queue_hold(q, jobs[1]);
    assert_int_equal(jobs[1]->place.due, now + HOLD_MS / 2);
    jobs[1]->place.due = now + HOLD_MS / 2 - 1;
    job_queue_hold(q, jobs[2]);
    assert_int_equal(jobs[2]->place.due, now + HOLD_MS);
    for (int i = 0; i < 3; i++) job_queue_leave(q, jobs[i]);
    job_queue_close(q);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(turns, 0);
    for (int i = 0; i < 3; i++) free(jobs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_are_held_twice_as_long),
                                       cmocka_unit_test(test_holds_end_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
