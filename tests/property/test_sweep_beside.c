/* test_sweep_beside.c: a sweep's measures are its own, bit for bit, whatever runs beside it, in whatever chunks, through
 * pauses, in the background; what sweeps share, and whose turn it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "swept.h"

enum { MOST_SWEEPS = 12 };

/* ---- Beside others ------------------------------------------------------------------------------------------------- */

/* Sweeps of one model, and texts that are generated meanwhile. */
typedef struct crowd {
    swept *sweeps[MOST_SWEEPS];
    size_t n_sweeps;
    scheduled texts[MOST_SWEEPS];
    uint32_t *prompts[MOST_SWEEPS];
    size_t n_texts;
} crowd;

/* Each sweep is run alone first, to the bits that it must have. Some begin as others do, so that pages are shared. */
static crowd crowd_draw(const example *e, rng *r, size_t n)
{
    crowd c = {.n_sweeps = n, .n_texts = n};
    for (size_t i = 0; i < n; i++) {
        swept *s = c.sweeps[i] = swept_draw(e, r, SWEPT_CONTEXT + 1);
        if (i > 0 && rng_below(r, 2)) {
            const swept *other = c.sweeps[rng_below(r, i)];
            size_t same = other->options.count < s->options.count ? other->options.count : s->options.count;
            memcpy(s->tokens, other->tokens, (same < 65 ? same : 65) * sizeof *s->tokens);
        }
        if (test_descends(e->model.family) && rng_below(r, 3) == 0)
            s->options.how.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 0.2f};
        swept_run(e->engine, s, &swept_ways[0]);
        memcpy(s->alone, s->measures, sizeof s->alone);
        s->options.background = rng_below(r, 2);
        size_t count = rng_between(r, 1, SWEPT_CONTEXT - 10);
        c.prompts[i] = random_tokens(r, &e->model, count);
        c.texts[i] = (scheduled){.options = {.prompt = c.prompts[i],
                                             .prompt_count = count,
                                             .limit = rng_between(r, 1, 9),
                                             .depth = random_depth(r, &e->model, 6),
                                             .sampling = descent_sampling_defaults()}};
    }
    return c;
}

static void crowd_free(crowd *c)
{
    for (size_t i = 0; i < c->n_sweeps; i++) {
        free(c->sweeps[i]);
        scheduled_free(&c->texts[i]);
        free(c->prompts[i]);
    }
}

/* All at once, the texts among the sweeps; the first text waits so that there is something to begin beside. Returns pauses. */
static uint64_t run_crowd(const example *e, crowd *c, const descent_scheduler_options *how)
{
    gathering with;
    uint64_t pauses = 0, row_steps = 0;
    descent_scheduler *scheduler = scheduled_start(e->engine, how);
    gathering_begin(&with);
    for (size_t i = 0; i < c->n_texts; i++) c->texts[i] = (scheduled){.options = c->texts[i].options, .gate = i == 0};
    for (size_t i = 0; i < c->n_sweeps; i++) {
        swept_submit(scheduler, &with, c->sweeps[i]);
        scheduled_submit(scheduler, e->engine, &with, &c->texts[i]);
        if (i == 0) gathering_wait_for_gate(&with);
    }
    gathering_open(&with);
    gathering_wait(&with, 2 * c->n_sweeps);
    for (size_t i = 0; i < c->n_sweeps; i++) {
        compare_swept(c->sweeps[i], true);
        pauses += c->sweeps[i]->result.pauses;
        row_steps += c->sweeps[i]->result.row_steps + c->texts[i].report.row_steps;
        scheduled_free(&c->texts[i]);
    }
    assert_int_equal(scheduled_stop(scheduler).row_steps, row_steps);
    gathering_finish(&with);
    return pauses;
}

static void the_same_bits_whatever_runs_beside(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = swept_example(404, round);
        crowd c = crowd_draw(&e, &e.r, MOST_SWEEPS);
        for (size_t n = 0; n < 3; n++) (void)run_crowd(&e, &c, &swept_ways[n]);
        crowd_free(&c);
        example_free(&e);
    }
}

