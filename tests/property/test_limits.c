/* test_limits.c: what a batch takes, and how many row steps there are, is bounded whatever a file's shapes, and a model so wide
 * that its tiles have fewer rows computes the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"
#include "drive.h"
#include "model_file.h"
#include "random_model.h"

/* Of the baselines narrow ones with one block: their two matrices are large enough. */
static test_model wide_model(rng *r, test_family family, size_t context, size_t hidden)
{
    test_model shape = random_shape(r, family, context);
    shape.hidden = hidden;
    if (family == TEST_GPT || family == TEST_GPT_REC) {
        shape.width = 8;
        shape.heads = 2;
        shape.layers = 1;
    }
    random_weights(&shape, r);
    return shape;
}

static void rows_that_keep_too_much_are_refused(void **state)
{
    (void)state;
    rng r = rng_seeded(test_seed(97, 0));
    test_model shape = wide_model(&r, TEST_CEM, 6, 2064);
    descent_model *model = drive_open_test_model(&shape);
    descent_cache *cache = drive_cache(model, DESCENT_PAGE_F32, 0);
    descent_batch *batch = NULL;
    descent_status status;
    descent_code code = descent_batch_create(cache, &(descent_batch_options){.max_rows = 65536}, &batch, &status);
    expect_code(code, DESCENT_LIMIT, &status, "65536 rows");
    assert_null(batch);
    expect_ok(descent_batch_create(cache, &(descent_batch_options){.max_rows = 1024}, &batch, &status), &status);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    descent_model_close(model);
    test_model_free(&shape);
}

/* 2^27 numbers hold fewer than 128 rows of five arrays of 300,000. */
static void narrow_tiles_compute_the_same_bits(void **state)
{
    (void)state;
    enum { TOKENS = 110 };
    static const test_family families[] = {TEST_NRGPT, TEST_GPT, TEST_GPT_REC};
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        rng r = rng_seeded(test_seed(97, 1 + n));
        test_model shape = wide_model(&r, families[n], TOKENS, 300000);
        descent_model *model = drive_open_test_model(&shape);
        uint32_t *tokens = random_tokens(&r, &shape, TOKENS);
        descent_depth once = depth_of(families[n], 1, 1);
        drive_options whole = {.depth = once, .max_rows = TOKENS}, few = {.depth = once, .max_rows = 7};
        outcome one = drive(model, tokens, TOKENS, &whole), other = drive(model, tokens, TOKENS, &few);
        compare_outcomes(&one, &other);
        outcome_free(&one);
        outcome_free(&other);
        free(tokens);
        descent_model_close(model);
        test_model_free(&shape);
    }
}

/* layers x (65,535 + 65,535) row steps are counted in 32 bits. */
static void more_layers_than_can_be_counted_are_refused(void **state)
{
    (void)state;
    test_model shape = test_model_copy(&(test_model){.family = TEST_CEM,
                                                     .width = 4,
                                                     .vocab = 5,
                                                     .context = 6,
                                                     .heads = 1,
                                                     .hidden = 3,
                                                     .layers = 32769,
                                                     .norm_epsilon = 1e-5,
                                                     .steps = {1, 1},
                                                     .diagonal = "none",
                                                     .rank = -1,
                                                     .activation = "silu",
                                                     .rope_base = 500,
                                                     .tied = true});
    const char *path = scratch_path("layers.gguf");
    write_model(&shape, path);
    descent_model *model = NULL;
    descent_status status;
    expect_code(descent_model_open(path, &model, &status), DESCENT_BAD_FILE, &status, "cem.block_count");
    if (!strstr(status.message, "32768")) compare_fail("\"%s\" does not say how many there may be", status.message);
    (void)unlink(path);
    test_model_free(&shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_that_keep_too_much_are_refused),
                                       cmocka_unit_test(narrow_tiles_compute_the_same_bits),
                                       cmocka_unit_test(more_layers_than_can_be_counted_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
