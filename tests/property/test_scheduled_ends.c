/* test_scheduled_ends.c: whoever is cancelled leaves; every generation ends once, for the reason it gives; each step is
 * observed once; wrong arguments are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "compare.h"
#include "model_file.h"
#include "setting.h"

enum { SICK = 3 };

/* ---- Ending ------------------------------------------------------------------------------------------------------ */

static void the_cancelled_leave_from_wherever_they_are(void **state)
{
    const descent_scheduler_options options = {.chunk = 4, .max_running = 4};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = setting_up(329, kind, &options);
        gathering_begin(&s.with);
        scheduled decoding = setting_ask(&s, 0, 3, 20), reading = setting_ask(&s, 1, 60, 2),
                  long_one = setting_ask(&s, 0, SETTING_TOKENS, 2);
        decoding.cancel_after = 3;
        reading.options.read_prompt = long_one.options.read_prompt = true;
        reading.cancel_at_read = 1;
        scheduled *prompt = setting_shut(&s, long_one); /* its first token is read, the others are still to come */
        scheduled *stays = setting_submit(&s, setting_ask(&s, 5, 1, 40));
        scheduled *token = setting_submit(&s, decoding), *position = setting_submit(&s, reading),
                  *queued = setting_submit(&s, setting_ask(&s, 2, 5, 3));
        scheduled_cancel(prompt);
        scheduled_cancel(queued);
        scheduled_cancel(queued); /* twice is once */
        gathering_open(&s.with);
        gathering_wait(&s.with, s.count);
        const scheduled *cancelled[] = {prompt, token, position, queued};
        for (size_t n = 0; n < 4; n++) assert_int_equal(cancelled[n]->report.end, DESCENT_END_CANCELLED);
        assert_int_equal(prompt->generated + queued->generated + queued->report.row_steps, 0);
        assert_int_equal(prompt->prompt_read, 1); /* though four were there to be read */
        assert_int_equal(prompt->report.row_steps,
                         4 * setting_row_steps(&s)); /* the chunk that was in flight, and no step more */
        assert_int_equal(token->generated, 3);
        assert_int_equal(token->report.row_steps, (3 + 2) * setting_row_steps(&s));
        assert_int_equal(position->prompt_read, 1);
        assert_true(position->report.row_steps <= 2 * 4 * setting_row_steps(&s));
        setting_expect_alone(&s, stays);
        setting_down(&s);
    }
}

static void destroying_cancels_all(void **state)
{
    const descent_scheduler_options options = {.chunk = 4, .max_running = 2};
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = setting_up(330, kind, &options);
        gathering_begin(&s.with);
        for (size_t n = 0; n < SETTING_MOST; n++) {
            scheduled run = setting_ask(&s, n, 50, 60);
            run.options.background = n % 3 == 2;
            run.options.like = n == 1 ? s.runs[0].generation : NULL;
            (void)setting_submit(&s, run);
        }
        descent_scheduler_destroy(s.scheduler);
        assert_int_equal(s.with.ended, SETTING_MOST);
        for (size_t n = 0; n < SETTING_MOST; n++) {
            assert_int_equal(s.runs[n].ends, 1);
            assert_int_equal(s.runs[n].report.end, DESCENT_END_CANCELLED);
            scheduled_free(&s.runs[n]);
        }
        gathering_finish(&s.with);
        setting_release_model(&s);
    }
    descent_scheduler_destroy(NULL);
}

static void add_characters(gguf_writer *w)
{
    static char spelled[200][3];
    static const char *pieces[200];
    for (size_t i = 0; i < 200; i++) {
        (void)snprintf(spelled[i], sizeof spelled[i], "%c%c", (char)(0xc4 + i / 64), (char)(0x80 + i % 64));
        pieces[i] = spelled[i];
    }
    gguf_writer_string(w, "tokenizer.ggml.model", "chars");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", pieces, 200);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
}

