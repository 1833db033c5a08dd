/* test_references.c: the tests' own references against the golden numbers, which a third implementation computed. Everything
 * else that is compared with a reference rests on this. The golden numbers are float64 results stored as f32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "compare.h"
#include "golden.h"
#include "model_file.h"
#include "reference.h"

static void expect_rounded(const double *got, const safetensors_array *expected, size_t count, const char *what,
                           const char *suffix)
{
    assert_int_equal(expected->count, count);
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected->values[i]) <= 4e-7 * fmax(1.0, fabs(expected->values[i]))))
            compare_fail("%s.%s[%zu] is %.12g, expected %.12g", what, suffix, i, got[i], expected->values[i]);
}

static void exact(double *values, size_t count)
{
    (void)values;
    (void)count;
}

static void expect_energies(const golden *model, const reference_run *run, const char *suffix)
{
    static const char *const parts[2][2] = {{"attn", "ff"}, {"attn", "mlp"}};
    for (size_t part = 0; part < 2; part++) {
        bool cem = run->kinds == 2;
        const safetensors_array *expected = safetensors_find(model->expected, "energy.%s.%s", parts[cem][part], suffix);
        if (!expected) continue;
        size_t steps = expected->dims[expected->n_dims - 2], layers = cem ? expected->dims[0] : 1;
        for (size_t n = 0; n < layers * steps * run->count; n++) {
            size_t program = cem ? n / run->count / steps * 2 + part : 0, t = n / run->count % steps, i = n % run->count;
            double got = run->at[program][t].energy[cem ? 0 : part][i];
            if (!(fabs(got - expected->values[n]) <= 4e-7 * fmax(1.0, fabs(expected->values[n]))))
                compare_fail("energy.%s.%s at program %zu, step %zu, position %zu is %.12g, expected %.12g", parts[cem][part],
                             suffix, program, t, i, got, expected->values[n]);
        }
    }
}

static void references_equal_golden_numbers(void **state)
{
    (void)state;
    for (size_t n = 0; golden_names[n]; n++) {
        golden model = golden_open(golden_names[n]);
        test_model weights = read_model(model.path);
        descent_depth depth;
        const char *suffix;
        size_t depths = 0;
        compare_about("%s", golden_names[n]);
        for (; golden_depth(&model, depths, &depth, &suffix); depths++) {
            reference_request request = {.tokens = model.tokens, .count = model.count, .depth = depth, .round_page = exact};
            reference_run run = reference_compute(&weights, &request);
            expect_rounded(run.logits, safetensors_find(model.expected, "logits.%s", suffix), run.count * run.vocab, "logits",
                           suffix);
            const safetensors_array *states = safetensors_find(model.expected, "state.%s", suffix);
            if (states) expect_rounded(run.states, states, run.count * run.width, "state", suffix);
            expect_energies(&model, &run, suffix);
            reference_free(&run);
        }
        assert_true(depths >= model.least_depths);
        test_model_free(&weights);
        golden_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(references_equal_golden_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
