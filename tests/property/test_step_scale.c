/* test_step_scale.c: step_scale s_t multiplies R and eta, of each sequence by itself: against the references; against a model
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

/* s at every step, or a list of up to 7 numbers that begins with it. */
static descent_motion motion_drawn(float s, size_t round)
{
    rng r = rng_seeded(test_seed(155, round));
    descent_motion motion = motion_scaled(s);
    for (; motion.n_scales < 7 && rng_below(&r, 4); motion.n_scales++)
        motion.step_scale[motion.n_scales] = (float)rng_between(&r, 1, 25) / 10;
    return motion;
}

static void scaled_steps_are_the_references(void **state)
{
    static const float scales[] = {0.25f, 0.7f, 1.5f, 2.0f, 3.3f, 4.0f, 0.01f};
    (void)state;
    for (size_t round = 0; round < test_rounds(84); round++) {
        float s = scales[round / DESCENDING % 7];
        example_wish wish = {.family = descending[round % DESCENDING], .context = 40, .motion = motion_drawn(s, round)};
        example e = example_draw(test_seed(150, round), &wish);
        drive_options options = {.depth = e.depth,
                                 .motion = motion_drawn(s, round),
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
        options.motion = motion_scaled(s);
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
            drive_options alone = {.depth = e.depth, .motion = motion_scaled(scales_beside[k])};
            expected[k] = drive(e.engine, e.tokens, e.count, &alone);
            if (k > 0 && !memcmp(expected[k].logits, expected[0].logits, e.count * expected[0].vocab * sizeof(float)))
                compare_fail("s = %g changes nothing", (double)scales_beside[k]);
        }
        for (size_t turn = 0; turn < 2; turn++) {
            for (size_t k = 0; k < SCALES; k++) {
                descent_sequence_options how = {.depth = e.depth, .motion = motion_scaled(scales_beside[k])};
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
        drive_options options = {.depth = e.depth, .motion = motion_scaled(0.5f)};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence_options how = {.depth = e.depth, .motion = motion_scaled(0.5f)};
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

/* A list is the steps it means: numbers that repeat the last one, and what lies behind, make no other list. */
static void equal_lists_share_pages(void **state)
{
    static const struct {
        descent_motion motion;
        size_t found; /* of the tokens that [0.5, 1.25, 2] was computed for */
    } asked[] = {{{.n_scales = 3, .step_scale = {0.5f, 1.25f, 2.0f}}, 64},
                 {{.n_scales = 3, .step_scale = {0.5f, 1.25f, 2.0f, 7.0f}}, 64},
                 {{.n_scales = 5, .step_scale = {0.5f, 1.25f, 2.0f, 2.0f, 2.0f}}, 64},
                 {{.n_scales = 4, .step_scale = {0.5f, 1.25f, 2.0f, 1.0f}}, 0},
                 {{.n_scales = 2, .step_scale = {0.5f, 1.25f}}, 0},
                 {{.n_scales = 3, .step_scale = {0.5f, 2.0f, 1.25f}}, 0},
                 {{.n_scales = 1, .step_scale = {0.5f}}, 0},
                 {{.n_scales = 0, .step_scale = {0.5f}}, 0}};
    (void)state;
    for (size_t n = 0; n < 2 * sizeof asked / sizeof *asked; n++) {
        descent_motion motion = asked[n / 2].motion;
        example_wish wish = {.family = descending[n % 2], .context = TOKENS, .count = TOKENS, .most = 3, .motion = motion};
        example e = example_draw(test_seed(156, n), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        drive_options options = {.depth = e.depth, .motion = asked[0].motion, .sharing = true};
        outcome first = drive_in(cache, batch, e.engine, e.tokens, e.count, &options);
        descent_sequence_options how = {.depth = e.depth, .motion = motion};
        descent_sequence *sequence = drive_sequence_as(cache, &how, e.tokens, e.count);
        assert_int_equal(descent_sequence_reused(sequence), asked[n / 2].found);
        drive_finish(batch, sequence);
        outcome got = drive_read(batch, e.engine, sequence);
        compare_outcome(&got, &e.expected);
        outcome_free(&got);
        outcome_free(&first);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

static void lists_out_of_bounds_are_refused(void **state)
{
    (void)state;
    example_wish wish = {.family = TEST_NRGPT, .context = 8};
    example e = example_draw(test_seed(157, 0), &wish);
    descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
    descent_sequence *sequence = NULL;
    descent_status status;
    descent_sequence_options how = {.motion = {.n_scales = DESCENT_MAX_SCALES}};
    for (size_t t = 0; t < DESCENT_MAX_SCALES; t++) how.motion.step_scale[t] = 1.0f;
    how.motion.step_scale[DESCENT_MAX_SCALES - 1] = -1.0f;
    expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status, "-1 at step 63");
    how.motion.n_scales = DESCENT_MAX_SCALES + 1;
    expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status, "65 numbers");
    how.motion.n_scales = DESCENT_MAX_SCALES - 1;
    expect_ok(descent_sequence_create(cache, &how, &sequence, &status), &status);
    descent_sequence_destroy(sequence);
    descent_cache_destroy(cache);
    example_free(&e);
}

static void what_is_no_scale_is_refused(void **state)
{
    static const float wrong[] = {0.0f, -1.0f, -0x1p-149f, 4.0000005f, 1e30f, INFINITY, -INFINITY, NAN};
    static const float right[] = {0x1p-149f, 1.0f, 4.0f};
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        example_wish wish = {.family = family, .context = 8};
        example e = example_draw(test_seed(154, family), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_sequence *sequence = NULL;
        descent_status status;
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            descent_sequence_options how = {.motion = motion_scaled(wrong[n])};
            expect_code(descent_sequence_create(cache, &how, &sequence, &status), DESCENT_BAD_ARGUMENT, &status, "step_scale");
            assert_non_null(strstr(status.message, "4"));
            assert_null(sequence);
        }
        for (size_t n = 0; n < sizeof right / sizeof *right; n++) {
            descent_sequence_options how = {.motion = motion_scaled(right[n])};
            descent_code code = descent_sequence_create(cache, &how, &sequence, &status);
            bool taken = test_descends(family) || right[n] == 1.0f;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(scaled_steps_are_the_references),
                                       cmocka_unit_test(scaled_steps_are_scaled_weights),
                                       cmocka_unit_test(sequences_of_other_scales_stand_beside),
                                       cmocka_unit_test(a_restored_sequence_keeps_its_scale),
                                       cmocka_unit_test(equal_lists_share_pages),
                                       cmocka_unit_test(lists_out_of_bounds_are_refused),
                                       cmocka_unit_test(what_is_no_scale_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
