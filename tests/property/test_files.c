/* test_files.c: a file that is not what its family needs is refused by the name of what is wrong in it: every tensor that is
 * missing or of another shape, and settings that contradict each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"
#include "drive.h"
#include "model_file.h"
#include "random_model.h"

static void expect_refused(const test_model *model, const char *words)
{
    descent_model *opened = NULL;
    descent_status status;
    const char *path = scratch_path("wrong.gguf");
    (void)unlink(path);
    write_model(model, path);
    expect_code(descent_model_open(path, &opened, &status), DESCENT_BAD_FILE, &status, words);
    assert_null(opened);
}

/* What a family may be without, and what may have any length. A layered model without a head has its embedding for one. */
static bool optional(test_family family, const test_tensor *tensor)
{
    bool head = !strcmp(tensor->name, "output.weight");
    return strstr(tensor->name, "attn_alpha") || (head && family != TEST_NRGPT && family != TEST_GPT && family != TEST_GPT_REC);
}

static bool of_any_length(const test_tensor *tensor)
{
    return strstr(tensor->name, "_eta.") != NULL;
}

/* The model without tensor i. */
static test_model without(const test_model *model, size_t i)
{
    test_model copy = test_model_copy(model);
    free(copy.tensors[i].values);
    memmove(copy.tensors + i, copy.tensors + i + 1, (copy.n_tensors - i - 1) * sizeof *copy.tensors);
    copy.n_tensors--;
    return copy;
}

/* The model with tensor i one row or one column larger. */
static test_model larger(const test_model *model, size_t i, bool row)
{
    test_model copy = test_model_copy(model);
    test_tensor *t = &copy.tensors[i];
    if (row)
        t->rows++;
    else
        t->columns++;
    free(t->values);
    t->values = test_alloc(t->rows * t->columns, sizeof *t->values);
    return copy;
}

static void tensors_that_are_missing_or_misshapen(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        rng r = rng_seeded(test_seed(150, family));
        test_model model = random_model(&r, family, 9);
        for (size_t i = 0; i < model.n_tensors; i++) {
            const test_tensor *tensor = &model.tensors[i];
            compare_about("%s, tensor %s", test_model_words(&model), tensor->name);
            if (!optional(family, tensor)) {
                test_model wrong = without(&model, i);
                expect_refused(&wrong, tensor->name);
                test_model_free(&wrong);
            }
            for (int row = 0; row < 2; row++) {
                if (of_any_length(tensor) || (row && tensor->n_dims == 1)) continue;
                test_model wrong = larger(&model, i, row);
                expect_refused(&wrong, tensor->name);
                test_model_free(&wrong);
            }
        }
        test_model_free(&model);
    }
}

/* A change of one setting of a family's model, and what the message must name. */
static void expect_setting_refused(test_family family, void (*change)(test_model *), const char *words)
{
    rng r = rng_seeded(test_seed(151, family));
    test_model model = random_model(&r, family, 9);
    compare_about("%s, %s", test_model_words(&model), words);
    change(&model);
    expect_refused(&model, words);
    test_model_free(&model);
}

static void many_layers(test_model *model)
{
    model->layers = 1000;
}

static void two_layers(test_model *model)
{
    model->layers = 2;
}

static void no_layer(test_model *model)
{
    model->layers = 0;
}

static void more_heads_than_width(test_model *model)
{
    model->heads = model->width + 1;
}

static void no_head(test_model *model)
{
    model->heads = 0;
}

static void negative_epsilon(test_model *model)
{
    model->norm_epsilon = -1e-5;
}

static void epsilon_that_is_no_number(test_model *model)
{
    model->norm_epsilon = NAN;
}

static void no_step(test_model *model)
{
    model->steps[0] = 0;
}

static void wrong_settings(void **state)
{
    static const test_family baselines[] = {TEST_GPT, TEST_GPT_REC};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        expect_setting_refused(baselines[n], many_layers, "block_count");
        expect_setting_refused(baselines[n], no_layer, "block_count");
        expect_setting_refused(baselines[n], more_heads_than_width, "attention.head_count");
        expect_setting_refused(baselines[n], no_head, "attention.head_count");
        expect_setting_refused(baselines[n], negative_epsilon, "norm_epsilon");
        expect_setting_refused(baselines[n], epsilon_that_is_no_number, "norm_epsilon");
    }
    expect_setting_refused(TEST_GPT_REC, two_layers, "block_count");
    expect_setting_refused(TEST_NRGPT, two_layers, "block_count");
    expect_setting_refused(TEST_GPT_REC, no_step, "steps");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tensors_that_are_missing_or_misshapen),
                                       cmocka_unit_test(wrong_settings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
