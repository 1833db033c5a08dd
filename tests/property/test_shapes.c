/* test_shapes.c: models of random shape, variant and weight type against the float64 references: logits, states, every
 * observation; lengths at page borders, at one token and at the whole context. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "compare.h"
#include "drive.h"
#include "random_model.h"

/* Lengths worth trying: 1 and 2, and both sides of every multiple of 16 a page may hold. */
static size_t length_for(size_t round, const test_model *model)
{
    static const size_t lengths[] = {1, 33, 2, 32, 31, 64, 15, 65, 16, 17, 63, 47, 48, 49};
    size_t length = lengths[round % (sizeof lengths / sizeof *lengths)];
    return length < model->context ? length : model->context;
}

static void against_reference(bool cem, uint64_t test, size_t rounds, test_weight weight)
{
    for (size_t round = 0; round < test_rounds(rounds); round++) {
        rng r = rng_seeded(test_seed(test, round));
        /* Every third model's context is just as long as the text. */
        static const size_t contexts[] = {70, 96, 32, 33, 64, 1};
        test_model model = random_shape(&r, cem, contexts[round % 6]);
        model.weight = weight;
        random_weights(&model, &r);
        size_t count = round % 3 == 2 ? model.context : length_for(round, &model);
        uint32_t *tokens = random_tokens(&r, &model, count);
        descent_model *engine = drive_open_test_model(&model);
        reference_request request = {.tokens = tokens, .count = count, .depth = random_depth(&r, &model, 5)};
        reference_run expected = reference_compute(&model, &request);
        drive_options options = {.depth = request.depth, .observe = OBSERVE_ALL, .chunks = (drive_chunks)rng_below(&r, 3),
                                 .mates = rng_below(&r, 3), .seed = rng_next(&r), .threads = (uint32_t)rng_between(&r, 1, 2)};
        compare_about("seed %llu, %s, %zu tokens at depth %u,%u, chunks %d", (unsigned long long)test_seed(test, round),
                      test_model_words(&model), count, request.depth.steps[0], request.depth.steps[1], (int)options.chunks);
        outcome got = drive(engine, tokens, count, &options);
        compare_outcome(&got, &expected);
        outcome_free(&got);
        reference_free(&expected);
        descent_model_close(engine);
        free(tokens);
        test_model_free(&model);
    }
    compare_report();
}

static void nrgpt_f32(void **state)
{
    (void)state;
    against_reference(false, 1, 200, TEST_F32);
}

static void cem_f32(void **state)
{
    (void)state;
    against_reference(true, 2, 150, TEST_F32);
}

static void narrower_weights(void **state)
{
    (void)state;
    for (unsigned cem = 0; cem < 2; cem++) {
        against_reference(cem, 3 + cem, 10, TEST_F16);
        against_reference(cem, 5 + cem, 10, TEST_BF16);
        against_reference(cem, 7 + cem, 10, TEST_Q8_0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nrgpt_f32), cmocka_unit_test(cem_f32),
                                       cmocka_unit_test(narrower_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
