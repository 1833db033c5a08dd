/* test_parallel.c: teams do every part once, keep what they write in order, and cost nothing where they are not needed. */
#include "parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PARTS = 1000, MOST_THREADS = 9 };

/* ---- What the parts do ------------------------------------------------------------------------------------------- */

typedef struct tally {
    unsigned done[MOST_PARTS]; /* plain: no two threads do one part, and the master sees what they wrote */
    unsigned *chain;
    atomic_bool busy[MOST_THREADS];
    atomic_uint wrong, seen[MOST_THREADS];
    unsigned threads;
} tally;

static void count(const void *arg, size_t part, unsigned thread)
{
    tally *t = *(tally *const *)arg;
    if (thread >= t->threads || atomic_exchange(&t->busy[thread], true)) (void)atomic_fetch_add(&t->wrong, 1);
    t->done[part]++;
    (void)atomic_fetch_add(&t->seen[thread], 1);
    atomic_store(&t->busy[thread], false);
}

static void check_counts(team *t, unsigned threads, size_t parts, unsigned shares)
{
    tally *all = calloc(1, sizeof *all);
    assert_non_null(all);
    all->threads = threads;
    for (unsigned i = 0; i < shares; i++) team_share(t, parts, count, &all);
    for (size_t p = 0; p < MOST_PARTS; p++) assert_int_equal(all->done[p], p < parts ? shares : 0);
    assert_int_equal(all->wrong, 0);
    free(all);
}

static void every_part_is_done_once(void **state)
{
    static const size_t parts[] = {0, 1, 2, 3, 7, 8, 64, MOST_PARTS};
    (void)state;
    for (unsigned threads = 1; threads < MOST_THREADS; threads++) {
        team *t = team_create(threads);
        assert_non_null(t);
        assert_int_equal(team_threads(t), threads);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) check_counts(t, threads, parts[i], 50);
        team_destroy(t);
    }
}

/* Part p of share k takes from two parts of share k - 1, so that it is wrong where that one was not done or is not seen. */
typedef struct row {
    const unsigned *before;
    unsigned *after;
    size_t n;
} row;

static void step(const void *arg, size_t part, unsigned thread)
{
    const row *r = arg;
    (void)thread;
    r->after[part] = r->before[part] * 5 + r->before[(part + 1) % r->n] * 3 + 1;
}

static void run_chain(team *t, unsigned out[16])
{
    unsigned a[16], b[16];
    for (unsigned i = 0; i < 16; i++) a[i] = i;
    for (int k = 0; k < 2000; k++) {
        row forth = {a, b, 16}, back = {b, a, 16};
        team_share(t, 16, step, &forth);
        team_share(t, 16, step, &back);
    }
    memcpy(out, a, sizeof a);
}

static void a_share_sees_the_one_before(void **state)
{
    unsigned expected[16], a[16], b[16];
    (void)state;
    for (unsigned i = 0; i < 16; i++) a[i] = i;
    for (int k = 0; k < 4000; k++) {
        for (unsigned i = 0; i < 16; i++) b[i] = a[i] * 5 + a[(i + 1) % 16] * 3 + 1;
        memcpy(a, b, sizeof a);
    }
    memcpy(expected, a, sizeof a);
    for (unsigned threads = 1; threads <= 4; threads++) {
        team *t = team_create(threads);
        assert_non_null(t);
        run_chain(t, a);
        assert_memory_equal(a, expected, sizeof a);
        team_destroy(t);
    }
}

/* ---- Who shares -------------------------------------------------------------------------------------------------- */

typedef struct master {
    team *team;
    unsigned out[16];
} master;

static void *be_master(void *arg)
{
    master *m = arg;
    run_chain(m->team, m->out);
    return NULL;
}

static void a_team_outlives_its_masters(void **state)
{
    unsigned expected[16];
    (void)state;
    team *t = team_create(3);
    assert_non_null(t);
    run_chain(t, expected);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        master m = {.team = t};
        assert_int_equal(pthread_create(&thread, NULL, be_master, &m), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_memory_equal(m.out, expected, sizeof expected);
    }
    team_destroy(t);
}

static void teams_work_side_by_side(void **state)
{
    enum { TEAMS = 3 };
    pthread_t threads[TEAMS];
    master masters[TEAMS];
    (void)state;
    for (int i = 0; i < TEAMS; i++) {
        masters[i].team = team_create(2);
        assert_non_null(masters[i].team);
        assert_int_equal(pthread_create(&threads[i], NULL, be_master, &masters[i]), 0);
    }
    for (int i = 0; i < TEAMS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_memory_equal(masters[i].out, masters[0].out, sizeof masters[0].out);
        team_destroy(masters[i].team);
    }
}

/* ---- What it costs ------------------------------------------------------------------------------------------------ */

static size_t workers_of(size_t threads)
{
    size_t limit = (size_t)omp_get_thread_limit();
    if (omp_get_max_active_levels() == 0 && limit > 2) limit = 2; /* the one that opens the region */
    return (threads < limit ? threads : limit) - 1;
}

/* Threads of this process, and how many of them run or want to. */
static size_t threads_now(size_t *running)
{
    size_t n = 0;
    *running = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], text[512] = "";
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *f = fopen(path, "re");
        if (!f) continue; /* it has just ended */
        size_t length = fread(text, 1, sizeof text - 1, f);
        (void)fclose(f);
        const char *name_end = length ? strrchr(text, ')') : NULL;
        if (!name_end) continue;
        n++;
        *running += name_end[2] == 'R';
    }
    (void)closedir(tasks);
    return n;
}

