/* drive.c: the ways to run a sequence, and reading what it came to. Observing is in record.c. */
#include "drive.h"

#include "cache.h"
#include "compare.h"
#include "model_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

void expect_code(descent_code code, descent_code wanted, const descent_status *status, const char *words)
{
    if (code != wanted)
        compare_fail("code is %d where %d was expected: %s", (int)code, (int)wanted, code == DESCENT_OK ? "" : status->message);
    if (status->code != code) compare_fail("the code returned is %d, the status says %d", (int)code, (int)status->code);
    if (words && !strstr(status->message, words)) compare_fail("no \"%s\" in the message \"%s\"", words, status->message);
}

void expect_ok(descent_code code, const descent_status *status)
{
    expect_code(code, DESCENT_OK, status, NULL);
}

descent_model *drive_open(const char *path)
{
    descent_model *model = NULL;
    descent_status status;
    expect_ok(descent_model_open(path, &model, &status), &status);
    return model;
}

descent_model *drive_open_test_model(const test_model *model)
{
    const char *path = scratch_path("model.gguf");
    (void)unlink(path); /* an earlier one may still be mapped */
    write_model(model, path);
    return drive_open(path);
}

descent_cache *drive_cache(const descent_model *model, descent_page_type page_type, uint64_t byte_limit)
{
    descent_cache_options options = {.page_type = page_type, .byte_limit = byte_limit};
    descent_cache *cache = NULL;
    descent_status status;
    expect_ok(descent_cache_create(model, &options, &cache, &status), &status);
    return cache;
}

void drive_cache_end(descent_cache *cache)
{
    descent_cache_usage usage = descent_cache_describe(cache);
    assert_int_equal(usage.pages, usage.idle_pages);
    page *last = NULL;
    cache->byte_limit = sizeof *last;
    assert_int_equal(page_create(cache, &last, NULL), DESCENT_OK);
    page_release(cache, last);
    usage = descent_cache_describe(cache);
    assert_int_equal(usage.bytes, 0);
    assert_int_equal(usage.pages, 0);
    assert_int_equal(usage.idle_pages, 0);
    descent_cache_destroy(cache);
}

descent_batch *drive_batch(descent_cache *cache, uint32_t max_rows, uint32_t threads)
{
    descent_batch_options options = {.max_rows = max_rows, .threads = threads ? threads : 1};
    descent_batch *batch = NULL;
    descent_status status;
    expect_ok(descent_batch_create(cache, &options, &batch, &status), &status);
    return batch;
}

descent_sequence *drive_sequence(descent_cache *cache, descent_depth depth, bool sharing, const uint32_t *tokens, size_t count)
{
    descent_sequence_options options = {.depth = depth, .no_sharing = !sharing};
    return drive_sequence_as(cache, &options, tokens, count);
}

descent_sequence *drive_sequence_as(descent_cache *cache, const descent_sequence_options *options, const uint32_t *tokens,
                                    size_t count)
{
    descent_sequence *sequence = NULL;
    descent_status status;
    expect_ok(descent_sequence_create(cache, options, &sequence, &status), &status);
    drive_append(sequence, tokens, count);
    return sequence;
}

void drive_append(descent_sequence *sequence, const uint32_t *tokens, size_t count)
{
    descent_status status;
    if (count) expect_ok(descent_sequence_append(sequence, tokens, count, &status), &status);
}

void drive_finish(descent_batch *batch, descent_sequence *sequence)
{
    descent_status status;
    expect_ok(descent_batch_finish(batch, sequence, &status), &status);
    if (descent_sequence_finished(sequence) != descent_sequence_length(sequence))
        compare_fail("descent_batch_finish left %zu of %zu tokens finished", descent_sequence_finished(sequence),
                     descent_sequence_length(sequence));
}

void drive_logits(descent_batch *batch, const descent_sequence *sequence, size_t position, float *logits)
{
    descent_reading reading = {sequence, position};
    descent_status status;
    expect_ok(descent_batch_logits(batch, &reading, 1, logits, &status), &status);
}

uint64_t bytes_at(const descent_model *model, descent_page_type type, uint64_t tokens, descent_depth depth)
{
    descent_sequence_options options = {.depth = depth};
    return descent_cache_bytes_needed(model, type, tokens, &options);
}

descent_motion motion_random(rng *r, bool angular)
{
    descent_motion m = {.n_scales = (uint32_t)(rng_below(r, 2) ? 0 : rng_between(r, 1, 4))};
    for (uint32_t t = 0; t < m.n_scales; t++) m.step_scale[t] = (float)rng_between(r, 1, 12) / 8;
    if (rng_below(r, 2)) m.momentum = (float)rng_between(r, 1, 7) / 8;
    if (angular && rng_below(r, 2)) m.rule = DESCENT_RULE_ANGULAR;
    if (rng_below(r, 4) == 0)
        m.noise = (descent_noise){.seed = (int64_t)rng_next(r),
                                  .sigma = (float)rng_between(r, 1, 8) / 16,
                                  .schedule = (descent_noise_schedule)rng_below(r, 2)};
    return m;
}

