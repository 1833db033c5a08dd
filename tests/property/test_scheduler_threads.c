/* test_scheduler_threads.c: a scheduler called from many threads at once, some of which cancel what others submitted, with
 * little memory: every generation ends once, whoever was not cancelled has the text it has alone, and the sums add up. The
 * thread sanitizer watches in its build. And what callbacks ask another thread to be told of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "compare.h"
#include "example.h"
#include "scheduled.h"
#include "shares.h"
#include "ways.h"

enum { CONTEXT = 70, KINDS = 6, THREADS = 4, EACH = 40 };

typedef struct crowd {
    const example *e;
    descent_scheduler *scheduler;
    gathering with;
    scheduled alone[KINDS];
    scheduled runs[THREADS * EACH];
    size_t kind[THREADS * EACH];
    atomic_size_t submitted[THREADS]; /* of its EACH */
} crowd;

typedef struct member {
    crowd *of;
    size_t number;
} member;

/* Submits its own, and cancels some of everybody's. */
static void *take_part(void *user)
{
    const member *m = user;
    crowd *c = m->of;
    rng r = rng_seeded(test_seed(340, m->number));
    for (size_t n = 0; n < EACH; n++) {
        size_t at = m->number * EACH + n;
        scheduled *run = &c->runs[at];
        c->kind[at] = rng_below(&r, KINDS);
        *run = (scheduled){.options = c->alone[c->kind[at]].options};
        run->options.background = rng_below(&r, 8) == 0;
        if (n > 0 && rng_below(&r, 3) == 0) run->options.like = c->runs[at - 1].generation_was;
        scheduled_submit(c->scheduler, c->e->engine, &c->with, run);
        atomic_store(&c->submitted[m->number], n + 1);
        size_t whose = rng_below(&r, THREADS), known = atomic_load(&c->submitted[whose]);
        if (known > 0 && rng_below(&r, 3) == 0) scheduled_cancel(&c->runs[whose * EACH + rng_below(&r, known)]);
        descent_scheduler_state state = descent_scheduler_describe(c->scheduler);
        if (state.cache.bytes > state.cache.byte_limit || state.running > 5 || state.seconds_since_step < 0)
            compare_fail("%zu running, %llu bytes", state.running, (unsigned long long)state.cache.bytes);
    }
    return NULL;
}

static void draw_kinds(crowd *c, example *e)
{
    for (size_t n = 0; n < KINDS; n++) {
        descent_generation_options o = {.prompt = e->tokens, .prompt_count = rng_between(&e->r, 1, 50)};
        o.limit = rng_below(&e->r, 20);
        o.depth = random_depth(&e->r, &e->model, 4);
        o.sampling = descent_sampling_defaults();
        o.sampling.seed = (int64_t)n;
        o.read_prompt = n == 0;
        if (test_deepens(e->model.family)) o.draft_steps = n % 2 ? DESCENT_DRAFT_AUTO : (int)rng_below(&e->r, o.depth.steps[0]);
        c->alone[n] = scheduled_alone(e->engine, DESCENT_PAGE_F32, &o);
    }
}

