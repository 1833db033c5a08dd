/* scheduled.c: see scheduled.h. */
#include "scheduled.h"

#include "compare.h"
#include "drive.h"
#include "test_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- The other side of the thread -------------------------------------------------------------------------------- */

void gathering_begin(gathering *with)
{
    *with = (gathering){.ended = 0};
    (void)pthread_mutex_init(&with->lock, NULL);
    (void)pthread_cond_init(&with->changed, NULL);
}

void gathering_finish(gathering *with)
{
    (void)pthread_cond_destroy(&with->changed);
    (void)pthread_mutex_destroy(&with->lock);
}

void gathering_wait(gathering *with, size_t count)
{
    (void)pthread_mutex_lock(&with->lock);
    while (with->ended < count) (void)pthread_cond_wait(&with->changed, &with->lock);
    (void)pthread_mutex_unlock(&with->lock);
}

void gathering_wait_for_gate(gathering *with)
{
    (void)pthread_mutex_lock(&with->lock);
    while (with->gates_shut == with->gates_open) (void)pthread_cond_wait(&with->changed, &with->lock);
    (void)pthread_mutex_unlock(&with->lock);
}

void gathering_open(gathering *with)
{
    (void)pthread_mutex_lock(&with->lock);
    with->gates_open = with->gates_shut;
    (void)pthread_cond_broadcast(&with->changed);
    (void)pthread_mutex_unlock(&with->lock);
}

/* ---- Callbacks --------------------------------------------------------------------------------------------------- */

static float *append_row(float *rows, size_t count, const float *row, size_t width)
{
    rows = realloc(rows, (count + 1) * width * sizeof *rows);
    if (!rows) abort();
    memcpy(rows + count * width, row, width * sizeof *rows);
    return rows;
}

static void keep(scheduled *s, const descent_choice *choice)
{
    size_t n = s->prompt_read + s->generated;
    s->steps = realloc(s->steps, (n + 1) * sizeof *s->steps);
    if (!s->steps) abort();
    s->steps[n] = choice->steps;
    if (!choice->token_chosen) {
        s->prompt_logits = append_row(s->prompt_logits, s->prompt_read++, choice->logits, s->vocab);
        return;
    }
    s->logits = append_row(s->logits, s->generated, choice->logits, s->vocab);
    s->tokens = realloc(s->tokens, (s->generated + 1) * sizeof *s->tokens);
    if (!s->tokens) abort();
    s->tokens[s->generated++] = choice->token;
}

static void stand_at_gate(gathering *with)
{
    size_t mine = ++with->gates_shut;
    (void)pthread_cond_broadcast(&with->changed);
    while (with->gates_open < mine) (void)pthread_cond_wait(&with->changed, &with->lock);
}

static bool chosen(void *user, const descent_choice *choice)
{
    scheduled *s = user;
    gathering *with = s->with;
    (void)pthread_mutex_lock(&with->lock);
    size_t expected = choice->token_chosen ? s->options.prompt_count + s->generated : s->prompt_read;
    if (choice->position != expected || s->ends > 0)
        compare_fail("position %zu is told where %zu is next", choice->position, expected);
    if (s->generated + s->prompt_read == 0) s->first_call = with->calls;
    with->calls++;
    keep(s, choice);
    if (s->gate) stand_at_gate(with);
    s->gate = false;
    bool cancel = choice->token_chosen ? s->generated == s->cancel_after : s->prompt_read == s->cancel_at_read;
    if (cancel) descent_generation_cancel(s->generation);
    bool more = s->generated == 0 || s->generated != s->stop_after;
    if (s->each) s->each(s->generation, s->generated);
    (void)pthread_mutex_unlock(&with->lock);
    return more;
}

static void ended(void *user, const descent_generation_report *report)
{
    scheduled *s = user;
    gathering *with = s->with;
    (void)pthread_mutex_lock(&with->lock);
    s->report = *report;
    s->last_call = with->calls++;
    if (s->end_gate) stand_at_gate(with);
    s->ends++;
    s->generation = NULL;
    with->ended++;
    (void)pthread_cond_broadcast(&with->changed);
    (void)pthread_mutex_unlock(&with->lock);
}

/* ---- Through a scheduler ----------------------------------------------------------------------------------------- */

descent_scheduler *scheduled_start(const descent_model *model, const descent_scheduler_options *options)
{
    descent_scheduler *scheduler = NULL;
    descent_status status;
    expect_ok(descent_scheduler_create(model, options, &scheduler, &status), &status);
    return scheduler;
}

descent_scheduler_state scheduled_stop(descent_scheduler *scheduler)
{
    descent_scheduler_state state = descent_scheduler_describe(scheduler);
    assert_int_equal(state.running + state.waiting + state.rows, 0);
    assert_int_equal(state.cache.pages, state.cache.idle_pages);
    assert_true(state.cache.bytes <= state.cache.byte_limit);
    assert_true(state.seconds_since_step == 0);
    descent_scheduler_destroy(scheduler);
    return state;
}