/* The first text comes to hold as much as fits once, but little when the long sweep behind it begins, which must then make
 * room. */
static void make_it_grow(const example *e, crowd *c)
{
    descent_depth deepest = {{test_has_depth(e->model.family, 0) ? 6 : 0, test_has_depth(e->model.family, 1) ? 6 : 0}};
    for (size_t n = 0; n < 2; n++) {
        swept *s = c->sweeps[n];
        s->options.count = n ? SWEPT_CONTEXT + 1 : 2; /* the first is gone before the text has grown */
        s->options.first = 1;
        s->options.background = false;
        for (size_t i = 0; i <= SWEPT_CONTEXT; i++) s->tokens[i] = (uint32_t)(i % e->model.vocab);
        s->depths[0] = deepest;
        swept_run(e->engine, s, &swept_ways[0]);
        memcpy(s->alone, s->measures, sizeof s->alone);
    }
    c->texts[0].options.prompt_count = 1;
    c->texts[0].options.limit = SWEPT_CONTEXT;
    c->texts[0].options.depth = deepest;
}

/* So little memory that most must make room for others, again and again. */
static void pauses_change_no_measure(void **state)
{
    uint64_t pauses = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = swept_example(405, round);
        crowd c = crowd_draw(&e, &e.r, 8);
        make_it_grow(&e, &c);
        descent_scheduler_options way = swept_ways[2];       /* slow enough to be there when the text has grown */
        descent_sequence_options most = {.depth = {{7, 6}}}; /* a plane more than any, for energies behind the last step */
        for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++)
            if (!descent_model_describe(e.engine)->trained.steps[k]) most.depth.steps[k] = 0;
        if (test_descends(e.model.family)) most.motion.momentum = 0.5f;
        uint64_t bytes = descent_cache_bytes_needed(e.engine, DESCENT_PAGE_F32, SWEPT_CONTEXT, &most);
        way.cache.byte_limit = round < TEST_FAMILIES ? bytes * 17 / 10 : bytes;
        pauses += run_crowd(&e, &c, &way);
        crowd_free(&c);
        example_free(&e);
    }
    assert_true(pauses > 0);
}

/* Answers to one question share its pages: those before the first token that predicts. */
static void what_comes_before_the_answers_is_run_once(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = swept_example(406, round);
        swept *s[3];
        gathering with;
        descent_scheduler *scheduler = scheduled_start(e.engine, &swept_ways[0]);
        gathering_begin(&with);
        for (size_t i = 0; i < 3; i++) {
            s[i] = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
            descent_sweep_options *o = &s[i]->options;
            o->count = 75;
            o->first = 70;
            if (i == 0) o->how.motion.noise.sigma = 0; /* with noise nothing is shared */
            o->how = s[0]->options.how;
            o->n_depths = test_has_depth(e.model.family, 0) || test_has_depth(e.model.family, 1) ? 3 : 1;
            for (uint16_t d = 0; d < 3; d++)
                s[i]->depths[d] = (descent_depth){
                    {test_has_depth(e.model.family, 0) ? 4 - d : 0, test_has_depth(e.model.family, 1) ? 1 + d : 0}};
            for (size_t k = 0; k < SWEPT_CONTEXT; k++)
                s[i]->tokens[k] = (uint32_t)(i > 0 && k < 70 ? s[0]->tokens[k] : k % e.model.vocab);
            s[i]->tokens[72] = (uint32_t)i % (uint32_t)e.model.vocab;
            swept_expect(e.engine, DESCENT_PAGE_F32, s[i]);
            swept_submit(scheduler, &with, s[i]);
            gathering_wait(&with, i + 1);
            compare_swept(s[i], false);
        }
        /* 64 of 74 tokens lie in whole pages before the one that predicts */
        for (size_t i = 1; i < 3; i++) assert_int_equal(s[i]->result.row_steps, s[0]->result.row_steps * 10 / 74);
        for (size_t i = 0; i < 3; i++) free(s[i]);
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        example_free(&e);
    }
}

