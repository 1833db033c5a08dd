/* test_job_queue.c: how long jobs are held, and in which order they are let go. */
#include "job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { HOLD_MS = 10000, FEW = 5, MOST = 25, JOBS = MOST + 1 };

/* A queue on a loop that runs only where a test lets it, and jobs for it. */
typedef struct setting {
    uv_loop_t loop;
    job_queue *q;
    job *jobs[JOBS];
} setting;

static int turns;
static const job *turned[2 * JOBS]; /* whose they were */

static void count_turn(job *j)
{
    if (turns < 2 * JOBS) turned[turns] = j;
    turns++;
}

static int turn_of(const job *j)
{
    int turn = 0;
    while (turn < turns && turned[turn] != j) turn++;
    return turn;
}

static void open_setting(setting *s, double hold_ms)
{
    turns = 0;
    assert_int_equal(uv_loop_init(&s->loop), 0);
    assert_int_equal(job_queue_open(&s->loop, hold_ms / 1e3, count_turn, &s->q), 0);
    for (int i = 0; i < JOBS; i++) assert_non_null(s->jobs[i] = calloc(1, sizeof *s->jobs[i]));
}

/* All jobs have left, and no other turn than those so far comes of it. */
static void close_setting(setting *s)
{
    int before = turns;
    job_queue_close(s->q);
    assert_int_equal(uv_run(&s->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&s->loop), 0);
    assert_int_equal(turns, before);
    for (int i = 0; i < JOBS; i++) free(s->jobs[i]);
}

/* The time until `count` jobs that are held one behind the other, and not side by side with an earlier hold's end, are let
 * go; and all of them leave again. */
static uint64_t last_is_held_for(setting *s, int count)
{
    job *last = s->jobs[count - 1];
    for (int i = 0; i < count; i++) job_queue_hold(s->q, s->jobs[i]);
    job_queue_leave(s->q, last);
    for (int i = 0; i + 1 < count; i++) s->jobs[i]->place.due = uv_now(&s->loop); /* theirs ends now: nobody joins it */
    job_queue_hold(s->q, last);
    uint64_t due = last->place.due - uv_now(&s->loop);
    for (int i = 0; i < count; i++) job_queue_leave(s->q, s->jobs[i]);
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
    setting s;
    open_setting(&s, HOLD_MS);
    for (int i = 0; i < 2 * CASES; i++) /* twice: what left is not counted any more */
        assert_int_equal(last_is_held_for(&s, cases[i % CASES].jobs), cases[i % CASES].held_for);
    close_setting(&s);
    assert_int_equal(turns, 0);
}

/* Only an interval of 0 holds nothing, and says so. */
static void test_nothing_is_held_for_no_time(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++) {
        setting s;
        open_setting(&s, held ? HOLD_MS : 0);
        assert_int_equal(job_queue_hold_begin(s.q, s.jobs[0]), held);
        assert_int_equal(s.jobs[0]->place.held, held);
        job_queue_leave(s.q, s.jobs[0]);
        close_setting(&s);
        assert_int_equal(turns, 0);
    }
}

/* A hold joins the end of the last one, where that leaves it half of its time at least, and not more than that. */
static void test_holds_end_together(void **state)
{
    static const struct {
        uint64_t last, joins; /* from now */
    } cases[] = {{HOLD_MS, HOLD_MS},         {HOLD_MS / 2, HOLD_MS / 2}, {HOLD_MS / 2 - 1, HOLD_MS},
                 {HOLD_MS - 1, HOLD_MS - 1}, {HOLD_MS + 1, HOLD_MS},     {5 * HOLD_MS, HOLD_MS}};
    (void)state;
    setting s;
    open_setting(&s, HOLD_MS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job_queue_hold(s.q, s.jobs[0]);
        s.jobs[0]->place.due = uv_now(&s.loop) + cases[i].last;
        job_queue_hold(s.q, s.jobs[1]);
        assert_int_equal(s.jobs[1]->place.due, uv_now(&s.loop) + cases[i].joins);
        for (int k = 0; k < 2; k++) job_queue_leave(s.q, s.jobs[k]);
    }
    close_setting(&s);
    assert_int_equal(turns, 0);
}

/* However many are held, and in whatever order their ends lie: each has its turn, the earliest first. */
static void test_a_begin_is_held_for_the_time_given(void **state)
{
    enum { SHORT_MS = 4 };
    (void)state;
    setting s;
    open_setting(&s, SHORT_MS);
    const job *begin = s.jobs[MOST], *last = s.jobs[MOST - 1];
    for (int i = 0; i < MOST; i++) job_queue_hold(s.q, s.jobs[i]);
    assert_true(last->place.due > uv_now(&s.loop) + SHORT_MS);
    assert_true(job_queue_hold_begin(s.q, s.jobs[MOST]));
    assert_int_equal(begin->place.due, uv_now(&s.loop) + SHORT_MS);
    for (const job *j = begin; j->place.held_behind; j = j->place.held_behind)
        assert_true(j->place.due <= j->place.held_behind->place.due);
    while (turns < JOBS) (void)uv_run(&s.loop, UV_RUN_ONCE);
    assert_true(turn_of(begin) < turn_of(last));
    for (int i = 0; i < JOBS; i++) assert_false(s.jobs[i]->place.held);
    close_setting(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_send_together_as_often_as_few), cmocka_unit_test(test_nothing_is_held_for_no_time),
        cmocka_unit_test(test_holds_end_together), cmocka_unit_test(test_a_begin_is_held_for_the_time_given)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
