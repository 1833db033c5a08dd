/* test_scheduler.c: the text of a generation is its own, bit for bit, whatever runs beside it, in whatever chunks, on however
 * many threads, from a cold cache or a warm one, and however often it had to make room for others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"
#include "golden.h"
#include "scheduled.h"
#include "shares.h"
#include "ways.h"

enum { CONTEXT = 100, MOST = 64 };

/* Texts to generate, and what each is alone. */
typedef struct texts {
    scheduled alone[MOST];
    size_t count;
    uint32_t *prompts[MOST];
} texts;

/* One of few, so that pages are shared, by any criterion that the family has; a third of them exempts the prompt. */
static descent_exit some_exit(rng *r, test_family family, size_t prompt_count)
{
    static const float thresholds[DESCENT_EXIT_ARGMAX + 1][2] = {
        [DESCENT_EXIT_STATE] = {0.05f, 0.3f},  [DESCENT_EXIT_COSINE] = {1e-3f, 0.05f}, [DESCENT_EXIT_ENERGY] = {0.01f, 0.1f},
        [DESCENT_EXIT_ENTROPY] = {1.0f, 3.3f}, [DESCENT_EXIT_KL] = {1e-3f, 0.05f},     [DESCENT_EXIT_ARGMAX] = {1, 2}};
    descent_exit exit = {.criterion = (descent_exit_criterion)rng_between(
                             r, DESCENT_EXIT_STATE, family == TEST_NRGPT ? DESCENT_EXIT_ARGMAX : DESCENT_EXIT_ENERGY)};
    exit.threshold = thresholds[exit.criterion][rng_below(r, 2)];
    exit.min_steps = rng_below(r, 4) ? 1 : 2;
    exit.first = rng_below(r, 3) ? 0 : (uint32_t)prompt_count;
    return exit;
}

/* One of few, so that pages are shared; half of the time plain. */
static descent_history some_history(const rng *r, uint32_t T)
{
    rng apart = *r;
    descent_history h = {.policy = (descent_history_policy)rng_below(&apart, 3)};
    if (rng_below(&apart, 2)) return (descent_history){.policy = DESCENT_HISTORY_OWN};
    if (rng_below(&apart, 3)) h.prompt_steps = rng_below(&apart, 2) ? 2 : 5;
    if (h.policy == DESCENT_HISTORY_OWN && h.prompt_steps > 0 && h.prompt_steps < T) h.prompt_steps = T;
    return h;
}

/* A prompt of its own, or one that begins as an earlier one does; any depth, any sampling. */
static void add_text(texts *t, const example *e, rng *r, size_t longest)
{
    size_t count = rng_between(r, 1, longest), n = t->count++;
    uint32_t *prompt = random_tokens(r, &e->model, longest);
    if (n > 0 && rng_below(r, 2)) {
        const descent_generation_options *earlier = &t->alone[rng_below(r, n)].options;
        size_t same = earlier->prompt_count < count ? earlier->prompt_count : count;
        memcpy(prompt, earlier->prompt, same * sizeof *prompt);
    }
    t->prompts[n] = prompt;
    descent_generation_options options = {.prompt = prompt, .prompt_count = count, .limit = rng_below(r, 12)};
    options.depth = random_depth(r, &e->model, 6);
    options.sampling = descent_sampling_defaults();
    options.sampling.seed = (int64_t)rng_next(r);
    options.sampling.temperature = rng_below(r, 4) ? 1.0f : 0.0f;
    options.sampling.repetition_penalty = rng_below(r, 3) ? 1.0f : 1.3f;
    if (test_descends(e->model.family) && rng_below(r, 3) == 0)
        options.motion = motion_random(r, e->model.family == TEST_NRGPT);
    if (test_descends(e->model.family) && rng_below(r, 3) == 0) options.exit = some_exit(r, e->model.family, count);
    if (e->model.family == TEST_NRGPT && options.exit.criterion == DESCENT_EXIT_NONE && rng_below(r, 4) == 0) {
        options.motion = motion_scaled(0.5f);
        options.solver = (descent_solver){.method = DESCENT_SOLVER_ANDERSON, .nstep = 3, .residual = 0.3f};
    }
    if (e->model.family == TEST_NRGPT && options.solver.method == DESCENT_SOLVER_PLAIN)
        options.history = some_history(r, options.depth.steps[0]);
    options.read_prompt = rng_below(r, 6) == 0;
    options.share_group = rng_below(r, 5) == 0;
    t->alone[n] = scheduled_alone(e->engine, DESCENT_PAGE_F32, &options);
}

static void texts_free(texts *t)
{
    for (size_t n = 0; n < t->count; n++) {
        scheduled_free(&t->alone[n]);
        free(t->prompts[n]);
    }
}

/* All that were counted are those that the generations report. */
static void check_sums(descent_scheduler_state state, uint64_t row_steps, uint64_t pauses)
{
    uint64_t steps = 0, rows = 0;
    for (size_t i = 0; i < DESCENT_ROW_BUCKETS; i++) {
        steps += state.steps_by_rows[i];
        rows += state.rows_by_step[i];
    }
    assert_int_equal(state.steps, steps);
    assert_int_equal(state.row_steps, row_steps);
    assert_int_equal(rows, row_steps);
    assert_true(state.steps_sum >= rows);
    assert_int_equal(state.pauses, pauses);
}

/* Runs the first `count` of them, `times` times over in one scheduler, and compares each with what it is alone. Returns pauses.
 */
