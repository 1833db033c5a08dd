/* test_drafts.c: a text is the same bits with drafts, without, or with drafts turned on and off in its middle, whatever is
 * sampled how, beside whomever, with however little memory; what was only guessed is told to nobody, keeps nobody waiting for
 * memory, and ends no text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "compare.h"
#include "example.h"
#include "model_file.h"
#include "scheduled.h"
#include "scheduler.h"
#include "sequence.h"

enum { CONTEXT = 100, MOST = 40, WORDS = 6, SICK = 3 };

/* What came of drafts in all of a test: it says something only where there were some of both kinds. */
typedef struct tally {
    size_t accepted, rejected;
    uint64_t pauses;
} tally;

static void count(tally *t, const scheduled *run)
{
    t->accepted += run->report.accepted;
    t->rejected += run->report.drafted - run->report.accepted;
    t->pauses += run->report.pauses;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* What a scheduler's batch was, looked at before each of its steps (the linker puts the function below in front of the
 * engine's: --wrap), on its thread. */
typedef struct inspection {
    const descent_scheduler *scheduler; /* NULL: none is looked at */
    size_t begun;                       /* drafts in their first step */
    size_t left_out;                    /* tokens that had been chosen, without a row */
    bool stands;                        /* the one in the background has no row, */
    size_t stood;                       /* for so many steps */
    size_t asked;                       /* and was asked what may follow, so many times */
    gathering *gate;                    /* it waits there when it has drafted, once */
} inspection;

static inspection looked_at;

static void stand_at(gathering *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    size_t mine = ++gate->gates_shut;
    (void)pthread_cond_broadcast(&gate->changed);
    while (gate->gates_open < mine) (void)pthread_cond_wait(&gate->changed, &gate->lock);
    (void)pthread_mutex_unlock(&gate->lock);
}

static void inspect(descent_generation *g)
{
    const descent_sequence *s = g->sequence;
    if (g->background && looked_at.gate && g->drafted > 0) {
        stand_at(looked_at.gate);
        looked_at.gate = NULL;
    }
    if (g->background) {
        bool stood = looked_at.stands;
        looked_at.stands = !s->batch;
        looked_at.stood += stood && !s->batch;
        looked_at.asked += stood && !s->batch && g->looked > 0;
    } else if (!g->over && generation_decodes(g) && generation_lacks_row(g)) {
        looked_at.left_out++;
    }
    for (size_t i = g->count; s->batch && i < s->next_row; i++) looked_at.begun += sequence_progress(s, i) == 0;
}

descent_code __real_descent_batch_step(descent_batch *batch, descent_step_report *report, descent_status *status);
descent_code __wrap_descent_batch_step(descent_batch *batch, descent_step_report *report, descent_status *status);

descent_code __wrap_descent_batch_step(descent_batch *batch, descent_step_report *report, descent_status *status)
{
    const descent_scheduler *s = looked_at.scheduler;
    for (size_t i = 0; s && s->batch == batch && i < s->n_running; i++) inspect(s->running[i]);
    return __real_descent_batch_step(batch, report, status);
}

/* ---- Models and texts -------------------------------------------------------------------------------------------- */

static void add_words(gguf_writer *w)
{
    static const char *const tokens[WORDS] = {"<eos>", "one", "two", "three", "four", "<pad>"};
    gguf_writer_string(w, "tokenizer.ggml.model", "words");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, WORDS);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[WORDS]){3, 1, 1, 1, 1, 3}, WORDS);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 0);
    gguf_writer_string(w, "tokenizer.descent.separator", ",");
}

typedef struct subject {
    rng r;
    test_model model;
    descent_model *engine;
} subject;

