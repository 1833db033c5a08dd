/* test_golden.c: the engine against the golden numbers of another implementation, at every depth they were computed at:
 * whole prompt at once; token by token; in uneven chunks beside other sequences at other depths. The three must also agree
 * bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "compare.h"
#include "drive.h"
#include "golden.h"

static const char *const ways[] = {"whole prompt", "token by token", "uneven chunks beside others"};

/* Expected energies of both parts at every step before the last; what there is no array for is not compared. Returns how
 * many were. */
static size_t compare_energies(const golden *model, const record *seen, const char *suffix)
{
    static const char *const parts[2][2] = {{"attn", "ff"}, {"attn", "mlp"}};
    bool cem = seen->kinds == 2;
    size_t compared = 0;
    for (size_t part = 0; part < 2; part++) {
        const safetensors_array *expected = safetensors_find(model->expected, "energy.%s.%s", parts[cem][part], suffix);
        if (!expected) continue;
        size_t steps = expected->dims[expected->n_dims - 2], layers = cem ? expected->dims[0] : 1;
        assert_int_equal(expected->count, layers * steps * seen->count);
        for (size_t n = 0; n < expected->count; n++, compared++) {
            size_t layer = n / seen->count / steps, t = n / seen->count % steps, i = n % seen->count;
            const record_step *step =
                record_at(seen, (descent_site){(uint32_t)layer, cem ? (uint32_t)part : 0, (uint32_t)t, i});
            assert_true(step->seen[i]);
            compare_energy((double)step->energy[cem ? 0 : part][i], expected->values[n], parts[cem][part], t, i);
        }
    }
    return compared;
}

static void compare_golden(const golden *model, const outcome *got, const char *suffix)
{
    const safetensors_array *logits = safetensors_find(model->expected, "logits.%s", suffix);
    const safetensors_array *states = safetensors_find(model->expected, "state.%s", suffix);
    assert_int_equal(logits->count, got->count * got->vocab);
    compare_logits(got->logits, logits->values, got->count, got->vocab, "logits");
    if (states) {
        assert_int_equal(states->count, got->count * got->width);
        compare_states(got->states, states->values, got->count, got->width, "states");
    }
    size_t compared = compare_energies(model, got->seen, suffix);
    assert_true(!states == !compared); /* the models with states have energies too */
}

static void engine_equals_golden_numbers(void **state)
{
    const char *name = *state;
    golden model = golden_open(name);
    descent_model *engine = drive_open(model.path);
    descent_depth depth;
    const char *suffix;
    size_t depths = 0;
    for (; golden_depth(&model, depths, &depth, &suffix); depths++) {
        outcome outcomes[3];
        for (size_t way = 0; way < 3; way++) {
            drive_options options = {.depth = depth,
                                     .observe = OBSERVE_ALL,
                                     .seed = depths,
                                     .mates = way == 2 ? 5 : 0,
                                     .chunks = way == 0   ? DRIVE_WHOLE
                                               : way == 1 ? DRIVE_SINGLE
                                                          : DRIVE_UNEVEN};
            compare_about("%s at %s, %s", name, suffix, ways[way]);
            outcomes[way] = drive(engine, model.tokens, model.count, &options);
            compare_golden(&model, &outcomes[way], suffix);
            if (way > 0) compare_outcomes(&outcomes[way], &outcomes[0]);
        }
        for (size_t way = 0; way < 3; way++) outcome_free(&outcomes[way]);
    }
    assert_true(depths >= model.least_depths);
    descent_model_close(engine);
    golden_close(&model);
    compare_report();
}

int main(void)
{
    struct CMUnitTest tests[16];
    size_t count = 0;
    for (; golden_names[count]; count++)
        tests[count] = (struct CMUnitTest){golden_names[count], engine_equals_golden_numbers, NULL, NULL,
                                           (void *)(uintptr_t)golden_names[count]};
    return _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
}