static uint64_t run_texts(const example *e, const texts *t, size_t count, size_t times,
                          const descent_scheduler_options *options)
{
    descent_scheduler *scheduler = scheduled_start(e->engine, options);
    uint64_t row_steps = 0, pauses = 0;
    for (size_t time = 0; time < times; time++) {
        gathering with;
        scheduled runs[MOST];
        gathering_begin(&with);
        for (size_t n = 0; n < count; n++) runs[n] = (scheduled){.options = t->alone[n].options};
        runs[0].gate = runs[0].options.limit > 0; /* the others come while it runs */
        scheduled_submit(scheduler, e->engine, &with, &runs[0]);
        if (runs[0].gate) gathering_wait_for_gate(&with);
        for (size_t n = 1; n < count; n++) scheduled_submit(scheduler, e->engine, &with, &runs[n]);
        gathering_open(&with);
        gathering_wait(&with, count);
        for (size_t n = 0; n < count; n++) {
            compare_scheduled(&runs[n], &t->alone[n]);
            row_steps += runs[n].report.row_steps;
            pauses += runs[n].report.pauses;
            scheduled_free(&runs[n]);
        }
        gathering_finish(&with);
    }
    check_sums(scheduled_stop(scheduler), row_steps, pauses);
    return pauses;
}

/* In two rounds of all families one of each as it comes, and one wide enough for threads to share its products. */
static example draw(uint64_t test, size_t round)
{
    _Static_assert(TEST_FAMILIES % 2 == 1, "a family comes at an even round and at an odd one");
    bool wide = round % 2 == 0;
    example_wish wish = {
        .family = family_of(round), .context = CONTEXT, .count = 1, .most = 4, .adjust = wide ? ways_widen : NULL};
    return example_draw(test_seed(test, round), &wish);
}

static void a_text_is_its_own_whatever_runs_beside_it(void **state)
{
    static const size_t others[] = {0, 7, 63};
    static const descent_scheduler_options ways[] = {{.threads = 1}, {.threads = 2, .chunk = 5}, {.threads = 1, .chunk = 1}};
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = draw(300, round);
        texts t = {.count = 0};
        for (size_t n = 0; n < MOST; n++) add_text(&t, &e, &e.r, n % 8 ? 50 : 90);
        for (size_t n = 0; n < 3; n++) (void)run_texts(&e, &t, 1 + others[n], n < 2 ? 2 : 1, &ways[(n + round) % 3]);
        texts_free(&t);
        example_free(&e);
    }
    shares_expected();
}

/* So little memory that most must make room for others, again and again. */
static void pauses_change_no_text(void **state)
{
    static const descent_scheduler_options ways[] = {{.threads = 2, .chunk = 9}, {.threads = 1}};
    uint64_t pauses = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(2 * TEST_FAMILIES); round++) {
        example e = draw(301, round);
        texts t = {.count = 0};
        uint64_t largest = 0;
        for (size_t n = 0; n < 24; n++) {
            add_text(&t, &e, &e.r, 30);
            descent_generation_options *o = &t.alone[n].options;
            o->limit += 55; /* texts grow by more pages than were counted when they began */
            scheduled_free(&t.alone[n]);
            t.alone[n] = scheduled_alone(e.engine, DESCENT_PAGE_F32, o);
            descent_sequence_options held = {.depth = o->depth, .motion = o->motion, .solver = o->solver, .exit = o->exit};
            uint64_t bytes = descent_cache_bytes_needed(e.engine, DESCENT_PAGE_F32, o->prompt_count + o->limit - 1, &held);
            if (bytes > largest) largest = bytes;
        }
        descent_scheduler_options way = ways[round % 2];
        way.cache.byte_limit = round < TEST_FAMILIES ? largest * 17 / 10 : largest;
        pauses += run_texts(&e, &t, t.count, 2, &way);
        texts_free(&t);
        example_free(&e);
    }
    assert_true(pauses > 0);
    shares_expected();
}

/* A model of another implementation's weights: one prompt, several depths at once, on pages of both types. */
static void golden_models_too(void **state)
{
    static const char *const names[] = {"nrgpt-ff2w", "cem-shared-eta3"};
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        golden model = golden_open(names[m]);
        descent_model *engine = drive_open(model.path);
        compare_about("%s", names[m]);
        for (int type = 0; type < 2; type++) {
            descent_scheduler_options how = {.cache.page_type = (descent_page_type)type, .chunk = 6, .threads = 2};
            descent_scheduler *scheduler = scheduled_start(engine, &how);
            gathering with;
            scheduled runs[9], alone[9];
            gathering_begin(&with);
            for (size_t n = 0; n < 9; n++) {
                descent_generation_options o = {.prompt = model.tokens,
                                                .prompt_count = model.count - n % 3,
                                                .limit = 9,
                                                .sampling = descent_sampling_defaults()};
                o.depth = (descent_depth){{(uint16_t)(1 + n % 4), m ? (uint16_t)(1 + n / 4) : 0}};
                o.sampling.seed = (int64_t)n;
                alone[n] = scheduled_alone(engine, how.cache.page_type, &o);
                runs[n] = (scheduled){.options = o};
            }
            for (size_t n = 0; n < 9; n++) scheduled_submit(scheduler, engine, &with, &runs[n]);
            gathering_wait(&with, 9);
            for (size_t n = 0; n < 9; n++) {
                compare_scheduled(&runs[n], &alone[n]);
                scheduled_free(&runs[n]);
                scheduled_free(&alone[n]);
            }
            descent_scheduler_destroy(scheduler);
            gathering_finish(&with);
        }
        descent_model_close(engine);
        golden_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_text_is_its_own_whatever_runs_beside_it),
                                       cmocka_unit_test(pauses_change_no_text), cmocka_unit_test(golden_models_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