/* Two sweeps that stand ready together. */
static void run_pair(const example *e, swept *a, swept *b, uint32_t chunk)
{
    gathering with;
    descent_scheduler *scheduler = scheduled_start(e->engine, &(descent_scheduler_options){.threads = 1, .chunk = chunk});
    scheduled first = {.options = {.prompt = a->tokens, .prompt_count = 1, .sampling = descent_sampling_defaults()},
                       .end_gate = true};
    gathering_begin(&with);
    scheduled_submit(scheduler, e->engine, &with, &first);
    gathering_wait_for_gate(&with);
    swept_submit(scheduler, &with, a);
    swept_submit(scheduler, &with, b);
    gathering_open(&with);
    gathering_wait(&with, 3);
    scheduled_free(&first);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
}

static void others_are_those_of_other_experiments(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = swept_example(407, round);
        swept *a = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1), *b = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1);
        run_pair(&e, a, b, 128);
        assert_false(a->result.shared || b->result.shared);
        b->options.experiment = 1;
        run_pair(&e, a, b, 128);
        assert_true(a->result.shared && b->result.shared);
        free(a);
        free(b);
        example_free(&e);
    }
}

/* Rows of one text are computed faster together: the long sweep in front is not held up by the short one behind it. */
static void the_first_sweep_goes_first(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(TEST_FAMILIES); round++) {
        example e = swept_example(412, round);
        swept *a = swept_draw(&e, &e.r, SWEPT_CONTEXT + 1), *b = swept_draw(&e, &e.r, 40);
        a->options.n_depths = b->options.n_depths = 1;
        a->depths[0] = b->depths[0];
        a->options.how.exit.criterion = b->options.how.exit.criterion = DESCENT_EXIT_NONE;
        a->options.count = 80;
        b->options.count = 20;
        a->options.first = b->options.first = 1;
        for (size_t i = 0; i < 80; i++) a->tokens[i] = b->tokens[i] = (uint32_t)((i * 7 + 3) % e.model.vocab);
        b->tokens[0] = (b->tokens[0] + 1) % (uint32_t)e.model.vocab;
        run_pair(&e, a, b, 8);
        assert_true(a->order < b->order);
        free(a);
        free(b);
        example_free(&e);
    }
}

/* ---- Ends ---------------------------------------------------------------------------------------------------------- */

/* One of two is cancelled from the other's end, or from the end of a text that came before both. */
static void a_cancelled_sweep_ends_alone(void **state)
{
    size_t cancelled = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = swept_example(408, round);
        crowd c = crowd_draw(&e, &e.r, 6);
        gathering with;
        descent_scheduler *scheduler = scheduled_start(e.engine, &swept_ways[round % 3]);
        gathering_begin(&with);
        for (size_t i = 0; i < c.n_sweeps; i++) swept_submit(scheduler, &with, c.sweeps[i]);
        gathering_wait(&with, round % 3);
        (void)pthread_mutex_lock(&with.lock);
        for (size_t i = 0; i < c.n_sweeps; i += 2)
            if (c.sweeps[i]->handle) descent_generation_cancel(c.sweeps[i]->handle);
        (void)pthread_mutex_unlock(&with.lock);
        gathering_wait(&with, c.n_sweeps);
        for (size_t i = 0; i < c.n_sweeps; i++) {
            bool gone = c.sweeps[i]->result.end == DESCENT_END_CANCELLED;
            cancelled += gone;
            if (gone) assert_int_equal(i % 2, 0);
            if (!gone) compare_swept(c.sweeps[i], true);
        }
        descent_scheduler_state left = descent_scheduler_describe(scheduler);
        assert_int_equal(left.running + left.waiting + left.rows, 0);
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        crowd_free(&c);
        example_free(&e);
    }
    assert_true(cancelled > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits_whatever_runs_beside),
                                       cmocka_unit_test(pauses_change_no_measure),
                                       cmocka_unit_test(what_comes_before_the_answers_is_run_once),
                                       cmocka_unit_test(others_are_those_of_other_experiments),
                                       cmocka_unit_test(the_first_sweep_goes_first),
                                       cmocka_unit_test(a_cancelled_sweep_ends_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