static void every_end_says_its_reason(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind += 2) {
        setting s = setting_up(331, kind, NULL);
        descent_scheduler_destroy(s.scheduler);
        descent_model_close(s.e.engine);
        const char *path = scratch_path("spelled.gguf");
        write_model_with(&s.e.model, path, add_characters);
        s.e.engine = drive_open(path);
        assert_non_null(descent_model_tokenizer(s.e.engine));
        setting_start(&s, &(descent_scheduler_options){.threads = 1});
        const descent_logit_bias eos = {.token = 2, .bias = 1000.0f};
        for (size_t i = 0; i < SETTING_TOKENS; i++)
            if (s.e.tokens[i] == 2) s.e.tokens[i] = 1;

        scheduled wanted = setting_ask(&s, 0, 9, 30), stopped = setting_ask(&s, 0, 9, 30),
                  full = setting_ask(&s, 0, SETTING_TOKENS, 1000);
        wanted.options.sampling.bias = &eos;
        wanted.options.sampling.n_bias = 1;
        wanted.options.sampling.min_tokens = 4;
        stopped.options.sampling.ignore_eos = full.options.sampling.ignore_eos = true;
        stopped.stop_after = 6;
        scheduled few = setting_ask(&s, 0, 9, 3), none = setting_ask(&s, 0, 9, 0), read = none;
        few.options.sampling.ignore_eos = true;
        read.options.read_prompt = true;
        uint32_t *whole = random_tokens(&s.e.r, &s.e.model, SETTING_CONTEXT);
        scheduled brim = setting_ask(&s, 0, 9, 7);
        brim.options.prompt = whole;
        brim.options.prompt_count = SETTING_CONTEXT;
        const scheduled asked[] = {wanted, stopped, full, few, none, read, brim};
        static const size_t tokens[] = {5, 6, SETTING_CONTEXT + 1 - SETTING_TOKENS, 3, 0, 0, 1};
        static const descent_generation_end ends[] = {DESCENT_END_EOS,    DESCENT_END_STOPPED, DESCENT_END_LENGTH,
                                                      DESCENT_END_LENGTH, DESCENT_END_LENGTH,  DESCENT_END_LENGTH};
        for (size_t n = 0; n < 7; n++) (void)setting_submit(&s, asked[n]);
        gathering_wait(&s.with, s.count);
        for (size_t n = 0; n < 7; n++) {
            const descent_generation_report *r = &s.runs[n].report;
            assert_int_equal(s.runs[n].generated, tokens[n]);
            if (n < 6) assert_int_equal(r->end, ends[n]);
            if (n != 1) setting_expect_alone(&s, &s.runs[n]);
            assert_int_equal(r->status.code, DESCENT_OK);
            assert_int_equal(r->prompt_count, asked[n].options.prompt_count);
            assert_true(r->queue_seconds >= 0 && r->prompt_seconds > 0 && r->generation_seconds >= 0);
        }
        assert_int_equal(s.runs[0].tokens[4], 2); /* not before min_tokens, and told as a token */
        assert_int_equal(s.runs[5].prompt_read, 9);
        setting_down(&s);
        free(whole);
    }
}

