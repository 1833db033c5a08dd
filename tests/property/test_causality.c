/* test_causality.c: a later token changes no bit of anything that comes out before it: logits, states, observations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"

static void same_before(const outcome *a, const outcome *b, size_t position)
{
    compare_bits(a->logits, b->logits, position * a->vocab, "logits before the changed token");
    compare_bits(a->states, b->states, position * a->width, "states before the changed token");
    for (size_t p = 0; p < a->seen->programs; p++)
        for (size_t t = 0; t <= a->seen->steps[p]; t++) {
            const record_step *x = &a->seen->at[p][t], *y = &b->seen->at[p][t];
            compare_bits(x->x, y->x, position * a->width, "x before the changed token");
            compare_bits(x->g, y->g, position * a->width, "g before the changed token");
            compare_bits(x->energy[0], y->energy[0], position, "first energies before the changed token");
            compare_bits(x->energy[1], y->energy[1], position, "second energies before the changed token");
            compare_bits(x->own_change, y->own_change, position, "own_change before the changed token");
            compare_bits(x->history_change, y->history_change, position, "history_change before the changed token");
            compare_bits(x->update_norm, y->update_norm, position, "update_norm before the changed token");
            compare_bits(x->relative_change, y->relative_change, position, "relative_change before the changed token");
            compare_bits(x->slope, y->slope, position, "slope before the changed token");
        }
}

static void a_later_token_changes_nothing_before_it(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(60); round++) {
        example_wish wish = {.family = family_of(round), .context = 70};
        example e = example_draw(test_seed(40, round), &wish);
        drive_options options = {.depth = e.depth,
                                 .observe = OBSERVE_ALL,
                                 .chunks = (drive_chunks)(round / TEST_FAMILIES % 3),
                                 .seed = round,
                                 .page_type = (descent_page_type)(round / 6 % 2)};
        outcome before = drive(e.engine, e.tokens, e.count, &options);
        size_t position = rng_below(&e.r, e.count);
        e.tokens[position] = (uint32_t)((e.tokens[position] + 1 + rng_below(&e.r, e.model.vocab - 1)) % e.model.vocab);
        options.seed = round / 2;
        outcome after = drive(e.engine, e.tokens, e.count, &options);
        same_before(&after, &before, position);
        if (!memcmp(after.states + position * after.width, before.states + position * before.width,
                    before.width * sizeof(float)))
            compare_fail("position %zu did not notice its own token", position);

        /* Nor does it matter how many tokens follow. */
        outcome shorter = drive(e.engine, e.tokens, position + 1, &options);
        compare_bits(shorter.logits, after.logits, (position + 1) * after.vocab, "logits of the text cut short");
        compare_bits(shorter.states, after.states, (position + 1) * after.width, "states of the text cut short");
        compare_records(shorter.seen, after.seen);
        outcome_free(&shorter);
        outcome_free(&after);
        outcome_free(&before);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_later_token_changes_nothing_before_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