/* An NRGPT, with words that may end a text or without. */
static subject draw(uint64_t test, size_t round, bool words)
{
    subject s = {.r = rng_seeded(test_seed(test, round))};
    s.model = random_shape(&s.r, TEST_NRGPT, CONTEXT);
    if (words) s.model.vocab = WORDS;
    random_weights(&s.model, &s.r);
    const char *path = scratch_path("drafts.gguf");
    write_model_with(&s.model, path, words ? add_words : NULL);
    s.engine = drive_open(path);
    compare_about("seed %llu, %s", (unsigned long long)test_seed(test, round), test_model_words(&s.model));
    return s;
}

static void subject_free(subject *s)
{
    descent_model_close(s->engine);
    test_model_free(&s->model);
}

/* Any sampling; one time in two what makes a token likely depends on those before it. */
static descent_sampling any_sampling(subject *s, descent_logit_bias *bias)
{
    descent_sampling how = descent_sampling_defaults();
    how.seed = (int64_t)rng_next(&s->r);
    how.choice = (uint32_t)rng_below(&s->r, 3);
    how.temperature = (float)rng_below(&s->r, 4) / 2;
    if (rng_below(&s->r, 4) == 0) how.top_p = 0.7f;
    if (rng_below(&s->r, 4) == 0) how.min_p = 0.3f;
    if (rng_below(&s->r, 4) == 0) how.typical_p = 0.8f;
    if (rng_below(&s->r, 4) == 0) how.top_k = 3;
    if (rng_below(&s->r, 2) == 0) how.repetition_penalty = 1.4f;
    if (rng_below(&s->r, 4) == 0) how.presence_penalty = 0.6f;
    if (rng_below(&s->r, 4) == 0) how.frequency_penalty = -0.5f;
    if (rng_below(&s->r, 4) == 0) how.min_tokens = (uint32_t)rng_below(&s->r, 30);
    how.ignore_eos = rng_below(&s->r, 4) == 0;
    if (rng_below(&s->r, 2) == 0) {
        *bias = (descent_logit_bias){.token = (uint32_t)rng_below(&s->r, s->model.vocab), .bias = 0.8f};
        how.bias = bias;
        how.n_bias = 1;
    }
    return how;
}

typedef struct texts {
    scheduled alone[MOST];
    uint32_t *prompts[MOST];
    descent_logit_bias bias[MOST];
    size_t count;
} texts;

/* A text of any depth, drafted at any step of it that there is. */
static void add_text(texts *t, subject *s, size_t longest, size_t limit)
{
    size_t n = t->count++;
    t->prompts[n] = random_tokens(&s->r, &s->model, longest);
    descent_generation_options o = {.prompt = t->prompts[n], .prompt_count = rng_between(&s->r, 1, longest), .limit = limit};
    o.depth = random_depth(&s->r, &s->model, rng_below(&s->r, 6) ? 6 : 24);
    o.sampling = any_sampling(s, &t->bias[n]);
    if (rng_below(&s->r, 4) == 0) {
        rng apart = s->r;
        o.motion = motion_random(&apart, true);
    }
    if (rng_below(&s->r, 4) == 0) {
        rng apart = s->r;
        o.history = (descent_history){.policy = DESCENT_HISTORY_LATEST, .prompt_steps = (uint32_t)rng_between(&apart, 1, 6)};
    }
    o.read_prompt = rng_below(&s->r, 6) == 0;
    t->alone[n] = scheduled_alone(s->engine, DESCENT_PAGE_F32, &o);
    uint32_t T = o.depth.steps[0];
    o.draft_steps = rng_below(&s->r, 4) ? (int)rng_below(&s->r, T) : DESCENT_DRAFT_AUTO;
    t->alone[n].options = o;
}

static void texts_free(texts *t)
{
    for (size_t n = 0; n < t->count; n++) {
        scheduled_free(&t->alone[n]);
        free(t->prompts[n]);
    }
}

/* All at once, and each what it is alone; no step goes without a token that was chosen, and what is said to have been drafted
 * was begun. */
