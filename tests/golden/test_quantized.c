/* test_quantized.c: the engine on quantized golden models against the float64 references, which compute from the numbers that
 * the public gguf package reads from the same bytes (golden/quantize.py). Whole prompt at once; token by token; in uneven
 * chunks beside other sequences on two threads: the three must agree bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "drive.h"
#include "golden.h"
#include "model_file.h"
#include "rounding.h"

static const char *const types[] = {"q8_0", "q4_0", "q4_k", "q6_k"}, *const type_names[] = {"Q8_0", "Q4_0", "Q4_K", "Q6_K"};

static const drive_options ways[] = {
    {.chunks = DRIVE_WHOLE}, {.chunks = DRIVE_SINGLE}, {.chunks = DRIVE_UNEVEN, .mates = 5, .threads = 2}};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static void compare_at(const golden *model, descent_model *engine, const test_model *weights, descent_depth depth)
{
    reference_request request = {.tokens = model->tokens, .count = model->count, .depth = depth};
    reference_run exact = reference_compute(weights, &request);
    rounding allowed = rounding_of(weights, &request, &exact);
    outcome outcomes[N_WAYS];
    for (size_t way = 0; way < N_WAYS; way++) {
        drive_options options = ways[way];
        options.depth = depth;
        outcomes[way] = drive(engine, model->tokens, model->count, &options);
        if (way == 0) compare_rounded(&outcomes[way], &exact, &allowed);
        if (way > 0) compare_outcomes(&outcomes[way], &outcomes[0]);
    }
    for (size_t way = 0; way < N_WAYS; way++) outcome_free(&outcomes[way]);
    reference_free(&exact);
}

static void compare_type(const golden *model, const char *type, const char *type_name)
{
    const char *directory = getenv("DESCENT_GOLDEN_DIR");
    char quantized[600], read[600];
    (void)snprintf(quantized, sizeof quantized, "%s/%s.%s.gguf", directory, model->name, type);
    (void)snprintf(read, sizeof read, "%s/%s.%s.f32.gguf", directory, model->name, type);
    descent_model *engine = drive_open(quantized);
    test_model weights = read_model(read);
    assert_string_equal(descent_model_describe(engine)->weight_type, type_name);
    descent_depth depth;
    const char *suffix;
    for (size_t d = 0; golden_depth(model, d, &depth, &suffix); d++) {
        compare_about("%s as %s at %s", model->name, type_name, suffix);
        compare_at(model, engine, &weights, depth);
    }
    test_model_free(&weights);
    descent_model_close(engine);
}

static void engine_equals_reference(void **state)
{
    golden model = golden_open(*state);
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) compare_type(&model, types[k], type_names[k]);
    golden_close(&model);
}

int main(void)
{
    struct CMUnitTest tests[16];
    size_t count = 0;
    for (; golden_names[count]; count++)
        tests[count] = (struct CMUnitTest){golden_names[count], engine_equals_reference, NULL, NULL,
                                           (void *)(uintptr_t)golden_names[count]};
    return _cmocka_run_group_tests("quantized", tests, count, NULL, NULL);
}
