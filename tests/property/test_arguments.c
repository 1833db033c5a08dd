/* test_arguments.c: what a function of descent.h is asked beyond what its comment allows it refuses, with the right code and
 * a message that names the thing, and what it was asked about is as it was before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"
#include "model_file.h"

enum { CONTEXT = 40 };

/* One model of each family with a cache, a batch and a sequence of 10 tokens. */
typedef struct setting {
    example e;
    descent_cache *cache;
    descent_batch *batch;
    descent_sequence *sequence;
    float *x; /* [C] zeros */
    descent_status status;
} setting;

static setting set_up(test_family family)
{
    example_wish wish = {.family = family, .context = CONTEXT, .count = CONTEXT};
    setting s = {.e = example_draw(test_seed(120, family), &wish)};
    s.cache = drive_cache(s.e.engine, DESCENT_PAGE_F32, 0);
    s.batch = drive_batch(s.cache, 0, 1);
    s.sequence = drive_sequence(s.cache, s.e.depth, true, s.e.tokens, 10);
    s.x = test_alloc(s.e.model.width, sizeof *s.x);
    return s;
}

/* The sequence still comes to what it should: nothing that was refused left a mark. */
static void tear_down(setting *s)
{
    drive_append(s->sequence, s->e.tokens + 10, CONTEXT - 10);
    drive_finish(s->batch, s->sequence);
    outcome got = drive_read(s->batch, s->e.engine, s->sequence);
    compare_outcome(&got, &s->e.expected);
    outcome_free(&got);
    descent_sequence_destroy(s->sequence);
    descent_batch_destroy(s->batch);
    descent_cache_destroy(s->cache);
    example_free(&s->e);
    free(s->x);
}

static void models(void **state)
{
    descent_model *model = NULL;
    descent_status status;
    (void)state;
    expect_code(descent_model_open(scratch_path("missing.gguf"), &model, &status), DESCENT_IO, &status, "missing.gguf");
    FILE *stream = fopen(scratch_path("text.gguf"), "w");
    assert_non_null(stream);
    assert_true(fputs("this is not a model, whatever its name says", stream) >= 0);
    (void)fclose(stream);
    expect_code(descent_model_open(scratch_path("text.gguf"), &model, &status), DESCENT_BAD_FILE, &status, NULL);
    assert_null(model);
}

static void description(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        setting s = set_up(family);
        const test_model *m = &s.e.model;
        const descent_model_info *info = descent_model_describe(s.e.engine);
        assert_string_equal(info->family, test_family_name(family));
        assert_string_equal(info->name, "test");
        assert_string_equal(info->weight_type, "F32");
        assert_int_equal(info->width, m->width);
        assert_int_equal(info->vocab, m->vocab);
        assert_int_equal(info->context, m->context);
        assert_int_equal(info->layers, m->layers);
        assert_int_equal(info->kinds, test_kinds(family));
        assert_int_equal(info->deepens, test_deepens(family));
        for (unsigned k = 0; k < DESCENT_MAX_KINDS; k++) assert_int_equal(info->trained.steps[k], m->steps[k]);
        for (unsigned k = 0; k < info->kinds; k++)
            assert_int_equal(info->terms[k], !test_has_energy(family, k) ? 0 : family == TEST_NRGPT ? 2 : 1);
        uint64_t numbers = 0;
        for (size_t i = 0; i < m->n_tensors; i++) {
            descent_tensor_info tensor;
            assert_true(descent_model_tensor(s.e.engine, i, &tensor));
            assert_string_equal(tensor.name, m->tensors[i].name);
            assert_int_equal(tensor.n_dims, m->tensors[i].n_dims);
            assert_int_equal(tensor.dims[0], m->tensors[i].columns);
            assert_int_equal(tensor.bytes, m->tensors[i].rows * m->tensors[i].columns * sizeof(float));
            numbers += m->tensors[i].rows * m->tensors[i].columns;
        }
        descent_tensor_info none;
        assert_false(descent_model_tensor(s.e.engine, m->n_tensors, &none));
        assert_int_equal(info->parameters, numbers);
        assert_null(descent_model_tokenizer(s.e.engine));
        tear_down(&s);
    }
}