void scheduled_submit(descent_scheduler *scheduler, const descent_model *model, gathering *with, scheduled *s)
{
    descent_status status;
    s->with = with;
    s->vocab = descent_model_describe(model)->vocab;
    s->options.user = s;
    s->options.calls.chosen = chosen;
    s->options.calls.ended = ended;
    (void)pthread_mutex_lock(&with->lock); /* nothing is called back before the generation is stored */
    descent_code code = descent_scheduler_submit(scheduler, &s->options, &s->generation, &status);
    s->generation_was = s->generation;
    (void)pthread_mutex_unlock(&with->lock);
    expect_ok(code, &status);
}

void scheduled_cancel(scheduled *s)
{
    (void)pthread_mutex_lock(&s->with->lock);
    if (s->generation) descent_generation_cancel(s->generation);
    (void)pthread_mutex_unlock(&s->with->lock);
}

void scheduled_free(scheduled *s)
{
    free(s->tokens);
    free(s->logits);
    free(s->prompt_logits);
    free(s->steps);
    s->tokens = s->steps = NULL;
    s->logits = s->prompt_logits = NULL;
    s->generated = s->prompt_read = 0;
}

/* ---- Alone ------------------------------------------------------------------------------------------------------- */

scheduled scheduled_alone(const descent_model *model, descent_page_type page_type, const descent_generation_options *options)
{
    const descent_model_info *info = descent_model_describe(model);
    scheduled s = {.options = *options, .vocab = info->vocab};
    descent_cache *cache = drive_cache(model, page_type, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = {.depth = options->depth,
                                    .motion = options->motion,
                                    .solver = options->solver,
                                    .exit = options->exit,
                                    .history = options->history,
                                    .no_sharing = true};
    how.history.prompt = (uint32_t)options->prompt_count - 1;
    descent_sequence *sequence = drive_sequence_as(cache, &how, options->prompt, options->prompt_count);
    float *logits = test_alloc(info->vocab, sizeof *logits);
    size_t room = info->context + 1 - options->prompt_count, limit = options->limit < room ? options->limit : room;
    drive_finish(batch, sequence);
    for (size_t i = 0; options->read_prompt && i < options->prompt_count - (limit > 0); i++) {
        drive_logits(batch, sequence, i, logits);
        keep(&s, &(descent_choice){.position = i, .logits = logits, .steps = descent_sequence_token_steps(sequence, i)});
    }
    for (size_t n = 0; n < limit; n++) {
        size_t count = descent_sequence_length(sequence);
        descent_status status;
        uint32_t token;
        drive_logits(batch, sequence, count - 1, logits);
        expect_ok(descent_sample(&options->sampling, descent_model_tokenizer(model), logits, info->vocab,
                                 descent_sequence_tokens(sequence), count, options->prompt_count, &token, &status),
                  &status);
        keep(&s, &(descent_choice){.position = count,
                                   .token_chosen = true,
                                   .token = token,
                                   .logits = logits,
                                   .steps = descent_sequence_token_steps(sequence, count - 1)});
        const descent_tokenizer *tokenizer = descent_model_tokenizer(model);
        if (tokenizer && descent_tokenizer_describe(tokenizer)->eos == (int64_t)token) break;
        if (n + 1 == limit) break;
        drive_append(sequence, &token, 1);
        drive_finish(batch, sequence);
    }
    s.report.row_steps = descent_sequence_steps_run(sequence);
    free(logits);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return s;
}

void compare_scheduled(const scheduled *got, const scheduled *expected)
{
    const descent_generation_report *r = &got->report;
    if (got->ends != 1) compare_fail("a generation has ended %zu times", got->ends);
    if (r->end == DESCENT_END_FAILED) compare_fail("a generation failed: %s", r->status.message);
    if (got->generated != expected->generated || r->generated != expected->generated)
        compare_fail("%zu tokens (reported: %zu) where there should be %zu, end %d", got->generated, r->generated,
                     expected->generated, (int)r->end);
    if (got->prompt_read != expected->prompt_read)
        compare_fail("%zu prompt positions read, expected %zu", got->prompt_read, expected->prompt_read);
    for (size_t i = 0; i < got->generated; i++)
        if (got->tokens[i] != expected->tokens[i])
            compare_fail("token %zu is %u, alone it is %u", i, got->tokens[i], expected->tokens[i]);
    compare_bits(got->logits, expected->logits, got->generated * got->vocab, "logits");
    for (size_t i = 0; i < got->prompt_read + got->generated; i++)
        if (got->steps[i] != expected->steps[i])
            compare_fail("logits %zu were read after %u steps, alone after %u", i, got->steps[i], expected->steps[i]);
    compare_bits(got->prompt_logits, expected->prompt_logits, got->prompt_read * got->vocab, "logits of the prompt");
    uint64_t depth = r->prompt_count + got->generated > 0 ? expected->report.row_steps : 0;
    if (r->accepted > r->drafted || r->accepted > r->generated)
        compare_fail("%zu drafts accepted of %zu, in %zu tokens", r->accepted, r->drafted, r->generated);
    if (r->drafted > r->accepted && r->row_steps >= depth) return; /* those that were not are steps run, too */
    if (r->reused + r->deepened == 0 && r->pauses == 0 && r->row_steps != depth)
        compare_fail("%llu row steps, alone there are %llu", (unsigned long long)r->row_steps, (unsigned long long)depth);
}