static void whoever_diverges_ends_alone(void **state)
{
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++) {
        setting s = setting_up(332, kind, NULL);
        descent_scheduler_destroy(s.scheduler);
        descent_model_close(s.e.engine);
        for (size_t i = 0; i < SETTING_TOKENS; i++)
            if (s.e.tokens[i] == SICK) s.e.tokens[i] = 0;
        double *embedding = test_model_find(&s.e.model, "token_embd.weight");
        if (s.e.model.tied) { /* or every logit of that token would be sick as well */
            test_tensor *head = test_model_add(&s.e.model, s.e.model.vocab, s.e.model.width, true, "output.weight");
            for (size_t n = 0; n < s.e.model.vocab * s.e.model.width; n++) head->values[n] = embedding[n] / 2;
            s.e.model.tied = false;
        }
        for (size_t c = 0; c < s.e.model.width; c++) embedding[SICK * s.e.model.width + c] = NAN;
        s.e.engine = drive_open_test_model(&s.e.model);
        setting_start(&s, &(descent_scheduler_options){.threads = 1, .chunk = 16});
        const descent_logit_bias never = {.token = SICK, .bias = -INFINITY}, always = {.token = SICK, .bias = 1000.0f};
        uint32_t sick[40];
        memcpy(sick, s.e.tokens, sizeof sick);
        sick[21] = SICK;
        scheduled healthy = setting_ask(&s, 0, 40, 9), prompt = healthy, chosen = healthy;
        healthy.options.sampling.bias = &never;
        chosen.options.sampling.bias = &always;
        healthy.options.sampling.n_bias = chosen.options.sampling.n_bias = 1;
        prompt.options.prompt = sick;
        (void)setting_submit(&s, healthy);
        (void)setting_submit(&s, prompt);
        (void)setting_submit(&s, chosen);
        (void)setting_submit(&s, healthy);
        gathering_wait(&s.with, 4);
        setting_expect_alone(&s, &s.runs[0]);
        setting_expect_alone(&s, &s.runs[3]);
        for (size_t n = 1; n < 3; n++) {
            const descent_generation_report *r = &s.runs[n].report;
            assert_int_equal(r->end, DESCENT_END_FAILED);
            expect_code(r->status.code, DESCENT_DIVERGED, &r->status, n == 1 ? "token 21, step 0" : "token 40, step 0");
            assert_int_equal(s.runs[n].generated, n - 1);
        }
        setting_down(&s);
    }
}

/* ---- Watching ---------------------------------------------------------------------------------------------------- */

typedef struct seen {
    descent_observation *of[SETTING_CONTEXT];
    size_t count[SETTING_CONTEXT];
} seen;

static seen *watched; /* one at a time: a generation's user is what the callbacks of scheduled.c know */

static void watch(void *user, const descent_observation *observation)
{
    (void)user;
    size_t i = observation->site.position;
    assert_true(i < SETTING_CONTEXT);
    watched->of[i] = realloc(watched->of[i], (watched->count[i] + 1) * sizeof(descent_observation));
    watched->of[i][watched->count[i]++] = *observation;
}

static void compare_seen(const seen *got, const seen *expected, size_t from)
{
    for (size_t i = 0; i < SETTING_CONTEXT; i++) {
        size_t wanted = i < from ? 0 : expected->count[i];
        if (got->count[i] != wanted) compare_fail("%zu observations of token %zu, expected %zu", got->count[i], i, wanted);
        for (size_t n = 0; n < wanted; n++) {
            const descent_observation *a = &got->of[i][n], *b = &expected->of[i][n];
            assert_true(a->site.layer == b->site.layer && a->site.kind == b->site.kind && a->site.step == b->site.step);
            assert_true(a->site.position == b->site.position && a->final == b->final);
            compare_bits(a->energy, b->energy, DESCENT_MAX_TERMS, "energies");
            compare_bits(&a->own_change, &b->own_change, 1, "own change");
            compare_bits(&a->history_change, &b->history_change, 1, "change by history");
            compare_bits(&a->update_norm, &b->update_norm, 1, "update");
        }
    }
}

/* Steps of each of the first `count` tokens; true where one of them took fewer than one before it. */
static bool overtaken(const seen *s, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i<count; most = s->count[i]> most ? s->count[i] : most, i++)
        if (s->count[i] < most) return true;
    return false;
}

static void seen_free(seen *s)
{
    for (size_t i = 0; i < SETTING_CONTEXT; i++) free(s->of[i]);
    memset(s, 0, sizeof *s);
}