static void run_texts(const subject *s, const texts *t, const descent_scheduler_options *how, tally *sum)
{
    descent_scheduler *scheduler = scheduled_start(s->engine, how);
    scheduler->heavy_head = false; /* who waits to keep step is the affair of test_keeping_step.c */
    gathering with;
    scheduled runs[MOST];
    uint64_t row_steps = 0;
    size_t drafted = 0;
    gathering_begin(&with);
    looked_at = (inspection){.scheduler = scheduler};
    for (size_t n = 0; n < t->count; n++) runs[n] = (scheduled){.options = t->alone[n].options};
    for (size_t n = 0; n < t->count; n++) scheduled_submit(scheduler, s->engine, &with, &runs[n]);
    gathering_wait(&with, t->count);
    for (size_t n = 0; n < t->count; n++) {
        compare_scheduled(&runs[n], &t->alone[n]);
        if (t->alone[n].options.draft_steps == 0) assert_int_equal(runs[n].report.drafted, 0);
        row_steps += runs[n].report.row_steps;
        drafted += runs[n].report.drafted;
        count(sum, &runs[n]);
        scheduled_free(&runs[n]);
    }
    assert_int_equal(scheduled_stop(scheduler).row_steps, row_steps);
    gathering_finish(&with);
    assert_int_equal(looked_at.begun, drafted);
    assert_int_equal(looked_at.left_out, 0);
    looked_at.scheduler = NULL;
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

static void drafts_change_no_text(void **state)
{
    static const descent_scheduler_options ways[] = {
        {.threads = 1}, {.threads = 2, .chunk = 5}, {.threads = 1, .chunk = 1, .max_running = 2}};
    static const size_t beside[] = {1, 2, 5, 20};
    tally sum = {0};
    (void)state;
    for (size_t round = 0; round < test_rounds(24); round++) {
        subject s = draw(360, round, round % 2);
        texts t = {.count = 0};
        while (t.count < beside[round % 4]) add_text(&t, &s, 50, 45);
        run_texts(&s, &t, &ways[round % 3], &sum);
        texts_free(&t);
        subject_free(&s);
    }
    assert_true(sum.accepted > 0 && sum.rejected > 0);
}

/* One alone, at every step at which it can be drafted. */
static void at_every_step(void **state)
{
    tally sum = {0};
    (void)state;
    for (size_t round = 0; round < test_rounds(4); round++) {
        subject s = draw(361, round, false);
        for (uint32_t T = 2; T <= 20; T += T < 9 ? 1 : 11)
            for (uint32_t d = 1; d < T; d++) {
                texts t = {.count = 0};
                add_text(&t, &s, 8, 30);
                scheduled_free(&t.alone[0]);
                descent_generation_options o = t.alone[0].options;
                o.depth = depth_of(TEST_NRGPT, T, 0);
                t.alone[0] = scheduled_alone(s.engine, DESCENT_PAGE_F32, &o);
                t.alone[0].options.draft_steps = (int)d;
                run_texts(&s, &t, &(descent_scheduler_options){.threads = 1}, &sum);
                texts_free(&t);
            }
        subject_free(&s);
    }
    assert_true(sum.accepted > 0 && sum.rejected > 0);
}

/* So little memory that most must make room for others, again and again; pages with drafts go first. */
static void pauses_lose_drafts_and_no_text(void **state)
{
    tally sum = {0};
    (void)state;
    for (size_t round = 0; round < test_rounds(16); round++) {
        subject s = draw(362, round, round % 2);
        texts t = {.count = 0};
        uint64_t largest = 0;
        while (t.count < 12) {
            add_text(&t, &s, 30, 60);
            const descent_generation_options *o = &t.alone[t.count - 1].options;
            descent_sequence_options held = {.depth = o->depth, .motion = o->motion};
            uint64_t bytes = descent_cache_bytes_needed(s.engine, DESCENT_PAGE_F32, o->prompt_count + o->limit - 1, &held);
            if (bytes > largest) largest = bytes;
        }
        descent_scheduler_options how = {.threads = 1 + round % 2, .chunk = 9};
        how.cache.byte_limit = round % 4 < 2 ? largest * 17 / 10 : largest;
        run_texts(&s, &t, &how, &sum);
        texts_free(&t);
        subject_free(&s);
    }
    assert_true(sum.accepted > 0 && sum.rejected > 0 && sum.pauses > 0);
}

/* As the scheduler's own measure does, but at every few tokens. */
static void toggle(descent_generation *g, size_t generated)
{
    static const int steps[] = {0, 1, 0, 3, DESCENT_DRAFT_AUTO, 2};
    g->draft_steps = steps[generated / 4 % 6];
}

static void drafts_may_come_and_go(void **state)
{
    tally sum = {0};
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        subject s = draw(363, round, round % 2);
        uint32_t *prompt = random_tokens(&s.r, &s.model, 20);
        descent_scheduler *scheduler = scheduled_start(s.engine, &(descent_scheduler_options){.threads = 1});
        scheduled runs[3], alone[3];
        gathering with;
        gathering_begin(&with);
        for (size_t n = 0; n < 3; n++) {
            descent_generation_options o = {.prompt = prompt, .prompt_count = 20 - n, .limit = 70};
            o.depth = depth_of(TEST_NRGPT, 4 + n, 0);
            o.sampling = descent_sampling_defaults();
            o.sampling.seed = (int64_t)round;
            o.sampling.temperature = (float)n / 2;
            alone[n] = scheduled_alone(s.engine, DESCENT_PAGE_F32, &o);
            runs[n] = (scheduled){.options = o, .each = toggle};
        }
        for (size_t n = 0; n < 3; n++) scheduled_submit(scheduler, s.engine, &with, &runs[n]);
        gathering_wait(&with, 3);
        for (size_t n = 0; n < 3; n++) {
            compare_scheduled(&runs[n], &alone[n]);
            count(&sum, &runs[n]);
            scheduled_free(&runs[n]);
            scheduled_free(&alone[n]);
        }
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        free(prompt);
        subject_free(&s);
    }
    assert_true(sum.accepted > 0 && sum.rejected > 0);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

/* Every page that anybody might find holds the tokens of the one text there was, in its place. */
static void expect_only_text(const descent_cache *cache, const uint32_t *text, size_t length)
{
    size_t found = 0;
    for (size_t b = 0; b < cache->n_buckets; b++)
        for (const page *p = cache->buckets[b]; p; p = p->next_in_bucket) {
            size_t at = 0;
            for (const page *before = p->parent; before; before = before->parent) at++;
            assert_true((at + 1) * PAGE_TOKENS <= length);
            assert_memory_equal(p->tokens, text + at * PAGE_TOKENS, sizeof p->tokens);
            found++;
        }
    assert_int_equal(found, cache->n_published);
    assert_true(found <= length / PAGE_TOKENS && found + 1 >= length / PAGE_TOKENS);
}

/* A callback ends the text in the middle of what is drafted: it ends there, and nobody finds what would have followed. */
static void a_text_ends_where_it_is_told(void **state)
{
    tally sum = {0};
    (void)state;
    for (size_t round = 0; round < test_rounds(30); round++) {
        subject s = draw(364, round, false);
        texts t = {.count = 0};
        uint32_t text[CONTEXT + 1];
        add_text(&t, &s, 30, 64);
        scheduled_free(&t.alone[0]);
        descent_generation_options o = t.alone[0].options;
        o.read_prompt = false;
        o.history = (descent_history){.policy = DESCENT_HISTORY_OWN}; /* pages behind the prompt are offered */
        o.depth = depth_of(TEST_NRGPT, 6, 0);
        o.limit = 1 + round * 2;
        t.alone[0] = scheduled_alone(s.engine, DESCENT_PAGE_F32, &o);
        o.limit = 64;
        o.draft_steps = 1 + (int)round % 3;
        descent_scheduler *scheduler = scheduled_start(s.engine, &(descent_scheduler_options){.threads = 1});
        scheduled run = {.options = o};
        if (round % 3 == 2)
            run.cancel_after = 1 + round * 2;
        else
            run.stop_after = 1 + round * 2;
        gathering with;
        gathering_begin(&with);
        scheduled_submit(scheduler, s.engine, &with, &run);
        gathering_wait(&with, 1);
        count(&sum, &run);
        run.report.row_steps = t.alone[0].report.row_steps; /* begun, not needed */
        if (round > 0) {
            compare_scheduled(&run, &t.alone[0]);
            assert_int_equal(run.report.end, round % 3 == 2 ? DESCENT_END_CANCELLED : DESCENT_END_STOPPED);
        }
        memcpy(text, o.prompt, o.prompt_count * sizeof *text);
        memcpy(text + o.prompt_count, run.tokens, run.generated * sizeof *text);
        expect_only_text(scheduler->cache, text, o.prompt_count + run.generated - 1);
        scheduled_free(&run);
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        texts_free(&t);
        subject_free(&s);
    }
    assert_true(sum.accepted > 0 && sum.rejected > 0);
}

/* A token whose state is not finite, guessed and then not chosen, ends nothing; chosen, it ends the text as it does alone. */
static void a_sick_draft_ends_no_text(void **state)
{
    size_t healthy = 0, sick = 0;
    tally sum = {0};
    (void)state;
    for (size_t round = 0; round < test_rounds(4); round++) {
        subject s = draw(365, round, true);
        double *embedding = test_model_find(&s.model, "token_embd.weight");
        for (size_t c = 0; c < s.model.width; c++) embedding[SICK * s.model.width + c] = NAN;
        descent_model_close(s.engine);
        s.engine = drive_open_test_model(&s.model);
        uint32_t *prompt = random_tokens(&s.r, &s.model, 4);
        for (size_t i = 0; i < 4; i++) prompt[i] = prompt[i] == SICK ? 0 : prompt[i];
        for (int64_t seed = 0; seed < 24; seed++) {
            scheduled runs[2];
            for (int d = 0; d < 2; d++) {
                descent_scheduler *scheduler = scheduled_start(s.engine, &(descent_scheduler_options){.threads = 1});
                gathering with;
                descent_generation_options o = {.prompt = prompt, .prompt_count = 4, .limit = 6, .draft_steps = d};
                o.depth = depth_of(TEST_NRGPT, 9, 0);
                o.sampling = descent_sampling_defaults();
                o.sampling.seed = seed;
                runs[d] = (scheduled){.options = o};
                gathering_begin(&with);
                scheduled_submit(scheduler, s.engine, &with, &runs[d]);
                gathering_wait(&with, 1);
                descent_scheduler_destroy(scheduler);
                gathering_finish(&with);
            }
            count(&sum, &runs[1]);
            assert_int_equal(runs[1].report.end, runs[0].report.end);
            assert_string_equal(runs[1].report.status.message, runs[0].report.status.message);
            assert_int_equal(runs[1].generated, runs[0].generated);
            assert_memory_equal(runs[1].tokens, runs[0].tokens, runs[0].generated * sizeof *runs[0].tokens);
            *(runs[0].report.end == DESCENT_END_FAILED ? &sick : &healthy) += 1;
            scheduled_free(&runs[0]);
            scheduled_free(&runs[1]);
        }
        free(prompt);
        subject_free(&s);
    }
    assert_true(healthy > 0 && sick > 0 && sum.rejected > 0);
}

/* ---- Who drafts -------------------------------------------------------------------------------------------------- */

static void nothing(void *user, const descent_observation *observation)
{
    (void)user;
    (void)observation;
}

/* Beside so many others, and where each step is watched, nothing is drafted. */
static void a_full_batch_drafts_nothing(void **state)
{
    (void)state;
    subject s = draw(366, 0, false);
    texts t = {.count = 0};
    tally sum = {0};
    while (t.count < DRAFT_ROWS) {
        add_text(&t, &s, 1, 20);
        scheduled_free(&t.alone[t.count - 1]);
        descent_generation_options o = t.alone[t.count - 1].options;
        o.depth = depth_of(TEST_NRGPT, 4, 0);
        o.sampling = descent_sampling_defaults();
        t.alone[t.count - 1] = scheduled_alone(s.engine, DESCENT_PAGE_F32, &o);
        t.alone[t.count - 1].options.draft_steps = 1;
    }
    scheduled runs[DRAFT_ROWS];
    gathering with;
    descent_scheduler *scheduler = scheduled_start(s.engine, &(descent_scheduler_options){.threads = 1});
    gathering_begin(&with);
    for (size_t n = 0; n < t.count; n++) runs[n] = (scheduled){.options = t.alone[n].options, .gate = n == 0};
    scheduled_submit(scheduler, s.engine, &with, &runs[0]);
    gathering_wait_for_gate(&with); /* all the others come at once */
    for (size_t n = 1; n < t.count; n++) scheduled_submit(scheduler, s.engine, &with, &runs[n]);
    gathering_open(&with);
    gathering_wait(&with, t.count);
    for (size_t n = 0; n < t.count; n++) {
        compare_scheduled(&runs[n], &t.alone[n]);
        count(&sum, &runs[n]);
        scheduled_free(&runs[n]);
    }
    /* What the last ones to end may draft, when there is room. */
    assert_true(sum.accepted + sum.rejected < t.count * 4);
    descent_scheduler_state state_then = descent_scheduler_describe(scheduler);
    for (size_t i = 5; i < DESCENT_ROW_BUCKETS; i++) assert_int_equal(state_then.steps_by_rows[i], 0);

    scheduled watched = {.options = t.alone[0].options};
    watched.options.draft_steps = 1;
    watched.options.observe = DESCENT_OBSERVE_ENERGY;
    watched.options.calls.observe = nothing;
    scheduled_submit(scheduler, s.engine, &with, &watched);
    gathering_wait(&with, t.count + 1);
    compare_scheduled(&watched, &t.alone[0]);
    assert_int_equal(watched.report.drafted, 0);
    scheduled_free(&watched);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
    texts_free(&t);
    subject_free(&s);
}

/* One in the background whose rows have left the batch for another's is not asked, step after step, what may follow. */
static void whoever_stands_still_guesses_nothing(void **state)
{
    (void)state;
    subject s = draw(368, 0, false);
    uint32_t *prompt = random_tokens(&s.r, &s.model, 9);
    scheduled runs[2];
    gathering with;
    descent_generation_options o = {.prompt = prompt, .prompt_count = 9, .limit = 60, .draft_steps = 1, .background = true};
    o.depth = depth_of(TEST_NRGPT, 6, 0);
    o.sampling = descent_sampling_defaults();
    descent_scheduler *scheduler = scheduled_start(s.engine, &(descent_scheduler_options){.threads = 1});
    gathering_begin(&with);
    looked_at = (inspection){.scheduler = scheduler, .gate = &with};
    runs[0] = (scheduled){.options = o};
    o.background = false;
    o.draft_steps = 0;
    o.limit = 20;
    runs[1] = (scheduled){.options = o};
    scheduled alone = scheduled_alone(s.engine, DESCENT_PAGE_F32, &runs[0].options);
    scheduled_submit(scheduler, s.engine, &with, &runs[0]);
    gathering_wait_for_gate(&with);
    scheduled_submit(scheduler, s.engine, &with, &runs[1]);
    gathering_open(&with);
    gathering_wait(&with, 2);
    compare_scheduled(&runs[0], &alone);
    descent_scheduler_destroy(scheduler);
    gathering_finish(&with);
    assert_true(looked_at.stood >= 20 && runs[0].report.drafted > 0);
    assert_int_equal(looked_at.begun, runs[0].report.drafted);
    assert_int_equal(looked_at.asked, 0);
    looked_at.scheduler = NULL;
    scheduled_free(&alone);
    for (size_t n = 0; n < 2; n++) scheduled_free(&runs[n]);
    free(prompt);
    subject_free(&s);
}

static void what_cannot_be_drafted_is_refused(void **state)
{
    static const struct {
        test_family family;
        int draft_steps;
        descent_code code;
        const char *words;
    } cases[] = {
        {TEST_NRGPT, 4, DESCENT_BAD_ARGUMENT,
         "draft_steps is 4 at a depth of 4; expected 1 step or more and fewer than that, or 0"},
        {TEST_NRGPT, 9, DESCENT_BAD_ARGUMENT,
         "draft_steps is 9 at a depth of 4; expected 1 step or more and fewer than that, or 0"},
        {TEST_NRGPT, -2, DESCENT_BAD_ARGUMENT,
         "draft_steps is -2 at a depth of 4; expected 1 step or more and fewer than that, or 0"},
        {TEST_CEM, 1, DESCENT_UNSUPPORTED, "draft_steps is 1: of tokens of cem models nothing is drafted, as of NRGPT's"},
        {TEST_GPT, 1, DESCENT_UNSUPPORTED, "draft_steps is 1: of tokens of gpt models nothing is drafted, as of NRGPT's"},
        {TEST_GPT_REC, 3, DESCENT_OK, NULL},
        {TEST_NRGPT, 3, DESCENT_OK, NULL},
        {TEST_NRGPT, DESCENT_DRAFT_AUTO, DESCENT_OK, NULL},
        {TEST_CEM, DESCENT_DRAFT_AUTO, DESCENT_OK, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        example_wish wish = {.family = cases[i].family, .context = 8, .count = 2};
        example e = example_draw(test_seed(367, i), &wish);
        descent_scheduler *scheduler = scheduled_start(e.engine, NULL);
        gathering with;
        gathering_begin(&with);
        scheduled run = {.options = {.prompt = e.tokens,
                                     .prompt_count = 2,
                                     .limit = 5,
                                     .depth = depth_of(cases[i].family, 4, 4),
                                     .sampling = descent_sampling_defaults(),
                                     .draft_steps = cases[i].draft_steps}};
        if (cases[i].code == DESCENT_OK) {
            scheduled alone = scheduled_alone(e.engine, DESCENT_PAGE_F32, &run.options);
            scheduled_submit(scheduler, e.engine, &with, &run);
            gathering_wait(&with, 1);
            compare_scheduled(&run, &alone);
            scheduled_free(&alone);
            scheduled_free(&run);
        } else {
            descent_generation *none;
            descent_status status;
            run.options.calls.chosen = (bool (*)(void *, const descent_choice *))(uintptr_t)1; /* not called */
            run.options.calls.ended = (void (*)(void *, const descent_generation_report *))(uintptr_t)1;
            expect_code(descent_scheduler_submit(scheduler, &run.options, &none, &status), cases[i].code, &status,
                        cases[i].words);
        }
        descent_scheduler_destroy(scheduler);
        gathering_finish(&with);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_change_no_text),
        cmocka_unit_test(at_every_step),
        cmocka_unit_test(pauses_lose_drafts_and_no_text),
        cmocka_unit_test(drafts_may_come_and_go),
        cmocka_unit_test(a_text_ends_where_it_is_told),
        cmocka_unit_test(a_sick_draft_ends_no_text),
        cmocka_unit_test(a_full_batch_drafts_nothing),
        cmocka_unit_test(whoever_stands_still_guesses_nothing),
        cmocka_unit_test(what_cannot_be_drafted_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