static void depths(void **state)
{
    static const char *const wrong[] = {"",    "0",  "-1",    "65536",  "1000000000", "99999999999999999999",
                                        "3x",  "x3", "1x2x3", "3x0",    "0x3",        "3 x2",
                                        " 3",  "3 ", "+3",    "0x10x2", "three",      "3.0",
                                        "3,2", "1e3"};
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        setting s = set_up(family);
        descent_depth depth = {{77, 78}};
        char text[16];
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            compare_about("depth \"%s\"", wrong[n]);
            expect_code(descent_depth_parse(s.e.engine, wrong[n], &depth, &s.status), DESCENT_BAD_ARGUMENT, &s.status, NULL);
        }
        assert_int_equal(depth.steps[0], 77); /* untouched */
        size_t depths = (size_t)test_has_depth(family, 0) + test_has_depth(family, 1);
        descent_code one = descent_depth_parse(s.e.engine, depths ? "65535" : "none", &depth, &s.status);
        expect_ok(one, &s.status);
        for (size_t k = 0; k < DESCENT_MAX_KINDS; k++) assert_int_equal(depth.steps[k], test_has_depth(family, k) ? 65535 : 0);
        assert_string_equal(descent_depth_format(s.e.engine, depth, text), depths ? "65535" : "none");
        one = descent_depth_parse(s.e.engine, depths ? "none" : "1", &depth, &s.status);
        expect_code(one, DESCENT_BAD_ARGUMENT, &s.status, depths ? "number" : "no sub-layer");
        descent_code two = descent_depth_parse(s.e.engine, "3x2", &depth, &s.status);
        if (depths == 2) {
            expect_ok(two, &s.status);
            assert_int_equal(depth.steps[0], 3);
            assert_int_equal(depth.steps[1], 2);
            assert_string_equal(descent_depth_format(s.e.engine, depth, text), "3x2");
        } else {
            expect_code(two, DESCENT_BAD_ARGUMENT, &s.status, depths == test_kinds(family) ? "a number" : "no");
        }

        /* A depth of its own for a sequence: every kind that has a T at least 1, and none where there is no T. */
        descent_depth before = descent_sequence_depth(s.sequence), after;
        for (size_t k = 0; k < DESCENT_MAX_KINDS; k++) {
            descent_sequence *sequence = NULL;
            descent_sequence_options options = {.depth = depth_of(family, 2, 2)};
            options.depth.steps[k] = test_has_depth(family, k) ? 0 : 2;
            if (options.depth.steps[0] + options.depth.steps[1] == 0) options.depth.steps[1 - k] = 2; /* all zero: as trained */
            expect_code(descent_sequence_create(s.cache, &options, &sequence, &s.status), DESCENT_BAD_ARGUMENT, &s.status,
                        test_has_depth(family, k) ? NULL : "2");
            expect_code(descent_sequence_set_depth(s.sequence, options.depth, &s.status), DESCENT_BAD_ARGUMENT, &s.status,
                        NULL);
            assert_null(sequence);
        }
        if (depths)
            expect_code(descent_sequence_set_depth(s.sequence, (descent_depth){{0, 0}}, &s.status), DESCENT_BAD_ARGUMENT,
                        &s.status, "0");
        after = descent_sequence_depth(s.sequence);
        assert_memory_equal(&before, &after, sizeof before);
        descent_sequence *trained = drive_sequence(s.cache, (descent_depth){{0, 0}}, true, NULL, 0);
        after = descent_sequence_depth(trained);
        assert_memory_equal(&after, &descent_model_describe(s.e.engine)->trained, sizeof after);
        descent_sequence_destroy(trained);
        tear_down(&s);
    }
}