/* What each step of the prompt and `more` tokens behind it is. */
static seen watch_alone(const setting *s, const descent_generation_options *o, int flags, const uint32_t *more, size_t count)
{
    seen got = {.count = {0}};
    descent_cache *cache = drive_cache(s->e.engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence_options how = {.depth = o->depth, .exit = o->exit, .no_sharing = true};
    descent_sequence *sequence = drive_sequence_as(cache, &how, NULL, 0);
    descent_status status;
    expect_ok(descent_sequence_observe(sequence, flags, watch, NULL, &status), &status);
    drive_append(sequence, o->prompt, o->prompt_count);
    if (count > 0) drive_append(sequence, more, count);
    watched = &got;
    drive_finish(batch, sequence);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return got;
}

/* A threshold that half of the prompt's tokens are below after their first step. */
static float middling(const setting *s, const descent_generation_options *o)
{
    seen all = watch_alone(s, o, DESCENT_OBSERVE_CONVERGENCE, NULL, 0);
    float found = NAN;
    for (size_t i = 0; i < o->prompt_count; i++) {
        float change = all.of[i][0].relative_change;
        size_t below = 0;
        for (size_t k = 0; k < o->prompt_count; k++) below += all.of[k][0].relative_change < change;
        if (below <= o->prompt_count / 2 && !(change <= found)) found = change;
    }
    seen_free(&all);
    return found;
}

/* What is observed is each step of each row that was asked for, once, also where others took its memory in between, and where
 * tokens of the prompt stop before those ahead of them. */
static void each_step_is_observed_once(void **state)
{
    const int flags = DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_CONVERGENCE | DESCENT_OBSERVE_FINAL;
    uint32_t pauses = 0;
    size_t overtakings = 0;
    (void)state;
    for (test_family kind = 0; kind < TEST_FAMILIES; kind++)
        for (int how = 0; how < (test_descends(kind) ? 8 : 4); how++) {
            setting s = setting_up(333, kind, NULL);
            if (how >= 4) s.e.depth = depth_of(kind, 6, 6);
            scheduled run = setting_ask(&s, 0, 20, 60);
            if (how >= 4)
                run.options.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = middling(&s, &run.options)};
            descent_depth deeper = s.e.depth;
            if (test_deepens(kind)) deeper.steps[0]++; /* x(T) is read with a plane of its own, and so is who stops there */
            uint64_t needed = bytes_at(s.e.engine, DESCENT_PAGE_F32, 79, deeper);
            descent_scheduler_destroy(s.scheduler);
            setting_start(
                &s, &(descent_scheduler_options){.cache.byte_limit = how % 4 < 2 ? 0 : needed + needed / 3, .threads = 1});
            seen got = {.count = {0}}, expected;
            scheduled alone = scheduled_alone(s.e.engine, DESCENT_PAGE_F32, &run.options);
            expected = watch_alone(&s, &run.options, flags, alone.tokens, alone.generated - 1);
            watched = &got;
            run.options.observe = flags;
            run.options.observe_prompt = how % 2;
            run.options.calls.observe = watch;
            (void)setting_shut(&s, setting_ask(&s, 30, 20, 60)); /* began before it, and grows */
            scheduled *kept = setting_submit(&s, run);
            gathering_open(&s.with);
            gathering_wait(&s.with, 2);
            compare_scheduled(kept, &alone);
            pauses += kept->report.pauses;
            assert_int_equal(s.runs[0].report.pauses, 0); /* who began first always goes on */
            compare_seen(&got, &expected, how % 2 ? 0 : 19);
            overtakings += how >= 4 && test_deepens(kind) && overtaken(&expected, 20);
            seen_free(&got);
            seen_free(&expected);
            scheduled_free(&alone);
            setting_down(&s);
        }
    assert_true(pauses > 0 && overtakings > 0);
}

