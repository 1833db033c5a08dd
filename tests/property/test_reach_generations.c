/* test_reach_generations.c: a generation whose prompt is reached into (descent_reach) does what a sequence does that is reached
 * into by hand, also where it is paused in the middle and begun again; and what cannot be reached into is refused at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"
#include "scheduled.h"

enum { COUNT = 40 };

/* What a generation's observer keeps: the states, in the layout of drive.h's records. The first observation of token `gate`
 * waits until it is opened. */
typedef struct watched {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool waiting, open, ended;
    size_t gate; /* SIZE_MAX: none */
    size_t width, last_program;
    uint32_t last_step, kinds;
    float *finals; /* [COUNT][C] */
    descent_generation_report report;
} watched;

static void observed(void *user, const descent_observation *o)
{
    watched *w = user;
    (void)pthread_mutex_lock(&w->lock);
    if (o->site.position == w->gate && !w->open) {
        w->waiting = true;
        (void)pthread_cond_broadcast(&w->changed);
        while (!w->open) (void)pthread_cond_wait(&w->changed, &w->lock);
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (o->final && o->site.layer * w->kinds + o->site.kind == w->last_program)
        memcpy(w->finals + o->site.position * w->width, o->x, w->width * sizeof(float));
}

static bool chosen(void *user, const descent_choice *choice)
{
    (void)user;
    (void)choice;
    return true;
}

static void ended(void *user, const descent_generation_report *report)
{
    watched *w = user;
    (void)pthread_mutex_lock(&w->lock);
    w->report = *report;
    w->ended = true;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

static void wait_for(watched *w, const bool *what)
{
    (void)pthread_mutex_lock(&w->lock);
    while (!*what) (void)pthread_cond_wait(&w->changed, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
}

static watched watch(const example *e, size_t gate)
{
    const descent_model_info *info = descent_model_describe(e->engine);
    return (watched){.lock = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER,
                     .gate = gate,
                     .width = info->width,
                     .kinds = info->kinds,
                     .last_program = (size_t)info->layers * info->kinds - 1,
                     .finals = test_alloc(COUNT * info->width, sizeof(float))};
}

static descent_generation_options asking(const example *e, const descent_reach *reach, watched *w)
{
    return (descent_generation_options){.prompt = e->tokens,
                                        .prompt_count = COUNT,
                                        .sampling = descent_sampling_defaults(),
                                        .depth = e->depth,
                                        .observe = DESCENT_OBSERVE_STATE | DESCENT_OBSERVE_FINAL,
                                        .observe_prompt = true,
                                        .reach = reach,
                                        .background = true,
                                        .calls = {.chosen = chosen, .ended = ended, .observe = observed},
                                        .user = w};
}

/* The last states [COUNT][C] of a generation in the background that is paused, once, where `gate` says. */
static float *run_paused(const example *e, const descent_reach *reach)
{
    descent_scheduler *scheduler;
    descent_generation *generation, *other;
    descent_status status;
    watched w = watch(e, COUNT / 2), front = watch(e, SIZE_MAX);
    descent_scheduler_options how = {.threads = 1, .max_running = 1, .chunk = 8};
    expect_ok(descent_scheduler_create(e->engine, &how, &scheduler, &status), &status);
    descent_generation_options options = asking(e, reach, &w);
    expect_ok(descent_scheduler_submit(scheduler, &options, &generation, &status), &status);
    wait_for(&w, &w.waiting);
    options = asking(e, NULL, &front);
    options.background = false;
    expect_ok(descent_scheduler_submit(scheduler, &options, &other, &status), &status);
    (void)pthread_mutex_lock(&w.lock);
    w.open = true;
    (void)pthread_cond_broadcast(&w.changed);
    (void)pthread_mutex_unlock(&w.lock);
    wait_for(&w, &w.ended);
    wait_for(&front, &front.ended);
    descent_scheduler_destroy(scheduler);
    if (w.report.end != DESCENT_END_LENGTH || w.report.pauses != 1)
        compare_fail("ended as %d after %u pauses: %s", (int)w.report.end, w.report.pauses, w.report.status.message);
    free(front.finals);
    return w.finals;
}

/* The same by hand. */
static float *run_by_hand(const example *e, const descent_reach *reach)
{
    descent_status status;
    uint32_t steps;
    descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence *sequence = drive_sequence(cache, e->depth, false, e->tokens, reach->previous ? 1 : COUNT);
    size_t width = descent_model_describe(e->engine)->width;
    float *finals = test_alloc(COUNT * width, sizeof *finals);
    for (size_t i = 0; i < reach->n_changes; i++)
        expect_ok(descent_sequence_intervene(sequence, reach->changes[i].state.site, reach->changes[i].how,
                                             reach->changes[i].state.values, &status),
                  &status);
    for (size_t i = 0; i < reach->n_starts; i++)
        expect_ok(descent_sequence_start(sequence, reach->starts[i].site, reach->starts[i].values, &status), &status);
    drive_finish(batch, sequence);
    for (size_t i = 0; i < COUNT; i++) {
        if (reach->previous && i > 0) {
            drive_append(sequence, e->tokens + i, 1);
            descent_site site = {.position = i};
            expect_ok(descent_sequence_start(sequence, site, finals + (i - 1) * width, &status), &status);
            drive_finish(batch, sequence);
        }
        expect_ok(descent_sequence_state(sequence, i, finals + i * width, &steps, &status), &status);
    }
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return finals;
}

static void a_generation_is_reached_into_as_a_sequence_is(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(28); round++) {
        example_wish wish = {.family = family_of(round), .context = COUNT, .count = COUNT};
        example e = example_draw(test_seed(392, round), &wish);
        size_t width = descent_model_describe(e.engine)->width, way = round / TEST_FAMILIES % 3;
        float *values = test_alloc(3 * width, sizeof *values);
        for (size_t c = 0; c < 3 * width; c++) values[c] = (float)rng_below(&e.r, 2000) / 1000.0f - 1.0f;
        descent_change changes[2] = {{{{.position = 3}, values}, DESCENT_ADD_X},
                                     {{{.position = COUNT - 5}, values}, DESCENT_SET_G}};
        descent_state starts[2] = {{{.position = 7}, values + width}, {{.position = 30}, values + 2 * width}};
        descent_reach reach = {
            .changes = changes, .n_changes = way == 1 ? 0 : 2, .starts = starts, .n_starts = way == 1 ? 2 : 0};
        if (way == 2) reach = (descent_reach){.previous = true};
        float *got = run_paused(&e, &reach), *expected = run_by_hand(&e, &reach);
        compare_bits(got, expected, COUNT * width, "last states of a generation that is reached into");
        free(got);
        free(expected);
        free(values);
        example_free(&e);
    }
}

/* A text in the background, for which another one may wait to be let in behind its first token. */
static scheduled run_text(const example *e, const descent_reach *reach, bool pause)
{
    gathering with;
    scheduled text = {.options = {.prompt = e->tokens,
                                  .prompt_count = 5,
                                  .limit = 8,
                                  .sampling = descent_sampling_defaults(),
                                  .depth = e->depth,
                                  .reach = reach,
                                  .background = true},
                      .gate = pause};
    scheduled other = {.options = text.options};
    other.options.reach = NULL;
    other.options.background = false;
    descent_scheduler *scheduler = scheduled_start(e->engine, &(descent_scheduler_options){.threads = 1, .max_running = 1});
    gathering_begin(&with);
    scheduled_submit(scheduler, e->engine, &with, &text);
    if (pause) {
        gathering_wait_for_gate(&with);
        scheduled_submit(scheduler, e->engine, &with, &other);
        gathering_open(&with);
    }
    gathering_wait(&with, pause ? 2 : 1);
    assert_int_equal(text.report.pauses, pause);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
    scheduled_free(&other);
    return text;
}

/* What is chosen starts from its embedding, also where the text is begun again and it stands behind the prompt already. */
static void noise_is_of_the_prompt(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(TEST_FAMILIES); round++) {
        example_wish wish = {.family = family_of(round), .context = COUNT, .count = COUNT};
        example e = example_draw(test_seed(394, round), &wish);
        descent_reach reach = {.noise = 2, .noise_seed = 3};
        scheduled paused = run_text(&e, &reach, true), expected = run_text(&e, &reach, false);
        compare_scheduled(&paused, &expected);
        scheduled_free(&paused);
        scheduled_free(&expected);
        example_free(&e);
    }
}

static void what_cannot_be_reached_into_is_refused(void **state)
{
    (void)state;
    for (size_t round = 0; round < 2; round++) {
        example_wish wish = {.family = round ? TEST_CEM : TEST_NRGPT, .context = COUNT, .count = COUNT};
        example e = example_draw(test_seed(393, round), &wish);
        float *zeros = test_alloc(descent_model_describe(e.engine)->width, sizeof *zeros),
              *wrong = test_alloc(descent_model_describe(e.engine)->width, sizeof *wrong);
        wrong[1] = NAN;
        descent_scheduler *scheduler;
        descent_generation *generation;
        descent_status status;
        watched w = watch(&e, SIZE_MAX);
        expect_ok(descent_scheduler_create(e.engine, &(descent_scheduler_options){.threads = 1}, &scheduler, &status), &status);
        descent_state here[2] = {{{.position = 1}, zeros}, {{.position = 1}, zeros}};
        descent_state behind = {{.position = COUNT}, zeros}, late = {{.position = 1, .step = 200}, zeros},
                      bad = {{.position = 1}, wrong};
        descent_state middle = {{.position = 1, .step = 1}, zeros};
        descent_change at_end = {behind, DESCENT_ADD_X}, unknown = {here[0], (descent_intervention)4},
                       not_finite = {bad, DESCENT_SET_G};
        const struct {
            descent_reach reach;
            const char *words;
        } cases[] = {{{.starts = here, .n_starts = 2}, "both of position 1"},
                     {{.starts = &behind, .n_starts = 1}, "40 tokens"},
                     {{.starts = &late, .n_starts = 1}, "200"},
                     {{.starts = &bad, .n_starts = 1}, "not finite"},
                     {{.starts = here, .n_starts = 1, .previous = true}, "one of them"},
                     {{.noise = 1, .previous = true}, "one of them"},
                     {{.noise = -1}, "noise"},
                     {{.noise = NAN}, "noise"},
                     {{.starts = here, .n_starts = COUNT + 1}, "at most"},
                     {{.changes = &at_end, .n_changes = 1}, "40 tokens"},
                     {{.changes = &unknown, .n_changes = 1}, "0 to 3"},
                     {{.changes = &not_finite, .n_changes = 1}, "not finite"},
                     {{.changes = &unknown, .n_changes = 4097}, "4096"}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            descent_generation_options options = asking(&e, &cases[i].reach, &w);
            expect_code(descent_scheduler_submit(scheduler, &options, &generation, &status), DESCENT_BAD_ARGUMENT, &status,
                        cases[i].words);
        }
        if (round && e.depth.steps[0] > 1) {
            descent_reach reach = {.starts = &middle, .n_starts = 1};
            descent_generation_options options = asking(&e, &reach, &w);
            expect_code(descent_scheduler_submit(scheduler, &options, &generation, &status), DESCENT_UNSUPPORTED, &status,
                        "step 0");
        }
        descent_scheduler_destroy(scheduler);
        free(w.finals);
        free(zeros);
        free(wrong);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_generation_is_reached_into_as_a_sequence_is),
                                       cmocka_unit_test(noise_is_of_the_prompt),
                                       cmocka_unit_test(what_cannot_be_reached_into_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
