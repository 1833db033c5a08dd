/* test_step_scale.c: step_scale s multiplies R and eta, of each sequence by itself: against the references; against a model
 * whose weights hold s already; beside sequences of another s, with whom no page is shared; saved and restored; refused where
 * nothing descends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"
#include "model_file.h"

enum { DESCENDING = 4 };
static const test_family descending[DESCENDING] = {TEST_NRGPT, TEST_CEM, TEST_CEM_SWIGLU, TEST_LLAMA_CEM};

static void scaled_steps_are_the_references(void **state)
{
    static const float scales[] = {0.25f, 0.7f, 1.5f, 2.0f, 3.3f, 4.0f, 0.01f};
    (void)state;
    for (size_t round = 0; round < test_rounds(84); round++) {
        float s = scales[round / DESCENDING % 7];
        example_wish wish = {.family = descending[round % DESCENDING], .context = 40, .step_scale = (double)s};
        example e = example_draw(test_seed(150, round), &wish);
        drive_options options = {.depth = e.depth,
                                 .step_scale = s,
                                 .chunks = (drive_chunks)(round % 3),
                                 .mates = round % 2 ? 3 : 0,
                                 .observe = OBSERVE_ALL,
                                 .seed = round};
        compare_about("seed %llu, %s, s = %g", (unsigned long long)test_seed(150, round), test_model_words(&e.model),
                      (double)s);
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        compare_outcome(&got, &e.expected);
        outcome_free(&got);
        example_free(&e);
    }
    compare_report();
}

/* Multiplies what s multiplies, in the weights. */
static void scale_rates(test_model *model, double s)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        const test_tensor *tensor = &model->tensors[i];
        bool rate = !strcmp(tensor->name, "blk.0.rate.weight") || strstr(tensor->name, "_eta.weight");
        for (size_t n = 0; rate && n < tensor->rows * tensor->columns; n++) tensor->values[n] *= s;
    }
}

/* For s a power of two nothing is rounded differently: the same bits. s = 1 is what no s is. */
static void scaled_steps_are_scaled_weights(void **state)
{
    static const float scales[] = {1.0f, 2.0f, 0.5f, 4.0f};
    (void)state;
    for (size_t round = 0; round < test_rounds(48); round++) {
        float s = scales[round / DESCENDING % 4];
        example_wish wish = {.family = descending[round % DESCENDING], .context = 40};
        example e = example_draw(test_seed(151, round), &wish);
        test_model scaled = test_model_copy(&e.model);
        scale_rates(&scaled, (double)s);
        drive_options options = {.depth = e.depth, .observe = OBSERVE_ALL};
        descent_model *engine = drive_open_test_model(&scaled);
        outcome expected = drive(engine, e.tokens, e.count, &options);
        descent_model_close(engine);
        options.step_scale = s;
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        for (size_t p = 0; p < got.seen->programs; p++) /* a slope is of the model's rate: s is none of it */
            for (size_t t = 0; t <= got.seen->steps[p]; t++)
                for (size_t n = 0; n < e.count; n++) got.seen->at[p][t].slope[n] *= s;
        compare_outcomes(&got, &expected);
        outcome_free(&got);
        outcome_free(&expected);
        test_model_free(&scaled);
        example_free(&e);
    }
}

enum { SCALES = 3, TOKENS = 80 };
static const float scales_beside[SCALES] = {1.0f, 0.5f, 1.25f};