static void a_shut_gate_is_seen_from_outside(void **state)
{
    (void)state;
    setting s = setting_up(334, TEST_NRGPT, NULL);
    gathering_begin(&s.with);
    assert_true(descent_scheduler_describe(s.scheduler).seconds_since_step == 0);
    (void)setting_shut(&s, setting_ask(&s, 0, 5, 4));
    double before = descent_scheduler_describe(s.scheduler).seconds_since_step;
    descent_scheduler_state now = descent_scheduler_describe(s.scheduler);
    assert_true(now.seconds_since_step >= before && before > 0);
    assert_int_equal(now.running + now.waiting, 1);
    gathering_open(&s.with);
    gathering_wait(&s.with, 1);
    now = descent_scheduler_describe(s.scheduler);
    assert_true(now.seconds_since_step == 0);
    assert_int_equal(now.row_steps, 8 * setting_row_steps(&s));

    /* With nothing to do it sleeps. */
    clock_t worked = clock();
    const struct timespec pause = {.tv_nsec = 50000000};
    (void)nanosleep(&pause, NULL);
    assert_true((double)(clock() - worked) / CLOCKS_PER_SEC < 0.02);
    setting_down(&s);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static void expect_refused(setting *s, const descent_generation_options *options, const char *words)
{
    descent_generation *generation = NULL;
    descent_status status;
    expect_code(descent_scheduler_submit(s->scheduler, options, &generation, &status), DESCENT_BAD_ARGUMENT, &status, words);
    assert_null(generation);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    setting s = setting_up(335, TEST_CEM, NULL);
    gathering_begin(&s.with);
    descent_generation_options good = setting_ask(&s, 0, 9, 3).options;
    good.calls.chosen = never_chosen;
    good.calls.ended = never_ended;
    descent_generation_options o;
    uint32_t *longer = test_alloc(SETTING_CONTEXT + 1, sizeof *longer);
    uint32_t strange[2] = {0, (uint32_t)s.e.model.vocab};

    o = good, o.prompt = NULL, expect_refused(&s, &o, "prompt");
    o = good, o.prompt_count = 0, expect_refused(&s, &o, "prompt");
    o = good, o.prompt = longer, o.prompt_count = SETTING_CONTEXT + 1, expect_refused(&s, &o, "prompt has 121 tokens");
    o = good, o.prompt = strange, o.prompt_count = 2, expect_refused(&s, &o, "position 1");
    o = good, o.calls.chosen = NULL, expect_refused(&s, &o, "chosen");
    o = good, o.calls.ended = NULL, expect_refused(&s, &o, "ended");
    o = good, o.observe = 64, expect_refused(&s, &o, "observe is 64");
    o = good, o.observe = 1, expect_refused(&s, &o, "observe");
    o = good, o.sampling.temperature = -1, expect_refused(&s, &o, "temperature");
    o = good, o.sampling.top_p = NAN, expect_refused(&s, &o, "top_p");
    o = good, o.sampling.n_bias = 1, expect_refused(&s, &o, "bias");
    descent_logit_bias *biases = test_alloc(s.e.model.vocab + 1, sizeof *biases);
    o = good, o.sampling.bias = biases, o.sampling.n_bias = s.e.model.vocab + 1, expect_refused(&s, &o, "bias has");
    o = good, o.depth = (descent_depth){{3, 0}}, expect_refused(&s, &o, "mlp steps");
    o = good, o.motion = motion_scaled(4.5f), expect_refused(&s, &o, "step_scale");
    o = good, o.motion = motion_scaled(NAN), expect_refused(&s, &o, "step_scale");
    expect_refused(&s, NULL, "options");
    free(biases);
    free(longer);

    descent_scheduler *none = NULL;
    descent_status status;
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.chunk = 16385}, &none, &status),
                DESCENT_BAD_ARGUMENT, &status, "chunk");
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.max_running = 4097}, &none, &status),
                DESCENT_BAD_ARGUMENT, &status, "max_running");
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.threads = 1025}, &none, &status),
                DESCENT_BAD_ARGUMENT, &status, "threads");
    expect_code(descent_scheduler_create(s.e.engine, &(descent_scheduler_options){.cache.page_type = DESCENT_PAGE_TYPES}, &none,
                                         &status),
                DESCENT_BAD_ARGUMENT, &status, "page type");
    expect_code(descent_scheduler_create(NULL, NULL, &none, &status), DESCENT_BAD_ARGUMENT, &status, "model");
    expect_code(descent_scheduler_create(s.e.engine, NULL, NULL, &status), DESCENT_BAD_ARGUMENT, &status, "place");
    assert_null(none);
    setting_down(&s);
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_cancelled_leave_from_wherever_they_are),
                                       cmocka_unit_test(destroying_cancels_all),
                                       cmocka_unit_test(every_end_says_its_reason),
                                       cmocka_unit_test(whoever_diverges_ends_alone),
                                       cmocka_unit_test(each_step_is_observed_once),
                                       cmocka_unit_test(a_shut_gate_is_seen_from_outside),
                                       cmocka_unit_test(wrong_arguments_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
