/* test_keeping_step.c: texts of a model whose head is heavy beside its block choose their tokens in the same steps, whenever
 * they came; where the head is light, or a text may end at any step, nobody waits for anybody.
 *
 * The scheduler counts its steps, and a callback reads the count: so two tokens were chosen in the same step exactly where
 * their counts are the same. A text comes out of phase by a gate of another depth, which stands still while it is submitted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "compare.h"
#include "drive.h"
#include "random_model.h"
#include "scheduled.h"

enum { CONTEXT = 60, LONG = 40, SHORT = 5, LEADER = 0, GATE = 1, LATE = 2, TEXTS = 3 };

/* One at a time: a callback of a generation knows nothing else. */
static struct {
    descent_model *engine;
    uint32_t *tokens;
    descent_scheduler *scheduler;
    gathering with;
    scheduled runs[TEXTS];
    uint64_t at[TEXTS][LONG]; /* steps made when each token was chosen */
} now;

static void note_step(descent_generation *generation, size_t generated)
{
    for (size_t i = 0; i < TEXTS; i++)
        if (now.runs[i].generation_was == generation)
            now.at[i][generated - 1] = descent_scheduler_describe(now.scheduler).steps;
}

/* A head of many tokens beside a small block, or of few beside a large one. */
static void set_up(uint64_t seed, bool heavy, rng *r)
{
    *r = rng_seeded(seed);
    test_model model = random_shape(r, TEST_NRGPT, CONTEXT);
    model.width = heavy ? 20 : 64;
    model.vocab = heavy ? 90 : 5;
    model.heads = heavy ? 1 : 4;
    random_weights(&model, r);
    now.tokens = random_tokens(r, &model, CONTEXT);
    now.engine = drive_open_test_model(&model);
    compare_about("seed %llu, %s", (unsigned long long)seed, test_model_words(&model));
    test_model_free(&model);
    now.scheduler = scheduled_start(now.engine, &(descent_scheduler_options){.threads = 1});
    gathering_begin(&now.with);
}

static void tear_down(void)
{
    gathering_wait(&now.with, TEXTS);
    descent_scheduler_destroy(now.scheduler);
    for (size_t i = 0; i < TEXTS; i++) {
        scheduled alone = scheduled_alone(now.engine, DESCENT_PAGE_F32, &now.runs[i].options);
        compare_scheduled(&now.runs[i], &alone);
        scheduled_free(&alone);
        scheduled_free(&now.runs[i]);
    }
    gathering_finish(&now.with);
    descent_model_close(now.engine);
    free(now.tokens);
}

static void submit(size_t i, size_t prompt, size_t limit, unsigned steps, bool may_exit)
{
    scheduled *s = &now.runs[i];
    *s = (scheduled){.options = {.prompt = now.tokens + 3 * i, .prompt_count = prompt, .limit = limit}, .each = note_step};
    s->options.depth = depth_of(TEST_NRGPT, steps, 0);
    s->options.sampling = descent_sampling_defaults();
    s->options.sampling.seed = 5;
    s->gate = i != LATE;
    if (may_exit) s->options.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 1e-30f};
    scheduled_submit(now.scheduler, now.engine, &now.with, s);
}

/* The leader's first token is chosen; `phase` steps later the late text comes, which finishes its prompt before it waits. */
static void run_out_of_phase(unsigned leader, unsigned late, unsigned phase, rng *r, bool leader_exits, bool late_exits)
{
    submit(LEADER, 1, LONG, leader, leader_exits);
    gathering_wait_for_gate(&now.with);
    submit(GATE, 1, 1, phase, false);
    gathering_open(&now.with);
    gathering_wait_for_gate(&now.with);
    submit(LATE, rng_between(r, 1, 4), SHORT, late, late_exits);
    gathering_open(&now.with);
    gathering_wait(&now.with, TEXTS);
    assert_int_equal(now.at[GATE][0], now.at[LEADER][0] + phase);
    assert_int_equal(now.at[LATE][0], now.at[GATE][0] + late);
    assert_true(now.at[LATE][SHORT - 1] <= now.at[LEADER][LONG - 1]); /* the one was there for all of the other */
    for (size_t k = 1; k < LONG; k++) assert_int_equal(now.at[LEADER][k], now.at[LEADER][k - 1] + leader);
}