/* One batch advances the same text at several s; each has the bits it has alone, and finds the pages of its own s only. */
static void sequences_of_other_scales_stand_beside(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(16); round++) {
        example_wish wish = {.family = descending[round % DESCENDING], .context = TOKENS, .count = TOKENS, .most = 3};
        example e = example_draw(test_seed(152, round), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        outcome expected[SCALES];
        descent_sequence *sequences[SCALES];
        descent_status status;
        for (size_t k = 0; k < SCALES; k++) {
            drive_options alone = {.depth = e.depth, .step_scale = scales_beside[k]};
            expected[k] = drive(e.engine, e.tokens, e.count, &alone);
            if (k > 0 && !memcmp(expected[k].logits, expected[0].logits, e.count * expected[0].vocab * sizeof(float)))
                compare_fail("s = %g changes nothing", (double)scales_beside[k]);
        }
        for (size_t turn = 0; turn < 2; turn++) {
            for (size_t k = 0; k < SCALES; k++) {
                descent_sequence_options how = {.depth = e.depth, .step_scale = scales_beside[k]};
                sequences[k] = drive_sequence_as(cache, &how, e.tokens, e.count);
                assert_int_equal(descent_sequence_reused(sequences[k]), turn ? 64 : 0);
                size_t added;
                expect_ok(descent_batch_add(batch, sequences[k], rng_between(&e.r, 1, 30), &added, &status), &status);
            }
            for (size_t k = 0; k < SCALES; k++) drive_finish(batch, sequences[k]);
            for (size_t k = 0; k < SCALES; k++) {
                compare_about("%s, s = %g, turn %zu", test_model_words(&e.model), (double)scales_beside[k], turn);
                outcome got = drive_read(batch, e.engine, sequences[k]);
                compare_outcomes(&got, &expected[k]);
                outcome_free(&got);
            }
            for (size_t k = 0; k < SCALES; k++) descent_sequence_destroy(sequences[k]);
        }
        for (size_t k = 0; k < SCALES; k++) outcome_free(&expected[k]);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

static void a_restored_sequence_keeps_its_scale(void **state)
{
    (void)state;
    for (size_t n = 0; n < DESCENDING; n++) {
        example_wish wish = {.family = descending[n], .context = 60, .count = 60};
        example e = example_draw(test_seed(153, n), &wish);
        drive_options options = {.depth = e.depth, .step_scale = 0.5f};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence_options how = {.depth = e.depth, .step_scale = 0.5f};
        descent_sequence *sequence = drive_sequence_as(cache, &how, e.tokens, 40), *restored = NULL;
        descent_status status;
        drive_finish(batch, sequence);
        expect_ok(descent_sequence_save(sequence, scratch_path("scaled"), &status), &status);
        descent_sequence_destroy(sequence);
        expect_ok(descent_sequence_restore(cache, scratch_path("scaled"), &restored, &status), &status);
        drive_append(restored, e.tokens + 40, 20);
        drive_finish(batch, restored);
        outcome got = drive_read(batch, e.engine, restored);
        compare_outcomes(&got, &expected);
        outcome_free(&got);
        outcome_free(&expected);
        descent_sequence_destroy(restored);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

static void what_is_no_scale_is_refused(void **state)
{
    static const float wrong[] = {-1.0f, -0x1p-149f, 4.0000005f, 1e30f, INFINITY, -INFINITY, NAN};
    static const float right[] = {0x1p-149f, 1.0f, 4.0f, 0.0f};
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        example_wish wish = {.family = family, .context = 8};
        example e = example_draw(test_seed(154, family), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_sequence *sequence = NULL;
        descent_status status;
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            descent_sequence_options how = {.step_scale = wrong[n]};
            expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status, "step_scale");
            assert_non_null(strstr(status.message, "4"));
            assert_null(sequence);
        }
        for (size_t n = 0; n < sizeof right / sizeof *right; n++) {
            descent_sequence_options how = {.step_scale = right[n]};
            descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
            bool taken = test_descends(family) || right[n] == 0.0f || right[n] == 1.0f;
            expect_code(code, taken ? DESCENT_OK : DESCENT_UNSUPPORTED, &status, taken ? NULL : test_family_name(family));
            descent_sequence_destroy(sequence);
            sequence = NULL;
        }
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scaled_steps_are_the_references), cmocka_unit_test(scaled_steps_are_scaled_weights),
        cmocka_unit_test(sequences_of_other_scales_stand_beside), cmocka_unit_test(a_restored_sequence_keeps_its_scale),
        cmocka_unit_test(what_is_no_scale_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
