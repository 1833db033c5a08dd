/* test_energies.c: what observers are told beside what test_shapes compares with the reference: that the split of a change
 * adds up, that nothing comes that was not asked for, that every reading comes once, and that asking for less tells the
 * same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "compare.h"
#include "example.h"

static double energy_at(const record_step *step, size_t i)
{
    return (double)step->energy[0][i] + (isnan(step->energy[1][i]) ? 0.0 : (double)step->energy[1][i]);
}

static void the_split_adds_up(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(60); round++) {
        example_wish wish = {.family = family_of(round), .context = 40};
        example e = example_draw(test_seed(70, round), &wish);
        drive_options options = {
            .depth = e.depth, .observe = OBSERVE_ALL, .chunks = (drive_chunks)(round / TEST_FAMILIES % 3), .seed = round};
        outcome got = drive(e.engine, e.tokens, e.count, &options);
        for (size_t p = 0; p < got.seen->programs; p++)
            for (size_t t = 0; t <= got.seen->steps[p]; t++)
                for (size_t i = 0; i < e.count; i++) {
                    const record_step *now = &got.seen->at[p][t];
                    if (now->seen[i] != 1)
                        compare_fail("program %zu, step %zu, position %zu came %u times", p, t, i, now->seen[i]);
                    if (!test_has_energy(wish.family, p % got.seen->kinds)) {
                        if (!isnan(now->energy[0][i]) || !isnan(now->own_change[i]) || !isnan(now->history_change[i]))
                            compare_fail("program %zu has no energy, and one came", p);
                        continue;
                    }
                    if (t == 0 && !isnan(now->history_change[i])) compare_fail("step 0 has a history_change");
                    if (t == got.seen->steps[p] && !isnan(now->own_change[i]))
                        compare_fail("the reading at x(T) has an own_change");
                    if (t == 0) continue;
                    const record_step *before = &got.seen->at[p][t - 1];
                    double parts = (double)before->own_change[i] + (double)now->history_change[i];
                    compare_energy(parts, energy_at(now, i) - energy_at(before, i), "own_change and history_change together", t,
                                   i);
                    if (test_kinds(wish.family) > 1 && now->history_change[i] != 0.0f) /* the history is frozen */
                        compare_fail("history_change is %g where the history stands still", (double)now->history_change[i]);
                }
        outcome_free(&got);
        example_free(&e);
    }
    compare_report();
}

/* Along a model whose rate is a small positive diagonal, a step does not raise the energy that is its own. */
static void own_change_is_not_positive_where_the_theory_says_so(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(30); round++) {
        rng r = rng_seeded(test_seed(71, round));
        test_model model = random_shape(&r, TEST_NRGPT, 30);
        model.rate = "diag";
        random_weights(&model, &r);
        /* The norm's weight is part of the step from x to g: c * gamma, as the theory has it. */
        const double *gamma = test_model_find(&model, "blk.0.norm.weight");
        double *rate = test_model_find(&model, "blk.0.rate.weight");
        for (size_t c = 0; c < model.width; c++) rate[c] = round_to_f32(1e-3 * gamma[c]);
        uint32_t *tokens = random_tokens(&r, &model, 30);
        descent_model *engine = drive_open_test_model(&model);
        drive_options options = {.depth = {{5, 0}}, .observe = OBSERVE_ALL};
        compare_about("seed %llu, %s", (unsigned long long)test_seed(71, round), test_model_words(&model));
        outcome got = drive(engine, tokens, 30, &options);
        for (size_t t = 0; t < 5; t++)
            for (size_t i = 0; i < 30; i++) {
                double change = (double)got.seen->at[0][t].own_change[i], energy = energy_at(&got.seen->at[0][t], i);
                double slope = (double)got.seen->at[0][t].slope[i];
                if (!(slope >= 0)) compare_fail("step %zu has slope %g at position %zu", t, slope, i);
                if (!(change <= 1e-6 * fmax(1.0, fabs(energy))))
                    compare_fail("step %zu raises the energy of position %zu from %g by %g", t, i, energy, change);
            }
        outcome_free(&got);
        descent_model_close(engine);
        test_model_free(&model);
        free(tokens);
    }
}