static bool chosen_with_the_leader(size_t token)
{
    for (size_t k = 0; k < LONG; k++)
        if (now.at[LEADER][k] == now.at[LATE][token]) return true;
    return false;
}

static void expect_no_waiting(unsigned late)
{
    for (size_t k = 1; k < SHORT; k++) assert_int_equal(now.at[LATE][k], now.at[LATE][k - 1] + late);
}

/* Depths of which one divides the other: from its second token on the deeper text's tokens are all chosen with one of the
 * other's. It waits once, for less than the time of the shallower one's token. */
static void a_heavy_head_is_read_for_all_at_once(void **state)
{
    (void)state;
    size_t waited = 0;
    for (size_t round = 0; round < test_rounds(24); round++) {
        rng r;
        set_up(test_seed(470, round), true, &r);
        unsigned both = (unsigned)rng_between(&r, 2, 7), times = (unsigned)rng_between(&r, 1, 3);
        unsigned leader = rng_below(&r, 2) ? both : both * times, late = leader > both ? both : both * times;
        run_out_of_phase(leader, late, (unsigned)rng_between(&r, 1, leader), &r, false, false);
        uint64_t wait = now.at[LATE][1] - now.at[LATE][0] - late;
        if (wait >= both) compare_fail("a text of T = %u waited %llu steps", late, (unsigned long long)wait);
        waited += wait > 0;
        for (size_t k = 1; k < SHORT; k++) {
            if ((now.at[LATE][k] - now.at[LEADER][0]) % both != 0)
                compare_fail("token %zu of T = %u comes %llu steps after the first of T = %u", k, late,
                             (unsigned long long)(now.at[LATE][k] - now.at[LEADER][0]), leader);
            if (late >= leader) assert_true(chosen_with_the_leader(k));
            if (k > 1) assert_int_equal(now.at[LATE][k], now.at[LATE][k - 1] + late);
        }
        tear_down();
    }
    assert_true(waited > 0);
}

static void depths_that_never_meet_are_not_waited_for(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        rng r;
        set_up(test_seed(471, round), true, &r);
        unsigned leader = (unsigned)rng_between(&r, 3, 7), late = leader + (unsigned)rng_between(&r, 1, leader - 1);
        run_out_of_phase(leader, late, (unsigned)rng_between(&r, 1, leader), &r, false, false);
        expect_no_waiting(late);
        tear_down();
    }
}

static void a_light_head_is_not_waited_for(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        rng r;
        set_up(test_seed(472, round), false, &r);
        unsigned steps = (unsigned)rng_between(&r, 2, 7);
        run_out_of_phase(steps, steps, (unsigned)rng_between(&r, 1, steps - 1), &r, false, false);
        expect_no_waiting(steps);
        assert_false(chosen_with_the_leader(1));
        tear_down();
    }
}

/* Neither does a text wait that may exit, nor is one waited for. It does not exit here, so its steps can be told. */
static void what_may_exit_does_not_keep_step(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(8); round++) {
        rng r;
        set_up(test_seed(473, round), true, &r);
        unsigned steps = (unsigned)rng_between(&r, 2, 7);
        bool leader_exits = round % 2 == 0;
        run_out_of_phase(steps, steps, (unsigned)rng_between(&r, 1, steps - 1), &r, leader_exits, !leader_exits);
        expect_no_waiting(steps);
        assert_false(chosen_with_the_leader(1));
        tear_down();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heavy_head_is_read_for_all_at_once),
        cmocka_unit_test(depths_that_never_meet_are_not_waited_for),
        cmocka_unit_test(a_light_head_is_not_waited_for),
        cmocka_unit_test(what_may_exit_does_not_keep_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
