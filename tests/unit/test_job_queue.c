/* test_job_queue.c: how long jobs are held, at one moment of a loop that does not run meanwhile. */
#include "job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { HOLD_MS = 10000, FEW = 5, MOST = 25 };

static int turns;
static const job *turned[2 * MOST]; /* whose they were */

static void count_turn(job *j)
{
    if (turns < 2 * MOST) turned[turns] = j;
    turns++;
}

static int turn_of(const job *j)
{
    int turn = 0;
    while (turn < turns && turned[turn] != j) turn++;
    return turn;
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

static void test_many_send_together_as_often_as_few(void **state)
{
    static const struct {
        int jobs;
        uint64_t held_for;
    } cases[] = {{1, HOLD_MS},        {FEW, HOLD_MS},         {FEW + 1, HOLD_MS / FEW * 6}, {16, HOLD_MS / FEW * 16},
                 {MOST, 5 * HOLD_MS}, {MOST + 1, 5 * HOLD_MS}};
    enum { CASES = sizeof cases / sizeof *cases };
    (void)state;
    uv_loop_t loop;
    job_queue *q;
    job *jobs[MOST + 1];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(job_queue_open(&loop, HOLD_MS / 1e3, count_turn, &q), 0);
    for (int i = 0; i <= MOST; i++) assert_non_null(jobs[i] = calloc(1, sizeof *jobs[i]));
    for (int i = 0; i < 2 * CASES; i++) /* twice: what left is not counted any more */
        assert_int_equal(last_is_held_for(q, &loop, jobs, cases[i % CASES].jobs), cases[i % CASES].held_for);
    job_queue_close(q);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(turns, 0);
    for (int i = 0; i <= MOST; i++) free(jobs[i]);
}

/* Only an interval of 0 holds nothing, and says so. */
static void test_nothing_is_held_for_no_time(void **state)
{
    (void)state;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    for (int held = 0; held < 2; held++) {
        job_queue *q;
        job *j = calloc(1, sizeof *j);
        assert_non_null(j);
        assert_int_equal(job_queue_open(&loop, held ? HOLD_MS / 1e3 : 0, count_turn, &q), 0);
        assert_int_equal(job_queue_hold_begin(q, j), held);
        assert_int_equal(j->place.held, held);
        job_queue_leave(q, j);
        job_queue_close(q);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        free(j);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* A hold joins the end of the last one, where that leaves it half of its time at least, and not more than that. */
static void test_holds_end_together(void **state)
{
    static const struct {
        uint64_t last, joins; /* from now */
    } cases[] = {{HOLD_MS, HOLD_MS},         {HOLD_MS / 2, HOLD_MS / 2}, {HOLD_MS / 2 - 1, HOLD_MS},
                 {HOLD_MS - 1, HOLD_MS - 1}, {HOLD_MS + 1, HOLD_MS},     {5 * HOLD_MS, HOLD_MS}};
    (void)state;
    uv_loop_t loop;
    job_queue *q;
    job *jobs[2];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(job_queue_open(&loop, HOLD_MS / 1e3, count_turn, &q), 0);
    for (int i = 0; i < 2; i++) assert_non_null(jobs[i] = calloc(1, sizeof *jobs[i]));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job_queue_hold(q, jobs[0]);
        jobs[0]->place.due = uv_now(&loop) + cases[i].last;
        job_queue_hold(q, jobs[1]);
        assert_int_equal(jobs[1]->place.due, uv_now(&loop) + cases[i].joins);
        for (int k = 0; k < 2; k++) job_queue_leave(q, jobs[k]);
    }
    job_queue_close(q);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(turns, 0);
    for (int i = 0; i < 2; i++) free(jobs[i]);
}

/* However many are held, and in whatever order their ends lie: each has its turn, the earliest first. */
static void test_a_begin_is_held_for_the_time_given(void **state)
{
    enum { SHORT_MS = 4 };
    (void)state;
    uv_loop_t loop;
    job_queue *q;
    job *jobs[MOST + 1];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(job_queue_open(&loop, SHORT_MS / 1e3, count_turn, &q), 0);
    for (int i = 0; i <= MOST; i++) assert_non_null(jobs[i] = calloc(1, sizeof *jobs[i]));
    for (int i = 0; i < MOST; i++) job_queue_hold(q, jobs[i]);
    assert_true(jobs[MOST - 1]->place.due > uv_now(&loop) + SHORT_MS);
    assert_true(job_queue_hold_begin(q, jobs[MOST]));
    assert_int_equal(jobs[MOST]->place.due, uv_now(&loop) + SHORT_MS);
    for (const job *j = jobs[MOST]; j->place.held_behind; j = j->place.held_behind)
        assert_true(j->place.due <= j->place.held_behind->place.due);
    turns = 0;
    while (turns <= MOST) (void)uv_run(&loop, UV_RUN_ONCE);
    assert_true(turn_of(jobs[MOST]) < turn_of(jobs[MOST - 1]));
    for (int i = 0; i <= MOST; i++) assert_false(jobs[i]->place.held);
    turns = 0;
    job_queue_close(q);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    for (int i = 0; i <= MOST; i++) free(jobs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_send_together_as_often_as_few), cmocka_unit_test(test_nothing_is_held_for_no_time),
        cmocka_unit_test(test_holds_end_together), cmocka_unit_test(test_a_begin_is_held_for_the_time_given)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