static void nothing_comes_that_was_not_asked_for(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(32); round++) {
        example_wish wish = {.family = family_of(round), .context = 20};
        example e = example_draw(test_seed(72, round), &wish);
        drive_options options = {.depth = e.depth, .observe = OBSERVE_ALL};
        outcome all = drive(e.engine, e.tokens, e.count, &options);
        options.observe = (int)(round / 2 * 7) % 31 + 1;
        bool energy = options.observe & DESCENT_OBSERVE_ENERGY, state_too = options.observe & DESCENT_OBSERVE_STATE;
        bool convergence = options.observe & DESCENT_OBSERVE_CONVERGENCE, final = options.observe & DESCENT_OBSERVE_FINAL;
        outcome some = drive(e.engine, e.tokens, e.count, &options);
        for (size_t p = 0; p < all.seen->programs; p++)
            for (size_t t = 0; t <= all.seen->steps[p]; t++)
                for (size_t i = 0; i < e.count; i++) {
                    const record_step *a = &all.seen->at[p][t], *b = &some.seen->at[p][t];
                    static const float none = NAN;
                    size_t C = all.width;
                    if (!final && t == all.seen->steps[p]) {
                        if (b->seen[i]) compare_fail("the reading at x(T) came unasked");
                        continue;
                    }
                    if (b->seen[i] != 1) compare_fail("program %zu, step %zu, position %zu came %u times", p, t, i, b->seen[i]);
                    for (size_t c = 0; c < C; c++) {
                        compare_bits(&b->x[i * C + c], state_too ? &a->x[i * C + c] : &none, 1, "x");
                        compare_bits(&b->g[i * C + c], state_too ? &a->g[i * C + c] : &none, 1, "g");
                    }
                    for (size_t k = 0; k < DESCENT_MAX_TERMS; k++)
                        compare_bits(&b->energy[k][i], energy ? &a->energy[k][i] : &none, 1, "energy");
                    compare_bits(&b->own_change[i], energy ? &a->own_change[i] : &none, 1, "own_change");
                    compare_bits(&b->history_change[i], energy ? &a->history_change[i] : &none, 1, "history_change");
                    compare_bits(&b->update_norm[i], convergence ? &a->update_norm[i] : &none, 1, "update_norm");
                    compare_bits(&b->slope[i], options.observe & DESCENT_OBSERVE_SLOPE ? &a->slope[i] : &none, 1, "slope");
                    compare_bits(&b->relative_change[i], convergence ? &a->relative_change[i] : &none, 1, "relative_change");
                }
        outcome_free(&some);
        outcome_free(&all);
        example_free(&e);
    }
}

/* The reading at x(T) of a new token behind tokens that nobody observed, shared ones included. */
static void the_last_reading_stands_behind_unobserved_tokens(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(40); round++) {
        example_wish wish = {.family = family_of(round), .context = 80, .count = 75};
        example e = example_draw(test_seed(73, round), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        bool sharing = round & 2;
        size_t unseen = rng_between(&e.r, 33, 70);
        descent_depth other = e.depth; /* somebody was here before, deeper or less deep */
        if (test_deepens(wish.family)) other.steps[0] = (uint16_t)rng_between(&e.r, 1, 7);
        descent_sequence *earlier = drive_sequence(cache, other, sharing, e.tokens, e.count);
        drive_finish(batch, earlier);
        descent_sequence *sequence = drive_sequence(cache, e.depth, sharing, e.tokens, unseen);
        drive_finish(batch, sequence);
        record *seen = record_create(e.engine, e.count, e.depth);
        record_observe(seen, sequence, OBSERVE_ALL);
        drive_append(sequence, e.tokens + unseen, e.count - unseen);
        drive_finish(batch, sequence);
        compare_record(seen, &e.expected, unseen, e.count);
        record_free(seen);
        descent_sequence_destroy(sequence);

        /* Nor did the looking leave anything behind for others. */
        sequence = drive_sequence(cache, e.depth, sharing, e.tokens, e.count);
        drive_finish(batch, sequence);
        drive_options options = {.depth = e.depth};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        float *logits = test_alloc(expected.vocab, sizeof *logits);
        drive_logits(batch, sequence, e.count - 1, logits);
        compare_bits(logits, expected.logits + (e.count - 1) * expected.vocab, expected.vocab, "logits of who came after");
        free(logits);
        outcome_free(&expected);
        descent_sequence_destroy(sequence);
        descent_sequence_destroy(earlier);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_split_adds_up),
                                       cmocka_unit_test(own_change_is_not_positive_where_the_theory_says_so),
                                       cmocka_unit_test(nothing_comes_that_was_not_asked_for),
                                       cmocka_unit_test(the_last_reading_stands_behind_unobserved_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