descent_motion motion_scaled(float s)
{
    return (descent_motion){.n_scales = 1, .step_scale = {s}};
}

/* ---- Mates ------------------------------------------------------------------------------------------------------- */

typedef struct mates {
    descent_sequence **sequences;
    size_t count;
} mates;

/* True where the model has a rate to scale. */
static bool descends(const descent_model_info *info)
{
    for (uint32_t k = 0; k < info->kinds; k++)
        if (info->terms[k]) return true;
    return false;
}

/* Sequences of random tokens, lengths, depths and motions; some begin with the tokens of the sequence they stand beside. */
static mates mates_create(descent_cache *cache, const descent_model *model, const uint32_t *tokens, size_t count,
                          const drive_options *options, rng *r)
{
    const descent_model_info *info = descent_model_describe(model);
    mates m = {test_alloc(options->mates, sizeof(descent_sequence *)), options->mates};
    for (size_t i = 0; i < m.count; i++) {
        descent_depth depth = {{0}};
        uint32_t own[24];
        size_t length = rng_between(r, 1, info->context < 24 ? info->context : 24);
        size_t same = rng_below(r, 2) ? rng_below(r, length + 1) : 0;
        for (size_t k = 0; k < info->kinds; k++)
            if (info->trained.steps[k]) depth.steps[k] = (uint16_t)rng_between(r, 1, 9);
        for (size_t n = 0; n < length; n++) own[n] = n < same && n < count ? tokens[n] : (uint32_t)rng_below(r, info->vocab);
        descent_sequence_options how = {.depth = depth, .no_sharing = !options->sharing};
        if (descends(info) && rng_below(r, 2)) how.motion = motion_random(r, !strcmp(info->family, "nrgpt"));
        if (options->exit.criterion != DESCENT_EXIT_NONE && rng_below(r, 2)) {
            how.exit = options->exit;
            if (how.exit.criterion == DESCENT_EXIT_ARGMAX)
                how.exit.threshold = (float)rng_between(r, 1, 4);
            else
                how.exit.threshold *= (float)rng_between(r, 1, 4) / 2;
        }
        if (options->history.policy != DESCENT_HISTORY_OWN && rng_below(r, 3)) {
            how.history = options->history;
            if (rng_below(r, 2)) how.history.prompt_steps = (uint32_t)rng_between(r, 1, 9);
        }
        m.sequences[i] = drive_sequence_as(cache, &how, own, length);
    }
    return m;
}

/* Adds some rows of some mates; those that are through begin anew, so that there is always company. */
static void mates_add(descent_batch *batch, const mates *m, rng *r)
{
    descent_status status;
    for (size_t i = 0; i < m->count; i++) {
        size_t added = 0;
        if (descent_sequence_finished(m->sequences[i]) == descent_sequence_length(m->sequences[i]) && rng_below(r, 2)) {
            uint32_t again[24];
            size_t length = descent_sequence_length(m->sequences[i]);
            memcpy(again, descent_sequence_tokens(m->sequences[i]), length * sizeof *again);
            expect_ok(descent_sequence_truncate(m->sequences[i], 0, &status), &status);
            drive_append(m->sequences[i], again, length);
        }
        if (rng_below(r, 3))
            expect_ok(descent_batch_add(batch, m->sequences[i], rng_between(r, 1, 5), &added, &status), &status);
    }
}

static void mates_destroy(mates *m)
{
    for (size_t i = 0; i < m->count; i++) descent_sequence_destroy(m->sequences[i]);
    free(m->sequences);
}

/* ---- The ways ---------------------------------------------------------------------------------------------------- */

/* Adds and steps in random amounts until what has been appended is finished. */
static void finish_beside(descent_batch *batch, descent_sequence *sequence, const mates *m, rng *r)
{
    descent_status status;
    while (descent_sequence_finished(sequence) < descent_sequence_length(sequence)) {
        size_t added = 0;
        mates_add(batch, m, r);
        expect_ok(descent_batch_add(batch, sequence, rng_between(r, 1, 9), &added, &status), &status);
        mates_add(batch, m, r);
        for (size_t steps = rng_between(r, 1, 4); steps > 0; steps--)
            expect_ok(descent_batch_step(batch, NULL, &status), &status);
    }
    drive_finish(batch, sequence); /* rows that still read their energy at x(T) */
}

static void run_whole(descent_batch *batch, descent_sequence *sequence, const uint32_t *tokens, size_t count, const mates *m,
                      rng *r)
{
    drive_append(sequence, tokens, count);
    mates_add(batch, m, r);
    drive_finish(batch, sequence);
}

