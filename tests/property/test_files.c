/* test_files.c: a file that is not what its family needs is refused by the name of what is wrong in it: every tensor that is
 * missing or of another shape, and settings that contradict each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
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

static void no_step_of_mlp(test_model *model)
{
    model->steps[1] = 0;
}

static void odd_heads(test_model *model)
{
    model->heads = model->width;
}

static void wrong_settings(void **state)
{
    static const test_family families[] = {TEST_GPT, TEST_GPT_REC, TEST_CEM, TEST_LLAMA, TEST_CEM_SWIGLU, TEST_LLAMA_CEM};
    (void)state;
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        expect_setting_refused(families[n], many_layers, "block_count");
        expect_setting_refused(families[n], no_layer, "block_count");
        expect_setting_refused(families[n], more_heads_than_width, "attention.head_count");
        expect_setting_refused(families[n], no_head, "attention.head_count");
        expect_setting_refused(families[n], negative_epsilon, "norm_epsilon");
        expect_setting_refused(families[n], epsilon_that_is_no_number, "norm_epsilon");
    }
    expect_setting_refused(TEST_GPT_REC, two_layers, "block_count");
    expect_setting_refused(TEST_NRGPT, two_layers, "block_count");
    expect_setting_refused(TEST_GPT_REC, no_step, "steps");
    expect_setting_refused(TEST_CEM_SWIGLU, no_step, "steps.attention");
    expect_setting_refused(TEST_LLAMA_CEM, no_step_of_mlp, "steps.mlp");
    expect_setting_refused(TEST_CEM, odd_heads, "attention.head_count");
    expect_setting_refused(TEST_LLAMA, odd_heads, "attention.head_count");
}

/* The bytes of a file in which `from` stands once, with `to` of the same length in its place, opened. */
static void expect_respelled(test_family family, const char *from, const char *to, descent_code code, const char *words)
{
    rng r = rng_seeded(test_seed(152, family));
    test_model model = random_model(&r, family, 9);
    const char *path = scratch_path("respelled.gguf");
    size_t length = strlen(from);
    compare_about("%s, %s is %s", test_model_words(&model), from, to);
    write_model(&model, path);
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    char bytes[4096];
    size_t n = fread(bytes, 1, sizeof bytes, stream), at = 0;
    while (at + length <= n && memcmp(bytes + at, from, length) != 0) at++;
    assert_true(at + length <= n);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(to, 1, length, stream), length);
    assert_int_equal(fclose(stream), 0);
    descent_model *opened = NULL;
    descent_status status;
    expect_code(descent_model_open(path, &opened, &status), code, &status, words);
    assert_null(opened);
    test_model_free(&model);
}

static void kinds_of_sub_layer(void **state)
{
    (void)state;
    expect_respelled(TEST_LLAMA, "llama", "gemma", DESCENT_UNSUPPORTED, "cem.attention.kind is \"gemma\"");
    expect_respelled(TEST_CEM_SWIGLU, "swiglu", "geglu2", DESCENT_UNSUPPORTED, "this version knows cem, swiglu");
    /* Where the kind is not said it is CEM's, and then something CEM needs is not there. */
    expect_respelled(TEST_LLAMA, "cem.attention.kind", "cem.attention.kine", DESCENT_BAD_FILE, "cem.steps.attention");
    expect_respelled(TEST_CEM_SWIGLU, "cem.mlp.kind", "cem.mlp.kine", DESCENT_BAD_FILE, "cem.steps.mlp");
    expect_respelled(TEST_LLAMA_CEM, "cem.steps.mlp", "cem.steps.mlq", DESCENT_BAD_FILE, "cem.steps.mlp");
    expect_respelled(TEST_CEM_SWIGLU, "cem.attention.diagonal", "cem.attention.diagonel", DESCENT_BAD_FILE,
                     "cem.attention.diagonal");
    expect_respelled(TEST_LLAMA_CEM, "cem.activation", "cem.activatiom", DESCENT_BAD_FILE, "cem.activation");
    expect_respelled(TEST_LLAMA_CEM, "cem.preconditioner.rank", "cem.preconditioner.ramk", DESCENT_BAD_FILE,
                     "cem.preconditioner.rank");
    expect_respelled(TEST_LLAMA, "cem.rope.freq_base", "cem.rope.freq_bass", DESCENT_BAD_FILE, "cem.rope.freq_base");
}

/* A tensor's type stands behind its name, the number of its dimensions and two of them. I16 takes the bytes that F16 does. */
static void a_type_nobody_computes_with(void **state)
{
    static const char name[] = "token_embd.weight", i16[] = {25, 0, 0, 0};
    (void)state;
    rng r = rng_seeded(test_seed(153, 0));
    test_model model = random_shape(&r, TEST_CEM, 9);
    model.weight = TEST_F16;
    random_weights(&model, &r);
    const char *path = scratch_path("typed.gguf");
    write_model(&model, path);
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    char bytes[4096];
    size_t n = fread(bytes, 1, sizeof bytes, stream), at = 0;
    while (at + sizeof name <= n && memcmp(bytes + at, name, sizeof name - 1) != 0) at++;
    assert_true(at + sizeof name <= n);
    assert_int_equal(fseek(stream, (long)(at + sizeof name - 1 + 4 + 16), SEEK_SET), 0);
    assert_int_equal(fwrite(i16, 1, sizeof i16, stream), sizeof i16);
    assert_int_equal(fclose(stream), 0);
    descent_model *opened = NULL;
    descent_status status;
    expect_code(descent_model_open(path, &opened, &status), DESCENT_UNSUPPORTED, &status,
                "tensor token_embd.weight has type I16; this version computes with F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K");
    assert_null(opened);
    test_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tensors_that_are_missing_or_misshapen),
                                       cmocka_unit_test(wrong_settings), cmocka_unit_test(kinds_of_sub_layer),
                                       cmocka_unit_test(a_type_nobody_computes_with)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
