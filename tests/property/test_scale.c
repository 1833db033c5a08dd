/* test_scale.c: the update is invariant to the scale of x up to epsilon: logits(x0, step_scale s, eps) equals
 * logits(x0 / s, 1, eps / s^2). One model takes steps s times as long, the other starts s times as near to the origin with an
 * epsilon s^2 times as small (the final norm's too). For s a power of two nothing is rounded differently: the same bits. */
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

static void multiply(test_model *model, const char *name, double by)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        const test_tensor *tensor = &model->tensors[i];
        for (size_t n = 0; !strcmp(tensor->name, name) && n < tensor->rows * tensor->columns; n++) tensor->values[n] *= by;
    }
}

static void scale_is_invariant(const test_model *model, rng *r, double s)
{
    test_model longer = test_model_copy(model), nearer = test_model_copy(model);
    multiply(&longer, "blk.0.rate.weight", s);
    multiply(&nearer, "token_embd.weight", 1.0 / s);
    multiply(&nearer, "position_embd.weight", 1.0 / s);
    nearer.norm_epsilon = round_to_f32(model->norm_epsilon / (s * s));
    test_model_round(&longer);
    test_model_round(&nearer);
    size_t count = rng_between(r, 1, model->context);
    uint32_t *tokens = random_tokens(r, model, count);
    drive_options options = {.depth = random_depth(r, model, 5), .observe = OBSERVE_ALL};
    reference_request request = {.tokens = tokens, .count = count, .depth = options.depth};
    reference_run expected = reference_compute(&nearer, &request);
    if (reference_sensitivity(&nearer, &request, &expected) < 0.03) {
        descent_model *engine = drive_open_test_model(&longer);
        outcome got = drive(engine, tokens, count, &options);
        descent_model_close(engine);
        compare_logits(got.logits, expected.logits, count, got.vocab, "logits of longer steps against a nearer start");
        engine = drive_open_test_model(&nearer);
        outcome near = drive(engine, tokens, count, &options);
        descent_model_close(engine);
        int exponent;
        if (frexp(s, &exponent) == 0.5) {
            compare_bits(got.logits, near.logits, count * got.vocab, "logits of both");
            for (size_t i = 0; i < count * got.width; i++) near.states[i] *= (float)s;
            compare_bits(got.states, near.states, count * got.width, "states, scaled,");
            for (size_t t = 0; t <= options.depth.steps[0]; t++) {
                const record_step *a = &got.seen->at[0][t], *b = &near.seen->at[0][t];
                compare_bits(a->g, b->g, count * got.width, "g");
                compare_bits(a->energy[0], b->energy[0], count, "attention energies");
                compare_bits(a->energy[1], b->energy[1], count, "feed-forward energies");
                compare_bits(a->relative_change, b->relative_change, count, "relative_change");
            }
        }
        outcome_free(&near);
        outcome_free(&got);
    }
    reference_free(&expected);
    test_model_free(&longer);
    test_model_free(&nearer);
    free(tokens);
}

static void longer_steps_are_a_nearer_start(void **state)
{
    static const double scales[] = {2.0, 0.5, 8.0, 3.0, 1.7, 0.3};
    (void)state;
    for (size_t round = 0; round < test_rounds(90); round++) {
        rng r = rng_seeded(test_seed(90, round));
        double s = scales[round % 6];
        test_model model = random_model(&r, TEST_NRGPT, 40);
        compare_about("seed %llu, %s, s = %g", (unsigned long long)test_seed(90, round), test_model_words(&model), s);
        scale_is_invariant(&model, &r, s);
        test_model_free(&model);
    }
    compare_report();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(longer_steps_are_a_nearer_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