static void run_uneven(descent_batch *batch, descent_sequence *sequence, const uint32_t *tokens, size_t count, const mates *m,
                       rng *r)
{
    for (size_t done = 0; done < count;) {
        size_t chunk = rng_between(r, 1, 13);
        if (chunk > count - done) chunk = count - done;
        drive_append(sequence, tokens + done, chunk);
        done += chunk;
        if (rng_below(r, 4)) finish_beside(batch, sequence, m, r); /* else it meets the next chunk unfinished */
    }
    finish_beside(batch, sequence, m, r);
}

/* Reads each token's logits as it comes. */
static void run_single(descent_batch *batch, descent_sequence *sequence, const uint32_t *tokens, size_t count, const mates *m,
                       rng *r, float *logits, size_t vocab)
{
    for (size_t i = 0; i < count; i++) {
        drive_append(sequence, tokens + i, 1);
        mates_add(batch, m, r);
        drive_finish(batch, sequence);
        drive_logits(batch, sequence, i, logits + i * vocab);
    }
}

outcome drive_read(descent_batch *batch, const descent_model *model, const descent_sequence *sequence)
{
    const descent_model_info *info = descent_model_describe(model);
    outcome o = {.count = descent_sequence_length(sequence), .width = info->width, .vocab = info->vocab};
    descent_reading *readings = test_alloc(o.count, sizeof *readings);
    descent_status status;
    o.logits = test_alloc(o.count * o.vocab, sizeof(float));
    o.states = test_alloc(o.count * o.width, sizeof(float));
    for (size_t i = 0; i < o.count; i++) {
        uint32_t steps;
        readings[i] = (descent_reading){sequence, i};
        expect_ok(descent_sequence_state(sequence, i, o.states + i * o.width, &steps, &status), &status);
    }
    if (o.count) expect_ok(descent_batch_logits(batch, readings, o.count, o.logits, &status), &status);
    free(readings);
    return o;
}

outcome drive_in(descent_cache *cache, descent_batch *batch, const descent_model *model, const uint32_t *tokens, size_t count,
                 const drive_options *options)
{
    size_t vocab = descent_model_describe(model)->vocab;
    rng r = rng_seeded(options->seed);
    float *as_they_came = test_alloc(count * vocab, sizeof *as_they_came);
    mates m = mates_create(cache, model, tokens, count, options, &r);
    descent_sequence_options how = {.depth = options->depth,
                                    .motion = options->motion,
                                    .solver = options->solver,
                                    .exit = options->exit,
                                    .history = options->history,
                                    .no_sharing = !options->sharing};
    descent_sequence *sequence = drive_sequence_as(cache, &how, NULL, 0);
    descent_depth deepest = options->depth;
    if (options->history.prompt_steps > deepest.steps[0]) deepest.steps[0] = (uint16_t)options->history.prompt_steps;
    record *seen = options->observe ? record_create(model, count, deepest) : NULL;
    if (seen) record_observe(seen, sequence, options->observe);
    if (options->chunks == DRIVE_WHOLE) run_whole(batch, sequence, tokens, count, &m, &r);
    if (options->chunks == DRIVE_SINGLE) run_single(batch, sequence, tokens, count, &m, &r, as_they_came, vocab);
    if (options->chunks == DRIVE_UNEVEN) run_uneven(batch, sequence, tokens, count, &m, &r);
    outcome o = drive_read(batch, model, sequence);
    o.seen = seen;
    if (options->chunks == DRIVE_SINGLE)
        compare_bits(as_they_came, o.logits, count * vocab, "logits read one at a time, against all read at once,");
    descent_sequence_destroy(sequence);
    mates_destroy(&m);
    free(as_they_came);
    return o;
}

outcome drive(const descent_model *model, const uint32_t *tokens, size_t count, const drive_options *options)
{
    descent_cache *cache = drive_cache(model, options->page_type, options->byte_limit);
    descent_batch *batch = drive_batch(cache, options->max_rows, options->threads);
    outcome o = drive_in(cache, batch, model, tokens, count, options);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return o;
}

void outcome_free(outcome *o)
{
    free(o->logits);
    free(o->states);
    if (o->seen) record_free(o->seen);
    memset(o, 0, sizeof *o);
}

void compare_outcome(const outcome *got, const reference_run *expected)
{
    compare_states(got->states, expected->states, got->count, got->width, "final states");
    compare_logits(got->logits, expected->logits, got->count, got->vocab, "logits");
    if (got->seen) compare_record(got->seen, expected, 0, got->count);
}

void compare_outcomes(const outcome *got, const outcome *expected)
{
    if (got->count != expected->count) compare_fail("%zu tokens against %zu", got->count, expected->count);
    compare_bits(got->states, expected->states, got->count * got->width, "states");
    compare_bits(got->logits, expected->logits, got->count * got->vocab, "logits");
    if (got->seen && expected->seen) compare_records(got->seen, expected->seen);
}