static void everybody_at_once(void **state)
{
    (void)state;
    for (size_t round = 0; round < TEST_FAMILIES; round += 1 + round % 2 * 2) {
        example_wish wish = {.family = family_of(round), .context = CONTEXT, .count = CONTEXT, .most = 3, .adjust = ways_widen};
        example e = example_draw(test_seed(341, round), &wish);
        crowd *c = test_alloc(1, sizeof *c);
        c->e = &e;
        draw_kinds(c, &e);
        uint64_t most = bytes_at(e.engine, DESCENT_PAGE_F32, CONTEXT, depth_of(e.model.family, 4, 4));
        const descent_scheduler_options options = {.cache.byte_limit = 2 * most, .threads = 2, .chunk = 9, .max_running = 5};
        c->scheduler = scheduled_start(e.engine, &options);
        gathering_begin(&c->with);
        pthread_t threads[THREADS];
        member members[THREADS];
        for (size_t n = 0; n < THREADS; n++) {
            members[n] = (member){c, n};
            assert_int_equal(pthread_create(&threads[n], NULL, take_part, &members[n]), 0);
        }
        for (size_t n = 0; n < THREADS; n++) assert_int_equal(pthread_join(threads[n], NULL), 0);
        gathering_wait(&c->with, (size_t)THREADS * EACH);
        uint64_t row_steps = 0, pauses = 0;
        size_t whole = 0;
        for (size_t n = 0; n < (size_t)THREADS * EACH; n++) {
            const scheduled *run = &c->runs[n];
            row_steps += run->report.row_steps;
            pauses += run->report.pauses;
            assert_int_equal(run->ends, 1);
            if (run->report.end != DESCENT_END_CANCELLED) {
                compare_scheduled(run, &c->alone[c->kind[n]]);
                whole++;
            }
            scheduled_free(&c->runs[n]);
        }
        descent_scheduler_state after = descent_scheduler_describe(c->scheduler);
        assert_int_equal(after.row_steps, row_steps);
        assert_int_equal(after.pauses, pauses);
        assert_true(whole > 0 && after.running + after.waiting + after.rows == 0);
        descent_scheduler_destroy(c->scheduler);
        gathering_finish(&c->with);
        for (size_t n = 0; n < KINDS; n++) scheduled_free(&c->alone[n]);
        free(c);
        example_free(&e);
    }
    shares_expected();
}

/* ---- Telling another thread ---------------------------------------------------------------------------------------- */

enum { TOLD = 30 };

typedef struct teller {
    descent_scheduler *scheduler;
    atomic_size_t asked, told, notices, ended;
} teller;

static void ask(teller *t)
{
    (void)atomic_fetch_add(&t->asked, 1);
    descent_scheduler_notify(t->scheduler);
}

static bool ask_for_token(void *user, const descent_choice *choice)
{
    (void)choice;
    ask(user);
    return true;
}

static void ask_at_end(void *user, const descent_generation_report *report)
{
    teller *t = user;
    (void)report;
    ask(t);
    (void)atomic_fetch_add(&t->ended, 1);
}

static void notice(void *user)
{
    teller *t = user;
    (void)atomic_fetch_add(&t->notices, 1);
    size_t asked = atomic_load(&t->asked), told = atomic_load(&t->told);
    while (told < asked && !atomic_compare_exchange_weak(&t->told, &told, asked)) {
    } /* notices may overlap */
}

/* Of everything that was asked for a notice comes, one for several that wait; where nobody wants any, asking does nothing. */
static void who_asks_is_noticed(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        example_wish wish = {.family = family_of(threads), .context = CONTEXT, .count = CONTEXT, .most = 3};
        example e = example_draw(test_seed(342, threads), &wish);
        teller t = {.scheduler = NULL};
        descent_scheduler_options options = {.threads = threads, .notify = threads < 3 ? notice : NULL, .notify_user = &t};
        descent_status status;
        assert_int_equal(descent_scheduler_create(e.engine, &options, &t.scheduler, &status), DESCENT_OK);
        for (size_t n = 0; n < TOLD; n++) {
            descent_generation *g;
            descent_generation_options o = {.prompt = e.tokens,
                                            .prompt_count = 1 + n % 40,
                                            .limit = n % 20,
                                            .sampling = descent_sampling_defaults(),
                                            .calls = {.chosen = ask_for_token, .ended = ask_at_end},
                                            .user = &t};
            assert_int_equal(descent_scheduler_submit(t.scheduler, &o, &g, &status), DESCENT_OK);
        }
        for (int i = 0; (t.ended < TOLD || (options.notify && t.told < t.asked)) && i < 10000; i++)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        assert_int_equal(t.ended, TOLD);
        assert_int_equal(t.told, options.notify ? t.asked : 0);
        assert_true(t.notices <= t.asked);
        descent_scheduler_destroy(t.scheduler);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everybody_at_once), cmocka_unit_test(who_asks_is_noticed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