static void tokens_and_positions(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        setting s = set_up(family);
        uint32_t many[CONTEXT + 1] = {0}, bad[3] = {0, (uint32_t)s.e.model.vocab, UINT32_MAX};
        char words[24];
        expect_code(descent_sequence_append(s.sequence, many, CONTEXT - 9, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "40");
        expect_code(descent_sequence_append(s.sequence, many, SIZE_MAX, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "40");
        (void)snprintf(words, sizeof words, "%zu", s.e.model.vocab);
        expect_code(descent_sequence_append(s.sequence, bad, 2, &s.status), DESCENT_BAD_ARGUMENT, &s.status, words);
        expect_code(descent_sequence_append(s.sequence, bad + 2, 1, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "4294967295");
        assert_int_equal(descent_sequence_length(s.sequence), 10);
        expect_code(descent_sequence_truncate(s.sequence, 11, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "11");
        expect_ok(descent_sequence_append(s.sequence, NULL, 0, &s.status), &s.status);

        uint32_t steps = 77;
        expect_code(descent_sequence_state(s.sequence, 10, s.x, &steps, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "10");
        expect_code(descent_sequence_state(s.sequence, SIZE_MAX, s.x, &steps, &s.status), DESCENT_BAD_ARGUMENT, &s.status,
                    NULL);
        assert_int_equal(steps, 77);

        float *logits = test_alloc(2 * s.e.model.vocab, sizeof *logits);
        descent_reading readings[2] = {{s.sequence, 0}, {s.sequence, 9}};
        expect_code(descent_batch_logits(s.batch, readings, 2, logits, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "0");
        drive_finish(s.batch, s.sequence);
        readings[1].position = 10;
        expect_code(descent_batch_logits(s.batch, readings, 2, logits, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "10");
        expect_ok(descent_batch_logits(s.batch, readings, 0, logits, &s.status), &s.status);
        free(logits);
        tear_down(&s);
    }
}

static void nobody(void *user, const descent_observation *observation)
{
    (void)observation;
    *(size_t *)user += 1;
}

static void sites(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        setting s = set_up(family);
        uint32_t T = (uint32_t)sublayer_steps_at(s.e.depth, 0);
        const descent_site wrong[] = {{(uint32_t)s.e.model.layers, 0, 0, 2},
                                      {UINT32_MAX, 0, 0, 2},
                                      {0, (uint32_t)test_kinds(family), 0, 2},
                                      {0, UINT32_MAX, 0, 2},
                                      {0, 0, T, 2},
                                      {0, 0, UINT32_MAX, 2},
                                      {0, 0, 0, CONTEXT},
                                      {0, 0, 0, SIZE_MAX}};
        char steps[40]; /* a sub-layer without T runs once, and that is what the message says */
        (void)snprintf(steps, sizeof steps, ", %u steps of ", (unsigned)T);
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            compare_about("%s, wrong site %zu", test_family_name(family), n);
            expect_code(descent_sequence_intervene(s.sequence, wrong[n], DESCENT_ADD_X, s.x, &s.status), DESCENT_BAD_ARGUMENT,
                        &s.status, n < 6 ? steps : "position");
            expect_code(descent_sequence_start(s.sequence, wrong[n], s.x, &s.status), DESCENT_BAD_ARGUMENT, &s.status, NULL);
        }
        const descent_site first = {0, 0, 0, 2}, beyond = {0, 0, 0, 10};
        compare_about("%s", test_family_name(family));
        expect_code(descent_sequence_start(s.sequence, beyond, s.x, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "10");
        expect_code(descent_sequence_intervene(s.sequence, first, (descent_intervention)4, s.x, &s.status),
                    DESCENT_BAD_ARGUMENT, &s.status, "4");
        const float sick[] = {NAN, INFINITY, -INFINITY};
        for (size_t n = 0; n < 3; n++) {
            s.x[s.e.model.width - 1] = sick[n];
            expect_code(descent_sequence_intervene(s.sequence, first, DESCENT_SET_G, s.x, &s.status), DESCENT_BAD_ARGUMENT,
                        &s.status, "finite");
            expect_code(descent_sequence_start(s.sequence, first, s.x, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "finite");
        }
        s.x[s.e.model.width - 1] = 0;

        size_t seen = 0;
        expect_code(descent_sequence_observe(s.sequence, 64, nobody, &seen, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "64");
        expect_code(descent_sequence_observe(s.sequence, -1, nobody, &seen, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "-1");
        expect_code(descent_sequence_observe(s.sequence, 1, NULL, NULL, &s.status), DESCENT_BAD_ARGUMENT, &s.status, NULL);
        expect_ok(descent_sequence_observe(s.sequence, OBSERVE_ALL, nobody, &seen, &s.status), &s.status);
        expect_ok(descent_sequence_observe(s.sequence, 0, NULL, NULL, &s.status), &s.status);
        drive_finish(s.batch, s.sequence);
        assert_int_equal(seen, 0);
        /* What has run cannot be reached any more. */
        expect_code(descent_sequence_intervene(s.sequence, first, DESCENT_ADD_X, s.x, &s.status), DESCENT_BAD_ARGUMENT,
                    &s.status, "2");
        expect_code(descent_sequence_start(s.sequence, first, s.x, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "2");
        tear_down(&s);
    }
}

/* Ten tokens made each step of each sub-layer once. */
static void check_steps(const setting *s, const size_t by_step[DESCENT_ROW_BUCKETS], uint64_t steps_sum)
{
    size_t wanted[DESCENT_ROW_BUCKETS] = {0}, sum = 0;
    for (size_t k = 0; k < test_kinds(s->e.model.family); k++)
        for (size_t t = 1; t <= sublayer_steps_at(s->e.depth, k); t++) {
            size_t bucket = 0;
            for (size_t bound = 1; bound < t; bound *= 2) bucket++;
            wanted[bucket] += 10 * s->e.model.layers;
            sum += 10 * s->e.model.layers * t;
        }
    for (size_t i = 0; i < DESCENT_ROW_BUCKETS; i++) assert_int_equal(by_step[i], wanted[i]);
    assert_int_equal(steps_sum, sum);
}

static void caches_and_batches(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        setting s = set_up(family);
        descent_batch *batch = NULL;
        descent_batch_options options = {.max_rows = 65537};
        expect_code(descent_batch_create(s.cache, &options, &batch, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "65537");
        descent_cache_options wrong = {.page_type = (descent_page_type)7};
        descent_cache *cache = NULL;
        expect_code(descent_cache_create(s.e.engine, &wrong, &cache, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "7");
        assert_null(batch);
        assert_null(cache);

        /* Everything of one cache; in one batch at a time. */
        cache = drive_cache(s.e.engine, DESCENT_PAGE_F32, 0);
        batch = drive_batch(cache, 0, 1);
        size_t added = 77;
        expect_code(descent_batch_add(batch, s.sequence, 1, &added, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "cache");
        descent_reading reading = {s.sequence, 0};
        float *logits = test_alloc(s.e.model.vocab, sizeof *logits);
        expect_code(descent_batch_logits(batch, &reading, 1, logits, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "cache");
        descent_batch_destroy(batch);
        batch = drive_batch(s.cache, 0, 1);
        expect_ok(descent_batch_add(s.batch, s.sequence, 3, &added, &s.status), &s.status);
        assert_int_equal(added, 3);
        assert_int_equal(descent_batch_rows(s.batch), 3);
        expect_code(descent_batch_add(batch, s.sequence, 3, &added, &s.status), DESCENT_BAD_ARGUMENT, &s.status, "batch");
        descent_batch_remove(batch, s.sequence); /* it is not there: nothing happens */
        assert_int_equal(descent_batch_rows(s.batch), 3);
        descent_batch_remove(s.batch, s.sequence);
        assert_int_equal(descent_batch_rows(s.batch), 0);

        /* Nothing to do is not an error. */
        descent_step_report report = {.rows = 9, .finished = 9, .diverged = 9, .rows_by_step = {9}, .steps_sum = 9};
        expect_ok(descent_batch_step(s.batch, &report, &s.status), &s.status);
        assert_int_equal(report.rows + report.finished + report.diverged + report.rows_by_step[0] + report.steps_sum, 0);
        descent_sequence *empty = drive_sequence(s.cache, s.e.depth, true, NULL, 0);
        expect_ok(descent_batch_add(s.batch, empty, 5, &added, &s.status), &s.status);
        assert_int_equal(added, 0);
        drive_finish(s.batch, empty);
        descent_sequence_destroy(empty);
        descent_sequence_destroy(NULL);

        /* Every step is counted once, and by its t. */
        size_t rows = 0, finished = 0, by_step[DESCENT_ROW_BUCKETS] = {0};
        uint64_t steps_sum = 0;
        expect_ok(descent_batch_add(s.batch, s.sequence, 10, &added, &s.status), &s.status);
        while (descent_batch_rows(s.batch) > 0) {
            expect_ok(descent_batch_step(s.batch, &report, &s.status), &s.status);
            rows += report.rows;
            finished += report.finished;
            steps_sum += report.steps_sum;
            for (size_t i = 0; i < DESCENT_ROW_BUCKETS; i++) by_step[i] += report.rows_by_step[i];
        }
        assert_int_equal(finished, 10);
        check_steps(&s, by_step, steps_sum);
        assert_int_equal(rows, 10 * row_steps_at(&s.e.model, s.e.depth));
        assert_int_equal(descent_sequence_steps_run(s.sequence), rows);

        /* A destroyed sequence leaves the batch. */
        descent_sequence *gone = drive_sequence(s.cache, s.e.depth, false, s.e.tokens, 10);
        expect_ok(descent_batch_add(s.batch, gone, 10, &added, &s.status), &s.status);
        expect_ok(descent_batch_step(s.batch, NULL, &s.status), &s.status);
        descent_sequence_destroy(gone);
        assert_int_equal(descent_batch_rows(s.batch), 0);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        free(logits);
        tear_down(&s);
    }
}

/* A status is optional everywhere. */
static void a_status_is_optional(void **state)
{
    setting s = set_up(false);
    uint32_t bad = UINT32_MAX;
    (void)state;
    assert_int_equal(descent_sequence_append(s.sequence, &bad, 1, NULL), DESCENT_BAD_ARGUMENT);
    assert_int_equal(descent_sequence_append(s.sequence, &bad, 0, NULL), DESCENT_OK);
    assert_int_equal(descent_sequence_truncate(s.sequence, 99, NULL), DESCENT_BAD_ARGUMENT);
    assert_int_equal(descent_sequence_state(s.sequence, 99, s.x, NULL, NULL), DESCENT_BAD_ARGUMENT);
    assert_int_equal(descent_sequence_state(s.sequence, 0, s.x, NULL, NULL), DESCENT_OK);
    assert_int_equal(descent_sequence_state_code(s.sequence, NULL), DESCENT_OK);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models),
                                       cmocka_unit_test(description),
                                       cmocka_unit_test(depths),
                                       cmocka_unit_test(tokens_and_positions),
                                       cmocka_unit_test(sites),
                                       cmocka_unit_test(caches_and_batches),
                                       cmocka_unit_test(a_status_is_optional)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