/* All of them asleep but this one, in the end: ten seconds are for a machine that has no time for us. Returns how many. */
static size_t sleeping_threads(void)
{
    size_t running, seen = 0;
    for (int i = 0; i < 2000; i++) {
        seen = threads_now(&running);
        if (running <= 1) return seen;
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fail_msg("%zu of %zu threads running; expected this one only", running, seen);
    return seen;
}

static void threads_come_when_needed_and_sleep(void **state)
{
    size_t running, before = threads_now(&running), during = before;
    (void)state;
    team *one = team_create(1), *three = team_create(3);
    assert_non_null(one);
    assert_non_null(three);
    check_counts(one, 1, 100, 10);
    check_counts(three, 3, 1, 10);
    assert_int_equal(threads_now(&running), before);
    for (int i = 0; i < 3; i++) { /* the next share wakes those that sleep */
        check_counts(three, 3, 100, 10);
        during = sleeping_threads();
        assert_true(during >= before + workers_of(3));
    }
    team_destroy(three);
    assert_true(sleeping_threads() <= during);
    team_destroy(one);
    team_destroy(NULL);
}

/* Who comes late to a share is not waited for, but takes part where there is time: the second part is not done before the
 * first has waited for it. */
static void wait_for_the_other(const void *arg, size_t part, unsigned thread)
{
    atomic_uint *here = *(atomic_uint *const *)arg;
    (void)part;
    (void)thread;
    (void)atomic_fetch_add(here, 1);
    for (int i = 0; atomic_load(here) < 2 && i < 10000; i++) (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void others_take_part(void **state)
{
    (void)state;
    if (workers_of(2) == 0) skip(); /* there are no others */
    team *t = team_create(2);
    assert_non_null(t);
    for (int i = 0; i < 20; i++) {
        atomic_uint here = 0, *at = &here;
        team_share(t, 2, wait_for_the_other, &at);
        assert_int_equal(here, 2);
    }
    team_destroy(t);
}

/* ---- Errands ----------------------------------------------------------------------------------------------------- */

typedef struct errands {
    atomic_uint sent, seen, runs;
    pthread_t master;
    atomic_bool abroad; /* some were run by others than the master */
} errands;

static void run_errand(void *user)
{
    errands *e = user;
    if (!pthread_equal(pthread_self(), e->master)) atomic_store(&e->abroad, true);
    (void)atomic_fetch_add(&e->runs, 1);
    unsigned sent = atomic_load(&e->sent), seen = atomic_load(&e->seen);
    while (seen < sent && !atomic_compare_exchange_weak(&e->seen, &seen, sent)) {
    } /* errands may overlap */
}

/* Until what was sent last is seen: no errand is lost. */
static void wait_for_errand(errands *e)
{
    for (int i = 0; atomic_load(&e->seen) != atomic_load(&e->sent) && i < 10000; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(e->seen, e->sent);
}

static void pause_for(unsigned microseconds)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)microseconds * 1000}, NULL);
}

static void an_errand_of_one_is_a_plain_call(void **state)
{
    (void)state;
    errands e = {.master = pthread_self()};
    team *t = team_create(1);
    assert_non_null(t);
    team_send_errand(t); /* there is none: nothing happens */
    team_set_errand(t, run_errand, &e);
    for (unsigned i = 1; i <= 100; i++) {
        (void)atomic_fetch_add(&e.sent, 1);
        team_send_errand(t);
        assert_int_equal(e.seen, i);
        check_counts(t, 1, 10, 1);
    }
    assert_int_equal(e.runs, 100);
    assert_false(e.abroad);
    team_destroy(t);
}

/* Workers that wait, sleep, are about to, or have parts. The pauses go over the time that a worker is awake for. */
static void no_errand_is_lost_or_run_twice(void **state)
{
    (void)state;
    errands e = {.master = pthread_self()};
    team *t = team_create(3);
    assert_non_null(t);
    team_set_errand(t, run_errand, &e);
    for (unsigned i = 0; i < 4000; i++) {
        check_counts(t, 3, 20, 1);
        if (i % 4 > 0) pause_for(i % 401);
        (void)atomic_fetch_add(&e.sent, 1);
        team_send_errand(t);
        if (i % 3 == 0) check_counts(t, 3, 20, 1);
        if (i % 2 == 0) wait_for_errand(&e);
    }
    wait_for_errand(&e);
    assert_true(e.runs > 0 && e.runs <= e.sent);
    if (workers_of(3) > 0) assert_true(e.abroad);
    team_destroy(t);
}

static void a_team_leaves_no_errand_undone(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        errands e = {.master = pthread_self()};
        team *t = team_create(2);
        assert_non_null(t);
        team_set_errand(t, run_errand, &e);
        check_counts(t, 2, 20, 1);
        (void)atomic_fetch_add(&e.sent, 1);
        team_send_errand(t);
        team_destroy(t);
        assert_int_equal(e.seen, 1);
        assert_int_equal(e.runs, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_come_when_needed_and_sleep), /* the first: OpenMP may keep threads that others started */
        cmocka_unit_test(every_part_is_done_once),
        cmocka_unit_test(a_share_sees_the_one_before),
        cmocka_unit_test(a_team_outlives_its_masters),
        cmocka_unit_test(teams_work_side_by_side),
        cmocka_unit_test(others_take_part),
        cmocka_unit_test(an_errand_of_one_is_a_plain_call),
        cmocka_unit_test(no_errand_is_lost_or_run_twice),
        cmocka_unit_test(a_team_leaves_no_errand_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
