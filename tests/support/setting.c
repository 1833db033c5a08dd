/* setting.c: see setting.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "setting.h"

#include "compare.h"

void setting_start(setting *s, const descent_scheduler_options *options)
{
    s->scheduler = scheduled_start(s->e.engine, options);
    gathering_begin(&s->with);
}

setting setting_up(uint64_t test, size_t kind, const descent_scheduler_options *options)
{
    setting s = {.e.r = rng_seeded(test_seed(test, kind))};
    s.e.model = random_model(&s.e.r, (test_family)kind, SETTING_CONTEXT);
    s.e.tokens = random_tokens(&s.e.r, &s.e.model, SETTING_TOKENS);
    s.e.depth = random_depth(&s.e.r, &s.e.model, 4);
    s.e.engine = drive_open_test_model(&s.e.model);
    compare_about("seed %llu, %s", (unsigned long long)test_seed(test, kind), test_model_words(&s.e.model));
    descent_scheduler_options one = options ? *options : (descent_scheduler_options){.chunk = 0};
    one.threads = 1;
    s.scheduler = scheduled_start(s.e.engine, &one);
    return s;
}

/* It has no reference to compare with: that would be of the engine's numbers. */
void setting_release_model(setting *s)
{
    descent_model_close(s->e.engine);
    test_model_free(&s->e.model);
    free(s->e.tokens);
}

void setting_down(setting *s)
{
    gathering_wait(&s->with, s->count);
    for (size_t n = 0; n < s->count; n++) {
        assert_int_equal(s->runs[n].ends, 1);
        scheduled_free(&s->runs[n]);
    }
    (void)scheduled_stop(s->scheduler);
    gathering_finish(&s->with);
    setting_release_model(s);
}

scheduled setting_ask(const setting *s, size_t from, size_t count, size_t limit)
{
    scheduled run = {.options = {.prompt = s->e.tokens + from, .prompt_count = count, .limit = limit, .depth = s->e.depth}};
    run.options.sampling = descent_sampling_defaults();
    run.options.sampling.seed = 5;
    return run;
}

scheduled *setting_submit(setting *s, scheduled run)
{
    scheduled *kept = &s->runs[s->count++];
    *kept = run;
    scheduled_submit(s->scheduler, s->e.engine, &s->with, kept);
    return kept;
}

scheduled *setting_shut(setting *s, scheduled run)
{
    run.gate = true;
    scheduled *gate = setting_submit(s, run);
    gathering_wait_for_gate(&s->with);
    return gate;
}

void setting_expect_alone(const setting *s, const scheduled *run)
{
    scheduled alone = scheduled_alone(s->e.engine, DESCENT_PAGE_F32, &run->options);
    compare_scheduled(run, &alone);
    scheduled_free(&alone);
}

uint64_t setting_row_steps(const setting *s)
{
    return row_steps_at(&s->e.model, s->e.depth);
}

void never_observed(void *user, const descent_observation *observation)
{
    (void)user;
    (void)observation;
}

bool never_chosen(void *user, const descent_choice *choice)
{
    (void)user;
    (void)choice;
    return true;
}

void never_ended(void *user, const descent_generation_report *report)
{
    (void)user;
    (void)report;
}
